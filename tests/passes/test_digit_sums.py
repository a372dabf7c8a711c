"""Indices that are sums of digits: what is said of them is tried with every number."""
from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from kir.analysis.facts import Facts
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.passes.threads._race_check import _digits

NAMES = ("t", "i", "e")


def index(factors: tuple[int, ...], mark: str) -> n.Expr:
    """A sum of variables times factors."""
    out: n.Expr = build.const(0)
    for name, factor in zip(NAMES, factors, strict=True):
        out = build.add(out, build.mul(n.Var(f"{name}{mark}", I32), factor))
    return out


@settings(max_examples=200, deadline=None)
@given(st.tuples(*[st.integers(0, 12)] * 3), st.tuples(*[st.integers(1, 5)] * 3))
def test_places_that_are_told_apart_by_digits_differ_for_any_two_threads(factors: tuple[int, int, int], counts: tuple[int, int, int]) -> None:
    known = Facts()
    for mark in ("", "'"):
        for name, count in zip(NAMES, counts, strict=True):
            known = known.ranging(n.Var(f"{name}{mark}", I32), build.const(0), build.const(count))
    said = _digits(index(factors, ""), index(factors, "'"), n.Var("t", I32), n.Var("t'", I32), known)
    reached: dict[int, set[int]] = {}
    for at in itertools.product(*map(range, counts)):
        reached.setdefault(sum(f * x for f, x in zip(factors, at, strict=True)), set()).add(at[0])
    apart = all(len(threads) == 1 for threads in reached.values())
    assert apart or not said
    mixed = factors[2] == 1 and factors[0] >= counts[2] and factors[1] >= factors[0] * counts[0]
    assert said or not mixed


def test_another_sum_of_the_other_thread_is_not_told_apart() -> None:
    known = Facts()
    for name in ("t", "t'"):
        known = known.ranging(n.Var(name, I32), build.const(0), build.const(64))
    t, other = n.Var("t", I32), n.Var("t'", I32)
    assert _digits(t, other, t, other, known)
    assert not _digits(t, build.add(other, 1), t, other, known)
    assert not _digits(build.add(t, 1), other, t, other, known)
    assert not _digits(n.Var("row", I32), n.Var("row", I32), t, other, known)
