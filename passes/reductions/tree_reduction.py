"""Reduces a tile as a tree over the threads instead of one element after the other.

pipeline: `tree-reduction@main/total`

```diff
 kir 1
 program row_sums
   in X: f32[M, 256]
   out S: f32[M]
   size M: i32
 kernel main grid (row: M) threads 128
-  @total register total: f32 = 0.0
-  for j in 0..256
-    total = total + X[row, j]
+  @total let total = reduce(X[row, 0 +: 256], axis=0, op=sum)
   S[row] = total
```
"""
from __future__ import annotations

from typing import ClassVar

from kir.analysis.elements import NotElementwise
from kir.analysis.loops.reductions import OPS, identity
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, dtype_of, shape_of
from kir.ir.visit import regions, statements, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import edit_block, kernel_of, names_in
from kir.rewrite.match import block_and_index, counting, fresh_var, from_zero, matched, matched_as, names_at, node_as
from kir.rewrite.match.folds import folded_by, slice_of, tile_over


def _folds(acc: n.Stmt, loop: n.Stmt) -> tuple[str, n.Expr] | None:
    """(reduction, element) of an accumulator and the loop that folds into it, and does nothing else."""
    if not (isinstance(acc, n.Alloc) and acc.buffer.space in ("register", "fragment") and isinstance(loop, n.For) and loop.kind == "serial"
            and from_zero(loop) and len(loop.body) == 1):
        return None
    return folded_by(acc, loop.body[0])


PLACES = {"argmax": "gt", "argmin": "lt"}
"""Reductions that give the first place of the best value, by how a better one compares."""


def _searched(block: n.Block, i: int) -> tuple[str, n.Expr] | None:
    """(reduction, element) of a scalar and a loop that keeps the place of the best value in it, and does nothing else."""
    at, loop = block[i], block[i + 1] if i + 1 < len(block) else None
    if not (isinstance(at, n.Alloc) and isinstance(loop, n.For) and loop.kind == "serial" and len(loop.body) == 1 and build.is_const(loop.lo, 0)
            and build.is_const(loop.step, 1) and build.int_value(loop.hi) and at.buffer.dtype == loop.var.of == I32 and at.init == build.const(0)
            and at.buffer.space == "register" and not at.buffer.shape):
        return None
    cond = loop.body[0].cond if isinstance(loop.body[0], n.If) else None
    op = next((op for op, way in PLACES.items() if isinstance(cond, n.Binary) and cond.op == way and dtype_of(cond.a.type).is_float), None)
    return (op, cond.a) if op is not None and isinstance(cond, n.Binary) and loop.body[0] == _better(op, at.buffer, cond.a, loop.var) else None


def _better(op: str, at: n.Buffer, value: n.Expr, place: n.Var) -> n.If:
    """Keeps a place whose value is better than the best so far."""
    best: n.Expr = substitute(value, {place.name: n.Load(n.Region(at))})
    return n.If(build.compare(PLACES[op], value, best), (n.Store(n.Region(at), place),))


def _as_value(block: n.Block, acc: n.Alloc, value: n.Var) -> n.Block:
    """Statements that read a named value, and its elements, in place of an accumulator."""
    def named(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, n.Load) and new.at.buffer == acc.buffer):
            return new
        index = [e for e in new.at.index if isinstance(e, n.Expr)]
        return value if not new.at.index else build.call("pick", value, *index) if len(index) == len(new.at.index) else new
    return tuple(transform(s, named) for s in block)


def _is_value(block: n.Block, acc: n.Alloc) -> bool:
    """Whether what statements read of a buffer can be read of a named value, too. What a copy moves is a place."""
    made = _as_value(block, acc, n.Var(acc.buffer.name, n.Region(acc.buffer).type))
    written = [s.at for s in statements(made) if isinstance(s, n.Store)]
    return not any(r.buffer == acc.buffer and not any(r is at for at in written) for s in made for r in regions(s)) and not any(
        isinstance(s, n.Copy) and s.src.at.buffer == acc.buffer for s in statements(block))


def _written_once(program: n.Program, site: Site, context: Context) -> Verdict:
    acc = node_as(program, site.path, n.Alloc)
    writes = [s for s in walk(kernel_of(program, site.path)) if isinstance(s, n.Store) and s.at.buffer.name == acc.buffer.name]
    if len(writes) > 1:
        return refuted(f"'{acc.buffer.name}' is written elsewhere too", f"{len(writes)} statements write it")
    return proved("only the loop writes the result")


