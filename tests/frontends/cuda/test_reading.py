"""What CUDA C++ becomes: thread code with regions, whatever it is spelled like."""
from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kir.interp import run
from kir.ir.printer import program_text
from kir.ir.rules.verify import check
from kir.surface import frontend
from tests.frontends.cuda.reading import KERNELS, body_of, read, text_of
from tests.frontends.reading import opaque

BASIC = KERNELS / "basic.cu"
TENSORS = '[tensors.x]\nshape = ["N"]\ndtype = "f32"\n[tensors.y]\nshape = ["N"]\ndtype = "f32"\n'
BOUND = f'sizes = ["N"]\nfacts = ["N >= 1", "N <= 1000000"]\ngrid = ["ceildiv(N, 128)"]\n[metas]\nthreads_x = 128\n{TENSORS}'


def line_of(tmp_path: Path, expression: str, params: str = "const float* x, float* y, int N", before: str = "") -> str:
    """What `y[i] = expression;` becomes."""
    source = f"{before}\n__global__ void k({params}) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < N) y[i] = {expression}; }}"
    body = body_of(text_of(tmp_path, source, binding=BOUND))
    assert "opaque" not in body, body
    return body.splitlines()[-1].strip().partition(" = ")[2]


@pytest.mark.parametrize(("expression", "meaning"), [
    ("x[i] * 2.f", "x[block_x * 128 + t] * 2.0"),
    ("x[i] + 1", "x[block_x * 128 + t] + 1.0"),
    ("(float)(x[i] * 2.0)", "cast(cast(x[block_x * 128 + t], f64) * 2.0:f64, f32)"),
    ("expf(x[i])", "exp(x[block_x * 128 + t])"),
    ("std::max(x[i], 0.f)", "max(x[block_x * 128 + t], 0.0)"),
    ("x[i] > 0 ? x[i] : -x[i]", "select(x[block_x * 128 + t] > 0.0, x[block_x * 128 + t], -x[block_x * 128 + t])"),
    ("i > 0 ? x[i - 1] : 0.f", "load(x[block_x * 128 + t - 1] where block_x * 128 + t > 0 else 0.0)"),
    ("__ldg(x + i)", "load(x[block_x * 128 + t] cache nc)"),
    ("__float2half(x[i])", "cast(cast(x[block_x * 128 + t], f16), f32)"),
    ("__int_as_float(__float_as_int(x[i]))", "x[block_x * 128 + t]"),
    ("float(i / 4 + i % 4)", "cast(block_x * 32 + t % 4 + t // 4, f32)"),
    ("sizeof(float4) / 4", "4.0"),
    ("INFINITY", "inf"),
    ("i < 64 >> 3 ? 1.f : 2.f", "select(block_x * 128 + t < 8, 1.0, 2.0)"),
    ("N + i < N >> i && i > 3 ? 1.f : 2.f", "select(N + block_x * 128 + t < N >> block_x * 128 + t & block_x * 128 + t > 3, 1.0, 2.0)"),
])
def test_expressions_mean_what_c_says(tmp_path: Path, expression: str, meaning: str) -> None:
    assert line_of(tmp_path, expression) == meaning


