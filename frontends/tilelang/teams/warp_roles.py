"""Branches on the thread's number, worked out for every warp: which warps take which way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of

from .divergence import Taint

WARP = 32
MOST_THREADS = 1024


def role_parts(block: n.Block, thread: str, threads: n.Expr, taint: Taint) -> list[tuple[int, int, n.Block]] | None:
    """The ranges of warps that go through branches alike, each with the statements that it executes; None where a condition depends on
    more than the thread's number, or parts a warp. A branch that parts a warp stays where a single thread may do all that stands in it."""
    count = build.int_value(threads)
    if count is None or count % WARP or not 0 < count <= MOST_THREADS:
        return None
    branches = [x for s in block for x in _branches(s, taint)]
    conditions: list[n.Expr] = []
    tables: list[list[bool]] = []
    for c in dict.fromkeys(s.cond for s in branches):
        values = []
        for t in range(count):
            found = evaluated(c, {thread: t}, taint.definitions)
            if found is None:
                return None
            values.append(bool(found))
        warps = [values[w * WARP:(w + 1) * WARP] for w in range(count // WARP)]
        if any(len(set(w)) > 1 for w in warps):
            if all(taint.of_one(s) for s in branches if s.cond == c):
                continue
            return None
        conditions.append(c)
        tables.append([w[0] for w in warps])
    if not conditions:
        return None
    out: list[tuple[int, int, n.Block]] = []
    lo = 0
    for w in range(1, count // WARP + 1):
        if w == count // WARP or any(t[w] != t[lo] for t in tables):
            decided = {c: t[lo] for c, t in zip(conditions, tables, strict=True)}
            out.append((lo, w, _taken(block, decided)))
            lo = w
    return out


def with_nested_conditions(block: n.Block, thread: str, taint: Taint) -> n.Block:
    """The block with each branch around something collective on `a & b`, of which one part follows from the thread's number and the other has nothing to do
    with it, as two, one in the other."""
    out: list[n.Stmt] = []
    for s in block:
        match s:
            case n.If():
                then, orelse = (with_nested_conditions(x, thread, taint) for x in (s.then, s.orelse))
                s = replace(s, then=then, orelse=orelse)
                parts = _conjuncts(s.cond) if not orelse and taint.touches(s.cond) and taint.collective(s) else []
                own = [c for c in parts if evaluated(c, {thread: 0}, taint.definitions) is not None]
                rest = [c for c in parts if c not in own]
                if own and rest and not any(taint.touches(c) for c in rest):
                    s = replace(s, cond=_all(own), then=(n.If(_all(rest), then, origin=s.origin),))
            case n.For() | n.While():
                s = replace(s, body=with_nested_conditions(s.body, thread, taint))
            case _:
                pass
        out.append(s)
    return tuple(out)


def _conjuncts(e: n.Expr) -> list[n.Expr]:
    return [*_conjuncts(e.a), *_conjuncts(e.b)] if isinstance(e, n.Binary) and e.op == "and" and dtype_of(e.type).is_bool else [e]


def _all(conditions: list[n.Expr]) -> n.Expr:
    out = conditions[0]
    for c in conditions[1:]:
        out = build.logical_and(out, c)
    return out


def _branches(s: n.Stmt, taint: Taint) -> list[n.If]:
    """The branches on what differs between threads around something collective."""
    out: list[n.If] = []
    match s:
        case n.If():
            if taint.touches(s.cond) and taint.collective(s):
                out.append(s)
            for x in (*s.then, *s.orelse):
                out += _branches(x, taint)
        case n.For() | n.While():
            for x in s.body:
                out += _branches(x, taint)
        case _:
            pass
    return out


def _taken(block: n.Block, decided: dict[n.Expr, bool]) -> n.Block:
    """The statements of a block that are executed where conditions have these outcomes."""
    out: list[n.Stmt] = []
    for s in block:
        match s:
            case n.If() if s.cond in decided:
                out += _taken(s.then if decided[s.cond] else s.orelse, decided)
            case n.If():
                out.append(replace(s, then=_taken(s.then, decided), orelse=_taken(s.orelse, decided)))
            case n.For() | n.While():
                body = _taken(s.body, decided)
                if body:
                    out.append(replace(s, body=body))
            case _:
                out.append(s)
    return tuple(out)


def evaluated(e: n.Expr, values: dict[str, int], definitions: Mapping[str, n.Expr]) -> int | None:
    """An integer expression over known names and what they define; None where it is over more than them."""
    def sub(x: n.Expr) -> int | None:
        return evaluated(x, values, definitions)

    match e:
        case n.Const():
            return int(e.value) if isinstance(e.value, (bool, int)) else None
        case n.Var():
            if e.name in values:
                return values[e.name]
            return sub(definitions[e.name]) if e.name in definitions else None
        case n.Cast():
            return sub(e.x)
        case n.Unary():
            x = sub(e.x)
            if x is None:
                return None
            return -x if e.op == "neg" else int(not x) if dtype_of(e.type).is_bool else ~x
        case n.Binary():
            a, b = sub(e.a), sub(e.b)
            return None if a is None or b is None else _operation(e.op, a, b)
        case n.Select():
            c = sub(e.cond)
            return None if c is None else sub(e.a if c else e.b)
        case _:
            return None


def _operation(op: str, a: int, b: int) -> int | None:
    if op in ("floordiv", "mod", "tdiv", "trem", "ceildiv") and b == 0:
        return None
    results = {
        "add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b), "and": a & b, "or": a | b, "xor": a ^ b,
        "lt": int(a < b), "le": int(a <= b), "gt": int(a > b), "ge": int(a >= b), "eq": int(a == b), "ne": int(a != b),
    }  # fmt: skip
    if op in results:
        return results[op]
    if op in ("floordiv", "tdiv"):
        return a // b
    if op in ("mod", "trem"):
        return a % b
    if op == "ceildiv":
        return -(-a // b)
    if op == "shl":
        return a << b
    return a >> b if op == "shr" else None
