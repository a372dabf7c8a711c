"""RMSNorm in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """Y [M, N], and R [M], the reciprocal of each row's root mean square."""
    x = inputs["X"]
    r = 1.0 / np.sqrt((x * x).mean(axis=-1) + sizes["eps"])
    return {"Y": x * r[:, None] * inputs["W"], "R": r}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`weights`: |W|, which an error of the normalized x is multiplied with."""
    return {"weights": {"Y": np.abs(inputs["W"])[None, :]}}