@pytest.mark.parametrize(("before", "expression", "meaning"), [
    ("#define TWICE(a) ((a) * 2.f)", "TWICE(x[i])", "x[block_x * 128 + t] * 2.0"),
    ("#define TWICE(a) \\\n  ((a) * /* said \\\n     over lines */ \\\n  2.f)", "TWICE(x[i])", "x[block_x * 128 + t] * 2.0"),
    ("#define TWO /* said\n over lines */ 2.f", "x[i] * TWO", "x[block_x * 128 + t] * 2.0"),
    ("float f(); /* said #define TWO 3.f\n#define TWO 4.f */\n#define TWO 2.f", "x[i] * TWO", "x[block_x * 128 + t] * 2.0"),
    ("#if __CUDA_ARCH__ >= 900\n#define F 1.f\n#else\n#define F 2.f\n#endif", "x[i] * F", "x[block_x * 128 + t] * 2.0"),
    ("template <typename T> __device__ T twice(T v) { return v + v; }", "twice(x[i])", "v + v"),
    ("template <int N> struct Ten { static constexpr float value = N * 10; };", "x[i] * Ten<3>::value", "x[block_x * 128 + t] * 30.0"),
    ("struct P { float a, b; __device__ P operator+(P o) const { return P{a + o.a, b + o.b}; } };", "(P{x[i], 1.f} + P{2.f, 3.f}).b", "moved[1] + pick(o, 1)"),
    ("enum Mode { kA, kB = 5, kC };", "x[i] * kC", "x[block_x * 128 + t] * 6.0"),
    ("namespace a { namespace b { constexpr float c = 3.f; } } using namespace a;", "x[i] * b::c", "x[block_x * 128 + t] * 3.0"),
    ("template <class F> __device__ float call(F f, float v) { return f(v); }", "call([](float v) { return v * 4.f; }, x[i])", "v * 4.0"),
    ("__device__ float f(float v) { return v; } __device__ float f(int v) { return v + 100; }", "f(3)", "103.0"),
    ("template <typename T, T... Vs> __device__ float sum() { return (Vs + ...); }", "sum<int, 1, 2, 3>()", "6.0"),
    ("constexpr int log2(int n) { return n <= 1 ? 0 : 1 + log2(n / 2); }", "x[i] * log2(32)", "x[block_x * 128 + t] * 5.0"),
])
def test_declarations_are_evaluated(tmp_path: Path, before: str, expression: str, meaning: str) -> None:
    found = line_of(tmp_path, expression, before=before)
    assert found == meaning


TRANSPOSE = """sizes = ["M", "N"]
facts = ["M >= 1", "N >= 1", "N <= 65536", "M <= 65536"]
grid = ["ceildiv(N, 32)", "ceildiv(M, 32)"]
[metas]
threads_x = 256
[tensors.x]
shape = ["M", "N"]
dtype = "f32"
[tensors.y]
shape = ["N", "M"]
dtype = "f32"
"""
SOFTMAX = """sizes = ["M", "N"]
facts = ["M >= 1", "N >= 1", "N <= 1048576"]
grid = ["M"]
[metas]
threads_x = 128
[tensors.X]
shape = ["M", "N"]
dtype = "f16"
[tensors.Y]
shape = ["M", "N"]
dtype = "f16"
"""


def test_a_softmax_is_read_as_an_expert_writes_it(tmp_path: Path) -> None:
    body = body_of(text_of(tmp_path, BASIC.read_text(), "softmax", SOFTMAX))
    assert "top = max(top, cast(X[block_x, j_tile * 128 + t], f32))" in body
    assert "let other = shfl_xor(top, 16 >> s)" in body
    assert "opaque" not in body


def test_a_padded_tile_keeps_its_shape() -> None:
    program = read(BASIC, "transpose", TRANSPOSE)
    x = np.arange(70 * 45, dtype=np.float32).reshape(70, 45)
    result = run(program, {"x": x, "y": np.zeros((45, 70), np.float32)}, {"M": 70, "N": 45})
    assert np.array_equal(result.outputs["y"], x.T)
    assert "shared tile: f32[32, 32] strides [33, 1]" in program_text(program)


def test_templates_stay_opaque_until_they_are_instantiated() -> None:
    generic = read(BASIC, "scale")
    assert [reason.split(",")[0] for reason in opaque(generic)] == ["a template"]
    assert opaque(read(BASIC, "scale<half, 8>")) == []


def test_templates_offer_names_to_try() -> None:
    assert "scale<half, 8>" in frontend("cuda").samples(BASIC, "scale")  # type: ignore[attr-defined]  # beyond the protocol
    assert frontend("cuda").samples(BASIC, "reduce") == ("reduce",)  # type: ignore[attr-defined]


