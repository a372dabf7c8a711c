"""Kernels that nobody had measured when the model was trained: the shipped file, not one that was trained without a part, asked about them.

`benchmarks/data/effects-fresh` holds them, where they were measured (`python -m benchmarks.effects make --kinds package --known benchmarks/data/effects`, and
`make --fifth --known ..`). Nothing is ever trained on it. A pair that was measured twice counts once; the second time tells how often
its sign came again.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.effects.device import AGAIN
from benchmarks.forecast import answers, limits, measures, noise, page
from benchmarks.forecast import pools as pooled
from kir.learning.forecast.data import MANIFEST, read
from kir.learning.forecast.matrices import rows_of, states
from kir.learning.forecast.model import Model

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
    kernels = {"/".join(p.group.split("/")[:3]) for p in pairs}
    packages = Counter(kernel.split("/")[1] for kernel in kernels)
    shown = [page.Line(each.name, measures.figures(each, rows.measured, rows.fault), pooled.figures(pools, score))
             for each, score in zip(asked, scores, strict=True)]
    return [f"The shipped model's forecasts of {len(pairs)} pairs of {len(kernels)} kernels of packages that no part of the data has "
            f"({', '.join(f'{name} {count}' for name, count in sorted(packages.items()))}; {len(set(rows.family.tolist()))} families), of which nothing "
            "was known when it was trained, and on which nothing is trained: launches that the packages make, walked back.", "",
            *page.of_pairs(shown), "", *page.of_pools(shown), "", *limits.sure(asked, rows.measured), "", *noise.lines([again])]
