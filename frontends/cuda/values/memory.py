"""Memory as C++ sees it: objects of bytes, read and written through types of the program's choosing.

A `Store` is one object: a parameter's tensor, a shared or local array, a variable. It keeps the leading dimensions of its declaration,
and is addressed in bytes within its innermost row, so that what is declared `int4` and used as `half` needs no casts: a value that only
moves takes the dtype it was read in, and the object becomes a buffer of the dtype that it is used with. An object that is used with
several dtypes gets views (`finish`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from math import prod

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, I64, DType, Space, dtype_of
from kir.ir.visit import transform

from ..symbols.classes import leaf, size_of
from ..types.c_types import Arr, CType, Prim
from ..types.errors import NotUnderstood
from ..types.number_conversions import divided, index32, index64, shares
from .emitter import Emitter


@dataclass(frozen=True)
class Rows:
    """Where pointers that stand in memory point to: the one in every `size` bytes, from byte `offset` on, to a row of `of`, each `step` elements after the
    one before."""

    offset: int
    size: int
    of: Store
    step: n.Expr


@dataclass(eq=False)
class Store:
    """One object in memory. `dims` are the leading extents of its declaration, `row` the bytes of the innermost one (an expression where
    it depends on the binding); a `single` number has no dimension at all."""

    name: str
    space: Space
    declared: DType
    dims: tuple[int, ...]
    row: n.Expr
    single: bool = False
    align: int = 0
    tensor: n.Buffer | None = None
    uses: dict[DType, int] = field(default_factory=dict)
    flat: bool = False
    resized: bool = False
    logical: tuple[int, ...] = ()
    swizzle: tuple[int, int, int] | None = None
    plain: bool = False
    fixed: int = 0
    """The last byte that is addressed by a number before a swizzle is known: as it stands, so that no swizzle may move it."""
    ranges: Emitter | None = None
    origin: Origin | None = None
    promised: int = -1
    """Bytes that a parameter was taken to be aligned to (0: none yet); -1 for what is no parameter."""
    peer: str = ""
    """The name of the view that shows it in every CTA of the cluster."""
    reach: int | None = 0
    """Bytes of a row that accesses are known to stay in; None when one is not known to."""
    pointers: object = None
    """The array of pointers (`PointerVariable`) whose offsets it holds."""
    rows: tuple[Rows, ...] = ()
    """What the pointers in it point to; one of nothing but pointers (`tensor` is None) is no memory of the program's."""

    @property
    def unit(self) -> int:
        """Bytes that a pointer variable into it counts in."""
        return self.declared.bytes

    @property
    def is_global(self) -> bool:
        return self.space in ("global", "constant")

    def view(self, dtype: DType) -> n.Buffer:
        """The buffer that accesses with a dtype name while the kernel is being read."""
        if self.tensor is not None and dtype == self.tensor.dtype:
            return self.tensor
        name = self.name if dtype == self.declared else f"{self.name}__{dtype.name}"
        if self.single and dtype == self.declared:
            return n.Buffer(name, dtype, (), self.space)
        if self.logical:
            last = self.logical[-1] * self.declared.bytes
            if last % dtype.bytes:
                raise NotUnderstood(f"'{self.name}' used as {dtype}, of which a row holds no whole number")
            shape = (*(build.const(d) for d in self.logical[:-1]), build.const(last // dtype.bytes))
            return n.Buffer(name, dtype, shape, self.space, None, None, self.align)
        extent = divided(self.row, dtype.bytes)
        if extent is None:
            value = build.int_value(self.row)
            extent = build.floordiv(self.row, dtype.bytes) if value is None else None
        if extent is None:
            raise NotUnderstood(f"'{self.name}' used as {dtype}, of which it holds no whole number")
        return n.Buffer(name, dtype, (*(build.const(d) for d in self.dims), extent), self.space, None, None, self.align)

    def used(self, dtype: DType) -> n.Buffer:
        """`view`, noted. Raises NotUnderstood for the bits of pointers."""
        if self.rows and self.tensor is None:
            raise NotUnderstood(f"the bits of the pointers in '{self.name}'")
        self.uses[dtype] = self.uses.get(dtype, 0) + 1
        return self.view(dtype)

    def narrower(self, dtype: DType) -> DType | None:
        """The dtype that an array is used with, where one number of `dtype` is several of those; None elsewhere."""
        if self.single or dtype in self.uses:
            return None
        own = self.declared if self.tensor is not None or not self.uses else max(self.uses, key=lambda d: self.uses[d])
        return own if own.bits < dtype.bits and dtype.bits % own.bits == 0 and not own.is_bool else None

    def alike(self, dtype: DType) -> DType | None:
        """The dtype that an array is used with, where its numbers have as many bits as those of another `dtype`; None elsewhere."""
        if self.single or dtype in self.uses or dtype.kind == "token" or not (self.uses or self.tensor is not None):
            return None
        own = self.declared if self.tensor is not None else max(self.uses, key=lambda d: self.uses[d])
        return own if own != dtype and own.bits == dtype.bits and own.kind != "token" and not own.is_bool and not dtype.is_bool else None

    def split(self, buffer: n.Buffer, byte: n.Expr, dtype: DType, count: int | None) -> n.Region:
        """A place in the shape that the binding gives an array: each term of the offset goes to the largest dimension that it is a whole
        number of steps of; where one leaves its dimension so, quotients and remainders of the offset."""
        index = self._parted(byte, dtype, False)
        if (count is None or count <= (build.int_value(buffer.shape[-1]) or 1)) and self.may_leave(index, buffer, count or 1):
            index = self._parted(byte, dtype, True)  # `s[k][k]` is one step of a row and an element
            if self.may_leave(index, buffer, count or 1):
                index = self.counted(buffer, divided(byte, dtype.bytes) or byte, count or 1)
        if count is None:
            return build.region(buffer, *index)
        row = build.int_value(buffer.shape[-1]) or 1
        if count > row:
            if any(not build.is_const(i, 0) for i in index if isinstance(i, n.Expr)) or count != prod(self.logical) * self.declared.bytes // dtype.bytes:
                raise NotUnderstood(f"several rows of '{self.name}' at once")
            return n.Region(buffer)
        last = index[-1]
        assert isinstance(last, n.Expr)
        return build.region(buffer, *index[:-1], build.span(last, count))

    def _parted(self, byte: n.Expr, dtype: DType, both: bool) -> list[n.Expr | n.Span]:
        """An offset by dimensions: each term is a number of steps of one of them, or, under `both`, of each."""
        strides = [prod(self.logical[k + 1 :]) * self.declared.bytes for k in range(len(self.logical))]
        parts: list[dict[tuple[n.Expr, ...], int]] = [{} for _ in strides]
        for monomial, c in build.polynomial(byte).items():
            left = c
            for k, stride in enumerate(strides):
                step = dtype.bytes if k == len(strides) - 1 else stride
                if not both and not (monomial == () and c >= 0) and c % step:
                    continue
                whole = left // step
                if whole:
                    parts[k][monomial] = parts[k].get(monomial, 0) + whole
                    left -= whole * step
            if left:
                raise NotUnderstood(f"an access to '{self.name}' at an address that is no multiple of {dtype.bytes} bytes")
        return [build.from_polynomial(p, I32) for p in parts]

    def may_leave(self, index: Sequence[n.Expr | n.Span], buffer: n.Buffer, count: int) -> bool:
        """Whether some index but the first has a range that leaves its dimension, with so many numbers from the last one on. An index of which
        nothing is known is what the binding means it to be."""
        for k, (i, size) in enumerate(zip(index[1:], buffer.shape[1:], strict=True), 2):
            found, end = self.range_of_sum(i) if isinstance(i, n.Expr) else None, build.int_value(size)
            if found is not None and end is not None and (found[0] < 0 or found[1] + (count if k == len(index) else 1) > end):
                return True
        return False

    def range_of_sum(self, e: n.Expr) -> tuple[int, int] | None:
        """The least and the most that a sum of products may be, None where nothing is known of a part of it."""
        low = high = 0
        for monomial, c in build.polynomial(e).items():
            ends = [c]
            for atom in monomial:
                found = self.ranges.range_of(atom) if self.ranges is not None else None
                if found is None:
                    return None
                ends = [x * y for x in (min(ends), max(ends)) for y in found]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def counted(self, buffer: n.Buffer, at: n.Expr, count: int) -> list[n.Expr | n.Span]:
        """The index in each dimension of the number `at`, counted from the beginning. Raises NotUnderstood where several numbers may lie in two rows."""
        sizes = [build.int_value(d) or 1 for d in buffer.shape]
        if sizes[-1] % count or any(c % count for c in build.polynomial(at).values()):
            raise NotUnderstood(f"{count} numbers of '{self.name}' at once, of which some may lie in its next row")
        out: list[n.Expr | n.Span] = []
        for k in range(len(sizes)):
            row = prod(sizes[k + 1 :])
            whole = build.floordiv(at, row) if row > 1 else at
            out.append(build.mod(whole, sizes[k]) if k else whole)
        return out

    def moving(self, own: DType, size: int) -> DType:
        """The dtype in which `size` bytes of it are read to be moved."""
        if self.tensor is not None:
            return self.declared if size % self.declared.bytes == 0 else own
        others = [d for d in self.uses if size % d.bytes == 0]
        return next((d for d in others if d != self.declared), others[0] if others else self.declared if size % self.declared.bytes == 0 else own)


@dataclass(frozen=True)
class Place:
    """A place in an object: indices of leading dimensions (perhaps not all), and an offset in bytes within the row."""

    store: Store
    outer: tuple[n.Expr, ...]
    byte: n.Expr
    volatile: bool = False

    @property
    def policy(self) -> str:
        """The cache policy of accesses there: those of a `volatile` place of global memory are all made, in order, and may meet those of other threads."""
        return "volatile" if self.volatile and self.store.space == "global" else ""

    def shifted(self, by: n.Expr, of: CType, m: Emitter, subscript: bool = False) -> Place:
        """The place `by` elements of a type further on."""
        s = self.store
        level = self._level(of)
        if level is not None:
            moved = build.add(self.outer[level], index32(by))
            return replace(self, outer=(*self.outer[:level], moved, *self.outer[level + 1 :]))
        if len(self.outer) < len(s.dims):
            raise NotUnderstood("a pointer moved past a whole array")
        step = build.mul(index64(by) if s.is_global else index32(by), size_of(of))
        made = build.add(self.byte, step)
        if s.dims and not subscript and not s.flat:
            found, row = m.range_of(made), build.int_value(s.row)
            if found is None or row is None or found[0] < 0 or found[1] + size_of(of) > row:
                s.flat = True
        return replace(self, byte=made)

    def _level(self, of: CType) -> int | None:
        """The leading dimension whose elements are of a type; None for elements of the row."""
        size = build.int_value(self.store.row)
        for k in range(len(self.store.dims), 0, -1):
            if size == size_of(of) and k <= len(self.outer):
                return k - 1
            size = None if size is None else size * self.store.dims[k - 1]
        return None

    def moved(self, bytes_: int) -> Place:
        """The place some bytes further on, within the same element of the row."""
        return replace(self, byte=build.add(self.byte, bytes_)) if bytes_ else self

    def moved_by(self, by: n.Expr) -> Place:
        """The place so many bytes further on."""
        return replace(self, byte=build.add(self.byte, by))

    def inside(self) -> Place:
        """The first element of the array that stands here."""
        if len(self.outer) < len(self.store.dims):
            return replace(self, outer=(*self.outer, build.const(0)))
        return self

    def described(self, dtype: DType, swizzle: tuple[int, int, int] | None) -> n.Region:
        """Where a box or a matrix begins that hardware lays out with a swizzle. Raises NotUnderstood where threads see another one."""
        s = self.store
        if (swizzle is None and s.swizzle is not None) or (swizzle is not None and (s.plain or s.swizzle not in (None, swizzle))):
            raise NotUnderstood(f"'{s.name}' is addressed with a swizzle in one place and without in another")
        s.plain = swizzle is None
        if swizzle is not None:
            self._swizzled(swizzle)
        return self.region(dtype, None, described=True)

    def region(self, dtype: DType, count: int | None, described: bool = False) -> n.Region:
        """Where one number (count None), or `count` of them, of a dtype stand; `described` addresses come before any swizzle."""
        s = self.store
        buffer = s.used(dtype)
        if not buffer.shape:
            return n.Region(buffer)
        byte = self.byte if described else self._unswizzled(dtype.bytes * (count or 1))
        if s.logical:
            return s.split(buffer, byte, dtype, count)
        at = divided(byte, dtype.bytes)
        if at is None and (s.tensor is not None or s.space == "shared"):
            at = counted_in(byte, dtype.bytes, s.ranges)
        if at is None:
            raise NotUnderstood(f"an access to '{s.name}' at an address that is no multiple of {dtype.bytes} bytes")
        missing = len(s.dims) - len(self.outer)
        found = s.ranges.range_of(byte) if s.ranges is not None and not missing else None
        s.reach = max(s.reach, found[1] + dtype.bytes * (count or 1)) if found is not None and s.reach is not None else None
        index: tuple[n.Expr | n.Span, ...] = self.outer
        if missing:
            index = (*index, *(build.span(0, d) for d in s.dims[len(self.outer) :]))
            per_row = build.int_value(divided(s.row, dtype.bytes) or build.const(0)) or 0
            return build.region(buffer, *index, build.span(at, per_row))
        first, size = build.int_value(at), build.int_value(buffer.shape[-1])
        if first is not None and size is not None and not s.is_global and not s.flat and not 0 <= first <= size - (count or 1):
            raise NotUnderstood(f"an access past the end of '{s.name}', which has {size} numbers of {dtype} in a row")
        return build.region(buffer, *index, at if count is None else build.span(at, count))

    def _unswizzled(self, size: int) -> n.Expr:
        """The offset without the exclusive or that the whole array is addressed through. Raises NotUnderstood where an array is addressed
        in several ways."""
        s = self.store
        if s.space != "shared":
            return self.byte
        found = unswizzled(self.byte)
        first = build.int_value(self.byte)
        if found is None and first is not None and not s.plain:  # what was folded to a number has no form
            if s.swizzle is None:
                s.fixed = max(s.fixed, first + size - 1)
                return self.byte
            bits, base, shift = s.swizzle
            if size > 1 << base:
                raise NotUnderstood(f"{size} bytes of '{s.name}' at once, which its swizzle takes apart")
            return build.const(first ^ ((first >> base + shift & (1 << bits) - 1) << base))
        if found is None:
            s.plain = True
            if s.swizzle is not None:
                raise NotUnderstood(f"'{s.name}' is addressed with a swizzle in one place and without in another")
            return self.byte
        byte, swizzle = found
        if s.plain or (s.swizzle is not None and s.swizzle != swizzle):
            raise NotUnderstood(f"'{s.name}' is addressed with a swizzle in one place and without in another")
        if size > 1 << swizzle[1]:
            raise NotUnderstood(f"{size} bytes of '{s.name}' at once, which its swizzle takes apart")
        self._swizzled(swizzle)
        return byte

    def _swizzled(self, swizzle: tuple[int, int, int]) -> None:
        """The array is addressed through a swizzle. Raises NotUnderstood where a number that it moves was taken as it is before."""
        if self.store.fixed >> swizzle[1] + swizzle[2]:
            raise NotUnderstood(f"'{self.store.name}' is addressed with a swizzle in one place and without in another")
        self.store.swizzle = swizzle


@dataclass
class Parts:
    """The parts of a pool by first byte: those of references with how many bytes each has, its type, and the object that it is; those of
    pointers, which reach to the next part."""

    by_start: dict[int, tuple[int, CType, Store]] = field(default_factory=dict)
    reaching: dict[int, Store] = field(default_factory=dict)

    def at(self, first: int, size: int) -> tuple[int, CType, Store] | None:
        """The part that begins at a byte. Raises NotUnderstood where another overlaps."""
        for begin, part in self.by_start.items():
            if begin != first and begin < first + size and first < begin + part[0]:
                raise NotUnderstood(f"'{part[2].name}' and another array share bytes {max(begin, first)} and on of the pool")
        return self.by_start.get(first)


def declare(m: Emitter, name: str, t: CType, space: Space) -> Store:
    """A new object of a type, undeclared yet. Raises NotUnderstood for types that are not numbers in a row."""
    found = leaf(t)
    if found is None:
        raise NotUnderstood(f"a variable of type {t}")
    dtype, _ = found
    dims: list[int] = []
    inner = t
    while isinstance(inner, Arr) and isinstance(inner.of, Arr):
        dims.append(inner.n)
        inner = inner.of
    return Store(m.fresh(name), space, dtype, tuple(dims), build.const(size_of(inner)), isinstance(t, Prim), ranges=m, origin=m.origin)


def start(s: Store) -> Place:
    """Where an object begins."""
    return Place(s, (), build.const(0, I64 if s.is_global else I32))


def counted_in(byte: n.Expr, size: int, ranges: Emitter | None) -> n.Expr:
    """The number of elements that an offset in bytes comes to which the program counts itself: what C++ reads there stands at a multiple of its size."""
    whole, rest = shares(byte, size)
    known = ranges.range_of(rest) if ranges is not None else None
    return build.add(whole, build.binary("floordiv" if known is not None and known[0] >= 0 else "tdiv", rest, build.const(size, dtype_of(rest.type))))


def unswizzled(byte: n.Expr) -> tuple[n.Expr, tuple[int, int, int]] | None:
    """The x of an offset `x ^ ((x >> (base + shift) & (2^bits - 1)) << base)`, and (bits, base, shift)."""
    terms = build.polynomial(byte)
    if len(terms) != 1:
        return None
    ((monomial, c),) = terms.items()
    if len(monomial) != 1:
        return None
    e = _bare(monomial[0])
    if isinstance(e, n.Binary) and e.op in ("floordiv", "tdiv") and build.int_value(e.b) == c:
        e = _bare(e.a)
    elif c != 1:
        return None
    if not isinstance(e, n.Binary) or e.op != "xor":
        return None
    for x, mixed in ((e.a, e.b), (e.b, e.a)):
        found = _mixed(x, mixed)
        if found is not None:
            return index32(x), found
    return None


def _bare(e: n.Expr) -> n.Expr:
    while isinstance(e, n.Cast) and e.rounding == "rn":
        e = e.x
    return e


def _mixed(x: n.Expr, e: n.Expr) -> tuple[int, int, int] | None:
    e = _bare(e)
    base = 0
    if isinstance(e, n.Binary) and e.op == "shl":
        base, e = build.int_value(e.b) or 0, _bare(e.a)
    else:
        terms = build.polynomial(e)
        if len(terms) == 1:
            ((monomial, c),) = terms.items()
            if len(monomial) == 1 and c > 1 and c & (c - 1) == 0:
                base, e = c.bit_length() - 1, _bare(monomial[0])
    if not isinstance(e, n.Binary) or e.op != "and":
        return None
    for shifted, mask in ((e.a, e.b), (e.b, e.a)):
        width, shifted = build.int_value(mask), _bare(shifted)
        if width is None or width & (width + 1) or not isinstance(shifted, n.Binary) or shifted.op != "shr" or index32(shifted.a) != index32(x):
            continue
        far = build.int_value(shifted.b)
        if far is not None and far > base:
            return width.bit_length(), base, far - base
    return None


# ------------------------------------------------------------------------------------------------------------------- what is used


@dataclass
class Finish:
    """The buffers that the objects of a kernel become, once every access is known."""

    stores: list[Store]

    ranks: int = 1
    """CTAs of the cluster."""

    roots: dict[str, n.Buffer] = field(default_factory=dict)

    def peers(self, s: Store) -> list[n.Stmt]:
        """The view of the cluster's memory that shows an object, if one does."""
        root = self.roots.get(s.name)
        return [n.View(n.Buffer(s.peer, root.dtype, (build.const(self.ranks), *root.shape), "cluster"), n.Region(root))] if s.peer and root else []

    def renamed(self) -> tuple[dict[str, tuple[n.Buffer, Store, DType]], dict[str, list[tuple[n.Buffer, n.Buffer]]]]:
        """By name while reading: the final buffer. By object: views (view, of what) beside the declaration."""
        final: dict[str, tuple[n.Buffer, Store, DType]] = {}
        views: dict[str, list[tuple[n.Buffer, n.Buffer]]] = {}
        for s in self.stores:
            used = [d for d in s.uses if s.uses[d]] or [s.declared]
            main = s.declared if s.tensor is not None or s.declared in used else max(used, key=lambda d: (s.uses[d], -d.bits))
            smallest = min(used, key=lambda d: d.bits)
            if s.tensor is None and len(used) > 1 and s.single and smallest.bits < s.declared.bits:
                main = s.declared
            for d in {main, *used}:
                old = s.view(d)
                layout = n.Layout("swizzle", s.swizzle) if s.swizzle is not None else None
                new = replace(old, layout=layout, name=s.name if d == main else old.name if d != s.declared else f"{s.name}__{d.name}")
                if s.flat and s.dims:
                    count = prod(s.dims) * (build.int_value(s.row) or 1) // d.bytes
                    new = replace(new, shape=(build.const(count),))
                if d == main and len(used) == 1 and (padded := _padded(s, d)) is not None:
                    new = replace(new, shape=padded[0], strides=padded[1])
                if d == main and s.single and old.shape and build.int_value(old.shape[-1]) == 1:
                    new = replace(new, shape=())
                final[old.name] = (new, s, d)
            root = self.roots[s.name] = final[s.view(main).name][0]
            views[s.name] = [(final[s.view(d).name][0], root) for d in used if d != main]
        return final, views

    def apply(self, body: list[n.Stmt]) -> tuple[n.Stmt, ...]:
        """A body with its final buffers, and views after declarations."""
        final, views = self.renamed()
        changed = {k: v for k, v in final.items() if v[0].name != k or v[0] != v[1].view(v[2]) or v[1].flat or v[1].resized}
        many = {k: v for k, v in views.items() if v}
        peers = {s.peer: s for s in self.stores if s.peer}
        shown = {s.name: self.peers(s) for s in peers.values()}

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Region) and new.buffer.name in peers:
                under = leave(old, n.Region(peers[new.buffer.name].view(new.buffer.dtype), new.index[1:]))
                assert isinstance(under, n.Region)
                return n.Region(replace(new.buffer, shape=(new.buffer.shape[0], *under.buffer.shape)), (new.index[0], *under.index))
            if isinstance(new, n.Region) and new.buffer.name in changed:
                buffer, store, dtype = changed[new.buffer.name]
                index = new.index
                if index and not buffer.shape:
                    index = ()
                elif store.flat and store.dims and index:
                    index = (_flat(index, store, dtype),)
                return build.region(buffer, *index) if index else n.Region(buffer)
            return new

        def block(stmts: tuple[n.Stmt, ...]) -> tuple[n.Stmt, ...]:
            out: list[n.Stmt] = []
            for s in stmts:
                match s:
                    case n.Alloc():
                        name = s.buffer.name
                        made = replace(s, buffer=self.roots.get(name, s.buffer))
                        if made.init is not None:
                            made = replace(made, init=transform(made.init, leave, _enter))
                        out.append(made)
                        out += [n.View(v, n.Region(root), origin=s.origin) for v, root in many.get(name, ())]
                        out += shown.get(made.buffer.name, [])
                    case n.View():
                        made_view = replace(s, buffer=self.roots.get(s.buffer.name, s.buffer))
                        out.append(replace(made_view, at=transform(s.at, leave, _enter)))
                        out += [n.View(v, n.Region(root), origin=s.origin) for v, root in many.get(s.buffer.name, ())]
                    case n.For() | n.While():
                        inner = replace(s, body=())
                        out.append(replace(transform(inner, leave, _enter), body=block(s.body)))
                    case n.If():
                        head = transform(replace(s, then=(), orelse=()), leave, _enter)
                        out.append(replace(head, then=block(s.then), orelse=block(s.orelse)))
                    case _:
                        out.append(transform(s, leave, _enter))
            return tuple(out)

        made = block(tuple(body))
        tensors = [n.View(v, n.Region(root)) for s in self.stores if s.tensor is not None for v, root in many.get(s.name, ())]
        return (*tensors, *made)


def _padded(s: Store, d: DType) -> tuple[tuple[n.Expr, ...], tuple[n.Expr, ...]] | None:
    """Shape and strides of a shared array whose rows are longer than what is used of them; None for others."""
    row = build.int_value(s.row)
    if s.space != "shared" or not s.dims or s.flat or s.swizzle is not None or row is None or not s.reach or s.reach >= row or s.reach % d.bytes:
        return None
    extents = [*s.dims, row // d.bytes]
    strides = [build.const(prod(extents[k + 1 :])) for k in range(len(extents))]
    return (*(build.const(x) for x in s.dims), build.const(s.reach // d.bytes)), tuple(strides)


def _enter(e: n.Node) -> bool:
    return not isinstance(e, n.Buffer)


def _flat(index: tuple[n.Expr | n.Span, ...], s: Store, dtype: DType) -> n.Expr | n.Span:
    """The index of a flat array. Raises NotUnderstood for a region of several rows."""
    *outer, last = index
    row = (build.int_value(s.row) or 1) // dtype.bytes
    out: n.Expr = build.const(0)
    for k, i in enumerate(outer):
        if isinstance(i, n.Span):
            raise NotUnderstood(f"several rows of '{s.name}' at once, which is also used as one row")
        out = build.add(out, build.mul(i, prod(s.dims[k + 1 :]) * row))
    if isinstance(last, n.Span):
        return build.span(build.add(out, last.lo), last.extent, last.step)
    return build.add(out, last)