def test_a_pool_that_is_cut_and_used_whole_has_views(tmp_path: Path) -> None:
    source = """__global__ void k(float* x, float* y, int N) {
  extern __shared__ unsigned char pool[];
  float* a = reinterpret_cast<float*>(pool);
  float* b = reinterpret_cast<float*>(pool + 512);
  pool[threadIdx.x] = 0;
  a[threadIdx.x] = x[threadIdx.x];
  b[threadIdx.x] = a[threadIdx.x];
  y[threadIdx.x] = b[threadIdx.x];
}"""
    text = text_of(tmp_path, source)
    assert "view shared a: f32[128]" in text and "view shared b: f32[(shared_bytes - 512) // 4]" in text
    whole = text_of(tmp_path, source.replace("  pool[threadIdx.x] = 0;\n", ""))
    assert "  shared a: f32[128]" in whole and "view" not in whole


def test_each_instantiation_of_a_template_has_shared_memory_of_its_own(tmp_path: Path) -> None:
    """A sum over a CTA between two of another operator needs no barrier more: as one array their uses would race."""
    source = """
__device__ float plus(float a, float b) { return a + b; }
__device__ float more(float a, float b) { return fmaxf(a, b); }
template <float (*op)(float, float), typename T> __device__ T whole(T v) {
  __shared__ T parts[32];
  if (threadIdx.x < 32) parts[threadIdx.x] = v;
  __syncthreads();
  return op(parts[0], parts[1]);
}
__global__ void k(float* y) { y[threadIdx.x] = whole<plus>(1.0f) + whole<more>(2.0f) + whole<plus>(3.0f); }
"""
    text = text_of(tmp_path, source)
    assert [line.split()[1] for line in text.splitlines() if line.startswith("  shared ")] == ["parts:", "parts_1:"]


def test_a_number_is_no_argument_of_a_library_s_type(tmp_path: Path) -> None:
    source = """
__device__ int f(cudaStream_t s, int x) { return x; }
__device__ int f(int s, int x) { return x + 1; }
__global__ void k(int *y, int n) { y[threadIdx.x] = f(n, 2); }
"""
    assert body_of(text_of(tmp_path, source)).endswith("= 3")


def test_every_kernel_of_a_file_is_found() -> None:
    refs = frontend("cuda").kernels(BASIC)
    assert [r.name for r in refs] == ["naive_gemm", "transpose", "softmax", "scale", "reduce"]
    assert all(BASIC.read_text().splitlines()[r.line - 1].startswith(("__global__", "template")) for r in refs)


def test_skeletons_name_what_a_person_must_decide() -> None:
    made = frontend("cuda").skeleton(BASIC, "transpose")  # type: ignore[attr-defined]  # beyond the protocol
    assert made.metas == {"threads_x": 256} and made.grid == ["?", "?"]
    assert made.tensors["x"].role == "in" and made.tensors["y"].role == "out"


def test_dynamic_shared_memory_is_as_large_as_the_launch_says() -> None:
    program = read(BASIC, "reduce")
    check(program)
    assert [m.name for m in program.metas if m.default is None] == ["threads_x", "shared_bytes"]


@pytest.mark.parametrize(("head", "meets"), [
    ("int k = 0; k != N; ++k", True), ("int k = 1; k != N; ++k", True), ("int k = N - 1; k != -1; --k", True), ("int k = N; k; --k", True),
    ("int k = 0; k != 8; k += 2", True), ("int k = N - 1; k != -1; k -= 2", False), ("int k = 0; k != 7; k += 2", False), ("int k = 2; k != N; ++k", False),
    ("int k = threadIdx.x; k != N; ++k", False), ("int k = 0; k != (int)x[0]; ++k", False)])
def test_a_loop_until_its_counter_is_equal_counts_only_where_that_is_met(tmp_path: Path, head: str, meets: bool) -> None:
    """What steps over its end goes on, out of bounds; as a loop that counts it would end there, and be proved."""
    body = body_of(text_of(tmp_path, f"__global__ void k(const float* x, float* y, int N) {{ float s = 0.f; for ({head}) s += x[k & 7]; y[threadIdx.x] = s; }}",
                           binding=BOUND))
    assert "opaque" not in body and ("while" in body) == (not meets), body


