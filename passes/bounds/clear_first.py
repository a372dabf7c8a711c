"""Fills an array of the CTA with one value before anything is put there, so that what nobody puts there is read like the rest.

pipeline: `clear-first{buffer=warps}@main/t/x`

```diff
 kir 1
 program row_sums
   size M: i32
   in X: f32[M, 64]
   out S: f32[M]
 kernel main grid (row: M) threads 64
   shared warps: f32[32]
   for t in 0..64 parallel thread
+    if t < 32
+      warps[t] = 0.0
+    barrier()
     @x let x = X[row, t]
     warps[t // 32] = warp_reduce(x, op=max)
     barrier()
-    let top = warp_reduce(load(warps[t % 32] where t % 32 < 2 else 0.0), op=max)
+    let top = warp_reduce(warps[t % 32], op=max)
     if t == 0
       S[row] = top
```
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kir.analysis.access import accesses
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.paths import block_paths
from kir.ir.visit import transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import block_at, kernel_of
from kir.rewrite.match import block_and_index, edited, matched, params_as
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.shared_arrays import uses
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, team_at

PRIVATE = ("register", "fragment")
BEFORE = "shared memory is in use before, or others may read what is written there, for which the barrier may stand"


def _item(site: Site) -> ClearFirst:
    return params_as(site, ClearFirst)


def _declared(program: n.Program, path: Path, name: str) -> n.Buffer | None:
    """The array of the CTA of that name, of one axis and without a value."""
    found = next((s for s in kernel_of(program, path).body if isinstance(s, n.Alloc) and s.buffer.name == name), None)
    b = found.buffer if found is not None and found.init is None else None
    return b if b is not None and b.space == "shared" and len(b.shape) == 1 and b.layout is None and build.int_value(b.shape[0]) is not None else None


def _end(program: n.Program, path: Path, b: n.Buffer) -> int | None:
    """One more than the last place that statements from a path on put something; None where that is not known, or they do more than to put and to read."""
    top, first, block = -1, int(path[-1]), block_at(program, path)
    for at, x in block_paths(block, path[:-1]):
        if int(at[len(path) - 1]) >= first and isinstance(x, n.Store) and x.at.buffer == b:
            place = x.at.index[0] if len(x.at.index) == 1 and isinstance(x.at.index[0], n.Expr) else None
            known = Facts.at(program, at)
            range_ = known.domain(known.expanded(place)) if place is not None else None
            if range_ is None or range_.hi is None or range_.lo is None or range_.lo < 0:
                return None
            top = max(top, range_.hi)
    plain = [x for s in block[first:] for x in walk(s) if isinstance(x, n.Load | n.Store) and x.at.buffer == b and not x.clip]
    return top + 1 if top >= 0 and len(plain) == sum(isinstance(x, n.Region) and x.buffer == b for s in block[first:] for x in walk(s)) else None


def _loads(block: n.Block, b: n.Buffer) -> Iterator[n.Load]:
    yield from (x for s in block for x in walk(s) if isinstance(x, n.Load) and x.at.buffer == b)


def _all_behind(program: n.Program, path: Path, b: n.Buffer) -> bool:
    """Whether all places of an array that a kernel names are at a path or behind it in its block."""
    return uses(program, path, b.name) == sum(isinstance(x, n.Region) and x.buffer == b for s in block_at(program, path)[int(path[-1]):] for x in walk(s))


def _fill(team: ThreadTeam, b: n.Buffer, value: n.Const) -> n.Block:
    """The fill, and the barrier behind it."""
    store = n.Store(build.region(b, team.thread), value)
    size = build.int_value(b.shape[0]) or 0
    return (store if size == team.threads else n.If(build.below(team.thread, build.const(size)), (store,)), barrier())


def _before(program: n.Program, path: Path, team: ThreadTeam) -> Iterator[n.Stmt]:
    """What a thread does before the statement at a path."""
    for k in range(len(team.path) + 2, len(path) + 1, 2):
        block, i = block_and_index(program, path[:k])
        yield from block[:i]


def _exchanges(s: n.Stmt) -> bool:
    """Whether threads may exchange values by a statement and a barrier behind it: it uses shared memory, or writes global memory."""
    return is_call(s, "barrier") or any(isinstance(x, n.Region) and x.buffer.space in ("shared", "cluster") for x in walk(s)) or any(
        a.writes and (a.at is None or a.at.buffer.space not in PRIVATE) for a in accesses(s))


def _left_alone(program: n.Program, site: Site, context: Context) -> Verdict:
    b = matched(_declared(program, site.path, _item(site).buffer))
    loads = [x for x in _loads(block_at(program, site.path)[int(site.path[-1]):], b) if x.mask is not None]
    end = _end(program, site.path, b)
    if end is None:
        return unknown(f"where '{b.name}' is written is not known", needs="places that facts bound")
    early = [m for x in loads if (m := _bound(x)) is not None and m < end]
    if early:
        return refuted(f"'{b.name}' has values where the reads have others", f"element {early[0]} is put there, and read as the neutral one",
                       needs="masks that leave out what nobody writes alone")
    return proved("what the masks leave out is never written")


def _bound(x: n.Load) -> int | None:
    """The end before which a load's mask asks its place to be."""
    at, m = x.at.index[0] if len(x.at.index) == 1 else None, x.mask
    return build.int_value(m.b) if isinstance(m, n.Binary) and m.op == "lt" and m.a == at else None


