"""Blocks as nested branches and loops again (after Ramsey: Beyond Relooper, 2022, for a language without jumps to labels).

The blocks that a block dominates stand inside of it or behind it: one that several jumps lead to stands behind, in reverse postorder, so that most
jumps to it are nothing at all. What jumps over others to get there sets a flag, and they are left out while it is set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.surface.ptx.form.syntax import Name, Place

from .blocks import EXIT, Block
from .dominators import Flow


@dataclass(frozen=True)
class Code:
    """The instructions of a block."""

    block: int


@dataclass(frozen=True)
class Branch:
    """What runs where the condition of a block's jump holds, and what else."""

    block: int
    cond: tuple[Name | Place, bool]
    then: tuple[Item, ...]
    orelse: tuple[Item, ...]


@dataclass(frozen=True)
class Loop:
    """Repeated until it is left."""

    body: tuple[Item, ...]
    head: int


@dataclass(frozen=True)
class Leave:
    """`break`, `continue` or `return`."""

    how: str


@dataclass(frozen=True)
class Flag:
    """Says that block `to` comes next, whatever stands between; or, where not `up`, that it has been reached."""

    to: int
    up: bool = True


@dataclass(frozen=True)
class When:
    """Runs `body` where one of the flags is set (`up`), or none of them."""

    flags: tuple[int, ...]
    up: bool
    body: tuple[Item, ...]


Item = Code | Branch | Loop | Leave | Flag | When


@dataclass(frozen=True)
class _Around:
    """The innermost loop: its head, its blocks, and what comes after it."""

    head: int
    inside: frozenset[int]
    follow: int


@dataclass
class _Structure:
    flow: Flow
    blocks: Sequence[Block]
    below: dict[int, list[int]] = field(default_factory=dict)
    merges: set[int] = field(default_factory=set)

    def place(self, k: int, then: int, around: _Around | None) -> tuple[list[Item], set[int]]:
        """Everything that `k` dominates; `then` is what comes behind it. Also the blocks whose flags it leaves set."""
        f = self.flow
        if k == EXIT:
            return ([] if then == EXIT else [Leave("return")]), set()
        if k not in f.loops or (around is not None and around.head == k):
            behind = [c for c in self.below.get(k, ()) if c in self.merges and self._inside(c, around)]
            return self.row(lambda to: self.plain(k, to, around), behind, then, around)
        inside = f.loops[k]
        behind = sorted((d for x in inside for d in self.below.get(x, ()) if d not in inside and self._inside(d, around)), key=f.rank.__getitem__)

        def loop(to: int) -> tuple[list[Item], set[int]]:
            body, up = self.place(k, k, _Around(k, inside, to))
            out: list[Item] = [Loop(tuple(body), k)]
            left = set()
            for target in sorted(up, key=f.rank.__getitem__):
                if around is not None and target == around.head:
                    out.append(When((target,), True, (Flag(target, False), Leave("continue"))))
                elif target == to or target in behind:
                    left.add(target)
                elif around is not None and target not in around.inside:
                    out.append(When((target,), True, (Leave("break"),)))
                    left.add(target)
                else:
                    left.add(target)
            return out, left

        return self.row(loop, behind, then, around)

    def _inside(self, k: int, around: _Around | None) -> bool:
        return around is None or k in around.inside

    def row(self, first: Callable[[int], tuple[list[Item], set[int]]], behind: list[int], then: int,
            around: _Around | None) -> tuple[list[Item], set[int]]:
        """Something, and what stands behind it in order, each left out where a flag says that another comes next."""
        out, up = first(behind[0] if behind else then)
        for at, k in enumerate(behind):
            made, more = self.place(k, behind[at + 1] if at + 1 < len(behind) else then, around)
            if k in up:
                made = [Flag(k, False), *made]
            over = tuple(sorted((t for t in up if t != k and (around is None or t in around.inside or t == around.follow)), key=self.flow.rank.__getitem__))
            out += [When(over, False, tuple(made))] if over else made
            up = (up - {k}) | more
        return out, up

    def plain(self, k: int, then: int, around: _Around | None) -> tuple[list[Item], set[int]]:
        """A block and its jump."""
        b = self.blocks[k]
        out: list[Item] = [Code(k)]
        if b.cond is None or b.taken == b.after:
            made, up = self.arm(k, b.after, then, around)
            return out + made, up
        taken, first = self.arm(k, b.taken, then, around)
        after, second = self.arm(k, b.after, then, around)
        if taken or after:
            out.append(Branch(k, b.cond, tuple(taken), tuple(after)))
        return out, first | second

    def arm(self, k: int, to: int, then: int, around: _Around | None) -> tuple[list[Item], set[int]]:
        """A jump: what it leads to where it alone does, or how to get there."""
        f = self.flow
        if to == then:
            return [], set()
        if to == EXIT:
            return [Leave("break" if around is not None and around.follow == EXIT else "return")], set()
        if not f.is_back(k, to) and f.above[to] == k and to not in self.merges and self._inside(to, around):
            return self.place(to, then, around)
        if around is not None and to == around.head:
            return [Leave("continue")], set()
        if around is not None and to == around.follow:
            return [Leave("break")], set()
        if around is not None and to not in around.inside:
            return [Flag(to), Leave("break")], {to}
        return [Flag(to)], {to}


def structured(flow: Flow) -> tuple[Item, ...]:
    """The blocks of a kernel, nested. The graph must be reducible."""
    s = _Structure(flow, flow.blocks)
    for k in flow.order[1:]:
        s.below.setdefault(flow.above[k], []).append(k)
        if sum(not flow.is_back(p, k) for p in flow.before[k]) > 1:
            s.merges.add(k)
    for k in s.below:
        s.below[k].sort(key=flow.rank.__getitem__)
    out, up = s.place(0, EXIT, None)
    assert not up - {EXIT}
    return tuple(out)


__all__ = ["Branch", "Code", "Flag", "Item", "Leave", "Loop", "When", "structured"]
