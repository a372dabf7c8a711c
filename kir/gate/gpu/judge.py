"""The GPU gate's verdict: the CPU gate first, then correctness, time and memory safety on the device. Fail-closed at every stage."""
from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.cases import tensor_names
from kir.gate.cpu import gate_cpu
from kir.gate.gpu.ahead import Ahead
from kir.gate.gpu.candidate import Candidate, Running
from kir.gate.gpu.checks import Planned, compiled_once, judged, planned
from kir.gate.gpu.interpreting import spread
from kir.gate.gpu.machine import Gpu
from kir.gate.gpu.oracle import Oracle, Shared
from kir.gate.gpu.panel import Timed, panel, require_known
from kir.gate.gpu.sanitizer import sanitizing
from kir.gate.gpu.standby import TOOLS
from kir.gate.gpu.statistics import ratio
from kir.gate.gpu.timing import Timing, floor, replayed, timed
from kir.gate.verdict import DeviceRecord, ProfileRecord, Run, Stage, Verdict
from kir.hardware.confine import Level
from kir.hardware.device.client import ChildGone
from kir.ir.nodes import Program
from kir.problem import Problem, Shape
from kir.surface import Backend, Emitted, backend

ISOLATION = "candidate: fork server, one process {each}, {level}; oracle: a process of its own; compilers confined; the parent measures"
EACH, TURNS = "a verdict", "for candidates of a search in turn"


@dataclass(frozen=True)
class Options:
    """What is measured: names of timed shapes (none: all of the problem's that the program allows), the panel, compute-sanitizer, seconds
    for the samples of a kernel at a shape, `interpret`, whether the CPU gate's interpreter runs first, and `replay`, whether timed calls are made again and
    compared. A verdict without one of these only orders candidates. `shared` is what the gates of
    one search have in common, none for one that stands alone; with `reuse` the process of a candidate that was right serves the next that is asked about so;
    with `hazards` they are decided for every size, too."""

    shapes: tuple[str, ...] = ()
    panel: bool = True
    sanitize: bool = True
    budget: float = 1.2
    interpret: bool = True
    secret: int | None = None
    replay: bool = True
    shared: Shared | None = None
    reuse: bool = False
    hazards: bool = False


