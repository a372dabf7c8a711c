"""Attention in float64, heads innermost."""
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _swapped(x: Array) -> Array:
    """[B, L, H, d] as [B, H, L, d], and back."""
    return x.swapaxes(1, 2)


def _scores(q: Array, k: Array) -> Array:
    """Q K^T / sqrt(d); [B, H, L, S]."""
    found: Array = _swapped(q) @ _swapped(k).swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return found


def _probabilities(q: Array, k: Array) -> Array:
    """softmax of the scores."""
    scores = _scores(q, k)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: Array = e / e.sum(axis=-1, keepdims=True)
    return found


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """O, [B, L, H, 64]."""
    return {"O": _swapped(_probabilities(inputs["Q"], inputs["K"]) @ _swapped(inputs["V"]))}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`weighted`: P |V|, and what probabilities that are subnormal in f16 lose (2^-14 of the values' sum). `exponents`: the same with
    each probability times the magnitude of its score and of the row's largest."""
    p, values = _probabilities(inputs["Q"], inputs["K"]), np.abs(_swapped(inputs["V"]))
    scores = _scores(np.abs(inputs["Q"]), np.abs(inputs["K"]))
    return {"weighted": {"O": _swapped(p @ values + 2.0**-14 * values.sum(axis=-2, keepdims=True))},
            "exponents": {"O": _swapped((p * (scores + scores.max(axis=-1, keepdims=True))) @ values)}}
