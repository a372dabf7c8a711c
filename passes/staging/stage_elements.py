"""Copies elements that loops are about to read into shared memory, element by element, and reads them there.

pipeline: `stage-elements{value="X[%0 + b * 32, %1]" shape=[32,32] guard=[0]}@main/columns`

```diff
 kir 1
 program transpose
   in X: f32[M, 32]
   out Y: f32[32, M]
   size M: i32
 kernel main grid (b: ceildiv(M, 32)) threads 1
+  shared Xs: f32[32, 32]
+  for e in 0..32
+    for e_1 in 0..32
+      if b * 32 + e < M
+        Xs[e, e_1] = X[b * 32 + e, e_1]
   @columns for c in 0..32
     for r in 0..32
       if b * 32 + r < M
-        Y[c, b * 32 + r] = X[b * 32 + r, c]
+        Y[c, b * 32 + r] = Xs[r, c]
```
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.paths import block_paths
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, I32
from kir.ir.visit import buffers_named, names_read, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in
from kir.rewrite.match import block_and_index, counting, fresh_var, loads_of, matched, matched_as, params_as, regions_of, splice, within_shared
from kir.rewrite.match.local_buffers import byte_count
from kir.rewrite.match.materialize import buffers_written
from kir.rewrite.precondition import decided

MOST_AXES = 4


@dataclass(frozen=True)
class Template:
    """A load with holes: `%0`, `%1`, .. stand for the places along the axes that are staged, in the order of its dimensions `dims`."""

    load: n.Load
    dims: tuple[int, ...]

    @property
    def text(self) -> str:
        """As in the parameter `value`."""
        return expr_text(self.load)

    def at(self, place: tuple[n.Expr, ...]) -> n.Load:
        """The load of the element at a place."""
        made: n.Load = substitute(self.load, {f"%{k}": e for k, e in enumerate(place)})
        return made

    def place(self, x: n.Node) -> tuple[n.Expr, ...] | None:
        """The place whose element a load reads; None for a load of something else."""
        if not isinstance(x, n.Load) or replace(x, at=self.load.at) != self.load or x.at.buffer != self.load.at.buffer:
            return None
        if len(x.at.index) != len(self.load.at.index):
            return None  # the tensor as a whole
        out: list[n.Expr] = []
        for d, (have, want) in enumerate(zip(x.at.index, self.load.at.index, strict=True)):
            if not (isinstance(have, n.Expr) and isinstance(want, n.Expr)):
                return None
            if d in self.dims:
                out.append(build.sub(have, build.sub(want, hole(len(out)))))
            elif have != want:
                return None
        return tuple(out)

    def bound(self, d: int, place: tuple[n.Expr, ...]) -> n.Expr:
        """That the index in a dimension is below its extent."""
        r = self.at(place).at
        index = matched_as(r.index[d], n.Expr)
        return build.below(index, r.buffer.shape[d])


def hole(k: int) -> n.Var:
    """The place along staged axis `k`."""
    return n.Var(f"%{k}", I32)


def template_of(x: n.Load, moving: set[str]) -> Template | None:
    """A load with the part of its indices that `moving` names decide left open; None where they decide other things too, or nothing."""
    index: list[n.Expr | n.Span] = []
    dims: list[int] = []
    if x.mask is not None or x.at.buffer.space != "global":
        return None
    for d, i in enumerate(x.at.index):
        if not isinstance(i, n.Expr) or any(isinstance(y, (n.Load, n.Call)) for y in walk(i)) or i.type != I32:
            return None
        own = {m: c for m, c in build.polynomial(i).items() if any(names_read(a) & moving for a in m)}
        if own:
            i = build.add(build.sub(i, build.from_polynomial(own, I32)), hole(len(dims)))
            dims.append(d)
        index.append(i)
    if not dims or len(dims) > MOST_AXES or (x.other is not None and not isinstance(x.other, n.Const)):
        return None
    return Template(replace(x, at=build.region(x.at.buffer, *index)), tuple(dims))


def _unchanged(program: n.Program, site: Site, context: Context) -> Verdict:
    found, aliases = _decided(program, site)[0], Aliases(program)
    source = found.load.at.buffer.name
    for s in block_at(program, site.path)[int(site.path[-1]):]:
        for name in sorted(buffers_written((s,))):
            if name == "*" or (name != source and aliases.may_be_one(name, source)) or name == source:
                return refuted(f"'{name}' is written while elements of '{source}' are kept", "a later read sees the old element",
                               needs="elements that stay as they are")
    return proved(f"nothing writes '{source}' meanwhile")


def _there(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, StageElements)
    found, shape = _decided(program, site)
    if found.load.clip:
        return proved("the copy stops at the edges of the tensor")
    known = Facts.at(program, site.path)
    for k, e in enumerate(shape):
        known = known.ranging(hole(k), build.const(0), build.const(e))
    claim: n.Expr = build.const(True, BOOL)
    r = found.load.at
    for d, i in enumerate(r.index):
        assert isinstance(i, n.Expr)
        claim = build.logical_and(claim, build.compare("ge", i, 0))
        if d not in item.guard:
            claim = build.logical_and(claim, build.below(i, r.buffer.shape[d]))
    return decided(claim, known, "all elements that are copied exist", "an element that is copied lies outside the tensor",
                   attempt="a guard on the dimension")


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    found, shape = _decided(program, site)
    held = [byte_count(s.buffer) or 0 for s in kernel_of(program, site.path).body if isinstance(s, n.Alloc) and s.buffer.space == "shared"]
    total = sum(held) + math.prod(shape) * found.load.at.buffer.dtype.bytes
    return within_shared(total, context, "fewer elements")


def _decided(program: n.Program, site: Site) -> tuple[Template, tuple[int, ...]]:
    item = params_as(site, StageElements)
    found = matched(item.template(program, site.path))
    return found, item.shape


@dataclass(frozen=True)
class StageElements(Pass):
    """`value` is the text of the load, `%0`, `%1`, .. standing for the place along each staged axis; `shape` its extents; `guard` are the
    dimensions of the tensor beyond whose end nothing is copied, in the order in which they are asked for."""

    intent: ClassVar[str] = "stage-shared"
    catalogue: ClassVar[tuple[int, ...]] = (2,)
    claim: ClassVar[str] = "Elements are read from global memory in the order in which they lie there, and in any order afterwards."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P027", "validity", "aliasing", "what is staged is not written while it is kept", _unchanged),
        Precondition("KIR-P028", "validity", "shape", "every element that is copied exists", _there),
        Precondition("KIR-P029", "validity", "hardware", "shared memory holds the elements beside what is allocated already", _fits))

    value: str = ""
    shape: tuple[int, ...] = ()
    guard: tuple[int, ...] = ()

    def template(self, program: n.Program, path: Path) -> Template | None:
        """The load with the text `value`, of the statement at a path or one that follows it; with no `value`, none."""
        rest = block_at(program, path)[int(path[-1]):]
        bound = set(bound_names(rest))
        for s in rest if self.value else ():
            for x in _loads(s):
                found = template_of(x, set(bound_names((s,))))
                if found is not None and found.text == self.value and not names_read(found.load.at) & bound:
                    return found
        return None

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement of a CTA of one thread that reads elements of global memory; with no `value`, a site for each load of a loop."""
        if not isinstance(node, n.Stmt) or not build.is_const(kernel_of(program, path).threads, 1):
            return None
        if not self.value:
            moving = set(bound_names((node,)))
            every = {t.text: t for x in _loads(node) if isinstance(node, n.For) and (t := template_of(x, moving)) is not None}
        else:
            one = self.template(program, path)
            every = {} if one is None else {one.text: one}
        out: list[Site] = []
        for text, found in every.items():
            reach = self.shape or _reach(program, path, found)
            if reach is None or len(reach) != len(found.dims) or any(d >= len(found.load.at.index) for d in self.guard) or min(reach) < 1:
                continue  # no element at all: a loop that never runs
            if any(below for below, _, _ in staged_reads(program, path, found, reach)):
                out.append(Site(path, replace(self, value=text, shape=reach)))
        return tuple(out) or (Miss("it reads no elements of global memory whose number is known") if isinstance(node, n.For) else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Memory of the CTA, loops that fill it, and reads of it from there on."""
        kernel, i = kernel_of(program, site.path), int(site.path[-1])
        found, shape = _decided(program, site)
        taken = names_in(program, kernel)
        b = found.load.at.buffer
        made = n.Buffer(fresh(f"{b.name}s", taken), b.dtype, tuple(map(build.const, shape)), "shared")
        places = tuple(fresh_var("e", taken) for _ in shape)
        inside = {x: place for _, x, place in staged_reads(program, site.path, found, shape)}

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return n.Load(build.region(made, *inside[old])) if isinstance(old, n.Load) and old in inside else new
        rest = (transform(s, leave) for s in block_at(program, site.path)[i:])
        out = splice(program, site.path, (_filled(made, places, found, self.guard), *rest), 0, None)
        front = sum(isinstance(s, n.Alloc) and s.buffer.space == "shared" for s in kernel.body[:_front(kernel)])
        out = edit_block(out, (kernel.name, front), lambda block: (*block[:front], n.Alloc(made), *block[front:]))
        return Rewritten(out, (site.path[0], int(site.path[1]) + 1, *site.path[2:]))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At loops that do nothing but fill an array of shared memory from global memory, all of whose reads follow in the same block."""
        if not isinstance(node, n.For) or not build.is_const(kernel_of(program, path).threads, 1):
            return None
        places: list[n.Var] = []
        s: n.Stmt = node
        while isinstance(s, n.For) and s.kind == "serial" and len(s.body) == 1 and not s.attrs:
            places.append(s.var)
            s = s.body[0]
        cond = s.cond if isinstance(s, n.If) and len(s.then) == 1 and not s.orelse else None
        store = s.then[0] if cond is not None and isinstance(s, n.If) else s
        if not (isinstance(store, n.Store) and store.at.buffer.space == "shared" and isinstance(store.value, n.Load)):
            return None
        found = template_of(store.value, {v.name for v in places})
        shape = [build.int_value(d) for d in store.at.buffer.shape]
        if found is None or None in shape or len(shape) != len(places) or found.place(store.value) != tuple(places):
            return Miss("it fills no array element by element from global memory")
        sizes = tuple(d for d in shape if d is not None)
        guard = next((g for g in _guards(found) if node == _filled(store.at.buffer, tuple(places), found, g, node.label)), None)
        home = [s for s in kernel_of(program, path).body if isinstance(s, n.Alloc) and s.buffer == store.at.buffer]
        if guard is None or len(home) != 1 or home[0].init is not None:
            return Miss("it does not copy exactly what exists of the elements")
        block, name = block_at(program, path), store.at.buffer.name
        later = len(loads_of(block[int(path[-1]) + 1:], name))
        every = len(regions_of(kernel_of(program, path), name))
        if later + 1 != every or not later:
            return Miss(f"'{name}' is not only read, and in statements that follow")
        return Site(path, StageElements(found.text, sizes, guard), {"template": found, "buffer": store.at.buffer})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Reads where the elements are; no copy, no memory of the CTA."""
        found, b = matched_as(site.captures["template"], Template), site.captures["buffer"]
        block, i = block_and_index(program, site.path)
        first = next(k for k in range(i + 1, len(block)) if b.name in buffers_named(block[k]))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Load) and new.at.buffer == b:
                return found.at(tuple(e for e in new.at.index if isinstance(e, n.Expr)))
            return new
        out = edit_block(program, site.path, lambda x: (*x[:i], *(transform(s, leave) for s in x[i + 1:])))
        path = (*site.path[:-1], first - 1)
        kernel = kernel_of(out, site.path)
        home = next(k for k, s in enumerate(kernel.body) if isinstance(s, n.Alloc) and s.buffer == b)
        out = edit_block(out, (kernel.name, home), lambda x: (*x[:home], *x[home + 1:]))
        return Rewritten(out, (path[0], int(path[1]) - 1, *path[2:]))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The bytes of the array."""
        found, shape = _decided(program, site)
        return Effect(shared_bytes=math.prod(shape) * found.load.at.buffer.dtype.bytes)


def _front(kernel: n.Kernel) -> int:
    return next((k for k, s in enumerate(kernel.body) if not (isinstance(s, n.Alloc) and s.buffer.space == "shared")), len(kernel.body))


def _loads(s: n.Stmt) -> Iterator[n.Load]:
    """The loads of single elements of global memory in a statement."""
    for x in walk(s):
        if isinstance(x, n.Load) and x.at.buffer.space == "global" and x.at.index and all(isinstance(i, n.Expr) for i in x.at.index):
            yield x


def _filled(b: n.Buffer, places: tuple[n.Var, ...], found: Template, guard: tuple[int, ...], label: str | None = None) -> n.Stmt:
    """The loops that copy all elements."""
    s: n.Stmt = n.Store(build.region(b, *places), found.at(places))
    if guard:
        s = n.If(reduce(build.logical_and, (found.bound(d, places) for d in guard)), (s,))
    for v, extent in zip(reversed(places), reversed(b.shape), strict=True):
        s = counting(v, extent, (s,))
    return replace(s, label=label) if isinstance(s, n.For) else s


def _guards(found: Template) -> Iterator[tuple[int, ...]]:
    """Which dimensions may be guarded, in either order."""
    yield ()
    for mask in range(1, 1 << len(found.dims)):
        chosen = tuple(d for k, d in enumerate(found.dims) if mask >> k & 1)
        yield chosen
        if len(chosen) > 1:
            yield chosen[::-1]


def staged_reads(program: n.Program, path: Path, found: Template, shape: tuple[int, ...]) -> Iterator[tuple[bool, n.Load, tuple[n.Expr, ...]]]:
    """The loads from the statement at a path to the end of its block that read staged elements, with the place, and whether they are in
    that statement itself."""
    for here, known, x in _loads_with_facts(program, path):
        place = found.place(x)
        if place is None:
            continue
        domains = [known.domain(known.expanded(e)) for e in place]
        if all(d.lo is not None and d.lo >= 0 and d.hi is not None and d.hi < e for d, e in zip(domains, shape, strict=True)):
            yield here, x, place


def _loads_with_facts(program: n.Program, path: Path) -> Iterator[tuple[bool, Facts, n.Load]]:
    start = int(path[-1])
    for below, s in block_paths(block_at(program, path), ()):
        own = [x for name in s.compared_fields if name not in ("body", "then", "orelse", "roles")
               for part in _nodes(getattr(s, name)) for x in walk(part) if isinstance(x, n.Load) and x.at.buffer.space == "global"]
        if own and int(below[0]) >= start:
            known = Facts.at(program, (*path[:-1], *below))
            yield from ((int(below[0]) == start, known, x) for x in own)


def _nodes(value: object) -> list[n.Node]:
    return [x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, n.Node)]


UNBOUNDED = (1 << 31) - 2
"""The last place of a range that only its dtype bounds: as good as no bound."""


def _reach(program: n.Program, path: Path, found: Template) -> tuple[int, ...] | None:
    """How many elements along each axis the loads of a statement reach; None where that is not known."""
    most: dict[int, int] = {}
    inside = set(bound_names((block_at(program, path)[int(path[-1])],)))
    for here, known, x in _loads_with_facts(program, path):
        place = found.place(x)
        if not here or place is None or not any(names_read(e) & inside for e in place):
            continue
        for k, e in enumerate(place):
            domain = known.domain(known.expanded(e))
            if domain.lo is None or domain.lo < 0 or domain.hi is None or domain.hi >= UNBOUNDED:
                return None
            most[k] = max(most.get(k, 0), domain.hi + 1)
    return tuple(most[k] for k in sorted(most)) if most else None
