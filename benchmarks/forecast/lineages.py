"""Stored lineages whose steps were measured: how many of the measured effects lie inside the 80 % interval that their report shows beside them."""
from __future__ import annotations

from pathlib import Path

from kir.faces.report.shown import held, shown
from kir.lineage.records.folder import Folder

LINEAGES = Path(__file__).parents[2] / "skills" / "lineages"


def lines(folder: Path = LINEAGES) -> list[str]:
    """A table, by the shipped model at the shape that each record models; nothing where none was measured."""
    rows, every = [], (0, 0)
    for path in sorted(folder.glob("*/lineage.json")):
        stored = Folder(path.parent)
        lineage = stored.read()
        if not any(state.measured for state in lineage.states):
            continue
        inside, measured = held(shown(lineage, stored, lambda before, after: ""))
        if measured:
            rows.append(f"| `{path.parent.name}` | {measured} | {inside} | {100 * inside / measured:.1f} % |")
            every = every[0] + inside, every[1] + measured
    if not rows:
        return []
    return ["| lineage | measured steps | inside the interval | |", "| --- | ---: | ---: | ---: |", *rows,
            f"| all | {every[1]} | {every[0]} | {100 * every[0] / every[1]:.1f} % |"]
