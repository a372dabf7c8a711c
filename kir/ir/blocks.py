"""Statements being written: a stack of blocks and the names that are taken. What every frontend's emitter begins with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace

from kir.dataclass import dataclass
from kir.diagnostic import Origin
from kir.ir import nodes as n


@dataclass
class Blocks:
    """The blocks that are open, innermost last. `origin` is attached to each statement that has none of its own."""

    blocks: list[list[n.Stmt]] = field(default_factory=lambda: [[]])
    taken: set[str] = field(default_factory=set)
    origin: Origin | None = None

    @property
    def block(self) -> list[n.Stmt]:
        """The innermost block."""
        return self.blocks[-1]

    def fresh(self, name: str) -> str:
        """A name that nothing in the kernel has: `name` itself, spelled as an identifier, when it is free."""
        base = re.sub(r"\W", "_", name).lstrip("%") or "x"
        chosen, k = base, 0
        while chosen in self.taken:
            k += 1
            chosen = f"{base}_{k}"
        self.taken.add(chosen)
        return chosen

    def emit(self, s: n.Stmt) -> None:
        """Append a statement to the innermost block."""
        if s.origin is None and self.origin is not None:
            s = replace(s, origin=self.origin)  # type: ignore[type-var]  # every Stmt is a dataclass
        self.block.append(s)

    @contextmanager
    def capture(self) -> Iterator[list[n.Stmt]]:
        """Collect what is emitted inside in a block of its own."""
        self.blocks.append([])
        try:
            yield self.blocks[-1]
        finally:
            self.blocks.pop()
