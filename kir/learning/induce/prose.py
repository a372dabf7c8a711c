"""The prose of a card: what the skill does, when it is right, when it pays and how much, what goes wrong; with code before and after on each
surface that can say it, from the smallest kernel of its evidence. Every figure is read off the card."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from math import prod
from statistics import median
from textwrap import wrap

from kir.base.diagnostic import KirError
from kir.base.registry import registry
from kir.ir.measures.features import KINDS
from kir.ir.nodes import Program
from kir.ir.printer import program_text
from kir.learning.cards.card import FAMILY, Card, Counterexample, Move, Parameter, Relation, Spread
from kir.learning.cards.facts import SAYS, words_of
from kir.learning.evidence.answers import HASH
from kir.learning.induce.excerpt import difference
from kir.learning.induce.hypotheses import PLACES
from kir.learning.induce.mechanism import moved
from kir.learning.induce.transfers import FASTER
from kir.learning.induce.trials import LED, came_to, factor, fault, how_tried
from kir.learning.induce.uses import Use
from kir.rewrite import pass_class
from kir.rewrite.base import parameter_types
from kir.rewrite.catalog import described
from kir.surface import backend

WIDTH = 120
SURFACES = ("cuda", "triton", "tilelang")
CALLED = {"cuda": "CUDA", "triton": "Triton", "tilelang": "TileLang"}
ACRONYMS = {each.lower(): each for each in ("TMA", "MMA", "WGMMA", "CTA", "L2", "GEMM", "SIMT", "GPU")}
PLAIN = frozenset({"kernel", "of", "for", "let", "0", "copy", "mma", "acc", "via", "fma", "store", "buffer", "buffer["})
"""Words of a form that every place of its kind has."""
TO_MEMORY = {"global[?] = ?": "to global memory", "copy global[?] -> shared[?]": "from global to shared memory", "copy shared[?] -> global[?]":
             "from shared to global memory", "shared[?] = ?": "to shared memory"}
MOST_STEP = 80
MOST_FORM = 110
"""Characters of a step, and of a form, that are shown."""
MOSTLY_SAID = 0.6
"""Of the words of a pass's claim, the share that its first paragraph must have for the claim to add nothing."""
COUNTED = {"global_bytes": "bytes of global traffic", "flops": "operations on floats", "registers": "registers a thread",
           "shared_bytes": "bytes of shared memory", "occupancy": "CTAs on an SM"}
"""What an effect counts."""
MOST_NAMED = 8
FEW = 5
"""Kernels and values named in a sentence."""
AS_BEFORE = 0.005
"""Within which of 1x a program is said to be about as fast as before."""
DRAWN = {"binary": "arithmetic or a comparison of two values", "unary": "a negation", "call": "a function of values", "cast": "a conversion", "load": "a load",
         "select": "a selection"}
"""What kinds of expressions are called."""
FAR = 4.0
"""How many times the next gain the largest one is where it is said to be far from it."""
NEXT = 3
"""Steps after one that brings nothing by itself with which it is told what they bring together."""
OTHERWISE = 2.0
"""How many times the median of all uses that of one kind of kernel is, where both are told."""
SHARED = 30.0
"""Speedups from which on it is told that one thread's work became that of a CTA."""
LEAST_OF_A_KIND = 3
"""Uses of which it is told how many gain, and in kernels of one kind what their median is."""


def told(card: Card, group: Sequence[Use]) -> str:
    """The Markdown before the record."""
    parts = [f"# {_title(card.title)}", _lead(card, group), *_what(card, group),
             "## When it is right", *_right(card, group),
             "## When it pays", *_pays(card, group), *_where(card, group), *map(_paragraph, moved(card, group)), *_beside(card, group),
             "## What can go wrong", *_wrong(card), "## Before and after", *_shown(card, group), "## How it is known", *_known(card)]
    return "\n\n".join(parts) + "\n"


def _title(title: str) -> str:
    """A title with a capital, and acronyms as they are written."""
    words = re.sub(r"[A-Za-z0-9]+", lambda found: ACRONYMS.get(found[0], found[0]), title)
    return words[:1].upper() + words[1:]


