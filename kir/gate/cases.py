"""The inputs that a program is tested on: sizes solved from its structure, orders and distributions that tell, and the judge of each case."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.gate.goals import WRAP, predicted
from kir.gate.inputs.close import beyond, close, ill_conditioned, precise, rounded_to, rounds
from kir.gate.inputs.extremes import extremes
from kir.gate.inputs.kinds import APART, BELOW, BESIDE, BLOCKS, KINDS, NOTHING, OTHER, PARTS, PEAKED, PLACED_STEPS, STRANGE_STEPS, TIES, WHOLE
from kir.gate.inputs.magnitudes import MOST_ELEMENTS_BITS, magnitudes
from kir.gate.inputs.offsets import first_of, offsets, short_rows
from kir.gate.inputs.places import places, taken_apart
from kir.gate.inputs.scalars import SCALARS, given, keeps, turns_of_scalars
from kir.gate.inputs.scaled import factor, held_back
from kir.gate.inputs.sets import size_sets
from kir.gate.inputs.turns import about, numbers_of, turns
from kir.gate.inputs.ways import with_ways
from kir.gate.operands import exactly, in_f64, in_full, otherwise
from kir.gate.shapes import MOST_ELEMENTS, Plan, Sizes, Space, constants, of_problem, of_programs, solved, worth
from kir.interp import Result, run, run_within
from kir.interp.state.coverage import MORE, TWO
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.canonical import content_hash
from kir.ir.printer import expr_text
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.problem import Comparison, Problem, Shape
from kir.problem.draws import AROUND, AT, OFFSET, TIMES, WITHIN, around, draw, generator, offset, placed, times, unit_roundoff
from kir.problem.ordering import TOGETHER, Ordering, ordered, split
from kir.problem.schema import Draw, Tensor

Array = NDArray[Any]
S = TypeVar("S")
SECONDS = 1.0
"""Interpreted time, as it is foreseen, of the cases of one program beyond those that are never left out."""
CHECKED_SECONDS, CHECKED_TIMES, ENOUGH = 3.0, 10, 0.85
"""Time that the first checked case may take; how much slower checking is than running; and what share of the most that a case reaches is enough for it."""
MORE_CHECKED, MORE_SECONDS, LONGEST_SECONDS = 5, 1.0, 1.5
"""How many cases are checked for what the first does not reach, the time that they may take together, and the time of the longest that is checked."""
WIDE = (1, 2, 4, 8)
"""Elements that divide a size, and twice as many do not: its rows try the alignment of accesses of so many more."""
TIMES_RUN = 2.5
"""Of a case that another program judges: it runs too, and once for several states of a walk in float64."""
FAIR = 0.5
"""What share of its bound a reference may be off what it gives in float64, for inputs to be fair."""
SURE = 0.25
"""The same, where inputs lie far from zero."""
FRESH = 3
"""What is added to seeds for inputs that a program has not seen."""
MOST_WITHIN = 3
"""Seeds of whole numbers that end within the sizes."""
MOST_SCALED, SCALED_SEEDS = 2, (0, 1, 2)
"""Numbers of a program beyond which outputs are brought, and with which seeds that is tried."""
TURNS = (0, TOGETHER)
"""Seeds of the ordered cases at the most telling shape: every slice in another order, and everything rising together."""


@dataclass(frozen=True)
class Tests:
    """The cases of one program, the most telling first; those that are run in checking mode; names of those that would take too long; the
    plan that they come from; and further ones, drawn as they are asked for, where loops whose trips data decide have not run twice."""

    cases: tuple[Case, ...]
    checked: tuple[Case, ...] = ()
    left_out: tuple[str, ...] = ()
    plan: Plan | None = None
    further: Callable[[], Iterator[Case]] = field(default=lambda: iter(()), compare=False)


class Case(Protocol):
    """One set of inputs with its judge."""

    @property
    def shape(self) -> str:
        """The name of the sizes."""
        ...

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes by name."""
        ...

    @property
    def distribution(self) -> str:
        """How the inputs were drawn."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the draw."""
        ...

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Inputs by the program's names, fresh copies each time."""
        ...

    @property
    def scalars(self) -> Mapping[str, int | float]:
        """Sizes and scalar arguments by name."""
        ...

    def compare(self, outputs: Mapping[str, Array]) -> Comparison:
        """Whether these outputs, by the program's names, are right."""
        ...


