"""Toward a thousand GPUs: a package run simulated from measured times, with one search process for all, and with a search on each worker.

Measured are, on the machine that runs this, what a search spends on a candidate before it is gated (plans built, forecasts), and, on the device of the stored
held-out table, what gating one candidate took. The simulation draws from these; what it assumes beside them stands in its table.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.optimize.running import made
from kir.base.dataclass import dataclass
from kir.base.store import write_atomic
from kir.hardware.target import target
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.search import Budget, Search
from kir.problem import load_problem

WORKERS = (1, 8, 64, 256, 1000)
CALLS, CANDIDATES = 4000, 20
"""Recorded calls of the run, and candidates that are gated of each."""
AT_ONCE = 4
"""Candidates of one call that are under way at once: further ones depend on what these said."""
LOSS = 1 / 50.0
"""Losses of a worker an hour."""
BACK = 120.0
"""Seconds until a lost worker is back."""
TAIL, TAIL_TIMES = 0.01, 20.0
"""The part of candidates that take so many times as long: a compiler that hangs, a node that swaps."""
PROBLEMS = ("softmax", "rmsnorm", "gemm")


@dataclass(frozen=True)
class Measured:
    """Seconds of a search for each candidate that it gates, and of gating one, as they were measured."""

    search: tuple[float, ...]
    gate: tuple[float, ...]


def measured(out: Path) -> Measured:
    """Both. What a search spends is measured now, what a gate takes is that of the stored held-out rows."""
    search = []
    for name in PROBLEMS:
        problem = load_problem(name)
        setting = Setting(problem, problem.tagged("timed")[0], target("h200"), "triton")
        one = Search(problem.naive, setting, CpuJudge(setting), budget=Budget(seconds=1e4))
        begun = time.process_time()
        found = one.proposals(CANDIDATES)
        search.append((time.process_time() - begun) / max(1, len(found)))
    rows = json.loads((out / "optimize-heldout.json").read_text(encoding="utf-8"))["rows"]
    return Measured(tuple(search), tuple(r["took"] / len(r["tried"]) for r in rows if r.get("took") and r["tried"]))


@dataclass(frozen=True)
class Simulated:
    """A simulated run: hours, the part of the workers' time that was spent on gating, and how many candidates were begun twice."""

    hours: float
    busy: float
    again: int


def simulated(workers: int, times: Measured, apart: bool, patience: float, seed: int = 0) -> Simulated:
    """A run on so many workers. With `apart` each call's search runs on the workers too; without, one process searches for all calls and hands out
    candidates. A candidate that takes longer than `patience` times the median is refused."""
    draw = random.Random(seed)
    longest = patience * statistics.median(times.gate)
    free = [(0.0, n) for n in range(workers)]
    heapq.heapify(free)
    ready = [(0.0, call, CANDIDATES) for call in range(CALLS)]
    heapq.heapify(ready)
    searcher = busy = end = 0.0
    again = 0
    while ready:
        at, call, left = heapq.heappop(ready)
        finished = at
        for _ in range(min(AT_ONCE, left)):
            think, gate = draw.choice(times.search), draw.choice(times.gate) * (TAIL_TIMES if draw.random() < TAIL else 1.0)
            gate = min(gate, longest)
            if not apart:
                searcher = max(searcher, at) + think
            while True:
                idle, number = heapq.heappop(free)
                begun = max(idle, at if apart else searcher)
                took = gate + (think if apart else 0.0)
                lost = draw.expovariate(LOSS / 3600.0)
                if lost >= took:
                    break
                again += 1
                heapq.heappush(free, (begun + lost + BACK, number))
            heapq.heappush(free, (begun + took, number))
            busy += gate
            finished = max(finished, begun + took)
        end = max(end, finished)
        if left > AT_ONCE:
            heapq.heappush(ready, (finished, call, left - AT_ONCE))
    return Simulated(end / 3600.0, busy / (workers * end), again)


def thousand(out: Path) -> int:
    """Measure, simulate, write the table."""
    times = measured(out)
    rows = [{"workers": n, **{f"{'apart' if apart else 'one'} {patience:g}": vars_of(simulated(n, times, apart, patience))
                              for apart in (False, True) for patience in (1e9, 4.0)}} for n in WORKERS]
    text = "\n".join(_table(rows, times)) + "\n"
    write_atomic(out / "optimize-thousand.json", json.dumps({**made(), "search": times.search, "gate": times.gate, "rows": rows}, indent=1) + "\n")
    write_atomic(out / "optimize-thousand.md", text)
    print(text)
    return 0


def vars_of(one: Simulated) -> dict[str, Any]:
    return {"hours": one.hours, "busy": one.busy, "again": one.again}


def _table(rows: Sequence[dict[str, Any]], times: Measured) -> Iterator[str]:
    think, gate = statistics.mean(times.search), statistics.mean(times.gate)
    yield "# Toward a thousand GPUs"
    yield ""
    yield (f"Made by `python -m benchmarks.optimize thousand` on {len(os.sched_getaffinity(0))} cores, {made()['when']}, code {made()['code']}: a package run "
           f"of {CALLS} calls with {CANDIDATES} candidates each, simulated. Measured: a "
           f"search spends {think * 1e3:.0f} ms of a core on a candidate before it is gated ({', '.join(PROBLEMS)}, here), a gate takes {gate:.1f} s "
           f"({len(times.gate)} held-out rows, on the device). Assumed: {AT_ONCE} candidates of a call under way at once, a worker lost every "
           f"{1 / LOSS:.0f} hours and back after {BACK:.0f} s, one candidate of {1 / TAIL:.0f} taking {TAIL_TIMES:.0f} times as long. A candidate is ended "
           "at 4 times the median, or not at all.")
    yield ""
    yield "| workers | one search process: hours | busy | candidates ended: hours | a search on each worker, too: hours | busy | begun twice |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for r in rows:
        a, b, c = r["one 1e+09"], r["one 4"], r["apart 4"]
        yield f"| {r['workers']} | {a['hours']:.2f} | {a['busy']:.0%} | {b['hours']:.2f} | {c['hours']:.2f} | {c['busy']:.0%} | {c['again']} |"
    yield ""
    yield f"One search process feeds at most {gate / think:.0f} workers; from there on more of them bring nothing."