def _lead(card: Card, group: Sequence[Use]) -> str:
    """The card in a sentence or two: how far it may be trusted, where it was seen, what it brings."""
    trials = [entry for entry in card.log if entry.what == "trial"]
    won, kernels = sum(bool(t.skill) for t in trials), card.evidence.kernels
    alone = next((f" for {p.sentence.removeprefix('the kernel is of ')} alone" for p in card.preconditions if p.category == FAMILY), "")
    state = f"{STATES[card.state].removeprefix('a ').capitalize()}{alone}: " + (
        f"{won} of {len(trials)} trial{_s(len(trials))} succeeded, each on a kernel whose package or family it had not seen" if trials else
        "it was tried on no kernel that it was not made from")
    lost = sum(bool(t.without) for t in trials)
    state += f" (without it {lost})" if trials else ""
    how, found = ("measured", card.effect.measured) if card.effect.measured else ("forecast", card.effect.forecast)
    most = max(found.items(), key=lambda row: row[1].uses, default=None)
    gain = (f"; {how} to make a kernel {factor(most[1].median)} times as fast ({most[0]}, "
            f"{'in its one use' if most[1].uses == 1 else f'median of {most[1].uses} uses'}{_apart(card, group) if how == 'forecast' else ''}"
            f"{f', a quarter of them below {factor(most[1].low)}' if most[1].low < 1 / FASTER else ''})"
            if most is not None and most[1].median > 1.005 else "")
    return _paragraph(f"*{state}. Seen in {_count(kernels, 'kernel')} on {_and([CALLED.get(each, 'the IR') for each in card.scope.surfaces])}{gain}.*")


def _apart(card: Card, group: Sequence[Use]) -> str:
    """The kind of kernel in which a step is forecast to bring far more than the median of all uses says, which are mostly of others."""
    _, seen = _ratios(card, group)
    kinds = _by_kind(seen)
    if len(kinds) < 2 or kinds[0][0] < OTHERWISE * median(ratio for ratio, _ in seen):
        return ""
    return f", {factor(kinds[0][0])} in {_kind(kinds[0][1])}"


def _by_kind(seen: Sequence[tuple[float, Use]]) -> list[tuple[float, str, int]]:
    """The median of uses in kernels of each kind of which there are some, and how many: the kind that gains most first."""
    kinds = {name: [ratio for ratio, use in seen if use.walked.family == name] for name in sorted({use.walked.family for _, use in seen})}
    return sorted(((median(found), name, len(found)) for name, found in kinds.items() if len(found) >= LEAST_OF_A_KIND), key=lambda row: (-row[0], row[1]))


def _kind(family: str) -> str:
    return "kernels of no named kind" if family == "other" else family


def _count(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number} {what}s"


def _paragraph(text: str) -> str:
    return "\n".join(wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))


def _list(rows: Sequence[str]) -> str:
    return "\n".join(f"- {row}" for row in rows)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def _about(name: str) -> tuple[tuple[str, ...], str]:
    """What a pass does, by the paragraphs of its page before the example, and why that helps, by its claim."""
    entry = next((each for each in registry("kir.passes") if each.name == name), None)
    said = described(entry).about.split("\n\n") if entry is not None else []
    told_ = tuple(" ".join(each.split()) for each in takewhile(lambda each: not each.startswith(("before:", "pipeline:")), said))
    with suppress(KirError):
        return told_, pass_class(name).claim
    return told_, ""


def _left_as_they_are(card: Card, group: Sequence[Use]) -> Iterator[tuple[str, object]]:
    """The parameters that the pass tells of, that the card says nothing of, and that were the same in all uses, with what they were: whoever reads what a
    parameter does wants to know what it is. Of a card of one step alone."""
    if len(card.carrier.steps) == 1:
        move, meant = card.carrier.steps[0], _meant(card.passes[0])
        said = {p.name for p in move.parameters}
        found = {name: {str(value): value for use in group if (value := getattr(use.item, name, None)) is not None}
                 for name in parameter_types(pass_class(move.step)) if name not in said and f"`{name}`" in meant}
        yield from ((name, value) for name, values in found.items() if len(values) == 1 for value in values.values() if value not in ("", ()))


