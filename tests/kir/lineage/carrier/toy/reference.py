"""Prefix sums, in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """P [N] and S [1]."""
    sums = np.cumsum(inputs["X"])
    return {"P": sums, "S": sums[-1:]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`absolute`: the sums of magnitudes."""
    sums = np.cumsum(np.abs(inputs["X"]))
    return {"absolute": {"P": sums, "S": sums[-1:]}}
