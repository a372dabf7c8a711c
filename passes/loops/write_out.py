"""Writes all iterations of a short loop out, one after another, so that the loop is gone.

pipeline: `write-out@main/both`

```diff
 kir 1
 program scaled
   in X: f32[M, 2]
   out Y: f32[M, 2]
   size M: i32
 kernel main grid (row: M) threads 1
-  @both for v in 0..2
-    let x = X[row, v]
-    Y[row, v] = x * 2.0
+  let x = X[row, 0]
+  Y[row, 0] = x * 2.0
+  let x1 = X[row, 1]
+  Y[row, 1] = x1 * 2.0
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32, DType
from kir.ir.visit import children, names_read, once, statements, substitute, transform, unshared
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import block_at, edit_block, fresh
from kir.rewrite.match import block_and_index, counting, fresh_var, is_counted, names_at, node_as, sibling, splice

MOST_COPIES = 64
MOST_STATEMENTS = 8
"""Statements of one copy, at most."""


class Unlike(Exception):
    """Two statements that are no copies of one."""


def between(a: Any, b: Any, var: n.Var) -> Any:
    """What `a` is for 0 and `b` for 1, with integers that grow evenly; raises Unlike."""
    if a == b:
        return a
    if isinstance(a, n.Expr) and isinstance(b, n.Expr) and isinstance(a.type, DType) and a.type == b.type == I32:
        step = build.int_value(build.sub(b, a))
        if step is not None:
            return build.add(a, build.mul(var, step))
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(between(x, y, var) for x, y in zip(a, b, strict=True))
    if not isinstance(a, n.Node) or type(a) is not type(b) or isinstance(a, (n.Const, n.Var, n.Buffer)):
        raise Unlike
    made = {f: between(getattr(a, f), getattr(b, f), var) for f in a.compared_fields}
    return replace(a, **made)  # type: ignore[type-var]  # every node is a dataclass


def copy_of(block: n.Block, var: n.Var, number: int) -> n.Block:
    """A copy of statements for a number."""
    return tuple(unshared(substitute(s, {var.name: build.const(number)})) for s in block)


def _copy(block: n.Block, i: int, size: int, var: n.Var) -> n.Block | None:
    """What two neighboring runs of `size` statements are copies of, over `var`, with the names of the first; looked for once."""
    first, second = block[i:i + size], block[i + size:i + 2 * size]
    if i < 0 or len(second) < size or any(_outline(a) != _outline(b) for a, b in zip(first, second, strict=True)):
        return None
    known: dict[tuple[n.Block, n.Block, n.Var], n.Block | None] = once(first[0], "_copied", dict)
    key = first, second, var
    if key not in known:
        known[key] = _generalized(first, second, var)
    return known[key]


def _generalized(first: n.Block, second: n.Block, var: n.Var) -> n.Block | None:
    """What two runs of statements of the same outline are copies of."""
    if not any(isinstance(s, (n.Store, n.Eval, n.Copy, n.Mma)) for s in statements(first)):
        return None
    names, others = list(bound_names(first)), list(bound_names(second))
    if len(names) != len(others):
        return None
    again = dict(zip(others, names, strict=True))
    if _free(first, names) != {again.get(x, x) for x in _free(second, others)}:
        return None
    try:
        made: n.Block = between(first, tuple(rename(s, again) for s in second), var)
    except (Unlike, TypeError, ValueError):
        return None
    return made if any(var.name in names_read(s) for s in made) else None


def _outline(x: n.Node) -> int:
    """What is the same of two copies: the kinds of nodes, without names and numbers, and without what computes a whole number."""
    if isinstance(x, n.Expr) and x.type == I32:
        return 0
    return once(x, "_outline", lambda: hash((type(x).__name__, *map(_outline, children(x)))))


def _free(block: n.Block, bound: list[str]) -> set[str]:
    """The names that statements read from outside."""
    return set().union(*map(names_read, block)) - set(bound)


def _is_copy(block: n.Block, i: int, made: n.Block, var: n.Var, number: int) -> bool:
    """Whether the statements from `i` on are the copy for a number, up to the names that they bind; looked at once."""
    part = block[i:i + len(made)]
    if len(part) < len(made):
        return False
    known: dict[tuple[n.Block, n.Block, n.Var, int], bool] = once(part[0], "_copies", dict)
    key = part, made, var, number
    if key not in known:
        names, own = list(bound_names(made)), list(bound_names(part))
        again = dict(zip(own, names, strict=False))
        known[key] = len(own) == len(names) and (
            all(rename(s, again) == substitute(x, {var.name: build.const(number)}) for s, x in zip(part, made, strict=True)))
    return known[key]


def _amid(s: n.Stmt) -> set[n.Block]:
    """The runs of three copies in which a statement was found to begin the second: those need not be compared again."""
    return once(s, "_amid_copies", set)


def copies_at(block: n.Block, i: int, size: int, var: n.Var) -> tuple[n.Block, int] | None:
    """(one copy over `var`, how many) of the statements from `i` on, `size` to a copy; None for fewer than two."""
    made = _copy(block, i, size, var)
    if made is None:
        return None
    count = 0
    while count < MOST_COPIES and _is_copy(block, i + count * size, made, var, count):
        count += 1
    rest = block[i + count * size:]
    bound = {x for k in range(count) for x in bound_names(block[i + k * size:i + (k + 1) * size])}
    return (made, count) if count > 1 and not any(bound & names_read(s) for s in rest) else None


def _grows_evenly(loop: n.For) -> bool:
    """Whether a loop's first two iterations, written out, are copies of its body."""
    var = n.Var("%v", I32)
    first, second = (copy_of(loop.body, loop.var, k) for k in (0, 1))
    try:
        made: n.Block = between(first, second, var)
    except (Unlike, TypeError, ValueError):
        return False
    return all(a == substitute(b, {loop.var.name: var}) for a, b in zip(made, loop.body, strict=True))


