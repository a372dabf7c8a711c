"""Emitted Triton compiled for real, without a device: resources, instruction mix, faults with their place."""
from __future__ import annotations

from dataclasses import replace

import pytest

from kir.base.diagnostic import KirError
from kir.gate import realized
from kir.hardware.target import target
from kir.ir.nodes import For, Kernel
from kir.ir.visit import transform
from kir.learning.tune.rank import built, given_of
from kir.learning.tune.space import find_space
from kir.problem import load_problem
from kir.surface import Artifact, Backend, backend
from tests.backends.conftest import program

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def triton() -> Backend:
    return backend("triton")


@pytest.fixture(scope="module")
def gemm(triton: Backend) -> Artifact:
    return triton.compile(triton.emit(program("gemm_tile")), target("sm_80"))


def test_a_gemm_uses_tensor_cores_and_asynchronous_copies(gemm: Artifact) -> None:
    assert gemm.target == "sm_80" and gemm.compiled
    assert gemm.mix["HMMA"] >= 64 and gemm.mix["LDGSTS"] > 0 and gemm.mix["LDSM"] > 0
    assert 64 < gemm.registers <= 255 and gemm.shared_bytes >= 2 * (128 * 32 + 32 * 128) * 2
    assert {"ttgir", "ptx", "sass"} <= set(gemm.kernels[0].texts)
    assert dict(gemm.tools)["triton"]


def test_hopper_gets_its_own_matrix_instruction(triton: Backend) -> None:
    made = triton.compile(triton.emit(program("gemm_tile")), target("sm_90a"))
    assert made.mix["HGMMA"] > 0 and "HMMA" not in made.mix


def test_stages_are_realized_and_names_are_not(triton: Backend, gemm: Artifact) -> None:
    p = program("gemm_tile")
    def staged(old: object, new: object) -> object:
        return replace(new, attrs=(("stages", 4),)) if isinstance(new, For) else new
    deeper = triton.compile(triton.emit(transform(p, staged)), target("sm_80"))
    step = realized(gemm, deeper)
    assert step.realized and any("shared bytes" in text for text in step.differs)
    emitted = triton.emit(p)
    renamed = replace(emitted, text=emitted.text.replace("acc", "total") + "# a comment\n")
    same = realized(gemm, triton.compile(renamed, target("sm_80")))
    assert not same.realized and same.reason == "the compiler makes the same code of both"


@pytest.mark.parametrize(("asked", "launched"), [(True, 384), (False, 128)])
def test_warps_that_the_compiler_adds_to_a_specialized_loop_are_launched(triton: Backend, asked: bool, launched: int) -> None:
    """Triton's compiler gives a specialized loop a warpgroup that loads and two that compute; the launch has all of them."""
    space, device = find_space("gemm_triton"), target("h200")
    problem = load_problem(space.home)
    point = {name: values[0] for name, values in space.parameters.items()} | {"threads": 128}
    p = built(space, space.values(point, given_of(space, problem, problem.shapes[0], device)), problem, device)
    def specialized(old: object, new: object) -> object:
        if isinstance(new, Kernel):
            return replace(new, attrs=())  # Triton 3.6 refuses such loops beside descriptors that the host makes
        return replace(new, attrs=(*new.attrs, ("warp_specialize", True))) if asked and isinstance(new, For) and new.kind == "pipelined" else new
    (kernel,) = triton.compile(triton.emit(transform(p, specialized)), target("sm_90a")).kernels
    assert kernel.threads == launched and kernel.image is not None and (kernel.image.threads or kernel.threads) == launched


def test_a_compiler_fault_is_located_in_the_program(triton: Backend) -> None:
    emitted = triton.emit(program("softmax_tile"))
    broken = replace(emitted, text=emitted.text.replace("tl.exp(x - top)", "tl.exp(x - nowhere)"))
    with pytest.raises(KirError) as refused:
        triton.compile(broken, target("sm_90a"))
    (found,) = refused.value.diagnostics
    assert found.id == "KIR-B010" and found.anchor == "main/2" and "nowhere" in str(found)
