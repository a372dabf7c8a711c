"""Flat accesses as regions: what is raised, and what is left alone because it would mean something else."""

from __future__ import annotations

import pytest

from kir.analysis.normal.regions import raised
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify

HEAD = """kir 1
program p
  size M: i32
  size N: i32
  in A: f32[M, N]
  out C: f32[M, N]
  fact M >= 1
  fact M <= 1048576
  fact N >= 1
  fact N <= 1048576
kernel main grid (i: ceildiv(M, 16), j: ceildiv(N, 32)) threads 128
  view global A_flat: f32[M * N] at A
  view global C_flat: f32[M * N] at C
  let rows = i * 16 + iota(16)
  let cols = j * 32 + iota(32)
"""


WHOLE = HEAD.replace("kernel main", "  fact N % 32 == 0\nkernel main")
"""Rows that tiles of 32 columns fill: no tile reaches into the next row, with a mask or without."""


def body(text: str, head: str = HEAD) -> list[str]:
    made = raised(parse_program(head + text))
    assert raised(made) == made
    return [line.strip() for line in program_text(made).split("threads 128\n")[1].splitlines()]


def test_rows_and_columns_become_spans_and_masks_become_clips() -> None:
    assert body("""  let inside = expand(rows < M, axis=1) & expand(cols < N, axis=0)
  let at = expand(rows, axis=1) * N + expand(cols, axis=0)
  C_flat[at] = load(A_flat[at] where inside else 1.0) where inside
""") == ["C[i * 16 +: 16, j * 32 +: 32] = load(A[i * 16 +: 16, j * 32 +: 32] else 1.0 clip) clip"]


def test_a_transposed_access_has_the_axes_of_its_tensor() -> None:
    made = body("""  let at = expand(cols, axis=1) + expand(rows, axis=0) * N
  C_flat[at] = A_flat[at] * 2.0
""", WHOLE)
    assert made == ["C[i * 16 +: 16, j * 32 +: 32] = A[i * 16 +: 16, j * 32 +: 32] * 2.0"]


@pytest.mark.parametrize(("text", "made"), [
    ("""  let x = broadcast(load(A_flat[i * N + cols] where i < M & cols < N else 0.0), 1, 32)
  let y = select(i <= cols, x, 1.0)
  C_flat[broadcast(i * N, 1, 32) + cols] = y where broadcast(i < M, 1, 32) & cols < N
""", ["let x = load(A[i, j * 32 +: 32] else 0.0 clip)", "let y = select(i <= iota(32) + j * 32, x, 1.0)", "C[i, j * 32 +: 32] = y clip"]),
    ("""  let x = expand(load(A_flat[rows * N] where rows < M else 0.0), axis=1)
  let y = x * 2.0 + x
  C_flat[expand(rows, axis=1) * N] = y where expand(rows, axis=1) < M
""", ["let x = load(A[i * 16 +: 16, 0] else 0.0 clip)", "let y = x * 2.0 + x", "C[i * 16 +: 16, 0] = y clip"]),
    ("""  let x = broadcast(load(A_flat[i * N + cols] where i < M & cols < N else 0.0) * 2.0, 16, 32)
  let at = expand(rows, axis=1) * N + expand(cols, axis=0)
  C_flat[at] = x where expand(rows < M, axis=1) & expand(cols < N, axis=0)
""", ["let x = load(A[i, j * 32 +: 32] else 0.0 clip) * 2.0", "C[i * 16 +: 16, j * 32 +: 32] = broadcast(x, 16, 32) clip"]),
    ("""  let x = broadcast(load(A_flat[i * N] where i < M else 0.0), 1)
  C_flat[broadcast(i * N, 1)] = broadcast(reduce(x, axis=0, op=max), 1) where broadcast(i < M, 1)
""", ["let x = load(A[i, 0] else 0.0 clip)", "C[i, 0] = x clip"]),
])
def test_a_row_or_a_column_has_one_axis(text: str, made: list[str]) -> None:
    assert body(text) == made


def test_a_tile_that_is_reduced_or_picked_from_keeps_its_axes() -> None:
    made = body("""  let at = expand(rows, axis=1) * N + expand(cols, axis=0)
  let x = load(A_flat[at] where expand(rows < M, axis=1) & expand(cols < N, axis=0) else 0.0)
  let at_most = reduce(x, axis=1, op=argmax)
  C_flat[expand(rows, axis=1) * N] = cast(expand(at_most, axis=1), f32) where expand(rows < M, axis=1)
""")
    assert made[-1] == "C[i * 16 +: 16, 0] = cast(at_most, f32) clip" and "axis=1, op=argmax" in made[-2]


def test_the_rest_of_a_mask_stays() -> None:
    made = body("""  let at = expand(rows, axis=1) * N + expand(cols, axis=0)
  C_flat[at] = A_flat[at] where expand(rows < M, axis=1) & expand(cols < N, axis=0) & expand(rows, axis=1) >= expand(cols, axis=0)
""")
    assert any("where" in line and line.endswith("clip") for line in made)