def _what(card: Card, group: Sequence[Use]) -> Iterator[str]:
    for name in card.passes:
        said, claim = _about(name)
        lead = f"`{name}`: " if len(card.passes) > 1 else ""
        claim = "" if _says_the_same(" ".join(said[:1]), claim) else claim
        yield _paragraph(f"{lead}{_sentence(said[0]) if said else ''} {_sentence(claim) if claim else ''}".strip())
        yield from map(_paragraph, said[1:])
    yield _paragraph(_place(card.anchor.node, card.anchor.pattern))
    chosen = [(move.step, p) for move in card.carrier.steps for p in move.parameters if p.role in ("fixed", "chosen")]
    for name in [each.step for each in card.carrier.steps if each.parameters]:
        if meant := _meant(name):
            yield _paragraph(f"{f'Of `{name}`: ' if len(card.passes) > 1 else ''}{meant}")
    if chosen:
        yield _list([_parameter(step if len(card.passes) > 1 else "", p, card.evidence.kernels) for step, p in chosen])
    if left := [f"`{name}` is {_value(value)}" for name, value in _left_as_they_are(card, group)]:
        yield _paragraph(f"In every kernel {_and(left)}.")
    for move in card.carrier.steps:
        if len(move.ways) > 1:
            ways = "; ".join(_way(move, way) for way in move.ways[:3])
            yield _paragraph(f"{f'Of `{move.step}`: ' if len(card.passes) > 1 else ''}What kernels chose together, the most frequent first: {ways}.")
    found = [p.name for move in card.carrier.steps for p in move.parameters if p.role == "found"]
    if found:
        yield _paragraph(f"The place itself decides {_and([f'`{name}`' for name in found])}.")
    drawn = [p for move in card.carrier.steps for p in move.parameters if p.role == "drawn"]
    for p in drawn:
        kinds_ = _or([DRAWN.get(str(each), str(each)) for each in p.values])
        yield _paragraph(f"Tried for `{p.name}` are expressions of the statement there, or of one just after it ({kinds_}), first what is computed most often "
                         "and costs most.")
    if _telling(card.carrier.relations):
        yield "What its parameters, and the places where it acts, have in common:"
        open_ = {p.name for move in card.carrier.steps for p in move.parameters}
        said_ = _telling(card.carrier.relations)
        yield _list([_relation(r, card.evidence.kernels) for r in said_])
        free = [any(word in open_ for word in words_of(r.text)) for r in said_]
        drawn_from = [] if all(free) else ["as many places of this kind, drawn at random, would have it in common"]
        drawn_from += ["the kernels would keep it if each had the parameters of another one"] if any(free) else []
        yield _paragraph(f"The chance is that {' or, for what names a parameter, that '.join(drawn_from)}: the smaller, the less likely an accident.")
        named = [word for word in SAYS if any(word in words_of(r.text) for r in said_)]
        if named:
            yield _paragraph(f"Here {_and([f'`{word}` is {SAYS[word]}' for word in named])}.")


def _way(move: Move, way: Sequence[object]) -> str:
    chosen = [p.name for p in move.parameters if p.role == "chosen"]
    return ", ".join(f"`{name}` {_value(value)}" for name, value in zip(chosen, way, strict=True))


def _meant(name: str) -> str:
    """What a pass says of its parameters; nothing where it says that it has none."""
    entry = next((each for each in registry("kir.passes") if each.name == name), None)
    said = " ".join(described(entry).parameters.split()) if entry is not None else ""
    return "" if said.startswith("No parameters") else said


def _telling(relations: Sequence[Relation]) -> list[Relation]:
    """The relations that say more than another one: a product is a multiple of what one of its factors is a multiple of, and the next power of two is when a
    number is."""
    multiples = {(left.strip(), int(of)) for r in relations if not r.of
                 for left, _, of in (r.text.removesuffix(" == 0").rpartition(" % "),) if left and of.isdigit()}

    def follows(r: Relation) -> bool:
        left, _, of = r.text.removesuffix(" == 0").rpartition(" % ")
        factors = left.split(" * ")
        return bool(left and of.isdigit() and len(factors) > 1) and any(factor in factors and not more % int(of) for factor, more in multiples)
    counted = {r.text for r in relations}
    return [r for r in relations if not follows(r) and r.text != "power % 2 == 0" and not (r.text.startswith("power ") and (
        r.text.replace("power ", "trips ", 1) in counted))]  # a power of two always is even


def _says_the_same(said: str, claim: str) -> bool:
    """Whether most words of a claim stand in what was said before it."""
    first, second = (set(re.findall(r"[a-z]{3,}", text.lower())) for text in (said, claim))
    return bool(second) and len(first & second) >= MOSTLY_SAID * len(second)


