"""Brings neighbors that are read one by one in one wide load, and takes each from its vector.

pipeline: `join-loads{value="X[b * 32 + t, 0 +: 4]"}@main/t/store`

```diff
 kir 1
 program norms
   in X: f32[64, 4] align 16
   out S: f32[64]
 kernel main grid (b: 2) threads 32
   for t in 0..32 parallel thread
-    @store S[b * 32 + t] = X[b * 32 + t, 0] * X[b * 32 + t, 1] + X[b * 32 + t, 2] * X[b * 32 + t, 3]
+    let x = X[b * 32 + t, 0 +: 4]
+    @store S[b * 32 + t] = pick(x, 0) * pick(x, 1) + pick(x, 2) * pick(x, 3)
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from typing import ClassVar

from kir.analysis import Aliases
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import DTYPES, TileType
from kir.ir.visit import names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, edit_block, kernel_of
from kir.rewrite.match import block_and_index, fresh_var, matched, names_at, node_as, params_as
from kir.rewrite.match.local_buffers import team_level
from kir.rewrite.match.materialize import buffers_read, buffers_written, suggested_name
from kir.rewrite.view import expression_at, text_of

WIDTHS = (2, 4, 8, 16)


def _sound(program: n.Program, site: Site, context: Context) -> Verdict:
    item, (block, i) = params_as(site, JoinLoads), block_and_index(program, site.path)
    vector = matched(item.vector(program, site.path))
    aliases = Aliases(program)
    elements = {*item.elements(vector, block[i]), *(x for _, x in item.by_counter(vector, block[i:]))}
    last = max(k for k in range(i, len(block)) if any(x in elements for x in walk(block[k])))
    written = buffers_written(block[i:last + (0 if isinstance(block[last], n.Store) else 1)])  # a loop may write between its own reads
    clash = [(name, r) for name in sorted(written) for r in sorted(buffers_read(vector)) if name in ("*", r) or aliases.may_be_one(name, r)]
    if clash:
        return refuted(f"'{clash[0][0]}' is written between the reads", f"a later one sees the old '{clash[0][1]}'", needs="elements that stay as they are")
    return proved("nothing that the vector is made of is written meanwhile")


@dataclass(frozen=True)
class JoinLoads(Pass):
    """`value` is the text of the wide load, `dtype` what the vector is converted to as a whole. `counted`: a loop reads the elements by its counter."""

    intent: ClassVar[str] = "vectorize-global"
    catalogue: ClassVar[tuple[int, ...]] = (11, 25)
    claim: ClassVar[str] = "One instruction brings what several brought, and their bytes arrive together."
    provides: ClassVar[tuple[str, ...]] = ("vectorized",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P935", "validity", "aliasing", "the elements of the vector are not written while it is kept", _sound),)

    value: str = ""
    dtype: str = ""
    counted: bool = False

    def vector(self, program: n.Program, path: Path) -> n.Load | None:
        """The wide load."""
        found = expression_at(program, path, self.value)
        return found if isinstance(found, n.Load) and _is_wide(found) else None

    def elements(self, vector: n.Load, s: Place | None = None) -> dict[n.Expr, int | n.Var]:
        """The loads of its elements, and which each is: for a loop `s` over them that of its counter."""
        *rest, last = vector.at.index
        assert isinstance(last, n.Span) and isinstance(last.extent, int)
        if self.counted and isinstance(s, n.For):
            return {self.converted(replace(vector, at=build.region(vector.at.buffer, *rest, build.add(last.lo, s.var)))): s.var}
        return {self.converted(replace(vector, at=build.region(vector.at.buffer, *rest, build.add(last.lo, k)))): k for k in range(last.extent)}

    def by_counter(self, vector: n.Load, block: n.Block) -> Iterator[tuple[n.For, n.Expr]]:
        """The loops over the elements, with the load of that of the counter."""
        for loop in (x for s in block for x in walk(s) if isinstance(x, n.For) and _is_over(x, vector)):
            yield from ((loop, x) for x in replace(self, counted=True).elements(vector, loop))

    def converted(self, e: n.Expr) -> n.Expr:
        """What is kept of a value that is read."""
        return build.cast(e, DTYPES[self.dtype]) if self.dtype else e

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement of a thread that, with those that are carried out right after it, reads every element of the vector, or some where all are there."""
        if not self.value or self.dtype not in ("", *DTYPES) or not isinstance(node, n.Stmt) or not (
                team_level(program, path) == "thread" or build.is_const(kernel_of(program, path).threads, 1)):
            return None
        vector = self.vector(program, path)
        if vector is None or names_read(vector) & set(bound_names(block_at(program, path)[int(path[-1]):])):
            return Miss("it is no wide load of a tensor here")
        if self.counted:
            over = _is_over(node, vector) and any(x in self.elements(vector, node) for x in walk(node))
            return Site(path, self) if over else Miss("it is no loop over the elements")
        elements = self.elements(vector)
        if not any(x in elements for x in _evaluated(node)):
            return Miss("the statement reads none of its elements")
        read = {x for s in _straight(block_at(program, path)[int(path[-1]):]) for x in _evaluated(s) if x in elements}
        missing = len(elements) - len(read)
        if missing and not (read and _is_there(vector)):
            return Miss("the statement and those right after it do not read each of its elements, and the others may not be there")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The vector under a name, and its elements from there on."""
        i, vector = int(site.path[-1]), matched(self.vector(program, site.path))
        kept = self.converted(vector)
        name = fresh_var(suggested_name(vector), names_at(program, site.path), kept.type)
        block = block_at(program, site.path)
        where = self.elements(vector, block[i])
        if not self.counted:
            where |= {x: s.var for s, x in self.by_counter(vector, block[i:])}

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if not (isinstance(new, (n.Load, n.Cast)) and new in where):
                return new
            return build.call("pick", name, at if isinstance(at := where[new], n.Var) else build.const(at))
        if self.counted:
            return Rewritten(edit_block(program, site.path, lambda b: (*b[:i], n.Let((name.name,), kept), transform(b[i], leave), *b[i + 1:])), site.path)
        return Rewritten(edit_block(program, site.path, lambda b: (
            *b[:i], n.Let((name.name,), kept), *(transform(s, leave) for s in b[i:]))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a wide load that is only taken apart by numbers that are written out, all of them by the next statement that reads it."""
        if not (isinstance(node, n.Let) and len(node.names) == 1):
            return None
        vector, dtype = _vector(node)
        if vector is None or not _is_wide(vector):
            return None
        rest, name = block_at(program, path)[int(path[-1]) + 1:], node.names[0]
        picks = {x for s in rest for x in walk(s) if isinstance(x, n.Call) and x.fn == "pick" and isinstance(x.args[0], n.Var) and x.args[0].name == name}
        uses = sum(isinstance(x, n.Var) and x.name == name for s in rest for x in walk(s))
        if rest and _is_over(rest[0], vector) and not any(name in names_read(s) for s in rest[1:]):
            assert isinstance(rest[0], n.For)
            if picks and all(x.args[1] == rest[0].var for x in picks) and uses == sum(x in picks for x in walk(rest[0])):
                return Site(path, JoinLoads(text_of(vector), dtype, True))
        counters = {x.var for s in rest for x in walk(s) if isinstance(x, n.For) and _is_over(x, vector)}
        named = all(isinstance(x.args[1], n.Const) or x.args[1] in counters for x in picks)
        if not picks or not named or uses != sum(x in picks for s in rest for x in walk(s)):
            return Miss("it is more than taken apart by numbers")
        return Site(path, JoinLoads(text_of(vector), dtype))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each element where it is needed."""
        let, i = node_as(program, site.path, n.Let), int(site.path[-1])
        params, block = params_as(site, JoinLoads), block_at(program, site.path)
        vector = matched(_vector(let)[0])
        if params.counted:
            (element,) = params.elements(vector, block[i + 1])

            def counted(old: n.Node, new: n.Node) -> n.Node:
                return element if isinstance(new, n.Call) and new.fn == "pick" and isinstance(v := new.args[0], n.Var) and v.name == let.names[0] else new
            return Rewritten(edit_block(program, site.path, lambda b: (*b[:i], transform(b[i + 1], counted), *b[i + 2:])), site.path)
        loads: dict[int | n.Var, n.Expr] = {k: x for x, k in self.elements(vector).items()}
        loads |= {s.var: x for s, x in self.by_counter(vector, block[i:])}

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Call) and new.fn == "pick" and isinstance(new.args[0], n.Var) and new.args[0].name == let.names[0]:
                return loads[at] if isinstance(at := new.args[1], n.Var) else loads[build.int_value(at) or 0]  # type: ignore[arg-type]  # as matched
            return new
        first = next(k for k in range(i + 1, len(block)) if let.names[0] in names_read(block[k])) - 1
        made = edit_block(program, site.path, lambda b: (*b[:i], *(transform(s, leave) for s in b[i + 1:])))
        return Rewritten(made, (*site.path[:-1], first))


def _vector(s: n.Let) -> tuple[n.Load | None, str]:
    """The load that a name is for, and the dtype that it is converted to; "" for its own."""
    value, dtype = (s.value.x, s.value.dtype.name) if isinstance(s.value, n.Cast) and s.value.rounding == "rn" else (s.value, "")
    return (value, dtype) if isinstance(value, n.Load) else (None, "")


def _is_wide(x: n.Load) -> bool:
    """Whether a load brings a few neighbors of a tensor, or of a thread's own array."""
    last = x.at.index[-1] if x.at.index else None
    return (x.at.buffer.space in ("global", "register") and isinstance(x.type, TileType) and isinstance(last, n.Span) and last.step == 1
            and last.extent in WIDTHS and x.mask is None and not x.clip
            and all(isinstance(i, n.Expr) and not isinstance(i.type, TileType) for i in x.at.index[:-1]))


