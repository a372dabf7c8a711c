"""Launches a version of a kernel where sizes are certain numbers, with the numbers in it, and the kernel as it was elsewhere.

A compiler computes what follows of them: a division by a number is a multiplication, and loops have known ends.

pipeline: `know-sizes{sizes=[N] values=[96]}@main`

```diff
 kir 1
 program double
   size M: i32
   size N: i32
   in X: f16[M, N]
   out Y: f16[M, N]
-kernel main grid (i: M * N) threads 1
+kernel main grid (i: M * 96) threads 1
+  let x = X[i // 96, i % 96]
+  Y[i // 96, i % 96] = x + x
+kernel main_of_any grid (i: M * N) threads 1
   let x = X[i // N, i % N]
   Y[i // N, i % N] = x + x
+plan
+  dispatch
+    when N == 96
+      launch main
+    else
+      launch main_of_any
```
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.types import DType
from kir.ir.visit import names_read, transform
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.guard import with_guard, without_guard
from kir.rewrite.match import matched


@dataclass(frozen=True)
class KnowSizes(Pass):
    """The version is launched where each of `sizes` is its number of `values`."""

    intent: ClassVar[str] = "version-kernel"
    catalogue: ClassVar[tuple[int, ...]] = (53,)
    claim: ClassVar[str] = "At sizes that are met often nothing is divided by them, and other sizes still come out right."
    provides: ClassVar[tuple[str, ...]] = ("dispatch",)
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    sizes: tuple[str, ...] = ()
    values: tuple[int, ...] = ()

    def _numbers(self, program: n.Program) -> dict[str, n.Expr] | None:
        """The sizes' numbers; None where a name is no size, or has none."""
        known = {p.name: p.of for p in program.params if p.role == "size" and isinstance(p.of, DType)}
        if len(self.sizes) != len(self.values) or len(set(self.sizes)) != len(self.sizes) or not self.sizes or not set(self.sizes) <= known.keys():
            return None
        return {name: build.const(value, known[name]) for name, value in zip(self.sizes, self.values, strict=True)}

    def _guard(self, program: n.Program) -> n.Expr | None:
        """The condition of the launch."""
        known = {p.name: p.of for p in program.params if isinstance(p.of, DType)}
        out: n.Expr | None = None
        for name, value in (self._numbers(program) or {}).items():
            one = build.compare("eq", n.Var(name, known[name]), value)
            out = one if out is None else build.logical_and(out, one)
        return out

    def _known(self, program: n.Program, kernel: n.Kernel) -> n.Kernel:
        """The kernel with the numbers in it, but for the extents of tensors and of what is seen of them."""
        numbers = matched(self._numbers(program))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return numbers.get(old.name, new) if type(old) is n.Var else new
        made = transform(kernel, leave, lambda x: not isinstance(x, n.Buffer) and not numbers.keys().isdisjoint(names_read(x)))
        assert isinstance(made, n.Kernel)
        return made

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that has no other version, and reads the sizes."""
        if not isinstance(node, n.Kernel) or not self.sizes:
            return None
        if self._numbers(program) is None:
            return Miss("the sizes are not named with a number each, or are none of the program's")
        if _of_any(node.name) in {k.name for k in program.kernels} or node.name.endswith(_of_any("")):
            return Miss("the kernel has another version already")
        return Site(path, self) if self._known(program, node) != node else Miss("the kernel does not depend on them")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Both versions, and the plan that chooses."""
        kernel = kernel_of(program, site.path)
        made = replace_kernel(program, kernel.name, self._known(program, kernel))
        return Rewritten(with_guard(program, made, kernel.name, matched(self._guard(program)), _of_any(kernel.name)), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is its other version at certain sizes."""
        found = without_guard(program, node.name, _of_any(node.name)) if isinstance(node, n.Kernel) else None
        if found is None:
            return None
        core, guard, other = found
        parts = [(c.a.name, build.int_value(c.b)) for c in _conjuncts(guard) if isinstance(c, n.Binary) and c.op == "eq" and isinstance(c.a, n.Var)]
        item = KnowSizes(tuple(name for name, _ in parts), tuple(value for _, value in parts if value is not None))
        if item._numbers(core) is None or item._guard(core) != guard:
            return Miss("the launch chooses by something else than numbers of sizes")
        before = replace_kernel(core, other.name, other)
        if not alpha_equal(core, replace_kernel(core, other.name, item._known(core, other))):
            return Miss("the versions differ in more than the sizes")
        return Site(path, item, {"before": before})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One version for all sizes."""
        return Rewritten(site.captures["before"], site.path)


def _of_any(kernel: str) -> str:
    """What the kernel for all other sizes is called."""
    return f"{kernel}_of_any"


def _conjuncts(e: n.Expr) -> Iterator[n.Expr]:
    if isinstance(e, n.Binary) and e.op == "and":
        yield from _conjuncts(e.a)
        yield from _conjuncts(e.b)
    else:
        yield e


__all__ = ["KnowSizes"]