def _place(node: str, pattern: str) -> str:
    """Where a step acts: the kind of place, and its form where that says more than what every place of the kind has."""
    at = PLACES.get(node, _article(node))
    form = re.sub(r"\?\d+|\.\.", "?", pattern)
    if not {*re.findall(r"[\w\[]+", form)} - {node, *PLAIN}:
        return f"It acts at {at}."
    if form in TO_MEMORY:
        return f"It acts at {at} {TO_MEMORY[form]}."
    if len(pattern) > MOST_FORM:
        pattern = f"{pattern[:MOST_FORM].rpartition(';')[0] or pattern[:MOST_FORM].rpartition(' ')[0]}; .."
    open_ = sorted(set(re.findall(r"\?\d+", pattern)), key=lambda name: int(name[1:]))
    free = f", where {_and([f'`{each}`' for each in open_])} stand{'s' if len(open_) == 1 else ''} for what differed from kernel to kernel" if open_ else ""
    return f"It acts at {at} of the form `{pattern}`{free}."


def _relation(r: Relation, kernels: int) -> str:
    """A relation in words, in how many kernels it holds, and how likely that is by chance; of more kernels than use the skill are those of the step's other
    forms."""
    left, _, of = r.text.removesuffix(" == 0").rpartition(" % ")
    said = f"`{left}` is a multiple of {of if of.isdigit() else f'`{of}`'}" if left else f"`{r.text}`"
    told = f"{r.kernels} of {r.of} kernels" if r.of else f"every use, in {r.kernels} kernels"
    return f"{said} in {told}{', counting other forms of the step' if max(r.kernels, r.of) > kernels else ''} (chance {_chance(r.chance)})."


def _chance(share: float) -> str:
    """A probability as people say it: in percent, or one in so many; what is beyond a million is not told apart."""
    if share >= 0.01:
        return f"{100 * share:.0f} %"
    return f"1 in {float(f'{1 / share:.1g}'):,.0f}" if share > 1e-6 else "less than 1 in a million"


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} `{word}`"


def _all(many: int) -> str:
    return "both" if many == 2 else f"all {many}"


