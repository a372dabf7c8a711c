"""Packs the columns of a local array into slabs that lie one behind the other, so that the rows of a slab are neighbors in memory.

pipeline: `pack-columns{width=32}@main/S`

```diff
 kir 1
 program p
   in X: f32[8, 128]
   out Y: f32[128]
 kernel main grid (b: 1) threads 128
-  @S shared S: f32[8, 128]
+  @S shared S: f32[4, 8, 32]
   for t in 0..128 parallel thread
     for k in 0..8
-      S[k, t] = X[k, t]
+      S[t // 32, k, t % 32] = X[k, t]
     barrier()
     register total: f32 = 0.0
     for k1 in 0..8
-      total = total + S[k1, 127 - t]
+      total = total + S[(-t + 127) // 32, k1, (-t + 127) % 32]
     Y[t] = total
```
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from kir.analysis.domain import Domain
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.paths import block_paths, child_blocks
from kir.ir.printer import region_text
from kir.ir.types import DType
from kir.ir.visit import buffers_named, once, statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of, replace_kernel, with_block
from kir.rewrite.match import matched, matched_as, node_as, params_as
from kir.rewrite.match.local_buffers import adopts_layout, own_parts, sizes, transfers


def _of(program: n.Program, site: Site) -> tuple[n.Buffer, int]:
    node, item = node_as(program, site.path, n.Alloc), params_as(site, PackColumns)
    return node.buffer, item.width


def _whole_slabs(program: n.Program, site: Site, context: Context) -> Verdict:
    b, width = _of(program, site)
    columns = (sizes(b) or (0,))[-1]
    if columns % width:
        return refuted(f"slabs of {width} do not divide the {columns} columns of '{b.name}'", f"column {columns - 1} is in no slab",
                       needs=f"a divisor of {columns}")
    return proved(f"{columns // width} slabs of {width} columns")


def _inside(program: n.Program, site: Site, context: Context) -> Verdict:
    b, width = _of(program, site)
    wide = {id(t.at): t.bytes // b.dtype.bytes for t in transfers(kernel_of(program, site.path), b.name)}
    for known, r in accesses_of(program, str(site.path[0]), b.name):
        last = r.index[-1]
        lo, extent = (last.lo, last.extent) if isinstance(last, n.Span) else (last, 1)
        count = max(build.int_value(extent) or width + 1, wide.get(id(r), 1))
        if count == 1:
            continue
        if isinstance(last, n.Span) and not build.is_const(last.step if isinstance(last.step, n.Expr) else build.const(last.step), 1):
            return refuted(f"{region_text(r)} takes columns that are no neighbors", needs="neighbors within a slab")
        _, inside = split(lo, width, known)
        reach = known.domain(inside)
        most = most_of(reach)
        if most is None or most + count > width:
            return refuted(f"{region_text(r)} may cross from one slab into the next", f"{count} columns from {reach} of a slab of {width}",
                           needs="accesses that stay within a slab")
    return proved("no access leaves its slab")


@dataclass(frozen=True)
class PackColumns(Pass):
    """`width` columns are a slab."""

    intent: ClassVar[str] = "pack-panels"
    catalogue: ClassVar[tuple[int, ...]] = (8,)
    claim: ClassVar[str] = "What a warp or a matrix instruction reads together lies together, at a stride that does not depend on all columns."
    least: ClassVar[Mapping[str, int]] = {"width": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P080", "validity", "shape", "the width divides the columns", _whole_slabs),
        Precondition("KIR-P081", "validity", "layout", "no access crosses from one slab into the next", _inside),
        Precondition("KIR-P082", "validity", "layout", "every access adopts the layout", adopts_layout))

    width: int = 32

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a declaration of a dense local array of rows and columns, all of whose accesses name single columns or neighbors."""
        if not (isinstance(node, n.Alloc) and node.buffer.space in ("shared", "register") and len(node.buffer.shape) >= 2):
            return None
        b, shape = node.buffer, sizes(node.buffer)
        if shape is None or b.layout is not None or b.strides is not None or b.dtype.kind == "token" or node.init is not None:
            return Miss(f"'{b.name}' has a symbolic extent, a layout or a first value")
        if not 1 < self.width < shape[-1]:
            return Miss(f"slabs of {self.width} columns are none of the {shape[-1]}")
        return Site(path, self) if _plain(program, path, b.name) else Miss(f"'{b.name}' is used as a whole, or at a tile of places")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The array with its slabs as the first axis."""
        b, width = _of(program, site)
        shape = matched(sizes(b))
        made = replace(b, shape=tuple(map(build.const, (shape[-1] // width, *shape[:-1], width))))

        def moved(r: n.Region, known: Facts) -> n.Region:
            last = r.index[-1]
            slab, inside = split(last.lo if isinstance(last, n.Span) else last, width, known)
            return build.region(made, slab, *r.index[:-1], replace(last, lo=inside) if isinstance(last, n.Span) else inside)
        return Rewritten(rewritten(program, site, b, made, moved), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an array whose first and last index are the quotient and the rest of one column, somewhere."""
        if not (isinstance(node, n.Alloc) and node.buffer.space in ("shared", "register") and len(node.buffer.shape) >= 3):
            return None
        if any(isinstance(s, n.View) and s.at.buffer == node.buffer for _, s in block_paths(kernel_of(program, path).body, path)):
            return Miss(f"'{node.buffer.name}' is seen as a whole: its panels are packed by tiles")
        b, shape = node.buffer, sizes(node.buffer)
        if shape is None or b.layout is not None or b.strides is not None or b.dtype.kind == "token" or node.init is not None:
            return None
        if not _plain(program, path, b.name):
            return Miss(f"'{b.name}' is used as a whole, or at a tile of places")
        if not any(_divided(r, shape[-1]) for r in places_of(program, str(path[0]), b.name)):
            return Miss("its first axis and its last are not the quotient and the rest of one column")
        return Site(path, PackColumns(shape[-1]))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The array with all columns in its rows."""
        b, width = _of(program, site)
        shape = matched(sizes(b))
        made = replace(b, shape=tuple(map(build.const, (*shape[1:-1], shape[0] * width))))

        def moved(r: n.Region, known: Facts) -> n.Region:
            first, last = matched_as(r.index[0], n.Expr), r.index[-1]
            column = joined(first, last.lo if isinstance(last, n.Span) else last, width)
            return build.region(made, *r.index[1:-1], replace(last, lo=column) if isinstance(last, n.Span) else column)
        return Rewritten(rewritten(program, site, b, made, moved), site.path)


def split(e: n.Expr, width: int, known: Facts) -> tuple[n.Expr, n.Expr]:
    """(slab, column within it) of a column."""
    dtype = matched_as(e.type, DType)
    whole = {m: c // width for m, c in build.polynomial(e).items() if c % width == 0}
    rest = build.from_polynomial({m: c for m, c in build.polynomial(e).items() if c % width}, dtype)
    slab = build.from_polynomial(whole, dtype)
    reach = known.domain(rest)
    if reach.lo is not None and reach.lo >= 0 and reach.hi is not None and reach.hi < width:
        return slab, rest
    return build.add(slab, build.floordiv(rest, width)), build.mod(rest, width)


def most_of(reach: Domain) -> int | None:
    """The largest value of a domain."""
    return reach.hi if reach.hi is None or not reach.modulus else reach.hi - (reach.hi - reach.residue) % reach.modulus


def joined(slab: n.Expr, inside: n.Expr, width: int) -> n.Expr:
    """The column of a place within a slab; the quotient and the rest of one number are that number."""
    for monomial, c in build.polynomial(inside).items():
        x = monomial[0] if len(monomial) == 1 and c == 1 else None
        if isinstance(x, n.Binary) and x.op == "mod" and build.is_const(x.b, width):
            quotient = build.floordiv(x.a, width)
            if build.polynomial(slab).get((quotient,)) == 1:
                left = build.add(build.mul(build.sub(slab, quotient), width), x.a)
                return build.add(left, build.sub(inside, x))
    return build.add(build.mul(slab, width), inside)


def _divided(r: n.Region, width: int) -> bool:
    first, last = r.index[0], r.index[-1]
    inside = last.lo if isinstance(last, n.Span) else last
    return isinstance(first, n.Expr) and joined(first, inside, width) != build.add(build.mul(first, width), inside)


def _plain(program: n.Program, path: Path, name: str) -> bool:
    """Whether every access names single columns or neighbors, and nothing is used as a whole."""
    found = places_of(program, str(path[0]), name)
    return bool(found) and all(r.index and all(isinstance((i.lo if isinstance(i, n.Span) else i).type, DType) for i in r.index) and (
        len(r.buffer.shape) < 3 or isinstance(r.index[0], n.Expr)) for r in found)


def accesses_of(program: n.Program, kernel: str, name: str) -> Iterator[tuple[Facts, n.Region]]:
    """Every access to a buffer, with what is known where it stands."""
    for path, s in block_paths(kernel_of(program, (kernel,)).body, (kernel,)):
        if found := [r for r in _named(s) if r.buffer.name == name]:
            known = Facts.at(program, path)
            yield from ((known, r) for r in found)


def places_of(program: n.Program, kernel: str, name: str) -> list[n.Region]:
    """The place of every access to a buffer."""
    return [r for s in statements(kernel_of(program, (kernel,)).body) if name in buffers_named(s) for r in _named(s) if r.buffer.name == name]


def _named(s: n.Stmt) -> tuple[n.Region, ...]:
    """The places that a statement names itself, outside of its blocks."""
    return once(s, "_regions_named", lambda: tuple(x for part in own_parts(s) for x in walk(part) if isinstance(x, n.Region)))


def rewritten(program: n.Program, site: Site, old: n.Buffer, made: n.Buffer, moved: Callable[[n.Region, Facts], n.Region]) -> n.Program:
    """`program` with the buffer declared anew, and every access to it moved."""
    def block(body: n.Block, path: Path) -> n.Block:
        out: list[n.Stmt] = []
        for i, s in enumerate(body):
            here = (*path, i)
            if isinstance(s, n.Alloc) and s.buffer == old:
                out.append(replace(s, buffer=made))
                continue
            x: Any = s
            if any(r.buffer == old for r in _named(s)):
                known = Facts.at(program, here)

                def leave(a: n.Node, b: n.Node, known: Facts = known) -> n.Node:
                    return moved(b, known) if isinstance(b, n.Region) and b.buffer == old else b

                def enter(a: n.Node, s: n.Stmt = s) -> bool:
                    return not isinstance(a, n.Buffer) and (a is s or not isinstance(a, n.Stmt))
                x = transform(s, leave, enter)
            for steps, inner in child_blocks(s):
                x = with_block(x, steps, block(inner, here + steps))
            out.append(x)
        return tuple(out)
    kernel = kernel_of(program, site.path)
    return replace_kernel(program, kernel.name, replace(kernel, body=block(kernel.body, (kernel.name,))))
