"""Rules about where a computation begins and ends, and which element it takes: bounds, masks, trips, indices."""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kir.gate.mutants.sites import Change, Site, is_float, is_whole, trips
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, dtype_of, shape_of

LOOSER = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}
NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "max_nan": -math.inf, "min_nan": math.inf}


def edge_moved(site: Site) -> Iterator[Change]:
    """A comparison takes its edge in, or leaves it out: `<` for `<=` and the other way."""
    if isinstance(site.node, n.Binary) and site.node.op in LOOSER:
        new = LOOSER[site.node.op]
        yield Change(f"`{site.node.op}` becomes `{new}`", build.binary(new, site.node.a, site.node.b))


def bound_moved(site: Site) -> Iterator[Change]:
    """The bound of a comparison of integers is one less."""
    if isinstance(site.node, n.Binary) and site.node.op in LOOSER and is_whole(site.node.b.type):
        yield Change("the bound is one less", build.binary(site.node.op, site.node.a, build.sub(site.node.b, 1)))


def condition_dropped(site: Site) -> Iterator[Change]:
    """A choice between two values always takes the first; a branch is always taken; one part of a condition is left out."""
    match site.node:
        case n.Select(a=a) if a.type == site.node.type:
            yield Change("the first value is always taken", a)
        case n.If(orelse=()) if not site.node.static:
            yield Change("the branch is always taken", site.node.then)
        case n.Binary(op="and", a=a, b=b) if not is_whole(site.node.type):
            for kept in (a, b):
                if kept.type == site.node.type:
                    yield Change("one part of the condition is left out", kept)
        case _:
            pass


def mask_dropped(site: Site) -> Iterator[Change]:
    """A read or write under a mask is made everywhere."""
    if isinstance(site.node, (n.Load, n.Store)) and site.node.mask is not None:
        made = replace(site.node, mask=None)
        yield Change("the mask is left out", replace(made, other=None) if isinstance(made, n.Load) and not made.clip else made)


def fill_changed(site: Site) -> Iterator[Change]:
    """What stands where a mask is false is another constant: 0 for minus infinity, 1 or minus infinity for 0."""
    match site.node:
        case n.Load(other=n.Const() as fill):
            for value in _fills(fill):
                yield Change(f"the fill is {value} instead of {fill.value}", replace(site.node, other=build.const(value, fill.dtype)))
        case n.Select(cond=cond, a=a, b=b):
            if isinstance(b, n.Const):
                for value in _fills(b):
                    yield Change(f"the fill is {value} instead of {b.value}", build.select(cond, a, build.const(value, b.dtype)))
            elif isinstance(a, n.Const):
                for value in _fills(a):
                    yield Change(f"the fill is {value} instead of {a.value}", build.select(cond, build.const(value, a.dtype), b))
        case _:
            pass


def _fills(fill: n.Const) -> tuple[float | int, ...]:
    if fill.dtype.is_integer:
        return (int(fill.value) + 1,)
    if not fill.dtype.is_float:
        return ()
    return {0.0: (1.0, -math.inf), 1.0: (0.0,), -math.inf: (0.0,), math.inf: (0.0,)}.get(float(fill.value), (0.0,))


def loop_ends_early(site: Site) -> Iterator[Change]:
    """A loop makes one trip less: it ends a step before its end."""
    if isinstance(site.node, n.For) and site.node.kind in ("serial", "unroll", "pipelined") and trips(site.node) != 1:
        yield Change(f"`{site.node.var.name}` ends one trip early", replace(site.node, hi=build.sub(site.node.hi, site.node.step)))


def loop_begins_late(site: Site) -> Iterator[Change]:
    """A loop makes one trip less: it begins a step after its beginning."""
    if isinstance(site.node, n.For) and site.node.kind in ("serial", "unroll", "pipelined") and trips(site.node) != 1:
        yield Change(f"`{site.node.var.name}` begins one trip late", replace(site.node, lo=build.add(site.node.lo, site.node.step)))


