"""C = A^T B in float64."""
from collections.abc import Mapping
from typing import Any

from numpy import abs as magnitude
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """The product; [M, N]."""
    return {"C": inputs["A"].T @ inputs["B"]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`products`: the product of magnitudes, what the rounding error of a sum of products scales with."""
    return {"products": {"C": magnitude(inputs["A"]).T @ magnitude(inputs["B"])}}
