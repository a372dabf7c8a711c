"""Loads what the next iteration needs into registers while this one computes.

before:

```kir
kir 1
program weighted
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M, 64]
kernel main grid (row: M) threads 64
  @threads for t in 0..64 parallel thread
    register total: f32 = 0.0
    @loop for j in t..N step 64
      let x = X[row, j]
      total = total + exp(x) * x
    Y[row, t] = total
```

pipeline: `register-lookahead@main/threads/loop`

after:

```kir
kir 1
program weighted
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M, 64]
kernel main grid (row: M) threads 64
  @threads for t in 0..64 parallel thread
    register total: f32 = 0.0
    register x_ahead: f32
    if t < N
      x_ahead = X[row, t]
    @loop for j in t..N step 64
      let x = x_ahead
      if j + 64 < N
        x_ahead = X[row, j + 64]
      total = total + exp(x) * x
    Y[row, t] = total
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases, accesses
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, dtype_of, shape_of
from kir.ir.visit import buffers_named, names_read, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, node_at
from kir.rewrite.match import edited, fresh_at, node_as, sibling, splice
from kir.rewrite.match.materialize import is_pure


def _unwritten(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, aliases = node_as(program, site.path, n.For), Aliases(program)
    reads = {a.buffer for a in accesses(loop.body[0])}
    for s in loop.body[1:]:
        for a in accesses(s):
            if a.sync and a.buffer == "*":
                return unknown("the loop synchronizes, and a load may not pass that", needs="an iteration that waits for nobody")
            if a.writes and any(aliases.may_be_one(a.buffer, b) for b in reads):
                return refuted(f"the loop writes '{a.buffer}', which the next iteration loads",
                               "the value is loaded before this iteration has stored it", needs="loads of memory that the loop does not write")
    return proved("the loop writes nothing that it loads")


@dataclass(frozen=True)
class RegisterLookahead(Pass):
    """No parameters: the site is a loop that begins with a load."""

    intent: ClassVar[str] = "register-lookahead"
    catalogue: ClassVar[tuple[int, ...]] = (24,)
    claim: ClassVar[str] = "The latency of the next load passes while this iteration computes."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P240", "validity", "storage", "the loop writes nothing that it loads", _unwritten),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop of one thread that first reads global memory."""
        if not isinstance(node, n.For) or node.kind != "serial" or len(node.body) < 2 or len(path) < 4:
            return None
        first = node.body[0]
        if not (isinstance(first, n.Let) and len(first.names) == 1 and is_pure(first.value) and node.var.name in names_read(first.value)):
            return None
        if not any(isinstance(x, n.Load) and x.at.buffer.space == "global" for x in walk(first.value)):
            return None
        if not all(isinstance(d, int) for d in shape_of(first.value.type)):
            return Miss("a value whose size is not known")
        if any(isinstance(x, n.Jump) for s in node.body for x in walk(s)):
            return Miss("the body leaves the loop early")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A load before the loop, and one for the next iteration inside."""
        loop = node_as(program, site.path, n.For)
        assert isinstance(loop.body[0], n.Let)
        name = fresh_at(program, site.path, f"{loop.body[0].names[0]}_ahead")
        alloc, first, inner = _ahead(loop, loop.body[0], name)
        after = splice(program, site.path, (alloc, first, inner))
        at = sibling(site.path, 2)
        hints = {(*site.path, "body", k): ((*at, "body", k + (k > 0)),) for k in range(len(loop.body))}
        return Rewritten(after, at, {**hints, site.path: (at,)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that takes a value from registers and loads the next one."""
        if not isinstance(node, n.For) or node.kind != "serial" or int(path[-1]) < 2 or len(node.body) < 2:
            return None
        alloc, first = block_at(program, path)[int(path[-1]) - 2:int(path[-1])]
        let, again = node.body[:2]
        if not (isinstance(alloc, n.Alloc) and alloc.buffer.space == "register" and isinstance(let, n.Let) and isinstance(first, n.If)
                and isinstance(again, n.If) and len(again.then) == 1 and isinstance(again.then[0], n.Store)):
            return None
        if again.then[0].at != n.Region(alloc.buffer) or let.value != n.Load(n.Region(alloc.buffer)):
            return None
        made = _ahead(_plain(node), _plain(node).body[0], alloc.buffer.name)  # type: ignore[arg-type]  # its first statement is a Let
        if made != (alloc, first, node):
            return Miss("what it loads ahead is not what the next iteration needs")
        if any(alloc.buffer.name in buffers_named(s) for s in block_at(program, path)[int(path[-1]) + 1:]):
            return Miss(f"'{alloc.buffer.name}' is read after the loop")
        return Site(path, self)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A load at the start of each iteration."""
        loop = node_as(program, site.path, n.For)
        made = _plain(loop)
        return edited(program, site.path, (made,), -2, at=-2)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The value of the next iteration stays in registers."""
        loop = node_at(program, site.path)
        if not (isinstance(loop, n.For) and isinstance(loop.body[0], n.Let)):
            return Effect()
        count = 1
        for d in shape_of(loop.body[0].value.type):
            count *= d if isinstance(d, int) else 1
        return Effect(registers=-(-count * dtype_of(loop.body[0].value.type).bytes // 4))


def _ahead(loop: n.For, let: n.Let, name: str) -> tuple[n.Alloc, n.If, n.For]:
    """The declaration, the first load and the loop."""
    of = let.value.type
    shape = tuple(build.const(d) if isinstance(d, int) else d for d in of.shape) if isinstance(of, TileType) else ()
    held = n.Buffer(name, dtype_of(of), shape, "register")
    following = build.add(loop.var, loop.step)

    def load(at: n.Expr) -> n.If:
        value: n.Expr = substitute(let.value, {loop.var.name: at})
        return n.If(build.compare("lt", at, loop.hi), (n.Store(n.Region(held), value),))
    inner = replace(loop, body=(replace(let, value=n.Load(n.Region(held))), load(following), *loop.body[1:]))
    return n.Alloc(held), load(loop.lo), inner


def _plain(loop: n.For) -> n.For:
    """The loop that loads in each iteration what it would have loaded ahead."""
    let, again = loop.body[:2]
    assert isinstance(let, n.Let) and isinstance(again, n.If) and isinstance(again.then[0], n.Store)
    value: n.Expr = substitute(again.then[0].value, {loop.var.name: build.sub(loop.var, loop.step)})
    return replace(loop, body=(replace(let, value=value), *loop.body[2:]))
