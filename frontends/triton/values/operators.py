"""Operators on values, after Triton's rules: literals are weakly typed, run-time operands are promoted, shapes broadcast."""

from __future__ import annotations

from collections.abc import Collection

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.dtype_terms import beside, compared, join, quotient, unhalved
from kir.ir.printer import dim_text
from kir.ir.types import BOOL, F32, F64, I32, I64, U32, U64, DType, TileType, broadcast_shapes, dtype_of, shape_of, variable

from ..._python.python_operators import BINARY, COMPARE
from .emitter import as_dim, as_expr
from .values import Builtin, Dim, Known, NotUnderstood, Pointer, Run, Shape, Static, TypeOf, Value, describe, is_known, is_number, unfit

ARITHMETIC = {
    "Add": "add",
    "Subtract": "sub",
    "Multiply": "mul",
    "Divide": "div",
    "FloorDivide": "floordiv",
    "Modulo": "mod",
    "BitAnd": "and",
    "BitOr": "or",
    "BitXor": "xor",
    "LeftShift": "shl",
    "RightShift": "shr",
    "Power": "pow",
}
COMPARISON = {"LessThan": "lt", "LessThanEqual": "le", "GreaterThan": "gt", "GreaterThanEqual": "ge", "Equal": "eq", "NotEqual": "ne"}
_PYTHON_BINARY = {ARITHMETIC[k.__name__]: v for k, v in BINARY.items()}
_PYTHON_COMPARE = {COMPARISON[k.__name__]: v for k, v in COMPARE.items() if k.__name__ in COMPARISON}


def literal_dtype(v: int | float | bool) -> DType:
    """The dtype that a literal has of its own."""
    if isinstance(v, bool):
        return BOOL
    if isinstance(v, float):
        return F32
    if -(2**31) <= v < 2**31:
        return I32
    if v < 2**32 and v > 0:
        return U32
    return I64 if v < 2**63 else U64


def number_dtype(v: Value) -> DType:
    """The dtype that a constexpr number has of its own."""
    if isinstance(v, Static):
        return dtype_of(v.expr.type)
    assert isinstance(v, (int, float, bool))
    return literal_dtype(v)


def number(v: Value, dtype: DType | None = None) -> n.Expr:
    """A constexpr number as an expression, converted to `dtype`."""
    if isinstance(v, Static):
        return v.expr if dtype is None else build.cast(v.expr, dtype)
    if not isinstance(v, (int, float, bool)):
        raise NotUnderstood(f"{describe(v)} where a number is needed")
    own = literal_dtype(v)
    if dtype is None or dtype == own:
        return build.const(v, own)
    if dtype.is_symbolic or (dtype.is_integer and isinstance(v, float)):
        return build.cast(build.const(v, own), dtype)
    return build.const(v, dtype)


def run(v: Value, dtype: DType | None = None) -> n.Expr:
    """A value as a run-time expression, converted to `dtype` when one is given. Raises NotUnderstood for what is no number."""
    if isinstance(v, Run):
        return v.expr if dtype is None else build.cast(v.expr, dtype)
    if is_number(v):
        return number(v, dtype)
    raise unfit(f"{describe(v)} where a number is needed", v)


def common(a: Value, b: Value, dividing: bool = False) -> DType:
    """The dtype in which an operation of `a` and `b` is computed; `dividing` for remainders."""
    if is_number(a) and isinstance(b, Run):
        made = beside(number_dtype(a), b.dtype)
    elif is_number(b) and isinstance(a, Run):
        made = beside(number_dtype(b), a.dtype)
    else:
        made = join(dtype_of(run(a).type), dtype_of(run(b).type))
    return unhalved(made) if dividing else made


