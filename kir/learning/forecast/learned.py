"""The learned forecaster: the shipped model over the analytic terms and the structure of a pair. It needs NumPy alone, no torch and no LightGBM.

    Learned()(Pair(before, after, {"M": 4096, "N": 4096, "K": 4096}, target("h200"), "stage-shared{..}@main/A"))
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path

from kir.learning.forecast.analytic import UNKNOWN, outside_facts
from kir.learning.forecast.comparison import Compared, Side, opposite
from kir.learning.forecast.distribution import Forecast, Kept, Pair, Reason
from kir.learning.forecast.features import State, state
from kir.learning.forecast.model import Model

SHIPPED = "forecast/effects.model"
"""The model that comes with KIR, in `skills/`."""
SPAN = 4.0
"""A pair of which nothing narrower than this factor can be said (from end to end of the 80 % interval) is one that the model does not know."""
REASON = 1e-7
"""Seconds that a resource must move to be a reason."""


def shipped() -> Path:
    """The file of the model that comes with KIR."""
    return Path(str(resources.files("kir.skills"))) / SHIPPED


class Learned:
    """A forecaster over a model file, by default the shipped one. Raises KirError KIR-E005 for a file that does not fit."""

    name = "learned"

    def __init__(self, path: Path | None = None, model: Model | None = None) -> None:
        self.model = model if model is not None else Model.read(path or shipped())
        self.compared = Compared(self.model.names)
        self._known = Kept[Side]()

    def __call__(self, pair: Pair) -> Forecast:
        """The forecast. Raises KirError KIR-E007 for sizes that are no launch."""
        before, after = (self._state(pair, i) for i in (0, 1))
        seen = self.compared.pair(before, after, pair.step, pair.surface, pair.target)
        turned = self.compared.pair(after, before, opposite(pair.step), pair.surface, pair.target)
        logs, fails, own, speed = self.model.answers(seen[None], turned[None])
        found, a, b = tuple(logs[0].tolist()), before.state, after.state
        if beyond := outside_facts(pair):
            middle = found[self.model.levels.index(0.5)]
            found = tuple(middle + UNKNOWN * (x - middle) for x in found)
        made = Forecast(self.model.levels, found, float(fails[0]), reasons(a, b), self.name, "", (a["t.total"], b["t.total"]), float(speed[0]))
        return replace(made, defer=beyond or self._defers(made, float(own[0]), a, b))

    def _state(self, pair: Pair, side: int) -> Side:
        """The features of one program, worked out once as long as it is asked for again."""
        program, artifact = (pair.before, pair.after)[side], pair.compiled[side]
        return self._known.of(pair, side, lambda: self.compared.side(state(program, pair.sizes, pair.target, pair.surface, artifact)))

    def _defers(self, made: Forecast, own: float, before: State, after: State) -> str:
        if before.get("l.unknown") or after.get("l.unknown"):
            return "the programs hold what is not counted: loops or branches that depend on data"
        if own > self.model.far:
            return f"nothing like it was measured: {own:.2f} spreads from the nearest, and {self.model.far:.2f} is where errors are known"
        low, high = made.interval(0.8)
        if high / low > SPAN:
            return f"too little is known of such a step: 80 % between {low:.2f}x and {high:.2f}x"
        return ""


def reasons(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Reason, ...]:
    """The analytic parts that move, most first."""
    names = [name for name in dict.fromkeys([*before, *after]) if name.startswith("t.") and name != "t.total"]
    found = [Reason(name[2:], before.get(name, 0.0), after.get(name, 0.0)) for name in names]
    moved = [r for r in found if abs(r.after - r.before) >= REASON]
    return tuple(sorted(moved, key=lambda r: -abs(r.after - r.before)))
