"""Which threads read a private value: a reduction whose result only the first lanes have is one as long as nobody else looks at it."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import substitute, walk
from kir.rewrite import Path
from kir.rewrite.edit import block_at, enclosing
from kir.rewrite.match import block_and_index, is_read
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.thread_team import ThreadTeam


class Readers:
    """Looks for threads other than some (`mine` says which those are) that read a scalar from a place in the program on."""

    def __init__(self, program: n.Program, team: ThreadTeam, buffer: str, mine: Callable[[int], bool]) -> None:
        self.program, self.team, self.buffer = program, team, buffer
        self.others = [t for t in range(team.threads) if not mine(t)]
        self.lets: dict[str, n.Expr] = {}
        for s in walk(team.loop):
            if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value.type, DType) and not s.value.type.is_float and not any(
                    isinstance(x, (n.Load, n.Call)) for x in walk(s.value)):
                self.lets[s.names[0]] = substitute(s.value, self.lets)

    def after(self, path: Path, count: int) -> str | None:
        """Who else reads it after the `count` statements from a path on: "" for an unknown one, the reader's number, or None for nobody."""
        block, i = block_and_index(self.program, path)
        found = self.block(block[i + count:])
        if found is not None:
            return found or None
        if any(isinstance(s, n.Alloc) and s.buffer.name == self.buffer for s in block[:i]):
            return None
        around = [(p, s) for p, s in enclosing(self.program, path) if len(p) > 2]
        if any(not isinstance(s, n.If) for _, s in around):
            return "a later iteration"
        for p, _ in reversed(around):
            found = self.block(block_at(self.program, p)[int(p[-1]) + 1:])
            if found is not None:
                return found or None
        return None

    def block(self, block: n.Block) -> str | None:
        """A reader in a block; "" when the value is replaced before anyone else has read it, None when it goes on."""
        for s in block:
            found = self.stmt(s)
            if found is not None:
                return found
            if isinstance(s, n.Store) and s.at == n.Region(s.at.buffer) and s.at.buffer.name == self.buffer and s.mask is None:
                return ""
        return None

    def stmt(self, s: n.Stmt) -> str | None:
        """A reader in a statement."""
        if not mentions(s, self.buffer):
            return None
        if isinstance(s, n.If) and not mentions(s.cond, self.buffer):
            every, coming = self.others, [t for t in self.others if self.comes(s.cond, t) is not False]
            self.others = coming
            inside = self.block(s.then) if coming else None
            self.others = [t for t in every if self.comes(s.cond, t) is not True]
            beside = self.block(s.orelse) if self.others else None
            self.others = every
            return inside or beside or None
        reads = is_read(s, self.buffer)
        return f"thread {self.others[0]}" if reads and self.others else None

    def comes(self, cond: n.Expr, thread: int) -> bool | None:
        """Whether a thread comes to what stands under a condition; None when that depends on more than its number."""
        parts = [cond]
        while any(isinstance(e, n.Binary) and e.op == "and" for e in parts):
            parts = [x for e in parts for x in ((e.a, e.b) if isinstance(e, n.Binary) and e.op == "and" else (e,))]
        known = [_settled(e, self.lets, {self.team.thread.name: build.const(thread)}) for e in parts]
        return False if False in known else None if None in known else True


def _settled(e: n.Expr, lets: Mapping[str, n.Expr], thread: Mapping[str, n.Expr]) -> bool | None:
    value = substitute(substitute(e, lets), thread)
    return bool(value.value) if isinstance(value, n.Const) else None
