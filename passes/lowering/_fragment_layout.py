"""How the threads of a CTA hold a tile in registers, as index expressions: which element each register of a thread is.

A `Holding` is the symbolic form of the tables in `kir.ir.layouts.layout_tables`: `place` gives the element that register `slot` of the atom numbered
`at` holds, as an expression of the thread's number. Dense tiles of threads are `linear`, fragments of mma.sync are `matrix`.
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import transform

Exprs = tuple[n.Expr, ...]
Role = Literal["a", "b", "c"]
WARP = 32


def lane_of(t: n.Expr, threads: int) -> n.Expr:
    """The number of a thread within its warp."""
    return t if threads <= WARP else build.mod(t, build.const(WARP))


def with_warp(item: n.Node, warp: str, t: n.Expr, threads: int) -> n.Node:
    """`item` with the number of the warp written by that of the thread."""
    one = build.const(0) if threads <= WARP else build.floordiv(t, WARP)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(old, n.Binary) and old.op == "floordiv" and isinstance(old.a, n.Var) and old.a.name == warp:
            by = build.int_value(old.b)
            if by is not None:
                return build.const(0) if threads <= WARP else build.floordiv(t, by * WARP)
        return one if isinstance(new, n.Var) and new.name == warp else new
    made: n.Node = transform(item, leave)
    return made


@dataclass(frozen=True)
class Holding:
    """Registers of one thread for a tile of `shape`: an array `grid` of atoms (unit extents left out) of `slots` elements each (none for
    1); `width` neighboring slots are neighbors in the tile's last axis."""

    shape: tuple[int, ...]
    grid: tuple[int, ...]
    slots: int = 1
    width: int = 1

    @property
    def dims(self) -> tuple[int, ...]:
        """The extents of the register array."""
        return (*(g for g in self.grid if g != 1), *((self.slots,) if self.slots > 1 else ()))

    def index(self, at: Exprs, slot: int, count: int = 1) -> tuple[n.Expr | n.Span, ...]:
        """The index into the register array of `count` slots of an atom, from `slot` on."""
        out: list[n.Expr | n.Span] = [i for i, g in zip(at, self.grid, strict=True) if g != 1]
        if self.slots > 1:
            out.append(build.const(slot) if count == 1 else build.span(slot, count))
        return tuple(out)

    def register(self, name: str, like: n.Buffer) -> n.Buffer:
        """The register array that stands for a fragment."""
        return n.Buffer(name, like.dtype, tuple(build.const(d) for d in self.dims), "register")

    def place(self, t: n.Expr, at: Exprs, slot: int) -> Exprs:
        """The element of the tile that a register holds."""
        raise TypeError(type(self).__name__)

    def guard(self, t: n.Expr, at: Exprs) -> n.Expr | None:
        """When the register holds an element at all; None for always."""
        return None


@dataclass(frozen=True)
class Whole(Holding):
    """A tile that one thread holds alone."""

    def place(self, t: n.Expr, at: Exprs, slot: int) -> Exprs:
        """The atom's own number."""
        return at


def whole(shape: tuple[int, ...]) -> Holding:
    """The tile as the array of one thread."""
    return Whole(shape, shape)


@dataclass(frozen=True)
class Linear(Holding):
    """Chunks of `chunk` neighbors, distributed over `threads` threads in row-major order."""

    threads: int = 1
    chunk: int = 1

    @property
    def columns(self) -> int:
        """Chunks of one row."""
        return self.shape[-1] // self.chunk

    def chunk_at(self, t: n.Expr, at: Exprs) -> Exprs:
        """The first element of a thread's chunk."""
        rows, column = self._row_and_column(t, at)
        leading: list[n.Expr] = []
        for k in range(len(self.shape) - 1):
            below = math.prod(self.shape[k + 1:-1])
            part = rows if below == 1 else build.floordiv(rows, below)
            leading.append(part if k == 0 else build.mod(part, build.const(self.shape[k])))
        return (*leading, build.mul(column, self.chunk))

    def _row_and_column(self, t: n.Expr, at: Exprs) -> tuple[n.Expr, n.Expr]:
        columns = self.columns
        if len(self.grid) == 2:
            return at[0], build.add(build.mul(at[1], self.threads), t)
        if self.threads % columns == 0:
            step = self.threads // columns
            row = build.add(build.mul(at[0], step), t if columns == 1 else build.floordiv(t, columns))
            return row, build.const(0) if columns == 1 else t if step == 1 else build.mod(t, build.const(columns))
        flat = build.add(build.mul(at[0], self.threads), t)
        return build.floordiv(flat, columns), build.mod(flat, build.const(columns))

    def place(self, t: n.Expr, at: Exprs, slot: int) -> Exprs:
        """The chunk's element number `slot`."""
        first = self.chunk_at(t, at)
        return (*first[:-1], build.add(first[-1], slot))

    def guard(self, t: n.Expr, at: Exprs) -> n.Expr | None:
        """Inside the tile, where the threads do not divide it."""
        chunks = math.prod(self.shape) // self.chunk
        if chunks % self.threads == 0:
            return None
        return build.compare("lt", build.add(build.mul(at[0], self.threads), t), chunks)


