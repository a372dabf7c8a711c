"""Kernels that call functions of CUDA source: text in front of them, or headers of their package that the compiler includes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.frontends.tilelang.frontend import TileLangFrontend
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.bindings.specialize import specialize
from kir.ir.printer import program_text
from kir.ir.visit import walk
from kir.learning.corpus.roundtrip.equal import same_program
from kir.surface import backend
from tests.frontends.reading import opaque
from tests.frontends.tilelang.reading import HEAD, execute, read, written

HEADER = """#pragma once
#include <cstdint>
namespace own {
// Four numbers that nobody reads again.
__device__ __forceinline__ void take16(void* to, const void* from) {
  uint64_t kept;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(kept));
  uint4 bits;
  asm("ld.global.L1::evict_first.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
      : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w) : "l"(from), "l"(kept));
  __builtin_memcpy(to, &bits, 16);
}
__device__ __forceinline__ void plain16(void* to, const void* from) {
  uint4 bits = *reinterpret_cast<const uint4*>(from);
  __builtin_memcpy(to, &bits, 16);
}
template <typename T> __device__ __forceinline__ T one(const T* from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 2, "");
  T value;
  if constexpr (sizeof(T) == 4) {
    uint32_t bits;
    asm("ld.global.L1::evict_last.b32 %0, [%1];" : "=r"(bits) : "l"(from));
    __builtin_memcpy(&value, &bits, 4);
  } else {
    uint16_t bits;
    asm("ld.global.L1::evict_last.b16 %0, [%1];" : "=h"(bits) : "l"(from));
    __builtin_memcpy(&value, &bits, 2);
  }
  return value;
}
template <typename T> __device__ __forceinline__ void first_half(T* to, const T* from) {
  for (int i = 0; i < 8 / (int)sizeof(T); ++i) to[i] = from[i];
}
__device__ __forceinline__ float leaky(float x, float slope) { return x > 0.f ? x : x * slope; }
__device__ __forceinline__ int leader(int value) { return __shfl_sync(0xffffffffu, value, 0) + (threadIdx.x & 31); }
__device__ __forceinline__ void count(int* total, int* seen, int last) {
  if (atomicAdd(total, 1) != last) return;
  seen[1] = blockIdx.x + gridDim.x;
}
__device__ __forceinline__ void leaves() { asm volatile("exit;"); }
__device__ __forceinline__ void holds(float* at) {
  __shared__ float own_memory[4];
  own_memory[threadIdx.x & 3] = at[0];
  __syncthreads();
  at[0] = own_memory[0];
}
}
"""
KERNEL = """
FLAGS = ["-include", "own.h"]
def factory(n, dtype: str = "float32"):
    @T.prim_func
    def kernel(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype), Z: T.Tensor([4], "int32")):
        with T.Kernel(T.ceildiv(n, 128), threads=32) as bx:
            tx = T.get_thread_binding()
            held = T.alloc_local((4,), dtype)
BODY
    return kernel
"""
COPIED = """
            T.call_extern("handle", "own::FN", T.address_of(held[0]), T.address_of(X[bx * 128 + tx * 4]))
            for i in T.serial(4):
                Y[bx * 128 + tx * 4 + i] = held[i] * T.cast(2, dtype)
"""


def package(folder: Path, body: str, header: str = HEADER) -> Path:
    """A module of a package whose headers lie beside it."""
    (folder / "__init__.py").write_text("")
    (folder / "csrc").mkdir(exist_ok=True)
    (folder / "csrc" / "own.h").write_text(header)
    file = folder / "source.py"
    file.write_text(HEAD + KERNEL.replace("BODY", body.strip("\n")))
    return file


def again(program: n.Program, folder: Path) -> n.Program:
    """The program as it is read from what is written of it."""
    return TileLangFrontend().parse_text(folder / "again.py", backend("tilelang").emit(program).text, "kernel")


@pytest.mark.parametrize("name, cache", [("take16", "evict_first_l2_evict_first"), ("plain16", "")])
def test_bytes_that_a_function_moves_are_a_copy(tmp_path: Path, name: str, cache: str) -> None:
    file = package(tmp_path, COPIED.replace("FN", name).replace(', dtype: str = "float32"', ""))
    program = read(file)
    assert opaque(program) == []
    (copy,) = [s for k in program.kernels for b in k.body for s in walk(b) if isinstance(s, n.Copy)]
    assert copy.src.cache == cache and copy.via == "vector" and not copy.src.clip
    assert "128 // dtype_bits(term=dtype)" in program_text(program)  # four floats, or eight halves
    text = backend("tilelang").emit(program).text
    assert f"kir_copy16{'_' if cache else ''}{cache}" in text
    assert same_program(program, again(program, tmp_path))


def test_what_moves_is_what_the_interpreter_moves(tmp_path: Path) -> None:
    file = package(tmp_path, COPIED.replace("FN", "take16"))
    x = np.arange(256, dtype=np.float32)
    found = execute(file, {"X": x, "Y": np.zeros_like(x), "Z": np.zeros(4, np.int32)}, {"n": 256, "dtype": "f32"})
    assert (found["Y"] == 2 * x).all()


def test_a_load_of_one_element_is_one_of_each_dtype(tmp_path: Path) -> None:
    file = package(tmp_path, """
            Y[bx * 128 + tx] = T.call_extern(dtype, "own::one", T.address_of(X[bx * 128 + tx]))
