"""Other ways to learn what the analytic model leaves over, trained on the same pairs and families as the shipped one: what was tried before it was said that
a figure is out of reach.

`line` and `nearest` are simpler than forests; `ranked` learns the speed of single programs from which of two is faster; `quantiles` grows a forest for each
level of the distribution and shifts it by what families left out show (conformalized quantile regression); `stacked` weighs the words of all of them by how
far each held on families left out.
"""
from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.forecast.answers import Answers
from kir.base.dataclass import dataclass
from kir.hardware.target import target as target_of
from kir.learning.forecast import training
from kir.learning.forecast.comparison import LEAST, of_device
from kir.learning.forecast.data import Data, PairRow
from kir.learning.forecast.matrices import States, sizes_text
from kir.learning.forecast.model import ANALYTIC, sided
from kir.learning.forecast.training import GROWN, LEVELS, SHARE_TRUSTED, WAY, WAY_LEAST, WAY_MOST, WAY_NOTED, Options, Rows, chosen
from kir.learning.forecast.trees import Array

RIDGE = 100.0
"""What the square of a coefficient counts beside squared errors, of features with a spread of one."""
NEAREST, BLOCK = 30, 1000
"""How many pairs are asked, and how many rows at once."""
CLIP, MOST = 4.0, 1.5
"""Spreads from the middle, and the logarithm of an error, beyond which a value counts no more."""
LEAVES = 240
"""Trees of `ranked`."""
GROWN_LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""Levels that `quantiles` grows a forest for; the others lie between or are shifted with the outermost."""
ROUNDS = 140
"""Trees of each of them."""
BENDS = (0.03, 0.1, 0.4)
"""Sizes of what is said (a logarithm) beyond which it makes `stacked` hardly surer."""
STACKED = ("line", "nearest", "forests", "ranked", "quantiles")
"""Whose words `stacked` weighs, beside the analytic model's."""
OPCODES = 64
"""Opcodes of SASS that `every_opcode` counts: the commonest."""
Out = frozenset[int]
"""Parts that a training has not seen."""


@dataclass(frozen=True)
class Programs:
    """Programs at their places: features (rows x columns) and the logarithm of the analytic model's seconds; by pair, the rows of both programs."""

    seen: Array
    seconds: Array
    before: Array
    after: Array


@dataclass(frozen=True)
class Asked:
    """Everything that a way is trained on: pairs with their parts, further pairs of any two programs of a kernel with the parts that those fall into
    (-1: none), and single programs, those of the further pairs behind those of the pairs."""

    rows: Rows
    folds: Array
    programs: Programs
    drawn: Array
    drawn_folds: Array


def asked(rows: Rows, pairs: Sequence[PairRow], folds: Array, found: States, surfaces: Mapping[str, str], drawn: Rows, of_drawn: Sequence[PairRow],
          drawn_folds: Array) -> Asked:
    """What the ways are trained on; `surfaces` are the programs' by name."""
    return Asked(rows, folds, _programs([*pairs, *of_drawn], found, surfaces), drawn.measured, drawn_folds)


def _programs(pairs: Sequence[PairRow], found: States, surfaces: Mapping[str, str]) -> Programs:
    keys = {key: i for i, key in enumerate(found.plain)}
    sides = np.array([[keys[q, p.device, sizes_text(p.sizes)] for q in (p.before, p.after)] for p in pairs], dtype=np.intp)
    counts: dict[str, int] = {}
    for key in keys:
        for name in found.plain[key]:
            counts[name] = counts.get(name, 0) + 1
    names = sorted(name for name, count in counts.items() if name[0] != "s" and count >= 0.01 * len(keys))
    kinds = sorted(set(surfaces.values()))
    devices = {device: list(of_device(device).values()) for device in {device for _, device, _ in keys}}
    seen = np.array([[*(math.log2(state.get(name, 0.0) + LEAST[name[0]]) for name in names), *(float(surfaces[key[0]] == kind) for kind in kinds),
                      *devices[key[1]]] for key in keys for state in (found.plain[key],)])
    return Programs(seen, np.log(np.array([found.plain[key]["t.total"] for key in keys])), sides[:, 0], sides[:, 1])


# ------------------------------------------------------------------------------------------------------------------------- one number a pair
def _straight(rows: Rows) -> tuple[Array, Array]:
    """What the analytic model says (a logarithm), and the part of the features that turns its sign with the pair."""
    return np.log(2.0) * rows.seen[:, rows.names.index(ANALYTIC)], np.nan_to_num(rows.seen[:, :rows.used] - rows.turned[:, :rows.used])


