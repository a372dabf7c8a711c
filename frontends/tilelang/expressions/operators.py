"""Operators, comparisons, conditions and choices on values of the host and of the kernel."""

from __future__ import annotations

from contextlib import nullcontext

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, dtype_of

from ..._python.python_operators import MOST_ITEMS
from ..state.evaluate import evaluate
from ..state.guards import guarded
from ..state.open_values import item_of_open
from ..state.reader import OWN, Reader, Undecided
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.names import DTYPES
from ..values.values import (
    Builtin,
    Choice,
    Instance,
    Items,
    Listed,
    Loop,
    Memory,
    NotUnderstood,
    Num,
    Open,
    Raised,
    Scope,
    Table,
    Text,
    TypeOf,
    Value,
    describe,
    is_known,
    is_number,
)

TENSORS = tuple(f"torch.{x}" for x in ("rand", "empty", "zeros", "ones", "full", "arange", "tensor", "eye", "linspace"))
"""How the questions begin whose answers are tensors of the host: arithmetic on them gives tensors."""


def unary_operation(r: Reader, scope: Scope, e: cst.UnaryOperation) -> Value:
    """`-a`, `+a`, `~a`, `not a`."""
    return unary(r, e.operator, evaluate(r, scope, e.expression))


def binary_operation(r: Reader, scope: Scope, e: cst.BinaryOperation) -> Value:
    """`a + b` and the like; a long sum is no deeper than a short one."""
    parts = [e]
    while isinstance(left := parts[-1].left, cst.BinaryOperation):
        parts.append(left)
    value = evaluate(r, scope, parts[-1].left)
    for part in reversed(parts):
        value = binary(r, arithmetic.named(part.operator), value, evaluate(r, scope, part.right))
    return value


def unary(r: Reader, operator: cst.BaseUnaryOp, value: Value) -> Value:
    """A unary operator on a value."""
    match operator:
        case cst.Not():
            found = r.truth(value)
            return (not found) if isinstance(found, bool) else Num(build.invert(found))
        case cst.Plus():
            return value
        case cst.Minus():
            value = r.settled(value)
            if is_number(value):
                return -value  # type: ignore[operator]  # a number
            return Num(build.negate(_numeric(r.run(value))))
        case _:
            value = r.settled(value)
            if isinstance(value, int):
                return ~value
            return Num(build.invert(r.run(value)))


def _numeric(e: n.Expr) -> n.Expr:
    return convert(e, I32) if dtype_of(e.type).is_bool else e


def binary(r: Reader, op: str, a: Value, b: Value) -> Value:
    """`a op b` on numbers, lists and texts."""
    a, b = r.settled(a), r.settled(b)
    if op in ("add", "mul"):
        for x in (a, b):
            if isinstance(x, Choice) and (isinstance(x.a, (Items, str)) or isinstance(x.b, (Items, str))):
                raise Undecided(x.cond)
    if op == "add" and isinstance(a, Items) and isinstance(b, Items):
        if len(a.items) + len(b.items) > MOST_ITEMS:
            raise NotUnderstood(f"a list of {len(a.items) + len(b.items)} items")
        return (Listed if isinstance(a, Listed) else Items)(a.items + b.items)
    if op == "mul" and isinstance(a, (Items, str)):
        count = r.known_int(b)
        if count is None and isinstance(a, Items) and len(a.items) == 1:
            return Loop("repeat", (a.items[0], b))
        if count is None:
            raise NotUnderstood("a list repeated as often as the binding says")
        if len(a.items if isinstance(a, Items) else a) * count > MOST_ITEMS:
            raise NotUnderstood(f"a list or text repeated {count} times")
        return (Listed if isinstance(a, Listed) else Items)(a.items * count) if isinstance(a, Items) else a * count
    if op == "mul" and isinstance(b, Items):
        return binary(r, op, b, a)
    if isinstance(a, Instance) or isinstance(b, Instance):
        raise NotUnderstood("arithmetic on an object")
    if op in ("eq", "ne"):
        return _equality(r, op, a, b)
    if any(isinstance(x, Open) and x.kind == "asked" and x.key.startswith(TENSORS) for x in (a, b)):
        return r.ask("computed", f"torch.empty {op}({a}, {b})")
    if (isinstance(a, Open) and a.kind == "asked") or (isinstance(b, Open) and b.kind == "asked"):
        for x in (a, b):
            if isinstance(x, Open) and x.kind == "asked" and is_number(a if x is b else b) and op in ("floordiv", "mod", "add", "sub", "mul"):
                r.kinds.setdefault(x.name, "int")
    if op in ("floordiv", "mod"):
        for x, y in ((a, b), (b, a)):
            if isinstance(y, int) or (isinstance(y, Num) and dtype_of(y.expr.type).is_integer):
                r.counts(x)
    return arithmetic.binary(op, a, b, r.run)


