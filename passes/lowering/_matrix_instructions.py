"""Matrix instructions as one lane spells them: ldmatrix, mma.sync, and the same product by multiply-adds."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import NotElementwise, element
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of, shape_of
from kir.ir.visit import walk
from kir.rewrite.edit import fresh
from kir.rewrite.match import counting, fresh_var

from ._fragment_inference import NotLowered, Team, depth_of, extents
from ._fragment_layout import Exprs, Holding, Matrix, Operand, lane_of, matrix
from ._lane_state import LaneState, piece


def load_matrix(lanes: LaneState, s: n.Copy, team: Team) -> n.Block:
    """A copy via ldmatrix: per atom the lane names a row of 16 bytes, and receives its slots."""
    held = lanes.local(s.dst, team).holding
    turned = bool(dict(s.attrs).get("trans", False))
    if not isinstance(held, Matrix) or held.role == "c" or turned != (held.role == "b"):
        raise NotLowered(f"ldmatrix fills '{s.dst.buffer.name}' in another order than its product wants")
    if s.dst.buffer.dtype.bits != 16 or s.src.clip or s.src.mask is not None or s.mask is not None:
        raise NotLowered("ldmatrix of elements that have not 16 bits, or under a mask")
    register, lane = lanes.registers[s.dst.buffer.name], lane_of(lanes.t, lanes.threads)
    pairs = dict(s.attrs).get("num") == 4 and held.role == "b"
    if pairs and held.grid[1] % 2:
        raise NotLowered(f"ldmatrix of four matrices at a time fills two columns of products, and '{s.dst.buffer.name}' has {held.grid[1]}")
    num = 4 if pairs else held.slots // 2

    def body(at: Exprs) -> n.Block:
        row = build.add(build.mul(at[0], held.atom[0]), build.mod(lane, build.const(16)))
        column = build.mul(at[1], held.atom[1] * (2 if pairs else 1))
        if held.role == "a" or pairs:
            column = build.add(column, build.mul(build.floordiv(lane, 16), 8))
        place = piece(s.src.at, (row, column), 8)
        name = fresh(f"{s.dst.buffer.name}_rows", lanes.taken)
        options = n.attrs(num=num, trans=True) if turned else n.attrs(num=num)
        value = build.call_with("ldmatrix", (place,), options)
        rows = n.Var(name, value.type)
        let = n.Let((name,), value, label=s.label)
        if not pairs:
            return let, n.Store(build.region(register, *held.index(at, 0, held.slots)), rows)
        first = build.iota(held.slots)
        return (let, *(n.Store(build.region(register, *held.index((at[0], build.add(build.mul(at[1], 2), k)), 0, held.slots)),
                               build.call("pick", rows, build.add(first, held.slots * k)))
                       for k in range(2)))
    return lanes.nest(replace(held, grid=(held.grid[0], held.grid[1] // 2)) if pairs else held, body)


def product(lanes: LaneState, s: n.Mma, team: Team) -> n.Block:
    """An mma as the thread's share of it."""
    if s.pending or len(shape_of(s.acc.type)) != 2:
        raise NotLowered("a pending or batched product")
    if s.via == "mma_sync":
        return _mma_sync(lanes, s, team)
    if s.via == "fma":
        return _multiply_adds(lanes, s, team)
    raise NotLowered(f"a product via {s.via}: `mma{{via=mma_sync}}` or `~mma` says which instruction it is")


def _mma_sync(lanes: LaneState, s: n.Mma, team: Team) -> n.Block:
    acc = lanes.local(s.acc, team).holding
    a_type = dtype_of(s.a.type)
    if not isinstance(acc, Matrix):
        raise NotLowered(f"'{s.acc.buffer.name}' is no fragment of mma.sync")
    if (a_type.name == "f32") != (s.precision == "tf32") or s.precision not in ("ieee", "tf32"):
        raise NotLowered(f"mma.sync of {a_type} at precision {s.precision}")
    k = depth_of(a_type)
    before: list[n.Stmt] = []
    a, a_held = _operand(lanes, s.a, "a", team, before)
    b, b_held = _operand(lanes, s.b, "b", team, before)
    steps = a_held.grid[1]
    c = lanes.registers[s.acc.buffer.name]

    def body(at: Exprs, kk: n.Expr) -> n.Block:
        left, right = (at[0], kk), (kk, at[1])
        place = build.region(c, *acc.index(at, 0, acc.slots))
        value = build.call("mma_sync", n.Load(build.region(a, *a_held.index(left, 0, a_held.slots))),
                           n.Load(build.region(b, *b_held.index(right, 0, b_held.slots))), n.Load(place), shape=f"m16n8k{k}")
        return (n.Store(place, value, label=s.label),)
    if steps == 1:
        return (*before, *lanes.nest(acc, lambda at: body(at, build.const(0))))
    kk = fresh_var("kk", lanes.taken)
    inner = lanes.nest(acc, lambda at: body(at, kk))
    loop = counting(kk, steps, inner, "unroll", lanes.hint(steps))
    return (*before, loop)


