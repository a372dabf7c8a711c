"""One question to the solver: does a claim follow from what holds at a place? Cut off by steps, never by time."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from kir.analysis.facts import Facts
from kir.analysis.proof.terms import Terms
from kir.base.dataclass import dataclass
from kir.ir import nodes as n

RLIMIT = 3_000_000
"""z3's resource limit for one question: deterministic steps, about a second at most."""
CORRECTIONS = 6
"""How often a model whose products are wrong is put right before the question counts as not answered."""
SMALL = ((1, 40), (0, 300))
"""Bounds on sizes under which a counterexample is looked for first: it is to be run."""


@dataclass(frozen=True)
class Ranging:
    """A variable from `lo` on, below `hi`."""

    var: n.Var
    lo: n.Expr
    hi: n.Expr


Holding = Ranging | n.Expr
"""What holds at a place: a variable's range, or a condition."""


@dataclass(frozen=True)
class Reply:
    """`proved`; `fails`, with the values of z3's model; or `unknown`. `wraps` are signed sums that were taken to fit their dtype."""

    kind: Literal["proved", "fails", "unknown"]
    values: Mapping[str, int]
    wraps: tuple[n.Expr, ...] = ()


def facts_of(base: Facts, holding: Iterable[Holding]) -> Facts:
    """The facts of the program with what holds at a place."""
    known = base
    for each in holding:
        known = known.ranging(each.var, each.lo, each.hi) if isinstance(each, Ranging) else known.knowing(each)
    return known


def asked(base: Facts, holding: Iterable[Holding], claim: n.Expr, sizes: Iterable[str] = (), beside: n.Expr | None = None) -> Reply:
    """Whether `claim`, or `beside`, follows from the facts and what holds. For a claim that fails, values with small `sizes` are preferred. The sums of
    `beside` are only compared, so that they need not fit."""
    import z3

    holding = tuple(dict.fromkeys(holding))
    known = facts_of(base, holding)
    terms = Terms(z3, known)
    goal = [z3.Not(terms.boolean(claim)), *(terms.boolean(h) for h in (*known.holds, *(h for h in holding if isinstance(h, n.Expr))))]
    wraps = tuple(terms.wraps)
    if beside is not None:
        goal.append(z3.Not(terms.boolean(beside)))
    return _solved(terms, goal, sizes, wraps)


def _solved(terms: Terms, goal: list[Any], sizes: Iterable[str], wraps: tuple[n.Expr, ...]) -> Reply:
    """What the solver says of conditions that should exclude one another."""
    import z3

    everything = [*goal, *terms.lemmas(), *terms.side]
    bounded = [terms.atoms[s] for s in sizes if s in terms.atoms]
    model: Mapping[str, int] = {}
    for least, most in ((0, 0), *SMALL):
        for _ in range(CORRECTIONS):
            solver = z3.SimpleSolver()
            solver.set("rlimit", RLIMIT)
            for each in (*everything, *([z3.And(x >= least, x <= most) for x in bounded] if most else ())):
                z3.Z3_solver_assert(solver.ctx.ref(), solver.solver, each.as_ast())  # what `add` does, which asks for the sort of each first
            outcome = str(solver.check())
            if outcome != "sat":
                break
            values = solver.model()
            wrong = terms.corrected(values)
            if not wrong:
                model = {k: values.eval(terms.atoms[k], model_completion=True).as_long() for k in terms.named}
                break
            everything += wrong
        if not most and outcome != "sat":
            return Reply("proved" if outcome == "unsat" else "unknown", {}, wraps)
        if most and model and outcome == "sat":
            break
    return Reply("fails", model, wraps) if model else Reply("unknown", {}, wraps)


def consistent(base: Facts) -> bool:
    """Whether facts hold for some sizes; true where the solver cannot tell."""
    import z3

    terms = Terms(z3, base)
    solver = z3.SimpleSolver()
    solver.set("rlimit", RLIMIT)
    solver.add(*[terms.boolean(h) for h in base.holds], *[x for e in base.ranges for x in terms.bounds_of(e)])
    solver.add(*terms.lemmas(), *terms.side)
    return str(solver.check()) != "unsat"


def fitting(base: Facts, holding: Iterable[Holding], e: n.Expr, sizes: Iterable[str] = ()) -> Reply:
    """Whether a sum fits its dtype. Its operands are taken to fit theirs."""
    import z3

    holding = tuple(dict.fromkeys(holding))
    known = facts_of(base, holding)
    terms = Terms(z3, known)
    goal = terms.leaves(e)
    given = [terms.boolean(h) for h in (*known.holds, *(h for h in holding if isinstance(h, n.Expr)))]
    return _solved(terms, [goal, *given], (), ())