@dataclass(frozen=True)
class ProblemCase:
    """Inputs of a problem for a program whose tensors may have other names: `names` maps the program's to the problem's."""

    problem: Problem
    at: Shape
    distribution: str
    seed: int
    inputs: Mapping[str, Array]
    names: Mapping[str, str]

    @property
    def shape(self) -> str:
        return self.at.name

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.at.sizes

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Inputs by the program's names; each run gets its own copies."""
        return {mine: self.inputs[theirs].copy() for mine, theirs in self.names.items() if theirs in self.inputs}

    @property
    def scalars(self) -> Mapping[str, int | float]:
        return self.problem.scalars(self.at)

    def compare(self, outputs: Mapping[str, Array]) -> Comparison:
        """The problem's own comparison."""
        known = {self.names[mine]: value for mine, value in outputs.items() if mine in self.names}
        return self.problem.compare(known, self.inputs, self.at)


def tensor_names(program: n.Program, problem: Problem, given: Mapping[str, str]) -> dict[str, str]:
    """The problem's tensor for each of the program's: as given, or by the parameter's attribute `tensor`, or of the same name.
    Tensors that the problem does not know keep their name; they are compared with nothing."""
    out = {}
    for p in program.params:
        if isinstance(p.of, n.Buffer):
            out[p.name] = given.get(p.name) or str(dict(p.attrs).get("tensor", p.name))
    return out


def as_posed(program: n.Program, problem: Problem, given: Mapping[str, str]) -> n.Program:
    """A program that reads what a problem calls an output, and is given nothing there: what it has not written itself is undefined. Raises KirError KIR-G116
    where it writes what the problem calls an input."""
    roles = {t.name: t.role for t in problem.spec.tensors}
    params = []
    for p in program.params:
        theirs = tensor_names(program, problem, given).get(p.name, "")
        if p.role in ("out", "inout") and roles.get(theirs) == "in":
            raise error("KIR-G116", f"'{p.name}' is written, and '{theirs}' is an input of problem '{problem.name}'",
                        needs="memory of its own for what is written")
        params.append(replace(p, role="out") if p.role == "inout" and roles.get(theirs) == "out" else p)
    return replace(program, params=tuple(params)) if tuple(params) != program.params else program


