"""A skill that is wrongly materialized, recognized and put right: a barrier, wait or fence that is missing, a mask that is missing, a swizzle of another phase.

The target's rules and the checking interpreter find what is wrong and name the statements. Mends are tried nearest first: what a finding asks for (a barrier,
a wait, a fence before a statement that it names; a bound around its accesses), one phase for the columns of a shared array that are exchanged in several,
then each skill's step undone by the pass's own inverse and done again as its card does. A mend counts where nothing more is found, and the problem's
oracle, where there is one, agrees.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from kir.analysis.target.legalize import legalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, error
from kir.gate.cases import problem_tests, relative_tests
from kir.gate.correctness import check
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.printer import expr_text
from kir.ir.rules.verify import check as verified
from kir.ir.types import dtype_of
from kir.ir.visit import substitute, transform, walk
from kir.learning.cards.card import Card
from kir.learning.cards.use import judged
from kir.problem import Problem
from kir.rewrite import Context, pass_class
from kir.rewrite.anchor import anchor_text, path_of
from kir.rewrite.driver import apply
from kir.rewrite.edit import Path, edit_block, enclosing, node_at
from kir.rewrite.verdict import ANYWHERE

MOST_TRIED = 48
"""Programs that are checked until one is right."""
ASKED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "KIR-I012": (("async_wait",), ("barrier",), ("async_wait", "barrier")),
    "KIR-I014": (("barrier",), ("async_wait",), ("async_wait", "barrier"), ("fence_async", "barrier")),
    "KIR-I015": (("fence_async",), ("fence_async", "barrier")),
    "KIR-I016": (("wgmma_wait",), ("wgmma_fence",)),
    "KIR-I017": (("async_wait",),),
    "KIR-I024": (("async_wait",), ("async_wait", "barrier"), ("wgmma_wait",), ("barrier",))}
"""By the id of a finding: the calls that may be missing before a statement that it names, in order."""
COUNTED = ("async_wait", "wgmma_wait")
"""Calls that name how many groups may still be in flight: none."""
FILLS = (0.0, float("-inf"))
"""What a value outside its buffer may be taken for: the neutral element of a sum, and of a maximum."""
ROW = "row"
"""What the row of a place is called in the phase of its columns."""


@dataclass(frozen=True)
class Mended:
    """A program that is right, what was found in the one that was not, and what was done."""

    program: n.Program
    fault: str
    how: str


def fault(program: n.Program, problem: Problem | None = None, context: Context = ANYWHERE, against: n.Program | None = None) -> tuple[
        str, tuple[Diagnostic, ...]]:
    """What is wrong with a program, in a sentence and as findings; nothing where nothing is found. Its results are judged by a problem, or by what another
    program makes; without either only hazards are found, and without a target nothing that its rules forbid."""
    if context.target is not None and (found := legalize(program, context.target.architecture)):
        return f"{found[0].id}: {found[0].message}", found
    tests = problem_tests(program, problem, {}) if problem is not None else relative_tests(program, against or program)
    seen = check(program, tests, problem.name if problem is not None else "the program before", relative=problem is None)
    return ("" if seen.ok else seen.reason or "wrong"), seen.findings


def mended(program: n.Program, cards: Sequence[Card] = (), problem: Problem | None = None, context: Context = ANYWHERE) -> Mended:
    """The first mend that makes a program right. One that only breaks the target's rules must keep its results.

    Raises KirError KIR-S026 where nothing is found to be wrong with it, KIR-S027 where no mend makes it right."""
    said, findings = fault(program, problem, context)
    if not said:
        raise error("KIR-S026", "nothing is found to be wrong with this program",
                    needs="" if problem is not None else "a problem, to find wrong results that are no hazard",
                    attempt="" if problem is not None else "--problem NAME")
    against = program if said.startswith("KIR-V") else None
    tried, seen = 0, {content_hash(program)}
    again = _again(program, cards, context, problem is not None or against is not None)
    for made, how in chain(_asked(program, findings), _bounded(program, findings), _phased(program), again):
        if tried == MOST_TRIED:
            break
        if (key := content_hash(made)) not in seen:
            seen.add(key)
            with suppress(KirError):
                verified(made)
                tried += 1
                if not fault(made, problem, context, against)[0]:
                    return Mended(made, said, how)
    raise error("KIR-S027", f"no mend makes this program right: {said}", witness=tuple(f"{each.id}: {each.message}" for each in findings[:3]),
                needs=f"another mend than the {tried} that were tried")


def _named(program: n.Program, each: Diagnostic) -> list[Path]:
    """The statements that a finding names."""
    words = (word for line in (each.subject, *each.witness) for word in re.split(r"\s+", line) if "/" in word)
    out = []
    for word in dict.fromkeys(words):
        with suppress(KirError, KeyError, ValueError):
            out.append(path_of(program, word))
    return out


def _apart(program: n.Program, named: Sequence[Path]) -> Iterator[Path]:
    """Where what is named may be set apart: the statements of the innermost block that holds all of it, then each that is named, then those around it."""
    for path in named:
        around = [at for at, place in enclosing(program, path) if not isinstance(place, n.Kernel)]
        rest = [other for other in named if other != path]
        yield from (at for at in (*around, path) if rest and all(other[:len(at) - 1] == at[:-1] and other[:len(at)] != at for other in rest))
        yield path
        yield from reversed(around)


def _asked(program: n.Program, findings: Sequence[Diagnostic]) -> Iterator[tuple[n.Program, str]]:
    """A call that is missing, before or behind a statement that a finding names."""
    for each in findings:
        places = list(dict.fromkeys(_apart(program, _named(program, each))))
        for calls in ASKED.get(each.id, ()):
            made = tuple(n.Eval(build.call(name, *((build.const(0),) if name in COUNTED else ()))) for name in calls)
            for path in places:
                for after, where in ((0, "before"), (1, "behind")):
                    yield _with(program, path, int(path[-1]) + after, 0, made), f"{' and '.join(calls)} {where} {anchor_text(program, path)}"


def _with(program: n.Program, path: Path, at: int, instead: int, made: Sequence[n.Stmt]) -> n.Program:
    """A program with statements at a place of the block of `path`, instead of so many there."""
    return edit_block(program, path, lambda block: (*block[:at], *made, *block[at + instead:]))


def _bounded(program: n.Program, findings: Sequence[Diagnostic]) -> Iterator[tuple[n.Program, str]]:
    """The accesses of a statement that left their buffer, ended with it."""
    for each in findings:
        for path in _named(program, each) if each.id == "KIR-I010" else ():
            s = node_at(program, path)
            for fill in FILLS if not isinstance(s, n.For | n.If | n.While | n.Kernel) else ():
                yield _with(program, path, int(path[-1]), 1, (_ended(s, fill),)), f"the accesses of {anchor_text(program, path)} end with their buffers"


def _ended(s: n.Node, fill: float) -> n.Stmt:
    def ended(_: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.at.buffer.space == "global" and not new.clip:
            dtype = dtype_of(new.type)
            return replace(new, clip=True, other=new.other or build.const(fill if dtype.is_float else 0, dtype))
        return replace(new, clip=True) if isinstance(new, n.Store) and new.at.buffer.space == "global" and new.at.index else new
    made = transform(s, ended)
    assert isinstance(made, n.Stmt)
    return made


def _phased(program: n.Program) -> Iterator[tuple[n.Program, str]]:
    """The columns of a shared array exchanged alike at every access, as those of most accesses are; where of an exchange it does not show which side its row
    decides, as that of a row by a smaller number than its columns have, either is tried."""
    for kernel in program.kernels:
        phases, unclear = dict[str, Counter[n.Expr]](), set[str]()
        for r in (x for x in walk(kernel) if isinstance(x, n.Region) and x.buffer.space == "shared" and len(x.index) > 1):
            found = [phase for _, phase in _exchanges(r)]
            phases.setdefault(r.buffer.name, Counter()).update(found)
            unclear.update([r.buffer.name] if not found and any(_exclusive_ors(r)) else [])
        for name, seen in phases.items():
            for phase, _ in seen.most_common() if len(seen) > 1 or name in unclear else ():
                for side in (0, 1) if name in unclear else (0,):
                    made = _alike(kernel, name, phase, side)
                    yield replace(program, kernels=tuple(made if k is kernel else k for k in program.kernels)), (
                        f"the columns of '{name}' exchanged by {expr_text(phase)} at every access")


def _alike(kernel: n.Kernel, name: str, phase: n.Expr, side: int) -> n.Kernel:
    def moved(_: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Region) and new.buffer.name == name and len(new.index) > 1 and isinstance(row := new.index[-2], n.Expr):
            known = dict(_exchanges(new))
            parts = [part for part, own in known.items() if own != phase] if known else [(x.a, x.b)[side] for x in _exclusive_ors(new)]
            others = {part: substitute(phase, {ROW: row}) for part in parts}
            last = transform(new.index[-1], lambda _, e: others.get(e, e) if isinstance(e, n.Expr) else e) if others else new.index[-1]
            return replace(new, index=(*new.index[:-1], last))
        return new
    made = transform(kernel, moved)
    assert isinstance(made, n.Kernel)
    return made


def _exclusive_ors(r: n.Region) -> Iterator[n.Binary]:
    return (e for e in walk(r.index[-1]) if isinstance(e, n.Binary) and e.op == "xor")


def _exchanges(r: n.Region) -> Iterator[tuple[n.Expr, n.Expr]]:
    """The sides of exclusive ors in a place's column that its row decides, each with what it is of a row that is called `ROW`."""
    row = r.index[-2]
    if not isinstance(row, n.Expr) or isinstance(row, n.Const):
        return
    called = n.Var(ROW, row.type)
    for x in _exclusive_ors(r):
        for part in (x.a, x.b):
            said = transform(part, lambda _, e: called if e == row else e)
            if said != part:
                yield part, said


def _again(program: n.Program, cards: Sequence[Card], context: Context, force: bool) -> Iterator[tuple[n.Program, str]]:
    """A card's step undone by the inverse of its pass, and done again there as the card does. Where the results are judged (`force`), conditions that fail
    are no hindrance: they are judged on a program that is wrong."""
    for card in cards:
        for site in pass_class(card.carrier.steps[0].step).with_options({}).inverse_sites(program) if len(card.carrier.steps) == 1 else ():
            with suppress(KirError):
                back = apply(program, site.params, site, "backward", force=force, context=context).program
                for other, failing in judged(card, back, context):
                    if other.path == site.path and (force or not failing):
                        with suppress(KirError):
                            yield apply(back, other.params, other, force=force, context=context).program, f"{site.params} done again as {other.params}"
                yield back, f"{site.params} undone"
