"""Walked kernels, and what is lifted from them."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kir.learning.evidence.walked import Walked
from kir.learning.evidence.walks import finished
from kir.learning.induce.hypotheses import Hypothesis, hypotheses
from kir.learning.induce.uses import distinct, uses

LINEAGES = Path(__file__).parents[4] / "skills" / "lineages"
NAMES = ("rmsnorm_tilelang", "softmax_tilelang", "softmax_triton", "transpose_tilelang")


@pytest.fixture(scope="session")
def walks() -> tuple[Walked, ...]:
    return tuple(finished(LINEAGES / name for name in NAMES))


@pytest.fixture(scope="session")
def found(walks: Sequence[Walked]) -> dict[str, Hypothesis]:
    return {each.card.name: each for each in hypotheses(walks, uses(distinct(walks)))}
