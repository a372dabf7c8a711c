"""The learned model as a file and as numbers: four forests over the features of a pair, what calibrates them, and how far off a pair may lie.

A forecast is the analytic model's logarithm times `trust`, moved by a location forest, with the width that a scale forest gives and the quantiles that errors
on kernel families left out of training have shown. A second forest, grown for nothing but which of both is faster, decides that where it says otherwise;
the last tells failures. The file is a line that names the schema, then, compressed, a JSON
header and arrays. It needs NumPy alone.
"""
from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.base.store import write_atomic
from kir.learning.forecast.trees import Array, Forest

SCHEMA = 6
"""Raised whenever features or their meaning change, or the file does."""
MAGIC = b"kir.forecast/"
ANALYTIC = "log t.total"
"""The feature that is the analytic model's answer: log2 of modelled time before over after."""
NARROWEST, WIDEST = math.log(0.004), math.log(3.0)
"""Ends of the logarithm of the scale."""
CLIP = 4.0
"""How far apart two pairs may be in one feature, in spreads of the training data, as far as their distance goes."""
FORESTS = ("location", "way", "scale", "fail")
REFUSED, CERTAIN = ("at l.illegal", "at l.refused"), 0.99
"""Features of what is known to fail before a compiler is asked, and how likely a step then fails (of 341 pairs that have one, all did)."""
HINT = 0.01
"""The logarithm that a forecast's median has at least, on the side that is likelier."""
BENDS = (0.1, 0.4)
"""Sizes of what is said of which is faster (a logarithm) beyond which its likelihood hardly grows any more."""
LEAST = 0.005
"""The least probability of either side of 1x."""


