"""Which merges are shown to give the same in every order, for all states: those whose order shows never are, however rare the states that show it."""
from __future__ import annotations

import pytest

from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.passes.reductions._merge_order import Merge, for_all, in_any_order

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
