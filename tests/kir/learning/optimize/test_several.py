"""Programs of several kernels: each made fast by itself, put back, and judged as one; and plans that need no kernel like theirs."""
from __future__ import annotations

import itertools
import math
import shutil
import subprocess
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.gate import gate_cpu
from kir.gate.cost import program_cost
from kir.gate.gpu.relative import program_problem
from kir.hardware.target import target
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.build import const
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.types import F32, I32
from kir.learning.optimize.hosts import scratch
from kir.learning.optimize.hosts.cuda import C_TYPES, cpp_expression
from kir.learning.optimize.hosts.cuda import beside as beside_in_cuda
from kir.learning.optimize.hosts.python import beside
from kir.learning.optimize.hosts.read_back import NotSaid
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.lift import lifted
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.optimize.report import data
from kir.learning.optimize.search import KERNELS, Budget, Search
from kir.learning.optimize.several import alone, put_back, taken, together
from kir.learning.optimize.sources import LineageSource, TileSource
from kir.learning.optimize.starts import Start, fused, starts
from kir.learning.tune.rank import promised
from kir.problem import Shape, load_problem
from kir.rewrite import Context, Step
from kir.rewrite.pipelines.pipeline import run
from kir.surface import backend
from kir.surface.reading import launched, load_expert

PROBLEM = load_problem("softmax")
TWO = parse_program("""kir 1
program softmax
  size M: i32
  size N: i32
  in X: f16[M, N]
  out Y: f16[M, N]
  workspace T: f32[M]
kernel tops grid (row: M) threads 1
  register top: f32 = -inf
  @max_loop for j in 0..N
    top = max(top, cast(X[row, j], f32))
  @store_T T[row] = top
kernel main grid (row: M) threads 1
  register total: f32 = 0.0
  @sum_loop for j1 in 0..N
    total = total + exp(cast(X[row, j1], f32) - T[row])
  @store_loop for j2 in 0..N
    Y[row, j2] = cast(exp(cast(X[row, j2], f32) - T[row]) / total, f16)
""", "two.kir")


def test_each_kernel_is_made_fast_and_the_whole_is_judged() -> None:
    setting = Setting(PROBLEM, PROBLEM.shape("long"), target("h200"), "cuda")
    found = Search(TWO, setting, CpuJudge(setting, compiles=False), (LineageSource(only=("rmsnorm_tilelang", "softmax_tilelang")),), given_surface="cuda",
                   budget=Budget(candidates=2, plans=24, seconds=1e4), from_starts=[Start("as it is", TWO)]).run()
    assert found.best is not None and found.best.plan.family == KERNELS and {name for name, _ in found.best.plan.parts} == {"tops", "main"}
    assert all(k.threads != const(1) for k in found.best.program.kernels) and found.speedup > 10
    assert gate_cpu(found.best.program, PROBLEM, "kir", []).accepted
    steps = [row["step"] for row in data(found)["best"]["steps"]]
    assert any("@tops" in s for s in steps) and any("@main" in s for s in steps)


def test_the_budget_of_the_whole_stops_the_search_of_a_kernel() -> None:
    """Also while one kernel is searched by itself, before there is a plan for all."""
    setting = Setting(PROBLEM, PROBLEM.shape("long"), target("h200"), "cuda")
    made = Search(TWO, setting, CpuJudge(setting, compiles=False), (LineageSource(only=("softmax_tilelang",)),), given_surface="cuda",
                  budget=Budget(candidates=2, seconds=1e-6), from_starts=[Start("as it is", TWO)])
    found = made.run()
    assert found.best is None and found.ended == "1e-06 s are over" and found.built == 0


CHAIN = """kir 1
program chain
  size M: i32
  size N: i32
  in X: f16[M, N]
  out Y: f16[M, N]
  workspace T: f32[M, N]
kernel product grid (row: M) threads 1
  for j in 0..N
    register total: f32 = 0.0
    for k in 0..N
      total = total + cast(X[row, k], f32)
    T[row, j] = total
kernel main grid (col: N, row: M) threads 1
  Y[row, col] = cast(max(T[row, col], 0.0), f16)
"""


