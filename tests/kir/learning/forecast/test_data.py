"""Measured effects as files: what is written comes back, and whatever is not as the manifest says is one clear error."""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kir.base.diagnostic import KirError
from kir.learning.forecast.data import MANIFEST, PairRow, hash_of, merged, read, write

pytest.importorskip("pyarrow")
PROGRAMS = [{"program": name, "text": f"kir 1\nprogram {name}\n" * 40, "surface": "cuda", "family": "gemm"} for name in ("a", "b")]
PAIR: dict[str, Any] = {"device": "h200", "group": "g", "shape": "s", "sizes": {"M": 4}, "before": "a", "after": "b", "step": "tile{}@main",
                        "source": "walk", "family": "gemm"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write({"programs": PROGRAMS, "pairs": [{**PAIR, "speedup": 1.5}]}, tmp_path, command="c", when="2026-11-23")
    write({"pairs": [{**PAIR, "fault": "spills"}], "compiled": [{"program": "a", "arch": "sm_90a", "ok": True, "kernels": [
        {"kernel": "main", "registers": 32, "spills": 0, "shared_bytes": 1024, "threads": 64, "mix": {"LDG": 3}}]}]}, tmp_path, part="second")
    return tmp_path


def refused(folder: Path) -> tuple[str, str]:
    with pytest.raises(KirError) as bad:
        read(folder)
    (one,) = bad.value.diagnostics
    return one.id, one.message


def test_what_is_written_comes_back(folder: Path) -> None:
    data = read(folder)
    assert [p.speedup for p in data.pairs if not p.fault] == [1.5]
    assert [p.fault for p in data.pairs] == ["spills", ""] or [p.fault for p in data.pairs] == ["", "spills"]
    assert data.pairs[0].sizes == {"M": 4}
    made = data.artifact("a", "sm_90a")
    assert made is not None and made.registers == 32 and made.mix == {"LDG": 3} and data.artifact("b", "sm_90a") is None
    assert data.hash == hash_of(folder)


def test_a_part_is_replaced_by_itself_and_the_hash_moves(folder: Path) -> None:
    before = hash_of(folder)
    write({"pairs": []}, folder, part="second")
    assert len(read(folder).pairs) == 1 and hash_of(folder) != before


def test_a_file_that_is_cut_short(folder: Path) -> None:
    path = folder / "pairs.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    assert refused(folder)[0] == "KIR-E002"


def test_a_file_that_is_not_the_manifests(folder: Path) -> None:
    path = folder / "pairs.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert refused(folder)[0] == "KIR-E004"


def test_a_file_that_is_missing(folder: Path) -> None:
    (folder / "pairs.parquet").unlink()
    assert refused(folder)[0] == "KIR-E002"


def test_an_older_schema(folder: Path) -> None:
    path = folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 0}))
    assert refused(folder) == ("KIR-E003", f"{path} has schema 0; this KIR reads 1")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1, "files": {"x": {}}}'])
def test_a_manifest_that_is_none(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text)
    assert refused(folder)[0] == "KIR-E002"


def test_no_data_at_all(tmp_path: Path) -> None:
    assert refused(tmp_path)[0] == "KIR-E002"


@pytest.mark.parametrize(("row", "word"), [
    ({"speeedup": 1.0}, "did you mean 'speedup'"), ({"speedup": "fast"}, "no float"), ({"source": "guess"}, "none of"), ({"fault": "odd"}, "none of"),
    ({}, "without a fault"), ({"speedup": -1.0}, "without a fault"),
])
def test_a_row_that_is_none(tmp_path: Path, row: dict[str, Any], word: str) -> None:
    with pytest.raises(KirError, match="KIR-E001") as bad:
        write({"pairs": [{**PAIR, **row}]}, tmp_path)
    assert word in bad.value.diagnostics[0].message
    assert not (tmp_path / MANIFEST).exists()


def test_a_pair_of_unknown_programs(tmp_path: Path) -> None:
    write({"programs": PROGRAMS[:1], "pairs": [{**PAIR, "speedup": 1.0}]}, tmp_path)
    assert refused(tmp_path)[0] == "KIR-E001"


def test_without_pyarrow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert refused(folder)[0] == "KIR-E006"


def test_two_sets_as_one(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    write({"programs": PROGRAMS, "pairs": [PairRow(**{**PAIR, "speedup": 2.0})]}, other)
    both = merged([read(folder), read(other)])
    assert len(both.pairs) == 3 and len(both.programs) == 2
