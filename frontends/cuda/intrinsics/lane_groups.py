"""Cooperative groups of lanes that only the run knows: those that are active, and those of them that agree on a label. Each is a mask."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, U32, dtype_of

from ..source.source import Node
from ..symbols.symbols import Value
from ..types.c_types import Prim
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values.conversions import condition, scalar
from ..values.loads import rvalue
from ..values.objects import assign, initialized
from ..values.reading import Reading
from ..values.values import Builtin, Group, Located, Nothing, Scalar
from .cuda_lanes import shuffled
from .cuda_operands import called

_REDUCED = {"plus": "add", "greater": "max", "less": "min", "bit_and": "and", "bit_or": "or", "bit_xor": "xor"}
"""Functors whose reduction is one instruction of the warp, on whole numbers of 32 bits."""


def coalesced(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value:
    """`coalesced_threads()`."""
    return Group("coalesced_group", 0, r.m.let("active_lanes", build.call("active_mask")))


def labeled(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value:
    """`labeled_partition(group, label)`: the lanes that give the same label."""
    parent = _parent(args[0], node)
    label = scalar(r, args[1], node)
    label = label if dtype_of(label.type).bits >= 32 else converted(label, I32)
    return Group("coalesced_group", 0, r.m.let("alike", build.call("match_any", label, *parent)))


def binary(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value:
    """`binary_partition(group, condition)`: the lanes that say the same."""
    parent = _parent(args[0], node)
    cond = condition(r, args[1], node)
    votes = r.m.let("vote", build.call("ballot", cond, *parent))
    every: n.Expr = parent[0] if parent else build.const(0xFFFFFFFF, U32)
    rest = build.binary("and", every, build.invert(votes))
    return Group("coalesced_group", 0, r.m.let("alike", build.select(cond, votes, rest)))


def _parent(v: Value, node: Node) -> tuple[n.Expr, ...]:
    """The mask of a group that is parted, as an operand; none for a whole warp."""
    if isinstance(v, Group) and v.mask is not None:
        return (v.mask,)
    if isinstance(v, Group) and v.size == 32:
        return ()
    raise NotUnderstood("a partition of something that is no warp and no group of active lanes", node)


def reduced(r: Reading, mask: n.Expr, v: Scalar, op: Value, node: Node) -> Value:
    """`reduce(group, value, op)`: lane after lane, or one instruction where there is one."""
    known = _REDUCED.get(op.name) if isinstance(op, Builtin) else None
    if known is not None and v.dtype.is_integer and v.dtype.bits == 32:
        return Scalar(r.m.let("total", called("warp_reduce", v.expr, mask, options={"op": known})))
    own = Scalar(r.m.let("own", v.expr))
    total = initialized(r, "total", shuffled(r, "shfl_idx", own, _lowest(mask), {}, mask=(mask,)), Prim(v.dtype))
    rest = initialized(r, "rest", Scalar(_without_lowest(mask)), Prim(U32))
    var = n.Var(r.m.fresh("s"), I32)
    with r.m.capture() as body:
        left = scalar(r, rest)
        other = shuffled(r, "shfl_idx", own, _lowest(left), {}, mask=(mask,))
        assign(r, total, combined(r, op, rvalue(r, total), other, node))
        assign(r, rest, Scalar(_without_lowest(scalar(r, rest))))
    r.m.emit(n.For(var, build.const(0), build.sub(_count(mask), 1), build.const(1), tuple(body)))
    return rvalue(r, total)


def combined(r: Reading, op: Value, a: Value, b: Value, node: Node) -> Value:
    """A functor such as `cg::plus<float>()` on two values."""
    if isinstance(op, Builtin):
        name = op.name
        signs = {"plus": "+", "bit_and": "&", "bit_or": "|", "bit_xor": "^", "multiplies": "*"}
        if name in signs:
            return r.operators.binary(r, signs[name], a, b, node)
        if name in ("greater", "less"):
            x, y = scalar(r, a), scalar(r, b)
            return Scalar(build.binary("max" if name == "greater" else "min", x, y))
    return r.calls.apply(r, op, [a, b], node)


def method(r: Reading, mask: n.Expr, name: str, args: list[Value], node: Node) -> Value:
    """A method of such a group."""
    match name:
        case "sync":
            r.m.emit(n.Eval(build.call("warp_sync", mask)))
            return Nothing()
        case "size" | "num_threads":
            return Scalar(converted(_count(mask), U32))
        case "thread_rank":
            return Scalar(converted(_rank(r, mask), U32))
        case "shfl" | "shfl_up" | "shfl_down":
            v = rvalue(r, args[0]) if isinstance(args[0], Located) else args[0]
            at = converted(scalar(r, args[1], node), I32)
            if name != "shfl":
                rank = _rank(r, mask)
                moved = build.add(rank, at) if name == "shfl_down" else build.sub(rank, at)
                inside = build.compare("lt", moved, _count(mask)) if name == "shfl_down" else build.compare("ge", moved, 0)
                at = r.m.let("from_rank", build.select(inside, moved, rank))
            return shuffled(r, "shfl_idx", v, _lane_of(r, mask, at), {}, mask=(mask,))
        case "any" | "all":
            made = r.m.let("vote", build.call(f"vote_{name}", condition(r, args[0], node), mask))
            return Scalar(converted(made, I32)) if dtype_of(made.type) == BOOL else Scalar(made)
    raise NotUnderstood(f"the method '{name}' of a group of active lanes", node)


def _count(mask: n.Expr) -> n.Expr:
    return build.call("popc", mask)


def _rank(r: Reading, mask: n.Expr) -> n.Expr:
    """How many lanes of a mask come before the own one."""
    lane = converted(build.mod(r.geometry.thread, 32), U32)
    before = build.sub(build.binary("shl", build.const(1, U32), lane), build.const(1, U32))
    return build.call("popc", build.binary("and", mask, before))


def _lowest(mask: n.Expr) -> n.Expr:
    """The first lane of a mask."""
    return build.sub(build.call("ffs", mask), 1)


def _without_lowest(mask: n.Expr) -> n.Expr:
    return build.binary("and", mask, build.sub(mask, build.const(1, U32)))


def _lane_of(r: Reading, mask: n.Expr, rank: n.Expr) -> n.Expr:
    """The lane of a rank in a mask."""
    if build.is_const(rank, 0):
        return _lowest(mask)
    rest = initialized(r, "rest", Scalar(mask), Prim(U32))
    var = n.Var(r.m.fresh("s"), I32)
    with r.m.capture() as body:
        assign(r, rest, Scalar(_without_lowest(scalar(r, rest))))
    r.m.emit(n.For(var, build.const(0), rank, build.const(1), tuple(body)))
    return _lowest(scalar(r, rest))
