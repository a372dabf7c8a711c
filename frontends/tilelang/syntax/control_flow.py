"""What a block of statements does, as its syntax tells: whether it returns, and what it defines."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst


def defines(body: Sequence[cst.CSTNode], target: cst.FunctionDef | None) -> bool:
    """Whether a function is defined in a block, at any depth of branches."""
    if target is None:
        return False
    for s in body:
        if s is target:
            return True
        if isinstance(s, cst.If):
            orelse = () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body
            if defines(s.body.body, target) or defines(orelse, target):
                return True
        if isinstance(s, (cst.With, cst.For, cst.Try)) and defines(s.body.body, target):
            return True
    return False


def ends_in_return(body: Sequence[cst.CSTNode]) -> bool:
    """Whether some way through a block returns."""
    for s in body:
        if isinstance(s, cst.SimpleStatementLine) and any(isinstance(x, cst.Return) for x in s.body):
            return True
        if isinstance(s, cst.If):
            orelse = () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body
            if ends_in_return(s.body.body) or ends_in_return(orelse):
                return True
        if isinstance(s, (cst.For, cst.While, cst.With, cst.Try)) and ends_in_return(s.body.body):
            return True
    return False


def branch_returns(body: Sequence[cst.CSTNode]) -> bool:
    """Whether a branch in a block, at any depth, returns."""
    for s in body:
        if isinstance(s, cst.If) and ends_in_return([s]):
            return True
        if isinstance(s, (cst.For, cst.While, cst.With, cst.Try)) and branch_returns(s.body.body):
            return True
    return False


def always_leaves(body: Sequence[cst.CSTNode]) -> bool:
    """Whether every way through a block returns or raises."""
    for s in body:
        if isinstance(s, cst.SimpleStatementLine) and any(isinstance(x, (cst.Return, cst.Raise)) for x in s.body):
            return True
        if isinstance(s, cst.If) and s.orelse is not None:
            orelse = [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body
            if always_leaves(s.body.body) and always_leaves(orelse):
                return True
    return False
