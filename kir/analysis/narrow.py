"""64-bit index arithmetic whose every intermediate value is proved to fit in 32 bits, done in 32 bits.

Surfaces widen early (`pid.to(tl.int64)`), and what is widened hides what it is: a tile number, a row. Where the facts bound the sizes, the
narrow form has the same values; where they do not, nothing changes.
"""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.facts import Facts
from kir.analysis.order import after
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, I64, DType, TileType, dtype_of
from kir.ir.visit import substitute, transform



def narrow(program: n.Program, kernel: n.Kernel) -> n.Kernel:
    """The kernel with 64-bit integer values in 32 bits where they are proved to fit."""
    known = Facts.at(replace(program, kernels=(kernel,)), (kernel.name,))
    return replace(kernel, body=_block(kernel.body, known))


def _block(block: n.Block, known: Facts) -> n.Block:
    out: list[n.Stmt] = []
    values: dict[str, n.Expr] = {}
    for s in block:
        made = _stmt(substitute(s, values), known)
        if isinstance(made, n.Let) and isinstance(s, n.Let) and made.value.type != s.value.type:
            name = made.names[0]
            values[name] = build.cast(n.Var(name, made.value.type), I64)
        out.append(made)
        known = after(known, made)
    return tuple(out)


def _stmt(s: n.Stmt, known: Facts) -> n.Stmt:
    match s:
        case n.Let() if len(s.names) == 1 and dtype_of_value(s.value) == I64:
            small = narrowed(_parts(s.value, known), known)
            return s if small is None else replace(s, value=small)
        case n.For():
            return replace(_own(s, known), body=_block(s.body, known.ranging(s.var, s.lo, s.hi, s.step)))
        case n.If():
            return replace(_own(s, known), then=_block(s.then, known.knowing(s.cond)), orelse=_block(s.orelse, known))
        case n.While():
            return replace(s, body=_block(s.body, known))
        case n.Roles():
            return replace(s, roles=tuple(replace(r, body=_block(r.body, known)) for r in s.roles))
        case n.Opaque():
            return s
        case _:
            made: n.Stmt = _parts(s, known)
            return made


def dtype_of_value(e: n.Expr) -> DType | None:
    """The dtype of a scalar or tile value, None of anything else."""
    return dtype_of(e.type) if isinstance(e.type, (DType, TileType)) else None


def _own(s: n.For | n.If, known: Facts) -> n.For | n.If:
    """The statement's own expressions narrowed, its blocks left alone."""
    if isinstance(s, n.If):
        return replace(s, cond=_parts(s.cond, known))
    return replace(s, lo=_parts(s.lo, known), hi=_parts(s.hi, known))


def _parts(item: n.Node, known: Facts) -> n.Node:
    """Comparisons and indices inside a node in 32 bits."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Binary() if new.op in n.COMPARISONS and dtype_of(new.a.type) == I64:
                a, b = narrowed(new.a, known), narrowed(new.b, known)
                return new if a is None or b is None else build.binary(new.op, a, b)
            case n.Cast() if dtype_of(new.x.type) == I64 and new.rounding == "rn":
                x = narrowed(new.x, known)
                return new if x is None else build.cast(x, new.dtype)
            case n.Region():
                return build.region(new.buffer, *(_index(i, known) for i in new.index))
            case _:
                return new
    return transform(item, leave)  # type: ignore[no-any-return]  # a node comes out where one went in


def _index(i: n.Expr | n.Span, known: Facts) -> n.Expr | n.Span:
    if isinstance(i, n.Span):
        lo = narrowed(i.lo, known) if dtype_of(i.lo.type) == I64 else None
        return i if lo is None else replace(i, lo=lo)
    if dtype_of(i.type) != I64:
        return i
    small = narrowed(i, known)
    return i if small is None else small


def _fits(e: n.Expr, known: Facts) -> bool:
    found = known.domain(e)
    low, high = I32.range
    return found.lo is not None and found.lo >= low and found.hi is not None and found.hi <= high


def narrowed(e: n.Expr, known: Facts) -> n.Expr | None:
    """`e`, an i64 expression, computed in i32: None unless every operation on the way is proved to fit."""
    if dtype_of(e.type) == I32:
        return e
    if dtype_of(e.type) != I64 or not _fits(e, known):
        return None
    match e:
        case n.Const():
            return build.const(int(e.value), I32)
        case n.Cast() if dtype_of(e.x.type) == I32:
            return e.x
        case n.Unary(op="neg"):
            x = narrowed(e.x, known)
            return None if x is None else build.negate(x)
        case n.Binary(op="add" | "sub" | "mul") if all(_fits(t, known) for t in _terms(e)):
            a, b = _operand(e.a, known), _operand(e.b, known)
            return None if a is None or b is None else build.binary(e.op, a, b)
        case n.Binary(op="floordiv" | "mod" | "tdiv" | "trem" | "ceildiv" | "min" | "max"):
            a, b = narrowed(e.a, known), narrowed(e.b, known)
            return None if a is None or b is None else build.binary(e.op, a, b)
        case n.Select():
            a, b = narrowed(e.a, known), narrowed(e.b, known)
            return None if a is None or b is None else build.select(e.cond, a, b)
        case n.Call(fn="expand" | "broadcast" | "trans" | "reshape" | "multiple_of" | "max_contiguous" | "max_constancy"):
            first = e.args[0]
            x = narrowed(first, known) if isinstance(first, n.Expr) else None
            return None if x is None else build.call(e.fn, x, *(_literal(a) for a in e.args[1:]), **dict(e.attrs))  # type: ignore[arg-type]  # attributes are no types
        case _:
            return None


def _literal(a: n.Expr | n.Region) -> n.Expr | n.Region:
    return build.const(int(a.value), I32) if isinstance(a, n.Const) and a.dtype == I64 else a


def _terms(e: n.Expr) -> list[n.Expr]:
    """The products of a sum, each without its sign."""
    own = dtype_of(e.type)
    return [build.from_polynomial({m: c}, own) for m, c in build.polynomial(e).items() if m and c != 0]


def _operand(e: n.Expr, known: Facts) -> n.Expr | None:
    """An operand of a sum that fits as a whole: in two's complement its own parts may wrap as long as they are ring operations."""
    match e:
        case n.Binary(op="add" | "sub" | "mul"):
            a, b = _operand(e.a, known), _operand(e.b, known)
            return None if a is None or b is None else build.binary(e.op, a, b)
        case n.Const():
            low, high = I32.range
            return build.const(int(e.value), I32) if low <= int(e.value) <= high else None
        case n.Cast() if dtype_of(e.x.type) == I32:
            return e.x
        case _:
            return narrowed(e, known)
