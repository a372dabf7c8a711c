"""Fills an array in turns of one element each, in some of which those at its edges are brought, too: a tile with its halo.

pipeline: `bring-edges{turns=32 when=["", "turn < 2", "turn < 2"] place=["turn + 2", "turn", "turn + 34"] value=["load(X[b * 32 + turn] else 0.0 clip)", "load(X[b * 32 + turn - 2] where b * 32 + turn >= 2 else 0.0)", "load(X[b * 32 + turn + 32] else 0.0 clip)"]}@main/fill`

```diff
 kir 1
 program smoothed
   size N: i32
   in X: f32[N]
   out Y: f32[N]
 kernel main grid (b: ceildiv(N, 32)) threads 1
   register row: f32[36]
-  @fill for e in 0..36
-    row[e] = load(X[b * 32 + e - 2] else 0.0 clip)
+  @fill for turn in 0..32
+    row[turn + 2] = load(X[b * 32 + turn] else 0.0 clip)
+    if turn < 2
+      row[turn] = load(X[b * 32 + turn - 2] where b * 32 + turn >= 2 else 0.0)
+      row[turn + 34] = load(X[b * 32 + turn + 32] else 0.0 clip)
   for i in 0..32
     if b * 32 + i < N
       Y[b * 32 + i] = row[i] + row[i + 2] + row[i + 4]
```
"""  # noqa: E501  the pipeline is one line
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.analysis.loops.loop_nest import Nest, by_place, counted_out
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, DType, TileType
from kir.ir.visit import names_read, substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.match import counting, fresh_var, from_zero, matched, names_at, node_as, params_as, splice
from kir.rewrite.match.materialize import buffers_read, is_pure
from kir.rewrite.precondition import decided
from kir.rewrite.view import expression_at, text_of

TURN = n.Var("turn", I32)
AT = n.Var("at", I32)
TRUE = n.Const(True, BOOL)


@dataclass(frozen=True)
class Part:
    """What is stored in the turns in which a condition holds (None: in all): where, and what, in terms of `turn`."""

    when: n.Expr | None
    place: n.Expr
    value: n.Expr


def _whole(s: Place) -> n.Store | None:
    """The store of a loop that does nothing but fill an array of one axis from its beginning, element by element."""
    if not (isinstance(s, n.For) and s.kind == "serial" and from_zero(s) and not s.attrs and len(s.body) == 1 and isinstance(store := s.body[0], n.Store)):
        return None
    local = store.at.buffer.space in ("register", "shared") and not (store.mask is not None or store.clip or store.cache)
    return store if local and store.at.index == (s.var,) and build.int_value(s.hi) and not isinstance(store.value.type, TileType) else None


def _parts(loop: n.For) -> Iterator[Part | None]:
    """What each store of a loop's turns stores; None for what is no such store."""
    turn = {loop.var.name: TURN}
    for s in loop.body:
        branch = isinstance(s, n.If) and not (s.orelse or s.static) and names_read(s.cond) == {loop.var.name}
        for x in s.then if isinstance(s, n.If) and branch else (s,):
            plain = isinstance(x, n.Store) and x.mask is None and not x.clip and not x.cache and len(x.at.index) == 1
            if not (plain and isinstance(x, n.Store) and isinstance(at := x.at.index[0], n.Expr) and at.type == I32 and isinstance(x.value.type, DType)):
                yield None
                continue
            yield Part(substitute(s.cond, turn) if isinstance(s, n.If) else None, substitute(at, turn), substitute(x.value, turn))


def _fills(program: n.Program, site: Site, context: Context) -> Verdict:
    item, loop = params_as(site, BringEdges), node_as(program, site.path, n.For)
    parts, length = matched(item.parts(program, site.path)), matched(build.int_value(loop.hi))
    found = counted_out([TURN], [item.turns], [*(p.place for p in parts), *(p.when for p in parts if p.when is not None)])
    if isinstance(found, str):
        return unknown(found)
    told, conditions = list[int](), iter(found[len(parts):])
    for p, places in zip(parts, found, strict=False):
        told += [int(x) for x in (places if p.when is None else places[next(conditions)])]
    twice = next((x for k, x in enumerate(sorted(told)[1:]) if sorted(told)[k] == x), None)
    missed = next((x for x in range(length) if x not in set(told)), None)
    if twice is not None or missed is not None or len(told) != length:
        return refuted("the turns do not fill the array", f"element {missed if missed is not None else twice} is "
                       f"{'never written' if missed is not None else 'written twice'}" if missed is not None or twice is not None else "a place beyond it",
                       needs="places that are the array's, each once")
    return proved("the turns fill each element once (counted out)")


def _alike(program: n.Program, site: Site, context: Context) -> Verdict:
    item, loop = params_as(site, BringEdges), node_as(program, site.path, n.For)
    store, known = matched(_whole(loop)), Facts.at(program, site.path).ranging(TURN, build.const(0), build.const(item.turns), build.const(1))
    for p in matched(item.parts(program, site.path)):
        wanted: n.Expr = substitute(store.value, {loop.var.name: p.place})
        claim = _same(p.value, wanted)
        if claim is None:
            return refuted("an element becomes another one", f"{text_of(p.value)} is not {text_of(wanted)}", needs="what the loop stores there")
        verdict = decided(claim, known if p.when is None else known.knowing(p.when), "each element is what it was", "an element becomes another one")
        if not verdict:
            return verdict
    return proved("each element is what it was")