def _is_there(vector: n.Load) -> bool:
    """Whether all elements of a wide load are inside the tensor's last axis, as literals say, wherever one of them is."""
    last, extent = vector.at.index[-1], build.int_value(vector.at.buffer.shape[-1])
    lo = build.int_value(last.lo) if isinstance(last, n.Span) else None
    return isinstance(last, n.Span) and isinstance(last.extent, int) and lo is not None and extent is not None and lo >= 0 and lo + last.extent <= extent


def _is_over(s: Place, vector: n.Load) -> bool:
    """Whether a statement is a loop that counts the elements of a wide load."""
    last = vector.at.index[-1]
    return isinstance(s, n.For) and s.kind == "serial" and isinstance(last, n.Span) and build.is_const(s.lo, 0) and build.is_const(s.step, 1) and (
        build.int_value(s.hi) == last.extent and s.var.name not in names_read(vector))


def _straight(block: n.Block) -> Iterator[n.Stmt]:
    """The first statement of a block, and those that are carried out after it whatever happens."""
    yield block[0]
    yield from takewhile(lambda s: isinstance(s, (n.Let, n.Alloc)) or (isinstance(s, n.Store) and s.mask is None), block[1:])


def _evaluated(s: n.Stmt) -> list[n.Expr]:
    """What a statement itself computes."""
    parts = (s.value, *s.at.index) if isinstance(s, n.Store) else (s.value,) if isinstance(s, n.Let) else (s.init,) if isinstance(s, n.Alloc) else ()
    return [x for p in parts if isinstance(p, n.Expr) for x in walk(p) if isinstance(x, n.Expr)]
