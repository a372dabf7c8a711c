"""A product in fp8."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    return {"C": inputs["A"] @ inputs["B"]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    a, b = np.abs(inputs["A"]), np.abs(inputs["B"])
    return {"products": {"C": a @ b}, "others": {"C": a.sum(1)[:, None] + b.sum(0)}}
