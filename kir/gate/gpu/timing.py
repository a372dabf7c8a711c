"""Time on the device: fresh data for each call, L2 cleared, kernels in turns; and what was timed is checked.

Each timed call draws new inputs into the same buffers. A secret selection of the calls is made again in a fresh process from the same
seeds: outputs must be the same bytes (a kernel that keeps something from call to call cannot know them), or both right within the
problem's relation; some are compared with the oracle whatever they are.
"""
from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.gate.gpu.candidate import Candidate, Reply, Running
from kir.gate.gpu.machine import Gpu
from kir.gate.gpu.oracle import Oracle
from kir.gate.gpu.statistics import Estimate, estimate, schedule
from kir.hardware.device.executor import DELAY_BASE, DELAY_LAUNCH
from kir.hardware.device.turns import Turns
from kir.problem import Problem, Shape
from kir.problem.schema import evaluate

WARM = 2
LEAST, MOST = 9, 40
"""Samples of one kernel at one shape."""
BUDGET = 1.2
"""Seconds for the samples of one kernel at one shape, transfers and fresh data included."""
REPLAYS = 5
ORACLE_CHECKS, LARGE = 2, 1 << 22
"""Timed calls that the oracle checks; one only where an output has more elements than `LARGE`."""
KEPT_BYTES = 1 << 29
"""Bytes of outputs that are held for replaying."""
SLACK = 1.25
"""How much faster than the measured bandwidth (and the tabled rate) a kernel may seem, for the copy that measured it is no limit."""
UNSEEN_SECONDS, UNSEEN_SHARE = 0.005, 0.5
"""How much longer the host may wait for a call than the events say that it took, beyond the delay that it was given to enqueue it: twenty times
what honest kernels need on an H200 (at most 0.26 ms, benchmarks/results/gpu-honest.jsonl)."""
AGREED, AS_LONG = 3, 1.1
"""Calls of which the host saw no more than the events did that speak for the others, and how many times as long as all they may take."""
PARTIAL = frozenset({"gather", "embedding", "lookup", "selection", "scatter", "paged"})
"""Operators that need not read all of their inputs."""


@dataclass
class Timing:
    """Samples of one candidate at one shape: `seconds` between events, `walls` on the host around them. `outputs` are those of the calls that
    will be replayed, by number, and `order` those numbers, of which the first are compared with the oracle; every call's are summed under `key` where
    they are, for moving them would take longer than making them."""

    shape: Shape
    key: int = 0
    seconds: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    digests: list[tuple[tuple[str, int], ...]] = field(default_factory=list)
    outputs: dict[int, Reply] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    replayed: int = 0
    identical: int = 0
    worst: float = 0.0
    oracle_checks: int = 0

    @property
    def estimate(self) -> Estimate:
        return estimate(self.seconds)

    def hidden(self, launches: int) -> str:
        """What the host saw and the events did not: time that passes around a call is a call's, wherever it is spent. Nothing where they agree, or where
        they do in `AGREED` calls that take as long as the others: a host under load lets some calls wait, and who hides time must do so in all that
        are fast."""
        given = 1e-9 * (DELAY_BASE + DELAY_LAUNCH * launches)

        def apart(wall: float, seen: float) -> bool:
            return wall - seen - given > max(UNSEEN_SECONDS, UNSEEN_SHARE * seen)
        if not self.walls or not apart(wall := float(np.median(self.walls)), seen := self.estimate.median):
            return ""
        agreed = [s for s, w in zip(self.seconds, self.walls, strict=True) if not apart(w, s)]
        if len(agreed) >= AGREED and estimate(agreed).median <= AS_LONG * seen:
            return ""
        return f"the host waited {wall * 1e3:.1f} ms for a call that seems to have taken {seen * 1e3:.3f} ms"

    def to_json(self, floor: Mapping[str, float]) -> dict[str, Any]:
        """A JSON object with the raw samples."""
        return {"shape": self.shape.name, "sizes": dict(self.shape.sizes), **self.estimate.to_json(), "seconds": self.seconds, "walls": self.walls,
                "replayed": self.replayed, "identical": self.identical, "oracle_checks": self.oracle_checks, "worst": self.worst,
                "floor": dict(floor)}


def timed(runnings: Sequence[Running], oracle: Oracle, s: Shape, secret: random.Random, budget: float = BUDGET,
          keep: bool = True) -> tuple[list[Timing], str]:
    """Samples of every candidate in turns, or the reason why one of them is refused; with `keep` the outputs of some, for :func:`replayed`. Raises
    ChildGone.

    The device is alone with each call, and where nothing is drawn on the host meanwhile, from the first call to the last."""
    turns, host = runnings[0].candidate.gpu.turns, any(r.candidate.needs_host_inputs(s) for r in runnings)
    with contextlib.nullcontext() if host else turns.alone():
        return _timed(runnings, oracle, s, secret, budget, keep, turns, host)


