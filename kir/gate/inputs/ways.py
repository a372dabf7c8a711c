"""Sizes at which a program takes a way that none of the solved sizes takes: a branch or a choice that sizes and places decide, asked of the solver."""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.goals import Goal, holding, predicted
from kir.gate.shapes import FEW, WAY_SECONDS, Plan, Sizes, Space
from kir.interp.state.coverage import TAKEN
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import children, names_read, own_nodes, transform, walk

MOST_WAYS, MOST_SOLVED, FAR = 64, 4, 256
"""Ways of a program that are looked at, and sizes that are added for them; and a number from which on a lesser of two is a way."""
MOST_TRIED, MOST_DIVISOR, SMALL = 4096, 1 << 12, 1 << 11
"""Sizes that are tried for a condition of which the solver says nothing, the largest divisor that is looked for of its numbers, and up to which size each
is tried where a condition speaks of one."""


@dataclass(frozen=True)
class _Way:
    """A condition that sizes and places decide, in a statement."""

    stmt: n.Stmt
    cond: n.Expr
    path: tuple[int | str, ...]


def with_ways(program: n.Program, space: Space, plan: Plan) -> Plan:
    """The plan with sizes at its edges for ways that it leaves out and that the solver finds sizes for."""
    ways = list(_ways(program))[:MOST_WAYS]
    if not ways:
        return plan
    noted = _watching(program, ways)
    left = _untaken(noted, ways, space, (*plan.shapes, *plan.far, *plan.edges))
    added: list[Sizes] = []
    for i in left:
        if len(added) == MOST_SOLVED:
            break
        if added and i not in _untaken(noted, ways, space, added):
            continue
        for at in sizes_for(program, ways[i].cond, ways[i].path, space, plan):
            found = predicted(program, [space.own(at)])
            placed = bool(names_read(ways[i].cond) - set(space.names))  # of places only the first and the last are foreseen: the solver names another
            if found.seconds[0] <= WAY_SECONDS and (placed or i not in _untaken(noted, ways, space, (at,))) and not space.endless([at], found.most)[0]:
                added.append(at)
                break
    return replace(plan, edges=(*plan.edges, *added)) if added else plan


def _ways(program: n.Program) -> Iterator[_Way]:
    """Both ways of each branch, choice, and truth value that is a number, as far as sizes and places decide it: parts of a conjunction that data decide are
    left out."""
    kernels = {k.name for k in program.kernels}
    for _, path, s in anchors(program):
        if path[0] not in kernels:  # in a function data decide, by its arguments
            continue
        conds = [s.cond] if isinstance(s, n.If) else []
        conds += [cond for e in own_nodes(s) for cond in ((e.cond,) if isinstance(e, n.Select) else (e.x,) if isinstance(e, n.Cast) else ())
                  if cond.type is not None and not isinstance(cond.type, TileType) and dtype_of(cond.type).is_bool]
        beyond = [far for e in own_nodes(s) if isinstance(e, n.Binary) and e.op in ("min", "max") for far in _beyond(e)]
        for cond in dict.fromkeys((*beyond, *conds)):
            for holds in (cond,) if cond in beyond else (cond, build.invert(cond)):
                known = [part for part in _parts(holds) if not any(isinstance(x, (n.Load, n.Call)) for x in _below(part))]
                if known and not all(isinstance(part, n.Const) for part in known):
                    whole = known[0]
                    for part in known[1:]:
                        whole = build.logical_and(whole, part)
                    yield _Way(s, whole, path)


