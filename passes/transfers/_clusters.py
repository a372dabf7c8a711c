"""Kernels with roles in clusters and out of them: what CTAs of a cluster share, and how their rings are freed together."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.paths import child_blocks, with_block
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, statements, substitute
from kir.rewrite.edit import fresh, names_in
from kir.rewrite.match import fresh_var, matched_as

MEET = frozenset({"cluster_arrive", "cluster_wait"})


class NoCluster(Exception):
    """A kernel that cannot be brought into clusters, or out of them, in the way described above."""


def dependent(kernel: n.Kernel, axis: str) -> set[str]:
    """The axis, and every value and loop variable that depends on it."""
    out = {axis}
    while True:
        new = {name for s in statements(kernel.body) for name in _names_of(s, out)} - out
        if not new:
            return out
        out |= new


def _names_of(s: n.Stmt, known: set[str]) -> tuple[str, ...]:
    if isinstance(s, n.Let) and names_read(s.value) & known:
        return s.names
    if isinstance(s, n.For) and (names_read(s.lo) | names_read(s.hi)) & known:
        return (s.var.name,)
    return ()


def shared_loads(kernel: n.Kernel, axis: str, size: int) -> Iterator[tuple[n.For, n.Block]]:
    """Loops over panels of a tile that every CTA along the axis loads, each with the block that it stands in."""
    touched = dependent(kernel, axis)

    def below(block: n.Block) -> Iterator[tuple[n.For, n.Block]]:
        for s in block:
            copy = s.body[0] if isinstance(s, n.For) and len(s.body) == 1 else None
            in_panels = isinstance(s, n.For) and s.kind == "unroll" and build.is_const(s.lo, 0) and (int_value(s.hi) or 1) % size == 0
            if isinstance(s, n.For) and in_panels and isinstance(copy, n.Copy) and _is_load(copy) and not names_read(copy.src.at) & touched:
                yield s, block
            for _, inner in child_blocks(s):
                yield from below(inner)
    yield from below(kernel.body)


def _is_load(s: n.Copy) -> bool:
    return s.via == "tma" and s.signal is not None and s.src.at.buffer.space == "global" and "multicast" not in dict(s.attrs)


def _rewritten(block: n.Block, change: Callable[[n.Stmt], tuple[n.Stmt, ...] | None]) -> n.Block:
    """A block with statements replaced wherever `change` says so, innermost blocks included; None leaves one as it is."""
    out: list[n.Stmt] = []
    for s in block:
        made = change(s)
        if made is not None:
            out += made
            continue
        for fragment, inner in child_blocks(s):
            new = _rewritten(inner, change)
            if new != inner:
                s = with_block(s, fragment, new)
        out.append(s)
    return tuple(out)


def _arrival(s: n.Stmt) -> n.Region | None:
    """The mbarrier that a statement arrives on."""
    if isinstance(s, n.Eval) and s.call.of is None and s.call.fn == "mbar_arrive" and isinstance(s.call.args[0], n.Region):
        return s.call.args[0]
    return None


def cluster_barrier() -> tuple[n.Stmt, ...]:
    """All threads of a cluster wait for one another."""
    return n.Eval(build.call("cluster_arrive")), n.Eval(build.call("cluster_wait"))


def is_cluster_barrier(s: n.Stmt) -> bool:
    """Whether a statement is one of those by which a cluster meets."""
    return isinstance(s, n.Eval) and s.call.of is None and s.call.fn in MEET


def _at_end(role: n.Role) -> n.Role:
    """A role whose threads synchronize with those of the cluster before they end."""
    last = role.body[-1] if role.body else None
    if isinstance(last, n.For) and last.kind == "warpgroup":
        return replace(role, body=(*role.body[:-1], replace(last, body=(*last.body, *cluster_barrier()))))
    return replace(role, body=(*role.body, *cluster_barrier()))


def clustered(program: n.Program, kernel: n.Kernel, size: int, axis: int) -> n.Kernel:
    """The kernel in clusters. Raises NoCluster."""
    along = kernel.grid[axis]
    loops = list(shared_loads(kernel, along.name, size))
    if not loops:
        raise NoCluster(f"no role loads panels of a tile that CTAs along '{along.name}' have in common, a multiple of {size} of them")
    freed = {a.buffer.name: a.buffer for _, block in loops for s in block if isinstance(s, n.Eval) and s.call.fn == "mbar_wait"
             and isinstance(a := s.call.args[0], n.Region)}
    if not freed or any(len(b.shape) != 1 for b in freed.values()):
        raise NoCluster("what is loaded is not waited for in slots of a ring")
    if not any(isinstance(s, n.Eval) and s.call.fn == "fence_mbar_init" for s in kernel.body):
        raise NoCluster("the mbarriers are not initialized before the roles")
    if not isinstance(kernel.body[-1], n.Roles):
        raise NoCluster("something stands behind the roles")
    taken = names_in(program, kernel)
    rank = fresh_var("rank", taken, dtype_of(along.extent.type))
    peers = {name: n.Buffer(fresh(f"{name}_peers", taken), b.dtype, (const(size), *b.shape), "cluster") for name, b in freed.items()}
    chosen = {id(loop) for loop, _ in loops}

    def change(s: n.Stmt) -> tuple[n.Stmt, ...] | None:
        if isinstance(s, n.For) and id(s) in chosen:
            return (_share(s, rank, size),)
        if (place := _arrival(s)) is not None and place.buffer.name in peers:
            r = fresh_var("r", taken)
            call = build.call("mbar_arrive", n.Region(peers[place.buffer.name], (r, *place.index)))
            return (n.For(r, const(0), const(size), const(1), (n.Eval(call, s.label, s.origin),), "unroll", n.attrs(factor=size)),)
        if isinstance(s, n.Alloc) and s.buffer.name in peers:
            return s, n.View(peers[s.buffer.name], n.Region(s.buffer))
        if isinstance(s, n.Eval) and s.call.fn == "mbar_init" and isinstance(at := s.call.args[0], n.Region) and at.buffer.name in peers:
            count = matched_as(s.call.args[1], n.Expr)
            return (replace(s, call=replace(s.call, args=(at, build.mul(count, size)))),)
        if isinstance(s, n.Eval) and s.call.fn == "fence_mbar_init":
            return (s, *cluster_barrier())
        return None

    body = _rewritten(kernel.body, change)
    last = matched_as(body[-1], n.Roles)
    roles = replace(last, roles=tuple(map(_at_end, last.roles)))
    own = n.Let((rank.name,), build.mod(n.Var(along.name, rank.of), const(size, rank.of)))  # type: ignore[arg-type]  # an integer dtype
    extent = along.extent if int_value(along.extent) is not None else build.mul(build.ceildiv(along.extent, size), size)
    grid = tuple(replace(a, extent=extent) if i == axis else a for i, a in enumerate(kernel.grid))
    return replace(kernel, grid=grid, cluster=(*(1 for _ in range(axis)), size), body=(own, *body[:-1], roles))


def _share(loop: n.For, rank: n.Var, size: int) -> n.For:
    """A CTA's share of the panels, which go to all."""
    count = (int_value(loop.hi) or 0) // size
    copy = matched_as(loop.body[0], n.Copy)
    mine = matched_as(substitute(copy, {loop.var.name: build.add(build.mul(rank, count), loop.var)}), n.Copy)
    several = replace(mine, attrs=n.attrs(**{**dict(copy.attrs), "multicast": (1 << size) - 1}), label=copy.label, origin=copy.origin)
    return replace(loop, hi=const(count, dtype_of(loop.hi.type)), body=(several,), attrs=n.attrs(**{**dict(loop.attrs), "factor": count}))