@pytest.mark.parametrize(("program", "kernels", "passes"), [
    (TWO, 1, ["fuse-kernels"]),
    (parse_program(CHAIN, "chain.kir"), 1, ["fuse-epilogue"]),
    (parse_program(CHAIN.replace("T[row, col]", "T[(row + 1) % M, col]"), "chain.kir"), 2, []),
    (parse_program(CHAIN.replace("max(T[row, col], 0.0)", "T[row, col] * T[row, 0]"), "chain.kir"), 2, []),
])
def test_kernels_that_hand_on_their_own_results_are_fused_and_others_are_not(program: n.Program, kernels: int, passes: list[str]) -> None:
    setting = Setting(PROBLEM, PROBLEM.shape("long"), target("h200"), "cuda")
    found = fused(program, setting)
    assert [len(s.program.kernels) for s in found] == ([kernels] if passes else [])
    assert [step.partition("{")[0].partition("@")[0] for s in found for step in s.steps] == passes
    if program == TWO:
        assert found[0] in starts(TWO, setting, 0.0) and gate_cpu(found[0].program, PROBLEM, "kir", []).accepted


def test_a_kernel_put_back_as_it_was_changes_nothing() -> None:
    for k in TWO.kernels:
        one = alone(TWO, k.name)
        assert [p.role for p in one.params if p.name == "T"] == ["out" if k.name == "tops" else "in"] and not one.workspaces
        assert put_back(TWO, k.name, one) == TWO


def test_what_one_launch_plan_cannot_say_is_refused() -> None:
    one = alone(TWO, "tops")
    chosen = replace(one, plan=(n.Dispatch(((const(True), (n.Launch("tops"),)),)),))
    named = replace(one, kernels=(*one.kernels, replace(one.kernels[0], name="main")))
    for made, words in ((chosen, "by the sizes"), (named, "'main'")):
        with pytest.raises(KirError, match="KIR-U029") as refused:
            put_back(TWO, "tops", made)
        assert words in refused.value.diagnostics[0].message


def test_the_least_sum_comes_first() -> None:
    rows = {"a": [(1.0, "a1"), (5.0, "a2")], "b": [(1.0, "b1"), (2.0, "b2"), (9.0, "b3")], "none": []}
    assert list(together(rows)) == [{"a": "a1", "b": "b1"}, {"a": "a1", "b": "b2"}, {"a": "a2", "b": "b1"}, {"a": "a2", "b": "b2"},
                                    {"a": "a1", "b": "b3"}, {"a": "a2", "b": "b3"}]


COLUMNS = """kir 1
program columns
  size B: i32
  size R: i32
  size C: i32
  in X: f32[B, R, C]
  out Y: f32[B, C]
kernel main grid (c: C, b: B) threads 1
  register total: f32 = 0.0
  for r in 0..R
    total = total + X[b, r, c]
  Y[b, c] = total
"""
LINE = """kir 1
program line
  size B: i32
  size L: i32
  in X: f32[B, 8, L]
  in W: f32[32, 8, 3]
  out Y: f32[B, 32, L - 2]
  fact L >= 3
kernel main grid (i: L - 2, o: 32, b: B) threads 1
  register acc: f32 = 0.0
  for k in 0..8
    for t in 0..3
      acc = acc + X[b, k, i + t] * W[o, k, t]
  Y[b, o, i] = acc
"""
TRANSPOSED = """kir 1
program transposed
  size R: i32
  size C: i32
  in X: f32[R, C]
  out Y: f32[C, R]
kernel main grid (c: C, r: R) threads 1
  Y[c, r] = X[r, c]
"""
BYTES = """kir 1
program bytes
  size M: i32
  size N: i32
  size K: i32
  in X: f16[M, K]
  in W: i8[N, K]
  in S: f16[N]
  out Y: f16[M, N]
kernel main grid (j: N, i: M) threads 1
  register acc: f32 = 0.0
  for k in 0..K
    acc = acc + cast(X[i, k], f32) * cast(W[j, k], f32)
  Y[i, j] = cast(acc * cast(S[j], f32), f16)
"""
LENGTHS = """kir 1
program lengths
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M, N]
kernel main grid (m: M) threads 1
  register total: f32 = 0.0
  for i in 0..N
    total = total + X[m, i] * X[m, i]
  for j in 0..N
    Y[m, j] = X[m, j] * rsqrt(total + 1.0)
"""
FIXED = COLUMNS.replace("0..R", "0..4096").replace("[B, R, C]", "[B, 4096, C]").replace("  size R: i32\n", "")


