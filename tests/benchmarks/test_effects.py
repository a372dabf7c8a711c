"""Groups of programs for measured effects, and rows made into tables."""
from __future__ import annotations

import gzip
import json
import lzma
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import benchmarks.effects.__main__ as making
from benchmarks.effects import sources
from benchmarks.effects.device import _differing
from benchmarks.effects.group import Group
from benchmarks.effects.pack import _drawn, packed
from benchmarks.effects.tables import device_name, read_rows, tables, two_apart
from kir.gate.gpu.images.executable import Layout
from kir.hardware.device.executor import CODES, KINDS
from kir.hardware.device.replay import unpack
from kir.ir.canonical import content_hash
from kir.ir.rules.verify import check
from kir.problem import load_problem, problem_names
from tests.kir.learning.forecast.made import copying

PROGRAM = {"kind": "program", "group": "g", "surface": "cuda", "family": "gemm", "problem": "gemm", "text": "kir 1", "compiled": [], "modelled": {"s": 2e-6}}
TIME = {"kind": "time", "group": "g", "device": "NVIDIA H200", "shape": "s", "sizes": {"M": 64}, "fault": "", "clock_mhz": 1980, "when": "2026-11-23"}


def rows() -> list[dict[str, Any]]:
    names = {"a": "", "b": "", "broken": "compile", "wrong": ""}
    out: list[dict[str, Any]] = [{**PROGRAM, "program": name, "fault": fault, "why": fault} for name, fault in names.items()]
    warm = {"a": [4e-6, 4.4e-6, 4e-6], "b": [2e-6, 2.2e-6, 2e-6], "wrong": [1e-6] * 3}
    out += [{**TIME, "program": name, "warm": times, "cold": [2 * t for t in times], "fault": "wrong" if name == "wrong" else ""}
            for name, times in warm.items()]
    edges = [["a", "b", "faster", "walk"], ["a", "broken", "breaks", "walk"], ["a", "wrong", "spoils", "tune"], ["wrong", "b", "mends", "walk"]]
    return [*out, {"kind": "edges", "group": "g", "edges": edges}]


def test_a_pair_has_the_median_ratio_of_its_rounds_or_why_there_is_none() -> None:
    found = tables(rows())
    pairs = {p["step"]: p for p in found["pairs"]}
    assert pairs["faster"]["speedup"] == pytest.approx(2.0) and pairs["faster"]["low"] == pytest.approx(2.0)
    assert pairs["faster"]["speedup_cold"] == pytest.approx(2.0) and pairs["faster"]["device"] == "h200"
    assert pairs["breaks"]["fault"] == "compile" and pairs["spoils"]["fault"] == "wrong"
    assert "mends" not in pairs, "a program that is wrong is no beginning of a pair"
    assert len(found["steps"]) == 4 and len(found["programs"]) == 4 and {m["seconds"] for m in found["modelled"]} == {2e-6}
    assert all(math.isfinite(m["warm"]) for m in found["measured"])


def test_devices_have_the_names_of_targets() -> None:
    assert device_name("NVIDIA H200") == "h200" and device_name("NVIDIA H100 80GB HBM3") == "h100-sxm" and device_name("Some GPU") == "Some GPU"


def test_a_program_that_leaves_something_else_is_found() -> None:
    same = np.arange(8, dtype=np.float32)
    other, far = same + 1e-6, same * 1.5
    assert _differing({"a": [same], "b": [other], "c": [far], "d": [np.full(8, np.nan, np.float32)]}) == {"c", "d"}
    assert _differing({"a": [same], "b": [same]}) == set()


def test_jobs_are_the_same_each_time_and_their_steps_are_legal() -> None:
    jobs = sources.jobs()
    assert jobs == sources.jobs() and {j["kind"] for j in jobs} == {"space", "lineage", "package", "metas", "walk"}
    job = {"kind": "walk", "problem": "softmax", "surface": "cuda", "seed": 0}
    one, again = sources.made(job), sources.made(job)
    assert [e.step for e in one.edges] == [e.step for e in again.edges] and len(one.edges) >= 3
    for key, program in one.programs.items():
        assert content_hash(program) == key
        check(program)
    lineage = sources.made({"kind": "lineage", "name": "softmax_cuda"})
    assert len(lineage.programs) == 12 and len(lineage.edges) == 11 and lineage.family == "softmax"
    assert all(lineage.at(p, s).layouts for p in lineage.programs.values() for s in lineage.shapes)


PARTS = ("", "second", "third", "fourth")


@pytest.mark.parametrize("part", PARTS[1:])
def test_a_later_part_has_other_sizes_and_seeds(part: str) -> None:
    parts = PARTS[:PARTS.index(part)]
    earlier, later = [job for each in parts for job in sources.jobs(each)], sources.jobs(part)
    assert not {str(job) for job in earlier} & {str(job) for job in later}
    again = ("walk", "space", "about")
    assert not {str({**job, "sizes": ""}) for job in earlier if job["kind"] in again} & {str({**job, "sizes": ""}) for job in later}
    assert {job["problem"] for job in later if job["kind"] == "walk"} == set(problem_names())
    assert any(job["kind"] == "about" for job in later) == (part in sources.ABOUT)
    for name in problem_names():
        problem = load_problem(name)
        shapes, before = sources._shapes(problem, part), [s for p in parts for s in sources._shapes(problem, p)]
        assert len(shapes) >= 2 and not {str(s.sizes) for s in shapes} & {str(s.sizes) for s in before}
        for shape in shapes:
            problem.scalars(shape)  # raises where a size is lacking


