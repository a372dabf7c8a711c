"""Lineages side by side, of one problem or of several: intents in rows, lineages in columns, one HTML file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.faces.report.chart import Chart, chart
from kir.faces.report.roofline import Roof, roofline
from kir.faces.report.shown import DiffHtml, Shown, held, render, shown
from kir.lineage.convergence import form_hashes
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage


@dataclass(frozen=True)
class Cell:
    """What one lineage has of one intent: its steps (none where it has no such step), and their modelled speedup together, by target."""

    steps: tuple[Shown, ...]
    speedup: Mapping[str, float]

    @property
    def realized(self) -> int:
        return sum(each.realized for each in self.steps)

    @property
    def compiled(self) -> int:
        return sum(each.compiled for each in self.steps)


@dataclass(frozen=True)
class Row:
    """An intent and its cells, a column each, with its number on the page."""

    intent: str
    claim: str
    cells: tuple[Cell, ...]
    number: int = 0


@dataclass(frozen=True)
class Column:
    """One lineage: its picture, its figures, the number of the naive program that it meets (columns with one number meet), and how many of its measured
    steps lie inside the interval that was forecast."""

    lineage: Lineage
    chart: Chart
    roofs: tuple[Roof, ...]
    end: int
    compiled: int
    intents: int
    overall: tuple[tuple[str, float], ...]
    naive: str
    held: tuple[int, int]
    number: int
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """The lineages of one problem: their columns, the intents of any of them, how many of those are in all, and whether they end in one program."""

    problem: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    shared: int
    one: bool


def surfaces(lineages: Sequence[tuple[Lineage, Folder]], diff_html: DiffHtml, said: Mapping[str, Sequence[str]] | None = None) -> str:
    """The HTML of the comparison. ``diff_html`` renders the structural difference of two programs as an HTML fragment; ``said`` holds, by the names of
    folders, sentences to show with a lineage (what was measured elsewhere, say)."""
    steps = [shown(lineage, folder, diff_html) for lineage, folder in lineages]
    ends = form_hashes([folder.program(lineage.states[-1]) for lineage, folder in lineages])
    numbers = {each: number for number, each in enumerate(dict.fromkeys(ends), start=1)}
    problems = [*dict.fromkeys(lineage.header.problem or "no problem" for lineage, _ in lineages)]
    columns = [_column(lineage, folder, numbers[at], own, place, tuple((said or {}).get(folder.root.name, ())))
               for place, ((lineage, folder), at, own) in enumerate(zip(lineages, ends, steps, strict=True), start=1)]
    blocks, first = list[Block](), 1
    for problem in problems:
        mine = [i for i, (lineage, _) in enumerate(lineages) if (lineage.header.problem or "no problem") == problem]
        rows = tuple(replace(row, number=number) for number, row in enumerate(intent_rows([steps[i] for i in mine]), start=first))
        first += len(rows)
        shared = sum(all(cell.steps for cell in row.cells) for row in rows)
        blocks.append(Block(problem, tuple(columns[i] for i in mine), rows, shared, len({ends[i] for i in mine}) == 1))
    return render("surfaces.html.j2", {
        "columns": columns, "blocks": blocks, "problems": problems, "one": all(each.one for each in blocks), "end": ends[0],
        "naive": all(lineage.outcome.ended == "naive" for lineage, _ in lineages),
        "written": sorted({lineage.header.surface for lineage, _ in lineages}),
    })


def intent_rows(columns: Sequence[Sequence[Shown]]) -> tuple[Row, ...]:
    """A row for each intent of any column, in the order in which naive programs become fast: by the mean place of its first step."""
    places: dict[str, list[float]] = {}
    for steps in columns:
        first: dict[str, int] = {}
        for index, each in enumerate(steps):
            first.setdefault(each.step.intent, index)
        for intent, index in first.items():
            places.setdefault(intent, []).append(index / max(1, len(steps)))
    order = sorted(places, key=lambda intent: (math.fsum(places[intent]) / len(places[intent]), intent))
    rows = []
    for intent in order:
        cells = tuple(_cell([each for each in steps if each.step.intent == intent]) for steps in columns)
        claim = next(each.step.claim for cell in cells for each in cell.steps)
        rows.append(Row(intent, claim, cells))
    return tuple(rows)


def _cell(steps: Sequence[Shown]) -> Cell:
    targets = sorted({target for each in steps for target in each.speedup})
    return Cell(tuple(steps), {target: math.prod(each.speedup.get(target, 1.0) for each in steps) for target in targets})


def _column(lineage: Lineage, folder: Folder, end: int, steps: Sequence[Shown], number: int, said: tuple[str, ...]) -> Column:
    slow, fast = lineage.states[-1].modelled, lineage.start.modelled
    overall = tuple((target, slow[target] / fast[target]) for target in sorted(slow) if fast.get(target))
    intents = len({each.step.intent for each in steps if each.realized})
    compiled = sum(each.compiled for each in steps)
    naive = folder.store.get(lineage.states[-1].text)
    return Column(lineage, chart(lineage), roofline(lineage), end, compiled, intents, overall, naive, held(steps), number, said)
