"""Kernels that do not do what their problem says, each with a look-alike that does: nothing that the tests compute tells the two apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.problem import Problem, load_problem

from .exploits import PROBLEMS


@dataclass(frozen=True)
class Claimed:
    """A program of a problem; `lacks` says what is absent though named, and is empty for an honest one. `id` is the diagnostic that refuses it."""

    problem: str
    name: str
    text: str
    lacks: str = ""
    id: str = ""

    @cached_property
    def program(self) -> Program:
        return parse_program(self.text, f"{self.name}.kir")

    @cached_property
    def of(self) -> Problem:
        return load_problem(PROBLEMS / self.problem)


HEADS = {
    "fp8_product": "  size M: i32\n  size N: i32\n  size K: i32\n  in A: bf16[M, K]\n  in B: bf16[K, N]\n  out C: f32[M, N]\n",
    "compensated": "  size M: i32\n  size N: i32\n  in X: f32[M, N]\n  out S: f32[M]\n",
    "in_order": "  size M: i32\n  size N: i32\n  in X: f32[M, N]\n  out S: f32[M]\n",
    "dropped": "  size M: i32\n  size N: i32\n  scalar scale: f32\n  in X: f32[M, N]\n  in KEEP: f32[M, N]\n  out Y: f32[M, N]\n",
    "masked_softmax": "  size M: i32\n  size N: i32\n  in X: f32[M, N]\n  in MASK: f32[M, N]\n  out Y: f32[M, N]\n",
    "rounded_weights": "  size M: i32\n  size N: i32\n  in X: f32[M, N]\n  in W: f32[N]\n  out Y: f32[M, N]\n",
    "scaled_rows": "  size M: i32\n  size N: i32\n  in X: f32[M, N]\n  in W: f32[N]\n  out Y: f32[M, N]\n",
}
ROW, ELEMENT = "kernel main grid (i: M) threads 1\n", "kernel main grid (i: M, j: N) threads 1\n"


def _text(problem: str, body: str, grid: str = ROW, header: str = "") -> str:
    lines = "".join(f"  {line}\n" if line else "" for line in body.strip("\n").split("\n")) if grid else body
    return f"kir 1\nprogram {problem}\n{HEADS[problem]}{header}{grid}{lines}"


def _product(value: str, acc: str = "f32", end: str = "acc", before: str = "") -> str:
    return _text("fp8_product", f"{before}register acc: {acc} = 0.0:{acc}\nfor k in 0..K\n  acc = {value}\nC[i, j] = {end}", ELEMENT)


A8, B8 = "cast(cast(A[i, k], f8e4m3), f32)", "cast(cast(B[k, j], f8e4m3), f32)"
A32, B32 = "cast(A[i, k], f32)", "cast(B[k, j], f32)"


def _tile(dtype: str, rest: str = "", acc: str = "f32", via: str = "") -> str:
    """16 x 16 tiles; operands are cast to `dtype`, then as `rest` says."""
    def load(name: str, at: str) -> str:
        held = f"load({name}[{at}] else 0.0:bf16 clip)"
        return f"cast(cast({held}, {dtype}), {rest})" if rest else held if dtype == "bf16" else f"cast({held}, {dtype})"
    end = "acc" if acc == "f32" else "cast(acc, f32)"
    return _text("fp8_product", f"""fragment acc: {acc}[16, 16] = 0.0:{acc}
for k in 0..ceildiv(K, 32)
  let a = {load('A', 'i * 16 +: 16, k * 32 +: 32')}
  let b = {load('B', 'k * 32 +: 32, j * 16 +: 16')}
  mma acc += a * b{via}
C[i * 16 +: 16, j * 16 +: 16] = {end} clip""", "kernel main grid (i: ceildiv(M, 16), j: ceildiv(N, 16)) threads 128\n")


def _kahan(c: str = "t - s - y", end: str = "s", y: str = "X[i, k] - c", more: str = "", problem: str = "compensated") -> str:
    return _text(problem, "register s: f32 = 0.0\nregister c: f32 = 0.0\n"
                 f"for k in 0..N\n  let y = {y}\n  let t = s + y\n  c = {c}\n  s = t{more}\nS[i] = {end}")


def _knuth(use: str, problem: str = "compensated") -> str:
    return _text(problem, f"""register s: f32 = 0.0
