"""Which merges are shown to give the same in every order, for all states: those whose order shows never are, however rare the states that show it."""
from __future__ import annotations

import pytest

from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.passes.reductions._merge_order import Merge, by_cases, by_logarithms, for_all, in_any_order

MERGES = {
    "two sums": (("a = a + a_1", "b = b + b_1"), "rational"),
    "a product with a count": (("b = b + b_1", "a = a * a_1"), "rational"),
    "a maximum beside a sum": (("a = max(a, a_1)", "b = b + b_1"), "z3"),
    "a sum alone, where the other one stays": (("a = a + a_1",), ""),
    "the larger, and of equal ones the smaller place": (("if a_1 > a | a_1 == a & b_1 < b", "  a = a_1", "  b = b_1"), "z3"),
    "the larger, and of equal ones the first met": (("if a_1 > a", "  a = a_1", "  b = b_1"), ""),
    "a difference": (("a = a - a_1", "b = b + b_1"), ""),
    "half of both": (("a = (a + a_1) * 0.5", "b = b + b_1"), ""),
    "a sum that ends where both are large": (("a = a + a_1", "b = b + b_1", "if a * a > 2.0e30", "  a = 0.0"), ""),
}


def merge(lines: tuple[str, ...]) -> Merge:
    declared = "\n".join(f"    register {x}: f32 = 0.0" for x in ("a", "b", "a_1", "b_1"))
    body = "\n".join(f"    {line}" for line in lines)
    head = "kir 1\nprogram p\n  out Y: f32[32]\nkernel main grid (r: 1) threads 32\n  for t in 0..32 parallel thread\n"
    p = parse_program(f"{head}{declared}\n{body}\n    Y[t] = a + b\n", "p")
    loop = p.kernels[0].body[0]
    assert isinstance(loop, n.For)
    held = [s.buffer for s in loop.body if isinstance(s, n.Alloc)]
    return Merge(loop.body[4:-1], tuple(held[:2]), tuple(held[2:]))


@pytest.mark.parametrize("name", list(MERGES))
def test_a_merge_is_shown_for_all_states_or_not(name: str) -> None:
    lines, how = MERGES[name]
    said = for_all(merge(lines))
    assert (how in said) if how else said == ""


def test_states_that_samples_do_not_meet_are_no_proof() -> None:
    rare = merge(MERGES["a sum that ends where both are large"][0])
    assert in_any_order(rare, ())[0] and for_all(rare) == ""


COUNTED = """  out Y: f32[32]
  in X: f32[64]
  size N: i32
kernel main grid (r: 1) threads 32
  for t in 0..32 parallel thread
    register m: f32 = 0.0
    register c: f32 = 0.0
    register m_1: f32 = {first}
    register c_1: f32 = 0.0
    for i in 0..N
      m_1 = m_1 + (X[i] - m_1) / (c_1 + 1.0)
      {count}
    if c + c_1 > 0.0
      m = (m * c + m_1 * c_1) / (c + c_1)
    c = c + c_1
    Y[t] = m + c
"""


@pytest.mark.parametrize(("first", "count", "shown"), [
    ("0.0", "c_1 = c_1 + 1.0", True), ("5.0", "c_1 = c_1 + 1.0", True), ("0.0", "c_1 = c_1 + X[i]", False),
    ("0.0", "if X[i] > 0.0\n        c_1 = c_1 + 1.0", False)],
    ids=["a mean with its count", "one that begins elsewhere, of which nothing is counted", "a count that may be negative", "values that are not counted"])
def test_shares_that_count_are_what_they_began_as_or_positive(first: str, count: str, shown: bool) -> None:
    p = parse_program(f"kir 1\nprogram p\n{COUNTED.format(first=first, count=count)}", "p")
    loop = p.kernels[0].body[0]
    assert isinstance(loop, n.For)
    held = [s.buffer for s in loop.body if isinstance(s, n.Alloc)]
    whole = Merge(loop.body[5:-1], tuple(held[:2]), tuple(held[2:]))
    assert for_all(whole) == "" and (by_cases(whole, loop.body[2:5]) != "") is shown


@pytest.mark.parametrize(("lines", "shown"), [
    (("let most = max(a, a_1)", "b = b * exp(a - most) + b_1 * exp(a_1 - most)", "a = most"), True),
    (("let most = max(a, a_1)", "b = b * exp(a - most) + b_1", "a = most"), False),
    (("let most = max(a, a_1)", "b = b * exp(a - most) + b_1 * exp(a_1 - most)", "a = a_1"), False),
    (("let most = max(a, a_1)", "b = b * exp(a) + b_1 * exp(a_1)", "a = most"), False),
    (("if b_1 > 0.0", "  b = b + b_1 * exp(a_1 - a)"), False)],
    ids=["a sum under its maximum", "one that is not scaled", "the other's maximum", "exponentials that are not those of differences", "a choice by a sum"])
def test_a_maximum_in_an_exponent_is_followed(lines: tuple[str, ...], shown: bool) -> None:
    assert (by_logarithms(merge(lines)) != "") is shown