def problem_tests(program: n.Program, problem: Problem, given: Mapping[str, str], also: Sequence[n.Program] = (), fresh: int = 0) -> Tests:
    """The cases of a problem for a program, at sizes at which the program and those of `also` do all that they can do, and at the problem's own.

    Never left out: each solved shape, the first of them in two turns of the orders; the problem's first uneven shape, and there distributions of other whole
    numbers (lengths that end within it, say); one that is adversarial, by turns of the program's hash. The others in time. `fresh` is added to seeds."""
    names = tensor_names(program, problem, given)
    plan = problem_plan(program, problem, given, also)
    own = [s for s in problem.shapes_for(program) if "timed" not in s.tags and elements_of(problem, s) <= MOST_ELEMENTS]
    if plan is None and not own:
        return Tests(())
    shapes = [named_shape(problem, at) for at in (plan.shapes if plan is not None else ()) if problem.admits(named_shape(problem, at))]
    uneven = next((s for s in own if "tail" in s.tags and "one" not in s.tags), own[-1] if own else shapes[0])
    in_order = f"normal{plan.ordering}" if plan is not None and plan.ordering is not None else "normal"
    adverse = [d for d in problem.distributions if d not in ("normal", *problem.always)]
    turn = int(content_hash(program)[:8], 16)
    adverse = adverse[turn % len(adverse):] + adverse[:turn % len(adverse)] if adverse else []
    must = [(s, in_order, seed) for s in shapes for seed in (TURNS if s is shapes[0] else TURNS[:1])]
    far = [s for at in (plan.far if plan is not None else ()) if problem.admits(s := named_shape(problem, at))]
    edges = [s for at in (plan.edges if plan is not None else ()) if problem.admits(s := named_shape(problem, at))]
    must += [(s, in_order, TURNS[i % 2]) for i, s in enumerate((*far, *edges))]
    if uneven not in shapes or in_order != "normal":
        must.append((uneven, "normal", 0))
    must += [(uneven, d, 0) for d in (*problem.always, *problem.lengths)]
    must += [(s, WITHIN, k) for k in range(MOST_WITHIN if problem.ranges else 0) for s in (*shapes[:1], uneven)]
    away = offsets(program, *naive_of(problem), names=names)
    must += [(s, d, 0) for s in short_rows([*shapes, *edges, *own], lambda s: s.sizes) for d in first_of(d for d in away if _fair(problem, s, d, fresh))]
    places = [shapes[0], uneven] if shapes else [uneven]
    may = [(places[i % len(places)], f"{d}{in_order.removeprefix('normal')}" if i % len(places) == 0 and shapes else d, i) for i, d in enumerate(adverse)]
    must, may = must + may[:1], may[1:]
    place, naive = (shapes or [uneven])[0], naive_of(problem)
    scaled = _scaled(program, naive, lambda seed, by: _given(naive[0], problem, place, by, seed + fresh)) if naive else []
    around_ = [*turns(program, names), *about(program, *naive)]
    may[:0] = [(place, d, i) for d, i in (*((d, i) for i, d in enumerate(around_, 1)), *scaled) if _fair(problem, place, d, i + fresh)]
    if _fair(problem, place, f"{TIMES}0.0", fresh):
        may.insert(0, (place, f"{TIMES}0.0", 0))
    may[:0] = [*((s, f"{d}{in_order.removeprefix('normal')}", TURNS[1]) for d, s in _turns([d for d in adverse if problem.orderable(d)], far)),
               *((s, in_order, TURNS[(i + 1) % 2]) for i, s in enumerate(far))]
    may += [(s, "normal", 1) for s in own if s not in shapes and s != uneven]
    kept, left = _affordable(program, [s.sizes for s, _, _ in must], [s.sizes for s, _, _ in may], lambda at: _program_sizes(program, problem, names, at))
    chosen = [*must, *(may[i] for i in kept)]
    cases = tuple(ProblemCase(problem, s, d, seed + fresh, problem.drawn(s, seed + fresh, d), names) for s, d, seed in chosen)
    return Tests(cases, _checked(program, cases, lambda at: _program_sizes(program, problem, names, at), longest=True),
                 tuple(f"{may[i][0].name} {may[i][1]} {may[i][2]}" for i in left), plan,
                 lambda: (ProblemCase(problem, s, d, fresh, problem.drawn(s, fresh, d), names) for s in sorted(shapes, key=lambda s: elements_of(problem, s))
                          for d in adverse if (s, d) not in [(at, how) for at, how, _ in chosen]))


def _scaled(program: n.Program, others: Sequence[n.Program], made: Callable[[int, float], Mapping[str, Array]]) -> list[tuple[str, int]]:
    """Distributions, with seeds, that bring outputs beyond numbers that a program has and no other: `made` gives them for a seed and a factor of
    the inputs."""
    own = numbers_of(program) - set().union(*map(numbers_of, others))
    out: dict[tuple[str, int], None] = {}
    for c in sorted(own, key=lambda c: (-abs(c), c))[:MOST_SCALED]:
        for seed in SCALED_SEEDS:
            if (by := factor(partial(made, seed), c)) is not None:
                out[f"{TIMES}{by!r}", seed] = None
                break
    return list(out)


def _fair(problem: Problem, at: Shape, distribution: str, seed: int) -> bool:
    """Whether a problem's own program is right on inputs that the problem does not draw; run once for all candidates of a problem."""
    known: dict[object, bool] = problem.__dict__.setdefault("_fair_inputs", {})
    key = tuple(sorted(at.sizes.items())), distribution, seed
    if key not in known:
        naive = naive_of(problem)
        known[key] = bool(naive and problem.widest_drawn(problem.inputs(at, seed))) and right(naive[0], ProblemCase(
            problem, at, distribution, seed, problem.inputs(at, seed, distribution), tensor_names(naive[0], problem, {})))
    return known[key]