@dataclass
class _Seen:
    """What has been seen so far; becomes the record whatever happens."""

    secret: int
    begun: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    driver: dict[str, Any] = field(default_factory=dict)
    isolation: dict[str, Any] = field(default_factory=dict)
    clocks: list[Mapping[str, int]] = field(default_factory=list)
    timings: list[Mapping[str, Any]] = field(default_factory=list)
    panel: list[Mapping[str, Any]] = field(default_factory=list)
    against: Mapping[str, Any] | None = None
    sanitizer: Mapping[str, Any] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    rows: list[ProfileRecord] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    device_seconds: dict[str, float] = field(default_factory=dict)

    def record(self, gpu: Gpu) -> DeviceRecord:
        about = {**gpu.about, **self.driver, "begun": self.begun}
        return DeviceRecord(about, self.isolation, tuple(self.clocks), tuple(self.timings), tuple(self.panel), self.against,
                            self.sanitizer, self.secret, self.seconds, self.device_seconds)

    @contextlib.contextmanager
    def spending(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun


class _Refused(Exception):
    def __init__(self, stage: Stage, reason: str) -> None:
        super().__init__(reason)
        self.stage, self.reason = stage, reason


def gate_gpu(gpu: Gpu, program: Program, problem: Problem, surface: str, against: Program | None = None, *,
             names: Mapping[str, str] | None = None, options: Options | None = None, first: Verdict | None = None) -> Verdict:
    """The GPU gate's verdict on a specialized program.

    `against` is timed in turns with it, and the ratio recorded; `first` is the CPU gate's verdict for this device, where it is there.
    A refusal is a verdict; KirError only for a shape that was asked for and is none of the problem's (KIR-G902), and, before anything is
    done, for a reference that nobody knows (KIR-G106)."""
    chosen = options or Options()
    if chosen.panel:
        require_known(problem)
    for name in chosen.shapes:
        problem.shape(name)
    seen = _Seen(chosen.secret if chosen.secret is not None else secrets.randbits(64))
    with Ahead(gpu, problem, 1 + chosen.replay + (against is not None), chosen.sanitize, chosen.shared, chosen.reuse) as ahead:
        return _gated(gpu, program, problem, surface, against, dict(names or {}), chosen, first, seen, ahead)


def _gated(gpu: Gpu, program: Program, problem: Problem, surface: str, against: Program | None, names: dict[str, str], chosen: Options,
           first: Verdict | None, seen: _Seen, ahead: Ahead) -> Verdict:
    making: list[Future[_Prepared]] = []

    def written(by: Backend, text: Emitted) -> None:  # variants for every shape are compiled beside what the CPU gate compiles
        making.append(ahead.begun(lambda: _prepared(gpu, by, text, program, problem, names, chosen, seen.secret)))
    with seen.spending("cpu gate"):
        first = first or gate_cpu(program, problem, surface, [gpu.target], against, names=names, cache=gpu.cache, interpret=chosen.interpret,
                                  runner=spread(lambda: gpu.interpreters, problem), written=written, hazards=chosen.hazards)
    if not first.accepted:
        return replace(first, device=seen.record(gpu))
    if first.emitted is None:
        lacking = "; ".join(first.compile.absent) or "no backend writes this program"
        return replace(first, accepted=False, stage="compile", reason=f"nothing to launch: {lacking}", profile=(), device=seen.record(gpu))
    try:
        with seen.spending("compile"):
            by = backend(first.compile.surface)
            prepared = making[0].result() if making else _prepared(gpu, by, first.emitted, program, problem, names, chosen, seen.secret)
        _measured(gpu, prepared, first.compile.surface, problem, against, names, chosen, seen, ahead)
    except _Refused as refused:
        return _verdict(gpu, first, seen, False, refused.stage, refused.reason)
    except KirError as fault:
        told = fault.diagnostics[0]
        return _verdict(gpu, first, seen, False, "compile", f"{told.id}: {told.message}")
    except ChildGone as gone:
        return _verdict(gpu, first, seen, False, "correctness", gone.said)
    absent = [str(row["reference"]) for row in seen.panel if "missing" in row]
    missing = f"; missing references: {', '.join(dict.fromkeys(absent))}" if absent else ""
    again = f"; asked twice: {', '.join(seen.sanitizer['again'])}" if seen.sanitizer.get("again") else ""
    blind = f"; its check cannot tell {', '.join(problem.caveats)}" if problem.caveats else ""
    return _verdict(gpu, first, seen, True, "profile", f"right on {len(seen.runs)} runs on the device{missing}{again}{blind}")


def _verdict(gpu: Gpu, first: Verdict, seen: _Seen, accepted: bool, stage: Stage, reason: str) -> Verdict:
    assert first.correctness is not None
    right = replace(first.correctness, ok=accepted or stage == "profile", runs=(*first.correctness.runs, *seen.runs),
                    reason="" if accepted or stage == "profile" else reason)
    level = Level.from_json(seen.isolation["level"]).text if seen.isolation.get("level") else "nothing but a process of its own"
    return replace(first, accepted=accepted, stage=stage, reason=reason, correctness=right, profile=(*first.profile, *seen.rows),
                   isolation=ISOLATION.format(level=level, each=seen.isolation.get("each", EACH)), device=seen.record(gpu))


@dataclass(frozen=True)
class _Prepared:
    """A candidate compiled for all shapes that it will see, the calls that will be judged, the shapes that will be timed, and the secret that
    drew them."""

    candidate: Candidate
    plan: Sequence[Planned]
    timed: Sequence[Shape]
    secret: random.Random


def _prepared(gpu: Gpu, by: Backend, text: Emitted, program: Program, problem: Problem, names: Mapping[str, str], chosen: Options,
              number: int) -> _Prepared:
    """Draws what will be judged, and compiles for it. Raises KirError, and _Refused where no shape is allowed."""
    secret = random.Random(number)
    timed_shapes = _timed_shapes(problem, program, chosen)
    tensors = tensor_names(program, problem, names)
    plan = planned(problem, program, secret, compiled_once(by, text, program, problem, tensors), tensors)
    if not plan and not timed_shapes:
        raise _Refused("correctness", "no shape of the problem satisfies the program's facts")
    every = list({s.name: s for s in (*(p.shape for p in plan), *timed_shapes)}.values())
    made = Candidate.prepared(gpu, by, text, program, problem, tensors, every)
    return _Prepared(made, plan, timed_shapes, secret)


def _measured(gpu: Gpu, prepared: _Prepared, surface: str, problem: Problem, against: Program | None, given: dict[str, str], chosen: Options,
              seen: _Seen, ahead: Ahead) -> None:
    """All that the device says. Raises _Refused with the stage and the reason."""
    me, plan, timed_shapes, secret = prepared.candidate, prepared.plan, prepared.timed, prepared.secret
    seen.clocks.append(gpu.clocks())
    with contextlib.ExitStack() as held:
        with seen.spending("start"):
            oracle = ahead.oracle()
            running = held.enter_context(_opened(me, ahead))
            fresh = held.enter_context(_opened(me, ahead)) if chosen.replay else None
            seen.isolation["each"] = TURNS if chosen.reuse else EACH
            seen.isolation.update({k: running.about[k] for k in ("level", "functions") if k in running.about})
            seen.driver.update({"driver": running.about["device"]["cuda"]} if "cuda" in running.about.get("device", {}) else {})
        with seen.spending("correctness"):
            runs, reason = judged(running, oracle, plan, secret)
            seen.runs += runs
        if reason:
            raise _Refused("correctness", reason)
        pair = [running]
        if against is not None:
            other = _candidate(gpu, surface, against, problem, given, timed_shapes)
            pair.append(held.enter_context(_opened(other, ahead)))
        ahead.quiet()
        samples = _timings(gpu, me, pair, oracle, timed_shapes, secret, chosen, seen)
        pool = held.enter_context(ThreadPoolExecutor(max_workers=len(TOOLS)))  # after timing, beside the replays: neither is measured
        took = [(t.shape, t.estimate.median) for t in samples]
        checking = (sanitizing(pool, gpu, me, oracle, plan, secret, seen.seconds["correctness"], took) if chosen.sanitize else
                    lambda: {"tools": [], "absent": "not asked for"})
        if fresh is not None:
            _replays(fresh, oracle, samples, secret, seen)
        with seen.spending("memory check"):
            seen.sanitizer = checking()
        seen.device_seconds = {"timed": sum(sum(t.seconds) for t in samples), "beyond": sum(r.spent for r in (*pair, *([fresh] if fresh else ())))}
        if seen.sanitizer.get("errors"):
            raise _Refused("correctness", f"compute-sanitizer: {seen.sanitizer['errors'][0]}")
        if chosen.panel and timed_shapes:
            with seen.spending("panel"):
                _panel(gpu, problem, oracle, timed_shapes, samples, secret, seen)
        running.keeps = chosen.reuse  # it was right in all that was seen of it
    seen.clocks.append(gpu.clocks())


def _timed_shapes(problem: Problem, program: Program, chosen: Options) -> list[Shape]:
    allowed = problem.shapes_for(program)
    if chosen.shapes:
        wanted = [problem.shape(name) for name in chosen.shapes]
        return [s for s in wanted if s in allowed]
    return list(problem.timed_for(program))


def _candidate(gpu: Gpu, surface: str, program: Program, problem: Problem, given: Mapping[str, str], shapes: Sequence[Shape]) -> Candidate:
    by = backend(surface)
    return Candidate.prepared(gpu, by, by.emit(program), program, problem, tensor_names(program, problem, given), shapes)


def _opened(c: Candidate, ahead: Ahead) -> Running:
    try:
        return c.opened(ahead.process())
    except ChildGone as gone:
        raise _Refused("compile", f"the device does not take it: {gone.said}") from None


def _timings(gpu: Gpu, me: Candidate, pair: Sequence[Running], oracle: Oracle, shapes: Sequence[Shape], secret: random.Random,
             chosen: Options, seen: _Seen) -> list[Timing]:
    out: list[Timing] = []
    ratios: dict[str, Any] = {}
    for s in shapes:
        with seen.spending("timing"):
            try:
                samples, reason = timed(pair, oracle, s, secret, chosen.budget, chosen.replay)
            except ChildGone as gone:
                raise _Refused("correctness", f"at shape '{s.name}': {gone.said}") from None
        if reason:
            raise _Refused("correctness", f"at shape '{s.name}': {reason}")
        mine = samples[0]
        least = floor(gpu, me.problem, me, s)
        found = mine.estimate
        if found.median < least["least"]:
            why = max((k for k in least if k != "least"), key=lambda k: least[k])
            raise _Refused("profile", f"at shape '{s.name}' it seems to take {found.median * 1e6:.2f} us; {why} alone needs {least['least'] * 1e6:.2f} us here")
        seen.rows.append(ProfileRecord(str(gpu.about["name"]), s.name, found.median, "", {}, "measured", (found.low, found.high), found.samples))
        out.append(mine)
        if len(samples) > 1:
            ratios[s.name] = {"times_faster": ratio(samples[1].seconds, mine.seconds).to_json(), "against": samples[1].estimate.to_json(),
                              "seconds": samples[1].seconds}
    seen.against = ratios or None
    return out


def _replays(fresh: Running, oracle: Oracle, samples: Sequence[Timing], secret: random.Random, seen: _Seen) -> None:
    me = fresh.candidate
    with seen.spending("replay"):
        for t in samples:
            try:
                reason = replayed(fresh, oracle, t, secret)
            except ChildGone as gone:
                raise _Refused("correctness", f"made again at shape '{t.shape.name}': {gone.said}") from None
            seen.timings.append(t.to_json(floor(me.gpu, me.problem, me, t.shape)))
            seen.runs.append(Run(t.shape.name, dict(t.shape.sizes), "normal", t.seeds[0], "device", not reason, t.worst, "", 0.0, reason))
            if reason:
                raise _Refused("correctness", reason)


def _panel(gpu: Gpu, problem: Problem, oracle: Oracle, shapes: Sequence[Shape], samples: Sequence[Timing], secret: random.Random,
           seen: _Seen) -> None:
    mine = {t.shape.name: t.estimate.median for t in samples}
    for row in panel(gpu, problem, oracle, shapes, secret):
        told = dict(row.to_json())
        if isinstance(row, Timed):
            told["times_faster"] = row.estimate.median / mine[row.shape]
        seen.panel.append(told)


def conclusion(v: Verdict) -> dict[str, Any]:
    """The fastest reference of each shape and how many times faster the program is."""
    out: dict[str, Any] = {}
    for row in (v.device.panel if v.device else ()):
        if "median" in row and (row["shape"] not in out or row["median"] < out[row["shape"]]["median"]):
            out[row["shape"]] = {"reference": row["reference"], "median": row["median"], "times_faster": row["times_faster"]}
    return out


__all__ = ["Options", "conclusion", "gate_gpu"]
