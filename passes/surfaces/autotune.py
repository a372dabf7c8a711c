"""Moves a named number to another point of its search space.

pipeline: `autotune{meta=BLOCK_M was=16 value=128}@main`

```diff
 kir 1
 program product
-  meta BLOCK_M: int = 16
+  meta BLOCK_M: int = 128
   size M: i32
   in A: f16[M, 64]
   in B: f16[64, 64]
   out C: f32[M, 64]
-kernel main grid (m: ceildiv(M, BLOCK_M)) threads 128
+kernel main grid (m: ceildiv(M, BLOCK_M)) threads 128 {untuned_BLOCK_M=16}
   fragment acc: f32[BLOCK_M, 64] = 0.0
   let a = load(A[BLOCK_M * m +: BLOCK_M, 0 +: 64] else 0.0:f16 clip)
   mma acc += a * B
   C[BLOCK_M * m +: BLOCK_M, 0 +: 64] = acc clip
```

`templatize` makes the name before, and writes the number out again afterwards: the three together re-tune a kernel.
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.target.legalize import legalize
from kir.analysis.target.metas import at_defaults
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import names_read, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of, replace_kernel
from kir.rewrite.match import hardware_of, params_as


def _with_default(program: n.Program, meta: str, value: int) -> n.Program:
    return replace(program, metas=tuple(replace(m, default=value) if m.name == meta else m for m in program.metas))


def _legal(program: n.Program, site: Site, context: Context) -> Verdict:
    params = params_as(site, Autotune)
    hardware = hardware_of(context).architecture
    found = legalize(at_defaults(program, {params.meta: params.value}), hardware)
    if found:
        return refuted(f"with {params.meta} = {params.value}, {found[0].message}", f"{params.meta} = {params.value} on {hardware.name}",
                       needs=found[0].needs)
    return proved(f"{hardware.name} can run it with {params.meta} = {params.value}")


@dataclass(frozen=True)
class Autotune(Pass):
    """`meta` goes from `was` to `value`; the kernel notes where it came from."""

    intent: ClassVar[str] = "autotune"
    catalogue: ClassVar[tuple[int, ...]] = (70,)
    claim: ClassVar[str] = "The best size depends on the device and the shape, so it is searched for, not guessed."
    requires: ClassVar[tuple[str, ...]] = ("generic",)
    numerics: ClassVar[str] = "reassociated(tiles)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P700", "validity", "hardware", "the target can run the kernel with the new number", _legal),)

    meta: str = ""
    was: int = 0
    value: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that uses a meta whose default is `was`, and that was not tuned in it yet."""
        if not isinstance(node, n.Kernel) or not self.meta:
            return None
        found = next((m for m in program.metas if m.name == self.meta and m.kind == "int"), None)
        if found is None or not _uses(node, self.meta):
            return Miss(f"the kernel has no number named '{self.meta}'")
        if found.default != self.was or self.value == self.was or self.value < 1:
            return Miss(f"'{self.meta}' is {found.default}")
        if _mark(self.meta) in dict(node.attrs):
            return Miss(f"'{self.meta}' is tuned already")
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that notes from where a meta was tuned."""
        if not isinstance(node, n.Kernel):
            return None
        noted = dict(node.attrs)
        return tuple(Site(path, Autotune(m.name, was, m.default)) for m in program.metas
                     if isinstance(m.default, int) and isinstance(was := noted.get(_mark(m.name)), int)) or None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The new number, and a note of the old one."""
        kernel = kernel_of(program, site.path)
        noted = replace(kernel, attrs=n.attrs(**{**dict(kernel.attrs), _mark(self.meta): self.was}))
        return Rewritten(_with_default(replace_kernel(program, kernel.name, noted), self.meta, self.value), site.path)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The old number."""
        kernel = kernel_of(program, site.path)
        plain = replace(kernel, attrs=tuple((k, v) for k, v in kernel.attrs if k != _mark(self.meta)))
        return Rewritten(_with_default(replace_kernel(program, kernel.name, plain), self.meta, self.was), site.path)


def _mark(meta: str) -> str:
    return f"untuned_{meta}"


def _uses(kernel: n.Kernel, meta: str) -> bool:
    return meta in names_read(kernel) or any(meta in dict(s.attrs).values() for s in walk(kernel) if isinstance(s, n.For))
