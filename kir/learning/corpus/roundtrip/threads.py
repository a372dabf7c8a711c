"""The form that two spellings of one thread's program share: what a language must name, and another need not, has no name of its own here.

Every step keeps what the program computes: an array that is filled where it is declared and never written again is a value; a loop of one turn is its body; a
copy between places that are read and written as they stand is a load and a store.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from kir.analysis.elements import NotElementwise, tile
from kir.base.diagnostic import KirError
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.rebuild.padded_rows import with_padding
from kir.ir.rebuild.promote import pure, without_snapshots
from kir.ir.types import I32, DType, TileType, dtype_of, shape_of
from kir.ir.visit import substitute, transform, walk
from kir.learning.corpus.roundtrip.branches import branched, inside, number
from kir.learning.corpus.roundtrip.equal import same_program, settled
from kir.learning.corpus.roundtrip.masked_rows import by_elements
from kir.learning.corpus.roundtrip.numbers import of_value
from kir.learning.corpus.roundtrip.places import as_bits, as_long, of_place, renewed, within_rows, without_idle
from kir.learning.corpus.roundtrip.traces import same_trace

SMALL = 16
"""Parts, beside the load, of a value that is worked out of one, however often it is used."""
LOCAL = frozenset({"pick", "iota", "vec", "broadcast"})
"""Calls that rearrange a thread's own numbers."""
WRITTEN = 16
"""Bytes at a multiple of which each array of shared memory that the backend writes begins, be less asked of it or not."""


def same_thread(a: n.Program, b: n.Program) -> bool:
    """Whether two programs of threads are one, up to what a language must name and another need not; the second may have zeros where the first says nothing."""
    b = _aligned_as(a, b)
    forms = [partial(thread_form, further=further) for further in (False, True)]
    return any(_traced_in(form, a, b) for form in (plain_form, *forms)) or any(_same_in(form, a, b) for form in forms)


def plain_form(p: n.Program) -> n.Program:
    """The program with its places and numbers alone in the form that spellings share."""
    return replace(p, kernels=tuple(replace(k, body=_numbers(_small(within_rows(tuple(transform(s, of_place) for s in k.body))))) for k in p.kernels))


def _traced_in(form: Callable[[n.Program], n.Program], a: n.Program, b: n.Program) -> bool:
    try:
        other = form(b)
        return same_trace(form(a), other) or same_trace(form(filled(a)), other)
    except KirError:
        return False


def _aligned_as(a: n.Program, b: n.Program) -> n.Program:
    """The second program with shared arrays that begin at multiples of what those of the first, in their order, do, where it promises more."""
    first, second = ([x.buffer for k in p.kernels for s in k.body for x in walk(s) if isinstance(x, n.Alloc) and x.buffer.space == "shared"] for p in (a, b))
    if len(first) != len(second) or any(max(y.align, WRITTEN) < x.align for x, y in zip(first, second, strict=True)):
        return b
    held = {y: replace(y, align=x.align) for x, y in zip(first, second, strict=True) if x.align != y.align}
    made: n.Program = transform(b, lambda _, x: held.get(x, x) if isinstance(x, n.Buffer) else x) if held else b
    return made


def _same_in(form: Callable[[n.Program], n.Program], a: n.Program, b: n.Program) -> bool:
    try:
        one, filled_in, other = form(a), form(filled(a)), form(b)
    except KirError:
        return False  # it has no such form
    # A value that is named once stands where it is used only when names are settled; conversions that then meet are one.
    return same_program(one, other) or same_program(filled_in, other) or same_program(form(settled(filled_in)), form(settled(other)))


def thread_form(p: n.Program, further: bool = True) -> n.Program:
    """The program in that form; `further`, also with numbers in views as those of what they show, and with values where one statement alone uses them.
    Programs that are one in either are one."""
    return replace(p, kernels=tuple(replace(k, body=_of_thread(k.body, further)) for k in p.kernels))


def _of_thread(body: n.Block, further: bool) -> n.Block:
    named = as_bits(as_long(within_rows(tuple(transform(s, of_place) for s in without_idle(body)))))
    begun = _loaded(_numbers(_single(_rows(_small(by_elements(_bytes(named)) if further else named)))))
    made = _valued(branched(_joined_up(_numbers(without_snapshots(_at_once(begun) if further else begun)))))
    return _numbers(_loaded(_at_once(_loaded(_numbers(without_snapshots(_valued(made)))), values=True))) if further else made


