"""Lets TileLang's compiler approximate powers of two: an option of the kernel, and the approximations that it stands for.

pipeline: `fast-math@main`

```diff
 kir 1
 program powers
   in X: f32[M, 128]
   out Y: f32[M, 128]
   size M: i32
-kernel main grid (row: M) threads 128
-  Y[row, 0 +: 128] = exp2(X[row, 0 +: 128])
+kernel main grid (row: M) threads 128 {tl_enable_fast_math=true}
+  Y[row, 0 +: 128] = exp2_approx(X[row, 0 +: 128])
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32, dtype_of
from kir.ir.visit import transform, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.edit import node_at, replace_kernel

from .surface_option import FAST_MATH, refused

EXACT, APPROXIMATE = "exp2", "exp2_approx"


@dataclass(frozen=True)
class FastMath(Pass):
    """No parameters: all powers of two of f32 in a kernel, of which subnormal operands count as zero, as 2 to the power of them is 1 either way."""

    intent: ClassVar[str] = "approximate-intrinsic"
    catalogue: ClassVar[tuple[int, ...]] = (67, 69)
    claim: ClassVar[str] = "One instruction of the special function unit takes the place of a sequence that is right to the last bit."
    numerics: ClassVar[str] = "approximate(2 ulp)"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel without the option that computes powers of two, and nothing else that it would change."""
        if not isinstance(node, n.Kernel) or not any(_is(x, EXACT) for x in walk(node)):
            return None
        if FAST_MATH in dict(node.attrs):
            return Miss(f"it has the option {FAST_MATH} already")
        if any(_is(x, APPROXIMATE) for x in walk(node)):
            return Miss("some of its powers of two are approximations already")
        reason = refused(_with(node, EXACT, APPROXIMATE), FAST_MATH)
        return Miss(reason) if reason else Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with the option all of whose powers of two are approximations that it stands for."""
        if not isinstance(node, n.Kernel) or dict(node.attrs).get(FAST_MATH) is not True or not any(_is(x, APPROXIMATE) for x in walk(node)):
            return None
        if any(_is(x, EXACT) or (_is(x, APPROXIMATE) and x.attrs) for x in walk(node) if isinstance(x, n.Call)):
            return Miss("not all of its powers of two are what fast math makes of them")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The option, and the approximations."""
        kernel = node_at(program, site.path)
        assert isinstance(kernel, n.Kernel)
        made = replace(_with(kernel, EXACT, APPROXIMATE), attrs=n.attrs(**{**dict(kernel.attrs), FAST_MATH: True}))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The functions themselves."""
        kernel = node_at(program, site.path)
        assert isinstance(kernel, n.Kernel)
        made = replace(_with(kernel, APPROXIMATE, EXACT), attrs=tuple((k, v) for k, v in kernel.attrs if k != FAST_MATH))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)


def _is(x: n.Node, fn: str) -> bool:
    return isinstance(x, n.Call) and x.fn == fn and x.of is None and dtype_of(x.type) == F32


def _with(kernel: n.Kernel, old: str, new: str) -> n.Kernel:
    """The kernel with another function in the place of one."""
    def leave(_: n.Node, x: n.Node) -> n.Node:
        return build.call(new, *(a for a in x.args if isinstance(a, n.Expr))) if isinstance(x, n.Call) and _is(x, old) else x

    made = transform(kernel, leave)
    assert isinstance(made, n.Kernel)
    return made
