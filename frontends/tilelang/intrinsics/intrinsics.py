"""The words of TileLang's language module: one table from a word to what it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import F32, I32, I64, DType

from ..state.declarations import declared
from ..state.layouts import layout_word
from ..state.reader import Reader, said
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.names import LANGUAGE, LARGEST
from ..values.values import (
    Builtin,
    Items,
    Launch,
    Listed,
    Loop,
    Memory,
    NotUnderstood,
    Num,
    Open,
    Place,
    Signature,
    TensorType,
    TypeOf,
    Value,
    is_number,
    tensor_type,
)
from .annotations import WORDS as NOTES
from .atomics import WORDS as ATOMICS
from .im2col import im2col
from .math_functions import WORDS as MATH
from .memory import WORDS as MEMORY
from .memory import reshaped
from .pointers import WORDS as POINTERS
from .reducers import WORDS as REDUCERS
from .signatures import settled
from .synchronization import WORDS as SYNCHRONIZATION
from .tiles import WORDS as TILES
from .vocabulary import BLACKWELL, VOCABULARY, nearest

Word = Callable[[Reader, Signature], Value]
SAME = {"WarpSpecialize": "ws", "Vectorized": "vectorized"}
"""Words that are others."""
LOOPS = ("serial", "Serial", "unroll", "Unroll", "vectorized", "Vectorized", "grid", "Parallel", "parallel", "Pipelined", "Persistent", "ws", "attr",
         "If", "Then", "Else")


def word(r: Reader, name: str, given: Signature, e: cst.CSTNode) -> Value:
    """`T.name(..)`. Raises NotUnderstood with the nearest words for one that TileLang does not have."""
    name = SAME.get(name, name)
    given = settled(name, given)
    if name in LOOPS:
        return Loop(name, tuple(given.args), tuple(given.named.items()))
    found = WORDS.get(name)
    if found is not None:
        return found(r, given)
    if name in ("Fragment", "Layout"):
        return layout_word(r, name, given, e)
    if "." in name and not r.launched:
        return r.ask(name.rsplit(".", 1)[-1], f"{name}({given.args}{given.named})")
    if name in BLACKWELL:
        raise NotUnderstood(f"'T.{name}' is for Blackwell's tensor memory")
    if name.startswith("make_") and name.endswith("layout"):
        if name == "make_mma_swizzle_layout":
            return layout_word(r, name, given, e)
        raise NotUnderstood(f"TileLang has no 'T.{name}'; it is in tilelang.layout")
    if name in VOCABULARY:
        raise NotUnderstood(f"'T.{name}' is not read yet")
    raise NotUnderstood(nearest(name, VOCABULARY))


def _dynamic(r: Reader, given: Signature) -> Value:
    """`T.dynamic("m, n", dtype)`: sizes of the problem."""
    text = given.args[0] if given.args else given.named.get("name", r.wanted)
    dtype = r.dtype(given.args[1]) if len(given.args) > 1 else r.dtype(given.named["dtype"]) if "dtype" in given.named else I32
    if not isinstance(text, str):
        raise NotUnderstood("a size whose name is not known")
    names = [x for x in text.replace(",", " ").split() if x]
    made = tuple(Num(size(r, x, dtype)) for x in names)
    return made[0] if len(made) == 1 else Items(made)


def size(r: Reader, name: str, dtype: DType) -> n.Var:
    """A size of the problem, once per name."""
    found = r.sizes.get(name)
    if found is None:
        own = r.out.fresh(name)
        found = r.sizes[name] = n.Param(own, "size", dtype)
    assert isinstance(found.of, DType)
    return n.Var(found.name, found.of)


def _ceildiv(r: Reader, given: Signature) -> Value:
    a, b = r.settled(given.args[0]), r.settled(given.args[1])
    return arithmetic.binary("ceildiv", a, b, r.run)


def _binary(op: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        if len(given.args) != 2:
            raise NotUnderstood(f"'{op}' of {len(given.args)} values")
        a, b = r.settled(given.args[0]), r.settled(given.args[1])
        return arithmetic.binary(op, a, b, r.run)

    return made


def _largest(r: Reader, given: Signature) -> Value:
    dtype = r.dtype(given.args[0])
    if dtype.is_integer:
        return dtype.range[1]
    if dtype.is_symbolic:
        out: Value = LARGEST["f8e4m3"]
        for name in ("f8e5m2", "f4e2m1", "f16", "bf16", "f32"):
            out = r.merged(build.call("dtype_is", a=dtype.name, b=name), LARGEST[name], out)
        return out
    return LARGEST[dtype.name]


def _smallest(r: Reader, given: Signature) -> Value:
    dtype = r.dtype(given.args[0])
    if dtype.is_integer:
        return dtype.range[0]
    found = _largest(r, given)
    return -found if isinstance(found, (int, float)) else Num(build.negate(r.run(found)))


def _infinity(r: Reader, given: Signature) -> Value:
    dtype = r.dtype(given.args[0]) if given.args else None
    if dtype is None or dtype.is_symbolic:
        return math.inf if dtype is None else Num(build.cast(build.const(math.inf, F32), dtype))
    if not dtype.is_float:
        raise NotUnderstood(f"infinity of {dtype.name}")
    return Num(build.const(math.inf, dtype))


def _dtype(r: Reader, given: Signature) -> Value:
    return TypeOf(r.dtype(given.args[0]))


def _tensor(r: Reader, given: Signature) -> Value:
    args = [*given.args]
    memory = next((a for a in (*args, given.named.get("data")) if isinstance(a, Memory)), None)
    if memory is not None:
        others = [a for a in args if a is not memory]
        return reshaped(r, Signature([memory, *others], {k: v for k, v in given.named.items() if k in ("shape", "dtype")}))
    for key in ("shape", "strides", "dtype"):
        if key in given.named:
            args.append(given.named[key])
    if "strides" in given.named and "dtype" in given.named and len(given.args) == 1:
        return tensor_type([given.args[0], given.named["strides"], given.named["dtype"]])
    return tensor_type(args)


def _empty(r: Reader, given: Signature) -> Value:
    """`T.empty(shape, dtype)` in an eager kernel: a tensor that it gives back."""
    args = list(given.args)
    dtype = given.named.get("dtype", args.pop() if args and isinstance(args[-1], (TypeOf, str, Open)) and len(args) > 1 else "float32")
    shape = args[0] if len(args) == 1 else Items(tuple(args))
    if r.launched:
        raise NotUnderstood("a tensor made inside a kernel")
    name = r.out.fresh(r.wanted or "out")
    return declared(r, name, TensorType(shape.items if isinstance(shape, Items) else (shape,), dtype))


def _kernel(r: Reader, given: Signature) -> Value:
    return Launch(tuple(given.args), tuple(given.named.items()))


def _swizzle(r: Reader, given: Signature) -> Value:
    panel = r.option(given.args[0] if given.args else given.named.get("panel_size", 0))
    order = given.args[1] if len(given.args) > 1 else given.named.get("order", "row")
    enable = r.truth(given.args[2] if len(given.args) > 2 else given.named.get("enable", True))
    if not isinstance(order, str):
        raise NotUnderstood("an order of the raster that the binding decides")
    if enable is not False:
        r.attrs["raster_panel"] = panel
        r.attrs["raster_order"] = order
    if not isinstance(enable, bool):
        r.attrs["raster_when"] = said(enable)
    return None


def _min_blocks(r: Reader, given: Signature) -> Value:
    r.attrs["min_ctas"] = r.option(given.args[0] if given.args else next(iter(given.named.values()), None))
    return None


def _frame(r: Reader, given: Signature) -> Value:
    """`KernelLaunchFrame.Current()`: the launch that stands around a macro."""
    if not r.launched:
        raise NotUnderstood("the launch around a macro, where there is none")
    return Builtin(f"{LANGUAGE}.launch_frame")


def _frame_threads(r: Reader, given: Signature) -> Value:
    """Threads of the launch along x, y and z."""
    shape = r.thread_shape or (r.threads,)
    return Listed([*(Num(x) if build.int_value(x) is None else build.int_value(x) for x in shape), *[1] * (3 - len(shape))])


def _itself(r: Reader, given: Signature) -> Value:
    """`T.meta_var(x)`: x, written again wherever its name is used."""
    return given.args[0]


def _role_registers(name: str, default: int) -> Word:
    """`T.annotate_producer_reg_dealloc(n)`: registers of the roles that TileLang's own warp specialization makes."""
    def made(r: Reader, given: Signature) -> Value:
        r.attrs[name] = r.option(given.args[0] if given.args else given.named.get("reg_count", default))
        return None

    return made


