"""Counting the work of a program at given sizes, without running it: bytes per space, sectors, operations per unit, instructions.

Every statement is counted as often as its team runs it: grid times loop trips times instances of the team. Branches count both arms half.
Loops whose bounds depend on values that are not known count once, and are named in `unknown`.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.base.instructions import instruction, table
from kir.gate.counts.places import offsets, run_length, sectors
from kir.gate.counts.register_pressure import Places, live_registers, operand_fragments
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import DType, TileType, Type, dtype_of, shape_of
from kir.ir.visit import names_read, statements, substitute, walk

SECTOR = 32
"""Bytes of global memory that one request moves at least (CUDA C++ Programming Guide, device memory accesses)."""
VECTOR = 16
"""Bytes that one lane moves at most with one instruction."""
WARP = 32
_SFU = frozenset({"exp", "exp2", "exp2_approx", "log", "log2", "sin", "cos", "tanh", "tanh_approx", "rsqrt", "rcp", "rcp_approx", "sqrt",
                  "sqrt_approx", "sigmoid", "erf", "div_approx", "pow"})


@dataclass
class Work:
    """Counts of one kernel over its whole grid. `requested`: bytes that threads ask of each space. `sectors`: bytes of global traffic in
    whole sectors. `operations`: floating-point operations by unit (`tensor f16`, `scalar f32`, `special`). `instructions`: instructions
    issued, per warp. `in_flight`: bytes, in whole sectors, that the reads of one
    CTA keep under way. `shared`: bytes of a CTA, and `registers`: words a thread, that are declared; `live`: words a thread
    of named tiles where they are most, and how often a CTA comes by there (`kir.gate.counts.register_pressure`); `uneven`: how much more
    the busiest CTA does than the others in the mean."""

    kernel: str
    ctas: int = 1
    threads: int = 1
    requested: dict[str, float] = field(default_factory=dict)
    sectors: float = 0.0
    operations: dict[str, float] = field(default_factory=dict)
    instructions: float = 0.0
    in_flight: float = 0.0
    shared: int = 0
    registers: int = 0
    live: Places = ((0, 1),)
    overlapped: bool = False
    uneven: float = 1.0
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _At:
    """Where a statement stands: how many times each CTA comes by, threads of the team that run it together, values of loop variables
    (their middle), and the innermost thread variable."""

    times: float
    team: int
    values: Mapping[str, n.Expr]
    lane: str | None = None
    stages: int = 1


def count(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], place: float | int = 0.5, as_written: bool = True) -> Work:
    """The work of one kernel at these sizes (sizes and integer scalars by name), as if every CTA did what the one at `place` does: a number
    of a CTA, counted along the first axis first, or a share of each axis (0.0 the first of it, 0.5 the middle one). Without `as_written`,
    shared memory is laid out by the surface's compiler, which avoids conflicts."""
    values: dict[str, n.Expr] = {p.name: const(sizes[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in sizes}
    for p in program.params:
        if p.value is not None and isinstance(p.of, DType):
            values[p.name] = substitute(p.value, values)
    ctas = 1
    work = Work(kernel.name)
    for axis in kernel.grid:
        extent = _value(axis.extent, values)
        if extent is None:
            work.unknown.append(f"grid axis {axis.name}")
        each = max(1, extent or 1)
        at = place // ctas % each if isinstance(place, int) else min(each - 1, int(each * place))
        ctas *= each
        values[axis.name] = const(at, dtype_of(axis.extent.type))
    work.ctas, work.threads = ctas, _value(kernel.threads, values) or 1
    counter = _Counter(work, as_written, operands=operand_fragments(kernel.body))
    counter.block(kernel.body, _At(1.0, work.threads, values))
    counter.scale(ctas)
    work.live = live_registers(kernel.body, work.threads, values)
    return work


def differs(kernel: n.Kernel) -> bool:
    """Whether CTAs of a kernel come by some loop's body differently often, for all that its bounds say."""
    moving = {axis.name for axis in kernel.grid}
    for s in statements(kernel.body):
        if isinstance(s, n.Let) and not moving.isdisjoint(names_read(s.value)):
            moving.update(s.names)
        elif isinstance(s, n.For) and not all(moving.isdisjoint(names_read(e)) for e in (s.lo, s.hi, s.step)):
            return True
    return False


def _ring(s: n.Copy) -> int:
    """How many of a copy may be under way: slots of the ring that it fills, where it completes on an mbarrier of one; else 1."""
    slots = int_value(s.signal.buffer.shape[0]) if s.signal is not None and s.signal.buffer.shape else None
    return slots or 1


def _value(e: n.Expr | int, values: Mapping[str, n.Expr]) -> int | None:
    return e if isinstance(e, int) else int_value(substitute(e, values))


def conflicts(b: n.Buffer) -> int:
    """How many times in turn the banks of shared memory serve eight neighboring rows of 16 bytes each, which a matrix instruction reads at once."""
    steps = [int_value(x) for x in b.strides or ()]
    row = steps[-2] if len(steps) > 1 else int_value(b.shape[-1]) if b.shape else None
    if row is None:
        return 1
    bits, base, shift = (int(x) for x in b.layout.args if isinstance(x, int)) if b.layout is not None and b.layout.name == "swizzle" else (0, 0, 0)
    places = [r * row * b.dtype.bytes for r in range(8)]
    moved = [p ^ ((p >> base + shift & (1 << bits) - 1) << base) for p in places]
    return max(Counter(m // VECTOR % 8 for m in moved).values())


@dataclass
class _Counter:
    work: Work
    as_written: bool
    views: dict[str, n.Buffer] = field(default_factory=dict)
    operands: frozenset[str] = frozenset()

    def scale(self, ctas: int) -> None:
        w = self.work
        w.requested = {k: v * ctas for k, v in w.requested.items()}
        w.operations = {k: v * ctas for k, v in w.operations.items()}
        w.sectors, w.instructions = w.sectors * ctas, w.instructions * ctas

    def block(self, block: n.Block, at: _At) -> None:
        for s in block:
            if isinstance(s, n.Let) and len(s.names) == 1 and _is_index(s.value):
                found = s.value if isinstance(s.value.type, TileType) else substitute(s.value, at.values)
                at = _At(at.times, at.team, {**at.values, s.names[0]: found}, at.lane, at.stages)
            self.statement(s, at)

    def statement(self, s: n.Stmt, at: _At) -> None:
        if at.times == 0 and not isinstance(s, n.Alloc):
            return  # a loop that this CTA does not enter at these sizes
        match s:
            case n.For():
                self._for(s, at)
            case n.If():
                self.expression(s.cond, at)
                half = _At(at.times / (2 if s.orelse else 1), at.team, at.values, at.lane, at.stages)
                self.block(s.then, half)
                self.block(s.orelse, half)
            case n.While():
                self.work.unknown.append("while")
                self.expression(s.cond, at)
                self.block(s.body, at)
            case n.Roles():
                for role in s.roles:
                    self.block(role.body, _At(at.times, max(1, role.hi - role.lo) * WARP, at.values, at.lane, at.stages))
            case n.Alloc():
                elements = math.prod(_value(d, at.values) or 1 for d in s.buffer.shape)
                if s.buffer.space == "shared":
                    self.work.shared += elements * s.buffer.dtype.bytes
                elif s.buffer.space in ("fragment", "register") and s.buffer.name not in self.operands:
                    self.work.registers += -(-elements * s.buffer.dtype.bytes // (4 * max(1, at.team)))
                if s.init is not None:
                    self.expression(s.init, at)
            case n.View():
                self.views[s.buffer.name] = self.views.get(s.at.buffer.name, s.at.buffer)
            case n.Store():
                self.expression(s.value, at)
                self._access(s.at, "write", at)
            case n.Copy():
                ahead = _ring(s)
                self.work.overlapped = self.work.overlapped or ahead > 1
                self.expression(s.src, at if ahead == 1 else replace(at, stages=max(at.stages, ahead)))
                self._access(s.dst, "write", at)
            case n.Mma():
                self.expression(s.a, at)
                self.expression(s.b, at)
                self._mma(s, at)
            case n.Let():
                self.expression(s.value, at)
            case n.Eval():
                self.expression(s.call, at)
            case _:
                pass

    def _for(self, s: n.For, at: _At) -> None:
        lo, hi, step = (_value(x, at.values) for x in (s.lo, s.hi, s.step))
        trips = None if lo is None or hi is None or not step else max(0, -(-(hi - lo) // step))
        if trips is None:
            self.work.unknown.append(f"loop {s.label or s.var.name}")
            trips = 1
        middle = const((lo or 0) + trips // 2 * (step or 1), dtype_of(s.var.of))
        values = {**at.values, s.var.name: middle}
        if s.kind in ("thread", "warp", "warpgroup"):
            team = 1 if s.kind == "thread" else WARP if s.kind == "warp" else 4 * WARP
            self.block(s.body, _At(at.times * trips, team, values, s.var.name if s.kind == "thread" else at.lane, at.stages))
            return
        stages = int(dict(s.attrs).get("stages", 1)) if s.kind == "pipelined" else at.stages
        self.work.overlapped = self.work.overlapped or stages > 1
        unrolled = s.kind in ("unroll", "static", "vectorize")
        if not unrolled:
            self._issue(2.0, at, trips)
        self.block(s.body, _At(at.times * trips, at.team, values, at.lane, stages))

    # ------------------------------------------------------------------------------------------------------------ expressions
    def expression(self, e: n.Expr, at: _At) -> None:
        """Loads and arithmetic of an expression; index arithmetic inside places counts as one instruction an access."""
        match e:
            case n.Load():
                self._access(e.at, "read", at)
                if e.mask is not None:
                    self.expression(e.mask, at)
            case n.Binary() | n.Unary() | n.Select() | n.Cast():
                for x in (getattr(e, name) for name in ("cond", "a", "b", "x") if hasattr(e, name)):
                    self.expression(x, at)
                self._arithmetic(e, at)
            case n.Call():
                for a in e.args:
                    if isinstance(a, n.Expr):
                        self.expression(a, at)
                    elif e.fn in table() and instruction(e.fn).effect == "memory":
                        self._access(a, "update", at)
                self._call(e, at)
            case _:
                pass

    def _arithmetic(self, e: n.Expr, at: _At) -> None:
        elements, dtype = _elements(e.type, at.values), dtype_of(e.type)
        self._issue(elements / at.team if at.team > 1 else elements, at)
        if isinstance(e, (n.Binary, n.Unary)) and dtype.is_float:
            unit = "special" if isinstance(e, n.Binary) and e.op == "div" else f"scalar {_scalar_name(dtype)}"
            self._operations(unit, elements * at.times)

    def _call(self, e: n.Call, at: _At) -> None:
        if e.fn in ("reduce", "scan") and isinstance(e.args[0], n.Expr):
            elements = _elements(e.args[0].type, at.values)
            self._operations(f"scalar {_scalar_name(dtype_of(e.args[0].type))}", elements * at.times)
            self._issue(elements / at.team + 10.0, at)
            return
        t = e.type
        if not isinstance(t, (DType, TileType)):
            self._issue(1.0, at)
            return
        elements = _elements(t, at.values)
        if e.fn in ("iota", "expand", "broadcast", "reshape", "trans", "multiple_of", "max_contiguous"):
            return
        self._issue(elements / at.team, at)
        if e.fn in _SFU:
            self._operations("special", elements * at.times)
        elif dtype_of(t).is_float:
            self._operations(f"scalar {_scalar_name(dtype_of(t))}", elements * at.times * (2 if e.fn == "fma" else 1))
        if e.fn == "mma_sync":
            shape = str(dict(e.attrs).get("shape", "m16n8k16"))
            m, rest = shape.removeprefix("m").split("n")
            columns, k = rest.split("k")
            first = e.args[0]
            dtype = dtype_of(first.type)
            self._operations(f"tensor {dtype.name}", 2.0 * int(m) * int(columns) * int(k) * at.times / WARP)

    def _mma(self, s: n.Mma, at: _At) -> None:
        self._operands(s, at)
        a, b = shape_of(s.a.type), shape_of(s.b.type)
        extents = [_value(x, at.values) or 1 for x in (*a, b[-1])]
        once = 2.0 * math.prod(extents)
        dtype = dtype_of(s.a.type)
        scalar = s.via == "fma" or (dtype.name == "f32" and s.precision == "ieee") or dtype.name == "f64"
        name = "tf32" if dtype.name == "f32" else "fp8" if dtype.name.startswith("f8") else dtype.name
        self._operations(f"scalar {_scalar_name(dtype)}" if scalar else f"tensor {name}", once * at.times)
        self._issue(once / (2 * max(at.team, 1)) / (1 if scalar else 64), at)

    def _operands(self, s: n.Mma, at: _At) -> None:
        """What tensor cores read of operands in shared memory beyond each element once: wgmma reads B again for each 64 rows, warps of other products
        read what they share each for itself, and rows that lie in the same banks one after the other."""
        rows, columns = (_value(shape_of(e.type)[i], at.values) or 1 for e, i in ((s.a, -2), (s.b, -1)))
        if s.via == "wgmma":
            again = {0: 1.0, 1: max(1.0, rows / 64)}
        else:
            warps = max(1, at.team // WARP)
            down = min((d for d in range(1, warps + 1) if warps % d == 0), key=lambda d: rows * (warps // d) + columns * d)
            again = {0: float(warps // down), 1: float(down)}
        for i, e in enumerate((s.a, s.b)):
            if isinstance(e, n.Load) and e.at.buffer.space == "shared":
                held = self.views.get(e.at.buffer.name, e.at.buffer)
                times = again[i] * (1 if s.via == "wgmma" or not self.as_written else conflicts(held))
                total = _elements(e.type, at.values) * held.dtype.bytes * at.times
                self.work.requested["read shared"] = self.work.requested.get("read shared", 0.0) + (times - 1) * total

    # ----------------------------------------------------------------------------------------------------------------- memory
    def _access(self, r: n.Region, verb: str, at: _At) -> None:
        space, size = r.buffer.space, r.buffer.dtype.bytes
        if space in ("register", "fragment"):
            return
        elements = _elements(r.type, at.values)
        total = elements * size * at.times
        key = f"{verb} {space}"
        self.work.requested[key] = self.work.requested.get(key, 0.0) + total
        shape = tuple(_value(d, at.values) or 1 for d in shape_of(r.type))
        placed = offsets(r, at.values, at.lane if at.team == 1 else None, shape)
        run = 1.0 if placed is None else run_length(placed)
        vector = max(1.0, min(VECTOR / size, run, elements / at.team))
        per_lane = elements / at.team if at.team > 1 else elements
        self._issue(per_lane / vector + 1.0, at)
        if space != "global":
            return
        moved = SECTOR * (elements if placed is None else sectors(placed, size, SECTOR))
        self.work.sectors += moved * at.times
        if verb != "write":
            self.work.in_flight += moved * max(1, at.stages - 1) * (1 if at.team > 1 else self.work.threads)

    def _issue(self, per_lane: float, at: _At, times: float = 1.0) -> None:
        """Instructions of the team's warps: at least one a warp; a lone thread is a lane of a warp that others fill."""
        warps = max(1.0, at.team / WARP) if at.team > 1 or self.work.threads == 1 else 1.0 / WARP
        self.work.instructions += max(1.0, per_lane) * warps * at.times * times

    def _operations(self, unit: str, amount: float) -> None:
        self.work.operations[unit] = self.work.operations.get(unit, 0.0) + amount


def _is_index(e: n.Expr) -> bool:
    """Whether a value is an integer made of names and literals alone."""
    t = e.type
    return isinstance(t, (DType, TileType)) and dtype_of(t).is_integer and not any(isinstance(x, n.Load) for x in walk(e))


def _elements(t: Type, values: Mapping[str, n.Expr]) -> float:
    return float(math.prod(_value(d, values) or 1 for d in shape_of(t)))


def _scalar_name(d: DType) -> str:
    return d.name if d.name in ("f16", "bf16", "f64") else "f32"
