"""Unrolled loops over the elements of a thread's arrays as statements on vectors: elementwise loops, and folds in index order."""

from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import NotElementwise, tile
from kir.base.diagnostic import KirError
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, I64, TileType, dtype_of, shape_of
from kir.ir.visit import children, names_read, statements, substitute, transform, walk

FOLDS = {"add": "sum", "mul": "prod", "min": "min", "max": "max", "and": "and", "or": "or", "xor": "xor"}


MOST_ROUNDS, SOME_ROUNDS = 256, 32
"""A loop over more elements than this, so many at once, is one over a vector: the backend writes it so, for compilers take minutes over thousands."""


def vectorized(body: n.Block) -> n.Block:
    """The block with such loops as vector statements; idempotent."""
    out: list[n.Stmt] = []
    for s in body:
        match s:
            case n.For():
                s = replace(s, body=vectorized(s.body))
                made = elementwise(by_ones(s))
                if made is not None:
                    out.append(made)
                    continue
                folded = fold(s, out[-1]) if out else None
                if folded is not None:
                    out[-1] = folded
                    continue
            case n.While():
                s = replace(s, body=vectorized(s.body))
            case n.If():
                s = replace(s, then=vectorized(s.then), orelse=vectorized(s.orelse))
            case _:
                pass
        out.append(s)
    return scalars(tuple(out))


