"""A whole package under one budget: kernels by what would be saved, a search for each, what was found as a series of patches and an overlay.

Everything lies in one folder: `order.json` (kernels in their order), `searches/` (a log each), `results/` (a report each, once its search has ended),
the patches, `overlay/`, `report.json` and `report.md`. The same command over the same folder goes on where it ended.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import field
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.base.store import write_atomic
from kir.gate.artifacts import ArtifactCache
from kir.gate.gpu.relative import program_problem
from kir.hardware.target import Target, target
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.optimize.events import Recorder
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.pool.engines import Begun, Devices, Engine, Lost, Processes
from kir.learning.optimize.report import data, lines
from kir.learning.optimize.search import Budget, Found, Search
from kir.learning.optimize.sources import SINGLE, CardSource, PassSource, ThreadsSource
from kir.learning.optimize.starts import Start
from kir.learning.packages.calls import Call, Ranked, calls_of, modelled, ranked
from kir.learning.packages.overlay import series, write_overlay
from kir.learning.packages.sample import CallJudge
from kir.learning.packages.trial import WITHIN, DeviceJudge, begin_imports
from kir.learning.packages.twin import Twin, twin
from kir.rewrite import passes

SCHEMA = "kir.package/1"
MOST_SHARE, MOST_ALIKE = 1 / 3, 3
"""The most of what is left of the budget that one kernel is given, and how many times an equal part: of many kernels most gain by what is tried first."""
READING = 120.0
"""Seconds that reading one call may take."""
LEAST = (2, 10.0)
"""Candidates and seconds that a kernel is given at least, while there are so many left."""


@dataclass(frozen=True)
class Asked:
    """What a package run was asked for. `bindings` are the recorded calls, of `package` where one is named ("": all)."""

    bindings: Path
    package: str
    target: Target
    out: Path
    budget: Budget
    compiles: bool = True
    cache: Path | None = None
    judge_of: Callable[[Ranked], Any] | None = None
    """Who judges a program in the place of a call; by default the CPU's gate on some of its CTAs."""
    engine: Processes | Devices | None = None
    """Where whole searches run, side by side; None for this process, one after another."""
    measured: bool = False
    """Whether times are a device's, as the report says."""


@dataclass(frozen=True)
class Outcome:
    """What a package run came to: a row a kernel that was searched (see `_row`), what was skipped and why, the files that were written, the reason why it
    ended, and the modules of the overlay."""

    rows: Sequence[Mapping[str, Any]]
    skipped: Sequence[tuple[str, str]]
    files: Sequence[str]
    ended: str
    modules: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"schema": SCHEMA, "kernels": [*self.rows], "skipped": [[*x] for x in self.skipped], "files": [*self.files], "ended": self.ended,
                "modules": [*self.modules]}


def optimized(asked: Asked, advance: Callable[[str], None] = lambda text: None) -> Outcome:
    """Search as far as the budget goes, and write what was found. Raises what `calls_of` does, and KirError KIR-U032 for a folder of another run."""
    calls = calls_of(asked.bindings, asked.package)
    order, skipped = ranked(calls, _modelled(asked, calls))
    _same_run(asked, order, calls)
    made: dict[int, tuple[dict[str, Any], Twin | None]] = {}

    def written(ended: str) -> Outcome:
        done = [made[number] for number in sorted(made)]
        return _written(asked, [row for row, _ in done], skipped, [found for _, found in done if found is not None], ended)

    for number, row, found in (_in_turn if asked.engine is None else _side_by_side)(asked, order):
        made[number] = row, found
        if found is not None:
            written("it was stopped")
        advance(order[number - 1].call.place)
    return written("every call was searched" if len(made) == len(order) else "the budget is used up")


def _modelled(asked: Asked, calls: Sequence[Call]) -> list[tuple[float, float] | str]:
    """What is modelled of each call, where the searches run: their processes start meanwhile, each with what judging on a device needs."""
    if asked.engine is None:
        return [modelled(call, asked.target) for call in calls]
    engine: Engine = asked.engine
    said = dict[int, tuple[float, float] | str]()
    for _ in range(2):  # a worker that is lost may take others' calls along
        begun = {k: engine.begin(looked_at, ReadTask(c.place, str(c.binding), c.launches, asked.target.name, asked.measured))
                 for k, c in enumerate(calls) if k not in said}
        for k, each in begun.items():
            with contextlib.suppress(Lost, TimeoutError):
                found = engine.result(each, READING)
                said[k] = found["why"] or (found["seconds"], found["least"])
    return [said[k] if k in said else modelled(c, asked.target) for k, c in enumerate(calls)]


