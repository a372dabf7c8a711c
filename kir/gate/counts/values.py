"""Values and accesses of a trace: what is computed, where, and how often; how addresses, guards and accesses are cut into instructions."""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kir.gate.counts import arithmetic
from kir.gate.counts.frames import (
    ADDRESS,
    BRANCH,
    BRANCHED,
    GUARDED,
    GUARDED_ADDRESS,
    L1_SHARE,
    OWN_ADDRESS,
    TILE_ADDRESS,
    UNDER_WAY,
    Frame,
    Guard,
    Stream,
    is_index,
    leaves,
    mma_shape,
    product,
    reads,
    takes_away,
    unit,
)
from kir.gate.counts.numbers import Integers, number
from kir.gate.counts.places import LANES, SECTOR, Around, Instances, Places, banks, side_by_side, swizzled
from kir.gate.counts.trace import Access, Barrier, Item, Key, Op, Team, Verb
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType, TileType, dtype_of, shape_of
from kir.ir.visit import names_read, once, walk

UPDATE, UPDATE_LATENCY = 3.0, 150.0
"""Instructions of an update of shared memory, and cycles until the next one of the same buffer can follow (measured pairs: 90 more than read, add, write)."""
PEER_CYCLES, PEER_LATENCY, STORED = 9.0, 180.0, "what is stored"
"""Cycles that an SM takes for 128 bytes of another's shared memory, and until they are there (Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture via Microbenchmarking, 2024: 180 cycles, 3.3 TB/s of all SMs); and what such a load waits for that is written through a pointer of any space."""
QUAD, ROWS_OF_WARP = 4, 16
"""Lanes that hold a row of a matrix unit's tile, and the least rows that a warp has of it (PTX ISA, fragments of `mma` and `wgmma`)."""
LOCAL = 28.0
"""Cycles until an element of local memory is there, which L1 holds, and as many until what was stored can be read (fitted to sorts by bytes, whose counts are
such an array: `benchmarks/data/effects`)."""
MOST_ELEMENTS = 4096
"""Elements of a tile that are looked at; the others lie as these do."""


