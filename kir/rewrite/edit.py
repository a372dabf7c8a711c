"""Places in a program and edits at them, beside those of `kir.ir.anchors`: kernels count as places too.

A path is `("main", 3, "body", 0)`: the kernel's name, then statement index and block field alternately (`roles, i, body` for a role).
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

from kir.base.dataclass import replace
from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.paths import Path, with_block
from kir.ir.paths import child_blocks as fields_of
from kir.ir.visit import once

__all__ = ["Path", "Place", "block_at", "edit_block", "enclosing", "fields_of", "fresh", "kernel_of", "names_in", "node_at", "places",
           "replace_kernel", "replace_stmts", "with_block"]

Place = n.Kernel | n.Stmt


def kernel_of(program: n.Program, path: Path) -> n.Kernel:
    """The kernel that a path begins with. Raises KirError KIR-R004."""
    for k in program.kernels:
        if path and k.name == path[0]:
            return k
    raise error("KIR-R004", f"there is no kernel '{path[0] if path else ''}'", needs=f"one of {', '.join(k.name for k in program.kernels)}")


def replace_kernel(program: n.Program, name: str, kernel: n.Kernel) -> n.Program:
    """`program` with the kernel of that name replaced."""
    return replace(program, kernels=tuple(kernel if k.name == name else k for k in program.kernels))


def _fragment(path: Path) -> tuple[Path, Path]:
    size = 3 if path[0] == "roles" else 1
    return path[:size], path[size:]


def block_at(program: n.Program, path: Path) -> n.Block:
    """The block that holds the statement at `path` (of a kernel's path: its body)."""
    block = kernel_of(program, path).body
    rest = path[1:]
    while len(rest) > 1:
        s = block[int(rest[0])]
        fragment, rest = _fragment(rest[1:])
        block = dict(fields_of(s))[fragment]
    return block


def node_at(program: n.Program, path: Path) -> Place:
    """The kernel or statement at `path`. Raises KirError KIR-R004 when there is none."""
    if len(path) == 1:
        return kernel_of(program, path)
    try:
        return block_at(program, path)[int(path[-1])]
    except (IndexError, KeyError) as bad:
        raise error("KIR-R004", f"there is nothing at {'/'.join(map(str, path))}") from bad


def edit_block(program: n.Program, path: Path, edit: Callable[[n.Block], n.Block]) -> n.Program:
    """`program` with the block that holds the statement at `path` replaced by `edit(block)`."""
    def descend(block: n.Block, rest: Path) -> n.Block:
        if len(rest) <= 1:
            return edit(block)
        i = int(rest[0])
        fragment, below = _fragment(rest[1:])
        inner = dict(fields_of(block[i]))[fragment]
        return (*block[:i], with_block(block[i], fragment, descend(inner, below)), *block[i + 1:])
    k = kernel_of(program, path)
    return replace_kernel(program, k.name, replace(k, body=descend(k.body, path[1:])))


def replace_stmts(program: n.Program, path: Path, stmts: n.Block, count: int = 1) -> n.Program:
    """`program` with `count` statements from `path` on replaced by `stmts`."""
    i = int(path[-1])
    return edit_block(program, path, lambda block: (*block[:i], *stmts, *block[i + count:]))


def places(program: n.Program) -> tuple[tuple[Path, Place], ...]:
    """All kernels and statements in reading order, each with its path."""
    return once(program, "_places", lambda: tuple(_places(program)))


def _places(program: n.Program) -> Iterator[tuple[Path, Place]]:
    def below(block: n.Block, prefix: Path) -> Iterator[tuple[Path, Place]]:
        for i, s in enumerate(block):
            yield (*prefix, i), s
            for fragment, inner in fields_of(s):
                yield from below(inner, (*prefix, i, *fragment))
    for k in program.kernels:
        yield (k.name,), k
        yield from below(k.body, (k.name,))


def enclosing(program: n.Program, path: Path) -> Iterator[tuple[Path, Place]]:
    """The kernel and the statements around `path`, outermost first, `path` itself left out."""
    k = kernel_of(program, path)
    yield (k.name,), k
    block, prefix, rest = k.body, path[:1], path[1:]
    while len(rest) > 1:
        prefix = (*prefix, rest[0])
        s = block[int(rest[0])]
        yield prefix, s
        fragment, rest = _fragment(rest[1:])
        prefix = (*prefix, *fragment)
        block = dict(fields_of(s))[fragment]


def names_in(program: n.Program, kernel: n.Kernel) -> set[str]:
    """Every name in view somewhere in a kernel: its own, and those of the program's header."""
    out = {k.name for k in program.params} | {m.name for m in program.metas} | {w.buffer.name for w in program.workspaces}
    out |= {f.name for f in program.functions} | {m.name for m in program.tensor_maps}
    return out | {a.name for a in kernel.grid} | bound_in(kernel)


def bound_in(kernel: n.Kernel) -> frozenset[str]:
    """The names that a kernel's body binds."""
    return once(kernel, "_bound", lambda: frozenset(bound_names(kernel.body)))


def fresh(base: str, taken: set[str]) -> str:
    """`base`, or `base_1`, `base_2`, .. : the first that is not taken (and is taken from now on)."""
    name, i = base, 0
    while name in taken:
        i += 1
        name = f"{base}_{i}"
    taken.add(name)
    return name


def tile_name(element: str) -> str:
    """The name of a variable that numbers tiles, from that of one which numbers their elements; the inverse of `element_name`."""
    return element.removesuffix("_el") if element.endswith("_el") else f"{element}_tile"


def element_name(tile: str) -> str:
    """The name of a variable that numbers elements, from that of one which numbers tiles."""
    return tile.removesuffix("_tile") if tile.endswith("_tile") else f"{tile}_el"
