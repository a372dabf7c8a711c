"""Gives one CTA the work of several, a group of its threads each: columns side by side, so that neighboring threads touch neighboring elements.

pipeline: `groups-per-cta{groups=32}@main`

```diff
 kir 1
 program column_sums
   size M: i32
   size N: i32
   in X: f32[M, N]
   out S: f32[N]
-kernel main grid (col: N) threads 8
-  shared parts: f32[8]
-  for t in 0..8 parallel thread
+kernel main grid (col_tile: ceildiv(N, 32)) threads 256
+  shared parts: f32[256]
+  for t in 0..256 parallel thread
     register acc: f32 = 0.0
-    for r in 0..ceildiv(M - t, 8)
-      acc = acc + X[r * 8 + t, col]
+    if col_tile * 32 + t % 32 < N
+      for r in 0..ceildiv(M - t // 32, 8)
+        acc = acc + X[r * 8 + t // 32, col_tile * 32 + t % 32]
     parts[t] = acc
     barrier()
-    if t == 0
+    if t // 32 == 0 & col_tile * 32 + t % 32 < N
       register total: f32 = 0.0
       for u in 0..8
-        total = total + parts[u]
-      S[col] = total
+        total = total + parts[u * 32 + t % 32]
+      S[col_tile * 32 + t % 32] = total
```
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis.clipping import divides
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, shape_of
from kir.ir.visit import names_read, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import element_name, fresh, kernel_of, names_in, tile_name
from kir.rewrite.match import matched, params_as, whole_warps
from kir.rewrite.match.thread_team import is_call

from .tile import divides_exactly
from .warps_per_cta import plain, with_threads

Slots = Literal["flat", "first", "last"]
SLOTS: tuple[Slots, ...] = ("flat", "first", "last")


def _whole_warps(program: n.Program, site: Site, context: Context) -> Verdict:
    threads = build.int_value(kernel_of(program, site.path).threads) or 0
    return whole_warps(threads * params_as(site, GroupsPerCta).groups, context)


def _all_meet(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, item = kernel_of(program, site.path), params_as(site, GroupsPerCta)
    axis = kernel.grid[item.axis].name
    loop = matched(_team(kernel))
    for s in statements(loop.body):
        parts = (s.lo, s.hi, s.step) if isinstance(s, n.For) else (s.cond,) if isinstance(s, (n.If, n.While)) else ()
        if parts and any(is_call(x, "barrier") for x in walk(s) if isinstance(x, n.Stmt)) and any(
                axis in names_read(e) or any(isinstance(x, n.Load) for x in walk(e)) for e in parts):
            return refuted("some groups come to a barrier that others pass by", f"it depends on '{axis}'", needs="control flow that all items have in common")
    return proved("every group comes to every barrier")


def _stays(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether each item keeps to its own part of shared arrays."""
    kernel = kernel_of(program, site.path)
    loop = matched(_team(kernel))
    bad = next((r for r in walk(loop) if isinstance(r, n.Region) and r.buffer in _shared(kernel) and not _inside(r, loop)), None)
    if bad is not None:
        return unknown(f"a place in '{bad.buffer.name}' may be that of another group: its index is not known to stay inside",
                       needs="indices by threads and counters")
    return proved("every place in a shared array is inside it")