def test_an_index_from_memory_that_could_cross_rows_is_left_flat() -> None:
    text = program_text(raised(parse_program("""kir 1
program p
  size M: i32
  size N: i32
  in A: f32[M, N]
  in I: i32[M]
  out C: f32[M]
kernel main grid (i: M) threads 128
  view global A_flat: f32[M * N] at A
  let k = I[i]
  C[i] = A_flat[k]
""")))
    assert "A_flat[k]" in text


WRAPPED = """  fragment acc: f32[16, 32] = broadcast(0.0, 16, 32)
  let a = A_flat[expand(rows % M, axis=1) * N + expand(cols, axis=0)]
"""


@pytest.mark.parametrize(
    ("store", "clipped"),
    [
        ("  C_flat[expand(rows, axis=1) * N + expand(cols, axis=0)] = a + 1.0 where expand(rows < M, axis=1) & expand(cols < N, axis=0)\n", True),
        ("  C_flat[expand(rows, axis=1) * N + expand(cols, axis=0)] = a + 1.0 where expand(cols < N, axis=0)\n", False),
        ("  let s = reduce(a, axis=0, op=sum)\n  C_flat[cols] = s where cols < N\n", False),
    ],
)
def test_rows_that_wrap_are_clipped_only_where_the_rest_is_never_stored(store: str, clipped: bool) -> None:
    text = "\n".join(body(WRAPPED + store, WHOLE))
    assert ("% M" not in text) == clipped


def test_grouped_rasters_are_computed_in_32_bits() -> None:
    made = raised(parse_program("""kir 1
program p
  size M: i32
  size N: i32
  in A: f32[M, N]
  out C: f32[M, N]
  fact M >= 1
  fact M <= 1048576
  fact N >= 1
  fact N <= 1048576
  fact N % 32 == 0
kernel main grid (pid_0: ceildiv(M, 16) * ceildiv(N, 32)) threads 128
  view global C_flat: f32[M * N] at C
  let pid = cast(pid_0, i64)
  let rows = cast(tdiv(M + 15, 16), i64)
  let columns = cast(tdiv(N + 31, 32), i64)
  let panel = tdiv(pid, columns * 8:i64)
  let height = min(rows - panel * 8:i64, 8:i64)
  let m = panel * 8:i64 + trem(trem(pid, columns * 8:i64), height)
  let n = tdiv(trem(pid, columns * 8:i64), height)
  let at = (m * 16:i64 + expand(cast(iota(16), i64), axis=1)) * cast(N, i64) + n * 32:i64 + expand(cast(iota(32), i64), axis=0)
  C_flat[at] = broadcast(1.0, 16, 32)
"""))
    text = program_text(made)
    assert "i64" not in text
    assert "tdiv" not in text and "trem" not in text
    assert "C[m * 16 +: 16, n * 32 +: 32]" in text


def test_a_descriptors_box_stays_a_copy_via_tma() -> None:
    assert body("""  let inside = expand(rows < M, axis=1) & expand(cols < N, axis=0)
  let at = expand(rows, axis=1) * N + expand(cols, axis=0)
  fragment a: f32[16, 32]
  copy load(A_flat[at] where inside else 0.0) -> a via tma
  fragment c: f32[16, 32] = a * 2.0
  copy c -> C_flat[at] via tma where inside
""") == ["fragment a: f32[16, 32]", "copy load(A[i * 16 +: 16, j * 32 +: 32] else 0.0 clip) -> a via tma",
         "fragment c: f32[16, 32] = a * 2.0", "copy c -> C[i * 16 +: 16, j * 32 +: 32] via tma clip"]


def test_a_descriptor_of_another_tensor_than_the_bound_one_is_read_as_what_it_does() -> None:
    made = body("""  let at = expand(rows, axis=0) * N + expand(cols, axis=1)
  fragment a: f32[32, 16]
  copy A_flat[at] -> a via tma
  fragment c: f32[32, 16] = a * 2.0
  copy c -> C_flat[at] via tma
""", WHOLE)
    assert not any("tma" in line or "fragment" in line for line in made) and any("A[" in line for line in made)


BLOCKS = """kir 1
program p
  size T: i32
  fact T >= 64
  fact T <= 65536
  fact T % 64 == 0
  in A: f32[{shape}]
  out C: f32[{shape}]
kernel main grid (i: T // 64) threads 128
  view global A_flat: f32[T * 512] at A
  view global C_flat: f32[T * 512] at C
  {body}
"""


