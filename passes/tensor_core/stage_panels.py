"""Stages panels of a contraction: a loop of rank-1 updates (or of single products) becomes a loop of products of staged panels.

pipeline: `stage-panels{extent=32}@main/k`

```diff
 kir 1
 program row_dot
   in A: bf16[M, K]
   in B: bf16[K, 64]
   out C: f32[M, 64]
   size M: i32
   size K: i32
 kernel main grid (m_tile: ceildiv(M, 64)) threads 128
   fragment acc: f32[64, 64] = 0.0
-  @k for k in 0..K
-    let a = load(A[m_tile * 64 +: 64, k] else 0.0:bf16 clip)
-    let b = B[k, 0 +: 64]
-    acc = acc + cast(expand(a, axis=1), f32) * cast(b, f32)
+  @k for k_tile in 0..ceildiv(K, 32)
+    let a = load(A[m_tile * 64 +: 64, k_tile * 32 +: 32] else 0.0:bf16 clip)
+    let b = load(B[k_tile * 32 +: 32, 0 +: 64] else 0.0:bf16 clip)
+    mma acc += a * b via fma
   C[m_tile * 64 +: 64, 0 +: 64] = acc clip
```
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis.clipping import divides, settle_clips
from kir.analysis.facts import Facts
from kir.analysis.solver import multiple
from kir.analysis.tiles.retile import REDUCERS, CannotRetile, Narrow
from kir.analysis.tiles.tile_axes import TileAxes
from kir.analysis.tiles.widen import Widen
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import DType
from kir.ir.visit import names_read, walk
from kir.rewrite.base import Context, Effect, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import element_name, fresh, kernel_of, names_in, replace_kernel, replace_stmts, tile_name
from kir.rewrite.match import fresh_var, is_counted, node_as, params_as
from kir.rewrite.match.independence import last_write
from kir.rewrite.precondition import Verdict, proved, refuted, unknown, unless

from ..grid.tile import covered, left_over, tiled
from ._tail_values import FOLDS_NOTHING, End, past_end


def _loop(program: n.Program, site: Site) -> tuple[n.For, StagePanels]:
    loop, params = node_as(program, site.path, n.For), params_as(site, StagePanels)
    return loop, params


def _accumulations(loop: n.For) -> list[n.Store]:
    """The stores to what outlives an iteration."""
    own = {s.buffer.name for s in walk(loop) if isinstance(s, n.Alloc)}
    return [s for s in walk(loop) if isinstance(s, n.Store) and s.at.buffer.space != "global" and s.at.buffer.name not in own]


def _running(loop: n.For) -> str | None:
    """A name that outlives an iteration and is read in the loop other than to fold something into it: a scan, not a contraction."""
    folds = _accumulations(loop)
    loads = Counter(x.at.buffer.name for x in walk(loop) if isinstance(x, n.Load))
    folded = Counter(s.at.buffer.name for s in folds if isinstance(s.value, n.Binary) and isinstance(s.value.a, n.Load) and s.value.a.at == s.at)
    return next((s.at.buffer.name for s in folds if loads[s.at.buffer.name] > folded[s.at.buffer.name]), None)


def _tails(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item = _loop(program, site)
    extent, known = item.extent, Facts.at(program, site.path)
    if divides(extent, loop.hi, program.facts):
        return proved(f"{extent} divides the trip count")
    if item.floor:
        return left_over(extent, "the trip count", loop.hi, known)
    end = End.of(program, kernel_of(program, site.path), loop, extent, known)
    divided = f"a fact that {extent} divides the trip count"
    open_ = [s for s in _accumulations(loop) if not (isinstance(s.value, n.Binary) and past_end(loop, s.value.b, end) == FOLDS_NOTHING.get(s.value.op))]
    for s in open_:
        if not (isinstance(v := s.value, n.Binary) and v.op == "add" and isinstance(v.b, n.Binary) and v.b.op == "mul"):
            said = unknown(f"'{s.at.buffer.name}' does not add products, so rows past the end may not add zero",
                           needs=f"{divided}, or a mask that makes nothing of what lies past its end")
            return unless(multiple(loop.hi, extent), known, said)
    indexed = {x.at for x in walk(loop) if isinstance(x, n.Load) and x.at.buffer.space == "global" and loop.var.name in names_read(x.at)}
    for r in indexed:
        if not _ends(r, loop, end):
            size = build.int_value(loop.hi)
            text = f"the last panel reads past the trip count, and '{r.buffer.name}' does not end there"
            if size is None or _meets_zero(r, loop, end):
                return unless(multiple(loop.hi, extent), known, unknown(text, needs=divided))
            return refuted(text, f"{loop.var.name} = {size} reads '{r.buffer.name}'", needs="an extent that divides the trip count")
    count, held = build.int_value(loop.hi), [x for x in walk(loop) if isinstance(x, n.Load) and x.at.buffer.space != "global"]
    if count is not None and any(loop.var.name in names_read(x.at) for x in held):
        return refuted(f"{extent} does not divide the {count} iterations", f"the last panel ends at {-(-count // extent) * extent}",
                       needs="an extent that divides the trip count")
    if open_:
        said = unknown(f"what is added to '{open_[0].at.buffer.name}' past the loop's end is not known to be zero, though all that is read there is clipped",
                       needs=f"{divided}, or products of what is zero there")
        return unless(multiple(loop.hi, extent), known, said)
    return proved("past the end of the loop what is folded in is zero (of a sum) or the lowest value (of a maximum): it is clipped, or a mask makes it so")


def _ends(r: n.Region, loop: n.For, end: End) -> bool:
    """Whether a tensor ends where a loop over its places does, so that what lies past the end is clipped."""
    return all(not isinstance(i, n.Expr) or loop.var.name not in names_read(i) or end.is_past(i, d)
               for i, d in zip(r.index, r.buffer.shape, strict=True))


def _meets_zero(r: n.Region, loop: n.For, end: End) -> bool:
    """Whether what is read is multiplied, wherever it is folded in, by what is clipped to zero past the end: right for all that is finite there, so that no
    witness is sure."""
    def reads(e: n.Node) -> list[n.Region]:
        return [x.at for x in walk(e) if isinstance(x, n.Load) and x.at.buffer.space == "global" and loop.var.name in names_read(x.at)]
    values = [s.value.b for s in _accumulations(loop) if isinstance(s.value, n.Binary) and r in reads(s.value)]
    return bool(values) and all(isinstance(v, n.Binary) and v.op == "mul" and any(
        r in reads(one) and any(_ends(each, loop, end) for each in reads(other)) for one, other in ((v.a, v.b), (v.b, v.a))) for v in values)


def _immutable(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, _ = _loop(program, site)
    read = {x.at.buffer.name for x in walk(loop) if isinstance(x, n.Load) and x.at.buffer.space == "global"}
    written = {s.at.buffer.name for s in walk(loop) if isinstance(s, n.Store) and s.at.buffer.space == "global"}
    if read & written:
        name = sorted(read & written)[0]
        return refuted(f"'{name}' is written in the loop that stages it", f"an iteration writes '{name}' after the panel was staged")
    disputed = last_write(program, site.path, loop)
    return disputed if disputed is not None else proved("nothing that is staged is written in the loop")


@dataclass(frozen=True)
class StagePanels(Pass):
    """`extent` is the depth of a panel along the contracted axis; `back` puts that axis behind those that values have already;
    `named` gives what a panel folds in a name before it is folded. `floor`: the number of panels is a quotient, of a loop that the extent divides."""

    extent: int = 32
    back: bool = False
    named: bool = False
    floor: bool = False

    intent: ClassVar[str] = "stage-shared"
    catalogue: ClassVar[tuple[int, ...]] = (2,)
    claim: ClassVar[str] = "Operand panels are staged once per CTA and reused by all its rows and columns."
    numerics: ClassVar[str] = "reassociated(k)"
    requires: ClassVar[tuple[str, ...]] = ("tiled",)
    provides: ClassVar[tuple[str, ...]] = ("panels",)
    least: ClassVar[Mapping[str, int]] = {"extent": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P020", "validity", "shape", "the depth divides the trip count, or what lies past the end adds zero", _tails),
        Precondition("KIR-P021", "validity", "aliasing", "operands do not change while they are staged", _immutable),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Site | Miss | None:
        """At a serial loop from 0 by 1 that folds something over its variable."""
        if not is_counted(node):
            return None
        if not any(isinstance(s, n.Store) and s.at.buffer.space != "global" for s in node.body):
            return None
        if (running := _running(node)) is not None:
            return Miss(f"an iteration reads what earlier ones made of '{running}'")
        try:
            body = self._widened(node, "%tile")
        except CannotRetile as bad:
            return Miss(str(bad))
        folded = any(isinstance(s, n.Mma) or (isinstance(s, n.Store) and isinstance(s.value, n.Binary) and isinstance(s.value.b, n.Call)
                                              and s.value.b.fn == "reduce") for s in body)
        return Site(path, self) if folded else Miss("nothing is accumulated over the loop")

    def _widened(self, loop: n.For, tile: str) -> n.Block:
        lo = build.mul(n.Var(tile, loop.var.of), self.extent)
        return Widen.of(loop.body, loop.var, lo, self.extent, contract=True, back=self.back).block(loop.body)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Widens the loop body over the loop variable."""
        loop, kernel = node_as(program, site.path, n.For), kernel_of(program, site.path)
        tile = fresh_var(tile_name(loop.var.name), names_in(program, kernel), loop.var.of)
        body = self._widened(loop, tile.name)
        if self.named:
            body = _with_partials(body, names_in(program, kernel) | set(bound_names(body)))
        made = replace(loop, var=tile, hi=tiled(loop.hi, self.extent, self.floor), body=body)
        return self._settled(replace_stmts(program, site.path, (made,)), site, kernel)

    def _settled(self, made: n.Program, site: Site, before: n.Kernel) -> Rewritten:
        kernel = settle_clips(kernel_of(made, site.path), made.facts, before)
        return Rewritten(replace_kernel(made, kernel.name, kernel), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over panels that an FMA product (or a reduction) consumes."""
        if not is_counted(node):
            return None
        bare = replace(node, body=_without_partials(node.body))
        extent, named = _depth(bare), bare != node
        if extent is None:
            return None
        try:
            StagePanels(extent, named=named)._narrowed(program, path, node)
        except CannotRetile as bad:
            return Miss(str(bad))
        panels = covered(node.hi, extent, program.facts)
        return tuple(Site(path, StagePanels(extent, back, named, panels is not None and panels[1])) for back in (False, True))

    def _narrowed(self, program: n.Program, path: Path, loop: n.For) -> n.For:
        if self.named:
            loop = replace(loop, body=_without_partials(loop.body))
            program = replace_stmts(program, path, (loop,))
        kernel = kernel_of(program, path)
        axes = TileAxes(kernel)
        row = fresh_var(element_name(loop.var.name), names_in(program, kernel), loop.var.of)
        lo = build.mul(loop.var, self.extent)
        found = [c for c in axes.over(lambda c: c.extent == self.extent and bool(c.sweeps) and all(
            x == lo and step in (1, build.const(1)) for x, step in c.sweeps)) if c.reduced]
        if len(found) != 1:
            raise CannotRetile(f"{len(found)} axes run over the panels of '{loop.var.name}'")
        hi = covered(loop.hi, self.extent, program.facts)
        if hi is None:
            raise CannotRetile("the number of panels is not that of whole tiles")
        return replace(loop, var=row, hi=hi[0], body=Narrow(axes, found[0], lo, row).block(loop.body))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Narrows the loop body to one element of the contracted axis at a time."""
        loop = node_as(program, site.path, n.For)
        made = replace_stmts(program, site.path, (self._narrowed(program, site.path, loop),))
        return self._settled(made, site, kernel_of(program, site.path))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The bytes of the staged panels, which live in shared memory."""
        loop, _ = _loop(program, site)
        staged = 0
        for s in self._widened(loop, "%tile"):
            if isinstance(s, n.Let) and isinstance(s.value, n.Load) and s.value.at.buffer.space == "global":
                size = 1
                for i in s.value.at.index:
                    size *= i.extent if isinstance(i, n.Span) and isinstance(i.extent, int) else 1
                staged += size * s.value.at.buffer.dtype.bytes
        return Effect(shared_bytes=staged)


def _is_fold(s: n.Stmt, value: n.Expr | None = None) -> bool:
    """Whether a store folds a reduction (or `value`, its name) into what outlives the panel."""
    return (isinstance(s, n.Store) and s.at.buffer.space != "global" and isinstance(v := s.value, n.Binary) and v.op in REDUCERS and v.a == n.Load(s.at)
            and (v.b == value if value is not None else isinstance(v.b, n.Call) and v.b.fn == "reduce"))


def _with_partials(body: n.Block, taken: set[str]) -> n.Block:
    """Statements in which each reduction that is folded has a name."""
    out: list[n.Stmt] = []
    for s in body:
        if _is_fold(s) and isinstance(s, n.Store) and isinstance(s.value, n.Binary):
            name = fresh("part", taken)
            out.append(n.Let((name,), s.value.b))
            s = replace(s, value=build.binary(s.value.op, s.value.a, n.Var(name, s.value.b.type)))
        out.append(s)
    return tuple(out)


def _without_partials(body: n.Block) -> n.Block:
    """Statements without names for reductions that one later statement folds, and nothing else reads."""
    out = list(body)
    for s in body:
        if not (isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Call) and s.value.fn == "reduce"):
            continue
        var = n.Var(s.names[0], s.value.type)
        readers = [x for x in out if x is not s and var.name in names_read(x)]
        if len(readers) == 1 and _is_fold(x := readers[0], var) and isinstance(x, n.Store) and isinstance(x.value, n.Binary):
            folded = replace(x, value=build.binary(x.value.op, x.value.a, s.value))
            out = [folded if y is x else y for y in out if y is not s]
    return tuple(out)


def _depth(loop: n.For) -> int | None:
    """The depth of the panels that the products or reductions of a loop body contract."""
    for s in loop.body:
        if isinstance(s, n.Mma):
            depth = s.a.type.shape[-1] if not isinstance(s.a.type, DType) and hasattr(s.a.type, "shape") else None
            return depth if isinstance(depth, int) else None
        if isinstance(s, n.Store) and isinstance(s.value, n.Binary) and s.value.op in REDUCERS and isinstance(s.value.b, n.Call) \
                and s.value.b.fn == "reduce" and isinstance(s.value.b.args[0], n.Expr):
            shape = getattr(s.value.b.args[0].type, "shape", ())
            depth = shape[int(dict(s.value.b.attrs)["axis"])]
            return depth if isinstance(depth, int) else None
    return None
