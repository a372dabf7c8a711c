"""Adding a tile axis to everything that depends on a scalar, and dropping it again.

`widen` turns a program over a scalar `m` into one over tiles of `m`: every value that depends on `m` gains a leading axis. `narrow` is its
inverse for an axis class whose members all carry it in front. Both keep statement structure, so each undoes the other.
"""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import NotElementwise, element, element_region, tile, tile_region
from kir.analysis.tiles.tile_axes import AxisClass, TileAxes
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType, dtype_of, shape_of
from kir.ir.visit import names_read, substitute, transform

REDUCERS = {"add": "sum", "max": "max", "min": "min"}
"""The reduction that folds with a binary operation."""

ROW = n.Var("%row", I32)
"""The axis variable of the axis that comes or goes."""


class CannotRetile(Exception):
    """A statement that has no form with (or without) the axis; carries the statement."""

    def __init__(self, reason: str, stmt: n.Stmt | None = None) -> None:
        super().__init__(reason)
        self.stmt = stmt


def axes_without(shape: tuple[int | n.Expr, ...], skip: int | None = None) -> tuple[list[n.Expr], list[tuple[n.Var, int | n.Expr]]]:
    """An index of a tile of that shape with `ROW` at `skip`, and the axes that stay."""
    index: list[n.Expr] = []
    axes: list[tuple[n.Var, int | n.Expr]] = []
    for k, d in enumerate(shape):
        if k == skip:
            index.append(ROW)
            continue
        v = n.Var(f"%{k}", I32)
        axes.append((v, d))
        index.append(build.const(0) if d == 1 else v)
    return index, axes


# --------------------------------------------------------------------------------------------------------------------- narrow

