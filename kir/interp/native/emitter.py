"""A loop as LLVM: each statement a loop over lanes, so that lanes keep step as they do in the NumPy interpreter.

The function takes the address of a table of 64-bit words (`WORDS`, then the values, then the buffers) and gives 0, or 1 where an access was out of
bounds, a step was 0 or too many statements have run: what it did is then undone, and NumPy says what is wrong.
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from kir.interp.native.emitted import Emitted, Outside, Slot
from kir.interp.native.evals import evaluated
from kir.interp.native.marks import mark
from kir.interp.native.scalars import Scalars, Value, plain_float
from kir.interp.native.signature import Held, Signature, updated_in_place
from kir.interp.native.undefined import all_defined, defined, put, require, slot_of
from kir.interp.numerics import number
from kir.interp.state.coverage import EMPTY, FULL, MORE, ONE, SKIPPED, TAKEN, TWO, ZERO, Kind
from kir.ir import nodes as n
from kir.ir.types import BOOL, F32, F64, I64, DType, dtype_of
from kir.ir.visit import statements, transform

WORDS = ("lanes", "most", "mask", "scratch", "bits", "trips", "bytes")
"""Words at the start of the table: lanes, the most statements that may run, and addresses."""


class Emitter:
    """Emits one loop. `callback` gives the address of a function for an operation that NumPy does."""

    def __init__(self, of: Signature, half: bool, callback: Callable[[Outside], int]) -> None:
        self.s, self.of, self.callback = Scalars(half), of, callback
        ir = self.ir = self.s.ir
        self.module = ir.Module(name="loop")
        self.function = ir.Function(self.module, ir.FunctionType(self.s.long, [self.s.long.as_pointer()]), name="loop")
        self.entry = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.b = ir.IRBuilder(self.function.append_basic_block("begin"))
        self.sites: dict[tuple[Kind, int], int] = {}
        self.numbers = {id(s): i for i, s in enumerate(statements((of.loop,)))}
        self.site_list: list[tuple[Kind, int]] = []
        self.loops: list[int] = []
        self.counted: dict[str, int] = {}
        self.slots = 0
        self.env: dict[str, Slot] = {}
        self.ready: dict[int, Slot] = {}
        self.used: list[Outside] = []
        self.inner: dict[int, tuple[n.Region, n.Region]] = {}
        self.site: n.Stmt = of.loop
        table = self.function.args[0]
        def word(i: int) -> Value:
            return self.entry.load(self.entry.gep(table, [self.c(i)]))
        self.words = {name: word(i) for i, name in enumerate(WORDS)}
        at = len(WORDS)
        for v in of.values:
            self.env[v.name] = Slot(v.dtype, v.uniform, at=self._pointer(self.entry, word(at), self.s.stored(v.dtype)))
            at += 1
        self.places: dict[str, tuple[Held, Value, Value, Value, list[Value], list[Value]]] = {}
        self.marks: dict[str, Value] = {}
        for h in of.buffers:
            base, stride, table_of = word(at), word(at + 1), word(at + 2)
            self.marks[h.name] = self._pointer(self.entry, word(at + 3), ir.IntType(32))
            strides, extents = ([word(at + 4 + k * h.rank + i) for i in range(h.rank)] for k in (0, 1))
            self.places[h.name] = (h, self._pointer(self.entry, base, self.s.stored(h.dtype)), stride,
                                   self._pointer(self.entry, table_of, self.s.long), strides, extents)
            at += 4 + 2 * h.rank
        self.bad = self.variable(self.s.ir.IntType(1))
        self.flags: dict[int, Value] = {}
        self.told: dict[int, Value | None] = {}
        """What selects and loads just chose: the first arm, and an element that is there."""
        self.in_place = updated_in_place(of.loop) if of.checked else frozenset()
        self.reading: dict[int, tuple[Held, bool, Value]] = {}
        """Reads of this statement that not every lane makes: where, whether it is one place for all lanes, and how many have."""

    def emitted(self) -> Emitted:
        """The whole function."""
        self.statement(self.of.loop, self._mask())
        for i, flag in self.flags.items():
            place = self.b.gep(self._pointer(self.b, self.words["bits"], self.s.byte), [self.c(i)])
            self.b.store(self.b.or_(self.b.load(place), self.b.load(flag)), place)
        self.b.ret(self.b.zext(self.b.load(self.bad), self.s.long))
        self.entry.branch(self.function.basic_blocks[1])
        return Emitted(str(self.module), self.slots, self.site_list, self.loops, list(self.counted), self.used)

    # ------------------------------------------------------------------------------------------------------------- small parts
    def c(self, value: int, kind: Any = None) -> Value:
        return self.ir.Constant(kind or self.s.long, value)

    def _pointer(self, b: Any, word: Value, kind: Any) -> Value:
        return b.inttoptr(word, kind.as_pointer())

    def variable(self, kind: Any) -> Value:
        made = self.entry.alloca(kind)
        self.entry.store(self.ir.Constant(kind, 0), made)
        return made

    def _mask(self) -> Value | None:
        return self._pointer(self.b, self.words["mask"], self.s.byte) if self.of.masked else None

    def slot(self, dtype: DType, uniform: bool) -> Slot:
        self.slots += 1
        return Slot(dtype, uniform, self.slots - 1)

    def _address(self, slot: Slot, kind: Any = None) -> Value:
        """Where a slot's elements begin."""
        if slot.at is not None:
            return slot.at
        offset = self.b.mul(self.c(8 * slot.number), self.words["lanes"])
        return self._pointer(self.b, self.b.add(self.words["scratch"], offset), kind or self.s.stored(slot.dtype))

    def get(self, slot: Slot, lane: Value) -> Value:
        return self.s.load(self.b, slot.dtype, self.b.load(self.b.gep(self._address(slot), [self.c(0) if slot.uniform else lane])))

    def put(self, slot: Slot, lane: Value, value: Value) -> None:
        self.b.store(self.s.store(self.b, slot.dtype, value), self.b.gep(self._address(slot), [self.c(0) if slot.uniform else lane]))

    @contextmanager
    def _counting(self, lo: Value, hi: Value, step: Value, up: Value | None = None) -> Any:
        """A loop of 64-bit counts; `up` says whether it goes upward (None: it does)."""
        head, body, end = (self.function.append_basic_block(x) for x in ("head", "body", "end"))
        at = self.variable(self.s.long)
        self.b.store(lo, at)
        self.b.branch(head)
        self.b.position_at_end(head)
        i = self.b.load(at)
        more = self.b.icmp_signed("<", i, hi)
        if up is not None:
            more = self.b.select(up, more, self.b.icmp_signed(">", i, hi))
        self.b.cbranch(more, body, end)
        self.b.position_at_end(body)
        yield i
        self.b.store(self.b.add(i, step), at)
        self.b.branch(head)
        self.b.position_at_end(end)

    @contextmanager
    def each_lane(self, uniform: bool, mask: Value | None) -> Any:
        """The body once for each active lane, or once where all are alike."""
        if uniform:
            yield self.c(0)
            return
        with self._counting(self.c(0), self.words["lanes"], self.c(1)) as lane:
            if mask is None:
                yield lane
            else:
                with self.b.if_then(self._active(mask, lane)):
                    yield lane

    def _active(self, mask: Value, lane: Value) -> Value:
        return self.b.icmp_unsigned("!=", self.b.load(self.b.gep(mask, [lane])), self.c(0, self.s.byte))

    def _note(self, kind: Kind, s: n.Stmt, bits: Value) -> None:
        """Adds bits (i8) to what is reached at a place."""
        key = kind, id(s)
        if key not in self.sites:
            self.sites[key] = len(self.site_list)
            self.site_list.append((kind, self.numbers[id(s)]))
            self.flags[self.sites[key]] = self.variable(self.s.byte)
        flag = self.flags[self.sites[key]]
        self.b.store(self.b.or_(self.b.load(flag), bits), flag)

    def _either(self, where: Value, yes: int, no: int) -> Value:
        return self.b.select(where, self.c(yes, self.s.byte), self.c(no, self.s.byte))

    def count(self, key: str, amount: Value) -> Value:
        number_ = self.counted.setdefault(key, len(self.counted))
        place = self.b.gep(self._pointer(self.b, self.words["bytes"], self.s.long), [self.c(number_)])
        total = self.b.add(self.b.load(place), amount)
        self.b.store(total, place)
        return total

    def _trip(self) -> None:
        """A loop goes on, unless too many statements have run."""
        with self.b.if_then(self.b.icmp_signed(">", self.count("steps", self.c(1)), self.words["most"]), likely=False):
            self.b.ret(self.c(1))

    # ------------------------------------------------------------------------------------------------------------- expressions
    def uniform(self, e: n.Expr) -> bool:
        """Whether all lanes have the same value."""
        match e:
            case n.Const():
                return True
            case n.Var():
                return self.env[e.name].uniform
            case n.Unary() | n.Cast():
                return self.uniform(e.x)
            case n.Binary():
                return self.uniform(e.a) and self.uniform(e.b)
            case n.Select():
                return self.uniform(e.cond) and self.uniform(e.a) and self.uniform(e.b)
            case n.Load():
                return self._one_place(e.at) and all(x is None or self.uniform(x) for x in (e.mask, e.other))
            case n.Call():
                return all(self.uniform(a) for a in e.args if isinstance(a, n.Expr))
            case _:
                raise AssertionError(e)

    def _inner(self, r: n.Region) -> n.Region:
        """The place that a place in a functional view stands for."""
        shown = self.places[r.buffer.name][0].shown
        if shown is None:
            return r
        if id(r) not in self.inner:
            by = dict(zip(shown.axes, r.index, strict=True))
            made = transform(shown.at, lambda _, new: by.get(new.name, new) if isinstance(new, n.Var) else new)
            assert isinstance(made, n.Region)
            self.inner[id(r)] = r, made
        return self.inner[id(r)][1]

    def _one_place(self, r: n.Region) -> bool:
        r = self._inner(r)
        return self.places[r.buffer.name][0].lanes == "one" and all(self.uniform(i) for i in r.index if isinstance(i, n.Expr))

    def parts(self, e: n.Expr) -> list[n.Expr]:
        match e:
            case n.Unary() | n.Cast():
                return [e.x]
            case n.Binary():
                return [e.a, e.b]
            case n.Select():
                return [e.cond, e.a, e.b]
            case n.Load():
                places = (e.at,) if self._inner(e.at) is e.at else (e.at, self._inner(e.at))
                return [*(i for r in places for i in r.index if isinstance(i, n.Expr)), *(x for x in (e.mask, e.other) if x is not None)]
            case n.Call():
                return [a for a in e.args if isinstance(a, n.Expr)]
            case _:
                return []

    def _here(self, e: n.Expr) -> bool:
        """Whether an operation is computed here, not by NumPy."""
        match e:
            case n.Binary():
                return self.s.has_binary(e.op, dtype_of(e.a.type))
            case n.Cast():
                return self.s.has_cast(dtype_of(e.x.type), e.dtype, e.rounding)
            case n.Unary():
                return self.s.knows(dtype_of(e.type)) and (e.op == "not" or not dtype_of(e.type).is_bool)
            case n.Call():
                if e.fn == "to_tf32":
                    return e.type == F32
                if e.fn == "abs":
                    return plain_float(dtype_of(e.type)) and self.s.knows(dtype_of(e.type))
                return e.type in (F32, F64) and e.fn in ("sqrt", "rsqrt", "rcp", "fma")
            case _:
                return True

    def prepare(self, mask: Value | None, *expressions: n.Expr | None) -> None:
        """Lets NumPy do, for all lanes, what is not done here; innermost first."""
        for e in expressions:
            if e is None or id(e) in self.ready:
                continue
            self.prepare(mask, *self.parts(e))
            if self._here(e):
                continue
            parts = self.parts(e)
            made = slot_of(self, e, self.uniform(e))
            operands = [slot_of(self, x, self.uniform(x)) for x in parts]
            for slot, x in zip(operands, parts, strict=True):
                with self.each_lane(slot.uniform, mask) as lane:
                    put(self, slot, lane, x)
            if made.defined is not None:
                with self.each_lane(made.uniform, mask) as lane:
                    self.put(made.defined, lane, all_defined(self, operands, lane))
            call = Outside(e, tuple(x.dtype for x in operands), made.dtype)
            self.used.append(call)
            kind = self.ir.FunctionType(self.ir.VoidType(), [self.s.long] * 8)
            words = []
            for slot in operands:
                words += [self.b.ptrtoint(self._address(slot), self.s.long), self.c(1) if slot.uniform else self.words["lanes"]]
            words += [self.c(0)] * (6 - len(words))
            target = self.b.inttoptr(self.c(self.callback(call)), kind.as_pointer())
            with self.b.if_then(self._other_than_before(operands, mask)):
                self.b.call(target, [*words, self.b.ptrtoint(self._address(made), self.s.long), self.c(1) if made.uniform else self.words["lanes"]])
            self.ready[id(e)] = made

    def _other_than_before(self, operands: list[Slot], mask: Value | None) -> Value:
        """Whether operands have other bits than the last time, which are kept: beyond the end of a row a loop works out the same again and again."""
        known, other = self.variable(self.s.byte), self.variable(self.s.byte)
        self.b.store(self.b.xor(self.b.load(known), self.c(1, self.s.byte)), other)
        self.b.store(self.c(1, self.s.byte), known)
        for slot in operands:
            before, kind = self.slot(slot.dtype, slot.uniform), self.ir.IntType(8 * number.storage(slot.dtype).itemsize)
            new, old = self._address(slot, kind), self._address(before, kind)
            with self.each_lane(slot.uniform, mask) as lane:
                bits, there = self.b.load(self.b.gep(new, [lane])), self.b.gep(old, [lane])
                differs = self.b.zext(self.b.icmp_unsigned("!=", bits, self.b.load(there)), self.s.byte)
                self.b.store(self.b.or_(self.b.load(other), differs), other)
                self.b.store(bits, there)
        return self.b.icmp_unsigned("!=", self.b.load(other), self.c(0, self.s.byte))

    def value(self, e: n.Expr, lane: Value) -> Value:
        """The value of an expression in a lane."""
        if id(e) in self.ready:
            return self.get(self.ready[id(e)], lane)
        b = self.b
        match e:
            case n.Const():
                kind = number.storage(e.dtype)
                return self.s.constant(e.dtype, np.array([e.value]).astype(kind) if e.dtype.is_float else np.array([e.value], dtype=kind))
            case n.Var():
                return self.get(self.env[e.name], lane)
            case n.Unary():
                x, dtype = self.value(e.x, lane), dtype_of(e.type)
                return b.not_(x) if e.op == "not" else b.fneg(x) if dtype.is_float else b.neg(x)
            case n.Binary():
                return self.s.binary(b, e.op, dtype_of(e.a.type), self.value(e.a, lane), self.value(e.b, lane))
            case n.Select():
                self.told[id(e)] = cond = self.value(e.cond, lane)
                return b.select(cond, self.value(e.a, lane), self.value(e.b, lane))
            case n.Cast():
                return self.s.cast(b, dtype_of(e.x.type), e.dtype, self.value(e.x, lane), e.rounding)
            case n.Load():
                return self._loaded(e, lane)
            case n.Call():
                return self.s.called(b, self.module, e, [self.value(a, lane) for a in self.parts(e)])
            case _:
                raise AssertionError(e)

    def _place(self, r: n.Region, lane: Value) -> tuple[Value, Value | None]:
        """The element of a region in a lane, and whether it is inside (None: there is one element)."""
        b = self.b
        held, _, own, table, strides, extents = self.places[r.buffer.name]
        offset, inside = self.c(0), None
        if held.lanes != "one":
            which = lane if held.lanes == "own" else b.load(b.gep(table, [lane]))
            offset = b.mul(which, own)
        for i, stride, extent in zip(r.index, strides, extents, strict=True):
            assert isinstance(i, n.Expr)
            at = self.s.index(b, dtype_of(i.type), self.value(i, lane))
            within = b.icmp_unsigned("<", at, extent)
            inside = within if inside is None else b.and_(inside, within)
            offset = b.add(offset, b.mul(at, stride))
        return offset, inside

    def wanted(self, r: n.Region, mask: n.Expr | None, clip: bool, verb: Kind, lane: Value) -> tuple[Value, Value | None]:
        """The element, and whether it is touched (None: it is). Out of bounds is noted."""
        b = self.b
        offset, inside = self._place(r, lane)
        own, fill = inside, self.places[r.buffer.name][0].shown
        if (through := self._inner(r)) is not r:
            assert own is not None and fill is not None
            offset, there = self._place(through, lane)
            inside = own if there is None else b.and_(own, there)
            own = inside if fill.fill is None else own
        want = None if mask is None else self.value(mask, lane)
        require(self, lane, mask, *(i for i in r.index if isinstance(i, n.Expr)))
        if not clip and inside is not None:
            out = b.not_(inside if own is None else own)
            b.store(b.or_(b.load(self.bad), out if want is None else b.and_(want, out)), self.bad)
        told = want
        if clip and inside is not None:
            told = inside if want is None else b.and_(want, inside)
        if mask is not None or clip:
            self._note(verb, self.site, self.c(FULL, self.s.byte) if told is None else self._either(told, FULL, EMPTY))
        safe = told
        if inside is not None and not clip:
            safe = inside if want is None else b.and_(want, inside)
        return offset, safe

    def _loaded(self, e: n.Load, lane: Value) -> Value:
        b = self.b
        held, base, *_ = self.places[e.at.buffer.name]
        offset, safe = self.wanted(e.at, e.mask, e.clip, "read", lane)
        self.told[id(e)] = safe
        if e.at.buffer.name in self.in_place:
            with nullcontext() if safe is None else b.if_then(safe):
                mark(self, e.at.buffer.name, offset, lane, read=True)
        if id(e) in self.reading:
            _, one, elements = self.reading[id(e)]
            here = self.c(1) if safe is None else b.zext(safe, self.s.long)
            b.store((b.or_ if one else b.add)(b.load(elements), here), elements)
        if safe is not None:
            offset = b.select(safe, offset, self.c(0))
        got = self.s.load(b, held.dtype, b.load(b.gep(base, [offset])))
        fill = held.shown.fill if held.shown else None
        if e.mask is None and not e.clip and fill is None:
            return got
        other = fill if e.other is None else e.other
        instead = self.s.constant(held.dtype, number.poison(held.dtype)) if other is None else self.value(other, lane)
        return got if safe is None else b.select(safe, got, instead)

    def reads(self, mask: Value | None, *expressions: n.Expr | None) -> None:
        """Counts the bytes that a statement reads, and, checked, its operations. What a mask, an end or a branch leaves out waits for `have_read`."""
        for e in expressions:
            if e is None:
                continue
            self.reads(mask, *self.parts(e))
            if self.of.checked and isinstance(e, (n.Binary, n.Call)) and (isinstance(e, n.Call) or dtype_of(e.a.type).is_float):
                unit = "sfu" if isinstance(e, n.Call) else f"fp{dtype_of(e.a.type).bits}"
                self.count(f"flops {unit}", self.c(1) if self.uniform(e) else self.words["lanes"])
            if isinstance(e, n.Load) and (self.of.checked or e.at.index or e.mask is not None or self.places[e.at.buffer.name][0].lanes != "own"):
                held, one = self.places[e.at.buffer.name][0], self._one_place(e.at)
                if e.mask is not None or e.clip or (held.shown and held.shown.fill) or (mask is not None and not one):
                    self.b.store(self.c(0), elements := self.variable(self.s.long))
                    self.reading[id(e)] = held, one, elements
                    continue
                self.count(f"read {held.space}", self.b.mul(self.c(number.storage(held.dtype).itemsize), self.c(1) if one else self.words["lanes"]))

    def have_read(self) -> None:
        """Counts what was read since `_reads`."""
        for held, _, elements in self.reading.values():
            self.count(f"read {held.space}", self.b.mul(self.c(number.storage(held.dtype).itemsize), self.b.load(elements)))
        self.reading = {}

    # -------------------------------------------------------------------------------------------------------------- statements
    def block(self, body: n.Block, mask: Value | None) -> None:
        """Statements, for the lanes of a mask."""
        for s in body:
            self.statement(s, mask)

    def statement(self, s: n.Stmt, mask: Value | None) -> None:
        """One statement, for the lanes of a mask (None: all)."""
        self.site, self.ready = s, {}
        self.count("steps", self.c(1))
        match s:
            case n.Let():
                self.reads(mask, s.value)
                self.prepare(mask, s.value)
                slot = slot_of(self, s.value, self.uniform(s.value))
                with self.each_lane(slot.uniform, mask) as lane:
                    put(self, slot, lane, s.value)
                self.have_read()
                self.env[s.names[0]] = slot
            case n.Store():
                self._store(s.at, s.value, s.mask, s.clip, mask)
            case n.Alloc():
                buffer = s.buffer
                poisoned = n.Const(float(number.poison(buffer.dtype)) if buffer.dtype.is_float else int(number.poison(buffer.dtype)), buffer.dtype)
                self._store(n.Region(buffer), poisoned if s.init is None else s.init, None, False, mask, fresh=True)
            case n.If():
                self._if(s, mask)
            case n.For():
                self._for(s, mask)
            case n.Eval():
                evaluated(self, s, mask)

    def _store(self, at: n.Region, value: n.Expr, wanted: n.Expr | None, clip: bool, mask: Value | None, fresh: bool = False) -> None:
        held, base, *_ = self.places[at.buffer.name]
        indices = [i for i in at.index if isinstance(i, n.Expr)]
        self.reads(mask, *indices, value, wanted)
        self.prepare(mask, *indices, value, wanted)
        uniform = self._one_place(at) and self.uniform(value) and (wanted is None or self.uniform(wanted))
        if not uniform:
            self.keep_read(at, mask, value, *indices, *((wanted,) if wanted is not None else ()))
        size = self.c(number.storage(held.dtype).itemsize)
        counts = self.of.checked or (not fresh and (at.index or wanted is not None or mask is not None or held.lanes != "own"))
        told = self.of.checked and held.space == "global"
        if told and uniform:  # every CTA writes it
            self.b.store(self.b.or_(self.b.load(self.bad), self.b.icmp_signed(">", self.words["lanes"], self.c(1))), self.bad)
        if counts and mask is None and wanted is None and not clip:
            self.count(f"write {held.space}", size if uniform else self.b.mul(size, self.words["lanes"]))
        written = self.variable(self.s.long)
        self.b.store(self.c(0), written)
        with self.each_lane(uniform, mask) as lane:
            offset, safe = self.wanted(at, wanted, clip, "write", lane)
            element = self.s.store(self.b, held.dtype, self.value(value, lane))
            known = defined(self, value, lane)
            with nullcontext() if safe is None else self.b.if_then(safe):
                if known is not None:
                    self.b.store(self.b.or_(self.b.load(self.bad), self.b.not_(known)), self.bad)
                self.b.store(element, self.b.gep(base, [offset]))
                self.b.store(self.b.add(self.b.load(written), size), written)
                if told:
                    mark(self, at.buffer.name, offset, lane)
        self.have_read()
        if counts and (mask is not None or wanted is not None or clip):
            amount = self.b.load(written)
            if not self.of.checked and not at.index and wanted is None and held.lanes == "own":  # stored whole where all lanes are active, which is not counted
                amount = self.b.select(self.b.icmp_unsigned("==", amount, self.b.mul(size, self.words["lanes"])), self.c(0), amount)
            self.count(f"write {held.space}", amount)

    def keep_read(self, at: n.Region, mask: Value | None, *expressions: n.Expr) -> None:
        """Works expressions out for all lanes before the first of them writes to a place, where they read its memory."""
        held = self.places[at.buffer.name][0]
        if held.lanes == "own" or not self._touches(held.memory, *expressions):
            return
        slots = [slot_of(self, x, False) for x in expressions]
        for slot, x in zip(slots, expressions, strict=True):
            with self.each_lane(False, mask) as lane:
                put(self, slot, lane, x)
        self.ready |= {id(x): slot for slot, x in zip(slots, expressions, strict=True)}

    def _touches(self, memory: int, *expressions: n.Expr | None) -> bool:
        """Whether expressions read a memory."""
        return any(e is not None and ((isinstance(e, n.Load) and self.places[e.at.buffer.name][0].memory == memory) or self._touches(memory, *self.parts(e)))
                   for e in expressions)

    def _if(self, s: n.If, mask: Value | None) -> None:
        self.reads(mask, s.cond)
        self.prepare(mask, s.cond)
        if self.uniform(s.cond):
            cond = self.value(s.cond, self.c(0))
            require(self, self.c(0), s.cond)
            self.have_read()
            self._note("branch", s, self._either(cond, TAKEN, SKIPPED))
            with self.b.if_else(cond) as (then, other):
                with then:
                    self.block(s.then, mask)
                with other:
                    self.block(s.orelse, mask)
            return
        arms = [(self.slot(BOOL, False), body, self.variable(self.s.byte)) for body in (s.then, s.orelse)]
        for _, _, some in arms:
            self.b.store(self.c(0, self.s.byte), some)
        with self._counting(self.c(0), self.words["lanes"], self.c(1)) as lane:
            live = self.c(1, self.ir.IntType(1)) if mask is None else self._active(mask, lane)
            for slot, _, _ in arms:
                self.put(slot, lane, self.c(0, self.ir.IntType(1)))
            with self.b.if_then(live):
                cond = self.value(s.cond, lane)
                require(self, lane, s.cond)
                self._note("branch", s, self._either(cond, TAKEN, SKIPPED))
                for (slot, _, some), where in zip(arms, (cond, self.b.not_(cond)), strict=True):
                    self.put(slot, lane, where)
                    self.b.store(self.b.or_(self.b.load(some), self.b.zext(where, self.s.byte)), some)
        self.have_read()
        for slot, body, some in arms:
            with self.b.if_then(self.b.icmp_unsigned("!=", self.b.load(some), self.c(0, self.s.byte))):
                self.block(body, self._address(slot))

    def _for(self, s: n.For, mask: Value | None) -> None:
        self.reads(mask, s.lo, s.hi, s.step)
        self.prepare(mask, s.lo, s.hi, s.step)
        number_ = len(self.loops)
        self.loops.append(self.numbers[id(s)])
        if all(self.uniform(x) for x in (s.lo, s.hi, s.step)):
            lo, hi, step = (self.s.index(self.b, dtype_of(x.type), self.value(x, self.c(0))) for x in (s.lo, s.hi, s.step))
            require(self, self.c(0), s.lo, s.hi, s.step)
            self.have_read()
            none = self.b.icmp_unsigned("==", step, self.c(0))
            self.b.store(self.b.or_(self.b.load(self.bad), none), self.bad)
            step = self.b.select(none, self.c(1), step)
            hi = self.b.select(none, lo, hi)
            ran = self.variable(self.s.long)
            self.b.store(self.c(0), ran)
            slot = self.env[s.var.name] = self.slot(dtype_of(s.var.type), True)
            with self._counting(lo, hi, step, self.b.icmp_signed(">", step, self.c(0))) as i:
                self.b.store(self.b.add(self.b.load(ran), self.c(1)), ran)
                self._trip()
                self.put(slot, self.c(0), self._narrowed(i, slot.dtype))
                self.block(s.body, mask)
            self._ran(s, number_, self.b.load(ran))
            return
        self._for_each(s, mask, number_)

    def _narrowed(self, i: Value, dtype: DType) -> Value:
        kind = self.s.held(dtype)
        return i if kind.width == 64 else self.b.trunc(i, kind)

    def _ran(self, s: n.Stmt, loop: int, trips: Value) -> None:
        """Notes how often a loop ran."""
        b, byte = self.b, self.s.byte
        bits = b.select(b.icmp_signed("<", trips, self.c(1)), self.c(ZERO, byte), b.select(
            b.icmp_signed("==", trips, self.c(1)), self.c(ONE, byte), b.select(
                b.icmp_signed("==", trips, self.c(2)), self.c(TWO, byte), self.c(MORE, byte))))
        self._note("loop", s, bits)
        place = b.gep(self._pointer(b, self.words["trips"], self.s.long), [self.c(loop)])
        b.store(b.select(b.icmp_signed(">", trips, b.load(place)), trips, b.load(place)), place)

    def _for_each(self, s: n.For, mask: Value | None, loop: int) -> None:
        """A loop whose bounds differ between lanes: those that have ended wait for the others."""
        at, hi, step, ran = (self.slot(I64, False) for _ in range(4))
        var, on = self.slot(dtype_of(s.var.type), False), self.slot(BOOL, False)
        self.env[s.var.name] = var
        one, zero = self.c(1, self.ir.IntType(1)), self.c(0, self.ir.IntType(1))
        with self._counting(self.c(0), self.words["lanes"], self.c(1)) as lane:
            self.put(on, lane, zero)
        with self.each_lane(False, mask) as lane:
            for slot, x in ((at, s.lo), (hi, s.hi), (step, s.step)):
                self.put(slot, lane, self.s.index(self.b, dtype_of(x.type), self.value(x, lane)))
            require(self, lane, s.lo, s.hi, s.step)
            none = self.b.icmp_unsigned("==", self.get(step, lane), self.c(0))
            self.b.store(self.b.or_(self.b.load(self.bad), none), self.bad)
            self.put(ran, lane, self.c(0))
            self.put(on, lane, self.b.select(none, zero, one))
        self.have_read()
        head, body, end = (self.function.append_basic_block(x) for x in ("turn", "trip", "done"))
        some = self.variable(self.s.byte)
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.store(self.c(0, self.s.byte), some)
        with self.each_lane(False, self._address(on)) as lane:
            i, last, by = self.get(at, lane), self.get(hi, lane), self.get(step, lane)
            more = self.b.select(self.b.icmp_signed(">", by, self.c(0)), self.b.icmp_signed("<", i, last), self.b.icmp_signed(">", i, last))
            self.put(on, lane, more)
            self.b.store(self.b.or_(self.b.load(some), self.b.zext(more, self.s.byte)), some)
            self.put(var, lane, self._narrowed(i, var.dtype))
            self.put(ran, lane, self.b.add(self.get(ran, lane), self.b.zext(more, self.s.long)))
        self.b.cbranch(self.b.icmp_unsigned("!=", self.b.load(some), self.c(0, self.s.byte)), body, end)
        self.b.position_at_end(body)
        self._trip()
        self.block(s.body, self._address(on))
        with self.each_lane(False, self._address(on)) as lane:
            self.put(at, lane, self.s.index(self.b, dtype_of(s.var.type), self._narrowed(self.b.add(self.get(at, lane), self.get(step, lane)), var.dtype)))
        self.b.branch(head)
        self.b.position_at_end(end)
        with self.each_lane(False, mask) as lane:
            self._ran(s, loop, self.get(ran, lane))
