"""Kernels that host code wraps, keeps or calls with arguments out of a dictionary: their launches say what others say."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.users.test_found_launches import called_binding
from tests.users.test_host_idioms import HEAD

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
    (tmp_path / "k.py").write_text(HEAD + host, encoding="utf-8")
    binding = called_binding(tmp_path / "k.py")
    assert binding.grid == ["ceildiv(T, 16)"] and binding.scalars["T"] == "T"
    assert binding.metas["BT"] == 16 and binding.metas["BD"] == 64
    assert binding.tensors["x"].shape == binding.tensors["y"].shape == ["T", binding.metas["D"]]


def test_axes_that_are_made_one_are_all_but_the_last(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(HEAD + FLAT, encoding="utf-8")
    binding = called_binding(tmp_path / "k.py")
    assert binding.grid == ["ceildiv(T, 16)"] and binding.tensors["x"].shape[0] == "T" and binding.metas["BT"] == 16
