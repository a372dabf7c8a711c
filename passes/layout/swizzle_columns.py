"""Exchanges the columns of a local array by an exclusive or with their row, so that the elements of a column lie in different banks.

pipeline: `swizzle-columns@main/S`

```diff
 kir 1
 program turned
   in X: f32[32, 32]
   out Y: f32[32, 32]
 kernel main grid (b: 1) threads 32
   @S shared S: f32[32, 32]
   for t in 0..32 parallel thread
     for i in 0..32
-      S[i, t] = X[i, t]
+      S[i, i ^ t] = X[i, t]
     barrier()
     for j in 0..32
-      Y[j, t] = S[t, j]
+      Y[j, t] = S[t, j ^ t]
```
"""
from __future__ import annotations

from typing import ClassVar, Literal

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import region_text
from kir.ir.types import I32
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import matched, node_as, params_as
from kir.rewrite.match.local_buffers import adopts_layout, sizes, transfers

from .pack_columns import accesses_of, most_of, places_of, rewritten, split

Form = Literal["whole", "mod", "and"]
FORMS: tuple[Form, ...] = ("whole", "mod", "and")


def _of(program: n.Program, site: Site) -> tuple[n.Buffer, SwizzleColumns]:
    node, item = node_as(program, site.path, n.Alloc), params_as(site, SwizzleColumns)
    return node.buffer, item


def _bijection(program: n.Program, site: Site, context: Context) -> Verdict:
    b, item = _of(program, site)
    shape = matched(sizes(b))
    rows, columns = shape
    units, period = columns // item.unit, item.period or rows
    if columns % item.unit or units & (units - 1):
        return refuted(f"{units} units of {item.unit} columns are no power of two", "an exclusive or leads out of the row",
                       needs="a power of two")
    if (period if period & (period - 1) == 0 else 1 << period.bit_length()) > units:
        return refuted(f"{period} different rows exchange more than the {units} units of a row", f"row {units} moves unit 0 to unit {units}",
                       needs=f"a period of at most {units}")
    return proved(f"within each row the {units} units change places")


