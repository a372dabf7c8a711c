"""Asynchronous operations: cp.async, bulk and TMA copies, wgmma. Each may act at any time between issue and completion.

Eagerly an operation acts when it is issued; lazily (checking mode tries both) when its completion is waited for, and one that
signals an mbarrier when nothing else can run. Either way what it touches counts as accessed by an agent of its own, which knows what
its issuer knew, and which nobody knows about until completion is observed.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kir.base.diagnostic import error
from kir.interp.memory_access import load_store
from kir.interp.memory_access.cluster_memory import in_peer
from kir.interp.memory_access.regions import resolve
from kir.interp.memory_access.tile_product import multiply
from kir.interp.numerics.number import Array, every, some, storage
from kir.interp.numerics.values import Val
from kir.interp.scheduling.barriers import barriers, settle
from kir.interp.state.frame import Frame, Group, Operation, Queue
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Place, locate
from kir.interp.state.result import Access
from kir.interp.state.tasks import Mbarrier
from kir.ir.nodes import Call, Copy, Expr, Load, Mma, Region, TensorMap


def perform(m: Machine, made: Operation) -> None:
    """An operation acts, once; what it does is found at the statement that issued it."""
    if not made.acted:
        made.acted = True
        here, m.site = m.site, made.site
        made.act()
        m.site = here


def family_of(s: Copy) -> str:
    """Which kind of group a copy belongs to."""
    return "bulk" if s.via in ("bulk", "tma") else "cp_async"


def copy(m: Machine, s: Copy, f: Frame) -> None:
    """A copy: at once, or left in flight with its group or mbarrier."""
    source, target = resolve(m, s.src.at, f), resolve(m, s.dst, f)
    descriptor = _descriptor(m, s)
    if descriptor is not None:
        source, target = _described(m, descriptor, source, f), _described(m, descriptor, target, f)
    mask = None if s.mask is None else m.evaluate(s.mask, f)
    inner = None if s.src.mask is None else m.evaluate(s.src.mask, f)
    other = None if s.src.other is None else m.evaluate(s.src.other, f)
    if m.checking:
        m.checker.on_copy(s, source, target, f)
    if s.signal is None and not s.grouped:
        _move(m, s, f, f, source, target, mask, inner, other)
        return
    family = family_of(s)
    proxy = 1 if family == "bulk" else 0
    reader, writer = m.agents_for(f, family, s.grouped)
    readers, writers = f.snapshot(reader, proxy), f.snapshot(writer, proxy)
    if s.grouped and writer is not None:
        writers.since = m.checker.known(f, writer)
    lanes = f.active()
    ranks = _ranks(s)
    targets = [target] if ranks is None else [in_peer(m, target, rank, f) for rank in ranks]
    signals: tuple[tuple[Mbarrier, int], ...] = ()
    if s.signal is not None:
        size = _bytes_of(target) if family == "bulk" else -1
        signals = tuple((b, size) for rank in ranks or (None,)
                        for b in barriers(m, s.signal, f, "signals", proxy, writer, rank))

    def act() -> None:
        for each in targets:
            _move(m, s, readers, writers, source, each, mask, inner, other)
    launch(m, Operation(family, act, lanes, s, writer, reader, f, signals), f)


def _descriptor(m: Machine, s: Copy) -> TensorMap | None:
    """The tensor map that a copy goes by. Raises KirError KIR-I005 for one that is not there."""
    name = dict(s.attrs).get("descriptor")
    if name is None:
        return None
    found = next((t for t in m.program.tensor_maps if t.name == name), None)
    if found is None:
        raise error("KIR-I005", f"there is no tensor map '{name}'", origin=s.origin)
    return found


def _ranks(s: Copy) -> tuple[int, ...] | None:
    """The CTAs of the cluster that a multicast writes to; None for a copy that is none."""
    mask = dict(s.attrs).get("multicast")
    return None if mask is None else tuple(i for i in range(16) if int(mask) >> i & 1)


def _described(m: Machine, descriptor: TensorMap, place: Place, f: Frame) -> Place:
    """The shared side of a TMA copy as its tensor map sees it: the map's swizzle, not the buffer's, orders the bytes. Reports a box
    of another extent than the copy (KIR-I026)."""
    if place.memory.space not in ("shared", "cluster"):
        return place
    moved, box = [d for d in place.index.shape[1:] if d != 1], [d for d in descriptor.box if d != 1]
    if moved != box:
        m.report("box", "error", f"map '{descriptor.name}' moves a box of {list(descriptor.box)}, the copy {moved}", f, id="KIR-I026",
                 buffer=place.handle.buffer.name, accesses=(Access("map declared", descriptor.name, "the launch"),))
    bits = {0: 0, 32: 1, 64: 2, 128: 3}.get(int(dict(descriptor.attrs).get("swizzle", 0)), 0)
    swizzles = ((bits, 4, 3),) if bits else ()
    if swizzles == place.handle.swizzles or place.handle.view is not None:
        return place
    return locate(replace(place.handle, swizzles=swizzles), place.indices, f, place.contiguous)


def _bytes_of(place: Place) -> int:
    """Bytes that one instance's copy transfers (outside elements of a box count too)."""
    return int(np.prod(place.index.shape[1:], dtype=np.int64)) * storage(place.dtype).itemsize