def _small(body: n.Block) -> n.Block:
    """The block with quotients and remainders of a thread's number by no less than there are threads as what they are."""
    out: list[n.Stmt] = []
    for s in body:
        s = inside(s, _small)
        count = int_value(s.hi) if isinstance(s, n.For) and s.kind == "thread" and build.is_const(s.lo, 0) else None
        if isinstance(s, n.For) and count is not None:
            s = replace(s, body=tuple(transform(t, partial(_quotient, s.var, count)) for t in s.body))
        out.append(s)
    return tuple(out)


def _quotient(var: n.Var, count: int, old: n.Node, new: n.Node) -> n.Node:
    by = int_value(new.b) if isinstance(new, n.Binary) and new.op in ("floordiv", "mod") and new.a == var else None
    if by is None or by < count:
        return new
    return build.const(0, dtype_of(var.type)) if isinstance(new, n.Binary) and new.op == "floordiv" else var


def _bytes(body: n.Block) -> n.Block:
    """The block with numbers that a view shows in an array of narrower ones as those, where each use of the view is a number, or a row of them that is
    stored."""
    for v in [s for s in body if isinstance(s, n.View) and s.at.buffer.space in ("shared", "register", "global")]:
        pool, many = v.at.buffer, v.buffer.dtype.bytes // max(1, v.at.buffer.dtype.bytes)
        first = v.at.index[0] if len(v.at.index) == 1 else build.const(0)
        lo = first.lo if isinstance(first, n.Span) else first
        uses = sum(isinstance(x, n.Region) and x.buffer == v.buffer for s in body for x in walk(s))
        plain = sum(_plain_use(x, v.buffer) for s in body for x in walk(s))
        if many < 2 or len(pool.shape) != 1 or len(v.buffer.shape) != 1 or uses != plain or isinstance(lo.type, TileType) or pool.dtype.is_bool:
            continue
        body = tuple(transform(s, partial(_through_view, v.buffer, pool, lo, many)) for s in body if s is not v)
    return body


def _plain_use(x: n.Node, b: n.Buffer) -> bool:
    """Whether a node loads or stores one number of a buffer, or stores a row of them that a private array holds."""
    if not isinstance(x, (n.Load, n.Store)) or x.at.buffer != b or x.clip or x.mask is not None or len(x.at.index) != 1 or (isinstance(x, n.Load) and x.cache):
        return False
    at = x.at.index[0]
    if isinstance(at, n.Span):
        held = x.value if isinstance(x, n.Store) else None
        whole = isinstance(held, n.Load) and held == n.Load(n.Region(held.at.buffer)) and len(held.at.buffer.shape) == 1
        return at.step == 1 and isinstance(at.extent, int) and at.extent <= 16 and whole
    return not isinstance(at.type, TileType)


def _through_view(b: n.Buffer, pool: n.Buffer, lo: n.Expr, many: int, old: n.Node, new: n.Node) -> n.Node:
    """A use of a view as one of what it shows."""
    if not isinstance(new, (n.Load, n.Store)) or new.at.buffer != b:
        return new
    at = new.at.index[0]

    def place(i: n.Expr) -> n.Region:
        return n.Region(pool, (n.Span(build.add(build.cast(lo, dtype_of(i.type)), build.mul(i, many)), many),))
    if isinstance(new, n.Load):
        assert isinstance(at, n.Expr)
        return build.call("pack", n.Load(place(at)), dtype=b.dtype.name)
    if isinstance(at, n.Expr):
        return replace(new, at=place(at), value=build.call("unpack", new.value, dtype=pool.dtype.name))
    assert isinstance(new.value, n.Load) and isinstance(at.extent, int)
    e = n.Var(f"%part{id(old)}", I32)
    held = n.Load(n.Region(new.value.at.buffer, (e,)))
    each = replace(new, at=place(build.add(at.lo, build.cast(e, dtype_of(at.lo.type)))), value=build.call("unpack", held, dtype=pool.dtype.name))
    return n.For(e, build.const(0), build.const(at.extent), build.const(1), (each,), "unroll")


