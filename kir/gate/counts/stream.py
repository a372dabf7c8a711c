"""From a kernel of threads (or of tiles, as their compilers deal them out) to the trace of what its warps do.

What an optimizing compiler does by itself is done here: equal expressions are computed once, what does not change in a loop before it, a product and a
sum in one instruction, unrolled loops with constant offsets, tiles of neighbors in vectors.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from kir.base.dataclass import dataclass
from kir.gate.counts import arithmetic
from kir.gate.counts.numbers import Value, Values, evaluate, number
from kir.gate.counts.places import LANES, Around, Instances, Places
from kir.gate.counts.trace import Access, Barrier, Item, Key, Loop, Op, Team, Verb, Wait
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType, TileType, dtype_of, shape_of
from kir.ir.visit import names_read, once, statements, walk

UNROLLED = ("unroll", "static", "vectorize")
L1_SHARE = 0.6
"""How much of L1 the lines of one access may take before they are thrown out (others are there as well)."""
BY_ITSELF = 4.0
"""Rounds of a loop of scalars that LLVM, and nvcc without a pragma, make one of (nvcc 13.0, Triton 3.6: four)."""
LEAST_COLUMNS = 28
"""Columns that a wgmma takes the time of at least (*micro*: 14 cycles for 8 columns of f16 by 16, 63 for 128)."""
ADDRESS, GUARDED_ADDRESS, BRANCH = 1.0, 5.0, 5.0
"""Instructions of 64-bit arithmetic that an access to global memory takes besides its indices where it moves with a loop: pointers are counted up,
or, under a condition that the loop changes, computed anew (products of 64 bits, a sum with carry, the pointer read from the constants); and those of a
branch around it, where the condition has two sides (an index that may be negative)."""
TILE_ADDRESS = 3.0
"""Instructions of addresses and conditions that each vector of a tile takes where the compiler deals it out."""
UNDER_WAY, GUARDED, BRANCHED = 16.0, 4.0, 2.0
"""Loads that a thread has under way in unrolled code: all that the compiler has registers for, those under a condition, those in a branch of their own."""


@dataclass
class Frame:
    """An open loop (or the kernel): its items so far, what its body changes, and what was computed in it."""

    var: str
    trips: float
    unrolled: bool
    lo: int = 0
    step: int = 1
    items: list[Item] = field(default_factory=list)
    changes: frozenset[str] = frozenset()
    spaces: frozenset[str] = frozenset()
    memo: dict[n.Expr, Key | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Guard:
    """Conditions before an access: their results, whether a loop changes them, and whether one has two sides."""

    keys: tuple[Key, ...] = ()
    moving: bool = False
    two_sided: bool = False


@dataclass
class Stream:
    """The trace of one kernel, and what it declares. `unknown` names what was not counted."""

    team: Team
    threads: int
    shared: int = 0
    registers: int = 0
    stages: int = 1
    unknown: list[str] = field(default_factory=list)


def stream(kernel: n.Kernel, values: Values, axes: Sequence[tuple[str, int]], together: int, l1: float, as_written: bool = True) -> Stream:
    """The trace of a kernel at one CTA: `values` of sizes and of the grid's variables, `axes` of the grid with their extents, of which `together` CTAs run at the
    same time with `l1` bytes of L1 each. Without `as_written` the surface's compiler lays out shared memory, and copies in vectors."""
    threads = number(kernel.threads, values) or 1
    builder = _Builder(Places(dict(values), axes, together, as_written), l1, threads, as_written)
    builder.begin(kernel.body)
    builder.block(kernel.body)
    out = builder.out
    out.team.body = builder.frames[0].items
    return out