register e: f32 = 0.0
for k in 0..N
  let x = X[i, k]
  let t = s + x
  let b = t - s
  let d = (s - (t - b)) + (x - b)
  e = e + d
  s = t
S[i] = {use}""")


def _neumaier(use: str) -> str:
    return _text("compensated", f"""register s: f32 = 0.0
register e: f32 = 0.0
for k in 0..N
  let x = X[i, k]
  let t = s + x
  if abs(s) >= abs(x)
    e = e + ((s - t) + x)
  else
    e = e + ((x - t) + s)
  s = t
S[i] = {use}""")


SUM = "register sum: f32 = 0.0\nfor k in 0..N\n  sum = sum + X[i, k]\n"


def _rows(body: str, before: str = SUM, grid: str = ROW, header: str = "") -> str:
    return _text("scaled_rows", before + body, grid, header)


_ANY = "register any: bool = false\nfor k in 0..N\n  if {}\n    any = true\nregister sum: f32 = 0.0\nif any\n  for k1 in 0..N\n    sum = sum + X[i, k1]\n"
EACH = "for j in 0..N\n  Y[i, j] = {}"
RIGHT = "X[i, j] * W[j] + sum"
def _kernel(value: str) -> str:
    return _rows(EACH.format(value)).split("Y: f32[M, N]\n")[1]


_PARTS = """kernel parts grid (i: M, p: 4) threads 1
  register s: {0} = 0.0:{0}
  for k in p..N step 4
    s = s + {1}
  P[i, p] = s
kernel main grid (i: M) threads 1
  register s: f32 = 0.0
  for p in 0..4
    s = s + {2}
  S[i] = s
"""


def _softmax(terms: tuple[str, ...], exp: str = "exp", before: str = "") -> str:
    a, b, c = terms
    return _text("masked_softmax", f"""{before}register top: f32 = -inf
for a in 0..N
  top = max(top, {a})
register sum: f32 = 0.0
for b in 0..N
  sum = sum + {exp}({b} - top)
for c in 0..N
  Y[i, c] = {exp}({c} - top) / sum""")


BOTH = tuple(f"X[i, {v}] + MASK[i, {v}]" for v in "abc")
PLAIN = tuple(f"X[i, {v}]" for v in "abc")
G130, G131, G132, G133, G134 = (f"KIR-G13{x}" for x in range(5))
G143, G146 = "KIR-G143", "KIR-G146"

FALSE = (
    Claimed("fp8_product", "products in bf16", _product(f"acc + {A32} * {B32}"), "fp8 products", G131),
    Claimed("fp8_product", "one factor in bf16", _product(f"acc + {A8} * {B32}"), "fp8 products of both", G131),
    Claimed("fp8_product", "the other fp8", _product(f"acc + {A8.replace('e4m3', 'e5m2')} * {B8.replace('e4m3', 'e5m2')}"), "e4m3", G131),
    Claimed("fp8_product", "rounded for nothing", _product(f"acc + {A32} * {B32} + 0.0 * {A8} * {B8}"), "fp8 products", G131),
    Claimed("fp8_product", "tile products in bf16", _tile("bf16"), "fp8 products", G131),
    Claimed("fp8_product", "tiles rounded, and multiplied in bf16", _tile("f8e4m3", "bf16"), "fp8 products", G131),
    Claimed("fp8_product", "sum in bf16", _product(f"acc + cast({A8} * {B8}, bf16)", "bf16", "cast(acc, f32)"), "an f32 sum", G132),
    Claimed("fp8_product", "sum in f16", _product(f"acc + cast({A8} * {B8}, f16)", "f16", "cast(acc, f32)"), "an f32 sum", G132),
    Claimed("fp8_product", "sum rounded at each step", _product(f"cast(cast(acc + {A8} * {B8}, f16), f32)"), "an f32 sum", G132),
    Claimed("fp8_product", "sum carried in f16", _product(f"cast(cast(acc, f32) + {A8} * {B8}, f16)", "f16", "cast(acc, f32)"), "an f32 sum", G132),
    Claimed("fp8_product", "fragment in f16", _tile("f8e4m3", acc="f16"), "an f32 sum", G132),
    Claimed("fp8_product", "sum rounded now and then", _product(
        f"acc + {A8} * {B8}\n  if k % 16 == 15\n    acc = cast(cast(acc, f16), f32)"), "an f32 sum", G132),
    Claimed("fp8_product", "fragment rounded now and then", _tile("f8e4m3").replace(
        "a * b\n", "a * b\n    if k % 4 == 3\n      acc = cast(cast(acc, f16), f32)\n"), "an f32 sum", G132),
    Claimed("compensated", "a plain sum", _text("compensated", "register s: f32 = 0.0\nfor k in 0..N\n  s = s + X[i, k]\nS[i] = s"), "compensation", G133),
    Claimed("compensated", "an error nobody uses", _kahan(y="X[i, k]"), "compensation", G133),
    Claimed("compensated", "an error times zero", _kahan(y="X[i, k] - c * 0.0"), "compensation", G133),
    Claimed("compensated", "an error times a zero by name", _kahan(y="X[i, k] - c * z").replace("  register c", "  let z = 0.0\n  register c"), "compensation",
            G133),
    Claimed("compensated", "no error at all", _kahan(c="c * 0.5"), "compensation", G133),
    Claimed("compensated", "errors added up for nothing", _knuth("s"), "compensation", G133),
    Claimed("compensated", "errors overwritten", _knuth("s + e") + "  S[i] = s\n", "compensation", G133),
    Claimed("compensated", "Neumaier's errors left", _neumaier("s"), "compensation", G133),
    Claimed("compensated", "compensated for long rows alone", _text("compensated", """register s: f32 = 0.0
