"""CUDA as it stands in a repository: a translation unit without its build, and each specialization that host code names."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kir.analysis.normal.regions import raised
from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.corpus.roundtrip.one import examine
from kir.learning.corpus.roundtrip.same.threads import same_thread
from kir.surface import frontend
from kir.surface.reading import launched
from tests.frontends.cuda.reading import read
from tests.frontends.reading import opaque_statements

PLAIN = "__global__ void k(float* x) { x[threadIdx.x] = 1.f; }\n"


def reader() -> Any:
    return frontend("cuda")


def written(tmp_path: Path, source: str, name: str = "k.cu") -> Path:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return file


def reasons(file: Path, kernel: str = "k") -> list[str]:
    return [s.reason for s in opaque_statements(read(file, kernel))]


@pytest.mark.parametrize(("text", "said"), [
    ("__global__ void k(float* x) {\n  int n = x;\n  n = n + 1;\n  x[0] = n;\n}\n", "'n', of type int, begins with a value that is no number"),
    ("__global__ void k(float* x) {\n  for (int j = -1; j = x; ++ +j) {\n  }\n}\n", "pointer in a place of type int, which holds a number"),
    ("__global__ void k(float* x, add_pointer_t, float* z) {\n  x[0] = 1.f;\n}\n", "the type 'add_pointer_t'"),
    ("__global__ void k(float* x) {\n  x[0] = std::is_void_v<3> + std::integral_constant<int>::value;\n}\n", "'std::integral_constant<int>::value'"),
    ("__global__ void k(float* x) {\n  enum { A = x, B };\n  x[0] = B;\n}\n", "where a number is needed"),
    ("__global__ void k(float* x) {\n  x[blockIdx.w] = 1.f;\n}\n", "the component 'w'"),
    ("__device__ int f(float v) {\n  int n;\n  ;\n  return n;\n}\n__global__ void k(float* x) {\n  x[0] = f(1.f);\n}\n", "")])
def test_what_random_sources_found_stays_text_or_is_read(tmp_path: Path, text: str, said: str) -> None:
    """Exceptions before: a number from a pointer, names of templates alone, a fourth axis, an empty statement between a declaration and a return."""
    found = reasons(written(tmp_path, text))
    assert said in found[0] if said else not found, found


def test_a_header_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    assert reasons(written(tmp_path, '#include "nowhere.cuh"\n#include "omp.h"\n' + PLAIN)) == []


def test_what_a_kernel_lacks_is_named_with_the_header_that_is_not_there(tmp_path: Path) -> None:
    (found,) = reasons(written(tmp_path, '#include "nowhere.cuh"\n__global__ void k(float* x) { x[0] = helper(2.f); }\n'))
    assert "helper" in found and "not found: nowhere.cuh" in found


def test_what_an_included_header_refuses_is_noted(tmp_path: Path) -> None:
    """It stops its own build, not the reading of kernels that need nothing of it."""
    written(tmp_path, "#ifndef LEVEL\n#error LEVEL is not defined\n#endif\n__device__ float half_of(float x) { return x / LEVEL; }\n", "h.cuh")
    assert reasons(written(tmp_path, '#include "h.cuh"\n' + PLAIN)) == []
    found = reasons(written(tmp_path, '#include "h.cuh"\n__global__ void k(float* x) { x[0] = half_of(2.f); }\n'))
    assert len(found) == 1 and "LEVEL" in found[0] and "#error LEVEL is not defined" in found[0]


@pytest.mark.parametrize("mark", ["setup.py", "CMakeLists.txt"])
def test_a_header_is_found_by_its_name_in_the_project(tmp_path: Path, mark: str) -> None:
    written(tmp_path, "", mark)
    written(tmp_path, "#define VALUE 3.f\n", "lib/include/deep/common.h")
    written(tmp_path, "#define VALUE other\n", "far/away/other/common.h")
    file = written(tmp_path, '#include "deep/common.h"\n__global__ void k(float* x) { x[0] = VALUE; }\n', "lib/src/k.cu")
    assert reasons(file) == []


def test_compile_commands_give_folders_and_macros(tmp_path: Path) -> None:
    written(tmp_path, "template <typename T> __device__ T twice(T x) { return x + x; }\n", "odd/place/names.h")
    file = written(tmp_path, "#include <names.h>\n__global__ void k(float* x) { x[0] = twice(WIDTH * 1.f); }\n", "src/k.cu")
    row = {"directory": str(tmp_path), "file": "src/k.cu", "command": "nvcc -Iodd/place -DWIDTH=4 -c src/k.cu"}
    written(tmp_path, json.dumps([row]), "build/compile_commands.json")
    assert reasons(file) == []


USES = "#ifdef WITH_IT\n__device__ float of(float a) { return a; }\n#endif\n__global__ void k(float* x) { x[0] = of(WIDTH * 1.f); }\n"
SCRIPTS = {
    "options in Python": ("setup.py", "def flags():\n    return ['-O3', '-DWITH_IT', '-DWIDTH=4']\n", ""),
    "an f-string of the target": ("build/arch.py",
                                  "class A:\n    def f(self):\n        return [f'-DWIDTH={self.major * 100 + self.minor * 10}', '-DWITH_IT']\n", ""),
    "macros of an extension": ("setup.py", "if torch.cuda.is_available():\n    define_macros += [('WITH_IT', None), ('WIDTH', '4')]\n", ""),
    "definitions of CMake": ("CMakeLists.txt", "add_compile_definitions(WITH_IT)\ntarget_compile_definitions(x PRIVATE WIDTH=4)\n", ""),
    "two values": ("setup.py", "A = ['-DWITH_IT', '-DWIDTH=4']\nB = ['-DWIDTH=5']\n", "WIDTH"),
    "a condition of another kind": ("setup.py", "if fast:\n    A = ['-DWITH_IT', '-DWIDTH=4']\n", "'of'"),
    "a condition of CMake": ("CMakeLists.txt", "if (FAST)\n  add_compile_definitions(WITH_IT WIDTH=4)\nendif()\n", "'of'"),
    "a pair that is no macro": ("setup.py", "define_macros = []\nNAMES = [('WITH_IT', None), ('WIDTH', '4')]\n", "'of'"),
    "what is no Python": ("setup.py", "A = ['-DWITH_IT' '-DWIDTH=4'\n", "'of'"),
}


@pytest.mark.parametrize("what", SCRIPTS)
def test_build_scripts_state_macros(tmp_path: Path, what: str) -> None:
    name, script, missing = SCRIPTS[what]
    written(tmp_path, script, name)
    if name != "setup.py":
        written(tmp_path, "", "pyproject.toml")
    found = reasons(written(tmp_path, USES, "csrc/k.cu"))
    assert any(missing in x for x in found) if missing else found == [], found


def test_a_header_that_includes_nothing_is_read_in_the_unit_that_includes_it(tmp_path: Path) -> None:
    written(tmp_path, "", "setup.py")
    written(tmp_path, "#define WIDTH 4\nstruct Row { float x[WIDTH]; };\n", "csrc/types.h")
    header = written(tmp_path, "static __global__ void k(Row* r, float* y) { y[0] = r[0].x[WIDTH - 1]; }\n", "csrc/k.cuh")
    assert reasons(header)
    written(tmp_path, '#include "types.h"\n#include "k.cuh"\n', "csrc/main.cu")
    header.write_text(header.read_text() + "\n")  # another version: what was read before is kept
    assert reasons(header) == [] and [k.name for k in reader().kernels(header)] == ["k"]


def test_commands_that_are_none_are_passed_over(tmp_path: Path) -> None:
    written(tmp_path, '{"not": "a list"', "compile_commands.json")
    assert reasons(written(tmp_path, PLAIN)) == []


def test_a_header_that_includes_itself_is_read_once(tmp_path: Path) -> None:
    written(tmp_path, '#include "self.h"\n#define ONE 1.f\n', "self.h")
    assert reasons(written(tmp_path, '#include "self.h"\n__global__ void k(float* x) { x[0] = ONE; }\n')) == []


def test_includes_that_nest_too_deep_are_refused(tmp_path: Path) -> None:
    for k in range(70):
        written(tmp_path, f'#include "h{k + 1}.h"\n', f"h{k}.h")
    with pytest.raises(KirError) as caught:
        read(written(tmp_path, '#include "h0.h"\n' + PLAIN), "k")
    assert caught.value.diagnostics[0].id == "KIR-F202"


FORMS = {
    "defined in a macro": "#define HAS (defined(FOO) || defined(BAR))\n#define FOO\n#if HAS and not defined(NONE)\n" + PLAIN + "#endif\n",
    "typename before a call": "struct K { using T = float; };\ntemplate <typename X> __device__ float f(float a) { return a != typename X::T(-1.f) ? "
                              "typename X::T(a) : 0.f; }\n__global__ void k(float* x) { x[0] = f<K>(x[1]); }\n",
    "a cast of a signed number": "template <typename T> __device__ T f() { return (T)-1; }\n__global__ void k(float* x) { x[0] = f<float>(); }\n",
    "an enumeration by its alias": "namespace n { enum class Op { Add, Max }; }\nusing op = n::Op;\ntemplate <op O> __device__ float f(float a) { if constexpr "
                                   "(O == op::Max) return a; else return -a; }\n__global__ void k(float* x) { x[0] = f<op::Max>(x[1]); }\n",
    "members outside of their class": "template <typename T, int N> struct V { T a; __device__ void put(T v); __device__ T get() const; };\n"
                                      "template <typename T, int N> __device__ void V<T, N>::put(T v) { a = v; }\n"
                                      "template <typename T, int N> __device__ T V<T, N>::get() const { return a; }\n"
                                      "template <> struct V<float, 2> { float a; __device__ void put(float v); __device__ float get() const { return a; } };\n"
                                      "__device__ void V<float, 2>::put(float v) { a = v + 1.f; }\n"
                                      "__global__ void k(float* x) { V<float, 4> v; v.put(x[1]); V<float, 2> w; w.put(v.get()); x[0] = w.get(); }\n",
    "a union without a name": "struct P { union { float x, r; }; float y; };\n__global__ void k(float* x) { P p; p.r = x[0]; p.y = 2.f; x[1] = p.x + p.y; }\n",
    "an enumeration without a name": "typedef enum : int { A = 2, B } M;\n__global__ void k(float* x) { x[0] = B; }\n",
    "bases and pairs of the standard library": "template <typename A, typename B> struct F : public std::unary_function<A, B> { __device__ B operator()(A a) "
                                               "{ return static_cast<B>(a); } };\n__device__ std::pair<float, int> two(float a) { return {a, 2}; }\n"
                                               "__global__ void k(float* x) { F<float, float> f; auto p = std::make_pair(1.f, x[1]); auto q = two(x[2]); "
                                               "x[0] = f(p.second) * q.second + q.first; }\n",
    "auto with a star": "struct V { float data[4]; };\n__global__ void k(float* x) { auto* __restrict__ v = reinterpret_cast<V*>(x); V t = v[1]; "
                        "const auto* w = x + 2; x[9] = t.data[1] + w[3]; }\n",
    "const behind a type": "__global__ void k(float* x, long const n, int const* y) { x[0] = x[n] + y[0]; }\n",
    "tables that are read through a pointer": "static const __device__ unsigned long long grid[2] = {0x0807060504030201ull, 4ull};\n"
                                              "__global__ void k(float* x, const int* q) "
                                              "{ const unsigned char* g = (const unsigned char*)(grid + q[0]); x[0] = g[threadIdx.x & 7] * 2.f; }\n",
    "a function that is never left": "template <int K> __device__ int f(float x) { if constexpr (K == 1) { return int(x); } assert(false); "
                                     "__builtin_unreachable(); }\n__global__ void k(float* x) { x[0] = f<0>(x[1]) + ::tanhf(x[2]); }\n",
    "types by torch's names": "template <typename T> struct C {};\ntemplate <> struct C<c10::Half> { using own = __half; };\n"
                              "template <> struct C<at::BFloat16> { using own = __nv_bfloat16; };\n"
                              "__global__ void k(__half* x, c10::Float8_e4m3fn* y) { C<__half>::own h = x[1]; x[0] = h; "
                              "y[0] = static_cast<c10::Float8_e4m3fn>(2.f); }\n",
    "the width of a warp by its name in torch": "__global__ void k(float* x) { float part[C10_WARP_SIZE]; part[3] = x[1]; x[0] = part[3]; }\n",
    "a functor of cooperative groups made with braces": "#include <cooperative_groups/reduce.h>\nnamespace cg = cooperative_groups;\n"
                                                        "__global__ void k(float* x) { auto w = cg::tiled_partition<32>(cg::this_thread_block()); "
                                                        "x[threadIdx.x] = cg::reduce(w, x[threadIdx.x], cg::plus<float>{}); }\n",
    "a macro in capitals of another library": "CUTLASS_HOST_DEVICE float f(float a) { return a; }\n__global__ void k(float* x) { x[0] = f(x[1]); }\n",
}


@pytest.mark.parametrize("what", FORMS)
def test_forms_of_cpp_are_read(tmp_path: Path, what: str) -> None:
    assert reasons(written(tmp_path, FORMS[what])) == []


def bound(file: Path, binding: str) -> Any:
    made = Binding.parse(binding)
    return raised(specialize(reader().instantiate(file, "k", made), made))


WORDS = """__global__ void k(const float* x, float* y, int* e, unsigned* c, int* votes) {
  const int t = threadIdx.x;
  int power;
  y[t] = frexpf(x[t], &power);
  e[t] = power;
  atomicInc(&c[0], 5u);
  if (t < 7) atomicDec(&c[1], 3u);
  votes[t] = __syncthreads_count(x[t] > 0.f);
  votes[32 + t] = __syncthreads_or(x[t] > 100.f);
  votes[64 + t] = __syncthreads_and(x[t] == x[t]);
  auto tile = cooperative_groups::tiled_partition<8>(cooperative_groups::this_thread_block());
  votes[96 + t] = tile.ballot(x[t] > 0.f) | tile.any(x[t] > 1.f) << 8 | tile.all(x[t] < 3.f) << 9;
}
"""


def test_words_compute_what_cuda_says(tmp_path: Path) -> None:
    tensors = "".join(f'[tensors.{name}]\nshape = [{size}]\ndtype = "{dtype}"\nrole = "{role}"\n' for name, size, dtype, role in (
        ("x", 32, "f32", "in"), ("y", 32, "f32", "out"), ("e", 32, "i32", "out"), ("c", 2, "u32", "inout"), ("votes", 128, "i32", "out")))
    program = bound(written(tmp_path, WORDS), f'kernel = "k"\ngrid = [1]\n[metas]\nthreads_x = 32\n{tensors}')
    x = np.random.default_rng(0).normal(size=32).astype(np.float32)
    x[:4] = [0.0, 1e-41, -3e-40, 8.0]
    result = run(program, {"x": x, "c": np.zeros(2, np.uint32)}, {}, mode="check")
    assert result.errors == ()
    fraction, power = np.frexp(x)
    assert (result.outputs["y"] == fraction).all() and (result.outputs["e"] == power).all()
    assert list(result.outputs["c"]) == [32 % 6, 1]
    assert [int(result.outputs["votes"][k]) for k in (0, 32, 64)] == [int((x > 0).sum()), 0, 1]
    rows = x.reshape(4, 8)
    assert result.outputs["votes"][96::8].tolist() == [int(((r > 0) << np.arange(8)).sum()) | (r > 1).any() << 8 | (r < 3).all() << 9 for r in rows]


HALVES = """__global__ void k(const __half* x, unsigned short* y, unsigned char* z, float* w) {
  const int t = threadIdx.x;
  __half_raw r = x[t];
  y[t] = r.x;
  z[t] = __nv_cvt_halfraw_to_fp8(x[t], __NV_SATFINITE, __NV_E5M2);
  w[t] = __half2float(__nv_cvt_fp8_to_halfraw(z[t], __NV_E5M2)) + __half2float(r);
}
"""


def test_halves_are_the_bits_that_they_are_converted_to(tmp_path: Path) -> None:
    tensors = "".join(f'[tensors.{name}]\nshape = [4]\ndtype = "{dtype}"\nrole = "{role}"\n' for name, dtype, role in (
        ("x", "f16", "in"), ("y", "u16", "out"), ("z", "u8", "out"), ("w", "f32", "out")))
    program = bound(written(tmp_path, HALVES), f'kernel = "k"\ngrid = [1]\n[metas]\nthreads_x = 4\n{tensors}')
    x = np.array([1.0, -2.5, 0.375, 96.0], np.float16)
    outputs = run(program, {"x": x}, {}).outputs
    assert (outputs["y"] == x.view(np.uint16)).all() and (outputs["z"] == x.view(np.uint16) >> 8).all() and (outputs["w"] == 2 * x).all()


DEVICE = """__device__ int counts[4];
__constant__ float table[4];
__global__ void k(const void* raw, float* y) {
  const float* x = reinterpret_cast<const float*>(raw);
  const int t = threadIdx.x;
  y[t] = x[t] + table[t & 3];
  atomicAdd(&counts[t & 3], 1);
}
"""


def test_variables_of_the_device_are_tensors(tmp_path: Path) -> None:
    binding = 'kernel = "k"\ngrid = [1]\n[metas]\nthreads_x = 32\n[tensors]\n' \
              'raw = {shape = [32], dtype = "f32"}\ny = {shape = [32], dtype = "f32", role = "out"}\n'
    program = bound(written(tmp_path, DEVICE), binding)
    x, table = np.arange(32, dtype=np.float32), np.array([1, 2, 3, 4], np.float32)
    result = run(program, {"raw": x, "table": table, "counts": np.zeros(4, np.int32)}, {}, mode="check")
    assert result.errors == () and (result.outputs["y"] == x + table[np.arange(32) % 4]).all() and list(result.outputs["counts"]) == [8] * 4


def test_a_device_variable_of_a_parameters_name_is_refused(tmp_path: Path) -> None:
    source = "__device__ int x[4];\n__device__ int f() { return ::x[0]; }\n__global__ void k(float* x) { x[0] = f(); }\n"
    assert any("whose name the kernel gives to something else" in r for r in reasons(written(tmp_path, source)))


# ------------------------------------------------------------------------------------------------------------------- specializations

OVERLOADS = """template <typename T, int N> __global__ std::enable_if_t<(N > 2)> k(T* b, int n) { b[n / N] = T(1); }
template <typename T, int N> __global__ std::enable_if_t<(N <= 2)> k(T* b, int n) { b[n] = T(2); }
void go(float* b) { k<float, 8><<<1, 32>>>(b, 3); k<float, 0><<<1, 32>>>(b, 3); }
"""


def test_an_overload_is_the_one_whose_result_there_is(tmp_path: Path) -> None:
    found = {r["kernel"]: r["state"] for r in examine(written(tmp_path, OVERLOADS), frozenset(), lambda name: None)}
    assert found == {"k<T = f32, N = 8>[32]": "equal", "k<T = f32, N = 0>[32]": "equal"}


KERNEL = "template <typename T, int N> __global__ void k(const T* a, T* b, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n" \
         "  if (i < n) b[i] = a[i] * T(N);\n}\n"
HOSTS = {
    "a switch": ("void go(const float* a, float* b, int n, int w) { switch (w) { case 2: k<float, 2><<<n, 128>>>(a, b, n); break; "
                 "case 4: k<float, 4><<<n, 256>>>(a, b, n); break; } }\n", ["k<T = f32, N = 2>[128]", "k<T = f32, N = 4>[256]"]),
    "both parts of a branch": ("void go(const float* a, float* b, int n) { if (n > 9) { k<float, 1><<<n, 64>>>(a, b, n); } else { "
                               "k<double, 1><<<n, 64>>>((double*)a, (double*)b, n); } }\n", ["k<T = f32, N = 1>[64]", "k<T = f64, N = 1>[64]"]),
    "torch's dispatch": ("void go(torch::Tensor a, torch::Tensor b) { AT_DISPATCH_FLOATING_TYPES_AND_HALF(a.scalar_type(), \"k\", [&] { "
                         "k<scalar_t, 2><<<a.numel(), 32>>>(a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(), a.numel()); }); }\n",
                         ["k<T = f32, N = 2>[32]", "k<T = f64, N = 2>[32]", "k<T = f16, N = 2>[32]"]),
    "a configuration": ("void go(const float* a, float* b, int n) { cudaLaunchConfig_t c; c.gridDim = n; c.blockDim = 96; auto f = k<float, 7>; "
                        "cudaLaunchKernelEx(&c, f, a, b, n); }\n", ["k<T = f32, N = 7>[96]"]),
    "a host template that is instantiated": ("template <int W> void go(const float* a, float* b, int n) { k<float, W><<<n, 32 * W>>>(a, b, n); }\n"
                                             "template void go<2>(const float*, float*, int);\ntemplate void go<3>(const float*, float*, int);\n",
                                             ["k<T = f32, N = 2>[64]", "k<T = f32, N = 3>[96]"]),
    "a switch of torch's by cases": ("#define CASES(...) AT_DISPATCH_CASE(at::ScalarType::Half, __VA_ARGS__) "
                                     "AT_DISPATCH_CASE(at::ScalarType::Float, __VA_ARGS__)\n"
                                     "#define MINE(TYPE, ...) AT_DISPATCH_SWITCH(TYPE, \"k\", CASES(__VA_ARGS__))\nvoid go(torch::Tensor a, torch::Tensor b) { "
                                     "MINE(a.scalar_type(), [&] { ::k<scalar_t, 2><<<4, 32>>>(a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(), 9); }); }\n",
                                     ["k<T = f16, N = 2>[32]", "k<T = f32, N = 2>[32]"]),
    "a host template that another file's function calls": ("template <typename I> void go(I* a, int n) { k<I, 3><<<n, 64>>>(a, a, n); }\n"
                                                           "void top(void* p, int n) { n1::go<double>(reinterpret_cast<double*>(p), n); }\n",
                                                           ["k<T = f64, N = 3>[64]"]),
    "a constant of the class that the host code names": (
        "namespace n1 { template <int THREADS, typename T> struct Traits { static constexpr int width = 2; "
        "static constexpr int threads = THREADS * width; }; }\n"
        "template <int W> void go(const float* a, float* b, int n) { using Mine = n1::Traits<W, float>; k<float, W><<<n, Mine::threads>>>(a, b, n); }\n"
        "template void go<48>(const float*, float*, int);\n", ["k<T = f32, N = 48>[96]"]),
    "an instantiation": ("template __global__ void k<float, 5>(const float*, float*, int);\n", ["k<float, 5>[256]"]),
    "nothing": ("", ["k<half, 1>[256]"]),
}


@pytest.mark.parametrize("what", HOSTS)
def test_specializations_are_those_of_the_host_code(tmp_path: Path, what: str) -> None:
    host, labels = HOSTS[what]
    found = reader().specializations(written(tmp_path, KERNEL + host))
    assert [each.label for each in found] == labels
    assert [bool(each.guessed) for each in found] == [what in ("an instantiation", "nothing")] * len(labels)


def test_a_launch_in_another_file_of_the_project_counts(tmp_path: Path) -> None:
    written(tmp_path, "", "pyproject.toml")
    file = written(tmp_path, "#pragma once\n" + KERNEL, "include/k.cuh")
    written(tmp_path, '#include "k.cuh"\n' + HOSTS["a switch"][0], "src/go.cu")
    assert [each.label for each in reader().specializations(file)] == HOSTS["a switch"][1]


def test_a_file_beside_with_a_kernel_of_the_same_name_launches_its_own(tmp_path: Path) -> None:
    file = written(tmp_path, KERNEL + HOSTS["a switch"][0])
    before = [each.label for each in reader().specializations(file)]
    (tmp_path / "other.cu").write_text(KERNEL + "void own(double* x) { k<double, 3><<<1, 96>>>(x, x, 1); }\n")
    assert [each.label for each in reader().specializations(file)] == before
    file = written(tmp_path, KERNEL + "template <typename T> void run(T* x) { k<T, 5><<<1, 160>>>(x, x, 1); }\n")  # of a type that no caller gives
    assert ["5>[160]" in each.label for each in reader().specializations(file)] == [True]


def test_ten_thousand_instantiations_are_capped_and_counted(tmp_path: Path) -> None:
    many = "".join(f"template __global__ void k<float, {k}>(const float*, float*, int);\n" for k in range(10_000))
    found = reader().specializations(written(tmp_path, KERNEL + many))
    assert len(found) == 8 and [each.more for each in found] == [0] * 7 + [9_992]


def test_a_specialization_is_written_back_equal(tmp_path: Path) -> None:
    file = written(tmp_path, KERNEL + HOSTS["a switch"][0])
    assert [(r["kernel"], r["state"]) for r in examine(file, frozenset(), lambda name: None)] == [(label, "equal") for label in HOSTS["a switch"][1]]


@pytest.mark.parametrize("source", ["@triton.jit\ndef k(x):\n  __global__ = 1\n  tl.store(x, 1)\n", "__global__ void k(float* x) { x[0] = "])
def test_another_language_and_half_a_file_are_refused(tmp_path: Path, source: str) -> None:
    (record,) = examine(written(tmp_path, source), frozenset(), lambda name: None)
    assert record["state"] in ("unreadable", "refused") and record["id"] in ("KIR-F208", "KIR-F210")


FORM = """kir 1
program k
  in a: f32[64]
  out b: f32[64]
