"""Gives each CTA counters of its own in shared memory, and adds them to the global ones once at the end.

before:

```kir
kir 1
program histogram
  size N: i32
  in X: i32[N]
  inout H: i32[256]
kernel main grid (b: ceildiv(N, 1024)) threads 128
  @threads for t in 0..128 parallel thread
    for j in t..1024 step 128
      if b * 1024 + j < N
        atomic_add(&H[X[b * 1024 + j] & 255], 1)
```

pipeline: `privatize-atomics{buffer=H}@main/threads`

after:

```kir
kir 1
program histogram
  size N: i32
  in X: i32[N]
  inout H: i32[256]
kernel main grid (b: ceildiv(N, 1024)) threads 128
  shared H_own: i32[256]
  @threads for t in 0..128 parallel thread
    for i in t..256 step 128
      H_own[i] = 0
    barrier()
    for j in t..1024 step 128
      if b * 1024 + j < N
        atomic_add(&H_own[X[b * 1024 + j] & 255], 1)
    barrier()
    for i_1 in t..256 step 128
      atomic_add(&H[i_1], H_own[i_1])
```
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

from kir.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import edit_block, fresh, kernel_of, names_in, node_at
from kir.target import target

from ._thread_team import barrier, is_call, whole_team

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
    item, kernel = site.params, kernel_of(program, site.path)
    assert isinstance(item, PrivatizeAtomics)
    used = _used(node_at(program, site.path), item.buffer)
    assert used is not None
    held = [b.buffer for b in kernel.body if isinstance(b, n.Alloc) and b.buffer.space == "shared"]
    total = sum(math.prod(build.int_value(d) or 0 for d in b.shape) * b.dtype.bytes for b in (*held, used[0]))
    most = (context.target or target("sm_80")).architecture.shared_per_cta
    if total > most:
        return refuted(f"{total} bytes of shared memory do not fit", f"a CTA has at most {most}", needs="fewer counters")
    return proved(f"{total} of {most} bytes")


def _everyone_stays(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_at(program, site.path)
    assert isinstance(loop, n.For)
    if any(isinstance(s, n.Jump) and s.kind == "return" for s in statements(loop.body)):
        return refuted("some threads return early, and would miss the barrier", "a thread that has returned clears and adds nothing",
                       needs="a branch instead of the return")
    return proved("all threads reach the end of the loop")


def _exact(program: n.Program, site: Site, context: Context) -> Verdict:
    item = site.params
    assert isinstance(item, PrivatizeAtomics)
    used = _used(node_at(program, site.path), item.buffer)
    assert used is not None
    if used[0].dtype.is_float and used[1] == "atomic_add":
        return unknown("sums of floats are rounded in another order", needs="integers, or a tolerance that allows it")
    return proved("the order of updates does not matter")


@dataclass(frozen=True)
class PrivatizeAtomics(Pass):
    """`buffer` is the array of counters in global memory; without it, one site for each."""

    intent: ClassVar[str] = "atomics"
    catalogue: ClassVar[tuple[int, ...]] = (49,)
    claim: ClassVar[str] = "Updates meet in the CTA's own memory, and global memory sees each counter once a CTA."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P495", "validity", "hardware", "shared memory holds the counters", _fits),
        Precondition("KIR-P496", "validity", "pipeline", "all threads reach the barriers", _everyone_stays),
        Precondition("KIR-P497", "profit", "numerics", "the order of the updates does not change the result", _exact))

    buffer: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over all threads that only updates an array of known size, by one operation whose results nobody keeps."""
        if not isinstance(node, n.For) or len(path) != 2 or whole_team(program, path, node) is None:
            return None
        names = dict.fromkeys(a.buffer.name for x in walk(node) if isinstance(x, n.Call) and x.fn in NEUTRAL
                              for a in x.args if isinstance(a, n.Region) and a.buffer.space == "global")
        found = [b for b in names if self.buffer in ("", b) and _used(node, b) is not None]
        return tuple(Site(path, PrivatizeAtomics(b)) for b in found) or (Miss("an array is used otherwise, or its size is not known") if names else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Cleared, counted and added counters."""
        loop, top, taken = node_at(program, site.path), int(site.path[1]), names_in(program, kernel_of(program, site.path))
        team = whole_team(program, site.path, loop) if isinstance(loop, n.For) else None
        assert isinstance(loop, n.For) and team is not None
        used = _used(loop, self.buffer)
        assert used is not None
        old, fn = used
        own = n.Buffer(fresh(f"{old.name}_own", taken), old.dtype, old.shape, "shared")
        start = neutral(fn, old)
        assert start is not None

        def each(statement: n.Stmt, var: n.Var) -> n.For:
            return n.For(var, team.thread, old.shape[0], build.const(team.threads), (statement,))
        first, second = (n.Var(fresh("i", taken), team.thread.of) for _ in range(2))
        clear = each(n.Store(build.region(own, first), start), first)
        flush = each(n.Eval(build.call(fn, build.region(old, second), n.Load(build.region(own, second)))), second)

        def leave(_: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, n.Call) and x.fn == fn and isinstance(x.args[0], n.Region) and x.args[0].buffer.name == old.name:
                return replace(x, args=(n.Region(own, x.args[0].index), *x.args[1:]))
            return x
        counted = tuple(transform(s, leave) for s in loop.body)
        made = replace(loop, body=(clear, barrier(), *counted, barrier(), flush))
        hints: dict[Path, tuple[Path, ...]] = {(*site.path, "body", k): ((site.path[0], top + 1, "body", k + 2),) for k in range(len(counted))}
        hints[site.path] = ((site.path[0], top + 1),)
        return Rewritten(edit_block(program, site.path, lambda b: (*b[:top], n.Alloc(own), made, *b[top + 1:])), (site.path[0], top + 1), hints)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over all threads that ends by adding an array of shared memory to one in global memory."""
        if not isinstance(node, n.For) or len(path) != 2 or not path[1] or whole_team(program, path, node) is None or len(node.body) < 5:
            return None
        alloc, flush = kernel_of(program, path).body[int(path[1]) - 1], node.body[-1]
        if not (isinstance(alloc, n.Alloc) and alloc.buffer.space == "shared" and is_call(node.body[1], "barrier") and is_call(node.body[-2], "barrier")):
            return None
        if not (isinstance(flush, n.For) and len(flush.body) == 1 and isinstance(flush.body[0], n.Eval)):
            return None
        call = flush.body[0].call
        if call.fn not in NEUTRAL or not isinstance(call.args[0], n.Region):
            return None
        return Site(path, PrivatizeAtomics(call.args[0].buffer.name), {"own": alloc.buffer.name})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Updates of global memory."""
        loop, top = node_at(program, site.path), int(site.path[1])
        assert isinstance(loop, n.For) and isinstance(loop.body[-1], n.For) and isinstance(loop.body[-1].body[0], n.Eval)
        place = loop.body[-1].body[0].call.args[0]
        assert isinstance(place, n.Region)

        def leave(_: n.Node, x: n.Node) -> n.Node:
            if isinstance(x, n.Call) and x.fn in NEUTRAL and isinstance(x.args[0], n.Region) and x.args[0].buffer.name == site.captures["own"]:
                return replace(x, args=(n.Region(place.buffer, x.args[0].index), *x.args[1:]))
            return x
        made = replace(loop, body=tuple(transform(s, leave) for s in loop.body[2:-2]))
        return Rewritten(edit_block(program, site.path, lambda b: (*b[:top - 1], made, *b[top + 1:])), (site.path[0], top - 1))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The counters come to shared memory."""
        used = _used(node_at(program, site.path), self.buffer)
        return Effect(shared_bytes=(build.int_value(used[0].shape[0]) or 0) * used[0].dtype.bytes) if used else Effect()


def _used(node: Place, name: str) -> tuple[n.Buffer, str] | None:
    """The array and the one operation that updates it, if that is all that happens to it."""
    calls = [x for x in walk(node) if isinstance(x, n.Call) and x.fn in NEUTRAL and isinstance(x.args[0], n.Region) and x.args[0].buffer.name == name]
    evals = [x.call for x in walk(node) if isinstance(x, n.Eval)]
    places = [x for x in walk(node) if isinstance(x, n.Region) and x.buffer.name == name]
    if not calls or len(places) != len(calls) or len({c.fn for c in calls}) != 1 or any(not any(c is e for e in evals) for c in calls):
        return None
    b = places[0].buffer
    if len(b.shape) != 1 or build.int_value(b.shape[0]) is None or b.layout is not None or any(c.attrs for c in calls):
        return None
    return (b, calls[0].fn) if neutral(calls[0].fn, b) is not None else None
