"""What keeps forecasts from being right: effects that are none, sides of 1x that no measurement repeats, and where the wrong signs are."""
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.forecast.answers import Answers
from benchmarks.forecast.measures import ranked, signs
from kir.learning.forecast.data import Data, PairRow
from kir.learning.forecast.distribution import BINS
from kir.learning.forecast.matrices import sizes_text
from kir.learning.forecast.scores import PLAIN
from kir.learning.forecast.training import Rows
from kir.learning.forecast.trees import Array

SAME = "same s.code"
"""The feature of pairs whose machine code has the same mix of instructions, registers, spills and shared memory."""
WIDTHS = (0.01, 0.02, 0.03, 0.05)
"""How far the first measurement may lie from the second, as tried (logarithms)."""
SHOWN, LEAST = 14, 20
"""Lines of each table of wrong signs, and effects that a line has at least."""


def lines(rows: Rows, pairs: Sequence[PairRow], analytic: Answers) -> list[str]:
    """What the best of forecasts could not do better, as lines of a page."""
    good = np.isfinite(rows.measured)
    size = np.abs(rows.measured[good])
    within, coin = size <= math.log(1.0 + PLAIN), 0.25 / len(BINS)
    score = ranked(analytic, rows.measured)
    beyond = good & (np.abs(np.nan_to_num(rows.measured)) > math.log(1.0 + PLAIN))
    same = (rows.seen_code[:, rows.names.index(SAME)] == 1.0) if SAME in rows.names else np.zeros(len(rows), bool)
    out = [f"- {int((same & good).sum())} pairs are of the same machine code as far as its mix of instructions, registers, spills and shared memory tell. "
           f"{int((same & beyond).sum())} of them were measured beyond 3 %: {_percent((same & beyond).sum(), beyond.sum())} of all such effects, "
           "whose sign no program could tell.",
           f"- {_percent(within.sum(), len(size))} of the pairs lie within 3 % of 1x, and {int((size == 0.0).sum())} at it exactly; "
           f"1x is an edge of the eight bins. A forecast that knows all others exactly and tosses a coin for these "
           f"has a ranked probability score of {within.mean() * coin:.4f}. "
           f"The analytic model has {np.nanmean(score):.4f}, of which {np.nanmean(score[good][within]) * within.mean():.4f} are of these pairs."]
    once, again = repeated(pairs)
    if len(once):
        best, wide = min((float(np.mean(_about(rows.measured[again], wide, rows.measured[once]))), wide) for wide in WIDTHS)
        out.append(f"- {len(once)} pairs were measured again in another group on the same device. The second measurement, with {100 * wide:g} % about it, "
                   f"taken as the forecast of the first, scores {best:.4f}, where the analytic model scores {np.mean(score[once]):.4f}.")
    return out


def of_scores(measured: Array, analytic: Answers, learned: Answers) -> list[str]:
    """What the score of a model's distributions would be, if it knew more: which side of 1x each measurement is on, or the measurement itself as its middle."""
    plain, own = (float(np.nanmean(ranked(each, measured))) for each in (analytic, learned))
    exact = float(np.nanmean(ranked(replace(learned, logs=learned.logs - learned.median[:, None] + measured[:, None]), measured)))
    faster = (measured >= 0.0)[:, None]
    sided = float(np.nanmean(ranked(replace(learned, logs=np.where(faster, np.maximum(learned.logs, 1e-9), np.minimum(learned.logs, -1e-9))), measured)))

    def better(score: float) -> str:
        return f"{score:.4f}, {_percent(plain - score, plain)} below the analytic model's"
    return [f"- The learned model's score is {better(own)}. If it knew of every pair which side of 1x the measurement is on, and nothing else more, it would "
            f"have {better(sided)}; if the middle of each of its distributions were the measurement, as wide as they are, {better(exact)}."]


