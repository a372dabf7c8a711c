"""Gives each CTA counters of its own in shared memory, and adds them to the global ones once at the end.

pipeline: `privatize-atomics{buffer=H}@main/threads`

```diff
 kir 1
 program histogram
   size N: i32
   in X: i32[N]
   inout H: i32[256]
 kernel main grid (b: ceildiv(N, 1024)) threads 128
+  shared H_own: i32[256]
   @threads for t in 0..128 parallel thread
+    for i in t..256 step 128
+      H_own[i] = 0
+    barrier()
     for j in t..1024 step 128
       if b * 1024 + j < N
-        atomic_add(&H[X[b * 1024 + j] & 255], 1)
+        atomic_add(&H_own[X[b * 1024 + j] & 255], 1)
+    barrier()
+    for i_1 in t..256 step 128
+      atomic_add(&H[i_1], H_own[i_1])
```
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal, get_args

from kir.analysis.facts import Facts
from kir.analysis.order import at_most
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.paths import block_paths
from kir.ir.printer import region_text
from kir.ir.types import I32
from kir.ir.visit import statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import fresh, kernel_of, node_at
from kir.rewrite.match import counting, edited, fresh_var, matched, matched_as, names_at, node_as, params_as, regions_of, within_shared
from kir.rewrite.match.thread_team import ThreadTeam, barrier, is_call, whole_team

Rounds = Literal["steps", "rounds", "branch", "each"]
ROUNDS: tuple[Rounds, ...] = get_args(Rounds)
Skip = Literal["", "gt", "ne"]
SKIPS: tuple[Skip, ...] = get_args(Skip)

NEUTRAL = {"atomic_add": "zero", "atomic_or": "zero", "atomic_xor": "zero", "atomic_and": "ones", "atomic_max": "least", "atomic_min": "most"}
"""What a counter starts from, by the operation that updates it."""


def neutral(fn: str, b: n.Buffer) -> n.Const | None:
    """The value that an operation leaves others unchanged by."""
    d, kind = b.dtype, NEUTRAL[fn]
    if kind == "zero":
        return build.const(0, d)
    if not d.is_integer:
        return build.const(-math.inf if kind == "least" else math.inf, d) if kind in ("least", "most") else None
    return build.const({"ones": -1, "least": d.range[0], "most": d.range[1]}[kind], d)


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    item, kernel = params_as(site, PrivatizeAtomics), kernel_of(program, site.path)
    used = matched(used_alone(node_at(program, site.path), item.buffer, item.count))
    held = [b.buffer for b in kernel.body if isinstance(b, n.Alloc) and b.buffer.space == "shared"]
    total = sum(math.prod(build.int_value(d) or 0 for d in b.shape) * b.dtype.bytes for b in (*held, item.own(used[0], "%own")))
    return within_shared(total, context, "fewer counters")


def _everyone_stays(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    if any(isinstance(s, n.Jump) and s.kind == "return" for s in statements(loop.body)):
        return refuted("some threads return early, and would miss the barrier", "a thread that has returned clears and adds nothing",
                       needs="a branch instead of the return")
    return proved("all threads reach the end of the loop")


def _exact(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, PrivatizeAtomics)
    used = matched(used_alone(node_at(program, site.path), item.buffer, item.count))
    if used[0].dtype.is_float and used[1] == "atomic_add":
        return unknown("sums of floats are rounded in another order", needs="integers, or a tolerance that allows it")
    return proved("the order of updates does not matter")


def _nothing_lost(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, PrivatizeAtomics)
    if not item.skip:
        return proved("all counters are added")
    calls = [x for x in walk(node_at(program, site.path)) if isinstance(x, n.Call) and x.fn in NEUTRAL and isinstance(x.args[0], n.Region)
             and x.args[0].buffer.name == item.buffer]
    least = [build.int_value(c.args[1]) if isinstance(c.args[1], n.Expr) else None for c in calls]
    if any(c.fn not in ("atomic_add", "atomic_or", "atomic_xor") for c in calls):
        return refuted("a counter of 0 is not always one that nothing was done to", f"{calls[0].fn} starts from another value", attempt="skip=\"\"")
    if item.skip == "gt" and not all(v is not None and v >= 0 for v in least):
        return refuted("a counter may fall below 0, and would not be added", "what is added is no literal from 0 up", attempt="skip=ne")
    return proved("a counter that is not added is 0")


def _first_ones(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, PrivatizeAtomics)
    b = matched(used_alone(node_at(program, site.path), item.buffer, item.count))[0]
    if not item.count:
        return proved("each element has a counter")
    if item.bound:
        if at_most(matched_as(b.shape[0], n.Expr), build.const(item.count), Facts.at(program, site.path)):
            return proved("there is room for a counter of each element")
        return unknown(f"'{b.name}' may have more than {item.count} elements", needs="a fact that says how many there are at most")
    for path, s in block_paths(node_as(program, site.path, n.For).body, (*site.path, "body")):
        known = Facts.at(program, path)
        for at in (x.call.args[0] for x in (s,) if isinstance(x, n.Eval)):
            if isinstance(at, n.Region) and at.buffer.name == b.name:
                place = known.domain(known.expanded(matched_as(at.index[0], n.Expr)))
                if place.lo is None or place.hi is None or place.lo < 0 or place.hi >= item.count:
                    return unknown(f"an element that is updated may have no counter: {region_text(at)}", needs=f"places from 0 to {item.count - 1}")
    least = Facts.at(program, site.path).domain(matched_as(b.shape[0], n.Expr)).lo
    if not item.skip and (least is None or least < item.count):
        return unknown(f"'{b.name}' may have fewer elements than there are counters, and all are added", attempt="skip=ne")
    return proved("only elements that have a counter are updated")


@dataclass(frozen=True)
class PrivatizeAtomics(Pass):
    """`buffer` is the array of counters in global memory; without it, one site for each. `clear` and `flush` say how the threads go through the
    counters: in `steps` of their number, in `rounds` of all of them, by a `branch` of as many threads as there are counters, or one `each`; cleared with
    their declaration, they are `declared`, as an array before the threads do anything, `whole`. `skip`: counters are added only where they are greater
    than 0 (`gt`), or not 0 (`ne`). `count`: only so many elements, the first ones, have counters (0: all). `bound`: there is room for `count` counters, of
    which as many as there are elements are cleared and added. `named`: what is added has a name first."""

    intent: ClassVar[str] = "atomics"
    catalogue: ClassVar[tuple[int, ...]] = (49,)
    claim: ClassVar[str] = "Updates meet in the CTA's own memory, and global memory sees each counter once a CTA."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P495", "validity", "hardware", "shared memory holds the counters", _fits),
        Precondition("KIR-P496", "validity", "pipeline", "all threads reach the barriers", _everyone_stays),
        Precondition("KIR-P940", "validity", "numerics", "a counter that is not added has counted nothing", _nothing_lost),
        Precondition("KIR-P952", "validity", "shape", "each element that is updated has a counter, and each counter an element", _first_ones),
        Precondition("KIR-P497", "profit", "numerics", "the order of the updates does not change the result", _exact))

    buffer: str = ""
    clear: Literal["steps", "rounds", "branch", "each", "declared", "whole"] = "steps"
    flush: Literal["steps", "rounds", "branch", "each"] = "steps"
    skip: Skip = ""
    count: int = 0
    bound: bool = False
    named: bool = False

    def own(self, b: n.Buffer, name: str) -> n.Buffer:
        """The counters of a CTA."""
        return n.Buffer(name, b.dtype, (build.const(self.count),) if self.count else b.shape, "shared")

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over all threads that only updates an array of known size, by one operation whose results nobody keeps."""
        if not isinstance(node, n.For) or len(path) != 2 or whole_team(program, path, node) is None:
            return None
        names = dict.fromkeys(a.buffer.name for x in walk(node) if isinstance(x, n.Call) and x.fn in NEUTRAL
                              for a in x.args if isinstance(a, n.Region) and a.buffer.space == "global")
        team = matched(whole_team(program, path, node))
        found = [b for b in names if self.buffer in ("", b) and (used := used_alone(node, b, self.count)) is not None and all(
            self.bound or _fits_form(form, self.count or build.int_value(used[0].shape[0]) or 0, team.threads) for form in (self.clear, self.flush))]
        if self.named and self.flush == "each":
            return Miss("where each thread adds one counter nothing is named for it")
        if self.bound and (not self.count or self.clear not in ("steps", "rounds") or self.flush not in ("steps", "rounds")):
            return Miss("a number of counters that is not known is gone through in steps or rounds")
        return tuple(Site(path, replace(self, buffer=b)) for b in found) or (Miss("an array is used otherwise, or its size is not known") if names else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Cleared, counted and added counters."""
        loop, top, taken = node_at(program, site.path), int(site.path[1]), names_at(program, site.path)
        team = whole_team(program, site.path, loop) if isinstance(loop, n.For) else None
        assert isinstance(loop, n.For) and team is not None
        used = matched(used_alone(loop, self.buffer, self.count))
        old, fn = used
        own = self.own(old, fresh(f"{old.name}_own", taken))
        start, ahead = matched(neutral(fn, old)), 1 + (self.clear == "whole")

        first, second = (fresh_var("i", taken, team.thread.of) for _ in range(2))
        by_threads, length = self.clear not in ("declared", "whole"), old.shape[0] if self.bound else own.shape[0]
        cleared = _gone_through(self.clear, team, length, first, lambda i: (n.Store(build.region(own, i), start),)) if by_threads else None
        clear = () if cleared is None else (cleared, barrier())
        count = fresh("count", taken) if self.named else ""
        flush = _gone_through(self.flush, team, length, second, lambda i: self._added(fn, old, own, count, i))

        def leave(_: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, n.Call) and x.fn == fn and isinstance(x.args[0], n.Region) and x.args[0].buffer.name == old.name:
                return replace(x, args=(n.Region(own, x.args[0].index), *x.args[1:]))
            return x
        counted = tuple(transform(s, leave) for s in loop.body)
        made = replace(loop, body=(*clear, *counted, barrier(), flush))
        hints: dict[Path, tuple[Path, ...]] = {(*site.path, "body", k): ((site.path[0], top + ahead, "body", k + len(clear)),) for k in range(len(counted))}
        hints[site.path] = ((site.path[0], top + ahead),)
        counters = n.Alloc(own, start if self.clear == "declared" else None)
        return edited(program, site.path, (counters, *((n.Store(n.Region(own), start),) if self.clear == "whole" else ()), made), at=ahead, hints=hints)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over all threads that ends by adding an array of shared memory to one in global memory."""
        team = whole_team(program, path, node) if isinstance(node, n.For) and len(path) == 2 else None
        if not isinstance(node, n.For) or team is None or not path[1] or len(node.body) < 3:
            return None
        body, top = kernel_of(program, path).body, int(path[1])
        before = body[top - 1]
        at_once = isinstance(before, n.Store) and before.at == n.Region(before.at.buffer) and before.mask is None and top > 1
        alloc = body[top - 2] if at_once else before
        if not (isinstance(alloc, n.Alloc) and alloc.buffer.space == "shared" and is_call(node.body[-2], "barrier")):
            return None
        own = alloc.buffer
        last = next((x for x in walk(node.body[-1]) if isinstance(x, n.Call) and x.fn in NEUTRAL), None)
        if last is None or not isinstance(last.args[0], n.Region) or len(own.shape) != 1 or neutral(last.fn, own) is None:
            return None
        place, start = last.args[0].buffer, matched(neutral(last.fn, own))
        count = (build.int_value(own.shape[0]) or 0) if place.shape != own.shape else 0
        called = next((x.names[0] for x in walk(node.body[-1]) if isinstance(x, n.Let)), "")
        found, length = None, own.shape[0]
        for length in (own.shape[0], *(place.shape if count and len(place.shape) == 1 and build.int_value(place.shape[0]) is None else ())):
            adding = {skip: partial(PrivatizeAtomics(skip=skip, named=bool(called))._added, last.fn, place, own, called) for skip in SKIPS}
            found = next(((form, skip) for form in ROUNDS for skip in SKIPS if (form != "each" or not called) and node.body[-1] == _gone_through(
                form, team, length, _counter(node.body[-1]), adding[skip])), None)
            if found is not None:
                break
        if found is None:
            return Miss(f"the counters are not all added to '{place.name}' at the end")
        bound = length is not own.shape[0]
        if at_once and (alloc.init is not None or before != replace(n.Store(n.Region(own), start), label=before.label, origin=before.origin)):
            return Miss("the counters do not start from nothing")
        if at_once:
            return Site(path, PrivatizeAtomics(place.name, "whole", *found, count, named=bool(called)), {"own": own.name, "cleared": 0, "ahead": 2})
        if alloc.init is not None:
            if alloc.init != start:
                return Miss("the counters do not start from nothing")
            return Site(path, PrivatizeAtomics(place.name, "declared", *found, count, named=bool(called)), {"own": own.name, "cleared": 0, "ahead": 1})
        if len(node.body) < 5 or not is_call(node.body[1], "barrier"):
            return None
        clear = next((form for form in ROUNDS if node.body[0] == _gone_through(
            form, team, length, _counter(node.body[0]), lambda i: (n.Store(build.region(own, i), start),))), None)
        return Miss("the counters are not all cleared first") if clear is None else Site(
            path, PrivatizeAtomics(place.name, clear, *found, count, bound, bool(called)), {"own": own.name, "cleared": 2, "ahead": 1})

    def _added(self, fn: str, counters: n.Buffer, own: n.Buffer, called: str, i: n.Expr) -> n.Block:
        """One of the CTA's counters added to that of all."""
        held = n.Load(build.region(own, i))
        count: n.Expr = n.Var(called, own.dtype) if self.named else held
        call = n.Eval(build.call(fn, build.region(counters, i), count))
        added = n.If(build.compare(self.skip, count, build.const(0, own.dtype)), (call,)) if self.skip else call
        return (n.Let((called,), held), added) if self.named else (added,)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Updates of global memory."""
        loop = node_as(program, site.path, n.For)
        place = matched_as(next(x.args[0] for x in walk(loop.body[-1]) if isinstance(x, n.Call) and x.fn in NEUTRAL), n.Region)

        def leave(_: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, n.Call) and x.fn in NEUTRAL and isinstance(x.args[0], n.Region) and x.args[0].buffer.name == site.captures["own"]:
                return replace(x, args=(n.Region(place.buffer, x.args[0].index), *x.args[1:]))
            return x
        made = replace(loop, body=tuple(transform(s, leave) for s in loop.body[site.captures["cleared"]:-2]))
        ahead: int = site.captures["ahead"]
        return edited(program, site.path, (made,), -ahead, at=-ahead)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The counters come to shared memory."""
        used = used_alone(node_at(program, site.path), self.buffer, self.count)
        return Effect(shared_bytes=(self.count or build.int_value(used[0].shape[0]) or 0) * used[0].dtype.bytes) if used else Effect()


def _fits_form(form: str, count: int, threads: int) -> bool:
    """Whether so many counters are gone through by threads in a form."""
    return {"branch": count < threads, "each": count == threads, "rounds": count >= threads}.get(form, True)


def _counter(s: n.Stmt) -> n.Var:
    """The variable of a loop; any other where a statement is none."""
    return s.var if isinstance(s, n.For) else n.Var("%none", I32)


def _gone_through(form: str, team: ThreadTeam, count: n.Expr, var: n.Var, each: Callable[[n.Expr], n.Block]) -> n.Stmt:
    """What is done for each of `count` counters, each by one of the threads."""
    t, size = team.thread, build.int_value(count) or 0
    if form == "steps":
        return n.For(var, t, count, build.const(team.threads), each(var))
    if form == "rounds":
        rounds = build.const(size // team.threads) if size and size % team.threads == 0 else build.ceildiv(build.sub(count, t), team.threads)
        return counting(var, rounds, each(build.add(build.mul(var, team.threads), t)))
    return n.If(build.compare("lt", t, count), each(t)) if form == "branch" else each(t)[0]


def used_alone(node: Place, name: str, count: int = 0) -> tuple[n.Buffer, str] | None:
    """The array and the one operation that updates it, if that is all that happens to it, and it has a known length or only the first `count` matter."""
    calls = [x for x in walk(node) if isinstance(x, n.Call) and x.fn in NEUTRAL and isinstance(x.args[0], n.Region) and x.args[0].buffer.name == name]
    evals = [x.call for x in walk(node) if isinstance(x, n.Eval)]
    places = regions_of(node, name)
    if not calls or len(places) != len(calls) or len({c.fn for c in calls}) != 1 or any(not any(c is e for e in evals) for c in calls):
        return None
    b = places[0].buffer
    if len(b.shape) != 1 or not (count or build.int_value(b.shape[0])) or b.layout is not None or any(c.attrs for c in calls):
        return None
    return (b, calls[0].fn) if neutral(calls[0].fn, b) is not None else None