def _timed(runnings: Sequence[Running], oracle: Oracle, s: Shape, secret: random.Random, budget: float, keep: bool, turns: Turns, host: bool
           ) -> tuple[list[Timing], str]:
    key = secret.getrandbits(62)
    out = [Timing(s, key) for _ in runnings]
    slowest = 0.0
    shared = oracle.shared
    def inputs(place: int | None) -> tuple[int, Any]:
        known = shared is not None and place is not None
        seed = shared.seed(s, place) if shared is not None and place is not None else secret.getrandbits(48)
        return seed, oracle.inputs(s, seed, "normal", known) if host else seed
    for r in runnings:
        for warm in range(WARM):
            begun = time.perf_counter()
            _, given = inputs(-1 - warm if host else None)
            drawn = time.perf_counter() - begun
            with turns.alone():
                begun = time.perf_counter()
                reply = r.call(s, secret, given, seconds=120.0, with_outputs=False, key=key)
                slowest = max(slowest, drawn + time.perf_counter() - begun)
            if fault := reply.fault():
                return out, fault
    rounds = schedule(secret, max(3 if slowest > 0.5 else LEAST, min(MOST, int(budget / max(slowest, 1e-3)))), len(runnings))
    kept = _kept(runnings[0], s, len(rounds), secret) if keep else []
    for t in out:
        t.order = kept
    others = [k for k in range(len(rounds)) if k not in kept]
    places = {number: place for place, number in enumerate([*kept, *secret.sample(others, len(others))] if host else kept)}
    for number, order in enumerate(rounds):
        seed, given = inputs(places.get(number))
        for which in order:
            with turns.alone():
                reply = runnings[which].call(s, secret, given, seconds=120.0, with_outputs=number in kept, key=key)
            if fault := reply.fault():
                return out, f"in a timed call: {fault}"
            t = out[which]
            t.seconds.append(reply.seconds)
            t.walls.append(reply.wall)
            t.seeds.append(seed)
            t.digests.append(reply.digest)
            if number in kept:
                t.outputs[number] = reply
    for r, t in zip(runnings, out, strict=True):
        if fault := t.hidden(len(r.candidate.launches(s))):
            return out, fault
    return out, ""


def _kept(running: Running, s: Shape, rounds: int, secret: random.Random) -> list[int]:
    """The calls that will be made again, in no order that can be foreseen."""
    layouts = running.candidate.at[s.name][0].layouts
    size = sum(layouts[p.name].size for p in running.candidate.executable.program.params if p.name in layouts and p.role != "in") or 1
    return secret.sample(range(rounds), min(rounds, REPLAYS, max(2, KEPT_BYTES // size)))


def replayed(fresh: Running, oracle: Oracle, t: Timing, secret: random.Random) -> str:
    """Make the kept calls again in a fresh process; the reason for a refusal, or nothing. Raises ChildGone."""
    s, host = t.shape, fresh.candidate.needs_host_inputs(t.shape)
    order = list(t.outputs)
    secret.shuffle(order)
    large = max((a.size for r in t.outputs.values() for a in r.outputs.values()), default=0) > LARGE
    repeated = {i for i in order if t.digests.count(t.digests[i]) > 1}
    for number in order:
        seed = t.seeds[number]
        given = oracle.inputs(s, seed, "normal", oracle.shared is not None) if host else seed
        checked = t.order.index(number) < (1 if large else ORACLE_CHECKS) or number in repeated
        again = fresh.call(s, secret, given, with_inputs=checked, seconds=120.0, with_outputs=False, key=t.key)
        if fault := again.fault():
            return f"in a fresh process: {fault}"
        then = t.outputs[number]
        same = again.digest == then.digest
        t.replayed += 1
        t.identical += same
        if same and not checked:
            continue
        if not same:
            again = fresh.call(s, secret, given, with_inputs=True, seconds=120.0)
            if fault := again.fault():
                return f"in a fresh process: {fault}"
        found = oracle.compare(s, again.inputs, then.outputs)
        t.oracle_checks += 1
        t.worst = max(t.worst, found.worst)
        if not found.ok:
            return f"a timed output at shape '{s.name}' is wrong: {found.reason}"
        if not same:
            second = oracle.compare(s, again.inputs, again.outputs)
            if not second.ok:
                return f"made again in a fresh process at shape '{s.name}', the call is wrong: {second.reason}"
    return ""


# ------------------------------------------------------------------------------------------------------------------------- floors

def floor(gpu: Gpu, problem: Problem, candidate: Candidate, s: Shape) -> dict[str, float]:
    """Seconds below which no kernel can be, by reason: memory at the measured bandwidth, arithmetic at the tabled rate and the highest
    clock, a launch at half of the measured one. `least` is the largest."""
    spec, device = problem.spec, gpu.target.device
    values = problem.values(s)
    if spec.bytes:
        moved = float(evaluate(spec.bytes, values))
    elif any(word in spec.operator for word in PARTIAL):
        moved = 0.0
    else:
        layouts = candidate.at[s.name][0].layouts
        moved = float(sum(int(np.prod(layouts[p.name].shape)) * layouts[p.name].size // max(layouts[p.name].span, 1)
                          for p in candidate.executable.program.params if p.name in layouts and p.role != "out"))
    out = {"memory": moved / (SLACK * gpu.peaks["bandwidth"]), "launch": 0.5 * gpu.peaks["launch"]}
    if spec.flops:
        used = [problem.tensor_dtype(t) for t in spec.tensors]
        rates = [max(getattr(device.tensor, {"f8e4m3": "fp8", "f8e5m2": "fp8", "f32": "tf32"}.get(d, d), 0.0), getattr(device.scalar, d, 0.0))
                 for d in used if d in ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8")]
        most = gpu.clocks().get("sm_mhz_most", 0) * 1e6
        rate = max(rates, default=0.0) * max(1.0, most / device.clock)
        if rate:
            out["arithmetic"] = evaluate(spec.flops, values) / (SLACK * rate)
    out["least"] = max(out.values())
    return out
