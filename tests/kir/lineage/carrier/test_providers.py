"""Recorded answers, people, and the settings file."""
from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.ir.canonical import alpha_equal
from kir.ir.parser import parse_program
from kir.lineage.carrier import Answer, Contract, check, fill_recorded, find, holes
from kir.lineage.carrier.providers.budget import Meter
from kir.lineage.carrier.providers.person import Editor, Exchange
from kir.lineage.carrier.providers.provider import RecordedProvider
from kir.lineage.carrier.providers.settings import read_settings
from kir.lineage.carrier.records import save
from kir.lineage.carrier.sessions.session import run
from tests.kir.lineage.carrier.asking import HERE, HOST, RIGHT, SERIAL, TOY, WRONG


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "kir" / "carriers" / "toy"


def recorded_as(name: str, text: str = SERIAL) -> Path:
    return save(TOY, name, Answer(text), who="A. Person", provider="person", gate={"accepted": True})


def test_a_recorded_answer_fills_a_hole_by_name_by_hash_and_by_default(library: Path) -> None:
    program = parse_program(HOST)
    (path, _), = holes(program)
    with pytest.raises(KirError, match="KIR-H142"):
        fill_recorded(TOY, program, path)
    recorded_as("serial")
    found = find(TOY)
    assert (found.name, found.record.who, found.shipped) == ("serial", "A. Person", False)
    filled = fill_recorded(TOY, program, path)
    assert alpha_equal(filled, fill_recorded(TOY, program, path, "serial"))
    assert alpha_equal(filled, fill_recorded(TOY, program, path, found.record.answer[:8]))
    outcome = run(TOY, program, path, RecordedProvider(), Meter("run"))
    assert outcome.program is not None and alpha_equal(outcome.program, filled) and outcome.attempts[0].who == "A. Person"
    for wanted in ("parallel", "00000000", found.record.answer[:7]):
        with pytest.raises(KirError, match="KIR-H142"):
            find(TOY, wanted)


def test_a_record_of_another_contract_or_with_another_text_counts_for_nothing(library: Path, tmp_path: Path) -> None:
    path = recorded_as("serial")
    other = tmp_path / "toy"
    other.mkdir()
    for file in ("contract.toml", "reference.py"):
        (other / file).write_text((HERE / "toy" / file).read_text() + "\n")
    changed = Contract(other)
    assert changed.hash != TOY.hash
    for attempt in ("", "serial"):
        with pytest.raises(KirError, match="KIR-H141"):
            find(changed, attempt)
    program = parse_program(HOST)
    (place, _), = holes(program)
    outcome = run(changed, program, place, RecordedProvider(), Meter("run"))
    assert [d.id for d in outcome.stopped] == ["KIR-H141"]
    path.with_suffix(".kir").write_text(SERIAL + "\n")
    with pytest.raises(KirError, match="KIR-H143"):
        find(TOY, "serial")
    path.write_text(path.read_text().replace('who = "A. Person"', 'whom = "A. Person"'))
    with pytest.raises(KirError, match="KIR-H140") as refused:
        find(TOY, "serial")
    assert refused.value.diagnostics[0].origin is not None


def test_refused_recordings_are_passed_over_for_the_next(library: Path) -> None:
    recorded_as("a-wrong", SERIAL.replace("f32 = 0.0", "f32 = 0.5"))
    recorded_as("b-right")
    program = parse_program(HOST)
    (path, _), = holes(program)
    outcome = run(TOY, program, path, RecordedProvider(), Meter("run"), turns=1)
    assert [a.verdict.stage for a in outcome.attempts] == ["oracle", "accepted"]
    assert run(TOY, program, path, RecordedProvider(only="a-wrong"), Meter("run"), turns=1).stopped[0].id == "KIR-H142"


