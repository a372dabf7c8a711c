"""What the tests of every frontend ask of what was read."""
from __future__ import annotations

from kir.ir import nodes as n
from kir.ir.visit import statements


def opaque_statements(program: n.Program) -> list[n.Opaque]:
    """What was not understood."""
    return [s for k in program.kernels for s in statements(k.body) if isinstance(s, n.Opaque)]


def opaque(program: n.Program) -> list[str]:
    """The reasons of what was not understood."""
    return [s.reason for s in opaque_statements(program)]
