"""How long memory is whose size a container of the host says, or nothing but the kernel does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kir.surface.finding import launches_of
from kir.surface.launches.assembled import Found
from kir.surface.reading import kernel_of, located

KERNEL = """
#include <vector>
__global__ void scaled(const float* x, float* y, int n, float by) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = by * x[i];
}
"""
GROUPED = """
__global__ void centred(const float* x, float* y, int C, int HW, int G) {
    const float* from = x + (size_t)blockIdx.x * (C / G) * HW;
    float* to = y + (size_t)blockIdx.x * (C / G) * HW;
    float mean = from[0];
    for (int i = threadIdx.x; i < C / G * HW; i += blockDim.x) to[i] = from[i] - mean;
}
size_t bytes();
int main() {
    const int N = 8, C = 64, H = 16, W = 4, G = 8;
    float *x, *y;
    cudaMalloc(&x, bytes());
    cudaMalloc(&y, bytes());
    centred<<<N * G, 128>>>(x, y, C, H * W, G);
}
"""


def found_in(text: str, tmp_path: Path) -> Found:
    """The first launch of the only kernel of a file."""
    file = tmp_path / "host.cu"
    file.write_text(text, encoding="utf-8")
    path, name = located(str(file))
    reader, kernel = kernel_of(path, name)
    return launches_of(reader, path, kernel.name)[0]


@pytest.mark.parametrize(("host", "shape"), [
    ("void go(int n) { std::vector<float> h(n); float *x, *y; cudaMalloc(&x, h.size() * sizeof(float)); cudaMalloc(&y, sizeof(float) * h.size()); "
     "scaled<<<80, 256>>>(x, y, h.size(), 2.f); }", ["n"]),
    ("void go(int n) { std::vector<float> h((size_t)n * 4, 1.f); float *x, *y; cudaMalloc(&x, h.size() * 4); cudaMalloc(&y, h.size() * 4); "
     "scaled<<<80, 256>>>(x, y, 4 * n, 2.f); }", ["n_2 * 4"]),
    ("void go(int n) { std::vector<float> h; h.resize(n); float *x, *y; cudaMalloc(&x, h.size() * 4); cudaMalloc(&y, h.size() * 4); "
     "scaled<<<80, 256>>>(x, y, n, 2.f); }", ["n"]),
    ("void go(int n) { thrust::host_vector<float> h(n); thrust::device_vector<float> x = h, y(n); scaled<<<80, 256>>>("
     "thrust::raw_pointer_cast(x.data()), thrust::raw_pointer_cast(y.data()), x.size(), 2.f); }", ["n"]),
    ("void go(int n) { thrust::device_vector<float> x, y(n); x.resize(n); "
     "scaled<<<80, 256>>>(thrust::raw_pointer_cast(&x[0]), thrust::raw_pointer_cast(y.data()), n, 2.f); }", ["n"])])
def test_a_container_says_how_long_memory_is(host: str, shape: list[str], tmp_path: Path) -> None:
    found = found_in(KERNEL + host, tmp_path)
    assert not found.open
    assert [found.binding.tensors[name].shape for name in "xy"] == [shape, shape] and {found.binding.tensors[name].dtype for name in "xy"} == {"f32"}


def test_how_far_a_kernel_reaches_is_seen_where_it_reaches_something(tmp_path: Path) -> None:
    """With fewer channels than groups it reads nothing, which had been taken for staying inside of any size."""
    found = found_in(GROUPED, tmp_path)
    assert "C % G == 0" in found.binding.facts
    assert all(sorted("".join(map(str, found.binding.tensors[name].shape)).replace("(", "").replace(")", "").split(" * ")) == ["C", "HW", "N"]
               for name in "xy")
