"""Folds once, for all of them, what iterations of loops fold again and again.

pipeline: `tabulate{index=["j // 128"] extent=[4] hoist=1}@main/j/top`

```diff
 kir 1
 program scaled
   in X: f32[M, 512]
   out Y: f32[M, 512]
   size M: i32
 kernel main grid (row: M) threads 1
+  @top fragment top: f32[4] = -inf
+  for k in 0..128
+    top = max(top, X[row, k +: 4 step 128])
   for j in 0..512
-    @top register top: f32 = -inf
-    for k in 0..128
-      top = max(top, X[row, j // 128 * 128 + k])
-    Y[row, j] = X[row, j] - top
+    Y[row, j] = X[row, j] - top[j // 128]
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.elements import NotElementwise, element, tile
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.paths import child_blocks, with_block
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, DType, TileType
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, edit_block, enclosing, fresh, kernel_of, names_in
from kir.rewrite.match import block_and_index, edited, fresh_var, is_counted, loads_of, matched, node_as, params_as, regions_of, splice
from kir.rewrite.match.local_buffers import mentions, own_parts
from kir.rewrite.match.materialize import buffers_read, buffers_written, is_pure
from kir.rewrite.match.unify import bound_by, hole, rewritten
from kir.rewrite.precondition import decided

FOLDS = ("add", "max", "min", "mul")


@dataclass(frozen=True)
class Fold:
    """A declaration and the first loop after it that mentions it, which folds into it and does nothing else: what an iteration folds in, and
    how; `at` is the loop's place in the block."""

    acc: n.Alloc
    loop: n.For
    at: int
    op: str
    value: n.Expr

    @property
    def counter(self) -> n.Var:
        """A name for the loop's variable that all such loops share."""
        return n.Var("%folded", self.loop.var.of)

    @property
    def element(self) -> n.Expr:
        """The value of a scalar fold over the shared counter."""
        made: n.Expr = substitute(self.value, {self.loop.var.name: self.counter})
        return made


def fold_at(block: n.Block, i: int) -> Fold | None:
    """The fold that begins with the declaration at `i`; None where none does."""
    acc = block[i] if i < len(block) else None
    if not isinstance(acc, n.Alloc):
        return None
    at = next((k for k in range(i + 1, len(block)) if mentions(block[k], acc.buffer.name)), None)
    if at is None:
        return None
    loop = block[at]
    if not (acc.buffer.space in ("register", "fragment") and isinstance(acc.init, n.Const) and acc.buffer.layout is None
            and isinstance(loop, n.For) and loop.kind == "serial" and not loop.attrs and len(loop.body) == 1):
        return None
    s = loop.body[0]
    if not (isinstance(s, n.Store) and s.at == n.Region(acc.buffer) and s.mask is None and isinstance(s.value, n.Binary) and s.value.op in FOLDS
            and s.value.a == n.Load(s.at) and is_pure(s.value.b) and not mentions(s.value.b, acc.buffer.name)):
        return None
    return Fold(acc, loop, at, s.value.op, s.value.b)


@dataclass(frozen=True)
class Table:
    """A fold for every place: `one` is the fold of the site, `pattern` what is folded in at the holes' place."""

    one: Fold
    pattern: n.Expr
    extents: tuple[int, ...]

    def place(self, other: Fold) -> tuple[n.Expr, ...] | None:
        """The place that another fold is for; None for a fold of something else."""
        a, b = self.one, other
        if (a.op, a.acc.init, a.acc.buffer.dtype, a.loop.lo, a.loop.hi, a.loop.step) != (
                b.op, b.acc.init, b.acc.buffer.dtype, b.loop.lo, b.loop.hi, b.loop.step) or b.acc.buffer.shape:
            return None
        return bound_by(self.pattern, other.element, len(self.extents))


def _table(program: n.Program, site: Site) -> tuple[Table, Path]:
    item = params_as(site, Tabulate)
    return matched(item.table(program, site.path))


def _unchanged(program: n.Program, site: Site, context: Context) -> Verdict:
    table, outer = _table(program, site)
    written = buffers_written(block_at(program, outer)[int(outer[-1]):])
    aliases = Aliases(program)
    clash = sorted(w for w in written for r in buffers_read(table.pattern) if w == r or aliases.may_be_one(w, r))
    if clash or "*" in written:
        name = clash[0] if clash else "*"
        return refuted(f"'{name}' is written by the loops that use the results", f"a later iteration sees the old '{name}'")
    return proved("nothing that is folded is written while the results are kept")


def _inside(program: n.Program, site: Site, context: Context) -> Verdict:
    table, outer = _table(program, site)
    item = params_as(site, Tabulate)
    for path, fold in _folds(block_at(program, outer)[int(outer[-1]):], outer[:-1], int(outer[-1])):
        place = item.first(fold) if path == site.path else table.place(fold)
        claim: n.Expr = build.const(True, BOOL)
        for e, d in zip(place or (), table.extents, strict=False):
            claim = build.logical_and(claim, build.logical_and(build.compare("ge", e, 0), build.compare("lt", e, build.const(d))))
        verdict = decided(claim, Facts.at(program, path), "every place is one of those that are kept", "a place is none of those that are kept",
                          needs="extents that cover the loops")
        if not verdict:
            return verdict
    return proved("every place is one of those that are kept")


