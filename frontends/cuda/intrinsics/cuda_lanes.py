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
REDUCTIONS = ("add", "max", "min", "or", "and", "xor")


def handlers() -> dict[str, Handler]:
    """What reads each of these functions, by its name."""
    data = names()
    out: dict[str, Handler] = {**dict.fromkeys(data["shuffle"], _shuffle), **dict.fromkeys(data["vote"], _vote)}
    out |= {f"__reduce_{op}_sync": _warp_reduce for op in REDUCTIONS}
    return out | {"__syncwarp": _sync_warp, "__activemask": _active_mask, "__lane_id": _lane}


def mask_of(r: Reading, v: Value, node: Node) -> dict[str, int]:
    """The attribute of a lane mask. Raises NotUnderstood for a mask that is not known."""
    value_ = constant(rvalue(r, v))
    if value_ is None:
        size = _own_group(r, scalar(r, v))
        if size is not None:
            return {"group": size}
        raise NotUnderstood("a lane mask that is only known when it runs", node)
    value_ &= FULL
    return {} if value_ == FULL else {"mask": value_}


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
    options: dict[str, n.Attr] = dict(mask_of(r, args[0], node))
    width = constant(rvalue(r, args[3])) if len(args) > 3 else 32
    if width is None:
        raise NotUnderstood("a shuffle of a width that is not known", node)
    return shuffled(r, fn, rvalue(r, args[1]), scalar(r, args[2], node), options, width)


def shuffled(r: Reading, fn: str, v: Value, lane: n.Expr, options: dict[str, n.Attr], width: int = 32) -> Value:
    """A value of another lane."""
    if width != 32:
        options = {**options, "width": width}
    lane = converted(lane, I32)
    if isinstance(v, Scalar):
        return Scalar(r.m.let("other", called(fn, v.expr, lane, options=options)))
    if isinstance(v, Wide):
        return Wide(r.m.let("other", called(fn, v.tile, lane, options=options)), v.type)
    if isinstance(v, (Record, Members)):
        return Record({k: shuffled(r, fn, rvalue(r, x), lane, options) for k, x in v.fields.items() if k != "#array"}, v.type)
    raise NotUnderstood(f"a shuffle of {type_text(v)}")


def _vote(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    fn = names()["vote"][name]
    options: dict[str, n.Attr] = dict(mask_of(r, args[0], node))
    x = scalar(r, args[1], node) if fn == "match_any" else condition(r, args[1], node)
    made = r.m.let("vote", called(fn, x, options=options))
    return Scalar(converted(made, I32)) if dtype_of(made.type) == BOOL else Scalar(made)


def _warp_reduce(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    if "warp_reduce" not in table():
        raise NotUnderstood(f"the function '{name}'", node)
    options: dict[str, n.Attr] = dict(mask_of(r, args[0], node))
    return Scalar(r.m.let("total", called("warp_reduce", scalar(r, args[1], node), options={**options, "op": name.split("_")[3]})))


def _active_mask(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(r.m.let("active_lanes", build.call("active_mask")))


def _lane(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(converted(build.mod(r.geometry.thread, 32), U32))


def _sync_warp(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    options = mask_of(r, args[0], node) if args else {}
    if "mask" in options:
        raise NotUnderstood("a __syncwarp of some lanes", node)
    r.m.emit(n.Eval(build.call_with("warp_sync", (), n.attrs(**options))))
    return Nothing()
