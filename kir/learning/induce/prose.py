"""The prose of a card: what the skill does, when it is right, when it pays and how much, what goes wrong; with code before and after on each
surface that can say it, from the smallest kernel of its evidence. Every figure is read off the card."""
from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from textwrap import wrap

from kir.base.diagnostic import KirError
from kir.base.registry import registry
from kir.ir.nodes import Program
from kir.ir.printer import program_text
from kir.learning.cards.card import Card, Parameter, Spread
from kir.learning.induce.uses import Use
from kir.rewrite import pass_class
from kir.rewrite.catalog import described
from kir.surface import backend

WIDTH = 120
MOST_LINES = 30
"""Lines of an excerpt of code."""
SURFACES = ("cuda", "triton", "tilelang")
CALLED = {"cuda": "CUDA", "triton": "Triton", "tilelang": "TileLang"}
MOST_NAMED = 8
FEW = 5
"""Kernels and values named in a sentence."""


def told(card: Card, group: Sequence[Use]) -> str:
    """The Markdown before the record."""
    parts = [f"# {card.title[:1].upper()}{card.title[1:]}", _lead(card), *_what(card),
             "## When it is right", *_right(card), "## When it pays", *_pays(card), *_then(card, group),
             "## What can go wrong", *_wrong(card), "## Before and after", *_shown(card, group), "## How it is known", *_known(card)]
    return "\n\n".join(parts) + "\n"


def _lead(card: Card) -> str:
    """The card in a sentence or two: how far it may be trusted, where it was seen, what it brings."""
    trials = [entry for entry in card.log if entry.what == "trial"]
    won, kernels = sum(bool(t.skill) for t in trials), card.evidence.kernels
    state = f"{STATES[card.state].removeprefix('a ').capitalize()}: " + (
        f"it succeeded on {won} of {len(trials)} kernels that it was not made from" if trials else "it was tried on no kernel that it was not made from")
    best = max(card.effect.forecast.items(), key=lambda row: row[1].median, default=None)
    gain = f"; forecast to make a kernel {best[1].median:.3g} times as fast ({best[0]}, median)" if best is not None and best[1].median > 1.005 else ""
    return _paragraph(f"*{state}. Seen in {kernels} kernel{_s(kernels)} on {_and([CALLED.get(each, 'the IR') for each in card.scope.surfaces])}{gain}.*")


def _paragraph(text: str) -> str:
    return "\n".join(wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))


def _list(rows: Sequence[str]) -> str:
    return "\n".join(f"- {row}" for row in rows)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def _about(name: str) -> tuple[str, str]:
    """What a pass does, by the first paragraph of its page, and why that helps, by its claim."""
    entry = next((each for each in registry("kir.passes") if each.name == name), None)
    said = described(entry).about.partition("\n\n")[0] if entry is not None else ""
    with suppress(KirError):
        return " ".join(said.split()), pass_class(name).claim
    return " ".join(said.split()), ""


def _what(card: Card) -> Iterator[str]:
    for name in card.passes:
        said, claim = _about(name)
        lead = f"`{name}`: " if len(card.passes) > 1 else ""
        yield _paragraph(f"{lead}{_sentence(said) if said else ''} {_sentence(claim) if claim else ''}".strip())
    yield _paragraph(f"It acts at {card.anchor.node and _article(card.anchor.node)} of the form `{card.anchor.pattern}`, where each `?` stands for what "
                     "differed from kernel to kernel.")
    chosen = [(move.step, p) for move in card.carrier.steps for p in move.parameters if p.role in ("fixed", "chosen")]
    if chosen:
        yield _list([_parameter(step if len(card.passes) > 1 else "", p) for step, p in chosen])
    found = [p.name for move in card.carrier.steps for p in move.parameters if p.role == "found"]
    if found:
        yield _paragraph(f"The place itself decides {_and([f'`{name}`' for name in found])}.")
    drawn = [p for move in card.carrier.steps for p in move.parameters if p.role == "drawn"]
    for p in drawn:
        yield _paragraph(f"`{p.name}` is an expression of the statement there, or of one just after it ({_and(list(map(str, p.values)))}); "
                         "what is computed most often and costs most is tried first.")
    if card.carrier.relations:
        yield "What its parameters, and the places where it acts, have in common:"
        yield _list([f"`{r.text}` {f'in {r.kernels} of {r.of} kernels' if r.of else f'in every use, in {r.kernels} kernels'}: by chance this would be so with "
                     f"probability {r.chance:.2g}." for r in card.carrier.relations])


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} `{word}`"


