"""The report of a lineage: one HTML file with its style, script and picture inside, readable on screen and on paper."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib import resources

from markupsafe import Markup

from kir.base.dataclass import dataclass
from kir.faces.plain.form import plain
from kir.faces.report.chart import chart
from kir.faces.report.roofline import roofline
from kir.faces.report.shown import DiffHtml, held, render, shown
from kir.faces.report.verdict import verdict_rows
from kir.ir.printer import program_text
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage, Step
from kir.lineage.replay import Replayed


@dataclass(frozen=True)
class Group:
    """Rejected attempts that fell for the same reason at the same stage."""

    step: Step
    count: int


def page(lineage: Lineage, folder: Folder, diff_html: DiffHtml, replayed: Replayed | None = None) -> str:
    """The HTML of the whole report. ``diff_html`` renders the structural difference of two programs as an HTML fragment."""
    steps = shown(lineage, folder, diff_html)
    return render("lineage.html.j2", {
        "lineage": lineage,
        "header": lineage.header,
        "outcome": lineage.outcome,
        "chart": chart(lineage),
        "roofs": roofline(lineage),
        "steps": steps,
        "rejected": _grouped(lineage.rejected),
        "rejected_count": len(lineage.rejected),
        "compiled": sum(each.compiled for each in steps),
        "uncompiled": next((each.step.realization.reason for each in steps if each.step.realization and not each.compiled), ""),
        "intents": len({each.step.intent for each in steps if each.realized}),
        "held": held(steps),
        "overall": _overall(lineage),
        "overall_measured": _measured(lineage),
        "naive": folder.store.get(lineage.states[-1].text),
        "plain": _plain(lineage, folder),
        "expert": folder.store.get(lineage.start.text),
        "naive_code": lineage.accepted[-1].emitted if lineage.accepted else "",
        "expert_code": lineage.start_emitted,
        "expert_gate": verdict_rows(lineage.start_gate),
        "replayed": replayed,
    })


def _plain(lineage: Lineage, folder: Folder) -> str:
    """The naive program in plain words; "" where the walk ended before it."""
    return program_text(plain(folder.program(lineage.states[-1]))).rstrip() if lineage.outcome.ended == "naive" else ""


def picture(lineage: Lineage) -> str:
    """The chain of a lineage alone, as an SVG file for a page of one's own, in light colors."""
    style = (resources.files("kir.faces.report") / "style.css").read_text(encoding="utf-8")
    light = re.search(r":root \{.*?\n\}", style, re.S)
    own = [line for line in style.splitlines() if line.startswith(("svg ", ".grid-line", ".curve", ".dot", ".edge"))]
    colors = "svg .one { fill: var(--accent); } svg .two { fill: var(--accent-2); }"
    told = Markup("\n".join([light[0] if light else "", *own, colors]))
    return render("picture.svg.j2", {"chart": chart(lineage), "naive": lineage.outcome.ended == "naive", "light": told}).strip() + "\n"


def alone(title: str, fragment: str) -> str:
    """An HTML fragment as a file of its own, in the report's style."""
    style = (resources.files("kir.faces.report") / "style.css").read_text(encoding="utf-8")
    head = Markup('<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{}</title><style>\n{}</style></head>\n').format(title, Markup(style))
    return str(head + Markup("<body><main><h1>{}</h1>\n{}\n</main></body></html>\n").format(title, Markup(fragment)))


def _grouped(rejected: Sequence[Step]) -> tuple[Group, ...]:
    counts = Counter((step.backward, step.stage, step.reason) for step in rejected)
    first = {(step.backward, step.stage, step.reason): step for step in reversed(rejected)}
    return tuple(Group(first[key], count) for key, count in counts.items())


def _measured(lineage: Lineage) -> tuple[tuple[str, float], ...]:
    """Measured speedup of the expert over the naive program, by device."""
    slow, fast = lineage.states[-1].measured, lineage.start.measured
    return tuple((device, slow[device][0] / fast[device][0]) for device in sorted(slow) if device in fast and fast[device][0])


def _overall(lineage: Lineage) -> tuple[tuple[str, float], ...]:
    """Modelled speedup of the expert over the naive program, by target."""
    slow, fast = lineage.states[-1].modelled, lineage.start.modelled
    return tuple((target, slow[target] / fast[target]) for target in sorted(slow) if fast.get(target))
