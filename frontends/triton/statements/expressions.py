"""Expressions of Triton become values; what they compute becomes IR."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32

from ..calls.handlers import builtin_call, method_call
from ..host import strings
from ..host.classes import is_passed_by_parts
from ..state import joins
from ..state.arithmetic import arithmetic, converted, negation, truth
from ..state.inlining import inline
from ..state.objects import made_of, part_of
from ..state.state import State
from ..types.shapes import attribute_of, subscript
from ..values import operators
from ..values.arguments import Arguments
from ..values.emitter import buffer_read
from ..values.values import (
    Bound,
    Builtin,
    Choice,
    Host,
    Items,
    Jit,
    Member,
    MetaFunction,
    Method,
    ModuleValue,
    NotUnderstood,
    Pointer,
    Record,
    Run,
    Slice,
    Static,
    TypeOf,
    Undefined,
    Unknown,
    Value,
    describe,
    is_known,
    is_number,
    items_of,
)


def evaluate(r: State, e: cst.BaseExpression) -> Value:
    """The value of an expression. Raises NotUnderstood."""
    match e:
        case cst.Name():
            return _lookup(r, e.value)
        case cst.Integer() | cst.Float() | cst.SimpleString():
            return r.root.evaluate(e)
        case cst.BinaryOperation():
            op = operators.ARITHMETIC.get(type(e.operator).__name__)
            if op is None:
                raise NotUnderstood(f"operator {type(e.operator).__name__}")
            return arithmetic(r, op, evaluate(r, e.left), evaluate(r, e.right))
        case cst.UnaryOperation():
            if isinstance(e.operator, cst.Not):
                return negation(r, evaluate(r, e.expression))
            op = {cst.Minus: "neg", cst.Plus: "pos", cst.BitInvert: "not"}[type(e.operator)]
            return joins.over(r, (evaluate(r, e.expression),), lambda v: operators.unary(op, v))
        case cst.Comparison():
            return _comparison(r, e)
        case cst.BooleanOperation():
            return _boolean(r, e)
        case cst.IfExp():
            return _conditional(r, e)
        case cst.Attribute():
            return _attribute(r, evaluate(r, e.value), e.attr.value)
        case cst.Subscript():
            return _subscript(r, e)
        case cst.Call():
            return _call(r, e)
        case cst.Tuple() | cst.List():
            items: list[Value] = []
            for x in e.elements:
                value = evaluate(r, x.value)
                if isinstance(x, cst.StarredElement):
                    items.extend(items_of(value))
                else:
                    items.append(value)
            return Items(tuple(items))
        case cst.FormattedString() | cst.ConcatenatedString():
            return _text(r, e)
        case cst.ListComp() | cst.GeneratorExp():
            return _comprehension(r, e)
        case _:
            raise NotUnderstood(f"expression {type(e).__name__}")


def condition(r: State, e: cst.BaseExpression) -> Value:
    """The truth of a test."""
    return truth(r, evaluate(r, e))


def _lookup(r: State, name: str) -> Value:
    """The value of a name in the function being read; what a name in a buffer holds is a value over reads of its buffers."""
    frame = r.frame
    if name in frame.cells:
        cell = frame.cells[name]
        # A pointer between two tensors: where it points now, as names that stay while what is read of it is chosen.
        return joins.mapped(cell, lambda e: r.out.let(name, e)) if isinstance(cell, Choice) and not cell.static and buffer_read(cell.cond) else cell
    if name in frame.env:
        value = frame.env[name]
        if isinstance(value, Undefined):
            raise NotUnderstood(f"'{name}' may be unbound here")
        return value
    return frame.scope.lookup(name)


def _text(r: State, e: cst.BaseExpression) -> Value:
    """A text that is put together; one of what is not known while the kernel is compiled is unknown, as most are messages that nobody reads."""
    parts = strings.parts(e)
    try:
        values = tuple(evaluate(r, x.expression) for x in parts if not isinstance(x, str))
        return joins.over(r, values, lambda *vs: strings.put_together(parts, vs, False))
    except NotUnderstood as bad:
        return Unknown(bad.reason)


# -------------------------------------------------------------------------------------------------------------- conditions


def _comparison(r: State, e: cst.Comparison) -> Value:
    left = evaluate(r, e.left)
    out: Value = True
    for i, target in enumerate(e.comparisons):
        right = evaluate(r, target.comparator)
        made = _compared(r, target.operator, left, right)
        out = made if i == 0 else joins.over(r, (out, made), lambda a, b: operators.logical("and", a, b))
        left = right
    return out


def _compared(r: State, operator: cst.BaseCompOp, a: Value, b: Value) -> Value:
    word = type(operator).__name__
    if word in ("In", "NotIn"):
        found: Value = False
        for item in items_of(b):
            one = joins.over(r, (a, item), lambda x, y: operators.compare("eq", x, y))
            found = joins.over(r, (found, one), lambda x, y: operators.logical("or", x, y))
        return found if word == "In" else joins.over(r, (found,), operators.negation)
    if word in ("Is", "IsNot"):
        return joins.over(r, (a, b), lambda x, y: _identity(r, x, y, word == "IsNot"))
    return joins.over(r, (a, b), lambda x, y: operators.compare(operators.COMPARISON[word], x, y))


def _identity(r: State, a: Value, b: Value, negated: bool) -> Value:
    if b is None or a is None:
        value = a if b is None else b
        if value is None:
            return not negated
        made: n.Expr
        if isinstance(value, Pointer) and not value.terms:
            made = build.call("absent", param=value.base.name)
        elif isinstance(value, Run) and isinstance(value.expr, n.Var) and value.expr.name in r.metas:
            made = build.call("absent", param=value.expr.name)
        elif isinstance(value, Static) and isinstance(value.expr, n.Var):
            made = build.call("meta_is", value.expr, value="None")
        else:
            return negated
        return Static(build.invert(made) if negated else made)
    return operators.compare("ne" if negated else "eq", a, b)


def _boolean(r: State, e: cst.BooleanOperation) -> Value:
    op = "and" if isinstance(e.operator, cst.And) else "or"
    left = condition(r, e.left)
    if is_known(left) and bool(left) == (op == "or"):
        return left
    if isinstance(left, Static):
        with r.paths.under(left.expr, op == "and"):
            right = condition(r, e.right)
    else:
        right = condition(r, e.right)
    return joins.over(r, (left, right), lambda a, b: operators.logical(op, a, b))


def _conditional(r: State, e: cst.IfExp) -> Value:
    cond = condition(r, e.test)
    if is_known(cond):
        return evaluate(r, e.body if cond else e.orelse)
    if isinstance(cond, Static):
        if (asked := _left_out(cond.expr)) is not None:
            given = evaluate(r, e.body)
            own = isinstance(given, TypeOf) and (given.dtype.name == asked or given.dtype.name.startswith(f"beside({asked},"))
            if own and isinstance(instead := evaluate(r, e.orelse), TypeOf) and instead.dtype == F32:  # as it is written
                return given  # the dtype of an argument that is left out has no meaning
        return joins.static_branch(r, cond.expr, lambda: evaluate(r, e.body), lambda: evaluate(r, e.orelse))
    assert isinstance(cond, Run)
    return joins.choose(r, cond, lambda: evaluate(r, e.body), lambda: evaluate(r, e.orelse))


def _comprehension(r: State, e: cst.ListComp | cst.GeneratorExp) -> Value:
    loop = e.for_in
    if loop.ifs or loop.inner_for_in is not None or not isinstance(loop.target, cst.Name):
        raise NotUnderstood("a comprehension of unusual form")
    out: list[Value] = []
    saved = dict(r.frame.env)
    for item in items_of(evaluate(r, loop.iter)):
        r.frame.env[loop.target.value] = item
        out.append(evaluate(r, e.elt))
    r.frame.env = saved
    return Items(tuple(out))


# ------------------------------------------------------------------------------------------------------- attributes, calls


def _attribute(r: State, owner: Value, name: str) -> Value:
    """`owner.name`."""
    if isinstance(owner, Record):
        return part_of(owner, name)
    if isinstance(owner, (Builtin, ModuleValue, Member)) or (isinstance(owner, Host) and isinstance(owner.node, cst.ClassDef)):
        return r.frame.scope.attribute(owner, name)
    return joins.over(r, (owner,), lambda v: part_of(v, name) if isinstance(v, Record) else attribute_of(v, name))


def _subscript(r: State, e: cst.Subscript) -> Value:
    owner = evaluate(r, e.value)
    index = tuple(_index(r, s.slice) for s in e.slice)
    return joins.over(r, (owner,), lambda v: subscript(v, index))


def _index(r: State, s: cst.BaseSlice) -> Value:
    if isinstance(s, cst.Index):
        return evaluate(r, s.value)
    assert isinstance(s, cst.Slice)
    ends = [None if x is None else evaluate(r, x) for x in (s.lower, s.upper)]
    if s.step is not None or not all(x is None or isinstance(x, int) for x in ends):
        raise NotUnderstood("a slice whose ends are not literals")
    return Slice(*ends)  # type: ignore[arg-type]  # integers or None


def _call(r: State, e: cst.Call) -> Value:
    fn = evaluate(r, e.func)
    args: list[Value] = []
    named: dict[str, Value] = {}
    for a in e.args:
        value = evaluate(r, a.value)
        if a.star == "*":
            args.extend(items_of(value))
        elif a.star == "**":
            raise NotUnderstood("a call with **")
        elif a.keyword is not None:
            named[a.keyword.value] = value
        else:
            args.append(value)
    return call(r, fn, args, named)


def call(r: State, fn: Value, args: Sequence[Value], named: dict[str, Value]) -> Value:
    """`fn(*args, **named)`."""
    if isinstance(fn, Choice):
        return joins.over(r, (fn,), lambda f: call(r, f, [joins.settled(r, a) for a in args], {k: joins.settled(r, a) for k, a in named.items()}))
    if isinstance(fn, Jit):
        return inline(r, fn, args, named)
    if isinstance(fn, Bound):
        return inline(r, fn.fn, (fn.owner, *args), named, host=not fn.jit)
    if isinstance(fn, Host) and is_passed_by_parts(fn.node):
        return made_of(r, fn, args, named)
    keys = tuple(named)
    if isinstance(fn, Builtin) and fn.name in ("torch.finfo", "torch.iinfo") and len(args) == 1 and isinstance(args[0], TypeOf) and not named:
        return Builtin(f"{fn.name}.{args[0].dtype.name}")
    if isinstance(fn, Builtin):
        lazy = fn.name.rsplit(".", 1)[-1] in ("static_assert", "device_print", "device_assert", "static_print", "print")
        if lazy:
            return None
        return joins.over(
            r,
            (*args, *named.values()),
            lambda *vs: builtin_call(r, fn.name, Arguments(vs[: len(args)], dict(zip(keys, vs[len(args) :], strict=True)))),
        )
    if isinstance(fn, Method):
        return joins.over(
            r,
            (fn.owner, *args, *named.values()),
            lambda o, *vs: method_call(r, o, fn.name, Arguments(vs[: len(args)], dict(zip(keys, vs[len(args) :], strict=True)))),
        )
    if isinstance(fn, TypeOf) and len(args) == 1:
        return joins.over(r, (args[0],), lambda v: converted(v, fn.dtype))
    if isinstance(fn, Host) and isinstance(fn.node, cst.FunctionDef) and all(is_constexpr_value(v) for v in (*args, *named.values())):
        try:
            return r.root.call_host(fn, args, named)
        except NotUnderstood:
            return inline(r, Jit(fn.module, fn.node), args, named, host=True)
    if isinstance(fn, Host):
        raise NotUnderstood(f"a call of the host function '{fn.node.name.value}'")
    if isinstance(fn, MetaFunction):
        raise NotUnderstood(f"a call of '{fn.name}', a function that the binding decides")
    raise NotUnderstood(f"a call of {describe(fn)}")


def _left_out(cond: n.Expr) -> str | None:
    """The parameter or meta of which a condition says that it is given."""
    match cond:
        case n.Unary(op="not", x=n.Call(fn="absent") as asked):
            return str(dict(asked.attrs)["param"])
        case n.Unary(op="not", x=n.Call(fn="meta_is", args=(n.Var(name=name),)) as asked) if dict(asked.attrs)["value"] == "None":
            return name
        case _:
            return None


def is_constexpr_value(v: Value) -> bool:
    """A value that is known while the kernel is compiled: a number, text, dtype, function, or a tuple of them."""
    if isinstance(v, Items):
        return all(is_constexpr_value(x) for x in v.items)
    return is_number(v) or is_known(v) or isinstance(v, (TypeOf, Builtin, Host, Jit))