def is_text(r: Reader, v: Open | Text, text: str) -> bool | n.Expr:
    """Whether a value of the binding is a text: known, or a condition."""
    return _equal(r, v, text)


def _equality(r: Reader, op: str, a: Value, b: Value) -> Value:
    found = _equal(r, a, b)
    if isinstance(found, bool):
        return found == (op == "eq")
    if op == "ne" and isinstance(found, n.Binary) and found.op == "eq":
        return Num(arithmetic.operated("ne", found.a, found.b))
    return Num(found if op == "eq" else build.invert(found))


def _equal(r: Reader, a: Value, b: Value) -> bool | n.Expr:
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Open) and x.name in r.given:
            return _equal(r, r.given[x.name], y)
        if isinstance(x, (Open, Text)) and isinstance(y, str):
            if isinstance(x, Open) and is_dtype(r, x):
                return _equal(r, TypeOf(r.dtype(x)), TypeOf(r.dtype(y)))
            var = r.meta(x.name, "str")
            r.choices.setdefault(x.name, []).append(y)
            return _outcome(r, build.call("meta_is", var, value=y))
        if isinstance(x, Open) and (isinstance(y, TypeOf) or (isinstance(y, (Open, Choice)) and is_dtype(r, x))):
            return _outcome(r, equal_types(r, TypeOf(r.dtype(x)), y))
        if isinstance(x, TypeOf) and isinstance(y, (str, TypeOf)) and not (isinstance(y, str) and not _names_dtype(y)):
            return _outcome(r, equal_types(r, x, TypeOf(r.dtype(y))))
        if isinstance(x, Choice) and not is_number(y) and not isinstance(y, (Num, Choice)):
            one, two = _equal(r, x.a, y), _equal(r, x.b, y)
            left = arithmetic.literal(one) if isinstance(one, bool) else one
            right = arithmetic.literal(two) if isinstance(two, bool) else two
            return _outcome(r, build.logical_or(build.logical_and(x.cond, left), build.logical_and(build.invert(x.cond), right)))
    if is_known(a) and is_known(b):
        return a == b
    if isinstance(a, Items) and isinstance(b, Items):
        if len(a.items) != len(b.items):
            return False
        out: bool | n.Expr = True
        for p, q in zip(a.items, b.items, strict=True):
            one = _equal(r, p, q)
            if one is False:
                return False
            if not isinstance(one, bool):
                out = one if out is True else build.logical_and(_expr(out), one)
        return out
    if a is None or b is None:
        return _is_none(r, b if a is None else a)
    made = arithmetic.binary("eq", a, b, r.run)
    if isinstance(made, bool):
        return made
    assert isinstance(made, Num)
    return _outcome(r, made.expr)


def _expr(x: bool | n.Expr) -> n.Expr:
    return arithmetic.literal(x) if isinstance(x, bool) else x


def _names_dtype(text: str) -> bool:
    return text in DTYPES


def _outcome(r: Reader, cond: n.Expr) -> bool | n.Expr:
    found = r.outcome(cond)
    return cond if found is None else found


def is_dtype(r: Reader, v: Open) -> bool:
    """Whether a parameter is a dtype, as its use tells."""
    return r.kinds.get(v.name) == "dtype" or v.kind == "dtype" or (v.name in r.metas and r.metas[v.name].kind == "dtype")