def changed(block: n.Block) -> tuple[frozenset[str], frozenset[str]]:
    """Buffers that a block writes, and the spaces that it writes, with `sync` where it waits for others."""
    names: set[str] = set()
    spaces: set[str] = set()
    for s in statements(block):
        match s:
            case n.Store():
                names.add(s.at.buffer.name)
                spaces.add(s.at.buffer.space)
            case n.Copy():
                names.add(s.dst.buffer.name)
                spaces.add(s.dst.buffer.space)
            case n.Mma():
                names.add(s.acc.buffer.name)
            case n.Eval():
                spaces.add("sync")
                for a in s.call.args:
                    if isinstance(a, n.Region):
                        names.add(a.buffer.name)
                        spaces.add(a.buffer.space)
            case _:
                pass
    return frozenset(names), frozenset(spaces)


class _Builder:
    def __init__(self, places: Places, l1: float, threads: int, as_written: bool) -> None:
        self.places, self.l1, self.as_written = places, l1, as_written
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

    # ------------------------------------------------------------------------------------------------------------------ structure
    def begin(self, body: n.Block) -> None:
        names, spaces = changed(body)
        self.frames.append(Frame("", 1.0, False, changes=frozenset(), spaces=frozenset()))
        self.everything = names, spaces

    @property
    def depth(self) -> int:
        return len(self.frames) - 1

    def put(self, item: Item, depth: int | None = None) -> None:
        self.frames[self.depth if depth is None else min(depth, self.depth)].items.append(item)

    def key(self) -> int:
        self.next += 1
        return self.next

    def block(self, block: n.Block) -> None:
        for s in block:
            self.statement(s)

    def statement(self, s: n.Stmt) -> None:
        match s:
            case n.For():
                self._for(s)
            case n.If():
                self._if(s)
            case n.While():
                self.out.unknown.append("while")
                self._body("", 1.0, False, s.body, 0, 1)
            case n.Roles():
                self._roles(s)
            case n.Alloc():
                self._alloc(s)
            case n.Let():
                self._let(s)
            case n.Store():
                self.store(s.at, self.value(s.value), s.mask, s.clip, source=s.value)
            case n.Copy():
                self._copy(s)
            case n.Mma():
                self._mma(s)
            case n.Eval():
                self._call_for_effect(s.call)
            case n.Opaque() | n.Hole():
                self.out.unknown.append("text that is not understood" if isinstance(s, n.Opaque) else "a hole")
            case _:
                pass

    def _for(self, s: n.For) -> None:
        lo, hi, step = (number(x, self.values) for x in (s.lo, s.hi, s.step))
        trips = None if lo is None or hi is None or not step else max(0, -(-(hi - lo) // step))
        if s.kind in ("thread", "warp", "warpgroup"):
            self._teams(s, trips or 1)
            return
        if trips is None:
            lo, hi, step = self._bounds(s)
            trips = None if lo is None or hi is None or not step else max(0, -(-(hi - lo) // step))
        if trips is None:
            self.out.unknown.append(f"loop {s.label or s.var.name}")
            lo, step, trips = 0, 1, 1
        assert lo is not None and step is not None
        if trips == 0:
            return
        factor = int(dict(s.attrs).get("factor", 0)) if s.kind in UNROLLED else 1
        if s.kind == "pipelined":
            self.out.stages = max(self.out.stages, int(dict(s.attrs).get("stages", 1)))
        together = float(min(trips, factor) if factor else trips) if s.kind in UNROLLED else 1.0
        if not self.as_written and s.kind == "serial" and trips >= BY_ITSELF and _scalar(s.body):
            together = BY_ITSELF
        self._body(s.var.name, float(trips), s.kind in UNROLLED, s.body, lo, step, together,
                   int(dict(s.attrs).get("stages", 1)) if s.kind == "pipelined" else 1)

    def _bounds(self, s: n.For) -> tuple[int | None, int | None, int | None]:
        """Bounds that differ between the threads of a team, in the middle."""
        seen = {**self.values, **self.team.of(0, min(self.team.count, LANES))} if self.team.variables else self.values
        out = []
        for e in (s.lo, s.hi, s.step):
            found = evaluate(e, seen)
            out.append(None if found is None else int(np.ceil(np.mean(found))))
        return out[0], out[1], out[2]

    def _body(self, var: str, trips: float, unrolled: bool, body: n.Block, lo: int, step: int, together: float = 1.0, stages: int = 1) -> None:
        names, spaces = changed(body)
        frame = Frame(var, trips, unrolled and together >= trips, lo, step, changes=names, spaces=spaces)
        held = self.values.get(var)
        self.frames.append(frame)
        self.depths[var] = self.depth
        before, self.stages = self.stages, stages if stages > 1 else self.stages
        if var:
            self.values[var] = lo + int(trips) // 2 * step
        if together < trips:
            self.put(Op("alu", 2.0 / together, latency=4.0))
        self.block(body)
        self.stages = before
        self.frames.pop()
        if var and held is not None:
            self.values[var] = held
        if stages > 1:
            frame.items = _pipelined(frame.items, stages)
        self.put(Loop(var, trips, together, frame.items))

    def _teams(self, s: n.For, count: int) -> None:
        before = (self.team, self.warps, self.of_team, self.share)
        size = {"thread": 1, "warp": LANES, "warpgroup": 4 * LANES}[s.kind]
        self.team = Instances((*self.team.variables, (s.var.name, count))) if s.kind == "thread" or self.team.variables or s.kind != "thread" else self.team
        inner = any(isinstance(x, n.For) and x.kind == "thread" for x in statements(s.body))
        if s.kind == "thread":
            outer = math.prod(c for _, c in before[0].variables)
            self.warps, self.of_team = max(1.0, outer * count / LANES), 1
        else:
            self.warps = max(1.0, count * size / LANES)
            self.of_team = size
        self.values[s.var.name] = 0
        self.depths[s.var.name] = 0
        if s.kind != "thread" and not inner:
            self.team = before[0]
        items, self.frames[-1].items = self.frames[-1].items, []
        self.block(s.body)
        inside = self.frames[-1].items
        self.frames[-1].items = items
        if self.warps == before[1]:
            items += inside
        else:
            items.append(Team(self.warps, inside))
        self.team, self.warps, self.of_team, self.share = before

    def _roles(self, s: n.Roles) -> None:
        teams = []
        before = (self.team, self.warps, self.of_team, self.share)
        for role in s.roles:
            self.warps, self.of_team, self.team, self.share = float(role.hi - role.lo), (role.hi - role.lo) * LANES, Instances(), 1.0
            items, self.frames[-1].items = self.frames[-1].items, []
            self.block(role.body)
            teams.append(Team(self.warps, self.frames[-1].items))
            self.frames[-1].items = items
        self.team, self.warps, self.of_team, self.share = before
        self.put(Team(self.warps, [], tuple(teams)))

    def _if(self, s: n.If) -> None:
        self.value(s.cond)
        share = self._holds(s.cond)
        before = self.share
        if share > 0.0:
            self.share = before * share
            self._branch(s.then)
        if s.orelse and share < 1.0:
            self.share = before * (1.0 - share) if share > 0.0 else before
            self._branch(s.orelse)
        self.share = before

    def _branch(self, block: n.Block) -> None:
        kept = [dict(f.memo) for f in self.frames]
        self.block(block)
        for f, memo in zip(self.frames, kept, strict=False):
            f.memo = memo

    def _holds(self, cond: n.Expr) -> float:
        """The share of the team's warps in which a condition holds for some lane (0.5 where that is not known)."""
        if not self.team.variables:
            found = evaluate(cond, self.values)
            return 0.5 if found is None else float(np.any(found))
        found = evaluate(cond, {**self.values, **self.team.of(0, self.team.count)})
        if found is None:
            return 0.5
        if not isinstance(found, np.ndarray):
            return float(bool(found))
        lanes = np.broadcast_to(found.reshape(found.shape[0], -1)[:, 0], (self.team.count,)).astype(bool)
        if len(lanes) % LANES:
            return float(np.any(lanes))
        return float(np.mean(np.any(lanes.reshape(-1, LANES), axis=1)))

    def _alloc(self, s: n.Alloc) -> None:
        elements = math.prod(number(d, self.values) or 1 for d in s.buffer.shape)
        self.depths[s.buffer.name] = self.depth
        if s.buffer.space == "shared":
            self.out.shared += elements * s.buffer.dtype.bytes
        elif s.buffer.space in ("fragment", "register"):
            self.out.registers += -(-elements * s.buffer.dtype.bytes // (4 * max(1, self.of_team)))
        if s.buffer.dtype.name == "mbarrier":
            self.slots[s.buffer.name] = elements
        if s.init is not None and s.buffer.space != "shared":
            self.put(Op("alu", self._each(elements), latency=4.0, writes=s.buffer.name, share=self.share))

    def _let(self, s: n.Let) -> None:
        if len(s.names) == 1 and _is_index(s.value):
            self.values[s.names[0]] = s.value
        key = self.value(s.value)
        depth = self._depth(s.value)
        for name in s.names:
            self.depths[name] = depth
            if key is not None:
                self.put(Op("none", 0.0, reads=(key,), writes=name, share=self.share), depth)

    # ---------------------------------------------------------------------------------------------------------------- expressions
    def _each(self, elements: float) -> float:
        """Elements of one thread of the team."""
        return max(1.0, elements / max(1, self.of_team)) if elements > 1 else elements

    def elements(self, e: n.Expr | n.Region) -> float:
        return float(math.prod(number(d, self.values) or 1 for d in shape_of(e.type)))

    def _depth(self, e: n.Node) -> int:
        """The innermost open loop on which a value depends, unrolled ones aside where it is an index."""
        names, buffers, together = once(e, "_leaves", lambda: _leaves(e))
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
                for i in e.at.index:
                    if isinstance(i, n.Expr):
                        self.value(i)
                return e.at.buffer.name
        index = _is_index(e)
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
            case n.Binary(op="add" | "sub") if dtype_of(e.type).name in ("f32", "f64") and (product := _product(e)) is not None:
                other = e.b if product is e.a else e.a
                reads = [self.value(x) for x in (product.a, product.b, other)]
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
        if not cost.pipes:
            if len(kept) == 1:
                return kept[0]
        count = self._each(self.elements(e)) * self._once(e, depth)
        key = self.key()
        varies = self._varies(e)
        for i, (pipe, many) in enumerate(cost.pipes or (("none", 0.0),)):
            self.put(Op(pipe, many * count, 1.0, cost.latency if i == 0 else 0.0, kept if i == 0 else (), key if i == 0 else None, share=self.share, varies=varies), depth)
        return key

    def _once(self, e: n.Node, depth: int) -> float:
        """The part of the rounds of open unrolled loops in which a value is worked out: where one does not change it, in the first."""
        if not any(f.unrolled for f in self.frames[1:depth + 1]):
            return 1.0
        read, buffers, together = once(e, "_leaves", lambda: _leaves(e))
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
            m, columns, k = _mma_shape(str(dict(e.attrs).get("shape", "m16n8k16")))
            key = self.key()
            self.put(Op("tensor", 1.0, 2.0 * m * columns * k, 1.0, reads, key, share=self.share, dtype=_unit(dtype_of(first.type), ""), varies=self._varies(e)), depth)
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
        self.put(Op("fma" if op in ("add", "sum") else "alu", own, 1.0, 4.0 * max(1.0, own / max(1.0, self._each(kept)) / 2), reads, key, share=self.share), depth)
        if self.of_team > 1:
            across = max(1.0, total / max(1.0, kept))
            lanes = min(float(LANES), across, float(self.of_team))
            exchanged = max(1.0, kept * lanes / self.of_team)
            self.put(Op("shared", exchanged * math.log2(max(2.0, lanes)), 1.0, 25.0 * math.log2(max(2.0, lanes)), (key,), key, share=self.share), depth)
            if across > LANES and self.of_team > LANES:
                self.put(Op("shared", 2.0, 1.0, 60.0, (key,), key, share=self.share), depth)
                self.put(Barrier(), depth)
        return key

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
            if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and int_value(x.b) is None:
                if any(isinstance(y, n.Binary) and y.op == "sub" or isinstance(y, n.Const) and isinstance(y.value, int) and y.value < 0 for y in self._expanded(x.b)):
                    return True
        return False

    def around(self, depth: int) -> list[Around]:
        return [Around(f.var, f.lo, f.step, f.trips) for f in self.frames[1:depth + 1]]

    def _load(self, e: n.Load, depth: int) -> Key:
        place = self._address(e.at, depth)
        guards = self._guards(e.at, e.clip, e.mask, depth)
        before = len(self.frames[depth].items)
        key = self._moved(e.at, "read", (*(() if place is None else (place,)), *guards.keys), depth, guard=guards)
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
        else:
            self.put(Op("shared", shape.instructions, shape.cycles, latency, reads, key if verb != "write" else None, None, self.share, self._varies(r)), depth)
        return key

    def _tile(self, r: n.Region, verb: Verb, reads: tuple[Key, ...], depth: int, key: int, apart: str) -> Key:
        """An access to a whole tile by a team whose compiler deals it out: in vectors, as far as neighbors lie side by side."""
        size, total = r.buffer.dtype.bytes, self.elements(r)
        at = self.places.warp(r, Instances())
        vector = size
        if at is not None and at.size > 1:
            flat = np.sort(at.reshape(-1))[:4096]
            runs = 1 + int(np.count_nonzero(np.diff(flat) > size))
            while vector * 2 <= 16 and vector * 2 <= len(flat) / runs * size and total * size / (vector * 2) >= self.of_team:
                vector *= 2
        instructions = max(1.0, self._each(total) * size / vector)
        if r.buffer.space != "global":
            cycles = float(max(1, vector // 4))
            self.put(Op("shared", instructions, cycles, 1.0 if verb == "read" else 0.0, reads, key, share=self.share), depth)
            return key
        asked = instructions * self.warps * max(1.0, vector * LANES / 32) if at is None else float(len(np.unique(at // 32)))
        around = [a for a in self.around(depth)]
        names = self.places.names(r)
        moving = [a for a in around if a.var in names]
        executions, own = math.prod(a.trips for a in around), math.prod(a.trips for a in moving)
        touched = asked * 32 * own
        distinct, unique = self.places._grid(r, names, touched)
        again = executions / own if touched > self.l1 * L1_SHARE or verb != "read" else 1.0
        access = Access(r.buffer.name, verb, instructions * self.warps, max(asked, instructions * self.warps), asked, touched, again, executions, distinct, unique,
                        moved=touched * again, first=-1 if at is None else int(at.reshape(-1)[0]))
        cycles = max(1.0, vector * LANES / 128)
        if apart != "copy":
            self.put(Op("alu", instructions * TILE_ADDRESS, latency=4.5, share=self.share), depth)
        self.put(Op("memory", instructions, cycles, 1.0 if verb != "write" else 0.0, reads, key, access, self.share, apart="copy" if apart == "copy" else ""), depth)
        return key

    def store(self, r: n.Region, value: Key | None, mask: n.Expr | None, clip: bool, width: int = 0, source: n.Expr | None = None) -> None:
        """A write; 16-bit elements that are read one by one are packed into registers two by two."""
        reads = () if value is None else (value,)
        for f in self.frames:
            for e in [e for e in f.memo if _reads(e, r.buffer)]:
                del f.memo[e]
        if r.buffer.space in ("register", "fragment"):
            for i in r.index:
                if isinstance(i, n.Expr):
                    self.value(i)
            packed = r.buffer.dtype.bytes < 4 and not shape_of(r.type) and isinstance(source, n.Load)
            self.put(Op("alu" if packed else "none", 0.5 if packed else 0.0, latency=4.5 if packed else 0.0, reads=reads, writes=r.buffer.name, share=self.share,
                        varies=self._varies(r)))
            return
        place = self._address(r, self.depth)
        guards = self._guards(r, clip, mask, self.depth)
        self._moved(r, "write", (*reads, *(() if place is None else (place,)), *guards.keys), self.depth, width, guard=guards)

    def _copy(self, s: n.Copy) -> None:
        width = int(s.via[7:-1]) * s.dst.buffer.dtype.bytes if s.via.startswith("vector(") and s.via[7:-1].isdigit() else 0
        if s.via in ("tma", "bulk"):
            self._bulk(s)
            return
        if s.via == "cp_async" or (s.grouped and s.via != "plain"):
            place = [k for r in (s.src.at, s.dst) if (k := self._address(r, self.depth)) is not None]
            guards = self._guards(s.src.at, s.src.clip or s.clip, s.mask, self.depth)
            before = self.frames[-1].items
            self._moved(s.src.at, "read", (*place, *guards.keys), self.depth, 16, guard=guards)
            last = before[-1]
            if isinstance(last, Op):
                last.apart, last.writes, last.most = "copy", None, 0.0
            shape = self.places.shape(s.dst, self.places.warp(s.dst, self.team), self._each(self.elements(s.dst)), 16)
            self.put(Op("none", shape.instructions, share=self.share))
            return
        if s.src.at.buffer.space in ("register", "fragment"):
            self.store(s.dst, s.src.at.buffer.name, s.mask, s.clip, width)
            return
        place = self._address(s.src.at, self.depth)
        guards = self._guards(s.src.at, s.src.clip or s.clip, s.mask, self.depth)
        key = self._moved(s.src.at, "read", (*(() if place is None else (place,)), *guards.keys), self.depth, width, guard=guards)
        self.store(s.dst, key, None, False, width)

    def _bulk(self, s: n.Copy) -> None:
        """A copy that the TMA makes, begun by one thread."""
        out = s.dst.buffer.space == "global"
        r = s.dst if out else s.src.at
        self._address(r, self.depth)
        team, of_team, self.team = self.team, self.of_team, Instances()
        self._tile(r, "write" if out else "read", (), self.depth, self.key(), "copy")
        made = self.frames[-1].items[-1]
        assert isinstance(made, Op)
        self.team, self.of_team = team, of_team
        if made.access is not None:
            made.access.requests = made.access.sectors = made.access.fresh
        self.frames[-1].items[-1] = Op("memory", 4.0, 0.0, 0.0, (), None, made.access, self.share, dtype="tma", apart="store" if out else "copy")
        if s.signal is not None:
            self.begun[s.signal.buffer.name] = s.signal

    # --------------------------------------------------------------------------------------------------------------------- products
    def _mma(self, s: n.Mma) -> None:
        """A product of tiles that a surface's compiler deals out."""
        a, b = shape_of(s.a.type), shape_of(s.b.type)
        extents = [number(x, self.values) or 1 for x in (*a, b[-1])]
        flops = 2.0 * math.prod(extents)
        dtype = dtype_of(s.a.type)
        reads = tuple(k for e in (s.a, s.b) if (k := self.value(e)) is not None)
        name = s.acc.buffer.name
        if s.via == "fma" or (dtype.name == "f32" and s.precision == "ieee") or dtype.name == "f64":
            each = flops / 2 / max(1, self.of_team)
            side = max(1.0, math.sqrt(self._each(self.elements(s.acc))))
            self.put(Op("shared", 2 * each / side / max(1, 16 // dtype.bytes), 4.0, 25.0, reads, share=self.share))
            self.put(Op("double" if dtype.name == "f64" else "fma", each, 1.0, 4.0, (*reads, name), name, share=self.share))
            return
        wide = s.via == "wgmma" or (s.via == "auto" and self.of_team >= 128 and extents[-3] >= 64)
        ahead = self.stages > 1
        for e, rows in ((s.a, extents[-3]), (s.b, extents[-1])):
            if isinstance(e, n.Load) and e.at.buffer.space == "global" and not ahead:  # loaded, written to shared memory, and only then read
                self.put(Op("shared", rows * extents[-2] * dtype.bytes / 16 / max(1, self.of_team), 4.0, reads=reads, share=self.share))
        if not ahead:
            self.put(Barrier())
        self._operands(s, extents, wide)
        warps = max(1.0, self.of_team / LANES)
        self.put(Op("tensor", 1.0, flops / warps, 20.0, () if ahead else reads, name, share=self.share, dtype=_unit(dtype, "wgmma" if wide else ""), apart="product"))
        self.put(Wait("product", 0, 1 if ahead else 0, self.share))

    def _operands(self, s: n.Mma, extents: list[int], wide: bool) -> None:
        """What warps read of operands in shared memory: wgmma by itself, other products through registers, each warp what it needs."""
        if wide:
            return
        rows, columns, k = extents[-3], extents[-1], extents[-2]
        warps = max(1, self.of_team // LANES)
        down = min((d for d in range(1, warps + 1) if warps % d == 0), key=lambda d: rows * (warps // d) + columns * d)
        size = dtype_of(s.a.type).bytes
        for e, again in ((s.a, warps // down), (s.b, down)):
            if isinstance(e, n.Load) and e.at.buffer.space == "register":
                continue
            bytes_ = (rows if e is s.a else columns) * k * size * again / warps
            self.put(Op("shared", bytes_ / 512, 4.0, 25.0, share=self.share))

    # -------------------------------------------------------------------------------------------------------------------- effects
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
                from kir.gate.counts.places import banks, swizzled
                rows = swizzled(region.buffer, at[:8 * many, 0])
                cycles = sum(banks(part, 16) for part in np.array_split(rows, many))
            del shape
            self.put(Op("shared", 1.0, cycles, 8.0 if e.fn == "ldmatrix" else 0.0, reads, key, share=self.share, varies=self._varies(e)), depth)
            return key
        return self._moved(region, "update", reads, depth)

    def _call_for_effect(self, c: n.Call) -> None:
        args = tuple(k for a in c.args if isinstance(a, n.Expr) and (k := self.value(a)) is not None)
        if c.fn in ("barrier", "named_barrier_sync"):
            self.put(Barrier(self.warps * self.share))
            self._forget("shared", "global")
        elif c.fn in ("stmatrix",) or c.fn.startswith("atomic"):
            self._memory_call(c, self.depth, args)
        elif c.fn == "wgmma":
            m, columns, k = _mma_shape(str(dict(c.attrs).get("shape", "m64n64k16")))
            operand = next(a for a in c.args[1:] if isinstance(a, n.Region | n.Expr))
            dtype = operand.buffer.dtype if isinstance(operand, n.Region) else dtype_of(operand.type)
            self.put(Op("tensor", 1.0, 2.0 * m * max(columns, LEAST_COLUMNS) * k / 4, 0.0, args, None, share=self.share, dtype=_unit(dtype, "wgmma"), apart="product"))
        elif c.fn in ("async_wait", "bulk_wait", "wgmma_wait"):
            first = c.args[0] if c.args else None
            pending = (int_value(first) or 0) if isinstance(first, n.Expr) else 0
            self.put(Wait("copy" if c.fn == "async_wait" else "store" if c.fn == "bulk_wait" else "product", pending, pending, self.share))
            self._forget("shared")
        elif c.fn == "mbar_wait":
            self._mbar_wait(c)
        elif c.fn.startswith(("mbar", "fence", "cluster", "warp_sync", "named_barrier")):
            self.put(Op("shared", 1.0, 1.0, share=self.share))
        else:
            self.put(Op("alu", 1.0, share=self.share))

    def _mbar_wait(self, c: n.Call) -> None:
        bar = c.args[0]
        if isinstance(bar, n.Region):
            slots = self.slots.get(bar.buffer.name, 1)
            straight = self.begun.get(bar.buffer.name) == bar  # begun by the same threads just before
            if not bar.buffer.name.startswith("empty") or straight:
                self.put(Wait("copy", 0, 0 if straight or slots == 1 else slots - 1, self.share))
            self.put(Op("shared", 2.0, 1.0, 20.0, share=self.share))
        self._forget("shared")

    def _forget(self, *spaces: str) -> None:
        """What was read of memory that others may have changed is read again."""
        for f in self.frames:
            for e in [e for e in f.memo if any(space in spaces for _, space in loaded(e))]:
                del f.memo[e]


def _pipelined(items: list[Item], stages: int) -> list[Item]:
    """A loop whose compiler begins the copies of a later round: they go on apart, and are waited for first."""
    made: list[Item] = []
    for item in items:
        if isinstance(item, Op) and item.access is not None and item.access.verb == "read":
            item.apart, item.writes = "copy", None
        made.append(item)
    return [Wait("copy", stages - 2, stages - 1), *made]


def _scalar(body: n.Block) -> bool:
    """Whether a loop is one that compilers unroll by themselves: scalars alone, and nothing inside it that loops or waits."""
    return all(isinstance(s, n.Let | n.Store | n.Alloc) and not any(isinstance(x, n.Expr) and isinstance(x.type, TileType) for x in walk(s)) for s in body)


def _leaves(e: n.Node) -> tuple[frozenset[str], frozenset[tuple[str, str]], bool]:
    """Names and buffers that a value depends on, and whether its lanes work together, so that it stays where it is."""
    calls = any(isinstance(x, n.Call) and x.fn not in arithmetic.FREE_CALLS and x.fn not in arithmetic.CALLS for x in walk(e))
    return frozenset(x.name for x in walk(e) if isinstance(x, n.Var)), loaded(e), calls


def loaded(e: n.Node) -> frozenset[tuple[str, str]]:
    """Buffers that are read below a node, with their spaces."""
    return once(e, "_loaded", lambda: frozenset((x.at.buffer.name, x.at.buffer.space) for x in walk(e) if isinstance(x, n.Load)))


def _reads(e: n.Expr, b: n.Buffer) -> bool:
    return any(name == b.name or b.space == space == "global" for name, space in loaded(e))


def _product(e: n.Binary) -> n.Binary | None:
    """The side of a sum that is a product, which one instruction makes with it."""
    for x in (e.a, e.b):
        if isinstance(x, n.Binary) and x.op == "mul":
            return x
    return None


def _mma_shape(text: str) -> tuple[int, int, int]:
    m, rest = text.removeprefix("m").split("n")
    columns, k = rest.split("k")
    return int(m), int(columns), int(k)


def _unit(dtype: DType, via: str) -> str:
    name = "tf32" if dtype.name == "f32" else "fp8" if dtype.name.startswith("f8") else "i8" if dtype.name == "u8" else dtype.name
    return f"{name} {via}".strip()


def _is_index(e: n.Expr) -> bool:
    """Whether a value is an integer or a condition made of names and literals alone."""
    t = e.type
    return isinstance(t, DType | TileType) and (dtype_of(t).is_integer or dtype_of(t).is_bool) and not loaded(e)


def values_at(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], place: float | int) -> tuple[dict[str, Value | n.Expr], list[tuple[str, int]], list[str]]:
    """Names at one CTA (a number, counted along the first axis first, or a share of each axis); extents of the grid; what of it is not known."""
    values: dict[str, Value | n.Expr] = {p.name: sizes[p.name] for p in program.params if isinstance(p.of, DType) and p.name in sizes}
    for p in program.params:
        if p.value is not None and isinstance(p.of, DType):
            values[p.name] = p.value
    axes: list[tuple[str, int]] = []
    unknown: list[str] = []
    before = 1
    for axis in kernel.grid:
        extent = axis.extent if isinstance(axis.extent, int) else number(axis.extent, values)
        if extent is None:
            unknown.append(f"grid axis {axis.name}")
        each = max(1, extent or 1)
        values[axis.name] = place // before % each if isinstance(place, int) else min(each - 1, int(each * place))
        before *= each
        axes.append((axis.name, each))
    return values, axes, unknown
