"""Loads what the next iteration needs into registers while this one computes.

pipeline: `register-lookahead@main/threads/loop`

```diff
 kir 1
 program weighted
   size M: i32
   size N: i32
   in X: f32[M, N]
   out Y: f32[M, 64]
 kernel main grid (row: M) threads 64
   @threads for t in 0..64 parallel thread
     register total: f32 = 0.0
+    register x_ahead: f32
+    if t < N
+      x_ahead = X[row, t]
     @loop for j in t..N step 64
-      let x = X[row, j]
+      let x = x_ahead
+      if j + 64 < N
+        x_ahead = X[row, j + 64]
       total = total + exp(x) * x
     Y[row, t] = total
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from kir.analysis import Aliases, accesses
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import TileType, dtype_of, shape_of
from kir.ir.visit import buffers_named, names_read, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, enclosing, node_at
from kir.rewrite.match import edited, fresh_at, matched_as, node_as, params_as, sibling, splice
from kir.rewrite.match.local_buffers import team_threads
from kir.rewrite.match.materialize import is_pure


def _unwritten(program: n.Program, site: Site, context: Context) -> Verdict:
    loop, aliases = node_as(program, site.path, n.For), Aliases(program)
    at = params_as(site, RegisterLookahead).at
    reads = {a.buffer for a in accesses(loop.body[at])}
    ahead = [substitute(a.at, {loop.var.name: build.add(loop.var, loop.step)}) for a in accesses(loop.body[at]) if a.at is not None]
    given = {p.name for p in program.params if p.role == "in"}
    for s in (*loop.body[:at], *loop.body[at + 1:]):
        for a in accesses(s):
            if a.sync and a.buffer == "*":
                if not reads <= given:
                    return unknown("the loop synchronizes, and a load may not pass that", needs="an iteration that waits for nobody, or loads of inputs")
                continue
            if a.writes and any(aliases.may_be_one(a.buffer, b) for b in reads):
                lost = a.at is not None and a.at.buffer.space == "register" and not names_read(a.at)  # by rounding, maybe, which any value does for
                if lost or a.at not in ahead:
                    return unknown(f"the loop writes '{a.buffer}', of which the next iteration loads", needs="loads of memory that the loop does not write")
                return refuted(f"the loop writes '{a.buffer}', which the next iteration loads",
                               "the value is loaded before this iteration has stored it", needs="loads of memory that the loop does not write")
    return proved("the loop writes nothing that it loads")


@dataclass(frozen=True)
class RegisterLookahead(Pass):
    """`at` is the place in the body of the value that is loaded ahead, of a thread or of a team that holds a tile together. The site is the loop."""

    intent: ClassVar[str] = "register-lookahead"
    catalogue: ClassVar[tuple[int, ...]] = (24,)
    claim: ClassVar[str] = "The latency of the next load passes while this iteration computes."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P240", "validity", "storage", "the loop writes nothing that it loads", _unwritten),)

    at: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop that reads global memory at this place, at what no statement of the iteration before it decides."""
        if not isinstance(node, n.For) or node.kind != "serial" or not 0 <= self.at < len(node.body) or len(node.body) < 2:
            return None
        at = node.body[self.at]
        if not (isinstance(at, n.Let) and len(at.names) == 1 and is_pure(at.value) and node.var.name in names_read(at.value)):
            return None
        loads = [x for x in walk(at.value) if isinstance(x, n.Load)]
        if not any(x.at.buffer.space == "global" for x in loads) or (self.at and any(x.at.buffer.space != "global" for x in loads)):
            return None
        if not all(isinstance(d, int) for d in shape_of(at.value.type)):
            return Miss("a value whose size is not known")
        if any(isinstance(x, n.Jump) for s in node.body for x in walk(s)):
            return Miss("the body leaves the loop early")
        if own := names_read(at.value) & set(bound_names(node.body[:self.at])):
            return Miss(f"what is loaded depends on '{min(own)}' of the same iteration")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A load before the loop, and one for the next iteration inside."""
        loop, at = node_as(program, site.path, n.For), params_as(site, RegisterLookahead).at
        let = matched_as(loop.body[at], n.Let)
        name = fresh_at(program, site.path, f"{let.names[0]}_ahead")
        alloc, first, inner = _ahead(loop, at, name, _space(program, site.path, let))
        after = splice(program, site.path, (alloc, first, inner))
        to = sibling(site.path, 2)
        hints = {(*site.path, "body", k): ((*to, "body", k + (k > at)),) for k in range(len(loop.body))}
        return Rewritten(after, to, {**hints, site.path: (to,)})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that takes a value from registers and loads the next one."""
        if not isinstance(node, n.For) or node.kind != "serial" or int(path[-1]) < 2 or len(node.body) < 2:
            return None
        alloc, first = block_at(program, path)[int(path[-1]) - 2:int(path[-1])]
        if not (isinstance(alloc, n.Alloc) and alloc.buffer.space in ("register", "fragment") and isinstance(first, n.If)):
            return None
        taken = n.Load(n.Region(alloc.buffer))
        at = next((k for k, s in enumerate(node.body[:-1]) if isinstance(s, n.Let) and s.value == taken), None)
        if at is None:
            return None
        again = node.body[at + 1]
        if not (isinstance(again, n.If) and len(again.then) == 1 and isinstance(again.then[0], n.Store)):
            return None
        plain = _plain(node, at)
        if _ahead(plain, at, alloc.buffer.name, alloc.buffer.space) != (alloc, first, node) or alloc.buffer.space != _space(program, path, plain.body[at]):
            return Miss("what it loads ahead is not what the next iteration needs")
        if any(alloc.buffer.name in buffers_named(s) for s in block_at(program, path)[int(path[-1]) + 1:]):
            return Miss(f"'{alloc.buffer.name}' is read after the loop")
        return Site(path, RegisterLookahead(at))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A load at its place in each iteration."""
        loop = node_as(program, site.path, n.For)
        return edited(program, site.path, (_plain(loop, params_as(site, RegisterLookahead).at),), -2, at=-2)

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The value of the next iteration stays in registers."""
        loop = node_at(program, site.path)
        if not (isinstance(loop, n.For) and isinstance(let := loop.body[params_as(site, RegisterLookahead).at], n.Let)):
            return Effect()
        count = 1
        for d in shape_of(let.value.type):
            count *= d if isinstance(d, int) else 1
        if _space(program, site.path, let) == "fragment":
            count = -(-count // (team_threads(program, site.path) or 1))
        return Effect(registers=-(-count * dtype_of(let.value.type).bytes // 4))


def _space(program: n.Program, path: Path, let: n.Stmt) -> Literal["register", "fragment"]:
    """Where a value is held: a tile that is no single thread's is spread over the registers of its team."""
    tile = isinstance(let, n.Let) and isinstance(let.value.type, TileType)
    return "fragment" if tile and not any(isinstance(s, n.For) and s.kind == "thread" for _, s in enclosing(program, path)) else "register"


def _ahead(loop: n.For, at: int, name: str, space: Literal["register", "fragment"]) -> tuple[n.Alloc, n.If, n.For]:
    """The declaration, the first load and the loop."""
    let = matched_as(loop.body[at], n.Let)
    of = let.value.type
    shape = tuple(build.const(d) if isinstance(d, int) else d for d in of.shape) if isinstance(of, TileType) else ()
    held = n.Buffer(name, dtype_of(of), shape, space)
    following = build.add(loop.var, loop.step)

    def load(to: n.Expr) -> n.If:
        value: n.Expr = substitute(let.value, {loop.var.name: to})
        return n.If(build.compare("lt", to, loop.hi), (n.Store(n.Region(held), value),))
    inner = replace(loop, body=(*loop.body[:at], replace(let, value=n.Load(n.Region(held))), load(following), *loop.body[at + 1:]))
    return n.Alloc(held), load(loop.lo), inner


def _plain(loop: n.For, at: int) -> n.For:
    """The loop that loads in each iteration what it would have loaded ahead."""
    let, again = loop.body[at:at + 2]
    assert isinstance(let, n.Let) and isinstance(again, n.If) and isinstance(again.then[0], n.Store)
    value: n.Expr = substitute(again.then[0].value, {loop.var.name: build.sub(loop.var, loop.step)})
    return replace(loop, body=(*loop.body[:at], replace(let, value=value), *loop.body[at + 2:]))
