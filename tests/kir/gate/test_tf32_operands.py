"""Products in tf32: operands rounded or cut off are both right, and nothing coarser is."""
from __future__ import annotations

import numpy as np
import pytest

from kir.gate.cases import RelativeCase, expected_of
from kir.gate.operands import cut_off
from kir.interp import run
from kir.ir.nodes import Program
from kir.ir.parser import parse_program

TEXT = """kir 1
program p
  in A: f32[16, 512]
  in B: f32[512, 16]
  out C: f32[16, 16]
kernel main grid (i: 1) threads 128
  fragment acc: f32[16, 16] = 0.0
  mma acc += {a} * {b} precision {precision}
  C = acc
"""


def program(precision: str, a: str = "A", b: str = "B") -> Program:
    return parse_program(TEXT.format(precision=precision, a=a, b=b), "p.kir")


@pytest.fixture(scope="module")
def case() -> RelativeCase:
    random = np.random.default_rng(5)
    inputs = {"A": np.abs(random.standard_normal((16, 512))).astype(np.float32), "B": np.abs(random.standard_normal((512, 16))).astype(np.float32)}
    expected, also = expected_of(program("tf32"), inputs, {})
    return RelativeCase("s", {}, 0, inputs, {}, expected, also=also)


def test_a_product_whose_operands_are_cut_off_is_right_and_a_coarser_one_is_not(case: RelativeCase) -> None:
    def judged(p: Program) -> bool:
        return case.compare(run(p, case.arrays).outputs).ok
    cut = cut_off(program("tf32"))
    assert cut is not None and judged(cut) and judged(program("tf32"))
    assert not RelativeCase("s", {}, 0, case.inputs, {}, case.expected).compare(run(cut, case.arrays).outputs).ok, "cutting off drifts over a long sum"
    assert not judged(program("ieee", "cast(cast(A, bf16), f32)", "cast(cast(B, bf16), f32)"))
    assert not judged(program("ieee", "(A * 1.004)"))


def test_what_has_no_such_product_has_one_reading(case: RelativeCase) -> None:
    assert cut_off(program("ieee")) is None
    assert expected_of(program("ieee"), case.inputs, {})[1] is None
