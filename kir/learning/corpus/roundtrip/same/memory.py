"""Places in memory and in private arrays, as one walk through a thread's program names them."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import I32, I64, DType, TileType, Type, dtype_of, shape_of
from kir.ir.visit import walk
from kir.learning.corpus.roundtrip.same.values import Table, Value

WIDEST = 128
"""Elements of a vector, or of a private array, that are followed one by one, at most."""
Events = list[Any]


class Unlisted(Exception):
    """A program of which there is no such list."""


class Dynamic(Exception):
    """A private array that is asked for an element by a number that is not known."""


class Places:
    """What a walk through one kernel knows of memory. `placed` are places in arrays of several axes, each with its numbers and without; of them `rows` are
    those whose numbers are taken to stay in their rows, and `wrapped` those that are what they are said to be only where some number stays in its row;
    `narrowly` says for places in global memory, where they are named, which sums of 32 bits are taken not to overflow in them."""

    def __init__(self, values: Table, memory: frozenset[str], body: n.Block, narrow: Mapping[str, DType], elsewhere: frozenset[Any] = frozenset()) -> None:
        self.t = values
        self.narrow = narrow  # what arrays are seen as, where views show other numbers in them: unsigned numbers of their fewest bits
        self.begins: dict[str, int] = {}  # where such a view begins in its array, in those
        self.memory = set(memory)
        self.alone = True  # no other CTA sees its shared memory
        self.env: dict[str, Value] = {}
        self.state: dict[str, list[int]] = {}  # of private arrays that are values
        self.kinds: dict[str, DType] = {}
        self.windows: dict[str, int] = {}  # where a view of such an array begins in it, in bits
        self.rooted: dict[int, str] = {}
        self.version: dict[str, Any] = {}  # of memory, by its root
        self.shown = {x.buffer.name: x.at.buffer.name for s in body for x in walk(s) if isinstance(x, n.View)}
        self.place: dict[str, int] = {}
        self.counted: dict[Any, int] = {}
        self.count = self.steps = 0
        self.around = self.t.of("around")
        self.loops: list[tuple[Any, dict[str, list[int]]]] = []
        self.rows: set[Any] = set()
        self.placed: set[Any] = set()
        self.wrapped: set[Any] = set()
        self.narrowly: dict[Any, set[int]] = {}
        self.under: dict[str, set[int]] = {}  # of views those in where they begin
        self.seen: set[Any] = set()  # what is read, and in which block
        self.asked: set[str] = set()  # private arrays that are values and cannot be: of a walk with such nothing else holds
        self.elsewhere = elsewhere  # the same, of the whole of the program that comes first: it is what that does, so it may be done
        self.events: Events = []
        for x in (x for s in body for x in walk(s)):
            match x:
                case n.Call() | n.Mma() | n.Copy() | n.Address():
                    held = [v for f in fields(x) for v in flat(getattr(x, f.name))]
                    self.memory |= {r.buffer.name for r in held if isinstance(r, n.Region)}
                    if isinstance(x, n.Copy):
                        self.memory.add(x.src.at.buffer.name)
                case n.Buffer(space="cluster"):
                    self.alone = False
                case n.Load() | n.Store() if x.clip or (x.mask is not None and shape_of(x.mask.type)):
                    self.memory.add(x.at.buffer.name)
                case _:
                    pass
        self.memory = {self._root(name) for name in self.memory}

    # ---------------------------------------------------------------------------------------------------------- places
    def _root(self, name: str) -> str:
        """The array in which something named shows places."""
        while name in self.shown:
            name = self.shown[name]
        return name

    def _now(self, name: str) -> Any:
        """What may have written last to an array."""
        return self.version.get(self._root(name), self.version.get("*"))

    def _new(self, *key: Any) -> int:
        """The number of this thing among those that are alike."""
        self.counted[key] = self.counted.get(key, -1) + 1
        return self.counted[key]

    def _again(self, head: Any) -> int:
        self.counted[head] = self.counted.get(head, -1) + 1
        return self.counted[head]

    def _declared(self, s: n.Alloc) -> None:
        b = s.buffer
        sizes = [int_value(d) for d in b.shape]
        count = 1
        for d in sizes:
            count *= d or WIDEST + 1
        plain = b.space == "register" and b.layout is None and b.strides is None and b.name not in self.memory and not b.dtype.is_symbolic
        if plain and count <= WIDEST:
            begun = self.spread(self.value(s.init), count) if s.init is not None else None
            self.state[b.name] = list(begun) if begun is not None else [self.t.of("poison", b.dtype.name)] * count
            self.kinds[b.name], self.windows[b.name] = b.dtype, 0
            return
        bits = bits_of(b) if b.name in self.narrow else None
        spec: tuple[Any, ...] = (b.space, b.dtype.name, tuple(self.one(d) for d in b.shape), repr(b.layout), self._strides(b), b.align)
        if bits is not None:
            spec = (b.space, self.narrow[b.name].name, bits, b.align)
        self.place[b.name] = self.t.of("array", spec, self._new(spec))
        if b.name in self.narrow and b.layout is None and b.strides is None:
            self.begins[b.name] = self.t.const(0, I32)
        self.rooted[self.place[b.name]] = b.name
        self.version[b.name] = ("new", self.around)
        if s.init is not None:
            self.store(n.Store(n.Region(b), s.init))

    def _base(self, b: n.Buffer) -> int:
        if b.name not in self.place:
            self.place[b.name] = self.t.of("memory", b.name, b.dtype.name)
            if b.name in self.narrow and len(b.shape) == 1:
                self.begins[b.name] = self.t.const(0, I64)
            self.rooted[self.place[b.name]] = b.name
        return self.place[b.name]

    def _strides(self, b: n.Buffer) -> tuple[int, ...] | None:
        return None if b.strides is None else tuple(self.one(d) for d in b.strides)

    def _viewed(self, s: n.View) -> None:
        if s.fill is not None or s.axes:
            raise Unlisted
        b, of = s.buffer, s.at.buffer
        root, lo = self._root(b.name), n.Region(of, tuple(i.lo if isinstance(i, n.Span) else i for i in s.at.index))
        plain = b.layout is None and b.strides is None and not b.dtype.is_symbolic and not b.dtype.is_bool
        if root in self.state:
            first = self.elements(lo, of)[0][0] if s.at.index else 0
            if not plain or of.dtype.bits % 8 or b.dtype.bits % 8 or any(int_value(d) is None for d in b.shape):
                raise Dynamic(root)
            self.windows[b.name] = self.windows[of.name] + first * of.dtype.bits
            return
        base = self._base(of)
        if root in self.narrow and plain and of.name in self.begins:
            found = self.places(lo) if s.at.index else [((base, self.begins[of.name]),)]
            if found is not None and len(found) == 1:
                self.place[b.name], self.begins[b.name] = self.place[root], found[0][0][1]
                self.under[b.name] = {*self.narrowly.get((found[0][0], self.around), ()), *self.under.get(of.name, ())}
                return
        shown = self.region(lo, whole=not s.at.index)
        inner = (tuple(self.one(d) for d in b.shape[1:]), repr(b.layout), self._strides(b))
        self.place[b.name] = self.t.of("view", shown, b.space, b.dtype.name, inner)
        self.rooted[self.place[b.name]] = root

    def places(self, r: n.Region) -> list[tuple[tuple[Any, ...], ...]] | None:
        """The places of a region's elements, one after the other, each as the places of its parts; None where they are not followed one by one."""
        b, base, long = r.buffer, self._base(r.buffer), length(r.type)
        if long is None or long > WIDEST:
            return None
        local = b.space in ("register", "shared", "fragment") and b.layout is None and b.strides is None
        sizes = [int_value(d) for d in b.shape]
        if not r.index:
            return [self._parts(b, (base, self.t.const(k, I32))) for k in range(long)] if local else None
        index: list[tuple[int, ...]] = []
        for i in r.index:
            v = self.value(i.lo if isinstance(i, n.Span) else i)
            if isinstance(i, n.Span):
                step = i.step if isinstance(i.step, int) else int_value(i.step)
                if not isinstance(v, int) or step is None or not isinstance(i.extent, int):
                    return None
                of = dtype_of(i.lo.type)
                index.append(tuple(self.t.binary("add", v, self.t.const(k * step, of), of, of) for k in range(i.extent)))
            else:
                index.append((v,) if isinstance(v, int) else v)
        rows = [isinstance(i, n.Span) for i, own in zip(r.index, index, strict=True) if len(own) > 1]
        if sum(rows) + (not all(rows)) > 1 or any(len(i) not in (1, long) for i in index):
            return None
        kinds = [dtype_of(i.lo.type if isinstance(i, n.Span) else i.type) for i in r.index]
        if b.name in self.begins and (not local and len(sizes) != 1):
            return None
        out = []
        for k in range(long):
            narrow = {*self.under.get(b.name, ())}
            out.append(self._parts(b, self._place(b, base, kinds, [i[k if len(i) > 1 else 0] for i in index], local, narrow)))
            for part in out[-1]:
                self._said(part, narrow)
        return out

    def _said(self, place: Any, narrow: set[int]) -> None:
        if narrow:
            self.narrowly.setdefault((place, self.around), set()).update(narrow)

    def _parts(self, b: n.Buffer, place: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
        """An element's place in an array, of which views show others, as the places of its parts."""
        if b.name not in self.begins:
            return (place,)
        of = I32 if b.space != "global" else I64
        many, at = b.dtype.bits // self.narrow[self._root(b.name)].bits, place[1][0] if isinstance(place[1], tuple) else place[1]
        first = self.t.binary("add", self.begins[b.name], self.t.binary("mul", at, self.t.const(many, of), of, of), of, of)
        return tuple((place[0], self.t.binary("add", first, self.t.const(k, of), of, of)) for k in range(many))

    def _as(self, b: n.Buffer) -> DType:
        """What an element's parts are."""
        return self.narrow[self._root(b.name)] if b.name in self.begins else b.dtype

    def _place(self, b: n.Buffer, base: int, kinds: Sequence[DType], index: Sequence[int], local: bool, narrow: set[int]) -> tuple[Any, ...]:
        """One element's place: in an array of this thread's, or of its CTA, by its number in all of that."""
        sizes = [int_value(d) for d in b.shape]
        if not local or any(d is None for d in sizes[1:]):
            return (base, tuple(self._wide(x, kind, d, narrow) for x, kind, d in zip(index, kinds, b.shape, strict=True)))
        own = [self.t.cast(x, kind, I32, "rn") for x, kind in zip(index, kinds, strict=True)]
        bare = [own[0], *(self._bare(own, axis, sizes[axis] or 0) for axis in range(1, len(own)))]
        at, stride = dict[tuple[int, ...], int](), 1
        for number, d in zip(reversed(bare), reversed(sizes), strict=True):
            for m, c in self.t.poly(number).items():
                at[m] = at.get(m, 0) + c * stride
            stride *= d or 1
        flat = self.t.sum(at, I32)
        if len(own) > 1:
            key = (base, flat, tuple(bare))
            self.placed |= {key, (base, flat)}
            if bare != own:
                self.wrapped.add(key)
            out = [axis for axis in range(1, len(own)) if not self._inside(own[axis], sizes[axis] or 0)]
            further = self._further(own[out[0]], sizes[out[0]] or 0) if len(out) == 1 else None
            if further is not None:
                stride = math.prod(d or 1 for d in sizes[out[0] + 1:])
                self.wrapped |= {(base, flat), (base, self.t.binary("sub", flat, self.t.const(further * stride, I32), I32, I32))}
            elif out:
                self.rows.add(key)
        return (base, flat)

    def _wide(self, x: int, of: DType, size: n.Expr, narrow: set[int]) -> int:
        """A number along an axis of memory in 64 bits; sums of 32 bits in it that may be beyond those are put into `narrow`: all but one that is a place
        along an axis whose size is of 32 bits, which what wraps around is too."""
        if not of.is_integer or of.is_symbolic or of.is_bool:
            return x
        found = set[int]()
        made = self.t.wide(x, of, found, whole=dtype_of(size.type).name == "i32")
        narrow |= {y for y in found if (held := self._range(y)) is None or not I32.range[0] <= held[0] <= held[1] <= I32.range[1]}
        return made

    def _further(self, number: int, size: int) -> int | None:
        """How far behind a remainder by an axis's length a number is."""
        terms = dict(self.t.poly(number))
        more = I32.wrap(terms.pop((), 0))
        one = next(iter(terms)) if list(terms.values()) == [1] else ()
        key = self.t.keys[one[0]] if len(one) == 1 else ("",)
        return more if more > 0 and key[0] == "binary" and key[1] == "mod" and self.t.known(key[4]) == size else None

    def _bare(self, own: list[int], axis: int, size: int) -> int:
        """A number along an axis without the remainder by its length, whose quotient no other axis names: in the row that is what it is."""
        key = self.t.keys[own[axis]]
        if key[0] != "binary" or key[1] != "mod" or self.t.known(key[4]) != size:
            return own[axis]
        quotient = self.t.numbers.get(("binary", "floordiv", *key[2:]), -1)
        if any(quotient in m for k, x in enumerate(own) if k != axis for m in self.t.poly(x)):
            return own[axis]
        first = I32.wrap(self.t.poly(int(key[3])).get((), 0))
        return self.t.binary("add", int(key[3]), self.t.const(-((first + size // 2) // size * size), I32), I32, I32)

    def _inside(self, number: int, size: int) -> bool:
        """Whether a number along an axis stays in it. Raises Unlisted where its counters, all of whose turns there are, say that it does not."""
        found = self._range(number)
        if found is not None and found[2] and not 0 <= found[0] <= found[1] < size:
            raise Unlisted
        return found is not None and 0 <= found[0] <= found[1] < size

    def _range(self, number: int) -> tuple[int, int, bool] | None:
        """The least and the largest that a sum of counters with known ends may be, and whether it is those in some turn."""
        lo, hi, reached = 0, 0, True
        for m, c in self.t.poly(number).items():
            c = I32.wrap(c)
            found = (1, 1, True) if not m else self._atom(m[0]) if len(m) == 1 else None
            if found is None:
                return None
            lo, hi, reached = lo + min(c * found[0], c * found[1]), hi + max(c * found[0], c * found[1]), reached and found[2]
        return lo, hi, reached

    def _atom(self, number: int) -> tuple[int, int, bool] | None:
        key = self.t.keys[number]
        if key[0] == "counter":
            lo, hi, step = (self.t.known(x) if isinstance(x, int) else None for x in (*self.t.keys[key[1]][1], None, None)[:3])
            return (lo, hi - 1, step == 1) if lo is not None and hi is not None and step is not None and step > 0 and lo < hi else None
        if key[0] == "binary" and key[1] in ("mod", "floordiv") and (by := self.t.known(key[4])) is not None and by > 0:
            inner = self._range(int(key[3]))
            if key[1] == "mod":
                return inner if inner is not None and 0 <= inner[0] <= inner[1] < by else (0, by - 1, False)
            return None if inner is None else (inner[0] // by, inner[1] // by, inner[2])
        return None

    def region(self, r: n.Region, whole: bool = False) -> tuple[Any, ...]:
        """A place in memory as a whole: the array, and where in it."""
        base = self._base(r.buffer)
        found = self.places(r)
        if found is not None and (len(found) == 1 or r.index):
            return (*found[0], len(found), found[-1], r.buffer.dtype.name)
        if not r.index:
            begun = self._parts(r.buffer, (base, self.t.const(0, I32)))
            return (*begun, 1, begun, r.buffer.dtype.name) if whole else (base, None, self.begins.get(r.buffer.name), r.buffer.dtype.name)
        if r.buffer.space != "global":
            return (base, tuple(self._index(i) for i in r.index))
        narrow = set[int]()
        made = (base, tuple(self._index(i, d, narrow) for i, d in zip(r.index, r.buffer.shape, strict=True)))
        self._said(made, narrow)
        return made

    def _index(self, i: n.Expr | n.Span, size: n.Expr | None = None, narrow: set[int] | None = None) -> tuple[Value, Any, Any]:
        if size is not None and narrow is not None:
            first = self.value(i.lo if isinstance(i, n.Span) else i)
            of = dtype_of(i.lo.type if isinstance(i, n.Span) else i.type)
            lo: Value = self._wide(first, of, size, narrow) if isinstance(first, int) else tuple(self._wide(x, of, size, narrow) for x in first)
            return (lo, *self._index(i)[1:])
        if isinstance(i, n.Span):
            extent = i.extent if isinstance(i.extent, int) else ("of", self.one(i.extent))
            step = i.step if isinstance(i.step, int) else int_value(i.step) or ("of", self.one(i.step))
            return self.one(i.lo), extent, step
        return self.value(i), None, None

    def value(self, e: n.Expr) -> Value:
        """What an expression is worth."""
        raise NotImplementedError

    def one(self, e: n.Expr) -> int:
        """The same as one entry of the table."""
        raise NotImplementedError

    def spread(self, v: Value, count: int) -> tuple[int, ...]:
        """A value as so many elements. Raises Unlisted where it has others."""
        raise NotImplementedError

    def store(self, s: n.Store) -> None:
        """Follows a store."""
        raise NotImplementedError

    def elements(self, at: n.Region, b: n.Buffer) -> tuple[list[int], bool]:
        """Which elements of a private array a place is, and whether it is one. Raises Dynamic where that is not known."""
        raise NotImplementedError


def bits_of(b: n.Buffer) -> int | None:
    """How many bits an array without a layout is; None where that is not known."""
    sizes = [int_value(d) for d in b.shape]
    return None if b.layout is not None or b.strides is not None or None in sizes else b.dtype.bits * math.prod(d or 0 for d in sizes)


def flat(v: Any) -> Iterator[Any]:
    """What nested tuples and lists hold, in order."""
    if isinstance(v, (tuple, list)):
        for x in v:
            yield from flat(x)
    else:
        yield v


def length(t: Type) -> int | None:
    """How many elements a vector has, 1 for a number; None where they are not known, or in several axes."""
    shape = shape_of(t)
    if not isinstance(t, (DType, TileType)) or len(shape) > 1 or not all(isinstance(d, int) for d in shape):
        return 1 if not isinstance(t, (DType, TileType)) else None
    return int(shape[0]) if shape and isinstance(shape[0], int) else 1
