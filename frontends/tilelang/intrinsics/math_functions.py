"""Words that compute: mathematical functions, conversions, choices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, F16, F32, I32, U32, dtype_of
from kir.ir.visit import substitute

from ..expressions.operators import chosen, is_text
from ..sources.calls import called
from ..sources.texts import names_like
from ..state.reader import Reader, Undecided
from ..state.regions import at, is_region, region
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.values import Memory, NotUnderstood, Num, Pieces, Place, Signature, TypeOf, Value, describe, is_number

Word = Callable[[Reader, Signature], Value]
LOG2_E = 1.4426950408889634
CALLS: Mapping[str, str] = {
    "exp": "exp", "exp2": "exp2", "exp10": "exp10", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh", "asin": "asin",
    "acos": "acos", "atan": "atan", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf", "sigmoid": "sigmoid",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round_away", "nearbyint": "round_even", "isnan": "isnan",
    "isinf": "isinf", "isfinite": "isfinite", "fabs": "abs", "popcount": "popc", "clz": "clz", "__exp": "exp", "__log": "log",
    "__log2": "log2", "__log10": "log10", "__sin": "sin", "__cos": "cos", "__tan": "tan", "__exp10": "exp10", "fast_rcp": "rcp_approx",
}  # fmt: skip
"""Words of one operand that are one call."""
PAIRS: Mapping[str, str] = {"pow": "pow", "fmod": "fmod", "atan2": "atan2", "copysign": "copysign", "hypot": "hypot",
                            "nextafter": "nextafter"}
ROUNDED: Mapping[str, tuple[str, str]] = {
    "ieee_add": ("add", "add_rounded"), "ieee_sub": ("sub", "sub_rounded"), "ieee_mul": ("mul", "mul_rounded"),
    "ieee_fdiv": ("div", "div_rounded"),
}  # fmt: skip


def operand(r: Reader, v: Value) -> n.Expr:
    """A number as an operand of a mathematical function: literals are f32."""
    v = r.settled(v)
    if is_number(v):
        made = arithmetic.valued(v, F32)
        assert made is not None
        return made
    return r.run(v)


def _floating(e: n.Expr) -> n.Expr:
    dtype = dtype_of(e.type)
    return e if dtype.is_float or dtype.is_symbolic else convert(e, F32)


def _one(fn: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        e = operand(r, given.args[0])
        return Num(build.call(fn, e if fn in ("popc", "clz", "abs") else _floating(e)))

    return made


def _exp2(r: Reader, given: Signature) -> Value:
    """Under fast math it is what the hardware has: within 2 ulp, and subnormal numbers are zeros (CUDA C++ Programming Guide, `--use_fast_math`)."""
    e = _floating(operand(r, given.args[0]))
    return Num(build.call("exp2_approx" if r.attrs.get("tl_enable_fast_math") is True and dtype_of(e.type) == F32 else "exp2", e))


def _two(fn: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        a, b = arithmetic.paired(r.settled(given.args[0]), r.settled(given.args[1]), r.run)
        return Num(build.call(fn, _floating(a), _floating(b)))

    return made


def _rounded_one(fn: str, arity: int) -> Word:
    """`T.ieee_fsqrt(x, rounding)` and kin: correctly rounded, in the direction that is said."""
    def made(r: Reader, given: Signature) -> Value:
        args = [operand(r, v) for v in given.args[:arity]]
        args = [convert(a, dtype_of(args[0].type)) for a in args]
        mode = given.args[arity] if len(given.args) > arity else given.named.get("rounding_mode", "rn")
        if mode == "rn":
            return Num(build.call(fn, *args))
        if mode not in ("rz", "ru", "rd"):
            raise NotUnderstood("a rounding that is not known")
        return Num(build.call(f"{fn}_rounded", *args, rounding=str(mode)))

    return made


def _rounded(op: str, fn: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        a, b = arithmetic.paired(r.settled(given.args[0]), r.settled(given.args[1]), r.run)
        mode = given.args[2] if len(given.args) > 2 else given.named.get("rounding_mode", "rn")
        if mode == "rn":
            return Num(build.binary(op, a, b))
        if mode not in ("rz", "ru", "rd"):
            raise NotUnderstood("a rounding that is not known")
        return Num(build.call(fn, a, b, rounding=str(mode)))

    return made


def _abs(r: Reader, given: Signature) -> Value:
    v = r.settled(given.args[0])
    return arithmetic.host(abs, v) if is_number(v) else Num(build.call("abs", r.run(v)))


def _fma(r: Reader, given: Signature) -> Value:
    a, b = arithmetic.paired(r.settled(given.args[0]), r.settled(given.args[1]), r.run)
    c = convert(operand(r, given.args[2]), dtype_of(a.type))
    return Num(build.call("fma", a, b, c))


def _cast(r: Reader, given: Signature) -> Value:
    """`T.Cast(dtype, x)` and `T.cast(x, dtype)`: the dtype is what is no number."""
    a = given.args[0]
    b = given.args[1] if len(given.args) > 1 else next(iter(given.named.values()), None)
    if isinstance(a, (str, TypeOf)):
        a, b = b, a
    dtype = r.dtype(b)
    a = r.settled(a)
    mode = r.settled(given.named.get("round"))
    if mode not in (None, "rn") or r.settled(given.named.get("sat", True)) is not True:
        raise NotUnderstood("a conversion that rounds in another way than to the nearest, or does not saturate")
    made = arithmetic.valued(a, dtype) if is_number(a) else convert(r.run(a), dtype)
    assert made is not None
    return Num(made)


def _cast_first(r: Reader, given: Signature) -> Value:
    if len(given.args) != 2:
        raise NotUnderstood("'T.Cast' of other than a dtype and a value")
    return _cast(r, Signature([given.args[1], given.args[0]], given.named))


def _reinterpret(r: Reader, given: Signature) -> Value:
    a = given.args[0]
    b = given.args[1] if len(given.args) > 1 else next(iter(given.named.values()), None)
    if isinstance(a, (str, TypeOf)):
        a, b = b, a
    if b == "handle":
        return None
    dtype = r.dtype(b)
    e = r.run(a)
    own = dtype_of(e.type)
    if own.bits != dtype.bits and not (own.is_symbolic or dtype.is_symbolic):
        raise NotUnderstood(f"bits of {own.name} as {dtype.name}")
    return Num(build.cast(e, dtype, "bits"))


def _choose(r: Reader, given: Signature) -> Value:
    cond = r.truth(given.args[0])
    if isinstance(cond, bool):
        return given.args[1] if cond else given.args[2]
    return chosen(r, cond, given.args[1], given.args[2])


def _clamp(r: Reader, given: Signature) -> Value:
    out = arithmetic.binary("max", r.settled(given.args[0]), r.settled(given.args[1]), r.run)
    return arithmetic.binary("min", out, r.settled(given.args[2]), r.run)


def _not(r: Reader, given: Signature) -> Value:
    v = r.settled(given.args[0])
    return ~v if isinstance(v, int) else Num(build.invert(r.run(v)))


def _logical(op: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        out: n.Expr | None = None
        for v in given.args:
            found = r.truth(v)
            one = build.const(found, BOOL) if isinstance(found, bool) else found
            out = one if out is None else build.binary(op, out, one)
        if out is None:
            raise NotUnderstood(f"'{op}' of nothing")
        return Num(out)

    return made


def _of_elements(op: str) -> Word:
    """`T.all_of(b)`: of the elements of a buffer, or of conditions."""
    def made(r: Reader, given: Signature) -> Value:
        v = r.settled(given.args[0])
        if len(given.args) != 1 or not isinstance(v, (Memory, Place)) or (isinstance(v, Memory) and v.var) or not is_region(p := region(r, v)):
            return _logical(op)(r, given)
        tile = convert(build.load(at(p)), BOOL)
        for _ in range(len([i for i in p.index if isinstance(i, n.Span)])):
            tile = build.call("reduce", tile, axis=0, op=op)
        return Num(r.out.let(r.wanted or "found", tile))

    return made


EXTERN: Mapping[str, Callable[[list[n.Expr]], n.Expr]] = {
    "__match_any_sync": lambda a: build.call("match_any", a[1]),
    "__float2half_rz": lambda a: build.cast(a[0], F16, "rz"),
    "__expf": lambda a: build.call("exp2_approx", build.mul(a[0], build.const(LOG2_E, F32))),
    "__popc": lambda a: build.call("popc", a[0]),
    "__clz": lambda a: build.call("clz", a[0]),
    "__ffs": lambda a: build.call("ffs", a[0]),
    "__brev": lambda a: build.call("brev", a[0]),
    "__fdividef": lambda a: build.call("div_approx", a[0], a[1]),
    "__frcp_rn": lambda a: build.call("rcp", a[0]),
    "__umulhi": lambda a: build.call("mulhi", *(build.cast(x, U32) for x in a)),
    "__mulhi": lambda a: build.call("mulhi", *a),
    "fmaf": lambda a: build.call("fma", *a),
    "__activemask": lambda a: build.call("active_mask"),
}
"""Functions of CUDA that `T.call_extern` may name."""


def _one_of(r: Reader, name: Pieces) -> str:
    """The function that a text with an open part names: of those there are, as the binding decides. Raises Undecided, NotUnderstood."""
    open_ = [x for x in name.parts if not isinstance(x, str)]
    pattern = "".join(re.escape(x) if isinstance(x, str) else r"(\w+)" for x in name.parts)
    found = names_like(r, pattern) if len(open_) == 1 else []
    if not found:
        raise NotUnderstood(name.reason)
    for middle, whole in found[:-1]:
        holds = is_text(r, open_[0], middle)
        if not isinstance(holds, bool):
            raise Undecided(holds)
        if holds:
            return whole
    return found[-1][1]  # no other makes a kernel


def _extern(r: Reader, given: Signature) -> Value:
    dtype, name, *args = (given.args[0], r.settled(given.args[1]), *given.args[2:])
    name = _one_of(r, name) if isinstance(name, Pieces) else r.decided(name)
    if not isinstance(name, str):
        raise NotUnderstood(f"a function of CUDA source, {describe(name)}")
    fn = EXTERN.get(name)
    if fn is None or any(name in text for text in r.sources):
        return called(r, name, None if r.settled(dtype) == "handle" else r.dtype(dtype), args)
    made = fn([r.run(a) for a in args])
    if made.type != I32 and isinstance(made, n.Call) and made.fn in ("match_any", "active_mask"):
        return Num(r.out.let(r.wanted or "found", made))
    return Num(made)


def _var(r: Reader, given: Signature) -> Value:
    """TVM's `Var(name, dtype)`: a name for what a `Let` around says."""
    name = given.args[0]
    if not isinstance(name, str) or len(given.args) < 2:
        raise NotUnderstood("a variable of an expression, without a name or a dtype")
    return Num(n.Var(r.out.fresh(name), r.dtype(given.args[1])))


