"""Sizes that a kernel is told together, or not at all. And launches of kernels that host code wraps, keeps, or
calls with arguments out of a dictionary: they say what others say."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.learning.optimize.hosts.cuda import beside as beside_in_cuda
from kir.learning.optimize.hosts.python import beside
from kir.learning.optimize.inputs import subject
from kir.surface.launches.values import asked_at
from kir.surface.reading import launched, load_expert
from tests.users.launches.test_host_idioms import HEAD as KERNEL_HEAD
from tests.users.test_found_launches import called_binding

CAPPED = """def run(x):
    T, D = x.shape
    y = torch.empty_like(x)
    copied[(triton.cdiv(T, 16),)](x, y, T, D, 16, min(4096, triton.next_power_of_2(D)))
"""
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


HALVES = """
import torch
import triton
import triton.language as tl


@triton.jit
def turned(q_ptr, cos_ptr, y_ptr, heads, HALF: tl.constexpr):
    token, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, HALF)
    at = (token * heads + head) * (2 * HALF) + d
    c = tl.load(cos_ptr + token * HALF + d)
    tl.store(y_ptr + at, tl.load(q_ptr + at) * c)
    tl.store(y_ptr + at + HALF, tl.load(q_ptr + at + HALF) * c)


def run(q, cos):
    tokens, heads, dim = q.shape
    y = torch.empty_like(q)
    turned[(tokens, heads)](q, cos, y, heads, HALF=dim // 2)
    return y


if __name__ == "__main__":
    print(run(torch.randn(64, 4, 128, device="cuda"), torch.randn(64, 64, device="cuda")))
"""


def test_a_size_of_which_the_half_is_a_compile_time_value_is_twice_that(tmp_path: Path) -> None:
    """So that rows lie as they are read; a call in which it is odd says otherwise, and is followed."""
    (file := tmp_path / "turned.py").write_text(HALVES)
    binding, _ = launched(str(file))
    assert binding is not None and binding.sizes == ["tokens", "heads"] and binding.facts == ["tokens >= 1", "heads >= 1"]
    assert binding.tensors["q_ptr"].shape == ["tokens", "heads", 128] and binding.tensors["cos_ptr"].shape == ["tokens", 64]
    file.write_text(HALVES.replace("randn(64, 4, 128,", "randn(64, 4, 129,"))
    binding, _ = launched(str(file))
    assert binding is not None and "dim // 2 == 64" in binding.facts
    file.write_text(HALVES.replace("turned[(tokens, heads)]", "turned[(tokens, heads, triton.cdiv(dim, 128))]"))
    binding, _ = launched(str(file))
    assert binding is not None
    after = beside(file, "turned", binding, load_expert(str(file), binding).program).after
    assert "        triton.cdiv(dim, 128) == 1\n" in after, "another one may have the same half"


ROWS_OF = """#include <cuda_runtime.h>
__global__ void scale_rows(const float* x, const float* by, float* y, int N, int C) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= N) return;
  for (int c = 0; c < C; c++) y[row * C + c] = x[row * C + c] * by[row];
}
void scale(const float* x, const float* by, float* y, int B, int T, int C) {
  int N = B * T;
  scale_rows<<<(N + 255) / 256, 256>>>(x, by, y, N, C);
}
int main() {
  int B = 8, T = 1024, C = 768;
  float *x, *by, *y;
  cudaMalloc(&x, B * T * C * sizeof(float));
  cudaMalloc(&y, B * T * C * sizeof(float));
  cudaMalloc(&by, B * T * sizeof(float));
  scale(x, by, y, B, T, C);
}
"""


def test_a_kernel_that_is_told_how_many_rows_there_are_has_one_size_for_them(tmp_path: Path) -> None:
    """Also where they are one axis of several, so that its launch says each size; a kernel that is told one of the parts, too, keeps both."""
    (file := tmp_path / "rows.cu").write_text(ROWS_OF)
    binding, _ = launched(str(file))
    assert binding is not None and binding.sizes == ["N", "C"] and binding.grid == ["ceildiv(N, 256)"]
    assert {k: t.shape for k, t in binding.tensors.items()} == {"x": ["N", "C"], "y": ["N", "C"], "by": ["N"]}
    assert subject(str(file)).called == {"N": 8 * 1024, "C": 768}
    assert "scale_rows_faster(N, C, (float*)x" in beside_in_cuda(file, "scale_rows", binding, load_expert(str(file), binding).program).after
    file.write_text(ROWS_OF.replace("int N, int C) {\n  int row", "int N, int T, int C) {\n  int row").replace("y, N, C);", "y, N, T, C);").replace(
        "* by[row]", "* by[row % T]"))
    binding, _ = launched(str(file))
    assert binding is not None and binding.sizes == ["B", "T", "C"]


GROUPS = """
import torch
import triton
import triton.language as tl


