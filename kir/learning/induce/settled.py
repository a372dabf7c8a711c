"""Whether two programs are one but for their own names and for where values are named: each `let` stands just before what first reads it.

An expert that names a value before the declaration of a buffer and one that names it after have taken the same step.
"""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.access import written
from kir.analysis.normal.normal_form import is_pure
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.printer import expr_text
from kir.ir.visit import buffers_named, names_read, once, transform, walk


def settled_hash(program: n.Program) -> str:
    """The content hash of a program with each pure value named as late as its readers and the memory that it reads allow."""
    return once(program, "_settled_hash", lambda: content_hash(settled(program)))


def settled(program: n.Program) -> n.Program:
    """The program with pure lets moved down to just before the first statement of their block that reads them. One that reads memory passes no statement that
    may write it, nor one that waits for others; those that come to stand together are put in order of their values."""
    viewed = any(isinstance(x, n.View) for k in program.kernels for x in walk(k))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        for name in ("body", "then", "orelse"):
            block = getattr(new, name, None)
            if isinstance(block, tuple) and block and all(isinstance(s, n.Stmt) for s in block):
                new = replace(new, **{name: _block(block, viewed)})  # type: ignore[type-var]  # every node is a dataclass
        return new

    made: n.Program = transform(program, leave)
    return made


def _block(block: n.Block, viewed: bool) -> n.Block:
    out: list[n.Stmt] = []
    for s in reversed(block):
        if not (isinstance(s, n.Let) and is_pure(s.value)):
            out.insert(0, s)
            continue
        read = buffers_named(s.value)
        at = next((k for k, other in enumerate(out) if not names_read(other).isdisjoint(s.names) or _in_the_way(other, read, viewed)), len(out))
        while at < len(out) and _goes_before(out[at], s):
            at += 1
        out.insert(at, s)
    return tuple(out)


def _goes_before(other: n.Stmt, s: n.Let) -> bool:
    """Whether of two named values that stand together and do not read one another the other one comes first."""
    return isinstance(other, n.Let) and is_pure(other.value) and names_read(other).isdisjoint(s.names) and expr_text(other.value) < expr_text(s.value)


def _in_the_way(other: n.Stmt, read: frozenset[str], viewed: bool) -> bool:
    """Whether a value that reads some buffers may not be named after a statement instead of before it."""
    if not read or (isinstance(other, (n.Let, n.Alloc)) and all(is_pure(x) for x in walk(other) if isinstance(x, n.Expr))):
        return False
    if any(isinstance(x, (n.Eval, n.Copy, n.Opaque, n.Jump, n.Roles)) for x in walk(other)):
        return True
    wrote = written((other,))
    return bool(wrote) if viewed else "*" in wrote or not wrote.isdisjoint(read)
