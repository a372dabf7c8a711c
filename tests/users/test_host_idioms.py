"""What host code in Python says of a launch in the idioms of large packages."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.ir.binding import Binding
from kir.surface.reading import launched
from tests.users.test_found_launches import called_binding

HEAD = """import math
import torch
import triton
import triton.language as tl


@triton.jit
def copied(x, y, T, D: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):
    t, d = tl.program_id(0) * BT + tl.arange(0, BT), tl.arange(0, BD)
    m = (t < T)[:, None] & (d < D)[None, :]
    at = t[:, None] * D + d[None, :]
    tl.store(y + at, tl.load(x + at, mask=m), mask=m)


"""
STARRED = """def run(x, beta):
    B, T, D, E = *x.shape, beta.shape[-1]
    y = torch.empty_like(x)
    copied[(triton.cdiv(B * T, 16),)](x, y, B * T, D, 16, triton.next_power_of_2(D))
    return y
"""
ONE_BY_ONE = """def run(x, y, lengths: torch.Tensor | None, scale: torch.Tensor | None = None):
    T, D = x.shape
    if scale is None:
        raise ValueError("a scale is needed")
    n = triton.cdiv(T, 16) if lengths is None else len(lengths)
    copied[(n,)](x, y, T, D, 16, 64)
"""
ROOT = """def run(x, y):
    N = x.numel()
    D = triton.next_power_of_2(math.ceil(math.sqrt(N)))
    T = triton.cdiv(N, D)
    copied[(triton.cdiv(T, 16),)](x, y, T, D, 16, D)
"""
EXCHANGED = """def run(q, k):
    q = q.transpose(1, 2).contiguous()
    k = k.transpose(1, 2).contiguous()
    B, S, H, D = q.shape
    copied[(triton.cdiv(S, 16),)](q, k, k.stride(1), D, 16, 64)
"""
RANKED = """def run(x, y):
    if x.ndim == 3:
        x = x.squeeze(0)
    T, D = x.shape
    copied[(triton.cdiv(T, 16),)](x, y, T, D, 16, 64)
"""
ONLY_USUAL = """def run(x, y, dim=None):
    T, D = x.shape
    if dim is None:
        copied[(triton.cdiv(T, 16),)](x, y, T, D, 16, 64)
    else:
        raise NotImplementedError
"""


def _bound(folder: Path, host: str) -> Binding:
    (folder / "k.py").write_text(HEAD + host, encoding="utf-8")
    return called_binding(folder / "k.py")


@pytest.mark.parametrize(("host", "grid", "scalar", "shapes"), [
    pytest.param(STARRED, "ceildiv(B * T_2, 16)", "B * T_2", {"x": ["B", "T_2", 64]}, id="a shape with a star among others"),
    pytest.param(ONE_BY_ONE, "ceildiv(T, 16)", "T", {"x": ["T", 1024]}, id="one argument is None, another is not"),
    pytest.param(RANKED, "ceildiv(T, 16)", "T", {"x": ["T", 1024]}, id="a branch for tensors of another rank"),
    pytest.param(ONLY_USUAL, "ceildiv(T, 16)", "T", {"x": ["T", 1024]}, id="a launch that only the usual call comes to"),
])
def test_what_the_host_says(host: str, grid: str, scalar: str, shapes: dict[str, list[str | int]], tmp_path: Path) -> None:
    binding = _bound(tmp_path, host)
    assert binding.grid == [grid] and binding.scalars["T"] == scalar
    assert {k: binding.tensors[k].shape for k in shapes} == shapes


def test_a_root_is_a_number_of_its_own_of_which_one_is_taken(tmp_path: Path) -> None:
    binding = _bound(tmp_path, ROOT)
    assert binding.metas["D"] == 32 and binding.grid == ["ceildiv(ceildiv(N, 32), 16)"]


def test_tensors_with_two_axes_exchanged_keep_them_all(tmp_path: Path) -> None:
    """Of `q` the rank is named, `k` has as many axes; its rows are as far apart as its heads need."""
    binding = _bound(tmp_path, EXCHANGED)
    assert len(binding.tensors["x"].shape) == len(binding.tensors["y"].shape) == 4
    assert binding.scalars["T"] == "k_1 * k_3" and binding.tensors["x"].strides is None


ROUTED = """import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def routed(count, experts):
    n = T.dynamic("n")

    @T.prim_func
    def weights(x: T.Tensor((n, count), "float32"), y: T.Tensor((n, experts), "float32")):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as b:
            t = T.get_thread_binding()
            kept = T.alloc_local((count,), "float32")
            for i in T.unroll(count):
                kept[i] = x[b * 128 + t, i]
            for e in T.serial(experts):
                y[b * 128 + t, e] = kept[0]
    return weights


def run(x, experts):
    y = torch.empty(x.shape[0], experts)
    routed(x.shape[1], experts)(x, y)
    return y
"""


def test_what_each_thread_holds_is_taken_for_few(tmp_path: Path) -> None:
    (file := tmp_path / "routed.py").write_text(ROUTED, encoding="utf-8")
    binding, told = launched(str(file))
    assert binding is not None and binding.metas == {"count": 8, "experts": 64} and binding.sizes == ["n"]
    assert "assumed, as nothing says it: count is 8" in str(told[0].notes)
