"""Computes what each round of a loop works out for itself ahead of the loops around it, once, into an array.

pipeline: `hold-row{enter=[0] fills=1 levels=1}@main/n/k`

```diff
 kir 1
 program weighted
   in Q: f32[M, 8]
   in K: f32[16, 8]
   in V: f32[16, 64]
   out O: f32[M, 64]
   size M: i32
 kernel main grid (row: M) threads 1
+  register s: f32[16] = 0.0
+  for d in 0..8
+    for k_1 in 0..16
+      s[k_1] = s[k_1] + Q[row, d] * K[k_1, d]
   for n in 0..64
     register o: f32 = 0.0
     for k in 0..16
-      register s: f32 = 0.0
-      for d in 0..8
-        s = s + Q[row, d] * K[k, d]
-      o = o + s * V[k, n]
+      o = o + s[k] * V[k, n]
     O[row, n] = o
```
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from kir.analysis.access import Aliases, accesses
from kir.analysis.access import independent as may_be_exchanged
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.visit import buffers_named, names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import edit_block, kernel_of, node_at
from kir.rewrite.match import block_and_index, counting, fresh_var, is_counted, names_at, node_as, params_as
from kir.rewrite.match.materialize import buffers_written, is_pure

from .jam_loop import LARGEST, Apart, CannotJam, Jam, JamLoop, element_of


def _crossed(program: n.Program, path: Path, levels: int) -> list[n.For] | None:
    """The serial loops around a statement, from the inside, that stand directly in one another; None where there are fewer."""
    out: list[n.For] = []
    for _ in range(levels):
        path = path[:-2]
        around = node_at(program, path) if len(path) > 1 else None
        if not (isinstance(around, n.For) and around.kind == "serial"):
            return None
        out.append(around)
    return out


def _fills(block: Sequence[n.Stmt], b: n.Buffer) -> bool:
    """Whether statements do nothing but compute what is in private memory."""
    own = {b.name, *bound_names(tuple(block))}
    return bool(block) and buffers_written(tuple(block)) <= own and all(b.name in buffers_named(s) for s in block) and all(
        isinstance(s, n.Let | n.Alloc | n.Store | n.For | n.If) for s in statements(tuple(block))) and all(
        is_pure(x) for s in block for x in walk(s) if isinstance(x, n.Call))


def _same_each_time(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, item, aliases = node_as(program, site.path, n.For), params_as(site, HoldRow), Aliases(program)
    crossed = _crossed(program, site.path, item.levels) or []
    parts, rest = loop.body[:1 + item.fills], loop.body[1 + item.fills:]
    own, outer = set(bound_names(parts)), crossed[-1] if crossed else loop
    if changed := sorted(own & buffers_written(rest)):
        return refuted(f"'{changed[0]}' is changed where it is used", "the second time it has what the first has left")
    inside = {*bound_names((outer,)), outer.var.name} - own - {loop.var.name}
    if named := sorted(name for s in parts for name in names_read(s) | buffers_named(s) if name in inside):
        return refuted(f"'{named[0]}' is another one each time", f"round 1 of the loop over '{outer.var.name}' computes something else than round 0")
    read = {a.buffer for s in parts for a in accesses(s) if not a.writes} - own
    clash = sorted(r for r in read for w in buffers_written((outer,)) - own if w == "*" or aliases.may_be_one(w, r))
    if clash:
        return refuted(f"'{clash[0]}' is written in the loop", f"round 1 reads what round 0 has written to '{clash[0]}'")
    return proved("it is the same each time")


def _runs(program: n.Program, site: Site, context: Context) -> Verdict:
    for loop in _crossed(program, site.path, params_as(site, HoldRow).levels) or []:
        lo, hi = build.int_value(loop.lo), build.int_value(loop.hi)
        if lo is None or hi is None or lo >= hi:
            return unknown(f"the loop over '{loop.var.name}' may not run once, and what would be computed may lie outside of what it reads",
                           needs="a loop of known length")
    return proved("the loops run")


@dataclass(frozen=True)
class HoldRow(Pass):
    """Of the loop at the site the declaration with which a round begins and the `fills` statements behind it are moved `levels` loops out; `enter`,
    `branches`, `keep` and `cuts` say as in `jam-loop` what of it is run once for all rounds."""

    intent: ClassVar[str] = "operand-reuse"
    catalogue: ClassVar[tuple[int, ...]] = (51, 5)
    claim: ClassVar[str] = "Values that are needed again and again are computed once."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P893", "validity", "aliasing", "what is computed is the same each time", _same_each_time),
        Precondition("KIR-P894", "validity", "shape", "the loops run in which it was computed", _runs))

    enter: tuple[int, ...] = ()
    cuts: tuple[int, ...] = ()
    branches: tuple[int, ...] = ()
    keep: tuple[int, ...] = ()
    fills: int = 1
    levels: int = 1

    @property
    def jam(self) -> JamLoop:
        """How it is run for all rounds."""
        return JamLoop(self.enter, self.cuts, self.branches, self.keep)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a short loop of one thread that begins with a number that it computes for itself."""
        if not (is_counted(node, plain=True) and isinstance(node, n.For) and node.body and isinstance(node.body[0], n.Alloc)):
            return None
        b, parts, count = node.body[0].buffer, node.body[1:1 + self.fills], build.int_value(node.hi)
        if b.space != "register" or b.shape or count is None or not 1 < count <= LARGEST or not build.is_const(kernel_of(program, path).threads, 1):
            return Miss("it is no number of one thread")
        if len(parts) < self.fills or not _fills(parts, b):
            return Miss(f"the statements behind '{b.name}' do more than compute it")
        if self.levels < 0 or _crossed(program, path, self.levels) is None:
            return Miss("there are not so many loops around it")
        try:
            self._jammed(program, path, node)
        except CannotJam as why:
            return Miss(str(why))
        return Site(path, self)

    def _jammed(self, program: n.Program, path: Path, loop: n.For) -> tuple[n.Block, Jam]:
        parts = loop.body[:1 + self.fills]
        var = fresh_var(loop.var.name, names_at(program, path))
        made = Jam(counting(loop.var, build.int_value(loop.hi) or 0, parts), self.jam, {*names_at(program, path), var.name})
        made.first = False
        return made.block(parts), made

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The array and what fills it, and its elements."""
        loop, at = node_as(program, site.path, n.For), site.path
        ahead, made = self._jammed(program, site.path, loop)
        rest = tuple(element_of(s, made.arrays, loop.var, 0) for s in loop.body[1 + self.fills:])
        out = edit_block(program, at, lambda b: (*b[:int(at[-1])], replace(loop, body=rest), *b[int(at[-1]) + 1:]))
        at = at[:len(at) - 2 * self.levels]
        return Rewritten(edit_block(out, at, lambda b: (*b[:int(at[-1])], *ahead, *b[int(at[-1]):])), at)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an array of one thread of which one loop reads one element in each round, behind what fills it."""
        if not (isinstance(node, n.Alloc) and node.buffer.space == "register" and len(node.buffer.shape) == 1 and node.buffer.layout is None):
            return None
        (block, i), b = block_and_index(program, path), node.buffer
        using = [k for k in range(i + 1, len(block)) if b.name in buffers_named(block[k])]
        count = build.int_value(b.shape[0])
        if len(using) < 2 or count is None or not 1 < count <= LARGEST or not build.is_const(kernel_of(program, path).threads, 1):
            return Miss("it is no array of one thread that is filled and read")
        steps, loop = _reader(block[using[-1]], b)
        if loop is None or build.int_value(loop.hi) != count:
            return Miss("no one loop reads an element in each round")
        fills = tuple(block[k] for k in using[:-1])
        between = tuple(s for k, s in enumerate(block[i:using[-1]], i) if k != i and k not in using)
        if not _fills(fills, b) or (between and not may_be_exchanged((node, *fills), between, Facts.at(program, path), Aliases(program))):
            return Miss("what fills it does more, or has to stand where it does")
        apart = Apart(count, loop.var, 0)
        try:
            parts = apart.block((node, *fills))
        except CannotJam as why:
            return Miss(str(why))
        inside = list(statements(parts))
        enter, branches, keep = (tuple(k for k, s in enumerate(s for s in inside if isinstance(s, kind)) if id(s) in chosen)
                                 for kind, chosen in ((n.For, apart.entered), (n.If, apart.entered), (n.Alloc, apart.kept)))
        item = HoldRow(enter, tuple(apart.cuts), branches, keep, len(parts) - 1, len(steps) // 2)
        made = replace(loop, body=(*parts, *(apart.single(s) for s in loop.body)))
        return Site(path, item, {"made": made, "at": (*path[:-1], i + len(between), *steps), "between": between, "reader": using[-1]})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each number where it is needed."""
        i, at, k = int(site.path[-1]), site.captures["at"], site.captures["reader"]
        out = edit_block(program, site.path, lambda b: (*b[:i], *site.captures["between"], b[k], *b[k + 1:]))
        return Rewritten(edit_block(out, at, lambda b: (*b[:int(at[-1])], site.captures["made"], *b[int(at[-1]) + 1:])), at)


def _reader(s: n.Stmt, b: n.Buffer) -> tuple[Path, n.For | None]:
    """The path below a statement to the one loop in it that reads an array, at its own number alone; no loop where others read it, or more than reads."""
    steps: list[str | int] = []
    while isinstance(s, n.For) and s.kind == "serial":
        here = [x for y in s.body for x in walk(y) if isinstance(x, n.Region) and x.buffer.name == b.name]
        if is_counted(s, plain=True) and here and all(x.index == (s.var,) for x in here):
            return tuple(steps), s if b.name not in buffers_written(s.body) else None
        inner = [k for k, y in enumerate(s.body) if b.name in buffers_named(y)]
        if len(inner) != 1:
            break
        steps += ["body", inner[0]]
        s = s.body[inner[0]]
    return (), None
