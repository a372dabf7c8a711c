"""Rows scaled and shifted by their sum."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    x = inputs["X"]
    return {"Y": x * inputs["W"] + x.sum(axis=-1, keepdims=True)}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    x = np.abs(inputs["X"])
    return {"row": {"Y": x * np.abs(inputs["W"]) + x.sum(axis=-1, keepdims=True)}}
