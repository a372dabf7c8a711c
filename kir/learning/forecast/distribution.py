"""What every forecaster is asked, and how it answers: a pair of programs, and a distribution over the speedup from one to the other."""
from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from html import escape
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

from kir.base.dataclass import dataclass
from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.surface import Artifact

Known = TypeVar("Known")
MOST = 512
"""Programs that a forecaster keeps what it has worked out of."""
BINS = (0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)
"""Upper ends of all but the last of the eight bins of speedup (arXiv 2605.31464)."""


@dataclass(frozen=True)
class Pair:
    """Two programs that compute the same, to be run at `sizes` on `target`. `step` is the text of the step between them where there is one;
    `compiled` are their artifacts where they are at hand. `shape` names the sizes."""

    before: Program
    after: Program
    sizes: Mapping[str, int]
    target: Target
    step: str = ""
    surface: str = "cuda"
    compiled: tuple[Artifact | None, Artifact | None] = (None, None)


@dataclass(frozen=True)
class Reason:
    """A resource that the step moves: its share of the time before and after, both in seconds."""

    resource: str
    before: float
    after: float


@dataclass(frozen=True)
class Forecast:
    """A distribution over the speedup (time before over time after) of a step that works, as quantiles of its natural logarithm at `levels`,
    rising, and how likely it does not work at all (`fails`, 0 to 1). `defer` says why it should not be relied on ("" when it may)."""

    levels: tuple[float, ...]
    logs: tuple[float, ...]
    fails: float = 0.0
    reasons: tuple[Reason, ...] = ()
    model: str = "analytic"
    defer: str = ""
    seconds: tuple[float, float] = field(default=(math.nan, math.nan))
    """Seconds that the two programs are thought to take, where the model has them."""
    speed: float = math.nan
    """The logarithm by which candidates are put in order, where it is another than that of the median."""

    def quantile(self, level: float) -> float:
        """The speedup that is not exceeded with probability `level`, 0 to 1; linear in the logarithm between levels, flat beyond them."""
        return math.exp(_between(self.levels, self.logs, level))

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    def interval(self, share: float) -> tuple[float, float]:
        """The central interval that holds `share` of the distribution."""
        return self.quantile((1 - share) / 2), self.quantile((1 + share) / 2)

    def below(self, speedup: float) -> float:
        """The probability that the speedup is below a value, given that the step works."""
        at = math.log(speedup)
        if at <= self.logs[0]:
            return self.levels[0] if at == self.logs[0] else 0.0
        if at >= self.logs[-1]:
            return 1.0
        return _between(self.logs, self.levels, at)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        low, high = self.interval(0.8)
        said = f"{self.median:.3g}x ({low:.3g}x to {high:.3g}x), fails with {self.fails:.0%}, by the {self.model} model"
        rows = "".join(f"<tr><td>{escape(r.resource)}</td><td>{r.before * 1e6:.2f} µs</td><td>{r.after * 1e6:.2f} µs</td></tr>" for r in self.reasons[:6])
        head = "<tr><th>resource</th><th>before</th><th>after, modelled</th></tr>"
        unsure = f"<p>not to be relied on: {escape(self.defer)}</p>" if self.defer else ""
        return {"text/plain": said, "text/html": f"<p><b>{escape(said)}</b></p>{unsure}<table>{head}{rows}</table>"}

    @property
    def pays(self) -> str:
        """Whether the step is worth its while, judged as every profit precondition is: "yes" where 80 % of what is possible lies above 1x and it is likely to
        work, "no" where they lie below or it is likely to fail, "unsure" for anything else and for a forecast that defers."""
        low, high = self.interval(0.8)
        if self.fails > 0.5:
            return "no"
        return "unsure" if self.defer or low <= 1.0 <= high else "yes" if low > 1.0 else "no"

    @property
    def bins(self) -> tuple[float, ...]:
        """Probabilities of the eight bins."""
        ends = [0.0, *(self.below(b) for b in BINS), 1.0]
        return tuple(b - a for a, b in pairwise(ends))


class Kept(Generic[Known]):
    """What forecasters have worked out of programs, kept as long as it is asked for again: at most `MOST` of them, by program, artifact, sizes, target and
    surface. A program is kept too, so that its number stays its own."""

    def __init__(self) -> None:
        self._held: OrderedDict[Any, tuple[Any, Known]] = OrderedDict()

    def of(self, pair: Pair, side: int, make: Callable[[], Known], also: object = None) -> Known:
        """What `make` makes of one side of a pair, worked out once; `also` tells apart what differs otherwise."""
        program, artifact = (pair.before, pair.after)[side], pair.compiled[side]
        key = (id(program), id(artifact), tuple(pair.sizes.items()), pair.target.name, pair.surface, also)
        held = self._held.get(key)
        if held is None:
            held = ((program, artifact), make())
            self._held[key] = held
            if len(self._held) > MOST:
                self._held.popitem(last=False)
        else:
            self._held.move_to_end(key)
        return held[1]


class Forecaster(Protocol):
    """A model of what a step brings. Pure: the same pair gives the same forecast."""

    @property
    def name(self) -> str:
        """What it is called where its forecasts are shown."""
        ...

    def __call__(self, pair: Pair) -> Forecast:
        """The forecast of a pair. Raises KirError for sizes that are not a launch."""
        ...


def _between(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """`ys` at `x`, linear between the rising `xs`, flat beyond them."""
    if x <= xs[0]:
        return ys[0]
    for a, b, low, high in zip(xs, xs[1:], ys, ys[1:], strict=False):
        if x <= b:
            return low + (high - low) * (x - a) / (b - a) if b > a else high
    return ys[-1]