@pytest.mark.parametrize(("shape", "place", "raised_to"), [
    # A corner of a row's block, 16 rows down and 16 columns in; a diagonal; an index from a row's end.
    ("T, 8, 64", "expand(iota(16), axis=1) * 512 + iota(16) + (i * 32768 + 8208)", "i * 64 + 16 +: 16, 0, 16 +: 16"),
    ("T, 8, 64", "iota(64) * 513 + i * 32768", "i * 64 + iota(64), 0, iota(64)"),
    ("T, 8, 64", "iota(64) + (i * 32768 + 8128)", "i * 64 + 15, 7, 0 +: 64"),
    # Rows of another length than the tensor's: no element of it is named by row and column.
    ("T, 256, 2", "iota(1024) + i * 32768", None),
])
def test_what_a_stride_does_not_divide_goes_on_to_the_next_axis(shape: str, place: str, raised_to: str | None) -> None:
    made = raised(parse_program(BLOCKS.format(shape=shape, body=f"C_flat[{place}] = A_flat[{place}] * 2.0")))
    assert verify(made) == () and raised(made) == made
    text = program_text(made)
    if raised_to is None:
        assert "A_flat[i * 32768 +: 1024]" in text
    else:
        assert f"C[{raised_to}] = A[{raised_to}] * 2.0" in text


THREADS = """kir 1
program p
  size M: i32
  size N: i32
  in A: f32[M * N]
  out C: f32[M * N]
  fact M >= 1
  fact N >= 1
kernel main grid (i: ceildiv(M, 16), j: ceildiv(N, 16)) threads 256
  for t in 0..256 parallel thread
    let r = i * 16 + t // 16
"""


@pytest.mark.parametrize(("load", "store", "signed"), [
    ("where r < M & j * 16 + t % 16 < N else 0.0", "where r < M & j * 16 + t % 16 < N", (True, True)),
    ("where r < M & j * 16 + t % 16 < N else 0.0", "where r < M", (True, False)),
    ("where j * 16 + t % 16 < N else 0.0", "where j * 16 + t % 16 < N", (False, False))])
def test_an_unsigned_index_of_elements_that_a_mask_lets_through_is_signed(load: str, store: str, signed: tuple[bool, bool]) -> None:
    """`A[r * n + k + threadIdx.x]` in C++ is unsigned; it does not wrap where the mask keeps it within the tensor, and only there."""
    stored, read = "(cast(r, u32) * cast(N, u32) + cast(j * 16, u32)) + cast(t % 16, u32)", "cast(r * N + j * 16, u32) + cast(t % 16, u32)"
    text = program_text(raised(parse_program(f"{THREADS}    C[cast({stored}, i64)] = load(A[cast({read}, i64)] {load}) {store}\n")))
    assert ("u32" not in text.partition(" = load(")[2], "u32" not in text.partition(" = load(")[0]) == signed, text


@pytest.mark.parametrize(("leaves", "signed"), [("j * 16 + t % 16 >= N", True), ("j * 16 + t % 16 > N", False)])
def test_an_unsigned_index_of_threads_that_have_not_left_is_signed(leaves: str, signed: bool) -> None:
    """`if (c >= n) return; y[blockIdx.y * n + c] = ..` in C++."""
    head = THREADS.replace("out C: f32[M * N]", "out C: f32[ceildiv(M, 16) * N]")
    stored = "cast(i, u32) * cast(N, u32) + cast(j * 16 + t % 16, u32)"
    text = program_text(raised(parse_program(f"{head}    if {leaves}\n      return\n    C[cast({stored}, i64)] = 1.0\n")))
    assert ("u32" not in text) == signed, text


@pytest.mark.parametrize(("cond", "read"), [
    ("cast(t - 40, u32) == 7:u32", "t - 40 == 7"), ("cast(t - 40, u32) != 0:u32", "t - 40 != 0"),  # the same bits are the same number
    ("cast(t - 40, u32) < 7:u32", "cast(t - 40, u32) < 7:u32"),  # not so what is more or less
    ("cast(t - 40, u32) == 4294967295:u32", "cast(t - 40, u32) == 4294967295:u32"),
    ("cast(t + 1, u32) * 2:u32 + 4294967295:u32 < 8:u32", "t * 2 + 1 < 8"),  # one less, which wraps on its way
    ("cast(t, u32) * 2:u32 + 4294967295:u32 < 8:u32", "cast(t, u32) * 2:u32 + 4294967295:u32 < 8:u32")])
def test_an_unsigned_number_is_told_equal_as_a_signed_one(cond: str, read: str) -> None:
    text = program_text(raised(parse_program(f"{THREADS}    if {cond}\n      C[r] = 1.0\n")))
    assert f"if {read}\n" in text, text


@pytest.mark.parametrize(("multiple", "raised_"), [(16, True), (8, False)])
def test_a_next_step_lies_within_rows_of_whole_steps(multiple: int, raised_: bool) -> None:
    """`if (k + 16 < n) .. = x[row * n + k + 16 + threadIdx.x]`, where n is a multiple of 16."""
    text = program_text(raised(parse_program(f"""kir 1
program p
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M, N]
  fact M >= 1
  fact N >= 1
  fact N % {multiple} == 0
kernel main grid (row: M) threads 16
  view global X_flat: f32[M * N] at X
  for t in 0..16 parallel thread
    for k in 0..N // 16
      if k * 16 + 16 < N
        Y[row, k * 16 + t] = X_flat[row * N + k * 16 + 16 + t]
""")))
    assert ("X_flat" not in text) == raised_, text
