"""What a cubin could remember or look at is found in the cubin, on every architecture that is compiled for."""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.gate.gpu.images.cubin import clocks, heap, memory, require_closed, watched
from kir.hardware.machine import toolkit
from kir.surface import Image

TEXT = """
#include <cstdio>
__device__ unsigned calls;
static __device__ float kept[64];
__device__ int begun = 5;
__device__ const float table[4] = {1, 2, 3, 4};
__constant__ float weights[4] = {1, 2, 3, 4};
extern "C" __global__ void keeps(float* Y, int n) {
  atomicAdd(&calls, 1u); kept[n] += 1.0f; begun += n;
  printf("%d\\n", n);
  Y[n] = kept[n + 1] + table[n] + weights[n] + sinf(Y[n]);
}
extern "C" __global__ void looks(unsigned long long* Y) {
  unsigned a, b, c, d, e; unsigned long long f;
  asm volatile("mov.u32 %0, %clock;" : "=r"(a)); asm volatile("mov.u32 %0, %clock_hi;" : "=r"(b));
  asm volatile("mov.u32 %0, %globaltimer_hi;" : "=r"(c)); asm volatile("mov.u32 %0, %pm0;" : "=r"(d));
  asm volatile("mov.u32 %0, %smid;" : "=r"(e)); asm volatile("mov.u64 %0, %globaltimer;" : "=l"(f));
  Y[0] = a; Y[1] = b; Y[2] = c; Y[3] = d; Y[4] = e; Y[5] = f;
}
"""
PLAIN = """
__constant__ float weights[4] = {1, 2, 3, 4};
extern "C" __global__ void plain(float* Y, int n) {
  __shared__ float parts[128];
  parts[threadIdx.x] = Y[blockIdx.x * 128 + threadIdx.x]; __syncthreads(); __nanosleep(20);
  Y[n] = sinf(parts[127 - threadIdx.x]) * weights[n & 3];
}
"""


def compiled(text: str, target: str, folder: Path) -> bytes:
    found = toolkit()
    assert found is not None
    (folder / "x.cu").write_text(text)
    subprocess.run([found.nvcc.path, "-cubin", "-O3", f"-arch={target}", "x.cu", "-o", "x.cubin"], cwd=folder, check=True, capture_output=True)
    return (folder / "x.cubin").read_bytes()


@pytest.mark.nvcc
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120"])
def test_memory_and_clocks_are_found(target: str, tmp_path: Path) -> None:
    cubin = compiled(TEXT, target, tmp_path)
    found = {m.name: m.size for m in memory(cubin)}
    (hidden,) = [name for name in found if "kept" in name]
    assert found.pop(hidden) == 256
    assert found == {"calls": 4, "begun": 4, "table": 16, "weights": 16}, "texts of printf and tables of sinf are no memory of its own"
    assert heap(cubin) == ()
    assert clocks(cubin) == ("%clock", "%clock_hi", "%globaltimer", "%globaltimer_hi", "%pm0")
    assert sorted(map(str, watched(Image(cubin, "keeps")))) == sorted(str([m.name, m.size]) for m in memory(cubin))


@pytest.mark.nvcc
def test_a_clock_alone_is_refused_and_an_honest_kernel_is_not(tmp_path: Path) -> None:
    clock = compiled('extern "C" __global__ void k(long long* Y) { Y[0] = clock64(); }', "sm_90a", tmp_path)
    with pytest.raises(KirError, match="k reads %clock") as read:
        require_closed([Image(clock, "k")])
    assert read.value.diagnostics[0].id == "KIR-G931"
    plain = Image(compiled(PLAIN, "sm_90a", tmp_path), "plain")
    require_closed([plain], ["mov.u32 %r1, %ctaid.x;"])
    with pytest.raises(KirError, match="reads %gridid") as counted:
        require_closed([plain], ["mov.u64 %rd1, %gridid;"])
    assert counted.value.diagnostics[0].id == "KIR-G931"


@pytest.mark.nvcc
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120"])
def test_memory_of_the_heap_is_refused(target: str, tmp_path: Path) -> None:
    text = 'extern "C" __global__ void k(float* Y) { float* p = (float*)malloc(64); if (p) { Y[0] = p[1]; free(p); } }'
    allocated = compiled(text, target, tmp_path)
    assert heap(allocated) == ("malloc",)
    with pytest.raises(KirError, match="k calls malloc") as refused:
        require_closed([Image(allocated, "k")])
    assert refused.value.diagnostics[0].id == "KIR-G930"


@pytest.mark.parametrize("image", [b"", b".version 8.0\n.target sm_90", b"\x7fELF\x02" + b"\0" * 80])
def test_what_is_no_cubin_is_refused(image: bytes) -> None:
    with pytest.raises(KirError, match="is no cubin") as told:
        require_closed([Image(image, "k")])
    assert told.value.diagnostics[0].id == "KIR-G932"
