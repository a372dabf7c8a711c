"""Takes one value out of a row by a sum of it and zeros, where the threads hold the row and none can ask for one element of it.

pipeline: `pick-by-sum@main/last`

```diff
 kir 1
 program last_of_each
   in X: f32[M, 64]
   out Y: f32[M, 64]
   out Z: f32[M]
   size M: i32
 kernel main grid (row: M) threads 64
   let total = scan(X[row, 0 +: 64], axis=0, op=sum)
   Y[row, 0 +: 64] = total
-  @last let last = pick(total, 63) * 2.0
+  @last register last: f32 = 0.0
+  for j in 0..64
+    last = last + select(j == 63, pick(total, j) * 2.0, 0.0)
   Z[row] = last
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, dtype_of, shape_of
from kir.ir.visit import substitute, transform, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Rewritten, Site
from kir.rewrite.edit import edit_block
from kir.rewrite.match import block_and_index, counting, fresh_var, is_counted, matched, matched_as, names_at, node_as
from kir.rewrite.match.folds import folded_by
from kir.rewrite.match.materialize import is_pure


def _row(e: n.Expr) -> tuple[int, int] | None:
    """(number of elements, which): what is picked in a value, where that is one place of rows of one length."""
    picks = [x for x in walk(e) if isinstance(x, n.Call) and x.fn == "pick"]
    found = {(shape_of(matched_as(x.args[0], n.Expr).type), build.int_value(matched_as(x.args[1], n.Expr))) for x in picks if len(x.args) == 2}
    (shape, at), *more = found or {((), None)}
    rows = not more and all(len(x.args) == 2 and isinstance(x.args[0], n.Var) for x in picks)
    count = shape[0] if len(shape) == 1 else None
    return (count, at) if rows and isinstance(count, int) and at is not None and 0 <= at < count and count > 1 else None


def _element(e: n.Expr, j: n.Var) -> n.Expr:
    """A value in which what is picked at one place is picked at another."""
    def leave(_: n.Node, new: n.Node) -> n.Node:
        return build.call("pick", matched_as(new.args[0], n.Expr), j) if isinstance(new, n.Call) and new.fn == "pick" else new
    return matched_as(transform(e, leave), n.Expr)


def _summed(block: n.Block, i: int) -> tuple[n.Alloc, n.For, n.Expr, int] | None:
    """A sum, its loop, the value of an element, and which is chosen."""
    acc, loop = block[i], block[i + 1] if i + 1 < len(block) else None
    if not (isinstance(acc, n.Alloc) and not acc.buffer.shape and acc.buffer.space == "register" and is_counted(loop, of=I32, plain=True)
            and len(loop.body) == 1 and build.int_value(loop.hi)):
        return None
    found = folded_by(acc, loop.body[0])
    term = found[1] if found is not None and found[0] == "sum" else None
    if not (isinstance(term, n.Select) and isinstance(term.cond, n.Binary) and term.cond.op == "eq" and term.cond.a == loop.var
            and build.is_const(term.b) and term.b == build.const(0, acc.buffer.dtype)):
        return None
    at = build.int_value(term.cond.b)
    return None if at is None else (acc, loop, term.a, at)


def _for_each(value: n.Expr) -> str:
    """Why what is computed of one element should not be computed of each ("" where it may)."""
    for x in walk(value):
        if isinstance(x, n.Load) and (x.at.buffer.space not in ("register", "fragment") or x.at.buffer.shape):
            return f"'{x.at.buffer.name}' would be read for each element"
        if isinstance(x, n.Binary) and x.op in ("floordiv", "mod", "tdiv", "trem", "ceildiv") and not build.int_value(x.b):
            return "an element that is not chosen may be divided by zero"
    return ""


@dataclass(frozen=True)
class PickBySum(Pass):
    """Every element but the chosen one counts as zero."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44,)
    claim: ClassVar[str] = "One value of a row that the threads hold comes to all of them by a reduction, without a trip through memory."
    numerics: ClassVar[str] = "reassociated(axis)"
    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a named number that is made of one element of rows of one length."""
        if not (isinstance(node, n.Let) and len(node.names) == 1 and isinstance(node.value.type, DType) and not node.value.type.is_bool):
            return None
        if not any(isinstance(x, n.Call) and x.fn == "pick" for x in walk(node.value)):
            return None
        if not is_pure(node.value) or _row(node.value) is None:
            return Miss("it is not made of one place of named rows of one length")
        return Miss(reason) if (reason := _for_each(node.value)) else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The sum, from zero on, over all elements."""
        i, node, taken = int(site.path[-1]), node_as(program, site.path, n.Let), names_at(program, site.path)
        (count, at), dtype = matched(_row(node.value)), dtype_of(node.value.type)
        j, acc, zero = fresh_var("j", taken), n.Buffer(node.names[0], dtype, (), "register"), build.const(0, dtype)
        own = n.Region(acc)
        term = n.Select(build.compare("eq", j, build.const(at)), _element(node.value, j), zero)
        loop = counting(j, count, (n.Store(own, build.binary("add", n.Load(own), term)),))
        var, read = n.Var(node.names[0], node.value.type), n.Load(own)
        made = (n.Alloc(acc, zero, label=node.label, origin=node.origin), loop)
        return Rewritten(edit_block(program, site.path, lambda b: (
            *b[:i], *made, *(transform(s, lambda _, new: read if new == var else new) for s in b[i + 1:]))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a sum of which all terms but one are zero."""
        if not isinstance(node, n.Alloc):
            return None
        block, i = block_and_index(program, path)
        found = _summed(block, i)
        if found is None:
            return None
        acc, loop, value, at = found
        if any(isinstance(x, n.Region) and x.buffer == acc.buffer and isinstance(s, n.Store) and s.at == x for s in block[i + 2:] for x in walk(s)):
            return Miss(f"'{acc.buffer.name}' is written behind it, too")
        chosen = matched_as(substitute(value, {loop.var.name: build.const(at)}), n.Expr)
        return Site(path, PickBySum()) if _row(chosen) == (build.int_value(loop.hi), at) else Miss("its terms are not made of the elements of named rows")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The one term."""
        block, i = block_and_index(program, site.path)
        acc, loop, value, at = matched(_summed(block, i))
        chosen = matched_as(substitute(value, {loop.var.name: build.const(at)}), n.Expr)
        var, read = n.Var(acc.buffer.name, chosen.type), n.Load(n.Region(acc.buffer))
        let = n.Let((acc.buffer.name,), chosen, label=acc.label, origin=acc.origin)
        return Rewritten(edit_block(program, site.path, lambda b: (
            *b[:i], let, *(transform(s, lambda _, new: var if new == read else new) for s in b[i + 2:]))), site.path)
