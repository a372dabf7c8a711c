"""Integer operations by number. NumPy is imported where values are first counted out: it takes a tenth of a second, which most commands can do without."""
from __future__ import annotations

from typing import Any

NAMES = {"add": "add", "sub": "subtract", "mul": "multiply", "floordiv": "floor_divide", "mod": "mod", "min": "minimum", "max": "maximum",
         "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "shl": "left_shift", "shr": "right_shift", "lt": "less",
         "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
"""NumPy's function for each operation of the IR on integers."""


def computed(op: str, a: Any, b: Any) -> Any:
    """What an operation of `NAMES` makes of two numbers or arrays."""
    import numpy as np
    return getattr(np, NAMES[op])(a, b)