register c: f32 = 0.0
for k in 0..N
  if N > 1000000000
    let y = X[i, k] - c
    let t = s + y
    c = t - s - y
    s = t
  else
    s = s + X[i, k]
S[i] = s"""), "compensation for rows that tests have", G134),
    Claimed("dropped", "no mask", _text("dropped", "Y[i, j] = X[i, j] * scale", ELEMENT), "the mask", G130),
    Claimed("dropped", "no scale", _text("dropped", "Y[i, j] = X[i, j] * KEEP[i, j]", ELEMENT), "the scale", G130),
    Claimed("dropped", "a mask that is read alone", _text("dropped", "let keep = KEEP[i, j]\nY[i, j] = X[i, j] * scale", ELEMENT), "the mask", G130),
    Claimed("dropped", "a mask times zero", _text("dropped", "Y[i, j] = X[i, j] * scale + 0.0 * KEEP[i, j]", ELEMENT), "the mask", G130),
    Claimed("dropped", "a mask that cancels", _text("dropped", "Y[i, j] = X[i, j] * scale + (KEEP[i, j] - KEEP[i, j])", ELEMENT), "the mask", G130),
    Claimed("dropped", "a masked output overwritten", _text("dropped", "Y[i, j] = X[i, j] * KEEP[i, j] * scale\nY[i, j] = X[i, j] * scale", ELEMENT),
            "the mask", G130),
    Claimed("dropped", "a mask on large inputs alone", _text("dropped", "Y[i, j] = select(M > 1000000000, X[i, j] * KEEP[i, j], X[i, j]) * scale", ELEMENT),
            "the mask at sizes that tests have", G134),
    Claimed("masked_softmax", "no mask", _softmax(PLAIN), "the mask", G130),
    Claimed("masked_softmax", "a mask in a branch that is never taken", _softmax(PLAIN, before="if false\n  Y[i, 0] = MASK[i, 0]\n"), "the mask", G130),
    Claimed("masked_softmax", "a mask after a jump", _softmax(PLAIN) + "  return\n  Y[i, 0] = MASK[i, 0]\n", "the mask", G130),
    Claimed("in_order", "added as threads come", _text("in_order", "let old = atomic_add(&P[i], X[i, j])",
            "kernel main grid (i: M, j: N) threads 1\n", "  workspace P: f32[M] = 0.0\n") + "kernel last grid (i: M) threads 1\n  S[i] = P[i]\n",
            "a fixed order", G133),
    Claimed("in_order", "parts kept in bf16", f"kir 1\nprogram in_order\n{HEADS['in_order']}  workspace P: bf16[M, 4]\n"
            + _PARTS.format("bf16", "cast(X[i, k], bf16)", "cast(P[i, p], f32)"), "an f32 sum", G132),
    Claimed("rounded_weights", "nothing rounded", _text("rounded_weights", "Y[i, j] = X[i, j] * W[j]", ELEMENT), "rounding to bf16", G133),
    Claimed("rounded_weights", "the other factor rounded", _text("rounded_weights", "Y[i, j] = X[i, j] * cast(cast(W[j], bf16), f32)", ELEMENT),
            "rounding X", G133),
    Claimed("rounded_weights", "rounded for nothing", _text("rounded_weights", "let r = cast(X[i, j], bf16)\nY[i, j] = X[i, j] * W[j]", ELEMENT),
            "rounding to bf16", G133),
    Claimed("scaled_rows", "nothing at large sizes",
            _rows("if N < 1000000000\n" + "  " + EACH.format(RIGHT).replace("\n", "\n  ")), "work where N is large", G134),
    Claimed("scaled_rows", "a constant at one size", _rows(EACH.format(f"select(M == 123456789, 1.0, {RIGHT})")), "work at that size", G134),
    Claimed("scaled_rows", "an answer by two elements", _rows(EACH.format(f"select(X[0, 0] * 3.0 + X[0, N - 1] == 37036.5, 1.0, {RIGHT})")),
            "work for those inputs", G134),
    Claimed("scaled_rows", "no sum where all is large", _rows(EACH.format(RIGHT), _ANY.format("abs(X[i, k]) < 3e30")), "the sum of such rows", G134),
    Claimed("scaled_rows", "a sum cut off", _rows(EACH.format(RIGHT), SUM.replace("0..N", "0..min(N, 268435456)")), "the elements behind", G134),
    Claimed("scaled_rows", "rows left out by a mask", _text("scaled_rows", SUM + "for j in 0..N\n  Y[i, j] = select(i < 1000000000, " + RIGHT + ", 0.0)"),
            "rows from 1000000000 on", G134),
    Claimed("scaled_rows", "another kernel for large sizes", f"kir 1\nprogram scaled_rows\n{HEADS['scaled_rows']}" + _kernel(RIGHT)
            + "kernel quick grid (i: M) threads 1\n  for j in 0..N\n    Y[i, j] = X[i, j] * W[j]\n"
            "plan\n  dispatch\n    when N > 1000000000\n      launch quick\n"
              "    else\n      launch main\n", "the sum where N is large", G134),
    Claimed("fp8_product", "every second product in bf16", _product(f"acc + select(k % 2 == 0, {A8}, {A32}) * {B8}"), "fp8 products", G131),
    Claimed("fp8_product", "what rounding takes added again", _product(f"acc + ({A8} + ({A32} - {A8})) * {B8}"), "fp8 products", G131),
    Claimed("compensated", "errors forgotten at each step", _kahan(more="\n  c = 0.0"), "compensation", G133),
    Claimed("compensated", "every second error", _kahan(y="select(k % 2 == 0, X[i, k] - c, X[i, k])"), "every other compensation", G133),
    Claimed("compensated", "errors with the wrong sign", _kahan(y="X[i, k] + c"), "compensation", G133),
    Claimed("compensated", "a tiny part of each error", _kahan(y="X[i, k] - c * 1e-30"), "compensation", G133),
    Claimed("compensated", "Knuth's errors taken away", _knuth("s - e"), "compensation", G133),
    Claimed("compensated", "the first row alone", _kahan(y="select(i == 0, X[i, k] - c, X[i, k])"), "compensation of the other rows", G133),
    Claimed("dropped", "a mask no less than one", _text("dropped", "Y[i, j] = X[i, j] * max(KEEP[i, j], 1.0) * scale", ELEMENT), "the mask", G143),
    Claimed("dropped", "a mask over itself", _text("dropped", "Y[i, j] = X[i, j] * (KEEP[i, j] / KEEP[i, j]) * scale", ELEMENT), "the mask", G143),
    Claimed("dropped", "divided by the mask", _text("dropped", "Y[i, j] = X[i, j] / KEEP[i, j] * scale", ELEMENT), "the mask", G143),
    Claimed("dropped", "the first column's mask", _text("dropped", "Y[i, j] = X[i, j] * KEEP[i, 0] * scale", ELEMENT), "the mask of other columns", G143),
    Claimed("dropped", "the scale twice", _text("dropped", "Y[i, j] = X[i, j] * KEEP[i, j] * scale * scale", ELEMENT), "the scale", G143),
    Claimed("dropped", "a scale of one at most", _text("dropped", "Y[i, j] = X[i, j] * KEEP[i, j] * min(scale, 1.0)", ELEMENT), "a larger scale", G143),
    Claimed("dropped", "a choice that is none, by two elements", _text("dropped", "Y[i, j] = select(KEEP[i, j] + KEEP[i, 0] > 0.5, X[i, j], X[i, j]) * scale",
            ELEMENT), "the mask", G134),
    Claimed("masked_softmax", "a mask in the sum alone", _softmax((BOTH[0], BOTH[1], PLAIN[2])), "the mask of what is divided", G143),
    Claimed("masked_softmax", "no mask in the sum", _softmax((BOTH[0], PLAIN[1], BOTH[2])), "the mask of the sum", G143),
    Claimed("masked_softmax", "a mask in the greatest alone", _softmax((BOTH[0], *PLAIN[1:])), "the mask", G143),
    Claimed("masked_softmax", "the first column's mask", _softmax(tuple(f"X[i, {v}] + MASK[i, 0]" for v in "abc")), "the mask of other columns", G143),
    Claimed("masked_softmax", "a mask taken away", _softmax(tuple(f"X[i, {v}] - MASK[i, {v}]" for v in "abc")), "the mask", G143),
    Claimed("rounded_weights", "every second row rounded", _text(
        "rounded_weights", "Y[i, j] = select(i % 2 == 0, cast(cast(X[i, j], bf16), f32), X[i, j]) * W[j]", ELEMENT), "rounding of other rows", G133),
    Claimed("rounded_weights", "what rounding takes added again", _text(
        "rounded_weights", "let r = cast(cast(X[i, j], bf16), f32)\nY[i, j] = (r + (X[i, j] - r)) * W[j]", ELEMENT), "rounding to bf16", G133),
    *(Claimed("scaled_rows", name, _rows(EACH.format(value), SUM + more), "the answer for those inputs", G146) for name, value, more in (
        ("a sum cut off where it is large", RIGHT.replace("sum", "t"), "let t = min(sum, 1000000.0)\n"),
        ("a sum cut off where it might stand for infinity", RIGHT.replace("sum", "t"), "let t = min(sum, 3000000000.0)\n"),
        ("another answer for a large sum", f"select(sum > 1000000.0, {RIGHT} * 1.5, {RIGHT})", ""),
        ("a large sum in another branch", RIGHT.replace("sum", "t"), "register t: f32 = sum\nif abs(sum) > 1000000.0\n  t = sum * 0.5\n"),
        ("small products left out", "select(abs(X[i, j] * W[j]) < 0.00001:f32, 0.0, X[i, j] * W[j]) + sum", ""),
        ("two elements as two others", f"select((X[i, 0] == W[0]) & (X[i, N - 1] == W[N - 1]), 1.5 * ({RIGHT}), {RIGHT})", ""),
        ("a column far behind", f"select(j - i > 700000, 1.5 * ({RIGHT}), {RIGHT})", ""),
        ("a truth value as a factor", f"({RIGHT}) * (1.0 + cast(sum > 1000000.0, f32))", ""),
        ("whole millions of a sum", f"({RIGHT}) * (1.0 + floor(abs(sum) * 0.000001:f32))", ""),
        ("choices in choices", "select(X[i, 0] > 2.5, select(X[i, N // 2] < -2.5, " + f"select(X[i, N - 1] > 2.5, 0.0, {RIGHT}), {RIGHT}), {RIGHT})", ""),
        ("two elements apart by one", f"select(X[i, 0] == X[i, N - 1] + 1.03125, 2.0 * ({RIGHT}), {RIGHT})", ""),
    )),
    Claimed("rounded_weights", "the product rounded", _text("rounded_weights", "Y[i, j] = cast(cast(X[i, j] * W[j], bf16), f32)", ELEMENT), "rounding X", G133),
)
"""Refused, though every test passes."""

BY_VALUES = (
    Claimed("scaled_rows", "an answer by the first element", _rows(EACH.format(f"select(X[0, 0] * 3.0 == 37036.5, 1.0, {RIGHT})")),
            "work for those inputs", G146),
    Claimed("dropped", "a choice that is none", _text("dropped", "Y[i, j] = select(KEEP[i, j] > 0.5, X[i, j], X[i, j]) * scale", ELEMENT), "the mask", G143),
)
"""Refused, and seen by the tests too, which draw single elements where a condition on them turns."""

HONEST = (
    Claimed("fp8_product", "as the problem has it", _product(f"acc + {A8} * {B8}")),
    Claimed("fp8_product", "factors by name", _text("fp8_product", """register acc: f32 = 0.0
