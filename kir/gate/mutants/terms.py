"""Rules about single terms of an expression: constants, signs, factors, the order of operands, roundings."""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kir.gate.mutants.sites import Change, Site, is_float, number
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F16, F32, dtype_of

SMALL = 1e-2
"""A positive constant below it that is added, or taken as a floor, is an epsilon."""
OTHER = {"max": "min", "min": "max", "max_nan": "min_nan", "min_nan": "max_nan", "argmax": "argmin", "argmin": "argmax", "sum": "max"}
FUNCTIONS = {"exp": "exp2", "exp2": "exp", "log": "log2", "log2": "log", "sin": "cos", "cos": "sin", "sqrt": "abs", "sqrt_approx": "abs", "floor": "ceil",
             "ceil": "floor", "tanh": "sigmoid", "sigmoid": "tanh", "exp2_approx": "exp", "rsqrt": "rcp", "rsqrt_approx": "rcp_approx"}
MATH = frozenset({"abs", "tanh", "sigmoid", "exp", "exp2", "log", "log2", "erf", "floor", "ceil", "log1p", "sqrt", "sqrt_approx", "rsqrt"})


def infinity_sign(site: Site) -> Iterator[Change]:
    """An infinity has the other sign."""
    if isinstance(site.node, n.Const) and site.node.dtype.is_float and math.isinf(site.node.value):
        yield Change(f"{site.node.value} becomes {-site.node.value}", build.const(-site.node.value, site.node.dtype))


def epsilon_changed(site: Site) -> Iterator[Change]:
    """A small constant, or a scalar of the caller, that is added or taken as a floor is dropped, or is 10 or 100 times as large."""
    if not (isinstance(site.node, n.Binary) and site.node.op in ("add", "max") and is_float(site.node.type)):
        return
    scalars = {p.name for p in site.program.params if p.role == "scalar"}
    for x, small in ((site.node.a, site.node.b), (site.node.b, site.node.a)):
        value = number(small)
        if (value is not None and 0 < value < SMALL) or (isinstance(small, n.Var) and small.name in scalars):
            if x.type == site.node.type:
                yield Change("the epsilon is dropped", x)
            for times in (10.0, 100.0):
                larger = build.mul(small, build.const(times, dtype_of(small.type)))
                yield Change(f"the epsilon is {times:g} times as large", build.binary(site.node.op, x, larger))


def operands_swapped(site: Site) -> Iterator[Change]:
    """The operands of a difference or a quotient are exchanged."""
    match site.node:
        case n.Binary(op="sub" | "div" | "shl" | "shr" as op, a=a, b=b) if (op in ("shl", "shr") or is_float(site.node.type)) and not site.in_index and a != b:
            yield Change(f"the operands of `{op}` are exchanged", build.binary(op, b, a))
        case n.Call(fn="pow" | "div_rz" | "div_approx" | "atan2" as fn, args=(a, b)):
            yield Change(f"the operands of `{fn}` are exchanged", replace(site.node, args=(b, a)))
        case _:
            pass


def choice_swapped(site: Site) -> Iterator[Change]:
    """The two values of a choice are exchanged."""
    if isinstance(site.node, n.Select) and site.node.a != site.node.b:
        yield Change("the two values are exchanged", build.select(site.node.cond, site.node.b, site.node.a))


def extreme_swapped(site: Site) -> Iterator[Change]:
    """A maximum becomes a minimum and the other way, a sum a maximum: between two values, along an axis, and of atomic operations."""
    match site.node:
        case n.Binary(op="max" | "min" as op) if not site.in_index:
            yield Change(f"`{op}` becomes `{OTHER[op]}`", build.binary(OTHER[op], site.node.a, site.node.b))
        case n.Call(fn="max_nan" | "min_nan" as fn):
            yield Change(f"`{fn}` becomes `{OTHER[fn]}`", replace(site.node, fn=OTHER[fn]))
        case n.Call(fn="reduce" | "scan" as fn, attrs=options) if (along := str(dict(options).get("op"))) in OTHER:
            yield Change(f"`{fn} {along}` becomes `{OTHER[along]}`", replace(site.node, attrs=n.attrs(**{**dict(options), "op": OTHER[along]})))
        case n.Call(fn="atomic_max" | "atomic_min" as fn):
            new = "atomic_min" if fn == "atomic_max" else "atomic_max"
            yield Change(f"`{fn}` becomes `{new}`", replace(site.node, fn=new))
        case _:
            pass


def factor_dropped(site: Site) -> Iterator[Change]:
    """A factor or divisor is left out."""
    match site.node:
        case n.Binary(op="mul" | "div" as op, a=a, b=b) if is_float(site.node.type) and not isinstance(a, n.Const):
            if a.type == site.node.type:
                yield Change(f"the second operand of `{op}` is left out", a)
            if op == "mul" and b.type == site.node.type and not isinstance(b, n.Const):
                yield Change("the first operand of `mul` is left out", b)
        case _:
            pass


