"""The gated delta rule with heads of 128 in float64, token by token; head h of v reads head h // G of q and k."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _steps(inputs: Mapping[str, Array]) -> tuple[Array, Array]:
    """The outputs, and the scale of the error that each carries; both [B, L, H * G, 128]."""
    v, beta, decay = inputs["v"], inputs["beta"], np.exp(inputs["g"])
    q, k = (np.repeat(inputs[name], v.shape[2] // inputs[name].shape[2], axis=2) for name in ("q", "k"))
    state = np.zeros((v.shape[0], v.shape[2], 128, 128))
    spread = np.zeros((v.shape[0], v.shape[2], 128))
    out, scale = np.zeros(v.shape), np.zeros(v.shape)
    for t in range(v.shape[1]):
        kt, a, b = k[:, t], decay[:, t, :, None, None], beta[:, t, :, None]
        state = a * state
        update = b * (v[:, t] - np.einsum("bhd,bhde->bhe", kt, state))
        state = state + kt[..., :, None] * update[..., None, :]
        out[:, t] = np.einsum("bhd,bhde->bhe", q[:, t], state) / np.sqrt(128)
        norm = np.linalg.norm(kt, axis=-1)[..., None]
        spread = np.sqrt((a[..., 0] * spread) ** 2 + norm**2 * (update**2 + (b * v[:, t]) ** 2))
        length = np.linalg.norm(q[:, t], axis=-1)[..., None]
        scale[:, t] = length / 128 * (spread + np.linalg.norm(state, axis=-2))
    return out, scale


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """o [B, L, H * G, 128]."""
    return {"o": _steps(inputs)[0]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`carried`: |q| / sqrt(128) times 1/sqrt(128) (the usual cosine of a query and an error in 128 dimensions) times the root of the squares of
    all updates still remembered, plus the state's norm."""
    return {"carried": {"o": _steps(inputs)[1]}}
