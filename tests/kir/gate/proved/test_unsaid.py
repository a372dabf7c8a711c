"""A kernel that lacks a mask is not taken for one that is launched at whole tiles only: what nothing says is refused by the gate, and named by the check."""

from __future__ import annotations

from pathlib import Path

import pytest

import kir
from kir.gate.proved import proved
from kir.ir.parser import parse_program

SUMS = """
#include <cuda_fp16.h>
__global__ void sums(const half* __restrict__ x, half* __restrict__ y, int M, int N) {{
  int row = blockIdx.x, t = threadIdx.x; float v = 0.f;
  for (int j0 = 0; j0 < N; j0 += 32) v += {masked}__half2float(x[(long)row * N + j0 + t]);
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
  for (int j = t; j < N; j += 32) y[(long)row * N + j] = __float2half(v);
}}
void run(const half* x, half* y, int M, int N) {{ {test}sums<<<M, 32>>>(x, y, M, N); }}
"""
MASK = "j0 + t >= N ? 0.f : "


def written(folder: Path, masked: str = "", test: str = "") -> kir.Kernel:
    """The kernel as a file with its launch, read."""
    file = folder / "sums.cu"
    file.write_text(SUMS.format(masked=masked, test=test))
    return kir.read(str(file))


def test_what_nothing_says_is_named_by_the_check_and_refused_against_a_program_for_all_sizes(tmp_path: Path) -> None:
    lacking, whole = written(tmp_path), written(tmp_path, MASK)
    assert lacking.unsaid == {"N % 32 == 0"} and not whole.unsaid
    found = kir.prove(lacking, 0)
    assert found.unsaid == ("N % 32 == 0",) and found.to_json()["unsaid"] == ["N % 32 == 0"] and not kir.prove(whole, 0).unsaid
    with pytest.raises(kir.KirError, match="only where N % 32 == 0, which nothing says"):
        kir.judge(lacking, against=whole, targets=())


def test_what_host_code_or_a_binding_says_is_no_assumption(tmp_path: Path) -> None:
    said = written(tmp_path, test="if (N % 32 != 0) return; ")
    assert not said.unsaid and "fact N % 32 == 0" in said.text
    lacking = written(tmp_path)
    held = tmp_path / "sums.toml"
    held.write_text(lacking.binding)
    assert not kir.read(str(tmp_path / "sums.cu"), binding=str(held)).unsaid


def test_a_problem_with_sizes_that_nothing_leaves_out_refuses_with_one_of_them(tmp_path: Path) -> None:
    from kir.gate.proved.unsaid import require_said
    from kir.ir.parser import parse_program
    from kir.problem import load_problem

    text = ("kir 1\nprogram p\n  size M: i32\n  size N: i32\n  fact {}\n  in X: f32[M, N]\n  out Y: f32[M, N]\n"
            "kernel main grid (i: M) threads 1\n  for j in 0..N\n    Y[i, j] = X[i, j]\n")
    softmax, odd = load_problem("softmax:f32"), parse_program(text.format("N % 32 == 0"))
    with pytest.raises(kir.KirError) as refused:
        require_said(odd, {"N % 32 == 0"}, softmax, None)
    (said,) = refused.value.diagnostics
    assert said.id == "KIR-G137" and "N = " in said.witness[0] and int(said.witness[0].rpartition("N = ")[2]) % 32
    require_said(odd, (), softmax, None)
    require_said(parse_program(text.format("N <= 1048576")), {"N <= 1048576"}, softmax, None)
    require_said(odd, {"N % 32 == 0"}, None, odd)


LACKING = """
#include <cuda_fp16.h>
__global__ void twice(const half* __restrict__ X, half* __restrict__ Y, int M, int N) {
  int row = blockIdx.x, t = threadIdx.x;
  for (int j0 = 0; j0 < N; j0 += 32) Y[(long)row * N + j0 + t] = __float2half(__half2float(X[(long)row * N + j0 + t]) * 2.f);
}
void run(const half* X, half* Y, int M, int N) { twice<<<M, 32>>>(X, Y, M, N); }
"""


