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
from kir.ir import nodes as n
from kir.ir.build import call


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
    """A loop or branch of all threads (its own blocks empty); `inner` are the items of its blocks, `touches` those of its head."""

    of: n.For | n.If | n.While
    inner: tuple[Items, ...]
    touches: frozenset[Touch] = frozenset()


Items = Sequence["Unit | Nest"]
Pending = frozenset[Touch]


def joined(items: Items, may_be_one: Callable[[str, str], bool], wait: str = "barrier") -> n.Block:
    """The statements of all items, with the barriers that they need (`wait` is the instruction)."""
    return _joined(items, frozenset(), may_be_one, wait)[0]


def _joined(items: Items, pending: Pending, may_be_one: Callable[[str, str], bool], wait: str) -> tuple[n.Block, Pending]:
    out: list[n.Stmt] = []
    for item in items:
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
                out.append(replace(item.of, body=body))
    return tuple(out), pending
