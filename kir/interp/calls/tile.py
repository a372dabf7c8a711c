"""Instruction table, family `tile`: shapes, reductions, scans, sorting; and the rows that are only advice.

Order of reductions, which fixes the rounding of floats: `reduce` halves the axis, adding element i + n/2 to element i while the extent
n is even, and folds an odd last element into element 0 first; `scan` goes along the axis one by one. Both round to the dtype of the
operand after each step. `max`, `min`, `and`, `or`, `xor` do not depend on the order.
"""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kir.base.diagnostic import error
from kir.interp.calls.functions import Combine, combiner
from kir.interp.memory_access.regions import resolve
from kir.interp.numerics import number
from kir.interp.numerics.number import Array
from kir.interp.numerics.values import Mask, Val, aligned, defined, lift
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine, Semantics
from kir.ir.nodes import Call, Expr, Region
from kir.ir.types import DType, dtype_of, shape_of

Values = tuple[Val, ...]


def _operands(m: Machine, e: Call, f: Frame) -> Values:
    return tuple(m.evaluate(a, f) for a in e.args if isinstance(a, Expr))


def _mapped(v: Val, change: Callable[[Array], Array]) -> Val:
    return Val(change(v.data), None if v.ok is None else change(np.broadcast_to(v.ok, v.data.shape)))


def _shape(m: Machine, e: Call, f: Frame, skip: int) -> tuple[int, ...]:
    return tuple(m.size(a, f) for a in e.args[skip:] if isinstance(a, Expr))


def _iota(m: Machine, e: Call, f: Frame) -> Val:
    return Val(np.arange(_shape(m, e, f, 0)[0], dtype=np.int32)[None])


def _expand(m: Machine, e: Call, f: Frame) -> Val:
    axis = int(dict(e.attrs)["axis"]) + 1
    return _mapped(_operands(m, e, f)[0], lambda x: np.expand_dims(x, axis))


def _first(m: Machine, e: Call, f: Frame) -> Val:
    assert isinstance(e.args[0], Expr)
    return m.evaluate(e.args[0], f)


def _broadcast(m: Machine, e: Call, f: Frame) -> Val:
    shape = _shape(m, e, f, 1)
    return _mapped(_first(m, e, f), lambda x: np.broadcast_to(lift(x, len(shape)), x.shape[:1] + shape))


def _reshape(m: Machine, e: Call, f: Frame) -> Val:
    shape = _shape(m, e, f, 1)
    return _mapped(_first(m, e, f), lambda x: x.reshape(x.shape[:1] + shape))


def _trans(m: Machine, e: Call, f: Frame) -> Val:
    order = (0, *(p + 1 for p in _shape(m, e, f, 1)))
    return _mapped(_first(m, e, f), lambda x: x.transpose(order))


def _folded(op: str, dtype: DType) -> Combine:
    if op in ("sum", "prod"):
        name = "add" if op == "sum" else "mul"
        return lambda a, b: (number.binary(name, dtype, a[0], b[0]),)
    if op in ("max_nan", "min_nan"):
        pick = np.maximum if op == "max_nan" else np.minimum
        return lambda a, b: (number.rounded(pick, dtype, a[0], b[0]) if dtype.is_float else pick(a[0], b[0]),)
    if op in ("max", "min", "and", "or", "xor"):
        return lambda a, b: (number.binary(op, dtype, a[0], b[0]),)
    raise error("KIR-I002", f"there is no reduction '{op}'")


def _combiner(m: Machine, e: Call, f: Frame) -> Combine:
    options = dict(e.attrs)
    if "combine" in options:
        return combiner(m, str(options["combine"]), f)
    return _folded(str(options.get("op", "sum")), dtype_of(e.args[0].type))


def _arg(op: str, v: Val, axis: int, keep: bool) -> Val:
    x = v.data.astype(np.float64) if v.data.dtype.kind not in "iub" else v.data
    found = (np.argmax if op == "argmax" else np.argmin)(x, axis=axis)
    ok = None if v.ok is None else v.ok.all(axis=axis)
    out = Val(found.astype(np.int32), ok)
    return _mapped(out, lambda y: np.expand_dims(y, axis)) if keep else out