def test_no_walk_and_no_search_begins_with_a_kernel_that_the_gate_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """KIR-G137 where a problem has sizes that nothing leaves out; without a problem the same kernel is only compared with itself."""
    from kir.learning.optimize.inputs import subject
    from tests.command_line import called

    file = tmp_path / "twice.cu"
    file.write_text(LACKING)
    assert kir.read(str(file)).unsaid == {"N % 32 == 0"}
    for command in ("lineage", "optimize"):
        code, _, said = called(capsys, command, str(file), "--problem", "softmax", "-o", str(tmp_path / "out"))
        assert code == 1 and "KIR-G137" in said
    with pytest.raises(kir.KirError, match="which nothing says"):
        kir.walk(str(file), tmp_path / "walk", "softmax")
    assert subject(str(file)).program.facts


INTO = """
__global__ void into(const float* x, float* y, int n) {{
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) y[i] = {value};
}}
void run(float* x, float* y, int n) {{ into<<<(n + 127) / 128, 128>>>(x, {out}, n); }}
"""


def test_one_tensor_for_two_is_checked_as_one(tmp_path: Path) -> None:
    """Beside a kernel that is right in place, since each element is of one thread."""
    from kir.learning.optimize.inputs import subject

    file, apart = tmp_path / "into.cu", tmp_path / "apart.cu"
    found = {}
    for value in ("x[i] * 2.f", "(i > 0 ? x[i - 1] : 0.f) + x[i]"):
        file.write_text(INTO.format(value=value, out="x"))
        apart.write_text(INTO.format(value=value, out="y"))
        assert kir.read(str(file)).joined == {("x", "y")} and not kir.read(str(apart)).joined
        found[value] = kir.prove(str(file)).verdict, kir.prove(str(apart), 0).verdict
        if "- 1" not in value:
            assert kir.judge(str(file), against=str(apart), targets=()).accepted
    assert list(found.values()) == [("proved", "proved"), ("refuted", "proved")]
    for begun in (lambda: kir.judge(str(file), against=str(apart), targets=()), lambda: kir.walk(str(file), tmp_path / "walk"), lambda: subject(str(file))):
        with pytest.raises(kir.KirError, match="one tensor for 'x' and 'y', and threads race on it"):
            begun()


SHARED = """
__global__ void blend(const float* x, float* y, int n) {{
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) y[i] = x[i] * 2.f;
}}
void run(float* x, int n) {{ blend<<<(n + 127) / 128, 128>>>({given}); }}
"""


@pytest.mark.parametrize(("given", "verdict"), [("x, x + 1, n - 1", "undecided"), ("x + 1, x, n - 1", "undecided"), ("x, x + n / 2, n", "undecided"),
                                                ("x, x + n, n", "proved"), ("x + n, x, n", "proved"), ("x, x, n", "proved")])
def test_parts_of_one_tensor_are_apart_where_the_second_begins_behind_the_first(tmp_path: Path, given: str, verdict: str) -> None:
    file, apart = tmp_path / "shared.cu", tmp_path / "apart.cu"
    file.write_text(SHARED.format(given=given))
    apart.write_text(SHARED.format(given="x, y, n").replace("float* x, int", "float* x, float* y, int"))
    assert kir.prove(str(file), 0).verdict == verdict
    if verdict != "proved":
        with pytest.raises(kir.KirError, match=r"one tensor for .* and threads may touch"):
            kir.judge(str(file), against=str(apart), targets=())


MASKED = """
import torch
import triton
import triton.language as tl


@triton.jit
def take(X, I, Y, N, V, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.load(I + i, mask=i < N, other=0)
    ok = (i < N) & (k >= 0) & (k < V)
    tl.store(Y + i, tl.load(X + k, mask=ok, other=0.0), mask=i < N)


def run(x, idx: "torch.int32"):
    n = idx.numel()
    y = torch.empty((n,), dtype=torch.float32)
    take[(triton.cdiv(n, 128),)](x, idx, y, n, x.numel(), BLOCK=128)
    return y
"""


