"""Words of atomic operations: on elements, on regions, on neighbors of an element."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n

from ..state.guards import within
from ..state.reader import Reader
from ..state.regions import at, is_region, loaded, matched, neighbor, neighbors, region
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.values import Memory, NotUnderstood, Num, Place, Signature, Value, is_number

Word = Callable[[Reader, Signature], Value]


def _atomic(fn: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        names = ("dst", "value", "memory_order", "return_prev")
        args: dict[str, Value] = dict(zip(names, given.args, strict=False))
        args.update(given.named)
        where = region(r, args["dst"])
        if len(where.buffer.shape) == 1 and build.is_const(where.buffer.shape[0], 1) and is_region(where):
            where = Place(where.buffer, (build.const(0),))
        value = r.decided(args["value"])
        dtype = where.buffer.dtype
        if is_region(where):
            source = region(r, value)
            if is_region(source):
                source, where = matched(r, source, where)
            e: n.Expr = convert(loaded(r, source), dtype)
        elif (isinstance(value, Place) and is_region(value)) or (isinstance(value, Memory) and not value.var and value.buffer.shape):
            source, where = matched(r, value, where)
            e = convert(loaded(r, source), dtype)
        else:
            known = arithmetic.valued(value, dtype) if is_number(value) else convert(r.run(value), dtype)
            assert known is not None
            e = known
        attrs: dict[str, n.Attr] = {}
        order = args.get("memory_order")
        if isinstance(order, str) and order != "relaxed":
            attrs["order"] = order
        taken = r.truth(args.get("return_prev", False)) is True
        mask = None if taken else within(r, where)
        try:
            call = build.call_with(fn, (at(where), e) if mask is None else (at(where), e, mask), n.attrs(**attrs))
        except KirError as bad:
            raise NotUnderstood(bad.diagnostics[0].message) from bad
        if taken:
            return Num(r.out.let(r.wanted or "before", call))
        r.out.emit(n.Eval(call))
        return None

    return made


def _atomic_load(r: Reader, given: Signature) -> Value:
    return Num(r.out.let(r.wanted or "seen", build.call("atomic_load", at(region(r, given.args[0])), order=_order(given, 1, "acquire"))))


def _atomic_store(r: Reader, given: Signature) -> Value:
    where = region(r, given.args[0])
    value = r.decided(given.args[1])
    e = arithmetic.valued(value, where.buffer.dtype) if is_number(value) else convert(r.run(value), where.buffer.dtype)
    assert e is not None
    r.out.emit(n.Eval(build.call("atomic_store", at(where), e, order=_order(given, 2, "release"))))
    return None


def _order(given: Signature, position: int, default: str) -> str:
    found = given.args[position] if len(given.args) > position else given.named.get("memory_order", default)
    if found not in ("relaxed", "acquire", "release"):
        raise NotUnderstood("an order of memory that the IR does not have")
    return str(found)


def _wide(count: int) -> Word:
    """`T.atomic_addx2(dst, value)`: each of the neighbors is added to for itself."""
    def made(r: Reader, given: Signature) -> Value:
        if r.truth(given.args[2] if len(given.args) > 2 else given.named.get("return_prev", False)) is not False:
            raise NotUnderstood("what several neighbors held before, as one value")
        where, value = neighbors(r, given.args[0], count), neighbors(r, given.args[1], count)
        for k in range(count):
            _atomic("atomic_add")(r, Signature([neighbor(where, k), neighbor(value, k)]))
        return None

    return made


WORDS: Mapping[str, Word] = {
    "atomic_add": _atomic("atomic_add"), "atomic_max": _atomic("atomic_max"), "atomic_min": _atomic("atomic_min"),
    "atomic_or": _atomic("atomic_or"), "atomic_load": _atomic_load, "atomic_store": _atomic_store, "atomic_addx2": _wide(2),
    "atomic_addx4": _wide(4),
}  # fmt: skip
