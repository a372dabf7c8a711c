"""Times of several ways to compute one thing, taken in turns in one process, with CUDA events; the answers are compared first, and while it is timed no other
process that asks for a turn uses the GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kir.hardware.device.turns import Turns

ROUNDS, WARM_UPS, LEAST_SECONDS = 15, 3, 2e-4
"""Samples of each way, calls before the first, and the seconds that a sample lasts at least."""
AHEAD, MOST_AHEAD, CLOCK = 1.3, 2e-3, 2e9
"""How many times as long the GPU waits before a sample as the host took to ask for its calls, no longer: a GPU that rests is faster afterwards than one
that is busy all the time. The seconds that it waits at most, and its cycles a second."""
STOPPED: dict[str, str] = {}
"""Ways that are not run, and why."""
TRIED: dict[str, float] = {}
"""Seconds of each way among which `fastest` chose, by the median of a few samples: what else was tried at a row."""
LISTENERS: list[Callable[[str], None]] = []
"""Told the name of a way before it is run for the first time, and "" when all have been."""


@dataclass(frozen=True)
class Case:
    """One row: `ways` compute the same on the GPU; those named in `ours` are KIR's, the others are references. `wrong` looks at what a way
    returned and says what is wrong with it ("" where nothing is). `missing` says of a way that could not be had why."""

    workload: str
    shape: str
    ways: Mapping[str, Callable[[], Any]]
    ours: tuple[str, ...]
    wrong: Callable[[Any], str]
    operations: float = 0.0
    missing: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    """How often one call of a way computes it."""


@dataclass(frozen=True)
class Taken:
    """What one way took: the median, the fastest and the slowest sample, in seconds; `fault` where it was not timed."""

    way: str
    ours: bool
    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    fault: str = ""


def measured(case: Case) -> list[Taken]:
    """Every way that gives the right answer, timed: one sample of each in turn, `ROUNDS` times; fastest first, faults last."""
    sound: dict[str, tuple[Callable[[], Any], int]] = {}
    asking = 0.0
    faults = [Taken(way, way in case.ours, fault=why) for way, why in case.missing.items()]
    for way, call in case.ways.items():
        if way in STOPPED:
            faults.append(Taken(way, way in case.ours, fault=STOPPED[way]))
            continue
        told(way)
        try:
            fault = case.wrong(call())
            for _ in range(WARM_UPS):
                call()
            calls = max(1, round(LEAST_SECONDS / max(_seconds(call, 1, _asking(call, 1)), 1e-7)))
            sound[way], asking = (call, calls), max(asking, _asking(call, calls))
        except Exception as broken:  # a reference that does not take the shape harms no other
            fault = f"{type(broken).__name__}: {str(broken).splitlines()[0] if str(broken) else ''}"
        if fault:
            sound.pop(way, None)
            faults.append(Taken(way, way in case.ours, fault=fault))
    told("")
    samples: dict[str, list[float]] = {way: [] for way in sound}
    with Turns.of().alone():
        for _ in range(ROUNDS):
            for way, (call, calls) in sound.items():
                samples[way].append(_seconds(call, calls, asking) / case.times)
    taken = [Taken(way, way in case.ours, statistics.median(x), min(x), max(x)) for way, x in samples.items()]
    return sorted(taken, key=lambda t: t.median) + faults


def fastest(ways: Mapping[str, Callable[[], Any]], rounds: int = 3) -> str:
    """The way that took the least time, by the median of a few samples of each in turn, beside no other process that asks for turns."""
    ways = {way: call for way, call in ways.items() if str(way) not in STOPPED} or ways
    if len(ways) == 1:
        told("")
        return next(iter(ways))
    samples: dict[str, list[float]] = {way: [] for way in ways}
    with Turns.of().alone():
        for number in range(rounds):
            for way, call in ways.items():
                if not number:
                    told(str(way))
                samples[way].append(_seconds(call, 1, _asking(call, 1)))
    told("")
    TRIED.update({way: statistics.median(of) for way, of in samples.items()})
    return min(samples, key=lambda way: statistics.median(samples[way]))


def begun(way: str) -> None:
    """Says that a way is run next. Raises OSError for one that is not run again."""
    if way in STOPPED:
        raise OSError(STOPPED[way])
    told(way)


def told(way: str) -> None:
    """Says to those who listen which way is run next."""
    for listener in LISTENERS:
        listener(way)


def _asking(call: Callable[[], Any], calls: int) -> float:
    """Seconds that the host takes to ask for so many calls, of which one has been made."""
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    took = time.perf_counter() - begin
    torch.cuda.synchronize()
    return took


def _seconds(call: Callable[[], Any], calls: int, asking: float) -> float:
    """Seconds of one call, of so many in a row between two events. The GPU is kept busy until they are asked for, so that no host's launch is counted."""
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(min(AHEAD * asking, MOST_AHEAD) * CLOCK))
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / calls
