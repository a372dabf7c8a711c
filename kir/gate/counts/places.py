"""Where an access goes in memory, evaluated on numbers: element offsets of a region, for one team or for the lanes of a warp."""
from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType, shape_of

Integers = NDArray[np.int64]
LANES = 32


def offsets(r: n.Region, values: Mapping[str, n.Expr], lane: str | None, shape: tuple[int, ...]) -> Integers | None:
    """Element offsets [lanes, *shape] of a region: 32 lanes that differ in the variable `lane`, or one team when there is none. None
    where an index depends on what is not known."""
    lanes: Integers = np.arange(LANES if lane else 1, dtype=np.int64)
    strides = r.buffer.strides
    if strides is None:
        extents = [_number(d, values) for d in r.buffer.shape]
        steps: list[int | None] = [1]
        for d in reversed(extents[1:]):
            steps.insert(0, None if d is None or steps[0] is None else steps[0] * d)
    else:
        steps = [_number(s, values) for s in strides]
    index = r.index or tuple(n.Span(n.Const(0, d.type), d) for d in r.buffer.shape if isinstance(d.type, DType))
    total: Integers = np.zeros((len(lanes), *(1 for _ in shape)), np.int64)
    axis = 0
    for i, step in zip(index, steps, strict=False):
        if step is None:
            return None
        if isinstance(i, n.Span):
            lo, extent, stride = _evaluate(i.lo, values, lane, lanes), int_value(i.extent), int_value(i.step)
            extent = _number(i.extent, values) if extent is None and isinstance(i.extent, n.Expr) else extent
            if lo is None or extent is None or stride is None:
                return None
            along = np.arange(extent, dtype=np.int64) * stride
            place = along.reshape(*(extent if a == axis else 1 for a in range(len(shape))))
            total = total + (lo.reshape(-1, *(1 for _ in shape)) + place[None]) * step
            axis += 1
            continue
        found = _evaluate(i, values, lane, lanes)
        if found is None:
            return None
        rank = len(shape_of(i.type))
        missing = len(shape) - rank
        total = total + found.reshape(found.shape[0], *(1 for _ in range(missing)), *found.shape[1:]) * step
    return np.broadcast_to(total, (total.shape[0], *shape)) if total.ndim == 1 + len(shape) else None


def sectors(at: Integers, size: int, sector: int) -> float:
    """Sectors that one execution touches; of a warp's lanes the share of each."""
    touched: Integers = np.unique(at * size // sector)
    return len(touched) / int(at.shape[0])


def run_length(at: Integers) -> float:
    """How many elements of a team (or lane) lie side by side, on average, along the last axis."""
    if at.ndim < 2 or at.shape[-1] < 2:
        return 1.0
    breaks = int(np.count_nonzero(np.diff(at, axis=-1) != 1))
    rows = at.size // at.shape[-1]
    return float(at.size / (rows + breaks))


def _number(e: n.Expr, values: Mapping[str, n.Expr]) -> int | None:
    found = _evaluate(e, values, None, np.zeros(1, np.int64))
    return int(found.reshape(-1)[0]) if found is not None and found.size == 1 else None


def _evaluate(e: n.Expr, values: Mapping[str, n.Expr], lane: str | None, lanes: Integers) -> Integers | None:
    """An integer or boolean expression as [lanes or 1, *tile], or None."""
    match e:
        case n.Const():
            return None if isinstance(e.value, float) else np.full((1, *(1 for _ in shape_of(e.type))), int(e.value), np.int64)
        case n.Var():
            if e.name == lane:
                return lanes
            known = values.get(e.name)
            return None if known is None or known == e else _evaluate(known, values, lane, lanes)
        case n.Unary():
            x = _evaluate(e.x, values, lane, lanes)
            return None if x is None else -x if e.op == "neg" else ~x
        case n.Binary():
            a, b = _evaluate(e.a, values, lane, lanes), _evaluate(e.b, values, lane, lanes)
            return None if a is None or b is None else _binary(e.op, *_ranked(a, b))
        case n.Select():
            c, a, b = (_evaluate(x, values, lane, lanes) for x in (e.cond, e.a, e.b))
            if a is None or b is None or c is None:
                return None
            a, b = _ranked(a, b)
            c, a = _ranked(c, a)
            return np.where(c != 0, a, b)
        case n.Cast():
            return _evaluate(e.x, values, lane, lanes) if e.rounding == "rn" else None
        case n.Call():
            return _called(e, values, lane, lanes)
        case _:
            return None


def _ranked(a: Integers, b: Integers) -> tuple[Integers, Integers]:
    """Two values with the same number of tile axes, aligned at the right."""
    def stretched(x: Integers, rank: int) -> Integers:
        return x.reshape(x.shape[0], *(1 for _ in range(rank - x.ndim)), *x.shape[1:])
    return stretched(a, b.ndim), stretched(b, a.ndim)


def _binary(op: str, a: Integers, b: Integers) -> Integers | None:
    simple = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
              "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift, "lt": np.less, "le": np.less_equal,
              "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
    if op in simple:
        out: Integers = simple[op](a, b).astype(np.int64)
        return out
    if op not in ("floordiv", "mod", "ceildiv", "tdiv", "trem") or not np.all(b):
        return None
    quotient = -(-a // b) if op == "ceildiv" else a // b
    if op in ("tdiv", "trem"):
        quotient = np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return a - quotient * b if op in ("mod", "trem") else quotient


def _called(e: n.Call, values: Mapping[str, n.Expr], lane: str | None, lanes: Integers) -> Integers | None:
    first = e.args[0] if e.args else None
    if not isinstance(first, n.Expr) or e.of is not None:
        return None
    if e.fn == "iota":
        extent = _number(first, values)
        return None if extent is None else np.arange(extent, dtype=np.int64)[None]
    x = _evaluate(first, values, lane, lanes)
    if x is None:
        return None
    match e.fn:
        case "expand":
            out: Integers = np.expand_dims(x, 1 + int(dict(e.attrs)["axis"]))
            return out
        case "broadcast":
            shape = [v for d in shape_of(e.type) if (v := int_value(d)) is not None]
            return np.broadcast_to(x.reshape(x.shape[0], *(1 for _ in range(len(shape) + 1 - x.ndim)), *x.shape[1:]), (x.shape[0], *shape))
        case "trans":
            return np.transpose(x, (0, *(1 + (int_value(a) or 0) for a in e.args[1:] if isinstance(a, n.Expr))))
        case "multiple_of" | "max_contiguous" | "max_constancy":
            return x
        case _:
            return None


