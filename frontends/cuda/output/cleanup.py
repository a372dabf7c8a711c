"""The body that was read, without the traces of reading it: parameters copied in and back, fills written piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.rebuild.localize import positions
from kir.ir.types import dtype_of, shape_of
from kir.ir.visit import buffers_named, children, names_read, once, substitute, substitute_buffers, transform, updated, walk
from kir.surface.ptx.form.bits import joined, whole_of

from ..values.emitter import has_effect
from .fixed_arrays import without_fixed


def cleaned(body: n.Block, piecewise: frozenset[str] = frozenset()) -> n.Block:
    """The block with such copies and pieces joined; idempotent. `piecewise` are arrays that were loaded
    element by element."""
    while True:
        made = _block(body, piecewise)
        if made == body:
            return made
        body = made


def _block(body: n.Block, piecewise: frozenset[str]) -> n.Block:
    out = _zeroed(without_fixed([_inner(s, piecewise) for s in body]))
    out = _whole_stores(_filled([once(s, "_masked", partial(_masked, s)) for s in out]))
    out = _loaded_or_filled(_begun(out))
    return tuple(_used_once(_copied(_merged(_unnamed(_named(out))), piecewise)))


def _named(body: list[n.Stmt]) -> list[n.Stmt]:
    """An array that holds a named vector and is only read, whole or in part, gives way to the name: `rows[4 +: 4]` to `pick(rows, iota(4) + 4)`."""
    out: list[n.Stmt] = []
    for k, s in enumerate(body):
        held = s.init if isinstance(s, n.Alloc) and s.buffer.space == "register" and isinstance(s.init, n.Var) else None
        if isinstance(s, n.Alloc) and held is not None and shape_of(held.type) and _only_parts(body[k + 1:], s.buffer):
            return [*out, *(_picked(t, s.buffer, held) for t in body[k + 1:])]
        out.append(s)
    return out


def _zeroed(body: list[n.Stmt]) -> list[n.Stmt]:
    """A load that a mask leaves out, each part of which gives way to zero where the mask does not hold, loads that zero itself."""
    out = list(body)
    for k, s in enumerate(out):
        if not isinstance(s, n.Let) or len(s.names) != 1 or not isinstance(s.value, n.Load) or s.value.mask is None or s.value.other is not None:
            continue
        name, mask = s.names[0], s.value.mask
        changed, rest = _unchosen(out[k + 1:], name, mask)
        uses = sum(isinstance(x, n.Var) and x.name == name for t in out[k + 1:] for x in walk(t)) if changed else 0
        if changed and changed == uses and not any(names_changed(t) & names_read(mask) for t in out[k + 1:]):
            out[k] = replace(s, value=replace(s.value, other=build.const(0, dtype_of(s.value.type))))
            out[k + 1:] = rest
    return out


def _unchosen(body: list[n.Stmt], name: str, mask: n.Expr) -> tuple[int, list[n.Stmt]]:
    """Statements that take the bits of a vector as they are, not zero where a mask does not hold, and how often they name it so."""
    changed = 0

    def leave(old: n.Node, new: n.Node) -> n.Node:
        nonlocal changed
        if isinstance(new, n.Select) and new.cond == mask and _zero(new.b) and (found := _bits_of(new.a, name)):
            changed += found
            return new.a
        return new
    return changed, [transform(t, leave, lambda e: not isinstance(e, n.Buffer) and name in names_read(e)) for t in body]


def names_changed(s: n.Stmt) -> frozenset[str]:
    """Buffers that a statement writes."""
    return frozenset(x.at.buffer.name for x in walk(s) if isinstance(x, n.Store)) | frozenset(x.dst.buffer.name for x in walk(s) if isinstance(x, n.Copy))


def _zero(e: n.Expr) -> bool:
    """Whether all bits of a value are zero."""
    if isinstance(e, n.Cast):
        return _zero(e.x)
    found = _constant(e)
    return found is not None and found.value == 0 and not str(found.value).startswith("-")


def _bits_of(e: n.Expr, name: str) -> int:
    """How often a value names a vector whose bits, and nothing else, it is made of; 0 for any other value."""
    if isinstance(e, n.Var):
        return int(e.name == name)
    if isinstance(e, n.Cast) and e.rounding == "bits":
        return _bits_of(e.x, name)
    if isinstance(e, n.Call) and e.of is None and e.fn in ("pack", "unpack", "pick") and isinstance(e.args[0], n.Expr):
        return _bits_of(e.args[0], name)
    if isinstance(e, n.Call) and e.of is None and e.fn in ("vec", "cat"):
        parts = [_bits_of(a, name) if isinstance(a, n.Expr) else 0 for a in e.args]
        return sum(parts) if all(parts) else 0
    return 0


def _only_parts(rest: list[n.Stmt], buffer: n.Buffer) -> bool:
    """Whether each use of an array is a load of it, or of a stretch of it that is known."""

    def ok(x: n.Node) -> bool:
        if buffer.name not in buffers_named(x):
            return True
        if isinstance(x, n.Load) and x.at.buffer.name == buffer.name:
            return x.mask is None and not x.clip and (not x.at.index or _stretch(x.at) is not None)
        if isinstance(x, n.Buffer) and x.name == buffer.name:
            return False
        return all(ok(c) for c in children(x))

    return all(ok(t) for t in rest)


def _stretch(at: n.Region) -> tuple[int, int] | None:
    """First element and number of elements of a span of a vector."""
    if len(at.index) != 1 or not isinstance(span := at.index[0], n.Span) or span.step != 1:
        return None
    first = build.int_value(span.lo)
    return (first, span.extent) if first is not None and isinstance(span.extent, int) else None


def _picked(s: n.Stmt, buffer: n.Buffer, held: n.Var) -> n.Stmt:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, n.Load) and new.at.buffer.name == buffer.name):
            return new
        part = _stretch(new.at) if new.at.index else None
        if part is None:
            return held
        numbers: n.Expr = build.iota(part[1])
        return build.call("pick", held, build.add(numbers, part[0]) if part[0] else numbers)

    made: n.Stmt = transform(s, leave, lambda x: buffer.name in buffers_named(x))
    return made


def _used_once(body: list[n.Stmt]) -> list[n.Stmt]:
    """Vectors that are read from memory for one statement right after, where they are used."""
    out: list[n.Stmt] = []
    rest = list(body)
    while rest:
        s = rest.pop(0)
        if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Load) and _moves(s.value):
            at = _only_use(rest, s.names[0])
            if at is not None and all(isinstance(t, n.Let) and not has_effect(t.value) for t in rest[:at]):
                rest[at] = substitute(rest[at], {s.names[0]: s.value})
                continue
        out.append(s)
    return out


def _only_use(rest: list[n.Stmt], name: str) -> int | None:
    """The one store or let that names a value once; None when there are others."""
    users = [k for k, t in enumerate(rest) if name in names_read(t)]
    if len(users) != 1 or sum(1 for x in walk(rest[users[0]]) if isinstance(x, n.Var) and x.name == name) != 1:
        return None
    return users[0] if isinstance(rest[users[0]], (n.Store, n.Let)) else None


def _copied(body: list[n.Stmt], piecewise: frozenset[str]) -> list[n.Stmt]:
    """A vector that is read from memory only to be written to memory, perhaps under a condition, as a copy."""
    out: list[n.Stmt] = []
    rest = list(body)
    while rest:
        s = rest.pop(0)
        held = s.value if isinstance(s, n.Let) else s.init if isinstance(s, n.Alloc) and isinstance(s.init, n.Load) and s.init.mask is not None else None
        if isinstance(s, (n.Let, n.Alloc)) and rest and isinstance(held, n.Load) and _moves(replace(held, mask=None)):
            following = rest[0]
            store, cond = following, None
            if isinstance(following, n.If) and len(following.then) == 1 and not following.orelse:
                store, cond = following.then[0], following.cond
            name = s.names[0] if isinstance(s, n.Let) else s.buffer.name
            own: n.Expr = n.Var(name, held.type) if isinstance(s, n.Let) else n.Load(n.Region(s.buffer))
            later = sum(1 for t in rest for x in walk(t) if isinstance(x, (n.Var, n.Buffer)) and x.name == name)
            each = name in piecewise
            if isinstance(store, n.Store) and store.mask is not None:
                each = each or bool(shape_of(store.mask.type))
                cond = store.mask if cond is None else None
                store = replace(store, mask=None) if cond is not None else store
            if isinstance(store, n.Store) and store.value == own and later == 1 and _moves(n.Load(store.at)) and store.mask is None and not (
                store.cache
            ):
                width = shape_of(held.type)[-1]
                moved = "plain" if each else f"vector({width})"
                rest[0] = n.Copy(held, store.at, moved, mask=cond, label=store.label, origin=store.origin)
                continue
        out.append(s)
    return out


def _moves(e: n.Load) -> bool:
    """Whether a place is a vector in global or shared memory."""
    shape = shape_of(e.type)
    return e.at.buffer.space in ("global", "shared") and len(shape) == 1 and isinstance(shape[0], int) and shape[0] > 1 and e.mask is None


def _inner(s: n.Stmt, piecewise: frozenset[str]) -> n.Stmt:
    if not isinstance(s, n.For | n.While | n.If) or s.__dict__.get("_cleaned") == piecewise:
        return s
    made: n.Stmt
    if isinstance(s, n.If):
        made = updated(s, then=_block(s.then, piecewise), orelse=_block(s.orelse, piecewise))
    else:
        made = updated(s, body=_block(s.body, piecewise))
    if made is s:
        s.__dict__["_cleaned"] = piecewise  # clean inside, and not looked at again
    return made


def _constant(e: n.Expr) -> n.Const | None:
    """The one number that every element of a value is."""
    if isinstance(e, n.Const):
        return e
    if isinstance(e, n.Call) and e.of is None and e.fn == "broadcast" and isinstance(e.args[0], n.Const):
        return e.args[0]
    if isinstance(e, n.Call) and e.of is None and e.fn == "vec" and isinstance(e.args[0], n.Const) and all(a == e.args[0] for a in e.args):
        return e.args[0]
    return None


def _filled(body: list[n.Stmt]) -> list[n.Stmt]:
    """Stores of one number to consecutive elements of a private array, as one store."""
    out: list[n.Stmt] = []
    for s in body:
        if isinstance(s, n.Store) and s.at.buffer.space == "register" and s.mask is None and s.at.buffer.shape:
            value = _constant(s.value)
            if value is not None:
                s = replace(s, value=value)
                last = out[-1] if out else None
                joined = _joined(last, s) if isinstance(last, n.Store) else None
                if joined is not None:
                    out[-1] = joined
                    continue
        out.append(s)
    return out


def _whole_stores(body: list[n.Stmt]) -> list[n.Stmt]:
    """Stores of consecutive pieces of one value to consecutive elements of a private array, as one store of the value."""
    out: list[n.Stmt] = []
    ended: list[n.Store] = []  # the stores that lead up to the last of `out`, with it
    for s in body:
        run = ended if isinstance(s, n.Store) and ended and _leads_to(ended[-1], s) else []
        if isinstance(s, n.Store) and run:
            every = [*run, s]
            parts = [x.value for x in every]
            shaped = [bool(shape_of(p.type)) for p in parts]
            single = (_each_of_one(parts) if isinstance(parts[0], n.Cast) else None) or whole_of(parts) if not any(shaped) else None
            made = joined(parts) if all(shaped) else single
            if made is not None and not (isinstance(made, n.Call) and made.fn in ("vec", "cat", "pick")):
                *head, last = every[0].at.index
                lo = last.lo if isinstance(last, n.Span) else last
                count = sum(x.at.index[-1].extent if isinstance(x.at.index[-1], n.Span) else 1 for x in every)  # type: ignore[misc]  # known
                out[-len(run) :] = [replace(every[0], at=build.region(s.at.buffer, *head, build.span(lo, count)), value=made)]
                ended = [*_run(out[:-1], last_one), last_one] if isinstance(last_one := out[-1], n.Store) else []
                continue
        if run and isinstance(s, n.Store):
            ended.append(s)
        else:
            ended = [s] if isinstance(s, n.Store) else []
        out.append(s)
    return out


def _each_of_one(parts: Sequence[n.Expr]) -> n.Expr | None:
    """The whole vector whose elements, in their order, values are, or the conversion of it; None for other values."""
    first = parts[0]
    if isinstance(first, n.Cast) and all(isinstance(p, n.Cast) and (p.dtype, p.rounding) == (first.dtype, first.rounding) for p in parts):
        inner = _each_of_one([p.x for p in parts if isinstance(p, n.Cast)])
        return None if inner is None else build.cast(inner, first.dtype, first.rounding)
    held = first.args[0] if isinstance(first, n.Call) and first.fn == "pick" and first.of is None else None
    if not isinstance(held, n.Expr) or shape_of(held.type) != (len(parts),):
        return None
    return held if all(p == n.Call("pick", (held, build.const(k))) for k, p in enumerate(parts)) else None


def _run(out: list[n.Stmt], s: n.Store) -> list[n.Store]:
    """The stores just before `s` that lead up to it, element by element."""
    found: list[n.Store] = []
    following = s
    while out[len(out) - 1 - len(found) :] and len(found) < len(out):
        before = out[len(out) - 1 - len(found)]
        if not isinstance(before, n.Store) or not _leads_to(before, following):
            break
        found.insert(0, before)
        following = before
    return found


def _leads_to(a: n.Store, b: n.Store) -> bool:
    if a.at.buffer != b.at.buffer or a.at.buffer.space != "register" or a.mask is not None or b.mask is not None or not a.at.index or not b.at.index:
        return False
    *head, last = a.at.index
    *other, following = b.at.index
    lo, count = (last.lo, last.extent) if isinstance(last, n.Span) else (last, 1)
    at = following.lo if isinstance(following, n.Span) else following
    return head == other and isinstance(count, int) and build.is_const(build.sub(at, build.add(lo, count)), 0)


def _masked(s: n.Stmt) -> n.Stmt:
    """Addresses that are chosen by the mask of the access, as the one that is used."""
    if not isinstance(s, (n.Let, n.Store, n.Copy, n.Eval)):
        return s

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.mask is not None:
            mask = new.mask

            def chosen(was: n.Node, now: n.Node) -> n.Node:
                return now.a if isinstance(now, n.Select) and now.cond == mask else now

            return replace(new, at=transform(new.at, chosen, lambda e: not isinstance(e, n.Buffer)))
        return new

    made: n.Stmt = transform(s, lambda old, new: leave(old, _plain(_gathered(new))), lambda e: not isinstance(e, n.Buffer))
    if isinstance(made, n.Store) and shape_of(made.value.type) and made.at.buffer.space == "global" and (number := _constant(made.value)) is not None:
        return replace(made, value=number)
    return made


def _plain(e: n.Node) -> n.Node:
    """A condition that was made a number only to be asked for again, and bits that were put together only to be taken apart, as what they are."""
    if isinstance(e, n.Binary) and e.op == "ne" and _constant(e.b) is not None and build.is_const(e.b, 0):
        x = e.a
        while isinstance(x, n.Cast) and dtype_of(x.type).is_integer and (x.rounding == "rn" or dtype_of(x.x.type).is_integer):
            x = x.x
        return x if dtype_of(x.type).is_bool and x.type == e.type else e
    if isinstance(e, n.Call) and e.of is None and e.fn == "vec" and isinstance(e.args[0], n.Cast):
        return _each_of_one([a for a in e.args if isinstance(a, n.Expr)]) or e
    if isinstance(e, n.Cast) and e.rounding == "bits" and isinstance(e.x, n.Cast) and e.x.rounding == "bits" and e.x.x.type == e.type:
        return e.x.x
    if isinstance(e, n.Call) and e.of is None and e.fn == "unpack" and isinstance(held := e.args[0], n.Call) and held.of is None and held.fn == "pack":
        return held.args[0] if isinstance(held.args[0], n.Expr) and held.args[0].type == e.type else e
    return e


def _gathered(e: n.Node) -> n.Node:
    """Consecutive elements or pieces of a buffer, put together again: the place that they were read from, or one conversion of that."""
    if not isinstance(e, n.Call) or e.of is not None or e.fn not in ("vec", "cat") or len(e.args) < 2:
        return e
    first = e.args[0]
    if e.fn == "cat" and isinstance(first, n.Cast) and all(isinstance(a, n.Cast) and (a.dtype, a.rounding) == (first.dtype, first.rounding) and shape_of(
            a.type) == shape_of(a.x.type) for a in e.args):
        whole = _gathered(replace(e, args=tuple(a.x for a in e.args if isinstance(a, n.Cast))))
        return replace(first, x=whole) if isinstance(whole, n.Load) else e
    if not isinstance(first, n.Load) or first.mask is not None or first.clip or not first.at.index:
        return e
    *head, last = first.at.index
    lo = last.lo if isinstance(last, n.Span) else last
    at: n.Expr = lo
    count = 0
    for a in e.args:
        if not isinstance(a, n.Load) or a.at.buffer != first.at.buffer or a.mask is not None or a.clip or list(a.at.index[:-1]) != head:
            return e
        here = a.at.index[-1]
        start, extent = (here.lo, here.extent) if isinstance(here, n.Span) else (here, 1)
        if not isinstance(extent, int) or shape_of(start.type) or not build.is_const(build.sub(start, build.add(lo, count)), 0):
            return e
        count += extent
    return build.load(build.region(first.at.buffer, *head, build.span(at, count)), cache=first.cache)


def _joined(a: n.Store, b: n.Store) -> n.Store | None:
    if a.at.buffer != b.at.buffer or a.value != b.value or a.mask is not None or not a.at.index or not b.at.index:
        return None
    *head, last = a.at.index
    *other, following = b.at.index
    if head != other:
        return None
    lo, count = (last.lo, last.extent) if isinstance(last, n.Span) else (last, 1)
    at, more = (following.lo, following.extent) if isinstance(following, n.Span) else (following, 1)
    if not isinstance(count, int) or not isinstance(more, int) or not build.is_const(build.sub(at, build.add(lo, count)), 0):
        return None
    return replace(a, at=build.region(a.at.buffer, *head, build.span(lo, count + more)))


def _begun(body: list[n.Stmt]) -> list[n.Stmt]:
    """A private array that is filled as a whole right after its declaration begins with that value."""
    out: list[n.Stmt] = []
    empty: set[n.Buffer] = set()  # that nothing has been written to yet
    for s in body:
        if isinstance(s, n.Alloc) and s.init is None:
            empty.add(s.buffer)
        if isinstance(s, n.Store) and s.at.buffer in empty and not s.at.index and s.mask is None and s.at.buffer.space == "register":
            empty.discard(s.at.buffer)
            at = next((k for k in range(len(out) - 1, -1, -1) if _mentions(out[k], s.at.buffer.name)), -1)
            movable = at == len(out) - 1 or isinstance(s.value, n.Const)
            last = out[at] if at >= 0 and movable else None
            if (
                isinstance(last, n.Alloc)
                and last.init is None
                and last.buffer == s.at.buffer
                and (not s.at.buffer.shape or isinstance(s.value, n.Const) or s.value.type == n.Region(s.at.buffer).type)
                and not _mentions(s.value, s.at.buffer.name)
            ):
                out[at] = replace(last, init=s.value)
                continue
        out.append(s)
    return out


def _loaded_or_filled(body: list[n.Stmt]) -> list[n.Stmt]:
    """`register v = 0; if inside: v = x[..]` as one load under a mask, for every array that the branch loads."""
    out: list[n.Stmt] = []
    for s in body:
        if isinstance(s, n.If) and s.orelse and not s.static:
            s = _either(out, s) or s
        if not isinstance(s, n.If) or s.orelse or s.static or not s.then:
            out.append(s)
            continue
        places = [_fill_of(out, x, s.cond) for x in s.then]
        if any(p is None for p in places) or len(set(places)) != len(places):
            out.append(s)
            continue
        for x, k in zip(s.then, places, strict=True):
            alloc = out[k] if k is not None else None
            assert isinstance(alloc, n.Alloc) and isinstance(x, n.Store) and isinstance(x.value, n.Load) and k is not None
            out[k] = replace(alloc, init=None)
            out.append(replace(x, value=replace(x.value, mask=s.cond, other=alloc.init)))
    return out


def _either(out: list[n.Stmt], s: n.If) -> n.Store | None:
    """`register v; if inside: v = x[..] else: v = 0` as one load under a mask; None for other branches."""
    if len(s.then) != 1 or len(s.orelse) != 1:
        return None
    loaded, value = s.then[0], _filled_with(s.orelse[0])
    if value is None or not isinstance(loaded, n.Store) or value[0] != loaded.at.buffer:
        return None
    at = next((k for k, x in enumerate(out) if isinstance(x, n.Alloc) and x.buffer == loaded.at.buffer and x.init is None), None)
    if at is None or any(_mentions(x, loaded.at.buffer.name) for x in out[at + 1 :]) or not _loads_whole(loaded, s.cond):
        return None
    assert isinstance(loaded.value, n.Load)
    return replace(loaded, value=replace(loaded.value, mask=s.cond, other=value[1]), label=loaded.label or s.label)


def _filled_with(s: n.Stmt) -> tuple[n.Buffer, n.Const] | None:
    """The private array that a statement fills whole with one number, and that number."""
    if isinstance(s, n.For) and len(s.body) == 1 and isinstance(inner := s.body[0], n.Store) and inner.at.index == (s.var,) and build.is_const(s.lo, 0) and (
            build.is_const(s.step, 1) and build.int_value(s.hi) == build.int_value(inner.at.buffer.shape[0])):
        s = replace(inner, at=n.Region(inner.at.buffer))
    if not isinstance(s, n.Store) or s.at.index or s.mask is not None or s.at.buffer.space != "register" or not isinstance(s.value, n.Const):
        return None
    return s.at.buffer, s.value


def _loads_whole(x: n.Stmt, cond: n.Expr) -> bool:
    """Whether a statement loads a private array whole from memory, which the condition does not depend on."""
    return isinstance(x, n.Store) and x.at.buffer.space == "register" and not x.at.index and x.mask is None and isinstance(x.value, n.Load) and (
        _moves(x.value) and not x.value.clip and x.value.at.buffer.space in ("global", "shared") and not _mentions(cond, x.at.buffer.name))


def _fill_of(out: list[n.Stmt], x: n.Stmt, cond: n.Expr) -> int | None:
    """Where the private array that a statement loads whole is declared, filled with one number and left alone since."""
    if not isinstance(x, n.Store) or not _loads_whole(x, cond):
        return None
    at = next((k for k, s in enumerate(out) if isinstance(s, n.Alloc) and s.buffer == x.at.buffer and isinstance(s.init, n.Const)), None)
    return at if at is not None and not any(_mentions(s, x.at.buffer.name) for s in out[at + 1 :]) else None


def _unnamed(body: list[n.Stmt]) -> list[n.Stmt]:
    """Names of a variable's value that are only used before it changes give way to the variable."""
    out: list[n.Stmt] = []
    every = list(body)
    last = {name: k for k, s in enumerate(body) for name in names_read(s)}  # where each is used last
    for k in range(len(every)):
        s = every[k]
        source = _private(s.value) if isinstance(s, n.Let) and len(s.names) == 1 else None
        end = last.get(s.names[0], k) + 1 if isinstance(s, n.Let) and len(s.names) == 1 else k + 1
        if isinstance(s, n.Let) and (at := _is_stored(s, every[k + 1:end])) is not None:
            store = every[k + 1 + at]
            assert isinstance(store, n.Store)
            every[k + 1 + at] = replace(store, value=s.value, label=store.label or s.label)
            last.update({name: max(last[name], k + 1 + at) for name in names_read(s.value)})
            continue
        if isinstance(s, n.Let) and source is not None and _stays(every[k + 1:end], s.names[0], source.name):
            every[k + 1:end] = [substitute(t, {s.names[0]: s.value}) if s.names[0] in names_read(t) else t for t in every[k + 1:end]]
            last.update({name: max(last[name], end - 1) for name in names_read(s.value)})
            continue
        out.append(s)
    return out


