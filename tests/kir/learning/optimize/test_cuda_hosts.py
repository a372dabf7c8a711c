"""A patch of a CUDA file: the kernel stays, the new one stands beside it, and its one launch chooses."""
from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.gate.counts.work import by_nvcc
from kir.hardware.target import target
from kir.ir.binding import Binding
from kir.ir.nodes import Program
from kir.ir.printer import expr_text, program_text
from kir.learning.optimize.hosts.cuda import beside
from kir.learning.optimize.inputs import shape_for, subject
from kir.learning.optimize.judge import CpuJudge, modelled
from kir.learning.optimize.plan import Budget, Setting
from kir.learning.optimize.search import Search
from kir.surface.edits import SourceEdit
from kir.surface.reading import launched, load_expert

SCALE = """#include <cuda_runtime.h>
#define THREADS 128
// scale_kernel<<<1, 1>>>(x) is no launch, and neither is "scale_kernel<<<1, 1>>>"
template <typename T, int STEP>
__global__ void scale_kernel(const T* x, const T* w, T* y, int rows, int channels, int groups, float by) {
  int c = blockIdx.x % channels;
  for (int i = threadIdx.x; i < rows; i += STEP) y[i * channels + c] = x[i * channels + c] * w[c / (channels / groups)] * by;
}
template <typename T>
void scale(const T* x, const T* w, T* y, int rows, int channels, int groups, float by, cudaStream_t stream) {
  if (rows > 0)
    scale_kernel<T, THREADS><<<channels, THREADS, 0, stream>>>(x, w, y, rows, channels, groups, by);
}
template void scale<float>(const float*, const float*, float*, int, int, int, float, cudaStream_t);
template void scale<double>(const double*, const double*, double*, int, int, int, float, cudaStream_t);
"""


def binding_of(path: Path) -> Binding:
    found, _ = launched(path.as_posix())
    assert found is not None
    return found


def edit_of(tmp_path: Path, text: str, change: tuple[str, str] = ("", ""), name: str = "scale.cu") -> tuple[SourceEdit, Program]:
    """The edit that puts a kernel as it is read beside itself in a text that is changed after it was read."""
    (path := tmp_path / name).write_text(text)
    binding = binding_of(path)
    program = load_expert(path.as_posix(), binding).program
    path.write_text(text.replace(*change) if change[0] else text)
    return beside(path, binding.kernel, binding, program), program


