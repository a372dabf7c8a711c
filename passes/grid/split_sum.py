"""Gives each part of a sum or a maximum, which one CTA adds up part after part, a CTA of its own; they add their parts to the result together.

pipeline: `split-sum@main/parts`

```diff
 kir 1
 program product
   size M: i32
   size N: i32
   size K: i32
   in A: f32[M, K]
   in B: f32[K, N]
   inout C: f32[M, N]
-kernel main grid (j: N, i: M) threads 1
-  @parts for part in 0..4
-    register acc: f32 = 0.0
-    for k in 0..ceildiv(K - part, 4)
-      acc = acc + A[i, k * 4 + part] * B[k * 4 + part, j]
-    C[i, j] = C[i, j] + acc
+kernel main grid (j: N, i: M, part: 4) threads 1
+  register acc: f32 = 0.0
+  for k in 0..ceildiv(K - part, 4)
+    acc = acc + A[i, k * 4 + part] * B[k * 4 + part, j]
+  atomic_add(&C[i, j], acc)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.elements import NotElementwise, element, tile
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, shape_of
from kir.ir.visit import names_read, regions, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import fresh, kernel_of, names_in, node_at, replace_kernel
from kir.rewrite.match import is_counted, node_as
from kir.rewrite.match.independence import apart
from kir.rewrite.match.materialize import is_pure

from .split_k import shares

OPERATIONS = {"atomic_add": "add", "atomic_max": "max", "atomic_min": "min", "atomic_and": "and", "atomic_or": "or", "atomic_xor": "xor"}
"""What atomics do, by their names."""
ATOMICS = {op: fn for fn, op in OPERATIONS.items()}


def _only_adds(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    sums = {s.at.buffer.name for s in statements(loop.body) if isinstance(s, n.Store) and _added(s) is not None}
    stored = sorted({s.at.buffer.name for s in statements(loop.body) if isinstance(s, n.Store) and s.at.buffer.space == "global" and _added(s) is None})
    aliases, touched = Aliases(program), sorted({r.buffer.name for s in loop.body for r in regions(s)})
    for name in stored:
        if name in sums or not apart(program, site.path, loop, name):
            return refuted(f"a part stores to '{name}', and the parts run side by side", f"parts 0 and 1 both write '{name}', in no order",
                           needs="a loop that only adds to the old value, or stores to places of its own")
        if other := next((x for x in touched if x != name and aliases.may_be_one(x, name)), None):
            return unknown(f"a part stores to '{name}', which may be '{other}'", needs="tensors that are known to be others")
    for name in sorted(sums):
        done = sorted({added[0] for s in statements(loop.body) if isinstance(s, n.Store) and s.at.buffer.name == name and (added := _added(s)) is not None})
        if len(done) > 1:
            return refuted(f"'{name}' is changed by {done[0]} and {done[1]}, whose order matters", "a sum that is raised is another than one that is added to",
                           needs="one operation on each tensor")
        places = [r for s in loop.body for r in regions(s) if r.buffer.name == name]
        stores = sum(isinstance(s, n.Store) and s.at.buffer.name == name for s in statements(loop.body))
        if len(places) != 2 * stores:
            return refuted(f"a part reads '{name}', to which the others add", f"part 1 sees what part 0 has added to '{name}'",
                           needs="parts that do not know the sum of those before them")
    return proved("each part adds to the old value, and reads nothing that the others write")


def _nobody_leaves(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    if any(isinstance(s, n.Jump) and s.kind == "return" for s in statements(loop.body)):
        return refuted("the loop ends with the first part that returns", "the parts after it are not added", needs="a branch instead of the return")
    return proved("every part comes to its end")


@dataclass(frozen=True)
class SplitSum(Pass):
    """The loop over the parts becomes an axis of the grid, with `behind` of those there are behind it, or, of a kernel of one CTA, the only one (`alone`).
    `spelled`: what stays inside the tensor is said by a mask where it was clipped."""

    intent: ClassVar[str] = "split-k"
    catalogue: ClassVar[tuple[int, ...]] = (32,)
    claim: ClassVar[str] = "A result with few tiles still fills the machine, when each part of its sums has a CTA of its own."
    numerics: ClassVar[str] = "reassociated(k)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P321", "validity", "storage", "the parts only add to the old value, and do not read it otherwise", _only_adds),
        Precondition("KIR-P322", "validity", "pipeline", "no part ends the CTA", _nobody_leaves))

    spelled: bool = False
    alone: bool = False
    behind: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop that is all that a kernel does, and that adds to tensors."""
        if not is_counted(node, of=I32, plain=True) or len(path) != 2:
            return None
        kernel, i = kernel_of(program, path), int(path[1])
        assert isinstance(node, n.For)
        if i != len(kernel.body) - 1 or not all(_is_name(s) for s in kernel.body[:i]) or (node.body and _is_name(node.body[0], node.var.name)):
            return None
        stores = [s for s in statements(node.body) if isinstance(s, n.Store) and s.at.buffer.space == "global"]
        if not stores or not any(_added(s) is not None for s in stores):
            return None
        if len(kernel.grid) > 2 or self.behind > len(kernel.grid) or kernel.cluster or program.plan:
            return Miss("the grid has no axis left, or CTAs form clusters")
        if self.alone and not (len(kernel.grid) == 1 and build.is_const(kernel.grid[0].extent, 1) and not any(
                kernel.grid[0].name in names_read(s) for s in kernel.body)):
            return Miss("the kernel is more than one CTA, or asks which it is")
        if names_read(node.hi) & {name for s in kernel.body[:i] if isinstance(s, n.Let) for name in s.names} or _meets(node.body):
            return Miss("threads are told apart in it, or the number of parts is computed by the CTA")
        if any(s.clip for s in stores) and not self.spelled:
            return Site(path, replace(self, spelled=True)) if all(not s.clip or _mask(s.at) is not None for s in stores) else Miss(
                "a clipped place has no form as a mask")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """An axis of the grid, and updates that CTAs make together."""
        kernel, loop = kernel_of(program, site.path), node_as(program, site.path, n.For)

        def leave(_: n.Node, s: n.Node) -> n.Node:
            added = _added(s) if isinstance(s, n.Store) else None
            if added is None or not isinstance(s, n.Store):
                return s
            (fn, value), mask = added, _mask(s.at) if s.clip else s.mask
            return n.Eval(build.call(fn, s.at, value, *(() if mask is None else (mask,))), label=s.label, origin=s.origin)
        body = tuple(transform(s, leave) for s in loop.body)
        others, at = () if self.alone else kernel.grid, 0 if self.alone else len(kernel.grid) - self.behind
        grid = (*others[:at], n.Axis(loop.var.name, loop.hi), *others[at:])
        made = replace(kernel, grid=grid, body=(*kernel.body[:-1], *body))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path[:1])

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with an axis of the grid along which CTAs add to the same places, whose other axes tell the places apart."""
        if not isinstance(node, n.Kernel) or not node.grid or node.cluster or program.plan:
            return None
        updates = [s.call for s in statements(node.body) if isinstance(s, n.Eval) and s.call.fn in OPERATIONS]
        if not updates:
            return None
        lets = {name: s.value for s in statements(node.body) if isinstance(s, n.Let) for name in s.names}
        known = set[str]().union(*(_roots(c.args[0], lets) for c in updates if isinstance(c.args[0], n.Region)))
        behind = next((k for k, a in enumerate(reversed(node.grid)) if a.name not in known and not build.is_const(a.extent, 1)), 0)
        axis = node.grid[-1 - behind]
        others = {a.name for a in node.grid if a is not axis and not build.is_const(a.extent, 1)}
        for c in updates:
            if c.attrs or len(c.args) not in ((2, 3) if c.fn == "atomic_add" else (2,)) or not isinstance(c.args[0], n.Region):
                return Miss("an update has options of its own")
            told = _roots(c.args[0], lets)
            if axis.name in told or not others <= told or any(isinstance(x, n.Load) for i in c.args[0].index for x in walk(i)):
                return Miss("the places that the CTAs add to are not those of the other axes of the grid")
            if build.is_const(node.threads, 1) and any(isinstance(i, n.Expr) and shape_of(i.type) for i in c.args[0].index):
                return Miss("its elements are not updated one after the other yet")
            if _may_meet(c.args[0], lets):
                return Miss("elements of one update may be added to one place, one after the other: a store keeps the last")
        if _meets(node.body) or any(isinstance(s, n.Jump) for s in statements(node.body)):
            return Miss("threads are told apart in it, or something leaves")
        parts, part = build.int_value(axis.extent), n.Var(axis.name, I32)
        if parts is not None and any(next(shares(s, parts, part), None) is not None for s in statements(node.body) if isinstance(s, n.For)):
            return Miss("its parts are ranges of one loop: that is split-k")
        spelled = any(len(c.args) == 3 and isinstance(c.args[0], n.Region) and c.args[2] == _mask(c.args[0]) for c in updates)
        return Site(path, SplitSum(spelled, len(node.grid) == 1, behind))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the parts, each of which is added to the old value."""
        kernel = node_at(program, site.path)
        assert isinstance(kernel, n.Kernel)
        axis = kernel.grid[-1 - self.behind]

        def leave(_: n.Node, s: n.Node) -> n.Node:
            if not (isinstance(s, n.Eval) and s.call.fn in OPERATIONS and isinstance(at := s.call.args[0], n.Region)):
                return s
            value, mask = s.call.args[1], s.call.args[2] if len(s.call.args) == 3 else None
            assert isinstance(value, n.Expr) and (mask is None or isinstance(mask, n.Expr))
            clip = self.spelled and mask is not None and mask == _mask(at)
            other = build.const(0, at.buffer.dtype) if mask is not None else None
            old = build.load(at, None if clip else mask, other, clip)
            return n.Store(at, build.binary(OPERATIONS[s.call.fn], old, value), None if clip else mask, clip, label=s.label, origin=s.origin)
        first = next((k for k, s in enumerate(kernel.body) if not _is_name(s, axis.name)), len(kernel.body))
        loop = n.For(n.Var(axis.name, I32), build.const(0), axis.extent, build.const(1), tuple(transform(s, leave) for s in kernel.body[first:]))
        grid = (n.Axis(fresh("cta", names_in(program, kernel)), build.const(1)),) if self.alone else tuple(a for a in kernel.grid if a is not axis)
        made = replace(kernel, grid=grid, body=(*kernel.body[:first], loop))
        return Rewritten(replace_kernel(program, kernel.name, made), (*site.path, first))