def shapes(a: n.Expr, b: n.Expr) -> tuple[n.Expr, n.Expr]:
    """Two operands that broadcast; a scalar stays one. Dimensions that only the binding decides are equal or one of them is 1, or else
    Triton refuses the kernel: both operands are stretched to the larger. Raises NotUnderstood for literals that differ."""
    sa, sb = shape_of(a.type), shape_of(b.type)
    if broadcast_shapes(sa, sb) is not None:
        return a, b
    rank = max(len(sa), len(sb))
    common_shape: list[Dim] = []
    for x, y in zip((1,) * (rank - len(sa)) + sa, (1,) * (rank - len(sb)) + sb, strict=True):
        if isinstance(x, int) and isinstance(y, int) and x != y and 1 not in (x, y):
            raise NotUnderstood(f"shapes {show(sa)} and {show(sb)} do not agree")
        common_shape.append(x if x == y or y == 1 or _covers(x, y) else y if x == 1 or _covers(y, x) else as_dim(build.maximum(as_expr(x), as_expr(y))))
    to = tuple(as_expr(d) for d in common_shape)
    return tuple(x if shape_of(x.type) == tuple(common_shape) or not shape_of(x.type) else build.call("broadcast", x, *to) for x in (a, b))  # type: ignore[return-value]  # two of two


def _covers(x: Dim, y: Dim) -> bool:
    """Whether an extent is the larger of another and something."""
    return x == y or (isinstance(x, n.Binary) and x.op == "max" and (_covers(as_dim(x.a), y) or _covers(as_dim(x.b), y)))


def show(shape: Shape) -> str:
    """A shape for a reason."""
    return "[" + ", ".join(dim_text(d) for d in shape) + "]"


def binary(op: str, a: Value, b: Value, counts: Collection[str] = ()) -> Value:
    """`a op b` for numbers; pointers are added by `offset`. `counts` are names of the launch, which are never negative."""
    if is_known(a) and is_known(b):
        return _known(op, a, b)
    if isinstance(a, Pointer) or isinstance(b, Pointer):
        return _pointer(op, a, b)
    if is_number(a) and is_number(b):
        return _static(op, a, b)
    if not ((isinstance(a, Run) or is_number(a)) and (isinstance(b, Run) or is_number(b))):
        raise unfit(f"'{op}' of {describe(a)} and {describe(b)}", a, b)
    if op in ("shl", "shr"):
        dtype = common(a, b)
        if dtype.is_float:
            raise NotUnderstood("a shift of a float")
        return Run(build.binary(op, *shapes(run(a, dtype), run(b, dtype))))
    if op == "div":
        dtype = common(a, b)
        dtype = quotient(dtype)
        return Run(build.binary("div", *shapes(run(a, dtype), run(b, dtype))))
    dtype = common(a, b, dividing=op == "mod")
    if op in ("floordiv", "mod"):
        if dtype.is_float:
            if op == "mod":
                return Run(build.call("fmod", *shapes(run(a, dtype), run(b, dtype))))
            raise NotUnderstood("'//' of floats")
        return Run(truncating(op, *shapes(run(a, dtype), run(b, dtype)), counts))
    if op in ("and", "or", "xor") and dtype.is_float:
        raise NotUnderstood(f"'{op}' of floats")
    if op == "pow":
        raise NotUnderstood("'**' of run-time values")
    if dtype.is_bool and op in ("add", "sub", "mul"):
        op = "and" if op == "mul" else "xor"  # one bit, which wraps
    return Run(build.binary(op, *shapes(run(a, dtype), run(b, dtype))))


def truncating(op: str, a: n.Expr, b: n.Expr, counts: Collection[str]) -> n.Expr:
    """Triton's integer `//` and `%`, which truncate: the flooring forms where both operands are known not to be negative."""
    if not_negative(a, counts) and not_negative(b, counts):
        return build.binary(op, a, b)
    if (not_negative(b, counts) or (_whole(b) or 0) > 0) and (rounded := _moved(op, a, b)) is not None:
        return rounded
    return build.binary({"floordiv": "tdiv", "mod": "trem"}[op], a, b)


