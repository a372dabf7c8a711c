"""What each model says of every pair: quantiles of the logarithm of the speedup, the probability of failure, and whether it defers. Every model that is
fitted to anything, if only the spread of its errors, has not seen the family (or the device) that it is asked about."""
from __future__ import annotations

import hashlib
import math
import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import metadata
from itertools import zip_longest
from pathlib import Path

import numpy as np

from benchmarks.forecast.failures import of_states
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.cost import LAUNCH
from kir.hardware.target import target as target_of
from kir.ir.parser import parse_program
from kir.learning.forecast import training
from kir.learning.forecast.analytic import of_seconds
from kir.learning.forecast.data import Data, PairRow
from kir.learning.forecast.distribution import BINS, Forecaster, Pair
from kir.learning.forecast.matrices import States, sizes_text
from kir.learning.forecast.model import Model
from kir.learning.forecast.training import LEVELS, Options, Rows, dealt, locate, train
from kir.learning.forecast.trees import Array

PARTS, THIRDS = 6, 3
"""Parts that families are dealt into: each is left out once, and with it all of its families; and those for what is no test."""


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
        levels, ends, lines = np.asarray(self.levels), np.log(np.array(BINS)), np.arange(len(self.logs))
        below = np.zeros((len(self.logs), len(ends)))
        for k, at in enumerate(ends):
            after = (self.logs <= at).sum(axis=1)
            a, b = np.clip(after - 1, 0, len(levels) - 1), np.clip(after, 0, len(levels) - 1)
            low, high = self.logs[lines, a], self.logs[lines, b]
            share = np.where(high > low, (at - low) / np.where(high > low, high - low, 1.0), 0.0)
            below[:, k] = np.where(after == 0, 0.0, np.where(at >= self.logs[:, -1], 1.0, levels[a] + share * (levels[b] - levels[a])))
        return np.diff(np.column_stack([np.zeros(len(below)), below, np.ones(len(below))]), axis=1)


def left_out(rows: Rows, pairs: Sequence[PairRow], by: str) -> Array:
    """The part of each row that is left out together: of families, or of devices."""
    if by == "device":
        names = sorted({p.device for p in pairs})
        return np.array([names.index(p.device) for p in pairs])
    return dealt(rows.family, min(PARTS, len(set(rows.family.tolist()))))


def nearer(rows: Rows, pairs: Sequence[PairRow], data: Data, seed: int = 0) -> dict[str, Array]:
    """Parts by which less is left out than families: kernels, of whose families others are seen; and pairs by lot, of whose very programs others are seen. They
    are no test of a model: they bound what more data, and what any data, can bring."""
    kernels = np.array([data.programs[p.after].problem or "/".join(p.group.split("/")[:3]) for p in pairs], dtype=object)
    return {"kernels, others of their families seen": dealt(kernels, THIRDS),
            "pairs by lot, others of their programs seen": np.random.default_rng(seed).integers(0, THIRDS, len(rows))}


def parts_of(drawn: Rows, drawn_pairs: Sequence[PairRow], rows: Rows, pairs: Sequence[PairRow], folds: Array, by: str) -> Array:
    """The part of each drawn pair: that of its family or its device among the others; none is in no part."""
    def names(of: Rows, which: Sequence[PairRow]) -> list[str]:
        return [p.device for p in which] if by == "device" else [str(f) for f in of.family]
    known = dict(zip(names(rows, pairs), folds.tolist(), strict=True))
    return np.array([known.get(name, -1) for name in names(drawn, drawn_pairs)], dtype=np.intp)


def spread_about(name: str, base: Array, rows: Rows, folds: Array) -> Answers:
    """A model of one number a pair (`base`, a logarithm), with the spread of its errors on the other parts."""
    logs = np.zeros((len(rows), len(LEVELS)))
    for fold in range(int(folds.max()) + 1):
        rest = (folds != fold) & np.isfinite(rows.measured) & np.isfinite(base)
        wrong = np.quantile((rows.measured - base)[rest], LEVELS) if rest.any() else np.zeros(len(LEVELS))
        logs[folds == fold] = base[folds == fold, None] + wrong[None, :]
    return Answers(name, logs)


