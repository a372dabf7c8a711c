"""Calls of CUDA's own functions; what each of them is stands in `grammars/cuda_names.toml` and the instruction table."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from kir.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DTYPES, F32, F64, I32, U32, DType, dtype_of, shape_of

from . import groups
from .c_types import INT, VOID, Arr, CType, Prim, Ptr, Vec, leaf, named_type, size_of, usual
from .emitter import lanes
from .errors import NotUnderstood
from .memory import Place
from .numbers import converted
from .source import Node
from .values import Builtin, Group, Located, Members, Nothing, Overloads, Pointer, Record, Scalar, Text, TypeName, Value, Wide, constant

if TYPE_CHECKING:
    from .reader import Reader

FULL = 0xFFFFFFFF


@cache
def names() -> dict[str, dict[str, Any]]:
    """`grammars/cuda_names.toml`."""
    return tomllib.loads(resources.files("kir.grammars").joinpath("cuda_names.toml").read_text())


@cache
def _math() -> dict[str, tuple[str, str]]:
    """CUDA's math by name: row of the instruction table and dtype."""
    out: dict[str, tuple[str, str]] = {}
    for fn, row in table().items():
        spelling = row.on("cuda")
        if spelling is None or row.level != "element" or not row.is_pure:
            continue
        if spelling in ("__popc", "__clz", "__ffs", "__brev"):
            out[spelling] = (fn, "u32")
        else:
            out[spelling] = (fn, "f32")
            if spelling.endswith("f") and not spelling.startswith("__"):
                out.setdefault(spelling[:-1], (fn, ""))
    out.update({k: (v[0], v[1]) for k, v in names()["math"].items()})
    return out


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
            return vector_of(r, kind, args)
    if f.name in groups.FUNCTIONS:
        return groups.FUNCTIONS[f.name](r, f, args, node)
    raise NotUnderstood(f"the function '{f.name}', which is not declared{r.missing_note()}", node)


def method(r: Reader, f: Overloads, args: list[Value], node: Node) -> Value:
    """A method of a value of CUDA's own types."""
    if isinstance(f.this, Group):
        return groups.method(r, f.this, f.name, args, node)
    this = r.rvalue(f.this) if f.this is not None else None
    if isinstance(f.this, Located) and isinstance(f.this.type, Arr) and f.name == "size":
        return Scalar(build.const(f.this.type.n))
    if this is not None and f.name.startswith("operator"):
        raise NotUnderstood(f"an explicit call of {f.name}", node)
    raise NotUnderstood(f"the method '{f.name}' of {r.shown(this) if this is not None else 'nothing'}", node)


def called(fn: str, *args: n.Expr | n.Region, options: Mapping[str, n.Attr]) -> n.Call:
    """A call with its attributes as data."""
    return build.call_with(fn, args, n.attrs(**options))


Handler = Callable[["Reader", str, list[Value], Node], Value]


@cache
def _handlers() -> dict[str, Handler]:
    data = names()
    out: dict[str, Handler] = {}
    for kinds, handler in (
        (_math(), _math_call), (data["approximate"], _approximate), (data["binary"], _binary), (data["convert"], _convert),
        (data["rounded"], _rounded), (data["bits"], _bits), (data["widen"], _widen), (data["pair"], _pair), (data["both"], _both),
        (data["half_of"], _half_of), (data["shuffle"], _shuffle), (data["vote"], _vote), (data["load"], _load), (data["store"], _cached_store),
        (data["effect"], _effect), (data["fence"], _fence),
    ):  # fmt: skip
        out.update(dict.fromkeys(kinds, handler))
    for name in data["atomic"]:
        for suffix in ("", "_block", "_system"):
            out[name + suffix] = _atomic
    out.update({
        "atomicSub": _atomic_sub, "__powf": _power, "__sincosf": _sine_cosine, "sincosf": _sine_cosine, "__exp2f": _approximate,
        "__syncwarp": _sync_warp, "abs": _abs, "labs": _abs, "llabs": _abs, "__activemask": _active_mask, "memcpy": _memcpy,
        "__builtin_memcpy": _memcpy, "assert": _assert, "printf": _print, "__builtin_assume": _assume, "__builtin_expect": _first,
        "__builtin_assume_aligned": _aligned,
        "__cvta_generic_to_shared": _address, "__cvta_generic_to_global": _address, "__pipeline_memcpy_async": _pipeline_copy,
        "__pipeline_wait_prior": _pipeline_wait, "__saturatef": _saturate, "memset": _memset, "clock64": _clock, "clock": _clock,
        "__nanosleep": _sleep, "__ldg_nc": _load, "__lane_id": _lane, "__shfl": _old, "__hneg": _negate, "__hneg2": _negate,
        "__hfma_relu": _old, "swap": _swap, "__reduce_add_sync": _warp_reduce, "__reduce_max_sync": _warp_reduce,
        "__reduce_min_sync": _warp_reduce, "__reduce_or_sync": _warp_reduce, "__reduce_and_sync": _warp_reduce,
        "__reduce_xor_sync": _warp_reduce, "__builtin_unreachable": _first_nothing, "__usad": _old, "signbit": _signbit,
        "__fsqrt_rz": _old, "__low2half2": _old, "__byte_perm": _permute,
    })  # fmt: skip
    return out


