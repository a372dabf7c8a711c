"""Named barriers of a whole CTA are its barriers, where all threads come to all of them; elements of a vector are those that were written."""
from __future__ import annotations

import pytest

from kir.gate.proved import Proved, proved
from kir.ir.parser import parse_program

EXCHANGE = """kir 1
program p
  in X: f32[64]
  out Y: f32[64]
kernel main grid (b: 1) threads 64
  shared s: f32[64]
  for t in 0..64 parallel thread
{body}
"""
BARRIERS = """    s[t] = X[t]
    named_barrier_sync(1, 64)
    let x = s[t ^ 32]
    named_barrier_sync(2, 64)
    s[t] = x
    named_barrier_sync(1, 64)
    Y[t] = s[t ^ 1]"""


def of(body: str) -> Proved:
    """A kernel of 64 threads of this body."""
    return proved(parse_program(EXCHANGE.format(body=body), "p.kir"))


def test_barriers_of_all_threads_by_number_are_barriers() -> None:
    assert of(BARRIERS).verdict == "proved"


@pytest.mark.parametrize(("old", "new"), [
    ("    named_barrier_sync(2, 64)\n", ""),
    ("    named_barrier_sync(2, 64)\n", "    named_barrier_sync(2, 32)\n"),
    ("    named_barrier_sync(2, 64)\n", "    if t < 32\n      named_barrier_sync(2, 64)\n"),
    ("    named_barrier_sync(2, 64)\n", "    if t < 32\n      named_barrier_sync(2, 64)\n    else\n      named_barrier_sync(3, 64)\n"),
    ("    named_barrier_sync(2, 64)\n", "    named_barrier_arrive(2, 64)\n"),
])
def test_those_that_some_threads_miss_are_not(old: str, new: str) -> None:
    assert old in BARRIERS and of(BARRIERS.replace(old, new)).verdict != "proved"


VECTOR = """    register x: f32[8]
    x[0 +: 4] = X[t // 4 * 4 +: 4]
    Y[t] = pick(x[0 +: 4], 3) + pick(x[{at} +: 4], 1)"""


def test_an_element_of_a_vector_is_the_one_that_was_written() -> None:
    """Also no index of one is taken for any number."""
    right, wrong = of(VECTOR.format(at=0)), of(VECTOR.format(at=4))
    assert right.verdict == "proved" and right.status("overflow") == "proved" and wrong.status("undefined") == "refuted"
