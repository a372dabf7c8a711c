"""The states of a lineage under a roofline, one picture a target.

Every state does the same work, so the work is named once: `W`, the least seconds that the matrix and arithmetic units of any state need at
their peak. A state stands at `x = W / (seconds that its DRAM traffic needs)`, its intensity in units of the ridge, and `y = W / seconds`, the
part of the peak that it reaches; the roof is `min(1, x)`. So no figure of a device enters but those of the model. Geometry only, in SVG units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kir.base.dataclass import dataclass
from kir.lineage.records.record import Lineage

SIDE, LEFT, TOP, BOTTOM = 240.0, 56.0, 22.0, 40.0
UNITS = ("tensor", "fma", "half", "double", "special", "scalar")
"""Resources that compute; `scalar` is what older records call all but the first and the last."""


@dataclass(frozen=True)
class Point:
    """A state under the roof: its place, its name, and what a pointer resting on it is told."""

    x: float
    y: float
    name: str
    title: str


@dataclass(frozen=True)
class Roof:
    """One target's picture: the roof's three corners as SVG points, the states from naive to expert, ticks as (place, text)."""

    target: str
    roof: str
    points: tuple[Point, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    ends: tuple[str, str] = ("naive", "expert")
    width: float = LEFT + SIDE + 22
    height: float = TOP + SIDE + BOTTOM
    left: float = LEFT
    right: float = LEFT + SIDE
    top: float = TOP
    bottom: float = TOP + SIDE

    @property
    def path(self) -> str:
        return " ".join(f"{p.x:.1f},{p.y:.1f}" for p in self.points)


def roofline(lineage: Lineage) -> tuple[Roof, ...]:
    """A picture for each target whose states were all profiled; none for a program that computes or moves nothing."""
    records = (lineage.start_gate, *(step.gate for step in lineage.accepted))
    rows = [_by_target(record) for record in reversed(records)]
    ends = ("naive" if lineage.outcome.ended == "naive" else "K0", "expert")
    made = (roof_of(target, [row[target] for row in rows], ends) for target in sorted(rows[-1]) if all(target in row for row in rows))
    return tuple(roof for roof in made if roof is not None)


def _by_target(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The first modelled row of each target."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in record.get("profile") or ():
        if row.get("kind", "modelled") == "modelled" and row.get("parts"):
            found.setdefault(row["target"], row)
    return found


def roof_of(target: str, rows: Sequence[Mapping[str, Any]], ends: tuple[str, str] = ("naive", "expert")) -> Roof | None:
    """The picture of states as the cost model has them: each with its `parts` and `seconds`, in seconds, and what it is `bound_by`. None where a state
    computes nothing or moves nothing. `ends` name the first and the last."""
    work = min(sum(float(row["parts"].get(unit, 0.0)) for unit in UNITS) for row in rows)
    moved = [float(row["parts"].get("dram", 0.0)) for row in rows]
    if not work or not all(moved):
        return None
    places = [(work / dram, work / float(row["seconds"])) for dram, row in zip(moved, rows, strict=True)]
    low_x, high_x = min(0.1, *(x for x, _ in places)) / 1.5, max(10.0, *(x for x, _ in places)) * 1.5
    low_y = min(0.05, *(y for _, y in places)) / 1.5

    def across(x: float) -> float:
        return LEFT + SIDE * math.log(x / low_x) / math.log(high_x / low_x)

    def up(y: float) -> float:
        return TOP + SIDE * (1 - math.log(y / low_y) / math.log(1.3 / low_y))

    points = tuple(
        Point(across(x), up(y), f"K{k}", f"K{k}: {y:.3g} of the peak, at {x:.3g} times the ridge's intensity; bound by {rows[k]['bound_by']}")
        for k, (x, y) in enumerate(places)
    )
    corner = max(low_x, low_y)
    roof = f"{across(corner):.1f},{up(corner):.1f} {across(1.0):.1f},{up(1.0):.1f} {across(high_x):.1f},{up(1.0):.1f}"
    ticks = [10.0**k for k in range(-12, 12)]
    return Roof(target, roof, points, tuple((across(t), f"{t:g}") for t in ticks if low_x <= t <= high_x),
                tuple((up(t), f"{100 * t:g} %") for t in ticks if low_y <= t <= 1.0), ends)
