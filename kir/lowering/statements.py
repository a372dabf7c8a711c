"""Statements of a team as statements of its threads, one at a time and without choices: each becomes loops over the registers it needs."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.analysis.elements import NotElementwise, tile, tile_region
from kir.analysis.fragments import Spread, extents_of, spread
from kir.diagnostic import KirError
from kir.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.canonical import bound_names
from kir.ir.types import I32, DType, TileType, UnitType, dtype_of
from kir.ir.visit import substitute, walk
from kir.lowering import collective, products
from kir.lowering.barriers import Nest, Unit
from kir.lowering.choice import Found, _accesses, _axes, for_memory, suggested
from kir.lowering.elements import element, element_place, region_need, shape_known
from kir.lowering.need import Need, of_spread
from kir.lowering.state import Held, State, guarded, looped, place, refuse, register, slot_variables


def block(state: State, body: n.Block) -> None:
    """The statements of a block, in order."""
    for s in body:
        state.busy.clear()
        try:
            statement(state, s)
        except KirError as refused:
            raise KirError(*(d if d.anchor or d.origin else replace(d, anchor=s.label or "", origin=s.origin) for d in refused.diagnostics)
                           ) from refused
        if isinstance(s, n.Let):
            state.facts = state.facts.after((s,))


def statement(state: State, s: n.Stmt) -> None:
    """One statement. Raises KirError KIR-B030 where it has no form for threads."""
    match s:
        case n.Let():
            _let(state, s)
        case n.Alloc():
            _alloc(state, s)
        case n.View():
            if s.buffer.space != "global" or s.axes:
                raise refuse(f"the view '{s.buffer.name}' is used by tiles", "accesses to what it views")
            state.put(s)
        case n.Store():
            store(state, s)
        case n.Copy():
            _copy(state, s)
        case n.Mma():
            products.product(state, replace(s, a=hoisted(state, s.a), b=hoisted(state, s.b)))
        case n.Eval():
            _eval(state, s)
        case n.For():
            _for(state, s)
        case n.If():
            cond = hoisted(state, s.cond)
            state.touch_all(cond)
            touches = frozenset(state.touches)
            state.touches.clear()
            parts = []
            for body, known in ((s.then, state.facts.knowing(cond)), (s.orelse, state.facts)):
                with state.inside() as items:
                    state.facts = known
                    block(state, body)
                parts.append(tuple(items))
            state.items.append(Nest(replace(s, cond=cond, then=(), orelse=()), (parts[0], parts[1]), touches))
        case n.While():
            if any(isinstance(x, n.Expr) and isinstance(x.type, TileType) for x in walk(s.cond)):
                raise refuse("a loop whose condition computes with tiles", "a scalar that is set in the loop")
            state.touch_all(s.cond)
            touches = frozenset(state.touches)
            state.touches.clear()
            with state.inside(loop=True) as items:
                block(state, s.body)
            state.items.append(Nest(replace(s, body=()), (tuple(items),), touches))
        case n.Jump():
            state.put(s)
        case n.Roles():
            raise refuse("roles: sub-teams that run side by side", "code for one team")
        case n.Opaque() | n.Hole():
            state.put(s)
        case _:
            raise refuse(f"{type(s).__name__.lower()} has no form for threads")


# ----------------------------------------------------------------------------------------------------------------------- values

def hoisted(state: State, e: n.Expr) -> n.Expr:
    """`e` with what takes several threads (reductions, scans, ..) computed before, each as a value with a name of its own."""
    from kir.ir.visit import transform
    done: dict[n.Expr, n.Expr] = {}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Call) and new.of is None and new.fn in collective.COLLECTIVE and any(
                isinstance(a, n.Expr) and isinstance(a.type, TileType) for a in new.args):
            if new not in done:
                name = state.fresh(new.fn)
                _let(state, n.Let((name,), new))
                done[new] = n.Var(name, new.type)
            return done[new]
        if isinstance(new, n.Call) and new.of is None and new.fn == "pick" and not isinstance(new.type, TileType):
            if new not in done:
                name = state.fresh("picked")
                need = Need((), state.lane, (), (), ())
                value = element_of_pick(state, new, need)
                state.put(n.Let((name,), value))
                done[new] = n.Var(name, new.type)
            return done[new]
        return new
    made = transform(e, leave)
    assert isinstance(made, n.Expr)
    return made


def element_of_pick(state: State, e: n.Call, need: Need) -> n.Expr:
    """One element of a tile, which every thread gets."""
    from kir.lowering.elements import addressed
    x, *index = [a for a in e.args if isinstance(a, n.Expr)]
    return addressed(state, x)(index)


def _let(state: State, s: n.Let) -> None:
    value = s.value
    if isinstance(value, n.Call) and value.of is None and value.fn in collective.COLLECTIVE and any(
            isinstance(a, n.Expr) and isinstance(a.type, TileType) for a in value.args):
        args = tuple(hoisted(state, a) if isinstance(a, n.Expr) else a for a in value.args)
        collective.lower(state, s.names, replace(value, args=args), s.label)
        return
    if isinstance(value, n.Call) and value.of is None and value.fn == "split":
        x = value.args[0]
        assert isinstance(x, n.Expr)
        x = named(state, hoisted(state, x))
        for k, name in enumerate(s.names):
            _bind_part(state, name, x, k)
        return
    if isinstance(value, n.Call) and value.of is None and value.fn.startswith("atomic_"):
        collective.atomic(state, s.names[0], _ready(state, value), s.label)
        return
    if len(s.names) != 1:
        raise refuse("a value with several results")
    value = hoisted(state, value)
    if not isinstance(value.type, TileType):
        state.touch_all(value)
        state.put(replace(s, value=value))
        if state.loops == 0:
            state.constant.add(s.names[0])
        return
    if is_formula(value, state):
        state.formulas[s.names[0]] = value
        return
    bind(state, s.names[0], value, suggested(state, value), s.label)


def _ready(state: State, c: n.Call) -> n.Call:
    return replace(c, args=tuple(hoisted(state, a) if isinstance(a, n.Expr) else a for a in c.args))


def is_formula(e: n.Expr, state: State) -> bool:
    """Whether a tile is arithmetic on positions alone, which costs less to compute again than to keep."""
    for x in walk(e):
        match x:
            case n.Load():
                return False
            case n.Var() if isinstance(x.of, TileType) and x.name not in state.formulas:
                return False
            case n.Call() if x.of is not None or x.fn not in ("iota", "expand", "broadcast", "trans", "reshape", "join"):
                if x.of is not None or isinstance(x.type, TileType):
                    return False
            case _:
                pass
    return True


def named(state: State, e: n.Expr) -> n.Expr:
    """A tile as a value with a name, computed now unless it has one."""
    if not isinstance(e.type, TileType) or isinstance(e, n.Var):
        return e
    name = state.fresh("value")
    bind(state, name, e, suggested(state, e))
    return n.Var(name, e.type)


def bind(state: State, name: str, value: n.Expr, s: Spread, label: str | None = None) -> None:
    """A tile computed into registers."""
    buffer = register(name, dtype_of(value.type), s)
    block_ = fill(state, Held(buffer, s), lambda need: element(state, value, need), label)
    state.put(n.Alloc(buffer), *block_)
    state.held[name] = Held(buffer, s)


def bind_elements(state: State, name: str, dtype: DType, s: Spread, value: Callable[[Need], n.Expr]) -> None:
    """A tile whose elements are given, computed into registers."""
    buffer = register(name, dtype, s)
    made = fill(state, Held(buffer, s), value)
    state.put(n.Alloc(buffer), *made)
    state.held[name] = Held(buffer, s)


def _bind_part(state: State, name: str, x: n.Expr, k: int) -> None:
    """Element `k` of the last axis."""
    shape = shape_known(x)
    if len(shape) == 1:
        from kir.lowering.elements import addressed
        value = addressed(state, x)([const(k)])
        state.put(n.Let((name,), value))
        return
    whole = suggested(state, x)
    from kir.lowering.need import without_axis
    s = without_axis(whole, len(shape) - 1)
    buffer = register(name, dtype_of(x.type), s)
    made = fill(state, Held(buffer, s), lambda need: element(state, x, need.with_axis(len(shape) - 1, 2, const(k))))
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


# ----------------------------------------------------------------------------------------------------------------------- memory

def _alloc(state: State, s: n.Alloc) -> None:
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
        s_ = fragment_spread(state, b, shape, init)
    held = Held(register(b.name, b.dtype, s_), s_)
    made_init = init if init is not None and not isinstance(init.type, TileType) else None
    if made_init is not None:
        state.touch_all(made_init)
    filling: n.Block = ()
    if init is not None and made_init is None:
        filling = fill(state, held, lambda need: element(state, init, need.fitted(shape_known(init))), s.label)
    state.put(replace(s, buffer=held.buffer, init=made_init), *filling)
    state.held[b.name] = held


def fragment_spread(state: State, b: n.Buffer, shape: tuple[int, ...], init: n.Expr | None) -> Spread:
    """How a fragment without a layout is dealt: for the product that it accumulates, else as it is first filled from or stored to memory."""
    uses = [x for x in walk(state.kernel) if isinstance(x, n.Stmt)]
    for x in uses:
        if isinstance(x, n.Mma) and x.acc.buffer.name == b.name:
            return products.accumulator(state, x, shape)
    if init is not None and isinstance(init.type, TileType):
        return suggested(state, init)
    found: list[Found] = []
    for x in uses:
        match x:
            case n.Store() if x.at.buffer.name == b.name and not x.at.index:
                found += _accesses(state, x.value, list(range(len(shape))))
            case n.Store() if isinstance(x.value, (n.Load, n.Cast)) and any(
                    isinstance(y, n.Load) and y.at.buffer.name == b.name and not y.at.index for y in walk(x.value)):
                if extents_of(tuple(x.at.type.shape) if isinstance(x.at.type, TileType) else ()) == shape:
                    found.append((x.at, _axes(x.at), x.clip or x.mask is not None))
            case n.Copy() if x.dst.buffer.name == b.name and not x.dst.index:
                found.append((x.src.at, _axes(x.src.at), x.src.clip))
            case n.Copy() if x.src.at.buffer.name == b.name and not x.src.at.index:
                found.append((x.dst, _axes(x.dst), x.clip))
            case _:
                pass
    known = [f for f in found if not any(isinstance(v, n.Var) and v.name in bound_names(state.kernel.body) for i in f[0].index for v in walk(i))
             ] or found
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
    dealt = next((c for c in _full(state, value, shape)), None) or for_memory(
        state, shape, [(s.at, _axes(s.at), s.clip or s.mask is not None), *_accesses(state, value, _aligned_axes(value, shape))])

    def write(need: Need, _: list[n.Expr]) -> n.Store:
        made = None if mask is None else element(state, mask, need.fitted(shape_known(mask)))
        elem = element(state, value, need.fitted(shape_known(value))) if isinstance(value.type, TileType) else value
        return replace(s, at=element_place(state, s.at, need, "write"), value=elem, mask=made)
    if not isinstance(value.type, TileType):
        state.touch_all(value)
    body = each(state, dealt, write)
    state.put(*guarded(dealt.first_copy(state.lane), body))
    state.forget(s.at.buffer.name)


def _full(state: State, value: n.Expr, shape: tuple[int, ...]) -> list[Spread]:
    """What operands in registers suggest for a store of that shape."""
    from kir.lowering.choice import _held
    return [c for c in _held(state, value) if c.shape == shape and c.team == state.team] if isinstance(value.type, TileType) else []


def _aligned_axes(value: n.Expr, shape: tuple[int, ...]) -> list[int]:
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
    from kir.lowering.elements import addressed
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
        # the region's element may be another thread's: read through memory unless it moves with the same digits
        moved = region_need(s.at, _region_need(state, held, s, need))
        value = _value_at(state, value, fitted, moved, s, held, need) if moved is not None else addressed(state, value)(fitted)
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


def _region_need(state: State, held: Held, s: n.Store, need: Need) -> Need:
    return need


def _value_at(state: State, value: n.Expr, index: list[n.Expr], moved: Need | None, s: n.Store, held: Held, need: Need) -> n.Expr:
    from kir.lowering.elements import addressed
    return addressed(state, value)(index)


def _store_private(state: State, s: n.Store) -> None:
    """A store to memory that every thread has a copy of: each does all of it."""
    if isinstance(s.value.type, TileType):
        from kir.lowering.elements import addressed
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


def _copy(state: State, s: n.Copy) -> None:
    """A copy: by vectors of each thread."""
    if s.signal is not None or s.via in ("bulk", "tma"):
        raise refuse(f"a copy via {s.via}", "a copy of the threads themselves")
    if s.via == "cp_async":
        _async(state, s)
        return
    if s.via in ("ldmatrix", "stmatrix"):
        value: n.Expr = s.src
        if dict(s.attrs).get("trans"):
            pass
        store(state, n.Store(s.dst, value, s.mask, s.clip, label=s.label, origin=s.origin))
        return
    store(state, n.Store(s.dst, s.src, s.mask, s.clip, label=s.label, origin=s.origin))


def _async(state: State, s: n.Copy) -> None:
    shape = shape_known(s.dst)
    if s.src.mask is not None or s.mask is not None:
        raise refuse("cp.async with a mask", "a clipped copy")
    dealt = for_memory(state, shape, [(s.src.at, _axes(s.src.at), s.src.clip), (s.dst, _axes(s.dst), False)])
    wanted = dict(s.attrs).get("vector")
    last = len(shape) - 1
    if isinstance(wanted, int) and shape[last] % wanted == 0:
        from kir.lowering.choice import dealt as deal
        dealt = deal(shape, state.team, list(reversed(range(len(shape)))), wanted)
    variables, values = slot_variables(state, dealt)
    loops = list(zip(variables, [d.extent for d in reversed(dealt.slots) if d.extent > 1], strict=True))
    if not loops or not dealt.slots or dealt.slots[0].step != 1 or dealt.slots[0].axis != last or dealt.slots[0].extent == 1:
        raise refuse("cp.async copies 4, 8 or 16 bytes at a time, and single elements are not as wide", "via plain")
    need = of_spread(dealt, state.lane, values)
    src, dst = element_place(state, s.src.at, need, "read"), element_place(state, s.dst, need, "write")
    axes = [loops[-1]]
    wide_src, wide_dst = tile_region(src, axes), tile_region(dst, axes)
    if wide_src is None or wide_dst is None:
        raise refuse("cp.async between elements that are no neighbors")
    keep = tuple((k, v) for k, v in s.attrs if k != "vector")
    made = replace(s, src=replace(s.src, at=wide_src[0]), dst=wide_dst[0], attrs=keep)
    state.put(*guarded(dealt.first_copy(state.lane), looped((made,), loops[:-1])))
    state.in_flight.add(s.dst.buffer.name)
    state.forget(s.dst.buffer.name)


# ------------------------------------------------------------------------------------------------------------------------ calls

def _eval(state: State, s: n.Eval) -> None:
    c = _ready(state, s.call)
    if c.of is None and c.fn.startswith("atomic_"):
        collective.atomic(state, None, c, s.label)
        return
    if c.of is None and c.fn == "barrier":
        return
    if c.of is None and c.fn == "prefetch":
        return
    if c.of is None and c.fn in ("assume", "assertion") and any(isinstance(a.type, TileType) for a in c.args if isinstance(a, n.Expr)):
        return
    if c.of is None and c.fn == "async_wait":
        for name in state.in_flight:
            state.touch(n.Region(n.Buffer(name, I32, (), "shared")), "write")
    if any(isinstance(a, n.Expr) and isinstance(a.type, TileType) for a in c.args):
        raise refuse(f"'{c.fn}' of a tile")
    if c.of is not None and not isinstance(c.of, UnitType):
        raise refuse(f"the result of '{c.fn}' is not used")
    if c.of is None and instruction(c.fn).level in ("warp", "warpgroup") and state.team == state.threads and state.threads != 32:
        raise refuse(f"'{c.fn}' by a whole CTA", "a loop over warps")
    state.touch_all(c)
    state.put(replace(s, call=c))


# ---------------------------------------------------------------------------------------------------------------------- control

def _for(state: State, s: n.For) -> None:
    if s.kind == "thread":
        _threads(state, s)
        return
    if s.kind in ("warp", "warpgroup"):
        _warps(state, s)
        return
    lo, hi, step = (hoisted(state, e) for e in (s.lo, s.hi, s.step))
    for e in (lo, hi, step):
        state.touch_all(e)
    touches = frozenset(state.touches)
    state.touches.clear()
    known = state.facts.ranging(s.var, lo, hi, step)
    with state.inside(loop=True) as items:
        state.facts = known
        block(state, s.body)
    kind, options = s.kind, s.attrs
    if kind == "pipelined":
        kind, options = "serial", ()
    state.items.append(Nest(replace(s, lo=lo, hi=hi, step=step, kind=kind, attrs=options, body=()), (tuple(items),), touches))
    state.forget()


def _threads(state: State, s: n.For) -> None:
    """Code of threads already: as it stands, for the threads that it is for."""
    extent = int_value(s.hi)
    if extent is None or int_value(s.lo) != 0 or int_value(s.step) != 1:
        raise refuse("a loop over threads that does not count from 0 to a known number")
    if state.team != state.threads:
        raise refuse("a loop over the threads of a warp", "lanes of a loop over all threads")
    names = set(state.held) & {x.name for b in s.body for x in walk(b) if isinstance(x, n.Buffer)}
    if names:
        raise refuse(f"threads use single elements of the fragment '{min(names)}'", "the whole fragment, or registers")
    body = tuple(substitute(b, {s.var.name: state.thread}) for b in s.body)
    waits = any(isinstance(x, n.Call) and x.fn in ("barrier", "named_barrier_sync") for b in body for x in walk(b))
    for b in body:
        state.touch_all(b)
    if extent == state.threads:
        state.items.append(Unit(body, frozenset(state.touches)))
    elif extent < state.threads and not waits:
        state.items.append(Unit((n.If(build.compare("lt", state.thread, extent), body),), frozenset(state.touches)))
    elif not waits:
        var = n.Var(state.fresh("item"), I32)
        again = tuple(substitute(b, {s.var.name: var}) for b in s.body)
        loop = n.For(var, state.thread, const(extent), const(state.threads), again)
        state.items.append(Unit((loop,), frozenset(state.touches)))
    else:
        raise refuse(f"{extent} threads with barriers among them, in a CTA of {state.threads}", f"{state.threads} threads")
    state.touches.clear()
    state.forget()


def _warps(state: State, s: n.For) -> None:
    """Sub-teams: every statement is dealt to the threads of one."""
    size, extent = {"warp": 32, "warpgroup": 128}[s.kind], int_value(s.hi)
    if extent is None or int_value(s.lo) != 0 or int_value(s.step) != 1 or extent * size != state.threads or state.team != state.threads:
        raise refuse(f"a loop over {s.kind}s that is not 0..{state.threads // size}", f"all {s.kind}s of the CTA")
    number = build.floordiv(state.thread, size)
    if size == state.threads:
        number = const(0)
    state.put(n.Let((s.var.name,), number))
    outer = state.warp
    with state.inside() as items:
        state.team, state.warp = size, {s.var.name: number}
        state.facts = state.facts.ranging(s.var, s.lo, s.hi, s.step)
        block(state, s.body)
    state.team, state.warp = state.threads, outer
    state.items.extend(items)
    state.forget()
