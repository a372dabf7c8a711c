"""Unrolled loops that do several things to each element, taken apart: what is elementwise becomes statements on vectors, what is folded
into a variable stays a loop of its own.

Iterations of such a loop touch only their own element of the thread's arrays, so statement after statement over all elements computes what
element after element over all statements does; each variable still takes its terms in the order of the elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.analysis.elements import NotElementwise, tile
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, dtype_of, shape_of
from kir.ir.visit import buffers_named, names_read, substitute, substitute_buffers, walk

from .vectorization import gathers, trips, uses, waits


def distributed(body: n.Block, fresh: Callable[[str], str]) -> n.Block:
    """The block with such loops taken apart; `fresh` gives names that are not taken."""
    out: list[n.Stmt] = []
    for s in body:
        match s:
            case n.For():
                s = replace(s, body=distributed(s.body, fresh))
                made = _apart(s, fresh)
                if made is not None:
                    out += made
                    continue
            case n.While():
                s = replace(s, body=distributed(s.body, fresh))
            case n.If():
                s = replace(s, then=distributed(s.then, fresh), orelse=distributed(s.orelse, fresh))
            case _:
                pass
        out.append(s)
    return tuple(_split_lives(out, fresh))


def _apart(loop: n.For, fresh: Callable[[str], str]) -> list[n.Stmt] | None:
    """The statements of a loop, each over all elements; None for a loop that is not of this kind."""
    count = trips(loop)
    if count is None or not build.is_const(loop.lo, 0):
        return None
    lets: dict[str, n.Expr] = {}
    stores: list[n.Store] = []
    for s in loop.body:
        if isinstance(s, n.Let) and len(s.names) == 1 and not isinstance(s.value.type, TileType) and not waits(s.value):
            lets[s.names[0]] = s.value
        elif isinstance(s, n.Store) and s.mask is None and not s.clip and s.at.buffer.space == "register" and not waits(s.value):
            stores.append(s)
        else:
            return None
    vectors = [s for s in stores if s.at.index == (loop.var,) and build.int_value(s.at.buffer.shape[0]) == count]
    folds = [s for s in stores if not s.at.index and not s.at.buffer.shape]
    if not vectors or len(vectors) + len(folds) != len(stores) or len({s.at.buffer.name for s in vectors}) != len(vectors) or len(stores) < 2:
        return None
    written = {s.at.buffer.name for s in vectors}
    sums = {s.at.buffer.name for s in folds}
    for s in loop.body:
        for x in walk(s):
            if isinstance(x, n.Region) and x.buffer.name in written and x.index != (loop.var,):
                return None
            if isinstance(x, n.Load) and x.at.buffer.name in sums and not (isinstance(s, n.Store) and s in folds and s.at.buffer == x.at.buffer):
                return None
    try:
        return _statements(loop, count, fresh)
    except (NotElementwise, KirError):
        return None


def _statements(loop: n.For, count: int, fresh: Callable[[str], str]) -> list[n.Stmt]:
    """The loop's statements over all elements. Raises NotElementwise."""
    out: list[n.Stmt] = []
    known: dict[str, n.Expr] = {}
    pending = list(loop.body)

    def users(name: str) -> list[n.Stmt]:
        return [s for s in pending if name in names_read(s)]

    def wide(value: n.Expr, at: n.Region) -> n.Expr:
        made = tile(value, [(loop.var, count)])
        if uses(made, loop.var) or gathers(made) or shape_of(made.type) not in ((), (count,)):
            raise NotElementwise("a value that is no vector")
        return made if isinstance(made.type, TileType) or isinstance(made, n.Const) else build.broadcast(made, at.type)

    while pending:
        s = pending.pop(0)
        if isinstance(s, n.Let):
            name, value = s.names[0], substitute(s.value, known)
            readers = users(name)
            kept = next((u for u in readers if isinstance(u, n.Store) and u.at.index and u.value == n.Var(name, value.type)), None)
            if len(readers) < 2:
                known[name] = value
                continue
            if kept is not None and not _touched(pending[:pending.index(kept)], kept.at.buffer.name):
                pending.remove(kept)
                buffer, at = kept.at.buffer, n.Region(kept.at.buffer)
                out.append(n.Store(at, wide(value, at), label=kept.label, origin=kept.origin))
            else:
                buffer = n.Buffer(fresh(name), dtype_of(value.type), (build.const(count),), "register")
                out.append(n.Alloc(buffer, wide(value, n.Region(buffer)), origin=s.origin))
            known[name] = n.Load(n.Region(buffer, (loop.var,)))
            continue
        assert isinstance(s, n.Store)
        value = substitute(s.value, known)
        if s.at.index:
            at = n.Region(s.at.buffer)
            out.append(n.Store(at, wide(value, at), label=s.label, origin=s.origin))
        else:
            last = out[-1] if out else None
            step = replace(s, value=value)
            if isinstance(last, n.For):
                out[-1] = replace(last, body=(*last.body, step))
            else:
                var = n.Var(fresh(loop.var.name), loop.var.of) if any(isinstance(x, n.For) for x in out) else loop.var
                out.append(replace(loop, var=var, body=(step if var == loop.var else substitute(step, {loop.var.name: var}),)))
    return out


