"""Training the learned model: forests grown by LightGBM (extra `forecast`) on the error of the analytic one, and calibrated on families left out.

Location and scale are grown for the logarithmic score of a Student distribution, which is proper and does not let a few wild pairs decide. Every error
that widths, quantiles and rates are fitted to is one on families that the forest had not seen.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.learning.forecast.distribution import BINS
from kir.learning.forecast.model import ANALYTIC, BENDS, NARROWEST, WIDEST, Model, distances, scaled_by, slower, with_own, without_code
from kir.learning.forecast.trees import Array, Forest, nothing

LEVELS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99)
FREEDOM = 3.0
"""Degrees of freedom of the Student distribution."""
NOISE = 0.3
"""Its scale while the location is grown: errors much smaller are as good as none, much larger ones count little more."""
FOLDS = 5
"""Parts that families are dealt into for errors on families left out."""
SHARE_TRUSTED = 0.8
"""How much of the analytic model's own slope is taken as it is: the trees add the rest where it helps, and may only add."""
CENTROIDS = 96
KNOTS, LEAST_AT = 5, 150
"""Widths at which quantiles of errors are taken apart, as small and large errors are of other kinds; and the errors that each needs."""
MOST = 14_000
"""Pairs that the location is trained on, at most."""
MORE = (" t.", "log n.kernels", "log s.spills", "log k.kernels")
"""Less of these never hurts: seconds of a resource, launches, spilled bytes. The location rises with log2 of before over after."""
WORSE = ("limit ", "at l.illegal", "at l.refused", "moved ")
"""More of these never makes a program likelier to run."""
ANALYTIC_KINDS = (" t.", " w.", " o.", "limit ")
"""What comes from the analytic model's counting."""
COMPARED = ("mix ", "share ", "at ")
"""Features that tell how far a pair is from those of training."""
SELECTED, TRIED = 80, 0.15
"""Features that the forests of speedups see, at most; and the part of the trees by which they are chosen."""
WAY, WAY_NOTED, WAY_MOST, WAY_LEAST = 0.2, 0.03, 0.1, 0.3
"""By how much (a logarithm) a forest's word makes it surer which of both is faster; the effect from which that is asked, the one from which all count alike,
and what the smallest that is asked counts."""
TRUSTED, HELD, ERRED = (0.6, 0.7, 0.8, 0.9, 1.0), (0.0, 0.15, 0.25, 0.35, 0.5, 0.75, 1.0), 0.7
"""Shares of the analytic model and of forests that are tried on families left out, and the error from which a pair counts no more."""
SURE = tuple(i * 0.2 for i in range(21))
"""Weights that are tried for how sure it is which side of 1x a step is on."""
DRAWN_COUNTS = 0.6
"""What a pair counts that no step joins, beside one of a step."""
TREES = {"location": 180, "way": 180, "scale": 90, "fail": 120}
GROWN: Mapping[str, Any] = {"learning_rate": 0.08, "num_leaves": 24, "min_data_in_leaf": 40, "feature_fraction": 0.5, "bagging_fraction": 0.6,
                            "bagging_freq": 1,
                            "lambda_l2": 5.0, "max_depth": 8, "max_bin": 127, "verbosity": -1, "deterministic": True, "force_row_wise": True}


@dataclass(frozen=True)
class Rows:
    """Pairs as matrices: features (`seen`), those of the pair the other way round (`turned`), the same with machine code where both programs were compiled
    (`seen_code`, `turned_code`; rows of NaN where not), the logarithm of the measured speedup (NaN where it failed), `fault`, and the family of each."""

    names: tuple[str, ...]
    used: int
    seen: Array
    turned: Array
    seen_code: Array
    turned_code: Array
    measured: Array
    fault: Array
    family: Array
    about: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.measured)

    def take(self, chosen: Array) -> Rows:
        """Some of the rows, by a mask or by number."""
        parts = {k: getattr(self, k)[chosen] for k in ("seen", "turned", "seen_code", "turned_code", "measured", "fault", "family")}
        return replace(self, **parts)

    def named(self, names: Sequence[str], used: int) -> Rows:
        """The same rows with these features alone, in this order, of which the forests see the first `used`."""
        place = {name: i for i, name in enumerate(self.names)}
        keep = [place[name] for name in names]
        parts = {k: getattr(self, k)[:, keep] for k in ("seen", "turned", "seen_code", "turned_code")}
        return replace(self, names=tuple(names), used=used, **parts)

    def without_analytic(self) -> Rows:
        """The same rows without what the analytic model counts."""
        keep = [i for i, name in enumerate(self.names) if not any(kind in name for kind in ANALYTIC_KINDS)]
        return self.named([self.names[i] for i in keep], sum(i < self.used for i in keep))


