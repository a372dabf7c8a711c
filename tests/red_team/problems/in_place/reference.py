"""In place."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    return {"X": 2 * inputs["X"] + inputs["B"]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    return {"terms": {"X": 2 * np.abs(inputs["X"]) + np.abs(inputs["B"])}}