def equal_types(r: Reader, a: TypeOf, b: Value) -> n.Expr:
    """Whether two dtypes are one: known now, or asked of the binding."""
    other = r.dtype(b)
    if not a.dtype.is_symbolic and not other.is_symbolic:
        return build.const(a.dtype == other, BOOL)
    for one, two in ((a.dtype, other), (other, a.dtype)):
        if not two.is_symbolic:
            r.choices.setdefault(one.name, []).append(TypeOf(two))
    return build.call("dtype_is", a=a.dtype.name, b=other.name)


def _is_none(r: Reader, v: Value) -> bool | n.Expr:
    v = r.settled(v)
    match v:
        case None:
            return True
        case Open() if v.name in r.given:
            return r.given[v.name] is None
        case Open() | Text():
            r.kinds.setdefault(v.name, "any")
            return _outcome(r, build.call("meta_is", r.meta(v.name, "any"), value="None"))
        case Choice():
            one, two = _expr(_is_none(r, v.a)), _expr(_is_none(r, v.b))
            return _outcome(r, build.logical_or(build.logical_and(v.cond, one), build.logical_and(build.invert(v.cond), two)))
        case _:
            return False


def boolean(r: Reader, scope: Scope, e: cst.BooleanOperation) -> Value:
    """`and`, `or`: the right side only where the left one does not decide."""
    left = r.settled(evaluate(r, scope, e.left))
    found = r.truth(left)
    conjunction = isinstance(e.operator, cst.And)
    if isinstance(found, bool):
        return evaluate(r, scope, e.right) if found == conjunction else left
    try:
        with r.assuming(found, conjunction) if r.is_static(found) else nullcontext():
            other = r.settled(evaluate(r, scope, e.right))
    except Raised:  # the host would fail if it asked for the right side
        if not r.is_static(found):
            raise
        r.sure()
        r.assume(build.invert(found) if conjunction else found)
        return left
    if _is_thing(r, left) or _is_thing(r, other):
        return Choice(found, other, left) if conjunction else Choice(found, left, other)
    right = r.truth(other)
    if isinstance(right, bool):
        if right == conjunction:
            return Num(found)
        return right
    right = guarded(r, right, found if conjunction else build.invert(found))
    return Num((build.logical_and if conjunction else build.logical_or)(found, right))


def _is_thing(r: Reader, v: Value) -> bool:
    """Whether a value is no condition: `a or b` then means one of them."""
    match v:
        case Open():
            kind = r.metas[v.name].kind if v.name in r.metas else r.kinds.get(v.name) or v.kind
            return kind not in ("bool", "") and kind != "any"
        case TypeOf() | Items() | Text() | Table() | Memory():
            return not (isinstance(v, Memory) and v.var)
        case Choice():
            return _is_thing(r, v.a) or _is_thing(r, v.b)
        case _:
            return isinstance(v, str) or v is None


def comparison(r: Reader, scope: Scope, e: cst.Comparison) -> Value:
    """A chain of comparisons."""
    left = evaluate(r, scope, e.left)
    out: bool | n.Expr = True
    for part in e.comparisons:
        right = evaluate(r, scope, part.comparator)
        one = r.truth(_compared(r, part.operator, left, right))
        if one is False:
            return False
        if not isinstance(one, bool):
            out = one if out is True else build.logical_and(_expr(out), one)
        left = right
    return out if isinstance(out, bool) else Num(out)


def _compared(r: Reader, operator: cst.BaseCompOp, a: Value, b: Value) -> Value:
    match operator:
        case cst.Is() | cst.IsNot():
            wanted = isinstance(operator, cst.Is)
            if b is None or a is None:
                found = _is_none(r, a if b is None else b)
            else:
                found = _equal(r, r.settled(a), r.settled(b))
            return (found == wanted) if isinstance(found, bool) else Num(found if wanted else build.invert(found))
        case cst.In() | cst.NotIn():
            wanted = isinstance(operator, cst.In)
            found = _contained(r, a, r.decided(b))
            return (found == wanted) if isinstance(found, bool) else Num(found if wanted else build.invert(found))
        case _:
            op, a, b = arithmetic.BINARY[type(operator)], r.settled(a), r.settled(b)
            if isinstance(a, Items) or isinstance(b, Items):
                return _in_order(r, op, a, b)
            for x, y in ((a, b), (b, a)):
                if isinstance(x, Choice) and is_number(y) and (is_number(x.a) or is_number(x.b)):  # one side may be decided before the kernel runs
                    sides = [binary(r, op, side, y) if x is a else binary(r, op, y, side) for side in (x.a, x.b)]
                    if any(isinstance(side, bool) for side in sides):
                        return Choice(x.cond, *sides)
            return binary(r, op, a, b)