@dataclass(frozen=True)
class TreeReduction(Pass):
    """`axis` of the tile that is reduced."""

    intent: ClassVar[str] = "tree-reduction"
    catalogue: ClassVar[tuple[int, ...]] = (44,)
    claim: ClassVar[str] = "A reduction takes the logarithm of its length in steps, spread over the threads."
    numerics: ClassVar[str] = "reassociated(axis)"
    provides: ClassVar[tuple[str, ...]] = ("reduction",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P441", "validity", "storage", "nothing else writes the result", _written_once),
    )

    axis: int = 0

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an accumulator that the next statement, a loop of known length, folds into."""
        if not isinstance(node, n.Alloc):
            return None
        block, i = block_and_index(program, path)
        if (place := _searched(block, i)) is not None:
            loop = matched_as(block[i + 1], n.For)
            try:
                tile_over(loop, place[1], 0)
            except NotElementwise as bad:
                return Miss(f"'{bad}' has no form as a tile")
            return Site(path, self) if self.axis == 0 else None
        found = _folds(node, block[i + 1]) if i + 1 < len(block) else None
        if found is None:
            return None
        loop = matched_as(block[i + 1], n.For)
        if build.int_value(loop.hi) is None:
            return Miss("the number of elements is not known")
        if self.axis > len(shape_of(found[1].type)):
            return Miss(f"there is no axis {self.axis}")
        if not _is_value(block[i + 2:], node):
            return Miss(f"a part of '{node.buffer.name}' is read as a tile, or it is handed on")
        try:
            tile_over(loop, found[1], self.axis)
        except NotElementwise as bad:
            return Miss(f"'{bad}' has no form as a tile")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One reduction of the whole tile."""
        block, i = block_and_index(program, site.path)
        place = _searched(block, i)
        if place is not None:
            return self._placed(program, site, place)
        acc, loop = block[i], block[i + 1]
        found = matched(_folds(acc, loop))
        assert isinstance(acc, n.Alloc) and isinstance(loop, n.For)
        value = build.call("reduce", tile_over(loop, found[1], self.axis), axis=self.axis, op=found[0])
        name = acc.buffer.name
        var = n.Var(name, value.type)
        let = n.Let((name,), value, label=acc.label, origin=acc.origin)
        made = edit_block(program, site.path, lambda b: (*b[:i], let, *_as_value(b[i + 2:], acc, var)))
        return Rewritten(made, site.path)

    def _placed(self, program: n.Program, site: Site, found: tuple[str, n.Expr]) -> Rewritten:
        """One reduction that gives a place."""
        block, i = block_and_index(program, site.path)
        at, loop = matched_as(block[i], n.Alloc), matched_as(block[i + 1], n.For)
        let = n.Let((at.buffer.name,), build.call("reduce", tile_over(loop, found[1], 0), axis=0, op=found[0]), label=at.label, origin=at.origin)
        var, own = n.Var(at.buffer.name, let.value.type), n.Load(n.Region(at.buffer))
        return Rewritten(edit_block(program, site.path, lambda b: (
            *b[:i], let, *(transform(s, lambda old, new: var if new == own else new) for s in b[i + 2:]))), site.path)

    def _search(self, program: n.Program, site: Site) -> Rewritten:
        """The place of the best value so far, and a loop over the elements."""
        node, i, taken = node_as(program, site.path, n.Let), int(site.path[-1]), names_at(program, site.path)
        assert isinstance(node.value, n.Call) and isinstance(node.value.args[0], n.Expr)
        op, source = str(dict(node.value.attrs)["op"]), node.value.args[0]
        j, extent, at = fresh_var("j", taken), matched_as(shape_of(source.type)[0], int), n.Buffer(node.names[0], I32, (), "register")
        body = (_better(op, at, slice_of(source, 0, j), j),)
        made = (n.Alloc(at, build.const(0), label=node.label, origin=node.origin), counting(j, extent, body))
        var, own = n.Var(node.names[0], node.value.type), n.Load(n.Region(at))
        return Rewritten(edit_block(program, site.path, lambda b: (
            *b[:i], *made, *(transform(s, lambda old, new: own if new == var else new) for s in b[i + 1:]))), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a named reduction of a tile."""
        if not (isinstance(node, n.Let) and isinstance(node.value, n.Call) and node.value.fn == "reduce" and len(node.names) == 1):
            return None
        options = dict(node.value.attrs)
        placed = options.get("op") in PLACES and isinstance(node.value.args[0], n.Expr) and len(shape_of(node.value.args[0].type)) == 1 and dtype_of(
            node.value.args[0].type).is_float and node.value.type == I32
        if (options.get("op") not in OPS and not placed) or options.get("keep") or len(node.value.args) != 1:
            return Miss(f"{options.get('op') or 'a combine function'} is no operation of two elements that folds serially")
        source = matched_as(node.value.args[0], n.Expr)
        axis = int(options["axis"])
        if not isinstance(shape_of(source.type)[axis], int):
            return Miss("the number of elements is not known")
        try:
            slice_of(source, axis, n.Var("%j", I32))
        except NotElementwise as bad:
            return Miss(f"'{bad}' has no single elements")
        return Site(path, TreeReduction(axis))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """An accumulator, and a loop over the elements."""
        node, i, kernel = node_as(program, site.path, n.Let), int(site.path[-1]), kernel_of(program, site.path)
        assert isinstance(node.value, n.Call)
        op, source = str(dict(node.value.attrs)["op"]), matched_as(node.value.args[0], n.Expr)
        if op in PLACES:
            return self._search(program, site)
        taken = names_in(program, kernel)
        j = fresh_var("j", taken)
        shape = shape_of(node.value.type)
        dtype = dtype_of(node.value.type)
        buffer = n.Buffer(node.names[0], dtype, tuple(build.const(d) if isinstance(d, int) else d for d in shape),
                          "fragment" if shape else "register")
        place = n.Region(buffer)
        fold = n.Store(place, build.binary(OPS[op], n.Load(place), slice_of(source, self.axis, j)))
        extent = matched_as(shape_of(source.type)[self.axis], int)
        loop = counting(j, extent, (fold,))

        def read(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Var) and new.name == node.names[0]:
                return n.Load(place)
            if isinstance(old, n.Call) and old.fn == "pick" and old.args[0] == n.Var(node.names[0], node.value.type):
                assert isinstance(new, n.Call)
                return build.load(build.region(buffer, *(a for a in new.args[1:] if isinstance(a, n.Expr))))
            return new
        acc = n.Alloc(buffer, identity(op, dtype), label=node.label, origin=node.origin)
        made = edit_block(program, site.path, lambda b: (*b[:i], acc, loop, *(transform(s, read) for s in b[i + 1:])))
        return Rewritten(made, site.path)
