"""`kir forecast`: two programs, a step, a transition of a lineage; as text and as JSON; and what is refused."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kir.faces.cli._main import run
from kir.ir.printer import program_text
from tests.kir.learning.forecast.made import copying

LINEAGE = str(Path(__file__).parents[3] / "skills" / "lineages" / "softmax_triton")


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert run([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    for threads in (32, 256):
        (tmp_path / f"{threads}.kir").write_text(program_text(copying(threads)))
    return str(tmp_path / "32.kir"), str(tmp_path / "256.kir")


@pytest.mark.parametrize("model", ["analytic", "learned"])
def test_two_programs(two: tuple[str, str], capsys: pytest.CaptureFixture[str], model: str) -> None:
    found = told(capsys, "forecast", *two, "--shape", "N=16777216", "--model", model)
    assert found["schema"] == "kir.forecast/1" and found["model"] == model and found["sizes"] == {"N": 16777216}
    low, high = found["interval"]
    assert low <= found["speedup"] <= high and sum(found["bins"]) == pytest.approx(1.0, abs=0.01) and found["spent"]["forecasts"] == 1
    assert {r["resource"] for r in found["reasons"]}
    assert found["pays"] == ("no" if found["fails"] > 0.5 else "unsure" if found["defer"] or low <= 1.0 <= high else "yes" if low > 1.0 else "no")


def test_a_transition_of_a_lineage_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["forecast", LINEAGE, "--step", "3"]) == 0
    said = capsys.readouterr().out
    assert "80 % of what the learned model holds possible" in said and "fails with" in said


def test_a_step_on_a_program(capsys: pytest.CaptureFixture[str], two: tuple[str, str]) -> None:
    rows = told(capsys, "sites", two[0], "--at", "N=4096")["sites"]
    forward = [row for row in rows if "forecast" in row]
    assert forward and all(row["direction"] == "forward" for row in rows)
    values = [row["forecast"]["speedup"] * (1 - row["forecast"]["fails"]) for row in forward]
    assert values == sorted(values, reverse=True)
    found = told(capsys, "forecast", two[0], "--step", forward[0]["step"], "--shape", "N=4096")
    assert found["step"] == forward[0]["step"]


@pytest.mark.parametrize(("words", "id_", "code"), [
    (["--shape", "N=0"], "KIR-E007", 1), ([], "KIR-E007", 1), (["--shape", "N=many"], "KIR-C002", 2), (["--shape", "N=1", "--target", "gtx"], "KIR-C005", 2),
    (["--shape", "N=1", "--model", "none"], "KIR-C005", 2), (["--shape", "N=1", "--step", "x"], "KIR-C002", 2),
])
def test_what_is_no_question(two: tuple[str, str], capsys: pytest.CaptureFixture[str], words: list[str], id_: str, code: int) -> None:
    said = told(capsys, "forecast", *two, *words, code=code)["diagnostics"][0]
    assert said["id"] == id_ and (words or said["attempt"] == "--shape N=..")


def test_one_program_alone_and_a_step_that_is_not_there(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "forecast", two[0], code=2)["diagnostics"][0]["id"] == "KIR-C002"
    assert told(capsys, "forecast", LINEAGE, "--step", "99", code=2)["diagnostics"][0]["id"] == "KIR-S014"
