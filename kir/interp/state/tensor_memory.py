"""Tensor memory of a CTA (PTX ISA, "Tensor Memory"): 128 lanes of 512 columns of 32 bits, of which columns are allocated while a kernel runs.

An address has the lane in its upper 16 bits and the column in its lower ones. The four warps of a warpgroup each reach 32 lanes, so who touched
what is kept by quarter of the lanes and column.
"""
from __future__ import annotations

from dataclasses import field

import numpy as np

from kir.base.dataclass import dataclass
from kir.interp.numerics.number import Array
from kir.interp.state.frame import Frame
from kir.interp.state.memory import Memory
from kir.interp.state.shadow import Shadow
from kir.ir.nodes import Stmt

LANES, COLUMNS, LEAST, QUARTER = 128, 512, 32, 32
"""Rows and columns of a CTA's tensor memory; the fewest columns of an allocation; rows that a warp reaches."""


@dataclass(eq=False)
class Allocation:
    """Neighboring columns, and the statement that asked for them."""

    first: int
    columns: int
    site: Stmt | None


@dataclass(eq=False)
class TensorMemory:
    """That of the CTA in one lane of a frame, which is kept so that its identity stays its own."""

    root: Frame
    taken: list[Allocation] = field(default_factory=list)
    given_up: bool = False
    """Whether the CTA has said that it allocates no more."""
    cells: Array = field(init=False)
    """Bits [lane, column]."""
    valid: Array = field(init=False)
    """Which of them are defined."""
    memory: Memory = field(init=False)
    """What stands for it where accesses are compared."""

    def __post_init__(self) -> None:
        self.cells, self.valid = np.zeros((LANES, COLUMNS), np.uint32), np.zeros((LANES, COLUMNS), np.bool_)
        self.memory = Memory("tensor memory", "tensor", 1, 16, None)
        self.memory.shadow = Shadow(LANES // QUARTER * COLUMNS)

    def room(self, columns: int, last: bool) -> int | None:
        """The first, or last, place where so many columns are free; None where there is none."""
        starts = range(0, COLUMNS - columns + 1, LEAST)
        return next((at for at in (reversed(starts) if last else starts)
                     if all(at + columns <= x.first or x.first + x.columns <= at for x in self.taken)), None)

    def holds(self, first: int, columns: int) -> bool:
        """Whether some columns are all of one allocation."""
        return any(x.first <= first and first + columns <= x.first + x.columns for x in self.taken)

    def give_back(self, found: Allocation) -> None:
        """An allocation is no more: what it held is undefined, and nobody's."""
        self.taken.remove(found)
        self.valid[:, found.first:found.first + found.columns] = False
        if not self.taken:
            self.memory.shadow = Shadow(LANES // QUARTER * COLUMNS)


def granules(quarters: Array, first: int, columns: int) -> Array:
    """What stands for some columns of some quarters of the lanes."""
    out: Array = (quarters[:, None] * COLUMNS + np.arange(first, first + columns)).reshape(-1)
    return out
