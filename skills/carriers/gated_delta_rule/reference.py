"""One head of the gated delta rule in float64, token by token."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _steps(inputs: Mapping[str, Array]) -> tuple[Array, Array]:
    """The outputs, and the scale of the error that each carries; both [L, 64]."""
    q, k, v, beta = (inputs[name] for name in ("q", "k", "v", "beta"))
    decay = np.exp(inputs["g"])
    state = np.zeros((64, 64))
    spread = np.zeros(64)
    out, scale = np.zeros(v.shape), np.zeros(v.shape)
    for t in range(q.shape[0]):
        kt, a, b = k[t], decay[t], beta[t]
        state = a * state
        update = b * (v[t] - kt @ state)
        state = state + np.outer(kt, update)
        out[t] = q[t] @ state / 8
        norm = np.linalg.norm(kt)
        spread = np.sqrt((a * spread) ** 2 + norm**2 * (update**2 + (b * v[t]) ** 2))
        length = np.linalg.norm(q[t])
        scale[t] = length / 64 * (spread + np.linalg.norm(state, axis=-2))
    return out, scale


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """o [L, 64]."""
    return {"o": _steps(inputs)[0]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`carried`: |q| / 8 times 1/8 (the usual cosine of a query and an error in 64 dimensions) times the root of the squares of all
    updates still remembered, plus the state's norm."""
    return {"carried": {"o": _steps(inputs)[1]}}
