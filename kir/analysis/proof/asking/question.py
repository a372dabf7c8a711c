"""One question to the solver: does a claim follow from what holds at a place? Cut off by steps, never by time."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal

from kir.analysis.facts import Facts
from kir.analysis.proof.asking.flat import Apart
from kir.analysis.proof.asking.formulas import Formula, Formulas, Model
from kir.analysis.proof.asking.terms import Terms
from kir.base.dataclass import dataclass
from kir.base.working import solving
from kir.ir import nodes as n

RLIMIT = 3_000_000
"""z3's resource limit for one check: deterministic steps, a second or two at most."""
OF_KERNEL = 16_000_000
"""Steps for all questions of a kernel together: some fifteen seconds."""
PART = 8
"""No question takes more than this part of the steps that are left: many hard ones leave enough for the easy ones that follow."""
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


class Steps:
    """The steps of z3 that are left for the questions of a kernel, and for the one that is asked; and the formulas of all of them."""

    def __init__(self, left: int = 0) -> None:
        self.left = self.all = left or OF_KERNEL
        self.question = 0

    @cached_property
    def formulas(self) -> Formulas:
        """z3's context, where anything is asked."""
        return Formulas()

    @property
    def spent(self) -> bool:
        """Whether so few are left that no question is worth putting in words."""
        return self.left < self.all // 100

    def begun(self) -> None:
        """Another question."""
        self.question = self.left // PART

    def check(self, conditions: Iterable[Formula]) -> tuple[str, Model | None]:
        """What the simple solver says of conditions, and a model where they hold for some values."""
        most = min(RLIMIT, self.question)
        if most <= 0:  # which z3 would take for no limit
            return "unknown", None
        outcome, model, steps = self.formulas.check(conditions, most)
        taken = max(1, steps)
        self.question, self.left = self.question - taken, max(0, self.left - taken)
        return outcome, model


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


@solving
def asked(base: Facts, holding: Iterable[Holding], claim: n.Expr, sizes: Iterable[str] = (), beside: n.Expr | None = None, steps: Steps | None = None) -> Reply:
    """Whether `claim`, or `beside`, follows from the facts and what holds. For a claim that fails, values with small `sizes` are preferred. The sums of
    `beside` are only compared, so that they need not fit."""
    steps = steps or Steps()
    z3 = steps.formulas
    steps.begun()
    holding = tuple(dict.fromkeys(holding))
    known = facts_of(base, holding)
    given = (*known.holds, *(h for h in holding if isinstance(h, n.Expr)))
    terms, told, goal = _translated(z3, known, given, claim, frozenset())
    over = {e: z3.compared("ne", x, z3.number(0)) for e, x in terms.modular.items()}
    if exact := frozenset(e for e, not_so in over.items() if steps.check([*told, *terms.lemmas(), *terms.side, not_so])[0] == "unsat"):
        terms, told, goal = _translated(z3, known, given, claim, exact)
    wraps, apart = tuple(terms.wraps), Apart(terms)
    enough = apart.condition(claim)
    other = []
    if beside is not None:
        terms.fit = False
        other = [z3.no(terms.boolean(beside))]
    if apart.used and steps.check([z3.no(enough), *told, *other, *terms.side])[0] == "unsat":
        return Reply("proved", {}, wraps)
    return _solved(terms, [goal, *told, *other], sizes, wraps, steps)


def _translated(z3: Formulas, known: Facts, given: Iterable[n.Expr], claim: n.Expr, exact: frozenset[n.Expr]) -> tuple[Terms, list[Formula], Formula]:
    """A question in z3's terms: what holds, and that the claim does not."""
    terms = Terms(z3, known, True, exact)
    goal = z3.no(terms.boolean(claim))
    return terms, [terms.boolean(h) for h in given], goal


def _solved(terms: Terms, goal: list[Formula], sizes: Iterable[str], wraps: tuple[n.Expr, ...], steps: Steps, most_rounds: int = len(SMALL) + 1) -> Reply:
    """What the solver says of conditions that should exclude one another. In each round products are put right `CORRECTIONS` times; those behind the first
    one look for small sizes too."""
    z3 = terms.z3
    everything = [*goal, *terms.lemmas(), *terms.side]
    bounded = [terms.atoms[s] for s in sizes if s in terms.atoms]
    found: Mapping[str, int] = {}
    for least, most in ((0, 0), *SMALL)[:most_rounds]:
        small = [z3.every((z3.compared("ge", x, z3.number(least)), z3.compared("le", x, z3.number(most)))) for x in bounded] if most else []
        for _ in range(CORRECTIONS):
            outcome, model = steps.check((*everything, *small))
            if model is None:
                break
            wrong = terms.corrected(model)
            if not wrong:
                found = {k: model.value(terms.atoms[k]) for k in terms.named}
                break
            everything += wrong
        if not most and outcome != "sat":
            return Reply("proved" if outcome == "unsat" else "unknown", {}, wraps)
        if most and found and outcome == "sat":
            break
    return Reply("fails", found, wraps) if found else Reply("unknown", {}, wraps)


@solving
def fitted(base: Facts, holding: Iterable[Holding], claim: n.Expr, steps: Steps) -> tuple[n.Expr, ...]:
    """The signed sums of a question that are taken to fit their dtype, where another one was asked in its place."""
    known = facts_of(base, tuple(dict.fromkeys(holding)))
    return tuple(_translated(steps.formulas, known, (*known.holds, *(h for h in holding if isinstance(h, n.Expr))), claim, frozenset())[0].wraps)


@solving
def consistent(base: Facts, steps: Steps) -> bool | None:
    """Whether facts hold for some sizes, products and all; None where the solver finds none, and does not say that there are none."""
    steps.begun()
    terms = Terms(steps.formulas, base)
    goal = [*(terms.boolean(h) for h in base.holds), *(x for e in base.ranges for x in terms.bounds_of(e))]
    everything = [*goal, *terms.lemmas(), *terms.side]
    for _ in range(CORRECTIONS):
        outcome, model = steps.check(everything)
        if model is None:
            return False if outcome == "unsat" else None
        wrong = terms.corrected(model)
        if not wrong:
            return True
        everything += wrong
    return None


@solving
def fitting(base: Facts, holding: Iterable[Holding], e: n.Expr, parts: Iterable[n.Expr], steps: Steps, hard: bool = True) -> Reply:
    """Whether a sum fits its dtype. Its operands are taken to fit theirs, and so are sums that it is made of, each of which is a question of its own. What is
    not `hard` is given up after one round."""
    steps.begun()
    holding = tuple(dict.fromkeys(holding))
    known = facts_of(base, holding)
    terms = Terms(steps.formulas, known)
    goal = terms.leaves(e)
    given = [terms.boolean(h) for h in (*known.holds, *(h for h in holding if isinstance(h, n.Expr)))]
    for part in parts:
        terms.taken(part)
    return _solved(terms, [goal, *given], (), (), steps, len(SMALL) + 1 if hard else 1)
