"""Outputs beside an oracle's: block by block as all at once, whatever stands in them."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kir.problem import comparison
from kir.problem.comparison import elementwise
from kir.problem.draws import numpy_dtype, smallest_step

SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, np.nan, np.inf, -np.inf, 65504.0, -65504.0, 65519.0, 65536.0, 1e38, 3.4e38, 1e300, 1e-8, 6e-8)


def ratios(dtype: str, got: Any, oracle: Any, bound: Any, signed: bool) -> Any:
    """How far each element is off, of what it may be: said one element at a time."""
    step = smallest_step(dtype)
    largest = float(np.finfo(np.float64).max) if numpy_dtype(dtype).kind in "iu" else comparison._largest(dtype)
    out = []
    for g, o, b in zip(got.astype(np.float64).tolist(), oracle.tolist(), bound.tolist(), strict=True):
        limit, rounded = b + step, float(np.float64(o).astype(numpy_dtype(dtype)))
        alike = np.sign(g) == np.sign(o)
        if np.isnan(o) or np.isnan(g):
            out.append(0.0 if np.isnan(o) and np.isnan(g) else np.inf)
        elif signed and b == 0 and o == 0 and g == 0 and np.signbit(g) != np.signbit(o):
            out.append(np.inf)
        elif np.isinf(rounded):
            out.append(0.0 if g == rounded or (abs(o) - limit <= largest and abs(g) >= largest - limit and alike) else np.inf)
        elif np.isinf(g) and abs(o) + limit > largest and alike and limit > 0:
            out.append(0.0)
        else:
            out.append(abs(g - o) / limit if limit else (0.0 if g == o else np.inf))
    return np.array(out)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["f32", "f16", "bf16", "i32"]), st.booleans(), st.integers(1, 4),
       st.lists(st.tuples(st.sampled_from(SPECIAL), st.sampled_from(SPECIAL), st.sampled_from([0.0, 1e-6, 0.5, 40.0]), st.booleans()), min_size=1, max_size=9))
def test_the_worst_of_all_elements_whatever_the_blocks(dtype: str, signed: bool, block: int, rows: list[tuple[float, float, float, bool]]) -> None:
    whole = numpy_dtype(dtype).kind == "i"
    finite = [(int(o) if abs(o) < 1e9 else 7) if whole and np.isfinite(o) else 5 if whole else o for o, _, _, _ in rows]
    oracle, bound = np.array(finite, np.float64), np.array([b for _, _, b, _ in rows])
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "BLOCK", block)
        got = np.array([o if right else (3 if whole else g) for o, (_, g, _, right) in zip(finite, rows, strict=True)], np.float64).astype(numpy_dtype(dtype))
        wanted = ratios(dtype, got, oracle, bound, signed)
        found = elementwise("Y", dtype, got, oracle, bound, 2.0, signed)
    assert found.ok == (wanted.max() <= 1.0) and found.worst == pytest.approx(wanted.max())
    assert found.where == f"Y[{int(np.argmax(wanted))}]" and found.bound == pytest.approx(bound[np.argmax(wanted)] + smallest_step(dtype))


@pytest.mark.parametrize("block", [1, 3, 64, 1 << 15])
def test_errors_that_are_no_noise_are_refused_whatever_the_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "BLOCK", block)
    right = np.linspace(1, 2, 64).reshape(8, 8)
    noise, bias = right + np.where(np.arange(64).reshape(8, 8) % 9 == 0, 0.9e-3, 0.0), right + 0.9e-3
    bound = np.full((1, 8), 1e-3)
    assert elementwise("Y", "f64", noise, right, bound, 0.5).ok
    refused = elementwise("Y", "f64", bias, right, bound, 0.5)
    assert not refused.ok and "no rounding noise" in refused.reason and refused.worst == pytest.approx(0.9 / (0.5 + 0.5 / 8), rel=1e-6)
