"""Convolutions as products of matrices: every pipeline is right and free of hazards at sizes with tails, is lowered, and compiles without spills."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.analysis.normal.normal_form import normalize
from kir.analysis.target.legalize import legalize
from kir.backends.tilelang.form.form import form
from kir.hardware.target import target
from kir.interp import run
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.tune import load_space
from kir.learning.tune.rank import built, given_of
from kir.problem import Problem, load_problem
from kir.surface import backend
from kir.surface.lowering import lowered
from tests.round_trips import TILELANG

FOLDER = Path(__file__).parents[2] / "skills" / "pipelines"
H200 = target("h200")
POINTS = [
    ("conv2d_sm90", "f16", {"rows": 128, "columns": 64, "stages": 3, "raster": 8, "rounds": 1}),
    ("conv2d_sm90_once", "f16", {"rows": 128, "columns": 64, "stages": 4, "rounds": 1}),
    ("conv2d_sm90_multicast", "bf16", {"rows": 64, "columns": 64, "stages": 3, "size": 2, "raster": 8, "rounds": 1}),
    ("conv2d_sm90_pingpong", "f16", {"rows": 64, "columns": 64, "stages": 3, "raster": 8, "rounds": 1}),
    ("conv2d_sm90_split", "bf16", {"rows": 64, "columns": 128, "stages": 3, "parts": 4}),
]


def filled(name: str, dtype: str, point: dict[str, int], sms: int = 2) -> tuple[Program, Problem]:
    """A point of a space, for a chip of few SMs."""
    found, wanted = load_space(FOLDER / f"{name}.toml"), load_problem(f"conv2d:{dtype}")
    values = found.values(point, {**given_of(found, wanted, wanted.shape("resnet"), H200), **({"sms": sms} if "sms" in found.given else {})})
    made = built(found, values, wanted, H200)
    assert legalize(made, H200.architecture) == ()
    return made, wanted


@pytest.mark.parametrize(("name", "dtype", "point"), POINTS, ids=[name for name, _, _ in POINTS])
def test_a_convolution_is_right_and_lowered(name: str, dtype: str, point: dict[str, int]) -> None:
    made, wanted = filled(name, dtype, point)
    shape = wanted.shape("tail")
    inputs = wanted.inputs(shape, seed=4)
    found = run(made, inputs, wanted.scalars(shape), mode="check")
    assert wanted.compare(found.outputs, inputs, shape).ok and not found.errors
    assert wanted.compare(run(lowered(made), inputs, wanted.scalars(shape)).outputs, inputs, shape).ok
    assert "mode=im2col" in program_text(made) and "via wgmma pending" in program_text(made)


@pytest.mark.parametrize(("surface", "said"), [("triton", ("Wtm_desc.load(", "Ym_desc.store(", "mask=")),
                                               ("tilelang", ("T.Pipelined(", "X[(i + i_tile * 64) // (H * W),", "T.gemm(Xms, Wtms, acc, transpose_B=True)"))])
def test_a_convolution_in_tiles_gathers_pixels(surface: str, said: tuple[str, ...]) -> None:
    made, wanted = filled(f"conv2d_{surface}", "f16", {"rows": 64, "columns": 64, "stages": 2, "threads": 128})
    shape = wanted.shape("tail")
    inputs = wanted.inputs(shape, seed=4)
    found = run(made, inputs, wanted.scalars(shape), mode="check")
    assert wanted.compare(found.outputs, inputs, shape).ok and not found.errors
    text = backend(surface).emit(made).text
    assert all(each in text for each in said), text


def test_triton_shows_boxes_to_tensor_cores_where_they_lie() -> None:
    """As the second operand, which is not read into registers; no division and no way around the loop stand between its products."""
    point = {"rows": 128, "high": 8, "images": 2, "columns": 64, "stages": 3, "threads": 128}
    body = backend("triton").emit(filled("conv2d_boxes_triton", "f16", point)[0]).text.partition("for k_tile in range(tl.maximum(tl.cdiv(C * 9, 64), 1)):")[2]
    assert "acc = tl.dot(wtm, tl.trans(xm), acc)" in body and "xm = tl.reshape(box, (128, 64))" in body and "//" not in body


def test_triton_loads_filters_once_for_several_boxes() -> None:
    made, wanted = filled("conv2d_joined_triton", "f16", {"rows": 32, "high": 2, "images": 2, "columns": 128, "stages": 2, "threads": 128, "count": 3})
    shape = wanted.shape("tail")
    inputs = wanted.inputs(shape, seed=4)
    found = run(made, inputs, wanted.scalars(shape), mode="check")
    assert wanted.compare(found.outputs, inputs, shape).ok and not found.errors
    text = backend("triton").emit(made).text
    assert text.count("Wtm_desc.load(") == 1 and text.count("X_desc.load(") == text.count("tl.dot(wtm, tl.trans(xm") == text.count("Y_desc.store(") == 3


@pytest.mark.parametrize(("name", "point"), [("pingpong", {"rows": 64, "columns": 64, "stages": 3, "raster": 8, "rounds": 1}),
                                             ("once", {"rows": 128, "columns": 64, "stages": 4, "rounds": 1})])
def test_tilelang_gathers_pixels_by_tensor_maps(name: str, point: dict[str, int], tmp_path: Path) -> None:
    made, wanted = filled(f"conv2d_tilelang_{name}", "f16", point)
    shape = wanted.shape("tail")
    inputs = wanted.inputs(shape, seed=4)
    found = run(made, inputs, wanted.scalars(shape), mode="check")
    assert wanted.compare(found.outputs, inputs, shape).ok and not found.errors
    assert "i_tile,k_tile_1,3,1,1,1,annotations={" in "".join(backend("tilelang").emit(made).text.split())
    TILELANG.is_read_back(form(normalize(made)), tmp_path, 1)


@pytest.mark.parametrize(("old", "new", "why"), [
    ("Xm[i_tile * 128 +: 128,", "Xm[i_tile * 128 + 8 +: 128,", "whole tiles of 'Xm', counted from the first"),
    ("pixel // W % H + tap // (C * 3) - 1,", "pixel // W % H + tap // (C * 3) - 2,", "'Xm' is a view of other elements"),
])
def test_what_no_im2col_of_tilelang_shows_is_refused(old: str, new: str, why: str) -> None:
    made, _ = filled("conv2d_tilelang_once", "f16", {"rows": 128, "columns": 64, "stages": 4, "rounds": 1})
    refused = backend("tilelang").accepts(parse_program(program_text(made).replace(old, new)))
    assert any(why in d.message for d in refused)


@pytest.mark.nvcc
def test_on_ampere_threads_gather_pixels_for_mma_sync() -> None:
    made, wanted = filled("conv2d_sm80", "bf16", {"rows": 64, "columns": 64})
    shape = wanted.shape("tail")
    inputs = wanted.inputs(shape, seed=4)
    found = run(made, inputs, wanted.scalars(shape), mode="check")
    assert wanted.compare(found.outputs, inputs, shape).ok and not found.errors
    by = backend("cuda")
    (kernel,) = by.compile(by.emit(made), target("sm_80")).kernels
    assert kernel.spills == 0 and (not kernel.mix or (kernel.mix["HMMA"] > 0 and kernel.mix["LDSM"] > 0))


@pytest.mark.nvcc
def test_the_split_one_compiles_to_gathers_and_matrix_instructions_without_spills() -> None:
    made, _ = filled("conv2d_sm90_split", "f16", {"rows": 128, "columns": 128, "stages": 4, "parts": 2})
    by = backend("cuda")
    emitted = by.emit(made)
    (kernel,) = by.compile(emitted, target("sm_90a")).kernels
    assert ".im2col" in emitted.text and kernel.spills == 0
    if kernel.mix:
        assert kernel.mix["HGMMA"] > 0 and kernel.mix["UTMALDG"] > 0
