"""Hypotheses: what the uses of one kind have in common, as a card that no trial has seen yet."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache, partial
from itertools import count
from statistics import median, quantiles
from typing import Protocol

from kir.base.dataclass import dataclass
from kir.ir.measures.features import KINDS, features, kinds
from kir.learning.cards.card import (
    Anchor,
    Card,
    Carrier,
    Counterexample,
    Effect,
    Entry,
    Evidence,
    Move,
    Parameter,
    Precondition,
    Relation,
    Risk,
    Scope,
    Spread,
    Value,
)
from kir.learning.cards.card import Use as Listed
from kir.learning.cards.facts import expressions
from kir.learning.evidence.walked import Rejected, Walked, parsed
from kir.learning.induce.composites import Together, together
from kir.learning.induce.relate import Row, related
from kir.learning.induce.unify import shown, term, unified
from kir.learning.induce.uses import MOSTLY, SHORT, Use, by_kind, decided, forms
from kir.rewrite import Pass
from kir.rewrite.base import parameter_types

PLAIN = re.compile(r"[\w.-]*(\([\w=,. -]*\))?")
"""A text that is a word of its own, as the name of an answer with its numbers, and names nothing of a kernel."""
MOST_VALUES = 12
MOST_WAYS = 16
"""Combinations of chosen values that a card keeps."""
MOST_COUNTEREXAMPLES = 4
MOST_NAME = 64
"""Characters of a card's name."""
FEW = 6
"""Kernels of a form of a step up to which equalities are also looked for in its other forms."""
LEAST_FAILURES = 3
"""Failures from which a condition is learned."""
PLACES = {"kernel": "a whole kernel", "for": "a loop", "mma": "a matrix product", "store": "a store", "let": "a named value", "alloc": "a buffer",
          "copy": "a copy", "roles": "warps with roles of their own", "eval": "a call", "if": "a branch", "while": "a loop without a count",
          "view": "a view of memory"}
"""What kinds of places are called."""


class Lift(Protocol):
    """How the card of some uses is made; `besides` says of the step's other uses, in other forms, which may be looked at too."""

    def __call__(self, group: Sequence[Use], besides: Callable[[Use], bool] = ..., /) -> Card: ...


def anywhere(use: Use) -> bool:
    """All uses may be looked at."""
    return True


@dataclass(frozen=True)
class Hypothesis:
    """A card that no trial has seen, the uses that it was lifted from, and how the card of some of them is made."""

    card: Card
    uses: tuple[Use, ...] = field(repr=False)
    lift: Lift = field(repr=False)
    composite: bool = False


def hypotheses(walks: Sequence[Walked], found: Sequence[Use]) -> tuple[Hypothesis, ...]:
    """One for each kind of use, and one for each sequence of steps that come together; in order of name."""
    rejected = [(each, r) for each in walks for r in each.rejected]
    out: list[Hypothesis] = []
    named: dict[int, str] = {}
    for key, group in by_kind(found).items():
        lift = partial(lifted, found=found, rejected=[(w, r) for w, r in rejected if r.name == key[0]])
        card = lift(group)
        named |= {id(use): card.name for use in group}
        out.append(Hypothesis(card, group, lift))
    runs: dict[str, list[str]] = {}
    for use in sorted(found, key=lambda u: (u.walked.key, u.transition.number)):
        runs.setdefault(use.walked.key, []).append(named[id(use)])
    by_name = {each.card.name: each for each in out}
    for each in together(runs):
        parts = tuple(by_name[name] for name in each.items)
        group = tuple(use for use in found if use.walked.key in each.kernels and named[id(use)] in each.items)
        name = joined_name([part.card.carrier.steps[0].step for part in parts], parts[0].card.anchor.node, [other.card.name for other in out])
        made = partial(composite, name=name, found=each, parts=parts, named=named)
        out.append(Hypothesis(made(group), group, made, True))
    return tuple(sorted(out, key=lambda each: each.card.name))