def _inside(program: n.Program, site: Site, context: Context) -> Verdict:
    b, item = _of(program, site)
    wide = {id(t.at): t.bytes // b.dtype.bytes for t in transfers(kernel_of(program, site.path), b.name)}
    for known, r in accesses_of(program, str(site.path[0]), b.name):
        last = r.index[-1]
        lo, extent = (last.lo, last.extent) if isinstance(last, n.Span) else (last, 1)
        count = max(build.int_value(extent) or item.unit + 1, wide.get(id(r), 1))
        most = most_of(known.domain(split(lo, item.unit, known)[1])) if item.unit > 1 else 0
        if count > 1 and (most is None or most + count > item.unit):
            return refuted(f"{region_text(r)} takes columns of several units", f"{count} columns, and a unit has {item.unit}",
                           needs="accesses within a unit")
    return proved("every access stays within a unit")


@dataclass(frozen=True)
class SwizzleColumns(Pass):
    """`unit` neighboring columns move together; rows `period` apart move them alike (0: every row its own way), which the text says as
    the row itself (`whole`), as a remainder (`mod`) or by its low bits (`and`)."""

    intent: ClassVar[str] = "swizzle-shared"
    catalogue: ClassVar[tuple[int, ...]] = (7, 10)
    claim: ClassVar[str] = "A warp that walks down a column meets every bank once, and no memory is lost to padding."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P074", "validity", "layout", "within each row the columns only change places", _bijection),
        Precondition("KIR-P075", "validity", "layout", "no access takes columns that are moved apart", _inside),
        Precondition("KIR-P076", "validity", "layout", "every access adopts the exchange", adopts_layout))

    unit: int = 1
    period: int = 0
    form: Form = "whole"

    def low(self, row: n.Expr) -> n.Expr:
        """What a row's units are exchanged by."""
        match self.form:
            case "mod":
                return build.mod(row, self.period)
            case "and":
                return build.binary("and", row, build.const(self.period - 1))
            case _:
                return row

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a declaration of a dense local array of rows and columns, all of whose accesses name a row and columns."""
        b = _array(node)
        if b is None:
            return None
        if self.unit < 1 or (self.period == 0) != (self.form == "whole"):
            return Miss("a period is needed to take a row's remainder, and only then")
        if not _plain(program, path, b):
            return Miss(f"'{b.name}' is used as a whole, or at a tile of places")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Columns exchanged wherever the array is used."""
        b, _ = _of(program, site)

        def moved(r: n.Region, known: Facts) -> n.Region:
            row, last = r.index
            assert isinstance(row, n.Expr)
            at = last.lo if isinstance(last, n.Span) else last
            unit, inside = split(at, self.unit, known) if self.unit > 1 else (at, build.const(0))
            place = build.add(build.mul(build.binary("xor", unit, self.low(row)), self.unit), inside)
            return build.region(b, row, build.span(place, last.extent, last.step) if isinstance(last, n.Span) else place)
        return Rewritten(rewritten(program, site, b, b, moved), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an array all of whose columns are exclusive ors with the row."""
        b = _array(node)
        if b is None or not _plain(program, path, b):
            return None
        found = places_of(program, str(path[0]), b.name)
        out = []
        for unit in _units(found):
            periods = {("whole", 0), *((form, p) for form in ("mod", "and") for p in _periods(found, form))}
            for form, period in sorted(periods):
                item = SwizzleColumns(unit, period, next(f for f in FORMS if f == form))
                if all(item.plain(r) is not None for r in found):
                    out.append(Site(path, item))
        return tuple(out) or None

    def plain(self, r: n.Region) -> n.Region | None:
        """A place with its columns where they would be; None where they are not exchanged."""
        row, last = r.index
        assert isinstance(row, n.Expr)
        at, low = last.lo if isinstance(last, n.Span) else last, self.low(row)
        for monomial, c in build.polynomial(at).items():
            x = monomial[0] if len(monomial) == 1 and c == self.unit else None
            if isinstance(x, n.Binary) and x.op == "xor" and low in (x.a, x.b):
                unit = x.b if x.a == low else x.a
                place = build.add(build.sub(at, build.mul(x, self.unit)), build.mul(unit, self.unit))
                return build.region(r.buffer, row, build.span(place, last.extent, last.step) if isinstance(last, n.Span) else place)
        return None

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Columns where they are."""
        b, _ = _of(program, site)

        def moved(r: n.Region, known: Facts) -> n.Region:
            return matched(self.plain(r))
        return Rewritten(rewritten(program, site, b, b, moved), site.path)


def _array(node: Place) -> n.Buffer | None:
    """The dense array of rows and columns that a statement declares."""
    if not (isinstance(node, n.Alloc) and node.buffer.space == "shared" and len(node.buffer.shape) == 2 and node.init is None):
        return None
    b = node.buffer
    return b if sizes(b) is not None and b.layout is None and b.strides is None and b.dtype.kind != "token" else None


def _plain(program: n.Program, path: Path, b: n.Buffer) -> bool:
    found = places_of(program, str(path[0]), b.name)
    return bool(found) and all(len(r.index) == 2 and isinstance(r.index[0], n.Expr) and r.index[0].type == I32 and (
        r.index[1].lo if isinstance(r.index[1], n.Span) else r.index[1]).type == I32 for r in found)


def _exchanged(found: list[n.Region]) -> list[tuple[n.Binary, int]]:
    """The exclusive ors in the columns of places, with their coefficients."""
    out = []
    for r in found:
        last = r.index[-1]
        for monomial, c in build.polynomial(last.lo if isinstance(last, n.Span) else last).items():
            if len(monomial) == 1 and isinstance(monomial[0], n.Binary) and monomial[0].op == "xor":
                out.append((monomial[0], c))
    return out


def _units(found: list[n.Region]) -> list[int]:
    return sorted({c for _, c in _exchanged(found) if c > 0})


def _periods(found: list[n.Region], form: str) -> list[int]:
    """The periods that exclusive ors with a part of a row may have."""
    out = set()
    for x, _ in _exchanged(found):
        for y in (x.a, x.b):
            value = build.int_value(y.b) if isinstance(y, n.Binary) and y.op == form else None
            if value is not None:
                out.add(value + (form == "and"))
    return sorted(out)
