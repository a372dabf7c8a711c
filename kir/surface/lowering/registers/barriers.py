"""Where the threads of a CTA must wait for each other: one rule.

A kernel's body as items: a `Unit` is code in which no thread waits, with the shared and global memory that it touches; a `Nest` is a loop
or branch that all threads run alike. A barrier goes before each item that may touch a place which another thread may have touched since
the last barrier, one of the two writing; nowhere else. Two touches are by one thread when both are of the thread's own elements of one
place, distributed alike (`key`). Around a loop, what its body left pending comes in again.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.build import call
from kir.ir.visit import walk


@dataclass(frozen=True)
class Touch:
    """A touch of a buffer: `kind` is read, write or atomic; `key` names the place when it is the thread's own, else it is empty."""

    buffer: str
    kind: str
    key: tuple[object, ...] = ()

    def clashes(self, other: Touch, may_be_one: Callable[[str, str], bool]) -> bool:
        """Whether two threads may touch one place with these, at least one of them writing."""
        if self.kind == other.kind and self.kind in ("read", "atomic"):
            return False
        if self.buffer == other.buffer:
            return not self.key or self.key != other.key
        return may_be_one(self.buffer, other.buffer)


@dataclass(frozen=True)
class Unit:
    """Statements of a thread. What they touch is done for all threads at their end where they are `settled`."""

    block: n.Block
    touches: frozenset[Touch] = frozenset()
    settled: bool = False


@dataclass(frozen=True)
class Nest:
    """A loop or branch of all threads (its own blocks empty); `inner` are the items of its blocks, `touches` those of its head. Where it is `apart`, its
    head is not the same for all of them, and none may wait in it for the others."""

    of: n.For | n.If | n.While
    inner: tuple[Items, ...]
    touches: frozenset[Touch] = frozenset()
    apart: bool = False


Items = Sequence["Unit | Nest"]
Pending = frozenset[Touch]


def joined(items: Items, may_be_one: Callable[[str, str], bool], wait: str = "barrier") -> n.Block:
    """The statements of all items, with the barriers that they need (`wait` is the instruction)."""
    return _joined(items, frozenset(), may_be_one, wait)[0]


def _joined(items: Items, pending: Pending, may_be_one: Callable[[str, str], bool], wait: str) -> tuple[n.Block, Pending]:
    out: list[n.Stmt] = []
    for item in items:
        if isinstance(item, Nest) and item.apart and pending:
            pending = _before(item, pending, out, may_be_one, wait)
        if any(a.clashes(b, may_be_one) for a in item.touches for b in pending):
            out.append(n.Eval(call(wait)))
            pending = frozenset()
        if isinstance(item, Unit):
            out.extend(item.block)
            if not item.settled:
                pending |= item.touches
            continue
        pending |= item.touches
        match item.of:
            case n.If():
                then, first = _joined(item.inner[0], pending, may_be_one, wait)
                orelse, second = _joined(item.inner[1], pending, may_be_one, wait)
                pending = first | second
                _none_waits(item, then + orelse, wait)
                out.append(replace(item.of, then=then, orelse=orelse))
            case n.For() | n.While():
                while True:
                    body, after = _joined(item.inner[0], pending, may_be_one, wait)
                    again = any(a.clashes(b, may_be_one) for a in item.touches for b in after) if isinstance(item.of, n.While) else False
                    if again:
                        body, after = (*body, n.Eval(call(wait))), frozenset(item.touches)
                    if after | pending == pending:
                        break
                    pending |= after
                _none_waits(item, body, wait)
                out.append(replace(item.of, body=body))
    return tuple(out), pending


def _none_waits(nest: Nest, body: n.Block, wait: str) -> None:
    """Raises KirError where threads would wait in a branch or loop for such as are not in it."""
    if nest.apart and any(isinstance(x, n.Call) and x.fn == wait for s in body for x in walk(s)):
        raise error("KIR-B030", "threads would have to wait for one another where only some warps are", origin=nest.of.origin,
                    needs="the same statements for every warp, or two loops over warps with the exchange between them")


def _before(nest: Nest, pending: Pending, out: list[n.Stmt], may_be_one: Callable[[str, str], bool], wait: str) -> Pending:
    """What is pending at a branch or loop that only some threads take: nothing, after a barrier, where it would be waited for inside."""
    inside = {t for items in nest.inner for t in _touches(items)}
    if any(a.clashes(b, may_be_one) for a in inside for b in pending):
        out.append(n.Eval(call(wait)))
        return frozenset()
    return pending


def _touches(items: Items) -> frozenset[Touch]:
    return frozenset().union(*(item.touches if isinstance(item, Unit) else item.touches.union(*map(_touches, item.inner)) for item in items))
