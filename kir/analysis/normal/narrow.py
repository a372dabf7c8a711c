"""Integers in the width they need: i64 scalars whose every step provably fits i32 are computed in i32."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from kir.analysis.facts import Facts
from kir.analysis.integers.widths import proved_i32
from kir.analysis.simplify import simplified
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, I64, DType, dtype_of
from kir.ir.visit import names_read, substitute, transform, updated, walk

S = TypeVar("S", bound=n.Node)


def narrowed_lets(program: n.Program) -> n.Program:
    """The program with i64 lets and comparisons in i32 where the facts prove that nothing wraps."""
    return replace(
        program,
        kernels=tuple(
            updated(k, body=_block(k.body, Facts.at(program, (k.name,)), {a.name: a.extent for a in k.grid})) for k in program.kernels
        ),
    )


def _block(body: n.Block, known: Facts, grid: dict[str, n.Expr]) -> n.Block:
    out: list[n.Stmt] = []
    changed: dict[str, n.Expr] = {}
    for s in body:
        if changed:
            s = substitute(s, changed)
        if isinstance(s, (n.Let, n.Store, n.Mma)):
            s = rounded_up(simplified(s, known), known)
        match s:
            case n.Let(names=(name,)) if s.value.type == I64 and (value := proved_i32(s.value, known)) is not None:
                s = replace(s, value=value)
                changed[name] = build.cast(n.Var(name, I32), I64)
            case n.For():
                s = updated(s, hi=rounded_up(simplified(s.hi, known), known))
                s = updated(s, body=_block(s.body, known.ranging(s.var, s.lo, s.hi, s.step), {**grid, s.var.name: s.hi}))
            case n.If():
                s = updated(s, then=_block(s.then, known.knowing(s.cond), grid), orelse=_block(s.orelse, known, grid))
            case n.While():
                s = updated(s, body=_block(s.body, known, grid))
            case n.Roles():
                s = updated(s, roles=tuple(updated(r, body=_block(r.body, known, grid)) for r in s.roles))
            case _:
                s = _comparisons(s, known)
        out.append(s)
        known = after(known, s, grid)
    return tuple(out)


def after(known: Facts, s: n.Stmt, grid: dict[str, n.Expr]) -> Facts:
    """What is known after a statement, heights of panels included."""
    known = known.after((s,))
    if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value.type, DType) and s.value.type.is_integer:
        own = n.Var(s.names[0], s.value.type)
        if is_panel_height(s.value, known, grid):
            known = known.knowing(build.compare("ge", own, 1))
        bound = panel_row_bound(s.value, known, grid)
        if bound is not None:
            known = known.knowing(build.compare("lt", own, bound))
            most = known.domain(bound).hi
            if most is not None:
                known = known.knowing(build.compare("lt", own, most))
    return known


def panel_row_bound(e: n.Expr, known: Facts, grid: dict[str, n.Expr]) -> n.Expr | None:
    """The number of rows that `first + x % height` is below, where `height` is that of the panel which starts at `first`."""
    for monomial, c in build.polynomial(e).items():
        atom = monomial[0] if len(monomial) == 1 else None
        if c != 1 or not (isinstance(atom, n.Binary) and atom.op == "mod"):
            continue
        height = known.lets.get(atom.b.name) if isinstance(atom.b, n.Var) else atom.b
        if not (isinstance(height, n.Binary) and is_panel_height(height, known, grid)):
            continue
        first = build.sub(e, atom)
        for left in (height.a, height.b):
            rows = build.add(first, left)
            if left.type == e.type and not (names_read(rows) & set(known.lets) & names_read(first)):
                return rows
    return None


def panel_column_bound(e: n.Expr, known: Facts, grid: dict[str, n.Expr]) -> n.Expr | None:
    """The number of columns of tiles that `p % (columns * g) // height` is below, where `height` is that of the panel that p belongs to: in the
    last panel too, whose `height * columns` tiles are the last ones."""
    if not (isinstance(e, n.Binary) and e.op == "floordiv" and isinstance(e.a, n.Binary) and e.a.op == "mod"):
        return None
    height = known.lets.get(e.b.name) if isinstance(e.b, n.Var) else e.b
    if not (isinstance(height, n.Binary) and is_panel_height(height, known, grid)):
        return None
    g = build.int_value(height.a) or build.int_value(height.b)
    panels = [x for x in walk(known.expanded(height)) if isinstance(x, n.Binary) and x.op == "floordiv" and x.a == e.a.a]
    return _divided(known.expanded(e.a.b), g) if g and panels and all(x.b == known.expanded(e.a.b) for x in panels) else None


def rounded_up(s: S, known: Facts) -> S:
    """`(x + c - 1) // c` as `ceildiv(x, c)`, where the sum does not wrap."""

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if (
            isinstance(new, n.Binary)
            and new.op == "floordiv"
            and (c := build.int_value(new.b)) is not None
            and c > 1
            and known.is_exact(new.a)
            and build.polynomial(new.a).get((), 0) == c - 1
        ):
            return build.ceildiv(build.sub(new.a, c - 1), new.b)
        return new

    made: S = transform(s, leave, lambda x: not (isinstance(x, n.Buffer) and x.space == "global"))
    return made


def is_panel_height(e: n.Expr, known: Facts, grid: dict[str, n.Expr]) -> bool:
    """Whether a value is the height of the panel of tiles that a tile belongs to: `min(rows - p * g, g)`, where `p` is the tile's index
    (a grid axis or loop variable; `grid` has their ends) divided by `columns * g` and the end is `rows * columns`. It is at least 1: the
    index is below rows * columns, so p * g < rows."""
    if not (isinstance(e, n.Binary) and e.op == "min" and isinstance(e.type, DType)):
        return False
    for left, g in ((e.a, e.b), (e.b, e.a)):
        height = build.int_value(g)
        if height is None or height < 1:
            continue
        left = _with_first_rows(left, height, known)
        for monomial, c in build.polynomial(left).items():
            if len(monomial) != 1 or c != -height:
                continue
            rows = build.add(left, build.mul(monomial[0], height))
            panel = known.lets.get(monomial[0].name) if isinstance(monomial[0], n.Var) else monomial[0]
            if isinstance(panel, n.Binary) and panel.op == "floordiv" and isinstance(panel.a, n.Var) and panel.a.name in grid:
                columns = _divided(known.expanded(panel.b), height)
                if columns is not None and known.expanded(grid[panel.a.name]) == build.mul(known.expanded(rows), columns):
                    return True
    return False


def _with_first_rows(e: n.Expr, height: int, known: Facts) -> n.Expr:
    """A sum with each name of `panel * height`, a panel's first row, written out."""
    named = {x.name: value for m in build.polynomial(e) if len(m) == 1 and isinstance(x := m[0], n.Var) and (value := known.lets.get(x.name)) is not None
             and list(build.polynomial(value).values()) == [height]}
    made: n.Expr = substitute(e, named)
    return made


def _divided(e: n.Expr, c: int) -> n.Expr | None:
    terms = build.polynomial(e)
    if any(k % c for k in terms.values()):
        return None
    return build.from_polynomial({m: k // c for m, k in terms.items()}, dtype_of(e.type))


def _comparisons(s: n.Stmt, known: Facts) -> n.Stmt:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Binary) and new.op in n.COMPARISONS and dtype_of(new.a.type) == I64:
            a, b = proved_i32(new.a, known), proved_i32(new.b, known)
            if a is not None and b is not None:
                return build.binary(new.op, a, b)
        return new

    made: n.Stmt = transform(s, leave)
    return made
