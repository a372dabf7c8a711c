"""Containers of C++'s and Thrust's libraries in host code: how many elements they hold, and which of them are memory of the device's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kir.ir import nodes as n
from kir.surface.launches.values import Known, Unknown, Value, is_number

from .host_values import TYPES, Memory

_KIND = re.compile(r"(?:const )?(?:std::|thrust::)?(vector|device_vector|host_vector|universal_vector)<(.*)>")
_OF_THE_DEVICE = ("device_vector", "universal_vector")


class Container:
    """A container of the host's: its length, where that is known, else a number of its own, the same each time."""

    def __init__(self, known: Known, length: Value = None) -> None:
        self.known, self.length = known, length

    def method(self, name: str, args: Sequence[Value]) -> Value:
        """What a method gives: a length is asked for, or becomes another one."""
        if name in ("resize", "assign") and args:
            self.length = args[0]
            return None
        if name in ("size", "length") and not args:
            if not (isinstance(self.length, n.Expr) and is_number(self.length)):
                self.length = self.known.fresh()
            elif isinstance(self.length, n.Const) and int(self.length.value) > 1:  # a size of its own, of which it is an example
                self.length = self.known.fresh("", int(self.length.value))
            return self.length
        return Unknown(f".{name}()")


def declared(known: Known, kind: str, name: str, items: Sequence[Value]) -> Value:
    """A variable `kind name(items..)`: a container, memory of the device's where it is one of Thrust's there, else the first item (`int k(3)`)."""
    found = _KIND.fullmatch(kind.strip())
    if found is None:
        return items[0] if items else Unknown(kind)
    first = items[0] if items else None
    held = first if isinstance(first, Container) else Container(known, first if isinstance(first, n.Expr) and is_number(first) else None)
    if found[1] not in _OF_THE_DEVICE:
        return Container(known, held.length)
    length = held.method("size", ())
    return Memory(known, name, [length] if isinstance(length, n.Expr) else None, TYPES.get(found[2].strip(), ""))

