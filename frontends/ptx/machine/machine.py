"""The state of running a kernel's instructions: registers, those that need a place of their own, memory, addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F16, I32, I64, MBARRIER, U8, DType, TileType, dtype_of
from kir.surface.ptx.form.bits import KINDS, UNSIGNED, Kind, pack, reinterpret, unpack
from kir.surface.ptx.form.operands import Descriptor, Held, Matrix, Pointer
from kir.surface.ptx.form.syntax import Memory, Name, Not, Number, Operand, Place
from kir.surface.ptx.registers.reader import Entry, Guard, Reader

from ..registers.arrays import Together
from ..registers.kinds import Kinds
from .known import Numbers
from .places import Symbol


@dataclass
class Machine(Reader):
    """A reader whose registers live as long as the kernel. `lasting` are those with a place of their own, `bases` what addresses start from."""

    symbols: dict[str, Symbol] = field(default_factory=dict)
    kinds: Kinds = field(default_factory=lambda: Kinds(None))  # type: ignore[arg-type]  # set by whoever makes a machine
    lasting: frozenset[str] = frozenset()
    bases: Mapping[str, str] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=Numbers)
    scalars: dict[str, n.Expr] = field(default_factory=dict)
    places: dict[str, n.Region] = field(default_factory=dict)
    arrays: Mapping[str, Together] = field(default_factory=dict)
    declared: list[n.Buffer] = field(default_factory=list)
    """Registers of the thread that are declared where it begins."""
    loose: set[str] = field(default_factory=set)
    """Lasting addresses that must count bytes."""
    wanted: DType | None = None
    as_numbers: set[str] = field(default_factory=set)
    """Parameters that are addresses and were computed with."""
    threads: int | None = None
    again: bool = False
    """Whether mbarriers are initialized in a loop."""
    fence: n.Stmt | None = None
    """A wgmma.fence that has been read and not yet stands: what only moves registers may still come before it."""
    shapes: Mapping[str, tuple[n.Expr, ...]] = field(default_factory=dict)
    """The shapes of parameters, over the sizes of the binding; `sizes` are the numbers that the kernel is given, over them, too."""
    sizes: Mapping[str, n.Expr] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    drawn_maps: dict[tuple[str, n.Expr], Any] = field(default_factory=dict)
    written_maps: dict[tuple[str, n.Expr], Descriptor] = field(default_factory=dict)
    made_maps: list[Descriptor] = field(default_factory=list)
    """Tensor maps that the kernel writes: unfinished, by where they lie in memory, and all."""
    maps: dict[str, Descriptor] = field(default_factory=dict)
    read: frozenset[str] = frozenset()
    """The registers that something reads."""
    apart: bool = False
    """Whether addresses in several shared arrays are counted with, each from a number that stands for where its array begins; `origins` are those names."""
    origins: dict[str, str] = field(default_factory=dict)

    # ------------------------------------------------------------------------------------------------------------- registers
    def bind(self, stem: str, value: n.Expr) -> n.Expr:
        """As a reader does, and what an integer is made of is kept."""
        made = super().bind(stem, value)
        if made is not value and isinstance(made, n.Var) and isinstance(made.of, DType) and made.of.is_integer and not isinstance(value, n.Load):
            self.numbers.made[made.name] = value
        return made

    def fenced(self) -> None:
        """Lets a fence stand here."""
        if self.fence is not None:
            self.steps.append(self.fence)
            self.fence = None

    def entered(self) -> None:
        """A block begins: what was read of lasting registers may be of another time."""
        for name in self.lasting:
            self.registers.pop(name, None)

    def place(self, name: str) -> n.Region:
        """The place of a lasting register."""
        found = self.places.get(name)
        if found is None and name in self.arrays:
            whole = self.arrays[name]
            array = n.Buffer(self.fresh("parts"), whole.dtype, (build.const(len(whole.names) * whole.each),), "register")
            self.declared.append(array)
            for k, each in enumerate(whole.names):
                at: n.Expr | n.Span = build.const(k) if whole.each == 1 else build.span(build.const(k * whole.each), whole.each)
                self.places[each] = build.region(array, at)
            found = self.places[name]
        if found is None:
            base = self.bases.get(name, "")
            if base:
                dtype = I64 if self.symbols[base].space == "global" else I32
            else:
                own = KINDS[self.form.registers[name]]
                dtype, count = self.kinds.of(name)
                if count > 1 or dtype.bits != own.bits:
                    dtype = own.dtype
                if own.dtype.is_bool:
                    dtype = own.dtype
            buffer = n.Buffer(self.fresh(name.replace("'", "_")), dtype, (), "register")
            self.declared.append(buffer)
            found = self.places[name] = n.Region(buffer)
        return found

    def unit(self, name: str) -> int:
        """Bytes that one step of a lasting address counts."""
        if name in self.loose:
            return 1
        symbol = self.symbols[self.bases[name]]
        return symbol.own.bytes if symbol.space == "global" and symbol.own is not None else 1

    def held(self, o: Operand) -> Held:
        if isinstance(o, Name) and not o.special and o.name not in self.form.registers:
            if o.name in self.maps:
                return self.maps[o.name]
            symbol = self.symbols.get(o.name)
            if symbol is None:
                raise self.refuse(f"the address of '{o.name}'")
            return Pointer(symbol.start, 0)
        key = o.name if isinstance(o, Name) and not o.special else None
        if key is not None and key in self.lasting and key not in self.registers:
            self.registers[key] = [(None, self._loaded(key))]
        if key is not None and not self.registers.get(key):
            raise self.refuse(f"the register '{key}', which is read before anything is written to it")
        return super().held(o)

    def _loaded(self, name: str) -> Held:
        at = self.place(name)
        guard, self.guard = self.guard, None
        got = self.bind("v", build.load(at))
        self.guard = guard
        if isinstance(got.type, TileType):
            return pack(got)
        base = self.bases.get(name, "")
        if not base:
            return got
        return Pointer(self.symbols[base].start, build.mul(got, build.const(self.unit(name), at.buffer.dtype)))

    def write(self, o: Operand, value: Held) -> None:
        if not isinstance(o, Name) or o.name not in self.lasting:
            super().write(o, value)
            return
        name, at = o.name, self.place(o.name)
        base = self.bases.get(name, "")
        if base:
            made: n.Expr = self._offset(name, value)
        else:
            plain = self.as_value(value)
            plain = pack(plain) if not isinstance(plain.type, DType) else plain
            made = unpack(plain, at.buffer.dtype) if isinstance(at.type, TileType) else reinterpret(plain, at.buffer.dtype)
        self.steps.append(n.Store(at, made, self.condition()))
        if self.guard is None and not (isinstance(value, Pointer) and not isinstance(value.bytes, int)):
            self.registers[name] = [(None, value)]
        else:
            self.registers.pop(name, None)

    def _offset(self, name: str, value: Held) -> n.Expr:
        """What a lasting address keeps: steps of its unit."""
        if not isinstance(value, Pointer) or value.at.buffer.name != self.bases[name]:
            raise self.refuse("an address that starts from one of several places")
        by, b, unit = self.bytes_of(value), self.place(name).buffer, self.unit(name)
        if unit > 1:
            shift = unit.bit_length() - 1
            if not self.numbers.divides(by, shift):
                self.loose.add(name)
                return build.cast(by, b.dtype)
            by = self.numbers.quotient(by, shift)
        return build.cast(by, b.dtype)

    def merged(self, entries: Sequence[Entry], guard: Guard | None) -> Held | None:
        """Addresses that start from one place are told apart by their distances."""
        pointers = [(g, v) for g, v in entries if isinstance(v, Pointer)]
        if len(pointers) == len(entries) > 1 and len({p.at.buffer.name for _, p in pointers}) == 1:
            made = super().merged([(g, self.bytes_of(v)) for g, v in pointers], guard)
            return Pointer(pointers[0][1].at, made) if isinstance(made, n.Expr) else None
        return super().merged(entries, guard)

    # ---------------------------------------------------------------------------------------------------------------- values
    def value(self, o: Operand, kind: Kind, narrowing: bool = False) -> n.Expr:
        if isinstance(o, (Number, Not)):
            return super().value(o, kind, narrowing)
        if isinstance(o, (Name, Place)):
            got = self.held(o)
            if isinstance(got, (Pointer, Descriptor, Matrix)):
                plain = self.as_value(got)
                own = dtype_of(plain.type).bits
                if own != kind.bits:
                    plain = build.cast(plain, UNSIGNED[kind.bits])
                return unpack(plain, kind.dtype) if kind.count > 1 else reinterpret(plain, kind.dtype)
        return super().value(o, kind, narrowing)

    def as_value(self, held: Held) -> n.Expr:
        """An address as a number: in shared memory its distance from the one array that is there; of a parameter that is a number after all, that."""
        if isinstance(held, n.Expr):
            return held
        if isinstance(held, Pointer):
            symbol = self.symbols[held.at.buffer.name]
            if symbol.space == "shared":
                if sum(s.space == "shared" for s in self.symbols.values()) == 1:
                    return build.cast(self.bytes_of(held), I32)
                if not self.apart:
                    raise self.refuse("arithmetic on an address in one of several shared arrays")
                return build.add(self._origin(symbol), build.cast(self.bytes_of(held), I32))
            if symbol.name in self.scalars and symbol.space == "global":
                self.as_numbers.add(symbol.name)
                return build.add(build.cast(self.scalars[symbol.name], I64), self.bytes_of(held))
        raise self.refuse("arithmetic on an address", "an address plus a number of bytes")

    def _origin(self, symbol: Symbol) -> n.Expr:
        """The number that stands for where an array of shared memory begins."""
        name = next((k for k, v in self.origins.items() if v == symbol.name), "")
        if not name:
            name = self.fresh("begins")
            self.origins[name] = symbol.name
            self.numbers.ranges[name] = (0, SHARED - (build.int_value(symbol.bytes) or 16))
            self.numbers.zeros[name] = max(16, symbol.align) - 1 if symbol.align >= 16 else 0
        return n.Var(name, I32)

    def in_shared(self, at: n.Expr) -> tuple[Symbol, n.Expr] | None:
        """The array of shared memory that a number is an address in, and how far it lies from where that begins; None for what is no such number."""
        shared = [s for s in self.symbols.values() if s.space == "shared"]
        if len(shared) == 1:
            return shared[0], at
        terms = dict(build.polynomial(self.numbers.summed(at)))
        found = [(k, self.origins[x.name]) for k in terms for x in k if isinstance(x, n.Var) and x.name in self.origins]
        if len(found) != 1 or len(found[0][0]) != 1 or terms.pop(found[0][0]) != 1:
            return None
        return self.symbols[found[0][1]], build.from_polynomial(terms, I32)

    def bytes_of(self, p: Pointer) -> n.Expr:
        """How far an address is from its start."""
        wide = I64 if p.at.buffer.space == "global" else I32
        return build.const(p.bytes, wide) if isinstance(p.bytes, int) else build.cast(p.bytes, wide)

    # ------------------------------------------------------------------------------------------------------------- addresses
    def pointer(self, o: Operand) -> Pointer:
        if not isinstance(o, Memory):
            raise self.fail("KIR-F302", "an address [..] is needed here")
        if isinstance(o.base, (Name, Place)):
            got = self.held(o.base)
            if isinstance(got, Pointer):
                return self.further(got, o.offset)
            if isinstance(got, n.Expr) and dtype_of(got.type).is_integer:
                if dtype_of(got.type).bits == 32 and (place := self.in_shared(build.cast(got, I32))) is not None:
                    return self.further(Pointer(place[0].start, place[1]), o.offset)
                raise self.refuse("an address that is not known as a place in a buffer")
        raise self.refuse("an absolute address")

    def further(self, p: Pointer, by: n.Expr | int) -> Pointer:
        """An address some bytes further."""
        if isinstance(by, int) and isinstance(p.bytes, int):
            return Pointer(p.at, p.bytes + by)
        return Pointer(p.at, build.add(self.bytes_of(p), self.bytes_of(Pointer(p.at, by))))

    def region(self, o: Operand, bits: int, count: int, space: str = "") -> n.Region:
        p = self.pointer(o)
        symbol = self.symbols[p.at.buffer.name]
        self._space(symbol, space)
        whole = bits * count // 8
        dtype = self._dtype(symbol, whole, bits)
        symbol.accessed[self.wanted if self.wanted is not None and symbol.space == "global" and whole % self.wanted.bytes == 0 else dtype] += 1
        buffer = symbol.buffer(dtype)
        divided = self.numbers.quotient if symbol.space == "global" else self.numbers.within
        at = divided(self.bytes_of(p), dtype.bytes.bit_length() - 1)
        last: n.Expr | n.Span = at if whole == dtype.bytes else build.span(at, whole // dtype.bytes)
        return build.region(buffer, last)

    def _space(self, symbol: Symbol, space: str) -> None:
        own = {"shared::cta": "shared", "shared::cluster": "shared", "local": "register"}.get(space, space)
        if own and own != symbol.space:
            raise self.refuse(f"an access to '{symbol.name}' as {space} memory, which it is not")

    def _dtype(self, symbol: Symbol, whole: int, bits: int) -> DType:
        """As what memory is accessed: its own dtype where that fits, else what the registers say, or bits."""
        if symbol.own is not None and (symbol.space == "global" or self.wanted is None) and whole % symbol.own.bytes == 0:
            return symbol.own
        if self.wanted is not None and whole % self.wanted.bytes == 0:
            return self.wanted
        return UNSIGNED[min(bits, 64)] if bits >= 8 else U8

    def mbarrier(self, o: Operand, remote: bool = False) -> n.Region:
        if remote:
            raise self.refuse("an mbarrier of another CTA")
        p = self.pointer(o)
        symbol = self.symbols[p.at.buffer.name]
        self._space(symbol, "shared")
        return build.region(symbol.buffer(MBARRIER), self.numbers.within(self.bytes_of(p), 3))

    def box(self, o: Operand, box: tuple[int, ...], map: n.TensorMap, dtype: DType) -> tuple[n.Region, set[int]]:
        p = self.pointer(o)
        symbol = self.symbols[p.at.buffer.name]
        self._space(symbol, "shared")
        at, size = self.bytes_of(p), dtype.bytes
        kept = [k for k, extent in enumerate(box) if extent > 1] or [len(box) - 1]
        swizzle = dict(map.attrs).get("swizzle", 0)
        if len(kept) == 1 and not swizzle:
            return build.region(symbol.buffer(dtype), build.span(self.numbers.within(at, size.bit_length() - 1), box[kept[0]])), set(kept)
        span = box[-1] * size
        if kept[-1] != len(box) - 1 or span & (span - 1) or span > 1024 or (swizzle and span != swizzle):
            raise self.refuse(f"a box of {list(box)} whose rows are not the {swizzle or 'bytes'} of its swizzle")
        shift = span.bit_length() - 1
        if not self.numbers.divides(at, shift):
            raise self.refuse("a box that begins inside a row")
        row = self.numbers.within(at, shift)
        if len(kept) <= 2:
            b = symbol.matrix(dtype, span, 0, bool(swizzle))
            rows = box[kept[0]] if len(kept) == 2 else 1
            index: list[n.Expr | n.Span] = [build.span(row, rows), build.span(build.const(0), box[-1])]
            return build.region(b, *(index if len(kept) == 2 else (row, index[1]))), set(kept)
        if len(kept) == 3 and box[kept[1]] & (box[kept[1]] - 1) == 0:
            rows = box[kept[1]]
            b = symbol.matrix(dtype, span, span * rows, bool(swizzle))
            first = self.numbers.quotient(row, rows.bit_length() - 1)
            if self.numbers.divides(row, rows.bit_length() - 1):
                return build.region(b, build.span(first, box[kept[0]]), build.span(build.const(0), rows), build.span(build.const(0), box[-1])), set(kept)
        raise self.refuse(f"a box of {list(box)} as a part of shared memory")

    def called(self, name: str) -> str:
        """The name of a parameter in the program."""
        return self.names.get(name, name)

    def boxed_as(self, name: str, rank: int) -> n.Buffer:
        """A parameter as the tensor that maps describe."""
        own = self.called(name)
        dtype = self.symbols[name].own
        assert dtype is not None
        return n.Buffer(own, dtype, tuple(n.Var(f"{own}_extent_{k}", I64) for k in range(rank)), "global")

    def wants(self, dtype: DType | None) -> None:
        """As what the next access takes memory whose dtype is open."""
        self.wanted = dtype

    # ---------------------------------------------------------------------------------------------------------------- effects
    def bind_effect(self, stem: str, call: n.Call) -> n.Expr:
        if self.guard is None:
            return super().bind_effect(stem, call)
        if not isinstance(call.type, DType):
            return super().bind_effect(stem, call)
        kept = n.Buffer(self.fresh(stem), call.type, (), "register")
        self.steps.append(n.Alloc(kept))
        guard, self.guard = self.guard, None
        name = self.fresh(stem)
        test = guard[0] if guard[1] else build.invert(guard[0])
        self.steps.append(n.If(test, (n.Let((name,), call), n.Store(n.Region(kept), n.Var(name, call.type)))))
        got = self.bind(stem, build.load(n.Region(kept)))
        self.guard = guard
        return got


def located(s: n.Stmt, m: Machine) -> n.Stmt:
    """A statement with the place of the instruction that it is of."""
    assert m.here is not None
    made: n.Stmt = s if s.origin is not None else replace(s, origin=m.form.text.at(*m.here.span))  # type: ignore[type-var]  # every statement is a dataclass
    return made


HALF, SHARED = F16, 1 << 18
"""Bytes that an address in shared memory can name in a descriptor, more than there are."""
__all__ = ["HALF", "Machine", "located"]
