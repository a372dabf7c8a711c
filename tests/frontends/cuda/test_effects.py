"""What has an effect beyond memory is kept, loops that spin are waits, and hand-written forms come to one normal form."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.interp import run
from kir.ir.parser import parse_program
from kir.surface import backend
from tests.frontends.cuda.reading import body_of, text_of

TENSOR = '[tensors.{0}]\nshape = [{1}]\ndtype = "{2}"\n'


def test_printing_and_sleeping_are_not_dropped(tmp_path: Path) -> None:
    text = text_of(tmp_path, """
        __global__ void k(float* x) {
          if (x[threadIdx.x] < 0.f) {
            printf("negative: %f at %d\\n", x[threadIdx.x], (int)threadIdx.x);
            __nanosleep(20);
          }
          x[threadIdx.x] = 1.f;
        }""", binding='grid = [1]\n[metas]\nthreads_x = 32\n' + TENSOR.format("x", 32, "f32"))
    assert 'print(x[t], t, format="negative: %f at %d\\n")' in text and "nanosleep(20:u32)" in text
    emitted = backend("cuda").emit(parse_program(text)).text
    assert 'printf("negative: %f at %d\\n", x[t], t);' in emitted and "#include <cstdio>" in emitted


def test_a_format_that_is_not_written_out_stays_opaque(tmp_path: Path) -> None:
    text = text_of(tmp_path, "__global__ void k(float* x, const char* f) { printf(f, 1); x[0] = 1.f; }",
                   binding="grid = [1]\n[metas]\nthreads_x = 1\n" + TENSOR.format("x", 1, "f32") + TENSOR.format("f", 8, "i8"))
    assert "opaque cuda" in text and "a format of printf that is not written out" in text


@pytest.mark.parametrize("body", ["{}", "{ /* again */ }", ";"])
def test_a_loop_around_one_try_of_an_mbarrier_waits_for_it(tmp_path: Path, body: str) -> None:
    text = text_of(tmp_path, """
        __device__ bool attempt(unsigned long long* bar, unsigned parity) {
          unsigned done;
          asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                       : "=r"(done) : "r"((unsigned)__cvta_generic_to_shared(bar)), "r"(parity) : "memory");
          return done != 0;
        }
        __global__ void k(float* x) {
          __shared__ unsigned long long bar[1];
          if (threadIdx.x == 0)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((unsigned)__cvta_generic_to_shared(bar)), "r"(1) : "memory");
          __syncthreads();
          while (!attempt(bar, 0)) BODY
          x[threadIdx.x] = 1.f;
        }""".replace("BODY", body), binding='grid = [1]\n[metas]\nthreads_x = 32\n' + TENSOR.format("x", 32, "f32"))
    assert "shared bar: mbarrier\n" in text and "mbar_wait(&bar, 0)" in text and "while" not in text


def test_coordinates_of_a_thread_are_its_number_again_and_a_pool_falls_apart(tmp_path: Path) -> None:
    text = text_of(tmp_path, """
        __global__ void k(const float* x, float* y) {
          extern __shared__ float pool[];
          float* kept = pool + 4;
          unsigned tx = threadIdx.x, ty = threadIdx.y;
          kept[tx + ty * 32] = x[tx + ty * 32];
          if (tx == 0) pool[ty] = 1.f;
          __syncthreads();
          y[ty * 32 + tx] = kept[127 - (tx + ty * 32)] + pool[ty];
        }""", binding='grid = [1]\n[metas]\nthreads_x = 32\nthreads_y = 4\nshared_bytes = 528\n' + "".join(TENSOR.format(x, 128, "f32") for x in "xy"))
    body = body_of(text)
    assert "shared pool: f32[4]\n" in body and "shared pool_1: f32[128]\n" in body
    assert "pool_1[t] = x[t]" in body and "y[t] = pool_1[-t + 127] + pool[ty]" in body


def test_elements_that_are_named_one_by_one_are_one_array(tmp_path: Path) -> None:
    text = text_of(tmp_path, """
        __global__ void k(float* y) {
          __shared__ float s[4];
          s[0] = 1.f; s[1] = 2.f; s[3] = 3.f;
          y[threadIdx.x] = s[0] + s[1] * s[3];
        }""", binding='grid = [1]\n[metas]\nthreads_x = 1\n' + TENSOR.format("y", 1, "f32"))
    assert "shared s: f32[4]" in text


def test_a_loop_that_stores_and_sums_falls_into_vectors_and_a_fold(tmp_path: Path) -> None:
    text = text_of(tmp_path, """
        #include <cuda_fp16.h>
        __global__ void k(const float4* a, const float4* b, float4* c, float* s) {
          float4 x = a[threadIdx.x], y = b[threadIdx.x], z;
          const float* u = reinterpret_cast<const float*>(&x);
          float* v = reinterpret_cast<float*>(&y);
          float w[4];
          float sum = 0.f;
          #pragma unroll
          for (int j = 0; j < 4; j++) {
            float both = u[j] + v[j];
            sum += both * both;
            v[j] = both * 2.f;
            w[j] = both;
          }
          c[threadIdx.x] = y;
          s[threadIdx.x] = sum + w[0];
        }""", binding='grid = [1]\n[metas]\nthreads_x = 32\n' + "".join(TENSOR.format(x, 128, "f32") for x in "abc") + TENSOR.format("s", 32, "f32"))
    body = body_of(text)
    assert "sum = sum + w[j] * w[j]" in body and "w: f32[4] = x + y" in body and "c[t * 4 +: 4] = w * 2.0" in body, body


@pytest.mark.parametrize(("count", "asked"), [("blockDim.x", False), ("*n", True)])
def test_a_count_of_all_threads_masks_none_of_them(count: str, asked: bool, tmp_path: Path) -> None:
    """`BlockReduce(..).Reduce(x, op, blockDim.x)`, as engines write it whose CTAs are full."""
    text = text_of(tmp_path, "#include <cub/cub.cuh>\n__global__ void k(float* x, const int* n) {\n"
                   "__shared__ typename cub::BlockReduce<float, 64>::TempStorage s;\n"
                   f"x[threadIdx.x] = cub::BlockReduce<float, 64>(s).Reduce(x[threadIdx.x], cub::Sum{{}}, {count}); }}",
                   binding='grid = [1]\n[metas]\nthreads_x = 64\n' + TENSOR.format("x", 64, "f32") + TENSOR.format("n", 1, "i32"))
    assert ("&" in text) == asked, text


@pytest.mark.parametrize(("head", "loop"), [
    ("for (int r = 8; r < 24 && r < n; ++r)", "min(n, 24)"),
    ("for (int r = 8; r <= 24 && n > r; r++)", "min(n, 25)"),
    ("for (int r = n - 1; r >= 8 && r > m; --r)", "max(m, 7)"),
    ("for (int r = 8; r < 24 && x[r] < 2.f; ++r)", "while"),
    ("for (int r = 8; r < n || r < 24; ++r)", "while"),
    ("for (int r = 8; r < n && m; ++r)", "while"),
])
def test_a_loop_that_ends_at_the_first_of_several_ends(head: str, loop: str, tmp_path: Path) -> None:
    text = text_of(tmp_path, f"__global__ void k(float* x, int n, int m) {{ float s = 0.f; {head} s += x[r]; x[0] = s; }}",
                   binding='grid = [1]\nsizes = ["n", "m"]\n[metas]\nthreads_x = 32\n[scalars]\nn = "n"\nm = "m"\n' + TENSOR.format("x", 64, "f32"))
    assert loop in text and (loop == "while") == ("while" in text), text


LADDER = """template <int N> struct All {
  static __device__ float run(float x) { x = max(x, __shfl_xor_sync(uint32_t(-1), x, N / 2)); return All<N / 2>::run(x); } };