def _move(m: Machine, s: Copy, readers: Frame, writers: Frame, source: Place, target: Place, mask: Val | None, inner: Val | None,
          other: Val | None) -> None:
    value = load_store.read(m, source, readers, inner, other, s.src.clip)
    shape = target.index.shape[1:]
    if value.tile != shape and int(np.prod(value.tile)) == int(np.prod(shape)):
        value = Val(value.data.reshape(value.data.shape[:1] + shape), None if value.ok is None else np.broadcast_to(
            value.ok, value.data.shape).reshape(value.data.shape[:1] + shape))
    load_store.write(m, target, writers, value, mask, s.clip)


def issue_mma(m: Machine, s: Mma, f: Frame) -> None:
    """A wgmma left in flight: its operands are read and its accumulator written until a wait."""
    left = [s.a.at] if isinstance(s.a, Load) else []
    given = None if _is_place(s.a) else m.evaluate(s.a, f)
    issue(m, s.acc, left, f, lambda acting: multiply(m, s, acting, m.evaluate(s.a, acting) if given is None else given, m.evaluate(s.b, acting)))


def _is_place(e: Expr) -> bool:
    """Whether an operand of a product is read where it lies. Any other left operand is a value: who lowers the product writes it to registers of its
    own as it is issued, and fences them."""
    if isinstance(e, Call) and e.of is None and e.fn == "trans":
        return isinstance(e.args[0], Load)
    return isinstance(e, Load)


def issue(m: Machine, acc: Region, left: Sequence[Region], f: Frame, act: Callable[[Frame], None], family: str = "wgmma") -> None:
    """A product in flight (or a load of tensor memory) that updates the registers `acc` and reads those of `left`; `act` does it as the agents that
    stand for it."""
    registers = resolve(m, acc, f).memory
    sources = tuple(resolve(m, r, f).memory for r in left if r.buffer.space in ("fragment", "register"))
    _, agents = m.agents_for(f, family, True)
    acting = f.snapshot(agents, 1)
    if m.checking and family == "wgmma":
        for used in (registers, *sources):
            m.checker.on_wgmma(used, f)

    def run() -> None:
        held, registers.pending = registers.pending, []
        act(acting)
        registers.pending = held

    made = Operation(family, run, f.active(), m.site, agents, agents, f, (), registers, sources)
    registers.pending.append(made)
    for source in sources:
        source.read_by.append(made)
    launch(m, made, f)


