"""Layouts as grids: which bank of shared memory each piece of a buffer lies in, and which thread's register holds which element of a fragment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import product

import numpy as np

from kir.analysis.tiles.fragments import STILL, Digit, Spread, spread
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.layouts.layout_tables import BANK_BYTES, BANKS, WARP, byte_address, wavefronts
from kir.ir.types import DTYPES, F16, F32, DType
from kir.ir.visit import walk

ROWS, COLUMNS = 16, 32
"""The most rows and columns of a grid that are drawn."""
DEPTHS = {"m16n8k8": 8, "m16n8k16": 16, "m16n8k32": 32}
"""Columns of operand A of the shapes of mma."""
VECTOR = 16
"""Bytes of the widest access of a lane."""


@dataclass(frozen=True)
class Cell:
    """A square of a grid: what stands in it, its hue (0 to 1), and what a pointer resting on it is told."""

    text: str
    hue: float
    title: str


@dataclass(frozen=True)
class Grid:
    """A drawn layout. `notes` say what follows from it; `cut` that the buffer goes on beyond what is drawn."""

    title: str
    kind: str
    cells: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    cut: bool = False
    wide: int = field(default=0)

    @property
    def columns(self) -> int:
        """Columns that are drawn."""
        return len(self.cells[0]) if self.cells else 0


def layouts(program: n.Program) -> tuple[Grid, ...]:
    """The grids of a program: its shared buffers, its fragments, and the fragments of the matrix instructions that it issues; each once."""
    found: dict[str, Grid] = {}
    for kernel in program.kernels:
        for node in walk(kernel):
            for grid in _of(node):
                found.setdefault(grid.title, grid)
    return tuple(found.values())


def _of(node: object) -> Iterator[Grid]:
    match node:
        case n.Alloc(buffer=b) if isinstance(b.dtype, DType):
            shape = tuple(int_value(d) or 0 for d in b.shape)
            if b.space == "shared" and all(shape) and b.dtype.bits >= 8:
                yield from _shared(b, shape)
            elif b.space == "fragment" and b.layout is not None and b.layout.name != "auto" and len(shape) == 2 and all(shape):
                yield from _fragment(f"{b.name}: {b.dtype}[{shape[0]}, {shape[1]}]", b.layout, shape, b.dtype)
        case n.Mma(acc=acc, via="wgmma") if len(acc.buffer.shape) == 2 and (wide := int_value(acc.buffer.shape[1])):
            yield from _product(wide)
        case n.Call():
            yield from _instruction(node)


def _instruction(call: n.Call) -> Iterator[Grid]:
    shape = str(dict(call.attrs).get("shape", ""))
    if call.fn == "mma_sync" and (depth := DEPTHS.get(shape)):
        dtype = {8: F32, 16: F16, 32: DTYPES["i8"]}[depth]
        yield from _fragment(f"mma {shape}, operand A (16 x {depth})", n.Layout(f"mma_m16n8k{depth}_a", ()), (16, depth), dtype)
        yield from _fragment(f"mma {shape}, operand B ({depth} x 8)", n.Layout(f"mma_m16n8k{depth}_b", ()), (depth, 8), dtype)
        yield from _fragment(f"mma {shape}, accumulator (16 x 8)", n.Layout("mma_c", ()), (16, 8), F32)
    elif call.fn == "wgmma" and shape.startswith("m64n"):
        yield from _product(int(shape.removeprefix("m64n").partition("k")[0]))


def _product(wide: int) -> Iterator[Grid]:
    """The accumulator of a warpgroup's product, `wide` columns of it."""
    yield from _fragment(f"wgmma, accumulator (64 x {wide})", n.Layout("wgmma_acc", (wide,)), (64, wide), F32)


# ------------------------------------------------------------------------------------------------------------------- shared memory

