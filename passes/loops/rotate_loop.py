"""Puts the end of each iteration at the beginning of the next one, where it can run beside what that begins with.

pipeline: `rotate-loop{count=1}@main/loop`

```diff
 kir 1
 program squares
   in X: f32[N]
   out S: f32[1]
   size N: i32
   fact N >= 1
 kernel main grid (b: 1) threads 1
   register x: f32
   register total: f32 = 0.0
   x = X[0]
+  @loop for i in 0..N - 1
+    total = total + x * x
+    x = X[i + 1]
   total = total + x * x
-  @loop for i in 0..N - 1
-    x = X[i + 1]
-    total = total + x * x
   S[0] = total
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.analysis.simplify import simplified
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32
from kir.ir.visit import names_read, statements, transform
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict
from kir.rewrite.match import block_and_index, edited, fresh_names, is_counted, names_at, node_as, params_as
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.precondition import decided

from .split_loop import moved, same_up_to_names


def _counts_up(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    return decided(build.compare("ge", loop.hi, 0), Facts.at(program, site.path), "the loop has no less than no iterations",
                   "the loop's end may lie before its beginning, where the last of its iterations is none")


def _at(block: n.Block, loop: n.For, to: n.Expr, known: Facts | None = None) -> n.Block:
    """Statements in another iteration; where facts are given, as simple as they make them."""
    if known is None:
        return tuple(moved(s, loop.var.name, to) for s in block)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        """Quotients rounded down, so that those of neighboring iterations are spelled alike."""
        if isinstance(new, n.Binary) and new.op == "ceildiv" and loop.var.name in names_read(new) and (by := int_value(new.b)):
            return build.floordiv(build.add(new.a, by - 1), new.b)
        return new
    return tuple(simplified(moved(transform(s, leave), loop.var.name, to), known) for s in block)


def _known(program: n.Program, path: Path, loop: n.For, simple: bool) -> tuple[Facts | None, Facts | None]:
    """What is known beside the loop, and in it; nothing where statements are not to be simplified."""
    beside = Facts.at(program, path) if simple else None
    return beside, beside.ranging(loop.var, loop.lo, loop.hi, loop.step) if beside is not None else None


def _needs(end: n.Block, begin: n.Block) -> bool:
    """Whether the end of an iteration uses what its beginning declares."""
    own = set(bound_names(begin))
    return any(names_read(s) & own or any(mentions(s, x) for x in own) for s in end)


@dataclass(frozen=True)
class RotateLoop(Pass):
    """`count` is the number of statements at the end of an iteration that go over to the next one; with `simple`, they are written in the normal
    form's spelling."""

    intent: ClassVar[str] = "rotate-loop"
    catalogue: ClassVar[tuple[int, ...]] = (18, 36)
    claim: ClassVar[str] = "What an iteration ends with, and what the next one begins with, stand side by side and can be in flight together."
    provides: ClassVar[tuple[str, ...]] = ("rotated",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P716", "validity", "shape", "the loop's end does not lie before its beginning", _counts_up),)

    count: int = 1
    simple: bool = False

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop from 0 by 1, before which stands the same end of the iteration before."""
        if not is_counted(node, of=I32) or len(path) < 2:
            return None
        block, i = block_and_index(program, path)
        if not 0 < self.count < len(node.body) or self.count > i:
            return Miss("an iteration, or what stands before the loop, has fewer statements")
        if any(isinstance(x, n.Jump | n.Opaque | n.Hole) for x in statements(node.body)):
            return Miss("the body may leave early, or is not understood")
        begin, end = node.body[:-self.count], node.body[-self.count:]
        if any(isinstance(s, n.For | n.If | n.While) for s in end):
            return Miss("the end of an iteration has blocks of its own")
        ahead = _at(end, node, build.const(-1), _known(program, path, node, self.simple)[0])
        if not same_up_to_names(ahead, _bare(block[i - self.count:i], ahead)):
            return Miss("what stands before the loop is not the end of an iteration")
        if _needs(end, begin):
            return Miss("the end of an iteration uses what its beginning declares")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The ends one iteration later, and the last one after the loop."""
        loop, item = node_as(program, site.path, n.For), params_as(site, RotateLoop)
        begin, end = loop.body[:-item.count], loop.body[-item.count:]
        block, i = block_and_index(program, site.path)
        names = fresh_names(end, names_at(program, site.path))
        front = block[i - item.count:i]
        beside, inside = _known(program, site.path, loop, item.simple)
        last = tuple(replace(rename(s, names), label=old.label)  # type: ignore[type-var]  # every Stmt is a dataclass
                     for s, old in zip(_at(end, loop, build.sub(loop.hi, 1), beside), front, strict=True))
        made = replace(loop, body=(*_at(end, loop, build.sub(loop.var, 1), inside), *begin))
        return edited(program, site.path, (made, *last), -item.count, 1, at=-item.count)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop after which stands what one more iteration would begin with."""
        if not is_counted(node, of=I32) or len(path) < 2 or any(isinstance(x, n.Jump | n.Opaque | n.Hole) for x in statements(node.body)):
            return None
        block, i = block_and_index(program, path)
        for count in reversed(range(1, min(len(node.body), len(block) - i))):
            after, head = block[i + 1:i + 1 + count], node.body[:count]
            if [type(s) for s in after] != [type(s) for s in head] or any(isinstance(s, n.For | n.If | n.While) for s in head):
                continue
            for simple in (False, True):
                last = _at(head, node, node.hi, _known(program, path, node, simple)[0])
                if same_up_to_names(last, _bare(after, last)) and not _needs(node.body[count:], head) and not _needs(head, node.body[count:]):
                    return Site(path, RotateLoop(count, simple))
        return None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each end in its own iteration, and that of the one before the first in front of the loop."""
        loop, item = node_as(program, site.path, n.For), params_as(site, RotateLoop)
        end, begin = loop.body[:item.count], loop.body[item.count:]
        block, i = block_and_index(program, site.path)
        names = fresh_names(end, names_at(program, site.path))
        after = block[i + 1:i + 1 + item.count]
        beside, inside = _known(program, site.path, loop, item.simple)
        first = tuple(replace(rename(s, names), label=old.label)  # type: ignore[type-var]  # every Stmt is a dataclass
                      for s, old in zip(_at(end, loop, build.const(0), beside), after, strict=True))
        made = replace(loop, body=(*begin, *_at(end, loop, build.add(loop.var, 1), inside)))
        return edited(program, site.path, (*first, made), 0, 1 + item.count, at=item.count)


def _bare(block: n.Block, like: n.Block) -> n.Block:
    """A block with the labels of another one."""
    return tuple(replace(s, label=t.label) for s, t in zip(block, like, strict=False))  # type: ignore[type-var]  # every Stmt is a dataclass
