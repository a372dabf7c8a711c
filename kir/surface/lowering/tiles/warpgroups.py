"""What warpgroups do for a whole team that waits for it: products by wgmma, and boxes by the tensor memory accelerator.

A product stands between a fence and a wait for its group; each warpgroup computes 64 rows at a time of its share of the accumulator. A run
of boxes is asked for by the first thread of a CTA or role and waited for by all of them, on an mbarrier of its own whose phase each thread counts.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kir.analysis.tiles.fragments import Digit, Spread, extents_of
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I32, MBARRIER, shape_of
from kir.ir.visit import walk
from kir.surface.lowering.registers.state import State, refuse

WARPGROUP, ROWS = 128, 64
"""Threads of a warpgroup; rows of one wgmma."""


def accumulator(shape: tuple[int, ...], team: int) -> Spread | None:
    """How the accumulator [m, n] of a wgmma is distributed over whole warpgroups, neighboring rows to each; None where rows do not divide."""
    if len(shape) != 2 or team % WARPGROUP or shape[0] % (ROWS * (team // WARPGROUP)) or shape[1] % 8 or shape[1] > 256:
        return None
    count = team // WARPGROUP
    blocks = shape[0] // (ROWS * count)
    outer = (Digit(count, 0, ROWS * blocks),) if count > 1 else ()
    more = (Digit(blocks, 0, ROWS),) if blocks > 1 else ()
    return Spread(shape, (Digit(4, 1, 2), Digit(8, 0, 1), Digit(4, 0, 16), *outer),
                  (Digit(2, 1, 1), Digit(2, 0, 8), Digit(shape[1] // 8, 1, 8), *more))


def shares(state: State, s: n.Mma, held: n.Buffer, a: n.Region, rows: int) -> Iterator[tuple[n.Region, n.Region]]:
    """For each wgmma of a product beside the steps of k: the 64 rows of A (whose axis in its region is `rows`), and the registers that they
    go to. One by the thread's own warpgroup."""
    count, total = state.team // WARPGROUP, shape_of(s.acc.type)[0]
    assert isinstance(total, int)
    blocks = total // (ROWS * count)
    number = build.floordiv(state.lane, WARPGROUP) if count > 1 else const(0)
    for i in range(blocks):
        part = a
        panels = [axis for axis, x in enumerate(a.index) if isinstance(x, n.Span)]
        if a.buffer.space != "register" and len(panels) == 3 and rows == panels[2]:  # rows lie in panels, each as wide as a wgmma has rows
            if a.index[panels[2]] != n.Span(const(0), ROWS):
                raise refuse("wgmma reads rows in panels of another width than 64", "panels of 64 rows")
            at = panels[0]
            part = n.Region(a.buffer, (*a.index[:at], build.add(build.mul(number, blocks), i), *a.index[at + 1:]))
        elif a.buffer.space != "register" and total > ROWS:
            span = a.index[rows]
            assert isinstance(span, n.Span)
            panels = [axis for axis, x in enumerate(a.index) if isinstance(x, n.Span)]
            if len(panels) == 3 and rows == panels[2]:
                yield _panel(a, panels[0], build.add(build.mul(number, blocks), i), span), _registers_of(held, i, blocks)
                continue
            first = build.add(span.lo, build.add(build.mul(number, ROWS * blocks), ROWS * i))
            part = n.Region(a.buffer, (*a.index[:rows], n.Span(first, ROWS), *a.index[rows + 1:]))
        yield part, _registers_of(held, i, blocks)


def _registers_of(held: n.Buffer, i: int, blocks: int) -> n.Region:
    return n.Region(held, () if blocks == 1 else (const(i), *(n.Span(const(0), d) for d in held.shape[1:])))


def _panel(a: n.Region, axis: int, number: n.Expr, rows: n.Span) -> n.Region:
    """Those of 64 rows that lie in a panel of their own. Raises KirError KIR-B030 for panels of another width."""
    span = a.index[axis]
    assert isinstance(span, n.Span)
    if rows.extent not in (ROWS, const(ROWS)):
        raise refuse("wgmma reads A from panels that are not 64 rows wide", "panels of 64 rows")
    return n.Region(a.buffer, (*a.index[:axis], build.add(span.lo, number), *a.index[axis + 1:]))