def script(folder: Path, body: str) -> str:
    path = folder / "editor"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_person_answers_in_an_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse_program(HOST)
    (place, _), = holes(program)
    (tmp_path / "wrong").write_text(WRONG)
    (tmp_path / "right").write_text(RIGHT)
    first = f"if grep -q KIR-H130 \"$1\"; then cp {tmp_path}/right \"$1\"; else grep -q 'def oracle' \"$1\" && cp {tmp_path}/wrong \"$1\"; fi"
    outcome = run(TOY, program, place, Editor("me", script(tmp_path, first)), Meter("run"), turns=1)
    assert [a.verdict.stage for a in outcome.attempts] == ["oracle", "accepted"] and outcome.attempts[1].who == "me"
    for command in (script(tmp_path, "exit 3"), str(tmp_path / "absent")):
        assert run(TOY, program, place, Editor("me", command), Meter("run")).stopped[0].id == "KIR-H310"
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)
    assert run(TOY, program, place, Editor("me"), Meter("run")).stopped[0].id == "KIR-H310"


def test_a_person_answers_by_exchanging_files(tmp_path: Path) -> None:
    program = parse_program(HOST)
    (place, _), = holes(program)
    asked = run(TOY, program, place, Exchange("you", tmp_path), Meter("run"))
    assert [d.id for d in asked.stopped] == ["KIR-H311"] and "def oracle" in (tmp_path / "request.md").read_text()
    (tmp_path / "answer.md").write_text(WRONG)
    asked = run(TOY, program, place, Exchange("you", tmp_path), Meter("run"), turns=1)
    assert [d.id for d in asked.stopped] == ["KIR-H311", "KIR-H130"] and "KIR-H130" in (tmp_path / "request.md").read_text()
    (tmp_path / "answer.md").write_text(RIGHT)
    assert run(TOY, program, place, Exchange("you", tmp_path), Meter("run")).program is not None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["answer.1.md", "answer.2.md", "request.md"]


@pytest.mark.parametrize(("text", "said"), [
    ("provider = 'chatty'", "provider"), ("[openai]\nmodel = 'm'\napi_key = 'sk-1'", "NAME_OF_AN_ENVIRONMENT_VARIABLE"),
    ("[openai]\nmodel = 'm'\nkey = 'sk-abc'", "key"), ("[openai]\nmodel = 'm'\nendpoint = 'file:///etc'", "endpoint"),
    ("[budget.run]\ndolars = 1", "did you mean 'dollars'"), ("[openai", "carriers.toml"), ("turns = -1", "turns")])
def test_settings_that_are_wrong_are_located(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "carriers.toml"
    path.write_text(text)
    with pytest.raises(KirError, match="KIR-H401") as refused:
        read_settings(path)
    assert said in str(refused.value) and "sk-1" not in refused.value.diagnostics[0].message


def test_without_a_settings_file_answers_are_recorded_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert read_settings().provider == "recorded"
    with pytest.raises(KirError, match="KIR-H401"):
        read_settings(tmp_path / "absent.toml")


@pytest.mark.parametrize(("old", "new"), [
    ('at = "long"', 'at = "longer"'), ("version = 1", "version = 0"), ('shape = ["N"] },\n  { name = "S"', 'shape = ["N + 1"] },\n  { name = "S"'),
    ('dtype = "f32", shape = ["N"] },\n  { name = "P"', 'dtype = "f33", shape = ["N"] },\n  { name = "P"'), ('level = "cta"', 'level = "warp"'),
    ('"odd", "tail"', '"small"'), ('role = "out"', 'role = "in"'), ('name = "X"', 'name = "X", optional = true')])
def test_a_contract_that_is_wrong_is_located(old: str, new: str, tmp_path: Path) -> None:
    text = (HERE / "toy" / "contract.toml").read_text()
    assert old in text
    everywhere = -1 if 'role = "out"' in old else 1
    (tmp_path / "contract.toml").write_text(text.replace(old, new, everywhere))
    (tmp_path / "reference.py").write_text((HERE / "toy" / "reference.py").read_text())
    wrong = Contract(tmp_path)
    if "N + 1" in new:
        assert not check(wrong, Answer(SERIAL)).accepted
        return
    with pytest.raises(KirError, match="KIR-H101") as refused:
        _ = wrong.spec
    assert refused.value.diagnostics[0].origin is not None
