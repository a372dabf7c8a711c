"""A kernel that moves vectors is for sizes at which they are aligned."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.ir.binding import Binding
from kir.surface.reading import launched

ROWS = """
__global__ void gemv(const float* __restrict__ A, const float* __restrict__ x, float* __restrict__ y, int M, int K) {
  int lane = threadIdx.x, row = blockIdx.x * 4 + threadIdx.y;
  if (row >= M) return;
  float sum = 0.f;
  for (int k = lane * WIDE; k < K; k += 32 * WIDE) {
    VECTOR xv = *reinterpret_cast<const VECTOR*>(&x[k]);
    VECTOR av = *reinterpret_cast<const VECTOR*>(&A[row * K + k]);
    sum += av.x * xv.x + av.y * xv.y;
  }
  for (int o = 16; o >= 1; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
  if (lane == 0) y[row] = sum;
}
void run(const float* A, const float* x, float* y, int M, int K) { gemv<<<(M + 3) / 4, dim3(32, 4)>>>(A, x, y, M, K); }
"""


@pytest.mark.parametrize(("vector", "wide"), [("float4", 4), ("float2", 2)])
def test_a_size_is_a_multiple_of_the_vector_that_threads_move(vector: str, wide: int, tmp_path: Path) -> None:
    binding = _bound(ROWS.replace("VECTOR", vector).replace("WIDE", str(wide)), tmp_path)
    assert f"K % {wide} == 0" in binding.facts and not any(f.startswith("M %") for f in binding.facts)
    assert {name: t.shape for name, t in binding.tensors.items()} == {"A": ["M", "K"], "x": ["K"], "y": ["M"]}


@pytest.mark.parametrize("loop", ["for (int k = lane; k < K / 4; k += 32)", "for (int k = lane; k < (M * 0 + K) >> 2; k += 32)"])
def test_a_loop_over_the_vectors_of_a_row_runs_where_the_row_is_long_enough(loop: str, tmp_path: Path) -> None:
    """At sizes smaller than a vector it does nothing, and says nothing of how the rows lie."""
    text = ROWS.replace("for (int k = lane * WIDE; k < K; k += 32 * WIDE)", loop).replace("&x[k])", "&x[4 * k])").replace("K + k])", "K + 4 * k])")
    binding = _bound(text.replace("VECTOR", "float4"), tmp_path)
    assert "K % 4 == 0" in binding.facts and not any(f.startswith("M %") for f in binding.facts)


def test_vectors_that_are_aligned_at_every_size_ask_for_nothing(tmp_path: Path) -> None:
    whole = "int k = (blockIdx.x * 256 + threadIdx.x) * 4;\n  if (k + 3 < n) *reinterpret_cast<float4*>(&y[k]) = *reinterpret_cast<const float4*>(&x[k]);\n"
    binding = _bound(f"__global__ void copied(const float* x, float* y, int n) {{\n  {whole}}}\n"
                     "void run(const float* x, float* y, int n) { copied<<<(n + 1023) / 1024, 256>>>(x, y, n); }\n", tmp_path)
    assert not any("%" in f for f in binding.facts) and binding.tensors["x"].shape == ["n"]


def _bound(text: str, tmp_path: Path) -> Binding:
    file = tmp_path / "vectors.cu"
    file.write_text(text, encoding="utf-8")
    binding, _ = launched(str(file))
    assert binding is not None
    return binding
