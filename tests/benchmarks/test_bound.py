"""Kernels of packages: which are launched, with what, as their host code says; what counts on the pages of bound kernels and of packages as first seen."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.packages import unseen
from benchmarks.packages.bound.alone import Source
from benchmarks.packages.bound.interpreter import backwards
from benchmarks.packages.bound.listed import kernels_of
from benchmarks.packages.bound.page import page
from benchmarks.packages.bound.prepared import bound, numbers
from benchmarks.packages.bound.read_right import _verdict

SOURCE = """import triton
import triton.language as tl


@triton.jit
def helper(x):
    return x + 1


@triton.jit
def add_one(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, helper(tl.load(x_ptr + at, mask=at < n)), mask=at < n)


@triton.jit
def nobody(x_ptr):
    tl.store(x_ptr, 1)


def run(x):
    y = torch.empty_like(x)
    add_one[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "own" / "ops.py"
    made.parent.mkdir()
    made.write_text(SOURCE)
    return made


def test_the_kernels_are_those_that_some_file_launches(file: Path) -> None:
    assert list(kernels_of(file.parent)) == [("ops.py", "add_one", 2)]


def test_a_launch_is_what_host_code_says_at_the_largest_sizes_that_fit(file: Path) -> None:
    binding, sizes, left = bound(f"{file}::add_one")
    assert numbers({"grid": binding.grid[0]}, binding, sizes) == {"grid": 16} and list(sizes.values()) == [1024] and left == {}
    with pytest.raises(LookupError, match="no host code"):
        bound(f"{file}::nobody")


def row(name: str, state: str, equal: bool = True, seconds: tuple[float, float] = (1e-6, 1e-6)) -> dict[str, Any]:
    return {"case": f"own:ops.py::{name}", "state": state, "reason": "" if equal else "3 of 4", "hash": "0" * 16,
            "measured": {"equal": equal, "seconds": list(seconds)}}


def test_what_differs_or_changes_nothing_is_no_kernel_that_is_right() -> None:
    made = page([row("a", "equal"), row("b", "equal", False, (1e-6, 2e-6)), row("c", "idle"), row("d", "differs", False),
                 row("e", "unsteady", False)], "a GPU")
    assert "| own | 5 | 5 | 2 | 1 | 1 | 1 |" in made
    assert "2 kernels are right, 1 of them bit for bit. 2 were timed; 1 (50 %)" in made
    assert "`own:ops.py::c`" not in made and "| differs | 3 of 4 | 1 |" in made


def test_a_read_kernel_is_right_where_all_that_it_leaves_is() -> None:
    torch = pytest.importorskip("torch")
    before = {"x": torch.arange(4.0), "n": torch.arange(4), "k": 3}
    left = {**before, "x": torch.tensor([0.0, 2.0, float("inf"), 3.0])}
    near = {**before, "x": torch.tensor([1e-5, 2.0, float("inf"), 3.0])}
    assert _verdict(before, left, near)["state"] == "equal" and _verdict(before, before, before)["state"] == "idle"
    assert "x[1]: 2 there, 1 here" in _verdict(before, left, {**before, "x": torch.tensor([0.0, 1.0, float("inf"), 3.0])})["reason"]
    assert _verdict(before, left, {**before, "x": torch.tensor([0.0, 2.0, 2.0, 3.0])})["state"] == "differs"  # what is infinite there is not here
    assert "n[0]: 0 there, 1 here" in _verdict(before, left, {**left, "n": torch.tensor([1, 1, 2, 3])})["reason"]


def test_names_of_a_file_are_made_without_its_package(tmp_path: Path) -> None:
    package = tmp_path / "own"
    (package / "sub").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('never imported')\n")
    (package / "sub" / "__init__.py").write_text("from own.sub.numbers import *\nfrom . import numbers as held\n")
    (package / "sub" / "numbers.py").write_text("import not_here\nif True:\n    SIX = 6\nelse:\n    SIX = not_here.six()\nOTHER = not_here.other\n")
    (package / "ops.py").write_text("from .sub import SIX, held\nimport own.sub.numbers as n\nTWELVE = SIX + held.SIX\n\n"
                                    "def add(x, by=n.SIX):\n    return x + by + TWELVE\n\nBROKEN = 1 / 0\n")
    made = Source(package / "ops.py", str(tmp_path))
    assert made.get("add")(1) == 19 and made.get("nothing") is None and made.read_by("add") == {"x", "by", "TWELVE", "n"}
    with pytest.raises(ZeroDivisionError):
        made.get("BROKEN")


def test_the_programs_of_a_grid_can_be_taken_last_first() -> None:
    from triton.runtime.interpreter import interpreter_builder as of

    of.set_grid_dim(3, 2, 1)
    with backwards():
        of.set_grid_idx(0, 1, 0)
        assert of.grid_idx == (2, 0, 0)
    of.set_grid_idx(0, 1, 0)
    assert of.grid_idx == (0, 1, 0)


def test_files_for_other_vendors_devices_are_counted_apart_and_the_last_row_of_a_package_is_todays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def records(*states: tuple[str, str]) -> list[dict[str, Any]]:
        return [{"file": str(tmp_path / file), "kernel": f"k{i}", "state": state, "role": "kernel", "seconds": 0.1,
                 **({"opaque": [{"reason": "r", "line": 1}]} if state == "parsed" else {"emit": state})} for i, (file, state) in enumerate(states)]
    first = records(("ops/a.py", "parsed"), ("ops/amd/b.py", "parsed"), ("ops/scramble.py", "equal"), ("models/attn_gfx950.py", "equal"))
    rows = []
    for stage, found in (("first", first), ("after", [{**first[0], "state": "equal", "emit": "equal", "opaque": []}, *first[1:]])):
        made = [{"records": [{k: v for k, v in r.items() if v != []} for r in found], "untouched": True, "surface": "triton"}]
        monkeypatch.setattr(unseen, "run", lambda *_, made=made, parts: made)
        rows.append(unseen.row("p", "1", str(tmp_path), "triton", stage, commit="c"))
    assert rows[0]["elsewhere"] == {"found": 2, "clean": 1, "equal": 1}
    text = unseen.page(rows)
    assert "| triton | 1 | as first seen | 4 | 2 (50.0 %) | 2 (50.0 %) | 0 | 0 | 2 | 1 (50.0 %) | 1 (50.0 %) |" in text
    assert "| triton | 1 | today | 4 | 3 (75.0 %) | 3 (75.0 %) | 0 | 0 | 2 | 2 (100.0 %) | 2 (100.0 %) |" in text
    assert "all packages of triton together\n\n| reason | kernels | packages |\n| --- | ---: | ---: |\n| r | 1 | 1 |" in text


def test_why_is_said_of_each_kernel_once() -> None:
    here, elsewhere = "/there/p/a.py", "/there/p/amd/b.py"
    records: list[dict[str, Any]] = [
        {"file": here, "state": "equal"}, {"file": here, "state": "clean", "message": "a line | another"}, {"file": elsewhere, "state": "equal"},
        {"file": here, "state": "parsed", "opaque": [{"reason": "it uses 'x', which is not understood"}, {"reason": "inline asm: a jump other"}]},
        {"file": here, "state": "parsed", "opaque": [{"reason": "an address as an integer"}]}, {"file": here, "state": "refused", "message": "odd"},
        {"file": elsewhere, "state": "parsed", "opaque": [{"reason": "inline asm"}]}]
    left = unseen._left(records, Path("/there/p"))
    assert sum(left.values()) == 4 and left["written, and read back otherwise or refused"] == left["the address of a tensor as a number"] == left["others"] == 1
    row = {"surface": "triton", "package": "p", "left": left, "elsewhere": unseen._elsewhere(records, Path("/there/p"))}
    told = "\n".join(unseen._ways([row]))
    assert "| for other vendors' devices, in words of theirs | 1 | 1 |" in told and "| others | 1 | 1 |" in told
    assert unseen._ways([row, *({"surface": "triton", "package": name} for name in "qr")]) == []  # most packages do not say it
