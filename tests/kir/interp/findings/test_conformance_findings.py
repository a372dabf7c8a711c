"""What the device showed against the interpreter (``kir conformance --on gpu``): each finding stays fixed without a device."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kir.interp import run
from kir.ir.parser import parse_program


def _value(call: str, *operands: float, dtype: str = "f32") -> float:
    names = "ABC"[: len(operands)]
    text = "\n".join(
        [
            "kir 1",
            "program one",
            *(f"  in {x}: {dtype}[1]" for x in names),
            f"  out Y: {dtype}[1]",
            "kernel main grid (i: 1) threads 1",
            f"  Y[i] = {call}",
            "",
        ]
    )
    kind = {"f32": np.float32, "u32": np.uint32}[dtype]
    outputs = run(parse_program(text, "one.kir"), {x: np.array([v], kind) for x, v in zip(names, operands, strict=True)}, {}).outputs
    return float(outputs["Y"][0])


def test_a_directed_sum_moves_only_from_a_number_of_its_dtype() -> None:
    assert _value("add_rounded(A[i], B[i], rounding=rz)", 17565736.0, -2.7784612e-09) == 17565734.0
    assert _value("add_rounded(A[i], B[i], rounding=ru)", 17565736.0, 2.7784612e-09) == 17565738.0


def test_a_sum_that_cancels_is_minus_zero_downward() -> None:
    assert math.copysign(1.0, _value("sub_rounded(A[i], B[i], rounding=rd)", 0.0, 0.0)) == -1.0
    assert math.copysign(1.0, _value("add_rounded(A[i], B[i], rounding=rd)", 0.0, 0.0)) == 1.0
    assert math.copysign(1.0, _value("sub_rounded(A[i], B[i], rounding=rz)", 0.0, 0.0)) == 1.0


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (-0.0, 0.0)])
def test_zeros_have_an_order(a: float, b: float) -> None:
    assert math.copysign(1.0, _value("min_nan(A[i], B[i])", a, b)) == -1.0
    assert math.copysign(1.0, _value("max_nan(A[i], B[i])", a, b)) == 1.0


def test_an_odd_bessel_function_keeps_its_digits_near_zero() -> None:
    assert _value("i1(A[i])", 0.0) == 0.0
    assert _value("i1(A[i])", 2e-30) == pytest.approx(1e-30, rel=1e-6)
    assert _value("j1(A[i])", 2e-30) == pytest.approx(1e-30, rel=1e-6)


def test_prmt_repeats_a_sign_where_the_fourth_bit_is_set() -> None:
    assert _value("prmt(A[i], B[i], C[i])", 0, 0x80000000, 0xFFFFFFFF, dtype="u32") == 0xFFFFFFFF
