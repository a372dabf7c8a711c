"""Proposals for raising that are counted out rather than read off: collective calls over the values at hand, copies, atomics."""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kir.analysis.elements import NotElementwise, element, element_region, tile
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const
from kir.ir.types import I32, TileType, dtype_of, shape_of

OPS = ("sum", "max", "min", "prod", "xor", "or", "and", "max_nan", "min_nan")
WITHOUT_START = ("max_nan", "min_nan")


def collectives(program: n.Program, rest: Sequence[n.Stmt], near: Sequence[n.Var]) -> Iterator[n.Let]:
    """Collective calls over values in registers (`near`) whose results the registers declared next may be."""
    declared = list(itertools.takewhile(lambda s: isinstance(s, n.Alloc), rest))
    names = [s.buffer.name for s in declared if isinstance(s, n.Alloc) and s.init is None]
    if not names:
        names = [s.buffer.name for s in rest[:3] if isinstance(s, n.Alloc) and s.init is None][:1]
    final = {b: x.names[0] for x in rest[:30] if isinstance(x, n.Let) and isinstance(x.value, n.Load) for b in (x.value.at.buffer.name,)}
    for x in near:
        rank = len(shape_of(x.type))
        for axis in range(rank):
            yield from _of_one(program, names, final, x, axis, near)
            yield from _of_pairs(program, names, final, x, axis, near)
    for x in near[:1] if names else ():
        if len(shape_of(x.type)) == 1:
            yield n.Let((names[0],), build.call("histogram", x))
    for a, b in itertools.product(near, near) if names else ():
        first, second = shape_of(a.type), shape_of(b.type)
        for axis in range(len(first)):
            if dtype_of(a.type) == dtype_of(b.type) and len(first) == len(second) and first[:axis] + first[axis + 1:] == second[:axis] + second[axis + 1:]:
                yield n.Let((names[0],), build.call("cat", a, b, axis=axis))


def _of_one(program: n.Program, names: Sequence[str], final: Mapping[str, str], x: n.Var, axis: int, near: Sequence[n.Var]) -> Iterator[n.Let]:
    dtype, scalar = dtype_of(x.type), len(shape_of(x.type)) == 1
    kind = [f.name for f in program.functions if len(f.params) == 2 and all(isinstance(p, n.Var) and p.of == dtype for p in f.params)]
    for name in names[:1]:
        for op in OPS:
            if dtype.is_float and op in ("xor", "or", "and"):
                continue
            yield n.Let((name,), build.call("scan", x, axis=axis, op=op))
            yield n.Let((name,), build.call("scan", x, axis=axis, op=op, reverse=True))
        for f in kind:
            yield n.Let((name,), build.call("scan", x, axis=axis, combine=f))
    for op in WITHOUT_START:
        yield from _reduced(names[:1], final, scalar, lambda name, op=op: build.call("reduce", x, axis=axis, op=op))
    for f in kind:
        yield from _reduced(names[:1], final, scalar, lambda name, f=f: build.call("reduce", x, axis=axis, combine=f))
    for op in ("argmax", "argmin"):
        yield from _reduced([*names[1:2], *names[:1]], final, scalar, lambda name, op=op: build.call("reduce", x, axis=axis, op=op))
    for i in near:
        if dtype_of(i.type).is_integer and len(shape_of(i.type)) == len(shape_of(x.type)) and names:
            yield n.Let((names[0],), build.call("gather", x, i, axis=axis))


def _reduced(names: Sequence[str], final: Mapping[str, str], scalar: bool, call: object) -> Iterator[n.Let]:
    assert callable(call)
    for name in names:
        if scalar and name in final:
            yield n.Let((final[name],), call(name))
        elif not scalar:
            yield n.Let((name,), call(name))
            made = call(name)
            assert isinstance(made, n.Call)
            yield n.Let((name,), replace(made, attrs=n.attrs(**{**dict(made.attrs), "keep": True})))


def _of_pairs(program: n.Program, names: Sequence[str], final: Mapping[str, str], x: n.Var, axis: int, near: Sequence[n.Var]) -> Iterator[n.Let]:
    """Calls over two values; the second may be the position along the axis."""
    if len(names) < 2:
        return
    shape = shape_of(x.type)
    axes = [n.Var(f"%{k}", I32) for k in range(len(shape))]
    position = build.broadcast(tile(axes[axis], list(zip(axes, shape, strict=True))), TileType(I32, shape))
    for y in (*near, position):
        if shape_of(y.type) != shape:
            continue
        for f in program.functions:
            kinds = [p.of for p in f.params if isinstance(p, n.Var)]
            if kinds != [dtype_of(x.type), dtype_of(y.type)] * 2:
                continue
            results = (names[0], names[1])
            if all(r in final for r in results) and len(shape) == 1:
                results = (final[names[0]], final[names[1]])
            for fn in ("reduce", "scan"):
                yield n.Let(results, build.call(fn, x, y, axis=axis, combine=f.name))


# ---------------------------------------------------------------------------------------------------------- copies and atomics

def leaf_of(s: n.Stmt, slots: dict[str, int] | None = None) -> tuple[n.Stmt, dict[str, int], n.Expr | None]:
    """The statement inside unrolled loops and a condition, those loops (outermost first), and the condition nearest to it."""
    slots = dict(slots or {})
    cond: n.Expr | None = None
    while True:
        match s:
            case n.If() if len(s.then) == 1 and not s.orelse:
                cond, s = s.cond, s.then[0]
            case n.For() if s.kind == "unroll" and is_const(s.lo, 0) and is_const(s.step, 1) and len(s.body) == 1 and int_value(s.hi):
                slots[s.var.name] = int_value(s.hi) or 1
                s = s.body[0]
            case _:
                return s, slots, cond


def copied(s: n.Copy, slots: dict[str, int]) -> tuple[n.Region, n.Load, dict[str, int], int] | None:
    """A copy of a vector as one of its elements: destination, source, loops, and the vector's width."""
    spans = [i for i in s.dst.index if isinstance(i, n.Span)]
    if not spans:
        return s.dst, s.src, slots, 1
    width = int_value(spans[0].extent)
    if len(spans) != 1 or width is None:
        return None
    v = n.Var("%v", I32)
    try:
        value = element(s.src, [v])
    except NotElementwise:
        return None
    assert isinstance(value, n.Load)
    return element_region(s.dst, [v]), value, {**slots, v.name: width}, width
