"""Programs up to where memory is declared: before its first use in a block, an allocation or a view may stand anywhere."""
from __future__ import annotations

from operator import is_not

from kir.ir import nodes as n
from kir.ir.paths import child_blocks, with_block
from kir.ir.visit import names_read, once, updated, walk


def declared_first(program: n.Program) -> n.Program:
    """The program with the allocations and then the views of each block at its start, in the order in which the block uses them. What is
    declared with a value that is no literal, or at a place that the block computes, stays where it is."""
    return once(program, "_declared_first", lambda: updated(program, kernels=tuple(updated(k, body=_block(k.body)) for k in program.kernels)))


def _block(block: n.Block) -> n.Block:
    computed = {x for s in block if isinstance(s, n.Let) for x in s.names}
    memory = [s for s in block if isinstance(s, n.Alloc) and (s.init is None or isinstance(s.init, n.Const))]
    views = [s for s in block if isinstance(s, n.View) and s.fill is None and not names_read(s) & computed]
    seen_as = {s.buffer.name: s.at.buffer.name for s in views}
    names = {s.buffer.name for s in memory} | {s.buffer.name for s in views}
    used: dict[str, None] = {}
    rest: list[n.Stmt] = []
    for s in block:
        if isinstance(s, (n.Alloc, n.View)) and s.buffer.name in names:
            continue
        for name in _buffers(s) if names else ():
            while name in names:
                used.setdefault(name)
                name = seen_as.get(name, "")
        for steps, inner in child_blocks(s):
            if (ordered := _block(inner)) is not inner:
                s = with_block(s, steps, ordered)
        rest.append(s)
    order = {name: i for i, name in enumerate(used)}

    def place(s: n.Alloc | n.View) -> int:
        return order.get(s.buffer.name, len(order))
    made = (*sorted(memory, key=place), *sorted(views, key=place), *rest)
    return made if any(map(is_not, made, block)) else block


def _buffers(s: n.Stmt) -> tuple[str, ...]:
    """The buffers that a statement names, in reading order; worked out once for each statement."""
    return once(s, "_buffers_in_order", lambda: tuple(dict.fromkeys(x.name for x in walk(s) if isinstance(x, n.Buffer))))
