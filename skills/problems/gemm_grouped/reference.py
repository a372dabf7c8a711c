"""C = A B^T of each group of rows, in float64."""
from collections.abc import Mapping
from typing import Any

from numpy import abs as magnitude
from numpy import zeros
from numpy.typing import NDArray

Array = NDArray[Any]


def _products(a: Array, b: Array, offsets: Array) -> Array:
    out = zeros((a.shape[0], b.shape[1]))
    for g in range(b.shape[0]):
        first, end = int(offsets[g]), int(offsets[g + 1])
        out[first:end] = a[first:end] @ b[g].T
    return out


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """The products; [T, N]."""
    return {"C": _products(inputs["A"], inputs["B"], inputs["offsets"])}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`products`: the product of magnitudes, what the rounding error of a sum of products scales with."""
    return {"products": {"C": _products(magnitude(inputs["A"]), magnitude(inputs["B"]), inputs["offsets"])}}