def _is_name(s: n.Stmt, but: str = "") -> bool:
    """Whether a statement only gives a name to what does not depend on `but`."""
    return (isinstance(s, n.View) or (isinstance(s, n.Let) and is_pure(s.value))) and but not in names_read(s)


def _added(s: n.Store) -> tuple[str, n.Expr] | None:
    """What a store adds to what stands in its place in a tensor, or raises it to, and the atomic that does so. A part of a tile is only added to."""
    v = s.value
    if s.at.buffer.space != "global" or not isinstance(v, n.Binary) or v.op not in ATOMICS or s.cache or (v.op != "add" and (s.mask is not None or s.clip)):
        return None
    other = build.const(0, s.at.buffer.dtype) if s.mask is not None or s.clip else None
    old = build.load(s.at, s.mask, other, s.clip)
    made = v.b if v.a == old else v.a if v.b == old else None
    return None if made is None else (ATOMICS[v.op], made)


def _mask(at: n.Region) -> n.Expr | None:
    """Where the elements of a tile lie inside a tensor, from its beginning on; None for other places."""
    spans = [(k, i) for k, i in enumerate(at.index) if isinstance(i, n.Span)]
    extents = [i.extent for _, i in spans if isinstance(i.extent, int) and i.step in (1, build.const(1))]
    if not spans or len(extents) != len(spans):
        return None
    axes = [(n.Var(f"%{k}", I32), d) for (k, _), d in zip(spans, extents, strict=True)]
    inside = [build.below(build.add(i.lo, v), at.buffer.shape[k]) for (k, i), (v, _) in zip(spans, axes, strict=True)]
    try:
        made = tile(inside[0], list(axes), False)
        for each in inside[1:]:
            made = build.logical_and(made, tile(each, list(axes), False))
    except NotElementwise:
        return None
    return made if shape_of(made.type) == tuple(extents) else None


