"""A loop whose iterations are distributed to the threads: thread t takes t, t + T, .. ."""
from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, substitute


def share(hi: n.Expr, t: n.Expr, threads: int) -> n.Expr:
    """How many of the numbers 0 up to `hi` thread `t` takes: ceildiv(hi - t, threads), with the step of a divided `hi` drawn in."""
    value = build.int_value(hi)
    dtype = dtype_of(hi.type)
    t = build.cast(t, dtype)
    if value is not None and value % threads == 0:
        return build.const(value // threads, dtype)
    if value is not None and value > threads:
        return build.add(build.ceildiv(build.sub(build.const(value % threads, dtype), t), threads), build.const(value // threads, dtype))
    if isinstance(hi, n.Binary) and hi.op == "ceildiv":
        step = build.int_value(hi.b)
        if step is not None and step > 0:
            return build.ceildiv(build.sub(hi.a, build.mul(t, step)), step * threads)
    return build.ceildiv(build.sub(hi, t), threads)


def shared_out(hi: n.Expr, t: n.Var, threads: int) -> n.Expr | None:
    """The inverse of `share`: the `hi` whose share is this, or None."""
    value = build.int_value(hi)
    dtype = dtype_of(hi.type)
    if value is not None:
        return build.const(value * threads, dtype)
    rounds = build.polynomial(hi).get((), 0)
    if rounds:
        hi = build.sub(hi, rounds)
        if isinstance(hi, n.Binary) and hi.op == "ceildiv" and build.int_value(hi.b) == threads:
            hi = build.ceildiv(build.add(hi.a, rounds * threads), threads)
            left = build.add(hi.a, build.cast(t, dtype)) if isinstance(hi, n.Binary) else hi
            return left if build.int_value(left) is not None else None
        return None
    if not (isinstance(hi, n.Binary) and hi.op == "ceildiv"):
        return None
    whole = build.int_value(hi.b)
    if whole is None or whole % threads:
        return None
    step = whole // threads
    out = build.ceildiv(build.add(hi.a, build.mul(build.cast(t, dtype), step)), step)
    return out if t.name not in names_read(out) and share(out, t, threads) == hi else None


def spread(loop: n.For, t: n.Var, threads: int) -> n.For:
    """The loop over thread `t`'s share of its iterations."""
    dtype = dtype_of(loop.var.type)
    at = build.add(build.mul(loop.var, threads), build.cast(t, dtype))
    body = substitute(replace(loop, hi=build.const(0, dtype)), {loop.var.name: at}).body
    return replace(loop, hi=share(loop.hi, t, threads), body=body)


def gathered(loop: n.For, t: n.Var, threads: int) -> n.For | None:
    """The loop whose share for thread `t` this one is; None when it is no share."""
    hi = shared_out(loop.hi, t, threads)
    if hi is None or not (build.is_const(loop.lo, 0) and build.is_const(loop.step, 1)):
        return None
    dtype = dtype_of(loop.var.type)
    whole = n.Var("%whole", dtype)
    if dtype != t.of:
        return None
    inside = replace(loop, hi=build.const(0, dtype))
    moved = substitute(inside, {t.name: build.sub(whole, build.mul(loop.var, threads))})
    if any(names_read(s) & {loop.var.name, t.name} for s in moved.body):
        return None
    body = substitute(moved, {whole.name: loop.var}).body
    made = replace(loop, hi=hi, body=body)
    return made if spread(made, t, threads) == loop else None
