"""The threads of a CTA fill an array of shared memory together, some elements each, and meet before they read it.

pipeline: `fill-by-threads{value="cast(X[row, at0], f32)" shape=[128] loops=["thread 64", "serial 2"] place=["turn0 + turn1 * 64"] meet=true}@main/t/sum`

```diff
 kir 1
 program smoothed
   in X: f16[M, 128]
   out Y: f32[M, 64]
   size M: i32
 kernel main grid (row: M) threads 64
+  shared held: f32[128]
   for t in 0..64 parallel thread
     register total: f32 = 0.0
+    for turn in 0..2
+      held[t + turn * 64] = cast(X[row, t + turn * 64], f32)
+    barrier()
     @sum for k in 0..64
-      total = total + cast(X[row, t + k], f32)
+      total = total + held[t + k]
     Y[row, t] = total
```
"""
from __future__ import annotations

import math
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.facts import Facts
from kir.analysis.loops.loop_nest import Loops, Nest, built, by_place, counters, nest_at, reach, recounted, renamed
from kir.analysis.uniform import depends, varying
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import BOOL, I32, TileType, dtype_of
from kir.ir.visit import names_read, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in, places
from kir.rewrite.match import block_and_index, counting, fresh_at, fresh_var, loads_of, matched, matched_as, params_as, splice
from kir.rewrite.match.local_buffers import own_parts
from kir.rewrite.match.materialize import buffers_read, buffers_written, is_pure
from kir.rewrite.match.shared_arrays import declaration, shifted, uses, with_shared, without_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, everyone_arrives, is_call, is_in_loop, team_at
from kir.rewrite.match.unify import hole, rewritten
from kir.rewrite.precondition import decided
from kir.rewrite.view import expression_at, text_of

from ._buffered_value import loops_of, mentioned, texts_of
from .hold_elements import Back, Change
from .stage_by_threads import between_barriers, is_one_element_per_thread


def _item(site: Site) -> FillByThreads:
    return params_as(site, FillByThreads)


def _unchanged(program: n.Program, site: Site, context: Context) -> Verdict:
    pattern, aliases = matched(_item(site).pattern(program, site.path)), Aliases(program)
    for name in sorted(buffers_written(kernel_of(program, site.path).body)):
        for source in sorted(buffers_read(pattern)):
            if name in ("*", source) or aliases.may_be_one(name, source):
                return refuted(f"'{name}' is written while elements made of '{source}' are kept", f"a later read sees the old '{source}'",
                               needs="elements that stay as they are")
    return proved("nothing that the elements are made of is written")


def _reached(program: n.Program, site: Site, context: Context) -> Verdict:
    item = _item(site)
    loops, place = item.nest(program, site.path) or ((), ())
    found = reach(loops, place)
    if isinstance(found, str):
        return unknown(found)
    if any(found.low) or any(b + 1 != d for b, d in zip(found.high, item.shape, strict=True)) or found.missed is not None:
        where = found.missed if found.missed is not None else found.low if any(found.low) else found.high
        return refuted("the threads do not fill the array and nothing else", f"element [{', '.join(map(str, where))}] of {list(item.shape)}",
                       needs="places that are those of the array")
    name = fresh_at(program, site.path, "held")
    made = item.optimize(program, site).program
    for path, s in places(made):
        regions = [x.at for x in loads_of(own_parts(s), name)] if isinstance(s, n.Stmt) else []
        for r in regions:
            inside: n.Expr = build.const(True, BOOL)
            for i, extent in zip(r.index, item.shape, strict=False):  # the whole array has no index
                first = i.lo if isinstance(i, n.Span) else i
                last = build.add(i.lo, build.mul(build.sub(_counted(i.extent), 1), i.step)) if isinstance(i, n.Span) else i
                for end in (first, last):
                    inside = build.logical_and(inside, build.logical_and(build.compare("ge", end, 0), build.compare("lt", end, extent)))
            verdict = decided(inside, Facts.at(made, path), "every element that is read is in the array", "an element is read that is not in the array")
            if not verdict:
                return verdict
    return proved("each element is filled (counted out), and no other is read")


def _counted(extent: int | n.Expr) -> n.Expr:
    return build.const(extent) if isinstance(extent, int) else extent