def sure(models: Sequence[Answers], measured: Array) -> list[str]:
    """A table of how far a forecast's doubt is right: it says which is faster (`pays` is `yes` or `no`) where its 80 % interval leaves 1x out."""
    there = np.isfinite(measured)
    beyond = there & (np.abs(np.nan_to_num(measured)) > math.log(1.0 + PLAIN))
    out = ["| model | pairs of which it is sure | of these within 3 % of 1x | effects beyond 3 % of which it is | right where it is | right where it is not |",
           "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for each in models:
        known = there & np.isfinite(each.logs).all(axis=1)
        certain = known & ((each.quantile(0.1) > 0.0) | (each.quantile(0.9) < 0.0))
        right, effects = np.sign(each.median) == np.sign(measured), known & beyond
        out.append(f"| {each.name} | {_percent(certain.sum(), known.sum())} | {_percent((certain & ~beyond).sum(), certain.sum())} | "
                   f"{_percent((certain & effects).sum(), effects.sum())} | {_percent((right & certain & effects).sum(), (certain & effects).sum())} | "
                   f"{_percent((right & ~certain & effects).sum(), (~certain & effects).sum())} |")
    return out


def repeated(pairs: Sequence[PairRow]) -> tuple[Array, Array]:
    """Numbers of pairs that were measured, and of the same pair at the same sizes in another group on the same device."""
    found: dict[tuple[str, str, str, str], dict[str, int]] = defaultdict(dict)
    for i, p in enumerate(pairs):
        if not p.fault:
            found[(p.before, p.after, sizes_text(p.sizes), p.device)].setdefault(p.group, i)
    both = [tuple(groups.values())[:2] for groups in found.values() if len(groups) > 1]
    return np.array([a for a, _ in both], dtype=np.intp), np.array([b for _, b in both], dtype=np.intp)


def _about(middle: Array, wide: float, measured: Array) -> Array:
    """The ranked probability scores of normal distributions about logarithms, `wide` and a tenth of the logarithm wide."""
    from scipy.special import ndtr

    ends = np.log(np.array(BINS))
    below = ndtr((ends[None, :] - middle[:, None]) / np.hypot(wide, 0.1 * middle)[:, None])
    found: Array = ((below - (np.searchsorted(ends, measured, side="right")[:, None] <= np.arange(len(BINS))[None, :])) ** 2).mean(axis=1)
    return found


def wrong(rows: Rows, pairs: Sequence[PairRow], data: Data, models: Mapping[str, Answers]) -> list[str]:
    """Tables of where signs of effects beyond 3 % are wrong: by family, by surface and source, by step; those with the most first."""
    beyond = np.flatnonzero(np.abs(np.nan_to_num(rows.measured)) > math.log(1.0 + PLAIN))
    right = {name: signs(each) == np.sign(rows.measured) for name, each in models.items()}
    last = list(models)[-1]

    kinds: dict[str, Callable[[int], str]] = {
        "family": lambda i: str(rows.family[i]), "surface and source": lambda i: f"{data.programs[pairs[i].after].surface}, {pairs[i].source}",
        "device": lambda i: pairs[i].device, "size of the effect": lambda i: _size(abs(rows.measured[i])), "step": lambda i: step_of(pairs[i])}
    out: list[str] = []
    for kind, of in kinds.items():
        held: dict[str, list[int]] = defaultdict(list)
        for i in beyond.tolist():
            held[of(i)].append(i)
        shown = sorted(((name, np.array(which)) for name, which in held.items() if len(which) >= LEAST or kind == "device"),
                       key=lambda each: (-int((~right[last][each[1]]).sum()), each[0]))[:SHOWN]
        out += [f"| {kind} | effects | " + " | ".join(f"{name}: right" for name in models) + f" | wrong, {last} |",
                "| --- | ---: |" + " ---: |" * (len(models) + 1)]
        out += [f"| {name} | {len(which)} | " + " | ".join(_percent(right[m][which].sum(), len(which)) for m in models)
                + f" | {int((~right[last][which]).sum())} |" for name, which in shown]
        out.append("")
    return out[:-1]


def step_of(p: PairRow) -> str:
    """The pass that lies between the programs of a pair."""
    name = p.step.strip().lstrip("~").partition("@")[0].partition("{")[0].strip()
    return f"`{name}`" if name else "several steps"


def larger(sizes: Array, right: Mapping[str, Array]) -> list[str]:
    """A table of right signs by how large an effect is at least, and of the last model's wrong signs the part that are of smaller ones; `right` says of each
    effect (logarithms `sizes`, positive) whether a model had its sign."""
    last = list(right)[-1]
    out = ["| effects beyond | how many | " + " | ".join(f"{name}: right" for name in right) + f" | of all that {last} has wrong, smaller |",
           "| --- | ---: |" + " ---: |" * (len(right) + 1)]
    for least in (math.log(1.0 + PLAIN), *SIZES):
        there, wrong_ = sizes > least, ~right[last]
        out.append(f"| {math.exp(least) - 1.0:.0%} | {int(there.sum())} | ".replace("%", " %")
                   + " | ".join(_percent(of[there].sum(), there.sum()) for of in right.values())
                   + f" | {_percent((wrong_ & ~there).sum(), wrong_.sum())} |")
    return out


SIZES = (0.05, 0.1, 0.2, 0.4, 1.0)
"""Ends of the classes of effects by size (a logarithm)."""


def _size(value: float) -> str:
    ends = [PLAIN, *(math.exp(s) - 1.0 for s in SIZES)]
    k = int(np.searchsorted(np.log1p(np.array(ends)), value))
    return f"{ends[k - 1]:.0%} to {ends[k]:.0%}".replace("%", " %") if k < len(ends) else f"over {ends[-1]:.0%}".replace("%", " %")


def _percent(part: float, whole: float) -> str:
    return f"{float(part) / float(whole):.1%}".replace("%", " %") if whole else "-"
