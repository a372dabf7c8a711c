"""Conversions of values as C++ makes them, and values as the expressions that the IR needs."""

from __future__ import annotations

from kir.base.dataclass import replace
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BF16, BOOL, F16, U32, DType, dtype_of
from kir.surface.ptx import pack_bits, unpack_bits
from kir.surface.ptx.form.bits import joined, piece, slice_of

from ..source.source import Node
from ..symbols.classes import Rec, leaf, size_of
from ..symbols.symbols import Value
from ..types.c_types import VOID, Arr, Auto, CType, Named, Prim, Ptr, Vec
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from .emitter import lanes
from .loads import rvalue
from .pointers import Handle
from .reading import Reading
from .shared_pool_views import pointed
from .values import Aimed, Chosen, Located, Mapped, Members, Nothing, Null, Pointer, Record, Remote, Residue, Scalar, Wide, Word, constant

_RAW = {"__half_raw": F16, "__nv_bfloat16_raw": BF16}
"""Records of the bits of one number."""


def _of_bits(v: Value, to: CType) -> Value | None:
    """A half or two as a record of their bits (`__half_raw`, `__half2_raw`), or back; None for other conversions."""
    if isinstance(v, Wide) and isinstance(v.type, Vec) and v.type.name.endswith("_raw"):
        if isinstance(to, Prim) and to.dtype.name in ("f16", "bf16") and v.type.n == 1:
            return Scalar(build.cast(_only(v), to.dtype, "bits"))
        if isinstance(to, Vec) and to.dtype.name in ("f16", "bf16") and v.type.n == to.n:
            return Wide(build.cast(v.tile, to.dtype, "bits"), to)
    if isinstance(to, Vec) and to.name.endswith("_raw"):
        if isinstance(v, Scalar) and dtype_of(v.expr.type).name in ("f16", "bf16") and to.n == 1:
            return Wide(build.call("vec", build.cast(v.expr, to.dtype, "bits")), to)
        if isinstance(v, Wide) and isinstance(v.type, Vec) and v.type.dtype.name in ("f16", "bf16") and v.type.n == to.n:
            return Wide(build.cast(v.tile, to.dtype, "bits"), to)
    return None


def _only(v: Wide) -> n.Expr:
    """The number of a record of one."""
    made = v.tile
    if isinstance(made, n.Call) and made.fn == "vec" and isinstance(made.args[0], n.Expr):
        return made.args[0]
    return build.call("pick", made, build.const(0))


def convert(r: Reading, v: Value, to: CType) -> Value:
    """A value as another type, as C++ converts it. Raises NotUnderstood where there is no such conversion."""
    if isinstance(to, Auto):
        return rvalue(r, v)
    if isinstance(v, (Members, Record)) and isinstance(to, Rec) and v.type == to:
        return v
    v = rvalue(r, v)
    if isinstance(v, Mapped) and (isinstance(to, (Named, Ptr)) or (isinstance(to, Prim) and to.dtype.is_integer and to.dtype.bits == 64)):
        return v
    if (made := _of_bits(v, to)) is not None:
        return made
    match to:
        case Prim():
            return _to_number(r, v, to)
        case Ptr():
            return _to_pointer(r, v, to)
        case Vec() | Rec() if isinstance(v, (Wide, Record, Members)) and v.type == to:
            return v
        case Vec() if isinstance(v, Wide) and isinstance(v.type, Vec) and v.type.n == to.n and v.type.dtype == to.dtype:
            return Wide(v.tile, to)
        case Vec() if isinstance(v, Wide) and isinstance(v.type, Vec) and size_of(v.type) == size_of(to) and v.type.name.endswith("_raw"):
            return Wide(v.tile, to)
        case Vec() if isinstance(v, Wide) and size_of(v.type) == size_of(to) and isinstance(v.type, Rec):
            return Wide(v.tile, to)
        case Vec() if isinstance(v, Scalar) and to.name == "dim3":
            one = build.const(1, U32)
            return Wide(build.call("vec", converted(v.expr, U32), one, one), to)
        case Rec():
            return r.construct(to, [v])
        case Arr() if isinstance(v, (Wide, Pointer)):
            return v
        case Named():
            return v
    if to == VOID:
        return Nothing()
    raise NotUnderstood(f"a conversion of {type_text(v)} to {to}")


def type_text(v: Value) -> str:
    """A value's type in words."""
    return str(getattr(v, "type", type(v).__name__.lower()))


def _to_number(r: Reading, v: Value, to: Prim) -> Value:
    match v:
        case Scalar():
            return Scalar(converted(v.expr, to.dtype))
        case Remote() if to.dtype.is_integer and to.dtype.bits >= 32:
            return Remote(v.at, to)
        case Residue() if to.dtype.is_integer and to.dtype.bits >= 8:
            return v
        case Word() if (to.dtype.is_integer and to.dtype.bits == 64) or (to.dtype.bits == 32 and v.rest < 1 << 32):
            return v
        case Pointer() if to.dtype == BOOL:
            return Scalar(present(r, v))
        case Null() if to.dtype == BOOL:
            return Scalar(build.const(False, BOOL))
        case Pointer() if to.dtype.is_integer and to.dtype.bits >= 32:
            return Pointer(v.place, Ptr(VOID))
        case Wide() if isinstance(v.type, (Vec, Rec)) and lanes(v.tile.type) == 1 and dtype_of(v.tile.type) == to.dtype:
            return Scalar(build.call("pick", v.tile, build.const(0)))
        case Members() | Record() | Wide() if isinstance(v.type, Rec):
            found = r.calls.conversion(r, v, to)
            if found is not None:
                return found
    raise NotUnderstood(f"a conversion of {type_text(v)} to {to}")


