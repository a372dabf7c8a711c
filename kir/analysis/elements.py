"""Between whole tiles and their elements.

`element(e, index)` is the scalar that a tile expression holds at an index; `tile(scalar, axes)` is the whole tile of a scalar expression
over axis variables. `tile(element(e, axes), axes)` is the canonical spelling of `e`: new axes are introduced directly at the leaves.
Passes that add, drop or reorder tile axes work on elements and go back.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, TileType, broadcast_shapes, shape_of
from kir.ir.visit import names_read, once, walk

Index = Sequence[n.Expr]


class NotElementwise(Exception):
    """An expression whose elements are no expression of its operands' elements (a reduction, a scan, a call with effects)."""


def _aligned(index: Index, shape: tuple[int | n.Expr, ...]) -> tuple[n.Expr, ...]:
    """The index of an operand of `shape` that broadcasts (aligned at the right) to a tile indexed by `index`."""
    taken = tuple(index)[len(index) - len(shape):]
    return tuple(build.const(0) if d == 1 else i for i, d in zip(taken, shape, strict=True))


def element(e: n.Expr, index: Index, definitions: Mapping[str, n.Expr] | None = None) -> n.Expr:
    """The element of `e` at `index` (one i32 scalar per axis of its shape). A tile variable gives `pick(x, index)`, or the element of
    its definition where `definitions` has one. Raises NotElementwise."""
    defs = definitions or {}

    def sub(x: n.Expr) -> n.Expr:
        return element(x, _aligned(index, shape_of(x.type)), defs)

    if not isinstance(e.type, TileType):
        return e
    match e:
        case n.Var() if e.name in defs:
            return element(defs[e.name], index, defs)
        case n.Var():
            return build.call("pick", e, *index)
        case n.Unary():
            return build.unary(e.op, sub(e.x))
        case n.Binary():
            return build.binary(e.op, sub(e.a), sub(e.b))
        case n.Select():
            return build.select(sub(e.cond), sub(e.a), sub(e.b))
        case n.Cast():
            return build.cast(sub(e.x), e.dtype, e.rounding)
        case n.Load():
            return build.load(element_region(e.at, index, defs), None if e.mask is None else sub(e.mask),
                              None if e.other is None else sub(e.other), e.clip, e.cache)
        case n.Call():
            return _element_of_call(e, tuple(index), defs)
        case _:
            raise NotElementwise(type(e).__name__)


def _element_of_call(e: n.Call, index: tuple[n.Expr, ...], defs: Mapping[str, n.Expr]) -> n.Expr:
    args = [a for a in e.args if isinstance(a, n.Expr)]
    match e.fn:
        case "iota":
            return index[0]
        case "expand":
            axis = int(dict(e.attrs)["axis"])
            return element(args[0], index[:axis] + index[axis + 1:], defs)
        case "broadcast":
            return element(args[0], _aligned(index, shape_of(args[0].type)), defs)
        case "trans":
            perm = [int(a.value) for a in args[1:] if isinstance(a, n.Const)]
            source: list[n.Expr] = [build.const(0)] * len(perm)
            for position, axis in enumerate(perm):
                source[axis] = index[position]
            return element(args[0], source, defs)
        case "vec" if isinstance(index[0], n.Const):
            return args[int(index[0].value)]
        case "pick":
            picked = tuple(element(a, _aligned(index, shape_of(a.type)), defs) for a in args[1:])
            return build.call("pick", args[0], *picked) if isinstance(args[0], n.Var) else element(args[0], picked, defs)
        case "multiple_of" | "max_contiguous" | "max_constancy":
            raise NotElementwise(e.fn)
    row = instruction(e.fn)
    if e.of is not None or row.level != "element" or row.effect or len(args) != len(e.args):
        raise NotElementwise(e.fn)
    return replace(e, args=tuple(element(a, _aligned(index, shape_of(a.type)), defs) for a in args))


