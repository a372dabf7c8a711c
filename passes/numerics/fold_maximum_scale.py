"""Takes a factor out of a running maximum, and with the change of base into the powers of two that the maximum is subtracted in.

pipeline: `fold-maximum-scale@main/max`

```diff
 kir 1
 program softmax_sums
   in X: f32[M, N]
   out T: f32[M]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 1
   register top: f32 = -inf
   @max for j in 0..N
-    top = max(top, X[row, j] * 0.125)
+    top = max(top, X[row, j])
   register total: f32 = 0.0
   for i in 0..N
-    total = total + exp(X[row, i] * 0.125 - top)
+    total = total + exp2(X[row, i] * 0.18033688 - top * 0.18033688)
   T[row] = total
```
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32, dtype_of
from kir.ir.visit import statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, edit_block, kernel_of
from kir.rewrite.match import matched, node_as, params_as

from ._base_two import LOG2_E, rounded
from ._online_loops import TwoLoops, two_loops


def _keeps_order(program: n.Program, site: Site, context: Context) -> Verdict:
    scale = params_as(site, FoldMaximumScale).scale
    if scale > 0 and 2.0 ** -126 <= scale * LOG2_E < 2.0 ** 128:
        return proved(f"{scale} is positive, and {scale} * log2(e) is a normal number of f32")
    return refuted(f"the maximum is not {scale} times that of the bare values, or the factor is no normal number of f32",
                   f"of -1 and 1 the larger is {'the first' if scale < 0 else 'lost'} once they are multiplied",
                   needs="a positive factor between 2^-126 and 2^127")


@dataclass(frozen=True)
class FoldMaximumScale(Pass):
    """`scale` is the literal factor of what the maximum is taken of; 0 stands for the one that is there."""

    intent: ClassVar[str] = "fold-scale-into-exponent"
    catalogue: ClassVar[tuple[int, ...]] = (68,)
    claim: ClassVar[str] = "The maximum is found among bare values, and each exponential is one multiply-add and one power of two."
    numerics: ClassVar[str] = "rounding-moved(exponent)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P681", "validity", "numerics", "a positive factor keeps the order of values", _keeps_order),)

    scale: float = 0.0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that raises a maximum of scaled values, from -inf; after it, the maximum is subtracted in exponentials of values so scaled, and
        used nowhere else."""
        loops = _loops(program, path, node)
        if not isinstance(loops, TwoLoops):
            return Miss(loops) if loops else None
        factor = _factor(loops.folded)
        if factor is None:
            return None
        if self.scale not in (0.0, factor):
            return Miss(f"the values have the factor {factor}")
        made = _others(program, path, loops, _folded(loops.top, factor))
        return Site(path, FoldMaximumScale(factor)) if made is not None else Miss("the maximum is used for more than exponentials of values so scaled")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The maximum of bare values, and powers of two."""
        loops = _at(program, site.path)
        return self._with(program, site, loops, _bare(loops.folded), _folded(loops.top, self.scale))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that raises a maximum, from -inf, which is used in powers of two of scaled differences alone."""
        loops = _loops(program, path, node)
        if not isinstance(loops, TwoLoops):
            return Miss(loops) if loops else None
        if _factor(loops.folded) is not None:
            return Miss("the maximum is of values that are scaled themselves")
        of_top = {_factor(x) for s in loops.second.body for x in walk(s)
                  if isinstance(x, n.Binary) and x.op == "mul" and x.a == n.Load(loops.top)} - {None}
        factor = next(iter(of_top)) if len(of_top) == 1 else None
        if factor is None:
            return None
        scale = rounded(factor / LOG2_E)
        if rounded(scale * LOG2_E) != rounded(factor) or _others(program, path, loops, _unfolded(loops.top, scale)) is None:
            return Miss("the maximum is used for more than powers of two of differences that have one factor")
        return Site(path, FoldMaximumScale(scale))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The maximum of scaled values, and exponentials."""
        loops = _at(program, site.path)
        return self._with(program, site, loops, _scaled(loops.folded, self.scale), _unfolded(loops.top, self.scale))

    def _with(self, program: n.Program, site: Site, loops: TwoLoops, folded: n.Expr, change: Callable[[n.Node], n.Node]) -> Rewritten:
        at = int(site.path[-1])
        *ahead, last = loops.first.body
        assert isinstance(last, n.Store) and isinstance(last.value, n.Binary)
        first = replace(loops.first, body=(*ahead, replace(last, value=replace(last.value, b=folded))))
        rest = matched(_others(program, site.path, loops, change))
        return Rewritten(edit_block(program, site.path, lambda b: (*b[:at], first, *rest)), site.path)


def _loops(program: n.Program, path: Path, node: Place) -> TwoLoops | str:
    """The two loops at a place, where their maximum starts from nothing."""
    if not isinstance(node, n.For):
        return ""
    loops = two_loops(block_at(program, path), int(path[-1]))
    if isinstance(loops, str):
        return loops
    start = next((s for s in statements(kernel_of(program, path).body) if isinstance(s, n.Alloc) and s.buffer == loops.top.buffer), None)
    if start is None or not (isinstance(start.init, n.Const) and start.init.value == -math.inf) or start not in block_at(program, path):
        return "the maximum does not start from -inf beside the loop"
    return loops


def _at(program: n.Program, path: Path) -> TwoLoops:
    loops = _loops(program, path, node_as(program, path, n.For))
    assert isinstance(loops, TwoLoops)
    return loops


def _others(program: n.Program, path: Path, loops: TwoLoops, change: Callable[[n.Node], n.Node]) -> n.Block | None:
    """What follows the first loop, changed; None where the maximum is used in another way."""
    out = []
    for s in block_at(program, path)[int(path[-1]) + 1:]:
        places = sum(_reads(x, loops.top) for x in walk(s))
        taken: list[n.Node] = []

        def leave(old: n.Node, new: n.Node, taken: list[n.Node] = taken) -> n.Node:
            made = change(new)
            if made is not new:
                taken.append(old)
            return made
        out.append(transform(s, leave))
        if len(taken) != places or any(isinstance(x, n.Store) and x.at.buffer == loops.top.buffer for x in walk(s)):
            return None
    return tuple(out)


def _reads(x: n.Node, top: n.Region) -> bool:
    return isinstance(x, n.Load) and x.at.buffer == top.buffer


def _folded(top: n.Region, scale: float) -> Callable[[n.Node], n.Node]:
    """exp(x * scale - top) as exp2(x * c - top * c)."""
    c = rounded(scale * LOG2_E)

    def change(x: n.Node) -> n.Node:
        a = x.args[0] if isinstance(x, n.Call) and x.fn == "exp" and x.of is None else None
        if not (isinstance(a, n.Binary) and a.op == "sub" and a.b == n.Load(top) and _factor(a.a) == scale):
            return x
        return build.call("exp2", build.binary("sub", build.mul(_bare(a.a), c), build.mul(n.Load(top), c)))
    return change


def _unfolded(top: n.Region, scale: float) -> Callable[[n.Node], n.Node]:
    """exp2(x * c - top * c) as exp(x * scale - top)."""
    c = rounded(scale * LOG2_E)

    def change(x: n.Node) -> n.Node:
        a = x.args[0] if isinstance(x, n.Call) and x.fn == "exp2" and x.of is None else None
        if not (isinstance(a, n.Binary) and a.op == "sub" and isinstance(a.a, n.Binary) and isinstance(a.b, n.Binary) and a.b.a == n.Load(top)):
            return x
        mine, of_top = _factor(a.a), _factor(a.b)
        if mine is None or of_top is None or rounded(mine) != c or rounded(of_top) != c:
            return x
        return build.call("exp", build.binary("sub", _scaled(a.a.a, scale), n.Load(top)))
    return change


def _factor(e: n.Node) -> float | None:
    """The literal factor of a product of f32, or of the product that a mask lets pass."""
    if _is_mask(e) and isinstance(e, n.Select):
        return _factor(e.a)
    if isinstance(e, n.Binary) and e.op == "mul" and isinstance(e.b, n.Const) and dtype_of(e.b.type) == F32:
        return float(e.b.value)
    return None


def _bare(e: n.Expr) -> n.Expr:
    """What such a product has the factor of."""
    if isinstance(e, n.Select):
        return replace(e, a=_bare(e.a))
    assert isinstance(e, n.Binary)
    return e.a


def _scaled(e: n.Expr, scale: float) -> n.Expr:
    """A value times a factor, which stands under its masks."""
    return replace(e, a=_scaled(e.a, scale)) if _is_mask(e) and isinstance(e, n.Select) else build.mul(e, scale)


def _is_mask(e: n.Node) -> bool:
    return isinstance(e, n.Select) and isinstance(e.b, n.Const) and e.b.value == -math.inf
