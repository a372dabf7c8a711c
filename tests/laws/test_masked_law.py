"""Law 5a for tiles that hang over the edges of their tensors: in elements or vectors, with any fill, under loops, staged or in place."""
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kir.ir.parser import parse_program
from tests.round_trips import CUDA

BYTES = {"f16": 2, "bf16": 2, "f32": 4, "i32": 4}


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A kernel whose threads move or compute `width` neighbors of rows of a matrix of any size."""
    dtype, width, rows = draw(st.sampled_from(sorted(BYTES))), draw(st.sampled_from((2, 3, 4, 8))), draw(st.sampled_from((1, 2, 4)))
    aligned, whole, looped = draw(st.booleans()), draw(st.booleans()) and width != 3, draw(st.booleans())
    how = draw(st.sampled_from(("compute", "two", "fill", *(("stage", "leave") if width != 3 else ()))))
    suffix = "" if dtype in ("f32", "i32") else f":{dtype}"
    zero, one = ("0", "1") if dtype == "i32" else (f"0.0{suffix}", f"1.0{suffix}")
    vector = aligned and whole and 4 <= width * BYTES[dtype] <= 16
    whole = whole and (vector or not aligned)
    via = f" via vector({width})" if vector else ""
    row = f"g * {32 * rows} + t * {rows} + r" if rows > 1 else "g * 32 + t"
    column = f"h * {width} + {f'k * {4 * width}' if looped else draw(st.sampled_from((str(width), '48')))}"
    here, own = f"[{row}, {column} +: {width}]", f"s[t, 0 +: {width}]"
    match how:
        case "compute":
            body = [f"let v = load(A{here} else {draw(st.sampled_from((zero, one)))} clip)", f"Y{here} = v * v + v clip"]
        case "two":
            body = [f"let v = load(A{here} else {zero} clip)", f"let u = load(B{here} else {one} clip)", f"Y{here} = v * u + v * v - u clip"]
        case "fill":
            body = [f"Y{here} = {one} clip"]
        case "stage":
            body = [f"copy load(A{here} else {zero} clip) -> {own}{via}", "barrier()", f"Y{here} = s[31 - t, 0 +: {width}] * {own} clip", "barrier()"]
        case _:
            body = [f"let v = load(A{here} else {zero} clip)", f"{own} = v * v + {one}", "barrier()",
                    f"copy s[31 - t, 0 +: {width}] -> Y{here}{via} clip", "barrier()"]
    for head in (*(("for k in 0..4",) if looped else ()), *((f"for r in 0..{rows} unroll {{factor={rows}}}",) if rows > 1 else ())):
        body = [head, *(f"  {x}" for x in body)]
    lines = [f"  {q} {x}: {dtype}[M, N]{' align 16' if aligned else ''}" for q, x in (("in", "A"), ("in", "B"), ("out", "Y"))]
    return "\n".join((
        "kir 1", "program p", "  size M: i32", "  size N: i32", *lines, *((f"  fact N % {width} == 0",) if whole else ()),
        f"kernel main grid (g: ceildiv(M, {32 * rows}), h: ceildiv(N, {width})) threads 32",
        *((f"  shared s: {dtype}[32, {width}]",) if how in ("stage", "leave") else ()), "  for t in 0..32 parallel thread",
        *(f"    {x}" for x in body))) + "\n"


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=programs(), seed=st.integers(0, 9))
def test_masked_tiles_are_read_back(text: str, seed: int, tmp_path: Path) -> None:
    CUDA.holds(parse_program(text, "masked"), tmp_path, seed)


ROWS = """kir 1
program p
  size K: i32
  size N: i32
  in B: f16[K, N] align 16
  out Y: f16[K, N] align 16
  fact K >= 1
  fact N >= 1
  fact N % 16 == 0
kernel main grid (g: ceildiv(N, 128)) threads 64
  shared s: f16[4, 128]
  for t in 0..64 parallel thread
    for k in 0..ceildiv(K, 4)
      copy load(B[k * 4 + t // 16 + 64, g * 128 + t % 16 * 8 +: 8] else 0.0:f16 clip) -> s[t // 16, t % 16 * 8 +: 8] via cp_async grouped
      async_commit()
      async_wait(0)
      barrier()
      copy s[t // 16, t % 16 * 8 +: 8] -> Y[k * 4 + t // 16, g * 128 + t % 16 * 8 +: 8] via vector(8) clip
      barrier()
"""


@pytest.mark.parametrize("ahead", [64, 4, 1])
def test_rows_that_lie_ahead_stay_rows(tmp_path: Path, ahead: int) -> None:
    """An offset of whole rows counts as rows where the mask bounds them, and not as columns."""
    CUDA.holds(parse_program(ROWS.replace("64, g", f"{ahead}, g"), "rows"), tmp_path, 3)
