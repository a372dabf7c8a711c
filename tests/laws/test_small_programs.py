"""Laws 1, 2 and 3, three steps deep: small programs made at random, and passes taken in any order and direction."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.interp import Result, run
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite import apply, judge, passes, sites
from kir.rewrite.driver import forward_site, run_forward, unfit
from kir.rewrite.meaning import difference
from kir.rewrite.pipelines.text import Direction

PASSES = [cls for cls in passes() if getattr(cls, "carrier", None) is None and cls.name not in ("templatize", "autotune")]
"""All but those that leave holes or open parameters, which nothing interprets."""
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64, "i32": np.int32, "i64": np.int64}
DEPTH, SEEDS = 3, 8


class Made:
    """A program of one or two kernels over X[M, N], W[N] -> Y, Z[M, N], and small arrays for it."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.dtype = self.r.choice(["f32", *DTYPES])
        self.n = self.r.choice(["N", "48", "100"])
        facts = self.r.choice(["", "  fact N % 16 == 0\n", "  fact N <= 64\n"]) if self.n == "N" else ""
        size = "  size N: i32\n  fact N >= 1\n" if self.n == "N" else ""
        second = (f"kernel second grid (c: {self.n}, r: M) threads 1\n  Z[r, c] = {self.value('Y[r, c]', 'X[r, c]')}\n"
                  "plan\n  launch main\n  launch second\n") if self.r.random() < 0.3 else ""
        form = self.r.choice([self.elements, self.rows, self.threads, self.tile, self.folded])
        self.text = (f"kir 1\nprogram p\n  size M: i32\n  fact M >= 1\n{size}{facts}  in X: {self.dtype}[M, {self.n}]\n  in W: {self.dtype}[{self.n}]\n"
                     f"  inout Y: {self.dtype}[M, {self.n}]\n  inout Z: {self.dtype}[M, {self.n}]\n{form()}{second}")
        self.sizes = self.r.choice([1, 5, 6]), int(self.n) if self.n != "N" else self.r.choice([16, 32, 48] if "%" in facts else [1, 17, 33, 50])

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

    def runner(self) -> Callable[[n.Program], Result]:
        """Runs programs on the same arrays, in the checking mode."""
        some, (rows, columns) = np.random.default_rng(1), self.sizes
        numbers = (lambda shape: some.integers(-4, 5, shape)) if self.dtype.startswith("i") else some.standard_normal
        arrays = {name: numbers((rows, columns) if name != "W" else (columns,)).astype(DTYPES[self.dtype]) for name in "XWYZ"}
        return lambda p: run(p, {name: array.copy() for name, array in arrays.items()}, mode="check")


def _step(r: random.Random, p: n.Program) -> tuple[n.Program, str, str] | None:
    """What some pass makes of a program at some site: forward then backward, or the other way round, gives the program again."""
    for cls in r.sample(PASSES, len(PASSES)):
        direction: Direction = r.choice(("forward", "backward"))
        found = sites(cls.with_options({}), p, direction)
        if not found:
            continue
        site = r.choice(found)
        validity = {each.id for each in site.params.preconditions if each.kind == "validity"}
        if direction == "forward" and (any(not v for id_, v in judge(p, site) if id_ in validity) or unfit(p, site)):
            continue
        try:
            done = apply(p, site.params, site, direction)
        except KirError as refused:
            assert direction == "backward" and all(d.id.startswith("KIR-P") for d in refused.diagnostics), f"{refused}\n{site.params}\n{program_text(p)}"
            continue
        if direction == "backward":
            there = forward_site(done.program, done.witness.params, done.witness.path)
            assert content_hash(run_forward(done.program, there, done.witness.residue).program) == content_hash(p)
        return done.program, f"{'~' if direction == 'backward' else ''}{site.params}@{site.path}", cls.numerics
    return None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_three_steps_keep_the_laws(seed: int) -> None:
    for k in range(4):
        made = Made(100 * seed + k)
        p, ran = normalize(parse_program(made.text, "p.kir")), made.runner()
        base, trail, numerics = ran(p), list[str](), "bitwise"
        assert not base.errors, f"{base.errors[0]}\n{made.text}"
        for _ in range(DEPTH):
            step = _step(made.r, p)
            if step is None:
                break
            before, (p, told, moved) = p, step
            trail.append(told)
            numerics = moved if moved != "bitwise" else numerics
            said = f"{made.sizes} {trail}\n{program_text(before)}\n{program_text(p)}"
            assert parse_program(program_text(p), "p.kir") == p, said
            after = ran(p)
            assert not after.errors and difference(base, after, numerics) == "", said
