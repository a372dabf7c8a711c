"""Steps that come together: sequences of kinds of steps that many kernels take close to one another, far more often than by chance.

Frequent sequences are grown item by item (PrefixSpan, Pei et al. 2001) with a bound on the gap between two items. Of two of which one contains the other
only the longer is kept, where all kernels that take the shorter one take it (closed sequences), and none is grown into which another item fits without
the loss of a kernel (BIDE, Wang and Han 2004): a sequence so found has all kernels of each that is merged into it.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kir.base.dataclass import dataclass

LEAST_KERNELS = 3
LEAST_LIFT = 1.5
LEAST_TOGETHER = 0.75
"""Of the kernels that have one of two steps, the share that must have both, in this order."""
MOST_GAP = 3
"""Places in a lineage between two steps that belong together, at most."""


@dataclass(frozen=True)
class Together:
    """Steps that come together, in how many kernels (`support`), and how much more often than if they were independent (`lift`)."""

    items: tuple[str, ...]
    support: int
    lift: float
    kernels: tuple[str, ...]


def together(sequences: Mapping[str, Sequence[str]]) -> tuple[Together, ...]:
    """The sequences of steps that come together, from the steps of each kernel in forward order; those with most support first, and none within another
    that all its kernels take. A step that is repeated at once counts once."""
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
            kernels = _taking(runs, where, chain)
            lift = _lift(len(runs), where, chain, len(kernels))
            if len(kernels) >= LEAST_KERNELS and lift >= LEAST_LIFT and not any(_taking(runs, where, more) == kernels for more in _filled(chain, pairs)):
                found.append(Together(chain, len(kernels), round(lift, 3), kernels))
                longer += [(*chain, b) for a, b in sorted(pairs) if a == chain[-1] and b not in chain]
        grown = longer
    return tuple(sorted((each for each in found if not any({*each.kernels} <= {*other.kernels} and _within(each.items, other.items) for other in found)),
                        key=lambda each: (-each.support, each.items)))


def _taking(runs: Mapping[str, tuple[str, ...]], where: Mapping[str, set[str]], chain: tuple[str, ...]) -> tuple[str, ...]:
    """The kernels that take a chain."""
    return tuple(sorted(k for k in set.intersection(*(where[item] for item in chain)) if _occurs(runs[k], chain)))


def _filled(chain: tuple[str, ...], pairs: set[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """A chain with one item more before one of its items, where both new pairs belong together."""
    for k, item in enumerate(chain):
        for new, after in sorted(pairs):
            if after == item and new not in chain and (k == 0 or (chain[k - 1], new) in pairs):
                yield (*chain[:k], new, *chain[k:])


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
