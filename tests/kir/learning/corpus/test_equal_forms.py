"""Spellings of one value that two generic programs may have, each with the nearest that is another."""
from __future__ import annotations

import pytest

from kir.ir.parser import parse_program
from kir.learning.corpus import same_program

PROGRAM = """kir 1
program p
  meta d: dtype
  meta flag: bool
  meta mode: str
  size n: i32
  in A: f32[64]
  in I: i32[64]
  in M: bool[64]
  out B: $<d>[64]
  out C: f32[64, 32]
kernel k grid (x: 64) threads 32
  {body}
"""


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("B[x] = cast(0.0, $<d>)", "B[x] = cast(0, $<d>)", True),
        ("B[x] = cast(-0.0, $<d>)", "B[x] = cast(0, $<d>)", False),
        ("B[x] = cast(1.5, $<d>)", "B[x] = cast(1, $<d>)", False),
        ("C[x, 0] = select(x < n, A[x], 0.0)", "C[x, 0] = select(select(true, x < n, false), A[x], 0.0)", True),
        ("C[x, 0] = select(flag & x < n, 1.0, 2.0)", "C[x, 0] = select(select(flag, x < n, false), 1.0, 2.0)", True),
        ("C[x, 0] = select(flag | x < n, 1.0, 2.0)", "C[x, 0] = select(select(flag, true, x < n), 1.0, 2.0)", True),
        ("C[x, 0] = select(flag | x < n, 1.0, 2.0)", "C[x, 0] = select(select(flag, x < n, false), 1.0, 2.0)", False),
        ("C[x, 0] = select(flag & M[x], 1.0, 2.0)", "C[x, 0] = select(select(flag, M[x], false), 1.0, 2.0)", False),
        ("C[x, 0] = load(A[x] where x < n else 0.0)", "C[x, 0] = select(x < n, load(A[x] where x < n else 0.0), 0.0)", True),
        ("C[x, 0] = load(A[x] where x < n else 0.0)", "C[x, 0] = select(x < n, load(A[x] where x < n else 0.0), 1.0)", False),
        ("C[x, 0] = load(A[x] where x < n else 0.0)", "C[x, 0] = select(x < 9, load(A[x] where x < n else 0.0), 0.0)", False),
        ("static if flag\n    C[x, 0] = select(flag & x < n, 1.0, 2.0)", "static if flag\n    C[x, 0] = select(x < n, 1.0, 2.0)", True),
        ("static if flag\n    C[x, 0] = select(flag | x < n, 1.0, 2.0)", "static if flag\n    C[x, 0] = select(x < n, 1.0, 2.0)", False),
        ("static if ~flag\n    C[x, 0] = select(flag & x < n, 1.0, 2.0)", "static if ~flag\n    C[x, 0] = select(x < n, 1.0, 2.0)", False),
        ("C[x, 0] = A[x] * 2.0\n  C[x, 1] = A[x] * 2.0", "let p = A[x] * 2.0\n  let q = A[x] * 2.0\n  C[x, 0] = p\n  C[x, 1] = q", True),
        ("let p = A[x] * 2.0\n  C[x, 0] = p\n  C[x, 1] = p", "let p = A[x] * 2.0\n  let q = A[x] * 2.0\n  C[x, 0] = p\n  C[x, 1] = q", True),
        ("let p = A[x] * 2.0\n  C[x, 0] = p\n  C[x, 1] = p", "let p = A[x] * 2.0\n  let q = A[x] * 3.0\n  C[x, 0] = p\n  C[x, 1] = q", False),
        ("C[x, 0 +: 32] = A[iota(32)]", "C[x, 0 +: 32] = A[iota(32) + 1]", False),
    ],
)
def test_spellings_of_one_value(one: str, other: str, alike: bool) -> None:
    a, b = (parse_program(PROGRAM.replace("{body}", x)) for x in (one, other))
    assert same_program(a, b) is alike
    assert same_program(b, a) is alike


def test_a_broadcast_that_indices_beside_it_give_is_none() -> None:
    spread = "C[x, 0 +: 32] = 1.0\n  let t = A2[broadcast(expand(iota(8), axis=1), 8, 4), iota(4)]\n  C2[0 +: 8, 0 +: 4] = t"
    text = PROGRAM.replace("  out C:", "  in A2: f32[8, 4]\n  out C2: f32[8, 4]\n  out C:")
    plain = spread.replace("broadcast(expand(iota(8), axis=1), 8, 4)", "expand(iota(8), axis=1)")
    a, b = (parse_program(text.replace("{body}", x)) for x in (spread, plain))
    assert same_program(a, b)
    lone = [parse_program(text.replace("{body}", x.replace(", iota(4)]", ", 0]"))) for x in (spread, spread.replace("iota(8)", "iota(8) + 0"))]
    assert same_program(*lone)


def test_a_text_as_default_tells_what_a_meta_is() -> None:
    text = PROGRAM.replace("{body}", "C[x, 0] = 1.0")
    kinds = [parse_program(text.replace("meta mode: str", f"meta mode: {x}")) for x in ('any = "b"', 'str = "b"', 'str = "c"')]
    assert same_program(kinds[0], kinds[1])
    assert not same_program(kinds[0], kinds[2])
