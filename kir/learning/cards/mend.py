"""A skill that is wrongly materialized, recognized and put right: a barrier, wait or fence that is missing, a mask that is missing, a swizzle of another phase.

The target's rules and the checking interpreter find what is wrong and name the statements. Mends are tried nearest first: what a finding asks for (a barrier,
a wait, a fence before a statement that it names; a bound around its accesses), one phase for the columns of a shared array that are exchanged in several,
then each skill's step undone by the pass's own inverse and done again as its card does. A mend counts where nothing more is found, and the problem's
oracle, where there is one, agrees.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import numpy as np

from kir.analysis.target.legalize import legalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, error
from kir.gate.cases import Tests, problem_tests, relative_tests
from kir.gate.correctness import check, outcome
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.printer import expr_text
from kir.ir.rules.verify import check as verified
from kir.ir.rules.verify import verify
from kir.ir.visit import substitute, transform, walk
from kir.learning.cards.card import Card
from kir.learning.cards.missing import Put, asked
from kir.learning.cards.unbounded import bounded
from kir.learning.cards.use import judged
from kir.problem import Problem
from kir.rewrite import Context, pass_class
from kir.rewrite.driver import apply
from kir.rewrite.verdict import ANYWHERE

MOST_TRIED = 96
"""Programs that are checked until one is right."""
UNPAIRED = "KIR-V015"
"""What is said of an asynchronous operation that nothing waits for: what such a program makes is nobody's measure."""
MOST_GROUPS = 8
"""Groups that a wait may leave in flight."""
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
    found = _forbidden(program, context)
    return (f"{found[0].id}: {found[0].message}", found) if found else _run(program, _tests(program, problem, against), problem)


def _forbidden(program: n.Program, context: Context) -> tuple[Diagnostic, ...]:
    """What the rules of programs and of the target forbid."""
    return verify(program) or (legalize(program, context.target.architecture) if context.target is not None else ())


def _tests(program: n.Program, problem: Problem | None, against: n.Program | None) -> Tests:
    return problem_tests(program, problem, {}) if problem is not None else relative_tests(program, against or program)


def _run(program: n.Program, tests: Tests, problem: Problem | None) -> tuple[str, tuple[Diagnostic, ...]]:
    """What runs of a program show: the checker is asked, too, where it is wrong and that does not say where."""
    seen = check(program, tests, problem.name if problem is not None else "the program before", relative=problem is None)
    findings = seen.findings
    if not seen.ok and not findings and tests.checked:
        findings = outcome(program, tests.checked[0], "check").errors
    return ("" if seen.ok else seen.reason or "wrong"), findings


def mended(program: n.Program, cards: Sequence[Card] = (), problem: Problem | None = None, context: Context = ANYWHERE) -> Mended:
    """The first mend that makes a program right. One that only breaks the rules of programs or of the target must keep its results.

    Raises KirError KIR-S026 where nothing is found to be wrong with it, KIR-S027 where no mend makes it right."""
    findings, tests = _forbidden(program, context), _tests(program, problem, None)
    said, found = (f"{findings[0].id}: {findings[0].message}", findings) if findings else _run(program, tests, problem)
    if not said:
        raise error("KIR-S026", "nothing is found to be wrong with this program",
                    needs="" if problem is not None else "a problem, to find wrong results that are no hazard",
                    attempt="" if problem is not None else "--problem NAME")
    against = program if findings and not any(x.id == UNPAIRED for x in findings) else None
    tried, seen = 0, {content_hash(program)}

    def is_right(made: n.Program) -> bool:
        return _survives(made, tests, problem) and not fault(made, problem, context, against)[0]
    again = ((made, how, None) for made, how in _again(program, cards, context, problem is not None or against is not None))
    puts = ((put.made(program), put.how(program), put) for put in asked(program, found))
    others = ((made, how, None) for made, how in chain(bounded(program, found), _phased(program)))
    for made, how, put in chain(puts, others, again):
        if tried == MOST_TRIED:
            break
        if (key := content_hash(made)) not in seen:
            seen.add(key)
            with suppress(KirError):
                verified(made)
                tried += 1
                if is_right(made):
                    return _loosest(program, put, is_right, said) if put is not None and put.is_counted else Mended(made, said, how)
    raise error("KIR-S027", f"no mend makes this program right: {said}", witness=tuple(f"{each.id}: {each.message}" for each in found[:3]),
                needs=f"another mend than the {tried} that were tried")


def _survives(made: n.Program, tests: Tests, problem: Problem | None) -> bool:
    """Whether a program shows nothing in the case that is checked first, which ends with the first error: most mends fall there."""
    if not tests.checked:
        return True
    case, wanted = tests.checked[0], {p.name for p in made.params}
    with np.errstate(all="ignore"):
        result = run(made, case.arrays, {k: v for k, v in case.scalars.items() if k in wanted}, mode="check", one_error=True)
    errors = [f for f in result.errors if f.id != "KIR-I012" or not f.accesses or f.accesses[-1].verb != "read by the caller"]
    return not errors and (problem is None or not result.outputs or case.compare(result.outputs).ok)


def _loosest(program: n.Program, put: Put, is_right: Callable[[n.Program], bool], said: str) -> Mended:
    """The mend that leaves as many groups in flight as may be."""
    groups = 0
    while groups < MOST_GROUPS and is_right(put.made(program, groups + 1)):
        groups += 1
    return Mended(put.made(program, groups), said, put.how(program, groups))


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
