"""Small private arrays that are records, not places: those whose elements are named by numbers, and which are copied and chosen between as wholes, become a
scalar for each element. Part of what `raised` does to a program that was read."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kir.analysis.normal.private.registers import begun
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import DType, TileType, dtype_of, shape_of
from kir.ir.visit import children, statements, transform, updated, walk

MOST = 4
"""Elements of a record."""


def in_parts(k: n.Kernel) -> n.Kernel:
    """The kernel with a scalar for each element of its records."""
    arrays = {s.buffer.name: s.buffer for s in statements(k.body) if isinstance(s, n.Alloc) and _is_record(s)}
    for s in statements(k.body):
        if isinstance(s, n.View):
            arrays.pop(s.at.buffer.name, None)
    if not arrays or any(isinstance(s, (n.Opaque, n.Roles)) for s in statements(k.body)):
        return k
    held = _Held(arrays, {s.names[0]: s for s in statements(k.body) if isinstance(s, n.Let) and len(s.names) == 1 and _length(s.value) is not None})
    held.settle(k.body)
    whole = {x.at.buffer.name for s in statements(k.body) for x in walk(s) if isinstance(x, n.Load) and not x.at.index}
    whole |= {s.at.buffer.name for s in statements(k.body) if isinstance(s, n.Store) and not s.at.index}
    if not held.arrays.keys() & whole:
        return k
    taken = set(bound_names(k.body)) | {a.name for a in k.grid}
    split = _Split(held, taken)
    return updated(k, body=begun(split.block(k.body), frozenset(b.name for parts in split.scalars.values() for b in parts)))


def _is_record(s: n.Alloc) -> bool:
    b = s.buffer
    size = build.int_value(b.shape[0]) if len(b.shape) == 1 else None
    return b.space == "register" and size is not None and 2 <= size <= MOST and b.layout is None and b.strides is None and (
        s.init is None or isinstance(s.init, n.Const) or isinstance(s.init.type, TileType))


def _length(e: n.Expr) -> int | None:
    shape = shape_of(e.type) if isinstance(e.type, (DType, TileType)) else ()
    return shape[0] if len(shape) == 1 and isinstance(shape[0], int) and 2 <= shape[0] <= MOST else None


def _number(r: n.Region) -> int | None:
    """The number that names an element, where one does."""
    return build.int_value(r.index[0]) if len(r.index) == 1 and isinstance(r.index[0], n.Expr) else None


@dataclass
class _Held:
    """Arrays and names of tiles that are records, for all that is known."""

    arrays: dict[str, n.Buffer]
    lets: dict[str, n.Let]

    def settle(self, block: n.Block) -> None:
        """Leaves out what is used otherwise, until nothing is."""
        every = list(statements(block))
        while True:
            gone = {name for s in every for name in self._otherwise(s)}
            if not gone & (self.arrays.keys() | self.lets.keys()):
                return
            for name in gone:
                self.arrays.pop(name, None)
                self.lets.pop(name, None)

    def is_record(self, e: n.Expr) -> bool:
        """Whether a tile is one whose elements can be written out."""
        match e:
            case n.Load():
                return not e.at.index and e.at.buffer.name in self.arrays and e.mask is None
            case n.Var():
                return e.name in self.lets
            case n.Select():
                return isinstance(e.cond.type, DType) and self.is_record(e.a) and self.is_record(e.b)
            case n.Call(fn="vec"):
                return e.of is None and _length(e) == len(e.args)
            case n.Call(fn="broadcast", args=(n.Expr() as x, *_)):
                return e.of is None and isinstance(x.type, DType) and _length(e) is not None
            case _:
                return False

    def _otherwise(self, s: n.Stmt) -> Iterator[str]:
        """Names that a statement uses in another way than a record's."""
        match s:
            case n.Alloc() if s.buffer.name in self.arrays:
                if s.init is not None and not isinstance(s.init, n.Const) and not self.is_record(s.init):
                    yield s.buffer.name
                    yield from self._named(s.init)
                elif s.init is not None:
                    yield from self._in_value(s.init)
            case n.Store() if s.at.buffer.name in self.arrays:
                if s.mask is not None or s.clip or (not s.at.index and not self.is_record(s.value) and not isinstance(s.value.type, DType)) or (
                        s.at.index and not self._numbered(s.at)):
                    yield s.at.buffer.name
                    yield from self._named(s.value)
                else:
                    yield from self._in_value(s.value)
            case n.Let() if s.names[0] in self.lets:
                if not self.is_record(s.value):
                    yield s.names[0]
                yield from self._in_value(s.value)
            case _:
                for x in children(s):
                    if isinstance(x, n.Expr) and _length(x) is not None and self.is_record(x):
                        yield from self._named(x)
                    elif not isinstance(x, n.Stmt):
                        yield from self._in_value(x)

    def _numbered(self, r: n.Region) -> bool:
        at = _number(r)
        return at is not None and 0 <= at < (build.int_value(r.buffer.shape[0]) or 0)

    def _in_value(self, x: n.Node) -> Iterator[str]:
        """Names that stand in a value in another way than in a record, or as an element of one."""
        match x:
            case n.Load() if x.at.buffer.name in self.arrays and x.at.index:
                if not self._numbered(x.at) or x.mask is not None:
                    yield x.at.buffer.name
            case n.Load() | n.Var() | n.Select() | n.Call() if isinstance(x, n.Expr) and _length(x) is not None and self.is_record(x):
                parts: tuple[n.Node, ...] = (x.cond, x.a, x.b) if isinstance(x, n.Select) else x.args if isinstance(x, n.Call) else ()
                for part in parts:
                    yield from self._in_value(part)
            case n.Call(fn="pick", args=(n.Expr() as whole, n.Const())) if self.is_record(whole):
                yield from self._in_value(whole)
            case n.Load() | n.Var():
                yield from self._named(x)
            case _:
                for y in children(x):
                    if isinstance(y, n.Expr) and _length(y) is not None and self.is_record(y):
                        yield from self._named(y)
                    elif isinstance(y, n.Region) and y.buffer.name in self.arrays:
                        yield y.buffer.name
                    elif not isinstance(y, n.Buffer):
                        yield from self._in_value(y)

    def _named(self, x: n.Node) -> Iterator[str]:
        for y in walk(x):
            if isinstance(y, n.Region) and y.buffer.name in self.arrays:
                yield y.buffer.name
            if isinstance(y, n.Var) and y.name in self.lets:
                yield y.name


