"""Rows that wrap: `A[row % M, k]` where what is computed from rows past the end is never stored is `A[row, k]` clipped.

Triton kernels keep loads inside a tensor by taking the row modulo its extent, so that rows past the end repeat earlier ones; their
results are masked off at the store. Here the elements that such a load gives past the end are followed: through elementwise operations,
products (rows of a, columns of b) and reductions over other axes, to stores that leave out exactly the rows past the end. Where an
element could reach anything else, the load stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import NotElementwise, element, element_region, tile
from kir.analysis.facts import Facts
from kir.analysis.normal.narrow import after
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType, shape_of
from kir.ir.visit import statements, transform, walk

Mark = tuple[str, int]
"""A let or private buffer and an axis of it, along which elements past the end are arbitrary."""


def unwrapped(program: n.Program, k: n.Kernel) -> n.Kernel:
    """The kernel with such loads clipped."""
    for _ in range(16):
        found = _candidate(program, k)
        if found is None:
            return k
        name, made = found
        k = _replaced(k, name, made)
    return k


def _axes(e: n.Expr) -> list[tuple[n.Var, int | n.Expr]]:
    return [(n.Var(f"%{i}", I32), d) for i, d in enumerate(shape_of(e.type))]


def _candidate(program: n.Program, k: n.Kernel) -> tuple[str, n.Expr] | None:
    """A let of a load whose index wraps along an axis, and the load clipped instead, where that is sound."""
    definitions = {
        s.names[0]: s.value
        for s in statements(k.body)
        if isinstance(s, n.Let)
        and len(s.names) == 1
        and isinstance(s.value.type, TileType)
        and not any(isinstance(x, n.Load) for x in walk(s.value))
    }
    for s in statements(k.body):
        if not (isinstance(s, n.Let) and isinstance(s.value, n.Load) and s.value.at.index and s.value.at.buffer.space == "global"):
            continue
        axes = _axes(s.value)
        try:
            scalar = element(s.value, [v for v, _ in axes], definitions)
        except NotElementwise:
            continue
        assert isinstance(scalar, n.Load)
        index = [i for i in scalar.at.index if isinstance(i, n.Expr)]
        for d, i in enumerate(index):
            if not (isinstance(i, n.Binary) and i.op in ("mod", "trem") and i.b == scalar.at.buffer.shape[d]):
                continue
            own = [a for a, (v, _) in enumerate(axes) if v.name in {x.name for x in walk(i.a) if isinstance(x, n.Var)}]
            if len(own) != 1 or not _not_negative(program, k, i.a, axes):
                continue
            if not _harmless(k, s.names[0], own[0], i.a, i.b, axes):
                continue
            changed = [*index[:d], i.a, *index[d + 1 :]]
            other = scalar.other if scalar.other is not None else build.const(0, scalar.at.buffer.dtype)
            made = tile(n.Load(n.Region(scalar.at.buffer, tuple(changed)), scalar.mask, other, True, scalar.cache), axes)
            made = _bounded(made, axes)
            if made.type == s.value.type:
                return s.names[0], made
    return None


def _bounded(e: n.Expr, axes: list[tuple[n.Var, int | n.Expr]]) -> n.Expr:
    """A clipped load without the parts of its mask that say what its bounds say."""
    from kir.analysis.bounds import conjuncts, says_bound

    if not isinstance(e, n.Load) or e.mask is None:
        return e
    scalar = element(e, [v for v, _ in axes])
    assert isinstance(scalar, n.Load)
    left: n.Expr | None = None
    for atom in conjuncts(scalar.mask):
        if not any(says_bound(atom, i, d) for i, d in zip(scalar.at.index, e.at.buffer.shape, strict=True) if isinstance(i, n.Expr)):
            left = atom if left is None else build.logical_and(left, atom)
    made = tile(replace(scalar, mask=left), axes)
    return made if made.type == e.type else e


def _not_negative(program: n.Program, k: n.Kernel, e: n.Expr, axes: list[tuple[n.Var, int | n.Expr]]) -> bool:
    known, grid = Facts.at(program, (k.name,)), {a.name: a.extent for a in k.grid}
    for s in k.body:
        known = after(known, s, grid)
    for v, d in axes:
        known = known.ranging(v, build.const(0), build.const(d) if isinstance(d, int) else d)
    lo = known.domain(e).lo
    return lo is not None and lo >= 0


def _replaced(k: n.Kernel, name: str, value: n.Expr) -> n.Kernel:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        return replace(new, value=value) if isinstance(new, n.Let) and new.names == (name,) else new

    made: n.Kernel = transform(k, leave)
    return made


# --------------------------------------------------------------------------------------- following the elements past the end


def _harmless(k: n.Kernel, name: str, axis: int, row: n.Expr, extent: n.Expr, axes: list[tuple[n.Var, int | n.Expr]]) -> bool:
    marks: set[Mark] = {(name, axis)}
    position = axes[axis][0]
    while True:
        before = len(marks)
        for s in statements(k.body):
            if not _follow(s, marks, position, row, extent):
                return False
        if len(marks) == before:
            return True


def _reads(e: n.Node, marks: set[Mark]) -> bool:
    names = {m[0] for m in marks}
    return any((isinstance(x, n.Var) and x.name in names) or (isinstance(x, n.Load) and x.at.buffer.name in names) for x in walk(e))


def _follow(s: n.Stmt, marks: set[Mark], position: n.Var, row: n.Expr, extent: n.Expr) -> bool:
    """Mark what a statement makes of marked values; False where they reach something that matters."""
    match s:
        case n.Let(names=(name,)):
            found = _marked_axes(s.value, marks)
            if found is None:
                return False
            marks |= {(name, a) for a in found}
            return True
        case n.Alloc():
            found = set() if s.init is None else _marked_axes(s.init, marks)
            if found is None:
                return False
            marks |= {(s.buffer.name, a) for a in found}
            return True
        case n.Mma() if s.acc.buffer.space == "fragment" and not s.acc.index and len(shape_of(s.a.type)) == 2:
            a, b = _marked_axes(s.a, marks), _marked_axes(s.b, marks)
            if a is None or b is None or 1 in a or 0 in b:
                return False
            marks |= {(s.acc.buffer.name, x) for x in a | b}
            return True
        case n.Store() if s.at.buffer.space in ("fragment", "register") and not s.at.index and s.mask is None:
            found = _marked_axes(s.value, marks)
            if found is None:
                return False
            marks |= {(s.at.buffer.name, x) for x in found}
            return True
        case n.Store():
            if any(_reads(x, marks) for x in s.at.index) or (s.mask is not None and _reads(s.mask, marks)):
                return False
            found = _marked_axes(s.value, marks)
            return found is not None and all(_left_out(s, a, position, row, extent) for a in found)
        case n.For():
            return not any(_reads(x, marks) for x in (s.lo, s.hi, s.step))
        case n.If() | n.While():
            return not _reads(s.cond, marks)
        case _:
            return not _reads(s, marks)


def _marked_axes(e: n.Expr, marks: set[Mark]) -> set[int] | None:
    """Axes of a value along which elements past the end are arbitrary; None where they are mixed with others."""
    if not _reads(e, marks):
        return set()
    rank = len(shape_of(e.type))

    def inner(*parts: n.Expr) -> set[int] | None:
        out: set[int] = set()
        for x in parts:
            found = _marked_axes(x, marks)
            if found is None:
                return None
            out |= {a + rank - len(shape_of(x.type)) for a in found}
        return out

    match e:
        case n.Var():
            return {a for m, a in marks if m == e.name}
        case n.Load() if not e.at.index and e.at.buffer.space in ("fragment", "register"):
            return {a for m, a in marks if m == e.at.buffer.name}
        case n.Unary() | n.Cast():
            return inner(e.x)
        case n.Binary():
            return inner(e.a, e.b)
        case n.Select():
            return inner(e.cond, e.a, e.b)
        case n.Call(fn="trans", args=(n.Expr() as x, *order)):
            found = _marked_axes(x, marks)
            perm = [int(o.value) for o in order if isinstance(o, n.Const)]
            return None if found is None else {perm.index(a) for a in found}
        case n.Call(fn="expand", args=(n.Expr() as x,)):
            found, at = _marked_axes(x, marks), int(dict(e.attrs)["axis"])
            return None if found is None else {a + (a >= at) for a in found}
        case n.Call(fn="reduce", args=(n.Expr() as x,)) if "combine" not in dict(e.attrs) and not dict(e.attrs).get("keep"):
            found, at = _marked_axes(x, marks), int(dict(e.attrs)["axis"])
            return None if found is None or at in found else {a - (a > at) for a in found}
        case n.Call() if e.of is None and instruction(e.fn).level == "element" and not instruction(e.fn).effect:
            return inner(*(a for a in e.args if isinstance(a, n.Expr)))
        case _:
            return None


def _left_out(s: n.Store, axis: int, position: n.Var, row: n.Expr, extent: n.Expr) -> bool:
    """Whether a store leaves out exactly the elements past the end along an axis of its value."""
    from kir.analysis.bounds import bare, conjuncts, says_bound
    from kir.ir.visit import substitute

    axes = _axes(n.Load(s.at))
    if axis >= len(axes):
        return False
    own = substitute(row, {position.name: axes[axis][0]})
    try:
        at = element_region(s.at, [v for v, _ in axes])
        if s.clip:
            for i, d in zip(at.index, at.buffer.shape, strict=True):
                if isinstance(i, n.Expr) and build.is_const(build.sub(bare(i), bare(own)), 0) and d == extent:
                    return True
        if s.mask is not None:
            shape = shape_of(s.mask.type)
            index: list[n.Expr] = [build.const(0) if d == 1 else v for (v, _), d in zip(axes[len(axes) - len(shape) :], shape, strict=True)]
            return any(says_bound(atom, own, extent) for atom in conjuncts(element(s.mask, index)))
    except NotElementwise:
        return False
    return False
