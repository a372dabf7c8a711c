"""Calls of CUDA's own functions; what each of them is stands in `grammars/cuda_names.toml` and the instruction table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, SupportsIndex, overload

from kir.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DTYPES, I32, U32, dtype_of, shape_of

from . import cuda_math, groups
from .c_types import INT, VOID, Arr, CType, Prim, Ptr, Vec, leaf, named_type, size_of
from .cuda_names import Handler, names
from .emitter import lanes
from .errors import NotUnderstood
from .memory import Place
from .numbers import converted
from .source import Node
from .values import Builtin, Group, Located, Members, Nothing, Overloads, Pointer, Record, Scalar, Text, TypeName, Value, Wide, constant

if TYPE_CHECKING:
    from .reader import Reader

FULL = 0xFFFFFFFF


class Arguments(list[Value]):
    """The arguments of a call of a function that is known by its name; to ask for one that is not there is not to understand the call."""

    def __init__(self, name: str, given: Iterable[Value], node: Node) -> None:
        super().__init__(given)
        self.name, self.node = name, node

    @overload
    def __getitem__(self, k: SupportsIndex) -> Value: ...
    @overload
    def __getitem__(self, k: slice) -> list[Value]: ...
    def __getitem__(self, k: SupportsIndex | slice) -> Value | list[Value]:
        if not isinstance(k, slice) and not -len(self) <= k.__index__() < len(self):
            raise NotUnderstood(f"'{self.name}' with {len(self)} argument{'' if len(self) == 1 else 's'}", self.node)
        return super().__getitem__(k)


def known(name: str) -> bool:
    """Whether CUDA declares a function of this name."""
    return name in _handlers() or re.fullmatch(r"make_\w+[1234]", name) is not None or name in groups.FUNCTIONS


def value(name: str) -> n.Expr | None:
    """A number that a header defines."""
    row = names()["constant"].get(name)
    return None if row is None else build.const(row[1], DTYPES[row[0]])


def call(r: Reader, f: Builtin, args: list[Value], node: Node) -> Value:
    """A call of one of CUDA's functions. Raises NotUnderstood for one that is not in the table."""
    from .library import standard

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
    if f.name in groups.FUNCTIONS:
        return groups.FUNCTIONS[f.name](r, f, args, node)
    raise NotUnderstood(f"the function '{f.name}', which is not declared{r.missing_note()}", node)


def method(r: Reader, f: Overloads, args: list[Value], node: Node) -> Value:
    """A method of a value of CUDA's own types."""
    if isinstance(f.this, Group):
        return groups.method(r, f.this, f.name, Arguments(f.name, args, node), node)
    this = r.rvalue(f.this) if f.this is not None else None
    if isinstance(f.this, Located) and isinstance(f.this.type, Arr) and f.name == "size":
        return Scalar(build.const(f.this.type.n))
    if this is not None and f.name.startswith("operator"):
        raise NotUnderstood(f"an explicit call of {f.name}", node)
    raise NotUnderstood(f"the method '{f.name}' of {r.shown(this) if this is not None else 'nothing'}", node)


def called(fn: str, *args: n.Expr | n.Region, options: Mapping[str, n.Attr]) -> n.Call:
    """A call with its attributes as data."""
    return build.call_with(fn, args, n.attrs(**options))


