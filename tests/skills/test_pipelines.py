"""Stored subjects of tuning: every layout is right and free of hazards, at tile sizes of the whole space, and compiles without spills."""
from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from kir.analysis.target.legalize import legalize
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.interp import run
from kir.ir.build import const
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rebuild.plans import made as launched
from kir.ir.rules.verify import check
from kir.learning.tune import general, load_space
from kir.learning.tune.rank import built, given_of
from kir.learning.tune.space import Space
from kir.problem import Problem, Shape, load_problem
from kir.rewrite import Context, Pipeline
from kir.rewrite import run as pipeline
from kir.rewrite.guard import with_otherwise
from kir.surface import backend
from kir.surface.lowering import lowered

FOLDER = Path(__file__).parents[2] / "skills" / "pipelines"
H200 = target("h200")


def problem(layout: str, dtype: str = "f16") -> Problem:
    return load_problem(f"{'gemm' if layout == 'nn' else f'gemm_{layout}'}:{dtype}")


def space(layout: str) -> Space:
    return load_space(FOLDER / f"gemm_sm90{'' if layout == 'nn' else f'_{layout}'}.toml")


@pytest.mark.parametrize(("layout", "dtype", "point"), [
    ("nn", "bf16", {"rows": 192, "columns": 128, "stages": 4, "raster": 8, "rounds": 2}),
    ("nt", "f16", {"rows": 128, "columns": 192, "stages": 4, "raster": 16, "rounds": 3}),
    ("tt", "bf16", {"rows": 256, "columns": 128, "stages": 3, "raster": 8, "rounds": 2}),
])
def test_hopper_in_every_layout_is_retuned_by_its_holes_alone(layout: str, dtype: str, point: dict[str, int]) -> None:
    wanted, found = problem(layout, dtype), space(layout)
    values = found.values(point, {**given_of(found, wanted, wanted.shape("square"), H200), "sms": 2})
    assert found.refusal(values) == ""
    made = built(found, values, wanted, H200)
    assert legalize(made, H200.architecture) == ()
    for name in ("deep", "odd"):
        shape = wanted.shape(name)
        inputs = wanted.inputs(shape, seed=8)
        assert wanted.compare(run(made, inputs, wanted.scalars(shape)).outputs, inputs, shape).ok
    assert "via wgmma pending" in program_text(made) and lowered(made) != made


def clustered(**point: int) -> Program:
    """A point of the space of clusters, with two clusters of two CTAs."""
    found, wanted = load_space(FOLDER / "gemm_sm90_cluster.toml"), problem("nn")
    chosen = {"rows": 64, "columns": 128, "stages": 3, "panels": 1, "raster": 4, **point}
    values = found.values(chosen, {**given_of(found, wanted, wanted.shape("square"), H200), "sms": 4})
    assert found.refusal(values) == ""
    return built(found, values, wanted, H200)


TURNS = Shape(name="turns", sizes={"M": 72, "N": 264, "K": 136}, tags=())
"""Three tiles of 128 x 128 for a cluster, each of three steps."""


def in_cluster(made: Program, mode: Literal["fast", "check"], at: str | Shape = "ring") -> tuple[bool, set[str]]:
    """Whether a program is right at a shape, and the errors found."""
    wanted = problem("nn")
    shape = wanted.shape(at) if isinstance(at, str) else at
    inputs = wanted.inputs(shape, seed=7)
    found = run(made, inputs, wanted.scalars(shape), mode=mode)
    return wanted.compare(found.outputs, inputs, shape).ok, {f.id for f in found.findings if f.severity == "error"}


def test_clusters_that_share_a_tile_are_right_and_lowered() -> None:
    made = clustered()
    assert in_cluster(made, "check") == (True, set())
    assert in_cluster(lowered(made), "fast")[0]


def test_clusters_that_stay_come_from_the_naive_program_by_passes_alone() -> None:
    found, wanted = load_space(FOLDER / "gemm_sm90_multicast.toml"), problem("nn")
    point = {"rows": 64, "columns": 128, "stages": 3, "size": 2, "raster": 4, "rounds": 2}
    made = built(found, found.values(point, {**given_of(found, wanted, wanted.shape("square"), H200), "sms": 4}), wanted, H200)
    assert made.kernels[0].cluster == (2,) and "multicast=3" in program_text(made) and "2) * 2) threads 256 cluster (2)" in program_text(made)
    assert in_cluster(made, "fast", "deep") == (True, set())  # each cluster takes several tiles
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


def test_sizes_that_no_map_describes_are_padded_by_the_launch_itself() -> None:
    found, wanted = load_space(FOLDER / "gemm_sm90_padded.toml"), problem("nn", "bf16")
    point = {"rows": 128, "columns": 128, "stages": 2, "raster": 16, "rounds": 2}
    made = built(found, found.values(point, {**given_of(found, wanted, wanted.shape("square"), H200), "sms": 2}), wanted, H200)
    assert [k.name for k in made.kernels] == ["pad_A", "pad_B", "main", "unpad_C"] and not made.plan and made.facts == wanted.naive.facts
    shape = wanted.shape("odd")
    inputs = wanted.inputs(shape, seed=6)
    found_there = run(made, inputs, wanted.scalars(shape), mode="check")
    assert wanted.compare(found_there.outputs, inputs, shape).ok and not found_there.errors
    assert backend("cuda").accepts(made) == ()


def in_turns() -> Program:
    """Two warpgroups that take tiles in turn, with one cluster of two CTAs."""
    found, wanted = load_space(FOLDER / "gemm_sm90_pingpong.toml"), problem("nn")
    point = {"rows": 64, "columns": 128, "stages": 2, "size": 2, "raster": 8, "rounds": 2}
    return built(found, found.values(point, {**given_of(found, wanted, wanted.shape("square"), H200), "sms": 2}), wanted, H200)