def reduction_short(site: Site) -> Iterator[Change]:
    """A reduction of a tile leaves out the last element along its axis."""
    match site.node:
        case n.Call(fn="reduce" | "scan", args=(n.Expr() as x, *_), attrs=options):
            of, given = x.type, dict(options)
            op, axis = given.get("op"), given.get("axis")
            if isinstance(of, TileType) and op in NEUTRAL and isinstance(axis, int) and is_float(of):
                extent = shape_of(of)[axis]
                if isinstance(extent, int) and extent > 1:
                    inside: n.Expr = build.compare("lt", build.iota(extent), extent - 1)
                    for other in range(len(shape_of(of))):
                        if other != axis:
                            inside = build.expand(inside, other)
                    kept = build.select(inside, x, build.const(NEUTRAL[str(op)], of.dtype))
                    yield Change(f"the last of {extent} is left out of `{site.node.fn} {op}`", replace(site.node, args=(kept, *site.node.args[1:])))
        case _:
            pass


def stage_shifted(site: Site) -> Iterator[Change]:
    """The stage of a ring, `k % stages`, that is read or written is the next one."""
    if isinstance(site.node, n.Binary) and site.node.op == "mod" and isinstance(site.node.b, n.Const) and site.in_index and not _of_barrier(site):
        place = next(x for x in reversed(site.parents) if isinstance(x, n.Region))
        if place.buffer.space != "global":
            yield Change(f"the next stage of `{place.buffer.name}`", build.mod(build.add(site.node.a, 1), site.node.b))


def _of_barrier(site: Site) -> bool:
    return any(isinstance(x, n.Region) and not (x.buffer.dtype.is_float or x.buffer.dtype.is_integer) for x in site.parents)


def index_shifted(site: Site) -> Iterator[Change]:
    """One index of a read is one more (the last becomes the first, so that it stays in the buffer)."""
    if isinstance(site.node, n.Load) and not site.in_index:
        place = site.node.at
        for i, at in enumerate(place.index):
            if isinstance(at, n.Expr) and not isinstance(at, n.Const) and not isinstance(at.type, TileType) and is_whole(at.type):
                index = list(place.index)
                index[i] = build.mod(build.add(at, 1), _like(place.buffer.shape[i], at))
                yield Change(f"axis {i} of `{place.buffer.name}` is one on", replace(site.node, at=build.region(place.buffer, *index)))


def index_transposed(site: Site) -> Iterator[Change]:
    """The last two indices of a read are exchanged (kept inside the buffer), or a transposition of a square tile is left out."""
    match site.node:
        case n.Load(at=n.Region(index=(*rest, n.Expr() as i, n.Expr() as j))) if not site.in_index:
            plain = all(not isinstance(x.type, TileType) and is_whole(x.type) for x in (i, j))
            if plain and i != j and i.type == j.type:
                extents = site.node.at.buffer.shape[-2:]
                new = [build.minimum(x, build.sub(_like(d, x), 1)) for x, d in zip((j, i), extents, strict=True)]
                yield Change(f"the last indices of `{site.node.at.buffer.name}` are exchanged", replace(
                    site.node, at=build.region(site.node.at.buffer, *rest, *new)))
        case n.Call(fn="trans", args=(n.Expr() as x, *_)) if x.type == site.node.type:
            yield Change("the transposition is left out", x)
        case _:
            pass


def _like(extent: n.Expr, index: n.Expr) -> n.Expr:
    """An extent in the dtype of an index."""
    return extent if extent.type == index.type else build.cast(extent, dtype_of(index.type))


def neighbor_taken(site: Site) -> Iterator[Change]:
    """A CTA reads what belongs to the next one along an axis of the grid."""
    if isinstance(site.node, n.Var) and site.in_index and site.kernel is not None and any(isinstance(x, n.Load) for x in site.parents):
        axis = next((a for a in site.kernel.grid if a.name == site.node.name), None)
        place = next(x for x in site.parents if isinstance(x, n.Region))
        if axis is not None and place.buffer.space == "global":
            yield Change(f"`{place.buffer.name}` of the next `{axis.name}`", build.mod(build.add(site.node, 1), axis.extent))


RULES = (edge_moved, bound_moved, condition_dropped, mask_dropped, fill_changed, loop_ends_early, loop_begins_late, reduction_short, stage_shifted,
         index_shifted, index_transposed, neighbor_taken)
