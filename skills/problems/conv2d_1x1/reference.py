"""1x1 convolution in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """Y [N, H, W, F]."""
    return {"Y": inputs["X"] @ inputs["Wt"].T}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`products`: the sums of magnitudes, what the rounding error of a sum of products scales with."""
    return {"products": {"Y": np.abs(inputs["X"]) @ np.abs(inputs["Wt"]).T}}
