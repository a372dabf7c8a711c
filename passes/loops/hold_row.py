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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import ClassVar

from kir.analysis.access import Aliases, accesses
from kir.analysis.access import independent as may_be_exchanged
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.visit import buffers_named, names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import edit_block, kernel_of, node_at
from kir.rewrite.match import block_and_index, counting, fresh_names, fresh_var, is_counted, matched_as, names_at, node_as, params_as
from kir.rewrite.match.materialize import MOST_WRITTEN, buffers_written, is_pure

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


def _bare(block: n.Block, names: Mapping[str, str]) -> n.Block:
    """Statements by other names, without labels."""
    return tuple(rename(s, names, False) for s in block)


def _again(s: n.Stmt, loop: n.For, fills: int) -> tuple[Path, n.For] | None:
    """The path below a statement to a loop in it that computes the same as another first, but for names, and uses it in its rounds; None without."""
    if not isinstance(s, n.For) or s.kind != "serial":
        return None
    parts, own = loop.body[:1 + fills], s.body[:1 + fills]
    ours, theirs = list(bound_names(parts)), list(bound_names(own))
    if is_counted(s, plain=True) and s.hi == loop.hi and len(own) == len(parts) and len(ours) == len(theirs):
        names = {**dict(zip(theirs, ours, strict=True)), s.var.name: loop.var.name}
        later = {x for y in s.body[1 + fills:] for x in names_read(y) | buffers_named(y)}
        if _bare(own, names) == _bare(parts, {}) and not set(theirs[1:]) & later:
            return (), s
    for k, y in enumerate(s.body):
        if (found := _again(y, loop, fills)) is not None:
            return ("body", k, *found[0]), found[1]
    return None


