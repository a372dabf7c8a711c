"""A kernel whose rows are no whole vectors: refused with sizes that show it, assumed on record, or forced and found out."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from kir.ir.parser import parse_program
from kir.rewrite.meaning import interpreted
from tests.command_line import called

PROGRAM = """kir 1
program stage
  size M: i32
  size K: i32
  in X: f16[M, K]
  out Y: f16[M, 16]
kernel main grid (i: ceildiv(M, 4)) threads 32
  shared Xs: f16[4, 16]
  @load copy load(X[i * 4 +: 4, 0 +: 16] else 0.0:f16 clip) -> Xs
  Y[i * 4 +: 4, 0 +: 16] = Xs clip
"""
STEP = "vectorize-global{width=8}@main/load"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "stage.kir"
    path.write_text(PROGRAM)
    return str(path)


def test_sites_refuses_with_a_witness(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = called(capsys, "sites", file, "--pass", "vectorize-global")
    assert "refused" in out
    assert "with K = 7, row 1 starts at byte 2 * K = 14, not a multiple of 16" in out


def test_opt_refuses_and_points_at_the_copy(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "opt", file, "-p", STEP)
    assert code == 1
    assert "KIR-P111" in err and "K as a multiple of 8" in err and "main/load" in err


def test_assume_goes_on_record(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "opt", file, "-p", STEP, "--assume", "KIR-P111", "--assume", "KIR-P112", "--trace", "--json")
    assert code == 0
    step = json.loads(out)["trace"]["steps"][0]
    assert step["verdicts"]["KIR-P111"]["kind"] == "assumed"


def test_force_is_found_out_where_rows_are_misaligned(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "opt", file, "-p", STEP, "--force")
    assert code == 0
    forced = parse_program(out)
    assert interpreted(forced, {"M": 5, "K": 16}, checked=True).errors == ()
    found = interpreted(forced, {"M": 5, "K": 7}, checked=True).errors
    assert any(f.kind == "alignment" for f in found)
