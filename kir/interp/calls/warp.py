"""Instruction table, family `warp`: lanes of a warp exchange values. Lanes are grouped by 32 in the order of the thread loop.

A shuffle from a lane that is out of range of its segment keeps the own value; from a lane that is inactive, or that the mask does not
name, the value is undefined. Every lane that a mask names and that has not left the kernel takes part, or the call is an error.
"""
from __future__ import annotations

import numpy as np

from kir.base.diagnostic import error
from kir.base.instructions import masked
from kir.interp.numerics import number
from kir.interp.numerics.number import Array, every, some
from kir.interp.numerics.values import Val, lift
from kir.interp.state.frame import Frame
from kir.interp.state.machine import Machine, Semantics
from kir.interp.state.result import Access
from kir.ir.nodes import Call, Expr
from kir.ir.types import dtype_of

WARP_SIZE = 32
FULL = 0xFFFFFFFF
"""The mask of a whole warp."""


def lanes_of(f: Frame) -> tuple[Array, Array]:
    """For each lane of a thread frame its number in the warp, and the frame's lane where its warp starts.
    Raises KirError KIR-I002 outside a loop over threads."""
    if f.level != "thread":
        raise error("KIR-I002", "warp operations belong into a loop over threads")
    own, kept = f.thread_numbers(), f.warps
    if kept is None or kept[0] is not own:
        lane = own % WARP_SIZE
        starts = np.arange(f.lanes) - lane
        kept = f.warps = own, lane, starts, every(starts % WARP_SIZE == 0)
    return kept[1:3]


def in_order(f: Frame) -> bool:
    """Whether the lanes of a thread frame are those of its warps, one warp after another. Raises KirError KIR-I002 outside a loop over threads."""
    lanes_of(f)
    assert f.warps is not None
    return f.warps[3]


def taking_part(m: Machine, e: Call, f: Frame) -> Array:
    """For each lane whether the mask of a call names it. Reports a lane that makes the call without being named (KIR-I018), and a lane that is
    named and does not make it (KIR-I019).

    CUDA C++ Programming Guide, warp vote, match, reduce and shuffle functions: each calling thread must have its own bit set in the mask, and
    all non-exited threads named in the mask must execute the same intrinsic with the same mask, or the result is undefined; `__syncwarp` says
    the same of a corresponding `__syncwarp`. A thread that has returned from the kernel has exited. Lanes that a last, partial warp does not
    have are not missed."""
    lane, start = lanes_of(f)
    given = given_mask(m, e, f)
    named = named_by(e, lane) if given is None else (given >> lane & 1).astype(np.bool_)
    if not m.checking:
        return named
    active = f.active()
    if given is not None:
        _alike(m, e, f, given, active)
    stray = active & ~named
    if some(stray):
        at = int(stray.argmax())
        peers = np.flatnonzero(named & active & (start == start[at]))
        m.report("lanes", "error", f"lane {int(lane[at])} makes a {e.fn} whose mask does not name it", f, at, id="KIR-I018", verb="exchange",
                 accesses=(_other(m, f, int(peers[0])),) if len(peers) else ())
    if f.live is not None and given is None:
        missing = absent(e, f, active)
        if some(missing):
            at = int(missing.argmax())
            together = together_of(e, lane, start)
            who = int((active & named & (together == together[at])).argmax())
            m.report("lanes", "error", f"lane {int(lane[at])} is named in the mask of this {e.fn} and does not execute it with lane {int(lane[who])}",
                     f, who, id="KIR-I019", verb="exchange", accesses=(_other(m, f, at, "no exchange"),))
    return named


def given_mask(m: Machine, e: Call, f: Frame) -> Array | None:
    """The mask that each lane of a call hands over as its last operand; None where it has none."""
    if not masked(e.fn, len(e.args)):
        return None
    mask = e.args[-1]
    assert isinstance(mask, Expr)
    made = m.evaluate(mask, f)
    m.must_be_defined(made, f, "a lane mask")
    out: Array = _full(made.data.reshape(made.data.shape[0]), f.lanes).astype(np.int64)
    return out