def _touched(block: list[n.Stmt], name: str) -> bool:
    return any(isinstance(x, n.Region) and x.buffer.name == name for s in block for x in walk(s))


def _split_lives(body: list[n.Stmt], fresh: Callable[[str], str]) -> list[n.Stmt]:
    """A private array of the block that is overwritten as a whole is another array from there on."""
    out: list[n.Stmt] = []
    mine: dict[str, n.Buffer] = {}
    rest = list(body)
    viewed = {s.at.buffer.name for s in body if isinstance(s, n.View)}  # a view stays on the array that it was made of
    while rest:
        s = rest.pop(0)
        if isinstance(s, n.Alloc) and s.buffer.space == "register" and s.buffer.shape and s.buffer.name not in viewed:
            mine[s.buffer.name] = s.buffer
        if isinstance(s, n.Store) and s.at.buffer.name in mine and not s.at.index and s.mask is None and isinstance(s.value.type, TileType):
            old = s.at.buffer
            before = next((k for k in range(len(out) - 1, -1, -1) if _mentions(out[k], old.name)), None)
            first = out[before] if before is not None else None
            if isinstance(first, n.Alloc) and first.buffer == old and (first.init is None or isinstance(first.init, n.Const)) and before is not None and (
                    not _mentions(s.value, old.name)):
                del out[before]
                out.append(n.Alloc(old, s.value, label=s.label, origin=s.origin))
                continue
            new = replace(old, name=fresh(old.name))
            mine[new.name] = new
            out.append(n.Alloc(new, s.value, label=s.label, origin=s.origin))
            rest = [substitute_buffers(t, {old.name: new}) for t in rest]
            continue
        out.append(s)
    return out


def _mentions(x: n.Node, name: str) -> bool:
    return name in buffers_named(x)


def guarded(body: n.Block) -> n.Block:
    """Branches around stores of vectors alone, as stores under a mask."""
    out: list[n.Stmt] = []
    for s in body:
        match s:
            case n.For() | n.While():
                s = replace(s, body=guarded(s.body))
            case n.If() if not s.orelse and not s.static and len(s.then) > 1 and all(map(_is_plain_store, s.then)) and _is_steady(s):
                out += [replace(x, mask=s.cond) for x in s.then if isinstance(x, n.Store)]
                continue
            case n.If():
                s = replace(s, then=guarded(s.then), orelse=guarded(s.orelse))
            case _:
                pass
        out.append(s)
    return tuple(out)


def _is_plain_store(s: n.Stmt) -> bool:
    """Whether a statement stores a thread's own value to memory."""
    return isinstance(s, n.Store) and s.mask is None and not s.clip and s.at.buffer.space in ("global", "shared") and bool(shape_of(s.at.type)) and not any(
        (isinstance(x, n.Load) and x.at.buffer.space != "register") or (isinstance(x, n.Call) and waits(x)) for x in walk(s.value))


def _is_steady(s: n.If) -> bool:
    """Whether the condition is one of indices, that no store changes."""
    return not any(isinstance(x, (n.Load, n.Call)) for x in walk(s.cond))
