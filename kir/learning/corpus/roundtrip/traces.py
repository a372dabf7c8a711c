"""What one thread's program does, apart from what its values are called and when they are worked out.

A program is walked once. Every value becomes an entry of a table in which equal values are one entry: a register that is set is what it is set to, after a
branch the choice of what its arms leave in it, in a loop what the turn before left. A vector is its elements, sums of integers are polynomials. A load is
named by its place, by the last thing before it that may have written there, and by the branches and loops around it, so that it moves over nothing that it
depends on. What is seen from outside (stores, barriers, atomics, copies, loops and branches that hold such) is listed in its order. Programs whose lists
are one do the same; what has no such list is no program of it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from kir.base.instructions import table
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import canonical
from kir.ir.types import DTYPES, I32, I64, DType, TileType, Type, dtype_of, shape_of
from kir.ir.visit import blocks_of, walk
from kir.learning.corpus.roundtrip.same_values import Table, Value

WIDEST = 128
"""Elements of a vector, or of a private array, that are followed one by one, at most."""
TURNS = 16
"""Turns of an unrolled loop that are followed one by one, at most."""
SIZE = 1024
"""Statements, each as often as it is followed, of a loop that nobody asked to unroll, at most."""
MOST = 40_000
"""Statements that are followed, at most."""
PLAIN = frozenset({"", "nc", "ca", "cg", "cs", "lu", "wb"})
"""Cache policies of loads that may be worked out anywhere before the next write."""


class Unlisted(Exception):
    """A program of which there is no such list."""


class Dynamic(Exception):
    """A private array that is asked for an element by a number that is not known."""


Events = list[Any]


class Trace:
    """One kernel's walk. `rows` are places in arrays of several axes whose numbers are taken to stay in their rows: by that they are what they are."""

    def __init__(self, values: Table, memory: frozenset[str], body: n.Block, narrow: Mapping[str, DType]) -> None:
        self.t = values
        self.narrow = narrow  # what arrays are seen as, where views show other numbers in them: unsigned numbers of their fewest bits
        self.begins: dict[str, int] = {}  # where such a view begins in its array, in those
        self.memory = set(memory)
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
        self.events: Events = []
        for x in (x for s in body for x in walk(s)):
            match x:
                case n.Call() | n.Mma() | n.Copy() | n.Address():
                    held = [v for f in fields(x) for v in _flat(getattr(x, f.name))]
                    self.memory |= {r.buffer.name for r in held if isinstance(r, n.Region)}
                    if isinstance(x, n.Copy):
                        self.memory.add(x.src.at.buffer.name)
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

    def _declared(self, s: n.Alloc) -> None:
        b = s.buffer
        sizes = [int_value(d) for d in b.shape]
        count = 1
        for d in sizes:
            count *= d or WIDEST + 1
        plain = b.space == "register" and b.layout is None and b.strides is None and b.name not in self.memory and not b.dtype.is_symbolic
        if plain and count <= WIDEST:
            begun = self._spread(self.value(s.init), count) if s.init is not None else None
            self.state[b.name] = list(begun) if begun is not None else [self.t.of("poison", b.dtype.name)] * count
            self.kinds[b.name], self.windows[b.name] = b.dtype, 0
            return
        spec = (b.space, b.dtype.name, tuple(self.one(d) for d in b.shape), repr(b.layout), b.strides and tuple(map(self.one, b.strides)), b.align)
        self.place[b.name] = self.t.of("array", spec, self._new(spec))
        if b.name in self.narrow and b.layout is None and b.strides is None:
            self.begins[b.name] = self.t.const(0, I32)
        self.rooted[self.place[b.name]] = b.name
        self.version[b.name] = ("new", self.around)
        if s.init is not None:
            self._store(n.Store(n.Region(b), s.init))

    def _base(self, b: n.Buffer) -> int:
        if b.name not in self.place:
            self.place[b.name] = self.t.of("memory", b.name, b.dtype.name)
            if b.name in self.narrow and len(b.shape) == 1:
                self.begins[b.name] = self.t.const(0, I64)
            self.rooted[self.place[b.name]] = b.name
        return self.place[b.name]

    def _viewed(self, s: n.View) -> None:
        if s.fill is not None or s.axes:
            raise Unlisted
        b, of = s.buffer, s.at.buffer
        root, lo = self._root(b.name), n.Region(of, tuple(i.lo if isinstance(i, n.Span) else i for i in s.at.index))
        plain = b.layout is None and b.strides is None and not b.dtype.is_symbolic and not b.dtype.is_bool
        if root in self.state:
            first = self._elements(lo, of)[0][0] if s.at.index else 0
            if not plain or of.dtype.bits % 8 or b.dtype.bits % 8 or any(int_value(d) is None for d in b.shape):
                raise Dynamic(root)
            self.windows[b.name] = self.windows[of.name] + first * of.dtype.bits
            return
        base = self._base(of)
        if root in self.narrow and plain and of.name in self.begins:
            found = self.places(lo) if s.at.index else [((base, self.begins[of.name]),)]
            if found is not None and len(found) == 1:
                self.place[b.name], self.begins[b.name] = self.place[root], found[0][0][1]
                return
        first = self.region(lo, whole=not s.at.index)
        inner = (tuple(self.one(d) for d in b.shape[1:]), repr(b.layout), b.strides and tuple(map(self.one, b.strides)))
        self.place[b.name] = self.t.of("view", first, b.space, b.dtype.name, inner)
        self.rooted[self.place[b.name]] = root

    def places(self, r: n.Region) -> list[tuple[tuple[Any, ...], ...]] | None:
        """The places of a region's elements, one after the other, each as the places of its parts; None where they are not followed one by one."""
        b, base, long = r.buffer, self._base(r.buffer), _length(r.type)
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
        return [self._parts(b, self._place(base, sizes, kinds, [i[k if len(i) > 1 else 0] for i in index], local)) for k in range(long)]

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

    def _place(self, base: int, sizes: Sequence[int | None], kinds: Sequence[DType], index: Sequence[int], local: bool) -> tuple[Any, ...]:
        """One element's place: in an array of this thread's, or of its CTA, by its number in all of that."""
        if not local or any(d is None for d in sizes[1:]):
            return (base, tuple(self.t.cast(x, kind, I64, "rn") if kind.is_integer else x for x, kind in zip(index, kinds, strict=True)))
        at, stride, own = dict[tuple[int, ...], int](), 1, []
        for x, kind, d in zip(reversed(index), reversed(kinds), reversed(sizes), strict=True):
            number = self.t.cast(x, kind, I32, "rn")
            own.append(number)
            for m, c in self.t.poly(number).items():
                at[m] = at.get(m, 0) + c * stride
            stride *= d or 1
        flat = self.t.sum(at, I32)
        key = self.t.keys[flat]
        if len(index) > 1 and all(d == 1 for d in sizes[:-1]) and key[0] == "binary" and key[1] == "mod" and self.t.known(key[4]) == sizes[-1]:
            flat = int(key[3])  # in its only row
            self.rows.add((base, flat))
        elif not all(self._inside(x, d or 0) for x, d in zip(own[:-1], list(reversed(sizes))[:-1], strict=True)):
            self.rows.add((base, flat))
        return (base, flat)

    def _inside(self, number: int, size: int) -> bool:
        """Whether a number along an axis stays in it, whatever it is worked out from."""
        known, key = self.t.known(number), self.t.keys[number]
        if known is not None:
            return 0 <= known < size
        return key[0] == "binary" and key[1] == "mod" and (by := self.t.known(key[4])) is not None and 0 < by <= size

    def region(self, r: n.Region, whole: bool = False) -> tuple[Any, ...]:
        """A place in memory as a whole: the array, and where in it."""
        base = self._base(r.buffer)
        found = self.places(r)
        if found is not None and (len(found) == 1 or r.index):
            return (*found[0], len(found), found[-1], r.buffer.dtype.name)
        if not r.index:
            begun = self._parts(r.buffer, (base, self.t.const(0, I32)))
            return (*begun, 1, begun, r.buffer.dtype.name) if whole else (base, None, self.begins.get(r.buffer.name), r.buffer.dtype.name)
        return (base, tuple(self._index(i) for i in r.index))

    def _index(self, i: n.Expr | n.Span) -> tuple[Value, Any, Any]:
        if isinstance(i, n.Span):
            extent = i.extent if isinstance(i.extent, int) else ("of", self.one(i.extent))
            step = i.step if isinstance(i.step, int) else int_value(i.step) or ("of", self.one(i.step))
            return self.one(i.lo), extent, step
        return self.value(i), None, None

    # ---------------------------------------------------------------------------------------------------------- values
    def one(self, e: n.Expr) -> int:
        return self.packed(self.value(e))

    def packed(self, v: Value) -> int:
        return v if isinstance(v, int) else self.t.of("vector", v)

    def _spread(self, v: Value, count: int) -> tuple[int, ...]:
        if isinstance(v, int):
            return (v,) * count
        if len(v) == count:
            return v
        if len(v) == 1:
            return v * count
        raise Unlisted

    def _each(self, made: Callable[..., int], *parts: Value) -> Value:
        """A value worked out element by element."""
        count = max((len(p) for p in parts if isinstance(p, tuple)), default=None)
        if count is None:
            return made(*parts)
        return tuple(made(*each) for each in zip(*(self._spread(p, count) for p in parts), strict=True))

    def value(self, e: n.Expr) -> Value:
        if (long := _length(e.type)) is None or (long > WIDEST):
            return self._as_one(e)
        match e:
            case n.Const():
                return self.t.const(e.value, e.dtype)
            case n.Var():
                held = self.env.get(e.name)
                if isinstance(held, int) and shape_of(e.of):
                    return tuple(self.t.of("element", held, k) for k in range(long))
                return self.t.of("name", e.name, str(e.of)) if held is None else held
            case n.Unary():
                of = dtype_of(e.x.type)
                return self._each(lambda x: self.t.unary(e.op, x, of), self.value(e.x))
            case n.Binary():
                of, to = dtype_of(e.a.type), dtype_of(e.type)
                if of.is_symbolic or of != dtype_of(e.b.type):
                    return self._each(lambda a, b: self.t.of("mixed", e.op, str(of), str(dtype_of(e.b.type)), a, b), self.value(e.a), self.value(e.b))
                return self._each(lambda a, b: self.t.binary(e.op, a, b, of, to), self.value(e.a), self.value(e.b))
            case n.Select():
                return self._each(self.t.select, self.value(e.cond), self.value(e.a), self.value(e.b))
            case n.Cast():
                of = dtype_of(e.x.type)
                if shape_of(e.x.type) != shape_of(e.type):
                    return self._as_one(e)
                return self._each(lambda x: self.t.cast(x, of, e.dtype, e.rounding), self.value(e.x))
            case n.Load():
                return self._load(e)
            case n.Call():
                return self._call(e)
            case n.Address():
                return self.t.of("address", self.region(e.at))
            case _:
                raise Unlisted

    def _as_one(self, e: n.Expr) -> int:
        """A value whose elements are not followed."""
        if isinstance(e, n.Load):
            return self.packed(self._load(e))
        if isinstance(e, n.Var):
            return self.packed(self.env[e.name]) if e.name in self.env else self.t.of("name", e.name, str(e.of))
        if isinstance(e, n.Call) and (e.of is not None or not table()[e.fn].is_pure):
            raise Unlisted
        parts = tuple((f.name, self._part(getattr(e, f.name))) for f in fields(e))
        meet = (self.around,) if isinstance(e, n.Call) and table()[e.fn].level != "element" else ()
        return self.t.of("tile", type(e).__name__, str(e.type), parts, meet)

    def _part(self, v: Any) -> Any:
        match v:
            case n.Region():
                return ("place", self.region(v), self._now(v.buffer.name))
            case n.Expr():
                return ("value", self.one(v))
            case tuple():
                return tuple(map(self._part, v))
            case _:
                return repr(v)

    def _load(self, e: n.Load) -> Value:
        b = e.at.buffer
        own = self._root(b.name) in self.state and not e.cache
        long, single = _length(e.type), not shape_of(e.type)
        if own or (e.cache in PLAIN and not e.clip and (found := self.places(e.at)) is not None):
            now = self._now(b.name)
            mask = None if e.mask is None else self._spread(self.value(e.mask), long or 1)
            other = (self.t.of("poison", b.dtype.name),) * (long or 1) if e.other is None else self._spread(self.value(e.other), long or 1)
            if own:
                held = self._held(e.at)
            elif mask is None:
                held = [self._read(b, p, now, e.cache, self.around) for p in found or ()]
            else:
                held = [self._read(b, p, now, e.cache, self.t.of("around", self.around, m, 0)) for p, m in zip(found or (), mask, strict=True)]
            made = tuple(held) if mask is None else tuple(self.t.select(m, x, y) for m, x, y in zip(mask, held, other, strict=True))
            return made[0] if single else made
        at = self.region(e.at)
        masked = (None if e.mask is None else self.one(e.mask), None if e.other is None else self.one(e.other))
        if e.cache not in PLAIN:
            whole = self.t.of("got", self._event("read", at, masked, e.clip, e.cache, everything=True), dtype_of(e.type).name)
        else:
            whole = self.t.of("load", at, masked, e.clip, e.cache, self._now(b.name), self.around, str(e.type))
        if single or long is None or long > WIDEST:
            return whole
        return tuple(self.t.of("element", whole, k) for k in range(long))

    def _read(self, b: n.Buffer, parts: tuple[tuple[Any, ...], ...], now: Any, cache: str, around: int) -> int:
        return self.t.pack(tuple(self.t.of("read", place, now, cache, around) for place in parts), self._as(b), b.dtype)

    def _held(self, at: n.Region) -> list[int]:
        """What a private array that is followed holds at places, each as a view of it shows it."""
        root, to = self._root(at.buffer.name), at.buffer.dtype
        held, of = self.state[root], self.kinds[root]
        return [held[k] if many == 0 else self._shown(held, of, to, k, part, many) for k, part, many in self._bits(at)]

    def _shown(self, held: list[int], of: DType, to: DType, k: int, part: int, many: int) -> int:
        if of.bits == to.bits:
            return self.t.cast(held[k], of, to, "bits")
        if of.bits < to.bits:
            return self.t.pack(tuple(held[k:k + many]), of, to)
        return self.t.unpack(held[k], of, to, many)[part]

    def _bits(self, at: n.Region) -> list[tuple[int, int, int]]:
        """For each place the first element of the array, what part of it, and how many parts or elements; 0 where it is that element."""
        name = at.buffer.name
        root, to, begun = self._root(name), at.buffer.dtype, self.windows[name]
        held, of = self.state[root], self.kinds[root]
        out = []
        for place in self._elements(at, at.buffer)[0]:
            bit = begun + place * to.bits
            if name == root:
                out.append((place, 0, 0))
                continue
            if (bit % of.bits if to.bits >= of.bits else bit % to.bits) or not 0 <= bit <= len(held) * of.bits - to.bits:
                raise Dynamic(root)
            out.append((bit // of.bits, bit % of.bits // to.bits, max(of.bits, to.bits) // min(of.bits, to.bits)))
        return out

    def _put(self, at: n.Region, given: Sequence[int], asked: Sequence[int] | None) -> None:
        """Sets places of a private array that is followed."""
        root, to = self._root(at.buffer.name), at.buffer.dtype
        held, of = self.state[root], self.kinds[root]
        for i, ((k, part, many), x) in enumerate(zip(self._bits(at), given, strict=True)):
            if many == 0 or of.bits == to.bits:
                new = [x if many == 0 else self.t.cast(x, to, of, "bits")]
            elif of.bits < to.bits:
                new = list(self.t.unpack(x, to, of, many))
            else:
                parts = self.t.unpack(held[k], of, to, many)
                new = [self.t.pack((*parts[:part], x, *parts[part + 1:]), to, of)]
            for d, y in enumerate(new):
                held[k + d] = y if asked is None else self.t.select(asked[i], y, held[k + d])

    def _elements(self, at: n.Region, b: n.Buffer) -> tuple[list[int], bool]:
        sizes = [int_value(d) or 1 for d in b.shape]
        if not at.index:
            count = 1
            for d in sizes:
                count *= d
            return list(range(count)), not sizes
        places, single, root = [0], True, self._root(b.name)
        for i, d in zip(at.index, sizes, strict=True):
            lo = self.value(i.lo if isinstance(i, n.Span) else i)
            if isinstance(i, n.Span):
                first = self.t.known(lo) if isinstance(lo, int) else None
                step = i.step if isinstance(i.step, int) else int_value(i.step)
                if first is None or step is None or not isinstance(i.extent, int):
                    raise Dynamic(root)
                own, single = [first + k * step for k in range(i.extent)], False
            else:
                numbers = [self.t.known(x) for x in ((lo,) if isinstance(lo, int) else lo)]
                own = [k for k in numbers if k is not None]
                if len(own) != len(numbers):
                    raise Dynamic(root)
                single = single and isinstance(lo, int)
            if any(not 0 <= k < d for k in own) or (len(places) > 1 and len(own) > 1):
                raise Dynamic(root)
            places = [p * d + k for p in places for k in own]
        return places, single

    def _call(self, e: n.Call) -> Value:
        if e.of is not None:
            raise Unlisted
        args, attrs, to = e.args, dict(e.attrs), dtype_of(e.type)
        long = _length(e.type) if shape_of(e.type) else None
        row = table()[e.fn]
        if all(isinstance(a, n.Expr) for a in args):
            given = [self.value(a) for a in args if isinstance(a, n.Expr)]
            kinds = [dtype_of(a.type) for a in args if isinstance(a, n.Expr)]
            first = given[0] if given else None
            match e.fn:
                case "iota" if long is not None:
                    return tuple(self.t.const(k, to) for k in range(long))
                case "broadcast" if long is not None and first is not None:
                    return self._spread(first, long)
                case "vec" if all(isinstance(v, int) for v in given):
                    return tuple(v for v in given if isinstance(v, int))
                case "cat" if all(isinstance(v, tuple) for v in given):
                    return tuple(x for v in given if isinstance(v, tuple) for x in v)
                case "pick" if isinstance(first, tuple) and len(given) == 2:
                    return self._each(lambda at: self.t.pick(first, at), given[1])
                case "pack" if isinstance(first, tuple) and long is None:
                    return self.t.pack(first, kinds[0], to)
                case "unpack" if isinstance(first, int) and long is not None and not shape_of(args[0].type):
                    return self.t.unpack(first, kinds[0], to, long)
                case _ if row.is_pure and row.level == "element" and long == max((len(v) for v in given if isinstance(v, tuple)), default=None):
                    names = tuple(k.name for k in kinds)
                    return self._each(lambda *x: self.t.of("call", e.fn, e.attrs, names, to.name, x), *given)
                case _ if row.is_pure:
                    meet = (self.around,) if row.level != "element" else ()
                    made = self.t.of("call", e.fn, e.attrs, tuple(k.name for k in kinds), str(e.type), tuple(map(self.packed, given)), meet)
                    return made if long is None else tuple(self.t.of("element", made, k) for k in range(long))
        number = self._effect(e)
        made = self.t.of("got", number, str(e.type))
        return made if long is None else tuple(self.t.of("element", made, k) for k in range(long))

    # ---------------------------------------------------------------------------------------------------------- events
    def _event(self, *what: Any, writes: Iterable[str] = (), everything: bool = False) -> int:
        self.events.append(what)
        self.count += 1
        for name in writes:
            self.version[self._root(name)] = f"{self.count}"
        if everything:
            self._stale({"*"}, f"{self.count}")
        return self.count

    def _effect(self, e: n.Call) -> int:
        held = tuple(self.region(a) if isinstance(a, n.Region) else self.one(a) for a in e.args)
        return self._event("call", e.fn, e.attrs, str(e.of), held, self.around, everything=True)

    def body(self, block: Iterable[n.Stmt]) -> None:
        for s in block:
            self.steps += 1
            if self.steps > MOST:
                raise Unlisted
            self._statement(s)

    def _statement(self, s: n.Stmt) -> None:
        match s:
            case n.Let(names=(name,)) if not isinstance(s.value, n.Call) or s.value.of is None:
                self.env[name] = self.value(s.value)
            case n.Let() if isinstance(s.value, n.Call) and s.value.of is None:
                held = self.t.of("got", self._effect(s.value), "")
                self.env |= {name: self.t.of("result", held, k) for k, name in enumerate(s.names)}
            case n.Alloc():
                self._declared(s)
            case n.View():
                self._viewed(s)
            case n.Store():
                self._store(s)
            case n.Copy() if (s.via in ("plain", "vec") or s.via.startswith("vector(")) and s.signal is None and not s.grouped and not s.attrs:
                self._store(n.Store(s.dst, s.src, s.mask, s.clip))
            case n.Eval():
                self._effect(s.call)
            case n.Copy():
                signal = None if s.signal is None else self.region(s.signal)
                load = (self.region(s.src.at), *(None if x is None else self.one(x) for x in (s.src.mask, s.src.other, s.mask)), s.src.clip, s.src.cache)
                self._event("copy", load, self.region(s.dst), s.via, s.clip, signal, s.grouped, s.attrs, everything=True)
            case n.Mma():
                parts = (self.region(s.acc), self.one(s.a), self.one(s.b), s.via, s.precision, s.pending, s.attrs)
                self._event("mma", parts, self.around, everything=True)
            case n.If():
                self._if(s)
            case n.For() if self._unrolled(s):
                lo, hi, step = (int_value(x) or 0 for x in (s.lo, s.hi, s.step))
                for k in range(lo, hi, step):
                    self.env[s.var.name] = self.t.const(k, dtype_of(s.var.type))
                    self.body(s.body)
            case n.For() | n.While():
                self._loop(s)
            case n.Jump():
                values = tuple(self.one(x) for x in s.values)
                carried = tuple((phi, now) for name, phis in (self.loops[-1][1].items() if self.loops and s.kind != "return" else ())
                                for phi, now in zip(phis, self.state[name], strict=True))
                self._event("jump", s.kind, values, tuple(sorted(carried)))
            case _:
                raise Unlisted

    def _store(self, s: n.Store) -> None:
        b, v = s.at.buffer, self.value(s.value)
        mask = None if s.mask is None else self.value(s.mask)
        long = _length(s.at.type)
        if self._root(b.name) in self.state:
            count = len(self._elements(s.at, b)[0])
            self._put(s.at, self._spread(v, count), None if mask is None else self._spread(mask, count))
            return
        found = None if s.clip else self.places(s.at)
        if found is None:
            v = self._spread(v, long) if long is not None and long <= WIDEST and shape_of(s.at.type) else v
            self._event("fill", self.region(s.at), self.packed(v), None if mask is None else self.packed(mask), s.clip, s.cache, writes=(b.name,))
            return
        asked = [None] * len(found) if mask is None else [*self._spread(mask, len(found))]
        for parts, x, m in zip(found, self._spread(v, len(found)), asked, strict=True):
            for place, y in zip(parts, self.t.unpack(x, b.dtype, self._as(b), len(parts)) if b.name in self.begins else (x,), strict=True):
                if m is None:
                    self._event("store", place, y, s.cache, writes=(b.name,))
                else:
                    self.events.append(("if", m, (("store", place, y, s.cache),), ()))
                    self.count += 2
                    self.version[self._root(b.name)] = f"{self.count}"

    def _if(self, s: n.If) -> None:
        cond = self.one(s.cond)
        key = self.t.keys[cond]
        then, orelse = s.then, s.orelse
        if key[0] == "unary" and key[1] == "not":
            cond, then, orelse = int(key[3]), orelse, then
        around, outer, begun, count = self.around, self.events, {k: list(v) for k, v in self.state.items()}, self.count
        versions, made, counts = dict(self.version), [], []
        for k, arm in enumerate((then, orelse)):
            self.state = {name: list(v) for name, v in begun.items()}
            self.version, self.events, self.count = dict(versions), [], count
            self.around = self.t.of("around", around, cond, k)
            self.body(arm)
            made.append((self.state, self.version, self.events, bool(arm) and isinstance(arm[-1], n.Jump)))
            counts.append(self.count - count)
        (one, v1, e1, gone1), (two, v2, e2, gone2) = made
        self.events, self.around, self.version, self.count = outer, around, versions, count
        self.state = two if gone1 else one if gone2 else {
            name: [self.t.select(cond, a, b) for a, b in zip(one[name], two[name], strict=True)] for name in begun}
        if gone1 or gone2:
            self.around = self.t.of("around", around, cond, "after", gone1, gone2)
        if e1 and len(e1) == len(e2) and all(x[0] == y[0] == "store" and (x[1], x[3]) == (y[1], y[3]) for x, y in zip(e1, e2, strict=True)):
            for x, y in zip(e1, e2, strict=True):  # each puts something there
                self._event("store", x[1], self.t.select(cond, x[2], y[2]), x[3], writes=(self.rooted[x[1][0]],))
        elif e1 or e2:
            self.events.append(("if", cond, tuple(e1), tuple(e2)))
            self.count += sum(counts) + 1
            changed = {k for v in (v1, v2) for k in v if v[k] != versions.get(k)}
            self.version = {**versions, **dict.fromkeys(changed, f"{self.count}")}

    def _unrolled(self, s: n.For) -> bool:
        lo, hi, step = (int_value(x) for x in (s.lo, s.hi, s.step))
        if s.kind not in ("unroll", "static", "vectorize", "serial") or (s.attrs and s.kind != "unroll") or lo is None or hi is None or not step or step < 0:
            return False
        turns = (hi - lo + step - 1) // step
        if not 0 <= turns <= TURNS or any(isinstance(x, n.Jump) for b in s.body for x in walk(b)):
            return False
        return s.kind != "serial" or turns * _size(s.body) <= SIZE

    def _loop(self, s: n.For | n.While) -> None:
        ranged = (*(self.one(x) for x in (s.lo, s.hi, s.step)), s.kind, s.attrs, str(s.var.type)) if isinstance(s, n.For) else ("while",)
        head = (*ranged, self.around)
        me = self.t.of("loop", head, self._new(head), self.count)
        written = [name for x in _written(s) if (name := self._root(x.buffer.name)) in self.state]
        changed = {self._root(x.buffer.name) for x in _written(s)} | (set() if _harmless(s) else {"*"})
        phis: dict[str, list[int]] = {}
        begun: dict[int, int] = {}
        for name in dict.fromkeys(written):
            phis[name] = [self.t.of("carried", me, init, self._new(me, init)) for init in self.state[name]]
            begun |= dict(zip(phis[name], self.state[name], strict=True))
            self.state[name] = list(phis[name])
        outer, around, versions = self.events, self.around, dict(self.version)
        self._stale(changed, ("in", me))
        self.events, self.around = [], self.t.of("around", around, me)
        self.loops.append((me, phis))
        if isinstance(s, n.For):
            self.env[s.var.name] = self.t.of("counter", me)
            asked = None
        else:
            asked = self.one(s.cond)
        self.body(s.body)
        self.loops.pop()
        inner, self.events, self.around = self.events, outer, around
        jumps = any(isinstance(x, n.Jump) for b in s.body for x in walk(b))
        latches = {phi: now for name, each in phis.items() for phi, now in zip(each, self.state[name], strict=True)}
        live = set(latches) if jumps else self._needed((inner, asked), latches)
        closing = tuple(sorted((phi, now) for phi, now in latches.items() if phi in live and (jumps or phi != now)))
        for name, each in phis.items():
            self.state[name] = [self._left(me, phi, begun[phi], latches, phi in live, jumps) for phi in each]
        self.version = versions
        if inner or closing or isinstance(s, n.While):
            self.events.append(("loop", me, asked, tuple(inner), closing))
            self.count += 1
        if inner:
            self._stale(changed, f"{self.count}")

    def _left(self, me: int, phi: int, begun: int, latches: dict[int, int], seen: bool, jumps: bool) -> int:
        """What a loop leaves of a value that it carries."""
        if jumps:
            return self.t.of("left", me, phi)
        if latches[phi] == phi:
            return begun
        if seen:
            return self.t.of("left", me, phi)
        return self.t.of("left", me, begun, latches[phi], tuple(sorted((k, latches[k]) for k in self._needed((latches[phi],), latches))))

    def _needed(self, what: Any, latches: dict[int, int]) -> set[int]:
        """Which values that a loop carries something needs, itself or by what those become."""
        found: set[int] = set()
        rest = [x for x in _flat(what) if isinstance(x, int)]
        while rest:
            new = (self.t.carried(rest.pop()) & latches.keys()) - found
            found |= new
            rest += [latches[k] for k in new]
        return found

    def _stale(self, changed: set[str], by: Any) -> None:
        if "*" in changed:
            self.version = dict.fromkeys(self.version, by)
        for name in changed:
            self.version[name] = by


def _flat(v: Any) -> Iterator[Any]:
    if isinstance(v, (tuple, list)):
        for x in v:
            yield from _flat(x)
    else:
        yield v


def _length(t: Type) -> int | None:
    """How many elements a vector has, 1 for a number; None where they are not known, or in several axes."""
    shape = shape_of(t)
    if not isinstance(t, (DType, TileType)) or len(shape) > 1 or not all(isinstance(d, int) for d in shape):
        return 1 if not isinstance(t, (DType, TileType)) else None
    return int(shape[0]) if shape and isinstance(shape[0], int) else 1


def _size(body: n.Block) -> int:
    """How many statements a block is, with loops of a few turns as all of those."""
    out = 0
    for s in body:
        turns = 1
        if isinstance(s, n.For) and (lo := int_value(s.lo)) is not None and (hi := int_value(s.hi)) is not None and 0 <= hi - lo <= TURNS:
            turns = hi - lo
        out += 1 + turns * sum(map(_size, blocks_of(s)))
    return out


def _written(s: n.Stmt) -> list[n.Region]:
    """Places that a statement, with what is in it, may write."""
    out: list[n.Region] = []
    for x in walk(s):
        match x:
            case n.Store():
                out.append(x.at)
            case n.Copy():
                out.append(x.dst)
            case n.Mma():
                out.append(x.acc)
            case _:
                pass
    return out


def _harmless(s: n.Stmt) -> bool:
    """Whether a statement, with what is in it, has no effect beside its stores."""
    for x in walk(s):
        if isinstance(x, (n.Eval, n.Mma, n.Opaque, n.Hole, n.Roles)) or (isinstance(x, n.Copy) and x.via != "plain"):
            return False
        if isinstance(x, n.Call) and (x.of is not None or not table()[x.fn].is_pure):
            return False
        if isinstance(x, n.Load) and x.cache not in PLAIN:
            return False
    return True


def same_trace(a: n.Program, b: n.Program) -> bool:
    """Whether two programs of threads, which are one beside their kernels' bodies, have one list of what they do; the second may
    take the last number of a place in an array of several axes for no more than the first does."""
    a, b = canonical(a), canonical(b)
    if _head(a) != _head(b):
        return False
    values = Table()
    for one, other in zip(a.kernels, b.kernels, strict=True):
        try:
            narrow = _narrow(one.body, other.body)
            first, second = (_listed(values, k.body, found) for k, found in zip((one, other), narrow, strict=True))
        except (Unlisted, RecursionError):
            return False
        if first.events != second.events or not second.rows <= first.rows:
            return False
    return True


def _head(p: n.Program) -> n.Program:
    """A program without its kernels' bodies; what is written is read too or not, as those say."""
    params = tuple(replace(q, role="out") if q.role == "inout" else q for q in p.params)
    return replace(p, params=params, kernels=tuple(replace(k, body=()) for k in p.kernels))


def _narrow(*bodies: n.Block) -> list[dict[str, DType]]:
    """For each block the arrays that it, or of arrays from outside any of them, sees as numbers of several dtypes, and of what fewest bits."""
    found: list[dict[str, int]] = []
    for body in bodies:
        views = {x.buffer.name: x for s in body for x in walk(s) if isinstance(x, n.View)}
        least: dict[str, int] = {}
        for v in views.values():
            root = v
            while root.at.buffer.name in views:
                root = views[root.at.buffer.name]
            name = root.at.buffer.name
            if v.buffer.dtype.is_bool or root.at.buffer.dtype.is_bool:
                continue
            least[name] = min(least.get(name, v.buffer.dtype.bits), v.buffer.dtype.bits, root.at.buffer.dtype.bits)
        found.append(least)
    locals_ = [{x.buffer.name for s in body for x in walk(s) if isinstance(x, n.Alloc)} for body in bodies]
    outside: dict[str, int] = {}
    for least, own in zip(found, locals_, strict=True):
        for name, bits in least.items():
            if name not in own:
                outside[name] = min(bits, outside.get(name, bits))
    return [{name: DTYPES[f"u{bits}"] for name, bits in {**{k: v for k, v in least.items() if k in own}, **outside}.items() if f"u{bits}" in DTYPES}
            for least, own in zip(found, locals_, strict=True)]


def _listed(values: Table, body: n.Block, narrow: Mapping[str, DType]) -> Trace:
    memory: set[str] = set()
    while True:
        made = Trace(values, frozenset(memory), body, narrow)
        try:
            made.body(body)
        except Dynamic as asked:
            memory.add(str(asked))
            continue
        return made
