"""Scalar expressions of the IR as TileLang expressions.

TVM's typing is matched, not fought: an integer literal takes the dtype of what it meets, a float literal is f32, so every other literal
is written with its dtype. A whole tile never stands in an expression: `tiles` writes it element by element.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.base.instructions import instruction, masked
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value, invert
from kir.ir.printer import expr_text
from kir.ir.types import DTYPES as DTYPES_OF
from kir.ir.types import F16, F32, F64, I32, U32, DType, TileType, dtype_of, mention, promote, symbolic
from kir.ir.visit import names_read, walk

from .cuda_functions import is_loaded, loading
from .dtype_terms import NoTerm, asked, is_compound, term_text
from .names import TAKEN

OR, AND, NOT, COMPARE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(1, 13)
_INFIX = {"shl": ("<<", SHIFT), "shr": (">>", SHIFT), "add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT),
          "floordiv": ("//", PRODUCT), "mod": ("%", PRODUCT)}
_BITWISE = {"or": ("|", BIT_OR), "xor": ("^", BIT_XOR), "and": ("&", BIT_AND)}
_LOGICAL = {"or": ("or", OR), "xor": ("!=", COMPARE), "and": ("and", AND)}
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_FUNCTIONS = {"min": "T.min", "max": "T.max", "ceildiv": "T.ceildiv", "tdiv": "T.truncdiv", "trem": "T.truncmod"}
DTYPES: Mapping[str, str] = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
    "u64": "uint64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "i4": "int4", "e8m0": "float8_e8m0fnu", "f4e2m1": "float4_e2m1fn",
    "f8e4m3fnuz": "float8_e4m3fnuz",
}
"""IR dtype to its name in TileLang."""
_LOG2_E = build.const(1.4426950408889634, F32)
"""What `__expf` multiplies with before it takes a power of two."""
_EXTERNAL: Mapping[str, str] = {"ffs": "__ffs", "brev": "__brev", "div_approx": "__fdividef", "rcp": "__frcp_rn"}
"""Calls that only CUDA has a word for."""
_HIGH: Mapping[str, str] = {"i32": "__mulhi", "u32": "__umulhi"}
"""The upper half of a product, by dtype."""
_WARP_REDUCES: Mapping[str, str] = {"add": "sum", "max": "max", "min": "min", "and": "bitand", "or": "bitor"}
"""Reductions over a warp's integers, whose order is free."""
MOST_ELEMENTS = 512
"""Elements of a tile that one thread may have: four times what its registers hold is past all use, and nvcc needs minutes for it."""
AXIS = "%axis "
"""How the names of variables of loops over elements begin."""
_BARE = frozenset({"i32", "f32", "bool"})
"""Dtypes of literals that need no cast."""


def refuse(id: str, message: str, needs: str = "") -> KirError:
    """A refusal without its place, which the statement that is being written adds."""
    return error(id, message, needs=needs)


def dtype_name(d: DType) -> str:
    """A dtype as TileLang's string. Raises KirError KIR-B004 where there is none."""
    if d.name not in DTYPES:
        raise refuse("KIR-B004", f"TileLang has no dtype {d.name}")
    return f'"{DTYPES[d.name]}"'


def literal(c: n.Const) -> str:
    """A bare Python literal, TileLang's infinity, or Python's NaN."""
    if isinstance(c.value, float):
        if math.isnan(c.value):
            return 'float("nan")'
        if math.isinf(c.value):
            return f"{'-' if c.value < 0 else ''}T.infinity({dtype_name(c.dtype)})"
        return repr(c.value)
    return str(c.value)


