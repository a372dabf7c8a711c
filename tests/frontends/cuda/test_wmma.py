"""Fragments of `nvcuda::wmma`: products in every arrangement of their operands, from shared and from global memory, mean what CUDA says, and are
written again as instructions of the lanes."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kir.analysis.normal.normal_form import normalize
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.printer import program_text
from kir.ir.visit import walk
from kir.rewrite.meaning import difference, draw, interpreted
from kir.surface import backend
from kir.surface.reading import load_expert
from tests.frontends.reading import opaque
from tests.programs import from_source
from tests.round_trips import CUDA

TYPES = {"half": "f16", "__nv_bfloat16": "bf16", "wmma::precision::tf32": "f32", "float": "f32", "signed char": "i8", "unsigned char": "u8",
         "int": "i32"}
SIZES = {"M": 32, "N": 16, "K": 32}


@dataclass(frozen=True)
class Product:
    """C = 2 A B: the dtype of the operands and of the accumulator, how the operands lie, and whether they are loaded from shared memory."""

    of: str
    into: str
    a: str = "row"
    b: str = "row"
    shared: bool = True

    @property
    def source(self) -> str:
        deep, kind = (8, "float") if "tf32" in self.of else (16, self.of)
        at_a, ld_a = ("(k + j) * M + m + i", "M") if self.a == "col" else ("(m + i) * K + k + j", "K")
        at_b, ld_b = ("(n + j) * K + k + i", "K") if self.b == "col" else ("(k + i) * N + n + j", "N")

        def origin(at: str) -> str:
            return at.replace(" + i)", ")").replace(" + j)", ")").removesuffix(" + i").removesuffix(" + j")
        loads = f"wmma::load_matrix_sync(a, A + {origin(at_a)}, {ld_a}); wmma::load_matrix_sync(b, B + {origin(at_b)}, {ld_b});"
        if self.shared:
            into_a, into_b = ("j * 24 + i" if self.a == "col" else "i * 24 + j"), ("j * 24 + i" if self.b == "col" else "i * 24 + j")
            loads = f"""
    for (int e = threadIdx.x; e < 256; e += 32) {{ int i = e / 16, j = e % 16; sA[{into_a}] = A[{at_a}]; sB[{into_b}] = B[{at_b}]; }}
    __syncwarp();
    wmma::load_matrix_sync(a, sA, 24); wmma::load_matrix_sync(b, sB, 24);
    __syncwarp();"""
        rounded = "".join(f"for (int e = 0; e < {x}.num_elements; ++e) {x}.x[e] = wmma::__float_to_tf32({x}.x[e]); " for x in "ab") if deep == 8 else ""
        return f"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;
__global__ void product(const {kind}* A, const {kind}* B, {self.into}* C, int M, int N, int K) {{
  __shared__ {kind} sA[16 * 24], sB[16 * 24];
  const int m = blockIdx.y * 16, n = blockIdx.x * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, {deep}, {self.of}, wmma::{self.a}_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, {deep}, {self.of}, wmma::{self.b}_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, {deep}, {self.into}> c;
  wmma::fill_fragment(c, 0.0f);
  for (int k = 0; k < K; k += {deep}) {{
    {loads}
    {rounded}wmma::mma_sync(c, a, b, c);
  }}
  for (int e = 0; e < c.num_elements; ++e) c.x[e] = c.x[e] + c.x[e];
  wmma::store_matrix_sync(C + m * N + n, c, N, wmma::mem_row_major);
}}
"""

    def program(self, folder: Path) -> n.Program:
        tensors = {"A": Tensor(shape=["K", "M"] if self.a == "col" else ["M", "K"], dtype=TYPES[self.of]),
                   "B": Tensor(shape=["N", "K"] if self.b == "col" else ["K", "N"], dtype=TYPES[self.of]),
                   "C": Tensor(shape=["M", "N"], dtype=TYPES[self.into])}
        facts = [f for x in "MNK" for f in (f"{x} >= 16", f"{x} <= 16384", f"{x} % 16 == 0")]
        binding = Binding(kernel="product", sizes=["M", "N", "K"], facts=facts, grid=["N // 16", "M // 16"], metas={"threads_x": 32}, tensors=tensors)
        return from_source(folder, "product.cu", self.source, "product", binding.text())