def _given(program: n.Program, problem: Problem, at: Shape, by: float, seed: int) -> Mapping[str, Array]:
    """What a problem's own program gives for inputs times a number, as far as it is right."""
    case = ProblemCase(problem, at, f"{TIMES}{by!r}", seed, problem.inputs(at, seed, f"{TIMES}{by!r}"), tensor_names(program, problem, {}))
    wanted = {p.name for p in program.params}
    try:
        with np.errstate(all="ignore"):
            return run(program, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}).outputs
    except (KirError, ArithmeticError):
        return {}


def right(program: n.Program, case: ProblemCase) -> bool:
    """Whether a program can be run on a case, and is right there."""
    wanted = {p.name for p in program.params}
    try:
        with np.errstate(all="ignore"):
            return case.compare(run(program, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}).outputs).ok
    except (KirError, ArithmeticError):
        return False


def _turns(names: Sequence[str], far: Sequence[S]) -> Iterator[tuple[str, S]]:
    """Every name with every shape, so that neither has all of its turns before the others."""
    for shift in range(len(far)):
        yield from ((name, far[(i + shift) % len(far)]) for i, name in enumerate(names))


def problem_plan(program: n.Program, problem: Problem, given: Mapping[str, str], also: Sequence[n.Program] = ()) -> Plan | None:
    """Where a program is tested, of what its own structure, the problem's naive program and those of `also` bring about."""
    space = of_problem(program, problem, tensor_names(program, problem, given))
    plan = solved(program, space, (*also, *naive_of(problem)))
    return with_ways(program, space, plan) if plan is not None else None


def naive_of(problem: Problem) -> tuple[n.Program, ...]:
    """The problem's own program, where it comes with one."""
    try:
        return (problem.naive,)
    except (KirError, OSError):
        return ()


def problem_cases(program: n.Program, problem: Problem, given: Mapping[str, str]) -> list[ProblemCase]:
    """The cases of `problem_tests` alone."""
    return [c for c in problem_tests(program, problem, given).cases if isinstance(c, ProblemCase)]


def named_shape(problem: Problem, at: Sizes) -> Shape:
    """The problem's shape of these sizes, or one that is called by them."""
    known = next((s for s in problem.shapes if s.sizes == at), None)
    return known or Shape(name=", ".join(f"{k}={v}" for k, v in at.items()) or "fixed", tags=("tail",), sizes=dict(at))


def _program_sizes(program: n.Program, problem: Problem, names: Mapping[str, str], at: Mapping[str, int]) -> Sizes:
    return of_problem(program, problem, names).own(dict(at))


def _affordable(program: n.Program, must: Sequence[Mapping[str, int]], may: Sequence[Mapping[str, int]], own: Any,
                times: float = 1.0) -> tuple[list[int], list[int]]:
    """Of what may be run the indices of what fits, and of the rest; each is run so many times."""
    seconds = predicted(program, [own(at) for at in (*must, *may)]).seconds
    spent, kept, left = 0.0, [], []
    for i in range(len(may)):
        cost = times * float(seconds[len(must) + i])
        if spent + cost <= SECONDS:
            kept.append(i)
            spent += cost
        else:
            left.append(i)
    return kept, left