def test_the_one_launch_of_a_cuda_kernel_chooses_and_the_kernel_stays(tmp_path: Path) -> None:
    """The condition says all that was taken for granted: the types, compile-time values, facts, alignment, and no tensor that is read where one is written."""
    edit, program = edit_of(tmp_path, SCALE)
    assert "channels % groups == 0" in [expr_text(f) for f in program.facts]
    kept = [line for line in SCALE.splitlines() if line not in edit.after.splitlines()]
    assert kept == ["    scale_kernel<T, THREADS><<<channels, THREADS, 0, stream>>>(x, w, y, rows, channels, groups, by);"]
    for said in ("std::is_same<T, float>::value", "(THREADS) == 128", "groups > 0\n", "channels % groups == 0", "% 16 == 0",
                 "(y) != static_cast<const void*>(x)", "(float*)y, stream);", "#include <type_traits>", "namespace scale_kernel_kir {"):
        assert said in edit.after, said
    assert "where dim3(THREADS).x == 128 and" in edit.passed_over[0]
    (again := tmp_path / "again.cu").write_text(edit.after)
    with pytest.raises(KirError, match="has a 'scale_kernel_faster' already"):
        beside(again, "scale_kernel", binding_of(tmp_path / "scale.cu"), program)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_what_is_written_into_a_cuda_file_compiles(tmp_path: Path) -> None:
    edit, _ = edit_of(tmp_path, SCALE)
    (made := tmp_path / "edited.cu").write_text(edit.after)
    done = subprocess.run(["nvcc", "-arch=sm_90a", "-cubin", "-o", str(tmp_path / "out"), str(made)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


LAUNCH = "scale_kernel<T, THREADS><<<channels, THREADS, 0, stream>>>(x, w, y, rows, channels, groups, by);"


@pytest.mark.parametrize(("change", "reason"), [
    ((LAUNCH, f"{{ {LAUNCH} {LAUNCH} }}"), "it has 2 launches"),
    ((LAUNCH, "launch_it(x);"), "no launch of 'scale_kernel' is in it"),
    ((LAUNCH, f"auto f = [&] () -> int {{ return 0, {LAUNCH[:-1]}; }};"), "its launch is no statement"),
    ((LAUNCH, LAUNCH.replace("(x, w, y, ", "(x, w, y++, ")), "may not be worked out twice"),
    ((LAUNCH, LAUNCH.replace("(x, w, y, ", "(x, w, make(y), ")), r"'make\(\.\.\)' is called"),
    ((LAUNCH, LAUNCH.replace("<T, THREADS>", "")), "its launch does not say"),
    ((LAUNCH, LAUNCH.replace(", by)", ")")), "does not give each parameter"),
    (("#define THREADS 128\n", 'extern "C" { int f(); }\n#define THREADS 128\n'), "C linkage"),
    (("template <typename T>\nvoid scale(", "#define GO \\\n  scale_kernel<T, THREADS><<<1, 1>>>(x)\ntemplate <typename T>\nvoid scale("), "it has 2 launches"),
])
def test_a_cuda_file_whose_launch_cannot_choose_is_refused_with_the_reason(change: tuple[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(KirError, match=reason) as said:
        edit_of(tmp_path, SCALE, change)
    assert said.value.diagnostics[0].id == "KIR-C102"


HALVES = """#include <torch/extension.h>
template <typename scalar_t>
__global__ void halves(const scalar_t* x, scalar_t* y, const int d) {
  for (int i = threadIdx.x; i < d; i += blockDim.x)
    y[(int64_t)blockIdx.x * d + i] = x[(int64_t)blockIdx.x * 2 * d + i] * x[(int64_t)blockIdx.x * 2 * d + d + i];
}
void run(torch::Tensor& y, torch::Tensor& x) {
  int d = x.size(-1) / 2;
  dim3 grid(x.numel() / x.size(-1));
  dim3 block(std::min(d, 1024));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "halves", [&] { halves<scalar_t><<<grid, block>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), d); });
}
"""


def test_a_launch_of_torch_chooses_by_what_the_kernel_is_given(tmp_path: Path) -> None:
    """Of a size that the kernel sees the half of alone, the half says it; the other is the grid; a block of up to 1024 threads is tried where it is full."""
    edit, _ = edit_of(tmp_path, HALVES, name="halves.cu")
    call = "launch_halves_faster(static_cast<int>(dim3(grid).x), (d * 2), (float*)(x.data_ptr<scalar_t>()), (float*)(y.data_ptr<scalar_t>()), 0);"
    assert call in edit.after and "dim3(block).x == 1024" in edit.after and "std::is_same<scalar_t, float>::value" in edit.after


SUMS = """
__global__ void sums(const float* x, float* y, int rows, int cols) {
  float acc = 0.f;
  for (int i = threadIdx.x; i < cols; i += 32) acc += x[(long long)blockIdx.x * cols + i];
  for (int s = 16; s > 0; s >>= 1) acc += __shfl_down_sync(0xffffffffu, acc, s);
  if (threadIdx.x == 0) y[blockIdx.x] = acc;
}
void run(const float* x, float* y, int rows, int cols) { sums<<<rows, 32>>>(x, y, rows, cols); }
"""


def test_what_nvcc_does_by_itself_is_no_gain(tmp_path: Path) -> None:
    """A loop without a pragma is unrolled four times in the file as it is, so that `unroll` brings nothing: the kernel as given has that time, though what KIR
    writes of it says at each loop that it is not unrolled."""
    (path := tmp_path / "sums.cu").write_text(SUMS)
    one = subject(str(path), None, "")
    setting = Setting(one.problem, shape_for(one, "rows=2048,cols=4096"), target("h200"), "cuda")
    times = [sum(c.seconds for c in modelled(p, setting, "cuda")) for p in (one.program, by_nvcc(one.program))]
    found = Search(one.program, setting, CpuJudge(setting, compiles=False), (), budget=Budget(candidates=1), given_surface="cuda").run()
    assert found.baseline.measured is not None and found.baseline.measured.seconds == pytest.approx(times[1], rel=1e-5) and times[1] < 0.8 * times[0]
    assert {text.partition("unroll")[2] for text in program_text(by_nvcc(one.program)).splitlines() if " in 0.." in text and "parallel" not in text} == {
        " {factor=4}", ""}, "what is known to be a few rounds is written out"


def test_a_size_that_divides_another_one_is_seen_in_what_a_kernel_reaches(tmp_path: Path) -> None:
    """Groups of channels, as no primes show them: the shape is that at whole quotients, and the kernel is tried where there are several groups."""
    edit_of(tmp_path, SCALE)
    assert [str(f) for f in binding_of(tmp_path / "scale.cu").tensors["w"].shape] == ["groups"]
    one = subject(str(tmp_path / "scale.cu"), None, "")
    sizes = [s.sizes for s in one.problem.shapes]
    assert sizes and all(s["channels"] % s["groups"] == 0 and s["channels"] > s["groups"] > 1 for s in sizes)
