"""Runs the iterations of a loop in step: each loop inside is run once for all of them, and what each kept for itself is an array.

pipeline: `jam-loop{enter=[0]}@main/columns`

```diff
 kir 1
 program product
   in A: f32[M, K]
   in B: f32[K, 64]
   out C: f32[M, 64]
   size M: i32
   size K: i32
 kernel main grid (m: M, n: 16) threads 1
-  @columns for i in 0..4
-    register total: f32 = 0.0
-    for k in 0..K
-      total = total + A[m, k] * B[k, n * 4 + i]
-    C[m, n * 4 + i] = total
+  register total: f32[4] = 0.0
+  for k in 0..K
+    for i in 0..4
+      total[i] = total[i] + A[m, k] * B[k, n * 4 + i]
+  for i_1 in 0..4
+    C[m, n * 4 + i_1] = total[i_1]
```
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis.access import Aliases
from kir.analysis.access import independent as may_be_exchanged
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, TileType
from kir.ir.visit import buffers_named, names_read, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.match import block_and_index, counting, edited, fresh_var, is_counted, names_at, node_as
from kir.rewrite.match.independence import independent
from kir.rewrite.match.materialize import is_pure
from kir.rewrite.match.sums import in_order

MOST, LARGEST = 64, 256
"""Most iterations that are proposed to run in step, since each has registers of its own; and most that do where they are asked to."""


class CannotJam(Exception):
    """Why iterations cannot run in step, or are not."""


def _apart(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    return in_order(program, loop, independent(program, site.path, loop))


@dataclass(frozen=True)
class JamLoop(Pass):
    """`enter` are the loops inside that are run once for all iterations, by their number among the loops inside in reading order, and `branches` the branches
    that are gone into once for all. What stands between them is one loop over the iterations; `cuts` are the statements, by their number among all that are
    repeated, before which another one begins. Private memory becomes an array with the iterations along axis `axis`, or each along one of `axes`, but what
    `keep` names by its number among the declarations inside: that stays in the loop over the iterations. The statements of `once`, by their number among
    all inside, compute the same in each iteration, and are run once for all."""

    intent: ClassVar[str] = "register-tile"
    catalogue: ClassVar[tuple[int, ...]] = (50,)
    claim: ClassVar[str] = "Iterations go forward together: their sums do not wait for one another, and what several of them need is read once."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P928", "validity", "aliasing", "no iteration touches what another one writes", _apart),)

    enter: tuple[int, ...] = ()
    cuts: tuple[int, ...] = ()
    branches: tuple[int, ...] = ()
    keep: tuple[int, ...] = ()
    axis: int = 0
    once: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a short loop with loops inside, and private memory of each iteration that they share; with no `enter`, all loops that are longer are run once,
        all that hold others, and all that lie inside, each with what stands between them in one loop over the iterations, and in one each."""
        if not _is_short(node) or not isinstance(node, n.For):
            return None
        inner = [s for s in statements(node.body) if isinstance(s, n.For)]
        if self.enter or self.branches:
            return self._at(path, node, inner)
        longer = tuple(k for k, s in enumerate(inner) if (build.int_value(s.hi) or MOST + 1) > (build.int_value(node.hi) or 0)) if _is_short(node, MOST) else ()
        holding = tuple(k for k, s in enumerate(inner) if any(isinstance(x, n.For) for x in statements(s.body)))
        ways = [replace(self, enter=enter) for enter in dict.fromkeys((longer, tuple(range(len(inner))), holding)) if enter]
        found = [(way, way._at(path, node, inner)) for way in ways]
        sites = [(way, each) for way, each in found if isinstance(each, Site)]
        apart = [replace(each, params=replace(way, cuts=cuts)) for way, each in sites if not self.cuts and (cuts := self._boundaries(node, way))]
        return (*(each for _, each in sites), *apart) or (found[0][1] if found else Miss("there is no loop inside"))

    def _at(self, path: Path, node: n.For, inner: list[n.For]) -> Site | Miss:
        """The site at a loop, with the loops inside that are run once."""
        inside = list(statements(node.body))
        counts = len(inner), sum(isinstance(s, n.If) for s in inside), sum(isinstance(s, n.Alloc) for s in inside)
        if not (self.enter or self.branches) or any(max(which, default=0) >= max(1, most) for which, most in zip(
                (self.enter, self.branches, self.keep), counts, strict=True)) or self.axis < 0 or max(self.once, default=-1) >= len(inside):
            return Miss("there is no such loop inside")
        try:
            jam = Jam(node, self, set())
            jam.block(node.body)
        except CannotJam as why:
            return Miss(str(why))
        if any(k not in jam.inner for k in self.cuts):
            return Miss("a loop over the iterations would begin where none goes on")
        return Site(path, self) if jam.shared else Miss("the loops that are to be run once lie in others that are not")

    def _boundaries(self, node: n.For, item: JamLoop) -> tuple[int, ...]:
        """Where a loop over the iterations may begin anew: at each statement that stands in the loop of the one before it."""
        jam = Jam(node, item, set())
        jam.block(node.body)
        return tuple(sorted(jam.inner))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Arrays, and the loop around what is in the loops."""
        loop = node_as(program, site.path, n.For)
        made = Jam(loop, self, names_at(program, site.path)).block(loop.body)
        return edited(program, site.path, made)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an array of private memory, each element of which is one iteration's in all loops that follow."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "register" and node.buffer.shape and node.buffer.layout is None
                and node.buffer.strides is None and not node.buffer.align):
            return None
        (block, i), name = block_and_index(program, path), node.buffer.name
        end = _last(block, i, {name})
        longer = _last(block, i, {name} | {s.buffer.name for s in block[i:end] if isinstance(s, n.Alloc)})
        first: Site | Miss | None = None
        for again, stop in ((again, stop) for again in (False, True) for stop in dict.fromkeys((end, longer))):
            for axis, extent in enumerate(node.buffer.shape):
                count = build.int_value(extent)
                counted = count is not None and 1 < count <= LARGEST
                found = self._undone(program, path, block[i:stop], Apart(count or 0, fresh_var("i", names_at(program, path)), axis, again), block[stop:]) if (
                    counted) else None
                if isinstance(found, Site):
                    return found
                first = first or found
        return first

    def _undone(self, program: n.Program, path: Path, block: n.Block, way: Apart, rest: n.Block) -> Site | Miss:
        """The site at an array of which an axis counts iterations, with the loop that it is undone to and what is moved ahead of it; `rest` stays behind it."""
        why = Miss("no loop is run for several iterations at once")
        for ahead in ((), _ahead(program, path, block)):
            if ahead is None:
                break
            own = [s for k, s in enumerate(block) if k not in ahead]
            if not way.again and any(isinstance(s, n.Alloc) and s.buffer.space == "register" and not s.buffer.shape for s in own):
                why = Miss("private scalars stand between, which all iterations share")
                continue
            apart = Apart(way.count, way.var, way.axis, way.again)
            try:
                body = apart.block(tuple(own))
            except CannotJam as reason:
                why = Miss(str(reason))
                continue
            inside = list(statements(body))
            enter, branches, keep = (tuple(k for k, s in enumerate(s for s in inside if isinstance(s, kind)) if id(s) in chosen)
                                     for kind, chosen in ((n.For, apart.entered), (n.If, apart.entered), (n.Alloc, apart.kept)))
            if any(name in buffers_named(s) for name in bound_names(body) for s in rest):
                why = Miss("what each iteration declares is used behind it")
            elif enter or branches:
                made = (*(block[k] for k in ahead), counting(apart.var, apart.count, body))
                once = tuple(k for k, s in enumerate(inside) if id(s) in apart.once)
                axes = tuple(apart.axes) if apart.others else ()
                return Site(path, JamLoop(enter, tuple(apart.cuts), branches, keep, apart.axis, once, axes), {"made": made, "end": len(block)})
        return why

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop around all."""
        made, end = site.captures["made"], site.captures["end"]
        return edited(program, site.path, made, 0, end, at=len(made) - 1)


