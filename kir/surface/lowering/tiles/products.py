"""Products of tiles on the scalar units: each thread adds up the elements of the accumulator that it holds."""
from __future__ import annotations

from kir.analysis.tiles import tf32
from kir.analysis.tiles.fragments import Digit, Spread, extents_of
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import F32, I32, dtype_of
from kir.surface.lowering.registers.choice import distributed
from kir.surface.lowering.registers.element_demand import of_spread, register_index
from kir.surface.lowering.registers.elements import addressed, own_registers, region_need
from kir.surface.lowering.registers.state import State, looped, place, refuse, shape_known, slot_variables
from kir.surface.lowering.tiles import tensor, warpgroups


def accumulator(state: State, s: n.Mma, shape: tuple[int, ...]) -> Spread:
    """How the accumulator of a product is distributed."""
    if s.via == "wgmma" and (own := warpgroups.accumulator(shape, state.team)) is not None:
        return own
    found = tensor.plan(state, s) if len(shape) == 2 and shape == (shape_known(s.a)[0], shape_known(s.b)[1]) else None
    return found.accumulator() if found is not None else scalar_accumulator(state, shape)


def scalar_accumulator(state: State, shape: tuple[int, ...]) -> Spread:
    """Small squares a thread, so that each operand that is read serves several products."""
    rank = len(shape)
    if rank < 2:
        raise refuse("a product of tiles without rows or columns")
    order = list(reversed(range(rank)))
    per = 1
    while per < 8 and shape[-1] % (2 * per) == 0 and shape[-2] % (2 * per) == 0 and _size(shape) // (4 * per * per) >= state.team:
        per *= 2
    if per == 1:
        return distributed(shape, state.team, order)
    inner = (*shape[:-2], shape[-2] // per, shape[-1] // per)
    base = distributed(inner, state.team, order)
    columns, rows = inner[-1], inner[-2]  # the elements of a thread's square lie apart, so that neighbors read neighboring words
    return Spread(shape, base.threads, (*base.slots, Digit(per, rank - 1, columns), Digit(per, rank - 2, rows)))


def _size(shape: tuple[int, ...]) -> int:
    out = 1
    for d in shape:
        out *= d
    return out


def product(state: State, s: n.Mma) -> None:
    """`acc += a * b`: on tensor cores where they do it, else by fused multiply-adds of each thread."""
    if s.pending or s.via == "wgmma":
        raise refuse("a product that is left pending", "via mma_sync")
    held = state.held.get(s.acc.buffer.name)
    a_shape, b_shape = shape_known(s.a), shape_known(s.b)
    rank = len(a_shape)
    shape = (*a_shape[:-1], b_shape[-1])
    if held is None:
        _in_memory(state, s, shape)
        return
    found = tensor.plan(state, s) if not s.acc.index else None
    if found is not None and found.accumulator().canonical == held.spread.canonical:
        tensor.product(state, s, found, held)
        return
    if s.via == "mma_sync":
        raise refuse("a product that mma.sync does not do in this form", "operands of f16 or bf16 into f32, whole instructions for each warp")
    entire = extents_of(s.acc.buffer.shape)
    own = held.spread
    if s.acc.index:
        if state.team == state.threads or entire is None:
            raise refuse(f"a product into a part of the fragment '{s.acc.buffer.name}'", "a fragment of its own")
        own = _part(state, held.spread, s.acc, shape)
    k = n.Var(state.fresh("k"), I32)
    read_a, read_b = addressed(state, s.a), addressed(state, s.b)
    variables, values = slot_variables(state, own)
    need = of_spread(own, state.lane, values)
    at = list(need.coordinates)
    dtype = s.acc.buffer.dtype
    first, second = read_a([*at[:-1], k]), read_b([*at[:rank - 2], k, at[-1]])
    if s.precision == "tf32" and dtype_of(s.a.type) == F32:
        first, second = (side if tf32.representable(whole) else tf32.rounded(side) for side, whole in ((first, s.a), (second, s.b)))
    term = build.binary("mul", build.cast(first, dtype), build.cast(second, dtype))
    target = need if not s.acc.index else region_need(s.acc, need)
    index = None
    if target is not None:
        index = own_registers(state, held, target)
    if index is None:
        raise refuse(f"the threads that compute this part of '{s.acc.buffer.name}' do not hold it", "a layout for the product")
    here = place(held.buffer, index)
    body: n.Block = (n.Store(here, build.binary("add", build.load(here), term), label=s.label),)
    extents = [d.extent for d in reversed(own.slots) if d.extent > 1]
    loop = n.For(k, const(0), const(a_shape[-1]), const(1), looped(body, list(zip(variables, extents, strict=True))))
    state.put(loop)
    state.forget(s.acc.buffer.name)


def _part(state: State, whole: Spread, r: n.Region, shape: tuple[int, ...]) -> Spread:
    """The part of an accumulator that a sub-team holds: the digits of its threads, and those of the slot within the region."""
    below, threads = 1, []
    for d in whole.threads:
        if below < state.team:
            if below * d.extent > state.team:
                raise refuse("a layout whose digits do not end at the team's threads")
            threads.append(d)
        below *= d.extent
    slots = tuple(d for d in whole.slots if d.extent > 1)
    made = Spread(shape, tuple(threads), slots)
    if made.size * made.team != _size(shape) or register_index(made, of_spread(made, state.lane, [const(0) for _ in slots])) is None:
        raise refuse(f"the layout of '{r.buffer.name}' does not give each team its part of the product", "a layout tiled over the teams")
    return made


def _in_memory(state: State, s: n.Mma, shape: tuple[int, ...]) -> None:
    raise refuse(f"a product into '{s.acc.buffer.name}', which is no fragment", "a fragment that is stored afterwards")