@dataclass
class Narrow:
    """Drops the axis `cls` of a kernel's body: its element number becomes `at - lo`, so that `lo + row` reads `at`."""

    axes: TileAxes
    cls: AxisClass
    lo: n.Expr
    at: n.Var

    def position(self, name: str) -> int | None:
        """At which axis a named tile carries the class."""
        found = [k for k, c in enumerate(self.axes.of(name)) if c is self.cls]
        if len(found) > 1:
            raise CannotRetile(f"'{name}' carries the axis twice")
        return found[0] if found else None

    def block(self, block: n.Block) -> n.Block:
        """The statements without the axis."""
        return tuple(self.stmt(s) for s in block)

    def stmt(self, s: n.Stmt) -> n.Stmt:
        """One statement without the axis."""
        try:
            return self._stmt(s)
        except NotElementwise as bad:
            raise CannotRetile(f"'{bad}' has no form without the axis", s) from bad

    def _stmt(self, s: n.Stmt) -> n.Stmt:
        match s:
            case n.Let():
                return replace(s, value=self.expr(s.value if isinstance(s.value.type, TileType) else self._numbered(s.value)))
            case n.Alloc():
                init = None if s.init is None else self.expr(s.init)
                return replace(s, buffer=self.buffer(s.buffer), init=init)
            case n.Store():
                return self._store(s)
            case n.For():
                return replace(s, lo=self.scalar(s.lo), hi=self.scalar(self._numbered(s.hi)), step=self.scalar(s.step), body=self.block(s.body))
            case n.If():
                return replace(s, cond=self.scalar(s.cond), then=self.block(s.then), orelse=self.block(s.orelse))
            case n.Mma():
                return self._mma(s)
            case n.Eval() if all(isinstance(a, n.Expr) and not isinstance(a.type, TileType) for a in s.call.args):
                return replace(s, call=replace(s.call, args=tuple(self.scalar(a) for a in s.call.args if isinstance(a, n.Expr))))
            case _:
                if not self.touches(s):
                    return s
                raise CannotRetile(f"a {type(s).__name__.lower()} over the axis", s)

    def _mma(self, s: n.Mma) -> n.Stmt:
        """A product of panels becomes one rank-1 update when the axis is the one that it contracts."""
        a, b = self.axes.of_expr(s.a), self.axes.of_expr(s.b)
        if a[-1] is not self.cls:
            if self.cls in a + b:
                raise CannotRetile("an mma over the axis", s)
            return s
        if s.via != "fma" or len(a) != 2 or s.acc.index:
            raise CannotRetile("the product runs on tensor cores, or in batches", s)
        (m, _), (_, cols) = shape_of(s.a.type), shape_of(s.b.type)
        row, col = n.Var("%0", I32), n.Var("%1", I32)
        dtype = s.acc.buffer.dtype
        product = build.binary("mul", build.cast(self._settled(element(s.a, [row, ROW])), dtype),
                               build.cast(self._settled(element(s.b, [ROW, col])), dtype))
        value = build.binary("add", build.load(s.acc), tile(product, [(row, m), (col, cols)]))
        return n.Store(s.acc, value, label=s.label, origin=s.origin)

    def touches(self, s: n.Stmt) -> bool:
        """Whether a statement mentions the axis or the tile number at all."""
        return bool(names_read(s) & (names_read(self.lo) | {m for m, _ in self.cls.members}))

    def buffer(self, b: n.Buffer) -> n.Buffer:
        """The declaration of a fragment without the axis; without any axis left it is a register scalar."""
        p = self.position(b.name)
        if p is None:
            return b
        shape = b.shape[:p] + b.shape[p + 1:]
        return replace(b, shape=shape, space=b.space if shape else "register", layout=None, strides=None)

    def _numbered(self, e: n.Expr) -> n.Expr:
        """A scalar with the number of the tile as the quotient of its elements' by their extent."""
        terms = build.polynomial(self.lo) if self.at.of == I32 else {}
        tiles = {m[0].name: build.floordiv(self.at, c) for m, c in terms.items() if len(m) == len(terms) == 1 and isinstance(m[0], n.Var)}
        made: n.Expr = substitute(e, tiles)
        return made

    def scalar(self, e: n.Expr) -> n.Expr:
        """A scalar of the body: it may not depend on which tile this is."""
        if names_read(e) & names_read(self.lo):
            raise CannotRetile("a scalar depends on the number of the tile")
        return e

    def expr(self, e: n.Expr) -> n.Expr:
        """A value without the axis."""
        classes = self.axes.of_expr(e)
        here = [k for k, c in enumerate(classes) if c is self.cls]
        if len(here) > 1:
            raise CannotRetile("a tile carries the axis twice")
        if isinstance(e, n.Call) and e.fn in ("reduce", "scan", "sort"):
            return self._collective(e)
        if not here:
            return self.scalar(e) if not isinstance(e.type, TileType) else self._elementwise(e, None)
        return self._elementwise(e, here[0])

    def _collective(self, e: n.Call) -> n.Expr:
        options = dict(e.attrs)
        axis = int(options["axis"])
        operands = [a for a in e.args if isinstance(a, n.Expr)]
        where = {k for a in operands for k, c in enumerate(self.axes.of_expr(a)) if c is self.cls}
        if axis in where:
            raise CannotRetile(f"the axis is consumed by a {e.fn}")
        shift = sum(1 for k in where if k < axis)
        return replace(e, args=tuple(self.expr(a) for a in operands), attrs=n.attrs(**{**options, "axis": axis - shift}))

    def _elementwise(self, e: n.Expr, position: int | None) -> n.Expr:
        index, rest = axes_without(shape_of(e.type), position)
        return tile(self._settled(element(e, index)), rest)

    def _settled(self, scalar: n.Expr) -> n.Expr:
        """A scalar in which named tiles have lost the axis and `lo + ROW` has become `at`."""
        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Call) and new.fn == "pick" and isinstance(new.args[0], n.Var):
                return self._pick(new)
            if isinstance(new, n.Load) and new.at.buffer.space != "global":
                return replace(new, at=self._place(new.at))
            return new
        settled: n.Expr = transform(scalar, leave)
        out = self._numbered(substitute(settled, {ROW.name: build.sub(self.at, self.lo)}))
        if names_read(out) & names_read(self.lo):
            raise CannotRetile("a value depends on where in the tile it is, not only on which element it is")
        return out

    def _pick(self, e: n.Call) -> n.Expr:
        source, *index = e.args
        assert isinstance(source, n.Var)
        p = self.position(source.name)
        if p is None:
            return e
        if index[p] != ROW:
            raise CannotRetile(f"'{source.name}' is read across the axis")
        left = [i for k, i in enumerate(index) if k != p]
        if not left:
            return n.Var(source.name, dtype_of(source.of))
        shape = shape_of(source.of)
        return build.call("pick", n.Var(source.name, TileType(dtype_of(source.of), shape[:p] + shape[p + 1:])), *left)

    def _place(self, r: n.Region) -> n.Region:
        p = self.position(r.buffer.name)
        if p is None or not r.index:
            return r
        if r.index[p] != ROW:
            raise CannotRetile(f"'{r.buffer.name}' is read across the axis")
        return build.region(self.buffer(r.buffer), *(i for k, i in enumerate(r.index) if k != p))

    def _store(self, s: n.Store) -> n.Stmt:
        local = s.at.buffer.space != "global"
        here = [k for k, c in enumerate(self.axes.of_expr(n.Load(s.at))) if c is self.cls]
        if not here:
            summed = self._sum(s)
            if summed is not None:
                return summed
            if local or not self.touches(s):
                return replace(s, value=self.expr(s.value), mask=None if s.mask is None else self.expr(s.mask))
            raise CannotRetile(f"'{s.at.buffer.name}' is stored once for the whole tile", s)
        index, rest = axes_without(shape_of(s.at.type), here[0])
        place = element_region(s.at, index)
        if local:
            at = build.region(self.buffer(s.at.buffer)) if not s.at.index else self._place(place)
        else:
            found = tile_region(as_region(self._settled(n.Load(place))), rest)
            if found is None or found[1] != list(range(len(rest))):
                raise CannotRetile("the place of a store has no form without the axis", s)
            at = found[0]
        mask = None if s.mask is None else self._masked(s.mask)
        return replace(s, at=at, value=self.expr(s.value), mask=mask)

    def _sum(self, s: n.Store) -> n.Stmt | None:
        """`acc = acc op reduce(x)` over the axis becomes `acc = acc op` the element of x."""
        v = s.value
        if not (isinstance(v, n.Binary) and v.op in REDUCERS and v.a == n.Load(s.at) and isinstance(v.b, n.Call) and v.b.fn == "reduce"):
            return None
        options, x = dict(v.b.attrs), v.b.args[0]
        assert isinstance(x, n.Expr)
        axis = int(options["axis"])
        if options.get("op") != REDUCERS[v.op] or self.axes.of_expr(x)[axis] is not self.cls or len(v.b.args) != 1:
            return None
        return replace(s, value=build.binary(v.op, v.a, self._elementwise(x, axis)))

    def _masked(self, e: n.Expr) -> n.Expr | None:
        made = self.expr(e)
        if (shape := shape_of(made.type)) and all(d == 1 for d in shape):  # it tells no elements apart any more
            made = element(made, [build.const(0)] * len(shape))
        return None if build.is_const(made, True) else made


def as_region(e: n.Expr) -> n.Region:
    """The place that a load reads."""
    assert isinstance(e, n.Load)
    return e.at


# ---------------------------------------------------------------------------------------------------------------------- widen