for k in 0..K
  let a = cast(A[i, k], f8e4m3)
  let b = cast(B[k, j], f8e4m3)
  acc = acc + cast(a, f32) * cast(b, f32)
C[i, j] = acc""", ELEMENT)),
    Claimed("fp8_product", "fused multiply and add", _product(f"fma({A8}, {B8}, acc)")),
    Claimed("fp8_product", "sum in f64", _product(f"acc + cast({A8} * {B8}, f64)", "f64", "cast(acc, f32)")),
    Claimed("fp8_product", "by tiles", _tile("f8e4m3")),
    Claimed("fp8_product", "two sums, added at the end", _text("fp8_product", f"""register acc: f32 = 0.0
register odd: f32 = 0.0
for k in 0..K
  if k % 2 == 0
    acc = acc + {A8} * {B8}
  else
    odd = odd + {A8} * {B8}
C[i, j] = acc + odd""", ELEMENT)),
    Claimed("fp8_product", "promoted after every eighth", _text("fp8_product", f"""register acc: f32 = 0.0
for q in 0..ceildiv(K, 8)
  register part: f32 = 0.0
  for k in q * 8..min(q * 8 + 8, K)
    part = part + {A8} * {B8}
  acc = acc + part
C[i, j] = acc""", ELEMENT)),
    Claimed("compensated", "Kahan", _kahan()),
    Claimed("compensated", "Kahan with the other sign", _kahan(c="y - (t - s)", y="X[i, k] + c")),
    Claimed("compensated", "Knuth", _knuth("s + e")),
    Claimed("compensated", "Neumaier", _neumaier("s + e")),
    Claimed("compensated", "Dekker", _kahan(end="s - c")),
    Claimed("compensated", "Kahan, what is left added at the end", _kahan(end="s - c", y="X[i, k] - c")),
    Claimed("compensated", "errors kept in f64", _knuth("s + cast(e, f32)").replace("register e: f32 = 0.0", "register e: f64 = 0.0:f64").replace(
        "e = e + d", "e = e + cast(d, f64)")),
    Claimed("dropped", "as the problem has it", _text("dropped", "Y[i, j] = X[i, j] * KEEP[i, j] * scale", ELEMENT)),
    Claimed("dropped", "the mask as a choice",
            _text("dropped", "let keep = KEEP[i, j]\nY[i, j] = select(keep == 0.0, 0.0, X[i, j] * (keep * scale))", ELEMENT)),
    Claimed("dropped", "the scaled mask first", _text("dropped", "let factor = KEEP[i, j] * scale\nY[i, j] = factor * X[i, j]", ELEMENT)),
    Claimed("dropped", "written twice, the second from the first", _text("dropped", "Y[i, j] = X[i, j] * KEEP[i, j]\nY[i, j] = Y[i, j] * scale", ELEMENT)),
    Claimed("dropped", "two kernels", _text("dropped", "P[i, j] = X[i, j] * KEEP[i, j]", ELEMENT, "  workspace P: f32[M, N]\n")
            + "kernel last grid (i: M, j: N) threads 1\n  Y[i, j] = P[i, j] * scale\n"),
    Claimed("masked_softmax", "as the problem has it", _softmax(BOTH)),
    Claimed("masked_softmax", "no mask in the greatest", _softmax((PLAIN[0], *BOTH[1:]))),
    Claimed("masked_softmax", "powers of two", _softmax(tuple(f"({x}) * 1.4426950408889634" for x in BOTH), exp="exp2")),
    Claimed("masked_softmax", "a sum guarded against zero", _softmax(BOTH).replace(
        "Y[i, c] = exp(X[i, c] + MASK[i, c] - top) / sum", "Y[i, c] = select(sum == 0.0, 0.0, exp(X[i, c] + MASK[i, c] - top) / sum)")),
    Claimed("in_order", "one after another", _text("in_order", "register s: f32 = 0.0\nfor k in 0..N\n  s = s + X[i, k]\nS[i] = s")),
    Claimed("in_order", "parts in a workspace", f"kir 1\nprogram in_order\n{HEADS['in_order']}  workspace P: f32[M, 4]\n"
            + _PARTS.format("f32", "X[i, k]", "P[i, p]")),
    Claimed("in_order", "threads counted by an atomic on integers", _text("in_order", """register s: f32 = 0.0
