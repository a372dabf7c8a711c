"""Expressions of the tile dialect as Triton expressions.

Triton's typing is matched, not fought: the IR's operands have one dtype already, so a literal beside a tensor takes that tensor's dtype
and everything else is spelled with its dtype. Python binds comparisons more loosely than `&`, unlike the IR's text.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from kir.analysis.facts import Facts
from kir.analysis.order import at_most
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.base.instructions import instruction
from kir.ir import nodes as n
from kir.ir.build import from_polynomial, int_value, mul, polynomial, sub
from kir.ir.dtype_terms import compared, rounded
from kir.ir.printer import expr_text
from kir.ir.types import BF16, BOOL, F32, I32, DType, TileType, Type, dtype_of, shape_of
from kir.ir.visit import names_read
from kir.surface.ptx.writing import LETTERS, spelled

from .names import COMBINING
from .packed import Packed, nibble, packed

COMPARE, OR, XOR, AND, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(1, 10)
_INFIX = {"or": ("|", OR), "xor": ("^", XOR), "and": ("&", AND), "shl": ("<<", SHIFT), "shr": (">>", SHIFT), "add": ("+", SUM),
          "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT), "tdiv": ("//", PRODUCT), "trem": ("%", PRODUCT)}
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
DTYPES: Mapping[str, str] = {
    "bool": "int1", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
    "u64": "uint64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "f8e4m3": "float8e4nv", "f8e5m2": "float8e5",
    "f8e4m3fnuz": "float8e4b8",
}
"""IR dtype to its name in triton.language."""
_REDUCTIONS = {"sum": "tl.sum", "max": "tl.max", "min": "tl.min", "xor": "tl.xor_sum", "or": "tl.reduce_or", "argmax": "tl.argmax",
               "argmin": "tl.argmin"}
COMBINES = dict(zip(("prod", "and", "sum", "or", "xor"), COMBINING[:5], strict=True))
"""Combine functions that a reduction without a name of its own in Triton brings along."""
SCANNED = {**COMBINES, "max": COMBINING[5], "min": COMBINING[6]}
"""What a scan without a name of its own in Triton combines with; Triton takes no function of its own for that."""
BODIES = {"product_of_two": "a * b", "and_of_two": "a & b", "sum_of_two": "a + b", "or_of_two": "a | b", "xor_of_two": "a ^ b",
          "larger_of_two": "tl.maximum(a, b)", "smaller_of_two": "tl.minimum(a, b)"}
_CAST_BACK = "an operand cast to 32 bits, and the result cast back"
_SCANS = {"sum": "tl.cumsum", "prod": "tl.cumprod"}
_TAKES = {**dict.fromkeys((f"libdevice.{x}" for x in ("brev", "popc", "clz", "ffs")), ("i32", "i64")), "libdevice.isfinited": ("f64",)}
"""Functions that Triton's compiler refuses for other dtypes (seen by instruction conformance)."""
_FLOAT_MATH = frozenset({"exp", "exp2", "log", "log2", "sqrt", "sqrt_approx", "rsqrt", "sin", "cos", "erf", "sigmoid", "floor", "ceil"})
"""Functions of triton.language that take f32 and f64 only."""
_EXACT = frozenset({"i32", "f32"})
"""Dtypes that a bare Python literal becomes when it is assigned."""


def refuse(id: str, message: str, **more: str) -> KirError:
    """A refusal without its place, which the statement that is being written adds."""
    return error(id, message, needs=more.get("needs", ""), attempt=more.get("attempt", ""))


def literal(c: n.Const) -> str:
    """A bare Python literal."""
    if isinstance(c.value, float):
        if math.isnan(c.value) or math.isinf(c.value):
            return f'float("{"-" if c.value < 0 else ""}{"nan" if math.isnan(c.value) else "inf"}")'
        return repr(c.value)
    return str(c.value)


