"""16x16 patches, each projected in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _convolve(x: Array, w: Array, shape: tuple[int, ...]) -> Array:
    """The convolution with no border; [N, P, Q, F]."""
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 0)))
    rows, columns = shape
    out = np.zeros((x.shape[0], rows, columns, w.shape[0]))
    for r in range(16):
        for s in range(16):
            out += padded[:, r:r + 16 * rows:16, s:s + 16 * columns:16] @ w[:, r, s].T
    return out


def _shape(sizes: Mapping[str, float]) -> tuple[int, ...]:
    return int(sizes["P"]), int(sizes["Q"])


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """Y [N, P, Q, F]."""
    return {"Y": _convolve(inputs["X"], inputs["Wt"], _shape(sizes))}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`products`: the convolution of magnitudes, what the rounding error of a sum of products scales with."""
    return {"products": {"Y": _convolve(np.abs(inputs["X"]), np.abs(inputs["Wt"]), _shape(sizes))}}