def _last(block: n.Block, i: int, names: set[str]) -> int:
    """The statement behind the last one that mentions one of some names."""
    return max((k for k in range(i, len(block)) if names & buffers_named(block[k])), default=i) + 1


def _ahead(program: n.Program, path: Path, block: n.Block) -> tuple[int, ...] | None:
    """The statements of a block, by their numbers, that do not touch the array that the first one declares, and may stand ahead of all others: what is
    declared between is the array's own where a loop goes through both together. None where others have no place ahead."""
    first = block[0]
    names, group = {first.buffer.name} if isinstance(first, n.Alloc) else set[str](), {0}
    declared = {s.buffer.name: k for k, s in enumerate(block) if isinstance(s, n.Alloc)}
    while True:
        more = {k for k, s in enumerate(block) if k not in group and names & buffers_named(s)}
        along = {b for k in more for x in walk(block[k]) if isinstance(x, n.Store) for b in (x.at.buffer.name,) if b in declared}
        if not more and along <= names:
            break
        group |= more | {declared[b] for b in along}
        names |= along
    known, aliases = Facts.at(program, path), Aliases(program)
    ahead = tuple(k for k in range(len(block)) if k not in group)
    fits = all(may_be_exchanged(tuple(block[m] for m in sorted(group) if m < k), (block[k],), known, aliases) for k in ahead)
    return ahead if ahead and fits else None


