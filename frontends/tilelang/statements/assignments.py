"""Simple statements: assignments, stores, returns, assertions, imports."""

from __future__ import annotations

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32

from ..._python.project import small_definitions
from ..._python.signature import nodes_below
from ..expressions.iteration import bound, iterated
from ..expressions.lookup import defined
from ..expressions.operators import binary
from ..expressions.subscripts import indices, subscript
from ..state import mutable
from ..state.declarations import declared_here
from ..state.emission import let, store
from ..state.evaluate import evaluate
from ..state.reader import Reader
from ..values import arithmetic
from ..values.values import (
    Choice,
    Frame,
    Instance,
    Items,
    Listed,
    Memory,
    NotUnderstood,
    Num,
    Open,
    Place,
    Raised,
    Returned,
    Scope,
    Table,
    TypeOf,
    Unknown,
    Value,
    describe,
    is_known,
    is_number,
)


def small(r: Reader, f: Frame, s: cst.BaseSmallStatement) -> Returned | None:
    """A simple statement; what it returns, if it ends the function."""
    match s:
        case cst.Return(value=value):
            return Returned(None if value is None else _held(r, evaluate(r, f.scope, value)))
        case cst.Assign(targets=targets, value=value):
            target = targets[0].target
            r.wanted, r.born = target.value if isinstance(target, cst.Name) else "", set()
            made = evaluate(r, f.scope, value)
            for t in targets:
                assign(r, f, t.target, made)
        case cst.AnnAssign(target=target, value=value) if value is not None:
            made = evaluate(r, f.scope, value)
            if r.launched and isinstance(made, (int, float)) and not isinstance(made, bool):
                made = _annotated_number(r, f, s, made)
            assign(r, f, target, made)
        case cst.AugAssign(target=target, operator=operator, value=value):
            _augmented(r, f, target, arithmetic.named(operator), evaluate(r, f.scope, value))
        case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString() | cst.Ellipsis()) | cst.Pass():
            pass
        case cst.Global(names=names) | cst.Nonlocal(names=names):
            _not_its_own(f.scope, [x.name.value for x in names])
        case cst.Expr(value=value):
            made = evaluate(r, f.scope, value)
            if isinstance(made, Num) and isinstance(made.expr, n.Call) and made.expr.fn.startswith("atomic_"):
                r.out.emit(n.Eval(made.expr))
            if isinstance(made, Open) and made.kind == "asked":
                mutable.lose_arguments(r, f.scope, s, f"what '{f.scope.module.code(s).strip()[:60]}' does to it")
        case cst.Assert():
            _assert(r, f, s)
        case cst.Raise():
            raise Raised(f.scope.module.code(s).strip(), (), f.scope.module.origin(s))
        case cst.Import() | cst.ImportFrom():
            for name, d in small_definitions(f.scope.module, s):
                try:
                    f.scope.names[name] = defined(r, f.scope.module, d)
                except NotUnderstood as bad:
                    f.scope.names[name] = Unknown(bad.reason)
        case cst.Break() | cst.Continue() if r.launched:
            r.out.emit(n.Jump("break" if isinstance(s, cst.Break) else "continue"))
        case cst.AnnAssign(target=cst.Name(value=name)) if name in f.eager and not r.launched:
            declared_here(r, f, name, s.annotation.annotation)
        case cst.AnnAssign():
            pass
        case _:
            raise NotUnderstood(f"a statement of the form {type(s).__name__}")
    return None


def _not_its_own(scope: Scope, names: list[str]) -> None:
    """Names of what surrounds a function, which it may bind: nothing is known of them from here on."""
    for name in names:
        at: Scope | None = scope
        while at is not None:
            if name in at.names or at is scope:
                at.names[name] = Unknown(f"'{name}', which a function inside binds")
            at = at.parent


def _held(r: Reader, v: Value) -> Value:
    """What a macro returns: numbers as they are now."""
    if isinstance(v, Memory) and v.var:
        return let(r, v.buffer.name, r.run(v))
    if isinstance(v, Items):
        held = tuple(_held(r, x) for x in v.items)
        return v if all(x is y for x, y in zip(held, v.items, strict=True)) else (Listed if isinstance(v, Listed) else Items)(held)
    return v


def _annotated_number(r: Reader, f: Frame, s: cst.AnnAssign, made: int | float) -> Value:
    dtype = r.settled(evaluate(r, f.scope, s.annotation.annotation))
    if isinstance(dtype, TypeOf):
        e = arithmetic.valued(made, dtype.dtype)
        return Num(e) if e is not None else made
    return made


def _assert(r: Reader, f: Frame, s: cst.Assert) -> None:
    """On the host an assertion says what the binding must keep; in the kernel it is one."""
    try:
        found = r.truth(evaluate(r, f.scope, s.test))
    except NotUnderstood:
        if r.launched:
            raise
        return
    if found is False:
        raise Raised(f.scope.module.code(s).strip(), _given(r, f, s.test), f.scope.module.origin(s))
    if isinstance(found, bool):
        return
    if r.launched and not r.is_static(found):
        r.out.emit(n.Eval(build.call("assertion", found)))