@dataclass(frozen=True)
class Options:
    """How a model is trained. `shaped` adds the Brier score of the eight bins to what the scale is grown for, in which the reward of GPU Forecasters
    (arXiv 2605.31464) rewards calibration; `calibrated` and `way` are off only to show what
    calibration, and a forest of which is faster, do; `trees` scales the number of trees."""

    seed: int = 0
    shaped: float = 0.0
    calibrated: bool = True
    monotone: bool = True
    way: bool = True
    trees: float = 1.0
    threads: int = 1


@dataclass(frozen=True)
class Located:
    """What a model's width and failures are trained on: a model with its location, and for each measured pair what one without its family says (`middle`, and
    `leaning` of which is faster), how far the pair lies from that one's training data (`own`), and the part that was left out (`folds`)."""

    model: Model
    held: Rows
    middle: Array
    leaning: Array
    own: Array
    folds: Array


def train(rows: Rows, options: Options | None = None, about: Mapping[str, Any] | None = None, located: Located | None = None,
          drawn: Rows | None = None) -> Model:
    """A model of rows; `located` is what `locate` made of the same rows, if it is at hand. `drawn` are further pairs, of any two programs of a kernel, for the
    forests that tell how much and which is faster; nothing is calibrated by them. Raises KirError KIR-E006 without LightGBM, KIR-E011 for fewer than
    two families."""
    o = options or Options()
    found = located or locate(rows, o, drawn)
    full = _calibrated(found, o)
    odds, rates, fail = _failing(rows.named(full.names, rows.used), o)
    return replace(full, fail=fail, odds=odds, rates=rates, about={**rows.about, **(about or {}), "seed": o.seed, "shaped": o.shaped})


def locate(rows: Rows, o: Options, drawn: Rows | None = None) -> Located:
    """The first half of training: the location, on all measured pairs and without each part of the families."""
    good = np.flatnonzero(np.isfinite(rows.measured))
    if (count := len(set(rows.family[good].tolist()))) < 2:
        raise error("KIR-E011", f"there are measured pairs of {count} kernel famil{'y' if count == 1 else 'ies'}",
                    needs="two at least: every error is one on a family left out")
    rows = rows.named(*chosen(rows, good, o))
    drawn = drawn.named(rows.names, rows.used) if drawn is not None and len(drawn) else None
    held = rows.take(_fewer(rows.family, good, o))
    folds = dealt(held.family, min(FOLDS, len(set(held.family.tolist()))))
    base = _bare(rows)
    trust = _slope(base.base(held.seen), held.measured, _weights(held.family)) if ANALYTIC in rows.names else 0.0
    compared = tuple(i for i, name in enumerate(rows.names) if name.startswith(COMPARED) and " s." not in name)
    base = replace(base, trust=trust, compared=compared)
    full = _near(_located(held, base, o, drawn), held, o)
    compiled = np.flatnonzero(np.isfinite(held.seen_code).any(axis=1))
    said, of_code, own = np.zeros((len(held), 3)), np.zeros((len(held), 3)), np.zeros(len(held))
    for fold in range(int(folds.max()) + 1):
        rest, out = held.take(folds != fold), folds == fold
        others = drawn.take(~np.isin(drawn.family.astype(str), held.family[out].astype(str))) if drawn is not None else None
        part = _near(_located(rest, base, o, others), rest, o)
        said[out], own[out] = part.said(held.seen[out], held.turned[out]), part.distance(held.seen[out])
        too = compiled[folds[compiled] == fold]
        of_code[too] = part.said(held.seen_code[too], held.turned_code[too])
    both = np.concatenate([np.arange(len(held)), compiled])
    trust, much, way = _shares(np.concatenate([said, of_code[compiled]]), held.measured[both], _weights(held.family)[both])
    full = replace(full, trust=trust, location=full.location.scaled(much), way=full.way.scaled(way), far=float(np.quantile(own, 0.99)))
    leaning = said[:, 0] + way * said[:, 2]
    return Located(replace(full, sure=_sure(leaning, held.measured)), held, trust * said[:, 0] + much * said[:, 1], leaning, own, folds)


