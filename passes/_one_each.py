"""Between the code of a thread and tiles that have an element for each thread of the CTA: `Gathered` leads to the tiles, `Dealt` back.

A value that differs from thread to thread is a tile whose first axis is the threads; what all threads agree on stays as it is. A branch that only some
threads take is a tile of conditions, which masks what it stores and what it loads; a loop of which they run different numbers of iterations runs the
most of these, each under the condition that the thread is still in it. What lanes give each other is a gather along the first axis.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kir.analysis.uniform import depends, of_whole_groups
from kir.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, DType, TileType, Type, shape_of
from kir.ir.visit import walk
from kir.rewrite.edit import fresh

WARP = 32
PRIVATE = ("register", "fragment")
LOOP, RETURN = -1, 0
"""What stands for the number of statements under a condition: it is that of a loop; it is left by the threads that return."""


class CannotDeal(Exception):
    """What has no form for one thread of many, or for all of them at once."""


def wide(t: Type, threads: int) -> TileType:
    """The type of a thread's value for all threads."""
    return TileType(t.dtype if isinstance(t, TileType) else _dtype(t), (threads, *shape_of(t)))


def _dtype(t: Type) -> DType:
    if not isinstance(t, DType):
        raise CannotDeal(f"a value of type {t} has no tile")
    return t


def _touches_memory(e: n.Node) -> bool:
    return any(isinstance(x, n.Load) and x.at.buffer.space not in PRIVATE for x in walk(e))


def is_return(s: n.Stmt) -> bool:
    """Whether a statement is a branch that leaves the kernel and does nothing else."""
    return isinstance(s, n.If) and not s.orelse and len(s.then) == 1 and isinstance(s.then[0], n.Jump) and s.then[0].kind == "return" and not s.then[0].values


def differing(loop: n.For, groups: int = 1) -> frozenset[str]:
    """Names of values and private memory that differ between threads anywhere in a loop over them; with `groups` those that differ between threads of
    one group of so many."""
    t = loop.var.name
    names = {t}

    def differs(e: n.Node, apart: bool) -> bool:
        seen = of_whole_groups(e, t, groups) if groups > 1 and isinstance(e, n.Expr) else e
        return depends(seen, names) or (apart and _touches_memory(e))

    def visit(block: n.Block, branch: bool, left: bool) -> None:
        """`branch`: only some threads come here; `left`: some have returned, and what the others agree on they still agree on."""
        for s in block:
            under = branch or left
            match s:
                case n.Let() if differs(s.value, under):
                    names.update(s.names)
                case n.Alloc() if s.buffer.space in PRIVATE and (s.buffer.shape or (s.init is not None and differs(s.init, under))):
                    names.add(s.buffer.name)
                case n.Store() if s.at.buffer.space in PRIVATE and (branch or any(
                        differs(x, under) for x in (*s.at.index, s.value, s.mask) if x is not None)):
                    names.add(s.at.buffer.name)
                case n.Copy() if s.dst.buffer.space in PRIVATE:
                    names.add(s.dst.buffer.name)
                case n.For():
                    visit(s.body, branch or any(differs(x, under) for x in (s.lo, s.hi, s.step)), left)
                case n.While():
                    visit(s.body, branch or differs(s.cond, under), left)
                case n.If():
                    inner = branch or differs(s.cond, under)
                    visit(s.then, inner, left)
                    visit(s.orelse, inner, left)
                    left = left or (is_return(s) and inner)
                case _:
                    pass
    before = 0
    while len(names) != before:
        before = len(names)
        visit(loop.body, False, False)
    return frozenset(names)


def shuffled(fn: str, operand: n.Expr, threads: int) -> n.Expr | None:
    """The thread whose value each thread gets by a shuffle among the lanes of a warp, as a tile."""
    me = build.iota(threads)
    lane = build.mod(me, WARP)
    match fn:
        case "shfl_xor":
            return build.binary("xor", me, operand if _within_warp(operand) else build.binary("and", operand, build.const(WARP - 1)))
        case "shfl_down":
            return build.select(build.compare("lt", build.add(lane, operand), WARP), build.add(me, operand), me)
        case "shfl_up":
            return build.select(build.compare("ge", lane, operand), build.sub(me, operand), me)
        case "shfl_idx":
            return build.add(build.mul(build.floordiv(me, WARP), WARP), build.mod(operand, WARP))
        case _:
            return None


