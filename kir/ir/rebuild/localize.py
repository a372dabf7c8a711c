"""Buffers of a team brought to where they are used: a declaration sinks into the one block that uses it, and a fragment of one element is a scalar.

Surfaces that declare everything at the head of a kernel say nothing by that; what is left is what a value lives through.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.visit import blocks_of, buffers_named, transform, walk

PRIVATE = ("fragment", "register")


def localized(body: n.Block) -> n.Block:
    """The block with such declarations moved and such fragments replaced. A block that holds `opaque` text stays as it is."""
    if any(isinstance(x, n.Opaque) for s in body for x in walk(s)):
        return body
    return _sunk(_scalars(body))


# ------------------------------------------------------------------------------------------------------------------------- scalars

def _scalars(body: n.Block) -> n.Block:
    """Fragments of one element, all of whose uses name that element, as scalars of the team."""
    ones = {s.buffer.name: s.buffer for s in _all(body) if isinstance(s, n.Alloc) and s.init is None and s.buffer.space == "fragment"
            and s.buffer.layout is None and s.buffer.shape and all(isinstance(d, n.Const) and d.value == 1 for d in s.buffer.shape)}
    for s in body:
        for x in walk(s):
            if isinstance(x, n.Region) and x.buffer.name in ones and not _first(x):
                del ones[x.buffer.name]
    if not ones:
        return body

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Region() if new.buffer.name in ones:
                return n.Region(new.buffer)
            case n.Buffer() if new.name in ones:
                return replace(new, shape=(), space="register")
            case _:
                return new
    made: n.Block = tuple(transform(s, leave) for s in body)
    return made


def _first(at: n.Region) -> bool:
    """Whether a region is the one element of its buffer, by index."""
    return bool(at.index) and all(isinstance(i, n.Const) and i.value == 0 for i in at.index)


def _all(body: n.Block) -> list[n.Stmt]:
    return [x for s in body for x in walk(s) if isinstance(x, n.Stmt)]


# --------------------------------------------------------------------------------------------------------------------- declarations

def _sunk(body: n.Block) -> n.Block:
    """Declarations without a value, each in the innermost block that holds all its uses and begins by writing all of it."""
    out: list[n.Stmt | None] = list(body)
    where = positions(body)
    for k in reversed(range(len(body))):
        s = body[k]
        if isinstance(s, n.Alloc) and s.init is None and s.buffer.space in PRIVATE:
            users = [i for i in where[s.buffer.name] if i != k and out[i] is not None]
            user = out[users[0]] if len(users) == 1 else None
            if user is not None and (into := _into(user, s)) is not None:
                out[users[0]], out[k] = into, None
    return tuple(_inside(s) for s in _begun([s for s in out if s is not None]))


def positions(body: Sequence[n.Stmt]) -> dict[str, list[int]]:
    """Where in a block, by position, each buffer is declared or referred to."""
    out: dict[str, list[int]] = {}
    for k, s in enumerate(body):
        for name in buffers_named(s):
            out.setdefault(name, []).append(k)
    return out


def _begun(block: list[n.Stmt]) -> list[n.Stmt]:
    """A declaration and the constant that is stored everywhere right after it, as one."""
    out: list[n.Stmt] = []
    for s in block:
        last = out[-1] if out else None
        if isinstance(last, n.Alloc) and last.init is None and last.buffer.space in PRIVATE and isinstance(s, n.Store) and isinstance(
                s.value, n.Const) and _writes_all(s, last.buffer.name) and s.value.dtype == last.buffer.dtype:
            out[-1] = replace(last, init=s.value)
        else:
            out.append(s)
    return out


def _inside(s: n.Stmt) -> n.Stmt:
    match s:
        case n.For() | n.While():
            made = _sunk(s.body)
            return s if made == s.body else replace(s, body=made)
        case n.If():
            then, orelse = _sunk(s.then), _sunk(s.orelse)
            return s if (then, orelse) == (s.then, s.orelse) else replace(s, then=then, orelse=orelse)
        case n.Roles():
            return replace(s, roles=tuple(replace(r, body=_sunk(r.body)) for r in s.roles))
        case _:
            return s


def _into(s: n.Stmt, declared: n.Alloc) -> n.Stmt | None:
    """A compound statement with a declaration moved into the one of its blocks that uses it; None where that may change something."""
    name = declared.buffer.name
    blocks = [b for b in blocks_of(s) if any(_mentions(t, name) for t in b)]
    if len(blocks) != 1 or (isinstance(s, n.For) and s.kind in ("thread", "warp", "warpgroup")):
        return None
    block = blocks[0]
    at = next(i for i, t in enumerate(block) if _mentions(t, name))
    first = block[at]
    if not _writes_all(first, name) and not (blocks_of(first) and _into(first, declared) is not None and sum(_mentions(t, name) for t in block) == 1):
        return None
    made = (*block[:at], declared, *block[at:])
    match s:
        case n.For() | n.While():
            if isinstance(s, n.For) and any(_named(x, name) for x in (s.lo, s.hi, s.step)):
                return None
            return replace(s, body=made)
        case n.If() if not _named(s.cond, name):
            return replace(s, then=made) if block is s.then else replace(s, orelse=made)
        case n.Roles():
            return replace(s, roles=tuple(replace(r, body=made) if r.body is block else r for r in s.roles))
        case _:
            return None


def _writes_all(s: n.Stmt, name: str) -> bool:
    """Whether a statement writes every element of a buffer and reads none."""
    match s:
        case n.Store():
            return s.at.buffer.name == name and not s.at.index and s.mask is None and not s.clip and not _named(s.value, name)
        case n.Copy():
            return s.dst.buffer.name == name and not s.dst.index and s.mask is None and s.signal is None and not _named(s.src, name)
        case _:
            return False


def _mentions(s: n.Stmt, name: str) -> bool:
    return _named(s, name)


def _named(x: n.Node, name: str) -> bool:
    return name in buffers_named(x)
