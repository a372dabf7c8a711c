"""Registers hold bits, expressions have types: reinterpretation between the two, with what cancels left out.

A register that holds several narrow elements is `pack` of a vector; reading it as such a vector again is `unpack`. `vector`, `piece` and
`joined` build vectors of registers so that a region cut into registers and put together again is that region.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import (
    BF16,
    BOOL,
    E8M0,
    F4E2M1,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
    dtype_of,
    shape_of,
)

UNSIGNED = {8: U8, 16: U16, 32: U32, 64: U64}


@dataclass(frozen=True)
class Kind:
    """A PTX type: `count` elements of a dtype in one register."""

    dtype: DType
    count: int = 1

    @property
    def bits(self) -> int:
        """Width of the register."""
        return self.dtype.bits * self.count if not self.dtype.is_bool else 1


_SCALARS = {"s8": I8, "u8": U8, "b8": U8, "s16": I16, "u16": U16, "b16": U16, "s32": I32, "u32": U32, "b32": U32, "s64": I64, "u64": U64,
            "b64": U64, "f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "pred": BOOL, "e4m3": F8E4M3, "e5m2": F8E5M2}
KINDS: dict[str, Kind] = {
    **{name: Kind(d) for name, d in _SCALARS.items()}, "f16x2": Kind(F16, 2), "bf16x2": Kind(BF16, 2), "f32x2": Kind(F32, 2),
    "e4m3x2": Kind(F8E4M3, 2), "e5m2x2": Kind(F8E5M2, 2), "e2m1x2": Kind(F4E2M1, 2), "ue8m0x2": Kind(E8M0, 2), "e4m3x4": Kind(F8E4M3, 4),
    "e5m2x4": Kind(F8E5M2, 4), "u16x2": Kind(U16, 2), "s16x2": Kind(I16, 2)}
"""PTX types by name."""


def reinterpret(e: n.Expr, dtype: DType) -> n.Expr:
    """The bits of a scalar as another dtype of its width."""
    own = dtype_of(e.type)
    if own == dtype:
        return e
    if isinstance(e, n.Cast) and e.rounding == "bits" and not shape_of(e.type):
        return reinterpret(e.x, dtype)
    if isinstance(e, n.Cast) and e.rounding == "rn" and own.is_integer and not shape_of(e.type):
        inner = dtype_of(e.x.type)
        if inner.is_integer and inner.bits == own.bits:
            return reinterpret(e.x, dtype)
    if isinstance(e, n.Call) and e.of is None and e.fn == "pack" and not (own.is_float or dtype.is_float):
        return pack(_argument(e), dtype)
    if isinstance(e, n.Const) and own.is_integer and dtype.is_integer:
        return build.const(int(e.value), dtype)
    return n.Cast(e, dtype, "bits")


def _argument(e: n.Call) -> n.Expr:
    made = e.args[0]
    assert isinstance(made, n.Expr)
    return made


def pack(e: n.Expr, dtype: DType | None = None) -> n.Expr:
    """A vector as one register of its width."""
    shape, own = shape_of(e.type), dtype_of(e.type)
    count = int(str(shape[-1]))
    to = dtype or UNSIGNED[own.bits * count]
    if isinstance(e, n.Call) and e.of is None and e.fn == "unpack" and dtype_of(_argument(e).type).bits == to.bits:
        return reinterpret(_argument(e), to)
    if count == 1:
        return reinterpret(piece(e, 0), to)
    return build.call("pack", e, dtype=to.name)


def unpack(e: n.Expr, dtype: DType) -> n.Expr:
    """One register as a vector of narrower elements (a register of that very width as a vector of one)."""
    own = dtype_of(e.type)
    if own.bits == dtype.bits:
        return build.call("vec", reinterpret(e, dtype))
    bare = e.x if isinstance(e, n.Cast) and e.rounding == "bits" else e
    if isinstance(bare, n.Call) and bare.of is None and bare.fn == "pack":
        inner = _argument(bare)
        of = dtype_of(inner.type)
        if of == dtype:
            return inner
        if of.bits == dtype.bits:
            return n.Cast(inner, dtype, "bits")
    return build.call("unpack", bare if not dtype_of(bare.type).is_bool else e, dtype=dtype.name)


def piece(e: n.Expr, i: int) -> n.Expr:
    """Element `i` of a vector."""
    if isinstance(e, n.Call) and e.of is None:
        if e.fn == "vec":
            made = e.args[i]
            assert isinstance(made, n.Expr)
            return made
        if e.fn == "cat":
            for a in e.args:
                assert isinstance(a, n.Expr)
                own = int(str(shape_of(a.type)[0]))
                if i < own:
                    return piece(a, i)
                i -= own
        if e.fn == "pick" and len(e.args) == 2 and isinstance(e.args[1], n.Expr):
            start = _run_start(e.args[1])
            if start is not None and isinstance(e.args[0], n.Expr):
                return build.call("pick", e.args[0], build.const(start + i))
    if isinstance(e, n.Load) and e.mask is None and not e.clip and e.at.index and isinstance(e.at.index[-1], n.Span):
        last = e.at.index[-1]
        if last.step == 1 and not any(isinstance(x, n.Span) for x in e.at.index[:-1]):
            return n.Load(build.region(e.at.buffer, *e.at.index[:-1], build.add(last.lo, i)), cache=e.cache)
    return build.call("pick", e, build.const(i))


def _run_start(index: n.Expr) -> int | None:
    """k where an index is iota(n) + k."""
    base = build.sub(index, build.iota(int(str(shape_of(index.type)[0])))) if shape_of(index.type) else None
    if base is None:
        return None
    bare = base.args[0] if isinstance(base, n.Call) and base.fn == "broadcast" else base
    return int(bare.value) if isinstance(bare, n.Const) else None


def slice_of(e: n.Expr, start: int, count: int) -> n.Expr:
    """Elements start .. start + count of a vector."""
    if count == int(str(shape_of(e.type)[0])):
        return e
    if isinstance(e, n.Call) and e.of is None and e.fn == "vec":
        return n.Call("vec", e.args[start:start + count])
    if isinstance(e, n.Load) and isinstance(piece(e, start), n.Load):
        last = e.at.index[-1]
        assert isinstance(last, n.Span)
        return n.Load(build.region(e.at.buffer, *e.at.index[:-1], build.span(build.add(last.lo, start), count)), cache=e.cache)
    return build.call("pick", e, build.add(build.iota(count), start) if start else build.iota(count))


def joined(parts: Sequence[n.Expr]) -> n.Expr:
    """Vectors end to end, as the one place or value that they are pieces of where they are."""
    if len(parts) == 1:
        return parts[0]
    whole = whole_of(parts)
    if whole is not None:
        return whole
    if all(isinstance(p, n.Call) and p.of is None and p.fn == "vec" for p in parts):
        return n.Call("vec", tuple(a for p in parts if isinstance(p, n.Call) for a in p.args))
    out = parts[0]
    for at in range(1, len(parts), 3):
        out = n.Call("cat", (out, *parts[at:at + 3]), n.attrs(axis=0))
    return out


def vector(parts: Sequence[n.Expr]) -> n.Expr:
    """A vector of scalars, as the one place or value that they are the elements of where they are."""
    return whole_of(parts) or build.call("vec", *parts)


def whole_of(parts: Sequence[n.Expr]) -> n.Expr | None:
    """What consecutive pieces (scalars, or vectors of one length) are cut from."""
    first, size = parts[0], int(str((shape_of(parts[0].type) or (1,))[0]))
    count = size * len(parts)
    if isinstance(first, n.Load) and first.mask is None and not first.clip and first.at.index:
        last = first.at.index[-1]
        lo = last.lo if isinstance(last, n.Span) else last
        if shape_of(lo.type):
            return None
        made: n.Expr = n.Load(build.region(first.at.buffer, *first.at.index[:-1], build.span(lo, count)), cache=first.cache)
    elif isinstance(first, n.Call) and first.of is None and first.fn == "pick" and len(first.args) == 2 and isinstance(first.args[0], n.Expr):
        source, index = first.args
        assert isinstance(index, n.Expr) and isinstance(source, n.Expr)
        start = int(index.value) if isinstance(index, n.Const) else _run_start(index)
        extent = shape_of(source.type)[0]
        if start is None or not isinstance(extent, int) or start + count > extent:
            return None
        made = source if (start, count) == (0, extent) else build.call("pick", source, build.add(build.iota(count), start))
    else:
        return None
    if shape_of(first.type):
        same = all(slice_of(made, k * size, size) == p for k, p in enumerate(parts)) if len(parts) > 1 else made == first
    else:
        same = all(piece(made, k) == p for k, p in enumerate(parts))
    return made if same else None


def called(fn: str, options: Mapping[str, n.Attr], *args: n.Expr | n.Region) -> n.Call:
    """A call of a row with attributes."""
    return build.call_with(fn, args, n.attrs(**options))
