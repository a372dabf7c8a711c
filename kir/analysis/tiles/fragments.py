"""Fragment layouts as arithmetic: which element of a tile a thread's register slot holds, as expressions of thread and slot.

A `Spread` is a tile distributed over threads by mixed-radix digits: each digit of the thread's number, and each digit of the slot's, moves along one
axis of the tile (a thread digit that moves along none replicates). All fragment layouts of `kir.ir.layouts.layout` are of this form, and those
that the lowering of tiles chooses itself are written `spread([extents], [axes], [steps], [extents], [axes], [steps])`: the digits of the
thread, then those of the slot, fastest first.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.build import add, const, floordiv, int_value, mod, mul
from kir.ir.types import DType

STILL = -1
"""The axis of a digit that moves along none."""


@dataclass(frozen=True)
class Digit:
    """A digit of `extent` values, each of which moves `step` elements along `axis`."""

    extent: int
    axis: int
    step: int

    def moved(self, axis: int, step: int) -> Digit:
        """The same digit along another axis."""
        return Digit(self.extent, axis, step)


@dataclass(frozen=True)
class Spread:
    """A tile of `shape` over threads: digits of the thread's number and of the slot's, fastest first."""

    shape: tuple[int, ...]
    threads: tuple[Digit, ...]
    slots: tuple[Digit, ...]

    @property
    def team(self) -> int:
        """Threads that take part, copies counted."""
        return math.prod(d.extent for d in self.threads)

    @property
    def size(self) -> int:
        """Elements that a thread holds."""
        return math.prod(d.extent for d in self.slots)

    @cached_property
    def canonical(self) -> Spread:
        """The same mapping with neighboring digits merged where they count on, and digits of one value left out."""
        return Spread(self.shape, merged(self.threads), merged(self.slots))

    def coordinates(self, thread: n.Expr, slots: Sequence[n.Expr]) -> tuple[n.Expr, ...]:
        """The element's index along each axis; `slots` are the digits of the slot."""
        out: list[n.Expr] = [const(0) for _ in self.shape]
        for d, value in (*zip(self.threads, digits_of(thread, self.threads), strict=True), *zip(self.slots, slots, strict=True)):
            if d.axis != STILL:
                out[d.axis] = add(out[d.axis], mul(value, d.step))
        return tuple(out)

    def first_copy(self, thread: n.Expr) -> n.Expr | None:
        """The condition under which a thread holds the first copy of its elements; None where there is only one."""
        out: n.Expr | None = None
        for d, value in zip(self.threads, digits_of(thread, self.threads), strict=True):
            if d.axis == STILL and d.extent > 1:
                this = n.Binary("eq", value, const(0))
                out = this if out is None else n.Binary("and", out, this)
        return out


