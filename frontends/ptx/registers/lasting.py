"""Registers whose values outlive the block that they are written in, and cannot be a name there: written in several blocks, or read where no name reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from kir.base.dataclass import dataclass

from ..flow.blocks import Block
from ..flow.dominators import Flow
from ..flow.structure import Branch, Code, Item, Loop, When
from ..uses import read, registers, written


@dataclass
class Uses:
    """Where registers are read and written, by block; and those that a block reads before it writes them."""

    read: dict[str, set[int]] = field(default_factory=dict)
    written: dict[str, set[int]] = field(default_factory=dict)
    early: set[str] = field(default_factory=set)
    guarded: set[str] = field(default_factory=set)
    """Those that a block may leave as they were."""


def uses_of(blocks: Sequence[Block]) -> Uses:
    """The uses in a kernel."""
    u = Uses()
    for k, b in enumerate(blocks):
        own: set[str] = set()
        here = {name for i in b.instructions for name in written(i)}
        for i in b.instructions:
            for name in read(i):
                u.read.setdefault(name, set()).add(k)
                if name in here and name not in own:
                    u.early.add(name)
            for name in written(i):
                u.written.setdefault(name, set()).add(k)
                if i.guard is not None and name not in own:
                    u.guarded.add(name)
                own.add(name)
        for name in registers(b.cond[0]) if b.cond is not None else ():
            u.read.setdefault(name, set()).add(k)
    return u


def lasting(flow: Flow, items: Sequence[Item]) -> frozenset[str]:
    """The registers that need a place of their own."""
    scope: dict[int, tuple[int, ...]] = {}
    count = [0]

    def visit(items: Sequence[Item], path: tuple[int, ...]) -> None:
        for x in items:
            match x:
                case Code():
                    scope[x.block] = path
                case Branch():
                    for arm in (x.then, x.orelse):
                        count[0] += 1
                        visit(arm, (*path, count[0]))
                case Loop() | When():
                    count[0] += 1
                    visit(x.body, (*path, count[0]))
                case _:
                    pass

    visit(items, ())
    u = uses_of(flow.blocks)
    out = set(u.early)
    for name, where in u.written.items():
        if len(where) > 1:
            out.add(name)
            continue
        at = next(iter(where))
        if name in u.guarded and any(at in inside for inside in flow.loops.values()):
            out.add(name)  # an earlier round may have written it
            continue
        path = scope[at]
        for k in u.read.get(name, ()):
            if k != at and (scope[k][:len(path)] != path or not flow.dominates(at, k)):
                out.add(name)
                break
    return frozenset(out)


__all__ = ["Uses", "lasting", "uses_of"]
