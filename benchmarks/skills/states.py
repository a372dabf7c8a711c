"""What the admitted cards offer at the states of lineages: looked at once, for the tables that ask of it."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.skills.given import Given, Rows, added, side_by_side
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.learning.cards.card import Card
from kir.learning.cards.search import Query
from kir.learning.cards.use import Application, applicable
from kir.learning.evidence.walked import Transition, Walked
from kir.learning.induce.rank import Seen
from kir.learning.induce.trials import told
from kir.learning.induce.uses import SHORT
from kir.rewrite import Context, Pipeline, Step, pass_class, run, sites

Case = tuple[str, int]
"""A state of a walk: its key, and the number of the step after it."""


@dataclass(frozen=True)
class State:
    """By name: the admitted cards that apply at a state, those whose own uses are from there on (`used`), those that make a step of the expert's from there
    on (`later`), and those that make the next one (`makes`); whether the next step is among what its pass offers there by its defaults (`plain`)."""

    case: Case
    offers: frozenset[str]
    used: frozenset[str]
    later: frozenset[str]
    makes: frozenset[str]
    plain: bool

    @property
    def relevant(self) -> frozenset[str]:
        """The cards that an engineer at this state would want to be shown."""
        return self.used | self.later | self.makes


def states(cases: Sequence[Case], given: Given) -> dict[Case, State]:
    """The states that are known of a file, and those that are looked at in the time that is given."""
    known = _known(given)
    found = {state.case: state for state, in side_by_side(_looked, [case for case in cases if case not in known], given)}
    return {case: state for case in cases if (state := known.get(case) or found.get(case)) is not None}


def look(given: Given) -> str:
    """How many states are looked at; with a file of outcomes, what the other tables need is in it. Those of lineages that end naive come first."""
    every = [(w.key, k) for w in sorted(given.walks, key=lambda w: w.ended != "naive") for k in range(len(w.transitions))]
    return f"{len(states(every, given))} of {len(every)} states are looked at."


def seen(state: State, given: Given) -> Seen:
    """A state as the order of cards is learned from it."""
    walk = walk_of(given, state.case[0])
    query = Query.of(walk.program(walk.transitions[state.case[1]].before_text), target(walk.targets[-1]), walk.surface)
    applies, used = (tuple(card.name in some for card in given.admitted) for some in (state.offers, state.used))
    return Seen(query, applies, used, walk.family, walk.kernel.partition("::")[0])


def walk_of(given: Given, key: str) -> Walked:
    """A walk by its key."""
    return next(w for w in given.walks if w.key == key)


def makes(found: Iterable[Application], before: Program, transition: Transition, context: Context) -> bool:
    """Whether one of a card's applications takes the expert's step, or gives its program."""
    wanted, others = told(Step.from_json(transition.step)), list[Application]()
    for each in found:
        if any(told(step) == wanted for step in each.steps):
            return True
        others.append(each)
    for each in others:
        with suppress(KirError):
            if transition.name in each.card.passes and content_hash(run(before, Pipeline(each.steps), context=context).program) == transition.after:
                return True
    return False


def _looked(case: Case, given: Given) -> Rows:
    walk = walk_of(given, case[0])
    rest = walk.transitions[case[1]:]
    before, context = walk.program(rest[0].before_text), Context(target(walk.targets[-1]))
    wanted, steps = {told(Step.from_json(t.step)) for t in rest}, {(walk.kernel, t.number, t.before[:SHORT]) for t in rest}
    offers, used, later, next_one = set[str](), set[str](), set[str](), set[str]()
    for card in given.admitted:
        if found := list(applicable(card, before, context)):
            offers.add(card.name)
            if not steps.isdisjoint((use.kernel, use.transition, use.before) for use in card.evidence.uses):
                used.add(card.name)
            if any(told(step) in wanted for each in found for step in each.steps):
                later.add(card.name)
            if makes(found, before, rest[0], context):
                next_one.add(card.name)
    step = Step.from_json(rest[0].step)
    plain = {f"{site.params}@{step.at}" for site in sites(pass_class(step.name).with_options({}), before) if site.path == step.path}
    state = State(case, frozenset(offers), frozenset(used), frozenset(later), frozenset(next_one), told(step) in plain)
    if given.kept is not None:
        by = [sorted(some) for some in (state.offers, state.used, state.later, state.makes)]
        added(given.kept, json.dumps([_of(given.admitted), *case, *by, state.plain]) + "\n")
    return [(state,)]


def _known(given: Given) -> dict[Case, State]:
    """The states that were looked at before with the same cards; a line that was cut off is left out."""
    out, of = dict[Case, State](), _of(given.admitted)
    kept = given.kept
    for line in kept.read_text(encoding="utf-8").splitlines() if kept is not None and kept.exists() else ():
        with suppress(ValueError):
            cards, key, k, *by, plain = json.loads(line)
            if cards == of:
                offers, used, later, makes = map(frozenset, by)
                out[key, k] = State((key, k), offers, used, later, makes, plain)
    return out


def _of(cards: Sequence[Card]) -> str:
    """What of some cards decides where they apply and what they were lifted from, by its hash."""
    told_of = [(card.name, card.anchor.model_dump_json(), card.carrier.model_dump_json(), card.scope.requires, card.scope.conflicts,
                [(use.kernel, use.transition, use.before) for use in card.evidence.uses]) for card in cards]
    return hashlib.sha256(json.dumps(told_of).encode()).hexdigest()[:16]
