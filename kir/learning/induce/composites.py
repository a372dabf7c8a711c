"""Steps that come together: sequences of kinds of steps that many kernels take close to one another, far more often than by chance.

Frequent sequences are grown item by item (PrefixSpan, Pei et al. 2001) with a bound on the gap between two items.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from kir.base.dataclass import dataclass

LEAST_KERNELS = 3
LEAST_LIFT = 1.5
LEAST_TOGETHER = 0.75
"""Of the kernels that have one of two steps, the share that must have both, in this order."""
MOST_GAP = 3
"""Places in a lineage between two steps that belong together, at most."""
MOST_STEPS = 4


@dataclass(frozen=True)
class Together:
    """Steps that come together, in how many kernels (`support`), and how much more often than if they were independent (`lift`)."""

    items: tuple[str, ...]
    support: int
    lift: float
    kernels: tuple[str, ...]


def together(sequences: Mapping[str, Sequence[str]]) -> tuple[Together, ...]:
    """The longest sequences of steps that come together, from the steps of each kernel in forward order; those with most support first.
    A step that is repeated at once counts once."""
    runs = {kernel: _without_repeats(steps) for kernel, steps in sequences.items()}
    where: dict[str, set[str]] = {}
    for kernel, run in runs.items():
        for item in run:
            where.setdefault(item, set()).add(kernel)
    pairs = {(a, b) for a in sorted(where) for b in sorted(where) if a != b and _belong(runs, where, a, b)}
    found: list[Together] = []
    grown: list[tuple[str, ...]] = [(a, b) for a, b in sorted(pairs)]
    while grown:
        longer: list[tuple[str, ...]] = []
        for chain in grown:
            kernels = tuple(sorted(k for k in set.intersection(*(where[item] for item in chain)) if _occurs(runs[k], chain)))
            lift = _lift(len(runs), where, chain, len(kernels))
            if len(kernels) < LEAST_KERNELS or lift < LEAST_LIFT:
                continue
            found.append(Together(chain, len(kernels), round(lift, 3), kernels))
            if len(chain) < MOST_STEPS:
                longer += [(*chain, b) for a, b in sorted(pairs) if a == chain[-1] and b not in chain]
        grown = longer
    return tuple(sorted((each for each in found if not any(_within(each.items, other.items) for other in found)),
                        key=lambda each: (-each.support, each.items)))


def _without_repeats(steps: Sequence[str]) -> tuple[str, ...]:
    return tuple(step for k, step in enumerate(steps) if k == 0 or steps[k - 1] != step)


def _belong(runs: Mapping[str, tuple[str, ...]], where: Mapping[str, set[str]], a: str, b: str) -> bool:
    """Whether two steps come close to one another in most kernels that have either."""
    shared, least = where[a] & where[b], max(LEAST_KERNELS, LEAST_TOGETHER * len(where[a] | where[b]))
    if len(shared) < least:
        return False
    both = sum(_occurs(runs[kernel], (a, b)) for kernel in shared)
    return both >= least and _lift(len(runs), where, (a, b), both) >= LEAST_LIFT


def _lift(kernels: int, where: Mapping[str, set[str]], chain: tuple[str, ...], support: int) -> float:
    expected = float(kernels)
    for item in chain:
        expected *= len(where[item]) / kernels
    return support / expected if expected else 0.0


def _occurs(run: tuple[str, ...], chain: tuple[str, ...]) -> bool:
    """Whether a chain is a subsequence of a run with no gap wider than allowed."""
    ends = [k for k, item in enumerate(run) if item == chain[0]]
    for wanted in chain[1:]:
        ends = sorted({k for end in ends for k in range(end + 1, min(len(run), end + MOST_GAP + 2)) if run[k] == wanted})
    return bool(ends)


def _within(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    """Whether a chain is a longer one with some steps left out."""
    rest = iter(long)
    return len(short) < len(long) and all(item in rest for item in short)