def _shared(b: n.Buffer, shape: tuple[int, ...]) -> Iterator[Grid]:
    """The banks of the last two axes of a buffer; of one with one axis, rows of a bank each."""
    dtype, size = b.dtype, b.dtype.bytes
    *outer, rows, columns = (1, *shape) if len(shape) == 1 else shape
    if len(shape) == 1 and columns > BANKS * BANK_BYTES // size:
        return
    lead = (0,) * len(outer)
    flat = len(shape) == 1
    steps = tuple(map(int_value, b.strides or ()))
    if None in steps:
        return
    placed = b.layout or (n.Layout("strides", tuple(step or 0 for step in steps)) if steps else None)

    def at(row: object, column: object) -> object:
        return byte_address(placed, shape, (column,) if flat else (*lead, row, column), dtype)
    try:
        piece = size
        while piece < VECTOR and columns * size // piece > COLUMNS and columns % (2 * piece // size) == 0:
            piece *= 2
        step = piece // size
        across = np.arange(0, min(columns, COLUMNS * step), step)
        down = np.arange(min(rows, ROWS))
        table = np.broadcast_to(np.asarray(at(down[:, None], across[None])), (len(down), len(across)))
        notes = tuple(_passes(at, rows, columns, size))
    except KirError:
        return
    banks = table // BANK_BYTES % BANKS
    cells = tuple(tuple(Cell(str(banks[i, k]), float(banks[i, k]) / BANKS, f"[{r}, {c}]: byte {table[i, k]}, bank {banks[i, k]}")
                        for k, c in enumerate(across)) for i, r in enumerate(down))
    layout = f" {placed.name}({', '.join(map(str, placed.args))})" if placed is not None else ""
    each = f"a square is {piece} bytes, its number the bank" if piece > BANK_BYTES else "numbers are banks"
    yield Grid(f"{b.name}: shared {dtype}[{', '.join(map(str, shape))}]{layout}", "banks", cells, (each, *notes),
               len(down) < rows or len(across) * step < columns)


def _passes(at: object, rows: int, columns: int, size: int) -> Iterator[str]:
    """How many passes through shared memory a warp takes along a row, down a column, and for a matrix of eight rows as ldmatrix reads it."""
    assert callable(at)
    lanes = np.arange(WARP)
    if columns >= WARP:
        yield _said("32 lanes along a row", wavefronts(at(0, lanes), size), size)
    if rows >= WARP:
        yield _said("32 lanes down a column", wavefronts(at(lanes, 0), size), size)
    if rows >= 8 and columns * size >= VECTOR and size <= 2:
        yield _said("8 rows of 16 bytes (one matrix of ldmatrix)", wavefronts(np.asarray(at(np.arange(8), 0)), VECTOR), VECTOR, 8)


def _said(what: str, passes: int, size: int, lanes: int = WARP) -> str:
    least = max(1, lanes * size // (BANKS * BANK_BYTES)) if size > BANK_BYTES else 1
    return f"{what}: {passes} pass{'es' if passes != 1 else ''}, {'no conflict' if passes <= least else f'{passes - least} more than without conflicts'}"


# ----------------------------------------------------------------------------------------------------------------------- fragments

def _fragment(title: str, layout: n.Layout, shape: tuple[int, ...], dtype: DType) -> Iterator[Grid]:
    try:
        made = spread(layout, shape, dtype)
    except KirError:
        return
    owner = _owners(made)
    drawn = owner[:ROWS, :COLUMNS // 2]
    cells = tuple(tuple(Cell(f"{t}.{s}", t % WARP / WARP, f"[{r}, {c}]: thread {t}, register {s}") if t >= 0 else Cell("", 0.0, f"[{r}, {c}]")
                        for c, (t, s) in enumerate(row)) for r, row in enumerate(drawn.tolist()))
    each = "a square is an element, its numbers the thread and the thread's register"
    yield Grid(title, "threads", cells, (each, f"{made.team} threads, {made.size} elements each"), drawn.shape[:2] != owner.shape[:2], 1)


def _owners(made: Spread) -> np.ndarray:
    """(thread, slot) of each element of a tile of two axes, of the first that holds it; -1 for one that nobody holds. An array [rows, columns, 2]."""
    owner = np.full((*made.shape, 2), -1)
    threads, slots = _places(made.threads), _places(made.slots)
    for slot in range(len(slots) - 1, -1, -1):
        where = threads + slots[slot]
        for thread in range(len(threads) - 1, -1, -1):
            owner[where[thread, 0], where[thread, 1]] = thread, slot
    return owner


def _places(digits: tuple[Digit, ...]) -> np.ndarray:
    """What each number adds to the index of the element, an array [numbers, 2]; the first digit is the fastest."""
    out = [[0, 0]] if not digits else []
    for values in product(*(range(d.extent) for d in reversed(digits))):
        place = [0, 0]
        for d, value in zip(reversed(digits), values, strict=True):
            if d.axis != STILL:
                place[d.axis] += d.step * value
        out.append(place)
    return np.asarray(out)
