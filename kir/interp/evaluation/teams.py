"""Teams that split: instances of a loop over a level and roles, side by side or as coroutines."""
from __future__ import annotations

import numpy as np

from kir.interp.numerics.number import some, storage
from kir.interp.numerics.values import Val
from kir.interp.state.frame import LEVELS, Frame, Queue
from kir.interp.state.machine import Machine
from kir.interp.state.tasks import Steps, Task, Team, Wait, groups_of
from kir.ir import nodes as n
from kir.ir.types import dtype_of


def split(m: Machine, s: n.For, f: Frame) -> Steps:
    """A loop over a level of the machine: the instances run as lanes of one frame, or as coroutines where they wait for one another."""
    lo, hi, step = (m.uniform(x, f) for x in (s.lo, s.hi, s.step))
    count = max(0, -(-(hi - lo) // step))
    if count == 0:
        return
    child = f.child(count, s.kind, s.var.name)
    child.threads = LEVELS[s.kind]
    child.env[s.var.name] = Val((lo + step * child.thread_numbers()).astype(storage(dtype_of(s.var.type))))
    if m.checking:
        m.checker.fork(child, s.kind)
    if not m.split_loops.get(id(s), False):
        child.team = Team(child.lanes)
        _use_queue(m, child, s)
        yield from m.block(s.body, child)
        _join(m, child)
        _leave(f, child)
        return
    team = child.team = Team(child.lanes)
    child.split = True
    numbers, tasks, gone = child.thread_numbers(), [], np.zeros(child.lanes, np.bool_)
    parts = [(lanes, child.part(lanes, f"{f.name}/{s.var.name} {int(numbers[lanes[0]])}"))
             for lanes in groups_of(numbers, 32 if s.kind == "thread" else 1)]
    for _, part in parts:
        _use_queue(m, part, s)
        tasks.append(Task(part.name, _finish(m, s.body, part, team)))
    yield from together(m, tasks)
    for lanes, part in parts:
        if part.returned is not None:
            gone[lanes] = part.returned
    child.returned = gone if some(gone) else None
    _join(m, child)
    _leave(f, child)


def _leave(f: Frame, child: Frame) -> None:
    """Lanes of the parent all of whose sub-instances returned have returned too."""
    if child.returned is None or child.owner is None:
        return
    stays = np.zeros(f.lanes, np.bool_)
    np.logical_or.at(stays, child.owner, ~child.returned)
    gone = f.active() & ~stays
    if some(gone):
        f.returned = gone if f.returned is None else f.returned | gone
        f.live = f.active() & ~gone


def _finish(m: Machine, body: n.Block, f: Frame, team: Team) -> Steps:
    yield from m.block(body, f)
    team.left += f.lanes


def roles(m: Machine, s: n.Roles, f: Frame) -> Steps:
    """Roles of a team, each a coroutine."""
    tasks, frames, team = [], [], Team(len(s.roles) * f.lanes)
    for role in s.roles:
        child = f.child(1, "role", role.name)
        child.threads = 32 * (role.hi - role.lo)
        child.name, child.team, child.split = f"{f.name}/{role.name}", team, True
        frames.append(child)
    if m.checking:
        for i, child in enumerate(frames):
            m.checker.fork(child, f"role{i}")
    for role, child in zip(s.roles, frames, strict=True):
        _use_queue(m, child, role)
        tasks.append(Task(child.name, _finish(m, role.body, child, team)))
    yield from together(m, tasks)
    for child in frames:
        _join(m, child)


def together(m: Machine, tasks: list[Task]) -> Steps:
    """Runs coroutines until all have ended."""
    for t in tasks:
        t.site = m.site
    m.tasks.extend(tasks)
    yield Wait(lambda: all(t.done for t in tasks), "its sub-teams to end")


def _use_queue(m: Machine, f: Frame, s: n.For | n.Role) -> None:
    """Gives a frame the operations in flight of the same instances, if they ran before."""
    assert f.parent is not None
    numbers = f.thread_numbers()
    key = (s.kind if isinstance(s, n.For) else s.name, f.lanes, int(numbers[0]) if len(numbers) else 0)
    f.queue = f.parent.queues.get(key)
    if f.queue is None:
        f.queue = f.parent.queues[key] = Queue()
        m.queues.append((f.queue, f))


def _join(m: Machine, child: Frame) -> None:
    """Sub-teams end, and their team knows what they knew."""
    if m.checking:
        m.checker.join(child)
