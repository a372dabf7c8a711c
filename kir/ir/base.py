"""What every node of the IR is: a frozen dataclass, equal by structure, whose hash is computed once."""
from __future__ import annotations

from dataclasses import field, fields
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform

from kir.base.dataclass import dataclass

Attr = int | float | str | bool
Attrs = tuple[tuple[str, Attr], ...]
"""Sorted (name, value) pairs: schedule annotations and options that have no field of their own."""
C = TypeVar("C", bound=type)


def attrs(**items: Attr) -> Attrs:
    """Attributes in their canonical order."""
    return tuple(sorted(items.items()))


if TYPE_CHECKING:
    from functools import cached_property
    derived = cached_property
else:
    class derived:
        """A property worked out once for each node: `functools.cached_property` without its lock, which costs more than most of what is worked out."""

        def __init__(self, make):
            self.make, self.name, self.__doc__ = make, make.__name__, make.__doc__

        def __get__(self, item, owner=None):
            if item is None:
                return self
            found = item.__dict__[self.name] = self.make(item)
            return found


class Node:
    """Base of every node: structural equality, with the hash computed once."""

    all_fields: ClassVar[tuple[str, ...]] = ()
    """Names of the fields, in order."""
    compared_fields: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that take part in equality."""
    tree_fields: ClassVar[tuple[str, ...]] = ()
    """Names of those that may hold nodes."""

    _values: ClassVar[Any]
    """What an instance's dictionary holds for these."""

    def __hash__(self) -> int:
        kept = self.__dict__
        found: int | None = kept.get("_hash")
        if found is None:
            found = kept["_hash"] = hash((type(self).__name__, self._values(kept)))
        return found

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        mine, its = self.__dict__, other.__dict__
        if (mine.get("_hash") or hash(self)) != (its.get("_hash") or hash(other)):
            return False
        return bool(self._values(mine) == self._values(its))

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: cached hashes differ from process to process, so they must not travel in a pickle."""
        return {f: self.__dict__[f] for f in self.all_fields}


_LEAVES = frozenset({"str", "int", "bool", "int | float | bool", "DType", "Space", "Attrs", "tuple[str, ...]", "tuple[DType, ...]"})
"""Annotations of fields that hold no node."""


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def node(cls: C) -> C:
    """Decorator of every concrete node: a frozen dataclass that keeps `Node`'s equality and hash."""
    made: Any = dataclass(frozen=True, eq=False)(cls)
    made.all_fields = tuple(f.name for f in fields(made))
    made.compared_fields = tuple(f.name for f in fields(made) if f.compare)
    made._values = itemgetter(*made.compared_fields)
    made.tree_fields = tuple(f.name for f in fields(made) if f.compare and f.type not in _LEAVES)
    return cast(C, made)
