"""What lowering and reading CUDA leave in a GEMM to keep its threads apart is all needed: drop or weaken any one, and the checker sees it."""
from __future__ import annotations

from pathlib import Path

from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir import nodes as n
from kir.problem import load_problem
from tests.backends.cuda.test_cuda_products import gemm
from tests.kir.interp.findings.mutation import Mutant, mutants
from tests.programs import bound

SKILLS = Path(__file__).parents[3] / "skills"


def from_an_open_product() -> n.Program:
    from kir.backends.cuda.lowering.thread_code import thread_code
    return thread_code(gemm())[0]


def from_source() -> n.Program:
    """gemm_sm80.cu as read, at tiles small enough to be checked often."""
    return bound("gemm/gemm_sm80.cu::gemm_sm80", "gemm_sm80")


def caught(m: Mutant, sizes: dict[str, int]) -> str:
    """Who finds a mutant: the checker, a refusal, or the oracle; "" if nobody."""
    problem = load_problem("gemm")
    shape = problem.tagged("small")[0].model_copy(update={"name": "here", "sizes": sizes})
    inputs = problem.inputs(shape, 0)
    try:
        result = run(m.program, inputs, problem.scalars(shape), mode="check", one_error=True)
    except KirError as refused:
        return refused.diagnostics[0].id
    if result.errors:
        return result.errors[0].id
    return "" if problem.compare(result.outputs, inputs, shape).ok else "oracle"


def missed(p: n.Program, sizes: dict[str, int], kinds: tuple[str, ...] = ("",)) -> list[str]:
    """Mutants of some kinds that nobody finds, after a look at the original."""
    assert caught(Mutant("none", p), sizes) == ""
    every = [m for m in mutants(p) if m.name.startswith(kinds)]
    assert len(every) >= 8
    return [m.name for m in every if not caught(m, sizes)]


def test_of_a_lowered_product() -> None:
    assert missed(from_an_open_product(), {"M": 40, "N": 40, "K": 136}) == []


def test_of_the_cuda_source() -> None:
    assert missed(from_source(), {"M": 8, "N": 8, "K": 136}, ("drop", "weaken", "unclip")) == []


def test_groups_that_nobody_waits_for_are_found() -> None:
    problem = load_problem("gemm")
    shape = problem.tagged("small")[0].model_copy(update={"name": "here", "sizes": {"M": 8, "N": 8, "K": 136}})
    for m in (m for m in mutants(from_source()) if m.name.endswith("async_wait gemm_sm80/t/async_wait")):
        found = run(m.program, problem.inputs(shape, 0), problem.scalars(shape), mode="check").findings
        assert found and {(f.id, f.severity) for f in found} == {("KIR-I017", "error")}, m.name
        assert all(f.accesses[1].verb == "end of the kernel" for f in found)
