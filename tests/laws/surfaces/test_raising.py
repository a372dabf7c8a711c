"""The table of `docs/tables/raising.md` is true: each row's passes, undone on CUDA text (or on what the backend writes of a tile program), give
what the row says, and forward gives the code back."""
from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite import Pipeline, apply
from kir.rewrite.driver import forward_site
from kir.rewrite.pipelines.pipeline import run
from tests.programs import bound, from_source

ROOT = Path(__file__).parents[3]
ROWS = re.findall(r"^\| (?!in CUDA)([^|-][^|]*?) \| ([^|]*) \| [^|]* \|$", (ROOT / "docs" / "tables" / "raising.md").read_text(encoding="utf-8"), re.M)


@dataclass(frozen=True)
class Example:
    """CUDA text of a kernel `k` of `threads` threads a CTA and M CTAs over X: f32[M, 1024] and Y: f32[M, 1024], or an expert's file;
    the steps, what their result says, and what it no longer says."""

    text: str
    steps: str
    says: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    threads: int = 128


GEMM, SCAN = "gemm/gemm_sm80.cu gemm_sm80", "scan/scan.cu cuda_scan"
TRANSPOSE, TOPK = "transpose/transpose.cu cuda_transpose", "topk/topk_radix.cu cuda_topk_radix"
OWN = "const int t = threadIdx.x; const float* x = X + blockIdx.x * 1024; float* y = Y + blockIdx.x * 1024;"
SLABS = f"""{OWN} __shared__ float s[4][8][32];
  for (int i = 0; i < 8; ++i) s[t / 32][i][t % 32] = x[i * 128 + t];
  __syncthreads();
  for (int i = 0; i < 8; ++i) y[i * 128 + t] = s[t / 32][7 - i][t % 32];"""
TURNED = f"""{OWN} __shared__ float s[32][32]; const int r = t / 32, c = t % 32;
  for (int i = 0; i < 32; i += 4) s[i + r][c ^ (i + r)] = x[(i + r) * 32 + c];
  __syncthreads();
  for (int i = 0; i < 32; i += 4) y[(i + r) * 32 + c] = s[c][(i + r) ^ c];"""
WORDS = f"""{OWN} __shared__ float s[512];
  *reinterpret_cast<float4*>(&s[t * 4]) = *reinterpret_cast<const float4*>(&x[t * 4]);
  __syncthreads();
  y[t] = s[511 - t];"""
HALVES = f"""{OWN} float4 v = *reinterpret_cast<const float4*>(&x[t * 4]);
  v.x *= 2.f;
  v.y *= v.x;
  *reinterpret_cast<float4*>(&y[t * 4]) = v;"""
TREE = f"""{OWN} __shared__ float s[128];
  s[t] = x[t];
  __syncthreads();
  for (int d = 64; d > 0; d >>= 1) {{
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }}
  y[t] = x[t] / s[0];"""
LADDER = f"""{OWN} float v = x[t];
  for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
  y[t] = x[t] - v;"""
POINTER = f"""{OWN} const float* p = x + t; float v = 0.f;
  for (int i = 0; i < 8; ++i) {{
    v += *p;
    p += 128;
  }}
  y[t] = v;"""
SQUARES = f"""{OWN} float v[8];
  *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(&x[t * 8]);
  *reinterpret_cast<float4*>(v + 4) = *reinterpret_cast<const float4*>(&x[t * 8 + 4]);
  float total = 0.f;
  for (int i = 0; i < 8; ++i) total += v[i] * v[i];
  y[t] = total;"""
DOWN = "for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);"
FIRST = f"{OWN} float v = x[t]; {DOWN} if (t % 32 == 0) y[t / 32] = v;"
WARPS = f"""{OWN} __shared__ float s[4]; float v = x[t]; {DOWN}
  if (t % 32 == 0) s[t / 32] = v;
  __syncthreads();
  v = t < 4 ? s[t % 32] : 0.f;
  if (t < 32) {{
    {DOWN}
  }}
  if (t == 0) y[0] = v;"""
TWICE = f"""{OWN} __shared__ float s[128];
  s[t] = x[t];
  __syncthreads();
  const float a = s[127 - t];
  __syncthreads();
  s[t] = x[t + 128];
  __syncthreads();
  y[t] = a - s[127 - t];"""
LEAVING = f"{OWN} if (t >= 100) return; y[t] = x[t];"
BROUGHT = f"""{OWN} __shared__ float s[128]; float v = 0.f;
  s[t] = x[t];
  __syncthreads();
  for (int k = 0; k < 128; ++k) v += s[k];
  y[t] = v;"""
