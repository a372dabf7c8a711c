"""Pools: programs of one kernel that were measured side by side, and what a forecast is worth when some of them are to be chosen."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import mean, median

import numpy as np

from kir.base.dataclass import dataclass
from kir.hardware.target import target as target_of
from kir.learning.forecast.choosing import FAILING, REFERENCES
from kir.learning.forecast.comparison import Compared
from kir.learning.forecast.data import Data
from kir.learning.forecast.matrices import States, sizes_text
from kir.learning.forecast.model import Model

LEAST, DRAWN, TAKEN, DRAWS = 8, 16, 4, 200
"""Programs that make a pool; how many are forecast and how many measured; how often that is drawn."""
APART = 1.03
"""Programs whose times differ by less are not asked for their order."""


@dataclass(frozen=True)
class Pool:
    """Programs of one kernel at one shape on one device, on one surface: seconds of each, infinite for one that failed."""

    family: str
    device: str
    sizes: str
    surface: str
    programs: tuple[str, ...]
    seconds: tuple[float, ...]


def pools(data: Data, states: States) -> list[Pool]:
    """All pools of the data whose programs have features."""
    found: dict[tuple[str, str, str, str, str], dict[str, list[float]]] = {}
    for m in data.measured:
        row, at = data.programs[m.program], sizes_text(m.sizes)
        if (m.program, m.device, at) in states.plain:
            key = (row.family, row.problem or m.group, m.device, at, row.surface)
            found.setdefault(key, {}).setdefault(m.program, []).append(math.inf if m.fault or not math.isfinite(m.warm) else m.warm)
    out = []
    for (family, _, device, at, surface), held in sorted(found.items()):
        seconds = {p: median(times) for p, times in held.items()}
        if sum(map(math.isfinite, seconds.values())) >= LEAST:
            order = sorted(seconds)
            out.append(Pool(family, device, at, surface, tuple(order), tuple(seconds[p] for p in order)))
    return out


Score = Callable[[Pool], tuple[Sequence[float], Sequence[float]]]
"""How fast each program of a pool is thought to be (logarithms, the fastest most), and how likely each fails."""


def by_model(model_of: Callable[[Pool], Model | None], states: States, code: bool = False) -> Score:
    """The learned model, as `kir.learning.forecast.choosing.in_order` asks it: each program against a few of the others. With `code`, from machine code, and
    NaN for a pool of which a program has none."""
    held = states.code if code else states.plain

    def score(pool: Pool) -> tuple[Sequence[float], Sequence[float]]:
        model, keys = model_of(pool), [(p, pool.device, pool.sizes) for p in pool.programs]
        if model is None or not all(k in held for k in keys):
            return [math.nan] * len(keys), [0.0] * len(keys)
        count, target = len(keys), target_of(pool.device)
        compared = Compared(model.names)
        found = [compared.side(held[k]) for k in keys]
        places = sorted({round(i * (count - 1) / max(1, REFERENCES - 1)) for i in range(REFERENCES)})
        speed, fails = np.zeros(count), np.zeros(count)
        for place in places:
            seen = np.array([compared.pair(found[place], f, "", pool.surface, target) for f in found])
            turned = np.array([compared.pair(f, found[place], "", pool.surface, target) for f in found])
            _, failing, _, logs = model.answers(seen, turned)
            speed += (logs - logs[places[0]]) / len(places)
            if place == places[0]:
                fails = failing
        return speed.tolist(), fails.tolist()
    return score


def by_seconds(seconds: Mapping[tuple[str, str, str], float]) -> Score:
    """A model of seconds by program, device and sizes."""
    def score(pool: Pool) -> tuple[Sequence[float], Sequence[float]]:
        return [-math.log(max(seconds.get((p, pool.device, pool.sizes), math.nan), 1e-12)) for p in pool.programs], [0.0] * len(pool.programs)
    return score


@dataclass(frozen=True)
class PoolFigures:
    """Means over pools: pairs of programs that work ordered rightly by the speed that is forecast (of how many); the share of the best speed of the pool that
    the first choice reaches, and the best of the first four, for GEMM and for others, chosen by what each is worth (its speed, less for what likely fails);
    and, drawing sixteen, what four measured after a forecast reach of what sixteen measured do (and four at random)."""

    pools: int
    ordered: float
    compared: int
    first: tuple[float, float]
    four: tuple[float, float]
    drawn: float
    at_random: float


def figures(found: Sequence[Pool], score: Score) -> PoolFigures:
    """The figures of a score over pools."""
    right, asked = 0, 0
    first: dict[bool, list[float]] = {True: [], False: []}
    four: dict[bool, list[float]] = {True: [], False: []}
    drawn, at_random = [], []
    random = np.random.default_rng(0)
    for pool in found:
        speed, fails = score(pool)
        if any(math.isnan(s) for s in speed):
            continue
        worth = [s - FAILING * p for s, p in zip(speed, fails, strict=True)]
        times = pool.seconds
        for a, b in combinations(range(len(times)), 2):
            if math.isfinite(times[a]) and math.isfinite(times[b]) and max(times[a], times[b]) > APART * min(times[a], times[b]):
                asked += 1
                right += (speed[a] > speed[b]) == (times[a] < times[b]) if speed[a] != speed[b] else 0
        order = sorted(range(len(times)), key=lambda i: -worth[i])
        best, gemm = min(times), "gemm" in pool.family
        first[gemm].append(best / times[order[0]])
        four[gemm].append(best / min(times[i] for i in order[:TAKEN]))
        if len(times) >= DRAWN:
            for _ in range(DRAWS):
                held = [int(i) for i in random.choice(len(times), DRAWN, replace=False)]
                if not math.isfinite(top := min(times[i] for i in held)):
                    continue
                chosen = sorted(held, key=lambda i: -worth[i])[:TAKEN]
                drawn.append(top / min(times[i] for i in chosen))
                at_random.append(top / min(times[i] for i in held[:TAKEN]))
    return PoolFigures(len(found), right / asked if asked else math.nan, asked, (_mean(first[True]), _mean(first[False])),
                       (_mean(four[True]), _mean(four[False])),
                       _mean(drawn), _mean(at_random))


def _mean(values: Sequence[float]) -> float:
    return mean(values) if values else math.nan
