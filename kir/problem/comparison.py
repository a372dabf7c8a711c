"""Whether outputs are what the oracle says, within the problem's bound. NaN never passes where the oracle has a number."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.problem.draws import numpy_dtype, smallest_step
from kir.problem.schema import SetWithTies, Tensor

Array = NDArray[Any]


@dataclass(frozen=True)
class Comparison:
    """`worst` is the largest error as a multiple of its bound (infinite for NaN, a wrong shape or dtype), `where` its place
    (`C[3, 5]`), `bound` the absolute bound there, `reason` one sentence when not ok."""

    ok: bool
    worst: float
    where: str
    bound: float
    reason: str = ""


def _refuse(name: str, reason: str) -> Comparison:
    return Comparison(False, float("inf"), name, 0.0, f"{name} {reason}")


def check_form(outputs: Mapping[str, Array], tensor: Tensor, dtype: str, shape: tuple[int, ...]) -> Comparison | None:
    """The refusal of an output that is absent or of another dtype or shape, else None."""
    if tensor.name not in outputs:
        return None if tensor.optional else _refuse(tensor.name, "was not returned")
    got = outputs[tensor.name]
    if got.dtype != numpy_dtype(dtype):
        return _refuse(tensor.name, f"has dtype {got.dtype}, not {dtype}")
    if got.shape != shape:
        return _refuse(tensor.name, f"has shape {got.shape}, not {shape}")
    return None


BLOCK = 1 << 15
"""Elements that are compared at once: what comes between stays in a core's cache."""


def elementwise(name: str, dtype: str, got: Array, oracle: Array, bound: Array, norm: float, signed_zeros: bool = False) -> Comparison:
    """|got - oracle| <= bound everywhere; the Euclidean norm of the error at most `norm` of the bound's (more where there are few
    elements); infinities where the oracle, rounded to `dtype`, has them; with `signed_zeros` also the sign of a zero where nothing is rounded.
    `oracle` and `bound` are float64 of got's shape. The first of the largest errors is named."""
    flat, right = got.reshape(-1), np.broadcast_to(oracle, got.shape).reshape(-1)
    allowed = np.broadcast_to(bound, got.shape).reshape(-1)
    worst, at, most, count, errors, limits = -1.0, 0, 0.0, 0, 0.0, 0.0
    for first in range(0, flat.size, BLOCK):
        part = slice(first, first + BLOCK)
        ratio, limit, error, counted = _ratios(dtype, flat[part], right[part], allowed[part], signed_zeros)
        place = int(np.argmax(ratio))
        if ratio[place] > worst:
            worst, at, most = float(ratio[place]), first + place, float(limit[place])
        count += int(counted.sum())
        errors += float(np.square(error[counted]).sum())
        limits += float(np.square(limit[counted]).sum())
    places = np.unravel_index(at, got.shape) if got.ndim and got.size else ()
    where = f"{name}[{', '.join(str(int(i)) for i in places)}]" if places else name
    if worst > 1.0:
        said = f"{where} is {float(flat[at])!r}, the oracle says {float(right[at])!r}, give or take {most:.3g}"
        return Comparison(False, worst, where, most, said)
    total, ceiling = errors ** 0.5, (norm + (1.0 - norm) / max(1.0, float(count)) ** 0.5) * limits ** 0.5
    if total > ceiling:
        return Comparison(False, total / ceiling, name, ceiling,
                          f"each error of {name} is in bounds, but their norm {total:.3g} is above {ceiling:.3g}: no rounding noise")
    return Comparison(True, max(worst, 0.0), where, most)


def _ratios(dtype: str, got: Array, oracle: Array, bound: Array, signed_zeros: bool) -> tuple[Array, Array, Array, Array]:
    """Of elements in a row: the error by its limit, the limit, the error, and which of them the norm counts."""
    value = got.astype(np.float64)
    target = numpy_dtype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        largest = float(np.finfo(np.float64).max if target.kind in "iub" else _largest(dtype))
        limit = bound + smallest_step(dtype)
        error = np.abs(value - oracle)
        reach = np.abs(oracle) + limit
        if float(reach.max()) <= largest / 2 and limit.min() > 0 and np.isfinite(error).all():  # nothing but numbers, none of which overflows: the usual case
            ratio = error / limit
            return (_signed(ratio, bound, oracle, value) if signed_zeros else ratio), limit, error, np.ones(error.shape, np.bool_)
        rounded = oracle.astype(target).astype(np.float64)
        overflow = np.isinf(rounded)
        edge = ~overflow & (reach > largest)
        same = overflow & (value == rounded)
        near = overflow & (np.abs(oracle) - limit <= largest) & (np.abs(value) >= largest - limit) & (np.sign(value) == np.sign(oracle))
        ratio = np.where(same | near | (edge & np.isinf(value) & (np.sign(value) == np.sign(oracle))), 0.0,
                         np.where(overflow, np.inf, error / np.where(limit > 0, limit, 1.0)))
        ratio = np.where((limit == 0) & ~overflow, np.where(error == 0, 0.0, np.inf), ratio)
    ratio = np.where(np.isnan(oracle), np.where(np.isnan(value), 0.0, np.inf), np.where(np.isnan(value) | np.isnan(ratio), np.inf, ratio))
    if signed_zeros:
        ratio = _signed(ratio, bound, oracle, value)
    return ratio, limit, error, np.isfinite(ratio) & np.isfinite(error) & ~overflow


def _signed(ratio: Array, bound: Array, oracle: Array, value: Array) -> Array:
    """The ratios, infinite where a zero that nothing rounds has the other sign."""
    return np.where((bound == 0) & (oracle == 0) & (value == 0) & (np.signbit(value) != np.signbit(oracle)), np.inf, ratio)


def _largest(dtype: str) -> float:
    import ml_dtypes
    return float(ml_dtypes.finfo(numpy_dtype(dtype)).max)


def set_with_ties(relation: SetWithTies, outputs: Mapping[str, Array], inputs: Mapping[str, Array],
                  oracle: Mapping[str, Array]) -> Comparison:
    """The relation `SetWithTies`, exactly: selection rounds nothing."""
    got, want = outputs[relation.values].astype(np.float64), oracle[relation.values]
    if np.isnan(got).any():
        return _refuse(relation.values, "holds NaN")
    wrong = np.argwhere(np.sort(got, axis=-1) != np.sort(want, axis=-1))
    if len(wrong):
        row = tuple(int(i) for i in wrong[0][:-1])
        return _refuse(f"{relation.values}[{', '.join(map(str, row))}, ..]", "is another multiset than the oracle's")
    source, index = inputs[relation.source].astype(np.float64), outputs[relation.indices].astype(np.int64)
    if ((index < 0) | (index >= source.shape[-1])).any():
        return _refuse(relation.indices, f"holds an index outside 0..{source.shape[-1]}")
    ordered = np.sort(index, axis=-1)
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        return _refuse(relation.indices, "names one element twice")
    if (np.take_along_axis(source, index, axis=-1) != got).any():
        return _refuse(relation.indices, f"does not point at {relation.values}")
    return Comparison(True, 0.0, relation.values, 0.0)


def worst_of(results: Sequence[Comparison]) -> Comparison:
    """The first refusal, else the result nearest to its bound."""
    bad = [r for r in results if not r.ok]
    return bad[0] if bad else max(results, key=lambda r: r.worst)
