"""Words that act on whole tiles: copies, products, fills, reductions, scans, atomics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from kir.analysis.access import must_overlap
from kir.analysis.facts import Facts
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, TileType, dtype_of, shape_of

from ..state.reader import Reader, Undecided, zero
from ..state.regions import at, barrier_place, extents, is_region, loaded, matched, region
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.names import LANGUAGE
from ..values.values import Builtin, Named, NotUnderstood, Place, Signature, Value, describe, is_number

Word = Callable[[Reader, Signature], Value]


def _copy_options(r: Reader, given: Signature) -> dict[str, n.Attr]:
    out: dict[str, n.Attr] = {}
    for key, value in given.named.items():
        value = r.settled(value)
        if value is None or key in ("src", "dst", "barrier", "annotations") or value is False:
            continue
        if key in ("coalesced_width", "eviction_policy", "disable_tma", "prefer_instruction", "leader_scope_threads", "cluster_mask"):
            out[key] = value if isinstance(value, (bool, int, str)) else r.option(value)
        elif key == "loop_layout":
            continue
        else:
            raise NotUnderstood(f"'{key}' of a copy")
    return out


def _copy(r: Reader, given: Signature) -> Value:
    src, dst = _sides(given)
    a, b = matched(r, src, dst)
    options = _copy_options(r, given)
    move(r, a, b, "plain", options)
    return None


def _sides(given: Signature) -> tuple[Value, Value]:
    args = [*given.args, *(given.named[k] for k in ("src", "dst") if k in given.named)]
    if len(args) < 2:
        raise NotUnderstood("a copy without two sides")
    return args[0], args[1]


def move(r: Reader, a: Place, b: Place, via: str, options: dict[str, n.Attr], grouped: bool = False, signal: n.Region | None = None) -> None:
    """The statement that copies region `a` to region `b`; dtypes that differ are converted. What a fragment holds is stored."""
    clip = b.buffer.space == "global"
    if a.buffer == b.buffer and a.buffer.space != "fragment" and at(a) != at(b) and must_overlap(at(a), at(b), Facts()):
        raise NotUnderstood(f"a copy of '{a.buffer.name}' onto a slice of itself that overlaps, which the threads read and write side by side")
    if a.buffer.dtype == b.buffer.dtype and is_region(a) and not (a.buffer.space == "fragment" and via == "plain" and not options):
        r.out.emit(n.Copy(loaded(r, a), at(b), via, None, clip, signal, grouped, n.attrs(**options)))
        return
    if via != "plain":
        raise NotUnderstood("an asynchronous copy of elements, or between two dtypes")
    r.out.emit(n.Store(at(b), convert(loaded(r, a), b.buffer.dtype), None, clip))


def _async_copy(r: Reader, given: Signature) -> Value:
    a, b = matched(r, *_sides(given))
    if a.buffer.space != "global" or b.buffer.space != "shared":
        raise NotUnderstood("an asynchronous copy that is not from global to shared memory")
    move(r, a, b, "cp_async", _copy_options(r, given), True)
    r.out.emit(n.Eval(build.call("async_commit")))
    return None


def _tma_copy(r: Reader, given: Signature) -> Value:
    a, b = matched(r, *_sides(given))
    options = _copy_options(r, given)
    barrier = given.named.get("barrier")
    if a.buffer.space == "global":
        if barrier is None:
            raise NotUnderstood("a TMA load without a barrier")
        where = barrier_place(r, barrier)
        r.out.emit(n.Eval(build.call("mbar_expect", where, _bytes(a))))
        move(r, a, b, "tma", options, False, where)
    else:
        move(r, a, b, "tma", options, True)
        r.out.emit(n.Eval(build.call("bulk_commit")))
    return None


def _bytes(p: Place) -> n.Expr:
    out: n.Expr = build.const(1)
    for x in extents(p):
        out = build.mul(out, build.const(x) if isinstance(x, int) else convert(x, I32))
    dtype = p.buffer.dtype
    if dtype.is_symbolic:
        return build.floordiv(build.mul(out, build.call("dtype_bits", term=dtype.name)), 8)
    return build.floordiv(build.mul(out, dtype.bits), 8)


# -------------------------------------------------------------------------------------------------------------------- products
def matrix(r: Reader, v: Value, transposed: bool) -> n.Expr:
    """An operand of a product as a tile of two axes."""
    p = region(r, v)
    while len([i for i in p.index if isinstance(i, n.Span)]) > 2:
        k = next(i for i, x in enumerate(p.index) if isinstance(x, n.Span))
        span = p.index[k]
        assert isinstance(span, n.Span)
        if span.extent != 1:
            raise NotUnderstood(f"'{p.buffer.name}' as a matrix of more than two axes")
        p = Place(p.buffer, (*p.index[:k], span.lo, *p.index[k + 1:]))
    if len([i for i in p.index if isinstance(i, n.Span)]) != 2:
        raise NotUnderstood(f"'{p.buffer.name}' as a matrix")
    e: n.Expr = loaded(r, p)
    return build.call("trans", e, build.const(1), build.const(0)) if transposed else e


def flag(r: Reader, v: Value) -> bool | n.Expr:
    """An option that is true or false, perhaps as the binding says."""
    return r.truth(v)


def policy(r: Reader, v: Value) -> str:
    """The name of a warp policy of products."""
    v = r.decided(v)
    prefix = f"{LANGUAGE}.GemmWarpPolicy."
    if isinstance(v, Builtin) and v.name.startswith(prefix):
        return v.name.removeprefix(prefix)
    if isinstance(v, Builtin) and ".GemmWarpPolicy." in v.name:
        return v.name.rsplit(".", 1)[-1]
    raise NotUnderstood(f"{describe(v)} as a policy of warps")


def _gemm(via: Literal["auto", "wgmma"]) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        names = ("A", "B", "C", "transpose_A", "transpose_B", "policy", "clear_accum")
        args: dict[str, Value] = dict(zip(names, given.args, strict=False))
        args.update(given.named)
        unknown = set(args) - {*names, "k_pack", "wg_wait", "annotations", "mbar"}
        if unknown:
            raise NotUnderstood(f"'{sorted(unknown)[0]}' of a product")
        turned = [r.truth(args.get(k, False)) for k in ("transpose_A", "transpose_B")]
        for t in turned:
            if not isinstance(t, bool):
                raise Undecided(t)
        a, b = matrix(r, args["A"], bool(turned[0])), matrix(r, args["B"], bool(turned[1]))
        acc = matrix(r, args["C"], False)
        assert isinstance(acc, n.Load)
        place = acc.at
        if place.buffer.space not in ("fragment", "shared", "register"):
            raise NotUnderstood("a product that accumulates in global memory")
        attrs: dict[str, n.Attr] = {}
        if "policy" in args and (word := policy(r, args["policy"])) != "Square":
            attrs["policy"] = word
        _cleared(r, place, args.get("clear_accum", False))
        if via == "wgmma":
            r.out.emit(n.Eval(build.call("wgmma_fence")))
        r.out.emit(n.Mma(place, a, b, via, "tf32" if _may_be_f32(a) else "ieee", via == "wgmma", n.attrs(**attrs)))
        if via == "wgmma":
            r.out.emit(n.Eval(build.call("wgmma_commit")))
        return None

    return made


def _may_be_f32(e: n.Expr) -> bool:
    d = dtype_of(e.type)
    return d.is_symbolic or d.name == "f32"


def _cleared(r: Reader, place: n.Region, clear: Value) -> None:
    """The accumulator set to zero where a product says so."""
    found = r.truth(clear)
    if found is False:
        return
    wipe = n.Store(place, zero(place.buffer.dtype), origin=r.out.origin)
    r.out.emit(wipe if found is True else n.If(found, (wipe,), (), r.is_static(found)))


# ---------------------------------------------------------------------------------------------------- fills, reductions, scans
def _fill(r: Reader, given: Signature) -> Value:
    where = region(r, given.args[0])
    value = r.settled(given.args[1] if len(given.args) > 1 else given.named.get("value", 0))
    _filled(r, where, value)
    return None


def _clear(r: Reader, given: Signature) -> Value:
    _filled(r, region(r, given.args[0]), 0)
    return None


def _filled(r: Reader, where: Place, value: Value) -> None:
    dtype = where.buffer.dtype
    e = arithmetic.valued(value, dtype) if is_number(value) else convert(r.run(value), dtype)
    assert e is not None
    r.out.emit(n.Store(at(where), e, None, where.buffer.space == "global"))


REDUCTIONS: Mapping[str, tuple[str, bool]] = {
    "reduce_sum": ("sum", False), "reduce_max": ("max", False), "reduce_min": ("min", False), "reduce_abssum": ("sum", True),
    "reduce_absmax": ("max", True), "reduce_bitand": ("and", False), "reduce_bitor": ("or", False), "reduce_bitxor": ("xor", False),
}  # fmt: skip
COMBINE: Mapping[str, str] = {"sum": "add", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor"}


def _reduction(op: str, absolute: bool) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        names = ("buffer", "out", "dim", "clear", "batch")
        args: dict[str, Value] = Named(zip(names, given.args, strict=False))
        args.update({{"src": "buffer", "dst": "out"}.get(k, k): v for k, v in given.named.items()})
        reduced(r, op, absolute, args)
        return None

    return made


def reduced(r: Reader, op: str, absolute: bool, args: Mapping[str, Value]) -> None:
    """A reduction of one axis of a region into another region, whose dtype it is computed in."""
    src, dst = region(r, args["buffer"]), region(r, args["out"])
    rank = len(src.index)
    axis = r.known_int(args.get("dim", -1))
    if axis is None:
        raise NotUnderstood("a reduction over an axis that the binding decides")
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank or not isinstance(src.index[axis], n.Span):
        raise NotUnderstood(f"a reduction over axis {axis} of {rank}")
    position = sum(isinstance(i, n.Span) for i in src.index[:axis])
    options: dict[str, n.Attr] = {"axis": position, "op": op}
    if r.truth(args.get("nan_propagate", False)) is True and op in ("max", "min"):
        options["op"] = f"{op}_nan"
    value: n.Expr = convert(loaded(r, src), dst.buffer.dtype)
    if absolute:
        value = build.call("abs", value)
    spans = len([i for i in src.index if isinstance(i, n.Span)])
    kept = [i for i in dst.index if isinstance(i, n.Span)]
    if len(kept) == spans and spans > 1:
        options["keep"] = True
    elif len(kept) == 1 and spans == 1:
        dst = Place(dst.buffer, tuple(i.lo if isinstance(i, n.Span) else i for i in dst.index))
    made: n.Expr = build.call_with("reduce", (value,), n.attrs(**options))
    clear = r.truth(args.get("clear", True))
    if clear is not True:
        before = build.load(at(dst))
        both = build.binary(COMBINE[op], before, made)
        if clear is False:
            made = both
        else:
            r.out.emit(n.If(clear, (n.Store(at(dst), made, origin=r.out.origin),), (n.Store(at(dst), both, origin=r.out.origin),), r.is_static(clear)))
            return
    r.out.emit(n.Store(at(dst), made, None, dst.buffer.space == "global"))


def _reduce(r: Reader, given: Signature) -> Value:
    names = ("buffer", "out", "reduce_type", "dim", "clear")
    args: dict[str, Value] = dict(zip(names, given.args, strict=False))
    args.update(given.named)
    op, absolute = REDUCTIONS.get(f"reduce_{args.get('reduce_type')}", ("", False))
    if not op:
        raise NotUnderstood("a reduction of an unusual kind")
    reduced(r, op, absolute, args)
    return None


def _scan(op: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        names = ("src", "dst", "dim", "reverse")
        args: dict[str, Value] = dict(zip(names, given.args, strict=False))
        args.update(given.named)
        src = region(r, args["src"])
        dst = src if args.get("dst") is None else region(r, args["dst"])
        axis = r.known_int(args.get("dim", 0))
        backward = r.truth(args.get("reverse", False))
        if axis is None:
            raise NotUnderstood("a scan over an axis that the binding decides")
        if not isinstance(backward, bool):
            raise Undecided(backward)
        rank = len(extents(src))
        axis += rank if axis < 0 else 0
        options: dict[str, n.Attr] = {"axis": sum(isinstance(i, n.Span) for i in src.index[:axis]), "op": op}
        if backward:
            options["reverse"] = True
        value = build.call_with("scan", (convert(loaded(r, src), dst.buffer.dtype),), n.attrs(**options))
        r.out.emit(n.Store(at(dst), value, None, dst.buffer.space == "global"))
        return None

    return made


def _transpose(r: Reader, given: Signature) -> Value:
    src, dst = region(r, given.args[0]), region(r, given.args[1])
    value = build.call("trans", convert(loaded(r, src), dst.buffer.dtype), build.const(1), build.const(0))
    r.out.emit(n.Store(at(dst), value, None, dst.buffer.space == "global"))
    return None


def tile_shape(e: n.Expr) -> tuple[int | n.Expr, ...]:
    """The shape of a tile, () for a number."""
    return shape_of(e.type) if isinstance(e.type, TileType) else ()


def always(r: Reader) -> n.Expr:
    """The condition that holds."""
    return build.const(True, BOOL)


WORDS: Mapping[str, Word] = {
    "copy": _copy, "async_copy": _async_copy, "tma_copy": _tma_copy, "gemm": _gemm("auto"), "wgmma_gemm": _gemm("wgmma"),
    "fill": _fill, "clear": _clear, "reduce": _reduce, "cumsum": _scan("sum"), "cummax": _scan("max"), "transpose": _transpose,
    **{k: _reduction(*v) for k, v in REDUCTIONS.items()},
}  # fmt: skip
