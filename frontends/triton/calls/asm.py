"""`tl.inline_asm_elementwise`: PTX over the elements of tiles, through `kir.surface.ptx`.

The asm is read once for `pack` elements at a time, as scalars; what it computes must be one function of each element, which then stands
over whole tiles. How elements share registers: Triton, InlineAsm of `TritonGPUToLLVM` (narrow elements fill a 32-bit register in order).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count

from kir.analysis.elements import NotElementwise, element
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, F4E2M1, U4, U8, U32, DType, TileType, dtype_of
from kir.ir.visit import names_read, substitute, transform, walk
from kir.surface.ptx import AsmOperand, Meaning, pack_bits, read_asm, unpack_bits
from kir.surface.ptx.form.bits import UNSIGNED

from ..state.state import State
from ..values import operators
from ..values.arguments import Arguments
from ..values.values import Items, NotUnderstood, Run, TypeOf, Unknown, Value, describe, items_of


def inline_asm(r: State, a: Arguments) -> Value:
    """The value, or tuple of values, of an inline asm. Raises NotUnderstood with the reader's words for PTX that is wrong or unknown."""
    text, constraints = a.need(0, "asm"), a.need(1, "constraints")
    pack = operators.known_int(a.need(5, "pack"), "the elements of an inline asm that are packed")
    if not isinstance(text, str) or not isinstance(constraints, str):
        raise NotUnderstood("an inline asm whose text the binding decides")
    wanted = a.need(3, "dtype")
    dtypes = [_dtype(v) for v in (wanted.items if isinstance(wanted, Items) else (wanted,))]
    tiles = _operands(r, a.need(2, "args"), dtypes, constraints, pack)
    read = _Reading(text, constraints, pack, tiles, dtypes)
    if any(not isinstance(s, n.Let) for s in read.meaning.statements):
        results = _effects(r, read, tiles)
    else:
        given = dict(zip(read.first, tiles, strict=True))
        made = [None if e is None else transform(transform(substitute(e, given), _narrow_again), counted_bits) for e in read.elements()]
        results = [Unknown("asm leaves it undefined") if e is None else Run(_shared(r, e)) for e in made]
    return Items(tuple(results)) if isinstance(wanted, Items) else results[0]


def _shared(r: State, e: n.Expr) -> n.Expr:
    """The value with a name for each call in it that stands there more than once, as the asm has a register for it."""
    while True:
        often = [x for x, times in Counter(x for x in walk(e) if isinstance(x, n.Call) and dtype_of(x.type) != BOOL).items() if times > 1]
        if not often:
            return e
        inner = min(often, key=lambda x: sum(1 for _ in walk(x)))
        named = r.out.let("part", inner)

        def leave(old: n.Node, new: n.Node, inner: n.Call = inner, named: n.Expr = named) -> n.Node:
            return named if new == inner else new
        e = transform(e, leave)


def _dtype(v: Value) -> DType:
    if isinstance(v, TypeOf) and not v.pointer and not v.dtype.is_symbolic:
        return v.dtype
    raise NotUnderstood(f"an inline asm that gives {describe(v)}")


def _letters(constraints: str) -> list[str]:
    return [c.strip() for c in constraints.split(",") if c.strip() and not c.strip().startswith("~")]


