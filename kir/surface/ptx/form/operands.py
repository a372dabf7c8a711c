"""What stands behind the operands of an asm statement: expressions, places, descriptors, matrices."""
from __future__ import annotations

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import DType


@dataclass(frozen=True)
class Pointer:
    """The address of an element of a buffer (a region of scalar indices), `bytes` away from it."""

    at: n.Region
    bytes: n.Expr | int = 0


@dataclass(frozen=True)
class Descriptor:
    """The address of a tensor map; `buffer` is the tensor that it describes."""

    map: n.TensorMap
    buffer: n.Buffer


@dataclass(frozen=True)
class Matrix:
    """A descriptor of a matrix in shared memory, as wgmma takes it: where the matrix begins (before any swizzle), and the bits above those of
    the address (PTX ISA, "Matrix Descriptor Format")."""

    at: Pointer
    bits: int


Held = n.Expr | Pointer | Descriptor | Matrix
"""What a register can hold."""


@dataclass(frozen=True)
class AsmOperand:
    """An operand of an asm statement: its constraint (`=r`, `+f`, `l`, `n`) and what an input holds. The result of an output is given
    in `dtype` (bits reinterpreted), or as the last instruction leaves it. `place` is the register of the program that it stands in, where
    an asynchronous instruction goes on using it."""

    constraint: str
    value: Held | None = None
    dtype: DType | None = None
    place: n.Region | None = None

    @property
    def letter(self) -> str:
        """The constraint without `=`, `+`, `&`."""
        return self.constraint.strip("=+&% ")

    @property
    def is_output(self) -> bool:
        """Written by the asm."""
        return self.constraint[:1] in "=+"

    @property
    def is_input(self) -> bool:
        """Read by the asm."""
        return self.constraint[:1] != "="
