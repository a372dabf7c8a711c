"""C = A B^T with scales a tile, in float64."""
from collections.abc import Mapping
from typing import Any

from numpy import abs as magnitude
from numpy import repeat
from numpy.typing import NDArray

Array = NDArray[Any]


def _product(a: Array, b: Array, sa: Array, sb: Array) -> Array:
    n, k = b.shape
    left = a * repeat(sa, 128, axis=0)[:k].T
    right = b * repeat(repeat(sb, 128, axis=0)[:n], 128, axis=1)[:, :k]
    out: Array = left @ right.T
    return out


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """The scaled product; [M, N]."""
    return {"C": _product(inputs["A"], inputs["B"], inputs["SA"], inputs["SB"])}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`products`: the product of magnitudes, what the rounding error of a sum of products scales with."""
    return {"products": {"C": _product(*(magnitude(inputs[x]) for x in ("A", "B", "SA", "SB")))}}
