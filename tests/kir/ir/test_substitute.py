"""Substitution replaces what was there, once."""
from __future__ import annotations

from kir.ir.build import add, const, sub, var
from kir.ir.visit import substitute


def test_a_sum_that_collapses_to_the_replaced_name_is_not_replaced_again() -> None:
    i = var("i")
    mirrored = sub(const(15), i)
    assert substitute(mirrored, {"i": mirrored}) == i
    assert substitute(add(sub(i, var("j")), 3), {"i": var("j"), "j": i}) == add(sub(var("j"), i), 3)
