"""`T.Parallel` as tile statements: what one iteration does to elements, done to the whole range at once.

Iterations are independent, so each statement of the body may run for all of them before the next. Conditions become masks, numbers that the
body names become tiles, variables that it declares get the axes of the loop. A body that has no such form is distributed over threads instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace

from kir.analysis.access import must_overlap
from kir.analysis.elements import Axes, NotElementwise, tile, tile_region
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DType, TileType, dtype_of
from kir.ir.visit import statements, substitute, transform, walk

from ..state.guards import joined
from ..values.names import LANES
from .mentions import seen

SMALL = 24
"""Nodes of an expression that is written again wherever its name is used."""
FEW = 8
"""Iterations of an axis that write one place, at most, for them to be written one after another."""
COMBINING = {"add": "sum", "max": "max", "min": "min"}


class NoTiles(Exception):
    """A body that has no form as tile statements, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def nest(s: n.For) -> tuple[list[tuple[n.Var, n.Expr]], n.Block]:
    """The axes of a `T.Parallel` and the body of the innermost loop."""
    axes = [(s.var, s.hi)]
    body = s.body
    while len(body) == 1 and isinstance(body[0], n.For) and body[0].kind == LANES:
        axes.append((body[0].var, body[0].hi))
        body = body[0].body
    return axes, body