PIECES = f"""{OWN} float v = 0.f;
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 128; ++j) v += x[i * 128 + j];
  y[t] = v;"""
ELEMENTS = f"{OWN} for (int i = t; i < 1024; i += 128) y[i] = x[i] + 1.f;"
COPIES = f"{OWN} y[t] = x[t]; y[t + 128] = x[t + 128]; y[t + 256] = x[t + 256];"
STREAMED = f"{OWN} y[t] = __ldcg(&x[t]) * 2.f;"
NAMED = f"{OWN} const float v = x[t]; const float w = v * v + 1.f; y[t] = w * w; y[t + 512] = w - v;"
DEALT = """kir 1
program k
  size M: i32
  in X: f32[M, 1024] align 16
  out Y: f32[M, 1024] align 16
kernel k grid (b: M) threads 256
  shared s: f32[1024]
  s = X[b, 0 +: 1024]
  Y[b, 0 +: 1024] = s * 2.0
"""

EXAMPLES = {
    "copy loops of `cp.async` in a tensor-core kernel": Example(
        GEMM, "~lower-mma", ("copy load(A[block_y * 128 +: 128, s * 32 +: 32] else 0.0:f16 clip) -> As[s, 0 +: 128, 0 +: 32] via cp_async",),
        ("parallel thread",)),
    "copy loops of all threads, dealt as lowering deals them": Example(DEALT, "~lower-tiles", ("s = X[b, 0 +: 1024]",), ("parallel thread",)),
    "copy loops of any shape": Example(
        TRANSPOSE, "~pad-shared; ~reuse-operand@transpose/t/tx; ~reuse-operand@transpose/t/ty; ~spread-threads; ~unroll@transpose/t_item/i_tile; "
        "~unroll@transpose/t_item_1/i_1_tile; ~deal-rows@transpose/t_item; ~stage-elements; ~deal-rows",
        ("= X[block_y * 32 + column, block_x * 32 + row]",), ("tile", "parallel thread", "shared")),
    "unrolled loops of `ldmatrix` and `mma.sync` over fragments": Example(
        GEMM, "~lower-mma", ("mma acc[w // 4 * 64 +: 64, w % 4 * 32 +: 32] += a * b via mma_sync", "via ldmatrix"), ("mma_sync(", "ldmatrix(")),
    "`cp.async` groups with counted waits": Example(
        GEMM, "~lower-mma; ~async-copy; ~vectorize-global@gemm_sm80/s/copy(dst=As); ~vectorize-global@gemm_sm80/s/copy(dst=Bs); "
        "~vectorize-global@gemm_sm80/k/copy(dst=As); ~vectorize-global@gemm_sm80/k/copy(dst=Bs); ~swizzle-shared@gemm_sm80/As; "
        "~swizzle-shared@gemm_sm80/Bs; ~unroll@gemm_sm80/s; ~ring-buffer",
        ("shared As: f16[128, 32]",), ("async_wait", "async_commit", "cp_async")),
    "ladders of `__shfl_xor_sync`": Example(LADDER, "~shuffle-exchange", ("v = max(v, slots[t // 32 * 32 + u])",), ("shfl_xor",)),
    "ladders of `__shfl_up_sync`": Example(
        SCAN, "~unroll@scan/t/start_tile/s; ~reuse-operand@scan/t/lane; ~shuffle-scan@scan/t/start_tile/s",
        ("for u in 0..t % 32 + 1",), ("shfl_up(v",)),
    "a scan in two levels, the values of the warps scanned by one warp": Example(
        SCAN, "~reuse-operand@scan/t/lane; ~reuse-operand@scan/t/warp; ~unroll@scan/t/start_tile/s; "
        "~shuffle-scan@scan/t/start_tile/s; ~unroll@scan/t/start_tile/if#1/then/s_2; ~scan-by-warp; ~two-level-scan",
        (" in 0..t + 1",), ("shfl", "sums")),
    "ladders of `__shfl_down_sync`, whose sum the first lane has": Example(FIRST, "~shuffle-exchange", ("v = v + slots[t // 32 * 32 + u]",), ("shfl",)),
    "the sums of the warps folded by the first warp alone": Example(
        WARPS, "~warp-fold; ~shuffle-exchange; ~two-level-reduction", ("slots[t] = v", " in 0..128"), ("shfl", "t < 4", "t < 32")),
    "one shared array for one reduction after another": Example(TWICE, "~reuse-array{buffer=s at=4}", ("shared s_1: f32[128]", "s_1[t] ="),),
    "threads that return early": Example(LEAVING, "~early-exit", ("if t < 100",), ("return",)),
    "tiles of which each thread brings an element": Example(BROUGHT, "~stage-by-threads", ("v = v + X[block_x, k]",), ("shared", "barrier")),
    "a loop over pieces, and one over the values of a piece": Example(PIECES, "~strip-mine", (" in 0..1024",), ("* 128",)),
    "loops over the elements of a row": Example(ELEMENTS, "~spread-threads; ~walk-items", (": 1024", "threads 1\n"), ("for",)),
    "the iterations of a short loop, written out": Example(COPIES, "~write-out@k/t/store(dst=Y)#0", ("for v in 0..3",), ("256",)),
    "trees in shared memory": Example(TREE, "~shared-tree", ("total = total + s[u]",), (">>",)),
    "scans in shared memory by doubling reach": Example(TOPK, "~parallel-scan", ("for u in 0..-t + 256",), ("sums",)),
    "vector loads into registers that a loop then reads": Example(SQUARES, "~vector-load", ("X[block_x, i + t * 8]",), ("+: 8",)),
    "vector stores to global memory": Example(HALVES, "~pack-stores", ("Y[block_x, t * 4 + v_1] = v[v_1]",)),
    "vector accesses to shared memory": Example(WORDS, "~vectorize-shared", ("s[t * 4 + v] = X[block_x, t * 4 + v]",), ("+: 4",)),
    "swizzles written out as exclusive ors of an index": Example(TURNED, "~swizzle-columns", (), ("^",)),
    "swizzles written out in a tensor-core kernel's addresses": Example(
        GEMM, "~lower-mma; ~swizzle-shared@gemm_sm80/Cs", ("shared As: f16[3, 128, 32] layout swizzle(2, 4, 3)", "shared Cs: f16[128, 128]\n"), ("^",)),
    "rows with padding": Example(TRANSPOSE, "~pad-shared", ("shared tile: f32[32, 32]\n",), ("strides",)),
    "column slabs": Example(SLABS, "~pack-columns", ("shared s: f32[8, 128]", "s[i, t] ="), ("// 32", "% 32")),
    "pointers that a loop steps": Example(POINTER, "~strength-reduce", ("v = v + X[block_x, i * 128 + t]",), ("view", "i64")),
    "memory that other threads see": Example(
        TRANSPOSE, "~pad-shared; ~reuse-operand@transpose/t/tx; ~reuse-operand@transpose/t/ty; ~spread-threads; ~share-scratch",
        ("register tile: f32[32, 32]",), ("shared",)),
    "a value that is read or computed once and named": Example(
        NAMED, "~reuse-operand@k/t/w; ~retain-tile", ("X[block_x, t] * X[block_x, t] + 1.0",), ("let",)),
    "policies of caches": Example(STREAMED, "~cache-policy", (), ("cache",)),
}


