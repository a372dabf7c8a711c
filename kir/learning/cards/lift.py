"""From a lineage to cards: one for each forward transition, with what was verified and nothing more."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

from kir.learning.cards.card import Anchor, Card, Carrier, Effect, Entry, Evidence, Precondition, Risk, Scope
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage, Step

MOST_LINES = 40
"""Lines of the before/after excerpt that a card shows at most."""


def cards_of(lineage: Lineage, folder: Folder) -> tuple[Card, ...]:
    """One card for each accepted step, in forward order; each names the intents applied before it as its prior state."""
    made: list[Card] = []
    prior: list[str] = []
    for number, step in lineage.transitions():
        assert step.after is not None
        before, after = folder.store.get(step.after.text), folder.store.get(step.before.text)
        card = _card(lineage, number, step, tuple(prior))
        made.append(card.model_copy(update={"prose": prose(card, step, before, after)}))
        prior.append(step.intent)
    return tuple(made)


def speedups(step: Step) -> dict[str, float]:
    """Modelled speedup of the forward step by target: above 1 when the optimized side is faster."""
    assert step.after is not None
    slow, fast = step.after.modelled, step.before.modelled
    return {target: round(slow[target] / fast[target], 4) for target in sorted(slow) if fast.get(target)}


def measured_speedups(step: Step) -> dict[str, tuple[float, float, float]]:
    """Measured speedup of the forward step by device, with the interval that the two medians' intervals allow."""
    assert step.after is not None
    slow, fast = step.after.measured, step.before.measured
    return {name: (a[0] / b[0], a[1] / b[2], a[2] / b[1]) for name in sorted(slow) if name in fast for a, b in ((slow[name], fast[name]),)}


def _card(lineage: Lineage, number: int, step: Step, prior: tuple[str, ...]) -> Card:
    header = lineage.header
    assert step.after is not None
    realization = step.realization
    pattern, _, place = step.forward.partition("@")
    return Card(
        name=_slug(f"{header.expert}-{number:02}-{step.intent}"),
        intent=step.intent,
        anchor=Anchor(place=step.anchor or place, pattern=_pass_name(pattern)),
        carrier=Carrier(kind="pass", text=step.forward),
        preconditions=tuple(
            Precondition(id=each.id, kind=each.kind, category=each.category, sentence=each.sentence, verdict=each.verdict, detail=each.detail)
            for each in step.conditions
        ),
        effect=Effect(modelled=speedups(step), measured={k: round(v[0], 4) for k, v in measured_speedups(step).items()},
                      predicted={name: float(value) for name, value in sorted(step.effect.items())}),
        evidence=Evidence(
            lineage=lineage.seal,
            transition=number,
            before=step.after.content,
            after=step.before.content,
            gate=header.gate,
            realized=bool(realization and realization.realized),
            differences=realization.differences if realization else {},
        ),
        risk=Risk(
            numerics=step.numerics or "not stated",
            hazards=tuple(f"wrong unless {each.sentence[:1].lower()}{each.sentence[1:]} ({each.id})" for each in step.conditions if each.kind == "validity"),
            residue_bytes=step.residue_bytes,
        ),
        scope=Scope(case=header.problem or "the kernel itself", surface=header.surface, platforms=header.targets, prior=prior),
        log=(
            Entry(what="undone and gated", outcome="compiled and correct", tools=header.tools),
            Entry(what="replayed forward", outcome="the expert side's hash was restored"),
        ),
    )


def prose(card: Card, step: Step, before: str, after: str) -> str:
    """The Markdown below the front matter: the step for a reader, with an excerpt of the IR before and after."""
    lines = [f"# {card.intent}", "", *([step.claim, ""] if step.claim else [])]
    where = f"`{card.carrier.text}`"
    told = f"Transition {card.evidence.transition} of a walk over *{card.scope.case}* ({card.scope.surface}): {where}, acting at "
    told += f"`{card.anchor.place}`."
    lines += [*wrap(told, 110, break_long_words=False, break_on_hyphens=False), "", "## What changes", "", "```diff"]
    lines += [*_excerpt(before, after), "```", "", "## When it is sound", ""]
    lines += [f"- **{each.id}** ({each.category}, {each.verdict}): {_sentence(each.sentence)}{_aside(each.detail)}" for each in card.preconditions]
    if not card.preconditions:
        lines.append("Wherever the anchor's pattern matches: the pass declares no further condition.")
    lines += ["", "## What it brought", "", *_effect_lines(card), "", "## What can go wrong", ""]
    lines.append(f"Numerics: {card.risk.numerics}. Restoring the original takes {card.risk.residue_bytes} bytes beside the parameters.")
    lines += [f"- {each}" for each in card.risk.hazards]
    prior = ", ".join(card.scope.prior) if card.scope.prior else "nothing: this is the first step from the naive program"
    lines += [
        "",
        "## Where it was verified",
        "",
        f"On {', '.join(card.scope.platforms) or 'no target'}, {card.evidence.gate.upper()} gate. Done before it: {prior}.",
    ]
    return "\n".join(["", *lines, ""])


def _effect_lines(card: Card) -> Iterator[str]:
    for target, ratio in card.effect.modelled.items():
        yield f"- {target}: {ratio:.3g}x (modelled, not measured)"
    for device, ratio in card.effect.measured.items():
        yield f"- {device}: {ratio:.3g}x (measured)"
    for name, value in card.effect.predicted.items():
        if value:
            yield f"- {name.replace('_', ' ')}: {value:+g} (the pass's prediction)"
    if card.evidence.realized:
        told = "; ".join(f"{what}: {change}" for what, change in sorted(card.evidence.differences.items()))
        yield f"- the compiled code differs{f' ({told})' if told else ''}"
    else:
        yield "- the compiled code does not differ: the compiler does this by itself, or undoes it, so no claim of profit is made"


def _excerpt(before: str, after: str) -> Sequence[str]:
    rows = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]
    if len(rows) > MOST_LINES:
        return [*rows[:MOST_LINES], f"  ... {len(rows) - MOST_LINES} more lines"]
    return rows


def _aside(detail: str) -> str:
    return f" *Here: {_sentence(detail, capital=False)}*" if detail else ""


def _sentence(text: str, capital: bool = True) -> str:
    """A clause as a sentence."""
    return (text[:1].upper() if capital else text[:1]) + text[1:] + ("" if text.endswith((".", "?", ")")) else ".")


def _pass_name(text: str) -> str:
    return text.partition("{")[0].strip()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9_.-]+", "-", text.lower()).strip("-._")
