"""The checker finds every mechanical mutant of every expert program, and finds nothing in the originals, which are right."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest
from numpy.typing import NDArray

from kir.base.diagnostic import KirError
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.problem import Problem, Shape, load_problem
from tests.programs import EXPERTS, SHIPPED

from .mutation import Mutant, mutants, one_sided

Arrays = dict[str, NDArray[Any]]
SHAPES = {"gemm_sm80": "ring"}
"""Where mutants are tried on another shape than that at which the program is checked."""
_GDN = {"B": 1, "L": 202, "H": 1, "G": 1}
SIZES: dict[str, dict[str, int]] = {
    "conv2d_sm90": {"N": 1, "H": 7, "W": 11, "C": 64, "F": 72}, "gdn_d128_sm90": _GDN, "gdn_d128_sm90_pair": _GDN,
    "gemm_sm80_lanes": {"M": 24, "N": 40, "K": 168}, "gemm_sm90": {"M": 72, "N": 200, "K": 456}, "gemm_sm90_persistent": {"M": 72, "N": 264, "K": 264}}
"""Where they are tried on less: few CTAs, and rings that wrap once; each is found there as well."""
SMALLER: dict[str, dict[str, int]] = {"fmha_sm90": {"B": 1, "H": 1, "L": 328}, "fmha_causal_sm90": {"B": 1, "H": 1, "L": 328}}
"""Sizes of less work at which all but one or two are found; those are tried on the shape."""
DISTRIBUTIONS = {"topk_radix": "ties"}
BY_THREADS = {"gemm_sm90_lanes": "gemm_sm90_persistent"}
"""Programs that are another one lane by lane: the other one's mutants stand for theirs, at a fraction of the memory."""
BY_LANES = {"gemm_sm90_lanes": {"M": 72, "N": 264, "K": 264}}
"""Sizes at which every ring of such a program wraps twice, where the shape has more tiles than that takes."""
WIDER = {"fmha_d128_sm90": "fmha_sm90", "fmha_d128_causal_sm90": "fmha_causal_sm90"}
"""Programs that are another one but for the width of a head: mutants are tried on the narrow one."""
AS_IN = {"gdn_d128_sm90_pair": "gdn_d128_sm90"}
"""Programs that have kernels of another one to the letter: the mutants of these kernels are the other one's."""
PERSISTENT = {"gemm_sm90_persistent": 2, "gemm_sm90_lanes": 1}
"""Persistent programs run with fewer CTAs than the device has, so that each takes several tiles of a small shape; their mutants with one."""

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
    "gdn_d128_sm90: drop bulk_commit prepare/bulk_commit#0": LATER_GROUP,
    "gdn_d128_sm90: drop wgmma_commit prepare/wgmma_commit#0": LATER_GROUP,
    **{f"{name}: {mutant}": why for name in ("gdn_d128_sm90", "gdn_d128_sm90_pair") for mutant, why in {
        "unswizzle map A_map": SAME_MAP,
        "unswizzle map P_map": SAME_MAP,
        "unswizzle reads of recur/Os": BY_MAP}.items()},
}
"""Mutants that compute the same on every schedule, with the reason."""


def _expert(name: str, ctas: int | None = None) -> tuple[n.Program, Problem]:
    path = EXPERTS / SHIPPED[name]["file"]
    text = path.read_text()
    if name in PERSISTENT:
        text = text.replace(", 132)", f", {ctas or PERSISTENT[name]})")
    return parse_program(text, str(path)), load_problem(SHIPPED[name]["problem"])


def _some(sizes: dict[str, int]) -> Shape:
    return Shape(name="some", tags=("tail",), sizes=sizes)


def _shapes(name: str, problem: Problem) -> list[Shape]:
    """The shapes on which mutants are tried, the one of less work first."""
    last = _some(SIZES[name]) if name in SIZES else problem.shape(SHAPES.get(name, SHIPPED[name]["check"]))
    return [_some(SMALLER[name]), last] if name in SMALLER else [last]


def _mutants(name: str, program: n.Program) -> Iterator[Mutant]:
    """Those that no other program's stand for."""
    known = {k.name for k in program.kernels if name in AS_IN and k in _expert(AS_IN[name], 1)[0].kernels}
    for m in (*mutants(program), *one_sided(program)):
        if all(changed == k or k.name not in known for changed, k in zip(m.program.kernels, program.kernels, strict=True)):
            yield m


