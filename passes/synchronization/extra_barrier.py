"""Lets all threads of a CTA meet where nothing they do needs it; backward, a barrier goes that is proved to guard nothing.

before:

```kir
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
    @store Y[row, t] = X[row, t] * s
```

pipeline: `extra-barrier{where=before}@main/t/store`

after:

```kir
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
    barrier()
    @store Y[row, t] = X[row, t] * s
```
"""
from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from typing import ClassVar, Literal

from kir.analysis.access import ANYWHERE, Access, Aliases, accesses
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.visit import once, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import block_and_index, edited, matched, sibling, splice
from kir.rewrite.match.thread_team import barrier, everyone_arrives, is_call, team_at

PRIVATE = ("register", "fragment")
ORDERED = ("race", "undefined", "wait", "ring")
"""Hazards that a barrier may be there against."""
MOST_BARRIERS = 16
"""In a kernel with more of them, only what stands plainly between two is looked at: each other one takes a proof of the whole kernel."""


@dataclass(frozen=True)
class ExtraBarrier(Pass):
    """`where`: before or after the statement. Without it the pass is offered nowhere, as a barrier could stand at every statement."""

    intent: ClassVar[str] = "explicit-barrier"
    catalogue: ClassVar[tuple[int, ...]] = (36,)
    claim: ClassVar[str] = "The warps of a CTA stay in one part of the code, so that what one fetches is in the cache for the next."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P362", "validity", "pipeline", "all threads of the CTA come to the barrier", everyone_arrives),)

    where: Literal["", "before", "after"] = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement of a thread."""
        if not self.where or team_at(program, path) is None or not isinstance(node, n.Stmt):
            return None
        block, i = block_and_index(program, path)
        last = i + 1 == len(block)
        if any(is_call(s, "barrier") for s in block[max(0, i - 1):i + 1]) or (self.where == "after" and not last):
            return Miss("they meet here already, or before the next statement")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A barrier before the statement, or behind it."""
        if self.where == "after":
            return Rewritten(splice(program, site.path, (barrier(),), 1, 1), sibling(site.path, 1), {site.path: (site.path,)})
        return Rewritten(splice(program, site.path, (barrier(),), 0, 0), site.path, {site.path: (sibling(site.path, 1),)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a barrier without which the program has no hazard, for any size."""
        if not isinstance(node, n.Eval) or not is_call(node, "barrier") or team_at(program, path) is None:
            return None
        block, i = block_and_index(program, path)
        if len(block) == 1:
            return Miss("nothing else stands there")
        why = _needed(block, i, matched(team_at(program, path)).thread, Aliases(program))
        if why is None:
            kernel = kernel_of(program, path)
            many = once(kernel, "_barriers", lambda: sum(map(_is_barrier, walk(kernel)))) > MOST_BARRIERS
            why = "it stands between loops or branches of a kernel with many" if many else _hazards(edited(program, path, ()).program, kernel.name)
        return Miss(why) if why else Site(path, ExtraBarrier("before" if i + 1 < len(block) else "after"))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """No barrier."""
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