BOUND_NOW = """__device__ int moved(int& a, int& b, int (&t)[8]) { b = 0; t[3] = 1; a += 5; return a; }
__global__ void k(const int* x, int* y, int N) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N) return;
  int t[8];
  for (int q = 0; q < 8; ++q) t[q] = 7 - q;
  int a = x[i];
  WHAT
  y[i] = t[0] + 10 * t[1] + 100 * t[2] + 1000 * t[3] + 10000 * t[4] + 100000 * t[5] + a;
}
"""


@pytest.mark.parametrize(("what", "want"), [
    ("int& r = t[a]; a = 0; r += 3;", 234567 + 300),
    ("int& r = t[t[5] & 7]; t[5] = 1; r += 3;", 134567 + 300 + 2),
    ("const int& r = t[t[5]]; t[5] = 1; a = r;", 134567 + 5),
    ("int z = moved(t[a], a, t); a = z;", 231567 + 500 + 10),
    ("auto g = [=](int w) { return w + a; }; a = 5; a = g(1);", 234567 + 3),
    ("auto g = [a](int w) { return w + a; }; a = 5; a = g(1);", 234567 + 3),
    ("auto g = [&](int w) { return w + a; }; a = 5; a = g(1);", 234567 + 6),
    ("auto g = [=, &a](int w) { return w + a; }; a = 5; a = g(1);", 234567 + 6)])
def test_a_reference_names_the_place_of_its_making_and_a_copy_the_value(tmp_path: Path, what: str, want: int) -> None:
    """Found by random texts: indices of a reference were looked up anew at each use, and a lambda by copy saw what came later."""
    bound = BOUND.replace('"f32"', '"i32"')
    file = tmp_path / "bound.cu"
    file.write_text(BOUND_NOW.replace("WHAT", what))
    program = read(file, "k", bound)
    assert not opaque(program)
    out = run(program, {"x": np.full(3, 2, np.int32), "y": np.zeros(3, np.int32)}, {"N": 3}).outputs["y"]
    assert out.tolist() == [want] * 3


def _i32(x: int) -> int:
    return (x + (1 << 31)) % (1 << 32) - (1 << 31)


def _shifted(low: int, high: int, by: int, left: bool) -> int:
    both = (high % (1 << 32) << 32) | low % (1 << 32)
    return _i32((both << (by & 31) >> 32 if left else both >> (by & 31)) % (1 << 32))


