"""Cooperative groups of a cluster: its CTAs, their shared memory and the barrier of all of them."""

from __future__ import annotations

from math import prod

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import U32, dtype_of

from ..source.source import Node
from ..symbols.symbols import Value
from ..types.c_types import Prim, Ptr
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted, index32
from ..values.conversions import scalar, type_text
from ..values.loads import rvalue
from ..values.objects import peer_of
from ..values.reading import Reading
from ..values.values import Builtin, Group, Nothing, Pointer, Remote, Scalar


def this_cluster(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value:
    """`this_cluster()`."""
    if not r.cluster:
        raise NotUnderstood("a cluster whose size only the launch says: __cluster_dims__ says it", node)
    return Group("cluster_group")


def method(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    """A method of the group."""
    x, y, z = r.geometry.block
    threads = build.mul(build.mul(x, y), z)
    match name:
        case "sync" | "barrier_arrive" | "barrier_wait":
            for each in ("arrive", "wait") if name == "sync" else (name.removeprefix("barrier_"),):
                r.m.emit(n.Eval(build.call(f"cluster_{each}")))
            return Nothing()
        case "num_blocks":
            return Scalar(build.const(prod(r.cluster), U32))
        case "num_threads" | "size":
            return Scalar(converted(build.mul(threads, prod(r.cluster)), U32))
        case "block_rank":
            return Scalar(converted(_rank(r), U32))
        case "thread_rank":
            return Scalar(converted(build.add(build.mul(_rank(r), threads), r.geometry.thread), U32))
        case "map_shared_rank" if len(args) == 2:
            at = rvalue(r, args[0])
            if isinstance(at, Pointer) and isinstance(at.type.to, Prim) and at.place.store.space == "shared":
                place = at.place.region(at.type.to.dtype, None)
                peer = peer_of(r, place.buffer)
                if peer is not None:
                    index = place.index or tuple(build.const(0) for _ in place.buffer.shape)
                    return Remote(n.Region(peer, (index32(scalar(r, args[1], node)), *index)), Ptr(Prim(dtype_of(place.type))))
            raise NotUnderstood(f"{type_text(at)} in another CTA of the cluster", node)
    raise NotUnderstood(f"the method '{name}' of a cluster", node)


def _rank(r: Reading) -> n.Expr:
    """The number of the CTA in its cluster, x first."""
    out: n.Expr = build.const(0)
    for k in range(len(r.cluster) - 1, -1, -1):
        out = build.add(build.mul(out, r.cluster[k]), build.mod(r.geometry.component("blockIdx", k), r.cluster[k]))
    return out