def _checked(program: n.Program, cases: Sequence[Case], own: Any, longest: bool = False) -> tuple[Case, ...]:
    """The cases for the checking mode. First, of those that reach nearly as much as any, the quickest; where that takes too long, the quickest of more than
    one element. Then quick ones that reach what those before do not: a second trip, another way of a branch, an edge, a row that begins off its
    alignment; and the `longest` that there is time for, where trips after the third may differ."""
    if not cases:
        return ()
    found = predicted(program, [own(c.sizes) for c in cases])
    goals = [(worth(g), where) for g, where in found.reached.items() if worth(g)]
    reached = sum((w * where for w, where in goals), np.zeros(len(cases)))
    telling = [i for i in range(len(cases)) if reached[i] >= ENOUGH * reached.max()]
    best = min(telling, key=lambda i: float(found.seconds[i]))
    if found.seconds[best] * CHECKED_TIMES > CHECKED_SECONDS:
        many = [i for i, c in enumerate(cases) if math.prod(c.sizes.values()) > 1] or list(range(len(cases)))
        best = min(many, key=lambda i: float(found.seconds[i]))
    goals += [(0.5, where) for where in found.ways.values()]
    goals += [(0.5, np.array([c.sizes[name] % (2 * wide) == wide and math.prod(c.sizes.values()) > c.sizes[name] for c in cases]))
              for name in cases[best].sizes for wide in WIDE]
    chosen, left, cost = [best], MORE_SECONDS, np.maximum(found.seconds, found.stepped) * CHECKED_TIMES
    while len(chosen) <= MORE_CHECKED:
        gain = sum((w * where for w, where in goals if not where[chosen].any()), np.zeros(len(cases)))
        gain[cost > left] = 0
        best = int(np.argmax(gain / (cost + 0.2)))
        if gain[best] <= 0:
            break
        chosen.append(best)
        left -= float(cost[best])
    for g, where in found.reached.items():  # what a loop carries is checked, if it takes longer
        if g.kind == "loop" and g.bit in (TWO, MORE, WRAP) and not where[chosen].any() and (i := int(np.argmin(np.where(where, cost, np.inf)))) not in chosen:
            chosen += [i] if cost[i] <= 2 * CHECKED_SECONDS else []
    within = np.where(cost <= LONGEST_SECONDS, found.seconds, 0.0)
    if longest and within.max() > found.seconds[chosen].max():
        chosen.append(int(np.argmax(within)))
    return tuple(cases[i] for i in chosen)


def elements_of(problem: Problem, s: Shape) -> int:
    """The most elements that a tensor of the problem has at a shape."""
    return max((math.prod(problem.tensor_shape(t, s)) for t in problem.spec.tensors), default=0)


# ---------------------------------------------------------------------------------------------------- another program as the reference
@dataclass(frozen=True)
class RelativeCase:
    """Random inputs, judged by what another program makes of them: `expected`, and `also` what else it may make
    of them by right (`kir.gate.operands`)."""

    shape: str
    sizes: Mapping[str, int]
    seed: int
    inputs: Mapping[str, Array]
    scalars: Mapping[str, int | float]
    expected: Mapping[str, Array]
    distribution: str = "normal"
    also: Mapping[str, Array] | None = None
    rounded: Mapping[str, float] = field(default_factory=dict)
    """Relative rounding of outputs that the other program rounds to a narrower dtype than theirs (see `rounded_to`)."""
    precise: frozenset[str] = frozenset()
    """Outputs of which the other program gives each element to its own last bits (see `close`)."""
    exactly: Callable[..., Mapping[str, Array] | None] | None = None
    """What the other program gives without rounding, where that is meant (see `kir.gate.operands`), of its inputs or of ones moved in their last bits."""

    @property
    def arrays(self) -> Mapping[str, Array]:
        return {name: value.copy() for name, value in self.inputs.items()}

    def compare(self, outputs: Mapping[str, Array]) -> Comparison:
        """Equal up to the rounding of the outputs' dtype, or of the narrower one that the other program rounds all of one to, to 2^-16 of the largest magnitude
        for what was summed in another order and to what the inputs' last bits make of it; with two readings of tf32, so far from what lies between them."""
        worst = Comparison(True, 0.0, "", 0.0)
        for name, exact in self.expected.items():
            got = outputs.get(name)
            if got is None or got.shape != exact.shape or got.dtype != exact.dtype:
                return Comparison(False, math.inf, name, 0.0, f"{name} is absent, or of another shape or dtype")
            also = None if self.also is None else self.also[name]
            one = close(name, got, exact, None if also is None else also.astype(np.float64), self.rounded.get(name), also is None and name in self.precise)
            if one.worst > 1 and (true := self.exactly() if self.exactly is not None else None) is not None:  # what is nearer to that is no less right
                sure = also is None and name in self.precise
                one = close(name, got, exact, beyond(got, exact, also, true[name]), self.rounded.get(name), sure)
                if one.worst > 1 and also is None and got.dtype.kind == "f" and (f := self.exactly):
                    one = ill_conditioned(name, got, exact, true[name], [x[name] for k in (1, 2, 3) if (x := f(k))], self.rounded.get(name), sure)
            worst = one if one.worst > worst.worst or not one.ok else worst
            if not one.ok:
                break
        return worst


