"""What each model says of every pair: quantiles of the logarithm of the speedup, the probability of failure, and whether it defers. Every model that is
fitted to anything, if only the spread of its errors, has not seen the family (or the device) that it is asked about."""
from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.hardware.target import target as target_of
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.forecast.analytic import Analytic
from kir.learning.forecast.data import Data, PairRow
from kir.learning.forecast.distribution import BINS, Pair
from kir.learning.forecast.matrices import States, kept, sizes_text
from kir.learning.forecast.model import Model
from kir.learning.forecast.training import LEVELS, Options, Rows, dealt, train
from kir.learning.forecast.trees import Array
from kir.surface import Artifact

PARTS = 6
"""Parts that families are dealt into: each is left out once, and with it all of its families."""


@dataclass(frozen=True)
class Answers:
    """Of each pair: `logs` (rows x levels), `fails`, `defers`. NaN where a model does not answer."""

    name: str
    logs: Array
    levels: tuple[float, ...] = LEVELS
    fails: Array | None = None
    defers: Array | None = None

    @property
    def median(self) -> Array:
        """The middle of each distribution, a logarithm."""
        found: Array = self.quantile(0.5)
        return found

    def quantile(self, level: float) -> Array:
        """The quantile of each distribution at one level, a logarithm."""
        i = int(np.searchsorted(self.levels, level))
        if i < len(self.levels) and math.isclose(self.levels[i], level):
            return self.logs[:, i]
        i = min(max(i, 1), len(self.levels) - 1)
        share = (level - self.levels[i - 1]) / (self.levels[i] - self.levels[i - 1])
        found: Array = self.logs[:, i - 1] + np.clip(share, 0.0, 1.0) * (self.logs[:, i] - self.logs[:, i - 1])
        return found

    def bins(self) -> Array:
        """Probabilities of the eight bins, as `Forecast.bins` gives them, of all rows."""
        below = np.array([[_below(self.levels, row, math.log(b)) for b in BINS] for row in self.logs]).reshape(len(self.logs), len(BINS))
        return np.diff(np.column_stack([np.zeros(len(below)), below, np.ones(len(below))]), axis=1)


def _below(levels: Sequence[float], row: Array, at: float) -> float:
    if at <= row[0]:
        return 0.0
    if at >= row[-1]:
        return 1.0
    return float(np.interp(at, row, levels))


def left_out(rows: Rows, pairs: Sequence[PairRow], by: str) -> Array:
    """The part of each row that is left out together: of families, or of devices."""
    if by == "device":
        names = sorted({p.device for p in pairs})
        return np.array([names.index(p.device) for p in pairs])
    return dealt(rows.family, min(PARTS, len(set(rows.family.tolist()))))


def spread_about(name: str, base: Array, rows: Rows, folds: Array) -> Answers:
    """A model of one number a pair (`base`, a logarithm), with the spread of its errors on the other parts."""
    logs = np.zeros((len(rows), len(LEVELS)))
    for fold in range(int(folds.max()) + 1):
        rest = (folds != fold) & np.isfinite(rows.measured) & np.isfinite(base)
        wrong = np.quantile((rows.measured - base)[rest], LEVELS) if rest.any() else np.zeros(len(LEVELS))
        logs[folds == fold] = base[folds == fold, None] + wrong[None, :]
    return Answers(name, logs)


def learned(name: str, rows: Rows, folds: Array, options: Options, code: bool = False, told: Callable[[str], None] = print) -> tuple[Answers, list[Model]]:
    """The learned model, trained without each part in turn and asked about it; with `code`, where both programs were compiled, from machine code too. Also
    the models, in the order of the parts."""
    models = []
    for fold in range(int(folds.max()) + 1):
        told(f"{name}: part {fold + 1} of {int(folds.max()) + 1}")
        models.append(train(rows.take(folds != fold), options))
    return asked(name, models, rows, folds, code), models


def asked(name: str, models: Sequence[Model], rows: Rows, folds: Array, code: bool = False) -> Answers:
    """What models that were each trained without a part say of that part."""
    logs, fails, defers = np.zeros((len(rows), len(LEVELS))), np.zeros(len(rows)), np.zeros(len(rows), bool)
    seen, turned = rows.seen, rows.turned
    if code:
        there = np.isfinite(rows.seen_code).max(axis=1)[:, None]
        seen, turned = np.where(there, rows.seen_code, seen), np.where(there, rows.turned_code, turned)
    for fold, model in enumerate(models):
        here = folds == fold
        logs[here], fails[here], own = model.predict(seen[here], turned[here])
        defers[here] = own > model.far
    return Answers(name, logs, LEVELS, fails, defers)


