"""Running a loop compiled, where that pays and where it comes out as the NumPy interpreter would have it."""
from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np

from kir.interp.memory_access.buffers import allocate, home_of
from kir.interp.native.compiled import Compiled, available, compiled, converts_half
from kir.interp.native.evals import updates
from kir.interp.native.marks import NOBODY, READ
from kir.interp.native.signature import counts_alike, found, lanes_of, names, quiet, seen_through, shown, signature, taken, updated_in_place
from kir.interp.numerics.number import Array, every, storage
from kir.interp.numerics.values import Val
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Handle
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import dtype_of
from kir.ir.visit import blocks_of, once, statements, walk

LEAST = 500
"""Statements that loops of one text have run, or will run, from which on they are compiled: that takes about as long as NumPy takes for so many."""
HOT = 5_000_000
"""Statements of single lanes that loops of one text have run, or will run, from which on they are compiled with optimizations: that takes about as long as
is lost without them for so many."""
UNKNOWN = 8
"""Iterations that a loop inside is taken to have where that is not known."""
MOST = 1 << 14
"""Loops of which it is known how much they have run."""
WIDE = 4096
"""Lanes for which NumPy takes as long again as for a statement of one lane."""
SNAPSHOT = 20_000
"""Bytes of memory that a loop may write for each statement that it runs: they are kept until it has ended, so that it can be undone."""


