"""Barriers under conditions on data that no test took both ways: nothing shows that all threads come to them."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from kir.analysis.uniform import depends, varying
from kir.base.diagnostic import Diagnostic
from kir.gate.claims.flow import Flow
from kir.interp.state.coverage import MORE, SKIPPED, TAKEN, Place
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.visit import walk

TEAMS = ("warpgroup", "warp", "thread")
BARRIERS = frozenset({"barrier", "cluster_arrive", "cluster_wait"})
"""Calls that every thread of a CTA must come to."""
_Step = tuple[int | str, ...]


def untested_barriers(program: n.Program, flow: Flow, reached: Mapping[Place, int]) -> Iterator[Diagnostic]:
    """Barriers behind a branch, or in a loop, that the threads of a team may decide apart by data (`kir.analysis.uniform`), and that all checked
    runs decided the same way (KIR-G117): no run tried whether all threads come there. `reached` is what the checked runs reached."""
    tensors = {p.name for p in program.params if isinstance(p.of, n.Buffer)}
    teams: list[tuple[_Step, n.For]] = []
    asked: tuple[n.Expr, ...]
    for text, path, s in anchors(program):
        match s:
            case n.For(kind=kind) if kind in TEAMS:
                teams = [(at, team) for at, team in teams if path[:len(at)] == at] + [(path, s)]
                continue
            case n.If():
                asked, same = (s.cond,), reached.get(("branch", text), 0) != TAKEN | SKIPPED
            case n.While() | n.For():
                bits = reached.get(("loop", text), 0)
                asked, same = ((s.cond,) if isinstance(s, n.While) else (s.lo, s.hi, s.step)), not bits & MORE and not bits & (bits - 1)
            case _:
                continue
        if not same or not any(isinstance(x, n.Call) and x.of is None and x.fn in BARRIERS for x in walk(s)):
            continue
        teams = [(at, team) for at, team in teams if path[:len(at)] == at]
        for at, team in teams[:1]:
            differs = varying(team).get(path[len(at):], frozenset())
            if any(depends(e, differs) and flow.sources(e, str(path[0])) & tensors for e in asked):
                yield Diagnostic("KIR-G117", "a barrier stands where threads may decide apart, by data, and no test has both ways: that all of them come to it "
                                 "is not decided", getattr(s, "origin", None), text, str(path[0]),
                                 needs="a condition that all threads agree on (a value that one thread put in shared memory), or the barrier in front of it")
