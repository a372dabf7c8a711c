"""Statements being written: a stack of blocks and the names of the program. What every frontend's emitter begins with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin
from kir.ir import nodes as n
from kir.ir.names import Names


@dataclass
class Blocks(Names):
    """The blocks that are open, innermost last. `origin` is attached to each statement that has none of its own."""

    blocks: list[list[n.Stmt]] = field(default_factory=lambda: [[]])
    origin: Origin | None = None

    @property
    def block(self) -> list[n.Stmt]:
        """The innermost block."""
        return self.blocks[-1]

    def emit(self, s: n.Stmt) -> None:
        """Append a statement to the innermost block."""
        if s.origin is None and self.origin is not None:
            s = replace(s, origin=self.origin)  # type: ignore[type-var]  # every Stmt is a dataclass
        self.block.append(s)

    def let(self, name: str, e: n.Expr) -> n.Expr:
        """`e` under a name, unless it is one already."""
        if isinstance(e, (n.Var, n.Const)):
            return e
        made = n.Var(self.fresh(name), e.type)
        self.emit(n.Let((made.name,), e))
        return made

    @contextmanager
    def capture(self) -> Iterator[list[n.Stmt]]:
        """Collect what is emitted inside in a block of its own."""
        self.blocks.append([])
        try:
            yield self.blocks[-1]
        finally:
            self.blocks.pop()
