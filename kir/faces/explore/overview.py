"""A kernel at a glance: what it computes, what was done to it and why that is right, what binds it, and what else could be done, with what it would bring."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.base.notices import notices
from kir.faces.api.kernels import Kernel, Walked, apply, read, sites_of, walk
from kir.faces.explore.settings import Settings, asked_sizes, settings
from kir.faces.plain.form import plain
from kir.ir.binding import Binding
from kir.ir.nodes import Program
from kir.ir.printer import program_text
from kir.learning.cards.brought import brought
from kir.learning.cards.library import library
from kir.learning.cards.search import search
from kir.learning.forecast import Forecast, Forecaster, Pair
from kir.learning.forecast.analytic import bound, modelled
from kir.learning.forecast.choosing import forecaster
from kir.learning.forecast.shown import to_json
from kir.learning.optimize.inputs import called_with
from kir.learning.optimize.judge import moved
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Step
from kir.lineage.records.speedup import speedups
from kir.rewrite.registry import pass_class
from kir.surface.launches.values import asked_at
from kir.surface.reading import own_surface

LOOKING = 0.35
"""The share of the time in which what could be done is looked for, a half of it for skills; the rest is for the walk."""
LONGER = 6.0
"""Times as long as was asked for that the walk may go on for its first step, as long as the processors have not worked so long for it: on a busy machine
there is a step to tell as well, later."""
LEAST_GAIN = 1.02
"""What a step must be forecast to bring to be named."""
MOST = 8
"""Steps that are named of those that would gain."""
MOST_FOLDERS = 20
"""Walks of one kernel, each of another text, binding or problem, that are kept beside one another."""


@dataclass(frozen=True)
class Done:
    """One step that was taken to the kernel, from naive: what it is for, and how its conditions were decided (`proved`, `tested`, ..: how many)."""

    step: str
    claim: str
    decided: dict[str, int]
    modelled: float | None


@dataclass(frozen=True)
class Could:
    """One thing that could be done: its steps, what they are for, what is forecast; `skill` names the card that says so, "" for a pass alone."""

    steps: str
    claim: str
    forecast: Forecast
    skill: str = ""


@dataclass(frozen=True)
class Overview:
    """What there is to say of a kernel within a given time."""

    kernel: Kernel
    settings: Settings
    surface: str
    walked: Walked | None
    """The walk to naive as far as it came; None where the gate does not take the kernel."""
    refused: tuple[Diagnostic, ...]
    """Why the gate does not take it."""
    seconds: float
    """Modelled seconds of one call at these sizes."""
    least: float
    """Modelled seconds in which the device moves every tensor once."""
    bound_by: str
    """The resource that takes the longest."""
    could: tuple[Could, ...]
    looked_at: int
    """How many places were forecast."""
    unlooked: bool
    """Whether time ran out before all were."""

    @property
    def computes(self) -> Program:
        """The simplest program that the walk found, which computes the same."""
        return self.kernel.program if self.walked is None else Folder(self.walked.folder).program(self.walked.lineage.states[-1])

    @property
    def plain(self) -> Program:
        """The naive program in plain words, for people; a program that is not naive as it is."""
        return plain(self.computes) if self.naive else self.computes

    @property
    def naive(self) -> bool:
        """Whether that is a naive program."""
        return self.walked is not None and self.walked.lineage.outcome.ended == "naive"

    @property
    def done(self) -> tuple[Done, ...]:
        """The steps from that program to the kernel."""
        return () if self.walked is None else tuple(_done(step) for _, step in self.walked.lineage.transitions())

    def to_json(self) -> dict[str, Any]:
        """As one JSON object."""
        return {"kernel": self.kernel.name, "surface": self.surface, "sizes": dict(self.settings.sizes), "device": self.settings.device.name,
                "computes": program_text(self.computes), "plain": program_text(self.plain), "naive": self.naive,
                "done": [{"step": d.step, "claim": d.claim, "decided": d.decided, "modelled": d.modelled} for d in self.done],
                "seconds": self.seconds, "least_seconds": self.least, "bound_by": self.bound_by,
                "could": [{"steps": c.steps, "claim": c.claim, "skill": c.skill, "forecast": to_json(c.forecast)} for c in self.could],
                "looked_at": self.looked_at, "all_looked_at": not self.unlooked,
                "lineage": str(self.walked.folder) if self.walked is not None else "", "refused": [d.to_json() for d in self.refused]}


def overview(file: str, binding: Path | Binding | None = None, problem: str = "", at: str = "", device: str = "", seconds: float = 50.0,
             folder: Path | None = None) -> Overview:
    """A kernel at a glance, within about so many seconds: the walk back goes into `folder` (``NAME.lineage`` here, or ``NAME.2.lineage`` .. where that is the
    walk of another text, binding or problem, which is kept), and goes on there when it is asked again.
    `at` are the sizes at which figures are modelled, by default those of the call that the file shows, or large ones. Raises :class:`KirError` as reading the
    kernel does, and UsageError KIR-C002 as `settings` does; a kernel that the gate refuses is told with the reasons."""
    begun, before = time.monotonic(), _worked()
    with asked_at(asked_sizes(at, "kir explain") if at else {}):
        kernel = read(file, binding, problem)
        with notices():
            called = called_with(file) if binding is None else None
    chosen = settings(kernel.program, problem, at, device, called, "kir explain")
    surface = own_surface(kernel.program, kernel.surface)
    costs = modelled(kernel.program, tuple(sorted(chosen.sizes.items())), chosen.device, surface)
    ask, looking = forecaster(), LOOKING * seconds
    skills, ends = _of_skills(kernel, chosen, surface, ask, looking / 2), begun + looking
    passes, looked_at, unlooked = _of_passes(kernel, chosen, surface, ask, ends)
    walked: Walked | None = None
    refused: tuple[Diagnostic, ...] = ()
    try:
        walked = _walked(kernel, folder, problem, max(5.0, seconds - (time.monotonic() - begun)))
        while not walked.lineage.accepted and walked.lineage.outcome.ended == "budget" and _worked() - before < seconds and (
                time.monotonic() - begun < LONGER * seconds):
            walked = _walked(kernel, folder, problem, seconds)
    except KirError as said:
        refused = said.diagnostics
    known = {c.steps for c in skills}
    could = sorted((*skills, *(c for c in passes if c.steps not in known)), key=lambda c: -c.forecast.median * (1 - c.forecast.fails))[:MOST]
    return Overview(kernel, chosen, surface, walked, refused, sum(c.seconds for c in costs),
                    moved(kernel.program, chosen.sizes, costs) / chosen.device.device.bandwidth, bound(costs), tuple(could), looked_at + len(skills), unlooked)


def _walked(kernel: Kernel, folder: Path | None, problem: str, seconds: float) -> Walked:
    """The walk of a kernel in a folder, or in the first of those by its name that hold no walk of anything else: an edited kernel begins anew, and what was
    found of it before stays."""
    names = [str(folder)] if folder is not None else [f"{kernel.name}{f'.{number}' if number > 1 else ''}.lineage" for number in range(1, MOST_FOLDERS + 1)]
    for name in names[:-1]:
        try:
            return walk(kernel, name, problem, seconds=seconds)
        except KirError as said:
            if any(d.id != "KIR-S013" for d in said.diagnostics):
                raise
    return walk(kernel, names[-1], problem, seconds=seconds)


def _worked() -> float:
    """Seconds that processors have worked for this process, and for those of its that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _of_skills(kernel: Kernel, chosen: Settings, surface: str, ask: Forecaster, seconds: float) -> list[Could]:
    """What admitted cards would bring here, of what gains."""
    stored = library()
    hits = search(stored.admitted, kernel.program, chosen.device, surface, "", 10, stored.rank)
    found = brought(hits, kernel.program, chosen.sizes, chosen.device, ask, surface, seconds)
    return [Could("; ".join(str(step).partition(" on ")[0] for step in each.best.steps), _claims(each.best.steps), each.forecast, each.hit.card.name)
            for each in found if each.best is not None and each.forecast is not None and _gains(each.forecast)]


def _of_passes(kernel: Kernel, chosen: Settings, surface: str, ask: Forecaster, ends: float) -> tuple[list[Could], int, bool]:
    """What single passes would bring here, of what gains; how many places were looked at, and whether time ran out before all were."""
    found: list[Could] = []
    count = 0
    for site in sites_of(kernel.program):
        if time.monotonic() > ends:
            return found, count, True
        if site.refused:
            continue
        try:
            after = apply(kernel, site.step).program
            made = ask(Pair(kernel.program, after, chosen.sizes, chosen.device, site.step, surface))
        except KirError:
            continue
        count += 1
        if _gains(made):
            found.append(Could(site.step, pass_class(site.pass_name).claim, made))
    return found, count, False


def _gains(found: Forecast) -> bool:
    return found.median >= LEAST_GAIN and found.pays != "no" and not found.defer


def _claims(steps: Sequence[Any]) -> str:
    return next((claim for step in steps if (claim := pass_class(step.name).claim)), "")


def _done(step: Step) -> Done:
    return Done(step.forward, step.claim, dict(Counter(c.verdict for c in step.conditions)), next(iter(speedups(step).values()), None))


__all__ = ["Could", "Done", "Overview", "overview"]
