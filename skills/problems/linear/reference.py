"""C = A B^T + bias in float64."""
from collections.abc import Mapping
from typing import Any

from numpy import abs as magnitude
from numpy.typing import NDArray

Array = NDArray[Any]


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """The product and the bias, which is added to every row; [M, N]."""
    return {"C": inputs["A"] @ inputs["B"].T + inputs["bias"]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`products`: |A| |B^T| + |bias|, what the rounding error of the sum scales with."""
    return {"products": {"C": magnitude(inputs["A"]) @ magnitude(inputs["B"].T) + magnitude(inputs["bias"])}}
