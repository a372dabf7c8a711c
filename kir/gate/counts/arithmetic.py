"""Instructions that compilers make of an expression's own operation: which pipe, how many for an element, and cycles until the result.

Counts are those of the SASS that nvcc 13.0 writes for sm_90 (`cuobjdump -sass` of one function each); latencies are measured (`benchmarks/micro`).
"""
from __future__ import annotations

from kir.base.dataclass import dataclass
from kir.gate.counts.trace import Pipe
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType, dtype_of


@dataclass(frozen=True)
class Cost:
    """Instructions by pipe, and cycles from the operands to the result."""

    pipes: tuple[tuple[Pipe, float], ...]
    latency: float


FREE = Cost((), 0.0)
_ALU, _FMA = Cost((("alu", 1.0),), 4.5), Cost((("fma", 1.0),), 4.0)
_DIVIDE_CONST = Cost((("alu", 3.0),), 14.0)
_DIVIDE = Cost((("alu", 15.0), ("convert", 2.0), ("special", 1.0)), 95.0)
_SPECIAL = Cost((("special", 1.0),), 18.0)
CALLS: dict[str, Cost] = {
    "exp": Cost((("fma", 4.0), ("alu", 1.0), ("special", 1.0)), 38.0), "exp2": Cost((("fma", 2.0), ("alu", 1.0), ("special", 1.0)), 30.0),
    "log": Cost((("fma", 9.0), ("alu", 5.0)), 60.0), "log2": Cost((("fma", 2.0), ("alu", 1.0), ("special", 1.0)), 30.0),
    "sqrt": Cost((("fma", 6.0), ("alu", 3.0), ("special", 1.0)), 50.0), "rsqrt": Cost((("fma", 2.0), ("alu", 1.0), ("special", 1.0)), 30.0),
    "rcp": Cost((("fma", 4.0), ("alu", 3.0), ("special", 1.0)), 45.0), "sin": Cost((("fma", 12.0), ("alu", 12.0)), 90.0),
    "cos": Cost((("fma", 12.0), ("alu", 12.0)), 90.0), "tanh": Cost((("fma", 9.0), ("alu", 5.0), ("special", 2.0)), 80.0),
    "erf": Cost((("fma", 14.0), ("alu", 5.0), ("special", 1.0)), 90.0), "pow": Cost((("fma", 25.0), ("alu", 20.0), ("special", 2.0)), 180.0),
    "sigmoid": Cost((("fma", 12.0), ("alu", 4.0), ("special", 2.0)), 85.0), "fma": _FMA, "abs": FREE, "bits": FREE}
_DIVISION = Cost((("fma", 7.0), ("alu", 3.0), ("special", 1.0)), 45.0)
FREE_CALLS = frozenset({"iota", "expand", "broadcast", "reshape", "trans", "pick", "vec", "join", "split", "cat", "pack", "unpack", "multiple_of",
                         "max_contiguous", "max_constancy", "assume", "assertion", "thread_index", "abs"})


def cost(e: n.Expr) -> Cost:
    """What the operation at the top of an expression costs for one element."""
    match e:
        case n.Binary():
            return _binary(e)
        case n.Unary() | n.Select():
            dtype = dtype_of(e.type)
            return Cost((("half", 0.5),), 5.0) if isinstance(e, n.Unary) and dtype.name in ("f16", "bf16") else FREE if _negated(e, dtype) else _ALU
        case n.Cast():
            return _cast(dtype_of(e.x.type), e.dtype, e.rounding)
        case n.Call():
            if e.fn in FREE_CALLS:
                return FREE
            if e.fn.startswith(("shfl", "vote", "ballot", "match", "warp_reduce")):
                return Cost((("shared", 1.0),), 23.0)
            return CALLS.get(e.fn, _SPECIAL if e.fn.endswith("_approx") else _ALU)
        case _:
            return FREE


def _negated(e: n.Expr, dtype: DType) -> bool:
    """Whether it is a sign that the instruction which reads it turns around."""
    return isinstance(e, n.Unary) and e.op == "neg" and dtype.is_float


def _binary(e: n.Binary) -> Cost:
    dtype = dtype_of(e.a.type)
    if dtype.is_float:
        if e.op == "div":
            return _DIVISION if dtype.name != "f64" else Cost((("double", 9.0),), 120.0)
        if dtype.name == "f64":
            return Cost((("double", 1.0),), 8.0)
        if e.op in ("add", "sub", "mul"):
            return _FMA if dtype.name == "f32" else Cost((("half", 0.5),), 5.0)
        return _ALU
    if dtype.is_bool:
        return Cost((("alu", 0.5),), 4.5)
    wide = 2.0 if dtype.bits > 32 else 1.0
    if e.op in ("floordiv", "mod", "ceildiv", "tdiv", "trem"):
        by = int_value(e.b)
        if by is None:
            return Cost(tuple((p, c * wide) for p, c in _DIVIDE.pipes), _DIVIDE.latency * wide)
        return _ALU if by and by & by - 1 == 0 else _DIVIDE_CONST
    if e.op in ("add", "sub"):
        return Cost((("alu", wide / 2), ("fma", wide / 2)), 4.5 * wide)
    if e.op == "mul":
        return Cost((("fma", 2.0 * wide),), 4.5 * wide)
    return Cost((("alu", wide),), 4.5 * wide)


def _cast(of: DType, to: DType, rounding: str) -> Cost:
    if rounding == "bits" or of == to or of.is_bool:
        return FREE
    if of.is_float and to.is_float:
        if "f64" in (of.name, to.name):
            return Cost((("convert", 2.0),), 12.0)
        if of.bits < to.bits:
            return Cost((("half", 1.0),), 5.0) if of.name == "f16" else _ALU
        return _ALU if to.bits == 16 else Cost((("convert", 1.0),), 10.0)
    if of.is_float or to.is_float:
        return _ALU if to.is_float and of.bits <= 32 else Cost((("convert", 1.0),), 12.0)
    return FREE if to.bits <= 32 else Cost((("alu", 1.0),), 4.5)
