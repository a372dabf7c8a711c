"""Layouts as tables: every term of `kir.ir.layouts.layout` evaluated on NumPy arrays; finite layouts compose, invert and are compared by table."""
from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import did_you_mean, error
from kir.ir.layouts.layout import FRAGMENTS, arrangement, integers
from kir.ir.nodes import Layout
from kir.ir.types import DType

Ints = NDArray[np.int64]
WARP, BANKS, BANK_BYTES = 32, 32, 4


# ------------------------------------------------------------------------------------------------------------ memory layouts

def address(layout: Layout | None, shape: Sequence[int], index: Sequence[Any], dtype: DType) -> Ints:
    """Offset in elements of each index (one array or integer per dimension; they broadcast). Raises KirError KIR-L001 (no memory
    layout), KIR-L002 (wrong arguments), KIR-L003 (a swizzle that takes elements apart)."""
    strides, swizzles = arrangement(layout, shape)
    offset: Ints = np.zeros((), np.int64)
    for i, s in zip(index, strides, strict=True):
        offset = offset + np.asarray(i, np.int64) * s
    if not swizzles:
        return offset
    if dtype.bits < 8:
        raise error("KIR-L003", f"a swizzle of {dtype} elements would take bytes apart", needs="elements of at least one byte")
    if any(1 << base < dtype.bytes for _, base, _ in swizzles):
        raise error("KIR-L003", f"the swizzle moves units smaller than an element of {dtype}",
                    needs=f"a base of {dtype.bytes.bit_length() - 1} or more")
    at = offset * dtype.bytes
    for bits, base, shift in swizzles:
        at = swizzled(at, bits, base, shift)
    return at // dtype.bytes


def byte_address(layout: Layout | None, shape: Sequence[int], index: Sequence[Any], dtype: DType) -> Ints:
    """Offset in bytes of each index; as `address`."""
    return address(layout, shape, index, dtype) * dtype.bytes


def swizzled(at: Ints, bits: int, base: int, shift: int) -> Ints:
    """Byte offsets after swizzle(bits, base, shift); its own inverse."""
    return np.asarray(at ^ (((at >> (base + shift)) & ((1 << bits) - 1)) << base), np.int64)


# ------------------------------------------------------------------------------------------------------------ finite layouts

def table(layout: Layout | None, shape: Sequence[int], dtype: DType) -> Ints:
    """Element offsets of every index, an array of that shape."""
    return np.broadcast_to(address(layout, shape, np.ix_(*(np.arange(d) for d in shape)), dtype), tuple(shape)).astype(np.int64)


def is_bijective(offsets: Ints, size: int | None = None) -> bool:
    """Whether a table of offsets hits each of 0 .. size - 1 once (`size` is by default as many as there are elements)."""
    wanted = offsets.size if size is None else size
    flat = np.sort(offsets.reshape(-1))
    return flat.size == wanted and bool((flat == np.arange(wanted)).all())


def is_injective(offsets: Ints) -> bool:
    """Whether no two indices share an offset."""
    return np.unique(offsets).size == offsets.size


def compose(outer: Ints, inner: Ints) -> Ints:
    """The table `outer[inner]` (both as flat functions of 0 .. n - 1). Raises KirError KIR-L004 where `inner` leaves `outer`."""
    flat = outer.reshape(-1)
    if inner.size and (inner.min() < 0 or inner.max() >= flat.size):
        raise error("KIR-L004", f"the inner layout reaches {int(inner.max())}, and the outer one has {flat.size} elements")
    return np.asarray(flat[inner], np.int64)


def inverse(offsets: Ints) -> Ints:
    """The table that undoes a bijective one: flat index of each offset. Raises KirError KIR-L004 for one that is not bijective."""
    if not is_bijective(offsets):
        raise error("KIR-L004", "this layout has no inverse: it is no bijection", needs="each offset hit once")
    out: Ints = np.empty(offsets.size, np.int64)
    out[offsets.reshape(-1)] = np.arange(offsets.size)
    return out