def launch(m: Machine, made: Operation, f: Frame) -> None:
    """An operation is issued: it acts now, or lazily when it is waited for, or when nothing else can run where it signals."""
    if not m.lazy:
        perform(m, made)
    if made.signals:
        for b, _ in made.signals:
            b.flying += 1
        if m.lazy:
            m.in_flight.append(made)
        else:
            finish(m, made)
        return
    if f.queue is not None:
        f.queue.open.setdefault(made.family, []).append(made)


def taken_up(f: Frame, family: str) -> list[Operation]:
    """The operations of the active lanes that belong to no group, which stand in what takes them up from here on."""
    if f.queue is None:
        return []
    every, lanes = f.queue.open.get(family, []), f.active()
    taken = [made for made in every if some(made.lanes & lanes)]
    f.queue.open[family] = [made for made in every if made not in taken]
    return taken


def finish(m: Machine, made: Operation) -> None:
    """Completes an operation that signals: it acts, and its barriers count its bytes (or its arrival)."""
    perform(m, made)
    for b, size in made.signals:
        b.flying -= 1
        m.publish(b, made)
        if size < 0:
            b.pending -= 1
        else:
            b.tx -= size
        settle(m, b)


def complete_one(m: Machine) -> bool:
    """Lets the oldest operation in flight complete; False when there is none."""
    if not m.in_flight:
        return False
    finish(m, m.in_flight.pop(0))
    return True


def commit(m: Machine, family: str, f: Frame) -> None:
    """Closes the group of the operations so far."""
    if f.queue is None:
        return
    lanes = f.active()
    still: list[Operation] = []
    closed: list[Operation] = []
    for made in f.queue.open.get(family, []):
        (closed if some(made.lanes & lanes) or not some(made.lanes) else still).append(made)
    f.queue.open[family] = still
    f.queue.slots.pop(family, None)
    f.queue.groups.setdefault(family, []).append(Group(closed, lanes.copy()))


def wait(m: Machine, family: str, most: int, f: Frame, read_only: bool = False) -> list[tuple[Array, Array]]:
    """Until each active lane has at most `most` groups pending; `read_only` until their sources have been read. What has completed: agents
    that stand for operations, each with the lanes that waited."""
    done: list[tuple[Array, Array]] = []
    if f.queue is None:
        return done
    groups, active = f.queue.groups.get(family, []), f.active()
    newer = np.zeros(f.lanes, np.int64)
    for group in reversed(groups):
        due = group.lanes & active & (newer >= most)
        newer = newer + group.lanes
        if not some(due):
            continue
        for made in group.operations:
            perform(m, made)
            if made.registers is not None and made in made.registers.pending:
                made.registers.pending.remove(made)
                for source in made.sources:
                    source.read_by.remove(made)
            for agents in ((made.reader,) if read_only else (made.reader, made.writer)):
                m.observe(f, agents, due & made.lanes)
                if agents is not None:
                    done.append((agents, due & made.lanes))
        group.read = due.copy() if group.read is None else group.read | due
        if not read_only:
            group.lanes = group.lanes & ~due
    f.queue.groups[family] = [g for g in groups if some(g.lanes)]
    return done


def unfinished(queue: Queue) -> list[tuple[Operation, str]]:
    """Operations that nobody waited for when their team ended, each with what is missing."""
    out: list[tuple[Operation, str]] = []
    for pending in queue.open.values():
        out += [(o, "it belongs to no committed group") for o in pending]
    for groups in queue.groups.values():
        for g in groups:
            out += [(o, "its group is never waited for") for o in g.operations if g.read is None or not every(g.read[g.lanes])]
    return out


def drain(m: Machine, queue: Queue) -> None:
    """Lets everything that is left act: the end of the kernel."""
    for pending in queue.open.values():
        for o in pending:
            perform(m, o)
    for groups in queue.groups.values():
        for g in groups:
            for o in g.operations:
                perform(m, o)
    queue.open.clear()
    queue.groups.clear()
