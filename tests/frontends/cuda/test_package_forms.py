"""C++ as packages write it: what it computes when it is run, and that it is written back as it was read."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kir.analysis.normal.regions import raised
from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.learning.corpus.roundtrip.one import examine
from kir.learning.corpus.roundtrip.same.threads import same_thread
from kir.learning.corpus.roundtrip.specialized import neutral
from kir.surface import frontend
from tests.frontends.cuda.reading import read
from tests.frontends.reading import opaque_statements

BINDING = ('kernel = "k"\ngrid = [1]\n[metas]\nthreads_x = 64\nshared_bytes = 1024\n[tensors]\nx = {shape = [128], dtype = "f32"}\n'
           'y = {shape = [64], dtype = "f32", role = "out"}\n')
HEAD = "__global__ void k(const float* x, float* y) {\n  const int t = threadIdx.x;\n"
X = np.random.default_rng(3).integers(-9, 9, 128).astype(np.float32)


def result(tmp_path: Path, source: str) -> np.ndarray:
    file = tmp_path / "k.cu"
    file.write_text(source)
    program = read(file, "k", BINDING)
    assert not opaque_statements(program)
    found = run(program, {"x": X}, {}, mode="check")
    assert found.errors == ()
    return np.asarray(found.outputs["y"])


T = np.arange(64)


def drawn(seed: int, row: int, at: int) -> int:
    """Number `at` of Philox4x32-10's stream `row` under a seed of 64 bits."""
    c, k = [at // 4, 0, row, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[at % 4]


def stepped(which: int) -> int:
    """What XORWOW gives at its second step from such a state."""
    d, *v = [1000003 * (which * 12 + k + 1) & 0xFFFFFFFF for k in range(6)]
    for _ in range(2):
        t = v[0] ^ v[0] >> 2
        v = [*v[1:], (v[4] ^ v[4] << 4) & 0xFFFFFFFF ^ (t ^ t << 1) & 0xFFFFFFFF]
        d = d + 362437 & 0xFFFFFFFF
    return v[4] + d & 0xFFFFFFFF


def test_the_stream_is_the_published_one() -> None:
    assert [drawn(0, 0, k) for k in range(4)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123, kat_vectors


def among(groups: list[list[int]], of: Any) -> np.ndarray:
    """What each thread gets of its group's threads, and its place among them."""
    out = np.full(64, -1.0)
    for g in groups:
        for k, t in enumerate(g):
            out[t] = of(g, k, t)
    return out


def alike(key: Any) -> list[list[int]]:
    """The threads of each warp that have the same key."""
    return [g for w in (0, 32) for v in sorted({key(t) for t in range(64)}) if (g := [t for t in range(w, w + 32) if key(t) == v])]


THIRDS = [[t for t in range(w, w + 32) if t % 3 == 0] for w in (0, 32)]
GROUPED = among(THIRDS, lambda g, k, t: 10000 * X[g[0]] + 100 * X[g[min(k + 1, len(g) - 1)]] + X[g[k - 2 if k >= 2 else k]] + 1000 * k + len(g))
LABELED = (among(alike(lambda t: t % 5), lambda g, k, t: X[g].sum())
           + among(alike(lambda t: X[t] > 0), lambda g, k, t: 1000 * len(g) + 100000 * g[0]))
MASKED = (among([[*range(32)], [*range(32, 64)]], lambda g, k, t: X[g].sum())
          + (X[:64] > 0) * among(alike(lambda t: X[t] > 0), lambda g, k, t: 1000 * X[g[0]] + 100000 * (X[g] > 4).sum()))

COMPUTED = {
    "a counter, and what steps beside it": (
        "", "  float s = 0.f;\n  for (int a = t, b = 2 * t; a <= t + 7; a += 3, b += 5) s += 100 * a + b;\n  y[t] = s + x[0] * 0.f;\n",
        300 * T + 900 + 6 * T + 15),
    "a pointer that is set to another array": (
        "", "  __shared__ float own[64];\n  own[t] = 2 * t;\n  const float* p = x + 64;\n  float s = p[t];\n  p = own + 1;\n  __syncthreads();\n"
            "  p -= 1;\n  y[t] = s + p[63 - t];\n", X[64:] + 2 * (63 - T)),
    "a store through a view is kept": (
        "", "  unsigned long long both;\n  unsigned* half = reinterpret_cast<unsigned*>(&both);\n  half[0] = t;\n  half[1] = t + 7;\n"
            "  y[t] = float(both >> 32) + x[0] * 0.f;\n", T + 7),
    "a pointer that is set on another branch alone, handed to a function that does not use it on this one": (
        "template <bool ONE> __device__ float one(const float* x, const float* p, int t) { if constexpr (!ONE) return *p; return x[t]; }\n"
        "template <bool ONE> __device__ float of(const float* x, int t) {\n  const float* p = nullptr;\n  if constexpr (!ONE) p = x + t;\n"
        "  return one<ONE>(x, p, t);\n}\n", "  y[t] = of<true>(x, t) + of<false>(x, t);\n", 2 * X[:64]),
    "a function of halves beside CUDA's of the same name, which a whole number is not handed to": (
        "__device__ __inline__ __half __shfl_down_sync(const unsigned mask, const __half v, const unsigned d) {\n"
        "  return __shfl_down_sync(mask, v, d, 32);\n}\n",
        "  long long far = 100003 + t;\n  y[t] = float(__shfl_down_sync(~0u, far, 1) - 100000) + 0.f * x[t];\n", np.where(T % 32 < 31, T + 4, T + 3)),
    "collectives of CUB": (
        "using Sums = cub::BlockReduce<float, 64>;\nusing Scan = cub::BlockScan<float, 64>;\n",
        "  __shared__ typename Sums::TempStorage a;\n  __shared__ typename Scan::TempStorage b;\n  __shared__ float all;\n"
        "  float total = Sums(a).Sum(x[t]);\n  if (t == 0) all = total;\n  __syncthreads();\n"
        "  float before;\n  Scan(b).ExclusiveSum(x[t], before);\n  y[t] = all + before;\n",
        X[:64].sum() + np.concatenate([[0], np.cumsum(X[:63])])),
    "places counted in bytes": (
        "__device__ const float* at(const float* p, int row, long long bytes) { return (const float*)((const char*)p + row * bytes); }\n",
        "  y[t] = at(x, t, (long long)blockDim.x / 16)[1];\n", X[1:65]),
    "members of a union share their bytes": (
        "struct P { union { struct { unsigned low; unsigned high; }; unsigned long long all; }; };\n",
        "  P p = {unsigned(t), 3u};\n  y[t] = float(p.all >> 32) + float(unsigned(p.all)) + 0.f * x[t];\n", T + 3),
    "names for the parts of a vector and of an array, and what <bit> says of numbers": (
        "", "  auto [a, b] = make_float2(x[t], 2.f);\n  float own[2] = {3.f, x[t + 64]};\n  const auto& [c, d] = own;\n"
            "  static_assert(std::has_single_bit(64u) && std::bit_width(9u) == 4 && std::countr_zero(8u) == 3 && std::bit_ceil(5u) == 8u);\n"
            "  y[t] = a * b + c * d;\n", X[:64] * 2 + 3 * X[64:]),
    "a result that is a reference, and traits made of others": (
        "template <typename T> struct Own { T held[2]; __device__ auto operator[](int i) -> T& { return held[i]; } };\n"
        "template <typename T> struct Wide : std::false_type {};\ntemplate <> struct Wide<float> : std::true_type {};\n",
        "  Own<float> own;\n  own[0] = x[t];\n  own[1] = 2.f;\n  own[1] += own[0];\n"
        "  if constexpr (Wide<float>::value && !Wide<int>::value) y[t] = own[1]; else y[t] = 0.f;\n", X[:64] + 2),
    "a list in braces as an argument": (
        "template <typename To, typename From> __device__ To cast(const From& v) { return To(v.x + v.y); }\n",
        "  y[t] = cast<float, float2>({x[t], 2.f});\n", X[:64] + 2),
    "enumerators of a class, named where they are used": (
        "namespace a { struct Whole { enum type : long { FOUR = 4, EIGHT = 8 }; };\n"
        "struct Either { using enum Whole::type; enum type : long { MINUS = -EIGHT }; };\n"
        "template <long N, long M = Either::EIGHT> __device__ float sum() { return N + M; } }\n",
        "  using enum a::Either::type;\n  y[t] = x[t] + a::sum<MINUS>() + a::sum<3>();\n", X[:64] + 11),
    "an operator that a class defines and does not own, and an object that is a number": (
        "struct D { unsigned d; unsigned m;\n  __host__ __device__ explicit D(unsigned by) : d(by), m(0) {}\n"
        "  __host__ __device__ operator unsigned() const { return d; }\n"
        "  template <typename X> __host__ __device__ friend X operator/(X x, D by) { return x / by.d + 1; }\n};\n",
        "  D d(5);\n  y[t] = x[t] * 0.f + t / d + d;\n", T // 5 + 6),
    "what the C++ library holds: an array, something or nothing, a divisor": (
        "__device__ std::optional<int> half(int t) { if (t % 2) return std::nullopt; return t / 2; }\n",
        "  std::array<float, 3> own;\n  for (int i = 0; i < own.size(); ++i) own.data()[i] = x[t] + i;\n  cuda::fast_mod_div<unsigned> by(7u);\n"
        "  auto found = half(t);\n  y[t] = own[2] + found.value_or(100) + unsigned(t) / by + unsigned(t) % by + (found.has_value() ? 0 : 1000);\n",
        X[:64] + 2 + np.where(T % 2, 1100, T // 2) + T // 7 + T % 7),
    "the lanes that are active, as a group": (
        "namespace cg = cooperative_groups;\n",
        "  float own = -1.f;\n  if (t % 3 == 0) {\n    cg::coalesced_group g = cg::coalesced_threads();\n"
        "    own = 10000 * g.shfl(x[t], 0) + 100 * g.shfl_down(x[t], 1) + g.shfl_up(x[t], 2) + 1000 * int(g.thread_rank()) + int(g.size());\n  }\n"
        "  y[t] = own;\n", GROUPED),
    "the lanes that agree on a label, and those that say the same": (
        "namespace cg = cooperative_groups;\n",
        "  auto warp = cg::tiled_partition<32>(cg::this_thread_block());\n  auto said = cg::binary_partition(warp, x[t] > 0.f);\n"
        "  auto alike = cg::labeled_partition(cg::coalesced_threads(), t % 5);\n"
        "  y[t] = cg::reduce(alike, x[t], cg::plus<float>()) + 1000 * int(said.size()) + 100000 * cg::reduce(said, t, cg::less<int>());\n", LABELED),
    "exchanges under masks that only the run knows": (
        "__device__ float sum(float v) {\n  const unsigned here = __activemask();\n"
        "  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(here, v, d);\n  return v;\n}\n",
        "  float v = sum(x[t]);\n  const unsigned mask = __ballot_sync(~0u, x[t] > 0.f);\n"
        "  if (x[t] > 0.f) {\n    v += 1000 * __shfl_sync(mask, x[t], __ffs(mask) - 1);\n    __syncwarp(mask);\n"
        "    v += 100000 * __popc(__ballot_sync(mask, x[t] > 4.f));\n  }\n  y[t] = v;\n", MASKED),
    "captures that begin with a value of their own": (
        "", "  int k = t % 4, m = 100, n = 2;\n  auto f = [m = k * 3, &r = n](int a) { r += a; return m + a; };\n  k = 50;\n"
            "  y[t] = x[t] + f(1) + 10 * n + 100 * m + 100000 * k;\n", X[:64] + 3 * (T % 4) + 1 + 30 + 10000 + 5000000),
    "a right side that comes before what the left side steps": (
        "", "  int i = 1, n = 0, held[6] = {5, 6, 7, 8, 9, 10}, out[3];\n  out[n++] = n + held[i++];\n  out[n++] = n;\n  held[++i] += i;\n  int* p = held;\n"
            "  *p++ += p[1];\n  y[t] = x[t] + out[0] + 10 * out[1] + 100 * held[3] + 1000 * n + 10000 * held[0] + 1000000 * i;\n",
        X[:64] + 6 + 10 + 1000 + 2000 + 110000 + 3000000),
    "a loop that ends within a body that is done once": (
        "#define UP_TO(n) do { for (int i = 0; i < n; ++i) { if (i > 5) break; sum += i; } } while (0)\n",
        "  int sum = 0;\n  if (t % 2) UP_TO(9); else UP_TO(3);\n  y[t] = x[t] + sum;\n", X[:64] + np.where(T % 2, 15, 3)),
    "extents of an array of arrays that a template is given": (
        "template <typename T, int N, int M> __device__ T last(const T (&a)[N][M]) { return a[N - 1][M - 1] + 100 * N + 1000 * M; }\n",
        "  float own[3][2] = {{x[t], 1.f}, {2.f, 3.f}, {4.f, x[t + 1]}};\n  y[t] = last(own);\n", X[1:65] + 2300),
    "members that are declared in one line": (
        "template <int A_, int B_> struct P { static constexpr int A = A_, B = B_, C{7}, D = A * B; int e = 1, f = 2, g; float h[2], i = 3.f; };\n",
        "  P<3, 5> p;\n  y[t] = x[t] + P<3, 5>::A + 10 * P<3, 5>::B + 100 * P<3, 5>::C + 1000 * P<3, 5>::D + 100000 * (p.e + 2 * p.f + 3 * p.i);\n",
        X[:64] + 3 + 50 + 700 + 15000 + 1400000),
    "cuRAND's counter-based generator": (
        "", "  curandStatePhilox4_32_10_t state;\n  curand_init(0x123456789ull, t / 8, t % 8, &state);\n  unsigned got = 0;\n"
            "  for (int i = 0; i < 3; ++i) got = curand(&state);\n  y[t] = float(got >> 8) + x[0] * 0.f;\n",
        np.array([drawn(0x123456789, t // 8, t % 8 + 2) >> 8 for t in range(64)])),
    "a step of XORWOW from a state in memory": (
        "__device__ float draw(curandState* states, int i) { return curand_uniform(states + i); }\n",
        "  __shared__ curandState held[2];\n  if (t < 24) ((unsigned*)held)[t] = 1000003u * (t + 1);\n  __syncthreads();\n"
        "  curandState own = held[t % 2];\n  float got = draw(&own, 0);\n  got = draw(&own, 0);\n  y[t] = got * 4294967296.f + x[0] * 0.f;\n",
        np.array([np.float32(np.float32(stepped(t % 2)) * np.float32(2.3283064e-10) + np.float32(2.3283064e-10 / 2)) * np.float32(2**32) for t in range(64)])),
    "four random numbers at once, across a block of them": (
        "", "  curandStatePhilox4_32_10_t state;\n  curand_init(5ull, t, 1, &state);\n  const float4 a = curand_uniform4(&state);\n"
            "  y[t] = a.w * 4294967296.f + x[0] * 0.f;\n",
        np.array([np.float32(np.float32(drawn(5, t, 4)) * np.float32(2.3283064e-10) + np.float32(2.3283064e-10 / 2)) * np.float32(2**32) for t in range(64)])),
    "differences of neighbors in a block, and where a run begins": (
        "struct Minus { __device__ float operator()(float a, float b) const { return a - b; } };\n"
        "struct Other { __device__ bool operator()(float a, float b) const { return a < b; } };\n"
        "using Next = cub::BlockAdjacentDifference<float, 64>;\nusing Runs = cub::BlockDiscontinuity<float, 64>;\n",
        "  __shared__ typename Next::TempStorage a;\n  __shared__ typename Runs::TempStorage b;\n"
        "  float own[2] = {x[2 * t], x[2 * t + 1]}, left[2], right[2];\n  int heads[2];\n  Next(a).SubtractLeft(own, left, Minus());\n  __syncthreads();\n"
        "  Next(a).SubtractRight<2>(own, right, Minus());\n  Runs(b).FlagHeads(heads, own, Other());\n"
        "  y[t] = left[0] + 100 * left[1] + 10000 * right[1] + 1000000 * heads[0] + 2000000 * heads[1];\n",
        np.diff(X, prepend=0)[::2] + 100 * np.diff(X)[::2] + 10000 * np.append(X[1:-1:2] - X[2::2], X[-1])
        + 1000000 * np.append(1, X[1:-1:2] < X[2::2]) + 2000000 * (X[::2] < X[1::2])),
    "a class that is the library's, declared before its header": (
        "struct __nv_bfloat16;\nstruct __half;\n__device__ float own(const float* p) { return 0.f; }\n"
        "__device__ float own(const __half* p) { return __half2float(p[0]); }\n",
        "  __half h = __float2half(x[t]);\n  y[t] = own(&h);\n", X[:64]),
    "a constant array that is filled where it is declared": (
        "namespace a { __constant__ float weights[3] = {1.f, 2.f, 4.f}; }\n", "  y[t] = x[t] * a::weights[t % 3];\n", X[:64] * np.array([1, 2, 4])[T % 3]),
    "records of several dtypes in memory": (
        "struct R { float v; int at; };\nstruct Q { short a; __half b; float c; R inner; };\n",
        "  const R* rows = reinterpret_cast<const R*>(x);\n  R own = rows[t];\n"
        "  y[t] = own.v + float(__float_as_int(own.v) == __float_as_int(rows[t].v)) * 2;\n",
        X[::2] + 2),
    "a pipeline of copies that a CTA shares": (
        "namespace cg = cooperative_groups;\n",
        "  __shared__ float held[2][64];\n  __shared__ cuda::pipeline_shared_state<cuda::thread_scope::thread_scope_block, 2> state;\n"
        "  cg::thread_block block = cg::this_thread_block();\n  auto pipe = cuda::make_pipeline(block, &state);\n"
        "  for (int s = 0; s < 2; ++s) {\n    pipe.producer_acquire();\n    cuda::memcpy_async(block, held[s], x + s * 64, sizeof(float) * 64, pipe);\n"
        "    pipe.producer_commit();\n  }\n  float sum = 0.f;\n  for (int s = 0; s < 2; ++s) {\n    pipe.consumer_wait();\n"
        "    sum += held[s][63 - t] * (s + 1);\n    pipe.consumer_release();\n  }\n  y[t] = sum;\n", X[63::-1] + 2 * X[:63:-1]),
    "a pipeline of a thread's own, and copies of a group": (
        "", "  __shared__ float4 own[16];\n  __shared__ float all[64];\n  auto pipe = cuda::make_pipeline();\n"
            "  if (t < 16) cuda::memcpy_async(&own[t], (const float4*)x + t, cuda::aligned_size_t<16>(16), pipe);\n  pipe.producer_commit();\n"
            "  cuda::pipeline_consumer_wait_prior<0>(pipe);\n  __syncthreads();\n  auto block = cooperative_groups::this_thread_block();\n"
            "  cooperative_groups::memcpy_async(block, all, x + 64, sizeof(all));\n  cooperative_groups::wait(block);\n"
            "  y[t] = own[t / 4].y + all[63 - t];\n", X[T // 4 * 4 + 1] + X[:63:-1]),
    "the largest of a list in braces": (
        "constexpr size_t most(std::initializer_list<size_t> of) { return std::max(of); }\n",
        "  __shared__ float own[most({sizeof(double), 64, 3})];\n  own[t] = x[t];\n  y[t] = own[t] + most({5, size_t(t)}) + std::min({t, 7, 9});\n",
        X[:64] + np.maximum(5, T) + np.minimum(T, 7)),
    "what an address is aligned to": (
        "",
        "  const float* p = x + t;\n  const int a = (int)(((16u - (unsigned)(uintptr_t)p) & 15u) >> 2);\n"
        "  const size_t both = (size_t)p | (size_t)(x + 2 * t);\n  y[t] = a + 10 * ((uintptr_t)p % 8 == 0) + 100 * ((both & 7) == 0 ? 2 : 1) + 0 * x[t];\n",
        -T % 4 + 10 * (T % 2 == 0) + 100 * np.where(T % 2, 1, 2)),
    "the largest of records in shared memory, with its place": (
        "struct D { float data; int at;\n  __device__ D operator+(const D& o) const { if (data > o.data) return {data, at}; else return {o.data, o.at}; }\n"
        "  __device__ D& operator+=(const D& o) { if (data > o.data) return *this; data = o.data; at = o.at; return *this; } };\n"
        "struct Temp { union { typename cub::BlockReduce<D, 64>::TempStorage all; float other[64]; } block; struct { D best; int more; } kept; };\n",
        "  extern __shared__ __align__(16) unsigned char pool[];\n  auto& temp = reinterpret_cast<Temp&>(pool);\n  D own[2];\n"
        "  for (int i = 0; i < 2; ++i) own[i] = {x[2 * t + i] * 128 + 2 * t + i, 2 * t + i};\n"
        "  D best = cub::BlockReduce<D, 64>(temp.block.all).Sum<2>(own);\n  if (t == 0) temp.kept.best = best;\n  __syncthreads();\n"
        "  D got = temp.kept.best;\n  y[t] = got.at + 1000 * (got.data == x[got.at] * 128 + got.at);\n",
        np.full(64, np.argmax(X * 128 + np.arange(128)) + 1000)),
    "comparisons that read as a template": (
        "", "  int i = t, n = 40, j = t - 2;\n  float out = 0.f;\n  if (i < n && j > -1) out += 1.f;\n  if (i < n - 10 && j > -1 && i != 7) out += 2.f;\n"
            "  if ((i < n && i > (j)) || n < i) out += 4.f;\n  if (i >= 0 && i < n && j >= 3 && j < 20) out += 8.f;\n  y[t] = out + 0.f * x[t];\n",
        1 * ((T < 40) & (T > 1)) + 2 * ((T < 30) & (T > 1) & (T != 7)) + 4 * (T != 40) + 8 * ((T < 22) & (T > 4))),
    "two numbers of eight bits at once": (
        "", "  __half2 own = __floats2half2_rn(x[t], x[t + 64] * 0.5f);\n"
            "  __nv_fp8x2_storage_t bits = __nv_cvt_halfraw2_to_fp8x2(__half2_raw(own), __NV_SATFINITE, __NV_E4M3);\n"
            "  __half2 back = __half2(__nv_cvt_fp8x2_to_halfraw2(bits, __NV_E4M3));\n  y[t] = __low2float(back) + 100.f * __high2float(back);\n",
        X[:64] + 50 * X[64:]),
    "unions of a function's own": (
        "", "  union Both { float f; unsigned u; };\n  union { half2 pair; uint32_t word; } val;\n  Both b;\n  b.f = x[t] + 0.5f;\n"
            "  b.u ^= 0x80000000u;\n  val.word = 0x3c004000u + t;\n  y[t] = b.f + __low2float(val.pair) + __high2float(val.pair);\n",
        -(X[:64] + 0.5) + 3 + (T / 512).astype(np.float32)),
    "CUDA's own functions beside templates of their names": (
        "template <typename T> __device__ T max(const T& a, const T& b) { return T{max(a.x, b.x), max(a.y, b.y)}; }\n"
        "namespace own { template <typename T> __device__ T min(const T& a, const T& b) { return a < b ? a - 100 : b - 100; }\n"
        "template <typename T> __device__ T least(T a, T b) { return min(a, b); } }\n",
        "  float2 both = max(make_float2(x[t], 1.f), make_float2(0.f, x[t]));\n  at::opmath_type<__half> wide = both.x + own::least(t, 7);\n"
        "  y[t] = wide + both.y;\n",
        np.maximum(X[:64], 0) + np.minimum(T, 7) - 100 + np.maximum(1, X[:64])),
    "a constant array behind a pointer, and an operator called by its name": (
        "__constant__ float odd[3] = {1.f, 3.f, 5.f};\n__constant__ float even[2] = {2.f, 4.f};\ntemplate <int N> __device__ const float* of();\n"
        "template <> __device__ const float* of<3>() { return odd; }\ntemplate <> __device__ const float* of<2>() { return even; }\n"
        "__device__ float plain(const __half v) { return __half2float(v.operator __half()); }\n",
        "  const float* p = of<3>();\n  float sum = 0.f;\n  for (int i = 0; i < 3; ++i) sum += p[i];\n"
        "  y[t] = sum + of<2>()[t % 2] + plain(__float2half(x[t]));\n",
        X[:64] + 9 + np.array([2, 4])[T % 2]),
    "a function of CUDA's for a type that is another of its types here": (
        "__device__ at::Half __shfl_up_sync(const unsigned mask, const at::Half v, const unsigned by) {\n"
        "  return __shfl_up_sync(mask, v.operator __half(), by);\n}\n",
        "  at::Half h = __float2half(x[t]);\n  y[t] = __half2float(__shfl_up_sync(0xffffffffu, h, 1u)) + 0.f * blockDim.x * (sizeof(c10::Half) == 2);\n",
        X[np.where(T % 32, T - 1, T)]),
    "loops over the elements of an array": (
        "", "  float own[3] = {2.f, x[t], 1e30f};\n  float sum = 0.f;\n  for (auto& v : own) v *= 2.f;\n"
            "  for (const float v : own) {\n    if (v > 1e29f) break;\n    sum += v;\n  }\n  y[t] = sum;\n", X[:64] * 2 + 4),
    "pointers to rows, which move": (
        "template <typename T, int N> __device__ T sum(T* all, int t) {\n  T (*rows)[N] = reinterpret_cast<T (*)[N]>(all);\n  rows += 1;\n"
        "  return rows[0][t] + rows[-1][t] * 2;\n}\n",
        "  __shared__ float all[128];\n  all[t] = x[t];\n  all[t + 64] = x[t + 64];\n  __syncthreads();\n  y[t] = sum<float, 64>(all, t);\n",
        X[64:128] + X[:64] * 2),
    "stores through a pointer into one of several arrays, which moves": (
        "", "  __shared__ float4 a[64], b[64];\n  a[t] = b[t] = make_float4(0.f, 0.f, 0.f, 0.f);\n  __syncthreads();\n  float4* p = t % 2 ? a : b;\n"
            "  p += t / 2;\n  *p = make_float4(x[t], 1.f, 2.f, 3.f);\n  p += 32;\n"
            "  p[0] = t % 4 < 2 ? make_float4(x[t], 0.f, 0.f, t) : make_float4(0.f, 0.f, 0.f, -t);\n"
            "  __syncthreads();\n  y[t] = a[t].x + 10.f * b[t].x + a[t].w + 10.f * b[t].w;\n",
        np.where(T < 32, X[(2 * T + 1) % 64] + 10 * X[2 * T % 64] + 33, 0)
        + np.where(T >= 32, (W := 2 * (T - 32)) * 0 + np.where((W + 1) % 4 < 2, X[(W + 1) % 64] + W + 1, -W - 1)
                   + 10 * np.where(W % 4 < 2, X[W % 64] + W, -W), 0)),
    "objects that become pointers": (
        "template <typename T> struct Own { T* held; __device__ operator T*() { return held; } };\n",
        "  __shared__ float all[128];\n  all[t] = x[t];\n  all[t + 64] = x[t + 64];\n  __syncthreads();\n  Own<float> own{all};\n  float* p = own;\n"
        "  float* q = own + 64;\n  y[t] = p[63 - t] + q[t] * 2;\n", X[63::-1] + 2 * X[64:128]),
    "lists inside lists": (
        "struct P { float head[4]; float rows[2][2]; };\n",
        "  float a[3][2] = {{1.f, 2.f}, {3.f, 4.f}};\n  P p[2] = {};\n  p[1] = P{{5.f}, {{6.f, 7.f}, {8.f, x[t]}}};\n"
        "  y[t] = a[t % 3][t % 2] + 10.f * p[t % 2].rows[t / 2 % 2][t % 2] + 0.f * x[t];\n",
        np.array([[1, 2], [3, 4], [0, 0]])[T % 3, T % 2] + 10 * np.where(T % 2, np.where(T // 2 % 2, X[:64], 7), 0)),
}


@pytest.mark.parametrize("what", COMPUTED)
def test_it_computes_what_c_says(tmp_path: Path, what: str) -> None:
    before, body, expected = COMPUTED[what]
    assert (result(tmp_path, f"{before}{HEAD}{body}}}\n") == expected).all()


PHILOX = """template <int lane, int rounds>
__device__ unsigned bits(unsigned long long seed, unsigned c0, unsigned c1, unsigned c2, unsigned c3) {
  unsigned k0 = static_cast<unsigned>(seed), k1 = static_cast<unsigned>(seed >> 32);
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const unsigned high = __umulhi(0xD2511F53u, c0), low = 0xD2511F53u * c0, up = __umulhi(0xCD9E8D57u, c2), down = 0xCD9E8D57u * c2;
    c0 = up ^ c1 ^ k0;
    c1 = down;
    c2 = high ^ c3 ^ k1;
    c3 = low;
    k0 += 0x9E3779B9u;
    k1 += KEY;
  }
  return lane == 0 ? c0 : lane == 1 ? c1 : lane == 2 ? c2 : c3;
}
""" + HEAD + "  y[t] = float(bits<1, 10>(7ull, unsigned(t), 0u, 0u, 0u) >> 8) + 0.f * x[t];\n}\n"


@pytest.mark.parametrize(("key", "whole"), [("0xBB67AE85u", True), ("0xBB67AE84u", False)])
def test_random_bits_are_a_word_where_they_are_philox(tmp_path: Path, key: str, whole: bool) -> None:
    source = PHILOX.replace("KEY", key)
    (tmp_path / "p.cu").write_text(source)
    assert ("philox" in str(read(tmp_path / "p.cu", "k", BINDING))) == whole


WRITTEN = {
    "vectors of more bytes than one access moves, filled where a mask leaves them out": (
        "__global__ void k(const half* x, half* y, unsigned n) {\n  const unsigned t = threadIdx.x;\n  half own[16];\n"
        "  for (int i = 0; i < 16; ++i) own[i] = 0.f;\n  if (t * 16 < n) {\n#pragma unroll\n"
        "    for (size_t i = 0; i < 2; ++i) ((uint4*)own)[i] = ((const uint4*)(x + t * 16))[i];\n  }\n"
        "#pragma unroll\n  for (int i = 0; i < 16; ++i) own[i] = __float2half(__half2float(own[i]) * 2.f);\n"
        "  if (t * 16 < n) {\n#pragma unroll\n    for (size_t i = 0; i < 2; ++i) ((uint4*)(y + t * 16))[i] = ((uint4*)own)[i];\n  }\n}\n"
        "void go(const half* x, half* y, unsigned n) { k<<<1, 64>>>(x, y, n); }\n"),
    "values that a function returns through pointers, for each element of a vector": (
        "__global__ void k(const float4* x, float4* y, float r) {\n  const int t = threadIdx.x;\n  float own[4];\n  *(float4*)own = x[t];\n"
        "#pragma unroll\n  for (int i = 0; i < 4; ++i) {\n    float s, c, at = own[i] * r;\n    __sincosf(at, &s, &c);\n"
        "    own[i] = own[i] * c + (t < 8 ? -own[i] : own[i]) * s;\n"
        "  }\n  y[t] = *(float4*)own;\n}\nvoid go(const float4* x, float4* y, float r) { k<<<1, 64>>>(x, y, r); }\n"),
    "vectors that are added atomically": (
        "__global__ void k(const half2* x, half2* y, float4* z) {\n  const int t = threadIdx.x;\n  atomicAdd(&y[t / 2], x[t]);\n"
        "  atomicAdd(z + t % 4, make_float4(1.f, 2.f, 3.f, t));\n}\nvoid go(const half2* x, half2* y, float4* z) { k<<<1, 64>>>(x, y, z); }\n"),
    "rows that are longer than what is used of them": (
        "__global__ void k(const float* x, float* y) {\n  __shared__ float tile[8][9];\n  const int a = threadIdx.x / 8, b = threadIdx.x % 8;\n"
        "  tile[a][b] = x[threadIdx.x];\n  __syncthreads();\n  y[threadIdx.x] = tile[b][a];\n}\nvoid go(const float* x, float* y) { k<<<1, 64>>>(x, y); }\n"),
    "elements loaded, or filled where there are none, row by row": (
        "__global__ void k(const float* x, float* y, int n, int rows) {\n  const int t = threadIdx.x;\n  float own[1][2], more[2];\n"
        "#pragma unroll\n  for (int i = 0; i < 2; ++i) { if (t * 2 + i < n) more[i] = x[n * rows + t * 2 + i]; else more[i] = -1e8f; }\n"
        "  for (int r = 0; r < 1 && r < rows; ++r) {\n#pragma unroll\n    for (int i = 0; i < 2; ++i) {\n"
        "      if (t * 2 + i < n) own[r][i] = x[r * n + t * 2 + i]; else own[r][i] = -1e8f;\n    }\n  }\n"
        "  for (int i = 0; i < 2; ++i) { if (own[0][i] > more[i]) y[t * 2 + i] = own[0][i]; }\n}\n"
        "void go(const float* x, float* y, int n, int rows) { k<<<1, 64>>>(x, y, n, rows); }\n"),
    "bytes that are combined as a whole number": (
        "__global__ void k(const uint2* x, uint2* y) {\n  uint2 a = y[threadIdx.x], b = x[threadIdx.x];\n"
        "  *(unsigned long long*)&a |= *(unsigned long long*)&b;\n  y[threadIdx.x] = a;\n}\nvoid go(const uint2* x, uint2* y) { k<<<1, 64>>>(x, y); }\n"),
    "halves that are computed with as whole numbers": (
        "__global__ void k(const float4* x, float4* y, float f) {\n  float4 a = x[threadIdx.x], b = __ldg(&y[threadIdx.x]);\n"
        "  half2* p = (half2*)&a;\n  const half2* q = (const half2*)&b;\n  for (int i = 0; i < 4; ++i) p[i] = __hmul2(p[i], q[i]);\n"
        "  a.x = a.x * f + b.x;\n  a.w = a.w * f + b.w;\n  y[threadIdx.x] = a;\n}\nvoid go(const float4* x, float4* y, float f) { k<<<1, 64>>>(x, y, f); }\n"),
    "halves that are stored four floats at a time, and floats loaded as bits": (
        "__global__ void k(const float4* x, half* y, int n) {\n  const int t = blockIdx.x * 64 + threadIdx.x;\n  if (t >= n) return;\n"
        "  float4 a = __ldg(&((const float4*)x)[t]);\n  float4* out = reinterpret_cast<float4*>(y);\n  a.x = a.x * 2.f;\n  out[t] = a;\n}\n"
        "void go(const float4* x, half* y, int n) { k<<<n / 64, 64>>>(x, y, n); }\n"),
    "four random numbers a thread, kept where they are large": (
        "__global__ void k(const float4* x, float4* y, unsigned long long seed, float p) {\n  const int t = blockIdx.x * 64 + threadIdx.x;\n"
        "  curandStatePhilox4_32_10_t state;\n  curand_init(seed, t, 0, &state);\n  const float4 r = curand_uniform4(&state);\n  float4 a = x[t];\n"
        "  a.x = r.x > p ? a.x : 0.f;\n  a.y = r.y > p ? a.y : 0.f;\n  a.z = r.z > p ? a.z : 0.f;\n  a.w = r.w > p ? a.w : 0.f;\n  y[t] = a;\n}\n"
        "void go(const float4* x, float4* y, unsigned long long s, float p) { k<<<4, 64>>>(x, y, s, p); }\n"),
    "an index that is widened twice": (
        "__global__ void k(const float* x, const int* rows, float* y, unsigned stride) {\n  const size_t row = rows[threadIdx.x];\n"
        "  y[threadIdx.x] = x[row * stride + threadIdx.x];\n}\n"
        "void go(const float* x, const int* rows, float* y, unsigned s) { k<<<1, 64>>>(x, rows, y, s); }\n"),
    "a masked vector that zeroes itself": (
        "__device__ void get(void* to, const void* from, bool wanted) {\n  uint4* p = reinterpret_cast<uint4*>(to);\n"
        '  asm volatile("{.reg .pred q;\\n setp.ne.b32 q, %5, 0;\\n mov.b32 %0, 0;\\n mov.b32 %1, 0;\\n mov.b32 %2, 0;\\n mov.b32 %3, 0;\\n"\n'
        '               "@q ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\\n}" : "=r"(p[0].x), "=r"(p[0].y), "=r"(p[0].z), "=r"(p[0].w)\n'
        '               : "l"(from), "r"((int)wanted));\n}\n'
        "__global__ void k(const float* x, float* y, int n) {\n  const int t = threadIdx.x * 4;\n  float own[4];\n  get(own, x + t, t < n);\n"
        "#pragma unroll\n  for (int i = 0; i < 4; ++i) y[t + i] = own[i] * 2.f;\n}\nvoid go(const float* x, float* y, int n) { k<<<1, 64>>>(x, y, n); }\n"),
    "a quotient where its sign is known": (
        "__global__ void k(const float* x, float* y, int n) {\n  if (n > 32) { for (int i = 1; i < (n >> 5); i *= 2) y[i] = x[i]; }\n}\n"
        "void go(const float* x, float* y, int n) { k<<<1, 64>>>(x, y, n); }\n"),
    "a function template as an argument": (
        "template <typename T> __device__ T twice(T a) { return a + a; }\ntypedef float (*fn)(float);\n"
        "template <fn F> __global__ void k(const float* x, float* y) { y[threadIdx.x] = F(x[threadIdx.x]); }\n"
        "void go(const float* x, float* y) { k<twice<float>><<<1, 64>>>(x, y); }\n"),
    "accessors of PyTorch": (
        "template <typename T> __global__ void k(const torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> x, float* y) {\n"
        "  if (threadIdx.x < x.size(1)) y[threadIdx.x] = x[blockIdx.x][threadIdx.x] * 2.f;\n}\n"
        "void go(torch::Tensor x, float* y) { k<float><<<x.size(0), 64>>>(x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(), y); }\n"),
    "a tensor's sizes in a struct": (
        "using Info = at::cuda::detail::TensorInfo<long, int>;\n"
        "__global__ void k(const Info x, float* y) {\n  const int t = threadIdx.x;\n"
        "  const int row = x.data[at::cuda::detail::IndexToOffset<long, int, -1>::get(t, x)];\n"
        "  for (int i = 0; i < 3; ++i) y[t * 3 + i] = row * 3 + i;\n}\nvoid go(Info x, float* y) { k<<<1, 64>>>(x, y); }\n"),
    "a pointer that may be null, and a reference to an array": (
        "struct P { const float* a; int n; };\n__device__ float last(const float2 (&v)[2]) { return v[1].y; }\n"
        "__global__ void k(const float4* x, float* y, P p) {\n  const int t = threadIdx.x;\n"
        "  const float* first = p.a == nullptr || t > p.n ? nullptr : p.a + t;\n  __shared__ float4 held[64];\n  float own[4] = {0.f};\n"
        "  if (t < p.n) *reinterpret_cast<float4*>(own) = x[t];\n  held[t] = *reinterpret_cast<float4*>(own);\n  __syncthreads();\n"
        "  if (first != nullptr) own[0] = own[0] + *first;\n"
        "  y[t] = last(reinterpret_cast<float2 (&)[2]>(own)) + own[0] + held[63 - t].x;\n}\n"
        "void go(const float4* x, float* y, P p) { k<<<1, 64>>>(x, y, p); }\n"),
    "an array of one number, and integers narrowed where they are loaded": (
        "__global__ void k(const float* x, const long* rows, float* y, int n) {\n  const int t = threadIdx.x;\n  float own[1];\n"
        "  const int row = __ldg(rows + t);\n  for (int i = 0; i < 1; ++i) own[i] = x[t];\n"
        "  for (int k = 0; k < n; ++k) y[k * n + row] = own[0] * x[k * 2 + row];\n}\n"
        "void go(const float* x, const long* rows, float* y, int n) { k<<<1, 64>>>(x, rows, y, n); }\n"),
    "bytes of which one view is all that is used": (
        "struct P { const float* x; void* y; int n; };\n"
        "__global__ void k(P p) {\n  float* y = reinterpret_cast<float*>(p.y) + threadIdx.x;\n"
        "  for (int i = 0; i < p.n; ++i) {\n    *reinterpret_cast<float4*>(y) = make_float4(p.x[i], 1.f, 2.f, 3.f);\n    y += 64;\n  }\n}\n"
        "void go(P p) { k<<<1, 64>>>(p); }\n"),
    "an array of pointers that advance": (
        "__global__ void k(const float4* x, float* y, int n) {\n  const int t = threadIdx.x;\n  const float4* at[2];\n  float sum = 0.f;\n"
        "#pragma unroll\n  for (int i = 0; i < 2; ++i) at[i] = x + i * n + t;\n"
        "  for (int k = 0; k < n; ++k) {\n#pragma unroll\n    for (int i = 0; i < 2; ++i) { sum += (*at[i]).x; at[i] += 64; }\n  }\n  y[t] = sum;\n}\n"
        "void go(const float4* x, float* y, int n) { k<<<1, 64>>>(x, y, n); }\n"),
    "halves of whole numbers, one pair after the other": (
        "__global__ void k(const int4* x, const int4* z, float* y) {\n  int4 a = x[threadIdx.x], b = z[threadIdx.x];\n"
        "  half2* p = reinterpret_cast<half2*>(&a);\n  half2* q = reinterpret_cast<half2*>(&b);\n  half2 r = {};\n"
        "#pragma unroll\n  for (int j = 0; j < 4; ++j) r = __hfma2(p[j], q[j], r);\n  y[threadIdx.x] = __half2float(r.x) + __half2float(r.y);\n}\n"
        "void go(const int4* x, const int4* z, float* y) { k<<<1, 64>>>(x, z, y); }\n"),
    "matrices of halves in shared memory that holds vectors of whole numbers": (
        "__global__ void k(const int4* x, unsigned* y) {\n  __shared__ int4 s[64];\n  const int t = threadIdx.x;\n  s[t] = x[t];\n  __syncthreads();\n"
        "  unsigned a[4];\n  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&s[t]));\n"
        "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\"\n"
        "    : \"=r\"(a[0]), \"=r\"(a[1]), \"=r\"(a[2]), \"=r\"(a[3]) : \"r\"(at));\n"
        "  for (int i = 0; i < 4; ++i) y[t * 4 + i] = a[i];\n}\n"
        "void go(const int4* x, unsigned* y) { k<<<1, 64>>>(x, y); }\n"),
    "vectors of another sign, copied asynchronously": (
        "__global__ void k(const uint4* x, float* y) {\n  __shared__ int4 s[64];\n  const int t = threadIdx.x;\n"
        "  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&s[t]));\n"
        "  asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\" :: \"r\"(at), \"l\"(x + t));\n"
        "  asm volatile(\"cp.async.commit_group;\");\n  asm volatile(\"cp.async.wait_group 0;\");\n  __syncthreads();\n  y[t] = s[63 - t].y;\n}\n"
        "void go(const uint4* x, float* y) { k<<<1, 64>>>(x, y); }\n"),
    "shared memory of a size that the launch says, in a function that the kernel calls": (
        "template <int N, typename T> __device__ void turned(const T* x, T* y, int t) {\n  extern __shared__ __align__(16) unsigned char raw[];\n"
        "  T (*rows)[N] = reinterpret_cast<T (*)[N]>(raw);\n  rows[1][t] = x[t];\n  __syncthreads();\n  y[t] = rows[1][N - 1 - t];\n}\n"
        "template <typename T> __global__ void k(const T* x, T* y) { turned<64, T>(x, y, threadIdx.x); }\n"
        "void go(const float* x, float* y, int bytes) { k<float><<<1, 64, bytes>>>(x, y); }\n"),
    "a row of a thread, stored under a mask at a place in 64 bits": (
        "__global__ void k(const float* x, float* y, int n) {\n  float own[4] = {};\n  const int t = threadIdx.x * 4;\n  for (int k = 0; k < n; ++k)\n"
        "#pragma unroll\n    for (int i = 0; i < 4; ++i) own[i] += x[t + i + k];\n"
        "#pragma unroll\n  for (int i = 0; i < 4; ++i) {\n    int c = t + i;\n    if (c < n) y[(size_t)blockIdx.x * n + c] = own[i];\n  }\n}\n"
        "void go(const float* x, float* y, int n) { k<<<4, 64>>>(x, y, n); }\n"),
    "lanes that are active, and masks of them": (
        "__global__ void k(int* to, int* count, const int* x, int n) {\n  const int t = blockIdx.x * 64 + threadIdx.x;\n  if (t < n && x[t] > 0) {\n"
        "    auto g = cooperative_groups::coalesced_threads();\n    int at;\n    if (g.thread_rank() == 0) at = atomicAdd(count, g.size());\n"
        "    to[g.shfl(at, 0) + g.thread_rank()] = x[t];\n    __syncwarp(__ballot_sync(__match_any_sync(__activemask(), x[t]), t < 9));\n  }\n}\n"
        "void go(int* to, int* count, const int* x, int n) { k<<<n / 64, 64>>>(to, count, x, n); }\n"),
    "accessors of PyTorch, handed to a function, and a count that is a float": (
        "template <typename T, size_t N> using Rows = torch::PackedTensorAccessor32<T, N, torch::RestrictPtrTraits>;\n"
        "template <typename T> __device__ T two(torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> a, int b) { return a[b][0] + a[b][1]; }\n"
        "template <typename T> __device__ T three(Rows<T, 2> a, int b) { return two(a, b) + a[b][2]; }\n"
        "template <typename T> __global__ void k(torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> x, float* y) {\n"
        "  const int b = blockIdx.x * 64 + threadIdx.x;\n  auto last = x[b][0];\n  for (int i = 0; i < last; ++i) y[b] += three(x, b);\n}\n"
        "void go(torch::Tensor x, float* y) {\n  k<float><<<x.size(0) / 64, 64>>>(x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(), y);\n}\n"),
    "a place in one of two arrays": (
        "struct P { const float* q; const float* g; float* y; };\n__global__ void k(P p, int n) {\n  for (int s = 0; s < 2; ++s) {\n"
        "    const float* at = &(s == 0 ? p.q : p.g)[threadIdx.x * n];\n    p.y[threadIdx.x + s * 64] = at[0] + at[1];\n  }\n}\n"
        "void go(P p, int n) { k<<<1, 64>>>(p, n); }\n"),
    "rows and columns by one number": (
        "template <int N> __global__ void k(float* a) {\n  __shared__ float s[N][N + 1];\n  const int t = threadIdx.x;\n"
        "  for (int i = 0; i < N; ++i) s[i][t] = a[i * N + t];\n  __syncthreads();\n  for (int k = 0; k < N; ++k) {\n"
        "    if (t == k) s[k][k] = sqrtf(s[k][k]);\n    __syncthreads();\n    for (int j = k + 1; j <= t; ++j) s[t][j] -= s[t][k] * s[j][k];\n"
        "    __syncthreads();\n  }\n  for (int i = 0; i < N; ++i) a[i * N + t] = s[i][t];\n}\nvoid go(float* a) { k<16><<<1, 16>>>(a); }\n"),
    "a flag that is waited for": (
        "__global__ void k(float* x, volatile int* flag) {\n  if (threadIdx.x == 0) while (flag[blockIdx.x] == 0) {}\n  __syncthreads();\n"
        "  x[threadIdx.x] += 1.f;\n  if (threadIdx.x == 0) flag[blockIdx.x + 1] = 1;\n}\n"
        "void go(float* x, volatile int* flag) { k<<<4, 64>>>(x, flag); }\n"),
    "an array inside a struct": (
        "struct S { float v[2]; int n; };\n__global__ void k(const float* x, float* y, S s) { y[threadIdx.x] = x[threadIdx.x] * s.v[0] + s.v[1]; }\n"
        "void go(const float* x, float* y, S s) { k<<<1, 64>>>(x, y, s); }\n"),
    "what is left of a vector, counted on in the same variable": (
        "__global__ void k(const float* x, float* y, int n) {\n  int i = (blockIdx.x * 64 + threadIdx.x) * 4;\n  if (i + 3 < n) {\n"
        "    *(float4*)(y + i) = *(const float4*)(x + i);\n  } else {\n    for (; i < n; ++i) y[i] = x[i];\n  }\n}\n"
        "void go(const float* x, float* y, int n) { k<<<(n + 255) / 256, 64>>>(x, y, n); }\n"),
    "a struct that a function takes by value and gives back, and shared memory that is cut at a size": (
        "__device__ float3 more(float3 a, float s) { a.x += s; a.y -= s; a.z *= s; return a; }\n__global__ void k(const float* x, float3* y, int n) {\n"
        "  extern __shared__ float row[];\n  float* all = row + n;\n  float3 a = make_float3(0.f, 0.f, 1.f);\n"
        "  for (int i = threadIdx.x; i < n; i += 64) { row[i] = x[i]; a = more(a, x[i]); }\n  all[threadIdx.x] = a.x;\n  __syncthreads();\n"
        "  a.y += all[63 - threadIdx.x];\n  for (int i = threadIdx.x; i < n; i += 64) a.z += row[n - 1 - i];\n  y[threadIdx.x] = a;\n}\n"
        "void go(const float* x, float3* y, int n) { k<<<1, 64, (n + 64) * sizeof(float)>>>(x, y, n); }\n"),
    "the bits of CUB's traits": (
        "template <typename T> __global__ void k(const T* x, typename cub::Traits<T>::UnsignedBits* y) {\n  T v = x[threadIdx.x];\n"
        "  y[threadIdx.x] = cub::Traits<T>::TwiddleIn(reinterpret_cast<typename cub::Traits<T>::UnsignedBits&>(v)) >> 4;\n}\n"
        "void go(const float* x, unsigned* y) { k<float><<<1, 64>>>(x, y); }\n"),
    "tries around a swap, of words that are floats": (
        "__device__ void raise(float* at, float v) {\n  int* words = (int*)at;\n  int old = *words, seen;\n  do {\n    seen = old;\n"
        "    old = atomicCAS(words, seen, __float_as_int(fmaxf(v, __int_as_float(seen))));\n  } while (seen != old);\n}\n"
        "__global__ void k(const float* x, float* y) { raise(y, x[blockIdx.x * 64 + threadIdx.x]); }\n"
        "void go(const float* x, float* y, int n) { k<<<n / 64, 64>>>(x, y); }\n"),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_what_is_read_is_written_back(tmp_path: Path, what: str) -> None:
    file = tmp_path / "k.cu"
    file.write_text(WRITTEN[what])
    (record,) = examine(file, frozenset(), lambda name: None)
    assert record["state"] == "equal", record


def test_a_place_past_the_end_of_an_array_is_named(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(HEAD + "  float own[2];\n  own[3] = x[t];\n  y[t] = own[3];\n}\n")
    reasons = [s.reason for s in opaque_statements(read(tmp_path / "k.cu", "k"))]
    assert reasons and all("past the end" in r for r in reasons)


def threads(body: str, before: str = "") -> str:
    """A kernel of 64 threads with its launch."""
    head = f"{before}__global__ void k(float* x, float* y, int n) {{\n  const int t = threadIdx.x;\n"
    return f"{head}{body}\n}}\nvoid go(float* x, float* y, int n) {{ k<<<1, 64>>>(x, y, n); }}\n"


WHOLE = "  float own[4] = {FILL, FILL, FILL, FILL};\n  if (t < n) *(float4*)own = ((const float4*)x)[t];\n  y[t] = own[PLACE] * 2.f;"
ROW = "  float own[4];\n  for (int i = 0; i < 4; ++i) own[i] = x[t * 4 + i];\n#pragma unroll\n"
ROW += "  for (int i = 0; i < 4; ++i) if (t * 4 + i PAST n) y[t * 4 + i] = own[i];"
DIFFERENT = {
    "which of a row are stored": tuple(threads(ROW.replace("PAST", sign)) for sign in ("<", "<=")),
    "what stands where nothing is loaded": tuple(threads(WHOLE.replace("FILL", f"{x}.f").replace("PLACE", "1")) for x in (0, 1)),
    "which part of a vector": tuple(threads(WHOLE.replace("FILL", "0.f").replace("PLACE", f"{x}")) for x in (1, 2)),
    "a value loaded before it is written over": (
        threads("  float a = x[t] * 2.f;\n  x[t] = 0.f;\n  y[t] = a;"), threads("  x[t] = 0.f;\n  float a = x[t] * 2.f;\n  y[t] = a;")),
    "lanes that meet, and those of a branch": (
        threads("  float a = __shfl_xor_sync(0xffffffffu, x[t], 1);\n  if (t < n) y[t] = a;"),
        threads("  if (t < n) { float a = __shfl_xor_sync(0xffffffffu, x[t], 1);\n  y[t] = a; }")),
    "how long the rows are": tuple(
        threads(f"  __shared__ float tile[8][{rows}];\n  tile[t / 8][t % 8] = x[t];\n  __syncthreads();\n  y[t] = tile[t % 8][t / 8];") for rows in (9, 10)),
    "bits and the number": (threads("  y[t] = __uint_as_float(__float_as_uint(x[t]) & 7u);"), threads("  y[t] = float(unsigned(x[t]) & 7u);")),
    "a variable before and after it changes": (
        threads("  float own[2] = {x[t], 0.f};\n  float a = own[0];\n  own[0] = x[t + n];\n  y[t] = a + own[1] + own[0] * 0.f;"),
        threads("  float own[2] = {x[t], 0.f};\n  own[0] = x[t + n];\n  float a = own[0];\n  y[t] = a + own[1] + own[0] * 0.f;")),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_computes_something_else_is_not_the_same(tmp_path: Path, what: str) -> None:
    made = []
    for k, source in enumerate(DIFFERENT[what]):
        file = tmp_path / f"k{k}.cu"
        file.write_text(source)
        reader: Any = frontend("cuda")
        (each,) = reader.specializations(file)
        program = reader.instantiate(file, each.name, each.binding)
        made.append(raised(specialize(program, neutral(program, each.binding))))
    assert same_thread(made[0], made[0]) and same_thread(made[1], made[1])
    assert not same_thread(*made) and not same_thread(*reversed(made))


@pytest.mark.parametrize(("body", "reason"), [
    ("  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> s;\n  auto block = cooperative_groups::this_thread_block();\n"
     "  auto pipe = cuda::make_pipeline(block, &s, 32);\n  y[t] = a.n;", "make_pipeline"),
    ("  y[t] = a.n + ((uintptr_t)x % 64 == 0);", "aligned to: 64 bytes, where 16"),
    ("  y[t] = a.n + ((uintptr_t)x > 64);", "the operator > on a pointer"),
    ("  P* at = &a;\n  if (n > 3) at = &b;\n  y[t] = at->x.y + at->n;", "set again"),
    ("  P* at = n > 3 ? &a : &b;\n  y[t] = at->x.y + at->n;", "a choice between pointers to objects"),
    ("  y[t] = (&a)->x.y + (&a == &b ? 1.f : 0.f);", "on a pointer to an object"),
    ("  for (auto v : a) y[t] = v;", "a loop over"),
    ("  (n > 3 ? a : b).n = 4;\n  y[t] = a.n;", "no place"),
    ("  const float* p = nullptr;\n  y[t] = first(p) + a.n;\n  p = x;", "points nowhere yet"),
    ("  float* p = n > 3 ? x : y;\n  p += t;\n  p = x;\n  *p = 1.f;", "set again"),
])
def test_what_has_no_form_is_refused_by_its_name(tmp_path: Path, body: str, reason: str) -> None:
    head = "  P a, b;\n  a.n = t;\n  b.n = n;\n  a.x = b.x = ((const float2*)x)[t];\n"
    (tmp_path / "k.cu").write_text(threads(head + body, "struct P { float2 x; int n; };\n__device__ float first(const float* p) { return p[0]; }\n"))
    assert any(reason in s.reason for s in opaque_statements(read(tmp_path / "k.cu", "k")))


def test_what_an_address_was_taken_to_be_aligned_to_is_promised(tmp_path: Path) -> None:
    """A kernel that was read for tensors at multiples of 16 bytes is none for others; read under a binding that says less, it is kept as text."""
    (tmp_path / "k.cu").write_text(f"{HEAD}  y[t] = x[t] + ((uintptr_t)(x + t) % 16 == 0);\n}}\n")
    plain = BINDING.replace("shared_bytes = 1024\n", "")
    less = Binding.parse(plain.replace('dtype = "f32"}', 'dtype = "f32", align = 4}', 1))
    generic = frontend("cuda").parse(tmp_path / "k.cu", "k")
    with pytest.raises(KirError, match=r"KIR-F011.*aligned to 4 bytes"):
        specialize(generic, less)
    assert not opaque_statements(specialize(generic, Binding.parse(plain)))
    reasons = [s.reason for s in opaque_statements(read(tmp_path / "k.cu", "k", less.text()))]
    assert any("aligned to: 16 bytes, where 4" in r for r in reasons)
