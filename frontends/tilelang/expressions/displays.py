"""Literals, texts, tuples, lists, dicts and comprehensions."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from ..._python.signature import literal_value
from ..state.evaluate import evaluate
from ..state.mutable import with_item
from ..state.reader import Reader, Undecided
from ..values.values import Items, Listed, NotUnderstood, Open, Pieces, Scope, Table, Text, Unknown, Value, is_known
from .iteration import bound, iterated


def literal(r: Reader, scope: Scope, e: cst.Integer | cst.Float | cst.SimpleString | cst.ConcatenatedString) -> Value:
    """A number or a text as it is written."""
    value = literal_value(e)
    if value is None:
        raise NotUnderstood("a text that is put together of others, or is none")
    return value.decode() if isinstance(value, bytes) else value


def tuple_display(r: Reader, scope: Scope, e: cst.Tuple) -> Value:
    """`(a, *b)`."""
    return Items(tuple(_elements(r, scope, e.elements)))


def list_display(r: Reader, scope: Scope, e: cst.List | cst.Set) -> Value:
    """`[a, *b]`; a set is the list of its elements."""
    return Listed(_elements(r, scope, e.elements))


def list_comprehension(r: Reader, scope: Scope, e: cst.ListComp | cst.SetComp) -> Value:
    """`[x for x in xs]`, and of a set."""
    return Listed(_comprehended(r, scope, (e.elt,), e.for_in, 0))


def generator(r: Reader, scope: Scope, e: cst.GeneratorExp) -> Value:
    """`(x for x in xs)`: its elements at once."""
    return Items(tuple(_comprehended(r, scope, (e.elt,), e.for_in, 0)))


def dict_display(r: Reader, scope: Scope, e: cst.Dict) -> Value:
    """`{k: v, **other}`."""
    return Table(_pairs(r, scope, e))


def dict_comprehension(r: Reader, scope: Scope, e: cst.DictComp) -> Value:
    """`{k: v for k, v in pairs}`."""
    keys, values = (_comprehended(r, scope, (e.key, e.value), e.for_in, k) for k in (0, 1))
    out: tuple[tuple[Value, Value], ...] = ()
    for key, held in zip(keys, values, strict=True):
        out = with_item(out, key, held)
    return Table(out)


def formatted(r: Reader, scope: Scope, e: cst.FormattedString) -> Value:
    """`f".."`: a text of known values."""
    out: list[str | Open | Text] = []
    for part in e.parts:
        if isinstance(part, cst.FormattedStringText):
            out.append(part.value)
            continue
        assert isinstance(part, cst.FormattedStringExpression)
        value = evaluate(r, scope, part.expression)
        if part.format_spec is not None or not (is_known(value) or isinstance(value, (Open, Text))):
            return Unknown(OF_OPEN)
        out.append(value if isinstance(value, (Open, Text)) else str(value))
    known = [x for x in out if isinstance(x, str)]
    return "".join(known) if len(known) == len(out) else Pieces(OF_OPEN, tuple(out))


OF_OPEN = "a text that is put together from open values"


def _elements(r: Reader, scope: Scope, elements: Sequence[cst.BaseElement]) -> list[Value]:
    out: list[Value] = []
    for x in elements:
        value = evaluate(r, scope, x.value)
        if isinstance(x, cst.StarredElement):
            value = r.decided(value)
            out += iterated(r, value)
        else:
            out.append(value)
    return out


def _pairs(r: Reader, scope: Scope, e: cst.Dict) -> list[tuple[Value, Value]]:
    out: list[tuple[Value, Value]] = []
    for x in e.elements:
        value = evaluate(r, scope, x.value)
        if isinstance(x, cst.DictElement):
            out.append((evaluate(r, scope, x.key), value))
        elif isinstance(value, Table):
            out += value.items
        else:
            raise NotUnderstood("a dict spread from what is no dict")
    return out


def _comprehended(r: Reader, scope: Scope, elements: tuple[cst.BaseExpression, ...], loop: cst.CompFor, which: int) -> list[Value]:
    out: list[Value] = []
    for item in iterated(r, evaluate(r, scope, loop.iter)):
        inner = Scope(dict(bound(r, loop.target, item)), scope.module, scope)
        outcomes = [r.truth(evaluate(r, inner, test.test)) for test in loop.ifs]
        undecided = [x for x in outcomes if not isinstance(x, bool)]
        if undecided:
            raise Undecided(undecided[0])
        if all(outcomes):
            if loop.inner_for_in is None:
                out.append(evaluate(r, inner, elements[which]))
            else:
                out += _comprehended(r, inner, elements, loop.inner_for_in, which)
    return out