kernel k grid (i: 1) threads 8
  for t in 0..8 parallel thread
    {}
"""


def test_the_form_that_is_compared_forgives_names_alone() -> None:
    def made(*lines: str) -> Any:
        return parse_program(FORM.format("\n    ".join(lines)))
    named = made("let v = a[t * 4 +: 4]", "b[t] = pick(v, 0) + pick(v, 1)")
    assert same_thread(made("register v: f32[4] = a[t * 4 +: 4]", "b[t] = v[0] + v[1]"), named)
    assert not same_thread(made("register v: f32[4] = a[t * 4 +: 4]", "v[1] = 2.0", "b[t] = v[0] + v[1]"), named)
    assert not same_thread(made("register v: f32[4] = a[t * 4 +: 4]", "b[t] = v[0] + v[2]"), named)
    whole = made("b[t * 8 +: 8] = a[t * 8 +: 8]")
    assert same_thread(made("for e in 0..2 unroll", "  b[t * 8 + e * 4 +: 4] = a[t * 8 + e * 4 +: 4]"), whole)
    assert not same_thread(made("for e in 0..2 unroll", "  b[t * 8 + e * 4 +: 4] = a[t * 8 +: 4]"), whole)


def test_kernels_of_one_name_are_each_named_with_their_parameters(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("""
#include <cuda_fp16.h>
__global__ void k(const float* __restrict__ x, float* y, int n);
__global__ void k(const float* __restrict__ x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }
__global__ void k(const __half *x, __half *y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }
__global__ void k(__half* x) { x[threadIdx.x] = __float2half(0.f); }
void go(const float* x, float* y, int n) { k<<<1, 32>>>(x, y, n); }
void gone(__half* x) { k<<<1, 64>>>(x); }
""")
    reader: Any = frontend("cuda")
    of_half, of_one = "k(const __half*, __half*, int)", "k(__half*)"
    assert [ref.name for ref in reader.kernels(file)] == ["k", of_half, of_one]
    assert [each.label for each in reader.specializations(file)] == ["k[32]", f"{of_half}[32]", f"{of_one}[64]"]
    assert "x: f16" in program_text(reader.parse(file, of_half)) and "x: f32" in program_text(reader.parse(file, "k"))
    with pytest.raises(KirError, match="no kernel 'k' takes"):
        reader.parse(file, "k(int)")


def test_queries_keys_and_values_in_one_tensor_are_three_times_their_sizes(tmp_path: Path) -> None:
    """The last of the three is not read, so that no product of sizes is as long as what is: B * T * C * NH was the shortest that had it, and too short
    with two heads."""
    file = written(tmp_path, """
