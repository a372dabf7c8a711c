"""The hand-written programs: in printed form and verified."""
from __future__ import annotations

import math

import pytest

from kir.hardware.target import target
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.ir.visit import walk
from kir.problem import load_problem, problem_names
from tests.programs import EXPERTS, SHIPPED, shipped

NAIVE = sorted(problem_names())


def test_every_file_is_listed() -> None:
    listed = {SHIPPED[name]["file"] for name in SHIPPED}
    assert listed == {str(p.relative_to(EXPERTS)) for p in EXPERTS.glob("*/*.kir")}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_an_expert_is_in_printed_form_and_verified(name: str) -> None:
    path, program = EXPERTS / SHIPPED[name]["file"], shipped(name)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert program_text(program).splitlines() == lines
    assert parse_program(program_text(program)) == program
    assert [d for d in verify(program) if d.severity == "error"] == []


@pytest.mark.parametrize("name", NAIVE)
def test_a_naive_program_is_in_printed_form_and_verified(name: str) -> None:
    problem = load_problem(name)
    assert program_text(problem.naive) == (problem.folder / "naive.kir").read_text()
    for dtype in problem.spec.dtypes:
        assert [d for d in verify(load_problem(f"{name}:{dtype}").naive) if d.severity == "error"] == []


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_an_expert_fits_its_target(name: str) -> None:
    limits = target(SHIPPED[name]["target"]).architecture
    for kernel in shipped(name).kernels:
        threads = build.int_value(kernel.threads)
        assert threads is not None and threads <= limits.max_threads_per_cta
        buffers = [s.buffer for s in walk(kernel) if isinstance(s, n.Alloc) and s.buffer.space == "shared"]
        sizes = [b.dtype.bytes * math.prod(int(d.value) for d in b.shape if isinstance(d, n.Const)) for b in buffers]
        assert sum(sizes) <= limits.shared_per_cta
        for roles in (s for s in walk(kernel) if isinstance(s, n.Roles)):
            assert sum((r.hi - r.lo) * 32 * r.registers for r in roles.roles) <= limits.registers_per_cta
            assert all(r.registers % 8 == 0 for r in roles.roles)
