"""Symbolic dtypes of generic programs: terms over the dtypes of parameters, worked out by `specialize`.

`X` is the dtype of parameter or meta X, `%X` where X is a dtype, `true` or `false` itself. `join(a,b,..)` is the dtype of arithmetic on all after
Triton's rules, `quotient(a)` that of
a quotient of two `a` (f64 or f32), `with_int(a)` and `with_float(a)` those of arithmetic with a literal, `int_like(a)` and
`uint_like(a)` the integer as wide as `a`, `widened(a)` what order reductions compute in, `summed(a)` sums, `accumulated(a)` matrix
products, `rounded(a)` is bf16 as f32, and `select(c,a,b)` depends on a static condition in functional notation:
`select(eq(mode,0),f32,X)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kir.base.diagnostic import did_you_mean, error
from kir.ir.types import BF16, BOOL, DTYPES, F16, F32, F64, I32, U32, DType, promote, symbolic
from kir.ir.types import rounded as _rounded


def join(a: DType, b: DType) -> DType:
    """The dtype of arithmetic on two run-time operands."""
    if a == b:
        return a
    if a.is_symbolic or b.is_symbolic:
        terms = {*_joined(a), *_joined(b)}
        terms -= {x for x in terms for f in _RAISING if f"{f}({x})" in terms}
        return symbolic(f"join({','.join(sorted(terms))})" if len(terms) > 1 else terms.pop())
    if a.is_float and b.is_float and max(a.bits, b.bits) <= 16:
        if F16 in (a, b):
            return F16
        return F32 if BF16 in (a, b) else F16
    return promote(a, b)


_NUMBERS = frozenset(name for name, d in DTYPES.items() if not d.is_bool)
_RAISING = ("widened", "rounded", "quotient", "with_float", "with_int")
"""Functions whose value joins with their argument to themselves."""


def _joined(a: DType) -> list[str]:
    """The terms that a join is of."""
    if not a.name.startswith("join("):
        return [a.name]
    out, depth, start = [], 0, 5
    for i, c in enumerate(a.name):
        depth += (c == "(") - (c == ")")
        if i > 4 and ((c == "," and depth == 1) or depth == 0):
            out.append(a.name[start:i])
            start = i + 1
    return out


def quotient(a: DType) -> DType:
    """The dtype of a true quotient whose operands meet in `a`."""
    if a.is_symbolic:
        return _applied("quotient", a)
    return F64 if a == F64 else F32


def _applied(function: str, a: DType) -> DType:
    """`function(a)` of a symbolic dtype; functions that change nothing any more are left out."""
    inner = a.name.partition("(")[0] if a.name.endswith(")") else ""
    if inner == function or (inner, function) in _SETTLED:
        return a
    return symbolic(f"{function}({a.name})")


_SETTLED = {
    ("widened", "summed"),
    ("widened", "rounded"),
    ("quotient", "widened"),
    ("quotient", "summed"),
    ("quotient", "rounded"),
    ("quotient", "with_int"),
    ("quotient", "with_float"),
    ("with_float", "with_int"),
    ("accumulated", "widened"),
    ("accumulated", "summed"),
    ("accumulated", "rounded"),
    ("summed", "with_int"),
    ("widened", "with_int"),
}
"""(inner, outer) where outer(inner(x)) is inner(x)."""


def with_int(a: DType) -> DType:
    """The dtype of arithmetic of `a` with an integer literal, which yields to it unless it is bool, as no join with a number is."""
    if a.name.startswith("join(") and not _NUMBERS.isdisjoint(_joined(a)):
        return a
    return _applied("with_int", a) if a.is_symbolic else I32 if a.is_bool else a


def with_float(a: DType) -> DType:
    """The dtype of arithmetic of `a` with a float literal, which yields to it when it is a float."""
    return _applied("with_float", a) if a.is_symbolic else a if a.is_float else F32


def beside(own: DType, a: DType) -> DType:
    """The dtype of arithmetic of `a` with a literal of dtype `own`, which yields to it where it is of no higher kind."""
    if own.is_bool:
        return a
    if not own.is_symbolic:
        return with_int(a) if own.is_integer else with_float(a)
    if a.is_float or a.name.startswith((f"beside({own.name},", "with_float(", "quotient(")):
        return a
    terms = _joined(own)
    if len(terms) > 1:  # made of several numbers: beside one after the other
        for term in sorted(terms, key=lambda t: t in DTYPES):
            a = beside(DTYPES.get(term) or symbolic(term), a)
        return a
    return symbolic(f"beside({own.name},{a.name})")


def compared(own: DType, value: int | float | bool | None, a: DType) -> DType:
    """The dtype in which Triton compares `a` with a literal, of which it first makes a tensor of dtype `own`: their join. Where `a` holds the
    `value` exactly, comparing in `a` says the same, and nothing is converted."""
    if value is None or own.is_symbolic:
        return join(own, a)
    narrow = beside(own, a)
    if a.is_symbolic:
        exact = 0 <= value <= 127 if own.is_integer else abs(value) in _SHORT
    else:
        exact = own.is_bool or (own.is_integer and narrow.is_float) or _holds(narrow, value)
    return narrow if exact else join(own, a)


_SHORT = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Numbers that every float dtype holds."""