for k in 0..N
  s = s + X[i, k]
let old = atomic_add(&COUNT[0], 1)
S[i] = s""", ROW, "  workspace COUNT: i32[1] = 0\n")),
    Claimed("in_order", "by tiles", _text("in_order", """register s: f32 = 0.0
for q in 0..ceildiv(N, 16)
  s = s + reduce(load(X[i, q * 16 +: 16] else 0.0 clip), axis=0, op=sum)
S[i] = s""", "kernel main grid (i: M) threads 32\n")),
    Claimed("rounded_weights", "as the problem has it", _text("rounded_weights", "Y[i, j] = cast(cast(X[i, j], bf16), f32) * W[j]", ELEMENT)),
    Claimed("rounded_weights", "rounded in a register",
            _text("rounded_weights", "register r: bf16 = cast(X[i, j], bf16)\nY[i, j] = W[j] * cast(r, f32)", ELEMENT)),
    Claimed("rounded_weights", "rounded by a kernel before", _text("rounded_weights", "P[i, j] = cast(X[i, j], bf16)", ELEMENT, "  workspace P: bf16[M, N]\n")
            + "kernel last grid (i: M, j: N) threads 1\n  Y[i, j] = cast(P[i, j], f32) * W[j]\n"),
    Claimed("scaled_rows", "as the problem has it", _rows(EACH.format(RIGHT))),
    Claimed("scaled_rows", "no sum where all is zero", _rows(EACH.format(RIGHT), _ANY.format("X[i, k] != 0.0"))),
    *(Claimed("scaled_rows", name, _rows(EACH.format(value), SUM + more)) for name, value, more in (
        ("a large sum on a way of its own", RIGHT.replace("sum", "t"), "register t: f32 = sum\nif abs(sum) > 1000000.0\n  t = 0.0\n  for k2 in 0..N\n"
         "    t = t + X[i, N - 1 - k2]\n"),
        ("both ways alike", f"select(sum > 1000000.0, sum + W[j] * X[i, j], {RIGHT})", ""),
        ("what is not finite left out", f"select(isinf(sum), sum, {RIGHT})", ""),
        ("nothing added where a sum is zero", f"select(sum == 0.0, X[i, j] * W[j], {RIGHT})", ""),
    )),
    Claimed("scaled_rows", "zeros left out of the sum", _rows(EACH.format(RIGHT), SUM.replace("  sum = ", "  if X[i, k] != 0.0\n    sum = "))),
    Claimed("scaled_rows", "another order at large sizes", _rows(EACH.format(RIGHT), "register sum: f32 = 0.0\nif N > 1000000000\n  for k in 0..N\n"
            "    sum = sum + X[i, N - 1 - k]\nelse\n  for k1 in 0..N\n    sum = sum + X[i, k1]\n")),
    Claimed("scaled_rows", "large sums in steps", _rows(EACH.format(RIGHT), "register sum: f32 = 0.0\nfor q in 0..ceildiv(N, 268435456)\n"
            "  for k in q * 268435456..min(q * 268435456 + 268435456, N)\n    sum = sum + X[i, k]\n")),
    Claimed("scaled_rows", "rows guarded by a mask", _text("scaled_rows", "if i < M\n  " + (SUM + EACH.format(RIGHT)).replace("\n", "\n  "))),
    Claimed("scaled_rows", "a kernel of its own for large sizes", f"kir 1\nprogram scaled_rows\n{HEADS['scaled_rows']}" + _kernel(RIGHT)
            + _kernel("W[j] * X[i, j] + sum").replace("kernel main", "kernel other")
            + "plan\n  dispatch\n    when N > 1000000000\n      launch other\n    else\n      launch main\n"),
    Claimed("compensated", "two sums, each with its errors", _text("compensated", """register s: f32 = 0.0