def _users(program: n.Program, site: Site) -> list[tuple[Path, n.For, int]]:
    """The loops that compute it, with their paths and how many loops they are moved out of: that at the site, and the others."""
    loop, item = node_as(program, site.path, n.For), params_as(site, HoldRow)
    start = site.path[:len(site.path) - 2 * item.levels]
    block, i = block_and_index(program, start)
    out = [(site.path, loop, item.levels)]
    for k in item.again:
        found = _again(block[i + k], loop, item.fills) if i + k < len(block) else None
        if found is not None:
            out.append(((*start[:-1], i + k, *found[0]), found[1], len(found[0]) // 2))
    return out


def _same_each_time(program: n.Program, site: Site, context: Context) -> Verdict:
    item, start = params_as(site, HoldRow), site.path[:len(site.path) - 2 * params_as(site, HoldRow).levels]
    block, i = block_and_index(program, start)
    for path, loop, levels in _users(program, site):
        found = _same_here(program, path, loop, levels, item.fills, block[i:i + max(item.again)] if item.again else ())
        if found.kind != "proved":
            return found
    return proved("it is the same each time")


def _same_here(program: n.Program, path: Path, loop: n.For, levels: int, fills: int, until: n.Block) -> Verdict:
    """Whether what a loop computes first is the same in each round of the loops around it, and is not changed by the statements `until` the last use."""
    crossed, aliases = _crossed(program, path, levels) or [], Aliases(program)
    parts, rest = loop.body[:1 + fills], loop.body[1 + fills:]
    own, outer = set(bound_names(parts)), crossed[-1] if crossed else loop
    if changed := sorted(own & buffers_written(rest)):
        return refuted(f"'{changed[0]}' is changed where it is used", "the second time it has what the first has left")
    inside = {*bound_names((outer,)), outer.var.name} - own - {loop.var.name}
    if named := sorted(name for s in parts for name in names_read(s) | buffers_named(s) if name in inside):
        return refuted(f"'{named[0]}' is another one each time", f"round 1 of the loop over '{outer.var.name}' computes something else than round 0")
    read = {a.buffer for s in parts for a in accesses(s) if not a.writes} - own
    clash = sorted(r for r in read for w in buffers_written((outer, *until)) - own if w == "*" or aliases.may_be_one(w, r))
    if clash:
        return refuted(f"'{clash[0]}' is written in the loop", f"round 1 reads what round 0 has written to '{clash[0]}'")
    return proved("it is the same each time")


def _runs(program: n.Program, site: Site, context: Context) -> Verdict:
    for loop in (x for path, _, levels in _users(program, site) for x in _crossed(program, path, levels) or []):
        lo, hi = build.int_value(loop.lo), build.int_value(loop.hi)
        if lo is None or hi is None or lo >= hi:
            return unknown(f"the loop over '{loop.var.name}' may not run once, and what would be computed may lie outside of what it reads",
                           needs="a loop of known length")
    return proved("the loops run")


@dataclass(frozen=True)
class HoldRow(Pass):
    """Of the loop at the site the declaration with which a round begins and the `fills` statements behind it are moved `levels` loops out; `enter`,
    `branches`, `keep` and `cuts` say as in `jam-loop` what of it is run once for all rounds. `again`: so many statements behind that one stand others, a loop
    in each of which computes the same, and takes it from there."""

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
    again: tuple[int, ...] = ()

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
        if len(_users(program, Site(path, self))) < 1 + len(self.again) or list(self.again) != sorted(set(self.again)) or min(self.again, default=1) < 1:
            return Miss("no other loop computes the same there")
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
        array = made.arrays[bound(loop).name]
        out = program
        for where, user, _ in reversed(_users(program, site)):
            rest = tuple(element_of(s, {**made.arrays, bound(user).name: array}, user.var, {}) for s in user.body[1 + self.fills:])
            out = _with(out, where, replace(user, body=rest))
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
        readers = list(takewhile(lambda k: (found := _reader(block[k], b)[1]) is not None and build.int_value(found.hi) == count, reversed(using[1:])))[::-1]
        if not readers:
            return Miss("no one loop reads an element in each round")
        first, (steps, loop) = readers[0], _reader(block[readers[0]], b)
        assert loop is not None
        fills = tuple(block[k] for k in using if k < first)
        between = tuple(s for k, s in enumerate(block[i:first], i) if k != i and k not in using)
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
        item = HoldRow(enter, tuple(apart.cuts), branches, keep, len(parts) - 1, len(steps) // 2, tuple(k - first for k in readers[1:]))
        if len(readers) > 1 and (len(readers) - 1) * sum(1 for s in parts for _ in walk(s)) > MOST_WRITTEN:
            return Miss("it is too long to be computed where each of its readers needs it")
        made, taken = [((*path[:-1], i + len(between), *steps), replace(loop, body=(*parts, *(apart.single(s) for s in loop.body))))], names_at(program, path)
        for k in readers[1:]:
            steps, user = _reader(block[k], b)
            assert user is not None
            names = {**fresh_names(parts, taken), loop.var.name: user.var.name}
            taken |= set(names.values())
            body = tuple(rename(apart.single(s), {b.name: names[b.name]}) for s in user.body)
            made.append(((*path[:-1], i + len(between) + k - first, *steps), replace(user, body=(*_bare(parts, names), *body))))
        return Site(path, item, {"made": made, "between": between, "reader": first})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each number where it is needed."""
        i, made, k = int(site.path[-1]), site.captures["made"], site.captures["reader"]
        out = edit_block(program, site.path, lambda b: (*b[:i], *site.captures["between"], *b[k:]))
        for at, loop in made:
            out = _with(out, at, loop)
        return Rewritten(out, made[0][0])


def bound(loop: n.For) -> n.Buffer:
    """What a round of a loop declares first."""
    return matched_as(loop.body[0], n.Alloc).buffer


def _with(program: n.Program, at: Path, s: n.Stmt) -> n.Program:
    """A program with another statement at a path."""
    return edit_block(program, at, lambda b: (*b[:int(at[-1])], s, *b[int(at[-1]) + 1:]))


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