@pytest.mark.parametrize(("text", "sizes", "families", "times"), [
    (COLUMNS, {"B": 8, "R": 2048, "C": 1024}, {"tiles", "tiles parts", "tiles folded", "tiles both", "tiles split"}, 20.0),
    (LINE, {"B": 4, "L": 2048}, {"tiles", "tiles both"}, 20.0),
    (TRANSPOSED, {"R": 8192, "C": 4096}, {"tiles", "tiles across"}, 2.0),
    (BYTES, {"M": 1024, "N": 1024, "K": 4096}, {"tiles", "tiles parts", "tiles folded", "tiles both", "tiles split", "tiles cores"}, 50.0),
    (LENGTHS, {"M": 16384, "N": 4096}, {"tiles", "tiles parts", "tiles folded", "tiles of loops"}, 8.0),
    (FIXED, {"B": 8, "C": 1024}, {"tiles", "tiles parts", "tiles folded", "tiles both", "tiles split"}, 20.0),
])
def test_a_naive_kernel_that_no_stored_one_is_like_is_tiled(text: str, sizes: dict[str, int], families: set[str], times: float) -> None:
    """Columns that are added up, a convolution, a transposition, a product with whole numbers of a byte, which tensor cores take, rows, and a loop of known
    length, which no plan unrolls again and again. What a surface does not say is not what a family begins with there."""
    program, h200 = parse_program(text, "naive.kir"), target("h200")
    problem = program_problem(program, program)
    setting = Setting(problem, Shape(name="timed", tags=("timed",), sizes=sizes), h200, "triton")
    found = {family: list(itertools.islice(plans, 2)) for family, _, plans in TileSource().streams(program, setting)}
    assert set(found) == families
    given = sum(c.seconds for c in program_cost(program, sizes, h200, None, "triton"))
    best, made, said = math.inf, program, set[str]()
    for plan in (p for plans in found.values() for p in plans):
        done = lifted(promised(program, plan.facts, plan.align, {}), plan, Context(h200)).program
        assert len(program_text(done)) < 8000
        seconds = sum(c.seconds for c in program_cost(done, sizes, h200, None, "triton"))
        if not backend("triton").accepts(done):
            said.add(plan.family)
            best, made = (seconds, done) if seconds < best else (best, made)
    assert said == {family for family, plans in found.items() if plans}
    again = lifted(program, Plan("unrolled", (Step("unroll", {"factor": 8}),), everywhere=True), Context(h200)).program
    assert len(program_text(again)) < 8000
    assert given / best > times
    assert gate_cpu(made, problem, "kir", []).accepted


TREE = """kir 1
program sums
  size C: i32
  size N: i32
  in X: f32[N, C]
  out Y: f32[N, C]
  fact C >= 1
  fact N >= 1
kernel sums grid (row: N) threads 256
  shared %parts: f32[256]
  for t in 0..256 parallel thread
    register sum: f32 = 0.0
    for tile in 0..ceildiv(C - t, 256)
      sum = sum + X[row, tile * 256 + t]
    %parts[t] = sum
    barrier()
    for s in 0..8
      if t < 128 >> s
        %parts[t] = %parts[t] + %parts[(128 >> s) + t]
      barrier()
    let mean = %parts[0] / cast(C, f32)
    for tile_1 in 0..ceildiv(C - t, 256)
      Y[row, tile_1 * 256 + t] = X[row, tile_1 * 256 + t] - mean
"""


