"""Words that take addresses: asynchronous copies of a thread, products of packed bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32

from ..state.reader import Reader, zero
from ..state.regions import at, behind, neighbor, neighbors, region
from ..values.arithmetic import convert
from ..values.values import Address, NotUnderstood, Signature, TypeOf, Value

Word = Callable[[Reader, Signature], Value]


def _address(r: Reader, given: Signature) -> Value:
    """`T.access_ptr(base, "r", ..)`, `T.address_of(base)`: where a region begins, or so many elements behind."""
    p = region(r, given.args[0])
    first = tuple(i.lo if isinstance(i, n.Span) else i for i in p.index)
    if "offset" in given.named and r.known_int(given.named["offset"]) != 0:
        return _behind(p.buffer, first, r.dim(given.named["offset"]))
    return Address(p.buffer, first)


def _raw(r: Reader, given: Signature) -> Value:
    """`T.tvm_access_ptr(T.type_annotation(dtype), buffer.data, offset, extent, mode)`: so many elements behind a buffer's first."""
    kind, p = r.decided(given.args[0]), region(r, given.args[1])
    if not isinstance(kind, TypeOf) or kind.dtype != p.buffer.dtype:
        raise NotUnderstood(f"an address in '{p.buffer.name}' as one of another dtype")
    return _behind(p.buffer, tuple(i.lo if isinstance(i, n.Span) else i for i in p.index), r.dim(given.args[2]))


def _behind(b: n.Buffer, first: tuple[n.Expr, ...], offset: n.Expr) -> Address:
    """The element that lies so many behind one. Raises NotUnderstood for memory that is not dense, or that TileLang may lay out otherwise."""
    if not b.shape or b.strides is not None or b.layout is not None:
        raise NotUnderstood("an address with an offset")
    return Address(b, behind(b, first, offset))


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


def _type(r: Reader, given: Signature) -> Value:
    return TypeOf(r.dtype(given.args[0]))


WORDS: Mapping[str, Word] = {
    "tvm_access_ptr": _raw, "type_annotation": _type, "access_ptr": _address, "address_of": _address, "ptx_cp_async": _cp_async, "dp4a": _dp4a,
}  # fmt: skip
