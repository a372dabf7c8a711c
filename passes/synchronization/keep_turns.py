"""Lets turns of warpgroups go around over all tiles of a CTA, instead of anew in each: the first warpgroup lets itself in once.

pipeline: `keep-turns@main/wg/tiles`

```diff
 kir 1
 program sums
   size T: i32
   size N: i32
   in X: f32[T, N, 2, 128]
   out Y: f32[T, 2, 128]
 kernel main grid (pid: 2) threads 256
   for wg in 0..2 parallel warpgroup
+    if wg == 0
+      named_barrier_arrive(1, 256)
     @tiles for i in 0..ceildiv(T - pid, 2)
       fragment acc: f32[128] = 0.0
-      if wg == 0
-        named_barrier_arrive(1, 256)
       for j in 0..N
         named_barrier_sync(wg + 1, 256)
         acc = acc + X[i * 2 + pid, j, wg, 0 +: 128]
         named_barrier_arrive((wg + 1) % 2 + 1, 256)
       named_barrier_sync(wg + 1, 256)
-      if wg != 1
-        named_barrier_arrive(wg + 2, 256)
+      named_barrier_arrive((wg + 1) % 2 + 1, 256)
       Y[i * 2 + pid, wg, 0 +: 128] = acc
+    if wg == 0
+      named_barrier_sync(1, 256)
```

A named barrier counts threads, not who they are: a warpgroup that is let in anew at each tile may let the next one in twice before that has taken its turn.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import call
from kir.ir.paths import child_blocks, with_block
from kir.ir.visit import names_read, statements
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.match import block_and_index, edited, is_counted, matched, matched_as, node_as

from ..pipelining.take_turns import _Turns, _turns


def closed(turns: _Turns) -> n.Stmt:
    """The turn that is left behind the last tile, which the first warpgroup takes."""
    first = matched_as(turns.first, n.If)
    given = matched_as(first.then[0], n.Eval).call
    return replace(first, then=(n.Eval(call("named_barrier_sync", *given.args)),))


def _around(block: n.Block, turns: _Turns) -> n.Block:
    """A block whose turns are given on behind its loop too, and not let in before it."""
    out: list[n.Stmt] = []
    for s in block:
        if s == turns.first:
            continue
        if s == turns.last[1]:
            s = turns.on
        elif isinstance(s, n.If):
            for steps, inner in child_blocks(s):
                s = with_block(s, steps, _around(inner, turns))
        out.append(s)
    return tuple(out)


def _anew(block: n.Block, turns: _Turns) -> n.Block:
    """The inverse: the first warpgroup lets itself in before the loop, and behind it nobody is let in after the last."""
    out: list[n.Stmt] = []
    for s in block:
        if isinstance(s, n.For) and turns.wait in s.body and turns.on in s.body:
            out.append(turns.first)
        elif s == turns.on and out and out[-1] == turns.wait:
            s = turns.last[1]
        elif isinstance(s, n.If):
            for steps, inner in child_blocks(s):
                s = with_block(s, steps, _anew(inner, turns))
        out.append(s)
    return tuple(out)


def _tiles(block: n.Block, turns: _Turns) -> Iterator[n.Block]:
    """The blocks of a tile's code in which turns begin."""
    if turns.first in block:
        yield block
    for s in block:
        if isinstance(s, n.If) and turns.wg.name not in names_read(s.cond):
            for _, inner in child_blocks(s):
                yield from _tiles(inner, turns)


@dataclass(frozen=True)
class KeepTurns(Pass):
    """No parameters."""

    intent: ClassVar[str] = "ping-pong"
    catalogue: ClassVar[tuple[int, ...]] = (29,)
    claim: ClassVar[str] = "No warpgroup begins a tile's turns before the others have had theirs of the tile before."
    requires: ClassVar[tuple[str, ...]] = ("turns",)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over tiles of each warpgroup, in each of which turns begin anew."""
        turns = _turns(program, path) if is_counted(node) and len(path) > 3 else None
        if turns is None or not isinstance(node, n.For) or not any(s == turns.first for s in statements(node.body)):
            return None
        found = list(_tiles(node.body, turns))
        count = {s: sum(x == s for x in statements(node.body)) for s in (turns.first, turns.last[1])}
        if len(found) != 1 or set(count.values()) != {1} or turns.last[1] not in found[0]:
            return Miss("turns begin and end at several places of a tile, or under a condition that is not the same for all")
        if _anew(_around(node.body, turns), turns) != node.body:
            return Miss("what turns are about is no loop behind which the last ones follow")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Let in before the first tile, given on in each, and the turn that is left is taken behind the last one."""
        loop, turns = node_as(program, site.path, n.For), matched(_turns(program, site.path))
        return edited(program, site.path, (turns.first, replace(loop, body=_around(loop.body, turns)), closed(turns)), at=1)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop before which the first warpgroup lets itself in, and behind which it takes the turn that is left."""
        turns = _turns(program, path) if is_counted(node) and len(path) > 3 else None
        if turns is None or not isinstance(node, n.For):
            return None
        block, i = block_and_index(program, path)
        if not i or block[i - 1] != turns.first or block[i + 1:i + 2] != (closed(turns),):
            return None
        plain = _anew(node.body, turns)
        return Site(path, self, {"body": plain}) if plain != node.body and _around(plain, turns) == node.body else None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Let in at each tile."""
        return edited(program, site.path, (replace(node_as(program, site.path, n.For), body=site.captures["body"]),), -1, 2, at=-1)
