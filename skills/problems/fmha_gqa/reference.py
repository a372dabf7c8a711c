"""Attention with grouped heads in float64."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _spread(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> tuple[Array, Array, Array]:
    """Q, and K and V with an axis for the heads of Q that read them; [H, G, L, 64] and [H, 1, L, 64]."""
    return inputs["Q"], inputs["K"][:, None], inputs["V"][:, None]


def _probabilities(q: Array, k: Array) -> Array:
    """softmax(Q K^T / 8); [H, G, L, L]."""
    scores = q @ k.swapaxes(-1, -2) / 8
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out: Array = e / e.sum(axis=-1, keepdims=True)
    return out


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """O [H, G, L, 64]."""
    q, k, v = _spread(inputs, sizes)
    return {"O": _probabilities(q, k) @ v}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`weighted`: P |V|, and what probabilities that are subnormal in f16 lose (2^-14 of the values' sum). `exponents`: the same with
    each probability times the magnitude of its score and of the row's largest."""
    q, k, v = _spread(inputs, sizes)
    p, values = _probabilities(q, k), np.abs(v)
    scores = np.abs(q) @ np.abs(k).swapaxes(-1, -2) / 8
    return {"weighted": {"O": p @ values + 2.0**-14 * values.sum(axis=-2, keepdims=True)},
            "exponents": {"O": (p * (scores + scores.max(axis=-1, keepdims=True))) @ values}}
