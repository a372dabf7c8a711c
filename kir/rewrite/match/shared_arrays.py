"""Shared memory that a kernel declares beside its loop over the threads."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import walk
from kir.rewrite import Path
from kir.rewrite.edit import edit_block, kernel_of, replace_stmts
from kir.rewrite.match.thread_team import ThreadTeam


def uses(program: n.Program, path: Path, buffer: str) -> int:
    """How many places in the kernel of a path name a buffer, its declaration left out."""
    return sum(isinstance(x, n.Region) and x.buffer.name == buffer for x in walk(kernel_of(program, path)))


def with_shared(program: n.Program, team: ThreadTeam, buffer: n.Buffer) -> n.Program:
    """`program` with a buffer of the CTA declared just before the thread loop, which moves on by one statement."""
    return edit_block(program, team.path, lambda b: (*b[:int(team.path[1])], n.Alloc(buffer), *b[int(team.path[1]):]))


def without_shared(program: n.Program, kernel: str, buffer: str) -> tuple[n.Program, int]:
    """`program` without the declaration of a buffer of the CTA, and at which statement of the kernel that stood."""
    body = kernel_of(program, (kernel,)).body
    i = next(i for i, s in enumerate(body) if isinstance(s, n.Alloc) and s.buffer.name == buffer)
    return replace_stmts(program, (kernel, i), ()), i


def shifted(path: Path, at: int, by: int) -> Path:
    """A path after `by` statements came (or, negative, went) at statement `at` of its kernel."""
    return (path[0], int(path[1]) + by, *path[2:]) if int(path[1]) >= at else path


def declaration(program: n.Program, path: Path, buffer: str) -> n.Alloc | None:
    """The statement of the kernel itself that declares a buffer of the CTA."""
    found = [s for s in kernel_of(program, path).body if isinstance(s, n.Alloc) and s.buffer.name == buffer]
    return found[0] if len(found) == 1 else None


def slot_array(name: str, dtype: DType, count: int) -> n.Buffer:
    """Shared memory with a slot for each of `count` writers."""
    return n.Buffer(name, dtype, (build.const(count),), "shared")
