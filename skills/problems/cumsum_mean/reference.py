"""Means of all that came before, in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _means(sums: Array) -> Array:
    """Running sums, each divided by how many it is of."""
    counts = np.arange(1, sums.shape[1] + 1)
    found: Array = sums / counts[:, None]
    return found


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """Y, of X's shape."""
    return {"Y": _means(np.cumsum(inputs["X"], axis=1))}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`mean`: the magnitude of the result; `chain`: the magnitudes of the prefix sums so far, for a chain rounds each of them once; `peak`: the largest of
    them, for any partial sum is the difference of two."""
    prefix = np.abs(np.cumsum(inputs["X"], axis=1))
    return {"mean": {"Y": _means(prefix)}, "chain": {"Y": _means(np.cumsum(prefix, axis=1))}, "peak": {"Y": _means(np.maximum.accumulate(prefix, axis=1))}}
