"""Inputs in an order that makes tiles matter: the same elements, the same in every process, and nothing that was not drawn independently."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kir.problem import load_problem
from kir.problem.ordering import ORDERS, TOGETHER, Ordering, ordered, split
from kir.problem.schema import Draw, Tensor


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=40), elements=st.floats(-9, 9, width=16)),
       st.integers(1, 50), st.integers(0, len(ORDERS) - 1))
def test_an_order_keeps_every_element_of_each_column(v: np.ndarray, tile: int, which: int) -> None:
    out = ORDERS[which](v, min(tile, (v.shape[0] + 1) // 2))
    assert out.shape == v.shape and out.dtype == v.dtype
    if ORDERS[which].__name__ == "_tied":
        assert all(set(out[:, i]) <= set(v[:, i]) and len(set(out[:, i])) <= 3 for i in range(v.shape[1]))
    else:
        assert (np.sort(out, axis=0) == np.sort(v, axis=0)).all()


def test_what_each_order_is_for() -> None:
    v = np.array([3.0, -9.0, 1.0, -2.0, 5.0, -4.0, 2.0, -1.0])
    by = {f.__name__: f(v, 4) for f in ORDERS}
    assert (np.diff(by["_rising"]) >= 0).all() and (np.diff(by["_falling"]) <= 0).all()
    assert by["_late"][-1] == -9.0
    assert (by["_cancelling"][:4] > 0).all() and (by["_cancelling"][4:] < 0).all()
    assert {by["_edges"][i] for i in (0, 3, 4, 7)} == {5.0, 3.0, -9.0, -4.0}


def test_each_slice_is_in_another_order_and_the_seed_turns_them() -> None:
    a = np.random.default_rng(0).normal(size=(2 * len(ORDERS) + 1, 30))
    t = Tensor(name="X", role="in", dtype="f32", shape=("M", "N"))
    by = Ordering((("N", 8),))
    out = ordered({"X": a}, [t], by, 0)["X"]
    for i in range(len(a)):
        assert (out[i] == ORDERS[i % len(ORDERS)](a[i][:, None], 8)[:, 0]).all()
    together = ordered({"X": a}, [t], by, TOGETHER)["X"]
    assert all((np.diff(row) >= 0).all() for row in together), "everything rises"
    turned = ordered({"X": a}, [t], by, 1)["X"]
    assert (turned[0] == ORDERS[1](a[0][:, None], 8)[:, 0]).all()


@pytest.mark.parametrize("how", ["unit", "alternating", "constant"])
def test_elements_that_depend_on_their_place_stay_there(how: str) -> None:
    a = np.random.default_rng(0).normal(size=(3, 8))
    t = Tensor(name="X", role="in", dtype="f32", shape=("M", "N"))
    assert ordered({"X": a}, [t], Ordering((("N", 4),)), 0, lambda t: Draw(kind=how))["X"] is a  # type: ignore[arg-type]  # a kind
    indices = np.arange(24).reshape(3, 8)
    assert ordered({"X": indices}, [t], Ordering((("N", 4),)), 0)["X"] is indices, "whole numbers of which nothing is known may be indices"


def test_a_distribution_names_its_order() -> None:
    problem = load_problem("softmax")
    by = Ordering((("N", 16), ("M", 2)))
    assert split(f"large{by}") == ("large", by) and split("large") == ("large", None)
    plain, inputs = problem.inputs("odd", 3, "large")["X"], problem.inputs("odd", 3, f"large{by}")["X"]
    assert not (plain == inputs).all() and (np.sort(plain[0]) == np.sort(inputs[0])).all() == (ORDERS[3].__name__ != "_tied")
    assert (problem.inputs("odd", 3, f"large{by}")["X"] == inputs).all()