def unclustered(kernel: n.Kernel, size: int, axis: int) -> n.Kernel:
    """The kernel without clusters: the inverse, for what `clustered` makes (the framework compares)."""
    first = kernel.body[0] if kernel.body else None
    rank = first.names[0] if isinstance(first, n.Let) and isinstance(first.value, n.Binary) and first.value.op == "mod" else ""
    views = {s.buffer.name: s.at.buffer for s in kernel.body if isinstance(s, n.View) and s.buffer.space == "cluster"}

    def change(s: n.Stmt) -> tuple[n.Stmt, ...] | None:
        if is_cluster_barrier(s) or (isinstance(s, n.View) and s.buffer.name in views):
            return ()
        inner = s.body[0] if isinstance(s, n.For) and len(s.body) == 1 else None
        if isinstance(s, n.For) and isinstance(inner, n.Copy) and "multicast" in dict(inner.attrs):
            return (_alone(s, inner, rank, size),)
        if isinstance(s, n.For) and inner is not None and (place := _arrival(inner)) is not None and place.buffer.name in views:
            call = build.call("mbar_arrive", n.Region(views[place.buffer.name], place.index[1:]))
            return (n.Eval(call, inner.label, inner.origin),)
        if isinstance(s, n.Eval) and s.call.fn == "mbar_init" and isinstance(at := s.call.args[0], n.Region) and at.buffer in views.values():
            count = int_value(s.call.args[1]) if isinstance(s.call.args[1], n.Expr) else None
            return (replace(s, call=replace(s.call, args=(at, const((count or 0) // size)))),)
        return None

    body = _rewritten(kernel.body[1:] if rank else kernel.body, change)
    grid = tuple(replace(a, extent=_before(a.extent, size)) if i == axis else a for i, a in enumerate(kernel.grid))
    return replace(kernel, grid=grid, cluster=(), body=body)


def _alone(loop: n.For, copy: n.Copy, rank: str, size: int) -> n.For:
    """All panels, for the CTA itself."""
    mine = matched_as(substitute(copy, {rank: const(0)}), n.Copy)
    attrs = n.attrs(**{k: v for k, v in copy.attrs if k != "multicast"})
    count = (int_value(loop.hi) or 0) * size
    whole = replace(mine, attrs=attrs, label=copy.label, origin=copy.origin)
    return replace(loop, hi=const(count, dtype_of(loop.hi.type)), body=(whole,), attrs=n.attrs(**{**dict(loop.attrs), "factor": count}))


def _before(extent: n.Expr, size: int) -> n.Expr:
    """The extent that was rounded up to whole clusters."""
    match extent:
        case n.Binary(op="mul", a=n.Binary(op="ceildiv", a=inner, b=n.Const(value=each)), b=n.Const(value=times)) if times == each == size:
            return inner
        case _:
            return extent
