"""Cooperative groups as far as kernels use them: the CTA, and tiles of lanes within a warp."""

from __future__ import annotations

from collections.abc import Callable

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, U32, U64, dtype_of

from ..source.source import Node
from ..symbols.symbols import Value
from ..types.c_types import Prim
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values.conversions import condition, scalar, type_text
from ..values.loads import rvalue
from ..values.objects import assign, initialized
from ..values.reading import Reading
from ..values.values import Builtin, Dims, Group, Located, Nothing, Scalar, constant
from . import cluster_groups, lane_groups
from .cuda_lanes import UNCONDITIONAL, shuffled
from .lane_groups import combined

FUNCTIONS: dict[str, Callable[[Reading, Builtin, list[Value], Node], Value]] = {}
"""Functions of the namespace `cooperative_groups`, by their plain names."""


def _this_block(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value:
    return Group("thread_block")


def _grid(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value:
    return Group("grid_group")


def _partition(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value:
    size = constant(rvalue(r, f.args[0])) if f.args else constant(rvalue(r, args[1])) if len(args) > 1 else None
    if size is None or not 1 <= size <= 32 or size & (size - 1):
        raise NotUnderstood("a partition of more than one warp", node)
    return Group("thread_block_tile", size)


def _sync(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value:
    if not isinstance(args[0], Group):
        raise NotUnderstood("a sync of something that is no group", node)
    return method(r, args[0], "sync", [], node)


def _reduce(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value:
    """`cg::reduce(tile, value, op)`: a ladder of shuffles."""
    group, v, op = args[0], rvalue(r, args[1]), args[2]
    if isinstance(group, Group) and group.mask is not None and isinstance(v, Scalar):
        return lane_groups.reduced(r, group.mask, v, op, node)
    if not isinstance(group, Group) or not group.size:
        raise NotUnderstood("a reduction over more than one warp", node)
    among = own_lanes(r, group)
    if not isinstance(v, Scalar):
        raise NotUnderstood(f"a reduction of {type_text(v)}", node)
    total = initialized(r, "total", v, Prim(v.dtype))
    var = n.Var(r.m.fresh("s"), I32)
    with r.m.capture() as body:
        own = rvalue(r, total)
        other = shuffled(r, "shfl_xor", own, build.binary("shr", build.const(group.size // 2), var), among)
        assign(r, total, combined(r, op, rvalue(r, total), other, node))
    r.m.emit(n.For(var, build.const(0), build.const(group.size.bit_length() - 1), build.const(1), tuple(body), "unroll"))
    return rvalue(r, total)


def own_lanes(r: Reading, g: Group) -> dict[str, n.Attr]:
    """The mask of what the lanes of a tile do together, as an attribute: their own group. Where nothing is conditional all of a warp's tiles come,
    and the whole warp is as good."""
    return {"group": g.size} if 1 <= g.size < 32 and len(r.m.blocks) > UNCONDITIONAL else {}


def method(r: Reading, g: Group, name: str, args: list[Value], node: Node) -> Value:
    """A method of a group."""
    if g.mask is not None:
        return lane_groups.method(r, g.mask, name, args, node)
    if g.kind == "cluster_group":
        return cluster_groups.method(r, name, args, node)
    if name == "sync":
        if g.kind == "grid_group":
            raise NotUnderstood("a barrier of the whole grid", node)
        own: dict[str, n.Attr] = {"group": g.size} if 1 <= g.size < 32 else {}  # it orders the lanes of one tile alone, wherever it stands
        r.m.emit(n.Eval(build.call_with("warp_sync", (), n.attrs(**own)) if g.size else build.call("barrier")))
        return Nothing()
    x, y, z = r.geometry.block
    threads = build.mul(build.mul(x, y), z)
    t = r.geometry.thread
    if not g.size:
        match name:
            case "thread_rank" if g.kind == "grid_group":
                (bx, by, bz), (gx, gy, _) = _axes(r, "blockIdx"), _axes(r, "gridDim")
                cta = build.add(build.mul(build.add(build.mul(bz, gy), by), gx), bx)
                return Scalar(converted(build.add(build.mul(cta, threads), t), U64))
            case "size" | "num_threads" if g.kind == "grid_group":
                gx, gy, gz = _axes(r, "gridDim")
                return Scalar(converted(build.mul(build.mul(build.mul(gz, gy), gx), threads), U64))
            case "thread_rank":
                return Scalar(converted(t, U32))
            case "size" | "num_threads":
                return Scalar(converted(threads, U32))
            case "group_index" | "thread_index" | "group_dim" | "dim_threads" if g.kind == "thread_block":
                return Dims({"group_index": "blockIdx", "thread_index": "threadIdx"}.get(name, "blockDim"))
            case "dim_blocks" | "group_dim" if g.kind == "grid_group":
                return Dims("gridDim")
            case "block_index" if g.kind == "grid_group":
                return Dims("blockIdx")
        raise NotUnderstood(f"the method '{name}' of a {g.kind}", node)
    match name:
        case "thread_rank":
            return Scalar(converted(build.mod(t, g.size), U32))
        case "size" | "num_threads":
            return Scalar(build.const(g.size, U32))
        case "meta_group_rank":
            return Scalar(converted(build.floordiv(t, g.size), U32))
        case "meta_group_size":
            return Scalar(converted(build.floordiv(threads, g.size), U32))
        case "shfl" | "shfl_xor" | "shfl_up" | "shfl_down":
            v = rvalue(r, args[0]) if isinstance(args[0], Located) else args[0]
            return shuffled(r, "shfl_idx" if name == "shfl" else name, v, scalar(r, args[1], node), own_lanes(r, g), g.size)
        case "any" | "all" | "ballot" if g.size == 32:
            fn = {"any": "vote_any", "all": "vote_all", "ballot": "ballot"}[name]
            made = r.m.let("vote", build.call(fn, condition(r, args[0], node)))
            return Scalar(converted(made, I32)) if dtype_of(made.type) == BOOL else Scalar(made)
        case "any" | "all" | "ballot":
            votes = r.m.let("vote", build.call_with("ballot", (condition(r, args[0], node),), n.attrs(**own_lanes(r, g))))
            first = converted(build.mul(build.floordiv(build.mod(t, 32), g.size), g.size), U32)
            whole = build.const((1 << g.size) - 1, U32)
            own_votes = build.binary("and", build.binary("shr", votes, first), whole)
            if name == "ballot":
                return Scalar(own_votes)
            return Scalar(converted(build.compare("eq", own_votes, whole) if name == "all" else build.compare("ne", own_votes, 0), I32))
    raise NotUnderstood(f"the method '{name}' of a {g.kind}", node)


def _axes(r: Reading, of: str) -> tuple[n.Expr, n.Expr, n.Expr]:
    """The three components of a number of the launch."""
    return r.geometry.component(of, 0), r.geometry.component(of, 1), r.geometry.component(of, 2)


FUNCTIONS.update({
    "this_thread_block": _this_block, "coalesced_threads": lane_groups.coalesced, "labeled_partition": lane_groups.labeled,
    "binary_partition": lane_groups.binary,
    "this_cluster": cluster_groups.this_cluster, "this_grid": _grid, "tiled_partition": _partition, "sync": _sync,
    "reduce": _reduce,
})  # fmt: skip
