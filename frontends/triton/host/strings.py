"""Host texts that are put together by loops: what generators of inline asm use beside plain expressions (`for` over ranges, methods of
strings)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import libcst as cst

from ..values.values import Items, NotUnderstood, Value, is_known

MOST_ROUNDS = 4096
"""Rounds that host loops may take."""
METHODS: Mapping[str, Callable[..., Any]] = {
    name: getattr(str, name) for name in ("format", "join", "split", "strip", "lstrip", "rstrip", "replace", "lower", "upper", "splitlines")
}
"""Methods of strings that are evaluated."""
Evaluate = Callable[[cst.BaseExpression, Mapping[str, Value] | None], Value]


def method(e: cst.Call, owner: str, names: Mapping[str, Value] | None, evaluate: Evaluate) -> Value:
    """`text.method(..)`. Raises NotUnderstood."""
    assert isinstance(e.func, cst.Attribute)
    name = e.func.attr.value
    if name not in METHODS:
        raise NotUnderstood(f"the method '{name}' of a host string")
    args: list[Any] = []
    named: dict[str, Any] = {}
    for a in e.args:
        value = evaluate(a.value, names)
        plain = list(value.items) if isinstance(value, Items) and all(map(is_known, value.items)) else value
        if a.star or not (is_known(value) or isinstance(plain, list)):
            raise NotUnderstood("a method of a host string with arguments that are not known")
        if a.keyword is None:
            args.append(plain)
        else:
            named[a.keyword.value] = plain
    try:
        made = METHODS[name](owner, *args, **named)
    except (TypeError, ValueError, LookupError) as bad:
        raise NotUnderstood(f"the method '{name}' of a host string: {bad}") from None
    return Items(tuple(made)) if isinstance(made, list) else made


def rounds(e: cst.BaseExpression, names: Mapping[str, Value] | None, evaluate: Evaluate) -> Iterator[Value]:
    """The values that a host loop takes. Raises NotUnderstood."""
    if isinstance(e, cst.Call) and isinstance(e.func, cst.Name) and e.func.value == "range":
        args = [evaluate(a.value, names) for a in e.args]
        if all(isinstance(a, int) for a in args):
            found = range(*args)  # type: ignore[arg-type]  # integers, by the line above
            if len(found) > MOST_ROUNDS:
                raise NotUnderstood(f"a host loop of {len(found)} rounds")
            yield from found
            return
    value = evaluate(e, names)
    if not isinstance(value, Items) or len(value.items) > MOST_ROUNDS:
        raise NotUnderstood("a host loop over values that are not known")
    yield from value.items


def while_true(test: cst.BaseExpression, names: Mapping[str, Value] | None, evaluate: Evaluate) -> Iterator[None]:
    """The rounds of a host loop that goes on while a test holds. Raises NotUnderstood."""
    for _ in range(MOST_ROUNDS):
        outcome = evaluate(test, names)
        if not is_known(outcome):
            raise NotUnderstood("a host loop whose condition is not known")
        if not outcome:
            return
        yield
    raise NotUnderstood(f"a host loop of more than {MOST_ROUNDS} rounds")
