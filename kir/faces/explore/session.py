"""One kernel, or one lineage, that is explored: what was done to it, and what the page shows of it as data."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import did_you_mean, usage
from kir.base.notices import notices
from kir.base.registry import registry
from kir.faces.api.kernels import Kernel, apply, check, read
from kir.faces.explore.pictures import pictures
from kir.faces.explore.ranking import Finding, Ranking
from kir.faces.explore.settings import Settings, settings
from kir.faces.explore.sides import code_side, ir_side, machine_side, source_side
from kir.faces.report.chart import times
from kir.ir.changes.diff import diff, render_html
from kir.learning.forecast.choosing import forecaster
from kir.learning.optimize.inputs import called_with
from kir.lineage.records.folder import NAME, lineage_names, opened
from kir.lineage.records.record import Step
from kir.lineage.records.speedup import measured_speedups, speedups
from kir.rewrite import Trace

MOST_KEPT = 64
"""Programs whose sides, sites and forecasts are kept."""


@dataclass(frozen=True)
class Slide:
    """A state of a lineage: what it is called, the step that led to it from the simpler one before (None of the first)."""

    kernel: Kernel
    step: Step | None


class Session:
    """Kernels by the steps that were taken to them: `undo` and `redo` move along those, `slide` along the states of a lineage, each of which keeps the steps
    that were taken from it. Requests may come at the same time: what changes the session waits for its turn, what only looks does not."""

    def __init__(self, file: str, binding: Path | None = None, problem: str = "", at: str = "", device: str = "") -> None:
        self._turn = threading.Lock()
        self._kept: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        self.slides = _slides(file)
        with notices() as told:
            first = self.slides[0][0].kernel if self.slides else read(_existing(file), binding, problem)
        self.under = [line for each in told for line in (each.message, *each.notes)]
        self.problem = problem or (self.slides[1] if self.slides else "")
        self.file = Path(file.partition("::")[0])
        self.states: list[list[Kernel]] = [[s.kernel] for s in self.slides[0]] if self.slides else [[first]]
        self.taken = [0] * len(self.states)
        self.place = len(self.states) - 1 if self.slides else 0
        self.called = called_with(file) if not self.slides and binding is None else None
        self.settings: Settings = settings(first.program, self.problem, at, device, self.called)
        self.ask = forecaster()

    @property
    def kernel(self) -> Kernel:
        """The kernel that is shown."""
        return self.states[self.place][self.taken[self.place]]

    def state(self) -> dict[str, Any]:
        """What the page shows at once: source, IR, code of each surface, the last difference, and what may be done; and `under`
        which launch it is read, with what was assumed."""
        kernel, done = self.kernel, self.taken[self.place]
        return {"name": kernel.name, "surface": kernel.surface, "pipeline": kernel.pipeline if done else "", "steps": done,
                "redo": len(self.states[self.place]) - 1 - done, "hash": kernel.hash[:16], "source": source_side(self.file, kernel.surface),
                "ir": self._once("ir", kernel, lambda: ir_side(kernel.program, self.file.resolve())),
                "code": {entry.name: self._once(f"code {entry.name}", kernel, partial(code_side, kernel.program, entry.name))
                         for entry in registry("kir.backends")},
                "diff": self._last(), "sizes": self.settings.text, "device": self.settings.device.name, "slide": self._slide(),
                "under": "; ".join(self.under)}

    def sites(self) -> dict[str, Any]:
        """Where passes apply now as far as that is known, and some more forecasts of what they bring; to be asked again as long as some are left."""
        kernel, chosen = self.kernel, self.settings
        found: Finding = self._once("sites", kernel, lambda: Finding(kernel.program))
        ranking: Ranking = self._once(f"ranking {chosen.text} {chosen.device.name}", kernel, lambda: Ranking(kernel, chosen, self.ask, found))
        return {"hash": kernel.hash[:16], **ranking.more()}

    def machine(self, surface: str) -> dict[str, Any]:
        """The SASS of the kernel as a surface says it. Raises UsageError KIR-C002 for a surface that there is not."""
        if surface not in {entry.name for entry in registry("kir.backends")}:
            raise usage("KIR-C002", f"there is no surface '{surface}'")
        kernel, chosen = self.kernel, self.settings
        side = self._once(f"machine {surface} {chosen.device.name}", kernel, lambda: machine_side(kernel.program, surface, chosen.device))
        return {"hash": kernel.hash[:16], "surface": surface, **side}

    def pictures(self) -> dict[str, Any]:
        """Roofline, timeline and layouts, as HTML; and the modelled time as a line."""
        kernel, chosen = self.kernel, self.settings
        done, walked = self.taken[self.place], bool(self.slides)
        programs = [each.program for each in self.states[self.place][:done + 1]]
        if walked:
            programs = [held[0].program for held in self.states[:self.place]] + programs
        ends = ("naive" if walked else "begin", "now")
        return {"hash": kernel.hash[:16], **pictures(programs, len(programs) - 1, chosen, ends)}

    def hazards(self) -> dict[str, Any]:
        """A run in checking mode at small sizes."""
        ran = check(self.kernel)
        return {"ok": ran.ok, "sizes": dict(ran.scalars), "findings": [str(f) for f in ran.findings], "conflicts": ran.result.counters.bank_conflicts}

    def apply(self, step: str) -> dict[str, Any]:
        """The state after a step. Raises KirError, and nothing is changed, for one that is refused."""
        with self._turn:
            made = apply(self.kernel, step)
            done = self.taken[self.place]
            self.states[self.place] = [*self.states[self.place][:done + 1], made]
            self.taken[self.place] = len(self.states[self.place]) - 1
        return self.state()

    def undo(self) -> dict[str, Any]:
        """The state without the last step."""
        return self._moved(-1)

    def redo(self) -> dict[str, Any]:
        """The state with the step again that was undone last."""
        return self._moved(1)

    def go(self, place: int) -> dict[str, Any]:
        """Another state of the lineage, 0 the naive one; the steps that were taken from this one stay."""
        with self._turn:
            self.place = max(0, min(len(self.states) - 1, place))
        return self.state()

    def set(self, at: str, device: str) -> dict[str, Any]:
        """Other sizes, another device. Raises UsageError, and nothing is changed, for what is none."""
        found = settings(self.kernel.program, "" if at else self.problem, at, device, self.called)
        with self._turn:
            self.settings = found
        return self.state()

    def _moved(self, by: int) -> dict[str, Any]:
        with self._turn:
            self.taken[self.place] = max(0, min(len(self.states[self.place]) - 1, self.taken[self.place] + by))
        return self.state()

    def _once(self, what: str, kernel: Kernel, make: Callable[[], Any]) -> Any:
        """What was worked out for a program, once."""
        key = (what, kernel.hash, kernel.pipeline if what.startswith("ir") else "")
        if key not in self._kept:
            self._kept[key] = make()
            while len(self._kept) > MOST_KEPT * 8:
                self._kept.popitem(last=False)
        return self._kept[key]

    def _last(self) -> str:
        """The difference that the last step made: one that was taken here, else the one that leads to this slide."""
        held, done = self.states[self.place], self.taken[self.place]
        if done:
            return str(render_html(diff(held[done - 1].program, held[done].program)))
        if self.slides and self.place:
            return str(render_html(diff(self.states[self.place - 1][0].program, held[0].program)))
        return ""

    def _slide(self) -> dict[str, Any] | None:
        if not self.slides:
            return None
        step = self.slides[0][self.place].step
        last = len(self.states) - 1
        found: dict[str, Any] = {"place": self.place, "last": last, "names": [_named(s, k, last) for k, s in enumerate(self.slides[0])]}
        if step is None:
            return found
        gains = [f"{times(v[0])} measured on {k}" for k, v in measured_speedups(step).items()]
        gains += [f"{times(v)} modelled on {k}" for k, v in speedups(step).items()]
        return {**found, "step": step.forward, "claim": step.claim, "gains": gains, "realized": bool(step.realization and step.realization.realized),
                "conditions": [{"id": c.id, "sentence": c.sentence, "verdict": c.verdict, "reason": c.detail} for c in step.conditions]}


def _existing(file: str) -> str:
    """What is named, where it is no misspelt lineage. Raises UsageError KIR-S018 for that."""
    near = did_you_mean(file, lineage_names()) if re.fullmatch(r"\w+", file) and not Path(file).exists() else ""
    if near:
        raise usage("KIR-S018", f"there is neither a file nor a lineage '{file}'", attempt=near, needs="FILE[::KERNEL], or one of `kir lineages`")
    return file


def _slides(file: str) -> tuple[list[Slide], str] | tuple[()]:
    """The states of a lineage from naive to expert, and its problem; nothing for what is no lineage. Raises KirError as reading one does."""
    folder = opened(Path(file)) if "::" not in file else None
    if folder is None or not folder.file.is_file() or (Path(file).is_file() and Path(file).name != NAME):
        return ()
    lineage = folder.read()
    states = list(reversed(lineage.states))
    steps: list[Step | None] = [None, *(step for _, step in lineage.transitions())]
    surface = lineage.header.surface
    slides = [Slide(Kernel(Trace(folder.program(state)), lineage.header.expert, surface, lineage.header.source), step)
              for state, step in zip(states, steps, strict=True)]
    return slides, lineage.header.problem


def _named(slide: Slide, number: int, last: int) -> str:
    what = "naive" if slide.step is None else slide.step.intent
    return f"{number}. {what}{', the expert' if number == last and number else ''}"
