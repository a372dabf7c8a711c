"""Lets all threads of a CTA meet where nothing they do needs it; backward, a barrier goes that is proved to guard nothing.

pipeline: `extra-barrier{where=before}@main/t/store`

```diff
 kir 1
 program scaled
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 64
   shared total: f32
   for t in 0..64 parallel thread
     if t == 0
       total = X[row, 0] + X[row, 1]
     barrier()
     let s = total
+    barrier()
     @store Y[row, t] = X[row, t] * s
```
"""
from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from typing import ClassVar, Literal

from kir.analysis.access import ANYWHERE, Access, Aliases, accesses
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import blocks_of, once, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import block_and_index, edited, matched, node_as, params_as, sibling, splice
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, team_at

PRIVATE = ("register", "fragment")
ORDERED = ("race", "undefined", "wait", "ring")
"""Hazards that a barrier may be there against."""
MOST_BARRIERS = 16
"""In a kernel with more of them, only what stands plainly between two is looked at: each other one takes a proof of the whole kernel."""


def _arrive(program: n.Program, site: Site, context: Context) -> Verdict:
    inside = replace(site, path=(*site.path, "body", 0)) if params_as(site, ExtraBarrier).where == "around" else site
    return everyone_arrives(program, inside, context)


@dataclass(frozen=True)
class ExtraBarrier(Pass):
    """`where`: before or after the statement; or `around` each round of a loop instead of around the loop. Without it the pass is offered nowhere, as a
    barrier could stand at every statement."""

    intent: ClassVar[str] = "explicit-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36,)
    claim: ClassVar[str] = "The warps of a CTA stay in one part of the code, so that what one fetches is in the cache for the next."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P362", "validity", "pipeline", "all threads of the CTA come to the barrier", _arrive),)

    where: Literal["", "before", "after", "around"] = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement of a thread."""
        if not self.where or team_at(program, path) is None or not isinstance(node, n.Stmt):
            return None
        block, i = block_and_index(program, path)
        last = i + 1 == len(block)
        if self.where == "around":
            count = build.int_value(node.hi) if isinstance(node, n.For) and node.kind == "serial" and build.is_const(node.lo, 0) else None
            meets = 0 < i < len(block) - 1 and is_call(block[i - 1], "barrier") and is_call(block[i + 1], "barrier")
            return Site(path, self) if meets and count else Miss("it is no loop that is known to run, with barriers before and behind it")
        if any(is_call(s, "barrier") for s in block[max(0, i - 1):i + 1]) or (self.where == "after" and not last):
            return Miss("they meet here already, or before the next statement")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A barrier before the statement, or behind it, or around what a loop does."""
        if self.where == "around":
            loop, at = node_as(program, site.path, n.For), sibling(site.path, -1)
            hints = {(*site.path, "body", k): ((*at, "body", k + 1),) for k in range(len(loop.body))}
            return edited(program, site.path, (replace(loop, body=(barrier(), *loop.body, barrier())),), -1, 2, at=-1, hints={**hints, site.path: (at,)})
        if self.where == "after":
            return Rewritten(splice(program, site.path, (barrier(),), 1, 1), sibling(site.path, 1), {site.path: (site.path,)})
        return Rewritten(splice(program, site.path, (barrier(),), 0, 0), site.path, {site.path: (sibling(site.path, 1),)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a barrier without which the program has no hazard, for any size; at a loop of barriers around what a thread does for itself."""
        if isinstance(node, n.For) and team_at(program, path) is not None:
            own = node.body[1:-1]
            count = build.int_value(node.hi) if node.kind == "serial" and build.is_const(node.lo, 0) else None
            if not own or not count or not all(is_call(s, "barrier") for s in (node.body[0], node.body[-1])):
                return None
            touched = any(isinstance(x, (n.Eval, n.Jump, n.Copy, n.Mma)) or (isinstance(x, n.Store) and x.at.buffer.space not in PRIVATE)
                          for s in own for x in walk(s))
            return Miss("one round writes what another may read") if touched else Site(path, ExtraBarrier("around"))
        if not isinstance(node, n.Eval) or not is_call(node, "barrier") or team_at(program, path) is None:
            return None
        block, i = block_and_index(program, path)
        if len(block) == 1:
            return Miss("nothing else stands there")
        team = matched(team_at(program, path))
        why = _needed(block, i, team.thread, Aliases(program))
        if why is None and (name := _exchanged(program, path, team)):
            why = f"'{name}' is written on one side of it and used on the other"
        if why is None:
            kernel = kernel_of(program, path)
            many = once(kernel, "_barriers", lambda: sum(map(_is_barrier, walk(kernel)))) > MOST_BARRIERS
            why = "it stands between loops or branches of a kernel with many" if many else _hazards(edited(program, path, ()).program, kernel.name)
        return Miss(why) if why else Site(path, ExtraBarrier("before" if i + 1 < len(block) else "after"))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """No barrier, or one before a loop and one behind it."""
        if params_as(site, ExtraBarrier).where == "around":
            loop, at = node_as(program, site.path, n.For), sibling(site.path, 1)
            hints = {(*site.path, "body", k + 1): ((*at, "body", k),) for k in range(len(loop.body) - 2)}
            return edited(program, site.path, (barrier(), replace(loop, body=loop.body[1:-1]), barrier()), at=1, hints={**hints, site.path: (at,)})
        return edited(program, site.path, (), at=-1 if self.where == "after" else 0)


def _needed(block: n.Block, i: int, thread: n.Var, aliases: Aliases) -> str | None:
    """Why a barrier is needed: what threads plainly exchange across it; "" where it is not, as all that it orders stands in its block; None: not plain."""
    before, begins = _near(block[:i][::-1])
    after, ends = _near(block[i + 1:])
    plain = begins and ends
    for a in before:
        for b in after:
            if ANYWHERE in (a.buffer, b.buffer):
                return "it may order what is in flight"
            if not (a.writes or b.writes) or any(x.at is not None and x.at.buffer.space in PRIVATE for x in (a, b)):
                continue
            if a.buffer != b.buffer or a.at is None or b.at is None:
                plain = plain and not aliases.may_be_one(a.buffer, b.buffer)
            elif a.at != b.at or thread not in a.at.index:
                return f"'{a.buffer}' is written on one side of it and used on the other"
    return "" if plain else None


def _near(block: n.Block) -> tuple[tuple[Access, ...], bool]:
    """What statements touch up to the first barrier among them, or inside one of them; and whether there is one among them."""
    near = tuple(takewhile(lambda s: not any(map(_is_barrier, walk(s))), block))
    return tuple(a for s in near for a in accesses(s)), len(near) < len(block) and is_call(block[len(near)], "barrier")


def _exchanged(program: n.Program, path: Path, team: ThreadTeam) -> str:
    """An array of which one thread writes an element on one side of a barrier and another thread uses it on the other, into loops with barriers and around the
    loop that it stands in, by the first rounds of these and whatever branches ask; "" where none is found so. It spares a proof that would find it, too."""
    block, i = block_and_index(program, path)
    again = _until(block[:i + 1], 1) if is_in_loop(program, path) and not any(_is_barrier(x) for s in block[i + 1:] for x in walk(s)) else ()
    for a in _until(block[:i], -1):
        for b, rounds in (*((x, (0,)) for x in _until(block[i + 1:], 1)), *((x, (1,)) for x in again)):
            if a.at is not None and b.at is not None and a.buffer == b.buffer and a.at.buffer.space == "shared" and (a.writes or b.writes):
                users = _places(b.at, team, rounds[0])
                if any(users.get(place, {t}) != {t} for place, own in _places(a.at, team, 0).items() for t in own):
                    return a.buffer
    return ""


def _until(block: n.Block, way: Literal[1, -1]) -> tuple[Access, ...]:
    """What statements touch, forward or backward, up to the first barrier among them, or in them."""
    out: list[Access] = []
    for s in block[::way]:
        if _is_barrier(s):
            break
        if any(map(_is_barrier, walk(s))):
            return (*out, *(a for body in blocks_of(s) for a in _until(body, way)))
        out += accesses(s)
    return tuple(out)


def _places(at: n.Region, team: ThreadTeam, round_: int) -> dict[tuple[int, ...], set[int]]:
    """The elements that are touched at a place, each with the threads that do, in a round of all loops; none that more than threads and rounds say."""
    names = {x.name for i in at.index for x in walk(i) if isinstance(x, n.Var)}
    counted = {s.var.name for s in walk(team.loop) if isinstance(s, n.For)}
    if not names <= counted or not all(isinstance(i, n.Expr) for i in at.index):
        return {}
    out: dict[tuple[int, ...], set[int]] = {}
    for t in range(team.threads if team.thread.name in names else 2):
        values = {name: build.const(t if name == team.thread.name else round_) for name in names}
        found = [build.int_value(substitute(i, values)) for i in at.index if isinstance(i, n.Expr)]
        if None in found:
            return {}
        out.setdefault(tuple(x for x in found if x is not None), set()).add(t)
    return out


def _is_barrier(x: n.Node) -> bool:
    """Whether a node is the barrier of a CTA."""
    return isinstance(x, n.Eval) and is_call(x, "barrier")


@lru_cache(256)
def _hazards(program: n.Program, kernel: str) -> str:
    """What is not proved about the order of the accesses of a kernel; "" where all is."""
    from kir.analysis.proof.decide import Contradiction, unordered

    try:
        found = unordered(program, kernel)
    except Contradiction:
        return "the facts contradict each other"
    return f"without it, a {found.what} is not proved to be in order" if found is not None else ""
