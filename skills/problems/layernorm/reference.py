"""LayerNorm in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _statistics(x: Array, eps: float) -> tuple[Array, Array]:
    """Mean and reciprocal standard deviation of each row; both [M, 1]."""
    mean = x.mean(axis=-1, keepdims=True)
    return mean, 1.0 / np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + eps)


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """Y [M, N]."""
    mean, r = _statistics(inputs["X"], sizes["eps"])
    return {"Y": (inputs["X"] - mean) * r * inputs["W"] + inputs["B"]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`scaled`: |x - mean| r |W|, the part before the bias. `centered`: what errors of the mean, of differences and of the sum of squares reach."""
    x, w = inputs["X"], np.abs(inputs["W"])
    mean, r = _statistics(x, sizes["eps"])
    size = np.abs(x).mean(axis=-1, keepdims=True)
    scaled = np.abs(x - mean) * r * w
    return {"scaled": {"Y": scaled}, "centered": {"Y": (np.abs(x) + size) * r * w + scaled * (1 + size * r) + np.abs(inputs["B"])}}