@cache
def _handlers() -> dict[str, Handler]:
    data = names()
    out = cuda_math.handlers()
    for kinds, handler in (
        (data["shuffle"], _shuffle), (data["vote"], _vote), (data["load"], _load), (data["store"], _cached_store),
        (data["effect"], _effect), (data["fence"], _fence),
    ):  # fmt: skip
        out.update(dict.fromkeys(kinds, handler))
    for name in data["atomic"]:
        for suffix in ("", "_block", "_system"):
            out[name + suffix] = _atomic
    out.update({
        "atomicSub": _atomic_sub, "__syncwarp": _sync_warp, "__activemask": _active_mask, "memcpy": _memcpy,
        "__builtin_memcpy": _memcpy, "assert": _assert, "printf": _print, "__builtin_assume": _assume, "__builtin_expect": _first,
        "__builtin_assume_aligned": _aligned,
        "__isShared": _is_shared, "__isGlobal": _is_shared,
        "__cvta_generic_to_shared": _address, "__cvta_generic_to_global": _address, "__pipeline_memcpy_async": _pipeline_copy,
        "__pipeline_wait_prior": _pipeline_wait, "memset": _memset, "clock64": _clock, "clock": _clock,
        "__nanosleep": _sleep, "__ldg_nc": _load, "__lane_id": _lane, "__shfl": _old,
        "__hfma_relu": _old, "swap": _swap, "__reduce_add_sync": _warp_reduce, "__reduce_max_sync": _warp_reduce,
        "__reduce_min_sync": _warp_reduce, "__reduce_or_sync": _warp_reduce, "__reduce_and_sync": _warp_reduce,
        "__reduce_xor_sync": _warp_reduce, "__builtin_unreachable": _first_nothing, "__usad": _old,
        "__fsqrt_rz": _old, "__low2half2": _old,
    })  # fmt: skip
    return out


