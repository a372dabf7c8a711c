"""Writes a loop of rank-1 updates as one product of panels.

pipeline: `panel-product@main/d`

```diff
 kir 1
 program scores
   in Q: f16[M, 64]
   in K: f16[N, 64]
   out S: f32[M, N]
   size M: i32
   size N: i32
   fact M % 16 == 0
   fact N % 32 == 0
 kernel main grid (i: M // 16, j: N // 32) threads 1
   fragment s: f32[16, 32] = 0.0
-  @d for d in 0..64
-    s = s + cast(expand(Q[i * 16 +: 16, d], axis=1), f32) * cast(K[j * 32 +: 32, d], f32)
+  @d mma s += Q[i * 16 +: 16, 0 +: 64] * trans(K[j * 32 +: 32, 0 +: 64], 1, 0) via fma
   S[i * 16 +: 16, j * 32 +: 32] = s
```
"""
from __future__ import annotations

from typing import ClassVar, Literal

from kir.analysis.elements import NotElementwise, element, tile
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32, I32, TileType, dtype_of, shape_of
from kir.ir.visit import names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, enclosing
from kir.rewrite.match import counting, edited, fresh_var, is_counted, matched_as, names_at, node_as
from kir.rewrite.match.materialize import buffers_read

from ._product_operands import bare, rounded

ROW, COLUMN, STEP = n.Var("%row", I32), n.Var("%column", I32), n.Var("%step", I32)


