"""Lets all threads run as many iterations as the one that has most, with the accesses past the end cut off.

pipeline: `uniform-trips@main/t/i`

```diff
 kir 1
 program scale
   size M: i32
   size N: i32
   in X: f32[M, N]
   out Y: f32[M, N]
   fact N >= 1
 kernel main grid (row: M) threads 64
   for t in 0..64 parallel thread
-    @i for i in 0..ceildiv(N - t, 64)
-      Y[row, i * 64 + t] = X[row, i * 64 + t] * 2.0
+    @i for i in 0..ceildiv(N, 64)
+      Y[row, i * 64 + t] = load(X[row, i * 64 + t] else 0.0 clip) * 2.0 clip
```
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis import Facts
from kir.analysis.elements import split_affine
from kir.analysis.loops.reductions import identity
from kir.analysis.normal.normal_form import is_pure
from kir.analysis.solver import multiple
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text, region_text
from kir.ir.types import DType, dtype_of
from kir.ir.visit import names_read, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown, unless
from kir.rewrite.match import edited, is_counted, matched, node_as, params_as
from kir.rewrite.match.exchange import REDUCTIONS
from kir.rewrite.match.thread_team import team_at

from ._out_of_bounds_value import fill_value, past_end


@dataclass(frozen=True)
class Trips:
    """A loop whose iteration i of a thread begins at `i * step + first`, and does something only where that is below `end`."""

    var: n.Var
    end: n.Expr
    first: n.Expr
    step: int

    @property
    def place(self) -> n.Expr:
        """Where an iteration begins."""
        return build.add(build.mul(self.var, self.step), self.first)

    @property
    def inside(self) -> n.Expr:
        """Whether an iteration does anything."""
        return build.compare("lt", self.place, self.end)

    def governs(self, r: n.Region) -> bool:
        """Whether a region of global memory moves with the loop, in a dimension that ends where the loop does."""
        return r.buffer.space == "global" and any(
            d == self.end and self.beyond(i.lo if isinstance(i, n.Span) else i) is not None for i, d in zip(r.index, r.buffer.shape, strict=False))

    def beyond(self, e: n.Expr) -> n.Expr | None:
        """How far behind the iteration's first place an index lies; None for one that does not move with the loop."""
        if not isinstance(e.type, DType) or e.type != self.end.type:
            return None
        rest = build.sub(e, self.place)
        return None if names_read(rest) & {self.var.name, *names_read(self.first)} else rest


def _apart(loop: n.For, thread: n.Var) -> Trips | None:
    """The trips of a loop that each thread runs as often as it must."""
    hi = loop.hi
    step = build.int_value(hi.b) if isinstance(hi, n.Binary) and hi.op == "ceildiv" else None
    if step is None or step < 2 or not isinstance(hi, n.Binary) or loop.var.of != hi.type:
        return None
    parts = split_affine(hi.a, thread)
    if parts is None:
        return None
    first = build.mul(thread, build.unary("neg", parts[1]))
    return Trips(loop.var, parts[0], first, step) if (build.int_value(parts[1]) or 0) < 0 else None


def _together(loop: n.For, thread: n.Var) -> Trips | None:
    """The trips of a loop that all threads run alike, read off an access that its end cuts off."""
    hi = loop.hi
    step = build.int_value(hi.b) if isinstance(hi, n.Binary) and hi.op == "ceildiv" else None
    if step is None or step < 2 or not isinstance(hi, n.Binary) or loop.var.of != hi.type or thread.name in names_read(hi):
        return None
    for e in _cut(loop, hi.a):
        parts = split_affine(e, thread)
        factor = build.int_value(parts[1]) if parts is not None and e.type == thread.of else None
        if factor and factor > 0:
            made = Trips(loop.var, hi.a, build.mul(thread, factor), step)
            if made.beyond(e) is not None:
                return made
    return None


def _cut(loop: n.For, end: n.Expr) -> Iterator[n.Expr]:
    """What is compared with the end: indices of accesses that are cut off there, and the left sides of masks."""
    for x in walk(loop):
        if isinstance(x, (n.Load, n.Store)) and x.clip:
            yield from (i.lo if isinstance(i, n.Span) else i for i, d in zip(x.at.index, x.at.buffer.shape, strict=False) if d == end)
        if isinstance(x, (n.Load, n.Store)) and isinstance(x.mask, n.Binary) and x.mask.op == "lt" and x.mask.b == end:
            yield x.mask.a


