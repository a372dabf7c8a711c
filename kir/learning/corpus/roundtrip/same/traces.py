"""What one thread's program does, apart from what its values are called and when they are worked out.

A program is walked once. Every value becomes an entry of a table in which equal values are one entry: a register that is set is what it is set to, after a
branch the choice of what its arms leave in it, in a loop what the turn before left. A vector is its elements, sums of integers are polynomials. A load is
named by its place, by the last thing before it that may have written there, and by the branches and loops around it, so that it moves over nothing that it
depends on. What is seen from outside (stores, barriers, atomics, copies, loops and branches that hold such) is listed in its order. Programs whose lists
are one do the same; what has no such list is no program of it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kir.base.instructions import table
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import canonical
from kir.ir.types import I32, DType, dtype_of, shape_of
from kir.ir.visit import blocks_of, walk
from kir.learning.corpus.roundtrip.same.memory import WIDEST, Dynamic, Places, Unlisted, flat, length
from kir.learning.corpus.roundtrip.same.values import Table, Value
from kir.learning.corpus.roundtrip.same.widths import narrowest

TURNS = 16
"""Turns of an unrolled loop that are followed one by one, at most."""
SIZE = 1024
"""Statements, each as often as it is followed, of a loop that nobody asked to unroll, at most."""
MOST = 40_000
"""Statements that are followed, at most."""
_OWN_SCOPES = (("scope", "cta"), ("scope", "gpu"))
_SHUFFLES = frozenset({"shfl_xor", "shfl_up", "shfl_down", "shfl_idx"})
"""Exchanges between lanes that give each element of a vector alike."""
PLAIN = frozenset({"", "nc", "ca", "cg", "cs", "lu", "wb"})
"""Cache policies of loads that may be worked out anywhere before the next write."""


class Trace(Places):
    """One kernel's walk."""

    # ---------------------------------------------------------------------------------------------------------- values
    def one(self, e: n.Expr) -> int:
        return self.packed(self.value(e))

    def packed(self, v: Value) -> int:
        return v if isinstance(v, int) else self.t.of("vector", v)

    def spread(self, v: Value, count: int) -> tuple[int, ...]:
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
        return tuple(made(*each) for each in zip(*(self.spread(p, count) for p in parts), strict=True))

    def value(self, e: n.Expr) -> Value:
        if (long := length(e.type)) is None or (long > WIDEST):
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
        match e:
            case n.Unary():
                parts: tuple[Any, ...] = (e.op, self.one(e.x))
            case n.Binary():
                parts = (e.op, self.one(e.a), self.one(e.b))
            case n.Select():
                parts = (self.one(e.cond), self.one(e.a), self.one(e.b))
            case n.Cast():
                parts = (e.dtype, e.rounding, self.one(e.x))
            case n.Call():
                held = tuple((self.region(a), self._now(a.buffer.name)) if isinstance(a, n.Region) else self.one(a) for a in e.args)
                parts = (e.fn, e.attrs, held)
            case _:
                raise Unlisted
        meet = (self.around,) if isinstance(e, n.Call) and table()[e.fn].level != "element" else ()
        return self.t.of("tile", type(e).__name__, str(e.type), parts, meet)

    def _load(self, e: n.Load) -> Value:
        b = e.at.buffer
        own = self._root(b.name) in self.state and not e.cache
        long, single = length(e.type), not shape_of(e.type)
        if own or (e.cache in PLAIN and not e.clip and (found := self.places(e.at)) is not None):
            now = self._now(b.name)
            mask = None if e.mask is None else self.spread(self.value(e.mask), long or 1)
            other = (self.t.of("poison", b.dtype.name),) * (long or 1) if e.other is None else self.spread(self.value(e.other), long or 1)
            if own:
                try:
                    held = self._held(e.at)
                except Dynamic as one:
                    self.asked.add(str(one))
                    held = [self.t.of("unknown")] * (long or 1)
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
        """What is read there; what is read in a block around too, and does not change between, is that."""
        held = []
        for place in parts:
            key = (place, now, cache)
            at: int | None = around
            while at is not None and (key, at) not in self.seen and (key, at) not in self.elsewhere:
                at = self._outside(at)
            self.seen.add((key, around if at is None else at))
            held.append(self.t.of("read", place, now, cache, around if at is None else at))
        return self.t.pack(tuple(held), self._as(b), b.dtype)

    def _outside(self, around: int) -> int | None:
        key = self.t.keys[around]
        return int(key[1]) if len(key) > 1 else None

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
        for place in self.elements(at, at.buffer)[0]:
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

    def elements(self, at: n.Region, b: n.Buffer) -> tuple[list[int], bool]:
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
                if d == 1 and isinstance(lo, int) and self.t.known(lo) is None:
                    self.rows.add(("only", lo))
                    lo = self.t.const(0, I32)
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
        args, to = e.args, dtype_of(e.type)
        long = length(e.type) if shape_of(e.type) else None
        row = table()[e.fn]
        if all(isinstance(a, n.Expr) for a in args):
            given = [self.value(a) for a in args if isinstance(a, n.Expr)]
            kinds = [dtype_of(a.type) for a in args if isinstance(a, n.Expr)]
            first = given[0] if given else None
            match e.fn:
                case "iota" if long is not None:
                    return tuple(self.t.const(k, to) for k in range(long))
                case "broadcast" if long is not None and first is not None:
                    return self.spread(first, long)
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
                    return self._each(lambda *x: self.t.of("plain", e.fn, e.attrs, names, to.name, x), *given)
                case _ if e.fn in _SHUFFLES and isinstance(first, tuple) and long == len(first) and all(isinstance(v, int) for v in given[1:]):
                    rest = tuple(v for v in given[1:] if isinstance(v, int))
                    names = tuple(k.name for k in kinds)
                    return tuple(self.t.of("call", e.fn, e.attrs, names, to.name, (x, *rest), (self.around,)) for x in first)
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
        if e.fn.startswith("atomic_") and isinstance(e.args[0], n.Region) and e.args[0].buffer.space == "shared" and self.alone:
            e = replace(e, attrs=tuple(a for a in e.attrs if a not in _OWN_SCOPES))  # no other CTA sees it
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
                self.store(s)
            case n.Copy() if _at_once(s):
                self.store(n.Store(s.dst, s.src, s.mask, s.clip))
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

    def store(self, s: n.Store) -> None:
        b, v = s.at.buffer, self.value(s.value)
        mask = None if s.mask is None else self.value(s.mask)
        long = length(s.at.type)
        if self._root(b.name) in self.state:
            try:
                count = len(self.elements(s.at, b)[0])
                self._put(s.at, self.spread(v, count), None if mask is None else self.spread(mask, count))
            except Dynamic as one:
                self.asked.add(str(one))
            return
        found = None if s.clip else self.places(s.at)
        if found is None:
            v = self.spread(v, long) if long is not None and long <= WIDEST and shape_of(s.at.type) else v
            self._event("fill", self.region(s.at), self.packed(v), None if mask is None else self.packed(mask), s.clip, s.cache, writes=(b.name,))
            return
        asked = [None] * len(found) if mask is None else [*self.spread(mask, len(found))]
        held: list[Any] = []
        for k, (parts, x, m) in enumerate(zip(found, self.spread(v, len(found)), asked, strict=True)):
            made = zip(parts, self.t.unpack(x, b.dtype, self._as(b), len(parts)) if b.name in self.begins else (x,), strict=True)
            if m is None:
                for place, y in made:
                    self._event("store", place, y, s.cache, writes=(b.name,))
                continue
            held += [("store", place, y, s.cache) for place, y in made]
            if asked[k + 1:k + 2] != [m]:
                self.events.append(("if", m, tuple(held), ()))
                self.count += len(held) + 1
                self.version[self._root(b.name)], held = f"{self.count}", []

    def _if(self, s: n.If) -> None:
        cond = self.one(s.cond)
        key = self.t.keys[cond]
        then, orelse = s.then, s.orelse
        if key[0] == "unary" and key[1] == "not":
            cond, then, orelse = int(key[3]), orelse, then
        if key[0] == "const":
            self.body(then if key[2] == "True" else orelse)
            return
        around, outer, begun, count = self.around, self.events, {k: list(v) for k, v in self.state.items()}, self.count
        versions, made, counts, within = dict(self.version), [], [], False
        for k, arm in enumerate((then, orelse)):
            self.state = {name: list(v) for name, v in begun.items()}
            self.version, self.events, self.count = dict(versions), [], count
            self.around = self.t.of("around", around, cond, k)
            self.body(arm)
            made.append((self.state, self.version, self.events, bool(arm) and isinstance(arm[-1], n.Jump)))
            within |= any(map(_leaves, arm))
            counts.append(self.count - count)
        (one, v1, e1, gone1), (two, v2, e2, gone2) = made
        self.events, self.around, self.version, self.count = outer, around, versions, count
        self.state = two if gone1 else one if gone2 else {
            name: [self.t.select(cond, a, b) for a, b in zip(one[name], two[name], strict=True)] for name in begun}
        if gone1 or gone2 or within:
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
        return s.kind != "serial" or turns < 2 or turns * _size(s.body) <= SIZE

    def _loop(self, s: n.For | n.While) -> None:
        ranged = (*(self.one(x) for x in (s.lo, s.hi, s.step)), s.kind, s.attrs, str(s.var.type)) if isinstance(s, n.For) else ("while",)
        head = (*ranged, self.around)
        me = self.t.of("loop", head, self._again(head), self.count)
        written = {name for x in _written(s) if (name := self._root(x.buffer.name)) in self.state}
        changed = {self._root(x.buffer.name) for x in _written(s)} | (set() if _harmless(s) else {"*"})
        phis: dict[str, list[int]] = {}
        begun: dict[int, int] = {}
        for name in [name for name in self.state if name in written]:  # in the order in which they are declared
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
        else:
            self.counted[head] -= 1  # what it leaves says all of it
        if _leaves(s):
            self.around = self.t.of("around", around, me, "after")
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
        rest = [x for x in flat(what) if isinstance(x, int)]
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


