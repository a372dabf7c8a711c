"""The gated delta rule in float64, token by token."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _steps(inputs: Mapping[str, Array]) -> tuple[Array, Array]:
    """The outputs, and the scale of the error that each carries; both [B, L, H, 64]."""
    q, k, v, beta = (inputs[name] for name in ("q", "k", "v", "beta"))
    decay = np.exp(inputs["g"])
    state = np.zeros((q.shape[0], q.shape[2], 64, 64))
    spread = np.zeros((q.shape[0], q.shape[2], 64))
    out, scale = np.zeros(v.shape), np.zeros(v.shape)
    for t in range(q.shape[1]):
        kt, a, b = k[:, t], decay[:, t, :, None, None], beta[:, t, :, None]
        state = a * state
        update = b * (v[:, t] - np.einsum("bhd,bhde->bhe", kt, state))
        state = state + kt[..., :, None] * update[..., None, :]
        out[:, t] = np.einsum("bhd,bhde->bhe", q[:, t], state) / 8
        norm = np.linalg.norm(kt, axis=-1)[..., None]
        spread = np.sqrt((a[..., 0] * spread) ** 2 + norm**2 * (update**2 + (b * v[:, t]) ** 2))
        length = np.linalg.norm(q[:, t], axis=-1)[..., None]
        scale[:, t] = length / 64 * (spread + np.linalg.norm(state, axis=-2))
    return out, scale


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """o [B, L, H, 64]."""
    return {"o": _steps(inputs)[0]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`carried`: |q| / 8 times 1/8 (the usual cosine of a query and an error in 64 dimensions) times the root of the squares of all
    updates still remembered, plus the state's norm."""
    return {"carried": {"o": _steps(inputs)[1]}}
