"""Whether two programs gave the same, up to rounding and to the order of sums."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.gate.inputs.kinds import ROUNDINGS
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import statements, walk
from kir.problem import Comparison

Array = NDArray[Any]
ROUNDED = {"f16": 2.0**-11, "bf16": 2.0**-8}
"""Relative rounding to a dtype."""
PRECISE, OWN = 2.0**-21, 2.0**-12
"""The relative error of each element of a precise reference beside its last rounding, and what another program may differ by there: so much more that the
first is hardly so small by chance where the second would be so large."""
SWAYED, SWAYED_MOST = 8, 2.0**-4
"""How many times what the last bits of inputs make of an element it may differ by, and which share of the largest element at most."""
LEAST_APART, SHARE_APART, ONE_SIDED = 64, 0.2, 0.98
"""Of elements that differ from a reference by their last rounding: how many, and which share, tell something; and which share of them on one side does."""


def rounded_to(program: n.Program) -> Mapping[str, float]:
    """Relative rounding of the dtype that a program rounds an output to before it stores it wider, where each store does."""
    stored: dict[str, list[float | None]] = {}
    for s in (s for k in program.kernels for s in statements(k.body) if isinstance(s, n.Store) and s.at.buffer.space == "global"):
        narrow = dtype_of(s.value.x.type) if isinstance(s.value, n.Cast) and s.at.buffer.dtype.is_float else s.at.buffer.dtype
        stored.setdefault(s.at.buffer.name, []).append(ROUNDED.get(narrow.name) if narrow.bits < s.at.buffer.dtype.bits else None)
    return {name: max(found) for name, all_ in stored.items() if None not in all_ and (found := [x for x in all_ if x is not None])}


def rounds(program: n.Program) -> bool:
    """Whether a program makes whole numbers of floats."""
    return any(isinstance(x, n.Call) and x.fn in ROUNDINGS for k in program.kernels for x in walk(k))


def precise(got: Array, exact: Array) -> bool:
    """Whether each element of a reference is right to nearly all of its own bits: nothing large was taken from something large in any of them, and a program
    that gives the same up to rounding is right in each of them too, however small it is beside the others."""
    b = exact.astype(np.float64)
    if got.dtype.itemsize < 2 or got.dtype.kind in "iub":
        return False
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.float64) - b) - _floor(got)
        return bool((apart <= (_roundoff(got) + PRECISE) * np.abs(b)).all())


def beyond(got: Array, exact: Array, also: Array | None, true: Array) -> Array:
    """The other side of what is right beside what a program gives: as far from its value without rounding, on the other side of that (who is no farther from
    it than the program itself is no less right); or, with a second reading, its value without rounding, or that reading where what is judged lies on the side
    of it, and it is further. Where it gives nothing finite, just that."""
    a, b = got.astype(np.float64), exact.astype(np.float64)
    other = true if also is not None else 2 * true - b
    if also is not None:
        c = also.astype(np.float64)
        other = np.where(((a - b) * (c - b) > 0) & (np.abs(true - b) <= np.abs(c - b)), c, true)
    return np.where(np.isfinite(b), other, b)


def close(name: str, got: Array, exact: Array, also: Array | None = None, rounded: float | None = None, precise: bool = False) -> Comparison:
    """How far an output is from what a reference program gives: within two roundings of its dtype (relative, `rounded` where it is narrower) and 2^-16 of
    the largest magnitude, or where the reference is `precise` 2^-12 of the element's own; whole numbers are equal. Anything between `exact` and `also` is
    right, where there are both. Elements that are rounded to one side nearly all are another rounding, and wrong."""
    if exact.size == 0 or np.array_equal(got.astype(np.float64), exact.astype(np.float64), equal_nan=True):
        return Comparison(True, 0.0, name, 0.0)
    a, b = got.astype(np.float64), exact.astype(np.float64)
    floating = got.dtype.kind == "f" or got.dtype.kind == "V" or got.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    finite = np.isfinite(b)
    scale = float(np.max(np.abs(b[finite]), initial=0.0))
    narrow = rounded is not None or got.dtype.itemsize <= 2
    roundoff = rounded or _roundoff(got)
    apart = np.minimum(2.0**-16 * scale, OWN * np.abs(b) + _floor(got)) if precise else 2.0**-16 * scale
    bound = (2 * roundoff * np.abs(b) + apart) if floating else np.zeros_like(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        apart = np.abs(a - b) if also is None else np.maximum(np.minimum(b, also) - a, a - np.maximum(b, also)).clip(0)
        ratio = np.where(same, 0.0, np.where(bound > 0, apart / bound, np.inf))
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    place = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    worst, where = float(ratio[place]), f"{name}[{', '.join(str(int(i)) for i in place)}]"
    reason = "" if worst <= 1 else f"{where} is {float(a[place])!r}, the reference program says {float(b[place])!r}"
    if worst <= 1 and floating and also is None and narrow and (side := _one_sided(a, b)):
        return Comparison(False, worst, name, float(bound[place]), f"{name} differs from the reference program {side}: it is rounded in another direction")
    return Comparison(worst <= 1, worst, where, float(bound[place]), reason)


def ill_conditioned(name: str, got: Array, exact: Array, true: Array, moved: Sequence[Array], rounded: float | None, precise: bool = False) -> Comparison:
    """`close`, and what the last bits of the inputs make of an element beside: `true` is it without rounding, `moved` are so for inputs that differ there.
    A sum whose terms nearly cancel is no better known than its terms are, and the largest element says nothing of these where there is but one."""
    wide = exact.astype(np.float64)
    with np.errstate(all="ignore"):
        room = np.minimum(SWAYED * np.max([np.abs(x - true) for x in (*moved, true)], axis=0), SWAYED_MOST * np.max(np.abs(true), initial=0.0))
    room = np.where(np.isfinite(room) & np.isfinite(wide), room, 0.0)
    return close(name, got, wide - room, wide + room, rounded, precise)


def _roundoff(of: Array) -> float:
    """Relative rounding of an array's dtype."""
    return {1: 2.0**-3, 2: 2.0**-8 if of.dtype.name == "bfloat16" else 2.0**-11, 4: 2.0**-24}.get(of.dtype.itemsize, 2.0**-53)


def _floor(of: Array) -> float:
    """What is lost where a dtype's numbers are no longer normal."""
    return 2.0**-23 if of.dtype == np.float16 else 2.0**-120


def _one_sided(a: Array, b: Array) -> str:
    """To which side most of the elements that differ lie, where that are many: rounding to nearest, at whatever place, leaves about as many on either."""
    apart = (a != b) & np.isfinite(a) & np.isfinite(b)
    count = int(apart.sum())
    if count < LEAST_APART or count < SHARE_APART * a.size:
        return ""
    for what, more in (("toward zero", np.abs(a) < np.abs(b)), ("away from zero", np.abs(a) > np.abs(b)), ("downward", a < b), ("upward", a > b)):
        if int((apart & more).sum()) >= ONE_SIDED * count:
            return f"in {count} of {a.size} elements, {what} in nearly all of them"
    return ""
