"""Host texts that are put together: f-strings, and what generators of inline asm use beside plain expressions (`for` over ranges, methods of strings)."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import libcst as cst

from ..values.values import Items, NotUnderstood, Value, is_known

MOST_ROUNDS = 4096
"""Rounds that host loops may take."""
METHODS: Mapping[str, Callable[..., Any]] = {
    name: getattr(str, name) for name in ("format", "join", "split", "strip", "lstrip", "rstrip", "replace", "lower", "upper", "splitlines")
}
"""Methods of strings that are evaluated."""
CONVERSIONS: Mapping[str, Callable[[object], str]] = {"r": repr, "s": str, "a": ascii}
"""What `!r` and its like stand for in an f-string."""
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


def parts(e: cst.BaseExpression) -> list[str | cst.FormattedStringExpression]:
    """What a string, an f-string or several beside each other are put together from. Raises NotUnderstood for bytes."""
    match e:
        case cst.ConcatenatedString(left=left, right=right):
            return [*parts(left), *parts(right)]
        case cst.SimpleString() if isinstance(text := e.evaluated_value, str):
            return [text]
        case cst.FormattedString():
            return [x if isinstance(x, cst.FormattedStringExpression) else _text(e, x) for x in e.parts]
    raise NotUnderstood("bytes where a text is needed")


def _text(e: cst.FormattedString, x: cst.BaseFormattedStringContent) -> str:
    assert isinstance(x, cst.FormattedStringText)
    prefix = "".join(c for c in e.start if c in "rR")
    try:
        return str(literal_eval(f"{prefix}{e.end}{x.value.replace('{{', '{').replace('}}', '}')}{e.end}"))
    except (SyntaxError, ValueError):
        raise NotUnderstood("an f-string with an escape of unusual form") from None


def put_together(given: Sequence[str | cst.FormattedStringExpression], values: Sequence[Value], specified: bool) -> str:
    """The text of `parts` with the values of its expressions in order. Triton's compiler leaves format specifications out, Python does what they say: they
    are understood where they are `specified`. Raises NotUnderstood."""
    left, out = iter(values), []
    for x in given:
        if isinstance(x, str):
            out.append(x)
            continue
        value = next(left)
        if not is_known(value) or x.equal is not None or (x.format_spec is not None and not specified):
            raise NotUnderstood("an f-string over values that are not known")
        spec = "".join(y.value if isinstance(y, cst.FormattedStringText) else "{" for y in x.format_spec or ())
        try:
            out.append(format(CONVERSIONS[x.conversion](value) if x.conversion else value, spec))
        except (TypeError, ValueError) as bad:
            raise NotUnderstood(f"an f-string: {bad}") from None
    return "".join(out)


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