def _operand(place: n.Expr, fn: str, threads: int) -> n.Expr | None:
    """The operand of the shuffle that fetches from a place, if it is `fn`."""
    me = build.iota(threads)
    match fn, place:
        case "shfl_xor", n.Binary(op="xor"):
            mask = place.a if place.b == me else place.b
            low = isinstance(mask, n.Binary) and mask.op == "and" and mask.b == build.const(WARP - 1)
            return mask.a if low and isinstance(mask, n.Binary) else mask
        case "shfl_down", n.Select():
            return _bare(build.sub(place.a, me))
        case "shfl_up", n.Select():
            return _bare(build.sub(me, place.a))
        case "shfl_idx", _:
            rest = _bare(build.sub(place, build.mul(build.floordiv(me, WARP), WARP)))
            return rest.a if isinstance(rest, n.Binary) and rest.op == "mod" else rest
        case _:
            return None


def _bare(e: n.Expr) -> n.Expr:
    """A value that was stretched for all threads, as it was."""
    stretched = isinstance(e, n.Call) and e.fn == "broadcast" and isinstance(e.args[0], n.Expr) and not isinstance(e.args[0].type, TileType)
    return e.args[0] if stretched and isinstance(e, n.Call) and isinstance(e.args[0], n.Expr) else e


@dataclass
class Gathered:
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
            case n.For() if s.kind == "serial" and build.is_const(s.lo, 0) and build.is_const(s.step, 1):
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
            rank, value = len(b.shape), s.value
            if s.clip or len(s.at.index) > 1 or any(isinstance(i, n.Span) for i in s.at.index):
                raise CannotDeal(f"a part of each thread's '{b.name}' is written")
            made = self._fit(value, rank, under)
            if s.at.index:
                which = n.Binary("eq", build.iota(b.shape[0]), self._fit(_indices(s.at)[0], rank, under))
                made = build.select(which, made, n.Load(n.Region(self._all(b))))
            return replace(s, at=n.Region(self._all(b)), value=made, mask=_stretched(self._mask(s.mask, under), rank))
        parts = [*(e for e in _indices(s.at)), s.value, *([] if s.mask is None else [s.mask])]
        if under.guard is None and not any(self._differs(e, under) for e in parts):
            return s
        if under.guard is None and not any(self._differs(e, under) for e in _indices(s.at)):
            raise CannotDeal(f"all threads write one place of '{b.name}'")
        at, rank = self._place(s.at, under), len(shape_of(s.at.type))
        value = self._fit(s.value, rank, under)
        return replace(s, at=at, value=value if shape_of(value.type) == shape_of(at.type) else build.broadcast(value, at.type),
                       mask=_stretched(self._mask(s.mask, under), rank))

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
        return depends(e, self.names) or (under.guard is not None and _touches_memory(e))

    def _splits(self, e: n.Expr) -> bool:
        """Whether a condition may tell lanes of a warp apart."""
        return depends(of_whole_groups(e, self.loop.var.name, WARP), self.apart) and not _up_to_whole_warps(e, self.loop.var)

    def _all(self, b: n.Buffer) -> n.Buffer:
        if len(b.shape) > 1 or b.layout is not None or any(build.int_value(d) in (None, self.threads) for d in b.shape):
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
        value = n.Load(n.Region(self._all(e.at.buffer)))
        if e.mask is not None or len(e.at.index) > 1:
            raise CannotDeal(f"'{e.at.buffer.name}' is an array of each thread")
        match e.at.index:
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
            index.append(build.add(made, build.iota(i.extent)) if isinstance(i, n.Span) else made)
        if not any(self.threads in shape_of(i.type) for i in index):
            index[0] = build.broadcast(index[0], TileType(I32, (self.threads, *(int(i.extent) for i in spans if isinstance(i.extent, int)))))
        moving = [k for k, i in enumerate(index) if isinstance(i.type, TileType)]
        if not spans and len(moving) == 1 and (row := _evenly(index[moving[0]], self.threads)) is not None:
            return build.region(at.buffer, *index[:moving[0]], row, *index[moving[0] + 1:])
        return n.Region(at.buffer, tuple(index))

    def _call(self, e: n.Call, under: _Under) -> n.Expr:
        args = [a for a in e.args if isinstance(a, n.Expr)]
        if e.of is None and e.fn.startswith("shfl_"):
            if under.splits or dict(e.attrs).get("width", WARP) != WARP or "mask" in dict(e.attrs):
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
    return build.expand(mask, 1) if mask is not None and rank and len(shape_of(mask.type)) == 1 else mask