def _operands_stay(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    assert isinstance(loop.body[0], n.Store)
    at = loop.body[0].at
    v = matched_as(loop.body[0].value, n.Binary)
    if at.buffer.name in buffers_read(v.b):
        return refuted(f"an update reads '{at.buffer.name}', which the one before it has changed", f"{loop.var.name} = 1 sees what 0 added",
                       needs="operands that stay as they are")
    return proved("no update changes what a later one reads")


@dataclass(frozen=True)
class PanelProduct(Pass):
    """`precision` of the product (of f32 operands)."""

    intent: ClassVar[str] = "register-tile"
    catalogue: ClassVar[tuple[int, ...]] = (50, 37)
    claim: ClassVar[str] = "A product of whole panels is one statement, which the surface may give to tensor cores or to registers."
    numerics: ClassVar[str] = "reassociated(k)"
    provides: ClassVar[tuple[str, ...]] = ("mma",)
    by_elements: ClassVar[bool] = True
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P865", "validity", "aliasing", "no update changes what a later one reads", _operands_stay),)

    precision: Literal["ieee", "tf32"] = "ieee"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a serial loop of known length whose one statement adds a product of a column and a row to a whole tile."""
        if not (is_counted(node, plain=True)
                and build.int_value(node.hi) is not None and len(node.body) == 1):
            return None
        found = self._product(node)
        return found if isinstance(found, Miss) or found is None else Site(path, self)

    def _product(self, loop: n.For) -> n.Mma | Miss | None:
        s, extent = loop.body[0], build.int_value(loop.hi)
        if not (isinstance(s, n.Store) and not s.at.index and s.at.buffer.space != "global" and s.mask is None and isinstance(s.value, n.Binary)
                and s.value.op == "add" and s.value.a == n.Load(s.at) and len(shape_of(s.at.type)) == 2):
            return None
        rows, columns = shape_of(s.at.type)
        try:
            scalar = element(s.value.b, [build.const(0) if rows == 1 else ROW, build.const(0) if columns == 1 else COLUMN])
            if not (isinstance(scalar, n.Binary) and scalar.op == "mul" and loop.var.name in names_read(scalar.a) & names_read(scalar.b)):
                return Miss("it adds no product over its variable")
            if COLUMN.name in names_read(scalar.a) or ROW.name in names_read(scalar.b):
                return Miss("the first factor depends on the column, or the second on the row")
            a, b = (bare(x, s.at.buffer.dtype, self.precision) for x in (scalar.a, scalar.b))
            if a is None or b is None:
                return Miss(f"the factors are not rounded to {self.precision}")
            assert extent is not None
            return n.Mma(s.at, tile(a, [(ROW, rows), (loop.var, extent)]), tile(b, [(loop.var, extent), (COLUMN, columns)]), via="fma",
                         precision=self.precision, label=loop.label, origin=s.origin)
        except NotElementwise as bad:
            return Miss(f"'{bad}' has no form as a panel")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """One product."""
        loop = node_as(program, site.path, n.For)
        made = matched_as(self._product(loop), n.Mma)
        return edited(program, site.path, (made,))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a product on scalar units of two panels of known depth into a whole tile."""
        if not (isinstance(node, n.Mma) and node.via == "fma"):
            return None
        if node.attrs or node.acc.index or node.pending or len(shape_of(node.a.type)) != 2 or not isinstance(shape_of(node.a.type)[1], int):
            return Miss("the product has options of its own, or is one of a batch")
        if node.precision not in ("ieee", "tf32") or (node.precision == "tf32" and dtype_of(node.a.type) != F32):
            return Miss(f"a product in {node.precision} is no sum of products")
        if any(isinstance(x, n.Load) and x.at.buffer.space == "shared" for e in (node.a, node.b) for x in walk(e)):
            return Miss("an operand lies in shared memory, where a copy of it has brought it")
        if _is_named_load(program, path, node.a) or _is_named_load(program, path, node.b):
            return Miss("a tile that it reads has a name, which goes first")
        if node.precision == "ieee" and self._of_panels(program, path, node):  # what rounds its operands is no product of longer panels
            return Miss("its depth is that of the panels of a loop around it")
        return Site(path, PanelProduct(node.precision))  # type: ignore[arg-type]  # one of the two, tested above

    def _of_panels(self, program: n.Program, path: Path, s: n.Mma) -> bool:
        """Whether a loop around the product, in which the sum goes on, goes on along the axis that it contracts, from panel to panel; not one that leaves
        panels out, by a branch in it, or whose panels have factors of their own, or begin in the midst of one operand."""
        branches = [p for p, x in enclosing(program, path) if isinstance(x, n.If)]
        loops = {x.var.name for p, x in enclosing(program, path) if isinstance(x, n.For) and not any(b[:len(p)] == p for b in branches) and not any(
            isinstance(y, n.Alloc) and y.buffer == s.acc.buffer for y in statements(x.body))}
        lets = {x.names[0]: x.value for x in block_at(program, path)[:int(path[-1])] if isinstance(x, n.Let) and len(x.names) == 1}
        moving: list[n.Expr] = []
        for operand, index in ((s.a, [ROW, STEP]), (s.b, [STEP, COLUMN])):
            try:
                factor = element(operand, index, lets)
            except NotElementwise:
                continue
            moving += [i for x in walk(factor) if isinstance(x, n.Region) for i in x.index if isinstance(i, n.Expr) and names_read(i) & loops]
        return bool(moving) and all(_goes_on(i, loops) for i in moving)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the columns of the first operand."""
        s = node_as(program, site.path, n.Mma)
        (rows, extent), columns = shape_of(s.a.type), shape_of(s.b.type)[1]
        k = fresh_var("k", names_at(program, site.path))
        dtype = s.acc.buffer.dtype
        row, column = build.const(0) if rows == 1 else ROW, build.const(0) if columns == 1 else COLUMN
        factors = [rounded(build.cast(element(x, index), dtype), self.precision) for x, index in ((s.a, [row, k]), (s.b, [k, column]))]
        assert isinstance(extent, int)
        value = build.binary("add", build.load(s.acc), tile(build.binary("mul", *factors), [(ROW, rows), (COLUMN, columns)]))
        assert isinstance(value.type, TileType)
        loop = counting(k, extent, (n.Store(s.acc, value, origin=s.origin),), label=s.label)
        return edited(program, site.path, (loop,))


def _goes_on(index: n.Expr, loops: set[str]) -> bool:
    """Whether an index along the contracted axis is that of a panel of a loop: it grows with the loop, and begins where no size or CTA says."""
    if STEP.name not in names_read(index) or not names_read(index) & loops:
        return False
    fixed = [m for m in build.polynomial(index) if m and not any(names_read(x) & {STEP.name, *loops} for x in m)]
    return not fixed


def _is_named_load(program: n.Program, path: Path, e: n.Expr) -> bool:
    """Whether an operand is the name of a tile of global memory."""
    if not isinstance(e, n.Var):
        return False
    blocks = [block_at(program, p)[:int(p[-1])] for p in (*(p for p, x in enclosing(program, path) if isinstance(x, n.Stmt)), path)]
    value = next((s.value for block in blocks for s in block if isinstance(s, n.Let) and s.names == (e.name,)), None)
    while isinstance(value, n.Cast) or (isinstance(value, n.Call) and value.fn == "trans"):
        inner = value.x if isinstance(value, n.Cast) else value.args[0]
        value = inner if isinstance(inner, n.Expr) else None
    return isinstance(value, n.Load) and value.at.buffer.space == "global"
