"""A statement in its program: what `match` found there, found again with its type, and edits of the block that it stands in."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from kir.ir import nodes as n
from kir.rewrite.base import Pass, Path, Place, Rewritten, Site
from kir.rewrite.edit import block_at, edit_block, node_at

P = TypeVar("P", bound=Pass)
N = TypeVar("N", bound=Place)
T = TypeVar("T")


def node_as(program: n.Program, path: Path, kind: type[N]) -> N:
    """The kernel or statement at a path, of the kind that `match` has made sure of.

        loop = node_as(program, site.path, n.For)
        trips = loop.hi
    """
    node = node_at(program, path)
    assert isinstance(node, kind)
    return node


def params_as(site: Site, kind: type[P]) -> P:
    """The parameters of a site, which are an instance of its pass.

        item = params_as(site, StageShared)
        width = item.width
    """
    item = site.params
    assert isinstance(item, kind)
    return item


def matched(found: T | None) -> T:
    """What `match` has found at the place before, and so is there again.

        team = matched(team_at(program, site.path))
        threads = team.threads
    """
    assert found is not None
    return found


def matched_as(found: object, kind: type[T]) -> T:
    """The same, of the kind that `match` has made sure of.

        loop = matched_as(block[i + 1], n.For)
        trips = loop.hi
    """
    assert isinstance(found, kind)
    return found


def block_and_index(program: n.Program, path: Path) -> tuple[n.Block, int]:
    """The block of a statement, and its place there.

        block, i = block_and_index(program, site.path)
        later = block[i + 1:]
    """
    return block_at(program, path), int(path[-1])


def sibling(path: Path, by: int) -> Path:
    """The path of the statement `by` places further on in the same block.

        sibling(("main", 3), 1) == ("main", 4)
        sibling(("main", 3, "body", 2), -2) == ("main", 3, "body", 0)
    """
    return (*path[:-1], int(path[-1]) + by)


def splice(program: n.Program, path: Path, stmts: Sequence[n.Stmt], start: int = 0, stop: int | None = 1) -> n.Program:
    """The program with other statements for those from `start` up to `stop` (None: the end of the block), counted from the one at
    `path`.

        splice(program, path, (made,))         # in its place
        splice(program, path, (made,), 0, 0)   # before it
    """
    i = int(path[-1])
    return edit_block(program, path, lambda block: (*block[:i + start], *stmts, *(() if stop is None else block[i + stop:])))


def edited(program: n.Program, path: Path, stmts: Sequence[n.Stmt], start: int = 0, stop: int | None = 1, at: int = 0,
              hints: Mapping[Path, tuple[Path, ...]] | None = None) -> Rewritten:
    """What a direction returns that edits one block, as `splice` does: the other direction applies `at` statements further on.

        return edited(program, site.path, (alloc, loop), at=1)
        return edited(program, site.path, (loop,), -1, at=-1)
    """
    made, there = splice(program, path, stmts, start, stop), sibling(path, at) if at else path
    return Rewritten(made, there) if hints is None else Rewritten(made, there, hints)
