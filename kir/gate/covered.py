"""What the runs of a program reached of what its sizes can bring about: the gate's coverage record."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from kir.gate.goals import ROUNDS, TEAMS, WRAP, Goal, rings
from kir.gate.shapes import Plan
from kir.gate.verdict import CoverageRecord
from kir.interp.launch import polls
from kir.interp.state.coverage import EMPTY, FULL, MORE, ONE, PARTIAL, SEVERAL, SINGLE, SKIPPED, TAKEN, TWO, ZERO, Kind, Place
from kir.ir import nodes as n
from kir.ir.anchors import anchors

MASK = {FULL: "full", PARTIAL: "partial", EMPTY: "empty"}
WORDS = {"grid": {SINGLE: "one CTA", SEVERAL: "several CTAs"}, "branch": {TAKEN: "taken", SKIPPED: "not taken"}, "read": MASK, "write": MASK,
         "loop": {ZERO: "no trip", ONE: "one trip", TWO: "two trips", MORE: "three trips", WRAP: "a full ring"}}
"""How a goal is called, by its kind and bit."""


def covered(program: n.Program, plan: Plan, reached: Mapping[Place, int]) -> CoverageRecord:
    """The record of runs that reached so much. Refused is a loop that can run twice and did not; what else can be reached and was not is named."""
    goals = {Goal(kind, anchor, bit) for kind, anchor, bit in _bits(program, reached)}
    wanted = {g for g in plan.reachable if g.bit in WORDS.get(g.kind, {})}
    missing = sorted(wanted - goals, key=lambda g: (g.kind, g.anchor, g.bit))
    single: list[str] = []
    for text, _, s in anchors(program):
        if isinstance(s, n.For) and s.kind not in TEAMS:
            can = any(Goal("loop", text, bit) in wanted for bit in (TWO, MORE))
        elif isinstance(s, n.While):
            can = False
        else:
            continue
        ran = [bit for bit in (ONE, TWO, MORE) if Goal("loop", text, bit) in goals]
        known = any(Goal("loop", text, bit) in wanted for bit in (ZERO, ONE, TWO, MORE))
        entered_once = not known and ran == [ONE] and not (isinstance(s, n.While) and polls(s)) and not _once(s)
        if not any(bit in ran for bit in (TWO, MORE)) and (can or entered_once):
            single.append(text)
    kinds: dict[str, tuple[int, int]] = {}
    for g in wanted | goals:
        if g.bit in WORDS[g.kind]:
            done, total = kinds.get(g.kind, (0, 0))
            kinds[g.kind] = done + (g in goals), total + 1
    return CoverageRecord(kinds, tuple(f"{g.kind} {g.anchor}: {WORDS[g.kind][g.bit]}" for g in missing), tuple(single))


def _once(s: n.Stmt) -> bool:
    """Whether a loop is written to run once at most: its bounds are numbers."""
    return isinstance(s, n.For) and all(isinstance(x, n.Const) for x in (s.lo, s.hi, s.step))


def _bits(program: n.Program, reached: Mapping[Place, int]) -> Iterator[tuple[Kind, str, int]]:
    stages = rings(program)
    for (kind, anchor), bits in reached.items():
        if kind == "trips":
            if anchor in stages and bits > ROUNDS * stages[anchor]:
                yield "loop", anchor, WRAP
            continue
        for bit in WORDS[kind]:
            if bits & bit:
                yield kind, anchor, bit


__all__ = ["covered"]
