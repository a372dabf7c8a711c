"""The ways in which a loop says that its maximum grew: by names for the new maximum and the factor, by the old one kept (and the maximum begun anew,
and raised to the old one at last, with a name for the factor), or by the factor written out and the maximum raised at the end."""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite.match import fresh_var

from ._online_loops import Growth

Spelling = Literal["named", "kept", "late", "reset", "branch"]
SPELLINGS: tuple[Spelling, ...] = ("named", "kept", "late", "reset", "branch")
Named = tuple[int, int, n.Let, n.Let, n.Store]
"""Where the factor and the raising stand in a body; the new maximum, the factor, and the raising."""


def _named(body: n.Block, growth: Growth) -> Named | None:
    for i, s in enumerate(body):
        if not (isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Binary) and s.value.op == "max" and isinstance(s.value.a, n.Load)):
            continue
        held, new = s.value.a, n.Var(s.names[0], s.value.type)
        factor = growth.factor(held, new)
        j = next((k for k, x in enumerate(body) if k > i and isinstance(x, n.Let) and x.value == factor), None)
        k = next((k for k, x in enumerate(body) if isinstance(x, n.Store) and x.at == held.at and x.value == new and x.mask is None), None)
        by, top = body[j] if j is not None else None, body[k] if k is not None else None
        if j is not None and k is not None and isinstance(by, n.Let) and isinstance(top, n.Store) and k > j:
            return j, k, s, by, top
    return None


def _replaced(s: n.Stmt, old: n.Expr, new: n.Expr) -> n.Stmt:
    out: n.Stmt = transform(s, lambda x, y: new if y == old else y)
    return out


def respelled(body: n.Block, growth: Growth, spelling: Spelling, taken: set[str]) -> n.Block:
    """A loop's body with names for the new maximum and the factor, in another spelling."""
    found = _named(body, growth)
    if spelling == "named" or found is None:
        return body
    j, k, grown, scale, top = found
    held, new, by = n.Load(top.at), n.Var(grown.names[0], grown.value.type), n.Var(scale.names[0], scale.value.type)
    rest = [s for x, s in enumerate(body) if x not in (j, k)]
    if spelling == "branch":
        return _in_branch(rest, grown, scale, top)
    if spelling == "late":
        return (*(_replaced(s, by, scale.value) for s in rest), top)
    before = fresh_var("before", taken, held.type)
    factor = growth.factor(before, held)
    out: list[n.Stmt] = [n.Let((before.name,), held)]
    for s in rest:
        if s is not grown:
            out.append(_replaced(s if spelling == "reset" else _replaced(s, by, factor), new, held))
        elif spelling == "reset":
            lowest = build.const(-math.inf, dtype_of(held.type))
            out += [n.Store(top.at, lowest), n.Store(top.at, grown.value), n.Store(top.at, build.binary("max", held, before), label=top.label),
                    n.Let(scale.names, factor)]
        else:
            out.append(n.Store(top.at, grown.value, label=top.label))
    return tuple(out)


def _in_branch(rest: list[n.Stmt], grown: n.Let, scale: n.Let, top: n.Store) -> n.Block:
    """The sums are scaled, and the maximum is raised, only where a value is above it."""
    assert isinstance(grown.value, n.Binary)
    held, value = grown.value.a, grown.value.b
    new, by = n.Var(grown.names[0], grown.value.type), n.Var(scale.names[0], scale.value.type)
    sums = [s for s in rest if _scaled(s, by) is not None]
    raised = [n.Store(s.at, build.binary("mul", n.Load(s.at), substitute(scale.value, {new.name: value}))) for s in sums if isinstance(s, n.Store)]
    branch = n.If(build.compare("gt", value, held), (*raised, n.Store(top.at, value)), label=top.label)
    out: list[n.Stmt] = []
    for s in rest:
        added = _scaled(s, by)
        if s is grown:
            out.append(branch)
        elif added is not None and isinstance(s, n.Store):
            out.append(replace(s, value=_replaced_in(build.binary("add", n.Load(s.at), added), new, held)))
        else:
            out.append(_replaced(s, new, held))
    return tuple(out)


def _scaled(s: n.Stmt, by: n.Var) -> n.Expr | None:
    """What a statement adds to a sum that it scales: `sum = sum * by + value`."""
    v = s.value if isinstance(s, n.Store) and s.mask is None and not s.at.index else None
    return v.b if isinstance(s, n.Store) and isinstance(v, n.Binary) and v.op == "add" and v.a == build.binary("mul", n.Load(s.at), by) else None


def _replaced_in(e: n.Expr, old: n.Expr, new: n.Expr) -> n.Expr:
    made: n.Expr = transform(e, lambda _, x: new if x == old else x)
    return made


