"""Groups of programs for measured effects, and rows made into tables."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from benchmarks.effects import sources
from benchmarks.effects.device import _differing
from benchmarks.effects.tables import device_name, tables
from kir.ir.canonical import content_hash
from kir.ir.rules.verify import check
from kir.problem import load_problem, problem_names

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


def test_the_second_part_has_other_sizes_and_seeds() -> None:
    first, second = sources.jobs(), sources.jobs(second=True)
    assert not {str(job) for job in first} & {str(job) for job in second}
    assert {job["problem"] for job in second if job["kind"] == "walk"} == set(problem_names())
    for name in problem_names():
        problem = load_problem(name)
        shapes = sources._shapes(problem, "second")
        assert len(shapes) >= 2 and not {str(s.sizes) for s in shapes} & {str(s.sizes) for s in sources._shapes(problem)}
        for shape in shapes:
            problem.scalars(shape)  # raises where a size is lacking
