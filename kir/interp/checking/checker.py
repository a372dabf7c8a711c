"""The adversary of checking mode: validity of memory, races, proxies, alignment, convergence, and the counts that need addresses.

Statements of a team that runs as one (a CTA, a role) are its single agent's, in order. Threads of a loop over threads are agents of
their own. Validity and races are kept per granule, the smallest element that any view of the memory has. Knowledge between CTAs is
kept for a CTA as a whole: what one thread acquires from another CTA, all its threads know.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kir.base.dataclass import dataclass
from kir.interp.checking import exit_checks, quiet_loops
from kir.interp.checking.access_counters import count_traffic
from kir.interp.checking.program_facts import BEYOND_FIRST, SYNCHRONIZING, has_tensor_memory, multiplies, needs_layers, written
from kir.interp.checking.tensor_order import TensorOrder
from kir.interp.numerics.number import Array, every, some, storage
from kir.interp.numerics.values import Mask, Val, lift, spread
from kir.interp.state.clocks import FENCED
from kir.interp.state.frame import Frame, Queue
from kir.interp.state.memory import Handle, Memory, Place
from kir.interp.state.result import Access
from kir.interp.state.shadow import EARLIER, LEAST_RUN, UNAWAITED, Conflict, Run, Shadow, of_two, run_of
from kir.ir import nodes as n


class Checker(TensorOrder):
    """Attached to a machine; told of every access and every synchronization."""

    # --------------------------------------------------------------------------------------------------- launches and memory
    def begin(self, k: n.Kernel, launch: n.Launch) -> None:
        """A kernel is launched: what earlier ones did is done, unless it is a dependent launch that may overlap."""
        chained = not self.overlapping or self.awaited
        self.overlapping, self.awaited = bool(dict(launch.attrs).get("pdl", False)), False
        for memory in self.memories:
            if memory.shadow is not None:
                memory.shadow.forget(self.overlapping, chained)
        self.roots, self.released = {}, {}
        changed = written(self.m.program, k)
        self.layers = 6 if has_tensor_memory(self.m.program, k) else 4 if needs_layers(self.m.program, k) else 2
        self.multiplies, self.dirty = multiplies(self.m.program, k), []
        self.read_only = {p.name for p in self.m.program.params if p.role == "in" and p.name not in changed}

    def end(self) -> None:
        """A kernel has ended: its shared memory is gone."""
        self.memories = [x for x in self.memories if x.space == "global"]

    def ended(self, queue: Queue, f: Frame) -> None:
        """Reports operations that nobody waited for (KIR-I017)."""
        exit_checks.in_flight(self, queue, f)

    def adopt(self, memory: Memory, b: n.Buffer, defined: bool) -> None:
        """Starts to watch a memory."""
        size = storage(b.dtype).itemsize
        memory.granule = self.finest if b.name in self.viewed_only and self.finest else min(size, self.finest or size)
        memory.track(defined)
        if memory.space in ("shared", "cluster", "global"):
            memory.shadow = Shadow(memory.lanes * memory.size // memory.granule)
            self.memories.append(memory)

    def undefine(self, handle: Handle, f: Frame) -> None:
        """The contents of a buffer are undefined from here on, for the active lanes of its frame."""
        memory = handle.memory
        assert memory.valid is not None
        lanes = memory.valid.reshape(memory.lanes, -1)
        if memory.lanes == f.lanes and f.live is not None and memory.owner is f:
            lanes[f.live] = False
        else:
            lanes[:] = False

    def validity(self, memory: Memory, index: Array, width: int) -> Mask:
        """Which elements of `width` bytes are defined; None when all are."""
        assert memory.valid is not None
        whole, flags = _by_element(memory, width)
        ok: Mask = memory.valid[memory.granules(index, width)].all(axis=-1) if flags is None else flags[index]
        if whole is not True:
            ok = np.equal(ok, whole)
        return None if every(ok) else ok

    def mark(self, memory: Memory, index: Array, width: int, ok: Mask) -> None:
        """Elements have been written with values that are defined where `ok` says so."""
        assert memory.valid is not None
        whole, flags = _by_element(memory, width)
        if flags is not None and (ok is None or width == memory.granule):
            flags[index] = whole if ok is None else np.broadcast_to(np.asarray(ok), index.shape)
            return
        g = memory.granules(index, width)
        memory.valid[g] = True if ok is None else np.broadcast_to(np.asarray(ok), index.shape)[..., None]

    def on_output(self, handle: Handle, at: Array) -> None:
        """Reports an output element that is undefined when the program ends (KIR-I012)."""
        exit_checks.undefined(self, handle, self.validity(handle.memory, at, storage(handle.buffer.dtype).itemsize))

    def writer(self, handle: Handle, index: tuple[int, ...]) -> Access | None:
        """Who wrote an element of global memory last."""
        return exit_checks.writer(self, handle, index)

# --------------------------------------------------------------------------------------------------------------- accesses
    def _site(self) -> int:
        s = self.m.site
        if id(s) not in self.site_of:
            self.site_of[id(s)] = len(self.sites)
            self.sites.append(s)
        return self.site_of[id(s)]

    def _touch(self, place: Place, f: Frame, want: Mask) -> tuple[Array, Array]:
        """Granules and frame lanes of the elements that an access touches, flat."""
        width = storage(place.dtype).itemsize
        index = place.index
        if want is None and f.live is None and index.shape[0] == f.lanes:
            g = place.memory.granules(index, width)
            return g.reshape(-1), np.zeros(g.size, np.int64) if f.lanes == 1 else np.repeat(np.arange(f.lanes), g.size // max(1, f.lanes))
        rank = max(index.ndim, 1 if want is None else want.ndim) - 1
        index = lift(index, rank)
        shape = np.broadcast_shapes(index.shape, (f.lanes,) + (1,) * rank, (1,) if want is None else lift(want, rank).shape)
        chosen = np.ones(shape, np.bool_) if want is None else spread(lift(want, rank), shape)
        if f.live is not None:
            chosen = chosen & lift(f.live, rank)
        at = chosen.nonzero()
        g = place.memory.granules(spread(index, shape)[at], width)
        return g.reshape(-1), np.repeat(at[0], g.shape[-1])

    def on_read(self, place: Place, f: Frame, want: Mask, cache: str = "") -> Mask:
        """A read; returns which elements are defined. One with a policy of `SYNCHRONIZING` meets others as a relaxed atomic does."""
        self._registers(place.memory, f, "read")
        self._share(place.memory, f)
        run: Run | None = None
        if place.memory.shadow is not None and not (place.memory.owner is None and place.memory.name in self.read_only):
            g, lanes = self._touch(place, f, want)
            if cache in SYNCHRONIZING and place.memory.space == "global":
                self._contended(place.memory, g, lanes, f, storage(place.dtype).itemsize, False, cache, False)
            else:
                run = self._read(place.memory, g, lanes, f, cache)
        self._widths(place, f, want)
        if self.m.traffic:
            count_traffic(self.m.counters, place, f, want)
        if run is not None and want is None and f.live is None and place.memory.valid is not None and every(run.of(place.memory.valid)):
            return None
        return self.validity(place.memory, place.index, storage(place.dtype).itemsize)

    def on_write(self, place: Place, f: Frame, want: Mask, value: Val, cache: str = "") -> None:
        """A write, about to happen; marks what it defines. One with a policy of `SYNCHRONIZING` meets others as a relaxed atomic does."""
        memory, width = place.memory, storage(place.dtype).itemsize
        self._registers(memory, f, "write")
        self._share(memory, f)
        if want is None and value.ok is None and memory.shadow is None:
            self._in_registers(memory, f)
            self.mark(memory, place.index, width, None)
            return
        rank = max(place.index.ndim, value.data.ndim) - 1
        index, data = lift(place.index, rank), lift(value.data, rank)
        shape = np.broadcast_shapes(index.shape, data.shape, (1,) if want is None else lift(want, rank).shape)
        if shape[0] == 1 and f.lanes > 1 and memory.shadow is not None:
            shape = (f.lanes, *shape[1:])
        at: Any
        if want is None:
            count = math.prod(shape[1:])
            at, lanes = ..., np.zeros(count, np.int64) if shape[0] == 1 else np.repeat(np.arange(shape[0]), count)
        else:
            at = spread(lift(want, rank), shape).nonzero()
            lanes = at[0]
        elements = spread(index, shape)[at].reshape(-1)
        g, run = memory.granules(elements, width), None
        if memory.shadow is not None:
            if cache in SYNCHRONIZING and memory.space == "global":
                self._contended(memory, g.reshape(-1), np.repeat(lanes, g.shape[-1]), f, width, False, cache)
            else:
                run = self._write(memory, g, lanes, f, _Written(lambda: spread(data, shape)[at].reshape(-1), lambda: memory.typed(place.dtype)[elements]))
            self._widths(place, f, want)
            if self.m.traffic:
                count_traffic(self.m.counters, place, f, want)
        self._in_registers(memory, f)
        assert memory.valid is not None
        if value.ok is None and run is not None:
            run.of(memory.valid)[...] = True
        elif value.ok is None:
            memory.valid[g] = True
        else:
            memory.valid[g] = spread(lift(spread(value.ok, value.data.shape), rank), shape)[at].reshape(-1)[:, None]

    def quiet(self, f: Frame, reads: list[Handle], writes: list[Handle], in_place: list[Handle]) -> bool:
        """Whether there is nothing to say of a loop over these buffers, but for what it writes to tensors, some of them in place of what it reads there."""
        return quiet_loops.quiet(self, f, reads, writes, in_place)

    def untouched(self, h: Handle, elements: Array) -> bool:
        """Whether nobody has read or written these elements of a tensor yet."""
        return quiet_loops.untouched(h, elements)

    def wrote(self, h: Handle, elements: Array, lanes: Array, f: Frame, in_place: bool) -> None:
        """The statement that runs has written elements of a tensor, `untouched` until then, in ascending order, each by one lane, which before has read it
        where they are written in place."""
        g = h.memory.granules(elements, storage(h.buffer.dtype).itemsize)
        if in_place:
            self._read(h.memory, g.reshape(-1), np.repeat(lanes, g.shape[-1]), f)
        self._write(h.memory, g, lanes, f, None)
        assert h.memory.valid is not None
        h.memory.valid[g] = True
        self.lookahead.on_write(Place(h, h.memory, elements, None, []), None)

    def _in_registers(self, memory: Memory, f: Frame) -> None:
        """A generic write to registers: a product that uses them needs a fence first."""
        if self.multiplies and memory.space in ("fragment", "register") and not f.proxy:
            memory.written_at = self.m.site
            if memory.unfenced is None:
                memory.unfenced = np.zeros(memory.lanes, np.bool_)
                self.dirty.append(memory)
            elif every(memory.unfenced):
                return
            memory.unfenced[self.lanes_of(memory, f)] = True

    def on_atomic(self, place: Place, f: Frame, want: Mask, values: list[Val], attrs: dict[str, n.Attr], shape: tuple[int, ...]) -> Mask:
        """An atomic update, about to happen. It acquires what updates of the same elements released, and releases: all that its
        lane knows with order `release` or `acq_rel`, else what a fence has covered."""
        for v in values:
            self.m.must_be_defined(v, f, "an atomic operation")
        memory, width = place.memory, storage(place.dtype).itemsize
        g, lanes = self._touch(place, f, want)
        ok = self.validity(memory, place.index, width)
        if ok is not None:
            unused = False if want is None else ~np.broadcast_to(want, ok.shape)
            self.m.must_be_defined(Val(place.index, ok | unused), f, "an atomic operation")
        if memory.shadow is None or not len(g):
            return None
        self._contended(memory, g, lanes, f, width, attrs.get("scope") == "cta" and memory.space == "global", str(attrs.get("order", "relaxed")))
        return None

    def _contended(self, memory: Memory, g: Array, lanes: Array, f: Frame, width: int, narrow: bool, order: str,
                   publishes: bool = True) -> None:
        """An access to granules that may meet others of its kind: one by another thread is no race, and orders memory between the two. `narrow`: for the
        threads of one CTA alone."""
        assert memory.shadow is not None
        clocks, rows, agents = self._who(f)
        cta = clocks.numbers[rows[lanes]]
        found = memory.shadow.after_write(g, clocks, rows[lanes], cta, agents[lanes], f.proxy)
        self._conflict(found, memory, lanes, f, "update", None)
        found = memory.shadow.reads.conflicts(g, clocks, rows, agents, lanes, cta, "read")
        self._conflict(found, memory, lanes, f, "update", None)
        if narrow or memory.shadow.narrow is not None:  # atomic for the threads of one CTA alone
            at = np.flatnonzero(memory.shadow.of_cta(g, narrow))
            found = memory.shadow.updates.conflicts(g[at], clocks, rows, agents, lanes[at], cta[at], "update")
            found = found if found is not None and found.cta != int(cta[at][found.at]) else of_two(g[at], cta[at], self._site())
            self._conflict(found, memory, lanes[at], f, "update", None)
        memory.shadow.updates.note(g, cta, agents[lanes], clocks.now(rows[lanes], agents[lanes]), self._site(), clocks.count > 1 or self.m.clusters.size > 1)
        memory.shadow.note_update(g, cta, agents[lanes], clocks.now(rows[lanes], agents[lanes]))
        step = max(1, width // memory.granule)
        self._synchronize(memory, g[::step], lanes[::step], f, order, publishes)

    def _synchronize(self, memory: Memory, g: Array, lanes: Array, f: Frame, order: str, publishes: bool) -> None:
        if (memory.space == "shared" and order == "relaxed") or len(g) > 256:
            return
        clocks, rows, agents = self._who(f)
        if order not in ("acquire", "release", "acq_rel") and not (self.released or clocks.fenced or any(clocks.foreign)):
            return  # there is nothing yet that it could release or acquire
        for at, lane in zip(g.tolist(), lanes.tolist(), strict=True):
            key, row, agent = (self.m.number_of(memory), at), rows[lane : lane + 1], agents[lane : lane + 1]
            before = self.released.get(key)
            if before is not None:
                clocks.acquire(row, agent, before, order not in ("acquire", "acq_rel"))
            if publishes:
                self.released[key] = clocks.publish(row, agent, before, None if order in ("release", "acq_rel") else FENCED)

    def on_rows(self, place: Place, f: Frame, index: Array, lane: Array, verb: str) -> None:
        """Rows of 8 elements that lanes of a warp name for a matrix load or store; both shaped alike but for broadcasting."""
        lanes = np.broadcast_to(lane, index.shape).reshape(-1)
        chosen = f.active()[lanes]
        g = place.memory.granules(index.reshape(-1)[chosen], storage(place.dtype).itemsize)
        lanes = np.repeat(lanes[chosen], g.shape[-1])
        if verb == "read":
            self._read(place.memory, g.reshape(-1), lanes, f)
        else:
            self._write(place.memory, g, lanes[:: g.shape[-1]], f, None)

    def on_tensor(self, memory: Memory, g: Array, lane: int, f: Frame, verb: str, fenced: bool) -> None:
        """An access to granules of tensor memory by a lane; one that is `fenced` needs fences between it and those of other threads."""
        if fenced:
            self.unheard(memory, g, lane, f, verb)
        lanes = np.full(len(g), lane)
        if verb == "read":
            self._read(memory, g, lanes, f)
        else:
            self._write(memory, g[:, None], lanes, f, None)

    def on_barrier_object(self, place: Place, f: Frame, verb: str, proxy: int, agents: Array | None) -> None:
        """An mbarrier is initialized, or used: the use must know of the initialization."""
        memory = place.memory
        if memory.shadow is None:
            return
        g, lanes = self._touch(place, f, None if place.inside is None else place.inside)
        if verb == "write":
            width = len(g) // max(1, len(lanes))
            self._write(memory, g.reshape(-1, max(1, width)), lanes, f, None)
            self.mark(memory, place.index, 8, None)
            return
        clocks, rows, own = self._who(f)
        who = own if agents is None else agents
        cta = clocks.numbers[rows[lanes]]
        found = memory.shadow.after_write(g, clocks, rows[lanes], cta, who[lanes], proxy)
        self._conflict(found, memory, lanes, f, "use of the mbarrier", None)

    def _share(self, memory: Memory, f: Frame) -> None:
        """Registers of a team are watched for races from the first time that one of its sub-teams touches them."""
        if memory.shadow is None and memory.owner is not None and memory.owner is not f and memory.owner is not f.acts_for:
            memory.shadow = Shadow(memory.lanes * memory.size // memory.granule)

    def _registers(self, memory: Memory, f: Frame, verb: str) -> None:
        flying = memory.pending or (memory.read_by if verb == "write" else ())
        if flying:
            o = flying[0]
            origin = o.site.origin if o.site is not None else None
            other = Access.at("pending product", self.m.anchor(o.site), self.m.thread_name(f, 0), origin)
            self.m.report("async", "error", f"{verb} of '{memory.name}' while a {o.family} on it is pending", f, id="KIR-I016",
                          buffer=memory.name, verb=verb, accesses=(other,))

    def on_wgmma(self, registers: Memory, f: Frame) -> None:
        """A product is issued: generic writes to its registers need a fence first."""
        if registers.unfenced is not None and some(registers.unfenced[self.lanes_of(registers, f)]):
            s = registers.written_at
            other = Access.at("write", self.m.anchor(s), self.m.thread_name(f, 0), s.origin if s is not None else None)
            self.m.report("async", "error", f"'{registers.name}' was written since the last wgmma_fence", f, id="KIR-I016",
                          buffer=registers.name, verb="wgmma", accesses=(other,))

    def on_copy(self, s: n.Copy, source: Place, target: Place, f: Frame) -> None:
        """Alignment that the way of a copy needs, in bytes (KIR-I011)."""
        size = storage(target.dtype).itemsize
        vector = dict(s.attrs).get("vector")
        if s.via.startswith("vector("):
            width = int(s.via[7:-1]) * size
        elif s.via == "cp_async" and isinstance(vector, int):
            width = vector * size
        elif s.via in ("ldmatrix", "stmatrix"):
            width = 16
        elif s.via == "cp_async" and f.level == "thread":
            width = min(source.contiguous, target.contiguous) * size
            if width not in (4, 8, 16):
                self.m.report("alignment", "error", f"cp.async moves 4, 8 or 16 bytes, not {width}", f, id="KIR-I011", verb="copy")
                return
        elif s.via == "bulk":
            width = 16
            least = min(source.contiguous, target.contiguous) * size
            if least % 16:
                self.m.report("alignment", "error", f"a bulk copy moves multiples of 16 bytes, not {least}", f, id="KIR-I011", verb="copy")
                return
        elif s.via == "tma":
            for place in (source, target):
                if place.memory.space in ("shared", "cluster"):  # a swizzle moves the first 16 bytes within its 128
                    first = place.index.reshape(place.index.shape[0], -1)[:, :1] * size
                    self.aligned(place, first, 16 if place.handle.swizzles else 128, s.via)
            return
        else:
            return
        for place in (source, target):
            if place.memory.space in ("global", "shared", "cluster"):
                first, inside = place.index.reshape(place.index.shape[0], -1)[:, :1], place.inside
                if s.via not in ("bulk", "cp_async") or isinstance(vector, int):
                    whole = self._whole_vectors(place, max(1, width // size), s.via)
                    if whole is None:
                        return
                    first, inside = whole
                self.aligned(place, first * size, width, s.via, None if inside is None or first.shape != inside.shape else inside)

    def _whole_vectors(self, place: Place, chunk: int, what: str) -> tuple[Array, Mask] | None:
        """The index of the first element of each vector of `chunk` elements, and whether that is inside; reports vectors that are cut
        by the end of a row or the edge of a buffer (KIR-I011)."""
        name, inside = place.handle.buffer.name, place.inside
        if place.contiguous % chunk:
            self.m.report("alignment", "error", f"{what} of '{name}': rows of {place.contiguous} neighbors are no whole vectors of {chunk}",
                          None, id="KIR-I011", buffer=name, verb=what)
            return None
        if inside is not None and inside.shape == place.index.shape:
            parts = inside.reshape(*inside.shape[:-1], -1, chunk)
            if some(parts.any(-1) != parts.all(-1)):
                self.m.report("alignment", "error", f"{what} of '{name}': the edge of the buffer cuts a vector of {chunk}", None,
                              id="KIR-I011", buffer=name, verb=what)
                return None
            inside = inside[..., ::chunk]
        return place.index[..., ::chunk], inside
    def aligned(self, place: Place, at: Array, width: int, what: str, inside: Mask = None) -> None:
        """Reports addresses (bytes within their memory) that are no multiple of `width` (KIR-I011)."""
        bad = (at % place.memory.size + place.memory.phase) % width != 0
        if inside is not None:
            bad = bad & inside
        if some(bad):
            byte = int(at.reshape(-1)[int(bad.reshape(-1).argmax())]) % place.memory.size + place.memory.phase
            self.m.report("alignment", "error", f"{what} of '{place.handle.buffer.name}' at byte {byte} is not aligned to {width}", None,
                          id="KIR-I011", buffer=place.handle.buffer.name, verb=what)

    def _widths(self, place: Place, f: Frame, want: Mask) -> None:
        """A thread's contiguous 2, 4, 8 or 16 elements of at most 16 bytes are one vector access."""
        size = storage(place.dtype).itemsize
        width = place.contiguous * size
        if f.level != "thread" or place.contiguous not in (2, 4, 8, 16) or width > 16 or place.memory.space in ("register", "fragment"):
            return
        first = place.index[..., 0]
        bad = (first * size % place.memory.size + place.memory.phase) % width != 0
        rows = bad.reshape(bad.shape[0], -1).any(axis=1)
        rows = np.broadcast_to(rows, (f.lanes,)) & f.active()
        if want is not None:
            rows = rows & want.reshape(want.shape[0], -1).any(axis=1)
        if some(rows):
            lane = int(rows.argmax())
            self.m.report("alignment", "error", f"vector access of {width} bytes to '{place.handle.buffer.name}' is not aligned", f, lane,
                          id="KIR-I011", buffer=place.handle.buffer.name)

    def _run(self, memory: Memory, g: Array, lanes: Array, f: Frame, agents: Array) -> Run | None:
        """Granules that all lanes of a frame touch, each in its own memory, as a run, where one agent of each lane's CTA does."""
        if f.lanes == 1:
            return run_of(g, 1, 0)
        if memory.owner is None or memory.lanes != f.lanes or len(lanes) % f.lanes or len(g) < LEAST_RUN * f.lanes or f.lane_in(memory.owner) is not None:
            return None
        if not every(agents[:f.lanes] == agents[0]) or not every(lanes.reshape(f.lanes, -1) == np.arange(f.lanes)[:, None]):
            return None
        return run_of(g, f.lanes, memory.lanes * memory.size // memory.granule)

    def _read(self, memory: Memory, g: Array, lanes: Array, f: Frame, cache: str = "") -> Run | None:
        """Returns the granules as a run, where they are one, and nothing is to be said of it. What a relaxed atomic has told is enough for one that goes past
        the first cache, which may hold what was there before."""
        shadow = memory.shadow
        if shadow is None or not len(g):
            return None
        clocks, rows, agents = self._who(f)
        crowded = clocks.count > 1 or self.m.clusters.size > 1
        if (run := self._run(memory, g, lanes, f, agents)) is not None:
            at, by = rows[:f.lanes], agents[:f.lanes]
            known = shadow.all_known(run, clocks, at, by, f.proxy) and shadow.updates.all_known(run, clocks, at, by)
            now = clocks.now(at, by)[:, None]
            if known and shadow.reads.note_run(run, clocks.numbers[at][:, None], int(by[0]), now, self._site(), crowded):
                return run
        rows_, agent = rows[lanes], agents[lanes]
        cta = clocks.numbers[rows_]
        plain = memory.space == "global" and cache not in BEYOND_FIRST and f.acts_for is None
        for find in (partial(shadow.after_write, g, clocks, rows_, cta, agent, f.proxy),
                     partial(shadow.updates.conflicts, g, clocks, rows, agents, lanes, cta, "update")):
            if (found := find(plain=plain)) is not None:
                found.told = plain and find() is None
                self._conflict(found, memory, lanes, f, "read", None)
        shadow.reads.note(g, cta, agent, clocks.now(rows, agents)[lanes], self._site(), crowded)
        return None

    def _write(self, memory: Memory, g: Array, lanes: Array, f: Frame, what: _Written | None) -> Run | None:
        """`g` [elements, granules each] by frame lanes `lanes` [elements]. Returns the granules as a run, where they are one, and nothing is to be said
        of it."""
        shadow = memory.shadow
        if shadow is None or not g.size:
            return None
        clocks, rows, agents = self._who(f)
        per = g.shape[-1]
        flat = g.reshape(-1)
        if not shadow.updates.used and (run := self._run(memory, flat, lanes, f, agents)) is not None:
            at, by = rows[:f.lanes], agents[:f.lanes]
            if shadow.all_known(run, clocks, at, by, f.proxy, f.since) and shadow.reads.all_known(run, clocks, at, by):
                shadow.note_write_run(run, clocks.numbers[at][:, None], int(by[0]), clocks.now(at, by)[:, None], self._site(), f.proxy)
                return run
        wide = lanes if per == 1 else np.repeat(lanes, per)
        rows_, agent = rows[wide], agents[wide]
        cta = clocks.numbers[rows_]
        since = None if f.since is None else f.since[wide]
        found = shadow.after_write(flat, clocks, rows_, cta, agent, f.proxy, since)
        repeated = None if found is None or what is None else np.repeat(what.same(), per)
        if found is not None and repeated is not None and repeated[found.at] and not every(repeated):  # one that changes a value is told before others
            other = np.flatnonzero(~repeated)
            louder = shadow.after_write(flat[other], clocks, rows_[other], cta[other], agent[other], f.proxy, None if since is None else since[other])
            if louder is not None:
                louder.at, found = int(other[louder.at]), louder
        self._conflict(found, memory, wide, f, "write", repeated)
        self._conflict(shadow.reads.conflicts(flat, clocks, rows, agents, wide, cta, "read"), memory, wide, f, "write", None)
        if shadow.updates.used and len(open_ones := np.flatnonzero(~shadow.after_updates(flat, clocks, rows_, cta, agent))):
            lanes_ = wide[open_ones]
            self._conflict(shadow.updates.conflicts(flat[open_ones], clocks, rows, agents, lanes_, cta[open_ones], "update"), memory, lanes_, f, "write", None)
        self._collide(memory, g[:, 0], lanes, f, what)
        shadow.note_write(flat, cta, agent, clocks.now(rows, agents)[wide], self._site(), f.proxy)
        return None

    def _collide(self, memory: Memory, g: Array, lanes: Array, f: Frame, what: _Written | None) -> None:
        """Two instances, or two elements of a tile, that one statement writes to the same place."""
        if every(g[1:] > g[:-1]):
            return
        order = np.argsort(g, kind="stable")
        twice = np.flatnonzero(g[order][1:] == g[order][:-1])
        if not len(twice):
            return
        a, b = order[twice], order[twice + 1]
        if f.level == "thread":
            apart = lanes[a] != lanes[b]
            a, b = a[apart], b[apart]
        if not len(a):
            return
        new = None if what is None else what.new()
        loud = np.ones(len(a), np.bool_) if new is None else ~_same_bits(new[a], new[b])
        at = int(loud.argmax())
        s = self.m.site
        other = Access.at("write", self.m.anchor(s), self.m.thread_name(f, int(lanes[b[at]])), s.origin if s is not None else None)
        self.m.report("race", "error" if some(loud) else "weak", f"one store writes the same element of '{memory.name}' twice", f,
                      int(lanes[a[at]]), id="KIR-I014", buffer=memory.name, verb="write", accesses=(other,))

    def _conflict(self, found: Conflict | None, memory: Memory, lanes: Array, f: Frame, verb: str, same: Array | None) -> None:
        if found is None:
            return
        clocks, _, _ = self._who(f)
        site = self.sites[found.site]
        thread = f"CTA {found.cta}" + (f", {clocks.names[found.agent]}" if 0 < found.agent < len(clocks.names) else "")
        thread = {EARLIER: "the previous launch", UNAWAITED: "a launch before the previous one, which does not wait for it"}.get(found.cta, thread)
        other = Access.at(found.verb, self.m.anchor(site), thread,
                       site.origin if site is not None else None)
        lane = int(lanes[found.at])
        if found.proxy:
            message = f"'{memory.name}' is {'written' if verb == 'write' else 'read'} through the async proxy without a fence after generic writes"
            self.m.report("proxy", "error", message, f, lane, id="KIR-I015", buffer=memory.name, verb=verb, accesses=(other,))
            return
        weak = found.weak or (same is not None and found.verb == "write" and bool(same[found.at]))
        kind = f"{'an' if found.verb[0] in 'aeiou' else 'a'} {found.verb}"
        told = ": a relaxed atomic has told of it, and no fence comes behind that" if found.told else ""
        self.m.report("race", "weak" if weak else "error", f"{verb} of '{memory.name}' races with {kind}{told}", f, lane, id="KIR-I014",
                      buffer=memory.name, verb=verb, accesses=(other,))


def _by_element(memory: Memory, width: int) -> tuple[Any, Array | None]:
    """The flags of a memory's granules as one word for each element of `width` bytes, and the word of an element that is defined; None where an element
    has another number of granules than a word has bytes."""
    assert memory.valid is not None
    per, rest = divmod(width, memory.granule)
    if rest or per not in _ALL_DEFINED:
        return True, None
    return _ALL_DEFINED[per], memory.valid if per == 1 else memory.valid.view(f"u{per}")


_ALL_DEFINED = {1: True, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}


@dataclass(frozen=True)
class _Written:
    """What a write writes, by element, and what memory holds: looked at only where there is something to say."""

    new: Callable[[], Array]
    old: Callable[[], Array]

    def same(self) -> Array:
        """Where the value is already there."""
        return _same_bits(self.new(), self.old())


def _same_bits(a: Array, b: Array) -> Array:
    """Where two arrays of one dtype hold the same bits."""
    word = np.dtype(f"u{a.dtype.itemsize}")
    out: Array = np.equal(np.ascontiguousarray(a).view(word), np.ascontiguousarray(b).view(word))
    return out
