"""Tidying what was read: buffers that never change become lets, names that nothing reads go."""
from __future__ import annotations

from collections.abc import Sequence

from kir.ir import nodes as n
from kir.ir.promote import promoted


def cleaned(body: Sequence[n.Stmt]) -> list[n.Stmt]:
    """The body with immutable buffers as lets and without dead pure statements."""
    return list(promoted(tuple(body)))
