"""Attributes, subscripts and everything that changes the shape of a tile."""

from __future__ import annotations

from collections.abc import Mapping

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.dtype_terms import of_kind
from kir.ir.types import I32, DType, shape_of

from ..values import operators
from ..values.emitter import as_dim, as_expr
from ..values.values import (
    BlockPointer,
    Descriptor,
    Dim,
    Items,
    Method,
    NotUnderstood,
    Pointer,
    Run,
    Shape,
    Slice,
    Static,
    TypeOf,
    Value,
    describe,
    is_known,
    is_number,
    unfit,
)

DUNDER: Mapping[str, str] = {
    "__add__": "add", "__sub__": "sub", "__mul__": "mul", "__truediv__": "div", "__floordiv__": "floordiv", "__mod__": "mod", "__lshift__": "shl",
    "__rshift__": "shr", "__and__": "and", "__or__": "or", "__xor__": "xor",
}  # fmt: skip
"""Operators called by their methods' names."""
METHODS = frozenset(
    {
        "to",
        "cast",
        "sum",
        "max",
        "min",
        "argmax",
        "argmin",
        "reshape",
        "view",
        "trans",
        "permute",
        "broadcast_to",
        "expand_dims",
        "store",
        "load",
        "advance",
        "split",
        "cumsum",
        "cumprod",
        "xor_sum",
        "ravel",
        "sigmoid",
        "exp",
        "log",
        "abs",
        "softmax",
        "reduce",
        "flip",
        "histogram",
        "logical_and",
        "logical_or",
        "gather",
        "scatter",
        "atomic_add",
        "atomic_min",
        "atomic_max",
        "sqrt",
        "sort",
        "associative_scan",
        "is_floating",
        "is_int",
        "is_fp16",
        "is_bf16",
        "is_fp32",
        "is_fp64",
        "is_fp8",
        "is_int1",
        "is_int8",
        "is_int16",
        "is_int32",
        "is_int64",
        "is_uint8",
        "is_int_signed",
        "is_int_unsigned",
        "is_bool",
        "is_ptr",
        "is_block",
        "floor",
        "ceil",
        "rsqrt",
        "cos",
        "sin",
        "exp2",
        "log2",
        "erf",
        "append",
        "item",
        "is_uint16",
        "is_uint32",
        "is_uint64",
        "is_fp8e4nv",
        "is_fp8e5",
        "is_standard_floating",
        "format",
        "startswith",
        "endswith",
        "get",
    }
)


def attribute_of(v: Value, name: str) -> Value:
    """`v.name` for tiles, pointers, dtypes and constexprs."""
    match v, name:
        case Run() | int() | float() | bool() | Static(), "dtype":
            if isinstance(v, Run):
                return TypeOf(v.dtype)
            return TypeOf(operators.number_dtype(v))
        case Run(), "type":
            return TypeOf(v.dtype, shape=v.shape)
        case Pointer(), "dtype" | "type":
            return TypeOf(v.base.dtype, True)
        case BlockPointer(), "dtype" | "type":
            return TypeOf(v.base.base.dtype, True)
        case Descriptor(), "dtype" | "type":
            return TypeOf(v.base.base.dtype, False)
        case TypeOf(), "element_ty" | "scalar":
            return TypeOf(v.dtype, v.pointer and name == "scalar" and False)
        case TypeOf(), "shape":
            return Items(tuple(_dim_value(d) for d in v.shape))
        case TypeOf(), "primitive_bitwidth" | "int_bitwidth" | "fp_mantissa_width" | "itemsize":
            return _width(v.dtype, name)
        case TypeOf(), "name":
            raise NotUnderstood("the name of a dtype")
        case Run(), "shape":
            return Items(tuple(_dim_value(d) for d in v.shape))
        case Pointer(), "shape":
            return Items(tuple(_dim_value(d) for d in operators.pointer_shape(v)))
        case Descriptor(), "shape":
            return Items(tuple(Run(e) for e in v.shape))
        case Descriptor(), "strides":
            return Items(tuple(Run(e) for e in v.strides))
        case Descriptor() | BlockPointer(), "block_shape" | "block_type":
            return Items(tuple(_dim_value(d) for d in v.block))
        case Run(), "numel":
            total: Dim = 1
            for d in v.shape:
                total = _product(total, d)
            return _dim_value(total)
        case Run(), "T":
            return transposed(v, None)
        case _, "value" if is_number(v) or is_known(v) or isinstance(v, TypeOf):
            return v
        case int() | Static(), "bit_length":
            return Method(v, name)
        case _, _ if name in METHODS or name in DUNDER:
            return Method(v, name)
    raise unfit(f"attribute '{name}' of {describe(v)}", v)