def _sectors(at: Integers) -> float:
    """Sectors that the places of a tile lie in."""
    flat = at.reshape(-1)
    some = flat[:MOST_ELEMENTS]
    return float(len(np.unique(some // SECTOR))) * len(flat) / len(some)


class Values:
    """A trace under construction, as far as values and accesses go. `team` are the instances that run a statement, `warps` how many warps they
    are, `of_team` the threads that share a tile, `share` the part of the warps that a branch takes."""

    def __init__(self, places: Places, l1: float, threads: int, as_written: bool) -> None:
        self.places, self.l1, self.as_written = places, l1, as_written
        self.crosswise = False
        """Whether elements of a tile are gone through in an order in which they do not lie in memory."""
        self.values = places.values
        self.out = Stream(Team(max(1.0, threads / LANES)), threads)
        self.frames: list[Frame] = []
        self.depths: dict[str, int] = {}
        self.warps = max(1.0, threads / LANES)
        self.share = 1.0
        self.team = Instances()
        self.of_team = threads
        self.next = 0
        self.stages = 1
        self.slots: dict[str, int] = {}
        self.begun: dict[str, n.Region] = {}
        self.local: frozenset[str] = frozenset()
        self.compiler = ""
        """Arrays of a thread that lie in its local memory."""
        self.products: set[str] = set()
        """Accumulators of matrix products, and names of tiles that lie as they do."""
        self.views: dict[str, str] = {}
        """Other names of global memory, and the buffer that each is of."""
        self.beside: dict[str, int] = {}
        """Variables of warps and warpgroups that run side by side, and how many there are."""
        self.peers = False
        """Whether memory of other CTAs has been read."""

    @property
    def depth(self) -> int:
        return len(self.frames) - 1

    def put(self, item: Item, depth: int | None = None) -> None:
        self.frames[self.depth if depth is None else min(depth, self.depth)].items.append(item)

    def key(self) -> int:
        self.next += 1
        return self.next

    # ---------------------------------------------------------------------------------------------------------------- expressions
    def _each(self, elements: float) -> float:
        """Elements of one thread of the team."""
        return max(1.0, elements / max(1, self.of_team)) if elements > 1 else elements

    def elements(self, e: n.Expr | n.Region) -> float:
        return float(math.prod(number(d, self.values) or 1 for d in shape_of(e.type)))

    def _depth(self, e: n.Node) -> int:
        """The innermost open loop on which a value depends, unrolled ones aside where it is an index."""
        names, buffers, together = once(e, "_leaves", lambda: leaves(e))
        if together:
            return self.depth
        deepest = max((self.depths.get(name, 0) for name in names), default=0)
        return max(deepest, max((self._of_memory(name, space) for name, space in buffers), default=0)) if buffers else deepest

    def _of_memory(self, name: str, space: str) -> int:
        """The innermost open loop that may change what a buffer holds."""
        for i in range(self.depth, 0, -1):
            f = self.frames[i]
            if name in f.changes or (space in ("shared", "global") and (space in f.spaces or "sync" in f.spaces)):
                return i
        return 0

    def _rolled(self, depth: int) -> int:
        """The innermost loop from `depth` outward that is not unrolled."""
        while depth > 0 and self.frames[min(depth, self.depth)].unrolled:
            depth -= 1
        return depth

    def value(self, e: n.Expr) -> Key | None:
        """The key of an expression's value; None for literals."""
        match e:
            case n.Const():
                return None
            case n.Var():
                return e.name
            case n.Load() if e.at.buffer.space in ("register", "fragment"):
                places = [k for i in e.at.index if isinstance(i, n.Expr) and (k := self.value(i)) is not None]
                if e.at.buffer.name not in self.local:
                    return e.at.buffer.name
                key = self.key()
                self.put(Op("memory", 1.0, 1.0, LOCAL, (*places, e.at.buffer.name), key, share=self.share))
                return key
        index = is_index(e)
        depth = min(self._depth(e), self.depth)
        if index:
            depth = self._rolled(depth)
        memo = self.frames[depth].memo
        if e in memo:
            return memo[e]
        made = self._computed(e, depth)
        memo[e] = made
        return made

    def _computed(self, e: n.Expr, depth: int) -> Key | None:
        match e:
            case n.Load():
                return self._load(e, depth)
            case n.Binary(op="add" | "sub") if dtype_of(e.type).name in ("f32", "f64") and (factors := product(e)) is not None:
                other = e.b if factors is e.a else e.a
                reads = [self.value(x) for x in (factors.a, factors.b, other)]
                return self._operation(e, depth, reads)
            case n.Call():
                return self._called(e, depth)
            case n.Cast() if isinstance(e.x, n.Binary | n.Load | n.Var | n.Cast | n.Call | n.Select | n.Unary):
                return self._operation(e, depth, [self.value(e.x)])
            case n.Address():
                return self._address(e.at, depth)
            case _:
                return self._operation(e, depth, [self.value(getattr(e, name)) for name in ("cond", "a", "b", "x") if hasattr(e, name)])

    def _operation(self, e: n.Expr, depth: int, reads: Sequence[Key | None]) -> Key | None:
        cost = arithmetic.cost(e)
        kept = tuple(r for r in reads if r is not None)
        if not cost.pipes and len(kept) == 1:
            return kept[0]
        count = self._each(self.elements(e)) * self._once(e, depth)
        key = self.key()
        varies = self._varies(e)
        for i, (pipe, many) in enumerate(cost.pipes or (("none", 0.0),)):
            own = i == 0
            latency, gives = (cost.latency, key) if own else (0.0, None)
            self.put(Op(pipe, many * count, 1.0, latency, kept if own else (), gives, share=self.share, varies=varies), depth)
        return key

    def _once(self, e: n.Node, depth: int) -> float:
        """The part of the rounds of open unrolled loops in which a value is worked out: where one does not change it, in the first."""
        if not any(f.unrolled for f in self.frames[1:depth + 1]):
            return 1.0
        read, buffers, together = once(e, "_leaves", lambda: leaves(e))
        if together:
            return 1.0
        names = {x.name for x in self._expanded(e) if isinstance(x, n.Var)} if isinstance(e, n.Expr) else read
        out = 1.0
        for f in self.frames[1:depth + 1]:
            if f.unrolled and f.var not in names and not any(name in f.changes or (space in ("shared", "global") and (space in f.spaces or "sync" in f.spaces))
                                                              for name, space in buffers):
                out /= f.trips
        return out

    def _varies(self, e: n.Node) -> frozenset[str]:
        """Open unrolled loops whose rounds touch registers of their own."""
        if not any(f.unrolled for f in self.frames):
            return frozenset()
        read = once(e, "_names", lambda: names_read(e))
        return frozenset(f.var for f in self.frames if f.unrolled and f.var in read)

    def _called(self, e: n.Call, depth: int) -> Key | None:
        reads = tuple(k for a in e.args if isinstance(a, n.Expr) and (k := self.value(a)) is not None)
        first = e.args[0] if e.args else None
        if e.fn == "mma_sync" and isinstance(first, n.Expr):
            m, columns, k = mma_shape(str(dict(e.attrs).get("shape", "m16n8k16")))
            key = self.key()
            of = unit(dtype_of(first.type), "")
            self.put(Op("tensor", 1.0, 2.0 * m * columns * k, 1.0, reads, key, share=self.share, dtype=of, varies=self._varies(e)), depth)
            return key
        if e.fn in ("ldmatrix", "atomic_load") or e.fn.startswith("atomic"):
            return self._memory_call(e, depth, reads)
        if e.fn in ("reduce", "scan") and isinstance(first, n.Expr):
            return self._reduce(e, first, reads, depth)
        if e.fn in ("sort", "gather", "histogram"):
            count = self._each(self.elements(first) if isinstance(first, n.Expr) else 1.0)
            steps = math.log2(max(2.0, self.elements(first) if isinstance(first, n.Expr) else 2.0)) ** 2 / 2 if e.fn == "sort" else 2.0
            key = self.key()
            self.put(Op("shared", count * steps, 1.0, 25.0 * steps, reads, key, share=self.share), depth)
            return key
        return self._operation(e, depth, reads)

    def _reduce(self, e: n.Call, first: n.Expr, reads: tuple[Key, ...], depth: int) -> Key:
        """A reduction of a tile: each thread its own elements, then lanes by shuffles, then warps through shared memory."""
        total, key = self.elements(first), self.key()
        kept = self.elements(e) if isinstance(e.type, DType | TileType) else 1.0
        own = self._each(total)
        op = str(dict(e.attrs).get("op", "add"))
        deep = 4.0 * max(1.0, own / max(1.0, self._each(kept)) / 2)
        self.put(Op("fma" if op in ("add", "sum") else "alu", own, 1.0, deep, reads, key, share=self.share), depth)
        if self.of_team > 1:
            across = max(1.0, total / max(1.0, kept))
            rows = self._row_of_product(e, first, across)
            lanes = rows or min(float(LANES), across, float(self.of_team))
            exchanged = max(1.0, kept * lanes / self.of_team)
            self.put(Op("shared", exchanged * math.log2(max(2.0, lanes)), 1.0, 25.0 * math.log2(max(2.0, lanes)), (key,), key, share=self.share), depth)
            if across > LANES and self.of_team > LANES and not rows:
                self.put(Op("shared", 2.0, 1.0, 60.0, (key,), key, share=self.share), depth)
                self.put(Barrier(), depth)
        return key

    def _row_of_product(self, e: n.Call, first: n.Expr, across: float) -> float:
        """The lanes that hold a row of a tile that lies as matrix units leave it, where it is reduced along its rows and each warp has rows of its own: four
        (PTX ISA, fragments of `wgmma` and `mma`); else 0."""
        shape = shape_of(first.type)
        if len(shape) != 2 or int(dict(e.attrs).get("axis", -1)) not in (1, -1) or not self.as_product(first):
            return 0.0
        rows = number(shape[0], self.values) or 1
        return float(QUAD) if rows * LANES >= ROWS_OF_WARP * self.of_team and across >= QUAD else 0.0

    def as_product(self, e: n.Expr) -> bool:
        """Whether a tile lies in registers as a matrix unit left it: element by element from an accumulator."""
        shape = shape_of(e.type)
        return any((isinstance(x, n.Load) and x.at.buffer.name in self.products and shape_of(x.type) == shape)
                   or (isinstance(x, n.Var) and x.name in self.products and shape_of(x.type) == shape) for x in walk(e))

    # --------------------------------------------------------------------------------------------------------------------- memory
    def _address(self, r: n.Region, depth: int) -> Key | None:
        """The arithmetic of a place: its indices, and their sum with the buffer's address."""
        keys: list[Key] = []
        for i in r.index:
            for x in ((i.lo,) if isinstance(i, n.Span) else (i,)):
                if (k := self.value(x)) is not None:
                    keys.append(k)
        if r.buffer.space in ("register", "fragment") or not r.index:
            return keys[-1] if keys else None
        at = n.Address(n.Region(r.buffer, tuple(i.lo if isinstance(i, n.Span) else i for i in r.index)))
        depth = self._rolled(min(self._depth(at), self.depth))
        memo = self.frames[depth].memo
        if at in memo:
            return memo[at]
        key = self.key()
        many = (2.0 if r.buffer.space == "global" else 1.0) + (2.0 if self._is_swizzled(r.buffer) else 0.0)
        elements = self._each(self.elements(r)) if any(shape_of(i.type) for i in r.index if isinstance(i, n.Expr)) else 1.0
        self.put(Op("alu", many * elements, 1.0, 4.5 * min(2.0, many), tuple(keys), key, share=self.share), depth)
        memo[at] = key
        return key

    def _is_swizzled(self, b: n.Buffer) -> bool:
        return self.as_written and b.layout is not None and b.layout.name == "swizzle"

    def _guards(self, r: n.Region, clip: bool, mask: n.Expr | None, depth: int) -> Guard:
        """What is compared before an access that may leave its buffer, or is masked."""
        keys: list[Key] = []
        deep, sides = 0, 0
        if mask is not None and (k := self.value(mask)) is not None:
            keys.append(k)
            deep, sides = self._depth(mask), 1
        if clip:
            for d, i in zip(r.buffer.shape, r.index, strict=False):
                e = i.lo if isinstance(i, n.Span) else i
                if int_value(d) is not None or int_value(e) == 0:
                    continue
                each = 2 if self._may_be_negative(e) else 1
                sides = max(sides, each)
                own = min(depth, self._depth(e))
                deep = max(deep, own)
                key = self.key()
                self.put(Op("alu", float(each), 1.0, 4.5, (), key, share=self.share), own)
                keys.append(key)
        return Guard(tuple(keys), deep > 0, sides == 2)

    def _expanded(self, e: n.Expr) -> list[n.Node]:
        """A value and everything below it, names between replaced by what they stand for."""
        out: list[n.Node] = []
        left, seen = [e], set()
        while left:
            for x in walk(left.pop()):
                out.append(x)
                if isinstance(x, n.Var) and x.name not in seen and isinstance(held := self.values.get(x.name), n.Expr):
                    seen.add(x.name)
                    left.append(held)
        return out

    def _may_be_negative(self, e: n.Expr) -> bool:
        """Whether nobody sees that an index is 0 or more: it is divided by a difference."""
        for x in self._expanded(e):
            if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None and any(map(takes_away, self._expanded(x.b))):
                return True
        return False

    def around(self, depth: int) -> list[Around]:
        return [Around(f.var, f.lo, f.step, f.trips, f.number) for f in self.frames[1:depth + 1]]

    def _load(self, e: n.Load, depth: int) -> Key:
        place = self._address(e.at, depth)
        guards = self._guards(e.at, e.clip, e.mask, depth)
        before = len(self.frames[depth].items)
        key = self._moved(e.at, "read", (*(() if place is None else (place,)), *guards.keys), depth, guard=guards)
        if e.cache and self.as_written and e.at.buffer.space == "global":
            self.put(Op("alu", OWN_ADDRESS * self._each(self.elements(e.at)), latency=4.5, share=self.share), depth)
        if (part := self._once(e, depth)) < 1.0:
            for made in self.frames[depth].items[before:]:
                if isinstance(made, Op):
                    made.count *= part
                    if made.access is not None:
                        made.access.executions *= part
        return key

    def _moved(self, r: n.Region, verb: Verb, reads: tuple[Key, ...], depth: int, width: int = 0, apart: str = "", guard: Guard | None = None) -> Key:
        """The instructions of an access by all lanes of the team."""
        key = self.key()
        at = self.places.warp(r, self.team)
        elements = self._each(self.elements(r))
        if not self.team.variables and self.elements(r) > 1:
            return self._tile(r, verb, reads, depth, key, apart)
        shape = self.places.shape(r, at, elements, width)
        latency = 0.0 if verb != "read" else 1.0
        if r.buffer.space == "global":
            if any(f.var in self.places.names(r) for f in self.frames[1:]):
                many = (GUARDED_ADDRESS if guard and guard.moving else ADDRESS) + (BRANCH if guard and guard.two_sided else 0.0)
                place = self.key()
                self.put(Op("alu", many / 2 * shape.instructions, latency=4.5 * many, reads=reads, writes=place, share=self.share), depth)
                self.put(Op("fma", many / 2 * shape.instructions, share=self.share), depth)
                reads = (place,)
            access = self.places.access(r, verb, self.team, self.warps * self.share, at, shape, self.around(depth), self.l1 * L1_SHARE)
            most = BRANCHED if guard and guard.two_sided else GUARDED if guard and guard.moving else UNDER_WAY
            self.put(Op("memory", shape.instructions, shape.cycles, latency, reads, key if verb != "write" else None, access, self.share, self._varies(r),
                        most=most * max(1.0, shape.instructions) if verb == "read" else 0.0), depth)  # elements of one lane lie in the same sectors
        elif verb == "update":  # read, changed, and written where nobody else has: one after another
            turn = f"update {r.buffer.name}"
            self.put(Op("shared", UPDATE * shape.instructions, shape.cycles, UPDATE_LATENCY, (*reads, turn), turn, None, self.share, self._varies(r)), depth)
            return turn
        elif r.buffer.space == "cluster" and verb == "read":  # by a pointer of any space: not before what was stored until then
            self.peers = True
            cycles, reads = shape.cycles * PEER_CYCLES, (*reads, STORED)
            self.put(Op("shared", shape.instructions, cycles, PEER_LATENCY, reads, key, None, self.share, self._varies(r)), depth)
        else:
            self.put(Op("shared", shape.instructions, shape.cycles, latency, reads, key if verb != "write" else None, None, self.share, self._varies(r)), depth)
        return key

    def _tile(self, r: n.Region, verb: Verb, reads: tuple[Key, ...], depth: int, key: int, apart: str) -> Key:
        """An access to a whole tile by a team whose compiler distributes it: in vectors, as far as neighbors lie side by side."""
        size, total = r.buffer.dtype.bytes, self.elements(r)
        at = self.places.warp(r, Instances())
        vector = size
        if at is not None and at.size > 1:
            flat = np.sort(at.reshape(-1)[:MOST_ELEMENTS])
            runs = 1 + int(np.count_nonzero(np.diff(flat) > size))
            while not self.crosswise and vector * 2 <= 16 and vector * 2 <= len(flat) / runs * size and total * size / (vector * 2) >= self.of_team:
                vector *= 2
        instructions = max(1.0, self._each(total) * size / vector)
        if r.buffer.space != "global":
            cycles = float(max(1, vector // 4))
            self.put(Op("shared", instructions, cycles, 1.0 if verb == "read" else 0.0, reads, key, share=self.share), depth)
            return key
        asked = instructions * self.warps * max(1.0, vector * LANES / 32) if at is None else total if self.crosswise and verb == "write" else _sectors(at)
        around = self.around(depth)
        names = self.places.names(r)
        moving = [a for a in around if a.var in names]
        executions, own = math.prod(a.trips for a in around), math.prod(a.trips for a in moving)
        turns = self.places.turns(around)
        taken = math.prod(a.trips for a in moving if a in turns)
        touched = asked * SECTOR * own / taken
        distinct, unique = self.places.grid(r, names, touched, turns)
        again = executions / own if touched > self.l1 * L1_SHARE or verb != "read" else 1.0
        requests = instructions * self.warps
        access = Access(r.buffer.name, verb, requests, max(asked, requests), asked, touched, again, executions, distinct, unique,
                        moved=touched * taken * again, first=self.places.first(r, Instances(), around), turns=math.prod(a.trips for a in turns),
                        rounds=self.places.rounds(r, asked * SECTOR, around, names), reach=0.0 if at is None else side_by_side(at))
        cycles = max(1.0, vector * LANES / 128)
        if apart != "copy":
            self.put(Op("alu", instructions * TILE_ADDRESS, latency=4.5, share=self.share), depth)
        made = Op("memory", instructions, cycles, 1.0 if verb != "write" else 0.0, reads, key, access, self.share)
        made.apart = "copy" if apart == "copy" else ""
        self.put(made, depth)
        return key

    def store(self, r: n.Region, value: Key | None, mask: n.Expr | None, clip: bool, width: int = 0, source: n.Expr | None = None) -> None:
        """A write; 16-bit elements that are read one by one are packed into registers two by two."""
        own = () if value is None else (value,)
        for f in self.frames:
            for e in [e for e in f.memo if reads(e, r.buffer)]:
                del f.memo[e]
        if r.buffer.space in ("register", "fragment"):
            places = tuple(k for i in r.index if isinstance(i, n.Expr) and (k := self.value(i)) is not None)
            if r.buffer.name in self.local:
                self.put(Op("memory", 1.0, 1.0, LOCAL, (*own, *places), r.buffer.name, share=self.share))
                return
            packed = r.buffer.dtype.bytes < 4 and not shape_of(r.type) and isinstance(source, n.Load)
            made = Op("alu", 0.5, latency=4.5) if packed else Op("none", 0.0)
            made.reads, made.writes, made.share, made.varies = own, r.buffer.name, self.share, self._varies(r)
            self.put(made)
            return
        place = self._address(r, self.depth)
        guards = self._guards(r, clip, mask, self.depth)
        self._moved(r, "write", (*own, *(() if place is None else (place,)), *guards.keys), self.depth, width, guard=guards)
        if self.peers and r.buffer.space == "global":
            self.put(Op("none", 0.0, reads=own, writes=STORED, share=self.share))

    def _memory_call(self, e: n.Call, depth: int, reads: tuple[Key, ...]) -> Key:
        region = next((a for a in e.args if isinstance(a, n.Region)), None)
        key = self.key()
        if region is None:
            return key
        place = self._address(region, depth)
        reads = (*reads, *(() if place is None else (place,)))
        if e.fn in ("ldmatrix", "stmatrix"):
            at = self.places.warp(region, self.team)
            many = int(dict(e.attrs).get("num", 4))
            shape = self.places.shape(region, None if at is None else at[:8 * many, :1], 1.0)
            cycles = float(many)
            if at is not None and self.as_written:
                rows = swizzled(region.buffer, at[:8 * many, 0])
                cycles = sum(banks(part, 16) for part in np.array_split(rows, many))
            del shape
            self.put(Op("shared", 1.0, cycles, 8.0 if e.fn == "ldmatrix" else 0.0, reads, key, share=self.share, varies=self._varies(e)), depth)
            return key
        return self._moved(region, "update", reads, depth)
