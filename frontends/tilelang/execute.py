"""Statements of the host and of the kernel.

On the host a branch that the binding decides runs both ways and what it binds becomes a choice; in the kernel it becomes `static if`,
and numbers that both ways bind become registers. A statement of the kernel that is not understood becomes `opaque`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import libcst as cst

from kir.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, dtype_of

from ..triton.liveness import assigned_names
from . import assignments, branches, host_loops, mutable
from .arithmetic import convert
from .evaluate import evaluate
from .reader import Reader, Undecided
from .subscripts import annotated
from .values import (
    Class,
    Frame,
    Function,
    Items,
    Memory,
    NotUnderstood,
    Num,
    Place,
    Returned,
    Scope,
    Unknown,
    Value,
)

MOST_CALLS = 40


class Found(Exception):
    """The function that is looked for has been reached; `scope` is what it sees."""

    def __init__(self, scope: Scope) -> None:
        super().__init__("found")
        self.scope = scope


def called(r: Reader, fn: Function, args: list[Value], named: dict[str, Value]) -> Value:
    """A function of the source read in place."""
    r.depth += 1
    name = fn.node.name.value if isinstance(fn.node, cst.FunctionDef) else "lambda"
    if r.depth > MOST_CALLS:
        r.depth -= 1
        again = r.calling[len(r.calling) - r.calling[::-1].index(name) - 1:] if name in r.calling else []
        if again:
            raise NotUnderstood(f"'{name}' calls itself too often to follow ({' -> '.join([*again, name])})")
        raise NotUnderstood("functions that call one another too deeply")
    r.calling.append(name)
    wanted = r.wanted
    try:
        scope = Scope({}, fn.scope.module, fn.scope)
        references = _bind(r, fn, args, named, scope)
        if isinstance(fn.node, cst.Lambda):
            return evaluate(r, scope, fn.node.body)
        r.wanted = ""
        if r.device:
            for name, value in list(scope.names.items()):
                if isinstance(value, (Num, Place)) and name not in references:
                    scope.names[name] = _named_number(r, name, value)
        found = run_block(r, Frame(scope), fn.node.body.body)
        return found.value if isinstance(found, Returned) else None
    finally:
        r.wanted = wanted
        r.calling.pop()
        r.depth -= 1


def _bind(r: Reader, fn: Function, args: list[Value], named: dict[str, Value], scope: Scope) -> set[str]:
    """Arguments to parameters; the names of those that are places to be written (`T.Ref`)."""
    params = fn.node.params
    names = [p.name.value for p in (*params.posonly_params, *params.params)]
    star = params.star_arg if isinstance(params.star_arg, cst.Param) else None
    if len(args) > len(names) and star is None:
        raise NotUnderstood("more arguments than the function takes")
    scope.names.update(zip(names, args))
    if star is not None:
        scope.names[star.name.value] = Items(tuple(args[len(names):]))
    allowed = {*names, *(p.name.value for p in params.kwonly_params)}
    for k, v in named.items():
        if k not in allowed:
            raise NotUnderstood(f"the function has no parameter '{k}'")
        scope.names[k] = v
    references = set()
    for p in (*params.posonly_params, *params.params, *params.kwonly_params):
        if p.name.value not in scope.names:
            if p.default is None:
                raise NotUnderstood(f"the function lacks its argument '{p.name.value}'")
            scope.names[p.name.value] = evaluate(r, fn.scope, p.default)
        if p.annotation is not None and fn.scope.module.code(p.annotation.annotation).rsplit(".", 1)[-1] in ("Ref", "Var"):
            references.add(p.name.value)
            value = scope.names[p.name.value]
            if isinstance(value, Place):
                scope.names[p.name.value] = Place(value.buffer, value.index, True)
    return references


def _named_number(r: Reader, name: str, value: Value) -> Value:
    """A number of the kernel under a name of its own."""
    if isinstance(value, Place) and (value.var or any(isinstance(i, n.Span) for i in value.index) or len(value.index) < len(value.buffer.shape)):
        return value
    if isinstance(value, Place) and not r.launched:
        return value
    return assignments.let(r, name, r.run(value))


def run_block(r: Reader, f: Frame, body: Sequence[cst.CSTNode]) -> Returned | None:
    """Statements in order; what a `return` among them gives. Raises Found where the function looked for is defined."""
    for k, s in enumerate(body):
        found = run_one(r, f, s, body[k + 1:])
        if found is not None:
            return found
    return None


def run_one(r: Reader, f: Frame, s: cst.CSTNode, rest: Sequence[cst.CSTNode]) -> Returned | None:
    """One statement. `rest` are those after it, which belong to a branch that another branch's `return` leaves."""
    match s:
        case cst.SimpleStatementLine():
            for small in s.body:
                found = attempt(r, f, small, lambda small=small: assignments.small(r, f, small))
                if found is not None:
                    return found
            return None
        case cst.If():
            return branches.if_statement(r, f, s, rest)
        case cst.FunctionDef():
            if s is f.target:
                raise Found(f.scope)
            f.scope.names[s.name.value] = Function(s, f.scope)
            return None
        case cst.ClassDef():
            f.scope.names[s.name.value] = Class(s, f.scope)
            return None
        case cst.EmptyLine():
            return None
        case cst.For() if not r.device or not r.launched:
            return host_loops.host_for(r, f, s, rest)
        case cst.While() if not r.device:
            return host_loops.host_while(r, f, s)
        case cst.Try():
            return run_block(r, f, s.body.body)
        case cst.With():
            from .control import with_statement

            return attempt(r, f, s, lambda: with_statement(r, f, s))
        case cst.For():
            from .control import for_statement

            return attempt(r, f, s, lambda: for_statement(r, f, s))
        case cst.While():
            from .control import while_statement

            return attempt(r, f, s, lambda: while_statement(r, f, s))
        case _:
            return attempt(r, f, s, lambda: _fail(f"a statement of the form {type(s).__name__}"))