@pytest.mark.parametrize(("old", "new", "verdict"), [("", "", "proved"), ("k < V)", "k <= V)", "refuted"), ("(k >= 0) & ", "", "undecided"),
                                                     ("other=0.0), mask=i < N", "other=0.0), mask=i <= N", "refuted")])
def test_a_mask_of_one_side_or_one_too_wide_is_no_edge_of_a_tensor(tmp_path: Path, old: str, new: str, verdict: str) -> None:
    """Neither read as an edge at which the tensor ends, nor taken for right at sizes that are whole tiles, nor by what the indices are to be."""
    file = tmp_path / "take.py"
    file.write_text(MASKED.replace(old, new) if old else MASKED)
    done = kir.prove(str(file), 2)
    assert done.verdict == verdict and not done.unsaid, done.findings


TURNED = """
import torch
import triton
import triton.language as tl


@triton.jit
def turn(X, S, Y, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(S + row * BLOCK + i, tl.load(X + row * BLOCK + i))
    tl.debug_barrier()
    tl.store(Y + row * BLOCK + i, tl.load(S + row * BLOCK + (BLOCK - 1 - i)))


def run(x: "torch.float32"):
    m = x.shape[0]
    s, y = torch.empty((m, 256)), torch.empty((m, 256))
    turn[(m,)](x, s, y, BLOCK=256)
    return y
"""