def _met(program: n.Program, site: Site, context: Context) -> Verdict:
    item, i = _item(site), int(site.path[-1])
    if item.meet:
        return everyone_arrives(program, site, context)
    made = block_at(item.optimize(program, site).program, shifted(site.path, int(site.path[1]), 1))
    name = fresh_at(program, site.path, "held")
    first = next((k for k in range(i + 1, len(made)) if mentioned(made[k], name)), len(made))
    return between_barriers(program, site, made[i:first])


@dataclass(frozen=True)
class FillByThreads(Pass):
    """`value` is the element at `at0`, `at1`, .. of an array of `shape`, which `loops` (that over the threads, `thread 256`, then each thread's own)
    fill at `place`, written in their counters `turn0`, `turn1`, ..; `meet`: barriers come in before the first read and, in a loop, behind the last;
    otherwise those that are there do."""

    intent: ClassVar[str] = "stage-shared"
    catalogue: ClassVar[tuple[int, ...]] = (2,)
    claim: ClassVar[str] = "Each element is read, and converted, once for the whole CTA."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P925", "validity", "aliasing", "what the elements are made of is not written while they are kept", _unchanged),
        Precondition("KIR-P926", "validity", "shape", "the threads fill every element of the array, and no other is read", _reached),
        Precondition("KIR-P927", "validity", "pipeline", "all threads meet before elements are read and before they are replaced", _met))

    value: str = ""
    shape: tuple[int, ...] = ()
    loops: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    meet: bool = False

    def pattern(self, program: n.Program, path: Path) -> n.Expr | None:
        """The element at the holes' place, which is the same for all threads."""
        at, team = counters(len(self.shape), "at"), team_at(program, path)
        made = expression_at(program, path, self.value, at)
        if made is None or team is None or isinstance(made.type, TileType) or not is_pure(made) or any(v.name not in names_read(made) for v in at):
            return None
        if depends(made, varying(team.loop)[path[2:]]):
            return None
        return renamed(made, at, [hole(k) for k in range(len(at))])

    def nest(self, program: n.Program, path: Path) -> tuple[Loops, tuple[n.Expr, ...]] | None:
        """The loops, that over the threads first, with `turn0`, .. for counters, and the place that they fill."""
        found, team = loops_of(program, path, self.loops), team_at(program, path)
        turns = counters(len(self.loops), "turn")
        place = tuple(expression_at(program, path, text, turns) for text in self.place)
        if not found or team is None or found[0][::2] != ("thread", team.threads) or len(place) != len(self.shape):
            return None
        if not all(isinstance(e, n.Expr) and e.type == I32 and names_read(e) <= {v.name for v in turns} for e in place):
            return None
        return found, tuple(e for e in place if e is not None)

    def memory(self, pattern: n.Expr, name: str) -> n.Buffer:
        """The array."""
        dtype = dtype_of(pattern.type)
        return n.Buffer(name, dtype, tuple(map(build.const, self.shape)), "shared")

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement of a thread from which on such elements are read; which, and who brings which, is given."""
        if not (self.value and self.shape and self.loops) or not isinstance(node, n.Stmt) or team_at(program, path) is None:
            return None
        pattern = self.pattern(program, path)
        if pattern is None or self.nest(program, path) is None:
            return Miss("there are no such elements here that are the same for all threads, or no such loops")
        rest = block_at(program, path)[int(path[-1]):]
        change = Change(pattern, self.memory(pattern, "%held"))
        if set(bound_names(rest)) & names_read(pattern) or all(rewritten(s, change) == s for s in rest):
            return Miss("nothing that follows reads such an element")
        if self.meet and any(is_call(s, "barrier") for s in block_at(program, path)):
            return Miss("its threads synchronize already")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """An array, each thread's stores to it, and reads of it in the rest of the block."""
        kernel, i, team = kernel_of(program, site.path), int(site.path[-1]), team_at(program, site.path)
        pattern, nest = matched(self.pattern(program, site.path)), matched(self.nest(program, site.path))
        assert team is not None
        taken = names_in(program, kernel)
        made = self.memory(pattern, fresh("held", taken))
        own = recounted(nest[0], [team.thread, *(fresh_var("turn", taken) for _ in nest[0][1:])])[1:]
        place = [renamed(e, [v for _, v, _ in nest[0]], [team.thread, *(v for _, v, _ in own)]) for e in nest[1]]
        value: n.Expr = substitute(pattern, {hole(k).name: e for k, e in enumerate(place)})
        fill, change = built(own, build.region(made, *place), value), Change(pattern, made)
        trailing: n.Block = (barrier(),) if self.meet and is_in_loop(program, site.path) else ()
        head: n.Block = (fill, barrier()) if self.meet else (fill,)
        out = edit_block(program, site.path, lambda x: (*x[:i], *head, *(rewritten(s, change) for s in x[i:]), *trailing))
        return Rewritten(with_shared(out, team, made), shifted(site.path, int(team.path[1]), 1))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a thread's stores to an array that is only read, behind a barrier in the same block, and whose elements follow from their place."""
        team = team_at(program, path)
        nest = _stores(node, team) if team is not None else None
        if team is None or nest is None or (isinstance(node, n.Store) and is_one_element_per_thread(node, team)):
            return None
        b = nest.store.at.buffer
        home = declaration(program, path, b.name)
        if b.space != "shared" or home is None or home.init is not None or b.layout is not None or b.strides is not None or b.align:
            return Miss(f"'{b.name}' has a layout of its own, or a value")
        shape = tuple(build.int_value(d) or 0 for d in b.shape)
        at = counters(len(shape), "at")
        value = by_place(nest, at)
        if value is None or not is_pure(value) or any(v.name not in names_read(value) for v in at) or depends(value, varying(team.loop)[path[2:]]):
            return Miss("what is stored does not follow from where it is stored")
        block, i = block_and_index(program, path)
        back = Back(b, renamed(value, at, [hole(k) for k in range(len(at))]))
        after = block[i + 1:]
        j = next((k for k in range(i + 1, len(block)) if is_call(block[k], "barrier")), None)
        read = sum(mentioned(s, b.name) for s in block[j + 1:]) if j is not None else 0
        if not read or read + 1 != uses(program, path, b.name) or any(mentioned(rewritten(s, back), b.name) for s in after) or (
                set(bound_names(after)) & names_read(value)):
            return Miss(f"'{b.name}' is not only read, behind a barrier that follows")
        others = {x.at.buffer.name if isinstance(x, n.Load | n.Store) else "" for s in block for x in walk(s) if isinstance(x, n.Load | n.Store)
                  and x.at.buffer.space == "shared"} - {b.name}
        ends = not is_in_loop(program, path) or is_call(block[-1], "barrier")
        meet = not others
        if not ends or (meet and (j != i + 1 or sum(is_call(s, "barrier") for s in block) != (2 if is_in_loop(program, path) else 1))):
            return Miss("its threads synchronize elsewhere than before the first read and after the last one")
        turns = counters(len(nest.loops), "turn")
        place = [renamed(e, [v for _, v, _ in nest.loops], turns) for e in nest.store.at.index if isinstance(e, n.Expr)]
        item = FillByThreads(text_of(value), shape, texts_of(nest.loops), tuple(map(text_of, place)), meet)
        return Site(path, item, {"change": back, "buffer": b})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each element where it comes from."""
        (block, i), b, change = block_and_index(program, site.path), matched_as(site.captures["buffer"], n.Buffer), site.captures["change"]
        rest = tuple(rewritten(s, change) for s in block[i + 1:] if not (self.meet and is_call(s, "barrier")))
        out, home = without_shared(splice(program, site.path, rest, 0, None), str(site.path[0]), b.name)
        return Rewritten(out, shifted(site.path, home, -1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The bytes of the array."""
        pattern = self.pattern(program, site.path)
        return Effect() if pattern is None else Effect(shared_bytes=math.prod(self.shape) * dtype_of(pattern.type).bytes)


def _stores(s: Place, team: ThreadTeam) -> Nest | None:
    """The nest, with the loop over the threads outermost, of what a thread stores at a statement."""
    if not isinstance(s, n.For | n.Store):
        return None
    return nest_at(counting(team.thread, team.threads, (s,), "thread"))