""")
    program = read(file)
    (load,) = [x for k in program.kernels for b in k.body for x in walk(b) if isinstance(x, n.Load)]
    assert opaque(program) == [] and load.cache == "evict_last" and load.at.buffer.dtype.is_symbolic
    assert same_program(program, again(program, tmp_path))


def test_a_function_that_does_something_else_for_each_dtype_stays_text(tmp_path: Path) -> None:
    body = 'T.call_extern("handle", "own::first_half", T.address_of(held[0]), T.address_of(X[bx * 128 + tx * 4]))'
    file = package(tmp_path, f"            {body}\n            Y[bx * 128 + tx] = held[0]\n")
    assert "for each dtype that the binding may give" in opaque(read(file))[0] or "which is" in opaque(read(file))[0]


def test_arithmetic_lanes_and_atomics_of_a_function_stand_in_its_place(tmp_path: Path) -> None:
    file = package(tmp_path, """
            Y[bx * 128 + tx] = T.call_extern("float32", "own::leaky", T.cast(X[bx * 128 + tx], "float32"), 0.5)
            if T.call_extern("int32", "own::leader", bx + tx) == bx + tx:
                T.call_extern("handle", "own::count", T.address_of(Z[0]), T.address_of(Z[2]), 63)
""")
    program = read(file)
    assert opaque(program) == [] and same_program(program, again(program, tmp_path))
    x = np.linspace(-1, 1, 256).astype(np.float32)
    tensors = {"X": Tensor([256], "f32"), "Y": Tensor([256], "f32"), "Z": Tensor([4], "i32")}
    binding = Binding(metas={"n": 256, "dtype": "f32"}, tensors=tensors)
    made = specialize(TileLangFrontend().instantiate(file, "kernel", binding), binding)
    found = run(made, {"X": x, "Y": np.zeros_like(x), "Z": np.zeros(4, np.int32)}).outputs
    for begin in (0, 128):
        own = x[begin:begin + 32]
        assert (found["Y"][begin:begin + 32] == np.where(own > 0, own, own * np.float32(0.5))).all()
    assert found["Z"][0] == 64 and found["Z"][3] in (2, 3)  # the last of 64 threads says which CTA it is in


@pytest.mark.parametrize("call, why", [
    ('"own::holds", T.address_of(rows[0, 0])', "memory of its own that threads share"),
    ('"own::absent", T.address_of(Y[0])', "which is not declared"),
    ('"own::take16", T.address_of(tile[0, 0]), T.address_of(X[0])', "registers of 'tile', which TileLang deals out"),
    ('"own::plain16", T.address_of(rows[0, 4]), T.address_of(X[0]), 1', "own::plain16"),
])
def test_what_a_function_does_that_has_no_meaning_here_stays_text(tmp_path: Path, call: str, why: str) -> None:
    file = package(tmp_path, f"""
            tile = T.alloc_fragment((32, 4), "float32")
            rows = T.alloc_shared((8, 32), "float32")
            T.fill(tile, 0)
            T.call_extern("handle", {call})
            Y[bx * 128 + tx] = held[0]