def _given(r: Reader, f: Frame, e: cst.BaseExpression) -> tuple[str, ...]:
    """What the names of a condition stand for, where that is known."""
    out: dict[str, None] = {}
    for x in (e, *nodes_below(e)):
        if isinstance(x, cst.Name):
            try:
                value = evaluate(r, f.scope, x)
            except NotUnderstood:
                continue
            if isinstance(value, TypeOf):
                out[f"{x.value} is {value.dtype.name}"] = None
            elif is_known(value) and x.value not in ("True", "False", "None"):
                out[f"{x.value} is {value!r}"] = None
    return tuple(out)


def assign(r: Reader, f: Frame, target: cst.BaseExpression, value: Value) -> None:
    """`target = value`."""
    match target:
        case cst.Name(value=name):
            _assign_name(r, f, name, value)
        case cst.Tuple() | cst.List():
            value = r.decided(value)
            for t, v in bound_pairs(r, target, value):
                assign(r, f, t, v)
        case cst.Subscript():
            owner = r.decided(evaluate(r, f.scope, target.value))
            if isinstance(owner, (Listed, Table)):
                mutable.set_item(r, owner, indices(r, f.scope, target.slice), value)
            else:
                store(r, subscript(r, owner, indices(r, f.scope, target.slice)), value)
        case cst.Attribute():
            owner = r.decided(evaluate(r, f.scope, target.value))
            if not isinstance(owner, Instance):
                raise NotUnderstood(f"an assignment to an attribute of {describe(owner)}")
            value = r.settled(value)
            if isinstance(value, Open) and value.kind == "asked":
                value = r.ask(target.attr.value, value.key, "")
            mutable.set_attribute(r, owner, target.attr.value, _named(r, target.attr.value, value))
        case _:
            raise NotUnderstood(f"an assignment to a {type(target).__name__.lower()}")


def _named(r: Reader, name: str, value: Value) -> Value:
    """A number of the kernel under a name of its own; other values are themselves."""
    if r.launched and isinstance(value, Num):
        return let(r, name, value.expr)
    if r.launched and (_is_element(value) or (_is_variable(value) and not _fresh_variable(r, value))):
        return let(r, name, r.run(value))
    return value


def bound_pairs(r: Reader, target: cst.Tuple | cst.List, value: Value) -> list[tuple[cst.BaseExpression, Value]]:
    """The targets of a tuple with their values."""
    if isinstance(value, Open):
        return [(cst.Name(k), v) for k, v in bound(r, target, value)]
    if isinstance(value, Instance):
        value = Items(iterated(r, value))
    if isinstance(value, Num) and len(target.elements) == 1:
        return [(target.elements[0].value, value)]
    if not isinstance(value, Items) or len(value.items) != len(target.elements):
        raise NotUnderstood(f"{describe(value)} taken apart into {len(target.elements)} names")
    return [(t.value, v) for t, v in zip(target.elements, value.items, strict=True)]


def _assign_name(r: Reader, f: Frame, name: str, value: Value) -> None:
    held = f.scope.names.get(name)
    value = r.settled(value)
    if isinstance(value, Num) and value.expr == n.Var(r.thread, I32) and r.thread_name == "tid" and name not in r.out.taken:
        r.thread_name = name
    if isinstance(held, (Memory, Place)) and held.var and not (isinstance(value, Memory) and not _is_variable(value)) \
            and (is_number(value) or isinstance(value, (Num, Place, Memory, Open, Choice))) and not _fresh_variable(r, value):
        store(r, held if isinstance(held, Place) else Place(held.buffer, tuple(build.const(0) for _ in held.buffer.shape), True), value)
        return
    if isinstance(value, Open) and value.kind == "asked":
        value = r.ask(name, value.key, "")
    f.scope.names[name] = _named(r, name, value)


def _is_element(v: Value) -> bool:
    return isinstance(v, Place) and len(v.index) == len(v.buffer.shape) and not any(isinstance(i, n.Span) for i in v.index)


def _is_variable(v: Value) -> bool:
    return isinstance(v, Memory) and v.var


def _fresh_variable(r: Reader, v: Value) -> bool:
    """Whether a buffer was declared just now, by the value of this assignment."""
    return isinstance(v, Memory) and v.buffer.name in r.born


def _augmented(r: Reader, f: Frame, target: cst.BaseExpression, op: str, value: Value) -> None:
    old = evaluate(r, f.scope, target)
    if op == "add" and isinstance(old, Listed):
        mutable.method(r, old, "extend", [value], lambda v: iterated(r, v))
        return
    made = binary(r, op, old if not isinstance(old, Memory) or old.var else r.decided(old), value)
    if isinstance(target, cst.Name) and isinstance(old, Place) and old.var:
        store(r, old, made)
        return
    assign(r, f, target, made)
