"""Kernels as people write them: what is read of them, what is tried of them, and what their file says then."""
from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.random import default_rng

from kir.base.diagnostic import KirError
from kir.gate.cost import program_cost
from kir.gate.gpu.relative import program_problem
from kir.gate.inputs.places import Places, places
from kir.gate.inputs.sets import size_sets, stretched
from kir.hardware.target import target
from kir.interp import run
from kir.ir.build import const
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text, program_text
from kir.ir.types import I32
from kir.learning.optimize.inputs import Subject, shape_for, subject, varied
from kir.learning.optimize.judge import as_called, modelled
from kir.learning.optimize.lift import lifted
from kir.learning.optimize.outputs import written
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.schedules.counters import CountersSource
from kir.learning.optimize.schedules.items import ItemsSource
from kir.learning.optimize.schedules.warps import WarpsSource
from kir.learning.optimize.sources import TileSource

PRODUCT = '''import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, mask_ptr, off_ptr, K, N, D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    head = tl.program_id(1)
    d = tl.arange(0, D)
    c = tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK, D), dtype=tl.float32)
    for k in range(0, K, BLOCK_N):
        a = tl.load(a_ptr + head * N * K + row[:, None] * K + (k + c)[None, :], mask=(row[:, None] < N) & ((k + c)[None, :] < K), other=0.0)
        b = tl.load(b_ptr + (k + c)[:, None] * D + d[None, :], mask=(k + c)[:, None] < K, other=0.0)
        acc += tl.dot(a, b)
    keep = tl.load(mask_ptr + row, mask=row < N, other=0) + tl.load(off_ptr + head)
    tl.store(c_ptr + head * N * D + row[:, None] * D + d[None, :], tl.where((keep != 0)[:, None], acc, 0.0), mask=row[:, None] < N)


def run(a, b, mask, off):
    H, N, K = a.shape
    D = b.shape[1]
    c = torch.empty((H, N, D), device=a.device, dtype=torch.float32)
    product[(triton.cdiv(N, 32), H)](a, b, c, mask, off, K, N, D=64, BLOCK=32, BLOCK_N=16)
    return c


if __name__ == "__main__":
    a = torch.randn(8, 4096, 4096, device="cuda", dtype=torch.float16)
    mask = (torch.rand(4096, device="cuda") > 0.5).to(torch.int8)
    run(a, torch.randn(4096, 64, device="cuda", dtype=torch.float16), mask, torch.arange(0, 256, 32, device="cuda", dtype=torch.int32))
'''
COUNTS = '''
__global__ void counts(const unsigned int* data, unsigned int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = blockDim.x * gridDim.x;
    while (i < n) { atomicAdd(&bins[data[i] % 256], 1u); i += stride; }
}
int main() {
    int n = 1 << 25; unsigned int *data, *bins;
    cudaMalloc(&data, n * sizeof(unsigned int)); cudaMalloc(&bins, 256 * sizeof(unsigned int));
    counts<<<1024, 256>>>(data, bins, n);
}
'''
WORDS = '''
__global__ void words(const float* x, const unsigned* q, const float* s, const int* at, float* y, int N, int K) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    float acc = x[(size_t)n * K + at[n]];
    for (int w = 0; w < K / 8; w++)
        for (int j = 0; j < 8; j++)
            acc += x[(size_t)n * K + w * 8 + j] * (float)((q[(size_t)n * (K / 8) + w] >> (4 * j)) & 15) * s[n * (K / 128) + w * 8 / 128];
    y[n] = acc;
}
int main() {
    int N = 1024, K = 4096; float *x, *s, *y; unsigned* q; int* at;
    cudaMalloc(&x, N * K * 4); cudaMalloc(&q, N * (K / 8) * 4); cudaMalloc(&s, N * (K / 128) * 4); cudaMalloc(&at, N * 4); cudaMalloc(&y, N * 4);
    words<<<(N + 63) / 64, 64>>>(x, q, s, at, y, N, K);
}
'''


