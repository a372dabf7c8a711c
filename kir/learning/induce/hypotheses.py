"""Hypotheses: what the uses of one kind have in common, as a card that no trial has seen yet."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, quantiles

from kir.ir.measures.features import KINDS, features, kinds
from kir.learning.cards.card import Anchor, Card, Carrier, Counterexample, Effect, Entry, Evidence, Move, Parameter, Precondition, Risk, Scope, Spread, Value
from kir.learning.cards.card import Use as Listed
from kir.learning.evidence.walked import Rejected, Walked
from kir.learning.induce.composites import Together, together
from kir.learning.induce.relate import related
from kir.learning.induce.unify import shown, term, unified
from kir.learning.induce.uses import Use, by_kind, decided, forms
from kir.rewrite import Pass
from kir.rewrite.base import parameter_types

MOST_VALUES = 12
MOST_COUNTEREXAMPLES = 4
LEAST_FAILURES = 3
"""Failures from which a condition is learned."""
PLACES = {"kernel": "a whole kernel", "for": "a loop", "mma": "a matrix product", "store": "a store", "let": "a named value", "alloc": "a buffer",
          "copy": "a copy", "roles": "warps with roles of their own", "eval": "a call", "if": "a branch", "while": "a loop without a count",
          "view": "a view of memory"}
"""What kinds of places are called."""


def hypotheses(walks: Sequence[Walked], found: Sequence[Use]) -> tuple[Card, ...]:
    """A card for each kind of use, and one for each sequence of steps that come together; in order of name."""
    rejected = [(each, r) for each in walks for r in each.rejected]
    groups = by_kind(found)
    cards = [lifted(group, found, [(w, r) for w, r in rejected if r.name == key[0]]) for key, group in groups.items()]
    named = {id(use): card.name for card, group in zip(cards, groups.values(), strict=True) for use in group}
    runs: dict[str, list[str]] = {}
    for use in sorted(found, key=lambda u: (u.walked.key, u.transition.number)):
        runs.setdefault(use.walked.key, []).append(named[id(use)])
    by_name = {card.name: card for card in cards}
    cards += [composite(each, by_name, found, named) for each in together(runs)]
    return tuple(sorted(cards, key=lambda card: card.name))


def lifted(group: Sequence[Use], found: Sequence[Use], rejected: Sequence[tuple[Walked, Rejected]]) -> Card:
    """What uses of one pass in one form at one kind of place have in common."""
    first = group[0].item
    named = tuple(name for name in forms([use for use in found if use.item.name == first.name]))
    parameters = tuple(made for name in parameter_types(type(first)) if (made := _parameter(group, name, name in named)) is not None)
    open_ = {each.name for each in parameters if each.role == "chosen"}
    rows = [(use.kernel, {k: v for k, v in use.parameters.items() if k in open_ and isinstance(v, int) and not isinstance(v, bool)}, use.facts)
            for use in group]
    background = [use.facts for use in found if use.kind == group[0].kind]
    pattern = shown(unified([term(use.node) for use in group]))
    return Card(
        name=card_name(first.name, [str(getattr(first, name)) for name in named if getattr(first, name) != _default(first, name)], group[0].kind),
        title=f"{first.intent or first.name} at {PLACES.get(group[0].kind, group[0].kind)}", intent=first.intent or first.name,
        anchor=Anchor(node=group[0].kind, pattern=pattern[:400], places=len(group)),
        carrier=Carrier(kind="pass", steps=(Move(step=first.name, parameters=parameters),), relations=related(rows, background)),
        preconditions=(*_declared(first, group, rejected), *_learned(group, rejected)),
        effect=_effect(group), evidence=_evidence(group, len(rejected)), risk=_risk(first, group, rejected), scope=_scope(first, group),
        log=(Entry(what="lifted", outcome=f"from {len(group)} uses in {len({use.kernel for use in group})} kernels"),),
    )


def card_name(step: str, words: Sequence[str], kind: str) -> str:
    """The name of a card: the pass, its form, the kind of place."""
    parts = [re.sub(r"[^a-z0-9]+", "-", each.lower()).strip("-") for each in (step, *words, kind)]
    return ".".join(each for each in parts if each)[:64].rstrip(".-_")


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
    plain = all(isinstance(v, (bool, int, float)) or (isinstance(v, str) and re.fullmatch(r"[\w.-]*", v)) or
                (isinstance(v, tuple) and all(isinstance(x, int) for x in v)) for v in values)
    if not plain or decided(group, name):
        return Parameter(name=name, role="found")
    numbers = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    ends = {"low": min(numbers), "high": max(numbers)} if len(numbers) == len(values) else {}
    return Parameter(name=name, role="chosen", values=tuple(values[:MOST_VALUES]), kernels=tuple(len(by_value[v]) for v in values[:MOST_VALUES]), **ends)


def _declared(item: Pass, group: Sequence[Use], rejected: Sequence[tuple[Walked, Rejected]]) -> Iterable[Precondition]:
    """The pass's own conditions, with how each came out where the step worked, and how often it was what refused one."""
    for p in item.preconditions:
        verdicts = Counter(c.verdict for use in group for c in use.transition.conditions if c.id == p.id)
        refusals = [r.reason for _, r in rejected if r.condition == p.id]
        yield Precondition(id=p.id, kind=p.kind, category=p.category, sentence=p.sentence, proved=verdicts["proved"], guarded=verdicts["guarded"],
                           assumed=verdicts["assumed"], open=verdicts["unknown"] + verdicts["refuted"], refused=len(refusals),
                           example=refusals[0] if refusals else "")