def test_kernels_of_packages_that_the_data_know_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ["fla:ops/a.py::known", "fla:ops/b.py::fresh"]
    monkeypatch.setattr(sources, "jobs", lambda part: [{"kind": "walk", "problem": "gemm"}, *({"kind": "package", "kernel": place} for place in places)])
    monkeypatch.setattr(making, "_groups", lambda folders: ({"package/fla/known/about/2", "walk/gemm"}, {"gemm"}))
    assert [job["kernel"] for _, job in making.chosen("", "0/1", known=[Path("data")])] == places[1:]
    monkeypatch.setattr(sources, "jobs", lambda part: [{"kind": "walk", "problem": name, "surface": "cuda"} for name in ("gemm", "linear")] + [
        {"kind": kind, "kernel": place, **({"surface": "cuda"} if kind == "across" else {})} for place in places for kind in ("package", "across")])
    sixth = [job for _, job in making.chosen("", "0/1", "sixth", known=[Path("data")])]
    assert sorted((job["kind"], job.get("kernel", job.get("problem"))) for job in sixth) == [("across", places[1]), ("package", places[1]), ("walk", "linear")]


def test_the_fifth_part_is_of_kernels_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [f"fla:ops/{name}.py::{kernel}" for name in "abcdefgh" for kernel in (f"fwd_{name}", f"bwd_{name}")]
    monkeypatch.setattr(sources, "recorded", lambda folder: [(place, Path("some.toml")) for place in places])
    assert [j["kernel"] for j in sources.jobs("fifth")] == [*places, *places]
    assert [j["kind"] for _, j in making.chosen("", "0/1", "fifth")] == ["package"] * 16 + ["about"] * 16


def test_the_sixth_part_takes_kinds_and_surfaces_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "recorded", lambda folder: [(f"fla:ops/a.py::{name}", Path("some.toml")) for name in "abcd"])
    kinds = [(job["kind"], job.get("surface") if job["kind"] == "across" else "") for _, job in making.chosen("", "0/1", "sixth")]
    assert len(set(kinds[:4])) == 4 == len(set(kinds[12:16])) and kinds[-1] == ("walk", "")
    out = Group("package/fla/a", "copy", "triton", None, [])
    monkeypatch.setattr(sources, "_recorded", lambda job: (out, copying()))
    monkeypatch.setattr(sources, "_descend", lambda *words: None)
    made = sources.made({"kind": "across", "kernel": "fla:ops/a.py::a", "binding": "", "surface": "cuda", "seed": 5})
    assert made.surface == "cuda" and made.name == "package/fla/a/across/cuda/5" and made.programs and not out.programs
    monkeypatch.setattr(sources, "backend", lambda surface: SimpleNamespace(accepts=lambda program: ["no"]))
    with pytest.raises(LookupError, match="no state"):
        sources.made({"kind": "across", "kernel": "fla:ops/a.py::a", "binding": "", "surface": "tilelang", "seed": 5})


def test_programs_two_steps_apart_are_pairs_without_a_step() -> None:
    edges = [["a", "b", "one", "walk"], ["b", "c", "two", "walk"], ["c", "d", "three", "walk"], ["a", "c", "both", "walk"], ["d", "a", "back", "tune"]]
    assert two_apart(edges) == [["b", "d", "", "walk"]]
    many = [[f"p{i}", f"p{i + 1}", "s", "walk"] for i in range(9)] + [["p0", "x", "s", "walk"], ["x", "p5", "s", "tune"]]
    assert len(two_apart(many)) <= len(many) and ["p0", "p5", "", "walk"] in two_apart(many)
    apart = [row | {"edges": [["a", "b", "faster", "walk"], ["b", "broken", "breaks", "walk"]]} if row["kind"] == "edges" else row for row in rows()]
    found = tables(apart)
    assert [(p["step"], p.get("fault", "")) for p in found["pairs"]] == [("faster", ""), ("breaks", "compile"), ("", "compile")] and len(found["steps"]) == 2


def test_rows_are_read_compressed_and_without_a_line_that_was_cut_short(tmp_path: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows())
    (tmp_path / "rows.jsonl").write_text(text + '{"kind": "ti')
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    assert list(read_rows([tmp_path / "rows.jsonl"])) == list(read_rows([tmp_path / "rows.jsonl.gz"])) == rows()


def test_what_is_not_compiled_in_time_is_left_out() -> None:
    group = sources.made({"kind": "lineage", "name": "softmax_cuda"})
    head, blobs = unpack(lzma.decompress(packed(group, -math.inf)))[0]
    assert not head["programs"] and not head["edges"] and not blobs


def test_what_no_device_draws_is_drawn_beforehand() -> None:
    """Of every problem, each input is a draw that the device's side knows, or bytes."""
    for name in problem_names():
        problem = load_problem(name)
        shape = problem.shapes[0]
        group = Group("g", "f", "cuda", problem, [shape])
        data: list[bytes] = []
        for tensor in problem.spec.tensors:
            if tensor.role == "out" or problem.tensor_dtype(tensor) not in CODES:
                continue
            fill = _drawn(group, shape, tensor.name, Layout(problem.tensor_dtype(tensor), (64,), (1,), 64), data)
            assert fill.get("draw", {"kind": "unit"})["kind"] in {*KINDS, "unit"}
        assert bool(data) == problem.drawn_by_host, name
