"""What declarations say at once: a fragment that is filled right after it is declared, barriers that are made ready together; and what
a name would stand for after a branch, where nothing asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import is_const
from kir.ir.types import I32
from kir.ir.visit import blocks_of, divides, statements, transform, walk

from .mentions import seen


def with_fills(block: n.Block) -> n.Block:
    """The block with first fills as initial values."""
    out = [_inside(s) for s in block]
    k = 0
    while k < len(out):
        s = out[k]
        if isinstance(s, n.Alloc) and s.init is None and s.buffer.space in ("fragment", "register"):
            for j in range(k + 1, len(out)):
                later = out[j]
                if s.buffer.name not in seen(later).buffers:
                    continue
                if _fills(later, s.buffer):
                    assert isinstance(later, n.Store)
                    value = later.value
                    init = value if not s.buffer.shape else build.broadcast(value, n.Region(s.buffer).type)
                    out[k] = replace(s, init=init)
                    del out[j]
                break
        k += 1
    return tuple(out)


def with_ready_barriers(block: n.Block) -> n.Block:
    """The block with a fence after the last of its barriers is initialized, as TileLang writes it."""
    last = max((k for k, s in enumerate(block) if _readies(s)), default=None)
    if last is None:
        return tuple(replace(s, body=with_ready_barriers(s.body)) if isinstance(s, (n.For, n.While)) else s for s in block)
    return (*block[:last + 1], n.Eval(build.call("fence_mbar_init"), origin=block[last].origin), *block[last + 1:])


def without_unread(block: n.Block, kept: frozenset[str]) -> n.Block:
    """The block without registers that only say what a name stands for after a branch (`kept` are their names), where nothing reads them."""
    while True:
        if any(isinstance(s, n.Opaque) for s in statements(block)):
            return block
        written = {id(s.at) for s in statements(block) if isinstance(s, n.Store)}
        read = {x.buffer.name for s in block for x in walk(s) if isinstance(x, n.Region) and id(x) not in written}
        unread = kept & {s.buffer.name for s in statements(block) if isinstance(s, n.Alloc)} - read
        if not unread:
            return block
        block = _without(block, unread)


def with_conditions(block: n.Block) -> n.Block:
    """The block with branches by their conditions, where a variable that nothing else reads says by a number whether they are taken."""
    out: list[n.Stmt] = []
    for s in block:
        s = _each(s, with_conditions)
        told = _told(out[-2], out[-1], s) if isinstance(s, n.If) and len(out) > 1 else None
        if isinstance(s, n.If) and told is not None and _named(block, out[-2]) == 3:
            del out[-2:]
            s = replace(s, cond=told)
        out.append(s)
    return tuple(out)


def with_quotients(block: n.Block) -> n.Block:
    """The block with names for quotients and rests that a variable holds which is declared right before and not written again."""
    out: list[n.Stmt] = []
    rest = [_each(s, with_quotients) for s in block]
    while rest:
        first, second = rest.pop(0), rest[0] if rest else None
        if isinstance(first, n.Alloc) and isinstance(second, n.Store) and _holds_quotient(first, second) and not any(
                isinstance(x, n.Opaque) or (isinstance(x, n.Store) and x.at.buffer.name == first.buffer.name) for x in statements(tuple(rest[1:]))):
            rest = [transform(s, partial(_by_name, first.buffer)) for s in rest[1:]]
            first = n.Let((first.buffer.name,), second.value, origin=second.origin)
        out.append(first)
    return tuple(out)


def _by_name(b: n.Buffer, old: n.Node, new: n.Node) -> n.Node:
    return n.Var(b.name, b.dtype) if isinstance(new, n.Load) and new.at == n.Region(b) else new


def _holds_quotient(first: n.Alloc, second: n.Store) -> bool:
    b, value = first.buffer, second.value
    plain = b.space == "register" and not b.shape and b.dtype == I32 and first.init is not None and is_const(first.init, 0)
    return plain and second.at == n.Region(b) and second.mask is None and divides(value) and b.name not in seen(value).buffers


def _told(first: n.Stmt, second: n.Stmt, branch: n.If) -> n.Expr | None:
    """The condition of a branch that asks for a register which is declared, and set by that condition, right before it, and not again."""
    if not (isinstance(first, n.Alloc) and first.buffer.space == "register" and isinstance(second, n.Store) and second.mask is None):
        return None
    at, said = n.Region(first.buffer), second.value
    if not (second.at == at and isinstance(said, n.Select) and is_const(said.a, 1) and is_const(said.b, 0)):
        return None
    match branch.cond:
        case n.Binary(op="eq", a=n.Load(at=asked), b=n.Const(value=1)) if asked == at:
            again = any(first.buffer.name in seen(x).buffers for x in (said, *branch.then, *branch.orelse))
            return None if again else said.cond
        case _:
            return None


def _named(block: n.Block, first: n.Stmt) -> int:
    """How many statements of a block name what one of them declares."""
    return sum(isinstance(first, n.Alloc) and first.buffer.name in seen(s).buffers for s in block)


def with_known_effects(block: n.Block, visible: frozenset[str]) -> n.Block:
    """The block with `opaque` text that names what threads keep for themselves as text that may do anything."""
    out: list[n.Stmt] = []
    for s in block:
        match s:
            case n.Alloc() | n.View():
                visible |= {s.buffer.name}
            case n.Let():
                visible |= {*s.names}
            case n.Opaque() if not {*s.reads, *s.writes} <= visible | {"*"}:
                s = replace(s, reads=("*",), writes=("*",))
            case n.For():
                s = replace(s, body=with_known_effects(s.body, visible | {s.var.name}))
            case _ if blocks_of(s):
                s = _each(s, lambda b, seen=visible: with_known_effects(b, seen))  # type: ignore[misc]  # bound now
        out.append(s)
    return tuple(out)


def _without(block: n.Block, names: frozenset[str]) -> n.Block:
    out: list[n.Stmt] = []
    for s in block:
        if (isinstance(s, n.Alloc) and s.buffer.name in names) or (isinstance(s, n.Store) and s.at.buffer.name in names):
            continue
        made = _each(s, lambda b: _without(b, names))
        if not (isinstance(s, n.If) and blocks_of(s) != blocks_of(made) and not any(blocks_of(made))):
            out.append(made)
    return tuple(out)


def in_their_branch(block: n.Block, hoisted: frozenset[str]) -> n.Block:
    """The block with declarations that stand before a static branch for what might come after it (`hoisted`) in the branch again, where
    only one side mentions them."""
    out = list(block)
    for k in range(len(out) - 1, -1, -1):
        s = out[k]
        if not isinstance(s, (n.Alloc, n.View)) or s.buffer.name not in hoisted or (isinstance(s, n.Alloc) and s.init is not None):
            continue
        users = [j for j in range(k + 1, len(out)) if _mentions(out[j], s.buffer.name)]
        user = out[users[0]] if len(users) == 1 else None
        if not isinstance(user, n.If) or not user.static:
            continue
        sides = [any(_mentions(x, s.buffer.name) for x in arm) for arm in (user.then, user.orelse)]
        if sides == [True, False]:
            out[users[0]] = replace(user, then=(s, *user.then))
        elif sides == [False, True]:
            out[users[0]] = replace(user, orelse=(s, *user.orelse))
        else:
            continue
        del out[k]
    return tuple(_each(s, lambda b: in_their_branch(b, hoisted)) for s in out)


def _mentions(s: n.Stmt, name: str) -> bool:
    return any(isinstance(x, n.Buffer) and x.name == name for x in walk(s)) or any(
        isinstance(x, n.Opaque) and (name in x.reads + x.writes or "*" in x.reads + x.writes) for x in walk(s))


def _readies(s: n.Stmt) -> bool:
    """Whether a statement initializes a barrier."""
    if isinstance(s, n.For):
        return any(_readies(x) for x in s.body)
    return isinstance(s, n.Eval) and s.call.fn == "mbar_init"


def _fills(s: n.Stmt, b: n.Buffer) -> bool:
    """Whether a statement gives every element of a buffer one literal value."""
    return isinstance(s, n.Store) and s.at == n.Region(b) and s.mask is None and not s.clip and _is_literal(s.value)


def _is_literal(e: n.Expr) -> bool:
    return isinstance(e, n.Const) or (isinstance(e, n.Cast) and isinstance(e.x, n.Const))


def _inside(s: n.Stmt) -> n.Stmt:
    return _each(s, with_fills) if blocks_of(s) else s


def _each(s: n.Stmt, fn: Callable[[n.Block], n.Block]) -> n.Stmt:
    """A statement with its blocks as `fn` makes them."""
    match s:
        case n.For() | n.While():
            return replace(s, body=fn(s.body))
        case n.If():
            return replace(s, then=fn(s.then), orelse=fn(s.orelse))
        case n.Roles():
            return replace(s, roles=tuple(replace(r, body=fn(r.body)) for r in s.roles))
        case _:
            return s
