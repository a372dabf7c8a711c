"""Right operands that TileLang 0.1.15 multiplies wrongly on an H200: tiles in registers, in a pipelined loop of more than 128 threads. One to two percent of a
result's elements were wrong in all of three kernels; with the operand in shared memory, without stages, and with 128 threads all were right.
"""
from __future__ import annotations

from collections.abc import Iterator

from kir.base.diagnostic import Diagnostic
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.visit import statements

RIGHT = 128
"""Threads up to which they are right."""


def operands_in_registers(k: n.Kernel) -> Iterator[Diagnostic]:
    """A refusal for each product of such an operand."""
    threads = int_value(k.threads)
    if threads is not None and threads <= RIGHT:
        return
    for loop in (s for s in statements(k.body) if isinstance(s, n.For) and s.kind == "pipelined" and dict(s.attrs).get("stages") != 0):
        for s in (s for s in statements(loop.body) if isinstance(s, n.Mma) and s.via != "fma"):
            place = s.b.args[0] if isinstance(s.b, n.Call) and s.b.fn == "trans" else s.b
            if isinstance(place, n.Load) and place.at.buffer.space == "fragment":  # what has no place gets one in shared memory
                yield Diagnostic("KIR-B306", "a right operand in registers, in a pipelined loop of more than 128 threads: TileLang makes wrong products of it",
                                 anchor=k.name, needs="the operand in shared memory (stage-shared)")


__all__ = ["operands_in_registers"]