def test_a_kernel_that_is_its_own_problem_is_walked_back_to_rows_of_a_thread() -> None:
    """Whether a thread is meant to compute a row nobody says: the walk ends there, and does not look for another order until its seconds are over."""
    program = parse_program(TREE, "sums.kir")
    problem = program_problem(program, program)
    setting = Setting(problem, Shape(name="timed", tags=("timed",), sizes={"C": 4096, "N": 4096}), target("h200"), "cuda")
    found = starts(program, setting, 200.0)
    assert found[0].program == program and "steps back" in found[1].name
    (kernel,) = found[1].program.kernels
    assert kernel.threads == const(1) and "shared" not in program_text(found[1].program)
    assert {family for family, _, _ in TileSource().streams(found[1].program, setting)} >= {"tiles folded"}


GUARDED = """kir 1
program sums
  size C: i32
  size N: i32
  in X: f32[N, C]
  out Y: f32[N]
  fact C >= 1
  fact N >= 1
kernel sums grid (block: ceildiv(N, 16)) threads 1
  for t in 0..16
    register sum: f32 = 0.0
    for c in 0..C
      sum = sum + load(X[block * 16 + t, c] else 0.0 clip)
    if block * 16 + t < N
      Y[block * 16 + t] = sum
"""


def test_what_walking_back_gives_has_no_guards_left_that_its_grid_makes_needless() -> None:
    """A mask that only a tile needs is gone with the tile: no plan could take it up."""
    program = parse_program(GUARDED, "sums.kir")
    setting = Setting(program_problem(program, program), Shape(name="timed", tags=("timed",), sizes={"C": 4096, "N": 4096}), target("h200"), "cuda")
    assert setting.given["dtype"] == "f32", "a kernel that is its own problem has a dtype for the holes of stored pipelines"
    back = starts(program, setting, 200.0)[1].program
    assert "clip" not in program_text(back) and "block_el: N" in program_text(back)
    assert taken(back, Plan("tile", (Step("tile", {"extent": 64}, "sums"),)), setting.context, {}).left == ()


IN_CUDA = """#include <cuda_runtime.h>
__global__ void column_sums(const float* x, float* y, int M, int N) {
  int col = blockIdx.x * 128 + threadIdx.x;
  if (col >= N) return;
  float total = 0.0f;
  for (int row = 0; row < M; row++) total += x[row * N + col];
  y[col] = total;
}
void sums(const float* x, float* y, int M, int N) {
  column_sums<<<(N + 127) / 128, 128>>>(x, y, M, N);
}
"""
IN_TRITON = '''import torch
import triton
import triton.language as tl


@triton.jit
def column_sums(x_ptr, y_ptr, M, N):
    col = tl.program_id(0)
    total = 0.0
    for row in range(M):
        total += tl.load(x_ptr + row * N + col)
    tl.store(y_ptr + col, total)


def sums(x):
    M, N = x.shape
    partial = y = torch.empty(N, device=x.device)
    column_sums[(N,)](x, y, M, N, num_warps=1)
    return partial
'''


def _dealt(path: Path, text: str, back: str) -> tuple[Binding, Program]:
    """A kernel of which the rows are dealt to eight CTAs: two kernels, and what they share."""
    path.write_text(text)
    binding, _ = launched(str(path))
    assert binding is not None
    return binding, run(load_expert(str(path), binding).program, f"{back}; split-k{{parts=8}}@column_sums/row").program


