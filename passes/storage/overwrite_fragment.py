"""Writes a tile over a fragment that is not needed any more, or a number over a scalar, whose registers it takes.

pipeline: `overwrite-fragment{buffer=s}@main/p`

```diff
 kir 1
 program weights
   in X: f32[64, 64]
   out S: f32[64]
   out P: f32[64, 64]
 kernel main grid (b: 1) threads 128
   fragment s: f32[64, 64] = 0.0
   for k in 0..4
     s = s + X
-  @p let p = exp(s * 0.5)
-  S = reduce(p, axis=1, op=sum)
-  P = p
+  @p s = exp(s * 0.5)
+  S = reduce(s, axis=1, op=sum)
+  P = s
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.measures.measure import folds
from kir.ir.visit import buffers_named, names_read, statements, transform, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import edit_block
from kir.rewrite.match import block_and_index, fresh_var, matched_as, names_at, node_as
from kir.rewrite.match.materialize import is_pure

HELD = ("fragment", "register")
"""Spaces of what a CTA, or each thread, holds in registers."""


@dataclass(frozen=True)
class OverwriteFragment(Pass):
    """`buffer` is the fragment, which the same block declares."""

    intent: ClassVar[str] = "alias-shared-lifetimes"
    catalogue: ClassVar[tuple[int, ...]] = (4,)
    claim: ClassVar[str] = "A tile needs no registers of its own where another one has come to its end."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    buffer: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a tile with a name, behind the last other use of a fragment of its shape; with no `buffer`, a site for each of those."""
        if not (isinstance(node, n.Let) and len(node.names) == 1 and is_pure(node.value)):
            return None
        block, i = block_and_index(program, path)
        out: list[Site] = []
        reason = ""
        for s in block[:i]:
            if isinstance(s, n.Alloc) and s.buffer.space in HELD and self.buffer in ("", s.buffer.name) and n.Region(s.buffer).type == node.value.type:
                if any(s.buffer.name in buffers_named(x) for x in block[i + 1:]):
                    reason = f"'{s.buffer.name}' is still needed"
                elif folds(s.buffer, node.value) and _goes_on(block, s.buffer):
                    reason = f"'{s.buffer.name}' would go on, and not be another tile"
                elif any(node.names[0] in names_read(x) for x in block[i + 1:]):
                    out.append(Site(path, OverwriteFragment(s.buffer.name)))
        return tuple(out) or (Miss(reason) if reason else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A store to the fragment, and reads of it."""
        block, i = block_and_index(program, site.path)
        let, b = matched_as(block[i], n.Let), next(s.buffer for s in block if isinstance(s, n.Alloc) and s.buffer.name == self.buffer)
        tile = n.Load(n.Region(b))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return tile if isinstance(new, n.Var) and new.name == let.names[0] else new
        store = n.Store(n.Region(b), let.value, label=let.label, origin=let.origin)
        return Rewritten(edit_block(program, site.path, lambda x: (*x[:i], store, *(transform(s, leave) for s in x[i + 1:]))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store to all of a fragment of the same block that makes something else of it, which is only read from then on."""
        if not (isinstance(node, n.Store) and node.at.buffer.space in HELD and node.at == n.Region(node.at.buffer) and node.mask is None):
            return None
        (block, i), b = block_and_index(program, path), node.at.buffer
        if not any(isinstance(s, n.Alloc) and s.buffer == b for s in block[:i]) or not is_pure(node.value):
            return None
        if folds(b, node.value) and _goes_on((*block[:i], *block[i + 1:]), b):
            return None
        later = [x for s in block[i + 1:] for x in walk(s) if isinstance(x, n.Region) and x.buffer == b]
        whole = sum(isinstance(x, n.Load) and x == n.Load(n.Region(b)) for s in block[i + 1:] for x in walk(s))
        if not later or len(later) != whole or node.value.type != n.Region(b).type:
            return Miss(f"'{b.name}' is more than read as a whole afterwards")
        if any(isinstance(s, n.Copy) and s.src.at.buffer == b for s in statements(block[i + 1:])):
            return Miss(f"a copy moves '{b.name}', which is a place")
        return Site(path, OverwriteFragment(b.name))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The tile under a name of its own."""
        store, i = node_as(program, site.path, n.Store), int(site.path[-1])
        var = fresh_var("kept", names_at(program, site.path), store.value.type)

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return var if new == n.Load(store.at) else new
        let = n.Let((var.name,), store.value, label=store.label, origin=store.origin)
        return Rewritten(edit_block(program, site.path, lambda x: (*x[:i], let, *(transform(s, leave) for s in x[i + 1:]))), site.path)


def _goes_on(block: n.Block, b: n.Buffer) -> bool:
    """Whether a block itself, not a loop in it, folds values into a fragment: a sum that goes on, statement by statement."""
    return any(isinstance(s, n.Store) and s.at == n.Region(b) and folds(b, s.value) for s in block)
