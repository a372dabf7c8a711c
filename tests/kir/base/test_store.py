"""The store: content addressing, damage, and what a killed writer leaves."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.base.store import EvidenceTable, Log, Store, content_hash, read_json, write_atomic


def fault_of(caught: pytest.ExceptionInfo[KirError]) -> tuple[str, int]:
    found = caught.value.diagnostics[0]
    return found.id, found.origin.line if found.origin else 0


def test_a_program_is_found_by_its_hash_and_by_its_beginning(tmp_path: Path) -> None:
    store = Store(tmp_path)
    key = store.put("program gemm(M)\n")
    assert key == content_hash("program gemm(M)\n") == store.put("program gemm(M)\n")
    assert store.get(key) == store.get(key[:8]) == "program gemm(M)\n"
    assert list(store) == [key] and key in store
    for wrong in ("0" * 64, key[:7], "../../etc/passwd", ""):
        with pytest.raises(KirError) as caught:
            store.get(wrong)
        assert fault_of(caught)[0] == "KIR-S001"


def test_a_changed_program_is_not_handed_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    key = store.put("a")
    store.path(key).write_text("b")
    with pytest.raises(KirError) as caught:
        store.get(key)
    assert fault_of(caught) == ("KIR-S002", 1)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "file"
    write_atomic(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(file, "\ud800")
    (tmp_path / "deep" / "folder").mkdir()
    with pytest.raises(OSError):
        write_atomic(tmp_path / "deep" / "folder", "new")
    assert file.read_text() == "old"
    assert sorted(each.name for each in file.parent.iterdir()) == ["file", "folder"]


def test_a_log_ignores_an_unfinished_line_and_goes_on_after_it(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    assert list(log.records()) == []
    log.append({"n": 1})
    with log.path.open("a") as file:
        file.write('{"n": 2, "unfini')
    assert [each["n"] for each in log.records()] == [1]
    log.append({"n": 3})
    assert [each["n"] for each in log.records()] == [1, 3]


def test_a_damaged_line_of_a_log_is_located(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    log.path.write_text('{"n": 1}\n[2]\n{"n": 3}\n')
    with pytest.raises(KirError) as caught:
        list(log.records())
    assert fault_of(caught) == ("KIR-S003", 2)


def test_evidence_is_kept_and_filtered(tmp_path: Path) -> None:
    path = tmp_path / "evidence.sqlite"
    with EvidenceTable(path) as table:
        first = table.add("gate", "abc", "accepted", {"ms": 1.5})
        table.add("gate", "abd", "refused", {"why": "π"})
        assert [row.id for row in table.find(subject="abc")] == [first]
    with EvidenceTable(path) as table:
        assert [row.verdict for row in table.find(kind="gate")] == ["accepted", "refused"]
        assert table.find(verdict="refused")[0].record == {"why": "π"}
        assert table.find(kind="trial") == []


def test_a_newer_schema_and_a_file_that_is_no_database_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "evidence.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(KirError) as caught:
        EvidenceTable(path)
    assert fault_of(caught)[0] == "KIR-S004"
    path.write_text("this is a text file, not a database, and long enough to be told apart from one\n" * 20)
    with pytest.raises(KirError) as caught:
        EvidenceTable(path)
    assert fault_of(caught)[0] == "KIR-S005"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{\n "name": 1,\n}', 3, "not JSON"),
        ('{\n "name": "x",\n "sise": 3\n}', 3, "no field 'sise'; did you mean 'size'"),
        ('{\n "name": "x",\n "size": "3"\n}', 3, "'size' must be of type int"),
        ('{"name": "x"}', 1, "'size' is missing"),
        ("[]", 1, "one JSON object"),
    ],
)
def test_wrong_json_is_located(tmp_path: Path, text: str, line: int, words: str) -> None:
    file = tmp_path / "card.json"
    file.write_text(text)
    with pytest.raises(KirError) as caught:
        read_json(file, {"name": str, "size": int})
    assert fault_of(caught) == ("KIR-S006", line)
    assert words in caught.value.diagnostics[0].message


WRITER = """
import sys
from pathlib import Path
from kir.base.store import EvidenceTable, Log, write_atomic
root = Path(sys.argv[1])
table = EvidenceTable(root / "evidence.sqlite")
for n in range(10**9):
    write_atomic(root / "whole", "ab"[n % 2] * 3_000_000)
    Log(root / "log.jsonl").append({"n": n, "padding": "x" * 50_000})
    table.add("trial", str(n), "done", {"n": n})
    print(n, flush=True)
"""


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_killed_writer_leaves_nothing_half_written(tmp_path: Path, rounds: int) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        done = [int(child.stdout.readline()) for _ in range(rounds)][-1]
        child.send_signal(signal.SIGKILL)
    whole = (tmp_path / "whole").read_text()
    assert len(whole) == 3_000_000 and len(set(whole)) == 1
    log = Log(tmp_path / "log.jsonl")
    numbers = [record["n"] for record in log.records()]
    assert numbers == list(range(len(numbers))) and len(numbers) > done
    log.append({"n": -1})
    assert list(log.records())[-1] == {"n": -1}
    with EvidenceTable(tmp_path / "evidence.sqlite") as table:
        rows = [row.record["n"] for row in table.find(kind="trial")]
        assert rows == list(range(len(rows))) and len(rows) > done


def test_records_are_readable_lines(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    log.append({"b": "ü", "a": [1]})
    assert log.path.read_text() == '{"a": [1], "b": "ü"}\n'
    with pytest.raises(ValueError):
        log.append({"x": float("nan")})
    assert [json.loads(line) for line in log.path.read_text().splitlines()] == [{"a": [1], "b": "ü"}]
