"""Attention in float64, sequences first."""
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _heads(x: Array) -> Array:
    """[L, B, H, d] as [B, H, L, d]."""
    return np.moveaxis(x, 0, 2)


def _sequence(x: Array) -> Array:
    """[B, H, L, d] as [L, B, H, d]."""
    return np.moveaxis(x, 2, 0)


def _probabilities(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> tuple[Array, Array]:
    """softmax(Q K^T / sqrt(d)) with the mask, and the mask (0 or 1); [B, H, L, S] and [L, S]."""
    q, k = _heads(inputs["Q"]), _heads(inputs["K"])
    mask = np.ones((q.shape[-2], k.shape[-2]))
    scores = np.where(mask > 0, q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]), -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True), mask


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """O, [L, B, H, 64]."""
    return {"O": _sequence(_probabilities(inputs, sizes)[0] @ _heads(inputs["V"]))}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`weighted`: P |V|, and what probabilities that are subnormal in f16 lose (2^-14 of the values' sum). `exponents`: the same with
    each probability times the magnitude of its score and of the row's largest."""
    p, mask = _probabilities(inputs, sizes)
    q, k = _heads(inputs["Q"]), _heads(inputs["K"])
    v = np.abs(_heads(inputs["V"]))
    scores = np.abs(q) @ np.abs(k).swapaxes(-1, -2) / math.sqrt(q.shape[-1]) * mask
    return {"weighted": {"O": _sequence(p @ v + 2.0**-14 * (mask @ v))},
            "exponents": {"O": _sequence((p * (scores + scores.max(axis=-1, keepdims=True))) @ v)}}
