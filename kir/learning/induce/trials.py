"""Held-out round trips: a hypothesis, lifted without a package (or a family), is tried on the kernels of that one, beside an arm without it.

A trial begins at the simpler program of a transition of a held-out kernel. It succeeds where one of a few tries gives the expert's next
program (its own names, and where values are named, may differ), takes a step of this skill that the expert takes from there on (same pass, parameters and
place), or gives a program that is forecast as fast. Each is made with every check of the framework (conditions, exact inverse, verifier). The arm
without the skill has as many tries: forward steps of passes in an order that only the hash of program and pass decides.
"""
from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.cpu import profiled
from kir.hardware.target import Target, target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.learning.cards.card import FAMILY, Card, Entry, Precondition
from kir.learning.cards.use import Application, applicable
from kir.learning.corpus.family import OTHER
from kir.learning.evidence.walked import Walked
from kir.learning.forecast import Analytic, Forecaster, Pair
from kir.learning.induce.settled import settled_hash
from kir.learning.induce.uses import Use
from kir.problem import load_problem
from kir.rewrite import Context, Pipeline, Step, pass_class, passes, run, sites
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import apply

TRIES = 8
"""Programs that each arm may make."""
MOST_TRIALS = 12
LEAST_TRIALS = 3
LEAST_SHARE = 2 / 3
"""Of the trials, those that must succeed for a skill to be admitted."""
NOWHERE, OTHERS, REFUSED = "no place", "other programs", "no try passed the checks"
UNSAID = "it came to the same as without it, or to what no surface says"
"""How a trial may come out that failed; else no gain was forecast."""
LED = "led there by the steps of"
"""How a transfer trial begins that starts where a plan leads."""
OWN_STATE = "at a state of a kernel that is not known to use it"
"""How one begins that starts at a state of the kernel's own walk."""
FAULTS = (KirError, KeyError, IndexError, ValueError, StopIteration, AttributeError, TypeError, AssertionError)
"""What a pass may raise on a form that its author did not foresee: a try by it is refused."""
UNKNOWN = frozenset({"", OTHER})
"""What a kernel's family is called whose name says none."""
AS_FAST = 0.98
"""Of the speed of the expert's next program, what another must be forecast to have."""


@dataclass(frozen=True)
class Round:
    """What a trial starts from and aims at: two programs of a held-out kernel, the expert's before and after."""

    walked: Walked = field(repr=False)
    before: Program = field(repr=False)
    after: Program = field(repr=False)
    name: str
    wanted: frozenset[str] = frozenset()
    """Steps of the skill that the expert takes from here on, each as `told` says it."""

    @property
    def target(self) -> Target:
        """The newest target that the kernel was compiled for."""
        return target(self.walked.targets[-1] if self.walked.targets else "sm_90a")


def rounds(group: Sequence[Use], composite: bool) -> tuple[Round, ...]:
    """One round for each kernel: its first use; of a composite from before the first of its steps to after the last. In turns over packages and families,
    so that each is heard."""
    by_kernel: dict[str, list[Use]] = {}
    for use in sorted(group, key=lambda u: (u.walked.key, u.transition.number)):
        by_kernel.setdefault(use.walked.key, []).append(use)
    found: dict[tuple[str, str], list[Round]] = {}
    for some in by_kernel.values():
        last = some[-1] if composite else some[0]
        wanted = frozenset(told(Step.from_json(use.transition.step)) for use in some)
        walk = some[0].walked
        found.setdefault((walk.package, walk.family), []).append(Round(walk, some[0].before, last.after, walk.kernel, wanted))
    out: list[Round] = []
    while any(found.values()):
        out += [each.pop(0) for _, each in sorted(found.items()) if each]
    return tuple(out[:MOST_TRIALS])


def told(step: Step) -> str:
    """A step with all that decides what it does, but for names that it may keep: pass, parameters, place."""
    item = pass_class(step.name).with_options({k: v for k, v in step.options.items() if k != "named"})
    return f"{item}@{step.at}"


def held_out(group: Sequence[Use], walked: Walked) -> tuple[Use, ...]:
    """The uses of other packages than a kernel's, or of other families, whichever are of more kernels; empty where it is alone in both."""
    packages = tuple(use for use in group if use.walked.package != walked.package)
    families = tuple(use for use in group if use.walked.family != walked.family)
    return max(packages, families, key=lambda some: len({use.kernel for use in some}))


def _apart(rest: Sequence[Use], walked: Walked) -> tuple[str, str]:
    """What the uses that were kept were held out by: the kernel's package or its family."""
    by_package = all(use.walked.package != walked.package for use in rest)
    return ("package", walked.package) if by_package else ("family", walked.family)


def _is_besides(apart: tuple[str, str], use: Use) -> bool:
    return apart not in (("package", use.walked.package), ("family", use.walked.family))


