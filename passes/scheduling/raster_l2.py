"""Walks output tiles in panels of rows, so that CTAs that run at the same time share operand tiles in L2. Where CTAs form clusters, clusters
are what is put in order.

pipeline: `raster-l2{group=8}@main`

```diff
 kir 1
 program tiles
   size M: i32
   size N: i32
   out C: f32[M, N]
 kernel main grid (pid: M * N) threads 1
-  let m = pid // N
-  let n = pid % N
+  let width = N * 8
+  let panel = pid // width
+  let first = panel * 8
+  let height = min(M - first, 8)
+  let m = first + pid % width % height
+  let n = pid % width // height
   C[m, n] = 1.0
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import add, const, floordiv, from_polynomial, int_value, minimum, mod, mul, polynomial, sub
from kir.ir.printer import expr_text
from kir.ir.types import DType, dtype_of
from kir.ir.visit import names_read, substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import fresh, names_in, replace_kernel
from kir.rewrite.match import params_as

PARTS = ("rows", "width", "panel", "first", "height", "local")
"""Intermediate values, in the order in which they are computed: rows of tiles, tiles in a panel, which panel, its first row, its number of
rows, and the CTA's index in it."""
USUAL = {"panel": "group_id", "first": "first_pid_m", "height": "group_size"}
"""What these values are called in most kernels."""


