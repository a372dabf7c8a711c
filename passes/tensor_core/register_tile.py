"""Computes a product in steps along its contracted axis, so that only a step's operands are in registers at a time.

pipeline: `register-tile{step=16}@main/dot`

```diff
 kir 1
 program product
   in A: f16[64, 64]
   in B: f16[64, 64]
   out C: f32[64, 64]
 kernel main grid (i: 1) threads 128
   fragment acc: f32[64, 64] = 0.0
-  @dot mma acc += A * B via fma
+  for kk in 0..4
+    @dot mma acc += A[0 +: 64, kk * 16 +: 16] * B[kk * 16 +: 16, 0 +: 64] via fma
   C = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import shape_of
from kir.ir.visit import names_read
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.match import counting, edited, fresh_var, from_zero, matched, names_at, node_as, params_as
from kir.rewrite.match.slices import NoSlice, part, whole


def _product(program: n.Program, site: Site) -> tuple[n.Mma, int]:
    node, item = node_as(program, site.path, n.Mma), params_as(site, RegisterTile)
    return node, item.step


def _depth(s: n.Mma) -> int | None:
    found = shape_of(s.a.type)[-1]
    return found if isinstance(found, int) else None


def _whole_steps(program: n.Program, site: Site, context: Context) -> Verdict:
    s, step = _product(program, site)
    depth = matched(_depth(s))
    if depth % step:
        return refuted(f"steps of {step} do not divide a depth of {depth}", f"element {depth - depth % step} begins a cut step",
                       needs=f"a divisor of {depth}")
    return proved(f"{depth // step} steps of {step}")


@dataclass(frozen=True)
class RegisterTile(Pass):
    """`step` is the depth of a step; 0 leaves it open."""

    intent: ClassVar[str] = "register-tile"
    catalogue: ClassVar[tuple[int, ...]] = (50,)
    claim: ClassVar[str] = "Only the operands of one step are in registers, so that the result may take more of them."
    numerics: ClassVar[str] = "reassociated(k)"
    provides: ClassVar[tuple[str, ...]] = ("steps",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P501", "validity", "shape", "the steps divide the contracted axis", _whole_steps),
    )

    step: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product whose operands can be read in parts."""
        if not isinstance(node, n.Mma):
            return None
        depth = _depth(node)
        if depth is None:
            return Miss("the contracted axis has a symbolic extent")
        if self.step < 0 or self.step >= depth:
            return Miss("the step is no part of the axis")
        try:
            part(node.a, -1, build.const(0), 1), part(node.b, -2, build.const(0), 1)
        except NoSlice as why:
            return Miss(str(why))
        if self.step:
            return Site(path, self)
        return tuple(Site(path, RegisterTile(s)) for s in (64, 32, 16, 8) if s < depth and depth % s == 0) or None

    def _stepped(self, s: n.Mma, kk: n.Expr) -> n.Mma:
        lo = build.mul(kk, self.step)
        return replace(s, a=part(s.a, -1, lo, self.step), b=part(s.b, -2, lo, self.step))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the steps."""
        s, _ = _product(program, site)
        depth = matched(_depth(s))
        kk = fresh_var("kk", names_at(program, site.path))
        loop = counting(kk, depth // self.step, (self._stepped(s, kk),))
        return edited(program, site.path, (loop,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop whose only statement is one step of a product."""
        if not (isinstance(node, n.For) and node.kind == "serial" and len(node.body) == 1 and isinstance(s := node.body[0], n.Mma)):
            return None
        count, step = build.int_value(node.hi), _depth(s)
        if count is None or step is None or not from_zero(node):
            return Miss("the number or the depth of the steps is not known")
        lo = build.mul(node.var, step)
        try:
            made = replace(s, a=whole(s.a, -1, lo, step * count), b=whole(s.b, -2, lo, step * count))
        except NoSlice as why:
            return Miss(str(why))
        if node.var.name in names_read(made) or RegisterTile(step)._stepped(made, node.var) != s:
            return Miss("the steps are no parts of one product")
        return Site(path, RegisterTile(step), {"product": made})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The whole product at once."""
        return edited(program, site.path, (site.captures["product"],))
