"""What forecasts of measured candidates were wrong by, carried to those that were not measured: the more two have in common, the more."""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from kir.base.dataclass import dataclass

NEARER = 4.0
"""How many times as much a measured candidate counts for each parameter in which it is like the one that is estimated."""
UNTRIED = 0.99
"""What is made of the estimate for each value of a parameter that none of its family had on its surface: a forecast often sees no difference between values
that a device tells apart, and then each gets its turn."""

LEFT_OUT = 1.0
"""How many times worse a candidate is thought of whose plan was left out whole: a plan that is cut short is seldom what was meant."""
ALIKE = 0.02
"""Forecasts whose logarithms differ by less say the same."""


@dataclass(frozen=True)
class Known:
    """A measured candidate: what its plan's family, surface and parameters were, and the logarithm of its time over its forecast."""

    family: str
    surface: str
    point: Mapping[str, Any]
    off: float


def estimated(forecast: float, family: str, surface: str, point: Mapping[str, Any], known: Iterable[Known]) -> float:
    """Forecast seconds, times what forecasts of the same family and surface (else the same surface) were wrong by: the mean of their logarithms, in which
    those count most that differ in the fewest parameters."""
    there = [k for k in known if k.surface == surface]
    kin = [k for k in there if k.family == family]
    if not there:
        return forecast
    weights = [NEARER ** sum(k.point.get(name) == value for name, value in point.items()) for k in kin or there]
    off = sum(w * k.off for w, k in zip(weights, kin or there, strict=True)) / sum(weights)
    return forecast * math.exp(off)


def untried(family: str, surface: str, point: Mapping[str, Any], known: Iterable[Known]) -> float:
    """The factor for values of parameters that no measured candidate of the family had; 1 where nothing of the family was measured."""
    kin = [k for k in known if (k.family, k.surface) == (family, surface)]
    fresh = sum(all(k.point.get(name) != value for k in kin) for name, value in point.items()) if kin else 0
    return UNTRIED**fresh


def promise(seconds: float, share: float, number: int) -> tuple[int, int]:
    """What candidates are ordered by before any is gated: the forecast in steps of `ALIKE`, worse the more of the plan had to be left out (`share`: what was
    taken); then who came first, by `number`: the sources give what they think best first, and a forecast that is a hair shorter is no better word than
    theirs."""
    return round(math.log(seconds * (1 + LEFT_OUT * (1 - share))) / ALIKE), number


__all__ = ["Known", "estimated", "promise", "untried"]
