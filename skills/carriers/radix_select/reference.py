"""Selection by sorting."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """V [K] descending and I [K], ties by the lower index."""
    index = np.argsort(-inputs["X"], kind="stable")[:int(sizes["K"])]
    return {"V": inputs["X"][index], "I": index}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """None: selection rounds nothing."""
    return {}
