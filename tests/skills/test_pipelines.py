"""Stored subjects of tuning: every layout is right and free of hazards, at tile sizes of the whole space, and compiles without spills."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from kir.diagnostic import KirError
from kir.interp import run
from kir.ir.build import const
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.plans import made as launched
from kir.ir.printer import program_text
from kir.ir.verify import check
from kir.lowering import lowered
from kir.problem import Problem, load_problem
from kir.rewrite.guard import with_otherwise
from kir.surface import backend
from kir.target import target
from kir.tune import general, load_space
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
    made, wanted = program(layout, "f16", 2, **point), problem(layout)
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
    made, wanted = program("nn", dtype, 2, **point), problem("nn", dtype)
    shape = wanted.shape("deep")
    inputs = wanted.inputs(shape, seed=4)
    found = run(made, inputs, wanted.scalars(shape), mode="fast")
    assert wanted.compare(found.outputs, inputs, shape).ok
    assert lowered(made) != made


def test_sizes_that_no_box_fits_take_the_other_kernel() -> None:
    wanted, found = problem("nn"), space("nn")
    made = general(found, program("nn", rows=64, columns=128, stages=3, panels=2, raster=4), wanted, H200)
    check(made)
    assert parse_program(program_text(made)) == made and made.facts == wanted.naive.facts
    aligned, odd = wanted.shape("tail"), wanted.shape("odd")
    by = backend("cuda").emit(made)
    for shape, runs in ((aligned, "main"), (odd, "main_otherwise")):
        inputs = wanted.inputs(shape, seed=5)
        result = run(made, inputs, wanted.scalars(shape), mode="check")
        assert wanted.compare(result.outputs, inputs, shape).ok and [f for f in result.findings if f.severity == "error"] == []
        known = {name: const(value) for name, value in shape.sizes.items()}
        assert [e.kernel for e, taken in zip(by.entries, launched(made, known), strict=True) if taken] == [runs]
    with pytest.raises(KirError, match="KIR-U008"):
        general(replace(found, otherwise=""), made, wanted, H200)
    with pytest.raises(KirError, match="KIR-R015"):
        with_otherwise(made, load_problem("softmax").naive)


def clustered(**point: int) -> Program:
    """A point of the space of clusters, with two clusters of two CTAs."""
    found, wanted = load_space(FOLDER / "gemm_sm90_cluster.toml"), problem("nn")
    chosen = {"rows": 64, "columns": 128, "stages": 3, "panels": 1, "raster": 4, **point}
    values = found.values(chosen, {**given_of(found, wanted, wanted.shape("square"), H200), "sms": 4})
    assert found.refusal(values) == ""
    return built(found, values, wanted, H200)


def in_cluster(made: Program, mode: Literal["fast", "check"], name: str = "ring") -> tuple[bool, set[str]]:
    """Whether a program is right at a shape, and the errors found."""
    wanted = problem("nn")
    shape = wanted.shape(name)
    inputs = wanted.inputs(shape, seed=7)
    found = run(made, inputs, wanted.scalars(shape), mode=mode)
    return wanted.compare(found.outputs, inputs, shape).ok, {f.id for f in found.findings if f.severity == "error"}


def test_clusters_that_share_a_tile_are_right_and_lowered() -> None:
    made = clustered()
    assert in_cluster(made, "check") == (True, set())
    assert in_cluster(lowered(made), "fast")[0]


@pytest.mark.parametrize(("old", "new", "ids"), [
    ("mbar_init(&empty[s], 2)", "mbar_init(&empty[s], 1)", {"KIR-I014", "KIR-I021"}),
    ("  fence_mbar_init()\n  cluster_arrive()\n  cluster_wait()\n", "  fence_mbar_init()\n", {"KIR-I014", "KIR-I021", "KIR-I030"}),
    ("        bulk_wait(0)\n        cluster_arrive()\n        cluster_wait()\n", "        bulk_wait(0)\n", {"KIR-I020"}),
    ("multicast=3", "multicast=2", {"KIR-I020", "KIR-I014"}),
    ("&every[r, ", "&every[rank, ", {"KIR-I014", "KIR-I020", "KIR-I021"}),
])
def test_a_mistake_in_a_cluster_is_found(old: str, new: str, ids: set[str]) -> None:
    text = program_text(clustered())
    assert old in text
    _, found = in_cluster(parse_program(text.replace(old, new)), "check")
    assert found & ids


def test_the_pipeline_for_hopper_is_retuned_by_its_holes_alone() -> None:
    wanted, found = problem("nn", "bf16"), load_space(FOLDER / "gemm_sm90.toml")
    point = {"rows": 192, "columns": 128, "stages": 4, "raster": 8, "rounds": 2}
    values = found.values(point, {**given_of(found, wanted, wanted.shape("square"), H200), "sms": 2})
    assert found.refusal(values) == ""
    made = built(found, values, wanted, H200)
    for name in ("deep", "odd"):
        shape = wanted.shape(name)
        inputs = wanted.inputs(shape, seed=8)
        assert wanted.compare(run(made, inputs, wanted.scalars(shape)).outputs, inputs, shape).ok
    assert "box [192, 64]" in program_text(made)


@pytest.mark.parametrize(("surface", "words"), [
    ("triton", ("tl.make_tensor_descriptor(C", "tl.dot", "tl.minimum")), ("tilelang", ("T.Pipelined", "T.gemm(As, Bs, acc)", "T.alloc_shared((128, 256)"))])
def test_the_pipelines_for_tile_languages_start_from_the_naive_program(surface: str, words: tuple[str, ...]) -> None:
    wanted, found = problem("nn", "bf16"), load_space(FOLDER / f"gemm_{surface}.toml")
    values = found.values({k: v[0] for k, v in found.parameters.items()}, {**given_of(found, wanted, wanted.shape("square"), H200), "sms": 2})
    made = built(found, values, wanted, H200)
    shape = wanted.shape("deep")
    inputs = wanted.inputs(shape, seed=6)
    assert wanted.compare(run(made, inputs, wanted.scalars(shape)).outputs, inputs, shape).ok
    text = backend(surface).emit(made).text
    assert [word for word in words if word not in text] == []


@pytest.mark.nvcc
def test_a_transposed_point_compiles_without_spills() -> None:
    by = backend("cuda")
    artifact = by.compile(by.emit(program("tt", "bf16", 132, rows=128, columns=256, stages=4, panels=2, raster=16)), target("sm_90a"))
    assert artifact.spills == 0
    if artifact.mix:
        assert artifact.mix["HGMMA"] > 0 and artifact.mix["UTMALDG"] > 0 and artifact.mix["UTMASTG"] > 0
