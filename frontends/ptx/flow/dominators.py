"""Which blocks come before which on every way, and the loops among them (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from kir.base.dataclass import dataclass

from .blocks import EXIT, Block


@dataclass
class Flow:
    """The graph of blocks: `order` is a reverse postorder and `rank` the place in it; `above` the immediate dominator; `loops` the blocks of each
    loop by its head."""

    blocks: Sequence[Block]
    order: list[int] = field(default_factory=list)
    rank: dict[int, int] = field(default_factory=dict)
    before: dict[int, list[int]] = field(default_factory=dict)
    above: dict[int, int] = field(default_factory=dict)
    loops: dict[int, frozenset[int]] = field(default_factory=dict)
    reducible: bool = True

    def dominates(self, a: int, b: int) -> bool:
        """Whether every way to `b` goes through `a`."""
        while self.rank[b] > self.rank[a]:
            b = self.above[b]
        return a == b

    def is_back(self, a: int, b: int) -> bool:
        """Whether the jump from `a` to `b` goes back."""
        return b != EXIT and a != EXIT and self.rank[b] <= self.rank[a]


def flow_of(blocks: Sequence[Block]) -> Flow:
    """The graph of a kernel's blocks, in which the first is entered; EXIT is a node of it."""
    f = Flow(blocks)
    seen: set[int] = set()
    post: list[int] = []
    stack: list[tuple[int, list[int]]] = [(0, [*reversed(blocks[0].next)])]
    seen.add(0)
    while stack:
        k, left = stack[-1]
        if not left:
            post.append(k)
            stack.pop()
            continue
        to = left.pop()
        if to not in seen:
            seen.add(to)
            stack.append((to, [] if to == EXIT else [*reversed(blocks[to].next)]))
    f.order = post[::-1]
    if EXIT in f.order:  # last, whatever leads there
        f.order.remove(EXIT)
        f.order.append(EXIT)
    f.rank = {k: i for i, k in enumerate(f.order)}
    f.before = {k: [] for k in f.order}
    for k in f.order:
        for to in () if k == EXIT else blocks[k].next:
            f.before[to].append(k)
    _dominators(f)
    for k in f.order:
        for to in () if k == EXIT else blocks[k].next:
            if f.is_back(k, to):
                f.reducible = f.reducible and f.dominates(to, k)
    if f.reducible:
        _loops(f)
    return f


def _dominators(f: Flow) -> None:
    f.above = {0: 0}
    changed = True
    while changed:
        changed = False
        for k in f.order[1:]:
            ready = [p for p in f.before[k] if p in f.above]
            found = ready[0]
            for p in ready[1:]:
                a, b = p, found
                while a != b:
                    while f.rank[a] > f.rank[b]:
                        a = f.above[a]
                    while f.rank[b] > f.rank[a]:
                        b = f.above[b]
                found = a
            if f.above.get(k) != found:
                f.above[k] = found
                changed = True


def _loops(f: Flow) -> None:
    held: dict[int, set[int]] = {}
    for k in f.order:
        for to in () if k == EXIT else f.blocks[k].next:
            if f.is_back(k, to):
                inside = held.setdefault(to, {to})
                left = [k]
                while left:
                    x = left.pop()
                    if x not in inside:
                        inside.add(x)
                        left += f.before[x]
    f.loops = {k: frozenset(v) for k, v in held.items()}


__all__ = ["Flow", "flow_of"]
