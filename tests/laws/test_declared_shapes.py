"""A law: whatever factorization of its memory a binding declares, a kernel that addresses it flat computes the same, and checking finds the same.

`python -m benchmarks.shapings` runs thousands; this is a sample of every family, and cases that went wrong.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.shapings.compare import difference, flat_accesses, memories, ran, read, written
from benchmarks.shapings.draw import FAMILIES, drawn, of_kernel, of_recorded, packages
from benchmarks.shapings.kernel import Kernel, Memory, product
from kir.ir import nodes as n
from kir.ir.printer import program_text

SEED = 7


@pytest.mark.parametrize("family", FAMILIES)
def test_shapings_of_one_memory_read_to_programs_that_compute_the_same(family: str, tmp_path: Path) -> None:
    for outcome in of_kernel(drawn(family, SEED, 0), Random(f"{SEED} {family}"), 2, tmp_path):
        assert not outcome.said, "\n".join((outcome.line(), outcome.source, outcome.binding))


@pytest.mark.zoo
@pytest.mark.parametrize("kernel", ["_rms_norm_forward_kernel", "avg_pool2d_forward_kernel", "layer_norm_backward_kernel",
                                    "chunk_gla_fwd_A_kernel_intra_sub_intra"])
def test_kernels_of_packages_compute_the_same_under_any_shaping(kernel: str) -> None:
    found = next(r for r in packages() if r.source.endswith(f"::{kernel}"))
    for outcome in of_recorded(found, Random(kernel), 3):
        assert not outcome.said, outcome.line()


HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k("
SIZES = ({"B": 2, "GR": 2, "PG": 3, "HW": 5}, {"B": 1, "GR": 3, "PG": 2, "HW": 150}, {"B": 3, "GR": 1, "PG": 1, "HW": 1})
GROUPS: dict[str, Memory] = {"X": Memory(("B", "PG", "GR", "HW")), "Y": Memory(("B", "PG", "GR", "HW"), written=True)}
BODY = """X, Y, G, BLOCK: tl.constexpr):
    base = tl.program_id(0) * G
    s = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, G, BLOCK):
        at = start + tl.arange(0, BLOCK)
        s += tl.load(X + base + at, mask=at < G, other=0.0)
    mean = tl.sum(s, axis=0) / G
    for start in range(0, G, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(X + base + at, mask=at < G, other=0.0)
        tl.store(Y + base + at, x - mean, mask=at < G)
"""
TRITON = Kernel("triton", "group norm", HEAD + BODY, "k", GROUPS, ("B * GR",), SIZES, tuple(f"{s} {bound}" for s in SIZES[0] for bound in (">= 1", "<= 1024")),
                {"BLOCK": 256}, {"G": "PG * HW"})
CUDA = Kernel("cuda", "group norm", """__global__ void k(const float* X, float* Y, int G) {
  const int pid = blockIdx.x;
  float s = 0.f;
  for (int i = 0; i < G; ++i) s += X[pid * G + i];
  for (int i = threadIdx.x; i < G; i += blockDim.x) Y[pid * G + i] = X[pid * G + i] - s / G;
}
""", "k", GROUPS, ("B * GR",), SIZES, TRITON.facts, {"threads_x": 32}, {"G": "PG * HW"})
TILELANG = Kernel("tilelang", "group norm", """import tilelang
import tilelang.language as T


def make(B, PG, GR, HW):
    @T.prim_func
    def k(X: T.Tensor((B * PG * GR * HW,), "float32"), Y: T.Tensor((B * PG * GR * HW,), "float32")):
        with T.Kernel(B * GR, threads=32) as bx:
            for s in T.serial(T.ceildiv(PG * HW, 256)):
                for j in T.Parallel(256):
                    if s * 256 + j < PG * HW:
                        Y[bx * (PG * HW) + s * 256 + j] = X[bx * (PG * HW) + s * 256 + j] * 2.0
    return k
""", "k", GROUPS, (), SIZES, TRITON.facts)


@pytest.mark.parametrize("kernel", [TRITON, CUDA, TILELANG], ids=lambda k: k.surface)
@pytest.mark.parametrize("shape", [("B", "PG * GR", "HW"), ("B * PG", "GR", "HW"), ("B", "PG", "GR * HW"), ("HW", "B * PG * GR"), ("B", "GR", "PG", "HW")],
                         ids=" x ".join)
def test_a_group_that_spans_rows_of_its_tensor_stays_a_place_in_memory(kernel: Kernel, shape: Sequence[str], tmp_path: Path) -> None:
    path = written(kernel, tmp_path)
    plain, other = read(kernel, path, kernel.flat()), read(kernel, path, kernel.binding(dict.fromkeys(kernel.memories, shape)))
    assert not difference(plain, other, kernel, checked=3)
    counted = shape == ("B", "GR", "PG", "HW") and kernel.surface != "tilelang"  # both counters of its rows are there to be taken apart
    assert flat_accesses(other) or counted, program_text(other)
    if kernel.surface != "tilelang":
        for sizes in SIZES:
            x = memories(kernel, sizes, 0)
            groups = x["X"].reshape(sizes["B"] * sizes["GR"], -1)
            wanted = groups - groups.mean(axis=1, keepdims=True)
            assert np.allclose(ran(other, x, sizes).outputs["Y"].reshape(wanted.shape), wanted, atol=1e-3)


@pytest.mark.parametrize("kernel", [TRITON, CUDA, TILELANG], ids=lambda k: k.surface)
def test_declared_as_groups_it_is_raised(kernel: Kernel, tmp_path: Path) -> None:
    other = read(kernel, written(kernel, tmp_path), kernel.binding(dict.fromkeys(kernel.memories, ("B * GR", "PG * HW"))))
    assert not flat_accesses(other) and "X[" in program_text(other)


ROWS = Kernel("triton", "rows", HEAD + """X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + row * N + at, tl.load(X + row * N + at{mask}){mask})
""", "k", {"X": Memory(("M", "N")), "Y": Memory(("M", "N"), written=True)}, ("M", "N // BLOCK"), ({"M": 3, "N": 16}, {"M": 1, "N": 32}),
    ("M >= 1", "M <= 100", "N >= 1", "N <= 100"), {"BLOCK": 16}, {"N": "N"})


@pytest.mark.parametrize(("mask", "grid", "facts", "stays"), [
    ("", "N // BLOCK", ("N % 16 == 0",), True),                                      # chunks fill each row
    ("", "N // BLOCK", (), True),                                                    # whole chunks alone
    ("", "ceildiv(N, BLOCK)", (), False),                                            # the last chunk may reach into the next row
    (", mask=at < N", "ceildiv(N, BLOCK)", (), True),
    (", mask=row * N + at < {total}", "ceildiv(N, BLOCK)", (), False),               # a mask on the place in memory bounds no column
    (", mask=(at < N) & (row * N + at < {total})", "ceildiv(N, BLOCK)", (), True),
    (", mask=at < N + 1", "ceildiv(N, BLOCK)", (), False),
    (", mask=at - 1 < N - 1", "ceildiv(N, BLOCK)", (), True),
])
def test_a_row_and_a_column_are_proved(mask: str, grid: str, facts: tuple[str, ...], stays: bool, tmp_path: Path) -> None:
    total = "tl.num_programs(0) * N"
    kernel = Kernel("triton", "rows", ROWS.source.replace("{mask}", mask.replace("{total}", total)), "k", ROWS.memories, ("M", grid), ROWS.sizes,
                    (*ROWS.facts, *facts), ROWS.metas, ROWS.scalars)
    path = written(kernel, tmp_path)
    shaped = read(kernel, path, kernel.binding(dict.fromkeys(kernel.memories, ("M", "N"))))
    assert (not flat_accesses(shaped)) is stays, program_text(shaped)
    assert not difference(read(kernel, path, kernel.flat()), shaped, kernel, checked=2)


@pytest.mark.parametrize(("shapes", "seen"), [
    ({"X": ("M", 16), "Y": (16, "M")}, {"Y_view"}),
    ({"X": ("M * 16",), "Y": ("2 * M", 8)}, {"X_view", "Y_view"}),
    ({"X": ("M", 16), "Y": ("M", 16)}, set()),
])
def test_rows_of_the_source_are_rows_however_their_memory_is_declared(shapes: dict[str, tuple[str, ...]], seen: set[str], tmp_path: Path) -> None:
    kernel = Kernel("tilelang", "rows", """import tilelang
