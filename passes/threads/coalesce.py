"""Renumbers the threads of a loop, so that neighbors touch neighboring elements of global memory.

pipeline: `coalesce@main/threads`

```diff
 kir 1
 program scale
   in X: f32[8, 32]
   out Y: f32[8, 32]
 kernel main grid (i: 1) threads 256
   @threads for t in 0..256 parallel thread
-    Y[t % 8, t // 8] = X[t % 8, t // 8] * 2.0
+    Y[t // 32, t % 32] = X[t // 32, t % 32] * 2.0
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import names_read, regions, statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.match import edited, from_zero, node_as


def _exchangeable(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    for x in walk(loop):
        if isinstance(x, n.Call) and x.of is None:
            row = table()[x.fn]
            if row.level in ("warp", "warpgroup") or (row.is_convergent and row.effect != "sync"):
                return refuted("threads of a warp work together, and their numbers say who is in it", f"'{x.fn}'",
                               needs="threads that do not exchange values in their warps")
        if isinstance(x, n.Mma) or (isinstance(x, n.Copy) and x.via in ("ldmatrix", "stmatrix")):
            return refuted("threads of a warp work together, and their numbers say who is in it", "a tile operation")
        if isinstance(x, n.Opaque):
            return refuted("opaque text may count its threads", x.text.splitlines()[0] if x.text else "")
    return proved("no thread exchanges values within its warp")


@dataclass(frozen=True)
class Coalesce(Pass):
    """No parameters: thread `t` takes the part of the one that is its transpose in the grid of `t // c` and `t % c`."""

    intent: ClassVar[str] = "coalesce"
    catalogue: ClassVar[tuple[int, ...]] = (16,)
    claim: ClassVar[str] = "The accesses of a warp fall into few sectors of memory instead of one each."
    requires: ClassVar[tuple[str, ...]] = ("thread-loop",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P160", "validity", "hardware", "which thread does what does not matter to its warp", _exchangeable),
    )

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over threads in which neighbors touch distant elements."""
        return self._renumbered(path, node, 1, "no more accesses would be of neighbors")

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop over threads in which neighbors touch neighboring elements."""
        return self._renumbered(path, node, -1, "no accesses are of neighbors only so")

    def _renumbered(self, path: Path, node: Place, sign: int, otherwise: str) -> Found:
        if not (isinstance(node, n.For) and node.kind == "thread"):
            return None
        made = transposed(node)
        if isinstance(made, Miss):
            return made
        return Site(path, self, {"made": made}) if sign * (coalesced(made) - coalesced(node)) > 0 else Miss(otherwise)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop with its threads renumbered."""
        return edited(program, site.path, (site.captures["made"],))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The loop with its threads numbered the other way."""
        return edited(program, site.path, (site.captures["made"],))


def transposed(loop: n.For) -> n.For | Miss:
    """The loop in which the row and the column of its threads have changed places."""
    count = build.int_value(loop.hi)
    if count is None or not from_zero(loop):
        return Miss("the number of threads is not known")
    widths = {build.int_value(x.b) for x in walk(loop) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and x.a == loop.var}
    width = widths.pop() if len(widths) == 1 else None
    if width is None or width < 2 or count % width or width == count:
        return Miss(f"the {count} threads are not used as one grid of rows and columns")
    height = build.const(count // width)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(old, n.Binary) and old.a == loop.var and old.op in ("floordiv", "mod"):
            return (build.mod if old.op == "floordiv" else build.floordiv)(mark, height)
        return new
    mark = n.Var("%thread", loop.var.of)
    body = tuple(transform(s, leave) for s in loop.body)
    if any(loop.var.name in names_read(s) for s in body):
        return Miss("the number of a thread is used as it is")
    back = tuple(transform(s, lambda old, new: loop.var if old == mark else new) for s in body)
    return replace(loop, body=back)


def coalesced(loop: n.For) -> int:
    """Accesses to global memory whose last index moves by one element (or one whole vector) from a thread to the next."""
    found = 0
    for s in statements(loop.body):
        for r in regions(s) if not isinstance(s, (n.For, n.If, n.While)) else ():
            if r.buffer.space != "global" or not r.index:
                continue
            last = r.index[-1]
            place, extent = (last.lo, build.int_value(last.extent)) if isinstance(last, n.Span) else (last, 1)
            for monomial, c in build.polynomial(place).items():
                x = monomial[0] if len(monomial) == 1 else None
                found += c in (1, extent) and (x == loop.var or (isinstance(x, n.Binary) and x.op == "mod" and x.a == loop.var))
    return found
