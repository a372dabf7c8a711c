"""Buffers that need not be buffers: values of fragments and registers that no branch or loop changes become lets; what nobody reads goes.

A buffer is promoted when it is only read and written whole and every write stands in the block that declares it. Calls with effects,
loads, and everything that an `opaque` may see stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.rebuild.localize import localized, positions
from kir.ir.visit import buffers_named, children, names_mentioned, substitute, transform, updated, walk


def promoted(body: n.Block, taken: frozenset[str] = frozenset()) -> n.Block:
    """The block with such buffers as lets and dead values dropped. `taken` are names that new lets may not have."""
    body = localized(body)
    names = set(taken).union(*map(names_mentioned, body))
    out = _Promotion(body, names).block(body)
    return without_dead(without_snapshots(out))


def without_snapshots(block: n.Block) -> n.Block:
    """The block without lets that only name the value of a private buffer which nothing in the block writes afterwards."""
    out: list[n.Stmt] = []
    where = positions(block)
    named: dict[str, n.Expr] = {}
    for k, s in enumerate(block):
        s = substitute(s, named)
        match s:
            case n.Let(names=(name,)) if (buffer := reads_whole(s.value)) is not None and not any(
                    _writes(block[j], buffer.name) for j in where[buffer.name] if j > k):
                named[name] = s.value
                continue
            case n.For() | n.While():
                s = updated(s, body=without_snapshots(s.body))
            case n.If():
                s = updated(s, then=without_snapshots(s.then), orelse=without_snapshots(s.orelse))
            case _:
                pass
        out.append(s)
    return tuple(out)


def _writes(s: n.Stmt, name: str) -> bool:
    """Whether a statement may change a buffer: any mention of it but a whole read."""

    def mentioned(x: n.Node) -> bool:
        if reads_whole(x) is not None:
            return False
        if isinstance(x, n.Region) and x.buffer.name == name:
            return True
        return any(mentioned(c) for c in children(x) if name in buffers_named(c))

    return name in buffers_named(s) and mentioned(s)


def reads_whole(e: n.Node) -> n.Buffer | None:
    """The private buffer whose whole value an expression is."""
    if isinstance(e, n.Load) and not e.at.index and e.mask is None and e.at.buffer.space in ("fragment", "register"):
        return e.at.buffer
    return None


class _Promotion:
    def __init__(self, body: n.Block, names: set[str]) -> None:
        self.names = names
        self.taken: dict[str, int] = {}
        self.refused: set[str] = set()
        self.stores: dict[str, int] = {}
        for s in body:
            self._scan(s)

    def _scan(self, x: n.Node) -> None:
        """Count whole stores of each buffer; any other mention than a whole read refuses it."""
        match x:
            case n.Load() if reads_whole(x) is not None:
                if x.other is not None:
                    self._scan(x.other)
                return
            case n.Store() if not x.at.index and x.mask is None and not x.clip and x.at.buffer.space in ("fragment", "register"):
                self.stores[x.at.buffer.name] = self.stores.get(x.at.buffer.name, 0) + 1
                self._scan(x.value)
                return
            case n.Alloc():
                if x.init is not None:
                    self._scan(x.init)
                for d in x.buffer.shape:
                    self._scan(d)
                return
            case n.Region():
                self.refused.add(x.buffer.name)
            case n.Copy():
                self.refused.add(x.src.at.buffer.name)
            case n.Opaque():
                self.refused |= {*x.reads, *x.writes}
            case _:
                pass
        for c in children(x):
            self._scan(c)

    def fresh(self, name: str) -> str:
        k = self.taken.get(name, 0)  # all before it are taken for good
        made = f"{name}_{k}" if k else name
        while made in self.names:
            k += 1
            made = f"{name}_{k}"
        self.names.add(made)
        self.taken[name] = k
        return made

    def block(self, body: n.Block) -> n.Block:
        candidates: set[str] = set()
        here, where = Counter(t.at.buffer.name for t in body if isinstance(t, n.Store)), positions(body)
        for s in body:
            if isinstance(s, n.Alloc) and s.buffer.space in ("fragment", "register") and self.refused.isdisjoint((s.buffer.name, "*")):
                named = [body[k] for k in where[s.buffer.name]]
                if here[s.buffer.name] == self.stores.get(s.buffer.name, 0) and (s.init is not None or _set_first(s, named)):
                    candidates.add(s.buffer.name)
        current: dict[str, n.Expr] = {}
        begun: set[str] = set()
        first: set[str] = set()
        out: list[n.Stmt] = []
        for s in body:
            s = _substituted(s, current)
            if isinstance(s, n.Alloc) and s.buffer.name in candidates:
                current.pop(s.buffer.name, None)
                begun.add(s.buffer.name)
                first.add(s.buffer.name)
                if s.init is not None:
                    self._bind(s, s.buffer, s.init, current, first, out)
            elif isinstance(s, n.Store) and s.at.buffer.name in begun:
                self._bind(s, s.at.buffer, s.value, current, first, out)
            else:
                out.append(self._inner(s))
        return tuple(out)

    def _bind(
        self, s: n.Alloc | n.Store, buffer: n.Buffer, value: n.Expr, current: dict[str, n.Expr], first: set[str], out: list[n.Stmt]
    ) -> None:
        target = n.Load(n.Region(buffer)).type
        if value.type != target:
            value = build.broadcast(value, target)
        if isinstance(value, (n.Const, n.Var)):
            current[buffer.name] = value
            return
        name = buffer.name if buffer.name in first else self.fresh(buffer.name)
        first.discard(buffer.name)
        out.append(n.Let((name,), value, s.label, s.origin))
        current[buffer.name] = n.Var(name, target)

    def _inner(self, s: n.Stmt) -> n.Stmt:
        match s:
            case n.For() | n.While():
                return updated(s, body=self.block(s.body))
            case n.If():
                return updated(s, then=self.block(s.then), orelse=self.block(s.orelse))
            case n.Roles():
                return updated(s, roles=tuple(updated(r, body=self.block(r.body)) for r in s.roles))
            case _:
                return s


def _set_first(alloc: n.Alloc, named: list[n.Stmt]) -> bool:
    """Whether what first names a buffer, of all that does in a block, writes all of it: what is read before is whatever stood there, and needs the buffer."""
    name = alloc.buffer.name
    first = next((s for s in named if not (isinstance(s, n.Alloc) and s.buffer.name == name)), None)
    return first is None or (isinstance(first, n.Store) and first.at.buffer.name == name and name not in buffers_named(first.value))


def _substituted(s: n.Stmt, values: Mapping[str, n.Expr]) -> n.Stmt:
    if values.keys().isdisjoint(buffers_named(s)):
        return s

    def leave(old: n.Node, new: n.Node) -> n.Node:
        buffer = reads_whole(new)
        return values[buffer.name] if buffer is not None and buffer.name in values else new

    result: n.Stmt = transform(s, leave, lambda x: not values.keys().isdisjoint(buffers_named(x)))
    return result


# --------------------------------------------------------------------------------------------------------------- dead values


def without_dead(body: n.Block) -> n.Block:
    """The block without pure lets, buffers and empty branches that nothing depends on. A body with an `opaque` keeps everything."""
    if any(isinstance(x, n.Opaque) for s in body for x in _statements(s)):
        return body
    while True:
        used: set[str] = set()
        for s in body:
            _uses(s, used)
        views = [(s.buffer.name, s.at.buffer.name) for t in body for s in _statements(t) if isinstance(s, n.View) and _private(s.at.buffer)]
        while any((a in used) != (b in used) for a, b in views):  # a view and what it shows are one memory
            used |= {x for pair in views if not used.isdisjoint(pair) for x in pair}
        swept = _swept(body, used)
        if swept == body:
            return body
        body = swept


def _statements(s: n.Stmt) -> Iterator[n.Stmt]:
    yield s
    match s:
        case n.For() | n.While():
            inner: tuple[n.Stmt, ...] = s.body
        case n.If():
            inner = (*s.then, *s.orelse)
        case n.Roles():
            inner = tuple(x for r in s.roles for x in r.body)
        case _:
            inner = ()
    for x in inner:
        yield from _statements(x)


def _private(b: n.Buffer) -> bool:
    return b.space in ("fragment", "register")


def _fills_private(s: n.Copy) -> bool:
    """Whether a copy does nothing but fill a private buffer, at once."""
    return _private(s.dst.buffer) and s.signal is None and not s.grouped


def _uses(s: n.Stmt, used: set[str]) -> None:
    """Names that a statement depends on; writing a private buffer is no use of it."""

    def expr(e: n.Node | None) -> None:
        if e is not None:
            for x in walk(e):
                if isinstance(x, (n.Var, n.Buffer)):
                    used.add(x.name)

    def skip_own(e: n.Node | None, own: str) -> None:
        if e is not None:
            for x in walk(e):
                if isinstance(x, (n.Var, n.Buffer)) and x.name != own:
                    used.add(x.name)

    match s:
        case n.Store() if _private(s.at.buffer):
            for part in (*s.at.index, s.value, s.mask):
                skip_own(part, s.at.buffer.name)
        case n.Mma() if _private(s.acc.buffer):
            for part in (*s.acc.index, s.a, s.b):
                skip_own(part, s.acc.buffer.name)
        case n.Copy() if _fills_private(s):
            for part in (*s.dst.index, s.src, s.mask):
                skip_own(part, s.dst.buffer.name)
        case n.Alloc():
            expr(s.init)
            for d in s.buffer.shape:
                expr(d)
        case n.Let():
            expr(s.value)
        case n.For():
            for part in (s.lo, s.hi, s.step):
                expr(part)
            for _, v in s.attrs:
                if isinstance(v, str):
                    used.add(v)
            for x in s.body:
                _uses(x, used)
        case n.While():
            expr(s.cond)
            for x in s.body:
                _uses(x, used)
        case n.If():
            expr(s.cond)
            for x in (*s.then, *s.orelse):
                _uses(x, used)
        case n.Roles():
            for r in s.roles:
                for x in r.body:
                    _uses(x, used)
        case n.View():
            for seen in (*s.at.index, s.fill) if _private(s.at.buffer) else (s.at, s.fill):
                expr(seen)
        case _:
            expr(s)


def pure(e: n.Expr) -> bool:
    """Whether evaluating an expression has no effect."""
    rows = table()
    return all(not isinstance(x, n.Call) or (x.of is None and rows[x.fn].is_pure) for x in walk(e))


def _swept(body: n.Block, used: set[str]) -> n.Block:
    out: list[n.Stmt] = []
    for s in body:
        match s:
            case n.Let() if not (set(s.names) & used) and pure(s.value):
                continue
            case n.Alloc() if s.buffer.name not in used and _private(s.buffer) and (s.init is None or pure(s.init)):
                continue
            case n.Store() if _private(s.at.buffer) and s.at.buffer.name not in used and pure(s.value):
                continue
            case n.Mma() if _private(s.acc.buffer) and s.acc.buffer.name not in used:
                continue
            case n.Copy() if _fills_private(s) and s.dst.buffer.name not in used:
                continue
            case n.View() if s.buffer.name not in used:
                continue
            case n.For():
                inner = _swept(s.body, used)
                if inner:
                    out.append(updated(s, body=inner))
            case n.If():
                then, orelse = _swept(s.then, used), _swept(s.orelse, used)
                if not then and not orelse:
                    continue
                if not then:
                    out.append(replace(s, cond=build.invert(s.cond), then=orelse, orelse=()))
                else:
                    out.append(updated(s, then=then, orelse=orelse))
            case n.While():
                inner = _swept(s.body, used)
                out.append(updated(s, body=inner))
            case _:
                out.append(s)
    return tuple(out)
