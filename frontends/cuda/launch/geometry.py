"""The launch as a kernel sees it."""

from __future__ import annotations

from collections.abc import Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.names import own_words
from kir.ir.types import I32

from ..source.syntax import declared_name, text
from ..symbols.symbols import Function

AXES = "xyz"
BLOCK = ("threads_x", "threads_y", "threads_z")
OWN = ("t", "shared_bytes", *BLOCK, *(f"block_{a}" for a in AXES), *(f"grid_{k}" for k in range(3)))
"""KIR's own words for a launch of CUDA: the thread's number, bytes of dynamic shared memory, extents of a CTA, places and extents of the grid."""
WORDS = {word: word for word in OWN}
"""What they are called where nothing else has their names."""


def words_of(fn: Function) -> dict[str, str]:
    """What KIR's own words are called beside the parameters of a kernel."""
    return own_words(callers(fn), OWN)


def callers(fn: Function) -> tuple[str, ...]:
    """The names that callers of a kernel know: its parameters and template parameters."""
    named = (declared_name(d) for q in fn.parameters() if (d := q.child_by_field_name("declarator")) is not None)
    return (*(text(x) for x in named if x is not None), *(p.name for p in fn.params or ()))


class Geometry:
    """The launch as the kernel sees it: the thread's number, the CTA's block and grid, and which axes of the grid are used."""

    def __init__(self, block: tuple[n.Expr, n.Expr, n.Expr], words: Mapping[str, str] = WORDS) -> None:
        self.block, self.words = block, words
        self.number = n.Var(words["t"], I32)
        """The variable of the loop over threads."""
        self.thread: n.Expr = build.const(0) if all(build.is_const(b, 1) for b in block) else self.number
        self.grid_axes: set[int] = set()
        self.grid_extents: set[int] = set()

    def place(self, axis: int) -> n.Var:
        """The CTA's place along an axis of the grid."""
        return n.Var(self.words[f"block_{AXES[axis]}"], I32)

    def extent(self, axis: int) -> n.Var:
        """How many CTAs there are along an axis of the grid."""
        return n.Var(self.words[f"grid_{axis}"], I32)

    def component(self, of: str, axis: int) -> n.Expr:
        """One component as i32."""
        x, y, z = self.block
        one = build.is_const(y, 1) and build.is_const(z, 1)
        match of:
            case "blockDim":
                return self.block[axis]
            case "blockIdx":
                self.grid_axes.add(axis)
                return self.place(axis)
            case "gridDim":
                self.grid_extents.add(axis)
                return self.extent(axis)
            case _:
                if axis == 0:
                    return self.thread if one else build.mod(self.thread, x)
                if axis == 1:
                    if build.is_const(y, 1):
                        return build.const(0)
                    row = build.floordiv(self.thread, x)
                    return row if build.is_const(z, 1) else build.mod(row, y)
                return build.const(0) if build.is_const(z, 1) else build.floordiv(self.thread, build.mul(x, y))
