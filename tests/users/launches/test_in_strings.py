"""CUDA C++ in strings of a Python file, as `load_inline` takes it."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.surface.reading import kernel_of, launched, load_expert
from tests.command_line import called
from tests.users.launches.test_host_idioms import HEAD

MODEL = '''"""Scales rows."""
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#define WIDE 128

__global__ void scaled(const float* x, float* y, int n, float by) {
    int i = blockIdx.x * WIDE + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}

torch::Tensor scale(torch::Tensor x, double by) {
    auto y = torch::empty_like(x);
    scaled<<<(x.numel() + WIDE - 1) / WIDE, WIDE>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), by);
    return y;
}
"""
header = "torch::Tensor scale(torch::Tensor x, double by);"
module = load_inline("scaling", header, source, functions=["scale"])
print("a kernel of one __global__ function")
'''


def test_a_kernel_in_a_string_is_read_where_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL, encoding="utf-8")
    binding, told = launched(str(file))
    assert binding is not None and (binding.grid, binding.metas["threads_x"]) == (["ceildiv(n, 128)"], 128) and "model.py:16 launches it" in told[0].message
    assert load_expert(str(file)).surface == "cuda"
    file.write_text(MODEL.replace("y[i] = by", "y[i + 1] = by"), encoding="utf-8")
    code, out, err = called(capsys, "check", str(file))
    assert code == 1 and "model.py:11:" in out + err and "y[i + 1] = by * x[i];" in out + err, err


def test_a_file_that_only_mentions_such_kernels_is_read_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.py"
    file.write_text("print('__global__ void')\n", encoding="utf-8")
    code, _, err = called(capsys, "check", str(file))
    assert code == 2 and "KIR-S018" in err and "a __global__ function (cuda)" in err
    file.write_text('"What __global__ is in CUDA; (void) {}"\n' + HEAD, encoding="utf-8")
    assert kernel_of(file, "")[1].surface == "triton"
