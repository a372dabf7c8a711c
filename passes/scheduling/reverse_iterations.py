"""Runs a loop of sums and maxima from its end to its beginning, so that the iterations that need masks come first.

pipeline: `reverse-iterations@main/tiles`

```diff
 kir 1
 program row_sums
   in X: f32[M, N]
   out S: f32[M]
   size M: i32
   size N: i32
 kernel main grid (row: M) threads 1
   register total: f32 = 0.0
   @tiles for j in 0..ceildiv(N, 64)
-    total = total + reduce(load(X[row, j * 64 +: 64] else 0.0 clip), axis=0, op=sum)
+    total = total + reduce(load(X[row, j * -64 + ceildiv(N, 64) * 64 - 64 +: 64] else 0.0 clip), axis=0, op=sum)
   S[row] = total
```
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import names_read, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.match import edited, is_counted, node_as
from kir.rewrite.match.materialize import buffers_read, buffers_written, is_pure

from ..loops.split_loop import moved
from ..numerics._online_loops import declared_in, sum_of


def _any_order(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    own = declared_in(loop.body)
    aliases, written = Aliases(program), buffers_written(loop.body) - own

    def changed(of: Iterable[n.Expr]) -> set[str]:
        """What some expressions read of what other iterations write, under whatever name."""
        return {b for x in of for b in buffers_read(x) for k in written if (b != k or not _apart(loop, b)) and aliases.may_be_one(b, k)}
    for s in loop.body:
        if isinstance(s, n.Alloc) or (isinstance(s, n.Let) and is_pure(s.value)) or (isinstance(s, n.Store | n.Mma | n.For) and buffers_written((s,)) <= own):
            added: list[n.Expr] = [x for x in walk(s) if isinstance(x, n.Expr)]
        elif (found := _folded(s)) is not None:
            added = found
        else:
            more = "an iteration does more than add to sums and raise maxima"
            if changed(x for x in walk(s) if isinstance(x, n.Expr)):
                return refuted(more, s.label or type(s).__name__.lower(), needs="sums and maxima alone")
            return unknown(more, "sums and maxima alone")
        if clash := changed(added):
            return refuted(f"an iteration reads '{min(clash)}', which the ones before it have changed", f"iteration 1 reads '{min(clash)}'",
                           needs="iterations that do not see one another's results")
    return proved("each iteration adds to sums and raises maxima by what does not depend on the others")


def _apart(loop: n.For, buffer: str) -> bool:
    """Whether each iteration names one place of a buffer, and another one than the others."""
    at = {x for s in loop.body for x in walk(s) if isinstance(x, n.Region) and x.buffer.name == buffer}
    return len(at) == 1 and any(isinstance(i, n.Expr) and i.type == loop.var.type and loop.var.name not in names_read(build.sub(i, loop.var))
                                for i in next(iter(at)).index)


def _folded(s: n.Stmt) -> list[n.Expr] | None:
    """What a statement adds to a sum, or raises a maximum by; None for another statement."""
    if isinstance(s, n.Store) and s.mask is None and isinstance(s.value, n.Binary) and s.value.op in ("max", "min") and s.value.a == n.Load(s.at):
        return [s.value.b]
    if sum_of(s) is None:
        return None
    return [s.a, s.b] if isinstance(s, n.Mma) else [x.value.b for x in walk(s) if isinstance(x, n.Store) and isinstance(x.value, n.Binary)]


def _reversed(loop: n.For) -> n.For:
    """The loop whose iteration i does what the i-th from the end did."""
    last = build.sub(build.sub(loop.hi, 1), loop.var)
    return replace(loop, body=tuple(moved(s, loop.var.name, last) for s in loop.body))


def _length(loop: n.For) -> int:
    return sum(1 for s in loop.body for _ in walk(s))


@dataclass(frozen=True)
class ReverseIterations(Pass):
    """No parameters."""

    intent: ClassVar[str] = "reverse-iterations"
    catalogue: ClassVar[tuple[int, ...]] = (33, 53)
    claim: ClassVar[str] = "The iterations at the edge come first, where what begins the loop is done anyway, and all later ones are alike."
    numerics: ClassVar[str] = "reassociated(k)"
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P713", "validity", "numerics", "iterations are sums and maxima, which have no order", _any_order),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop from 0 by 1."""
        if not is_counted(node, of=I32):
            return None
        return Site(path, self) if any(x == node.var for s in node.body for x in walk(s)) else Miss("all iterations are the same")

    def sites(self, program: n.Program) -> Iterator[Site]:
        """Loops that count up."""
        for site in super().sites(program):
            loop = node_as(program, site.path, n.For)
            if _length(_reversed(loop)) > _length(loop):
                yield site

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The last iteration first."""
        return edited(program, site.path, (_reversed(node_as(program, site.path, n.For)),))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop that counts down, in what its iterations do."""
        if not is_counted(node, of=I32):
            return None
        back = _reversed(node)
        return Site(path, self) if _length(back) < _length(node) and _reversed(back) == node else None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The first iteration first."""
        return edited(program, site.path, (_reversed(node_as(program, site.path, n.For)),))
