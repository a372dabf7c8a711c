"""The body that was read, without the traces of reading it: parameters copied in and back, fills written piece by piece."""

from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import children, substitute, substitute_buffers, walk


def tidied(body: n.Block) -> n.Block:
    """The block with such copies and pieces joined; idempotent."""
    while True:
        made = _block(body)
        if made == body:
            return made
        body = made


def _block(body: n.Block) -> n.Block:
    out = [_inner(s) for s in body]
    out = _filled(out)
    out = _begun(out)
    return tuple(_merged(_unnamed(out)))


def _inner(s: n.Stmt) -> n.Stmt:
    match s:
        case n.For() | n.While():
            return replace(s, body=_block(s.body))
        case n.If():
            return replace(s, then=_block(s.then), orelse=_block(s.orelse))
        case _:
            return s


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
    for s in body:
        at = next((k for k in range(len(out) - 1, -1, -1) if isinstance(s, n.Store) and _mentions(out[k], s.at.buffer.name)), -1)
        movable = at == len(out) - 1 or (isinstance(s, n.Store) and isinstance(s.value, n.Const))
        last = out[at] if at >= 0 and movable else None
        if (
            isinstance(s, n.Store)
            and at >= 0
            and isinstance(last, n.Alloc)
            and last.init is None
            and last.buffer == s.at.buffer
            and not s.at.index
            and s.mask is None
            and s.at.buffer.space == "register"
            and (not s.at.buffer.shape or isinstance(s.value, n.Const))
            and not _mentions(s.value, s.at.buffer.name)
        ):
            out[at] = replace(last, init=s.value)
            continue
        out.append(s)
    return out


def _unnamed(body: list[n.Stmt]) -> list[n.Stmt]:
    """Names of a variable's value that are only used before it changes give way to the variable."""
    out: list[n.Stmt] = []
    rest = list(body)
    while rest:
        s = rest.pop(0)
        source = _whole(s.value) if isinstance(s, n.Let) and len(s.names) == 1 else None
        if isinstance(s, n.Let) and source is not None and _stays(rest, s.names[0], source.name):
            rest = [substitute(t, {s.names[0]: s.value}) for t in rest]
            continue
        out.append(s)
    return out


def _stays(rest: list[n.Stmt], name: str, source: str) -> bool:
    """Whether every use of a name comes before the variable that it stands for is written."""
    written = False
    for t in rest:
        used = any(isinstance(x, n.Var) and x.name == name for x in walk(t))
        writes = _writes(t, source)
        if used and (written or (writes and not isinstance(t, n.Store))):
            return False
        written = written or writes
    return True


def _writes(s: n.Stmt, name: str) -> bool:
    """Whether a statement may change a variable: any mention of it but a read of its value."""

    def mentioned(x: n.Node) -> bool:
        if isinstance(x, n.Load) and _whole(x) is not None:
            return False
        if isinstance(x, n.Region) and x.buffer.name == name:
            return True
        return any(mentioned(c) for c in children(x))

    return mentioned(s)


def _mentions(x: n.Node, name: str) -> bool:
    return any(isinstance(y, n.Buffer) and y.name == name for y in walk(x))


def _whole(e: n.Expr | None) -> n.Buffer | None:
    if isinstance(e, n.Load) and not e.at.index and e.mask is None and e.at.buffer.space == "register":
        return e.at.buffer
    return None


def _merged(body: list[n.Stmt]) -> list[n.Stmt]:
    """`register v = top; .. v ..; top = v`, where nothing in between mentions `top` and nothing afterwards `v`: `.. top ..`."""
    for k, s in enumerate(body):
        if not isinstance(s, n.Alloc) or s.init is None or s.buffer.shape:
            continue
        source = _whole(s.init)
        if source is None or source.dtype != s.buffer.dtype or source.shape:
            continue
        for j in range(k + 1, len(body)):
            t = body[j]
            back = t if isinstance(t, n.Store) and t.at == n.Region(source) and t.mask is None else None
            if back is not None and _whole(back.value) == s.buffer:
                if any(_mentions(x, s.buffer.name) for x in body[j + 1 :]):
                    break
                between = [substitute_buffers(x, {s.buffer.name: source}) for x in body[k + 1 : j]]
                return _merged([*body[:k], *between, *body[j + 1 :]])
            if _mentions(t, source.name):
                break
    return body

