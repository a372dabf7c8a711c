"""Row prefix sums in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """Inclusive sums along the rows; [M, N]."""
    return {"Y": np.cumsum(inputs["X"], axis=-1)}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`chain`: the magnitudes of the prefix sums so far, for a chain rounds each of them once; `peak`: the largest of them, for any partial sum is the
    difference of two."""
    prefix = np.cumsum(inputs["X"], axis=-1)
    return {"chain": {"Y": np.cumsum(np.abs(prefix), axis=-1)}, "peak": {"Y": np.maximum.accumulate(np.abs(prefix), axis=-1)}}