@dataclass(frozen=True)
class ClearFirst(Pass):
    """`buffer` is the array."""

    intent: ClassVar[str] = "mask-tail"
    catalogue: ClassVar[tuple[int, ...]] = (54, 43)
    claim: ClassVar[str] = "Slots that nobody fills have the neutral value from the start, and are read without a question."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P947", "validity", "storage", "what the masks leave out is never written", _left_alone),
        Precondition("KIR-P948", "validity", "pipeline", "all threads of the CTA come to the barrier", everyone_arrives),
    )

    buffer: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement of all threads, from which on an array of the CTA is read under masks with one value outside."""
        team = team_at(program, path) if self.buffer and isinstance(node, n.Stmt) else None
        b = _declared(program, path, self.buffer) if team is not None else None
        if team is None or b is None:
            return None
        block, i = block_and_index(program, path)
        masked = [x for x in _loads(block[i:], b) if x.mask is not None]
        if is_in_loop(program, path) or not _all_behind(program, path, b):
            return Miss("it is in use elsewhere")
        if not masked or any(mentions(s, b.name) for s in block[:i]) or (build.int_value(b.shape[0]) or 0) > team.threads:
            return Miss("nothing is read under a mask, it is in use before, or has more elements than the CTA threads")
        if any(map(_exchanges, _before(program, path, team))):
            return Miss(BEFORE)
        if any(_bound(x) is None or not isinstance(x.other, n.Const) or x.other != masked[0].other for x in masked):
            return Miss("the masks do not ask for a place before an end, with one value outside")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A fill, and reads without masks."""
        team, b, (block, i) = matched(team_at(program, site.path)), matched(_declared(program, site.path, self.buffer)), block_and_index(program, site.path)
        value = next(x.other for x in _loads(block[i:], b) if x.mask is not None)
        assert isinstance(value, n.Const)
        rest = tuple(transform(s, lambda _, x: build.load(x.at) if isinstance(x, n.Load) and x.at.buffer == b else x) for s in block[i:])
        return edited(program, site.path, (*_fill(team, b, value), *rest), 0, None)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fill of an array of the CTA by all its threads, with which their use of shared memory begins."""
        team = team_at(program, path) if isinstance(node, n.Store | n.If) else None
        store = node if isinstance(node, n.Store) else node.then[0] if isinstance(node, n.If) and len(node.then) == 1 and not node.orelse else None
        if team is None or not isinstance(store, n.Store) or not isinstance(store.value, n.Const) or store.at.buffer.space != "shared":
            return None
        b, (block, i) = _declared(program, path, store.at.buffer.name), block_and_index(program, path)
        if b is None or block[i:i + 2] != _fill(team, b, store.value):
            return None
        if is_in_loop(program, path) or not _all_behind(program, path, b):
            return Miss("it is in use elsewhere")
        if any(map(_exchanges, _before(program, path, team))):
            return Miss(BEFORE)
        end = _end(program, (*path[:-1], i + 2), b)
        size = build.int_value(b.shape[0]) or 0
        reads = list(_loads(block[i + 2:], b))
        if end is None or not end < size or not reads or any(x.mask is not None or len(x.at.index) != 1 for x in reads):
            return Miss("something is put everywhere, or reads have masks of their own")
        return Site(path, ClearFirst(b.name), {"end": end, "value": store.value})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Reads that ask whether something was put there."""
        b, (block, i) = matched(_declared(program, site.path, self.buffer)), block_and_index(program, site.path)
        end, value = site.captures["end"], site.captures["value"]

        def leave(_: n.Node, x: n.Node) -> n.Node:
            if not (isinstance(x, n.Load) and x.at.buffer == b and isinstance(at := x.at.index[0], n.Expr)):
                return x
            told = build.int_value(at)
            return x if told is not None and told < end else build.load(x.at, build.below(at, build.const(end)), value)
        return edited(program, site.path, tuple(transform(s, leave) for s in block[i + 2:]), 0, None)
