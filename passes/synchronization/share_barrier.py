"""Lets threads wait once for what they waited for twice: what is published at a second barrier is published at the first.

pipeline: `share-barrier{buffer=B}@main/t/meet`

```diff
 kir 1
 program two_sums
   size M: i32
   in X: f32[M, 128]
   out Y: f32[M, 128]
 kernel main grid (row: M) threads 128
   shared A: f32[128]
   shared B: f32[128]
   for t in 0..128 parallel thread
     A[t] = X[row, t]
+    B[t] = X[row, t] * X[row, t]
     @meet barrier()
     register s: f32 = 0.0
     for u in 0..128
       s = s + A[u]
-    B[t] = X[row, t] * X[row, t]
-    barrier()
     register q: f32 = 0.0
     for v in 0..128
       q = q + B[v]
     Y[row, t] = s * q
```
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar, NamedTuple

from kir.analysis import Aliases, Facts
from kir.analysis.access import accesses, independent
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import Space
from kir.ir.visit import statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, edit_block
from kir.rewrite.match import block_and_index, matched, params_as
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.thread_team import is_call, is_in_loop, team_at

BARRIERS = ("barrier", "warp_sync")
PRIVATE: tuple[Space, ...] = ("register", "fragment")


def _in_order(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, ShareBarrier)
    parts = matched(item.parts(program, site.path))
    if not independent(parts.between, parts.moved, Facts.at(program, site.path), Aliases(program)):
        return refuted("what comes before the first barrier needs what comes after it", "a statement that moves uses a value from between the barriers",
                       needs="statements that need nothing from between the barriers")
    return proved("what moves needs nothing from between the barriers, and leaves what they need alone")


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, ShareBarrier)
    parts = matched(item.parts(program, site.path))
    for ours, theirs, when in ((parts.moved, parts.before, "before the first barrier"), (parts.between, parts.after, "after it")):
        (wrote, saw), (writes, sees) = _touched(ours), _touched(theirs)
        both = sorted((wrote & sees) | (writes & saw))
        if both:
            return refuted(f"with one barrier less, a thread may touch '{both[0]}' {when} while another one does",
                           f"only the second barrier orders uses of '{both[0]}'",
                           needs="arrays that nobody else uses between the barriers around")
    return proved("the second barrier orders nothing that the first does not")


def _touched(block: Iterable[n.Stmt]) -> tuple[set[str], set[str]]:
    """Memory that several threads see, which a block may write, and all that it touches."""
    found = [(a.buffer, a.writes) for s in block for a in accesses(s) if a.at is None or a.at.buffer.space not in PRIVATE]
    return {name for name, writes in found if writes}, {name for name, _ in found}


class Parts(NamedTuple):
    """Statements around two barriers: what may touch memory before the first, between them what stays and what moves, after the second; its index."""

    before: n.Block
    between: n.Block
    moved: n.Block
    after: n.Block
    second: int
"""A block around two barriers, of which the second is statement `second`: what is done before the first and since the barrier before that, between
the two in front of what moves, what moves, and what is done until the barrier after."""


@dataclass(frozen=True)
class ShareBarrier(Pass):
    """`moved` statements in front of the second barrier come before the first one, and the second goes; `buffer` is the array that they write. `joined`:
    the last of them and the one before the barrier are branches of one condition, and become one."""

    intent: ClassVar[str] = "fuse"
    catalogue: ClassVar[tuple[int, ...]] = (55, 44)
    claim: ClassVar[str] = "Threads wait once for several results, where they waited for one after the other."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P938", "validity", "pipeline", "what moves before the first barrier needs nothing from behind it", _in_order),
        Precondition("KIR-P939", "validity", "pipeline", "the second barrier orders nothing that the first does not", _apart))

    buffer: str = ""
    moved: int = 0
    joined: bool = False

    def parts(self, program: n.Program, path: Path) -> Parts | None:
        """What stands around the barrier at a path and the next one of its kind."""
        block, i = block_and_index(program, path)
        first = block[i]
        fn = first.call.fn if isinstance(first, n.Eval) else ""
        second = next((k for k in range(i + 1, len(block)) if _meets(block[k], fn)), None)
        if second is None or not is_call(block[second], fn) or not 0 < self.moved < second - i - 1:
            return None
        end = next((k for k in range(second + 1, len(block)) if _meets(block[k], fn)), None)
        start = next((k for k in reversed(range(i)) if _meets(block[k], fn)), None)
        far = tuple(_elsewhere(program, path, block))
        again = block if is_in_loop(program, path) else ()
        after = (*block[second + 1:end], block[end]) if end is not None else (*block[second + 1:], *far, *again[:i])
        before = (block[start], *block[start + 1:i]) if start is not None else (*block[:i], *far, *again[second + 1:])
        cut = second - self.moved
        return Parts(before, block[i + 1:cut], block[cut:second], after, second)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a barrier of all threads, or of those of a warp, with another one after it in its block. What moves is all that serves one array."""
        if not _is_barrier(node) or team_at(program, path) is None:
            return None
        if not self.moved:
            return self._proposed(program, path, node) or None
        parts, (block, i) = self.parts(program, path), block_and_index(program, path)
        if parts is None:
            return Miss("no second barrier follows, or so many statements do not stand before it")
        if self.buffer not in _published(parts.moved):
            return Miss(f"what moves does not write '{self.buffer}'")
        if any(isinstance(x, (n.Opaque, n.Hole, n.Jump)) for x in statements((*parts.between, *parts.moved))):
            return Miss("a statement between the barriers may leave, or is not understood")
        if self.joined and (not i or _joined(block[i - 1], parts.moved[-1]) is None):
            return Miss("what moves last and what stands before the barrier are no branches of one condition")
        return Site(path, self)

    def _proposed(self, program: n.Program, path: Path, node: Place) -> tuple[Site, ...]:
        """The sites that the inverse finds again."""
        out = []
        for count in range(1, len(block_at(program, path))):
            parts = replace(self, moved=count).parts(program, path)
            if parts is None:
                break
            for item in (ShareBarrier(name, count, joined) for name in _published(parts.moved) if self.buffer in ("", name) for joined in (True, False)):
                if isinstance(site := item.match(program, path, node), Site):
                    made = item.optimize(program, site)
                    again = item.match_inverse(made.program, made.path, node)
                    if isinstance(again, tuple) and any(each.params == item for each in again):
                        out.append(site)
        return tuple(out[:1])

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One barrier."""
        parts, i = matched(self.parts(program, site.path)), int(site.path[-1])
        block = block_at(program, site.path)
        head, moved = block[:i], parts.moved
        if self.joined:
            both = matched(_joined(head[-1], moved[-1]))
            head, moved = head[:-1], (*moved[:-1], both)
        made = (*head, *moved, block[i], *parts.between, *block[parts.second + 1:])
        here = (*site.path[:-1], len(head) + len(moved))
        return Rewritten(edit_block(program, site.path, lambda b: made), here)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a barrier before which several arrays are written: one of them could be at a barrier of its own."""
        if not _is_barrier(node) or team_at(program, path) is None:
            return None
        block, i = block_and_index(program, path)
        fn = node.call.fn if isinstance(node, n.Eval) else ""
        start = next((k + 1 for k in reversed(range(i)) if _meets(block[k], fn)), 0)
        end = next((k for k in range(i + 1, len(block)) if _meets(block[k], fn)), len(block))
        written = _published(block[start:i])
        if len(written) < 2:
            return None
        known, aliases = Facts.at(program, path), Aliases(program)
        found = []
        for name in written:
            split = _split(block[start:i], block[i + 1:end], name, known, aliases)
            if split is not None:
                head, moved, between, after, joined = split
                made = (*block[:start], *head, node, *between, *moved, node, *after, *block[end:])
                found.append(Site(path, ShareBarrier(name, len(moved), joined), {"block": made, "at": start + len(head)}))
        return tuple(found) or Miss("what the arrays hold is used together")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two barriers."""
        made, at = site.captures["block"], site.captures["at"]
        second = next(k for k in range(at + 1, len(made)) if made[k] is made[at])
        made = (*made[:second], replace(made[second], label=None), *made[second + 1:])
        return Rewritten(edit_block(program, site.path, lambda b: made), (*site.path[:-1], at))


def _is_barrier(s: Place) -> bool:
    return isinstance(s, n.Eval) and any(is_call(s, fn) for fn in BARRIERS)


def _meets(s: n.Stmt, fn: str) -> bool:
    """Whether all threads (of a warp, after `warp_sync`) meet somewhere in a statement."""
    return any(is_call(x, "barrier") or is_call(x, fn) for x in statements((s,)))


def _published(block: n.Block) -> tuple[str, ...]:
    """The arrays of shared memory that a block writes, in order."""
    return tuple(dict.fromkeys(x.at.buffer.name for x in statements(block) if isinstance(x, n.Store) and x.at.buffer.space == "shared"))


def _elsewhere(program: n.Program, path: Path, block: n.Block) -> Iterator[n.Stmt]:
    """What threads do outside a block, where the block is not all that they do."""
    team = matched(team_at(program, path))
    if len(path) > len(team.path) + 2:
        inside = {id(s) for s in statements(block)}
        yield from (s for s in statements(team.loop.body) if id(s) not in inside and isinstance(s, n.Store | n.Let | n.Alloc | n.Eval | n.Copy | n.Mma))


def _joined(a: n.Stmt, b: n.Stmt) -> n.If | None:
    """Two branches of one condition as one; the first does not change the condition."""
    if not (isinstance(a, n.If) and isinstance(b, n.If) and a.cond == b.cond and not (a.orelse or b.orelse or a.static or b.static)):
        return None
    written = {x.at.buffer.name for x in statements(a.then) if isinstance(x, n.Store)}
    return None if any(mentions(a.cond, name) for name in written) else replace(a, then=(*a.then, *b.then))


Split = tuple[n.Block, n.Block, n.Block, n.Block, bool]


def _split(before: n.Block, after: n.Block, name: str, known: Facts, aliases: Aliases) -> Split | None:
    """(what stays before the first barrier, what moves behind it, what stands between the barriers, what follows, whether a branch was taken apart)
    of a block in which all that serves only the array `name` comes behind a barrier."""
    def apart(a: n.Block, b: n.Block) -> bool:
        return independent(a, b, known, aliases)
    head, moved = [s for s in before if not mentions(s, name)], [s for s in before if mentions(s, name)]
    joined = False
    if len(moved) == 1 and isinstance(branch := moved[0], n.If) and branch is before[-1] and not branch.orelse and not branch.static:
        mine, others = tuple(s for s in branch.then if mentions(s, name)), tuple(s for s in branch.then if not mentions(s, name))
        if others and apart(mine, others):
            head, moved, joined = [*head, replace(branch, then=others)], [replace(branch, then=mine, label=None)], True
    kept: list[n.Stmt] = []
    wanted = [s for s in after if mentions(s, name)]
    between: list[n.Stmt] = []
    follows: list[n.Stmt] = []
    for s in after:
        if s in wanted or not apart((s,), tuple(follows)) or not apart((s,), tuple(moved)):
            follows.append(s)
        else:
            between.append(s)
    for s in reversed(head):  # what serves nothing else goes with it
        if not apart((s,), tuple(moved)) and apart((s,), tuple(kept)) and apart((s,), tuple(between)):
            moved.insert(0, s)
        else:
            kept.insert(0, s)
    published = _published(tuple(kept))
    readers = [k for k, s in enumerate(between) if any(isinstance(x, n.Load) and x.at.buffer.name in published for x in walk(s))]
    if not readers or not wanted:
        return None
    between, late = between[:readers[-1] + 1], between[readers[-1] + 1:]
    rest = [s for s in after if any(s is x for x in (*late, *follows))]
    if not apart(tuple(moved), tuple(between)) or name not in _published(tuple(moved)):
        return None
    return tuple(kept), tuple(moved), tuple(between), tuple(rest), joined
