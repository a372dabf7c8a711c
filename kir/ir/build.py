"""Constructors of expressions, which keep them in normal form.

Integer sums and products of scalars and tiles become one canonical sum of products (arithmetic wraps, so ring identities are exact);
constants fold; casts to the own dtype vanish. Floats are never reordered or simplified. Divisions stay as written: what needs ranges
or facts belongs to `kir.analysis`.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

from kir.base.diagnostic import error
from kir.ir.nodes import COMPARISONS, Attr, Attrs, Binary, Buffer, Call, Cast, Const, Expr, Load, Region, Select, Span, Unary, Var, attrs
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, F32, FP8, I32, I64, DType, TileType, Type, dtype_of, shape_of

Monomial = tuple[Expr, ...]
MAX_TERMS = 64
"""A product of sums with more terms than this stays a product."""

COMMUTATIVE = frozenset({"add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"})


def const(value: int | float | bool, dtype: DType = I32) -> Const:
    """A literal of `dtype`; integers are wrapped to its width."""
    if dtype.is_integer:
        return Const(dtype.wrap(int(value)), dtype)
    if dtype.is_bool:
        return Const(bool(value), BOOL)
    return Const(float(value), dtype)


def is_const(e: Expr | Span, value: int | float | bool | None = None) -> bool:
    """Whether `e` is a literal (equal to `value`, when one is given)."""
    return isinstance(e, Const) and (value is None or (e.value == value and not isinstance(e.value, float)) or repr(e.value) == repr(value))


def int_value(e: Expr | int) -> int | None:
    """The value of an integer literal, else None."""
    if isinstance(e, int):
        return e
    return int(e.value) if isinstance(e, Const) and e.dtype.is_integer else None


# ------------------------------------------------------------------------------------------------- integer sums of products

_sort_key = expr_text


def polynomial(e: Expr) -> Mapping[Monomial, int]:
    """`e` as a sum of products: atoms (sorted) to their integer coefficient; () is the constant term. Only for integer dtypes. Worked out
    once for each expression."""
    kept = e.__dict__
    found: Mapping[Monomial, int] | None = kept.get("_polynomial")
    if found is None:
        found = _polynomial(e)
        if found is None:
            return {(e,): 1}  # kept, it would hold its own expression
        kept["_polynomial"] = found
    return found


def _polynomial(e: Expr) -> dict[Monomial, int] | None:
    """As `polynomial`; None of an atom."""
    if isinstance(e, Const):
        return {(): int(e.value)} if e.value else {}
    if isinstance(e, Unary) and e.op == "neg":
        return {m: -c for m, c in polynomial(e.x).items()}
    if isinstance(e, Binary) and e.op in ("add", "sub"):
        parts: list[tuple[int, Expr]] = []  # a long sum leans to the left
        while isinstance(e, Binary) and e.op in ("add", "sub") and "_polynomial" not in e.__dict__:
            parts.append((1 if e.op == "add" else -1, e.b))
            e = e.a
        out = dict(polynomial(e))
        for sign, b in reversed(parts):
            for m, c in polynomial(b).items():
                out[m] = out.get(m, 0) + sign * c
        return {m: c for m, c in out.items() if c}
    if isinstance(e, Binary) and e.op == "mul":
        pa, pb = polynomial(e.a), polynomial(e.b)
        if len(pa) * len(pb) <= MAX_TERMS:
            out = {}
            for ma, ca in pa.items():
                for mb, cb in pb.items():
                    m = tuple(sorted(ma + mb, key=_sort_key)) if ma and mb else ma or mb
                    out[m] = out.get(m, 0) + ca * cb
            return {m: c for m, c in out.items() if c}
    return None


def from_polynomial(terms: Mapping[Monomial, int], dtype: DType) -> Expr:
    """The canonical expression of a sum of products: terms in the order of their text, the constant last."""
    out: Expr | None = None
    keyed = sorted((("*".join(map(_sort_key, m)), m) for m in terms if m), key=lambda kv: kv[0])
    for _, m in keyed:
        c = dtype.wrap(terms[m])
        if c == 0:
            continue
        product = m[0]
        for atom in m[1:]:
            product = Binary("mul", product, atom)
        negative = c < 0 and out is not None and dtype.wrap(-c) > 0
        magnitude = dtype.wrap(-c) if negative else c
        if magnitude == -1 and out is None:
            product = Unary("neg", product)
        elif magnitude != 1:
            product = Binary("mul", product, Const(magnitude, dtype))
        out = product if out is None else Binary("sub" if negative else "add", out, product)
    constant = dtype.wrap(terms.get((), 0))
    if out is None:
        return Const(constant, dtype)
    if constant:
        negative = constant < 0 and dtype.wrap(-constant) > 0
        out = Binary("sub" if negative else "add", out, Const(dtype.wrap(-constant) if negative else constant, dtype))
    return out


def _ring(raw: Binary, dtype: DType) -> Expr:
    out = from_polynomial(polynomial(raw), dtype)
    return out if out.type == raw.type else broadcast(out, raw.type)


def broadcast(e: Expr, to: Type) -> Expr:
    """`e` stretched to the shape of `to` (a scalar becomes a tile)."""
    if shape_of(e.type) == shape_of(to) and isinstance(e.type, TileType) == isinstance(to, TileType):
        return e
    return Call("broadcast", (e, *(const(d) if isinstance(d, int) else d for d in shape_of(to))))


# ------------------------------------------------------------------------------------------------------------- constructors

def _dtypes(op: str, *operands: Expr) -> tuple[DType, ...]:
    try:
        return tuple([dtype_of(e.type) for e in operands])
    except TypeError as bad:
        raise error("KIR-V003", f"'{op}': {bad}", needs="scalars or tiles") from bad


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """`a op b` in normal form. Raises KirError KIR-V002 when dtypes differ and KIR-V003 when shapes do not broadcast."""
    return _sum(op, a, b) if op in RING and _is_index(a) and _is_index(b) else _binary(op, a, b)


RING = frozenset({"add", "sub", "mul"})
KEPT = 1 << 14
"""Sums and products of indices that are kept: rewriting builds the same ones again and again."""


def _is_index(e: Expr) -> bool:
    """Whether an expression is of sizes, loop variables and literals alone: whole numbers that are one each, read from no memory."""
    if isinstance(e, Binary):
        kept = e.__dict__
        found: bool | None = kept.get("_index")
        if found is None:
            found = kept["_index"] = e.op not in COMPARISONS and _is_index(e.a) and _is_index(e.b)
        return found
    return isinstance(e, (Var, Const)) and isinstance(of := e.type, DType) and of.is_integer


@lru_cache(maxsize=KEPT)
def _sum(op: str, a: Expr, b: Expr) -> Expr:
    return _binary(op, a, b)


def _binary(op: str, a: Expr, b: Expr) -> Expr:
    da, db = _dtypes(op, a, b)
    if da != db:
        raise error("KIR-V002", f"'{op}' of {da} and {db}: operands must have one dtype", needs="an explicit cast")
    try:
        raw = Binary(op, a, b)
        raw_type = raw.type
    except TypeError as bad:
        raise error("KIR-V003", f"'{op}': {bad}") from bad
    if not (da.is_integer or da.is_bool):
        return raw
    if isinstance(a, Const) and isinstance(b, Const):
        folded = fold(op, a, b)
        if folded is not None:
            return folded
    if da.is_integer and op in RING:
        return _ring(raw, da)
    shaped = isinstance(raw_type, TileType)
    if not shaped:
        simpler = _identity(op, a, b)
        if simpler is not None:
            return simpler
    if op in COMMUTATIVE and not da.is_bool and (isinstance(b, Const), _sort_key(b)) < (isinstance(a, Const), _sort_key(a)):
        return Binary(op, b, a)
    return raw


def _identity(op: str, a: Expr, b: Expr) -> Expr | None:
    """Exact identities on scalars of integer or boolean dtype."""
    dtype = dtype_of(a.type)
    if op in ("floordiv", "tdiv", "ceildiv") and is_const(b, 1):
        return a
    if op in ("mod", "trem") and is_const(b, 1):
        return const(0, dtype)
    if op in ("floordiv", "mod", "tdiv", "trem") and is_const(a, 0) and isinstance(b, Const) and b.value:
        return const(0, dtype)
    if op in ("min", "max", "and", "or") and a == b:
        return a
    if dtype.is_bool and op in ("and", "or"):
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Const):
                return y if bool(x.value) == (op == "and") else x
    if op in ("shl", "shr") and is_const(b, 0):
        return a
    if op in COMPARISONS and a == b and dtype.is_integer:
        return const(op in ("le", "ge", "eq"), BOOL)
    return None


def fold(op: str, a: Const, b: Const) -> Const | None:
    """The value of an integer or boolean operation on literals, wrapped; None where it is undefined (division by zero)."""
    found = folded(op, int(a.value), int(b.value), a.dtype)
    return None if found is None else const(found, BOOL if op in COMPARISONS else a.dtype)


def folded(op: str, x: int, y: int, dtype: DType) -> int | None:
    """`fold` of the values alone, before they are wrapped to the dtype of the result."""
    if (op in DIVISIONS and y == 0) or (op in ("shl", "shr") and not 0 <= y < dtype.bits):
        return None
    return of(x, y) if (of := OPERATIONS.get(op)) is not None else None


def _truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "floordiv": operator.floordiv, "mod": operator.mod, "ceildiv": lambda x, y: -(-x // y), "tdiv": _truncated, "trem": lambda x, y: x - _truncated(x, y) * y,
    "shl": operator.lshift, "shr": operator.rshift}
"""Operations of whole numbers and truths that fold."""
DIVISIONS = frozenset({"floordiv", "mod", "ceildiv", "tdiv", "trem"})


def known_value(e: Expr, at: Mapping[str, Const]) -> int | None:
    """The value of a scalar of whole numbers or truths at literals by name: what an expression folds to where they are put in. None where it holds
    anything but names of these, literals and operations on them that fold."""
    match e:
        case Const() if e.dtype.is_integer or e.dtype.is_bool:
            return int(e.value)
        case Var() if (found := at.get(e.name)) is not None and found.dtype == e.type:
            return int(found.value)
        case Binary() if not (isinstance(e.a, Const) and isinstance(e.b, Const)):  # these would have been folded
            own, of = e.a.type, BOOL
            if not isinstance(own, DType) or own != e.b.type or (x := known_value(e.a, at)) is None or (y := known_value(e.b, at)) is None:
                return None
            of = BOOL if e.op in COMPARISONS else own
            made = folded(e.op, x, y, own)
        case Unary() if isinstance(own := e.x.type, DType) and not isinstance(e.x, Const):
            if (x := known_value(e.x, at)) is None:
                return None
            of = own
            made = -x if e.op == "neg" and of.is_integer else None if e.op == "neg" else int(not x) if of.is_bool else ~x
        case _:
            return None
    return made if made is None else int(bool(made)) if of.is_bool else of.wrap(made)


def _coerced(a: Expr, b: Expr | int | float | bool) -> Expr:
    return b if isinstance(b, Expr) else const(b, dtype_of(a.type))


def add(a: Expr, b: Expr | int | float) -> Expr:
    """a + b."""
    return binary("add", a, _coerced(a, b))


def sub(a: Expr, b: Expr | int | float) -> Expr:
    """a - b."""
    return binary("sub", a, _coerced(a, b))


def mul(a: Expr, b: Expr | int | float) -> Expr:
    """a * b."""
    return binary("mul", a, _coerced(a, b))


def floordiv(a: Expr, b: Expr | int) -> Expr:
    """a // b, rounding down."""
    return binary("floordiv", a, _coerced(a, b))


