"""Splits a contracted axis over the CTAs of a cluster, which add their partial results in each other's shared memory, each its part of the tile.

pipeline: `split-k-cluster{parts=2}@main/teams`

```diff
 kir 1
 program product
   in A: f16[64, K]
   in B: f16[64, K]
   out C: f16[64, 64]
   size K: i32
   fact K % 8 == 0
   map A_map of A box [64, 64] {swizzle=128}
   map B_map of B box [64, 64] {swizzle=128}
-kernel main grid (i: 1) threads 256
+kernel main grid (i: 1, part: 2) threads 256 cluster (1, 2)
+  let first = ceildiv(K, 64) * part // 2
+  let steps = (ceildiv(K, 64) + ceildiv(K, 64) * part) // 2 - first
   shared As: f16[64, 64] layout swizzle(3, 4, 3) align 1024
   shared Bs: f16[64, 64] layout swizzle(3, 4, 3) align 1024
+  shared partial: f32[1, 64, 64]
+  view cluster partials: f32[2, 1, 64, 64] at partial
   shared full: mbarrier[1]
   shared empty: mbarrier[1]
   mbar_init(&full[0], 1)
   mbar_init(&empty[0], 1)
   fence_mbar_init()
   @teams roles
     role producer warps 0..4
-      for k in 0..ceildiv(K, 64)
+      for k in 0..steps
         mbar_wait(&empty[0], (k + 1) % 2)
         mbar_arrive_expect(&full[0], 16384)
-        copy load(A[0 +: 64, k * 64 +: 64] else 0.0:f16 clip) -> As via tma signal full[0] {descriptor=A_map}
-        copy load(B[0 +: 64, k * 64 +: 64] else 0.0:f16 clip) -> Bs via tma signal full[0] {descriptor=B_map}
+        copy load(A[0 +: 64, first * 64 + k * 64 +: 64] else 0.0:f16 clip) -> As via tma signal full[0] {descriptor=A_map}
+        copy load(B[0 +: 64, first * 64 + k * 64 +: 64] else 0.0:f16 clip) -> Bs via tma signal full[0] {descriptor=B_map}
+      cluster_arrive()
+      cluster_wait()
+      cluster_arrive()
+      cluster_wait()
     role consumer warps 4..8
       fragment acc: f32[64, 64] = 0.0
-      for j in 0..ceildiv(K, 64)
+      for j in 0..steps
         mbar_wait(&full[0], j % 2)
         mma acc += As * trans(Bs, 1, 0) via wgmma
         mbar_arrive(&empty[0])
-      C[0 +: 64, 0 +: 64] = cast(acc, f16)
+      partial[0, 0 +: 64, 0 +: 64] = acc
+      cluster_arrive()
+      cluster_wait()
+      C[part * 32 +: 32, 0 +: 64] = cast(partials[0, 0, part * 32 +: 32, 0 +: 64] + partials[1, 0, part * 32 +: 32, 0 +: 64], f16)
+      cluster_arrive()
+      cluster_wait()
```

Parts differ by one iteration at most. CTAs meet when all partial results are there, and once more before any of them ends. The order of the sum is
that of the parts, so results are the same in each run.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import ClassVar, Literal

from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import I32, MBARRIER, shape_of
from kir.ir.visit import names_read, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import hardware_of, is_counted, matched, matched_as, params_as
from kir.rewrite.match.local_buffers import sizes
from kir.rewrite.match.slices import NoSlice, part_of_region, whole_of_region

from ._clusters import NoCluster, cluster_barrier, is_cluster_barrier


def _item(site: Site) -> SplitKCluster:
    return params_as(site, SplitKCluster)


def _hardware(program: n.Program, site: Site, context: Context) -> Verdict:
    hardware, parts = hardware_of(context, "sm_90a"), _item(site).parts
    if not hardware.architecture.has("cluster") or parts > hardware.architecture.max_cluster:
        most = hardware.architecture.max_cluster if hardware.architecture.has("cluster") else 1
        return refuted(f"clusters of {hardware.name} have up to {most} CTAs", f"CTA {most} of a cluster", needs="fewer parts", attempt="split-k")
    return proved(f"{hardware.name} has clusters of {parts} CTAs")


def _only_adds(program: n.Program, site: Site, context: Context) -> Verdict:
    found = _Found.of(program, kernel_of(program, site.path))
    passing = {x.buffer.name for s in statements(found.consumer.body) if isinstance(s, n.For) and is_counted(s) for x in s.body if isinstance(x, n.Alloc)}
    for s in statements(found.consumer.body):
        place = s.at if isinstance(s, n.Store) else s.dst if isinstance(s, n.Copy) else None
        if place is not None and s is not found.store and not _adds_to(s, found.acc):
            return refuted(f"the consumer writes '{place.buffer.name}' too", "each CTA of a cluster would write its own part of it",
                           needs="a role that only adds products up and stores their sum")
        if isinstance(s, n.Mma) and ((s.acc != n.Region(found.acc) and s.acc.buffer.name not in passing) or any(
                isinstance(x, n.Region) and x.buffer == found.acc for e in (s.a, s.b) for x in walk(e))):
            return refuted(f"a product is added to another sum than '{found.acc.name}', or is of it", "a part does not know the sum of those before it")
        if isinstance(s, n.Alloc) and s.buffer == found.acc and not (s.init is not None and build.is_const(s.init, 0.0)):
            return refuted(f"'{found.acc.name}' does not begin at zero", "what it begins at would be added once for each part")
    return proved("each part adds products to a sum that begins at zero")


def _adds_to(s: n.Stmt, acc: n.Buffer) -> bool:
    """Whether a statement adds to a sum what does not depend on it."""
    return isinstance(s, n.Store) and s.at == n.Region(acc) and s.mask is None and isinstance(v := s.value, n.Binary) and v.op == "add" and (
        v.a == n.Load(s.at)) and not any(isinstance(x, n.Region) and x.buffer == acc for x in walk(v.b))


def _divides(program: n.Program, site: Site, context: Context) -> Verdict:
    found, item = _Found.of(program, kernel_of(program, site.path)), _item(site)
    extent = shape_of(found.store.at.type)[item.axis]
    if isinstance(extent, int) and extent % item.parts == 0:
        return proved(f"each CTA stores {extent // item.parts} of {extent} {'columns' if item.axis else 'rows'}")
    what = "column" if item.axis else "row"
    return refuted(f"{item.parts} parts do not divide the {extent} {what}s of a tile",
                   f"{what} {extent // item.parts * item.parts} is stored by nobody" if isinstance(extent, int) else f"a {what}",
                   needs="fewer parts, or the other axis")


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    hardware, kernel = hardware_of(context, "sm_90a"), kernel_of(program, site.path)
    room = hardware.architecture.shared_per_cta
    used = sum(math.prod(sizes(s.buffer) or (0,)) * s.buffer.dtype.bytes for s in kernel.body if isinstance(s, n.Alloc) and s.buffer.space == "shared")
    more = _Found.of(program, kernel).bytes(_item(site).pad)
    if used + more > room:
        return refuted(f"{more} bytes of partial sums beside {used} do not fit the {room} bytes of shared memory", f"byte {room} of shared memory",
                       needs="fewer stages, or a smaller tile")
    return proved(f"{used + more} of {room} bytes of shared memory")


@dataclass(frozen=True)
class SplitKCluster(Pass):
    """`parts` CTAs share the loop; each then stores its part of the tile along `axis`. Rows of the partial results have `pad` elements more."""

    intent: ClassVar[str] = "split-k"
    catalogue: ClassVar[tuple[int, ...]] = (32, 35)
    claim: ClassVar[str] = "A result with few tiles fills the machine, without a workspace and without a second kernel."
    numerics: ClassVar[str] = "reassociated(k)"
    requires: ClassVar[tuple[str, ...]] = ("roles",)
    provides: ClassVar[tuple[str, ...]] = ("cluster",)
    conflicts: ClassVar[tuple[str, ...]] = ("cluster",)
    least: ClassVar[dict[str, int]] = {"parts": 2}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P741", "validity", "hardware", "the target has clusters of so many CTAs", _hardware),
        Precondition("KIR-P742", "validity", "numerics", "the role only adds products to a sum that begins at zero", _only_adds),
        Precondition("KIR-P743", "validity", "shape", "the parts divide the tile", _divides),
        Precondition("KIR-P744", "validity", "storage", "the partial sums fit shared memory beside the rest", _fits),
    )

    parts: int = 2
    axis: Literal[0, 1] = 0
    pad: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles of which one loads operands along a loop, and the other adds up their products and stores the sum at its end."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        kernel = kernel_of(program, path)
        if self.axis not in (0, 1) or self.parts < 2 or len(kernel.grid) > 2 or kernel.cluster:
            return Miss("fewer than two parts, a grid that has no axis left, or CTAs that form clusters already")
        try:
            _Found.of(program, kernel).split(program, kernel, self)
        except (NoCluster, NoSlice) as why:
            return Miss(str(why))
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A cluster for each tile."""
        kernel = kernel_of(program, site.path)
        made = _Found.of(program, kernel).split(program, kernel, self)
        return Rewritten(replace_kernel(program, kernel.name, made), (kernel.name, len(made.body) - 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the roles of a kernel whose clusters share the last axis of the grid."""
        if not (isinstance(node, n.Roles) and len(path) == 2):
            return None
        kernel = kernel_of(program, path)
        parts = kernel.cluster[-1] if kernel.cluster else 0
        if parts < 2 or len(kernel.cluster) != len(kernel.grid) or set(kernel.cluster[:-1]) - {1} or not build.is_const(kernel.grid[-1].extent, parts):
            return None
        try:
            made, axis, pad = _joined(kernel)
        except (NoCluster, NoSlice) as why:
            return Miss(str(why))
        return Site(path, SplitKCluster(parts, axis, pad), {"made": made})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One CTA for each tile."""
        kernel, made = kernel_of(program, site.path), site.captures["made"]
        return Rewritten(replace_kernel(program, kernel.name, made), (kernel.name, len(made.body) - 1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The partial sums."""
        return Effect(shared_bytes=_Found.of(program, kernel_of(program, site.path)).bytes(self.pad))


@dataclass(frozen=True)
class _Found:
    """A producer and a consumer that run one loop each, as often, and what the consumer stores at its end. `group` is its warpgroup, of `groups`."""

    roles: n.Roles
    consumer: n.Role
    trips: n.Expr
    store: n.Store
    acc: n.Buffer
    partial: n.Expr
    group: n.Expr
    groups: int

    @classmethod
    def of(cls, program: n.Program, kernel: n.Kernel) -> _Found:
        """Those of a kernel. Raises NoCluster."""
        roles = kernel.body[-1] if kernel.body else None
        if not isinstance(roles, n.Roles) or len(roles.roles) != 2:
            raise NoCluster("the kernel does not end in two roles")
        produced = _loops(roles.roles[0].body)
        consumer = roles.roles[1]
        own, group, groups = _own(consumer)
        consumed, store = _loops(own), own[-1] if own else None
        if len(roles.roles[0].body) != 1 or len(produced) != 1 or len(consumed) != 1 or consumed[0].hi != produced[0].hi:
            raise NoCluster("the roles do not run one loop each, equally often")
        inside = {s.var.name for s in statements(roles.roles[0].body) if isinstance(s, n.For)} | {
            x for s in statements(roles.roles[0].body) if isinstance(s, n.Let) for x in s.names}
        if names_read(produced[0].hi) & inside:
            raise NoCluster("how often the loop runs depends on the role")
        if any(isinstance(s, n.Let) and produced[0].var.name in names_read(s) for s in statements(produced[0].body)):
            raise NoCluster("values of the producer depend on its iteration")
        if any(_writes(x) for s in consumed for x in walk(s)):
            raise NoCluster("the consumer's loop writes global memory")
        if not isinstance(store, n.Store) or store.at.buffer.space != "global" or store.mask is not None or len(shape_of(store.at.type)) != 2:
            raise NoCluster("the consumer does not end with the store of a tile")
        partial = _operand(store.value)
        (acc,) = (x.at.buffer for x in walk(partial) if isinstance(x, n.Load))
        return cls(roles, consumer, produced[0].hi, store, acc, partial, group, groups)

    def bytes(self, pad: int) -> int:
        """Bytes of the partial sums of a CTA."""
        rows, columns = (d if isinstance(d, int) else 0 for d in shape_of(self.store.at.type))
        return self.groups * rows * (columns + pad) * self.acc.dtype.bytes

    def split(self, program: n.Program, kernel: n.Kernel, item: SplitKCluster) -> n.Kernel:
        """The kernel in clusters. Raises NoSlice."""
        taken = names_in(program, kernel)
        part, first, steps = (n.Var(fresh(x, taken), I32) for x in ("part", "first", "steps"))
        shape = tuple(d if isinstance(d, int) else 0 for d in shape_of(self.store.at.type))
        if not all(shape):
            raise NoSlice("a tile of symbolic extents")
        if item.parts > shape[item.axis]:
            raise NoSlice(f"{item.parts} parts of {shape[item.axis]} rows or columns")
        rows = tuple(map(build.const, (self.groups, shape[0], shape[1] + item.pad)))
        own = n.Buffer(fresh("partial", taken), self.acc.dtype, rows, "shared")
        all_of = n.Buffer(fresh("partials", taken), self.acc.dtype, (build.const(item.parts), *rows), "cluster")
        each = shape[item.axis] // item.parts
        share = build.mul(part, each)
        spans = tuple(build.span(share if k == item.axis else 0, each if k == item.axis else d) for k, d in enumerate(shape))
        staged = n.Store(build.region(own, self.group, *(build.span(0, d) for d in shape)), self.partial)
        terms: list[n.Expr] = [n.Load(build.region(all_of, p, self.group, *spans)) for p in range(item.parts)]
        total = reduce(build.add, terms)
        value = transform(self.store.value, lambda old, new: total if old == self.partial else new)
        stored = replace(self.store, at=part_of_region(self.store.at, item.axis, share, each), value=value)
        ending = (staged, *cluster_barrier(), stored, *cluster_barrier())
        lead, follow = self.roles.roles
        loop = _loops(lead.body)[0]
        led = _counted_again(_moved(loop, first), self.trips, steps)
        followed = tuple(_counted_again(_read_later(s, first), self.trips, steps) for s in _own(follow)[0][:-1])
        first_body = (led, *cluster_barrier(), *cluster_barrier())
        roles = replace(self.roles, roles=(replace(lead, body=first_body), replace(follow, body=_owned(follow, (*followed, *ending)))))
        from_ = n.Let((first.name,), build.floordiv(build.mul(self.trips, part), item.parts))
        count = n.Let((steps.name,), build.sub(build.floordiv(build.mul(self.trips, build.add(part, 1)), item.parts), first))
        front = list(kernel.body[:-1])
        at = next((i for i, s in enumerate(front) if isinstance(s, n.Alloc) and s.buffer.dtype == MBARRIER), len(front))
        front[at:at] = [n.Alloc(own), n.View(all_of, n.Region(own))]
        grid = (*kernel.grid, n.Axis(part.name, build.const(item.parts)))
        return replace(kernel, grid=grid, cluster=(*(1 for _ in kernel.grid), item.parts), body=(from_, count, *front, roles))


def _joined(kernel: n.Kernel) -> tuple[n.Kernel, Literal[0, 1], int]:
    """The kernel without the clusters that `split` makes (the framework compares), the axis of the tile and the padding. Raises NoCluster, NoSlice."""
    if len(kernel.body) < 4 or not isinstance(roles := kernel.body[-1], n.Roles) or len(roles.roles) != 2:
        raise NoCluster("the kernel does not end in two roles")
    first, steps = kernel.body[:2]
    if not isinstance(first, n.Let) or not isinstance(steps, n.Let):
        raise NoCluster("the kernel does not begin with where its part begins, and how long it is")
    part, parts = kernel.grid[-1].name, kernel.cluster[-1]
    scaled = first.value.a if isinstance(first.value, n.Binary) and first.value.op == "floordiv" else first.value
    trips = substitute(scaled, {part: build.const(1)})
    lead, follow = roles.roles
    own, _, _ = _own(follow)
    view = next((s for s in kernel.body if isinstance(s, n.View) and s.buffer.space == "cluster"), None)
    if view is None or len(lead.body) != 5 or len(own) < 7 or not all(map(is_cluster_barrier, (*lead.body[1:], *own[-2:], *own[-5:-3]))):
        raise NoCluster("the roles do not meet as those of a split sum do")
    staged, stored = own[-6], own[-3]
    if not (isinstance(staged, n.Store) and isinstance(stored, n.Store)):
        raise NoCluster("no sum of partial results is stored")
    shape = tuple(d if isinstance(d, int) else 0 for d in shape_of(staged.at.type))
    mine = tuple(d if isinstance(d, int) else 0 for d in shape_of(stored.at.type))
    axis: Literal[0, 1] | None = next((k for k in (0, 1) if len(mine) == len(shape) == 2 and mine[k] * parts == shape[k] and mine[1 - k] == shape[1 - k]), None)
    width = int_value(staged.at.buffer.shape[-1])
    if axis is None or width is None:
        raise NoCluster("a CTA does not store its part of the tile")
    value = transform(stored.value, lambda old, new: staged.value if _adds(old, view.buffer) else new)
    store = replace(stored, at=whole_of_region(stored.at, axis, build.mul(n.Var(part, I32), mine[axis]), shape[axis]), value=value)
    loop = matched_as(lead.body[0], n.For)
    back = {first.names[0]: build.const(0), steps.names[0]: trips}
    led = substitute(loop, back)
    followed = (*(substitute(s, back) for s in own[:-6]), store)
    made = replace(roles, roles=(replace(lead, body=(led,)), replace(follow, body=_owned(follow, followed))))
    kept = tuple(s for s in kernel.body[2:-1] if s is not view and not (isinstance(s, n.Alloc) and s.buffer == view.at.buffer))
    if any(part in names_read(s) for s in (*kept, made)):
        raise NoCluster("what a CTA does depends on its part in another way")
    return replace(kernel, grid=kernel.grid[:-1], cluster=(), body=(*kept, made)), axis, width - shape[1]


def _adds(e: n.Node, partials: n.Buffer) -> bool:
    """Whether a value is a sum of all partial results."""
    terms = 1
    while isinstance(e, n.Binary) and e.op == "add" and isinstance(e.b, n.Load) and e.b.at.buffer == partials:
        e, terms = e.a, terms + 1
    return isinstance(e, n.Load) and e.at.buffer == partials and build.is_const(partials.shape[0], terms)


def _own(role: n.Role) -> tuple[n.Block, n.Expr, int]:
    """What each warpgroup of a role does, its number and their count: the role itself, where it is not divided."""
    split = role.body[0] if len(role.body) == 1 else None
    if isinstance(split, n.For) and split.kind == "warpgroup":
        return split.body, split.var, int_value(split.hi) or 1
    return role.body, build.const(0), 1


def _owned(role: n.Role, body: n.Block) -> n.Block:
    """A role's body, of what each warpgroup does."""
    split = role.body[0] if len(role.body) == 1 else None
    return (replace(split, body=body),) if isinstance(split, n.For) and split.kind == "warpgroup" else body


def _loops(block: n.Block) -> list[n.For]:
    return [s for s in block if isinstance(s, n.For) and is_counted(s)]


def _operand(value: n.Expr) -> n.Expr:
    """The sum in registers of which a value is computed element by element, or its transpose. Raises NoCluster."""
    found = list(_tiles(value))
    if len(set(found)) != 1:
        raise NoCluster("what is stored is not computed from one sum in registers")
    return found[0]


def _tiles(e: n.Expr) -> Iterator[n.Expr]:
    inner = e.args[0] if isinstance(e, n.Call) and e.fn == "trans" else e
    if isinstance(inner, n.Load) and inner.at.buffer.space == "fragment" and not inner.at.index and inner.mask is None:
        yield e
    elif not shape_of(e.type):
        return
    elif isinstance(e, n.Unary | n.Binary | n.Select | n.Cast) or (isinstance(e, n.Call) and e.of is None and instruction(e.fn).level == "element"):
        for x in (getattr(e, name) for name in e.compared_fields):
            for y in x if isinstance(x, tuple) else (x,):
                if isinstance(y, n.Expr):
                    yield from _tiles(y)
    else:
        raise NoCluster("what is stored is not computed element by element from a sum in registers")


def _moved(loop: n.For, first: n.Var) -> n.For:
    """A producer's loop whose copies begin at an iteration further on."""
    later = {loop.var.name: build.add(first, loop.var)}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return replace(new, src=matched(substitute(new.src, later))) if isinstance(new, n.Copy) else new
    moved: n.For = transform(loop, leave)
    return moved


def _read_later(s: n.Stmt, first: n.Var) -> n.Stmt:
    """A consumer's loop that reads global memory for iterations further on; another statement as it is."""
    if not (isinstance(s, n.For) and is_counted(s)):
        return s
    later = {s.var.name: build.add(first, s.var)}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return replace(new, at=matched(substitute(new.at, later))) if isinstance(new, n.Load) and new.at.buffer.space == "global" else new
    moved: n.For = transform(s, leave)
    return moved


def _writes(x: n.Node) -> bool:
    """Whether a node writes global memory, or names a place there to be written."""
    place = x.at if isinstance(x, n.Store) else x.dst if isinstance(x, n.Copy) else None
    named = isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer.space == "global" for a in x.args)
    return named or (place is not None and place.buffer.space == "global")


def _counted_again(s: n.Stmt, trips: n.Expr, steps: n.Var) -> n.Stmt:
    """A statement in which the number of iterations has become another."""
    named = transform(s, lambda old, new: n.Var("%steps", I32) if old == trips else new, lambda x: not isinstance(x, n.Buffer))
    out: n.Stmt = substitute(named, {"%steps": steps})
    return out