@dataclass(frozen=True)
class ReadTask:
    """A call that is read and modelled, as what crosses to another process of this machine. With `measured` that will judge on a device."""

    place: str
    binding: str
    launches: int
    target: str
    measured: bool

    @property
    def key(self) -> str:
        """The call."""
        return f"{self.binding} {self.place}"


def looked_at(task: ReadTask) -> dict[str, Any]:
    """What a worker does: a call's modelled seconds and the least of them, or why it is left out."""
    if task.measured:
        begin_imports()
    said = modelled(Call(task.place, Path(task.binding), task.launches), target(task.target))
    return {"why": said, "seconds": 0.0, "least": 0.0} if isinstance(said, str) else {"why": "", "seconds": said[0], "least": said[1]}


Searched = Iterator[tuple[int, dict[str, Any], Twin | None]]
"""Numbers of calls, from 1, their rows and what takes their place, as they come."""


def _in_turn(asked: Asked, order: Sequence[Ranked]) -> Searched:
    spent = _Spent(asked.budget)
    for number, one in enumerate(order, 1):
        if (share := spent.share(one, order[number - 1:])) is None:
            return
        spent.begin(share)
        row, found = _one(asked, one, share)
        spent.add(share, row)
        yield number, row, found


def _side_by_side(asked: Asked, order: Sequence[Ranked]) -> Searched:
    """As many searches at once as the engine has processes. One whose process is lost is begun once more, and then left with a remark."""
    engine = asked.engine
    assert engine is not None
    spent, left = _Spent(asked.budget, engine.parallel), deque((n, one, 0) for n, one in enumerate(order, 1))
    running: dict[Future[Any], tuple[int, Ranked, Budget, int, Any]] = {}
    while left or running:
        while left and len(running) < engine.parallel and (share := spent.share(left[0][1], [one for _, one, _ in left])) is not None:
            number, one, lives = left.popleft()
            spent.begin(share)
            if _result(asked, one).is_file():
                row, found = _one(asked, one, share)
                spent.add(share, row)
                yield number, row, found
                continue
            begun = engine.begin(searched, SearchTask.of(asked, one, share))
            running[begun.said if isinstance(begun, Begun) else begun] = number, one, share, lives, begun
        if not running:
            return
        for done in wait(running, return_when="FIRST_COMPLETED").done:
            number, one, share, lives, begun = running.pop(done)
            try:
                engine.result(begun, 0.0)
            except Lost:
                spent.back(share)
                if lives == 0:
                    left.appendleft((number, one, 1))
                    continue
                ended = {**_fresh(one), "took": 0.0, "remark": "it ends the process that searches it"}
                write_atomic(_result(asked, one), json.dumps(ended, indent=1) + "\n")
                spent.begin(share)
            row, found = _one(asked, one, share)
            spent.add(share, row)
            yield number, row, found


@dataclass
class _Spent:
    """A budget over all searches. Those that are under way have what they were given; seconds are those of a clock, for `parallel` searches at once."""

    budget: Budget
    parallel: int = 1
    seconds: float = 0.0
    candidates: int = 0
    given: int = 0
    begun: float = field(default_factory=time.monotonic)

    def share(self, one: Ranked, rest: Sequence[Ranked]) -> Budget | None:
        """A kernel's part of what is left: half of it by what would be saved, half to all alike, and of what is left for many no more than `MOST_ALIKE` times
        as much as if all had the same; None once nothing is left."""
        gone = max(self.seconds / self.parallel, time.monotonic() - self.begun)
        seconds, candidates = self.budget.seconds - gone, self.budget.candidates - self.candidates - self.given
        if seconds <= 0 or candidates <= 0:
            return None
        whole = sum(r.saving for r in rest)
        alike = 1 / len(rest)
        share = min(MOST_SHARE, MOST_ALIKE * alike, (alike + (one.saving / whole if whole else alike)) / 2)
        return Budget(min(candidates, max(LEAST[0], round(candidates * share))), min(seconds, max(LEAST[1], seconds * self.parallel * share)),
                      plans=self.budget.plans)

    def begin(self, share: Budget) -> None:
        """A search is under way."""
        self.given += share.candidates

    def back(self, share: Budget) -> None:
        """It is not any more."""
        self.given -= share.candidates

    def add(self, share: Budget, row: Mapping[str, Any]) -> None:
        """It has ended."""
        self.back(share)
        self.seconds += row["took"]
        self.candidates += len(row["tried"])


