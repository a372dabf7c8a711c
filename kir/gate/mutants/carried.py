"""Rules about what one step of a computation hands to the next: rescales, carries, first values, accumulations."""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kir.gate.mutants.sites import Change, Site, is_float, loads, reads
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F16, F32, TileType, Type

PRIVATE = ("register", "fragment")


def rescale_dropped(site: Site) -> Iterator[Change]:
    """A carried value that is multiplied, or divided, by a factor is taken as it is: `acc * alpha + x` becomes `acc + x`."""
    match site.node:
        case n.Binary(op="mul" | "div", a=a, b=b) if is_float(site.node.type):
            for kept, factor in ((a, b), (b, a)) if site.node.op == "mul" else ((a, b),):
                if _is_carried(site, kept) and kept.type == site.node.type:
                    yield Change(f"the factor of the carried value is dropped from `{site.node.op}`", kept)
                    if isinstance(factor, n.Const):
                        break
        case n.Call(fn="fma", args=(n.Expr() as a, n.Expr() as b, n.Expr() as c)):
            for kept in (a, b):
                if _is_carried(site, kept):
                    yield Change("the factor of the carried value is dropped from `fma`", build.add(kept, c))
        case _:
            pass


def _is_carried(site: Site, e: n.Expr) -> bool:
    """Whether an expression is a carried value, perhaps converted or stretched."""
    match e:
        case n.Cast(x=x) | n.Call(fn="expand" | "broadcast", args=(n.Expr() as x, *_)):
            return _is_carried(site, x)
        case n.Load():
            return site.carried(e.at.buffer)
        case _:
            return False


def carry_dropped(site: Site) -> Iterator[Change]:
    """What was left before (by the last trip, in registers, or in shared memory) is not taken: its first value stands in its place, or zero."""
    if isinstance(site.node, n.Load) and not site.in_index and site.node.at.buffer.space in (*PRIVATE, "shared") and site.carried(site.node.at.buffer):
        dtype = site.node.at.buffer.dtype
        first = site.initial(site.node.at.buffer) or (site.node.other if isinstance(site.node.other, n.Const) else None)
        if first is None and site.node.at.buffer.space == "shared" and not isinstance(site.parent, (n.Mma, n.Copy)) and (dtype.is_float or dtype.is_integer):
            first = build.const(0, dtype)
        if first is not None and first.dtype == dtype:
            yield Change(f"`{site.node.at.buffer.name}` of the trip before is {first.value}", filled(first, site.node.type))


def initial_value(site: Site) -> Iterator[Change]:
    """A register, fragment or shared value begins with another constant: 0 with 1, minus infinity with 0 or with plus infinity."""
    match site.node:
        case n.Alloc(init=n.Const() as first) if site.node.buffer.space in (*PRIVATE, "shared"):
            for value in other_values(first):
                made = replace(site.node, init=build.const(value, first.dtype))
                yield Change(f"`{site.node.buffer.name}` begins with {value} instead of {first.value}", made)
        case n.Store(value=n.Const() as first) if site.node.at.buffer.space in (*PRIVATE, "shared"):
            for value in other_values(first):
                yield Change(f"`{site.node.at.buffer.name}` is set to {value} instead of {first.value}",
                             replace(site.node, value=build.const(value, first.dtype)))
        case _:
            pass


def other_values(first: n.Const) -> tuple[float | int, ...]:
    """Constants that may be mistaken for one."""
    if first.dtype.is_integer:
        return (int(first.value) + 1,)
    if not first.dtype.is_float:
        return ()
    value = float(first.value)
    if math.isinf(value):
        return (0.0, -value)
    return {0.0: (1.0,), 1.0: (0.0,)}.get(value, (0.0, value * 2))


def accumulate_assigned(site: Site) -> Iterator[Change]:
    """An accumulation becomes an assignment: `acc = acc + x` becomes `acc = x`, a product into an accumulator begins from zero each time."""
    match site.node:
        case n.Binary(op="add" | "sub" | "max" | "min" | "or" | "xor", a=a, b=b) if not site.in_index and isinstance(site.statement, (n.Store, n.Let)):
            target = site.statement.at.buffer if isinstance(site.statement, n.Store) else None
            for old, new in ((a, b), (b, a)):
                named = isinstance(old, n.Load) and old.at.buffer.space in PRIVATE and site.node.op in ("max", "min")
                mine = reads(old, target) if target is not None else named
                carried = any(site.carried(x.at.buffer) or not site.loops for x in loads(old))
                if mine and carried and new.type == site.node.type:
                    yield Change(f"what was there is left out of `{site.node.op}`", build.negate(new) if site.node.op == "sub" and old is a else new)
        case n.Mma() if site.loops and site.carried(site.node.acc.buffer):
            zero = build.const(0.0 if site.node.acc.buffer.dtype.is_float else 0, site.node.acc.buffer.dtype)
            yield Change(f"`{site.node.acc.buffer.name}` begins from zero each time", (n.Store(site.node.acc, zero), site.node))
        case n.Eval(call=n.Call(fn="atomic_add")):
            yield Change("`atomic_add` becomes `atomic_exch`", replace(site.node, call=replace(site.node.call, fn="atomic_exch")))
        case _:
            pass


def accumulate_narrowed(site: Site) -> Iterator[Change]:
    """A carried sum in f32 is rounded to f16 at each step."""
    match site.node:
        case n.Store(at=at, value=n.Expr() as value) if at.buffer.dtype == F32 and at.buffer.space in PRIVATE and site.carried(at.buffer):
            if not isinstance(value, n.Const):
                yield Change(f"`{site.node.at.buffer.name}` is rounded to f16 at each step",
                             replace(site.node, value=build.cast(build.cast(value, F16), F32)))
        case n.Mma() if site.node.acc.buffer.dtype == F32 and site.carried(site.node.acc.buffer) and not site.node.pending:
            rounded = build.cast(build.cast(n.Load(site.node.acc), F16), F32)
            yield Change(f"`{site.node.acc.buffer.name}` is rounded to f16 at each step", (site.node, n.Store(site.node.acc, rounded)))
        case _:
            pass


def update_lost(site: Site) -> Iterator[Change]:
    """A carried value keeps what it had: the statement in a loop that brings it up to date is left out."""
    if isinstance(site.node, n.Store) and site.node.at.buffer.space in PRIVATE and site.loops and site.carried(site.node.at.buffer):
        yield Change(f"`{site.node.at.buffer.name}` is not brought up to date", ())


def filled(value: n.Const, of: Type) -> n.Expr:
    """A constant of a type: a tile holds it in each element."""
    return build.broadcast(value, of) if isinstance(of, TileType) else value


RULES = (rescale_dropped, carry_dropped, initial_value, accumulate_assigned, accumulate_narrowed, update_lost)