def _read(tmp_path: Path, name: str, text: str) -> tuple[Subject, Setting]:
    file = tmp_path / name
    file.write_text(text)
    one = subject(str(file))
    at = shape_for(one, "")
    return one, Setting(one.problem, at, target("h200"), one.surface)


def test_a_kernels_own_parameters_are_varied_and_its_launch_follows(tmp_path: Path) -> None:
    one, setting = _read(tmp_path, "product.py", PRODUCT)
    text = program_text(one.program)
    assert "in b_ptr: f16[K, 64]" in text, "a square call does not say which size the first axis of another tensor is"
    assert "in mask_ptr: i8[N]" in text and "in off_ptr: i32[H]" in text, "a comparison is a tensor of truths, and a range has steps"
    found = [*islice(varied(one, setting), 16)]
    assert {x for _, plan in found for x in plan.point} == {"BLOCK", "BLOCK_N", "num_warps", "num_stages"}, "D is no tile, but what its tensors are"

    def seconds(at: int) -> float:
        return sum(c.seconds for c in modelled(found[at][0].program, setting, "triton"))
    best = min(range(len(found)), key=seconds)
    start, plan = found[best]
    assert seconds(best) < 0.7 * sum(c.seconds for c in modelled(one.program, setting, "triton"))
    at = int(plan.point.get("BLOCK", 32))
    assert f"ceildiv(N, {at})" in program_text(start.program)
    made = written(one, [(setting.shape, cast(Any, SimpleNamespace(program=start.program, surface="triton", steps=(), plan=plan, start=start)))],
                   tmp_path / "out.patch")
    assert made.form == "patch" and "product_faster[(triton.cdiv(N, " in made.text


def test_counters_of_a_grid_stride_loop_become_each_ctas_own(tmp_path: Path) -> None:
    one, setting = _read(tmp_path, "counts.cu", COUNTS)
    assert "while" not in program_text(one.program), "a step by the launch leads up"
    before, = modelled(one.program, setting, "cuda")
    assert before.bound_by == "atomics"
    plan, = CountersSource().plans(one.program, setting)
    found = lifted(one.program, plan, setting.context)
    after, = modelled(found.program, setting, "cuda")
    assert not found.left and "shared bins_own: u32[256]" in program_text(found.program) and after.seconds < 0.1 * before.seconds
    naive = parse_program("kir 1\nprogram p\n  size N: i32\n  in X: i32[N]\n  inout H: i32[256]\n  fact N >= 1\nkernel p grid (i: N) threads 1\n"
                          "  atomic_add(&H[X[i] & 255], 1)\n")
    at = Setting(setting.problem, SimpleNamespace(sizes={"N": 1 << 24}), setting.target, "cuda")  # type: ignore[arg-type]
    first, *more = CountersSource().plans(naive, at)
    assert more and "shared H_own: i32[256]" in program_text(lifted(naive, first, setting.context).program)
    assert not [*CountersSource().plans(parse_program(program_text(naive).replace("atomic_add(&H[X[i] & 255], 1)", "H[X[i] & 255] = 1")), at)]


HEAD = "kir 1\nprogram p\n  size N: i32\n  size M: i32\n  fact N >= 1\n  fact M >= 1\n"
SPARSE = f"""{HEAD}  in at: i32[N + 1]
  in col: i32[N * 64]
  in val: f32[N * 64]
  in x: f32[M]
  out y: f32[N]
kernel p grid (r: N) threads 1
  register sum: f32 = 0.0
  for j in 0..at[r + 1] - at[r]
    sum = sum + val[j + at[r]] * x[col[j + at[r]]]
  y[r] = sum
"""
FILTER = f"""{HEAD}  in x: f32[M, N]
  in w: f32[M * 4]
  out y: f32[M * N]
kernel p grid (i: M * N) threads 1
  register acc: f32 = 0.0
  for k in 0..4
    if i % N + k - 3 >= 0
      acc = acc + w[i // N * 4 + k] * x[i // N, i % N + k - 3]
  y[i] = acc
"""
GROUPED = f"""{HEAD}  in x: f32[N, M, 256]
  out y: f32[N, M, 256]
kernel p grid (g: N) threads 1
  register sum: f32 = 0.0
  for c in 0..8
    for i in 0..256
      sum = sum + x[g, c, i]
  for d in 0..8
    for j in 0..256
      y[g, d, j] = x[g, d, j] - sum
"""
FLAT = f"""{HEAD}  in x: f32[M * N]
  out y: f32[N, M]
kernel p grid (i: M * N) threads 1
  y[i % N, i // N] = x[i]
"""