def linear(shape: tuple[int, ...], threads: int, chunk: int = 1) -> Holding | None:
    """Chunks of a tile distributed in row-major order; None where the chunks do not divide its rows."""
    if shape[-1] % chunk:
        return None
    if threads == 1 and chunk == 1:
        return whole(shape)
    columns, rows = shape[-1] // chunk, math.prod(shape[:-1])
    grid = (rows, columns // threads) if columns > threads and columns % threads == 0 else (-(-rows * columns // threads),)
    return Linear(shape, grid, chunk, chunk, threads, chunk)


@dataclass(frozen=True)
class Matrix(Holding):
    """Atoms of mma.m16n8k<k> for operands of `bits` bits. `warps` along rows and columns hold a dense part each, numbered along the rows or
    `down` the columns; (0, 0): one warp alone holds the tile."""

    role: Role = "c"
    bits: int = 32
    k: int = 16
    warps: tuple[int, int] = (0, 0)
    threads: int = WARP
    down: bool = False

    @property
    def part(self) -> tuple[int, int]:
        """What one warp holds."""
        rows, columns = self.shape
        return rows // max(1, self.warps[0]), columns // max(1, self.warps[1])

    @property
    def atom(self) -> tuple[int, int]:
        """Rows and columns of an atom."""
        return {"a": (16, self.k), "b": (self.k, 8), "c": (16, 8)}[self.role]

    def starts(self, warp: n.Expr) -> Exprs:
        """First row and column of a warp's part."""
        rows, columns = self.warps
        if self.down and rows > 1 and columns > 1:
            return build.mul(build.mod(warp, build.const(rows)), self.part[0]), build.mul(build.floordiv(warp, rows), self.part[1])
        row = build.const(0) if rows <= 1 else build.floordiv(warp, columns)
        column = build.const(0) if columns <= 1 else warp if rows <= 1 else build.mod(warp, build.const(columns))
        return build.mul(row, self.part[0]), build.mul(column, self.part[1])

    def within(self, t: n.Expr, at: Exprs, slot: int) -> Exprs:
        """The element within the warp's part."""
        lane = lane_of(t, self.threads)
        group, thread, per = build.floordiv(lane, 4), build.mod(lane, build.const(4)), 32 // self.bits
        if self.role == "c":
            row, column = build.add(group, 8 * (slot // 2)), build.add(build.mul(thread, 2), slot % 2)
        elif self.role == "a":
            row = build.add(group, 8 * (slot // per % 2))
            column = build.add(build.mul(thread, per), slot % per + 4 * per * (slot // (2 * per)))
        else:
            row, column = build.add(build.mul(thread, per), slot % per + 4 * per * (slot // per)), group
        return tuple(build.add(x, build.mul(i, size)) for x, i, size in zip((row, column), at, self.atom, strict=True))

    def place(self, t: n.Expr, at: Exprs, slot: int) -> Exprs:
        """The element within the whole tile."""
        own = self.within(t, at, slot)
        if self.warps == (0, 0):
            return own
        warp = n.Var("%warp", I32)
        starts = (with_warp(x, warp.name, t, self.threads) for x in self.starts(warp))
        return tuple(build.add(x, s) for x, s in zip(own, starts, strict=True) if isinstance(s, n.Expr))


@dataclass(frozen=True)
class Operand(Holding):
    """What a thread needs of an operand to do its part of a product by multiply-adds: all of the rows (axis 0) or columns (axis 1) in
    which it holds elements of the accumulator `of`. Neighboring threads hold the same elements again."""

    of: Matrix | None = None
    axis: int = 0

    def place(self, t: n.Expr, at: Exprs, slot: int) -> Exprs:
        """Row (or column) number `slot` of an atom, at a depth."""
        assert self.of is not None
        if self.axis == 0:
            return self.of.within(t, (at[0], build.const(0)), 2 * slot)[0], at[1]
        return at[0], self.of.within(t, (build.const(0), at[1]), slot)[1]


def operand(shape: tuple[int, ...], axis: int, of: Matrix) -> Holding | None:
    """The operand of a product whose accumulator one warp holds as `of`; None where the shapes do not meet."""
    if len(shape) != 2 or shape[axis] != of.part[axis]:
        return None
    atoms = of.grid[axis]
    own = replace(of, shape=of.part, warps=(0, 0))
    return Operand((shape[0], shape[1]), (atoms, shape[1]) if axis == 0 else (shape[0], atoms), 2, 1, own, axis)


def matrix(shape: tuple[int, ...], role: Role, bits: int, k: int, warps: tuple[int, int], threads: int, down: bool = False) -> Holding | None:
    """Atoms of mma.m16n8k<k> over a tile; None where they do not fill it. `bits` are those of an operand."""
    rows, columns = {"a": (16, k), "b": (k, 8), "c": (16, 8)}[role]
    if len(shape) != 2:
        return None
    part = [d // max(1, w) for d, w in zip(shape, warps, strict=True)]
    if any(d % max(1, w) or p % a for d, w, p, a in zip(shape, warps, part, (rows, columns), strict=True)):
        return None
    slots = rows * columns // WARP
    width = 2 if role == "c" else min(slots, 32 // bits) if role == "a" else 1
    return Matrix((shape[0], shape[1]), (part[0] // rows, part[1] // columns), slots, width, role, bits, k, warps, threads, down)
