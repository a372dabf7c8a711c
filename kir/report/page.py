"""The report of a lineage: one HTML file with its style, script and picture inside, readable on screen and on paper."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2
from markupsafe import Markup

from kir.ir.nodes import Program
from kir.library.lift import measured_speedups, speedups
from kir.lineage.folder import Folder
from kir.lineage.record import Lineage, State, Step
from kir.lineage.replay import Replayed
from kir.report.chart import Chart, chart, times
from kir.report.verdict import Row, verdict_rows

DiffHtml = Callable[[Program, Program], str]


@dataclass(frozen=True)
class Line:
    """A line of a textual diff: ``mark`` is a space, ``+``, ``-`` or ``…`` for lines left out."""

    mark: str
    text: str


@dataclass(frozen=True)
class Shown:
    """One transition as the page shows it, in the forward direction."""

    number: int
    step: Step
    before: State
    after: State
    speedup: Mapping[str, float]
    measured: Mapping[str, tuple[float, float, float]]
    diff: Markup
    code: tuple[Line, ...]
    emitted: str
    gate: tuple[Row, ...]
    residue: float


@dataclass(frozen=True)
class Group:
    """Rejected attempts that fell for the same reason at the same stage."""

    step: Step
    count: int


def page(lineage: Lineage, folder: Folder, diff_html: DiffHtml, replayed: Replayed | None = None) -> str:
    """The HTML of the whole report. ``diff_html`` renders the structural difference of two programs as an HTML fragment."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["times"] = times
    files = resources.files("kir.report")
    template = environment.from_string((files / "lineage.html.j2").read_text(encoding="utf-8"))
    programs = {state.text: folder.program(state) for state in lineage.states}
    shown = tuple(_shown(lineage, number, step, programs, diff_html) for number, step in lineage.transitions())
    picture: Chart = chart(lineage)
    return template.render(
        lineage=lineage,
        header=lineage.header,
        outcome=lineage.outcome,
        chart=picture,
        steps=shown,
        rejected=_grouped(lineage.rejected),
        rejected_count=len(lineage.rejected),
        intents=len({each.step.intent for each in shown if each.step.realization and each.step.realization.realized}),
        overall=_overall(lineage),
        naive=folder.store.get(lineage.states[-1].text),
        expert=folder.store.get(lineage.start.text),
        naive_code=lineage.accepted[-1].emitted if lineage.accepted else "",
        expert_code=lineage.start_emitted,
        expert_gate=verdict_rows(lineage.start_gate),
        replayed=replayed,
        style=Markup((files / "style.css").read_text(encoding="utf-8")),
        script=Markup((files / "keys.js").read_text(encoding="utf-8")),
    )


def alone(title: str, fragment: str) -> str:
    """An HTML fragment as a file of its own, in the report's style."""
    style = (resources.files("kir.report") / "style.css").read_text(encoding="utf-8")
    head = Markup('<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{}</title><style>\n{}</style></head>\n').format(title, Markup(style))
    return str(head + Markup("<body><main><h1>{}</h1>\n{}\n</main></body></html>\n").format(title, Markup(fragment)))


def _shown(lineage: Lineage, number: int, step: Step, programs: Mapping[str, Program], diff_html: DiffHtml) -> Shown:
    assert step.after is not None
    optimized = _emitted_of(lineage, step.before)
    return Shown(
        number=number,
        step=step,
        before=step.after,
        after=step.before,
        speedup=speedups(step),
        measured=measured_speedups(step),
        diff=Markup(diff_html(programs[step.after.text], programs[step.before.text])),
        code=_lines(step.emitted, optimized),
        emitted=optimized,
        gate=verdict_rows(step.gate),
        residue=step.residue_bytes,
    )


def _emitted_of(lineage: Lineage, state: State) -> str:
    """The source that was emitted for a state: its own step's, or the expert's."""
    for step in lineage.accepted:
        if step.after is not None and step.after.content == state.content:
            return step.emitted
    return lineage.start_emitted


def _lines(before: str, after: str) -> tuple[Line, ...]:
    """A unified diff with three lines around each change."""
    rows = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    return tuple(Line("…", "") if row.startswith("@@") else Line(row[:1], row[1:]) for row in list(rows)[2:])


def _grouped(rejected: Sequence[Step]) -> tuple[Group, ...]:
    counts = Counter((step.backward, step.stage, step.reason) for step in rejected)
    first = {(step.backward, step.stage, step.reason): step for step in reversed(rejected)}
    return tuple(Group(first[key], count) for key, count in counts.items())


def _overall(lineage: Lineage) -> tuple[tuple[str, float], ...]:
    """Modelled speedup of the expert over the naive program, by target."""
    slow, fast = lineage.states[-1].modelled, lineage.start.modelled
    return tuple((target, slow[target] / fast[target]) for target in sorted(slow) if fast.get(target))
