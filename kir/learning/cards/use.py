"""Materialize a card: every place of a program where it holds, as pipeline steps with parameters chosen for that program.

Nothing is taken on the card's word: each step is a site of its pass, and its validity conditions are judged on the program at hand.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import product

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir.canonical import content_hash
from kir.ir.measures.features import features, kinds
from kir.ir.nodes import Program
from kir.learning.cards.card import Card, Move, Parameter
from kir.rewrite import Context, Pass, Site, Step, judge, pass_class, sites
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import apply
from kir.rewrite.verdict import ANYWHERE

MOST_CHOICES = 6
"""Values of parameters that are tried at each place, what most kernels used first."""


@dataclass(frozen=True)
class Application:
    """A card at a place of a program: the steps that carry it out, in order, and why these."""

    card: Card
    steps: tuple[Step, ...]
    reason: str


@dataclass(frozen=True)
class NearMiss:
    """A place where a card's step would apply, and the validity conditions that do not hold there, each as `ID: why`; or a state feature
    that is lacking or in the way, where there is no place."""

    card: Card
    anchor: str
    conditions: tuple[str, ...]


def applications(card: Card, program: Program, context: Context = ANYWHERE) -> tuple[Application, ...]:
    """Every application of a card in a program, in reading order; at one place, the parameters that most kernels used first. A composite of
    which a part is there already applies the rest. A card whose pass is not registered here has none."""
    return tuple(each for each in looked(card, program, context) if isinstance(each, Application))


def looked(card: Card, program: Program, context: Context = ANYWHERE) -> Iterator[Application | NearMiss]:
    """The applications of a card, and the near misses between them, as they are found."""
    found = kinds(features(program))
    lacking = [f"lacks {each}" for each in card.scope.requires if each not in found]
    blocking = [f"has {each}" for each in card.scope.conflicts if each in found]
    if lacking or blocking:
        yield NearMiss(card, "", (*lacking, *blocking))
        return
    if len(card.carrier.steps) > 1:
        yield from _composite(card, program, context)
        return
    for move in card.carrier.steps:
        for site, refusals in _sites(card, move, program, context):
            at = anchor_text(program, site.path)
            if refusals:
                yield NearMiss(card, at, refusals)
            else:
                step = Step.of(site.params, at, path=site.path, hash=content_hash(program))
                yield Application(card, (step,), f"{len(card.evidence.uses)} uses in {card.evidence.kernels} kernels; {site.params} at {at}")


def _composite(card: Card, program: Program, context: Context) -> Iterator[Application | NearMiss]:
    """The steps one after the other, each at its first place; those that find no place and whose traces are there already are left out."""
    done: list[Step] = []
    current, skipped = program, list[str]()
    missed: NearMiss | None = None
    for move in card.carrier.steps:
        step: Step | None = None
        for site, refusals in _sites(card, move, current, context):
            at = anchor_text(current, site.path)
            if refusals:
                missed = missed or NearMiss(card, at, refusals)
                continue
            with suppress(KirError):
                made = apply(current, site.params, site, context=context)
                step = Step.of(site.params, at, path=site.path, hash=content_hash(current))
                current = made.program
                break
        if step is not None:
            done.append(step)
        elif _is_there(move, current):
            skipped.append(move.step)
        else:
            yield missed or NearMiss(card, "", (f"there is no place for {move.step}",))
            return
    if done:
        told = f"; {', '.join(skipped)} is there already" if skipped else ""
        yield Application(card, tuple(done), f"{len(card.evidence.uses)} uses in {card.evidence.kernels} kernels{told}")


def _is_there(move: Move, program: Program) -> bool:
    """Whether a step could be taken back from a program: its work is there."""
    try:
        cls = pass_class(move.step)
    except KirError:
        return False
    return any(_fits(move, site.params) for site in cls.with_options({}).inverse_sites(program))


def _sites(card: Card, move: Move, program: Program, context: Context) -> Iterator[tuple[Site, tuple[str, ...]]]:
    """The sites of a step with parameters in the card's ranges, each with the validity conditions that do not hold there."""
    try:
        cls = pass_class(move.step)
    except KirError:
        return
    seen: set[tuple[object, str]] = set()
    for item in _choices(cls, move):
        for site in sites(item, program):
            key = (site.path, str(site.params))
            if key in seen or not _fits(move, site.params):
                continue
            seen.add(key)
            by_id = {p.id: p for p in site.params.preconditions}
            verdicts = judge(program, site, context)
            yield site, tuple(f"{id_}: {v.reason}" for id_, v in verdicts if not v and by_id[id_].kind == "validity")


def _choices(cls: type[Pass], move: Move) -> Iterator[Pass]:
    """The pass with each combination of the values that the card names, those of most kernels first."""
    fixed = {each.name: each.values[0] for each in move.parameters if each.role == "fixed"}
    chosen = [each for each in move.parameters if each.role == "chosen"]
    for k, values in enumerate(product(*(each.values for each in chosen))):
        if k == MOST_CHOICES:
            return
        with suppress(KirError):
            yield cls.with_options({**fixed, **dict(zip((each.name for each in chosen), values, strict=True))})


def _fits(move: Move, params: Pass) -> bool:
    """Whether parameters that a place decided are those of the card."""
    return all(_allowed(each, getattr(params, each.name, None)) for each in move.parameters if each.role != "found")


def _allowed(parameter: Parameter, value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool) and parameter.low is not None and parameter.high is not None:
        return parameter.low <= value <= parameter.high
    return value in parameter.values