def _alike(m: Machine, e: Call, f: Frame, given: Array, active: Array) -> None:
    """Reports a lane that another one names in its mask, and that does not make the call, or makes it with another mask (KIR-I019)."""
    lane, start = lanes_of(f)
    here = np.minimum(start[:, None] + np.arange(WARP_SIZE), f.lanes - 1)
    named = (given[:, None] >> np.arange(WARP_SIZE) & 1).astype(np.bool_) & active[:, None] & (start[:, None] + np.arange(WARP_SIZE) < f.lanes)
    wrong = named & ((~active & ~f.exited())[here] | (active[here] & (given[here] != given[:, None])))
    if some(wrong):
        who, at = (int(x[0]) for x in wrong.nonzero())
        m.report("lanes", "error", f"lane {at} is named in the mask of this {e.fn} and does not execute it with lane {int(lane[who])}", f, who,
                 id="KIR-I019", verb="exchange", accesses=(_other(m, f, int(here[who, at]), "no exchange"),))


def named_by(e: Call, lane: Array) -> Array:
    """For each lane whether the mask of a call names it: the attribute `mask`, all by default. With the attribute `group` = g each lane makes the
    call with the mask of the g neighbors that it is one of, as a tile of a cooperative group does."""
    named: Array = ((int(dict(e.attrs).get("mask", FULL)) >> lane) & 1).astype(np.bool_)
    return named


def together_of(e: Call, lane: Array, start: Array, given: Array | None = None) -> Array:
    """For each lane the frame's lane where those begin that make one call with it: its warp, its group, or those of its mask."""
    if given is not None:
        first: Array = start + np.log2(np.maximum(given & -given, 1)).astype(np.int64)
        return first
    group = int(dict(e.attrs).get("group", WARP_SIZE))
    found: Array = start + lane // group * group
    return found


def absent(e: Call, f: Frame, active: Array) -> Array:
    """The lanes that the mask of a call names and that have not left the kernel, in warps of which others make it, and they do not."""
    lane, start = lanes_of(f)
    if masked(e.fn, len(e.args)):  # the call itself says who is missing
        return np.zeros(f.lanes, np.bool_)
    named = named_by(e, lane)
    together = together_of(e, lane, start)
    comes = np.zeros(f.lanes, np.bool_)
    comes[together[active & named]] = True
    missing: Array = named & ~active & ~f.exited() & comes[together]
    return missing


def _other(m: Machine, f: Frame, lane: int, verb: str = "exchange") -> Access:
    """The part that another lane has in the call at hand."""
    return Access.at(verb, m.anchor(m.site), m.thread_name(f, lane), m.site.origin if m.site is not None else None)


def _full(x: Array, lanes: int) -> Array:
    return np.broadcast_to(x, (lanes, *x.shape[1:]))


def _shuffle(m: Machine, e: Call, f: Frame) -> Val:
    assert isinstance(e.args[0], Expr) and isinstance(e.args[1], Expr)
    value, amount = m.evaluate(e.args[0], f), m.evaluate(e.args[1], f)
    m.must_be_defined(amount, f, "a lane number")
    lane, start = lanes_of(f)
    width = int(dict(e.attrs).get("width", WARP_SIZE))
    by = _full(amount.data.reshape(amount.data.shape[0]), f.lanes).astype(np.int64)
    segment = lane // width * width
    source = lane ^ by if e.fn == "shfl_xor" else lane - by if e.fn == "shfl_up" else lane + by if e.fn == "shfl_down" else segment + by % width
    valid = source >= segment if e.fn == "shfl_up" else source < segment + width
    target = np.clip(start + np.where(valid, source, lane), 0, f.lanes - 1)
    m.exchange(f)
    data = _full(value.data, f.lanes)[target]
    if not m.checking:
        return Val(data)
    named = taking_part(m, e, f)
    ok = np.ones(data.shape, np.bool_) if value.ok is None else _full(np.broadcast_to(value.ok, value.data.shape), f.lanes)[target]
    together = together_of(e, lane, start, given_mask(m, e, f))
    ok = ok & lift(named[target] & (together[target] == together), data.ndim - 1)
    if f.live is not None:
        ok = ok & lift(f.live[target], data.ndim - 1)
    return Val(data, None if every(ok) else ok)


