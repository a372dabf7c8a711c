"""Statements: control flow over lanes by masking, teams that split and run side by side, and blocks as coroutines."""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kir.diagnostic import error
from kir.interp import access, asynchrony
from kir.interp.calls_matrix import product
from kir.interp.calls_sync import WAITING
from kir.interp.calls_warp import absent
from kir.interp.frame import Frame, Val, lift
from kir.interp.meeting import Meeting, arms, both_meet, collective
from kir.interp.memory import Handle, bytes_needed, resolve
from kir.interp.number import narrow, storage
from kir.interp.schedule import Steps, Task, Team, Wait, groups_of
from kir.ir import nodes as n
from kir.ir.layout import arrangement
from kir.ir.types import I32, dtype_of

if TYPE_CHECKING:
    from kir.interp.machine import Machine

LEVELS = {"warpgroup": 128, "warp": 32, "thread": 1}
"""Levels of the machine that a loop splits a team into, with the threads of one instance."""


def block(m: Machine, body: n.Block, f: Frame) -> Steps:
    """The statements of a block, for the lanes that are active."""
    for i, s in enumerate(body):
        if f.idle():
            return
        m.site = s
        m.count_step(s)
        if f.split and isinstance(s, n.If) and m.goes_apart(s, body[i + 1:]):
            if (yield from _apart(m, s, body[i + 1:], f)):
                return
            continue
        if f.branches and (call := collective(s)) is not None:
            yield from _meet(m, s, call, f)
            continue
        simple = _SIMPLE.get(type(s))
        if simple is not None and not (isinstance(s, (n.Let, n.Eval)) and m.may_wait(s)):
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
    home = m.home(b.space, f)
    handle = home.env.get(b.name) if home is not f or b.space in ("shared", "cluster") else None
    if not isinstance(handle, Handle) or handle.buffer is not b:
        handle = m.allocate(b, home, f)
        home.env[b.name] = handle
    f.env[b.name] = handle
    m.undefine(handle, f)
    if s.init is not None:
        access.write(m, resolve(m, n.Region(b), f), f, m.evaluate(s.init, f))


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
        return
    f.env[s.buffer.name] = reinterpreted(m, s.buffer, s.at, base, f)


def reinterpreted(m: Machine, buffer: n.Buffer, at: n.Region, base: Handle, f: Frame) -> Handle:
    """The bytes that start at a place, as another buffer. Reports a view that reaches past its memory (KIR-I010)."""
    shape = tuple(m.size(d, f) for d in buffer.shape)
    if base.view is not None:
        raise error("KIR-I002", f"'{buffer.name}' reinterprets the functional view '{base.buffer.name}', which has no bytes")
    corner = n.Region(at.buffer, tuple(i.lo if isinstance(i, n.Span) else i for i in at.index) or tuple(
        n.Const(0, I32) for _ in base.shape)) if base.shape else at
    place = resolve(m, corner, f)
    old, new = storage(place.dtype).itemsize, storage(buffer.dtype).itemsize
    lane_bytes = base.memory.size
    start = place.index.reshape(place.index.shape[0], -1)[:, 0] * old % lane_bytes
    strides, swizzles = layout_of(m, buffer, shape, f)
    needed = bytes_needed(shape, strides, swizzles, new)
    m.view_fits(buffer, start, needed, new, base, f)
    return Handle(buffer, base.memory, shape, strides, swizzles, None if not start.any() else start, f)


def layout_of(m: Machine, b: n.Buffer, shape: tuple[int, ...], f: Frame) -> tuple[tuple[int, ...], tuple[tuple[int, int, int], ...]]:
    """Strides in elements and swizzles of a buffer. Fragments have no addresses, so theirs is row-major."""
    if b.strides is not None:
        return tuple(m.size(d, f) for d in b.strides), arrangement(b.layout, shape)[1]
    return arrangement(None if b.space in ("fragment", "register") else b.layout, shape)


def _store(m: Machine, s: n.Store, f: Frame) -> None:
    value = m.evaluate(s.value, f)
    if not s.at.index and s.mask is None and not m.checking and f.live is None:
        whole = access.direct(m, s.at, f)
        if whole is not None:
            whole[...] = lift(value.data, whole.ndim - 1)
            return
    place = resolve(m, s.at, f)
    access.write(m, place, f, value, None if s.mask is None else m.evaluate(s.mask, f), s.clip)


