"""Reading distributed code backward: which spread an address tells of, and which tile expression one element's computation is.

An address that moves with digits of the thread and loops over slots says how the tile behind it is distributed (`distributed_by`). Given the index of
the element along each axis, an element's computation becomes a tile expression (`raised`): registers turn into the values that they hold,
addresses into regions. What comes out is a proposal: whoever asks lowers it again and compares.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from kir.analysis.elements import NotElementwise, tile
from kir.analysis.tiles.fragments import STILL, Digit, Spread
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import add, const, int_value, mul, polynomial, sub
from kir.ir.types import DType, TileType, dtype_of, shape_of
from kir.ir.visit import names_read
from kir.surface.lowering.registers.element_demand import _thread_digit
from kir.surface.lowering.registers.state import Held, flat


class NotRaised(Exception):
    """Code of threads that is no statement of their team; the message says why."""


@dataclass(frozen=True)
class Frame:
    """Loops over slots (`slots`: variable to extent, outermost first) of a team of `team` threads."""

    thread: n.Var
    team: int
    slots: Mapping[str, int]

    def moves(self, e: n.Node) -> bool:
        """Whether an expression differs between threads or slots."""
        return bool(names_read(e) & {self.thread.name, *self.slots})


@dataclass
class Moving:
    """The part of an index that moves: digits of the thread as (below, extent, step), slots as (variable, step); `base` is the rest."""

    threads: list[tuple[int, int, int]] = field(default_factory=list)
    slots: list[tuple[str, int]] = field(default_factory=list)
    base: n.Expr | None = None

    @property
    def reach(self) -> int:
        """How far it moves at most."""
        return sum((extent - 1) * step for _, extent, step in self.threads)


def moving(e: n.Expr, frame: Frame) -> Moving | None:
    """An index taken apart; None where it moves in another way."""
    out, rest = Moving(), {}
    for monomial, c in polynomial(e).items():
        atoms = [m.x if isinstance(m, n.Cast) and dtype_of(m.x.type).is_integer else m for m in monomial]
        if not any(frame.moves(a) for a in atoms):
            rest[monomial] = c
            continue
        if len(atoms) != 1:
            return None
        atom = atoms[0]
        if isinstance(atom, n.Var) and atom.name in frame.slots:
            out.slots.append((atom.name, c))
            continue
        digit = _thread_digit(atom, frame.thread, frame.team)
        if digit is None or names_read(atom) != {frame.thread.name}:
            return None
        out.threads.append((*digit, c))
    assert isinstance(e.type, DType)
    out.base = build.from_polynomial(rest, e.type)
    return out


def distributed_by(indices: Sequence[n.Expr], frame: Frame) -> tuple[Spread, tuple[n.Expr, ...]] | None:
    """The spread that the indices of an access tell of (an axis for each that moves), and the element's index along each axis."""
    threads: list[tuple[int, int, int, int]] = []
    slots: dict[str, tuple[int, int]] = {}
    shape: list[int] = []
    coordinates: list[n.Expr] = []
    for e in indices:
        if not frame.moves(e):
            continue
        m = moving(e, frame)
        if m is None or m.base is None:
            return None
        steps = [abs(s) for *_, s in m.threads] + [abs(s) for _, s in m.slots]
        unit = math.gcd(*steps)
        if any(s < 0 for *_, s in m.threads) or any(s < 0 for _, s in m.slots):
            return None
        axis = len(shape)
        threads += [(below, extent, axis, s // unit) for below, extent, s in m.threads]
        for name, s in m.slots:
            if name in slots:
                return None
            slots[name] = (axis, s // unit)
        shape.append(1 + (m.reach + sum((frame.slots[name] - 1) * s for name, s in m.slots)) // unit)
        whole = sub(e, m.base)
        coordinates.append(build.cast(whole if unit == 1 else _divided(whole, unit), dtype_of(const(0).type)))
    digits, below = [], 1
    for at, extent, axis, step in sorted(threads):
        if at % below or at < below:
            return None
        if at > below:
            digits.append(Digit(at // below, STILL, 0))
        digits.append(Digit(extent, axis, step))
        below = at * extent
    if below > frame.team or frame.team % below:
        return None
    if below < frame.team:
        digits.append(Digit(frame.team // below, STILL, 0))
    own = tuple(Digit(frame.slots[name], *slots[name]) if name in slots else Digit(frame.slots[name], STILL, 0)
                for name in reversed(list(frame.slots)))
    return Spread(tuple(shape), tuple(digits), own), tuple(coordinates)


def counted_out(number: n.Expr, shape: Sequence[int]) -> list[n.Expr]:
    """The row-major number of an element as its index along each axis, its terms told apart by their factors."""
    assert isinstance(number.type, DType)
    left, out = dict(polynomial(number)), []
    for axis in range(len(shape)):
        below = math.prod(shape[axis + 1:])
        own = {m: c for m, c in left.items() if c >= below}
        left = {m: c for m, c in left.items() if m not in own}
        out.append(build.from_polynomial({m: c // below for m, c in own.items()}, number.type))
    return out


def _divided(e: n.Expr, by: int) -> n.Expr:
    assert isinstance(e.type, DType)
    return build.from_polynomial({m: c // by for m, c in polynomial(e).items()}, e.type)


@dataclass
class Reader:
    """Turns an element's computation into a tile expression. `coordinates` are the indices of the element along the axes, `axes` the
    variables that stand for them; `held` are values in registers, `spilled` tiles in scratch memory by its name."""

    frame: Frame
    shape: tuple[int, ...]
    coordinates: tuple[n.Expr, ...]
    held: Mapping[str, tuple[n.Expr, Held]]
    spilled: Mapping[str, n.Expr]

    def __post_init__(self) -> None:
        self.axes = [n.Var(f"%{k}", dtype_of(const(0).type)) for k in range(len(self.shape))]
        self.known = {id(v): v for v in self.axes}

    def whole(self, e: n.Expr) -> n.Expr:
        """The tile of an element's computation. Raises NotRaised."""
        scalar = self.scalar(e)
        try:
            return tile(scalar, list(zip(self.axes, self.shape, strict=True)), keep_shape=False)
        except NotElementwise as bad:
            raise NotRaised(str(bad)) from bad

    def scalar(self, e: n.Expr) -> n.Expr:
        """The computation in terms of the axis variables."""
        if not self.frame.moves(e) and not any(isinstance(x, n.Load) and (x.at.buffer.name in self.held or x.at.buffer.name in self.spilled)
                                               for x in _loads(e)):
            return e
        match e:
            case n.Load():
                return self._load(e)
            case n.Var() | n.Binary() if isinstance(e.type, DType) and e.type.is_integer and (index := self.position(e)) is not None:
                return index
            case n.Unary():
                return build.unary(e.op, self.scalar(e.x))
            case n.Binary():
                return build.binary(e.op, self.scalar(e.a), self.scalar(e.b))
            case n.Select():
                return build.select(self.scalar(e.cond), self.scalar(e.a), self.scalar(e.b))
            case n.Cast():
                return build.cast(self.scalar(e.x), e.dtype, e.rounding)
            case n.Call():
                return replace(e, args=tuple(self.scalar(a) if isinstance(a, n.Expr) else a for a in e.args))
            case _:
                raise NotRaised("a value of its own in each thread")

    def position(self, e: n.Expr) -> n.Expr | None:
        """An integer that moves with the element's index, in terms of the axis variables; None where it moves otherwise."""
        assert isinstance(e.type, DType)
        out: n.Expr = const(0, e.type)
        left = e
        for axis, c in zip(self.axes, self.coordinates, strict=True):
            terms = polynomial(build.cast(c, e.type))
            if not terms:
                continue
            lead = next(iter(terms))
            have = polynomial(left).get(lead, 0)
            if have == 0 or have % terms[lead]:
                continue
            step = have // terms[lead]
            left = sub(left, mul(build.cast(c, e.type), step))
            out = add(out, mul(build.cast(axis, e.type), step))
        return add(out, left) if not self.frame.moves(left) else None

    def _load(self, e: n.Load) -> n.Expr:
        name = e.at.buffer.name
        index = [i for i in e.at.index if isinstance(i, n.Expr)]
        if name in self.held:
            value, held = self.held[name]
            dims = [d for d in reversed(held.spread.slots) if d.extent > 1]
            own = dict(zip(map(id, dims), index, strict=True))
            slots = [own[id(d)] if d.extent > 1 else const(0) for d in held.spread.slots]
            return self._of(value, held.spread.coordinates(self.frame.thread, slots), held.spread.shape)
        if name in self.spilled:
            value = self.spilled[name]
            shape = tuple(d for d in shape_of(value.type) if isinstance(d, int))
            return self._unflattened(value, shape, index[0])
        out: list[n.Expr] = []
        for i in index:
            if not self.frame.moves(i) and not any(x.at.buffer.name in self.held for x in _loads(i)):
                out.append(i)
                continue
            place = self.position(i)
            out.append(place if place is not None else self.scalar(i))
        if len(out) != len(e.at.index):
            raise NotRaised("a vector")
        def sub_(x: n.Expr | None) -> n.Expr | None:
            return None if x is None else self.scalar(x)
        return build.load(build.region(e.at.buffer, *out), sub_(e.mask), sub_(e.other), e.clip, e.cache)

    def _of(self, value: n.Expr, coordinates: Sequence[n.Expr], shape: Sequence[int]) -> n.Expr:
        """The element of a value at indices that are those of the axes."""
        at: list[n.Expr] = []
        for c, extent in zip(coordinates, shape, strict=True):
            if extent == 1 or int_value(c) is not None:
                at.append(c)
                continue
            found = next((v for v, own in zip(self.axes, self.coordinates, strict=True) if own == c), None)
            if found is None:
                place = self.position(c)
                if place is None:
                    raise NotRaised("an element that another thread computes")
                found_expr: n.Expr = place
            else:
                found_expr = found
            at.append(found_expr)
        return build.call("pick", value, *at)

    def _unflattened(self, value: n.Expr, shape: tuple[int, ...], number: n.Expr) -> n.Expr:
        choices: list[Sequence[tuple[n.Expr, n.Expr]]] = []
        for extent in shape:
            own = [(c, v) for c, v, d in zip(self.coordinates, self.axes, self.shape, strict=True) if d == extent]
            choices.append([(const(0), const(0))] if extent == 1 else own)
        for chosen in itertools.product(*choices):
            if flat([c for c, _ in chosen], shape) == number:
                return build.call("pick", value, *(v for _, v in chosen))
        raise NotRaised("an element of scratch memory that is not the thread's own")


def _loads(e: n.Node) -> list[n.Load]:
    from kir.ir.visit import walk
    return [x for x in walk(e) if isinstance(x, n.Load)]


def is_tile(e: n.Expr) -> bool:
    """Whether an expression is a tile."""
    return isinstance(e.type, TileType)
