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
from ..state.handlers import Rest
from ..state.reader import Reader
from ..state.static_branches import both_ways
from ..syntax.control_flow import ends_in_return
from ..values.values import Frame, NotUnderstood, Returned, Value

MOST_ROUNDS = 256


def host_for(r: Reader, f: Frame, s: cst.For, rest: Rest) -> Returned | None:
    """A `for` of the host: its body once for each item."""
    try:
        items = iterated(r, evaluate(r, f.scope, s.iter))
    except NotUnderstood as bad:
        _ask_for(r, f, s, bad.reason)
        return None
    returns = ends_in_return(s.body.body)
    if returns and rest is None:
        raise NotUnderstood("a function that returns from a loop inside a loop of the host")
    return _rounds(r, f, _Rounds(s, items, tuple(rest or ()) if returns else None))


@dataclass(frozen=True)
class _Rounds:
    """The rounds of a loop of the host that are left; `after` are the statements behind a loop that may return from its function."""

    loop: cst.For
    items: tuple[Value, ...]
    after: tuple[cst.CSTNode, ...] | None

    def left(self, r: Reader, f: Frame) -> Returned | None:
        """What comes behind the loop."""
        return None if self.after is None else run_block(r, f, self.after) or Returned(None)


def _rounds(r: Reader, f: Frame, todo: _Rounds) -> Returned | None:
    """The rounds of a loop, one after another; each way through a branch goes on with the rest of the loop unless it leaves it."""
    if not todo.items:
        return todo.left(r, f)
    f.scope.names.update(bound(r, todo.loop.target, todo.items[0]))
    return _rest_of_round(r, f, [*todo.loop.body.body], _Rounds(todo.loop, todo.items[1:], todo.after))


def _rest_of_round(r: Reader, f: Frame, body: Sequence[cst.CSTNode], todo: _Rounds) -> Returned | None:
    for k, s in enumerate(body):
        if isinstance(s, cst.If):
            return _if_in_loop(r, f, s, body[k + 1:], todo)
        last = s.body[-1] if isinstance(s, cst.SimpleStatementLine) else None
        if isinstance(s, cst.SimpleStatementLine) and isinstance(last, (cst.Break, cst.Continue)):
            found = run_one(r, f, s.with_changes(body=s.body[:-1]), None)
            return found or (todo.left(r, f) if isinstance(last, cst.Break) else _rounds(r, f, todo))
        found = run_one(r, f, s, None)
        if found is not None:
            return found
    return _rounds(r, f, todo)


def _if_in_loop(r: Reader, f: Frame, s: cst.If, later: Sequence[cst.CSTNode], todo: _Rounds) -> Returned | None:
    cond = r.truth(evaluate(r, f.scope, s.test))
    orelse: Sequence[cst.CSTNode] = () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body

    def way(body: Sequence[cst.CSTNode]) -> Returned | None:
        return _rest_of_round(r, f, [*body, *later], todo)

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
        found = run_block(r, f, s.body.body, None)
        if found is not None:
            return found
    raise NotUnderstood("a loop of the host that does not end")


def _ask_for(r: Reader, f: Frame, s: cst.BaseCompoundStatement, reason: str) -> None:
    """What a loop of the host binds, left to the binding: each name is a meta."""
    mutable.lose(r, f.scope, s, reason)
    for name in assigned_in_order([s]):
        f.scope.names[name] = r.ask(name, f"{name} after {f.scope.module.code(s)}", "")