def _by_warp(m: Machine, e: Call, f: Frame) -> tuple[Val, Array, Array]:
    assert isinstance(e.args[0], Expr)
    value = m.evaluate(e.args[0], f)
    m.exchange(f)
    taking_part(m, e, f)
    lane, start = lanes_of(f)
    given = given_mask(m, e, f)
    return value, lane, start if given is None else together_of(e, lane, start, given)


def _vote(m: Machine, e: Call, f: Frame) -> Val:
    value, lane, start = _by_warp(m, e, f)
    m.must_be_defined(value, f, "a vote")
    truth, active = _full(value.data, f.lanes).astype(np.bool_), f.active()
    group = start + 0
    if e.fn == "vote_any":
        found = np.zeros(f.lanes + WARP_SIZE, np.bool_)
        np.logical_or.at(found, group, truth & active)
        return Val(found[group])
    if e.fn == "vote_all":
        found = np.ones(f.lanes + WARP_SIZE, np.bool_)
        np.logical_and.at(found, group, truth | ~active)
        return Val(found[group])
    bits = np.zeros(f.lanes + WARP_SIZE, np.uint32)
    np.bitwise_or.at(bits, group, np.where(truth & active, np.uint32(1) << lane.astype(np.uint32), np.uint32(0)))
    return Val(bits[group])


def _match(m: Machine, e: Call, f: Frame) -> Val:
    value, _, group = _by_warp(m, e, f)
    m.must_be_defined(value, f, "a match")
    start = lanes_of(f)[1]
    x, active, out = _full(value.data, f.lanes), f.active(), np.zeros(f.lanes, np.uint32)
    for i in range(WARP_SIZE):
        other = np.clip(start + i, 0, f.lanes - 1)
        same = (x[other] == x) & active[other] & (start + i < f.lanes) & (group[other] == group)
        out |= np.where(same, np.uint32(1) << np.uint32(i), np.uint32(0)).astype(np.uint32)
    return Val(out)


def _active_mask(m: Machine, e: Call, f: Frame) -> Val:
    lane, start = lanes_of(f)
    bits = np.zeros(f.lanes + WARP_SIZE, np.uint32)
    np.bitwise_or.at(bits, start, np.where(f.active(), np.uint32(1) << lane.astype(np.uint32), np.uint32(0)))
    return Val(bits[start])


def _warp_reduce(m: Machine, e: Call, f: Frame) -> Val:
    """Over the active lanes of the mask, in the order of the lanes; integers, so that the order does not matter."""
    value, lane, start = _by_warp(m, e, f)
    m.must_be_defined(value, f, "a reduction over the warp")
    options, dtype = dict(e.attrs), dtype_of(e.type)
    op, mask = str(options.get("op", "add")), int(options.get("mask", FULL))
    x, taking = _full(value.data, f.lanes), f.active() & ((mask >> lane) & 1).astype(np.bool_)
    out = x.copy()
    for first in np.unique(start).tolist():
        inside = np.flatnonzero((start == first) & taking)
        if len(inside):
            total = x[inside[0]]
            for other in inside[1:]:
                total = number.binary(op, dtype, total, x[other])
            out[inside] = total
    return Val(out)


WARP: dict[str, Semantics] = {
    **dict.fromkeys(("shfl_xor", "shfl_up", "shfl_down", "shfl_idx"), _shuffle),
    **dict.fromkeys(("vote_any", "vote_all", "ballot"), _vote), "match_any": _match, "active_mask": _active_mask, "warp_reduce": _warp_reduce}