template <> struct All<1> { static __device__ float run(float x) { return x; } };
__global__ void k(float* x) { float v = x[threadIdx.x]; BODY }
"""


@pytest.mark.parametrize(("body", "loops"), [
    ("x[threadIdx.x] = All<32>::run(v);", 1),
    ("v = All<32>::run(v); v = v * 2.f; x[threadIdx.x] = All<8>::run(v);", 2),
    ("v += __shfl_down_sync(~0u, v, 2); v += __shfl_down_sync(~0u, v, 1); x[threadIdx.x] = v;", 1),
    ("float a = v + __shfl_xor_sync(~0u, v, 2); float b = a + __shfl_xor_sync(~0u, a, 1); x[threadIdx.x] = a * b;", 0),
    ("v += __shfl_xor_sync(~0u, v, 4); v = max(v, __shfl_xor_sync(~0u, v, 2)); v = v - __shfl_xor_sync(~0u, v, 1); x[threadIdx.x] = v;", 0),
    ("v += __shfl_xor_sync(~0u, v, 8); v += __shfl_xor_sync(~0u, v, 2); x[threadIdx.x] = v;", 0),
])
def test_a_ladder_of_shuffles_that_a_template_writes_out_is_one_loop(body: str, loops: int, tmp_path: Path) -> None:
    """What uses a step on its way, does something else in one, or leaves one out, stays as it stands."""
    text = text_of(tmp_path, LADDER.replace("BODY", body), binding='grid = [1]\n[metas]\nthreads_x = 32\n' + TENSOR.format("x", 32, "f32"))
    assert text.count("for s") == loops, text


LOADED = """
    __device__ int loaded_{0}(int* at) {{ int v; asm volatile("ld.{0}.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(at) : "memory"); return v; }}"""
HANDSHAKE = LOADED.format("relaxed") + LOADED.format("acquire") + """
    __global__ void k(float* x, WORD int* flag, float* y) {
      __shared__ int seen;
      if (blockIdx.x == 0) {
        x[threadIdx.x] = 2.f;
        __syncthreads();
        if (threadIdx.x == 0) { __threadfence(); WRITTEN; }
      } else {
        if (threadIdx.x == 0) { while (READ == 0) {} BEHIND seen = 1; }
        __syncthreads();
        y[threadIdx.x] = x[threadIdx.x] + seen;
      }
    }"""


FENCE = "__threadfence();"


@pytest.mark.parametrize(("word", "written", "read", "behind", "races"), [
    ("volatile", "flag[0] = 1", "flag[0]", FENCE, False), ("", "*(volatile int*)flag = 1", "((volatile int*)flag)[0]", FENCE, False),
    ("", "flag[0] = 1", "flag[0]", FENCE, True), ("volatile", "flag[0] = 1", "flag[0]", "", True),
    ("", "atomicExch(flag, 1)", "atomicAdd(flag, 0)", FENCE, False),
    ("", "atomicExch(flag, 1)", "atomicAdd(flag, 0)", "", True), ("", "atomicExch(flag, 1)", "loaded_relaxed(flag)", "", True),
    ("", "atomicExch(flag, 1)", "loaded_relaxed(flag)", FENCE, False), ("", "atomicExch(flag, 1)", "loaded_acquire(flag)", "", False)])
def test_volatile_accesses_are_all_made_and_meet_as_atomics_do(word: str, written: str, read: str, behind: str, races: bool, tmp_path: Path) -> None:
    """What a relaxed read of the flag tells is ordered once a fence comes behind it; what one that acquires tells, at once."""
    source = HANDSHAKE.replace("WORD", word).replace("WRITTEN", written).replace("READ", read).replace("BEHIND", behind)
    text = text_of(tmp_path, source, binding="grid = [2]\n[metas]\nthreads_x = 32\n" + TENSOR.format("x", 32, "f32") + TENSOR.format("flag", 1, "i32")
                   + TENSOR.format("y", 32, "f32"))
    program = parse_program(text)
    found = run(program, {"x": np.zeros(32, np.float32), "flag": np.zeros(1, np.int32)}, {}, mode="check")
    assert any("race" in e.message for e in found.errors) == races
    emitted = backend("cuda").emit(program).text
    if "volatile" in word + written or not word + behind:
        assert ("(const volatile int*)&" in emitted and "*(volatile int*)&flag" in emitted) == ("volatile" in word + written)
    if not races:
        assert np.asarray(found.outputs["y"]).tolist() == [3.0] * 32


@pytest.mark.parametrize(("guess", "races"), [("int seen, old = at[i]", False), ("int seen, old = at[0] + at[1]; if (i) old = at[i]", True)])
def test_the_first_guess_of_a_compare_and_swap_may_be_stale(guess: str, races: bool, tmp_path: Path) -> None:
    text = text_of(tmp_path, """
        __global__ void k(const int* x, int* at) {
          const int i = threadIdx.x % 2;
          GUESS;
          do { seen = old; old = atomicCAS(&at[i], seen, max(seen, x[threadIdx.x])); } while (seen != old);
        }""".replace("GUESS", guess), binding="grid = [1]\n[metas]\nthreads_x = 64\n" + TENSOR.format("x", 64, "i32") + TENSOR.format("at", 2, "i32"))
    x = np.random.default_rng(1).permutation(64).astype(np.int32)
    found = run(parse_program(text), {"x": x, "at": np.zeros(2, np.int32)}, {}, mode="check")
    assert any("race" in e.message for e in found.errors) == races
    assert races or np.asarray(found.outputs["at"]).tolist() == [x[::2].max(), x[1::2].max()]
