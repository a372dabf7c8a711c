"""Variables: declared, initialized, assigned to, and kept from later writes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I64, dtype_of, shape_of
from kir.ir.visit import walk
from kir.surface.ptx import unpack_bits

from ..symbols.classes import Rec, leaf, size_of
from ..symbols.symbols import Value
from ..types.c_types import Arr, CType, Prim, Ptr
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted, divided
from .conversions import convert
from .emitter import lanes, reads_memory
from .loads import load, rvalue
from .memory import Place, declare, start
from .pointers import Apart, ChoosingPointer, MovingPointer, PointerArray, PointerVariable, held_at
from .reading import Reading
from .values import Chosen, Located, Members, Null, Pointer, Record, Remote, Scalar, TypeName, Wide, Word, constant


def new_object(r: Reading, name: str, t: CType, space: str = "register") -> Value:
    """A variable of a type, declared in the block at hand and not initialized."""
    if isinstance(t, Ptr):
        offset = declare(r.m, f"{name}_at", Prim(I64), "register")
        r.stores.append(offset)
        r.m.emit(n.Alloc(offset.view(I64)))
        made_pointer = PointerVariable(name, t, offset)
        made_pointer.home = r.m.block
        return MovingPointer(made_pointer, t)
    if isinstance(t, Arr) and isinstance(t.of, Ptr) and space == "register":
        offset = declare(r.m, f"{name}_at", Arr(Prim(I64), t.n), "register")
        r.stores.append(offset)
        r.m.emit(n.Alloc(offset.view(I64)))
        return PointerArray(PointerVariable(name, t.of, offset), t)
    if leaf(t) is not None:
        store = declare(r.m, name, t, "shared" if space == "shared" else "register")
        given = r.arrays.get(name, ())
        if given and given[: len(store.dims)] == store.dims and prod(given) * store.declared.bytes == size_of(t):
            store.logical, store.dims, store.row = given, (), build.const(size_of(t))
        if space == "shared" and r.arrays.get(name) == () and size_of(t) == store.declared.bytes:
            store.single = True
        r.stores.append(store)
        if space == "shared":
            r.shared.append(store)
        else:
            r.m.emit(n.Alloc(store.view(store.declared)))
        return Located(start(store), t)
    if isinstance(t, Rec):
        if t.instance.node.type == "union_specifier" or any(g.overlaid for g in t.instance.together):
            raise NotUnderstood(f"the union '{t}', whose members are of several types")
        made = Members(t)
        for member in t.instance.members():
            if member.reference:
                continue  # bound by its constructor
            made.fields[member.name] = new_object(r, f"{name}_{member.name}", member.type, space)
        return made
    if isinstance(t, Arr):
        return _array_of_records(r, name, t, space)
    raise NotUnderstood(f"a variable of type {t}")


def _array_of_records(r: Reading, name: str, t: Arr, space: str) -> Value:
    """An array of classes of several dtypes: an array for each member."""
    inner: CType = t
    dims = []
    while isinstance(inner, Arr):
        dims.append(inner.n)
        inner = inner.of
    if not isinstance(inner, Rec):
        raise NotUnderstood(f"an array of {inner}")
    made = Members(inner)
    for member in inner.instance.members():
        kind = member.type
        for d in reversed(dims):
            kind = Arr(kind, d)
        made.fields[member.name] = new_object(r, f"{name}_{member.name}", kind, space)
    made.fields["#array"] = TypeName(t)
    return made


def initialized(r: Reading, name: str, v: Value, t: CType) -> Value:
    """A variable of a type with a value."""
    if isinstance(t, Prim):
        v = convert(r, v, t)
        if not isinstance(v, Scalar):
            raise NotUnderstood(f"'{name}', of type {t}, begins with a value that is no number")
        store = declare(r.m, name, t, "register")
        r.stores.append(store)
        r.m.emit(n.Alloc(store.used(t.dtype), v.expr))
        if constant(v) is not None:
            r.starts[id(store)] = (v, r.m.block)
        return Located(start(store), t)
    made = new_object(r, name, t)
    assign(r, made, v)
    return made


def choosing(r: Reading, name: str, v: Chosen, t: Ptr) -> Located:
    """A pointer variable that starts as one of several."""
    arms = [choosing(r, name, x, t) if isinstance(x, Chosen) else initialized(r, name, x, t) for x in (v.then, v.orelse)]
    then, orelse = (x for x in arms if isinstance(x, Located))
    return ChoosingPointer(r.m.let(f"{name}_first", v.cond), then, orelse)


def assign(r: Reading, to: Value, v: Value) -> None:
    """Write a value to a place of a known type."""
    match to:
        case Apart():
            r.m.emit(n.Store(to.at, _number(r, v, Prim(to.at.buffer.dtype)).expr))
        case Located(type=Prim() as kind) if isinstance(v, (Word, Remote)):
            before = r.words.get(id(to.place.store))
            if before is not None and before[1] is not r.m.block:
                raise NotUnderstood(f"the bits of an address in '{to.place.store.name}', which a branch or a loop changes")
            r.words[id(to.place.store)] = (convert(r, v, kind), r.m.block)
        case Located(type=Prim() as kind):
            made = _number(r, v, kind)
            r.words.pop(id(to.place.store), None)
            r.starts.pop(id(to.place.store), None)
            narrow = to.place.store.narrower(kind.dtype)
            if narrow is not None:
                r.m.emit(n.Store(to.place.region(narrow, kind.dtype.bits // narrow.bits), unpack_bits(made.expr, narrow), cache=to.place.policy))
                return
            own = to.place.store.alike(kind.dtype)
            value = made.expr if own is None else build.cast(made.expr, own, "bits")
            r.m.emit(n.Store(to.place.region(own or kind.dtype, None), value, cache=to.place.policy))
        case MovingPointer():
            _set_pointer(r, to.variable, rvalue(r, v))
        case PointerArray() if isinstance(v, Located) and isinstance(v.type, Arr):
            for k in range(v.type.n):
                _set_pointer(r, to.element(build.const(k)).variable, load(r, v.place.moved(8 * k), to.variable.type))
        case Located(type=Ptr() as kind) if type(to) is Located and (held := held_at(to.place, kind)) is not None:
            _set_pointer(r, held.variable, rvalue(r, v))
        case ChoosingPointer():
            given = rvalue(r, v)
            if not isinstance(given, Chosen) or given.cond != to.cond:
                raise NotUnderstood("a pointer into one of several arrays, which is set again")
            assign(r, to.then, given.then)
            assign(r, to.orelse, given.orelse)
        case Members():
            _assign_members(r, to, v)
        case Located():
            _store_wide(r, to, convert(r, v, to.type))
        case _:
            raise NotUnderstood("an assignment to something that is no place")


def _number(r: Reading, v: Value, t: Prim) -> Scalar:
    """What is written to a place of a number. Raises NotUnderstood for what converts to none: an address keeps being one."""
    made = convert(r, v, t)
    if not isinstance(made, Scalar):
        raise NotUnderstood(f"{type(made).__name__.lower()} in a place of type {t}, which holds a number")
    return made


def _store_wide(r: Reading, to: Located, v: Value) -> None:
    if isinstance(v, (Record, Members)) and isinstance(to.type, Rec):
        layout = to.type.instance.layout()
        held = {m.name: pinned_value(r, _value(r, v.fields[m.name]), m.name) for m in to.type.instance.members()}  # before any of them is written
        for m in to.type.instance.members():
            assign(r, Located(to.place.moved(layout.offsets[m.name]), m.type), held[m.name])
        return
    if not isinstance(v, Wide):
        raise NotUnderstood(f"a {to.type} from {type(v).__name__.lower()}")
    dtype = dtype_of(v.tile.type)
    size = size_of(to.type)
    at = to.place.region(dtype, size // dtype.bytes)
    value = v.tile
    if lanes(value.type) == 1:
        last = at.index[-1] if at.index else None
        single = isinstance(last, n.Span) and last.extent == 1 and not any(isinstance(i, n.Span) for i in at.index[:-1])
        if not at.buffer.shape or single:
            value = _only(value)
        if single and isinstance(last, n.Span):
            at = build.region(at.buffer, *at.index[:-1], last.lo)
    shape, own = shape_of(at.type), shape_of(value.type)
    if len(shape) > 1 and own != shape and len(own) == 1:
        call = value if isinstance(value, n.Call) and value.of is None else None
        parts = () if call is None else call.args if call.fn == "vec" else call.args[:1] if call.fn == "broadcast" else ()
        if parts and isinstance(parts[0], n.Expr) and all(p == parts[0] for p in parts):
            r.m.emit(n.Store(at, parts[0]))
            return
        value = r.m.let(to.place.store.name, value)
        spans: tuple[n.Expr | n.Span, ...] = at.index or tuple(n.Span(build.const(0), d) for d in at.buffer.shape)
        for k, index in enumerate(product(*(range(int(d)) for d in shape if isinstance(d, int)))):
            steps = iter(index)
            here = (build.add(s.lo, build.const(next(steps))) if isinstance(s, n.Span) else s for s in spans)
            r.m.emit(n.Store(build.region(at.buffer, *here), build.call("pick", value, build.const(k))))
        return
    r.m.emit(n.Store(at, value, cache=to.place.policy))


def _value(r: Reading, v: Value) -> Value:
    """What a member holds: an array as a whole, and no address of it."""
    return load(r, v.place, v.type) if isinstance(v, Located) and isinstance(v.type, Arr) and not isinstance(v, PointerArray) else rvalue(r, v)


def _only(e: n.Expr) -> n.Expr:
    """The number that a vector of one holds."""
    if isinstance(e, n.Cast) and lanes(e.x.type) == 1 and shape_of(e.x.type):
        return build.cast(_only(e.x), e.dtype, e.rounding)
    if isinstance(e, n.Load) and e.mask is None and not e.clip and len(e.at.buffer.shape) == 1 and (not e.at.index or isinstance(e.at.index[0], n.Span)):
        at = e.at.index[0].lo if e.at.index and isinstance(e.at.index[0], n.Span) else build.const(0)
        return replace(e, at=build.region(e.at.buffer, at))
    first = e.args[0] if isinstance(e, n.Call) and e.of is None and e.fn in ("vec", "broadcast") else None
    return first if isinstance(first, n.Expr) and not shape_of(first.type) else build.call("pick", e, build.const(0))


def _assign_members(r: Reading, to: Members, v: Value) -> None:
    v = convert(r, v, to.type)
    if isinstance(v, (Members, Record)):
        places = {name: place for name, place in to.fields.items() if name != "#array"}
        held: dict[str, Value] = {}
        for name in places:
            each = v.fields[name]
            if isinstance(each, Located) and isinstance(each.type, Arr):
                each = _value(r, each) if not isinstance(each, PointerArray) else each
            others = {x for other, place in places.items() if other != name for x in _stores(place)}
            held[name] = _kept(r, each, name) if _names_of(each) & others else each  # before any of them is written
        for name, place in places.items():
            if not (isinstance(each := held[name], MovingPointer) and each.variable.base is None and each.variable.remote is None):  # one that was never set
                assign(r, place, each)
        return
    raise NotUnderstood(f"a {to.type} from {type(v).__name__.lower()}")


def _kept(r: Reading, v: Value, name: str) -> Value:
    if isinstance(v, (Members, Record)):
        return Record({k: _kept(r, each, k) for k, each in v.fields.items() if k != "#array"}, v.type)
    return pinned_value(r, rvalue(r, v), name)


def _stores(place: Value) -> set[str]:
    """The names of the memory that an object lies in."""
    if isinstance(place, Members):
        return {x for k, each in place.fields.items() if k != "#array" for x in _stores(each)}
    return {place.place.store.name} if isinstance(place, Located) else set()


def _names_of(v: Value) -> set[str]:
    """The names of the memory that a value is read from, whatever dtype it is read with."""
    match v:
        case Scalar() | Wide():
            return {x.at.buffer.name.split("__")[0] for x in walk(v.expr if isinstance(v, Scalar) else v.tile) if isinstance(x, n.Load)} | {
                x.at.buffer.name for x in walk(v.expr if isinstance(v, Scalar) else v.tile) if isinstance(x, n.Load)}
        case Located():
            return {v.place.store.name}
        case Members() | Record():
            return {x for k, each in v.fields.items() if k != "#array" for x in _names_of(each)}
        case _:
            return set()


def _set_pointer(r: Reading, to: PointerVariable, v: Value) -> None:
    if isinstance(v, Remote) and to.base is None:
        to.remote = Remote(v.at, to.type)
        return
    if isinstance(v, Null):
        v = Pointer(to.base, to.type) if to.base is not None else v
    if not isinstance(v, Pointer):
        raise NotUnderstood(f"the pointer '{to.name}' from {type(v).__name__.lower()}")
    base = to.base
    if base is None or ((base.store is not v.place.store or base.outer != v.place.outer) and to.home is r.m.block):
        to.base = base = Place(v.place.store, v.place.outer, v.place.byte, v.place.volatile)
    elif base.store is not v.place.store or base.outer != v.place.outer:
        raise NotUnderstood(f"the pointer '{to.name}', which points into one of several arrays")
    at = divided(v.place.byte, base.store.unit)
    if at is None:
        raise NotUnderstood(f"the pointer '{to.name}', which points between the elements of '{base.store.name}'")
    r.m.emit(n.Store(to.held, converted(at, I64)))


def spilled(r: Reading, v: Wide, name: str = "moved") -> Located:
    """A value put in memory of its own, so that its parts have addresses."""
    made = new_object(r, name, v.type)
    assert isinstance(made, Located)
    _store_wide(r, made, v)
    return made


def begun(r: Reading, v: Value) -> Value | None:
    """The number that a variable still holds since it was declared in this block; None where that is not known."""
    found = r.starts.get(id(v.place.store)) if isinstance(v, Located) and type(v) is Located else None
    return found[0] if found is not None and found[1] is r.m.block else None


def peer_of(r: Reading, b: n.Buffer) -> n.Buffer | None:
    """The view that shows a shared buffer in every CTA of the cluster; None where the cluster is not known."""
    s = next((s for s in r.stores if s.space == "shared" and s.view(b.dtype) == b), None)
    if not r.cluster or s is None:
        return None
    s.peer = s.peer or r.m.fresh(f"{s.name}_peers")
    return n.Buffer(s.peer, b.dtype, (build.const(prod(r.cluster)), *b.shape), "cluster")


def pinned(r: Reading, e: n.Expr, name: str = "kept") -> n.Expr:
    """A value that later writes do not change."""
    return r.m.let(name, e) if reads_memory(e) else e


def pinned_place(r: Reading, v: Value, name: str) -> Value:
    """What a reference is bound to: the place that its indices name now, whatever they are changed to later."""
    match v:
        case Located():
            at = pinned_value(r, Pointer(v.place, Ptr(v.type)), name)
            return Located(at.place, v.type) if isinstance(at, Pointer) and at.place != v.place else v
        case Members() if type(v) is Members:
            fields = {k: pinned_place(r, field, f"{name}_{k}".replace("#", "")) for k, field in v.fields.items()}
            return v if fields == v.fields else Members(v.type, fields)
        case _:
            return v


def pinned_value(r: Reading, v: Value, name: str) -> Value:
    """`pinned`, of any value."""
    match v:
        case Scalar():
            return Scalar(pinned(r, v.expr, name))
        case Wide():
            return Wide(r.m.let(name, v.tile), v.type)
        case Pointer():
            unit = v.place.store.unit
            at = divided(v.place.byte, unit)
            byte = pinned(r, v.place.byte, f"{name}_at") if at is None else build.mul(pinned(r, at, f"{name}_at"), unit)
            return Pointer(Place(v.place.store, tuple(pinned(r, e) for e in v.place.outer), byte), v.type)
        case _:
            return v
