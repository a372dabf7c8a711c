"""Models beside torch: the models that are written here, rows of several runs in one folder, what the table counts, and a folder that is given."""
from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.optimize import kernelbench as kb
from benchmarks.optimize.ahead import Proposed
from benchmarks.optimize.heldout import _in_order
from benchmarks.optimize.models import LEVEL_1, LEVEL_2, written
from kir.learning.optimize.search import Budget
from kir.learning.optimize.sources import LineageSource
from kir.problem.model_source import ModelSource

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
SOFTMAX = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.{name}(x, dim=1){which}

batch = 64
dim = 256

def get_inputs():
    return [torch.randn(batch, dim)]

def get_init_inputs():
    return []
"""


def test_the_models_have_the_form_that_the_importer_reads(tmp_path: Path) -> None:
    files = written(tmp_path)
    assert len({kb.Asked(str(f)).name for f in files}) == len(LEVEL_1) + len(LEVEL_2) == len(files)
    assert all(ModelSource.read(f).sizes for f in files), "each has a size that moves"


def test_rows_of_two_runs_over_one_folder_are_kept_and_counted(tmp_path: Path) -> None:
    first, second = (kb.Rows(tmp_path / "rows.json", "", "gpu") for _ in range(2))
    first.keep("level1/a", {"kernels": 1, "seconds": 1e-5, "eager": 2e-5, "compiled": 0.5e-5, "tried": [{}], "spent": {"search": 5.0, "candidates": 15.0}})
    second.keep("level1/b", {"kernels": 2, "seconds": 1e-5, "eager": 0.5e-5, "compiled": 2e-5, "tried": [{}]})
    first.keep("level2/c", {"seconds": None, "remark": "KIR-G918: no"})
    told = "\n".join(kb.Rows(tmp_path / "rows.json", "", "gpu").table())
    page = (tmp_path / "rows.md").read_text()
    (tmp_path / "rows.md").unlink()
    kb.Rows(tmp_path / "rows.json", "", "cpu", "--on cpu").told_again()
    assert (tmp_path / "rows.md").read_text() == page, "as the run told, whoever asks"
    assert "level1: 2 of 2 models have a naive program; of these 2 end right, 1 of 2 faster than eager (geometric mean 1.00" in told
    assert "level2: 0 of 1 models have a naive program" in told and "KIR-G918: no" in told and "took 25% of the 20 s of 1 models" in told


def test_a_row_of_other_code_is_begun_anew_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = kb.Rows(tmp_path / "rows.json", "", "gpu")
    rows.about["device"] = "a device"
    tried = [{"accepted": True, "family": "tiles", "surface": "cuda", "forecast": 1e-5, "seconds": x} for x in (2e-5, 3e-5, 4e-5)]
    rows.keep("level1/a", {"kernels": 1, "seconds": 2e-5, "tried": [*tried, {"accepted": False, "forecast": 1e-5, "seconds": None}]})
    assert rows.now("level1/a") and rows.now("level1/b") is None
    assert rows.priors("level1/b") == {"": 3.0, "tiles cuda": 3.0} and rows.priors("level1/a") == {}, "of other models alone"
    monkeypatch.setattr(kb, "code", lambda *_: "another")
    assert rows.now("level1/a") is None, "of other code"
    rows.keep("level1/b", {"kernels": 1, "seconds": 1e-5, "tried": []})
    assert "Rows of several codes: " in "\n".join(rows.table()) and "1 of another" in "\n".join(rows.table())
    rows.about["device"] = "another device"
    assert rows.now("level1/b") is None


def test_where_nothing_was_measured_a_family_is_as_wrong_as_it_was_elsewhere() -> None:
    told = [Proposed("a", "a", "tiles", "cuda", "", 1e-5, 1, 0), Proposed("b", "b", "scan", "triton", "", 2e-5, 1, 0)]
    assert [p.key for p in _in_order(told, [], {})] == ["a", "b"]
    assert [p.key for p in _in_order(told, [], {"": 1.0, "tiles cuda": 3.0})] == ["b", "a"]
    tried = [{"candidate": "c", "family": "tiles", "surface": "cuda", "accepted": True, "forecast": 1e-5, "seconds": 1e-5}]
    assert [p.key for p in _in_order(told, tried, {"tiles cuda": 3.0})] == ["a", "b"], "what was measured here counts alone"


@needs_torch
def test_a_folder_that_is_given_is_searched_by_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model becomes faster than its naive program and is right; one that no naive program says is a row with the reason; both are there again."""
    monkeypatch.setattr(kb, "MODELLED", Budget(candidates=1, plans=8, seconds=1e4))
    monkeypatch.setattr(kb, "sources", lambda: (LineageSource(only=("softmax_tilelang",)),))
    (tmp_path / "level1").mkdir()
    for name, which in (("softmax", ""), ("sort", "[0]")):
        (tmp_path / "level1" / f"{name}.py").write_text(SOFTMAX.format(name=name, which=which))
    for _ in range(2):
        assert kb.kernelbench(tmp_path / "out", "cpu", str(tmp_path), "", 1e4, 1) == 0
    rows = kb.Rows(tmp_path / "out" / "optimize-kernelbench-modelled.json", "", "cpu").rows
    assert rows["level1/sort"]["remark"].startswith("KIR-G918") and not rows["level1/sort"]["seconds"]
    assert rows["level1/softmax"]["seconds"] < 0.5 * rows["level1/softmax"]["given"]
    rectified = tmp_path / "relu.py"
    rectified.write_text(SOFTMAX.format(name="softmax", which="").replace("torch.softmax(x, dim=1)", "torch.relu(x)"))
    kernels, told = kb.proposals(str(rectified), "h200", "triton")
    assert kernels == 1 and told and all(p.surface == "triton" for p in told), "a surface that is asked for has proposals"
    assert kb.search_ahead(tmp_path / "ahead", str(tmp_path), "", 1e4, 1, "triton") == 0
    softmax, sort = (tmp_path / "level1" / f"{name}.py" for name in ("softmax", "sort"))
    kept, none = (kb._kept(str(tmp_path / "ahead"), str(x), "triton") for x in (softmax, sort))
    assert kept is not None and kept["kernels"] == 3 and kept["proposals"] and none is not None and none["remark"].startswith("KIR-G918")
    _a_device_takes_what_was_searched(monkeypatch, softmax, tmp_path / "ahead", kept)
    softmax.write_text(softmax.read_text() + "\n")
    assert kb._kept(str(tmp_path / "ahead"), str(softmax), "triton") is None, "of another text"