def _holds(dtype: DType, value: int | float) -> bool:
    """Whether a dtype holds a number exactly that is an i32 or an f32; of the narrowest floats the few that all of them hold."""
    if not dtype.is_float:
        return dtype.is_bool or dtype.wrap(int(value)) == value
    if dtype.bits < 16:
        return abs(value) in _SHORT
    return value != value or _rounded(value, F32) == value == _rounded(value, dtype)


def widened(a: DType) -> DType:
    """What order reductions and their likes compute in: at least 32 bits."""
    if a.is_symbolic:
        return _applied("widened", a)
    if a.bits >= 32:
        return a
    return F32 if a.is_float else I32


def summed(a: DType) -> DType:
    """What sums compute in: integers of at least 32 bits, floats as they are; Triton counts its bool among the unsigned ones."""
    if a.is_symbolic:
        return _applied("summed", a)
    if a.is_float or a.bits >= 32:
        return a
    return U32 if a.kind == "uint" or a.is_bool else I32


def accumulated(a: DType) -> DType:
    """What a matrix product of operands of `a` accumulates in."""
    if a.is_symbolic:
        return _applied("accumulated", a)
    return I32 if not a.is_float else F64 if a == F64 else F32


def unhalved(a: DType) -> DType:
    """What remainders compute in: halves as f32, others as they are."""
    return _applied("unhalved", a) if a.is_symbolic else F32 if a.is_float and a.bits <= 16 else a


def rounded(a: DType) -> DType:
    """bf16 as f32, others as they are."""
    return _applied("rounded", a) if a.is_symbolic else F32 if a == BF16 else a


def int_like(a: DType) -> DType:
    """The signed integer as wide as `a`."""
    return _applied("int_like", a) if a.is_symbolic else BOOL if a.is_bool else DTYPES[f"i{a.bits}"]


def uint_like(a: DType) -> DType:
    """The unsigned integer as wide as `a`."""
    return _applied("uint_like", a) if a.is_symbolic else BOOL if a.is_bool else DTYPES[f"u{a.bits}"]


UNARY: Mapping[str, Callable[[DType], DType]] = {
    "with_int": with_int,
    "with_float": with_float,
    "widened": widened,
    "summed": summed,
    "rounded": rounded,
    "accumulated": accumulated,
    "quotient": quotient,
    "unhalved": unhalved,
    "int_like": int_like,
    "uint_like": uint_like,
}
BINARY: Mapping[str, Callable[[DType, DType], DType]] = {"join": join, "promote": promote, "beside": beside}
Setting = int | float | bool | str | None
TOKEN = re.compile(r"\s*(%?[^\W\d][\w.]*|-?\d+(?:\.\d+)?(?:e-?\d+)?|[(),])")
"""A word, number or sign of a term."""


PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3")
"""Precisions of a matrix product by name; any other word there is a meta."""


def precision_of(meta: str) -> str:
    """A meta that decides the precision of a matrix product, as the product names it: with a leading `%` where it is called like one."""
    return f"%{meta}" if meta in PRECISIONS else meta


def of_kind(dtype: DType, kind: str) -> bool:
    """Whether a dtype is of a kind (`float`, `int`, `uint` with bool, `bool`, `integer`, `f8`, `standard`) or is that dtype."""
    if kind in DTYPES and kind != "bool":
        return dtype.name == kind
    return {
        "float": dtype.is_float,
        "int": dtype.kind == "int",
        "uint": dtype.kind == "uint" or dtype.is_bool,
        "bool": dtype.is_bool,
        "integer": dtype.is_integer or dtype.is_bool,
        "f8": dtype.name.startswith("f8"),
        "standard": dtype.name in ("f16", "bf16", "f32", "f64"),
    }[kind]


def resolve(d: DType, dtypes: Mapping[str, DType], settings: Mapping[str, Setting]) -> DType:
    """A dtype with its names replaced: `dtypes` by parameter, `settings` the values of metas (for conditions). A name that neither has
    stays symbolic. Raises KirError KIR-V010 for a term that cannot be read."""
    return _Terms(d.name, dtypes, settings).dtype() if d.is_symbolic else d


