"""Declares private memory first, and says in a statement of its own what it begins with.

pipeline: `begin-with@main/s`

```diff
 kir 1
 program masked
   in X: f32[64, 64]
   out Y: f32[64]
 kernel main grid (b: 1) threads 32
-  @s fragment s: f32[64] = select(iota(64) < 40, 0.0, -inf)
+  @s fragment s: f32[64]
+  s = select(iota(64) < 40, 0.0, -inf)
   for k in 0..64
     s = s + X[k, 0 +: 64]
   Y = s
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import buffers_named
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import edit_block
from kir.rewrite.match import block_and_index, edited, matched_as, node_as
from kir.rewrite.match.materialize import is_pure


@dataclass(frozen=True)
class BeginWith(Pass):
    """No parameters: the site is the declaration."""

    intent: ClassVar[str] = "promote-scratch"
    catalogue: ClassVar[tuple[int, ...]] = (5,)
    claim: ClassVar[str] = "One array serves all iterations, each of which writes over all of it first."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At private memory that is declared with a value that is no literal."""
        if not (isinstance(node, n.Alloc) and node.buffer.space in ("fragment", "register") and node.init is not None):
            return None
        return Miss("it begins with a literal") if isinstance(node.init, n.Const) or not is_pure(node.init) else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A declaration, and a store to all of it."""
        s = node_as(program, site.path, n.Alloc)
        assert s.init is not None
        fill = n.Store(n.Region(s.buffer), s.init)
        return edited(program, site.path, (replace(s, init=None), fill))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At private memory that is declared without a value, and written as a whole by the first statement that mentions it."""
        if not (isinstance(node, n.Alloc) and node.buffer.space in ("fragment", "register") and node.init is None):
            return None
        (block, i), name = block_and_index(program, path), node.buffer.name
        k = next((k for k in range(i + 1, len(block)) if name in buffers_named(block[k])), None)
        fill = block[k] if k is not None else None
        if not (isinstance(fill, n.Store) and fill.at == n.Region(node.buffer) and fill.mask is None and not fill.clip and is_pure(fill.value)):
            return Miss(f"'{name}' is not written as a whole first")
        if name in buffers_named(fill.value) or isinstance(fill.value, n.Const) or fill.value.type != n.Region(node.buffer).type:
            return Miss(f"what '{name}' begins with is made of itself, or a literal")
        return Site(path, self, {"fill": k})

    def inverse_sites(self, program: n.Program) -> Iterator[Site]:
        """Such memory, but none that a loop after it fills anew: what it begins with is then the first of several values, which belong together."""
        for site in super().inverse_sites(program):
            (block, _), at = block_and_index(program, site.path), n.Region(node_as(program, site.path, n.Alloc).buffer)
            later = (x for s in block[int(site.captures["fill"]) + 1:] if isinstance(s, n.For) for x in s.body)
            if not any(isinstance(x, n.Store) and x.at == at and at.buffer.name not in buffers_named(x.value) for x in later):
                yield site

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The declaration with its value, where that is known."""
        (block, i), k = block_and_index(program, site.path), int(site.captures["fill"])
        s, fill = matched_as(block[i], n.Alloc), matched_as(block[k], n.Store)
        made = edit_block(program, site.path, lambda b: (*b[:i], *b[i + 1:k], replace(s, init=fill.value), *b[k + 1:]))
        return Rewritten(made, (*site.path[:-1], k - 1))
