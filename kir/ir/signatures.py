"""Result types of the calls in the instruction table: one function per typing rule that a row may name."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kir.base.instructions import instruction
from kir.ir.base import Attr
from kir.ir.types import (
    BOOL,
    DTYPES,
    F32,
    I32,
    U32,
    UNIT,
    DType,
    Expr,
    TileType,
    TupleType,
    Type,
    broadcast_shapes,
    dtype_of,
    shape_of,
    value_types,
    with_dtype,
)


class Operand(Protocol):
    """An expression or a region: what a rule asks of it."""

    @property
    def type(self) -> Type:
        """Its type."""
        ...


Operands = tuple[Operand, ...]
Rule = Callable[[Operands, Mapping[str, Attr]], Type]


def elementwise(dtype: DType, *operands: Type) -> Type:
    """The type of an elementwise operation with element `dtype` over operands that broadcast; TypeError where they do not."""
    shape: tuple[int | Expr, ...] = ()
    tile = False
    for t in operands:
        tile = tile or isinstance(t, TileType)
        both = broadcast_shapes(shape, shape_of(t))
        if both is None:
            raise TypeError(f"shapes {show_shape(shape)} and {show_shape(shape_of(t))} do not broadcast")
        shape = both
    return TileType(dtype, shape) if tile else dtype


def show_shape(shape: tuple[int | Expr, ...]) -> str:
    """A shape as a user writes it, `[128, 64]`."""
    return "[" + ", ".join(str(d) if isinstance(d, int) else "?" for d in shape) + "]"


def _dims(args: Operands) -> tuple[int | Expr, ...]:
    return tuple(a.dimension for a in args if isinstance(a, Expr))


def _same(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return elementwise(dtype_of(args[0].type), *(a.type for a in args))


def _first(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return args[0].type


def _bool(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return elementwise(BOOL, *(a.type for a in args))


def _i32(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return elementwise(I32, *(a.type for a in args))


def _f32(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return elementwise(F32, *(a.type for a in args))


def _u32(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return elementwise(U32, *(a.type for a in args))


def _unit(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return UNIT


def _iota(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return TileType(I32, _dims(args))


def _expand(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    shape, axis = list(shape_of(args[0].type)), int(attrs["axis"])
    if not 0 <= axis <= len(shape):
        raise TypeError(f"expand: axis {axis} is outside 0..{len(shape)}")
    shape.insert(axis, 1)
    return TileType(dtype_of(args[0].type), tuple(shape))


def _reshape(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return TileType(dtype_of(args[0].type), _dims(args[1:]))


def _trans(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    shape, perm = shape_of(args[0].type), [d for d in _dims(args[1:]) if isinstance(d, int)]
    if sorted(perm) != list(range(len(shape))):
        raise TypeError(f"trans: {perm} is no permutation of the axes of {show_shape(shape)}")
    return TileType(dtype_of(args[0].type), tuple(shape[i] for i in perm))


def _reduce(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    shape, axis = shape_of(args[0].type), int(attrs["axis"])
    if not 0 <= axis < len(shape):
        raise TypeError(f"reduce: axis {axis} is outside the shape {show_shape(shape)}")
    kept = (1,) if attrs.get("keep") else ()
    out = shape[:axis] + kept + shape[axis + 1:]
    dtype = I32 if attrs.get("op") in ("argmax", "argmin") else dtype_of(args[0].type)
    result: Type = TileType(dtype, out) if out else dtype
    if len(args) > 1:
        return TupleType(value_types(with_dtype(result, dtype_of(a.type)) for a in args))
    return result


def _scan(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return args[0].type if len(args) == 1 else TupleType(value_types(a.type for a in args))


def _gather(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return with_dtype(args[1].type, dtype_of(args[0].type))


def _pick(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    if len(args) - 1 != len(shape_of(args[0].type)):
        raise TypeError(f"pick: {len(args) - 1} indices into a tile of shape {show_shape(shape_of(args[0].type))}")
    return elementwise(dtype_of(args[0].type), *(a.type for a in args[1:]))


def _vec(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return TileType(dtype_of(args[0].type), (len(args),))


def _join(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    shape = shape_of(elementwise(dtype_of(args[0].type), *(a.type for a in args)))
    return TileType(dtype_of(args[0].type), (*shape, len(args)))


def _split(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    shape, dtype = shape_of(args[0].type), dtype_of(args[0].type)
    if not shape or shape[-1] != 2:
        raise TypeError(f"split: the last axis of {show_shape(shape)} is not 2")
    part: DType | TileType = TileType(dtype, shape[:-1]) if shape[:-1] else dtype
    return TupleType((part, part))


def _cat(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    shapes, axis = [shape_of(a.type) for a in args], int(attrs.get("axis", 0))
    extent = 0
    for s in shapes:
        if not isinstance(s[axis], int):
            raise TypeError("cat: symbolic extent")
        extent += int(s[axis])  # type: ignore[arg-type]  # checked one line above
    return TileType(dtype_of(args[0].type), (*shapes[0][:axis], extent, *shapes[0][axis + 1:]))


def _ldmatrix(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return TileType(dtype_of(args[0].type), (2 * int(attrs.get("num", 4)),))


def _pack(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    shape, own, to = shape_of(args[0].type), dtype_of(args[0].type), DTYPES[str(attrs["dtype"])]
    if not shape or not isinstance(shape[-1], int) or shape[-1] * own.bits != to.bits:
        raise TypeError(f"pack: {show_shape(shape)} elements of {own} are not the {to.bits} bits of one {to}")
    return TileType(to, shape[:-1]) if shape[:-1] else to


def _unpack(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    own, to = dtype_of(args[0].type), DTYPES[str(attrs["dtype"])]
    if own.bits % to.bits or own.bits == to.bits:
        raise TypeError(f"unpack: {own} does not hold several {to}")
    return TileType(to, (*shape_of(args[0].type), own.bits // to.bits))


def _third(args: Operands, attrs: Mapping[str, Attr]) -> Type:
    return args[2].type


RULES: dict[str, Rule] = {
    "same": _same, "first": _first, "bool": _bool, "i32": _i32, "u32": _u32, "f32": _f32, "unit": _unit, "iota": _iota, "expand": _expand,
    "reshape": _reshape, "trans": _trans, "reduce": _reduce, "scan": _scan, "gather": _gather, "pick": _pick, "vec": _vec,
    "join": _join, "split": _split, "cat": _cat, "ldmatrix": _ldmatrix, "third": _third,
    "pack": _pack, "unpack": _unpack,
}


def result_type(fn: str, args: Operands, attrs: Mapping[str, Attr]) -> Type:
    """The type of a call of row `fn`. Raises KirError KIR-V001 for an unknown row, TypeError where operands do not fit."""
    return RULES[instruction(fn).rule](args, attrs)