def _scaled(a: Asked, train: Array) -> tuple[Array, Array, Array]:
    base, odd = _straight(a.rows)
    spread = np.sqrt((odd[train] ** 2).mean(axis=0))
    keep = spread > 1e-9
    seen = np.clip(odd[:, keep] / spread[keep], -CLIP, CLIP)
    return base, seen, np.clip(a.rows.measured[train] - base[train], -MOST, MOST)


def line(a: Asked, train: Array, of: Array) -> Array:
    """What a straight line through the origin says of the analytic model's error: a pair and its mirror cancel."""
    base, seen, left = _scaled(a, train)
    own = seen[train]
    slope = np.linalg.solve(2.0 * own.T @ own + RIDGE * np.eye(own.shape[1]), 2.0 * own.T @ left)
    found: Array = base[of] + seen[of] @ slope
    return found


def nearest(a: Asked, train: Array, of: Array) -> Array:
    """The middle error of the nearest pairs of training, and of their mirrors."""
    base, seen, left = _scaled(a, train)
    known, errors, wanted = np.concatenate([seen[train], -seen[train]]), np.concatenate([left, -left]), seen[of]
    out, own = np.zeros(len(wanted)), (known ** 2).sum(axis=1)
    for start in range(0, len(wanted), BLOCK):
        far = own[None, :] - 2.0 * wanted[start:start + BLOCK] @ known.T
        out[start:start + BLOCK] = np.median(errors[np.argpartition(far, min(NEAREST, len(own) - 1), axis=1)[:, :NEAREST]], axis=1)
    return base[of] + out


def forests(a: Asked, train: Array, of: Array, code: bool = False) -> Array:
    """What the shipped model's forest of which is faster says, beside the analytic model."""
    o = Options()
    rows = a.rows.named(*chosen(a.rows, np.flatnonzero(train), o))
    base = replace(training._bare(rows), trust=SHARE_TRUSTED)
    held = rows.take(training._fewer(rows.family, np.flatnonzero(train), o))
    model = training._located(held, base, o)
    at = rows.take(of)
    seen, turned = at.seen, at.turned
    if code:
        there = np.isfinite(at.seen_code).max(axis=1)[:, None]
        seen, turned = np.where(there, at.seen_code, seen), np.where(there, at.turned_code, turned)
    said = model.said(seen, turned)
    found: Array = said[:, 0] + said[:, 2]
    return found


def ranked(a: Asked, train: Array, of: Array) -> Array:
    """The difference of what `speeds` says of both programs."""
    said, count = speeds(a, train), len(a.rows)
    found: Array = said[a.programs.before[:count][of]] - said[a.programs.after[:count][of]]
    return found


def speeds(a: Asked, train: Array) -> Array:
    """The logarithm of the seconds of each program: the analytic model's, and what a forest adds that sees one program alone and is grown for which of two
    programs of a kernel is faster (RankNet's loss: Burges et al., ICML 2005)."""
    import lightgbm

    left = set(np.unique(a.folds[~train & np.isfinite(a.rows.measured)]).tolist())
    more = ~np.isin(a.drawn_folds, list(left)) & np.isfinite(a.drawn)
    p = a.programs
    which = np.concatenate([np.flatnonzero(train), len(a.rows) + np.flatnonzero(more)])
    measured = np.concatenate([a.rows.measured[train], a.drawn[more]])
    before, after = p.before[which], p.after[which]
    faster, size = (measured > 0.0).astype(np.float64), np.abs(measured)
    counts = np.where(size > WAY_NOTED, np.maximum(np.minimum(size, WAY_MOST) / WAY_MOST, WAY_LEAST), size / WAY_MOST)
    used = np.unique(np.concatenate([before, after]))
    place = np.full(len(p.seen), -1)
    place[used] = np.arange(len(used))
    b, f = place[before], place[after]
    apart = p.seconds[before] - p.seconds[after]

    def objective(guess: Array, _: Any) -> tuple[Array, Array]:
        likely = 1.0 / (1.0 + np.exp(-np.clip((guess[b] - guess[f] + apart) / WAY, -30.0, 30.0)))
        slope, bend = counts * (likely - faster) * WAY, np.maximum(counts * likely * (1.0 - likely), 0.01)
        return np.bincount(b, slope, len(used)) - np.bincount(f, slope, len(used)), np.bincount(b, bend, len(used)) + np.bincount(f, bend, len(used))
    settings = {**GROWN, "objective": objective, "seed": 0, "num_threads": 1}
    grown = lightgbm.train(settings, lightgbm.Dataset(p.seen[used], label=np.zeros(len(used))), num_boost_round=LEAVES)
    said: Array = p.seconds + grown.predict(p.seen)
    return said


