"""Adds up what the lanes of a warp bring to one place first, so that one of them updates it for all.

pipeline: `join-updates@main/t/add`

```diff
 kir 1
 program positive
   size N: i32
   in X: i32[N]
   inout S: i32[1]
   fact N % 64 == 0
 kernel main grid (b: N // 64) threads 64
   for t in 0..64 parallel thread
-    @add atomic_add(&S[0], X[b * 64 + t])
+    @add let total = warp_reduce(X[b * 64 + t], op=add)
+    if t % 32 == 0
+      atomic_add(&S[0], total)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.uniform import depends, varying
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DType, dtype_of
from kir.ir.visit import walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at
from kir.rewrite.match import block_and_index, edited, fresh_var, matched, matched_as, names_at, params_as, whole_warps
from kir.rewrite.match.thread_team import ThreadTeam, everyone_arrives, team_at

OPERATIONS = {"atomic_add": "add", "atomic_max": "max", "atomic_min": "min", "atomic_and": "and", "atomic_or": "or", "atomic_xor": "xor"}
"""How lanes put together what an atomic would, by its name."""


@dataclass(frozen=True)
class _Joined:
    """An update by one lane for all: the name of what they bring together, the value of each, the atomic, and whether it counts their votes."""

    name: str
    value: n.Expr
    call: n.Call
    votes: bool


def _joined(block: n.Block, i: int, team: ThreadTeam) -> _Joined | None:
    """The one that begins with the statement at `i`."""
    let, branch = block[i], block[i + 1] if i + 1 < len(block) else None
    made = let.value if isinstance(let, n.Let) and len(let.names) == 1 else None
    if not (isinstance(let, n.Let) and isinstance(made, n.Call) and made.of is None and isinstance(branch, n.If) and branch.cond == _first(team)):
        return None
    update = branch.then[0] if len(branch.then) == 1 and not branch.orelse else None
    if not (isinstance(update, n.Eval) and update.call.fn in OPERATIONS and not update.call.attrs and len(update.call.args) == 2):
        return None
    held = n.Var(let.names[0], made.type)
    at, given = update.call.args
    dtype = dtype_of(at.type) if isinstance(at, n.Region) else BOOL
    uses = sum(isinstance(x, n.Var) and x.name == held.name for s in block[i + 1:] for x in walk(s))
    whole = not made.attrs or {name for name, _ in made.attrs} <= {"op"}
    if uses != 1 or not whole or len(made.args) != 1 or not isinstance(value := made.args[0], n.Expr):
        return None
    if made.fn == "warp_reduce" and dict(made.attrs).get("op") == OPERATIONS[update.call.fn] and given == held and value.type == dtype:
        return _Joined(held.name, value, update.call, False)
    if made.fn == "ballot" and update.call.fn == "atomic_add" and given == _counted(held, dtype):
        return _Joined(held.name, build.cast(value, dtype), update.call, True)
    return None


def _counted(votes: n.Var, dtype: DType) -> n.Expr:
    """How many lanes have voted for it."""
    return build.cast(build.call("popc", votes), dtype)


def _first(team: ThreadTeam) -> n.Expr:
    """Whether a thread is the first lane of its warp."""
    return build.compare("eq", build.mod(team.thread, 32), 0)


def _one_place(program: n.Program, site: Site, context: Context) -> Verdict:
    team = matched(team_at(program, site.path))
    at = matched_as(matched_as(block_at(program, site.path)[int(site.path[-1])], n.Eval).call.args[0], n.Region)
    names = varying(team.loop).get(site.path[len(team.path):], frozenset())
    return refuted("the lanes of a warp update several places", "lanes 0 and 1 each have one of their own", needs="a place that is the same for all") if (
        depends(at, names)) else proved("all threads update one place")


def _whole(program: n.Program, site: Site, context: Context) -> Verdict:
    return whole_warps(matched(team_at(program, site.path)).threads, context)


@dataclass(frozen=True)
class JoinUpdates(Pass):
    """`votes`: what each brings is 0 or 1, and the votes of the lanes are counted."""

    intent: ClassVar[str] = "atomics"
    catalogue: ClassVar[tuple[int, ...]] = (49, 46)
    claim: ClassVar[str] = "Memory sees one update of a place for a warp, where it saw one for each of its lanes."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P465", "validity", "aliasing", "all threads update the same place", _one_place),
        Precondition("KIR-P466", "validity", "pipeline", "all threads of the CTA come to the exchange", everyone_arrives),
        Precondition("KIR-P467", "validity", "hardware", "the threads are whole warps", _whole),
    )

    votes: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an atomic of a thread on whole numbers, whose old value nobody asks for."""
        call = node.call if isinstance(node, n.Eval) else None
        if call is None or call.fn not in OPERATIONS or call.attrs or len(call.args) != 2 or team_at(program, path) is None:
            return None
        at, value = call.args
        if not (isinstance(at, n.Region) and isinstance(value, n.Expr) and isinstance(at.type, DType) and at.type.is_integer and at.type.bits == 32):
            return Miss("lanes put together numbers of 32 bits")
        if self.votes and not (call.fn == "atomic_add" and isinstance(value, n.Cast) and value.x.type == BOOL):
            return Miss("what each brings is no vote")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One update for a warp."""
        s, item = matched_as(block_at(program, site.path)[int(site.path[-1])], n.Eval), params_as(site, JoinUpdates)
        team, (at, value) = matched(team_at(program, site.path)), s.call.args
        assert isinstance(at, n.Region) and isinstance(value, n.Expr)
        made = build.call("ballot", matched_as(value, n.Cast).x) if item.votes else build.call_with("warp_reduce", (value,), n.attrs(op=OPERATIONS[s.call.fn]))
        total = fresh_var("votes" if item.votes else "total", names_at(program, site.path), made.type)
        given = _counted(total, dtype_of(at.type)) if item.votes else total
        update = n.If(_first(team), (n.Eval(replace(s.call, args=(at, given))),))
        return edited(program, site.path, (n.Let((total.name,), made, label=s.label, origin=s.origin), update))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At what the lanes of a warp bring together, for an update by the first of them."""
        team = team_at(program, path) if isinstance(node, n.Let) else None
        found = None if team is None else _joined(*block_and_index(program, path), team)
        return None if found is None else Site(path, JoinUpdates(found.votes))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """An update by each."""
        block, i = block_and_index(program, site.path)
        found = matched(_joined(block, i, matched(team_at(program, site.path))))
        made = n.Eval(replace(found.call, args=(found.call.args[0], found.value)), label=block[i].label, origin=block[i].origin)
        return edited(program, site.path, (made,), 0, 2)
