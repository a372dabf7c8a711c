"""The form that two spellings of one thread's program share: what a language must name, and another need not, has no name of its own here.

Every step keeps what the program computes: an array that is filled where it is declared and never written again is a value; a loop of one turn is its body; a
copy between places that are read and written as they stand is a load and a store.
"""
from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.visit import substitute, transform, walk


def thread_form(p: n.Program) -> n.Program:
    """The program in that form."""
    return replace(p, kernels=tuple(replace(k, body=_block(k.body)) for k in p.kernels))


def _block(body: n.Block) -> n.Block:
    out: list[n.Stmt] = []
    rest = list(body)
    while rest:
        s = rest.pop(0)
        if (once := _once(s)) is not None:
            rest = [*once, *rest]
            continue
        if isinstance(s, n.Copy):
            s = _stored(s)
        if isinstance(s, n.Alloc) and (seen := _filled(s, rest)) is not None:
            s, rest = seen
        match s:
            case n.For():
                s = replace(s, body=_block(s.body))
            case n.While():
                s = replace(s, body=_block(s.body))
            case n.If():
                s = replace(s, then=_block(s.then), orelse=_block(s.orelse))
            case _:
                pass
        out.append(s)
    return tuple(out)


def _once(s: n.Stmt) -> n.Block | None:
    """The body of a loop of one turn."""
    if not isinstance(s, n.For) or s.kind not in ("serial", "unroll"):
        return None
    lo, hi, step = (int_value(x) for x in (s.lo, s.hi, s.step))
    if lo is None or hi is None or step is None or not lo < hi <= lo + step or any(isinstance(x, n.Jump) for b in s.body for x in walk(b)):
        return None
    return tuple(substitute(b, {s.var.name: s.lo}) for b in s.body)


def _stored(s: n.Copy) -> n.Stmt:
    """A synchronous copy as the store of what is loaded."""
    if s.via not in ("plain", "vec") or s.signal is not None or s.grouped or s.attrs:
        return s
    return n.Store(s.dst, s.src, s.mask, s.clip, origin=s.origin)


def _filled(s: n.Alloc, rest: list[n.Stmt]) -> tuple[n.Let, list[n.Stmt]] | None:
    """A private array that holds what it is declared with as a value, and what follows with elements of it; None for one that is written again, viewed, or
    read at places that are no numbers."""
    b, value = s.buffer, s.init
    if value is None or b.space != "register" or len(b.shape) != 1:
        return None
    count = int_value(b.shape[0])
    reads = 0
    for t in rest:
        for x in walk(t):
            if isinstance(x, (n.Store, n.View)) and _at(x).buffer == b or isinstance(x, n.Copy) and b in (x.dst.buffer, x.src.at.buffer):
                return None
            if isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer == b for a in x.args):
                return None
            if isinstance(x, n.Region) and x.buffer == b:
                reads += 1
            if isinstance(x, n.Load) and x.at.buffer == b and (x.mask is not None or x.clip or x.cache or not _known(x.at, count)):
                return None
    loads = sum(isinstance(x, n.Load) and x.at.buffer == b for t in rest for x in walk(t))
    if loads != reads:
        return None
    name = n.Var(b.name, value.type)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.at.buffer == b:
            index = new.at.index
            return name if not index or isinstance(index[0], n.Span) else build.call("pick", name, index[0])
        return new
    return n.Let((b.name,), value, origin=s.origin), [transform(t, leave) for t in rest]


def _at(x: n.Store | n.View) -> n.Region:
    return x.at


def _known(at: n.Region, count: int | None) -> bool:
    """Whether a place is the whole array, or one element by its number."""
    if not at.index:
        return True
    (index,) = at.index
    if isinstance(index, n.Span):
        return int_value(index.lo) == 0 and index.extent == count
    return int_value(index) is not None
