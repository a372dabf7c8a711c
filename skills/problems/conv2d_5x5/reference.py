"""5x5 convolution in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _convolve(x: Array, w: Array, shape: tuple[int, ...]) -> Array:
    """The convolution with zeros around the images; [N, P, Q, F]."""
    padded = np.pad(x, ((0, 0), (2, 5), (2, 5), (0, 0)))
    rows, columns = shape
    out = np.zeros((x.shape[0], rows, columns, w.shape[0]))
    for r in range(5):
        for s in range(5):
            out += padded[:, r:r + 1 * rows:1, s:s + 1 * columns:1] @ w[:, r, s].T
    return out


def _shape(sizes: Mapping[str, float]) -> tuple[int, ...]:
    return int(sizes["P"]), int(sizes["Q"])


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """Y [N, P, Q, F]."""
    return {"Y": _convolve(inputs["X"], inputs["Wt"], _shape(sizes))}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`products`: the convolution of magnitudes, what the rounding error of a sum of products scales with."""
    return {"products": {"Y": _convolve(np.abs(inputs["X"]), np.abs(inputs["Wt"]), _shape(sizes))}}