@dataclass(frozen=True)
class _Under:
    """What a statement stands under: a tile of conditions, whether these may tell lanes of a warp apart, and whether threads that go on all come here."""

    guard: n.Expr | None = None
    splits: bool = False
    waits: bool = True


def _indices(at: n.Region) -> tuple[n.Expr, ...]:
    return tuple(e for i in at.index for e in ((i.lo,) if isinstance(i, n.Span) else (i,)))


def _evenly(i: n.Expr, threads: int) -> n.Span | None:
    """The span that indices are which grow by as much from thread to thread."""
    terms = dict(build.polynomial(i))
    step = terms.pop((build.iota(threads),), 0)
    if not step or any(isinstance(a.type, TileType) for m in terms for a in m):
        return None
    return build.span(build.from_polynomial(terms, I32), threads, step)


def _within_warp(mask: n.Expr) -> bool:
    """Whether a mask of lanes is a number below 32, perhaps shifted to the right by the round of a loop."""
    if isinstance(mask, n.Binary) and mask.op == "shr":
        mask = mask.a
    value = build.int_value(mask)
    return value is not None and 0 <= value < WARP


def _up_to_whole_warps(cond: n.Expr, t: n.Var) -> bool:
    """Whether a condition compares the thread's number with a multiple of a warp's lanes."""
    bound = build.int_value(cond.b) if isinstance(cond, n.Binary) and cond.op in ("lt", "ge") and cond.a == t else None
    return bound is not None and bound % WARP == 0


def running(hi: n.Expr, var: n.Var, tile: Callable[[n.Expr], n.Expr]) -> n.Expr:
    """Whether a thread is still in a loop up to `hi`, for the round `var`: var * c < a where hi is ceildiv(a, c)."""
    step = build.int_value(hi.b) if isinstance(hi, n.Binary) and hi.op == "ceildiv" else None
    if isinstance(hi, n.Binary) and step is not None and step > 0:
        return n.Binary("lt", build.mul(var, step), tile(hi.a))
    return n.Binary("lt", var, tile(hi))


def _end(cond: n.Expr, var: n.Var) -> n.Expr:
    """The end of the loop whose rounds meet such a condition."""
    if isinstance(cond, n.Binary) and cond.op == "lt":
        if cond.a == var:
            return cond.b
        terms = build.polynomial(cond.a)
        if set(terms) == {(var,)}:
            return build.ceildiv(cond.b, terms[(var,)])
    raise CannotDeal("a condition does not say where a loop ends")


def first_of(hi: n.Expr, t: n.Var) -> n.Expr | None:
    """The end of a loop for the first thread, where no other one has a later one: the thread's number, or what is left of it by a division, is only
    taken away."""
    inner = hi.a if isinstance(hi, n.Binary) and hi.op == "ceildiv" and (build.int_value(hi.b) or 0) > 0 else hi
    terms = build.polynomial(inner)
    rest: dict[build.Monomial, int] = {}
    for monomial, c in terms.items():
        if not any(t.name in {x.name for x in walk(a) if isinstance(x, n.Var)} for a in monomial):
            rest[monomial] = c
        elif c > 0 or len(monomial) != 1 or not _from_zero(monomial[0], t):
            return None
    dtype = inner.type
    assert isinstance(dtype, DType)
    most = build.from_polynomial(rest, dtype)
    if any(c < 0 for m, c in rest.items() if m):  # for the last CTAs less than nothing may be left
        most = build.maximum(most, build.const(0, dtype))
    return build.ceildiv(most, hi.b) if inner is not hi and isinstance(hi, n.Binary) else most


