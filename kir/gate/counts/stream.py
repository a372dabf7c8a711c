"""From a kernel of threads (or of tiles, as their compilers distribute them) to the trace of what its warps do.

What an optimizing compiler does by itself is done here: equal expressions are computed once, what does not change in a loop before it, a product and a
sum in one instruction, unrolled loops with constant offsets, tiles of neighbors in vectors.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from kir.gate.counts.frames import (
    BY_ITSELF,
    LEAST_COLUMNS,
    TILE_ADDRESS,
    UNROLLED,
    Frame,
    Stream,
    begun_first,
    by_itself,
    changed,
    increment,
    is_index,
    loaded,
    mma_shape,
    pipelined,
    reads,
    scalar,
    unit,
)
from kir.gate.counts.numbers import Values as Known
from kir.gate.counts.numbers import evaluate, number
from kir.gate.counts.places import LANES, SECTOR, Instances, Places, leaves
from kir.gate.counts.register_pressure import local_arrays
from kir.gate.counts.trace import Barrier, Item, Key, Loop, Op, Team, Wait, operations
from kir.gate.counts.values import Values
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I32, dtype_of, shape_of
from kir.ir.visit import names_read, statements, walk

SPLIT = 4.0
"""Instructions that split an element of an f32 operand in two parts: a rounding, a difference, a rounding, and a copy."""
UNKNOWN = 0.5
"""The share of warps for which a condition counts as true of which nothing is known."""
ASKED, GOLDEN = 32, 0.618
"""Rounds in which a condition is looked at; and how far apart they are in loops that it asks of together, as a part of their rounds."""
NEAR, FAR = 42.9, 300.0
"""Cycles until an element is there that L1 has, and one that only L2 has (`kir.hardware.target.Pipes`)."""


def stream(kernel: n.Kernel, values: Known, axes: Sequence[tuple[str, int]], together: int, l1: float, compiler: str = "") -> Stream:
    """The trace of a kernel at one CTA: `values` of sizes and of the grid's variables, `axes` of the grid with their extents, of which `together`
    CTAs run at the
    same time with `l1` bytes of L1 each. A `compiler` (`triton`, `tilelang`) lays out shared memory by itself, and copies in vectors."""
    threads, as_written = number(kernel.threads, values) or 1, not compiler
    builder = _Builder(Places(dict(values), axes, together, as_written), l1, threads, as_written)
    builder.frames.append(Frame("", 1.0, False))
    builder.local, builder.compiler = local_arrays(kernel.body), compiler
    builder.products = {s.acc.buffer.name for s in statements(kernel.body) if isinstance(s, n.Mma)} if not as_written else set()
    builder.block(kernel.body)
    out = builder.out
    out.team.body = builder.frames[0].items
    for op, _, _ in operations(out.team.body):
        if op.access is not None:
            op.access.buffer = builder.views.get(op.access.buffer, op.access.buffer)
    return out


def _turned(e: n.Expr) -> bool:
    """Whether an expression is what global memory holds, along other axes: one loop over elements goes along the axes of one side."""
    return any(isinstance(x, n.Call) and x.fn == "trans" and any(isinstance(y, n.Load) and y.at.buffer.space == "global" for y in walk(x)) for x in walk(e))


class _Builder(Values):
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
            case n.View() if s.buffer.space == "global":
                self.views[s.buffer.name] = self.views.get(s.at.buffer.name, s.at.buffer.name)
            case n.Store():
                if s.at.buffer.space == "register" and not s.at.index and self.depth == self.depths.get(s.at.buffer.name, 0) and is_index(s.value):
                    self.values[f"@{s.at.buffer.name}"] = s.value
                if self._counts_up(s):
                    return
                self.crosswise = self.compiler == "tilelang" and s.at.buffer.space == "global" and _turned(s.value)
                self.store(s.at, self.value(s.value), s.mask, s.clip, source=s.value)
                self.crosswise = False
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

    def _counts_up(self, s: n.Store) -> bool:
        """Whether a register counts rounds: a compiler counts it up where it likes to, so that nothing waits for its turn behind what is loaded."""
        by = increment(s)
        if not self.frames[-1].var or s.at.buffer.space != "register" or s.at.index or by is None or not (s.at.buffer.dtype.is_integer and is_index(by)):
            return False
        for f in self.frames:
            for e in [e for e in f.memo if reads(e, s.at.buffer)]:
                del f.memo[e]
        self.put(Op("alu", 1.0, share=self.share))
        return True

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
        together = float(min(trips, factor) if factor else trips if self._known_ahead(s) else min(trips, BY_ITSELF)) if s.kind in UNROLLED else 1.0
        if not self.as_written and s.kind == "serial" and scalar(s.body):
            together = by_itself(s, trips, self.compiler)
        before, share = self.places.bounds, self.share
        most, part = self._in_turns(s, trips)
        self.places.bounds, self.share = {**before, s.var.name: (s.lo, s.hi)}, share * part
        self._body(s.var.name, float(most), s.kind in UNROLLED, s.body, lo, step, together,
                   int(dict(s.attrs).get("stages", 1)) if s.kind == "pipelined" else 1)
        self.places.bounds, self.share = before, share

    def _in_turns(self, s: n.For, trips: int) -> tuple[int, float]:
        """Rounds of the team that makes most of them, and the part of those that teams make in the mean, where teams that run side by side take turns:
        of a CTA's one tile, one of two warpgroups has nothing."""
        own = [name for name in self.beside if any(name in names_read(x) for e in (s.lo, s.hi, s.step) for x in self._expanded(e))]
        if not own:
            return trips, 1.0
        found = []
        for places in product(*(range(self.beside[name]) for name in own)):
            lo, hi, step = (number(x, {**self.values, **dict(zip(own, places, strict=True))}) for x in (s.lo, s.hi, s.step))
            if lo is None or hi is None or not step:
                return trips, 1.0
            found.append(max(0, -(-(hi - lo) // step)))
        return (max(found), sum(found) / len(found) / max(found)) if max(found) else (trips, 1.0)

    def _known_ahead(self, s: n.For) -> bool:
        """Whether a compiler knows how often a loop runs, and so can write out all of it."""
        return {name for e in (s.lo, s.hi, s.step) for name in leaves(e)} <= {f.var for f in self.frames if f.unrolled}

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
        frame = Frame(var, trips, unrolled and together >= trips, lo, step, changes=names, spaces=spaces, number=self.key())
        held = self.values.get(var)
        self.frames.append(frame)
        self.depths[var] = self.depth
        before, self.stages = self.stages, stages if stages > 1 else self.stages
        if var:
            self.values[var] = lo + int(trips) // 2 * step
        if together < trips:
            self.put(Op("alu", 2.0 / together, latency=4.0))
        counted = self._counted_up(var, body, lo, step)
        self.block(body)
        for name in counted:
            self.values.pop(name, None)
        self.stages = before
        self.frames.pop()
        if var and held is not None:
            self.values[var] = held
        if stages > 1:
            frame.items = pipelined(frame.items, stages)
            self._ahead([op for op in frame.items if isinstance(op, Op) and op.apart == "copy"], stages)
        elif var:
            begun_first(frame.items)
        self.put(Loop(var, trips, together, frame.items))

    def _ahead(self, copies: list[Op], stages: int) -> None:
        """What comes before a pipelined loop: the copies of its first rounds are begun (others begin none at the end), and the first of them waited for."""
        for op in copies:
            self.put(Op("alu", (1.0 + TILE_ADDRESS) * op.count * (stages - 1), share=op.share))
        if copies:
            self.put(Op("memory", 1.0, 1.0, FAR, (), key := self.key(), share=self.share))
            self.put(Op("alu", 1.0, reads=(key,), share=self.share))
            self.put(Barrier())

    def _counted_up(self, var: str, body: n.Block, lo: int, step: int) -> list[str]:
        """Registers that a loop counts up: what they hold follows from its variable."""
        out = []
        for s in body:
            if not isinstance(s, n.Store) or s.at.buffer.space != "register" or s.at.index:
                continue
            name, by = f"@{s.at.buffer.name}", increment(s)
            first = self.values.get(name)
            if by is not None and first is not None and var:
                start = first if isinstance(first, n.Expr) else const(int(first) if isinstance(first, int) else 0)
                rounds = n.Binary("floordiv", n.Binary("sub", n.Var(var, I32), const(lo)), const(step))
                self.values[name] = n.Binary("add", start, n.Binary("mul", rounds, by))
            out.append(name)
        return out

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
        beside = self.beside
        if s.kind != "thread":
            self.beside = {**beside, s.var.name: count}
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
        self.beside = beside
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
        share, part = self._holds(s.cond)
        if share == UNKNOWN and s.then and isinstance(s.then[-1], n.Jump) and s.then[-1].kind == "return":
            share = 0.0  # what is given up early, for what was read, is the exception
        before = self.share
        if share > 0.0:
            self.share = before * share
            self._branch(s.then, part)
        if s.orelse and share * part < 1.0:
            self.share = before * (1.0 - share) if 0.0 < share < 1.0 else before
            self._branch(s.orelse, 1.0 - part if share == 1.0 else 1.0)
        self.share = before

    def _branch(self, block: n.Block, part: float) -> None:
        """A block that is come by in a part of the rounds: of what it loops over, as much is counted."""
        kept, first = [dict(f.memo) for f in self.frames], len(self.frames[-1].items)
        self.block(block)
        for f, memo in zip(self.frames, kept, strict=False):
            f.memo = memo
        for item in self.frames[-1].items[first:]:
            if part < 1.0 and isinstance(item, Loop):
                item.trips *= part

    def _holds(self, cond: n.Expr) -> tuple[float, float]:
        """The share of the team's warps in which a condition holds for some lane (0.5 where that is not known), where it does; and in which part of the rounds
        of the loops that it asks of: all of a few, else as many spread evenly."""
        named = {x.name for x in self._expanded(cond) if isinstance(x, n.Var)}
        asked = [f for f in self.frames if f.var in named and f.trips > 1.0]
        if not asked:
            return self._holds_now(cond), 1.0
        held = {f.var: self.values.get(f.var, f.lo) for f in asked}
        most = int(min(ASKED, max(f.trips for f in asked)))
        shares = []
        for i in range(most):
            for k, f in enumerate(asked):
                self.values[f.var] = f.lo + int((((i + 0.5) / most + k * GOLDEN) % 1.0) * f.trips) * f.step
            shares.append(self._holds_now(cond))
        self.values.update(held)
        some = [share for share in shares if share > 0.0]
        return (math.fsum(some) / len(some), len(some) / most) if some else (0.0, 1.0)

    def _holds_now(self, cond: n.Expr) -> float:
        """That share, in the rounds that `values` say."""
        if not self.team.variables:
            found = evaluate(cond, self.values)
            return UNKNOWN if found is None else float(np.any(found))
        found = evaluate(cond, {**self.values, **self.team.of(0, self.team.count)})
        if found is None:
            return UNKNOWN
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
        if s.init is not None and s.buffer.space == "register" and not s.buffer.shape and dtype_of(s.init.type).is_integer:
            self.values[f"@{s.buffer.name}"] = s.init
        if s.init is not None and s.buffer.space != "shared":
            key = self.value(s.init)
            self.put(Op("alu", self._each(elements), latency=4.0, reads=() if key is None else (key,), writes=s.buffer.name, share=self.share))

    def _let(self, s: n.Let) -> None:
        if len(s.names) == 1 and is_index(s.value):
            self.values[s.names[0]] = s.value
        key = self.value(s.value)
        depth = self._depth(s.value)
        if len(s.names) == 1 and shape_of(s.value.type) and self.as_product(s.value):
            self.products.add(s.names[0])
        for name in s.names:
            self.depths[name] = depth
            if key is not None:
                self.put(Op("none", 0.0, reads=(key,), writes=name, share=self.share), depth)

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
        start = self._address(s.src.at, self.depth)
        guards = self._guards(s.src.at, s.src.clip or s.clip, s.mask, self.depth)
        key = self._moved(s.src.at, "read", (*(() if start is None else (start,)), *guards.keys), self.depth, width, guard=guards)
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
        """A product of tiles that a surface's compiler distributes."""
        a, b = shape_of(s.a.type), shape_of(s.b.type)
        extents = [number(x, self.values) or 1 for x in (*a, b[-1])]
        flops = 2.0 * math.prod(extents)
        dtype = dtype_of(s.a.type)
        reads = tuple(k for e in (s.a, s.b) if (k := self.value(e)) is not None)
        name = s.acc.buffer.name
        if s.via == "fma" or (dtype.name == "f32" and s.precision == "ieee") or dtype.name == "f64":
            if self.compiler == "tilelang" and dtype.name != "f64" and len(extents) == 3:
                self._sums(s, extents, reads)
                return
            each = flops / 2 / max(1, self.of_team)
            side = max(1.0, math.sqrt(self._each(self.elements(s.acc))))
            self.put(Op("shared", 2 * each / side / max(1, 16 // dtype.bytes), 4.0, 25.0, reads, share=self.share))
            self.put(Op("double" if dtype.name == "f64" else "fma", each, 1.0, 4.0, (*reads, name), name, share=self.share))
            return
        wide = s.via in ("wgmma", "tcgen05") or (s.via == "auto" and self.of_team >= 128 and extents[-3] >= 64)
        ahead = self.stages > 1
        for e, rows in ((s.a, extents[-3]), (s.b, extents[-1])):
            if isinstance(e, n.Load) and e.at.buffer.space == "global" and not ahead:  # loaded, written to shared memory, and only then read
                self.put(Op("shared", rows * extents[-2] * dtype.bytes / 16 / max(1, self.of_team), 4.0, reads=reads, share=self.share))
        if not ahead:
            self.put(Barrier())
        self._operands(s, extents, wide)
        warps = max(1.0, self.of_team / LANES)
        of = unit(dtype, "wgmma" if wide else "")
        if s.precision.endswith("x3"):  # each operand in two parts, three products
            flops *= 3
            self.put(Op("fma", SPLIT * (extents[-3] + extents[-1]) * extents[-2] / max(1, self.of_team), 1.0, 4.0, reads, share=self.share))
        self.put(Op("tensor", 1.0, flops / warps, 20.0, () if ahead else reads, name, share=self.share, dtype=of, apart="product"))
        self.put(Wait("product", 0, 1 if ahead else 0, self.share))

    def _sums(self, s: n.Mma, extents: list[int], reads: tuple[Key, ...]) -> None:
        """A product as a loop over k: each round reads what a thread needs of a column of the left operand, element by element, and of a row of the right
        one, in vectors where its elements lie side by side, both from where they are."""
        rows, k, columns = extents
        size, name, share = dtype_of(s.a.type).bytes, s.acc.buffer.name, self.share
        vector = min(columns, 16 // size) if isinstance(s.b, n.Load) else 1
        while vector > 1 and rows * columns // vector < self.of_team:
            vector //= 2
        across = max(1, min(self.of_team, columns // vector))
        own = max(1.0, rows * across / self.of_team), max(1.0, columns / across)
        body: list[Item] = [Op("alu", 2.0, latency=4.0, share=share)]
        given: list[Key] = []
        lanes = min(LANES, across)
        for e, count, each in ((s.a, own[0], 1), (s.b, own[1] / vector, vector)):
            at = e.args[0] if isinstance(e, n.Call) and e.fn == "trans" else e
            if not isinstance(at, n.Load) or at.at.buffer.space not in ("global", "shared"):
                continue
            given.append(key := self.key())
            near = at.at.buffer.space == "shared"
            lines = LANES // lanes if e is s.a else lanes if at is not e else 1
            if near:
                ways = math.gcd(max(1, k * size // 4), LANES) if lines > 1 and at is not e else 1
                body.append(Op("shared", count, max(1.0, each * size / 4, ways * lines / LANES), 25.0, reads, key, share=share))
            else:  # neighbors along k lie in the sector that the first of them has brought
                far = 1.0 if e is s.b and at is e else size / SECTOR
                body.append(Op("memory", count, max(1.0, each * size * LANES / 128, lines), NEAR + far * (FAR - NEAR), reads, key, share=share))
        if size < 4:
            body.append(Op("half", own[0] + own[1], 1.0, 5.0, tuple(given), converted := self.key(), share=share))
            given = [converted]
        body.append(Op("fma", own[0] * own[1], 1.0, 4.0, (*given, name), name, share=share))
        self.put(Loop(f"{name} k", float(k), 1.0, body))

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

    def _call_for_effect(self, c: n.Call) -> None:
        args = tuple(k for a in c.args if isinstance(a, n.Expr) and (k := self.value(a)) is not None)
        if c.fn in ("barrier", "named_barrier_sync"):
            self.put(Barrier(self.warps * self.share))
            self._forget("shared", "global")
        elif c.fn in ("stmatrix",) or c.fn.startswith("atomic"):
            self._memory_call(c, self.depth, args)
        elif c.fn == "wgmma":
            m, columns, k = mma_shape(str(dict(c.attrs).get("shape", "m64n64k16")))
            operand = next(a for a in c.args[1:] if isinstance(a, n.Region | n.Expr))
            dtype = operand.buffer.dtype if isinstance(operand, n.Region) else dtype_of(operand.type)
            flops = 2.0 * m * max(columns, LEAST_COLUMNS) * k / 4
            self.put(Op("tensor", 1.0, flops, 0.0, args, None, share=self.share, dtype=unit(dtype, "wgmma"), apart="product"))
        elif c.fn in ("async_wait", "bulk_wait", "wgmma_wait"):
            first = c.args[0] if c.args else None
            pending = (int_value(first) or 0) if isinstance(first, n.Expr) else 0
            self.put(Wait("copy" if c.fn == "async_wait" else "store" if c.fn == "bulk_wait" else "product", pending, pending, self.share))
            self._forget("shared")
        elif c.fn == "mbar_wait":
            self._mbar_wait(c)
        elif c.fn == "cluster_wait":
            self.put(Barrier(self.warps * self.share, cluster=True))
            self._forget("shared", "cluster", "global")
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