def _is_short(s: Place | n.Stmt, most: int = LARGEST) -> bool:
    """Whether a statement is a serial loop from 0 by 1 of a few iterations."""
    return is_counted(s, plain=True) and (
        s.var.of == I32) and 1 < (build.int_value(s.hi) or 0) <= most


def _exchanges(s: n.Node) -> bool:
    """Whether threads wait for each other or give each other values below, or something leaves or is not understood."""
    return any(isinstance(x, n.Jump | n.Opaque | n.Hole | n.Roles | n.View | n.Copy | n.Mma) or (isinstance(x, n.Call) and (
        x.of is not None or instruction(x.fn).is_convergent or instruction(x.fn).effect in ("sync", "async"))) for x in walk(s))


class Jam:
    """A loop's body for all iterations at once."""

    def __init__(self, loop: n.For, item: JamLoop, taken: set[str]) -> None:
        inner = [s for s in statements(loop.body) if isinstance(s, n.For)]
        self.loop, self.taken, self.count = loop, taken, build.int_value(loop.hi) or 0
        self.entered = {id(s) for k, s in enumerate(inner) if k in item.enter} | {
            id(s) for k, s in enumerate(s for s in statements(loop.body) if isinstance(s, n.If)) if k in item.branches}
        self.kept = {id(s) for k, s in enumerate(s for s in statements(loop.body) if isinstance(s, n.Alloc)) if k in item.keep}
        self.once = {id(s) for k, s in enumerate(statements(loop.body)) if k in item.once}
        self.shares: set[str] = set()
        """Private memory that all iterations share."""
        self.axis, self.axes = item.axis, item.axes
        self.along: dict[str, int] = {}
        """Which axis of an array counts the iterations."""
        self.arrays: dict[str, n.Buffer] = {}
        self.first = True
        self.number = 0
        self.cuts = item.cuts
        self.within: set[str] = set()
        """Names of what stays in a loop over the iterations."""
        self.inner: set[int] = set()
        """Statements, by their number, that stand in the loop of the one before them."""
        self.shared = False
        """Whether a loop inside is run once for all."""

    def block(self, block: n.Block) -> n.Block:
        """The statements of a block for all iterations."""
        out: list[n.Stmt] = []
        run: list[n.Stmt] = []
        own = {name for s in block if isinstance(s, n.Let) and id(s) not in self.once for name in s.names}
        for s in block:
            if id(s) in self.once:
                if names_read(s) & {self.loop.var.name, *own} or buffers_named(s) & (self.arrays.keys() | self.within) or not is_shared(s, self.shares):
                    raise CannotJam("a statement is not the same for all iterations")
                self.shares |= {s.buffer.name} if isinstance(s, n.Alloc) else set()
                out += [*self._together(run), s]
                run = []
            elif isinstance(s, n.Alloc) and id(s) not in self.kept:
                if s.buffer.space != "register" or s.buffer.layout is not None or s.buffer.strides is not None or (
                        s.init is not None and names_read(s.init) & {self.loop.var.name, *own}):
                    raise CannotJam(f"'{s.buffer.name}' has no form as an array of all iterations")
                number = len(self.arrays)
                at = self.along[s.buffer.name] = min(self.axes[number] if number < len(self.axes) else self.axis, len(s.buffer.shape))
                self.arrays[s.buffer.name] = made = replace(s.buffer, shape=(*s.buffer.shape[:at], build.const(self.count), *s.buffer.shape[at:]))
                out += [*self._together(run), replace(s, buffer=made)]
                run = []
            elif isinstance(s, n.If) and id(s) in self.entered:
                if names_read(s.cond) & {self.loop.var.name, *own} or buffers_named(s.cond) & self.arrays.keys():
                    raise CannotJam("a branch is not the same for all iterations")
                if any(names_read(x) & own for x in (*s.then, *s.orelse)):
                    raise CannotJam("a value of an iteration is needed in a branch that all iterations share")
                self.shared = True
                out += [*self._together(run), replace(s, then=self.block(s.then), orelse=self.block(s.orelse))]
                run = []
            elif isinstance(s, n.For) and id(s) in self.entered:
                moving = {self.loop.var.name, *own}
                if any(names_read(e) & moving or buffers_named(e) & self.arrays.keys() for e in (s.lo, s.hi, s.step)):
                    raise CannotJam(f"the loop over '{s.var.name}' is not the same for all iterations")
                if any(names_read(x) & own for x in s.body):
                    raise CannotJam("a value of an iteration is needed in a loop that all iterations share")
                self.shared = True
                out += [*self._together(run), replace(s, body=self.block(s.body))]
                run = []
            elif _exchanges(s):
                raise CannotJam("threads synchronize in it, or something in it is not understood")
            else:
                run.append(s)
        return (*out, *self._together(run))

    def _together(self, run: list[n.Stmt]) -> Iterator[n.Stmt]:
        """A loop over the iterations around some statements."""
        ends = [k for k in range(1, len(run)) if self.number + k in self.cuts]
        self.inner.update(range(self.number + 1, self.number + len(run)))
        self.number += len(run)
        for lo, hi in zip((0, *ends), (*ends, len(run)), strict=True) if run else ():
            var = self.loop.var if self.first else fresh_var(self.loop.var.name, self.taken)
            if any(isinstance(x, n.Store) and x.at.buffer.name in self.shares for s in run[lo:hi] for x in statements((s,))):
                raise CannotJam("an iteration changes what all share")
            body = tuple(substitute(element_of(s, self.arrays, var, self.along), {self.loop.var.name: var}) for s in run[lo:hi])
            self.within |= (own := {s.buffer.name for s in run[lo:hi] if isinstance(s, n.Alloc)})
            if any(buffers_named(s) & (self.within - own) for s in run[lo:hi]):
                raise CannotJam("what is kept in one loop over the iterations is used in another")
            self.first = False
            yield counting(var, self.count, body)


