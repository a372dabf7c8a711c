"""What the static conditions on the way to a statement say about others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kir.ir import nodes as n
from kir.ir.visit import transform

from .values import Shape

KINDS = frozenset({"float", "int", "uint"})
"""Every dtype of an element is of exactly one of these kinds (bool counts as unsigned)."""


class Paths:
    """The static conditions that hold where the reader stands."""

    def __init__(self) -> None:
        self.known: list[tuple[n.Expr, bool]] = []

    @contextmanager
    def under(self, cond: n.Expr, outcome: bool) -> Iterator[None]:
        """Read on with `cond` known."""
        before = len(self.known)
        self._learn(cond, outcome)
        try:
            yield
        finally:
            del self.known[before:]

    def _learn(self, cond: n.Expr, outcome: bool) -> None:
        self.known.append((cond, outcome))
        if isinstance(cond, n.Unary) and cond.op == "not":
            self._learn(cond.x, not outcome)
        if isinstance(cond, n.Binary) and ((cond.op == "and" and outcome) or (cond.op == "or" and not outcome)):
            self._learn(cond.a, outcome)
            self._learn(cond.b, outcome)

    def settled(self, shape: Shape) -> Shape:
        """The extents of a tile made before, with what the path says of the conditions that choose them."""
        def chosen(old: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, n.Select) and (outcome := self.decide(x.cond)) is not None:
                return x.a if outcome else x.b
            return x
        return tuple(transform(d, chosen) if isinstance(d, n.Expr) and self.known else d for d in shape)

    def decide(self, cond: n.Expr) -> bool | None:
        """What the path says about a condition; None when it says nothing."""
        if isinstance(cond, n.Const):
            return bool(cond.value)
        for e, outcome in self.known:
            if e == cond:
                return outcome
        match cond:
            case n.Unary(op="not"):
                inner = self.decide(cond.x)
                return None if inner is None else not inner
            case n.Binary(op="and" | "or"):
                a, b = self.decide(cond.a), self.decide(cond.b)
                strong = cond.op == "or"
                if strong in (a, b):
                    return strong
                return (not strong) if a is not None and b is not None else None
            case n.Call(fn="dtype_kind") if dict(cond.attrs)["kind"] in KINDS:
                term, kind = dict(cond.attrs)["term"], dict(cond.attrs)["kind"]
                refused = set()
                for e, outcome in self.known:
                    if isinstance(e, n.Call) and e.fn == "dtype_kind" and dict(e.attrs)["term"] == term and dict(e.attrs)["kind"] in KINDS:
                        if outcome:
                            return dict(e.attrs)["kind"] == kind
                        refused.add(dict(e.attrs)["kind"])
                return True if refused == KINDS - {kind} else None
            case n.Binary(op="eq" | "ne", b=n.Const()):
                for e, outcome in self.known:
                    if (
                        isinstance(e, n.Binary)
                        and e.op in ("eq", "ne")
                        and e.a == cond.a
                        and isinstance(e.b, n.Const)
                        and ((e.op == "eq") == outcome)
                    ):
                        return (e.b == cond.b) == (cond.op == "eq")
        return None
