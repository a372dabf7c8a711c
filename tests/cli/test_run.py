"""`kir run`, as a user calls it."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

import kir.skills
from tests.command_line import called

EXPERTS = Path(next(iter(kir.skills.__path__))) / "experts"
RACY = """kir 1
program reverse
  in X: f32[32]
  out Y: f32[32]
kernel main grid (b: 1) threads 32
  shared s: f32[32]
  for t in 0..32 parallel thread
    @put s[t] = X[t]
    @take Y[t] = s[31 - t]
"""


def test_run_judges_outputs_and_hazards(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "run", str(EXPERTS / "softmax" / "softmax.kir"), "--problem", "softmax", "--check", "--json")
    data = json.loads(out)
    assert code == 0 and data["correct"]["ok"] and data["findings"] == [] and data["counters"]["sectors"] > 0


def test_a_race_is_shown_with_both_accesses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "reverse.kir"
    file.write_text(RACY)
    code, out, err = called(capsys, "run", str(file), "--check")
    assert code == 1 and "1 error finding" in out
    assert "KIR-I014" in err and "main/t/take" in err and "main/t/put" in err and "reverse.kir:9" in err
    assert called(capsys, "run", str(file))[0] == 0


def test_a_wrong_program_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (EXPERTS / "softmax" / "softmax.kir").read_text().replace("/ sum", "* sum")
    file = tmp_path / "softmax.kir"
    file.write_text(text)
    code, out, _ = called(capsys, "run", str(file), "--problem", "softmax")
    assert code == 1 and "wrong" in out


def test_what_is_not_given_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.kir"
    file.write_text(RACY)
    code, _, err = called(capsys, "run", str(file), "--set", "N=many")
    assert code == 2 and "KIR-C002" in err
