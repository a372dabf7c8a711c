"""Stored subjects of tuning: every layout is right and free of hazards, at tile sizes of the whole space, and compiles without spills."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.interp import run
from kir.ir.nodes import Program
from kir.lowering import lowered
from kir.problem import Problem, load_problem
from kir.surface import backend
from kir.target import target
from kir.tune import load_space
from kir.tune.rank import built, given_of
from kir.tune.space import Space

FOLDER = Path(__file__).parents[2] / "skills" / "pipelines"
H200 = target("h200")


def space(layout: str) -> Space:
    return load_space(FOLDER / f"gemm_sm90_{layout}.toml")


def problem(layout: str, dtype: str = "f16") -> Problem:
    return load_problem(f"{'gemm' if layout == 'nn' else f'gemm_{layout}'}:{dtype}")


def program(layout: str, dtype: str = "f16", sms: int = 2, **point: int) -> Program:
    """A point of a space, with so few CTAs that each takes several tiles."""
    found, wanted = space(layout), problem(layout, dtype)
    values = found.values(point, {**given_of(found, wanted, wanted.shape("square"), H200), "sms": sms})
    assert found.refusal(values) == ""
    return built(found, values, wanted, H200)


@pytest.mark.parametrize(("layout", "point"), [
    ("nn", {"rows": 64, "columns": 128, "stages": 3, "panels": 2, "raster": 4}),
    ("nt", {"rows": 128, "columns": 64, "stages": 3, "panels": 1, "raster": 4}),
    ("tn", {"rows": 128, "columns": 64, "stages": 3, "panels": 1, "raster": 8}),
    ("tt", {"rows": 192, "columns": 64, "stages": 3, "panels": 1, "raster": 16}),
])
def test_every_layout_is_right_and_free_of_hazards(layout: str, point: dict[str, int]) -> None:
    made, wanted = program(layout, **point), problem(layout)
    shape = wanted.shape("deep")
    inputs = wanted.inputs(shape, seed=3)
    found = run(made, inputs, wanted.scalars(shape), mode="check")
    assert wanted.compare(found.outputs, inputs, shape).ok
    assert [f.message for f in found.findings if f.severity == "error"] == []


@pytest.mark.parametrize("point", [
    {"rows": 256, "columns": 128, "stages": 3, "panels": 2, "raster": 4},
    {"rows": 128, "columns": 192, "stages": 4, "panels": 1, "raster": 4},
    {"rows": 64, "columns": 256, "stages": 4, "panels": 4, "raster": 4},
])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_tiles_of_other_sizes_are_right(point: dict[str, int], dtype: str) -> None:
    made, wanted = program("nn", dtype, **point), problem("nn", dtype)
    shape = wanted.shape("deep")
    inputs = wanted.inputs(shape, seed=4)
    found = run(made, inputs, wanted.scalars(shape), mode="fast")
    assert wanted.compare(found.outputs, inputs, shape).ok
    assert lowered(made) != made


@pytest.mark.nvcc
def test_a_transposed_point_compiles_without_spills() -> None:
    by = backend("cuda")
    artifact = by.compile(by.emit(program("tt", "bf16", 132, rows=128, columns=256, stages=4, panels=2, raster=16)), target("sm_90a"))
    assert artifact.spills == 0
    if artifact.mix:
        assert artifact.mix["HGMMA"] > 0 and artifact.mix["UTMALDG"] > 0 and artifact.mix["UTMASTG"] > 0
