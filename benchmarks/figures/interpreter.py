"""How fast programs are interpreted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Figure, best
from benchmarks.programs import tile_gemm
from kir.interp import run
from kir.problem import load_problem


def figures() -> Iterator[Figure]:
    """The tile-level GEMM at 256^3, fast and checked, and the naive one at 64^3."""
    random = np.random.default_rng(0)

    def square(size: int) -> dict[str, np.ndarray]:
        return {name: random.standard_normal((size, size)).astype(np.float16) for name in "AB"}

    tile, naive = tile_gemm(), load_problem("gemm").naive
    large, small = square(256), square(64)
    seconds, _ = best(lambda: run(tile, large, mode="fast"), runs=5)
    yield Figure("tile-level GEMM at 256^3, fast", seconds, "s", 0.2)
    seconds, _ = best(lambda: run(tile, large, mode="check"), runs=2)
    yield Figure("tile-level GEMM at 256^3, checked", seconds, "s", 5)
    seconds, _ = best(lambda: run(naive, small, mode="fast"), runs=3)
    yield Figure("naive GEMM at 64^3, fast", seconds, "s", 2)
