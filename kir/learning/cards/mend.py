"""A skill that is wrongly materialized, recognized and put right: a barrier or a wait that is missing, a mask that is missing, a swizzle of another phase.

The checking interpreter finds what is wrong and names the statements. Mends are tried nearest first: what the finding asks for (a barrier, a wait, a fence
before a statement it names; a bound around an access), then each skill's step undone by the pass's own inverse and done again as its card does. A mend
counts where the checker finds nothing more, and the problem's oracle, where there is one, agrees.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, error
from kir.gate.cases import problem_tests, relative_tests
from kir.gate.correctness import check
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.rules.verify import check as verified
from kir.ir.types import TileType
from kir.ir.visit import transform
from kir.learning.cards.card import Card
from kir.learning.cards.use import materialized
from kir.problem import Problem
from kir.rewrite import Context, pass_class
from kir.rewrite.anchor import path_of
from kir.rewrite.driver import apply
from kir.rewrite.edit import Path, edit_block, enclosing, node_at
from kir.rewrite.verdict import ANYWHERE

MOST_TRIED = 48
"""Programs that are checked until one is right."""
_BARRIER: tuple[str, ...] = ("barrier",)
ASKED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "KIR-I014": (_BARRIER, ("async_wait", "barrier"), ("fence_async", "barrier")), "KIR-I012": (("async_wait", "barrier"), _BARRIER),
    "KIR-I015": (("fence_async", "barrier"), ("fence_async",)), "KIR-I016": (("wgmma_wait",), ("wgmma_fence",)), "KIR-I017": (("async_wait",),),
    "KIR-I024": (("async_wait", "barrier"), _BARRIER)}
"""By the id of a finding: the calls that may be missing before a statement that it names, in order."""
COUNTED = ("async_wait", "wgmma_wait")
"""Calls that name how many groups may still be in flight: none."""


@dataclass(frozen=True)
class Mended:
    """A program that is right, what was found in the one that was not, and what was done."""

    program: n.Program
    fault: str
    how: str


def fault(program: n.Program, problem: Problem | None = None) -> tuple[str, tuple[Diagnostic, ...]]:
    """What is wrong with a program, and the checker's findings; nothing where nothing is found. Without a problem only hazards are."""
    tests = problem_tests(program, problem, {}) if problem is not None else relative_tests(program, program)
    found = check(program, tests, problem.name if problem is not None else "itself", relative=problem is None)
    return ("" if found.ok else found.reason or "wrong"), found.findings


def mended(program: n.Program, cards: Sequence[Card] = (), problem: Problem | None = None, context: Context = ANYWHERE) -> Mended:
    """The first mend that makes a program right.

    Raises KirError KIR-S090 where nothing is wrong with it, KIR-S091 where no mend makes it right."""
    said, findings = fault(program, problem)
    if not said:
        raise error("KIR-S090", "nothing is found to be wrong with this program", attempt="kir gate FILE --problem NAME")
    tried = 0
    for made, how in _mends(program, findings, cards, context):
        if tried == MOST_TRIED:
            break
        with suppress(KirError):
            verified(made)
            tried += 1
            if not fault(made, problem)[0]:
                return Mended(made, said, how)
    raise error("KIR-S091", f"no mend makes this program right: {said}", witness=tuple(f"{each.id}: {each.message}" for each in findings[:3]),
                needs=f"another of {tried} mends that were tried")


def _mends(program: n.Program, findings: Sequence[Diagnostic], cards: Sequence[Card], context: Context) -> Iterator[tuple[n.Program, str]]:
    seen = {content_hash(program)}
    for made, how in (*_asked(program, findings), *_bounded(program, findings), *_again(program, cards, context)):
        key = content_hash(made)
        if key not in seen:
            seen.add(key)
            yield made, how


def _named(program: n.Program, each: Diagnostic) -> Iterator[Path]:
    """The statements that a finding names, then those around them, innermost first."""
    words = (word for line in each.witness for word in re.split(r"[\s(),]+", line) if "/" in word)
    for name in dict.fromkeys([each.subject, *words]):
        with suppress(KirError, KeyError, ValueError):
            path = path_of(program, name)
            yield path
            yield from (around for around, place in reversed(list(enclosing(program, path))) if not isinstance(place, n.Kernel))


def _asked(program: n.Program, findings: Sequence[Diagnostic]) -> Iterator[tuple[n.Program, str]]:
    """A call that is missing, before or behind a statement that a finding names."""
    for each in findings:
        for calls in ASKED.get(each.id, ()):
            made = tuple(n.Eval(build.call(name, *((build.const(0),) if name in COUNTED else ()))) for name in calls)
            for path in _named(program, each):
                i = int(path[-1])
                for at, where in ((i, "before"), (i + 1, "behind")):
                    yield edit_block(program, path, lambda b, at=at, made=made: (*b[:at], *made, *b[at:])), (  # type: ignore[misc]  # bound now
                        f"{' and '.join(calls)} {where} {each.subject}")


def _bounded(program: n.Program, findings: Sequence[Diagnostic]) -> Iterator[tuple[n.Program, str]]:
    """Accesses of a statement that left their buffer, ended with it."""
    for each in findings:
        if each.id != "KIR-I010":
            continue
        for path in _named(program, each):
            s = node_at(program, path)
            if isinstance(s, (n.For, n.If, n.While, n.Kernel)):
                continue

            def ended(_: n.Node, new: n.Node) -> n.Node:
                if isinstance(new, n.Load) and new.at.buffer.space == "global" and isinstance(new.type, TileType) and not new.clip:
                    return replace(new, clip=True, other=new.other or build.const(0, new.at.buffer.dtype))
                return replace(new, clip=True) if isinstance(new, n.Store) and new.at.buffer.space == "global" and new.at.index else new
            made = transform(s, ended)
            yield edit_block(program, path, lambda b, made=made, i=int(path[-1]): (*b[:i], made, *b[i + 1:])), (  # type: ignore[misc]  # bound now
                f"the accesses of {each.subject} end with their buffers")


def _again(program: n.Program, cards: Sequence[Card], context: Context) -> Iterator[tuple[n.Program, str]]:
    """A card's step undone by the inverse of its pass, and done again as the card does."""
    for card in cards:
        if len(card.carrier.steps) != 1:
            continue
        for site in pass_class(card.carrier.steps[0].step).with_options({}).inverse_sites(program):
            with suppress(KirError):
                back = apply(program, site.params, site, "backward", context=context).program
                yield materialized(card, back, context).program, f"{card.name} undone ({site.params}) and done again"
                yield back, f"{card.name} undone ({site.params})"
