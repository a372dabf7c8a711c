"""Products of tiles on tensor cores by mma.sync: each warp computes its part of the accumulator, operands as each lane must hold them.

An operand that lies in registers in a form that the lanes can take (the result of another product, say) stays there; any other is read from
shared memory by ldmatrix, after it has been put there if it was not.
"""
from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from kir.analysis.elements import tile_region
from kir.analysis.tiles.fragments import STILL, Digit, Spread
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import add, const, mod, mul
from kir.ir.types import I32, TileType, dtype_of
from kir.ir.visit import walk
from kir.surface.lowering.registers.element_demand import Need, of_spread
from kir.surface.lowering.registers.elements import addressed, element
from kir.surface.lowering.registers.state import Held, State, looped, place, refuse, shape_known

WARP, DEPTH = 32, 16
PAIRS = {("f16", "f32"), ("bf16", "f32")}
"""Dtypes of operands and accumulator that m16n8k16 takes here."""


@dataclass(frozen=True)
class Plan:
    """A product of `m` x `columns` x `k` by `rows_of` x `columns_of` warps."""

    m: int
    columns: int
    k: int
    rows_of: int
    columns_of: int

    @property
    def atoms(self) -> tuple[int, int, int]:
        """Products of 16 x 8 x 16 of one warp along each dimension."""
        return self.m // (16 * self.rows_of), self.columns // (8 * self.columns_of), self.k // DEPTH

    def accumulator(self) -> Spread:
        """How the accumulator is distributed: as mma.sync has it, tile by tile within a warp."""
        rows, cols, _ = self.atoms
        return Spread((self.m, self.columns), (Digit(4, 1, 2), Digit(8, 0, 1), *self._warps(1, 8 * cols, 0, 16 * rows)),
                      (Digit(2, 1, 1), Digit(2, 0, 8), Digit(cols, 1, 8), Digit(rows, 0, 16)))

    def first(self) -> Spread:
        """How the first operand [m, k] is distributed."""
        rows, _, depth = self.atoms
        return Spread((self.m, self.k), (Digit(4, 1, 2), Digit(8, 0, 1), *self._warps(STILL, 0, 0, 16 * rows)),
                      (Digit(2, 1, 1), Digit(2, 0, 8), Digit(2, 1, 8), Digit(rows, 0, 16), Digit(depth, 1, DEPTH)))

    def second(self) -> Spread:
        """How the second operand [k, columns] is distributed."""
        _, cols, depth = self.atoms
        return Spread((self.k, self.columns), (Digit(4, 0, 2), Digit(8, 1, 1), *self._warps(1, 8 * cols, STILL, 0)),
                      (Digit(2, 0, 1), Digit(2, 0, 8), Digit(cols, 1, 8), Digit(depth, 0, DEPTH)))

    def _warps(self, axis: int, step: int, other: int, far: int) -> tuple[Digit, Digit]:
        return Digit(self.columns_of, axis, step), Digit(self.rows_of, other, far)