def _rows(body: n.Block) -> n.Block:
    """The block with shared arrays as long as they are in memory, be all of their rows used or not; the only place of an axis of one is 0."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Region) and new.buffer.space in ("register", "shared") and len(new.index) > 1:
            index = (build.const(0) if build.is_const(d, 1) and isinstance(i, n.Expr) and not isinstance(i.type, TileType) else i
                     for i, d in zip(new.index, new.buffer.shape, strict=True))
            return replace(new, index=tuple(index))
        if not isinstance(new, n.Buffer) or new.space != "shared" or (shape := with_padding(new)) == tuple(int_value(d) for d in new.shape):
            return new
        return replace(new, shape=tuple(build.const(d) for d in shape), strides=None, layout=None)
    return tuple(transform(s, leave) for s in body)


def filled(p: n.Program) -> n.Program:
    """The program with zeros where a load that a mask leaves out says nothing."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.mask is not None and new.other is None:
            return replace(new, other=build.const(0, dtype_of(new.type)))
        return new
    made: n.Program = transform(p, leave)
    return made


def _single(body: n.Block) -> n.Block:
    """The block with private arrays of one number as that number, where each use names an element."""
    ones = {x.buffer for s in body for x in walk(s) if isinstance(x, n.Alloc) and x.buffer.space == "register" and [*map(int_value, x.buffer.shape)] == [1]}
    for s in body:
        for x in walk(s):
            if isinstance(x, n.Region) and (not x.index or not isinstance(x.index[0], n.Expr) or isinstance(x.index[0].type, TileType)):
                ones.discard(x.buffer)
            if isinstance(x, n.Alloc) and x.init is not None and isinstance(x.init.type, TileType):
                ones.discard(x.buffer)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Region) and new.buffer in ones:
            return n.Region(replace(new.buffer, shape=()))
        return replace(new, buffer=replace(new.buffer, shape=())) if isinstance(new, n.Alloc) and new.buffer in ones else new
    return tuple(transform(s, leave, lambda e: not isinstance(e, n.Buffer)) for s in body) if ones else body


def _loaded(body: n.Block) -> n.Block:
    """The block with values named as they are loaded: integers are narrowed, and what is used once is computed, where they are used."""
    out: list[n.Stmt] = []
    rest = list(body)
    while rest:
        s = inside(rest.pop(0), _loaded)
        x = s.value.x if isinstance(s, n.Let) and isinstance(s.value, n.Cast) and s.value.rounding == "rn" else None
        if isinstance(s, n.Let) and isinstance(s.value, n.Cast) and isinstance(x, n.Load) and dtype_of(x.type).is_integer and s.value.dtype.is_integer and (
                s.value.dtype.bits < dtype_of(x.type).bits):
            (name,) = s.names
            rest = [substitute(t, {name: replace(s.value, x=n.Var(name, x.type))}) for t in rest]
            s = replace(s, value=x)
        elif isinstance(s, n.Let) and len(s.names) == 1 and (_constant(s.value) or _cheap(s.value)):
            rest = [substitute(t, {s.names[0]: s.value}) for t in rest]
            continue
        elif isinstance(s, n.Let) and len(s.names) == 1 and isinstance(v := s.value, n.Call) and v.of is None and v.fn == "broadcast" and (
                isinstance(one := v.args[0], n.Expr) and not shape_of(one.type)):
            rest = [substitute(t, {s.names[0]: replace(v, args=(n.Var(s.names[0], one.type), *v.args[1:]))}) for t in rest]
            s = replace(s, value=one)
        elif isinstance(s, n.Let) and len(s.names) == 1 and (alone := _of_one_load(s.value)) is not None and (
                _times(s.names[0], rest) == 1 or sum(1 for _ in walk(s.value)) - sum(1 for _ in walk(alone)) <= SMALL):
            (name,) = s.names
            used: n.Expr = transform(s.value, partial(_renamed, alone, n.Var(name, alone.type)))
            rest = [substitute(t, {name: used}) for t in rest]
            s = replace(s, value=alone)
        out.append(s)
    return tuple(out)


def _at_once(body: n.Block, values: bool = False) -> n.Block:
    """The block with loads that only the next statement uses, which evaluates all of its parts before it writes, where they are used;
    with `values` so any value that it uses once."""
    out: list[n.Stmt] = []
    for s in reversed(body):
        s = inside(s, partial(_at_once, values=values))
        at = next((k for k in reversed(range(len(out))) if not (isinstance(x := out[k], n.Alloc) and x.init is None)), None)
        if isinstance(s, n.Let) and len(s.names) == 1 and at is not None and (user := _first_of(out[at])) is not None:
            times = _times(s.names[0], [user])
            if times and times == _times(s.names[0], out) and (isinstance(s.value, n.Load) or (
                    values and times == 1 and pure(s.value) and (_own(s.value) or user is out[at]))):  # lanes that meet do so before the branch
                out[at] = substitute(out[at], {s.names[0]: s.value})
                continue
        out.append(s)
    return tuple(reversed(out))


