"""Law 5b: what is lowered is raised to what it was, raising is idempotent, and what cannot be raised is said, not guessed."""
from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.parser import parse_program
from kir.ir.rules.verify import verify
from kir.surface.lowering import is_tiled, lowered
from kir.surface.lowering.raising import raised_kernel
from kir.surface.lowering.registers.anchors import NotRaised
from kir.surface.lowering.registers.plan import planned
from tests.kir.surface.lowering.test_lowering import BODIES, program
from tests.strategies import programs

ROOT = Path(__file__).parents[4]
RESPELLED = ("column sums", "a gather in memory")
"""Bodies that have a shorter spelling, which raising gives: `keep` followed by the removal of the axis, an index that is a range."""
NOT_RAISED = ("reshapes", "join and split", "one element of a tile", "a histogram", "atomics", "parts of a fragment", "warps",
              "threads between tiles", "products on tensor cores", "products in tf32", "attention", "elements of a fragment",
              "elements of a fragment that changes", "a fragment filled from an element", "a flat view")
"""Bodies whose code nothing raises yet; the pass refuses them (KIR-R006), the backend writes them."""


def plan(p: n.Program) -> n.Program:
    p = normalize(p)
    return replace(p, kernels=tuple(planned(p, k) for k in p.kernels))


def raised(q: n.Program) -> n.Program:
    return replace(q, kernels=tuple(raised_kernel(q, k) for k in q.kernels))


@cache
def body(what: str) -> tuple[n.Program, n.Program]:
    x = plan(program(BODIES[what]))
    return x, lowered(x)


@pytest.mark.parametrize("what", [b for b in BODIES if b not in NOT_RAISED])
def test_raising_takes_lowering_back(what: str) -> None:
    x, q = body(what)
    r = raised(q)
    assert alpha_equal(r, x) or what in RESPELLED
    assert alpha_equal(lowered(r), q)
    assert alpha_equal(raised(lowered(r)), r)


@pytest.mark.parametrize("what", BODIES)
def test_the_form_that_is_lowered_is_a_normal_form(what: str) -> None:
    x, q = body(what)
    assert plan(x) == x and not verify(x)
    assert lowered(normalize(program(BODIES[what]))) == q


@pytest.mark.parametrize("what", NOT_RAISED)
def test_what_is_not_raised_is_said(what: str) -> None:
    with pytest.raises(NotRaised, match="is not what lowering a tile statement gives"):
        raised(body(what)[1])


@pytest.mark.parametrize("file", ["skills/experts/gdn/gdn.kir"])
def test_experts_are_raised_again(file: str) -> None:
    x = plan(parse_program((ROOT / file).read_text(encoding="utf-8"), file))
    x = replace(x, kernels=tuple(replace(k, body=tuple(scalar(s) for s in k.body)) for k in x.kernels))
    q = lowered(x)
    r = raised(q)
    assert alpha_equal(lowered(r), q)
    assert alpha_equal(raised(lowered(r)), r)


def scalar(s: n.Stmt) -> n.Stmt:
    """A statement whose products are left to the scalar units."""
    match s:
        case n.Mma():
            return replace(s, via="fma")
        case n.For():
            return replace(s, body=tuple(map(scalar, s.body)))
        case _:
            return s


@given(programs(kernels=1))
@settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
def test_generated_programs_are_lowered_and_raised_or_refused(p: n.Program) -> None:
    p = normalize(p)
    if not any(is_tiled(k) for k in p.kernels):
        return
    try:
        q = lowered(p)
    except KirError as refused:
        assert {d.id for d in refused.diagnostics} == {"KIR-B030"} and all(d.anchor for d in refused.diagnostics)
        return
    assert [d for d in verify(q) if d.severity == "error"] == []
    try:
        r = raised(q)
    except NotRaised:
        return
    assert alpha_equal(lowered(r), q)
    assert alpha_equal(raised(lowered(r)), r)


def test_declarations_moved_out_of_roles_keep_labels_apart() -> None:
    p = parse_program("""kir 1
program p
kernel main grid () threads 128
  @store roles
    role producer warps 0..1
      pass
    role consumer warps 1..4
      @store shared x: i8[1]
""", "p.kir")
    assert [d for d in verify(lowered(normalize(p))) if d.severity == "error"] == []