register c: f32 = 0.0
register s2: f32 = 0.0
register c2: f32 = 0.0
for k in 0..N
  if k % 2 == 0
    let y = X[i, k] - c
    let t = s + y
    c = t - s - y
    s = t
  else
    let y2 = X[i, k] - c2
    let t2 = s2 + y2
    c2 = t2 - s2 - y2
    s2 = t2
S[i] = s + s2 - (c + c2)""")),
    Claimed("compensated", "from the last to the first", _kahan(y="X[i, N - 1 - k] - c")),
    Claimed("compensated", "half of an error and the other half", _kahan(y="X[i, k] - c * 0.5 - c * 0.5")),
    Claimed("compensated", "pairs added first", _text("compensated", """register s: f32 = 0.0
register e: f32 = 0.0
for q in 0..ceildiv(N, 2)
  let x = X[i, q * 2] + load(X[i, q * 2 + 1] else 0.0 clip)
  let t = s + x
  let b = t - s
  e = e + ((s - (t - b)) + (x - b))
  s = t
S[i] = s + e""")),
    Claimed("dropped", "a mask that is never negative", _text("dropped", "Y[i, j] = X[i, j] * max(KEEP[i, j], 0.0) * scale", ELEMENT)),
    Claimed("dropped", "a row at a time", _text("dropped", "for j in 0..N\n  Y[i, j] = scale * X[i, j] * KEEP[i, j]")),
    Claimed("masked_softmax", "the mask as a factor", _softmax(PLAIN).replace("exp(X[i, b] - top)", "exp(X[i, b] - top) * exp(MASK[i, b])").replace(
        "exp(X[i, c] - top)", "exp(X[i, c] - top) * exp(MASK[i, c])")),
    Claimed("masked_softmax", "a floor for what is divided by", _softmax(BOTH).replace("/ sum", "/ max(sum, 1e-20:f32)")),
    Claimed("masked_softmax", "a row without a sum", _softmax(BOTH).replace("/ sum", "/ select(sum == 0.0, 1.0, sum)")),
    Claimed("masked_softmax", "the mask first", _softmax(tuple(f"MASK[i, {v}] + X[i, {v}]" for v in "abc"))),
    Claimed("rounded_weights", "rounded twice", _text("rounded_weights", "Y[i, j] = cast(cast(cast(cast(X[i, j], bf16), f32), bf16), f32) * W[j]", ELEMENT)),
    Claimed("rounded_weights", "rows and rows, both rounded", _text(
        "rounded_weights", "let r = cast(X[i, j], bf16)\nY[i, j] = select(i % 2 == 0, W[j] * cast(r, f32), cast(cast(X[i, j], bf16), f32) * W[j])", ELEMENT)),
)
"""Accepted: each looks like one that is refused."""
