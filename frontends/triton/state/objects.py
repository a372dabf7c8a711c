"""Objects that Triton passes by their parts: how they are made, and what their parts and functions are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..._python.project import decorator_name
from ..host.classes import declared, method_of
from ..values.values import Bound, Host, Jit, NotUnderstood, Record, Unknown, Value
from .inlining import bind, run_function
from .naming import named
from .state import Frame, State

MAKER = "__init__"


def made_of(r: State, of: Host, args: Sequence[Value], given: dict[str, Value]) -> Record:
    """The object that a call of a class makes: what its `__init__` gives the names of `self`, or, without one, its annotated names in order."""
    title, maker = of.node.name.value, method_of(of.node, MAKER)
    if maker is None:
        wanted = declared(of.node)
        found = {**dict(zip(wanted, args, strict=False)), **given}
        if len(args) > len(wanted) or not wanted.keys() >= found.keys():
            raise NotUnderstood(f"arguments of '{title}' do not fit")
        scope = r.root.scope(of.module)
        found |= {k: scope.evaluate(e) for k, e in wanted.items() if k not in found and e is not None}
        if lacking := [k for k in wanted if k not in found]:
            raise NotUnderstood(f"'{title}' lacks its argument '{lacking[0]}'")
        return Record(tuple(found[k] for k in wanted), of, tuple(wanted))
    r.calls += 1
    frame = Frame(Jit(of.module, maker), r.root.scope(of.module), number=r.calls)
    bind(r, frame, [Record((), of), *args], given)
    own = next(iter(frame.env))
    r.frames.append(frame)
    try:
        run_function(r, maker.body)
    finally:
        r.frames.pop()
    made = frame.env.get(own)
    if not isinstance(made, Record):
        raise NotUnderstood(f"what '{title}' makes of itself")
    return made


def is_being_made(r: State, name: str) -> bool:
    """Whether a name is the object that the function being read makes."""
    return r.frame.fn.node.name.value == MAKER and isinstance(r.frame.env.get(name), Record)


def assign_part(r: State, owner: str, name: str, value: Value) -> None:
    """`self.name = value` in `__init__`."""
    made = r.frame.env[owner]
    assert isinstance(made, Record)
    if isinstance(value, Unknown):
        raise NotUnderstood(value.reason)
    parts = dict(zip(made.names, made.items, strict=True)) | {name: named(r, name, value)}
    r.frame.env[owner] = replace(made, items=tuple(parts.values()), names=tuple(parts))


def part_of(owner: Record, name: str) -> Value:
    """`object.name`: a part of it, or a function of its class."""
    if name in owner.names:
        return owner.items[owner.names.index(name)]
    found = method_of(owner.of.node, name)
    if found is None:
        raise NotUnderstood(f"attribute '{name}' of an object of {owner.of.node.name.value}")
    words = {(decorator_name(d) or "").rpartition(".")[2] for d in found.decorators}
    fn = Jit(owner.of.module, found)
    return fn if "staticmethod" in words else Bound(owner, fn, "jit" in words)
