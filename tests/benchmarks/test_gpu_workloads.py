"""What the workloads on a GPU stand on that needs none: candidates that are right, calls that hold what they point at, and the table."""
from __future__ import annotations

import gc
import json
import math
import os
import pickle
import subprocess
import sys
import tomllib
import weakref
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu_workloads import (
    bmm,
    conv2d,
    fmha,
    fmha_varlen,
    gemm,
    gemm_fp8,
    gemm_grouped,
    history,
    intents,
    sass,
    table,
    topk,
    tuned,
)
from benchmarks.gpu_workloads.running import asking, launching, replaying, watched
from benchmarks.surfaces import measured_steps, workloads_report
from kir.base.diagnostic import Diagnostic, KirError
from kir.hardware.target import Target
from kir.interp import run
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.tune.space import find_space
from kir.problem import Problem, Shape, load_problem
from kir.problem.problem import shape_of
from kir.surface import Artifact, Emitted, backend


class Memory:
    """A tensor of whatever size, at an address of its own."""

    shape = (2, 64)

    def data_ptr(self) -> int:
        return id(self)


@pytest.fixture
def others_kept() -> None:
    """What other tests have left is not gone through when garbage is sought."""
    gc.freeze()


@pytest.mark.usefixtures("others_kept")
def test_a_call_holds_the_workspaces_whose_addresses_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[weakref.ref[Memory]]()

    def empty(*_: Any, **__: Any) -> Memory:
        one = Memory()
        made.append(weakref.ref(one))
        return one

    stream = SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=0))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(empty=empty, uint8=None, cuda=stream))
    launched = list[Any]()
    driver = SimpleNamespace(launch=lambda *a, **k: launched.append(a), stream=None)
    monkeypatch.setattr(launching, "_driver", lambda: driver)
    monkeypatch.setattr(launching, "_function", lambda image: image)
    program = parse_program("""kir 1
program p
  in X: f32[2, 64]
  workspace W: f32[2, 64]
  out Y: f32[2, 64]
kernel main grid (i: 2) threads 1
  for j in 0..64
    W[i, j] = X[i, j]
    Y[i, j] = W[i, j]
""")
    image = SimpleNamespace(hidden=(8,), dynamic_shared=0, cluster=(1, 1, 1))
    row = {"image": 0, "arguments": [["buffer", "X"], ["buffer", "W"]], "grid": (2, 1, 1), "threads": 1, "dependent": False}
    executable: Any = SimpleNamespace(emitted=None, images=(image,), memsets=lambda at: (), launches=lambda emitted, at: (row,))
    call = launching.launcher(program, {"X": Memory(), "Y": Memory()}, {}, executable=executable)
    gc.collect()
    assert len(made) == 2 and all(m() is not None for m in made)
    call()
    assert launched[0][4][1].value == id(made[0]())
    del call
    launched.clear()
    gc.collect()
    assert all(m() is None for m in made)


@pytest.mark.usefixtures("others_kept")
def test_a_graph_holds_the_calls_whose_workspaces_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = list[str]()
    stream = SimpleNamespace(wait_stream=lambda other: None)
    cuda = SimpleNamespace(Stream=lambda: stream, current_stream=lambda: stream, stream=lambda s: nullcontext(), synchronize=lambda: None,
                           CUDAGraph=lambda: SimpleNamespace(replay=lambda: ran.append("graph")), graph=lambda g: nullcontext())
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    one = Memory()
    held, calls = weakref.ref(one), [lambda one=one: one.shape]
    way = replaying.replayed(calls)
    del one, calls
    gc.collect()
    assert held() is not None and way() == Memory.shape and ran == ["graph"]
    del way
    gc.collect()
    assert held() is None


