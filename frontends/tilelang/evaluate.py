"""Expressions of the host and of the kernel: one evaluator, over values that may stay open."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from . import arithmetic, operators, subscripts
from .mutable import with_item
from .names import said_dtype
from .reader import Reader, Undecided
from .values import (
    Function,
    Instance,
    Items,
    Listed,
    Loop,
    NotUnderstood,
    Open,
    Raised,
    Scope,
    Table,
    TypeOf,
    Unknown,
    Value,
    describe,
    is_known,
)

DEEPEST = 60


def evaluate(r: Reader, scope: Scope, e: cst.BaseExpression) -> Value:
    """The value of an expression. Raises NotUnderstood, and Undecided where a static condition must be told first."""
    r.depth += 1
    if r.depth > DEEPEST:
        r.depth -= 1
        raise NotUnderstood("an expression nested too deeply")
    try:
        return _evaluate(r, scope, e)
    finally:
        r.depth -= 1


def _evaluate(r: Reader, scope: Scope, e: cst.BaseExpression) -> Value:
    match e:
        case cst.Integer() | cst.Float() | cst.SimpleString() | cst.ConcatenatedString():
            value = e.evaluated_value
            return value.decode() if isinstance(value, bytes) else value
        case cst.FormattedString():
            return _formatted(r, scope, e)
        case cst.Name(value="True"):
            return True
        case cst.Name(value="False"):
            return False
        case cst.Name(value="None"):
            return None
        case cst.Name():
            from .lookup import lookup

            return r.settled(lookup(r, scope, e.value))
        case cst.Attribute():
            return subscripts.attribute(r, evaluate(r, scope, e.value), e.attr.value)
        case cst.Tuple():
            return Items(tuple(_elements(r, scope, e.elements)))
        case cst.List() | cst.Set():
            return Listed(_elements(r, scope, e.elements))
        case cst.Subscript(value=cst.Name(value=name)) if r.assumed and evaluate(r, scope, e.value) is None:
            raise Raised(f"a subscript of '{name}', which is None", (), scope.module.origin(e))
        case cst.Subscript():
            return subscripts.subscript(r, evaluate(r, scope, e.value), subscripts.indices(r, scope, e.slice))
        case cst.UnaryOperation():
            return operators.unary(r, e.operator, evaluate(r, scope, e.expression))
        case cst.BinaryOperation():
            return operators.binary(r, arithmetic.named(e.operator), evaluate(r, scope, e.left), evaluate(r, scope, e.right))
        case cst.BooleanOperation():
            return operators.boolean(r, scope, e)
        case cst.Comparison():
            return operators.comparison(r, scope, e)
        case cst.IfExp():
            return operators.conditional(r, scope, e)
        case cst.Call():
            from .calls import call

            return call(r, scope, e)
        case cst.Lambda():
            return Function(e, scope)
        case cst.ListComp() | cst.SetComp():
            return Listed(_comprehended(r, scope, (e.elt,), e.for_in, 0))
        case cst.GeneratorExp():
            return Items(tuple(_comprehended(r, scope, (e.elt,), e.for_in, 0)))
        case cst.Dict():
            return Table(_pairs(r, scope, e))
        case cst.DictComp():
            keys, values = (_comprehended(r, scope, (e.key, e.value), e.for_in, k) for k in (0, 1))
            out: tuple[tuple[Value, Value], ...] = ()
            for key, held in zip(keys, values, strict=True):
                out = with_item(out, key, held)
            return Table(out)
        case _:
            raise NotUnderstood(f"an expression of the form {type(e).__name__}")


def _formatted(r: Reader, scope: Scope, e: cst.FormattedString) -> Value:
    out = []
    for part in e.parts:
        if isinstance(part, cst.FormattedStringText):
            out.append(part.value)
            continue
        assert isinstance(part, cst.FormattedStringExpression)
        value = evaluate(r, scope, part.expression)
        if not is_known(value) or part.format_spec is not None:
            return Unknown("a text that is put together from open values")
        out.append(str(value))
    return "".join(out)


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


def iterated(r: Reader, v: Value) -> tuple[Value, ...]:
    """The elements of a list of the host. Raises NotUnderstood where they are not known."""
    v = r.decided(v)
    match v:
        case Items():
            return v.items
        case Instance():
            from .lookup import unpacked

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
    raise NotUnderstood(f"a loop of the host over {describe(v)}" + listed(v))


def listed(v: Value) -> str:
    """How a binding gives the elements of an open list."""
    return f": give the binding its elements, as the metas {v.name}_0, {v.name}_1, .." if isinstance(v, Open) else ""


def bound(r: Reader, target: cst.BaseExpression, value: Value) -> list[tuple[str, Value]]:
    """The names of a target with what an assignment gives them."""
    match target:
        case cst.Name():
            return [(target.value, value)]
        case cst.Tuple() | cst.List():
            value = r.decided(value)
            if isinstance(value, Open):
                value = Items(tuple(subscripts.item_of_open(r, value, k, x.value) for k, x in enumerate(target.elements)))
            if isinstance(value, Instance):
                from .lookup import unpacked

                value = Items(unpacked(r, value))
            if not isinstance(value, Items):
                raise NotUnderstood(f"{describe(value)} taken apart into {len(target.elements)} names")
            if len(value.items) != len(target.elements):
                raise NotUnderstood(f"{len(value.items)} values for {len(target.elements)} names")
            return [p for x, v in zip(target.elements, value.items, strict=True) for p in bound(r, x.value, v)]
        case _:
            raise NotUnderstood("an assignment to what is no name")