def _dim_value(d: Dim) -> Value:
    return d if isinstance(d, int) else Static(d)


def _width(dtype: DType, name: str) -> Value:
    if name == "fp_mantissa_width":
        widths = {"f16": 10, "bf16": 7, "f32": 23, "f64": 53, "f8e4m3": 3, "f8e4m3fnuz": 3, "f8e5m2": 2}
        if dtype.name in widths:
            return widths[dtype.name]
        raise NotUnderstood("the mantissa width of a dtype that the binding decides")
    if dtype.is_symbolic:
        bits = build.call("dtype_bits", term=dtype.name)
        return Static(bits) if name != "itemsize" else Static(build.floordiv(bits, 8))
    return dtype.bits if name != "itemsize" else dtype.bytes


def dtype_question(dtype: DType, name: str) -> Value:
    """`dtype.is_floating()` and its kin."""
    word = name.removeprefix("is_")
    kinds = {
        "floating": "float",
        "int": "integer",
        "int_signed": "int",
        "int_unsigned": "uint",
        "bool": "bool",
        "int1": "bool",
        "fp16": "f16",
        "bf16": "bf16",
        "fp32": "f32",
        "fp64": "f64",
        "fp8": "f8",
        "standard_floating": "standard",
        "fp8e4nv": "f8e4m3",
        "fp8e5": "f8e5m2",
        "fp8e4b8": "f8e4m3fnuz",
    }
    kinds |= {f"int{k}": f"i{k}" for k in (8, 16, 32, 64)} | {f"uint{k}": f"u{k}" for k in (8, 16, 32, 64)}
    if word not in kinds:
        raise NotUnderstood(f"the question '{name}' of a dtype")
    if dtype.is_symbolic:
        return Static(build.call("dtype_kind", term=dtype.name, kind=kinds[word]))
    return of_kind(dtype, kinds[word])


def shape_from(items: tuple[Value, ...]) -> Shape:
    """A shape given as constexprs."""
    out: list[Dim] = []
    for v in items:
        if isinstance(v, bool) or not isinstance(v, (int, Static)):
            raise NotUnderstood(f"a shape with {describe(v)}")
        out.append(v if isinstance(v, int) else as_dim(build.cast(v.expr, I32)))
    return tuple(out)


def _product(a: Dim, b: Dim) -> Dim:
    return a * b if isinstance(a, int) and isinstance(b, int) else as_dim(build.mul(as_expr(a), as_expr(b)))


def size(shape: Shape) -> Dim:
    """How many elements a shape has."""
    total: Dim = 1
    for d in shape:
        total = _product(total, d)
    return total


def reshaped(e: n.Expr, shape: Shape) -> n.Expr:
    """Row-major reinterpretation; adding and dropping axes of one element is `expand` where it can be."""
    own = shape_of(e.type)
    if own == shape:
        return e
    if not own:
        return build.call("broadcast", e, *map(as_expr, shape))
    if not shape:
        return build.call("pick", e, *(build.const(0) for _ in own))
    return build.call("reshape", e, *map(as_expr, shape))


