"""Expressions: strict evaluation of the pure part of the language over all lanes at once."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kir.base.diagnostic import did_you_mean, error
from kir.base.instructions import table
from kir.interp.calls.atomic import ATOMIC
from kir.interp.calls.elementwise import MATH
from kir.interp.calls.functions import call
from kir.interp.calls.matrix import MATRIX
from kir.interp.calls.sync import SYNC
from kir.interp.calls.tensor import TENSOR
from kir.interp.calls.tile import TILE
from kir.interp.calls.warp import WARP
from kir.interp.memory_access import load_store
from kir.interp.memory_access.regions import resolve
from kir.interp.numerics import number
from kir.interp.numerics.values import Val, aligned, defined, lift
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine, Semantics
from kir.interp.state.memory import Handle
from kir.ir.nodes import Address, Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from kir.ir.types import DType, dtype_of

CALLS: dict[str, Semantics] = {**MATH, **TILE, **ATOMIC, **WARP, **MATRIX, **SYNC, **TENSOR}
"""What each row of the instruction table does."""

POINTER_SHIFT = 40
"""A pointer is the number of its memory above this bit, and a byte offset below."""


def evaluate(m: Machine, e: Expr, f: Frame) -> Val:
    """The value of an expression with one result. Raises KirError KIR-I002 for one that has no meaning here."""
    out = _BY_TYPE[type(e)](m, e, f)
    return out if type(out) is Val else _alone(out)


def _alone(out: tuple[Val, ...]) -> Val:
    if len(out) != 1:
        raise error("KIR-I002", f"{len(out)} results where one value is needed")
    return out[0]


def evaluate_all(m: Machine, e: Expr, f: Frame) -> tuple[Val, ...]:
    """The results of an expression, one for each element of a tuple type."""
    out = _BY_TYPE[type(e)](m, e, f)
    return out if isinstance(out, tuple) else (out,)


def constant(value: int | float | bool, dtype: DType) -> Val:
    """A literal in every lane."""
    kind = number.storage(dtype)
    return Val(np.array([value]).astype(kind) if dtype.is_float else np.array([value], dtype=kind))


def _const(m: Machine, e: Const, f: Frame) -> Val:
    found = m.constants.get(id(e))
    if found is None:
        found = m.constants[id(e)] = constant(e.value, e.dtype)
        m.kept.append(e)
    return found


def _var(m: Machine, e: Var, f: Frame) -> Val:
    found = f.env.get(e.name)
    if type(found) is Val:
        return found
    found = f.find(e.name)
    if found is None:
        found = m.globals.get(e.name)
    if not isinstance(found, Val):
        raise error("KIR-I005", f"'{e.name}' has no value here")
    return found


def _unary(m: Machine, e: Unary, f: Frame) -> Val:
    x = evaluate(m, e.x, f)
    return Val(number.unary(e.op, dtype_of(e.x.type), x.data), x.ok)


def _fixed(m: Machine, e: Binary, f: Frame) -> Val:
    """What a loop leaves as it is, worked out when it is first needed."""
    known = m.fixed[id(e)]
    if known is not None and known[0] is f:
        return known[1]
    del m.fixed[id(e)]
    try:
        known = f, _binary(m, e, f)
    finally:
        m.fixed[id(e)] = known
    return known[1]


def _decides(v: Val, outcome: bool, rank: int) -> Any:
    """Where one side of a conjunction or disjunction is known and decides it, whatever the other is."""
    data = lift(v.data, rank - 1) == outcome
    return data if v.ok is None else data & lift(v.ok, rank - 1)


def _binary(m: Machine, e: Binary, f: Frame) -> Val:
    if m.fixed and id(e) in m.fixed:
        return _fixed(m, e, f)
    a, b = _BY_TYPE[type(e.a)](m, e.a, f), _BY_TYPE[type(e.b)](m, e.b, f)  # as `evaluate`, calling which would take most of the time
    if type(a) is not Val or type(b) is not Val:
        a, b = (v if type(v) is Val else _alone(v) for v in (a, b))
    kept = e.__dict__
    work: tuple[Callable[..., Any], DType] | None = kept.get("_operation")
    if work is None:
        work = kept["_operation"] = number.operation(e.op, dtype_of(e.a.type)), dtype_of(e.a.type)
    do, dtype = work
    x, y = a.data, b.data
    if x.ndim != y.ndim:  # an element alone lies at the right of anything
        if x.ndim < y.ndim and x.size != 1:
            x = lift(x, y.ndim - 1)
        elif y.ndim < x.ndim and y.size != 1:
            y = lift(y, x.ndim - 1)
    if not m.checking:
        return Val(do(x, y))
    out = Val(do(x, y), None if a.ok is None and b.ok is None else defined(a, b))
    if out.ok is not None and dtype.is_bool and e.op in ("and", "or"):
        out.ok = out.ok | _decides(a, e.op == "or", out.data.ndim) | _decides(b, e.op == "or", out.data.ndim)
    if dtype.is_float:
        m.counters.count_flops("fp" + str(dtype.bits), out.data.size)
    return out


def _select(m: Machine, e: Select, f: Frame) -> Val:
    values = evaluate(m, e.cond, f), evaluate(m, e.a, f), evaluate(m, e.b, f)
    cond, x, y = (v.data for v in values)
    if not cond.ndim == x.ndim == y.ndim:
        rank = max(cond.ndim, x.ndim, y.ndim) - 1
        cond, x, y = (d if d.size == 1 else lift(d, rank) for d in (cond, x, y))
    ok = None
    if m.checking and any(v.ok is not None for v in values):
        oks = [Val(np.ones((1,) * v.data.ndim, np.bool_) if v.ok is None else v.ok) for v in values]
        oc, oa, ob = aligned(*oks)
        ok = oc & np.where(cond, oa, ob)
    return Val(np.where(cond, x, y), ok)


def _cast(m: Machine, e: Cast, f: Frame) -> Val:
    x = evaluate(m, e.x, f)
    kept = e.__dict__
    do: Callable[[Any], Any] | None = kept.get("_operation")
    if do is None:
        do = kept["_operation"] = number.conversion(dtype_of(e.x.type), e.dtype, e.rounding)
    return Val(do(x.data), x.ok)


def _load(m: Machine, e: Load, f: Frame) -> Val:
    at = e.at
    if not m.checking and e.mask is None and not at.index:  # a register, mostly
        handle = f.env.get(at.buffer.name)
        if type(handle) is Handle and handle.memory.owner is f and handle.plain:
            return Val(handle.whole.copy())
    return load_store.load(m, e, f)


def _address(m: Machine, e: Address, f: Frame) -> Val:
    place = resolve(m, e.at, f)
    size = number.storage(place.dtype).itemsize
    return Val((place.index % max(1, place.memory.size // size)) * size + (m.number_of(place.memory) << POINTER_SHIFT))


def _call(m: Machine, e: Call, f: Frame) -> Val | tuple[Val, ...]:
    made = CALLS.get(e.fn)
    if made is not None and e.of is None:
        return made(m, e, f)
    if e.fn in m.functions:
        return call(m, e, f)
    if e.fn in table():
        raise error("KIR-I002", f"'{e.fn}' waits for others, so it stands alone as a statement")
    raise error("KIR-I002", f"there is no function '{e.fn}'", attempt=did_you_mean(e.fn, [*CALLS, *m.functions]))


_BY_TYPE: dict[type, Callable[[Any, Any, Frame], Any]] = {
    Const: _const, Var: _var, Unary: _unary, Binary: _binary, Select: _select, Cast: _cast, Load: _load, Address: _address, Call: _call}
