"""Words that take addresses: asynchronous copies of a thread, products of packed bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32

from ..state.reader import Reader, zero
from ..state.regions import at, neighbor, neighbors, region
from ..values.arithmetic import convert
from ..values.values import Address, NotUnderstood, Signature, Value

Word = Callable[[Reader, Signature], Value]


def _address(r: Reader, given: Signature) -> Value:
    """`T.access_ptr(base, "r", ..)`, `T.address_of(base)`: where a region begins."""
    p = region(r, given.args[0])
    if "offset" in given.named and r.known_int(given.named["offset"]) != 0:
        raise NotUnderstood("an address with an offset")
    return Address(p.buffer, tuple(i.lo if isinstance(i, n.Span) else i for i in p.index))


def _cp_async(r: Reader, given: Signature) -> Value:
    """`T.ptx_cp_async(dst, src, n, predicate)`: a thread's copy of n elements, which a commit group completes; 0 where the predicate is false."""
    given_count = given.args[2] if len(given.args) > 2 else given.named.get("num_elems")
    known = r.known_int(given_count)
    count = r.dim(given_count) if known is None else known
    dst, src = neighbors(r, given.args[0], count), neighbors(r, given.args[1], count)
    if src.buffer.space != "global" or dst.buffer.space != "shared" or src.buffer.dtype != dst.buffer.dtype:
        raise NotUnderstood("an asynchronous copy that is not from global to shared memory of the same dtype")
    test = given.args[3] if len(given.args) > 3 else given.named.get("predicate")
    found = True if test is None else r.truth(test)
    if found is False:
        raise NotUnderstood("an asynchronous copy that never happens")
    load = build.load(at(src)) if found is True else build.load(at(src), found, zero(src.buffer.dtype))
    r.out.emit(n.Copy(load, at(dst), "cp_async", grouped=True))
    return None


def _dp4a(r: Reader, given: Signature) -> Value:
    """`T.dp4a(a, b, c)`: four products of bytes, added to c."""
    a, b = (neighbors(r, v, 4) for v in given.args[:2])
    c = region(r, given.args[2])
    place = build.region(c.buffer, *(i.lo if isinstance(i, n.Span) else i for i in c.index))
    total: n.Expr = build.load(place)
    for k in range(4):
        one, other = (convert(r.read(neighbor(p, k)), I32) for p in (a, b))
        total = build.add(total, build.mul(one, other))
    r.out.emit(n.Store(place, total))
    return None


WORDS: Mapping[str, Word] = {"access_ptr": _address, "address_of": _address, "ptx_cp_async": _cp_async, "dp4a": _dp4a}
