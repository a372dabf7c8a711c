"""Lets one array of shared memory serve a second purpose, under its own name, when the first one is over.

pipeline: `reuse-array{buffer=A}@main/B`

```diff
 kir 1
 program twice
   size M: i32
   in X: f32[M, 64]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 64
   shared A: f32[64]
-  @B shared B: f32[64]
   for t in 0..64 parallel thread
     A[t] = X[row, t]
     barrier()
     let x = A[63 - t]
     barrier()
-    B[t] = x * 2.0
+    A[t] = x * 2.0
     barrier()
-    Y[row, t] = B[(t + 1) % 64]
+    Y[row, t] = A[(t + 1) % 64]
```
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.measures.purposes import fills_first, is_of_tiles, purposes, unused_columns
from kir.ir.visit import buffers_named, names_read, once, substitute, substitute_buffers, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import fresh, kernel_of, names_in, node_at, replace_kernel
from kir.rewrite.match import loads_of, matched, matched_as, params_as, regions_of, span_of
from kir.rewrite.match.local_buffers import byte_count, sizes
from kir.rewrite.match.thread_team import ThreadTeam, barrier, is_call, whole_team

from ..threads._per_thread_values import Numbers, numbers

MOST_ELEMENTS = 1 << 17
"""Accesses that are gone through one by one, at most."""


def _parts(program: n.Program, site: Site) -> tuple[n.Buffer, str, ThreadTeam]:
    """The array that goes, the name of the one that takes its place, and the threads."""
    node, item = node_at(program, site.path), site.params
    team = matched(_team(program, kernel_of(program, site.path)))
    assert isinstance(node, n.Alloc) and isinstance(item, ReuseArray)
    return node.buffer, item.buffer, team


def _over(program: n.Program, site: Site, context: Context) -> Verdict:
    if _team(program, kernel_of(program, site.path)) is None:
        return _over_tiles(program, site)
    b, home, team = _parts(program, site)
    block = team.loop.body
    second, first = span_of(block, b.name), span_of(block, home)
    if first is None or second is None:
        return proved("one of them is not used")
    if first[1] < second[0]:
        return _handed_over(program, site)
    return refuted(f"'{home}' is still in use when '{b.name}' is", f"statement {first[1]} of the loop over threads", needs="lifetimes that do not overlap")


def _handed_over(program: n.Program, site: Site) -> Verdict:
    b, home, team = _parts(program, site)
    block = team.loop.body
    second, first = matched(span_of(block, b.name)), matched(span_of(block, home))
    item, used = params_as(site, ReuseArray), block[first[1]]
    ends = item.meet >= 0 or (isinstance(used, n.For) and is_call(used.body[-1], "barrier"))
    if ends or any(is_call(s, "barrier") for s in block[first[1] + 1:second[0]]):
        return proved("all threads meet between the last use of one and the first of the other")
    return refuted(f"a thread may write '{b.name}' while another one still uses '{home}'", "no barrier stands between the two",
                   needs="a barrier between them")


def _over_tiles(program: n.Program, site: Site) -> Verdict:
    kernel, b, home = kernel_of(program, site.path), matched_as(node_at(program, site.path), n.Alloc).buffer, params_as(site, ReuseArray).buffer
    second, first = _used(kernel, b.name), _used(kernel, home)
    if first and second and first[-1] >= second[0]:
        return refuted(f"'{home}' is still in use when '{b.name}' is", f"statement {first[-1]} of the kernel", needs="lifetimes that do not overlap")
    return proved("one is used before the other, whose threads the compiler lets meet")


def _written_first(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    if _team(program, kernel) is None:
        b = matched_as(node_at(program, site.path), n.Alloc).buffer
        spare = unused_columns(kernel.body, b)
        if all(fills_first(kernel.body[k], b, spare) for k in _used(kernel, b.name)[:1]):
            return proved("all of it is written before any of it is read")
        return unknown(f"whether all of '{b.name}' is written before it is read is not known", needs="a copy that fills it first")
    b, _, team = _parts(program, site)
    try:
        missing = _Elements(b, team).missing()
    except _Undecided as bad:
        return unknown(f"whether all of '{b.name}' is written before it is read is not known: {bad}", needs="places that depend on the thread alone")
    if missing is not None:
        return refuted(f"'{b.name}' is read where nothing has been written to it", f"{b.name}{list(missing)}", needs="elements of its own")
    return proved("each element is written before it is read")


@dataclass(frozen=True)
class ReuseArray(Pass):
    """`buffer` is the array that is used instead, from statement `at` of the loop over threads on (of the kernel, where it is one of tiles). `meet`
    is the statement before which a barrier comes in, -1 for none."""

    intent: ClassVar[str] = "alias-shared-lifetimes"
    catalogue: ClassVar[tuple[int, ...]] = (4,)
    claim: ClassVar[str] = "A CTA needs less shared memory, so that more of them fit on a processor."
    provides: ClassVar[tuple[str, ...]] = ()
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P913", "validity", "storage", "the array's first purpose is over, for all threads, when the second begins", _over),
        Precondition("KIR-P915", "validity", "storage", "no element is read before it was written anew", _written_first))

    buffer: str = ""
    at: int = -1
    meet: int = -1

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an array of shared memory, or a fragment of a kernel of tiles; without `buffer`, one site for each array like it that is declared before it."""
        kernel = kernel_of(program, path) if isinstance(node, n.Alloc) else None
        if not (isinstance(node, n.Alloc) and kernel is not None and _plain(node, kernel) and len(path) == 2):
            return None
        team = _team(program, kernel)
        if team is None:
            return self._of_tiles(kernel, int(path[1]), path, node.buffer)
        span = span_of(team.loop.body, node.buffer.name)
        if span is None or self.at not in (-1, span[0]):
            return Miss("it comes into use elsewhere")
        if self.meet != -1 and not 0 < self.meet <= span[0]:
            return Miss("the barrier would not stand before its first use")
        homes = [s.buffer.name for s in kernel.body[:int(path[1])] if isinstance(s, n.Alloc) and _plain(s, kernel) and self.buffer in ("", s.buffer.name)
                 and replace(s.buffer, name=node.buffer.name) == node.buffer]
        spans = {home: span_of(team.loop.body, home) for home in homes}
        return tuple(Site(path, ReuseArray(home, span[0], self.meet)) for home, first in spans.items()
                     if self.meet == -1 or (first is not None and first[1] < self.meet)) or None

    def _of_tiles(self, kernel: n.Kernel, i: int, path: Path, b: n.Buffer) -> Found:
        """In a kernel of tiles, where `at` is the kernel's own statement from which on the other array serves."""
        used = _used(kernel, b.name) if is_of_tiles(kernel.body) else []
        if not used or self.at not in (-1, used[0] - 1) or self.meet != -1:
            return Miss("it comes into use elsewhere") if used else None
        homes = [s.buffer.name for s in kernel.body[:i] if isinstance(s, n.Alloc) and _plain(s, kernel) and self.buffer in ("", s.buffer.name)
                 and replace(s.buffer, name=b.name) == b]
        return tuple(Site(path, ReuseArray(home, used[0] - 1)) for home in homes) or None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The other array's name wherever this one's stood, whose declaration goes."""
        b, home = matched_as(node_at(program, site.path), n.Alloc).buffer, self.buffer
        kernel, i = _with_meeting(program, site), int(site.path[1])
        body = tuple(substitute_buffers(s, {b.name: replace(b, name=home)}) for k, s in enumerate(kernel.body) if k != i)
        at = next(k for k, s in enumerate(body) if isinstance(s, n.Alloc) and s.buffer.name == home)
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=body)), (site.path[0], at))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an array that is written anew after a barrier: the last statements from which on it could be another, back to one from which on
        each element is written before it is read."""
        kernel = kernel_of(program, path) if isinstance(node, n.Alloc) else None
        if not (isinstance(node, n.Alloc) and kernel is not None and _plain(node, kernel) and len(path) == 2):
            return None
        team = _team(program, kernel)
        if team is None and is_of_tiles(kernel.body):
            return next((Site(path, ReuseArray(node.buffer.name, k)) for k in reversed(purposes(kernel.body, node.buffer))), None)
        if team is None or not any(is_call(s, "barrier") for s in team.loop.body):
            return None
        block, name, out = team.loop.body, node.buffer.name, list[Site]()
        used = [k for k, s in enumerate(block) if name in buffers_named(s)]
        for last, k in reversed(list(pairwise(used))):
            if _writes_first(block[k], name):
                spare = [b for b in range(last + 1, k) if is_call(block[b], "barrier") and _orders_nothing(team.loop, b, name)]
                out += [Site(path, ReuseArray(name, k - 1, b)) for b in spare] + [Site(path, ReuseArray(name, k))]
                with suppress(_Undecided):
                    if _Elements(node.buffer, team).missing(k) is None:
                        break  # what comes before goes when this has gone
        return tuple(out) or None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """An array of its own from a statement on."""
        kernel, i = kernel_of(program, site.path), int(site.path[1])
        home = matched_as(kernel.body[i], n.Alloc)
        own = replace(home.buffer, name=fresh(home.buffer.name, names_in(program, kernel)))
        if _team(program, kernel) is None:
            apart = tuple(substitute_buffers(s, {home.buffer.name: own}) if k >= self.at else s for k, s in enumerate(kernel.body))
            return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=(*apart[:i + 1], n.Alloc(own), *apart[i + 1:]))), (site.path[0], i + 1))
        team = matched(_team(program, kernel))
        block = team.loop.body if self.meet < 0 else (*team.loop.body[:self.meet], *team.loop.body[self.meet + 1:])
        made = (*block[:self.at], *(substitute_buffers(s, {home.buffer.name: own}) for s in block[self.at:]))
        body = tuple(replace(s, body=made) if s is team.loop else s for s in kernel.body)
        body = (*body[:i + 1], n.Alloc(own), *body[i + 1:])
        return Rewritten(replace_kernel(program, kernel.name, replace(kernel, body=body)), (site.path[0], i + 1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """Its bytes are saved."""
        b = matched_as(node_at(program, site.path), n.Alloc).buffer
        need = byte_count(b) if b.space == "shared" else None
        return Effect(shared_bytes=None if need is None else -need)


def _with_meeting(program: n.Program, site: Site) -> n.Kernel:
    """The kernel with the barrier that the step brings in."""
    kernel, item = kernel_of(program, site.path), site.params
    assert isinstance(item, ReuseArray)
    if item.meet < 0:
        return kernel
    team = matched(_team(program, kernel))
    block = (*team.loop.body[:item.meet], barrier(), *team.loop.body[item.meet:])
    return replace(kernel, body=tuple(replace(s, body=block) if s is team.loop else s for s in kernel.body))


def _touched(s: n.Stmt) -> tuple[frozenset[str], frozenset[str]]:
    """The memory that a statement may write, and all that it names, but for the thread's own."""
    found = tuple(walk(s))
    written = {x.at.buffer.name for x in found if isinstance(x, n.Store)} | {
        a.buffer.name for x in found if isinstance(x, n.Call) for a in x.args if isinstance(a, n.Region)} | {
        x.at.buffer.name for x in found if isinstance(x, n.Address)} | {x.dst.buffer.name for x in found if isinstance(x, n.Copy)}
    own = {x.buffer.name for x in found if isinstance(x, n.Region) and x.buffer.space in ("register", "fragment")}
    return frozenset(written - own), frozenset({x.buffer.name for x in found if isinstance(x, n.Region)} - own)


def _orders_nothing(loop: n.For, at: int, name: str) -> bool:
    """Whether no thread touches, between a barrier and the next one, memory that another one touches since the barrier before, unless it is
    read by both, or the array called `name`."""
    block = loop.body

    def touched(stmts: Iterable[n.Stmt]) -> tuple[set[str], set[str]]:
        found = [once(s, "_touched", partial(_touched, s)) for s in stmts]
        return {x for written, _ in found for x in written} - {name}, {x for _, named in found for x in named} - {name}

    def until(stmts: Iterable[n.Stmt]) -> list[n.Stmt]:
        out: list[n.Stmt] = []
        for s in stmts:
            if is_call(s, "barrier"):
                break
            out.append(s)
        return out
    if once(loop, "_is_special", lambda: any(isinstance(x, (n.Opaque, n.Hole, n.Jump, n.Mma)) for s in block for x in walk(s))):
        return False
    (wrote, saw), (writes, sees) = touched(until(reversed(block[:at]))), touched(until(block[at + 1:]))
    return not (wrote & sees or writes & saw)


def _plain(s: n.Alloc, kernel: n.Kernel) -> bool:
    """Whether it is an array of shared memory, or of registers that threads hold together, that begins with no value and has no layout."""
    held = s.buffer.space == "shared" or (s.buffer.space == "fragment" and bool(s.buffer.shape) and is_of_tiles(kernel.body))
    return held and s.init is None and s.buffer.dtype.kind != "token" and s.buffer.strides is None and sizes(s.buffer) is not None


def _team(program: n.Program, kernel: n.Kernel) -> ThreadTeam | None:
    """The kernel's one loop over threads, when nothing but memory of the CTA is declared beside it."""
    found = [(k, s) for k, s in enumerate(kernel.body) if not isinstance(s, n.Alloc)]
    return whole_team(program, (kernel.name, found[0][0]), found[0][1]) if len(found) == 1 else None


def _used(kernel: n.Kernel, name: str) -> list[int]:
    """The statements of a kernel that use an array."""
    return [k for k, s in enumerate(kernel.body) if not isinstance(s, n.Alloc) and name in buffers_named(s)]


def _writes_first(s: n.Stmt, name: str) -> bool:
    """Whether a statement stores to an array and does nothing else with it: no update in place."""
    places = regions_of(s, name)
    return bool(places) and len(places) == sum(isinstance(x, n.Store) and x.at.buffer.name == name for x in walk(s))


class _Undecided(Exception):
    """A place or a condition that is not known for each thread."""


class _Whole(Exception):
    """Every element has been written."""


Here = frozenset[int] | None
"""The threads that come to a place; None for all."""


class _Elements:
    """The elements of an array that the threads of a CTA write and read, gone through in the order of the statements."""

    def __init__(self, buffer: n.Buffer, team: ThreadTeam) -> None:
        self.buffer, self.team = buffer, team
        self.shape = tuple(build.int_value(d) or 0 for d in buffer.shape)
        self.written: set[tuple[int, ...]] = set()
        self.values: dict[str, n.Expr] = {}
        """What names stand for, over the number of the thread and the counters of loops."""
        self.left = MOST_ELEMENTS

    def missing(self, start: int = 0) -> tuple[int, ...] | None:
        """An element that is read before any thread has written it, from a statement of the loop over threads on. Raises _Undecided."""
        block = self.team.loop.body
        self.values |= {s.names[0]: s.value for s in block[:start] if isinstance(s, n.Let) and len(s.names) == 1}
        try:
            return self.block(block[start:], {}, None)
        except _Whole:
            return None

    def block(self, block: n.Block, at: Mapping[str, Numbers], here: Here) -> tuple[int, ...] | None:
        """Each statement for each thread that comes to it, before the next one; `at` are the counters of the loops around."""
        for s in block:
            if isinstance(s, n.Let) and len(s.names) == 1:
                self.values[s.names[0]] = s.value
            if self.buffer.name not in buffers_named(s):
                continue
            found = self.stmt(s, at, here)
            if found is not None:
                return found
            if here is None and self.is_whole(s):
                raise _Whole
        return None

    def is_whole(self, s: n.Stmt) -> bool:
        """Whether a statement that all threads come to stores to the whole array, each thread to the element of its number."""
        return (isinstance(s, n.Store) and s.at.buffer.name == self.buffer.name and s.mask is None and s.at.index == (self.team.thread,)
                and self.shape[0] <= self.team.threads)

    def stmt(self, s: n.Stmt, at: Mapping[str, Numbers], here: Here) -> tuple[int, ...] | None:
        """One statement that touches the array."""
        match s:
            case n.If():
                met = self.threads_where(s.cond, at, here)
                if met is None:
                    raise _Undecided("whether a thread comes there depends on more than its number")
                others = frozenset(range(self.team.threads) if here is None else here) - met
                return self.reads((s.cond,), at, here) or self.block(s.then, at, met) or self.block(s.orelse, at, others)
            case n.For() if s.kind in ("serial", "unroll"):
                lo, hi, step = (build.int_value(e) for e in (s.lo, s.hi, s.step))
                if lo is None or hi is None or not step:
                    raise _Undecided(f"the iterations of the loop over '{s.var.name}' are not literal")
                for k in range(lo, hi, step):
                    found = self.block(s.body, {**at, s.var.name: k}, here)
                    if found is not None:
                        return found
                return None
            case n.Store():
                found = self.reads((*s.at.index, s.value, *((s.mask,) if s.mask is not None else ())), at, here)
                if found is None and s.at.buffer.name == self.buffer.name and not (here is None and self.is_whole(s)):
                    met = here if s.mask is None else self.threads_where(s.mask, at, here)
                    if s.mask is None or met is not None:
                        self.written |= set(self.places(s.at, at, met))
                return found
            case n.Let():
                return self.reads((s.value,), at, here)
            case n.Alloc():
                return None if s.init is None else self.reads((s.init,), at, here)
            case _:
                raise _Undecided(f"a {type(s).__name__.lower()} uses it")

    def reads(self, parts: tuple[n.Node, ...], at: Mapping[str, Numbers], here: Here) -> tuple[int, ...] | None:
        """An element that these read and nobody has written."""
        loads = loads_of(parts, self.buffer.name)
        if len(loads) != len(regions_of(parts, self.buffer.name)):
            raise _Undecided("it is used by reference")
        for x in loads:
            met = here if x.mask is None else self.threads_where(x.mask, at, here)
            for place in self.places(x.at, at, here if met is None else met):
                if place not in self.written:
                    return place
        return None

    def threads_where(self, cond: n.Expr, at: Mapping[str, Numbers], here: Here) -> frozenset[int] | None:
        """Which threads come to a place under a further condition; None where that depends on more than their numbers."""
        found = self.evaluated(cond, at)
        return None if found is None else frozenset(t for t in (range(self.team.threads) if here is None else here) if found[t])

    def places(self, r: n.Region, at: Mapping[str, Numbers], here: Here) -> list[tuple[int, ...]]:
        """The one element of a region for each thread that comes to it."""
        index = [self.evaluated(i, at) if isinstance(i, n.Expr) else None for i in r.index]
        known = [i for i in index if i is not None]
        if len(known) < len(index) or (not index and math.prod(self.shape) != 1):
            raise _Undecided("which element it is depends on more than the thread")
        self.left -= self.team.threads
        if self.left < 0:
            raise _Undecided("there are too many accesses to go through")
        if not index:
            return [()]
        found = list(zip(*known, strict=True))
        return found if here is None else [found[t] for t in here]

    def evaluated(self, e: n.Expr, at: Mapping[str, Numbers]) -> Sequence[int] | None:
        """The value of an integer or boolean expression for each thread; None where it depends on more than its number."""
        while used := names_read(e) & self.values.keys():
            e = substitute(e, {name: self.values[name] for name in used})
        found = numbers(e, {**at, self.team.thread.name: range(self.team.threads)})
        return [found] * self.team.threads if isinstance(found, int) else found