def _a_device_takes_what_was_searched(monkeypatch: pytest.MonkeyPatch, model: Path, ahead: Path, kept: Mapping[str, Any]) -> None:
    """The seconds of a search count once, and a second visit measures further candidates beside the time of torch that is known."""
    asked: list[tuple[int, int]] = []

    def more(gpu: Any, one: Any, told: Any, row: Mapping[str, Any], until: float, most: int, shared: Any,
             priors: Mapping[str, float]) -> dict[str, Any]:
        asked.append((len(told), most))
        return {**row, "seconds": 3e-5, "tried": [*row["tried"], {}]}
    monkeypatch.setattr(kb, "opened", lambda: SimpleNamespace(target=SimpleNamespace(device=SimpleNamespace(name="h200"))))
    monkeypatch.setattr(kb, "beside", lambda gpu, one: {"eager": 2e-5, "compiled": 2.5e-5})
    monkeypatch.setattr("benchmarks.optimize.heldout.measured_more", more)
    first = kb.device_row(kb.Model(str(model), "triton", str(ahead)))
    assert first["spent"]["search"] == kept["search"] <= first["took"] and first["eager"] == 2e-5
    assert first["compiled"] == 2.5e-5 and not kb._wanted("first", first)
    assert not kb._wanted("more", {**first, "proposed": 1}) and kb._wanted("more", {**first, "proposed": 2})
    assert not kb._wanted("more", {**first, "proposed": 2, "seconds": 1e-5}), "it is faster than torch"
    second = kb.device_row(kb.Model(str(model), "triton", str(ahead), {**first, "eager": 1e-5}))
    assert second["eager"] == 1e-5 and len(second["tried"]) == 2 and second["spent"]["search"] == kept["search"]
    assert asked == [(len(kept["proposals"]), 1), (len(kept["proposals"]), kb.MEASURED)]


def test_on_a_device_models_come_in_the_order_of_the_words(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a run that is cut short are those that it has made, whole."""
    kept: list[tuple[str, dict[str, Any]]] = []

    class Here:
        """An engine that works where it is asked."""

        def begin(self, work: Any, task: Any) -> Any:
            said: Future[Any] = Future()
            said.set_result(work(task))
            return SimpleNamespace(said=said)

        def result(self, task: Any, seconds: float) -> Any:
            return task.said.result()

        def close(self) -> None:
            pass

    monkeypatch.setattr(kb, "Devices", lambda gpus, each: Here())
    monkeypatch.setattr("kir.gate.gpu.Gpu.open", lambda: nullcontext(SimpleNamespace(about={"name": "a device"}, peaks=None)))
    torch = {"eager": 2e-5, "compiled": 1.5e-5}
    monkeypatch.setattr(kb, "device_row", lambda task: {"kernels": 1, "seconds": None if "tanh" in task.path else 1e-5, **torch, "tried": []})
    keep = kb.Rows.keep

    def noted(self: kb.Rows, name: str, row: Mapping[str, Any]) -> None:
        kept.append((name, dict(row)))
        keep(self, name, row)
    monkeypatch.setattr(kb.Rows, "keep", noted)
    assert kb.kernelbench(tmp_path, "gpu", "", "matvec,level1/tanh,level1/relu", 60.0, 1) == 0
    assert [name for name, _ in kept] == ["level1/matvec", "level1/tanh", "level1/relu"]
    assert "2 end right, 2 of 2 faster than eager (geometric mean 2.00, median 2.00), 2 of 2 faster than torch.compile" in (
        tmp_path / "optimize-kernelbench.md").read_text()
