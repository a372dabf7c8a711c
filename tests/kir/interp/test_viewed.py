"""What a kernel sees through views: a tensor that they only show is not written, one that they change is."""
from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from kir.interp import run
from kir.interp.checking.program_facts import written
from kir.interp.evaluation.loop_folding import spread
from kir.ir import nodes as n
from kir.ir.parser import parse_program

Mode = Literal["fast", "check"]
HEAD = """kir 1
program p
  inout X: f32[8]
  out Y: f32[8]
kernel main grid (c: {ctas}) threads 1
"""
BODIES = [
    ("view global v: f32[8] at X\n  Y[c] = v[c]", {"Y"}),
    ("view global v: f32[8] at X\n  v[c] = 1.0\n  Y[c] = X[c]", {"v", "X", "Y"}),
    ("view global v: f32[8] at X\n  view global w: i32[8] at v\n  w[c] = 1\n  Y[c] = 0.0", {"w", "v", "X", "Y"}),
    ("view global v: f32[8] at X\n  let old = atomic_add(&v[0], 1.0)\n  Y[c] = old", {"v", "X", "Y"}),
]


@pytest.mark.parametrize(("body", "changed"), BODIES)
def test_a_view_that_is_only_read_writes_nothing(body: str, changed: set[str]) -> None:
    p = parse_program(HEAD.format(ctas=8) + f"  {body}\n")
    assert written(p, p.kernels[0]) == changed


def test_what_is_written_through_a_view_meets_what_is_read() -> None:
    body = "  view global v: f32[8] at X\n  view global w: f32[8] at X\n  v[c] = 1.0\n  Y[c] = w[(c + 1) % 8]\n"
    found = run(parse_program(HEAD.format(ctas=8) + body), {"X": np.zeros(8, np.float32)}, {}, mode="check").findings
    assert {f.id for f in found} == {"KIR-I014"}


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("mode", ["fast", "check"])
def test_masked_elements_that_a_loop_stores_in_an_array_are_counted_one_by_one(compiles: bool, mode: Mode) -> None:
    body = "  register a: f32[8]\n  for j in 0..8\n    a[j] = load(X[j] where j < 5 else 0.0)\n  for k in 0..8\n    Y[k] = a[k]\n"
    result = run(parse_program(HEAD.format(ctas=1) + body), {"X": np.ones(8, np.float32)}, {}, mode=mode, cover=True, compiles=compiles)
    assert {bits for (kind, _), bits in result.reached.items() if kind == "read"} == {1 | 4}


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_elements_taken_out_of_a_named_row_are_evaluated_at_once(mode: Mode) -> None:
    body = "  view global v: f32[8] at X\n  fragment a: f32[8] = 1.0\n  let row = v[0 +: 8]\n  for j in 0..8\n    "
    body += "a[j] = a[j] + pick(row, j) * 2.0\n  Y[0 +: 8] = a\n"
    p = parse_program(HEAD.format(ctas=1) + body)
    loop = p.kernels[0].body[3]
    assert isinstance(loop, n.For) and spread(loop, 0, 8, 1) is not None
    x = np.arange(8, dtype=np.float32)
    result = run(p, {"X": x}, {}, mode=mode, compiles=False)
    assert result.outputs["Y"].tolist() == (1 + 2 * x).tolist() and result.counters.steps < 8 and not result.errors


def test_a_second_name_of_private_memory_keeps_a_loop_one_by_one() -> None:
    body = "  fragment a: f32[9] = 1.0\n  view fragment w: f32[9] at a\n  for j in 0..8\n    a[j + 1] = w[j] + 1.0\n  for k in 0..8\n    Y[k] = a[k]\n"
    result = run(parse_program(HEAD.format(ctas=1) + body), {"X": np.zeros(8, np.float32)}, {}, compiles=False)
    assert result.outputs["Y"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
