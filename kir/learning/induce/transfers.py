"""Transfer trials: a skill is tried on kernels of other packages or families, in which no expert is known to have used it, beside an arm without it.

For skills that few kernels show. A trial takes a state of such a kernel at which the skill applies. It succeeds where one of a few tries, each made with
every check of the framework, is forecast faster than the state; the arm without the skill has as many tries, and succeeds where it finds as much.
"""
from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.registry import registry
from kir.hardware.target import Target, target
from kir.ir.measures.features import features, kinds
from kir.ir.nodes import Program
from kir.learning.cards.card import Card, Entry
from kir.learning.cards.use import applications
from kir.learning.evidence.walked import Walked
from kir.learning.forecast import Forecast, Forecaster, Pair
from kir.learning.induce.trials import AS_FAST, TRIES, Made, by_hash, carried_out, sizes_of
from kir.rewrite import Context
from kir.surface import backend

FASTER = 1.02
"""The forecast speedup from which a try counts: what is between is no effect that a measurement would show."""
MOST_TRANSFERS = 6
"""Trials of one skill: each makes up to sixteen programs."""
MOST_LOOKED_AT = 60
"""Kernels that are asked, in an order that only the hash of skill and kernel decides, whether the skill applies."""


@dataclass(frozen=True)
class Transfer:
    """Where a transfer trial starts: a state of a kernel, and the surface that says it."""

    walked: Walked = field(repr=False)
    before: Program = field(repr=False)
    surface: str

    @property
    def target(self) -> Target:
        """The newest target that the kernel was compiled for."""
        return target(self.walked.targets[-1] if self.walked.targets else "sm_90a")


def transferred(card: Card, walks: Sequence[Walked], forecaster: Forecaster) -> tuple[Entry, ...]:
    """The transfer trials of a card, as entries of its log, on at most `MOST_TRANSFERS` kernels."""
    out: list[Entry] = []
    for each in starts(card, walks):
        out.append(_trial(card, each, forecaster))
        if len(out) == MOST_TRANSFERS:
            break
    return tuple(out)


def starts(card: Card, walks: Sequence[Walked]) -> Iterator[Transfer]:
    """States at which a card applies, one a kernel, of kernels that it was not lifted from and that are of another package or family."""
    seen = {(use.package, use.family) for use in card.evidence.uses}
    packages, families = {package for package, _ in seen}, {family for _, family in seen}
    kernels = {use.kernel for use in card.evidence.uses}
    others = [w for w in walks if w.kernel not in kernels and (w.package not in packages or w.family not in families)]
    others.sort(key=lambda w: hashlib.sha256(f"{card.name} {w.kernel}".encode()).hexdigest())
    taken = set[str]()
    for walked in others[:MOST_LOOKED_AT]:
        if walked.kernel not in taken and (found := _start(card, walked)) is not None:
            taken.add(walked.kernel)
            yield found


def _start(card: Card, walked: Walked) -> Transfer | None:
    """Of a kernel's states (its expert's, the naive one, the one in the middle) the first at which a card applies, and a surface that says it."""
    steps = walked.transitions
    for text in dict.fromkeys((steps[-1].after_text, steps[0].before_text, steps[len(steps) // 2].after_text)):
        with suppress(KirError):
            program = walked.program(text)
            held = kinds(features(program))
            if any(f not in held for f in card.scope.requires) or not applications(card, program, Context(target("sm_90a"))):
                continue
            if surface := said_by(program, walked.surface):
                return Transfer(walked, program, surface)
    return None


def said_by(program: Program, first: str) -> str:
    """The surface that says a program, its own before others; empty where none does."""
    names = [entry.name for entry in registry("kir.backends")]
    return next((name for name in sorted(names, key=lambda name: (name != first, name)) if not backend(name).accepts(program)), "")


def _trial(card: Card, each: Transfer, forecaster: Forecaster) -> Entry:
    """One state with the skill and without it."""
    context = Context(each.target)
    with_it, tries = _best(each, carried_out(applications(card, each.before, context), each.before, context), forecaster)
    reached = with_it.median if with_it is not None else 0.0
    without, _ = _best(each, by_hash(each.before, context), forecaster)
    won = reached >= FASTER
    outcome = "no try passed the checks" if with_it is None else f"forecast {reached:.3g} times as fast, the best of {tries} {'try' if tries == 1 else 'tries'}"
    low, high = with_it.interval(0.8) if with_it is not None else (0.0, 0.0)
    speedup = (float(f"{reached:.3g}"), float(f"{low:.3g}"), float(f"{high:.3g}")) if with_it is not None else None
    return Entry(what="trial", kernel=each.walked.kernel, outcome=f"transferred to a kernel that is not known to use it: {outcome}", skill=won,
                 without=without is not None and without.median >= max(FASTER, AS_FAST * reached), speedup=speedup, basis="forecast" if speedup else None)


def _best(each: Transfer, made: Iterable[Made], forecaster: Forecaster) -> tuple[Forecast | None, int]:
    """The best forecast of the first few programs, and how many there were."""
    best: Forecast | None = None
    count = 0
    for program, _ in made:
        count += 1
        with suppress(KirError):
            surface = each.surface if not backend(each.surface).accepts(program) else said_by(program, each.surface)
            seen = forecaster(Pair(each.before, program, sizes_of(each.walked, program), each.target, surface=surface)) if surface else None
            if seen is not None and (best is None or seen.median > best.median):
                best = seen
        if count == TRIES:
            break
    return best, count
