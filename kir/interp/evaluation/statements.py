"""Statements: control flow over lanes by masking, and blocks as coroutines."""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from kir.base.diagnostic import error
from kir.interp.calls.functions import call_steps
from kir.interp.calls.sync import WAITING
from kir.interp.calls.warp import absent
from kir.interp.evaluation.convergence import Convergence, arms, both_meet, collective, goes_apart, may_wait
from kir.interp.evaluation.loop_folding import loops_inside
from kir.interp.evaluation.loops import count_iteration, entered, left, shortcut
from kir.interp.evaluation.teams import roles, split, together
from kir.interp.memory_access import load_store
from kir.interp.memory_access.buffers import allocate, home_of, reinterpreted
from kir.interp.memory_access.regions import resolve
from kir.interp.memory_access.tile_product import multiply
from kir.interp.native import loops as native
from kir.interp.numerics.number import every, some, storage
from kir.interp.numerics.values import Val, lift
from kir.interp.scheduling import async_operations
from kir.interp.state.frame import LEVELS, Frame
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Handle
from kir.interp.state.tasks import Steps, Task, Wait
from kir.ir import nodes as n
from kir.ir.types import dtype_of


def block(m: Machine, body: n.Block, f: Frame) -> Steps:
    """The statements of a block, for the lanes that are active."""
    for i, s in enumerate(body):
        if f.live is not None and f.idle():
            return
        m.site = s
        m.count_step(s)
        if f.split and isinstance(s, n.If) and goes_apart(m, s, body[i + 1:]):
            if (yield from _apart(m, s, body[i + 1:], f)):
                return
            continue
        if f.branches and (call := collective(s)) is not None:
            yield from _meet(m, s, call, f)
            continue
        simple = _SIMPLE.get(type(s))
        if simple is not None and not (isinstance(s, (n.Let, n.Eval)) and may_wait(m, s)):
            simple(m, s, f)
        else:
            yield from _COMPOUND[type(s)](m, s, f)


# ---------------------------------------------------------------------------------------------------------- simple statements

def _let(m: Machine, s: n.Let, f: Frame) -> None:
    _bind(s, m.evaluate_all(s.value, f), f)


def _bind(s: n.Let, values: tuple[Val, ...], f: Frame) -> None:
    for name, value in zip(s.names, values, strict=True):
        f.env[name] = value


def _eval(m: Machine, s: n.Eval, f: Frame) -> None:
    m.evaluate_all(s.call, f)


def _alloc(m: Machine, s: n.Alloc, f: Frame) -> None:
    b = s.buffer
    home = home_of(m, b.space, f)
    handle = home.env.get(b.name) if home is not f or b.space in ("shared", "cluster") else None
    if not isinstance(handle, Handle) or handle.buffer is not b:
        handle = allocate(m, b, home, f)
        home.env[b.name] = handle
    f.env[b.name] = handle
    if m.checking:
        m.checker.undefine(handle, f)
    if s.init is not None:
        whole, value = n.Region(b), m.evaluate(s.init, f)
        if not load_store.filled(m, whole, f, value):
            load_store.write(m, resolve(m, whole, f), f, value)


def _view(m: Machine, s: n.View, f: Frame) -> None:
    base = f.find(s.at.buffer.name) or m.globals.get(s.at.buffer.name)
    if not isinstance(base, Handle):
        raise error("KIR-I005", f"'{s.at.buffer.name}' is no buffer here")
    shape = tuple(m.size(d, f) for d in s.buffer.shape)
    if s.buffer.space == "cluster" and s.at.buffer.space == "shared":
        f.env[s.buffer.name] = Handle(s.buffer, base.memory, shape, (0, *base.strides), base.swizzles, peers=s.at.buffer)
        return
    if s.axes:
        f.env[s.buffer.name] = Handle(s.buffer, base.memory, shape, (), view=s, frame=f)
        m.is_home(f)
        return
    f.env[s.buffer.name] = reinterpreted(m, s.buffer, s.at, base, f)


def _store(m: Machine, s: n.Store, f: Frame) -> None:
    value = m.evaluate(s.value, f)
    if not s.at.index and s.mask is None and not m.checking and f.live is None:
        whole = load_store.direct(m, s.at, f)
        if whole is not None:
            whole[...] = lift(value.data, whole.ndim - 1)
            return
    if s.mask is None and load_store.filled(m, s.at, f, value):
        return
    mask = None if s.mask is None else m.evaluate(s.mask, f)
    load_store.write(m, resolve(m, s.at, f, mask), f, value, mask, s.clip, s.cache)