def _beyond(e: n.Binary) -> Iterator[n.Expr]:
    """That the other side of a lesser or greater of two is beyond a large number, well beyond it first: `min(N, 60000)` is N at all sizes that are small,
    and a little more than that may lie in the last tile."""
    for most, x in ((e.b, e.a), (e.a, e.b)):
        if isinstance(most, n.Const) and most.dtype.is_integer and abs(most.value) >= FAR and not isinstance(e.type, TileType):
            for part in (1, 8, 16, 64):
                yield build.compare("gt", x, build.const(int(most.value) + abs(int(most.value)) // part, most.dtype))


def _parts(e: n.Expr) -> Iterator[n.Expr]:
    if isinstance(e, n.Binary) and e.op == "and":
        yield from _parts(e.a)
        yield from _parts(e.b)
    else:
        yield e


def _below(e: n.Node) -> Iterator[n.Node]:
    yield e
    for x in children(e):
        yield from _below(x)


def _watching(program: n.Program, ways: Sequence[_Way]) -> n.Program:
    """The program with an empty branch in front of each statement with a way, taken where the way is."""
    at: dict[int, list[n.Stmt]] = {}
    for i, way in enumerate(ways):
        at.setdefault(id(way.stmt), []).append(n.If(way.cond, (), label=f"way_{i}"))
    made: n.Program = transform(program, lambda old, new: (*at[id(old)], new) if id(old) in at else new)
    return made


def _untaken(noted: n.Program, ways: Sequence[_Way], space: Space, shapes: Sequence[Sizes]) -> list[int]:
    """The ways that none of some sizes takes."""
    found = predicted(noted, [space.own(at) for at in shapes])
    labels = {s.label: text for text, _, s in anchors(noted) if isinstance(s, n.If) and s.label}
    none = np.zeros(len(shapes), np.bool_)
    return [i for i in range(len(ways)) if (text := labels.get(f"way_{i}")) is not None and Goal("branch", text, TAKEN) not in found.unsure
            and not found.reached.get(Goal("branch", text, TAKEN), none).any()]


def sizes_for(program: n.Program, cond: n.Expr, path: Sequence[int | str], space: Space, plan: Plan) -> Iterator[Sizes]:
    """Sizes that the solver names for a condition at a place, or that are found by trying, those that it does not speak of as the plan has them; as far as
    they are allowed."""
    try:
        answer = decide(build.invert(cond), Facts.at(program, tuple(path)))
        told = {name: value for name, value in answer.witness if name in space.names} if answer.kind in ("sometimes", "never") else {}
        large = max(told.values(), default=0) > SMALL  # another one of the kind may be quicker to run
        tried = [*([told] if told else []), *(_tried(program, cond, space, plan) if large or answer.kind == "unknown" else [])]
    except KirError:  # of floats, say
        tried = _tried(program, cond, space, plan)
    pool = [{**at, **one} for one in tried for at in (*plan.shapes, *plan.edges)]
    yield from (at for at, fine in zip(pool, space.allowed(pool), strict=True) if fine) if pool else ()


def _tried(program: n.Program, cond: n.Expr, space: Space, plan: Plan) -> list[Sizes]:
    """Sizes at which a condition on nothing but sizes holds, of those that its own numbers, what divides these, and the plan suggest: for products and
    quotients, of which the solver says nothing."""
    names = sorted({x.name for x in walk(cond) if isinstance(x, n.Var)})
    if not names or not set(names) <= set(space.names) or len(names) > 3:
        return []
    numbers = {abs(int(x.value)) for x in walk(cond) if isinstance(x, n.Const) and not isinstance(x.value, bool) and math.isfinite(x.value)}
    values = {1, 2, 3, 5, FEW, *(v for at in plan.shapes for v in at.values())}
    for c in numbers:
        root = math.isqrt(c)
        values |= {c - 1, c, c + 1, root, root + 1, *(d for k in range(1, min(root, MOST_DIVISOR) + 1) if c % k == 0 for d in (k, c // k))}
    values |= set(range(1, SMALL)) if len(names) == 1 else {1 << k for k in range(SMALL.bit_length())}
    few = sorted(v for v in values if v >= 1)[:math.ceil(MOST_TRIED ** (1 / len(names)))]
    pool = [dict(zip(names, some, strict=True)) for some in product(few, repeat=len(names))]
    out = [at for at, held in zip(pool, holding(program, pool, [cond]), strict=True) if held]
    return sorted(out, key=lambda at: math.prod(at.values()))[:MOST_SOLVED]


__all__ = ["sizes_for", "with_ways"]