def element_region(r: n.Region, index: Index, definitions: Mapping[str, n.Expr] | None = None) -> n.Region:
    """The place of one element of a region: spans take the index in order, gather indices their own element."""
    if not r.index:
        return build.region(r.buffer, *index)
    spans = any(isinstance(i, n.Span) for i in r.index)
    left = list(index)
    out: list[n.Expr] = []
    for i in r.index:
        if isinstance(i, n.Span):
            position = left.pop(0)
            dtype = i.lo.type
            assert isinstance(dtype, DType)
            out.append(build.add(i.lo, build.mul(build.cast(position, dtype), _as_expr(i.step, dtype))))
        elif spans:
            out.append(i)
        else:
            out.append(element(i, _aligned(index, shape_of(i.type)), definitions))
    return build.region(r.buffer, *out)


def _as_expr(value: int | n.Expr, dtype: DType) -> n.Expr:
    return build.const(value, dtype) if isinstance(value, int) else value


Axes = Sequence[tuple[n.Var, int | n.Expr]]


def tile(e: n.Expr, axes: Axes, keep_shape: bool = True) -> n.Expr:
    """The tile whose element at the axis variables is the scalar `e`. Values that do not depend on an axis broadcast along it; with
    `keep_shape` the result has every axis at its extent even when nothing depends on it. Raises NotElementwise."""
    made = _tile(e, axes)
    if not axes or not keep_shape:
        return made
    return build.broadcast(made, TileType(I32, tuple(extent for _, extent in axes)))


def _tile(e: n.Expr, axes: Axes) -> n.Expr:
    used = [(k, v, extent) for k, (v, extent) in enumerate(axes) if v.name in names_read(e)]
    if not used:
        return e
    match e:
        case n.Var():
            k, _, extent = used[0]
            if e.type != I32:
                raise NotElementwise(f"'{e.name}' counts in another integer than the numbers of a tile's elements")
            return _placed(build.iota(extent), [k], len(axes))
        case n.Unary():
            return build.unary(e.op, _tile(e.x, axes))
        case n.Binary():
            return build.binary(e.op, _tile(e.a, axes), _tile(e.b, axes))
        case n.Select():
            return build.select(_tile(e.cond, axes), _tile(e.a, axes), _tile(e.b, axes))
        case n.Cast():
            return build.cast(_tile(e.x, axes), e.dtype, e.rounding)
        case n.Load():
            return _tile_of_load(e, axes)
        case n.Call() if e.fn == "pick":
            return _tile_of_pick(e, axes)
        case n.Call() if e.of is None and instruction(e.fn).level == "element" and not instruction(e.fn).effect:
            return replace(e, args=tuple(_tile(a, axes) if isinstance(a, n.Expr) else a for a in e.args))
        case _:
            raise NotElementwise(type(e).__name__)


def _placed(e: n.Expr, own: Sequence[int], rank: int) -> n.Expr:
    """`e`, whose axes are the axes `own` (in its order) of a tile of `rank`, permuted and stretched to align with them."""
    order = sorted(range(len(own)), key=lambda p: own[p])
    if order != list(range(len(own))):
        e = build.call("trans", e, *(build.const(p) for p in order))
    present = sorted(own)
    for axis in range(present[0] + 1, rank):
        if axis not in present:
            e = build.expand(e, axis - present[0])
    return e


def split_affine(e: n.Expr, axis: n.Var) -> tuple[n.Expr, n.Expr] | None:
    """(lo, step) with e == lo + step * axis and neither depending on the axis; None where there is no such form."""
    dtype = e.type
    if not isinstance(dtype, DType) or not dtype.is_integer:
        return None
    atom: n.Expr = build.cast(axis, dtype)
    lo: dict[tuple[n.Expr, ...], int] = {}
    step: dict[tuple[n.Expr, ...], int] = {}
    for monomial, c in build.polynomial(e).items():
        if atom in monomial:
            rest = list(monomial)
            rest.remove(atom)
            if any(axis.name in names_read(x) for x in rest):
                return None
            key = tuple(rest)
            step[key] = step.get(key, 0) + c
        elif any(axis.name in names_read(x) for x in monomial):
            return None
        else:
            lo[monomial] = c
    return build.from_polynomial(lo, dtype), build.from_polynomial(step, dtype)