FIRST_PLACES = {TURNS[0]: 0, TURNS[1]: 1}
"""In which turn numbers that name places are drawn by the first seeds; by others as it comes."""
LATER_TURNS = (1, 2, 3, 4, 5)
"""Seeds of further orders at the most telling shape, as long as there is time."""


def relative_tests(program: n.Program, against: n.Program, also: Sequence[n.Program] = (), fresh: int = 0) -> Tests:
    """Cases at sizes that both programs allow and at which both do all that they can do, judged by what `against` makes of them. `fresh` is added to all
    seeds."""
    space = of_programs(program, against)
    if (plan := solved(program, space, (against, *also))) is None:
        return Tests(())
    plan = with_ways(against, space, with_ways(program, space, plan))
    along = Ordering((("*", next((c for c in constants((program, against)) if 8 <= c <= 1024), 32)),))
    by_size = plan.ordering or along
    first, turn = plan.shapes[0], int(content_hash(program)[:8], 16)
    names = [next(iter(BELOW)) if name == "wide" and relative_case(against, first, name, 0) is None else name for name in OTHER]
    adverse = names[turn % len(names):] + names[:turn % len(names)]
    shapes, apart = _needed(program, plan), list(APART)
    inputs = [p.of.dtype for p in program.params if isinstance(p.of, n.Buffer) and p.role != "out"]
    whole = [name for name in WHOLE if any(of.is_integer for of in inputs)]
    numbers = [*turns(program), *(TIES if rounds(program) or rounds(against) else ()), *extremes(against), *whole, *about(program, against)]
    held = magnitudes(against) if not extremes(against) and math.prod(first.values()) <= 1 << MOST_ELEMENTS_BITS else []
    scaled = _scaled(program, (against,), lambda seed, by: _outputs(against, first, by, seed))
    if not any(of.is_float for of in inputs):
        apart, adverse = [], whole[:1] or ["normal"]
    usual = [{**first, **some} for some in size_sets(program)]
    must = [*((at, f"normal{by_size}", TURNS[0]) for at in shapes), (first, f"normal{along}", TURNS[1]), (first, adverse[0], 0),
            *((first, name, 0) for name in turns_of_scalars(against)),
            *((at, f"normal{by_size}", TURNS[0]) for at in plan.edges), *((at, name, 0) for at in plan.counting for name in whole[1:] or ["positive"])]
    may = [*((first, name, i) for i, name in enumerate(numbers, 1)), *((first, *one) for one in scaled),
           *((first, name, 0) for name in (*NOTHING, *BESIDE) if apart), *((first, name, 1) for name in held),
           *((at, f"{name}{BLOCKS}", TURNS[1]) for name in apart for at in plan.far or plan.edges[:1] or (first,)),
           *((at, f"normal{by_size}", TURNS[1]) for at in plan.far),
           *((at, name, i) for at in plan.far[:2] for i, name in enumerate(numbers[:2], 1)), *((first, name, 0) for name in adverse[1:]),
           *((at, f"{name}{by_size}", TURNS[1]) for name, at in _turns(adverse, plan.far)),
           *((first, f"normal{(along, by_size)[seed % 2]}", seed) for seed in LATER_TURNS),
           *((at, f"normal{by_size}", TURNS[0]) for at in plan.shapes if at not in shapes),
           *((at, "normal", 1) for at, fine in zip(usual, space.allowed(usual), strict=True) if fine and at not in plan.shapes)]
    kept, left = _affordable(program, [at for at, _, _ in must], [at for at, _, _ in may], lambda at: at, TIMES_RUN)
    cases = [made for at, distribution, seed in [*must, *(may[i] for i in kept)]
             if (made := relative_case(against, at, distribution, seed + fresh)) is not None]
    far = far_cases(program, against, space, plan, fresh)
    return Tests((*cases, *far), _checked(program, cases, lambda at: at), tuple(f"{_label(may[i][0])} {may[i][1]} {may[i][2]}" for i in left), plan)


def far_cases(program: n.Program, against: n.Program, space: Space, plan: Plan, fresh: int = 0) -> list[RelativeCase]:
    """Cases of few and short rows far from zero, as far as the reference is right there, where one of both takes a sum from what it added up."""
    if not (away := offsets(program, against)):
        return []
    rows = size_sets(program, (12,))
    rows = [*plan.shapes, *plan.edges, *(at for at, fine in zip(rows, space.allowed(rows), strict=True) if fine)]
    return [made for at in short_rows(rows, lambda at: at) for made in first_of(relative_case(against, at, d, fresh) for d in away)]