def _caught(program: n.Program, problem: Problem, name: str, shape: Shape, given: Arrays | None = None, by_value: bool = False) -> str:
    """Who finds the mutant: the checker, a refusal, or the oracle (one-sided layouts show as wrong values); "" if nobody. `given` are arrays beside the
    problem's own. With `by_value` the oracle is asked first, without checking: a fraction of the time where it is who finds it."""
    inputs = problem.drawn(shape, 0, DISTRIBUTIONS.get(name, "normal"))
    arrays, scalars = {**inputs, **(given or {})}, problem.scalars(shape)
    try:
        if by_value and not problem.compare(run(program, arrays, scalars).outputs, inputs, shape).ok:
            return "oracle"
        result = run(program, arrays, scalars, mode="check", one_error=True)
    except KirError as refused:
        return refused.diagnostics[0].id
    if result.errors:
        return result.errors[0].id
    return "" if problem.compare(result.outputs, inputs, shape).ok else "oracle"


def _part(program: n.Program, kernels: tuple[n.Kernel, ...], role: Literal["in", "out"]) -> n.Program:
    """Some kernels of a program by themselves, whose workspaces are tensors that they take or give."""
    given = tuple(n.Param(w.buffer.name, role, w.buffer) for w in program.workspaces)
    names = {k.name for k in kernels}
    plan = tuple(step for step in program.plan if isinstance(step, n.Launch) and step.kernel in names)
    return replace(program, kernels=kernels, plan=plan, params=(*program.params, *given), workspaces=())


def _before_last(program: n.Program, problem: Problem, shape: Shape) -> Arrays:
    """What all kernels but the last leave in the workspaces."""
    if len(program.kernels) == 1:
        return {}
    first = _part(program, program.kernels[:-1], "out")
    made = run(first, problem.inputs(shape, 0, "normal"), problem.scalars(shape)).outputs
    return {w.buffer.name: made[w.buffer.name] for w in program.workspaces}


@pytest.mark.parametrize("name", AS_IN)
def test_a_kernel_that_another_program_has_is_that_to_the_letter(name: str) -> None:
    program, other = _expert(name)[0], _expert(AS_IN[name])[0]
    shared = [k.name for k in program.kernels if k in other.kernels]
    assert shared and len(shared) < len(program.kernels)
    for k in shared:
        assert {m.name for m in mutants(program)} >= {m.name for m in mutants(other) if f" {k}/" in m.name}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_an_original_has_no_error_finding(name: str) -> None:
    program, problem = _expert(name)
    shape = _some(BY_LANES[name]) if name in BY_LANES else problem.shape(SHIPPED[name]["check"])
    for distribution in dict.fromkeys(("normal", DISTRIBUTIONS.get(name, "normal"))):
        inputs = problem.inputs(shape, 0, distribution)
        checked = run(program, inputs, problem.scalars(shape), mode="check")
        assert not checked.errors, "\n".join(str(f.diagnostic()) for f in checked.errors)
        assert problem.compare(checked.outputs, inputs, shape).ok
        fast = run(program, inputs, problem.scalars(shape))
        assert {k: v.tobytes() for k, v in fast.outputs.items()} == {k: v.tobytes() for k, v in checked.outputs.items()}


@pytest.mark.parametrize("name", sorted(set(SHIPPED) - set(BY_THREADS) - set(WIDER)))
def test_every_mutant_is_found(name: str) -> None:
    program, problem = _expert(name, 1)
    shapes = _shapes(name, problem)
    assert not any(_caught(program, problem, name, shape) for shape in shapes)
    left = {shape.name: _before_last(program, problem, shape) for shape in shapes}

    def found(m: Mutant) -> bool:
        """A mutant of the last of several kernels is tried on what the others leave, without running them again."""
        mutant = m.program
        last = len(program.kernels) > 1 and mutant.kernels[:-1] == program.kernels[:-1] and mutant.tensor_maps == program.tensor_maps
        tried, given = (_part(mutant, mutant.kernels[-1:], "in"), left) if last else (mutant, None)
        by_value = m.name.startswith("unswizzle")
        return any(_caught(tried, problem, name, shape, None if given is None else given[shape.name], by_value) for shape in shapes)

    missed = [m.name for m in _mutants(name, program) if not found(m)]
    assert {f"{name}: {m}" for m in missed} == {m for m in EQUIVALENT if m.startswith(f"{name}:")}
