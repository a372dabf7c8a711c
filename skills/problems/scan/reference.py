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
    """`terms`: the largest partial sum of |x| that a term of the prefix went through, as its Euclidean norm."""
    return {"terms": {"Y": np.sqrt(np.cumsum(np.square(inputs["X"]), axis=-1))}}
