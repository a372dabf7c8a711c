"""Loops that count in a variable of their own, which others follow: `for (long i = k; k < n; k += s, i = k)`, as the loop macros of packages write them."""

from __future__ import annotations

from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import dtype_of
from kir.ir.visit import buffers_named, names_read, statements, transform, walk

from .cleanup import names_changed


def counted(body: n.Block) -> n.Block:
    """The block, and those inside, with each such `while` as a `for`."""
    out = [_inside(s) for s in body]
    k = 0
    while k < len(out):
        found = _counting(out, k)
        if found is None:
            k += 1
            continue
        gone = [j for j in range(k) if isinstance(a := out[j], n.Alloc) and a.buffer.name in found.names]
        out[k] = found.loop
        out = [s for j, s in enumerate(out) if j not in gone]
        k -= len(gone)
        k += 1
    return tuple(out)


def _inside(s: n.Stmt) -> n.Stmt:
    match s:
        case n.For() | n.While():
            made = counted(s.body)
            return s if made == s.body else replace(s, body=made)
        case n.If():
            then, orelse = counted(s.then), counted(s.orelse)
            return s if (then, orelse) == (s.then, s.orelse) else replace(s, then=then, orelse=orelse)
        case _:
            return s


@dataclass(frozen=True)
class _Found:
    """The loop, and the registers that its variable stands for."""

    loop: n.For
    names: frozenset[str]


def _counting(block: list[n.Stmt], k: int) -> _Found | None:
    s = block[k]
    if not (isinstance(s, n.While) and isinstance(s.cond, n.Binary) and s.cond.op == "lt" and (counter := _scalar(s.cond.a)) is not None):
        return None
    updates = [x for x in s.body if isinstance(x, n.Store) and x.at == n.Region(counter)]
    at = s.body.index(updates[0]) if len(updates) == 1 else len(s.body)
    followers = [x.at.buffer for x in s.body[at + 1:] if isinstance(x, n.Store) and not x.at.index and _scalar(x.value) == counter and x.mask is None]
    rest, names = s.body[:at], frozenset({counter.name, *(b.name for b in followers)})
    if at + 1 + len(followers) != len(s.body) or any(b.space != "register" or b.shape or b.dtype != counter.dtype for b in followers):
        return None
    step = _added(updates[0], counter)
    changed = {*names, *(name for x in rest for name in names_changed(x)), *bound_names(rest)}
    if step is None or not _is_positive(step) or any((names_read(e) | buffers_named(e)) & changed or _reads_memory(e) for e in (step, s.cond.b)):
        return None
    if any(names_changed(x) & names for x in rest) or any(isinstance(x, n.Jump) and x.kind == "continue" for x in statements(rest)):
        return None
    begun = _begun(block[:k], counter, names)
    if begun is None or any(names & (names_read(x) | buffers_named(x)) for x in block[k + 1:]):
        return None
    var = n.Var(counter.name, counter.dtype)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return var if isinstance(new, n.Load) and _scalar(new) is not None and new.at.buffer.name in names else new
    made = tuple(transform(x, leave) for x in rest)
    if any(names & buffers_named(x) for x in made):
        return None
    return _Found(n.For(var, begun, s.cond.b, step, made, label=s.label, origin=s.origin), names)


def _begun(before: list[n.Stmt], counter: n.Buffer, names: frozenset[str]) -> n.Expr | None:
    """What the counter begins with, where it and its followers are declared so and nothing but declarations stands between."""
    first: n.Expr | None = None
    left = set(names)
    for s in reversed(before):
        if isinstance(s, n.Alloc) and s.buffer.name in left and s.init is not None:
            left.discard(s.buffer.name)
            if s.buffer == counter:
                first = s.init
            elif _scalar(s.init) != counter:
                return None
            if not left:
                return first if first is not None and not _reads_memory(first) else None
        elif not isinstance(s, (n.Alloc, n.Let)) or names & (names_read(s) | buffers_named(s)):
            return None
    return None


def _scalar(e: n.Expr | None) -> n.Buffer | None:
    """The scalar register that an expression reads as it is."""
    plain = isinstance(e, n.Load) and not e.at.index and e.at.buffer.space == "register" and not e.at.buffer.shape and e.mask is None
    return e.at.buffer if plain and isinstance(e, n.Load) else None


def _added(s: n.Store, counter: n.Buffer) -> n.Expr | None:
    v = s.value
    if s.mask is not None or not isinstance(v, n.Binary) or v.op != "add":
        return None
    return v.b if _scalar(v.a) == counter else v.a if _scalar(v.b) == counter else None


def _reads_memory(e: n.Expr) -> bool:
    """Whether an expression reads more than registers that nothing here changes."""
    return any((isinstance(x, n.Load) and x.at.buffer.space not in ("register",)) or (isinstance(x, n.Call) and x.of is not None) for x in walk(e))


def _is_positive(e: n.Expr) -> bool:
    """Whether a step leads up: a literal, or what an unsigned number is (a step of 0 would never end)."""
    value = build.int_value(e)
    if value is not None:
        return value > 0
    if dtype_of(e.type).kind == "uint":
        return True
    return isinstance(e, n.Cast) and dtype_of(e.x.type).is_integer and _is_positive(e.x) and dtype_of(e.x.type).bits < dtype_of(e.type).bits
