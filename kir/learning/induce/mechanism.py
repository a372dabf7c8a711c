"""What a step moves, in one kernel: the seconds of each resource before it and after it, as the analytic model has them, and what binds."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from kir.base.dataclass import dataclass
from kir.hardware.target import target as target_of
from kir.ir.nodes import Program
from kir.learning.cards.card import Card
from kir.learning.forecast import Analytic, Forecast, Pair
from kir.learning.forecast.shown import RESOURCES
from kir.learning.induce.transfers import FASTER
from kir.learning.induce.trials import FAULTS, factor, sizes_of
from kir.learning.induce.uses import Use

NOTED, MOST = 0.02, 3
"""A resource is named whose seconds change by so much of the kernel's; and how many are, at most."""
TRIED = 4
"""Uses that are asked until the model counts one as it was recorded."""
NEAR = 1.1
"""The factor within which it does."""


@dataclass(frozen=True)
class _Example:
    """A use (or all uses of a composite in one kernel): the programs on both sides, and how much faster it is forecast to be."""

    use: Use
    before: Program
    after: Program
    ratio: float


def moved(card: Card, group: Sequence[Use]) -> Iterator[str]:
    """A sentence or two: which resources' time changes by how much, and what binds before and after, in the use in the middle of those that gain (of all,
    where none does), on the target of most uses. Nothing where no resource moves, the model does not count the programs, or does not agree with what was
    recorded of the use whether it gains: a card does not contradict itself. One of which it says much the same as was recorded comes before others; of
    another it is told what was recorded."""
    aim = max(card.effect.forecast.items(), key=lambda row: row[1].uses, default=("",))[0]
    if not aim:
        return
    found = _examples(card, group, aim)
    some = [each for each in found if each.ratio >= FASTER] or found
    other: list[str] = []
    middle = median(each.ratio for each in some) if some else 1.0
    for each in sorted(some, key=lambda each: (abs(each.ratio - middle), each.use.walked.key, each.use.transition.number))[:TRIED]:
        sizes = sizes_of(each.use.walked, each.after)
        try:
            seen = Analytic()(Pair(each.before, each.after, sizes, target_of(aim), surface=each.use.walked.surface or "cuda"))
        except FAULTS:
            continue
        agree = (seen.median >= FASTER) == (each.ratio >= FASTER)  # what the walk recorded may be of an older model, or of compiled code
        if agree and not seen.defer and (said := list(_told(each.use.kernel, aim, sizes, seen))):
            if max(seen.median / each.ratio, each.ratio / seen.median) <= NEAR:
                yield from said
                return
            other = other or [f"{' '.join(said)} What was recorded of it, and counts above, is {factor(each.ratio)} times as fast, by the cost model of then."]
    yield from other


def _examples(card: Card, group: Sequence[Use], aim: str) -> list[_Example]:
    products: dict[tuple[str, int], list[Use]] = {}
    for use in group:
        if aim in use.transition.speedups:
            products.setdefault((use.walked.key, -1 if card.carrier.kind == "composite" else use.transition.number), []).append(use)
    out = []
    for some in products.values():
        some.sort(key=lambda use: use.transition.number)
        ratio = 1.0
        for use in some:
            ratio *= use.transition.speedups[aim]
        out.append(_Example(some[0], some[0].before, some[-1].after, ratio))
    return out


def _told(kernel: str, aim: str, sizes: Mapping[str, int], seen: Forecast) -> Iterator[str]:
    before, after = seen.seconds
    reasons = [r for r in seen.reasons if r.resource in RESOURCES]
    noted = [r for r in reasons if abs(r.after - r.before) >= NOTED * max(before, after)][:MOST]
    if not noted:
        return
    at = f", at {' and '.join(filter(None, (', '.join(f'{n} = {v:,}' for n, v in row) for row in (list(sizes.items())[:-1], list(sizes.items())[-1:]))))}"
    moves = [f"{RESOURCES[r.resource]}, from {duration(r.before)} to {duration(r.after)}" for r in noted]
    first, last = (max(reasons, key=lambda r: (getattr(r, side), r.resource)).resource for side in ("before", "after"))
    bound = f"{RESOURCES[first]}, as before" if first == last else f"{RESOURCES[last]}; before it was {RESOURCES[first]}"
    yield (f"For example `{kernel}` on {aim}{at if sizes else ''}: {duration(before)} before it and {duration(after)} after it, as the cost model has it. "
           f"What changes: {'; '.join(moves)}. What takes longest is {bound}.")


def duration(seconds: float) -> str:
    """A time in three digits, in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