def _only_rows_and_columns(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, (row, column) = site.captures["kernel"], site.captures["lets"]
    name = site.captures["axis"].name
    others = [s for i, s in enumerate(kernel.body) if i not in (row, column) and name in names_read(s)]
    if others:
        where = (f"in {type(s).__name__} {s.label or ''}".strip() for s in others)
        return refuted("the CTA's index is used for more than its tile", *where,
                       needs="row and column as the only uses of the CTA's index")
    return proved("row and column are its only uses")


def _whole_panels(program: n.Program, site: Site, context: Context) -> Verdict:
    item, rows = params_as(site, RasterL2), site.captures["rows"]
    known = Facts.at(program, (*site.path, min(site.captures["lets"])))
    if not item.full:
        return proved("the last panel is as high as the rows that are left")
    if known.divides(item.group, rows):
        return proved("panels divide the rows")
    left = known.domain(known.expanded(rows)).value
    if left is not None:
        return refuted("the last panel is not whole", f"{left} rows in panels of {item.group}",
                       needs="a group that divides the rows, or full=false")
    return unknown("it is not known that panels divide the rows", needs=f"a fact that {expr_text(rows)} is a multiple of {item.group}")


@dataclass(frozen=True)
class RasterL2(Pass):
    """`group` rows make a panel. `rotated` takes the row within a panel from the CTA's index in the grid instead of in the panel (another
    order of the same tiles). `full` says that panels divide the rows, so that none is cut. `named` lists the intermediate values that are
    lets; the others stand in place."""

    intent: ClassVar[str] = "raster-l2"
    catalogue: ClassVar[tuple[int, ...]] = (31,)
    claim: ClassVar[str] = "CTAs that run together share rows and columns of the operands, so more of their loads hit L2."
    provides: ClassVar[tuple[str, ...]] = ("raster",)
    least: ClassVar[Mapping[str, int]] = {"group": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P310", "validity", "storage", "the CTA's index is used for its row and column only", _only_rows_and_columns),
        Precondition("KIR-P311", "validity", "shape", "panels that are said to be whole divide the rows", _whole_panels),
    )

    group: int = 8
    rotated: bool = False
    full: bool = False
    named: tuple[str, ...] = ("width", "panel", "first", "height")

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        if not isinstance(node, n.Kernel) or len(node.grid) != 1:
            return None
        axis, lets = _line(node), _lets(node)
        pid = n.Var(axis.name, dtype_of(axis.extent.type))
        for i, (_, row) in lets.items():
            if not (isinstance(row, n.Binary) and row.op == "floordiv" and row.a == pid):
                continue
            for j, (_, column) in lets.items():
                if column != mod(pid, row.b):
                    continue
                known = Facts.at(program, (*path, min(i, j)))
                rows = _quotient(known.expanded(axis.extent), known.expanded(row.b))
                if rows is None:
                    return Miss(f"the grid is not a number of rows times {expr_text(row.b)}")
                if "rows" not in self.named:
                    rows = next((n.Var(name, dtype_of(rows.type)) for k, (name, value) in lets.items()
                                 if k < min(i, j) and known.expanded(value) == rows), rows)
                return Site(path, self, {"kernel": node, "axis": axis, "lets": (i, j), "rows": rows, "columns": row.b})
        return Miss("no let is the CTA's index divided by a number of columns, with another its remainder")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        kernel, axis, (row, column) = site.captures["kernel"], site.captures["axis"], site.captures["lets"]
        taken = names_in(program, kernel)
        values: dict[str, n.Expr] = {}
        new: list[n.Stmt] = []
        for part in PARTS:
            value = self._part(part, axis, site.captures["rows"], site.captures["columns"], values)
            if part in self.named:
                name = fresh(USUAL.get(part, part), taken)
                new.append(n.Let((name,), value))
                value = n.Var(name, dtype_of(value.type))
            values[part] = value
        body = list(kernel.body)
        for index, value in zip((row, column), self._tile(axis, values), strict=True):
            body[index] = replace(body[index], value=value)
        at = min(row, column)
        made = replace(kernel, body=(*body[:at], *new, *body[at:]))
        return Rewritten(replace_kernel(program, kernel.name, made), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        if not isinstance(node, n.Kernel) or len(node.grid) != 1:
            return None
        axis, lets = _line(node), _lets(node)
        pid = n.Var(axis.name, dtype_of(axis.extent.type))
        inlined = _inlined(lets, pid.name)
        for j, (_, _) in lets.items():
            column = inlined[j]
            if not (isinstance(column, n.Binary) and column.op == "floordiv" and isinstance(column.a, n.Binary) and column.a.op == "mod"
                    and column.a.a == pid):
                continue
            width, height = column.a.b, column.b
            group = int_value(height) or (int_value(height.b) if isinstance(height, n.Binary) and height.op == "min" else None)
            if not group:
                continue
            told = next((value for name, value in lets.values() if width == n.Var(name, dtype_of(width.type))), width)
            columns = _quotient(told, const(group, dtype_of(width.type)))
            rows = axis.extent if not isinstance(height, n.Binary) else add(height.a, mul(floordiv(pid, width), group))
            if columns is None:
                continue
            for rotated in (False, True):
                found = replace(self, group=group, rotated=rotated, full=not isinstance(height, n.Binary), named=())
                values: dict[str, n.Expr] = {}
                for part in PARTS:
                    values[part] = width if part == "width" else found._part(part, axis, rows, columns, values)
                row, same = found._tile(axis, values)
                if same != column:
                    continue
                for i in lets:
                    if inlined[i] == row and i != j:
                        told_rows = next((value for name, value in lets.values() if rows == n.Var(name, dtype_of(rows.type))), rows)
                        parts = {**values, "width": told, "rows": told_rows}
                        made, named = _plain(node, (i, j), (floordiv(pid, columns), mod(pid, columns)), parts, inlined)
                        return Site(path, replace(found, named=named), {"made": made})
        return Miss("no two lets are the row and the column of a panel order")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        return Rewritten(replace_kernel(program, str(site.path[0]), site.captures["made"]), site.path)

    def _part(self, part: str, axis: n.Axis, rows: n.Expr, columns: n.Expr, values: Mapping[str, n.Expr]) -> n.Expr:
        pid = n.Var(axis.name, dtype_of(axis.extent.type))
        match part:
            case "rows":
                return rows
            case "width":
                return mul(columns, self.group)
            case "panel":
                return floordiv(pid, values["width"])
            case "first":
                return mul(values["panel"], self.group)
            case "height":
                return const(self.group, dtype_of(rows.type)) if self.full else minimum(sub(values["rows"], values["first"]), self.group)
            case _:
                return mod(pid, values["width"])

    def _tile(self, axis: n.Axis, values: Mapping[str, n.Expr]) -> tuple[n.Expr, n.Expr]:
        """Row and column of the CTA's tile."""
        within = n.Var(axis.name, dtype_of(axis.extent.type)) if self.rotated else values["local"]
        return add(values["first"], mod(within, values["height"])), floordiv(values["local"], values["height"])


def _line(kernel: n.Kernel) -> n.Axis:
    """What is put in order: the CTAs of the grid; or its clusters, where a let is their number."""
    axis = kernel.grid[0]
    size = max(kernel.cluster, default=1)
    each = _quotient(axis.extent, const(size, dtype_of(axis.extent.type))) if size > 1 else None
    if each is None:
        return axis
    number = floordiv(n.Var(axis.name, dtype_of(axis.extent.type)), size)
    return next((n.Axis(name, each) for name, value in _lets(kernel).values() if value == number), axis)


def _lets(kernel: n.Kernel) -> dict[int, tuple[str, n.Expr]]:
    """Scalar integer lets at the top of a kernel: index to name and value."""
    return {i: (s.names[0], s.value) for i, s in enumerate(kernel.body)
            if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value.type, DType) and s.value.type.is_integer}


def _inlined(lets: Mapping[int, tuple[str, n.Expr]], pid: str) -> dict[int, n.Expr]:
    """Each let's value with the lets that depend on the CTA's index replaced by theirs."""
    dependent: dict[str, n.Expr] = {}
    out = {}
    for i, (name, value) in lets.items():
        out[i] = substitute(value, {x: dependent[x] for x in names_read(value) & set(dependent)})
        if pid in names_read(out[i]):
            dependent[name] = out[i]
    return out


def _plain(kernel: n.Kernel, at: tuple[int, int], tile: tuple[n.Expr, n.Expr], parts: Mapping[str, n.Expr],
           inlined: Mapping[int, n.Expr]) -> tuple[n.Kernel, tuple[str, ...]]:
    """The kernel with plain row and column, and without the lets that named a part and are read no more; and those parts."""
    body: list[n.Stmt | None] = list(kernel.body)
    for i, value in zip(at, tile, strict=True):
        body[i] = replace(kernel.body[i], value=value)  # type: ignore[type-var]  # both are lets
    named: set[str] = set()
    for i in reversed(range(len(body))):
        s = body[i]
        part = next((p for p in PARTS if i in inlined and i not in at and inlined[i] == parts[p] and p not in named), None)
        if part and isinstance(s, n.Let) and not any(s.names[0] in names_read(x) for x in body[i + 1:] if x is not None):
            body[i] = None
            named.add(part)
    return replace(kernel, body=tuple(s for s in body if s is not None)), tuple(p for p in PARTS if p in named)


def _quotient(e: n.Expr, by: n.Expr) -> n.Expr | None:
    """`e / by` where `by` is one product that divides every term of `e`."""
    divisor = polynomial(by)
    if len(divisor) != 1:
        return None
    (atoms, c), = divisor.items()
    out = {}
    for have, k in polynomial(e).items():
        left = list(have)
        for atom in atoms:
            if atom not in left:
                return None
            left.remove(atom)
        if k % c:
            return None
        out[tuple(left)] = k // c
    return from_polynomial(out, dtype_of(e.type))
