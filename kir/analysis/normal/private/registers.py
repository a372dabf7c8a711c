"""Registers that a source writes in turn, brought to one form: an array of one element is a scalar, and no array has an axis of one; a result that takes
over an older register's name keeps its own; what an address starts from and moves on by stands at the beginning and at the end of its loop; and the corner
of a tile, at which no element is read itself, is computed from the loop's counter. (A register that an element lies at is what `strength-reduce` makes, and
stays.)

Part of what `raised` does to a program that was read; programs that passes make have neither form.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kir.analysis.elements import NotElementwise, element, tile
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.rebuild.localize import positions
from kir.ir.types import I32, I64, shape_of
from kir.ir.visit import buffers_named, transform, updated, walk


def in_turn(k: n.Kernel) -> n.Kernel:
    """The kernel with its registers in that form."""
    return updated(k, body=_block(_scalars(k.body)))


def without_units(k: n.Kernel) -> n.Kernel:
    """The kernel with its private arrays without axes of one element."""
    return updated(k, body=_scalars(k.body))


def _scalars(block: n.Block) -> n.Block:
    """The block with fragments without their axes of one element, where only the one place along these is named: an array of one is a scalar."""
    one = {s.buffer.name: s.buffer for top in block for s in walk(top) if isinstance(s, n.Alloc) and (
               s.buffer.space == "fragment" or (s.buffer.space == "register" and len(s.buffer.shape) == 1))
           and any(build.is_const(d, 1) for d in s.buffer.shape) and s.buffer.layout is None and s.buffer.strides is None}
    if not one:
        return block
    whole = {id(x.at) for s in block for x in walk(s) if isinstance(x, n.Load) or (isinstance(x, n.Store) and x.mask is None)}
    whole -= {id(x.src.at) for s in block for x in walk(s) if isinstance(x, n.Copy)}
    for x in (x for s in block for x in walk(s) if isinstance(x, n.Region) and x.buffer.name in one):
        named = len(x.index) == len(x.buffer.shape) and all(
            isinstance(i, n.Expr) and build.is_const(i, 0) for i, d in zip(x.index, x.buffer.shape, strict=True) if build.is_const(d, 1))
        if not named and not (not x.index and id(x) in whole):
            one.pop(x.buffer.name, None)
    try:
        made = tuple(_without_units(s, one) for s in block)
    except NotElementwise:
        return block
    return begun(made, frozenset(name for name, b in one.items() if all(build.is_const(d, 1) for d in b.shape)))


def _without_units(item: n.Stmt, one: Mapping[str, n.Buffer]) -> n.Stmt:
    """A statement in which those arrays have no axis of one element. Raises NotElementwise."""
    def narrow(b: n.Buffer) -> n.Buffer:
        shape = tuple(d for d in b.shape if not build.is_const(d, 1))
        return replace(b, shape=shape, space=b.space if shape else "register")

    def value_of(e: n.Expr, b: n.Buffer) -> n.Expr:
        own = shape_of(e.type)
        if not own or all(d != 1 for d in own):
            return e
        axes: list[tuple[n.Var, int | n.Expr]] = [(n.Var(f"%{k}", I32), d) for k, d in enumerate(own)]
        return tile(element(e, [build.const(0) if d == 1 else v for v, d in axes]), [(v, d) for v, d in axes if d != 1])

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match old, new:
            case n.Region(), n.Region() if old.buffer.name in one:
                index = tuple(i for i, d in zip(new.index, old.buffer.shape, strict=True) if not build.is_const(d, 1)) if new.index else ()
                return build.region(narrow(one[old.buffer.name]), *index) if index else n.Region(narrow(one[old.buffer.name]))
            case n.Load(), n.Load() if old.at.buffer.name in one and not old.at.index:
                out: n.Expr = new
                shape = one[old.at.buffer.name].shape
                if not new.at.buffer.shape:
                    return build.call("broadcast", out, *(build.const(1) for _ in shape))
                for k, d in enumerate(shape):
                    out = build.call("expand", out, axis=k) if build.is_const(d, 1) else out
                return out
            case n.Alloc(), n.Alloc() if old.buffer.name in one:
                b = one[old.buffer.name]
                return replace(new, buffer=narrow(b), init=None if new.init is None else value_of(new.init, b))
            case n.Store(), n.Store() if old.at.buffer.name in one and not old.at.index:
                return replace(new, value=value_of(new.value, one[old.at.buffer.name]))
            case _:
                return new
    made: n.Stmt = transform(item, leave, lambda x: not isinstance(x, n.Buffer))
    return made


def begun(block: n.Block, names: frozenset[str]) -> n.Block:
    """The block with registers that a statement of the same block gives their first value declared there, or where they are if that is a constant."""
    out: list[n.Stmt | None] = [_below(s, lambda inner: begun(inner, names)) for s in block]
    where = positions(block)
    for k, alloc in enumerate(block):
        if not (isinstance(alloc, n.Alloc) and alloc.init is None and alloc.buffer.name in names):
            continue
        at = next((j for j in where[alloc.buffer.name] if j != k and (user := out[j]) is not None and _uses(user, alloc.buffer)), None)
        first = None if at is None else out[at]
        if at is not None and isinstance(first, n.Store) and first.at == n.Region(alloc.buffer) and first.mask is None and not _uses(
                first.value, alloc.buffer):
            here, gone = (k, at) if isinstance(first.value, n.Const) else (at, k)
            out[here], out[gone] = replace(alloc, init=first.value), None
    return tuple(s for s in out if s is not None)


def _block(block: n.Block) -> n.Block:
    inner = tuple(_below(s, _block) for s in block)
    own = [s.buffer for s in inner if isinstance(s, n.Alloc) and s.buffer.space == "register" and not s.buffer.shape]
    names = {x.name for x in own}
    for b in own:
        if b.dtype in (I32, I64):
            inner = _from_its_start(inner, b)
            inner = tuple(_at_its_end(s, b) if isinstance(s, n.For) else s for s in inner)
        inner = _under_its_own_name(inner, b, names)
    return inner


def counted(k: n.Kernel, everywhere: bool = True) -> n.Kernel:
    """The kernel with addresses that move on at the end of a loop computed from the loop's counter: `everywhere`, to see which elements they mean,
    or where no element lies at them."""
    return updated(k, body=_counted(k.body, everywhere))


def _counted(block: n.Block, everywhere: bool) -> n.Block:
    out = tuple(_nested(s, everywhere) for s in block)
    for alloc in (s for s in out if isinstance(s, n.Alloc) and s.buffer.space == "register" and s.buffer.dtype in (I32, I64) and not s.buffer.shape):
        own, users = n.Load(n.Region(alloc.buffer)), [k for k, s in enumerate(out) if not isinstance(s, n.Alloc) and _uses(s, alloc.buffer)]
        loop = out[users[0]] if len(users) == 1 else None
        if not isinstance(loop, n.For) or alloc.init is None or (not everywhere and _lies_at(loop, own)):
            continue
        if not (build.is_const(loop.lo, 0) and build.is_const(loop.step, 1)):
            continue
        k = next((j for j, s in enumerate(loop.body) if isinstance(s, n.Store) and s.at == own.at), -1)
        last, body = loop.body[k], (*loop.body[:k], *loop.body[k + 1:])
        if k < 0 or not isinstance(last, n.Store) or last.mask is not None or not _is_moved(last.value, own) or _written(body, {alloc.buffer.name}):
            continue
        if not _stays(build.sub(last.value, own), loop) or any(isinstance(x, n.Load) for x in walk(alloc.init)):
            continue
        if not any(_uses(s, alloc.buffer) for s in loop.body[k + 1:]):
            at = build.add(alloc.init, build.mul(build.cast(loop.var, alloc.buffer.dtype), build.sub(last.value, own)))
            out = tuple(replace(loop, body=_with(body, alloc.buffer, at)) if s is loop else s for s in out if s is not alloc)
    return out


def _nested(s: n.Stmt, everywhere: bool) -> n.Stmt:
    return updated(s, body=_counted(s.body, everywhere)) if isinstance(s, n.For) else s


def _lies_at(loop: n.For, own: n.Load) -> bool:
    """Whether an element, or the first of some neighbors, is at the place that a register counts."""
    firsts = [i.lo if isinstance(i, n.Span) else i for x in walk(loop) if isinstance(x, n.Region) and len(x.index) == 1 for i in x.index]
    return any(i in (own, build.cast(own, I64)) for i in firsts)


def _below(s: n.Stmt, made: Callable[[n.Block], n.Block]) -> n.Stmt:
    """A statement with what is made of each of its blocks."""
    match s:
        case n.For() | n.While():
            return updated(s, body=made(s.body))
        case n.If():
            return updated(s, then=made(s.then), orelse=made(s.orelse))
        case n.Roles():
            return updated(s, roles=tuple(updated(r, body=made(r.body)) for r in s.roles))
        case _:
            return s


def _under_its_own_name(block: n.Block, b: n.Buffer, own: set[str]) -> n.Block:
    """The block in which a register that takes over another one of the block, neither of which is written again, is that one from there on."""
    for k, s in enumerate(block):
        if not (isinstance(s, n.Store) and s.at == n.Region(b) and s.mask is None and isinstance(s.value, n.Load) and not s.value.at.index):
            continue
        other, rest, by = s.value.at.buffer, block[k + 1:], s.value
        if other.name not in own or other == b or other.dtype != b.dtype or _written(rest, {b.name, other.name}):
            continue
        return (*block[:k], *_with(rest, b, by))
    return block


def _with(block: n.Block, b: n.Buffer, value: n.Expr) -> n.Block:
    """The statements with a value for what a register holds."""
    own = n.Load(n.Region(b))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return value if new == own else new
    return tuple(transform(x, leave) for x in block)


def _written(block: Iterable[n.Stmt], names: set[str]) -> bool:
    """Whether statements may write one of these registers: store to it, or give its place to a call."""
    for x in (x for s in block for x in walk(s)):
        match x:
            case n.Store() if x.at.buffer.name in names:
                return True
            case n.Copy() if x.dst.buffer.name in names:
                return True
            case n.Mma() | n.Opaque():
                if any(isinstance(y, n.Region) and y.buffer.name in names for y in walk(x)):
                    return True
            case n.Call() if any(isinstance(a, n.Region) and a.buffer.name in names for a in x.args):
                return True
            case _:
                pass
    return False


def _uses(s: n.Node, b: n.Buffer) -> bool:
    return b.name in buffers_named(s) and any(isinstance(x, n.Region) and x.buffer.name == b.name for x in walk(s))


def _from_its_start(block: n.Block, b: n.Buffer) -> n.Block:
    """The block in which a register that is moved before anything reads it starts there."""
    at = next(k for k, s in enumerate(block) if isinstance(s, n.Alloc) and s.buffer == b)
    alloc, own = block[at], n.Load(n.Region(b))
    k = next((j for j in range(at + 1, len(block)) if _uses(block[j], b)), None)
    if k is None or not isinstance(alloc, n.Alloc) or alloc.init is None:
        return block
    s, init = block[k], alloc.init
    if not (isinstance(s, n.Store) and s.at == own.at and s.mask is None and _is_moved(s.value, own)
            and not any(isinstance(x, n.Load) for x in walk(init))):
        return block
    start = build.add(init, build.sub(s.value, own))
    return _from_its_start((*block[:at], *block[at + 1:k], replace(alloc, init=start), *block[k + 1:]), b)


def _is_moved(e: n.Expr, own: n.Load) -> bool:
    """Whether a value is a register's own and something that does not read it."""
    return isinstance(e, n.Binary) and e.op in ("add", "sub") and not any(x == own for x in walk(build.sub(e, own)))


