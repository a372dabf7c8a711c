"""Row softmax in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """exp(x - max) / sum; [M, N]."""
    x = inputs["X"]
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return {"Y": e / e.sum(axis=-1, keepdims=True)}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`exponents`: y (|x| + max |x|), the scale of the error that rounding an exponent makes."""
    x = inputs["X"]
    return {"exponents": {"Y": oracle(inputs, sizes)["Y"] * (np.abs(x) + np.abs(x).max(axis=-1, keepdims=True))}}