def _global(r: Reader, given: Signature) -> Value:
    """`T.alloc_global(shape, dtype)`: memory of the launch, for what one kernel of the function leaves to the next."""
    shape, dtype = given.args[0], given.args[1]
    if r.launched:
        raise NotUnderstood("global memory declared inside a kernel")
    made = declared(r, r.out.fresh(r.wanted or "workspace"), TensorType(shape.items if isinstance(shape, Items) else (shape,), dtype))
    assert isinstance(made, Memory)
    r.params.pop()
    r.workspaces.append(n.Workspace(made.buffer))
    return made


def _align(r: Reader, given: Signature) -> Value:
    a, b = r.settled(given.args[0]), r.settled(given.args[1])
    return arithmetic.binary("mul", arithmetic.binary("ceildiv", a, b, r.run), b, r.run)


def _option(name: str) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        r.attrs[name] = True
        return None

    return made


def _const(r: Reader, given: Signature) -> Value:
    """`T.const("M, N")` in an eager kernel: sizes of the problem. Of a number (TVM's own `const`) the number, of its dtype."""
    value = r.settled(given.args[0]) if given.args else None
    if is_number(value) or isinstance(value, (Num, Open)):
        dtype = r.dtype(given.args[1]) if len(given.args) > 1 else F32 if isinstance(value, float) else I32
        return Num(arithmetic.valued(value, dtype) or convert(r.run(value), dtype))
    return _dynamic(r, given)