def present(r: Reading, p: Value) -> n.Expr:
    """Whether a pointer is not null: parameters may be absent under a binding, everything else is there."""
    if isinstance(p, Chosen):
        then, orelse = present(r, p.then), present(r, p.orelse)
        return build.binary("or", build.binary("and", p.cond, then), build.binary("and", build.invert(p.cond), orelse)) if then != orelse else then
    if not isinstance(p, Pointer):
        return build.const(not isinstance(p, Null), BOOL)
    s = p.place.store
    if s.tensor is None or not s.is_global:
        return build.const(True, BOOL)
    if r.absent is not None:
        return build.const(s.tensor.name not in r.absent, BOOL)
    return build.invert(build.call("absent", param=s.tensor.name))


def pointing(v: Value) -> Value:
    """A pointer that is read through: what may be null there is not."""
    while isinstance(v, Chosen) and (isinstance(v.then, Null) or isinstance(v.orelse, Null)):
        v = v.orelse if isinstance(v.then, Null) else v.then
    return v


def _to_pointer(r: Reading, v: Value, to: Ptr) -> Value:
    match v:
        case Pointer():
            place = pointed(r, v.place, to.to)
            if not isinstance(to.to, Arr):
                while len(place.outer) < len(place.store.dims):
                    place = place.inside()
            return Pointer(replace(place, volatile=True) if to.volatile and not place.volatile else place, to)
        case Wide() if isinstance(v.type, Arr) and v.type.of == to.to:  # a constant array, in memory of its own
            return _to_pointer(r, rvalue(r, r.calls.spilled(r, v)), to)
        case Null():
            return v
        case Members() if isinstance(to.to, Rec) and v.type.instance.is_a(to.to.instance):  # `this`, as what it is or derives from
            return Aimed(v.type, v.fields)
        case Handle() if v.type == to:
            return v
        case Remote():
            return Remote(v.at, to)
        case Scalar() if constant(v) == 0:
            return Null()
        case Chosen():
            return Chosen(v.cond, _to_pointer(r, v.then, to), _to_pointer(r, v.orelse, to))
    found = r.calls.conversion(r, v, to)
    if found is not None:
        return found
    raise NotUnderstood(f"a pointer made of {type_text(v)}")


def scalar(r: Reading, v: Value, node: Node | None = None) -> n.Expr:
    """The expression of a number."""
    v = rvalue(r, v)
    if isinstance(v, Scalar):
        return v.expr
    if isinstance(v, Wide) and isinstance(v.type, Vec) and v.type.name in _RAW:
        return build.cast(_only(v), _RAW[v.type.name], "bits")
    if isinstance(v, (Located, Members, Record, Wide)) and isinstance(v.type, Rec):
        found = r.calls.conversion(r, v, None)
        if found is not None:
            return scalar(r, found, node)
    raise NotUnderstood(f"{type_text(v)} where a number is needed", node)


def condition(r: Reading, v: Value, node: Node | None = None) -> n.Expr:
    """The expression of a condition."""
    made = convert(r, v, Prim(BOOL))
    assert isinstance(made, Scalar)
    return made.expr


def as_tile(r: Reading, v: Value, dtype: DType, count: int) -> n.Expr:
    """A value of `count` elements of a dtype as one tile of it."""
    v = rvalue(r, v)
    if isinstance(v, Scalar) and count == 1:
        return v.expr
    if not isinstance(v, Wide):
        raise NotUnderstood(f"{type_text(v)} where {count} numbers of {dtype} are needed")
    own = dtype_of(v.tile.type)
    if own == dtype:
        return v.tile
    if own.bits == dtype.bits:
        return build.cast(v.tile, dtype, "bits")
    if own.bits < dtype.bits:
        ratio = dtype.bits // own.bits
        packed = [pack_bits(slice_of(v.tile, k * ratio, ratio), dtype) for k in range(count)]
        return build.call("vec", *packed)
    return joined([unpack_bits(piece(v.tile, k), dtype) for k in range(count * dtype.bits // own.bits)])


def cast(r: Reading, to: CType, v: Value) -> Value:
    """`(to)v`."""
    if to == VOID:
        return Nothing()
    if isinstance(v, Located) and v.type == to:
        return rvalue(r, v)
    return convert(r, v, to)


def zero_of(r: Reading, t: CType) -> Value:
    """A value whose bytes are zero."""
    if isinstance(t, Prim):
        return Scalar(build.const(0, t.dtype))
    if isinstance(t, Ptr):
        return Null()
    found = leaf(t)
    if found is not None:
        shape: list[n.Expr] = []
        inner = t
        while isinstance(inner, Arr) and isinstance(inner.of, Arr):
            shape.append(build.const(inner.n))
            inner = inner.of
        per_row = leaf(inner)
        assert per_row is not None
        return Wide(build.call("broadcast", build.const(0, found[0]), *shape, build.const(per_row[1])), t)
    if isinstance(t, Rec):
        return Record({m.name: zero_of(r, m.type) for m in t.instance.members()}, t)
    raise NotUnderstood(f"a zero of type {t}")


def component(r: Reading, v: Wide, k: int) -> Value:
    """One number of a vector."""
    assert isinstance(v.type, Vec)
    return picked(r, as_tile(r, v, v.type.dtype, v.type.n), k)


def picked(r: Reading, tile: n.Expr, k: int) -> Scalar:
    """One element of a vector."""
    if isinstance(tile, n.Call) and tile.fn == "vec" and isinstance(part := tile.args[k], n.Expr):
        return Scalar(part)
    if not isinstance(tile, n.Var):
        tile = r.m.let("vector", tile)
    return Scalar(build.call("pick", tile, build.const(k)))