@dataclass
class Lanes:
    """Turns one loop into tile statements. `fresh` gives names; `reducers` are fragments that sum over missing axes."""

    fresh: Callable[[str], str]
    reducers: frozenset[str]
    guard: Callable[[n.Expr, n.Expr], n.Expr]
    values: dict[str, n.Expr] = field(default_factory=dict)
    buffers: dict[str, tuple[n.Buffer, tuple[n.Expr, ...]]] = field(default_factory=dict)
    """Variables that the body declares: the buffer with the axes of the loop, and the indices of those axes."""

    def tiles(self, s: n.For) -> n.Block:
        """The statements for the whole range. Raises NoTiles."""
        loops, body = nest(s)
        axes: list[tuple[n.Var, int | n.Expr]] = []
        for var, hi in loops:
            extent = build.int_value(hi)
            if extent == 1:
                self.values[var.name] = build.const(0, dtype_of(var.of))
            else:
                axes.append((var, hi if extent is None else extent))
        try:
            out = tuple(self.block(body, axes, None))
        except (NotElementwise, KirError) as bad:
            raise NoTiles(str(bad) if isinstance(bad, NotElementwise) else bad.diagnostics[0].message) from bad
        return out

    # --------------------------------------------------------------------------------------------------------------- statements
    def block(self, body: n.Block, axes: Axes, mask: n.Expr | None) -> Iterator[n.Stmt]:
        for s in body:
            for made in self.stmt(s, axes, mask):
                yield made if made.origin is not None else replace(made, origin=s.origin)  # type: ignore[type-var]  # a dataclass

    def stmt(self, s: n.Stmt, axes: Axes, mask: n.Expr | None) -> Iterator[n.Stmt]:
        match s:
            case n.Let(names=(name,)):
                value = self.scalar(s.value)
                yield from self.let(name, value if mask is None else self.guard(value, mask), axes)
            case n.Alloc() if s.buffer.space == "register":
                extents = tuple(build.const(d) if isinstance(d, int) else d for _, d in axes)
                made = replace(s.buffer, shape=(*extents, *s.buffer.shape), space="fragment" if extents or s.buffer.shape else "register")
                self.buffers[s.buffer.name] = (made, tuple(v for v, _ in axes))
                init = None if s.init is None else tile(self.scalar(s.init), axes)
                yield n.Alloc(made, init)
            case n.Store():
                yield from self.store(s, axes, mask)
            case n.If():
                yield from self.branch(s, axes, mask)
            case n.For() if s.kind != LANES:
                lo, hi, step = self.scalar(s.lo), self.scalar(s.hi), self.scalar(s.step)
                if self.varies(axes, lo, hi, step):
                    raise NoTiles("a loop whose range depends on the index")
                yield replace(s, lo=lo, hi=hi, step=step, body=tuple(self.block(s.body, axes, mask)))
            case n.For():
                loops, body = nest(s)
                inner = [*axes]
                for var, hi in loops:
                    extent = self.scalar(hi)
                    if self.varies(axes, extent):
                        raise NoTiles("a range that depends on the index")
                    known = build.int_value(extent)
                    if known == 1:
                        self.values[var.name] = build.const(0, dtype_of(var.of))
                    else:
                        inner.append((var, extent if known is None else known))
                yield from self.block(body, inner, mask)
            case n.Eval():
                yield from self.call(s, axes, mask)
            case _:
                raise NoTiles(f"a statement of the kind {type(s).__name__.lower()}")

    def let(self, name: str, value: n.Expr, axes: Axes) -> Iterator[n.Stmt]:
        reads = seen(value).loads
        calls = [x for x in walk(value) if isinstance(x, n.Call)]
        if any(_has_effect(x) for x in calls):
            raise NoTiles("a result of a call with effects")
        if not reads and sum(1 for _ in walk(value)) <= SMALL:
            self.values[name] = value
            return
        own = [a for a in axes if a[0].name in names_in(value)]
        if not own:
            made = n.Var(name, value.type)
            yield n.Let((name,), value)
            self.values[name] = made
            return
        whole = tile(value, own)
        assert isinstance(whole.type, TileType)
        yield n.Let((name,), whole)
        self.values[name] = build.call("pick", n.Var(name, whole.type), *(v for v, _ in own))

    def store(self, s: n.Store, axes: Axes, mask: n.Expr | None) -> Iterator[n.Stmt]:
        at, value = self.region(s.at), self.scalar(s.value)
        if s.mask is not None:
            own = self.scalar(s.mask)
            mask = own if mask is None else build.logical_and(mask, own)
        if any(isinstance(i, n.Span) for i in at.index):
            raise NoTiles("a region in the body")
        if mask is not None:
            value = self.guard(value, mask)
        used = [a for a in axes if any(a[0].name in names_in(i) for i in at.index)]
        missing = [a for a in axes if a not in used]
        alone = next(((a, k) for a in axes for k in fixed(mask, a) if a in missing or len(used) > 1), None)
        if alone is not None and mask is not None:
            one = {alone[0][0].name: build.const(alone[1], dtype_of(alone[0][0].of))}
            yield from self.store(n.Store(substitute(at, one), substitute(value, one), None, s.clip, origin=s.origin),
                                  [a for a in axes if a is not alone[0]], substitute(mask, one))
            return
        changing = [a for a in missing if a[0].name in names_in(value) or (mask is not None and a[0].name in names_in(mask))]
        few = next((a for a in changing if isinstance(a[1], int) and a[1] <= FEW), None)
        if few is not None and at.buffer.name not in self.reducers:
            for k in range(few[1] if isinstance(few[1], int) else 0):
                one = {few[0].name: build.const(k, dtype_of(few[0].of))}
                here = None if mask is None else substitute(mask, one)
                if here == build.const(False, BOOL):
                    continue
                yield from self.store(n.Store(substitute(at, one), substitute(value, one), None, s.clip, origin=s.origin),
                                      [a for a in axes if a is not few], here)
            return
        if changing:
            value, made = self.summed(at, value, mask, used, changing)
            mask = None
            yield made
        yield self.written(at, value, mask, used, s.clip)

    def written(self, at: n.Region, value: n.Expr, mask: n.Expr | None, axes: Axes, clip: bool) -> n.Store:
        found = tile_region(at, axes) if axes else (at, [])
        if found is not None:
            place, order = found
            ordered = [axes[k] for k in order]
        else:
            ordered = list(axes)
            place = build.region(at.buffer, *(tile(i, axes, False) for i in at.index if isinstance(i, n.Expr)))
        whole = tile(value, ordered, False)
        for x in walk(whole) if axes and self.reads_others(value, at) else ():
            if isinstance(x, n.Load) and place != x.at and must_overlap(place, x.at, Facts()):
                raise NoTiles(f"'{at.buffer.name}' is written by one iteration and read by another")
        return n.Store(place, whole, None if mask is None else self.masked(mask, ordered), clip)

    def reads_others(self, value: n.Expr, at: n.Region) -> bool:
        """Whether what an iteration stores reads another element of the same memory."""
        return any(isinstance(x, n.Load) and x.at.buffer.name == at.buffer.name and x.at != at for x in walk(value))

    def masked(self, mask: n.Expr, axes: Axes) -> n.Expr | None:
        return None if isinstance(mask, n.Const) and mask.value else tile(mask, axes, False)

    def summed(self, at: n.Region, value: n.Expr, mask: n.Expr | None, used: Axes, over: Axes) -> tuple[n.Expr, n.Stmt]:
        """The value of an accumulation into a place that does not have all axes: the place combined with a reduction over the others."""
        if at.buffer.name not in self.reducers:
            raise NoTiles(f"'{at.buffer.name}' is written by several iterations")
        if not (isinstance(value, n.Binary) and value.op in COMBINING):
            raise NoTiles(f"'{at.buffer.name}' is changed by several iterations in an unusual way")
        here = n.Load(at)
        part = value.b if value.a == here else value.a if value.b == here else None
        if part is None or any(isinstance(x, n.Region) and x.buffer.name == at.buffer.name for x in walk(part)):
            raise NoTiles(f"'{at.buffer.name}' is changed by several iterations in an unusual way")
        dtype = dtype_of(part.type)
        if mask is not None:
            part = build.select(mask, part, _neutral(value.op, dtype))
        axes = [*used, *over]
        made = tile(part, axes)
        for k in reversed(range(len(used), len(axes))):
            made = build.call("reduce", made, axis=k, op=COMBINING[value.op])
        name = self.fresh("partial")
        var = n.Var(name, made.type)
        scalar: n.Expr = build.call("pick", var, *(v for v, _ in used)) if used else var
        return build.binary(value.op, here, scalar), n.Let((name,), made)

    def branch(self, s: n.If, axes: Axes, mask: n.Expr | None) -> Iterator[n.Stmt]:
        cond = self.scalar(s.cond) if mask is None else self.guard(self.scalar(s.cond), mask)
        if s.static or not self.varies(axes, cond):
            before = dict(self.values)
            then = tuple(self.block(s.then, axes, mask))
            self.values = dict(before)
            orelse = tuple(self.block(s.orelse, axes, mask))
            self.values = before
            if then or orelse:
                yield n.If(cond, then, orelse, s.static)
            return
        whole_store = _same_place(s)
        if whole_store is not None:
            at, value = whole_store
            yield from self.store(n.Store(at, self.chosen(value, None), None, at.buffer.space == "global", origin=s.origin), axes, mask)
            return
        if seen(cond).loads and (_stores(s.then) or _stores(s.orelse)):
            own = [a for a in axes if a[0].name in names_in(cond)]
            whole = tile(cond, own)
            name = self.fresh("holds")
            yield n.Let((name,), whole)
            cond = build.call("pick", n.Var(name, whole.type), *(v for v, _ in own))
        yield from self.block(s.then, axes, cond if mask is None else build.logical_and(mask, cond))
        other = build.invert(cond)
        yield from self.block(s.orelse, axes, other if mask is None else build.logical_and(mask, other))

    def chosen(self, e: n.Expr, where: n.Expr | None) -> n.Expr:
        """A number that ways through a branch write, each guarded by its conditions."""
        if isinstance(e, n.Select):
            own, other = (c if where is None else build.logical_and(where, c) for c in (e.cond, build.invert(e.cond)))
            return build.select(e.cond, self.chosen(e.a, own), self.chosen(e.b, other))
        return e if where is None else self.guard(e, where)

    def call(self, s: n.Eval, axes: Axes, mask: n.Expr | None) -> Iterator[n.Stmt]:
        c = s.call
        if c.fn in ("assume", "assertion"):
            cond = self.scalar(c.args[0])  # type: ignore[arg-type]  # an expression
            if mask is not None:
                cond = build.logical_or(build.invert(mask), self.guard(cond, mask))
            yield n.Eval(replace(c, args=(tile(cond, [a for a in axes if a[0].name in names_in(cond)], False),)))
            return
        if not (c.fn.startswith("atomic_") and isinstance(c.args[0], n.Region) and len(c.args) in (2, 3)):
            raise NoTiles(f"'{c.fn}' in the body")
        at, value = self.region(c.args[0]), self.scalar(c.args[1])  # type: ignore[arg-type]  # an expression
        if mask is not None:
            value = self.guard(value, mask)
        if len(c.args) == 3:
            mask = joined(mask, self.scalar(c.args[2]))  # type: ignore[arg-type]  # an expression
        if any(isinstance(i, n.Span) for i in at.index):
            raise NoTiles("a region in the body")
        used = [a for a in axes if any(a[0].name in names_in(i) for i in at.index)]
        if len(used) != len(axes):
            raise NoTiles(f"'{c.fn}' of one place by several iterations")
        found = tile_region(at, axes)
        ordered = [axes[k] for k in found[1]] if found is not None else list(axes)
        place = found[0] if found is not None else build.region(at.buffer, *(tile(i, axes, False) for i in at.index if isinstance(i, n.Expr)))
        args: list[n.Expr | n.Region] = [place, tile(value, ordered)]
        if mask is not None:
            args.append(tile(mask, ordered, False))
        yield n.Eval(replace(c, args=tuple(args)))

    # -------------------------------------------------------------------------------------------------------------- expressions
    def scalar(self, e: n.Expr) -> n.Expr:
        """An expression with the names of the body replaced by what they stand for."""
        made: n.Expr = substitute(e, self.values)
        if self.buffers:
            made = transform(made, self.leave, lambda x: not isinstance(x, n.Buffer))
        return made

    def region(self, at: n.Region) -> n.Region:
        made: n.Region = substitute(at, self.values)
        return transform(made, self.leave, lambda x: not isinstance(x, n.Buffer)) if self.buffers else made

    def leave(self, old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Region) and new.buffer.name in self.buffers:
            made, lead = self.buffers[new.buffer.name]
            return n.Region(made, (*lead, *new.index)) if new.buffer is not made else new
        return new

    def varies(self, axes: Axes, *parts: n.Expr) -> bool:
        """Whether an expression depends on an axis."""
        own = {v.name for v, _ in axes}
        return any(own & names_in(e) for e in parts)


