"""Loops of the host: worked out round by round, or left to the binding."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from kir.base.dataclass import dataclass

from ..._python.liveness import assigned_in_order
from ..expressions.iteration import bound, iterated
from ..state import mutable
from ..state.evaluate import evaluate
from ..state.execute import run_block, run_one
from ..state.reader import Reader
from ..state.static_branches import both_ways
from ..syntax.control_flow import ends_in_return
from ..values.values import Frame, NotUnderstood, Returned, Value

MOST_ROUNDS = 256


def host_for(r: Reader, f: Frame, s: cst.For, rest: Sequence[cst.CSTNode]) -> Returned | None:
    """A `for` of the host: its body once for each item."""
    try:
        items = iterated(r, evaluate(r, f.scope, s.iter))
    except NotUnderstood as bad:
        _ask_for(r, f, s, bad.reason)
        return None
    return _rounds(r, f, _Rest(s, items, tuple(rest) if ends_in_return(s.body.body) else None))


@dataclass(frozen=True)
class _Rest:
    """The rounds of a loop of the host that are left; `after` are the statements behind a loop that may return from its function."""

    loop: cst.For
    items: tuple[Value, ...]
    after: tuple[cst.CSTNode, ...] | None

    def left(self, r: Reader, f: Frame) -> Returned | None:
        """What comes behind the loop."""
        return None if self.after is None else run_block(r, f, self.after) or Returned(None)


def _rounds(r: Reader, f: Frame, todo: _Rest) -> Returned | None:
    """The rounds of a loop, one after another; each way through a branch goes on with the rest of the loop unless it leaves it."""
    if not todo.items:
        return todo.left(r, f)
    f.scope.names.update(bound(r, todo.loop.target, todo.items[0]))
    return _run_with_rest(r, f, [*todo.loop.body.body], _Rest(todo.loop, todo.items[1:], todo.after))


def _run_with_rest(r: Reader, f: Frame, body: Sequence[cst.CSTNode], todo: _Rest) -> Returned | None:
    for k, s in enumerate(body):
        if isinstance(s, cst.If):
            return _if_in_loop(r, f, s, body[k + 1:], todo)
        found = run_one(r, f, s, ())
        if found is not None:
            return found
    return _rounds(r, f, todo)


def _if_in_loop(r: Reader, f: Frame, s: cst.If, later: Sequence[cst.CSTNode], todo: _Rest) -> Returned | None:
    cond = r.truth(evaluate(r, f.scope, s.test))
    orelse: Sequence[cst.CSTNode] = () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body

    def way(body: Sequence[cst.CSTNode]) -> Returned | None:
        last = body[-1] if body else None
        small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else None
        if isinstance(small, cst.Break):
            return run_block(r, f, body[:-1]) or todo.left(r, f)
        if isinstance(small, cst.Continue):
            return run_block(r, f, body[:-1]) or _rounds(r, f, todo)
        return run_block(r, f, body) or _run_with_rest(r, f, later, todo)

    if isinstance(cond, bool):
        return way(s.body.body if cond else orelse)
    return both_ways(r, f, cond, lambda: way(s.body.body), lambda: way(orelse), s)


def host_while(r: Reader, f: Frame, s: cst.While) -> Returned | None:
    """A `while` of the host, run as long as its condition is known and holds."""
    for _ in range(MOST_ROUNDS):
        try:
            cond = r.truth(evaluate(r, f.scope, s.test))
        except NotUnderstood as bad:
            _ask_for(r, f, s, bad.reason)
            return None
        if not isinstance(cond, bool):
            _ask_for(r, f, s, "a loop of the host that the binding decides")
            return None
        if not cond:
            return None
        found = run_block(r, f, s.body.body)
        if found is not None:
            return found
    raise NotUnderstood("a loop of the host that does not end")


def _ask_for(r: Reader, f: Frame, s: cst.BaseCompoundStatement, reason: str) -> None:
    """What a loop of the host binds, left to the binding: each name is a meta."""
    mutable.lose(r, f.scope, s, reason)
    for name in assigned_in_order([s]):
        f.scope.names[name] = r.ask(name, f"{name} after {f.scope.module.code(s)}", "")
