"""Sizes that a kernel is told together, or not at all. And launches of kernels that host code wraps, keeps, or
calls with arguments out of a dictionary: they say what others say."""
from __future__ import annotations

from pathlib import Path

import pytest
from tests.users.test_host_idioms import HEAD as KERNEL_HEAD

from kir.learning.optimize.hosts.cuda import beside as beside_in_cuda
from kir.learning.optimize.hosts.python import beside
from kir.learning.optimize.inputs import subject
from kir.surface.reading import launched, load_expert
from tests.users.test_found_launches import called_binding

GATED = """
import torch
import triton
import triton.language as tl


@triton.jit
def gated(a_ptr, b_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(a_ptr + at, mask=at < count) * tl.load(b_ptr + at, mask=at < count), mask=at < count)


def run(a, b):
    y = torch.empty_like(a)
    gated[(triton.cdiv(a.numel(), 256),)](a, b, y, a.numel(), BLOCK=256)
    return y


if __name__ == "__main__":
    a = torch.randn(512, 4096, device="cuda")
    print(run(a, torch.randn_like(a)))
"""


def test_a_kernel_that_is_told_how_many_elements_there_are_has_one_size(tmp_path: Path) -> None:
    """Also where a call shows tensors of two axes; with one that is told as well, both stay."""
    (file := tmp_path / "gated.py").write_text(GATED)
    binding, _ = launched(str(file))
    assert binding is not None and binding.sizes == ["count"] and binding.grid == ["ceildiv(count, 256)"] and binding.facts == ["count >= 1"]
    assert {k: t.shape for k, t in binding.tensors.items()} == {name: ["count"] for name in ("a_ptr", "b_ptr", "y_ptr")}
    assert subject(str(file)).called == {"count": 512 * 4096}
    file.write_text(GATED.replace("count, BLOCK: tl", "count, columns, BLOCK: tl").replace("a.numel(), BLOCK=", "a.numel(), a.shape[1], BLOCK=").replace(
        "mask=at < count)\n", "mask=(at < count) & (at % columns < 64))\n"))
    binding, _ = launched(str(file))
    assert binding is not None and len(binding.sizes) == 2 and "count" not in binding.sizes


LOOKED_UP = """
import torch
import triton
import triton.language as tl


@triton.jit
def rows(of_ptr, table_ptr, y_ptr, D, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    found = tl.load(table_ptr + tl.load(of_ptr + row) * D + at, mask=at < D)
    tl.store(y_ptr + row * D + at, found, mask=at < D)


def run(of, table):
    n, D = of.numel(), table.shape[1]
    y = torch.empty(n, D, device=table.device, dtype=table.dtype)
    rows[(n,)](of, table, y, D, BLOCK=triton.next_power_of_2(D))
    return y


if __name__ == "__main__":
    print(run(torch.randint(0, 50, (64,), device="cuda"), torch.randn(50, 256, device="cuda")))
"""


def test_a_size_that_a_faster_kernel_does_not_look_at_is_the_length_of_its_tensor(tmp_path: Path) -> None:
    (file := tmp_path / "rows.py").write_text(LOOKED_UP)
    found, _ = launched(str(file))
    assert found is not None
    edit = beside(file, "rows", found, load_expert(f"{file}::rows", found).program)
    assert "rows_faster[(n,)](n, table.shape[0], D, of, table, y, " in edit.after


STRUCT = """#include <cuda_runtime.h>
struct Params { const float* x; float* y; int rows; int cols; float scale; };
__global__ void scale_rows(const Params p) {
  for (int c = threadIdx.x; c < p.cols; c += blockDim.x) p.y[blockIdx.x * p.cols + c] = p.x[blockIdx.x * p.cols + c] * p.scale;
}
void run(const float* x, float* y, int rows, int cols, float scale, cudaStream_t s) {
  HOW
  scale_rows<<<rows, 256, 0, s>>>(p);
}
"""


@pytest.mark.parametrize("how", [
    "Params p; p.x = x; p.y = y; p.rows = rows; p.cols = cols; p.scale = scale;", "Params p{x, y, rows, cols, scale};",
    "Params p = {.x = x, .y = y, .rows = rows, .cols = cols, .scale = scale};", ""])