def merged(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    """Digits, fastest first, with those merged that count on along an axis; those of one value are left out."""
    out: list[Digit] = []
    for d in digits:
        if d.extent == 1:
            continue
        last = out[-1] if out else None
        if last is not None and last.axis == d.axis and (d.axis == STILL or d.step == last.step * last.extent):
            out[-1] = Digit(last.extent * d.extent, d.axis, last.step)
        else:
            out.append(d)
    return tuple(out)


def digits_of(number: n.Expr, digits: Sequence[Digit]) -> tuple[n.Expr, ...]:
    """The value of each digit of a number that is below the product of their extents."""
    out: list[n.Expr] = []
    below, total = 1, math.prod(d.extent for d in digits)
    for d in digits:
        value = floordiv(number, below) if below > 1 else number
        out.append(const(0) if d.extent == 1 else value if below * d.extent == total else mod(value, d.extent))
        below *= d.extent
    return tuple(out)


# ------------------------------------------------------------------------------------------------------------- named layouts

def spread(layout: n.Layout, shape: Sequence[int], dtype: DType) -> Spread:
    """The spread of a fragment layout over a tile. Raises KirError KIR-L001 (no fragment layout) and KIR-L002 (does not fit)."""
    made = _spread(layout, tuple(shape), dtype)
    if made.shape != tuple(shape):
        raise error("KIR-L002", f"{layout.name} is {' x '.join(map(str, made.shape))}, and the tile is {' x '.join(map(str, shape))}",
                    needs=f"tiled({layout.name}, ..)")
    return made


def _spread(layout: n.Layout, shape: tuple[int, ...], dtype: DType) -> Spread:
    name, args = layout.name, layout.args
    numbers = [x for a in args for x in (a if isinstance(a, tuple) else (a,)) if isinstance(x, int)]
    if name == "spread" and len(args) == 6 and all(isinstance(a, tuple) for a in args):
        lists = [a for a in args if isinstance(a, tuple)]
        return Spread(shape, *(tuple(Digit(*row) for row in zip(*lists[i:i + 3], strict=True)) for i in (0, 3)))
    if name == "blocked" and len(shape) == 2 and len(numbers) in (6, 8):
        return _blocked((shape[0], shape[1]), numbers)
    if name == "tiled" and args and isinstance(args[0], n.Layout):
        inner = args[0]
        atom = _spread(inner, (64, _first_integer(inner)) if inner.name == "wgmma_acc" else _atom_shape(inner.name, dtype), dtype)
        rest = [x for a in args[1:] for x in (a if isinstance(a, tuple) else (a,)) if isinstance(x, int)]
        return _tiled(atom, shape, (rest[0], rest[1]) if len(rest) == 2 else (1, 1))
    group, quad = Digit(8, 0, 1), Digit(4, 1, 2)
    if name == "mma_c":
        return Spread((16, 8), (quad, group), (Digit(2, 1, 1), Digit(2, 0, 8)))
    if name.startswith("mma_m16n8k") and name[-2:] in ("_a", "_b"):
        k, per = int(name[len("mma_m16n8k"):-2]), 32 // dtype.bits
        if name.endswith("_a"):
            return Spread((16, k), (Digit(4, 1, per), group), (Digit(per, 1, 1), Digit(2, 0, 8), Digit(k // (4 * per), 1, 4 * per)))
        return Spread((k, 8), (Digit(4, 0, per), Digit(8, 1, 1)), (Digit(per, 0, 1), Digit(k // (4 * per), 0, 4 * per)))
    if name == "wgmma_acc":
        width = numbers[0] if numbers else shape[1]
        return Spread((64, width), (quad, group, Digit(4, 0, 16)), (Digit(2, 1, 1), Digit(2, 0, 8), Digit(width // 8, 1, 8)))
    if name == "wgmma_a":
        per = 32 // dtype.bits
        return Spread((64, 8 * per), (Digit(4, 1, per), group, Digit(4, 0, 16)), (Digit(per, 1, 1), Digit(2, 0, 8), Digit(2, 1, 4 * per)))
    raise error("KIR-L001", f"'{name}' is no fragment layout, or lacks arguments")


def _first_integer(layout: n.Layout) -> int:
    return next((a for a in layout.args if isinstance(a, int)), 8)


def _atom_shape(name: str, dtype: DType) -> tuple[int, int]:
    if name == "mma_c":
        return 16, 8
    if name == "wgmma_a":
        return 64, 256 // dtype.bits
    if name.startswith("mma_m16n8k"):
        k = int(name[len("mma_m16n8k"):-2])
        return (16, k) if name.endswith("_a") else (k, 8)
    raise error("KIR-L002", f"'{name}' is no atom", needs="mma_.., wgmma_a or wgmma_acc(n)")


def _blocked(shape: tuple[int, int], numbers: Sequence[int]) -> Spread:
    size, lanes, warps = numbers[0:2], numbers[2:4], numbers[4:6]
    order = tuple(numbers[6:8]) or (1, 0)
    step = list(size)
    slots = [Digit(size[d], d, 1) for d in order]
    threads = []
    for counts in (lanes, warps):
        for d in order:
            threads.append(Digit(counts[d], d, step[d]))
        for d in order:
            step[d] *= counts[d]
    if any(extent % each for extent, each in zip(shape, step, strict=True)):
        raise error("KIR-L002", f"blocked covers {step[0]} x {step[1]}, and the tile is {shape[0]} x {shape[1]}",
                    needs="a tile that it divides")
    slots += [Digit(shape[d] // step[d], d, step[d]) for d in order]
    return Spread(shape, tuple(threads), tuple(slots))


def _tiled(atom: Spread, shape: tuple[int, ...], warps: tuple[int, int]) -> Spread:
    part = [d // w for d, w in zip(shape, warps, strict=True)]
    if any(d % w or p % a for d, w, p, a in zip(shape, warps, part, atom.shape, strict=True)):
        raise error("KIR-L002",
                    f"{atom.shape[0]} x {atom.shape[1]} atoms of {warps[0]} x {warps[1]} groups do not fill {shape[0]} x {shape[1]}")
    return Spread(shape, (*atom.threads, Digit(warps[1], 1, part[1]), Digit(warps[0], 0, part[0])),
                  (*atom.slots, Digit(part[1] // atom.shape[1], 1, atom.shape[1]), Digit(part[0] // atom.shape[0], 0, atom.shape[0])))


def layout_of(s: Spread) -> n.Layout:
    """A spread as a layout term; the inverse of `spread`."""
    return n.Layout("spread", tuple(tuple(getattr(d, f) for d in digits) for digits in (s.threads, s.slots) for f in ("extent", "axis",
                                                                                                                    "step")))


# ----------------------------------------------------------------------------------------------------------- thread and slot

def element_of(layout: n.Layout, shape: Sequence[int], dtype: DType, thread: n.Expr, slot: n.Expr) -> tuple[n.Expr, ...]:
    """The index of the element that `thread` holds in register `slot`, along each axis."""
    s = spread(layout, shape, dtype)
    return s.coordinates(thread, digits_of(slot, s.slots))


def slot_of(layout: n.Layout, shape: Sequence[int], dtype: DType, index: Sequence[n.Expr]) -> tuple[n.Expr, n.Expr]:
    """The thread (the first of several) and the slot that hold the element at `index`. Raises KirError KIR-L004 where the digits along
    an axis do not count it out."""
    s = spread(layout, shape, dtype)
    for axis, extent in enumerate(s.shape):
        along = sorted((d for d in (*s.threads, *s.slots) if d.axis == axis and d.extent > 1), key=lambda d: d.step)
        reach = 1
        for d in along:
            if d.step != reach:
                raise error("KIR-L004", f"axis {axis} of {layout.name} is not counted out by its digits")
            reach *= d.extent
        if reach != extent:
            raise error("KIR-L004", f"axis {axis} of {layout.name} is held {reach} of {extent} elements deep")

    def number(digits: Sequence[Digit]) -> n.Expr:
        out: n.Expr = const(0)
        below = 1
        for d in digits:
            if d.axis != STILL and d.extent > 1:
                value = floordiv(index[d.axis], d.step)
                if d.step * d.extent < s.shape[d.axis]:
                    value = mod(value, d.extent)
                out = add(out, mul(value, below))
            below *= d.extent
        return out
    return number(s.threads), number(s.slots)


def extents_of(shape: Iterable[int | n.Expr]) -> tuple[int, ...] | None:
    """A shape as integers; None where an extent is symbolic."""
    out = []
    for d in shape:
        value = int_value(d)
        if value is None:
            return None
        out.append(value)
    return tuple(out)