def _needed(program: n.Program, plan: Plan) -> list[Sizes]:
    """Of the sizes of a plan those that fit the time together, the first in any case, and those without which a loop would not run twice."""
    found = predicted(program, plan.shapes)
    twice: dict[str, Array] = {}
    for g, where in found.reached.items():
        if g.kind == "loop" and g.bit in (TWO, MORE):
            twice[g.anchor] = twice.get(g.anchor, np.zeros(len(plan.shapes), np.bool_)) | where
    kept, spent = [0], TIMES_RUN * float(found.seconds[0])
    for i in range(1, len(plan.shapes)):
        spent += TIMES_RUN * float(found.seconds[i])
        if spent <= SECONDS or any(where[i] and not where[kept].any() for where in twice.values()):
            kept.append(i)
    return [plan.shapes[i] for i in kept]


def relative_cases(program: n.Program, against: n.Program) -> list[Case]:
    """The cases of `relative_tests` alone."""
    return list(relative_tests(program, against).cases)


def relative_case(against: n.Program, sizes: Sizes, distribution: str, seed: int) -> RelativeCase | None:
    """Inputs of a distribution with what a program makes of them; None as `_made` says."""
    return _made(against, tuple(sorted(sizes.items())), distribution, seed)


def _outputs(against: n.Program, sizes: Sizes, by: float, seed: int) -> Mapping[str, Array]:
    """What a reference makes of inputs times a number; nothing where that says nothing of it."""
    found = relative_case(against, sizes, f"{TIMES}{by!r}", seed)
    return found.expected if found is not None else {}


@lru_cache(maxsize=96)
def _made(against: n.Program, at: tuple[tuple[str, int], ...], distribution: str, seed: int) -> RelativeCase | None:
    """A case and what the reference makes of it, kept for the next program of a walk. None for one with too large arrays, for inputs other than
    normal ones of which the reference makes something else in float64 (they would test its rounding), and for whole numbers that it reads beyond its
    tensors with (normal ones: see `held_back`). Numbers that name places are drawn over all of them (`kir.gate.inputs.places`)."""
    sizes = {p.name: dict(at)[p.name] for p in against.params if p.name in dict(at)}
    base, ordering = split(distribution)
    how = KINDS.get(base) or PEAKED.get(base) or Draw(kind="normal")
    values = {name: const(value, p.of) for p in against.params if isinstance(p.of, DType) and (name := p.name) in sizes for value in (sizes[name],)}
    reference = content_hash(against)
    arrays: dict[str, Array] = {}
    few: dict[str, Array] = {}
    known = places(against) if base not in WHOLE else {}
    if base in WHOLE and taken_apart(against):
        return None  # whole numbers of a kind are alike
    drawn_as = TIMES if base.startswith(TIMES) else base  # the same numbers, whatever they are multiplied by
    for p in against.params:
        if not isinstance(p.of, n.Buffer):
            continue
        shape = tuple(int_value(substitute(d, values)) or 0 for d in p.of.shape)
        if math.prod(shape) > MOST_ELEMENTS:
            return None
        if p.role != "out":
            drawn = how if p.of.dtype.is_float else WHOLE.get(base if p.of.dtype.is_integer else "", Draw(kind="integers", low=0, high=2))
            arrays[p.name] = draw(drawn, shape, p.of.dtype.name, generator(reference, drawn_as, seed, p.name, list(at)))
            if p.name in known:
                random = generator(reference, distribution, seed, p.name, list(at))
                turn = FIRST_PLACES[seed] if base == "normal" and seed in FIRST_PLACES else int(random.integers(0, 4))
                if (all_ := known[p.name].drawn(shape, values, p.of.dtype, random, turn)) is not None:
                    few[p.name], arrays[p.name] = arrays[p.name], all_
    floats = [p.name for p in against.params if isinstance(p.of, n.Buffer) and p.of.dtype.is_float and p.name in arrays]
    if base in PARTS:
        arrays |= {name: times(arrays[name], PARTS[base]) for name in floats}
    if base.startswith(AROUND):
        if not floats:
            return None
        largest = max(floats, key=lambda name: arrays[name].size)
        arrays[largest] = around(arrays[largest], float(base.removeprefix(AROUND)), generator(reference, base, seed), seed)
    if base.startswith(OFFSET):
        arrays = offset(base.removeprefix(OFFSET), arrays)
    if base.startswith(AT):
        arrays = placed(base.removeprefix(AT), arrays, generator(reference, base, seed))
    if base.startswith(TIMES):
        arrays |= {name: times(arrays[name], float(base.removeprefix(TIMES))) for name in floats}
    if ordering is not None:
        tensors = [Tensor(name=p.name, role="in", dtype=p.of.dtype.name, shape=tuple(_extent(d) for d in p.of.shape))
                   for p in against.params if isinstance(p.of, n.Buffer)]
        arrays = ordered(arrays, tensors, ordering, seed)
    scalars: dict[str, int | float] = {**sizes, **given(against, base)}
    if base.startswith(SCALARS) and not keeps(against, scalars):
        return None
    strange = base in WHOLE or base.startswith((AT, SCALARS))
    with np.errstate(all="ignore"):
        odd = strange or bool(few)
        result = run_within(STRANGE_STEPS if strange else PLACED_STEPS, against, arrays, scalars) if odd else _ran(against, arrays, scalars)
        if result is None or (odd and result.errors):
            if strange:
                return None  # numbers that name places it does not have, or with which its loops do not end
            arrays |= few
            result = _ran(against, arrays, scalars)
        if base == "normal":
            arrays, result = held_back(lambda smaller: _ran(against, smaller, scalars), arrays, floats, result)
        expected, also = result.outputs, _otherwise(against, arrays, scalars)
        asked = base in KINDS or base in PEAKED or base.startswith((AROUND, AT, OFFSET, TIMES, SCALARS))
        sure = _exact_enough(against, arrays, scalars, expected, SURE if base.startswith(OFFSET) else FAIR) if asked else frozenset()
        if sure is None:
            return None
    return RelativeCase(_label(sizes), sizes, seed, arrays, scalars, expected, distribution, also, rounded_to(against), sure,
                        partial(exactly, against, arrays, scalars))


