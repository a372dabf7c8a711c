"""Each thread of a CTA brings one element of a tile to shared memory, where all find what they need of it.

pipeline: `stage-by-threads{value="load(X[row, %0] else 0.0 clip)" shape=[64] meet=true}@main/t/sum`

```diff
 kir 1
 program smoothed
   in X: f32[M, N]
   out Y: f32[M, 64]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 64
+  shared Xs: f32[64]
   for t in 0..64 parallel thread
     register total: f32 = 0.0
+    Xs[t] = load(X[row, t] else 0.0 clip)
+    barrier()
     @sum for k in 0..64
-      total = total + load(X[row, k] else 0.0 clip)
+      total = total + Xs[k]
     Y[row, t] = total
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import BOOL, I32
from kir.ir.visit import buffers_named, names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in
from kir.rewrite.match import block_and_index, loads_of, matched, matched_as, params_as, splice
from kir.rewrite.match.materialize import buffers_written
from kir.rewrite.match.shared_arrays import declaration, shifted, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, team_at
from kir.rewrite.precondition import decided

from .stage_elements import Template, hole, staged_reads, template_of


def _sound(program: n.Program, site: Site, context: Context) -> Verdict:
    item, (block, i) = params_as(site, StageByThreads), block_and_index(program, site.path)
    found = matched(item.template(program, site.path))
    source, aliases = found.load.at.buffer.name, Aliases(program)
    for name in sorted(buffers_written(kernel_of(program, site.path).body)):
        if name == "*" or name == source or aliases.may_be_one(name, source):
            return refuted(f"'{name}' is written while elements of '{source}' are kept", "a later read sees the old element",
                           needs="elements that stay as they are")
    there = _there(program, site, found, item)
    if not there:
        return there
    if item.meet:
        return everyone_arrives(program, site, context)
    first = min((int(k) for k in range(i, len(block)) if any(x for x in walk(block[k]) if found.place(x) is not None)), default=i)
    return between_barriers(program, site, block[i:first])


def _there(program: n.Program, site: Site, found: Template, item: StageByThreads) -> Verdict:
    """Whether each element that a thread brings exists."""
    if found.load.clip:
        return proved("the copy stops at the edges of the tensor")
    if item.guarded:
        return proved("what does not exist is not brought, and nobody reads it")
    known = Facts.at(program, site.path)
    for k, extent in enumerate(item.shape[::-1] if item.turned else item.shape):
        known = known.ranging(hole(k), build.const(0), build.const(extent))
    all_there: n.Expr = build.const(True, BOOL)
    for i, d in zip(found.load.at.index, found.load.at.buffer.shape, strict=True):
        assert isinstance(i, n.Expr)
        all_there = build.logical_and(all_there, build.logical_and(build.compare("ge", i, 0), build.below(i, d)))
    return decided(all_there, known, "all elements that are brought exist", "an element that a thread brings lies outside the tensor",
                   attempt="a load that stops at the edges of the tensor")


def between_barriers(program: n.Program, site: Site, before: n.Block) -> Verdict:
    """Whether threads wait for one another between bringing elements, after which `before` stands up to the first read, and reading them; and at the end
    of an iteration, where the next one brings others."""
    if not any(is_call(s, "barrier") for s in before):
        return refuted("a thread may read an element before another one has brought it", "no barrier stands before the first read",
                       needs="a barrier", attempt="meet=true")
    if is_in_loop(program, site.path) and not is_call(block_at(program, site.path)[-1], "barrier"):
        return refuted("a thread may bring an element of the next iteration before another one has read this one's",
                       "no barrier stands at the end of the iteration", needs="a barrier", attempt="meet=true")
    return proved("all threads wait for one another before the first read and after the last one")


@dataclass(frozen=True)
class StageByThreads(Pass):
    """`value` is the text of the load, `%0` and `%1` standing for the place along each staged axis; `shape` are the extents of the array, one element
    for each thread; `turned`: its axes are those of the tensor the other way round. Threads are distributed along its rows, with `columns` along its
    columns. `meet`: barriers come in before the first read and, in a loop, behind the last; otherwise those that are there do. `guarded`: a thread whose
    element lies behind the tensor's end brings nothing."""

    intent: ClassVar[str] = "stage-shared"
    catalogue: ClassVar[tuple[int, ...]] = (2,)
    claim: ClassVar[str] = "Each element is read from global memory once for the whole CTA."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P922", "validity", "pipeline", "what is staged stays as it is, and all threads meet before it is read and replaced", _sound),)

    value: str = ""
    shape: tuple[int, ...] = ()
    turned: bool = False
    columns: bool = False
    meet: bool = False
    guarded: bool = False

    def places(self, t: n.Var) -> tuple[n.Expr, ...]:
        """The place in the array that a thread fills."""
        if len(self.shape) == 1:
            return (t,)
        if self.columns:
            return build.mod(t, self.shape[0]), build.floordiv(t, self.shape[0])
        return build.floordiv(t, self.shape[1]), build.mod(t, self.shape[1])

    def template(self, program: n.Program, path: Path) -> Template | None:
        """The load with the text `value`, in the statement at a path or one that follows it."""
        block, team = block_at(program, path), team_at(program, path)
        rest = block[int(path[-1]):]
        for s in rest if team is not None and self.value else ():
            moving = {*bound_names((s,)), team.thread.name} if team is not None else set()
            for x in walk(s):
                if isinstance(x, n.Load) and x.at.buffer.space == "global" and x.at.index and all(isinstance(i, n.Expr) for i in x.at.index):
                    found = template_of(x, moving)
                    if found is not None and found.text == self.value and not names_read(found.load.at) & set(bound_names(rest)):
                        return found
        return None

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement of a thread behind which elements of global memory are read, of which there are as many as threads."""
        team = team_at(program, path)
        if team is None or not isinstance(node, n.Stmt) or math.prod(self.shape) != team.threads or not 1 <= len(self.shape) <= 2:
            return None
        found = self.template(program, path)
        if found is None or len(found.dims) != len(self.shape) or (self.turned and len(self.shape) == 1) or (self.columns and len(self.shape) == 1):
            return None
        extents = self.shape[::-1] if self.turned else self.shape
        if not any(True for _ in staged_reads(program, path, found, extents)):
            return Miss("no read is known to be of these elements")
        own = self.places(team.thread)
        if self.guarded and (found.load.clip or found.load.mask is not None or _exists(found.at(own[::-1] if self.turned else own), team) is None):
            return Miss("the tensor has all that is brought, or is asked for it already")
        if self.meet and any(isinstance(s, n.Eval) and is_call(s, "barrier") for s in block_at(program, path)):
            return Miss("its threads synchronize already")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A store of each thread's element, and reads of the array."""
        kernel, i, team = kernel_of(program, site.path), int(site.path[-1]), team_at(program, site.path)
        found = matched(self.template(program, site.path))
        assert team is not None
        b = found.load.at.buffer
        made = n.Buffer(fresh(f"{b.name}s", names_in(program, kernel)), b.dtype, tuple(map(build.const, self.shape)), "shared")
        extents = self.shape[::-1] if self.turned else self.shape
        inside = {x: place[::-1] if self.turned else place for _, x, place in staged_reads(program, site.path, found, extents)}
        own = self.places(team.thread)
        load = found.at(own[::-1] if self.turned else own)
        store: n.Stmt = n.Store(build.region(made, *own), load)
        if self.guarded:
            store = n.If(matched(_exists(load, team)), (store,))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return n.Load(build.region(made, *inside[old])) if isinstance(old, n.Load) and old in inside else new
        trailing: n.Block = (barrier(),) if self.meet and is_in_loop(program, site.path) else ()
        head: n.Block = (store, barrier()) if self.meet else (store,)
        out = edit_block(program, site.path, lambda x: (*x[:i], *head, *(transform(s, leave) for s in x[i:]), *trailing))
        return Rewritten(with_shared(out, team, made), shifted(site.path, int(team.path[1]), 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a thread's store of one element of a tensor to an array that is only read, behind a barrier in the same block."""
        team, guard = team_at(program, path), None
        if isinstance(node, n.If) and len(node.then) == 1 and not node.orelse and not node.static:
            guard, node = node.cond, node.then[0]
        if team is None or not (isinstance(node, n.Store) and node.at.buffer.space == "shared" and node.mask is None and isinstance(node.value, n.Load)):
            return None
        made = _filled(node, team)
        if made is None:
            return Miss("it does not bring one element of a tensor for each thread")
        item, found = made
        if guard is not None:
            assert isinstance(node.value, n.Load)
            if guard != _exists(node.value, team):
                return Miss("a branch around it asks for something else than whether the element is there")
            item = replace(item, guarded=True)
        (block, i), name = block_and_index(program, path), node.at.buffer.name
        others = {b for s in block for b in buffers_named(s) if b != name and any(
            isinstance(a, n.Alloc) and a.buffer.space == "shared" and a.buffer.name == b for a in kernel_of(program, path).body)}
        j = next((k for k in range(i + 1, len(block)) if is_call(block[k], "barrier")), None)
        loads = loads_of(block[j + 1:], name) if j is not None else []
        if j is None or len(loads) + 1 != uses(program, path, name) or not loads or any(x.mask is not None for x in loads):
            return Miss(f"'{name}' is not only read, behind a barrier that follows")
        home, meet = declaration(program, path, name), not others
        if home is None or home.init is not None or home.buffer != replace(node.at.buffer, name=name) or home.buffer.layout is not None:
            return Miss(f"'{name}' has a layout of its own")
        ends = not is_in_loop(program, path) or is_call(block[-1], "barrier")
        if not ends or (meet and (j != i + 1 or sum(is_call(s, "barrier") for s in block) != (2 if is_in_loop(program, path) else 1))):
            return Miss("its threads synchronize elsewhere than before the first read and after the last one")
        return Site(path, replace(item, meet=meet), {"template": found})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Reads where the elements are."""
        (block, i), found = block_and_index(program, site.path), site.captures["template"]
        first = block[i]
        store = matched_as(first.then[0] if isinstance(first, n.If) else first, n.Store)
        assert isinstance(found, Template)
        b = store.at.buffer

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Load) and new.at.buffer == b:
                place = tuple(e for e in new.at.index if isinstance(e, n.Expr))
                return found.at(place[::-1] if self.turned else place)
            return new
        rest = tuple(transform(s, leave) for s in block[i + 1:] if not (self.meet and is_call(s, "barrier")))
        out = splice(program, site.path, rest, 0, None)
        out, home = without_shared(out, str(site.path[0]), b.name)
        return Rewritten(out, shifted(site.path, home, -1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The bytes of the array."""
        found = self.template(program, site.path)
        return Effect() if found is None else Effect(shared_bytes=math.prod(self.shape) * found.load.at.buffer.dtype.bytes)


def _exists(load: n.Load, team: ThreadTeam) -> n.Expr | None:
    """Whether the element that a thread brings lies before its tensor's end, along the axes that the thread's number moves it along."""
    parts = [build.compare("lt", i, d) for i, d in zip(load.at.index, load.at.buffer.shape, strict=True)
             if isinstance(i, n.Expr) and team.thread.name in names_read(i) and i.type == d.type]
    return reduce(build.logical_and, parts) if parts and load.mask is None and not load.clip else None


def is_one_element_per_thread(s: n.Store, team: ThreadTeam) -> bool:
    """Whether a store brings one element of a tensor for each thread."""
    return s.at.buffer.space == "shared" and s.mask is None and isinstance(s.value, n.Load) and _filled(s, team) is not None


def _filled(s: n.Store, team: ThreadTeam) -> tuple[StageByThreads, Template] | None:
    """The parameters of a store of each thread's element, and the load as a template."""
    shape = tuple(build.int_value(d) or 0 for d in s.at.buffer.shape)
    if math.prod(shape) != team.threads or not 1 <= len(shape) <= 2:
        return None
    for columns in (False, True)[:len(shape)]:
        item = StageByThreads("", shape, False, columns)
        own = item.places(team.thread)
        if s.at.index != own:
            continue
        names = tuple(n.Var(f"%at{k}", I32) for k in range(len(shape)))

        def leave(old: n.Node, new: n.Node, own: tuple[n.Expr, ...] = own, names: tuple[n.Var, ...] = names) -> n.Node:
            return next((v for e, v in zip(own, names, strict=True) if new == e), new)
        load = transform(s.value, leave)
        found = template_of(load, {v.name for v in names}) if isinstance(load, n.Load) and team.thread.name not in names_read(load) else None
        place = found.place(load) if found is not None else None
        if found is not None and place in (names, names[::-1]):
            return replace(item, value=found.text, turned=len(names) > 1 and place == names[::-1]), found
    return None