def _same(a: n.Expr, b: n.Expr) -> n.Expr | None:
    """What must hold for two values to be one: that both are loaded where one is; None where they are not of the same place."""
    if a == b:
        return TRUE
    if not (isinstance(a, n.Load) and isinstance(b, n.Load) and a.at.buffer == b.at.buffer and a.cache == b.cache and len(a.at.index) == len(b.at.index)):
        return None
    pairs = [(x, y) for x, y in zip(a.at.index, b.at.index, strict=True) if isinstance(x, n.Expr) and isinstance(y, n.Expr)]
    if len(pairs) != len(a.at.index) or not all(build.is_const(build.sub(x, y), 0) for x, y in pairs):
        return None
    ours, theirs = _loaded(a), _loaded(b)
    if (ours, theirs) != (TRUE, TRUE) and a.other != b.other:
        return None
    return build.logical_or(build.logical_and(ours, theirs), build.logical_and(build.unary("not", ours), build.unary("not", theirs)))


def _loaded(x: n.Load) -> n.Expr:
    """When a load reads memory, and not what stands for an element beyond its bounds."""
    claims = [] if x.mask is None else [x.mask]
    for i, extent in zip(x.at.index, x.at.buffer.shape, strict=True) if x.clip else ():
        assert isinstance(i, n.Expr)
        claims += [build.compare("ge", i, 0), build.compare("lt", i, extent)]
    return reduce(build.logical_and, claims) if claims else TRUE


@dataclass(frozen=True)
class BringEdges(Pass):
    """`turns` are how many there are, `when` in which of them (all: ""), `place` where and `value` what is stored, in terms of `turn`, for each store."""

    intent: ClassVar[str] = "stage-shared"
    catalogue: ClassVar[tuple[int, ...]] = (2, 5)
    claim: ClassVar[str] = "Each thread brings its own element, and the first ones what lies beyond the tile."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P850", "validity", "shape", "each element is written in one turn, once", _fills),
        Precondition("KIR-P851", "validity", "shape", "each turn stores what the loop stores there", _alike))

    turns: int = 0
    when: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    value: tuple[str, ...] = ()

    def parts(self, program: n.Program, path: Path) -> tuple[Part, ...] | None:
        """The stores that the texts say; None where one says none."""
        out = []
        for texts in zip(self.when, self.place, self.value, strict=False):
            when, place, value = (expression_at(program, path, text, (TURN,)) if text else None for text in texts)
            known = isinstance(place, n.Expr) and place.type == I32 and isinstance(value, n.Expr) and is_pure(value)
            if not known or place is None or value is None or bool(texts[0]) != (when is not None) or (when is not None and names_read(when) != {"turn"}):
                return None
            out.append(Part(when, place, value))
        return tuple(out)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that fills an array of one axis; which turn takes which of its elements is given."""
        store = _whole(node)
        if store is None or self.turns < 1 or not len(self.when) == len(self.place) == len(self.value) >= 2:
            return None
        parts = self.parts(program, path)
        if parts is None or store.at.buffer.name in buffers_read(store.value) or any(p.value.type != store.value.type for p in parts):
            return Miss("there are no such stores here")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop of turns."""
        loop, parts = node_as(program, site.path, n.For), matched(self.parts(program, site.path))
        store, turn = matched(_whole(loop)), fresh_var("turn", names_at(program, site.path))
        body: list[n.Stmt] = []
        for when, group in groupby(parts, lambda p: p.when):
            stores: Sequence[n.Stmt] = [n.Store(build.region(store.at.buffer, p.place), p.value) for p in group]
            stores = [substitute(s, {"turn": turn}) for s in stores]
            body += stores if when is None else [n.If(substitute(when, {"turn": turn}), tuple(stores))]
        return Rewritten(splice(program, site.path, (counting(turn, self.turns, tuple(body), label=loop.label),)), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At turns that store an element each, and some of them more, all of one array and of one form."""
        if not (isinstance(node, n.For) and node.kind == "serial" and from_zero(node) and not node.attrs and (turns := build.int_value(node.hi))):
            return None
        parts = tuple(_parts(node))
        stores = [x for s in node.body for x in (s.then if isinstance(s, n.If) else (s,)) if isinstance(x, n.Store)]
        if len(parts) < 2 or None in parts or len(stores) != len(parts) or len({x.at.buffer for x in stores}) != 1:
            return None
        known = [p for p in parts if p is not None]
        b, length = stores[0].at.buffer, build.int_value(stores[0].at.buffer.shape[0]) if len(stores[0].at.buffer.shape) == 1 else None
        if length is None or b.space not in ("register", "shared") or any(b.name in buffers_read(p.value) or not is_pure(p.value) for p in known):
            return Miss(f"'{b.name}' is no array of one axis that is only filled")
        values = [by_place(Nest((("serial", TURN, turns),), n.Store(build.region(b, p.place), p.value)), (AT,)) for p in known]
        value = next((v for v in values if v is not None and "at" in names_read(v)), None)
        if value is None:
            return Miss("what is stored does not follow from where it is stored")
        if isinstance(value, n.Load) and (others := [p.value for p in known if isinstance(p.value, n.Load) and p.value.other is not None]):
            value = build.load(value.at, None, others[0].other, True, value.cache)
        item = BringEdges(turns, tuple("" if p.when is None else text_of(p.when) for p in known), tuple(text_of(p.place) for p in known),
                          tuple(text_of(p.value) for p in known))
        return Site(path, item, {"value": value, "length": length, "buffer": b})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over all elements."""
        loop, e = node_as(program, site.path, n.For), fresh_var("e", names_at(program, site.path))
        fill = n.Store(build.region(site.captures["buffer"], e), substitute(site.captures["value"], {"at": e}))
        return Rewritten(splice(program, site.path, (replace(counting(e, site.captures["length"], (fill,)), label=loop.label),)), site.path)