class _Split:
    def __init__(self, held: _Held, taken: set[str]) -> None:
        self.held, self.taken = held, taken
        self.scalars = {name: [self._scalar(name, b, k) for k in range(build.int_value(b.shape[0]) or 0)] for name, b in held.arrays.items()}
        self.names = {name: [n.Var(self._fresh(f"{name}_{k}"), dtype_of(s.value.type)) for k in range(_length(s.value) or 0)]
                      for name, s in held.lets.items() if isinstance(s.value.type, TileType)}

    def _fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _scalar(self, name: str, b: n.Buffer, k: int) -> n.Buffer:
        return replace(b, name=self._fresh(f"{name}_{k}"), shape=())

    def part(self, e: n.Expr, k: int) -> n.Expr:
        """An element of a record."""
        match e:
            case n.Load():
                return n.Load(n.Region(self.scalars[e.at.buffer.name][k]))
            case n.Var():
                return self.names[e.name][k]
            case n.Select():
                return build.select(self.value(e.cond), self.part(e.a, k), self.part(e.b, k))
            case n.Call(fn="vec") if isinstance(x := e.args[k], n.Expr):
                return self.value(x)
            case n.Call(fn="broadcast") if isinstance(x := e.args[0], n.Expr):
                return self.value(x)
            case _:
                assert isinstance(e.type, DType)
                return self.value(e)

    def value(self, e: n.Expr) -> n.Expr:
        """A value with elements of records in place of picks and places."""
        made = self._inside(e)
        assert isinstance(made, n.Expr)
        return made

    def _inside(self, x: n.Node) -> n.Node:
        def leave(old: n.Node, new: n.Node) -> n.Node:
            match old:
                case n.Call(fn="pick", args=(n.Expr() as of, n.Const(value=int() as k))) if self.held.is_record(of):
                    return self.part(of, k)
                case n.Load() if old.at.buffer.name in self.scalars and old.at.index:
                    return n.Load(n.Region(self.scalars[old.at.buffer.name][_number(old.at) or 0]))
                case _:
                    return new
        made: n.Node = transform(x, leave, lambda y: not isinstance(y, n.Buffer))
        return made

    def block(self, block: n.Block) -> n.Block:
        return tuple(made for s in block for made in self.statement(s))

    def statement(self, s: n.Stmt) -> Iterator[n.Stmt]:
        match s:
            case n.Alloc() if s.buffer.name in self.scalars:
                for k, b in enumerate(self.scalars[s.buffer.name]):
                    yield n.Alloc(b, None if s.init is None else self.part(s.init, k), label=None if k else s.label, origin=s.origin)
            case n.Store() if s.at.buffer.name in self.scalars and s.at.index:
                at = self.scalars[s.at.buffer.name][_number(s.at) or 0]
                yield n.Store(n.Region(at), self.value(s.value), label=s.label, origin=s.origin)
            case n.Store() if s.at.buffer.name in self.scalars:
                own = self.scalars[s.at.buffer.name]
                values = [self.part(s.value, k) for k in range(len(own))]
                if any(isinstance(x, n.Region) and x.buffer in own and x.buffer != own[k] for k, v in enumerate(values) for x in walk(v)):
                    kept = [n.Var(self._fresh(f"{b.name}_kept"), b.dtype) for b in own]
                    yield from (n.Let((v.name,), e, origin=s.origin) for v, e in zip(kept, values, strict=True))
                    values = list(kept)
                for k, (b, e) in enumerate(zip(own, values, strict=True)):
                    yield n.Store(n.Region(b), e, label=None if k else s.label, origin=s.origin)
            case n.Let() if s.names[0] in self.names:
                for k, v in enumerate(self.names[s.names[0]]):
                    yield n.Let((v.name,), self.part(s.value, k), label=None if k else s.label, origin=s.origin)
            case n.For():
                yield updated(self._around(replace(s, body=())), body=self.block(s.body))
            case n.If():
                yield updated(self._around(replace(s, then=(), orelse=())), then=self.block(s.then), orelse=self.block(s.orelse))
            case n.While():
                yield updated(self._around(replace(s, body=())), body=self.block(s.body))
            case _:
                yield self._around(s)

    def _around(self, s: n.Stmt) -> n.Stmt:
        made = self._inside(s)
        assert isinstance(made, n.Stmt)
        return made
