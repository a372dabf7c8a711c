"""Pointers that a program moves, and places that no object of the kernel's own holds."""

from __future__ import annotations

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, I64

from ..symbols.symbols import Value
from ..types.c_types import Arr, Prim, Ptr
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted, divided
from .memory import Place, Store, start
from .values import Located, Pointer, Remote


class PointerVariable:
    """A pointer that the program moves: it stays in one object, and a register holds its offset in elements. One of an array of pointers (`index`)
    stays in the object of all of them, `array`."""

    def __init__(self, name: str, type: Ptr, offset: Store, array: PointerVariable | None = None, index: n.Expr | None = None) -> None:
        self.name, self.type, self.offset, self.array, self.index = name, type, offset, array, index
        self._base: Place | None = None
        self.remote: Remote | None = None
        self.home: object = None
        """The block in which it is declared, where it may be set to another object: all that is read before has been written out."""

    @property
    def base(self) -> Place | None:
        """The object that it points into, once it has been set."""
        return self._base if self.array is None else self.array.base

    @base.setter
    def base(self, place: Place) -> None:
        (self.array or self)._base = place

    @property
    def held(self) -> n.Region:
        """Where its offset is kept."""
        return n.Region(self.offset.used(I64), () if self.index is None else (self.index,))

    def current(self) -> Pointer:
        """Where it points now. Raises NotUnderstood before it has been set."""
        if self.base is None:
            raise NotUnderstood(f"the pointer '{self.name}', which points nowhere yet")
        e: n.Expr = build.mul(n.Load(self.held), self.base.store.unit)
        at = e if self.base.store.is_global else converted(e, I32)
        return Pointer(Place(self.base.store, self.base.outer, at, self.base.volatile or self.type.volatile), self.type)


class Apart(Located):
    """A place in the shared memory of another CTA of the cluster."""

    def __init__(self, at: n.Region) -> None:
        object.__setattr__(self, "at", at)
        object.__setattr__(self, "type", Prim(at.buffer.dtype))

    at: n.Region


class MovingPointer(Located):
    """A pointer variable as a value."""

    def __init__(self, variable: PointerVariable, type: Ptr) -> None:
        object.__setattr__(self, "variable", variable)
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "place", start(variable.offset))

    variable: PointerVariable


@dataclass(frozen=True)
class Handle(Value):
    """The address of a pointer variable, through which a function sets it."""

    to: MovingPointer

    @property
    def type(self) -> Ptr:
        return Ptr(self.to.type)


class ChoosingPointer(Located):
    """A pointer variable that was given one of two objects' by a condition: it moves within the one that it points into."""

    def __init__(self, cond: n.Expr, then: Located, orelse: Located) -> None:
        object.__setattr__(self, "cond", cond)
        object.__setattr__(self, "then", then)
        object.__setattr__(self, "orelse", orelse)
        object.__setattr__(self, "type", then.type)
        object.__setattr__(self, "place", then.place)

    cond: n.Expr
    then: Located
    orelse: Located


class PointerArray(Located):
    """An array of pointers into one object, as a value."""

    def __init__(self, variable: PointerVariable, type: Arr) -> None:
        object.__setattr__(self, "variable", variable)
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "place", start(variable.offset))
        variable.offset.pointers = variable

    variable: PointerVariable

    def element(self, index: n.Expr) -> MovingPointer:
        """One of the pointers."""
        of = self.variable
        return MovingPointer(PointerVariable(of.name, of.type, of.offset, of, index), of.type)


def held_at(at: Place, t: Ptr) -> MovingPointer | None:
    """The pointer of an array of pointers that a place is; None for other places."""
    of, k = at.store.pointers, divided(at.byte, 8)
    if not isinstance(of, PointerVariable) or k is None:
        return None
    return MovingPointer(PointerVariable(of.name, t, of.offset, of, k), t)
