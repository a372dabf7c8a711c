"""What a value is in the rows of the last panel that lie past the end of the loop: nothing that a sum or a maximum would notice, or unknown."""
from __future__ import annotations

import math
from typing import Literal

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import buffers_named, names_read, walk

Past = Literal["zero", "lowest"]
FOLDS_NOTHING: dict[str, Past] = {"add": "zero", "max": "lowest"}
"""What an operation folds in without effect."""


def past_end(loop: n.For, e: n.Expr) -> Past | None:
    """What `e` is for values of the loop's variable past its end, where loads are clipped to zero; None where that is not known."""
    lets = {s.names[0]: s.value for s in loop.body if isinstance(s, n.Let) and len(s.names) == 1}
    return _past(loop, lets, e)


def _past(loop: n.For, lets: dict[str, n.Expr], e: n.Expr) -> Past | None:
    def of(x: n.Expr | n.Region) -> Past | None:
        return _past(loop, lets, x) if isinstance(x, n.Expr) else None

    match e:
        case n.Const():
            return "zero" if e.value == 0 else "lowest" if e.value == -math.inf else None
        case n.Var() if e.name in lets:
            return of(lets[e.name])
        case n.Select():
            return of(e.b) if _is_bound(loop, e.cond) else of(e.a) if of(e.a) == of(e.b) else None
        case n.Cast():
            return of(e.x)
        case n.Load() if (start := _begins_with(loop, e.at.buffer.name)) is not None:
            return "lowest" if of(start) == "lowest" else None
        case n.Load():
            ends = [i == loop.var and d == loop.hi for i, d in zip(e.at.index, e.at.buffer.shape, strict=False)]
            return "zero" if e.at.buffer.space == "global" and any(ends) and e.other is None else None
        case n.Call(fn="expand" | "trans" | "broadcast" | "pick"):
            return of(e.args[0])
        case n.Call(fn="exp" | "exp2"):
            return "zero" if of(e.args[0]) == "lowest" else None
        case n.Binary(op="mul"):
            both = {of(e.a), of(e.b)}
            scaled = of(e.a) if isinstance(e.b, n.Const) and 0 < e.b.value < math.inf else None
            return scaled or ("zero" if both == {"zero"} else None)
        case n.Binary(op="sub"):
            return "lowest" if of(e.a) == "lowest" and loop.var.name not in _depends(lets, e.b) else None
        case _:
            return None


def _begins_with(loop: n.For, name: str) -> n.Expr | None:
    """What memory of an iteration begins with, where all that happens to it is that something is added."""
    alloc = next((s for s in loop.body if isinstance(s, n.Alloc) and s.buffer.name == name), None)
    writes = [x for s in loop.body for x in walk(s) if isinstance(x, n.Store) and x.at.buffer.name == name]
    products = any(isinstance(x, n.Mma) and x.acc.buffer.name == name for s in loop.body for x in walk(s))
    if alloc is None:
        return None
    start = alloc.init
    if start is None and writes and writes[0] in loop.body and not writes[0].at.index and name not in buffers_named(writes[0].value):
        start, writes = writes[0].value, writes[1:]
    adds = all(isinstance(x.value, n.Binary) and x.value.op == "add" and x.value.a == n.Load(x.at) for x in writes)
    return start if adds and (writes or products) else None


def _is_bound(loop: n.For, cond: n.Expr) -> bool:
    """Whether a condition fails past the end of the loop."""
    wanted = build.compare("lt", loop.var, loop.hi)
    return cond == wanted or (isinstance(cond, n.Binary) and cond.op == "and" and (_is_bound(loop, cond.a) or _is_bound(loop, cond.b)))


def _depends(lets: dict[str, n.Expr], e: n.Expr) -> frozenset[str]:
    """The names that a value is computed from, through the lets of the loop."""
    found = names_read(e)
    for name in found & lets.keys():
        found = found | _depends(lets, lets[name])
    return found
