"""Configurations of `autotune` and formulas of `heuristics` as data of a binding."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.analysis.heuristics import settled
from kir.base.diagnostic import KirError
from kir.frontends.triton.frontend import TritonFrontend
from kir.ir.binding import Binding
from tests.frontends.triton.reading import HEAD

SOURCE = HEAD + """
WARPS = [2, 4] if True else [8]

def configs(stages, small=(16, 32)):
    return [triton.Config({"BM": bm}, num_warps=w, num_stages=s) for bm in small for w in WARPS for s in stages if bm * w != 32] + [
        triton.Config(kwargs=dict_of, num_warps=8)]

dict_of = {"BM": 128}

@triton.autotune(configs=configs(stages=[2, 3]), key=["K"])
@triton.heuristics({"EVEN": lambda args: args["K"] % args["BM"] == 0 and args["bias"] is None, "HAS": lambda a: a["bias"] is not None,
                    "NB": lambda args: triton.cdiv(args["K"], 64), "ODD": lambda args: undefined_here(args)})
@triton.jit
def kernel(x, bias, y, K, BM: tl.constexpr, EVEN: tl.constexpr, HAS: tl.constexpr, NB: tl.constexpr, ODD: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    v = tl.load(x + i, mask=i < K, other=0.0)
    if HAS:
        v += tl.load(bias + i, mask=i < K, other=0.0)
    tl.store(y + i, v * ODD, mask=i < K)
"""
BOUND = """
kernel = "kernel"
sizes = ["K"]
facts = ["K >= 1", "K <= 4096", "K % 128 == 0"]
grid = ["ceildiv(K, BM)"]
absent = ["bias"]
[metas]
BM = 64
ODD = 0
[heuristics]
EVEN = "((K % BM == 0) & absent(of=bias))"
HAS = "~absent(of=bias)"
[tensors.x]
shape = ["K"]
dtype = "f32"
[tensors.y]
shape = ["K"]
dtype = "f32"
[options]
num_warps = 4
[[configs]]
BM = 32
num_warps = 1
[[configs]]
BM = 128
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    return path


def test_the_skeleton_lists_every_configuration_and_the_heuristics(source: Path) -> None:
    made = TritonFrontend().skeleton(source, "kernel")
    assert made.configs[0] == {"BM": 16, "num_warps": 4, "num_stages": 2}
    assert len(made.configs) == 7 and made.configs[-1] == {"BM": 128, "num_warps": 8}
    assert made.heuristics == {"EVEN": "(((K % BM) == 0) & absent(of=bias))", "HAS": "~absent(of=bias)", "NB": "ceildiv(K, 64)"}
    assert made.metas["BM"] == made.configs[0]["BM"] and made.metas["ODD"] == "?" and "EVEN" not in made.metas
    assert Binding.parse(made.text()) == made


def test_heuristics_are_decided_by_facts_and_what_is_absent() -> None:
    made = settled(Binding.parse(BOUND))
    assert made.metas["EVEN"] is True and made.metas["HAS"] is False and not made.heuristics
    assert settled(made) == made


def test_a_heuristic_that_the_facts_leave_open_is_refused() -> None:
    with pytest.raises(KirError) as bad:
        settled(Binding.parse(BOUND.replace(', "K % 128 == 0"', "")))
    found = bad.value.diagnostics[0]
    assert found.id == "KIR-F012" and "EVEN" in found.message and "[metas]" in (found.needs or "")


def test_a_heuristic_over_a_parameter_that_is_not_there_is_refused() -> None:
    with pytest.raises(KirError) as bad:
        settled(Binding.parse(BOUND.replace("of=bias)\"", "of=bia)\"")))
    assert bad.value.diagnostics[0].id == "KIR-F011" and "bia" in bad.value.diagnostics[0].message


def test_a_configuration_is_chosen_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "kernel.toml"
    path.write_text(BOUND)
    first, second = Binding.read(Path(f"{path}#0")), Binding.read(Path(f"{path}#1"))
    assert first.metas["BM"] == 32 and first.options["num_warps"] == 1 and not first.configs
    assert second.metas["BM"] == 128 and second.options["num_warps"] == 4
    with pytest.raises(KirError) as bad:
        Binding.read(Path(f"{path}#2"))
    assert bad.value.diagnostics[0].id == "KIR-F010" and "0 to 1" in (bad.value.diagnostics[0].needs or "")


def test_a_bound_kernel_is_specialized_with_them(source: Path, tmp_path: Path) -> None:
    from kir.surface.reading import load_expert
    path = tmp_path / "kernel.toml"
    path.write_text(BOUND)
    expert = load_expert(f"{source}::kernel", Path(f"{path}#1"))
    assert "bias" not in {p.name for p in expert.program.params} and "BM = 128" in expert.binding


STORES = HEAD + """
@triton.jit
def kernel(x, narrow, twice, wide, index, n):
    i = tl.arange(0, 16)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(narrow + i, v.to(tl.bfloat16), mask=i < n)
    tl.store(twice + i, v.to(tl.float16), mask=i < n)
    tl.store(twice + i, v.to(tl.bfloat16), mask=i < 0)
    tl.store(wide + i, v.to(tl.float32), mask=i < n)
    tl.store(index + i, i, mask=i < n)
"""


def test_a_tensor_that_only_takes_what_is_rounded_to_a_narrow_dtype_is_of_that(tmp_path: Path) -> None:
    """What is rounded to two dtypes, to one that says nothing of where it goes, or not at all, stays open."""
    file = tmp_path / "stores.py"
    file.write_text(STORES)
    made = TritonFrontend().skeleton(file, "kernel")
    assert {name: made.tensors[name].dtype for name in ("narrow", "twice", "wide", "index")} == {"narrow": "bf16", "twice": "?", "wide": "?", "index": "?"}
