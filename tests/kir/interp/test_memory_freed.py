"""What a run took is free when it has ended and its result is gone: nothing waits until Python looks for what refers to itself."""
from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Literal

import numpy as np
import pytest

from kir.interp import run
from kir.interp.state.memory import Memory
from kir.ir.parser import parse_program
from kir.problem import load_problem
from tests.programs import SHIPPED, shipped


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref[Memory]]]:
    """All that is made, while nobody looks for garbage."""
    made, begin = list[weakref.ref[Memory]](), Memory.__post_init__

    def noted(self: Memory) -> None:
        begin(self)
        made.append(weakref.ref(self))
    monkeypatch.setattr(Memory, "__post_init__", noted)
    gc.disable()
    yield made
    gc.enable()


@pytest.mark.parametrize("mode", ["fast", "check"])
@pytest.mark.parametrize("name", ["gemm_sm90", "gemm_sm80", "softmax", "topk_radix"])
def test_the_memory_of_a_run_is_free_with_its_result(name: str, mode: Literal["fast", "check"], memories: list[weakref.ref[Memory]]) -> None:
    """Roles and mbarriers, fragments of warps, registers of threads, views."""
    problem, program = load_problem(SHIPPED[name]["problem"]), shipped(name)
    shape = min(problem.shapes_for(program), key=lambda s: prod(int(x) for x in s.sizes.values()))
    again = partial(run, program, problem.inputs(shape, 1), problem.scalars(shape), mode=mode, cover=True)
    result = again()
    assert len(memories) > len(problem.spec.tensors)
    assert mode == "check" or not any(kept() for kept in memories), "who wrote what is asked of a run that was checked alone"
    del result
    assert not [m.name for kept in memories if (m := kept()) is not None]


@pytest.mark.parametrize("one_error", [True, False])
def test_so_is_that_of_a_run_that_finds_an_error(one_error: bool, memories: list[weakref.ref[Memory]]) -> None:
    text = ("kir 1\nprogram p\n  in X: f32[8]\n  out Y: f32[8]\nkernel main grid () threads 8\n  shared s: f32[8]\n"
            "  for t in 0..8 parallel thread\n    register r: f32\n    r = X[t]\n    s[t] = r\n    Y[t] = s[7 - t]\n")
    given = {"X": np.ones(8, np.float32)}
    found = run(parse_program(text), given, mode="check", one_error=one_error)
    assert found.errors
    del found
    assert len(memories) == 4 and not any(kept() for kept in memories)
