"""The plain form of a naive program: shorter, in better words, and the same values bit for bit; what is no tile of another loop stays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from kir.faces.plain.form import plain
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text

SAXPY = ("size n: i32; in X: f32[n]; out Y: f32[n]; fact n >= 1; fact min(n, 64) <= 64", """
kernel main grid (block_x: ceildiv(n, 64)) threads 1
  for t_item in 0..64
    if block_x * 64 + t_item < n
      Y[block_x * 64 + t_item] = X[block_x * 64 + t_item] * 1.0
""", """
  fact n >= 1
kernel main grid (i: n) threads 1
  Y[i] = X[i]
""")
GEMM = ("size M: i32; size N: i32; size K: i32; in A: f32[M, K]; in B: f32[K, N]; out C: f32[M, N]; fact M % 8 == 0; fact N % 8 == 0; fact K % 4 == 0", """
kernel main grid (block_x: N // 8, block_y: M // 8) threads 1
  for t_item in 0..16
    for i in 0..2
      for i_1 in 0..2
        register acc_1: f32 = 0.0
        for k_tile in 0..K // 4
          for k in 0..4
            acc_1 = acc_1 + A[block_y * 8 + t_item // 4 * 2 + i, k_tile * 4 + k] * B[k_tile * 4 + k, block_x * 8 + t_item % 4 * 2 + i_1]
        C[block_y * 8 + t_item // 4 * 2 + i, block_x * 8 + t_item % 4 * 2 + i_1] = acc_1
""", """
kernel main grid (n: N, m: M) threads 1
  register acc: f32 = 0.0
  for k in 0..K
    acc = acc + A[m, k] * B[k, n]
  C[m, n] = acc
""")
LEAVINGS = ("size R: i32; size C: i32; in X: f32[R, C]; out Y: f32[R]; fact R >= 1; fact C >= 1", """
kernel main grid (row: R, one: 1) threads 1
  register total: f32
  register s: f32 = 0.0
  for c: i64 in 0:i64..cast(C, i64)
    for once in 0..1
      s = s + X[row + one + once, c]
  total = s / cast(2000, f32)
  for t_item in 0..128
    if t_item // 32 == 0
      if t_item % 32 == 0
        Y[row] = total
""", """
kernel main grid (row: R) threads 1
  register s: f32 = 0.0
  for c in 0..C
    s = s + X[row, c]
  Y[row] = s / 2000.0
""")
ROWS = ("size rows: i32; size d: i32; in X: f32[rows, d]; out Y: f32[rows, d]; fact rows >= 1; fact d % 4 == 0; fact d >= 4", """
kernel main grid (block_x: ceildiv(rows * (d // 4), 32)) threads 1
  for t_item in 0..32
    if block_x * 32 + t_item < rows * (d // 4)
      for v in 0..4
        Y[(block_x * 32 + t_item) // (d // 4), (block_x * 32 + t_item) % (d // 4) * 4 + v] =\
 X[(block_x * 32 + t_item) // (d // 4), (block_x * 32 + t_item) % (d // 4) * 4 + v]
""", """
kernel main grid (i: d, row: rows) threads 1
  Y[row, i] = X[row, i]
""")
LAST = ("size n: i32; in X: f32[n]; out Y: f32[n]; fact n >= 3", """
kernel main grid (pid: 1) threads 1
  if n < 3
    return
  for __trip in 0..n
    let y = X[-__trip + n - 1]
    Y[-__trip + n - 1] = y
""", """
kernel main grid (i: 1) threads 1
  for j in 0..n
    Y[n - j - 1] = X[n - j - 1]
""")
VECTORS = ("size rows: i32; size d: i32; in X: f32[rows, d]; out Y: f32[rows, d]; fact rows >= 1; fact d % 4 == 0; fact d >= 4", """
kernel main grid (row: rows) threads 1
  for t_item in 0..8
    for i in 0..ceildiv(d, 32)
      for v in 0..4
        Y[row, i * 32 + t_item * 4 + v] = load(X[row, i * 32 + t_item * 4 + v] where i * 32 + t_item * 4 < d else 0.0) where i * 32 + t_item * 4 < d
""", """
kernel main grid (row: rows) threads 1
  for i in 0..d
    Y[row, i] = X[row, i]
""")
SIZES: Mapping[str, tuple[int, ...]] = {"n": (3, 64, 130), "M": (8, 16, 8), "N": (16, 8, 8), "K": (4, 8, 12), "R": (1, 3, 5), "C": (2, 7, 1),
                                        "rows": (1, 9, 40), "d": (4, 8, 12)}


def text(header: str, body: str) -> str:
    """A program of a header in one line."""
    return "kir 1\nprogram p\n" + "".join(f"  {line.strip()}\n" for line in header.split(";")) + body.lstrip("\n")


def same(header: str, body: str) -> str:
    """The text of the plain form, after it was run beside the program at three sizes: it reads back, and gives the same bits."""
    program = parse_program(text(header, body), "program.kir")
    made = plain(program)
    written = program_text(made)
    back = parse_program(written, "plain.kir")
    for at in range(3):
        sizes = {p.name: SIZES[p.name][at] for p in program.params if p.role == "size"}
        rng = np.random.default_rng(at)
        tensors = [p.of for p in program.params if isinstance(p.of, n.Buffer)]
        arrays = {b.name: rng.standard_normal([int(sizes.get(str(getattr(d, "name", "")), getattr(d, "value", 1))) for d in b.shape]).astype(
            np.int32 if b.dtype.is_integer else np.float32) for b in tensors}
        first, *rest = (run(each, {k: v.copy() for k, v in arrays.items()}, sizes).outputs for each in (program, made, back))
        assert all(first[name].tobytes() == other[name].tobytes() for other in rest for name in first)
    return written


@pytest.mark.parametrize("case", [SAXPY, GEMM, LEAVINGS, ROWS, VECTORS, LAST],
                         ids=["saxpy", "gemm", "leavings", "rows", "vectors", "last"])
def test_tiles_are_joined_and_what_changes_nothing_leaves(case: tuple[str, str, str]) -> None:
    header, body, after = case
    written = same(header, body)
    assert written.endswith(after.lstrip("\n")), written


N, V = "size n: i32; in X: f32[n]; inout Y: f32[n]; fact n >= 1", "size n: i32; in X: f32[n]; inout Y: f32[n]; fact n >= 1; fact n % 64 == 0"

COUNTED = f"{N}; inout C: i32[1]"


@pytest.mark.parametrize(("header", "body", "kept"), [
    (N, "if b * 64 + t + 1 < n\n      Y[b * 64 + t] = Y[b * 64 + t + 1]", "for"),  # one round reads what another one writes
    (N, "if b * 64 + t < n\n      Y[(b * 64 + t) // 2] = X[b * 64 + t]", "for"),  # two rounds write one place
    (N, "if b * 64 + t < n\n      let old = atomic_add(&Y[0], X[b * 64 + t])\n      Y[b * 64 + t] = old", "for"),  # the order is seen
    (COUNTED, "if b * 64 + t < n\n      atomic_add(&C[0], 1)\n      Y[b * 64 + t] = cast(C[0], f32)", "for"),  # so is how far the others are
    (N, "if b * 64 < n\n      Y[min(b * 64 + t, n - 1)] = X[0]", "for"),  # a tile that begins inside need not end there
    (V, "Y[b * 64 + (t + 1) % 64] = X[b * 64 + t]", "for"),  # the round's number alone is asked for
    (N, "if b * 64 + t < n\n      if X[b * 64 + t] > 0.0\n        break\n      Y[b * 64 + t] = 1.0", "break"),  # rounds that are left early
    (N, "if t < 3\n      Y[0] = X[0]\n    Y[0] = Y[0] + X[0]", "0..64"),  # something happens in every round
    (N, "register s: f32 = 0.0\n    if t < 2\n      s = X[0]\n    Y[0] = s", "0..64"),  # the guard is of a register alone
])
def test_what_is_no_tile_of_another_loop_stays(header: str, body: str, kept: str) -> None:
    program = parse_program(text(header, f"kernel main grid (b: ceildiv(n, 64)) threads 1\n  for t in 0..64\n    {body}\n"), "program.kir")
    written = program_text(plain(program))
    assert "for" in written and kept in written, written


def test_a_register_stays_where_its_first_value_is_read_from_memory_that_changes() -> None:
    body = "kernel main grid (b: 1) threads 1\n  register s: f32 = Y[0]\n  Y[0] = X[0]\n  s = s + 1.0\n  Y[n - 1] = s\n"
    assert "register s: f32 = Y[0]" in same(N, body)


def test_whole_numbers_may_be_counted_in_any_order() -> None:
    body = "kernel main grid (b: ceildiv(n, 64)) threads 1\n  for t in 0..64\n    if b * 64 + t < n\n      atomic_add(&C[0], 1)\n"
    assert same(COUNTED, body).endswith("kernel main grid (i: n) threads 1\n  atomic_add(&C[0], 1)\n")


def test_counters_of_two_widths_stay_two() -> None:
    body = "kernel main grid (b: 1) threads 1\n  for p in 0..2\n    for r: i64 in 0:i64..3:i64\n      for i in 0..8\n        " + (
        "C[cast(i, i64) + cast(p * 24, i64) + r * 8:i64] = i * 2 + p\n")
    assert "= i * 2 + p" in same("inout C: i32[48]", body)


def test_memory_that_two_names_share_keeps_its_order() -> None:
    body = "kernel main grid (b: ceildiv(n, 64)) threads 1\n  for t in 0..64\n    if b * 64 + t < n\n      {name}[b * 64 + t] = X[b * 64 + t]\n"
    for header, view in (("size n: i32; in X: f32[n]; inout Y: f32[n] {alias=\"X\"}", ""), ("size n: i32; inout X: f32[n]", "  view global Y: f32[n] at X\n")):
        first, _, rest = body.format(name="Y").partition("\n")
        program = parse_program(text(header, f"{first}\n{view}{rest}"), "program.kir")
        assert "for i in 0..64" in program_text(plain(program))
