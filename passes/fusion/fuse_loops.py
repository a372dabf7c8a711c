"""Runs two loops of the same length as one: each iteration does what both did.

pipeline: `fuse-loops@main/first`

```diff
 kir 1
 program two_results
   size M: i32
   in X: f32[M, 256]
   out Y: f32[M, 256]
   out S: f32[M]
 kernel main grid (row: M) threads 1
+  register total: f32 = 0.0
   @first for i in 0..256
     Y[row, i] = X[row, i] * 2.0
-  register total: f32 = 0.0
-  for j in 0..256
-    total = total + Y[row, j]
+    total = total + Y[row, i]
   S[row] = total
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from kir.analysis import Aliases, Facts
from kir.analysis.access import accesses, may_overlap
from kir.analysis.solver import decide
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import region_text
from kir.ir.types import DType
from kir.ir.visit import buffers_named, names_read, statements, substitute, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import edit_block
from kir.rewrite.match import block_and_index, fresh_var, matched, matched_as, names_at, node_as, params_as, sibling
from kir.rewrite.match.materialize import is_pure
from kir.rewrite.match.sums import in_order


def _second(block: n.Block, i: int) -> int | None:
    """The statement that is the next loop, where only declarations stand between."""
    k = i + 1
    while k < len(block) and _is_declaration(block[k]):
        k += 1
    return k if k < len(block) and isinstance(block[k], n.For) else None


def _is_declaration(s: n.Stmt) -> bool:
    return isinstance(s, n.Alloc) and s.buffer.space == "register" and (s.init is None or isinstance(s.init, n.Const))


def _in_order(program: n.Program, site: Site, context: Context) -> Verdict:
    block, i = block_and_index(program, site.path)
    at = _second(block, i)
    first, second = matched_as(block[i], n.For), block[at] if at is not None else None
    assert isinstance(second, n.For)
    aliases, known = Aliases(program), Facts.at(program, site.path)
    known = known.ranging(first.var, first.lo, first.hi, first.step)
    early = n.Var(f"%{first.var.name}", first.var.of)
    inside = known.ranging(early, first.lo, first.var, first.step)
    for s in (*statements(first.body), *statements(second.body)):
        if isinstance(s, n.For):
            inside = inside.ranging(s.var, s.lo, s.hi, s.step)
    moved: Any = substitute(replace(second, hi=second.lo), {second.var.name: early})
    own = set(bound_names(first.body)) | set(bound_names(second.body))
    for a in (x for s in first.body for x in accesses(s)):
        for b in (x for s in moved.body for x in accesses(s)):
            if not (a.writes or b.writes) or {a.buffer, b.buffer} & own or not aliases.may_be_one(a.buffer, b.buffer):
                continue
            if a.at is None or b.at is None or a.buffer != b.buffer or may_overlap(a.at, b.at, inside):
                places = f"{region_text(b.at) if b.at is not None else b.buffer} and {region_text(a.at) if a.at is not None else a.buffer}"
                where = _meet(a.at, b.at, inside) if a.at is not None and b.at is not None and a.buffer == b.buffer else None
                if where is None:
                    return unknown(f"an iteration of the second loop may touch '{b.buffer}' where a later one of the first does: {places}",
                                   needs="iterations that touch places of their own")
                clash = refuted(f"an iteration of the second loop touches '{b.buffer}' where a later one of the first does", f"{places}{where}",
                                needs="iterations that touch places of their own")
                both: Any = substitute(replace(second, hi=second.lo), {second.var.name: first.var})
                return in_order(program, replace(first, body=(*first.body, *both.body)), clash)
    return proved("no iteration of the second loop touches what a later one of the first does")


def _meet(a: n.Region, b: n.Region, known: Facts) -> str | None:
    """Where two places surely are one: "" where they are the same text, else values at which they are; None where none are known."""
    claim: n.Expr | None = None
    for x, y in zip(a.index, b.index, strict=False):
        if x == y:
            continue
        if not (isinstance(x, n.Expr) and isinstance(y, n.Expr) and isinstance(x.type, DType) and x.type == y.type):
            return None
        apart = build.compare("ne", x, y)
        claim = apart if claim is None else build.logical_or(claim, apart)
    if claim is None:
        return ""
    answer = decide(claim, known)
    return f" at {answer.shown()}" if answer.witness else None


def _plain(loop: n.Stmt | None) -> bool:
    """Whether a statement is a loop whose iterations only compute, load and store, or in which lanes that all run it alike exchange values."""
    if not isinstance(loop, n.For) or loop.kind != "serial" or loop.attrs:
        return False
    ladder = all(isinstance(s, n.Let | n.Store) for s in loop.body) and all(isinstance(e, n.Const) for e in (loop.lo, loop.hi, loop.step))
    return all(isinstance(s, (n.Store, n.If, n.For, n.Alloc)) or (isinstance(s, n.Let) and (is_pure(s.value) or (ladder and _is_shuffle(s.value))))
               for s in statements(loop.body))


def _is_shuffle(e: n.Expr) -> bool:
    """Whether a value is that of another lane."""
    return isinstance(e, n.Call) and e.fn.startswith("shfl_") and all(isinstance(a, n.Expr) and is_pure(a) for a in e.args)


@dataclass(frozen=True)
class FuseLoops(Pass):
    """`at` is the number of statements that come from the first loop."""

    intent: ClassVar[str] = "fuse"
    catalogue: ClassVar[tuple[int, ...]] = (55, 84)
    claim: ClassVar[str] = "One loop in place of two: what both touch is touched while it is close, and the loop is counted once."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P841", "validity", "storage", "no iteration of the second loop needs a later one of the first", _in_order),)

    at: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop that is followed by another with the same bounds."""
        if not isinstance(node, n.For) or not _plain(node):
            return None
        block, i = block_and_index(program, path)
        at = _second(block, i)
        second = block[at] if at is not None else None
        if not isinstance(second, n.For) or not _plain(second):
            return None
        if (node.lo, node.hi, node.step, node.var.of) != (second.lo, second.hi, second.step, second.var.of):
            return Miss("the loops have other bounds")
        if self.at not in (0, len(node.body)):
            return Miss(f"the first loop has {len(node.body)} statements")
        return Site(path, replace(self, at=len(node.body)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One loop, after the declarations that stood between."""
        block, i = block_and_index(program, site.path)
        at = matched(_second(block, i))
        first, second = matched_as(block[i], n.For), matched_as(block[at], n.For)
        inner: Any = substitute(replace(second, hi=second.lo), {second.var.name: first.var})
        made = replace(first, body=(*first.body, *inner.body))
        out = edit_block(program, site.path, lambda b: (*b[:i], *b[i + 1:at], made, *b[at + 1:]))
        here = (*site.path[:-1], at - 1)
        hints = {(*site.path[:-1], at): (here,), **{(*site.path[:-1], at, "body", k): ((*here, "body", len(first.body) + k),) for k in range(len(second.body))}}
        return Rewritten(out, here, {site.path: (here,), **hints})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop whose statements fall into two parts, of which the second needs no value of the first."""
        if not isinstance(node, n.For) or not _plain(node) or len(node.body) < 2:
            return None
        found = []
        for at in range(1, len(node.body)):
            first, second = node.body[:at], node.body[at:]
            if not set(bound_names(first)) & {x for s in second for x in _mentioned(s)}:
                found.append(Site(path, FuseLoops(at)))
        return tuple(found) or Miss("its statements need one another's values")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Two loops; what only the second needs is declared between them."""
        node, (block, i), item = node_as(program, site.path, n.For), block_and_index(program, site.path), params_as(site, FuseLoops)
        var = fresh_var(node.var.name, names_at(program, site.path), node.var.of)
        first = replace(node, body=node.body[:item.at])
        moved: Any = substitute(replace(node, hi=node.lo, body=node.body[item.at:]), {node.var.name: var})
        second = n.For(var, node.lo, node.hi, node.step, moved.body)
        start = i
        while start and _is_declaration(block[start - 1]) and not _mentions((first,), block[start - 1]) and _mentions((second,), block[start - 1]):
            start -= 1
        out = edit_block(program, site.path, lambda b: (*b[:start], first, *b[start:i], second, *b[i + 1:]))
        here = (*site.path[:-1], start)
        there = sibling(site.path, 1)
        hints = {site.path: (here,), **{(*site.path, "body", k): (((*here, "body", k) if k < item.at else (*there, "body", k - item.at)),)
                                        for k in range(len(node.body))}}
        return Rewritten(out, here, hints)


def _mentioned(s: n.Stmt) -> frozenset[str]:
    """Names that a statement reads, and buffers that it touches."""
    return names_read(s) | {x.name for x in walk(s) if isinstance(x, n.Buffer)}


def _mentions(block: n.Block, declared: n.Stmt) -> bool:
    assert isinstance(declared, n.Alloc)
    return any(declared.buffer.name in buffers_named(s) for s in block)
