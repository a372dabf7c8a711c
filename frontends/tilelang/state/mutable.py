"""What changes in place on the host: lists, dicts, objects. A change is seen through every name that holds the thing, as in Python.

What a statement changed that is read again, or read both ways, is put back first; after both ways of a branch that the binding decides a
thing holds what it holds in either. Where that cannot be said, and where a statement that is not understood might have changed it, it is
lost: reading it is not understood, rather than a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from kir.ir import nodes as n

from ..._python.project import CHANGING
from ..._python.signature import nodes_below
from ..values.values import Changing, Instance, Items, Listed, NotUnderstood, Scope, State, Table, Unknown, Value, is_known, is_number
from .reader import Reader, Undecided, same

Merge = Callable[[str, Value, Value], Value]
"""What a thing stands for after a branch: of a name, and what it stands for after either way."""
LIST_WORDS = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort"})
DICT_WORDS = frozenset({"update", "setdefault", "pop", "clear", "popitem"})


def change(r: Reader, thing: Changing, state: State) -> None:
    """Give a thing another state, noted so that it can be put back."""
    r.changes.append((thing, thing.state))
    thing.become(state)


def undo(r: Reader, mark: int) -> None:
    """Put back what changed since `mark`, the number of changes then."""
    while len(r.changes) > mark:
        thing, state = r.changes.pop()
        thing.become(state)


def rolled_back(r: Reader, mark: int) -> dict[int, tuple[Changing, State]]:
    """What things have become since `mark`, by identity; they are put back."""
    found = {id(thing): (thing, thing.state) for thing, _ in r.changes[mark:]}
    undo(r, mark)
    return found


def settle(r: Reader, cond: n.Expr, ways: list[dict[int, tuple[Changing, State]]], kept: int | None, merge: Merge) -> None:
    """After a branch: what things have become in the way that is `kept`, or in both."""
    for key in dict.fromkeys(k for way in ways for k in way):
        thing = next(way[key][0] for way in ways if key in way)
        a, b = (way[key][1] if key in way else thing.state for way in ways)
        change(r, thing, (a, b)[kept] if kept is not None else _merged(r, cond, thing, a, b, merge))


def _merged(r: Reader, cond: n.Expr, thing: Changing, a: State, b: State, merge: Merge) -> State:
    if a == b:
        return a
    if isinstance(thing, Instance):
        missing = Unknown("an attribute that is set only where a condition of the host holds")
        return State(tuple((k, merge(str(k), dict(a.held).get(k, missing), dict(b.held).get(k, missing)))
                           for k in dict.fromkeys(k for k, _ in (*a.held, *b.held))))
    if a.lost or b.lost or a.either or b.either or len(a.held) != len(b.held):
        return _either(r, cond, a, b)
    if isinstance(thing, Listed):
        return State(tuple(merge(f"item_{k}", x, y) for k, (x, y) in enumerate(zip(a.held, b.held, strict=True))))
    if all(same(x[0], y[0]) for x, y in zip(a.held, b.held, strict=True)):
        return State(tuple((x[0], merge(f"item_{k}", x[1], y[1])) for k, (x, y) in enumerate(zip(a.held, b.held, strict=True))))
    return _either(r, cond, a, b)


def _either(r: Reader, cond: n.Expr, a: State, b: State) -> State:
    """One state where a condition of the binding holds, another where it does not: whoever looks at it must know which."""
    def here() -> State:
        outcome = r.outcome(cond)
        if outcome is None:
            raise Undecided(cond)
        return a if outcome else b
    return State(either=here)


# ------------------------------------------------------------------------------------------------------------------- in place
def set_item(r: Reader, owner: Listed | Table, index: list[Value], value: Value) -> None:
    """`owner[index] = value`. Raises NotUnderstood."""
    key = r.settled(index[0]) if len(index) == 1 else Items(tuple(index))
    if isinstance(owner, Table):
        change(r, owner, State(with_item(owner.items, key, value)))
        return
    k, items = r.known_int(key), list(owner.items)
    if k is None or not -len(items) <= k < len(items):
        raise NotUnderstood("an assignment to an element of a list that is not known" if k is None else f"index {k} of a list of {len(items)}")
    items[k] = value
    change(r, owner, State(tuple(items)))


def with_item(items: tuple[tuple[Value, Value], ...], key: Value, value: Value) -> tuple[tuple[Value, Value], ...]:
    """The pairs of a dict with one more, or another value for a key."""
    if any(same(k, key) for k, _ in items):
        return tuple((k, value if same(k, key) else v) for k, v in items)
    return (*items, (key, value))


def set_attribute(r: Reader, owner: Instance, name: str, value: Value) -> None:
    """`owner.name = value`."""
    change(r, owner, State((*((k, v) for k, v in owner.state.held if k != name), (name, value))))


def method(r: Reader, owner: Listed | Table, name: str, args: list[Value], elements: Callable[[Value], tuple[Value, ...]]) -> Value:
    """A method that changes a list or a dict, and what it returns. Raises NotUnderstood."""
    return _of_list(r, owner, name, args, elements) if isinstance(owner, Listed) else _of_dict(r, owner, name, args)


def _of_list(r: Reader, owner: Listed, name: str, args: list[Value], elements: Callable[[Value], tuple[Value, ...]]) -> Value:
    items = list(owner.items)
    out: Value = None
    match name, args:
        case "append", [x]:
            items.append(x)
        case "extend", [x]:
            items += elements(x)
        case "insert", [at, x] if (k := r.known_int(at)) is not None:
            items.insert(k, x)
        case "pop", ([] | [_]) if (k := r.known_int(args[0]) if args else -1) is not None and -len(items) <= k < len(items):
            out = items.pop(k)
        case "remove", [x] if is_known(x) and all(is_known(y) for y in items) and x in items:
            items.remove(x)
        case "clear", []:
            items = []
        case "reverse", []:
            items.reverse()
        case "sort", [] if all(is_number(x) for x in items):
            items.sort()
        case _:
            raise NotUnderstood(f"'{name}' of a list, with these values")
    change(r, owner, State(tuple(items)))
    return out


def _of_dict(r: Reader, owner: Table, name: str, args: list[Value]) -> Value:
    items = owner.items
    held = next((v for k, v in items if args and same(k, args[0])), None)
    there = any(args and same(k, args[0]) for k, _ in items)
    out: Value = None
    match name, args:
        case "update", [Table() as other]:
            for k, v in other.items:
                items = with_item(items, k, v)
        case "setdefault", [key, default]:
            out = held if there else default
            items = items if there else (*items, (key, default))
        case "pop", [key, *rest] if there or rest:
            out = held if there else rest[0]
            items = tuple((k, v) for k, v in items if not same(k, key))
        case "clear", []:
            items = ()
        case _:
            raise NotUnderstood(f"'{name}' of a dict, with these values")
    change(r, owner, State(items))
    return out


# ----------------------------------------------------------------------------------------------------------------------- lost
def lose(r: Reader, scope: Scope, s: cst.CSTNode, reason: str) -> None:
    """What a statement that was not understood might have changed: nothing is known of it from here on."""
    for base, name in _targets(s):
        thing = _held_by(scope, base)
        if isinstance(thing, Instance):
            if name:
                set_attribute(r, thing, name, Unknown(reason))
        elif thing is not None:
            change(r, thing, State(thing.state.held, reason))


def lose_arguments(r: Reader, scope: Scope, s: cst.CSTNode, reason: str) -> None:
    """The lists and dicts that a call made for its effect was given, of a function that is not read."""
    for x in nodes_below(s):
        thing = _held_by(scope, x.value) if isinstance(x, cst.Name) else None
        if isinstance(thing, (Listed, Table)):
            change(r, thing, State(thing.state.held, reason))


def _targets(s: cst.CSTNode) -> Iterator[tuple[str, str]]:
    """The names through which a statement changes something, at any depth, each with the attribute that it sets."""
    for x in (s, *nodes_below(s)):
        match x:
            case cst.AssignTarget(target=target) | cst.AugAssign(target=target) | cst.AnnAssign(target=target) | cst.Del(target=target):
                for t in (target, *nodes_below(target)):
                    if isinstance(t, (cst.Subscript, cst.Attribute)):
                        yield _base(t), t.attr.value if isinstance(t, cst.Attribute) else ""
            case cst.AugAssign(target=cst.Name(value=name)):
                yield name, ""
            case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value=word))) if word in CHANGING:
                yield _base(owner), ""
            case _:
                pass


def _base(e: cst.BaseExpression) -> str:
    while isinstance(e, (cst.Subscript, cst.Attribute)):
        e = e.value
    return e.value if isinstance(e, cst.Name) else ""


def _held_by(scope: Scope | None, name: str) -> Changing | None:
    while scope is not None:
        if name in scope.names:
            found = scope.names[name]
            return found if isinstance(found, (Listed, Table, Instance)) else None
        scope = scope.parent
    return None