@dataclass(frozen=True)
class Model:
    """`names` are the features. The forests of speedups see the first `used`, the one of failures the first `fail.width`; the rest are for the distance alone.
    `trust`, `start` (of the scale, a logarithm) and `levels` with `quantiles` (errors over scale, at each of `knots`, logarithms of it) make the distribution
    about the location; `sure` (a weight for each of `BENDS`) how likely it is to lie on either side of 1x, from what is said of which is faster; `odds`,
    `rates` turn the fail forest's value into a probability. `center`, `spread` and `centroids` (of the features `compared`) measure the distance of a pair
    from what was trained on, `far` is where it is out of reach. `about` says what that was: `data` (hash), `seed`, `command`, `families`, `pairs`,
    `devices`."""

    names: tuple[str, ...]
    used: int
    location: Forest
    way: Forest
    scale: Forest
    fail: Forest
    trust: float
    start: float
    levels: tuple[float, ...]
    knots: tuple[float, ...]
    quantiles: tuple[tuple[float, ...], ...]
    sure: tuple[float, ...]
    odds: tuple[float, ...]
    rates: tuple[float, ...]
    compared: tuple[int, ...]
    center: Array
    spread: Array
    centroids: Array
    far: float
    about: Mapping[str, Any]

    def predict(self, rows: Array, mirrored: Array) -> tuple[Array, Array, Array]:
        """For pairs (rows x features) and the same pairs the other way round: quantiles of the logarithm of the speedup (rows x levels), the probability
        of failure, and the distance."""
        return self.answers(rows, mirrored)[:3]

    def answers(self, rows: Array, mirrored: Array) -> tuple[Array, Array, Array, Array]:
        """What `predict` gives, and `speed`."""
        said, own = self.said(rows, mirrored), self.distance(rows)
        middle = self.located(said)
        width = self.widths(rows, middle, own)
        relative = _between(width, self._places.knots, self._places.quantiles)
        logs = middle[:, None] + np.exp(width)[:, None] * relative
        if len(self.way.roots):
            leaning = said[:, 0] + said[:, 2]
            logs = sided(logs, self._places.levels, slower(leaning, self.sure), leaning)
        return logs, self.failing(rows), own, self._speed(said)

    def base(self, rows: Array) -> Array:
        """What the analytic model says, as a natural logarithm; 0 for a model without it."""
        if self._places.analytic < 0:
            return np.zeros(len(rows))
        found: Array = rows[:, self._places.analytic] * math.log(2.0)
        return found

    def located(self, said: Array) -> Array:
        """The location: where a distribution lies before it is known which side of 1x is likelier."""
        found: Array = self.trust * said[:, 0] + said[:, 1]
        return found

    def speed(self, rows: Array, mirrored: Array) -> Array:
        """The logarithm of the speedup by which candidates are put in order: the mean of what the analytic model, the location and the forest of which is
        faster say. Of a pair and its mirror image, one is the other's negative."""
        return self._speed(self.said(rows, mirrored))

    def _speed(self, said: Array) -> Array:
        parts = [said[:, 0], self.located(said), *([said[:, 0] + said[:, 2]] if len(self.way.roots) else [])]
        found: Array = np.mean(parts, axis=0)
        return found

    def said(self, rows: Array, mirrored: Array) -> Array:
        """What the analytic model, the location forest and that of which is faster say of pairs (rows x 3)."""
        seen = np.concatenate([rows, mirrored])[:, :self.used]
        return np.column_stack([self.base(rows), _halved(self._places.both.sums(seen, (len(self.location.roots),)))])

    def widths(self, rows: Array, middle: Array, own: Array) -> Array:
        """The logarithm of the scale."""
        seen = with_own(rows[:, :self.used], self.base(rows), middle, own)
        found: Array = np.clip(self.start + self.scale(seen), NARROWEST, WIDEST)
        return found

    def failing(self, rows: Array) -> Array:
        """The probability of failure, before anything is compiled: certain where the architecture or the surface's backend refuses the later program."""
        found: Array = np.interp(self.fail(_blank(rows, self._places.code)), self.odds, self.rates)
        refused = (rows[:, self._places.refused] > 0.0).any(axis=1) if len(self._places.refused) else np.zeros(len(rows), bool)
        return np.where(refused, np.maximum(found, CERTAIN), found)

    def distance(self, rows: Array) -> Array:
        """How far each pair lies from the nearest centroid, in spreads a feature."""
        return distances(rows[:, self._places.compared], self.center, self.spread, self.centroids)

    @cached_property
    def _places(self) -> _Places:
        return _Places(self.names.index(ANALYTIC) if ANALYTIC in self.names else -1, _of_code(self.names), np.array(self.compared, dtype=np.intp),
                       np.array([i for i, name in enumerate(self.names) if name in REFUSED], dtype=np.intp), self.location.joined(self.way),
                       np.array(self.levels), np.array(self.knots), np.array(self.quantiles))

    def packed(self) -> bytes:
        """The file."""
        head: dict[str, Any] = {k: getattr(self, k) for k in ("names", "used", "trust", "start", "levels", "knots", "quantiles", "sure", "odds", "rates",
                                                              "compared", "far", "about")}
        head |= {"forests": {name: getattr(self, name).sizes() for name in FORESTS}, "centroids": self.centroids.shape}
        arrays = b"".join(getattr(self, name).packed() for name in FORESTS)
        arrays += b"".join(np.ascontiguousarray(a, "<f4").tobytes() for a in (self.center, self.spread, self.centroids))
        text = json.dumps(head, separators=(",", ":")).encode()
        return b"%s%d\n" % (MAGIC, SCHEMA) + zlib.compress(len(text).to_bytes(4, "little") + text + arrays, 9)

    def write(self, path: Path) -> None:
        """Write the file."""
        write_atomic(path, self.packed())

    @classmethod
    def read(cls, path: Path, data: str = "") -> Model:
        """A model from its file. With `data`, one trained on data of this hash. Raises KirError KIR-E005."""
        try:
            content = path.read_bytes()
        except OSError as bad:
            raise _unfit(path, f"cannot be read: {bad.strerror}") from bad
        first, _, rest = content.partition(b"\n")
        schema = first.removeprefix(MAGIC)
        if not first.startswith(MAGIC) or not schema.isdigit():
            raise _unfit(path, "is no model of effects")
        if int(schema) != SCHEMA:
            raise _unfit(path, f"has schema {int(schema)}; this KIR reads {SCHEMA}")
        try:
            model = cls._of(zlib.decompress(rest))
        except (zlib.error, ValueError, KeyError, TypeError) as bad:
            raise _unfit(path, "is cut short or damaged") from bad
        if data and model.about["data"] != data:
            raise _unfit(path, f"was trained on data {model.about['data'][:12]}, and not on {data[:12]}")
        return model

    @classmethod
    def _of(cls, content: bytes) -> Model:
        size = int.from_bytes(content[:4], "little")
        head = json.loads(content[4:4 + size])
        at = 4 + size
        forests: dict[str, Any] = {}
        for name in FORESTS:
            forests[name], at = Forest.read(head["forests"][name], content, at)
        rows, columns = head["centroids"]
        flat = np.frombuffer(content, "<f4", (rows + 2) * columns, at).astype(np.float64)
        kept: dict[str, Any] = {k: tuple(head[k]) for k in ("names", "levels", "knots", "sure", "odds", "rates", "compared")}
        kept["quantiles"] = tuple(map(tuple, head["quantiles"]))
        return cls(**kept, **forests, **{k: head[k] for k in ("used", "trust", "start", "far", "about")}, center=flat[:columns],
                   spread=flat[columns:2 * columns], centroids=flat[2 * columns:].reshape(rows, columns))