@dataclass(frozen=True)
class GroupsPerCta(Pass):
    """`groups` neighbors along the grid axis number `axis` share a CTA. `across`: neighboring threads belong to different groups, otherwise to one. A shared
    array becomes one of all groups: `slots` says where the group's number stands, in an axis of its own (`first`, `last`) or beside the last index (`flat`)."""

    intent: ClassVar[str] = "multi-threaded-block"
    catalogue: ClassVar[tuple[int, ...]] = (48,)
    claim: ClassVar[str] = "Neighboring threads touch neighboring elements, and a processor holds more groups at a time than CTAs."
    provides: ClassVar[tuple[str, ...]] = ("threads",)
    least: ClassVar[Mapping[str, int]] = {"groups": 2}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P481", "validity", "hardware", "the threads are whole warps that one CTA may have", _whole_warps),
        Precondition("KIR-P482", "validity", "pipeline", "all groups come to every barrier", _all_meet),
        Precondition("KIR-P483", "validity", "storage", "each group keeps to its own part of shared arrays", _stays))

    groups: int = 32
    axis: int = 0
    across: bool = True
    slots: Slots = "flat"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel of threads that meet at barriers of the CTA and exchange nothing else."""
        loop = _team(node)
        if loop is None or not isinstance(node, n.Kernel) or self.axis >= len(node.grid):
            return None
        if not any(is_call(s, "barrier") for s in statements(loop.body)) or not _is_plain(loop):
            return Miss("its threads do not meet, or exchange values in another way")
        if build.is_const(node.grid[self.axis].extent, 1):
            return Miss("the axis has one element")
        if any(isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and x.a == loop.var for x in walk(loop)):
            return Miss("its threads are divided already")
        if not all(plain(b) for b in _shared(node)) or not _by_index(loop, _shared(node)) or (not _shared(node) and self.slots != "flat"):
            return Miss("a shared array is used as a whole, or lies in another way than row after row")
        if not divides(self.groups, node.grid[self.axis].extent, program.facts) and _reads_by_name(loop.body):
            return Miss("a value that is read from a tensor has a name, and would be read for items that there are not")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A group of the CTA's threads for each of the items."""
        kernel = kernel_of(program, site.path)
        loop, axis = matched(_team(kernel)), kernel.grid[self.axis]
        threads = build.int_value(kernel.threads) or 0
        tile = n.Axis(fresh(tile_name(axis.name), names_in(program, kernel)), build.ceildiv(axis.extent, self.groups))
        place, member = self._parts(loop.var, threads)
        at = build.add(build.mul(build.var(tile.name), self.groups), place)
        slices = {b: self._whole(b) for b in _shared(kernel)}
        body: n.Block = tuple(transform(s, self._into(slices, loop.var, threads)) for s in loop.body)
        body = tuple(substitute(s, {axis.name: at, loop.var.name: member}) for s in body)
        body = tuple(substitute(s, {"%thread": loop.var}) for s in body)
        if not divides(self.groups, axis.extent, program.facts):
            body = _guarded(body, build.compare("lt", at, axis.extent))
        return with_threads(program, site, self.axis, tile, self.groups * threads, replace(loop, hi=build.const(self.groups * threads), body=body), slices)

    def _parts(self, t: n.Expr, threads: int) -> tuple[n.Expr, n.Expr]:
        """The number of a thread's group, and its own number in it."""
        by = self.groups if self.across else threads
        inner, outer = build.mod(t, by), build.floordiv(t, by)
        return (inner, outer) if self.across else (outer, inner)

    def _whole(self, b: n.Buffer) -> n.Buffer:
        """The array that has an array like `b` for each group."""
        groups = build.const(self.groups)
        match self.slots:
            case "first":
                return replace(b, shape=(groups, *b.shape))
            case "last":
                return replace(b, shape=(*b.shape, groups))
            case _ if self.across:
                return replace(b, shape=(*b.shape[:-1], build.mul(b.shape[-1], groups)))
            case _:
                return replace(b, shape=(build.mul(b.shape[0], groups), *b.shape[1:]))

    def _into(self, slices: Mapping[n.Buffer, n.Buffer], t: n.Var, threads: int) -> Callable[[n.Node, n.Node], n.Node]:
        """Places in a group's arrays become places in those of all. The whole CTA's thread number is `%thread` until the group's own has been replaced."""
        thread = n.Var("%thread", t.of)
        place, member = self._parts(thread, threads)

        def leave(old: n.Node, new: n.Node) -> n.Node:
            whole = slices.get(new.buffer) if isinstance(new, n.Region) else None
            if whole is None or not isinstance(new, n.Region):
                return new
            index = [i for i in new.index if isinstance(i, n.Expr)]
            if self.slots != "flat":
                return n.Region(whole, (place, *index) if self.slots == "first" else (*index, place))
            k = len(index) - 1 if self.across else 0
            terms = build.polynomial(index[k])
            own, times = terms.get((t,), 0), (self.groups if self.across else 1)
            rest = build.mul(build.sub(index[k], build.mul(t, own)), times)
            if self.across:
                at = build.add(thread if own == 1 else build.add(build.mul(member, own * times), place), rest)
            else:
                each = build.int_value(new.buffer.shape[0]) or 0
                whole_number = own == 1 and each == threads
                at = build.add(thread if whole_number else build.add(build.mul(place, each), build.mul(member, own)), rest)
            return n.Region(whole, (*index[:k], at, *index[k + 1:]))
        return leave

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose threads, by their quotient and remainder by one number, are groups that differ in their place along a grid axis alone."""
        loop = _team(node)
        threads = build.int_value(node.threads) if isinstance(node, n.Kernel) else None
        if loop is None or not isinstance(node, n.Kernel) or not threads:
            return None
        if not any(is_call(s, "barrier") for s in statements(loop.body)) or not _is_plain(loop):
            return None
        numbers = {by for x in walk(loop) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and x.a == loop.var
                   and (by := build.int_value(x.b)) is not None and 1 < by < threads and threads % by == 0}
        items = (GroupsPerCta(by if across else threads // by, k, across, slots) for by in sorted(numbers) for k in range(len(node.grid))
                 for across in (True, False) for slots in (SLOTS if _shared(node) else SLOTS[:1]))
        return tuple(Site(path, item) for item in items if item._single(program, node, loop) is not None) or Miss(
            "its groups of threads differ in more than their place along a grid axis")

    def _single(self, program: n.Program, kernel: n.Kernel, loop: n.For) -> tuple[n.Axis, n.For, Mapping[n.Buffer, n.Buffer]] | None:
        """The grid axis, the loop over the threads of one group, and the shared arrays of one."""
        tile, threads = kernel.grid[self.axis], (build.int_value(kernel.threads) or 0) // self.groups
        items, slices = divides_exactly(tile.extent, self.groups), self._slices(kernel)
        if items is None or slices is None or threads < 2:
            return None
        axis = n.Axis(fresh(element_name(tile.name), names_in(program, kernel)), items)
        at, (place, member) = build.var(axis.name), self._parts(loop.var, threads)
        own, number = n.Var("%member", loop.var.of), build.sub(at, build.mul(build.var(tile.name), self.groups))
        body: n.Block = tuple(transform(s, self._out_of(slices, loop.var, threads)) for s in loop.body)
        if any(isinstance(x, n.Buffer) and x in slices for s in body for x in walk(s)):
            return None

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return number if new == place else own if new == member else new
        body = tuple(transform(s, leave) for s in body)
        if not divides(self.groups, items, program.facts):
            body = _unguarded(body, build.compare("lt", at, items))
        if any({tile.name, loop.var.name} & names_read(s) for s in body):
            return None
        return axis, replace(loop, hi=build.const(threads), body=tuple(substitute(s, {own.name: loop.var}) for s in body)), slices

    def _slices(self, kernel: n.Kernel) -> Mapping[n.Buffer, n.Buffer] | None:
        """Of each shared array the one that a group has in it; None where some have none."""
        out: dict[n.Buffer, n.Buffer] = {}
        for b in _shared(kernel):
            k = 0 if self.slots == "first" or (self.slots == "flat" and not self.across) else len(b.shape) - 1
            extent = build.int_value(b.shape[k]) if b.shape else None
            if extent is None or extent % self.groups or not plain(b) or (self.slots != "flat" and (extent != self.groups or len(b.shape) < 2)):
                return None
            part = () if self.slots != "flat" else (build.const(extent // self.groups),)
            out[b] = replace(b, shape=(*b.shape[:k], *part, *b.shape[k + 1:]))
        return out

    def _out_of(self, slices: Mapping[n.Buffer, n.Buffer], t: n.Var, threads: int) -> Callable[[n.Node, n.Node], n.Node]:
        """Places in the arrays of all groups become places in those of one, where they are the thread's own group's; others stay."""
        place, member = self._parts(t, threads)
        outer = self.groups if self.across else threads

        def leave(old: n.Node, new: n.Node) -> n.Node:
            own = slices.get(new.buffer) if isinstance(new, n.Region) else None
            if own is None or not isinstance(new, n.Region) or not new.index or any(not isinstance(i, n.Expr) or shape_of(i.type) for i in new.index):
                return new
            index = [i for i in new.index if isinstance(i, n.Expr)]
            if self.slots != "flat":
                k = 0 if self.slots == "first" else len(index) - 1
                return n.Region(own, (*index[:k], *index[k + 1:])) if index[k] == place else new
            k = len(index) - 1 if self.across else 0
            terms = dict(build.polynomial(index[k]))
            whole = terms.pop((t,), 0)
            first, second = (member, place) if self.across else (place, member)
            terms[(first,)] = terms.get((first,), 0) + whole * outer
            terms[(second,)] = terms.get((second,), 0) + whole
            each = 1 if self.across else build.int_value(own.shape[0]) or 0
            if terms.pop((place,), 0) != each or (self.across and any(c % self.groups for c in terms.values())):
                return new
            by = self.groups if self.across else 1
            moved = build.from_polynomial({m: c // by for m, c in terms.items() if c}, index[k].type)  # type: ignore[arg-type]  # a scalar, as asked
            return n.Region(own, (*index[:k], moved, *index[k + 1:]))
        return leave

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A CTA for each group."""
        kernel = kernel_of(program, site.path)
        axis, single, slices = matched(self._single(program, kernel, matched(_team(kernel))))
        return with_threads(program, site, self.axis, axis, (build.int_value(kernel.threads) or 0) // self.groups, single, slices)


def _team(node: Place) -> n.For | None:
    """The loop over all threads that a kernel is, behind the shared arrays that it declares."""
    if not isinstance(node, n.Kernel) or not node.body or node.cluster:
        return None
    *before, s = node.body
    if not all(isinstance(x, n.Alloc) and x.buffer.space == "shared" and x.init is None for x in before):
        return None
    threads = build.int_value(node.threads)
    whole = isinstance(s, n.For) and s.kind == "thread" and build.is_const(s.lo, 0) and threads is not None and build.int_value(s.hi) == threads
    return s if whole and isinstance(s, n.For) and (threads or 0) > 1 else None


def _shared(kernel: n.Kernel) -> tuple[n.Buffer, ...]:
    return tuple(s.buffer for s in kernel.body if isinstance(s, n.Alloc))


def _is_plain(loop: n.For) -> bool:
    """Whether threads meet at barriers alone, and none leaves early."""
    calls = [x for x in walk(loop) if isinstance(x, n.Call)]
    return not any(isinstance(s, (n.Jump, n.Opaque, n.Roles, n.View, n.Copy, n.Mma)) for s in statements(loop.body)) and all(
        c.fn == "barrier" or (c.of is None and not instruction(c.fn).is_convergent and instruction(c.fn).effect not in ("sync", "async")) for c in calls)


def _by_index(loop: n.For, arrays: tuple[n.Buffer, ...]) -> bool:
    """Whether arrays are used by single places only."""
    regions = [x for x in walk(loop) if isinstance(x, n.Region) and x.buffer in arrays]
    named = sum(isinstance(x, n.Buffer) and x in arrays for x in walk(loop))
    return named == len(regions) and all(r.index and all(isinstance(i, n.Expr) and not isinstance(i.type, TileType) for i in r.index) for r in regions)


def _inside(r: n.Region, loop: n.For) -> bool:
    """Whether each index stays inside its axis, by the number of the thread and the ends of loops."""
    ends = {loop.var: (0, (build.int_value(loop.hi) or 1) - 1)}
    for x in walk(loop):
        lo, hi = (build.int_value(x.lo), build.int_value(x.hi)) if isinstance(x, n.For) else (None, None)
        if isinstance(x, n.For) and lo is not None and hi is not None and build.is_const(x.step, 1):
            ends[x.var] = (lo, hi - 1)
    for i, d in zip(r.index, r.buffer.shape, strict=True):
        low = high = 0
        for monomial, times in build.polynomial(i).items() if isinstance(i, n.Expr) else ():
            if len(monomial) > 1 or (monomial and monomial[0] not in ends):
                return False
            a, b = ends[monomial[0]] if monomial and isinstance(monomial[0], n.Var) else (1, 1)
            low, high = low + min(a * times, b * times), high + max(a * times, b * times)
        size = build.int_value(d)
        if size is None or low < 0 or high >= size:
            return False
    return True


def _touches_tensors(s: n.Stmt) -> bool:
    return any(isinstance(x, n.Region) and x.buffer.space == "global" for x in walk(s))


def _reads_by_name(body: n.Block) -> bool:
    """Whether a name or a variable outside a branch begins with what a tensor holds."""
    return any(_touches_tensors(s) if isinstance(s, (n.Let, n.Alloc)) else isinstance(s, (n.For, n.While)) and any(
        is_call(x, "barrier") for x in statements(s.body)) and _reads_by_name(s.body) for s in body)


def _guarded(body: n.Block, guard: n.Expr) -> n.Block:
    """The statements, those that touch tensors under a condition: one branch for those that stand together, the branch's own where there is one."""
    out: list[n.Stmt] = []
    for s in body:
        if isinstance(s, (n.For, n.While)) and any(is_call(x, "barrier") for x in statements(s.body)):
            out.append(replace(s, body=_guarded(s.body, guard)))
        elif not _touches_tensors(s):
            out.append(s)
        elif isinstance(s, n.If) and not s.orelse:
            out.append(replace(s, cond=build.binary("and", s.cond, guard)))
        elif isinstance(s, (n.Let, n.Alloc)):
            out.append(s)
        elif out and isinstance(before := out[-1], n.If) and before.cond == guard:
            out[-1] = replace(before, then=(*before.then, s))
        else:
            out.append(n.If(guard, (s,)))
    return tuple(out)


def _unguarded(body: n.Block, guard: n.Expr) -> n.Block:
    """The statements without the condition."""
    out: list[n.Stmt] = []
    for s in body:
        if isinstance(s, (n.For, n.While)) and any(is_call(x, "barrier") for x in statements(s.body)):
            out.append(replace(s, body=_unguarded(s.body, guard)))
        elif isinstance(s, n.If) and s.cond == guard and not s.orelse:
            out += s.then
        elif isinstance(s, n.If) and isinstance(s.cond, n.Binary) and s.cond.op == "and" and s.cond.b == guard and not s.orelse:
            out.append(replace(s, cond=s.cond.a))
        else:
            out.append(s)
    return tuple(out)


__all__ = ["GroupsPerCta"]
