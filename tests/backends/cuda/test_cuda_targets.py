"""What the backend writes compiles for each target that has its instructions, with nothing for nvcc to say; others are refused, located."""
from __future__ import annotations

import pytest

from kir.analysis.target.legalize import legalize
from kir.backends._ptxas import Used, used
from kir.hardware.target import target
from kir.surface import backend
from tests.programs import EXPERTS, parsed


@pytest.mark.nvcc
@pytest.mark.parametrize(("name", "on"), [("gemm/gemm_sm80_lanes", "sm_120"), ("topk/topk_radix", "sm_120"), ("softmax/softmax", "sm_90a"),
                                          ("rmsnorm/rmsnorm", "sm_120")])
def test_experts_compile_without_a_warning(name: str, on: str) -> None:
    program = parsed(EXPERTS / f"{name}.kir")
    assert legalize(program, target(on).architecture) == ()
    made = backend("cuda").compile(backend("cuda").emit(program), target(on))
    assert made.target == on and made.spills == 0
    assert [k.texts.get("log", "") for k in made.kernels] == [""] * len(made.kernels)


@pytest.mark.parametrize("name", ["gemm/gemm_sm90", "gemm/gemm_sm90_lanes", "fmha/fmha_sm90"])
@pytest.mark.parametrize("on", ["sm_80", "sm_120"])
def test_warpgroup_products_are_refused_elsewhere_at_their_place(name: str, on: str) -> None:
    program = parsed(EXPERTS / f"{name}.kir")
    found = legalize(program, target(on).architecture)
    assert any("wgmma" in d.message for d in found) and all(d.anchor or d.origin is not None for d in found)


def test_resources_are_known_without_a_disassembler() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
    0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 1024 bytes smem, 360 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Used 8 registers, used 0 barriers
"""
    found = used(log)
    assert found["first"] == Used(registers=10, shared=1024, spills=12) and found["second"] == Used(registers=8)
    assert found["absent"] == Used()