@dataclass(frozen=True)
class SearchTask:
    """The search of one call, as what crosses to another process of this machine, which writes its log and its result into the run's folder."""

    bindings: str
    package: str
    target: str
    out: str
    plans: int
    compiles: bool
    cache: str
    measured: bool
    place: str
    binding: str
    launches: int
    seconds: float
    least: float
    candidates: int
    allowed: float

    @property
    def key(self) -> str:
        """The call."""
        return f"search {self.binding} {self.place}"

    @classmethod
    def of(cls, asked: Asked, one: Ranked, share: Budget) -> SearchTask:
        """The task of a call."""
        return cls(str(asked.bindings), asked.package, asked.target.name, str(asked.out), share.plans, asked.compiles, str(asked.cache or ""),
                   asked.measured, one.call.place, str(one.call.binding), one.call.launches, one.seconds, one.least, share.candidates,
                   share.seconds)


def searched(task: SearchTask) -> dict[str, Any]:
    """What a worker does: the search of a call, judged on the worker's GPU or by the CPU's gate; its row lies in the run's folder then."""
    share = Budget(task.candidates, task.allowed, plans=task.plans)
    asked = Asked(Path(task.bindings), task.package, target(task.target), Path(task.out), share, task.compiles, Path(task.cache) if task.cache else None,
                  (lambda r: DeviceJudge(r.call, r.expert.program)) if task.measured else None, measured=task.measured)
    call = Call(task.place, Path(task.binding), task.launches)
    return {"took": _one(asked, Ranked(call, task.seconds, task.least), share)[0]["took"]}


def _same_run(asked: Asked, order: Sequence[Ranked], calls: Sequence[Call]) -> None:
    """Keep what the run is of, or compare with what is kept: calls may have come to it, and some may be skipped now."""
    def told(call: Call) -> dict[str, str]:
        return {"kernel": call.place, "binding": hashlib.sha256(call.binding.read_bytes()).hexdigest()[:16],
                "file": hashlib.sha256(call.file.read_bytes()).hexdigest()[:16]}

    now = {"schema": SCHEMA, "target": asked.target.name, "compiles": asked.compiles, "calls": [told(r.call) for r in order]}
    file = asked.out / "order.json"
    before: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {**now}
    if {**before, "calls": []} != {**now, "calls": []} or not all(any(told(c) == row for c in calls if c.place == row["kernel"]) for row in before["calls"]):
        raise error("KIR-U032", f"{asked.out} holds the run of other calls, of another target, or of files that have changed since",
                    needs="the same bindings and files as before, or another folder")
    write_atomic(file, json.dumps(now, indent=1) + "\n")


def every_pass() -> Mapping[str, Any]:
    """All passes with the values that are tried of their parameters: those of a search first, then the rest as they come. A CTA of a package's kernel has a
    row or a tile already: it is given a few of them."""
    return {**SINGLE, "tile": {"extent": (4, 2, 8), "axis": (0, 1)}, **{cls.name: {} for cls in passes() if cls.name not in SINGLE}}


def _one(asked: Asked, one: Ranked, share: Budget) -> tuple[dict[str, Any], Twin | None]:
    """The row of a call, from its results where its search has ended before, and what takes its place where something is faster."""
    result = _result(asked, one)
    if result.is_file():
        kept: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return kept, twin(one.call, parse_program(kept["program"]), "\n".join(kept["story"])) if kept["program"] else None
    recorder = Recorder.over(asked.out / "searches" / f"{result.stem}.jsonl")
    row, made = _fresh(one), None
    try:
        found = _search(asked, one, share, recorder)
        told = data(found)
        row.update({k: told[k] for k in ("tried", "best", "baseline", "limit", "ended", "built", "speedup")})
        row["story"] = [*lines(told)]
        if found.best is not None:
            made = twin(one.call, found.best.program, "\n".join(row["story"]))
            row["program"], row["saved"] = program_text(found.best.program), (1 - 1 / found.speedup) * one.seconds
    except KirError as bad:
        if bad.diagnostics[0].id in ("KIR-U021", "KIR-U022"):
            raise
        row["remark"] = f"{bad.diagnostics[0].id}: {bad.diagnostics[0].message}"
    row["took"] = round(recorder.clock, 2)
    write_atomic(result, json.dumps(row, indent=1) + "\n")
    return row, made