@dataclass
class Expressions:
    """Writes scalar expressions. `names` maps IR names to Python's; `facts` are those of the statement being written; `shown` spells what
    a name stands for otherwise (the elements of views, say)."""

    names: Mapping[str, str]
    facts: Facts
    guards: list[n.Expr] = field(default_factory=list)
    metas: Mapping[str, str] = field(default_factory=dict)
    """The kind of each meta."""
    derived: dict[str | n.Expr, tuple[str, str]] = field(default_factory=dict)
    """What the factory works out: for each dtype term and each choice by metas its name in the factory, and what it is."""
    imports: set[str] = field(default_factory=set)
    threads: int = 0
    """The threads of the team; 0 where the binding decides."""
    fast: bool = False
    """Whether functions are approximated: `tl_enable_fast_math` of the kernel."""

    def text(self, e: n.Expr, least: int = 0) -> str:
        """`e`, in parentheses when it binds more loosely than `least`."""
        text, level = self.spell(e)
        return text if level >= least else f"({text})"

    def dtype(self, d: DType) -> str:
        """A dtype as an argument; of a generic program, the meta that it is."""
        if not d.is_symbolic:
            return dtype_name(d)
        if d.name in self.derived:
            return self.derived[d.name][0]
        try:
            text = term_text(d.name, {mention(x): f"{'=' if kind == 'any' else ''}{self.names[x]}" for x, kind in self.metas.items()}, DTYPES)
        except NoTerm:
            text = "="
        if text.startswith("="):
            raise refuse("KIR-B004", f"TileLang has no dtype {d.name}", "a dtype that the factory works out")
        if not is_compound(d.name):
            return text
        if not text.endswith(").dtype"):
            text = f"T.dtype({text[1:-1] if text.startswith('(') else text})"
        return self._worked_out(d.name, "common" if d.name.startswith("promote") else "dtype", text)

    def option(self, v: n.Attr) -> str:
        """An option that is a number, or a term over metas. Raises KirError KIR-B301."""
        if not isinstance(v, str):
            return repr(v)
        try:
            return term_text(v, {mention(x): self.names[x] for x in self.metas}, DTYPES)
        except NoTerm:
            raise refuse("KIR-B301", f"the option '{v}' is no number that a factory works out") from None

    def _worked_out(self, what: str | n.Expr, base: str, text: str) -> str:
        """The name of a value that the factory works out."""
        taken, name, k = {*self.names.values(), *(x for x, _ in self.derived.values())}, base, 0
        while name in taken or name in TAKEN:
            k += 1
            name = f"{base}_{k}"
        self.derived[what] = (name, text)
        return name

    def is_static(self, e: n.Expr) -> bool:
        """Whether an expression is worked out when the factory runs."""
        return all(x.name in self.metas if isinstance(x, n.Var) else isinstance(x, (n.Const, n.Unary, n.Binary, n.Select, n.Cast)) or (
            isinstance(x, n.Call) and instruction(x.fn).level == "static") for x in walk(e))

    def spell(self, e: n.Expr) -> tuple[str, int]:
        """Text and binding level. Raises KirError KIR-B002, KIR-B004, KIR-B008."""
        if isinstance(e.type, TileType) and not isinstance(e, n.Load):
            raise refuse("KIR-B306", f"the tile {expr_text(e)} is used as a whole, which only buffers are in TileLang")
        match e:
            case n.Const():
                return self._literal(e)
            case n.Var():
                return self.names[e.name], ATOM
            case n.Unary(op="neg"):
                return f"-{self.text(e.x, UNARY)}", UNARY
            case n.Unary():
                if dtype_of(e.type).is_bool:
                    return f"not {self.text(e.x, NOT)}", NOT
                return f"~{self.text(e.x, UNARY)}", UNARY
            case n.Binary():
                return self._binary(e)
            case n.Select():
                return self._select(e), ATOM
            case n.Cast():
                return self._cast(e), ATOM
            case n.Load():
                return self._load(e), ATOM
            case n.Call():
                return self._call(e), ATOM
            case _:
                raise refuse("KIR-B002", f"TileLang has no spelling for {expr_text(e)}")

    def _literal(self, c: n.Const) -> tuple[str, int]:
        text = literal(c)
        if c.dtype.name in _BARE or "infinity" in text:
            return text, UNARY if text.startswith("-") else ATOM
        return f"T.Cast({self.dtype(c.dtype)}, {text})", ATOM

    def _operand(self, e: n.Expr, other: n.Expr, least: int, op: str) -> str:
        """An operand: an integer literal beside something else needs no dtype, unless it is narrow: TVM would compute in i32."""
        if isinstance(e, n.Const) and not isinstance(other, n.Const) and e.dtype.is_integer and (e.dtype == I32 or dtype_of(other.type) == e.dtype) and (
                e.dtype.bits >= 32 or op in _COMPARISONS or op in _BITWISE or op in ("shl", "shr")) and (
                e.dtype.kind == "int" or not isinstance(e.value, int) or e.value < 1 << 31):  # else TVM takes it for an int64
            return literal(e) if not literal(e).startswith("-") or least <= UNARY else f"({literal(e)})"
        return self.text(e, least)

    def _binary(self, e: n.Binary) -> tuple[str, int]:
        dtype = dtype_of(e.a.type)
        a, b = promoted(e.a, e.b)
        if isinstance(a, n.Const) and isinstance(b, n.Const) and dtype.is_float and dtype.name in _BARE:
            return self._of_literals(e, a, b)
        if e.op in _COMPARISONS:
            if self.metas.get(dtype.name) == "any":
                a, b = _bare(a), _bare(b)
            return f"{self._operand(a, b, BIT_OR, e.op)} {_COMPARISONS[e.op]} {self._operand(b, a, BIT_OR, e.op)}", COMPARE
        if e.op in _FUNCTIONS:
            return f"{_FUNCTIONS[e.op]}({self._operand(a, b, 0, e.op)}, {self._operand(b, a, 0, e.op)})", ATOM
        found = _INFIX.get(e.op) or (_LOGICAL if dtype.is_bool else _BITWISE).get(e.op)
        if found is None:
            raise refuse("KIR-B002", f"TileLang has no operator '{e.op}'")
        both = dtype.is_bool and e.op in ("and", "or") and _reads_own(b)  # whatever the first is, the second is worked out
        sign, level = _BITWISE[e.op] if both else found
        if e.op == "add" and isinstance(b, n.Const) and b.dtype.kind == "uint" and b.dtype.bits >= 32 and isinstance(b.value, int) and (
                b.value > b.dtype.range[1] // 2):
            return f"{self._operand(a, b, level, e.op)} - {b.dtype.range[1] + 1 - b.value}", level  # it wraps
        if e.op == "div" and self.fast and dtype == F32:
            return f"T.ieee_fdiv({self.text(a)}, {self.text(b)})", ATOM
        if e.op == "div" and dtype.is_integer:
            raise refuse("KIR-B002", "integers have no exact quotient in TileLang")
        first = self._operand(a, b, level + (level == COMPARE), e.op)  # comparisons side by side are a chain in Python
        # Else the second is asked where the first leaves it open.
        guards = [a if e.op == "and" else invert(a)] if dtype.is_bool and e.op in ("and", "or") and not both else []
        self.guards += guards
        second = self._operand(b, a, level + 1, e.op)
        del self.guards[len(self.guards) - len(guards):]
        return f"{first} {sign} {second}", level

    def _of_literals(self, e: n.Binary, a: n.Const, b: n.Const) -> tuple[str, int]:
        """An operation of two literals, the first with its dtype: Python would work them out itself."""
        name = "%literal"
        inner = Expressions({**self.names, name: f"T.Cast({dtype_name(a.dtype)}, {literal(a)})"}, self.facts, metas=self.metas, fast=self.fast)
        return inner._binary(replace(e, a=n.Var(name, a.dtype), b=b))

    def _select(self, e: n.Select) -> str:
        """Both arms are guarded: a load in one is made only where it is chosen."""
        left, right = promoted(e.a, e.b)
        if self.is_static(e):
            if e not in self.derived:
                text = f"{self.text(left, NOT)} if {self.text(e.cond, OR)} else {self.text(right, NOT)}"
                self._worked_out(e, "chosen", text)
            return self.derived[e][0]
        if self.is_static(e.cond):
            return f"({self.text(left, NOT)} if {self.text(e.cond, OR)} else {self.text(right, NOT)})"
        cond = self.text(e.cond)
        self.guards.append(e.cond)
        a = self.text(left)
        self.guards[-1] = invert(e.cond)
        b = self.text(right)
        self.guards.pop()
        word = "T.Select" if _of_unsigned(e.cond) and not any(isinstance(x, n.Load) for arm in (left, right) for x in walk(arm)) else "T.if_then_else"
        return f"{word}({cond}, {a}, {b})"

    def _cast(self, e: n.Cast) -> str:
        if e.rounding == "bits":
            return f"T.reinterpret({self.text(e.x)}, {self.dtype(e.dtype)})"
        source = dtype_of(e.x.type)
        if (source.name, e.dtype.name, e.rounding) == ("f32", "f16", "rz"):
            return f'T.call_extern("float16", "__float2half_rz", {self.text(e.x)})'
        if e.rounding not in ("rn", "rz") or (e.rounding == "rz" and not (source.is_float and e.dtype.is_integer)):
            raise refuse("KIR-B004", f"TileLang has no conversion with rounding '{e.rounding}'")
        return f"T.Cast({self.dtype(e.dtype)}, {self.text(e.x)})"

    # ----------------------------------------------------------------------------------------------------------------- memory
    def _load(self, e: n.Load) -> str:
        if is_loaded(e) and not isinstance(e.type, TileType):
            return f'T.call_extern({self.dtype(e.at.buffer.dtype)}, "{loading(e)}", T.address_of({self.place(e.at)}))'
        if e.cache:
            raise refuse("KIR-B008", f"TileLang has no cache policy on a load ('{e.cache}')", needs="a copy with an eviction policy")
        if e.mask is not None and not self._guarded(e.mask):
            if e.at.buffer.space != "global" and not isinstance(e.type, TileType) and (e.other is None or is_zero(e.other)):
                d = e.at.buffer.dtype
                return self.text(n.Select(e.mask, n.Load(e.at), build.cast(build.const(0), d) if d.is_symbolic else build.const(0, d)))
            raise refuse("KIR-B306", f"the load of '{e.at.buffer.name}' is masked without a value to take instead")
        if e.other is not None and not is_zero(e.other):
            raise refuse("KIR-B306", f"outside of '{e.at.buffer.name}' TileLang reads zeros", needs="else 0, and a select around it")
        return self.place(e.at)

    def _guarded(self, mask: n.Expr) -> bool:
        """Whether the arms of selects around say the mask already."""
        parts = {x for g in self.guards for x in conjuncts(g)}
        return all(x in parts for x in conjuncts(mask))

    def place(self, at: n.Region) -> str:
        """One element of a buffer. Raises KIR-B306 for more than one."""
        name = self.names[at.buffer.name]
        if not at.index:
            if at.buffer.shape:
                raise refuse("KIR-B306", f"'{at.buffer.name}' is used as a whole in an expression")
            return name if at.buffer.space == "register" else f"{name}[{'()' if at.buffer.space == 'global' else '0'}]"
        if any(isinstance(i, n.Span) for i in at.index):
            raise refuse("KIR-B306", f"a part of '{at.buffer.name}' is used as a whole in an expression")
        self._spread_enough(at)
        return f"{name}[{', '.join(self.text(i) for i in at.index if isinstance(i, n.Expr))}]"

    def _spread_enough(self, at: n.Region) -> None:
        """Raises KIR-B305 for a fragment of which TileLang would give each thread too much: it distributes the dimensions that loops over elements go
        through, and every thread has all of the others."""
        if at.buffer.space != "fragment" or at.buffer.layout is not None or not self.threads:
            return
        extents = [int_value(d) or 1 for d in at.buffer.shape]
        distributed = math.prod(d for d, i in zip(extents, at.index, strict=True) if any(x.startswith(AXIS) for x in names_read(i)))
        each = math.prod(extents) // max(1, distributed) * -(-distributed // self.threads)
        if each > MOST_ELEMENTS:
            raise refuse("KIR-B305", f"'{at.buffer.name}' is used element by element outside of a loop over its elements: TileLang would give each thread "
                         f"{each} of them", f"at most {MOST_ELEMENTS} a thread: whole tiles, or the fragment in shared memory")

    # ------------------------------------------------------------------------------------------------------------------ calls
    def _term(self, term: str) -> str:
        return self.dtype(DTYPES_OF.get(term, symbolic(term)))

    def _static(self, e: n.Call, args: list[n.Expr]) -> str:
        """A question about the binding, which the factory answers."""
        attrs = dict(e.attrs)
        if e.fn == "dtype_is":
            return " == ".join(self._term(str(attrs[x])) for x in ("a", "b"))
        if e.fn == "dtype_bits":
            return f"T.dtype({self._term(str(attrs['term']))}).bits"
        name = self.text(args[0])
        return name if e.fn == "meta_true" else asked(name, str(attrs["value"]))

    def _call(self, e: n.Call) -> str:
        args = [a for a in e.args if isinstance(a, n.Expr)]
        if e.of is not None:
            raise refuse("KIR-B002", f"TileLang has no device functions of its own ('{e.fn}')", needs="the function's body in its place")
        if e.fn in ("meta_is", "meta_true", "dtype_is"):
            return f"({self._static(e, args)})"
        if e.fn == "dtype_bits":
            return self._static(e, args)
        if e.fn in ("gcd", "next_power_of_2"):
            self.imports |= {"math"} if e.fn == "gcd" else set()
            return f"{'math.gcd' if e.fn == 'gcd' else 'tilelang.next_power_of_2'}({', '.join(map(self.text, args))})"
        if e.fn in ("assume", "assertion"):
            return f"{'T.assume' if e.fn == 'assume' else 'T.device_assert'}({self.text(args[0])})"
        if e.fn in ("multiple_of", "max_contiguous", "max_constancy"):
            return self.text(args[0])
        if e.fn in _EXTERNAL and not e.attrs and isinstance(e.type, DType):
            words = [self.dtype(e.type), f'"{_EXTERNAL[e.fn]}"', *map(self.text, args)]
            return f"T.call_extern({', '.join(words)})"
        if masked(e.fn, len(e.args)):
            raise refuse("KIR-B008", f"TileLang's {e.fn} names all lanes, and not those of a mask that only the run knows")
        if e.fn in ("ballot", "active_mask"):
            return f'T.Cast("uint32", {"T.ballot" if args else "T.activemask"}({", ".join(map(self.text, args))}))'
        if e.fn == "mulhi" and not e.attrs and (word := _HIGH.get(dtype_of(e.type).name)) is not None:
            return f"T.call_extern({', '.join([self.dtype(dtype_of(e.type)), chr(34) + word + chr(34), *map(self.text, args)])})"
        spelling = instruction(e.fn).on("tilelang")
        if e.fn.startswith("shfl_") and spelling is not None and [k for k, _ in e.attrs] == ["width"]:
            return f"{spelling}({', '.join(map(self.text, args))}, width={dict(e.attrs)['width']})"
        if e.fn in ("vote_any", "vote_all") and spelling is not None:
            return f"({spelling}({self.text(args[0])}) != 0)"
        if e.fn == "warp_reduce" and [k for k, _ in e.attrs] == ["op"] and dtype_of(e.type) in (I32, U32) and dict(e.attrs)["op"] in _WARP_REDUCES:
            return f"T.warp_reduce_{_WARP_REDUCES[str(dict(e.attrs)['op'])]}({self.text(args[0])})"
        if e.fn == "exp2_approx" and not e.attrs and isinstance(x := args[0], n.Binary) and x.op == "mul" and x.b == _LOG2_E:
            return f'T.call_extern("float32", "__expf", {self.text(x.a)})'
        if e.fn == "exp2_approx" and not e.attrs:
            if not self.fast:
                needs = "surface-option{option=tl_enable_fast_math value=true} at the kernel"
                raise refuse("KIR-B008", "TileLang approximates exp2 under fast math alone", needs)
            return f"T.exp2({self.text(args[0])})"
        if spelling is None or e.attrs:
            raise refuse("KIR-B008", f"TileLang has no spelling for '{e.fn}'")
        return f"{spelling}({', '.join(map(self.text, args))})"


def _reads_own(e: n.Expr) -> bool:
    """Whether an expression reads shared memory under no condition: behind `and` that is read as where the first holds alone."""
    loads = [x for x in walk(e) if isinstance(x, n.Load) and x.at.buffer.space == "shared"]
    return bool(loads) and all(x.mask is None for x in loads)


def _of_unsigned(cond: n.Expr) -> bool:
    """Whether a condition compares an unsigned value with a literal: TileLang's compiler takes the literal from the value where that guards an arm in a
    loop, and stops at what is below zero."""
    return any(isinstance(x, n.Binary) and x.op in n.COMPARISONS and isinstance(y, n.Const) and y.dtype.kind == "uint" and y.value
               for x in walk(cond) if isinstance(x, n.Binary) for y in (x.a, x.b))


def _bare(e: n.Expr) -> n.Expr:
    """A small number that is compared with a value of the factory, which may be of any kind, as Python writes it."""
    return e.x if isinstance(e, n.Cast) and e.rounding == "rn" and isinstance(e.x, n.Const) and e.x.dtype == I32 and 0 <= e.x.value <= 127 else e


def promoted(a: n.Expr, b: n.Expr) -> tuple[n.Expr, n.Expr]:
    """Two operands of one dtype as TVM promotes them to it by itself: without conversions that it makes anyway."""
    wanted = dtype_of(a.type)
    inner = [x.x if isinstance(x, n.Cast) and x.rounding == "rn" and wanted.is_symbolic and wanted.name.startswith("promote(") else x for x in (a, b)]
    for x, y in ((inner[0], inner[1]), (inner[0], b), (a, inner[1])):
        if (x is not a or y is not b) and _meeting(x, y) == wanted:
            return x, y
    return a, b


def _meeting(a: n.Expr, b: n.Expr) -> DType:
    """The dtype in which TVM lets two operands meet; literals yield to what is none."""
    da, db = dtype_of(a.type), dtype_of(b.type)
    for x, own, other in ((a, da, db), (b, db, da)):
        if isinstance(x, n.Const) and own.name in ("i32", "f32") and not (isinstance(a, n.Const) and isinstance(b, n.Const)):
            return promote(I32 if other.is_bool else other, I32) if own.name == "i32" else F64 if other == F64 else promote(other, F32)
    if da.is_float and db.is_float and da.bits == db.bits:
        return da if da == db else F16
    return promote(da, db)


def conjuncts(e: n.Expr) -> tuple[n.Expr, ...]:
    """The parts of a conjunction."""
    return (*conjuncts(e.a), *conjuncts(e.b)) if isinstance(e, n.Binary) and e.op == "and" and dtype_of(e.type).is_bool else (e,)


def is_zero(e: n.Expr) -> bool:
    """Whether an expression is the zero that TileLang reads outside of a tensor."""
    if isinstance(e, n.Cast) and e.rounding == "rn":
        return is_zero(e.x)
    return isinstance(e, n.Const) and repr(e.value) in ("0", "0.0", "False")