def _first_of(s: n.Stmt) -> n.Stmt | None:
    """The statement that is carried out first: of a branch the first of its first arm, where that is a plain one; None where it is no plain one."""
    s = s.then[0] if isinstance(s, n.If) and s.then else s
    return s if isinstance(s, (n.Store, n.Let)) else None


def _cheap(e: n.Expr) -> bool:
    """Whether a value is worked out anew wherever it is used: a few steps, of numbers that are named."""
    parts = list(walk(e))
    return len(parts) <= SMALL and pure(e) and all(isinstance(x, (n.Var, n.Const, n.Unary, n.Binary, n.Cast, n.Select, n.Call)) and not (
        isinstance(x, n.Call) and (x.of is not None or (x.fn not in LOCAL and table()[x.fn].level != "element"))) for x in parts)


def _constant(e: n.Expr) -> bool:
    """Whether a value is a number that is written out, or several that are all that number."""
    return isinstance(e, n.Const) or (isinstance(e, n.Call) and e.fn == "broadcast" and e.of is None and isinstance(e.args[0], n.Const))


def _renamed(load: n.Load, name: n.Var, old: n.Node, new: n.Node) -> n.Node:
    return name if new == load else new


def _of_one_load(e: n.Expr) -> n.Load | None:
    """The load that a value is computed from, where that is the only thing in memory that it reads."""
    found = [x for x in walk(e) if isinstance(x, n.Load)]
    own = all(x.of is None and (x.fn in ("pack", "unpack") or table()[x.fn].level == "element") for x in walk(e) if isinstance(x, n.Call))
    return found[0] if len(found) == 1 and found[0] != e and own and pure(e) else None


def _times(name: str, body: Sequence[n.Stmt]) -> int:
    return sum(isinstance(x, n.Var) and x.name == name for s in body for x in walk(s))


def _numbers(body: n.Block) -> n.Block:
    """The block with its values in the form that spellings of one value share."""
    return tuple(transform(s, of_value) for s in body)


def _joined_up(body: n.Block) -> n.Block:
    """The block without loops of one turn, and with copies whole."""
    out: list[n.Stmt] = []
    rest = list(body)
    while rest:
        s = rest.pop(0)
        if isinstance(s, n.If) and isinstance(s.cond, n.Const):
            rest = [*(s.then if s.cond.value else s.orelse), *rest]
            continue
        if (once := _once(s)) is not None:
            rest = [*once, *rest]
            continue
        s = inside(_stored(s) if isinstance(s, n.Copy) else s, _joined_up)
        if isinstance(s, n.Store) and isinstance(s.value, n.Load) and s.at == s.value.at and s.at.buffer.space == "register" and s.value == n.Load(s.at):
            continue  # what stands there already
        whole = _whole(s) or _elementwise(s) if isinstance(s, n.For) else None
        out.append(s if whole is None else whole)
    return tuple(out)


def _valued(body: n.Block) -> n.Block:
    """The block with arrays that are filled once as values."""
    out: list[n.Stmt] = []
    rest = list(body)
    while rest:
        s = rest.pop(0)
        if isinstance(s, n.Alloc) and s.buffer.space == "register":
            rest = renewed(s.buffer, rest)
        if isinstance(s, n.Alloc) and s.init is None and (at := _first_fill(s.buffer, rest)) is not None:
            store = rest[at]
            assert isinstance(store, n.Store)
            if (seen := _filled(replace(s, init=store.value), rest[at + 1:])) is not None:
                rest = [*rest[:at], seen[0], *seen[1]]
                continue
        if isinstance(s, n.Alloc) and s.init is None and (chosen := _chosen(s.buffer, rest)) is not None:
            at, value = chosen
            rest = [*rest[:at], replace(s, init=value), *rest[at + 1:]]
            continue
        if isinstance(s, n.Alloc) and s.init is None and (each := _each_set(s.buffer, rest)) is not None:
            rest = [*each[0], replace(s, init=each[1]), *each[2]]
            continue
        if isinstance(s, n.Alloc) and (seen := _filled(s, rest)) is not None:
            s, rest = seen
        out.append(inside(s, _valued))
    return tuple(out)