def _sure(leaning: Array, measured: Array) -> tuple[float, ...]:
    """How likely either side of 1x is, by what was said of which is faster: the weights with the least Brier score on families left out, each pair counted
    once."""
    said, was = leaning[leaning != 0.0], (measured < 0.0)[leaning != 0.0]
    tried = [(a, b) for a in SURE for b in SURE]
    return min(tried, key=lambda weights: float(((slower(said, weights) - was) ** 2).mean())) if len(said) else tried[0]


def _shares(said: Array, measured: Array, weights: Array) -> tuple[float, float, float]:
    """How much of what the analytic model, the location forest and that of which is faster say holds on families left out: the shares with the least absolute
    error (no more than `ERRED` of each pair), and the one with the most right signs of effects that are noted."""
    _, trust, much = min((float((weights * np.minimum(np.abs(measured - trust * said[:, 0] - much * said[:, 1]), ERRED)).sum()), trust, much)
                         for trust in (TRUSTED if said[:, 0].any() else (0.0,)) for much in HELD)
    noted = np.abs(measured) > WAY_NOTED
    _, way = max((float((weights * ((said[:, 0] + way * said[:, 2]) * measured > 0.0))[noted].sum()), way) for way in HELD)
    return trust, much, way


def chosen(rows: Rows, good: Array, o: Options) -> tuple[list[str], int]:
    """Names of the features that a model is trained with, and how many the forests of speedups see: those by which a few of their trees gain most come first.
    The forest of failures sees all that forests may (`rows.used`): a fault of its own kind shows in features that tell nothing of speed. Then come those that
    tell how far off a pair is."""
    if rows.used <= SELECTED:
        return list(rows.names), rows.used
    held = rows.take(_fewer(rows.family, good, o))
    base = replace(_bare(rows), trust=SHARE_TRUSTED if ANALYTIC in rows.names else 0.0)
    gains = _gains(_location_booster(held, base, replace(o, trees=o.trees * TRIED)))
    kept = {rows.names[i] for i in np.argsort(-gains, kind="stable")[:SELECTED]} | ({ANALYTIC} & set(rows.names))
    first = [name for name in rows.names[:rows.used] if name in kept]
    rest = [name for name in rows.names[:rows.used] if name not in kept]
    return [*first, *rest, *(name for name in rows.names[rows.used:] if name.startswith(COMPARED) and " s." not in name)], len(first)


def _gains(booster: Any) -> Array:
    return np.asarray(booster.feature_importance("gain"), dtype=np.float64)


def _fewer(family: Array, rows: Array, o: Options) -> Array:
    """At most `MOST` of some rows, the same number of every family that has as many; drawn by the seed."""
    if len(rows) <= MOST:
        return rows
    draw = np.random.default_rng(o.seed).permutation(rows)
    most = next(n for n in range(MOST, 0, -max(1, MOST // 100)) if sum(min(n, c) for c in Counter(family[rows].tolist()).values()) <= MOST)
    seen: Counter[str] = Counter()
    kept = []
    for i in draw.tolist():
        seen[family[i]] += 1
        if seen[family[i]] <= most:
            kept.append(i)
    return np.array(sorted(kept))


def dealt(family: Array, parts: int) -> Array:
    """The part of each row: whole families, the largest first to the part with the fewest rows. The same for the same families."""
    counts = Counter(family.tolist())
    loads = [0] * max(1, parts)
    part = {}
    for name, count in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0])):
        part[name] = loads.index(min(loads))
        loads[part[name]] += count
    return np.array([part[name] for name in family.tolist()], dtype=np.int64)


def _bare(rows: Rows) -> Model:
    """A model that says nothing yet."""
    none = np.zeros(0)
    return Model(rows.names, rows.used, nothing(), nothing(), nothing(), nothing(), 0.0, math.log(0.3), LEVELS, (0.0,), (tuple(0.0 for _ in LEVELS),),
                 tuple(0.0 for _ in BENDS), (0.0, 1.0), (0.0, 0.0), (), none, none, np.zeros((0, 0)), math.inf, rows.about)


