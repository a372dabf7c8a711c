"""Pointers that stand in memory as rows of a tensor, forms and words that packages use, and classes that a template's parameters may be."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.learning.corpus.roundtrip.one import examine
from kir.surface import backend, frontend
from tests.frontends.cuda.reading import read
from tests.frontends.reading import opaque_statements
from tests.round_trips import CUDA

X = np.random.default_rng(5).integers(-9, 9, (4, 64)).astype(np.float32)
T = np.arange(64)
SUM = ("template <typename P, int N> __device__ P sum(const P* from[], int at) {\n  P s = from[0][at];\n#pragma unroll\n"
       "  for (int i = 1; i < N; ++i) s += from[i][at];\n  return s;\n}\n")
RECORDS = "struct Arg { const float* rows[4]; float* out; cudaStream_t stream; int n; };\nstruct Table { void* at[4]; };\n"
ROWS = {
    "an array of pointers": ("const float* const* p, float* y", "  y[t] = p[2][t] + *(p[1] + t) - (*p)[t];\n", "p_rows", "y", X[2] + X[1] - X[0]),
    "an array of them in a record, beside what only the host uses": (
        "Arg a", "  float s = 0;\n  for (int k = 0; k < 4; ++k) s += a.rows[k][t];\n"
        "  a.n -= 1;\n  if (t <= a.n) a.out[t] = s;\n", "a_rows_rows", "a_out", X.sum(axis=0)),
    "a record of nothing but pointers, copied, and handed on as what they are cast to": (
        "Table* p, float* y", "  auto own = *p;\n  y[t] = sum<float, 4>((const float**)&own.at[0], t);\n", "p_rows", "y", X.sum(axis=0)),
    "an array of the thread's own, filled in another order": (
        "Table* p, float* y", "  const float* own[3];\n#pragma unroll\n  for (int k = 0; k < 3; ++k) own[k] = (const float*)p->at[(k + 2) % 4];\n"
        "  y[t] = sum<float, 3>(own, t);\n", "p_rows", "y", X[2] + X[3] + X[0])}


@pytest.mark.parametrize("what", ROWS)
def test_pointers_in_memory_are_rows_of_one_tensor(tmp_path: Path, what: str) -> None:
    parameters, body, rows, out, wanted = ROWS[what]
    file = tmp_path / "k.cu"
    file.write_text(f"{RECORDS}{SUM}__global__ void k({parameters}) {{\n  const int t = threadIdx.x;\n{body}}}\n")
    generic = frontend("cuda").parse(file, "k")
    dtype = next(p.of.dtype for p in generic.params if p.name == rows and isinstance(p.of, n.Buffer))
    each = 4 // dtype.bytes
    given = {f"{rows}_step": 64 * each, **({"a_n": 64} if "a_n" in {p.name for p in generic.params} else {})}
    lines = ['kernel = "k"', "grid = [1]", "[metas]", "threads_x = 64", "[scalars]", *(f'{k} = "{v}"' for k, v in given.items()), "[tensors]",
             f'{rows} = {{shape = [{256 * each}], dtype = "{dtype.name}"}}', f'{out} = {{shape = [64], dtype = "f32", role = "out"}}']
    program = read(file, "k", "\n".join(lines))
    assert not opaque_statements(program)
    found = run(program, {rows: X.reshape(-1).view(np.uint8) if each > 1 else X.reshape(-1)}, {}, mode="check")
    assert found.errors == () and np.array_equal(np.asarray(found.outputs[out]).reshape(-1), wanted)


def test_the_bits_of_pointers_stay_text(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("__global__ void k(float** p, unsigned long long* y) {\n  y[threadIdx.x] = reinterpret_cast<unsigned long long*>(p)[threadIdx.x];\n}\n")
    assert "the bits of the pointers in 'p'" in opaque_statements(frontend("cuda").parse(file, "k"))[0].reason


ONE = X.reshape(-1)
ORDER = np.argsort(-ONE[:64], kind="stable")
FORMS = {
    "a sort of CUB's, of keys with numbers": (
        "using Sort = cub::BlockRadixSort<int, 64, 1, int>;\n",
        "  __shared__ Sort::TempStorage s;\n  int key[1] = {int(x[t])}, from[1] = {t};\n  Sort(s).SortDescending(key, from);\n"
        "  y[t] = 1000 * key[0] + from[0];\n",
        1000 * ONE[ORDER] + ORDER),
    "a sort of some of the bits, two to a thread": (
        "using Sort = cub::BlockRadixSort<unsigned, 32, 2>;\n",
        "  __shared__ Sort::TempStorage s;\n  if (blockDim.x == 32) {\n    unsigned keys[2] = {16 * t + unsigned(x[2 * t] + 9) % 16, 16 * t + 7};\n"
        "    Sort(s).Sort(keys, 0, 4);\n    y[2 * t] = keys[0] % 16;\n    y[2 * t + 1] = keys[1] % 16;\n  }\n", None),
    "scans of two elements a thread, one with a prefix that is kept": (
        "using Scan = cub::BlockScan<float, 64>;\n"
        "struct Run { float held; __device__ float operator()(float all) { const float was = held; held += all; return was; } };\n",
        "  __shared__ typename Scan::TempStorage s;\n  float v[2] = {x[2 * t], x[2 * t + 1]};\n  Run run{10.f};\n"
        "  Scan(s).InclusiveScan(v, v, cub::Sum(), run);\n  __syncthreads();\n  Scan(s).InclusiveScan(v, v, cub::Sum());\n"
        "  y[t] = v[1] - (t == 0 ? run.held : 0.f);\n",
        np.cumsum(10 + np.cumsum(ONE[:128]))[1::2] - np.where(np.arange(64) == 0, 10 + ONE[:128].sum(), 0)),
    "types as tags": (
        "template <typename F> __device__ float twice(F f, float v) { return f(f(v, std::true_type{}), std::false_type{}); }\n",
        "  auto f = [&](float v, auto tag) { constexpr bool ADD = decltype(tag)::value; if constexpr (ADD) return v + 1; else return v * 2; };\n"
        "  y[t] = twice(f, x[t]);\n", 2 * (ONE[:64] + 1)),
    "a lambda with template parameters of its own": (
        "", "  auto f = [&]<int N, typename V>(int at) { return V(x[at] * N); };\n  y[t] = f.template operator()<3, float>(t);\n", 3 * ONE[:64]),
    "a union without a name": (
        "__device__ int low(int v) { union { short h[2]; int w; }; w = v; return h[0]; }\n", "  y[t] = low(65536 * 7 + int(x[t]));\n", ONE[:64]),
    "a union from its second member by name": (
        "union P { int w; float f; };\n", "  P p{.f = x[t]};\n  y[t] = p.f;\n", ONE[:64]),
    "a variable template as an argument": (
        "template <typename T> constexpr bool small = sizeof(T) < 4;\ntemplate <bool B> __device__ int word() { return B ? 1 : 2; }\n",
        "  y[t] = x[t] + word<small<float>>();\n", ONE[:64] + 2),
    "the bits of an eight-bit float": (
        "", "  __nv_fp8_e4m3 v = __nv_fp8_e4m3(x[t] > 0 ? 1.f : -1.f);\n  unsigned char bits = v.__x;\n  y[t] = bits;\n", np.where(ONE[:64] > 0, 0x38, 0xB8)),
    "what CUDA's words stand for": (
        "__attribute__((device)) float one(float v) { return v + 1; }\n",
        "  __attribute__((shared)) float s[64];\n  s[t] = one(x[t]);\n  __syncthreads();\n  y[t] = s[63 - t];\n", (ONE[:64] + 1)[::-1]),
    "a parameter that is an array": (
        "__device__ float of(const float row[64], int at) { return row[at]; }\n", "  y[t] = of(x + 64, t);\n", ONE[64:128])}


@pytest.mark.parametrize("what", FORMS)
def test_forms_compute_what_c_says(tmp_path: Path, what: str) -> None:
    before, body, wanted = FORMS[what]
    threads = 64 if wanted is not None else 32
    if wanted is None:
        keys = (ONE[:64:2] + 9) % 16
        wanted = np.sort(np.stack([keys, np.full(32, 7)], 1).reshape(-1))
    file = tmp_path / "k.cu"
    file.write_text(f"{before}__global__ void k(const float* x, float* y) {{\n  const int t = threadIdx.x;\n{body}}}\n")
    program = read(file, "k", f'kernel = "k"\ngrid = [1]\n[metas]\nthreads_x = {threads}\n[tensors]\nx = {{shape = [256], dtype = "f32"}}\n'
                              'y = {shape = [64], dtype = "f32", role = "out"}\n')
    assert not opaque_statements(program)
    found = run(program, {"x": ONE}, {}, mode="check")
    assert found.errors == () and np.array_equal(np.asarray(found.outputs["y"]), wanted)


PARAMS = ("#pragma once\ntemplate <typename D_, int WIDTH> struct Params { using D = D_; D* q; D* o; int stride; int rows; };\n"
          "template <typename D_> struct Other { using D = D_; D* q; int rows; };\n")
KERNEL = ("template <typename P> __global__ void k(const P params) {\n  using D = typename P::D;\n  D* o = params.o;\n"
          "  if (blockIdx.x < params.rows) o[blockIdx.x * params.stride + threadIdx.x] = params.q[threadIdx.x];\n}\n")


def test_a_class_of_the_project_that_has_what_a_kernel_asks_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    (tmp_path / "params.cuh").write_text(PARAMS)
    (tmp_path / "k.cuh").write_text(KERNEL)
    (made,) = examine(tmp_path / "k.cuh", frozenset(), lambda name: None)
    assert made["state"] == "equal" and made["kernel"].startswith("k<Params<half, ") and "template arguments" in made["guessed"]


def test_what_has_a_vectors_components_alone_is_no_class_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    (tmp_path / "point.cuh").write_text("#pragma once\nstruct Grid { Host* owner; int x; int y; };\n")
    (tmp_path / "k.cuh").write_text("template <typename T> __global__ void k(const T* a, float* o) { T v = a[threadIdx.x]; o[threadIdx.x] = v.x + v.y; }\n")
    (made,) = examine(tmp_path / "k.cuh", frozenset(), lambda name: None)
    assert "Grid" not in made["kernel"]


TRAITS = """#pragma once
struct Plain { static constexpr bool soft = true; __device__ float scaled(float v) const { return v; } __device__ float moved(float v) const { return v; } };
template <bool ON> struct Scaling : Plain {
  float by;
  template <typename P> __device__ Scaling(const P& p, int at) : by(p.by) {}
  __device__ float scaled(float v) const { return v * by; }
};
struct Given { float* rows; float by; };
template <int WIDTH, typename D_, typename Way_> struct Traits { using D = D_; using Way = Way_; static constexpr int N = WIDTH; };
"""
WAY = """template <typename K, typename P> __global__ void k(const P p) {
  using Way = typename K::Way;
  Way way(p, blockIdx.x);
  typename K::D v = p.rows[threadIdx.x];
  if (Way::soft) p.rows[threadIdx.x * K::N] = way.moved(way.scaled(v)) + p.by;
}
"""


def test_a_class_that_is_guessed_takes_a_class_for_what_it_hands_on(tmp_path: Path) -> None:
    """`Plain` has all that is asked of the way but a constructor."""
    (tmp_path / "setup.py").touch()
    (tmp_path / "traits.cuh").write_text(TRAITS)
    (tmp_path / "k.cuh").write_text(WAY)
    (made,) = examine(tmp_path / "k.cuh", frozenset(), lambda name: None)
    assert made["state"] == "equal" and "Traits<1, half, Scaling<false>>, Given>" in made["kernel"] and "template arguments" in made["guessed"]


def _alone(tmp_path: Path, header: Path) -> Path:
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / header.name).write_text(header.read_text())
    return tmp_path / "alone" / header.name


def test_a_header_is_read_in_the_unit_that_brings_its_kernels_types(tmp_path: Path) -> None:
    """What is installed is a project of its own, be it inside another one."""
    (tmp_path / "pyproject.toml").touch()
    inside = tmp_path / "site-packages" / "p"
    inside.mkdir(parents=True)
    (inside / "__init__.py").touch()
    (inside / "word.cuh").write_text("#pragma once\nnamespace own { __device__ float one(float x) { return x; } }\n")
    (inside / "k.cuh").write_text('#include "word.cuh"\n__global__ void k(Args args) { args.x[threadIdx.x] = own::twice(own::one(args.y)); }\n')
    (inside / "k.cu").write_text("struct Args { float* x; float y; };\nnamespace own { __device__ float twice(float x) { return x + x; } }\n"
                                 '#include "word.cuh"\n#include "k.cuh"\n')
    assert not opaque_statements(frontend("cuda").parse(inside / "k.cuh", "k"))
    assert opaque_statements(read(_alone(tmp_path, inside / "k.cuh"), "k"))


WORDS = """struct Top { unsigned long long key; };
template <typename T> __host__ __device__ T up(T a, T b) { return a / b + (a % b != 0); }
__global__ void orders(int* flags, unsigned long long* sums, float* y, int n) {
  if (threadIdx.x != 0) return;
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(sums), "l"(1ull) : "memory");
  int old, seen;
  asm volatile("atom.add.acq_rel.sys.global.s32 %0, [%1], %2;" : "=r"(old) : "l"(flags), "r"(n) : "memory");
  asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], %2, %3;" : "=r"(seen) : "l"(flags + 1), "r"(0), "r"(old) : "memory");
  y[0] = seen;
}
__global__ void rows(const float4* x, const float* s, float* y, int cols, unsigned n) {
  Top top[4];
  for (int i = 0; i < 4; ++i) top[i] = {i * 7ull + threadIdx.x};
  const int t = threadIdx.x;
  for (int i = 0; i < int(up(n, 64u)); ++i) {
    float own[4];
    *(float4*)own = x[(blockIdx.x * cols + i * cols) / 4 + t];
#pragma unroll
    for (int e = 0; e < 4; ++e) y[blockIdx.x * cols + cols * i + t * 4 + e] = own[e] * s[t * 4 + e] + float(top[3 - e].key);
  }
}
__global__ void held(const int* x, signed char* c) {
  unsigned v;
  asm volatile("cvt.sat.s8.s32 %0, %1;" : "=r"(v) : "r"(x[threadIdx.x]));
  c[threadIdx.x] = reinterpret_cast<const signed char&>(v);
}
void go(int* flags, unsigned long long* sums, const float4* x, const float* s, float* y, int cols, unsigned n, signed char* c) {
  orders<<<4, 32>>>(flags, sums, y, cols);
  held<<<4, 64>>>(flags, c);
  rows<<<4, 64>>>(x, s, y, cols, n);
}
"""
LONG = """kir 1
program k
  size n: i32
  in x: f32[n, 32, 1024]
  out y: f32[n, 32]