def test_what_other_threads_of_a_triton_program_stored_is_loaded_behind_a_barrier(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(TURNED)
    wrong.write_text(TURNED.replace("    tl.debug_barrier()\n", ""))
    assert kir.prove(str(right), 1).verdict == "proved"
    done = kir.prove(str(wrong), 1)
    assert done.verdict == "undecided" and [f.kind for f in done.findings if f.status == "undecided"] == ["race"]
    own = tmp_path / "own.py"
    loose, one = TURNED.replace("    tl.debug_barrier()\n", ""), tmp_path / "one.py"
    own.write_text(loose.replace("(BLOCK - 1 - i)", "i"))
    one.write_text(loose.replace("row * BLOCK + (BLOCK - 1 - i)", "row * BLOCK"))
    assert kir.prove(str(own), 1).verdict == "proved"
    assert kir.prove(str(one), 1).verdict == "undecided"  # one element of the tile, loaded by all
    with pytest.raises(kir.KirError, match="KIR-G142"):
        kir.judge(str(wrong), against=str(right), targets=())


LOCKED = """
import torch
import triton
import triton.language as tl


@triton.jit
def total(X, Y, L, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = tl.sum(tl.load(X + i, mask=i < N, other=0.0), axis=0)
    while tl.atomic_cas(L, 0, 1) == 1:
        pass
    tl.store(Y, tl.load(Y) + s)
    tl.atomic_xchg(L, 0)


def run(x, y, lock):
    n = x.numel()
    total[(triton.cdiv(n, 128),)](x, y, lock, n, BLOCK=128)
    return y
"""


@pytest.mark.parametrize(("old", "new", "verdict"), [("", "", "undecided"), ("xchg(L, 0)", "xchg(L, 0, sem='relaxed')", "refuted")])
def test_an_atomic_of_triton_orders_where_nothing_else_is_said(tmp_path: Path, old: str, new: str, verdict: str) -> None:
    file = tmp_path / "total.py"
    file.write_text(LOCKED.replace(old, new) if old else LOCKED)
    assert kir.prove(str(file), 3).verdict == verdict


TAIL = """
__global__ void tail(const float* __restrict__ x, float* __restrict__ y, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n / 4) {
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x *= 2.f; v.y *= 2.f; v.z *= 2.f; v.w *= 2.f;
    reinterpret_cast<float4*>(y)[i] = v;
  } else if (i == n / 4) {
    for (int k = n / 4 * 4; k < n; ++k) y[k] = x[k] * 2.f;
  }
}
void run(const float* x, float* y, int n) { tail<<<(n / 4 + 128) / 128, 128>>>(x, y, n); }
"""


def test_a_grid_with_a_cta_for_the_rest_leaves_no_size_out(tmp_path: Path) -> None:
    file, short = tmp_path / "tail.cu", tmp_path / "short.cu"
    file.write_text(TAIL)
    short.write_text(TAIL.replace("k < n; ++k", "k < n - 1; ++k"))
    assert not kir.read(str(file)).unsaid and not kir.read(str(short)).unsaid
    assert not kir.judge(str(short), against=str(file), targets=()).accepted


def test_facts_of_host_code_that_exclude_one_another_are_named(tmp_path: Path) -> None:
    """Of such a launch nothing can be run that would tell how large its tensors are."""
    file = tmp_path / "none.cu"
    file.write_text("__global__ void none(const float* x, float* y, int n) { int i = blockIdx.x * 128 + threadIdx.x; y[i] = x[i]; }\n"
                    "void run(const float* x, float* y, int n) { assert(n > 100); assert(n < 50); none<<<(n + 127) / 128, 128>>>(x, y, n); }\n")
    with pytest.raises(kir.KirError, match="the fact 'n < 50' contradicts 'n >= 1', 'n > 100'"):
        kir.prove(str(file), 0)


def test_sizes_of_64_bits_are_read_as_numbers_of_32_and_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "wide.cu"
    file.write_text(TAIL.replace("int n)", "long long n)"))
    assert kir.read(str(file)).unsaid == {"n < 2^31"} and kir.prove(str(file), 0).unsaid == ("n < 2^31",)


@pytest.mark.parametrize(("old", "new", "verdict"), [
    ("", "", "proved"),
    ("reinterpret_cast<const float4*>(x)[i]", "*reinterpret_cast<const float4*>(x + 4 * i + 1)", "refuted"),
    ("reinterpret_cast<const float4*>(x)[i]", "*reinterpret_cast<const float4*>(x + ((4 * i + 3) & ~3))", "proved"),
    ("i < n / 4) {", "4 * i + 6 < n) {\n    y += 2;", "refuted"),
])
def test_neighbors_that_a_thread_touches_at_once_begin_at_a_multiple_of_their_size(tmp_path: Path, old: str, new: str, verdict: str) -> None:
    file = tmp_path / "tail.cu"
    file.write_text(TAIL.replace(old, new) if old else TAIL)
    found = kir.prove(str(file), 3)
    assert found.verdict == verdict
    assert verdict == "proved" or any(x.kind == "alignment" and x.status == "refuted" and "is not aligned" in x.shown for x in found.findings)


POOL = """__global__ void k(const float* x, float* y, int rows) {
  extern __shared__ unsigned char raw[];
  float* a = reinterpret_cast<float*>(raw);
  float4* q = reinterpret_cast<float4*>(raw + 65 * 4);
  int t = threadIdx.x;
  a[t] = x[blockIdx.x * 64 + t];
  __syncthreads();
  if (t < 16) q[t] = make_float4(a[4 * t], a[4 * t + 1], a[4 * t + 2], a[4 * t + 3]);
  __syncthreads();
  y[blockIdx.x * 64 + t] = reinterpret_cast<float*>(q)[63 - t];
}
void run(const float* x, float* y, int rows) { k<<<rows, 64, 544>>>(x, y, rows); }
"""
VIEWED = """kir 1
program p
  size M: i32
  in X: f32[M, 64] align 16
  out Y: f32[M, 64] align 16
kernel main grid (b: M) threads 16
  shared raw: f32[80] align 16
  view shared q: f32[72] at raw[4 +: 72]
  view shared r: f32[64] at q[4 +: 64]
  for t in 0..16 parallel thread
    r[t * 4 +: 4] = X[b, t * 4 +: 4]
    Y[b, t * 4 +: 4] = X[b, t * 4 +: 4]
"""


@pytest.mark.parametrize(("text", "old", "new", "verdict"), [
    (POOL, "", "", "refuted"), (POOL, "65 * 4", "68 * 4", "proved"), (POOL, "raw + 65 * 4", "raw + 66 * 4", "refuted"),
    (VIEWED, "", "", "proved"), (VIEWED, "q[4 +: 64]", "q[2 +: 64]", "refuted"), (VIEWED, "raw[4 +: 72]", "raw[3 +: 72]", "refuted"),
    (VIEWED.replace("raw[4", "raw[3"), "q[4 +: 64]", "q[5 +: 64]", "proved"), (VIEWED, "f32[80] align 16", "f32[80] align 8", "refuted")])
def test_neighbors_begin_at_a_multiple_through_views_and_in_parts_of_a_pool(tmp_path: Path, text: str, old: str, new: str, verdict: str) -> None:
    """Parts of a pool are arrays of their own: that such a one begins 4 bytes beyond a multiple of 16 went unsaid, and a view was not looked at."""
    file = tmp_path / ("pool.cu" if text == POOL else "viewed.kir")
    file.write_text(text.replace(old, new) if old else text)
    found = kir.prove(str(file), 2)
    assert found.status("alignment") == verdict
    assert verdict == "proved" or any(x.kind == "alignment" and "is not aligned" in x.shown for x in found.findings)


MOVING = """kir 1
program p
  size M: i32
  size K: i32
  fact K >= 1
  fact K <= 16
  in X: f32[M, 64]
  out Y: f32[M, 64]
kernel main grid (b: M) threads 64
  shared raw: f32[128]
  for t in 0..64 parallel thread
    for k in 0..K
      view shared q: f32[64] at raw[k +: 64]
      q[t] = X[b, t]
      barrier()
      Y[b, 63 - t] = q[63 - t]
"""


@pytest.mark.parametrize(("old", "new", "verdict"), [
    ("", "", "refuted"), ("q[63 - t]", "q[t]", "refuted"), ("at raw[k +: 64]", "at raw[k % 2 * 64 +: 64]", "proved"),
    ("      Y[b, 63 - t] = q[63 - t]\n", "      Y[b, 63 - t] = q[63 - t]\n      barrier()\n", "proved"),
    ("at raw[k +: 64]", "at raw[k + 50 +: 64]", "refuted")])
def test_a_view_that_moves_shows_other_memory_at_each_trip(old: str, new: str, verdict: str) -> None:
    """An element of such a view was taken for one place, whatever the trip: races between trips were called proved."""
    text = MOVING.replace(old, new) if old else MOVING
    assert proved(parse_program(text), 2).verdict == verdict
    assert proved(parse_program(text), 0).verdict == ("undecided" if verdict == "refuted" else verdict), "no run, and nothing is proved that is not so"


TABLES = """kir 1
program placed
  size M: i32
  size N: i32
  fact M >= 1
  fact N >= 1
  in B: i32[M]
  in R: i32[M]
  in X: f32[M]
  out Y: f32[N]
kernel main grid (i: M) threads 1
  let p = PLACE
  if p >= 0 & p < N
    Y[p] = X[i]
"""


@pytest.mark.parametrize(("place", "verdict"), [("B[i] + R[i]", "undecided"), ("i // 2", "refuted"), ("select(X[i] > 0.0, 1, 0)", "refuted")])
def test_whether_stores_by_tables_meet_is_for_who_fills_them(place: str, verdict: str) -> None:
    """Numbers drawn at random meet; what the kernel itself makes of places and of floats is its own."""
    assert proved(parse_program(TABLES.replace("PLACE", place), "placed.kir")).verdict == verdict
