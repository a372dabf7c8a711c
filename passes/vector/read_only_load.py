"""Reads a tensor through the read-only path of the cache, in the whole kernel.

pipeline: `read-only-load{buffer=W}@main`

```diff
 kir 1
 program scale
   size N: i32
   in X: f32[N]
   in W: f32[64]
   out Y: f32[N]
 kernel main grid (b: ceildiv(N, 64)) threads 64
   for t in 0..64 parallel thread
     let x = load(X[b * 64 + t] else 0.0 clip)
-    Y[b * 64 + t] = x * W[t] clip
+    Y[b * 64 + t] = x * load(W[t] cache nc) clip
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases, accesses
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import kernel_of, node_at, replace_kernel
from kir.rewrite.match import matched_as, params_as

POLICY = "nc"


def _immutable(program: n.Program, site: Site, context: Context) -> Verdict:
    return only_read(program, matched_as(node_at(program, site.path), n.Kernel), params_as(site, ReadOnlyLoad).buffer)


def only_read(program: n.Program, kernel: n.Kernel, buffer: str) -> Verdict:
    """Whether a kernel never writes a tensor, so that it may be read through the read-only cache."""
    aliases = Aliases(program)
    for a in accesses(kernel):
        if a.writes and a.buffer != "*" and aliases.may_be_one(a.buffer, buffer):
            also = "" if a.buffer == buffer else f", which '{a.buffer}' may be"
            return refuted(f"this kernel writes '{buffer}'{also}", f"a thread reads the '{buffer}' of before the kernel",
                           needs="a tensor that the kernel only reads", rule="PTX ISA, ld.global.nc: memory that nothing writes while the kernel runs")
    if any(isinstance(x, n.Opaque) and (buffer in x.writes or "*" in x.writes) for x in walk(kernel)):
        return unknown(f"text that is not understood may write '{buffer}'", needs="text that says what it writes")
    return proved(f"no statement of the kernel writes '{buffer}' or what it may alias")


@dataclass(frozen=True)
class ReadOnlyLoad(Pass):
    """`buffer` is the tensor; without it, one site for each that the kernel reads."""

    intent: ClassVar[str] = "read-only-load"
    catalogue: ClassVar[tuple[int, ...]] = (14,)
    claim: ClassVar[str] = "Data that nobody writes may be cached close to the threads, and loads of it may move freely."
    provides: ClassVar[tuple[str, ...]] = ("cache-policy",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P140", "validity", "aliasing", "nothing writes the tensor while the kernel runs", _immutable),)

    buffer: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose loads of a tensor have no policy yet."""
        if not isinstance(node, n.Kernel):
            return None
        plain, marked = _loads(node, ""), {x.at.buffer.name for x in walk(node) if isinstance(x, n.Load) and x.cache}
        if self.buffer in marked:
            return Miss(f"loads of '{self.buffer}' have a policy already")
        return tuple(Site(path, ReadOnlyLoad(b)) for b in sorted(plain - marked) if self.buffer in ("", b)) or None

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel all of whose loads of a tensor go through the read-only cache."""
        if not isinstance(node, n.Kernel):
            return None
        return tuple(Site(path, ReadOnlyLoad(b)) for b in sorted(_loads(node, POLICY) - _loads(node, ""))) or None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every load of the tensor with the policy."""
        return self._with(program, site, "", POLICY)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Every load of the tensor without it."""
        return self._with(program, site, POLICY, "")

    def _with(self, program: n.Program, site: Site, old: str, new: str) -> Rewritten:
        def leave(_: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, n.Load) and x.at.buffer.name == self.buffer and x.cache == old:
                return replace(x, cache=new)
            return x
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, transform(kernel, leave)), site.path)


def _loads(kernel: n.Kernel, cache: str) -> set[str]:
    """Tensors in global memory that are read with a policy. The source of an asynchronous copy is none: it has no such path."""
    sources = {id(x.src) for x in walk(kernel) if isinstance(x, n.Copy) and x.via not in ("plain",) and not x.via.startswith("vector")}
    return {x.at.buffer.name for x in walk(kernel)
            if isinstance(x, n.Load) and id(x) not in sources and x.at.buffer.space == "global" and x.cache == cache}
