"""Instruction table: tcgen05, the products of tensor memory, with its allocation, its loads and its order (PTX ISA, "TensorCore 5th Generation").

A product is issued by one thread. It reads shared memory through the async proxy and adds to tensor memory at any time until a commit to an
mbarrier after it has arrived there; products of a thread act in its order. A load is in flight until its warp waits for it. Between threads,
what was done with tensor memory is ordered by a fence before they meet and one after it; a commit is a fence of the first kind.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from kir.base.diagnostic import error
from kir.interp.calls.matrix import matrix
from kir.interp.calls.warp import WARP_SIZE, in_order
from kir.interp.memory_access import load_store
from kir.interp.memory_access.buffers import home_of
from kir.interp.memory_access.regions import resolve
from kir.interp.memory_access.tile_product import product
from kir.interp.numerics.number import Array, storage
from kir.interp.numerics.values import Val
from kir.interp.scheduling import async_operations
from kir.interp.scheduling.barriers import barriers
from kir.interp.state.frame import Frame, Operation
from kir.interp.state.machine import Machine, Semantics
from kir.interp.state.tensor_memory import COLUMNS, LANES, LEAST, QUARTER, Allocation, TensorMemory, granules
from kir.ir.build import int_value
from kir.ir.nodes import Call, Expr, Load, Region
from kir.ir.types import BF16, F16, dtype_of, shape_of

NOTHING: tuple[Val, ...] = ()
QUARTERS = np.arange(LANES // QUARTER)


def tcgen05_shape(e: Call) -> tuple[int, int]:
    """(n, k) of a `tcgen05_mma`. Raises KirError KIR-I002 for a shape that there is not (PTX ISA, tcgen05.mma, .kind::f16 with f32 sums)."""
    text, of = str(dict(e.attrs).get("shape", "")), [dtype_of(x.type) for x in e.args[1:3]]
    found = re.fullmatch(r"m128n(\d+)k16", text)
    columns = int(found[1]) if found else 0
    if not 16 <= columns <= 256 or columns % 16 or of[0] != of[1] or of[0] not in (F16, BF16):
        raise error("KIR-I002", f"tcgen05_mma of shape '{text}' for {of[0]} and {of[1]}", needs="m128n16k16 to m128n256k16, n a multiple of 16, of f16 or bf16")
    return columns, 16


def _memories(m: Machine, f: Frame) -> list[TensorMemory]:
    """The tensor memory of the CTA of each lane."""
    root = home_of(m, "shared", f)
    at = f.lane_in(root)
    rows = np.arange(f.lanes) if at is None else at
    return [m.tensor.setdefault((id(root), row), TensorMemory(root)) if (id(root), row) not in m.tensor else m.tensor[id(root), row]
            for row in rows.tolist()]


def _wrong(m: Machine, f: Frame, lane: int, message: str) -> None:
    m.report("tensor", "error", message, f, lane, id="KIR-I072", buffer="tensor memory")


def _addresses(m: Machine, e: Expr | Region, f: Frame) -> Array:
    assert isinstance(e, Expr)
    v = m.evaluate(e, f)
    m.must_be_defined(v, f, "an address in tensor memory")
    out: Array = np.broadcast_to(v.data.reshape(v.data.shape[0], -1)[:, 0], (f.lanes,)).astype(np.int64)
    return out


def _warps(m: Machine, e: Call, f: Frame) -> Iterator[int]:
    """The first lane of each warp that executes an instruction as one."""
    if f.lanes % WARP_SIZE or not in_order(f):
        raise error("KIR-I002", f"'{e.fn}' needs whole warps of 32 lanes")
    m.must_converge(f, e.fn)
    for first in range(0, f.lanes, WARP_SIZE):
        if f.active()[first:first + WARP_SIZE].any():
            yield first


def _count(m: Machine, e: Call, f: Frame) -> int:
    last = e.args[1]
    assert isinstance(last, Expr)
    return m.uniform(last, f)


def _alloc(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    if not isinstance(e.args[0], Region):
        raise error("KIR-I002", f"'{e.fn}' writes an address to a place in shared memory (&at)")
    columns, heads, got = _count(m, e, f), list(_warps(m, e, f)), []
    for lane, here in zip(heads, _memories(m, f.subset(np.array(heads, np.int64))), strict=True):
        if not LEAST <= columns <= COLUMNS or columns & (columns - 1):
            _wrong(m, f, lane, f"{columns} columns of tensor memory are asked for; {LEAST} to {COLUMNS} can be, a power of two")
        if here.given_up:
            _wrong(m, f, lane, "columns of tensor memory are asked for by a CTA that has given up allocating")
        at = here.room(columns, m.lazy)
        if at is None:
            _wrong(m, f, lane, f"{columns} columns of tensor memory are asked for where {sum(x.columns for x in here.taken)} of {COLUMNS} are taken:"
                               " it waits for ever")
            at = 0
        here.taken.append(Allocation(at, columns, m.site))
        got.append(at)
    if heads:
        alone = f.subset(np.array(heads))
        load_store.write(m, resolve(m, e.args[0], alone), alone, Val(np.array(got).astype(storage(e.args[0].buffer.dtype))))
    return NOTHING


def _dealloc(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    addresses, columns, every = _addresses(m, e.args[0], f), _count(m, e, f), _memories(m, f)
    for lane in _warps(m, e, f):
        here, at = every[lane], int(addresses[lane])
        found = next((x for x in here.taken if (x.first, x.columns) == (at, columns)), None)
        if found is None:
            _wrong(m, f, lane, f"{columns} columns of tensor memory at {at} are given back, which were not allocated so")
            continue
        if m.checking:
            m.checker.on_tensor(here.memory, granules(QUARTERS, at, columns), lane, f, "write", False)
        here.give_back(found)
    return NOTHING


def _relinquish(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    every = _memories(m, f)
    for lane in _warps(m, e, f):
        every[lane].given_up = True
    return NOTHING


def _mma(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    """Issues a product of each active thread."""
    n, k = tcgen05_shape(e)
    _, a, b, more = e.args
    if not (isinstance(a, Region) and isinstance(b, Region) and isinstance(more, Expr) and a.buffer.space == b.buffer.space == "shared"):
        raise error("KIR-I002", "tcgen05_mma takes an address, two places in shared memory (&As[..], &Bs[..]) and whether it adds")
    attrs, lanes = dict(e.attrs), f.active().nonzero()[0]
    addresses, adds = _addresses(m, e.args[0], f), m.evaluate(more, f)
    m.must_be_defined(adds, f, "whether a product adds")
    added, every = np.broadcast_to(adds.data, (f.lanes,)).astype(np.bool_), _memories(m, f)
    good = []
    for lane in lanes.tolist():
        if addresses[lane] >> 16:
            _wrong(m, f, lane, f"a product of {LANES} lanes of tensor memory from lane {addresses[lane] >> 16} on, of {LANES} that there are")
        elif not every[lane].holds(int(addresses[lane]), n):
            _wrong(m, f, lane, f"a product of {n} columns at {addresses[lane]} of tensor memory, which are not allocated")
        else:
            good.append(lane)
    agents = _issued(m, f)
    acting, of = f.snapshot(agents, 1), dtype_of(a.type)

    def act() -> None:
        heads = acting.subset(np.array(good, np.int64))
        if not good:
            return
        sides = [m.evaluate(Load(x), heads) for x in (a, b)]
        turned = [bool(attrs.get("trans_a", False)), bool(attrs.get("trans_b", False))]
        tiles = [matrix(v.data, t) for v, t in zip(sides, turned, strict=True)]
        told = [None if v.ok is None else matrix(np.broadcast_to(v.ok, v.data.shape), t) for v, t in zip(sides, turned, strict=True)]
        for i, lane in enumerate(good):
            here, at = every[lane], int(addresses[lane])
            left, right = (x[i if x.shape[0] > 1 else 0] for x in tiles)
            if left.shape != (LANES, k) or right.shape != (k, n):
                raise error("KIR-I002", f"tcgen05_mma of {list(left.shape)} by {list(right.shape)} where its shape says [{LANES}, {k}] by [{k}, {n}]")
            part, cells = product(left, right, of, "ieee"), here.cells[:, at:at + n].view(np.float32)
            if m.checking:
                m.checker.on_tensor(here.memory, granules(QUARTERS, at, n), i, heads, "write", True)
                fine = [np.ones((), np.bool_) if x is None else x[i if x.shape[0] > 1 else 0].all(axis=1 - j) for j, x in enumerate(told)]
                defined = np.broadcast_to(fine[0].reshape(-1, 1) & fine[1].reshape(1, -1), (LANES, n))
                here.valid[:, at:at + n] = defined & here.valid[:, at:at + n] if added[lane] else defined
            here.cells[:, at:at + n] = np.ascontiguousarray(cells + part if added[lane] else part, np.float32).view(np.uint32)
            m.counters.count_flops("tensor", 2 * LANES * n * k)
    async_operations.launch(m, Operation("tcgen05", act, f.active(), m.site, agents, agents, f), f)
    return NOTHING


def _issued(m: Machine, f: Frame) -> Array | None:
    """The agents of the products since the last commit, which come after those of the products before it."""
    fresh = f.queue is None or "tcgen05" not in f.queue.slots
    agents = m.agents_for(f, "tcgen05", True)[1]
    before = None if f.queue is None else f.queue.slots.get("tcgen05 before")
    if m.checking and fresh and agents is not None and before is not None:
        m.checker.in_order(f, agents, before[1], f.active() & before[2])
    return agents


def _commit(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    if not isinstance(e.args[0], Region):
        raise error("KIR-I002", f"'{e.fn}' acts on an mbarrier (&bar[i])")
    agents = _issued(m, f)
    signaled = barriers(m, e.args[0], f, "commits to", 1, agents)
    made = async_operations.taken_up(f, "tcgen05")
    if f.queue is not None and (kept := f.queue.slots.pop("tcgen05", None)) is not None:
        f.queue.slots["tcgen05 before"] = kept

    def act() -> None:
        for each in made:
            async_operations.perform(m, each)
        if m.checking and agents is not None:
            m.checker.told(f, agents)
    async_operations.launch(m, Operation("tcgen05", act, f.active(), m.site, agents, agents, f, tuple((b, -1) for b in signaled)), f)
    return NOTHING


def _ld(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    """Issues a load: a warp reaches the quarter of the lanes that its number in its warpgroup names, each of its threads one of them."""
    acc = e.args[0]
    extents = [int_value(d) if isinstance(d, Expr) else d for d in shape_of(acc.type)] if isinstance(acc, Region) else [None]
    count = math.prod(d or 0 for d in extents)
    if not isinstance(acc, Region) or acc.buffer.space != "register" or acc.buffer.dtype.bits != 32 or not 1 <= count <= 128 or count & (count - 1):
        raise error("KIR-I002", "tcgen05_ld fills 1, 2, 4 .. 128 private elements of 32 bits")
    heads, addresses, every = list(_warps(m, e, f)), _addresses(m, e.args[1], f), _memories(m, f)
    numbers, good = f.thread_numbers(), []
    for lane in heads:
        row, column = int(addresses[lane]) >> 16, int(addresses[lane]) & 0xFFFF
        quarter = int(numbers[lane]) // WARP_SIZE % len(QUARTERS)
        if (addresses[lane:lane + WARP_SIZE] != addresses[lane]).any():
            _wrong(m, f, lane, "threads of one warp name different addresses of tensor memory")
        elif row != QUARTER * quarter:
            _wrong(m, f, lane, f"a warp loads lanes of tensor memory from {row} on; it reaches those from {QUARTER * quarter} on")
        elif not every[lane].holds(column, count):
            _wrong(m, f, lane, f"a load of {count} columns at {column} of tensor memory, which are not allocated")
        else:
            good.append((lane, quarter, column))

    def act(acting: Frame) -> None:
        bits, ok = np.zeros((f.lanes, count), np.uint32), np.zeros((f.lanes, count), np.bool_)
        for lane, quarter, column in good:
            here, rows = every[lane], slice(QUARTER * quarter, QUARTER * (quarter + 1))
            if m.checking:
                m.checker.on_tensor(here.memory, granules(np.array([quarter]), column, count), lane, acting, "read", True)
            bits[lane:lane + WARP_SIZE] = here.cells[rows, column:column + count]
            ok[lane:lane + WARP_SIZE] = here.valid[rows, column:column + count]
        shape = (f.lanes, *(d or 0 for d in extents))
        value = Val(bits.view(storage(acc.buffer.dtype)).reshape(shape), ok.reshape(shape) if m.checking else None)
        load_store.write(m, resolve(m, acc, acting), acting, value)
    async_operations.issue(m, acc, (), f, act, "tcgen05_ld")
    return NOTHING


def _wait_ld(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    list(_warps(m, e, f))
    async_operations.commit(m, "tcgen05_ld", f)
    for agents, lanes in async_operations.wait(m, "tcgen05_ld", 0, f):
        if m.checking:
            m.checker.heard(f, agents, lanes)
    return NOTHING


def _fence(m: Machine, e: Call, f: Frame) -> tuple[Val, ...]:
    if m.checking:
        m.checker.fence(f, e.fn, "")
    return NOTHING


def left(m: Machine) -> None:
    """Reports columns that are still allocated when a kernel has ended (KIR-I072): the SM has them no more."""
    for here in m.tensor.values():
        for each in here.taken:
            m.site = each.site
            _wrong(m, here.root, 0, f"{each.columns} columns of tensor memory are never given back")


TENSOR: dict[str, Semantics] = {
    "tcgen05_alloc": _alloc, "tcgen05_dealloc": _dealloc, "tcgen05_relinquish": _relinquish, "tcgen05_mma": _mma, "tcgen05_commit": _commit,
    "tcgen05_ld": _ld, "tcgen05_wait_ld": _wait_ld, **dict.fromkeys(("tcgen05_fence_before", "tcgen05_fence_after"), _fence)}
