"""Attention over sequences of uneven lengths in float64."""
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _masks(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> tuple[Array, Array]:
    """Which keys a row sees, and which rows there are (0 or 1); [B, 1, L, L] and [B, 1, L, 1]."""
    place = np.arange(inputs["Q"].shape[-2])
    lengths = inputs["lengths"].astype(np.int64)[:, None]
    before = place[:, None] >= place if sizes["causal"] else np.ones((len(place), len(place)), bool)
    seen = (place < np.maximum(lengths, 1))[:, None, None] & before
    return seen.astype(float), (place < lengths)[:, None, :, None].astype(float)


def _probabilities(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> tuple[Array, Array, Array]:
    """softmax(Q K^T / sqrt(128)) over the keys that a row sees, in the rows that there are, and the two masks; [B, H, L, L]."""
    seen, rows = _masks(inputs, sizes)
    scores = np.where(seen > 0, inputs["Q"] @ inputs["K"].swapaxes(-1, -2) / math.sqrt(inputs["Q"].shape[-1]), -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) * rows, seen, rows


def _there(inputs: Mapping[str, Array]) -> Array:
    """The values of the keys that a sequence has, and 0 past its end."""
    keys = np.arange(inputs["V"].shape[-2]) < np.maximum(inputs["lengths"].astype(np.int64)[:, None], 1)
    return np.where(keys[:, None, :, None], inputs["V"], 0.0)


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """O [B, H, L, 128]. What lies past the end of a sequence is not looked at."""
    return {"O": _probabilities(inputs, sizes)[0] @ _there(inputs)}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`weighted`: P |V|, and what probabilities that are subnormal in f16 lose (2^-14 of the values' sum). `exponents`: the same with
    each probability times the magnitude of its score and of the row's largest."""
    p, seen, rows = _probabilities(inputs, sizes)
    v = np.abs(_there(inputs))
    scores = np.abs(inputs["Q"]) @ np.abs(inputs["K"]).swapaxes(-1, -2) / math.sqrt(inputs["Q"].shape[-1]) * seen
    lost = rows * 2.0**-14 * (seen @ v)
    return {"weighted": {"O": p @ v + lost}, "exponents": {"O": (p * (scores + scores.max(axis=-1, keepdims=True))) @ v}}