def _operand(lanes: LaneState, e: n.Expr, role: str, team: Team, before: list[n.Stmt]) -> tuple[n.Buffer, Holding]:
    """The registers of an operand: a fragment's, or an array that is filled here."""
    if isinstance(e, n.Load) and e.at.buffer.name in lanes.held:
        return lanes.registers[e.at.buffer.name], lanes.local(e.at, team).holding
    shape = extents(shape_of(e.type), "an operand")
    dtype = dtype_of(e.type)
    held = matrix(shape, "a" if role == "a" else "b", dtype.bits, depth_of(dtype), (0, 0), lanes.threads)
    if held is None:
        raise NotLowered(f"an operand of {shape[0]} x {shape[1]} is not made of whole fragments of mma.sync")
    if any(isinstance(x, n.Load) and x.at.buffer.name in lanes.held for x in walk(e)):
        raise NotLowered("an operand computed from fragments")
    b = held.register(fresh(role, lanes.taken), n.Buffer("", dtype, (), "register"))
    before.append(n.Alloc(b))

    def body(at: Exprs) -> n.Block:
        return tuple(n.Store(build.region(b, *held.index(at, slot)), scalar(e, held.place(lanes.t, at, slot)))
                     for slot in range(held.slots))
    before.extend(lanes.nest(held, body))
    return b, held


def scalar(e: n.Expr, place: Exprs) -> n.Expr:
    """The element of an operand at a place. Raises NotLowered."""
    try:
        return element(e, place)
    except NotElementwise as bad:
        raise NotLowered(f"'{bad}' of a whole tile is an operand") from bad


def _multiply_adds(lanes: LaneState, s: n.Mma, team: Team) -> n.Block:
    acc = lanes.local(s.acc, team).holding
    if s.precision != "ieee":
        raise NotLowered(f"multiply-adds at precision {s.precision}")
    depth = extents(shape_of(s.a.type), "an operand")[1]
    j = fresh_var("j", lanes.taken)
    c, dtype = lanes.registers[s.acc.buffer.name], s.acc.buffer.dtype
    t = lanes.t if isinstance(acc, Matrix) else lanes.rank(team)
    in_registers = [x for e in (s.a, s.b) for x in walk(e) if isinstance(x, n.Load) and x.at.buffer.name in lanes.held]

    def factor(e: n.Expr, axis: int, at: Exprs, slot: int, place: Exprs) -> n.Expr:
        if isinstance(e, n.Load) and e in in_registers:
            own = lanes.local(e.at, team).holding
            if isinstance(own, Operand):
                where = (at[0], j) if axis == 0 else (j, at[1])
                return n.Load(build.region(lanes.registers[e.at.buffer.name], *own.index(where, slot // 2 if axis == 0 else slot % 2)))
            if lanes.threads == 1:
                return n.Load(build.region(lanes.registers[e.at.buffer.name], *own.index(place, 0)))
        if any(x in in_registers for x in walk(e)):
            raise NotLowered("an operand is spread over the threads' registers, and each needs whole rows of it")
        return scalar(e, place)

    def body(at: Exprs) -> n.Block:
        out: list[n.Stmt] = []
        for slot in range(acc.slots):
            row, column = acc.place(t, at, slot)
            where = build.region(c, *acc.index(at, slot))
            left, right = factor(s.a, 0, at, slot, (row, j)), factor(s.b, 1, at, slot, (j, column))
            term = build.mul(build.cast(left, dtype), build.cast(right, dtype))
            out.append(n.Store(where, build.add(n.Load(where), term), label=s.label if slot == 0 else None))
        return tuple(out)
    kind, options = ("unroll", lanes.hint(depth)) if in_registers and lanes.threads > 1 else ("serial", ())
    return (counting(j, depth, lanes.nest(acc, body), kind, options),)
