"""Launches a version of a kernel where sizes are multiples of a number, and the kernel as it was elsewhere: what follows may rely on it.

pipeline: `version-kernel{sizes=[N] divisor=8}@main`

```diff
 kir 1
 program double
   size M: i32
   size N: i32
   in X: f16[M, N]
   out Y: f16[M, N]
 kernel main grid (i: ceildiv(M, 16), j: ceildiv(N, 32)) threads 32
   let x = load(X[i * 16 +: 16, j * 32 +: 32] else 0.0:f16 clip)
   Y[i * 16 +: 16, j * 32 +: 32] = x + x clip
+kernel main_otherwise grid (i: ceildiv(M, 16), j: ceildiv(N, 32)) threads 32
+  let x = load(X[i * 16 +: 16, j * 32 +: 32] else 0.0:f16 clip)
+  Y[i * 16 +: 16, j * 32 +: 32] = x + x clip
+plan
+  dispatch
+    when N % 8 == 0
+      launch main
+    else
+      launch main_otherwise
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.types import DType, dtype_of
from kir.ir.visit import buffers_named, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import kernel_of
from kir.rewrite.guard import fallback_name, with_guard, without_guard
from kir.rewrite.match import matched

NARROW = 2
"""Bytes of an element up to which it is narrow."""


@dataclass(frozen=True)
class VersionKernel(Pass):
    """The version is launched where each of `sizes` is a multiple of `divisor`."""

    intent: ClassVar[str] = "version-kernel"
    catalogue: ClassVar[tuple[int, ...]] = (53,)
    claim: ClassVar[str] = "What most calls have may be relied on, and the others still come out right."
    provides: ClassVar[tuple[str, ...]] = ("dispatch",)
    least: ClassVar[Mapping[str, int]] = {"divisor": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    sizes: tuple[str, ...] = ()
    divisor: int = 8

    def _guard(self, program: n.Program) -> n.Expr | None:
        """The condition; None where a name is no size."""
        known = {p.name: p.of for p in program.params if p.role == "size" and isinstance(p.of, DType)}
        out: n.Expr | None = None
        for name in self.sizes:
            if name not in known:
                return None
            one = build.compare("eq", build.mod(n.Var(name, known[name]), build.const(self.divisor, known[name])), 0)
            out = one if out is None else build.logical_and(out, one)
        return out

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that has no other version. Left open, the sizes are those that rows of its tensors have, of all, of those that it reads and of
        those of narrow elements, where they are not known to be multiples."""
        if not isinstance(node, n.Kernel):
            return None
        if not self.sizes:
            found = [site for sizes in self._rows(program, node) if isinstance(site := replace(self, sizes=sizes).match(program, path, node), Site)]
            return tuple(found) or Miss("no tensor has rows of a size that is not known to be a multiple")
        if self.divisor < 2 or not self.sizes or self._guard(program) is None:
            return Miss("the sizes are not named, or are none of the program's")
        if fallback_name(node.name) in {k.name for k in program.kernels} or node.name.endswith(fallback_name("")):
            return Miss("the kernel has another version already")
        return Site(path, self)

    def _rows(self, program: n.Program, kernel: n.Kernel) -> list[tuple[str, ...]]:
        """The sizes that are lengths of rows, of all tensors that a kernel names, of those that are only read, and of those of narrow elements, whose rows
        begin at whole vectors where these are of many."""
        named, facts = buffers_named(kernel), Facts.from_program(program)
        out = []
        for roles, most in ((("in", "inout", "out"), 8), (("in",), 8), (("in", "inout", "out"), NARROW)):
            rows = [p.of.shape[-1] for p in program.params if p.role in roles and isinstance(p.of, n.Buffer) and p.name in named and len(p.of.shape) > 1
                    and p.of.dtype.bytes <= most]
            open_ = [d.name for d in rows if isinstance(d, n.Var) and decide(build.compare("eq", build.mod(d, build.const(self.divisor, dtype_of(d.type))), 0),
                                                                            facts).kind != "always"]
            out.append(tuple(dict.fromkeys(open_)))
        return list(dict.fromkeys(each for each in out if each))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Both versions, alike so far, and the plan that chooses."""
        guard = matched(self._guard(program))
        return Rewritten(with_guard(program, program, kernel_of(program, site.path).name, guard), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose other version is the same."""
        found = without_guard(program, node.name) if isinstance(node, n.Kernel) else None
        if found is None:
            return None
        core, guard, other = found
        if not alpha_equal(core, replace(core, kernels=tuple(other if k.name == other.name else k for k in core.kernels))):
            return Miss("the versions differ")
        parts = [x for x in walk(guard) if isinstance(x, n.Binary) and x.op == "mod" and isinstance(x.a, n.Var)]
        divisors = {build.int_value(x.b) for x in parts}
        item = VersionKernel(tuple(x.a.name for x in parts if isinstance(x.a, n.Var)), next(iter(divisors)) or 0) if len(divisors) == 1 else None
        if item is None or item._guard(core) != guard:
            return Miss("the launch chooses by something else than divisible sizes")
        return Site(path, item, {"core": core})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One version for all sizes."""
        return Rewritten(site.captures["core"], site.path)
