"""Transfer trials: a skill is tried on kernels of other packages or families, in which no expert is known to have used it, beside an arm without it.

For skills that few kernels show. A trial takes a state of such a kernel at which the skill applies: one of its own walk, or one to which a plan leads, the
steps that came before the skill in a kernel that it was lifted from, taken on this one. Both arms then take what came after it there (`rest`), so that a step
that only makes way for others is judged by what they make of it. The skill succeeds where one of a few tries, each made with every check of the
framework, is forecast faster than the rest alone; the arm without it has as many tries, and succeeds where it finds as much.
"""
from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import lru_cache
from importlib import resources
from itertools import chain, islice, zip_longest
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.registry import registry
from kir.hardware.target import Target, target
from kir.ir.nodes import Program
from kir.ir.visit import children, names_read, walk
from kir.learning.cards.card import Card, Entry
from kir.learning.cards.use import applicable, is_of, materialized, state_of
from kir.learning.corpus.family import family_of
from kir.learning.corpus.lineages import TARGET
from kir.learning.evidence.walked import Walked, parsed
from kir.learning.forecast import Forecast, Forecaster, Pair
from kir.learning.induce.trials import AS_FAST, FAULTS, LEAST_SHARE, LED, OWN_STATE, REFUSED, TRIES, UNSAID, Made, by_hash, carried_out, factor, sizes_of
from kir.learning.optimize.lift import Prefixes, lifted
from kir.learning.optimize.plan import Plan
from kir.learning.optimize.words import InWords, in_factors_of, in_words_of, renamed
from kir.problem import load_problem, problem_names
from kir.rewrite import Context, Step
from kir.rewrite.residue import NOTHING
from kir.surface import backend

FASTER = 1.02
"""The forecast speedup from which a try counts: what is between is no effect that a measurement would show."""
MOST_TRANSFERS = 6
"""Trials of one skill: each makes up to sixteen programs."""
MOST_LOOKED_AT = 60
"""Kernels that are asked whether the skill applies to states of theirs, those most like the states at which it was used first."""
MOST_ALIKE = 12
"""States at which the skill was used that others are compared with."""
MOST_LED = 60
"""Kernels on which a plan is taken until the skill applies, those most like the one that it was written for first."""
MOST_BESIDE = 12
"""Of the kernels beyond these, which other families have, the likest: what a kernel is called says little of what it computes."""
MOST_HOMES, MOST_PLANS = 8, 3
"""Kernels whose steps may lead others, and how many of them are tried on one."""
LEAST_ALIKE = 0.6
"""How like a kernel's simplest program must be to that of a plan by which no step comes before the skill."""
MOST_LEFT = 0.1
"""Of the steps after a skill, those that may be left out for no other plan to be tried; of several the plan counts that leaves fewest."""
NAIVE = "naive"
"""Under which key an operator that no walk came from has its program."""
JUST_BEFORE = 4
LEAST_TAKEN = 0.75
"""Of the last few steps of a plan before the skill, those that another kernel must take for its state to be one that the plan leads to."""
MOST_UNFIT = 8
"""Kernels to which a plan leads and on which what follows cannot judge the skill, after which no other is looked for."""
LEAST_LED = 0.5
"""Of all steps before the skill, and of their first half, the same: a kernel that takes fewer is another kind of kernel, and no further step is tried on it.
Of the steps after a skill that does not pay by itself, those that an arm must take, with it or without: where neither does, what follows says nothing of it."""


@dataclass(frozen=True)
class Transfer:
    """Where a transfer trial starts: a state of a kernel, the surface that says it, and what both arms take after the skill, of whose plan."""

    walked: Walked = field(repr=False)
    before: Program = field(repr=False)
    surface: str
    rest: tuple[Step, ...] = field(default=(), repr=False)
    whole: tuple[Step, ...] = field(default=(), repr=False)
    """What the plan takes from here on, the skill's own steps among them."""
    plan: str = ""
    target_name: str = ""
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of a kernel in the words of a plan: what its parameters and kernels are called there, with their own names."""

    @property
    def target(self) -> Target:
        """The newest target that the kernel was compiled for, or the plan's."""
        return target(self.target_name or (self.walked.targets[-1] if self.walked.targets else TARGET))


