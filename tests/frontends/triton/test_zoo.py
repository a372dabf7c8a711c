"""The kernels of tests/zoo.toml, read from source as installed: specialized and raised they solve their problem."""

from __future__ import annotations

import pytest

from kir.analysis.normal.regions import raised
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.generic import is_generic
from kir.ir.rules.verify import verify
from kir.ir.types import BOOL
from kir.ir.visit import statements, substitute
from kir.problem import load_problem
from kir.surface.reading import read_generic
from tests.zoo import TRITON, bound, generic, normal, of_each


def facts_hold(program: Program, sizes: dict[str, int]) -> bool:
    """Whether a binding is for calls of these sizes."""
    values = {k: const(v) for k, v in sizes.items()}
    return all(substitute(f, values) == const(True, BOOL) for f in program.facts)


@of_each(TRITON)
def test_the_generic_program_prints_parses_and_verifies(name: str) -> None:
    program = generic(name)
    assert is_generic(program)
    assert parse_program(program_text(program)) == program
    assert verify(program) == ()
    assert not any(isinstance(s, n.Opaque) for k in program.kernels for s in statements(k.body))


@of_each(TRITON)
def test_specialized_and_raised_it_solves_its_problem(name: str) -> None:
    specialized, made = bound(name), normal(name)
    assert not is_generic(made)
    assert raised(made) == made
    assert parse_program(program_text(made)) == made
    problem = load_problem(TRITON[name]["problem"])
    shapes = [shape for shape in problem.shapes if "timed" not in shape.tags and facts_hold(made, shape.sizes)]
    assert len(shapes) >= 3
    for shape in shapes:
        inputs = problem.inputs(shape, seed=0, distribution="normal")
        for program in (specialized, made):
            outputs = run(program, inputs, problem.scalars(shape)).outputs
            assert problem.compare(outputs, inputs, shape).ok, shape.name


@of_each(TRITON)
def test_raised_accesses_name_the_tensors_themselves(name: str) -> None:
    body = list(statements(normal(name).kernels[0].body))
    assert not any(isinstance(s, n.View) for s in body)
    stores = [s for s in body if isinstance(s, (n.Store, n.Copy)) and (s.at if isinstance(s, n.Store) else s.dst).buffer.space == "global"]
    assert stores
    assert all(s.mask is None for s in stores), "masks that say what the bounds say are clips"


@pytest.mark.zoo
def test_a_wrong_name_is_refused_with_the_nearest() -> None:
    from kir.base.diagnostic import KirError
    with pytest.raises(KirError, match="did you mean 'mm_kernel_general'"):
        read_generic("flag_gems:ops/mm.py::mm_kernel_generl")