@dataclass(frozen=True)
class _Places:
    """What is looked up again and again: the columns of the analytic model's answer (-1: none), of machine code, of what is compared, of what is
    refused; the forests of the location and of which is faster as one; and numbers of the model as arrays."""

    analytic: int
    code: Array
    compared: Array
    refused: Array
    both: Forest
    levels: Array
    knots: Array
    quantiles: Array


def slower(leaning: Array, sure: Sequence[float]) -> Array:
    """The probability that a step makes it slower, from what is said of which is faster (a logarithm, above 0 for faster); of a pair and its mirror image, both
    add up to 1."""
    against = sum(weight * np.tanh(leaning / bend) for weight, bend in zip(sure, BENDS, strict=True))
    found: Array = np.clip(1.0 / (1.0 + np.exp(against)), LEAST, 1.0 - LEAST)
    return found


def sided(logs: Array, levels: Array, below: Array, leaning: Array) -> Array:
    """Distributions (quantiles at `levels`, rising) with the probability `below` of lying under 0, the shape of either side as it was; the median lies `HINT`
    at least on the side of `leaning`."""
    middle = int(np.argmin(np.abs(levels - 0.5)))
    out: Array = np.empty_like(logs)
    for i, row in enumerate(logs):
        was, now, side = min(max(float(np.interp(0.0, row, levels)), LEAST), 1.0 - LEAST), float(below[i]), float(np.sign(leaning[i]))
        found = np.interp(np.where(levels < now, levels * (was / now), 1.0 - (1.0 - levels) * ((1.0 - was) / (1.0 - now))), levels, row)
        mid = side * max(side * float(found[middle]), HINT) if side else float(found[middle])
        np.minimum(found[:middle], mid, out=out[i, :middle])
        out[i, middle] = mid
        np.maximum(found[middle + 1:], mid, out=out[i, middle + 1:])
    out += (np.arange(len(levels)) - middle) * 1e-9
    return out


def _between(at: Array, knots: Array, columns: Array) -> Array:
    """Every column's value at each of `at`, linear between the rising knots and flat beyond them (rows x columns)."""
    if len(knots) == 1:
        return np.repeat(columns, len(at), axis=0)
    low = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)
    share = np.clip((at - knots[low]) / np.maximum(knots[low + 1] - knots[low], 1e-300), 0.0, 1.0)[:, None]
    found: Array = columns[low] + share * (columns[low + 1] - columns[low])
    return found


def _halved(both: Array) -> Array:
    """Of the values of pairs and then of their mirror images: half of the difference."""
    half = len(both) // 2
    found: Array = 0.5 * (both[:half] - both[half:])
    return found


def with_own(rows: Array, base: Array, middle: Array, own: Array) -> Array:
    """Features with what a model has said itself: how far from 1 the analytic model and the location are, how far apart, and how far the pair is off."""
    return np.column_stack([rows, np.abs(base), np.abs(middle), np.abs(middle - base), own])


def without_code(rows: Array, names: Sequence[str]) -> Array:
    """Rows as if nothing had been compiled."""
    return _blank(rows, _of_code(names))


def _of_code(names: Sequence[str]) -> Array:
    return np.array([i for i, name in enumerate(names) if " s." in name], dtype=np.intp)


def _blank(rows: Array, columns: Array) -> Array:
    out = rows.copy()
    out[:, columns] = np.nan
    return out


def distances(rows: Array, center: Array, spread: Array, centroids: Array) -> Array:
    """The root mean square, over features, of how many spreads a row is off its nearest centroid."""
    if not len(centroids):
        return np.zeros(len(rows))
    scaled = scaled_by(rows, center, spread)
    square = (scaled ** 2).sum(axis=1)[:, None] - 2.0 * scaled @ centroids.T + (centroids ** 2).sum(axis=1)[None, :]
    found: Array = np.sqrt(np.maximum(square.min(axis=1), 0.0) / max(1, rows.shape[1]))
    return found


def scaled_by(rows: Array, center: Array, spread: Array) -> Array:
    """Features in spreads of the training data, no further out than `CLIP`."""
    found: Array = np.clip((np.nan_to_num(rows) - center) / spread, -CLIP, CLIP)
    return found


def _unfit(path: Path, why: str) -> KirError:
    return error("KIR-E005", f"{path} {why}", needs="a model of this version, trained on these data", attempt="python -m benchmarks.forecast train")
