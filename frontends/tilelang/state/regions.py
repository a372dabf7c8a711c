"""Buffers and parts of them, as TileLang's words take them: regions, elements, neighbors, barriers."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text

from ..values.values import Memory, NotUnderstood, Place, Value, describe
from .reader import Reader

Extents = list["int | n.Expr"]


def region(r: Reader, v: Value) -> Place:
    """A buffer or part of it, with an index for each dimension."""
    v = r.decided(v)
    if isinstance(v, Memory):
        return Place(v.buffer, tuple(build.span(0, d) for d in v.buffer.shape))
    if isinstance(v, Place):
        missing = v.buffer.shape[len(v.index):]
        return Place(v.buffer, (*v.index, *(build.span(0, d) for d in missing)))
    raise NotUnderstood(f"{describe(v)} as memory")


def extents(p: Place) -> Extents:
    """The extent of each dimension of a region, 1 where there is an index."""
    return [i.extent if isinstance(i, n.Span) else 1 for i in p.index]


def is_region(p: Place) -> bool:
    """Whether a place is more than an element."""
    return any(isinstance(i, n.Span) for i in p.index)


def squeezed(p: Place) -> Place:
    """A region without dimensions of extent 1."""
    return Place(p.buffer, tuple(i.lo if isinstance(i, n.Span) and i.extent == 1 else i for i in p.index))


def at(p: Place) -> n.Region:
    """The region of the IR."""
    return build.region(p.buffer, *p.index)


def loaded(r: Reader, p: Place) -> n.Load:
    """A region read; outside of global memory it is 0, or what the kernel says."""
    where = at(p)
    if p.buffer.space == "global":
        return build.load(where, None, r.outside_value(p.buffer), True)
    return build.load(where)


def _widened(p: Place, like: Extents) -> Place:
    """An element that names where a region begins, as that region: its last dimensions take the extents."""
    index = list(p.index)
    for k in range(1, len(like) + 1):
        if like[-k] == 1:
            continue
        if k > len(index):
            raise NotUnderstood(f"a region of {len(like)} dimensions that begins in '{p.buffer.name}'")
        i = index[-k]
        assert isinstance(i, n.Expr)
        index[-k] = build.span(i, like[-k])
    return Place(p.buffer, tuple(index))


def matched(r: Reader, src: Value, dst: Value) -> tuple[Place, Place]:
    """The two sides of a copy with the same extents; both are elements where neither side says more."""
    a, b = region(r, src), region(r, dst)
    if not is_region(a) and not is_region(b):
        return a, b
    if not is_region(a):
        a = _widened(a, _trimmed(extents(b)))
    elif not is_region(b):
        b = _widened(b, _trimmed(extents(a)))
    if extents(a) != extents(b) or any(x == 1 for x in extents(a)):
        a, b = squeezed(a), squeezed(b)
    left, right = ([x for x in extents(p) if x != 1] for p in (a, b))
    if len(left) != len(right) or any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(left, right, strict=True)):
        raise NotUnderstood(f"a copy of {_shape(left)} to {_shape(right)}")
    return a, b


def _trimmed(e: Extents) -> Extents:
    while len(e) > 1 and e[0] == 1:
        e = e[1:]
    return e


def _shape(e: Extents) -> str:
    return "[" + ", ".join(str(x) if isinstance(x, int) else expr_text(x) for x in e) + "]"


def neighbors(r: Reader, v: Value, count: int | n.Expr) -> Place:
    """The `count` elements that begin where `v` does, along the last dimension."""
    p = region(r, v)
    first = tuple(i.lo if isinstance(i, n.Span) else i for i in p.index)
    if not first:
        raise NotUnderstood(f"neighbors of '{p.buffer.name}', which is one number")
    if p.buffer.strides is not None and not build.is_const(p.buffer.strides[-1], 1):
        raise NotUnderstood(f"neighbors in '{p.buffer.name}', whose elements are not next to one another")
    return Place(p.buffer, (*first[:-1], build.span(first[-1], count)))


def neighbor(p: Place, k: int) -> Place:
    """The k-th of neighbors."""
    last = p.index[-1]
    assert isinstance(last, n.Span)
    return Place(p.buffer, (*p.index[:-1], build.add(last.lo, k)))


def behind(b: n.Buffer, first: tuple[n.Expr, ...], offset: n.Expr) -> tuple[n.Expr, ...]:
    """The index of the element that lies so many behind another in dense memory."""
    flat: n.Expr = offset
    step: n.Expr = build.const(1)
    for i, d in zip(reversed(first), reversed(b.shape), strict=True):
        flat, step = build.add(flat, build.mul(i, step)), build.mul(step, d)
    index: list[n.Expr] = []
    for k, d in enumerate(reversed(b.shape)):
        index.append(flat if k == len(b.shape) - 1 else build.mod(flat, d))
        flat = build.floordiv(flat, d)
    return tuple(reversed(index))


def barrier_place(r: Reader, v: Value) -> n.Region:
    """One mbarrier."""
    v = r.decided(v)
    match v:
        case Memory() if len(v.buffer.shape) == 1:
            return build.region(v.buffer, 0)
        case Place() if len(v.index) == len(v.buffer.shape) and not any(isinstance(i, n.Span) for i in v.index):
            return build.region(v.buffer, *v.index)
        case _:
            raise NotUnderstood(f"{describe(v)} as a barrier")
