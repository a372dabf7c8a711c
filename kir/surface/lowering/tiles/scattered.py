"""Elements from anywhere, and to anywhere: gathers, tiles put together, histograms and atomics."""
from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import I32, DType, TileType, dtype_of
from kir.surface.lowering.registers.choice import for_memory, matching, own_axes, suggested
from kir.surface.lowering.registers.element_demand import Need, of_spread
from kir.surface.lowering.registers.elements import addressed, element, element_place
from kir.surface.lowering.registers.state import Held, State, guarded, looped, place, refuse, register, shape_known, slot_variables
from kir.surface.lowering.tiles.binding import bind_elements, named


def gather(state: State, name: str, c: n.Call) -> None:
    """Elements of a tile at indices along an axis."""
    x, indices = (a for a in c.args if isinstance(a, n.Expr))
    axis = int(dict(c.attrs).get("axis", 0))
    read = addressed(state, x)

    def value(need: Need) -> n.Expr:
        at = list(need.coordinates)
        at[axis] = element(state, indices, need)
        return read(at)
    bind_elements(state, name, dtype_of(c.type), suggested(state, indices), value)


def cat(state: State, name: str, c: n.Call) -> None:
    """Tiles one after the other along an axis."""
    args = [a for a in c.args if isinstance(a, n.Expr)]
    axis, shape = int(dict(c.attrs).get("axis", 0)), shape_known(c)
    parts = [(addressed(state, a), shape_known(a)[axis]) for a in args]

    def value(need: Need) -> n.Expr:
        at, out, end = list(need.coordinates), None, shape[axis]
        for read, extent in reversed(parts):
            end -= extent
            own = [*at[:axis], build.sub(at[axis], end), *at[axis + 1:]]
            limit = const(extent - 1)
            own[axis] = build.maximum(build.minimum(own[axis], limit), const(0))
            found = read(own)
            out = found if out is None else build.select(build.compare("ge", at[axis], end + extent), out, found)
        assert out is not None
        return out
    bind_elements(state, name, dtype_of(c.type), for_memory(state, shape, []), value)


def histogram(state: State, name: str, c: n.Call) -> None:
    """Counts by atomics in shared memory."""
    x = next(a for a in c.args if isinstance(a, n.Expr))
    x = named(state, x)
    (bins,), dtype = shape_known(c), dtype_of(c.type)
    if state.team != state.threads:
        raise refuse("a histogram of a part of the CTA")
    memory = state.scratch_for(dtype, bins)
    clear = for_memory(state, (bins,), [])
    variables, values = slot_variables(state, clear)
    loops = list(zip(variables, [d.extent for d in reversed(clear.slots) if d.extent > 1], strict=True))
    state.touch(n.Region(memory), "write")
    zero = n.Store(build.region(memory, of_spread(clear, state.lane, values).coordinates[0]), const(0, dtype))
    state.put(*guarded(clear.first_copy(state.lane), looped((zero,), loops)))
    s = suggested(state, x)
    variables, values = slot_variables(state, s)
    loops = list(zip(variables, [d.extent for d in reversed(s.slots) if d.extent > 1], strict=True))
    v = build.cast(element(state, x, of_spread(s, state.lane, values)), I32)
    state.touch(n.Region(memory), "atomic")
    count = n.Eval(build.call("atomic_add", build.region(memory, v), const(1, dtype)))
    inside = build.logical_and(build.compare("ge", v, 0), build.compare("lt", v, bins))
    state.put(*guarded(s.first_copy(state.lane), looped((n.If(inside, (count,)),), loops)))
    state.touch(n.Region(memory), "read")
    bind_elements(state, name, dtype, clear, lambda need: build.load(build.region(memory, need.coordinates[0])))


def atomic(state: State, name: str | None, c: n.Call, label: str | None) -> None:
    """An atomic operation, once for each element; its old values are kept where a name asks for them."""
    r = c.args[0]
    assert isinstance(r, n.Region)
    operands = [a for a in c.args[1:] if isinstance(a, n.Expr)]
    if r.buffer.name in state.held:
        raise refuse("an atomic operation on a fragment", "shared or global memory")
    wanted = 2 if c.fn == "atomic_cas" else 1
    mask = operands[wanted] if len(operands) > wanted else None
    dtype = r.buffer.dtype
    if not isinstance(r.type, TileType) and not any(isinstance(a.type, TileType) for a in operands):
        for a in operands:
            state.touch_all(a)
        state.touch(r, "atomic")
        _alone(state, name, replace(c, args=(r, *operands[:wanted])), mask, dtype, label)
        return
    shape = shape_known(r)
    s = next((x for a in operands for x in matching(state, a, shape)), None) or for_memory(state, shape, [(r, own_axes(r), True)])
    buffer = None if name is None else register(name, dtype, s)
    if buffer is not None and s.first_copy(state.lane) is not None:
        raise refuse("an atomic operation whose old values several threads want", "a tile of at least one element a thread")
    variables, values = slot_variables(state, s)
    need = of_spread(s, state.lane, values)

    def own(a: n.Expr) -> n.Expr:
        return element(state, a, need.fitted(shape_known(a))) if isinstance(a.type, TileType) else a
    made = replace(c, args=(element_place(state, r, need, "atomic"), *map(own, operands[:wanted])))
    body: n.Block = (n.Eval(made, label=label),)
    if buffer is not None:
        old = state.fresh("old")
        body = (n.Let((old,), made, label=label), n.Store(place(buffer, list(variables)), n.Var(old, dtype)))
    body = guarded(None if mask is None else own(mask), body)
    loops = list(zip(variables, [d.extent for d in reversed(s.slots) if d.extent > 1], strict=True))
    if buffer is not None:
        state.put(n.Alloc(buffer, None if mask is None else const(0, dtype)), *looped(body, loops))
        assert name is not None
        state.held[name] = Held(buffer, s)
    else:
        state.put(*guarded(s.first_copy(state.lane), looped(body, loops)))
    state.forget(r.buffer.name)


def _alone(state: State, name: str | None, c: n.Call, mask: n.Expr | None, dtype: DType, label: str | None) -> None:
    """An atomic operation that the team does once: by its first thread, which tells the others the old value."""
    first = build.compare("eq", state.lane, 0)
    first = first if mask is None else build.logical_and(first, mask)
    if name is None:
        state.put(n.If(first, (n.Eval(c, label=label),)))
        return
    memory = state.scratch_for(dtype, state.threads // state.team)
    at = build.region(memory, const(0) if state.team == state.threads else build.floordiv(state.thread, state.team))
    old = state.fresh("old")
    state.touch(at, "write")
    state.put(n.If(first, (n.Let((old,), c, label=label), n.Store(at, n.Var(old, dtype)))))
    state.touch(at, "read")
    state.put(n.Let((name,), build.load(at)))
