"""Several recorded calls of a kernel as one binding; launches that are recorded where nothing runs."""
from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.ir.binding import Binding, Tensor
from kir.surface.launches.recorded import fits, generalized
from tests.command_line import called
from tests.users.own_kernels import laid


def _call(m: int, n: int, block: int, grid: int | None = None, stride: int | None = None) -> Binding:
    return Binding(kernel="k", recorded=True, grid=[m if grid is None else grid], metas={"BLOCK": block}, scalars={"stride": n if stride is None else stride,
                   "n": n, "total": m * n, "eps": 1e-5}, dtypes={"n": "i32", "eps": "f32"},
                   tensors={"x": Tensor(shape=[m, n], dtype="f16"), "w": Tensor(shape=[n], dtype="f16")})


def test_numbers_that_differ_become_sizes_and_the_others_expressions() -> None:
    made = generalized([_call(4, 100, 128), _call(7, 120, 128), _call(32, 65, 128)])
    b = made.found.binding
    assert made.calls == 3 and made.left == () and made.found.open == ()
    assert b.sizes == ["x_0", "n"] and b.grid == ["x_0"] and not b.recorded
    assert b.scalars == {"stride": "n", "n": "n", "total": "x_0 * n"} and b.dtypes == {"eps": "f32"}
    assert b.tensors["x"].shape == ["x_0", "n"] and b.tensors["w"].shape == ["n"]


def test_a_block_that_is_a_size_rounded_up_is_one_specialization() -> None:
    b = generalized([_call(4, 100, 128), _call(7, 1000, 1024)]).found.binding
    assert b.metas == {"BLOCK": 1024} and "n <= 1024" in b.facts


def test_calls_of_other_compile_time_values_are_left_and_named() -> None:
    made = generalized([_call(4, 100, 128), _call(7, 90, 256), _call(9, 80, 256)], ["a", "b", "c"])
    assert made.calls == 2 and made.left == ("a",) and made.found.binding.metas == {"BLOCK": 256}


def test_dense_tensors_of_any_number_of_axes_are_so_many_elements() -> None:
    """As an optimizer calls a kernel for each of its parameters; a grid of tiles is one, also where a length is as large as it in the calls that were seen."""
    def over(*shape: int) -> Binding:
        n = math.prod(shape)
        return Binding(kernel="k", recorded=True, grid=[-(-n // 1024)], metas={"BLOCK": 1024}, scalars={"n": n}, dtypes={"n": "i32"},
                       tensors={name: Tensor(shape=[*shape], dtype="f32") for name in ("p", "g")})
    made = generalized([over(1000, 30), over(77)])
    b = made.found.binding
    assert made.left == () and b.sizes == ["n"] and b.grid == ["ceildiv(n, BLOCK)"] and [t.shape for t in b.tensors.values()] == [["n"], ["n"]]
    one = generalized([over(1000, 30)]).found.binding
    assert one.grid == ["ceildiv(p_1 * p_0, BLOCK)"] and one.tensors["p"].shape == ["p_0", "p_1"]


def test_what_no_expression_fits_stays_open() -> None:
    made = generalized([_call(4, 100, 128, grid=17), _call(7, 120, 128, grid=5), _call(8, 140, 128, grid=23)])
    assert made.found.open == ("grid",)
    assert made.found.others == ("grid[0] is 17, then 5, then 23: no expression over x_0, n that is tried gives that",)


def test_every_expression_is_checked_against_every_call() -> None:
    calls = [_call(4, 100, 128), _call(7, 120, 128)]
    b = generalized(calls).found.binding
    assert fits(b, calls[0], {"x_0": 4, "n": 100}) == ()
    wrong = fits(replace(b, grid=["n"]), calls[0], {"x_0": 4, "n": 100})
    assert wrong == ("grid[0]: n is 100, and the call has 4",)


def test_calls_of_two_kernels_are_refused() -> None:
    with pytest.raises(KirError) as refused:
        generalized([_call(4, 100, 128), replace(_call(4, 100, 128), kernel="other")])
    assert refused.value.diagnostics[0].id == "KIR-F014"
    with pytest.raises(KirError):
        generalized([])


MANY = '''
import torch
from scaled import softmax_scale
for m, n in [(512, 781), (64, 1000), (100, 700)]:
    x = torch.randn(m, n, device="cuda")
    with torch.cuda.device(x.device):
        softmax_scale(x, 0.5)
torch.cuda.synchronize()
'''
EXTENSION = '''
import torch
from torch.utils.cpp_extension import load
ext = load("gelu", ["gelu_ext.cu"])
for rows, cols in [(128, 512), (64, 100)]:
    ext.bias_gelu(torch.randn(rows, cols, device="cuda"), torch.randn(cols).cuda())
'''


@pytest.mark.triton
@pytest.mark.torch
def test_triton_launches_are_recorded_without_a_gpu_and_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                      monkeypatch: pytest.MonkeyPatch) -> None:
    laid(tmp_path, "softmax with a scale (Triton)")
    (tmp_path / "many.py").write_text(MANY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, out, _ = called(capsys, "capture", "--no-run", "-o", "out", "--json", "--", sys.executable, "many.py")
    data = json.loads(out)
    assert code == 0 and data["general"] == ["out/softmax_scale_kernel.toml"] and {r["how"] for r in data["kernels"]} == {"recorded"}
    b = Binding.read(tmp_path / "out" / "softmax_scale_kernel.toml")
    assert b.scalars == {"x_stride": "n_cols", "y_stride": "n_cols", "n_cols": "n_cols"} and b.metas == {"BLOCK": 1024} and "n_cols <= 1024" in b.facts
    code, out, _ = called(capsys, "parse", "scaled.py", "--bind", "out/softmax_scale_kernel.toml", "--normal")
    assert code == 0 and "y_ptr[pid_0, 0 +: 1024]" in out


@pytest.mark.torch
def test_launches_of_an_extension_are_recorded_without_a_compiler(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                      monkeypatch: pytest.MonkeyPatch) -> None:
    laid(tmp_path, "bias and GELU as a torch extension (CUDA)")
    (tmp_path / "use.py").write_text(EXTENSION, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, _, _ = called(capsys, "capture", "--no-run", "-o", "out", "--", sys.executable, "use.py")
    assert code == 0
    b = Binding.read(tmp_path / "out" / "bias_gelu_kernel.toml")
    assert b.sizes == ["rows", "cols"] and b.grid == ["ceildiv(rows * cols, threads_x)"] and b.metas == {"threads_x": 256, "scalar_t": "f32"}


@pytest.mark.tilelang
def test_tilelang_launches_are_recorded_without_a_compiler(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                      monkeypatch: pytest.MonkeyPatch) -> None:
    laid(tmp_path, "GEMM (TileLang)")
    monkeypatch.chdir(tmp_path)
    code, out, _ = called(capsys, "capture", "--no-run", "-o", "out", "--", sys.executable, "tl_mm.py")
    assert code == 0 and "the command ended with 1" in out  # it compares what nobody computed
    b = Binding.read(tmp_path / "out" / "gemm-1.toml")
    assert b.metas == {"M": 1024, "N": 1024, "K": 512, "block_M": 128, "block_N": 128, "block_K": 32, "dtype": "f16", "accum_dtype": "float"}