def _naive(x: Any, w: Any, taps: int, stride: int) -> Any:
    """A convolution with the middle tap inside."""
    n, h, wide, _ = x.shape
    padded = np.zeros((n, h + taps - 1, wide + taps - 1, x.shape[3]))
    padded[:, taps // 2: taps // 2 + h, taps // 2: taps // 2 + wide] = x
    moved = [(padded[:, r: r + h: stride, s: s + wide: stride], w[:, r, s].astype(np.float64)) for r in range(taps) for s in range(taps)]
    return sum(np.einsum("nhwc,fc->nhwf", a, b) for a, b in moved)


@pytest.mark.parametrize(("kind", "point"), [
    ((1, 1), "conv2d_sm90 rows=64 columns=64 stages=3 raster=8 rounds=1"),
    ((3, 2), "conv2d_sm90_split rows=64 columns=64 stages=3 parts=2"),
    ((1, 2), "conv2d_sm90_pingpong rows=64 columns=64 stages=3 raster=8 rounds=1"),
    ((3, 1), "conv2d_sm90_wide rows=48 columns=64 stages=3"),
    ((3, 1), "conv2d_triton rows=64 columns=64 stages=2 threads=128"),
    ((3, 1), "conv2d_boxes_triton rows=64 high=4 images=1 columns=64 stages=2 threads=128"),
    ((3, 2), "conv2d_boxes_triton rows=64 high=2 images=4 columns=64 stages=2 threads=128"),
    ((3, 2), "conv2d_tilelang rows=64 columns=64 stages=2 threads=128"),
], ids=["1x1", "3x3 of every other pixel", "1x1 of every other pixel", "transposed", "Triton", "boxes of pixels", "boxes of every other pixel", "TileLang"])
def test_every_kind_of_convolution_is_right(kind: conv2d.Kind, point: str) -> None:
    taps, stride = kind
    rng = np.random.default_rng(2)
    n, h, w, c, f = (2, 6, 10, 64, 72) if "images=4" in point else (2, 7, 9, 64, 72)
    x, weights = rng.standard_normal((n, h, w, c)).astype(np.float16), rng.standard_normal((f, taps, taps, c)).astype(np.float16)
    given = {"X": x, "Wt": weights if taps > 1 else weights[:, 0, 0]}
    found = run(conv2d.candidate((kind, point, ())), given, {"N": n, "H": h, "W": w, "C": c, "F": f}, mode="check")
    want = _naive(x.astype(np.float64), weights, taps, stride)
    assert not found.errors and np.allclose(found.outputs["Y"], want, rtol=2e-3, atol=2e-2)


def test_every_shape_has_points_and_few_tiles_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in conv2d.SHAPES:
        assert len([p for p in conv2d.POINTS if conv2d.suits(p, *shape)]) >= 4
    few, many = (8, 14, 14, 512, 512, (3, 1)), (8, 112, 112, 128, 128, (3, 1))
    sized = {p for p in conv2d.TRITON_AT_SIZES if conv2d.suits(p, *few)}
    assert sized <= asking.fastest_titles("conv2d"), "where all are tried, sizes are numbers on Triton in what was the fastest of a row"
    for of in (asking, conv2d):
        monkeypatch.setattr(of, "KNOWN", [asking.NAMED, "_triton"])
    own = {p for p in conv2d.POINTS if conv2d.suits(p, *few)}
    assert any(p in own - sized and p.replace(asking.SIZED, "") in own for p in conv2d.TRITON_AT_SIZES)
    monkeypatch.undo()
    assert any("_split" in p and conv2d.suits(p, *few) for p in conv2d.POINTS)
    assert not any("_split" in p and conv2d.suits(p, *many) for p in conv2d.POINTS)


def test_groups_are_uneven_and_every_row_of_experts_has_points() -> None:
    for row in gemm_grouped.ROWS:
        lengths = np.diff(row.offsets)
        assert row.offsets[0] == 0 and row.offsets[-1] == row.rows and lengths.max() >= 3 * row.rows / row.groups and lengths.min() >= 0
        assert len([p for p in gemm_grouped.POINTS if gemm_grouped.suits(p, row)]) >= 4
    assert sum((np.diff(row.offsets) == 0).any() for row in gemm_grouped.ROWS) >= 4


def test_attention_asks_every_point_and_whole_tiles_where_they_divide_the_length() -> None:
    whole, other = fmha.kernels(fmha.Row(1, 2, 512, 128, True)), fmha.kernels(fmha.Row(1, 2, 1000, 64, True))
    for row in (whole, other):
        assert len({k.title for k in row}) == len(row) and {k.surface for k in row} == {"cuda", "triton", "tilelang"} and sum(k.expert for k in row) == 1
    assert any("_even_" in k.name for k in whole) and not any("_even_" in k.name for k in other)
    assert len({k.point for k in whole if k.name == "fmha_d128_causal_even_masked_triton"}) > 4
    assert len({fmha.program(k) for k in whole if k.name == "fmha_d128_causal_sm90" and not k.expert}) == 2


def test_every_batch_has_points_of_all_surfaces_no_larger_than_a_product() -> None:
    for row in bmm.ROWS:
        points = [p for p in bmm.POINTS if bmm.suits(p, row)]
        assert {replaying.surface(p) for p in points} >= {"cuda", "triton"}
        assert not any(f"rows={rows} " in p for p in points for rows in (128, 192, 256) if rows > row.m)
        assert {replaying.surface(p) for p in points} == {"cuda", "triton", "tilelang"} or row.m < 128


def test_sequences_are_uneven_and_every_workload_of_points_has_all_surfaces() -> None:
    for row in fmha_varlen.ROWS:
        assert row.lengths.max() == row.longest and row.lengths.min() < 0.8 * row.longest and len(row.lengths) == row.b
    for module in (fmha_varlen, gemm_fp8, gemm_grouped):
        rows: tuple[Any, ...] = module.ROWS
        for row in rows:
            assert {replaying.surface(p) for p in module.POINTS if module.suits(p, row)} == {"cuda", "triton", "tilelang"}


def test_gemm_measures_the_first_point_of_many_tiles_and_what_is_left_of_the_first() -> None:
    program: Any = None
    found: list[gemm.Found] = [("r", "cuda", seconds, f"{space} rows={rows} columns=64 stages={stages}", program)
                               for space, slow in (("a", 0), ("b", 100)) for rows in (16, 32, 64)
                               for stages in range(5) for seconds in (slow + rows + stages * 1e-3,)]
    names = [name for name, _ in gemm.chosen(found)]
    assert len(names) == len(set(names)) == gemm.MEASURED
    assert names[:6] == [f"{space} rows={rows} columns=64 stages=0" for space in "ab" for rows in (16, 32, 64)]
    assert names[6:8] == ["a rows=16 columns=64 stages=1", "a rows=16 columns=64 stages=2"]
    for row in gemm.ROWS:
        assert all(any(gemm.suits(space, row, rows) for space, rows in of.items()) for of in gemm.SPACES[row.order].values())


@pytest.mark.parametrize("of", [("cuda", "rows(threads=128, items=2, room=256, bits=8)"), ("triton", "tiles(tile=256, threads=32)"),
                                ("triton", "sieve(tile=256, room=256, threads=128, groups=32, each=8)")])
def test_an_answer_takes_nan_for_the_largest_and_any_k(of: tuple[str, str]) -> None:
    program, rng = topk.program((*of, ())), np.random.default_rng(3)
    for r, n, k in ((2, 33, 33), (1, 70, 69)):
        x = rng.standard_normal((r, n)).astype(np.float32)
        x[:, ::5] = np.nan
        found = run(program, {"X": x}, {"R": r, "N": n, "K": k}, mode="fast")
        v, i = found.outputs["V"], found.outputs["I"]
        assert all(len(set(row)) == k for row in i.tolist())
        assert np.array_equal(np.take_along_axis(x, i.astype(np.int64), 1), v, equal_nan=True)
        order = np.sort(np.nan_to_num(x, nan=np.inf), axis=1)[:, n - k:]
        assert np.array_equal(np.sort(np.nan_to_num(v, nan=np.inf), axis=1), order)


def test_the_table_tells_the_fastest_reference_and_what_was_not_timed() -> None:
    taken = [{"way": "ours", "ours": True, "median": 2e-6, "low": 1e-6, "high": 3e-6, "fault": ""},
             {"way": "slow", "ours": True, "median": 0.0, "low": 0.0, "high": 0.0, "fault": "off by 2"},
             {"way": "theirs", "ours": False, "median": 3e-6, "low": 1e-6, "high": 3e-6, "fault": ""}]
    text = table.page([{"workload": "conv2d", "shape": "s", "device": "d", "operations": 2e6, "when": "now", "taken": taken}])
    assert "| conv2d | s | ours | 2.0 us | 1.0 us .. 3.0 us | 1 | theirs | 3.0 us | 1.500 | d, now |" in text
    assert "not timed: off by 2" in text


def test_a_kernel_that_does_not_end_is_a_fault_and_the_rows_after_it_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up workload whose second row has a way that never ends, in processes as on a device."""
    (tmp_path / "stuck.py").write_text("""
import time
from benchmarks.gpu_workloads.running import measuring
from benchmarks.gpu_workloads.running.measuring import Case
measuring._seconds = lambda call, calls, asking: 1e-3
measuring._asking = lambda call, calls: 0.0
def cases():
    for row in range(3):
        yield Case("stuck", str(row), {"theirs": int, "ours": (lambda: time.sleep(1e6)) if row == 1 else int}, ("ours",), lambda out: "")
""")
    (tmp_path / "sitecustomize.py").write_text("""
import sys, types
from benchmarks.gpu_workloads import table
table.WORKLOADS["stuck"] = "stuck"
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(get_device_name=lambda: "none"))
""")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(watched, "SILENT", 1.0)
    faults = watched.run(["stuck"], tmp_path, 60.0)
    rows = {r["shape"]: {t["way"]: t["fault"] for t in r["taken"]} for r in table.kept(tmp_path, "stuck")}
    why = "it did not end, or ended its process, at row 2"
    assert rows == {"0": {"theirs": "", "ours": ""}, "1": {"theirs": "", "ours": why}, "2": {"theirs": "", "ours": why}}
    assert faults == [f"stuck {row} ours: {why}" for row in (1, 2)]


def test_rows_and_candidates_are_asked_for_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ROWS", [])
    monkeypatch.setattr(asking, "KNOWN", [])
    assert asking.asked(bmm.ROWS) == bmm.ROWS and asking.worth("bmm", "bmm_triton rows=1")
    asking.ask_words(["16", "of", "2048,odd", "--known", "_roles,early"])
    assert [row.name.split(" (")[1] for row in asking.asked(bmm.ROWS)] == ["squares)", "odd rows)"]
    best = next(iter(asking.fastest_titles("bmm")))
    assert asking.worth("bmm", best) and asking.worth("bmm", f"{best} early") and not asking.worth("bmm", "bmm_triton rows=1")
    asking.ask([], [asking.OF_ROW])
    own = {row: {p for p in bmm.POINTS if asking.worth("bmm", p, row.name)} for row in bmm.ROWS}
    assert all(points and len(points) <= 8 for points in own.values()) and len(set().union(*own.values())) > 8
    asking.ask([], [asking.NAMED, "halves"])
    assert {p.split()[0] for p in bmm.POINTS if asking.worth("bmm", p, bmm.ROWS[0].name)} == {"bmm_triton_halves"}
    asking.ask([], [asking.OF_ROW, asking.OF_WAYS])
    assert all(own[row] < {p for p in bmm.POINTS if asking.worth("bmm", p, row.name)} for row in bmm.ROWS)


def test_a_gemm_that_was_the_fastest_by_beginning_early_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "KNOWN", [asking.OF_ROW])
    found = [(row, title) for row in gemm.ROWS for title in sorted(asking.fastest_titles("gemm", row.name))
             if title.endswith(asking.EARLY) and title.removesuffix(asking.EARLY) not in asking.fastest_titles("gemm", row.name)]
    row, title = next((row, title) for row, title in found if row.m <= gemm.FEW)
    assert title.removesuffix(asking.EARLY) in {name for *_, name, _ in gemm._known(row)}


def test_the_course_of_a_workload_is_its_means(capsys: pytest.CaptureFixture[str]) -> None:
    sample = '{"taken": [{"way": "a_triton", "ours": true, "median": 2.0, "fault": ""}, {"way": "theirs", "ours": false, "median": 1.0, "fault": ""}]}'
    ((surface, mean, least, rows),) = history.means(sample)
    assert (surface, least, rows) == ("triton", 0.5, 1) and mean == pytest.approx(0.5)
    assert history.PAGE.read_text() == history.written()  # from what is kept
    limits = {cell for limit in tomllib.loads(history.LIMITS.read_text())["limit"] for cell in limit["cells"]}
    short = {(name, of): min(rows.items(), key=lambda one: one[1]) for (name, of), rows in history.cells().items() if history.missed(name, of, rows)}
    assert {f"{name} {of}" for name, of in short} <= limits
    for (name, of), (row, (_, way)) in short.items():  # what was tried at the slowest row of each cell that misses its figure
        ways = {w["way"] for w in map(json.loads, history.WAYS.read_text().splitlines()) if (w["workload"], w["surface"], w["row"]) == (name, of, row)}
        assert len(ways - {way}) >= 3, f"{name} on {of}: {row}"
    assert history.main(["nothing"]) == 2 and "no workload nothing" in capsys.readouterr().err


def test_intents_are_told_for_each_workload_and_surface() -> None:
    lines = intents.page().splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("| row |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[head + 2:]]
    assert all(any(row[3 + i] for row in rows) for i in range(len(intents.HOMES)))
    (wgmma,) = [row for row in rows if "wgmma" in row[2].split(", ")]
    assert wgmma[3] == "cuda, tilelang"


def test_the_machine_code_is_told_by_what_it_holds() -> None:
    found = sass.Row("topk", "rows(bits=8), cuda", "main", 90, 16, {"HGMMA": 4, "LDL.64": 3, "STL": 2, "SYNCS": 5, "IADD3": 86})
    assert sass.page([found]).splitlines()[-1] == "| topk | rows(bits=8), cuda | `main` | 90 | 16 | 100 | 4 |  |  |  |  | 5 | 5 |"
    kept = sorted(asking.fastest_titles("topk"))[0]
    again = sass.page([found._replace(workload="gdn", title="other")], before=sass.page([found, found._replace(title=kept)])).splitlines()
    assert [line.split(" | ")[:2] for line in again[-2:]] == [["| gdn", "other"], ["| topk", kept]], "what is the fastest and not compiled here stays"
    assert "rows(bits=8), cuda" in sass.titles(("rows(bits=8)", "cuda", (1, 2)))
    assert [*sass.titles(fmha.Kernel("fmha_sm90", expert=True))] == ["fmha_sm90 (expert)"]


def test_each_surface_is_tuned_at_shapes_twice_and_half_as_large() -> None:
    asked = tuned.searches()
    assert {s["workload"] for s in asked} == {"fmha", "conv2d", "topk", "gdn", "gemm", "gemm_fp8", "gemm_grouped", "bmm"}
    for home in {s["problem"].partition(":")[0] for s in asked}:
        assert {find_space(s["space"]).surface for s in asked if find_space(s["space"]).home == home} == {"cuda", "triton", "tilelang"}
    for s in asked:
        problem, many = load_problem(s["problem"]), [math.prod(sizes.values()) for sizes in s["rows"].values()]
        assert shape_of(problem, s["judged"]) and len(many) == 2 and max(many) >= 4 * min(many)
        assert all([*sizes] == [*problem.shapes[0].sizes] for sizes in s["rows"].values())
    row = {"workload": "fmha", "row": "a", "way": "fmha_d128_sm90 rows=128", "verdict": "accepted", "median": 1e-3, "fault": "", "reference": "cuDNN",
           "its": 1.1e-3, "device": "NVIDIA H200", "when": "now"}
    assert "| 1000.0 us | cuDNN | 1100.0 us | 1.100 | H200, now |" in tuned.page([row])
    assert "not timed: wrong" in tuned.page([{**row, "fault": "wrong"}])
    for workload, titles in tuned.POINTS_TRIED.items():
        for way in (tuned._way(workload, title) for title in titles):
            assert tuned._title(way) in titles and len(tuned._rows(way["space"])) == 2
    said = tuned.page([row])
    assert all(f"## {limit['of']}" in said and limit["tried"].strip() in said for limit in tomllib.loads(history.LIMITS.read_text())["tuned"])
    missed = {**row, "row": "B8 H64 L1024 d128 causal", "way": "fmha_d128_causal_wide_peeled_triton rows=128", "its": 5e-4}
    assert "| fmha | CUDA | 1.0 | 1.100 |  |  |" in tuned.page([row])
    assert "| fmha | Triton | 0.9 | 0.500 | 0.9" in (page := tuned.page([missed])) and "| missed by the search |" in page


def test_what_a_search_found_is_kept_and_of_one_that_did_not_end_the_fastest_and_it_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FOUND", "LOGS"):
        monkeypatch.setattr(tuned, name, tmp_path / name)
    one, other = (next(s for s in tuned.searches() if s["space"] == space) for space in ("gdn_d128_sm90", "conv2d_sm90"))
    monkeypatch.setattr(tuned, "searches", lambda: [one, other])
    asked = list[str]()
    done = {"shapes": [{"best": {"parameters": {"form": "pairs"}, "seconds": 1e-3}}] * 2}

    def ask(words: list[str], timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(words[4])
        if one["space"] in words:
            return subprocess.CompletedProcess(words, 0, json.dumps(done), "")
        sizes, taken = next(iter(other["rows"].values())), ((1, True, 2.0), (2, True, 1.0), (3, False, 0))
        rows = [{"sizes": sizes, "point": {"rows": r}, "accepted": right, "seconds": seconds} for r, right, seconds in taken]
        Path(words[words.index("--log") + 1]).write_text("".join(json.dumps(r) + "\n" for r in rows))
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setattr(subprocess, "run", ask)
    tuned.find(1.0)
    kept = {(f["space"], f["row"]): f for f in json.loads((tmp_path / "FOUND").read_text())}
    assert [(f["point"], f["verdict"]) for f in kept.values() if f["workload"] == "gdn"] == [({"form": "pairs"}, "accepted")] * 2
    assert [(f["point"], f["verdict"]) for f in kept.values() if f["workload"] == "conv2d"] == [({"rows": 2}, "its gate did not end in time")]
    tuned.find(1.0)
    assert sorted(asked) == sorted([one["space"], other["space"], other["space"]])
    monkeypatch.setitem(tuned.BUDGETS, "cuda", 30)
    tuned.find(1.0, [one["space"]])
    assert asked[3:] == [one["space"]] and {f["budget"] for f in json.loads((tmp_path / "FOUND").read_text()) if f["workload"] == "gdn"} == {30}


def test_rows_that_another_machine_measured_are_taken_where_they_are_newer(tmp_path: Path) -> None:
    taken = [{"way": "ours", "ours": True, "median": 1e-6, "low": 1e-6, "high": 1e-6, "fault": ""}]
    rows = [{"workload": "gdn", "shape": shape, "device": "NVIDIA H200", "operations": 0, "when": when, "taken": taken}
            for shape, when in (("a", "2026-01-02 00:00"), ("b", "2026-01-01 00:00"))]
    for folder, made in (("here", rows), ("there", [{**row, "when": "2026-01-01 12:00"} for row in rows] + [{**rows[0], "shape": "c"}])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "gpu-workloads-gdn.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    assert table.take(tmp_path / "there", tmp_path / "here") == 2
    assert [(r["shape"], r["when"]) for r in table.kept(tmp_path / "here")] == [("a", "2026-01-02 00:00"), ("b", "2026-01-01 12:00"), ("c", "2026-01-02 00:00")]
    assert "| gdn | c | ours |" in (tmp_path / "here" / "gpu-workloads.md").read_text()
    alone = {**rows[0], "when": "2026-01-03 00:00", "taken": [{**taken[0], "way": "gdn_triton"}, {**taken[0], "way": "theirs", "ours": False}]}
    (tmp_path / "there" / "gpu-workloads-gdn.jsonl").write_text(json.dumps(alone) + "\n")
    assert [table.take(tmp_path / "there", tmp_path / "here") for _ in range(2)] == [1, 0]
    assert [(r["shape"], r["taken"][0]["way"]) for r in table.kept(tmp_path / "here")][:2] == [("a", "gdn_triton"), ("a", "ours")]


def _doubled(key: str) -> Program:
    if key.startswith("refused"):
        raise KirError(Diagnostic("KIR-B002", f"{key} is refused"))
    return parse_program(f"kir 1\nprogram {key}\n  in X: f32[2]\n  out Y: f32[2]\nkernel main grid (i: 2) threads 1\n  Y[i] = X[i] * 2.0\n")


@pytest.mark.nvcc
def test_what_other_code_compiled_or_refused_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(replaying, "ROOT", tmp_path)
    monkeypatch.setattr(replaying, "ProcessPoolExecutor", lambda *_, **__: nullcontext(SimpleNamespace(map=map)))
    (tmp_path / "build").mkdir()
    compilations = list[str]()
    by = type(backend("cuda"))
    compile_ = by.compile

    def counted(self: Any, emitted: Emitted, to: Target) -> Artifact:
        compilations.append(emitted.text)
        return compile_(self, emitted, to)

    monkeypatch.setattr(by, "compile", counted)
    code = "today"
    monkeypatch.setattr(replaying, "stamp", lambda: (code, "compilers"))
    assert replaying.kept("p", ["refused"], _doubled) == {"refused": "error[KIR-B002] refused is refused"}
    first = replaying.kept("p", ["refused", "double"], _doubled)
    assert len(compilations) == 1 and not isinstance(first["double"], str)
    code = "another"
    launching.compiled.cache_clear()  # as in another process
    later = replaying.kept("p", ["double"], _doubled)
    assert list(later) == ["double"] and len(compilations) == 1, "the same text: not compiled again, and what was refused is not told"
    assert isinstance(replaying.kept("p", ["refused"], lambda key: _doubled(key.removeprefix("re")))["refused"], tuple) and len(compilations) == 2
    launching.compiled.cache_clear()


def test_candidates_of_a_gemm_that_other_code_compiled_are_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gemm, "asked", lambda rows: [])
    (tmp_path / "candidates.pickle").write_bytes(pickle.dumps((("another", "compilers"), {"a row": []})))
    assert gemm.prepared(tmp_path, of_any_code=True) == {"a row": []}
    assert gemm.prepared(tmp_path) == {} == gemm.prepared(tmp_path, of_any_code=True)


def test_each_state_of_a_lineage_is_judged_once_and_its_step_has_a_factor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """States that are refused in their surface's words are judged in CUDA's; what is right already is not asked again."""
    folder = next(f for f in measured_steps.of_workloads() if f.root.name == "topk_rows_tilelang")
    asked = list[str]()

    def judge(program: Program, problem: Problem, surface: str, shape: str) -> tuple[bool, str, tuple[float, float, float], str]:
        asked.append(surface)
        others = Shape(name="other", tags=(), sizes={**problem.shape(shape).sizes, "K": 1})
        assert problem.admits(others) == (surface == "cuda") == (len(problem.shapes) > 2) and problem.admits(problem.shape(shape))
        refused = surface == "tilelang" and len(asked) == 1
        return not refused, "KIR-B002: no such thing" if refused else "", (1e-6 * 2 ** len(asked), 0.0, 0.0), "NVIDIA H200"

    found = [measured_steps.judged(folder, number, judge) for folder, number in measured_steps.waiting((), names=[folder.root.name])]
    assert asked == ["tilelang", "cuda", "tilelang"] and [r.state for r in found] == [0, 1] and all(r.accepted for r in found)
    left = measured_steps.waiting({r.key for r in found[1:]}, {found[0].key}, [folder.root.name, "topk_triton"])
    assert [(f.root.name, number) for f, number in left] == [("topk_triton", 0), ("topk_triton", 1), (folder.root.name, 0)]
    lines = [json.dumps(asdict(r)) for r in (replace(found[0], state=4), replace(found[1], program="of a state that is no more"))]
    (tmp_path / "kept.jsonl").write_text("\n".join(lines))
    with monkeypatch.context() as patched:
        patched.setattr(measured_steps, "KEPT", tmp_path / "kept.jsonl")
        assert measured_steps.kept() == [found[0]], "a state is known by its program, whatever number it had"
    page = measured_steps.page(found)
    assert "| `topk_rows_tilelang` | topk | tilelang | indexer | 2 | 2 | 8.0 us | 4.0 us (written as CUDA) | 2 | H200, " in page
    assert page.count(" | 2 |\n") == 1 and measured_steps.main(["other"]) == 2
    told = workloads_report.figures([(folder.read(), folder)])[folder.root.name]
    assert "times as fast (H200)" in told[0] and told[1].startswith("kernels in TileLang beside the fastest reference") and workloads_report.main(["-o"]) == 2
    refused = [found[0], replace(found[1], accepted=False, reason="KIR-G102: not here")]
    assert "KIR-G102: not here |" in measured_steps.page(refused)
