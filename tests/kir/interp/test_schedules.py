"""The race detector against the truth: every schedule of small thread programs is enumerated, and verdicts are compared.

A program is one short list of operations for each of two to four threads: loads, stores and atomic additions on three shared words,
CTA barriers, and arrivals at and waits for mbarriers. The enumeration below knows nothing of the interpreter.
"""
from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from kir.interp import run
from kir.ir.parser import parse_program

Op = tuple[str, int, int]
"""(`load` register-free location), (`store` location value), (`add` location value), (`sync`), (`arrive` event), (`wait` event)."""
Threads = tuple[tuple[Op, ...], ...]
State = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]
"""Next operation of each thread, memory, values that each thread has loaded, arrivals at each event."""


@dataclass(frozen=True)
class Truth:
    """What can happen: the final memories and loaded values, whether two conflicting accesses can be next to each other, whether
    some schedule gets stuck."""

    outcomes: frozenset[tuple[tuple[int, ...], tuple[int, ...]]]
    race: bool
    stuck: bool


def conflict(a: Op, b: Op) -> bool:
    """Two accesses of one word, one of them a write, not both atomic."""
    kinds = {a[0], b[0]}
    return a[1] == b[1] and kinds <= {"load", "store", "add"} and kinds != {"load"} and kinds != {"add"}


def enumerate_schedules(threads: Threads) -> Truth:
    """Every interleaving, by depth-first search over states."""
    expected = {e: sum(op == ("arrive", e, 0) for ops in threads for op in ops) for e in range(2)}
    outcomes: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    race = stuck = False
    start: State = (tuple(0 for _ in threads), (0, 0, 0), tuple(() for _ in threads), (0, 0))
    seen, todo = {start}, [start]
    while todo:
        at, memory, loaded, arrived = state = todo.pop()
        following = [ops[i] if i < len(ops) else None for ops, i in zip(threads, at, strict=True)]
        ready = [t for t, op in enumerate(following) if op is not None and op[0] != "sync"
                 and not (op[0] == "wait" and arrived[op[1]] < expected[op[1]])]
        if all(op is None for op in following):
            outcomes.add((memory, tuple(x for per in loaded for x in per)))
            continue
        steps: list[State] = []
        if all(op is not None and op[0] == "sync" for op in following):
            steps.append((tuple(i + 1 for i in at), memory, loaded, arrived))
        race = race or any(conflict(a, b) for i, a in ((t, following[t]) for t in ready) for j, b in ((t, following[t]) for t in ready)
                           if i < j and a is not None and b is not None)
        for t in ready:
            kind, where, value = following[t] or ("", 0, 0)
            cells, values, events = list(memory), list(loaded), list(arrived)
            if kind == "load":
                values[t] = (*values[t], cells[where])
            elif kind == "store":
                cells[where] = value
            elif kind == "add":
                cells[where] += value
            elif kind == "arrive":
                events[where] += 1
            steps.append((tuple(i + (k == t) for k, i in enumerate(at)), tuple(cells), tuple(values), tuple(events)))
        stuck = stuck or not steps
        for step in steps:
            if step not in seen:
                seen.add(step)
                todo.append(step)
        assert state in seen
    return Truth(frozenset(outcomes), race, stuck)


def as_program(threads: Threads) -> str:
    """The same program as IR text; each load goes to an output word of its own."""
    loads = sum(op[0] == "load" for ops in threads for op in ops)
    lines = ["kir 1", "program p", f"  out L: i32[{max(1, loads)}]", "  out M: i32[3]", f"kernel main grid (b: 1) threads {len(threads)}",
             "  shared s: i32[3] = 0", "  shared e: mbarrier[2]", "  L = 0"]
    for event in range(2):
        count = sum(op == ("arrive", event, 0) for ops in threads for op in ops)
        lines.append(f"  mbar_init(&e[{event}], {max(1, count)})")
    lines += [f"  for t in 0..{len(threads)} parallel thread", "    let own = t"]
    stages = [_stages(ops) for ops in threads]
    for k in range(len(stages[0])):
        if k:
            lines.append("    barrier()")
        for t, per in enumerate(stages):
            if per[k]:
                lines.append(f"    if t == {t}")
            for kind, where, value in per[k]:
                text = {"load": f"L[{{n}}] = s[{where}]", "store": f"s[{where}] = {value}", "add": f"atomic_add(&s[{where}], {value})",
                        "arrive": f"mbar_arrive(&e[{where}])", "wait": f"mbar_wait(&e[{where}], 0)"}[kind]
                lines.append("      " + text.format(n=f"<{t}>"))
    lines.append("  M = s")
    return "\n".join(_numbered(lines)) + "\n"


