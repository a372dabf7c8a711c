"""Names of Python, math and Triton that host code may use."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..._python.python_operators import listed

TRITON_HAS = frozenset(
    {
        "triton.language.make_tensor_descriptor",
        "triton.language.gather",
        "triton.language.extra",
        "triton.language.extra.libdevice",
        "triton.language.math",
        "triton.language.tensor",
        "triton.set_allocator",
    }
)
"""What Triton 3.6 has, as far as packages ask for it by `hasattr`."""

LIBDEVICE = frozenset({"div_rn", "div_rz", "fmod", "trunc", "rint", "nearbyint", "pow", "isinf", "isnan", "finitef", "isfinited"})
"""What libdevice has beside the rows of the instruction table that are spelled so."""

HOST_CALLS: Mapping[str, Callable[..., Any]] = {
    "builtins.len": len,
    "builtins.min": min,
    "builtins.max": max,
    "builtins.abs": abs,
    "builtins.int": int,
    "builtins.float": float,
    "builtins.bool": bool,
    "builtins.sum": sum,
    "builtins.range": lambda *x: listed(range(*x)),
    "builtins.list": list,
    "builtins.tuple": tuple,
    "math.log2": math.log2,
    "math.sqrt": math.sqrt,
    "math.log": math.log,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.exp": math.exp,
    "math.gcd": math.gcd,
    "packaging.version.parse": lambda text: tuple(int(x) for x in re.findall(r"\d+", str(text).partition("+")[0])),
    "triton.next_power_of_2": lambda x: 1 << max(int(x) - 1, 0).bit_length(),
    "triton.cdiv": lambda x, y: -(-x // y),
}
PYTHON = frozenset(
    {
        "len",
        "min",
        "max",
        "abs",
        "int",
        "float",
        "bool",
        "range",
        "sum",
        "print",
        "isinstance",
        "hasattr",
        "getattr",
        "tuple",
        "list",
        "round",
        "str",
        "any",
        "all",
        "zip",
        "enumerate",
        "divmod",
        "pow",
        "slice",
        "map",
        "type",
    }
)
"""Python's own functions that may stand in a kernel or a constant."""