def fixed(mask: n.Expr | None, axis: tuple[n.Var, int | n.Expr]) -> list[int]:
    """The one iteration of an axis in which a mask can hold, where a comparison with a number says so."""
    if isinstance(mask, n.Binary) and mask.op == "and":
        return fixed(mask.a, axis) + fixed(mask.b, axis)
    if not (isinstance(mask, n.Binary) and mask.op == "eq" and isinstance(axis[1], int)):
        return []
    number = build.int_value(mask.b) if mask.a == axis[0] else build.int_value(mask.a) if mask.b == axis[0] else None
    return [number] if number is not None and 0 <= number < axis[1] else []


def _same_place(s: n.If) -> tuple[n.Region, n.Expr] | None:
    """The place that every way through a branch writes once, and the number that it writes; None for another branch."""
    ways = []
    for block in (s.then, s.orelse):
        if len(block) != 1:
            return None
        inner = block[0]
        if isinstance(inner, n.Store) and inner.mask is None:
            ways.append((inner.at, inner.value))
        elif isinstance(inner, n.If) and not inner.static:
            found = _same_place(inner)
            if found is None:
                return None
            ways.append(found)
        else:
            return None
    (at, a), (other, b) = ways
    return (at, build.select(s.cond, a, b)) if at == other else None


def names_in(e: n.Node) -> frozenset[str]:
    """Names of the values that an expression reads."""
    return seen(e).names


def _neutral(op: str, dtype: DType) -> n.Expr:
    if op == "add":
        return build.cast(build.const(0), dtype) if dtype.is_symbolic else build.const(0 if dtype.is_integer else 0.0, dtype)
    if dtype.is_float:
        return build.const(float("-inf") if op == "max" else float("inf"), dtype)
    if dtype.is_integer:
        return build.const(dtype.range[0 if op == "max" else 1], dtype)
    raise NoTiles("a reduction of an unusual dtype")


def _stores(body: n.Block) -> bool:
    return any(isinstance(x, (n.Store, n.Copy, n.Eval)) for x in statements(body))


def _has_effect(c: n.Call) -> bool:
    row = table().get(c.fn)
    return row is None or not row.is_pure or row.level in ("warp", "warpgroup", "team")

