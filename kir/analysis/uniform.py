"""Which values of a thread loop are the same for all its threads.

`varying(loop)` says, for each statement of a loop over threads, which names (lets, loop variables, private buffers) may differ from one
thread to another just before it. It follows the program's flow: a private scalar that is set anew to a value all threads agree on is
the same for all again. Memory of the CTA read at a place that all threads agree on gives all of them one value, as long as nothing races.
"""
from __future__ import annotations

from collections.abc import Mapping

from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.paths import Path, child_blocks
from kir.ir.types import dtype_of
from kir.ir.visit import once, transform, walk

PRIVATE = frozenset({"register", "fragment"})
Names = frozenset[str]


def varying(loop: n.For) -> Mapping[Path, Names]:
    """The names that may differ before each statement of the loop's body, by path from the loop: ("body", 0), .."""
    return once(loop, "_varying", lambda: _varying(loop))


def _varying(loop: n.For) -> Mapping[Path, Names]:
    found = _Flow()
    found.block(loop.body, ("body",), frozenset({loop.var.name}), False)
    return found.before


def varying_at(loop: n.For, path: Path) -> Names:
    """The names that may differ just before the statement at a path (from the loop)."""
    return varying(loop)[path]


def depends(e: n.Node, names: Names | set[str]) -> bool:
    """Whether a value may differ between threads, given the names that do."""
    for x in walk(e):
        match x:
            case n.Var() if x.name in names:
                return True
            case n.Load() if x.at.buffer.name in names:
                return True
            case n.Call() if x.of is None and (instruction(x.fn).is_convergent or x.fn.startswith("atomic_")):
                return True
            case _:
                pass
    return False


class _Flow:
    """Follows the names that vary through a block, and forgets those it binds at its end; loops to a fixpoint, which exists
    because names only come to a loop's start."""

    def __init__(self) -> None:
        self.before: dict[Path, Names] = {}

    def block(self, block: n.Block, path: Path, names: Names, apart: bool) -> Names:
        for i, s in enumerate(block):
            self.before[(*path, i)] = names
            names = self.stmt(s, (*path, i), names, apart)
        return names - set(bound_names(block))

    def stmt(self, s: n.Stmt, path: Path, names: Names, apart: bool) -> Names:
        """The names after a statement; `apart` when only some threads may come to it."""
        match s:
            case n.Let():
                return names | set(s.names) if depends(s.value, names) else names - set(s.names)
            case n.Alloc():
                return _set(names, s.buffer.name, s.init is not None and depends(s.init, names))
            case n.Store() if s.at.buffer.space in PRIVATE:
                own = (*s.at.index, s.value) if s.mask is None else (*s.at.index, s.value, s.mask)
                differs = apart or any(depends(x, names) for x in own)
                if not differs and (s.at.index or s.mask is not None):
                    return names
                return _set(names, s.at.buffer.name, differs)
            case n.Copy() if s.dst.buffer.space in PRIVATE:
                return names | {s.dst.buffer.name} if apart or depends(s.src, names) else names
            case n.Mma() if s.acc.buffer.space in PRIVATE:
                return names | {s.acc.buffer.name}
            case n.Opaque():
                return names | {b.name for b in _private(s)}
            case n.For():
                split = s.kind in ("thread", "warp", "warpgroup") or any(depends(e, names) for e in (s.lo, s.hi, s.step))
                return self.repeated(s, path, names | {s.var.name} if split else names - {s.var.name}, apart or split)
            case n.While():
                return self.repeated(s, path, names, apart or depends(s.cond, names))
            case n.If() | n.Roles():
                split = apart or isinstance(s, n.Roles) or depends(s.cond, names)
                after = [self.block(b, path + field, names, split) for field, b in child_blocks(s)]
                return frozenset().union(*after)
            case _:
                return names

    def repeated(self, s: n.For | n.While, path: Path, names: Names, apart: bool) -> Names:
        """The names after a loop, which may run no iteration at all."""
        while True:
            after = names | self.block(s.body, (*path, "body"), names, apart)
            split = apart or (isinstance(s, n.While) and depends(s.cond, after))
            if (after, split) == (names, apart):
                return after
            names, apart = after, split


def _set(names: Names, name: str, differs: bool) -> Names:
    return names | {name} if differs else names - {name}


def _private(s: n.Opaque) -> list[n.Buffer]:
    return [x for x in walk(s) if isinstance(x, n.Buffer) and x.space in PRIVATE]


def of_whole_groups(cond: n.Expr, thread: str, size: int) -> n.Expr:
    """A condition with the number of the thread's group of `size` (`thread // c`, `size` dividing c, and comparisons of the thread with a multiple of
    it) written as a value of its own, so that what still mentions the thread splits groups."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Binary) and new.op in ("lt", "ge") and isinstance(new.a, n.Var) and new.a.name == thread:
            c = build.int_value(new.b)
            if c is not None and c % size == 0:
                return n.Binary(new.op, n.Var("%group", new.a.of), build.const(c // size, dtype_of(new.a.of)))
        if isinstance(new, n.Binary) and new.op == "floordiv" and isinstance(new.a, n.Var) and new.a.name == thread:
            c = build.int_value(new.b)
            if c is not None and c > 0 and c % size == 0:
                return n.Var("%group", new.a.of)
        return new
    made: n.Expr = transform(cond, leave)
    return made