@dataclass(frozen=True)
class Fit:
    """Models to be trained on some of the rows, of one location: their options, by name, differ in what comes after it. `drawn` are further pairs."""

    rows: Rows
    keep: Array
    options: Mapping[str, Options]
    drawn: Rows | None = None
    keep_drawn: Array | None = None

    def __call__(self) -> dict[str, Model]:
        """The models, by name."""
        rows = self.rows.take(self.keep)
        more = self.drawn.take(self.keep_drawn) if self.drawn is not None and self.keep_drawn is not None else None
        located = locate(rows, next(iter(self.options.values())), more)
        return {name: train(rows, each, located=located) for name, each in self.options.items()}


_fits: Sequence[Fit] = ()
"""What the children of `fit` inherit: rows are too large to be sent to each."""


def fit(fits: Sequence[Fit], jobs: int = 1, told: Callable[[str], None] = print, kept: Path | None = None) -> list[dict[str, Model]]:
    """The models of each, in their order, trained in so many processes; the same in any number of them. With a folder, each is kept in it as soon as it is
    trained, and one that is there (of the same rows, options and code) is not trained again."""
    global _fits
    names = _names(fits) if kept is not None else [""] * len(fits)
    out = {i: held for i, name in enumerate(names) if kept is not None and (held := _read(kept, name, fits[i]))}
    left = [i for i in range(len(fits)) if i not in out]
    _fits, one = fits, partial(_fit, names=names, kept=kept)
    with ProcessPoolExecutor(max(1, jobs), mp_context=multiprocessing.get_context("fork")) as pool:
        for i, made in zip(left, pool.map(one, left) if jobs > 1 else map(one, left), strict=True):
            out[i] = made
            told(f"{', '.join(made)}: {len(out)} of {len(fits)}")
    _fits = ()
    return [out[i] for i in range(len(fits))]


def _fit(number: int, names: Sequence[str], kept: Path | None) -> dict[str, Model]:
    made = _fits[number]()
    if kept is None:
        return made
    for name, model in made.items():
        model.write(_file(kept, names[number], name))
    return {name: Model.read(_file(kept, names[number], name)) for name in made}


def _read(kept: Path, name: str, of: Fit) -> dict[str, Model] | None:
    files = {each: _file(kept, name, each) for each in of.options}
    return {each: Model.read(file) for each, file in files.items()} if all(file.is_file() for file in files.values()) else None


def _file(kept: Path, name: str, model: str) -> Path:
    return kept / f"{name}-{hashlib.sha256(model.encode()).hexdigest()[:8]}.model"


def _names(fits: Sequence[Fit]) -> list[str]:
    """What each fit depends on, as a hash: the code of training, the library that grows trees, its rows and its options."""
    code = b"".join((Path(training.__file__).parent / name).read_bytes() for name in ("training.py", "model.py", "trees.py"))
    rows = {id(each): each for f in fits for each in (f.rows, f.drawn) if each is not None}
    held = {at: _hashed([repr((each.names, each.used)).encode(), *(np.ascontiguousarray(part).tobytes() for part in (
        each.seen, each.turned, each.seen_code, each.turned_code, each.measured, each.fault, each.family.astype(str)))]) for at, each in rows.items()}
    return [_hashed([code, metadata.version("lightgbm").encode(), held[id(f.rows)].encode(), f.keep.tobytes(), repr(dict(f.options)).encode(),
                     held[id(f.drawn)].encode() if f.drawn is not None else b"", f.keep_drawn.tobytes() if f.keep_drawn is not None else b""]) for f in fits]