@triton.jit
def groups_of(x_ptr, y_ptr, w_ptr, size, EACH: tl.constexpr, HW: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    for at in range(0, size, BLOCK):
        r = at + tl.arange(0, BLOCK)
        w = tl.load(w_ptr + pid % GROUPS * EACH + r // HW, mask=r < size, other=0.0)
        tl.store(y_ptr + pid * size + r, w * tl.load(x_ptr + pid * size + r, mask=r < size, other=0.0), mask=r < size)


def run(x, w, groups=8):
    N, C, H, W = x.shape
    y = torch.empty_like(x)
    groups_of[(N * groups,)](x, y, w, C // groups * H * W, C // groups, H * W, groups, BLOCK=256)
    return y


if __name__ == "__main__":
    print(run(torch.randn(4, 256, 64, 64, device="cuda"), torch.randn(256, device="cuda")))
"""
PAIRS = """
import torch
import triton
import triton.language as tl


@triton.jit
def products(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(c_ptr + at, tl.load(a_ptr + at) * tl.load(b_ptr + at))


def run(a, b):
    c = torch.empty(a.shape, device=a.device)
    products[(a.shape[0],)](a, b, c, N=32)
    return c


if __name__ == "__main__":
    print(run(torch.randn(4096, 32, device="cuda"), torch.randn(4096, 32, device="cuda")))
"""


@pytest.mark.parametrize("made", ['(torch.randn(4096, 32, device="cuda", dtype=torch.float16) for _ in range(2))',
                                  '[torch.randn(4096, 32, device="cuda", dtype=torch.float16) for x in "ab"]'])
def test_tensors_that_a_comprehension_makes_are_each_seen(made: str, tmp_path: Path) -> None:
    (file := tmp_path / "k.py").write_text(PAIRS.partition("    print(run(")[0] + f"    a, b = {made}\n    print(run(a, b))\n")
    binding, _ = launched(str(file))
    assert binding is not None and {k: (t.shape, t.dtype) for k, t in binding.tensors.items() if k != "c_ptr"} == {
        "a_ptr": (["n", 32], "f16"), "b_ptr": (["n", 32], "f16")}
    assert subject(str(file)).called == {"n": 4096}


@pytest.mark.parametrize(("text", "sizes", "shapes"), [
    (GROUPS, ["N", "H", "W"], {"x_ptr": ["N", 256, "H", "W"], "y_ptr": ["N", 256, "H", "W"], "w_ptr": [256]}),
    (PAIRS, ["n"], {"a_ptr": ["n", 32], "b_ptr": ["n", 32], "c_ptr": ["n", 32]})])
def test_what_a_kernel_reaches_of_a_length_that_nobody_names_is_that_long(text: str, sizes: list[str], shapes: dict[str, list[str]], tmp_path: Path) -> None:
    """Weights of channels, of which compile-time values say how many there are; matrices that are as many as those that the launch counts."""
    (file := tmp_path / "k.py").write_text(text)
    binding, _ = launched(str(file))
    assert binding is not None and binding.sizes == sizes
    assert {k: t.shape for k, t in binding.tensors.items()} == shapes


WHOLE = """#include <cuda_runtime.h>
__global__ void scaled(const float* x, float* y, int n) {
  int j = 0;
  while (LEFT) {
    y[j + threadIdx.x] = 2.0f * x[j + threadIdx.x];
    j += 128;
  }
  REST
}
void run(const float* x, float* y, int n) { scaled<<<1, 128>>>(x, y, n); }
"""


@pytest.mark.parametrize(("left", "rest", "tiled"), [
    ("j + 128 <= n", "", True), ("n > j + 127", "", True), ("j < n - 127", "if (j + threadIdx.x < n) y[j + threadIdx.x] = x[j + threadIdx.x];", False)])
def test_a_loop_that_goes_on_while_a_whole_tile_is_left(left: str, rest: str, tiled: bool, tmp_path: Path) -> None:
    """At sizes below a tile it reaches nothing, which says nothing of how large the tensors are; a rest that is done as well needs no whole tiles."""
    (file := tmp_path / "scaled.cu").write_text(WHOLE.replace("LEFT", left).replace("REST", rest))
    binding, _ = launched(str(file))
    assert binding is not None and binding.tensors["x"].shape == binding.tensors["y"].shape == ["n"]
    assert binding.facts == ["n >= 1", *(["n % 128 == 0"] if tiled else [])]


def test_a_launch_is_read_as_a_call_with_the_sizes_that_are_asked_for_runs_it(tmp_path: Path) -> None:
    file = tmp_path / "copied.py"
    file.write_text(KERNEL_HEAD + CAPPED, encoding="utf-8")
    assert called_binding(file).metas["BD"] == 1024  # nothing says how large D is
    with asked_at({"T": 16, "D": 128256}):
        binding, _ = launched(str(file))
        assert binding is not None and (binding.metas["BD"], binding.metas["D"]) == (4096, 128256)
    assert called_binding(file).metas["BD"] == 1024