def by_ones(s: n.For) -> n.For:
    """An unrolled loop that counts by more than one, counting by one."""
    step, hi = build.int_value(s.step), build.int_value(s.hi)
    if s.kind != "unroll" or step is None or step < 2 or hi is None or hi % step or not build.is_const(s.lo, 0) or s.var.of != I32:
        return s
    body = tuple(substitute(x, {s.var.name: build.mul(s.var, step)}) for x in s.body)
    return replace(s, hi=build.const(hi // step), step=build.const(1), body=body)


def piecewise(body: n.Block) -> frozenset[str]:
    """Private arrays that unrolled loops load from memory, or store to it, element by element."""
    found: set[str] = set()
    for x in statements(body):
        store = inlined(x.body) if isinstance(x, n.For) and trips(x) is not None and x.body else None
        if store is None or not isinstance(store.value, n.Load) or shape_of(store.value.type):
            continue
        for here, there in ((store.at.buffer, store.value.at.buffer), (store.value.at.buffer, store.at.buffer)):
            if here.space == "register" and there.space in ("global", "shared"):
                found.add(here.name)
    return frozenset(found)


def trips(s: n.For) -> int | None:
    """The number of steps of a loop that is unrolled whole; None for others."""
    lo, hi = build.int_value(s.lo), build.int_value(s.hi)
    if s.kind != "unroll" or lo is None or hi is None or not build.is_const(s.step, 1) or hi <= lo:
        return None
    factor = dict(s.attrs).get("factor")
    return hi - lo if factor is None or (factor == SOME_ROUNDS and hi - lo > MOST_ROUNDS) else None


def inlined(body: n.Block) -> n.Store | None:
    """The store that a body of pure lets and one store comes to."""
    *lets, last = body
    if isinstance(last, n.If) and last.orelse:
        last = _either(last) or last
    if isinstance(last, n.If) and last.then and not last.orelse and not last.static and isinstance(inner := last.then[-1], n.Store):
        own = last.then[:-1]
        if any(isinstance(x, n.Load) and x.at.buffer.space not in ("register", "fragment") for s in own for x in walk(s)):
            return None
        lets += own
        last = replace(inner, mask=last.cond) if inner.mask is None else inner
    if not isinstance(last, n.Store) or last.clip or (last.mask is not None and shape_of(last.mask.type)):
        return None
    values: dict[str, n.Expr] = {}
    held: dict[str, n.Expr] = {}

    def read(_: n.Node, new: n.Node) -> n.Node:
        return held.get(new.at.buffer.name, new) if isinstance(new, n.Load) and not new.at.index else new

    def plain(e: n.Node) -> n.Node:
        made: n.Node = transform(substitute(e, values), read)
        return made

    for s in lets:
        value = s.value if isinstance(s, n.Let) and len(s.names) == 1 else s.init if isinstance(s, n.Alloc) and not s.buffer.shape else None
        if value is None or isinstance(value.type, TileType) or waits(value):
            return None
        made = plain(value)
        assert isinstance(made, n.Expr)
        if isinstance(s, n.Let):
            values[s.names[0]] = made
        elif isinstance(s, n.Alloc):
            held[s.buffer.name] = made
    if last.at.buffer.name in held:
        return None
    store = plain(last)
    assert isinstance(store, n.Store)
    return store


def _either(s: n.If) -> n.Store | None:
    """`if there: v[e] = x[..] else: v[e] = 0` as one store of a load under a mask."""
    if s.static or len(s.then) != 1 or len(s.orelse) != 1 or shape_of(s.cond.type):
        return None
    a, b = s.then[0], s.orelse[0]
    if not isinstance(a, n.Store) or not isinstance(b, n.Store) or a.at != b.at or a.at.buffer.space != "register" or not a.at.index:
        return None
    if any(x.mask is not None or x.clip for x in (a, b)) or not isinstance(a.value, n.Load) or not isinstance(b.value, n.Const):
        return None
    if a.value.mask is not None or a.value.clip or shape_of(a.value.type) or a.value.at.buffer.space not in ("global", "shared"):
        return None
    return replace(a, value=replace(a.value, mask=s.cond, other=b.value), label=a.label or s.label)


def waits(e: n.Expr) -> bool:
    """Whether evaluating it may have an effect, or is done by several lanes together."""
    return any(isinstance(x, n.Call) and (x.of is not None or x.fn not in table() or table()[x.fn].level != "element" or table()[x.fn].effect)
               for x in walk(e))  # fmt: skip


def elementwise(s: n.For) -> n.Store | None:
    """`for e: a[e] = f(e)` as `a = f`."""
    count = trips(s)
    if count is None or not build.is_const(s.lo, 0) or not s.body:
        return None
    store = inlined(s.body)
    if store is None or not store.at.index:
        return None
    store = _counted_apart(_counted_once(store, s.var, count), s.var)
    store, wholes = _whole(store, s.var, count)
    if waits(store.value):
        return None
    if store.mask is not None and (waits(store.mask) or store.at.buffer.space == "register"):
        return None
    constant = _constant_fill(s, store, count) if store.mask is None and not store.cache else None
    if constant is not None:
        return constant
    if isinstance(store.at.index[-1], n.Span):
        return _pieces(s, store, count) if store.mask is None and not store.cache else None
    if isinstance(store.value.type, TileType):
        return None
    *outer, last = store.at.index
    if isinstance(last, n.Span) or any(isinstance(i, n.Span) or uses(i, s.var) for i in outer):
        return None
    lo = build.sub(last, build.cast(s.var, dtype_of(last.type)))
    if uses(lo, s.var):
        return None
    for x in (*walk(store.value), *(walk(store.mask) if store.mask is not None else ())):
        if isinstance(x, n.Load) and x.at.buffer.name == store.at.buffer.name and x.at != store.at:
            return None
        if isinstance(x, n.Load) and x.clip and uses(x, s.var):
            return None
    try:
        value = tile(store.value, [(s.var, count)])
        mask = None if store.mask is None else tile(store.mask, [(s.var, count)], keep_shape=False)
    except (NotElementwise, KirError):
        return None
    if uses(value, s.var) or gathers(value) or shape_of(value.type) not in ((), (count,)):
        return None
    at = build.region(store.at.buffer, *outer, build.span(lo, count))
    if isinstance(store.value, n.Const):
        value = store.value
    elif not isinstance(value.type, TileType):
        value = build.broadcast(value, at.type)
    if mask is not None and (uses(mask, s.var) or gathers(mask)):
        return None
    return n.Store(at, _in_place(value, wholes), mask, cache=store.cache, label=s.label or store.label, origin=s.origin)


def _counted_once(store: n.Store, var: n.Var, count: int) -> n.Store:
    """A store whose places name a loop's counter, converted several times, converted once: all its values are small, and none is negative."""
    def leave(_: n.Node, e: n.Node) -> n.Node:
        x = e.x if isinstance(e, n.Cast) and e.dtype.is_integer and not e.dtype.is_symbolic and isinstance(e.x, n.Cast) else None
        if x is None or x.x != var or not x.dtype.is_integer or x.dtype.is_symbolic or count > 1 << x.dtype.bits - 1 or not isinstance(e, n.Cast):
            return e
        return build.cast(var, e.dtype)
    made: n.Store = transform(store, leave)
    return made


def _counted_apart(store: n.Store, var: n.Var) -> n.Store:
    """A store whose places in memory add a loop's counter outside the sum of 32 bits that named it: C++'s signed sums do not overflow."""
    def leave(_: n.Node, e: n.Node) -> n.Node:
        if not isinstance(e, n.Cast) or e.dtype != I64 or e.rounding != "rn" or e.x.type != I32 or isinstance(e.x, n.Var) or not uses(e.x, var):
            return e
        parts = build.polynomial(e.x)
        own = {m: c for m, c in parts.items() if any(uses(x, var) for x in m)}
        if list(own) != [(var,)]:
            return e
        rest = build.sub(e.x, build.mul(var, own[var,]))
        return e if uses(rest, var) else build.add(build.cast(rest, I64), build.mul(build.cast(var, I64), own[var,]))

    def placed(_: n.Node, r: n.Node) -> n.Node:
        return replace(r, index=tuple(transform(i, leave) for i in r.index)) if isinstance(r, n.Region) and r.buffer.space == "global" else r
    made: n.Store = transform(store, placed)
    return made


def _whole(store: n.Store, var: n.Var, count: int) -> tuple[n.Store, dict[str, n.Expr]]:
    """A store with elements of stand-ins for each `pick(unpack(x), var)` in its value, of which the loop takes all elements; and what they stand for."""
    wholes: dict[str, n.Expr] = {}

    def leave(_: n.Node, e: n.Node) -> n.Node:
        held = e.args[0] if isinstance(e, n.Call) and e.of is None and e.fn == "pick" and len(e.args) == 2 and e.args[1] == var else None
        if not (isinstance(held, n.Call) and held.fn == "unpack" and shape_of(held.type) == (count,)) or uses(held, var):
            return e
        b = n.Buffer(next((k for k, v in wholes.items() if v == held), f"%whole{len(wholes)}"), dtype_of(held.type), (build.const(count),), "register")
        wholes[b.name] = held
        return n.Load(build.region(b, var))
    return replace(store, value=transform(store.value, leave)), wholes


def _in_place(e: n.Expr, wholes: dict[str, n.Expr]) -> n.Expr:
    """A vector, what stand-ins stand for put in."""
    made: n.Expr = transform(e, lambda _, x: wholes.get(x.at.buffer.name, x) if isinstance(x, n.Load) else x) if wholes else e
    return made


def _pieces(s: n.For, store: n.Store, count: int) -> n.Store | None:
    """`for e: a[c * e +: c] = f(b[c * e +: c])` as one statement on all of it."""
    failed = False
    size = store.at.index[-1].extent if isinstance(store.at.index[-1], n.Span) else None
    if not isinstance(size, int):
        return None

    def longer(r: n.Region) -> n.Region | None:
        *outer, last = r.index or (n.Const(0, I32),)
        if not isinstance(last, n.Span) or last.extent != size or last.step != 1 or any(isinstance(i, n.Span) or uses(i, s.var) for i in outer):
            return None
        lo = build.sub(last.lo, build.mul(build.cast(s.var, dtype_of(last.lo.type)), size))
        return None if uses(lo, s.var) else build.region(r.buffer, *outer, build.span(lo, size * count))

    at = longer(store.at)
    if at is None or any(isinstance(x, n.Load) and x.at.buffer == store.at.buffer and x.at != store.at for x in walk(store.value)):
        return None

    def leave(old: n.Node, new: n.Node) -> n.Node:
        nonlocal failed
        match new:
            case n.Load() if shape_of(new.at.type):
                made = longer(new.at)
                if made is None or new.mask is not None or new.clip:
                    failed = True
                    return new
                return replace(new, at=made)
            case n.Call() if new.fn == "broadcast" and new.of is None and isinstance(new.args[0], n.Expr) and not shape_of(new.args[0].type):
                return build.call("broadcast", new.args[0], build.const(size * count))
            case n.Call() if new.of is None and shape_of(new.type):
                failed = True
            case n.Var() if shape_of(new.of) or new.name == s.var.name:
                failed = True
        return new

    def enter(e: n.Node) -> bool:
        return not isinstance(e, (n.Buffer, n.Region))

    try:
        value = transform(store.value, leave, enter)
    except KirError:  # parts of other lengths
        return None
    if failed or shape_of(value.type) not in ((), (size * count,)):
        return None
    return n.Store(at, value, label=s.label or store.label, origin=s.origin)


def _constant_fill(s: n.For, store: n.Store, count: int) -> n.Store | None:
    """`for e: a[.., e, ..] = 0`."""
    if not isinstance(store.value, n.Const) or s.var.of != I32:
        return None
    at = [k for k, i in enumerate(store.at.index) if uses(i, s.var)]
    if len(at) != 1 or store.at.index[at[0]] != s.var:
        return None
    index = list(store.at.index)
    index[at[0]] = build.span(0, count)
    return n.Store(build.region(store.at.buffer, *index), store.value, label=s.label or store.label, origin=s.origin)


def gathers(e: n.Expr) -> bool:
    """Whether a value is read at indices that are tiles, or is made of the indices themselves (but for what they are compared with)."""
    return any(isinstance(x, n.Region) and any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in x.index) for x in walk(e)) or _counts(e)


def _counts(e: n.Node) -> bool:
    """Whether a value has its element's index in it, outside comparisons."""
    if isinstance(e, n.Call) and e.fn in ("iota", "pick"):
        return True
    if isinstance(e, n.Binary) and e.op in n.COMPARISONS and dtype_of(e.a.type).is_integer:
        return any(isinstance(x, n.Call) and x.fn == "pick" for x in walk(e))
    return any(_counts(x) for x in children(e))


def fold(s: n.For, before: n.Stmt) -> n.Store | n.Alloc | None:
    """`r = f(0); for e in 1..n: r = r + f(e)` as `r = reduce(f)`."""
    if isinstance(before, n.Alloc) and before.init is not None and not before.buffer.shape:
        made = fold(s, n.Store(n.Region(before.buffer), before.init))
        return replace(before, init=made.value) if isinstance(made, n.Store) else None
    count = trips(s)
    if count is None or not build.is_const(s.lo, 1) or len(s.body) != 1 or not isinstance(before, n.Store) or before.mask is not None:
        return None
    step = s.body[0]
    if not isinstance(step, n.Store) or step.at != before.at or step.mask is not None or _uses_region(step.at, s.var):
        return None
    value = step.value
    if not isinstance(value, n.Binary) or value.op not in FOLDS:
        return None
    own = n.Load(step.at)
    x = value.b if value.a == own else value.a if value.b == own else None
    if x is None or isinstance(x.type, TileType) or substitute(x, {s.var.name: build.const(0)}) != before.value:
        return None
    if any(isinstance(y, n.Load) and y.at.buffer == step.at.buffer for y in walk(x)):
        return None
    try:
        every = tile(x, [(s.var, count + 1)])
    except (NotElementwise, KirError):
        return None
    if shape_of(every.type) != (count + 1,) or uses(every, s.var) or gathers(every):
        return None
    return replace(before, value=build.call("reduce", every, axis=0, op=FOLDS[value.op]))


def uses(e: n.Node, v: n.Var) -> bool:
    """Whether a variable occurs in it."""
    return v.name in names_read(e)


def _uses_region(r: n.Region, v: n.Var) -> bool:
    return any(uses(i, v) for i in r.index)


def scalars(body: n.Block) -> n.Block:
    """Private arrays of one element that only their element 0 is read and written of, as scalars."""
    chosen = {}
    for s in body:
        if not isinstance(s, n.Alloc) or s.buffer.space not in ("register", "shared"):
            continue
        single = len(s.buffer.shape) == 1 and build.is_const(s.buffer.shape[0], 1)
        if single and all(_element(x) for t in body for x in _regions(t, s.buffer.name)):
            chosen[s.buffer.name] = replace(s.buffer, shape=())
    if not chosen:
        return body

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Region) and new.buffer.name in chosen:
            return n.Region(chosen[new.buffer.name])
        return new

    out: list[n.Stmt] = []
    for s in body:
        if isinstance(s, n.Alloc) and s.buffer.name in chosen:
            out.append(replace(s, buffer=chosen[s.buffer.name], init=None if s.init is None else _only(s.init)))
        else:
            out.append(transform(s, leave, lambda e: not isinstance(e, n.Buffer)))
    return tuple(out)


def _only(e: n.Expr) -> n.Expr:
    """The number that a vector of one is; a number as it is."""
    if not isinstance(e.type, TileType):
        return e
    if isinstance(e, n.Call) and e.of is None and e.fn in ("vec", "broadcast") and isinstance(e.args[0], n.Expr) and not isinstance(e.args[0].type, TileType):
        return e.args[0]
    if isinstance(e, n.Load) and not e.at.index and e.mask is None:
        return replace(e, at=build.region(e.at.buffer, build.const(0)))
    return build.call("pick", e, build.const(0))


def _regions(x: n.Node, name: str) -> list[n.Region]:
    found = [x] if isinstance(x, n.Region) and x.buffer.name == name else []
    for c in children(x):
        found += _regions(c, name)
    return found


def _element(r: n.Region) -> bool:
    return len(r.index) == 1 and isinstance(r.index[0], n.Expr) and build.is_const(r.index[0], 0)
