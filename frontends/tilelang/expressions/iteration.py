"""What a value of the host is taken apart into: elements of a loop, names of a target."""

from __future__ import annotations

import libcst as cst

from ..state.open_values import item_of_open
from ..state.reader import Reader
from ..values.names import said_dtype
from ..values.values import Instance, Items, Loop, NotUnderstood, Open, Table, TypeOf, Value, describe
from .classes import unpacked


def iterated(r: Reader, v: Value) -> tuple[Value, ...]:
    """The elements of a list of the host. Raises NotUnderstood where they are not known."""
    v = r.decided(v)
    match v:
        case Items():
            return v.items
        case Instance():
            return unpacked(r, v)
        case str():
            return tuple(v)
        case TypeOf() if not v.dtype.is_symbolic:
            return tuple(said_dtype(v.dtype))
        case Table():
            return tuple(k for k, _ in v.items)
        case Loop(kind="range", args=args):
            ends = [r.known_int(a) for a in args]
            if all(x is not None for x in ends) and 1 <= len(ends) <= 3:
                values = range(*[x for x in ends if x is not None])
                if len(values) <= 4096:
                    return tuple(values)
            raise NotUnderstood("a loop of the host whose ends are not known")
    if isinstance(v, Open) and (given := r.given_items(v)):
        return given
    raise NotUnderstood(f"a loop of the host over {describe(v)}" + listed(r, v))


def listed(r: Reader, v: Value) -> str:
    """How a binding gives the elements of an open list, which is noted to be one."""
    if isinstance(v, Open):
        r.lists.setdefault(v.name, 0)
    return f": give the binding its elements, as the metas {v.name}_0, {v.name}_1, .." if isinstance(v, Open) else ""


def bound(r: Reader, target: cst.BaseExpression, value: Value) -> list[tuple[str, Value]]:
    """The names of a target with what an assignment gives them."""
    match target:
        case cst.Name():
            return [(target.value, value)]
        case cst.Tuple() | cst.List():
            value = r.decided(value)
            if isinstance(value, Open):
                value = Items(tuple(item_of_open(r, value, k, x.value) for k, x in enumerate(target.elements)))
            if isinstance(value, Instance):
                value = Items(unpacked(r, value))
            if not isinstance(value, Items):
                raise NotUnderstood(f"{describe(value)} taken apart into {len(target.elements)} names")
            if len(value.items) != len(target.elements):
                raise NotUnderstood(f"{len(value.items)} values for {len(target.elements)} names")
            return [p for x, v in zip(target.elements, value.items, strict=True) for p in bound(r, x.value, v)]
        case _:
            raise NotUnderstood("an assignment to what is no name")
