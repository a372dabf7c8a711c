"""Programs up to where memory is declared: before its first use in a block, an allocation may stand anywhere."""
from __future__ import annotations

from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.paths import child_blocks, with_block
from kir.ir.visit import walk


def declared_first(program: n.Program) -> n.Program:
    """The program with the allocations of each block at its start, in the order in which the block uses them. Those with an initial value
    that is no literal stay where they are."""
    return replace(program, kernels=tuple(replace(k, body=_block(k.body)) for k in program.kernels))


def _block(block: n.Block) -> n.Block:
    free = [s for s in block if isinstance(s, n.Alloc) and (s.init is None or isinstance(s.init, n.Const))]
    names = {s.buffer.name for s in free}
    used: dict[str, None] = {}
    rest: list[n.Stmt] = []
    for s in block:
        if isinstance(s, n.Alloc) and s.buffer.name in names:
            continue
        for x in walk(s):
            if isinstance(x, n.Buffer) and x.name in names:
                used.setdefault(x.name)
        for steps, inner in child_blocks(s):
            s = with_block(s, steps, _block(inner))
        rest.append(s)
    order = {name: i for i, name in enumerate(used)}
    return (*sorted(free, key=lambda s: order.get(s.buffer.name, len(order))), *rest)