def _parameter(step: str, p: Parameter) -> str:
    name = f"`{step}` `{p.name}`" if step else f"`{p.name}`"
    if p.role == "fixed":
        return f"{name} is `{_value(p.values[0])}`: this makes the skill what it is."
    shown = ", ".join(f"`{_value(v)}` in {f'{n} kernel{_s(n)}' if k == 0 else n}" for k, (v, n) in enumerate(zip(p.values[:FEW], p.kernels, strict=False)))
    left = len(p.values) - FEW
    more = f" and {left} other value{_s(left)}" if left > 0 else ""
    span = f"; all lie between {p.low} and {p.high}" if p.low is not None and p.low != p.high else ""
    return f"{name} is chosen for each kernel: {shown}{more}{span}."


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _and(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" and {words[-1]}" if len(words) > 1 else words[0]


def _right(card: Card) -> Iterator[str]:
    validity = [p for p in card.preconditions if p.kind == "validity"]
    if not validity:
        yield _paragraph("Wherever its pattern matches: the step has no further condition, and its result passed the gate in every use.")
    else:
        yield _list([f"{_sentence(p.sentence)} {_came_out(p.proved, p.guarded, p.assumed, p.open, len(card.evidence.uses))}" + (f" ({p.id})" if p.id else "")
                     for p in validity])
    if card.scope.requires or card.scope.conflicts:
        needs = [*(f"needs `{each}`" for each in card.scope.requires), *(f"excludes `{each}`" for each in card.scope.conflicts)]
        yield _paragraph(f"Of the state before it, it {_and(needs)}.")
    if card.scope.prior:
        yield _paragraph(f"In every use these had been done before: {_and([f'`{each}`' for each in card.scope.prior])}.")


def _came_out(proved: int, guarded: int, assumed: int, left: int, uses: int) -> str:
    counts = [(proved, "proved"), (guarded, "checked at launch"), (assumed, "assumed"), (left, "left open")]
    said = [(n, how) for n, how in counts if n]
    if len(said) == 1 and said[0][0] == uses > 1:
        return f"{said[0][1].capitalize()} in all {uses} uses."
    text = _and([f"{how} in {n}" for n, how in said]) if said else ""
    return f"{text[:1].upper()}{text[1:]} of {uses} use{_s(uses)}." if said else "No use has a verdict on it."


def _pays(card: Card) -> Iterator[str]:
    effect = card.effect
    rows = [f"{name}: {_spread(s)}, forecast by the cost model" for name, s in effect.forecast.items()]
    rows += [f"{name}: {_spread(s)}, measured" for name, s in effect.measured.items()]
    rows += [f"{name.replace('_', ' ')}: {s.median:+.4g} (from {s.low:+.4g} to {s.high:+.4g}), as the step itself predicts"
             for name, s in effect.predicted.items()]
    if rows:
        yield _list(rows)
    if effect.compared:
        share = f"In {effect.realized} of {effect.compared} uses the compiled code changed."
        yield _paragraph(share if effect.realized else f"{share} The compiler does this by itself, or undoes it.")
    for p in card.preconditions:
        if p.kind == "profit":
            so = p.proved + p.guarded + p.assumed
            yield _paragraph(f"It helps if {p.sentence}{f' ({p.id})' if p.id else ''}: this was so in {so} use{_s(so)}"
                             f"{f', and {p.example}' if p.example and not p.id else ''}.")


def _then(card: Card, group: Sequence[Use]) -> Iterator[str]:
    """What the same kernels did next, where the step by itself is forecast to bring nothing."""
    if any(spread.median > 1.0 for spread in card.effect.forecast.values()):
        return
    later = Counter(t.name for use in group for t in use.walked.transitions if t.number == use.transition.number + 1)
    rows = [f"`{name}` ({count} times)" for name, count in sorted(later.items(), key=lambda row: (-row[1], row[0]))[:3]]
    yield _paragraph("By itself it is not forecast to gain anything." + (f" It makes way for others: most often {_and(rows)} came next." if rows else ""))


def _spread(s: Spread) -> str:
    speed = "as fast as before" if f"{s.median:.3g}" == "1" else f"{s.median:.3g} times as fast"
    if s.uses == 1:
        return f"{speed}, in one use"
    return f"{speed} (middle half {s.low:.3g} to {s.high:.3g}, {s.uses} uses)"


def _wrong(card: Card) -> Iterator[str]:
    kinds = {"bitwise": "The result keeps every bit."}
    yield _paragraph(kinds.get(card.risk.numerics, f"The result may differ in rounding: {card.risk.numerics.replace('-', ' ')}."))
    refused = [p for p in card.preconditions if p.refused and p.id]
    rows = [f"Refused {_times(p.refused)} by {p.id}, which asks that {_started(p.sentence)}. For example: {_plain(p.example)}" for p in refused]
    rows += [f"On program {c.program[:12]}, `{c.step[:80]}` went wrong: {c.says}" for c in card.risk.counterexamples]
    if rows:
        yield _list(rows)
    else:
        other = f" for one of its conditions; for other reasons it was turned down {_times(card.evidence.rejected)}" if card.evidence.rejected else ""
        yield _paragraph(f"No walk turned it down{other}.")


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _started(sentence: str) -> str:
    """A sentence as the second part of another one."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _plain(reason: str) -> str:
    """A reason without the id that it starts with, as a sentence."""
    return _sentence(re.sub(r"^KIR-P\d+: ", "", reason.strip()))


def _shown(card: Card, group: Sequence[Use]) -> Iterator[str]:
    """The smallest use that changed the compiled code, else the smallest: the IR as a difference, then the code of each surface that says both programs."""
    some = sorted(group, key=lambda u: (not u.transition.realized, len(u.walked.programs[u.transition.before_text]), u.walked.key, u.transition.number))
    if card.carrier.kind == "composite":
        some = [use for use in some if use.walked.key == some[0].walked.key]
        some.sort(key=lambda u: u.transition.number)
        before, after = some[0].before, some[-1].after
    else:
        before, after = some[0].before, some[0].after
    yield _paragraph(f"In `{some[0].kernel}`, the smallest kernel that uses it{' and is compiled to other code' if some[0].transition.realized else ''}:")
    yield _fenced("diff", _difference(program_text(before), program_text(after)))
    code = {surface: (_emitted(surface, before), _emitted(surface, after)) for surface in SURFACES}
    for surface, both in code.items():
        if both[0] and both[1] and both[0] != both[1]:
            yield f"In {CALLED[surface]}:\n\n{_fenced('diff', _difference(*both))}"
    if same := [CALLED[surface] for surface, both in code.items() if both[0] and both[0] == both[1]]:
        yield _paragraph(f"In {_and(same)} the text is the same: what the step decides is left to the compiler, or to how the kernel is launched.")
    if left := [CALLED[surface] for surface, both in code.items() if not both[1]]:
        yield _paragraph(f"The program after it cannot be said in {_and(left)}.")


def _emitted(surface: str, program: Program) -> str:
    with suppress(KirError, StopIteration):
        chosen = backend(surface)
        if not list(chosen.accepts(program)):
            return chosen.emit(program).text
    return ""


def _difference(before: str, after: str) -> str:
    rows = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]
    rows = [row if not row.startswith("@@") else "..." for row in rows][:MOST_LINES + 1]
    return "\n".join(rows if len(rows) <= MOST_LINES else [*rows[:MOST_LINES], "..."])


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _few(families: Sequence[str]) -> str:
    return _and(families) if len(families) <= MOST_NAMED else f"{len(families)} families, among them {_and(families[:FEW])}"


STATES = {"hypothesis": "a hypothesis", "admitted": "admitted", "negative": "known not to help", "deprecated": "deprecated", "retired": "retired"}


def _known(card: Card) -> Iterator[str]:
    scope = card.scope
    uses, kernels = len(card.evidence.uses), card.evidence.kernels
    yield _paragraph(f"It was lifted from {uses} use{_s(uses)} in {kernels} kernel{_s(kernels)} of {_few(scope.families)}, "
                     f"from {_and(scope.packages)}, "
                     f"written in {_and([CALLED.get(each, 'the IR') for each in scope.surfaces])}, compiled for {_and(scope.platforms)}.")
    yield _paragraph(f"It is {STATES[card.state]}{f': {card.why}' if card.why else ''}.")
    trials = [entry for entry in card.log if entry.what == "trial"]
    if trials:
        yield "\n".join(["| tried on | with it | without it | forecast of the step | how |", "| --- | --- | --- | --- | --- |", *(
            f"| `{t.kernel}` | {'succeeded' if t.skill else 'failed'} | {'succeeded' if t.without else 'failed'} | "
            f"{f'{t.speedup[0]:.3g}x ({t.speedup[1]:.3g} to {t.speedup[2]:.3g})' if t.speedup else 'none'} | {t.outcome} |" for t in trials)])
