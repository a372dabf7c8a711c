"""Computes a function by the hardware's approximation instead of to full precision.

pipeline: `approximate-intrinsic{fn=tanh}@main/out`

```diff
 kir 1
 program gate
   size N: i32
   in X: f32[N]
   out Y: f16[N]
 kernel main grid (i: N) threads 1
-  @out Y[i] = cast(tanh(X[i]) * X[i], f16)
+  @out Y[i] = cast(tanh_approx(X[i]) * X[i], f16)
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32, dtype_of
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import node_at
from kir.rewrite.match import edited, params_as

ROWS = {"exp2": "exp2_approx", "log2": "log2_approx", "rsqrt": "rsqrt_approx", "sin": "sin_approx", "cos": "cos_approx",
        "tanh": "tanh_approx", "sqrt": "sqrt_approx", "rcp": "rcp_approx", "div": "div_approx"}
"""The approximation of each function; `rcp` is 1 / x, `div` any quotient."""
NEVER_FLUSHES = frozenset({"tanh", "sqrt"})
"""`tanh.approx` has no form that does; `sqrt_approx` is Triton's square root, which does not say."""
HARMLESS = frozenset({"exp2", "sin", "cos", "tanh"})
"""Functions whose value near zero does not change when a subnormal operand counts as zero."""
COARSE, ABSOLUTE = frozenset({"tanh"}), frozenset({"sin", "cos"})
"""Functions whose approximation has eleven bits only, and those whose error does not shrink with their value."""
LEAST = 2.0 ** -126
"""The smallest normal number of f32."""


def _normal(program: n.Program, site: Site, context: Context) -> Verdict:
    item, s = params_as(site, ApproximateIntrinsic), node_at(program, site.path)
    if not item.flush:
        return proved("subnormal numbers keep their values")
    if item.fn in HARMLESS:
        return proved(f"{item.fn} of a subnormal number is that of zero, to the precision of f32")
    for x in walk(s):
        operand = _operand(x, item.fn)
        if operand is not None and not _at_least(operand) and not _is_whole(operand):
            return unknown(f"an operand of {item.fn} may be subnormal, and would count as zero",
                           needs="a lower bound such as max(x, 1e-30) or a positive term in a sum of squares", attempt="flush=false")
    return proved("every operand is a normal number")


