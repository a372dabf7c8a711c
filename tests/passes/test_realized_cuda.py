"""Steps that show in what nvcc makes of the CUDA code: the box of a pass, before and after, compiled and compared."""
from __future__ import annotations

import sys

import pytest

from kir.gate import realized
from kir.hardware.target import target
from kir.rewrite import passes
from kir.rewrite.conformance.box import box_of
from kir.surface import backend

ALL = {cls.name: cls for cls in passes()}
SEEN = ("batch-loads", "pack-columns", "programmatic-dependent-launch", "read-only-load", "strength-reduce")
"""A few, for time: each takes two compilations."""


@pytest.mark.nvcc
@pytest.mark.parametrize("name", SEEN)
def test_a_step_reaches_the_machine(name: str) -> None:
    box = box_of(sys.modules[ALL[name].__module__].__doc__ or "", name)
    cuda, hopper = backend("cuda"), target("sm_90a")
    before, after = (cuda.compile(cuda.emit(p), hopper) for p in (box.before, box.after))
    found = realized(before, after)
    assert found, found.reason
