"""Reads neighboring elements of global memory into the registers of a thread as one word.

before:

```kir
kir 1
program halves
  in X: f32[M, 128] align 16
  out Y: f32[M, 32]
  size M: i32
kernel main grid (row: M) threads 32
  for t in 0..32 parallel thread
    @x register x: f32[4]
    for u in 0..4 unroll {factor=4}
      x[u] = X[row, t * 4 + u]
    Y[row, t] = x[0] * x[1] + x[2] * x[3]
```

pipeline: `pack-loads@main/t/x`

after:

```kir
kir 1
program halves
  in X: f32[M, 128] align 16
  out Y: f32[M, 32]
  size M: i32
kernel main grid (row: M) threads 32
  for t in 0..32 parallel thread
    @x register x: f32[4] = X[row, t * 4 +: 4]
    Y[row, t] = x[0] * x[1] + x[2] * x[3]
```
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kir.analysis.elements import NotElementwise
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.edit import block_at, edit_block, enclosing, fresh, kernel_of, names_in

from ._vector_loop import aligned, narrowed, spaces_of, widened

LENGTHS = (2, 4, 8, 16)


def _aligned(program: n.Program, site: Site, context: Context) -> Verdict:
    return aligned(program, Site((*site.path[:-1], int(site.path[-1]) + 1), site.params), "global")


@dataclass(frozen=True)
class PackLoads(Pass):
    """No parameters: the site is the declaration of the registers."""

    intent: ClassVar[str] = "vectorize-global"
    catalogue: ClassVar[tuple[int, ...]] = (11,)
    claim: ClassVar[str] = "One instruction asks for a whole sector's share instead of one for each element."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P117", "validity", "layout", "every vector starts at a multiple of its width", _aligned),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At registers of a thread that the next loop fills with neighbors."""
        if not isinstance(node, n.Alloc) or node.init is not None or not _registers(program, path, node.buffer):
            return None
        block, i = block_at(program, path), int(path[-1])
        loop = block[i + 1] if i + 1 < len(block) else None
        try:
            made = _vector(node.buffer, loop)
        except NotElementwise as bad:
            return Miss(f"its elements are no neighbors ({bad})")
        return None if made is None else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Registers that begin with the vector."""
        block, i = block_at(program, site.path), int(site.path[-1])
        alloc = block[i]
        assert isinstance(alloc, n.Alloc)
        made = replace(alloc, init=_vector(alloc.buffer, block[i + 1]))
        return Rewritten(edit_block(program, site.path, lambda b: (*b[:i], made, *b[i + 2:])), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At registers of a thread that begin with a vector."""
        if not isinstance(node, n.Alloc) or node.init is None or not isinstance(node.init.type, TileType):
            return None
        if not _registers(program, path, node.buffer):
            return None
        store = n.Store(n.Region(node.buffer, (build.span(0, node.buffer.shape[0]),)), node.init)
        spaces = spaces_of((store,))
        if spaces is None or "global" not in spaces[0]:
            return None
        try:
            narrowed((store,), build.int_value(node.buffer.shape[0]) or 0, "%u")
        except NotElementwise as bad:
            return Miss(f"a vector that is no expression of its elements ({bad})")
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the elements."""
        block, i = block_at(program, site.path), int(site.path[-1])
        alloc = block[i]
        assert isinstance(alloc, n.Alloc) and alloc.init is not None
        b = alloc.buffer
        store = n.Store(n.Region(b, (build.span(0, b.shape[0]),)), alloc.init)
        loop = narrowed((store,), build.int_value(b.shape[0]) or 0, fresh("u", names_in(program, kernel_of(program, site.path))))
        return Rewritten(edit_block(program, site.path, lambda x: (*x[:i], replace(alloc, init=None), loop, *x[i + 1:])), site.path)


def _registers(program: n.Program, path: Path, b: n.Buffer) -> bool:
    """Whether a buffer is a vector of registers of one thread."""
    return b.space == "register" and len(b.shape) == 1 and build.int_value(b.shape[0]) in LENGTHS and b.layout is None and any(
        isinstance(s, n.For) and s.kind == "thread" for _, s in enclosing(program, path))


def _vector(b: n.Buffer, loop: n.Stmt | None) -> n.Expr | None:
    """What the loop that fills registers loads, as one vector. Raises NotElementwise."""
    count = build.int_value(b.shape[0])
    if not (isinstance(loop, n.For) and loop.kind == "unroll" and dict(loop.attrs) == {"factor": count} and build.is_const(loop.lo, 0)
            and build.is_const(loop.step, 1) and build.is_const(loop.hi, count) and len(loop.body) == 1):
        return None
    store = loop.body[0]
    spaces = spaces_of(loop.body)
    if not isinstance(store, n.Store) or store.at != build.region(b, loop.var) or spaces is None or "global" not in spaces[0]:
        return None
    made = widened(loop)[0]
    assert isinstance(made, n.Store)
    return made.value
