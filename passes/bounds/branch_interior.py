"""Branches on whether a tile lies inside the data: there it is copied as a whole, and elsewhere element by element.

pipeline: `branch-interior{when="i * 64 + 64 <= N" edge=store}@main/fill`

```diff
 kir 1
 program panels
   in X: f32[N]
   out Y: f32[N]
   size N: i32
 kernel main grid (i: ceildiv(N, 64)) threads 64
   shared kept: f32[64]
-  @fill copy load(X[i * 64 +: 64] else 0.0 clip) -> kept
+  if i * 64 + 64 <= N
+    @fill copy load(X[i * 64 +: 64] else 0.0 clip) -> kept
+  else
+    kept = load(X[i * 64 +: 64] else 0.0 clip)
   Y[i * 64 +: 64] = kept[iota(64) * 5 % 64] clip
```
"""
from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import reduce
from typing import ClassVar, Literal

from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, dtype_of
from kir.ir.visit import walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import node_at
from kir.rewrite.match import edited, matched, node_as
from kir.rewrite.match.local_buffers import team_level
from kir.rewrite.view import expression_at, text_of

Edge = Literal["same", "store", "copy"]
MOST_AXES = 3
"""Axes along which a move may end early of which conditions are offered."""


@dataclass(frozen=True)
class BranchInterior(Pass):
    """`when` is the text of the condition, `edge` how the other branch does the same: with the same statement, or with a store in place of a
    copy, or a copy in place of a store."""

    intent: ClassVar[str] = "specialize-tail"
    catalogue: ClassVar[tuple[int, ...]] = (53,)
    claim: ClassVar[str] = "Tiles inside the data move in wide pieces, and only those at its edge are looked at element by element."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    when: str = ""
    edge: Edge = "same"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a copy or store of the whole CTA; the condition is given, or it is that what ends where its tensor does ends before: all of it, or one axis."""
        if not isinstance(node, (n.Copy, n.Store)) or team_level(program, path) != "cta":
            return None
        if not self.when:
            made = [replace(self, when=text_of(each)) for each in _inside(program, path, node)] if _other(node, self.edge) is not None else []
            return tuple(Site(path, each) for each in made if expression_at(program, path, each.when) is not None) or Miss("nothing of it may end early")
        cond = expression_at(program, path, self.when)
        if cond is None or cond.type != BOOL:
            return Miss("the condition is none here")
        return Site(path, self) if _other(node, self.edge) is not None else Miss(f"it has no other form as a {self.edge}")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two branches that do the same."""
        s, cond = node_at(program, site.path), matched(expression_at(program, site.path, self.when))
        assert isinstance(s, (n.Copy, n.Store))
        other = matched(_other(s, self.edge))
        made = n.If(cond, (s,), (other,), origin=s.origin)
        return edited(program, site.path, (made,), hints={site.path: ((*site.path, "then", 0), (*site.path, "orelse", 0))})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a branch whose two arms are one statement each, and do the same."""
        if not isinstance(node, n.If) or node.static or len(node.then) != 1 or len(node.orelse) != 1 or dtype_of(node.cond.type) != BOOL:
            return None
        s = node.then[0]
        if not isinstance(s, (n.Copy, n.Store)) or team_level(program, path) != "cta":
            return None
        edges: tuple[Edge, ...] = ("same", "store", "copy")
        found = [e for e in edges if (other := _other(s, e)) is not None and other == node.orelse[0]]
        return Site(path, BranchInterior(text_of(node.cond), found[0])) if found else Miss("the arms do different things")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """What both branches do."""
        node = node_as(program, site.path, n.If)
        return edited(program, site.path, (copy(node.then[0]),))


def _inside(program: n.Program, path: Path, s: n.Copy | n.Store) -> list[n.Expr]:
    """Conditions under which nothing of a move lies past the end of a tensor, where that is not known: along all axes together, then along each by itself."""
    target = s.dst if isinstance(s, n.Copy) else s.at
    regions = [x.at for x in walk(s) if isinstance(x, n.Load) and x.clip] + ([target] if s.clip else [])
    ends = [build.compare("le", build.add(i.lo, i.extent), d) for r in regions for i, d in zip(r.index, r.buffer.shape, strict=False)
            if isinstance(i, n.Span) and build.int_value(i.step) == 1]
    known = Facts.at(program, path)
    open_ = [each for each in dict.fromkeys(ends) if not build.is_const(each) and decide(each, known).kind not in ("always", "never")][:MOST_AXES]
    return [reduce(build.logical_and, open_), *open_] if len(open_) > 1 else open_


def _other(s: n.Copy | n.Store, edge: Edge) -> n.Stmt | None:
    """The same move in another form; None where there is none."""
    match s, edge:
        case _, "same":
            return replace(s, label=None)
        case n.Copy(via="plain", signal=None, grouped=False, attrs=()), "store":
            return n.Store(s.dst, s.src, s.mask, s.clip)
        case n.Store(value=n.Load() as source), "copy" if not s.cache:
            return n.Copy(source, s.at, mask=s.mask, clip=s.clip)
        case _:
            return None
