"""Folds a row by a function of two elements as one scan of a tile, instead of one element after the other.

pipeline: `function-scan@main/best`

```diff
 kir 1
 program best_so_far
   in X: i32[M, 64]
   out Y: i32[M, 64]
   out Z: i32[M, 64]
   size M: i32
 function better(a: i32, i: i32, b: i32, k: i32) -> i32, i32
   let first = a > b | a == b & i > k
   return select(first, a, b), select(first, i, k)
 kernel main grid (row: M) threads 64
-  @best register best: i32 = 0
-  register place: i32 = 0
-  for j in 0..64
-    let best_1, place_1 = better(best, place, X[row, j], j)
-    best = select(j == 0, X[row, j], best_1)
-    place = select(j == 0, j, place_1)
-    Y[row, j] = best
-    Z[row, j] = place
+  @best let best, place = scan(X[row, 0 +: 64], iota(64), axis=0, combine=better)
+  Y[row, 0 +: 64] = best
+  Z[row, 0 +: 64] = place
```
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases, Facts
from kir.analysis.access import independent
from kir.analysis.elements import NotElementwise
from kir.analysis.tiles.retile import CannotRetile
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TupleType, Type, dtype_of, shape_of
from kir.ir.visit import names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.match import block_and_index, counting, edited, fresh_var, is_counted, matched, matched_as, names_at, splice
from kir.rewrite.match.folds import slice_of, tile_over

from ..threads.partition_rows import PartitionRows, distinct, narrowed
from ..threads.tile_scan import apart
from ._choices import NoChoice, three_that_tell


@dataclass(frozen=True)
class _Folding:
    """Numbers that a loop folds `terms` into by a function, and stores of what they are after each step."""

    accs: tuple[n.Alloc, ...]
    loop: n.For
    fn: str
    terms: tuple[n.Expr, ...]
    stores: tuple[n.Store, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(a.buffer.name for a in self.accs)


def _folding(block: n.Block, i: int) -> _Folding | None:
    """The accumulators from `i` on, and the loop behind them."""
    k = i
    while k < len(block) and isinstance(block[k], n.Alloc):
        k += 1
    loop = block[k] if k < len(block) else None
    count = k - i
    accs = tuple(matched_as(s, n.Alloc) for s in block[i:k])
    if not (is_counted(loop, of=I32, plain=True) and len(loop.body) > count and isinstance(step := loop.body[0], n.Let)):
        return None
    call, owns = step.value, [n.Load(n.Region(a.buffer)) for a in accs]
    if not (isinstance(call, n.Call) and call.of is not None and not call.attrs and len(call.args) == 2 * count == 2 * len(step.names)
            and list(call.args[:count]) == owns):
        return None
    terms = tuple(matched_as(a, n.Expr) for a in call.args[count:])
    kinds = tuple(dtype_of(t.type) for t in terms)
    made = n.Let(step.names, n.Call(call.fn, tuple(call.args), (), TupleType(kinds) if count > 1 else kinds[0]))
    stores = tuple(s for s in loop.body[1 + count:] if isinstance(s, n.Store) and s.at.buffer.space == "global")
    begun = all(not a.buffer.shape and a.buffer.space == "register" and a.init == build.const(0, a.buffer.dtype) for a in accs)
    if not begun or len(stores) < len(loop.body) - 1 - count:
        return None
    folding = _Folding(accs, loop, call.fn, terms, stores)
    return folding if loop.body[:1 + count] == (made, *_kept(folding, loop.var, step.names)) else None


def _kept(f: _Folding, j: n.Var, names: Sequence[str]) -> list[n.Stmt]:
    """What an accumulator is after a step: the first element, and from then on what the function gave."""
    first = build.compare("eq", j, build.const(0))
    return [n.Store(n.Region(a.buffer), n.Select(first, term, n.Var(name, a.buffer.dtype))) for a, term, name in zip(f.accs, f.terms, names, strict=True)]


def _whole(a: n.Alloc, extent: int) -> n.Buffer:
    """The row of all that an accumulator is in turn."""
    return n.Buffer(a.buffer.name, a.buffer.dtype, (build.const(extent),), "fragment")


def _unchanged(program: n.Program, site: Site, context: Context) -> Verdict:
    folding = matched(_folding(*block_and_index(program, site.path)))
    return apart(folding.loop, set(folding.names), folding.stores, Aliases(program))


def _distinct(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    folding = matched(_folding(block, i))
    for s in folding.stores:
        if any(isinstance(x, n.Load) and x.at.buffer.name in folding.names for x in walk(s.at)):
            return unknown(f"where '{s.at.buffer.name}' is stored is worked out from what is folded", needs="a place that the loop alone tells")
        alone = splice(program, site.path, (replace(folding.loop, body=(s,)),), 0, 1 + len(folding.accs))
        if (verdict := distinct(alone, site, context)).kind != "proved":
            return verdict
    return proved("each iteration writes elements of its own")


def _depends_on_order(program: n.Program, fn: str) -> str:
    """Why a scan, which threads do in groups, may give something else than a loop does ("" where it gives the same)."""
    try:
        found = three_that_tell(next(f for f in program.functions if f.name == fn))
    except NoChoice as more:
        return f"whether '{fn}' gives the same in any grouping is not known: {more}"
    return f"'{fn}' gives something else where the second and the third of the elements {found} are combined first" if found is not None else ""


@dataclass(frozen=True)
class FunctionScan(Pass):
    """`spread`: what is the same for all elements is written out for each where it is stored."""

    intent: ClassVar[str] = "tile-scan"
    catalogue: ClassVar[tuple[int, ...]] = (58,)
    claim: ClassVar[str] = "A scan by a function takes the logarithm of its length in steps, spread over the threads."
    provides: ClassVar[tuple[str, ...]] = ("scan",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P963", "validity", "aliasing", "the loop reads nothing that it writes", _unchanged),
        Precondition("KIR-P964", "validity", "aliasing", "no two iterations write one element", _distinct),
    )

    spread: bool = True

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of the numbers that the next statement but those, a loop of known length, folds into by a function."""
        if not isinstance(node, n.Alloc):
            return None
        block, i = block_and_index(program, path)
        folding = _folding(block, i)
        if folding is None:
            return None
        extent = build.int_value(folding.loop.hi)
        if extent is None or extent < 1:
            return Miss("the number of elements is not known")
        behind = block[i + 1 + len(folding.accs):]
        written = {x.at.buffer.name for s in (*behind, *folding.stores) for x in walk(s) if isinstance(x, n.Store)}
        if written & set(folding.names):
            return Miss("what is folded is written elsewhere, too")
        if reason := _depends_on_order(program, folding.fn):
            return Miss(reason)
        try:
            self._tiles(folding, extent, behind)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        return Site(path, self)

    def _tiles(self, f: _Folding, extent: int, behind: n.Block) -> n.Block:
        """The scan, a store of a whole tile for each store of an element, and what stands behind. Raises CannotRetile, NotElementwise."""
        sources = tuple(tile_over(f.loop, t, 0) for t in f.terms)
        value = build.call("scan", *sources, axis=0, combine=f.fn)
        kinds = [value.type] if len(f.accs) == 1 else list(matched_as(value.type, TupleType).elements)
        wholes = [_whole(a, extent) for a in f.accs]
        tiles = {w.name: n.Var(w.name, kind) for w, kind in zip(wholes, kinds, strict=True)}
        owns = {n.Load(n.Region(a.buffer)): w for a, w in zip(f.accs, wholes, strict=True)}
        last = {own: build.call("pick", tiles[w.name], build.const(extent - 1)) for own, w in owns.items()}
        made: list[n.Stmt] = [n.Let(f.names, value, label=f.accs[0].label, origin=f.accs[0].origin)]

        def part(_: n.Node, new: n.Node) -> n.Node:
            return n.Load(build.region(owns[new], f.loop.var)) if isinstance(new, n.Load) and new in owns else new

        def tile(_: n.Node, new: n.Node) -> n.Node:
            return tiles[new.at.buffer.name] if isinstance(new, n.Load) and new.at.buffer in wholes else new

        def end(_: n.Node, new: n.Node) -> n.Node:
            return last[new] if isinstance(new, n.Load) and new in last else new
        for s in f.stores:
            wide = PartitionRows(0, spread=self.spread).widened(replace(f.loop, body=(matched_as(transform(s, part), n.Store),)))
            made.append(matched_as(transform(replace(matched_as(wide, n.Store), label=s.label), tile), n.Store))
        return (*made, *(matched_as(transform(s, end), n.Stmt) for s in behind))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One scan, stores of tiles, and the last element where what is left is used."""
        block, i = block_and_index(program, site.path)
        folding = matched(_folding(block, i))
        made = self._tiles(folding, matched(build.int_value(folding.loop.hi)), block[i + 1 + len(folding.accs):])
        return edited(program, site.path, made, 0, len(block) - i)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a named scan by a function, of rows, whose results are stored, or of which the last is taken."""
        if not (isinstance(node, n.Let) and isinstance(node.value, n.Call) and node.value.fn == "scan"):
            return None
        options = dict(node.value.attrs)
        f = next((f for f in program.functions if f.name == options.get("combine")), None)
        shapes = {shape_of(matched_as(a, n.Expr).type) for a in node.value.args}
        if f is None or options.get("reverse") or len(shapes) != 1 or len(shape := next(iter(shapes))) != 1 or not isinstance(shape[0], int):
            return Miss("it is no scan of rows of known length by a function, from their first element on")
        block, i = block_and_index(program, path)
        masks = [s.mask for s in block[i + 1:] if isinstance(s, n.Store) and set(node.names) & names_read(s)]
        item = FunctionScan(all(m is None or shape_of(m.type) == shape for m in masks))
        try:
            item._loop(program, path)
        except (CannotRetile, NotElementwise) as bad:
            return Miss(str(bad))
        return Site(path, item)

    def _loop(self, program: n.Program, path: Path) -> tuple[n.Block, n.Block, n.Block]:
        """What stands before, the numbers with their loop, and what stands behind. Raises CannotRetile, NotElementwise."""
        block, i = block_and_index(program, path)
        node = matched_as(block[i], n.Let)
        call = matched_as(node.value, n.Call)
        sources = [matched_as(a, n.Expr) for a in call.args]
        extent, taken = matched_as(shape_of(sources[0].type)[0], int), names_at(program, path)
        stores, before, behind = _apart(program, path, node.names, extent)
        j = fresh_var("j", taken)
        steps = tuple(fresh_var(name, taken).name for name in node.names)
        kinds = [dtype_of(x.type) for x in sources]
        accs = tuple(n.Alloc(n.Buffer(name, kind, (), "register"), build.const(0, kind), label=None if k else node.label, origin=node.origin)
                     for k, (name, kind) in enumerate(zip(node.names, kinds, strict=True)))
        terms = tuple(slice_of(x, 0, j) for x in sources)
        owns = {a.buffer.name: n.Load(n.Region(a.buffer)) for a in accs}
        wholes = {a.buffer.name: n.Load(n.Region(_whole(a, extent))) for a in accs}
        each: Type = TupleType(tuple(kinds)) if len(kinds) > 1 else kinds[0]
        fn = str(dict(call.attrs)["combine"])
        folding = _Folding(accs, counting(j, extent, ()), fn, terms, ())
        body: list[n.Stmt] = [n.Let(steps, n.Call(fn, (*owns.values(), *terms), (), each)), *_kept(folding, j, steps)]
        for s in stores:
            held = transform(s, lambda _, new: wholes[new.name] if isinstance(new, n.Var) and new.name in wholes else new)
            one = narrowed(matched_as(held, n.Store), 0, j, self.spread)
            body.append(replace(matched_as(transform(one, lambda _, new: owns[new.at.buffer.name] if isinstance(new, n.Load) and new.at.buffer.name in owns
                                                     else new), n.Store), label=s.label))

        def last(_: n.Node, new: n.Node) -> n.Node:
            of = new.args[0] if isinstance(new, n.Call) and new.fn == "pick" else None
            return owns[of.name] if isinstance(of, n.Var) and of.name in owns else new
        return before, (*accs, counting(j, extent, tuple(body))), tuple(matched_as(transform(s, last), n.Stmt) for s in behind)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One element after the other, after what stands between; what takes the last one behind."""
        block, i = block_and_index(program, site.path)
        before, loop, behind = self._loop(program, site.path)
        return edited(program, site.path, (*before, *loop, *behind), 0, len(block) - i, at=len(before))


def _apart(program: n.Program, path: Path, names: Sequence[str], extent: int) -> tuple[list[n.Store], n.Block, n.Block]:
    """The stores of what was scanned; the statements that need none of it, which may stand before; and those that take the last of it, or need what they
    give, which may stand behind. Raises CannotRetile where they may not be exchanged so."""
    block, i = block_and_index(program, path)
    known, aliases = Facts.at(program, path), Aliases(program)
    stores: list[n.Store] = []
    before: list[n.Stmt] = []
    behind: list[n.Stmt] = []
    for s in block[i + 1:]:
        uses = set(names) & names_read(s)
        if uses and isinstance(s, n.Store) and s.at.buffer.space == "global" and shape_of(s.at.type) == (extent,):
            if not all(independent((x,), (s,), known, aliases) for x in behind):
                raise CannotRetile("a store needs what the last element has changed")
            stores.append(s)
        elif uses or not all(independent((x,), (s,), known, aliases) for x in (*stores, *behind)):
            if uses and not _only_last(s, names, extent):
                raise CannotRetile("more is used than what is stored and the last element")
            behind.append(s)
        else:
            before.append(s)
    if not stores and not behind:
        raise CannotRetile("it is not used")
    return stores, tuple(before), tuple(behind)


def _only_last(s: n.Stmt, names: Sequence[str], extent: int) -> bool:
    """Whether a statement takes the last element of what has a name, and nothing else of it."""
    def gone(_: n.Node, new: n.Node) -> n.Node:
        last = isinstance(new, n.Call) and new.fn == "pick" and isinstance(new.args[0], n.Var) and new.args[0].name in names
        return n.Var("%last", new.type) if last and isinstance(new, n.Call) and build.is_const(matched_as(new.args[1], n.Expr), extent - 1) else new
    return not set(names) & names_read(matched_as(transform(s, gone), n.Stmt))