def _stands_apart(block: n.Block, i: int, loop: n.For) -> bool:
    """Whether the copies of a loop's body begin and end where the loop is, and are copies of no smaller part."""
    size, outlines = len(loop.body), list(map(_outline, loop.body))
    if any(list(map(_outline, beside)) == outlines for beside in (block[max(0, i - size):i], block[i + 1:i + 1 + size])):
        return False
    two = (*copy_of(loop.body, loop.var, 0), *copy_of(loop.body, loop.var, 1))
    alike = [s for s in range(1, size) if [*outlines, *outlines][:s] == [*outlines, *outlines][s:2 * s]]
    return all(_generalized(two[:s], two[s:2 * s], n.Var("%v", I32)) is None for s in alike)


def _unlabeled(s: n.Stmt) -> n.Stmt:
    """A statement without labels: those stay with the first copy."""
    if all(x.label is None for x in statements((s,))):
        return s
    out: n.Stmt = transform(s, lambda old, new: replace(new, label=None) if isinstance(new, n.Stmt) and new.label is not None else new)  # type: ignore[type-var]  # every statement is a dataclass
    return out


@dataclass(frozen=True)
class WriteOut(Pass):
    """No parameters: the site is the loop."""

    intent: ClassVar[str] = "unroll"
    catalogue: ClassVar[tuple[int, ...]] = (52,)
    claim: ClassVar[str] = "No counter and no jump, and what is computed from the counter is known when the kernel is compiled."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop of a literal number of iterations."""
        if not (is_counted(node, plain=True)
                and node.var.of == I32):
            return None
        count = build.int_value(node.hi)
        if count is None or not 2 <= count <= MOST_COPIES or len(node.body) > MOST_STATEMENTS:
            return Miss("it has not a few iterations of a few statements")
        if any(isinstance(s, (n.Alloc, n.View, n.Jump)) for s in node.body):
            return Miss("an iteration has memory of its own, or may leave the loop")
        if not _grows_evenly(node):
            return Miss("what it computes from its count is no whole number that grows evenly: its copies are not known again")
        if not _stands_apart(block_at(program, path), int(path[-1]), node):
            return Miss("its copies would be taken for more of what stands beside it, or for copies of a part of it")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A copy for each iteration, with names of its own."""
        loop = node_as(program, site.path, n.For)
        taken, out = names_at(program, site.path), list[n.Stmt]()
        for k in range(build.int_value(loop.hi) or 0):
            names = {x: fresh(x, taken) for x in bound_names(loop.body)} if k else {}
            out += [rename(s if not k else _unlabeled(s), names) for s in copy_of(loop.body, loop.var, k)]
        made = splice(program, site.path, out)
        return Rewritten(made, site.path, {site.path: tuple(sibling(site.path, k) for k in range(len(out)))})

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of several copies of a few statements, in which integers grow evenly from 0."""
        if not isinstance(node, (n.Store, n.Let, n.If, n.For, n.Eval, n.Copy, n.Mma)) or (isinstance(node, n.For) and node.kind == "thread"):
            return None
        (block, i), var = block_and_index(program, path), n.Var("%v", I32)
        amid = _amid(node)
        for size in range(1, MOST_STATEMENTS + 1):
            if amid and i >= size and block[i - size:i + 2 * size] in amid:
                return Miss("it is not the first of the copies")
            before = _copy(block, i - size, size, var)
            if before is not None and _is_copy(block, i + size, before, var, 2):
                return Miss("it is not the first of the copies")
            found = copies_at(block, i, size, var)
            if found is not None:
                for k in range(i + size, i + size * (found[1] - 1), size):
                    _amid(block[k]).add(block[k - size:k + 2 * size])
                return Site(path, self, {"copy": found[0], "count": found[1], "size": size})
        return None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the copies."""
        i, copy, count, size = int(site.path[-1]), site.captures["copy"], site.captures["count"], site.captures["size"]
        var = fresh_var("v", names_at(program, site.path))
        body = tuple(substitute(s, {"%v": var}) for s in copy)
        loop = counting(var, count, body, label=block_at(program, site.path)[i].label)
        return Rewritten(edit_block(program, site.path, lambda b: (*b[:i], loop, *b[i + size * count:])), site.path)