def wavefronts(at: Ints, width: int = BANK_BYTES) -> int:
    """How many passes a warp's access to shared memory takes. `at`: byte address of each lane [lanes], `width`: bytes per lane (1 to
    16). Lanes that read one word share it; accesses of 8 and 16 bytes go by half and quarter warps."""
    at = np.asarray(at, np.int64).reshape(-1)
    group = len(at) if width <= 4 else max(1, WARP * BANK_BYTES // width)
    total = 0
    for start in range(0, len(at), group):
        words = np.unique((at[start:start + group, None] + np.arange(0, width, BANK_BYTES)) // BANK_BYTES)
        total += int(np.bincount(words % BANKS).max()) if len(words) else 0
    return total


def bank_conflicts(at: Ints, width: int = BANK_BYTES) -> int:
    """Passes beyond those that any access of that width takes."""
    lanes = np.asarray(at).size
    group = lanes if width <= 4 else max(1, WARP * BANK_BYTES // width)
    return wavefronts(at, width) - -(-lanes // group)


# ---------------------------------------------------------------------------------------------------------- fragment layouts

@dataclass(frozen=True, eq=False)
class Fragment:
    """Which element of a tile each register holds: `rows`, `cols` are arrays [threads, slots]."""

    shape: tuple[int, int]
    rows: Ints
    cols: Ints

    @property
    def threads(self) -> int:
        """Threads that take part."""
        return int(self.rows.shape[0])

    @property
    def slots(self) -> int:
        """Elements that each thread holds."""
        return int(self.rows.shape[1])

    def owner(self) -> tuple[Ints, Ints]:
        """(thread, slot) of each element, two arrays of the tile's shape; of several holders the last. Raises KirError KIR-L004 for an
        element that no thread holds."""
        thread: Ints = np.full(self.shape, -1, np.int64)
        slot: Ints = np.full(self.shape, -1, np.int64)
        thread[self.rows, self.cols] = np.arange(self.threads)[:, None]
        slot[self.rows, self.cols] = np.arange(self.slots)[None]
        if (thread < 0).any():
            raise error("KIR-L004", "some element of the tile is held by no thread")
        return thread, slot

    @property
    def is_partition(self) -> bool:
        """Whether each element is held exactly once."""
        m, n = self.shape
        return is_bijective(self.rows * n + self.cols, m * n)


def _lanes(slots: int) -> tuple[Ints, Ints, Ints]:
    """(lane // 4, lane % 4, slot): PTX's groupID, threadID_in_group and element index."""
    lane, i = np.arange(WARP, dtype=np.int64)[:, None], np.arange(slots, dtype=np.int64)[None]
    return lane // 4, lane % 4, i


def _fragment(shape: tuple[int, int], rows: Ints, cols: Ints) -> Fragment:
    both = np.broadcast_shapes(rows.shape, cols.shape)
    return Fragment(shape, _shared(np.broadcast_to(rows, both).astype(np.int64)), _shared(np.broadcast_to(cols, both).astype(np.int64)))


def _shared(table: Ints) -> Ints:
    """A table that many hold, so that none may write to it."""
    table.setflags(write=False)
    return table


@cache
def mma_a(k: int, bits: int) -> Fragment:
    """Operand A, 16 x k, of mma.m16n8k<k> with elements of `bits` bits (PTX ISA 9.7.14.5, "Matrix Fragments")."""
    per = 32 // bits
    group, thread, i = _lanes(16 * k // WARP)
    return _fragment((16, k), group + 8 * (i // per % 2), thread * per + i % per + 4 * per * (i // (2 * per)))


@cache
def mma_b(k: int, bits: int) -> Fragment:
    """Operand B, k x 8, of mma.m16n8k<k>."""
    per = 32 // bits
    group, thread, i = _lanes(8 * k // WARP)
    return _fragment((k, 8), thread * per + i % per + 4 * per * (i // per), group)


@cache
def mma_c() -> Fragment:
    """Accumulator, 16 x 8, of every mma.m16n8 shape."""
    group, thread, i = _lanes(4)
    return _fragment((16, 8), group + 8 * (i // 2), thread * 2 + i % 2)


@cache
def wgmma_acc(n: int) -> Fragment:
    """Accumulator, 64 x n, of wgmma.m64n<n>: 128 threads, warp w has rows 16 w .. (PTX ISA, "Matrix Fragments for wgmma")."""
    thread, i = np.arange(4 * WARP, dtype=np.int64)[:, None], np.arange(n // 2, dtype=np.int64)[None]
    lane = thread % WARP
    return _fragment((64, n), 16 * (thread // WARP) + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2)


def wgmma_a(k: int, bits: int) -> Fragment:
    """Operand A from registers, 64 x k, of wgmma: each warp holds its 16 rows as mma.m16n8k<k> does."""
    one = mma_a(k, bits)
    rows = np.concatenate([one.rows + 16 * w for w in range(4)])
    return _fragment((64, k), rows, np.concatenate([one.cols] * 4))


def blocked(shape: tuple[int, int], size: tuple[int, int], lanes: tuple[int, int], warps: tuple[int, int],
            order: tuple[int, int] = (1, 0)) -> Fragment:
    """`size` neighbors a thread, `lanes` threads and `warps` warps along each dimension, repeated over the tile; `order` lists the
    dimensions from the fastest. Raises KirError KIR-L002 where the tile is no multiple of what the threads cover."""
    block = [s * t * w for s, t, w in zip(size, lanes, warps, strict=True)]
    if any(d % b for d, b in zip(shape, block, strict=True)):
        raise error("KIR-L002", f"blocked covers {block[0]} x {block[1]}, and the tile is {shape[0]} x {shape[1]}",
                    needs="a tile that it divides")
    fast, slow = order
    thread = np.arange(lanes[0] * lanes[1] * warps[0] * warps[1], dtype=np.int64)[:, None]
    lane, warp = thread % (lanes[0] * lanes[1]), thread // (lanes[0] * lanes[1])
    repeat = [d // b for d, b in zip(shape, block, strict=True)]
    slot = np.arange(size[0] * size[1] * repeat[0] * repeat[1], dtype=np.int64)[None]
    inner, outer = slot % (size[0] * size[1]), slot // (size[0] * size[1])
    place: list[Ints] = [slot, slot]
    for dim, divide in ((fast, False), (slow, True)):
        def part(x: Ints, extents: Sequence[int], dim: int = dim, divide: bool = divide) -> Ints:
            return np.asarray(x // extents[fast] if divide else x % extents[dim], np.int64)
        place[dim] = part(inner, size) + size[dim] * (part(lane, lanes) + lanes[dim] * (part(warp, warps) + warps[dim] * part(outer,
                                                                                                                              repeat)))
    return _fragment(shape, place[0], place[1])


def tiled(atom: Fragment, shape: tuple[int, int], warps: tuple[int, int] = (1, 1)) -> Fragment:
    """An atom repeated over a larger tile: `warps` groups of the atom's threads along each dimension, each with a dense part of the
    tile, whose atoms follow row by row in its registers. Raises KirError KIR-L002 where the parts are no multiple of the atom."""
    part = [d // w for d, w in zip(shape, warps, strict=True)]
    if any(d % w or p % a for d, w, p, a in zip(shape, warps, part, atom.shape, strict=True)):
        raise error("KIR-L002",
                    f"{atom.shape[0]} x {atom.shape[1]} atoms of {warps[0]} x {warps[1]} groups do not fill {shape[0]} x {shape[1]}")
    atoms = [(i, j) for i in range(part[0] // atom.shape[0]) for j in range(part[1] // atom.shape[1])]
    rows, cols = [], []
    for w in range(warps[0] * warps[1]):
        top, left = w // warps[1] * part[0], w % warps[1] * part[1]
        rows.append(np.concatenate([atom.rows + top + i * atom.shape[0] for i, _ in atoms], axis=1))
        cols.append(np.concatenate([atom.cols + left + j * atom.shape[1] for _, j in atoms], axis=1))
    return _fragment(shape, np.concatenate(rows), np.concatenate(cols))


def fragment(layout: Layout, shape: tuple[int, int], dtype: DType) -> Fragment:
    """The fragment layout of a tile [rows, columns]. Raises KirError KIR-L001 (no fragment layout) and KIR-L002 (does not fit)."""
    numbers = integers(layout)
    name = layout.name
    if name == "blocked" and len(numbers) in (6, 8):
        return blocked(shape, _pair(numbers, 0), _pair(numbers, 2), _pair(numbers, 4), _pair(numbers, 6) if len(numbers) == 8 else (1, 0))
    if name == "tiled" and layout.args and isinstance(layout.args[0], Layout):
        atom = layout.args[0]
        size = (64, integers(atom)[0]) if atom.name == "wgmma_acc" and integers(atom) else _atom_shape(atom.name, dtype)
        return tiled(fragment(atom, size, dtype), shape, _pair(numbers, 0) if len(numbers) == 2 else (1, 1))
    if name == "wgmma_acc":
        made = wgmma_acc(numbers[0] if numbers else shape[1])
    elif name == "wgmma_a":
        made = wgmma_a(256 // dtype.bits, dtype.bits)
    elif name == "mma_c":
        made = mma_c()
    elif name in FRAGMENTS and name.startswith("mma_"):
        k = int(name[len("mma_m16n8k"):-2])
        made = mma_a(k, dtype.bits) if name.endswith("_a") else mma_b(k, dtype.bits)
    else:
        raise error("KIR-L001", f"'{name}' is no fragment layout, or lacks arguments", attempt=did_you_mean(name, FRAGMENTS))
    if made.shape != tuple(shape):
        raise error("KIR-L002", f"{name} is {made.shape[0]} x {made.shape[1]}, and the tile is {shape[0]} x {shape[1]}",
                    needs=f"tiled({name}, ..)")
    return made


def _pair(numbers: tuple[int, ...], at: int) -> tuple[int, int]:
    return numbers[at], numbers[at + 1]


def _atom_shape(name: str, dtype: DType) -> tuple[int, int]:
    if name == "mma_c":
        return 16, 8
    if name == "wgmma_a":
        return 64, 256 // dtype.bits
    if name in FRAGMENTS and name.startswith("mma_"):
        k = int(name[len("mma_m16n8k"):-2])
        return (16, k) if name.endswith("_a") else (k, 8)
    raise error("KIR-L002", f"'{name}' is no atom", needs="mma_.., wgmma_a or wgmma_acc(n)")


@cache
def ldmatrix(num: int, trans: bool = False) -> tuple[Ints, Ints, Ints]:
    """(matrix, row, column) of each 16-bit element that a lane receives from ldmatrix.x<num>, arrays [32, 2 num]. Lane l names row l % 8
    of matrix l // 8 (PTX ISA 9.7.14, "ldmatrix"). Raises KirError KIR-L002 for another number of matrices."""
    if num not in (1, 2, 4):
        raise error("KIR-L002", f"ldmatrix of {num} matrices", needs="1, 2 or 4")
    group, thread, i = _lanes(2 * num)
    shape = (WARP, 2 * num)
    row, column = np.broadcast_to(group, shape), np.broadcast_to(thread * 2 + i % 2, shape)
    matrix = np.broadcast_to(i // 2, shape)
    return _shared(matrix.copy()), _shared((column if trans else row).copy()), _shared((row if trans else column).copy())