@pytest.mark.parametrize("text,source,held,times", [
    pytest.param(GROUPED, WarpsSource(), "d, j * 32 + t % 32]", 5.0, id="rows of a nest, of which the inner loop is long enough for a warp"),
    pytest.param(SPARSE, WarpsSource(), "shfl_xor", 5.0, id="a row of a sparse matrix for each warp, of which the cost model takes each to be alike long"),
    pytest.param(FILTER, ItemsSource(), "i_0_tile * 256 + k + t - 3 >= 0", 50.0, id="threads along a row that was divided out of a number, with branches")])
def test_threads_that_say_what_each_of_them_does(text: str, source: Any, held: str, times: float) -> None:
    program, sizes = parse_program(text), {"N": 4096, "M": 2048}
    at = Setting(program_problem(program, program), SimpleNamespace(sizes=sizes), target("h200"), "cuda")  # type: ignore[arg-type]
    first = next(iter(source.plans(program, at)))
    found = lifted(program, first, at.context)
    before, after = (sum(c.seconds for c in modelled(p, at, "cuda")) for p in (program, found.program))
    assert not found.left and held in program_text(found.program) and times * after < before
    assert not [*source.plans(program, replace(at, surface="triton"))], "a kernel of tiles says nothing of threads"
    assert not [*source.plans(parse_program(f"{HEAD}  out y: f32[N]\nkernel p grid (i: 1) threads 32\n  for t in 0..32 parallel thread\n    y[t] = 0.0\n"), at)]


def test_a_flat_tensor_that_is_turned_goes_through_shared_memory_by_tiles() -> None:
    program = parse_program(FLAT)
    at = Setting(program_problem(program, program), SimpleNamespace(sizes={"N": 4096, "M": 2048}), target("h200"), "cuda")  # type: ignore[arg-type]
    plan = next(next(plans) for family, _, plans in TileSource().streams(program, at) if family == "tiles spread across")
    found = lifted(program, plan, at.context)
    before, after = (sum(c.seconds for c in modelled(p, at, "cuda")) for p in (program, found.program))
    assert not found.left and "view global x_rows: f32[M, N] at x" in program_text(found.program) and 20 * after < before


def test_squared_differences_are_no_products_of_panels_and_get_tiles_without() -> None:
    """Distances of all pairs: what is added up is no product of what one side reads with what the other reads."""
    program = parse_program(f"{HEAD}  in A: f32[N, M]\n  in B: f32[N, M]\n  out Y: f32[N, N]\nkernel p grid (j: N, i: N) threads 1\n  register acc: f32 = 0.0\n"
                            "  for k in 0..M\n    acc = acc + (A[i, k] - B[j, k]) * (A[i, k] - B[j, k])\n  Y[i, j] = acc\n")
    at = Setting(program_problem(program, program), SimpleNamespace(sizes={"N": 4096, "M": 128}), target("h200"), "cuda")  # type: ignore[arg-type]
    streams = {family: plans for family, _, plans in TileSource().streams(program, at)}
    plan = next(streams["tiles both"])
    assert "tiles cores" not in streams and plan.point["depth"] == 0
    found = lifted(program, plan, at.context)
    assert not found.left and sum(c.seconds for c in modelled(found.program, at, "cuda")) < 1e-3