__global__ void keys(float* out, const float* in, int B, int T, int C, int NH) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= B * NH * T * T) return;
  int s = i % T, t = i / T % T, h = i / (T * T) % NH, b = i / (NH * T * T), hs = C / NH;
  float sum = 0.f;
  for (int k = 0; k < hs; k++) sum += in[b * T * C * 3 + t * C * 3 + h * hs + k] * in[b * T * C * 3 + s * C * 3 + h * hs + C + k];
  out[i] = sum;
}
void run(float* out, const float* in, int B, int T, int C, int NH) { keys<<<(B * NH * T * T + 255) / 256, 256>>>(out, in, B, T, C, NH); }
""")
    binding, _ = launched(f"{file}::keys")
    assert binding is not None and binding.tensors["in"].shape == ["B * T * C * 3"] and "C % NH == 0" in binding.facts


@pytest.mark.parametrize(("body", "told"), [
    ("for (int a = i, b = 2; a <= i + 7; a += 4, b += n) s += x[a] * b;", "for a in 0..2\n"),
    ("for (int a = i, b = 2; a < n; a += 4, b += a) s += x[a] * b;", "while a < n\n"),          # what steps beside it depends on it
    ("for (int a = i, b = 2; a < n; a += 4, b += 3) { s += x[a] * b; b++; }", "while a < n\n"),  # and is changed elsewhere, too
    ("for (unsigned a = i, b = 2; a <= n; a += 4, b += 3) s += x[a] * b;", "while a <= cast(n, u32)\n"),  # which may never end
])
def test_a_loop_that_steps_in_several_numbers_counts_where_they_step_evenly(tmp_path: Path, body: str, told: str) -> None:
    text = program_text(read(written(tmp_path, f"__global__ void k(const float* x, float* y, int n) {{\n  int i = threadIdx.x;\n  float s = 0;\n  {body}\n"
                                               "  y[i] = s;\n}\n"), "k"))
    assert told in text


@pytest.mark.parametrize("set_", ["if (n > 3) p = y;", "for (int i = 0; i < n; i++) { s += p[i]; p = y; }"])
def test_a_pointer_that_may_point_into_several_arrays_stays_text(tmp_path: Path, set_: str) -> None:
    """In a branch or a loop around which it is declared, another array is not what it points into from there on."""
    (found,) = reasons(written(tmp_path, f"__global__ void k(const float* x, float* y, int n) {{\n  const float* p = x;\n  float s = 0;\n  {set_}\n"
                                         "  y[0] = s + p[1];\n}\n"))
    assert "one of several arrays" in found
