"""Folds a factor, and the change of base, into the exponent of a power of two: exp(x * s) becomes exp2(x * (s * log2 e)).

pipeline: `fold-scale{scale=0.125}@main/out`

```diff
 kir 1
 program weights
   size N: i32
   in X: f32[N]
   out Y: f32[N]
 kernel main grid (i: N) threads 1
-  @out Y[i] = exp(X[i] * 0.125)
+  @out Y[i] = exp2(X[i] * 0.18033688)
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32, dtype_of
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import node_at
from kir.rewrite.match import edited, matched_as, params_as

from ._base_two import LOG2_E, rounded


def _normal(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, FoldScale)
    if 2.0 ** -126 <= abs(item.scale * LOG2_E) < 2.0 ** 128:
        return proved(f"{item.scale} * log2(e) is a normal number of f32")
    return refuted(f"{item.scale} * log2(e) is no normal number of f32", "the exponent loses its digits, or is infinite",
                   needs="a factor between 2^-126 and 2^127")


@dataclass(frozen=True)
class FoldScale(Pass):
    """`scale` is the factor inside the exponential, in every exponential of the statement that has it."""

    intent: ClassVar[str] = "fold-scale-into-exponent"
    catalogue: ClassVar[tuple[int, ...]] = (68,)
    claim: ClassVar[str] = "The hardware raises two to a power, so the factor of the change of base can carry a scale for nothing."
    numerics: ClassVar[str] = "rounding-moved(exponent)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P680", "validity", "numerics", "the folded factor is a normal number", _normal),)

    scale: float = 1.0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement with exponentials."""
        if not isinstance(node, (n.Let, n.Store)):
            return None
        found = {s for x in walk(node) for s in (_scale(x),) if s is not None}
        if not found:
            return None
        if self.scale == 1.0:
            return tuple(Site(path, FoldScale(s)) for s in sorted(found))
        return Site(path, self) if self.scale in found else Miss(f"no exponential here has the factor {self.scale}")

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement with powers of two whose exponent has a literal factor."""
        if not isinstance(node, (n.Let, n.Store)):
            return None
        factors = {float(f.value) for x in walk(node) if isinstance(x, n.Call) and x.fn == "exp2" and x.of is None
                   for f in (_factor(x),) if f is not None}
        scales = {factor: rounded(factor / LOG2_E) for factor in factors}
        fits = [s for factor, s in sorted(scales.items()) if rounded(s * LOG2_E) == rounded(factor)]
        return tuple(Site(path, FoldScale(s)) for s in fits) or (Miss("its factor is no product with log2(e)") if factors else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Powers of two."""
        def leave(_: n.Node, x: n.Node) -> n.Node:
            if _scale(x) != self.scale or not isinstance(x, n.Call):
                return x
            a = matched_as(x.args[0], n.Expr)
            bare = a if self.scale == 1.0 else a.a if isinstance(a, n.Binary) else a
            return build.call("exp2", build.mul(bare, rounded(self.scale * LOG2_E)))
        return edited(program, site.path, (transform(node_at(program, site.path), leave),))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Exponentials of the scaled value."""
        def leave(_: n.Node, x: n.Node) -> n.Node:
            if not (isinstance(x, n.Call) and x.fn == "exp2" and x.of is None):
                return x
            factor, a = _factor(x), x.args[0]
            if factor is None or rounded(float(factor.value)) != rounded(self.scale * LOG2_E) or not isinstance(a, n.Binary):
                return x
            return build.call("exp", a.a if self.scale == 1.0 else build.mul(a.a, self.scale))
        return edited(program, site.path, (transform(node_at(program, site.path), leave),))


def _scale(x: n.Node) -> float | None:
    """The literal factor inside an exponential of f32; 1 where there is none."""
    if not (isinstance(x, n.Call) and x.fn == "exp" and x.of is None and dtype_of(x.type) == F32):
        return None
    factor = _factor(x)
    return 1.0 if factor is None else float(factor.value)


def _factor(x: n.Call) -> n.Const | None:
    a = x.args[0]
    return a.b if isinstance(a, n.Binary) and a.op == "mul" and isinstance(a.b, n.Const) and a.b.dtype == F32 else None
