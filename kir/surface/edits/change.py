"""Which statements of a kernel a rewrite changed, down to a given depth of nesting."""
from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.paths import Path, child_blocks


@dataclass(frozen=True)
class Change:
    """Statements `start` up to `end` of the block at `path` became those from `new_start` up to `new_end` of the block at `new_path`.
    With `head`, only the head of the one compound statement changed, not its blocks."""

    path: Path
    start: int
    end: int
    new_path: Path
    new_start: int
    new_end: int
    head: bool = False


def changes(old: n.Block, new: n.Block, path: Path, new_path: Path, depth: int) -> Iterator[Change]:
    """What changed from one block to another. Compound statements nested deeper than `depth` count as one piece."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            continue
        for piece in _paired(old, new, a, b, c, d) if depth > 0 else ((a, b, c, d),):
            a1, b1, c1, d1 = piece
            if depth > 0 and b1 - a1 == 1 and d1 - c1 == 1 and _alike(old[a1], new[c1]):
                yield from _inside(old[a1], new[c1], (*path, a1), (*new_path, c1), depth)
            elif a1 != b1 or c1 != d1:
                yield Change(path, a1, b1, new_path, c1, d1)


def _inside(x: n.Stmt, y: n.Stmt, path: Path, new_path: Path, depth: int) -> Iterator[Change]:
    *outer, index = path
    *new_outer, new_index = new_path
    assert isinstance(index, int) and isinstance(new_index, int)
    if headless(x) != headless(y):
        yield Change(tuple(outer), index, index + 1, tuple(new_outer), new_index, new_index + 1, head=True)
    for (steps, inner), (_, other) in zip(child_blocks(x), child_blocks(y), strict=True):
        yield from changes(inner, other, (*path, *steps), (*new_path, *steps), depth - 1)


def headless(s: n.Stmt) -> n.Stmt:
    """A compound statement without its blocks."""
    match s:
        case n.For() | n.While():
            return replace(s, body=())
        case n.If():
            return replace(s, then=(), orelse=())
        case _:
            return s


def _alike(x: n.Stmt, y: n.Stmt) -> bool:
    """Whether two statements are compound, of one kind, with the same blocks filled."""
    return type(x) is type(y) and isinstance(x, (n.For, n.While, n.If)) and all(
        bool(a) == bool(b) for (_, a), (_, b) in zip(child_blocks(x), child_blocks(y), strict=True))


def _paired(old: n.Block, new: n.Block, a: int, b: int, c: int, d: int) -> Iterator[tuple[int, int, int, int]]:
    """A replaced stretch, cut where compound statements of one kind, or assignments to the same names, face each other in order."""
    at, to = a, c
    for i in range(a, b):
        for j in range(to, d):
            if _alike(old[i], new[j]) or (_named(old[i]) and _named(old[i]) == _named(new[j])):
                if at < i or to < j:
                    yield at, i, to, j
                yield i, i + 1, j, j + 1
                at, to = i + 1, j + 1
                break
    if at < b or to < d:
        yield at, b, to, d


def _named(s: n.Stmt) -> tuple[str, ...]:
    match s:
        case n.Let():
            return s.names
        case n.Alloc():
            return (s.buffer.name,)
        case n.Store() | n.Copy():
            at = s.at if isinstance(s, n.Store) else s.dst
            return ("=", at.buffer.name)
        case n.Mma():
            return ("+=", s.acc.buffer.name)
        case _:
            return ()


def nesting(block: n.Block) -> int:
    """How deep statements are nested in a block (0: no compound statement)."""
    return max((1 + nesting(inner) for s in block for _, inner in child_blocks(s)), default=0)
