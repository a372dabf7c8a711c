"""What the code of a loop is made of, and what its caller provides for it."""
from __future__ import annotations

from dataclasses import field

from kir.base.dataclass import dataclass
from kir.interp.native.scalars import Value
from kir.interp.state.coverage import Kind
from kir.ir import nodes as n
from kir.ir.types import DType


@dataclass
class Outside:
    """An operation that NumPy does: on elements of `operands`, giving elements of `result`."""

    node: n.Expr
    operands: tuple[DType, ...]
    result: DType


@dataclass
class Slot:
    """A value of every lane, or of all lanes alike, in scratch memory; or (`at`) one that is held in a register of all."""

    dtype: DType
    uniform: bool
    number: int = 0
    at: Value = None
    defined: Slot | None = None
    """Whether it is, where that is asked."""


@dataclass
class Emitted:
    """The module's text, and what its caller provides: scratch slots of 8 bytes a lane, sites of coverage, spaces of bytes, and callbacks."""

    text: str
    slots: int
    sites: list[tuple[Kind, int]]
    """Statements by their number in the loop, in reading order: a loop of the same text elsewhere has others."""
    loops: list[int]
    counted: list[str]
    outside: list[Outside] = field(default_factory=list)