kernel k grid (b: n) threads 32
  for t in 0..32 parallel thread
    let r = reduce(x[b, t, 0 +: 1024], axis=0, op=sum)
    y[b, t] = r
"""
SQUARE = """kir 1
program k
  out y: f32[64]
kernel k grid (b: 1) threads 1
  fragment a: f32[64, 64] = 1.0
  y[0 +: 64] = reduce(a, axis=1, op=sum)
"""


def test_atomics_of_any_order_and_sums_of_32_bits_are_written_back(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(WORDS)
    assert [r["state"] for r in examine(tmp_path / "k.cu", frozenset(), lambda name: None)] == ["equal"] * 3
    # a file that is worked out in parts: every second kernel
    assert [r["kernel"].partition("[")[0] for r in examine(tmp_path / "k.cu", frozenset(), lambda name: None, (1, 2))] == ["rows"]


def test_a_loop_over_a_thousand_elements_is_not_written_out_and_is_read_back(tmp_path: Path) -> None:
    program = parse_program(LONG)
    text = backend("cuda").emit(program).text
    assert "#pragma unroll 32" in text and "#pragma unroll\n" not in text
    CUDA.holds(program, tmp_path, 1)
    assert "#pragma unroll 1\n  for (int e_1_ = 0; e_1_ < 64; ++e_1_) {\n    #pragma unroll 8\n" in backend("cuda").emit(parse_program(SQUARE)).text


ASYNC = """__device__ inline void fill(void* to, const void* from, bool there) {
  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(16), "r"(bytes));
}
__global__ void k(const half* x, half* y, int n) {
  __shared__ alignas(16) half s[512];
  const int t = threadIdx.x;
  fill(s + t * 8, x + t * 8, t < n);
  asm volatile("cp.async.commit_group;");
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();
  y[t] = s[511 - t];
}
void go(const half* x, half* y, int n) { k<<<1, 64>>>(x, y, n); }
"""
COPY = """kir 1
program k
  size n: i32
  in x: f16[512]
  out y: f16[512]