def tried(lift: Callable[[Sequence[Use], Callable[[Use], bool]], Card], group: Sequence[Use], composite: bool = False,
          forecaster: Forecaster | None = None) -> tuple[Entry, ...]:
    """The trials of a hypothesis, as entries of its log; `lift` makes the card of some of its uses, and looks at other forms of its step only where it may."""
    cards: dict[tuple[str, ...], Card] = {}
    out = []
    planned = [(each, rest) for each in rounds(group, composite) if (rest := held_out(group, each.walked))]
    for each, rest in planned:
        apart = _apart(rest, each.walked)
        key = (*apart, *sorted({use.walked.key for use in rest}))
        if key not in cards:
            cards[key] = lift(rest, partial(_is_besides, apart))
        out.append(trial(cards[key], each, len({use.kernel for use in rest}), forecaster or Analytic()))
    return tuple(out)


def trial(card: Card, each: Round, kernels: int, forecaster: Forecaster) -> Entry:
    """One round with the skill and without it."""
    seen = None
    with suppress(KirError):
        seen = forecaster(_pair(each, each.before, each.after))
    aim = seen.median if seen is not None else 0.0
    context = Context(each.target)
    ours, how = _arm(each, carried_out(applicable(card, each.before, context), each.before, context), forecaster, aim)
    theirs, _ = _arm(each, by_hash(each.before, context), forecaster, aim)
    speedup = None
    if seen is not None:
        low, high = seen.interval(0.8)
        speedup = (float(f"{seen.median:.3g}"), float(f"{low:.3g}"), float(f"{high:.3g}"))
    others = "one other kernel" if kernels == 1 else f"{kernels} other kernels"
    return Entry(what="trial", kernel=each.name, outcome=f"lifted from {others}: {how}", skill=ours, without=theirs, speedup=speedup,
                 basis="forecast" if speedup else None)


Made = tuple[Program, tuple[Step, ...]]
"""A program that an arm made, and by which steps."""


def carried_out(found: Iterable[Application], before: Program, context: Context) -> Iterator[Made]:
    """What a card's applications make of a program, with every check; those that a check refuses are left out."""
    for each in _before_a_fault(found):
        with suppress(*FAULTS):
            yield run(before, Pipeline(each.steps), context=context).program, each.steps


def _before_a_fault(found: Iterable[Application]) -> Iterator[Application]:
    with suppress(*FAULTS):
        yield from found


def by_hash(before: Program, context: Context, but: Collection[str] = ()) -> Iterator[Made]:
    """A forward step of one pass after the other, in the order of the hash of program and pass, all `but` some; of several places the one that a hash picks."""
    key = content_hash(before)
    for cls in sorted((cls for cls in passes() if cls.name not in but), key=lambda cls: hashlib.sha256(f"{key} {cls.name}".encode()).hexdigest()):
        with suppress(*FAULTS):
            found = sites(cls.with_options({}), before)
            if found:
                site = min(found, key=lambda site: hashlib.sha256(f"{key} {site.params} {site.path}".encode()).hexdigest())
                program = apply(before, site.params, site, context=context).program
                yield program, (Step.of(site.params, anchor_text(before, site.path)),)


def _arm(each: Round, made: Iterable[Made], forecaster: Forecaster, aim: float) -> tuple[bool, str]:
    """Whether one of a few programs is what the expert did next, or as good; and how."""
    said = NOWHERE
    for count, (program, steps) in enumerate(made, start=1):
        if settled_hash(program) == settled_hash(each.after):
            return True, f"the expert's next program at try {count}"
        if steps and all(told(step) in each.wanted for step in steps):
            return True, f"{'a step' if len(steps) == 1 else 'steps'} of the expert's at try {count}"
        if _as_good(each, program, forecaster, aim):
            return True, f"a program forecast as fast at try {count}"
        said = f"{OTHERS} in {count} {'try' if count == 1 else 'tries'}"
        if count == TRIES:
            break
    return False, said


def _as_good(each: Round, program: Program, forecaster: Forecaster, aim: float) -> bool:
    """Whether a program is forecast as fast as the expert's next one, where that is forecast faster than the start (`aim`); a step that only makes
    way for others is judged by itself."""
    if aim <= 1 / AS_FAST:
        return False
    with suppress(KirError):
        return forecaster(_pair(each, each.before, program)).median >= AS_FAST * aim
    return False


def _pair(each: Round, before: Program, after: Program) -> Pair:
    return Pair(before, after, sizes_of(each.walked, each.after), each.target, surface=each.walked.surface or "cuda")


def sizes_of(walked: Walked, program: Program) -> Mapping[str, int]:
    """The sizes at which a program of a walked kernel is profiled first."""
    shapes = profiled(program, load_problem(walked.problem) if walked.problem else None)
    return shapes[0][1] if shapes else {}


