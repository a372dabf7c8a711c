"""How sure the measurements are themselves: how often an effect beyond 3 % has the same sign where the same pair was measured again.

`python -m benchmarks.forecast noise`.
"""
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise, permutations

from kir.base.dataclass import dataclass
from kir.learning.forecast.data import Data, PairRow
from kir.learning.forecast.matrices import sizes_text
from kir.learning.forecast.scores import PLAIN

NEAR = math.log(2.0)


@dataclass(frozen=True)
class Repeats:
    """Of effects beyond 3 %, and of those of them between 0.5x and 2x: how often their sign came again, and of how many; `alike`: the second measurement is
    of the same thing as the first, so that each is as likely to err."""

    what: str
    sign: tuple[float, int]
    sign_near: tuple[float, int]
    alike: bool = False


def repeats(data: Data) -> list[Repeats]:
    """The same pair at the same sizes again: in another group on the same device, on another device, with a cold L2; whether the 95 % interval of
    a pair's own rounds leaves 1x out; and any two programs that two groups have, which is what bounds how pools are ordered."""
    good = [p for p in data.pairs if not p.fault]
    return [Repeats("in another group, same device", *_shares(_again(good, lambda p: (p.device,), lambda p: p.group)), True),
            Repeats("any two programs of a kernel, in another group", *_shares(_apart(data)), True),
            Repeats("on another device", *_shares(_again(good, lambda p: (), lambda p: p.device))),
            Repeats("with a cold L2", *_shares((p.speedup, p.speedup_cold) for p in good if p.speedup_cold > 0)),
            Repeats("interval of the rounds leaves 1x out", *_shares((p.speedup, p.speedup if p.low > 1.0 or p.high < 1.0 else 1.0) for p in good))]


def _again(pairs: Sequence[PairRow], same: Callable[[PairRow], tuple[str, ...]], other: Callable[[PairRow], str]) -> Iterator[tuple[float, float]]:
    """Speedups of one measurement and of another one of the same pair, both ways round."""
    found: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for p in pairs:
        found[(p.before, p.after, sizes_text(p.sizes), p.shape, *same(p))].setdefault(other(p), p.speedup)
    for speedups in found.values():
        yield from permutations(speedups.values(), 2)


def _apart(data: Data) -> Iterator[tuple[float, float]]:
    """Speedups between any two programs in one group, and in another one that has both at the same sizes on the same device."""
    groups: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(dict)
    for m in data.measured:
        if not m.fault and math.isfinite(m.warm) and m.warm > 0:
            groups[(m.device, sizes_text(m.sizes))].setdefault(m.group, {})[m.program] = m.warm
    for held in groups.values():
        seen: set[tuple[str, str]] = set()
        for one, other in combinations(sorted(held), 2):
            for a, b in combinations(sorted(held[one].keys() & held[other].keys()), 2):
                if (a, b) not in seen:
                    seen.add((a, b))
                    yield from permutations((held[one][a] / held[one][b], held[other][a] / held[other][b]), 2)


def _shares(both: Iterator[tuple[float, float]]) -> tuple[tuple[float, int], tuple[float, int]]:
    beyond = [(math.log(a), math.log(b)) for a, b in both if abs(math.log(a)) > math.log(1.0 + PLAIN)]
    near = [(a, b) for a, b in beyond if abs(a) < NEAR]
    return _share(beyond), _share(near)


def _share(both: Sequence[tuple[float, float]]) -> tuple[float, int]:
    return (sum(a * b > 0 for a, b in both) / len(both) if both else math.nan), len(both)


SIZES = (0.05, 0.11, 0.22, 0.49)
"""Ends of the classes of effects by size."""


def by_size(pairs: Sequence[PairRow]) -> list[Repeats]:
    """The same pair in another group on the same device, by how large the effect was measured."""
    both = list(_again([p for p in pairs if not p.fault], lambda p: (p.device,), lambda p: p.group))
    out = []
    for low, high in zip((PLAIN, *SIZES), (*SIZES, math.inf), strict=True):
        name = f"{low:.0%} to {high:.0%}" if math.isfinite(high) else f"over {low:.0%}"
        held = [(a, b) for a, b in both if math.log1p(low) < abs(math.log(a)) <= math.log1p(high)]
        out.append(Repeats(name.replace("%", " %"), *_shares(iter(held)), True))
    return out


def known(same: float) -> float:
    """How often a forecast that knew the true speedup would have the sign of a measurement, where two measurements have the same one so often: each errs by
    itself, and both or none must have erred. Below one in two nothing is known of it (NaN)."""
    return (1.0 + math.sqrt(2.0 * same - 1.0)) / 2.0 if same >= 0.5 else math.nan


def ceiling(pairs: Sequence[PairRow]) -> float:
    """How many signs of all effects beyond 3 % a forecast would have that knew every true speedup: those of each size as often as repeated ones of it."""
    held = by_size(pairs)
    sizes = [abs(math.log(p.speedup)) for p in pairs if not p.fault and p.speedup > 0]
    ends = [math.log1p(x) for x in (PLAIN, *SIZES)] + [math.inf]
    counts = [sum(a < size <= b for size in sizes) for a, b in pairwise(ends)]
    rates = [known(r.sign[0]) if r.sign[1] else math.nan for r in held]
    return sum(c * r for c, r in zip(counts, rates, strict=True) if c) / sum(counts) if sum(counts) else math.nan


def lines(found: Sequence[Repeats], first: str = "the same pair again") -> list[str]:
    """The rows of a table."""
    def of(share: tuple[float, int]) -> str:
        return f"{share[0]:.1%} of {share[1]}".replace("%", " %") if share[1] else "-"

    def truth(share: tuple[float, int]) -> str:
        return "-" if not share[1] or math.isnan(at := known(share[0])) else f"{at:.1%}".replace("%", " %")
    return [f"| {first} | same sign, beyond 3 % | of those 0.5x to 2x | right, if the true speedup were known |", "| --- | ---: | ---: | ---: |",
            *(f"| {r.what} | {of(r.sign)} | {of(r.sign_near)} | {truth(r.sign) if r.alike else '-'} |" for r in found)]