def term_dropped(site: Site) -> Iterator[Change]:
    """A summand is left out, or has the other sign."""
    match site.node:
        case n.Binary(op="add" | "sub" as op, a=a, b=b) if is_float(site.node.type):
            if a.type == site.node.type:
                yield Change(f"the second operand of `{op}` is left out", a)
            yield Change(f"`{op}` becomes `{'sub' if op == 'add' else 'add'}`", build.binary("sub" if op == "add" else "add", a, b))
        case n.Unary(op="neg", x=x) if is_float(x.type):
            yield Change("the sign is left out", x)
        case _:
            pass


def scale_changed(site: Site) -> Iterator[Change]:
    """A constant factor is another: squared (1 / d for 1 / sqrt(d)), or larger by a 32nd."""
    value = number(site.node)
    if value is None or not isinstance(site.node, n.Const) or value in (0.0, 1.0, -1.0) or not math.isfinite(value):
        return
    if isinstance(site.parent, n.Binary) and site.parent.op in ("mul", "div"):
        yield Change(f"the factor {value:g} is squared", build.const(value * value, site.node.dtype))
        yield Change(f"the factor {value:g} is larger by 1/32", build.const(value * (1 + 2.0**-5), site.node.dtype))


def constant_changed(site: Site) -> Iterator[Change]:
    """A constant of a sum, a polynomial or a function is larger by a 64th."""
    value = number(site.node)
    if value is None or not isinstance(site.node, n.Const) or value == 0.0 or not math.isfinite(value):
        return
    added = isinstance(site.parent, n.Binary) and site.parent.op in ("add", "sub") and abs(value) >= SMALL
    if added or (isinstance(site.parent, n.Call) and site.parent.fn in ("fma", "pow", "fma_rounded")):
        yield Change(f"the constant {value:g} is larger by 1/64", build.const(value * (1 + 2.0**-6), site.node.dtype))


def function_changed(site: Site) -> Iterator[Change]:
    """A function is taken for a near one (another base, a root for its square), or left out."""
    match site.node:
        case n.Call(fn=fn, args=(n.Expr() as x,)) if fn in FUNCTIONS or fn in MATH:
            if fn in FUNCTIONS:
                yield Change(f"`{fn}` becomes `{FUNCTIONS[fn]}`", n.Call(FUNCTIONS[fn], (x,)))
            if fn in MATH:
                yield Change(f"`{fn}` is left out", x)
        case _:
            pass


def cast_moved(site: Site) -> Iterator[Change]:
    """Two narrow operands are combined before they are widened; or the operands of a quotient, sum or product are narrowed before the result is."""
    match site.node:
        case n.Binary(op="mul" | "add" | "sub" | "div" as op, a=n.Cast(x=x) as a, b=n.Cast(x=y) as b) if a.dtype == b.dtype == F32:
            if dtype_of(x.type) == dtype_of(y.type) and is_float(x.type):
                yield Change(f"`{op}` is done in {dtype_of(x.type).name}", build.cast(build.binary(op, x, y), F32))
        case n.Cast(x=n.Binary(op="mul" | "add" | "sub" | "div" as op, a=a, b=b), dtype=dtype) if dtype.is_float and dtype.bits < 32 and is_float(a.type):
            yield Change(f"`{op}` is done in {dtype.name}", build.binary(op, build.cast(a, dtype), build.cast(b, dtype)))
        case _:
            pass


def value_narrowed(site: Site) -> Iterator[Change]:
    """A named value of f32 is rounded to f16."""
    match site.node:
        case n.Let(names=(name,), value=n.Call(fn=fn)) if fn.startswith("atomic"):
            pass
        case n.Let(names=(name,), value=value) if is_float(value.type) and dtype_of(value.type) == F32:
            yield Change(f"`{name}` is rounded to f16", replace(site.node, value=build.cast(build.cast(value, F16), F32)))
        case _:
            pass


def direction_reversed(site: Site) -> Iterator[Change]:
    """A scan or a sort along an axis runs the other way."""
    match site.node:
        case n.Call(fn="scan" | "sort" as fn, attrs=options):
            word = "reverse" if fn == "scan" else "descending"
            given = dict(options)
            yield Change(f"`{fn}` runs the other way", replace(site.node, attrs=n.attrs(**{**given, word: not given.get(word, False)})))
        case _:
            pass


RULES = (infinity_sign, epsilon_changed, operands_swapped, choice_swapped, extreme_swapped, factor_dropped, term_dropped, scale_changed, constant_changed,
         function_changed, cast_moved, value_narrowed, direction_reversed)
