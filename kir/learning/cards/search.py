"""Looking cards up for a program: by four facets of verified scope (case, surface, platform, prior actions), by state features, by words, and
in the order that recorded outcomes teach; each answer says why, and each near miss which condition fails."""
from __future__ import annotations

import importlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.registry import registry
from kir.hardware.target import Target, target_names
from kir.hardware.target import target as target_of
from kir.ir.measures.features import KINDS, features, kinds
from kir.ir.nodes import Const, Expr, For, If, Program, Roles, Stmt, Var, While
from kir.ir.printer import expr_text
from kir.ir.visit import walk
from kir.learning.cards.card import FAMILY, Card
from kir.learning.cards.facts import kind
from kir.learning.cards.traits import traits
from kir.learning.cards.use import Application, NearMiss, carried_out, looked
from kir.learning.corpus.family import OTHER, family_of
from kir.rewrite import Context
from kir.rewrite.catalog import provided
from kir.rewrite.edit import places

MOST_LOOKED = 160
"""Cards, the best by scope and words, that are looked for in the program itself; more where more hits are asked for. Which of them apply says most of what
state a program is in, so that all are put in order once more by that."""
LISTED = 5
"""Cards of which it is learned from which score on they are likely."""
COLUMNS = ("place", "case", "surface", "platform", "prior", "admitted", "trials", "gain", "uses", "specific", "state", "words")
"""What a card is scored by: the kind of its place is in the program; the kernel's family, surface, platform (1 verified, 0.5 has all that a
verified one has); the share of its prior steps whose traces are there; its state; the share of trials that succeeded; log2 of its forecast
speedup; log2 of its kernels; how many state features it asks for; how the state speaks for it (`Rank.states`); BM25 of the words."""
WEIGHTS: Mapping[str, float] = {"place": 3.0, "case": 1.0, "surface": 0.7, "platform": 0.7, "prior": 0.5, "admitted": 1.0, "trials": 1.0, "gain": 0.3,
                                "uses": 0.3, "specific": 0.5, "state": 1.0, "words": 2.0}
"""Used until weights are learned."""
RANK = "rank.json"
OPTION = "surface-option"
"""The intent of steps that set an option of one surface's compiler: found for kernels of surfaces on which the card is verified, as it means nothing
elsewhere."""
AROUND = (For, If, Roles, While)
"""Statements that hold others."""
_BITS = {name: np.uint64(1 << k) for k, name in enumerate(KINDS)}
_ALL = np.uint64(0)


@dataclass(frozen=True)
class Rank:
    """In which order cards are looked at: the weights of `COLUMNS`; and of each card that outcomes are known of, by name, how what a state has speaks for
    it: the log odds that it is used from a state on that has nothing, and what each feature adds (`at KIND`: a kind of place; `again KIND in KIND`: what is
    computed more than once; `on SURFACE`; `for TARGET`; `in FAMILY`; what it is made of, as `traits` says)."""

    weights: Mapping[str, float] = field(default_factory=lambda: WEIGHTS)
    states: Mapping[str, tuple[float, Mapping[str, float]]] = field(default_factory=dict)
    least: float = -1e9
    """The score from which outcomes speak for a card that applies."""
    elsewhere: Mapping[str, float] = field(default_factory=dict)
    least_elsewhere: float = -1e9
    """The weights and that score for kernels of other families than those that outcomes are known of; none: the same."""
    families: frozenset[str] = frozenset()

    def at(self, family: str) -> tuple[Mapping[str, float], float]:
        """The weights, and the score from which outcomes speak for a card, for a kernel of a family."""
        return (self.elsewhere, self.least_elsewhere) if self.elsewhere and family not in self.families else (self.weights, self.least)


@dataclass(frozen=True)
class Hit:
    """A card found for a program: its score (higher is better), why, where it applies, and where it nearly does. Cards that begin with the same step are one
    hit: `also` are those that apply as well, at places of other kinds, with other parameters, or with more steps after it."""

    card: Card
    score: float
    reasons: tuple[str, ...]
    applications: tuple[Application, ...] = ()
    near: tuple[NearMiss, ...] = ()
    also: tuple[Hit, ...] = ()


