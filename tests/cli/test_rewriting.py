"""`kir opt`, `kir sites` and `kir passes`, as a user calls them."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from kir.cli._main import run

PROGRAM = """kir 1
program scale
  size N: i32
  in X: f32[N]
  out Y: f32[N]
  fact N % 2 == 0
kernel main grid (b: 1) threads 1
  @loop for i in 0..N
    Y[i] = X[i] * 2.0
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "scale.kir"
    path.write_text(PROGRAM)
    return str(path)


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_opt_prints_the_result_and_with_trace_why(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "opt", file, "-p", "unroll{factor=2}@main/loop", "--trace")
    assert code == 0
    assert "# step 1: unroll{factor=2} at main/loop" in out and "KIR-P520 proved" in out
    assert "Y[i + 1] = X[i + 1] * 2.0" in out
    code, out, _ = called(capsys, "opt", file, "-p", "unroll{factor=2}@main/loop", "--trace", "--json")
    data = json.loads(out)
    assert data["schema"] == "kir.opt/1" and data["trace"]["steps"][0]["after"] == data["hash"]


def test_opt_with_no_pipeline_prints_what_it_read(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, "opt", file) == (0, PROGRAM, "")


def test_a_pipeline_may_stand_in_a_file(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = tmp_path / "steps.json"
    held.write_text(json.dumps([{"pass": "unroll", "options": {"factor": 2}}]))
    assert called(capsys, "opt", file, "-p", str(held))[0] == 0


@pytest.mark.parametrize(("arguments", "code", "id"), [
    (("-p", "unroll{factor=4}"), 1, "KIR-P520"), (("-p", "unrol"), 2, "KIR-X002"), (("-p", "unroll{"), 2, "KIR-R001"),
    (("-p", "unroll{factor=x}"), 2, "KIR-R003"), (("-p", "~unroll"), 1, "KIR-R004")])
def test_refusals_have_an_id_and_the_right_exit_code(
        file: str, arguments: tuple[str, ...], code: int, id: str, capsys: pytest.CaptureFixture[str]) -> None:
    found, out, err = called(capsys, "opt", file, *arguments)
    assert (found, out) == (code, "")
    assert f"error[{id}]" in err and "Traceback" not in err


def test_assume_and_force_let_a_step_through(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "opt", file, "-p", "unroll{factor=4}", "--assume", "KIR-P520", "--json")
    assert code == 0 and "assume KIR-P520" in json.loads(out)["pipeline"]
    assert called(capsys, "opt", file, "-p", "unroll{factor=4}", "--force")[0] == 0


def test_sites_show_where_and_why_not(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "sites", file, "--pass", "unroll", "--near")
    assert code == 0
    assert "unroll@main/loop  refused" in out and "witness: at N = 2" in out
    assert "~unroll@main/loop  does not apply" in out
    code, out, _ = called(capsys, "sites", file, "--pass", "unroll", "--json")
    rows = json.loads(out)["sites"]
    assert rows[0]["verdicts"]["KIR-P520"]["kind"] == "unknown"


def test_passes_are_listed_with_parameters_and_preconditions(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "passes", "--json")
    rows = {row["name"]: row for row in json.loads(out)["passes"]}
    assert code == 0
    assert rows["unroll"]["parameters"] == ["factor: int = 4", "form: Literal['copies', 'hint'] = 'copies'"]
    assert rows["unroll"]["preconditions"] == ["KIR-P520"]
    assert all(row["claim"] for row in rows.values())
