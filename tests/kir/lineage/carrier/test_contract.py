"""Contracts, what is held against an answer, and putting it into a hole."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.ir.canonical import alpha_equal
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.lineage.carrier import Answer, Contract, check, checking, fill, holes, must_be_filled, outline, satisfies
from kir.lineage.carrier.sessions.reply import extracted

HERE = Path(__file__).parent
TOY = Contract(HERE / "toy")
SERIAL = (HERE / "toy" / "serial.kir").read_text()
HOST = """kir 1
program rows
  size R: i32
  size N: i32
  in A: f32[R, N]
  out B: f32[R, N]
  out T: f32[R]
kernel main grid (row: R) threads 32
  let i = row + 1
  @sums hole sums contract "toy-prefix/1" reads A[row, 0 +: N] writes B[row, 0 +: N], T[row +: 1]
"""


def test_an_answer_is_accepted_and_stands_where_the_hole_was() -> None:
    verdict = check(TOY, Answer(SERIAL))
    assert (verdict.stage, verdict.runs, verdict.hazard_runs) == ("accepted", 14, 11)
    host = parse_program(HOST)
    (path, hole), = holes(host)
    assert hole.name == "sums"
    expected = parse_program(HOST.rpartition("  @sums")[0] + """  register total: f32 = 0.0
  @scan for at in 0..N
    total = total + A[row, at]
    B[row, at] = total
  T[row] = total
""")
    filled = fill(TOY, host, path, verdict.program_or_raise())
    assert alpha_equal(filled, expected), program_text(filled)
    must_be_filled(filled)
    with pytest.raises(KirError, match="KIR-H104"):
        must_be_filled(host)


@pytest.mark.parametrize(("old", "new", "id"), [
    ("in X: f32[N]", "in X: f32[N]\n  in Y: f32[N]", "KIR-H120"),
    ("in X: f32[N]", "inout X: f32[N]", "KIR-H120"),
    ("f32[1]", "f64[1]", "KIR-V009"),
    ("out S: f32[1]", "out S: f32[1]\n  fact N <= 64", "KIR-H122"),
    ("X: f32[N]", "X: f32[N] align 64", "KIR-H122"),
    ("grid ()", "grid (a: N)", "KIR-H124"),
    ("threads 32", "threads 64", "KIR-H124"),
    ("P[i] = total", "P[i] = total\n    return", "KIR-H124"),
    ("S[0] = total", 'hole h contract "x" reads X writes S', "KIR-H123"),
    ("S[0] = total", 'opaque cuda reads nothing writes S because "x" text "y"', "KIR-H123"),
    ("register total: f32 = 0.0", "shared big: f32[2000] = 0.0\n  register total: f32 = 0.0", "KIR-H125"),
    ("register total: f32 = 0.0", "register big: f32[N] = 0.0\n  register total: f32 = 0.0", "KIR-H125"),
    ("register total: f32 = 0.0", "register total: f32 = 0.0\n  for z in 0..1000000\n    for y in 0..1000\n      total = total * 1.0", "KIR-H125"),
    ("S[0] = total", "S[0] = total\n  while X[0] == X[0]\n    S[0] = total", "KIR-I007"),
    ("S[0] = total", "S[0] = X[N - 2]", "KIR-H131"),
    ("P[i] = total", "P[i] = total\n    X[i] = total", "KIR-V025"),
    ("total = total + X[i]", "total = total + X[i + 1]", "KIR-H131"),
    ("f32 = 0.0", "f32 = 0.001", "KIR-H130"),
    ("f32 = 0.0", "f32", "KIR-H131"),
    ("S[0] = total", "S[0] = P[N // 2]", "KIR-H130"),
    ("S[0] = total", "S[0] = select(N == 1 | N == 37 | N == 64 | N == 4096, total, 0.0)", "KIR-H130"),
    ("0..N", "0..((N))" + "(" * 400, "KIR-T001"),
    ("kir 1", "import os", "KIR-T001"),
])
def test_what_is_outside_the_contract_is_refused_with_a_place(old: str, new: str, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "CASE_STEPS", 2_000)
    assert old in SERIAL
    verdict = check(TOY, Answer(SERIAL.replace(old, new, 1), file="reply.kir"))
    assert not verdict.accepted
    assert verdict.diagnostics[0].id == id, [str(d) for d in verdict.diagnostics]
    assert all(d.origin is not None for d in verdict.diagnostics)


@pytest.mark.parametrize(("reply", "surface"), [
    (SERIAL, "kir"),
    (f"Sure! Here it is:\n\n```kir\n{SERIAL}```\nIt sums from the left.", "kir"),
    (f"```kir\r\n{SERIAL}```\n```toml\nkernel = 'k'\n```\n```text\nnotes\n```", "kir"),
    ("~~~triton\nx\n~~~", "triton"),
    ("```python\nprint(1)\n```", None),
    (f"```kir\n{SERIAL}```\nor rather\n```kir\n{SERIAL}```", None),
    (f"```kir\n{SERIAL}", None),
    (f"```\n{SERIAL}```", None),
])
def test_a_reply_holds_one_answer_or_is_refused(reply: str, surface: str | None) -> None:
    if surface is None:
        with pytest.raises(KirError, match="KIR-H111") as refused:
            extracted(TOY, reply)
        assert refused.value.diagnostics[0].origin is not None
    else:
        answer = extracted(TOY, reply)
        assert answer.surface == surface
        assert surface != "kir" or answer.text == SERIAL


def test_what_was_filled_is_outlined_and_recognized_by_what_it_does() -> None:
    host = parse_program(HOST)
    (path, hole), = holes(host)
    answer = check(TOY, Answer(SERIAL)).program_or_raise()
    filled = fill(TOY, host, path, answer)
    assert alpha_equal(outline(TOY, filled, path, 3, hole), replace(answer, name="toy_prefix"))
    assert satisfies(TOY, outline(TOY, filled, path, 3, hole)).accepted
    other = parse_program(HOST.rpartition("  @sums")[0] + """  for i1 in 0..N
    register total: f32 = 0.0
    for j in 0..i1 + 1
      total = total + A[row, j]
    B[row, i1] = total
  T[row] = B[row, N - 1]
""")
    assert satisfies(TOY, outline(TOY, other, path, 2, hole)).accepted
    wrong = parse_program(program_text(other).replace("N - 1", "0"))
    assert satisfies(TOY, outline(TOY, wrong, path, 2, hole)).diagnostics[0].id == "KIR-H130"
    outside = parse_program(program_text(other).replace("B[row, N - 1]", "B[0, N - 1]"))
    with pytest.raises(KirError, match="KIR-H151"):
        outline(TOY, outside, path, 2, hole)