def _operands(r: State, given: Value, results: Sequence[DType], constraints: str, pack: int) -> list[n.Expr]:
    """The operands, stretched to one shape, under names of their own. Elements whose dtype the binding decides are taken as bits of the
    width that the constraints tell, which a binding of another width cannot satisfy."""
    runs = [operators.run(v) for v in items_of(given)]
    open_ = [k for k, e in enumerate(runs) if dtype_of(e.type).is_symbolic]
    if open_:
        known = sum(_registers(dtype_of(e.type), pack) for k, e in enumerate(runs) if k not in open_)
        letters = [c for c in _letters(constraints) if not c.startswith("=")]
        each, odd = divmod(len(letters) - known, len(open_))
        width = {"l": 64, "d": 64}.get(letters[-1] if letters else "", 32 * each // pack)
        if odd or each < 1 or width not in UNSIGNED or (pack == 1 and letters[-1] == "h"):
            raise NotUnderstood("an inline asm on elements whose dtype the binding decides")
        for k in open_:
            runs[k] = build.cast(runs[k], next((d for d in results if d.bits == width), UNSIGNED[width]), "bits")
    out = []
    for e in runs:
        for other in runs:
            e, _ = operators.shapes(e, other)
        byte = isinstance(e, n.Cast) and e.rounding == "rn" and dtype_of(e.x.type) == U8 and e.dtype == U32
        out.append(build.cast(r.out.let("x", e.x), e.dtype) if byte and isinstance(e, n.Cast) else r.out.let("x", e))  # a byte in a register
    return out


def _effects(r: State, read: _Reading, tiles: Sequence[n.Expr]) -> list[Value]:
    """An asm that acts: only what does the same however many threads execute it, and gives no value."""
    for s in read.meaning.statements:
        if not (isinstance(s, n.Eval) and not s.call.args) or tiles:
            raise NotUnderstood("an inline asm with effects for each element")
        r.out.emit(s)
    outputs = read.meaning.outputs
    if len(outputs) != len(read.results) or any(o is not None and not isinstance(o, n.Const) for o in outputs):
        raise NotUnderstood("an inline asm with effects and a value")
    return [Unknown("asm leaves it undefined") if o is None else Run(_typed(o, dtype)) for o, dtype in zip(outputs, read.results, strict=True)]


class _Reading:
    """An asm read over scalar elements: `first` names those of the first of `pack` elements, one for each operand. A number that is known when the kernel
    is compiled stands for itself."""

    def __init__(self, text: str, constraints: str, pack: int, tiles: Sequence[n.Expr], results: Sequence[DType]) -> None:
        self.pack, self.results = pack, results
        operands = [dtype_of(e.type) for e in tiles]
        self.names = [[f"e{k}_{i}" for i in range(pack)] for k in range(len(operands))]
        self.first = [row[0] for row in self.names]
        letters = _letters(constraints)
        outs = sum(_registers(d, pack) for d in results)
        registers = [v for row, d, e in zip(self.names, operands, tiles, strict=True)
                     for v in _packed([e if isinstance(e, n.Const) else n.Var(x, d) for x in row], d)]
        given = [c for c in letters if not c.startswith("=")]
        if len(letters) - len(given) != outs or len(given) != len(registers):
            raise NotUnderstood(f"an inline asm of {len(letters)} constraints for {outs} results and {len(registers)} operands")
        asm = [AsmOperand(c) for c in letters if c.startswith("=")] + [AsmOperand(c, v) for c, v in zip(given, registers, strict=True)]
        numbers = count()
        try:
            self.meaning: Meaning = read_asm(text, asm, lambda stem: f"{stem}__{next(numbers)}")
        except KirError as bad:
            found = bad.diagnostics[0]
            raise NotUnderstood(f"inline asm: {found.message} [{found.id}]") from None

    def elements(self) -> list[n.Expr | None]:
        """Each result as a function of the first elements. Raises NotUnderstood where elements are computed in different ways."""
        known: dict[str, n.Expr] = {}
        for s in self.meaning.statements:
            assert isinstance(s, n.Let)
            known[s.names[0]] = substitute(s.value, known)
        out: list[n.Expr | None] = []
        left = iter(self.meaning.outputs)
        for dtype in self.results:
            raw = [next(left) for _ in range(_registers(dtype, self.pack))]
            if any(o is None for o in raw):
                out.append(None)
                continue
            each = self._spread([transform(substitute(o, known), _taken_apart) for o in raw if o is not None], dtype)
            for k, e in enumerate(each):
                renamed = {row[k]: n.Var(row[0], _type(e, row[k])) for row in self.names if row[k] in names_read(e)}
                if names_read(e) - {row[k] for row in self.names} or substitute(e, renamed) != each[0]:
                    raise NotUnderstood("an inline asm that does not treat every element alike")
            out.append(each[0])
        return out

    def _spread(self, registers: Sequence[n.Expr], dtype: DType) -> list[n.Expr]:
        """The elements that result registers hold."""
        if len(registers) == self.pack:
            return [_typed(e, dtype) for e in registers]
        each = self.pack // len(registers)
        try:
            return [_lane(unpack_bits(e, dtype), k) for e in registers for k in range(each)]
        except NotElementwise as bad:
            raise NotUnderstood(f"an inline asm whose packed result is made by {bad}") from None


def _narrow_again(_: n.Node, x: n.Node) -> n.Node:
    """An integer that was widened, as a register has it, where it is cut to what it was; so is the first of what is packed in a register."""
    match x:
        case n.Binary(op="and", a=n.Call(fn="pack", args=(n.Call(fn="vec", args=(n.Expr() as first, *_)),)), b=n.Const(value=mask)) \
                if dtype_of(first.type).kind == "uint" and mask == (1 << dtype_of(first.type).bits) - 1:
            return build.cast(first, dtype_of(x.type))
        case n.Cast(x=n.Cast(x=inner, dtype=wide, rounding="rn"), dtype=narrow, rounding="rn") if dtype_of(inner.type) == narrow and narrow.is_integer:
            return inner if wide.is_integer and wide.bits >= narrow.bits else x
        case n.Cast(x=n.Cast(x=inner, dtype=wide, rounding="rn"), dtype=narrow, rounding="rn") if narrow == U4 and wide.is_integer and (
                dtype_of(inner.type).is_integer):  # the low bits of whatever it is
            return build.cast(inner, narrow)
    return x


def counted_bits(_: n.Node, x: n.Node) -> n.Node:
    """A count of bits is one of what they are whatever their sign."""
    match x:
        case n.Call(fn="popc" | "clz", args=(n.Cast(rounding="bits", x=inner),)) if dtype_of(inner.type).is_integer:
            return build.call(x.fn, inner)
    return x


def _taken_apart(_: n.Node, x: n.Node) -> n.Node:
    """One of the elements that a register's bits are taken for, as an element of what these are made of, or as those bits of it."""
    match x:
        case n.Call(fn="pick", args=(n.Expr() as whole, n.Const(value=k))) if isinstance(whole.type, TileType):
            try:
                return _lane(whole, int(k))
            except NotElementwise:
                return x
    return x


def _lane(e: n.Expr, k: int) -> n.Expr:
    """Element k of a register's elements. Raises NotElementwise."""
    if not isinstance(e.type, TileType):
        return e
    match e:
        case n.Call(fn="unpack", args=(n.Expr() as bits,)):
            dtype = dtype_of(e.type)
            while isinstance(bits, n.Cast) and bits.rounding == "bits":
                bits = bits.x
            if dtype.bits < 8:
                if dtype != F4E2M1 or not dtype_of(bits.type).is_integer or isinstance(bits.type, TileType):
                    raise NotUnderstood("elements of less than a byte, each by itself")
                return build.cast(build.cast(build.binary("shr", build.cast(bits, U32), build.const(k * dtype.bits, U32)) if k else bits, U4), dtype, "bits")
            if isinstance(bits, n.Const) and isinstance(bits.value, int):
                return build.cast(build.const(bits.value >> k * dtype.bits & (1 << dtype.bits) - 1, UNSIGNED[dtype.bits]), dtype, "bits")
            if isinstance(bits, n.Call) and bits.fn == "pack" and isinstance(whole := bits.args[0], n.Expr) and dtype_of(whole.type).bits == dtype.bits:
                return build.cast(_lane(whole, k), dtype, "bits")
            part = build.binary("shr", build.cast(bits, U32, "bits"), build.const(k * dtype.bits, U32)) if k else build.cast(bits, U32, "bits")
            return build.cast(build.cast(part, UNSIGNED[dtype.bits]), dtype, "bits")
        case n.Unary():
            return build.unary(e.op, _lane(e.x, k))
        case n.Binary():
            return build.binary(e.op, _lane(e.a, k), _lane(e.b, k))
        case n.Select():
            return build.select(_lane(e.cond, k), _lane(e.a, k), _lane(e.b, k))
        case n.Cast():
            return build.cast(_lane(e.x, k), e.dtype, e.rounding)
        case n.Call(fn="fma"):
            return build.call("fma", *(_lane(a, k) for a in e.args if isinstance(a, n.Expr)))
    return element(e, (build.const(k),))


def _type(e: n.Expr, name: str) -> DType:
    found = next(x.of for x in walk(e) if isinstance(x, n.Var) and x.name == name)
    assert isinstance(found, DType)
    return found


def _typed(e: n.Expr, dtype: DType) -> n.Expr:
    """A register's bits as an element, the low ones of a wider register."""
    own = dtype_of(e.type)
    if own == dtype:
        return e
    if own.bits == dtype.bits:
        return build.cast(e, dtype, "bits") if not (isinstance(e, n.Cast) and e.rounding == "bits") else _typed(e.x, dtype)
    raise NotUnderstood(f"an inline asm that gives {own.bits} bits for {dtype}")


def _registers(d: DType, pack: int) -> int:
    return max(1, pack * d.bits // 32) if d.bits < 32 else pack


def _packed(elements: Sequence[n.Expr], d: DType) -> list[n.Expr]:
    """`pack` elements in registers: one each, or as many as 32 bits hold."""
    each = min(len(elements), 32 // d.bits) if d.bits < 32 else 1
    if each == 1:
        return list(elements)
    return [pack_bits(build.call("vec", *elements[k:k + each])) for k in range(0, len(elements), each)]
