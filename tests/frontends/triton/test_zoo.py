"""The kernels of tests/zoo.toml, read from source as installed: specialized and raised they solve their problem."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from kir.analysis.regions import raised
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.build import const
from kir.ir.generic import is_generic
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.specialize import specialize
from kir.ir.types import BOOL
from kir.ir.verify import verify
from kir.ir.visit import statements, substitute
from kir.lineage.source import read_generic
from kir.problem import load_problem

ROOT = Path(__file__).parents[3]
ZOO = {k: v for k, v in tomllib.loads((ROOT / "tests" / "zoo.toml").read_text()).items() if v.get("surface", "triton") == "triton"}


def kernels() -> list[object]:
    return [pytest.param(name, marks=() if row["file"].startswith("skills/") else pytest.mark.zoo) for name, row in ZOO.items()]


def generic(name: str) -> Program:
    row = ZOO[name]
    file = str(ROOT / row["file"]) if row["file"].startswith("skills/") else row["file"]
    return read_generic(f"{file}::{row['kernel']}")[0]


def bound(name: str) -> Program:
    """The kernel under its binding without divisibility, which only a compiler needs: so that tails are run too."""
    binding = Binding.read(ROOT / ZOO[name]["binding"])
    return specialize(generic(name), replace(binding, facts=[f for f in binding.facts if "%" not in f]))


def facts_hold(program: Program, sizes: dict[str, int]) -> bool:
    """Whether a binding is for calls of these sizes."""
    values = {k: const(v) for k, v in sizes.items()}
    return all(substitute(f, values) == const(True, BOOL) for f in program.facts)


@pytest.mark.parametrize("name", kernels())
def test_the_generic_program_prints_parses_and_verifies(name: str) -> None:
    program = generic(name)
    assert is_generic(program)
    assert parse_program(program_text(program)) == program
    assert verify(program) == ()
    assert not any(isinstance(s, n.Opaque) for k in program.kernels for s in statements(k.body))


@pytest.mark.parametrize("name", kernels())
def test_specialized_and_raised_it_solves_its_problem(name: str) -> None:
    specialized = bound(name)
    normal = raised(specialized)
    assert not is_generic(normal)
    assert raised(normal) == normal
    assert parse_program(program_text(normal)) == normal
    problem = load_problem(ZOO[name]["problem"])
    shapes = [shape for shape in problem.shapes if "timed" not in shape.tags and facts_hold(normal, shape.sizes)]
    assert len(shapes) >= 3
    for shape in shapes:
        inputs = problem.inputs(shape, seed=0, distribution="normal")
        for program in (specialized, normal):
            outputs = run(program, inputs, problem.scalars(shape)).outputs
            assert problem.compare(outputs, inputs, shape).ok, shape.name


@pytest.mark.parametrize("name", kernels())
def test_raised_accesses_name_the_tensors_themselves(name: str) -> None:
    normal = raised(bound(name))
    body = list(statements(normal.kernels[0].body))
    assert not any(isinstance(s, n.View) for s in body)
    stores = [s for s in body if isinstance(s, (n.Store, n.Copy)) and (s.at if isinstance(s, n.Store) else s.dst).buffer.space == "global"]
    assert stores
    assert all(s.mask is None for s in stores), "masks that say what the bounds say are clips"


@pytest.mark.zoo
def test_a_wrong_name_is_refused_with_the_nearest() -> None:
    from kir.diagnostic import KirError
    with pytest.raises(KirError, match="did you mean 'mm_kernel_general'"):
        read_generic("flag_gems:ops/mm.py::mm_kernel_generl")
