"""Attention of queries to keys of another sequence, in float64."""
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _scores(q: Array, k: Array) -> Array:
    """Q K^T / sqrt(d); [B, H, L, S]."""
    found: Array = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return found


def _probabilities(q: Array, k: Array) -> Array:
    """softmax of the scores."""
    scores = _scores(q, k)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: Array = e / e.sum(axis=-1, keepdims=True)
    return found


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """O, [B, H, L, 128]."""
    return {"O": _probabilities(inputs["Q"], inputs["K"]) @ inputs["V"]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`weighted`: P |V|, and what probabilities that are subnormal in f16 lose (2^-14 of the values' sum). `exponents`: the same with
    each probability times the magnitude of its score and of the row's largest."""
    p, values = _probabilities(inputs["Q"], inputs["K"]), np.abs(inputs["V"])
    scores = _scores(np.abs(inputs["Q"]), np.abs(inputs["K"]))
    return {"weighted": {"O": p @ values + 2.0**-14 * values.sum(axis=-2, keepdims=True)},
            "exponents": {"O": (p * (scores + scores.max(axis=-1, keepdims=True))) @ values}}
