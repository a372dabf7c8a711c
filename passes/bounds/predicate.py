"""Masks a store and the loads that it needs, instead of branching around them.

pipeline: `predicate@main/threads/guard`

```diff
 kir 1
 program relu_copy
   size N: i32
   in X: f32[N]
   out Y: f32[N]
 kernel main grid (b: ceildiv(N, 64)) threads 64
   @threads for t in 0..64 parallel thread
     let i = b * 64 + t
-    @guard if i < N
-      let x = X[i]
-      Y[i] = max(x, 0.0)
+    let x = load(X[i] where i < N)
+    @guard Y[i] = max(x, 0.0) where i < N
```
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.analysis.order import is_positive
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.match import block_and_index, edited, is_read, matched_as, node_as, sibling, splice
from kir.rewrite.match.materialize import is_pure


def _total(program: n.Program, site: Site, context: Context) -> Verdict:
    node, known = node_as(program, site.path, n.If), None
    for s in node.then:
        for x in walk(s):
            if isinstance(x, n.Call) and x.of is None and x.fn in ("pick", "gather") and any(
                    not isinstance(a, n.Const) for a in x.args[1:] if isinstance(a, n.Expr)):
                return unknown("an element is taken at an index that only the branch may keep inside", needs="an index that is inside for all")
            if isinstance(x, n.Binary) and x.op in ("floordiv", "mod", "tdiv", "trem") and not isinstance(x.b, n.Const):
                known = known or Facts.at(program, site.path)
                if not is_positive(x.b, known):
                    return unknown("a division that only the branch may keep from dividing by zero", needs="a divisor that is known to be at least 1")
    return proved("what runs regardless computes values only, and reads where the mask says")


@dataclass(frozen=True)
class Predicate(Pass):
    """No parameters: the site is the branch."""

    intent: ClassVar[str] = "predicate"
    catalogue: ClassVar[tuple[int, ...]] = (54,)
    claim: ClassVar[str] = "Lanes without work ride along under a predicate, with no jump and no reconvergence."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P545", "validity", "storage", "what runs where the condition fails has no effect and cannot fault", _total),)

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a branch without else around values and one store of a thread."""
        if not isinstance(node, n.If) or node.static or node.orelse or not node.then:
            return None
        *lets, store = node.then
        if not isinstance(store, n.Store) or not all(isinstance(s, n.Let) and is_pure(s.value) for s in lets) or not is_pure(store.value):
            return None
        if not isinstance(node.cond.type, DType) or store.mask is not None or any(
                isinstance(x, n.Load) and x.mask is not None for s in node.then for x in walk(s)):
            return Miss("something inside has a mask of its own")
        if any(isinstance(x, n.Call) and x.of is None and instruction(x.fn).is_convergent for s in node.then for x in walk(s)):
            return Miss("lanes exchange values inside")
        if isinstance(node.cond, n.Const):
            return Miss("the condition is decided: no mask says it")
        if any(not any(isinstance(x, n.Load) and x.at.buffer.space in ("global", "shared") for x in walk(s)) for s in lets):
            return Miss("a value inside reads no memory: behind the mask nothing would say that it belongs to the branch")
        if any(isinstance(x, n.Load) and x.other is not None for s in node.then for x in walk(s)):
            return Miss("a load inside says what it gives where nothing is read: masked, it would give that where the branch is not taken")
        if is_read(node.cond, store.at.buffer.name):
            return Miss("the condition reads what the store writes")
        if not lets and not _reads(store):
            return Site(path, self) if store.at.buffer.space in ("global", "shared") else None
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The statements of the branch, masked."""
        node, i = node_as(program, site.path, n.If), int(site.path[-1])
        made = [transform(s, _masked(node.cond)) for s in node.then]
        last = matched_as(made[-1], n.Store)
        made[-1] = replace(last, mask=node.cond, label=node.label or last.label, origin=last.origin)
        at = (*site.path[:-1], i + len(made) - 1)
        hints = {site.path: (at,), **{(*site.path, "then", k): (sibling(site.path, k),) for k in range(len(made))}}
        return Rewritten(splice(program, site.path, made), at, hints)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a masked store whose loads, and those of the values just before it, have the same mask."""
        if not isinstance(node, n.Store) or node.mask is None or not isinstance(node.mask.type, DType):
            return None
        block, i = block_and_index(program, path)
        start = i
        while start and _belongs(block, start - 1, i, node.mask):
            start -= 1
        return Site(path, self, {"start": start})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A branch around them."""
        (block, i), start = block_and_index(program, site.path), int(site.captures["start"])
        store = matched_as(block[i], n.Store)
        assert store.mask is not None
        plain = [transform(s, _unmasked(store.mask)) for s in (*block[start:i], replace(store, mask=None, label=None))]
        made = n.If(store.mask, tuple(plain), label=store.label, origin=store.origin)
        return edited(program, site.path, (made,), start - i, at=start - i)


def _reads(s: n.Stmt) -> bool:
    return any(isinstance(x, n.Load) for x in walk(s))


def _masked(cond: n.Expr) -> Callable[[n.Node, n.Node], n.Node]:
    def leave(_: n.Node, x: n.Node) -> n.Node:
        return replace(x, mask=cond) if isinstance(x, n.Load) and x.at.buffer.space in ("global", "shared") else x
    return leave


def _unmasked(cond: n.Expr) -> Callable[[n.Node, n.Node], n.Node]:
    def leave(_: n.Node, x: n.Node) -> n.Node:
        return replace(x, mask=None) if isinstance(x, n.Load) and x.mask == cond and x.other is None else x
    return leave


def _belongs(block: n.Block, k: int, store: int, cond: n.Expr) -> bool:
    """Whether statement `k` is a value that only the store and the values before it need, read under the mask."""
    s = block[k]
    if not (isinstance(s, n.Let) and is_pure(s.value)) or set(s.names) & names_read(cond):
        return False
    masked = any(isinstance(x, n.Load) and x.mask == cond and x.other is None for x in walk(s.value))
    users = [j for j in range(k + 1, len(block)) if set(s.names) & names_read(block[j])]
    return masked and all(j <= store for j in users)