""")
    assert any(why in reason for reason in opaque(read(file))), opaque(read(file))


def test_headers_that_define_a_function_twice_are_told_apart_by_the_name_in_the_kernels_file(tmp_path: Path) -> None:
    file = package(tmp_path, COPIED.replace("FN", "take16"))
    (tmp_path / "csrc" / "other.h").write_text(HEADER.replace("evict_first", "evict_last"))
    assert opaque(read(file)) == []  # "own.h" stands in it
    (tmp_path / "csrc" / "own.h").write_text(HEADER.replace("void take16(void* to", "void take16(int to"))
    assert "which no definition fits" in opaque(read(file))[0]  # a header that has changed is read again
    (tmp_path / "csrc" / "own.h").write_text(HEADER)
    file.write_text(file.read_text().replace('"own.h"', '"flags"'))
    assert opaque(read(file)) == ["a function of CUDA source, 'own::take16', that several headers define"]


def test_macros_that_change_words_behind_them_are_refused(tmp_path: Path) -> None:
    file = package(tmp_path, COPIED.replace("FN", "take16"), "#define bits other\n" + HEADER)
    assert opaque(read(file)) == ["a function of CUDA source, 'own::take16', behind macros of its own"]
    file = package(tmp_path, COPIED.replace("FN", "take16"), "#ifdef FAST\n#endif\n" + HEADER)  # which only the compiler's options tell
    assert opaque(read(file)) == ["a function of CUDA source, 'own::take16', behind macros of its own"]
    guarded = "#ifndef OWN_H\n#define OWN_H\n" + HEADER + "#if defined(__CUDA_ARCH__)\n#endif\n#endif\n"
    assert opaque(read(package(tmp_path, COPIED.replace("FN", "take16"), guarded))) == []
    file = written(tmp_path, """
@T.prim_func
def kernel(X: T.Tensor([32], "float32")):
    with T.Kernel(1, threads=32) as b:
        T.import_source("#define float double")
        X[T.get_thread_binding()] = 1.0
""")
    assert opaque(read(file)) == ["CUDA source in front of the kernel, with macros of its own"]


def test_simd_words_of_cuda_are_arithmetic_on_parts_of_a_register(tmp_path: Path) -> None:
    file = written(tmp_path, """
@T.prim_func
def kernel(X: T.Tensor([32], "uint32"), W: T.Tensor([32], "uint32"), Y: T.Tensor((3, 32), "uint32")):
    with T.Kernel(1, threads=32) as b:
        t = T.get_thread_binding()
        Y[0, t] = T.call_extern("uint32", "__vmaxu2", X[t], W[t])
        Y[1, t] = T.call_extern("uint32", "__vmins4", X[t], W[t])
        Y[2, t] = T.call_extern("uint32", "__vcmpgeu2", X[t], W[t])
""")
    program = read(file)
    assert opaque(program) == [] and same_program(program, again(program, tmp_path))
    rng = np.random.default_rng(7)
    x, w = (rng.integers(0, 1 << 32, 32, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    found = run(specialize(program, Binding()), {"X": x, "W": w, "Y": np.zeros((3, 32), np.uint32)}).outputs["Y"]
    wide = np.maximum(x.view(np.uint16), w.view(np.uint16))
    assert (found[0].view(np.uint16) == wide).all()
    assert (found[1].view(np.int8) == np.minimum(x.view(np.int8), w.view(np.int8))).all()
    assert (found[2].view(np.uint16) == np.where(x.view(np.uint16) >= w.view(np.uint16), 0xffff, 0)).all()


def test_a_factor_of_unrolling_may_be_one_of_the_binding(tmp_path: Path) -> None:
    file = written(tmp_path, """