def test_the_fields_of_a_struct_that_is_passed_whole_are_arguments(how: str, tmp_path: Path) -> None:
    """Also of one that whoever calls the function fills; and the faster kernel is given them one by one."""
    text = STRUCT.replace("HOW", how) if how else STRUCT.replace("const float* x, float* y, int rows, int cols, float scale, ", "const Params& p, ").replace(
        "<<<rows", "<<<p.rows").replace("  HOW\n", "")
    (file := tmp_path / "rows.cu").write_text(text)
    found, _ = launched(str(file))
    assert found is not None and sorted(found.sizes) == ["cols", "rows"] and found.grid == ["rows"] and found.scalars == {"p_cols": "cols"}
    assert {k: t.shape for k, t in found.tensors.items()} == {"p_x": ["rows", "cols"], "p_y": ["rows", "cols"]}
    after = beside_in_cuda(file, "scale_rows", found, load_expert(str(file), found).program).after
    assert "p.cols, " in after and "(float*)p.x, (float*)p.y, s);" in after


IN_A_DICT = """def run(x, y=None):
    y, (T, D) = torch.empty_like(x), x.shape
    given = dict(x=x, y=y, T=T, D=D, BT=16, BD=64)
    copied[(triton.cdiv(T, given["BT"]),)](**given)
"""
WRAPPED = """def run(x: torch.Tensor):
    y, (T, D) = torch.zeros_like(x), x.size()
    torch.library.wrap_triton(copied)[lambda meta: (triton.cdiv(T, meta["BT"]),)](x, y, T, D, 16, 64)
"""
TUNED_APART = """tuned = triton.autotune([triton.Config({"BT": rows, "BD": 64}, num_warps=w) for rows in (16, 32) for w in (4, 8)], key=["T"])(copied)
def run(x):
    y, (T, D) = torch.empty_like(x), x.shape
    tuned[lambda meta: (triton.cdiv(T, meta["BT"]),)](x, y, T, D)
"""
OF_AN_OBJECT = """class Copy(torch.nn.Module):
    def __init__(self, rows=16, columns=64):
        self.columns = columns
        self.height = rows
    def forward(self, x):
        y, (T, D) = torch.empty_like(x), x.shape
        copied[(triton.cdiv(T, self.height),)](x, y, T, D, self.height, self.columns)
"""
HANDED_ON = """def launch(kernel, grid, *args, **options):
    return kernel[grid](*args, **options)
def run(x):
    y, (T, D) = torch.empty_like(x), x.shape
    launch(copied, (triton.cdiv(T, 16),), x, y, T, D, BT=16, BD=64)
"""
MADE_INSIDE = """def make(rows=16):
    def run(x):
        if (D := x.shape[1]) > 4096:
            raise ValueError
        y, T = torch.empty_like(x), x.shape[0]
        def grid(meta):
            return (triton.cdiv(T, meta["BT"]),)
        copied[grid](x, y, T, D, BT=rows, BD=64)
    return run
"""
FIELDS = """from dataclasses import dataclass
@dataclass
class Tiles:
    rows: int = 8
    columns: int = 64
def run(x, tiles=Tiles(16)):
    y, (T, D) = torch.empty_like(x), x.shape
    copied[(triton.cdiv(T, tiles.rows),)](x, y, T, D, BT=tiles.rows, BD=tiles.columns)
"""
FLAT = """def run(x):
    x = x.flatten(0, -2)
    y, (T, D) = torch.empty_like(x), x.shape
    copied[(triton.cdiv(T, 16),)](x, y, T, D, 16, 64)
"""


@pytest.mark.parametrize("host", [
    pytest.param(HANDED_ON, id="a launcher that hands arguments on"), pytest.param(MADE_INSIDE, id="a function that another makes"),
    pytest.param(FIELDS, id="fields of a class"),
    pytest.param(IN_A_DICT, id="arguments in a dictionary"), pytest.param(WRAPPED, id="a kernel wrapped where it is launched"),
    pytest.param(TUNED_APART, id="a tuner around a kernel"), pytest.param(OF_AN_OBJECT, id="what an object holds by default"),
])
def test_what_is_said_of_a_launch_is_found(host: str, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(KERNEL_HEAD + host, encoding="utf-8")
    binding = called_binding(tmp_path / "k.py")
    assert binding.grid == ["ceildiv(T, 16)"] and binding.scalars["T"] == "T"
    assert binding.metas["BT"] == 16 and binding.metas["BD"] == 64
    assert binding.tensors["x"].shape == binding.tensors["y"].shape == ["T", binding.metas["D"]]


def test_axes_that_are_made_one_are_all_but_the_last(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(KERNEL_HEAD + FLAT, encoding="utf-8")
    binding = called_binding(tmp_path / "k.py")
    assert binding.grid == ["ceildiv(T, 16)"] and binding.tensors["x"].shape[0] == "T" and binding.metas["BT"] == 16