def _weights(family: Array) -> Array:
    """Rows of a family count together as the square root of how many they are."""
    counts = Counter(family.tolist())
    found = np.array([counts[name] ** -0.5 for name in family.tolist()])
    return found / found.mean() if len(found) else found


def _slope(base: Array, measured: Array, weights: Array) -> float:
    """How much of the analytic model's logarithm is measured: the slope with the least absolute error, 0 to 1, of which `SHARE_TRUSTED` is kept."""
    tried = np.linspace(0.0, 1.0, 41)
    lost = [float((weights * np.abs(measured - t * base)).sum()) for t in tried]
    return SHARE_TRUSTED * float(tried[int(np.argmin(lost))])


def _located(rows: Rows, base: Model, o: Options, drawn: Rows | None = None) -> Model:
    """A model with its location, and with the forest of which is faster."""
    def grown(booster: Any) -> Forest:
        return Forest.of(booster.dump_model(), rows.used)
    return replace(base, location=grown(_location_booster(rows, base, o, drawn)),
                   way=grown(_way_booster(rows, base, o, drawn)) if o.way else nothing())


@dataclass(frozen=True)
class _Turned:
    """Pairs both ways round, with machine code and without: features, the logarithm of the measured speedup, what the analytic model says of it, weights."""

    seen: Array
    measured: Array
    base: Array
    weights: Array
    signs: Sequence[int]


def _both_ways(rows: Rows, base: Model, o: Options, drawn: Rows | None = None) -> _Turned:
    blocks: list[tuple[Array, Array, Array, float]] = []
    for part, counts in ((rows, 1.0), *([(drawn, DRAWN_COUNTS)] if drawn is not None else [])):
        compiled = np.isfinite(part.seen_code).any(axis=1)
        blocks += [(x, sign * part.measured, part.family, counts) for x, sign in ((part.seen, 1.0), (part.turned, -1.0))]
        measured, family = part.measured[compiled], part.family[compiled]
        blocks += [(x[compiled], sign * measured, family, counts) for x, sign in ((part.seen_code, 1.0), (part.turned_code, -1.0))]
    matrix = np.concatenate([x for x, _, _, _ in blocks])
    weights = _weights(np.concatenate([f for _, _, f, _ in blocks])) * np.concatenate([np.full(len(y), counts) for _, y, _, counts in blocks])
    signs = [1 if o.monotone and any(kind in name for kind in MORE) and name.startswith("log ") else 0 for name in rows.names[:rows.used]]
    return _Turned(matrix[:, :rows.used], np.concatenate([y for _, y, _, _ in blocks]), base.base(matrix), weights / weights.mean(), signs)


def _location_booster(rows: Rows, base: Model, o: Options, drawn: Rows | None = None) -> Any:
    """The forest of what the analytic model gets wrong, over pairs both ways round, with machine code and without."""
    both = _both_ways(rows, base, o, drawn)
    wanted = both.measured - base.trust * both.base

    def objective(guess: Array, _: Any) -> tuple[Array, Array]:
        wrong = guess - wanted
        near = (FREEDOM + 1.0) / (FREEDOM * NOISE ** 2 + wrong ** 2) * NOISE ** 2
        return near * wrong, near
    return _booster(both.seen, both.weights, objective, "location", o, both.signs)


def _way_booster(rows: Rows, base: Model, o: Options, drawn: Rows | None = None) -> Any:
    """The forest of which is faster, for the logarithmic score of that alone: to the location an effect of 5 % is as good as none, as its error is small
    either way."""
    both = _both_ways(rows, base, o, drawn)
    faster, size = (both.measured > 0).astype(np.float64), np.abs(both.measured)
    counts = np.minimum(size, WAY_MOST) / WAY_MOST
    counts = np.where(size > WAY_NOTED, np.maximum(counts, WAY_LEAST), counts)

    def objective(guess: Array, _: Any) -> tuple[Array, Array]:
        likely = 1.0 / (1.0 + np.exp(-np.clip((guess + both.base) / WAY, -30.0, 30.0)))
        return counts * (likely - faster) * WAY, np.maximum(counts * likely * (1.0 - likely), 0.01)
    return _booster(both.seen, both.weights, objective, "way", o, both.signs)


