"""Functions of the source, read in place where they are called."""

from __future__ import annotations

import libcst as cst

from kir.ir import nodes as n

from ..syntax.parameter_kinds import kinds, perhaps_none
from ..values.values import Frame, Function, Items, NotUnderstood, Num, Open, Place, Returned, Scope, Value
from .emission import let
from .evaluate import evaluate
from .execute import run_block
from .reader import Reader

MOST_CALLS = 40


def called(r: Reader, fn: Function, args: list[Value], named: dict[str, Value]) -> Value:
    """A function of the source read in place."""
    name = fn.node.name.value if isinstance(fn.node, cst.FunctionDef) else "lambda"
    if len(r.calling) >= MOST_CALLS:
        again = r.calling[len(r.calling) - r.calling[::-1].index(name) - 1:] if name in r.calling else []
        if again:
            raise NotUnderstood(f"'{name}' calls itself too often to follow ({' -> '.join([*again, name])})")
        raise NotUnderstood("functions that call one another too deeply")
    r.calling.append(name)
    wanted, depth, r.depth = r.wanted, r.depth, 0
    try:
        scope = Scope({}, fn.scope.module, fn.scope)
        references = _bind(r, fn, args, named, scope)
        if isinstance(fn.node, cst.Lambda):
            return evaluate(r, scope, fn.node.body)
        r.wanted = ""
        if r.launched:
            for name, value in list(scope.names.items()):
                if isinstance(value, (Num, Place)) and name not in references:
                    scope.names[name] = _named_number(r, name, value)
        found = run_block(r, Frame(scope), fn.node.body.body)
        return found.value if isinstance(found, Returned) else None
    finally:
        r.wanted, r.depth = wanted, depth
        r.calling.pop()


def _bind(r: Reader, fn: Function, args: list[Value], named: dict[str, Value], scope: Scope) -> set[str]:
    """Arguments to parameters; the names of those that are places to be written (`T.Ref`)."""
    params = fn.node.params
    names = [p.name.value for p in (*params.posonly_params, *params.params)]
    _say_kinds(r, fn, [*zip(names, args), *named.items()])
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


def _say_kinds(r: Reader, fn: Function, given: list[tuple[str, Value]]) -> None:
    """The kinds of parameters of the factory of which nothing is known yet, as the function tells that they are handed to."""
    untold = [(name, v) for name, v in given if isinstance(v, Open) and r.untold(v)]
    if not untold or not isinstance(fn.node, cst.FunctionDef):
        return
    told, doubtful = kinds(fn.node), perhaps_none(fn.node)
    for name, v in untold:
        if name in told and name not in doubtful:
            r.kinds[v.name] = told[name]


def _named_number(r: Reader, name: str, value: Value) -> Value:
    """A number of the kernel under a name of its own."""
    if isinstance(value, Place) and (value.var or any(isinstance(i, n.Span) for i in value.index) or len(value.index) < len(value.buffer.shape)):
        return value
    if not r.launched:
        return value  # no statement stands before the launch
    return let(r, name, r.run(value))


def anonymous(r: Reader, scope: Scope, e: cst.Lambda) -> Value:
    """A `lambda`, with the names that it closes over."""
    return Function(e, scope)
