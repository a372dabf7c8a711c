"""Device functions: called by statements, within expressions, and to combine the elements of tiles."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kir.base.diagnostic import error
from kir.interp.memory_access.buffers import reinterpreted
from kir.interp.numerics.number import Array
from kir.interp.numerics.values import Val
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Handle
from kir.interp.state.tasks import Steps
from kir.ir import nodes as n

Combine = Callable[[tuple[Array, ...], tuple[Array, ...]], tuple[Array, ...]]


def call(m: Machine, e: n.Call, f: Frame) -> tuple[Val, ...]:
    """A device function within an expression. Raises KirError KIR-I002 when it waits."""
    results: list[Val] = []
    for _ in call_steps(m, e, f, results, 0):
        raise error("KIR-I002", f"'{e.fn}' waits for others, so its call stands alone as a statement")
    return tuple(results)


def call_steps(m: Machine, e: n.Call, f: Frame, results: list[Val], branches: int | None = None) -> Steps:
    """Runs a device function for the active lanes and leaves what it returns in `results`."""
    fn = m.functions.get(e.fn)
    if fn is None:
        raise error("KIR-I002", f"there is no function '{e.fn}'")
    inner = f.snapshot(f.agents, f.proxy)
    inner.parent, inner.owner, inner.scope, inner.env, inner.acts_for, inner._maps = f, None, False, {}, None, {}
    inner.team, inner.split, inner.queue, inner.numbers = f.team, f.split, f.queue, None
    inner.branches = f.branches if branches is None else branches
    for p, a in zip(fn.params, e.args, strict=True):
        if isinstance(p, n.Buffer):
            inner.env[p.name] = _buffer_argument(m, p, a, f, inner)
        elif isinstance(a, n.Expr):
            inner.env[p.name] = m.evaluate(a, f)
    yield from m.block(fn.body, inner)
    results.extend(inner.results or ())


def _buffer_argument(m: Machine, p: n.Buffer, a: n.Expr | n.Region, f: Frame, inner: Frame) -> Handle:
    region = a if isinstance(a, n.Region) else a.at if isinstance(a, (n.Load, n.Address)) else None
    base = None if region is None else f.find(region.buffer.name) or m.globals.get(region.buffer.name)
    if region is None or not isinstance(base, Handle):
        raise error("KIR-I002", f"parameter '{p.name}' takes a place (&A[i])")
    if not region.index and base.buffer.dtype == p.dtype and len(base.shape) == len(p.shape):
        return Handle(base.buffer, base.memory, base.shape, base.strides, base.swizzles, base.base, base.frame, base.view)
    made = reinterpreted(m, p, region, base, inner if not region.index else f)
    made.frame = f
    return made


def combiner(m: Machine, name: str, f: Frame) -> Combine:
    """A device function of scalars as a combination of tiles, element by element."""
    fn = m.functions.get(name)
    if fn is None:
        raise error("KIR-I002", f"there is no function '{name}' to combine with")

    def combine(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
        parts = np.broadcast_arrays(*a, *b)
        inner = Frame(max(1, parts[0].size), "element", scope=False)
        for p, x in zip(fn.params, parts, strict=True):
            inner.env[p.name] = Val(np.ascontiguousarray(x).reshape(-1))
        for _ in m.block(fn.body, inner):
            raise error("KIR-I002", f"'{name}' waits, so it cannot combine values")
        return tuple(np.broadcast_to(r.data, (inner.lanes,)).reshape(parts[0].shape) for r in inner.results or ())
    return combine