def _hidden(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether what is stored is too narrow to show by how much the approximation may be off."""
    fn = params_as(site, ApproximateIntrinsic).fn
    if fn in ABSOLUTE:
        return unknown(f"{fn} may be off by 2^-20 whatever its value is, and by more for large angles: near a zero of {fn} that is all of it",
                       needs="a result that a constant is added to, or a tolerance of that size")
    wide = [p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role != "in" and p.of.dtype.is_float and p.of.dtype.bits > 16]
    if fn in COARSE and wide:
        return unknown(f"{fn} may be off by 2^-11 of its value, and '{wide[0]}' stores more bits than that", needs="results of 16 bits or fewer")
    return proved("what is stored shows no unit in the last place of f32" if fn in COARSE else f"{fn} is right but for two units in the last place")


def _operand(x: n.Node, fn: str) -> n.Expr | None:
    """The operand of a call of the function that must not be subnormal."""
    if fn in ("div", "rcp"):
        return x.b if _is_quotient(x, fn) and isinstance(x, n.Binary) else None
    return x.args[0] if isinstance(x, n.Call) and x.fn == fn and x.of is None and isinstance(x.args[0], n.Expr) else None


def _is_whole(e: n.Expr) -> bool:
    """Whether a value is a whole number: 0, or at least 1 in magnitude."""
    return isinstance(e, n.Cast) and dtype_of(e.x.type).is_integer


def _at_least(e: n.Expr) -> bool:
    """Whether a value is surely not below the smallest normal number."""
    match e:
        case n.Const():
            return float(e.value) >= LEAST
        case n.Binary(op="max"):
            return _at_least(e.a) or _at_least(e.b)
        case n.Binary(op="add"):
            return (_at_least(e.a) and _not_negative(e.b)) or (_at_least(e.b) and _not_negative(e.a))
        case _:
            return False


def _not_negative(e: n.Expr) -> bool:
    match e:
        case n.Const():
            return float(e.value) >= 0
        case n.Binary(op="mul"):
            return e.a == e.b or (_not_negative(e.a) and _not_negative(e.b))
        case n.Binary(op="add" | "div"):
            return _not_negative(e.a) and _not_negative(e.b)
        case n.Call(fn="exp" | "exp2" | "abs" | "sqrt"):
            return True
        case _:
            return False


def _is_quotient(x: n.Node, fn: str) -> bool:
    return isinstance(x, n.Binary) and x.op == "div" and dtype_of(x.type) == F32 and (fn == "div" or build.is_const(x.a, 1.0))


@dataclass(frozen=True)
class ApproximateIntrinsic(Pass):
    """`fn` names the function (exp2, log2, rsqrt, sin, cos, tanh, sqrt, rcp, div), in every place of the statement. With `flush`, subnormal
    numbers count as zeros."""

    intent: ClassVar[str] = "approximate-intrinsic"
    catalogue: ClassVar[tuple[int, ...]] = (67,)
    claim: ClassVar[str] = "One instruction of the special function unit takes the place of a sequence that is right to the last bit."
    numerics: ClassVar[str] = "approximate(2 ulp; tanh 2^-11)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P670", "validity", "numerics", "no operand is subnormal where subnormals count as zeros", _normal),
        Precondition("KIR-P671", "validity", "numerics", "what is stored does not show by how much the approximation may be off", _hidden))

    fn: str = ""
    flush: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement that computes the function on f32; without `fn`, one site for each."""
        if not isinstance(node, (n.Let, n.Store, n.Copy)):
            return None
        used = [fn for fn in ROWS if any(_operand(x, fn) is not None and _dtype(x) for x in walk(node))]
        wanted = [fn for fn in used if fn == self.fn or not self.fn]
        if self.fn and self.fn not in ROWS:
            return Miss(f"there is no approximation of '{self.fn}'")
        flush = {fn: self.flush or fn in NEVER_FLUSHES for fn in wanted}
        return tuple(Site(path, ApproximateIntrinsic(fn, self.flush and fn not in NEVER_FLUSHES)) for fn in flush) or None

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement that computes an approximation."""
        if not isinstance(node, (n.Let, n.Store, n.Copy)):
            return None
        found = {(fn, fn not in NEVER_FLUSHES and not dict(x.attrs).get("subnormal"))
                 for fn, row in ROWS.items() for x in walk(node) if isinstance(x, n.Call) and x.fn == row and x.of is None}
        return tuple(Site(path, ApproximateIntrinsic(*each)) for each in sorted(found)) or None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The approximation in every place."""
        options = {} if self.flush or self.fn in NEVER_FLUSHES else {"subnormal": True}

        def leave(_: n.Node, x: n.Node) -> n.Node:
            if self.fn in ("div", "rcp") and _is_quotient(x, self.fn) and isinstance(x, n.Binary):
                return build.call_with(ROWS[self.fn], (x.a, x.b) if self.fn == "div" else (x.b,), n.attrs(**options))
            if isinstance(x, n.Call) and x.fn == self.fn and x.of is None and _dtype(x):
                return build.call_with(ROWS[self.fn], x.args, n.attrs(**options))
            return x
        return edited(program, site.path, (transform(node_at(program, site.path), leave),))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The function itself."""
        keeps = () if self.flush or self.fn in NEVER_FLUSHES else n.attrs(subnormal=True)

        def leave(_: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, n.Call) and x.fn == ROWS[self.fn] and x.of is None and x.attrs == keeps:
                args = [a for a in x.args if isinstance(a, n.Expr)]
                if self.fn in ("div", "rcp"):
                    one = build.const(1.0, F32)
                    top = args[0] if self.fn == "div" else build.broadcast(one, args[0].type)
                    return build.binary("div", top, args[-1])
                return build.call(self.fn, *args)
            return x
        return edited(program, site.path, (transform(node_at(program, site.path), leave),))


def _dtype(x: n.Node) -> bool:
    return isinstance(x, n.Expr) and dtype_of(x.type) == F32
