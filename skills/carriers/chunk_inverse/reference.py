"""Inverses of chunks in float64, row by row."""
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
CHUNK = 64


def _below(inputs: Mapping[str, Array], first: int) -> Array:
    """What stands below the diagonal of the chunk that begins at a token; square, as long as the chunk is."""
    k, beta = inputs["k"][first:first + CHUNK], inputs["beta"][first:first + CHUNK]
    return np.tril(beta[:, None] * (k @ k.T), -1)


def _inverse(lower: Array) -> Array:
    """(I + lower)^-1, of a strictly lower matrix."""
    out = np.eye(lower.shape[0])
    for i in range(1, lower.shape[0]):
        out[i] -= lower[i, :i] @ out[:i]
    return out


def oracle(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, Array]:
    """A [L, 64]."""
    out = np.zeros((inputs["k"].shape[0], CHUNK))
    for first in range(0, out.shape[0], CHUNK):
        made = _inverse(_below(inputs, first))
        out[first:first + len(made), :len(made)] = made
    return {"A": out}


def magnitudes(inputs: Mapping[str, Array], sizes: Mapping[str, float]) -> dict[str, dict[str, Array]]:
    """`carried`: (I - |L|)^-1 twice, [L, 64]. It bounds every product of blocks of the inverse and of L, and the error that the inverse carries on
    from each."""
    out = np.zeros((inputs["k"].shape[0], CHUNK))
    for first in range(0, out.shape[0], CHUNK):
        k, beta = np.abs(inputs["k"][first:first + CHUNK]), np.abs(inputs["beta"][first:first + CHUNK])
        made = _inverse(-np.tril(beta[:, None] * (k @ k.T), -1))
        out[first:first + len(made), :len(made)] = made @ made
    return {"carried": {"A": out}}
