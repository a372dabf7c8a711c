"""Which memory statements read and write, and when two pieces of code may be exchanged.

Regions are compared dimension by dimension under the facts of a place; what cannot be told apart is taken to overlap. Tensors of the
program do not alias one another unless their attribute `alias` names the other; views alias what they show.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import Literal

from kir.analysis.facts import Facts
from kir.analysis.order import at_most, less
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, I64, DType
from kir.ir.visit import blocks_of, children, names_read, once, once_for_each, own_nodes, statements, walk

ANYWHERE = "*"
"""The buffer name of an access that may touch any memory."""


@dataclass(frozen=True)
class Access:
    """One access: to the place `at` (None: anywhere in the buffer, or with buffer `*` anywhere at all). `sync` marks an operation that
    orders others (a barrier, an atomic, a wait)."""

    kind: Literal["read", "write", "update"]
    buffer: str
    at: n.Region | None
    sync: bool = False

    @property
    def writes(self) -> bool:
        return self.kind != "read"


def accesses(item: n.Node) -> tuple[Access, ...]:
    """All accesses of an expression or statement, those of inner statements included."""
    return once(item, "_accesses", lambda: tuple(_accesses(item)))


def _accesses(item: n.Node) -> Iterator[Access]:
    match item:
        case n.Load():
            yield Access("read", item.at.buffer.name, item.at)
        case n.Store():
            yield Access("write", item.at.buffer.name, item.at)
        case n.Copy():
            yield Access("write", item.dst.buffer.name, item.dst, item.grouped or item.signal is not None)
            if item.signal is not None:
                yield Access("update", item.signal.buffer.name, item.signal, True)
        case n.Mma():
            yield Access("update", item.acc.buffer.name, item.acc, item.pending)
        case n.Call():
            yield from _of_call(item)
        case n.View():
            return
        case n.Opaque():
            yield from (Access("read", name, None) for name in item.reads)
            yield from (Access("write", name, None, True) for name in item.writes)
        case n.Hole():
            yield from (Access("read", r.buffer.name, r) for r in item.reads)
            yield from (Access("write", r.buffer.name, r) for r in item.writes)
        case n.Alloc() if item.init is not None:
            yield Access("write", item.buffer.name, None)
        case _:
            pass
    for child in children(item):
        if not isinstance(child, n.Buffer):
            yield from _accesses(child)


def _of_call(c: n.Call) -> Iterator[Access]:
    row = None if c.of is not None else instruction(c.fn)
    places = [a for a in c.args if isinstance(a, n.Region)]
    if row is None:
        yield from (Access("update", r.buffer.name, r, True) for r in places)
        if not places:
            yield Access("update", ANYWHERE, None, True)
        return
    if row.is_pure:
        yield from (Access("read", r.buffer.name, r) for r in places)
        return
    yield from (Access("update", r.buffer.name, r, row.effect in ("sync", "async")) for r in places)
    if row.effect in ("sync", "async"):
        yield Access("update", ANYWHERE, None, True)


def buffers_written(block: n.Block) -> set[str]:
    """Names of the buffers that statements may write, `*` among them where that may be any: text that is not understood writes what it says
    that it does, a place that is given to a call may be written."""
    return set().union(*(once(s, "_written", partial(_written, s)) for s in block))


def may_write(block: n.Block, buffer: str) -> bool:
    """Whether statements may write a buffer."""
    return not buffers_written(block).isdisjoint((buffer, ANYWHERE))


def _written(s: n.Stmt) -> set[str]:
    inner = [x for block in blocks_of(s) for x in block]
    out = buffers_written(tuple(inner))
    for x in own_nodes(s) if inner else walk(s):
        match x:
            case n.Store():
                out.add(x.at.buffer.name)
            case n.Copy():
                out.add(x.dst.buffer.name)
            case n.Mma():
                out.add(x.acc.buffer.name)
            case n.Call():
                out |= {a.buffer.name for a in x.args if isinstance(a, n.Region)}
            case n.Opaque():
                out |= set(x.writes)
            case n.Hole():
                out |= {r.buffer.name for r in x.writes}
            case _:
                pass
    return out


def _roots(program: n.Program) -> dict[str, str]:
    """For each name that is another name for some memory, the name after it on the way to the one that stands for all of them."""
    roots: dict[str, str] = {}

    def join(a: str, b: str) -> None:
        a, b = _root(roots, a), _root(roots, b)
        if a != b:
            roots[a] = b

    for p in program.params:
        other = dict(p.attrs).get("alias")
        if isinstance(other, str) and not isinstance(p.of, DType):
            join(p.name, other)
    for k in program.kernels:
        for s in statements(k.body):
            if isinstance(s, n.View):
                join(s.buffer.name, s.at.buffer.name)
    for f in program.functions:
        for x in f.params:
            if isinstance(x, n.Buffer):
                join(x.name, ANYWHERE)
    return roots


def _root(roots: Mapping[str, str], name: str) -> str:
    while name in roots:
        name = roots[name]
    return name


class Aliases:
    """Which names of a program may mean the same memory."""

    def __init__(self, program: n.Program) -> None:
        self._root = once(program, "_alias_roots", lambda: _roots(program))

    def _find(self, name: str) -> str:
        return _root(self._root, name)

    def may_be_one(self, a: str, b: str) -> bool:
        """Whether two buffer names may share memory."""
        return a == b or ANYWHERE in (self._find(a), self._find(b)) or self._find(a) == self._find(b)

    def aliased(self, read: Iterable[str], written: Iterable[str]) -> set[str]:
        """Those names of what is read that may mean memory that is written, under whatever name; what opaque text may write is left out."""
        changed = [b for b in written if b != ANYWHERE]
        return {a for a in read if any(self.may_be_one(a, b) for b in changed)}


def may_overlap(a: n.Region | None, b: n.Region | None, known: Facts) -> bool:
    """Whether two places of one buffer may have an element in common; None is the whole buffer. Both are read with the same values
    of all variables."""
    if a is None or b is None or not a.index or not b.index or a.buffer.name != b.buffer.name:
        return True
    return not any(_apart(x, y, known) for x, y in zip(a.index, b.index, strict=True))


def must_overlap(a: n.Region, b: n.Region, known: Facts) -> bool:
    """Whether two places, read with the same values of all variables, are known to have an element in common."""
    def met(x: n.Expr | n.Span, y: n.Expr | n.Span) -> bool:
        first, second = _ends(x), _ends(y)
        return first is not None and second is not None and first[0].type == second[0].type and at_most(
            known.expanded(first[0]), known.expanded(second[1]), known) and at_most(known.expanded(second[0]), known.expanded(first[1]), known)
    return a.buffer.name == b.buffer.name and (not a.index or not b.index or all(met(x, y) for x, y in zip(a.index, b.index, strict=True)))


def _ends(i: n.Expr | n.Span) -> tuple[n.Expr, n.Expr] | None:
    """First and last index of one dimension; None for a gather."""
    if not isinstance(i, n.Span):
        return (i, i) if isinstance(i.type, DType) else None
    if i.step != 1:
        return None
    extent = build.const(i.extent, i.lo.type) if isinstance(i.extent, int) and isinstance(i.lo.type, DType) else i.extent
    if not isinstance(extent, n.Expr) or extent.type != i.lo.type:
        return None
    return i.lo, build.sub(build.add(i.lo, extent), 1)


def _apart(x: n.Expr | n.Span, y: n.Expr | n.Span, known: Facts) -> bool:
    first, second = _ends(x), _ends(y)
    if first is None or second is None or first[0].type != second[0].type:
        return False
    first, second = (known.expanded(first[0]), known.expanded(first[1])), (known.expanded(second[0]), known.expanded(second[1]))
    return less(first[1], second[0], known) or less(second[1], first[0], known)


def covers(outer: n.Region, inner: n.Region, known: Facts) -> bool:
    """Whether every element of `inner` is known to be one of `outer`."""
    if outer.buffer.name != inner.buffer.name:
        return False
    if not outer.index or outer == inner:
        return True
    if not inner.index:
        return False
    for x, y in zip(outer.index, inner.index, strict=True):
        a, b = _ends(x), _ends(y)
        if x == y:
            continue
        if a is None or b is None or a[0].type != b[0].type:
            return False
        if not (at_most(known.expanded(a[0]), known.expanded(b[0]), known) and at_most(known.expanded(b[1]), known.expanded(a[1]), known)):
            return False
    return True


def independent(first: n.Block, second: n.Block, known: Facts, aliases: Aliases) -> bool:
    """Whether two pieces of code that stand side by side may be exchanged: no name of one is used in the other, nothing that one
    writes is touched by the other, and neither orders anything."""
    if _bound(first) & _used(second) or _bound(second) & _used(first):
        return False
    ours, theirs = [a for s in first for a in accesses(s)], [a for s in second for a in accesses(s)]
    if any(isinstance(x, n.Jump) for s in (*first, *second) for x in statements((s,))):
        return False
    return not any(conflict(a, b, known, aliases) for a in ours for b in theirs)


def conflict(a: Access, b: Access, known: Facts, aliases: Aliases) -> bool:
    """Whether the order of two accesses may matter."""
    if a.sync or b.sync:
        return True
    if not (a.writes or b.writes) or not aliases.may_be_one(a.buffer, b.buffer):
        return False
    return a.buffer != b.buffer or may_overlap(a.at, b.at, known)


def _bound(block: n.Block) -> set[str]:
    out: set[str] = set()
    for s in block:
        match s:
            case n.Let():
                out |= set(s.names)
            case n.Alloc() | n.View():
                out.add(s.buffer.name)
            case _:
                pass
    return out


def _used(block: n.Block) -> set[str]:
    return {name for s in block for name in names_read(s)} | {x.name for s in block for x in walk(s) if isinstance(x, n.Buffer)}


def written(block: n.Block) -> frozenset[str]:
    """Names of the buffers that a block may write, `*` among them for any."""
    return frozenset(a.buffer for s in block for a in accesses(s) if a.writes)


def is_invariant(e: n.Expr, loop: n.For, aliases: Aliases) -> bool:
    """Whether an expression has one value over all iterations of a loop: it names nothing that the body binds, and reads nothing that
    the body may write."""
    inner = {loop.var.name} | {name for s in statements(loop.body) for name in _bound((s,))}
    inner |= {s.var.name for s in statements(loop.body) if isinstance(s, n.For)}
    if names_read(e) & inner:
        return False
    wrote = written(loop.body)
    return not any(aliases.may_be_one(a.buffer, w) for a in accesses(e) for w in wrote)


def uses(block: n.Block) -> Mapping[str, int]:
    """How often each value is read in a block (once for each reference)."""
    out: dict[str, int] = {}
    for s in block:
        for x in walk(s):
            if isinstance(x, n.Var):
                out[x.name] = out.get(x.name, 0) + 1
    return out


def _wide(e: n.Expr) -> n.Expr:
    """A place as a sum of 64 bits."""
    match e:
        case n.Cast(x=x, dtype=dtype) if dtype == I64 and x.type == I32:
            return _wide(x)
        case n.Binary(op="add" | "sub" as op):
            return (build.add if op == "add" else build.sub)(_wide(e.a), _wide(e.b))
        case _:
            return build.cast(e, I64)


@once_for_each
def offset_tables(program: n.Program) -> frozenset[str]:
    """Inputs of whole numbers of which a kernel reads one and the next: where a part of another tensor begins, and where it ends."""
    tables = {p.name for p in program.params if isinstance(p.of, n.Buffer) and p.role == "in" and p.of.dtype.is_integer and p.of.shape}
    found = set()
    for k in program.kernels:
        read: dict[str, list[n.Expr]] = {}
        for x in walk(k):
            if isinstance(x, n.Load) and x.at.buffer.name in tables and x.at.index and isinstance(x.at.index[-1], n.Expr):
                read.setdefault(x.at.buffer.name, []).extend([_wide(x.at.index[-1])] if x.at.index[-1].type in (I32, I64) else [])
        found |= {name for name, at in read.items() for a, b in combinations(dict.fromkeys(at), 2)
                  if abs(build.int_value(build.sub(a, b)) or 0) == 1}
    return frozenset(found)