def quantiles(a: Asked, train: Array, of: Array) -> Array:
    """Quantiles at `LEVELS` (rows x levels): a forest for each of `GROWN_LEVELS`, grown for the pinball loss of what the analytic model leaves over."""
    import lightgbm

    rows = a.rows.named(*chosen(a.rows, np.flatnonzero(train), Options()))
    base = np.log(2.0) * rows.seen[:, rows.names.index(ANALYTIC)]
    seen = np.concatenate([rows.seen[train, :rows.used], rows.turned[train, :rows.used]])
    left = SHARE_TRUSTED * np.concatenate([base[train], -base[train]])
    wanted = np.concatenate([rows.measured[train], -rows.measured[train]]) - left
    weights = training._weights(np.concatenate([rows.family[train], rows.family[train]]))
    data = lightgbm.Dataset(seen, label=wanted, weight=weights, free_raw_data=False)
    settings = {**GROWN, "objective": "quantile", "seed": 0, "num_threads": 1}
    grown = [lightgbm.train({**settings, "alpha": level}, data, num_boost_round=ROUNDS) for level in GROWN_LEVELS]
    found = np.sort(np.column_stack([SHARE_TRUSTED * base[of] + each.predict(rows.seen[of, :rows.used]) for each in grown]), axis=1)
    return np.array([np.interp(LEVELS, GROWN_LEVELS, row) for row in found])


WAYS: Mapping[str, Callable[[Asked, Array, Array], Array]] = {
    "line": line, "nearest": nearest, "forests": forests, "ranked": ranked, "quantiles": quantiles, "compiled": partial(forests, code=True)}


# ----------------------------------------------------------------------------------------------------------------------------- left out, twice
def outs(folds: Array) -> list[Out]:
    """Each part, and each two parts: what the errors that a spread is taken from need."""
    parts = range(int(folds.max()) + 1)
    return [frozenset(each) for count in (1, 2) for each in combinations(parts, count)]


Task = tuple[int, str, Out]
"""Which of several `Asked`, a way, and the parts that its training does not see."""
_asked: Sequence[Asked] = ()
"""What the children of `members` and `seconds` inherit."""


def members(tasks: Sequence[Task], asked_: Sequence[Asked], jobs: int = 1, said: Callable[[str], None] = lambda text: None) -> dict[Task, Array]:
    """What a way says of the rows that its training has not seen (NaN of the others), by task, in so many processes."""
    global _asked
    _asked, found = asked_, {}
    with ProcessPoolExecutor(max(1, jobs), mp_context=multiprocessing.get_context("fork")) as pool:
        for task, made in zip(tasks, pool.map(_member, tasks) if jobs > 1 else map(_member, tasks), strict=True):
            found[task] = made
            said(f"{task[1]} without {sorted(task[2])}: {len(found)} of {len(tasks)}")
    _asked = ()
    return found


def _member(task: Task) -> Array:
    which, name, out = task
    a = _asked[which]
    of = np.isin(a.folds, list(out))
    made = WAYS[name](a, ~of & np.isfinite(a.rows.measured), of)
    found = np.full((len(of), *made.shape[1:]), np.nan)
    found[of] = made
    return found


def seconds(a: Asked, jobs: int = 1) -> list[Array]:
    """What `speeds` says of every program, trained without each part in turn."""
    global _asked
    _asked, parts = (a,), range(int(a.folds.max()) + 1)
    with ProcessPoolExecutor(max(1, jobs), mp_context=multiprocessing.get_context("fork")) as pool:
        found = list(pool.map(_speeds, parts) if jobs > 1 else map(_speeds, parts))
    _asked = ()
    return found


def _speeds(part: int) -> Array:
    a, = _asked
    return speeds(a, (a.folds != part) & np.isfinite(a.rows.measured))


def told(name: str, title: str, a: Asked, made: Mapping[Task, Array]) -> Answers:
    """What a way says of every part, trained without it; with the spread of its errors where it was trained without two parts and asked of the other."""
    logs, there, parts = np.zeros((len(a.rows), len(LEVELS))), np.isfinite(a.rows.measured), range(int(a.folds.max()) + 1)
    for fold in parts:
        here = a.folds == fold
        others = [((a.folds == other) & there, made[0, name, frozenset((fold, other))]) for other in parts if other != fold]
        wrong = np.concatenate([(a.rows.measured - found.T).T[asked_] for asked_, found in others])
        own = made[0, name, frozenset((fold,))][here]
        shift = np.array([np.quantile(wrong[:, i] if wrong.ndim > 1 else wrong, level) for i, level in enumerate(LEVELS)])
        logs[here] = np.maximum.accumulate((own if own.ndim > 1 else own[:, None]) + shift[None, :], axis=1)
    return Answers(title, logs)