def _let_place(r: Reader, given: Signature) -> Value:
    value = r.decided(given.args[0])
    return Num(r.run(value)) if isinstance(value, Place) else value


def _i64(r: Reader, given: Signature) -> Value:
    return TypeOf(I64)


WORDS: Mapping[str, Word] = {
    "dynamic": _dynamic, "symbolic": _dynamic, "const": _const, "ceildiv": _ceildiv, "cdiv": _ceildiv, "align_up": _align,
    "floordiv": _binary("floordiv"), "floormod": _binary("mod"), "truncdiv": _binary("tdiv"), "truncmod": _binary("trem"),
    "min": _binary("min"), "max": _binary("max"), "Div": _binary("tdiv"), "Mod": _binary("trem"), "Max": _binary("max"),
    "Min": _binary("min"), "FloorDiv": _binary("floordiv"), "FloorMod": _binary("mod"), "Add": _binary("add"), "Sub": _binary("sub"),
    "Mul": _binary("mul"), "LT": _binary("lt"), "LE": _binary("le"), "GT": _binary("gt"), "GE": _binary("ge"), "EQ": _binary("eq"),
    "NE": _binary("ne"), "bitwise_and": _binary("and"), "bitwise_or": _binary("or"), "bitwise_xor": _binary("xor"),
    "shift_left": _binary("shl"), "shift_right": _binary("shr"),
    "kernel.KernelLaunchFrame.Current": _frame, "launch_frame.get_thread_extents": _frame_threads, "meta_var": _itself,
    "max_value": _largest, "min_value": _smallest, "infinity": _infinity, "dtype": _dtype, "Tensor": _tensor, "StridedTensor": _tensor,
    "Buffer": _tensor, "empty": _empty, "im2col": im2col, "c2d_im2col": im2col,
    "alloc_global": _global, "annotate_producer_reg_dealloc": _role_registers("producer_registers", 24),
    "annotate_consumer_reg_alloc": _role_registers("consumer_registers", 240),
    "Kernel": _kernel, "ClusterKernel": _kernel, "use_swizzle": _swizzle, "annotate_min_blocks_per_sm": _min_blocks,
    "no_set_max_nreg": _option("no_set_max_nreg"), "disable_warp_group_reg_alloc": _option("no_set_max_nreg"), "likely": _let_place,
    **MATH, **MEMORY, **TILES, **SYNCHRONIZATION, **ATOMICS, **NOTES, **POINTERS, **REDUCERS,
}  # fmt: skip