def _mma(m: Machine, s: n.Mma, f: Frame) -> None:
    if s.pending:
        asynchrony.issue_mma(m, s, f)
        return
    a, b = m.evaluate(s.a, f), m.evaluate(s.b, f)
    multiply(m, s, f, a, b)


def multiply(m: Machine, s: n.Mma, f: Frame, a: Val, b: Val) -> None:
    """acc += a * b for the active lanes; numerics as in `kir.interp.calls_matrix`."""
    acc = s.acc.buffer.dtype
    result = product(a.data, b.data, dtype_of(s.a.type), s.precision)
    m.counters.count_flops(s.via, 2 * result.size * a.data.shape[-1])
    whole = access.direct(m, s.acc, f)
    if whole is not None and not m.checking and f.live is None:
        whole[...] = (whole.astype(np.float32) + result).astype(whole.dtype) if narrow(acc) else whole + result
        return
    place = resolve(m, s.acc, f)
    old = access.read(m, place, f)
    total = old.data.astype(np.float32) + result if narrow(acc) else old.data + result
    ok = None
    if m.checking and any(v.ok is not None for v in (a, b, old)):
        rows = True if a.ok is None else a.ok.all(-1)[..., :, None]
        columns = True if b.ok is None else b.ok.all(-2)[..., None, :]
        ok = np.broadcast_to(np.logical_and(np.logical_and(rows, columns), True if old.ok is None else old.ok), total.shape)
    access.write(m, place, f, Val(total.astype(storage(acc)), ok))


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
    yield from m.call_steps(call, f, results)
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
    if not other.any():
        yield from block(m, s.then, f)
    elif not taken.any():
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
        f.live = None if after.all() else after


def _meet(m: Machine, s: n.Stmt, call: n.Call, f: Frame) -> Steps:
    """An operation with a mask in an arm of a branch: lanes of the other arm may come to another one like it."""
    assert isinstance(s, (n.Let, n.Eval))
    results = None
    if f.live is not None and absent(call, f, f.live).any():
        meeting = Meeting(m, s, call, f)
        yield meeting
        m.site, results = s, meeting.results
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
    if not taken.any() or not other.any():
        yield from block(m, s.then if taken.any() else s.orelse, f)
        return False
    parts = [(lanes, f.subset(lanes)) for lanes in (taken.nonzero()[0], other.nonzero()[0])]

    def along(branch: n.Block, part: Frame) -> Steps:
        part.diverged = True
        yield from block(m, branch, part)
        part.diverged = f.diverged
        yield from block(m, rest, part)

    yield from _together(m, [Task(f.name, along(branch, part)) for branch, (_, part) in zip((s.then, s.orelse), parts, strict=True)])
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
        if ended.any():
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
        m.count_iteration(s)
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


def _for(m: Machine, s: n.For, f: Frame) -> Steps:
    if s.kind in LEVELS:
        yield from _split(m, s, f)
        return
    bounds = [m.evaluate(x, f) for x in (s.lo, s.hi, s.step)]
    for v in bounds:
        m.must_be_defined(v, f, "a loop bound")
    saved, f.broken, f.continued = (f.broken, f.continued), None, None
    kind = storage(dtype_of(s.var.type))
    ahead = m.checking and s.kind == "pipelined"
    if ahead:
        m.lookahead.enter(s)
    if all(v.data.shape[0] == 1 for v in bounds):
        lo, hi, step = (int(v.data[0]) for v in bounds)
        if step == 0:
            raise error("KIR-I002", "a loop with step 0 never ends", origin=s.origin)
        short = m.shortcut(s, lo, hi, step)
        if short is not None:
            if m.coverage is not None:
                m.coverage.loop(s, len(range(lo, hi, step)))
            yield from block(m, (short,), f)
            f.broken, f.continued = saved
            return
        mine = m.entered(s, len(range(lo, hi, step)))
        ran = 0
        for i in range(lo, hi, step):
            ran += 1
            m.count_step(s)
            f.env[s.var.name] = Val(np.array([i], kind))
            yield from block(m, s.body, f)
            f.resume("continue")
            if ahead:
                m.lookahead.turn(f)
            if f.idle():
                break
        m.left(mine)
        if m.coverage is not None:
            m.coverage.loop(s, ran)
    else:
        lo_, hi_, step_ = (np.broadcast_to(v.data, (f.lanes,)) for v in bounds)
        at, trips = lo_.copy(), _Trips(m, f)
        while True:
            ended = f.active() & ~np.where(step_ > 0, at < hi_, at > hi_)
            if ended.any():
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
                m.lookahead.turn(f)
            if f.idle():
                break
            at = (at + step_).astype(kind)
        trips.end(m, s)
    if ahead:
        m.lookahead.leave()
    f.resume("break")
    f.broken, f.continued = saved