def _moved(op: str, a: n.Expr, b: n.Expr) -> n.Expr | None:
    """A division that rounds down, or up, as one has to write it where division truncates: by a dividend that is moved first, or a remainder taken twice."""
    match op, a:
        case "mod", n.Binary(op="add", a=n.Binary(op="trem", a=x, b=by), b=n.Expr() as more) | n.Binary(op="add", a=n.Expr() as more, b=n.Binary(
                op="trem", a=x, b=by)) if by == b == more:
            return build.mod(x, b)
        case "floordiv", n.Select(cond=n.Binary(op="lt" | "gt" as side, a=x, b=n.Expr() as zero), a=moved, b=same) if same == x and _whole(zero) == 0:
            parts = _whole(b)
            if parts is not None and _beside(moved, x) == (parts - 1 if side == "gt" else 1 - parts):
                return build.ceildiv(x, b) if side == "gt" else build.floordiv(x, b)
    return None


def _whole(e: n.Expr) -> int | None:
    """The whole number that an expression is, perhaps converted."""
    while isinstance(e, n.Cast):
        e = e.x
    return int(e.value) if isinstance(e, n.Const) and isinstance(e.value, int) else None


def _beside(e: n.Expr, x: n.Expr) -> int | None:
    """By how much a number is more than another, where that is written out."""
    match e:
        case n.Binary(op="add", a=a, b=b):
            one = next((o for o, other in ((b, a), (a, b)) if other == x and _whole(o) is not None), None)
            return _whole(one) if one is not None else _apart(e, x)
        case n.Binary(op="sub", a=a, b=b) if a == x and (by := _whole(b)) is not None:
            return -by
        case _:
            return _apart(e, x)


def _apart(e: n.Expr, x: n.Expr) -> int | None:
    found = build.sub(e, x)
    return _whole(found)


def not_negative(e: n.Expr, counts: Collection[str]) -> bool:
    """Whether an integer expression is surely not negative (wrapping aside)."""
    match e:
        case n.Const():
            return e.value >= 0
        case n.Var(name=name):
            return name in counts or dtype_of(e.type).kind == "uint"
        case n.Cast(x=x, dtype=dtype):
            return dtype.is_integer and dtype_of(x.type).is_integer and dtype.bits >= dtype_of(x.type).bits and not_negative(x, counts)
        case n.Binary(op="max"):
            return not_negative(e.a, counts) or not_negative(e.b, counts)
        case n.Binary(op="add" | "mul" | "floordiv" | "mod" | "min" | "and" | "tdiv" | "trem" | "ceildiv"):
            return not_negative(e.a, counts) and not_negative(e.b, counts)
        case n.Call(fn="iota"):
            return True
        case n.Call(fn="expand" | "broadcast" | "multiple_of" | "max_contiguous", args=(n.Expr() as x, *_)):
            return not_negative(x, counts)
        case _:
            return dtype_of(e.type).kind == "uint" if isinstance(e.type, (DType, TileType)) else False


def _known(op: str, a: Value, b: Value) -> Value:
    try:
        value = _PYTHON_BINARY[op](a, b)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as bad:
        raise NotUnderstood(f"a constexpr expression fails: {bad}") from bad
    if not is_known(value):
        raise NotUnderstood("a constexpr expression of unusual type")
    return value  # type: ignore[no-any-return]  # checked by is_known


def _static(op: str, a: Value, b: Value) -> Value:
    da, db = number_dtype(a), number_dtype(b)
    if op == "div":
        dtype = F32
    elif da.is_bool and db.is_bool and op in ("and", "or", "xor"):
        dtype = BOOL
    else:
        dtype = join(I32 if da.is_bool else da, I32 if db.is_bool else db)
    if op == "pow":
        if a == 2 and dtype.is_integer:
            return Static(build.binary("shl", build.const(1, I64), number(b, I64)))
        if isinstance(b, float) and is_number(a):
            return Static(build.call("pow", number(a, F32), number(b, F32)))
        raise NotUnderstood("'**' of constexprs that the binding decides")
    if dtype.is_float and op in ("floordiv", "mod", "and", "or", "xor", "shl", "shr"):
        raise NotUnderstood(f"'{op}' of float constexprs")
    return folded(build.binary(op, number(a, dtype), number(b, dtype)))


def folded(e: n.Expr) -> Value:
    """A static expression, as a literal when it has become one."""
    return e.value if isinstance(e, n.Const) else Static(e)