def test_tiles_in_turn_come_from_the_naive_program_by_passes_alone() -> None:
    made = in_turns()
    assert in_cluster(made, "check", TURNS) == (True, set())
    assert in_cluster(lowered(made), "fast", TURNS)[0]


@pytest.mark.parametrize(("old", "new"), [
    ("mbar_wait(&turn[0], (j + 1) % 2)\n", "\n"), ("mbar_wait(&turn[0], (j + 1) % 2)\n", "mbar_wait(&turn[0], j % 2)\n"),
    ("mbar_arrive(&turn[0])\n", "\n"), ("mbar_init(&turn[0], 1)", "mbar_init(&turn[0], 2)")])
def test_a_mistake_in_taking_turns_is_found(old: str, new: str) -> None:
    text = tomllib.loads((FOLDER.parents[1] / "tests" / "passes" / "cases" / "ping_pong.toml").read_text())["case"][0]["after"]
    rng = np.random.default_rng(1)
    inputs = {"A": rng.standard_normal((300, 128)).astype(np.float16), "B": rng.standard_normal((128, 64)).astype(np.float16)}
    right, wrong = (run(parse_program(x), inputs, {"M": 300}, mode="check").findings for x in (text, text.replace(old, new)))
    assert text.count(old) == 1 and not [f for f in right if f.severity == "error"]
    assert [f for f in wrong if f.severity == "error"]


def test_sizes_that_no_box_fits_take_the_other_kernel() -> None:
    wanted, found = problem("nn"), load_space(FOLDER / "gemm_sm90_cluster.toml")
    made = general(found, clustered(), wanted, H200)
    check(made)
    assert parse_program(program_text(made)) == made and made.facts == wanted.naive.facts
    by = backend("cuda").emit(made)
    for name, runs in (("tail", "main"), ("odd", "main_otherwise")):
        assert in_cluster(made, "fast", name)[0]
        known = {size: const(value) for size, value in wanted.shape(name).sizes.items()}
        assert [e.kernel for e, taken in zip(by.entries, launched(made, known), strict=True) if taken] == [runs]
    with pytest.raises(KirError, match="KIR-U008"):
        general(replace(found, otherwise=""), made, wanted, H200)
    with pytest.raises(KirError, match="KIR-R015"):
        with_otherwise(made, load_problem("softmax").naive)


@pytest.mark.parametrize(("surface", "words"), [
    ("triton", ("C_desc.store(", "tl.dot", "tl.minimum")), ("tilelang", ("T.Pipelined", "T.gemm(As, Bs, acc)", "T.alloc_shared((128, 256)"))])
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
def test_the_stored_pipeline_over_the_naive_program_becomes_hgmma_and_tma_without_spills() -> None:
    made = pipeline(problem("nn").naive, Pipeline.parse((FOLDER / "gemm_sm90.pipeline").read_text(), "gemm_sm90.pipeline"), Context(H200)).program
    by = backend("cuda")
    artifact = by.compile(by.emit(made), target("sm_90a"))
    assert artifact.spills == 0 and [k.kernel for k in artifact.kernels] == ["main", "main_otherwise"]
    if artifact.mix:
        assert all(artifact.mix[opcode] > 0 for opcode in ("HGMMA", "UTMALDG", "UTMASTG", "USETMAXREG", "SYNCS"))


@pytest.mark.nvcc
def test_a_cluster_is_compiled_to_multicast_without_spills() -> None:
    by = backend("cuda")
    emitted = by.emit(clustered(rows=128, columns=256, stages=4, panels=2))
    assert "__cluster_dims__(2, 1, 1)" in emitted.text and ".multicast::cluster" in emitted.text and "mapa.shared::cluster" in emitted.text
    artifact = by.compile(emitted, target("sm_90a"))
    image = artifact.kernels[0].image
    assert artifact.spills == 0 and image is not None and image.cluster == (2, 1, 1)
    if artifact.mix:
        assert artifact.mix["HGMMA"] > 0 and artifact.mix["UTMALDG"] > 0 and artifact.mix["UCGABAR_ARV"] > 0


@pytest.mark.parametrize(("name", "form", "texts"), [
    ("gdn_d128_tilelang", "tiles", ("gates_shared[j]", "T.gemm(ks, ks, gram, transpose_B=True")),
    ("gdn_d128_roles_tilelang", "roles", ("T.tma_copy(E[b, h, at * 64:at * 64 + 64], Es[c % 3, 0:64]", "transpose_A=True", "T.wait_wgmma(1)")),
    ("gdn_d128_boxes_triton", "one", ("keys = k_desc.load([b, c * 64, h // G, 0])", "o_desc.store([b, c * 64, h, e * 64]", "tl.load")),
])
def test_the_gated_delta_rule_is_right_and_emitted(name: str, form: str, texts: tuple[str, ...]) -> None:
    found, wanted = load_space(FOLDER / f"{name}.toml"), load_problem("gdn_d128")
    settings = {key: values[0] for key, values in found.parameters.items()}
    made = built(found, found.values({**settings, "form": form}, given_of(found, wanted, wanted.shapes[0], H200)), wanted, H200)
    shape = wanted.shape("odd")
    inputs = wanted.inputs(shape, seed=3)
    assert wanted.compare(run(made, inputs, wanted.scalars(shape)).outputs, inputs, shape).ok
    emitted = backend(found.surface).emit(made).text
    assert all(text in emitted for text in texts)