def _learned(group: Sequence[Use], rejected: Sequence[tuple[Walked, Rejected]]) -> Iterable[Precondition]:
    """State features that every program has which the step made, and that most of those lack on which it could not be taken back (or the other
    way round): what held wherever it worked, minus what held where it failed."""
    failed = [kinds(features(w.program(r.program_text))) for w, r in rejected if r.program_text in w.programs]
    if len(failed) < LEAST_FAILURES:
        return
    worked = [kinds(features(use.after)) for use in group]
    for feature, says in sorted(KINDS.items()):
        always, never = all(feature in each for each in worked), all(feature not in each for each in worked)
        against = sum((feature not in each) if always else (feature in each) for each in failed)
        if (always or never) and 2 * against > len(failed):
            said = f"in the program that it makes {says}" if always else f"it is not so that, in the program that it makes, {says}"
            yield Precondition(kind="profit", category="pipeline", sentence=said, proved=len(worked), refused=against,
                               example=f"otherwise in {against} of {len(failed)} programs on which it failed")


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
                     transition=use.transition.number, before=use.transition.before[:16], after=use.transition.after[:16])
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
    return Scope(families=tuple(sorted({w.family for w in walks})), packages=tuple(sorted({w.package for w in walks})),
                 surfaces=tuple(sorted({w.surface for w in walks})), platforms=tuple(sorted({t for w in walks for t in w.targets})),
                 requires=tuple(item.requires), conflicts=tuple(item.conflicts), prior=tuple(sorted(set.intersection(*before))))


def composite(found: Together, cards: Mapping[str, Card], uses: Sequence[Use], named: Mapping[int, str]) -> Card:
    """A card of several steps, from the cards of each and from the kernels that have all of them."""
    parts = [cards[name] for name in found.items]
    group = [use for use in uses if use.walked.key in found.kernels and named[id(use)] in found.items]
    last, first = parts[-1], parts[0]
    told = ", ".join(part.carrier.steps[0].step for part in parts)
    scope = first.scope
    return Card(
        name=card_name("+".join(part.carrier.steps[0].step for part in parts), (), parts[0].anchor.node),
        title=f"{told}, together", intent=" + ".join(dict.fromkeys(part.intent for part in parts)),
        anchor=first.anchor, carrier=Carrier(kind="composite", steps=tuple(part.carrier.steps[0] for part in parts)),
        preconditions=tuple({p.id or p.sentence: p for part in parts for p in part.preconditions}.values()),
        effect=_effect_of_all(group, found), evidence=_evidence(group, sum(part.evidence.rejected for part in parts)),
        risk=Risk(numerics=", ".join(dict.fromkeys(part.risk.numerics for part in parts)), hazards=tuple(dict.fromkeys(h for part in parts for h in part.risk.hazards)),
                  counterexamples=tuple(c for part in parts for c in part.risk.counterexamples)[:MOST_COUNTEREXAMPLES]),
        scope=Scope(families=tuple(sorted({u.walked.family for u in group})), packages=tuple(sorted({u.walked.package for u in group})),
                    surfaces=tuple(sorted({u.walked.surface for u in group})), platforms=tuple(sorted({t for u in group for t in u.walked.targets})),
                    requires=scope.requires, conflicts=(), prior=scope.prior),
        log=(Entry(what="lifted", outcome=f"found together in {found.support} kernels, {found.lift:g} times as often as if they were independent; "
                                          f"the last is {last.name}"),),
    )


def _effect_of_all(group: Sequence[Use], found: Together) -> Effect:
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
