"""Alpha-normal form and content hash.

Local names (lets, loop variables, grid axes, buffers of a kernel, function parameters) leave the hash: they are numbered in the order in
which they are bound. What callers see stays: parameters, sizes, kernel names and their order.
"""
from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.parser import statements
from kir.ir.printer import program_text
from kir.ir.visit import transform


def bound_names(body: n.Block) -> Iterator[str]:
    """Names that a block binds, in reading order."""
    for s in statements(body):
        match s:
            case n.Let():
                yield from s.names
            case n.Alloc():
                yield s.buffer.name
            case n.View():
                yield from s.axes
                yield s.buffer.name
            case n.For():
                yield s.var.name
            case _:
                pass


def rename(item: n.Node, names: dict[str, str]) -> n.Node:
    """`item` with local names replaced, wherever they are bound or used."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Var() | n.Axis() if new.name in names:
                return replace(new, name=names[new.name])
            case n.Buffer() if new.name in names:
                return replace(new, name=names[new.name])
            case n.Let():
                return replace(new, names=tuple(names.get(x, x) for x in new.names))
            case n.View():
                return replace(new, axes=tuple(names.get(x, x) for x in new.axes))
            case _:
                return new
    result: n.Node = transform(item, leave)
    return result


def canonical_kernel(k: n.Kernel) -> n.Kernel:
    """The kernel with its local names numbered and its labels gone."""
    order = [*(a.name for a in k.grid), *bound_names(k.body)]
    made = rename(k, {old: f"_{i}" for i, old in enumerate(order)})
    assert isinstance(made, n.Kernel)
    return without_labels(made)


def without_labels(k: n.Kernel) -> n.Kernel:
    """The kernel with labels and origins removed."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, (n.Stmt, n.Kernel)) and (new.label or new.origin):
            return replace(new, label=None, origin=None)  # type: ignore[type-var]  # every Stmt is a dataclass
        return new
    result: n.Kernel = transform(k, leave)
    return result


def canonical(p: n.Program) -> n.Program:
    """The program in alpha-normal form, without labels."""
    functions = []
    for f in p.functions:
        order = [*(x.name for x in f.params), *bound_names(f.body)]
        functions.append(rename(f, {old: f"_{i}" for i, old in enumerate(order)}))
    return replace(p, kernels=tuple(canonical_kernel(k) for k in p.kernels), functions=tuple(functions))


def alpha_equal(a: n.Program, b: n.Program) -> bool:
    """Equal up to local names and labels."""
    return canonical(a) == canonical(b)


def content_hash(p: n.Program) -> str:
    """sha256, in hex, of the text of the alpha-normal form (the schema version is its first line)."""
    return hashlib.sha256(program_text(canonical(p)).encode()).hexdigest()
