"""Deciding a condition for all values under the facts: normal form and domains, then exhaustive evaluation, then z3.

z3 is imported on use. Products and quotients of two unknowns become fresh symbols, operations that may wrap do too, and the search is
cut off by a fixed number of steps (`RLIMIT`), never by time; and each question has a context of its own, since z3 goes by the order in which it met
terms. So an answer, its witness too, is the same on every machine and whatever was asked before. What z3 finds as a counterexample is evaluated before it
is believed.
"""
from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Literal

from kir.analysis.facts import Facts
from kir.analysis.order import exact_terms
from kir.analysis.simplify import is_true, simplify
from kir.base.dataclass import dataclass
from kir.base.working import solving
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import substitute, walk

RLIMIT = 2_000_000
"""z3's resource limit: deterministic steps, about a second at most."""
MOST_CASES = 4096
"""Most combinations of values that are tried one by one."""
SMALL, HUGE = (1, 2, 0, 3, 8, 16, 64), (0, 0, 1 << 28, 1 << 30, (1 << 31) - 1)
KEPT = 4096
"""Answers that are kept."""
COMPLETIONS = 120
"""Values that are tried for what a claim does not read, and how often, where z3 has values for what it does; and values of that for which a product may
wrap."""


@dataclass(frozen=True)
class Answer:
    """`always` it holds for all values under the facts; `never` for none; `sometimes` not for those of `witness`; or it is `unknown`.
    `how` names the method. The witness of `never` is one of the many."""

    kind: Literal["always", "never", "sometimes", "unknown"]
    how: str
    witness: tuple[tuple[str, int], ...] = ()

    def shown(self) -> str:
        """The witness as text, `N = 10, i = 3`."""
        return ", ".join(f"{name} = {value}" for name, value in self.witness)


@dataclass(frozen=True)
class _Asked:
    """A claim, and what stands for the facts under which it is decided."""

    claim: n.Expr
    token: object
    known: Facts = field(compare=False, repr=False)


def decide(claim: n.Expr, known: Facts) -> Answer:
    """Whether a boolean scalar expression over integers holds under the facts of a place. The last answers are kept: a program and what a rewrite made of
    it ask much the same."""
    return _decided(claim, known) if known.token is None else _kept(_Asked(claim, known.token, known))


@lru_cache(maxsize=KEPT)
def _kept(asked: _Asked) -> Answer:
    return _decided(asked.claim, asked.known)


def _decided(claim: n.Expr, known: Facts) -> Answer:
    claim = known.expanded(claim)
    reduced = simplify(claim, known)
    if is_true(reduced):
        return Answer("always", "normal form")
    if isinstance(reduced, n.Const):
        return Answer("never", "normal form", _some(claim, known))
    names = _free(claim, known)
    if any(isinstance(x, (n.Load, n.Call)) or isinstance(getattr(x, "type", None), TileType) for x in walk(claim)):
        return Answer("unknown", "it depends on data")
    return _exhaustive(claim, known, names) or _by_z3(claim, known, names)


def _conditions(known: Facts) -> list[n.Expr]:
    return [known.expanded(h) for h in known.holds]


def _free(claim: n.Expr, known: Facts) -> dict[str, n.Var]:
    """Variables that matter: those of the claim, and of conditions that share one with it."""
    names = {x.name: x for x in walk(claim) if isinstance(x, n.Var)}
    waiting = [{x.name: x for x in walk(h) if isinstance(x, n.Var)} for h in _conditions(known)]
    grown = True
    while grown:
        grown = False
        for more in waiting:
            if more.keys() & names.keys() and not more.keys() <= names.keys():
                names.update(more)
                grown = True
    return dict(sorted(names.items()))


def evaluate(e: n.Expr, values: Mapping[str, int], names: Mapping[str, n.Var]) -> n.Expr:
    """The expression at values of its variables; a literal unless an operation is undefined there."""
    made: n.Expr = substitute(e, {k: const(v, dtype_of(names[k].of)) for k, v in values.items() if k in names})
    return made


def _holds_at(e: n.Expr, values: Mapping[str, int], names: Mapping[str, n.Var]) -> bool | None:
    made = evaluate(e, values, names)
    return bool(made.value) if isinstance(made, n.Const) else None


def _some(claim: n.Expr, known: Facts) -> tuple[tuple[str, int], ...]:
    """Some values under the facts, if a few tries find any."""
    names = _free(claim, known)
    lows = {k: known.domain(v).lo for k, v in names.items()}
    for shift in (1, 0, 2, 8):
        values = {k: (lo or 0) + (shift if known.domain(names[k]).value is None else 0) for k, lo in lows.items()}
        if all(_holds_at(h, values, names) is not False for h in _conditions(known)):
            return tuple(values.items())
    return ()


