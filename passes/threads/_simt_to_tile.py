"""All threads of a CTA at once: their code as tiles that have an element for each.

A value that differs from thread to thread is a tile whose first axis is the threads; what all threads agree on stays as it is. A branch that only some
threads take is a tile of conditions, which masks what it stores and what it loads; a loop of which they run different numbers of iterations runs the
most of these, each under the condition that the thread is still in it. What lanes give each other is a gather along the first axis.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from kir.analysis.uniform import depends, of_whole_groups
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, DType, TileType, dtype_of, shape_of
from kir.rewrite.edit import fresh
from kir.rewrite.match import from_zero

from ._thread_ownership import (
    LOOP,
    PRIVATE,
    RETURN,
    WARP,
    CannotDeal,
    differing,
    evenly,
    first_of,
    is_return,
    running,
    shuffled,
    touches_memory,
    up_to_whole_warps,
    wide,
)


@dataclass
class SimtToTile:
    """All threads of a loop at once. `guards` collects, for each condition that only some threads meet: the number of its let among the lets of the
    result, the number of statements of its branch (or what stands for it), and that of the other branch."""

    loop: n.For
    threads: int
    taken: set[str]
    guards: list[int] = field(default_factory=list)
    _lets: int = 0

    def __post_init__(self) -> None:
        self.names = differing(self.loop)
        self.apart = differing(self.loop, WARP)

    def body(self) -> n.Block:
        """The statements. Raises CannotDeal."""
        return tuple(self._block(self.loop.body, _Under(), True))

    # ------------------------------------------------------------------------------------------------------------- statements
    def _block(self, block: n.Block, under: _Under, outermost: bool = False) -> Iterator[n.Stmt]:
        for s in block:
            if isinstance(s, n.If) and is_return(s) and self._differs(s.cond, under):
                if not outermost:
                    raise CannotDeal("a thread returns from inside a loop or branch")
                guard, under = self._guard("active", build.invert(self.tile(s.cond, under)), under, self._splits(s.cond), leaves=True)
                self.guards += [self._lets - 1, RETURN, 0]
                yield guard
            else:
                yield from self._statement(s, under)

    def _statement(self, s: n.Stmt, under: _Under) -> Iterator[n.Stmt]:
        match s:
            case n.Let() if len(s.names) == 1:
                value = self._whole(self.tile(s.value, under), s.value) if s.names[0] in self.names else self.tile(s.value, under)
                self._lets += 1
                yield replace(s, value=value)
            case n.Alloc() if s.buffer.space == "register":
                if s.buffer.name not in self.names:
                    yield s
                    return
                rank = len(s.buffer.shape)
                yield replace(s, buffer=self._all(s.buffer), init=None if s.init is None else self._fit(s.init, rank, under))
            case n.Store():
                yield self._store(s, under)
            case n.Eval():
                yield self._eval(s, under)
            case n.For() if not any(self._differs(e, under) for e in (s.lo, s.hi, s.step)) and s.kind in ("serial", "unroll"):
                yield replace(s, body=tuple(self._block(s.body, under)))
            case n.For() if s.kind == "serial" and from_zero(s):
                yield self._loop(s, under)
            case n.If() if not self._differs(s.cond, under):
                then, orelse = (tuple(self._block(b, under)) for b in (s.then, s.orelse))
                yield replace(s, then=then, orelse=orelse)
            case n.If():
                yield from self._branch(s, under)
            case n.While() if not self._differs(s.cond, under):
                yield replace(s, body=tuple(self._block(s.body, under)))
            case n.Jump(kind="return", values=()) if under.guard is None:
                yield s
            case _:
                raise CannotDeal(f"a {type(s).__name__.lower()} has no form for all threads at once")

    def _branch(self, s: n.If, under: _Under) -> Iterator[n.Stmt]:
        cond, splits = self.tile(s.cond, under), self._splits(s.cond)
        guard, inner = self._guard("inside", cond, under, splits)
        self.guards += [self._lets - 1, len(s.then), len(s.orelse)]
        yield guard
        yield from self._block(s.then, inner)
        if s.orelse:
            guard, inner = self._guard("outside", build.invert(cond), under, splits)
            yield guard
            yield from self._block(s.orelse, inner)

    def _loop(self, s: n.For, under: _Under) -> n.Stmt:
        """A loop to the most iterations of any thread: those of the first, which must be known to have the most."""
        most = first_of(s.hi, self.loop.var)
        if most is None or self._differs(most, under):
            raise CannotDeal("no thread is known to run the most iterations of a loop")
        before = self._lets
        guard, inner = self._guard("running", running(s.hi, s.var, lambda e: self.tile(e, under)), under, True)
        self.guards += [before, LOOP, 0]
        return replace(s, hi=most, body=(guard, *self._block(s.body, inner)))

    def _guard(self, name: str, cond: n.Expr, under: _Under, splits: bool, leaves: bool = False) -> tuple[n.Stmt, _Under]:
        name = fresh(name, self.taken)
        self.taken.add(name)
        self._lets += 1
        value = cond if under.guard is None else build.logical_and(under.guard, cond)
        guard = n.Var(name, TileType(BOOL, (self.threads,)))
        return n.Let((name,), value), _Under(guard, under.splits or splits, under.waits and leaves)

    def _store(self, s: n.Store, under: _Under) -> n.Stmt:
        b = s.at.buffer
        if b.space in PRIVATE:
            if b.name not in self.names:
                return s
            if s.clip:
                raise CannotDeal(f"a part of each thread's '{b.name}' is written")
            return replace(s, at=n.Region(self._all(b)), value=self._kept(s, under), mask=_stretched(self._mask(s.mask, under), len(b.shape)))
        parts = [*(e for e in _indices(s.at)), s.value, *([] if s.mask is None else [s.mask])]
        if under.guard is None and not any(self._differs(e, under) for e in parts):
            return s
        if under.guard is None and not any(self._differs(e, under) for e in _indices(s.at)):
            raise CannotDeal(f"all threads write one place of '{b.name}'")
        at, rank = self._place(s.at, under), len(shape_of(s.at.type))
        value = self._fit(s.value, rank, under)
        return replace(s, at=at, value=value if shape_of(value.type) == shape_of(at.type) else build.broadcast(value, at.type),
                       mask=_stretched(self._mask(s.mask, under), rank))

    def _kept(self, s: n.Store, under: _Under) -> n.Expr:
        """What a thread's memory holds after a store: what is stored where that goes, and what was there."""
        b, before = s.at.buffer, n.Load(n.Region(self._all(s.at.buffer)))
        match s.at.index:
            case ():
                return self._fit(s.value, len(b.shape), under)
            case (n.Expr() as i,):
                which: n.Expr = build.compare("eq", build.iota(b.shape[0]), self._fit(i, 1, under))
                return build.select(which, self._fit(s.value, 1, under), before)
            case (n.Expr() as i, n.Span(step=1, extent=extent, lo=lo)) if build.is_const(lo, 0) and extent == build.int_value(b.shape[1]) and not (
                    self._differs(i, under)):
                value = self.tile(s.value, under)
                row = build.expand(value, 1) if self._differs(s.value, under) and len(shape_of(value.type)) == 2 else self._fit(s.value, 1, under)
                return build.select(build.expand(build.compare("eq", build.iota(b.shape[0]), i), 1), row, before)
            case (n.Expr() as i, n.Expr() as j) if not (self._differs(i, under) or self._differs(j, under)):
                which = build.logical_and(build.expand(build.compare("eq", build.iota(b.shape[0]), i), 1), build.compare("eq", build.iota(b.shape[1]), j))
                value = self._fit(s.value, 1, under)
                return build.select(which, build.expand(value, 2) if self._differs(s.value, under) else value, before)
            case _:
                raise CannotDeal(f"a part of each thread's '{b.name}' is written")

    def _eval(self, s: n.Eval, under: _Under) -> n.Stmt:
        call = s.call
        if call.fn == "barrier":
            if not under.waits:
                raise CannotDeal("some threads do not come to a barrier")
            return s
        if call.of is None and call.fn.startswith("atomic_"):
            return replace(s, call=self._atomic(call, under))
        raise CannotDeal(f"'{call.fn}' has no form for all threads at once")

    def _atomic(self, call: n.Call, under: _Under) -> n.Call:
        at = call.args[0]
        if not isinstance(at, n.Region) or call.fn in ("atomic_cas", "atomic_load", "atomic_store") or at.buffer.space in PRIVATE:
            raise CannotDeal(f"'{call.fn}' has no form for all threads at once")
        place = self._place(at, under)
        if len(shape_of(place.type)) != 1:
            raise CannotDeal("vectors are updated at once")
        value, *mask = (a for a in call.args[1:] if isinstance(a, n.Expr))
        whole = self.tile(value, under)
        under_mask = self._mask(mask[0] if mask else None, under)
        return replace(call, args=(place, whole if self._differs(value, under) else build.broadcast(whole, place.type),
                                   *(() if under_mask is None else (under_mask,))))

    # ------------------------------------------------------------------------------------------------------------ expressions
    def _differs(self, e: n.Expr, under: _Under) -> bool:
        return depends(e, self.names) or (under.guard is not None and touches_memory(e))

    def _splits(self, e: n.Expr) -> bool:
        """Whether a condition may tell lanes of a warp apart."""
        return depends(of_whole_groups(e, self.loop.var.name, WARP), self.apart) and not up_to_whole_warps(e, self.loop.var)

    def _all(self, b: n.Buffer) -> n.Buffer:
        if len(b.shape) > 2 or b.layout is not None or any(build.int_value(d) is None for d in b.shape):
            raise CannotDeal(f"'{b.name}' is an array of each thread")
        return replace(b, space="fragment", shape=(build.const(self.threads), *b.shape))

    def _whole(self, made: n.Expr, e: n.Expr) -> n.Expr:
        return made if shape_of(made.type)[:1] == (self.threads,) else build.broadcast(made, wide(e.type, self.threads))

    def _mask(self, mask: n.Expr | None, under: _Under) -> n.Expr | None:
        own = None if mask is None else self.tile(mask, under)
        if under.guard is None or own is None:
            return under.guard if own is None else own
        return build.logical_and(under.guard, own)

    def tile(self, e: n.Expr, under: _Under) -> n.Expr:
        """An expression of a thread for all threads; one that they agree on as it is."""
        if not self._differs(e, under):
            return e
        rank = len(shape_of(e.type)) if isinstance(e.type, (TileType, DType)) else 2
        if rank > 1 or self.threads in shape_of(e.type):
            raise CannotDeal("a thread has whole tiles")
        match e:
            case n.Var():
                return build.iota(self.threads) if e.name == self.loop.var.name else n.Var(e.name, wide(e.of, self.threads))
            case n.Unary():
                return build.unary(e.op, self.tile(e.x, under))
            case n.Binary():
                return build.binary(e.op, self._fit(e.a, rank, under), self._fit(e.b, rank, under))
            case n.Select():
                return build.select(self._fit(e.cond, rank, under), self._fit(e.a, rank, under), self._fit(e.b, rank, under))
            case n.Cast():
                return build.cast(self.tile(e.x, under), e.dtype, e.rounding)
            case n.Load() if e.at.buffer.space in PRIVATE:
                return self._private(e, under)
            case n.Load():
                other = None if e.other is None else self._fit(e.other, rank, under)
                return replace(e, at=self._place(e.at, under), mask=_stretched(self._mask(e.mask, under), rank), other=other)
            case n.Call():
                return self._call(e, under)
            case _:
                raise CannotDeal(f"a {type(e).__name__.lower()} has no form for all threads at once")

    def _fit(self, e: n.Expr, rank: int, under: _Under) -> n.Expr:
        """An operand for all threads, beside vectors where the result is one."""
        made = self.tile(e, under)
        return build.expand(made, 1) if rank > len(shape_of(e.type)) and self._differs(e, under) else made

    def _private(self, e: n.Load, under: _Under) -> n.Expr:
        """Private memory, whole; or one of its elements, or a few in a row, as what is gathered along its own axis."""
        value: n.Expr = n.Load(n.Region(self._all(e.at.buffer)))
        index = e.at.index
        if e.mask is not None or (len(index) != len(e.at.buffer.shape) and (index or len(e.at.buffer.shape) > 1)):
            raise CannotDeal(f"'{e.at.buffer.name}' is an array of each thread")
        if len(index) == 2:
            first, width = index[0], build.int_value(e.at.buffer.shape[1])
            if not isinstance(first, n.Expr) or self._differs(first, under) or width is None:
                raise CannotDeal(f"a part of each thread's '{e.at.buffer.name}' is read")
            row = build.call("gather", value, build.broadcast(first, TileType(I32, (self.threads, 1, width))), axis=1)
            value, index = build.call("reshape", row, build.const(self.threads), build.const(width)), index[1:]
            if isinstance(index[0], n.Span) and index[0] == build.span(0, width):
                return value
        match index:
            case ():
                return value
            case (n.Span(step=1, extent=int(extent), lo=lo),) if not self._differs(lo, under):
                which = build.broadcast(build.add(lo, build.iota(extent)), TileType(I32, (self.threads, extent)))
                return build.call("gather", value, which, axis=1)
            case (n.Expr() as i,):
                return self._element(value, build.expand(self.tile(i, under), 1) if self._differs(i, under) else
                                     build.broadcast(i, TileType(I32, (self.threads, 1))))
            case _:
                raise CannotDeal(f"a part of each thread's '{e.at.buffer.name}' is read")

    def _element(self, value: n.Expr, which: n.Expr) -> n.Expr:
        return build.call("reshape", build.call("gather", value, which, axis=1), build.const(self.threads))

    def _place(self, at: n.Region, under: _Under) -> n.Region:
        spans = [i for i in at.index if isinstance(i, n.Span)]
        if not at.index or len(spans) > 1 or any(i.step != 1 or not isinstance(i.extent, int) or i.extent == self.threads for i in spans):
            raise CannotDeal("a thread has whole tiles")
        index = []
        for i in at.index:
            made = self._fit(i.lo if isinstance(i, n.Span) else i, len(spans), under)
            index.append(build.add(made, build.cast(build.iota(i.extent), dtype_of(made.type))) if isinstance(i, n.Span) else made)
        if not any(self.threads in shape_of(i.type) for i in index):
            index[0] = build.broadcast(index[0], TileType(I32, (self.threads, *(int(i.extent) for i in spans if isinstance(i.extent, int)))))
        moving = [k for k, i in enumerate(index) if isinstance(i.type, TileType)]
        if not spans and len(moving) == 1 and (row := evenly(index[moving[0]], self.threads)) is not None:
            return build.region(at.buffer, *index[:moving[0]], row, *index[moving[0] + 1:])
        return n.Region(at.buffer, tuple(index))

    def _call(self, e: n.Call, under: _Under) -> n.Expr:
        args = [a for a in e.args if isinstance(a, n.Expr)]
        if e.of is None and e.fn.startswith("shfl_"):
            if len(args) > 2 or under.splits or dict(e.attrs).get("width", WARP) != WARP or not {"mask", "group"}.isdisjoint(dict(e.attrs)):
                raise CannotDeal("not all lanes of a warp take part in an exchange")
            place = shuffled(e.fn, self.tile(args[1], under), self.threads)
            if place is None:
                raise CannotDeal(f"'{e.fn}' has no form for all threads at once")
            return build.call("gather", self._whole(self.tile(args[0], under), args[0]), place, axis=0)
        if e.of is None and e.fn.startswith("atomic_"):
            return self._atomic(e, under)
        if e.of is None and e.fn == "pick" and len(args) == 2 and self._differs(args[0], under) and not self._differs(args[1], under):
            which = build.expand(build.broadcast(args[1], TileType(I32, (self.threads,))), 1)
            return self._element(self.tile(args[0], under), which)
        if e.of is None and e.fn == "reduce" and len(args) == 1 and dict(e.attrs).get("axis") == 0 and "op" in dict(e.attrs) and "keep" not in dict(e.attrs):
            return build.call_with("reduce", (self.tile(args[0], under),), n.attrs(**{**dict(e.attrs), "axis": 1}))
        row = None if e.of is not None else instruction(e.fn)
        if row is None or row.level != "element" or row.effect or len(args) != len(e.args):
            raise CannotDeal(f"'{e.fn}' has no form for all threads at once")
        rank = len(shape_of(e.type))
        return build.call_with(e.fn, tuple(self._fit(a, rank, under) for a in args), e.attrs)


def _stretched(mask: n.Expr | None, rank: int) -> n.Expr | None:
    """A mask of threads, for a vector of each."""
    if mask is not None and rank and len(shape_of(mask.type)) == 1:
        mask = build.expand(mask, 1)
    return build.expand(mask, 2) if mask is not None and rank == 2 else mask


@dataclass(frozen=True)
class _Under:
    """What a statement stands under: a tile of conditions, whether these may tell lanes of a warp apart, and whether threads that go on all come here."""

    guard: n.Expr | None = None
    splits: bool = False
    waits: bool = True


def _indices(at: n.Region) -> tuple[n.Expr, ...]:
    return tuple(e for i in at.index for e in ((i.lo,) if isinstance(i, n.Span) else (i,)))