def _in_order(r: Reader, op: str, a: Value, b: Value) -> Value:
    """A comparison of two tuples, element by element; an open one, such as what the machine answers, has as many as the other."""
    def items(v: Value, like: Value) -> tuple[Value, ...]:
        if isinstance(v, Items):
            return v.items
        if isinstance(v, Open) and isinstance(like, Items):
            if v.name in r.given and isinstance(given := r.given[v.name], Items):
                return given.items
            return tuple(item_of_open(r, v, k) for k in range(len(like.items)))
        raise NotUnderstood(f"{describe(v)} compared with a tuple")

    left, right = items(a, b), items(b, a)
    if op in ("eq", "ne"):
        return _equality(r, op, Items(left), Items(right))
    if len(left) != len(right) or not left:
        raise NotUnderstood("tuples of two lengths compared")
    strict = {"le": "lt", "ge": "gt"}.get(op, op)
    out: Value = binary(r, op, left[-1], right[-1])
    for x, y in zip(reversed(left[:-1]), reversed(right[:-1]), strict=True):
        same, first, rest = r.truth(binary(r, "eq", x, y)), r.truth(binary(r, strict, x, y)), r.truth(out)
        both = build.logical_or(_expr(first), build.logical_and(_expr(same), _expr(rest)))
        found = _outcome(r, both)
        out = found if isinstance(found, bool) else Num(found)
    return out


def _contained(r: Reader, a: Value, b: Value) -> bool | n.Expr:
    if isinstance(b, str) and isinstance(a, str):
        return a in b
    if isinstance(b, Builtin) or (isinstance(b, Open) and b.kind == "asked"):
        return r.truth(r.ask(a if isinstance(a, str) and a.isidentifier() else "present", f"{a} in {b.name}", ""))
    if isinstance(b, (Text, Open)) and isinstance(a, str):
        name = "".join(x if x.isalnum() else "_" for x in f"{b.name}_has_{a}")
        return r.truth(r.ask(name, f"{OWN}{a} in {b.name}", "bool"))
    items = b.items if isinstance(b, Items) else tuple(k for k, _ in b.items) if isinstance(b, Table) else None
    if items is None:
        raise NotUnderstood(f"'in' {describe(b)}")
    out: bool | n.Expr = False
    for x in items:
        one = _equal(r, r.settled(a), r.settled(x))
        if one is True:
            return True
        if not isinstance(one, bool):
            out = one if out is False else build.logical_or(_expr(out), one)
    return out


def conditional(r: Reader, scope: Scope, e: cst.IfExp) -> Value:
    """`a if c else b`: one side where the condition is known, else a choice."""
    found = r.truth(evaluate(r, scope, e.test))
    if isinstance(found, bool):
        return evaluate(r, scope, e.body if found else e.orelse)
    if r.is_static(found):
        sides: list[Value] = []
        for holds, side in ((True, e.body), (False, e.orelse)):
            try:
                with r.assuming(found, holds):
                    sides.append(evaluate(r, scope, side))
            except Raised:  # the host would fail on this side
                r.sure()
                r.assume(build.invert(found) if holds else found)
                return evaluate(r, scope, e.orelse if holds else e.body)
        return r.merged(found, *sides)
    return chosen(r, found, evaluate(r, scope, e.body), evaluate(r, scope, e.orelse))


def chosen(r: Reader, cond: n.Expr, a: Value, b: Value) -> Value:
    """`a` where a condition of the kernel holds, else `b`; what only one of them reads is read under its condition."""
    left, right = arithmetic.paired(r.settled(a), r.settled(b), r.run)
    return Num(build.select(cond, guarded(r, left, cond), guarded(r, right, build.invert(cond))))
