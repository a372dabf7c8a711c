"""`kir opt`, `kir sites` and `kir passes`, as a user calls them."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import called

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
    assert rows["unroll"]["parameters"] == ["factor: int = 4", "form: Literal['copies', 'hint', 'vector'] = 'copies'"]
    assert rows["unroll"]["preconditions"] == ["KIR-P520"]
    assert all(row["claim"] for row in rows.values())


KERNEL = """import triton
import triton.language as tl

@triton.jit
def doubled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)  # read
    tl.store(y_ptr + offs, x * 2.0, mask=offs < n)
"""
BINDING = """kernel = "doubled"
sizes = ["N"]
facts = ["N >= 1", "N <= 65536"]
grid = ["ceildiv(N, 128)"]
[metas]
BLOCK = 128
[scalars]
n = "N"
[tensors.x_ptr]
shape = ["N"]
dtype = "f32"
[tensors.y_ptr]
shape = ["N"]
dtype = "f32"
"""


def test_opt_in_place_shows_a_diff_and_writes_when_told(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source, binding = tmp_path / "doubled.py", tmp_path / "doubled.toml"
    source.write_text(KERNEL)
    binding.write_text(BINDING)
    command = ("opt", f"{source}::doubled", "--bind", str(binding), "--in-place")
    code, out, _ = called(capsys, *command, "-p", "cache-policy{buffer=x_ptr policy=cg}")
    assert code == 0 and source.read_text() == KERNEL
    assert [line for line in out.splitlines() if line.startswith("-    ")] == ["-    x = tl.load(x_ptr + offs, mask=offs < n)  # read"]
    code, out, _ = called(capsys, *command, "--write", "--json", "-p", "cache-policy{buffer=x_ptr policy=cg}")
    data = json.loads(out)
    assert code == 0 and data["level"] == "statement" and data["written"] and 'cache_modifier=".cg"' in source.read_text()
    code, _, _ = called(capsys, *command, "--write", "-p", "~cache-policy{buffer=x_ptr policy=cg}")
    assert code == 0 and source.read_text() == KERNEL
    code, out, _ = called(capsys, *command, "--write", "-p", "~multi-threaded-block")
    assert code == 0 and "+threads = 1" in out and source.read_text() == KERNEL and "threads = 1" in binding.read_text()


def test_opt_in_place_needs_a_source(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "opt", file, "--in-place", "-p", "unroll{factor=2}@main/loop")
    assert code == 1 and "KIR-C105" in err