def _private(e: n.Expr) -> n.Buffer | None:
    """The thread's own buffer that a value is, or is a vector of."""
    if isinstance(e, n.Load) and e.mask is None and not e.clip and e.at.buffer.space == "register" and (not e.at.index or shape_of(e.type)):
        return e.at.buffer
    return None


def _is_stored(s: n.Let, rest: list[n.Stmt]) -> int | None:
    """Where a vector that is named only to be stored is stored: at once, or after other names and stores that leave what it is made of alone."""
    if len(s.names) != 1 or not shape_of(s.value.type) or isinstance(s.value, n.Load) or has_effect(s.value):
        return None
    own = [x for x in walk(s.value) if isinstance(x, n.Load)]
    if any(x.at.buffer.space != "register" and x.mask is None for x in own):
        return None
    at = _only_use(rest, s.names[0])
    store = None if at is None else rest[at]
    if at is None or not isinstance(store, n.Store) or store.value != n.Var(s.names[0], s.value.type):
        return None
    between = rest[:at]
    moves = not between or (all(x.at.buffer.space == "register" for x in own) and all(
        (isinstance(t, n.Let) and not has_effect(t.value)) or (isinstance(t, n.Store) and t.at.buffer.space in ("global", "shared")) for t in between))
    return at if moves else None