class _Terms:
    def __init__(self, text: str, dtypes: Mapping[str, DType], settings: Mapping[str, Setting]) -> None:
        self.text, self.dtypes, self.settings = text, dtypes, settings
        self.tokens = TOKEN.findall(text)
        self.at = 0

    def take(self) -> str:
        if self.at >= len(self.tokens):
            raise error("KIR-V010", f"the dtype term '{self.text}' ends too early")
        self.at += 1
        return str(self.tokens[self.at - 1])

    def peek(self) -> str:
        return str(self.tokens[self.at]) if self.at < len(self.tokens) else ""

    def expect(self, what: str) -> None:
        if self.take() != what:
            raise error("KIR-V010", f"the dtype term '{self.text}' lacks a '{what}'")

    def dtype(self) -> DType:
        name = self.take()
        if self.peek() != "(":
            return DTYPES.get(name) or self.dtypes.get(name.removeprefix("%")) or symbolic(name)
        self.take()
        if name == "select":
            start = self.at
            cond = self.condition()
            text = "".join(self.tokens[start : self.at])
            self.expect(",")
            a = self.dtype()
            self.expect(",")
            b = self.dtype()
            self.expect(")")
            if cond is not None:
                return a if cond else b
            return a if a == b else symbolic(f"select({text},{a.name},{b.name})")
        first = self.dtype()
        if name in UNARY:
            self.expect(")")
            return UNARY[name](first)
        if name in BINARY:
            while self.peek() == ",":
                self.take()
                first = BINARY[name](first, self.dtype())
            self.expect(")")
            return first
        raise error("KIR-V010", f"there is no dtype function '{name}'", attempt=did_you_mean(name, [*UNARY, *BINARY, "select"]))

    def condition(self) -> Setting:
        """The value of a condition, None while it is not known."""
        name = self.take()
        if self.peek() != "(":
            if name in ("true", "false"):
                return name == "true"
            if re.fullmatch(r"-?\d+", name):
                return int(name)
            return self.settings.get(name.removeprefix("%"))
        self.take()
        if name == "is":
            meta = self.take()
            self.expect(",")
            value = self.take()
            self.expect(")")
            return None if meta not in self.settings else str(self.settings[meta]) == value
        if name == "true":
            meta = self.take()
            self.expect(")")
            return bool(self.settings[meta]) if meta in self.settings else None
        if name == "absent":
            of = self.take()
            self.expect(")")
            return self.settings.get(f"absent:{of}")
        if name == "dtype_kind":
            asked = self.dtype()
            self.expect(",")
            kind = self.take()
            self.expect(")")
            return None if asked.is_symbolic else of_kind(asked, kind)
        if name == "dtype_is":
            a = self.dtype()
            self.expect(",")
            b = self.dtype()
            self.expect(")")
            return None if a.is_symbolic or b.is_symbolic else a == b
        args = [self.condition()]
        while self.peek() == ",":
            self.take()
            args.append(self.condition())
        self.expect(")")
        return apply(name, args)


def apply(name: str, args: list[Setting]) -> Setting:
    """A function of a condition on its values; None where it is not known."""
    if name in ("and", "or"):
        known = [bool(a) for a in args if a is not None]
        if name == "and":
            return False if False in known else True if len(known) == len(args) else None
        return True if True in known else False if len(known) == len(args) else None
    if any(a is None for a in args):
        return None
    values = [a if isinstance(a, (int, float)) else 0 for a in args]
    match name, values:
        case "not", [x]:
            return not x
        case "neg", [x]:
            return -x
        case "eq", [x, y]:
            return x == y
        case "ne", [x, y]:
            return x != y
        case "lt", [x, y]:
            return x < y
        case "le", [x, y]:
            return x <= y
        case "gt", [x, y]:
            return x > y
        case "ge", [x, y]:
            return x >= y
        case "add", [x, y]:
            return x + y
        case "sub", [x, y]:
            return x - y
        case "mul", [x, y]:
            return x * y
        case "floordiv", [x, y] if y:
            return x // y
        case "mod", [x, y] if y:
            return x % y
        case "bits_and" | "bits_or" | "xor" | "shl" | "shr", [x, y] if isinstance(x, int) and isinstance(y, int) and (y >= 0 or name[0] in "bx"):
            return {"bits_and": x & y, "bits_or": x | y, "xor": x ^ y}[name] if name[0] in "bx" else x << min(y, 64) if name == "shl" else x >> y
        case _:
            return None
