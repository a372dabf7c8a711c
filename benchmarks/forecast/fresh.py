"""Kernels that nobody had measured when the model was trained: the shipped file, not one that was trained without a part, asked about them.

`benchmarks/data/effects-fresh` holds them, where they were measured (`python -m benchmarks.effects make --kinds package --known benchmarks/data/effects`, and
`make --fifth --known ..`). Nothing is ever trained on it. A pair that was measured twice counts once; the second time tells how often
its sign came again.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.effects.device import AGAIN
from benchmarks.forecast import answers, limits, measures, noise, page
from benchmarks.forecast import pools as pooled
from kir.learning.forecast.data import MANIFEST, PairRow, read
from kir.learning.forecast.matrices import rows_of, states
from kir.learning.forecast.model import Model
from kir.learning.forecast.scores import PLAIN
from kir.learning.forecast.trees import Array

DRAWS = 1000
"""How often kernels are drawn anew for an interval."""
FOLDER = Path(__file__).parents[1] / "data" / "effects-fresh"


def lines(model: Path, known: Path, folder: Path = FOLDER, cache: Path | None = None, jobs: int = 1,
          told: Callable[[int, int], None] = lambda done, all_: None) -> list[str]:
    """What the analytic and the learned model say of the pairs of `folder`, as lines of a page; nothing where there is none, or no model. Raises KirError
    KIR-E005 for a model that was not trained on the data in `known`; pairs of programs that those have are left out."""
    if not (folder / MANIFEST).is_file() or not model.is_file():
        return []
    data, before = read(folder), read(known)
    data = replace(data, pairs=[p for p in data.pairs if not {p.before, p.after} & before.programs.keys()])
    again = noise.repeats(data)[0]
    data = replace(data, pairs=[p for p in data.pairs if not p.group.endswith(AGAIN)], measured=[m for m in data.measured if not m.group.endswith(AGAIN)])
    found = states(data, cache, jobs, told)
    held = Model.read(model, before.hash)
    rows, pairs = rows_of(data, found, (held.names, held.used))
    asked = [answers.analytic(found, pairs), answers.analytic(found, pairs, True)]
    asked += [answers.asked(name, [held], rows, np.zeros(len(rows), int), code) for name, code in (("learned", False), ("learned, compiled", True))]
    pools = pooled.pools(data, found)
    scores = [pooled.by_seconds({k: s["t.total"] for k, s in of.items()}) for of in (found.plain, found.code)]
    scores += [pooled.by_model(lambda pool: held, found, code) for code in (False, True)]
    kernels = {_kernel(p) for p in pairs}
    packages = Counter(kernel.split("/")[1] if kernel.startswith("package") else "our problems" for kernel in kernels)
    shown = [page.Line(each.name, measures.figures(each, rows.measured, rows.fault), pooled.figures(pools, score))
             for each, score in zip(asked, scores, strict=True)]
    return [f"The shipped model's forecasts of {len(pairs)} pairs of {len(kernels)} kernels that no part of the data has "
            f"({', '.join(f'{name} {count}' for name, count in sorted(packages.items()))}; {len(set(rows.family.tolist()))} families), of which nothing "
            "was known when it was trained, and on which nothing is trained: launches that packages make, walked back, and walks about problems.", "",
            *page.of_pairs(shown), "",
            "Right signs by surface, with 95 % intervals: kernels are drawn anew, as pairs of one are alike.", "",
            *intervals(asked, rows.measured, [_kernel(p) for p in pairs], [data.programs[p.after].surface for p in pairs]), "", *page.of_pools(shown), "",
            *limits.sure(asked, rows.measured), "", *noise.lines([again])]


def _kernel(p: PairRow) -> str:
    """The kernel that a pair is of: of a package, or of a problem, whatever surface a walk about it is on."""
    kind, *rest = p.group.split("/")
    return "/".join((kind, *rest[:2])) if kind == "package" else f"problem/{rest[0]}"


def intervals(asked: Sequence[answers.Answers], measured: Array, kernels: Sequence[str], surfaces: Sequence[str]) -> list[str]:
    """A table of right signs beyond 3 % with their 95 % intervals, of all pairs and by surface."""
    beyond = np.abs(np.nan_to_num(measured)) > math.log(1.0 + PLAIN)
    of = np.unique(np.array(kernels, dtype=str), return_inverse=True)[1]
    out = ["| pairs | kernels | effects beyond 3 % | " + " | ".join(f"{each.name}: right" for each in asked) + " |",
           "| --- | ---: | ---: |" + " ---: |" * len(asked)]
    kinds = [("all", beyond), *((s, beyond & (np.array(surfaces, dtype=str) == s)) for s in sorted(set(surfaces)))]
    for name, there in kinds:
        count = np.bincount(of[there], minlength=of.max() + 1)
        cells = []
        for each in asked:
            right = np.bincount(of[there], (measures.signs(each) == np.sign(measured))[there], len(count))
            drawn = np.random.default_rng(0).integers(0, len(held := np.flatnonzero(count)), (DRAWS, len(held))) if count.any() else np.zeros((1, 0), int)
            shares = right[held][drawn].sum(axis=1) / count[held][drawn].sum(axis=1) if count.any() else np.array([math.nan])
            low, high = np.quantile(shares, (0.025, 0.975))
            cells.append(f"{100 * right.sum() / max(count.sum(), 1):.1f} % ({100 * low:.0f} to {100 * high:.0f})" if count.any() else "-")
        out.append(f"| {name} | {int((count > 0).sum())} | {int(count.sum())} | {' | '.join(cells)} |")
    return out
