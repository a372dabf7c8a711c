"""Puts two rows of results side by side, element by element, and stores the pairs at once.

pipeline: `join-pairs@main/even`

```diff
 kir 1
 program turned
   in X: f32[M, 64]
   in C: f32[64]
   out Y: f32[M, 128]
   size M: i32
 kernel main grid (row: M) threads 64
   let x = X[row, 0 +: 64]
-  @even Y[row, 0 +: 64 step 2] = x * C[0 +: 64]
-  Y[row, 1 +: 64 step 2] = x + C[0 +: 64]
+  @even Y[row, 0 +: 128] = reshape(join(x * C[0 +: 64], x + C[0 +: 64]), 128)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import shape_of
from kir.ir.visit import names_read
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.match import block_and_index, edited, fresh_var, matched, matched_as, names_at, node_as, params_as
from kir.rewrite.match.materialize import buffers_read


def _not_seen(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    s = matched_as(block[i], n.Store)
    second = matched_as(block[i + 1], n.Store)
    aliases = Aliases(program)
    if met := sorted(x for x in buffers_read(second.value) if x == s.at.buffer.name or aliases.may_be_one(x, s.at.buffer.name)):
        return unknown(f"the second of each pair is worked out from '{met[0]}', which the first may have changed", needs="results that are worked out before")
    return proved("no result is worked out from what is stored")


@dataclass(frozen=True)
class JoinPairs(Pass):
    """`named`: the joined row has a name of its own."""

    intent: ClassVar[str] = "vectorize-global"
    catalogue: ClassVar[tuple[int, ...]] = (13,)
    claim: ClassVar[str] = "Neighbors that two stores would leave a gap between go to memory together."
    provides: ClassVar[tuple[str, ...]] = ("vectorized",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P943", "validity", "aliasing", "no result is worked out from what the first store has changed", _not_seen),)

    named: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of two stores of rows to every other place."""
        block, i = block_and_index(program, path) if isinstance(node, n.Store) else ((), 0)
        return Site(path, self) if i + 1 < len(block) and isinstance(node, n.Store) and _joined(node, block[i + 1]) is not None else None

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One store of all pairs."""
        block, i = block_and_index(program, site.path)
        s = matched(_joined(matched_as(block[i], n.Store), block[i + 1]))
        if not params_as(site, JoinPairs).named:
            return edited(program, site.path, (s,), 0, 2)
        name = fresh_var("pairs", names_at(program, site.path)).name
        return edited(program, site.path, (n.Let((name,), s.value, origin=s.origin), replace(s, value=n.Var(name, s.value.type))), 0, 2)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store of two rows joined element by element, or at its name right before it."""
        if isinstance(node, n.Store) and _rows(node.value) is not None:
            return Site(path, JoinPairs()) if _stored(node) else Miss("it is stored masked, or not as one row")
        if isinstance(node, n.Let) and len(node.names) == 1 and _rows(node.value) is not None:
            block, i = block_and_index(program, path)
            after = block[i + 1] if i + 1 < len(block) else None
            if not (isinstance(after, n.Store) and after.value == n.Var(node.names[0], node.value.type) and _stored(after)) or any(
                    node.names[0] in names_read(s) for s in block[i + 2:]):
                return Miss("it is more than stored in one row")
            return Site(path, JoinPairs(True))
        return None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A store for each."""
        named = params_as(site, JoinPairs).named
        block, i = block_and_index(program, site.path)
        s = matched_as(block[i + named], n.Store)
        a, b = matched(_rows(node_as(program, site.path, n.Let).value if named else s.value))
        *outer, last = s.at.index
        assert isinstance(last, n.Span)
        count = shape_of(a.type)[-1]
        made = tuple(replace(s, at=n.Region(s.at.buffer, (*outer, n.Span(build.add(last.lo, k), count, 2))), value=value, label=s.label if k == 0 else None)
                     for k, value in enumerate((a, b)))
        return edited(program, site.path, made, 0, 1 + named)


def _rows(e: n.Expr) -> tuple[n.Expr, n.Expr] | None:
    """The two rows that are joined element by element into one of twice the length."""
    match e:
        case n.Call(fn="reshape", of=None, args=(n.Call(fn="join", of=None, args=(n.Expr() as a, n.Expr() as b)), *_)):
            shape = shape_of(a.type)
            if shape and isinstance(shape[-1], int) and shape_of(e.type) == (*shape[:-1], 2 * shape[-1]):
                return a, b
    return None


def _stored(s: n.Store) -> bool:
    """Whether a row is stored side by side, none of it masked."""
    last = s.at.index[-1] if s.at.index else None
    return s.mask is None and s.at.buffer.space == "global" and isinstance(last, n.Span) and last.step in (1, build.const(1)) and (
        last.extent == shape_of(s.value.type)[-1])


def _joined(first: n.Store, second: n.Stmt) -> n.Store | None:
    """The one store of what two store at every other place."""
    last = first.at.index[-1] if first.at.index else None
    if not (isinstance(second, n.Store) and isinstance(last, n.Span) and last.step in (2, build.const(2)) and isinstance(last.extent, int)):
        return None
    shape, outer = shape_of(first.value.type), first.at.index[:-1]
    other = n.Region(first.at.buffer, (*outer, n.Span(build.add(last.lo, 1), last.extent, last.step)))
    if first.mask is not None or second != replace(first, at=other, value=second.value, label=second.label, origin=second.origin) or (
            not shape or shape[-1] != last.extent or shape_of(second.value.type) != shape or first.value.type != second.value.type):
        return None
    row = build.call("reshape", build.call("join", first.value, second.value), *(d if isinstance(d, n.Expr) else build.const(d) for d in shape[:-1]),
                     build.const(2 * last.extent))
    return replace(first, at=n.Region(first.at.buffer, (*outer, n.Span(last.lo, 2 * last.extent))), value=row)
