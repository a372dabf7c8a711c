"""Which values differ between threads, and which statements the whole team executes together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.ir.visit import blocks_of, statements, walk

from ..values.names import LANES
from .mentions import seen, warp_call

NEUTRAL = frozenset({"assume", "assertion", "barrier", "named_barrier_sync", "named_barrier_arrive", "warp_sync", "nanosleep", "mbar_wait", "fence",
                     "grid_barrier"})
"""Calls that mean the same for a team and for each of its threads."""
OF_ONE = frozenset({"mbar_expect", "mbar_arrive_expect", "mbar_init", "bulk_commit", "bulk_wait", "async_commit", "async_wait", "fence_async",
                    "fence_mbar_init", "grid_dependency_wait", "grid_dependency_launch", "wgmma_fence", "set_registers", "trap"})
"""Calls that stand among a team's statements and may stand in one thread's code too."""


def is_local(b: n.Buffer) -> bool:
    """Whether each thread has a copy of its own."""
    return b.space == "register"


@dataclass
class Taint:
    """`values` and `buffers` that differ between threads."""

    values: set[str]
    buffers: set[str] = field(default_factory=set)
    definitions: dict[str, n.Expr] = field(default_factory=dict)
    """What names stand for that are arithmetic on other names."""
    own_copies: bool = False
    """Whether threads copy asynchronously, each for itself: then each commits and awaits its own groups."""

    @classmethod
    def of(cls, body: n.Block, thread: str) -> Taint:
        """What differs in a body, to a fixpoint."""
        made = cls({thread, "%lane", "%threads"})
        for s in statements(body):
            if isinstance(s, n.Let) and len(s.names) == 1 and not seen(s.value).loads and not any(isinstance(x, n.Call) for x in walk(s.value)):
                made.definitions[s.names[0]] = s.value
        size = -1
        while size != len(made.values) + len(made.buffers):
            size = len(made.values) + len(made.buffers)
            made.follow(body, False)
        made.own_copies = any(isinstance(s, n.Copy) and s.via == "cp_async" and made.touches(s) for s in statements(body))
        return made

    def touches(self, *parts: n.Node | None) -> bool:
        """Whether expressions read what differs."""
        for p in parts:
            if p is not None:
                found = seen(p)
                if found.warps or not self.values.isdisjoint(found.names) or not self.buffers.isdisjoint(found.buffers):
                    return True
        return False

    def follow(self, body: n.Block, divergent: bool) -> None:
        for s in body:
            match s:
                case n.Let():
                    if divergent or self.touches(s.value):
                        self.values.update(s.names)
                case n.Alloc():
                    if is_local(s.buffer) and self.touches(s.init):
                        self.buffers.add(s.buffer.name)
                case n.View():
                    if is_local(s.at.buffer) and not self.buffers.isdisjoint((s.at.buffer.name, s.buffer.name)):  # one memory under two names
                        self.buffers |= {s.at.buffer.name, s.buffer.name}
                case n.Store():
                    if is_local(s.at.buffer) and (divergent or self.touches(s.at, s.value, s.mask)):
                        self.buffers.add(s.at.buffer.name)
                case n.Copy():
                    if is_local(s.dst.buffer) and (divergent or self.touches(s.src, s.dst, s.mask)):
                        self.buffers.add(s.dst.buffer.name)
                case n.For() if s.kind == LANES:
                    self.lanes(s, divergent)
                case n.For():
                    apart = divergent or self.touches(s.lo, s.hi, s.step) or self.threaded(s)
                    if divergent or self.touches(s.lo, s.hi, s.step):
                        self.values.add(s.var.name)
                    self.follow(s.body, apart)
                case n.If():
                    apart = divergent or (self.touches(s.cond) and not self.collective(s)) or self.threaded(s)
                    self.follow(s.then, apart)
                    self.follow(s.orelse, apart)
                case n.While():
                    self.follow(s.body, divergent or self.touches(s.cond) or self.threaded(s))
                case _:
                    pass

    def lanes(self, s: n.For, divergent: bool) -> None:
        """A `T.Parallel` that writes variables from outside of it, or reads what differs, is each thread's own."""
        if self.own_loop(s) or self.apart(s):
            for x in statements(s.body):
                if isinstance(x, n.Store) and is_local(x.at.buffer) and (divergent or not self.own_loop(s) or self.touches(x.at, x.value, x.mask)):
                    self.buffers.add(x.at.buffer.name)
            if divergent or self.apart(s):
                self.values.update(x for y in statements(s.body) if isinstance(y, n.Let) for x in y.names)

    def own_loop(self, s: n.For) -> bool:
        """Whether a `T.Parallel` writes nothing but variables that are each thread's own: then each thread does all of it."""
        inside = {x.buffer.name for x in statements(s.body) if isinstance(x, n.Alloc)}
        stores = [x for x in statements(s.body) if isinstance(x, n.Store) and x.at.buffer.name not in inside]
        return bool(stores) and all(is_local(x.at.buffer) for x in stores) and not any(isinstance(x, n.Eval) for x in statements(s.body))

    def apart(self, s: n.For) -> bool:
        """Whether a `T.Parallel` mixes each thread's own variables with shared places."""
        if self.own_loop(s):
            return False
        inside = {x.buffer.name for x in statements(s.body) if isinstance(x, n.Alloc)}
        for x in statements(s.body):
            if isinstance(x, n.Store) and is_local(x.at.buffer) and x.at.buffer.name not in inside:
                return True
            for part in own_parts(x):
                found = seen(part)
                if found.warps and any(warp_call(y) and not y.fn.startswith("atomic_") for y in walk(part) if isinstance(y, n.Call)):
                    return True
                if not self.buffers.isdisjoint(found.buffers) or (self.values & found.names) - _bound(s):
                    return True
        return False

    # ------------------------------------------------------------------------------------------------------ kinds of statements
    def collective(self, s: n.Stmt) -> bool:
        """Whether something in a statement is executed by the whole team together."""
        return any(self.is_collective(x) for x in self.inside(s))

    def inside(self, s: n.Stmt) -> Iterator[n.Stmt]:
        """A statement and those in it, without the bodies of `T.Parallel`."""
        yield s
        if isinstance(s, n.For) and s.kind == LANES:
            return
        for block in blocks_of(s):
            for x in block:
                yield from self.inside(x)

    def of_one(self, s: n.Stmt) -> bool:
        """Whether a statement holds nothing collective but what a single thread may do: asynchronous copies and their barriers."""
        return not any(self.is_collective(x) and not (
            (isinstance(x, n.Copy) and x.via in ("tma", "bulk")) or (isinstance(x, n.Eval) and x.call.fn in OF_ONE)) for x in self.inside(s))

    def is_collective(self, s: n.Stmt) -> bool:
        match s:
            case n.Mma() | n.View() | n.Roles():
                return not (isinstance(s, n.View) and (s.buffer.name in self.buffers or s.buffer.space == "global"))
            case n.Alloc():
                return not is_local(s.buffer)
            case n.For() if s.kind == LANES:
                return not self.own_loop(s)
            case n.Copy(via="cp_async") if self.own_copies and self.touches(s):
                return False
            case n.Copy():
                return not (is_local(s.src.at.buffer) or is_local(s.dst.buffer))
            case n.Store():
                if is_local(s.at.buffer):
                    return False
                return isinstance(s.at.type, TileType) and not self.touches(s.value, s.at)
            case n.Let():
                return isinstance(s.value.type, TileType) and not self.touches(s.value)
            case n.Eval() if self.of_own_copies(s):
                return False
            case n.Eval():
                return not (s.call.fn in NEUTRAL or s.call.fn == "prefetch" or warp_call(s.call))
            case _:
                return False

    def of_own_copies(self, s: n.Stmt) -> bool:
        """Whether a statement closes or awaits groups of copies that each thread made."""
        return self.own_copies and isinstance(s, n.Eval) and s.call.fn in ("async_commit", "async_wait")

    def threaded(self, s: n.Stmt) -> bool:
        """Whether a statement is executed by each thread for itself: something in it differs, and nothing in it is collective."""
        return not self.collective(s) and any(self.differs(x) for x in self.inside(s))

    def differs(self, s: n.Stmt) -> bool:
        """Whether a statement itself (not what stands in its blocks) reads or writes what differs."""
        match s:
            case n.For() if s.kind == LANES:
                return self.touches(s) or any(isinstance(x, n.Store) and x.at.buffer.name in self.buffers for x in statements(s.body))
            case n.For():
                return self.touches(s.lo, s.hi, s.step)
            case n.If() | n.While():
                return self.touches(s.cond)
            case n.Alloc():
                return s.buffer.name in self.buffers
            case n.Jump():
                return False
            case _:
                return self.touches(s) or self.of_own_copies(s)


def _bound(s: n.For) -> set[str]:
    return {x for y in statements(s.body) if isinstance(y, n.Let) for x in y.names}


def own_parts(s: n.Stmt) -> Iterator[n.Node]:
    """What a statement itself mentions, without its blocks."""
    match s:
        case n.For():
            yield from (s.lo, s.hi, s.step)
        case n.If() | n.While():
            yield s.cond
        case n.Roles():
            return
        case _:
            yield s