def is_shared(s: n.Stmt, shares: Collection[str]) -> bool:
    """Whether a statement only computes in private memory that all iterations share, of what nothing else changes meanwhile."""
    inside = [*statements((s,))]
    own = {*shares, *bound_names((s,))}
    return all(isinstance(x, n.Let | n.Alloc | n.Store | n.For | n.If) for x in inside) and not _exchanges(s) and all(
        x.buffer.space == "register" if isinstance(x, n.Alloc) else x.at.buffer.name in own if isinstance(x, n.Store) else True for x in inside) and all(
        is_pure(x) for x in walk(s) if isinstance(x, n.Call))


def element_of(s: n.Stmt, arrays: dict[str, n.Buffer], var: n.Var, along: Mapping[str, int]) -> n.Stmt:
    """A statement in which private memory is an element, or a row, of an array."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Region) and new.buffer.name in arrays:
            rest = new.index or _whole(new.buffer)
            at = min(along.get(new.buffer.name, 0), len(rest))
            return n.Region(arrays[new.buffer.name], (*rest[:at], var, *rest[at:]))
        return new
    made: n.Stmt = transform(s, leave, lambda x: not isinstance(x, n.Buffer))
    return made


def _whole(b: n.Buffer) -> tuple[n.Span, ...]:
    """All of each dimension."""
    return tuple(n.Span(build.const(0), d) for d in b.shape)


class Apart:
    """What runs for all iterations at once, for one of them: the inverse of `Jam`."""

    def __init__(self, count: int, var: n.Var, axis: int, again: bool = False) -> None:
        self.count, self.var, self.axis, self.again = count, var, axis, again
        self.once: set[int] = set()
        self.shares: set[str] = set()
        self.axes: list[int] = []
        self.others = False
        """Whether an array counts the iterations along another axis than is asked for."""
        self.arrays: dict[str, n.Buffer] = {}
        self.entered: set[int] = set()
        self.kept: set[int] = set()
        self.number = 0
        self.cuts: list[int] = []

    def block(self, block: n.Block) -> n.Block:
        """The statements of a block for the iteration `var`."""
        out: list[n.Stmt] = []
        goes_on = False
        for s in block:
            if isinstance(s, n.Alloc) and s.buffer.space == "register" and s.buffer.shape and (
                    build.int_value(s.buffer.shape[at := self._axis(s.buffer)]) == self.count):
                if s.init is not None and isinstance(s.init.type, TileType):
                    raise CannotJam(f"'{s.buffer.name}' begins with a tile")
                self.axes.append(at)
                self.others = self.others or at != min(self.axis, len(s.buffer.shape) - 1)
                self.arrays[s.buffer.name] = made = replace(s.buffer, shape=(*s.buffer.shape[:at], *s.buffer.shape[at + 1:]))
                out.append(replace(s, buffer=made))
                goes_on = False
            elif _is_short(s) and isinstance(s, n.For) and build.int_value(s.hi) == self.count and self._is_of_all(s):
                if _exchanges(s):
                    raise CannotJam("threads synchronize in it, or something in it is not understood")
                self.cuts += [self.number] if goes_on else []
                self.number += len(s.body)
                goes_on = True
                single = [substitute(self.single(x), {s.var.name: self.var}) for x in s.body]
                self.kept |= {id(y) for y in statements(tuple(single)) if isinstance(y, n.Alloc)}
                out += single
            elif self.again and not buffers_named(s) & self.arrays.keys() and is_shared(s, self.shares):
                goes_on = False
                self.shares |= {s.buffer.name} if isinstance(s, n.Alloc) else set()
                self.once.add(id(s))
                out.append(s)
            elif isinstance(s, n.For) and s.kind == "serial" and not self._touches((s.lo, s.hi, s.step)):
                goes_on = False
                made_loop = replace(s, body=self.block(s.body))
                self.entered.add(id(made_loop))
                out.append(made_loop)
            elif isinstance(s, n.If) and not s.static and not self._touches((s.cond,)):
                goes_on = False
                made_branch = replace(s, then=self.block(s.then), orelse=self.block(s.orelse))
                self.entered.add(id(made_branch))
                out.append(made_branch)
            else:
                raise CannotJam("a statement between is not one of each iteration")
        return tuple(out)

    def _axis(self, b: n.Buffer) -> int:
        """Which axis of an array counts the iterations: the one that is asked for, or the first of their number."""
        asked = min(self.axis, len(b.shape) - 1)
        return asked if not self.again or build.int_value(b.shape[asked]) == self.count else next(
            (k for k, d in enumerate(b.shape) if build.int_value(d) == self.count), asked)

    def _touches(self, parts: tuple[n.Expr, ...]) -> bool:
        return any(buffers_named(e) & self.arrays.keys() for e in parts)

    def _is_of_all(self, s: n.For) -> bool:
        """Whether a loop's variable says in it whose element of each array is meant."""
        found = [x for y in s.body for x in walk(y) if isinstance(x, n.Region) and x.buffer.name in self.arrays]
        return bool(found) and all(len(x.index) == len(x.buffer.shape) and x.index[self._axis(x.buffer)] == s.var for x in found)

    def single(self, s: n.Stmt) -> n.Stmt:
        """A statement with the iteration's part of each array."""
        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Region) and isinstance(old, n.Region) and new.buffer.name in self.arrays:
                at, b = self._axis(old.buffer), self.arrays[new.buffer.name]
                rest = (*new.index[:at], *new.index[at + 1:])
                return n.Region(b, () if rest == _whole(b) else rest)
            return new
        made: n.Stmt = transform(s, leave, lambda x: not isinstance(x, n.Buffer))
        return made