def _at_its_end(loop: n.For, b: n.Buffer) -> n.For:
    """The loop in which a register that is moved in the middle of an iteration is moved at its end, and read with what it is moved by after that."""
    own = n.Load(n.Region(b))
    steps = [k for k, s in enumerate(loop.body) if isinstance(s, n.Store) and s.at == own.at]
    if len(steps) != 1 or sum(isinstance(x, n.Store) and x.at == own.at for x in walk(loop)) != 1:
        return loop
    k = steps[0]
    s, rest = loop.body[k], loop.body[k + 1:]
    if not (isinstance(s, n.Store) and s.mask is None and _is_moved(s.value, own)) or not rest or _written(rest, {b.name}):
        return loop
    by = build.sub(s.value, own)
    if not _stays(by, loop):
        return loop
    return replace(loop, body=(*loop.body[:k], *_with(rest, b, build.add(own, by)), s))


def _stays(by: n.Expr, loop: n.For) -> bool:
    """Whether a value is the same in every iteration of a loop, all of which come to their end: it reads nothing, and names nothing that the loop defines."""
    defined = {loop.var.name, *(name for x in loop.body for y in walk(x) for name in _bound(y))}
    return not any(isinstance(x, (n.Load, n.Call)) for x in walk(by)) and not _names(by) & defined and not any(isinstance(x, n.Jump) for x in walk(loop))


def _names(e: n.Expr) -> set[str]:
    return {x.name for x in walk(e) if isinstance(x, n.Var)}


def _bound(s: n.Node) -> Iterable[str]:
    return s.names if isinstance(s, n.Let) else ()