def _pointer(op: str, a: Value, b: Value) -> Value:
    if isinstance(b, Pointer) and not isinstance(a, Pointer) and op == "add":
        a, b = b, a
    if not isinstance(a, Pointer) or isinstance(b, Pointer) or op not in ("add", "sub"):
        raise unfit(f"'{op}' of {describe(a)} and {describe(b)}", a, b)
    term = run(b)
    if dtype_of(term.type) == BOOL:
        term = build.cast(term, I64)  # Triton extends it without a sign
    if not (dtype_of(term.type).is_integer or dtype_of(term.type).is_symbolic):
        raise NotUnderstood(f"a pointer moved by a {dtype_of(term.type)}")
    term = build.negate(term) if op == "sub" else term
    return offset(a, term)


def offset(p: Pointer, term: n.Expr) -> Pointer:
    """A pointer moved by a term of its own width."""
    if build.is_const(term, 0):
        return p
    return Pointer(p.base, (*p.terms, term))


def flat(p: Pointer) -> n.Expr:
    """The element index of a pointer: its only term, or the i64 sum of its widened terms."""
    if not p.terms:
        return build.const(0)
    if len(p.terms) == 1:
        return p.terms[0]
    total: n.Expr | None = None
    for t in p.terms:
        wide = build.cast(t, I64)
        total = wide if total is None else build.add(*shapes(total, wide))
    assert total is not None
    return total


def pointer_shape(p: Pointer) -> Shape:
    """The shape of a tile of pointers, () for one."""
    out: Shape = ()
    for t in p.terms:
        both = broadcast_shapes(out, shape_of(t.type))
        if both is None:
            raise NotUnderstood(f"pointer shapes {show(out)} and {show(shape_of(t.type))} are not known to agree")
        out = both
    return out


def compare(op: str, a: Value, b: Value) -> Value:
    """`a op b`, a truth value."""
    if is_known(a) and is_known(b):
        try:
            return bool(_PYTHON_COMPARE[op](a, b))
        except TypeError as bad:
            raise NotUnderstood(f"a constexpr comparison fails: {bad}") from bad
    if isinstance(a, TypeOf) or isinstance(b, TypeOf):
        return _same_dtype(op, a, b)
    if isinstance(a, str) or isinstance(b, str) or a is None or b is None:
        return _is_text(op, a, b)
    if is_number(a) and is_number(b):
        da, db = number_dtype(a), number_dtype(b)
        dtype = BOOL if da.is_bool and db.is_bool else join(I32 if da.is_bool else da, I32 if db.is_bool else db)
        return folded(build.compare(op, number(a, dtype), number(b, dtype)))
    if not ((isinstance(a, Run) or is_number(a)) and (isinstance(b, Run) or is_number(b))):
        raise unfit(f"'{op}' of {describe(a)} and {describe(b)}", a, b)
    return Run(build.compare(op, *shapes(*_compared(a, b))))


def _compared(a: Value, b: Value) -> tuple[n.Expr, n.Expr]:
    """Two operands of a comparison, for which Triton makes a tensor of a literal first."""
    if isinstance(a, Run) and isinstance(b, Run):
        dtype = join(a.dtype, b.dtype)
        return run(a, dtype), run(b, dtype)
    if is_number(a):
        y, x = _compared(b, a)
        return x, y
    own = number_dtype(b)
    dtype = compared(own, b if isinstance(b, (int, float)) else None, dtype_of(run(a).type))
    return run(a, dtype), build.cast(number(b), dtype) if own == F32 and dtype == F64 else number(b, dtype)


