"""3x3 convolution in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _convolve(x: Array, w: Array) -> Array:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = x.shape[1:3]
    out = np.zeros((*x.shape[:3], w.shape[0]))
    for r in range(3):
        for s in range(3):
            out += padded[:, r:r + height, s:s + width] @ w[:, r, s].T
    return out


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """Y [N, H, W, F]."""
    return {"Y": _convolve(inputs["X"], inputs["Wt"])}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`products`: the convolution of magnitudes, what the rounding error of a sum of products scales with."""
    return {"products": {"Y": _convolve(np.abs(inputs["X"]), np.abs(inputs["Wt"]))}}
