"""C = A B for each pair, in float64."""
from collections.abc import Mapping
from typing import Any

from numpy import abs as magnitude
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """The products; [G, M, N]."""
    return {"C": inputs["A"] @ inputs["B"]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`products`: |A| |B|, what the rounding error of a sum of products scales with."""
    return {"products": {"C": magnitude(inputs["A"]) @ magnitude(inputs["B"])}}
