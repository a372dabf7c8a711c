"""Two programs of threads, one written and read back, in a form in which places and numbers are spelled alike, by what they do."""
from __future__ import annotations

from dataclasses import replace
from functools import partial

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.rebuild.padded_rows import with_padding
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import transform, walk
from kir.learning.corpus.roundtrip.same.numbers import of_value
from kir.learning.corpus.roundtrip.same.places import inside, of_place, within_rows
from kir.learning.corpus.roundtrip.same.traces import same_trace

WRITTEN = 16
"""Bytes at a multiple of which each array of shared memory that the backend writes begins, be less asked of it or not."""


def same_thread(a: n.Program, b: n.Program) -> bool:
    """Whether two programs of threads are one, up to what a language must name and another need not; the second may have zeros where the first says nothing."""
    try:
        b = plain_form(_aligned_as(a, b))
        full = filled(a)
        return same_trace(plain_form(a), b) or (full != a and same_trace(plain_form(full), b))
    except KirError:  # there is no such form of them
        return False


def plain_form(p: n.Program) -> n.Program:
    """The program with its places and numbers alone in the form that spellings share."""
    return replace(p, kernels=tuple(replace(k, body=_numbers(_rows(_small(within_rows(tuple(transform(s, of_place) for s in k.body)))))) for k in p.kernels))


def _aligned_as(a: n.Program, b: n.Program) -> n.Program:
    """The second program with shared arrays that begin at multiples of what those of the first, in their order, do, where it promises more."""
    first, second = ([x.buffer for k in p.kernels for s in k.body for x in walk(s) if isinstance(x, n.Alloc) and x.buffer.space == "shared"] for p in (a, b))
    if len(first) != len(second) or any(max(y.align, WRITTEN) < x.align for x, y in zip(first, second, strict=True)):
        return b
    held = {y: replace(y, align=x.align) for x, y in zip(first, second, strict=True) if x.align != y.align}
    made: n.Program = transform(b, lambda _, x: held.get(x, x) if isinstance(x, n.Buffer) else x) if held else b
    return made


def _small(body: n.Block) -> n.Block:
    """The block with quotients and remainders of a thread's number by no less than there are threads as what they are."""
    out: list[n.Stmt] = []
    for s in body:
        s = inside(s, _small)
        count = int_value(s.hi) if isinstance(s, n.For) and s.kind == "thread" and build.is_const(s.lo, 0) else None
        if isinstance(s, n.For) and count is not None:
            s = replace(s, body=tuple(transform(t, partial(_quotient, s.var, count)) for t in s.body))
        out.append(s)
    return tuple(out)


def _quotient(var: n.Var, count: int, old: n.Node, new: n.Node) -> n.Node:
    by = int_value(new.b) if isinstance(new, n.Binary) and new.op in ("floordiv", "mod") and new.a == var else None
    if by is None or by < count:
        return new
    return build.const(0, dtype_of(var.type)) if isinstance(new, n.Binary) and new.op == "floordiv" else var


def _rows(body: n.Block) -> n.Block:
    """The block with shared arrays as long as they are in memory, be all of their rows used or not; the only place of an axis of one is 0."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Region) and new.buffer.space in ("register", "shared") and len(new.index) > 1:
            index = (build.const(0) if build.is_const(d, 1) and isinstance(i, n.Expr) and not isinstance(i.type, TileType) else i
                     for i, d in zip(new.index, new.buffer.shape, strict=True))
            return replace(new, index=tuple(index))
        if not isinstance(new, n.Buffer) or new.space != "shared" or (shape := with_padding(new)) == tuple(int_value(d) for d in new.shape):
            return new
        return replace(new, shape=tuple(build.const(d) for d in shape), strides=None, layout=None)
    return tuple(transform(s, leave) for s in body)


def filled(p: n.Program) -> n.Program:
    """The program with zeros where a load that a mask leaves out says nothing."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.mask is not None and new.other is None:
            return replace(new, other=build.const(0, dtype_of(new.type)))
        return new
    made: n.Program = transform(p, leave)
    return made


def _numbers(body: n.Block) -> n.Block:
    """The block with its values in the form that spellings of one value share."""
    return tuple(transform(s, of_value) for s in body)
