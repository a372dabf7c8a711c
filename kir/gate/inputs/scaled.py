"""By what inputs are multiplied: so that outputs come to where a program says a number of its own (a clamp of what is summed shows nowhere else), or that they
do not overflow."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kir.problem.draws import times

Array = NDArray[Any]
MOST_TRIES, BEYOND, NEAR = 4, 1.5, 1.02
"""Runs that are made to find a factor, how far beyond a number outputs should come, and how far they must."""
LEAST_DEGREE = 0.25


SMALLER = (0.125, 0.015625)
"""What usual inputs are multiplied by where a program runs away with them."""
R = TypeVar("R", bound="_Ran")


class _Ran(Protocol):
    @property
    def outputs(self) -> Mapping[str, Array]: ...


def held_back(run: Callable[[dict[str, Array]], R], arrays: dict[str, Array], floats: Sequence[str], result: R) -> tuple[dict[str, Array], R]:
    """Inputs and what a program makes of them; inputs that are smaller where results of the usual ones are not finite, and those of the smaller ones are:
    a recurrence overflows that is given an inverse of numbers of size 1 to carry on, and what has overflowed tells nothing of the rest."""
    for by in SMALLER if floats and not _is_finite(result.outputs) else ():
        smaller = {**arrays, **{name: times(arrays[name], by) for name in floats}}
        if _is_finite((tame := run(smaller)).outputs):
            return smaller, tame
    return arrays, result


def _is_finite(outputs: Mapping[str, Array]) -> bool:
    return all(bool(np.isfinite(a.astype(np.float64)).all()) for a in outputs.values() if a.dtype.kind not in "iub")


def factor(outputs: Callable[[float], Mapping[str, Array]], value: float) -> float | None:
    """A factor of the inputs at which outputs lie beyond `value`, on its side of zero, and all within what their dtypes hold; None where none is found, as
    of outputs that do not grow with the inputs. `outputs` gives them for inputs times a factor, none where they say nothing."""
    at, before = 2.0, (1.0, _most(outputs(1.0), value))
    for _ in range(MOST_TRIES):
        found = outputs(at)
        most, limit = _most(found, value), _limit(found)
        if before[1] <= 0 or most <= 0 or limit <= NEAR * abs(value) or at == before[0]:
            return None
        if most > NEAR * abs(value):
            return at
        degree = math.log(most / before[1]) / math.log(at / before[0])
        if degree < LEAST_DEGREE:
            return None
        before = (at, most)
        at = float(f"{at * (min(BEYOND * abs(value), math.sqrt(abs(value) * limit)) / most) ** (1 / degree):.4g}")
    return None


def _most(arrays: Mapping[str, Array], value: float) -> float:
    """The largest on one side of zero; 0 where some are not finite."""
    floats = [a.astype(np.float64) for a in arrays.values() if a.dtype.kind not in "iub" and a.size]
    if not all(np.isfinite(a).all() for a in floats):
        return 0.0
    return max((float(np.max(a if value > 0 else -a)) for a in floats), default=0.0)


def _limit(arrays: Mapping[str, Array]) -> float:
    return min((float(ml_dtypes.finfo(a.dtype).max) for a in arrays.values() if a.dtype.kind not in "iub"), default=0.0)
