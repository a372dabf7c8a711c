"""What the threads of a CTA do side by side, and where they must wait for each other.

A kernel's body as items: a `Unit` runs without a rendezvous inside; a `Nest` is a loop or branch that all threads run alike, with items
inside. `with_barriers` puts a barrier before each unit that touches memory of the CTA which other threads may have touched since the
last one, and only there: later is not possible, and earlier is not needed.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kir.analysis.elements import split_affine
from kir.analysis.uniform import PRIVATE
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.visit import children, names_read, regions
from kir.rewrite.match.independence import separated
from kir.rewrite.match.thread_team import barrier

LEADER = ("leader",)


@dataclass(frozen=True)
class Unit:
    """Statements of a kernel, in which no thread waits. `alone`: only thread 0 runs them."""

    block: n.Block
    alone: bool = False


@dataclass(frozen=True)
class Nest:
    """A loop or branch of all threads; `inner` are the items of its blocks."""

    of: n.For | n.If
    inner: tuple[Items, ...]


Items = Sequence["Unit | Nest"]


@dataclass(frozen=True)
class Access:
    """A touch of a buffer: `kind` is read, write or atomic; `key` names the place when it is the thread's own, else it is empty."""

    buffer: str
    kind: str
    key: tuple[object, ...] = ()

    def clashes(self, other: Access) -> bool:
        """Whether two threads may touch one place with these, at least one of them writing."""
        if self.buffer != other.buffer or (self.kind == other.kind and self.kind in ("read", "atomic")):
            return False
        return not self.key or self.key != other.key


Pending = frozenset[Access]


def with_barriers(items: Items, t: n.Var) -> n.Block:
    """The statements of all items, with the barriers that they need."""
    return _rendered(items, t, frozenset())[0]


def _rendered(items: Items, t: n.Var, pending: Pending) -> tuple[n.Block, Pending]:
    out: list[n.Stmt] = []
    for item in items:
        head = item.block if isinstance(item, Unit) else _head(item.of)
        found = accesses(head, t, isinstance(item, Unit) and item.alone)
        if any(a.clashes(b) for a in found for b in pending):
            out.append(barrier())
            pending = frozenset()
        pending |= found
        if isinstance(item, Unit):
            out.extend(item.block)
        elif isinstance(item.of, n.For):
            apart = _of_each_iteration(item.of)
            while True:
                body, after = _rendered(item.inner[0], t, pending)
                after = _as_seen_later(after, {item.of.var.name, *bound_names(item.of.body)})
                again = frozenset(a for a in after if a.buffer not in apart)
                if again | pending == pending:
                    break
                pending |= again
            pending |= after
            out.append(replace(item.of, body=body))
        else:
            then, first = _rendered(item.inner[0], t, pending)
            orelse, second = _rendered(item.inner[1], t, pending)
            pending = first | second
            out.append(replace(item.of, then=then, orelse=orelse))
    return tuple(out), pending


def _as_seen_later(pending: Pending, bound: set[str]) -> Pending:
    """The touches of an iteration as later ones see them: a place that moves with the iteration may be another thread's in another one."""
    return frozenset(replace(a, key=()) if any(names_read(i) & bound for i in a.key if isinstance(i, n.Expr)) else a for a in pending)


def _of_each_iteration(loop: n.For) -> set[str]:
    """The buffers of which no iteration of a loop touches a place that another one does."""
    touched = dict[str, list[n.Region]]()
    for r in (r for s in loop.body for r in regions(s) if r.buffer.space not in PRIVATE):
        touched.setdefault(r.buffer.name, []).append(r)
    inner = set(bound_names(loop.body))
    return {name for name, places in touched.items() if all(r.index for r in places) and separated(places, loop.var, inner)}


def _head(s: n.For | n.If) -> n.Block:
    """What a nest itself evaluates."""
    return (replace(s, body=()),) if isinstance(s, n.For) else (replace(s, then=(), orelse=()),)


def accesses(block: n.Block, t: n.Var, alone: bool = False) -> Pending:
    """The touches of memory that other threads see."""
    inside = set(bound_names(block))
    out: set[Access] = set()

    def key(r: n.Region) -> tuple[object, ...]:
        if alone:
            return LEADER
        index = [i for i in r.index if isinstance(i, n.Expr)]
        if len(index) != len(r.index) or any(names_read(i) & inside for i in index):
            return ()
        own = [p for i in index if t.name in names_read(i) and (p := split_affine(i, t)) is not None]
        return tuple(r.index) if any(build.int_value(step) for _, step in own) else ()

    def add(r: n.Region, kind: str) -> None:
        if r.buffer.space not in PRIVATE:
            out.add(Access(r.buffer.name, kind, key(r)))

    def visit(x: n.Node) -> None:
        match x:
            case n.Buffer():
                return
            case n.Load():
                add(x.at, "read")
            case n.Store():
                add(x.at, "write")
            case n.Call():
                for a in x.args:
                    if isinstance(a, n.Region):
                        add(a, "atomic" if x.fn.startswith("atomic_") else "write")
            case _:
                pass
        for y in children(x):
            visit(y)
    for s in block:
        visit(s)
    return frozenset(out)