def _near(model: Model, rows: Rows, o: Options) -> Model:
    """The model with centroids of what it was trained on."""
    from scipy.cluster.vq import kmeans2

    seen = np.nan_to_num(rows.seen[:, list(model.compared)])
    if not len(seen) or not model.compared:
        return model
    center = np.median(seen, axis=0)
    spread = np.maximum(np.quantile(seen, 0.9, axis=0) - np.quantile(seen, 0.1, axis=0), 0.05)
    scaled = scaled_by(seen, center, spread)
    unlike = np.unique(scaled.round(3), axis=0)
    if len(unlike) > CENTROIDS:
        unlike, _ = kmeans2(unlike, CENTROIDS, iter=12, minit="++", seed=np.random.default_rng(o.seed))
    return replace(model, center=center, spread=spread, centroids=unlike)


def _calibrated(found: Located, o: Options) -> Model:
    """The model with widths and quantiles, from errors on families left out."""
    full, rows, middle, own, folds = found.model, found.held, found.middle, found.own, found.folds
    wrong = rows.measured - middle
    start = float(np.clip(math.log(max(float(np.median(np.abs(wrong))), 1e-4)), NARROWEST, WIDEST))
    seen = with_own(rows.seen[:, :rows.used], full.base(rows.seen), middle, own)
    weights = _weights(rows.family)

    def grown(chosen: Array) -> Forest:
        return _scale(seen[chosen], wrong[chosen], middle[chosen], weights[chosen], start, o)
    if not o.calibrated:
        normal = tuple(_student(level) for level in LEVELS)
        return replace(full, scale=grown(np.ones(len(rows), bool)), start=start, quantiles=(normal,))
    width = np.zeros(len(rows))
    for fold in range(folds.max() + 1):
        out = folds == fold
        width[out] = grown(~out)(seen[out])
    width = np.clip(start + width, NARROWEST, WIDEST)
    knots, quantiles = [], []
    for part in np.array_split(np.argsort(width, kind="stable"), max(1, min(KNOTS, len(rows) // LEAST_AT))):
        rising = np.maximum.accumulate(_weighted_quantiles(wrong[part] / np.exp(width[part]), weights[part], LEVELS)) + np.arange(len(LEVELS)) * 1e-6
        knots.append(float(width[part].mean()))
        quantiles.append(tuple(float(q) for q in 0.5 * (rising - rising[::-1])))  # a pair turned round errs the other way: the middle is the location
    return replace(full, scale=grown(np.ones(len(rows), bool)), start=start, knots=tuple(knots), quantiles=tuple(quantiles))


def _scale(seen: Array, wrong: Array, middle: Array, weights: Array, start: float, o: Options) -> Forest:
    """The forest of the logarithm of the scale, for the logarithmic score of errors; `shaped` adds the Brier score of the bins."""
    def objective(guess: Array, _: Any) -> tuple[Array, Array]:
        log_scale = np.clip(start + guess, NARROWEST, WIDEST)
        square = wrong ** 2 * np.exp(-2.0 * log_scale)
        slope = 1.0 - (FREEDOM + 1.0) * square / (FREEDOM + square)
        bend = np.maximum(2.0 * (FREEDOM + 1.0) * FREEDOM * square / (FREEDOM + square) ** 2, 0.2)
        if o.shaped:
            slope = slope + o.shaped * (_brier(middle, log_scale + 0.05, wrong) - _brier(middle, log_scale - 0.05, wrong)) / 0.1
        return slope, bend
    return Forest.of(_booster(seen, weights, objective, "scale", o, [0] * seen.shape[1]).dump_model(), seen.shape[1])


def _brier(middle: Array, log_scale: Array, wrong: Array) -> Array:
    """The Brier score over the eight bins, each row's."""
    from scipy.special import stdtr

    ends = np.log(np.array(BINS))
    below = stdtr(FREEDOM, (ends[None, :] - middle[:, None]) / np.exp(log_scale)[:, None])
    bins = np.diff(np.column_stack([np.zeros(len(middle)), below, np.ones(len(middle))]), axis=1)
    held = np.searchsorted(ends, middle + wrong, side="right")
    found: Array = ((bins - np.eye(len(BINS) + 1)[held]) ** 2).sum(axis=1)
    return found


def _student(level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(FREEDOM, level))


def _failing(rows: Rows, o: Options) -> tuple[tuple[float, ...], tuple[float, ...], Forest]:
    """The forest of failures, and its values turned into rates by isotonic regression on families left out."""
    fault = rows.fault.astype(np.float64)
    share = (fault.sum() + 0.5) / (len(fault) + 1.0)
    if not 0 < fault.sum() < len(fault):
        return (0.0, 1.0), (float(share), float(share)), nothing()
    weights = _weights(rows.family)
    seen = without_code(rows.seen, rows.names)[:, :rows.used]

    def grown(chosen: Array) -> Forest:
        return Forest.of(_fail_booster(rows.take(chosen), o).dump_model(), rows.used)
    folds = dealt(rows.family, min(FOLDS, len(set(rows.family.tolist()))))
    values = np.zeros(len(rows))
    for fold in range(folds.max() + 1):
        values[folds == fold] = grown(folds != fold)(seen[folds == fold])
    odds, rates = isotonic(values, fault, weights)
    return odds, rates, grown(np.ones(len(rows), bool))


def _fail_booster(rows: Rows, o: Options) -> Any:
    fault = rows.fault.astype(np.float64)
    share = float(np.clip((fault.sum() + 0.5) / (len(fault) + 1.0), 1e-3, 1.0 - 1e-3))
    signs = [1 if o.monotone and name.startswith(WORSE) else 0 for name in rows.names[:rows.used]]

    def objective(guess: Array, _: Any) -> tuple[Array, Array]:
        likely = 1.0 / (1.0 + np.exp(-guess - math.log(share / (1.0 - share))))
        return likely - fault, np.maximum(likely * (1.0 - likely), 0.02)
    return _booster(without_code(rows.seen, rows.names)[:, :rows.used], _weights(rows.family), objective, "fail", o, signs)


def isotonic(values: Array, happened: Array, weights: Array, most: int = 40) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The rising rates nearest to what happened (pool adjacent violators), at up to `most` values; never 0 or 1."""
    order = np.argsort(values, kind="stable")
    blocks: list[list[float]] = []
    for part in np.array_split(order, min(len(order), most)):
        w = float(weights[part].sum())
        blocks.append([float(np.average(values[part], weights=weights[part])), float((weights[part] * happened[part]).sum()), w])
        while len(blocks) > 1 and blocks[-2][1] / blocks[-2][2] >= blocks[-1][1] / blocks[-1][2]:
            late = blocks.pop()
            total = blocks[-1][2] + late[2]
            blocks[-1] = [(blocks[-1][0] * blocks[-1][2] + late[0] * late[2]) / total, blocks[-1][1] + late[1], total]
    rates = [(b[1] + 0.5) / (b[2] + 1.0) for b in blocks]
    return tuple(b[0] for b in blocks), tuple(float(r) for r in np.maximum.accumulate(rates))


def _booster(matrix: Array, weights: Array, objective: Callable[[Array, Any], tuple[Array, Array]], name: str, o: Options, signs: Sequence[int]) -> Any:
    try:
        import lightgbm
    except ImportError as bad:
        raise error("KIR-E006", "the learned model is trained with LightGBM, which is not installed", attempt="pip install 'kernel-lineage[forecast]'") from bad

    def weighted(guess: Array, data: Any) -> tuple[Array, Array]:
        slope, bend = objective(guess, data)
        return slope * weights, bend * weights
    settings = {**GROWN, "objective": weighted, "seed": o.seed, "num_threads": o.threads, **({"monotone_constraints": list(signs)} if any(signs) else {})}
    data = lightgbm.Dataset(matrix, label=np.zeros(len(matrix)), free_raw_data=True)
    return lightgbm.train(settings, data, num_boost_round=max(1, round(TREES[name] * o.trees)))


def _weighted_quantiles(values: Array, weights: Array, levels: Sequence[float]) -> Array:
    order = np.argsort(values)
    passed = (np.cumsum(weights[order]) - 0.5 * weights[order]) / weights.sum()
    found: Array = np.interp(levels, passed, values[order])
    return found


__all__ = ["LEVELS", "Located", "Options", "Rows", "dealt", "distances", "isotonic", "locate", "train"]
