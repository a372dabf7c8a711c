"""Numbers the items of a grid in one line, and divides their coordinates out of the number.

pipeline: `number-items@main`

```diff
 kir 1
 program scaled_rows
   in X: f32[M, N]
   in S: f32[N]
   out Y: f32[M, N]
   size M: i32
   size N: i32
   fact M >= 1
   fact N >= 1
-kernel main grid (j: N, i: M) threads 1
-  Y[i, j] = X[i, j] * S[j]
+kernel main grid (item: M * N) threads 1
+  Y[item // N, item % N] = X[item // N, item % N] * S[item % N]
```

Backward each coordinate that is used by itself gets an axis. Coordinates that are only ever used as one number stay one: of an image's `n`, `c`, `y` and `x`
where the last two say a place in a plane, three axes are made. Where the number itself is used, as a place in memory, it is put together of the axes.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import ClassVar, TypeVar

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import I32, DType
from kir.ir.visit import children, names_read, regions, substitute, transform, walk
from kir.passes.scheduling.linear_grid import quotient_of
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import matched, params_as

MOST_AXES = 3
"""Of a grid."""
ONE: n.Expr = build.const(1)
DIVISIONS = ("floordiv", "mod", "tdiv", "trem")
"""Of a number that is not negative, as those of CTAs are, both ways of rounding are one."""


@dataclass(frozen=True)
class _Part:
    """`number // over % span`, where a number is divided; `span` None: all that is left."""

    over: n.Expr
    span: n.Expr | None


@dataclass(frozen=True)
class NumberItems(Pass):
    """`line` names the one axis, `parts` says what is divided out of it in the kernel, `digits` how many of these are one axis of the grid, the least first.
    A grid has three axes: coordinates at the places `shared` have one together, the last, out of which they are divided. A walk leaves items numbered, as a
    naive program may have them."""

    intent: ClassVar[str] = "raster-l2"
    catalogue: ClassVar[tuple[int, ...]] = (31,)
    claim: ClassVar[str] = "Threads are full however short an axis is, and neighbors in the line are neighbors in memory."
    walked: ClassVar[bool] = False

    line: str = ""
    parts: str = ""
    digits: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread and two or three axes, with a way to say their coordinates."""
        if not isinstance(node, n.Kernel) or not 2 <= len(node.grid) <= MOST_AXES or node.cluster or not build.is_const(node.threads, 1):
            return None
        axes = {a.name for a in node.grid}
        if any(names_read(a.extent) & axes for a in node.grid):
            return Miss("an axis is as long as another one says")
        item = self
        if not item.parts:
            line = fresh("item", names_in(program, node))
            item = NumberItems(line, "; ".join(map(expr_text, _usual(node, line))), (1,) * len(node.grid))
        if prod(build.int_value(a.extent) or 1 for a in node.grid) >= 1 << 31:
            return Miss("its items do not fit in 32 bits")
        if item.line in names_in(program, node):
            return Miss("the name of the line is taken")
        made = item._joined(program, node)
        if made is None:
            return Miss("its axes are not what the coordinates say")
        if not self.parts:  # of coordinates that are used as one number, or not at all, other parts are found again
            back = _apart_of(program, path, made)
            if isinstance(back, Miss):
                return Miss(f"numbered, {back.reason}")
            if [a.extent for a in back.captures["kernel"].grid] != [a.extent for a in node.grid]:
                return Miss("numbered, they are other coordinates: one is not used, or two are used as one number")
            item = params_as(back, NumberItems)
        return Site(path, item, {"kernel": made})

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One axis, and coordinates that are divided out of it."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, site.captures["kernel"]), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of one thread and one axis, out of which coordinates are divided."""
        if not isinstance(node, n.Kernel) or len(node.grid) != 1 or node.cluster or not build.is_const(node.threads, 1):
            return None
        return _apart_of(program, path, node)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """An axis for each coordinate that is used by itself."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, site.captures["kernel"]), site.path)

    def _joined(self, program: n.Program, kernel: n.Kernel) -> n.Kernel | None:
        """The kernel with its axes in one line; None where `parts` say other coordinates than it has."""
        from kir.ir.parser import parse_expression

        line, extent = build.var(self.line), kernel.grid[0].extent
        for axis in kernel.grid[1:]:
            extent = build.mul(extent, axis.extent)
        types = {self.line: I32, **{p.name: p.of for p in program.params if isinstance(p.of, DType)}}
        try:
            told = [parse_expression(text, types, {}) for text in self.parts.split("; ")]
        except KirError:
            return None
        found = {e: part for e in told if (part := _part(e, self.line)) is not None}
        bounds = _bounds(extent, found.values()) if len(found) == len(told) else None
        if bounds is None or sum(self.digits) != len(bounds) - 1:
            return None
        at, values = 0, dict[str, n.Expr]()
        spans: dict[tuple[int, int], n.Expr] = {(0, len(bounds) - 1): line}
        for e, part in found.items():
            spans[_digits(part, bounds)] = e
        apart = _apart(program, kernel, self.shared, len(self.digits))
        if apart is None:
            return None
        kernel = apart
        for axis, count in zip(kernel.grid, self.digits, strict=True):
            if quotient_of(bounds[at + count], bounds[at]) != axis.extent:
                return None
            whole = spans.get((at, at + count))
            pieces = [spans.get((k, k + 1)) for k in range(at, at + count)]
            if whole is None and None in pieces and any(axis.name in names_read(s) for s in kernel.body):
                return None
            values[axis.name] = whole if whole is not None else _sum(
                (p, matched(quotient_of(bounds[at + k], bounds[at]))) for k, p in enumerate(pieces) if p is not None)
            at += count
        ends = [sum(self.digits[:k]) for k in range(len(self.digits) + 1)]
        joins = [(x, [(kernel.grid[k].name, matched(quotient_of(bounds[ends[k]], bounds[ends[a]]))) for k in range(a, b)])
                 for a in range(len(ends)) for b in range(len(ends) - 1, a + 1, -1) if (x := spans.get((ends[a], ends[b]))) is not None]
        joins.sort(key=lambda j: -len(j[1]))
        body = tuple(_said(s, values, joins) for s in kernel.body)
        return replace(kernel, grid=(n.Axis(self.line, extent),), body=body)


def _apart_of(program: n.Program, path: Path, node: n.Kernel) -> Site | Miss:
    """Of a kernel with one axis the site of the coordinates that are divided out of it, or why there is none."""
    found = _parts(node)
    if not any(isinstance(e, n.Binary) for e in found):
        return Miss("nothing is divided out of the grid axis")
    bounds = _bounds(node.grid[0].extent, found.values())
    if bounds is None:
        return Miss("what is divided out of the grid axis are no coordinates of which its extent is the product")
    made = _split(program, node, found, bounds)
    if made is None:
        return Miss("but one coordinate is used, or more along which memory lies than a grid has axes for")
    text = "; ".join(sorted(expr_text(e) for e in found if not isinstance(e, n.Var)))
    return Site(path, NumberItems(node.grid[0].name, text, made[1], made[2]), {"kernel": made[0]})


def _part(e: n.Expr, line: str) -> _Part | None:
    """What an expression divides out of the line; None where it is something else."""
    if isinstance(e, n.Var):
        return _Part(ONE, None) if e.name == line else None
    if not isinstance(e, n.Binary) or e.op not in DIVISIONS or line in names_read(e.b):
        return None
    inner = _part(e.a, line)
    if inner is None:
        return None
    if e.op in ("floordiv", "tdiv"):
        span = quotient_of(inner.span, e.b) if inner.span is not None else None
        return _Part(build.mul(inner.over, e.b), span) if span is not None or inner.span is None else None
    return _Part(inner.over, e.b) if inner.span is None or quotient_of(inner.span, e.b) is not None else None


def _parts(kernel: n.Kernel) -> dict[n.Expr, _Part]:
    """All that is divided out of the axis, the largest expressions of that kind."""
    found = dict[n.Expr, _Part]()

    def look(node: n.Node) -> None:
        if isinstance(node, n.Expr) and (part := _part(node, kernel.grid[0].name)) is not None:
            found[node] = part
        else:
            for each in children(node):
                look(each)
    for s in kernel.body:
        look(s)
    return found


def _bounds(extent: n.Expr, parts: Iterable[_Part]) -> list[n.Expr] | None:
    """1, then what the number is divided by, the least first, then the extent: each is a multiple of the one before."""
    ends = {ONE, extent}
    for part in parts:
        ends |= {part.over, *(() if part.span is None else (build.mul(part.over, part.span),))}
    terms = {e: build.polynomial(e) for e in ends}
    if any(len(t) != 1 for t in terms.values()):
        return None
    ordered = sorted(ends, key=lambda e: (len(next(iter(terms[e]))), abs(next(iter(terms[e].values()))), expr_text(e)))
    fine = all(quotient_of(b, a) is not None for a, b in pairwise(ordered))
    return ordered if fine and ordered[-1] == extent else None


def _digits(part: _Part, bounds: Sequence[n.Expr]) -> tuple[int, int]:
    """From which bound to which an expression goes."""
    end = bounds[-1] if part.span is None else build.mul(part.over, part.span)
    return bounds.index(part.over), bounds.index(end)


def _sum(terms: Iterator[tuple[n.Expr, n.Expr]]) -> n.Expr:
    out: n.Expr = build.const(0)
    for value, factor in terms:
        out = build.add(out, build.mul(value, factor))
    return out


def _split(program: n.Program, kernel: n.Kernel, parts: Mapping[n.Expr, _Part], bounds: Sequence[n.Expr]) \
        -> tuple[n.Kernel, tuple[int, ...], tuple[int, ...]] | None:
    """The kernel with an axis for each coordinate that is used by itself, how many digits each has, and which of them share one."""
    line, taken, names = kernel.grid[0].name, names_in(program, kernel), list[str]()
    for k in range(len(bounds) - 1):
        names.append(fresh(f"{line}_{k}", {*taken, *names}))
    extents = [matched(quotient_of(b, a)) for a, b in pairwise(bounds)]

    def said(part: _Part) -> n.Expr:
        lo, hi = _digits(part, bounds)
        return _sum((build.var(names[k]), matched(quotient_of(bounds[k], part.over))) for k in range(lo, hi))
    new = {e: said(part) for e, part in parts.items()}

    def leave(old: n.Node, made: n.Node) -> n.Node:
        return new.get(old, made) if isinstance(old, n.Expr) else made
    body = tuple(transform(s, leave) for s in kernel.body)
    digits, k = [1] * len(names), 0
    while k + 1 < len(names):
        if all(_is_one(e, names[k], names[k + 1], extents[k]) for s in body for e in _indices(s, {names[k], names[k + 1]})):
            body = tuple(substitute(s, {names[k + 1]: build.const(0)}) for s in body)
            extents[k:k + 2], digits[k:k + 2] = [build.mul(extents[k], extents[k + 1])], [digits[k] + digits[k + 1]]
            del names[k + 1]
        else:
            k += 1
    if len(names) < 2 or any(isinstance(x, n.Var) and x.name == line for s in body for x in walk(s)):
        return None
    made = replace(kernel, grid=tuple(n.Axis(name, extent) for name, extent in zip(names, extents, strict=True)), body=body)
    if len(names) <= MOST_AXES:
        return made, tuple(digits), ()
    along = {a.name for s in body for r in regions(s) if r.index and r.buffer.space == "global" and isinstance(r.index[-1], n.Expr)
             for m, c in build.polynomial(r.index[-1]).items() if c == 1 and len(m) == 1 for a in m if isinstance(a, n.Var)}
    shared = tuple([k for k, name in enumerate(names) if name not in along][MOST_AXES - 1 - len(names):])
    if len(names) - len(shared) != MOST_AXES - 1:
        return None
    return _together(program, made, shared), tuple(digits), shared


def _together(program: n.Program, kernel: n.Kernel, shared: Sequence[int]) -> n.Kernel:
    """The kernel with one axis, the last, for several."""
    grid, own, over = kernel.grid, dict[str, n.Expr](), ONE
    name = fresh(f"{grid[shared[0]].name}_{shared[-1]}", names_in(program, kernel))
    for k in shared:
        e = build.floordiv(build.var(name), over)
        own[grid[k].name] = build.mod(e, grid[k].extent) if k != shared[-1] else e
        over = build.mul(over, grid[k].extent)
    rest = tuple(axis for k, axis in enumerate(grid) if k not in shared)
    return replace(kernel, grid=(*rest, n.Axis(name, over)), body=tuple(substitute(s, own) for s in kernel.body))


def _apart(program: n.Program, kernel: n.Kernel, shared: Sequence[int], count: int) -> n.Kernel | None:
    """The kernel with an axis for each coordinate that shares the last one; its coordinates have names that no kernel has."""
    if not shared:
        return kernel if len(kernel.grid) == count else None
    found = _parts(replace(kernel, grid=kernel.grid[-1:]))
    bounds = _bounds(kernel.grid[-1].extent, found.values())
    if bounds is None or len(bounds) != len(shared) + 1 or len(kernel.grid) - 1 + len(shared) != count:
        return None
    own = [n.Axis(f"%{k}", matched(quotient_of(b, a))) for k, (a, b) in enumerate(pairwise(bounds))]
    new = dict[n.Node, n.Expr]()
    for e, part in found.items():
        lo, hi = _digits(part, bounds)
        if hi != lo + 1:
            return None
        new[e] = build.var(own[lo].name)

    def leave(old: n.Node, made: n.Node) -> n.Node:
        return new.get(old, made) if isinstance(old, n.Expr) else made
    rest, grid = iter(kernel.grid[:-1]), list[n.Axis]()
    for k in range(count):
        grid.append(own[shared.index(k)] if k in shared else next(rest))
    return replace(kernel, grid=tuple(grid), body=tuple(transform(s, leave) for s in kernel.body))


def _indices(node: n.Node, names: set[str]) -> Iterator[n.Expr]:
    """The largest sums of products below a node that have one of these names."""
    for each in children(node):
        if not names_read(each) & names:
            continue
        if isinstance(each, n.Expr) and _adds(each):
            yield each
        else:
            yield from _indices(each, names)


def _adds(e: n.Expr) -> bool:
    return isinstance(e, n.Var) or (isinstance(e, n.Binary) and e.op in ("add", "sub", "mul") and e.type == I32)


def _is_one(e: n.Expr, fast: str, slow: str, extent: n.Expr) -> bool:
    """Whether two coordinates stand in a sum as the one number that they make together."""
    parts: dict[str, dict[build.Monomial, int]] = {fast: {}, slow: {}}
    for atoms, factor in build.polynomial(e).items():
        there = [a for a in atoms if names_read(a) & {fast, slow}]
        if len(there) > 1 or (there and not isinstance(there[0], n.Var)):
            return False
        if there and isinstance(there[0], n.Var):
            parts[there[0].name][tuple(a for a in atoms if a is not there[0])] = factor
    return build.polynomial(build.mul(build.from_polynomial(parts[fast], I32), extent)) == build.polynomial(build.from_polynomial(parts[slow], I32))


N = TypeVar("N", bound=n.Node)


def _said(node: N, values: Mapping[str, n.Expr], joins: Sequence[tuple[n.Expr, Sequence[tuple[str, n.Expr]]]]) -> N:
    """A node with its coordinates divided out of the line: where a sum has several as one number, that number."""
    new = dict[n.Node, n.Expr]()

    def new_atom(a: n.Expr) -> n.Expr:
        if isinstance(a, n.Var):
            return values.get(a.name, a)
        return _said(a, values, joins) if names_read(a) & values.keys() else a

    def joined(e: n.Expr) -> n.Expr:
        terms = dict(build.polynomial(e))
        out: n.Expr = build.const(0)
        changed = True
        while changed:
            changed = False
            for whole, pieces in joins:
                for atoms, factor in list(terms.items()):
                    rest = [a for a in atoms if not (isinstance(a, n.Var) and a.name == pieces[0][0])]
                    if len(rest) != len(atoms) - 1:
                        continue
                    base = build.from_polynomial({tuple(rest): factor}, I32)
                    wanted = dict(build.polynomial(_sum((build.mul(build.var(name), base), times) for name, times in pieces)))
                    if all(terms.get(m) == c for m, c in wanted.items()):
                        terms = {m: c for m, c in terms.items() if m not in wanted}
                        out, changed = build.add(out, build.mul(whole, base)), True
        for atoms, factor in terms.items():
            product: n.Expr = build.const(factor)
            for a in atoms:
                product = build.mul(product, new_atom(a))
            out = build.add(out, product)
        return out
    for e in _indices(node, set(values)):
        new[e] = joined(e)

    def leave(old: n.Node, made: n.Node) -> n.Node:
        return new.get(old, made)
    made: N = transform(node, leave)
    return made


def _usual(kernel: n.Kernel, line: str) -> Iterator[n.Expr]:
    """How coordinates are divided out of a line of all axes, the first of which is the fastest."""
    over: n.Expr = ONE
    for k, axis in enumerate(kernel.grid):
        e = build.floordiv(build.var(line), over)
        yield build.mod(e, axis.extent) if k + 1 < len(kernel.grid) else e
        over = build.mul(over, axis.extent)


__all__ = ["NumberItems"]
