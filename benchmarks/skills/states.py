"""What the admitted cards offer at the states of lineages: looked at once, for the tables that ask of it."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from benchmarks.skills.given import Given, Rows, added, side_by_side
from kir.hardware.target import target
from kir.learning.cards.card import Card
from kir.learning.cards.search import Query
from kir.learning.cards.use import applicable
from kir.learning.evidence.walked import Walked
from kir.learning.induce.ablation import is_plain, makes
from kir.learning.induce.build import NO_TRIAL, code
from kir.learning.induce.rank import Seen
from kir.learning.induce.trials import told
from kir.learning.induce.uses import SHORT
from kir.rewrite import Context, Step

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
    """The states that are known of a file, and those that are looked at in the time that is given; of a state that was looked at with other cards, only what is
    not known of these is looked at."""
    _read(given)
    wanted = {*_DIGESTS.values()}
    whole = {case for case in cases if wanted <= _KNOWN.get(case, {}).keys()}
    found = {state.case: state for state, in side_by_side(_looked, [case for case in cases if case not in whole], given)}
    return {case: state for case in cases
            if (state := _state(case, given, _KNOWN[case], _PLAIN[case]) if case in whole else found.get(case)) is not None}


def look(given: Given) -> str:
    """How many states are looked at; with a file of outcomes, what the other tables need is in it. Those of lineages that end naive come first."""
    every = [(w.key, k) for w in sorted(given.walks, key=lambda w: w.ended != "naive") for k in range(len(w.transitions))]
    return f"{len(states(every, given))} of {len(every)} states are looked at."


def seen(state: State, given: Given) -> Seen:
    """A state as the order of cards is learned from it."""
    walk = walk_of(given, state.case[0])
    query = Query.of(walk.program(walk.transitions[state.case[1]].before_text), target(walk.targets[-1]), walk.surface)
    query = replace(query, applies=state.offers)
    applies, used = (tuple(card.name in some for card in given.admitted) for some in (state.offers, state.used))
    return Seen(query, applies, used, walk.family, walk.kernel.partition("::")[0])


def walk_of(given: Given, key: str) -> Walked:
    """A walk by its key."""
    if _WALKS.get("of") is not given.walks:
        _WALKS.update({"of": given.walks, "by key": {w.key: w for w in given.walks}})
    found: Walked = _WALKS["by key"][key]
    return found


_WALKS: dict[str, Any] = {}
"""The walks that were asked last, by key: working keys out anew takes longer than what is asked."""


OFFERS, LATER, MAKES = 1, 2, 4
"""What is kept of a card at a state: that it applies, makes a step of the expert's from there on, makes the next one."""


def _looked(case: Case, given: Given) -> Rows:
    """What the cards are at a state of which that is not known, and the whole of it."""
    walk, known = walk_of(given, case[0]), _KNOWN.get(case, {})
    rest = walk.transitions[case[1]:]
    before, after, context = walk.program(rest[0].before_text), walk.program(rest[0].after_text), Context(target(walk.targets[-1]))
    wanted, found = {told(Step.from_json(t.step)) for t in rest}, dict[str, int]()
    for card in given.admitted:
        if (key := _DIGESTS[card.name]) not in known:
            uses = list(applicable(card, before, context))
            later = any(told(step) in wanted for each in uses for step in each.steps)
            found[key] = OFFERS * bool(uses) + LATER * later + MAKES * (bool(uses) and makes(uses, before, after, rest[0], context))
    plain = is_plain(rest[0], before)
    if given.kept is not None and found:
        added(given.kept, json.dumps([*case, plain, "".join(found), "".join(map(str, found.values()))]) + "\n")
    return [(_state(case, given, {**known, **found}, plain),)]


def _state(case: Case, given: Given, found: Mapping[str, int], plain: bool) -> State:
    """A state by what was found of each card."""
    walk = walk_of(given, case[0])
    steps = {(walk.kernel, t.number, t.before[:SHORT]) for t in walk.transitions[case[1]:]}
    by = {bit: frozenset(card.name for card in given.admitted if found[_DIGESTS[card.name]] & bit) for bit in (OFFERS, LATER, MAKES)}
    used = frozenset(card.name for card in given.admitted if card.name in by[OFFERS]
                     and not steps.isdisjoint((use.kernel, use.transition, use.before) for use in card.evidence.uses))
    return State(case, by[OFFERS], used, by[LATER], by[MAKES], plain)


_KNOWN: dict[Case, dict[str, int]] = {}
_PLAIN: dict[Case, bool] = {}
_DIGESTS: dict[str, str] = {}
"""What is known of states: of cards, by their digests; whether their next step is plain; and the digests of the cards, by name."""


def _read(given: Given) -> None:
    """Take up what was looked at before; a line that was cut off is left out."""
    _KNOWN.clear()
    _DIGESTS.clear()
    _DIGESTS.update((card.name, digest(card)) for card in given.admitted)
    kept = given.kept
    for line in kept.read_text(encoding="utf-8").splitlines() if kept is not None and kept.exists() else ():
        with suppress(ValueError):
            key, k, plain, digests, bits = json.loads(line)
            _KNOWN.setdefault((key, k), {}).update((digests[n * DIGEST:(n + 1) * DIGEST], int(bit)) for n, bit in enumerate(bits))
            _PLAIN[key, k] = plain


@cache
def _of_code() -> str:
    return code(NO_TRIAL)


DIGEST = 10
"""Characters that a card is known by."""


def digest(card: Card) -> str:
    """What of a card decides where it applies, and the code that it is looked for by, by hash: a pass may ask anything of KIR."""
    told_of = (card.name, card.anchor.node, card.carrier.model_dump_json(), card.scope.requires, card.scope.conflicts, _of_code())
    return hashlib.sha256(json.dumps(told_of).encode()).hexdigest()[:DIGEST]