def program(text: str, threads: int, folder: Path) -> n.Program:
    """What an example's text is read as."""
    if text.startswith("kir"):
        from kir.passes.lowering.lower_tiles import LowerTiles
        tiles = parse_program(text)
        return apply(tiles, LowerTiles(), forward_site(tiles, LowerTiles(), ("k",))).program
    if ".cu " in text:
        return bound(*text.split())
    source = f"__global__ void __launch_bounds__({threads}) k(const float* __restrict__ X, float* __restrict__ Y, int M) {{\n  {text}\n}}\n"
    tensor = '{ shape = ["M", 1024], dtype = "f32" }'
    binding = (f'kernel = "k"\nsizes = ["M"]\nfacts = ["M <= 65536"]\ngrid = ["M"]\nmetas = {{ threads_x = {threads} }}\n'
               f"[tensors]\nX = {tensor}\nY = {tensor}\n")
    return from_source(folder, "k.cu", source, "k", binding)


def test_every_row_has_an_example() -> None:
    assert len(ROWS) >= 20
    assert [name for name, _ in ROWS] == list(EXAMPLES)


@pytest.mark.parametrize(("name", "passes"), ROWS)
def test_what_the_row_says_happens_and_is_undone(name: str, passes: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    p = program(example.text, example.threads, tmp_path)
    trace = run(p, Pipeline.parse(example.steps))
    assert set(re.findall(r"`([^`]+)`", passes)) <= {s.record.step.name for s in trace.steps}
    made = program_text(trace.program)
    assert all(x in made for x in example.says), made
    assert not any(x in made.partition("kernel")[2] for x in example.gone), made
    back = trace.program
    for step in reversed(trace.steps):
        w = step.witness
        back = apply(back, w.params, forward_site(back, w.params, w.path), left=w.residue, assume=step.record.step.assume).program
        assert content_hash(back) == content_hash(step.before)
    assert back == p
