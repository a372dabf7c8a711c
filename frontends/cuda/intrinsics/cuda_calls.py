"""Calls of CUDA's own functions; what each of them is stands in `grammars/cuda_names.toml` and the instruction table."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DTYPES, I32, I64, U32, U64, dtype_of, shape_of

from ..source.source import Node
from ..symbols.classes import leaf, size_of
from ..symbols.symbols import Value
from ..types.c_types import VOID, Arr, Prim, Ptr, Vec, named_type
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values.conversions import as_tile, condition, convert, scalar, type_text, zero_of
from ..values.loads import load, rvalue
from ..values.objects import assign, pinned_value
from ..values.reading import Reading
from ..values.values import Builtin, Group, Located, Nothing, Overloads, Pointer, Scalar, Text, Wide, constant
from . import cooperative_groups, cuda_lanes, cuda_math
from .cuda_names import Handler, names
from .cuda_operands import Arguments, called, place_of
from .standard_functions import standard


def known(name: str) -> bool:
    """Whether CUDA declares a function of this name."""
    return name in _handlers() or re.fullmatch(r"make_\w+[1234]", name) is not None or name in cooperative_groups.FUNCTIONS


def value(name: str) -> n.Expr | None:
    """A number that a header defines."""
    row = names()["constant"].get(name)
    return None if row is None else build.const(row[1], DTYPES[row[0]])


def call(r: Reading, f: Builtin, args: list[Value], node: Node) -> Value:
    """A call of one of CUDA's functions. Raises NotUnderstood for one that is not in the table."""
    args = Arguments(f.name, args, node)
    made = standard(r, f, args, node)
    if made is not None:
        return made
    handler = _handlers().get(f.name)
    if handler is not None:
        return handler(r, f.name, args, node)
    m = re.fullmatch(r"make_(\w+[1234])", f.name)
    if m is not None:
        kind = named_type(m[1])
        if isinstance(kind, Vec):
            return cuda_math.vector_of(r, kind, args)
    if f.name in cooperative_groups.FUNCTIONS:
        return cooperative_groups.FUNCTIONS[f.name](r, f, args, node)
    raise NotUnderstood(f"the function '{f.name}', which is not declared{r.missing_note()}", node)


def method(r: Reading, f: Overloads, args: list[Value], node: Node) -> Value:
    """A method of a value of CUDA's own types."""
    if isinstance(f.this, Group):
        return cooperative_groups.method(r, f.this, f.name, Arguments(f.name, args, node), node)
    this = rvalue(r, f.this) if f.this is not None else None
    if isinstance(f.this, Located) and isinstance(f.this.type, Arr) and f.name == "size":
        return Scalar(build.const(f.this.type.n))
    to = named_type(f.name) if isinstance(this, Scalar) and not args else None
    if this is not None and isinstance(to, Prim) and b"operator" in (node.text or b""):  # `x.operator __half()`
        return convert(r, this, to)
    if isinstance(this, Scalar) and not args and f.name in ("to_half", "to_nv_bfloat16"):  # CUTLASS's own types, which are CUDA's here
        return this
    if this is not None and f.name.startswith("operator"):
        raise NotUnderstood(f"an explicit call of {f.name}", node)
    raise NotUnderstood(f"the method '{f.name}' of {type_text(this) if this is not None else 'nothing'}", node)


@cache
def _handlers() -> dict[str, Handler]:
    data = names()
    out = cuda_math.handlers() | cuda_lanes.handlers()
    for kinds, handler in (
        (data["load"], _load), (data["store"], _cached_store), (data["effect"], _effect), (data["fence"], _fence),
    ):  # fmt: skip
        out.update(dict.fromkeys(kinds, handler))
    for name in data["atomic"]:
        for suffix in ("", "_block", "_system"):
            out[name + suffix] = _atomic
    out.update({
        "atomicSub": _atomic_sub, "memcpy": _memcpy,
        "__builtin_memcpy": _memcpy, "assert": _assert, "printf": _print, "__builtin_assume": _assume, "__builtin_expect": _first,
        "__builtin_assume_aligned": _aligned, "__builtin_constant_p": _is_constant,
        "__isShared": _is_shared, "__isGlobal": _is_shared,
        "__cvta_generic_to_shared": _address, "__cvta_generic_to_global": _address, "__pipeline_memcpy_async": _pipeline_copy,
        "__pipeline_wait_prior": _pipeline_wait, "memset": _memset, "clock64": _clock, "clock": _clock,
        "__nanosleep": _sleep, "__ldg_nc": _load, "__shfl": _old,
        "__hfma_relu": _old, "swap": _swap, "__builtin_unreachable": _first_nothing, "__usad": _old,
        "__fsqrt_rz": _old, "__low2half2": _old,
    })  # fmt: skip
    return out