def _chosen(b: n.Buffer, rest: Sequence[n.Stmt]) -> tuple[int, n.Expr] | None:
    """Where a variable is first named, if a branch gives it one of two values there, and that choice: what is read from memory, under its condition."""
    at = next((k for k, s in enumerate(rest) if _mentions(s, b)), None) if b.space == "register" and not b.shape else None
    s = rest[at] if at is not None else None
    if not isinstance(s, n.If) or _mentions(s.cond, b) or isinstance(s.cond.type, TileType):
        return None
    values: list[n.Expr] = []
    for arm in (s.then, s.orelse):
        *named, x = (*arm, None)[:len(arm)] or (None,)
        for let in reversed(named):
            if not isinstance(let, n.Let) or len(let.names) != 1 or x is None:
                return None
            x = substitute(x, {let.names[0]: let.value})
        if not isinstance(x, n.Store) or x.at.buffer != b or x.mask is not None or _mentions(x.value, b) or not pure(x.value):
            return None
        values.append(transform(x.value, partial(_masked_by, s.cond if arm is s.then else build.invert(s.cond))))
    assert at is not None
    return at, build.select(s.cond, *values)


def _masked_by(cond: n.Expr, old: n.Node, new: n.Node) -> n.Node:
    if isinstance(new, n.Load) and new.at.buffer.space in ("global", "shared") and not new.clip and (new.mask is None or new.mask.type == cond.type):
        other = build.const(0, dtype_of(new.type)) if new.other is None else new.other
        return replace(new, mask=cond if new.mask is None else build.logical_and(cond, new.mask), other=other)
    return new


def _each_set(b: n.Buffer, rest: Sequence[n.Stmt]) -> tuple[list[n.Stmt], n.Expr, list[n.Stmt]] | None:
    """An array whose elements are set one after another before anything else names it: the statements up to there without those, what it then holds, and
    the statements after."""
    count = int_value(b.shape[0]) if b.space == "register" and len(b.shape) == 1 else None
    at = next((k for k, s in enumerate(rest) if _mentions(s, b)), None)
    if count is None or at is None or not 1 <= count <= 16:
        return None
    before, values = list(rest[:at]), list[n.Expr]()
    for k, s in enumerate(rest[at:], at + 1):
        if isinstance(s, n.Let) and not _mentions(s, b) and pure(s.value):
            before.append(s)
            continue
        whole = isinstance(s, n.Store) and s.mask is None and not s.clip and s.at.buffer == b and len(s.at.index) == 1
        if not whole or not isinstance(s, n.Store) or _mentions(s.value, b):
            return None
        i = s.at.index[0]
        first, many = (i.lo, i.extent if i.step == 1 else None) if isinstance(i, n.Span) else (i, 1)
        parts = _parts(s.value, many) if isinstance(many, int) else None
        if not build.is_const(first, len(values)) or parts is None:
            return None
        values += parts
        if len(values) == count:
            return before, build.call("vec", *values), list(rest[k:])
    return None


def _parts(e: n.Expr, count: int) -> list[n.Expr] | None:
    """The elements of a value that fills so many places, where they can be named."""
    if not isinstance(e.type, TileType):
        return [e] * count
    if not isinstance(e, n.Call) or e.fn != "pick" or e.of is not None or len(e.args) != 2 or shape_of(e.type) != (count,):
        return None
    held, places = e.args
    places, first = (places.a, places.b) if isinstance(places, n.Binary) and places.op == "add" else (places, build.const(0))
    if not isinstance(places, n.Call) or places.fn != "iota" or int_value(first) is None or not isinstance(held, n.Expr):
        return None
    return [build.call("pick", held, build.const((int_value(first) or 0) + k)) for k in range(count)]


def _mentions(x: n.Node, b: n.Buffer) -> bool:
    return any(isinstance(r, n.Region) and r.buffer == b for r in walk(x))


def _first_fill(b: n.Buffer, rest: Sequence[n.Stmt]) -> int | None:
    """Where an array is first named, if all of it is written there."""
    if b.space != "register" or len(b.shape) != 1:
        return None
    at = next((k for k, s in enumerate(rest) if any(isinstance(x, n.Region) and x.buffer == b for x in walk(s))), None)
    s = rest[at] if at is not None else None
    if not isinstance(s, n.Store) or s.mask is not None or s.clip or s.at.buffer != b or not isinstance(s.value.type, TileType):
        return None
    count = int_value(b.shape[0])
    whole = not s.at.index or (isinstance(s.at.index[0], n.Span) and int_value(s.at.index[0].lo) == 0 and s.at.index[0].extent == count)
    return at if whole and not any(isinstance(x, n.Region) and x.buffer == b for x in walk(s.value)) else None