def decided(card: Card, trials: Sequence[Entry], families: Mapping[str, str] | None = None) -> Card:
    """The card with its trials in the log, and the state that follows from them, with the reason in figures. By the `families` of the kernels that it was tried
    on: a skill that pays in its own families, on kernels of other packages, and nowhere else is admitted for these, and says so as a condition of profit."""
    told, effect = _tally(trials, "held-out trials"), card.effect
    within = [each for each in card.scope.families if each not in UNKNOWN]
    own = [t for t in trials if (families or {}).get(t.kernel) in within]
    others = [t for t in trials if t not in own]
    if len(trials) < LEAST_TRIALS:
        seen = f"{told}, and " if trials else ""
        state, why = "hypothesis", f"{seen}it uses or suits fewer than {LEAST_TRIALS} kernels of another package or family" \
                                   + ("" if trials else ": nothing is known of it elsewhere")
    elif effect.compared >= LEAST_TRIALS and not effect.realized and all(spread.high <= 1.0 for spread in effect.forecast.values()) \
            and (_succeeds(trials) or _succeeds(own)):
        state, why = "negative", f"{told}; but none of {effect.compared} uses changed the compiled code, and no forecast is above 1"
    elif _succeeds(trials):
        state, why = "admitted", told
    elif _succeeds(own):
        named = ", ".join(within)
        state, why = "admitted", f"{_tally(own, f'held-out trials on kernels of its own families ({named})')}; elsewhere {_tally(others, 'trials')}, " \
                                 "so that it is for these alone"
        pays = Precondition(kind="profit", category=FAMILY, sentence=f"the kernel is of {named}", proved=sum(bool(t.skill) for t in own),
                            refused=sum(not t.skill for t in others), example=_tally(others, "trials on other kernels").replace(" in as many tries", ""))
        card = card.model_copy(update={"preconditions": (*card.preconditions, pays)})
    else:
        state, why = "hypothesis", f"{told}; two thirds must succeed, and more than without"
    return card.model_copy(update={"state": state, "why": why, "log": (*card.log, *trials)})


def _tally(trials: Sequence[Entry], of: str) -> str:
    won, lost = sum(bool(t.skill) for t in trials), sum(bool(t.without) for t in trials)
    return f"{won} of {len(trials)} {of} succeeded, {lost} without the skill in as many tries"


def _succeeds(trials: Sequence[Entry]) -> bool:
    """Whether there are enough trials, two thirds of which succeeded, and more than without."""
    won, lost = sum(bool(t.skill) for t in trials), sum(bool(t.without) for t in trials)
    return len(trials) >= LEAST_TRIALS and won >= LEAST_SHARE * len(trials) and won > lost


def fault(trial: Entry) -> str:
    """Why a trial failed."""
    says = {NOWHERE: "no place found", OTHERS: "another place or other parameters than the expert's", REFUSED: "refused by a check",
            UNSAID: UNSAID}
    return next((why for how, why in says.items() if how in trial.outcome), "no gain is forecast")


def came_to(trial: Entry) -> str:
    """How a trial came out, beside what it is forecast to bring: where it started, and which try counted."""
    plan = re.match(rf"{LED} (`[^`]*`), [^:]*: (.*)$", trial.outcome)
    where, found = (f"plan of {plan[1]}", plan[2]) if plan is not None else ("its own walk", trial.outcome.partition(": ")[2])
    if plan is None and not trial.outcome.startswith(OWN_STATE):
        return trial.outcome
    return f"{where}: {re.sub(r'^forecast .* times as fast, the best of', 'best of', found)}"


def how_tried(trials: Sequence[Entry]) -> str:
    """What the rows of a table of trials mean, of the kinds of trials that it has."""
    led, own = (any(t.outcome.startswith(begun) for t in trials) for begun in (LED, OWN_STATE))
    said = []
    if not all(t.outcome.startswith((LED, OWN_STATE)) for t in trials):
        said.append("*lifted from*: where the kernel's expert took this step, with the card as its other uses make it, without those of the kernel's package "
                    f"or family; it succeeds where one of {TRIES} tries gives what the expert did next, or a program that is forecast as good")
    if led:
        said.append("*plan of*: the steps before this one were taken from that kernel on one that is not known to use it, those after it follow with it and "
                    "without; it succeeds where that is forecast faster with it")
    if own:
        said.append("*its own walk*: at a state of a kernel that is not known to use it; it succeeds where a try is forecast faster")
    return (f"How it was tried. {'; '.join(said)}. Each try goes through every check. *without*: whether one of as many tries of other steps does as well. "
            "*forecast*: what the step brings there by the cost model, and where that lies in four of five cases.")


def factor(value: float) -> str:
    """How many times, in three digits, as people write it."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 1000 else f"{value:.3g}"
