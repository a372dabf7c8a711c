"""Memory: fragments as registers, and stores and copies by the threads that hold or fetch what they move."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import tile_region
from kir.analysis.tiles.fragments import Spread, extents_of, spread
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.canonical import bound_names
from kir.ir.types import I32, TileType
from kir.ir.visit import walk
from kir.surface.lowering.registers.choice import (
    Found,
    accesses,
    added_product,
    distributed,
    for_memory,
    matching,
    own_axes,
    rows_of_a_product,
    suggested,
)
from kir.surface.lowering.registers.element_demand import Need, of_spread
from kir.surface.lowering.registers.elements import addressed, element, element_place
from kir.surface.lowering.registers.state import MOST_SLOTS, Held, State, guarded, looped, place, refuse, register, shape_known, slot_variables
from kir.surface.lowering.tiles import products
from kir.surface.lowering.tiles.binding import each, fill
from kir.surface.lowering.tiles.values import hoisted


def alloc(state: State, s: n.Alloc) -> None:
    """Lowers a buffer's declaration: shared memory to the CTA's, fragments to what each thread holds of them."""
    b = s.buffer
    if b.space == "shared":
        state.shared.append(replace(s, init=None))
        if s.init is not None:
            store(state, n.Store(n.Region(b), s.init, origin=s.origin))
        return
    init = None if s.init is None else hoisted(state, s.init)
    if b.space == "register" or not b.shape:
        made = replace(s, buffer=replace(b, space="register"), init=None if init is None or isinstance(init.type, TileType) else init)
        if made.init is not None:
            state.touch_all(made.init)
        state.put(made)
        if init is not None and made.init is None:
            raise refuse(f"'{b.name}' is filled with a tile, and every thread has all of it", "a fragment")
        return
    shape = extents_of(b.shape)
    if shape is None:
        raise refuse(f"the fragment '{b.name}' has an extent that is not known when the program is compiled")
    if b.layout is not None:
        s_ = spread(b.layout, shape, b.dtype)
        if s_.team != state.team:
            raise refuse(f"the layout of '{b.name}' is for {s_.team} threads, and the team has {state.team}", "a layout for the team")
    else:
        s_ = state.spreads.get(b.name) or fragment_spread(state, b, shape, init)
        state.weak -= {b.name} if b.name in state.spreads else set()
    held = Held(register(b.name, b.dtype, s_), s_)
    made_init = init if init is not None and not isinstance(init.type, TileType) else None
    if made_init is not None:
        state.touch_all(made_init)
    filling: n.Block = ()
    if init is not None and made_init is None:
        filling = fill(state, held, lambda need: element(state, init, need.fitted(shape_known(init))), s.label)
    elif made_init is not None and s_.size > MOST_SLOTS:
        variables, _ = slot_variables(state, s_)
        extents = [d.extent for d in reversed(s_.slots) if d.extent > 1]
        filling = looped((n.Store(place(held.buffer, variables), made_init),), list(zip(variables, extents, strict=True)))
        made_init = None
    state.put(replace(s, buffer=held.buffer, init=made_init), *filling)
    state.held[b.name] = held
    state.fragments[b.name] = b


def fragment_spread(state: State, b: n.Buffer, shape: tuple[int, ...], init: n.Expr | None) -> Spread:
    """How a fragment without a layout is distributed: for the product that it accumulates, else as it is first filled from or stored to memory.
    Where nothing says, the choice is weak: what is stored to it is asked when all is known."""
    uses = [x for x in walk(state.kernel) if isinstance(x, n.Stmt)]
    for x in uses:
        if isinstance(x, n.Mma) and x.acc.buffer.name == b.name:
            return products.accumulator(state, x, shape)
    if init is not None and isinstance(init.type, TileType):
        return suggested(state, init)
    if (of := added_product(uses, b.name)) is not None:
        return products.accumulator(state, of, shape)
    if len(shape) == 1 and (rows := rows_of_a_product(state, shape[0])) is not None:
        return rows
    found: list[Found] = []
    for x in uses:
        match x:
            case n.Store() if x.at.buffer.name == b.name and not x.at.index:
                found += accesses(state, x.value, list(range(len(shape))))
            case n.Store() if isinstance(x.value, (n.Load, n.Cast)) and any(
                    isinstance(y, n.Load) and y.at.buffer.name == b.name and not y.at.index for y in walk(x.value)):
                if extents_of(tuple(x.at.type.shape) if isinstance(x.at.type, TileType) else ()) == shape:
                    found.append((x.at, own_axes(x.at), x.clip or x.mask is not None))
            case n.Copy() if x.dst.buffer.name == b.name and not x.dst.index:
                found.append((x.src.at, own_axes(x.src.at), x.src.clip))
            case n.Copy() if x.src.at.buffer.name == b.name and not x.src.at.index:
                found.append((x.dst, own_axes(x.dst), x.clip))
            case _:
                pass
    found = [f for f in found if f[0].buffer.space in ("global", "shared")]
    if not found:
        state.weak.add(b.name)
    bound = set(bound_names(state.kernel.body))
    known = [f for f in found if not any(isinstance(v, n.Var) and v.name in bound for i in f[0].index for v in walk(i))] or found
    return for_memory(state, shape, known)


def store(state: State, s: n.Store) -> None:
    """A store of a tile or scalar to registers, shared or global memory."""
    value = hoisted(state, s.value)
    mask = None if s.mask is None else hoisted(state, s.mask)
    index = tuple(replace(i, lo=hoisted(state, i.lo)) if isinstance(i, n.Span) else hoisted(state, i) for i in s.at.index)
    s = replace(s, value=value, mask=mask, at=n.Region(s.at.buffer, index))
    held = state.held.get(s.at.buffer.name)
    if held is not None:
        _store_held(state, s, held)
        return
    if s.at.buffer.space in ("register", "fragment"):
        if isinstance(value.type, TileType) or isinstance(s.at.type, TileType):
            _store_private(state, s)
            return
        state.touch_all(value)
        state.put(s)
        return
    if not isinstance(s.at.type, TileType):
        state.touch_all(value)
        state.touch(s.at, "write")
        state.put(n.If(build.compare("eq", state.lane, 0), (s,)))
        state.forget(s.at.buffer.name)
        return
    shape = shape_known(s.at)
    own = next((c for c in matching(state, value, shape)), None) or for_memory(
        state, shape, [(s.at, own_axes(s.at), s.clip or s.mask is not None), *accesses(state, value, _aligned_aligned_axes(value, shape))])

    def write(need: Need, _: list[n.Expr]) -> n.Store:
        made = None if mask is None else element(state, mask, need.fitted(shape_known(mask)))
        elem = element(state, value, need.fitted(shape_known(value))) if isinstance(value.type, TileType) else value
        return replace(s, at=element_place(state, s.at, need, "write"), value=elem, mask=made)
    if not isinstance(value.type, TileType):
        state.touch_all(value)
    body = each(state, own, write)
    state.put(*guarded(own.first_copy(state.lane), body), *_seen_by_descriptors(state, s.at.buffer))
    state.forget(s.at.buffer.name)


def _aligned_aligned_axes(value: n.Expr, shape: tuple[int, ...]) -> list[int]:
    rank = len(value.type.shape) if isinstance(value.type, TileType) else 0
    return list(range(len(shape)))[len(shape) - rank:]


def _store_held(state: State, s: n.Store, held: Held) -> None:
    """A store to a fragment: to all of it, or to the registers of a region under a condition."""
    inner = None if s.mask is None else s.mask
    touched = s.at.index

    def at(x: n.Expr, need: Need) -> n.Expr:
        return element(state, x, need.fitted(shape_known(x))) if isinstance(x.type, TileType) else x
    if not touched:
        def write(need: Need, index: list[n.Expr]) -> n.Store:
            return n.Store(place(held.buffer, index), at(s.value, need), None if inner is None else at(inner, need), label=s.label)
        if not isinstance(s.value.type, TileType):
            state.touch_all(s.value)
        if s.at.buffer.name in state.weak and isinstance(s.value.type, TileType):
            for found in matching(state, s.value, held.spread.shape, firm=True)[:1]:
                state.wanted[s.at.buffer.name] = found
        body = each(state, held.spread, write)
        state.put(*body)
        state.forget(s.at.buffer.name)
        return
    shape = extents_of(tuple(s.at.type.shape)) if isinstance(s.at.type, TileType) else ()
    if shape is None or any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in touched):
        raise refuse(f"a scattered store to the fragment '{s.at.buffer.name}'", "shared memory")
    _store_part(state, s, held, shape)


def _store_part(state: State, s: n.Store, held: Held, shape: tuple[int, ...]) -> None:
    """A store to a region of a fragment: each thread goes over its registers and sets those inside."""
    variables, values = slot_variables(state, held.spread)
    need = of_spread(held.spread, state.lane, values)
    if s.clip:
        raise refuse(f"a clipped store to a region of the fragment '{s.at.buffer.name}'", "a mask")
    inside: n.Expr | None = None
    local: list[n.Expr] = []
    for i, c in zip(s.at.index, need.coordinates, strict=True):
        if isinstance(i, n.Span):
            step, extent = int_value(i.step), int_value(i.extent)
            if step != 1 or extent is None:
                raise refuse(f"a strided store to the fragment '{s.at.buffer.name}'")
            off = build.sub(c, build.cast(i.lo, I32))
            cond = build.logical_and(build.compare("ge", off, 0), build.compare("lt", off, extent))
            local.append(off)
        else:
            cond = build.compare("eq", c, build.cast(i, I32))
        inside = cond if inside is None else build.logical_and(inside, cond)
    value = s.value
    if isinstance(value.type, TileType):
        own = shape_known(value)
        fitted = [const(0) if d == 1 else x for d, x in zip(own, local[len(local) - len(own):], strict=True)]
        value = addressed(state, value)(fitted)
    else:
        state.touch_all(value)
    if s.mask is not None:
        if isinstance(s.mask.type, TileType):
            raise refuse(f"a masked store to a region of the fragment '{s.at.buffer.name}'")
        inside = build.logical_and(inside, s.mask) if inside is not None else s.mask
    extents = [d.extent for d in reversed(held.spread.slots) if d.extent > 1]
    body: n.Block = (n.Store(place(held.buffer, variables), value, label=s.label),)
    state.put(*looped(guarded(inside, body), list(zip(variables, extents, strict=True))))
    state.forget(s.at.buffer.name)


def _store_private(state: State, s: n.Store) -> None:
    """A store to memory that every thread has a copy of: each does all of it."""
    if isinstance(s.value.type, TileType):
        shape = shape_known(s.at)
        variables = [n.Var(state.fresh("i"), I32) for _ in shape]
        need = Need(shape, state.lane, (), (), tuple(variables))
        own = need.fitted(shape_known(s.value))
        value = addressed(state, s.value)(own.base)
        at = element_place(state, s.at, need)
        state.put(*looped((n.Store(at, value, label=s.label),), list(zip(variables, shape, strict=True))))
        return
    state.touch_all(s.value)
    state.put(s)


def copy(state: State, s: n.Copy) -> None:
    """A copy: by vectors of each thread."""
    if s.signal is not None or s.via in ("bulk", "tma"):
        raise refuse(f"a copy via {s.via}", "a copy of the threads themselves")
    if s.via == "cp_async":
        _async(state, s)
        return
    held = {s.src.at.buffer.name, s.dst.buffer.name} & set(state.held)
    if held or s.via in ("ldmatrix", "stmatrix") or s.src.mask is not None or s.mask is not None or _gathers(s.src.at) or _gathers(s.dst):
        store(state, n.Store(s.dst, s.src, s.mask, s.clip, label=s.label, origin=s.origin))
        return
    _in_pieces(state, s)


def _gathers(r: n.Region) -> bool:
    return any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in r.index) or not isinstance(r.type, TileType)


def _in_pieces(state: State, s: n.Copy) -> None:
    """A copy between shared and global memory by vectors: of the declared width, else of one that is proved."""
    shape = shape_known(s.dst)
    own = for_memory(state, shape, [(s.src.at, own_axes(s.src.at), s.src.clip), (s.dst, own_axes(s.dst), s.clip)])
    width = int(s.via[7:-1]) if s.via.startswith("vector(") else 0
    if width > 1 and shape[-1] % width == 0:
        own = distributed(shape, state.team, list(reversed(range(len(shape)))), width)
    variables, values = slot_variables(state, own)
    loops = list(zip(variables, [d.extent for d in reversed(own.slots) if d.extent > 1], strict=True))
    need = of_spread(own, state.lane, values)
    src, dst = element_place(state, s.src.at, need, "read"), element_place(state, s.dst, need, "write")
    if loops and own.slots[0].step == 1 and own.slots[0].extent > 1:
        wide = tile_region(src, loops[-1:]), tile_region(dst, loops[-1:])
        if wide[0] is not None and wide[1] is not None and _neighbors(wide[0][0]) and _neighbors(wide[1][0]):
            src, dst, loops = wide[0][0], wide[1][0], loops[:-1]
    made = replace(s, src=replace(s.src, at=src), dst=dst)
    state.put(*guarded(own.first_copy(state.lane), looped((made,), loops)), *_seen_by_descriptors(state, s.dst.buffer))
    state.forget(s.dst.buffer.name)


def _seen_by_descriptors(state: State, b: n.Buffer) -> n.Block:
    """The fence after which what the threads wrote is seen by the proxy that wgmma reads through, where it reads the buffer."""
    return (n.Eval(build.call("fence_async")),) if b.name in state.by_descriptor else ()


def _neighbors(r: n.Region) -> bool:
    """Whether the elements of a vector's region lie side by side."""
    return bool(r.index) and isinstance(r.index[-1], n.Span) and r.index[-1].step == 1


