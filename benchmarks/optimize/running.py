"""Searches of a table, in several processes, each result kept as it comes."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import field, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.learning.forecast import Analytic, Forecaster
from kir.learning.optimize.events import Recorder
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.lift import Prefixes
from kir.learning.optimize.plan import PlanSource, Setting
from kir.learning.optimize.policy import NO_POLICY, Policy
from kir.learning.optimize.search import Budget, Found, Search
from kir.learning.optimize.starts import Start
from kir.learning.tune.search import Measured
from kir.problem import load_problem


class Clocked:
    """A judge that says how long it took, in seconds of a processor."""

    def __init__(self, judge: CpuJudge) -> None:
        self.judge_, self.name, self.measures, self.seconds = judge, judge.name, judge.measures, 0.0

    def prepare(self, programs: Any) -> None:
        """As the judge."""
        self.judge_.prepare(programs)

    def judge(self, program: Any, surface: str) -> Measured:
        """The judge's word."""
        begun = time.process_time()
        try:
            return self.judge_.judge(program, surface)
        finally:
            self.seconds += time.process_time() - begun

    def again(self, program: Any, surface: str) -> Measured:
        """As the judge."""
        return self.judge_.again(program, surface)


@dataclass
class Known:
    """What searches of one problem on one surface have in common: what the gate said of a program, which it says again, and what first steps of plans came
    to."""

    said: dict[tuple[str, str], Measured] = field(default_factory=dict)
    prefixes: Prefixes = field(default_factory=dict)


class Remembered(Clocked):
    """A judge that is asked once about each program."""

    def __init__(self, judge: CpuJudge, known: Known) -> None:
        super().__init__(judge)
        self.known = known

    def judge(self, program: Any, surface: str) -> Measured:
        """The judge's word, of now or of before."""
        key = content_hash(program), surface
        if key not in self.known.said:
            self.known.said[key] = super().judge(program, surface)
        return replace(self.known.said[key])


class _Sharing(Search):
    """A search that begins with what others of its program know."""

    known_of: Known | None = None

    def _begin(self) -> None:
        super()._begin()
        self.prefixes = self.known_of.prefixes if self.known_of is not None else self.prefixes


def search(
    problem: str,
    surface: str,
    sources: Sequence[PlanSource],
    budget: Budget,
    forecaster: Forecaster | None = None,
    policy: Policy = NO_POLICY,
    measures: bool = False,
    known: Known | None = None,
) -> tuple[Found | None, dict[str, Any]]:
    """A search from a problem's naive program at its timed shape on a modelled H200, and its row: seconds of the naive program and of the best (None:
    nothing was faster), what was built and gated, and how much of the processor's time the gate took. With `measures` the model stands for a device: what it
    says of a candidate is known once that was gated, and the order is the forecaster's. `known` is what searches of the same problem share."""
    posed = load_problem(problem)
    setting = Setting(posed, posed.tagged("timed")[0], target("h200"), surface)
    gate = CpuJudge(setting, compiles=False, measures=measures)
    judge = Clocked(gate) if known is None else Remembered(gate, known)
    made = _Sharing(
        posed.naive, setting, judge, tuple(sources), forecaster or Analytic(), policy, budget, Recorder(), from_starts=[Start("the naive program", posed.naive)]
    )
    made.known_of = known
    begun = time.process_time()
    try:
        found = made.run()
    except KirError as refused:
        return None, {"seconds": None, "remark": refused.diagnostics[0].message}
    best = found.best.measured.seconds if found.best is not None and found.best.measured is not None else None
    took = time.process_time() - begun
    return found, {
        "given": found.baseline.measured.seconds if found.baseline.measured is not None else found.baseline.seconds,
        "seconds": best,
        "gated": len(found.tried),
        "built": found.built,
        "took": round(took, 2),
        "gate": round(judge.seconds, 2),
        "plan": found.best.plan.key if found.best is not None else "",
        "remark": "" if best else found.ended,
    }


Task = tuple[Any, ...]
Row = dict[str, Any]


def each(work: Callable[..., Row], tasks: Sequence[Task], workers: int, seconds: float) -> Iterator[tuple[Task, Row]]:
    """What `work` makes of each task, as it comes, in so many processes (this one, where it is one), until the time is over: what is not done then is
    left out."""
    until = time.monotonic() + seconds
    if workers <= 1:
        for task in tasks:
            if time.monotonic() > until:
                return
            yield task, work(*task)
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        pending = {pool.submit(work, *task): task for task in tasks}
        while pending and (left := until - time.monotonic()) > 0:
            for future in wait(pending, timeout=left, return_when="FIRST_COMPLETED").done:
                yield pending.pop(future), future.result()
    finally:
        for process in list((pool._processes or {}).values()):
            if time.monotonic() > until:
                process.kill()  # what it is at is lost, as was said
        pool.shutdown(cancel_futures=True)


CODE = ("kir", "passes", "frontends", "backends", "grammars", "skills/pipelines", "skills/problems", "benchmarks/optimize")
"""What a row depends on, beside the machine: of these folders everything but what Python makes of it."""
SEARCH = ("kir/learning/optimize", "kir/problem/naive", "skills/pipelines")
"""What says which plans a search builds of a model, and in which order it takes them."""


@cache
def code(folders: tuple[str, ...] = CODE) -> str:
    """The first digits of a hash of KIR's files: rows of one code belong together, whatever commit has it."""
    root, said = Path(__file__).parents[2], hashlib.sha256()
    for place in folders:
        for path in sorted(p for p in (root / place).rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            said.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return said.hexdigest()[:12]


def made() -> dict[str, str]:
    """What a row says of how it was made: the code, and the day."""
    return {"code": code(), "when": time.strftime("%Y-%m-%d")}


def ages(rows: Sequence[Mapping[str, Any]]) -> str:
    """The line of a page that says how many rows are of which code and day."""
    found = Counter(f"{r.get('code', 'an older code')}, {r.get('when', 'undated')}" for r in rows)
    return f"- rows by the code that made them, and its date: {'; '.join(f'{count} of {each}' for each, count in found.most_common())}"


@cache
def opened() -> Any:
    """The device that this process sees, opened once."""
    from kir.gate.gpu import Gpu

    return Gpu.open()


@contextlib.contextmanager
def spending(spent: dict[str, float], what: str) -> Iterator[None]:
    """Adds the seconds of a block."""
    begun = time.monotonic()
    try:
        yield
    finally:
        spent[what] = round(spent.get(what, 0.0) + time.monotonic() - begun, 1)


def share(rows: Sequence[Row], what: str, without: str) -> Iterator[str]:
    """The line of a page that says what the searches took of the time of rows with `spent`, in which `without` is not counted."""
    spent = [r["spent"] for r in rows if r.get("spent", {}).get("candidates")]
    if spent:
        whole = sum(s["search"] + s["candidates"] for s in spent)
        part = sum(s["search"] for s in spent) / whole
        yield f"- The search itself took {part:.0%} of the {whole:.0f} s of {len(spent)} {what}, beside others, without {without}."
