"""The launch as a kernel sees it."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32

AXES = "xyz"


class Geometry:
    """The launch as the kernel sees it: the thread's number, the CTA's block and grid, and which axes of the grid are used."""

    def __init__(self, block: tuple[n.Expr, n.Expr, n.Expr]) -> None:
        self.block = block
        self.thread: n.Expr = build.const(0) if all(build.is_const(b, 1) for b in block) else n.Var("t", I32)
        self.grid_axes: set[int] = set()
        self.grid_extents: set[int] = set()

    def component(self, of: str, axis: int) -> n.Expr:
        """One component as i32."""
        x, y, z = self.block
        one = build.is_const(y, 1) and build.is_const(z, 1)
        match of:
            case "blockDim":
                return self.block[axis]
            case "blockIdx":
                self.grid_axes.add(axis)
                return n.Var(f"block_{AXES[axis]}", I32)
            case "gridDim":
                self.grid_extents.add(axis)
                return n.Var(f"grid_{axis}", I32)
            case _:
                if axis == 0:
                    return self.thread if one else build.mod(self.thread, x)
                if axis == 1:
                    if build.is_const(y, 1):
                        return build.const(0)
                    row = build.floordiv(self.thread, x)
                    return row if build.is_const(z, 1) else build.mod(row, y)
                return build.const(0) if build.is_const(z, 1) else build.floordiv(self.thread, build.mul(x, y))
