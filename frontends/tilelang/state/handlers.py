"""Which function reads which form: tables that every part of the frontend asks through, filled in by `language`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import libcst as cst

from kir.base.dataclass import dataclass

from ..values.values import Frame, Returned, Scope, Signature, Value

R = TypeVar("R")
"""The state of reading, which stands above its tables."""
Rest: TypeAlias = "Sequence[cst.CSTNode] | None"
"""The statements from behind one to the end of its function; None inside a loop, where they are not all that follows."""


@dataclass(frozen=True)
class Handlers(Generic[R]):
    """Functions by the class of the node that they read."""

    expressions: Mapping[type[cst.CSTNode], Callable[[R, Scope, Any], Value]]
    """Of state, scope and expression: its value."""
    statements: Mapping[type[cst.CSTNode], Callable[[R, Frame, Any, Rest], Returned | None]]
    """Of state, frame, compound statement and the statements after it: what it returns, if it ends the function."""
    simple_statement: Callable[[R, Frame, cst.BaseSmallStatement], Returned | None]
    intrinsic: Callable[[R, str, Signature, cst.CSTNode], Value]
    """`T.name(..)`, by its name."""
