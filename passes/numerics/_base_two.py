"""The factor that makes an exponential a power of two, as a literal of f32."""
from __future__ import annotations

import math
import struct

LOG2_E = 1.4426950408889634


def rounded(x: float) -> float:
    """The nearest number of f32, in the fewest digits that mean it."""
    try:
        exact = struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)
    return next(v for digits in range(6, 10) if struct.pack("<f", v := float(f"{exact:.{digits}g}")) == struct.pack("<f", exact))