def transferred(card: Card, walks: Sequence[Walked], forecaster: Forecaster) -> tuple[Entry, ...]:
    """The transfer trials of a card, as entries of its log, on at most `MOST_TRANSFERS` kernels: first on states to which the plans of its own kernels
    lead, then on states of the others' own walks. None follows where so many failed that the skill is not admitted whatever comes."""
    out: list[Entry] = []
    taken = set[str]()
    for some in (led(card, walks), starts(card, walks)):
        for each in some:
            if each.walked.kernel not in taken:
                taken.add(each.walked.kernel)
                out.append(_trial(card, each, forecaster))
            left = MOST_TRANSFERS - len(out)
            if not left or sum(bool(t.skill) for t in out) + left < LEAST_SHARE * MOST_TRANSFERS:
                return tuple(out)
    return tuple(out)


def _others(card: Card, walks: Sequence[Walked]) -> list[Walked]:
    """The kernels that a card was not lifted from, and that are of another package or family, in an order that only hashes decide."""
    seen = {(use.package, use.family) for use in card.evidence.uses}
    packages, families = {package for package, _ in seen}, {family for _, family in seen}
    kernels = {use.kernel for use in card.evidence.uses}
    others = [w for w in walks if w.kernel not in kernels and (w.package not in packages or w.family not in families)]
    return sorted(others, key=lambda w: hashlib.sha256(f"{card.name} {w.kernel}".encode()).hexdigest())


def starts(card: Card, walks: Sequence[Walked]) -> Iterator[Transfer]:
    """States at which a card applies, one a kernel, of kernels that it was not lifted from and that are of another package or family; those most like the
    states at which it was used first, in turns over their families: six forms of one kernel on as many surfaces say little more than one."""
    own = list(islice(_used_at(card, walks), MOST_ALIKE))
    others = [host for host in _others(card, walks) if host.transitions]
    alike = {text: max((_likeness(each, contents(text)) for each in own), default=0.0) for host in others for text in _states(host)}
    hosts = [(host, max(_states(host), key=lambda text: alike[text])) for host in others]
    taken = set[str]()
    for walked, first in _in_turns(sorted(hosts, key=lambda row: -alike[row[1]])[:MOST_LOOKED_AT]):
        if walked.kernel not in taken and (found := _start(card, walked, first)) is not None:
            taken.add(walked.kernel)
            yield found


def _in_turns(hosts: Sequence[tuple[Walked, str]]) -> Iterator[tuple[Walked, str]]:
    """Kernels in their order, one of each family after the other."""
    by_family: dict[str, list[tuple[Walked, str]]] = {}
    for row in hosts:
        by_family.setdefault(row[0].family, []).append(row)
    for turn in zip_longest(*by_family.values()):
        yield from (row for row in turn if row is not None)


def _used_at(card: Card, walks: Sequence[Walked]) -> Iterator[Counter[str]]:
    """What the programs contain at which a card was used."""
    used = {(use.kernel, use.before) for use in card.evidence.uses}
    texts = dict.fromkeys(w.programs[t.before_text] for w in walks for t in w.transitions if (w.kernel, t.before[:16]) in used)
    yield from map(contents, texts)


def _states(host: Walked) -> tuple[str, ...]:
    """The programs of a kernel's walk, as text, the expert's first."""
    steps = host.transitions
    return tuple(dict.fromkeys((*(host.programs[t.after_text] for t in reversed(steps)), host.programs[steps[0].before_text]))) if steps else ()


def _start(card: Card, walked: Walked, likely: str) -> Transfer | None:
    """Of a kernel's states (a likely one, its expert's, the naive one) the first at which a card applies, and a surface that says it; of what the card
    makes there some surface must say a program too, since nothing follows that could change it."""
    states = _states(walked)
    for text in dict.fromkeys((likely, states[0], states[-1])):
        with suppress(KirError):
            program = parsed(text)
            makes = _makes(card, program, Context(target(TARGET)))
            if (first := next(makes, None)) is not None and (surface := said_by(program, walked.surface)) \
                    and any(said_by(made, surface) for made in chain((first,), makes)):
                return Transfer(walked, program, surface)
    return None


def _makes(card: Card, program: Program, context: Context) -> Iterator[Program]:
    """What the first applications of a card make of a program, those that pass every check of the framework."""
    held = state_of(program)
    some = islice(applicable(card, program, context), TRIES) if all(f in held for f in card.scope.requires) else ()
    yield from (made for made, _ in carried_out(some, program, context))


# ---------------------------------------------------------------------------------------------------------------------------- plans