def _hashed(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()


def without(rows: Rows, folds: Array, options: Mapping[str, Options], drawn: Rows | None = None, of: Array | None = None) -> list[Fit]:
    """What is to be trained without each part in turn; `of` are the parts of drawn pairs."""
    return [Fit(rows, folds != fold, options, drawn, of != fold if of is not None else None) for fold in range(int(folds.max()) + 1)]


def learned(rows: Rows, folds: Array, options: Mapping[str, Options], told: Callable[[str], None] = print,
            jobs: int = 1) -> dict[str, tuple[Answers, list[Model]]]:
    """Learned models by name, trained without each part in turn and asked about it; also the models, in the order of the parts."""
    made = fit(without(rows, folds, options), jobs, told)
    return {name: (asked(name, held, rows, folds), held) for name in options for held in ([each[name] for each in made],)}


def asked(name: str, models: Sequence[Model], rows: Rows, folds: Array, code: bool = False) -> Answers:
    """What models that were each trained without a part say of that part."""
    logs, fails, defers = np.zeros((len(rows), len(LEVELS))), np.zeros(len(rows)), np.zeros(len(rows), bool)
    for fold, model in enumerate(models):
        here = folds == fold
        at = rows.take(here).named(model.names, model.used)
        seen, turned = at.seen, at.turned
        if code:
            there = np.isfinite(at.seen_code).max(axis=1)[:, None]
            seen, turned = np.where(there, at.seen_code, seen), np.where(there, at.turned_code, turned)
        logs[here], fails[here], own = model.predict(seen, turned)
        defers[here] = own > model.far
    return Answers(name, logs, LEVELS, fails, defers)


# --------------------------------------------------------------------------------------------------------- what is compared with, and the analytic model
def analytic(states: States, pairs: Sequence[PairRow], code: bool = False) -> Answers:
    """The analytic forecaster as it stands, on every pair, from the seconds that the features hold; with `code`, from machine code where both
    programs have some."""
    logs, fails = np.full((len(pairs), len(LEVELS)), np.nan), np.zeros(len(pairs))
    for i, p in enumerate(pairs):
        keys = [(q, p.device, sizes_text(p.sizes)) for q in (p.before, p.after)]
        held = states.code if code and all(k in states.code for k in keys) else states.plain
        before, after = (held[k] for k in keys)
        parts = [{k: v for k, v in side.items() if k.startswith("t.") and k not in ("t.total", "t.unhidden")} for side in (before, after)]
        found = of_seconds((before["t.total"], after["t.total"]), parts[0], parts[1], held is states.code, of_states(before, after))
        logs[i], fails[i] = np.interp(LEVELS, found.levels, found.logs), found.fails
    return Answers("analytic, compiled" if code else "analytic", logs, LEVELS, fails)


def spoken(ask: Forecaster, data: Data, pairs: Sequence[PairRow], count: int, seed: int = 0) -> tuple[Answers, str]:
    """What a language model says of so many pairs, drawn evenly over families, as far as its budget goes; nothing of the others. Also why it ended early, where
    it did."""
    held: dict[str, list[int]] = {}
    for i in np.random.default_rng(seed).permutation(len(pairs)).tolist():
        held.setdefault(pairs[i].family, []).append(i)
    drawn = [i for turn in zip_longest(*(held[family] for family in sorted(held))) for i in turn if i is not None][:count]
    logs, fails, why = np.full((len(pairs), len(LEVELS)), np.nan), np.full(len(pairs), np.nan), ""
    for i in drawn:
        p = pairs[i]
        before, after = (parse_program(data.programs[q].text, q) for q in (p.before, p.after))
        try:
            found = ask(Pair(before, after, dict(p.sizes), target_of(p.device), p.step, data.programs[p.after].surface))
        except KirError as bad:
            if bad.diagnostics[0].id in ("KIR-E007", "KIR-E008"):
                continue  # sizes that are no launch, or an answer that is none: as good as none
            why = f"{bad.diagnostics[0].id} {bad.diagnostics[0].message}"
            break
        logs[i], fails[i] = [math.log(found.quantile(level)) for level in LEVELS], found.fails
    return Answers("language", logs, LEVELS, fails), why


def alone(of: Answers, chosen: Array) -> Answers:
    """The answers to some of the pairs, as if nothing had been said of the others."""
    there = chosen[:, None]
    return replace(of, name=f"{of.name}, the same pairs", logs=np.where(there, of.logs, np.nan),
                   fails=np.where(chosen, of.fails, np.nan) if of.fails is not None else None)


def roofline(states: States, pairs: Sequence[PairRow]) -> Array:
    """A plain roofline: bytes of the tensors over bandwidth, or operations of matrix units over their peak, whichever is longer, and a launch a kernel."""
    def seconds(program: str, p: PairRow) -> float:
        found, device = states.plain[(program, p.device, sizes_text(p.sizes))], target_of(p.device).device
        return LAUNCH * found["n.kernels"] + max(found["w.compulsory"] / device.bandwidth, found["w.tensor"] / device.tensor.f16)
    return np.array([math.log(seconds(p.before, p) / seconds(p.after, p)) for p in pairs])


def frozen(data: Data, pairs: Sequence[PairRow]) -> Array:
    """What the cost model said when the data were made (the table `modelled`); NaN where that was not kept."""
    held = {(m.program, m.device, sizes_text(m.sizes)): m.seconds for m in data.modelled}

    def of(program: str, p: PairRow) -> float:
        return held.get((program, p.device, sizes_text(p.sizes)), math.nan)
    return np.array([math.log(of(p.before, p) / of(p.after, p)) for p in pairs])
