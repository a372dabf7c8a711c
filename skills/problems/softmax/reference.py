"""Row softmax in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """exp(x - max) / sum; [M, N]. An element -inf has no weight; a row of nothing else has no answer (NaN)."""
    x = inputs["X"]
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
    return {"Y": e / e.sum(axis=-1, keepdims=True)}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`exponents`: y (|x| + max |x|), the scale of the error that rounding an exponent makes; an element -inf makes none."""
    x = inputs["X"]
    size = np.where(np.isfinite(x), np.abs(x), 0.0)
    return {"exponents": {"Y": oracle(inputs, sizes)["Y"] * (size + size.max(axis=-1, keepdims=True))}}