def lifted(group: Sequence[Use], besides: Callable[[Use], bool] = anywhere, /, *, found: Sequence[Use], rejected: Sequence[tuple[Walked, Rejected]]) -> Card:
    """What uses of one pass in one form at one kind of place have in common. An equality that gives a parameter is taken from the pass's other forms where its
    own uses show none: a loop is as long as a power of two whatever its masks give."""
    first = group[0].item
    named = tuple(name for name in forms([use for use in found if use.item.name == first.name]))
    parameters = tuple(made for name in parameter_types(type(first)) if (made := _parameter(group, name, name in named)) is not None)
    open_ = {each.name for each in parameters if each.role == "chosen"}
    alike = [use for use in found if use.kind == group[0].kind]
    relations = related(_rows(group, open_), [use.facts for use in alike])
    lacking = open_ - {each.text.split()[0] for each in relations if _is_equality(each)}
    if lacking and len(kernels := {use.kernel for use in group}) <= FEW:
        others = [use for use in alike if use.item.name == first.name and besides(use)]
        more = related(_rows(others, lacking), ()) if {use.kernel for use in others} - kernels else ()
        relations += tuple(each for each in more if _is_equality(each) and each.text.split()[0] in lacking)
    pattern = shown(unified([term(use.node) for use in group]))
    words = [str(getattr(first, name)) for name in named if getattr(first, name) != _default(first, name)]
    form = f" ({', '.join(words)})" if words else ""
    return Card(
        name=card_name(first.name, words, group[0].kind),
        title=f"{first.name.replace('-', ' ')}{form}, at {PLACES.get(group[0].kind, group[0].kind)}", intent=first.intent or first.name,
        anchor=Anchor(node=group[0].kind, pattern=pattern[:400], places=len(group)),
        carrier=Carrier(kind="pass", steps=(Move(step=first.name, parameters=parameters, ways=_ways(group, parameters)),), relations=relations),
        preconditions=(*_declared(first, group, rejected), *_learned(group, rejected)),
        effect=_effect(group), evidence=_evidence(group, len(rejected)), risk=_risk(first, group, rejected), scope=_scope(first, group),
        log=(Entry(what="lifted", outcome=f"from {len(group)} uses in {len({use.kernel for use in group})} kernels"),),
    )


def _is_equality(relation: Relation) -> bool:
    return " == " in relation.text and " % " not in relation.text


def _rows(group: Sequence[Use], open_: Collection[str]) -> list[Row]:
    """Uses as relations are looked for in them: the whole numbers among some parameters, and the facts."""
    return [(use.kernel, {k: v for k, v in use.parameters.items() if k in open_ and isinstance(v, int) and not isinstance(v, bool)}, use.facts)
            for use in group]


def card_name(step: str, words: Sequence[str], kind: str) -> str:
    """The name of a card: the pass, its form, the kind of place."""
    parts = [re.sub(r"[^a-z0-9]+", "-", each.lower()).strip("-") for each in (step, *words, kind)]
    return ".".join(each for each in parts if each)[:MOST_NAME].rstrip(".-_")


def _default(item: Pass, name: str) -> object:
    return getattr(type(item), name, None)


def _parameter(group: Sequence[Use], name: str, is_form: bool) -> Parameter | None:
    """What is known of a parameter; None for one that was always at its default."""
    by_value: dict[Value, set[str]] = {}
    for use in group:
        by_value.setdefault(use.parameters[name], set()).add(use.kernel)
    values = sorted(by_value, key=lambda v: (-len(by_value[v]), str(v)))
    if is_form:
        return Parameter(name=name, role="fixed", values=tuple(values[:1]), kernels=(len(by_value[values[0]]),))
    if len(values) == 1 and values[0] == _default(group[0].item, name):
        return None
    plain = all(isinstance(v, (bool, int, float)) or (isinstance(v, str) and PLAIN.fullmatch(v)) or
                (isinstance(v, tuple) and all(isinstance(x, int) for x in v)) for v in values)
    if not decided(group, name) and (heads := _drawn(group, name)):
        return Parameter(name=name, role="drawn", values=heads)
    if not plain or decided(group, name) or all(_names(use, use.parameters[name]) for use in group):
        return Parameter(name=name, role="found")
    numbers = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    ends = {"low": min(numbers), "high": max(numbers)} if len(numbers) == len(values) else {}
    return Parameter(name=name, role="chosen", values=tuple(values[:MOST_VALUES]), kernels=tuple(len(by_value[v]) for v in values[:MOST_VALUES]), **ends)


def _ways(group: Sequence[Use], parameters: Sequence[Parameter]) -> tuple[tuple[Value, ...], ...]:
    """Which values of chosen parameters were used together, those of most kernels first; none where at most one is chosen."""
    names = [each.name for each in parameters if each.role == "chosen"]
    kernels: dict[tuple[Value, ...], set[str]] = {}
    for use in group if len(names) > 1 else ():
        kernels.setdefault(tuple(use.parameters[name] for name in names), set()).add(use.kernel)
    return tuple(sorted(kernels, key=lambda way: (-len(kernels[way]), str(way)))[:MOST_WAYS])