def _stays(rest: list[n.Stmt], name: str, source: str) -> bool:
    """Whether every use of a name comes before the variable that it stands for is written."""
    written = False
    for t in rest:
        used = name in names_read(t)
        writes = _writes(t, source)
        if used and (written or (writes and not isinstance(t, n.Store))):
            return False
        written = written or writes
    return True


def _writes(s: n.Stmt, name: str) -> bool:
    """Whether a statement may change a variable: any mention of it but a read of its value."""

    def mentioned(x: n.Node) -> bool:
        if name not in buffers_named(x) or (isinstance(x, n.Load) and _whole(x) is not None):
            return False
        if isinstance(x, n.Region) and x.buffer.name == name:
            return True
        return any(mentioned(c) for c in children(x))

    return mentioned(s)


def _mentions(x: n.Node, name: str) -> bool:
    return name in buffers_named(x)


def _whole(e: n.Expr | None) -> n.Buffer | None:
    if isinstance(e, n.Load) and not e.at.index and e.mask is None and e.at.buffer.space == "register":
        return e.at.buffer
    return None


def _merged(body: list[n.Stmt]) -> list[n.Stmt]:
    """`register v = top; .. v ..; top = v`, scalars or whole arrays, where nothing in between mentions `top` and nothing afterwards `v`: `.. top ..`."""
    where = positions(body)
    for k, s in enumerate(body):
        source = _whole(s.init) if isinstance(s, n.Alloc) else None
        if not isinstance(s, n.Alloc) or source is None or (source.dtype, source.shape) != (s.buffer.dtype, s.buffer.shape):
            continue
        j = next((j for j in where[source.name] if j > k), None)
        t = None if j is None else body[j]
        if j is not None and isinstance(t, n.Store) and t.at == n.Region(source) and t.mask is None and _whole(t.value) == s.buffer and (
                where[s.buffer.name][-1] <= j):
            between = [substitute_buffers(x, {s.buffer.name: source}) for x in body[k + 1 : j]]
            return _merged([*body[:k], *between, *body[j + 1 :]])
    return body