PRODUCTS = [Product("half", "float"), Product("half", "float", "row", "col"), Product("half", "float", "col", "row"),
            Product("half", "half", "col", "col", False), Product("__nv_bfloat16", "float", "row", "col", False), Product("__nv_bfloat16", "float"),
            Product("wmma::precision::tf32", "float", "row", "col", False), Product("wmma::precision::tf32", "float", "col", "row", False),
            Product("signed char", "int", "row", "col"), Product("signed char", "int", "col", "row"), Product("unsigned char", "int", "row", "col", False)]


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda p: f"{TYPES[p.of]}-{p.into}-{p.a}-{p.b}-{'shared' if p.shared else 'global'}")
def test_a_product_of_fragments_is_a_product(case: Product, tmp_path: Path) -> None:
    p = case.program(tmp_path)
    assert opaque(p) == []
    found = interpreted(p, SIZES, checked=True)
    assert [str(x) for x in found.findings if x.severity == "error"] == []
    given = draw(p, SIZES)
    a, b = (given[x].astype(np.float64) for x in "AB")
    wanted = 2 * ((a.T if case.a == "col" else a) @ (b.T if case.b == "col" else b))
    assert np.abs(found.outputs["C"].astype(np.float64) - wanted).max() <= 4e-3 * np.abs(wanted).max()
    loads = {x.fn for k in p.kernels for x in walk(k) if isinstance(x, n.Call)} & {"ldmatrix", "mma_sync"}
    assert loads == ({"ldmatrix", "mma_sync"} if case.shared and case.into != "int" else {"mma_sync"})
    assert difference(found, interpreted(CUDA.read_back(normalize(p), tmp_path), SIZES), "approximate") == ""


@pytest.mark.nvcc
def test_fragments_are_written_as_instructions_that_compile(tmp_path: Path) -> None:
    by = backend("cuda")
    emitted = by.emit(PRODUCTS[0].program(tmp_path))
    assert "ldmatrix.sync" in emitted.text and "mma.sync.aligned.m16n8k16" in emitted.text
    assert any(op.startswith("HMMA") for op in by.compile(emitted, target("sm_80")).mix)


def test_fragments_of_other_shapes_stay_text_with_a_reason(tmp_path: Path) -> None:
    case = PRODUCTS[0]
    text = case.source.replace("16, 16, 16, half", "32, 8, 16, half")
    binding = Binding(kernel="product", sizes=["M", "N", "K"], facts=[], grid=["1", "1"], metas={"threads_x": 32},
                      tensors={x: Tensor(shape=["M", "K"], dtype="f16" if x != "C" else "f32") for x in "ABC"})
    p = from_source(tmp_path, "product.cu", text, "product", binding.text())
    assert "the class 'fragment', which is only declared" in opaque(p)


def test_an_array_that_is_written_as_a_whole_is_read_through_its_views_too(tmp_path: Path) -> None:
    """A view is made where the array is declared: what is stored later goes to that array."""
    (tmp_path / "k.cu").write_text("""
__global__ void product(const float* A, unsigned char* C) {
  float a[4];
  #pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = A[threadIdx.x * 4 + i] + 1.f;
  #pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = a[i] * 2.f;
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(a);
  for (int i = 0; i < 16; ++i) C[threadIdx.x * 16 + i] = bytes[i];
}
""")
    tensors = {"A": Tensor(shape=[128], dtype="f32"), "C": Tensor(shape=[512], dtype="u8")}
    binding = Binding(kernel="product", grid=["1"], metas={"threads_x": 32}, tensors=tensors)
    (tmp_path / "binding.toml").write_text(binding.text())
    p = load_expert(f"{tmp_path / 'k.cu'}::product", tmp_path / "binding.toml").program
    assert "view register" in program_text(p)
    found, x = interpreted(p, {}).outputs["C"], draw(p, {})["A"]
    assert np.array_equal(found.view(np.float32), (x + np.float32(1)) * np.float32(2))
