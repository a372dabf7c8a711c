"""One head of 128 of the gated delta rule in float64, token by token."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _steps(inputs: Mapping[str, Array]) -> tuple[Array, Array]:
    """The outputs, and the scale of the error that each carries; both [L, 128]."""
    q, k, v, beta = (inputs[name] for name in ("q", "k", "v", "beta"))
    decay, total = np.exp(inputs["g"]), np.cumsum(inputs["g"])
    state = np.zeros((128, 128))
    out, scale, squares = np.zeros(v.shape), np.zeros(v.shape), np.zeros(v.shape)
    for t in range(q.shape[0]):
        state = decay[t] * state
        update = beta[t] * (v[t] - k[t] @ state)
        state = state + np.outer(k[t], update)
        out[t] = q[t] @ state / np.sqrt(128)
        squares[t] = update**2 + (beta[t] * v[t]) ** 2
        usual = (q[t] @ q[t]) * np.sum(k[: t + 1] ** 2, axis=1) / 128
        met = np.maximum((k[: t + 1] @ q[t]) ** 2, usual) * np.exp(2 * (total[t] - total[: t + 1]))
        scale[t] = (np.sqrt(met @ squares[: t + 1]) + np.sqrt(q[t] @ q[t] / 128) * np.linalg.norm(state, axis=-2)) / np.sqrt(128)
    return out, scale


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """o [L, 128]."""
    return {"o": _steps(inputs)[0]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`carried`: 1 / sqrt(128) times the root of the squares of all updates still remembered, each as the query meets its key (at least at the usual
    cosine, 1 / sqrt(128)), plus the state's norm at the usual cosine."""
    return {"carried": {"o": _steps(inputs)[1]}}
