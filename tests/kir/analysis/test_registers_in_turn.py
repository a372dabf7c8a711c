"""Registers that a source writes in turn: what moves on by the same in every iteration is counted, and what data or a way decide is left as it is."""
from __future__ import annotations

import pytest

from kir.analysis.normal.regions import raised
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.visit import statements
from kir.rewrite.meaning import difference, interpreted

TEXT = """kir 1
program moves
  size N: i32
  in X: i32[N]
  out Y: i32[N]
  fact N >= 1
kernel moves grid (row: 1) threads 1
  register at: i32 = {first}
  for i in 0..N
{body}
"""
MOVED = """    Y[i] = at
    at = at + 3"""


@pytest.mark.parametrize(("first", "body", "counted"), [
    ("1", MOVED, True),
    ("1", """    let by = X[i]
    Y[i] = at
    at = at + by""", False),
    ("1", """    Y[i] = at
    at = at + X[0]""", False),
    ("1", """    Y[i] = at
    at = at + i""", False),
    ("1", """    Y[i] = at
    if X[i] > 0
      continue
    at = at + 3""", False),
    ("X[0]", MOVED, False)],
    ids=["the same each time", "a name of the iteration", "what memory holds", "the counter", "left out in some iterations", "begins with what memory holds"])
def test_a_register_is_computed_from_the_counter_only_where_it_moves_alike_each_time(first: str, body: str, counted: bool) -> None:
    program = parse_program(TEXT.format(first=first, body=body), "moves.kir")
    made = raised(program)
    assert any(isinstance(s, n.Alloc) for s in statements(made.kernels[0].body)) is not counted
    assert difference(interpreted(program, {"N": 7}), interpreted(made, {"N": 7})) == ""
