"""The IR that is being written: a stack of blocks, unique names, and the ranges of integers that the reader needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from math import prod

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.rebuild.blocks import Blocks
from kir.ir.types import DType, Type, shape_of
from kir.ir.visit import walk

from ..source.source import Node, Unit

Range = tuple[int, int]


@dataclass
class Emitter(Blocks):
    """Statements of the kernel being read. `origin` is attached to what is emitted; `ranges` are closed intervals of named integers."""

    ranges: dict[str, Range] = field(default_factory=dict)
    lets: dict[str, n.Expr] = field(default_factory=dict)
    here: tuple[Unit, Node] | None = None
    """What is being read just now: the origin's own statement, a part of it, or a piece of a function that it calls."""
    _places: dict[tuple[str, int, int], Origin] = field(default_factory=dict)

    @contextmanager
    def reading(self, unit: Unit, node: Node) -> Iterator[None]:
        """What is emitted inside stands at a node of a file."""
        before, self.here = self.here, (unit, node)
        try:
            yield
        finally:
            self.here = before

    def place(self) -> Origin | None:
        """The origin of what is emitted now."""
        if self.origin is None or self.here is None:
            return self.origin
        unit, node = self.here
        key = str(unit.path), node.start_byte, node.end_byte
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = unit.origin(node)
        return self.origin if found == self.origin else replace(self.origin, inner=found)

    def emit(self, s: n.Stmt) -> None:
        """Append a statement to the innermost block."""
        self.block.append(s if s.origin is not None or self.origin is None else replace(s, origin=self.place()))  # type: ignore[type-var]  # every Stmt

    def let(self, name: str, e: n.Expr) -> n.Expr:
        """`e` under a name, unless it is one already."""
        if isinstance(e, (n.Var, n.Const)):
            return e
        made = n.Var(self.fresh(name), e.type)
        found = self.range_of(e)
        if found is not None:
            self.ranges[made.name] = found
        if isinstance(e, n.Binary) and e.op in ("tdiv", "trem", "floordiv", "mod"):
            self.lets[made.name] = e
        self.emit(n.Let((made.name,), e))
        return made

    def let_at(self, position: int, name: str, e: n.Expr) -> n.Expr:
        """`e` under a name, computed before what has been emitted since `position` in this block."""
        made = n.Var(self.fresh(name), e.type)
        s = n.Let((made.name,), e, origin=self.place())
        self.block.insert(position, s)
        return made

    def effects_since(self, position: int) -> bool:
        """Whether a statement of this block from `position` on may change memory."""
        return any(has_effect(s.value) if isinstance(s, n.Let) else not (isinstance(s, n.Alloc) and s.init is None) for s in self.block[position:])

    # ------------------------------------------------------------------------------------------------------------------ ranges
    def range_of(self, e: n.Expr) -> Range | None:
        """A closed interval that an integer expression lies in, None when nothing is known. Wrapping is taken into account."""
        dtype = e.type
        if not hasattr(dtype, "range") or not getattr(dtype, "is_integer", False):
            return None
        found = self._range(e)
        low, high = dtype.range
        return found if found is not None and low <= found[0] and found[1] <= high else None

    @contextmanager
    def where(self, cond: n.Expr, holds: bool = True) -> Iterator[None]:
        """What is read inside is run where a condition holds (or does not): named integers that it compares with numbers have narrower ranges there."""
        before = self.ranges
        self.ranges = dict(before)
        for name, (low, high) in _bounds(cond, holds):
            known = self.ranges.get(name, (low, high))
            both = max(low, known[0]), min(high, known[1])
            if both[0] <= both[1]:
                self.ranges[name] = both
        try:
            yield
        finally:
            self.ranges = before | {k: v for k, v in self.ranges.items() if k not in before}

    def _range(self, e: n.Expr) -> Range | None:
        match e:
            case n.Const() if not isinstance(e.value, float):
                return int(e.value), int(e.value)
            case n.Var():
                return self.ranges.get(e.name)
            case n.Cast() if e.rounding == "rn":
                return self.range_of(e.x)
            case n.Binary():
                return self._binary(e)
            case n.Select():
                a, b = self.range_of(e.a), self.range_of(e.b)
                return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
            case _:
                return None

    def _binary(self, e: n.Binary) -> Range | None:
        a, b = self.range_of(e.a), self.range_of(e.b)
        if e.op in ("mod", "trem") and b is not None and b[0] == b[1] and b[0] > 0 and (e.op == "mod" or (a is not None and a[0] >= 0)):
            return 0, min(b[0] - 1, a[1]) if a is not None and a[0] >= 0 else b[0] - 1
        if e.op == "and":
            tops = [x[1] for x in (a, b) if x is not None and x[0] >= 0]
            return (0, min(tops)) if tops else None
        if a is None or b is None:
            return None
        match e.op:
            case "add":
                return a[0] + b[0], a[1] + b[1]
            case "sub":
                return a[0] - b[1], a[1] - b[0]
            case "mul":
                every = [x * y for x in a for y in b]
                return min(every), max(every)
            case "floordiv" | "tdiv" if a[0] >= 0 and b[0] > 0:
                return a[0] // b[1], a[1] // b[0]
            case "min":
                return min(a[0], b[0]), min(a[1], b[1])
            case "max":
                return max(a[0], b[0]), max(a[1], b[1])
            case "or" | "xor" if a[0] >= 0 and b[0] >= 0:
                return 0, (1 << max(a[1].bit_length(), b[1].bit_length())) - 1
            case "shl" if a[0] >= 0 and b[0] >= 0 and b[1] < 32:
                return a[0] << b[0], a[1] << b[1]
            case "shr" if a[0] >= 0 and b[0] >= 0:
                return a[0] >> b[1], a[1] >> b[0]
            case _:
                return None

    def is_nonnegative(self, e: n.Expr) -> bool:
        """Whether an integer is known not to be negative."""
        found = self.range_of(e)
        return found is not None and found[0] >= 0


