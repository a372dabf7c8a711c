"""The command line's frame: dispatch, help, exit codes, JSON, errors without tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kir.base.diagnostic import Diagnostic, Origin, error
from kir.faces.cli import Result, _main

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(file.stem.replace("_", "-") for file in (ROOT / "kir" / "faces" / "cli").rglob("[a-z]*.py"))


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = _main.run(argv)
    out, err = capsys.readouterr()
    return code, out, err


def python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)


def test_help_lists_every_command_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    listed = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("  ")}
    assert sorted(listed) == COMMANDS and "begin with: kir explain FILE" in out
    assert all(0 < len(summary) <= 110 for summary in listed.values())


def test_help_and_listing_import_nothing_heavy() -> None:
    script = (
        "import sys; from kir.faces.cli._main import run; code = run(['--help']);"
        "heavy = {'typer', 'rich', 'numpy', 'z3', 'torch', 'triton', 'tilelang', 'libcst', 'lark', 'pydantic', 'networkx', 'jinja2'};"
        "print(code, sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    assert python(script).stderr == "0 []\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_its_arguments(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = run(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: kir {name}")


@pytest.mark.parametrize(
    ("argv", "id_", "words"),
    [
        (["plugns"], "KIR-C001", "did you mean 'plugins'?"),
        (["--jsno"], "KIR-C001", "did you mean '--json'?"),
        (["../cli/doctor"], "KIR-C001", "there is no command"),
        (["_main"], "KIR-C001", "there is no command"),
        (["plugins", "--frobnicate"], "KIR-C002", "--frobnicate"),
        (["explain", "KIR-T001", "more"], "KIR-C002", "more"),
        (["explain", "KIR-Z999"], "KIR-C004", "KIR-Z999"),
    ],
)
def test_wrong_usage_is_one_diagnostic_and_exit_code_2(capsys: pytest.CaptureFixture[str], argv: list[str], id_: str, words: str) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith(f"error[{id_}]") and words in err and "Traceback" not in err
    code, out, err = run(capsys, *argv, "--json")
    assert (code, err) == (2, "")
    assert [each["id"] for each in json.loads(out)["diagnostics"]] == [id_]


def test_no_command_shows_the_help_and_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == 2 and out.startswith("usage: kir COMMAND")


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A command ``sample`` whose behavior is chosen by its argument."""
    (tmp_path / "sample.py").write_text('"""do what is asked"""\n')

    def call(name: str, arguments: list[str]) -> Result:
        match arguments:
            case ["refuse"]:
                raise error("KIR-S006", "no", origin=Origin("f.kir", 3, 4, 3, 5))
            case ["crash"]:
                raise ZeroDivisionError("by\nzero")
            case ["interrupt"]:
                raise KeyboardInterrupt
            case ["fail"]:
                return Result({"n": 1}, "half done", code=1, diagnostics=(Diagnostic("KIR-S006", "why", severity="warning"),))
            case _:
                return Result({"arguments": arguments}, " ".join(arguments))

    monkeypatch.setattr(_main, "FOLDER", tmp_path)
    monkeypatch.setattr(_main, "_call", call)
    return tmp_path


@pytest.mark.usefixtures("sample")
class TestOutcomes:
    def test_a_refusal_is_located_and_exits_with_1(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = run(capsys, "sample", "refuse")
        assert (code, out) == (1, "")
        assert "error[KIR-S006] no" in err and "--> f.kir:3:4" in err and "Traceback" not in err
        assert "Traceback" in run(capsys, "sample", "refuse", "--debug")[2]

    def test_an_unexpected_exception_is_one_line_unless_debugging(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = run(capsys, "sample", "crash")
        assert (code, out) == (1, "")
        first = err.splitlines()[0]
        assert first.startswith("error[KIR-C003] internal error at ") and "ZeroDivisionError: by zero" in first
        assert first.endswith("run with --debug") and "Traceback" not in err
        assert "Traceback" in run(capsys, "--debug", "sample", "crash")[2]

    def test_interruption_is_quiet(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(capsys, "sample", "interrupt") == (130, "", "interrupted\n")

    def test_a_result_carries_its_code_and_diagnostics(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, err = run(capsys, "sample", "fail")
        assert (code, out) == (1, "half done\n") and err.startswith("warning[KIR-S006] why")
        code, out, err = run(capsys, "sample", "--json", "fail")
        assert (code, err) == (1, "")
        value = json.loads(out)
        assert (value["schema"], value["n"], value["diagnostics"][0]["id"]) == ("kir.sample/1", 1, "KIR-S006")

    def test_words_after_a_double_dash_are_the_commands_own(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(capsys, "sample", "x", "--", "--json", "--debug")[1] == "x -- --json --debug\n"


def test_a_reader_that_goes_away_causes_no_traceback() -> None:
    command = f"set -o pipefail; {sys.executable} -c 'from kir.faces.cli import main; main()' explain | true"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