def _old(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    raise NotUnderstood(f"the function '{name}'", node)


# ----------------------------------------------------------------------------------------------------------------------- memory


def _atomic(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    base, _, suffix = name.partition("_")
    fn = names()["atomic"][base]
    at, kind = place_of(r, args[0], node)
    options: dict[str, n.Attr] = {"scope": {"block": "cta", "system": "sys"}[suffix]} if suffix else {}
    if isinstance(kind, Vec):
        v = convert(r, args[1], kind)
        assert isinstance(v, Wide)
        r.m.emit(n.Eval(called(fn, at.region(kind.dtype, kind.n), as_tile(r, v, kind.dtype, kind.n), options=options)))
        return Nothing()
    if not isinstance(kind, Prim):
        raise NotUnderstood(f"an atomic operation on {kind}", node)
    values, own = [converted(scalar(r, a, node), kind.dtype) for a in args[1:]], kind.dtype
    if kind.dtype == U64 and at.store.declared == I64 and fn not in ("atomic_max", "atomic_min"):  # CUDA has these for unsigned numbers only, of the same bits
        values, own = [_signed(v) for v in values], I64
    made = called(fn, at.region(own, None), *values, options=options)
    old = r.m.let("old", made)
    return Scalar(old if own == kind.dtype else build.cast(old, kind.dtype))


def _signed(e: n.Expr) -> n.Expr:
    """A number as i64, without the way there and back."""
    return e.x if isinstance(e, n.Cast) and e.type == U64 and e.x.type == I64 else build.cast(e, I64)


def _atomic_sub(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    _, kind = place_of(r, args[0], node)
    if not isinstance(kind, Prim):
        raise NotUnderstood(f"an atomic operation on {kind}", node)
    return _atomic(r, "atomicAdd", [args[0], Scalar(build.negate(converted(scalar(r, args[1], node), kind.dtype)))], node)


def _load(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    at, kind = place_of(r, args[0], node)
    v = load(r, at, kind)
    cache_ = names()["load"].get(name, "")
    if isinstance(v, Scalar) and (read := _cached(v.expr, cache_)) is not None:
        return Scalar(read)
    if isinstance(v, Wide) and (read := _cached(v.tile, cache_)) is not None:
        return Wide(read, v.type)
    raise NotUnderstood(f"'{name}' of {kind}", node)


def _cached(e: n.Expr, cache: str) -> n.Expr | None:
    """What a load gives, or its bits as another type, with a cache policy; None for anything else."""
    match e:
        case n.Load():
            return build.load(e.at, cache=cache)
        case n.Call(fn="pack" | "unpack", args=(n.Expr() as x,)) if (inner := _cached(x, cache)) is not None:
            return replace(e, args=(inner,))
        case n.Cast(rounding="bits") if (inner := _cached(e.x, cache)) is not None:
            return replace(e, x=inner)
        case _:
            return None


def _cached_store(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    at, kind = place_of(r, args[0], node)
    assign(r, Located(at, kind), args[1])
    last = r.m.block[-1]
    if isinstance(last, n.Store):
        r.m.block[-1] = replace(last, cache=names()["store"][name])
    return Nothing()


def _memcpy(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    to, source, size = rvalue(r, args[0]), rvalue(r, args[1]), constant(rvalue(r, args[2]))
    if not isinstance(to, Pointer) or not isinstance(source, Pointer) or size is None:
        raise NotUnderstood("a copy of memory of a size that is not known", node)
    moved = source.type.to if source.type.to != VOID else to.type.to
    if moved == VOID:
        raise NotUnderstood("a copy between untyped memory", node)
    if size_of(moved) != size:
        if size % size_of(moved):
            raise NotUnderstood(f"a copy of {size} bytes of {moved}", node)
        moved = Arr(moved, size // size_of(moved))
    own = leaf(moved)
    if own is not None and isinstance(to.type.to, Prim) and own[1] * own[0].bytes == size_of(to.type.to):
        v = load(r, source.place, moved)
        e = v.expr if isinstance(v, Scalar) else None
        if isinstance(v, Wide) and len(shape_of(v.tile.type)) == 1 and own[0].bits < to.type.to.dtype.bits:
            e = called("pack", v.tile, options={"dtype": to.type.to.dtype.name})
        if e is not None and dtype_of(e.type).bits == to.type.to.dtype.bits:
            assign(r, Located(to.place, to.type.to), Scalar(build.cast(e, to.type.to.dtype, "bits")))
            return Nothing()
    assign(r, Located(to.place, moved), load(r, source.place, moved))
    return Nothing()


def _memset(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    to, value_, size = rvalue(r, args[0]), constant(rvalue(r, args[1])), constant(rvalue(r, args[2]))
    if not isinstance(to, Pointer) or value_ != 0 or size is None or size % size_of(to.type.to):
        raise NotUnderstood("a memset that is no filling with zeros", node)
    kind = Arr(to.type.to, size // size_of(to.type.to))
    assign(r, Located(to.place, kind), zero_of(r, kind))
    return Nothing()


def _pipeline_copy(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    to, source, size = rvalue(r, args[0]), rvalue(r, args[1]), constant(rvalue(r, args[2]))
    if not isinstance(to, Pointer) or not isinstance(source, Pointer) or size is None or len(args) > 3:
        raise NotUnderstood("an asynchronous copy of unusual form", node)
    dtype = source.place.store.declared
    count = size // dtype.bytes
    r.m.emit(n.Copy(n.Load(source.place.region(dtype, count)), to.place.region(dtype, count), "cp_async", grouped=True))
    return Nothing()


def _pipeline_wait(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    r.m.emit(n.Eval(build.call("async_wait", converted(scalar(r, args[0], node), I32))))
    return Nothing()


def _aligned(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    v, bytes_ = rvalue(r, args[0]), constant(rvalue(r, args[1]))
    if not isinstance(v, Pointer) or bytes_ is None or len(args) > 2:
        raise NotUnderstood(f"'{name}' of {type_text(v)}", node)
    if r.pool is not None and v.place.store is r.pool:
        r.hint_align = bytes_
    return Pointer(v.place, Ptr(VOID))


def _is_shared(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    at, _ = place_of(r, args[0], node)
    return Scalar(build.const(at.store.is_global == (name == "__isGlobal"), BOOL))


def _address(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    v = rvalue(r, args[0])
    if not isinstance(v, Pointer):
        raise NotUnderstood(f"the address of {type_text(v)}", node)
    return Pointer(v.place, Ptr(VOID))


# ------------------------------------------------------------------------------------------------------------------ what is left


def _effect(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    fn = names()["effect"][name]
    r.m.emit(n.Eval(build.call(fn)))
    return Nothing()


def _fence(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    r.m.emit(n.Eval(build.call("fence", scope=names()["fence"][name])))
    return Nothing()


def _assert(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    r.m.emit(n.Eval(build.call("assertion", condition(r, args[0], node))))
    return Nothing()


def _assume(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    r.m.emit(n.Eval(build.call("assume", condition(r, args[0], node))))
    return Nothing()


def _first(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    return rvalue(r, args[0])


def _is_constant(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(n.Const(isinstance(scalar(r, args[0], node), n.Const), BOOL))


def _first_nothing(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    return Nothing()


def _sleep(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    r.m.emit(n.Eval(build.call("nanosleep", converted(scalar(r, args[0], node), U32))))
    return Nothing()


def _print(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    """`printf`: an effect, with the numbers as they are passed on (each its own dtype)."""
    shown = args[0] if args else None
    if not isinstance(shown, Text):
        raise NotUnderstood("a format of printf that is not written out", node)
    numbers = [scalar(r, a, node) for a in args[1:]]
    r.m.emit(n.Eval(called("print", *numbers, options={"format": shown.text})))
    return Nothing()


def _clock(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    raise NotUnderstood("a reading of the clock", node)


def _swap(r: Reading, name: str, args: list[Value], node: Node) -> Value:
    a, b = args[0], args[1]
    kept_a, kept_b = pinned_value(r, rvalue(r, a), "first"), pinned_value(r, rvalue(r, b), "second")
    assign(r, a, kept_b)
    assign(r, b, kept_a)
    return Nothing()