@dataclass(frozen=True)
class Tabulate(Pass):
    """`index` are the texts of the place at the site, `extent` how many places there are along each axis, `hoist` how many statements
    further out the results are kept."""

    intent: ClassVar[str] = "operand-reuse"
    catalogue: ClassVar[tuple[int, ...]] = (51, 58)
    claim: ClassVar[str] = "Loops that need the same sums or maxima find them ready, each of them folded once."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P869", "validity", "aliasing", "nothing that is folded is written while the results are kept", _unchanged),
        Precondition("KIR-P870", "validity", "shape", "every place that a loop asks for is kept", _inside))

    index: tuple[str, ...] = ()
    extent: tuple[int, ...] = ()
    hoist: int = 1

    def first(self, fold: Fold) -> tuple[n.Expr, ...] | None:
        """The place of the fold at the site: the expressions in it with the texts `index`."""
        texts = {expr_text(x): x for x in walk(fold.value) if isinstance(x, n.Expr)}
        return tuple(texts[t] for t in self.index) if set(self.index) <= texts.keys() else None

    def table(self, program: n.Program, path: Path) -> tuple[Table, Path] | None:
        """All folds of which the one at a path is one, and the statement before which they are done."""
        around = [p for p, x in enclosing(program, path) if isinstance(x, n.Stmt)]
        fold = fold_at(block_at(program, path), int(path[-1])) if len(path) > 1 else None
        if fold is None or fold.acc.buffer.shape or not self.index or len(self.index) != len(self.extent) or not 1 <= self.hoist <= len(around):
            return None
        place = self.first(fold)
        if place is None or len(set(place)) != len(place):
            return None
        holes = {e: hole(k) for k, e in enumerate(place)}
        pattern: n.Expr = transform(fold.element, lambda old, new: holes[old] if isinstance(old, n.Expr) and old in holes else new)
        outer = around[-self.hoist]
        home = node_as(program, outer, n.Stmt)
        if names_read(pattern) & set(bound_names((home,))) or any(h.name not in names_read(pattern) for h in holes.values()):
            return None
        try:
            tile(pattern, [(hole(k), d) for k, d in enumerate(self.extent)])
        except NotElementwise:
            return None
        return Table(fold, pattern, self.extent), outer

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a scalar that a loop folds into, inside other loops; which parts of what is folded in are the place may be left open: the indices of the loops
        around it are, as far out as the results can be kept."""
        if not isinstance(node, n.Alloc) or node.buffer.shape or len(path) < 3:
            return None
        if not self.index or not self.extent:
            some = [each for each in self._open(program, path) if each.table(program, path) is not None]
            return tuple(Site(path, each) for each in some) or Miss("it is no fold for each iteration of the loops around it")
        return Site(path, self) if self.table(program, path) is not None else Miss("it is no fold for one of so many places")

    def _open(self, program: n.Program, path: Path) -> Iterator[Tabulate]:
        """With the indices of the loops around the place that what is folded in reads, and their numbers of iterations; furthest out first."""
        around = [x for _, x in enclosing(program, path) if isinstance(x, n.Stmt)]
        fold = fold_at(block_at(program, path), int(path[-1]))
        read = names_read(fold.value) if fold is not None else frozenset[str]()
        for hoist in range(len(around), 0, -1):
            loops = [x for x in around[-hoist:] if isinstance(x, n.For) and x.var.name in read]
            trips = [build.int_value(x.hi) for x in loops if is_counted(x)]
            if loops and loops[0] is around[-hoist] and len(trips) == len(loops) and all(d is not None and d > 1 for d in trips):
                made = Tabulate(tuple(x.var.name for x in loops), tuple(d for d in trips if d is not None), hoist)
                if self.index in ((), made.index) and self.extent in ((), made.extent):
                    yield made

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One fold for all places before the loops, and its elements read inside."""
        table, outer = _table(program, site)
        one, i = table.one, int(outer[-1])
        place = matched(self.first(one))
        held = n.Buffer(one.acc.buffer.name, one.acc.buffer.dtype, tuple(map(build.const, table.extents)), "fragment")
        pattern: n.Expr = substitute(table.pattern, {one.counter.name: one.loop.var})
        value = tile(pattern, [(hole(k), d) for k, d in enumerate(table.extents)])
        at = n.Region(held)
        loop = replace(one.loop, body=(n.Store(at, build.binary(one.op, n.Load(at), value)),))
        return edited(program, outer, (replace(one.acc, buffer=held), loop, *_untabled(block_at(program, outer)[i:], table, held, place)), 0, None)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a fragment that a loop folds tiles into, whose elements later statements read one at a time."""
        if not isinstance(node, n.Alloc) or not node.buffer.shape:
            return None
        block, i = block_and_index(program, path)
        fold = fold_at(block, i)
        shape = [build.int_value(d) for d in node.buffer.shape]
        if fold is None or any(d is None or d < 2 for d in shape):
            return None
        try:
            element(fold.value, [hole(k) for k in range(len(shape))])
        except NotElementwise as bad:
            return Miss(f"'{bad}' has no single elements")
        name = node.buffer.name
        homes = [_home(s, (*path[:-1], k), name) for k, s in enumerate(block) if k > fold.at and mentions(s, name)]
        if not homes or any(h is None or len(h[0]) == len(path) for h in homes):
            return Miss(f"'{name}' is read as a whole, or at several places of one statement")
        found = tuple(h for h in homes if h is not None)
        levels = sum(isinstance(x, n.Stmt) and len(p) >= len(path) for p, x in enclosing(program, found[0][0]))
        item = Tabulate(tuple(map(expr_text, found[0][1])), tuple(d for d in shape if d is not None), levels)
        return Site(path, item, {"homes": found})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each fold where its result is needed."""
        i, kernel = int(site.path[-1]), kernel_of(program, site.path)
        fold = matched(fold_at(block_at(program, site.path), i))
        homes: tuple[tuple[Path, tuple[n.Expr, ...]], ...] = site.captures["homes"]
        held, taken, made = fold.acc.buffer, names_in(program, kernel), program
        for number, (path, place) in enumerate(reversed(homes)):
            last, k = number == len(homes) - 1, int(path[-1])
            own = n.Buffer(held.name if last else fresh(held.name, taken), held.dtype, (), "register")
            var = fold.loop.var if last else fresh_var(fold.loop.var.name, taken, fold.loop.var.of)
            value: n.Expr = substitute(element(fold.value, place), {fold.loop.var.name: var})
            at = n.Region(own)
            acc = replace(fold.acc, buffer=own, label=fold.acc.label if last else None)
            loop = replace(fold.loop, var=var, body=(n.Store(at, build.binary(fold.op, n.Load(at), value)),), label=fold.loop.label if last else None)

            def change(x: n.Expr, at: n.Region = at) -> n.Expr | None:
                return n.Load(at) if isinstance(x, n.Load) and x.at.buffer == held else None

            made = splice(made, path, (acc, loop, *(rewritten(s, change) for s in block_at(made, path)[k:])), 0, None)
        made = edit_block(made, site.path, lambda b: (*b[:i], *b[i + 1:fold.at], *b[fold.at + 1:]))
        first = list(homes[0][0])
        first[len(site.path) - 1] = int(first[len(site.path) - 1]) - 2
        return Rewritten(made, tuple(first))


