"""Kernels whose window moves over a padded image: how large their tensors are is found at small sizes at which the window meets the image, and places in rows
of a computed length are rows and columns."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir import read
from kir.learning.optimize.inputs import usual_sizes
from kir.surface.reading import launched
from tests.command_line import called

POOL = """#include <cuda_runtime.h>
template <typename T, int K>
__global__ void pooled(const T* __restrict__ in, T* __restrict__ out, int H, int W, int OH, int OW, int stride, int pad) {
  int ox = blockIdx.x * blockDim.x + threadIdx.x, oy = blockIdx.y;
  if (ox >= OW) return;
  const T* plane = in + (size_t)blockIdx.z * H * W;
  T best = -1e30f;
  for (int ky = 0; ky < K; ++ky) {
    int y = oy * stride - pad + ky;
    if (y < 0 || y >= H) continue;
    for (int kx = 0; kx < K; ++kx) {
      int x = ox * stride - pad + kx;
      if (x >= 0 && x < W) best = max(best, plane[y * W + x]);
    }
  }
  out[((size_t)blockIdx.z * OH + oy) * OW + ox] = best;
}
void pool(const float* in, float* out, int N, int H, int W, int stride, int pad) {
  int OH = (H + 2 * pad - 3) / stride + 1, OW = (W + 2 * pad - 3) / stride + 1;
  pooled<float, 3><<<dim3((OW + 31) / 32, OH, N), 32>>>(in, out, H, W, OH, OW, stride, pad);
}
"""
LOOPS = """import tilelang
import tilelang.language as T

def summed(M, N, BN):
    @T.prim_func
    def f(X: T.Tensor((M, N), "float32"), S: T.Tensor((M,), "float32")):
        with T.Kernel(M, threads=64) as b:
            x, s = T.alloc_fragment((BN,), "float32"), T.alloc_fragment((1,), "float32")
            part = T.alloc_fragment((1,), "float32")
            T.clear(s)
            for k in T.serial(N // BN):
                T.copy(X[b, k * BN], x)
                T.reduce_sum(x, part, dim=0)
                s[0] = s[0] + part[0]
{rest}            S[b] = s[0] / N
    return f

k = tilelang.compile(summed(512, 1024, 64), out_idx=[1])
"""


def test_a_padded_window_is_read_over_its_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pool.cu").write_text(POOL, encoding="utf-8")
    code, out, _ = called(capsys, "parse", str(tmp_path / "pool.cu"), "--normal")
    assert code == 0 and "in %in: f32[N, H, W]" in out and "%out[block_z, block_y, block_x * 32 + t]" in out and "continue" not in out
    assert "fact pad >= 0" in out and all(f"fact {x} >= 1" in out for x in ("N", "H", "W", "stride")), "an image may be padded by nothing"
    usual = usual_sizes(read(tmp_path / "pool.cu").program)
    assert (usual["stride"], usual["pad"]) == (1, 1) and min(usual[x] for x in ("N", "H", "W")) >= 64, "a window is small, an image is not"


def test_a_loop_over_whole_tiles_alone_says_that_tiles_are_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rest, said in (("", True), ("            for k in T.serial(N % BN):\n                s[0] = s[0] + X[b, N // BN * BN + k]\n", False)):
        (tmp_path / "s.py").write_text(LOOPS.replace("{rest}", rest), encoding="utf-8")
        code, out, told = called(capsys, "parse", str(tmp_path / "s.py"), "--normal")
        assert code == 0 and ("fact N % 64 == 0" in out) is said and ("N % 64 == 0, or the grid or a loop leaves a rest out" in out + told) is said


DEPTHWISE = """#include <cuda_runtime.h>
__global__ void depthwise(const float* x, const float* w, float* y, int C, int H, int W) {
  int ow = blockIdx.x * blockDim.x + threadIdx.x, oh = blockIdx.y, nc = blockIdx.z;
  if (ow >= W) return;
  float acc = 0.f;
  for (int k = 0; k < 3; ++k) {
    int ih = oh + k - 1;
    if (ih >= 0 && ih < H) acc += x[(nc * H + ih) * W + ow] * w[(nc % C) * 3 + k];
  }
  y[(nc * H + oh) * W + ow] = acc;
}
void run(const float* x, const float* w, float* y, int N, int C, int H, int W) {
  depthwise<<<dim3((W + 63) / 64, H, N * C), 64>>>(x, w, y, C, H, W);
}
"""


def test_planes_are_an_axis_where_nothing_says_what_they_are_made_of(tmp_path: Path) -> None:
    (file := tmp_path / "depthwise.cu").write_text(DEPTHWISE)
    found, _ = launched(str(file))
    assert found is not None and {k: found.tensors[k].shape for k in ("x", "y")} == {"x": ["C * N", "H", "W"], "y": ["C * N", "H", "W"]}
