"""Which names are read later: for every compound statement of a function, the names live after it, and at the head of each loop."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from .project import parts


def target_names(t: cst.BaseExpression) -> set[str]:
    """Names that an assignment target binds."""
    return set(targets_in_order(t))


def targets_in_order(t: cst.BaseExpression) -> dict[str, None]:
    """Names that an assignment target binds, from left to right."""
    if isinstance(t, cst.Name):
        return {t.value: None}
    if isinstance(t, (cst.Tuple, cst.List)):
        return {name: None for x in t.elements for name in targets_in_order(x.value)}
    return {}


def names_in(e: cst.CSTNode) -> set[str]:
    """Names that an expression reads."""
    out: set[str] = set()
    stack: list[cst.CSTNode] = [e]
    while stack:
        top = stack.pop()
        kind = top.__class__
        if kind is cst.Name:
            out.add(top.value)  # type: ignore[attr-defined]  # a Name, by its class
        elif kind is cst.Attribute or kind is cst.Arg:
            stack.append(top.value)  # type: ignore[attr-defined]  # both have one
        else:
            stack.extend(parts(top))
    return out


def assigned_names(body: Sequence[cst.CSTNode]) -> set[str]:
    """Names that statements bind, at any depth."""
    return set(assigned_in_order(body))


def assigned_in_order(body: Sequence[cst.CSTNode]) -> dict[str, None]:
    """Names that statements bind, at any depth, in the order in which they are bound first: what is read does not depend on how they are spelled."""
    out: dict[str, None] = {}
    for s in body:
        match s:
            case cst.SimpleStatementLine() | cst.SimpleStatementSuite():
                out |= assigned_in_order(s.body)
            case cst.Assign():
                for t in s.targets:
                    out |= targets_in_order(t.target)
            case cst.AugAssign() | cst.AnnAssign():
                out |= targets_in_order(s.target)
            case cst.For():
                out |= targets_in_order(s.target) | assigned_in_order(s.body.body)
            case cst.While() | cst.With():
                out |= assigned_in_order(s.body.body)
            case cst.If():
                out |= assigned_in_order(s.body.body)
                if s.orelse is not None:
                    out |= assigned_in_order([s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body)
            case _:
                pass
    return out


class Liveness:
    """Live names of one function body."""

    def __init__(self, body: cst.BaseSuite) -> None:
        self.after: dict[int, frozenset[str]] = {}
        self.head: dict[int, frozenset[str]] = {}
        self._reads: dict[int, set[str]] = {}
        self._first: dict[int, set[str]] = {}
        self._block(body.body, set())

    def _names(self, e: cst.CSTNode) -> set[str]:
        if id(e) not in self._reads:
            self._reads[id(e)] = names_in(e)
        return self._reads[id(e)]

    def _read_first(self, body: cst.BaseSuite) -> set[str]:
        """What a body reads before it sets it: live at the end of a round, as the next one may come."""
        if id(body) not in self._first:
            self._first[id(body)] = self._block(body.body, set())
        return self._first[id(body)]

    def _block(self, body: Sequence[cst.CSTNode], out: set[str]) -> set[str]:
        live = set(out)
        for s in reversed(body):
            live = self._statement(s, live)
        return live

    def _statement(self, s: cst.CSTNode, live: set[str]) -> set[str]:
        match s:
            case cst.SimpleStatementLine() | cst.SimpleStatementSuite():
                for small in reversed(s.body):
                    live = self._small(small, live)
                return live
            case cst.If():
                self.after[id(s)] = frozenset(live)
                orelse: Sequence[cst.CSTNode] = (
                    () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body
                )
                return self._names(s.test) | self._block(s.body.body, live) | self._block(orelse, live)
            case cst.For():
                self.after[id(s)] = frozenset(live)
                targets = target_names(s.target)
                head = self._block(s.body.body, live | (self._read_first(s.body) - targets)) - targets
                self.head[id(s)] = frozenset(head)
                return live | head | self._names(s.iter)
            case cst.While():
                self.after[id(s)] = frozenset(live)
                test = self._names(s.test)
                head = self._block(s.body.body, live | test | self._read_first(s.body)) | test
                self.head[id(s)] = frozenset(head)
                return live | head
            case cst.With():
                return self._block(s.body.body, live) | set().union(*(self._names(i.item) for i in s.items))
            case _:
                return live

    def _small(self, s: cst.CSTNode, live: set[str]) -> set[str]:
        match s:
            case cst.Assign():
                for t in s.targets:
                    live = live - target_names(t.target)
                    if not isinstance(t.target, (cst.Name, cst.Tuple, cst.List)):
                        live = live | self._names(t.target)
                return live | self._names(s.value)
            case cst.AnnAssign():
                return (live - target_names(s.target)) | (self._names(s.value) if s.value is not None else set())
            case cst.AugAssign():
                return live | self._names(s.target) | self._names(s.value)
            case cst.Return():
                return self._names(s.value) if s.value is not None else set()
            case cst.Expr():
                return live | self._names(s.value)
            case cst.Assert():
                return live | self._names(s.test)
            case _:
                return live