def _exact_enough(against: n.Program, arrays: Mapping[str, Array], scalars: Mapping[str, int | float], expected: Mapping[str, Array],
                  share: float) -> frozenset[str] | None:
    """The outputs in each element of which a program is precise; None where it does not give nearly what it gives with every float in f64, but for the last
    rounding."""
    dtypes = {p.name: p.of.dtype.name for p in against.params if isinstance(p.of, n.Buffer)}
    if (wide := in_f64(against, arrays, scalars)) is None:
        return None
    expected = in_full(against, arrays, scalars, expected)
    for name, got in expected.items():
        rounded, exact = wide[name].astype(got.dtype), wide[name].astype(np.float64)
        if not np.isfinite(rounded.astype(np.float64)).all():
            return None
        last = unit_roundoff(dtypes[name]) * np.abs(exact)
        if close(name, got, exact - last, exact + last).worst > share:
            return None
    return frozenset(name for name, got in expected.items() if precise(got, wide[name]))


def _extent(d: n.Expr) -> str:
    value = int_value(d)
    return str(value) if value is not None else expr_text(d)


def _label(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{k}={v}" for k, v in sizes.items()) or "fixed"


def expected_of(against: n.Program, inputs: Mapping[str, Array], scalars: Mapping[str, int | float]) -> tuple[Mapping[str, Array], Mapping[str, Array] | None]:
    """What a program makes of inputs; and what else it may make of them by right, where that is something else."""
    return _ran(against, inputs, scalars).outputs, _otherwise(against, inputs, scalars)


def _otherwise(against: n.Program, inputs: Mapping[str, Array], scalars: Mapping[str, int | float]) -> Mapping[str, Array] | None:
    other = otherwise(against)
    return None if other is None else _ran(other, inputs, scalars).outputs


def _ran(p: n.Program, inputs: Mapping[str, Array], scalars: Mapping[str, int | float]) -> Result:
    return run(p, {k: v.copy() for k, v in inputs.items()}, {**scalars})