import tilelang.language as T


def make(M):
    @T.prim_func
    def k(X: T.Tensor((M, 16), "float32"), Y: T.Tensor((M, 16), "float32")):
        with T.Kernel(M, threads=32) as bx:
            for j in T.Parallel(16):
                Y[bx, j] = X[bx, 15 - j] * 2.0
    return k
""", "k", {"X": Memory(("M", 16)), "Y": Memory(("M", 16), written=True)}, (), ({"M": 5}, {"M": 1}), ("M >= 1", "M <= 100"))
    path = written(kernel, tmp_path)
    other = read(kernel, path, kernel.binding(shapes))
    assert {s.buffer.name for s in other.kernels[0].body if isinstance(s, n.View)} == seen
    for sizes in kernel.sizes:
        x = memories(kernel, sizes, 0)
        found = ran(other, x, sizes, checked=True)
        assert not found.errors and (found.outputs["Y"].reshape(-1, 16) == x["X"].reshape(-1, 16)[:, ::-1] * 2).all()
    assert product(("M", 16)) == "M * 16"


@pytest.mark.parametrize("shape", [(16, 16), (4, 8, 8), (64, 4)], ids=str)
def test_a_shared_array_is_counted_where_a_thread_leaves_its_row(shape: tuple[int, ...], tmp_path: Path) -> None:
    kernel = Kernel("cuda", "shared", """__global__ void k(const float* X, float* Y) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  for (int i = 0; i < 8; ++i) s[i * 32 + t] = X[blockIdx.x * 256 + i * 32 + t];
  __syncthreads();
  for (int i = 0; i < 8; ++i) Y[blockIdx.x * 256 + i * 32 + t] = s[255 - (i * 32 + t)];
}
""", "k", {"X": Memory(("M", 256)), "Y": Memory(("M", 256), written=True)}, ("M",), ({"M": 2},), ("M >= 1", "M <= 100"), {"threads_x": 32}, {}, {"s": 256})
    path = written(kernel, tmp_path)
    assert not difference(read(kernel, path, kernel.flat()), read(kernel, path, kernel.binding({"X": ("M", 256), "Y": ("M", 256), "s": shape})), kernel)


@pytest.mark.parametrize(("how", "count"), [("threadIdx.x; i < G; i += blockDim.x", lambda g, t: len(range(t, g, 32))),
                                            ("5u; i < G; ++i", lambda g, t: max(g - 5, 0)),
                                            ("G; i > threadIdx.x; --i", lambda g, t: max(g - t, 0)),
                                            ("G; i >= threadIdx.x + 1; i -= 2", lambda g, t: len(range(g, t, -2)))])
@pytest.mark.parametrize("facts", [("G >= 0", "G <= 512"), ()])
def test_an_unsigned_loop_that_starts_beyond_its_end_never_runs(how: str, count: Callable[[int, int], int], facts: tuple[str, ...], tmp_path: Path) -> None:
    """The length of the range would wrap to four billion; a size below the thread's number shows it."""
    source = f"__global__ void k(const int* X, int* Y, int G) {{\n  int s = 0;\n  for (unsigned i = {how}) s += X[0];\n  Y[threadIdx.x] = s;\n}}\n"
    memory = {"X": Memory((1,), "i32"), "Y": Memory((32,), "i32", written=True)}
    kernel = Kernel("cuda", "late start", source, "k", memory, ("1",), ({"G": 0}, {"G": 3}, {"G": 20}, {"G": 77}), facts, {"threads_x": 32}, {"G": "G"})
    program = read(kernel, written(kernel, tmp_path), replace(kernel.flat(), sizes=["G"]))
    for sizes in kernel.sizes:
        arrays = {"X": np.ones(1, np.int32), "Y": np.zeros(32, np.int32)}
        assert ran(program, arrays, sizes).outputs["Y"].tolist() == [count(sizes["G"], t) for t in range(32)], program_text(program)
