"""The stored lineage: its schema, its chain, tampering, and replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kir.base.diagnostic import KirError, UsageError
from kir.lineage.records.folder import Folder, opened
from kir.lineage.records.locate import span_of
from kir.lineage.records.record import Lineage, dump, load
from kir.lineage.replay import replay
from tests.kir.lineage.toy import HEADER, ToyEngine, ToyJudge, expert, finished, walked


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    finished(tmp_path, walked(tmp_path, ToyEngine(), ToyJudge(ignored="b")))
    return Folder(tmp_path)


def edited(folder: Folder, change: Any) -> None:
    value = json.loads(folder.file.read_text())
    change(value)
    folder.file.write_text(json.dumps(value, indent=1))


def test_the_file_reads_back(folder: Folder) -> None:
    lineage = folder.read()
    assert load(dump(lineage), "x") == lineage
    assert dump(lineage) == folder.file.read_text()
    assert opened(folder.file).read() == opened(folder.root).read() == lineage
    assert [number for number, _ in lineage.transitions()] == [1, 2, 3]
    assert lineage.transitions()[-1][1].before == lineage.start


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda v: v["steps"][1]["witness"].update(value=99), '"index": 1'),
        (lambda v: v["steps"][2].update(reason="well"), '"index": 2'),
        (lambda v: v["steps"].pop(1), '"index": 2'),
        (lambda v: v["header"].update(problem="other"), '"schema": "kir.lineage/1"'),
        (lambda v: v["start"].update(nodes=1), '"schema": "kir.lineage/1"'),
        (lambda v: v["outcome"].update(realized=7), '"ended": "naive"'),
        (lambda v: v.update(seal="0" * 64), '"ended": "naive"'),
        (lambda v: v["steps"].pop(), '"ended": "naive"'),
    ],
)
def test_a_changed_record_is_found_at_its_place(folder: Folder, change: Any, key: str) -> None:
    edited(folder, change)
    with pytest.raises(KirError) as caught:
        folder.read()
    found = caught.value.diagnostics[0]
    assert found.id == "KIR-S011" and found.origin is not None
    near = folder.file.read_text().splitlines()[found.origin.line - 1 : found.origin.line + 4]
    assert any(key in line for line in near), near
    assert "hashes to" in found.witness[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v["steps"][1].update(anchr="x"), "there is no field 'steps.1.anchr'; did you mean 'anchor'?"),
        (lambda v: v["steps"][0]["before"].pop("nodes"), "the field 'steps.0.before.nodes' is missing"),
        (lambda v: v["steps"][0].update(residue_bytes="much"), "the field 'steps.0.residue_bytes' is wrong"),
        (lambda v: v["header"].update(schema="kir.lineage/99"), "its schema is 'kir.lineage/99'"),
    ],
)
def test_a_file_of_another_form_is_one_located_error(folder: Folder, change: Any, message: str) -> None:
    edited(folder, change)
    with pytest.raises(KirError) as caught:
        folder.read()
    assert len(caught.value.diagnostics) == 1
    found = caught.value.diagnostics[0]
    assert found.id == "KIR-S010" and message in found.message and found.origin is not None


def test_an_unfinished_walk_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no lineage\.json"):
        Folder(tmp_path).read()
    Folder(tmp_path).begin(HEADER)
    with pytest.raises(UsageError, match="was not finished"):
        Folder(tmp_path).read()


def test_another_command_does_not_resume_the_journal(folder: Folder) -> None:
    other = HEADER.model_copy(update={"targets": ("sm_90a",)})
    with pytest.raises(KirError) as caught:
        Folder(folder.root).begin(other)
    assert caught.value.diagnostics[0].id == "KIR-S013" and "targets" in caught.value.diagnostics[0].message
    assert not Folder(folder.root).begin(other, fresh=True)


def test_a_changed_journal_is_not_taken_up(folder: Folder) -> None:
    lines = folder.log.path.read_text().splitlines()
    lines[2] = lines[2].replace('"residue_bytes": 3', '"residue_bytes": 4')
    folder.log.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(KirError) as caught:
        Folder(folder.root).begin(HEADER)
    assert caught.value.diagnostics[0].id == "KIR-S011"
    assert caught.value.diagnostics[0].origin is not None and caught.value.diagnostics[0].origin.line == 3


def test_replay_gives_every_state_again(folder: Folder) -> None:
    outcome = replay(folder.read(), folder, ToyEngine(), ToyJudge())
    assert outcome.ok
    assert [each.number for each in outcome.transitions] == [1, 2, 3]
    assert all(each.exact for each in outcome.transitions)
    assert outcome.expert == expert()


class Drifted(ToyEngine):
    """A pass that has come to do something else since."""

    def forward(self, program: Any, step: Any) -> Any:
        if step.forward.startswith("set-b"):
            step = step.model_copy(update={"witness": {"value": 5}})
        return super().forward(program, step)


def lineage_of(folder: Folder) -> Lineage:
    return folder.read()


def test_replay_ends_at_the_first_hash_that_differs(folder: Folder) -> None:
    outcome = replay(lineage_of(folder), folder, Drifted())
    assert [each.ok for each in outcome.transitions] == [True, False]
    fault = outcome.diagnostics[0]
    assert fault.id == "KIR-S012" and "transition 2" in fault.message and fault.origin is not None
    assert "set-b" in folder.file.read_text().splitlines()[fault.origin.line - 1]


def test_replay_reports_a_step_that_does_not_apply(folder: Folder) -> None:
    outcome = replay(lineage_of(folder), folder, ToyEngine(broken_forward="b"))
    assert [each.id for each in outcome.diagnostics] == ["KIR-S012", "KIR-R999"]


def test_replay_reports_what_the_gate_refuses_now(folder: Folder) -> None:
    outcome = replay(lineage_of(folder), folder, ToyEngine(), ToyJudge(rule=lambda there: there != ["b", "c"]))
    assert [each.id for each in outcome.diagnostics] == ["KIR-S017"]


def test_a_changed_program_is_found(folder: Folder) -> None:
    path = folder.store.path(lineage_of(folder).states[-1].text)
    path.write_text(path.read_text().replace("1.0", "2.0"))
    with pytest.raises(KirError) as caught:
        replay(lineage_of(folder), folder, ToyEngine())
    assert caught.value.diagnostics[0].id == "KIR-S002"


def test_spans_in_json() -> None:
    text = '{"a": [1, {"b": "x"}], "c": {}}'

    def at(*path: str | int) -> str:
        start, end = span_of(text, path)
        return text[start:end]

    assert at("a", 1, "b") == '"x"'
    assert at("c") == "{}"
    assert at("a", 0) == "1"
    assert at("c", "gone") == "{"
