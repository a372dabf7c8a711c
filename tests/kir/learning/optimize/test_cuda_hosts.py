"""A patch of a CUDA file: the kernel stays, the new one stands beside it, and its one launch chooses."""
from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.gate.counts.work import by_nvcc
from kir.hardware.target import target
from kir.ir.binding import Binding
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text, program_text
from kir.learning.optimize.hosts.cuda import beside
from kir.learning.optimize.hosts.cuda_names import said_in_one_way
from kir.learning.optimize.inputs import shape_for, subject
from kir.learning.optimize.judge import CpuJudge, modelled
from kir.learning.optimize.plan import Budget, Setting
from kir.learning.optimize.search import Search
from kir.learning.optimize.starts import as_nvcc_takes, left_to_nvcc, starts
from kir.learning.tune.search import Measured
from kir.surface import backend
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
    ((LAUNCH, "launch_it(x);"), "no launch of 'scale_kernel' is in it"),
    ((LAUNCH, f"auto f = [&] () -> int {{ return 0, {LAUNCH[:-1]}; }};"), "its launch is no statement"),
    ((LAUNCH, LAUNCH.replace("(x, w, y, ", "(x, w, y++, ")), "may not be worked out twice"),
    ((LAUNCH, LAUNCH.replace("(x, w, y, ", "(x, w, make(y), ")), r"'make\(\.\.\)' is called"),
    ((LAUNCH, LAUNCH.replace("<T, THREADS>", "")), "its launch does not say"),
    ((LAUNCH, LAUNCH.replace(", by)", ")")), "does not give each parameter"),
    (("#define THREADS 128\n", 'extern "C" { int f(); }\n#define THREADS 128\n'), "C linkage"),
    ((LAUNCH, "GO(x, y);\n#define GO(x, y) \\\n  scale_kernel<T, THREADS><<<1, 1>>>(x)"), "its launch is in a macro"),
    (("template <typename T, int STEP>", "__global__ void scale_kernel(int x) {}\ntemplate <typename T, int STEP>"), "it has 2 definitions of 'scale_kernel'"),
    (("  int c = blockIdx", "#ifdef FAST\n  by *= 2.0f;\n#endif\n  int c = blockIdx"), "conditions of the preprocessor stand in the kernel"),
    (("#define THREADS 128\n", "#ifndef THREADS\n#define THREADS WARPS * 32\n#endif\n"), "'THREADS' may be defined otherwise"),
])
def test_a_cuda_file_whose_launch_cannot_choose_is_refused_with_the_reason(change: tuple[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(KirError, match=reason) as said:
        edit_of(tmp_path, SCALE, change)
    assert said.value.diagnostics[0].id == "KIR-C102"


def moved(tmp_path: Path, *changes: tuple[str, str], text: str = "") -> str:
    """What stands in a changed file instead of its launch."""
    text = text or SCALE
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    edit, _ = edit_of(tmp_path, text)
    assert edit.undone() == text
    return edit.after


@pytest.mark.parametrize(("host", "one"), [
    ("int blocks = n / 2;", True), ("const int more = 2, blocks = n / more;", True), ("dim3 blocks(n, WIDE);", True), ("int blocks = n > 4 ? 64 : n;", True),
    ("dim3 tile(4); int blocks = n / tile.x;", True), ("int blocks = n; if (n > 4) blocks = 64;", False), ("dim3 blocks(n); if (n > 4) blocks.x = 64;", False),
    ("dim3 blocks(n); adjust(&blocks);", False), ("int blocks = per_cta(n);", False), ("n /= 2; int blocks = n;", False),
    ("for (int blocks = 1; blocks < n; blocks++)", False),
    ("int blocks; std::cin >> blocks;", False), ("int blocks = shape.rows;", False), ("int more = n; more += 1; int blocks = more;", False),
])
def test_host_code_says_a_grid_in_one_way_where_no_name_in_it_is_given_another_value(host: str, one: bool) -> None:
    before, after = "#define WIDE 4\nvoid before(int blocks) { blocks = 3; }\nvoid run(const float* x, int n) { if (x) { ", " k<<<blocks, 32>>>(x); } }\n"
    text = f"{before}{host}{after}"
    assert said_in_one_way(text, text.index("k<<<"), "blocks") == one


def test_the_new_kernel_is_launched_over_the_grid_that_it_was_read_under_alone(tmp_path: Path) -> None:
    """The last value that the text gives a name need not be the one with which the launch is come to: a kernel with the grid of one way is wrong on another."""
    after = moved(tmp_path, ("  if (rows > 0)\n", "  int blocks = channels; if (rows > 4) blocks = 64;\n"), ("<<<channels,", "<<<blocks,"))
    assert "if (static_cast<int>(dim3(blocks).x) == " in after and "&& static_cast<int>(dim3(blocks).z) == 1\n" in after


def test_each_launch_chooses_where_it_is_launched_as_the_one_that_was_read(tmp_path: Path) -> None:
    """One that says less stays as it is, and so does one in a macro."""
    other = "  scale_kernel<T, THREADS><<<channels / 2, THREADS, 0, stream>>>(x, w, y, rows, channels, groups, by);\n"
    macro = "#define GO \\\n  scale_kernel<T, THREADS><<<1, 1>>>(x)\n"
    here = "template <typename T>\nvoid scale("
    after = moved(tmp_path, ("  if (rows > 0)\n", f"{other}  if (rows > 0)\n"), (here, macro + here))
    assert after.count("scale_kernel_kir::launch_scale_kernel_faster(") == 2 and "\n  scale_kernel<T, THREADS><<<1, 1>>>(x)\n" in after
    assert "static_cast<int>(dim3(channels / 2).x) == channels" in after or "static_cast<int>(dim3(channels).x) == channels / 2" in after


def test_what_the_preprocessor_decides_is_decided_for_the_new_kernel_too(tmp_path: Path) -> None:
    """What it includes does not stand under a condition that it does not; a macro that may be defined otherwise has the value that was read."""
    other = "#ifdef HALF\n#include <cuda_fp16.h>\n#endif\n#ifndef THREADS\n#define THREADS 128\n#endif\n"
    after = moved(tmp_path, ("#define THREADS 128\n", other), ("] * by;", "] * fabsf(by);"))
    assert after.index("#include <cmath>") < after.index("#ifdef HALF") and "&& (THREADS) == 128\n" in after
    assert "<cassert>" not in after and "<cstring>" not in after, "nothing needs them"
    assert "static __global__ void" in after, "a header may be included twice"


def test_a_kernel_in_a_namespace_is_launched_by_its_name_there(tmp_path: Path) -> None:
    opened = ("template <typename T, int STEP>", "namespace detail {\ntemplate <typename T, int STEP>")
    inside = opened, ("template <typename T>\nvoid", "}\ntemplate <typename T>\nvoid")
    after = moved(tmp_path, *inside, ("    scale_kernel<T, THREADS>", "    detail::scale_kernel<T, THREADS>"))
    assert " detail::scale_kernel_kir::launch_scale_kernel_faster(" in after
    with pytest.raises(KirError, match="its name is taken out of a namespace"):
        moved(tmp_path, *inside, ("}\ntemplate <typename T>\nvoid", "}\nusing detail::scale_kernel;\ntemplate <typename T>\nvoid"))


MOVED = """template <int THREADS>
__global__ void moved(const float* x, float* y, int n) {
  extern __shared__ float s[];
  s[threadIdx.x] = x[blockIdx.x * n + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * n + threadIdx.x] = s[threadIdx.x];
}
void run(const float* x, float* y, int rows) { moved<64><<<rows, 64, 64 * sizeof(float)>>>(x, y, 64); }
"""


def test_dynamic_shared_memory_is_asked_for_its_size(tmp_path: Path) -> None:
    assert "if (static_cast<int>(64 * sizeof(float)) == 256\n" in edit_of(tmp_path, MOVED, name="moved.cu")[0].after
    usual = MOVED.replace("<int THREADS>", "<typename T, int THREADS = 64>").replace("moved<64>", "moved<float>")
    usual = usual.replace("const float* x, float* y, int n", "const T* x, T* y, int n")
    assert "THREADS" not in edit_of(tmp_path, usual, name="usual.cu")[0].after.partition("void run(")[2], "what a launch leaves to the template is said there"


def test_line_ends_tabs_and_what_stands_around_are_kept(tmp_path: Path) -> None:
    odd = SCALE.replace("    scale_kernel<", "\t\tscale_kernel<").replace("// scale_kernel<<<1", "// \x0c größer: scale_kernel<<<1").removesuffix("\n")
    (tmp_path / "a").mkdir()
    edit, _ = edit_of(tmp_path / "a", odd)
    (path := tmp_path / "scale.cu").write_bytes(odd.replace("\n", "\r\n").encode())
    binding = binding_of(path)
    ended = beside(path, binding.kernel, binding, load_expert(path.as_posix(), binding).program)
    assert ended.after == edit.after.replace("\n", "\r\n") and ended.before == odd.replace("\n", "\r\n") and "\n\t\t} else {\n" in edit.after
    path.write_bytes(odd.encode("latin-1"))
    with pytest.raises(KirError, match="it is no text in UTF-8"):
        beside(path, binding.kernel, binding, load_expert(path.as_posix(), binding).program)


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
    assert call in edit.after and "block.x == 1024" in edit.after and "std::is_same<scalar_t, float>::value" in edit.after
    assert "dim3(block)" not in edit.after and "// @" not in edit.after


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
    window = "kir 1\nprogram p\n  size N: i32\n  in X: f32[N]\n  out Y: f32[N]\nkernel p grid (i: N) threads 1\n  register s: f32 = 0.0\n" \
             "  for j in 0..{}\n    for k in 0..3\n      if i + j + k < N\n        s = s + X[i + j + k]\n  Y[i] = s\n"
    made = [program_text(as_nvcc_takes(parse_program(window.format(rounds), "p"))) for rounds in (3, 40)]
    assert [text.count(" unroll\n") for text in made] == [2, 1], "also with its borders, if it is small"
    asked = list[Program]()

    @dataclass
    class Measuring(CpuJudge):
        def judge(self, program: Program, surface: str) -> Measured:
            asked.append(program)
            return Measured(1e-5)
    found = Search(one.program, setting, Measuring(setting, measures=True), (), budget=Budget(candidates=1), given_surface="cuda").run()
    assert found.baseline.measured == Measured(1e-5) and asked == [left_to_nvcc(one.program)], "measured with no word of how often a loop is written out"
    texts = [backend("cuda").emit(p).text for p in (one.program, asked[0])]
    assert ["#pragma unroll 1" in text for text in texts] == [True, False]
    assert {k.attrs for s in starts(one.program, setting, 5.0, "cuda") for k in s.program.kernels} == {asked[0].kernels[0].attrs}, "nor in what becomes of it"


def test_a_size_that_divides_another_one_is_seen_in_what_a_kernel_reaches(tmp_path: Path) -> None:
    """Groups of channels, as no primes show them: the shape is that at whole quotients, and the kernel is tried where there are several groups."""
    edit_of(tmp_path, SCALE)
    assert [str(f) for f in binding_of(tmp_path / "scale.cu").tensors["w"].shape] == ["groups"]
    one = subject(str(tmp_path / "scale.cu"), None, "")
    sizes = [s.sizes for s in one.problem.shapes]
    assert sizes and all(s["channels"] % s["groups"] == 0 and s["channels"] > s["groups"] > 1 for s in sizes)