def led(card: Card, walks: Sequence[Walked]) -> Iterator[Transfer]:
    """States to which the steps before a card's, in a kernel that it was lifted from, lead another kernel, one a kernel, where the card applies there: the
    steps of the kernels that are most like it, since a product of transposed operands is tiled otherwise. Kernels of the plans' families (of other packages)
    come first, then those most like them; where those families are large, the likest of the others are asked, too. Of a skill that comes first that is the
    kernel's simplest program."""
    plans = [(home, *parts(card, home)) for home in _longest(card, walks)]
    own = [_contained(simplest(home)) for home, _, _ in plans]
    hosts = _others(card, [*walks, *problems({w.problem for w in walks}), *operators()]) if plans else []
    alike = {id(host): [max(_likeness(each, some) for some in _by_kernel(simplest(host))) for each in own] for host in hosts}
    families, unfit = {home.family for home, _, _ in plans}, 0
    hosts.sort(key=lambda host: (host.family not in families, -max(alike[id(host)])))
    for host in (*hosts[:MOST_LED], *sorted(hosts[MOST_LED:], key=lambda host: -max(alike[id(host)]))[:MOST_BESIDE]):
        program, likeness = simplest(host), alike[id(host)]
        best: tuple[float, Transfer | None] | None = None
        for k in _by_surface(sorted(range(len(plans)), key=lambda k: -likeness[k]), [home.surface for home, _, _ in plans])[:MOST_PLANS]:
            first = not plans[k][1] and likeness[k] < LEAST_ALIKE  # nothing before the skill shows that it is a kernel of this kind
            found = _guided(card, host, program, *plans[k]) if not first and (best is None or best[0] > MOST_LEFT) else None
            best = found if best is None or (found is not None and found[0] < best[0]) else best
        if best is not None and best[1] is not None:
            yield best[1]
        unfit += best is not None and best[1] is None
        if unfit == MOST_UNFIT:
            return


def _by_surface(order: Sequence[int], surfaces: Sequence[str]) -> list[int]:
    """Numbers in an order, the first of each surface before the others: what one surface cannot say of a kernel another one may."""
    firsts = list({surfaces[k]: k for k in reversed(order)}.values())
    return sorted(order, key=lambda k: (k not in firsts, order.index(k)))


@lru_cache(maxsize=1 << 14)
def contents(text: str) -> Counter[str]:
    """What the program of a text contains (`_contained`)."""
    return _contained(parsed(text))


@lru_cache(maxsize=1 << 12)
def _contained(program: Program) -> Counter[str]:
    """How often a program has each kind of statement and expression directly within each other kind: a sum of products is told from a sum of loads."""
    return Counter(f"{_kind(x)} {_kind(y)}" for k in program.kernels for x in walk(k) for y in children(x))


def _by_kernel(program: Program) -> tuple[Counter[str], ...]:
    """What a program contains, and what each of its kernels does where it has several."""
    apart = program.kernels if len(program.kernels) > 1 else ()
    return (_contained(program), *(_contained(replace(program, kernels=(kernel,))) for kernel in apart))


def _kind(node: object) -> str:
    return f"{type(node).__name__}{getattr(node, 'op', getattr(node, 'fn', ''))}"


def _likeness(a: Counter[str], b: Counter[str]) -> float:
    """The part of all that two programs contain that both do, 0 to 1."""
    both = sum(min(a[name], b[name]) for name in a.keys() & b.keys())
    return both / max(1, a.total() + b.total() - both)


def _longest(card: Card, walks: Sequence[Walked], most: int = MOST_HOMES) -> list[Walked]:
    """Of the kernels that a card was lifted from, those whose walks go furthest towards naive, then the longest."""
    kernels = {use.kernel for use in card.evidence.uses}
    own = [w for w in walks if w.kernel in kernels and w.transitions]
    return sorted(own, key=lambda w: (w.ended != "naive", -len(w.transitions), w.key))[:most]


def parts(card: Card, home: Walked) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The steps of a walk before the first of a card's uses in it, and those from there on."""
    first = min(use.transition for use in card.evidence.uses if use.kernel == home.kernel)
    steps = [(t.number, replace(Step.from_json(t.step), residue=NOTHING, path=None, hash="")) for t in home.transitions]
    return tuple(s for k, s in steps if k < first), tuple(s for k, s in steps if k >= first)


def problems(known: Collection[str] = ()) -> tuple[Walked, ...]:
    """The naive programs of the shipped problems: those that some are `known` to solve are of the experts' package, the others, operators of PyTorch of which
    no expert is known, of `torch`."""
    return tuple(Walked(kernel=f"problems/{name}", package="experts" if name in known else "torch", family=family_of(f"{name}::{name}"), problem=name,
                        ended="naive") for name in problem_names() if _has_naive(name))


