"""What is computed while a product of tensor cores is in flight, and must not be put off until it is waited for.

Between a wait that leaves a group of wgmma pending and the next wait, a thread computes beside the tensor cores. To the compiler that arithmetic may as
well follow the second wait, which it then often does, and nothing overlaps. An empty asm statement that takes the values as operands keeps them before
the waits. (PTX ISA, "wgmma.wait_group"; what ptxas 13.0 does with it was read from its SASS.)
"""
from __future__ import annotations

import math

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import F32
from kir.ir.visit import walk


def computed_before(block: n.Block) -> dict[int, tuple[n.Buffer, ...]]:
    """By the number of a statement, the arrays of f32 in registers whose elements are to be known before it: those that a block declares after a
    wait that leaves something pending, at the first of the waits that follow; but none that a product is about to write, which are not known before."""
    out: dict[int, tuple[n.Buffer, ...]] = {}
    since: int | None = None
    for i, s in enumerate(block):
        if not _calls(s, "wgmma_wait"):
            continue
        first = i
        while first and _calls(block[first - 1], "mbar_wait"):
            first -= 1
        if since is not None:
            between = block[since:first]
            written = {a.buffer.name for x in between for c in walk(x) if isinstance(c, n.Call) and c.fn == "wgmma" for a in c.args if isinstance(a, n.Region)}
            arrays = tuple(x.buffer for x in between if isinstance(x, n.Alloc) and _in_registers(x.buffer) and x.buffer.name not in written)
            if arrays:
                out[first] = arrays
        assert isinstance(s, n.Eval)
        pending = s.call.args[0]
        since = i + 1 if isinstance(pending, n.Expr) and int_value(pending) else None
    return out


def size_of(b: n.Buffer) -> int:
    """The elements of such an array."""
    return math.prod(int_value(d) or 0 for d in b.shape)


def _in_registers(b: n.Buffer) -> bool:
    return b.space == "register" and b.dtype == F32 and len(b.shape) > 0 and size_of(b) > 0


def _calls(s: n.Stmt, fn: str) -> bool:
    return isinstance(s, n.Eval) and s.call.fn == fn