def stretched(e: n.Expr, shape: Shape) -> n.Expr:
    """`e` broadcast to a shape. Dimensions that only the binding decides fit, or Triton refuses the kernel. Raises NotUnderstood where
    literals do not."""
    own = shape_of(e.type)
    if own == shape:
        return e
    if not may_stretch(own, shape):
        raise NotUnderstood(f"shape {operators.show(own)} is not known to stretch to {operators.show(shape)}")
    return build.call("broadcast", e, *map(as_expr, shape))


def may_stretch(own: Shape, shape: Shape) -> bool:
    """Whether a shape may stretch to another, as far as literals say."""
    return len(own) <= len(shape) and all(
        x == y or x == 1 or not (isinstance(x, int) and isinstance(y, int)) for x, y in zip(own, shape[len(shape) - len(own) :])
    )


def each(v: Value, fn: object) -> Value:
    """`fn` on the expression of a tile, or on each term of a tile of pointers."""
    assert callable(fn)
    if isinstance(v, Run):
        return Run(fn(v.expr))
    if isinstance(v, Pointer):
        rank = len(operators.pointer_shape(v))
        return Pointer(v.base, tuple(fn(t) if len(shape_of(t.type)) == rank else t for t in v.terms))
    if is_number(v):
        return v
    raise unfit(f"a shape operation on {describe(v)}", v)


def subscript(v: Value, index: tuple[Value, ...]) -> Value:
    """`v[index]`: new axes of a tile, an element of a tuple."""
    if isinstance(v, Items):
        if len(index) == 1 and isinstance(index[0], int):
            if not -len(v.items) <= index[0] < len(v.items):
                raise NotUnderstood("a tuple index out of range")
            return v.items[index[0]]
        if len(index) == 1 and isinstance(index[0], Slice):
            return Items(v.items[index[0].lo : index[0].hi])
        raise NotUnderstood("a tuple index that is not known")
    if isinstance(v, (Run, Pointer)):
        shape = v.shape if isinstance(v, Run) else operators.pointer_shape(v)
        full = all(x is None or x == Slice() for x in index)
        if not full:
            raise NotUnderstood("an element of a tile")
        if isinstance(v, Pointer) and not shape:
            raise NotUnderstood("a subscript of a scalar pointer")
        if isinstance(v, Run) and not shape:
            return Run(build.call("broadcast", v.expr, *(build.const(1) for _ in index)))
        kept = sum(1 for x in index if x is not None)
        if kept > len(shape):
            raise NotUnderstood("more subscripts than axes")

        def grow(e: n.Expr) -> n.Expr:
            for axis, x in enumerate(index):
                if x is None:
                    e = build.expand(e, axis)
            return e

        return each(v, grow)
    raise unfit(f"a subscript of {describe(v)}", v)


def transposed(v: Value, order: tuple[int, ...] | None) -> Value:
    """Axes permuted; without an order the last two exchanged."""
    if not isinstance(v, Run):
        raise unfit(f"the transpose of {describe(v)}", v)
    rank = len(v.shape)
    if order is None:
        if rank < 2:
            raise NotUnderstood("the transpose of a vector")
        order = (*range(rank - 2), rank - 1, rank - 2)
    if sorted(order) != sorted({a for a in order if -rank <= a < rank}) or len({a % rank for a in order}) != rank:
        raise NotUnderstood(f"the axes {', '.join(map(str, order))} of a tile of {rank}, in another order")
    order = tuple(a % rank for a in order)
    if order == tuple(range(rank)):
        return v
    return Run(build.call("trans", v.expr, *(build.const(a) for a in order)))


def axis_of(v: Value, rank: int) -> int:
    """A known axis, counted from the front."""
    axis = operators.known_int(v, "an axis")
    if not -rank <= axis < rank:
        raise NotUnderstood(f"axis {axis} of a tile of {rank} axes")
    return axis % rank


def filled(value: n.Expr, shape: Shape) -> n.Expr:
    """A tile of one value."""
    if not shape:
        return value
    return build.call("broadcast", value, *map(as_expr, shape))
