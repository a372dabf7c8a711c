"""Softmax with a mask."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    x = inputs["X"] + inputs["MASK"]
    e = np.exp(x - x.max(1, keepdims=True))
    return {"Y": e / e.sum(1, keepdims=True)}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    return {}