def fails_at_ends(claim: n.Expr, known: Facts) -> bool:
    """Whether an expression fails where its variables are at the lowest values that they may have together, but for one at the end of its own. False
    says nothing: this is for what is usually false, and saves asking `decide` there."""
    claim = known.expanded(claim)
    if any(isinstance(x, (n.Load, n.Call)) for x in walk(claim)):
        return False
    names = _free(claim, known)
    conditions = [h for h in _conditions(known) if any(isinstance(x, n.Var) and x.name in names for x in walk(h))]
    ends = {k: known.domain(v) for k, v in names.items()}

    def may_be(values: dict[str, int]) -> bool:
        return all(_holds_at(h, values, names) is True for h in conditions)
    zero = {k: d.lo or 0 for k, d in ends.items()}
    lowest = next(filter(may_be, (zero, *({**zero, k: low + 1} for k, low in zero.items()))), None)
    if lowest is None:
        return False
    tried = (lowest, *({**lowest, k: d.hi} for k, d in ends.items() if d.hi is not None))
    return any(_holds_at(claim, values, names) is False and may_be(values) for values in tried)


def _exhaustive(claim: n.Expr, known: Facts, names: Mapping[str, n.Var]) -> Answer | None:
    """The answer by trying every combination, where there are few."""
    count, ranges = 1, []
    for v in names.values():
        found = known.domain(v)
        if found.lo is None or found.hi is None:
            return None
        step = found.modulus or 1
        if (found.hi - found.lo) // step > MOST_CASES:
            return None
        ranges.append(range(found.lo, found.hi + 1, step))
        count *= max(len(ranges[-1]), 1)
        if count > MOST_CASES:
            return None
    conditions = [h for h in _conditions(known) if all(x.name in names for x in walk(h) if isinstance(x, n.Var))]
    held, failed = None, None
    for combination in itertools.product(*ranges):
        values = dict(zip(names, combination, strict=True))
        if any(_holds_at(h, values, names) is False for h in conditions):
            continue
        outcome = _holds_at(claim, values, names)
        if outcome is None:
            return None
        if outcome:
            held = values
        else:
            failed = values
    how = f"all {count} cases"
    if failed is None:
        return Answer("always", how)
    return Answer("never" if held is None else "sometimes", how, tuple(failed.items()))


@solving
def _by_z3(claim: n.Expr, known: Facts, names: Mapping[str, n.Var]) -> Answer:
    import z3
    made = _Translation(z3, known)
    goal = made.boolean(claim)
    if goal is None:
        return Answer("unknown", "it has a form that is not decided")
    assumptions = [t for h in _conditions(known) if (t := made.boolean(h)) is not None]

    def model(extra: Any) -> tuple[str, tuple[tuple[str, int], ...]]:
        solver = z3.SolverFor("QF_LIA", ctx=made.context)
        solver.set("rlimit", RLIMIT)
        solver.add(*assumptions, extra)
        solver.add(*made.bounds())
        outcome = str(solver.check())
        if outcome != "sat":
            return outcome, ()
        values = solver.model()
        at = {k: made.symbols[v] for k, v in names.items() if v in made.symbols}
        return outcome, tuple((k, values.eval(symbol, model_completion=True).as_long()) for k, symbol in at.items())

    refuting, witness = model(z3.Not(goal))
    if refuting == "unsat":
        return Answer("always", "z3")
    agreeing, _ = model(goal)
    values = dict(witness)
    genuine = refuting == "sat" and len(values) == len(names) and _holds_at(claim, values, names) is False and \
        all(_holds_at(h, values, names) is not False for h in _conditions(known))
    if agreeing == "unsat" and refuting == "sat":
        return Answer("never", "z3", witness if genuine else _some(claim, known))
    if genuine:
        return Answer("sometimes", "z3", witness)
    if refuting == "sat" and (found := _completed(claim, known, names, values)):
        return Answer("sometimes", "z3", found)
    return Answer("unknown", "z3 gave up" if refuting == "unknown" else "z3 found only values that need an unknown product or quotient")