_WHOLE: dict[str, np.ufunc] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def _at_once(op: str, dtype: DType, x: Array, axis: int) -> Array | None:
    """A reduction that NumPy does as one, with extent 1 left: integers, in whatever order, and the extreme of floats where it is no zero and no NaN, which
    has the same bits in any order. None where only the order of `halve` is right."""
    if dtype.is_integer and dtype.bits >= 8 and op in _WHOLE:
        return np.asarray(_WHOLE[op].reduce(x, axis=axis, dtype=x.dtype, keepdims=True))
    if dtype.is_float and op in ("max", "min"):
        wide = x.astype(np.float32) if number.narrow(dtype) else x
        out = (np.fmax if op == "max" else np.fmin).reduce(wide, axis=axis, keepdims=True)
        if number.every(out) and not number.some(np.isnan(out)):
            return np.asarray(out.astype(x.dtype, copy=False))
    return None


def _tree(op: str, dtype: DType, x: Array, axis: int) -> Array:
    """As `halve`, of one part by an operation that has a name."""
    before, extent = (slice(None),) * axis, x.shape[axis]
    if extent < 2 or op not in ("sum", "prod", "max", "min", "and", "or", "xor"):
        return halve((x,), axis, _folded(op, dtype))[0]
    do = number.operation({"sum": "add", "prod": "mul"}.get(op, op), dtype)
    while extent > 1:
        if extent % 2:
            head, extent = do(x[(*before, slice(0, 1))], x[(*before, slice(extent - 1, extent))]), extent - 1
            x = np.concatenate([head, x[(*before, slice(1, extent))]], axis=axis)
        half = extent // 2
        x, extent = do(x[(*before, slice(0, half))], x[(*before, slice(half, extent))]), half
    return x