def _result(asked: Asked, one: Ranked) -> Path:
    return asked.out / "results" / f"{one.call.binding.stem}.json"


def _fresh(one: Ranked) -> dict[str, Any]:
    return {"kernel": one.call.place, "binding": one.call.binding.stem, "launches": one.call.launches, "saving": one.saving, "speedup": 1.0,
            "saved": 0.0, "tried": [], "remark": "", "program": "", "story": []}


def _search(asked: Asked, one: Ranked, share: Budget, recorder: Recorder) -> Found:
    program, surface = one.expert.program, one.expert.surface
    problem = program_problem(program, program)
    setting = Setting(problem, problem.tagged("timed")[0], asked.target, surface)
    cache = ArtifactCache(asked.cache) if asked.cache else None
    judge = asked.judge_of(one) if asked.judge_of else CallJudge(program, asked.target, cache, asked.compiles)
    sources = (ThreadsSource(), PassSource("single", every_pass()), CardSource(), PassSource("pass", every_pass()))
    return Search(program, setting, judge, sources, budget=share, recorder=recorder, given_surface=surface, as_given=judge,
                  from_starts=[Start("as it is", program)]).run()


def _written(asked: Asked, rows: Sequence[Mapping[str, Any]], skipped: Sequence[tuple[str, str]], twins: Sequence[Twin], ended: str) -> Outcome:
    """The series, the overlay and the reports."""
    files: list[str] = []
    for old in asked.out.glob("*.patch"):
        old.unlink()
    stories = [r["story"] for r in rows if r["program"]]
    for patch, story in zip(series(twins), stories, strict=False):
        path = asked.out / f"{patch.number:04}-{patch.kernel}.patch"
        write_atomic(path, "\n".join([*story, "", patch.text]))
        files.append(str(path))
    modules = write_overlay(twins, asked.out / "overlay")
    out = Outcome(rows, skipped, (*files, str(asked.out / "report.json"), str(asked.out / "report.md")), ended, modules)
    write_atomic(asked.out / "report.json", json.dumps(out.to_json(), indent=1) + "\n")
    write_atomic(asked.out / "report.md", "\n".join(page(out, asked)) + "\n")
    return out


def page(out: Outcome, asked: Asked) -> Iterator[str]:
    """The report as Markdown."""
    faster = [r for r in out.rows if r["program"]]
    yield f"# {asked.package or asked.bindings.name}: kernels made faster"
    yield ""
    yield (f"{len(out.rows)} calls were searched on {asked.target.name}, {sum(len(r['tried']) for r in out.rows)} candidates gated in "
           f"{sum(r['took'] for r in out.rows):.0f} s; {len(faster)} are faster, {len(out.skipped)} calls were skipped; {out.ended}.")
    yield ("Times are modelled. Each was right on the first two and the last CTA of every axis of its grid, on three draws of its inputs."
           if not asked.measured else
           "Times are medians on the device, many launches in a row and in turns with the package's own kernel. Each gave what that gives on random "
           f"tensors of the recorded layouts, all of it compared: to {WITHIN:g} of the largest value.")
    yield ""
    yield "| kernel | call | launches | as given | now | times as fast | saved in the recorded calls | by | remark |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"
    for r in out.rows:
        best, base = r.get("best"), r.get("baseline")
        cells = (f"`{r['kernel']}`", r["binding"], r["launches"], f"{base['seconds'] * 1e6:.2f} us" if base else "",
                 f"{best['seconds'] * 1e6:.2f} us" if best else "", f"{r['speedup']:.3f}" if best else "",
                 f"{r['saved'] * 1e6:.1f} us" if best else "", best["plan"] if best else "", r["remark"] or ("" if best else "nothing is faster"))
        yield "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"
    if out.skipped:
        yield ""
        yield from (f"- skipped `{place}`: {why}" for place, why in out.skipped)


__all__ = ["Asked", "Outcome", "every_pass", "optimized", "page"]
