"""Rounding errors that a program works out: sums and differences that are zero over the reals and not in floats.

Kahan's `(t - s) - y`, Neumaier's, Knuth's and Dekker's error terms, a product's error by `fma`: all are differences that cancel exactly once the sums
below them are written out. So a term is one that has no other name, and no form of it is listed here.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from kir.gate.claims.flow import Definition, Flow
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import children

Form = Mapping[object, Fraction]
"""A sum over the reals: a factor for each term that is not written out further."""


def compensations(flow: Flow, where: Sequence[Definition]) -> list[tuple[Definition, n.Node]]:
    """The error terms among the values of these definitions, with where they stand."""
    wanted: dict[int, Definition] = {id(d.stmt): d for d in where}
    out: list[tuple[Definition, n.Node]] = []
    for k in flow.program.kernels:
        out += ((wanted[id(s)], e) for s, e in _Walk().block(k.body) if id(s) in wanted)
    return out


class _Walk:
    """Writes out sums along straight code. What a loop or a branch stores has no known value before and after it."""

    def __init__(self) -> None:
        self.values: dict[str, Form] = {}
        self.places: dict[n.Region, Form] = {}
        self.fresh = 0

    def block(self, block: n.Block) -> Iterator[tuple[n.Stmt, n.Node]]:
        for s in block:
            match s:
                case n.Let(names=(name,)):
                    yield from self._terms(s, s.value)
                    self.values[name] = self.form(s.value)
                case n.Store():
                    yield from self._terms(s, s.value)
                    made = self.form(s.value)
                    self._forget(s.at.buffer.name)
                    if s.mask is None and not s.clip:
                        self.places[s.at] = made
                case n.For() | n.While():
                    self._forget_stored(s.body)
                    yield from self.block(s.body)
                    self._forget_stored(s.body)
                case n.If():
                    held = dict(self.places)
                    for arm in (s.then, s.orelse):
                        self.places = dict(held)
                        yield from self.block(arm)
                    self.places = held
                    self._forget_stored((*s.then, *s.orelse))
                case n.Roles():
                    for role in s.roles:
                        self.places = {}
                        yield from self.block(role.body)
                    self.places = {}
                case n.Alloc():
                    self._forget(s.buffer.name)
                case n.Mma() | n.Copy() | n.Eval():
                    self.places = {}
                case _:
                    pass

    def _forget(self, name: str) -> None:
        self.places = {at: form for at, form in self.places.items() if at.buffer.name != name}

    def _forget_stored(self, block: n.Block) -> None:
        waiting: list[n.Node] = list(block)
        while waiting:
            s = waiting.pop()
            if isinstance(s, n.Store):
                self._forget(s.at.buffer.name)
            elif isinstance(s, (n.Mma, n.Copy, n.Eval)):
                self.places = {}
            if isinstance(s, (n.For, n.While, n.If, n.Roles, n.Role)):
                waiting += [c for c in children(s) if not isinstance(c, n.Expr)]

    def _terms(self, s: n.Stmt, e: n.Node) -> Iterator[tuple[n.Stmt, n.Node]]:
        """Differences below `e` that are zero over the reals."""
        waiting: list[n.Node] = [e]
        while waiting:
            x = waiting.pop()
            rounds = (isinstance(x, n.Binary) and x.op in ("add", "sub")) or (isinstance(x, n.Call) and x.fn == "fma")
            if rounds and isinstance(x, n.Expr) and dtype_of(x.type).is_float and not self.form(x):
                yield s, x
            elif not isinstance(x, n.Buffer):
                waiting += children(x)

    def form(self, e: n.Node) -> Form:
        """A value as a sum over the reals."""
        match e:
            case n.Binary(op="add" | "sub") if dtype_of(e.type).is_float:
                return _added(self.form(e.a), self.form(e.b), Fraction(1 if e.op == "add" else -1))
            case n.Unary(op="neg"):
                return _added({}, self.form(e.x), Fraction(-1))
            case n.Call(fn="fma", args=(n.Expr() as a, n.Expr() as b, n.Expr() as c)):
                return _added(self._product(a, b), self.form(c), Fraction(1))
            case n.Binary(op="mul") if dtype_of(e.type).is_float:
                return self._product(e.a, e.b)
            case n.Var() if e.name in self.values:
                return self.values[e.name]
            case n.Load():
                if e.at not in self.places:
                    self.fresh += 1
                    self.places[e.at] = {("at", self.fresh): Fraction(1)}
                return self.places[e.at]
            case n.Const() if not isinstance(e.value, bool) and e.value == 0:
                return {}
            case _:
                return {e: Fraction(1)}

    def _product(self, a: n.Expr, b: n.Expr) -> Form:
        return {("product", frozenset((_frozen(self.form(a)), _frozen(self.form(b))))): Fraction(1)}


def _frozen(form: Form) -> object:
    return frozenset(form.items())


def _added(a: Form, b: Form, factor: Fraction) -> Form:
    out = dict(a)
    for term, by in b.items():
        out[term] = out.get(term, Fraction(0)) + factor * by
    return {term: by for term, by in out.items() if by}


__all__ = ["compensations"]
