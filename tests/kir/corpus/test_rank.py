"""What is made of recorded bindings: sites ranked by modelled gain, and lineages of many kernels."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kir.cli._main import run
from kir.corpus.rank import ranked, recorded
from kir.diagnostic import KirError
from kir.target import target

KERNEL = '''import triton
import triton.language as tl

@triton.jit
def doubled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2.0, mask=at < n)
'''
BINDING = '''# {file}::doubled
kernel = "doubled"
grid = [8]
[metas]
BLOCK = 128
[scalars]
n = 1000
[tensors.x_ptr]
shape = [1000]
dtype = "f32"
[tensors.y_ptr]
shape = [1000]
dtype = "f32"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "doubled.py").write_text(KERNEL)
    made = tmp_path / "bindings"
    made.mkdir()
    (made / "doubled-1.toml").write_text(BINDING.format(file=tmp_path / "doubled.py"))
    (made / "gone-1.toml").write_text(BINDING.format(file=tmp_path / "gone.py"))
    (made / "plain.toml").write_text('kernel = "doubled"\n')
    return made


def test_sites_are_ranked_and_what_cannot_be_read_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ranked(folder, target("sm_90a"))
    assert [place.rpartition("/")[2] for place, _ in found.skipped] == ["gone.py::doubled"]
    allowed = [s for s in found.suggestions if not s.refused and not s.open_]
    assert allowed and [s.gain for s in allowed] == sorted((s.gain for s in allowed), reverse=True)
    assert any(s.step.startswith("cache-policy") for s in allowed)
    assert run(["sites", str(folder), "--package", "--most", "3"]) == 0
    assert "doubled-1.toml" in capsys.readouterr().out


def test_bindings_may_stand_in_one_file_of_json_lines(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = tmp_path / "bindings.jsonl"
    place = f"{tmp_path / 'doubled.py'}::doubled"
    lines.write_text(json.dumps({"kernel": place, "binding": BINDING.partition("\n")[2]}) + "\n")
    for _ in range(2):
        ((found, path),) = recorded(lines)
        assert found == place and path.name == "doubled-1.toml" and path.read_text().startswith(f"# {place}\nkernel")
    for bad in ("{", '{"kernel": 3}', "[]", ""):
        lines.write_text(bad)
        with pytest.raises(KirError) as refused:
            recorded(lines)
        assert refused.value.diagnostics[0].id == "KIR-C118"


def test_a_folder_without_recorded_bindings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KirError, match="KIR-C118"):
        ranked(tmp_path, target("sm_90a"))
    assert run(["corpus", "--lineages", str(tmp_path)]) == 2
    assert run(["corpus"]) == 2


def test_lineages_are_counted_with_what_stopped_the_others(
        folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Done:
        def __init__(self, said: dict[str, Any]) -> None:
            self.stdout = json.dumps(said)

    def walk(words: list[str], **options: Any) -> Done:
        if "gone.py" in " ".join(words):
            return Done({"schema": "kir.error/1", "diagnostics": [{"id": "KIR-S018", "message": "there is no file 'gone'"}]})
        return Done({"schema": "kir.lineage/1", "ended": "naive", "reason": "N holds", "violations": [], "steps": 4, "intents": ["tile"]})
    monkeypatch.setattr("kir.corpus.lineages.subprocess.run", walk)
    assert run(["corpus", "--lineages", str(folder), "-o", str(tmp_path / "out"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["walked"], data["naive"], data["families"]) == (2, 1, 1)
    assert data["stopped"] == [{"reason": "KIR-S018 there is no file '..'", "kernels": 1}] and data["by_family"] == {"other": 1}
