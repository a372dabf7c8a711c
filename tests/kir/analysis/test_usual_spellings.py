"""What the normal form makes of usual ways to write: shifts and masks of indices, vectors put together by hand, masks that count from a tile's
start, places of merged axes."""
from __future__ import annotations

import pytest

from kir.analysis import normalize
from kir.analysis.clipping import hangs_over, ranges_of
from kir.analysis.normal.pools import separated
from kir.analysis.normal.regions import raised
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.parser import parse_program
from kir.ir.visit import walk

HEAD = """kir 1
program p
  size B: i32
  size H: i32
  size N: i32
  in X: f32[B, H, N]
  in V: i32[N]
  out Y: f32[B, H, N]
  out W: i32[N]
  fact H >= 1
  fact N >= 8
  fact B <= 1024
  fact H <= 256
  fact N <= 4096
"""
WAYS = {
    "shifts and masks of a thread's number": (
        "kernel k grid (b: B) threads 64\n  for t in 0..64 parallel thread\n    Y[b, t >> 5, t & 31] = X[b, t >> 5, t & 31]\n",
        "kernel k grid (b: B) threads 64\n  for t in 0..64 parallel thread\n    Y[b, t // 32, t % 32] = X[b, t // 32, t % 32]\n"),
    "a whole number compared as a floating-point one": (
        "kernel k grid (b: B) threads 64\n  for t in 0..64 parallel thread\n    Y[b, 0, t] = load(X[b, 0, t] where cast(t, f32) < 256.0 / 32.0 else 0.0)\n",
        "kernel k grid (b: B) threads 64\n  for t in 0..64 parallel thread\n    Y[b, 0, t] = load(X[b, 0, t] where t < 8 else 0.0)\n"),
    "one compared with what is rounded": (
        "kernel k grid (i: N) threads 1\n  W[i] = select(cast(V[i], f32) < 1.0 / 3.0, 1, 0)\n",
        "kernel k grid (i: N) threads 1\n  W[i] = select(cast(V[i], f32) < 1.0 / 3.0, 1, 0)\n"),
    "bits of data stay bits": (
        "kernel k grid (i: N) threads 1\n  W[i] = V[i] >> 5 & 31\n", "kernel k grid (i: N) threads 1\n  W[i] = V[i] >> 5 & 31\n"),
    "a vector from the same operation on each element": (
        "kernel k grid (i: N) threads 1\n  let a = X[0, 0, 0 +: 2]\n  Y[0, 0, 0 +: 2] = vec(pick(a, 0) * 2.0, pick(a, 1) * 2.0)\n",
        "kernel k grid (i: N) threads 1\n  let a = X[0, 0, 0 +: 2]\n  Y[0, 0, 0 +: 2] = a * 2.0\n"),
    "a vector of different operations": (
        "kernel k grid (i: N) threads 1\n  let a = X[0, 0, 0 +: 2]\n  Y[0, 0, 0 +: 2] = vec(pick(a, 1), pick(a, 0))\n",
        "kernel k grid (i: N) threads 1\n  let a = X[0, 0, 0 +: 2]\n  Y[0, 0, 0 +: 2] = vec(pick(a, 1), pick(a, 0))\n"),
    "an array of a thread, set element by element from its own": (
        "kernel k grid (i: N) threads 1\n  register c: f32[2] = X[0, 0, 0 +: 2]\n  c[0] = max(c[0], 0.0)\n  c[1] = max(c[1], 0.0)\n  Y[0, 0, 0 +: 2] = c\n",
        "kernel k grid (i: N) threads 1\n  let a = X[0, 0, 0 +: 2]\n  let c = max(a, 0.0)\n  Y[0, 0, 0 +: 2] = c\n"),
    "an array whose elements depend on one another": (
        "kernel k grid (i: N) threads 1\n  register c: f32[2] = X[0, 0, 0 +: 2]\n  c[0] = c[0] * 2.0\n  c[1] = c[1] * c[0]\n  Y[0, 0, 0 +: 2] = c\n",
        "kernel k grid (i: N) threads 1\n  register c: f32[2] = X[0, 0, 0 +: 2]\n  c[0] = c[0] * 2.0\n  c[1] = c[1] * c[0]\n  Y[0, 0, 0 +: 2] = c\n"),
    "a mask that counts from the start of the tile": (
        "kernel k grid (b: B) threads 32\n  for j in 0..ceildiv(N, 32)\n    let x = load(X[b, 0, j * 32 +: 32] where iota(32) < N - j * 32 else 0.0 clip)\n"
        "    Y[b, 0, j * 32 +: 32] = x * x clip\n",
        "kernel k grid (b: B) threads 32\n  for j in 0..ceildiv(N, 32)\n    let x = load(X[b, 0, j * 32 +: 32] else 0.0 clip)\n"
        "    Y[b, 0, j * 32 +: 32] = x * x clip\n"),
    "a counter over two axes at once": (
        "kernel k grid (bh: B * H) threads 1\n  view global Xf: f32[B * H * N] at X\n  view global Yf: f32[B * H * N] at Y\n"
        "  Yf[bh * N] = Xf[bh * N]\n",
        "kernel k grid (bh: B * H) threads 1\n  Y[bh // H, bh % H, 0] = X[bh // H, bh % H, 0]\n"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_usual_way_to_write_has_the_one_spelling(way: str) -> None:
    written, spelled = (normalize(raised(normalize(parse_program(HEAD + text)))) for text in WAYS[way])
    assert alpha_equal(written, spelled)
    assert alpha_equal(spelled, parse_program(HEAD + WAYS[way][1])), "the one spelling is a normal form itself"


@pytest.mark.parametrize(("index", "hangs"), [
    ("i", False), ("N + i", False), ("N * 2 + i", True), ("i - 1", True), ("j", True), ("i + 1", False), ("i + 2", True)])
def test_a_counter_behind_a_size_lies_inside_where_the_tensor_has_room_for_both(index: str, hangs: bool) -> None:
    program = parse_program("kir 1\nprogram p\n  size N: i32\n  size M: i32\n  in X: f32[N * 2]\n  out Y: f32[N]\n  fact N >= 1\n"
                            f"kernel k grid (i: N, j: M) threads 1\n  Y[i] = load(X[{index}] else 0.0 clip)\n")
    at = next(x.at for x in walk(program.kernels[0]) if isinstance(x, n.Load))
    assert hangs_over(at, ranges_of(program.kernels[0]), program.facts) is hangs


ROW_AND_MORE = """kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[64]
  fact N >= 1
  fact N <= 64
kernel main grid (b: 1) threads 64
  shared s: f32[128]
  for t in 0..64 parallel thread
    for j in 0..2
      s[N + j] = 1.0
    for i in 0..N
      s[i] = X[i]
    barrier()
    register sum: f32 = 0.0
    for j in FROM
      sum = sum + s[N + j]
    Y[t] = sum
"""


def test_shared_memory_is_cut_at_a_size_only_where_a_place_lies_on_one_side_wherever_it_is_named() -> None:
    both, one = (parse_program(ROW_AND_MORE.replace("FROM", places)) for places in ("-1..0", "0..2"))
    assert separated(both) == both, "the same index names the last of the row and the first behind it"
    assert len({s.buffer.name for s in separated(one).kernels[0].body if isinstance(s, n.Alloc)}) == 2