def mod(a: Expr, b: Expr | int) -> Expr:
    """a % b, with the sign of b."""
    return binary("mod", a, _coerced(a, b))


def ceildiv(a: Expr, b: Expr | int) -> Expr:
    """The least integer not below a / b."""
    return binary("ceildiv", a, _coerced(a, b))


def minimum(a: Expr, b: Expr | int | float) -> Expr:
    """The smaller operand; for floats the other one when one is NaN."""
    return binary("min", a, _coerced(a, b))


def maximum(a: Expr, b: Expr | int | float) -> Expr:
    """The larger operand; for floats the other one when one is NaN."""
    return binary("max", a, _coerced(a, b))


def compare(op: str, a: Expr, b: Expr | int | float) -> Expr:
    """One of lt, le, gt, ge, eq, ne; bool."""
    return binary(op, a, _coerced(a, b))


def below(index: Expr, extent: Expr | int) -> Expr:
    """Whether an index is below an extent, of whatever integer type each is: the sizes of a program may be narrower than its indices, or wider."""
    if isinstance(extent, int):
        return compare("lt", index, extent)
    at, size = dtype_of(index.type), dtype_of(extent.type)
    wider = size if size.bits > at.bits else at
    return compare("lt", cast(index, wider), cast(extent, wider))


def logical_and(a: Expr, b: Expr) -> Expr:
    """Both (bool), or bitwise and."""
    return binary("and", a, b)