@pytest.mark.parametrize("columns", [64, 512])
def test_short_rows_that_nothing_is_folded_of_stay_with_the_threads_that_they_have(columns: int) -> None:
    program = parse_program(f"{HEAD}  inout y: f32[N, {2 * columns}]\nkernel p grid (r: N) threads 1\n  for j in 0..{columns}\n"
                            f"    let x = y[r, j]\n    y[r, j] = x - y[r, {columns} + j]\n    y[r, {columns} + j] = x\n")
    at = Setting(program_problem(program, program), SimpleNamespace(sizes={"N": 4096, "M": 1}), target("h200"), "cuda")  # type: ignore[arg-type]
    assert bool([*WarpsSource().plans(program, at)]) == (columns == 512)


def test_rows_in_parts_and_places_in_rows_are_as_the_call_has_them(tmp_path: Path) -> None:
    one, _ = _read(tmp_path, "words.cu", WORDS)
    assert "K % 128 == 0" in [expr_text(f) for f in one.program.facts] and any(x.startswith("K % 128 == 0") for x in one.assumed)
    assert [expr_text(e) for e in places(one.program)["at"].below][-1:] == ["cast(K, i64)"], "a row of what lies flat"
    one_place = Places((const(1),), skips=False, counts=False).drawn((3,), {}, I32, default_rng(0), 0)
    assert one_place is not None and not one_place.any(), "of rows of one element the first alone can be meant"


def test_sizes_of_which_facts_say_the_product_are_found_and_one_may_be_large() -> None:
    text = "kir 1\nprogram p\n  size N: i32\n  size H: i32\n  size W: i32\n  in X: f32[N, H, W]\n  out Y: f32[N]\n  fact H * W == {}\n  fact N % 8 == 0\n" \
           "kernel p grid (i: N) threads 1\n  Y[i] = X[i, 0, 0]\n"
    found = size_sets(parse_program(text.format(4096)), (3, 20))
    assert [(x["H"], x["W"]) for x in found] == [(64, 64), (32, 128)], "another way to come to it each time"
    assert {x["H"] * x["W"] for x in size_sets(parse_program(text.format(7)))} == {7}
    large = [*stretched(parse_program(text.replace("  fact H * W == {}\n", "")), (300,))]
    assert large == [{"N": 304, "H": 16, "W": 16}, {"N": 16, "H": 300, "W": 16}, {"N": 16, "H": 16, "W": 300}]


@pytest.mark.triton
def test_a_text_that_triton_refuses_at_the_sizes_of_the_call_is_refused() -> None:
    program = parse_program("kir 1\nprogram p\n  size M: i32\n  size N: i32\n  in X: f32[M, N] align 16\n  out Y: f32[M, N] align 16\n  fact M >= 1\n"
                            "  fact N >= 1\nkernel p grid (i: ceildiv(M, 8)) threads 128\n  fragment carry: f32[8] = 0.0\n  for j in 0..ceildiv(N, 64)\n"
                            "    let x = load(X[i * 8 +: 8, j * 64 +: 64] else 0.0 clip)\n"
                            "    Y[i * 8 +: 8, j * 64 +: 64] = scan(x, axis=1, op=sum) + expand(carry, axis=1) clip\n"
                            "    carry = carry + reduce(x, axis=1, op=sum)\n")
    whole, odd = (Setting(cast(Any, None), cast(Any, SimpleNamespace(name=name, sizes={"M": m, "N": n})), target("h200"), "triton")
                  for name, m, n in (("whole", 8192, 4096), ("odd", 8191, 4095)))
    assert as_called(program, whole, "triton") == "called at whole: Triton's compiler refuses this: PassManager::run failed"
    assert as_called(program, odd, "triton") == ""