def _old(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    raise NotUnderstood(f"the function '{name}'", node)


# ------------------------------------------------------------------------------------------------------------------------ lanes


def mask_of(r: Reader, v: Value, node: Node) -> dict[str, int]:
    """The attribute of a lane mask. Raises NotUnderstood for a mask that is not known."""
    value_ = constant(r.rvalue(v))
    if value_ is None:
        size = _own_group(r, r.scalar(v))
        if size is not None:
            return {"group": size}
        raise NotUnderstood("a lane mask that is only known when it runs", node)
    value_ &= FULL
    return {} if value_ == FULL else {"mask": value_}


def _own_group(r: Reader, mask: n.Expr) -> int | None:
    """The size of the group of neighbors that a mask names, which the lane itself is one of: `0xffffu << (threadIdx.x & 16)`."""
    if not (isinstance(mask, n.Binary) and mask.op == "shl" and isinstance(mask.a, n.Const)):
        return None
    low, by = int(mask.a.value) & FULL, _bare(mask.b)
    size = low.bit_length()
    if low != (1 << size) - 1 or size not in (1, 2, 4, 8, 16) or not (isinstance(by, n.Binary) and by.op == "and" and build.is_const(by.b, 32 - size)):
        return None
    lane = _bare(by.a)
    lane = _bare(lane.a) if isinstance(lane, n.Binary) and (lane.op, build.int_value(lane.b)) in (("and", 31), ("mod", 32)) else lane
    return size if lane == _bare(r.geometry.thread) else None


def _bare(e: n.Expr) -> n.Expr:
    """An integer as it was before it was given another dtype."""
    while isinstance(e, n.Cast) and dtype_of(e.type).is_integer:
        e = e.x
    return e


def _shuffle(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    fn = names()["shuffle"][name]
    options: dict[str, n.Attr] = dict(mask_of(r, args[0], node))
    width = constant(r.rvalue(args[3])) if len(args) > 3 else 32
    if width is None:
        raise NotUnderstood("a shuffle of a width that is not known", node)
    return shuffled(r, fn, r.rvalue(args[1]), r.scalar(args[2], node), options, width)


def shuffled(r: Reader, fn: str, v: Value, lane: n.Expr, options: dict[str, n.Attr], width: int = 32) -> Value:
    """A value of another lane."""
    if width != 32:
        options = {**options, "width": width}
    lane = converted(lane, I32)
    if isinstance(v, Scalar):
        return Scalar(r.m.let("other", called(fn, v.expr, lane, options=options)))
    if isinstance(v, Wide):
        return Wide(r.m.let("other", called(fn, v.tile, lane, options=options)), v.type)
    if isinstance(v, (Record, Members)):
        return Record({k: shuffled(r, fn, r.rvalue(x), lane, options) for k, x in v.fields.items() if k != "#array"}, v.type)
    raise NotUnderstood(f"a shuffle of {r.shown(v)}")


def _vote(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    fn = names()["vote"][name]
    options: dict[str, n.Attr] = dict(mask_of(r, args[0], node))
    x = r.scalar(args[1], node) if fn == "match_any" else r.condition(args[1], node)
    made = r.m.let("vote", called(fn, x, options=options))
    return Scalar(converted(made, I32)) if dtype_of(made.type) == BOOL else Scalar(made)


def _warp_reduce(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    if "warp_reduce" not in table():
        raise NotUnderstood(f"the function '{name}'", node)
    options: dict[str, n.Attr] = dict(mask_of(r, args[0], node))
    return Scalar(r.m.let("total", called("warp_reduce", r.scalar(args[1], node), options={**options, "op": name.split("_")[3]})))


def _active_mask(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(r.m.let("active_lanes", build.call("active_mask")))


def _lane(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(converted(build.mod(r.geometry.thread, 32), U32))


def _sync_warp(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    options = mask_of(r, args[0], node) if args else {}
    if "mask" in options:
        raise NotUnderstood("a __syncwarp of some lanes", node)
    r.m.emit(n.Eval(build.call_with("warp_sync", (), n.attrs(**options))))
    return Nothing()


# ----------------------------------------------------------------------------------------------------------------------- memory


def place_of(r: Reader, v: Value, node: Node) -> tuple[Place, CType]:
    """What a pointer argument points to."""
    v = r.rvalue(v)
    if not isinstance(v, Pointer) or v.type.to == VOID:
        raise NotUnderstood(f"the address {r.shown(v)}", node)
    return v.place, v.type.to


def _atomic(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    base, _, suffix = name.partition("_")
    fn = names()["atomic"][base]
    at, kind = place_of(r, args[0], node)
    options: dict[str, n.Attr] = {"scope": {"block": "cta", "system": "sys"}[suffix]} if suffix else {}
    if isinstance(kind, Vec):
        v = r.convert(args[1], kind)
        assert isinstance(v, Wide)
        r.m.emit(n.Eval(called(fn, at.region(kind.dtype, kind.n), r.tile(v, kind.dtype, kind.n), options=options)))
        return Nothing()
    if not isinstance(kind, Prim):
        raise NotUnderstood(f"an atomic operation on {kind}", node)
    values = [converted(r.scalar(a, node), kind.dtype) for a in args[1:]]
    made = called(fn, at.region(kind.dtype, None), *values, options=options)
    return Scalar(r.m.let("old", made))


def _atomic_sub(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    _, kind = place_of(r, args[0], node)
    if not isinstance(kind, Prim):
        raise NotUnderstood(f"an atomic operation on {kind}", node)
    return _atomic(r, "atomicAdd", [args[0], Scalar(build.negate(converted(r.scalar(args[1], node), kind.dtype)))], node)


def _load(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    at, kind = place_of(r, args[0], node)
    v = r.load(at, kind)
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


def _cached_store(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    at, kind = place_of(r, args[0], node)
    r.assign(Located(at, kind), args[1])
    last = r.m.block[-1]
    if isinstance(last, n.Store):
        r.m.block[-1] = replace(last, cache=names()["store"][name])
    return Nothing()


def _memcpy(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    to, source, size = r.rvalue(args[0]), r.rvalue(args[1]), constant(r.rvalue(args[2]))
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
        v = r.load(source.place, moved)
        e = v.expr if isinstance(v, Scalar) else None
        if isinstance(v, Wide) and len(shape_of(v.tile.type)) == 1 and own[0].bits < to.type.to.dtype.bits:
            e = called("pack", v.tile, options={"dtype": to.type.to.dtype.name})
        if e is not None and dtype_of(e.type).bits == to.type.to.dtype.bits:
            r.assign(Located(to.place, to.type.to), Scalar(build.cast(e, to.type.to.dtype, "bits")))
            return Nothing()
    r.assign(Located(to.place, moved), r.load(source.place, moved))
    return Nothing()


def _memset(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    from .expressions import zero_of

    to, value_, size = r.rvalue(args[0]), constant(r.rvalue(args[1])), constant(r.rvalue(args[2]))
    if not isinstance(to, Pointer) or value_ != 0 or size is None or size % size_of(to.type.to):
        raise NotUnderstood("a memset that is no filling with zeros", node)
    kind = Arr(to.type.to, size // size_of(to.type.to))
    r.assign(Located(to.place, kind), zero_of(r, kind))
    return Nothing()


def _pipeline_copy(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    to, source, size = r.rvalue(args[0]), r.rvalue(args[1]), constant(r.rvalue(args[2]))
    if not isinstance(to, Pointer) or not isinstance(source, Pointer) or size is None or len(args) > 3:
        raise NotUnderstood("an asynchronous copy of unusual form", node)
    dtype = source.place.store.declared
    count = size // dtype.bytes
    r.m.emit(n.Copy(n.Load(source.place.region(dtype, count)), to.place.region(dtype, count), "cp_async", grouped=True))
    return Nothing()


def _pipeline_wait(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    r.m.emit(n.Eval(build.call("async_wait", converted(r.scalar(args[0], node), I32))))
    return Nothing()


def _aligned(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    v, bytes_ = r.rvalue(args[0]), constant(r.rvalue(args[1]))
    if not isinstance(v, Pointer) or bytes_ is None or len(args) > 2:
        raise NotUnderstood(f"'{name}' of {r.shown(v)}", node)
    if r.pool is not None and v.place.store is r.pool:
        r.hint_align = bytes_
    return Pointer(v.place, Ptr(VOID))


def _is_shared(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    at, _ = place_of(r, args[0], node)
    return Scalar(build.const(at.store.is_global == (name == "__isGlobal"), BOOL))


def _address(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    v = r.rvalue(args[0])
    if not isinstance(v, Pointer):
        raise NotUnderstood(f"the address of {r.shown(v)}", node)
    return Pointer(v.place, Ptr(VOID))


# ------------------------------------------------------------------------------------------------------------------ what is left


def _effect(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    fn = names()["effect"][name]
    r.m.emit(n.Eval(build.call(fn)))
    return Nothing()


def _fence(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    r.m.emit(n.Eval(build.call("fence", scope=names()["fence"][name])))
    return Nothing()


def _assert(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    r.m.emit(n.Eval(build.call("assertion", r.condition(args[0], node))))
    return Nothing()


def _assume(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    r.m.emit(n.Eval(build.call("assume", r.condition(args[0], node))))
    return Nothing()


def _first(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    return r.rvalue(args[0])


def _first_nothing(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    return Nothing()


def _sleep(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    r.m.emit(n.Eval(build.call("nanosleep", converted(r.scalar(args[0], node), U32))))
    return Nothing()


def _print(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    """`printf`: an effect, with the numbers as they are passed on (each its own dtype)."""
    shown = args[0] if args else None
    if not isinstance(shown, Text):
        raise NotUnderstood("a format of printf that is not written out", node)
    numbers = [r.scalar(a, node) for a in args[1:]]
    r.m.emit(n.Eval(called("print", *numbers, options={"format": shown.text})))
    return Nothing()


def _clock(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    raise NotUnderstood("a reading of the clock", node)


def _swap(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    a, b = args[0], args[1]
    kept_a, kept_b = r.pinned_value(r.rvalue(a), "first"), r.pinned_value(r.rvalue(b), "second")
    r.assign(a, kept_b)
    r.assign(b, kept_a)
    return Nothing()


__all__ = ["INT", "TypeName", "call", "known", "lanes", "method", "shuffled", "value"]
