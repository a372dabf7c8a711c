"""Structural paths: where a statement stands, and editing a program there.

A path starts with the name of a kernel (or of a device function) and then has statement indices and names of blocks in turn:
`("main", 3)`, `("main", 3, "body", 0)`, `("main", 3, "then", 1)`, `("main", 2, "roles", 0, "body", 4)`. A path that ends in a name
denotes a block. An index equal to the length of its block is the gap at its end.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kir.base.dataclass import replace
from kir.base.diagnostic import KirError, error
from kir.ir import nodes as n

Path = tuple[int | str, ...]


def path_text(path: Path) -> str:
    """A path for messages: `main.3.body.0`."""
    return ".".join(map(str, path))


def child_blocks(s: n.Stmt) -> tuple[tuple[Path, n.Block], ...]:
    """The blocks directly inside a statement, each with the steps that lead to it."""
    match s:
        case n.For() | n.While():
            return ((("body",), s.body),)
        case n.If():
            return ((("then",), s.then), (("orelse",), s.orelse))
        case n.Roles():
            return tuple((("roles", i, "body"), r.body) for i, r in enumerate(s.roles))
        case _:
            return ()


def roots(program: n.Program) -> Iterator[tuple[str, n.Block]]:
    """The bodies of the kernels, then of the device functions, by name."""
    for k in program.kernels:
        yield k.name, k.body
    for f in program.functions:
        yield f.name, f.body


def block_paths(block: n.Block, at: Path) -> Iterator[tuple[Path, n.Stmt]]:
    """The statements of the block at path `at` and below, in reading order."""
    stack: list[tuple[Path, n.Stmt]] = [((*at, i), s) for i, s in reversed(list(enumerate(block)))]
    while stack:
        path, s = stack.pop()
        yield path, s
        for steps, inner in reversed(child_blocks(s)):
            here = path + steps
            stack.extend(((*here, i), x) for i, x in reversed(list(enumerate(inner))))


def paths(program: n.Program) -> Iterator[tuple[Path, n.Stmt]]:
    """Every statement with its path, in reading order, kernels before device functions."""
    for name, block in roots(program):
        yield from block_paths(block, (name,))


def _missing(path: Path) -> KirError:
    return error("KIR-A004", f"this program has no statement at {path_text(path)}", needs="a path of this very program")


def _root(program: n.Program, path: Path) -> n.Block:
    for name, block in roots(program):
        if path and name == path[0]:
            return block
    raise _missing(path)


def _into(s: n.Stmt, steps: Path, path: Path) -> tuple[n.Block, int]:
    """The block of `s` that the first steps name, and how many steps that took."""
    for names, block in child_blocks(s):
        if steps[:len(names)] == names:
            return block, len(names)
    raise _missing(path)


def block_at(program: n.Program, path: Path) -> n.Block:
    """The block that a path ending in a name denotes. Raises KirError KIR-A004 when there is none."""
    block, rest = _root(program, path), path[1:]
    while rest:
        index, rest = rest[0], rest[1:]
        if not isinstance(index, int) or not 0 <= index < len(block):
            raise _missing(path)
        block, taken = _into(block[index], rest, path)
        rest = rest[taken:]
    return block


def at(program: n.Program, path: Path) -> n.Stmt:
    """The statement at a path. Raises KirError KIR-A004 when there is none."""
    if len(path) < 2 or not isinstance(path[-1], int):
        raise _missing(path)
    block = block_at(program, path[:-1])
    if not 0 <= path[-1] < len(block):
        raise _missing(path)
    return block[path[-1]]


def enclosing(program: n.Program, path: Path) -> tuple[tuple[Path, n.Stmt], ...]:
    """The statements around the one at `path`, outermost first, without itself. Raises KirError KIR-A004."""
    out: list[tuple[Path, n.Stmt]] = []
    block, here, rest = _root(program, path), path[:1], path[1:]
    while len(rest) > 1:
        index = rest[0]
        if not isinstance(index, int) or not 0 <= index < len(block):
            raise _missing(path)
        here = (*here, index)
        out.append((here, block[index]))
        block, taken = _into(block[index], rest[1:], path)
        here, rest = here + rest[1:1 + taken], rest[1 + taken:]
    return tuple(out)


def with_block(s: n.Stmt, steps: Path, block: n.Block) -> n.Stmt:
    """`s` with the block that `steps` leads to replaced."""
    if isinstance(s, n.Roles) and len(steps) == 3 and isinstance(steps[1], int):
        i = steps[1]
        return replace(s, roles=(*s.roles[:i], replace(s.roles[i], body=block), *s.roles[i + 1:]))
    changed: dict[str, Any] = {str(steps[0]): block}
    return replace(s, **changed)  # type: ignore[type-var]  # every Stmt is a dataclass


def _edit(block: n.Block, rest: Path, path: Path, removed: int, stmts: n.Block) -> n.Block:
    index = rest[0] if rest else None
    if not isinstance(index, int) or not 0 <= index <= len(block):
        raise _missing(path)
    if len(rest) == 1:
        if index + removed > len(block):
            raise _missing(path)
        return (*block[:index], *stmts, *block[index + removed:])
    if index == len(block):
        raise _missing(path)
    s = block[index]
    inner, taken = _into(s, rest[1:], path)
    return (*block[:index], with_block(s, rest[1:1 + taken], _edit(inner, rest[1 + taken:], path, removed, stmts)), *block[index + 1:])


def _with_root(program: n.Program, name: int | str, block: n.Block) -> n.Program:
    if any(k.name == name for k in program.kernels):
        return replace(program, kernels=tuple(replace(k, body=block) if k.name == name else k for k in program.kernels))
    return replace(program, functions=tuple(replace(f, body=block) if f.name == name else f for f in program.functions))


def replace_at(program: n.Program, path: Path, stmts: n.Block) -> n.Program:
    """The program with the statement at `path` replaced by `stmts` (none removes it). Raises KirError KIR-A004."""
    return _with_root(program, path[0], _edit(_root(program, path), path[1:], path, 1, stmts))


def replace_block(program: n.Program, path: Path, block: n.Block) -> n.Program:
    """The program with the block at `path` (ending in a name) replaced. Raises KirError KIR-A004."""
    old = block_at(program, path)
    return _with_root(program, path[0], _edit(_root(program, path), (*path[1:], 0), path, len(old), block))


def insert(program: n.Program, path: Path, stmts: n.Block) -> n.Program:
    """The program with `stmts` put before the statement at `path` (an index at the end of its block appends). Raises KIR-A004."""
    return _with_root(program, path[0], _edit(_root(program, path), path[1:], path, 0, stmts))
