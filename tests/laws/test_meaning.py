"""Law 3: before and after agree in the interpreter, bit for bit where a pass says so, else within the problem's error bound."""
from __future__ import annotations

from functools import cache, lru_cache
from itertools import islice
from pathlib import Path

import pytest

from kir.analysis.target.metas import at_defaults
from kir.base.diagnostic import KirError
from kir.interp import Result, run
from kir.ir import nodes as n
from kir.problem import Problem, Shape, load_problem
from kir.rewrite import Site, apply, each_site, passes, sites
from kir.rewrite.meaning import difference
from kir.rewrite.pipelines.text import Direction
from tests.laws.walks import MOST, held, parts, refused_rightly
from tests.programs import EXPERTS, SHIPPED, SKILLS, normal

PASSES = {cls.name: cls for cls in passes()}
DIRECTIONS: tuple[Direction, ...] = ("backward", "forward")
PARTS = parts(PASSES)


def _programs() -> dict[str, tuple[Path, str]]:
    found = {f"{f.parent.name} naive": (f, f.parent.name) for f in sorted((SKILLS / "problems").glob("*/naive.kir"))}
    for name, row in SHIPPED.items():
        found[name] = (EXPERTS / row["file"], row["problem"])
    return found


PROGRAMS = _programs()


@cache
def loaded(name: str) -> tuple[n.Program, Problem, Shape]:
    """A shipped program in normal form, its problem, and the least work at which its facts hold."""
    file, problem_name = PROGRAMS[name]
    p, problem = normal(file), load_problem(problem_name)

    def work(shape: Shape) -> int:
        out = 1
        for size in shape.sizes.values():
            out *= int(size)
        return out
    return p, problem, min(problem.shapes_for(p), key=work)


def outputs(name: str, p: n.Program) -> Result:
    _, problem, shape = loaded(name)
    return run(at_defaults(p), problem.drawn(shape, 1, "normal"), problem.scalars(shape))


@cache
def base(name: str) -> Result:
    return outputs(name, loaded(name)[0])


def filled(name: str) -> dict[str, str]:
    """The options under which a pass leaves no hole: a carrier's first recorded answer."""
    contract = getattr(PASSES[name], "carrier", None)
    return {"answer": min(f.stem for f in contract.folder.glob("*.kir") if f.stem != "naive")} if contract is not None else {}


each_program = pytest.mark.parametrize("program", PROGRAMS, scope="module")
"""All tests of a program come one after another, so that what one finds in it the next need not look for."""


@lru_cache(maxsize=2 * len(PASSES))
def offered(name: str, program: str) -> tuple[Site, ...]:
    """Where a pass applies forward in a program, without options."""
    return sites(PASSES[name].with_options({}), loaded(program)[0])


def first_site(name: str, program: str, direction: Direction) -> tuple[Site, ...]:
    """One site at the most."""
    if direction == "forward" and not filled(name):
        return offered(name, program)[:1]
    return tuple(islice(each_site(PASSES[name].with_options(filled(name) if direction == "forward" else {}), loaded(program)[0], direction), 1))


@each_program
@pytest.mark.parametrize("part", PARTS)
def test_passes_keep_the_meaning(part: str, program: str) -> None:
    held(keeps_the_meaning, PARTS[part], program)


def keeps_the_meaning(name: str, program: str) -> None:
    p, problem, shape = loaded(program)
    for direction in DIRECTIONS:
        for site in first_site(name, program, direction):
            try:
                done = apply(p, site.params, site, direction)
            except KirError as refused:
                assert all(d.id[4] == "P" or d.id == "KIR-R006" for d in refused.diagnostics), refused
                continue
            after, what = outputs(program, done.program), f"{direction} {site.params} at {done.record.anchor}"
            if done.record.numerics == "bitwise":
                assert difference(base(program), after) == "", what
            else:
                assert problem.compare(after.outputs, problem.drawn(shape, 1, "normal"), shape).ok, what


@each_program
def test_what_is_offered_applies(program: str) -> None:
    """A forward site whose preconditions hold is one that `apply` takes, or that a trial refuses; only where it is not taken need the trial be made. The
    first sites of each pass are tried with its other laws (`test_laws.py`)."""
    p, _, _ = loaded(program)
    for name, cls in PASSES.items():
        for site in offered(name, program)[MOST:]:
            try:
                apply(p, cls.with_options({}), site)
            except KirError as refused:
                if not refused_rightly(p, site):
                    raise AssertionError(f"{site.params} is offered, and `apply` refuses it") from refused
