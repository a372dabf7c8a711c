"""Forward substitution in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _solved(lower: Array, right: Array) -> Array:
    """(I + lower)^-1 right, for a strictly lower `lower` [.., 64, 64] and `right` [.., 64, C]."""
    out = right.copy()
    for i in range(1, lower.shape[-1]):
        out[..., i, :] = right[..., i, :] - (lower[..., i:i + 1, :i] @ out[..., :i, :])[..., 0, :]
    return out


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """X [.., 64, C]."""
    return {"X": _solved(np.tril(inputs["L"], -1), inputs["B"])}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`carried`: (I - |L|)^-1 applied twice to |B|. It bounds every partial sum of any order of elimination and the error that the
    inverse carries on from each (Higham, Accuracy and Stability of Numerical Algorithms, section 8.2)."""
    signed = -np.abs(np.tril(inputs["L"], -1))
    return {"carried": {"X": _solved(signed, _solved(signed, np.abs(inputs["B"])))}}