def _same_dtype(op: str, a: Value, b: Value) -> Value:
    a, b = (TypeOf(variable(x.expr.name)) if isinstance(x, Static) and isinstance(x.expr, n.Var) else x for x in (a, b))
    if not (isinstance(a, TypeOf) and isinstance(b, TypeOf)) or op not in ("eq", "ne"):
        other = any(isinstance(x, Builtin) and x.name.startswith("triton.language.float8") for x in (a, b))  # one that no argument has
        if op in ("eq", "ne") and (is_known(a) or is_known(b) or other):
            return op == "ne"
        raise unfit(f"'{op}' of {describe(a)} and {describe(b)}", a, b)
    if a == b or not (a.dtype.is_symbolic or b.dtype.is_symbolic):
        return (a == b) == (op == "eq")
    first, second = sorted((a.dtype.name, b.dtype.name))
    same = build.call("dtype_is", a=first, b=second)
    return Static(same if op == "eq" else build.invert(same))


def _is_text(op: str, a: Value, b: Value) -> Value:
    if isinstance(a, str) or a is None:
        a, b = b, a
    if isinstance(a, Static) and isinstance(a.expr, n.Var) and op in ("eq", "ne"):
        same = build.call("meta_is", a.expr, value=str(b))
        return Static(same if op == "eq" else build.invert(same))
    if op in ("eq", "ne"):
        return op == "ne"
    raise unfit(f"'{op}' of {describe(a)} and {describe(b)}", a, b)


def truth(v: Value) -> Value:
    """A value as a condition: a known bool, a static or a run-time bool."""
    match v:
        case Static():
            dtype = dtype_of(v.expr.type)
            if dtype.is_bool:
                return v
            if dtype.is_symbolic and isinstance(v.expr, n.Var):
                return Static(build.call("meta_true", v.expr))
            return folded(build.compare("ne", v.expr, build.const(0, dtype) if not dtype.is_symbolic else build.cast(build.const(0, I32), dtype)))
        case Run():
            return Run(as_bool(v.expr))
        case int() | float() | bool() | str() | None:
            return bool(v)
        case _:
            raise NotUnderstood(f"the truth of {describe(v)}")


def as_bool(e: n.Expr) -> n.Expr:
    """A number as bool: not equal to zero."""
    dtype = dtype_of(e.type)
    if dtype.is_bool:
        return e
    zero = build.cast(build.const(0), dtype) if dtype.is_symbolic else build.const(0, dtype)
    return build.compare("ne", e, zero)


def logical(op: str, a: Value, b: Value) -> Value:
    """`and`, `or` of two truth values."""
    for x, y in ((a, b), (b, a)):
        if is_known(x):
            if op == "and":
                return y if x else False
            return True if x else y
    if isinstance(a, Static) and isinstance(b, Static):
        return folded(build.binary(op, a.expr, b.expr))
    return Run(build.binary(op, *shapes(run(a), run(b))))


def negation(a: Value) -> Value:
    """`not a` of a truth value."""
    if isinstance(a, Static):
        return folded(build.invert(a.expr))
    if isinstance(a, Run):
        return Run(build.invert(a.expr))
    return not a


def unary(op: str, a: Value) -> Value:
    """`-a`, `+a`, `~a`."""
    if isinstance(a, (int, float, bool)):
        return -a if op == "neg" else +a if op == "pos" else ~int(a)
    if op == "pos":
        return a
    if not isinstance(a, (Run, Static)):
        raise unfit(f"'{op}' of {describe(a)}", a)
    dtype = dtype_of(a.expr.type)
    e = a.expr
    if op == "neg" and dtype.is_bool and isinstance(a, Run):
        return a  # 0 - x of one bit
    if op == "neg":
        e = build.cast(e, I32) if dtype.is_bool else e
        made = n.Unary("neg", e) if dtype.is_symbolic else build.negate(e)
    else:
        if dtype.is_float:
            raise NotUnderstood("'~' of a float")
        made = build.invert(e)
    return Run(made) if isinstance(a, Run) else folded(made)


def known_int(v: Value, what: str) -> int:
    """An integer that must be known while reading."""
    if isinstance(v, bool) or not isinstance(v, int):
        raise NotUnderstood(f"{what} must be a literal integer, not {describe(v)}")
    return v


def known(v: Value, what: str) -> Known:
    """A literal."""
    if not is_known(v):
        raise NotUnderstood(f"{what} must be known, not {describe(v)}")
    return v  # type: ignore[return-value]  # checked by is_known
