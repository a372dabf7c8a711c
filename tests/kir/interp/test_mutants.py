"""The checker finds every mechanical mutant of every expert program, and finds nothing in the originals."""
from __future__ import annotations

import pytest

from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.problem import Problem, load_problem
from tests.programs import EXPERTS, SHIPPED

from .mutation import Mutant, mutants, one_sided

SHAPES = {"gemm_sm80": "ring"}
DISTRIBUTIONS = {"topk_radix": "ties"}
BY_THREADS = {"gemm_sm90_lanes": "gemm_sm90_persistent"}
"""Programs that are another one lane by lane: the other one's mutants stand for theirs, at a fraction of the memory."""
WIDER = {"fmha_d128_sm90": "fmha_sm90", "fmha_d128_causal_sm90": "fmha_causal_sm90"}
"""Programs that are another one but for the width of a head: mutants are tried on the narrow one."""
CTAS = {"gemm_sm90_persistent": (", 132)", ", 2)"), "gemm_sm90_lanes": (", 132)", ", 2)")}
"""Persistent programs run with fewer CTAs than the device has, so that each takes several tiles of a small shape."""

SAME_VALUE = "every lane of the warp (or thread of the CTA) holds the same value here and stores it: weak, and reported as such"
NOBODY = "the last warpgroup arrives at a named barrier that nobody waits at"
BY_MAP = "only TMA reads the buffer, and the tensor map, not the buffer, says how its bytes are ordered"
LATER_GROUP = "the next commit closes the group, and every wait after it is for all groups"
SAME_MAP = "the kernels write the workspace and read it by this one map, which nobody else looks at"
EQUIVALENT = {
    "conv2d_sm90: unswizzle reads of main/Cs": BY_MAP,
    "gemm_sm90: unswizzle reads of main/Cs": BY_MAP,
    "gemm_sm90_persistent: unswizzle reads of main/Cs": BY_MAP,
    "softmax: unguard main/thread_loop/if#0": SAME_VALUE,
    "softmax: unguard main/thread_loop/if#1": SAME_VALUE,
    "rmsnorm: unguard main/thread_loop/if#0": SAME_VALUE,
    "rmsnorm: unguard main/thread_loop/if#1": SAME_VALUE,
    "fmha_causal_sm90: unguard main/roles/consumer/consumers/if#1": NOBODY,
    **{f"{name}: {mutant}": why for name in ("gdn_d128_sm90", "gdn_d128_sm90_pair") for mutant, why in {
        "drop bulk_commit prepare/bulk_commit#0": LATER_GROUP,
        "drop wgmma_commit prepare/wgmma_commit#0": LATER_GROUP,
        "unswizzle map A_map": SAME_MAP,
        "unswizzle map P_map": SAME_MAP,
        "unswizzle reads of recur/Os": BY_MAP}.items()},
}
"""Mutants that compute the same on every schedule, with the reason."""


def _expert(name: str) -> tuple[n.Program, Problem]:
    path = EXPERTS / SHIPPED[name]["file"]
    return parse_program(path.read_text().replace(*CTAS.get(name, ("", ""))), str(path)), load_problem(SHIPPED[name]["problem"])


def _caught(mutant: Mutant, problem: Problem, name: str) -> str:
    """Who finds the mutant: the checker, a refusal, or the oracle (one-sided layouts show as wrong values); "" if nobody."""
    shape = problem.shape(SHAPES.get(name, SHIPPED[name]["check"]))
    inputs = problem.inputs(shape, 0, DISTRIBUTIONS.get(name, "normal"))
    try:
        result = run(mutant.program, inputs, problem.scalars(shape), mode="check", one_error=True)
    except KirError as refused:
        return refused.diagnostics[0].id
    if result.errors:
        return result.errors[0].id
    return "" if problem.compare(result.outputs, inputs, shape).ok else "oracle"


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_an_original_has_no_error_finding(name: str) -> None:
    program, problem = _expert(name)
    shape = problem.shape(SHIPPED[name]["check"])
    inputs = problem.inputs(shape, 0, DISTRIBUTIONS.get(name, "normal"))
    checked = run(program, inputs, problem.scalars(shape), mode="check")
    assert not checked.errors, "\n".join(str(f.diagnostic()) for f in checked.errors)
    fast = run(program, inputs, problem.scalars(shape))
    assert {k: v.tobytes() for k, v in fast.outputs.items()} == {k: v.tobytes() for k, v in checked.outputs.items()}


@pytest.mark.parametrize("name", sorted(set(SHIPPED) - set(BY_THREADS) - set(WIDER)))
def test_every_mutant_is_found(name: str) -> None:
    program, problem = _expert(name)
    missed = [m.name for m in (*mutants(program), *one_sided(program)) if not _caught(m, problem, name)]
    assert {f"{name}: {m}" for m in missed} == {m for m in EQUIVALENT if m.startswith(f"{name}:")}