def tile_shape(t: Type) -> tuple[int, ...]:
    """The shape of a type as integers. Raises KirError KIR-B003 for a symbolic extent, and for one that is no power of two."""
    out = []
    for d in shape_of(t):
        value = int_value(d)
        if value is None or value < 1 or value & (value - 1):
            shown = d if isinstance(d, int) else expr_text(d)
            raise refuse("KIR-B003", f"a Triton tile cannot have an axis of extent {shown}", needs="powers of two known at compile time")
        out.append(value)
    return tuple(out)


def dims(shape: Sequence[int | str]) -> str:
    """A shape as a Python tuple."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def dtype_name(d: DType) -> str:
    """A dtype of triton.language. Raises KirError KIR-B004 where there is none."""
    if d.name not in DTYPES:
        raise refuse("KIR-B004", f"Triton has no dtype {d.name}")
    return f"tl.{DTYPES[d.name]}"


def not_negative(facts: Facts, e: n.Expr) -> bool:
    """Whether an integer expression is known to be at least 0: by its interval, by its parts, or as what is left of a whole."""
    low = facts.domain(e).lo
    if (low is not None and low >= 0) or _by_parts(facts, e):
        return True
    whole = facts.expanded(e)
    zero = n.Const(0, dtype_of(whole.type))
    return _from_end(facts, whole) or _leftover(facts, whole) or (not isinstance(whole.type, TileType) and at_most(zero, whole, facts))


def _by_parts(facts: Facts, e: n.Expr) -> bool:
    """Whether what an expression is made of says that it is not negative."""
    match e:
        case n.Var():
            return e.name in facts.lets and not_negative(facts, facts.lets[e.name])
        case n.Binary(op="add" | "mul" | "min" | "floordiv" | "tdiv" | "ceildiv" | "trem") if not_negative(facts, e.a):
            return e.op == "trem" or not_negative(facts, e.b)
        case n.Binary(op="mod"):
            return not_negative(facts, e.b)
        case n.Binary(op="max"):
            return not_negative(facts, e.a) or not_negative(facts, e.b)
        case n.Cast() if dtype_of(e.x.type).is_integer and e.rounding == "rn" and e.dtype.bits > dtype_of(e.x.type).bits:
            return not_negative(facts, e.x)
        case n.Call(fn="expand" | "broadcast" | "multiple_of" | "max_contiguous") if isinstance(e.args[0], n.Expr):
            return not_negative(facts, e.args[0])
        case _:
            return False


def _from_end(facts: Facts, e: n.Expr) -> bool:
    """Whether it is end - v - 1, where 0 <= v < end: a program id counted from the end of its axis."""
    left = polynomial(e)
    for held in facts.holds:
        if isinstance(held, n.Binary) and held.op == "lt" and isinstance(held.a, n.Var):
            low = facts.domain(held.a).lo
            if low is not None and low >= 0 and left == polynomial(sub(sub(facts.expanded(held.b), held.a), 1)):
                return True
    return False


def _leftover(facts: Facts, e: n.Expr) -> bool:
    """x - (v // d) * c is positive where v < end and end <= x * (d / c): a program id below the grid's extent, by groups of c rows."""
    terms = polynomial(e)
    for monomial, c in terms.items():
        division = next((a for a in monomial if isinstance(a, n.Binary) and a.op == "floordiv"), None)
        if c >= 0 or division is None or len(monomial) != 1 or not isinstance(division.a, n.Var):
            continue
        rest = from_polynomial({m: k for m, k in terms.items() if m != monomial}, dtype_of(e.type))
        for held in facts.holds:
            if isinstance(held, n.Binary) and held.op == "lt" and held.a == division.a:
                whole, group = polynomial(facts.expanded(held.b)), polynomial(facts.expanded(division.b))
                if whole == polynomial(mul(rest, _divided(group, -c, dtype_of(e.type)))):
                    return True
    return False


def _divided(group: Mapping[tuple[n.Expr, ...], int], c: int, dtype: DType) -> n.Expr:
    """A sum of products over c, or 0 where c does not divide it."""
    exact = all(k % c == 0 for k in group.values())
    return from_polynomial({m: k // c for m, k in group.items()} if exact else {}, dtype)


@dataclass
class Expressions:
    """Writes expressions. `names` maps IR names to Python's; `facts` are those of the statement being written; `reader` writes loads of
    global memory. What was used of other modules and of the program's functions is collected."""

    names: Mapping[str, str]
    facts: Facts
    functions: Mapping[str, n.Function]
    reader: LoadWriter
    uses_libdevice: bool = False
    unrolled: set[str] = field(default_factory=set)
    """Counters of loops that are unrolled: constants to Triton's compiler, which it stretches only as literals."""
    combines: dict[str, str] = field(default_factory=dict)

    def text(self, e: n.Expr, least: int = 0) -> str:
        """`e`, in parentheses when it binds more loosely than `least`."""
        text, level = self.spell(e)
        return text if level >= least else f"({text})"

    # What a program whose metas are still open spells in another way (see `generic`).
    def extents(self, t: Type) -> tuple[str, ...]:
        """The shape of a type as text. Raises KirError KIR-B003 for one that a tile cannot have."""
        return tuple(map(str, tile_shape(t)))

    def dtype(self, d: DType) -> str:
        """A dtype. Raises KirError KIR-B004 where there is none."""
        return dtype_name(d)

    def narrow(self, d: DType) -> bool:
        """Whether a dtype is known to have less than 32 bits, so that Triton widens it in places."""
        return d.bits < 32

    def tensor(self, e: n.Expr) -> str:
        """`e` with its dtype, also where it is a literal (not in parentheses)."""
        if isinstance(e, n.Const):
            return f"tl.full((), {literal(e)}, {self.dtype(e.dtype)})"
        return self.text(e)

    def assigned(self, e: n.Expr) -> str:
        """`e` as the right side of an assignment: there a bare literal becomes i32, f32 or int1 by itself."""
        if isinstance(e, n.Const) and (e.dtype.name in _EXACT or e.dtype.is_bool):
            return literal(e)
        return self.tensor(e)

    def filled(self, e: n.Expr, to: Type) -> str:
        """`e` as a whole value of type `to`, stretched where it is smaller."""
        shape = self.extents(to)
        if not isinstance(to, TileType):
            return self.assigned(e)
        if isinstance(e, n.Const):
            if not e.value and math.copysign(1.0, e.value) > 0:
                return f"tl.zeros({dims(shape)}, dtype={self.dtype(e.dtype)})"
            return f"tl.full({dims(shape)}, {literal(e)}, dtype={self.dtype(e.dtype)})"
        if shape_of(e.type) == shape_of(to):
            return self.text(e)
        return f"tl.broadcast_to({self.text(e)}, {dims(shape)})"

    # ------------------------------------------------------------------------------------------------------------------ nodes
    def spell(self, e: n.Expr) -> tuple[str, int]:
        """Text and binding level."""
        match e:
            case n.Const():
                text = literal(e)
                return text, UNARY if text.startswith("-") else ATOM
            case n.Var():
                if e.name not in self.names:
                    raise refuse("KIR-B002", f"a function reads '{e.name}' of the program", needs="a parameter of the function")
                return self.names[e.name], ATOM
            case n.Unary():
                return ("-" if e.op == "neg" else "~") + self.text(e.x, UNARY), UNARY
            case n.Binary():
                return self._binary(e)
            case n.Select():
                cond, b = self._of_rank(e.cond, e), self._of_rank(e.b, e)
                a = self.tensor(e.a) if isinstance(e.a, n.Const) and isinstance(e.b, n.Const) else self._of_rank(e.a, e)
                return f"tl.where({cond}, {a}, {b})", ATOM
            case n.Cast():
                return self._cast(e), ATOM
            case n.Load():
                return self.reader.load_text(self, e), ATOM
            case n.Call():
                return self._call(e)
            case _:
                raise refuse("KIR-B002", f"Triton has no spelling for {expr_text(e)}")

    def _of_rank(self, x: n.Expr, of: n.Expr) -> str:
        """An operand of `tl.where` or `tl.broadcast_to`, which broadcast extents but not ranks."""
        rank, wanted = len(shape_of(x.type)), len(shape_of(of.type))
        return self.text(x) if rank in (0, wanted) else f"{self.text(x, ATOM)}[{', '.join(['None'] * (wanted - rank) + [':'] * rank)}]"

    def _binary(self, e: n.Binary) -> tuple[str, int]:
        a, b, dtype = e.a, e.b, dtype_of(e.a.type)
        both = isinstance(a, n.Const) and isinstance(b, n.Const)
        def left(level: int) -> str:
            return self.tensor(a) if both else self.text(a, level)
        if e.op in _COMPARISONS:
            return f"{self.tensor(a) if both else self._in_comparison(a)} {_COMPARISONS[e.op]} {self._in_comparison(b)}", COMPARE
        if e.op == "div" and self.narrow(dtype):
            raise refuse("KIR-B004", f"Triton divides {dtype} in f32", needs="operands cast to f32, and the quotient cast back")
        if e.op in _INFIX:
            sign, level = _INFIX[e.op]
            return f"{left(level)} {sign} {self.text(b, level + 1)}", level
        if e.op in ("floordiv", "mod", "ceildiv"):
            if dtype_of(e.type).kind != "uint" and self._sign(b) and not self._sign(a):
                return self._rounded(e)
            self._check_sign(e)
            if e.op == "ceildiv":
                return f"tl.cdiv({left(0)}, {self.text(b)})", ATOM
            return f"{left(PRODUCT)} {'//' if e.op == 'floordiv' else '%'} {self.text(b, UNARY)}", PRODUCT
        if e.op in ("min", "max"):
            return self._as_it_was(f"tl.{e.op}imum({self._beside(a, b)}, {self._beside(b, a)})", e), ATOM
        raise refuse("KIR-B002", f"Triton has no operator '{e.op}'")

    def _in_comparison(self, x: n.Expr) -> str:
        """An operand of a comparison, in which Triton takes a bare literal as i32 or f32: one that is neither is written with its dtype."""
        exact = not isinstance(x, n.Const) or x.dtype in (F32, BOOL) or compared(F32 if x.dtype.is_float else I32, x.value, x.dtype) == x.dtype
        return self.text(x, OR) if exact else self.tensor(x)

    def _beside(self, x: n.Expr, other: n.Expr) -> str:
        """An operand of `tl.maximum` or `tl.minimum`, to which a bare literal is i32 or f32 whatever is beside it; what exceeds the dtype is rounded after."""
        bare = dtype_of(x.type) in (F32, BF16) or (dtype_of(x.type).is_integer and dtype_of(x.type).bits >= 32)
        return self.text(x) if bare and not isinstance(other, n.Const) else self.tensor(x)

    def _as_it_was(self, extreme: str, e: n.Expr) -> str:
        """The lesser or greater of two values in their own dtype: of bf16, Triton gives it in f32."""
        own = dtype_of(e.type)
        return extreme if rounded(own) == own else f"{extreme}.to({self.dtype(own)})"

    def _rounded(self, e: n.Binary) -> tuple[str, int]:
        """A division of what may be negative, which Triton truncates: moved by what rounds it down, or up, and read back as that."""
        a, b = self.tensor(e.a), self.text(e.b, UNARY)
        if e.op == "mod":
            return f"({self.text(e.a, PRODUCT)} % {b} + {b}) % {b}", PRODUCT
        moved = f"{a} < 0, {a} - ({b} - 1)" if e.op == "floordiv" else f"{a} > 0, {a} + ({b} - 1)"
        return f"tl.where({moved}, {a}) // {b}", PRODUCT

    def _sign(self, e: n.Expr) -> bool:
        """Whether an operand is known not to be negative."""
        return not_negative(self.facts, e)

    def _check_sign(self, e: n.Binary) -> None:
        """Integer division of Triton truncates: it rounds down only where the operands are known not to be negative."""
        if dtype_of(e.type).kind == "uint":
            return
        for side, what in ((e.a, "dividend"), (e.b, "divisor")):
            if not self._sign(side):
                raise refuse("KIR-B005", f"{expr_text(e)} rounds down, Triton's division truncates, and the {what} may be negative",
                             needs=f"a fact that {expr_text(side)} >= 0, or tdiv and trem")

    def _cast(self, e: n.Cast) -> str:
        if (asm := nibble(e)) is not None:
            return self._packed(asm)
        to = self.dtype(e.dtype)
        options = {"rn": "", "bits": ", bitcast=True", "rz": ', fp_downcast_rounding="rtz"'}.get(e.rounding)
        if options is None:
            raise refuse("KIR-B004", f"Triton has no conversion with rounding '{e.rounding}'")
        if isinstance(e.x, (n.Const, n.Var)) and not isinstance(e.x.type, TileType):
            return f"tl.cast({self.tensor(e.x)}, {to}{options})"
        return f"{self.text(e.x, ATOM)}.to({to}{options})"

    # ------------------------------------------------------------------------------------------------------------------ calls
    def _call(self, e: n.Call) -> tuple[str, int]:
        if e.of is not None:
            return f"{self.names[e.fn]}({', '.join(self._value(a) for a in e.args)})", ATOM
        attrs = dict(e.attrs)
        args = [a for a in e.args if isinstance(a, n.Expr)]
        match e.fn:
            case "iota":
                (extent,) = self.extents(e.type)
                return f"tl.arange(0, {extent})", ATOM
            case "expand":
                return self._expand(args[0], int(attrs["axis"])), ATOM
            case "broadcast":
                if isinstance(args[0], n.Const):
                    return self.filled(args[0], e.type), ATOM
                if not isinstance(args[0].type, TileType) and names_read(args[0]) & self.unrolled:
                    return f"tl.full({dims(self.extents(e.type))}, {self.text(args[0])}, {self.dtype(dtype_of(e.type))})", ATOM
                return f"tl.broadcast_to({self._of_rank(args[0], e)}, {dims(self.extents(e.type))})", ATOM
            case "pick" if all(int_value(i) == 0 for i in args[1:]) and all(d == 1 for d in shape_of(args[0].type)):
                return f"tl.reshape({self.text(args[0])}, ())", ATOM
            case "reshape":
                return f"tl.reshape({self.text(args[0])}, {dims(self.extents(e.type))})", ATOM
            case "trans":
                order = [str(int_value(a)) for a in args[1:]]
                operand = self.text(args[0])
                return f"tl.trans({operand})" if order == ["1", "0"] else f"tl.permute({operand}, {', '.join(order)})", ATOM
            case "reduce":
                return self._reduce(e, args, attrs), ATOM
            case "scan":
                return self._scan(e, args, attrs), ATOM
            case "sort":
                axis, rank = int(attrs.get("axis", len(shape_of(e.type)) - 1)), len(shape_of(e.type))
                if axis != rank - 1:
                    raise refuse("KIR-B008", "Triton sorts along the last axis only", needs="trans around the sort")
                return f"tl.sort({self.text(args[0])}, descending={bool(attrs.get('descending'))})", ATOM
            case "gather":
                return f"tl.gather({self.text(args[0])}, {self.text(args[1])}, {int(attrs.get('axis', 0))})", ATOM
            case "mulhi" if dtype_of(args[0].type).kind == "int":
                return self._asm(e, args), ATOM  # Triton has that of unsigned operands only
            case "join" | "split" | "fma" | "mulhi" | "assume":
                self.extents(args[0].type)
                return f"{instruction(e.fn).on('triton')}({', '.join(map(self.text, args))})", ATOM
            case "multiple_of" | "max_contiguous" | "max_constancy":
                counts = [str(int_value(a)) for a in args[1:]]
                return f"tl.{e.fn}({self.text(args[0])}, {counts[0] if len(counts) == 1 else '[' + ', '.join(counts) + ']'})", ATOM
            case "max_nan" | "min_nan":
                word = {"max_nan": "maximum", "min_nan": "minimum"}[e.fn]
                return self._as_it_was(f"tl.{word}({self.tensor(args[0])}, {self.tensor(args[1])}, propagate_nan=tl.PropagateNan.ALL)", e), ATOM
            case "philox":
                words = [*map(self.text, args), "0", "0", "0"][:5]
                return f"tl.philox({', '.join(words)}, n_rounds={attrs.get('rounds', 10)})[{attrs.get('lane', 0)}]", ATOM
            case "assertion":
                return f"tl.device_assert({self.text(args[0])}, {str(attrs.get('message', ''))!r})", ATOM
            case "barrier":
                return "tl.debug_barrier()", ATOM
            case _ if e.fn.startswith("atomic_"):
                return self.reader.atomic_text(self, e), ATOM
            case _:
                return self._math(e, args), ATOM

    def _value(self, a: n.Expr | n.Region) -> str:
        if isinstance(a, n.Region):
            raise refuse("KIR-B002", f"Triton passes no buffer to a function ('{a.buffer.name}')")
        return self.tensor(a)

    def _math(self, e: n.Call, args: list[n.Expr]) -> str:
        spelling = instruction(e.fn).on("triton")
        if spelling is None or e.attrs:
            return self._asm(e, args)
        dtype = dtype_of(args[0].type)
        if e.fn in _FLOAT_MATH and self.narrow(dtype):
            raise refuse("KIR-B004", f"{spelling} takes no {dtype}", needs="an operand cast to f32")
        if spelling in _TAKES and dtype.name not in _TAKES[spelling]:
            if dtype.name in ("u32", "u64") and e.fn in ("popc", "clz"):  # bits are counted whatever their sign
                self.uses_libdevice = True
                return f"{spelling}({self.text(args[0], ATOM)}.to(tl.int{dtype.bits}, bitcast=True))"
            raise refuse("KIR-B004", f"{spelling} takes no {dtype}", needs=f"an operand cast to {' or '.join(_TAKES[spelling])}")
        if spelling.startswith("libdevice."):
            self.uses_libdevice = True
        return f"{spelling}({', '.join(map(self.tensor, args))})"

    def _asm(self, e: n.Call, args: list[n.Expr]) -> str:
        """A row that Triton has no function for, as the PTX instruction that it is; waiting for other kernels by its own functions."""
        waits = {"grid_dependency_wait": "gdc_wait", "grid_dependency_launch": "gdc_launch_dependents"}
        if e.fn in waits and e.of is None:
            return f"tl.extra.cuda.{waits[e.fn]}()"
        if e.fn == "fence" and e.of is None:  # an asm has a result, which nothing uses
            text = f"fence.sc.{dict(e.attrs).get('scope', 'gpu')}; mov.u32 $0, 0;"
            return f'tl.inline_asm_elementwise("{text}", "=r", [], dtype=tl.int32, is_pure=False, pack=1)'
        if e.fn == "pack" and (asm := packed(e)) is not None:
            return self._packed(asm)
        made = spelled(e.fn, tuple(dtype_of(a.type) for a in args), dict(e.attrs)) if e.of is None else None
        if made is None:
            raise refuse("KIR-B008", f"Triton has no spelling for '{e.fn}'")
        letters = [LETTERS[d.name].replace("f", "r").replace("d", "l") for d in (made.result, *made.operands)]
        text, constraints, operands = made.text("$"), ",".join(letters), ", ".join(map(self.tensor, args))
        return (f'tl.inline_asm_elementwise("{text}", "={constraints}", [{operands}], '
                f"dtype={dtype_name(made.result)}, is_pure=True, pack=1)")

    def _packed(self, asm: Packed) -> str:
        operands = ", ".join(map(self.tensor, asm.operands))
        text = f'tl.inline_asm_elementwise("{asm.text}", "{asm.constraints}", [{operands}], dtype={asm.result}, is_pure=True, pack={asm.pack})'
        return f"tl.cast({text}, {asm.cut})" if asm.cut else text

    def _expand(self, x: n.Expr, axis: int) -> str:
        rank = len(shape_of(x.type))
        if rank == 0:
            return f"tl.full((1,), {self.text(x)}, {self.dtype(dtype_of(x.type))})"
        return f"{self.text(x, ATOM)}[{', '.join('None' if i == axis else ':' for i in range(rank + 1))}]"

    def _combine(self, name: str) -> str:
        if name not in self.functions:
            raise refuse("KIR-B002", f"there is no function '{name}' to combine with")
        return self.names[name]

    def _reduce(self, e: n.Call, args: list[n.Expr], attrs: Mapping[str, n.Attr]) -> str:
        axis, keep = int(attrs["axis"]), ", keep_dims=True" if attrs.get("keep") else ""
        for a in args:
            self.extents(a.type)
        if "combine" in attrs:
            operands = self.text(args[0]) if len(args) == 1 else f"({', '.join(map(self.text, args))})"
            return f"tl.reduce({operands}, {axis}, {self._combine(str(attrs['combine']))}{keep})"
        op, dtype = str(attrs.get("op")), dtype_of(args[0].type)
        if op in COMBINES and op not in _REDUCTIONS:
            self.combines[op] = COMBINES[op]
            return f"tl.reduce({self.text(args[0])}, {axis}, {COMBINES[op]}{keep})"
        if op not in _REDUCTIONS:
            raise refuse("KIR-B008", f"Triton has no reduction '{op}'", needs="a combine function")
        if self.narrow(dtype) and (op in ("max", "min") or dtype.is_integer):
            raise refuse("KIR-B004", f"{_REDUCTIONS[op]} widens {dtype} to 32 bits", needs=_CAST_BACK)
        return f"{_REDUCTIONS[op]}({self.text(args[0])}, axis={axis}{keep})"

    def _scan(self, e: n.Call, args: list[n.Expr], attrs: Mapping[str, n.Attr]) -> str:
        axis, reverse = int(attrs["axis"]), ", reverse=True" if attrs.get("reverse") else ""
        if "combine" in attrs:
            operands = self.text(args[0]) if len(args) == 1 else f"({', '.join(map(self.text, args))})"
            return f"tl.associative_scan({operands}, {axis}, {self._combine(str(attrs['combine']))}{reverse})"
        op, dtype = str(attrs.get("op")), dtype_of(args[0].type)
        if op in SCANNED and op not in _SCANS:
            self.combines[op] = SCANNED[op]
            wide, narrow = (".to(tl.float32)", ".to(tl.bfloat16)") if dtype.name == "bf16" and op in ("max", "min") else ("", "")
            of = f"{self.text(args[0], ATOM)}{wide}" if wide else self.text(args[0])  # of bf16 Triton makes f32
            return f"tl.associative_scan({of}, {axis}, {SCANNED[op]}{reverse}){narrow}"
        if op not in _SCANS:
            raise refuse("KIR-B008", f"Triton has no scan '{op}'", needs="a combine function")
        if (dtype.is_integer and self.narrow(dtype)) or dtype.name == "bf16":
            raise refuse("KIR-B004", f"{_SCANS[op]} widens {dtype}", needs=_CAST_BACK)
        return f"{_SCANS[op]}({self.text(args[0])}, axis={axis}{reverse})"


class LoadWriter:
    """Writes what reads memory; implemented by `memory`."""

    def load_text(self, to: Expressions, e: n.Load) -> str:
        """A load."""
        raise TypeError(type(self).__name__)

    def atomic_text(self, to: Expressions, e: n.Call) -> str:
        """An atomic operation."""
        raise TypeError(type(self).__name__)