def _or(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _parameter(step: str, p: Parameter, kernels: int) -> str:
    name = f"`{step}` `{p.name}`" if step else f"`{p.name}`"
    if p.name == "answer" and len(p.values) == 1 and HASH.fullmatch(str(p.values[0])):
        return f"{name} was recognized in the kernel by what it computes; it is kept under its hash, `{p.values[0]}`."
    if p.role == "fixed":
        return f"{name} is always {f'`{_value(p.values[0])}`' if p.values[0] != '' else 'left empty'}."
    if len(p.values) == 1 and (seen := next(iter(p.kernels), 0)):
        return f"{name} is `{_value(p.values[0])}` in {_all(kernels) if seen == kernels > 1 else seen} kernel{_s(seen)}."
    shown = ", ".join(f"`{_value(v)}` in {f'{n} kernel{_s(n)}' if k == 0 else n}" for k, (v, n) in enumerate(zip(p.values[:FEW], p.kernels, strict=False)))
    more = f" and {left} other value{_s(left)}" if (left := len(p.values) - FEW) > 0 else ""
    known = "; one under a hash was recognized in its kernel by what it computes" * (p.name == "answer" and any(HASH.fullmatch(str(v)) for v in p.values))
    span = f"; all lie between {p.low} and {p.high}" if left > 0 and p.low is not None and p.low != p.high else ""
    return f"{name} is chosen for each kernel: {shown}{more}{span}{known}."


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _and(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" and {words[-1]}" if len(words) > 1 else words[0]


def _so_many(so: int, of: int, what: str) -> str:
    """A part of some things: all of them, none, or so many of so many."""
    whole = f"its one {what}" if of == 1 else f"{_all(of)} {what}s"
    return whole if so == of else f"{so or 'none'} of {of} {what}{_s(of)}"


def _elsewhere(tally: str) -> str:
    """How trials on other kinds of kernels came out, by what the record says: `0 of 2 trials on other kernels succeeded, 1 without the skill`."""
    won, of, without = map(int, re.findall(r"\d+", tally))
    said = f"of {of} on other kernels {won or 'none'} did" if of > 1 else f"the one on another kernel did{'' if won else ' not'}"
    return f"{said} ({without} did without it)" if without else said


def _asked(group: Sequence[Use], id_: str) -> int:
    """The uses that a condition is asked of: those of the passes that declare it."""
    return sum(any(p.id == id_ for p in use.item.preconditions) for use in group) or len(group)


def _right(card: Card, group: Sequence[Use]) -> Iterator[str]:
    validity = [p for p in card.preconditions if p.kind == "validity"]
    if not validity:
        yield _paragraph("Wherever its pattern matches: the step has no further condition, and its result passed the gate in every use.")
    else:
        yield _list([f"{_sentence(p.sentence)} {_came_out(p.proved, p.guarded, p.assumed, p.open, _asked(group, p.id))}" + (f" ({p.id})" if p.id else "")
                     for p in validity])
    for says, some in (("It needs, in the program before it,", card.scope.requires), ("It is not for a program that has", card.scope.conflicts)):
        if some:
            yield _paragraph(f"{says} {_and([f'`{each}`' + (f' ({KINDS[each]})' if each in KINDS else '') for each in some])}.")
    if card.scope.prior:
        yield _paragraph(f"In every use these had been done before: {_and([f'`{each}`' for each in card.scope.prior])}.")


def _came_out(proved: int, guarded: int, assumed: int, left: int, uses: int) -> str:
    counts = [(proved, "proved"), (guarded, "checked at launch"), (assumed, "assumed"), (left, "left open")]
    said = [(n, how) for n, how in counts if n]
    if len(said) == 1 and said[0][0] == uses:
        return f"{said[0][1].capitalize()} in {'its one use' if uses == 1 else f'{_all(uses)} uses'}."
    text = _and([f"{how} in {n}" for n, how in said]) if said else ""
    others = uses - sum(n for n, _ in said)
    left_ = f"; {'the other has' if others == 1 else f'the other {others} have'} no verdict on it" if others > 0 else ""
    return f"{text[:1].upper()}{text[1:]} of {uses} use{_s(uses)}{left_}." if said else "No use has a verdict on it."


def _pays(card: Card, group: Sequence[Use]) -> Iterator[str]:
    effect = card.effect
    rows = [f"Measured on {name.removeprefix('NVIDIA ')}: {_spread(s)}." for name, s in effect.measured.items()]
    rows += [f"Forecast for {name}: {_spread(s)}." for name, s in effect.forecast.items()]
    for name, change in effect.predicted.items():
        if not (change.low or change.median or change.high):
            continue
        span = f" (half of the uses from {_more(change.low)} to {_more(change.high)})" if change.low != change.high else ""
        rows.append(f"The step itself predicts {_changed(change.median, COUNTED.get(name, name.replace('_', ' ')))}{span}.")
    if rows:
        yield _list(rows)
    if card.anchor.node == "kernel" and card.anchor.pattern.endswith("1 thread") and any(s.median >= SHARED for s in effect.forecast.values()):
        yield _paragraph("Before it one thread does all the work of an instance, which a whole CTA shares after it: that alone is a large part of the factor.")
    if effect.compared:
        one = effect.compared == 1
        these = f"use{_s(effect.compared)} that {'was' if one else 'were'} compiled before and after it"
        part = "the one" if one else _all(effect.compared) if effect.realized == effect.compared else f"{effect.realized or 'none'} of the {effect.compared}"
        yield _paragraph(f"In {part} {these}, the machine code changed." if effect.realized else
                         f"In {part} {these} {'the machine code stayed as it was' if one else 'did the machine code change'}: "
                         "the compiler does this by itself, or undoes it.")
    profit = [p for p in card.preconditions if p.kind == "profit"]
    for p in (p for p in profit if p.id):
        so = p.proved + p.guarded + p.assumed
        of = _asked(group, p.id)
        yield _paragraph(f"It helps if {p.sentence} ({p.id}): this was so in {_so_many(so, of, 'use')}.")
    yield from (_paragraph(f"It pays where {p.sentence}: {_count(p.proved, 'trial')} there succeeded; {_elsewhere(p.example)}.")
                for p in profit if p.category == FAMILY)
    if seen := [p for p in profit if not p.id and p.category != FAMILY]:
        yield "Walks tell where it belongs. In all uses these held, and in most programs on which the step could not be undone they did not:"
        yield _list([f"{_sentence(p.sentence)} ({_sentence(p.example).removesuffix('.')}.)" for p in seen])


def _where(card: Card, group: Sequence[Use]) -> Iterator[str]:
    """In how many uses the step is forecast to gain and to lose, on the target of most uses, in which most, and how that goes by kind of kernel."""
    aim, seen = _ratios(card, group)
    if len(seen) < LEAST_OF_A_KIND:
        return
    gains, losses = [row for row in seen if row[0] >= FASTER], [row for row in seen if row[0] <= 1 / FASTER]
    best, *others = sorted(seen, key=lambda row: -row[0])
    apart = f", far from the next one's {factor(others[0][0])}" if others and best[0] > FAR * max(1.0, others[0][0]) else ""
    most = f", most in `{best[1].kernel}` ({factor(best[0])} times as fast{apart})" if gains else ""
    yield _paragraph(f"On {aim} none of its {len(seen)} uses is forecast to gain or lose {100 * FASTER - 100:.0f} % by itself." if not (gains or losses) else
                     f"On {aim} it is forecast to gain {100 * FASTER - 100:.0f} % or more in {_so_many(len(gains), len(seen), 'use')}{most}, and to lose "
                     f"as much in {len(losses) or 'none'}.")
    ranked = _by_kind(seen)
    ways: list[tuple[str, list[str]]] = [("faster in", []), ("about as fast in", []), ("slower in", [])]
    for value, name, count in ranked:
        way = 0 if value >= FASTER else 2 if value <= 1 / FASTER else 1
        ways[way][1].append(f"{_kind(name)} ({count} uses)" if way == 1 else f"{_kind(name)} ({factor(value)} times, {count} uses)")
    if len(ranked) > 1 and (ways[0][1] or ways[2][1]):
        yield _paragraph(f"By kind of kernel (medians) it is {'; '.join(f'{how} {_some(found)}' for how, found in ways if found)}.")


def _ratios(card: Card, group: Sequence[Use]) -> tuple[str, list[tuple[float, Use]]]:
    """The target of most uses, and what each use is forecast to bring there; of a card of several steps, all of them in one kernel."""
    aim = max(card.effect.forecast.items(), key=lambda row: row[1].uses, default=("",))[0]
    products: dict[tuple[str, int], tuple[float, Use]] = {}
    for use in group:
        if aim in use.transition.speedups:
            key = (use.walked.key, -1 if card.carrier.kind == "composite" else use.transition.number)
            products[key] = (products.get(key, (1.0, use))[0] * use.transition.speedups[aim], use)
    return aim, list(products.values())


def _beside(card: Card, group: Sequence[Use]) -> Iterator[str]:
    """What the same kernels had done just before, and what they did next; and that the step by itself is forecast to bring nothing, where nothing was measured
    that says otherwise."""
    numbers: dict[tuple[str, int], list[Use]] = {}
    for use in group:
        numbers.setdefault((use.walked.key, 0 if card.carrier.kind == "composite" else use.transition.number), []).append(use)
    earlier, later = Counter[str](), Counter[str]()
    for some in numbers.values():
        names = {t.number: t.name for t in some[0].walked.transitions}
        own = [use.transition.number for use in some]
        for found, at in ((earlier, min(own) - 1), (later, max(own) + 1)):
            found.update([names[at]] if at in names else [])
    nothing = not any(spread.median >= 1.005 for found in (card.effect.forecast, card.effect.measured) for spread in found.values())
    said = [f"{how} {_and([f'`{name}` ({_times(count)})' for name, count in sorted(found.items(), key=lambda row: (-row[1], row[0]))[:3]])}"
            for how, found in (("it mostly follows", earlier), ("what mostly follows it is", later)) if found]
    mostly = "mostly " if any(ratio >= FASTER for ratio, _ in _ratios(card, group)[1]) else ""
    text = f"By itself it is {mostly}not forecast to gain anything. " if nothing else ""
    text += f"In the lineages {'; '.join(said)}." if said else ""
    if text:
        yield _paragraph(text.strip())
    if nothing and (ratios := _with_the_next(card, group)):
        yield _paragraph(f"Together with the {NEXT} steps after it in the lineages it is forecast to make the kernels {factor(median(ratios))} times as fast "
                         f"(median of {len(ratios)} uses).")
    led = sorted(entry.speedup[0] for entry in card.log if entry.skill and entry.speedup and LED in entry.outcome)
    if nothing and led:
        times = " to ".join(dict.fromkeys((factor(led[0]), factor(led[-1]))))
        yield _paragraph("What it makes way for pays: where a plan led another kernel to it, the steps after it are forecast to make that kernel "
                         f"{times} times as fast as they do without it{f' ({len(led)} kernels)' if len(led) > 1 else ''}.")


def _with_the_next(card: Card, group: Sequence[Use]) -> list[float]:
    """What the uses of a step are forecast to bring together with the next few steps of their lineages, on the target of most of them; nothing where that is no
    gain, or where they are few."""
    aim, seen = _ratios(card, group)
    found = []
    for ratio, use in seen:
        at = max(u.transition.number for u in group if u.walked.key == use.walked.key) if card.carrier.kind == "composite" else use.transition.number
        later = [t.speedups[aim] for t in use.walked.transitions if at < t.number <= at + NEXT and aim in t.speedups]
        found += [prod([ratio, *later])] if len(later) == NEXT else []
    return found if len(found) >= LEAST_OF_A_KIND and median(found) >= FASTER else []


def _spread(s: Spread) -> str:
    speed = f"{'slower, ' if s.median < 1.0 else ''}{factor(s.median)} times as fast"
    if abs(s.median - 1.0) < AS_BEFORE:
        speed = "as fast as before" if f"{s.median:.3g}" == "1" else f"about as fast as before, {s.median:.3g} times"
    if s.uses == 1:
        return f"{speed}, in one use"
    low, high = factor(s.low), factor(s.high)
    return f"{speed} ({s.uses} uses{f', half of them from {low} to {high}' if low != high else ''})"


def _changed(number: float, what: str) -> str:
    """A change in words; of whole things one is said in the singular."""
    if not number:
        return f"as many {what} as before"
    first, space, rest = what.partition(" ")
    return f"{_more(abs(number)).removeprefix('+')} {'more' if number > 0 else 'fewer'} {first.removesuffix('s') if abs(number) == 1 else first}{space}{rest}"


def _more(number: float) -> str:
    return f"{number:+,.0f}" if abs(number) >= 1 else f"{number:+.3g}" if number else "0"


def _wrong(card: Card) -> Iterator[str]:
    yield _paragraph(_rounding(card.risk.numerics))
    refused = [p for p in card.preconditions if p.refused and p.id]
    rows = [f"Refused {_times(p.refused)} by {p.id}, which asks that {_started(p.sentence)}. For example: {_plain(p.example)}" for p in refused]
    by_id: dict[str, list[Counterexample]] = {}
    for each in card.risk.counterexamples:
        by_id.setdefault(each.says.partition(":")[0], []).append(each)
    rows += [f"Where a walk took it back, the gate turned the simpler program down {_times(len(some))}. For example (`{_cut(some[0].step)}`, program "
             f"{some[0].program[:12]}): {_sentence(some[0].says)}" for some in by_id.values()]
    trials = [entry for entry in card.log if entry.what == "trial"]
    failed = Counter(fault(t) for t in trials if not t.skill)
    if failed:
        rows.append(f"On {failed.total()} of the {len(trials)} kernels on which it was tried it did not succeed: "
                    f"{_and([f'{why} ({_times(count)})' for why, count in failed.most_common()])}.")
    if rows:
        yield _list(rows)
    else:
        other = f" for one of its conditions; for other reasons it was turned down {_times(card.evidence.rejected)}" if card.evidence.rejected else ""
        yield _paragraph(f"No walk turned it down{other}.")


def _cut(step: str) -> str:
    """A step that may be long."""
    return step if len(step) <= MOST_STEP else f"{step[:MOST_STEP]}.."


def _rounding(numerics: str) -> str:
    """What becomes of the result's bits."""
    words = {"reassociated": "terms are added in another order ({})", "rounding-moved": "rounding happens at another point ({})",
             "approximate": "functions are approximated ({})"}
    found: dict[str, list[str]] = {}
    for kind, of in re.findall(r"([\w-]+)(?:\(([^)]*)\))?", numerics):
        found.setdefault(kind, []).append(of)
    said = [words.get(kind, f"{kind} {{}}").format(", ".join(dict.fromkeys(of))) for kind, of in found.items() if kind != "bitwise"]
    return f"The result may differ in its last bits: {_and(list(dict.fromkeys(said)))}." if said else "The result keeps every bit."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _started(sentence: str) -> str:
    """A sentence as the second part of another one."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _plain(reason: str) -> str:
    """A reason without the id that it starts with, as a sentence."""
    return _sentence(re.sub(r"^KIR-P\d+: ", "", reason.strip()))


def _shown(card: Card, group: Sequence[Use]) -> Iterator[str]:
    """The smallest use that changed the compiled code, else the smallest, at a loop of more than one trip before others: the IR as a difference, then the code
    of each surface that says both programs."""
    some = sorted(group, key=lambda u: (not u.transition.realized, u.facts.get("trips") == 1, len(u.walked.programs[u.transition.before_text]), u.walked.key,
                                        u.transition.number))
    if card.carrier.kind == "composite":
        some = [use for use in some if use.walked.key == some[0].walked.key]
        some.sort(key=lambda u: u.transition.number)
        before, after = some[0].before, some[-1].after
    else:
        before, after = some[0].before, some[0].after
    yield _paragraph(f"In `{some[0].kernel}`, a small kernel that uses it{' and compiles to other code with it' if some[0].transition.realized else ''}:")
    yield _fenced("diff", difference(program_text(before), program_text(after)))
    code = {surface: (_emitted(surface, before), _emitted(surface, after)) for surface in SURFACES}
    for surface, both in code.items():
        if both[0] and both[1] and both[0] != both[1]:
            kernels = _kernels(both[0]), _kernels(both[1])
            yield f"In {CALLED[surface]}:\n\n{_fenced('diff', difference(*(both if kernels[0] == kernels[1] else kernels), emitted=True))}"
    if same := [CALLED[surface] for surface, both in code.items() if both[0] and both[0] == both[1]]:
        yield _paragraph(f"In {_and(same)} the text is the same: what the step decides is left to the compiler, or to how the kernel is launched.")
    if left := [CALLED[surface] for surface, both in code.items() if not both[1]]:
        yield _paragraph(f"{left[0]} cannot say the program after it." if len(left) == 1 else
                         f"{'Neither' if len(left) == 2 else 'None of'} {_and(left) if len(left) > 2 else ' nor '.join(left)} can say the program after it.")


def _kernels(text: str) -> str:
    """Code from its first kernel on, without the helpers before it."""
    found = re.search(r"^(?=.*__global__)", text, re.MULTILINE)
    return text[found.start():] if found is not None else text


def _emitted(surface: str, program: Program) -> str:
    with suppress(KirError, StopIteration):
        chosen = backend(surface)
        if not list(chosen.accepts(program)):
            return chosen.emit(program).text
    return ""


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _some(rows: Sequence[str]) -> str:
    """The first few of many."""
    return _and([*rows[:FEW], *([f"{len(rows) - FEW} other kinds"] if len(rows) > FEW + 1 else rows[FEW:])])


def _few(families: Sequence[str]) -> str:
    named = [each for each in families if each != "other"] + ["kinds without a name"] * ("other" in families)
    return _and(named) if len(named) <= MOST_NAMED else f"{len(named)} families, among them {_and(named[:FEW])}"


STATES = {"hypothesis": "a hypothesis", "admitted": "admitted", "negative": "known not to help", "deprecated": "deprecated", "retired": "retired"}


def _short(kernel: str) -> str:
    """A kernel of a package by its own name, and the package's."""
    place, _, name = kernel.rpartition("::")
    return f"`{name}` of {place.partition(':')[0]}" if ":" in place else f"`{kernel}`"


def _known(card: Card) -> Iterator[str]:
    scope = card.scope
    uses, kernels = len(card.evidence.uses), card.evidence.kernels
    what = "step" if card.carrier.kind == "composite" else "use"
    yield _paragraph(f"It was lifted from {_count(uses, what)} in {_count(kernels, 'kernel')} of {_few(scope.families)}, from {_and(scope.packages)}, "
                     f"written in {_and([CALLED.get(each, 'the IR') for each in scope.surfaces])}, compiled for {_and(scope.platforms)}.")
    yield _paragraph(f"It is {STATES[card.state]}{f': {card.why}' if card.why else ''}.")
    trials = [entry for entry in card.log if entry.what == "trial"]
    if trials:
        yield _paragraph(how_tried(trials))
        yield "\n".join(["| tried on | with it | without | forecast | how |", "| --- | --- | --- | --- | --- |", *(
            f"| {_short(t.kernel)} | {'yes' if t.skill else 'no'} | {'yes' if t.without else 'no'} | "
            f"{f'{factor(t.speedup[0])}x ({factor(t.speedup[1])} to {factor(t.speedup[2])})' if t.speedup else 'none'} | {came_to(t)} |" for t in trials)])