TWICE = """kir 1
program p
  size R: i32
  size N: i32
  in X: f32[R, N]
  out Y: f32[R]
  fact R % 8 == 0
  fact N % 32 == 0
kernel k grid (b: R // 8) threads 256
  for t in 0..256 parallel thread
    register m: f32 = 0.0
    register s: f32 = 0.0
    for j in 0..N // 32
      m = max(m, X[b * 8 + t // 32, j * 32 + t % 32])
    for j_1 in 0..N // 32
      s = s + exp(X[b * 8 + t // 32, j_1 * 32 + t % 32] - m)
    if t % 32 == 0
      Y[b * 8 + t // 32] = s
"""
TURNED = """kir 1
program p
  size M: i32
  in A: f32[M, M] align 16
  out B: f32[M, M] align 16
kernel k grid (x: ceildiv(M, 32), y: ceildiv(M, 32)) threads 128
  B[x * 32 +: 32, y * 32 +: 32] = trans(load(A[y * 32 +: 32, x * 32 +: 32] else 0.0 clip), 1, 0) clip
"""


def test_rows_that_no_cache_holds_are_moved_again_and_one_loop_cannot_go_along_both_sides() -> None:
    """On an H200: a softmax by a warp a row of 4096 took 170 us where each pass finds nothing left (moved once, 78 by the model before), and TileLang's
    transposition of 8192 x 8192 element by element 981 us (131)."""
    long, short = (program_cost(parse_program(TWICE), {"R": (1 << 25) // n, "N": n}, target("h200"))[0] for n in (4096, 512))
    assert long.work is not None and long.work.dram > 1.5 * long.compulsory
    assert short.work is not None and short.work.dram < 1.01 * short.compulsory
    triton, tilelang = (program_cost(parse_program(TURNED), {"M": 8192}, target("h200"), None, s)[0].seconds for s in ("triton", "tilelang"))
    assert tilelang > 3 * triton


TWO = """
__global__ void sums(const float* a, float* s, int n) {
    float total = 0.f;
    for (int i = 0; i < n; i++) total += a[blockIdx.x * n + i];
    s[blockIdx.x] = total;
}
__global__ void shifted(const float* a, const float* by, float* b, int count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) b[i] = a[i] - by[i / n];
}
void centered(const float* x, float* means, float* y, int rows, int n) {
    sums<<<rows, 1>>>(x, means, n);
    shifted<<<(rows * n + 255) / 256, 256>>>(x, GIVEN, y, rows * n, n);
}
"""


def test_kernels_that_a_function_launches_in_a_row_are_one_program(tmp_path: Path) -> None:
    """By the names of the function; what the first leaves the second reads, and a tensor that has another shape there has another name for it."""
    file = tmp_path / "two.cu"
    file.write_text(TWO.replace("GIVEN", "means"))
    made = subject(f"{file}::centered").program
    assert {p.name: p.role for p in made.params} == {"rows": "size", "n": "size", "x": "in", "means": "out", "y": "out"}
    assert [k.name for k in made.kernels] == ["sums", "shifted"] and "view global x_flat: f32[n * rows] at x" in program_text(made)
    x = np.arange(12, dtype=np.float32).reshape(3, 4) ** 2
    out = run(made, {"x": x}, {"rows": 3, "n": 4}).outputs
    assert np.array_equal(out["means"], x.sum(1)) and np.array_equal(out["y"].reshape(3, 4), x - x.sum(1, keepdims=True))
    file.write_text(TWO.replace("GIVEN", "means + 1"))
    with pytest.raises(KirError) as refused:
        subject(f"{file}::centered")
    assert refused.value.diagnostics[0].id == "KIR-U039" and "'means + 1' is no name" in refused.value.diagnostics[0].message
    file.write_text(TWO.replace("GIVEN", "means").replace("shifted<<<(rows", "sums<<<(rows"))
    with pytest.raises(KirError) as other:
        subject(f"{file}::centered")
    assert other.value.diagnostics[0].id == "KIR-S018", "the same kernel twice is no row of kernels"
