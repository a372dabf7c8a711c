"""Random programs, well typed and without hazards, in both dialects (in the manner of Csmith: Yang et al., PLDI 2011)."""
from __future__ import annotations

import random
from collections.abc import Callable
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from kir.interp import Result, run
from kir.ir import nodes as n

DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64, "i32": np.int32, "i64": np.int64}
"""What values may be."""


class Made:
    """A program of one or two kernels over X[M, N], W[N] -> Y, Z[M, N], and small arrays for it, all from a seed. It has no hazard by construction: each
    thread or CTA writes places of its own, and shared memory is read behind a barrier. `more`: also of the forms that few passes know."""

    def __init__(self, seed: int, more: bool = True) -> None:
        self.r = random.Random(seed)
        self.dtype = self.r.choice(["f32", *DTYPES])
        rare = (self.control, self.warps, self.product, self.asynchronous, self.called, self.atomic, self.viewed, self.ring, self.mapped, self.worked,
                self.spelled, self.ordered, self.addressed, self.halved, self.narrowed, self.met)
        self.form = form = self.r.choice([self.elements, self.rows, self.threads, self.tile, self.folded, *(rare if more else ())])
        plain = form in (self.rows, self.viewed, self.addressed)  # loops over single elements
        self.n = self.r.choice(["48"] if form == self.mapped else ["N", "48", "40"] if form == self.ring else ["N", "12", "10"] if plain else ["N", "24", "20"])
        facts = self.r.choice(["", "  fact N % 16 == 0\n", "  fact N <= 64\n"]) if self.n == "N" else ""
        size = "  size N: i32\n  fact N >= 1\n" if self.n == "N" else ""
        second = (f"kernel second grid (c: {self.n}, r: M) threads 1\n  Z[r, c] = {self.value('Y[r, c]', 'X[r, c]')}\n") if self.r.random() < 0.3 else ""
        self.functions = self.header = ""
        self.plan = ["launch main"]
        written = form()
        if second:
            chosen = [["launch second"], ["dispatch", f"  when {self.n} % 16 == 0", "    launch second", "  else", "    launch second"],
                      ["dispatch", "  when M > 1", "    launch second"]]
            self.plan += self.r.choice(chosen) if more else chosen[0]
        if len(self.plan) > 1:
            second += "".join(f"{line}\n" for line in ("plan", *(f"  {step}" for step in self.plan)))
        self.text = (f"kir 1\nprogram p\n  size M: i32\n  fact M >= 1\n{size}{facts}  in X: {self.dtype}[M, {self.n}]\n  in W: {self.dtype}[{self.n}]\n"
                     f"  inout Y: {self.dtype}[M, {self.n}]\n  inout Z: {self.dtype}[M, {self.n}]\n{self.header}{self.functions}{written}{second}")
        rows = [1, 3, 5] if form in (self.folded, self.product) else [1, 2, 3]
        columns = ([16] if plain else [16, 16, 32]) if "%" in facts else [1, 5, 9] if plain else [1, 5, 17, 17, 33]
        self.sizes = self.r.choice(rows), int(self.n) if self.n != "N" else self.r.choice(columns)

    def literal(self, value: str = "") -> str:
        """A number of the dtype."""
        v = value or self.r.choice("1235")
        text = v if self.dtype.startswith("i") else f"{v}.0"
        return text if self.dtype in ("i32", "f32") else f"{text}:{self.dtype}"

    def value(self, *operands: str) -> str:
        """Something computed from operands."""
        e = self.r.choice(operands)
        for _ in range(self.r.randint(1, 3)):
            op, b = self.r.choice(["+", "-", "*", "max", "min", "select"]), self.r.choice([*operands, self.literal()])
            e = f"({e} {op} {b})" if op in "+-*" else f"select({e} < {b}, {b}, {e})" if op == "select" else f"{op}({e}, {b})"
        return e

    def elements(self) -> str:
        return f"kernel main grid (c: {self.n}, r: M) threads 1\n  let x = X[r, c]\n  let w = W[c]\n  Y[r, c] = {self.value('x', 'w')}\n"

    def rows(self) -> str:
        fold = self.r.choice(["s + y", "max(s, y)"])
        return (f"kernel main grid (r: M) threads 1\n  register s: {self.dtype} = {self.literal()}\n  for c in 0..{self.n}\n    let x = X[r, c]\n"
                f"    let y = {self.value('x', 'W[c]')}\n    s = {fold}\n    Y[r, c] = {self.value('x', 'y')}\n"
                f"  for d in 0..{self.n}\n    Z[r, d] = {self.value('X[r, d]', 's')}\n")

    def threads(self) -> str:
        size = self.r.choice([16, 32])
        at = f"b * {size} + t"
        turned = f"    S[t] = {self.value('x', 'w')}\n    barrier()\n    let v = S[{size - 1} - t]\n"
        some = f"    if t < {self.r.choice([1, size // 2])}\n      Z[r, {at}] = {self.value('v', 'w')} clip\n" if self.r.random() < 0.5 else ""
        return (f"kernel main grid (b: ceildiv({self.n}, {size}), r: M) threads {size}\n"
                f"  shared S: {self.dtype}[{size}]\n  for t in 0..{size} parallel thread\n"
                f"    let x = load(X[r, {at}] else {self.literal()} clip)\n    let w = load(W[{at}] else {self.literal()} clip)\n"
                f"{self.r.choice([turned, '    let v = ' + self.value('x', 'w') + chr(10)])}"
                f"    Y[r, {at}] = {self.value('v', 'w', 'x')}{self.r.choice(['', f' where {at} < {self.n}'])} clip\n{some}")

    def tile(self) -> str:
        size = self.r.choice([16, 32])
        at = f"b * {size} +: {size}"
        middle = self.r.choice([
            f"  shared S: {self.dtype}[{size}]\n  S = x\n  let v = S + w\n", f"  let v = select(iota({size}) + b * {size} < {self.n}, x, w)\n",
            f"  fragment F: {self.dtype}[{size}]\n  F = x + w\n  let v = F + x\n  copy F -> Z[r, {at}] clip\n",
            f"  let v = {self.value('x', 'w')}\n  let top = reduce(v, axis=0, op={self.r.choice(['max', 'sum'])})\n  Z[r, {at}] = x - top clip\n"])
        return (f"kernel main grid (b: ceildiv({self.n}, {size}), r: M) threads 32\n  let x = load(X[r, {at}] else {self.literal()} clip)\n"
                f"  let w = load(W[{at}] else {self.literal()} clip)\n{middle}  Y[r, {at}] = {self.value('v', 'w', 'x')} clip\n")

    def folded(self) -> str:
        size, kind = self.r.choice([16, 32]), self.r.choice(["", " unroll", " pipelined {stages=2}"])
        end = self.r.choice([f"  for d in 0..{self.r.choice([self.n, '3'])}\n    Z[rt * 4 +: 4, d] = acc clip\n", "  copy acc -> Z[rt * 4 +: 4, 0] clip\n"])
        return (f"kernel main grid (rt: ceildiv(M, 4)) threads 32\n  fragment acc: {self.dtype}[4] = {self.literal()}\n"
                f"  for c in 0..ceildiv({self.n}, {size}){kind}\n    let x = load(X[rt * 4 +: 4, c * {size} +: {size}] else {self.literal('0')} clip)\n"
                f"    let w = load(W[c * {size} +: {size}] else {self.literal()} clip)\n    acc = acc + reduce(x * expand(w, axis=0), axis=1, op=sum)\n"
                f"    Y[rt * 4 +: 4, c * {size} +: {size}] = x + x * expand(w, axis=0) clip\n{end}")

    def _lanes(self, size: int) -> str:
        """The head of a kernel of one thread for each column."""
        return (f"kernel main grid (b: ceildiv({self.n}, {size}), r: M) threads {size}\n  for t in 0..{size} parallel thread\n    let col = b * {size} + t\n"
                f"    let x = load(X[r, col] else {self.literal()} clip)\n    let w = load(W[col] else {self.literal()} clip)\n")

    def control(self) -> str:
        """Loops that end by data, jumps, branches, integers beside the values."""
        jump = self.r.choice(["", f"      if a < {self.literal('1')}\n        break\n", "      if q % 2 == 1\n        continue\n"])
        loop = self.r.choice([f"    register q: i32 = col % 5\n    while q > 0\n      q = q - 1\n{jump}      a = {self.value('a', 'w')}\n",
                              f"    for q in 0..t % {self.r.choice([3, 4])}\n{jump}      a = {self.value('a', 'x')}\n",
                              f"    for q in 0..{self.r.choice([2, 4])} unroll\n      a = {self.value('a', 'w', 'x')}\n"])
        kind = self.r.choice(["i32", "i64", "u32", "i16"])
        odd = f"cast(cast(col, {kind}) {self.r.choice(['//', '%', '>>', '&', '^'])} {self.r.choice([1, 3, 5])}:{kind}, {self.dtype})"
        return (f"{self._lanes(32)}    register a: {self.dtype} = x\n{loop}    if col % {self.r.choice([2, 3])} == 0\n      a = {self.value('a', 'x')}\n"
                f"    else\n      a = a + {odd.replace(f':{kind}', '' if kind == 'i32' else f':{kind}')}\n    Y[r, col] = a clip\n")

    def warps(self) -> str:
        """Lanes of a warp that exchange values."""
        moved = self.r.choice([f"shfl_xor(x, {self.r.choice([1, 2, 16])})", f"shfl_down(x, {self.r.choice([1, 4])})", "shfl_idx(x, 3)"])
        vote = self.r.choice([f"select(vote_any(x < w), {self.value('v', 'w')}, x)", f"select(vote_all(x < w), v, {self.value('v', 'x')})"])
        tree = f"    register s: {self.dtype} = x\n"
        tree += "    for j in 0..5 static\n      let other = shfl_xor(s, 16 >> j)\n      s = max(s, other)\n    Z[r, col] = s clip\n"
        end = self.r.choice(["", tree.replace(" static", ""), tree.replace(" static", " unroll")])
        return f"{self._lanes(32)}    let v = {moved}\n    Y[r, col] = {vote} clip\n{end}"

    def product(self) -> str:
        """Products of tiles."""
        if self.dtype.startswith("i") or self.dtype == "f64":
            return self.tile()
        half, size = self.r.choice(["f16", "bf16"]), 16
        wide = self.dtype not in ("f16", "bf16")
        zero, kind = self.literal("0"), self.r.choice(["", " pipelined {stages=2}"])
        end = "acc" if self.dtype == "f32" else f"cast(acc, {self.dtype})"
        a, b = (f"load(X[{rows} * {size} +: {size}, {columns} * {size} +: {size}] else {zero} clip)" for rows, columns in ("ik", "kj"))
        if wide:
            a, b = f"cast({a}, {half})", f"cast({b}, {half})"
        return (f"kernel main grid (i: ceildiv(M, {size}), j: ceildiv({self.n}, {size})) threads 128\n  fragment acc: f32[{size}, {size}] = 0.0\n"
                f"  for k in 0..ceildiv({self.n}, {size}){kind}\n    let a = {a}\n    let b = {b}\n    mma acc += a * b\n"
                f"  Y[i * {size} +: {size}, j * {size} +: {size}] = {end} clip\n")

    def asynchronous(self) -> str:
        """Copies that are waited for."""
        size, ahead = 16, self.r.choice([0, 1])
        return (f"kernel main grid (r: M) threads 32\n  shared S: {self.dtype}[2, {size}]\n  copy load(X[r, 0 +: {size}] else {self.literal()} clip) -> "
                f"S[0, 0 +: {size}] via cp_async grouped\n  async_commit()\n  for k in 0..ceildiv({self.n}, {size})\n"
                f"    copy load(X[r, (k + 1) * {size} +: {size}] else {self.literal()} clip) -> S[(k + 1) % 2, 0 +: {size}] via cp_async grouped\n"
                f"    async_commit()\n    async_wait({ahead})\n    barrier()\n    let x = S[k % 2, 0 +: {size}]\n    let w = load(W[k * {size} +: {size}] else "
                f"{self.literal()} clip)\n    Y[r, k * {size} +: {size}] = {self.value('x', 'w')} clip\n    barrier()\n  async_wait(0)\n")

    def called(self) -> str:
        """A device function."""
        self.functions = f"function blend(p: {self.dtype}, q: {self.dtype}) -> {self.dtype}\n  let s = {self.value('p', 'q')}\n  return s + q\n"
        return f"{self._lanes(16)}    let v = blend(x, w)\n    Y[r, col] = blend(v, x) clip\n"

    def atomic(self) -> str:
        """Atomics whose order does not matter."""
        if self.dtype not in ("i32", "i64"):
            return self.control()
        op = self.r.choice(["add", "max", "min", "xor"])
        place = f"Z[r, col % {self.r.choice([1, 3, 7])} % {self.n}]"
        return (f"{self._lanes(32)}    if col < {self.n}\n      let old = atomic_{op}(&{place}, {self.value('x', 'w')})\n"
                f"    Y[r, col] = {self.value('x', 'w')} clip\n")

    def viewed(self) -> str:
        """Memory by another name."""
        return (f"kernel main grid (r: M) threads 1\n  view global V(a): {self.dtype}[{self.n}] at X[r, a]\n  for c in 0..{self.n}\n"
                f"    let x = V[{self.r.choice(['c', f'{self.n} - 1 - c'])}]\n    Y[r, c] = {self.value('x', 'W[c]')}\n")

    def ring(self) -> str:
        """A producer and a consumer, each its own warps, with a ring of two stages between them."""
        if self.n != "48" or self.dtype not in ("f32", "i32"):
            return self.asynchronous()
        return f"""kernel main grid (r: M) threads 64
  shared S: {self.dtype}[2, 16] align 128
  shared full: mbarrier[2]
  shared empty: mbarrier[2]
  for s in 0..2
    mbar_init(&full[s], 1)
    mbar_init(&empty[s], 1)
  fence_mbar_init()
  barrier()
  roles
    role producer warps 0..1
      for k in 0..3
        mbar_wait(&empty[k % 2], (k // 2 + 1) % 2)
        mbar_arrive_expect(&full[k % 2], 64)
        copy X[r, k * 16 +: 16] -> S[k % 2, 0 +: 16] via bulk signal full[k % 2]
    role consumer warps 1..2
      for j in 0..3
        mbar_wait(&full[j % 2], j // 2 % 2)
        let x = S[j % 2, 0 +: 16]
        let w = W[j * 16 +: 16]
        Y[r, j * 16 +: 16] = {self.value('x', 'w')}
        mbar_arrive(&empty[j % 2])
"""

    def mapped(self) -> str:
        """Boxes by TMA, in and out, through memory whose elements lie in a pattern."""
        bits = {"f16": 16, "bf16": 16, "f32": 32}.get(self.dtype)
        if bits is None:
            return self.worked()
        width = self.r.choice([16, 32])
        span = width * bits // 8
        turned = self.r.choice([0, span] if span in (32, 64, 128) else [0])
        layout = f" layout swizzle({turned.bit_length() - 5}, 4, 3)" if turned else ""
        how = f" {{swizzle={turned}}}" if turned else ""
        self.header = f"  map X_map of X box [4, {width}]{how}\n  map Y_map of Y box [4, {width}]{how}\n"
        at, tile = f"rt * 4 +: 4, c * {width} +: {width}", f"0 +: 4, 0 +: {width}"
        return (f"kernel main grid (c: ceildiv(48, {width}), rt: ceildiv(M, 4)) threads 32\n  shared S: {self.dtype}[4, {width}]{layout} align 1024\n"
                f"  shared T: {self.dtype}[4, {width}]{layout} align 1024\n  shared full: mbarrier[1]\n  mbar_init(&full[0], 1)\n  fence_mbar_init()\n"
                "  barrier()\n"
                f"  mbar_arrive_expect(&full[0], {4 * span})\n"
                f"  copy load(X[{at}] else {self.literal('0')} clip) -> S[{tile}] via tma signal full[0] {{descriptor=X_map}}\n  mbar_wait(&full[0], 0)\n"
                f"  let x = S[{tile}]\n  let w = expand(load(W[c * {width} +: {width}] else {self.literal()} clip), axis=0)\n"
                f"  T[{tile}] = {self.value('x', '(x + w)')}\n  fence_async()\n  barrier()\n"
                f"  copy T[{tile}] -> Y[{at}] via tma clip grouped {{descriptor=Y_map}}\n  bulk_commit()\n  bulk_wait(0)\n")

    def worked(self) -> str:
        """A workspace between two kernels, a loop over neighbors that are one access, and shared memory whose elements lie in a pattern."""
        start, layout = self.r.choice(["", f" = {self.literal()}"]), self.r.choice([" layout swizzle(2, 4, 3)", " layout strides(1, 4)", ""])
        self.header, size = f"  workspace P: {self.dtype}[M, {self.n}]{start}\n", self.r.choice([16, 32])
        at = f"b * {size} +: {size}"
        self.plan = ["launch main", "launch then"]
        return (f"kernel main grid (b: ceildiv({self.n}, {size}), r: M) threads 32\n  P[r, {at}] = load(X[r, {at}] else {self.literal()} clip) clip\n"
                f"kernel then grid (b: ceildiv({self.n}, {size}), r: M) threads 32\n  shared S: {self.dtype}[4, {size // 4}]{layout} align 16\n"
                f"  let x = load(P[r, {at}] else {self.literal()} clip)\n  S = reshape(x, 4, {size // 4})\n  barrier()\n"
                f"  let w = load(W[{at}] else {self.literal()} clip)\n  let s = reshape(S[0 +: 4, 0 +: {size // 4}], {size})\n"
                f"  Y[r, {at}] = {self.value('s', 'w', 'x')} clip\n")

    def spelled(self) -> str:
        """Functions and operations of single elements, and truth values that are kept."""
        if self.dtype.startswith("i"):
            one, three = self.literal("1"), self.literal("3")
            some = ["x << " + one, "x >> " + one, "x | w", "~x", "x & w", f"tdiv(x, {three})", f"trem(x, {three})", f"x // {three}", f"x % {three}", "abs(x)",
                    f"ceildiv(x, {three})", "x ^ w"]
        else:
            some = ["abs(x)", "floor(x)", "ceil(w)", "trunc(x * w)", "round_even(x)", "sqrt(abs(w))", "fma(x, w, x)", "copysign(x, w)", "min_nan(x, w)",
                    "max_nan(w, x)", f"x / (abs(w) + {self.literal('1')})", "exp2(-abs(x))", "tanh(w)", "sigmoid(x)", "erf(w)"]
        a, b = self.r.sample(some, 2)
        join = self.r.choice(["p | q", "p & ~q", "p ^ q", "p | ~q"])
        return (f"{self._lanes(32)}    let u = {a}\n    let v = {b}\n    let p = u < v\n    let q = x {self.r.choice(['!=', '>=', '=='])} w\n"
                f"    register on: bool = {join}\n    for j in 0..2 {self.r.choice(['unroll', 'serial'])}\n      on = on ^ (x > w)\n"
                f"    Y[r, col] = select(on, {self.value('u', 'v')}, {self.r.choice(['u', 'v'])}) clip\n"
                f"    if on | p\n      Z[r, col] = {self.value('u', 'x')} clip\n")

    def ordered(self) -> str:
        """Tiles whose elements are put in order, run through, picked, put together and taken apart."""
        size = 16
        at, half = f"b * {size} +: {size}", size // 2
        turned = self.r.choice([
            "scan(x, axis=0, op=max)", "scan(w, axis=0, op=min, reverse=true)", "sort(x, axis=0)", f"pick(x, {size - 1} - iota({size}))",
            f"gather(x, (iota({size}) * 5 + 3) % {size}, axis=0)", f"reshape(trans(reshape(x, 4, {size // 4}), 1, 0), {size})",
            f"cat(pick(x, iota({half})), pick(w, iota({half}) + {half}), axis=0)",
            f"reshape(broadcast(expand(pick(x, iota({half})), axis=0), 2, {half}), {size})",
            "reduce(expand(x, axis=0) * expand(w, axis=1), axis=1, op=max)"])
        step = f"    let x = load(X[r, b * {size} +: {half} step 2] else {self.literal()} clip)\n" if self.r.random() < 0.3 else ""
        spread = f"  if b >= 0\n{step}    Z[r, b * {size} +: {half} step 2] = x clip\n" if step else ""
        return (f"kernel main grid (b: ceildiv({self.n}, {size}), r: M) threads 32\n  let x = load(X[r, {at}] else {self.literal()} clip)\n"
                f"  let w = load(W[{at}] else {self.literal()} clip)\n  let v = {turned}\n{spread.replace(' x =', ' few =').replace('= x clip', '= few clip')}"
                f"  Y[r, {at}] = {self.value('v', 'w', 'x')} clip\n")

    def addressed(self) -> str:
        """A function that is given memory, and gives two values; another one is given an address; a structure that nobody needs."""
        self.functions = (f"function both(global V: {self.dtype}[{self.n}], c: i32) -> {self.dtype}, {self.dtype}\n  let s = V[c]\n"
                          f"  let t = {self.value('s', 'V[' + self.n + ' - 1 - c]')}\n  return s, t\n")
        self.header = f"  struct Pair first: {self.dtype}, second: i32\n"
        at = self.r.random() < 0.5
        if at:
            self.functions += f"function one(p: ptr<{self.dtype}, global>) -> {self.dtype}\n  return {self.literal()}\n"
        return (f"kernel main grid (r: M) threads 1\n  for c in 0..{self.n}\n    let a, b = both(&W, c)\n    let x = X[r, c]"
                f"{' + one(addr(X[r, c]))' if at else ''}\n    Y[r, c] = {self.value('x', 'a', 'b')}\n")

    def halved(self) -> str:
        """Warps of a CTA, each with a row of its own, and what they tell each other by a barrier of theirs."""
        met = self.r.choice(["    named_barrier_sync(1, 64)\n", "    barrier()\n"])
        return (f"kernel main grid (b: ceildiv({self.n}, 32), r: M) threads 64\n  shared S: {self.dtype}[2, 32]\n  for g in 0..2 parallel warp\n"
                f"    for t in 0..32 parallel thread\n      let col = b * 32 + t\n      let x = load(X[r, col] else {self.literal()} clip)\n"
                f"      let w = load(W[col] else {self.literal()} clip)\n      S[g, t] = {self.value('x', 'w')}\n  {met.strip()}\n"
                f"  for h in 0..2 parallel warp\n    for u in 0..32 parallel thread\n      if h == 0\n        let v = S[1 - h, u]\n"
                f"        Y[r, b * 32 + u] = {self.value('v', 'S[h, u]')} clip\n")

    def narrowed(self) -> str:
        """Values of other dtypes, in shared memory and in registers, in loops over neighbors."""
        kind = self.r.choice(["i8", "u8", "i16", "u16", "u32", "i64", "bool"] if self.dtype.startswith("i") else ["f8e4m3", "f8e5m2", "f16", "bf16", "f32"])
        narrow = f"x > {self.literal('1')}" if kind == "bool" else f"cast({self.value('x', 'w')}, {kind})"
        back = f"cast(S[31 - t], {self.dtype})"
        around = self.r.choice(["", "    for j in 0..4 vectorize\n      a[j] = a[j] + v\n", "    for j in 0..4 unroll\n      a[3 - j] = v - a[j]\n"])
        end = "max(a[0], a[3])" if around else "v"
        held = f"    register a: {self.dtype}[4] = {self.literal()}\n" if around else ""
        head = self._lanes(32).replace("  for t in", f"  shared S: {kind}[32]\n  for t in", 1)
        return (f"{head}    S[t] = {narrow}\n    barrier()\n    let v = {back}\n{held}{around}    Y[r, col] = {self.value(end, 'w')} clip\n")

    def met(self) -> str:
        """CTAs of a cluster that wait for one another."""
        size = 32
        at = f"b * {size} +: {size}"
        meet = self.r.choice(["  cluster_arrive()\n  cluster_wait()\n", ""])
        wide = self.r.choice(["cluster (1, 1)", "cluster (2, 1)"] if self.n == "48" else ["cluster (1, 1)"])
        return (f"kernel main grid (b: ceildiv({self.n}, {size}), r: M) threads 64 {wide.replace(' (', '(')}\n  shared S: {self.dtype}[{size}]\n"
                f"  let x = load(X[r, {at}] else {self.literal()} clip)\n  S = x\n{meet}  barrier()\n"
                f"  let w = load(W[{at}] else {self.literal()} clip)\n  let s = S\n  Y[r, {at}] = {self.value('s', 'w', 'x')} clip\n")

    def arrays(self) -> dict[str, Any]:
        """Fresh inputs, the same each time."""
        return {name: values.copy() for name, values in self._drawn.items()}

    @cached_property
    def _drawn(self) -> dict[str, Any]:
        some, (rows, columns) = np.random.default_rng(1), self.sizes
        numbers = (lambda shape: some.integers(-4, 5, shape)) if self.dtype.startswith("i") else some.standard_normal
        return {name: numbers((rows, columns) if name != "W" else (columns,)).astype(DTYPES[self.dtype]) for name in "XWYZ"}

    def runner(self) -> Callable[[n.Program], Result]:
        """Runs programs on the same arrays, in the checking mode."""
        return lambda p: run(p, self.arrays(), mode="check")