def logical_or(a: Expr, b: Expr) -> Expr:
    """Either (bool), or bitwise or."""
    return binary("or", a, b)


def negate(x: Expr) -> Expr:
    """-x."""
    if dtype_of(x.type).is_integer:
        return sub(const(0, dtype_of(x.type)), x)
    if isinstance(x, Const):
        return const(-x.value, x.dtype)
    return Unary("neg", x)


def invert(x: Expr) -> Expr:
    """not x: logical on bool, bitwise on integers."""
    if isinstance(x, Const) and x.dtype.is_bool:
        return const(not x.value, BOOL)
    if isinstance(x, Const) and x.dtype.is_integer:
        return const(~int(x.value), x.dtype)
    if isinstance(x, Unary) and x.op == "not":
        return x.x
    return Unary("not", x)


def unary(op: str, x: Expr) -> Expr:
    """`neg` or `not`."""
    return negate(x) if op == "neg" else invert(x)


def select(cond: Expr, a: Expr, b: Expr) -> Expr:
    """a where cond holds, else b."""
    da, db, dc = _dtypes("select", a, b, cond)
    if da != db or not dc.is_bool:
        raise error("KIR-V002", f"select of {da} and {db} by {dc}: it takes a bool and two values of one dtype",
                    needs="an explicit cast")
    try:
        raw = Select(cond, a, b)
        raw_type = raw.type
    except TypeError as bad:
        raise error("KIR-V003", f"'select': {bad}") from bad
    if isinstance(cond, Const) and not isinstance(raw_type, TileType):
        return a if cond.value else b
    return raw