def stacked(title: str, a: Asked, made: Mapping[Task, Array], names: Sequence[str] = STACKED) -> Answers:
    """All ways' words weighed by how far they held on families left out: which is faster, and how sure that is, is the logistic of what each says, bent at
    `BENDS`; the distribution on either side is that of `quantiles`."""
    base, _ = _straight(a.rows)
    logs, there, parts = told("quantiles", title, a, made).logs, np.isfinite(a.rows.measured), range(int(a.folds.max()) + 1)
    middle = LEVELS.index(0.5)

    def words(out: Out) -> Array:
        every = [made[0, name, out] for name in names]
        return _bent(np.column_stack([base, *(each[:, middle] if each.ndim > 1 else each for each in every)]))
    for fold in parts:
        here, known = a.folds == fold, np.zeros((len(a.rows), len(BENDS) * (len(names) + 1)))
        for other in parts:
            if other != fold:
                known[a.folds == other] = words(frozenset((fold, other)))[a.folds == other]
        known[here] = words(frozenset((fold,)))[here]
        seen = there & ~here
        leaning = known @ _logistic(known[seen], a.rows.measured[seen], training._weights(a.rows.family[seen]))
        below = np.clip(1.0 / (1.0 + np.exp(np.clip(leaning[here], -6.0, 6.0))), 0.005, 0.995)
        logs[here] = sided(logs[here], np.array(LEVELS), below, leaning[here])
    return Answers(title, logs)


def _bent(known: Array) -> Array:
    return np.concatenate([np.tanh(known / bend) for bend in BENDS], axis=1)


def _logistic(known: Array, measured: Array, weights: Array) -> Array:
    """Weights of a logistic regression of which is faster, with the same ridge for all; effects count as they do to the forest."""
    from scipy.optimize import minimize

    way, size = np.sign(measured), np.abs(measured)
    counts = weights * np.where(size > WAY_NOTED, np.maximum(np.minimum(size, WAY_MOST) / WAY_MOST, WAY_LEAST), size / WAY_MOST)

    def loss(w: Array) -> tuple[float, Array]:
        margin = np.clip(way * (known @ w), -30.0, 30.0)
        against = 1.0 / (1.0 + np.exp(margin))
        return float((counts * np.logaddexp(0.0, -margin)).sum() + 0.5 * w @ w), -(known.T @ (counts * way * against)) + w
    found: Array = minimize(loss, np.zeros(known.shape[1]), jac=True, method="L-BFGS-B").x
    return found


def every_opcode(rows: Rows, pairs: Sequence[PairRow], data: Data) -> Rows:
    """The rows with how often each of `OPCODES` stands in the machine code of both programs, compared, and not of kinds of them alone."""
    mixes: dict[str, Mapping[str, float]] = {}
    for p in pairs:
        for q in (p.before, p.after):
            if q not in mixes and (made := data.artifact(q, target_of(p.device).architecture.name)) is not None and made.mix:
                mixes[q] = made.mix
    counts: Counter[str] = Counter(op for mix in mixes.values() for op in mix)
    names = sorted(op for op, _ in counts.most_common(OPCODES))
    logs = {q: np.log2(1.0 + np.array([mix.get(op, 0.0) for op in names])) for q, mix in mixes.items()}
    apart = np.array([logs[p.before] - logs[p.after] if p.before in logs and p.after in logs else np.full(len(names), np.nan) for p in pairs])

    def wider(of: Array, more: Array) -> Array:
        return np.column_stack([of[:, :rows.used], more, of[:, rows.used:]])
    none = np.full_like(apart, np.nan)
    compiled: Array = np.isfinite(rows.seen_code).max(axis=1)[:, None]
    there = np.where(compiled, apart, np.nan)
    return replace(rows, names=(*rows.names[:rows.used], *(f"log s.op {op}" for op in names), *rows.names[rows.used:]), used=rows.used + len(names),
                   seen=wider(rows.seen, none), turned=wider(rows.turned, none), seen_code=wider(rows.seen_code, there),
                   turned_code=wider(rows.turned_code, -there))


__all__ = ["STACKED", "WAYS", "Asked", "asked", "every_opcode", "members", "outs", "seconds", "speeds", "stacked", "told"]
