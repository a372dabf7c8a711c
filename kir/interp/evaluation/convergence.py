"""Lanes of a warp that meet at operations of one kind written in two branches.

Since Volta each thread has a program counter of its own, and an operation with a mask brings the threads that it names together: `shfl.sync`
"waits until all non-exited threads corresponding to membermask have executed shfl.sync with the same qualifiers and same membermask" (PTX ISA,
and so vote, match, redux and bar.warp). Which of several such instructions in the text a thread executes does not matter. So the two arms of a
branch that divides a warp each run to their next operation that lanes of the other arm are named in; where that is the same operation with the
same mask, both are one, and otherwise each runs alone and lacks lanes.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kir.interp.calls.matrix import MATRIX
from kir.interp.calls.sync import SYNC, WAITING
from kir.interp.calls.warp import WARP, absent
from kir.interp.numerics.number import Array, every, some
from kir.interp.numerics.values import Mask, Val, lift
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.interp.state.tasks import Steps, Wait
from kir.ir import nodes as n
from kir.ir.visit import walk

COLLECTIVE = frozenset({*WARP, "warp_sync"} - {"active_mask"})
"""Operations with a mask."""


class Convergence(Wait):
    """An operation that stands still until lanes that it names come to it; `results` once they have, None where they never do."""

    def __init__(self, m: Machine, s: n.Let | n.Eval, call: n.Call, f: Frame) -> None:
        super().__init__(lambda: False, f"the other lanes of {call.fn}")
        self.site, self.call, self.frame, self.live = s, call, f, f.active()
        self.values = tuple(m.evaluate(a, f) for a in call.args if isinstance(a, n.Expr))
        self.results: tuple[Val, ...] | None = None

    def fits(self, other: Convergence) -> bool:
        """Whether both are one operation with one mask."""
        a, b = self.call, other.call
        return (a.fn, a.attrs, [getattr(x, "type", None) for x in a.args]) == (b.fn, b.attrs, [getattr(x, "type", None) for x in b.args])

    def join(self, other: Convergence) -> Convergence:
        """The operation with the lanes of both."""
        made = object.__new__(Convergence)
        made.ready, made.what, made.spinning, made.results = self.ready, self.what, False, None
        made.site, made.call, made.frame, made.live = self.site, self.call, self.frame, self.live | other.live
        made.values = tuple(_merged(self.live, x, y) for x, y in zip(self.values, other.values, strict=True))
        return made

    def lacks(self) -> bool:
        """Whether lanes that its mask names, and that have not left the kernel, are elsewhere."""
        return some(absent(self.call, self.frame, self.live))

    def act(self, m: Machine) -> None:
        """The operation, for all its lanes at once."""
        f, names = self.frame, [f"#{k}" for k in range(len(self.values))]
        before, f.live = f.live, None if every(self.live) else self.live
        m.site = self.site
        f.env.update(zip(names, self.values, strict=True))
        call = replace(self.call, args=tuple(n.Var(name, a.type) for name, a in zip(names, self.call.args, strict=True) if isinstance(a, n.Expr)))
        found = (WARP.get(call.fn) or SYNC[call.fn])(m, call, f)
        self.results = found if isinstance(found, tuple) else (found,)
        for name in names:
            del f.env[name]
        f.live = before


def _merged(here: Array, a: Val, b: Val) -> Val:
    """`a` in the lanes of `here`, `b` in the others."""
    rank = max(a.data.ndim, b.data.ndim) - 1
    mine = lift(here, rank)
    data = np.where(mine, lift(a.data, rank), lift(b.data, rank))
    if a.ok is None and b.ok is None:
        return Val(data)
    return Val(data, np.broadcast_to(np.where(mine, True if a.ok is None else lift(a.ok, rank), True if b.ok is None else lift(b.ok, rank)), data.shape))


def collective(s: n.Stmt) -> n.Call | None:
    """The operation with a mask that a statement is."""
    call = s.value if isinstance(s, n.Let) else s.call if isinstance(s, n.Eval) else None
    return call if isinstance(call, n.Call) and call.fn in COLLECTIVE else None


def operations(m: Machine, body: n.Block) -> set[str]:
    """The names of the operations of some statements, and of the device functions that they call."""
    found: set[str] = set()
    todo = [body]
    while todo:
        for s in todo.pop():
            for x in walk(s):
                if isinstance(x, n.Call) and x.fn not in found:
                    found.add(x.fn)
                    todo += [m.functions[x.fn].body] if x.fn in m.functions else []
    return found


def both_meet(m: Machine, s: n.If) -> bool:
    """Whether each arm of a branch holds an operation with a mask, be it in a function that it calls."""
    found = m.meets.get(id(s))
    if found is None:
        found = m.meets[id(s)] = all(not COLLECTIVE.isdisjoint(operations(m, arm)) for arm in (s.then, s.orelse))
        m.kept.append(s)
    return found


def may_wait(m: Machine, s: n.Let | n.Eval) -> bool:
    """Whether a statement is a call that runs as a coroutine: one that waits, or a device function."""
    found = m.waits.get(id(s))
    if found is None:
        call = s.value if isinstance(s, n.Let) else s.call
        found = isinstance(call, n.Call) and (call.fn in m.functions if call.of is not None else call.fn in WAITING)
        m.waits[id(s)] = found
    return found


def goes_apart(m: Machine, s: n.If, rest: n.Block) -> bool:
    """Whether lanes may wait in a branch while the others go on: there is such a call in it, and neither there nor in the rest of
    the block an operation of whole warps, for which they must stay together."""
    found = m.waits.get(id(s))
    if found is None:
        calls, after = operations(m, (s,)), operations(m, rest)
        found = any(fn in WAITING for fn in calls) and not any(fn in WARP or fn in MATRIX or fn == "warp_sync" for fn in (*calls, *after))
        m.waits[id(s)] = found
    return found


class _Arm:
    """One side of a branch: its lanes, and where it stands."""

    def __init__(self, f: Frame, steps: Steps, live: Array) -> None:
        self.steps, self.live, self.done = steps, live, False
        self.broken: Mask = f.broken
        self.continued: Mask = f.continued
        self.at: Convergence | None = None

    def advance(self, f: Frame) -> Iterator[Wait]:
        """Runs to the next convergence, or to the end."""
        f.live, f.broken, f.continued = self.live, self.broken, self.continued
        self.at = None
        for wait in self.steps:
            if isinstance(wait, Convergence):
                self.at = wait
                break
            yield wait
        else:
            self.done = True
        self.live, self.broken, self.continued = f.active(), f.broken, f.continued


def arms(m: Machine, f: Frame, steps: tuple[Steps, Steps], lanes: tuple[Array, Array]) -> Steps:
    """Both arms of a branch, in turns from one convergence to the next. `f` is left with the lanes that come to their ends."""
    then, orelse = (_Arm(f, x, live) for x, live in zip(steps, lanes, strict=True))
    f.branches += 1
    while not (then.done and orelse.done):
        for arm in (then, orelse):
            if not arm.done:
                yield from arm.advance(f)
        a, b = then.at, orelse.at
        if a is None or b is None or not a.fits(b):
            continue  # what waits goes on alone
        one = a.join(b)
        if not one.lacks():
            one.act(m)
        elif f.branches > 1:
            f.branches -= 1
            yield one
            f.branches += 1
        if one.results is None and one.lacks():
            one.act(m)
        a.results = b.results = one.results
    f.branches -= 1
    after = then.live | orelse.live
    f.live = None if every(after) else after
    f.broken = _either(then.broken, orelse.broken)
    f.continued = _either(then.continued, orelse.continued)


def _either(a: Mask, b: Mask) -> Mask:
    return b if a is None else a if b is None else a | b
