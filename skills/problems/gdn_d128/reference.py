"""The gated delta rule with heads of 128 in float64, token by token; head h of v reads head h // G of q and k."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _steps(inputs: Mapping[str, Array]) -> tuple[Array, Array]:
    """The outputs, and the scale of the error that each carries; both [B, L, H * G, 128]."""
    v, beta, decay, total = inputs["v"], inputs["beta"], np.exp(inputs["g"]), np.cumsum(inputs["g"], axis=1)
    q, k = (np.repeat(inputs[name], v.shape[2] // inputs[name].shape[2], axis=2) for name in ("q", "k"))
    state = np.zeros((v.shape[0], v.shape[2], 128, 128))
    out, scale, squares = np.zeros(v.shape), np.zeros(v.shape), np.zeros(v.shape)
    for t in range(v.shape[1]):
        kt, a, b = k[:, t], decay[:, t, :, None, None], beta[:, t, :, None]
        state = a * state
        update = b * (v[:, t] - np.einsum("bhd,bhde->bhe", kt, state))
        state = state + kt[..., :, None] * update[..., None, :]
        out[:, t] = np.einsum("bhd,bhde->bhe", q[:, t], state) / np.sqrt(128)
        squares[:, t] = update**2 + (b * v[:, t]) ** 2
        length = np.sum(q[:, t] ** 2, axis=-1)
        usual = length[:, None] * np.sum(k[:, : t + 1] ** 2, axis=-1) / 128
        met = np.maximum(np.einsum("bshd,bhd->bsh", k[:, : t + 1], q[:, t]) ** 2, usual) * np.exp(2 * (total[:, t : t + 1] - total[:, : t + 1]))
        kept = np.sqrt(np.einsum("bsh,bshe->bhe", met, squares[:, : t + 1]))
        scale[:, t] = (kept + np.sqrt(length / 128)[..., None] * np.linalg.norm(state, axis=-2)) / np.sqrt(128)
    return out, scale


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """o [B, L, H * G, 128]."""
    return {"o": _steps(inputs)[0]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`carried`: 1 / sqrt(128) times the root of the squares of all updates still remembered, each as the query meets its key (at least at the usual
    cosine, 1 / sqrt(128)), plus the state's norm at the usual cosine."""
    return {"carried": {"o": _steps(inputs)[1]}}