def _from_branch(body: n.Block, growth: Growth, taken: set[str]) -> n.Block | None:
    """The inverse of `_in_branch`."""
    at = next((k for k, s in enumerate(body) if isinstance(s, n.If) and not s.orelse and len(s.then) > 1), None)
    branch = body[at] if at is not None else None
    if at is None or not isinstance(branch, n.If) or not isinstance(top := branch.then[-1], n.Store) or top.at.index or top.mask is not None:
        return None
    held, value = n.Load(top.at), top.value
    if branch.cond != build.compare("gt", value, held):
        return None
    grown = fresh_var("grown", taken, value.type)
    factor = growth.factor(held, grown)
    scale = fresh_var("scale", taken, factor.type)
    sums = {s.at for s in branch.then[:-1] if isinstance(s, n.Store) and s.value == build.binary("mul", n.Load(s.at), substitute(factor, {grown.name: value}))}
    if len(sums) != len(branch.then) - 1 or any(held in walk(s) for s in body[:at]):
        return None
    rest: list[n.Stmt] = []
    for s in body[at + 1:]:
        if isinstance(s, n.Store) and s.at in sums:
            if not (isinstance(s.value, n.Binary) and s.value.op == "add" and s.value.a == n.Load(s.at)):
                return None
            rest.append(replace(s, value=build.binary("add", build.binary("mul", s.value.a, scale), _replaced_in(s.value.b, held, grown))))
        else:
            rest.append(_replaced(s, held, grown))
    lets = (n.Let((grown.name,), build.binary("max", held, value)), n.Let((scale.name,), factor), replace(top, value=grown, label=branch.label))
    return (*body[:at], *lets, *rest)


def _once_named(body: n.Block) -> n.Block | None:
    """A body without the one name that is just another one's; None where there is none."""
    k = next((k for k, s in enumerate(body) if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Var)), None)
    again = body[k] if k is not None else None
    if k is None or not isinstance(again, n.Let):
        return None
    name = again.names[0]
    return tuple(substitute(s, {name: again.value}) for j, s in enumerate(body) if j != k)


def _from_reset(body: n.Block) -> n.Block | None:
    """A body in which the maximum goes on from what it was, instead of beginning anew and being raised to it at last."""
    stores = [k for k, s in enumerate(body) if isinstance(s, n.Store) and s.mask is None and not s.at.index]
    for a in stores:
        first = body[a]
        mine = [k for k in stores if isinstance(x := body[k], n.Store) and isinstance(first, n.Store) and x.at == first.at]
        if mine[:1] != [a] or len(mine) != 3 or not isinstance(first, n.Store):
            continue
        held, (_, b, c) = n.Load(first.at), mine
        second, third = body[b], body[c]
        kept = next((s for s in body[:a] if isinstance(s, n.Let) and s.value == held), None)
        if not (isinstance(first.value, n.Const) and first.value.value == -math.inf and kept is not None
                and isinstance(second, n.Store) and isinstance(third, n.Store)):
            continue
        before = n.Var(kept.names[0], held.type)
        if isinstance(second.value, n.Binary) and second.value.op == "max" and second.value.a == held and third.value == build.binary("max", held, before):
            return tuple(replace(second, label=third.label) if k == b else s for k, s in enumerate(body) if k not in (a, c))
    return None


def named(body: n.Block, growth: Growth, spelling: Spelling, taken: set[str]) -> n.Block | None:
    """The inverse of `respelled`; None for a body that is not spelled so."""
    if spelling == "named":
        return body
    if spelling == "late":
        return _from_late(body, growth, taken)
    if spelling == "branch":
        return _from_branch(body, growth, taken)
    again = _from_reset(body) if spelling == "reset" else body
    found = None if again is None else _from_kept(again, growth, taken)
    return found if spelling == "kept" or found is None else _once_named(found)


def _from_late(body: n.Block, growth: Growth, taken: set[str]) -> n.Block | None:
    last = body[-1] if body else None
    if not (isinstance(last, n.Store) and isinstance(last.value, n.Var) and last.mask is None):
        return None
    held, new = n.Load(last.at), last.value
    at = next((i for i, s in enumerate(body) if isinstance(s, n.Let) and s.names == (new.name,)), None)
    grown = body[at] if at is not None else None
    if at is None or not (isinstance(grown, n.Let) and isinstance(grown.value, n.Binary) and grown.value.op == "max" and grown.value.a == held):
        return None
    factor = growth.factor(held, new)
    scale = fresh_var("scale", taken, factor.type)
    rest = [_replaced(s, factor, scale) for s in body[at + 1:-1]]
    if not any(scale.name in names_read(s) for s in rest) or any(held in walk(s) for s in (*body[:at], *rest)):
        return None
    return (*body[:at + 1], n.Let((scale.name,), factor), last, *rest)


def _from_kept(body: n.Block, growth: Growth, taken: set[str]) -> n.Block | None:
    for i, s in enumerate(body):
        if not (isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Load) and s.value == n.Load(s.value.at) and not s.value.at.index):
            continue
        held, before = s.value, n.Var(s.names[0], s.value.type)
        at = next((k for k, x in enumerate(body) if k > i and isinstance(x, n.Store) and x.at == held.at and x.mask is None), None)
        top = body[at] if at is not None else None
        if at is None or not (isinstance(top, n.Store) and isinstance(top.value, n.Binary) and top.value.op == "max" and top.value.a == held):
            continue
        grown = fresh_var("grown", taken, top.value.type)
        factor = growth.factor(before, held)
        scale = fresh_var("scale", taken, factor.type)
        rest = [_replaced(_replaced(x, factor, scale), held, grown) for x in body[at + 1:]]
        ahead = [x for k, x in enumerate(body[:at]) if k != i]
        if not any(scale.name in names_read(x) for x in rest) or any(before.name in names_read(x) for x in (*ahead, *rest)) or any(
                held in walk(x) for x in ahead) or any(isinstance(y, n.Store) and y.at == held.at for x in rest for y in walk(x)):
            continue
        lets = (n.Let((grown.name,), top.value), n.Let((scale.name,), growth.factor(held, grown)), n.Store(
            top.at, grown, label=top.label))
        return (*ahead, *lets, *rest)
    return None