def ran(m: Machine, s: n.For, trips: int, f: Frame) -> bool:
    """Runs a loop of so many iterations, if it is one that is compiled; whether it did."""
    if m.stepping or f.branches or not m.compiles or id(s) in m.refused:
        return False
    apt = once(s, "_native", lambda: taken(s)) and (not m.checking or once(s, "_quiet", lambda: quiet(s)))
    if not apt or (m.most_steps != sys.maxsize and not once(s, "_counts_alike", lambda: counts_alike(s))):
        m.refused.add(id(s))
        return False
    length = once(s, "_length", lambda: sum(map(_statements, s.body)))
    work = trips * length * (1 + f.lanes // WIDE)
    heat = _heat(s)
    heat[0] += work
    heat[1] += trips * length * f.lanes
    if heat[0] < LEAST or not trips:
        return False
    bound = _bound(m, s, f)
    if bound is None:
        m.refused.add(id(s))
        return False
    values, buffers, written = bound
    if sum(h.memory.data.nbytes for h in written) > SNAPSHOT * work or (m.checking and not _nothing_to_say(m, s, values, buffers, written, f)):
        return False
    if not converts_half():
        m.compiles = False
        return False
    code = compiled(signature(s, values, buffers, f, m.checking), heat[1] > HOT)
    if _called(m, s, code, values, buffers, written, f):
        return True
    m.refused.add(id(s))
    return False


def _statements(s: n.Stmt) -> int:
    """About how many statements one is, those inside it included."""
    inside = sum(_statements(x) for block in blocks_of(s) for x in block)
    if not isinstance(s, n.For):
        return 1 + inside
    lo, hi, step = (int_value(x) for x in (s.lo, s.hi, s.step))
    trips = UNKNOWN if lo is None or hi is None or not step else max(0, -(-(hi - lo) // step))
    return 1 + trips * inside


@lru_cache(maxsize=MOST)
def _heat(loop: n.For) -> list[int]:
    """Statements that loops of one text have run in this process, and these times their lanes."""
    return [0, 0]


_Values = list[tuple[str, Any, Val]]


def _bound(m: Machine, s: n.For, f: Frame) -> tuple[_Values, list[Handle], list[Handle]] | None:
    """What the names of a loop stand for: values, buffers, and those of the buffers that it writes and did not declare."""
    outer, used, allocs = once(s, "_names_in_loop", lambda: names(s))
    values: _Values = []
    for name, var in outer.items():
        v = found(m, name, f)
        if not isinstance(v, Val) or v.data.ndim != 1 or v.data.dtype != storage(dtype_of(var.type)) or v.data.shape[0] not in (1, f.lanes):
            return None
        values.append((name, dtype_of(var.type), v))
    buffers: list[Handle] = []
    for name, buffer in used.items():
        h = found(m, name, f)
        if not isinstance(h, Handle) or h.buffer.dtype != buffer.dtype or len(h.shape) != len(buffer.shape) or h.buffer.name != name:
            return None
        if not h.direct and not _through(m, s, name, h, used, outer, values, buffers, f):
            return None
        buffers.append(h)
    stored = {x.at.buffer.name for x in statements((s,)) if isinstance(x, n.Store)} | {at.buffer.name for at in updates(s)}
    written = [h for h in buffers if h.buffer.name in stored]
    for a in allocs:
        if home_of(m, a.buffer.space, f) is not f or a.buffer.name in used:
            return None
        buffers.append(allocate(m, a.buffer, f, f))
    return values, buffers, written


def _nothing_to_say(m: Machine, s: n.For, values: _Values, buffers: list[Handle], written: list[Handle], f: Frame) -> bool:
    """Whether the checking mode need not look on: every value is defined, and so is what is read."""
    if any(not h.direct for h in buffers) or any(v.ok is not None and not every(v.ok) for _, _, v in values):
        return False
    own = {a.buffer.name for a in once(s, "_names_in_loop", lambda: names(s))[2]}
    outer = [h for h in buffers if h.buffer.name not in own]
    in_place = [h for h in written if h.buffer.name in once(s, "_updated_in_place", lambda: updated_in_place(s))]
    if any(h.memory is other.memory for h in in_place for other in buffers if other is not h):
        return False
    return m.checker.quiet(f, [h for h in outer if h not in written or h.memory.space != "global"], written, in_place)


def _through(m: Machine, s: n.For, name: str, h: Handle, used: dict[str, n.Buffer], outer: dict[str, n.Var], values: _Values, buffers: list[Handle],
             f: Frame) -> bool:
    """Whether a buffer is a functional view that the loop is read through; adds what it shows, and the values that its places are worked out of."""
    what = shown(h)
    if what is None or not seen_through(s, name):
        return False
    base = found(m, what.at.buffer.name, f)
    if not isinstance(base, Handle) or not base.direct or base.memory is not h.memory or base.buffer.name != what.at.buffer.name:
        return False
    if base.buffer.name not in used and base not in buffers:
        buffers.append(base)
    for var in {x.name: x for i in what.at.index for x in walk(i) if isinstance(x, n.Var) and x.name not in what.axes}.values():
        v = found(m, var.name, f)
        if not isinstance(v, Val) or v.data.ndim != 1 or v.data.dtype != storage(dtype_of(var.type)) or v.data.shape[0] not in (1, f.lanes):
            return False
        if var.name not in outer and all(var.name != other for other, _, _ in values):
            values.append((var.name, dtype_of(var.type), v))
    return True


def _called(m: Machine, s: n.For, code: Compiled, values: _Values, buffers: list[Handle], written: list[Handle], f: Frame) -> bool:
    """Calls the code; where it comes upon something that is wrong, all is as before."""
    of = code.of
    live = None if f.live is None else np.ascontiguousarray(f.live).view(np.uint8)
    scratch = np.zeros(max(1, of.slots) * f.lanes, np.int64)
    bits, trips, count = np.zeros(len(of.sites) + 1, np.uint8), np.zeros(len(of.loops) + 1, np.int64), np.zeros(len(of.counted) + 1, np.int64)
    alive: list[Any] = [live, scratch, bits, trips, count]
    most = min(sys.maxsize, m.most_steps - m.counters.steps + 1)  # the loop itself has been counted
    words = [f.lanes, most, 0 if live is None else live.ctypes.data, *(x.ctypes.data for x in (scratch, bits, trips, count))]
    for _, _, v in values:
        alive.append(data := np.ascontiguousarray(v.data))
        words.append(data.ctypes.data)
    marks = {id(h): np.full(h.memory.size // storage(h.buffer.dtype).itemsize, NOBODY, np.int32) for h in written if m.checking and h.memory.space == "global"}
    for h in buffers:
        table = None
        if lanes_of(h, f) == "mapped":
            assert h.memory.owner is not None
            mapped = f.lane_in(h.memory.owner)
            assert mapped is not None
            alive.append(table := np.ascontiguousarray(mapped, np.int64))
        mark = marks[id(h)].ctypes.data if id(h) in marks else 0
        words += [h.memory.data.ctypes.data, h.memory.size // storage(h.buffer.dtype).itemsize, 0 if table is None else table.ctypes.data, mark,
                  *(h.strides if h.direct else h.shape), *h.shape]  # a view has no strides, and none are used
    before = [(h.memory, h.memory.data.copy()) for h in written]
    packed = np.array(words, np.int64)
    wrong = code.call(packed.ctypes.data) or code.failed or count[code.of.counted.index("steps")] > most
    if wrong or not _written(m, s, [(h, marks[id(h)]) for h in written if id(h) in marks], f):
        for memory, old in before:
            memory.data[...] = old
        code.failed.clear()
        return False
    _told(m, s, code, bits, trips, count)
    return True


def _written(m: Machine, s: n.For, tensors: list[tuple[Handle, Array]], f: Frame) -> bool:
    """Tells the checker what a loop has written of each tensor, and by which lane; false, and nothing is told, where that is not for it alone."""
    stores = {x.at.buffer.name: x for x in statements((s,)) if isinstance(x, n.Store)}
    elements = [np.flatnonzero(by >= 0) for _, by in tensors]
    if any(by.min(initial=NOBODY) <= READ for _, by in tensors):  # read, and not written after all
        return False
    if not all(m.checker.untouched(h, e) for (h, _), e in zip(tensors, elements, strict=True)):
        return False
    for (h, by), e in zip(tensors, elements, strict=True):
        m.site = stores[h.buffer.name]
        m.checker.wrote(h, e, by[e].astype(np.int64), f, h.buffer.name in once(s, "_updated_in_place", lambda: updated_in_place(s)))
    return True


def _told(m: Machine, s: n.For, code: Compiled, bits: Any, trips: Any, count: Any) -> None:
    """What was reached and counted."""
    for key, amount in zip(code.of.counted, count.tolist(), strict=False):
        if key == "steps":
            m.counters.steps += amount - 1  # the loop itself is counted by whoever runs it
        elif amount:
            verb, what = key.split(" ")
            if verb == "flops":
                m.counters.count_flops(what, amount)
            else:
                m.counters.count_bytes(verb, what, amount)
    if m.coverage is None:
        return
    inside = list(statements((s,)))
    entered = set()
    for (kind, i), got in zip(code.of.sites, bits.tolist(), strict=False):
        if got:
            m.coverage.reached(kind, inside[i], got)
            entered.add((kind, i))
    for i, most in zip(code.of.loops, trips.tolist(), strict=False):
        if ("loop", i) in entered:
            m.coverage.ran(inside[i], most)


__all__ = ["available", "ran"]
