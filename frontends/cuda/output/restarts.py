"""Variables that begin again at a literal, as a sum for one thing and then for another: a variable of its own from there on. And names for a thread's place
in a tile with a border (`int lx = threadIdx.x + 1`): written out, since what is read beside it is a place of its own (`s[lx - 1]`)."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import buffers_named, names_read, statements, substitute, substitute_buffers, walk


def restarted(body: n.Block, fresh: Callable[[str], str]) -> n.Block:
    """The block, and those inside, with each scalar that is set to a literal in the block that declares it, after it has been used and before a loop, declared
    anew there."""
    out = [_inside(s, fresh) for s in body]
    for k, s in enumerate(out):
        if isinstance(s, n.Alloc) and _is_scalar(s.buffer):
            again = [j for j in range(k + 1, len(out)) if _begins(out[j], s.buffer) and all(_is_folded(p, s.buffer) for p in (out[k + 1:j], out[j + 1:]))]
            if again:
                j, x = again[-1], out[again[-1]]
                assert isinstance(x, n.Store)
                own = replace(s.buffer, name=fresh(s.buffer.name))
                out[j:] = [n.Alloc(own, x.value, origin=x.origin), *(substitute_buffers(y, {s.buffer.name: own}) for y in out[j + 1:])]
                return restarted(tuple(out), fresh)
    return tuple(out)


def bordered(body: n.Block, own: frozenset[str]) -> n.Block:
    """The block with each name for a thread's place in a tile, plus a literal, written out. `own` are the names of what is another number in each thread."""
    out: list[n.Stmt] = []
    values: dict[str, n.Expr] = {}
    for s in body:
        if values:
            s = substitute(s, values)
        if isinstance(s, n.For) and s.kind == "thread":
            s = replace(s, body=bordered(s.body, own | {s.var.name}))
        elif isinstance(s, n.Let) and len(s.names) == 1 and s.value.type == I32 and names_read(s.value) & own and not any(
                isinstance(x, (n.Load, n.Call, n.Select)) for x in walk(s.value)):
            if _is_bordered(s.value):
                values[s.names[0]] = s.value
                continue
            own |= {s.names[0]}
        out.append(s)
    return tuple(out)


def _is_bordered(e: n.Expr) -> bool:
    """Whether a number is a name, a quotient or a remainder, and a literal more."""
    terms = build.polynomial(e)
    more = [m for m in terms if m]
    return len(terms) == 2 and len(more) == 1 and len(more[0]) == 1 and terms[more[0]] == 1


def _inside(s: n.Stmt, fresh: Callable[[str], str]) -> n.Stmt:
    match s:
        case n.For() | n.While():
            body = restarted(s.body, fresh)
            return s if body == s.body else replace(s, body=body)
        case n.If():
            then, orelse = restarted(s.then, fresh), restarted(s.orelse, fresh)
            return s if (then, orelse) == (s.then, s.orelse) else replace(s, then=then, orelse=orelse)
        case _:
            return s


def _is_scalar(b: n.Buffer) -> bool:
    return b.space == "register" and not b.shape and b.dtype.is_float


def _begins(s: n.Stmt, b: n.Buffer) -> bool:
    """Whether a statement sets a scalar to a literal."""
    return isinstance(s, n.Store) and s.at == n.Region(b) and s.mask is None and isinstance(s.value, n.Const) and build.int_value(s.value) is None


def _is_folded(block: list[n.Stmt], b: n.Buffer) -> bool:
    """Whether a loop of a block is the first that changes a scalar there: what comes before does not use it. One over shared memory goes on with what threads
    have found, and its scalar is theirs."""
    first = next((s for s in block if b.name in buffers_named(s)), None)
    if isinstance(first, n.If) and not first.orelse and b.name not in buffers_named(first.cond):
        return _is_folded([*first.then], b)
    return isinstance(first, n.For) and any(isinstance(x, n.Store) and x.at == n.Region(b) for x in statements(first.body)) and not any(
        isinstance(x, n.Load) and x.at.buffer.space == "shared" for x in walk(first))