@dataclass(frozen=True)
class Query:
    """What is asked: state features and kinds of places of a program, its family, the surface, the target and words; what it computes more than once, as
    `load in store`: kinds of expressions in kinds of statements; what it is made of (`traits`); and, once it was looked for, which cards apply to it."""

    features: frozenset[str]
    places: frozenset[str]
    case: str = ""
    surface: str = ""
    target: str = ""
    words: str = ""
    again: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()
    applies: frozenset[str] = frozenset()

    @cached_property
    def state(self) -> frozenset[str]:
        """What a state has, as `Rank.states` calls it."""
        own = {f"on {self.surface}", f"for {self.target}", f"in {self.case}"}
        apply = {f"applies {each}" for each in self.applies}
        return self.features | {f"at {each}" for each in self.places} | {f"again {each}" for each in self.again} | self.made | apply | own

    @classmethod
    def of(cls, program: Program, target: Target | None = None, surface: str = "", words: str = "") -> Query:
        """The query that a program makes."""
        return cls(kinds(features(program)), frozenset(kind(node) for _, node in places(program)), family_of(f"{program.name}::{program.name}"), surface,
                   target.architecture.name if target is not None else "", words, _again(program), traits(program))


@dataclass(frozen=True)
class Index:
    """Cards laid out so that all are scored at once."""

    cards: tuple[Card, ...]
    rank: Rank

    @classmethod
    def of(cls, cards: Sequence[Card], rank: Rank | None = None) -> Index:
        """An index; what takes long is worked out on first use."""
        return cls(tuple(cards), rank or Rank())

    def columns(self, query: Query) -> np.ndarray[Any, np.dtype[np.float64]]:
        """One row a card, one column a name of `COLUMNS`."""
        has = _mask(query.features)
        codes = self._codes
        platform = np.array([_fits(platforms, query.target) for platforms in codes["platform"][1]] or [0.0])[codes["platform"][0]]
        within = {name: np.array([float(wanted in each) for each in codes[name][1]] or [0.0])[codes[name][0]]
                  for name, wanted in (("case", query.case), ("surface", query.surface))}
        node = np.array([float(each in query.places) for each in codes["node"][1]] or [0.0])[codes["node"][0]]
        prior, asked = self._masks["prior"], self._sizes["prior"]
        share = np.where(asked > 0, np.bitwise_count(prior & has) / np.maximum(asked, 1), 0.0)
        words = self._words(query.words) if query.words else np.zeros(len(self.cards))
        names, bias, added = self._states
        there = query.state
        state = bias + added[[k for k, name in enumerate(names) if name in there]].sum(axis=0)
        return np.stack([node, within["case"], within["surface"], platform, share, *self._fixed.T, state, words], axis=1)

    def blocked(self, query: Query) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The cards that a state feature keeps away: one that is asked for and lacking, or in the way and there."""
        has = _mask(query.features)
        away: np.ndarray[Any, np.dtype[np.bool_]] = np.logical_or((self._masks["requires"] & ~has) != 0, (self._masks["conflicts"] & has) != 0)
        return away

    def best(self, query: Query, most: int = MOST_LOOKED) -> list[tuple[int, float]]:
        """The cards with the highest scores, by number, best first; those that a state feature keeps away come last."""
        by = self.rank.at(query.case)[0]
        weights = np.array([by.get(name, 0.0) for name in COLUMNS])
        scores = self.columns(query) @ weights - 100.0 * self.blocked(query)
        some = np.argpartition(-scores, most)[:most] if most < len(scores) else np.arange(len(scores))
        return [(int(k), float(scores[k])) for k in sorted(some, key=lambda k: (-scores[k], self.cards[int(k)].name))]

    @cached_property
    def _codes(self) -> dict[str, tuple[np.ndarray[Any, Any], list[Any]]]:
        return {"platform": _coded([c.scope.platforms for c in self.cards]), "case": _coded([c.scope.families for c in self.cards]),
                "surface": _coded([c.scope.surfaces for c in self.cards]), "node": _coded([c.anchor.node for c in self.cards])}

    @cached_property
    def _masks(self) -> dict[str, np.ndarray[Any, Any]]:
        provided = _provided()
        return {"requires": np.array([_mask(c.scope.requires) for c in self.cards], np.uint64),
                "conflicts": np.array([_mask(c.scope.conflicts) for c in self.cards], np.uint64),
                "prior": np.array([_mask([f for step in c.scope.prior for f in provided.get(step, ())]) for c in self.cards], np.uint64)}

    @cached_property
    def _sizes(self) -> dict[str, np.ndarray[Any, Any]]:
        return {name: np.bitwise_count(mask).astype(np.int64) for name, mask in self._masks.items()}

    @cached_property
    def _fixed(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([_of_card(card) for card in self.cards], np.float64).reshape(len(self.cards), 5)

    @cached_property
    def _states(self) -> tuple[list[str], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The features that outcomes are known of; of each card its log odds without any; and what each feature adds, one row a feature."""
        known = [self.rank.states.get(card.name, (0.0, {})) for card in self.cards]
        names = sorted({name for _, added in known for name in added})
        added = np.zeros((len(names), len(known)))
        rows = {name: k for k, name in enumerate(names)}
        for card, (_, own) in enumerate(known):
            added[[rows[name] for name in own], card] = list(own.values())
        return names, np.array([bias for bias, _ in known], np.float64), added

    @cached_property
    def _bm25(self) -> Any:
        bm25s = _bm25s()
        made = bm25s.BM25()
        made.index(bm25s.tokenize([_text(card) for card in self.cards], show_progress=False), show_progress=False)
        return made

    def _words(self, words: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        tokens = _bm25s().tokenize(words, return_ids=False, show_progress=False)[0]
        known = [each for each in tokens if each in self._bm25.vocab_dict]
        if not known:
            return np.zeros(len(self.cards))
        scores = np.asarray(self._bm25.get_scores(known), np.float64)
        return scores / max(float(scores.max()), 1e-9)


def _bm25s() -> Any:
    """The library of BM25. Where JAX is installed it asks that for a device first, which raises, once, where there is none."""
    with suppress(RuntimeError):
        return importlib.import_module("bm25s")
    return importlib.import_module("bm25s")


def _again(program: Program) -> frozenset[str]:
    """Kinds of expressions that a kernel has at more than one place, each with a kind of statement that has one."""
    out = set[str]()
    for kernel in program.kernels:
        at: dict[str, set[str]] = {}
        counts = Counter[str]()
        for statement in (x for x in walk(kernel) if isinstance(x, Stmt)):
            own = [getattr(statement, name) for name in ("lo", "hi", "cond") if hasattr(statement, name)] if isinstance(statement, AROUND) else [statement]
            for e in (x for part in own for x in walk(part) if isinstance(x, Expr) and not isinstance(x, (Const, Var))):
                text = expr_text(e)
                counts[text] += 1
                at.setdefault(text, set()).add(f"{type(e).__name__.lower()} in {kind(statement)}")
        out |= {each for text, found in at.items() if counts[text] > 1 for each in found}
    return frozenset(out)


def search(cards: Sequence[Card], program: Program, target: Target | None = None, surface: str = "", words: str = "", most: int = 10,
           rank: Rank | None = None) -> tuple[Hit, ...]:
    """The cards that apply to a program, best first, at most so many, those that begin alike together; then those that nearly do."""
    index = Index.of(cards, rank)
    query = Query.of(program, target, surface, words)
    near, uses = dict[int, tuple[NearMiss, ...]](), dict[int, tuple[Application, ...]]()
    for number, _ in index.best(query, max(most, MOST_LOOKED)) if cards else []:
        if surface and cards[number].intent == OPTION and surface not in cards[number].scope.surfaces:
            continue
        found = list(looked(cards[number], program, Context(target)))
        uses[number] = tuple(each for each in found if isinstance(each, Application))
        near[number] = tuple(each for each in found if isinstance(each, NearMiss) and each.is_near)
    query = replace(query, applies=frozenset(cards[number].name for number, some in uses.items() if some))
    columns = index.columns(query) if cards else np.zeros((0, len(COLUMNS)))
    hits = []
    for number, score in index.best(query, len(cards)):
        if uses.get(number) or near.get(number):
            seldom = () if score >= index.rank.at(query.case)[1] else ("outcomes: in states like this one it was seldom used from there on",)
            said = (*_reasons(cards[number], query, columns[number]), *seldom)
            hits.append(Hit(cards[number], round(score, 3), said, uses[number], near[number]))
    together: dict[str, list[Hit]] = {}
    for k, hit in enumerate(hits):
        if hit.applications and len(together) < most:
            stands, refused = carried_out(hit.applications, program, Context(target))
            hits[k] = hit = replace(hit, applications=stands, near=(*refused, *hit.near))
        if hit.applications:
            together.setdefault(begins(hit.card), []).append(hit)
    shown = [replace(first, also=tuple(others)) for first, *others in together.values()]
    return tuple(shown[:most] + [hit for hit in hits if not hit.applications][:most])


def skill(card: Card) -> str:
    """The steps of a card, by which cards of several kinds of places are one skill."""
    return " then ".join(card.passes)


def begins(card: Card) -> str:
    """What the cards of one hit have in common: the step that they begin with. Who looks at a step sees what may follow it beside it."""
    return card.passes[0]


def by_words(cards: Sequence[Card], words: str, most: int = 10) -> tuple[Hit, ...]:
    """The cards that words fit best (BM25), at most so many."""
    index = Index.of(cards)
    scores = index._words(words) if cards else np.zeros(0)
    order = sorted((k for k in range(len(cards)) if scores[k] > 0), key=lambda k: (-scores[k], cards[k].name))[:most]
    return tuple(Hit(cards[k], round(float(scores[k]), 3), (f"words: {scores[k]:.2f} of the best",)) for k in order)


def rank_of(folder: Path) -> Rank:
    """What was learned of the order with the cards of a folder; the usual one where nothing was."""
    try:
        found = json.loads((folder / RANK).read_text(encoding="utf-8"))
        states = {str(name): (float(bias), {str(k): float(v) for k, v in added.items()}) for name, (bias, added) in found["states"].items()}
        weights, elsewhere = ({name: float(some[name]) for name in COLUMNS} if some else {} for some in (found["weights"], found.get("elsewhere", {})))
        least = (float(found.get(name, Rank.least)) for name in ("least", "least_elsewhere"))
        return Rank(weights, states, next(least), elsewhere, next(least), frozenset(map(str, found.get("families", ()))))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Rank()


def _reasons(card: Card, query: Query, row: np.ndarray[Any, Any]) -> tuple[str, ...]:
    value = dict(zip(COLUMNS, row, strict=True))
    said = []
    if query.case == OTHER:
        said.append("case: the kernel's name tells no family")
    elif value["case"]:
        said.append(f"case: verified on {query.case}")
    elif query.case:
        said.append(f"case: not on {query.case} yet, but on {', '.join(card.scope.families[:4])}")
    if query.surface:
        said.append(f"surface: {'verified' if value['surface'] else 'not verified'} on {query.surface}")
    if query.target:
        said.append(f"platform: {'verified' if value['platform'] == 1 else 'has all that a verified one has' if value['platform'] else 'not verified'} "
                    f"on {query.target}")
    if card.scope.prior:
        said.append(f"prior: {value['prior']:.0%} of what its prior steps bring is there")
    said += [f"profit: only where {p.sentence}; {p.example}" for p in card.preconditions if p.category == FAMILY and query.case not in card.scope.families]
    said += _effect(card, query.target)
    if value["words"]:
        said.append(f"words: {value['words']:.2f} of the best")
    return tuple(said)


def _effect(card: Card, target: str) -> tuple[str, ...]:
    """What a card's uses brought: measured before forecast, on the target before others."""
    known = card.effect
    for basis, by in (("measured", known.measured), ("forecast", known.forecast)):
        if by:
            name = target if target in by else max(by, key=lambda each: (by[each].uses, each))
            spread = by[name]
            idle = "; none of them changed the compiled code" if known.compared and not known.realized else ""
            times = "as fast as before" if f"{spread.low:.3g}" == f"{spread.high:.3g}" == "1" else \
                f"{spread.median:.3g} times as fast (half of them {spread.low:.3g} to {spread.high:.3g})"
            return (f"effect: {basis} {times} in {spread.uses} use{'s' * (spread.uses != 1)} on {name}{idle}",)
    return ()


def _of_card(card: Card) -> tuple[float, ...]:
    trials = [entry for entry in card.log if entry.what == "trial"]
    won = sum(bool(entry.skill) for entry in trials) / len(trials) if trials else 0.0
    gain = max((spread.median for spread in card.effect.forecast.values()), default=1.0)
    return (float(card.state == "admitted"), won, max(-3.0, min(3.0, math.log2(gain))) if gain > 0 else 0.0, math.log2(1 + card.evidence.kernels),
            float(len(card.scope.requires) + len(card.carrier.steps) - 1))


def _text(card: Card) -> str:
    return " ".join((card.name.replace(".", " ").replace("-", " "), card.title, card.intent.replace("-", " "), *card.passes, card.anchor.pattern,
                     *card.scope.families, *(p.sentence for p in card.preconditions), card.prose[:2000]))


def _mask(names: Sequence[str] | frozenset[str]) -> np.uint64:
    out = 0
    for name in names:
        plain = name.partition("@")[0].partition(":")[0]
        out |= int(_BITS.get(plain, _ALL))
    return np.uint64(out)


def _coded(values: Sequence[Any]) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Each value by its number among the different ones, and those."""
    known: dict[Any, int] = {}
    numbers = np.array([known.setdefault(value, len(known)) for value in values], np.int64)
    return numbers, list(known)


def _fits(platforms: Sequence[str], wanted: str) -> float:
    """1 for a platform that is verified, 0.5 for one that has all instructions of a verified one, else 0."""
    if wanted in platforms:
        return 1.0
    try:
        have = target_of(wanted).architecture.families if wanted else frozenset()
        return 0.5 if any(target_of(each).architecture.families <= have for each in platforms if each in target_names()) and wanted else 0.0
    except KirError:
        return 0.0


def _provided() -> dict[str, tuple[str, ...]]:
    """The state features that each pass brings, by its text."""
    return {entry.name: tuple(provided(entry)) for entry in registry("kir.passes")}
