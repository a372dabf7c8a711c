"""The commands doctor, explain and plugins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kir
import kir.faces.cli.setup.explain
import kir.faces.cli.setup.plugins
from kir.base.diagnostic import explanations
from kir.base.registry import Group, Registry, Source
from kir.faces.cli._main import run


def output(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert run(argv) == 0
    return capsys.readouterr().out


def test_doctor_names_what_is_missing_and_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    findings = json.loads(output(capsys, "doctor", "--json"))["findings"]
    names = [each["what"] for each in findings]
    for name in ("kir", "python", "nvcc", "ptxas", "triton", "tilelang", "torch", "pycuda", "landlock", "seccomp", "user namespaces"):
        assert name in names
    assert all(each["detail"] or each["remedy"] or each["there"] == "yes" for each in findings)
    text = output(capsys, "doctor")
    assert all(name in text for name in names)


def test_explain_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "explain", "KIR-X003")
    row = explanations()["KIR-X003"]
    assert row.title in text and row.explain in text and row.mend in text
    assert output(capsys, "explain", "x003") == text
    assert json.loads(output(capsys, "explain", "KIR-X003", "--json"))["title"] == row.title


def test_explain_lists_every_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert [line.split()[0] for line in output(capsys, "explain").splitlines()] == sorted(explanations())


def test_explain_prints_a_page_by_its_name_or_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "explain", "your-own-kernel")
    assert text.startswith("# Your own kernel") and kir.explain("your-own-kernel") == text.rstrip("\n")
    assert {output(capsys, "explain", name) for name in ("using/your-own-kernel", "docs/using/your-own-kernel.md")} == {text}
    listed = dict(line.split(maxsplit=1) for line in output(capsys, "explain", "pages").splitlines())
    assert listed["your-own-kernel"] == "Your own kernel" and listed["forecasts"] == "Forecasts" and listed["tables/forecasts"].startswith("Forecasts against")
    assert run(["explain", "your-own-kernl"]) == 2 and "did you mean 'your-own-kernel'?" in capsys.readouterr().err


def test_explain_finds_the_pass_that_declares_a_precondition(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "declaring"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "tilt_loop.py").write_text('import nothing_here\nX = Precondition("KIR-P998", "the loop is level")\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(kir.faces.cli.setup.explain, "registry", lambda group: Registry(group, [Source("declaring", "d", "1")]))
    value = json.loads(output(capsys, "explain", "P998", "--json"))
    assert [(each["pass"], each["line"]) for each in value["declared"]] == [("tilt-loop", 2)]


def test_plugins_shows_what_works_and_what_is_broken(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "half_good"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "works.py").touch()
    (folder / "fails.py").write_text("1 / 0")

    def known(group: Group) -> Registry:
        return Registry(group, [Source("half_good", "half-good-dist", "7")] if group == "kir.passes" else [])

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(kir.faces.cli.setup.plugins, "registry", known)
    assert run(["plugins"]) == 1
    out, err = capsys.readouterr()
    assert "half-good-dist 7 (half_good)\n    works\n" in out
    assert err.startswith("warning[KIR-X003] 'fails' of half-good-dist cannot be used: ZeroDivisionError")
    assert run(["plugins", "--json"]) == 1
    value = json.loads(capsys.readouterr().out)
    assert value["groups"]["kir.passes"]["sources"][0]["names"] == ["works"]
    assert [each["name"] for each in value["groups"]["kir.passes"]["broken"]] == ["fails"]
