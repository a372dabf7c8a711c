"""Which element of a tile a statement wants in each thread and slot, followed back through shapes to the values that hold it.

A statement is distributed over threads by a `Spread`. Its operands are wanted at elements that move with the same digits: a `Need` keeps, for
each digit of the thread and each loop over slots, the axis of the operand along which it moves. So whether a thread holds the element
itself, and in which register, is a comparison of digits.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from kir.analysis.tiles.fragments import STILL, Digit, Spread, digits_of, merged
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import add, const, floordiv, from_polynomial, int_value, mod, mul, polynomial
from kir.ir.types import dtype_of
from kir.ir.visit import names_read


@dataclass(frozen=True)
class Slot:
    """A digit of the slot with its value: a loop variable, or part of one."""

    digit: Digit
    value: n.Expr


@dataclass(frozen=True)
class Need:
    """Elements of a tile of `shape`: at `base` (one index per axis), moved by digits of `thread` and of the slot."""

    shape: tuple[int, ...]
    thread: n.Expr
    threads: tuple[Digit, ...]
    slots: tuple[Slot, ...]
    base: tuple[n.Expr, ...]

    @property
    def coordinates(self) -> tuple[n.Expr, ...]:
        """The index of the element along each axis."""
        out = list(self.base)
        moves = [*zip(self.threads, digits_of(self.thread, self.threads), strict=True), *((s.digit, s.value) for s in self.slots)]
        for d, value in moves:
            if d.axis != STILL:
                out[d.axis] = add(out[d.axis], mul(value, d.step))
        return tuple(out)

    def moved(self, shape: tuple[int, ...], move: Sequence[int], base: tuple[n.Expr, ...]) -> Need:
        """Axis a becomes `move[a]` (STILL: it is dropped), counted from `base`."""
        def to(d: Digit) -> Digit:
            axis = STILL if d.axis == STILL else move[d.axis]
            return Digit(d.extent, axis, d.step if axis != STILL else 0)
        return Need(shape, self.thread, tuple(map(to, self.threads)), tuple(Slot(to(s.digit), s.value) for s in self.slots), base)

    def fitted(self, shape: tuple[int, ...]) -> Need:
        """What is wanted of an operand of `shape` that broadcasts to this one (aligned at the right)."""
        if shape == self.shape:
            return self
        skip = len(self.shape) - len(shape)
        move = [STILL] * skip + [STILL if d == 1 else a for a, d in enumerate(shape)]
        return self.moved(shape, move, tuple(const(0) if d == 1 else self.base[skip + a] for a, d in enumerate(shape)))

    def without(self, axis: int) -> Need:
        """What is wanted of a tile that lacks an axis of this one."""
        move = [STILL if a == axis else a - (a > axis) for a in range(len(self.shape))]
        return self.moved(self.shape[:axis] + self.shape[axis + 1:], move, self.base[:axis] + self.base[axis + 1:])

    def with_axis(self, axis: int, extent: int, at: n.Expr) -> Need:
        """What is wanted of a tile with one more axis, at an index along it."""
        move = [a + (a >= axis) for a in range(len(self.shape))]
        return self.moved((*self.shape[:axis], extent, *self.shape[axis:]), move, (*self.base[:axis], at, *self.base[axis:]))

    def permuted(self, order: Sequence[int]) -> Need:
        """What is wanted of a tile whose axis `order[p]` is axis p of this one."""
        shape, base = [0] * len(order), list(self.base)
        for p, axis in enumerate(order):
            shape[axis], base[axis] = self.shape[p], self.base[p]
        return self.moved(tuple(shape), list(order), tuple(base))

    def reshaped(self, shape: tuple[int, ...]) -> Need | None:
        """What is wanted of a tile of another shape in row-major order; None where digits do not split at its axes."""
        steps = _row_major(self.shape)
        if any(int_value(b) != 0 for b in self.base):
            return None
        slots: list[Slot] = []
        for s in self.slots:
            parts = split_digit(s.digit, steps, shape)
            if parts is None:
                return None
            values = digits_of(s.value, parts)
            slots += [Slot(d, v) for d, v in zip(parts, values, strict=True)]
        threads: list[Digit] = []
        for d in self.threads:
            parts = split_digit(d, steps, shape)
            if parts is None:
                return None
            threads += parts
        return Need(shape, self.thread, tuple(threads), tuple(slots), tuple(const(0) for _ in shape))

    def shifted(self, shape: tuple[int, ...], axes: Sequence[int], base: Sequence[n.Expr], steps: Sequence[int]) -> Need:
        """What is wanted of a larger tile in which axis a of this one is axis `axes[a]`, in steps of `steps[a]` from `base`."""
        def moved(d: Digit) -> Digit:
            return d if d.axis == STILL else Digit(d.extent, axes[d.axis], d.step * steps[d.axis])
        at = list(base)
        for a, own in enumerate(self.base):
            at[axes[a]] = add(at[axes[a]], mul(own, steps[a]))
        return Need(shape, self.thread, tuple(map(moved, self.threads)), tuple(Slot(moved(s.digit), s.value) for s in self.slots), tuple(at))


def of_spread(s: Spread, thread: n.Expr, values: Sequence[n.Expr]) -> Need:
    """The elements of a spread; `values` are the digits of the slot."""
    return Need(s.shape, thread, s.threads, tuple(Slot(d, v) for d, v in zip(s.slots, values, strict=True)), tuple(const(0) for _ in s.shape))


def _row_major(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[a + 1:]) for a in range(len(shape))]


def split_digit(d: Digit, steps: Sequence[int], shape: tuple[int, ...]) -> tuple[Digit, ...] | None:
    """A digit along an axis of a row-major tile with `steps` as digits along the axes of `shape`, fastest first."""
    if d.axis == STILL or d.extent == 1:
        return (Digit(d.extent, STILL, 0),)
    flat, left, out = d.step * steps[d.axis], d.extent, []
    for axis, below in reversed(list(enumerate(_row_major(shape)))):
        reach = below * shape[axis]
        if flat >= reach or left == 1:
            continue
        if flat % below:
            return None
        here = min(left, reach // flat) if reach % flat == 0 else 0
        if here == 0 or left % here:
            return None
        out.append(Digit(here, axis, flat // below))
        left //= here
        flat *= here
    return tuple(out) if left == 1 else None


def permuted(s: Spread, order: Sequence[int]) -> Spread:
    """The spread of the tile whose axis p is axis `order[p]` of this one."""
    to = {axis: p for p, axis in enumerate(order)}
    def moved(d: Digit) -> Digit:
        return d if d.axis == STILL else d.moved(to[d.axis], d.step)
    return Spread(tuple(s.shape[axis] for axis in order), tuple(map(moved, s.threads)), tuple(map(moved, s.slots)))


def reshaped(s: Spread, shape: tuple[int, ...]) -> Spread | None:
    """The spread of the same elements in row-major order as a tile of another shape; None where digits do not split at its axes."""
    steps = _row_major(s.shape)
    parts = [[split_digit(d, steps, shape) for d in digits] for digits in (s.threads, s.slots)]
    if any(p is None for each in parts for p in each):
        return None
    threads, slots = (tuple(d for p in each for d in p or ()) for each in parts)
    return Spread(shape, threads, slots)


def without_axis(s: Spread, axis: int, keep: bool = False) -> Spread:
    """The spread of what is left when an axis goes (or shrinks to 1): threads along it hold copies."""
    def moved(d: Digit) -> Digit:
        if d.axis in (STILL, axis):
            return Digit(d.extent, STILL, 0)
        return d if keep or d.axis < axis else d.moved(d.axis - 1, d.step)
    shape = (*s.shape[:axis], *((1,) if keep else ()), *s.shape[axis + 1:])
    return Spread(shape, tuple(map(moved, s.threads)), tuple(moved(d) for d in s.slots if d.axis not in (axis, STILL)))


def with_axis(s: Spread, axis: int) -> Spread:
    """The spread with a new axis of extent 1."""
    def moved(d: Digit) -> Digit:
        return d if d.axis == STILL or d.axis < axis else d.moved(d.axis + 1, d.step)
    return Spread((*s.shape[:axis], 1, *s.shape[axis:]), tuple(map(moved, s.threads)), tuple(map(moved, s.slots)))


def register_index(held: Spread, need: Need) -> tuple[n.Expr, ...] | None:
    """Where a thread has the elements it needs: an index per digit of the slot (of more than one value) of `held`, slowest first; None
    where another thread has them, or the register would depend on the thread."""
    base = _absorbed(need)
    if base is None or held.shape != need.shape or merged(held.threads) != merged(base.threads):
        return None
    dims = [d for d in held.slots if d.extent > 1]
    index: list[n.Expr] = [const(0) for _ in dims]
    reach = [0] * len(dims)
    wanted = [s for s in base.slots if s.digit.axis != STILL and s.digit.extent > 1]
    for s in wanted:
        d, value = s.digit, s.value
        while d.extent > 1:
            at = next((k for k, h in enumerate(dims) if h.axis == d.axis and h.step <= d.step < h.step * h.extent), None)
            if at is None or d.step % dims[at].step:
                return None
            h = dims[at]
            room = h.step * h.extent // d.step if (h.step * h.extent) % d.step == 0 else 0
            here = min(room, d.extent)
            if here == 0 or d.extent % here:
                return None
            part = value if here == d.extent else mod(value, here)
            index[at] = add(index[at], mul(part, d.step // h.step))
            reach[at] += (here - 1) * (d.step // h.step)
            value = floordiv(value, here) if here < d.extent else value
            d = Digit(d.extent // here, d.axis, d.step * here)
    for axis, b in enumerate(base.base):
        offset = int_value(b)
        if offset is None:
            moved = _by_top_digit(held, axis, b)
            if moved is None:
                return None
            top = dims.index(moved[0])
            index[top] = add(index[top], moved[1])
            continue
        for d in held.threads:
            if d.axis == axis and d.step and offset // d.step % d.extent:
                return None
        for k, h in enumerate(dims):
            if h.axis == axis:
                here = offset // h.step % h.extent
                index[k] = add(index[k], here)
                reach[k] += here
    if any(r >= d.extent for r, d in zip(reach, dims, strict=True)):
        return None
    return tuple(reversed(index))


def _by_top_digit(held: Spread, axis: int, base: n.Expr) -> tuple[Digit, n.Expr] | None:
    """The digit of the slot that a base which varies moves, and by how much: the top one of its axis, of which it is a multiple."""
    along = [d for d in (*held.threads, *held.slots) if d.axis == axis and d.extent > 1]
    top = max(along, key=lambda d: d.step, default=None)
    if top is None or top not in held.slots or sum(d == top for d in along) != 1:
        return None
    terms = polynomial(base)
    if any(c % top.step for c in terms.values()):
        return None
    return top, from_polynomial({m: c // top.step for m, c in terms.items()}, dtype_of(base.type))


def _absorbed(need: Need) -> Need | None:
    """A need whose base moves with digits of the thread that are written out (as `t // 32 % 4 * 64`): those as digits of the thread."""
    if all(int_value(b) is not None for b in need.base):
        return need
    if not isinstance(need.thread, n.Var):
        return None
    total = math.prod(d.extent for d in need.threads)
    found: list[tuple[int, int, int, int]] = []
    base: list[n.Expr] = []
    for axis, b in enumerate(need.base):
        left: dict[tuple[n.Expr, ...], int] = {}
        for monomial, c in polynomial(b).items():
            if not any(need.thread.name in names_read(x) for x in monomial):
                left[monomial] = c
                continue
            digit = _thread_digit(monomial[0], need.thread, total) if len(monomial) == 1 else None
            if digit is None or names_read(monomial[0]) != {need.thread.name}:
                return None
            found.append((*digit, axis, c))
        base.append(from_polynomial(left, dtype_of(b.type)))
    threads: list[Digit] = []
    below = 1
    for d in need.threads:
        inside = sorted(f for f in found if below <= f[0] and f[0] * f[1] <= below * d.extent)
        if not inside:
            threads.append(d)
        elif d.axis != STILL:
            return None
        else:
            at = below
            for f in inside:
                if f[0] % at or f[0] < at:
                    return None
                if f[0] > at:
                    threads.append(Digit(f[0] // at, STILL, 0))
                threads.append(Digit(f[1], f[2], f[3]))
                at = f[0] * f[1]
                found.remove(f)
            if at < below * d.extent:
                threads.append(Digit(below * d.extent // at, STILL, 0))
        below *= d.extent
    return replace(need, threads=tuple(threads), base=tuple(base)) if not found else None


def _thread_digit(e: n.Expr, thread: n.Var, total: int) -> tuple[int, int] | None:
    """(below, extent) with e == thread // below % extent, for a number below `total`."""
    extent = None
    if isinstance(e, n.Binary) and e.op == "mod" and (c := int_value(e.b)) is not None:
        e, extent = e.a, c
    below = 1
    if isinstance(e, n.Binary) and e.op == "floordiv" and (c := int_value(e.b)) is not None:
        e, below = e.a, c
    if e != thread:
        return None
    return below, extent if extent is not None else -(-total // below)