def _fail(reason: str) -> None:
    raise NotUnderstood(reason)


def attempt(r: Reader, f: Frame, s: cst.CSTNode, act: object) -> Returned | None:
    """A statement, with what follows when it cannot be decided or is not understood."""
    origin, taken = r.out.origin, set(r.out.taken)
    names, mark = dict(f.scope.names), len(r.changes)
    r.out.origin = f.scope.module.origin(s)
    try:
        with r.out.capture() as made:
            found: Returned | None = act()  # type: ignore[operator]  # a thunk
        r.out.block.extend(made)
        return found
    except Undecided as open_:
        restore(r, f, names, taken)
        mutable.undo(r, mark)
        return branches.both_ways(r, f, open_.cond, lambda: attempt(r, f, s, act), lambda: attempt(r, f, s, act), s)
    except (NotUnderstood, KirError, RecursionError) as bad:
        reason = bad.reason if isinstance(bad, NotUnderstood) else bad.diagnostics[0].message if isinstance(bad, KirError) else "it is nested too deeply"
        restore(r, f, names, taken)
        mutable.undo(r, mark)
        if r.launched:
            opaque(r, f, s, reason)
        mutable.lose(r, f.scope, s, reason)
        for name in assigned_names([s]) if isinstance(s, (cst.BaseStatement, cst.BaseSmallStatement)) else ():
            f.scope.names[name] = Unknown(reason)
        return Returned(Unknown(reason)) if isinstance(s, cst.Return) or branches.ends_in_return([s]) else None
    finally:
        r.out.origin = origin


def restore(r: Reader, f: Frame, names: dict[str, Value], taken: set[str]) -> None:
    """The names and taken names of a scope as they were."""
    f.scope.names.clear()
    f.scope.names.update(names)
    r.out.taken = taken | set(r.metas)


def opaque(r: Reader, f: Frame, s: cst.CSTNode, reason: str) -> None:
    """The statement kept as text, with the buffers that it names as read and written."""
    from ..triton.signature import nodes_below

    touched: dict[str, None] = {}
    known = True
    for x in nodes_below(s):
        if isinstance(x, cst.Name):
            value = _seen(f.scope, x.value)
            if isinstance(value, (Memory, Place)):
                touched[value.buffer.name] = None
            elif isinstance(value, Function):
                known = False
    where = tuple(touched) if known else ("*",)
    text = f.scope.module.code(s).strip()
    r.out.emit(n.Opaque("tilelang", text, reason, where, where))


def _seen(scope: Scope | None, name: str) -> Value | None:
    while scope is not None:
        if name in scope.names:
            return scope.names[name]
        scope = scope.parent
    return None


def parameter(r: Reader, p: cst.Param, scope: Scope) -> Value:
    """A parameter of a factory: open, with what its annotation and default say."""
    name = p.name.value
    if p.default is not None and name not in r.defaults:
        with contextlib.suppress(NotUnderstood):
            r.defaults[name] = evaluate(r, scope, p.default)
    return annotated(r, name, p.annotation.annotation if p.annotation is not None else None, scope)


def truth_of(r: Reader, scope: Scope, e: cst.BaseExpression) -> n.Expr:
    """A condition as an expression of the kernel."""
    found = r.truth(evaluate(r, scope, e))
    return build.const(found, BOOL) if isinstance(found, bool) else found


def index_of(r: Reader, v: Value) -> n.Expr:
    """A bound of a loop: i32 unless it is wider."""
    e = r.integer(v)
    return convert(e, I32) if dtype_of(e.type).is_bool else e