def operators() -> tuple[Walked, ...]:
    """Naive programs in which what some expert computes is a part of more, or laid out otherwise (`skills/operators`): of `torch`, as no expert is known."""
    home = Path(str(resources.files("kir.skills") / "operators"))
    return tuple(Walked(kernel=f"operators/{file.stem}", package="torch", family=family_of(f"{file.stem}::{file.stem}"), ended="naive",
                        programs={NAIVE: file.read_text(encoding="utf-8")}) for file in sorted(home.glob("*.kir")))


def families(walks: Sequence[Walked]) -> dict[str, str]:
    """Of which family each kernel is that a skill may be tried on."""
    return {each.kernel: each.family for each in (*problems(), *operators(), *walks)}


def _has_naive(name: str) -> bool:
    try:
        return load_problem(name).naive is not None
    except (KirError, OSError):
        return False


def simplest(host: Walked) -> Program:
    """The simplest program of a kernel that its walk came to."""
    if not host.transitions and NAIVE in host.programs:
        return host.program(NAIVE)
    return host.program(host.transitions[0].before_text) if host.transitions else load_problem(host.problem).naive


_KNOWN: Prefixes = {}
"""What prefixes of plans came to, for the cards of one process."""


def _guided(card: Card, host: Walked, program: Program, home: Walked, prefix: tuple[Step, ...], whole: tuple[Step, ...]) \
        -> tuple[float, Transfer | None] | None:
    """The state to which a plan leads, and the share of the steps after the skill that cannot be taken there once it was; no state where what follows cannot
    judge the skill, None where the plan does not lead there."""
    aim = home.targets[-1] if home.targets else TARGET
    context = Context(target(aim))
    with suppress(*FAULTS):
        words = _in_words_of(simplest(home), program)
        same = words.program
        prefix, whole = (in_factors_of(steps, simplest(home), same) for steps in (prefix, whole))
        rest = tuple(step for step in whole if step.name not in card.passes)
        for steps in (prefix[:-(-len(prefix) // 2)], prefix):
            most = int((1 - LEAST_LED) * len(steps))
            came = lifted(same, Plan(home.kernel, steps), context, _KNOWN, most)
            if len(came.left) > most:
                return None
        last = prefix[-JUST_BEFORE:]
        left = {each.step for each in came.left}
        led_to = sum(str(step) not in left for step in last) >= LEAST_TAKEN * len(last)
        if led_to and (made := next(_makes(card, came.program, context), None)) is not None and (surface := said_by(came.program, home.surface)):
            lacking = lifted(made, Plan(home.kernel, rest), context, most_left=len(rest)).left if rest else ()
            most = int((1 - LEAST_LED) * len(rest)) if not pays_by_itself(card) else len(rest)
            if len(lacking) > most < len(lifted(came.program, Plan(home.kernel, rest), context, _KNOWN, most).left):
                return math.inf, None  # neither arm takes what follows, and that alone could judge the skill
            return len(lacking) / max(1, len(rest)), Transfer(host, came.program, surface, rest, whole, home.kernel, aim, words.names)
    return None


def pays_by_itself(card: Card) -> bool:
    """Whether half of a skill's uses is forecast to gain by the skill alone; what is used for what follows it is judged by that."""
    return any(spread.median >= FASTER for spread in card.effect.forecast.values())


@lru_cache(maxsize=1 << 14)
def _in_words_of(source: Program, program: Program) -> InWords:
    """A naive program in the words of another, under that one's facts about sizes that both have (whole vectors in a row), and with the axes of its grids in
    that one's order: steps say which axis by its number, and the order of a grid changes nothing that a program computes."""
    words = in_words_of(source, program)
    made = words.program
    sizes = {param.name for param in made.params if param.role == "size"}
    more = tuple(fact for fact in source.facts if fact not in made.facts and names_read(fact) <= sizes)
    order = {a.name: k for kernel in source.kernels for k, a in enumerate(kernel.grid)}
    kernels = tuple(replace(kernel, grid=tuple(sorted(kernel.grid, key=lambda a: order.get(a.name, len(order))))) for kernel in made.kernels)
    return InWords(replace(made, kernels=kernels, facts=(*made.facts, *more)), words.names)


def said_by(program: Program, first: str) -> str:
    """The surface that says a program, its own before others; empty where none does."""
    names = [entry.name for entry in registry("kir.backends")]
    return next((name for name in sorted(names, key=lambda name: (name != first, name)) if not backend(name).accepts(program)), "")


# --------------------------------------------------------------------------------------------------------------------------- trials

def _trial(card: Card, each: Transfer, forecaster: Forecaster) -> Entry:
    """One state with the skill and without it; both arms take the rest of the plan."""
    context = Context(each.target)
    base = _finished(each, each.before)
    with_it, tries = _best(each, base, _with_it(card, each, context), forecaster)
    reached = with_it.median if with_it is not None else 0.0
    aim = max(FASTER, AS_FAST * reached)
    others = ((_finished(each, made), steps) for made, steps in by_hash(each.before, context, card.passes))
    without, _ = _best(each, base, others, forecaster, aim)
    won = reached >= FASTER
    gained = f"forecast {factor(reached)} times as fast, the best of {tries} {'try' if tries == 1 else 'tries'}"
    outcome = gained if with_it is not None else UNSAID if tries else REFUSED
    low, high = with_it.interval(0.8) if with_it is not None else (0.0, 0.0)
    speedup = (float(f"{reached:.3g}"), float(f"{low:.3g}"), float(f"{high:.3g}")) if with_it is not None else None
    where = f"{LED} `{each.plan}`, what came after it there follows in both arms" if each.plan else OWN_STATE
    return Entry(what="trial", kernel=each.walked.kernel, outcome=f"{where}: {outcome}", skill=won,
                 without=without is not None and without.median >= aim, speedup=speedup, basis="forecast" if speedup else None)


def _with_it(card: Card, each: Transfer, context: Context) -> Iterator[Made]:
    """What a card makes of a state: as the plan takes it that led there (at more than one place, where it does), at every place where it holds, where a rest
    follows, then at each one by itself."""
    with suppress(*FAULTS):
        came = lifted(each.before, Plan(each.plan, each.whole), context, most_left=len(each.whole), why=True)
        own = [step for step in came.steps if step.name in card.passes]
        if own and all(is_of(card, step) for step in own):
            yield came.program, ()
    if each.rest and len(card.carrier.steps) == 1:
        with suppress(*FAULTS):
            done = materialized(card, each.before, context)
            yield _finished(each, done.program), done.steps
    yield from ((_finished(each, made), steps) for made, steps in carried_out(applicable(card, each.before, context), each.before, context))


def _finished(each: Transfer, program: Program) -> Program:
    """A program after the rest of the plan, as far as it can be taken there."""
    with suppress(*FAULTS):
        return lifted(program, Plan(each.plan, each.rest), Context(each.target), most_left=len(each.rest)).program if each.rest else program
    return program


def _best(each: Transfer, base: Program, made: Iterable[Made], forecaster: Forecaster, enough: float = math.inf) -> tuple[Forecast | None, int]:
    """The best forecast of the first few programs, after the rest, against the rest alone, and how many there were; the first that is `enough`."""
    best: Forecast | None = None
    known, count = set[Program](), 0
    for count, (program, _) in enumerate(made, start=1):
        if program not in known:
            known.add(program)
            with suppress(KirError):
                seen = _forecast(each, base, program, forecaster, best.median if best is not None else 0.0)
                best = seen or best
        if count == TRIES or (best is not None and best.median >= enough):
            break
    return best, count


def sizes_at(each: Transfer, program: Program) -> Mapping[str, int]:
    """The sizes at which a program of a trial is profiled first: those of its kernel's problem, under the names that they have in it. A problem knows its own
    names only; taken by the words of a plan, the rows of one would be the columns of the other."""
    called = {own: new for new, own in each.names.items()}
    return {called.get(name, name): size for name, size in sizes_of(each.walked, renamed(program, each.names)).items()}


def _forecast(each: Transfer, base: Program, program: Program, forecaster: Forecaster, least: float) -> Forecast | None:
    """The forecast of a program against the base, where it is faster than `least` and a surface says it: the trial's own before others."""
    if program == base:
        return None
    pair = Pair(base, program, sizes_at(each, program), each.target, surface=each.surface)
    seen: Forecast | None = forecaster(pair)
    if seen is not None and seen.median > least and backend(each.surface).accepts(program):
        other = said_by(program, each.surface)
        seen = forecaster(replace(pair, surface=other)) if other else None
    return seen if seen is not None and seen.median > least else None