def _stages(ops: tuple[Op, ...]) -> list[list[Op]]:
    out: list[list[Op]] = [[]]
    for op in ops:
        if op[0] == "sync":
            out.append([])
        else:
            out[-1].append(op)
    return out


def _numbered(lines: list[str]) -> list[str]:
    """Fills in the output word of each load: thread by thread, in program order."""
    counts: dict[str, int] = {}
    for line in lines:
        if "L[<" in line:
            t = line.split("<")[1].split(">")[0]
            counts[t] = counts.get(t, 0) + 1
    first, offset = {}, 0
    for t in sorted(counts):
        first[t] = offset
        offset += counts[t]
    out = []
    for line in lines:
        if "L[<" in line:
            t = line.split("<")[1].split(">")[0]
            line = line.replace(f"<{t}>", str(first[t]))
            first[t] += 1
        out.append(line)
    return out


def draw(seed: int) -> Threads:
    """A random program: the same number of barriers in each thread, waits only for events that somebody arrives at."""
    choose = random.Random(seed)
    count, stages = choose.choice((2, 2, 3, 3, 4)), choose.choice((1, 2, 2, 3))
    most = 2 if count > 2 else 3
    threads: list[list[Op]] = [[] for _ in range(count)]
    arrived = set()
    for k in range(stages):
        for t in range(count):
            if k:
                threads[t].append(("sync", 0, 0))
            for _ in range(choose.randrange(most)):
                kind = choose.choice(("load", "load", "store", "store", "add", "arrive"))
                where = choose.randrange(2) if kind == "arrive" else choose.randrange(3)
                if kind == "arrive":
                    arrived.add(where)
                threads[t].append((kind, where, choose.choice((5, 5, t + 1)) if kind in ("store", "add") else 0))
    for event in sorted(arrived):
        t = choose.randrange(count)
        own = [i for i, op in enumerate(threads[t]) if op == ("arrive", event, 0)]
        at = choose.randrange((own[-1] + 1) if own else 0, len(threads[t]) + 1)
        threads[t].insert(at, ("wait", event, 0))
    return tuple(tuple(ops) for ops in threads)


@pytest.mark.parametrize("block", range(8))
def test_verdicts_agree_with_all_schedules(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        threads = draw(seed)
        truth = enumerate_schedules(threads)
        result = run(parse_program(as_program(threads), "p.kir"), {}, mode="check")
        races = [f for f in result.findings if f.kind == "race"]
        context = f"seed {seed}\n{as_program(threads)}\n{truth}\n{[(f.severity, f.message) for f in result.findings]}"
        assert any(f.kind == "deadlock" for f in result.findings) == truth.stuck, context
        if truth.stuck:
            continue
        assert bool(races) == truth.race, context
        if not result.errors:
            assert len(truth.outcomes) == 1, context
        memory, loaded = tuple(result.outputs["M"].tolist()), tuple(result.outputs["L"].tolist())
        assert any((memory, loaded[: len(seen)]) == (cells, seen) for cells, seen in truth.outcomes), context


def test_enumeration_sees_the_classics() -> None:
    """The truth itself, on programs whose answer is known."""
    lost_update: Threads = ((("store", 0, 1), ("load", 0, 0)), (("store", 0, 2),))
    assert enumerate_schedules(lost_update).race
    handed_over: Threads = ((("store", 0, 1), ("arrive", 0, 0)), (("wait", 0, 0), ("load", 0, 0)))
    found = enumerate_schedules(handed_over)
    assert not found.race and not found.stuck and found.outcomes == {((1, 0, 0), (1,))}
    assert np.array([enumerate_schedules(((("wait", 0, 0), ("arrive", 0, 0)), ())).stuck]).all()