def _drawn(group: Sequence[Use], name: str) -> tuple[str, ...]:
    """The kinds of expressions of which a parameter is the text, where it mostly is that of one there or just after it; else none."""
    found: Counter[str] = Counter()
    for use in group:
        value = use.parameters[name]
        head = next((head for head, text in expressions(use.before, use.path) if text == value), "") if isinstance(value, str) else ""
        found[head] += 1
    drawn = sum(count for head, count in found.items() if head)
    return tuple(sorted(head for head in found if head)) if drawn >= MOSTLY * len(group) else ()


def _names(use: Use, value: object) -> bool:
    """Whether a value is a name of the kernel that it was used on, or several: another kernel has others."""
    return isinstance(value, str) and bool(value) and re.search(rf"\b{re.escape(value)}\b", use.walked.programs[use.transition.before_text]) is not None


def _declared(item: Pass, group: Sequence[Use], rejected: Sequence[tuple[Walked, Rejected]]) -> Iterable[Precondition]:
    """The pass's own conditions, with how each came out where the step worked, and how often it was what refused one."""
    for p in item.preconditions:
        verdicts = Counter(c.verdict for use in group for c in use.transition.conditions if c.id == p.id)
        refusals = [r.reason for _, r in rejected if r.condition == p.id]
        yield Precondition(id=p.id, kind=p.kind, category=p.category, sentence=p.sentence, proved=verdicts["proved"], guarded=verdicts["guarded"],
                           assumed=verdicts["assumed"], open=verdicts["unknown"] + verdicts["refuted"], refused=len(refusals),
                           example=refusals[0] if refusals else "")


def _learned(group: Sequence[Use], rejected: Sequence[tuple[Walked, Rejected]]) -> Iterable[Precondition]:
    """State features that every program has which the step made, and that most of those lack on which it could not be undone (or the other way
    round): what held wherever it worked, minus what held where it failed."""
    failed = [_state(w.programs[r.program_text]) for w, r in rejected if r.program_text in w.programs]
    if len(failed) < LEAST_FAILURES:
        return
    worked = [_state(use.walked.programs[use.transition.after_text]) for use in group]
    for feature, says in sorted(KINDS.items()):
        always, never = all(feature in each for each in worked), all(feature not in each for each in worked)
        against = sum((feature not in each) if always else (feature in each) for each in failed)
        if (always or never) and 2 * against > len(failed):
            said = f"the program after it {'has' if always else 'does not have'} `{feature}`: {says}"
            yield Precondition(kind="profit", category="pipeline", sentence=said, proved=len(worked), refused=against,
                               example=f"otherwise in {against} of {len(failed)} programs on which it could not be undone")


@lru_cache(maxsize=1 << 16)
def _state(text: str) -> frozenset[str]:
    """The state features of a program; asked again for each card, and each part of the evidence that one is lifted from."""
    return frozenset(kinds(features(parsed(text))))


def _effect(group: Sequence[Use]) -> Effect:
    forecast, measured, predicted = dict[str, list[float]](), dict[str, list[float]](), dict[str, list[float]]()
    for use in group:
        for target, ratio in use.transition.speedups.items():
            forecast.setdefault(target, []).append(ratio)
        for device, (ratio, _, _) in use.transition.measured.items():
            measured.setdefault(device, []).append(ratio)
        for what, change in use.transition.effect.items():
            predicted.setdefault(what, []).append(change)
    return Effect(forecast=_spreads(forecast), measured=_spreads(measured), predicted={k: v for k, v in _spreads(predicted).items() if v.low or v.high},
                  realized=sum(use.transition.realized for use in group), compared=sum(use.transition.compared for use in group))


