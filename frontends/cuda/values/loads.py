"""What stands in memory as values."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.surface.ptx import pack_bits

from ..symbols.classes import Rec, leaf, size_of
from ..symbols.symbols import Value
from ..types.c_types import Arr, CType, Named, Prim, Ptr
from ..types.errors import NotUnderstood
from ..types.number_conversions import divided, index64
from .memory import Place
from .pointers import Apart, ChoosingPointer, MovingPointer, held_at
from .reading import Reading
from .values import Chosen, Located, Pointer, Record, Scalar, Wide


def rvalue(r: Reading, v: Value) -> Value:
    """The value of a place; arrays become pointers to their first element."""
    if isinstance(v, MovingPointer):
        return v.variable.remote or v.variable.current()
    if isinstance(v, ChoosingPointer):
        return Chosen(v.cond, rvalue(r, v.then), rvalue(r, v.orelse))
    if isinstance(v, Apart):
        return Scalar(n.Load(v.at))
    if not isinstance(v, Located):
        return v
    kept = r.words.get(id(v.place.store))
    if kept is not None:
        if not any(kept[1] is b for b in r.m.blocks):
            raise NotUnderstood(f"the bits of an address in '{v.place.store.name}', which another block has set")
        return kept[0]
    t = v.type
    if isinstance(t, Arr):
        return Pointer(v.place.inside(), Ptr(t.of))
    return load(r, v.place, t)


def load(r: Reading, at: Place, t: CType) -> Value:
    """The value of a type at a place."""
    match t:
        case Prim() if (narrow := at.store.narrower(t.dtype)) is not None:
            return Scalar(pack_bits(n.Load(at.region(narrow, t.dtype.bits // narrow.bits), cache=at.policy), t.dtype))
        case Prim() if (own := at.store.alike(t.dtype)) is not None:
            return Scalar(build.cast(n.Load(at.region(own, None), cache=at.policy), t.dtype, "bits"))
        case Prim():
            return Scalar(n.Load(at.region(t.dtype, None), cache=at.policy))
        case Ptr() if at.store.rows:
            return _row(at, t)
        case Ptr() if (held := held_at(at, t)) is not None:
            return held.variable.current()
        case Arr(of=Ptr()) if at.store.rows:
            return Located(at, t)  # no kernel sets them
        case Ptr() | Named():
            raise NotUnderstood(f"a {t} kept in memory")
    if isinstance(t, Rec) and leaf(t) is None:
        layout = t.instance.layout()
        return Record({m.name: load(r, at.moved(layout.offsets[m.name]), m.type) for m in t.instance.members()}, t)
    found = leaf(t)
    if found is None:
        raise NotUnderstood(f"a {t} in memory")
    size = size_of(t)
    dtype = at.store.moving(found[0], size)
    value: n.Expr = n.Load(at.region(dtype, size // dtype.bytes), cache=at.policy)
    return Wide(value if isinstance(value.type, TileType) else build.call("vec", value), t)


def _row(at: Place, t: Ptr) -> Pointer:
    """The pointer at a place, into the row that it is for. Raises NotUnderstood for a place between pointers."""
    for rows in at.store.rows:
        k = divided(build.sub(at.byte, rows.offset), rows.size)
        if k is not None:
            return Pointer(Place(rows.of, (), build.mul(build.mul(index64(k), rows.step), rows.of.unit), t.volatile), t)
    raise NotUnderstood(f"a {t} in the middle of '{at.store.name}'")