def _mma(m: Machine, s: n.Mma, f: Frame) -> None:
    if s.pending:
        async_operations.issue_mma(m, s, f)
        return
    a, b = m.evaluate(s.a, f), m.evaluate(s.b, f)
    multiply(m, s, f, a, b)


def _jump(m: Machine, s: n.Jump, f: Frame) -> None:
    if s.values:
        values = [m.evaluate(v, f) for v in s.values]
        if f.results is None or f.live is None:
            f.results = values
        else:
            merged = []
            for old, new in zip(f.results, values, strict=True):
                live = lift(f.live, max(old.data.ndim, new.data.ndim) - 1)
                merged.append(Val(np.where(live, new.data, old.data), None if old.ok is None and new.ok is None else np.where(
                    live, True if new.ok is None else new.ok, True if old.ok is None else old.ok)))
            f.results = merged
    f.stop(s.kind)


def _refused(m: Machine, s: n.Stmt, f: Frame) -> None:
    what = "a hole is not filled" if isinstance(s, n.Hole) else f"opaque source ({getattr(s, 'reason', '')})"
    raise error("KIR-I001", f"{what}: it has no meaning to run", origin=s.origin)


# -------------------------------------------------------------------------------------------------------------- control flow

def _call_steps(m: Machine, s: n.Let | n.Eval, f: Frame) -> Steps:
    call = s.value if isinstance(s, n.Let) else s.call
    assert isinstance(call, n.Call)
    if call.fn in WAITING and call.of is None:
        yield from WAITING[call.fn](m, call, f)
        return
    results: list[Val] = []
    yield from call_steps(m, call, f, results)
    if isinstance(s, n.Let):
        _bind(s, tuple(results), f)


def _if(m: Machine, s: n.If, f: Frame) -> Steps:
    value = m.evaluate(s.cond, f)
    m.must_be_defined(value, f, "a branch")
    cond = value.data.astype(np.bool_)
    if m.coverage is not None:
        m.coverage.branch(s, cond, f)
    if cond.shape[0] == 1:
        yield from block(m, s.then if cond[0] else s.orelse, f)
        return
    live = f.active()
    taken, other = live & cond, live & ~cond
    if not some(other):
        yield from block(m, s.then, f)
    elif not some(taken):
        yield from block(m, s.orelse, f)
    elif f.level == "thread" and both_meet(m, s):
        yield from arms(m, f, (block(m, s.then, f), block(m, s.orelse, f)), (taken, other))
    else:
        f.live = taken
        yield from block(m, s.then, f)
        after = f.active()
        f.live = other
        yield from block(m, s.orelse, f)
        after = after | f.active()
        f.live = None if every(after) else after


def _meet(m: Machine, s: n.Stmt, call: n.Call, f: Frame) -> Steps:
    """An operation with a mask in an arm of a branch: lanes of the other arm may come to another one like it."""
    assert isinstance(s, (n.Let, n.Eval))
    results = None
    if f.live is not None and some(absent(call, f, f.live)):
        convergence = Convergence(m, s, call, f)
        yield convergence
        m.site, results = s, convergence.results
    if results is None:
        results = m.evaluate_all(call, f)
    if isinstance(s, n.Let):
        _bind(s, results, f)


def _apart(m: Machine, s: n.If, rest: n.Block, f: Frame) -> Generator[Wait, None, bool]:
    """A branch in which lanes may wait: the others go on through the rest of the block by themselves, and all meet again at its end.
    Returns whether they went apart."""
    value = m.evaluate(s.cond, f)
    m.must_be_defined(value, f, "a branch")
    cond, live = value.data.astype(np.bool_), f.active()
    if m.coverage is not None:
        m.coverage.branch(s, cond, f)
    taken, other = live & cond, live & ~cond
    if not some(taken) or not some(other):
        yield from block(m, s.then if some(taken) else s.orelse, f)
        return False
    parts = [(lanes, f.subset(lanes)) for lanes in (taken.nonzero()[0], other.nonzero()[0])]

    def along(branch: n.Block, part: Frame) -> Steps:
        part.diverged = True
        yield from block(m, branch, part)
        part.diverged = f.diverged
        yield from block(m, rest, part)

    yield from together(m, [Task(f.name, along(branch, part)) for branch, (_, part) in zip((s.then, s.orelse), parts, strict=True)])
    f.absorb(parts)
    return True


