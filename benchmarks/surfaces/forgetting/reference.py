"""Linear attention that forgets, in float64, token by token."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _steps(inputs: Mapping[str, Array]) -> Array:
    """The outputs [B, L, H, 128]."""
    v, decay = inputs["v"], np.exp(inputs["g"])
    state, out = np.zeros((v.shape[0], v.shape[2], 128, 128)), np.zeros(v.shape)
    for t in range(v.shape[1]):
        state = decay[:, t, :, None, None] * state + inputs["k"][:, t, :, :, None] * v[:, t, :, None, :]
        out[:, t] = np.einsum("bhd,bhde->bhe", inputs["q"][:, t], state)
    return out


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """o [B, L, H, 128]."""
    return {"o": _steps(inputs)}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`carried`: the same of absolute values."""
    return {"carried": {"o": _steps({name: x if name == "g" else np.abs(x) for name, x in inputs.items()})}}
