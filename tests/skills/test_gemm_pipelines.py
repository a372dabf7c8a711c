"""GEMM with few rows, few tiles and any N, and for the architecture before: right, free of hazards, and compiled without spills."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.analysis.target.legalize import legalize
from kir.hardware.target import target
from kir.interp import run
from kir.ir.nodes import Program
from kir.ir.printer import program_text
from kir.learning.tune import general, load_space
from kir.learning.tune.rank import built, given_of
from kir.problem import Problem, load_problem
from kir.problem.draws import numpy_dtype
from kir.surface import backend
from kir.surface.lowering import lowered

FOLDER = Path(__file__).parents[2] / "skills" / "pipelines"


def filled(name: str, chip: str, dtype: str, **point: int) -> tuple[Program, Problem]:
    """A point of a space, for a chip of two SMs."""
    found = load_space(FOLDER / f"{name}.toml")
    wanted = load_problem(f"{found.home}:{dtype}")
    timed = next(s for s in wanted.shapes if "timed" in s.tags)
    values = found.values(point, {**given_of(found, wanted, timed, target(chip)), **({"sms": 2} if "sms" in found.given else {})})
    assert found.refusal(values) == ""
    made = built(found, values, wanted, target(chip))
    assert legalize(made, target(chip).architecture) == ()
    return made, wanted


@pytest.mark.parametrize(("name", "dtype", "point"), [
    ("gemm_sm90_nt_skinny", "bf16", {"rows": 16, "columns": 64, "stages": 6, "parts": 4}),
    ("gemm_sm90_nt_skinny", "f16", {"rows": 32, "columns": 128, "stages": 4, "parts": 2}),
    ("gemm_sm90_nt_wide", "bf16", {"rows": 64, "columns": 64, "stages": 6}),
    ("gemm_sm90_nt_split", "bf16", {"rows": 128, "columns": 128, "stages": 4, "parts": 8}),
    ("gemm_sm90_nt_odd", "bf16", {"rows": 128, "columns": 128, "stages": 6, "raster": 8}),
    ("gemm_sm90_nt_pingpong", "f16", {"rows": 128, "columns": 128, "stages": 5, "size": 2, "raster": 8, "rounds": 2}),
    ("gemm_sm90_nt_wide_multicast", "f16", {"rows": 16, "columns": 64, "stages": 6, "size": 2}),
    ("gemm_sm90_nt_multicast", "bf16", {"rows": 128, "columns": 224, "stages": 4, "size": 2, "raster": 8, "rounds": 7}),
    ("bmm_sm90", "bf16", {"rows": 64, "columns": 128, "stages": 8, "raster": 8, "rounds": 1}),
    ("bmm_sm90_pingpong", "bf16", {"rows": 64, "columns": 128, "stages": 8, "raster": 8, "rounds": 1}),
    ("bmm_sm90_multicast", "bf16", {"rows": 128, "columns": 128, "stages": 6, "size": 2, "raster": 8, "rounds": 2}),
])
def test_few_rows_few_tiles_and_any_n_are_right_and_lowered(name: str, dtype: str, point: dict[str, int]) -> None:
    made, wanted = filled(name, "h200", dtype, **point)
    for at, mode in (("tail", "check"), ("odd", "fast"), ("deep", "fast")):
        shape = wanted.shape(at)
        inputs = wanted.inputs(shape, seed=4)
        found = run(made, inputs, wanted.scalars(shape), mode="check" if mode == "check" else "fast")
        assert wanted.compare(found.outputs, inputs, shape).ok and not found.errors
    shape = wanted.shape("tail")
    inputs = wanted.inputs(shape, seed=5)
    assert wanted.compare(run(lowered(made), inputs, wanted.scalars(shape)).outputs, inputs, shape).ok
    assert made.plan and "via wgmma pending" in program_text(made)


@pytest.mark.parametrize(("name", "point"), [
    ("bmm_triton", {"rows": 64, "columns": 128, "depth": 64, "stages": 4, "threads": 128, "raster": 8}),
    ("bmm_tilelang", {"rows": 128, "columns": 128, "depth": 32, "stages": 3, "threads": 128, "raster": 8}),
    ("bmm_tilelang_roles", {"rows": 128, "columns": 128, "stages": 6, "rounds": 1, "raster": 8}),
    ("bmm_tilelang_pingpong", {"rows": 64, "columns": 128, "stages": 6, "rounds": 1, "raster": 8}),
    ("gemm_tilelang_roles", {"rows": 128, "columns": 256, "stages": 4, "rounds": 2, "raster": 16}),
    ("gemm_fp8_tilelang_roles", {"rows": 64, "stages": 6, "raster": 8, "rounds": 1}),
    ("gemm_fp8_tilelang_pairs", {"rows": 64, "stages": 6, "raster": 16, "rounds": 2}),
    ("gemm_fp8_tilelang_split", {"rows": 64, "stages": 4, "threads": 128, "parts": 4}),
    ("gemm_fp8_triton_split", {"rows": 64, "stages": 4, "threads": 128, "parts": 4}),
    ("gemm_fp8_triton_persistent", {"rows": 64, "stages": 3, "threads": 128, "raster": 8, "ctas": 2, "flatten": True}),
    ("gemm_fp8_triton", {"rows": 64, "stages": 4, "threads": 128, "raster": 8}),
    ("gemm_fp8_tilelang", {"rows": 128, "stages": 3, "threads": 256, "raster": 8}),
    ("gemm_grouped_triton", {"rows": 64, "columns": 128, "stages": 4, "threads": 128, "ctas": 2, "flatten": True}),
    ("gemm_grouped_tilelang", {"rows": 64, "columns": 128, "stages": 4, "threads": 128, "ctas": 2}),
    ("gemm_grouped_tilelang_roles", {"rows": 64, "columns": 128, "stages": 6, "panel": 0, "rounds": 1}),
])
def test_batches_groups_and_scaled_tiles_in_a_tile_language_are_right_and_emitted(name: str, point: dict[str, int]) -> None:
    made, wanted = filled(name, "h200", "f8e4m3" if "fp8" in name else "bf16", **point)
    shape = wanted.shape("deep")
    inputs = wanted.inputs(shape, seed=4)
    assert wanted.compare(run(made, inputs, wanted.scalars(shape)).outputs, inputs, shape).ok
    assert backend(load_space(FOLDER / f"{name}.toml").surface).accepts(made) == ()


@pytest.mark.parametrize(("name", "point"), [
    ("gemm_grouped_sm90", {"rows": 128, "columns": 128, "stages": 6, "panel": 0, "rounds": 1}),
    ("gemm_grouped_sm90", {"rows": 64, "columns": 256, "stages": 5, "panel": 8, "rounds": 2}),
    ("gemm_grouped_sm90_few", {"rows": 32, "columns": 128, "stages": 5}),
])
def test_groups_uneven_and_empty_are_right_and_lowered(name: str, point: dict[str, int]) -> None:
    made, wanted = filled(name, "h200", "bf16", **point)
    for at, distribution, mode in (("many", "few", "check"), ("deep", "normal", "fast"), ("odd", "normal", "fast")):
        shape = wanted.shape(at)
        inputs = wanted.inputs(shape, 4, distribution)
        found = run(made, inputs, wanted.scalars(shape), mode="check" if mode == "check" else "fast")
        assert wanted.compare(found.outputs, inputs, shape).ok and not found.errors
    inputs = wanted.inputs("many", 5)
    assert wanted.compare(run(lowered(made), inputs, wanted.scalars(wanted.shape("many"))).outputs, inputs, "many").ok


@pytest.mark.parametrize(("name", "point"), [
    ("gemm_fp8_sm90", {"rows": 64, "stages": 6, "raster": 8, "rounds": 1}),
    ("gemm_fp8_sm90_multicast", {"rows": 128, "stages": 6, "size": 2, "raster": 8, "rounds": 2}),
    ("gemm_fp8_sm90_split", {"rows": 64, "stages": 6, "parts": 4}),
    ("gemm_fp8_sm90_pairs", {"rows": 64, "stages": 6, "raster": 8, "rounds": 2}),
    ("gemm_fp8_sm90_split_pairs", {"rows": 64, "stages": 6, "parts": 2}),
])
def test_fp8_with_scales_a_tile_is_right_and_lowered(name: str, point: dict[str, int]) -> None:
    made, wanted = filled(name, "h200", "f8e4m3", **point)
    for at, distribution, mode in (("tail", "wide", "check"), ("deep", "normal", "fast"), ("odd", "normal", "fast")):
        shape = wanted.shape(at)
        inputs = wanted.inputs(shape, 4, distribution)
        found = run(made, inputs, wanted.scalars(shape), mode="check" if mode == "check" else "fast")
        assert wanted.compare(found.outputs, inputs, shape).ok and not found.errors
    inputs = wanted.inputs("tail", 5)
    assert wanted.compare(run(lowered(made), inputs, wanted.scalars(wanted.shape("tail"))).outputs, inputs, "tail").ok


def test_rows_of_no_group_are_left_alone() -> None:
    made, _ = filled("gemm_grouped_sm90", "h200", "bf16", rows=64, columns=128, stages=6, panel=0, rounds=1)
    sizes, rng = {"G": 3, "T": 150, "N": 64, "K": 64}, np.random.default_rng(6)
    a, b = rng.standard_normal((150, 64)).astype(numpy_dtype("bf16")), rng.standard_normal((3, 64, 64)).astype(numpy_dtype("bf16"))
    offsets = np.array([5, 70, 70, 140], np.int32)
    found = run(made, {"A": a, "B": b, "offsets": offsets}, sizes).outputs["C"].astype(np.float64)
    for g, lo, hi in ((0, 5, 70), (2, 70, 140)):
        assert np.allclose(found[lo:hi], a[lo:hi].astype(np.float64) @ b[g].astype(np.float64).T, rtol=1e-2, atol=1e-1)
    assert np.isnan(found[:5]).all() and np.isnan(found[140:]).all()


@pytest.mark.parametrize(("name", "shapes"), [("gemm_sm80", ("tail", "odd")), ("bmm_sm80", ("odd",))])
def test_ampere_comes_from_the_naive_program_by_passes_alone_and_takes_every_size(name: str, shapes: tuple[str, ...]) -> None:
    made, wanted = filled(name, "sm_80", "bf16", rows=128, stages=4)
    every = general(load_space(FOLDER / f"{name}.toml"), made, wanted, target("sm_80"))
    for at in shapes:
        shape = wanted.shape(at)
        inputs = wanted.inputs(shape, seed=3)
        found = run(every, inputs, wanted.scalars(shape), mode="check")
        assert wanted.compare(found.outputs, inputs, shape).ok and not found.errors


def test_tensor_memory_comes_from_the_naive_program_by_passes_alone_and_back() -> None:
    made, wanted = filled("gemm_sm100", "sm_100a", "f16", columns=64, raster=8)
    assert "via tcgen05" in program_text(made) and made.plan
    for at, each in (("tail", made), ("tail", lowered(made)), ("odd", lowered(made))):
        shape = wanted.shape(at)
        inputs = wanted.inputs(shape, seed=3)
        found = run(each, inputs, wanted.scalars(shape), mode="check")
        assert wanted.compare(found.outputs, inputs, shape).ok and not found.findings
    space = load_space(FOLDER / "gemm_sm100.toml")
    given = given_of(space, wanted, wanted.shape("square"), target("h200"))
    assert "no tensor memory" in space.refusal(space.values({"columns": 64, "raster": 8}, given))


@pytest.mark.nvcc
@pytest.mark.parametrize(("name", "compiled_for", "instruction", "point"), [
    ("gemm_sm80", "sm_80", "HMMA", {"rows": 128, "stages": 4}),
    ("gemm_sm80", "sm_120", "HMMA", {"rows": 64, "stages": 4}),
    pytest.param("gemm_triton", "sm_100a", "UTCHMMA", {"rows": 128, "columns": 128, "depth": 64, "stages": 3, "threads": 128, "raster": 8},
                 marks=pytest.mark.triton),
    ("gemm_sm100", "sm_100a", "UTCHMMA", {"columns": 128, "raster": 8}),
    ("gemm_sm90_nt_skinny", "sm_90a", "HGMMA", {"rows": 16, "columns": 128, "stages": 4, "parts": 8}),
    ("gemm_sm90_nt_pingpong", "sm_90a", "HGMMA", {"rows": 64, "columns": 256, "stages": 4, "size": 2, "raster": 8, "rounds": 2}),
    ("gemm_grouped_sm90", "sm_90a", "HGMMA", {"rows": 128, "columns": 256, "stages": 4, "panel": 16, "rounds": 2}),
    ("gemm_grouped_sm90_few", "sm_90a", "HGMMA", {"rows": 16, "columns": 128, "stages": 6}),
    ("gemm_fp8_sm90_multicast", "sm_90a", "QGMMA", {"rows": 128, "stages": 6, "size": 2, "raster": 8, "rounds": 1}),
    ("gemm_fp8_sm90_pairs", "sm_90a", "QGMMA", {"rows": 128, "stages": 6, "raster": 8, "rounds": 2}),
    ("gemm_fp8_sm90_split_pairs", "sm_90a", "QGMMA", {"rows": 128, "stages": 4, "parts": 2}),
])
def test_they_compile_without_spills_to_the_matrix_instructions(name: str, compiled_for: str, instruction: str, point: dict[str, int]) -> None:
    made, _ = filled(name, compiled_for, "f8e4m3" if "fp8" in name else "bf16", **point)
    surface = backend(load_space(FOLDER / f"{name}.toml").surface)
    (kernel, *_) = surface.compile(surface.emit(made), target(compiled_for)).kernels
    assert kernel.spills == 0 and any(word.startswith(instruction) for word in kernel.mix)
