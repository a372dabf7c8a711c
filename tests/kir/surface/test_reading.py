"""Which surface IR text is emitted on when none is asked for."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.surface.reading import load_expert

EXPERTS = Path(__file__).parents[3] / "skills" / "experts"


@pytest.mark.parametrize(("file", "surface"), [("softmax/softmax.kir", "cuda"), ("gemm/gemm_sm80_lanes.kir", "cuda"), ("gemm/gemm_sm80.kir", "kir")])
def test_code_of_threads_is_compared_as_cuda(file: str, surface: str) -> None:
    assert load_expert(str(EXPERTS / file)).surface == surface