def box_bytes(s: n.Stmt) -> int | None:
    """Bytes that a statement copies if it only loads boxes into shared memory and waits for them; None for another statement."""
    match s:
        case n.Copy():
            if s.via != "tma" or s.signal is not None or s.grouped or s.dst.buffer.space != "shared" or s.src.at.buffer.space != "global":
                return None
            extents = extents_of(shape_of(s.dst.type))
            return None if extents is None else math.prod(extents) * s.dst.buffer.dtype.bytes
        case n.For() if s.kind in ("serial", "unroll"):
            lo, hi, step = int_value(s.lo), int_value(s.hi), int_value(s.step)
            each = [box_bytes(x) for x in s.body]
            if lo is None or hi is None or not step or not each or None in each:
                return None
            return sum(x for x in each if x is not None) * len(range(lo, hi, step))
        case _:
            return None


def boxes(state: State, run: n.Block) -> None:
    """Loads of boxes that the whole CTA waits for, or a role. Raises KirError KIR-B030 for a part of either."""
    if state.team != state.threads:
        raise refuse("a part of the CTA that waits for a box", "`signal bar`, and a wait for it")
    bar, phase = n.Buffer(state.fresh("arrived"), MBARRIER, (const(1),), "shared"), n.Buffer(state.fresh("phase"), I32, (), "register")
    state.boxes.append((bar, phase))
    place = build.region(bar, 0)
    total = sum(box_bytes(s) or 0 for s in run)
    for s in run:
        for x in walk(s):
            if isinstance(x, n.Copy):
                state.touch(x.dst, "write")
    asked = (n.Eval(build.call("mbar_arrive_expect", place, const(total))), *(_signaling(s, place) for s in run))
    state.put(n.If(build.compare("eq", state.thread, 0), asked), settled=True)
    now = build.load(n.Region(phase))
    state.put(n.Eval(build.call("mbar_wait", place, now)), n.Store(n.Region(phase), build.binary("xor", now, const(1))))
    for s in run:
        for x in walk(s):
            if isinstance(x, n.Copy):
                state.forget(x.dst.buffer.name)


def _signaling(s: n.Stmt, place: n.Region) -> n.Stmt:
    if isinstance(s, n.Copy):
        return replace(s, signal=place)
    assert isinstance(s, n.For)
    return replace(s, body=tuple(_signaling(x, place) for x in s.body))


def started(state: State) -> n.Block:
    """What the threads do first where boxes are waited for: mbarriers that count one arrival, and phases."""
    if not state.boxes:
        return ()
    once = n.If(build.compare("eq", state.thread, 0), begun(state.boxes))
    return (once, n.Eval(build.call("barrier")), *phases(state))


def begun(boxes: Sequence[tuple[n.Buffer, n.Buffer]]) -> n.Block:
    """What one thread does first for mbarriers that count one arrival."""
    return (*(n.Eval(build.call("mbar_init", build.region(bar, 0), const(1))) for bar, _ in boxes), n.Eval(build.call("fence_mbar_init"))) if boxes else ()


def phases(state: State) -> n.Block:
    """The phases that a thread counts."""
    return tuple(n.Alloc(phase, const(0)) for _, phase in state.boxes)


def released(state: State, s: n.Stmt) -> bool:
    """Whether a statement is an arrival. It gives back what signaling copies fill, so every thread of the team is done with that first."""
    if not any(isinstance(x, n.Call) and x.fn == "mbar_arrive" for x in walk(s)):
        return False
    for name in sorted(state.by_signal):
        state.touch(n.Region(n.Buffer(name, I32, (), "shared")), "write")
    return True


def runs(body: n.Block) -> Iterator[tuple[n.Block, bool]]:
    """A block in runs: statements that load boxes one after the other, and single others."""
    waiting: list[n.Stmt] = []
    for s in body:
        if box_bytes(s) is not None:
            waiting.append(s)
            continue
        if waiting:
            yield tuple(waiting), True
            waiting = []
        yield (s,), False
    if waiting:
        yield tuple(waiting), True
