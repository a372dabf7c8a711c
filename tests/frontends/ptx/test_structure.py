"""Jumps as nested branches and loops: random graphs of blocks take the same way as before."""
from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

from kir.frontends.ptx.flow.blocks import EXIT, Block
from kir.frontends.ptx.flow.dominators import flow_of
from kir.frontends.ptx.flow.structure import Branch, Code, Flag, Item, Leave, Loop, When, structured
from kir.surface.ptx.form.syntax import Name

STEPS = 80


class Ended(Exception):
    """Enough steps were taken."""


def drawn(r: random.Random) -> list[Block]:
    """A graph in which mostly what follows comes next, as compilers write it."""
    count = r.randint(2, 9)
    out = []
    for k in range(count):
        after = k + 1 if k + 1 < count else EXIT
        taken = r.choice([EXIT, *range(count), *range(k + 1, count), *range(k + 1, count)])
        out.append(Block((), (Name("p"), r.random() < 0.5) if r.random() < 0.75 else None, taken, after if r.random() < 0.7 else taken))
    return [b if b.cond is not None else Block((), None, b.after, b.after) for b in out]


def holds(k: int, visit: int, seed: int) -> bool:
    """Whether the predicate of a block's jump holds when it is there for the n-th time."""
    return random.Random(f"{k} {visit} {seed}").random() < 0.5


class Way:
    """The blocks that a run comes by."""

    def __init__(self, blocks: Sequence[Block], seed: int) -> None:
        self.blocks, self.seed = blocks, seed
        self.seen: list[int] = []
        self.flags: set[int] = set()

    def at(self, k: int) -> None:
        """A block."""
        self.seen.append(k)
        if len(self.seen) >= STEPS:
            raise Ended

    def test(self, k: int) -> bool:
        """The predicate of its jump."""
        return holds(k, self.seen.count(k), self.seed)

    def plain(self) -> list[int]:
        """Along the jumps."""
        k = 0
        with suppress(Ended):
            while k != EXIT:
                self.at(k)
                b = self.blocks[k]
                k = b.after if b.cond is None or self.test(k) != b.cond[1] else b.taken
        return self.seen

    def nested(self, items: Sequence[Item]) -> list[int]:
        """Along branches and loops."""
        with suppress(Ended):
            self.run(items)
        return self.seen

    def run(self, items: Sequence[Item]) -> str:
        """How the items are left: "" at their end."""
        for x in items:
            left = self.one(x)
            if left:
                return left
        return ""

    def one(self, x: Item) -> str:
        """One item."""
        match x:
            case Code():
                self.at(x.block)
            case Branch():
                return self.run(x.then if self.test(x.block) == x.cond[1] else x.orelse)
            case Loop():
                while True:
                    left = self.run(x.body)
                    if left == "return":
                        return left
                    if left == "break":
                        return ""
            case Leave():
                return x.how
            case Flag():
                (self.flags.add if x.up else self.flags.discard)(x.to)
            case When():
                if bool(self.flags & set(x.flags)) == x.up:
                    return self.run(x.body)
        return ""


def test_random_graphs_take_the_same_way() -> None:
    nested = 0
    for seed in range(700):
        blocks = drawn(random.Random(seed))
        flow = flow_of(blocks)
        if not flow.reducible:
            continue
        items = structured(flow)
        nested += bool(flow.loops)
        for run in range(3):
            assert Way(blocks, run).nested(items) == Way(blocks, run).plain(), seed
    assert nested > 200


def test_a_loop_that_is_entered_at_two_places_is_not_taken_apart() -> None:
    p = (Name("p"), True)
    assert not flow_of([Block((), p, 2, 1), Block((), None, 2, 2), Block((), p, 1, EXIT)]).reducible