MEANT: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "mean rounded down": ("return __hadd(a, b);", lambda a, b: (a + b) >> 1),
    "means": ("return __rhadd(a, b) ^ (int)__uhadd(a, b);", lambda a, b: _i32(((a + b + 1) >> 1) ^ ((a % (1 << 32) + b % (1 << 32)) >> 1))),
    "the low 24 bits, signed": ("return __mul24(a, b);", lambda a, b: _i32(((a & 0xFFFFFF ^ 0x800000) - 0x800000) * ((b & 0xFFFFFF ^ 0x800000) - 0x800000))),
    "the low 24 bits": ("return __umul24(a, b);", lambda a, b: _i32((a & 0xFFFFFF) * (b & 0xFFFFFF))),
    "a distance": ("return __sad(a, b, 3u) - __usad(7u, 9u, 1u);", lambda a, b: _i32(abs(a - b) + 3 - 3)),
    "two words to the left": ("return __funnelshift_l(a, b, a + 40);", lambda a, b: _shifted(a, b, a + 40, True)),
    "two words to the right": ("return __funnelshift_r(a, b, b);", lambda a, b: _shifted(a, b, b, False)),
    "two words by 32 and more": ("return __funnelshift_lc(a, b, 33) - __funnelshift_rc(a, b, 40);", lambda a, b: _i32(a - b)),
    "nearest of a tie": ("return lroundf(a % 5 + 0.5f) * 100 + (int)fdimf(a % 5, 1.f);",
                         lambda a, b: (lambda r: (r + 1 if r >= 0 else r) * 100 + max(r - 1, 0))(int(math.fmod(a, 5)))),
    "characters": (r"return '\x41' + '\101' + '\0' + '\\' + '\'' + '\n' + '\xff';", lambda a, b: 65 + 65 + 92 + 39 + 10 - 1),
    "a name that a condition declares": ("int i = 7; int r; if (int i = a & 3) r = i; else r = i - 5; return r + i * 100;",
                                         lambda a, b: (a & 3 or -5) + 700),
    "a name that a switch declares": ("switch (int w = (a & 1)) { case 0: return w + 5; default: return w * 10; }", lambda a, b: 10 if a & 1 else 5),
    "labels are not as narrow as what is chosen by": ("signed char c = a & 1 ? -56 : 3; switch (c) { case 200: return 1; case -56: return 2; } return 3;",
                                                      lambda a, b: 2 if a & 1 else 3),
    "a break inside a case": ("int k = 0; switch (a & 3) { case 0: case 1: k = 3; if (b > 0) break; k = 7; case 2: k += 10; break; default: if (b > 0) break; "
                              "k = 5; } return k;", lambda a, b: ([3, 3, 10, 0] if b > 0 else [17, 17, 10, 5])[a & 3]),
    "a return two branches down": ("int r = 0; if (a > 0) { r = 1; if (a > 100) return r; r = 2; } r += 10; return r;",
                                   lambda a, b: 10 if a <= 0 else 1 if a > 100 else 12),
    "a return in a block, and after a loop": ("int r = 1; { if (a < 0) return r; r = 3; } if (b > 0) { for (int i = 0; i < 4; i++) if (i == a) "
                                              "return 50 + i; r++; } return r * 2;",
                                              lambda a, b: 1 if a < 0 else 50 + a if b > 0 and a < 4 else 8 if b > 0 else 6),
    "a return in a loop that does not count": ("int r = 0; for (int i = (a & 15) + 1; i != 1; i = i & 1 ? 3 * i + 1 : i / 2) "
                                               "{ if (r > 5) return -r; r++; } return r;", lambda a, b: _steps((a & 15) + 1)),
    "what a class says of members left out": ("C c{5}; C d{.a = b & 7, .t = {1}}; C e; return c.b + c.t[1] * 10 + d.b * 100 + d.t[1] + e.a + B().s.x;",
                                              lambda a, b: 6 + 80 + ((b & 7) + 1) * 100 + 0 + 2 + 9),
    "a copy whose array is written": ("A p; p.v[0] = a; p.v[1] = b; A q = p; q.v[1] = 5; A z = p; set(z.v); return q.v[1] + (p.v[1] & 7) * 10 + z.v[0] * 100;",
                                      lambda a, b: 5 + (b & 7) * 10 + 700),
    "a guard before an element of its own array": ("int v[4] = {a, b, 3, 1}; int i = 3; while (i > 0 && v[i - 1] < v[i]) { int z = v[i]; v[i] = v[i - 1]; "
                                                  "v[--i] = z; } return v[0] ^ (v[3] << 3);", lambda a, b: _bubbled(a, b)),
    "an object made anew from itself": ("D p{a & 255, b & 255, 2.f}; p = turned(p); p = D{p.y + 1, p.x, p.z + p.x}; F f{p, p.x, {3, 1.f}}; "
                                        "f = F{D{f.n, f.d.x, f.d.z}, 7, E{f.d.y, f.d.z}}; return p.x * 1000 + p.y + (int)p.z + f.d.y * 7 + f.w.n;",
                                        lambda a, b: ((a & 255) + 1) * 1007 + (b & 255) + 4 + (b & 255) + (b & 255)),
    "an array of records from lists": ("E x[3] = {{a & 63, 1.f}, {b & 63, 2.f}}; E& r = x[a & 1]; r.n += 1; x[2] = r; "
                                       "return x[0].n + x[1].n * 100 + (int)x[2].z;",
                                       lambda a, b: (a & 63) + (not a & 1) + ((b & 63) + (a & 1)) * 100 + 1 + (a & 1)),
    "constructors that use what they have set": ("H h((a & 255)); H g; static constexpr int T[] = {3, 1, 4}; return h.b * 3 + h.a + g.b * T[b & 1];",
                                                 lambda a, b: ((a & 255) + 1) * 6 + (a & 255) + 16 * (3, 1)[b & 1]),
    "folds, each from its side": ("return left((a & 7) + 1, 2) * 100 + right(64, 8, 2);", lambda a, b: 1000 // ((a & 7) + 1) // 2 * 100 + 16),
    "an overload that a condition rules out": ("return kind(a) * 10 + kind(1.f);", lambda a, b: 12),
}
MEANT_FIRST = """struct C { int a = 2; int b = a + 1; int t[2] = {7, 8}; };
struct S { int x; __device__ S() : x(9) {} };
struct B { S s; };
struct A { int v[2]; };
struct D { int x, y; float z; };
struct E { int n; float z; };
struct G { int a; __device__ G(int k) : a(k) {} };
struct H : G { int b; __device__ H() : H(7) {} __device__ H(int k) : G(k), b(a + 1) { b *= 2; } };
struct F { D d; int n; E w; };
__device__ D turned(const D& p) { return {p.y, p.x, p.z * 2}; }
__device__ void set(int* p) { p[0] = 7; }
template <class... T> __device__ int left(T... x) { return (1000 / ... / x); }
template <class... T> __device__ int right(T... x) { return (x / ...); }
template <typename T> __device__ typename std::enable_if<std::is_integral<T>::value, int>::type kind(T) { return 1; }
template <typename T> __device__ typename std::enable_if<!std::is_integral<T>::value, int>::type kind(T) { return 2; }
"""