def _meets(body: n.Block) -> bool:
    """Whether threads, warps or roles are told apart below, wait for each other, or something is not understood."""
    return any(isinstance(x, n.Opaque | n.Hole | n.Roles) or (isinstance(x, n.For) and x.kind in ("thread", "warp", "warpgroup")) or (
        isinstance(x, n.Call) and (x.of is not None or instruction(x.fn).is_convergent or instruction(x.fn).effect in ("sync", "async")))
        for s in body for x in walk(s))


def _may_meet(at: n.Region, lets: dict[str, n.Expr]) -> bool:
    """Whether a scattered update may have two elements at one place: an index that is a tile, and no sum in which each of its elements counts."""
    for i in at.index:
        shape = shape_of(i.type) if isinstance(i, n.Expr) else ()
        if not isinstance(i, n.Expr) or not shape:
            continue
        whole = substitute(i, lets)
        try:
            terms = build.polynomial(element(whole, [n.Var(f"%{k}", I32) for k in range(len(shape))]))
        except NotElementwise:
            return True
        for k, extent in enumerate(shape):
            own = [m for m in terms if any(f"%{k}" in names_read(x) for x in m)]
            if extent != 1 and not (len(own) == 1 and sum(_bare(x) == n.Var(f"%{k}", I32) for x in own[0]) == 1
                                    and sum("%" in "".join(names_read(x)) for x in own[0]) == 1):
                return True
    return False


def _bare(e: n.Expr) -> n.Expr:
    return e.x if isinstance(e, n.Cast) else e


def _roots(e: n.Node, lets: dict[str, n.Expr], deep: int = 0) -> set[str]:
    """The names that a place depends on, through lets."""
    out: set[str] = set()
    for name in names_read(e):
        out |= _roots(lets[name], lets, deep + 1) if name in lets and deep < 32 else {name}
    return out