def cast(x: Expr, dtype: DType, rounding: str = "rn") -> Expr:
    """x converted; a cast to the own dtype vanishes, an integer literal folds where no rounding is involved. To fp8, `rn` saturates."""
    own = dtype_of(x.type)
    if rounding == "sat" and dtype in FP8 and own.is_float:
        rounding = "rn"
    if own == dtype and rounding in ("rn", "bits"):
        return x
    if isinstance(x, Const) and not own.is_symbolic and rounding == "rn":
        if (own.is_integer or own.is_bool) and dtype.is_integer:
            return const(int(x.value), dtype)
        if own.is_integer and dtype.is_bool:
            return Const(int(x.value) != 0, dtype)
        if own.is_integer and dtype.is_float and abs(int(x.value)) <= 16:
            return const(int(x.value), dtype)
        if own == F32 and dtype.is_float and ((math.isinf(x.value) and dtype.name in ("f16", "bf16", "f64")) or x.value in (0.0, 1.0)):
            return const(x.value, dtype)
    return Cast(x, dtype, rounding)


def call(fn: str, *args: Expr | Region, of: Type | None = None, **options: Attr) -> Call:
    """A call of an instruction, or of a device function when `of` is given. Raises KirError KIR-V003 when operands do not fit."""
    return call_with(fn, args, attrs(**options), of)


def call_with(fn: str, args: tuple[Expr | Region, ...], options: Attrs = (), of: Type | None = None) -> Call:
    """`call` with the attributes given as data."""
    from kir.base.instructions import instruction
    made = Call(fn, args, options, of)
    if of is None:
        least, most = instruction(fn).args
        if not least <= len(args) <= most:
            raise error("KIR-V003", f"'{fn}' takes {least if least == most else f'{least} to {most}'} operands, not {len(args)}",
                        attempt=f"kir explain {fn}")
    try:
        _ = made.type
    except (TypeError, KeyError, IndexError) as bad:
        raise error("KIR-V003", f"'{fn}': {bad}") from bad
    return made


def iota(extent: int | Expr) -> Call:
    """The i32 tile 0, 1, .., extent - 1."""
    return call("iota", const(extent) if isinstance(extent, int) else extent)


def expand(x: Expr, axis: int) -> Expr:
    """x with a new axis of extent 1."""
    return call("expand", x, axis=axis)


def load(at: Region, mask: Expr | None = None, other: Expr | None = None, clip: bool = False, cache: str = "") -> Load:
    """A read of a region."""
    if isinstance(mask, Const) and mask.value:
        mask = None
    return Load(at, mask, other if mask is not None or clip else None, clip, cache)


def region(buffer: object, *index: Expr | Span | int) -> Region:
    """A place in a buffer; integer indices become i32 literals, and the full region of a buffer becomes the index-free form."""
    assert isinstance(buffer, Buffer)
    made = tuple(const(i) if isinstance(i, int) else i for i in index)
    if made and len(made) == len(buffer.shape) and all(
            isinstance(i, Span) and is_const(i.lo, 0) and i.step == 1 and (i.extent == int_value(d) or i.extent == d)
            for i, d in zip(made, buffer.shape, strict=True)):
        made = ()
    return Region(buffer, made)


def span(lo: Expr | int, extent: int | Expr, step: int | Expr = 1) -> Span:
    """`lo +: extent step step`."""
    value = int_value(extent)
    stride = int_value(step)
    return Span(const(lo) if isinstance(lo, int) else lo, extent if value is None else value, step if stride is None else stride)


def var(name: str, dtype: Type = I32) -> Var:
    """A reference to a named value."""
    return Var(name, dtype)


def row_major(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Strides of a contiguous tensor, in elements."""
    out: list[Expr] = []
    step: Expr = const(1)
    if len({dtype_of(d.type) for d in shape if not isinstance(d, Const)}) > 1:  # sizes of two widths meet in the wider
        shape, step = tuple(cast(d, I64) for d in shape), const(1, I64)
    for d in reversed(shape):
        out.append(step)
        step = mul(step, d)
    return tuple(reversed(out))
