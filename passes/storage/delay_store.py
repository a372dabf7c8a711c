"""Keeps a value that is to be stored, and stores it only after statements that change what it is made of.

pipeline: `delay-store{past=1}@main/j/each`

```diff
 kir 1
 program sums_before
   in X: f32[M, 8]
   out Y: f32[M, 8]
   size M: i32
 kernel main grid (row: M) threads 1
   register total: f32 = 0.0
   for j in 0..8
-    @each Y[row, j] = total * 2.0
-    total = total + X[row, j]
+    @each let kept = total * 2.0
+    total = total + X[row, j]
+    Y[row, j] = kept
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases, Facts
from kir.analysis.access import independent as may_be_exchanged
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.visit import names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.match import block_and_index, edited, fresh_at, matched, matched_as, node_as, params_as
from kir.rewrite.match.materialize import buffers_read, buffers_written, inlined, is_pure, suggested_name


def _value(s: n.Store, text: str) -> n.Expr | None:
    """The part of what a store writes with a text; all of it where there is none."""
    return next((x for x in walk(s.value) if isinstance(x, n.Expr) and expr_text(x) == text), None) if text else s.value


def _late(s: n.Store, value: n.Expr, name: str) -> n.Store:
    """The store of what has a name."""
    def leave(_: n.Node, new: n.Node) -> n.Node:
        return n.Var(name, value.type) if new == value else new
    return replace(s, value=transform(s.value, leave), label=None)


def _moves(program: n.Program, site: Site, context: Context) -> Verdict:
    (block, i), item = block_and_index(program, site.path), params_as(site, DelayStore)
    s = matched_as(block[i], n.Store)
    late = _late(s, matched(_value(s, item.value)), "%kept")
    passed = block[i + 1:i + 1 + item.past]
    if may_be_exchanged((late,), passed, Facts.at(program, site.path), Aliases(program)):
        return proved("the statements have nothing to do with the store, but for the value that is kept")
    what = f"a statement that the store of '{s.at.buffer.name}' would stand behind"
    if _surely(late, passed):
        return refuted(f"{what} touches what it writes, or changes where it stores", f"'{s.at.buffer.name}' is not the same after it",
                       needs="statements that have nothing to do with the store but for the kept value")
    return unknown(f"{what} may touch what it writes, or change where or what it stores", needs="places that are known to be others")


def _surely(late: n.Store, passed: n.Block) -> bool:
    """Whether one of the statements, each of which is run once, reads or writes the element that a store writes in any case, or a number that says where."""
    told = {x.at.buffer.name for i in late.at.index for x in walk(i) if isinstance(x, n.Load)}
    plain = [s for s in passed if isinstance(s, n.Let | n.Store) and not (isinstance(s, n.Store) and (s.mask is not None or s.clip))]
    moved = any(isinstance(s, n.Store) and s.at.buffer.name in told and not s.at.index for s in plain)
    met = late.mask is None and not late.clip and any(x == late.at for s in plain for x in walk(s) if isinstance(x, n.Region))
    return moved or met


@dataclass(frozen=True)
class DelayStore(Pass):
    """`value` is the text of the part of the stored value that is kept ("": all of it), `past` behind how many statements it is stored."""

    intent: ClassVar[str] = "operand-reuse"
    catalogue: ClassVar[tuple[int, ...]] = (51,)
    claim: ClassVar[str] = "What the next steps wait for comes first: a result stays in a register until there is time to store it."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P969", "validity", "storage", "the statements that the store will stand behind have nothing to do with it", _moves),)

    value: str = ""
    past: int = 1

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store to global memory, before so many statements."""
        if not (isinstance(node, n.Store) and node.at.buffer.space == "global") or self.past < 1:
            return None
        block, i = block_and_index(program, path)
        value = _value(node, self.value)
        if value is None or not is_pure(value) or not buffers_read(value):
            return Miss("it writes no such value, or one that reads nothing")
        return Site(path, self) if i + self.past < len(block) else Miss("there are fewer statements behind it")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The value, the statements, and the store."""
        block, i = block_and_index(program, site.path)
        s = matched_as(block[i], n.Store)
        value = matched(_value(s, self.value))
        name = fresh_at(program, site.path, suggested_name(value))
        made = (n.Let((name,), value, label=s.label, origin=s.origin), *block[i + 1:i + 1 + self.past], _late(s, value, name))
        return edited(program, site.path, made, 0, 1 + self.past)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a named value that only one later store writes, before which what it reads has changed."""
        if not (isinstance(node, n.Let) and len(node.names) == 1 and is_pure(node.value)):
            return None
        if any(isinstance(x, n.Call) and x.fn in ("reduce", "scan", "sort") for x in walk(node.value)):
            return Miss("what is reduced has a name of its own")
        block, i = block_and_index(program, path)
        using = [k for k in range(i + 1, len(block)) if node.names[0] in names_read(block[k])]
        s = block[using[0]] if len(using) == 1 else None
        if not isinstance(s, n.Store) or s.at.buffer.space != "global" or s.label is not None or any(
                node.names[0] in names_read(x) for x in (s.at, *([] if s.mask is None else [s.mask]))):
            return Miss("it is more than what one later store writes")
        if not buffers_read(node.value) & buffers_written(block[i + 1:using[0]]):
            return Miss("what it is made of is the same where it is stored")
        return Site(path, DelayStore("" if s.value == n.Var(node.names[0], node.value.type) else expr_text(node.value), using[0] - i - 1))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The store, where the value was named."""
        (block, i), node = block_and_index(program, site.path), node_as(program, site.path, n.Let)
        early = replace(inlined(block[i + 1 + self.past], node.names[0], node.value), label=node.label)
        return edited(program, site.path, (early, *block[i + 1:i + 1 + self.past]), 0, 2 + self.past)
