"""By what inputs are multiplied so that outputs come to where a program says a number of its own: a clamp of what is summed shows nowhere else."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MOST_TRIES, BEYOND, NEAR = 4, 1.5, 1.02
"""Runs that are made to find a factor, how far beyond a number outputs should come, and how far they must."""
LEAST_DEGREE = 0.25


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