def halve(parts: tuple[Array, ...], axis: int, combine: Combine) -> tuple[Array, ...]:
    """A tree over `axis`, which is left with extent 1; the order is that of the module's docstring."""
    def cut(a: int, b: int) -> tuple[Array, ...]:
        at = (slice(None),) * axis + (slice(a, b),)
        return tuple(p[at] for p in parts)
    extent = parts[0].shape[axis]
    while extent > 1:
        if extent % 2:
            head, last = combine(cut(0, 1), cut(extent - 1, extent)), extent - 1
            parts = tuple(np.concatenate([h, r], axis=axis) for h, r in zip(head, cut(1, last), strict=True))
            extent = last
        parts = combine(cut(0, extent // 2), cut(extent // 2, extent))
        extent //= 2
    return parts


def _reduce(m: Machine, e: Call, f: Frame) -> Val | Values:
    options, values = dict(e.attrs), _operands(m, e, f)
    axis, keep, op = int(options["axis"]) + 1, bool(options.get("keep")), str(options.get("op", ""))
    if op in ("argmax", "argmin"):
        return _arg(op, values[0], axis, keep)
    parts = (values[0].data,) if len(values) == 1 else tuple(np.broadcast_arrays(*aligned(*values)))
    if parts[0].shape[axis] == 0:
        raise error("KIR-I002", "a reduction over an axis of extent 0 has no value")
    if len(parts) == 1 and "combine" not in options:
        op, dtype = op or "sum", dtype_of(e.args[0].type)
        whole = _at_once(op, dtype, parts[0], axis)
        reduced: tuple[Array, ...] = (_tree(op, dtype, parts[0], axis) if whole is None else whole,)
    else:
        reduced = halve(parts, axis, _combiner(m, e, f))
    ok = defined(*values)
    if ok is not None:
        ok = ok.all(axis=axis, keepdims=True)
    out = tuple(Val(r, ok) for r in reduced)
    return out if keep else tuple(_mapped(v, lambda x: x.squeeze(axis)) for v in out)


def _scan(m: Machine, e: Call, f: Frame) -> Val | Values:
    options, values = dict(e.attrs), _operands(m, e, f)
    axis, reverse = int(options.get("axis", 0)) + 1, bool(options.get("reverse"))
    whole = _running(str(options.get("op", "sum")), dtype_of(e.args[0].type), values[0].data, axis, reverse) if len(values) == 1 and (
        "combine" not in options) else None
    if whole is not None:
        return (Val(whole, _before(values[0].ok, axis, reverse)),)
    parts, combine = tuple(np.broadcast_arrays(*aligned(*values))), _combiner(m, e, f)
    order = range(parts[0].shape[axis])
    steps: list[tuple[Array, ...]] = []
    for i in reversed(order) if reverse else order:
        at = (slice(None),) * axis + (slice(i, i + 1),)
        here = tuple(p[at] for p in parts)
        steps.append(combine(steps[-1], here) if steps else here)
    if reverse:
        steps.reverse()
    ok = _before(defined(*values), axis, reverse)
    return tuple(Val(np.concatenate([s[i] for s in steps], axis=axis), ok) for i in range(len(parts)))


def _before(ok: Mask, axis: int, reverse: bool) -> Mask:
    """Which elements of a scan are defined: those before which all are."""
    return ok if ok is None else _along(np.logical_and, ok, axis, reverse)


def _running(op: str, dtype: DType, x: Array, axis: int, reverse: bool) -> Array | None:
    """A scan that NumPy does as one, element after element in the storage of `dtype`; None where there is none."""
    if x.shape[axis] and op in _WHOLE and ((dtype.is_integer and dtype.bits >= 8) or (op in ("sum", "prod") and dtype.is_float and not number.narrow(dtype))):
        return _along(_WHOLE[op], x, axis, reverse)
    return None


def _along(do: np.ufunc, x: Array, axis: int, reverse: bool) -> Array:
    """`do` from each element to the next along an axis, from its end where `reverse`."""
    back = np.flip(x, axis) if reverse else x
    made: Array = do.accumulate(back, axis=axis, dtype=x.dtype)
    return np.flip(made, axis) if reverse else made


def _sort(m: Machine, e: Call, f: Frame) -> Val:
    options, v = dict(e.attrs), _first(m, e, f)
    axis = int(options.get("axis", v.data.ndim - 2)) + 1
    key = v.data.astype(np.float64) if v.data.dtype.kind not in "iubf" else v.data
    order = np.argsort(key, axis=axis, kind="stable")
    out = np.take_along_axis(v.data, order, axis)
    ok = None if v.ok is None else np.broadcast_to(v.ok.all(axis=axis, keepdims=True), out.shape)
    return Val(np.flip(out, axis) if options.get("descending") else out, ok)


def _gather(m: Machine, e: Call, f: Frame) -> Val:
    x, index = _operands(m, e, f)
    axis = int(dict(e.attrs).get("axis", 0)) + 1
    m.must_be_defined(index, f, "an index")
    lanes = max(x.data.shape[0], index.data.shape[0])
    at = np.broadcast_to(index.data, (lanes, *index.tile)).astype(np.int64)
    m.must_hold(at, x.data.shape[axis], f, "gather")
    at = np.clip(at, 0, x.data.shape[axis] - 1)
    source = np.broadcast_to(x.data, (lanes, *x.tile))
    ok = None if x.ok is None else np.take_along_axis(np.broadcast_to(x.ok, source.shape), at, axis)
    return Val(np.take_along_axis(source, at, axis), ok)


def _pick(m: Machine, e: Call, f: Frame) -> Val:
    x, *index = _operands(m, e, f)
    for i, (v, d) in enumerate(zip(index, x.tile, strict=True)):
        m.must_be_defined(v, f, "an index")
        m.must_hold(v.data, d, f, f"pick, index {i}")
    at = [np.clip(a.astype(np.int64), 0, d - 1) for a, d in zip(aligned(*index), x.tile, strict=True)]
    lanes = max([x.data.shape[0], *(a.shape[0] for a in at)])
    lane = np.arange(lanes if x.data.shape[0] > 1 else 1).reshape((-1,) + (1,) * (at[0].ndim - 1))
    where = (np.zeros_like(lane) if x.data.shape[0] == 1 else lane, *at)
    return Val(x.data[where], None if x.ok is None else np.broadcast_to(x.ok, x.data.shape)[where])


def _stacked(values: Values, axis: int) -> Val:
    parts = np.broadcast_arrays(*aligned(*values))
    ok = defined(*values)
    if ok is not None:
        full = [np.broadcast_to(lift(np.ones((1,), np.bool_) if v.ok is None else v.ok, parts[0].ndim - 1), parts[0].shape) for v in values]
        ok = np.stack(full, axis=axis)
    return Val(np.stack(parts, axis=axis), ok)


def _vec(m: Machine, e: Call, f: Frame) -> Val:
    return _stacked(_operands(m, e, f), 1)


def _join(m: Machine, e: Call, f: Frame) -> Val:
    values = _operands(m, e, f)
    return _stacked(values, max(v.data.ndim for v in values))


def _split(m: Machine, e: Call, f: Frame) -> Values:
    v = _first(m, e, f)
    return tuple(_mapped(v, lambda x, i=i: x[..., i]) for i in range(2))  # type: ignore[misc]  # i is bound at once


def _cat(m: Machine, e: Call, f: Frame) -> Val:
    values = _operands(m, e, f)
    axis, lanes = int(dict(e.attrs).get("axis", 0)) + 1, max(v.data.shape[0] for v in values)
    data = np.concatenate([np.broadcast_to(v.data, (lanes, *v.tile)) for v in values], axis=axis)
    if all(v.ok is None for v in values):
        return Val(data)
    oks = [np.broadcast_to(np.ones((1,) * v.data.ndim, np.bool_) if v.ok is None else v.ok, (lanes, *v.tile)) for v in values]
    return Val(data, np.concatenate(oks, axis=axis))


def _pack(m: Machine, e: Call, f: Frame) -> Val:
    v, to = _first(m, e, f), number.storage(dtype_of(e.type))
    own = dtype_of(e.args[0].type)
    if own.bits % 8:
        nibbles = np.ascontiguousarray(v.data).view(np.uint8).astype(np.uint64) & np.uint64(15)
        each = (nibbles << (np.arange(v.data.shape[-1], dtype=np.uint64) * np.uint64(own.bits))).sum(axis=-1, dtype=np.uint64)
        data = each.astype(np.dtype(f"u{to.itemsize}")).view(to)
    else:
        data = np.ascontiguousarray(v.data).view(to)[..., 0]
    return Val(data, None if v.ok is None else np.broadcast_to(v.ok, v.data.shape).all(axis=-1))


def _unpack(m: Machine, e: Call, f: Frame) -> Val:
    v, to = _first(m, e, f), dtype_of(e.type)
    own = dtype_of(e.args[0].type)
    if to.bits % 8:
        wide = np.ascontiguousarray(v.data).view(np.dtype(f"u{v.data.dtype.itemsize}"))[..., None].astype(np.uint64)
        low = wide >> (np.arange(own.bits // to.bits, dtype=np.uint64) * np.uint64(to.bits)) & np.uint64(15)
        data = number.wrap(low.astype(np.int8), to).astype(np.int8).view(number.storage(to)) if to.kind == "int" else \
            low.astype(np.uint8).view(number.storage(to))
    else:
        data = np.ascontiguousarray(v.data)[..., None].view(number.storage(to))
    ok = None if v.ok is None else np.broadcast_to(np.broadcast_to(v.ok, v.data.shape)[..., None], data.shape)
    return Val(data, ok)


def _histogram(m: Machine, e: Call, f: Frame) -> Val:
    v = _first(m, e, f)
    bins = int(dict(e.attrs).get("bins", int(str(shape_of(e.type)[0]))))
    m.must_hold(v.data, bins, f, "histogram")
    flat = v.data.reshape(v.data.shape[0], -1)
    out = np.stack([np.bincount(row[(row >= 0) & (row < bins)], minlength=bins)[:bins] for row in flat])
    return Val(out.astype(v.data.dtype), None if v.ok is None else np.broadcast_to(v.ok.reshape(len(flat), -1).all(1)[:, None], out.shape))


def _advice(m: Machine, e: Call, f: Frame) -> Val:
    return _first(m, e, f)


def _assertion(m: Machine, e: Call, f: Frame) -> Values:
    v = _first(m, e, f)
    m.must_be_true(v, f, e.fn)
    return ()


def _prefetch(m: Machine, e: Call, f: Frame) -> Values:
    if isinstance(e.args[0], Region):
        resolve(m, e.args[0], f)
    return ()


def _no_value(m: Machine, e: Call, f: Frame) -> Values:
    return ()


TILE: dict[str, Semantics] = {
    "iota": _iota, "expand": _expand, "broadcast": _broadcast, "reshape": _reshape, "trans": _trans, "reduce": _reduce, "scan": _scan,
    "sort": _sort, "gather": _gather, "pick": _pick, "vec": _vec, "join": _join, "split": _split, "cat": _cat, "histogram": _histogram,
    "pack": _pack, "unpack": _unpack,
    "multiple_of": _advice, "max_contiguous": _advice, "max_constancy": _advice, "assume": _assertion, "assertion": _assertion,
    "prefetch": _prefetch, "prefetch_descriptor": _no_value, "register_fence": _no_value}