def test_a_launch_of_a_cuda_file_becomes_several_with_memory_that_may_not_be_there(tmp_path: Path) -> None:
    """The kernel as it was runs where there is none. The text of a whole kernel says how much it needs, too."""
    binding, made = _dealt(path := tmp_path / "sums.cu", IN_CUDA, "~early-exit; ~spread-threads; ~coarsen-grid")
    after = beside_in_cuda(path, "column_sums", binding, made).after
    for said in ("#include <mutex>", "column_sums_faster_combine(", "size_t partial_bytes = static_cast<size_t>(8) * static_cast<size_t>(N) * sizeof(float);",
                 "&& column_sums_kir::launch_column_sums_faster(M, N, (float*)x, (float*)y, 0) == cudaSuccess) {", "cudaFreeAsync(partial, stream);"):
        assert said in after, said
    whole = scratch.with_memory(made, emitted := backend("cuda").emit(made), C_TYPES, cpp_expression)
    assert emitted.launch.rstrip() in whole and "cudaMallocFromPoolAsync" in whole
    if shutil.which("nvcc"):
        for name, text in (("edited.cu", after), ("whole.cu", f"{emitted.text}\n{whole}")):
            (tmp_path / name).write_text(text)
            done = subprocess.run(["nvcc", "-arch=sm_90a", "-cubin", "-o", str(tmp_path / "out"), str(tmp_path / name)], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


def test_a_launch_of_a_triton_file_becomes_several_with_memory_of_a_name_of_its_own(tmp_path: Path) -> None:
    binding, made = _dealt(path := tmp_path / "sums.py", IN_TRITON, "~multi-threaded-block")
    after = beside(path, "column_sums", binding, made).after
    assert """
        partial_ = torch.empty((8, N), dtype=torch.float32, device=x.device)
        column_sums_faster[(N, 8)](M, N, x, partial_, num_stages=1, num_warps=1)
        column_sums_faster_combine[(N,)](N, y, partial_, num_stages=1, num_warps=1)
    else:
        column_sums[(N,)](x, y, M, N, num_warps=1)
""" in after


def test_launches_that_sizes_choose_and_memory_that_begins_with_a_value_are_no_patch(tmp_path: Path) -> None:
    binding, made = _dealt(path := tmp_path / "sums.py", IN_TRITON, "~multi-threaded-block")
    chosen = replace(made, plan=(n.Dispatch(((build.compare("ge", build.var("M", I32), build.const(8)), tuple(n.Launch(k.name) for k in made.kernels)),)),))
    begun = replace(made, workspaces=tuple(replace(w, init=build.const(0.0, F32)) for w in made.workspaces))
    for program, why in ((chosen, "chosen by sizes"), (begun, "begins with a value")):
        with pytest.raises(NotSaid, match=why):
            beside(path, "column_sums", binding, program)


PRODUCT = """#include <cuda_fp16.h>
__global__ void gemm(const half* A, const half* B, half* C, int M, int N, int K) {
  int n = blockIdx.x * 16 + threadIdx.x, m = blockIdx.y * 16 + threadIdx.y;
  if (m >= M || n >= N) return;
  float acc = 0.f;
  for (int k = 0; k < K; ++k) acc += __half2float(A[m * K + k]) * __half2float(B[k * N + n]);
  C[m * N + n] = __float2half(acc);
}
void product(const half* A, const half* B, half* C, int M, int N, int K, cudaStream_t s) {
  gemm<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16), 0, s>>>(A, B, C, M, N, K);
}
"""


def test_a_kernel_of_one_architecture_is_launched_where_the_file_is_compiled_for_it(tmp_path: Path) -> None:
    """A product of Hopper's, with its tensor maps, in a file that is compiled for other devices, too: there its kernel has no body."""
    (path := tmp_path / "gemm.cu").write_text(PRODUCT)
    binding, _ = launched(str(path))
    assert binding is not None
    expert = parse_program((Path(str(resources.files("kir.skills"))) / "experts" / "gemm" / "gemm_sm90.kir").read_text(), "gemm_sm90.kir")
    edit = beside_in_cuda(path, "gemm", binding, expert)
    after = edit.after
    for said in ("#include <cuda.h>", "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)", "encoded_map(&C_map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, C, extents,",
                 "const cuuint64_t strides[] = {static_cast<cuuint64_t>(N) * 2};", "&& gemm_kir::is_built()\n",
                 "&& gemm_kir::launch_gemm_faster(M, N, K, (__half*)A, (__half*)B, (__half*)C, s) == cudaSuccess) {"):
        assert said in after, said
    assert "the file is compiled for sm_90a" in edit.passed_over[0]
    if shutil.which("nvcc"):
        (tmp_path / "edited.cu").write_text(after)
        for arch in ("arch=compute_90a,code=sm_90a", "arch=compute_80,code=sm_80"):
            words = ["nvcc", "-gencode", arch, "-cubin", "-o", str(tmp_path / "out"), str(tmp_path / "edited.cu")]
            done = subprocess.run(words, capture_output=True, text=True)
            assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
