"""Simpler models than forests of what the analytic model leaves over, trained on the same pairs and families: a line, and the nearest pairs. They show what the
forests are good for."""
from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.forecast.answers import Answers
from kir.learning.forecast.model import ANALYTIC
from kir.learning.forecast.training import LEVELS, Rows
from kir.learning.forecast.trees import Array

RIDGE = 100.0
"""What the square of a coefficient counts beside squared errors, of features with a spread of one."""
NEAREST, BLOCK = 30, 1000
"""How many pairs are asked, and how many rows at once."""
CLIP, MOST = 4.0, 1.5
"""Spreads from the middle, and the logarithm of an error, beyond which a value counts no more."""


def line(seen: Array, left: Array, asked: Array) -> Array:
    """What a straight line through the origin says: a pair and its mirror cancel. Features are rows x columns, `left` an error of each row."""
    slope = np.linalg.solve(seen.T @ seen + RIDGE * np.eye(seen.shape[1]), seen.T @ left)
    found: Array = asked @ slope
    return found


def nearest(seen: Array, left: Array, asked: Array) -> Array:
    """The middle error of the nearest pairs of training."""
    out, own = np.zeros(len(asked)), (seen ** 2).sum(axis=1)
    for start in range(0, len(asked), BLOCK):
        block = asked[start:start + BLOCK]
        far = own[None, :] - 2.0 * block @ seen.T
        out[start:start + BLOCK] = np.median(left[np.argpartition(far, min(NEAREST, len(own) - 1), axis=1)[:, :NEAREST]], axis=1)
    return out


MODELS: Mapping[str, Callable[[Array, Array, Array], Array]] = {"linear": line, "nearest": nearest}


def told(name: str, title: str, rows: Rows, folds: Array) -> Answers:
    """What one of `MODELS`, trained without each part in turn, says of that part: the analytic model's logarithm and the error that it expects of it, with the
    spread of its errors where it is trained without two parts and asked of the other."""
    base = np.log(2.0) * rows.seen[:, rows.names.index(ANALYTIC)]
    odd = np.nan_to_num(rows.seen[:, :rows.used] - rows.turned[:, :rows.used])
    logs = np.zeros((len(rows), len(LEVELS)))

    def said(train: Array, asked: Array) -> Array:
        spread = np.sqrt((odd[train] ** 2).mean(axis=0))
        keep = spread > 1e-9
        seen, of = (np.clip(odd[part][:, keep] / spread[keep], -CLIP, CLIP) for part in (train, asked))
        left = np.clip(rows.measured[train] - base[train], -MOST, MOST)
        found: Array = base[asked] + MODELS[name](np.concatenate([seen, -seen]), np.concatenate([left, -left]), of)
        return found
    there, parts = np.isfinite(rows.measured), range(int(folds.max()) + 1)
    for fold in parts:
        rest = there & (folds != fold)
        others = [(rest & (folds != other), rest & (folds == other)) for other in parts if other != fold]
        wrong = np.concatenate([rows.measured[asked] - said(train, asked) for train, asked in others])
        logs[folds == fold] = said(rest, folds == fold)[:, None] + np.quantile(wrong, LEVELS)[None, :]
    return Answers(title, logs)
