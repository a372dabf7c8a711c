"""Tiles of one grid axis in another size: every place, buffer and type that spells the size out takes the other one."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from kir.analysis.target.warpgroup import DESCRIBED
from kir.analysis.tiles.tile_axes import AxisClass, TileAxes
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType
from kir.ir.visit import children, names_read, statements, transform, walk


class CannotResize(Exception):
    """Why a tile has no other size."""


def tile_of(axis: n.Axis) -> int | None:
    """The size of the tiles that a grid axis numbers."""
    return build.int_value(axis.extent.b) if isinstance(axis.extent, n.Binary) and axis.extent.op == "ceildiv" else None


def resized(kernel: n.Kernel, axes: TileAxes, axis: int, now: int, then: n.Expr) -> n.Kernel:
    """The kernel with tiles of `then` (a literal or a meta) instead of `now` along a grid axis. Raises CannotResize."""
    number = kernel.grid[axis]
    for s in statements(kernel.body):
        if isinstance(s, n.Copy) and ("descriptor" in dict(s.attrs) or s.signal is not None):
            raise CannotResize("a tensor map, or the bytes that are waited for, spell the size out")
        if isinstance(s, n.Mma) and s.via in DESCRIBED:
            raise CannotResize(f"{s.via} has rows of its own number")
    lo = build.mul(build.var(number.name), now)
    found = axes.over(lambda c: c.extent == now and bool(c.sweeps) and not c.reduced and all(x == lo and step == 1 for x, step in c.sweeps))
    if len(found) != 1:
        raise CannotResize(f"{len(found)} axes run over the tiles of '{number.name}'")
    try:
        made = _Resize(axes, found[0], build.var(number.name), now, then).kernel(kernel)
    except KirError as bad:  # a value of the size stands where no axis of the tiles is known
        raise CannotResize(f"the size is spelled out where it is not known to be that of the tiles of '{number.name}': {bad.diagnostics[0].message}") from bad
    if any(_reads_elsewhere(s, number.name) for s in kernel.body):
        raise CannotResize(f"'{number.name}' is read where no tile begins, too: what a condition or an index says of it is of tiles of {now}")
    assert isinstance(number.extent, n.Binary)
    return replace(made, grid=tuple(replace(a, extent=build.ceildiv(number.extent.a, then)) if a == number else a for a in kernel.grid))


def _reads_elsewhere(node: n.Node, name: str) -> bool:
    """Whether a name is read, but for where a range of indices begins."""
    if isinstance(node, n.Span):
        return False
    return (isinstance(node, n.Var) and node.name == name) or any(_reads_elsewhere(x, name) for x in children(node))


@dataclass
class _Resize:
    axes: TileAxes
    cls: AxisClass
    number: n.Var
    now: int
    then: n.Expr

    def kernel(self, k: n.Kernel) -> n.Kernel:
        made: n.Kernel = replace(k, body=tuple(transform(s, self.leave) for s in k.body))
        return made

    def leave(self, old: n.Node, new: n.Node) -> Any:
        match new:
            case n.Var() if isinstance(new.of, TileType):
                return n.Var(new.name, TileType(new.of.dtype, self._shape(new.name, new.of.shape)))
            case n.Buffer() if new.space != "global":
                shape = self._shape(new.name, new.shape)
                laid_out = new.strides is not None or any(x.name == "strides" for x in walk(new) if isinstance(x, n.Layout))
                if laid_out and any(c is self.cls for c in self.axes.of(new.name)):
                    raise CannotResize(f"the layout of '{new.name}' spells the size out")
                return replace(new, shape=tuple(build.const(d) if isinstance(d, int) else d for d in shape))
            case n.Span() if isinstance(old, n.Span) and self.number.name in names_read(old.lo):
                return build.span(self._scaled(old.lo), self.then)
            case n.Region() if isinstance(old, n.Region) and old.index and self.cls in self.axes.of(old.buffer.name):
                raise CannotResize(f"a part of '{old.buffer.name}' is accessed, whose size is spelled out")
            case n.Call(fn="iota" | "broadcast" | "reshape"):
                assert isinstance(old, n.Call)
                if any(self.cls in self.axes.of_expr(x) for x in (old, *old.args[:1]) if isinstance(x, n.Expr)):
                    raise CannotResize(f"'{new.fn}' spells the size out")
                return new
            case _:
                return new

    def _shape(self, name: str, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        classes = self.axes.of(name)
        literal = build.int_value(self.then)
        then = self.then if literal is None else literal
        return tuple(then if k < len(classes) and classes[k] is self.cls else d for k, d in enumerate(shape))

    def _scaled(self, lo: n.Expr) -> n.Expr:
        terms = build.polynomial(lo)
        if terms != {(self.number,): self.now}:
            raise CannotResize("a place is not at a multiple of the tile")
        return build.mul(self.number, self.then)