def _no_thread_less(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, team = node_as(program, site.path, n.For), matched(team_at(program, site.path))
    trips = matched(_apart(loop, team.thread))
    known = Facts.at(program, (*site.path, "body", 0))
    low = known.domain(trips.first).lo
    if low is None or low < 0:
        return unknown("a thread may have more iterations than all have together", needs=f"{expr_text(trips.first)} >= 0")
    for r in _governed(loop, trips):
        for i, d in zip(r.index, r.buffer.shape, strict=False):
            rest = trips.beyond(i.lo if isinstance(i, n.Span) else i) if d == trips.end else None
            if rest is not None and ((at := known.domain(rest).lo) is None or at < 0) and not _counts_up(rest, loop):
                return unknown(f"past the end {region_text(r)} may still be inside", needs=f"{expr_text(rest)} >= 0")
    return proved("an iteration that a thread has not lies past the end as a whole")


def _counts_up(rest: n.Expr, loop: n.For) -> bool:
    """Whether an index is a sum of counters of loops inside that start from 0, and of numbers from 0 on."""
    counters = {s.var.name for s in statements(loop.body) if isinstance(s, n.For) and build.is_const(s.lo, 0)}
    return all(c >= 0 and all(isinstance(a, n.Var) and a.name in counters for a in m) for m, c in build.polynomial(rest).items())


def _governed(loop: n.For, trips: Trips) -> Iterator[n.Region]:
    return (x.at for x in walk(loop) if isinstance(x, (n.Load, n.Store)) and trips.governs(x.at))


def _harmless(program: n.Program, site: Site, context: Context) -> Verdict:
    found, loop, team = _effects(program, site), node_as(program, site.path, n.For), matched(team_at(program, site.path))
    trips, known = matched(_apart(loop, team.thread)), Facts.at(program, site.path)
    last = known.domain(trips.first).hi
    if found.kind != "unknown" or last is None or last >= trips.step:
        return found
    return unless(multiple(trips.end, trips.step), known, found)


def _effects(program: n.Program, site: Site) -> Verdict:
    """The verdict on what runs past the end of a thread's share."""
    loop, team, item = node_as(program, site.path, n.For), matched(team_at(program, site.path)), params_as(site, UniformTrips)
    trips = matched(_apart(loop, team.thread))
    masked = item.masked(loop, trips)
    own = set(bound_names(masked.body))
    lets: dict[str, n.Expr] = {}
    arrays: dict[str, n.Expr] = {}

    def value(e: n.Expr) -> float | None:
        """What a value is past the end."""
        return past_end(_off(substitute(e, lets), trips.inside, arrays), set())
    rewritten = {s.at.buffer.name for s in statements(masked.body) if isinstance(s, n.Store)}
    for s in statements(masked.body):
        if isinstance(s, n.Let) and len(s.names) == 1:
            lets[s.names[0]] = substitute(s.value, lets)
        if isinstance(s, n.Alloc) and s.init is not None and s.buffer.name not in rewritten:
            got = value(s.init)
            if got is not None:
                arrays[s.buffer.name] = build.const(got, s.buffer.dtype) if s.buffer.dtype.is_float else build.const(int(got), s.buffer.dtype)
        if not isinstance(s, n.Store) or s.clip or s.mask is not None or s.at.buffer.name in own:
            continue
        if s.at.buffer.space == "global":
            return refuted(f"'{s.at.buffer.name}' does not end where the loop does", f"{trips.var.name} past the end writes {region_text(s.at)}")
        v = s.value
        if not (isinstance(v, n.Binary) and v.op in REDUCTIONS and v.a == n.Load(s.at)):
            return unknown(f"'{s.at.buffer.name}' is no running sum, maximum or minimum", needs="a value that iterations past the end leave alone")
        wanted = float(identity(REDUCTIONS[v.op], s.at.buffer.dtype).value)
        got = value(v.b)
        if got != wanted:
            return unknown(f"past the end {'something unknown' if got is None else got} is folded into '{s.at.buffer.name}'", needs=f"{wanted} there")
    return proved("past the end nothing is stored, and what is folded in changes nothing")


def _off(e: n.Expr, inside: n.Expr, arrays: dict[str, n.Expr]) -> n.Expr:
    """A value with loads under that mask as what they give without it, and elements of arrays that hold one number as that number."""
    def leave(_: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.mask == inside and new.other is not None:
            return new.other
        return arrays.get(new.at.buffer.name, new) if isinstance(new, n.Load) else new
    made: n.Expr = transform(e, leave)
    return made


@dataclass(frozen=True)
class UniformTrips(Pass):
    """`fill` is what masked loads give: `zero`, or the `lowest` value of their dtype."""

    intent: ClassVar[str] = "mask"
    catalogue: ClassVar[tuple[int, ...]] = (54, 83)
    claim: ClassVar[str] = "All threads leave a loop together, so no branch diverges and lanes may exchange values inside."
    provides: ClassVar[tuple[str, ...]] = ("masked",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P834", "validity", "shape", "iterations that a thread has not lie past the end as a whole", _no_thread_less),
        Precondition("KIR-P835", "validity", "numerics", "what runs past the end has no effect", _harmless),
    )

    fill: Literal["zero", "lowest"] = "zero"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop over a thread's share, of statements that move with it."""
        team = team_at(program, path)
        if team is None or not _is_counting(node):
            return None
        assert isinstance(node, n.For)
        trips = _apart(node, team.thread)
        if trips is None:
            return None
        if any(isinstance(s, (n.While, n.Jump, n.Eval, n.Copy, n.Mma, n.Opaque, n.Hole, n.View, n.Roles)) for s in statements(node.body)) or any(
                isinstance(s, n.Let) and not is_pure(s.value) for s in statements(node.body)):
            return Miss("a statement with an effect of its own runs past the end too")
        own = set(bound_names(node.body))
        for x in walk(node):
            if isinstance(x, (n.Load, n.Store)) and x.at.buffer.space == "global" and names_read(x.at) & own | names_read(x.at) & {trips.var.name} and (
                    not trips.governs(x.at)):
                return Miss(f"{region_text(x.at)} does not end where the loop does")
            if isinstance(x, (n.Load, n.Store)) and (x.clip or x.mask is not None):
                return Miss("something inside has a mask of its own")
        return Site(path, self)

    def masked(self, loop: n.For, trips: Trips) -> n.For:
        """The loop that all threads run alike."""
        own = set(bound_names(loop.body))

        def leave(_: n.Node, new: n.Node) -> n.Node:
            match new:
                case n.Load() if trips.governs(new.at):
                    return replace(new, clip=True, other=fill_value(self.fill, new.at.buffer.dtype))
                case n.Store() if trips.governs(new.at):
                    return replace(new, clip=True)
                case n.Load() if new.at.buffer.space == "shared" and trips.var.name in names_read(new.at):
                    return replace(new, mask=trips.inside, other=fill_value(self.fill, new.at.buffer.dtype))
                case n.Store() if new.at.buffer.space == "shared" and new.at.buffer.name not in own:
                    return replace(new, mask=trips.inside)
                case _:
                    return new
        body = tuple(transform(s, leave) for s in loop.body)
        return replace(loop, hi=build.ceildiv(trips.end, trips.step), body=body)


    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop that all threads run alike."""
        loop, team = node_as(program, site.path, n.For), matched(team_at(program, site.path))
        trips = matched(_apart(loop, team.thread))
        return edited(program, site.path, (self.masked(loop, trips),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that all threads run alike, with accesses cut off at its end."""
        team = team_at(program, path)
        if team is None or not _is_counting(node):
            return None
        assert isinstance(node, n.For)
        trips = _together(node, team.thread)
        if trips is None:
            return None
        others = [x.other for x in walk(node) if isinstance(x, n.Load) and isinstance(x.other, n.Const) and dtype_of(x.other.type).is_float]
        lowest = any(isinstance(x, n.Const) and x.value == -math.inf for x in others)
        return Site(path, UniformTrips("lowest" if lowest else "zero"))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop over each thread's own share."""
        loop, team = node_as(program, site.path, n.For), matched(team_at(program, site.path))
        trips = matched(_together(loop, team.thread))

        def leave(_: n.Node, new: n.Node) -> n.Node:
            match new:
                case n.Load() if new.clip and trips.governs(new.at):
                    return replace(new, clip=False, other=None)
                case n.Load() if new.mask == trips.inside:
                    return replace(new, mask=None, other=None)
                case n.Store() if new.clip and trips.governs(new.at):
                    return replace(new, clip=False)
                case n.Store() if new.mask == trips.inside:
                    return replace(new, mask=None)
                case _:
                    return new
        hi = build.ceildiv(build.sub(trips.end, trips.first), trips.step)
        made = replace(loop, hi=hi, body=tuple(transform(s, leave) for s in loop.body))
        return edited(program, site.path, (made,))


def _is_counting(node: Place) -> bool:
    return is_counted(node)