def tile_region(r: n.Region, axes: Axes) -> tuple[n.Region, list[int]] | None:
    """The region that an element's place sweeps over the axes, as spans, with the axis number of each span; None where it takes a gather, or is no element."""
    out: list[n.Expr | n.Span] = []
    own: list[int] = []
    for i in r.index:
        if isinstance(i, n.Span):
            return None
        used = [k for k, (v, _) in enumerate(axes) if v.name in names_read(i)]
        if not used:
            out.append(i)
            continue
        parts = split_affine(i, axes[used[0]][0]) if len(used) == 1 and used[0] not in own else None
        if parts is None:
            return None
        out.append(build.span(parts[0], axes[used[0]][1], parts[1]))
        own.append(used[0])
    return build.region(r.buffer, *out), own


def tile_place(place: n.Region, axes: Axes) -> n.Region | None:
    """The place of a tile, from that of an element: spans, or indices that gather; None where the axes come in another order."""
    found = tile_region(place, axes)
    if found is not None:
        return found[0] if found[1] == list(range(len(axes))) else None
    made = build.region(place.buffer, *(tile(i, axes, False) for i in place.index if isinstance(i, n.Expr)))
    return made if shape_of(made.type) == tuple(d for _, d in axes) else None


def _tile_of_load(e: n.Load, axes: Axes) -> n.Expr:
    found = tile_region(e.at, axes)
    extra = {v.name for v, _ in axes} & (names_read(e.mask) if e.mask is not None else set())
    if found is not None and extra <= {axes[k][0].name for k in found[1]}:
        region, own = found
        local = [axes[k] for k in own]
        made = build.load(region, None if e.mask is None else _tile(e.mask, local), None if e.other is None else _tile(e.other, local),
                          e.clip, e.cache)
        return _placed(made, own, len(axes)) if own else made
    first, *rest = [_tile(i, axes) for i in e.at.index if isinstance(i, n.Expr)]
    mask = None if e.mask is None else _tile(e.mask, axes)
    place = n.Region(e.at.buffer, (first, *rest)).type
    whole = None if mask is None else broadcast_shapes(shape_of(place), shape_of(mask.type))
    if whole is not None and whole != shape_of(place):  # the mask tells elements apart that are read at one place
        first = build.broadcast(first, TileType(I32, whole))
    return build.load(build.region(e.at.buffer, first, *rest), mask, None if e.other is None else _tile(e.other, axes), e.clip, e.cache)


def _tile_of_pick(e: n.Call, axes: Axes) -> n.Expr:
    source, *index = [a for a in e.args if isinstance(a, n.Expr)]
    names = {v.name: k for k, (v, _) in enumerate(axes)}
    shape = shape_of(source.type)
    if all(isinstance(i, n.Var) and i.name in names for i in index):
        own = [names[i.name] for i in index if isinstance(i, n.Var)]
        if len(set(own)) == len(own) and all(axes[k][1] == d for k, d in zip(own, shape, strict=True)):
            return _placed(source, own, len(axes))
    first = len(axes) - len(shape)
    if index and first >= 0 and all(
            (isinstance(i, n.Var) and names.get(i.name) == first + p and axes[first + p][1] == d) or (d == 1 and build.is_const(i, 0))
            for p, (i, d) in enumerate(zip(index, shape, strict=True))):
        return source  # its axes stand where broadcasting looks for them
    return build.call("pick", source, *(_tile(i, axes) for i in index))


def canonical_tile(e: n.Expr) -> n.Expr:
    """`e` with new axes pushed to the leaves; `e` itself where it is not elementwise. Worked out once for each node."""
    return once(e, "_canonical_tile", lambda: _canonical_tile(e)) if shape_of(e.type) else e


def _canonical_tile(e: n.Expr) -> n.Expr:
    shape = shape_of(e.type)
    axes = [(n.Var(f"%{k}", I32), extent) for k, extent in enumerate(shape)]
    try:
        made = tile(element(e, [build.const(0) if d == 1 else v for v, d in axes]), axes)
    except NotElementwise:
        return e
    if all(d == 1 for d in shape) and _picks(made) > _picks(e):
        return e  # a name would be taken apart only to be put together
    return made if made.type == e.type else e


def _picks(e: n.Expr) -> int:
    return sum(isinstance(x, n.Call) and x.fn == "pick" for x in walk(e))