def _completed(claim: n.Expr, known: Facts, names: Mapping[str, n.Var], model: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Values under the facts for which a claim fails: those of a model for what the claim itself reads, the first of a few others for all else. For
    models that take a product or a quotient of unknowns for something that it cannot be."""
    own = {x.name for x in walk(claim) if isinstance(x, n.Var)}
    rest = [k for k in names if k not in own]
    conditions = _conditions(known)
    rng = random.Random(len(names))
    for attempt in range(COMPLETIONS):
        huge = HUGE[attempt // len(SMALL) % len(HUGE)]  # 0: as the model has it
        values = {k: huge or model.get(k, 1) if k in own else SMALL[attempt] if attempt < len(SMALL) else rng.choice(SMALL) for k in names}
        values |= {k: 0 for k in rest if attempt % 2 and known.domain(names[k]).hi is not None}
        if _holds_at(claim, values, names) is False and all(_holds_at(h, values, names) is True for h in conditions if _reads_only(h, names)):
            return tuple(values.items())
    return ()


def _reads_only(e: n.Expr, names: Mapping[str, n.Var]) -> bool:
    """Whether a condition is one on these names alone; others have values of their own."""
    return all(x.name in names for x in walk(e) if isinstance(x, n.Var))


class _Translation:
    """Integer expressions as z3 terms over mathematical integers."""

    def __init__(self, z3: Any, known: Facts) -> None:
        self.z3, self.known, self.context = z3, known, z3.Context()
        self.symbols: dict[n.Expr, Any] = {}

    def bounds(self) -> Iterator[Any]:
        """What domains say of each symbol."""
        for e, symbol in list(self.symbols.items()):
            found = self.known.domain(e)
            if found.lo is not None:
                yield symbol >= found.lo
            if found.hi is not None:
                yield symbol <= found.hi
            if found.modulus > 1:
                yield symbol % found.modulus == found.residue

    def symbol(self, e: n.Expr) -> Any:
        if e not in self.symbols:
            name = e.name if isinstance(e, n.Var) else f"t{len(self.symbols)}"
            self.symbols[e] = self.z3.Int(name, self.context)
        return self.symbols[e]

    def boolean(self, e: n.Expr) -> Any | None:
        """A condition, or None for a form that is not translated."""
        z3 = self.z3
        match e:
            case n.Const():
                return z3.BoolVal(bool(e.value), self.context)
            case n.Unary() if e.op == "not":
                inner = self.boolean(e.x)
                return None if inner is None else z3.Not(inner)
            case n.Binary() if e.op in ("and", "or"):
                a, b = self.boolean(e.a), self.boolean(e.b)
                return None if a is None or b is None else z3.And(a, b) if e.op == "and" else z3.Or(a, b)
            case n.Binary() if e.op in n.COMPARISONS and all(isinstance(x.type, DType) and x.type.is_integer for x in (e.a, e.b)):
                a, b = self.integer(e.a), self.integer(e.b)
                return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}[e.op]
            case _:
                return None

    def integer(self, e: n.Expr) -> Any:
        """An integer; what is not linear, or may wrap, is a symbol."""
        z3 = self.z3
        if not isinstance(e, (n.Const, n.Var)) and not self.known.is_exact(e):
            return self.symbol(e)
        match e:
            case n.Const():
                return z3.IntVal(int(e.value), self.context)
            case n.Unary() if e.op == "neg":
                return -self.integer(e.x)
            case n.Binary() if e.op in ("add", "sub", "mul") and dtype_of(e.type).kind == "uint":
                terms = exact_terms(e)
                if any(len(m) > 1 or m == (e,) for m in terms):
                    return self.symbol(e)
                return z3.Sum([z3.IntVal(0, self.context), *(c * (self.integer(m[0]) if m else 1) for m, c in terms.items())])
            case n.Binary() if e.op in ("add", "sub", "mul"):
                if e.op == "mul" and int_value(e.a) is None and int_value(e.b) is None:
                    return self.symbol(e)
                a, b = self.integer(e.a), self.integer(e.b)
                return a + b if e.op == "add" else a - b if e.op == "sub" else a * b
            case n.Binary() if e.op in ("floordiv", "mod", "ceildiv") and (int_value(e.b) or 0) > 0:
                a, c = self.integer(e.a), int_value(e.b)
                return a / c if e.op == "floordiv" else a % c if e.op == "mod" else -((-a) / c)
            case n.Binary() if e.op in ("min", "max"):
                a, b = self.integer(e.a), self.integer(e.b)
                return z3.If(a <= b, a, b) if e.op == "min" else z3.If(a >= b, a, b)
            case n.Select():
                cond = self.boolean(e.cond)
                return self.symbol(e) if cond is None else z3.If(cond, self.integer(e.a), self.integer(e.b))
            case _:
                return self.symbol(e)


def multiple(e: n.Expr, c: int) -> n.Expr:
    """The claim that `c` divides an integer expression."""
    return build.compare("eq", build.mod(e, c), 0)