def _let(r: Reader, given: Signature) -> Value:
    """TVM's `Let(var, value, body)`: the body with the value in place of its variable."""
    var, value, body = given.args[0], r.run(given.args[1]), r.run(given.args[2])
    if not isinstance(var, Num) or not isinstance(var.expr, n.Var) or var.expr.of != value.type:
        raise NotUnderstood("a 'Let' of what is no variable of that dtype")
    own = {var.expr.name: value}
    for block in r.out.blocks:  # names that were made on the way to the body
        block[:] = [substitute(s, own) for s in block]
    return Num(substitute(body, own))


WORDS: Mapping[str, Word] = {
    "Var": _var, "Let": _let, "__ffs": lambda r, given: Num(build.call("ffs", r.run(given.args[0]))),
    **{k: _one(v) for k, v in CALLS.items()}, "exp2": _exp2,
    **{k: _two(v) for k, v in PAIRS.items()},
    **{k: _rounded(*v) for k, v in ROUNDED.items()}, "ieee_fmaf": _rounded_one("fma", 3), "ieee_fsqrt": _rounded_one("sqrt", 1),
    "ieee_frcp": _rounded_one("rcp", 1),
    "abs": _abs, "fma": _fma, "Cast": _cast_first, "cast": _cast, "reinterpret": _reinterpret, "if_then_else": _choose,
    "Select": _choose, "clamp": _clamp, "bitwise_not": _not, "any_of": _of_elements("or"), "all_of": _of_elements("and"), "And": _logical("and"),
    "any": _logical("or"), "all": _logical("and"), "Or": _logical("or"), "Not": _not, "call_extern": _extern, "call_pure_extern": _extern,
}  # fmt: skip