def _once(s: n.Stmt) -> n.Block | None:
    """The body of a loop of one turn."""
    if not isinstance(s, n.For) or s.kind not in ("serial", "unroll"):
        return None
    lo, hi, step = (int_value(x) for x in (s.lo, s.hi, s.step))
    if lo is None or hi is None or step is None or not lo < hi <= lo + step or any(isinstance(x, n.Jump) for b in s.body for x in walk(b)):
        return None
    return tuple(substitute(b, {s.var.name: s.lo}) for b in s.body)


def _whole(s: n.For) -> n.Store | None:
    """An unrolled loop that copies neighboring pieces as one copy: `for v in 0..2 unroll: a[v * 4 +: 4] = b[v * 4 +: 4]`."""
    turns = int_value(s.hi)
    if s.kind != "unroll" or s.attrs or turns is None or not build.is_const(s.lo, 0) or not build.is_const(s.step, 1) or len(s.body) != 1:
        return None
    store = _stored(s.body[0]) if isinstance(s.body[0], n.Copy) else s.body[0]
    if not isinstance(store, n.Store) or not isinstance(store.value, n.Load) or store.clip or store.value.clip or store.at.buffer == store.value.at.buffer:
        return None
    masks = [x for x in (store.mask, store.value.mask, store.value.other) if x is not None]
    if any(_names(x, s.var) or isinstance(x.type, TileType) for x in masks):
        return None
    to, of = _joined(store.at, s.var, turns), _joined(store.value.at, s.var, turns)
    if to is None or of is None:
        return None
    return n.Store(to, replace(store.value, at=of), store.mask, cache=store.cache, origin=s.origin)


def _elementwise(s: n.For) -> n.Store | None:
    """An unrolled loop that computes each element of a thread's array as one statement on the array: `for e in 0..n unroll: a[e] = f(e)`."""
    turns = int_value(s.hi)
    if s.kind != "unroll" or s.attrs or turns is None or not build.is_const(s.lo, 0) or not build.is_const(s.step, 1) or not s.body:
        return None
    *lets, store = s.body
    for let in reversed(lets):
        if not isinstance(let, n.Let) or len(let.names) != 1 or not _own(let.value) or not pure(let.value):
            return None
        store = substitute(store, {let.names[0]: let.value})
    if not isinstance(store, n.Store) or store.mask is not None or store.clip:
        return None
    plain = number(store.value)
    if not isinstance(plain.type, TileType) and not _names(plain, s.var) and not any(isinstance(x, (n.Load, n.Call)) for x in walk(plain)):
        filled_at = _joined(store.at, s.var, turns)
        return None if filled_at is None else n.Store(filled_at, plain, cache=store.cache, origin=s.origin)
    if isinstance(store.value.type, TileType):
        return None
    if not pure(store.value) or any(isinstance(x, n.Load) and x.at.buffer == store.at.buffer for x in walk(store.value)):
        return None
    held: dict[str, n.Expr] = {}
    rows: dict[str, n.Expr] = {}

    def leave(old: n.Node, new: n.Node) -> n.Node:  # a number that parts are made of is one whatever the turn; a vector whose part is taken is a row
        if isinstance(new, n.Call) and new.fn == "pick" and new.of is None and isinstance(v := new.args[0], n.Expr) and new.args[1] == s.var and (
                shape_of(v.type) == (turns,) and not _names(v, s.var)):
            rows[f"%row{len(rows)}"] = v
            return n.Load(n.Region(n.Buffer(f"%row{len(rows) - 1}", dtype_of(v.type), (build.const(turns),), "register"), (s.var,)))
        if not isinstance(new, n.Call) or new.fn != "pack" or new.of is not None or not isinstance(new.type, DType) or _names(new, s.var):
            return new
        held[f"%held{len(held)}"] = new
        return n.Var(f"%held{len(held) - 1}", new.type)
    each: n.Expr = transform(store.value, leave)
    if not _own(each):
        return None
    at = _joined(store.at, s.var, turns)
    try:
        value: n.Expr = substitute(transform(tile(each, [(s.var, turns)]), partial(_row_of, rows)), held)
    except (NotElementwise, KirError):
        return None
    return None if at is None or _names(value, s.var) or shape_of(value.type) != (turns,) else n.Store(at, value, cache=store.cache, origin=s.origin)


