"""What calls of CUDA's own functions are given: arguments that are there, and what pointers point to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import SupportsIndex, overload

from kir.ir import build
from kir.ir import nodes as n

from ..source.source import Node
from ..symbols.symbols import Value
from ..types.c_types import VOID, CType
from ..types.errors import NotUnderstood
from ..values.conversions import type_text
from ..values.loads import rvalue
from ..values.memory import Place
from ..values.reading import Reading
from ..values.values import Pointer


class Arguments(list[Value]):
    """The arguments of a call of a function that is known by its name; to ask for one that is not there is not to understand the call."""

    def __init__(self, name: str, given: Iterable[Value], node: Node) -> None:
        super().__init__(given)
        self.name, self.node = name, node

    @overload
    def __getitem__(self, k: SupportsIndex) -> Value: ...
    @overload
    def __getitem__(self, k: slice) -> list[Value]: ...
    def __getitem__(self, k: SupportsIndex | slice) -> Value | list[Value]:
        if not isinstance(k, slice) and not -len(self) <= k.__index__() < len(self):
            raise NotUnderstood(f"'{self.name}' with {len(self)} argument{'' if len(self) == 1 else 's'}", self.node)
        return super().__getitem__(k)


def place_of(r: Reading, v: Value, node: Node) -> tuple[Place, CType]:
    """What a pointer argument points to."""
    v = rvalue(r, v)
    if not isinstance(v, Pointer) or v.type.to == VOID:
        raise NotUnderstood(f"the address {type_text(v)}", node)
    return v.place, v.type.to


def called(fn: str, *args: n.Expr | n.Region, options: Mapping[str, n.Attr]) -> n.Call:
    """A call with its attributes as data."""
    return build.call_with(fn, args, n.attrs(**options))