def factory(n, factor):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32) as b:
            t = T.get_thread_binding()
            for k in T.unroll(n // 32, unroll_factor=factor):
                Y[k * 32 + t] = X[k * 32 + t]
    return kernel
""")
    program = read(file)
    assert opaque(program) == [] and "unroll {factor=factor}" in program_text(program)
    assert same_program(program, again(program, tmp_path))


def test_a_function_whose_name_the_binding_completes_is_each_that_there_is(tmp_path: Path) -> None:
    body = """
            T.call_extern("handle", f"own::NAME_{policy}", T.address_of(held[0]), T.address_of(X[bx * 128 + tx * 4]))
            for i in T.serial(4):
                Y[bx * 128 + tx * 4 + i] = held[i]
"""
    header = HEADER.replace("void take16(", "void get_once(").replace("void plain16(", "void get_plain(")
    file = package(tmp_path, body.replace("NAME", "get"), header)
    file.write_text(file.read_text().replace("def factory(n, dtype", 'def factory(n, policy: str = "once", dtype'))
    program = read(file)
    assert opaque(program) == [] and "static if meta_is(policy, value=once)" in program_text(program)
    assert same_program(program, again(program, tmp_path))
    bound = TileLangFrontend().instantiate(file, "kernel", Binding(metas={"n": 256, "policy": "plain", "dtype": "f32"}))
    assert [s.src.cache for k in bound.kernels for b in k.body for s in walk(b) if isinstance(s, n.Copy)] == [""]
    file.write_text(file.read_text().replace("own::get_", "own::none_"))
    assert opaque(read(file)) == ["a text that is put together from open values"]


def test_a_place_that_a_function_counts_through_all_of_a_tensor_is_one_of_its_rows(tmp_path: Path) -> None:
    header = HEADER.replace("float leaky(", "float at(const float* from, int k) { return from[k + 1]; }\n__device__ __forceinline__ float leaky(")
    file = package(tmp_path, """
            W = T.reshape(X, (n // 8, 8))
            for k in T.serial(3):
                Y[bx * 128 + tx * 4 + k] = T.call_extern("float32", "own::at", T.address_of(W[0, 2]), bx * 64 + tx * 2 + k)
""", header)
    file.write_text(file.read_text().replace(', dtype: str = "float32"', "").replace("dtype)", '"float32")'))
    program = read(file)
    assert opaque(program) == [] and "% 8" in program_text(program)
    x = np.arange(512, dtype=np.float32)
    found = execute(file, {"X": x, "Y": np.zeros_like(x), "Z": np.zeros(4, np.int32)}, {"n": 512})["Y"].reshape(-1, 4)
    assert found[:32, :3].tolist() == [[2 * t + k + 3 for k in range(3)] for t in range(32)]


def test_a_function_that_ends_its_thread_ends_it(tmp_path: Path) -> None:
    file = package(tmp_path, """
            if tx >= 16:
                T.call_extern("handle", "own::leaves")
            Y[bx * 128 + tx] = T.cast(1, dtype)
""")
    program = read(file)
    assert opaque(program) == [] and "return" in program_text(program) and same_program(program, again(program, tmp_path))
    found = execute(file, {"X": np.zeros(128, np.float32), "Y": np.zeros(128, np.float32), "Z": np.zeros(4, np.int32)}, {"n": 128, "dtype": "f32"})
    assert (found["Y"][:16] == 1).all() and not (found["Y"][16:32] == 1).any()


def test_bytes_that_a_function_puts_into_a_tensor_are_a_copy(tmp_path: Path) -> None:
    file = package(tmp_path, """
            for i in T.serial(4):
                held[i] = X[bx * 128 + tx * 4 + i]
            T.call_extern("handle", "own::plain16", T.address_of(Y[bx * 128 + tx * 4]), T.address_of(held[0]))
""")
    program = read(file)
    text = backend("tilelang").emit(program).text
    assert opaque(program) == [] and "kir_copy16" in text and same_program(program, again(program, tmp_path))
    x = np.arange(128, dtype=np.float32)
    assert (execute(file, {"X": x, "Y": np.zeros_like(x), "Z": np.zeros(4, np.int32)}, {"n": 128, "dtype": "f32"})["Y"] == x).all()


def test_a_number_of_a_dtype_that_the_binding_decides_is_not_taken_for_another(tmp_path: Path) -> None:
    file = package(tmp_path, """
            Y[bx * 128 + tx] = T.cast(T.call_extern("float32", "own::leaky", X[bx * 128 + tx], 0.5), dtype)
""")
    assert opaque(read(file)) == ["a number of a dtype that the binding decides, in a function of CUDA source"]
    known = TileLangFrontend().instantiate(file, "kernel", Binding(metas={"n": 128, "dtype": "f16"}))
    assert opaque(known) == []


def test_places_in_one_memory_are_seen_to_be_one(tmp_path: Path) -> None:
    header = HEADER.replace("float leaky(", "float swapped(float* a, float* b) {\n  const float x = *a;\n  *b = x + 1.f;\n  return *a;\n}\n"
                            "__device__ __forceinline__ float leaky(")
    body = """
            held[0] = X[bx * 128 + tx]
            Y[bx * 128 + tx] = T.call_extern("float32", "own::swapped", T.address_of(held[0]), T.address_of(held[AT]))
"""
    x = np.arange(128, dtype=np.float32)
    for at, more in (("0", 1), ("1", 0), ("tx % 2", None)):
        file = package(tmp_path, body.replace("AT", at), header)
        file.write_text(file.read_text().replace(', dtype: str = "float32"', "").replace("dtype)", '"float32")'))
        program = read(file)
        assert opaque(program) == [] and same_program(program, again(program, tmp_path))
        found = execute(file, {"X": x, "Y": np.zeros_like(x), "Z": np.zeros(4, np.int32)}, {"n": 128})["Y"][:32]
        assert (found == x[:32] + (np.arange(32) % 2 == 0 if more is None else more)).all()
    file.write_text(file.read_text().replace("T.address_of(held[0])", "T.address_of(tile[0])").replace(
        "held[0] =", 'tile = T.alloc_shared((4,), "float32")\n            held[0] =').replace("T.address_of(held[tx % 2])", "T.address_of(tile[1])"))
    assert opaque(read(file)) == ["a function of CUDA source of several places in 'tile'"]
