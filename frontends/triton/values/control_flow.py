"""Where control goes on after statements, and which statements return."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from .values import Value

Flow = object
"""What a block leaves with: NEXT, STOP (it ended by a jump in the IR), or the value that a function returns."""
NEXT, STOP = object(), object()


class Returned:
    """A function's result."""

    def __init__(self, value: Value) -> None:
        self.value = value


def orelse_of(s: cst.If) -> Sequence[cst.CSTNode]:
    """The statements of the else-arm."""
    if s.orelse is None:
        return ()
    return [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body


def contains_return(s: cst.CSTNode) -> bool:
    """Whether a return stands in a statement."""
    match s:
        case cst.SimpleStatementLine() | cst.SimpleStatementSuite():
            return any(isinstance(x, cst.Return) for x in s.body)
        case cst.If():
            return any(map(contains_return, s.body.body)) or any(map(contains_return, orelse_of(s)))
        case cst.For() | cst.While() | cst.With():
            return any(map(contains_return, s.body.body))
        case _:
            return False