def has_effect(e: n.Expr) -> bool:
    """Whether evaluating an expression may change memory, or waits."""
    rows = table()
    return any(isinstance(x, n.Call) and (x.of is not None or rows[x.fn].effect in ("memory", "sync", "async")) for x in walk(e))


def reads_memory(e: n.Expr) -> bool:
    """Whether a value depends on memory that may change."""
    return any(isinstance(x, (n.Load, n.Region)) for x in walk(e))


def lanes(t: Type) -> int:
    """The number of elements of a thread's value."""
    return prod(build.int_value(d) or 1 for d in shape_of(t))


def _bounds(cond: n.Expr, holds: bool) -> Iterator[tuple[str, Range]]:
    """Names with the intervals that a condition leaves them, of numbers that are compared with constants."""
    if isinstance(cond, n.Unary) and cond.op == "not":
        yield from _bounds(cond.x, not holds)
        return
    if not isinstance(cond, n.Binary):
        return
    if cond.op == ("and" if holds else "or"):
        yield from _bounds(cond.a, holds)
        yield from _bounds(cond.b, holds)
        return
    a, b, op = cond.a, cond.b, cond.op
    if isinstance(a, n.Const):
        a, b, op = b, a, _TURNED.get(op, "")
    op = op if holds else _DENIED.get(op, "")
    if not isinstance(a, n.Var) or not isinstance(a.of, DType) or not a.of.is_integer or not isinstance(b, n.Const) or not isinstance(b.value, int):
        return
    low, high = a.of.range
    value = int(b.value)
    ends = {"gt": (value + 1, high), "ge": (value, high), "lt": (low, value - 1), "le": (low, value), "eq": (value, value)}.get(op)
    if ends is not None and ends[0] <= ends[1]:
        yield a.name, ends


_TURNED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge", "eq": "eq"}
_DENIED = {"gt": "le", "ge": "lt", "lt": "ge", "le": "gt", "ne": "eq"}
