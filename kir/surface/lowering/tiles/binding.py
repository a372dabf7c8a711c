"""Tiles computed into registers: loops over the slots of a spread around one store, its innermost loop a vector where it can be."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.analysis.elements import NotElementwise, tile, tile_region
from kir.analysis.tiles.fragments import Spread
from kir.ir import nodes as n
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import walk
from kir.surface.lowering.registers.choice import suggested
from kir.surface.lowering.registers.element_demand import Need, of_spread
from kir.surface.lowering.registers.elements import element
from kir.surface.lowering.registers.state import Held, State, looped, place, register, slot_variables


def named(state: State, e: n.Expr) -> n.Expr:
    """A tile as a value with a name, computed now unless it has one."""
    if not isinstance(e.type, TileType) or isinstance(e, n.Var):
        return e
    name = state.fresh("value")
    bind(state, name, e, suggested(state, e))
    return n.Var(name, e.type)


def bind(state: State, name: str, value: n.Expr, s: Spread, label: str | None = None) -> None:
    """A tile computed into registers."""
    bind_elements(state, name, dtype_of(value.type), s, lambda need: element(state, value, need), label)


def bind_elements(state: State, name: str, dtype: DType, s: Spread, value: Callable[[Need], n.Expr], label: str | None = None) -> None:
    """A tile whose elements are given, computed into registers."""
    buffer = register(name, dtype, s)
    made = fill(state, Held(buffer, s), value, label)
    only = made[0] if len(made) == 1 else None
    if isinstance(only, n.Store) and not buffer.shape:
        state.put(n.Alloc(buffer, only.value, label=label))
    else:
        state.put(n.Alloc(buffer), *made)
    state.held[name] = Held(buffer, s)


def fill(state: State, held: Held, value: Callable[[Need], n.Expr], label: str | None = None) -> n.Block:
    """Every register of a held tile set to its value."""
    def write(need: Need, index: list[n.Expr]) -> n.Store:
        return n.Store(place(held.buffer, index), value(need), label=label)
    return each(state, held.spread, write)


def each(state: State, s: Spread, write: Callable[[Need, list[n.Expr]], n.Store]) -> n.Block:
    """Loops over the slots of a spread around one store; the innermost as a vector where its elements are neighbors."""
    variables, values = slot_variables(state, s)
    need = of_spread(s, state.lane, values)
    made = write(need, list(variables))
    extents = [d.extent for d in reversed(s.slots) if d.extent > 1]
    loops = list(zip(variables, extents, strict=True))
    first = next((d for d in s.slots if d.extent > 1), None)
    if loops and first is not None and first.step == 1:
        vector = vectorized(made, *loops[-1])
        if vector is not None:
            return looped((vector,), loops[:-1])
    return looped((made,), loops)


def vectorized(s: n.Store, j: n.Var, extent: int) -> n.Store | None:
    """A store for each value of `j` as one store of a vector; None where its elements are no neighbors."""
    axes = [(j, extent)]
    try:
        found = tile_region(s.at, axes)
        if found is None or found[1] != [0]:
            return None
        last = found[0].index[-1] if found[0].index else None
        if found[0].index and not (isinstance(last, n.Span) and last.step == 1):
            return None
        value = tile(s.value, axes, keep_shape=False)
        mask = None if s.mask is None else tile(s.mask, axes, keep_shape=False)
    except NotElementwise:
        return None
    if any(isinstance(x, n.Load) and any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in x.at.index) for x in walk(value)):
        return None
    return replace(s, at=found[0], value=value, mask=mask)
