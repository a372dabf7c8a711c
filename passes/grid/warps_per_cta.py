"""Puts several warps that each work for themselves into one CTA.

before:

```kir
kir 1
program row_sums
  in X: f32[M, 64]
  out S: f32[M]
  size M: i32
kernel main grid (row: M) threads 32
  for t in 0..32 parallel thread
    register total: f32 = X[row, t] + X[row, t + 32]
    for s in 0..5
      let other = shfl_xor(total, 16 >> s)
      total = total + other
    if t == 0
      S[row] = total
```

pipeline: `warps-per-cta{warps=4}@main`

after:

```kir
kir 1
program row_sums
  in X: f32[M, 64]
  out S: f32[M]
  size M: i32
kernel main grid (row_tile: ceildiv(M, 4)) threads 128
  for t in 0..128 parallel thread
    if row_tile * 4 + t // 32 < M
      register total: f32 = X[row_tile * 4 + t // 32, t % 32] + X[row_tile * 4 + t // 32, t % 32 + 32]
      for s in 0..5
        let other = shfl_xor(total, 16 >> s)
        total = total + other
      if t % 32 == 0
        S[row_tile * 4 + t // 32] = total
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis.clipping import divides
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
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


@dataclass(frozen=True)
class WarpsPerCta(Pass):
    """`warps` neighbors along the grid axis number `axis` share a CTA. `named`: each warp's place along it has a name, by which it goes."""

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

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose CTAs are one warp, without memory or barriers of a CTA's own."""
        loop = _team(node, WARP)
        if loop is None or not isinstance(node, n.Kernel) or self.axis >= len(node.grid) or self.warps < 2:
            return None
        if any(is_call(s, "barrier") or (isinstance(s, n.Jump) and s.kind == "return") for s in statements(loop.body)):
            return Miss("a barrier, or an exit, is that of the whole CTA")
        if build.is_const(node.grid[self.axis].extent, 1):
            return Miss("the axis has one element")
        if any(isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and x.a == loop.var for x in walk(loop)):
            return Miss("its lanes are divided already")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A warp of the CTA for each of the items."""
        kernel = kernel_of(program, site.path)
        loop, axis = matched(_team(kernel, WARP)), kernel.grid[self.axis]
        tile = n.Axis(fresh(tile_name(axis.name), names_in(program, kernel)), build.ceildiv(axis.extent, self.warps))
        at = build.add(build.mul(build.var(tile.name), self.warps), build.floordiv(loop.var, WARP))
        name = n.Let((fresh("kept", names_in(program, kernel)),), at)
        place = n.Var(name.names[0], at.type) if self.named else at
        body: n.Block = tuple(substitute(s, {axis.name: place, loop.var.name: build.mod(loop.var, WARP)}) for s in loop.body)
        if not divides(self.warps, axis.extent, program.facts):
            body = (n.If(build.compare("lt", place, axis.extent), body),)
        body = (name, *body) if self.named else body
        return self._made(program, site, tile, self.warps * WARP, replace(loop, hi=build.const(self.warps * WARP), body=body))

    def _made(self, program: n.Program, site: Site, axis: n.Axis, threads: int, loop: n.For) -> Rewritten:
        kernel = kernel_of(program, site.path)
        grid = (*kernel.grid[:self.axis], axis, *kernel.grid[self.axis + 1:])
        made = replace(kernel, grid=grid, threads=build.const(threads), body=(loop,))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel whose warps differ in nothing but their place along a grid axis."""
        threads = build.int_value(node.threads) if isinstance(node, n.Kernel) else None
        loop = _team(node, threads) if threads and threads % WARP == 0 and threads > WARP else None
        if loop is None or not isinstance(node, n.Kernel) or threads is None:
            return None
        items = (WarpsPerCta(threads // WARP, k, named) for k in range(len(node.grid)) for named in (False, True))
        return tuple(Site(path, item) for item in items if item._single(program, node, loop) is not None) or Miss(
            "its warps differ in more than their place along a grid axis")

    def _single(self, program: n.Program, kernel: n.Kernel, loop: n.For) -> tuple[n.Axis, n.For] | None:
        """The grid axis and the loop over the lanes of one warp."""
        tile = kernel.grid[self.axis]
        items = divides_exactly(tile.extent, self.warps)
        if items is None:
            return None
        axis = n.Axis(fresh(element_name(tile.name), names_in(program, kernel)), items)
        at, warp, lane = build.var(axis.name), build.floordiv(loop.var, WARP), build.mod(loop.var, WARP)
        own, number = n.Var("%lane", loop.var.of), build.sub(at, build.mul(build.var(tile.name), self.warps))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return number if new == warp else own if new == lane else new
        body = loop.body
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
        return axis, replace(loop, hi=build.const(WARP), body=made)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A CTA for each warp."""
        kernel = kernel_of(program, site.path)
        loop = matched(_team(kernel, self.warps * WARP))
        found = matched(self._single(program, kernel, loop))
        return self._made(program, site, found[0], WARP, found[1])


def _team(node: Place, threads: int | None) -> n.For | None:
    """The loop over so many threads that a kernel is, without any memory of the CTA."""
    s = node.body[0] if isinstance(node, n.Kernel) and len(node.body) == 1 and not node.cluster and build.is_const(node.threads, threads or 0) else None
    whole = isinstance(s, n.For) and s.kind == "thread" and build.is_const(s.lo, 0) and build.int_value(s.hi) == threads
    return s if whole and isinstance(s, n.For) else None
