"""Branches: decided, of the kernel, or open to the binding; and what names stand for after them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import reduce

import libcst as cst

from kir.analysis.bounds import conjuncts
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import children

from ..._python.liveness import assigned_names
from ..expressions.lookup import asked_name
from ..state import mutable
from ..state.evaluate import evaluate
from ..state.execute import opaque, restore, run_block
from ..state.guards import inside_where
from ..state.handlers import Rest
from ..state.reader import Reader, Undecided
from ..state.static_branches import Found, both_ways, branch
from ..syntax.control_flow import always_leaves, defines, ends_in_return
from ..values.values import Frame, NotUnderstood, Raised, Returned, Unknown


def if_statement(r: Reader, f: Frame, s: cst.If, rest: Rest) -> Returned | None:
    """An `if`, of the host or of the kernel; `rest` is what follows it."""
    names, taken = dict(f.scope.names), set(r.out.taken)
    origin = r.out.origin
    r.out.origin = f.scope.module.origin(s)
    try:
        with r.out.capture() as made:
            cond = r.truth(evaluate(r, f.scope, s.test))
        r.out.block.extend(made)
    except Undecided as open_:
        restore(r, f, names, taken)
        return both_ways(r, f, open_.cond, lambda: if_statement(r, f, s, rest), lambda: if_statement(r, f, s, rest), s)
    except (NotUnderstood, KirError) as bad:
        reason = bad.reason if isinstance(bad, NotUnderstood) else bad.diagnostics[0].message
        restore(r, f, names, taken)
        if r.launched:
            opaque(r, f, s, reason)
            mutable.lose(r, f.scope, s, reason)
            for name in assigned_names([s]):
                f.scope.names[name] = Unknown(reason)
            return None
        cond = r.meta(asked_name(f.scope.module.code(s.test)), "bool")
    finally:
        r.out.origin = origin
    orelse: Sequence[cst.CSTNode] = () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body
    if isinstance(cond, bool):
        return run_block(r, f, s.body.body if cond else orelse, rest)
    if r.launched and (not r.is_static(cond) or r.of_sizes(cond)):
        return _dynamic_if(r, f, s, cond, orelse)
    if defines(s.body.body, f.target):
        r.assume(cond)
        _settle_meta(r, cond, True)
        return run_block(r, f, s.body.body, rest)
    if defines(orelse, f.target):
        r.assume(build.invert(cond))
        _settle_meta(r, cond, False)
        return run_block(r, f, orelse, rest)
    returns = ends_in_return(orelse) or ends_in_return(s.body.body)

    def way(body: Sequence[cst.CSTNode]) -> Returned | None:
        found = run_block(r, f, body, rest)
        if found is None and returns:
            if rest is None:
                raise NotUnderstood("a function that returns from a branch inside a loop of the host")
            return run_block(r, f, rest) or Returned(None)
        return found

    try:
        return both_ways(r, f, cond, lambda: way(s.body.body), lambda: way(orelse), s)
    except Found:  # in what follows: the kernel is made where no way has left before
        for body, holds in ((s.body.body, False), (orelse, True)):
            if always_leaves(body):
                _settle_meta(r, cond, holds)
        raise


def _settle_meta(r: Reader, cond: n.Expr, holds: bool) -> None:
    """A meta that decides whether the kernel is made at all: its default is the way that makes it."""
    if isinstance(cond, n.Unary) and cond.op == "not":
        _settle_meta(r, cond.x, not holds)
    if isinstance(cond, n.Var) and cond.name in r.metas and r.metas[cond.name].kind == "bool":
        r.metas[cond.name] = n.Meta(cond.name, "bool", holds)
        r.given[cond.name] = holds


def _dynamic_if(r: Reader, f: Frame, s: cst.If, cond: n.Expr, orelse: Sequence[cst.CSTNode]) -> Returned | None:
    """A branch of the kernel: what it binds ends with it."""
    if ends_in_return(s.body.body) or ends_in_return(orelse):
        raise_here = "a function that returns from a branch of the kernel"
        opaque(r, f, s, raise_here)
        return None
    blocks = []
    decided = [c for c in conjuncts(cond) if r.is_static(c) and not r.of_sizes(c)]
    known = reduce(build.logical_and, decided) if decided else None
    others = [c for c in conjuncts(cond) if c not in decided]
    doubts = [any(_maybe_known(r, c, False) for c in others), _maybe_known(r, cond, True)]
    for body, holds in ((s.body.body, cond), (orelse, None)):
        names, mark, doubtful = dict(f.scope.names), len(r.changes), doubts.pop(0)
        with r.out.capture() as made, inside_where(r, holds), r.assuming(known, True) if known is not None and holds is not None else nullcontext():
            r.doubtful += doubtful
            try:
                run_block(r, f, body)
            except Raised:
                if known is None or holds is None or doubtful:
                    r.sure()
                    raise
                mutable.undo(r, mark)
                holds = None
            finally:
                r.doubtful -= doubtful
        f.scope.names.clear()
        f.scope.names.update(names)
        if known is not None and holds is None and body is s.body.body:  # the host would fail if that held
            r.assume(build.invert(known))
            return run_block(r, f, orelse)
        blocks.append(tuple(made))
    r.out.emit(branch(cond, blocks[0], blocks[1], False, f.scope.module.origin(s)))
    return None


def _maybe_known(r: Reader, cond: n.Expr, outcome: bool) -> bool:
    """Whether the host, under some binding, knows that a condition of the kernel comes out so: then one of its sides is not read at all."""
    match cond:
        case n.Const():
            return bool(cond.value) is outcome
        case _ if r.is_static(cond):
            return True
        case n.Unary(op="not"):
            return _maybe_known(r, cond.x, not outcome)
        case n.Binary(op="and" | "or") if dtype_of(cond.a.type).is_bool:
            sides = [_maybe_known(r, x, outcome) for x in (cond.a, cond.b)]
            return any(sides) if outcome == (cond.op == "or") else all(sides)
        case n.Select() if dtype_of(cond.type).is_bool:
            sides = [_maybe_known(r, x, outcome) for x in (cond.a, cond.b)]
            return any(sides) if r.is_static(cond.cond) else all(sides)
        case n.Load():
            return False
        case _:
            parts = _worked_out(cond)
            return any(isinstance(x, n.Select) and r.is_static(x.cond) for x in parts)


def _worked_out(e: n.Node) -> list[n.Node]:
    """The parts of an expression that are worked out, without what memory holds and how large it is."""
    return [e, *(y for x in children(e) if isinstance(x, n.Expr) and not isinstance(x, n.Load) for y in _worked_out(x))]
