"""Unsigned integers as signed ones: u32 and u64 arithmetic whose result provably lies in 0 .. 2^31 - 1 is computed in i32.

CUDA counts threads and blocks in unsigned numbers. Sums and products wrap alike in both, so only the result (and the operands of divisions
and comparisons) must be known to fit; the rest of the analyses then see one kind of index. What is below the extent of a tensor fits, too: an
extent is an i32. Of an access with a mask only the elements that the mask lets through are asked about: no other is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kir.analysis.facts import Facts
from kir.analysis.normal.rows import is_an_index
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, dtype_of, shape_of
from kir.ir.visit import substitute, transform, updated

HIGH = (1 << 31) - 1
EXACT = frozenset({"floordiv", "mod", "ceildiv", "tdiv", "trem", "min", "max", "shr", "and", "or", "xor"})


def signed(program: n.Program) -> n.Program:
    """The program with unsigned lets, loops, comparisons and indices in i32 where the facts prove that they fit."""
    return replace(program, kernels=tuple(updated(k, body=_block(k.body, Facts.at(program, (k.name,)), _flat(program, k)))
                                          for k in program.kernels))


Ends = tuple[n.Buffer, ...]


def _flat(program: n.Program, k: n.Kernel) -> Ends:
    """The tensors of one axis, and views as such, one for each extent that is a product of sizes: their indices are below 2^31."""
    views = tuple(s.buffer for s in k.body if isinstance(s, n.View) and s.buffer.space == "global")
    flat = {b.shape[0]: b for b in (*(p.of for p in program.params if isinstance(p.of, n.Buffer)), *views) if len(b.shape) == 1}
    return tuple(b for d, b in flat.items() if isinstance(d, n.Binary) and d.type == I32)


def as_signed(e: n.Expr, known: Facts, ends: Ends = ()) -> n.Expr | None:
    """A scalar of an unsigned dtype as the i32 of the same value; None where it may not fit. An index of one of the tensors `ends` does."""
    if not _is_unsigned(e):
        return None
    found = known.domain(known.expanded(e))
    if any(c > HIGH for c in build.polynomial(e).values()):  # `(t + 1) * 2 - 1`, which wraps on its way
        low = _low(e, known)
        found = known.domain(known.expanded(low))
        return low if found.lo is not None and found.lo >= 0 else None
    if found.lo is None or found.lo < 0:
        return None
    if found.hi is not None and found.hi <= HIGH:
        return _low(e, known)
    # The sum of the same terms over whole numbers: where it lies within an extent, the unsigned one is that sum.
    low = _low(e, known) if ends else e
    return low if any(is_an_index(low, end, known) for end in ends) else None


def _is_number(e: n.Expr) -> bool:
    return build.int_value(e) is not None


def _is_unsigned(e: n.Expr) -> bool:
    return isinstance(e.type, DType) and e.type.kind == "uint" and e.type.bits >= 32


def _low(e: n.Expr, known: Facts) -> n.Expr:
    """The low 32 bits of an integer as i32, through sums and products."""
    out: n.Expr = build.const(0)
    for monomial, c in build.polynomial(e).items():
        product: n.Expr = build.const(I32.wrap(c))
        for atom in monomial:
            product = build.mul(product, _atom(atom, known))
        out = build.add(out, product)
    return out


def _atom(e: n.Expr, known: Facts) -> n.Expr:
    if isinstance(e, n.Cast) and e.rounding == "rn" and isinstance(e.x.type, DType) and e.x.type.is_integer and e.x.type.bits >= 32:
        if e.x.type == I32:
            return e.x
        return _low(e.x, known)
    if isinstance(e, n.Binary) and e.op in EXACT:
        a, b = as_signed(e.a, known), as_signed(e.b, known)
        if a is not None and b is not None:
            return build.binary(e.op, a, b)
    return build.cast(e, I32)


def _block(body: n.Block, known: Facts, ends: Ends) -> n.Block:
    out: list[n.Stmt] = []
    changed: dict[str, n.Expr] = {}
    for s in body:
        if changed:
            s = substitute(s, changed)
        made = _statement(s, known, ends)
        match made:
            case n.Let(names=(name,)) if (value := as_signed(made.value, known, ends)) is not None:
                changed[name] = build.cast(n.Var(name, I32), dtype_of(made.value.type))
                made = replace(made, value=value)
            case n.For() if made.var.of != I32 and _is_unsigned(made.var):
                made = _loop(made, known, ends)
        match made:
            case n.For():
                made = updated(made, body=_block(made.body, known.ranging(made.var, made.lo, made.hi, made.step), ends))
            case n.If():
                then = _block(made.then, known.knowing(made.cond), ends)
                made = updated(made, then=then, orelse=_block(made.orelse, known.knowing(build.invert(made.cond)), ends))
            case n.While():
                made = updated(made, body=_block(made.body, known, ends))
            case n.Roles():
                made = updated(made, roles=tuple(updated(r, body=_block(r.body, known, ends)) for r in made.roles))
            case _:
                pass
        out.append(made)
        known = known.after((made,))
        if isinstance(made, n.If) and not made.orelse and made.then and isinstance(made.then[-1], n.Jump) and not shape_of(made.cond.type):
            known = known.knowing(build.invert(made.cond))  # who is still here has not left
    return tuple(out)


def _loop(s: n.For, known: Facts, ends: Ends) -> n.For:
    lo, hi, step = (as_signed(e, known, ends) for e in (s.lo, s.hi, s.step))
    if lo is None or hi is None or step is None:
        return s
    var = n.Var(s.var.name, I32)
    return replace(s, var=var, lo=lo, hi=hi, step=step, body=substitute_block(s.body, {s.var.name: build.cast(var, dtype_of(s.var.of))}))


def substitute_block(body: n.Block, values: dict[str, n.Expr]) -> n.Block:
    """A block with values for names."""
    return tuple(substitute(s, values) for s in body)


def _leaving(known: Facts, ends: Ends) -> Callable[[n.Node, n.Node], n.Node]:
    """What stands for an expression, its parts done."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Binary() if new.op in n.COMPARISONS and _is_unsigned(new.a):
                a, b = as_signed(new.a, known, ends), as_signed(new.b, known, ends)
                if a is not None and b is not None:
                    return build.binary(new.op, a, b)
                if new.op in ("eq", "ne") and isinstance(x := new.a, n.Cast) and x.rounding == "rn" and x.x.type == I32 and b is not None and _is_number(b):
                    return build.binary(new.op, x.x, b)  # the same bits, whatever number they are
            case n.Binary() if new.op in ("floordiv", "mod", "ceildiv") and _is_unsigned(new):
                a, b = as_signed(new.a, known, ends), as_signed(new.b, known, ends)
                if a is not None and b is not None:
                    return build.cast(build.binary(new.op, a, b), dtype_of(new.type))
            case n.Cast() if new.rounding == "rn" and _is_unsigned(new.x) and new.dtype != dtype_of(new.x.type):
                value = as_signed(new.x, known, ends)
                if value is not None:
                    return build.cast(value, new.dtype)
            case n.Region() if any(isinstance(i, n.Expr) and not shape_of(i.type) and _is_unsigned(i) for i in new.index):
                made = [as_signed(i, known, ends) if isinstance(i, n.Expr) else None for i in new.index]
                return n.Region(new.buffer, tuple(i if m is None else m for i, m in zip(new.index, made, strict=True)))
            case n.Load() if new.mask is not None and not shape_of(new.mask.type):
                return replace(new, at=transform(new.at, _leaving(known.knowing(new.mask), ends)))
        return new
    return leave


def _statement(s: n.Stmt, known: Facts, ends: Ends) -> Any:
    """A statement with the expressions of its own (not of blocks below it) in i32."""
    leave = _leaving(known, ends)
    match s:
        case n.For():
            head = transform(replace(s, body=()), leave)
            return updated(s, **{name: getattr(head, name) for name in s.tree_fields if name != "body"})
        case n.If():
            return updated(s, cond=transform(s.cond, leave))
        case n.While():
            return updated(s, cond=transform(s.cond, leave))
        case n.Roles() | n.Opaque():
            return s
        case n.Store(mask=n.Expr() as mask) if not shape_of(mask.type):
            return replace(transform(s, leave), at=transform(s.at, _leaving(known.knowing(mask), ends)))
        case n.Copy(mask=n.Expr() as mask) if not shape_of(mask.type):
            return replace(transform(s, leave), dst=transform(s.dst, _leaving(known.knowing(mask), ends)))
        case _:
            return transform(s, leave)