# ------------------------------------------------------------------------------------------------------------------ the analytic model on every pair
@dataclass(frozen=True)
class Asked:
    """Pairs of one earlier program, for a worker: texts by hash, and for each pair what `Pair` needs."""

    texts: Mapping[str, str]
    pairs: tuple[tuple[str, str, str, str, str, str, Artifact | None, Artifact | None], ...]


def analytic(data: Data, pairs: Sequence[PairRow], folder: Path | None, jobs: int, code: bool = False) -> Answers:
    """The analytic forecaster as it stands, on every pair; with `code`, from machine code where there is some."""
    tasks, order = [], []
    by: dict[str, list[int]] = {}
    for i, p in enumerate(pairs):
        by.setdefault(p.before, []).append(i)
    for before, numbers in by.items():
        texts = {q: data.programs[q].text for i in numbers for q in (before, pairs[i].after)}
        held = []
        for i in numbers:
            p = pairs[i]
            arch = target_of(p.device).architecture.name
            made = (data.artifact(p.before, arch), data.artifact(p.after, arch)) if code else (None, None)
            held.append((p.before, p.after, sizes_text(p.sizes), p.device, p.step, data.programs[p.after].surface, *made))
        tasks.append(Asked(texts, tuple(held)))
        order.append(numbers)
    places = {id(t): numbers for t, numbers in zip(tasks, order, strict=True)}
    found: dict[int, tuple[list[float], list[float], float]] = {}
    for task, answers in kept(tasks, _analytic_of, _asked_key, folder, jobs):
        found.update(dict(zip(places[id(task)], answers, strict=True)))
    logs = np.full((len(pairs), len(LEVELS)), np.nan)
    fails = np.zeros(len(pairs))
    for i, (levels, quantiles, failing) in found.items():
        if levels:
            logs[i] = np.interp(LEVELS, levels, quantiles)
            fails[i] = failing
    return Answers("analytic, compiled" if code else "analytic", logs, LEVELS, fails)


def _asked_key(task: Asked) -> str:
    return json.dumps([[*p[:6], *(a.record() if a is not None else None for a in p[6:])] for p in task.pairs], sort_keys=True)


def _analytic_of(task: Asked) -> list[tuple[list[float], list[float], float]]:
    @cache
    def read(name: str) -> Program:
        return parse_program(task.texts[name], name)
    ask, out = Analytic(), []
    for before, after, sizes, device, step, surface, one, other in task.pairs:
        try:
            f = ask(Pair(read(before), read(after), json.loads(sizes), target_of(device), step, surface, (one, other)))
            out.append((list(f.levels), list(f.logs), f.fails))
        except (KirError, ArithmeticError, ValueError, TypeError):
            out.append(([], [], 0.0))
    return out


# ------------------------------------------------------------------------------------------------------------------------------- what is compared with
def roofline(states: States, pairs: Sequence[PairRow]) -> Array:
    """A plain roofline: bytes of the tensors over bandwidth, or operations over the peak of their unit, whichever is longer, and a launch a kernel."""
    from kir.gate.cost import LAUNCH

    def seconds(program: str, p: PairRow) -> float:
        found, device = states.plain[(program, p.device, sizes_text(p.sizes))], target_of(p.device).device
        return LAUNCH * found.get("n.kernels", 1.0) + max(found.get("w.compulsory", 0.0) / device.bandwidth, found.get("w.tensor", 0.0) / device.tensor.f16,
                                                          found.get("w.scalar", 0.0) / device.scalar.f32)
    return np.array([math.log(seconds(p.before, p) / seconds(p.after, p)) for p in pairs])


def frozen(data: Data, pairs: Sequence[PairRow]) -> Array:
    """What the cost model said when the data were made (the table `modelled`); NaN where that was not kept."""
    held = {(m.program, m.device, sizes_text(m.sizes)): m.seconds for m in data.modelled}

    def of(program: str, p: PairRow) -> float:
        return held.get((program, p.device, sizes_text(p.sizes)), math.nan)
    return np.array([math.log(of(p.before, p) / of(p.after, p)) for p in pairs])
