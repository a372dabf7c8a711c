"""Attention in float64, all heads with the same keys and values."""
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _probabilities(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> tuple[Array, Array]:
    """softmax(Q K^T / sqrt(d)) with the mask, and the mask (0 or 1); [B, H, L, L] and [L, L]."""
    q, k = inputs["Q"], inputs["K"][:, None]
    mask = np.tril(np.ones((q.shape[-2], k.shape[-2])))
    scores = np.where(mask > 0, q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]), -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True), mask


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """O, [B, H, L, 256]."""
    return {"O": _probabilities(inputs, sizes)[0] @ inputs["V"][:, None]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`weighted`: P |V|, and what probabilities that are subnormal in f16 lose (2^-14 of the values' sum). `exponents`: the same with
    each probability times the magnitude of its score and of the row's largest."""
    p, mask = _probabilities(inputs, sizes)
    q, k = inputs["Q"], inputs["K"][:, None]
    v = np.abs(inputs["V"][:, None])
    scores = np.abs(q) @ np.abs(k).swapaxes(-1, -2) / math.sqrt(q.shape[-1]) * mask
    return {"weighted": {"O": p @ v + 2.0**-14 * (mask @ v)},
            "exponents": {"O": (p * (scores + scores.max(axis=-1, keepdims=True))) @ v}}
