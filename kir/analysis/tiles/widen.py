"""Adding a tile axis to everything that depends on a scalar."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import NotElementwise, element, element_region, tile, tile_region
from kir.analysis.tiles.retile import REDUCERS, ROW, CannotRetile, as_region, axes_without
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, TileType, dtype_of, shape_of
from kir.ir.visit import names_read, statements, substitute, transform

TEAMS = ("thread", "warp", "warpgroup")
"""Kinds of loops that split a team."""


@dataclass
class Widen:
    """Gives everything that depends on the scalar `at` a leading axis of `extent`, at whose row it is `lo + row`."""

    at: n.Var
    lo: n.Expr
    extent: int
    wide: dict[str, int]
    """The lets and local buffers that gain the axis, and where: in front, or where a load has it in memory."""
    contract: bool = False
    """Whether accumulations over `at` become an mma or a reduction over the new axis."""
    back: bool = False
    """Whether the axis comes last instead of first."""
    own: frozenset[str] = frozenset()
    """The buffers that the body declares: each row has its own, so nothing is accumulated in them over rows."""

    @classmethod
    def of(cls, body: n.Block, at: n.Var, lo: n.Expr, extent: int, contract: bool = False, back: bool = False) -> Widen:
        """Finds what depends on `at`, by fixpoint over the body."""
        own = frozenset(s.buffer.name for s in statements(body) if isinstance(s, n.Alloc))
        made = cls(at, lo, extent, {}, contract, back, own)
        before = -1
        while before != len(made.wide):
            before = len(made.wide)
            made._mark(body)
        return made

    def _mark(self, body: n.Block) -> None:
        for s in body:
            match s:
                case n.Let() if self.depends(s.value):
                    for name in s.names:
                        self.wide[name] = self._place_of(len(shape_of(s.value.type)))
                case n.Alloc() if s.init is not None and self.depends(s.init):
                    self.wide[s.buffer.name] = self._place_of(len(s.buffer.shape))
                case n.Store() if self.is_accumulation(s):
                    pass
                case n.Store() if s.at.buffer.space != "global" and (self.depends(s.value) or (s.mask is not None and self.depends(s.mask))):
                    self.wide[s.at.buffer.name] = self._place_of(len(s.at.buffer.shape))
                case n.For() | n.While():
                    self._mark(s.body)
                case n.If():
                    self._mark(s.then)
                    self._mark(s.orelse)
                case _:
                    pass

    def _place_of(self, rank: int) -> int:
        return rank if self.back else 0

    def _with_row(self, rest: list[tuple[n.Var, int | n.Expr]]) -> list[tuple[n.Var, int | n.Expr]]:
        """The axes of a widened value that had the axes `rest`."""
        return [*rest, (ROW, self.extent)] if self.back else [(ROW, self.extent), *rest]

    def is_accumulation(self, s: n.Store) -> bool:
        """Whether a store folds values of all rows into something that does not have the axis."""
        v = s.value
        return (self.contract and not s.at.index and s.at.buffer.space != "global" and s.mask is None and isinstance(v, n.Binary)
                and v.op in REDUCERS and v.a == n.Load(s.at) and s.at.buffer.name not in {*self.wide, *self.own} and self.depends(v.b))

    def depends(self, e: n.Node) -> bool:
        """Whether a value changes with the scalar."""
        found = False

        def leave(old: n.Node, new: n.Node) -> n.Node:
            nonlocal found
            if (isinstance(old, n.Var) and (old.name == self.at.name or old.name in self.wide)) or (
                    isinstance(old, n.Buffer) and old.name in self.wide):
                found = True
            return old
        transform(e, leave)
        return found

    def block(self, block: n.Block) -> n.Block:
        """The statements with the axis."""
        return tuple(self.stmt(s) for s in block)

    def stmt(self, s: n.Stmt) -> n.Stmt:
        """One statement with the axis."""
        try:
            return self._stmt(s)
        except NotElementwise as bad:
            raise CannotRetile(f"'{bad}' has no form with the axis", s) from bad

    def _stmt(self, s: n.Stmt) -> n.Stmt:
        if (what := _once_for_each(s)) and not self.depends(s):
            raise CannotRetile(f"{what} once for each '{self.at.name}', and would be once for a tile of them", s)
        match s:
            case n.Let() if len(s.names) > 1 and self.depends(s.value):
                raise CannotRetile("several values are made at once, of which none has a form with the axis", s)
            case n.Let():
                return self._let(s) if self.depends(s.value) else s
            case n.Alloc() if s.buffer.name in self.wide:
                return replace(s, buffer=self.buffer(s.buffer), init=None if s.init is None else self._init(s.init))
            case n.Alloc():
                return s
            case n.Store():
                return self._store(s)
            case n.For():
                self._uniform(s, s.lo, s.hi, s.step)
                if s.kind in TEAMS and (own := [x.buffer.name for x in statements(s.body) if isinstance(x, n.Alloc) and x.buffer.name in self.wide]):
                    raise CannotRetile(f"'{own[0]}' is private to one {s.kind} of many", s)
                return replace(s, body=self.block(s.body))
            case n.If():
                self._uniform(s, s.cond)
                return replace(s, then=self.block(s.then), orelse=self.block(s.orelse))
            case _:
                if self.depends(s):
                    raise CannotRetile(f"a {type(s).__name__.lower()} depends on '{self.at.name}'", s)
                return s

    def _uniform(self, s: n.Stmt, *parts: n.Expr) -> None:
        if any(self.depends(e) for e in parts):
            raise CannotRetile(f"control flow depends on '{self.at.name}'", s)

    def _init(self, e: n.Expr) -> n.Expr:
        """What a widened array begins with; what has other axes is the same along this one."""
        return self.expr(e) if self.depends(e) or (self.back and isinstance(e.type, TileType)) else e

    def buffer(self, b: n.Buffer) -> n.Buffer:
        """The declaration with the axis."""
        if b.name not in self.wide:
            return b
        p = self.wide[b.name]
        return replace(b, shape=(*b.shape[:p], build.const(self.extent), *b.shape[p:]), space="fragment" if b.space == "register" else b.space)

    def _let(self, s: n.Let) -> n.Stmt:
        if not (isinstance(s.value, n.Load) and len(s.names) == 1):
            return replace(s, value=self.expr(s.value))
        index, rest = axes_without(shape_of(s.value.type))
        scalar = self._opened(element(s.value, index))
        found = tile_region(scalar.at, [(ROW, self.extent), *rest]) if isinstance(scalar, n.Load) else None
        position = found[1].index(0) if found is not None and 0 in found[1] else self._place_of(len(rest))
        self.wide[s.names[0]] = position
        return replace(s, value=tile(scalar, [*rest[:position], (ROW, self.extent), *rest[position:]]))

    def named(self, v: n.Var) -> n.Var:
        """A widened name, with its new type."""
        shape, p = shape_of(v.of), self.wide[v.name]
        return n.Var(v.name, TileType(dtype_of(v.of), (*shape[:p], self.extent, *shape[p:])))

    def expr(self, e: n.Expr) -> n.Expr:
        """A value with the axis."""
        if isinstance(e, n.Call) and e.fn in ("reduce", "scan", "sort"):
            options = dict(e.attrs)
            args = tuple(self.expr(a) for a in e.args if isinstance(a, n.Expr))
            return replace(e, args=args, attrs=n.attrs(**{**options, "axis": int(options["axis"]) + (not self.back)}))
        index, rest = axes_without(shape_of(e.type))
        return tile(self._opened(element(e, index)), self._with_row(rest))

    def _opened(self, scalar: n.Expr) -> n.Expr:
        def leave(old: n.Node, new: n.Node) -> n.Node:
            match new:
                case n.Var() if new.name in self.wide and not isinstance(new.of, TileType):
                    return build.call("pick", self.named(new), ROW)
                case n.Call(fn="pick", args=(n.Var() as source, *index)) if source.name in self.wide:
                    p = self.wide[source.name]
                    return build.call("pick", self.named(source), *index[:p], ROW, *index[p:])
                case n.Load() if new.at.buffer.name in self.wide:
                    p = self.wide[new.at.buffer.name]
                    return build.load(build.region(self.buffer(new.at.buffer), *new.at.index[:p], ROW, *new.at.index[p:]))
                case _:
                    return new

        def enter(x: n.Node) -> bool:
            return not (isinstance(x, n.Var) and isinstance(x.of, TileType))
        opened: n.Expr = transform(scalar, leave, enter)
        dtype = self.at.of
        assert isinstance(dtype, DType)
        out: n.Expr = substitute(opened, {self.at.name: build.add(self.lo, build.cast(ROW, dtype))})
        return out

    def _store(self, s: n.Store) -> n.Stmt:
        local = s.at.buffer.space != "global"
        if self.is_accumulation(s):
            return self._contracted(s)
        if local and s.at.buffer.name not in self.wide:
            return s
        if not local and not self.depends(s.at):
            if self.depends(s.value) or (s.mask is not None and self.depends(s.mask)):
                raise CannotRetile(f"'{s.at.buffer.name}' is stored at one place for every '{self.at.name}'", s)
            return s
        index, rest = axes_without(shape_of(s.at.type))
        if local:
            at = build.region(self.buffer(s.at.buffer)) if not s.at.index else None
        else:
            place, axes = as_region(self._opened(n.Load(element_region(s.at, index)))), self._with_row(rest)
            found = tile_region(place, axes)
            at = found[0] if found is not None and found[1] == list(range(len(axes))) else None
            if found is None:  # indices that scatter
                spread = build.region(place.buffer, *(tile(i, axes, False) for i in place.index if isinstance(i, n.Expr)))
                at = spread if shape_of(spread.type) == tuple(d for _, d in axes) else None
        if at is None:
            raise CannotRetile(f"the place of a store has no form with the axis {'last' if self.back else 'first'}", s)
        value = self.expr(s.value) if self.depends(s.value) else self._broadcast(s.value, at)
        return replace(s, at=at, value=value, mask=None if s.mask is None else self._masked(s.mask, len(rest)))

    def _masked(self, mask: n.Expr, rank: int) -> n.Expr:
        """The mask of a store of so many axes, with the axis: in front of all of them, where it is the same along the others."""
        if self.back or shape_of(mask.type) or not rank or not self.depends(mask):
            return self.expr(mask)
        return tile(self._opened(mask), self._with_row([(n.Var(f"%{k}", I32), 1) for k in range(rank)]))

    def _contracted(self, s: n.Store) -> n.Stmt:
        v = s.value
        assert isinstance(v, n.Binary)
        shape = shape_of(v.b.type)
        index, rest = axes_without(shape)
        scalar = self._opened(element(v.b, index))
        panels = _panels(scalar, s.at.buffer.dtype, rest) if v.op == "add" and len(rest) == 2 else None
        if panels is not None:
            row, col = rest
            a = tile(panels[0], [row, (ROW, self.extent)])
            b = tile(panels[1], [(ROW, self.extent), col])
            return n.Mma(s.at, a, b, via="fma", label=s.label, origin=s.origin)
        summed = build.call("reduce", tile(scalar, self._with_row(rest)), axis=self._place_of(len(rest)), op=REDUCERS[v.op])
        return replace(s, value=build.binary(v.op, v.a, summed))

    def _broadcast(self, e: n.Expr, at: n.Region) -> n.Expr:
        return build.broadcast(e, at.type)


def _panels(scalar: n.Expr, dtype: DType, axes: list[tuple[n.Var, int | n.Expr]]) -> tuple[n.Expr, n.Expr] | None:
    """The factors (of row and k, of k and column) of a product, without the casts that widen them exactly."""
    if not (isinstance(scalar, n.Binary) and scalar.op == "mul"):
        return None
    row, col = axes[0][0].name, axes[1][0].name
    a, b = scalar.a, scalar.b
    if row in names_read(b) or col in names_read(a) or ROW.name not in names_read(a) & names_read(b):
        return None

    def bare(e: n.Expr) -> n.Expr:
        narrow = isinstance(e, n.Cast) and e.rounding == "rn" and dtype_of(e.x.type).bits < dtype.bits and (
            dtype_of(e.x.type).is_float or (dtype_of(e.x.type).bits == 8 and dtype.is_integer))
        return e.x if narrow and isinstance(e, n.Cast) else e
    return bare(a), bare(b)


def _once_for_each(s: n.Stmt) -> str:
    """What a statement does that counts how often it is executed: text that is not understood, an answer that is missing, a call that changes
    memory ("" for nothing of the kind)."""
    match s:
        case n.Opaque():
            return "text that is not understood is executed"
        case n.Hole():
            return "a hole is filled"
        case n.Let(value=n.Call() as call) | n.Eval(call=call) if call.of is None and instruction(call.fn).effect == "memory":
            return f"'{call.fn}' changes memory"
        case _:
            return ""