def _row_of(rows: dict[str, n.Expr], old: n.Node, new: n.Node) -> n.Node:
    return rows.get(new.at.buffer.name, new) if isinstance(new, n.Load) else new


def _own(e: n.Expr) -> bool:
    """Whether lanes do not meet in it."""
    return all(x.of is None and table()[x.fn].level == "element" for x in walk(e) if isinstance(x, n.Call))


def _joined(at: n.Region, var: n.Var, turns: int) -> n.Region | None:
    """The region that a piece covers in all turns of a loop, where each follows the one before."""
    if not at.index or any(_names(i, var) for i in at.index[:-1]):
        return None
    last = at.index[-1]
    lo, count = (last.lo, last.extent) if isinstance(last, n.Span) else (last, 1)
    if not isinstance(count, int) or (isinstance(last, n.Span) and last.step != 1) or not isinstance(lo.type, DType):
        return None
    first, *others = (build.polynomial(substitute(lo, {var.name: build.const(k)})) for k in range(turns))
    for k, each in enumerate(others, 1):
        moved = {key: each.get(key, 0) - first.get(key, 0) for key in {*each, *first}}
        if any(v for key, v in moved.items() if key) or moved.get((), 0) != k * count:
            return None
    return n.Region(at.buffer, (*at.index[:-1], build.span(substitute(lo, {var.name: build.const(0)}), turns * count)))


def _names(x: n.Node, var: n.Var) -> bool:
    return any(isinstance(each, n.Var) and each.name == var.name for each in walk(x))


def _stored(s: n.Copy) -> n.Stmt:
    """A synchronous copy as the store of what is loaded."""
    if not (s.via in ("plain", "vec") or s.via.startswith("vector(")) or s.signal is not None or s.grouped or s.attrs:
        return s
    return n.Store(s.dst, s.src, s.mask, s.clip, origin=s.origin)


def _filled(s: n.Alloc, rest: list[n.Stmt]) -> tuple[n.Let, list[n.Stmt]] | None:
    """A private array or variable that holds what it is declared with as a value, and what follows with elements of it; None for one that is written
    again, viewed, or read at places that are no numbers."""
    b, value = s.buffer, s.init
    if value is None or b.space != "register" or len(b.shape) > 1:
        return None
    count = int_value(b.shape[0]) if b.shape else None
    reads = 0
    for t in rest:
        for x in walk(t):
            if (isinstance(x, (n.Store, n.View)) and _at(x).buffer == b) or (isinstance(x, n.Copy) and b in (x.dst.buffer, x.src.at.buffer)):
                return None
            if isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer == b for a in x.args):
                return None
            if isinstance(x, n.Region) and x.buffer == b:
                reads += 1
            if isinstance(x, n.Load) and x.at.buffer == b and (x.mask is not None or x.clip or x.cache or not _known(x.at, count)):
                return None
    loads = sum(isinstance(x, n.Load) and x.at.buffer == b for t in rest for x in walk(t))
    if loads != reads:
        return None
    name = n.Var(b.name, value.type)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.at.buffer == b:
            at = new.at.index[0] if new.at.index else None
            if isinstance(at, n.Span) and at.extent != count and isinstance(at.extent, int) and isinstance(value.type, TileType):
                places: n.Expr = build.iota(at.extent)
                return build.call("pick", name, build.add(places, at.lo) if int_value(at.lo) else places)
            one = at if isinstance(at, n.Expr) else None
            if not isinstance(value.type, TileType):
                many = at.extent if isinstance(at, n.Span) and isinstance(at.extent, int) else count
                return build.call("broadcast", name, build.const(many)) if one is None and many is not None else name
            return name if one is None else build.call("pick", name, one)
        return new
    return n.Let((b.name,), value, origin=s.origin), [transform(t, leave) for t in rest]


def _at(x: n.Store | n.View) -> n.Region:
    return x.at


def _known(at: n.Region, count: int | None) -> bool:
    """Whether a place is the whole array, a stretch of it, or one element by its number."""
    if not at.index:
        return True
    (index,) = at.index
    if isinstance(index, n.Span):
        return int_value(index.lo) is not None and index.step == 1 and (index.extent == count or isinstance(index.extent, int))
    return int_value(index) is not None