def _while(m: Machine, s: n.While, f: Frame) -> Steps:
    saved, f.broken, f.continued = (f.broken, f.continued), None, None
    trips = _Trips(m, f)
    while True:
        m.site = s
        value = m.evaluate(s.cond, f)
        m.must_be_defined(value, f, "a branch")
        cond = np.broadcast_to(value.data.astype(np.bool_), (f.lanes,))
        live = f.active()
        ended = live & ~cond
        if some(ended):
            f.broken = ended if f.broken is None else f.broken | ended
            f.live = live & cond
        if f.idle():
            break
        trips.again(f)
        yield from block(m, s.body, f)
        f.resume("continue")
        if f.idle():
            break
        if m.stepping:
            yield Wait(lambda: True, "a condition in a loop", spinning=True)
        count_iteration(m, s)
    trips.end(m, s)
    f.resume("break")
    f.broken, f.continued = saved


class _Trips:
    """How often each lane runs the body of a loop, where that is asked for."""

    def __init__(self, m: Machine, f: Frame) -> None:
        self.begun = f.active().copy()
        self.counts = np.zeros(f.lanes, np.int64) if m.coverage is not None else None

    def again(self, f: Frame) -> None:
        if self.counts is not None:
            self.counts += f.active()

    def end(self, m: Machine, s: n.Stmt) -> None:
        if self.counts is not None and m.coverage is not None:
            m.coverage.loop(s, self.counts[self.begun])


def _most_trips(bounds: list[Val]) -> int:
    """How often the lane that runs a loop most often runs it, or about so often."""
    (_, low, _), (_, _, high), (by, *_) = (v.index() for v in bounds)
    return max(0, high - low) // max(1, int(np.abs(by).min()))


def _for(m: Machine, s: n.For, f: Frame) -> Steps:
    if s.kind in LEVELS:
        yield from split(m, s, f)
        return
    bounds = [m.evaluate(x, f) for x in (s.lo, s.hi, s.step)]
    for v in bounds:
        m.must_be_defined(v, f, "a loop bound")
    saved, f.broken, f.continued = (f.broken, f.continued), None, None
    kind = storage(dtype_of(s.var.type))
    ahead = m.checking and s.kind == "pipelined"
    if ahead:
        m.checker.lookahead.enter(s)
    if all(v.data.shape[0] == 1 for v in bounds):
        lo, hi, step = (int(v.data[0]) for v in bounds)
        if step == 0:
            raise error("KIR-I002", "a loop with step 0 never ends", origin=s.origin)
        short = shortcut(m, s, lo, hi, step)
        if short is not None:
            if m.coverage is not None:
                m.coverage.loop(s, len(range(lo, hi, step)))
                for nested, often in loops_inside(s):
                    m.coverage.loop(nested, often)
                m.coverage.by_elements = True
            yield from block(m, (short,), f)
            if m.coverage is not None:
                m.coverage.by_elements = False
            f.broken, f.continued = saved
            return
        if native.ran(m, s, len(range(lo, hi, step)), f):
            f.broken, f.continued = saved
            return
        mine = entered(m, s, len(range(lo, hi, step)))
        ran = 0
        for i in range(lo, hi, step):
            ran += 1
            m.count_step(s)
            f.env[s.var.name] = Val(np.array([i], kind))
            yield from block(m, s.body, f)
            f.resume("continue")
            if ahead:
                m.checker.lookahead.turn(f)
            if f.idle():
                break
        left(m, mine)
        if m.coverage is not None:
            m.coverage.loop(s, ran)
    else:
        if native.ran(m, s, _most_trips(bounds), f):
            f.broken, f.continued = saved
            return
        lo_, hi_, step_ = (np.broadcast_to(v.data, (f.lanes,)) for v in bounds)
        at, trips = lo_.copy(), _Trips(m, f)
        while True:
            ended = f.active() & ~np.where(step_ > 0, at < hi_, at > hi_)
            if some(ended):
                f.broken = ended if f.broken is None else f.broken | ended
                f.live = f.active() & ~ended
            if f.idle():
                break
            trips.again(f)
            m.count_step(s)
            f.env[s.var.name] = Val(at)
            yield from block(m, s.body, f)
            f.resume("continue")
            if ahead:
                m.checker.lookahead.turn(f)
            if f.idle():
                break
            at = (at + step_).astype(kind)
        trips.end(m, s)
    if ahead:
        m.checker.lookahead.leave()
    f.resume("break")
    f.broken, f.continued = saved


_SIMPLE: dict[type, Callable[[Any, Any, Frame], None]] = {
    n.Let: _let, n.Eval: _eval, n.Alloc: _alloc, n.View: _view, n.Store: _store, n.Copy: async_operations.copy, n.Mma: _mma, n.Jump: _jump,
    n.Opaque: _refused, n.Hole: _refused}
_COMPOUND: dict[type, Callable[[Any, Any, Frame], Iterator[Wait]]] = {
    n.Let: _call_steps, n.Eval: _call_steps, n.If: _if, n.While: _while, n.For: _for, n.Roles: roles}