def _spreads(values: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    out = {}
    for name, found in sorted(values.items()):
        low, _, high = quantiles(found, n=4, method="inclusive") if len(found) > 1 else (found[0],) * 3
        out[name] = Spread(median=float(f"{median(found):.4g}"), low=float(f"{low:.4g}"), high=float(f"{high:.4g}"), uses=len(found))
    return out


def _evidence(group: Sequence[Use], rejected: int) -> Evidence:
    listed = [Listed(kernel=use.kernel, package=use.walked.package, family=use.walked.family, surface=use.walked.surface, lineage=use.walked.seal[:16],
                     transition=use.transition.number, before=use.transition.before[:SHORT], after=use.transition.after[:SHORT])
              for use in sorted(group, key=lambda u: (u.walked.key, u.transition.number))]
    return Evidence(kernels=len({use.kernel for use in group}), uses=tuple(listed), rejected=rejected)


def _risk(item: Pass, group: Sequence[Use], rejected: Sequence[tuple[Walked, Rejected]]) -> Risk:
    numerics = Counter(use.transition.numerics for use in group).most_common(1)[0][0]
    wrong = [r for _, r in rejected if r.stage in ("compile", "correctness")]
    return Risk(numerics=numerics or item.numerics,
                hazards=tuple(f"wrong unless {p.sentence[:1].lower()}{p.sentence[1:]} ({p.id})" for p in item.preconditions if p.kind == "validity"),
                counterexamples=tuple(Counterexample(program=r.program[:16], step=r.step[:200], says=r.reason[:200]) for r in wrong[:MOST_COUNTEREXAMPLES]))


def _scope(item: Pass, group: Sequence[Use]) -> Scope:
    walks = [use.walked for use in group]
    before = [{t.step["pass"] for t in use.walked.transitions if t.number < use.transition.number} for use in group]
    states = [_state(use.walked.programs[use.transition.before_text]) for use in group]
    return Scope(families=tuple(sorted({w.family for w in walks})), packages=tuple(sorted({w.package for w in walks})),
                 surfaces=tuple(sorted({w.surface for w in walks})), platforms=tuple(sorted({t for w in walks for t in w.targets})),
                 requires=tuple(f for f in item.requires if all(f in each for each in states)),
                 conflicts=tuple(f for f in item.conflicts if not any(f in each for each in states)), prior=tuple(sorted(set.intersection(*before))))


def joined_name(steps: Sequence[str], kind: str, taken: Sequence[str]) -> str:
    """The name of a card of several steps, different from those that are taken: all of them, or where these are too many the first, the last and their
    number."""
    whole = card_name("_".join(steps), (), kind)
    name = whole if len("-".join(steps)) + len(kind) < MOST_NAME else card_name(f"{steps[0]}_to_{steps[-1]}", (str(len(steps)),), kind)
    return next(each for k in count(1) if (each := name if k == 1 else f"{name[:MOST_NAME - 4]}.{k}") not in taken)


def composite(group: Sequence[Use], besides: Callable[[Use], bool] = anywhere, /, *, name: str, found: Together, parts: Sequence[Hypothesis],
              named: Mapping[int, str]) -> Card:
    """A card of several steps, each lifted from what the group has of it."""
    cards = [part.lift(some, besides) if (some := [use for use in group if named[id(use)] == part.card.name]) else part.card for part in parts]
    first, kernels = cards[0], {use.kernel for use in group}
    words = [card.carrier.steps[0].step for card in cards]
    return Card(
        name=name, title=", then ".join(words).replace("-", " "), intent=" + ".join(dict.fromkeys(c.intent for c in cards)),
        anchor=first.anchor, carrier=Carrier(kind="composite", steps=tuple(card.carrier.steps[0] for card in cards)),
        preconditions=tuple({p.id or p.sentence: p for card in cards for p in card.preconditions}.values()),
        effect=_effect_of_all(group), evidence=_evidence(group, sum(card.evidence.rejected for card in cards)),
        risk=Risk(numerics=", ".join(dict.fromkeys(card.risk.numerics for card in cards)),
                  hazards=tuple(dict.fromkeys(h for card in cards for h in card.risk.hazards)),
                  counterexamples=tuple(c for card in cards for c in card.risk.counterexamples)[:MOST_COUNTEREXAMPLES]),
        scope=_scope(group[0].item, group).model_copy(update={"requires": first.scope.requires, "conflicts": (), "prior": first.scope.prior}),
        log=(Entry(what="lifted", outcome=f"found together in {len(kernels)} kernels; {found.lift:g} times as often as if the steps were independent"),),
    )


def _effect_of_all(group: Sequence[Use]) -> Effect:
    """Speedups of all steps of a kernel, multiplied."""
    by_kernel: dict[str, dict[str, float]] = {}
    for use in group:
        products = by_kernel.setdefault(use.walked.key, {})
        for target, ratio in use.transition.speedups.items():
            products[target] = products.get(target, 1.0) * ratio
    forecast: dict[str, list[float]] = {}
    for products in by_kernel.values():
        for target, ratio in products.items():
            forecast.setdefault(target, []).append(ratio)
    return Effect(forecast=_spreads(forecast), realized=sum(use.transition.realized for use in group), compared=sum(use.transition.compared for use in group))
