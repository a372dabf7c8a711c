"""Values that two spellings of one thread's program write otherwise, in the form that they share. Every step keeps the value."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from kir.base.diagnostic import KirError
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.printer import expr_text
from kir.ir.rebuild.promote import pure
from kir.ir.types import I32, DType, TileType, dtype_of, shape_of
from kir.ir.visit import walk


def of_value(old: n.Node, new: n.Node) -> n.Node:
    """A node, what is below it in that form already: conversions of conversions are one, integers are narrowed term by term, parts of a vector are named as
    parts of what it is made of."""
    match new:
        case n.Load(mask=n.Const(value=False), other=n.Expr() as other) if other.type == new.type:
            return other
        case n.Binary(b=n.Const() as c) if new.op in n.COMPARISONS and (own := _exactly_widened(new.a, c.value)) is not None:
            return build.binary(new.op, own, build.const(c.value, dtype_of(own.type)))
        case n.Binary() if (bare := _of_one_number(new)) is not None:
            return bare
        case n.Cast():
            return _cast(new)
        case n.Binary(op="and", type=t) if dtype_of(t).is_bool:
            return _each_once(new)
        case n.Call(of=None) if isinstance(new.type, TileType) and any(_is_repeated(a) for a in new.args) and table()[new.fn].level == "element" and any(
                not _is_repeated(a) and isinstance(a, n.Expr) and a.type == new.type for a in new.args):
            return replace(new, args=tuple(a.args[0] if _is_repeated(a) and isinstance(a, n.Call) else a for a in new.args))
        case n.Call(of=None, fn="vec") if _repeated(new):
            return build.call("broadcast", new.args[0], build.const(len(new.args)))
        case n.Call(of=None, fn="vec"):
            return _all_of(new.args) or _each_alike(new) or new
        case n.Call(of=None, fn="pick", args=(n.Call(of=None, fn="broadcast", args=(n.Expr(type=DType()) as one, *_)), n.Expr() as at)):
            return one if not shape_of(at.type) else build.call("broadcast", one, *(build.const(d) for d in shape_of(at.type) if isinstance(d, int)))
        case n.Call(of=None, fn="pick", args=(n.Expr() as held, n.Const() as at)):
            return _part(held, at) or new
    return new


def _of_one_number(e: n.Binary) -> n.Expr | None:
    """An operation of a vector and a number that is repeated for each of its elements, with the number itself."""
    for x, other in ((e.a, e.b), (e.b, e.a)):
        one = x.args[0] if isinstance(x, n.Call) and x.of is None and x.fn == "broadcast" and isinstance(other.type, TileType) else None
        if isinstance(one, n.Expr) and not shape_of(one.type) and shape_of(x.type) == shape_of(other.type) and not (
                isinstance(other, n.Call) and other.fn == "broadcast"):
            return replace(e, a=one) if x is e.a else replace(e, b=one)
    return None


def _is_repeated(e: n.Expr | n.Region) -> bool:
    """Whether it is one number for each element of a vector."""
    return isinstance(e, n.Call) and e.of is None and e.fn == "broadcast" and isinstance(e.args[0], n.Expr) and not shape_of(e.args[0].type) and (
        len(shape_of(e.type)) == 1)


def _repeated(e: n.Call) -> bool:
    """Whether all elements that a vector is made of are one number, which is the same however often it is worked out."""
    first = e.args[0]
    plain = isinstance(first, n.Expr) and not shape_of(first.type) and pure(first) and not any(isinstance(x, n.Call) and x.of is not None for x in walk(first))
    return plain and all(a == first for a in e.args)


def _cast(e: n.Cast) -> n.Expr:
    x = e.x
    own = dtype_of(x.type)
    if e.rounding == "sat" and isinstance(e.dtype, DType) and e.dtype.is_integer and e.dtype.bits < 32 and own.name in ("i32", "u32", "f32", "f16", "bf16"):
        return _converted(_within(x if own.is_integer else _converted(x, I32), *e.dtype.range), e.dtype)
    if e.rounding == "bits" and isinstance(x, n.Cast) and x.rounding == "bits" and dtype_of(x.x.type) == e.dtype:
        return x.x
    if isinstance(x, n.Call) and x.fn == "broadcast" and x.of is None and isinstance(x.args[0], n.Expr) and (
            dtype_of(x.type).bits == dtype_of(e.type).bits or e.rounding != "bits"):
        return replace(x, args=(replace(e, x=x.args[0]), *x.args[1:]))
    if e.rounding in ("rd", "ru", "rz") and isinstance(x, n.Cast) and x.rounding == "rn" and own.name == "f32" and dtype_of(x.x.type).name in ("f16", "bf16"):
        return replace(e, x=x.x)
    if not isinstance(e.dtype, DType) or not (e.rounding == "rn" or (e.rounding == "bits" and e.dtype.is_integer and dtype_of(x.type).is_integer)):
        return e
    return _converted(x, e.dtype)


def _within(x: n.Expr, lo: int, hi: int) -> n.Expr:
    """An integer of 32 bits held to a range."""
    own = dtype_of(x.type)
    most = build.binary("min", x, build.const(hi, own))
    return most if own.kind == "uint" else build.binary("max", most, build.const(lo, own))


def _each_once(e: n.Binary) -> n.Expr:
    """Conditions that hold together, each named once, in one order."""
    terms: list[n.Expr] = []
    rest: list[n.Expr] = [e]
    while rest:
        x = rest.pop()
        if isinstance(x, n.Binary) and x.op == "and":
            rest += [x.b, x.a]
        elif x not in terms:
            terms.append(x)
    first, *others = sorted(terms, key=expr_text)
    return reduce(build.logical_and, others, first)


def _part(held: n.Expr, at: n.Const) -> n.Expr | None:
    """An element of a vector as an element of what the vector is loaded from, or made of."""
    if isinstance(held, n.Call) and held.fn == "vec" and held.of is None and pure(held) and 0 <= at.value < len(held.args):
        made = held.args[int(at.value)]
        return made if isinstance(made, n.Expr) else None
    if isinstance(held, n.Load) and held.mask is None and not held.clip and [i.step for i in held.at.index if isinstance(i, n.Span)] == [1] and (
            len(shape_of(held.type)) == 1):
        return replace(held, at=n.Region(held.at.buffer, tuple(
            build.add(i.lo, build.const(at.value, dtype_of(i.lo.type))) if isinstance(i, n.Span) else i for i in held.at.index)))
    if isinstance(held, n.Load) and held == n.Load(n.Region(held.at.buffer)) and held.at.buffer.space == "register" and len(held.at.buffer.shape) == 1:
        return n.Load(n.Region(held.at.buffer, (at,)))
    if isinstance(held, n.Cast) and shape_of(held.x.type) == shape_of(held.type):
        return _cast(replace(held, x=_part(held.x, at) or build.call("pick", held.x, at)))
    return None


_RING = {"add": build.add, "sub": build.sub, "mul": build.mul}


def _exactly_widened(e: n.Expr, beside: int | float | bool) -> n.Expr | None:
    """The integer of which a wider one is made, where its dtype holds `beside` too: they compare alike."""
    if not isinstance(e, n.Cast) or e.rounding != "rn" or isinstance(beside, (bool, float)) or not isinstance(e.dtype, DType):
        return None
    own, to = dtype_of(e.x.type), e.dtype
    if not (own.kind in ("int", "uint") and to.kind in ("int", "uint")) or own.is_symbolic or own.bits >= to.bits or (own.kind == "int" and to.kind == "uint"):
        return None
    lo, hi = (0, (1 << own.bits) - 1) if own.kind == "uint" else (-(1 << own.bits - 1), (1 << own.bits - 1) - 1)
    return e.x if lo <= beside <= hi else None


def _all_of(parts: Sequence[n.Expr | n.Region]) -> n.Expr | None:
    """The vector whose elements these are, one after the other; the piece of one, where they are not all of them."""
    first = parts[0]
    if isinstance(first, n.Load) and len(first.at.index) == 1:
        b = first.at.buffer
        whole = b.space == "register" and [*map(int_value, b.shape)] == [len(parts)] and all(
            x == n.Load(n.Region(b, (build.const(k),))) for k, x in enumerate(parts))
        return n.Load(n.Region(b)) if whole else None
    held = first.args[0] if isinstance(first, n.Call) and first.fn == "pick" and first.of is None else None
    lo = int_value(first.args[1]) if isinstance(first, n.Call) and isinstance(held, n.Expr) and isinstance(first.args[1], n.Expr) else None
    if not isinstance(held, n.Expr) or lo is None or len(shape_of(held.type)) != 1 or any(
            x != build.call("pick", held, build.const(k)) for k, x in enumerate(parts, lo)):
        return None
    if shape_of(held.type) == (len(parts),):
        return held
    return build.call("pick", held, build.add(build.iota(len(parts)), lo) if lo else build.iota(len(parts))) if len(parts) > 1 else None


def _each_alike(e: n.Call) -> n.Expr | None:
    """The vector whose elements are worked out alike, as one value; None for another."""
    try:
        made = _lifted([a for a in e.args if isinstance(a, n.Expr)])
    except KirError:
        return None
    return made if made is not None and made.type == e.type else None


def _lifted(parts: Sequence[n.Expr]) -> n.Expr | None:
    """What computes these numbers as the elements of a vector, or the one number that all of them are."""
    first = parts[0]
    if isinstance(first.type, TileType) or not pure(first):
        return None
    if all(x == first for x in parts):
        return first
    if (whole := _all_of(parts)) is not None:
        return whole
    match first:
        case n.Load() if len(first.at.index) == 1 and first.mask is None and not first.clip and isinstance(at := first.at.index[0], n.Expr):
            run = all(isinstance(x, n.Load) and x == replace(first, at=n.Region(first.at.buffer, (build.add(at, k),))) for k, x in enumerate(parts))
            return replace(first, at=n.Region(first.at.buffer, (build.span(at, len(parts)),))) if run else None
        case n.Cast() if all(isinstance(x, n.Cast) and (x.dtype, x.rounding) == (first.dtype, first.rounding) for x in parts):
            inner = _lifted([x.x for x in parts if isinstance(x, n.Cast)])
            return None if inner is None else build.cast(inner, first.dtype, first.rounding)
        case n.Binary() if all(isinstance(x, n.Binary) and x.op == first.op for x in parts):
            a, b = (_lifted([getattr(x, side) for x in parts]) for side in ("a", "b"))
            return None if a is None or b is None else n.Binary(first.op, a, b)
        case n.Unary() if all(isinstance(x, n.Unary) and x.op == first.op for x in parts):
            inner = _lifted([x.x for x in parts if isinstance(x, n.Unary)])
            return None if inner is None else replace(first, x=inner)
        case n.Call(of=None) if table()[first.fn].level == "element" and first.fn not in ("vec", "cat", "pick") and all(
                isinstance(x, n.Call) and (x.fn, x.attrs, len(x.args)) == (first.fn, first.attrs, len(first.args)) for x in parts):
            args = [_lifted([y for y in column if isinstance(y, n.Expr)]) for column in zip(*(x.args for x in parts if isinstance(x, n.Call)), strict=True)]
            return None if None in args or not args else replace(first, args=tuple(a for a in args if a is not None))
    return None


def _converted(x: n.Expr, to: DType) -> n.Expr:
    own = dtype_of(x.type)
    if own.is_symbolic or to.is_symbolic:
        return build.cast(x, to)
    if own.is_integer and to.is_integer and to.bits <= own.bits:
        if isinstance(x, n.Cast) and x.rounding == "rn" and (inner := dtype_of(x.x.type)).is_integer and not inner.is_symbolic:
            return _converted(x.x, to) if inner != to else x.x
        if isinstance(x, n.Binary) and x.op in _RING and not isinstance(x.type, TileType):
            return _RING[x.op](_converted(x.a, to), _converted(x.b, to))
        if isinstance(x, n.Unary) and x.op == "neg" and not isinstance(x.type, TileType):
            return build.negate(_converted(x.x, to))
    of = dtype_of(x.x.type) if isinstance(x, n.Cast) and x.rounding == "rn" and own.name == "f32" else None
    exact = of is not None and not of.is_symbolic and (of.is_float or of.is_integer or of.is_bool) and of.bits <= 16 and of != to
    wider = exact and of is not None and (to.is_float or (of.is_float and to.is_integer))
    return build.cast(x.x if wider and isinstance(x, n.Cast) else x, to)