def _from_zero(e: n.Expr, t: n.Var) -> bool:
    """Whether something is 0 for the first thread and never less."""
    return e == t or (isinstance(e, n.Binary) and e.op in ("mod", "floordiv") and e.a == t and (build.int_value(e.b) or 0) > 0)


# --------------------------------------------------------------------------------------------------------------------- back

@dataclass
class Dealt:
    """The code of one thread of `threads`, from tiles with an element for each. `guards` are those that `Gathered` collects."""

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
                made = self.scalar(s.call, guard)
                assert isinstance(made, n.Call)
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
        end = _end(cond, s.var)
        if first_of(end, self.thread) != s.hi or not build.is_const(s.lo, 0) or not build.is_const(s.step, 1):
            raise CannotDeal("a loop does not run as often as its first thread")
        return replace(s, hi=end, body=self._block(_Cursor(s.body[1:]), inner, None))

    def _private(self, s: n.Store, guard: n.Var | None) -> n.Stmt:
        if s.at.index or s.clip:
            raise CannotDeal(f"a part of '{s.at.buffer.name}' is written")
        own, mask = self._own(s.at.buffer), self._mask(s.mask, guard)
        match s.value:
            case n.Select(cond=n.Binary(op="eq", a=first, b=which), a=value, b=n.Load(at=rest)) if (
                    own.shape and first == build.iota(own.shape[0]) and rest == s.at):
                return replace(s, at=n.Region(own, (self.scalar(which, guard),)), value=self.scalar(value, guard), mask=mask)
        return replace(s, at=n.Region(own), value=self.scalar(s.value, guard), mask=mask)

    def _own(self, b: n.Buffer) -> n.Buffer:
        if len(b.shape) not in (1, 2) or build.int_value(b.shape[0]) != self.threads or b.layout is not None:
            raise CannotDeal(f"'{b.name}' has no element for each thread")
        return replace(b, space="register", shape=b.shape[1:])

    def _mask(self, mask: n.Expr | None, guard: n.Var | None) -> n.Expr | None:
        if isinstance(mask, n.Call) and mask.fn == "expand" and isinstance(mask.args[0], n.Expr):
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
            return n.Region(at.buffer, tuple(build.add(i.lo, build.mul(build.cast(self.thread, _dtype(i.lo.type)), i.step)) if isinstance(
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
        if len(shape) > 2 or (len(shape) == 2 and shape[0] != self.threads and shape[0] != 1):
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
            case "expand" if dict(e.attrs)["axis"] == 1:
                return self.scalar(args[0], guard)
            case "reshape" if isinstance(args[0], n.Call) and args[0].fn == "gather" and dict(args[0].attrs).get("axis") == 1:
                return self._element(args[0], guard)
            case "gather" if dict(e.attrs).get("axis") == 1:
                return self._element(e, guard)
            case "reduce" if dict(e.attrs).get("axis") == 1 and len(args) == 1:
                return build.call_with("reduce", (self.scalar(args[0], guard),), n.attrs(**{**dict(e.attrs), "axis": 0}))
            case "gather" if dict(e.attrs).get("axis") == 0:
                value = self.scalar(args[0], guard)
                for fn in ("shfl_xor", "shfl_down", "shfl_up", "shfl_idx"):
                    operand = _operand(args[1], fn, self.threads)
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
        if not (isinstance(value, n.Load) and value.at.buffer.space == "fragment" and not value.at.index and isinstance(which, n.Call)):
            raise CannotDeal("elements come from more than a thread's own memory")
        own, bare = self._own(value.at.buffer), which.args[0]
        assert isinstance(bare, n.Expr)
        if which.fn == "expand":
            return n.Load(n.Region(own, (self.scalar(bare, guard),)))
        extent = shape_of(which.type)[1]
        if not isinstance(bare.type, TileType):
            return n.Load(n.Region(own, (bare,)))
        return n.Load(n.Region(own, (build.span(_bare(build.sub(bare, build.iota(extent))), extent),)))


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



