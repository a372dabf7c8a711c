"""Statements of the host and of the kernel.

On the host a branch that the binding decides runs both ways and what it binds becomes a choice; in the kernel it becomes `static if`,
and numbers that both ways bind become registers. A statement of the kernel that is not understood becomes `opaque`.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from kir.base.diagnostic import KirError
from kir.ir import nodes as n

from ..._python.liveness import assigned_names
from ..._python.signature import nodes_below
from ..syntax.control_flow import ends_in_return
from ..values.values import Class, Frame, Function, Memory, NotUnderstood, Place, Returned, Scope, Unknown, Value
from . import mutable
from .handlers import Rest
from .reader import Reader, Undecided
from .static_branches import Found, Way, both_ways

MOST_STEPS = 12_000
"""Statements that are read for one kernel, at most: each as often as it is reached another way."""


def run_block(r: Reader, f: Frame, body: Sequence[cst.CSTNode], after: Rest = ()) -> Returned | None:
    """Statements in order; what a `return` among them gives. `after` are those behind the block. Raises Found where the function looked for is defined."""
    for k, s in enumerate(body):
        found = run_one(r, f, s, None if after is None else (*body[k + 1:], *after))
        if found is not None:
            return found
    return None


def run_one(r: Reader, f: Frame, s: cst.CSTNode, rest: Rest) -> Returned | None:
    """One statement. `rest` are those after it, which belong to a branch that another branch's `return` leaves."""
    r.steps += 1
    if r.steps > MOST_STEPS:
        raise NotUnderstood("more ways through branches that the binding decides than are followed")
    match s:
        case cst.SimpleStatementLine():
            for small in s.body:
                found = attempt(r, f, small, lambda small=small: r.handlers.simple_statement(r, f, small))  # type: ignore[misc]  # a default
                if found is not None:
                    return found
            return None
        case cst.FunctionDef():
            if s is f.target:
                raise Found(f.scope, r.assumed)
            f.scope.names[s.name.value] = Function(s, f.scope)
            return None
        case cst.ClassDef():
            f.scope.names[s.name.value] = Class(s, f.scope)
            return None
        case cst.EmptyLine():
            return None
        case cst.Try():
            return run_block(r, f, s.body.body, rest)
        case _:
            handler = r.handlers.statements.get(type(s))
            if handler is None:
                return attempt(r, f, s, lambda: _fail(f"a statement of the form {type(s).__name__}"))
            return handler(r, f, s, rest)


def _fail(reason: str) -> None:
    raise NotUnderstood(reason)


def attempt(r: Reader, f: Frame, s: cst.CSTNode, act: Way) -> Returned | None:
    """A statement, with what follows when it cannot be decided or is not understood."""
    origin, taken = r.out.origin, set(r.out.taken)
    names, mark = dict(f.scope.names), len(r.changes)
    r.out.origin = f.scope.module.origin(s)
    try:
        with r.out.capture() as made:
            found = act()
        r.out.block.extend(made)
        return found
    except Undecided as open_:
        restore(r, f, names, taken)
        mutable.undo(r, mark)
        return both_ways(r, f, open_.cond, lambda: attempt(r, f, s, act), lambda: attempt(r, f, s, act), s)
    except (NotUnderstood, KirError, RecursionError) as bad:
        reason = bad.reason if isinstance(bad, NotUnderstood) else bad.diagnostics[0].message if isinstance(bad, KirError) else "it is nested too deeply"
        restore(r, f, names, taken)
        mutable.undo(r, mark)
        if r.launched:
            opaque(r, f, s, reason)
        elif r.device and isinstance(s, cst.With):
            r.unread = r.unread or reason
        mutable.lose(r, f.scope, s, reason)
        for name in assigned_names([s]) if isinstance(s, (cst.BaseStatement, cst.BaseSmallStatement)) else ():
            f.scope.names[name] = Unknown(reason)
        return Returned(Unknown(reason)) if isinstance(s, cst.Return) or ends_in_return([s]) else None
    finally:
        r.out.origin = origin


def restore(r: Reader, f: Frame, names: dict[str, Value], taken: set[str]) -> None:
    """The names and taken names of a scope as they were."""
    f.scope.names.clear()
    f.scope.names.update(names)
    r.out.taken = taken | set(r.metas)


def opaque(r: Reader, f: Frame, s: cst.CSTNode, reason: str) -> None:
    """The statement kept as text, with the buffers that it names as read and written."""
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