def test_statements_mean_what_cpp_says(tmp_path: Path) -> None:
    """Each was read wrong, or not at all, in kernels that were compared with what a compiler made of them."""
    a = np.array([-(1 << 31), (1 << 31) - 1, -7, 7, 0, 1, -1, 3, 101, 1 << 24, -123456789, 2], np.int32)
    b = np.array([7, 1, 2, -2, -5, 9, 33, (1 << 31) - 1, -1, 12345678, 5, 0], np.int32)
    functions = "".join(f"__device__ int f{k}(int a, int b) {{ {body} }}\n" for k, (body, _) in enumerate(MEANT.values()))
    calls = "".join(f"  y[i * {len(MEANT)} + {k}] = f{k}(a[i], b[i]);\n" for k in range(len(MEANT)))
    file = tmp_path / "meant.cu"
    file.write_text(f"{MEANT_FIRST}{functions}__global__ void k(const int* a, const int* b, int* y) {{\n  const int i = threadIdx.x;\n{calls}}}\n")
    tensors = "".join(f'[tensors.{name}]\nshape = [{size}]\ndtype = "i32"\n' for name, size in (("a", 12), ("b", 12), ("y", 12 * len(MEANT))))
    program = read(file, "k", f"grid = [1]\n[metas]\nthreads_x = 12\n{tensors}")
    assert opaque(program) == []
    made = run(program, {"a": a, "b": b}, {}, mode="check")
    assert made.errors == ()
    for k, (what, (_, want)) in enumerate(MEANT.items()):
        assert made.outputs["y"][k :: len(MEANT)].tolist() == [want(int(x), int(y)) for x, y in zip(a, b, strict=True)], what


def _bubbled(a: int, b: int) -> int:
    v, i = [a, b, 3, 1], 3
    while i > 0 and v[i - 1] < v[i]:
        v[i - 1], v[i] = v[i], v[i - 1]
        i -= 1
    return _i32(v[0] ^ (v[3] << 3))


def _steps(i: int) -> int:
    r = 0
    while i != 1:
        if r > 5:
            return -r
        r, i = r + 1, 3 * i + 1 if i & 1 else i // 2
    return r