def _folds(block: n.Block, prefix: Path, start: int = 0) -> Iterator[tuple[Path, Fold]]:
    """The scalar folds of statements and of blocks inside them, each with its path."""
    for k, s in enumerate(block, start):
        found = fold_at(block, k - start)
        if found is not None and not found.acc.buffer.shape:
            yield (*prefix, k), found
        for fragment, inner in child_blocks(s):
            yield from _folds(inner, (*prefix, k, *fragment))


def _home(s: n.Stmt, path: Path, name: str) -> tuple[Path, tuple[n.Expr, ...]] | None:
    """The innermost place before which everything in a statement that reads a fragment stands, and the one element of it that is read."""
    regions = regions_of(s, name)
    loads = loads_of(s, name)
    places = {r.index for r in regions}
    if len(places) != 1 or len(loads) != len(regions) or any(x.mask is not None for x in loads):
        return None
    (index,) = places
    place = tuple(e for e in index if isinstance(e, n.Expr) and isinstance(e.type, DType) and not isinstance(e.type, TileType))
    if len(place) != len(index) or not index:
        return None
    while True:
        inner = [(fragment, k, x) for fragment, block in child_blocks(s) for k, x in enumerate(block) if mentions(x, name)]
        if not inner or any(mentions(x, name) for x in own_parts(s)) or len({f for f, _, _ in inner}) != 1:
            return path, place
        fragment, k, x = inner[0]
        path = (*path, *fragment, k)
        if len(inner) > 1:
            return path, place
        s = x


def _untabled(block: n.Block, table: Table, held: n.Buffer, given: tuple[n.Expr, ...]) -> n.Block:
    """Statements without the folds that a table has, whose elements are read instead."""
    out: list[n.Stmt] = []
    rest = list(block)
    while rest:
        fold = fold_at(tuple(rest), 0)
        same = fold is not None and (fold.acc, fold.loop) == (table.one.acc, table.one.loop)
        place = None if fold is None or fold.acc.buffer.shape else given if same else table.place(fold)
        if fold is not None and place is not None:
            own = fold.acc.buffer

            def change(x: n.Expr, own: n.Buffer = own, place: tuple[n.Expr, ...] = place) -> n.Expr | None:
                return build.load(build.region(held, *place)) if isinstance(x, n.Load) and x.at.buffer == own else None
            rest = [rewritten(t, change) for k, t in enumerate(rest) if k not in (0, fold.at)]
            continue
        s = rest.pop(0)
        for fragment, inner in child_blocks(s):
            s = with_block(s, fragment, _untabled(inner, table, held, given))
        out.append(s)
    return tuple(out)