def _leaves(s: n.Stmt) -> bool:
    """Whether a statement may leave the block that it stands in, or the kernel, before its end."""
    if isinstance(s, n.Jump):
        return True
    if isinstance(s, n.For | n.While):
        return any(isinstance(x, n.Jump) and x.kind == "return" for b in s.body for x in walk(b))
    return any(_leaves(x) for b in blocks_of(s) for x in b)


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


def _at_once(s: n.Copy) -> bool:
    """Whether a copy is a load and a store."""
    return (s.via in ("plain", "vec", "vector") or s.via.startswith("vector(")) and s.signal is None and not s.grouped and not s.attrs


def _harmless(s: n.Stmt) -> bool:
    """Whether a statement, with what is in it, has no effect beside its stores."""
    for x in walk(s):
        if isinstance(x, (n.Eval, n.Mma, n.Opaque, n.Hole, n.Roles)) or (isinstance(x, n.Copy) and not _at_once(x)):
            return False
        if isinstance(x, n.Call) and (x.of is not None or not table()[x.fn].is_pure):
            return False
        if isinstance(x, n.Load) and x.cache not in PLAIN:
            return False
    return True


def same_trace(a: n.Program, b: n.Program) -> bool:
    """Whether two programs of threads, which are one beside their kernels' bodies, have one list of what they do; the second may
    take the last number of a place in an array of several axes for no more than the first does, and no more sums of 32 bits not to overflow."""
    a, b = canonical(a), canonical(b)
    if _head(a) != _head(b):
        return False
    values = Table()
    for one, other in zip(a.kernels, b.kernels, strict=True):
        try:
            narrow = narrowest(one.body, other.body)
            first = _listed(values, one.body, narrow[0])
            first = _listed(values, one.body, narrow[0], first.seen, first.memory)
            second = _listed(values, other.body, narrow[1], first.seen)
        except (Unlisted, RecursionError):
            return False
        if first.events != second.events or not second.rows <= first.rows or not second.wrapped <= first.placed:
            return False
        if any(not narrow <= first.narrowly.get(place, set()) for place, narrow in second.narrowly.items()):
            return False
    return True


def _head(p: n.Program) -> n.Program:
    """A program without its kernels' bodies; what is written is read too or not, as those say."""
    params = tuple(replace(q, role="out") if q.role == "inout" else q for q in p.params)
    return replace(p, params=params, kernels=tuple(replace(k, body=()) for k in p.kernels))


def _listed(values: Table, body: n.Block, narrow: Mapping[str, DType], seen: Iterable[Any] = (), known: Iterable[str] = ()) -> Trace:
    """A walk in which private arrays that are asked for an element by a number that is not known, those `known` among them, are memory: as long as there
    are others, all of a walk are, and it is walked again."""
    memory: set[str] = {*known}
    while True:
        made = Trace(values, frozenset(memory), body, narrow, frozenset(seen))
        try:
            made.body(body)
        except Dynamic as asked:
            made.asked.add(str(asked))
        if not made.asked:
            return made
        memory |= made.asked
