"""The chain as a picture: geometry of the states, the steps between them and one curve of time for each device and target.

Only numbers and words are computed here, in SVG user units; the template draws them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kir.base.dataclass import dataclass
from kir.lineage.records.record import Lineage

LEFT, RIGHT, TOP, LABELS = 64.0, 104.0, 22.0, 122.0
HEIGHT = 210.0
LEAST_STEP, WIDTH = 46.0, 900.0
TURN, LINE = 38, 12.5
"""Degrees by which words under the picture are turned at least, and how far apart their lines are."""


@dataclass(frozen=True)
class Dot:
    """A state on a curve: place, and what a pointer resting on it is told."""

    x: float
    y: float
    title: str


@dataclass(frozen=True)
class Curve:
    """One quantity over the states: a device's measured time, a target's modelled time (dashed, with hollow dots), or the number of IR nodes. `second`: in the
    other color, so that neighbors differ."""

    name: str
    dots: tuple[Dot, ...]
    dashed: bool
    second: bool = False

    @property
    def points(self) -> str:
        return " ".join(f"{dot.x:.1f},{dot.y:.1f}" for dot in self.dots)


@dataclass(frozen=True)
class Edge:
    """A transition: the middle of its place on the axis, its number and intent, and whether the compiled code is known to change."""

    x: float
    number: int
    intent: str
    realized: bool


@dataclass(frozen=True)
class Tick:
    """A line across the picture: its height, and what stands beside it."""

    y: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Everything the picture shows. ``unit`` says what the curves measure; ``scale`` is how much wider the picture is than the page, by which
    letters and margins grow, so that a long chain is as readable as a short one; ``turn`` the degrees by which words under it are turned, more where there are
    so many that they would lie on one another."""

    width: float
    height: float
    left: float
    right: float
    base: float
    states: tuple[tuple[float, str], ...]
    edges: tuple[Edge, ...]
    curves: tuple[Curve, ...]
    ticks: tuple[Tick, ...]
    unit: str
    scale: float = 1.0
    turn: int = TURN


def chart(lineage: Lineage) -> Chart:
    """The picture of a lineage, naive on the left and the expert on the right."""
    states = tuple(reversed(lineage.states))
    count = len(states)
    scale = max(1.0, (count - 1) * LEAST_STEP / (WIDTH - LEFT - RIGHT))
    left, right, top = LEFT * scale, RIGHT * scale, TOP * scale
    step = (WIDTH * scale - left - right) / max(1, count - 1)
    xs = [left + step * index for index in range(count)]
    height = HEIGHT * max(1.0, 0.75 * scale)
    base = top + height
    targets = sorted({target for state in states for target in state.modelled})
    series: list[tuple[str, list[float | None]]] = [(f"{target}, modelled", [state.modelled.get(target) for state in states]) for target in targets]
    devices = sorted({device for state in states for device in state.measured})
    series = [(f"{device}, measured", [state.measured[device][0] if device in state.measured else None for state in states]) for device in devices] + series
    timed = any(value for _, values in series for value in values)
    if not timed:
        series = [("IR nodes", [float(state.nodes) for state in states])]
    low, high = _range([value for _, values in series for value in values if value])
    curves = tuple(
        Curve(
            name,
            tuple(
                Dot(x, top + height * _depth(value, low, high), f"K{index}, {name}: {seconds(value) if timed else f'{value:g}'}")
                for index, (x, value) in enumerate(zip(xs, values, strict=True))
                if value
            ),
            name.endswith(", modelled"),
            order % 2 == 1,
        )
        for order, (name, values) in enumerate(series)
    )
    edges = tuple(
        Edge((xs[number - 1] + xs[number]) / 2, number, each.intent, bool(each.realization and each.realization.realized))
        for number, each in lineage.transitions()
    )
    ticks = tuple(Tick(top + height * _depth(value, low, high), seconds(value) if timed else f"{value:g}") for value in _decades(low, high))
    marks = tuple((x, f"K{index}") for index, x in enumerate(xs))
    unit = f"{'' if devices else 'modelled '}time, log scale" if timed else "IR nodes, log scale"
    turn = max(TURN, math.ceil(math.degrees(math.asin(min(1.0, LINE * scale / step)))))
    labels = LABELS * math.sin(math.radians(turn)) / math.sin(math.radians(TURN))
    return Chart(xs[-1] + right, base + labels * scale, left, xs[-1], base, marks, edges, curves, ticks, unit, scale, turn)


def seconds(value: float) -> str:
    """A duration with three digits and a unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def times(value: float) -> str:
    """A ratio with three digits: ``1.26x``, ``303x``, ``1,260x``."""
    return f"{value:,.0f}x" if value >= 1000 else f"{value:.3g}x"


def _range(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 1.0, 10.0
    low, high = min(values), max(values)
    return (low / 1.3, high * 1.3)


def _depth(value: float, low: float, high: float) -> float:
    """How far below the top of the picture a value lies, as a part of its height."""
    span = math.log(high) - math.log(low)
    return 1 - (math.log(value) - math.log(low)) / span


def _decades(low: float, high: float) -> tuple[float, ...]:
    """Round values inside the range: powers of ten, with 2 and 5 between them where the range is narrow."""
    factors = (1, 2, 5) if high / low < 200 else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    return tuple(value for value in found if low < value < high)