kernel k grid (b: 1) threads 64
  shared s: f16[512]
  for t in 0..64 parallel thread
    copy load(x[t * 8 +: 8] where t < n else {other}) -> s[t * 8 +: 8] via cp_async
    y[t] = s[511 - t]
"""


def test_copies_that_zeros_stand_in_for_under_one_condition_are_written_back(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(ASYNC)
    assert [r["state"] for r in examine(tmp_path / "k.cu", frozenset(), lambda label: None)] == ["equal"]
    backend("cuda").emit(parse_program(COPY.format(other="0.0")))
    for other_than_zero in ("1.0", "-0.0"):
        with pytest.raises(KirError, match="fills with zeros what it does not copy"):
            backend("cuda").emit(parse_program(COPY.format(other=other_than_zero)))


def test_a_pool_that_ends_before_its_arrays_is_refused_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(const float* x, float* y) {\n  extern __shared__ unsigned char pool[];\n"
                                   "  float* a = (float*)pool;\n  float* b = (float*)(pool + 4096);\n  a[threadIdx.x] = x[threadIdx.x];\n"
                                   "  b[threadIdx.x] = a[threadIdx.x];\n  y[threadIdx.x] = b[threadIdx.x];\n}\n"
                                   "void run(const float* x, float* y) { k<<<1, 64, 1024>>>(x, y); }\n")
    with pytest.raises(KirError, match="shared_bytes = 1024 is too small: arrays that begin at byte 4096"):
        read(tmp_path / "k.cu", "k", 'kernel = "k"\ngrid = [1]\n[metas]\nthreads_x = 64\nshared_bytes = 1024\n'
             '[tensors]\nx = {shape = [64], dtype = "f32"}\ny = {shape = [64], dtype = "f32", role = "out"}\n')
    (record,) = examine(tmp_path / "k.cu", frozenset(), lambda label: None)  # host code is not followed to the end: what it says is taken for a guess
    assert (record["state"], record["guessed"]) == ("equal", ["bytes of shared memory"])


VECTOR = """
enum kind { plain };
template <int L, typename T, kind Q> struct vec;
template <typename T, kind Q> struct vec<2, T, Q> {
  T x, y;
  __device__ vec() {}
  __device__ vec(T a, T b) : x(a), y(b) {}
  __device__ T& operator[](int i) { switch (i) { default: case 0: return x; case 1: return y; } }
  __device__ T const& operator[](int i) const { switch (i) { default: case 0: return x; case 1: return y; } }
};
template <template <int L, typename T, kind Q> class V, int L, typename T, kind Q> struct each {};
template <template <int L, typename T, kind Q> class V, typename T, kind Q> struct each<V, 2, T, Q> {
  template <class F> __device__ static V<2, T, Q> call(F f, V<2, T, Q> const& a, V<2, T, Q> const& b) { return V<2, T, Q>(f(a.x, b.x), f(a.y, b.y)); }
};
template <typename T> __device__ T size(T x) { return x < 0 ? -x : x; }
template <int L, typename T, kind Q> __device__ T size(vec<L, T, Q> const& v) { return size(v.x) + size(v.y); }
template <class D> struct Base { __device__ float twice() const { return 2.f * n; } float n; };
struct Derived : Base<Derived> {};
typedef vec<2, float, plain> float_2;
__device__ float_2 graded(const float_2& a) { float_2 b; for (int i = 0; i < 2; ++i) b[i] = a[i] * (i + 1); return b; }
"""
VECTOR += """
template <typename T> struct two {
  T x, y;
  __device__ two(T a, T b) : x(a), y(b) {}
  template <typename U> __device__ two(two<U> const& o) : x(static_cast<T>(o.x)), y(static_cast<T>(o.y)) {}
};
template <typename T> struct strict {
  T x;
  template <typename U> __device__ explicit strict(two<U> const& o) : x(static_cast<T>(o.x)) {}
};
__device__ float total(two<float> const& v) { return v.x + v.y; }
__device__ float more(two<float> v) { v.x += 1; return v.x + v.y; }
__device__ float into(two<float>& v) { return v.x; }
__device__ float asked(strict<float> v) { return v.x; }
template <typename T, typename = void> struct Kept;
template <typename T> struct Never;
struct Boxed { const float* at; __device__ Boxed(const float* p) : at(p) {} };
template <typename T> struct __CUDA_ALIGN__(8) Kept<T, std::enable_if_t<std::is_same_v<T, float> || std::is_same_v<T, half>>> {
  const T* at;
  template <typename P> __device__ Kept<T, std::enable_if_t<std::is_same_v<T, float> || std::is_same_v<T, half>>>(P const& p) : at(p.at) {}
  __device__ T of(int k) const { return at[k]; }
};
__device__ int place(const dim3 tid = threadIdx, int more = 0) { return tid.x + tid.y * 64 + more - (tid.z - tid.z) - (more ? tid.y * 64 : 0); }
"""
VECTOR += """
#include <array>
template <class D> struct Asked { __device__ float get() const { auto own = static_cast<D const*>(this); return own->held + own->more; } float more; };
struct Own : Asked<Own> { float held; };
struct Pose { two<float> place; two<float> way; };
struct Pair { float first, second; };
__device__ Pair both(float a, float b) { return {a, b}; }
namespace roots { using std::sqrt; template <typename T> __device__ two<T> sqrt(two<T> const& v) { return two<T>(sqrt(v.x), sqrt(v.y)); } }
"""
TAKE = "__device__ void take(float** a, int** b) {\n  __shared__ float s[64];\n  __shared__ int i[64];\n  *a = s;\n  *b = i;\n}\n"
_A = (np.arange(64, dtype=np.uint32) * np.uint32(0x01FDFB81)).view(np.uint8).reshape(64, 4)
_B = np.full(64, 0x7F80FF01, np.uint32).view(np.uint8).reshape(64, 4)
_PAIRS = [(each.astype(np.int32), other.astype(np.int32)) for each, other in ((_A, _B), (_A.view(np.int8), _B.view(np.int8)))]
FOURS = [w.astype(np.uint8).view(np.uint32).reshape(-1) for (a, b), (c, d) in [_PAIRS] for w in (
    a + b, a - b, (c + d).clip(-128, 127), (c - d).clip(-128, 127), (a + b).clip(0, 255), (a - b).clip(0, 255))]
MORE = {
    "pointers that a function sets": (
        "  float* a = nullptr;\n  int* b = nullptr;\n  take(&a, &b);\n  a[t] = x[t];\n  b[t] = t;\n  __syncthreads();\n  y[t] = a[63 - t] + b[63 - t];\n",
        X[0][::-1] + T[::-1]),
    "an object that reads like a function": ("  float_2 a(x[t], x[t + 64]);\n  float u = a.x, v = a.y;\n  float_2 b(u * v, u);\n  y[t] = b.x;\n", X[0] * X[1]),
    "a template that is handed on, and function objects": (
        "  float_2 a(x[t], x[t + 64]);\n  float_2 p = each<vec, 2, float, plain>::call(std::multiplies<float>(), a, a);\n"
        "  float_2 m = each<vec, 2, float, plain>::call(std::minus<float>(), a, p);\n  y[t] = p.x + m.y + (std::greater_equal<int>()(t, 8) ? 1 : 0);\n",
        X[0] * X[0] + X[1] - X[1] * X[1] + (T >= 8)),
    "the more special of two templates": ("  float_2 a(x[t], x[t + 64]);\n  y[t] = size(a);\n", abs(X[0]) + abs(X[1])),
    "a class whose base names it": ("  Derived d;\n  d.n = x[t];\n  y[t] = d.twice();\n", 2 * X[0]),
    "members that a counter chooses": (
        "  float_2 a(x[t], x[t + 64]);\n  float_2 b = graded(a);\n  y[t] = b.x - b.y;\n", X[0] - 2 * X[1]),
    "a constructor that converts an argument": ("  two<double> d(x[t], x[t + 64]);\n  y[t] = total(d) + more(d);\n", 2 * (X[0] + X[1]) + 1),
    "classes that are only declared, and conditions, as arguments": (
        "  Boxed b(x + 64);\n  using K = std::conditional_t<sizeof(x[0]) == 4, Kept<float>, Never<float>>;\n  K k(b);\n  y[t] = k.of(t);\n", X[1]),
    "the numbers of a thread, handed on": ("  y[t] = x[place()] + x[place(threadIdx)] + x[place(blockDim, 1)];\n", 2 * X[0] + ONE[65]),
    "a product that looks like a cast": ("  int a = t, b = 2, c = 3;\n  const float* p = x + (a * (b - 1)) * (c - 2);\n  y[t] = *p;\n", X[0]),
    "sums and differences of four bytes": (
        "  unsigned a = t * 0x01fdfb81u, b = 0x7f80ff01u;\n"
        "  unsigned s[6] = {__vadd4(a, b), __vsub4(a, b), __vaddss4(a, b), __vsubss4(a, b), __vaddus4(a, b), __vsubus4(a, b)};\n"
        "  float all = 0;\n  for (int k = 0; k < 6; ++k) all += float(s[k] & 0xffffu) * (k + 1) - float(s[k] >> 16);\n"
        "  y[t] = all;\n", sum((w & 0xFFFF).astype(np.float32) * (k + 1) - (w >> 16).astype(np.float32) for k, w in enumerate(FOURS))),
    "an array of the library, taken apart and read from its end": (
        "  std::array<float, 3> a = {x[t], x[t + 64], 2.f};\n  auto const& [p, q, w] = a;\n  float s = 0;\n"
        "  for (auto it = a.rbegin(); it != a.rend(); ++it) s = s * 2 + *it;\n  y[t] = p + q * w + s + a.at(1);\n", X[0] * 2 + 5 * X[1] + 8),
    "a base that asks what derives from it": ("  Own o;\n  o.held = x[t];\n  o.more = 1;\n  y[t] = o.get();\n", X[0] + 1),
    "objects in a list, and a function's result taken apart": (
        "  two<float> v(x[t], 1.f), w(x[t + 64], 2.f);\n  Pose p{v, w};\n  auto const [u, q] = both(p.place.x, p.way.x);\n  y[t] = u - q + p.way.y;\n",
        X[0] - X[1] + 2),
    "names of what changes": ("  two<float> v(x[t], 1.f);\n  auto& [a, b] = v;\n  v.x += 2;\n  b = 5;\n  y[t] = a + v.y;\n", X[0] + 7),
    "a list as a range": ("  float s = 0;\n  for (int i : {-1, 0, 2}) s += x[t] * i + i * i;\n  y[t] = s;\n", X[0] + 5),
    "functions of the library beside a namespace's own": ("  two<float> v(x[t] * x[t], 4.f);\n  y[t] = roots::sqrt(v).x + roots::sqrt(9.f);\n", abs(X[0]) + 3),
    "a loop that counts on, with loops inside that go on": (
        "  float s = 0;\n  int i = 0;\n  if (t > 3) i = 2;\n  for (; i < 4; i++) {\n    for (int j = 0; j < 2; j++) {\n      if (x[j] > 5.f) continue;\n\n"
        "      s += x[i * 64 + t];\n    }\n  }\n  y[t] = s;\n",
        sum(X[i] * (i >= np.where(T > 3, 2, 0)) for i in range(4)) * sum(X[0][j] <= 5 for j in range(2))),
}


@pytest.mark.parametrize("what", MORE)
def test_forms_of_libraries_of_vectors(tmp_path: Path, what: str) -> None:
    body, wanted = MORE[what]
    file = tmp_path / "k.cu"
    file.write_text(f"#include <functional>\n{VECTOR}{TAKE}__global__ void k(const float* x, float* y) {{\n  const int t = threadIdx.x;\n{body}}}\n"
                    "void run(float* x, float* y) { k<<<1, 64>>>(x, y); }\n")
    program = read(file, "k", 'kernel = "k"\ngrid = [1]\n[metas]\nthreads_x = 64\n[tensors]\nx = {shape = [256], dtype = "f32"}\n'
                              'y = {shape = [64], dtype = "f32", role = "out"}\n')
    assert not opaque_statements(program), [s.reason for s in opaque_statements(program)]
    found = run(program, {"x": X.reshape(-1)}, {}, mode="check")
    assert found.errors == () and np.array_equal(np.asarray(found.outputs["y"]).reshape(-1), wanted)
    assert [r["state"] for r in examine(file, frozenset(), lambda label: None)] == ["equal"]


@pytest.mark.parametrize(("body", "reason"), [
    ("  float* a = nullptr;\n  float* b = nullptr;\n  int* c = nullptr;\n  float** h = &a;\n  h = &b;\n  take(h, &c);\n  y[t] = a[t];\n", "no place"),
    ("  two<double> d(x[t], x[t]);\n  y[t] = into(d);\n", "which no definition fits"),
    ("  two<double> d(x[t], x[t]);\n  y[t] = asked(d);\n", "which no definition fits"),
    ("  two<float> v(x[t], 1.f);\n  auto [a, b, c] = v;\n  y[t] = a;\n", "a structured binding of 3 names to 2 members"),
    ("  Never<float> k(x);\n  y[t] = k.of(t);\n", "the class 'Never', which is only declared"),
    ("  float_2 a(float u, float v);\n  y[t] = a.x;\n", "the declaration of a function inside a function"),
    ("  float_2 a(x[t], x[t]);\n  float_2 b;\n  for (int i = 0; i < (int)x[0]; ++i) b[i] = a[i];\n  y[t] = b.x;\n", "no place"),
])
def test_what_of_them_has_no_form_is_refused_by_its_name(tmp_path: Path, body: str, reason: str) -> None:
    (tmp_path / "k.cu").write_text(f"{VECTOR}{TAKE}__global__ void k(const float* x, float* y) {{\n  const int t = threadIdx.x;\n{body}}}\n")
    assert any(reason in s.reason for s in opaque_statements(read(tmp_path / "k.cu", "k")))


def test_own_headers_come_before_what_uses_them(tmp_path: Path) -> None:
    (tmp_path / "k.cuh").write_text(
        "#include <torch/types.h>\nusing namespace torch;\n#define A PackedTensorAccessor32<scalar_t, 1, RestrictPtrTraits>\n"
        "template <typename scalar_t> __global__ void k(const A x, A y) { y[threadIdx.x] = x[threadIdx.x]; }\n")
    (tmp_path / "k.cu").write_text('#include "k.cuh"\n#define R PackedTensorAccessor32<float, 1, RestrictPtrTraits>\nvoid run(const R x, R y) {\n'
                                   "  k<float><<<1, 64>>>(x, y);\n}\n")
    reader: Any = frontend("cuda")
    assert [u.path.name for u in reader.open(tmp_path / "k.cu").sources.units] == ["torch.cuh", "k.cuh", "k.cu"]
    assert [r["state"] for r in examine(tmp_path / "k.cuh", frozenset(), lambda label: None)] == ["equal"]
