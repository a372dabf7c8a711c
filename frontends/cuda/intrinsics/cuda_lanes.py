"""CUDA's functions of the lanes of a warp: shuffles, votes, reductions, and the masks that name the lanes."""

from __future__ import annotations

from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, U32, dtype_of

from ..source.source import Node
from ..symbols.symbols import Value
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values.conversions import condition, scalar, type_text
from ..values.loads import rvalue
from ..values.reading import Reading
from ..values.values import Members, Nothing, Record, Scalar, Wide, constant
from .cuda_names import Handler, names
from .cuda_operands import called

FULL = 0xFFFFFFFF
UNCONDITIONAL = 2
"""Blocks that are open where a kernel's own statements are read: the program's, and the kernel's."""
REDUCTIONS = ("add", "max", "min", "or", "and", "xor")


def handlers() -> dict[str, Handler]:
    """What reads each of these functions, by its name."""
    data = names()
    out: dict[str, Handler] = {**dict.fromkeys(data["shuffle"], _shuffle), **dict.fromkeys(data["vote"], _vote)}
    out |= {f"__reduce_{op}_sync": _warp_reduce for op in REDUCTIONS}
    return out | {"__syncwarp": _sync_warp, "__activemask": _active_mask, "__lane_id": _lane}


Mask = tuple[dict[str, int], tuple[n.Expr, ...]]
"""The lanes that make a call together: attributes of it, or an operand after the others where only the run knows them."""


def mask_of(r: Reading, v: Value, node: Node) -> Mask:
    """What a lane mask is to a call."""
    value_ = constant(rvalue(r, v))
    if value_ is None:
        mask = scalar(r, v, node)
        size = _own_group(r, mask)
        if size is not None:
            return {"group": size}, ()
        return ({}, ()) if _all_here(r, mask) else ({}, (converted(mask, U32),))
    value_ &= FULL
    return ({} if value_ == FULL else {"mask": value_}), ()


def _all_here(r: Reading, mask: n.Expr) -> bool:
    """Whether a mask is that of the active lanes, asked for where nothing is conditional: all that have not left the kernel, as a full mask is."""
    return isinstance(mask, n.Var) and mask.name in r.unparted


def _own_group(r: Reading, mask: n.Expr) -> int | None:
    """The size of the group of neighbors that a mask names, which the lane itself is one of: `0xffffu << (threadIdx.x & 16)`."""
    if not (isinstance(mask, n.Binary) and mask.op == "shl" and isinstance(mask.a, n.Const)):
        return None
    low, by = int(mask.a.value) & FULL, _bare(mask.b)
    size = low.bit_length()
    if low != (1 << size) - 1 or size not in (1, 2, 4, 8, 16) or not (isinstance(by, n.Binary) and by.op == "and" and build.is_const(by.b, 32 - size)):
        return None
    lane = _bare(by.a)
    lane = _bare(lane.a) if isinstance(lane, n.Binary) and (lane.op, build.int_value(lane.b)) in (("and", 31), ("mod", 32)) else lane
    return size if lane == _bare(r.geometry.thread) else None


def _bare(e: n.Expr) -> n.Expr:
    """An integer as it was before it was given another dtype."""
    while isinstance(e, n.Cast) and dtype_of(e.type).is_integer:
        e = e.x
    return e


def _shuffle(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    fn = names()["shuffle"][name]
    known, mask = mask_of(r, args[0], node)
    options: dict[str, n.Attr] = dict(known)
    width = constant(rvalue(r, args[3])) if len(args) > 3 else 32
    if width is None:
        raise NotUnderstood("a shuffle of a width that is not known", node)
    return shuffled(r, fn, rvalue(r, args[1]), scalar(r, args[2], node), options, width, mask)


def shuffled(r: Reading, fn: str, v: Value, lane: n.Expr, options: dict[str, n.Attr], width: int = 32,
             mask: tuple[n.Expr, ...] = ()) -> Value:
    """A value of another lane."""
    if width != 32:
        options = {**options, "width": width}
    lane = converted(lane, I32)
    if isinstance(v, Scalar):
        return Scalar(r.m.let("other", called(fn, v.expr, lane, *mask, options=options)))
    if isinstance(v, Wide):
        return Wide(r.m.let("other", called(fn, v.tile, lane, *mask, options=options)), v.type)
    if isinstance(v, (Record, Members)):
        return Record({k: shuffled(r, fn, rvalue(r, x), lane, options, mask=mask) for k, x in v.fields.items() if k != "#array"}, v.type)
    raise NotUnderstood(f"a shuffle of {type_text(v)}")


def _vote(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    fn = names()["vote"][name]
    known, mask = mask_of(r, args[0], node)
    options: dict[str, n.Attr] = dict(known)
    x = scalar(r, args[1], node) if fn == "match_any" else condition(r, args[1], node)
    made = r.m.let("vote", called(fn, x, *mask, options=options))
    return Scalar(converted(made, I32)) if dtype_of(made.type) == BOOL else Scalar(made)


def _warp_reduce(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    if "warp_reduce" not in table():
        raise NotUnderstood(f"the function '{name}'", node)
    options, mask = mask_of(r, args[0], node)
    return Scalar(r.m.let("total", called("warp_reduce", scalar(r, args[1], node), *mask, options={**options, "op": name.split("_")[3]})))


def _active_mask(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    made = r.m.let("active_lanes", build.call("active_mask"))
    if len(r.m.blocks) <= UNCONDITIONAL and isinstance(made, n.Var):
        r.unparted.add(made.name)
    return Scalar(made)


def _lane(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(converted(build.mod(r.geometry.thread, 32), U32))


def _sync_warp(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    options, mask = mask_of(r, args[0], node) if args else ({}, ())
    if "mask" in options:
        raise NotUnderstood("a __syncwarp of some lanes", node)
    r.m.emit(n.Eval(build.call_with("warp_sync", mask, n.attrs(**options))))
    return Nothing()
