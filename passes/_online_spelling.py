"""The ways in which a loop says that its maximum grew: by names for the new maximum and the factor, by the old one kept, or by the factor written
out and the maximum raised at the end."""
from __future__ import annotations

from typing import Literal

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import names_read, transform, walk
from kir.rewrite.edit import fresh

Spelling = Literal["named", "kept", "late"]
SPELLINGS: tuple[Spelling, ...] = ("named", "kept", "late")
Named = tuple[int, int, n.Let, n.Let, n.Store]
"""Where the factor and the raising stand in a body; the new maximum, the factor, and the raising."""


def _named(body: n.Block, base: str) -> Named | None:
    for i, s in enumerate(body):
        if not (isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Binary) and s.value.op == "max" and isinstance(s.value.a, n.Load)):
            continue
        held, new = s.value.a, n.Var(s.names[0], s.value.type)
        factor = build.call(base, build.binary("sub", held, new))
        j = next((k for k, x in enumerate(body) if k > i and isinstance(x, n.Let) and x.value == factor), None)
        k = next((k for k, x in enumerate(body) if isinstance(x, n.Store) and x.at == held.at and x.value == new and x.mask is None), None)
        by, top = body[j] if j is not None else None, body[k] if k is not None else None
        if j is not None and k is not None and isinstance(by, n.Let) and isinstance(top, n.Store) and k > j:
            return j, k, s, by, top
    return None


def _replaced(s: n.Stmt, old: n.Expr, new: n.Expr) -> n.Stmt:
    out: n.Stmt = transform(s, lambda x, y: new if y == old else y)
    return out


def respelled(body: n.Block, base: str, spelling: Spelling, taken: set[str]) -> n.Block:
    """A loop's body with names for the new maximum and the factor, in another spelling."""
    found = _named(body, base)
    if spelling == "named" or found is None:
        return body
    j, k, grown, scale, top = found
    held, new, by = n.Load(top.at), n.Var(grown.names[0], grown.value.type), n.Var(scale.names[0], scale.value.type)
    rest = [s for x, s in enumerate(body) if x not in (j, k)]
    if spelling == "late":
        return (*(_replaced(s, by, scale.value) for s in rest), top)
    before = n.Var(fresh("before", taken), held.type)
    factor = build.call(base, build.binary("sub", before, held))
    out: list[n.Stmt] = [n.Let((before.name,), held)]
    for s in rest:
        out.append(n.Store(top.at, grown.value, label=top.label) if s is grown else _replaced(_replaced(s, by, factor), new, held))
    return tuple(out)


def named(body: n.Block, base: str, spelling: Spelling, taken: set[str]) -> n.Block | None:
    """The inverse of `respelled`; None for a body that is not spelled so."""
    if spelling == "named":
        return body
    return _from_late(body, base, taken) if spelling == "late" else _from_kept(body, base, taken)


def _from_late(body: n.Block, base: str, taken: set[str]) -> n.Block | None:
    last = body[-1] if body else None
    if not (isinstance(last, n.Store) and isinstance(last.value, n.Var) and last.mask is None):
        return None
    held, new = n.Load(last.at), last.value
    at = next((i for i, s in enumerate(body) if isinstance(s, n.Let) and s.names == (new.name,)), None)
    grown = body[at] if at is not None else None
    if at is None or not (isinstance(grown, n.Let) and isinstance(grown.value, n.Binary) and grown.value.op == "max" and grown.value.a == held):
        return None
    factor = build.call(base, build.binary("sub", held, new))
    scale = n.Var(fresh("scale", taken), factor.type)
    rest = [_replaced(s, factor, scale) for s in body[at + 1:-1]]
    if not any(scale.name in names_read(s) for s in rest) or any(held in walk(s) for s in (*body[:at], *rest)):
        return None
    return (*body[:at + 1], n.Let((scale.name,), factor), last, *rest)


def _from_kept(body: n.Block, base: str, taken: set[str]) -> n.Block | None:
    for i, s in enumerate(body):
        if not (isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Load) and s.value == n.Load(s.value.at) and not s.value.at.index):
            continue
        held, before = s.value, n.Var(s.names[0], s.value.type)
        at = next((k for k, x in enumerate(body) if k > i and isinstance(x, n.Store) and x.at == held.at and x.mask is None), None)
        top = body[at] if at is not None else None
        if at is None or not (isinstance(top, n.Store) and isinstance(top.value, n.Binary) and top.value.op == "max" and top.value.a == held):
            continue
        grown = n.Var(fresh("grown", taken), top.value.type)
        factor = build.call(base, build.binary("sub", before, held))
        scale = n.Var(fresh("scale", taken), factor.type)
        rest = [_replaced(_replaced(x, factor, scale), held, grown) for x in body[at + 1:]]
        ahead = [x for k, x in enumerate(body[:at]) if k != i]
        if not any(scale.name in names_read(x) for x in rest) or any(before.name in names_read(x) for x in (*ahead, *rest)) or any(
                held in walk(x) for x in ahead) or any(isinstance(y, n.Store) and y.at == held.at for x in rest for y in walk(x)):
            continue
        lets = (n.Let((grown.name,), top.value), n.Let((scale.name,), build.call(base, build.binary("sub", held, grown))), n.Store(
            top.at, grown, label=top.label))
        return (*ahead, *lets, *rest)
    return None