def plan(state: State, s: n.Mma) -> Plan | None:
    """How a product runs on tensor cores; None where it cannot: other dtypes, parts that are no whole instructions. Warps share the tile
    out so that they read least; where rows are reduced, each has whole rows if there are enough."""
    a, b = shape_known(s.a), shape_known(s.b)
    pair = (dtype_of(s.a.type).name, s.acc.buffer.dtype.name)
    if len(a) != 2 or pair not in PAIRS or dtype_of(s.b.type) != dtype_of(s.a.type) or state.team % WARP or s.via not in ("auto", "mma_sync"):
        return None
    warps = state.team // WARP
    fits = [(rows, warps // rows) for rows in range(1, warps + 1)
            if warps % rows == 0 and a[0] % (16 * rows) == 0 and b[1] % (8 * (warps // rows)) == 0]
    if not fits or a[1] % DEPTH:
        return None
    by_rows = any(isinstance(x, n.Call) and x.of is None and x.fn in ("reduce", "scan") for x in walk(state.kernel))
    rows_of, columns_of = min(fits, key=lambda w: (-w[0] if by_rows else 0, a[0] // w[0] + b[1] // w[1], -w[0]))
    return Plan(a[0], b[1], a[1], rows_of, columns_of)


def product(state: State, s: n.Mma, p: Plan, held: Held) -> None:
    """`acc += a * b`, an unrolled loop over the depth around one instruction for each 16 x 8 of a warp's part."""
    rows, cols, depth = p.atoms
    dtype = dtype_of(s.a.type)
    kk, mi, ni, row, column = (n.Var(state.fresh(base), I32) for base in ("kk", "mi", "ni", "mi", "ni"))
    first, second = _operand(state, s.a, p.first(), mi, kk, False), _operand(state, s.b, p.second(), ni, kk, True)
    a, b = n.Buffer(state.fresh("a"), dtype, (const(rows), const(8)), "register"), n.Buffer(state.fresh("b"), dtype, (const(cols), const(4)),
                                                                                           "register")
    dims = [v for v, extent in ((row, rows), (column, cols)) if extent > 1]
    here = build.region(held.buffer, *dims, build.span(0, 2), build.span(0, 2))
    result = state.fresh("product")
    call = build.call("mma_sync", build.load(build.region(a, row, build.span(0, 8))), build.load(build.region(b, column, build.span(0, 4))),
                      build.call("reshape", build.load(here), const(4)), shape="m16n8k16")
    value = n.Var(result, TileType(s.acc.buffer.dtype, (4,)))
    dot: n.Block = (n.Let((result,), call, label=s.label), n.Store(here, build.call("reshape", value, const(2), const(2))))
    body = (n.Alloc(a), *looped(first(a), [(mi, rows)]), n.Alloc(b), *looped(second(b), [(ni, cols)]),
            *looped(dot, [(row, rows), (column, cols)]))
    state.put(*looped(body, [(kk, depth)]))
    state.forget(s.acc.buffer.name)


Fetch = Callable[[n.Buffer], n.Block]


def _operand(state: State, e: n.Expr, own: Spread, which: n.Var, kk: n.Var, trans: bool) -> Fetch:
    """The code that gives a lane its elements of one atom of an operand."""
    inner = [(n.Var(state.fresh("i"), I32), d.extent) for d in own.slots[:-2]]
    need = of_spread(own, state.lane, [*(v for v, _ in inner), which, kk])
    value = _from_registers(state, e, need)
    if value is not None:
        slot: n.Expr = const(0)
        below = 1
        for v, extent in inner:
            slot = add(slot, mul(v, below))
            below *= extent
        return lambda b: looped((n.Store(place(b, [which, slot]), value),), list(reversed(inner)))
    aligned = isinstance(e, n.Load) and e.at.buffer.space == "shared" and e.mask is None and not e.clip and _rows_aligned(e.at.buffer)
    read = addressed(state, e, spill=not aligned)
    still = tuple(Digit(d.extent, STILL, 0) for d in own.threads[:2])
    corner = of_spread(replace(own, threads=(*still, *own.threads[2:])), state.lane, [*(const(0) for _ in inner), which, kk]).coordinates
    lane = mod(state.lane, WARP)
    column = corner[1] if trans else add(corner[1], mul(build.floordiv(lane, 16), 8))
    rows = _row(read([add(corner[0], mod(lane, 16)), column]), 8)
    size, options = (4, n.attrs(num=2, trans=True)) if trans else (8, n.attrs(num=4))
    name = state.fresh("rows")
    taken = n.Var(name, TileType(dtype_of(e.type), (size,)))
    return lambda b: (n.Let((name,), n.Call("ldmatrix", (rows,), options)), n.Store(build.region(b, which, build.span(0, size)), taken))


def _rows_aligned(b: n.Buffer) -> bool:
    """Whether rows of shared memory begin at multiples of 16 bytes."""
    numbers = [x for a in (b.layout.args if b.layout is not None and b.layout.name == "strides" else ()) for x in (
        a if isinstance(a, tuple) else (a,)) if isinstance(x, int)]
    return all(x % 8 == 0 for x in numbers[:-1]) and (build.int_value(b.shape[-1]) or 0) % 8 == 0 and (
        b.layout is None or b.layout.name in ("strides", "swizzle"))


def _row(e: n.Expr, count: int) -> n.Region:
    """The place of `count` neighbors from an element on."""
    if not isinstance(e, n.Load) or e.mask is not None or e.clip:
        raise refuse("an operand that is read under a condition", "a tile in shared memory")
    r = e.at
    j = n.Var("%j", I32)
    *front, last = r.index
    assert isinstance(last, n.Expr)
    made = tile_region(build.region(r.buffer, *front, add(last, build.cast(j, dtype_of(last.type)))), [(j, count)])
    if made is None:
        raise refuse("an operand whose rows are no neighbors in memory", "row-major shared memory")
    return made[0]


def _from_registers(state: State, e: n.Expr, need: Need) -> n.Expr | None:
    """An operand's element, where all that it is computed from is in registers of the thread that needs it."""
    leaves = [x for x in walk(e) if (isinstance(x, n.Var) and isinstance(x.of, TileType)) or isinstance(x, n.Load)]
    if not leaves or not all(isinstance(x, n.Var) or (isinstance(x, n.Load) and x.at.buffer.name in state.held) for x in leaves):
        return None
    trial = copy.copy(state)
    trial.alone = True
    try:
        return element(trial, e, need)
    except KirError:
        return None
