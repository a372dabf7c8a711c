"""How reductions and scans combine: built-in operations, the position of the best, and combine functions of the program."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kir.analysis.tiles.fragments import Digit, Spread
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import BOOL, F32, I32, DType, dtype_of
from kir.ir.visit import substitute
from kir.surface.lowering.registers.state import State, refuse

WARP = 32

Parts = tuple[n.Expr, ...]
Combine = Callable[[Parts, Parts], Parts]


@dataclass(frozen=True)
class Folding:
    """How a reduction or scan combines: `start` is what changes nothing (None: there is no such value), one of each result."""

    dtypes: tuple[DType, ...]
    combine: Combine
    start: Parts | None


def folding(state: State, c: n.Call) -> Folding:
    """What a reduce or scan combines with."""
    attrs = dict(c.attrs)
    args = [a for a in c.args if isinstance(a, n.Expr)]
    dtypes = tuple(dtype_of(a.type) for a in args)
    if "combine" in attrs:
        return Folding(dtypes, _inlined(state, str(attrs["combine"])), None)
    op, dtype = str(attrs.get("op", "sum")), dtypes[0]
    if op in ("argmax", "argmin"):
        return Folding((dtype, I32), _better(op, dtype), None)
    if op in ("max_nan", "min_nan"):
        if not dtype.is_float:
            return Folding(dtypes, lambda a, b: (build.binary(op[:3], a[0], b[0]),), None)
        return Folding(dtypes, lambda a, b: (build.call(op, a[0], b[0]),), None)
    name = {"sum": "add", "prod": "mul"}.get(op, op)
    return Folding(dtypes, lambda a, b: (build.binary(name, a[0], b[0]),), _neutral(op, dtype))


def _neutral(op: str, dtype: DType) -> Parts | None:
    if dtype.is_bool:
        return (n.Const(op == "and", BOOL),)
    if op in ("sum", "xor", "or"):
        return (const(0, dtype),)
    if op == "prod":
        return (const(1, dtype),)
    if op in ("max", "min"):
        if dtype.is_float:
            return (const(-math.inf if op == "max" else math.inf, dtype),) if dtype.name in ("f16", "bf16", "f32", "f64") else None
        low, high = dtype.range
        return (const(low if op == "max" else high, dtype),)
    return (const(-1, dtype),) if op == "and" else None


def _better(op: str, dtype: DType) -> Combine:
    """(value, index) pairs: the greater (or lesser) value, NaN above all, and of equal ones the lower index."""
    sign = "gt" if op == "argmax" else "lt"

    def combine(a: Parts, b: Parts) -> Parts:
        wins = build.compare(sign, b[0], a[0])
        same = build.compare("eq", b[0], a[0])
        if dtype.is_float:
            nan_a, nan_b = build.call("isnan", _wide(a[0])), build.call("isnan", _wide(b[0]))
            wins = build.logical_or(wins, build.logical_and(nan_b, build.invert(nan_a)))
            same = build.logical_or(same, build.logical_and(nan_a, nan_b))
        take = build.logical_or(wins, build.logical_and(same, build.compare("lt", b[1], a[1])))
        return build.select(take, b[0], a[0]), build.select(take, b[1], a[1])
    return combine


def _wide(e: n.Expr) -> n.Expr:
    return build.cast(e, F32) if dtype_of(e.type).bits < 32 else e


def _inlined(state: State, name: str) -> Combine:
    """The combine function of a program, its result as expressions of its arguments."""
    f = next((x for x in state.program.functions if x.name == name), None)
    if f is None or not all(isinstance(p, n.Var) for p in f.params):
        raise refuse(f"the combine function '{name}' takes more than values")
    params = [p.name for p in f.params if isinstance(p, n.Var)]
    lets: dict[str, n.Expr] = {}
    result: Parts = ()
    for s in f.body:
        if isinstance(s, n.Let) and len(s.names) == 1:
            lets[s.names[0]] = substitute(s.value, lets)
        elif isinstance(s, n.Jump) and s.kind == "return":
            result = tuple(substitute(v, lets) for v in s.values)
        else:
            raise refuse(f"the combine function '{name}' has branches or memory of its own", "values and a return")

    def combine(a: Parts, b: Parts) -> Parts:
        return tuple(substitute(e, dict(zip(params, (*a, *b), strict=True))) for e in result)
    return combine


def updated(state: State, into: Sequence[n.Region], values: Parts) -> n.Block:
    """Registers set to values that are all computed from the old ones."""
    if len(into) == 1:
        return (n.Store(into[0], values[0]),)
    names = [state.fresh("next") for _ in into]
    lets = tuple(n.Let((name,), v) for name, v in zip(names, values, strict=True))
    return (*lets, *(n.Store(r, n.Var(name, v.type)) for r, name, v in zip(into, names, values, strict=True)))


def is_power(x: int) -> bool:
    """Whether a positive number is a power of two."""
    return x & (x - 1) == 0


def warp_digits(s: Spread) -> list[tuple[int, Digit]]:
    """The digits of the thread with the number of threads below each, split where a warp ends."""
    out, below = [], 1
    for d in s.threads:
        inside = max(1, min(d.extent, WARP // below)) if below < WARP else d.extent
        if below < WARP < below * d.extent:
            if WARP % below or d.extent % inside:
                raise refuse("a layout whose digits do not end where a warp does")
            out.append((below, Digit(inside, d.axis, d.step)))
            out.append((below * inside, Digit(d.extent // inside, d.axis, d.step * inside)))
        else:
            out.append((below, d))
        below *= d.extent
    return out
