"""The table of packages: rows named by their package, counted, and nothing of the machine that they were measured on."""
from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.optimize import calls, packaged
from benchmarks.optimize.packaged import _row, packages, page

ROW: dict[str, Any] = {
    "kernel": "/here/site-packages/liger_kernel/ops/softmax.py::k", "binding": "liger_kernel-k-1", "launches": 2, "speedup": 1.25, "took": 3.0, "remark": "",
       "tried": [1, 2], "baseline": {"seconds": 5e-6}, "best": {"seconds": 4e-6, "plan": "threads k triton threads=512"}}


def test_rows_are_named_by_their_package_and_counted() -> None:
    other = {**ROW, "speedup": 1.0, "best": None, "baseline": None, "remark": "KIR-B005: no"}
    rows = [_row(r) for r in (ROW, other, {**ROW, "speedup": 1.05})]
    assert rows[0]["kernel"] == "liger_kernel:ops/softmax.py::k" and rows[1]["seconds"] is None
    about = {"command": "c", "device": "d", "when": "w", "calls": 3, "skipped": 0}
    told = "\n".join(page(rows, about))
    assert "brought to the run" not in told
    assert "2 of the calls were recorded before" in "\n".join(page(rows, {**about, "brought": 2}))
    assert "1 calls of 1 kernels are at least 1.1 times as fast, 2 faster at all" in told and "KIR-B005: no" in told and "/here" not in told


def test_calls_are_noted_as_made_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that its package refuses; of those that lie there none is begun."""
    made: list[str] = []

    def call(name: str) -> Any:
        def made_of(new: Any) -> Any:
            made.append(name)
            if name == "refused":
                raise ValueError("not here")
        return made_of

    torch = SimpleNamespace(manual_seed=lambda seed: None, cuda=SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(calls, "_in_turn", lambda: None)
    monkeypatch.setitem(calls.CALLS, "fla", lambda: {name: call(name) for name in ("one", "an_other of rows", "refused", "other")})
    done = tmp_path / "fla.txt"
    done.write_text("one\n")
    for _ in range(2):
        assert calls.main(["fla", "--done", str(done), "--known", "anything,another"]) == 0
    assert made == ["refused", "other", "an_other of rows"] and done.read_text().splitlines() == ["one", *made], "those of a known file come last"


def test_the_page_is_made_of_what_a_run_that_was_cut_off_has_left_beside_what_an_earlier_one_had(tmp_path: Path) -> None:
    """Seconds of 0 measure nothing: the rows are those of the folder's results, and those that the page had of other calls."""
    for name, row in (("0001-k", ROW), ("0002-j", {**ROW, "kernel": ROW["kernel"].replace("::k", "::j"), "binding": "liger_kernel-j-1"})):
        (tmp_path / "state" / "found" / "results").mkdir(parents=True, exist_ok=True)
        (tmp_path / "state" / "found" / "results" / f"{name}.json").write_text(json.dumps({**row, "speedup": 1.5}))
    about = {"command": "python -m benchmarks.optimize packages --seconds 9", "device": "a device", "when": "w", "calls": 3, "skipped": 1}
    known = [_row(ROW), {**_row({**ROW, "binding": "liger_kernel-k-2"}), "code": "c", "when": "w"}]
    (tmp_path / "optimize-packages.json").write_text(json.dumps({"about": about, "rows": known}))
    for _ in range(2):
        assert packages(tmp_path, "", 0.0, 1, str(tmp_path / "state")) == 0
        rows = json.loads((tmp_path / "optimize-packages.json").read_text())["rows"]
        (tmp_path / "state" / "found" / "results" / "0003-again.json").write_text(json.dumps({**ROW, "binding": "liger_kernel-k-2"}))
        assert rows[1] == known[1], "of its run, also where its result lies there still"
    assert [(r["call"], r["speedup"]) for r in rows] == [("liger_kernel-k-1", 1.5), ("liger_kernel-k-2", 1.25), ("liger_kernel-j-1", 1.5)]
    assert "3 calls of 2 kernels were searched with 6 candidates" in (tmp_path / "optimize-packages.md").read_text()
    assert packages(tmp_path / "none", "", 0.0, 1, str(tmp_path / "nothing")) == 1


def test_what_has_a_row_is_not_searched_again_and_kernels_without_one_come_first(tmp_path: Path) -> None:
    """Of recorded calls those of new kernels are taken; where there are none, new calls of known kernels; what was taken before stays."""
    calls_, asked = tmp_path / "calls", tmp_path / "asked"
    calls_.mkdir()
    for stem, kernel in (("liger_kernel-k-1", "k"), ("liger_kernel-k-2", "k"), ("liger_kernel-j-1", "j")):
        (calls_ / f"{stem}.toml").write_text(f"# {ROW['kernel'].replace('::k', f'::{kernel}')}\n")
    rows = [_row(ROW)]
    packaged._waiting(calls_, asked, rows)
    assert [f.stem for f in asked.iterdir()] == ["liger_kernel-j-1"]
    packaged._waiting(calls_, asked, [*rows, {**rows[0], "kernel": rows[0]["kernel"].replace("::k", "::j"), "call": "liger_kernel-j-1"}])
    assert sorted(f.stem for f in asked.iterdir()) == ["liger_kernel-j-1", "liger_kernel-k-2"]
    every = [{**rows[0], "kernel": rows[0]["kernel"].replace("::k", f"::{k}"), "call": call, "speedup": x, "gated": n}
             for k, call, x, n in (("k", "liger_kernel-k-1", 1.0, 2), ("k", "liger_kernel-k-2", 1.0, 60), ("j", "liger_kernel-j-1", 1.2, 2))]
    packaged._waiting(calls_, tmp_path / "again", every)
    assert [f.stem for f in (tmp_path / "again").iterdir()] == ["liger_kernel-k-1"], "few candidates found little"