def _old(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    raise NotUnderstood(f"the function '{name}'", node)


# ------------------------------------------------------------------------------------------------------------------------- math


def _math_call(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    fn, dtype_name = _math()[name]
    args = [r.rvalue(a) for a in args]
    if any(isinstance(a, Wide) for a in args):
        return _wide_math(r, fn, args, node)
    numbers = [r.scalar(a, node) for a in args]
    if dtype_name:
        d = DTYPES[dtype_name]
    else:
        d = dtype_of(numbers[0].type)
        for e in numbers[1:]:
            d = usual(d, dtype_of(e.type))
        if d.is_integer or d.is_bool:
            d = F64
    if fn == "ldexp":
        return Scalar(build.call(fn, converted(numbers[0], d), converted(numbers[1], I32)))
    row = table()[fn]
    if len(numbers) != row.args[0] and not row.args[0] <= len(numbers) <= row.args[1]:
        raise NotUnderstood(f"'{name}' with {len(numbers)} arguments", node)
    return Scalar(build.call(fn, *(converted(e, d) for e in numbers)))


def _wide_math(r: Reader, fn: str, args: list[Value], node: Node) -> Value:
    first = next(a for a in args if isinstance(a, Wide))
    if not isinstance(first.type, Vec):
        raise NotUnderstood(f"{fn} of {r.shown(first)}", node)
    kind = first.type
    return Wide(build.call(fn, *(r.tile(a, kind.dtype, kind.n) for a in args)), kind)


def _approximate(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    fn, where, factor = names()["approximate"][name]
    x = converted(r.scalar(args[0], node), F32)
    if fn not in table():
        raise NotUnderstood(f"the approximation '{name}'", node)
    constant_ = converted(build.const(factor, F64), F32)
    if where == "before":
        x = build.mul(x, constant_)
    made: n.Expr = build.call(fn, x)
    return Scalar(build.mul(made, constant_) if where == "after" else made)


def _power(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    x, y = (converted(r.scalar(a, node), F32) for a in args)
    return Scalar(build.call("exp2_approx", build.mul(y, build.call("log2_approx", x))))


def _sine_cosine(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    x = r.pinned(converted(r.scalar(args[0], node), F32), "angle")
    for a, fn in zip(args[1:], ("sin", "cos"), strict=False):
        at, kind = place_of(r, a, node)
        r.assign(Located(at, kind), Scalar(build.call(f"{fn}_approx" if name.startswith("__") else fn, x)))
    return Nothing()


def _binary(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    op = names()["binary"][name]
    a, b = (r.rvalue(x) for x in args[:2])
    if isinstance(a, Wide) or isinstance(b, Wide):
        kind = a.type if isinstance(a, Wide) else b.type if isinstance(b, Wide) else None
        if not isinstance(kind, Vec):
            raise NotUnderstood(f"'{name}' of {r.shown(a)}", node)
        return Wide(build.binary(op, r.tile(a, kind.dtype, kind.n), r.tile(b, kind.dtype, kind.n)), kind)
    x, y = r.scalar(a, node), r.scalar(b, node)
    if name in ("fmaxf", "fminf", "__fadd_rn", "__fmul_rn", "__fsub_rn", "__fdiv_rn"):
        d: DType = F32
    elif name.startswith(("__umul24", "__mul24")):
        d = U32 if name.startswith("__u") else I32
    else:
        d = usual(dtype_of(x.type), dtype_of(y.type))
        if name in ("fmax", "fmin") and not d.is_float:
            d = F64
    return Scalar(build.binary(op, converted(x, d), converted(y, d)))


def _abs(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    x = r.scalar(args[0], node)
    d = usual(dtype_of(x.type), dtype_of(x.type)) if dtype_of(x.type).is_float else usual(dtype_of(x.type), I32)
    return Scalar(build.call("abs", converted(x, d)))


def _negate(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    v = r.rvalue(args[0])
    if isinstance(v, Wide) and isinstance(v.type, Vec):
        return Wide(build.negate(r.tile(v, v.type.dtype, v.type.n)), v.type)
    return Scalar(build.negate(r.scalar(v, node)))


def _signbit(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(build.compare("ne", build.call("signbit", converted(r.scalar(args[0], node), F32)), 0))


def _permute(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    """`__byte_perm` looks at three bits of each nibble of its selector; `prmt` repeats a sign where the fourth is set."""
    x, y, selector = (converted(r.scalar(a, node), U32) for a in args)
    return Scalar(build.call("prmt", x, y, build.binary("and", selector, build.const(0x7777, U32))))


def _saturate(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    x = converted(r.scalar(args[0], node), F32)
    return Scalar(build.minimum(build.maximum(x, 0.0), 1.0))


# ------------------------------------------------------------------------------------------------------------------ conversions


def _convert(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    to, rounding = names()["convert"][name]
    x = r.scalar(args[0], node)
    d = DTYPES[to]
    if rounding == "rn":
        return Scalar(converted(x, d))
    return Scalar(build.cast(x, d, rounding))


def _rounded(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    return Scalar(build.cast(build.call("round_even", converted(r.scalar(args[0], node), F32)), DTYPES[names()["rounded"][name]]))


def _bits(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    to = DTYPES[names()["bits"][name]]
    x = r.scalar(args[0], node)
    own = dtype_of(x.type)
    if own.bits != to.bits:
        same_kind = {16: "u16", 32: "f32" if to.is_integer else "i32", 64: "f64" if to.is_integer else "i64"}[to.bits]
        x = converted(x, DTYPES[same_kind])
    return Scalar(build.cast(x, to, "bits"))


def _widen(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    to = DTYPES[names()["widen"][name]]
    v = r.rvalue(args[0])
    if not isinstance(v, Wide) or not isinstance(v.type, Vec):
        raise NotUnderstood(f"'{name}' of {r.shown(v)}", node)
    return Wide(build.cast(r.tile(v, v.type.dtype, 2), to), _pair_type(to))


def _pair_type(d: DType) -> Vec:
    found = named_type({"f16": "half2", "bf16": "nv_bfloat162", "f32": "float2"}[d.name])
    assert isinstance(found, Vec)
    return found


def _pair(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    d = DTYPES[names()["pair"][name]]
    return Wide(build.call("vec", *(converted(r.scalar(a, node), d) for a in args[:2])), _pair_type(d))


def _both(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    d = DTYPES[names()["both"][name]]
    x = converted(r.scalar(args[0], node), d)
    return Wide(build.call("broadcast", x, build.const(2)), _pair_type(d))


def _half_of(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    from .places import component

    k, to = names()["half_of"][name]
    v = r.rvalue(args[0])
    if not isinstance(v, Wide):
        raise NotUnderstood(f"'{name}' of {r.shown(v)}", node)
    made = component(r, v, k)
    return Scalar(converted(r.scalar(made), DTYPES[to])) if to else made


def vector_of(r: Reader, t: Vec, args: list[Value]) -> Value:
    """A vector of numbers, or of shorter vectors."""
    parts: list[n.Expr] = []
    for a in args:
        v = r.rvalue(a)
        if isinstance(v, Wide) and isinstance(v.type, Vec):
            tile = r.m.let("part", r.tile(v, t.dtype, v.type.n))
            parts += [build.call("pick", tile, build.const(k)) for k in range(v.type.n)]
        else:
            parts.append(converted(r.scalar(v), t.dtype))
    if t.name == "dim3":
        parts += [build.const(1, t.dtype)] * (3 - len(parts))
    if len(parts) != t.n:
        raise NotUnderstood(f"a {t} from {len(parts)} numbers")
    return Wide(build.call("vec", *parts), t)


# ------------------------------------------------------------------------------------------------------------------------ lanes


def mask_of(r: Reader, v: Value, node: Node) -> dict[str, int]:
    """The attribute of a lane mask. Raises NotUnderstood for a mask that is not known."""
    value_ = constant(r.rvalue(v))
    if value_ is None:
        e = r.scalar(v)
        if isinstance(e, n.Var) and e.name.startswith("active_lanes"):
            raise NotUnderstood("a lane mask that is only known when it runs", node)
        raise NotUnderstood("a lane mask that is only known when it runs", node)
    value_ &= FULL
    return {} if value_ == FULL else {"mask": value_}


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
    if args and mask_of(r, args[0], node):
        raise NotUnderstood("a __syncwarp of some lanes", node)
    r.m.emit(n.Eval(build.call("warp_sync")))
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
    if isinstance(v, Scalar) and isinstance(v.expr, n.Load):
        return Scalar(build.load(v.expr.at, cache=cache_))
    if isinstance(v, Wide) and isinstance(v.tile, n.Load):
        return Wide(build.load(v.tile.at, cache=cache_), v.type)
    raise NotUnderstood(f"'{name}' of {kind}", node)


def _cached_store(r: Reader, name: str, args: list[Value], node: Node) -> Value:
    from dataclasses import replace

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
    a, b = args
    kept_a, kept_b = r.pinned_value(r.rvalue(a), "first"), r.pinned_value(r.rvalue(b), "second")
    r.assign(a, kept_b)
    r.assign(b, kept_a)
    return Nothing()


__all__ = ["INT", "TypeName", "call", "known", "lanes", "method", "shuffled", "value", "vector_of"]