def _async(state: State, s: n.Copy) -> None:
    shape = shape_known(s.dst)
    if s.src.mask is not None or s.mask is not None:
        raise refuse("cp.async with a mask", "a clipped copy")
    own = for_memory(state, shape, [(s.src.at, own_axes(s.src.at), s.src.clip), (s.dst, own_axes(s.dst), False)])
    wanted = dict(s.attrs).get("vector")
    last = len(shape) - 1
    if isinstance(wanted, int) and shape[last] % wanted == 0:
        own = distributed(shape, state.team, list(reversed(range(len(shape)))), wanted)
    variables, values = slot_variables(state, own)
    loops = list(zip(variables, [d.extent for d in reversed(own.slots) if d.extent > 1], strict=True))
    if not loops or own.slots[0].step != 1 or own.slots[0].axis != last or own.slots[0].extent == 1:
        raise refuse("cp.async copies 4, 8 or 16 bytes at a time, and single elements are not as wide", "via plain")
    need = of_spread(own, state.lane, values)
    src, dst = element_place(state, s.src.at, need, "read"), element_place(state, s.dst, need, "write")
    axes = [loops[-1]]
    wide_src, wide_dst = tile_region(src, axes), tile_region(dst, axes)
    if wide_src is None or wide_dst is None:
        raise refuse("cp.async between elements that are no neighbors")
    keep = tuple((k, v) for k, v in s.attrs if k != "vector")
    made = replace(s, src=replace(s.src, at=wide_src[0]), dst=wide_dst[0], attrs=keep)
    state.put(*guarded(own.first_copy(state.lane), looped((made,), loops[:-1])))
    state.in_flight.add(s.dst.buffer.name)
    state.forget(s.dst.buffer.name)
