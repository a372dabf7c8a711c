"""The code of one thread of many, from tiles with an element for each: the inverse of `SimtToTile`."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, TileType, Type, shape_of
from kir.rewrite.match import from_zero, matched_as

from ._thread_ownership import LOOP, RETURN, CannotDeal, bare, dtype_of_scalar, end_of, first_of, operand_of, shuffled


@dataclass
class TileToSimt:
    """The code of one thread of `threads`, from tiles with an element for each. `guards` are those that `SimtToTile` collects."""

    thread: n.Var
    threads: int
    guards: Mapping[int, tuple[int, int]]
    _lets: int = 0
    _wide: dict[str, Type] = field(default_factory=dict)

    def body(self, block: n.Block) -> n.Block:
        """The statements. Raises CannotDeal."""
        return self._block(_Cursor(block), None, None)

    def _block(self, at: _Cursor, guard: n.Var | None, count: int | None) -> n.Block:
        out: list[n.Stmt] = []
        while at.left and (count is None or len(out) < count):
            s = at.next()
            if isinstance(s, n.Let) and self._lets in self.guards:
                made, guard = self._guarded(s, at, guard)
                out.append(made)
            else:
                out.append(self._statement(s, guard))
        if count is not None and len(out) < count:
            raise CannotDeal("a branch ends before its statements do")
        return tuple(out)

    def _condition(self, s: n.Let, guard: n.Var | None) -> tuple[n.Expr, n.Var]:
        self._lets += 1
        if guard is None:
            return self.scalar(s.value, None), n.Var(s.names[0], s.value.type)
        if not (isinstance(s.value, n.Binary) and s.value.op == "and" and s.value.a == guard):
            raise CannotDeal(f"'{s.names[0]}' does not narrow '{guard.name}'")
        return self.scalar(s.value.b, guard), n.Var(s.names[0], s.value.type)

    def _guarded(self, s: n.Let, at: _Cursor, guard: n.Var | None) -> tuple[n.Stmt, n.Var | None]:
        then, orelse = self.guards[self._lets]
        if then == LOOP:
            raise CannotDeal("the condition of a loop stands outside of one")
        cond, inner = self._condition(s, guard)
        if then == RETURN:
            return n.If(build.invert(cond), (n.Jump("return"),)), inner
        first = self._block(at, inner, then)
        second: n.Block = ()
        if orelse:
            other = at.next() if at.left else None
            if not isinstance(other, n.Let):
                raise CannotDeal("the other branch has no condition")
            against, inner = self._condition(other, guard)
            if against != build.invert(cond):
                raise CannotDeal("the conditions of two branches are not each other's contrary")
            second = self._block(at, inner, orelse)
        return n.If(cond, first, second), guard

    def _statement(self, s: n.Stmt, guard: n.Var | None) -> n.Stmt:
        match s:
            case n.Let() if len(s.names) == 1:
                self._lets += 1
                if shape_of(s.value.type)[:1] == (self.threads,):
                    self._wide[s.names[0]] = s.value.type
                elif isinstance(s.value.type, TileType):
                    raise CannotDeal(f"'{s.names[0]}' has no element for each thread")
                return replace(s, value=self.scalar(s.value, guard))
            case n.Alloc() if s.buffer.space == "fragment":
                return replace(s, buffer=self._own(s.buffer), init=None if s.init is None else self.scalar(s.init, guard))
            case n.Alloc() if s.buffer.space == "register" and not s.buffer.shape:
                return s
            case n.Store() if s.at.buffer.space == "fragment":
                return self._private(s, guard)
            case n.Store():
                if not isinstance(s.at.type, TileType) and guard is not None and s.at.buffer.space != "register":
                    raise CannotDeal("a place that all threads share is written under a condition")
                return replace(s, at=self._place(s.at, guard), value=self.scalar(s.value, guard),
                               mask=self._mask(s.mask, guard if isinstance(s.at.type, TileType) else None))
            case n.Eval() if s.call.fn == "barrier":
                return s
            case n.Eval() if s.call.of is None and s.call.fn.startswith("atomic_"):
                made = matched_as(self.scalar(s.call, guard), n.Call)
                return replace(s, call=made)
            case n.For() if s.kind in ("serial", "unroll"):
                return self._loop(s, guard)
            case n.If() if not isinstance(s.cond.type, TileType):
                then = self._block(_Cursor(s.then), guard, None)
                return replace(s, cond=self.scalar(s.cond, guard), then=then, orelse=self._block(_Cursor(s.orelse), guard, None))
            case n.While() if not isinstance(s.cond.type, TileType):
                return replace(s, cond=self.scalar(s.cond, guard), body=self._block(_Cursor(s.body), guard, None))
            case n.Jump(kind="return", values=()):
                return s
            case _:
                raise CannotDeal(f"a {type(s).__name__.lower()} has no form for one thread of many")

    def _loop(self, s: n.For, guard: n.Var | None) -> n.Stmt:
        first = s.body[0] if s.body else None
        if not isinstance(first, n.Let) or self.guards.get(self._lets, (0, 0))[0] != LOOP:
            return replace(s, body=self._block(_Cursor(s.body), guard, None))
        cond, inner = self._condition(first, guard)
        end = end_of(cond, s.var)
        if first_of(end, self.thread) != s.hi or not from_zero(s):
            raise CannotDeal("a loop does not run as often as its first thread")
        return replace(s, hi=end, body=self._block(_Cursor(s.body[1:]), inner, None))

    def _private(self, s: n.Store, guard: n.Var | None) -> n.Stmt:
        if s.at.index or s.clip:
            raise CannotDeal(f"a part of '{s.at.buffer.name}' is written")
        own, mask = self._own(s.at.buffer), self._mask(s.mask, guard)
        if isinstance(s.value, n.Select) and isinstance(s.value.b, n.Load) and s.value.b.at == s.at and (index := self._chosen(s.value.cond, own, guard)):
            return replace(s, at=build.region(own, *index), value=self.scalar(s.value.a, guard), mask=mask)
        return replace(s, at=n.Region(own), value=self.scalar(s.value, guard), mask=mask)

    def _chosen(self, cond: n.Expr, own: n.Buffer, guard: n.Var | None) -> tuple[n.Expr | n.Span, ...]:
        """The place in a thread's memory that is written where a condition on its axes holds; none where it says none."""
        if len(own.shape) == 2 and isinstance(cond, n.Binary) and cond.op == "and":
            row, column = self._equal(cond.a, own.shape[0], True), self._equal(cond.b, own.shape[1], False)
            return (row, column) if row is not None and column is not None else ()
        if len(own.shape) == 2:
            row = self._equal(cond, own.shape[0], True)
            return () if row is None else (row, build.span(0, own.shape[1]))
        found = self._equal(cond, own.shape[0], False) if own.shape else None
        return () if found is None else (self.scalar(found, guard),)

    def _equal(self, cond: n.Expr, extent: n.Expr, expanded: bool) -> n.Expr | None:
        """What the index along an axis is compared with."""
        if expanded:
            if not (isinstance(cond, n.Call) and cond.fn == "expand" and isinstance(cond.args[0], n.Expr)):
                return None
            cond = cond.args[0]
        if not (isinstance(cond, n.Binary) and cond.op == "eq"):
            return None
        along = build.iota(extent)
        return cond.b if cond.a == along else cond.a if cond.b == along else None

    def _own(self, b: n.Buffer) -> n.Buffer:
        if len(b.shape) not in (1, 2, 3) or build.int_value(b.shape[0]) != self.threads or b.layout is not None:
            raise CannotDeal(f"'{b.name}' has no element for each thread")
        return replace(b, space="register", shape=b.shape[1:])

    def _mask(self, mask: n.Expr | None, guard: n.Var | None) -> n.Expr | None:
        while isinstance(mask, n.Call) and mask.fn == "expand" and isinstance(mask.args[0], n.Expr):
            mask = mask.args[0]
        if guard is None or mask is None:
            if guard is not None:
                raise CannotDeal(f"memory is touched without '{guard.name}'")
            return None if mask is None else self.scalar(mask, guard)
        if mask == guard:
            return None
        if isinstance(mask, n.Binary) and mask.op == "and" and mask.a == guard:
            return self.scalar(mask.b, guard)
        raise CannotDeal(f"memory is touched without '{guard.name}'")

    def _place(self, at: n.Region, guard: n.Var | None) -> n.Region:
        index = at.index or tuple(build.span(0, d) for d in at.buffer.shape)
        rows = [i for i in index if isinstance(i, n.Span)]
        if rows:
            if len(rows) > 1 or rows[0].extent != self.threads or not isinstance(rows[0].lo.type, DType) or not isinstance(rows[0].step, int):
                raise CannotDeal("a span of elements is no thread's")
            return n.Region(at.buffer, tuple(build.add(i.lo, build.mul(build.cast(self.thread, dtype_of_scalar(i.lo.type)), i.step)) if isinstance(
                i, n.Span) else self.scalar(i, guard) for i in index))
        extents = shape_of(at.type)[1:]
        made: list[n.Expr | n.Span] = []
        for i in (i for i in at.index if isinstance(i, n.Expr)):
            along = build.iota(extents[0]) if extents else None
            bare = i.args[0] if isinstance(i, n.Call) and i.fn == "broadcast" and isinstance(i.args[0], n.Expr) else i
            if along is not None and (along,) in build.polynomial(bare):
                rest = {m: c for m, c in build.polynomial(bare).items() if m != (along,)}
                made.append(build.span(self.scalar(build.from_polynomial(rest, I32), guard), int(extents[0]) if isinstance(extents[0], int) else extents[0]))
            else:
                made.append(self.scalar(i, guard))
        return n.Region(at.buffer, tuple(made))

    def scalar(self, e: n.Expr, guard: n.Var | None) -> n.Expr:
        """The thread's element of a tile; what is no tile as it is."""
        shape = shape_of(e.type) if isinstance(e.type, (TileType, DType)) else ()
        if len(shape) > 3 or (len(shape) == 2 and shape[0] != self.threads and shape[0] != 1):
            raise CannotDeal("a tile has no element for each thread")
        match e:
            case n.Const():
                return e
            case n.Var() if isinstance(e.of, TileType) and e.of.shape[:1] == (self.threads,):
                return replace(e, of=TileType(e.of.dtype, e.of.shape[1:]) if e.of.shape[1:] else e.of.dtype)
            case n.Var():
                return e
            case n.Unary():
                return build.unary(e.op, self.scalar(e.x, guard))
            case n.Binary():
                return build.binary(e.op, self.scalar(e.a, guard), self.scalar(e.b, guard))
            case n.Select():
                return build.select(self.scalar(e.cond, guard), self.scalar(e.a, guard), self.scalar(e.b, guard))
            case n.Cast():
                return build.cast(self.scalar(e.x, guard), e.dtype, e.rounding)
            case n.Load() if e.at.buffer.space == "fragment":
                if e.at.index or e.mask is not None:
                    raise CannotDeal(f"a part of '{e.at.buffer.name}' is read")
                return n.Load(n.Region(self._own(e.at.buffer)))
            case n.Load() if e.at.buffer.space == "register":
                return e
            case n.Load():
                if not shape and guard is not None:
                    raise CannotDeal("a place that all threads share is read under a condition")
                return replace(e, at=self._place(e.at, guard), mask=self._mask(e.mask, guard),
                               other=None if e.other is None else self.scalar(e.other, guard))
            case n.Call():
                return self._call(e, guard)
            case _:
                raise CannotDeal(f"a {type(e).__name__.lower()} has no form for one thread of many")

    def _call(self, e: n.Call, guard: n.Var | None) -> n.Expr:
        args = [a for a in e.args if isinstance(a, n.Expr)]
        match e.fn:
            case "iota":
                return self.thread if shape_of(e.type) == (self.threads,) else e
            case "broadcast" if self.threads not in shape_of(args[0].type):
                return args[0]
            case "expand" if dict(e.attrs)["axis"] in (1, 2):
                return self.scalar(args[0], guard)
            case "reshape" if isinstance(args[0], n.Call) and args[0].fn == "gather" and dict(args[0].attrs).get("axis") == 1:
                held = self._row(e)
                return n.Load(build.region(held[0], held[1], build.span(0, held[0].shape[1]))) if held is not None else self._element(args[0], guard)
            case "gather" if dict(e.attrs).get("axis") == 1:
                return self._element(e, guard)
            case "reduce" if dict(e.attrs).get("axis") == 1 and len(args) == 1:
                return build.call_with("reduce", (self.scalar(args[0], guard),), n.attrs(**{**dict(e.attrs), "axis": 0}))
            case "gather" if dict(e.attrs).get("axis") == 0:
                value = self.scalar(args[0], guard)
                for fn in ("shfl_xor", "shfl_down", "shfl_up", "shfl_idx"):
                    operand = operand_of(args[1], fn, self.threads)
                    if operand is not None and _built(fn, operand, self.threads) == args[1]:
                        return build.call(fn, value, self.scalar(operand, guard))
                raise CannotDeal("a value comes from another warp")
        if e.of is None and e.fn.startswith("atomic_") and isinstance(e.args[0], n.Region):
            value, *mask = args
            own = self._mask(mask[0] if mask else None, guard)
            return replace(e, args=(self._place(e.args[0], guard), self.scalar(value, guard), *(() if own is None else (own,))))
        row = None if e.of is not None else instruction(e.fn)
        if row is None or row.level != "element" or row.effect or len(args) != len(e.args):
            raise CannotDeal(f"'{e.fn}' has no form for one thread of many")
        return build.call_with(e.fn, tuple(self.scalar(a, guard) for a in args), e.attrs)


    def _element(self, e: n.Call, guard: n.Var | None) -> n.Expr:
        """What is gathered along a thread's own axis: an element of its memory or of a vector, or a few in a row."""
        value, which = (a for a in e.args if isinstance(a, n.Expr))
        if isinstance(which, n.Call) and which.fn == "expand" and isinstance(inner := which.args[0], n.Call) and inner.fn == "broadcast" and isinstance(
                inner.args[0], n.Expr):
            return build.call("pick", self.scalar(value, guard), inner.args[0])
        row = self._row(value)
        whole = isinstance(value, n.Load) and value.at.buffer.space == "fragment" and not value.at.index
        if not (whole or row is not None) or not isinstance(which, n.Call):
            raise CannotDeal("elements come from more than a thread's own memory")
        own = row[0] if row is not None else self._own(value.at.buffer) if isinstance(value, n.Load) else None
        first, along = (row[1],) if row is not None else (), matched_as(which.args[0], n.Expr)
        assert own is not None
        if which.fn == "expand":
            return n.Load(n.Region(own, (*first, self.scalar(along, guard))))
        extent = shape_of(which.type)[1]
        if not isinstance(along.type, TileType):
            return n.Load(n.Region(own, (*first, along)))
        return n.Load(n.Region(own, (*first, build.span(bare(build.sub(along, build.iota(extent))), extent))))

    def _row(self, e: n.Expr) -> tuple[n.Buffer, n.Expr] | None:
        """The array of each thread of which something is a row, and which row."""
        taken = e.args[0] if isinstance(e, n.Call) and e.fn == "reshape" else None
        if not (isinstance(taken, n.Call) and taken.fn == "gather"):
            return None
        match taken.args:
            case (n.Load(at=n.Region(buffer=b, index=())), n.Call(fn="broadcast", args=(n.Expr() as i, *_))) if (
                    len(b.shape) == 3 and b.space == "fragment" and not isinstance(i.type, TileType)):
                return self._own(b), i
            case _:
                return None


def _built(fn: str, operand: n.Expr, threads: int) -> n.Expr | None:
    try:
        return shuffled(fn, operand, threads)
    except TypeError:
        return None


@dataclass
class _Cursor:
    """Statements of a block that are still to be read."""

    block: n.Block
    place: int = 0

    @property
    def left(self) -> int:
        return len(self.block) - self.place

    def next(self) -> n.Stmt:
        self.place += 1
        return self.block[self.place - 1]
