"""Finding where an expression with holes occurs, and rewriting statements element by element: the core of passes that keep elements somewhere."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kir.analysis.elements import NotElementwise, element, tile
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, TileType, shape_of
from kir.ir.visit import buffers_named, names_read, substitute, transform

Binding = dict[str, n.Expr]


def hole(k: int) -> n.Var:
    """The place along axis `k` of what is looked for."""
    return n.Var(f"%{k}", I32)


def bound_by(pattern: n.Expr, x: n.Expr, rank: int) -> tuple[n.Expr, ...] | None:
    """The values of the holes `%0`, `%1`, .. (each an i32) with which a scalar pattern is `x`; None where there are none."""
    found: Binding = {}
    names = {hole(k).name for k in range(rank)}
    if pattern.type != x.type or not _match(pattern, x, names, found) or names - found.keys():
        return None
    return tuple(found[hole(k).name] for k in range(rank)) if substitute(pattern, found) == x else None


def _match(p: n.Node, x: n.Node, names: set[str], found: Binding) -> bool:
    if isinstance(p, n.Expr) and not isinstance(p.type, TileType) and isinstance(x, n.Expr):
        free = names_read(p) & names - found.keys()
        if not free:
            made: n.Expr = substitute(p, found)
            return made == x
        if isinstance(p.type, DType) and p.type.is_integer and p.type == x.type and len(free) == 1:
            value = _solved(p, x, next(iter(free)), found)
            if value is not None:
                return True
    if type(p) is not type(x):
        return False
    for name in p.compared_fields:
        a, b = getattr(p, name), getattr(x, name)
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            if not all(_same(u, v, names, found) for u, v in zip(a, b, strict=True)):
                return False
        elif not _same(a, b, names, found):
            return False
    return True


def _same(a: object, b: object, names: set[str], found: Binding) -> bool:
    if isinstance(a, n.Buffer) or not isinstance(a, n.Node):
        return a == b
    return isinstance(b, n.Node) and _match(a, b, names, found)


def _solved(p: n.Expr, x: n.Expr, name: str, found: Binding) -> n.Expr | None:
    """The value of the one hole that an integer pattern is linear in; put into `found`."""
    known: n.Expr = substitute(p, found)
    terms = build.polynomial(known)
    own = {m: c for m, c in terms.items() if any(name in names_read(a) for a in m)}
    if len(own) != 1:
        return None
    ((monomial, c),) = own.items()
    if len(monomial) != 1 or c < 1 or not isinstance(known.type, DType):
        return None
    atom = monomial[0]
    scaled = build.polynomial(build.add(build.sub(x, known), build.mul(atom, build.const(c, known.type))))
    if any(k % c for k in scaled.values()):
        return None
    value = build.from_polynomial({m: k // c for m, k in scaled.items()}, known.type)
    if isinstance(atom, n.Cast) and isinstance(atom.x, n.Var) and atom.x.name == name:
        if not (isinstance(value, n.Cast) and value.dtype == atom.dtype and value.x.type == I32):
            return None
        value = value.x
    elif not (isinstance(atom, n.Var) and atom.name == name):
        return None
    found[name] = value
    return value


Change = Callable[[n.Expr], n.Expr | None]
"""What stands in place of a scalar expression; None where it stays."""


@dataclass(frozen=True)
class Knowing:
    """A change that depends on what is known where an element stands."""

    change: Callable[[n.Expr, Facts], n.Expr | None]
    known: Facts
    needs: frozenset[str] = frozenset()
    """Buffers that whatever it changes reads: what does not name them all stays as it is, and is not looked at."""

    def __call__(self, x: n.Expr) -> n.Expr | None:
        return self.change(x, self.known)

    def along(self, axes: Sequence[tuple[n.Var, n.Expr]]) -> Knowing:
        """The same, where some variables are numbers below some extents."""
        known = self.known
        for v, d in axes:
            known = known.ranging(v, build.const(0), d)
        return replace(self, known=known)

    def below(self, s: n.Stmt, way: str) -> Knowing:
        """The same in a block of a statement."""
        return replace(self, known=self.known.inside(s, (way, 0))[0])

    def after(self, block: Sequence[n.Stmt]) -> Knowing:
        """The same behind some statements."""
        return replace(self, known=self.known.after(tuple(block))) if block else self


def _changes_nothing(change: Change, x: n.Node) -> bool:
    """Whether a node has nothing in it that a change would know, by the buffers that it names."""
    needs: frozenset[str] = getattr(change, "needs", frozenset())
    return not needs <= buffers_named(x)


def rewritten(s: n.Stmt, change: Change) -> n.Stmt:
    """A statement, inner ones included, in whose values each element that `change` knows is replaced; tiles are taken by their elements."""
    def on_expr(e: n.Expr) -> n.Expr:
        return in_elements(e, change)

    def block(way: str) -> n.Block:
        inner, out, passed = change.below(s, way) if isinstance(change, Knowing) else change, [], list[n.Stmt]()
        for x in getattr(s, way):
            if not _changes_nothing(inner, x):
                if isinstance(inner, Knowing):
                    inner = inner.after(passed)
                    passed.clear()
                out.append(rewritten(x, inner))
            else:
                out.append(x)
            passed.append(x)
        return tuple(out)

    def at(r: n.Region) -> n.Region:
        if not any(isinstance(i, n.Expr) for i in r.index):
            return r
        return build.region(r.buffer, *(on_expr(i) if isinstance(i, n.Expr) else i for i in r.index))

    if _changes_nothing(change, s):
        return s
    match s:
        case n.Let():
            return replace(s, value=on_expr(s.value))
        case n.Alloc():
            return replace(s, init=None if s.init is None else on_expr(s.init))
        case n.Store():
            return replace(s, at=at(s.at), value=on_expr(s.value), mask=None if s.mask is None else on_expr(s.mask))
        case n.Mma():
            return replace(s, a=on_expr(s.a), b=on_expr(s.b))
        case n.For():
            return replace(s, lo=on_expr(s.lo), hi=on_expr(s.hi), body=block("body"))
        case n.If():
            return replace(s, cond=on_expr(s.cond), then=block("then"), orelse=block("orelse"))
        case n.While():
            return replace(s, cond=on_expr(s.cond), body=block("body"))
        case _:
            return s


def in_elements(e: n.Expr, change: Change) -> n.Expr:
    """An expression in which each element that `change` knows is replaced; the spelling of the rest is that of the normal form."""
    if isinstance(e, n.Call) and e.fn in ("reduce", "scan", "sort"):
        return replace(e, args=tuple(in_elements(a, change) if isinstance(a, n.Expr) else a for a in e.args))
    if _changes_nothing(change, e):
        return e
    if not isinstance(e.type, TileType):
        return _changed(e, change)
    axes = [(n.Var(f"$%{k}", I32), d) for k, d in enumerate(shape_of(e.type))]
    try:
        scalar = element(e, [build.const(0) if d == 1 else v for v, d in axes])
        made = _changed(scalar, change.along([(v, build.const(d) if isinstance(d, int) else d) for v, d in axes]) if isinstance(change, Knowing) else change)
        return e if made == scalar else tile(made, axes)
    except NotElementwise:
        return e


def _changed(e: n.Expr, change: Change) -> n.Expr:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        made = change(old) if isinstance(old, n.Expr) and not isinstance(old.type, TileType) else None
        return new if made is None else made

    def enter(x: n.Node) -> bool:
        return not (isinstance(x, n.Var) and isinstance(x.of, TileType)) and not isinstance(x, n.Buffer) and not _changes_nothing(change, x)
    made: n.Expr = transform(e, leave, enter)
    return made


def replacing(values: Mapping[str, n.Expr]) -> Change:
    """A change that gives the elements of named tiles: `pick(x, i..)` becomes the element of the tile that `values` has for `x`."""
    def change(x: n.Expr) -> n.Expr | None:
        if isinstance(x, n.Call) and x.fn == "pick" and isinstance(x.args[0], n.Var) and x.args[0].name in values:
            return element(values[x.args[0].name], [a for a in x.args[1:] if isinstance(a, n.Expr)])
        return None
    return change
