"""A swizzled layout written out in the indices of a thread's accesses, as hand-written kernels do, and read off them again.

Chunks of `chunk` elements of a row are xored with the number of the row: element c of row r lies at ((c // chunk) ^ (r // every % count))
* chunk + c % chunk. That is `swizzle(bits, base, shift)` on bytes where a chunk has 2^base bytes, count = 2^bits, and rows of 2^n bytes are
counted every 2^(base + shift - n).
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import statements, substitute_buffers, transform, walk
from kir.rewrite.match import matched_as


class NoArithmetic(Exception):
    """A swizzle that is no xor of chunks with the number of a row."""


@dataclass(frozen=True)
class Chunks:
    """Chunks of `chunk` elements, xored with row // `every` % `count`."""

    chunk: int
    every: int
    count: int

    @classmethod
    def of(cls, b: n.Buffer) -> Chunks:
        """The arithmetic of a buffer's layout. Raises NoArithmetic."""
        shape = [build.int_value(d) for d in b.shape]
        if b.layout is None or b.layout.name != "swizzle" or len(shape) < 2 or None in shape or b.strides is not None:
            raise NoArithmetic(f"'{b.name}' has no rows of chunks")
        bits, base, shift = (int(a) for a in b.layout.args if isinstance(a, int))
        row = (shape[-1] or 1) * b.dtype.bytes
        above = base + shift - (row.bit_length() - 1)
        if row & (row - 1) or base + bits > row.bit_length() - 1 or above < 0 or (len(shape) > 2 and (shape[-2] or 1) % (1 << above + bits)):
            raise NoArithmetic(f"the swizzle of '{b.name}' takes more than the row into account")
        return cls((1 << base) // b.dtype.bytes, 1 << above, 1 << bits)

    def layout(self, b: n.Buffer) -> n.Layout | None:
        """The layout of a buffer that is accessed so; None where there is none."""
        columns = build.int_value(b.shape[-1])
        row, size = (columns or 0) * b.dtype.bytes, self.chunk * b.dtype.bytes
        if not row or row & (row - 1) or any(x < 1 or x & (x - 1) for x in (size, self.every, self.count)):
            return None
        base = size.bit_length() - 1
        made = n.Layout("swizzle", (self.count.bit_length() - 1, base, row.bit_length() - 1 + self.every.bit_length() - 1 - base))
        try:
            return made if Chunks.of(replace(b, layout=made)) == self else None
        except NoArithmetic:
            return None

    def moved(self, row: n.Expr, column: n.Expr, known: Facts) -> n.Expr:
        """Where an element of a row lies in it."""
        high, low = self._split(column, known)
        return build.add(build.mul(build.binary("xor", high, self.row_part(row)), self.chunk), low)

    def row_part(self, row: n.Expr) -> n.Expr:
        """What the chunks of a row are xored with; whole turns of the pattern are left out of the row."""
        terms = build.polynomial(row)
        if isinstance(row.type, DType) and () in terms:
            row = build.from_polynomial({**terms, (): terms[()] % (self.every * self.count)}, row.type)
        return build.mod(row if self.every == 1 else build.floordiv(row, self.every), build.const(self.count))

    def _split(self, column: n.Expr, known: Facts) -> tuple[n.Expr, n.Expr]:
        """The chunk of a column, and its place in it."""
        dtype = matched_as(column.type, DType)
        terms = build.polynomial(column)
        high = build.from_polynomial({m: c // self.chunk for m, c in terms.items() if c % self.chunk == 0}, dtype)
        low = build.from_polynomial({m: c for m, c in terms.items() if c % self.chunk}, dtype)
        range_ = known.domain(low)
        if range_.lo is not None and range_.hi is not None and range_.lo >= 0 and range_.hi < self.chunk:
            return high, low
        return build.floordiv(column, self.chunk), build.mod(column, build.const(self.chunk))

    def unmoved(self, row: n.Expr, column: n.Expr) -> n.Expr | None:
        """The column of which `column` is the place; None where it is no place of this form."""
        for mixed, c, low in _mixed(column):
            if c != self.chunk:
                return None
            for part, chunk in ((mixed.a, mixed.b), (mixed.b, mixed.a)):
                if part == self.row_part(row):
                    return build.add(build.mul(chunk, self.chunk), low)
        return None

    @classmethod
    def seen(cls, row: n.Expr, column: n.Expr) -> Chunks | None:
        """The arithmetic that an access shows."""
        for mixed, c, _ in _mixed(column):
            for part in (mixed.a, mixed.b):
                if isinstance(part, n.Binary) and part.op == "mod":
                    count = build.int_value(part.b)
                    every = build.int_value(part.a.b) if isinstance(part.a, n.Binary) and part.a.op == "floordiv" else 1
                    made = None if count is None or every is None else cls(c, every, count)
                    if made is not None and made.row_part(row) == part:
                        return made
        return None


def _mixed(column: n.Expr) -> Iterator[tuple[n.Binary, int, n.Expr]]:
    """The xor in a column, its factor, and the rest."""
    if not isinstance(column.type, DType):
        return
    terms = build.polynomial(column)
    for m, c in terms.items():
        if len(m) == 1 and isinstance(m[0], n.Binary) and m[0].op == "xor":
            yield m[0], c, build.from_polynomial({x: y for x, y in terms.items() if x != m}, column.type)


def written_out(program: n.Program, kernel: n.Kernel) -> n.Kernel:
    """The kernel of thread code with every swizzle of its shared memory in the indices. Raises NoArithmetic."""
    buffers = {s.buffer.name: s.buffer for s in statements(kernel.body) if isinstance(s, n.Alloc) and s.buffer.space == "shared"
               and s.buffer.layout is not None}
    rules = {name: Chunks.of(b) for name, b in buffers.items()}

    def place(r: n.Region, known: Facts) -> n.Region:
        if not r.index:
            raise NoArithmetic(f"all of '{r.buffer.name}' is one place")
        row, last = r.index[-2], r.index[-1]
        rule = rules[r.buffer.name]
        if isinstance(row, n.Span) or (isinstance(last, n.Span) and (last.step != 1 or not isinstance(last.extent, int)
                                                                     or last.extent > rule.chunk)):
            raise NoArithmetic(f"an access of '{r.buffer.name}' takes more than a chunk")
        lo = rule.moved(row, last.lo if isinstance(last, n.Span) else last, known)
        return build.region(r.buffer, *r.index[:-1], build.span(lo, last.extent) if isinstance(last, n.Span) else lo)

    def below(block: n.Block, known: Facts) -> n.Block:
        out: list[n.Stmt] = []
        for s in block:
            match s:
                case n.For():
                    out.append(replace(s, body=below(s.body, known.ranging(s.var, s.lo, s.hi, s.step))))
                case n.If():
                    out.append(replace(s, then=below(s.then, known), orelse=below(s.orelse, known)))
                case _:
                    out.append(transform(s, lambda old, new: place(new, known) if isinstance(new, n.Region) and new.buffer.name in rules
                                         else new))
        return tuple(out)
    made = replace(kernel, body=below(kernel.body, Facts.from_program(program)))
    return _laid_out(made, {name: replace(b, layout=None) for name, b in buffers.items()})


def recognized(kernel: n.Kernel) -> n.Kernel:
    """The kernel of thread code with swizzles that its indices show as layouts; buffers accessed in several ways stay as they are."""
    shared = {s.buffer.name: s.buffer for s in statements(kernel.body) if isinstance(s, n.Alloc) and s.buffer.space == "shared"
              and s.buffer.layout is None and len(s.buffer.shape) > 1}
    places: dict[str, list[n.Region]] = {}
    for s in kernel.body:
        for x in walk(s):
            if isinstance(x, n.Region) and x.buffer.name in shared:
                places.setdefault(x.buffer.name, []).append(x)
    rules: dict[str, Chunks] = {}
    for name, found in places.items():
        seen = [Chunks.seen(r.index[-2], _lo(r.index[-1])) if r.index and isinstance(r.index[-2], n.Expr) else None for r in found]
        rule = seen[0]
        if rule is not None and all(x == rule for x in seen) and rule.layout(shared[name]) is not None:
            rules[name] = rule

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(old, n.Region) and old.buffer.name in rules and isinstance(new, n.Region):
            row, last = old.index[-2], old.index[-1]
            lo = rules[old.buffer.name].unmoved(row, _lo(last)) if isinstance(row, n.Expr) else None
            if lo is not None:
                return build.region(old.buffer, *old.index[:-1], build.span(lo, last.extent) if isinstance(last, n.Span) else lo)
        return new
    made: n.Kernel = transform(kernel, leave)
    return _laid_out(made, {name: replace(shared[name], layout=rule.layout(shared[name])) for name, rule in rules.items()})


def _lo(i: n.Expr | n.Span) -> n.Expr:
    return i.lo if isinstance(i, n.Span) else i


def _laid_out(kernel: n.Kernel, buffers: dict[str, n.Buffer]) -> n.Kernel:
    made: n.Kernel = substitute_buffers(kernel, buffers)
    return made
