"""Causal attention of grouped heads in float64."""
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _scores(q: Array, k: Array) -> tuple[Array, Array]:
    """Q K^T / sqrt(d) of grouped heads, and which keys a query sees (0 or 1); [H, G, L, L] and [L, L]."""
    return q @ k[:, None].swapaxes(-1, -2) / math.sqrt(q.shape[-1]), np.tril(np.ones((q.shape[-2], k.shape[-2])))


def _probabilities(inputs: Mapping[str, Array]) -> tuple[Array, Array]:
    """softmax of the scores under the mask, and the mask."""
    scores, mask = _scores(inputs["Q"], inputs["K"])
    seen = np.where(mask > 0, scores, -np.inf)
    e = np.exp(seen - seen.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True), mask


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """O, [H, G, L, 128]."""
    return {"O": _probabilities(inputs)[0] @ inputs["V"][:, None]}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`weighted`: P |V|, and what probabilities that are subnormal in f16 lose (2^-14 of the values' sum). `exponents`: the same with
    each probability times the magnitude of its score and of the row's largest."""
    p, mask = _probabilities(inputs)
    values = np.abs(inputs["V"][:, None])
    scores = _scores(np.abs(inputs["Q"]), np.abs(inputs["K"]))[0] * mask
    return {"weighted": {"O": p @ values + 2.0**-14 * (mask @ values)},
            "exponents": {"O": (p * (scores + scores.max(axis=-1, keepdims=True))) @ values}}
