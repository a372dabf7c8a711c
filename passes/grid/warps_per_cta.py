"""Puts several warps that each work for themselves into one CTA.

pipeline: `warps-per-cta{warps=4}@main`

```diff
 kir 1
 program row_sums
   in X: f32[M, 64]
   out S: f32[M]
   size M: i32
-kernel main grid (row: M) threads 32
-  for t in 0..32 parallel thread
-    register total: f32 = X[row, t] + X[row, t + 32]
-    for s in 0..5
-      let other = shfl_xor(total, 16 >> s)
-      total = total + other
-    if t == 0
-      S[row] = total
+kernel main grid (row_tile: ceildiv(M, 4)) threads 128
+  for t in 0..128 parallel thread
+    if row_tile * 4 + t // 32 < M
+      register total: f32 = X[row_tile * 4 + t // 32, t % 32] + X[row_tile * 4 + t // 32, t % 32 + 32]
+      for s in 0..5
+        let other = shfl_xor(total, 16 >> s)
+        total = total + other
+      if t % 32 == 0
+        S[row_tile * 4 + t // 32] = total
```
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis.clipping import divides
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of, shape_of
from kir.ir.visit import names_read, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import element_name, fresh, kernel_of, names_in, replace_kernel, tile_name
from kir.rewrite.match import hardware_of, matched, params_as
from kir.rewrite.match.thread_team import is_call

from .tile import divides_exactly

WARP = 32


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, WarpsPerCta)
    most = hardware_of(context).architecture.max_threads_per_cta
    if item.warps * WARP > most:
        return refuted(f"{item.warps} warps are {item.warps * WARP} threads", f"a CTA has at most {most}", needs=f"at most {most // WARP} warps")
    return proved(f"{item.warps * WARP} threads of one CTA")


def with_threads(program: n.Program, site: Site, k: int, axis: n.Axis, threads: int, loop: n.For, slices: Mapping[n.Buffer, n.Buffer]) -> Rewritten:
    """The kernel of a site with another axis `k` of its grid, other threads, whose loop is given, and other arrays in the place of its own."""
    kernel = kernel_of(program, site.path)
    held = tuple(replace(s, buffer=slices[s.buffer]) for s in kernel.body[:-1] if isinstance(s, n.Alloc))
    made = replace(kernel, grid=(*kernel.grid[:k], axis, *kernel.grid[k + 1:]), threads=build.const(threads), body=(*held, loop))
    return Rewritten(replace_kernel(program, kernel.name, made), site.path)


@dataclass(frozen=True)
class WarpsPerCta(Pass):
    """`warps` neighbors along the grid axis number `axis` share a CTA. `named`: each warp's place along it has a name, by which it goes. `by_threads`: the grid
    is said in threads, 32 for each place. A shared array of a warp becomes one of all warps: `rows`: with an axis for them in front, else end to end.
    `met`: the CTA's threads meet at barriers, which become those of a warp."""

    intent: ClassVar[str] = "multi-threaded-block"
    catalogue: ClassVar[tuple[int, ...]] = (48,)
    claim: ClassVar[str] = "A processor holds more warps at a time than CTAs."
    provides: ClassVar[tuple[str, ...]] = ("threads",)
    least: ClassVar[Mapping[str, int]] = {"warps": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P921", "validity", "hardware", "one CTA may have that many threads", _fits),)

    warps: int = 4
    axis: int = 0
    named: bool = False
    by_threads: bool = False
    rows: bool = False
    met: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose CTAs are one warp, without barriers of a CTA's own."""
        loop = _team(node, WARP)
        if loop is None or not isinstance(node, n.Kernel) or self.axis >= len(node.grid) or self.warps < 2:
            return None
        if any((is_call(s, "barrier") and not self.met) or (isinstance(s, n.Jump) and s.kind == "return") for s in statements(loop.body)):
            return Miss("a barrier, or an exit, is that of the whole CTA")
        if self.met and (_calls(loop, "warp_sync") or not _calls(loop, "barrier")):
            return Miss("its lanes meet as a warp already, or not at all")
        if build.is_const(node.grid[self.axis].extent, 1):
            return Miss("the axis has one element")
        if any(isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and x.a == loop.var for x in walk(loop)):
            return Miss("its lanes are divided already")
        if not all(plain(b) for b in _shared(node)) or not _by_index(loop, _shared(node)):
            return Miss("a shared array is used as a whole, or lies in another way than row after row")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A warp of the CTA for each of the items."""
        kernel = kernel_of(program, site.path)
        loop, axis = matched(_team(kernel, WARP)), kernel.grid[self.axis]
        spread = WARP if self.by_threads else 1
        tile = n.Axis(fresh(tile_name(axis.name), names_in(program, kernel)), build.ceildiv(build.mul(axis.extent, spread), self.warps * spread))
        at = build.add(build.mul(build.var(tile.name), self.warps), build.floordiv(loop.var, WARP))
        name = n.Let((fresh("kept", names_in(program, kernel)),), at)
        place = n.Var(name.names[0], at.type) if self.named else at
        body: n.Block = tuple(substitute(s, {axis.name: place, loop.var.name: build.mod(loop.var, WARP)}) for s in loop.body)
        body = _meeting(body, "barrier", "warp_sync") if self.met else body
        slices = {b: self._whole(b) for b in _shared(kernel)}
        body = tuple(transform(s, self._into(slices, loop.var)) for s in body)
        if not divides(self.warps, axis.extent, program.facts):
            body = (n.If(build.compare("lt", place, axis.extent), body),)
        body = (name, *body) if self.named else body
        return with_threads(program, site, self.axis, tile, self.warps * WARP, replace(loop, hi=build.const(self.warps * WARP), body=body), slices)

    def _whole(self, b: n.Buffer) -> n.Buffer:
        """The array that has an array like `b` for each warp."""
        return replace(b, shape=(build.const(self.warps), *b.shape) if self.rows else (build.mul(b.shape[0], self.warps), *b.shape[1:]))

    def _into(self, slices: Mapping[n.Buffer, n.Buffer], thread: n.Var) -> Callable[[n.Node, n.Node], n.Node]:
        """Places in the warps' arrays become places in those of all."""
        warp, lane = build.floordiv(thread, WARP), build.mod(thread, WARP)

        def leave(old: n.Node, new: n.Node) -> n.Node:
            whole = slices.get(new.buffer) if isinstance(new, n.Region) else None
            if whole is None or not isinstance(new, n.Region):
                return new
            if self.rows:
                return n.Region(whole, (warp, *new.index))
            first, each = new.index[0], new.buffer.shape[0]
            start = first.lo if isinstance(first, n.Span) else first
            moved = build.add(build.sub(start, lane), thread) if build.polynomial(start).get((lane,)) == 1 and build.is_const(each, WARP) else \
                build.add(build.mul(warp, each), start)
            return n.Region(whole, (replace(first, lo=moved) if isinstance(first, n.Span) else moved, *new.index[1:]))
        return leave

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose warps differ in nothing but their place along a grid axis."""
        threads = build.int_value(node.threads) if isinstance(node, n.Kernel) else None
        loop = _team(node, threads) if threads and threads % WARP == 0 and threads > WARP else None
        if loop is None or not isinstance(node, n.Kernel) or threads is None:
            return None
        rows = (False, True) if _shared(node) else (False,)
        waits = (_calls(loop, "warp_sync") and not _calls(loop, "barrier"),)
        items = (WarpsPerCta(threads // WARP, k, named, by_threads, row, met) for k in range(len(node.grid)) for named in (False, True)
                 for by_threads in (False, True) for row in rows for met in waits)
        return tuple(Site(path, item) for item in items if item._single(program, node, loop) is not None) or Miss(
            "its warps differ in more than their place along a grid axis")

    def _single(self, program: n.Program, kernel: n.Kernel, loop: n.For) -> tuple[n.Axis, n.For, Mapping[n.Buffer, n.Buffer]] | None:
        """The grid axis, the loop over the lanes of one warp, and the shared arrays of one warp."""
        tile = kernel.grid[self.axis]
        items = self._items(tile.extent)
        slices = self._slices(kernel, loop) if items is not None else None
        if items is None or slices is None:
            return None
        axis = n.Axis(fresh(element_name(tile.name), names_in(program, kernel)), items)
        at, warp, lane = build.var(axis.name), build.floordiv(loop.var, WARP), build.mod(loop.var, WARP)
        own, number = n.Var("%lane", loop.var.of), build.sub(at, build.mul(build.var(tile.name), self.warps))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return number if new == warp else own if new == lane else new
        body: n.Block = tuple(transform(s, self._out_of(slices, loop.var)) for s in loop.body)
        if any(isinstance(x, n.Buffer) and x in slices for s in body for x in walk(s)) or not _within(body, loop.var, tuple(slices.values())):
            return None
        if self.named:
            first = body[0]
            if not isinstance(first, n.Let) or len(first.names) != 1 or first.value != build.add(build.mul(build.var(tile.name), self.warps), warp):
                return None
            body = tuple(substitute(s, {first.names[0]: at}) for s in body[1:])
        body = tuple(transform(s, leave) for s in body)
        if not divides(self.warps, items, program.facts):
            guard = body[0] if len(body) == 1 else None
            if not isinstance(guard, n.If) or guard.orelse or guard.cond != build.compare("lt", at, items):
                return None
            body = guard.then
        if any({tile.name, loop.var.name} & names_read(s) for s in body):
            return None
        made = tuple(substitute(s, {own.name: loop.var}) for s in body)
        made = _meeting(made, "warp_sync", "barrier") if self.met else made
        return axis, replace(loop, hi=build.const(WARP), body=made), slices

    def _items(self, extent: n.Expr) -> n.Expr | None:
        """The places along the grid axis, of the CTAs that have several each."""
        if not self.by_threads:
            return divides_exactly(extent, self.warps)
        threads = divides_exactly(extent, self.warps * WARP) if isinstance(extent, n.Binary) else None
        terms = build.polynomial(threads) if threads is not None else {}
        if threads is None or any(c % WARP for c in terms.values()):
            return None
        return build.from_polynomial({m: c // WARP for m, c in terms.items()}, dtype_of(extent.type))

    def _slices(self, kernel: n.Kernel, loop: n.For) -> Mapping[n.Buffer, n.Buffer] | None:
        """Of each shared array the one that a warp has in it; None where some have none."""
        out: dict[n.Buffer, n.Buffer] = {}
        for b in _shared(kernel):
            first = build.int_value(b.shape[0]) if b.shape else None
            if first is None or first % self.warps or not plain(b) or self.rows != (first == self.warps and len(b.shape) > 1):
                return None
            out[b] = replace(b, shape=b.shape[1:] if self.rows else (build.const(first // self.warps), *b.shape[1:]))
        return out

    def _out_of(self, slices: Mapping[n.Buffer, n.Buffer], thread: n.Var) -> Callable[[n.Node, n.Node], n.Node]:
        """Places in the arrays of all warps become places in those of one, where they are the thread's own warp's; others stay."""
        warp, lane = build.floordiv(thread, WARP), build.mod(thread, WARP)

        def leave(old: n.Node, new: n.Node) -> n.Node:
            own = slices.get(new.buffer) if isinstance(new, n.Region) else None
            if own is None or not isinstance(new, n.Region) or not new.index:
                return new
            first = new.index[0]
            if self.rows:
                return n.Region(own, new.index[1:]) if first == warp else new
            start, each = first.lo if isinstance(first, n.Span) else first, build.int_value(own.shape[0])
            if shape_of(start.type):
                return new
            terms = dict(build.polynomial(start))
            for atom, times in (((warp,), WARP), ((lane,), 1)):
                terms[atom] = terms.get(atom, 0) + times * terms.get((thread,), 0)
            terms.pop((thread,), None)
            if terms.pop((warp,), 0) != each:
                return new
            moved = build.from_polynomial({m: c for m, c in terms.items() if c}, dtype_of(start.type))
            return n.Region(own, (replace(first, lo=moved) if isinstance(first, n.Span) else moved, *new.index[1:]))
        return leave

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A CTA for each warp."""
        kernel = kernel_of(program, site.path)
        loop = matched(_team(kernel, self.warps * WARP))
        axis, single, slices = matched(self._single(program, kernel, loop))
        return with_threads(program, site, self.axis, axis, WARP, single, slices)


def _calls(loop: n.For, name: str) -> bool:
    """Whether the threads call something as a statement."""
    return any(is_call(s, name) for s in statements(loop.body))


def _meeting(body: n.Block, old: str, new: str) -> n.Block:
    """The statements, with what threads wait at called otherwise."""
    def leave(_: n.Node, made: n.Node) -> n.Node:
        return replace(made, call=replace(made.call, fn=new)) if isinstance(made, n.Eval) and is_call(made, old) else made
    return tuple(transform(s, leave) for s in body)


def _team(node: Place, threads: int | None) -> n.For | None:
    """The loop over so many threads that a kernel is, behind the shared arrays that it declares."""
    if not isinstance(node, n.Kernel) or not node.body or node.cluster or not build.is_const(node.threads, threads or 0):
        return None
    *before, s = node.body
    if not all(isinstance(x, n.Alloc) and x.buffer.space == "shared" and x.init is None for x in before):
        return None
    whole = isinstance(s, n.For) and s.kind == "thread" and build.is_const(s.lo, 0) and build.int_value(s.hi) == threads
    return s if whole and isinstance(s, n.For) else None


def _shared(kernel: n.Kernel) -> tuple[n.Buffer, ...]:
    """The shared arrays that a kernel declares before its loop over threads."""
    return tuple(s.buffer for s in kernel.body if isinstance(s, n.Alloc))


def plain(b: n.Buffer) -> bool:
    """Whether an array lies row after row, as large as it says."""
    return bool(b.shape) and b.layout is None and b.strides is None


def _by_index(loop: n.For, arrays: tuple[n.Buffer, ...]) -> bool:
    """Whether arrays are used by single places only: as many as the regions that name one have."""
    regions = [x for x in walk(loop) if isinstance(x, n.Region) and x.buffer in arrays]
    named = sum(isinstance(x, n.Buffer) and x in arrays for x in walk(loop))
    return named == len(regions) and all(r.index and not shape_of(_start(r).type) for r in regions)


def _start(r: n.Region) -> n.Expr:
    return r.index[0].lo if isinstance(r.index[0], n.Span) else r.index[0]


def _within(body: n.Block, thread: n.Var, arrays: tuple[n.Buffer, ...]) -> bool:
    """Whether every place in a warp's array is inside it, so that it is no place in another warp's: by the ends of loops and of lanes."""
    ends: dict[n.Expr, tuple[int, int]] = {build.mod(thread, WARP): (0, WARP - 1)}
    for s in body:
        for x in walk(s):
            lo, hi = (build.int_value(x.lo), build.int_value(x.hi)) if isinstance(x, n.For) else (None, None)
            if isinstance(x, n.For) and lo is not None and hi is not None and build.is_const(x.step, 1):
                before = ends.get(x.var, (lo, hi - 1))
                ends[x.var] = min(before[0], lo), max(before[1], hi - 1)
    return all(_inside(r, ends) for s in body for r in walk(s) if isinstance(r, n.Region) and r.buffer in arrays)


def _inside(r: n.Region, ends: Mapping[n.Expr, tuple[int, int]]) -> bool:
    low = high = 0
    for monomial, times in build.polynomial(_start(r)).items():
        if len(monomial) > 1 or (monomial and monomial[0] not in ends):
            return False
        a, b = ends[monomial[0]] if monomial else (1, 1)
        low, high = low + min(a * times, b * times), high + max(a * times, b * times)
    reach = build.int_value(r.index[0].extent) if isinstance(r.index[0], n.Span) else 1
    size = build.int_value(r.buffer.shape[0])
    return reach is not None and size is not None and low >= 0 and high + reach <= size
