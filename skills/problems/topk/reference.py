"""Top-K by sorting."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """V [R, K] descending and I [R, K], ties by the lower index."""
    index = np.argsort(-inputs["X"], axis=-1, kind="stable")[:, :int(sizes["K"])]
    return {"V": np.take_along_axis(inputs["X"], index, axis=-1), "I": index}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """None: selection rounds nothing."""
    return {}
