"""Reads the form of an asm statement into IR: a machine of registers whose values are expressions.

Predicated instructions (`@p`) write values that hold where the predicate does: a register is a list of such values, and reading it under
the same predicate finds the one written under it. Handlers of instructions stand in the other modules, by the first part of the opcode.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, did_you_mean
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DType, PointerType, TileType, dtype_of
from kir.surface.ptx.form.bits import KINDS, UNSIGNED, Kind, pack, reinterpret, unpack
from kir.surface.ptx.form.operands import AsmOperand, Descriptor, Held, Matrix, Pointer
from kir.surface.ptx.form.syntax import Form, Instruction, Memory, Name, Not, Number, Operand, Place, Vector

WIDTHS = {"h": 16, "r": 32, "l": 64, "q": 128, "f": 32, "d": 64, "b": 1}
"""Bits of a register by the letter of its constraint (NVIDIA, Inline PTX Assembly in CUDA, section 1.2)."""
Guard = tuple[n.Expr, bool]
Entry = tuple[Guard | None, Held]


@dataclass
class Modifiers:
    """The parts of an opcode after the first, taken one by one; what is left at the end is not understood."""

    reader: Reader
    instruction: Instruction
    left: list[str]

    def flag(self, name: str) -> bool:
        """Whether a modifier stands there."""
        found = name in self.left
        if found:
            self.left.remove(name)
        return found

    def one(self, *names: str, default: str = "") -> str:
        """The one of several that stands there."""
        found = next((x for x in self.left if x in names), None)
        if found is not None:
            self.left.remove(found)
        return default if found is None else found

    def starting(self, prefix: str) -> str:
        """The rest of a modifier that starts so."""
        found = next((x for x in self.left if x.startswith(prefix)), None)
        if found is None:
            return ""
        self.left.remove(found)
        return found.removeprefix(prefix)

    def kind(self, *allowed: str) -> Kind:
        """The next type. Raises KirError KIR-F302 where there is none, or one that the instruction does not take."""
        return KINDS[self.type_name(*allowed)]

    def type_name(self, *allowed: str) -> str:
        """The name of the next type."""
        found = next((x for x in self.left if x in KINDS), None)
        if found is None:
            raise self.reader.fail("KIR-F302", f"'{self.instruction.opcode}' lacks a type")
        self.left.remove(found)
        if allowed and found not in allowed:
            raise self.reader.fail("KIR-F302", f"'{self.instruction.parts[0]}' has no form on {found}", needs=", ".join(allowed))
        return found

    def done(self) -> None:
        """Raises KirError KIR-F301 for a modifier that nothing has taken."""
        if self.left:
            raise self.reader.fail("KIR-F301", f"'{self.instruction.opcode}' has a part .{self.left[0]} that is not understood")


@dataclass
class Reader:
    """The state of reading one asm statement. `fresh` gives new names of locals; `special` are values of special registers."""

    form: Form
    operands: Sequence[AsmOperand]
    fresh: Callable[[str], str]
    special: Mapping[str, n.Expr]
    steps: list[n.Stmt] = field(default_factory=list)
    registers: dict[str | int, list[Entry]] = field(default_factory=dict)
    here: Instruction | None = None
    guard: Guard | None = None
    locals: set[str] = field(default_factory=set)
    peers: Callable[[n.Buffer], n.Buffer | None] | None = None
    """What shows a shared buffer in every CTA of the cluster: a buffer in the space `cluster`, its first axis the rank."""
    spinning: bool = False
    """Whether the code around runs the statement again until a try of an mbarrier in it succeeds."""

    def fail(self, id: str, message: str, needs: str = "") -> KirError:
        """A refusal at the instruction that is being read."""
        assert self.here is not None
        return self.form.text.fail(id, message, self.here.span, needs)

    def refuse(self, reason: str, needs: str = "") -> KirError:
        """PTX that is right, and that the IR cannot say."""
        return self.fail("KIR-F304", reason, needs)

    # ------------------------------------------------------------------------------------------------------------ registers
    def _key(self, o: Operand) -> str | int:
        if isinstance(o, Place):
            if o.number >= len(self.operands):
                raise self.fail("KIR-F302", f"operand %{o.number} is used, and the asm statement has {len(self.operands)}")
            return o.number
        if isinstance(o, Name) and not o.special:
            if o.name not in self.form.registers:
                hint = did_you_mean(o.name, list(self.form.registers))
                raise self.fail("KIR-F302", f"there is no register '{o.name}'", needs=hint or "a .reg declaration")
            return o.name
        raise self.fail("KIR-F302", "a register is needed here")

    def width(self, o: Operand) -> int:
        """Bits of a register."""
        key = self._key(o)
        if isinstance(key, int):
            letter = self.operands[key].letter
            if letter not in WIDTHS:
                raise self.fail("KIR-F302", f"operand %{key} has the constraint \"{letter}\", which is no register")
            return WIDTHS[letter]
        kind = self.form.registers[key]
        if kind not in KINDS:
            raise self.fail("KIR-F302", f"there is no register type .{kind}")
        return KINDS[kind].bits

    def held(self, o: Operand) -> Held:
        """What a register holds under the guard of this instruction."""
        if isinstance(o, Name) and o.special:
            found = self.special.get(o.name)
            if found is None:
                raise self.refuse(f"the special register %{o.name} has no value here")
            return found
        key = self._key(o)
        entries = self.registers.get(key, [])
        if isinstance(key, int) and self.operands[key].is_input and self.operands[key].value is None:
            raise self.fail("KIR-F302", f"operand %{key} is read, and has no value")
        out = self.merged(entries, self.guard)
        if out is None:
            shown = f"%{key}" if isinstance(key, int) else key
            raise self.fail("KIR-F302", f"'{shown}' is read before anything is written to it")
        return out

    def operand_matrix(self, o: Operand) -> Matrix | None:
        """The matrix that a register describes; None for other registers."""
        if isinstance(o, Vector) or not isinstance(o, (Name, Place)):
            return None
        held = self.held(o)
        return held if isinstance(held, Matrix) else None

    def untouched(self, o: Operand) -> None:
        """A register that the statement leaves to the program: what is written to it arrives later."""
        self.registers.pop(self._key(o), None)

    def merged(self, entries: Sequence[Entry], guard: Guard | None) -> Held | None:
        """The value of a register where `guard` holds; None where nothing was written."""
        out: Held | None = None
        for held_under, value in entries:
            if guard is not None and held_under == (guard[0], not guard[1]):
                continue
            if held_under is None or held_under == guard or out is None:
                out = value
            elif isinstance(value, n.Expr) and isinstance(out, n.Expr):
                cond, holds = held_under
                other = reinterpret(out, dtype_of(value.type))
                out = build.select(cond, value, other) if holds else build.select(cond, other, value)
            else:
                raise self.refuse("an address that depends on a predicate")
        return out

    def write(self, o: Operand, value: Held) -> None:
        """Writes a register, under the guard of this instruction. `_` takes anything."""
        if isinstance(o, Name) and o.name == "_":
            return
        key = self._key(o)
        if isinstance(key, int) and not self.operands[key].is_output:
            raise self.fail("KIR-F302", f"operand %{key} is written, and its constraint \"{self.operands[key].constraint}\" says input",
                            needs=f"\"={self.operands[key].letter}\" or \"+{self.operands[key].letter}\"")
        if isinstance(value, n.Expr):
            bits = 1 if dtype_of(value.type).is_bool else dtype_of(value.type).bits
            if bits != self.width(o):
                raise self.fail("KIR-F302", f"{bits} bits are written to a register of {self.width(o)}")
        if self.guard is None:
            self.registers[key] = [(None, value)]
        else:
            kept = [e for e in self.registers.get(key, []) if e[0] != self.guard]
            self.registers[key] = [*kept, (self.guard, value)]

    # ---------------------------------------------------------------------------------------------------------------- values
    def value(self, o: Operand, kind: Kind, narrowing: bool = False) -> n.Expr:
        """An operand as a value of a PTX type (a vector for a packed one). With `narrowing`, the low bits of a wider register."""
        if isinstance(o, Number):
            return self._number(o, kind)
        if isinstance(o, Not):
            return build.invert(self.value(o.of, KINDS["pred"]))
        if not isinstance(o, (Name, Place)):
            raise self.fail("KIR-F302", "a register or a number is needed here")
        got = self.held(o)
        if isinstance(got, (Pointer, Descriptor, Matrix)):
            raise self.refuse("arithmetic on an address", "an address plus a number of bytes")
        if isinstance(o, Place) and self.operands[o.number].letter == "n":
            return self._immediate(got, kind)
        self.fits(o, kind)
        own = 1 if dtype_of(got.type).is_bool else dtype_of(got.type).bits
        if own != kind.bits:
            if not (narrowing and own > kind.bits):
                raise self.fail("KIR-F302", f"a register of {own} bits where {kind.bits} are needed")
            got = build.cast(reinterpret(got, UNSIGNED[own]), UNSIGNED[kind.bits])
        return unpack(got, kind.dtype) if kind.count > 1 else reinterpret(got, kind.dtype)

    def fits(self, o: Operand, kind: Kind) -> None:
        """Registers of floats (`f`, `d`) hold no integers and no packed values; those of bits hold anything of their width."""
        if not isinstance(o, Place) or o.number >= len(self.operands) or self.operands[o.number].letter not in ("f", "d"):
            return
        if not self.typeless and (not kind.dtype.is_float or kind.count > 1):
            opcode = self.here.opcode if self.here else ""
            raise self.fail("KIR-F302", f"operand %{o.number} is a register of floats (\"{self.operands[o.number].letter}\"), and"
                                        f" '{opcode}' takes integers or bits")

    @property
    def typeless(self) -> bool:
        """Whether the instruction takes registers of any type: it moves bits."""
        return self.here is not None and (self.here.parts[0] in ("mov", "ld", "st", "shfl", "selp") or any(
            p in ("b16", "b32", "b64", "f16x2", "bf16x2") for p in self.here.parts))

    def _number(self, o: Number, kind: Kind) -> n.Expr:
        if kind.count > 1:
            if not isinstance(o.value, int):
                raise self.fail("KIR-F302", "a packed operand is given by its bits")
            return unpack(build.const(o.value, UNSIGNED[kind.bits]), kind.dtype)
        if kind.dtype.is_float:
            if isinstance(o.value, int) and o.bits is None:
                return reinterpret(build.const(o.value, UNSIGNED[kind.bits]), kind.dtype) if o.value else build.const(0.0, kind.dtype)
            return build.const(o.value, kind.dtype)
        if o.bits is not None:
            return build.const(o.bits, kind.dtype)
        if isinstance(o.value, float):
            raise self.fail("KIR-F302", f"the number {o.value} is no integer")
        return build.const(bool(o.value) if kind.dtype.is_bool else o.value, kind.dtype)

    def _immediate(self, got: n.Expr, kind: Kind) -> n.Expr:
        if kind.count > 1:
            raise self.fail("KIR-F302", "a packed operand is no immediate")
        return build.cast(got, kind.dtype)

    def constant(self, o: Operand) -> int:
        """An operand that must be known when the asm is assembled. Raises KirError KIR-F302."""
        if isinstance(o, Number) and isinstance(o.value, int):
            return o.value
        if isinstance(o, (Name, Place)):
            got = self.held(o)
            if isinstance(got, n.Const) and got.dtype.is_integer:
                return int(got.value)
        raise self.fail("KIR-F302", "a number that is known at compile time is needed here")

    def result(self, o: Operand, value: n.Expr) -> None:
        """Writes a value (packed, when it is a vector) to a register under a name of its own."""
        made = pack(value) if isinstance(value.type, TileType) else value
        if not isinstance(value.type, TileType) and dtype_of(value.type).is_integer:
            self.fits(o, Kind(dtype_of(value.type)))
        self.write(o, self.bind("x", made))

    def bind(self, stem: str, value: n.Expr) -> n.Expr:
        """A local that holds a value; names and literals stand for themselves."""
        if isinstance(value, (n.Var, n.Const)):
            return value
        name = self.fresh(stem)
        self.locals.add(name)
        self.steps.append(n.Let((name,), value))
        of = value.type
        return n.Var(name, of)

    def items(self, o: Operand, count: int) -> tuple[Operand, ...]:
        """The parts of a vector operand; a single register where one is wanted."""
        parts: tuple[Operand, ...] = o.items if isinstance(o, Vector) else (o,)
        if len(parts) != count:
            raise self.fail("KIR-F302", f"{len(parts)} registers where the instruction takes {count}")
        return parts

    # --------------------------------------------------------------------------------------------------------------- effects
    def effect(self, s: n.Stmt) -> None:
        """A statement, inside a branch where the instruction has a guard."""
        if self.guard is None:
            self.steps.append(s)
            return
        cond, holds = self.guard
        before = self.steps[-1] if self.steps else None
        test = cond if holds else build.invert(cond)
        if isinstance(before, n.If) and before.cond == test and not before.orelse:
            self.steps[-1] = n.If(test, (*before.then, s))
        else:
            self.steps.append(n.If(test, (s,)))

    def bind_effect(self, stem: str, call: n.Call) -> n.Expr:
        """A local that holds the result of a call with effects, which no predicate may guard."""
        if self.guard is not None:
            raise self.refuse(f"'{call.fn}' under a predicate, whose result would be missing elsewhere", "a branch around the asm statement")
        name = self.fresh(stem)
        self.steps.append(n.Let((name,), call))
        return n.Var(name, call.type)

    def condition(self) -> n.Expr | None:
        """The guard as an expression."""
        if self.guard is None:
            return None
        return self.guard[0] if self.guard[1] else build.invert(self.guard[0])

    # ------------------------------------------------------------------------------------------------------------- addresses
    def pointer(self, o: Operand) -> Pointer:
        """The address in a memory operand."""
        if not isinstance(o, Memory):
            raise self.fail("KIR-F302", "an address [..] is needed here")
        if isinstance(o.base, (Number, Not)):
            raise self.refuse("an absolute address")
        got = self.held(o.base)
        if isinstance(got, (n.Expr, Descriptor, Matrix)):
            if isinstance(got, n.Expr) and isinstance(got.type, PointerType):
                raise self.refuse("an address that is not known as a place in a buffer")
            raise self.fail("KIR-F306", "this register does not hold the address of a place in a buffer")
        return advanced(got, o.offset)

    def region(self, o: Operand, bits: int, count: int, space: str = "") -> n.Region:
        """The place of `count` pieces of `bits` bits that a memory operand names, as elements of its buffer."""
        p = self.pointer(o)
        b = p.at.buffer
        wanted = {"shared::cta": "shared", "shared::cluster": "shared", "param": "constant", "const": "constant"}.get(space, space)
        if wanted and b.space != wanted and not (space == "shared::cluster" and b.space == "cluster"):
            raise self.fail("KIR-F302", f".{space} access to '{b.name}', which is {b.space} memory")
        whole = bits * count // 8
        size = b.dtype.bytes
        if whole % size:
            raise self.refuse(f"an access of {whole} bytes to '{b.name}', whose elements have {size}", "a view of that width")
        elements = whole // size
        index = p.at.index
        if not isinstance(p.bytes, int) or p.bytes:
            index = self._moved(p, size)
        if elements == 1:
            return n.Region(b, index)
        last = index[-1]
        assert isinstance(last, n.Expr)
        return build.region(b, *index[:-1], build.span(last, elements))

    def _moved(self, p: Pointer, size: int) -> tuple[n.Expr | n.Span, ...]:
        last = p.at.index[-1]
        assert isinstance(last, n.Expr)
        own = dtype_of(last.type)
        if isinstance(p.bytes, int):
            if p.bytes % size:
                raise self.fail("KIR-F306", f"{p.bytes} bytes from an element of '{p.at.buffer.name}' is no element ({size} bytes each)")
            return (*p.at.index[:-1], build.add(last, p.bytes // size))
        step = build.cast(p.bytes, own)
        terms = build.polynomial(step)
        if any(c % size for c in terms.values()):
            raise self.refuse(f"a displacement that may not be a multiple of {size} bytes", "an index in elements")
        return (*p.at.index[:-1], build.add(last, build.from_polynomial({m: c // size for m, c in terms.items()}, own)))

    def mbarrier(self, o: Operand, remote: bool = False) -> n.Region:
        """The mbarrier in a memory operand; one of the CTA itself unless `remote`."""
        p = self.pointer(o)
        if p.at.buffer.dtype.name != "mbarrier":
            raise self.refuse(f"'{p.at.buffer.name}' is used as an mbarrier and declared as {p.at.buffer.dtype}", "shared memory of mbarriers")
        return self.region(o, 64, 1, "shared::cluster" if remote else "shared")

    def box(self, o: Operand, box: tuple[int, ...], map: n.TensorMap, dtype: DType) -> tuple[n.Region, set[int]]:
        """The part of shared memory that a tensor map's box fills, and which of its dimensions keep an axis there: all, or those longer than one."""
        p = self.pointer(o)
        b, index = p.at.buffer, p.at.index
        shape = [build.int_value(d) for d in b.shape]
        for kept in (list(range(len(box))), [k for k, extent in enumerate(box) if extent > 1] or [len(box) - 1]):
            extents = [box[k] for k in kept]
            lead = len(shape) - len(extents)
            if lead < 0 or isinstance(p.bytes, n.Expr) or p.bytes or shape[lead + 1:] != extents[1:] or (shape[lead] or 0) < extents[0]:
                continue
            if all(build.is_const(x, 0) for x in index[lead + 1:] if isinstance(x, n.Expr)):
                spans = [build.span(x, extent) for x, extent in zip(index[lead:], extents, strict=True) if isinstance(x, n.Expr)]
                return build.region(b, *index[:lead], *spans), set(kept)
        raise self.refuse(f"a box of {list(box)} that is no whole part of '{b.name}'",
                          f"shared memory shaped as the box ('{b.name}' under [arrays] of the binding)")

    def modifiers(self, skip: int = 1) -> Modifiers:
        """The parts of this instruction's opcode after the first `skip`."""
        assert self.here is not None
        return Modifiers(self, self.here, list(self.here.parts[skip:]))


def advanced(p: Pointer, by: n.Expr | int) -> Pointer:
    """An address some bytes further."""
    if isinstance(by, int) and isinstance(p.bytes, int):
        return Pointer(p.at, p.bytes + by)
    base = p.bytes if isinstance(p.bytes, n.Expr) else None
    step = by if isinstance(by, n.Expr) else None
    if base is None:
        assert step is not None
        return Pointer(p.at, build.add(step, p.bytes if isinstance(p.bytes, int) else 0))
    return Pointer(p.at, build.add(base, by if step is None else build.cast(step, dtype_of(base.type))))


PREDICATE = Kind(BOOL)
Handler = Callable[[Reader, Instruction], None]
