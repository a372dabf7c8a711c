"""Vectors of a thread that C++ spells in pieces: packed registers of matrix instructions as elements, neighbors stored one by one as one
store, copies that an address and a size keep inside, wide moves under a branch as copies under a mask.

Each rule keeps what the code means; a piece that does not fit is left as it was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DType, TileType, dtype_of, shape_of
from kir.ir.visit import blocks_of, buffers_named, names_read, statements, substitute, transform, walk


def joined(body: n.Block) -> n.Block:
    """The block with such pieces joined; idempotent."""
    while True:
        made = _block(_unpacked(body), {})
        if made == body:
            return made
        body = made


def _block(block: n.Block, lets: Mapping[str, n.Expr]) -> n.Block:
    known = dict(lets)
    out: list[n.Stmt] = []
    for s in block:
        match s:
            case n.For() | n.While():
                s = replace(s, body=_block(s.body, known))
            case n.If():
                s = replace(s, then=_block(s.then, known), orelse=_block(s.orelse, known))
                s = _under_a_mask(s)
            case n.Let() if len(s.names) == 1:
                s = replace(s, value=_zipped_in(s.value))
                known[s.names[0]] = s.value
            case n.Copy():
                s = _kept_inside(s, known)
            case n.Store():
                s = replace(s, value=_zipped_in(s.value))
            case _:
                pass
        out.append(s)
    return _used_once(_loaded(_begun(_neighbors(tuple(out)))))


def _begun(block: n.Block) -> n.Block:
    """Arrays that loops fill with one number right after their declaration, as arrays that begin with it."""
    out: list[n.Stmt] = []
    for s in block:
        filled = _filled_by(s)
        k = next((i for i, x in enumerate(out) if isinstance(x, n.Alloc) and x.buffer == filled[0] and x.init is None), None) if filled is not None else None
        if filled is None or k is None or any(_names(x, filled[0].name) for x in out[k + 1 :]):
            out.append(s)
        else:
            made = out[k]
            assert isinstance(made, n.Alloc)
            out[k] = replace(made, init=filled[1])
    return tuple(out)


def _names(s: n.Stmt, buffer: str) -> bool:
    return buffer in buffers_named(s)


def _filled_by(s: n.Stmt) -> tuple[n.Buffer, n.Const] | None:
    """The array that a nest of loops fills with one number, each element once."""
    loops: dict[str, int] = {}
    while isinstance(s, n.For) and len(s.body) == 1 and s.kind in ("serial", "unroll"):
        size = build.int_value(s.hi)
        if size is None or not build.is_const(s.lo, 0) or not build.is_const(s.step, 1):
            return None
        loops[s.var.name] = size
        s = s.body[0]
    if not (isinstance(s, n.Store) and isinstance(s.value, n.Const) and s.mask is None and s.at.buffer.space == "register" and loops):
        return None
    index = s.at.index
    if len(index) != len(loops) or len({i.name for i in index if isinstance(i, n.Var)}) != len(index):
        return None
    whole = all(isinstance(i, n.Var) and loops.get(i.name) == build.int_value(d) for i, d in zip(index, s.at.buffer.shape, strict=True))
    return (s.at.buffer, s.value) if whole else None


def _loaded(block: n.Block) -> n.Block:
    """A vector that starts as zeros, is loaded under a branch and stored once, as a copy of a masked load."""
    out = list(block)
    for i in range(len(out)):
        made = _masked_load(tuple(out), i)
        if made is not None:
            return _loaded((*out[:i], made, *out[i + 5 :]))
    return tuple(out)


def _masked_load(block: n.Block, i: int) -> n.Stmt | None:
    part = block[i : i + 5]
    if len(part) != 5:
        return None
    alloc, view, zero, branch, store = part
    if not (isinstance(alloc, n.Alloc) and isinstance(view, n.View) and isinstance(zero, n.Store) and isinstance(branch, n.If)):
        return None
    if not (isinstance(store, n.Store) and len(branch.then) == 1 and not branch.orelse and isinstance(branch.then[0], n.Store)):
        return None
    load, whole, held = branch.then[0], n.Region(alloc.buffer), n.Region(view.buffer)
    is_zero = isinstance(zero.value, n.Const) and not zero.value.value and zero.at == whole
    if alloc.buffer.space != "register" or view.at != whole or view.axes or not is_zero or load.at != held or load.mask is not None:
        return None
    if store.value != n.Load(held) or store.mask is not None or not isinstance(load.value, n.Load) or load.value.mask is not None:
        return None
    if any(_names(x, name) for x in block[i + 5 :] for name in (alloc.buffer.name, view.buffer.name)):
        return None
    size, dtype = build.int_value(view.buffer.shape[0]), view.buffer.dtype
    if load.value.at.buffer.space != "global" or store.at.buffer.space != "shared" or size is None:
        return None
    source = replace(load.value, mask=branch.cond, other=build.const(0, dtype))
    return n.Copy(source, store.at, f"vector({size})", label=store.label, origin=store.origin)


# -------------------------------------------------------------------------------------------------------------- packed registers


def _unpacked(body: n.Block) -> n.Block:
    """Arrays of 32-bit registers that only ever hold packed elements of one dtype, as arrays of those."""
    for s in statements(body):
        if isinstance(s, n.Alloc) and s.buffer.space == "register" and s.buffer.dtype.name == "u32" and s.buffer.shape and s.init is None:
            dtype = _packed_dtype(body, s.buffer.name)
            if dtype is not None:
                body = tuple(_retyped(x, s.buffer, dtype) for x in body)
    return body


def _packed_dtype(body: n.Block, name: str) -> DType | None:
    """The dtype of which every store to an array is packed, and every read of it unpacked."""
    found: set[DType] = set()
    mentions = counted = 0
    for s in statements(body):
        mentions += sum(isinstance(x, n.Region) and x.buffer.name == name for x in _own(s))
        if isinstance(s, n.Store) and s.at.buffer.name == name:
            if not (_is_call(s.value, "pack") and isinstance(s.value, n.Call) and isinstance(s.value.args[0], n.Expr)) or shape_of(s.at.type):
                return None
            found.add(dtype_of(s.value.args[0].type))
            counted += 1
        for x in _own(s):
            if isinstance(x, n.Call) and x.fn == "unpack" and isinstance(x.args[0], n.Load) and x.args[0].at.buffer.name == name:
                if shape_of(x.args[0].type):
                    return None
                found.add(dtype_of(x.type))
                counted += 1
    return found.pop() if len(found) == 1 and mentions == counted else None


def _own(s: n.Stmt) -> list[n.Node]:
    inner = {id(x) for b in blocks_of(s) for y in b for x in walk(y)}
    return [x for x in walk(s) if id(x) not in inner and not isinstance(x, n.Buffer)]


def _is_call(e: n.Node, fn: str) -> bool:
    return isinstance(e, n.Call) and e.fn == fn and e.of is None


def _retyped(s: n.Stmt, old: n.Buffer, dtype: DType) -> n.Stmt:
    per = 32 // dtype.bits
    last = build.int_value(old.shape[-1])
    assert last is not None
    new = replace(old, dtype=dtype, shape=(*old.shape[:-1], build.const(last * per)))

    def place(r: n.Region) -> n.Region:
        at = r.index[-1]
        assert isinstance(at, n.Expr)
        return build.region(new, *r.index[:-1], build.span(build.mul(at, per), per))

    def leave(a: n.Node, b: n.Node) -> n.Node:
        if isinstance(b, n.Call) and b.fn == "unpack" and isinstance(b.args[0], n.Load) and b.args[0].at.buffer.name == old.name:
            return n.Load(place(b.args[0].at))
        if isinstance(b, n.Store) and b.at.buffer.name == old.name and isinstance(b.value, n.Call):
            value = b.value.args[0]
            assert isinstance(value, n.Expr)
            return replace(b, at=place(b.at), value=value)
        if isinstance(b, n.Alloc) and b.buffer.name == old.name:
            return replace(b, buffer=new)
        return b

    made = transform(s, leave)
    assert isinstance(made, n.Stmt)
    return made


# -------------------------------------------------------------------------------------------------------------------- neighbors


def _zipped_in(e: n.Expr) -> n.Expr:
    """`e` with vectors of like elements, and neighbors put side by side, as one operation on neighbors."""

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Call) and new.fn == "vec" and len(new.args) > 1:
            made = _zipped([a for a in new.args if isinstance(a, n.Expr)])
            return made if made is not None and made.type == new.type else new
        if isinstance(new, n.Call) and new.fn == "cat" and dict(new.attrs).get("axis", 0) == 0:
            made = _side_by_side([a for a in new.args if isinstance(a, n.Expr)])
            return made if made is not None and made.type == new.type else new
        return new

    made: n.Expr = transform(e, leave, lambda x: not isinstance(x, n.Region))
    return made


def _zipped(items: list[n.Expr]) -> n.Expr | None:
    """The tile of which `items` are the elements in order; None where they are not the same but for the last index of a load."""
    first = items[0]
    if not all(isinstance(e.type, DType) for e in items) or any(type(e) is not type(first) for e in items):
        return None
    match first:
        case n.Load():
            loads = [e for e in items if isinstance(e, n.Load)]
            if first.mask is not None or first.clip or first.cache or not first.at.index or first.at.buffer.space not in ("register", "fragment"):
                return None
            lasts = [e.at.index[-1] for e in loads if e.at.index]
            if len(lasts) != len(items) or any(e.at.index[:-1] != first.at.index[:-1] or e.at.buffer != first.at.buffer for e in loads):
                return None
            lo = lasts[0]
            if not isinstance(lo, n.Expr) or any(
                not isinstance(i, n.Expr) or build.int_value(build.sub(i, lo)) != k for k, i in enumerate(lasts)
            ):
                return None
            return n.Load(build.region(first.at.buffer, *first.at.index[:-1], build.span(lo, len(items))))
        case n.Cast():
            if any(isinstance(e, n.Cast) and (e.dtype, e.rounding) != (first.dtype, first.rounding) for e in items):
                return None
            inner = _zipped([e.x for e in items if isinstance(e, n.Cast)])
            return None if inner is None else build.cast(inner, first.dtype, first.rounding)
        case _:
            return None


def _side_by_side(items: list[n.Expr]) -> n.Expr | None:
    """Loads of neighboring ranges of registers as one."""
    loads = [e for e in items if isinstance(e, n.Load) and e.at.buffer.space == "register" and e.mask is None and not e.clip and e.at.index]
    if len(loads) != len(items):
        return None
    first, size = loads[0], 0
    start = first.at.index[-1]
    for e in loads:
        last = e.at.index[-1]
        if e.at.buffer != first.at.buffer or e.at.index[:-1] != first.at.index[:-1] or not isinstance(last, n.Span) or not isinstance(start, n.Span):
            return None
        if build.int_value(build.sub(last.lo, start.lo)) != size or not isinstance(last.extent, int) or last.step != 1:
            return None
        size += last.extent
    assert isinstance(start, n.Span)
    return n.Load(build.region(first.at.buffer, *first.at.index[:-1], build.span(start.lo, size)))


def _neighbors(block: n.Block) -> n.Block:
    """Stores of all elements of a named vector to neighbors, as one store of it."""
    out: list[n.Stmt] = []
    i = 0
    while i < len(block):
        made = _whole(block, i)
        if made is None:
            out.append(block[i])
            i += 1
        else:
            out.append(made[0])
            i += made[1]
    return tuple(out)


def _whole(block: n.Block, i: int) -> tuple[n.Stmt, int] | None:
    first = block[i]
    if not isinstance(first, n.Store) or first.at.buffer.space != "register" or not first.at.index or first.mask is not None:
        return None
    picked = _picked(first.value)
    last = first.at.index[-1]
    if picked is None:
        return None
    name, begin, count = picked[0], picked[1], 0
    of = name.of
    if not isinstance(of, TileType) or len(of.shape) != 1 or of.dtype != first.at.buffer.dtype:
        return None
    start = last.lo if isinstance(last, n.Span) else last
    k = i
    while k < len(block):
        s = block[k]
        if not isinstance(s, n.Store) or s.at.buffer != first.at.buffer or s.at.index[:-1] != first.at.index[:-1] or s.mask is not None:
            break
        here, found = s.at.index[-1], _picked(s.value)
        lo = here.lo if isinstance(here, n.Span) else here
        if found is None or found[0] != name or found[1] != begin + count or build.int_value(build.sub(lo, start)) != count:
            break
        count += found[2]
        k += 1
    if k == i + 1:
        return None
    value: n.Expr = name
    if begin or count != of.shape[0]:
        value = build.call("pick", name, build.add(build.iota(count), begin))
    return replace(first, at=build.region(first.at.buffer, *first.at.index[:-1], build.span(start, count)), value=value), k - i


def _picked(e: n.Expr) -> tuple[n.Var, int, int] | None:
    """(vector, first element, how many) that a value picks out of a named vector."""
    if not (isinstance(e, n.Call) and e.fn == "pick" and len(e.args) == 2 and isinstance(e.args[0], n.Var) and isinstance(e.args[1], n.Expr)):
        return None
    at = e.args[1]
    value = build.int_value(at)
    if value is not None:
        return e.args[0], value, 1
    if not isinstance(at.type, TileType) or len(at.type.shape) != 1 or not isinstance(at.type.shape[0], int):
        return None
    size = at.type.shape[0]
    first = 0 if at == build.iota(size) else _offset(at, size)
    return None if first is None else (e.args[0], first, size)


def _offset(at: n.Expr, size: int) -> int | None:
    """c of iota(size) + c."""
    terms = dict(build.polynomial(at))
    if terms.pop((build.iota(size),), 0) != 1:
        return None
    constant = terms.pop((), 0)
    return constant if not terms else None


def _used_once(block: n.Block) -> n.Block:
    """Products of matrix instructions written where they are stored, if that is the next statement and their only use."""
    out: list[n.Stmt] = []
    for i, s in enumerate(block):
        last = out[-1] if out else None
        if isinstance(last, n.Let) and _is_call(last.value, "mma_sync") and isinstance(s, n.Store) and s.value == n.Var(
            last.names[0], last.value.type
        ) and not any(last.names[0] in names_read(x) for x in block[i + 1 :]):
            out[-1] = replace(s, value=last.value)
        else:
            out.append(s)
    return tuple(out)


# ----------------------------------------------------------------------------------------------------------------------- copies


def _kept_inside(s: n.Copy, lets: Mapping[str, n.Expr]) -> n.Copy:
    """An asynchronous copy whose size is all or nothing, as one under a mask; its address counts only where the mask holds."""
    mask = s.src.mask
    if s.via != "cp_async" or not isinstance(mask, n.Binary) or mask.op != "lt" or not isinstance(mask.type, TileType):
        return s
    size = mask.type.shape[0] if len(mask.type.shape) == 1 else None
    if not isinstance(size, int) or mask.a != build.iota(size):
        return s
    most = _written_out(mask.b, lets)
    chosen, by = (most.a, build.int_value(most.b)) if isinstance(most, n.Binary) and most.op in ("floordiv", "tdiv") else (most, 1)
    if not isinstance(chosen, n.Select) or by is None:
        return s
    full, none = build.int_value(chosen.a), build.int_value(chosen.b)
    if full is None or none is None or full // by < size or none // by > 0:
        return s
    at = replace(s.src.at, index=tuple(_where(i, chosen.cond) for i in s.src.at.index))
    return replace(s, src=replace(s.src, at=build.region(at.buffer, *at.index), mask=chosen.cond))


def _written_out(e: n.Expr, lets: Mapping[str, n.Expr]) -> n.Expr:
    made: n.Expr = substitute(e, {k: v for k, v in lets.items() if isinstance(v.type, DType)})
    return made


def _where(i: n.Expr | n.Span, cond: n.Expr) -> n.Expr | n.Span:
    """An index where a condition holds."""

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return new.a if isinstance(new, n.Select) and new.cond == cond else new

    made = transform(i, leave)
    assert isinstance(made, n.Expr | n.Span)
    return made


def _under_a_mask(s: n.If) -> n.Stmt:
    """A branch around one wide move to global memory, as a copy under a mask."""
    store = s.then[0] if len(s.then) == 1 and not s.orelse and not s.static else None
    if isinstance(store, n.Store) and store.at.buffer.space == "global" and shape_of(store.at.type) and store.mask is None and not any(
        (isinstance(x, n.Load) and x.at.buffer.space != "register") or isinstance(x, n.Call) for x in walk(store.value)
    ):
        return replace(store, mask=s.cond)
    if not (isinstance(store, n.Store) and store.mask is None and isinstance(store.value, n.Load) and store.value.mask is None):
        return s
    source, shape = store.value.at, shape_of(store.at.type)
    if store.at.buffer.space != "global" or source.buffer.space != "shared" or len(shape) != 1 or not isinstance(shape[0], int):
        return s
    if s.cond.type != BOOL or shape_of(source.type) != shape:
        return s
    return n.Copy(store.value, store.at, f"vector({shape[0]})", s.cond, label=store.label, origin=store.origin)
