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


def elementwise(name: str, dtype: str, got: Array, oracle: Array, bound: Array, norm: float, signed_zeros: bool = False) -> Comparison:
    """|got - oracle| <= bound everywhere; the Euclidean norm of the error at most `norm` of the bound's (more where there are few
    elements); infinities where the oracle, rounded to `dtype`, has them; with `signed_zeros` also the sign of a zero where nothing is rounded.
    `oracle` and `bound` are float64 of got's shape."""
    value = got.astype(np.float64)
    target = numpy_dtype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = oracle.astype(target).astype(np.float64)
        largest = float(np.finfo(np.float64).max if target.kind in "iub" else _largest(dtype))
        limit = bound + smallest_step(dtype)
        error = np.abs(value - oracle)
        overflow = np.isinf(rounded)
        edge = ~overflow & (np.abs(oracle) + limit > largest)
        same = overflow & (value == rounded)
        near = overflow & (np.abs(oracle) - limit <= largest) & (np.abs(value) >= largest - limit) & (np.sign(value) == np.sign(oracle))
        ratio = np.where(same | near | (edge & np.isinf(value) & (np.sign(value) == np.sign(oracle))), 0.0,
                         np.where(overflow, np.inf, error / np.where(limit > 0, limit, 1.0)))
        ratio = np.where((limit == 0) & ~overflow, np.where(error == 0, 0.0, np.inf), ratio)
    ratio = np.where(np.isnan(oracle), np.where(np.isnan(value), 0.0, np.inf), np.where(np.isnan(value) | np.isnan(ratio), np.inf, ratio))
    if signed_zeros:
        ratio = np.where((bound == 0) & (oracle == 0) & (value == 0) & (np.signbit(value) != np.signbit(oracle)), np.inf, ratio)
    place = np.unravel_index(int(np.argmax(ratio)), ratio.shape) if ratio.ndim else ()
    worst = float(ratio[place])
    where = f"{name}[{', '.join(str(int(i)) for i in place)}]" if place else name
    allowed = float(np.broadcast_to(limit, ratio.shape)[place])
    if worst > 1.0:
        return Comparison(False, worst, where, allowed,
                          f"{where} is {float(value[place])!r}, the oracle says {float(oracle[place])!r}, give or take {allowed:.3g}")
    finite = np.isfinite(ratio) & np.isfinite(error) & ~overflow
    total = float(np.linalg.norm(error[finite]))
    part = norm + (1.0 - norm) / max(1.0, float(finite.sum())) ** 0.5
    ceiling = part * float(np.linalg.norm(np.broadcast_to(limit, ratio.shape)[finite]))
    if total > ceiling:
        return Comparison(False, total / ceiling, name, ceiling,
                          f"each error of {name} is in bounds, but their norm {total:.3g} is above {ceiling:.3g}: no rounding noise")
    return Comparison(True, worst, where, allowed)


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