# --------------------------------------------------------------------------------------------------------------------- teams

def _split(m: Machine, s: n.For, f: Frame) -> Steps:
    lo, hi, step = (m.uniform(x, f) for x in (s.lo, s.hi, s.step))
    count = max(0, -(-(hi - lo) // step))
    if count == 0:
        return
    child = f.child(count, s.kind, s.var.name)
    child.threads = LEVELS[s.kind]
    child.env[s.var.name] = Val((lo + step * child.thread_numbers()).astype(storage(dtype_of(s.var.type))))
    m.fork(child, s)
    if not m.splits(s):
        child.team = Team(child.lanes)
        m.use_queue(child, s)
        yield from block(m, s.body, child)
        m.join(child, s)
        _leave(f, child)
        return
    team = child.team = Team(child.lanes)
    child.split = True
    numbers, tasks, gone = child.thread_numbers(), [], np.zeros(child.lanes, np.bool_)
    parts = [(lanes, child.part(lanes, f"{f.name}/{s.var.name} {int(numbers[lanes[0]])}"))
             for lanes in groups_of(numbers, 32 if s.kind == "thread" else 1)]
    for _, part in parts:
        m.use_queue(part, s)
        tasks.append(Task(part.name, _finish(m, s.body, part, team)))
    yield from _together(m, tasks)
    for lanes, part in parts:
        if part.returned is not None:
            gone[lanes] = part.returned
    child.returned = gone if gone.any() else None
    m.join(child, s)
    _leave(f, child)


def _leave(f: Frame, child: Frame) -> None:
    """Lanes of the parent all of whose sub-instances returned have returned too."""
    if child.returned is None or child.owner is None:
        return
    stays = np.zeros(f.lanes, np.bool_)
    np.logical_or.at(stays, child.owner, ~child.returned)
    gone = f.active() & ~stays
    if gone.any():
        f.returned = gone if f.returned is None else f.returned | gone
        f.live = f.active() & ~gone


def _finish(m: Machine, body: n.Block, f: Frame, team: Team) -> Steps:
    yield from block(m, body, f)
    team.left += f.lanes


def _roles(m: Machine, s: n.Roles, f: Frame) -> Steps:
    tasks, frames, team = [], [], Team(len(s.roles) * f.lanes)
    for role in s.roles:
        child = f.child(1, "role", role.name)
        child.threads = 32 * (role.hi - role.lo)
        child.name, child.team, child.split = f"{f.name}/{role.name}", team, True
        frames.append(child)
    m.fork_roles(f, frames, s)
    for role, child in zip(s.roles, frames, strict=True):
        m.use_queue(child, role)
        tasks.append(Task(child.name, _finish(m, role.body, child, team)))
    yield from _together(m, tasks)
    for child in frames:
        m.join(child, s)


def _together(m: Machine, tasks: list[Task]) -> Steps:
    for t in tasks:
        t.site = m.site
    m.tasks.extend(tasks)
    yield Wait(lambda: all(t.done for t in tasks), "its sub-teams to end")


_SIMPLE: dict[type, Callable[[Any, Any, Frame], None]] = {
    n.Let: _let, n.Eval: _eval, n.Alloc: _alloc, n.View: _view, n.Store: _store, n.Copy: asynchrony.copy, n.Mma: _mma, n.Jump: _jump,
    n.Opaque: _refused, n.Hole: _refused}
_COMPOUND: dict[type, Callable[[Any, Any, Frame], Iterator[Wait]]] = {
    n.Let: _call_steps, n.Eval: _call_steps, n.If: _if, n.While: _while, n.For: _for, n.Roles: _roles}

