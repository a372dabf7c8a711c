"""Calls of Triton's own functions and of methods of values. Elementwise math comes from the instruction table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.dtype_terms import int_like, join, quotient, rounded, uint_like
from kir.ir.types import BOOL, F32, F64, I32, I64, U8, DType, dtype_of, symbolic

from ..host.element_functions import element_row
from ..host.known_packages import CALLS, CAPABILITY
from ..host.python_functions import HOST_CALLS
from ..state import joins
from ..state.arithmetic import arithmetic, converted
from ..state.state import State
from ..types.shapes import DUNDER, dtype_question
from ..values import operators
from ..values.arguments import Arguments
from ..values.values import (
    BlockPointer,
    Builtin,
    Choice,
    Descriptor,
    Host,
    Items,
    Mixed,
    ModuleValue,
    NotUnderstood,
    Pointer,
    Refused,
    Run,
    Static,
    TypeOf,
    Value,
    describe,
    is_known,
    is_number,
    items_of,
    unfit,
)
from . import asm, memory, random, reductions, scaled, tiles
from .hints import assume, barrier, dependency, hint, identity, nothing
from .libdevice import rounding_call

Handler = Callable[[State, Arguments], Value]
MOST_NUMBERS = 1 << 16
"""How far a range that is written out may reach."""


def builtin_call(r: State, name: str, a: Arguments) -> Value:
    """A call of a builtin by its dotted name."""
    word = name.rsplit(".", 1)[-1]
    package = name.split(".")[0]
    if package == "builtins" or package == "math":
        return _python(r, name, word, a)
    if package != "triton":
        if name in CALLS:
            return CALLS[name]
        raise NotUnderstood(f"a call of {name}")
    if word in ("max", "min") and (".math." in name or "libdevice" in name):  # of two numbers, as libdevice has it; those of `tl` reduce
        return order(r, word, a.need(0, "arg0"), a.need(1, "arg1"))
    if "libdevice" not in name and word in HANDLERS:
        return HANDLERS[word](r, a)
    row = element_row(name, word)
    if row == "mulhi":
        return _unsigned_mulhi(r, [*a.args, *(a.named[k] for k in ("x", "y") if k in a.named)])
    if row is not None:
        return elementwise(r, row, [*a.args, *(a.named[k] for k in ("x", "y", "z") if k in a.named)])
    if ("libdevice" in name or ".math." in name) and (made := rounding_call(word, a)) is not None:
        return made
    if word in HANDLERS:
        return HANDLERS[word](r, a)
    raise NotUnderstood(f"there is no meaning for {name}")


def _python(r: State, name: str, word: str, a: Arguments) -> Value:
    if all(is_known(v) for v in a.args) and name in HOST_CALLS and a.args:
        made = r.root.evaluate_call(name, a.args)
        return made
    if word == "len":
        return len(items_of(a.need(0, "obj")))
    if word in ("min", "max") and len(a.args) > 1:
        out = a.args[0]
        for v in a.args[1:]:
            out = order(r, word, out, v)
        return out
    if word in ("int", "float", "bool") and is_number(a.need(0, "x")):
        v = a.args[0]
        dtype = {"int": I32, "float": F32, "bool": BOOL}[word]
        return operators.truth(v) if word == "bool" else operators.folded(operators.number(v, dtype))
    if word == "float" and isinstance(a.args[0], str):
        try:
            return float(a.args[0])
        except ValueError:
            raise NotUnderstood(f"the number '{a.args[0]}'") from None
    if word == "abs":
        return elementwise(r, "abs", a.args)
    if word in ("range", "static_range"):
        ends = [operators.known_int(v, "a range") for v in a.args]
        if not 1 <= len(ends) <= 3 or ends[2:] == [0] or max(map(abs, ends)) > MOST_NUMBERS:
            raise NotUnderstood(f"'{word}' of {', '.join(map(str, ends)) or 'nothing'}")
        return Items(tuple(range(*ends)))
    if word == "getattr" and len(a.args) == 2 and isinstance(a.args[1], str) and isinstance(a.args[0], (Builtin, Host, ModuleValue)):
        return r.root.attribute(a.args[0], a.args[1])
    if word in ("tuple", "list"):
        return Items(items_of(a.need(0, "x")))
    if word == "zip":
        return Items(tuple(Items(t) for t in zip(*(items_of(v) for v in a.args))))
    if word == "sum":
        out = 0
        for v in items_of(a.args[0]):
            out = arithmetic(r, "add", out, v)
        return out
    if word in ("log2", "sqrt", "exp", "log", "floor", "ceil") and len(a.args) == 1 and isinstance(a.args[0], Run):
        return elementwise(r, {"sqrt": "sqrt_approx"}.get(word, word), a.args)
    if word in ("log2", "sqrt") and isinstance(a.args[0], Static):
        return Static(build.call(word, operators.number(a.args[0], F32)))
    if word == "isinstance":
        kind = a.args[1] if len(a.args) > 1 else None
        if isinstance(kind, Builtin) and kind.name.endswith(".constexpr"):
            return is_number(a.args[0]) or is_known(a.args[0]) or isinstance(a.args[0], TypeOf)
        if isinstance(kind, Builtin) and (of := _CLASSES.get(kind.name.rpartition(".")[2])) is not None:
            return isinstance(a.args[0], of)
        raise NotUnderstood("isinstance")
    if word in ("pi", "inf"):
        return {"pi": math.pi, "inf": math.inf}[word]
    raise NotUnderstood(f"a call of {name}")


def elementwise(r: State, row: str, args: list[Value]) -> Value:
    """A row of the instruction table on values of one dtype. Integers given to a float function become f32."""
    if not args:
        raise NotUnderstood(f"'{row}' without operands")
    dtype: DType | None = None
    for v in args:
        if isinstance(v, Run):
            dtype = v.dtype if dtype is None else join(dtype, v.dtype)
    if dtype is None:
        if all(isinstance(v, (int, float)) for v in args) and row in ("abs",):
            return abs(args[0])  # type: ignore[arg-type]  # a number, checked in the condition
        dtype = F32
    exact = row in ("abs", "mulhi", "popc", "clz", "ffs", "brev", "prmt", "isnan", "isinf", "isfinite", "fma", "copysign")
    if not exact and (dtype.is_integer or dtype.is_bool):
        dtype = F32
    operands = [operators.run(v, dtype) for v in args]
    for x in operands[1:]:
        operators.shapes(operands[0], x)
    made = build.call(row, *operands)
    counted = asm.counted_bits(made, made)
    assert isinstance(counted, n.Expr)
    return Run(counted)


def _unsigned_mulhi(r: State, args: list[Value]) -> Value:
    """`tl.umulhi`: the high half of a product of the operands' bits, of whatever sign they are."""
    made = elementwise(r, "mulhi", args)
    if not isinstance(made, Run) or made.dtype.name.startswith("u"):
        return made
    dtype = uint_like(made.dtype)
    assert isinstance(made.expr, n.Call)
    return Run(build.cast(build.call("mulhi", *(build.cast(x, dtype) for x in made.expr.args if isinstance(x, n.Expr))), made.dtype))


def order(r: State, op: str, a: Value, b: Value, nan: Value = None) -> Value:
    """`maximum`, `minimum`; bf16 is computed in f32, as Triton does, and a literal is i32 or f32 whatever is beside it (its `to_tensor`)."""
    if is_number(a) and is_number(b) and is_known(a) and is_known(b):
        return max(a, b) if op == "max" else min(a, b)  # type: ignore[type-var]  # numbers
    if is_number(a) and is_number(b):
        da, db = operators.number_dtype(a), operators.number_dtype(b)
        dtype = join(da, db)
        return operators.folded(build.binary(op, operators.number(a, dtype), operators.number(b, dtype)))
    if not ((isinstance(a, Run) or is_number(a)) and (isinstance(b, Run) or is_number(b))):
        raise unfit(f"'{op}' of {describe(a)} and {describe(b)}", a, b)
    dtype = rounded(join(*(operators.number_dtype(v) if is_number(v) else dtype_of(operators.run(v).type) for v in (a, b))))
    ea, eb = operators.shapes(*(build.cast(operators.run(v), dtype) if dtype == F64 else operators.run(v, dtype) for v in (a, b)))
    if isinstance(nan, Builtin) and nan.name.endswith(".ALL"):
        return Run(build.call(f"{op}_nan", ea, eb))
    return Run(build.binary(op, ea, eb))


# ---------------------------------------------------------------------------------------------------------- elementwise, dtype


def _cast(r: State, v: Value, to: Value, bitcast: Value = False, rounding: Value = None) -> Value:
    if isinstance(to, TypeOf) and to.pointer:
        if isinstance(v, Pointer):
            return reinterpret_pointer(r, v, to.dtype)
        if isinstance(v, (Run, Static, int)):
            return _at_address(r, v, to.dtype)
    dtype = tiles.dtype_given(to)
    if isinstance(v, Pointer):
        for like in (x for x in r.frame.env.values() if dtype.is_symbolic and isinstance(x, Run) and x.dtype == dtype):
            memory.note_pointer(r, like)  # what is given the type of a value becomes a pointer: so is that value
        if dtype.bits != I64.bits:
            raise NotUnderstood(f"an address as {dtype}")
        v, bitcast = _address_of(r, v), False
    if bitcast is True:
        e = operators.run(v)
        if not (dtype.is_symbolic or dtype_of(e.type).is_symbolic) and dtype.bits != dtype_of(e.type).bits:
            raise NotUnderstood(f"the bits of {dtype_of(e.type)} as {dtype}")
        return Run(build.cast(e, dtype, "bits"))
    if bitcast is not False and bitcast is not None:
        raise NotUnderstood("a bitcast that the binding decides")
    if isinstance(rounding, str) and rounding == "rtz":
        return Run(build.cast(operators.run(v), dtype, "rz"))
    return converted(v, dtype)


def _load(r: State, a: Arguments) -> Value:
    """`tl.load`; where a setting says whether it is volatile, it is two loads."""
    said = a.named.get("volatile")
    if not isinstance(said, Static):
        return memory.load(r, a)
    return joins.over(r, (Choice(operators.as_bool(said.expr), True, False),), lambda v: memory.load(r, Arguments(a.args, {**a.named, "volatile": v})))


def _at_address(r: State, v: Run | Static | int, dtype: DType) -> Pointer:
    """The pointer to what lies at an address: an element of all memory, which is a parameter that its callers do not give."""
    if r.memory is None:
        r.memory = n.Buffer(r.out.own("memory"), U8, (n.Var(r.out.own("memory.extent"), I64),), "global")
    e = operators.run(v)
    if not dtype_of(e.type).is_integer and not dtype_of(e.type).is_symbolic:
        raise Refused("an address made of a number that is no integer")
    place = build.cast(e, I64)
    return reinterpret_pointer(r, Pointer(r.memory, () if build.int_value(place) == 0 else (place,)), dtype)


def _address_of(r: State, p: Pointer) -> Run:
    """The address that a pointer is: that of its tensor's first element, a number that only a launch gives, and as many bytes as it is moved."""
    of = p.base.dtype
    each = build.floordiv(build.call("dtype_bits", term=of.name), 8) if of.is_symbolic else build.const(of.bytes)
    moved = build.mul(*operators.shapes(build.cast(operators.flat(p), I64), build.cast(each, I64)))
    root = r.aliases.get(p.base.name, p.base.name)
    if r.memory is not None and root == r.memory.name:
        return Run(moved)
    start = n.Var(r.addresses.setdefault(root, r.out.own(f"{root}.address")), I64)
    return Run(build.add(*operators.shapes(start, moved)) if p.terms else start)


def reinterpret_pointer(r: State, p: Pointer, dtype: DType) -> Pointer:
    """The same address with elements of another dtype."""
    if dtype == p.base.dtype:
        return p
    old = p.base.dtype
    if old.is_symbolic and dtype.is_symbolic:
        raise NotUnderstood("a pointer reinterpreted at a width that the binding decides")
    shape = (build.floordiv(*_rescaled(p.base.shape[0], old, dtype)),)
    buffer = n.Buffer(r.out.fresh(f"{p.base.name}_{dtype.name}"), dtype, shape, "global")
    if p.base == r.memory:
        buffer = r.views.setdefault(dtype, buffer)
    else:
        r.out.emit(n.View(buffer, n.Region(p.base)))
    r.aliases[buffer.name] = p.base.name
    if not p.terms:
        return Pointer(buffer)
    # An address between two elements of the new dtype is none that the hardware reads at, so the division leaves no rest.
    flat = build.cast(operators.flat(p), I64)
    count, into = operators.shapes(*_rescaled(r.out.let("moved", flat) if old.is_symbolic else flat, old, dtype))
    return Pointer(buffer, (operators.truncating("floordiv", count, into, r.counts),))


def _rescaled(count: n.Expr, old: DType, new: DType) -> tuple[n.Expr, n.Expr]:
    """So many elements of one dtype, counted in elements of another: what is to be divided by what."""
    if not old.is_symbolic and not new.is_symbolic:
        return build.mul(count, old.bytes), build.const(new.bytes, dtype_of(count.type))
    wide = [build.cast(build.call("dtype_bits", term=d.name) if d.is_symbolic else build.const(d.bits, I32), I64) for d in (old, new)]
    return build.mul(build.cast(count, I64), wide[0]), wide[1]


def _where(r: State, a: Arguments) -> Value:
    cond, x, y = a.need(0, "condition"), a.need(1, "x"), a.need(2, "y")
    if isinstance(x, Pointer) and isinstance(y, Pointer) and x.base == y.base:
        c = operators.as_bool(operators.run(cond))
        return Pointer(x.base, (build.select(c, build.cast(operators.flat(x), I64), build.cast(operators.flat(y), I64)),))
    if isinstance(x, Pointer) and isinstance(y, Pointer) and isinstance(cond, Run) and not cond.shape:
        return Choice(joins.condition_of(r, operators.as_bool(cond.expr)), x, y, False)
    if isinstance(x, Pointer) and isinstance(y, Pointer) and isinstance(cond, Run):
        return Mixed(r.out.let("cond", operators.as_bool(cond.expr)), x, y)
    if is_number(x) and is_number(y):
        dx, dy = operators.number_dtype(x), operators.number_dtype(y)
        dtype = join(dx, dy)
    elif (isinstance(x, Run) or is_number(x)) and (isinstance(y, Run) or is_number(y)):
        dtype = operators.common(x, y)
    else:
        raise unfit(f"where of {describe(x)} and {describe(y)}", x, y)
    c = operators.as_bool(operators.run(cond))
    ex, ey = operators.shapes(operators.run(x, dtype), operators.run(y, dtype))
    c, ex = operators.shapes(c, ex)
    c, ey = operators.shapes(c, ey)
    c, ex = operators.shapes(c, ex)
    return Run(build.select(c, ex, ey))


def _clamp(r: State, a: Arguments) -> Value:
    return order(r, "min", order(r, "max", a.need(0, "x"), a.need(1, "min")), a.need(2, "max"))


def _fdiv(r: State, a: Arguments) -> Value:
    x, y = a.need(0, "x"), a.need(1, "y")
    return operators.binary("div", x, y)


def _div_rn(r: State, a: Arguments) -> Value:
    return operators.binary("div", a.need(0, "x"), a.need(1, "y"))


def _div_rz(r: State, a: Arguments) -> Value:
    x, y = a.need(0, "x"), a.need(1, "y")
    dtype = operators.common(x, y)
    dtype = quotient(dtype)
    return Run(build.call("div_rz", *operators.shapes(operators.run(x, dtype), operators.run(y, dtype))))


def _cdiv(r: State, a: Arguments) -> Value:
    x, y = a.need(0, "x"), a.need(1, "div")
    if is_number(x) and is_number(y):
        if isinstance(x, int) and isinstance(y, int):
            return -(-x // y)
        return operators.folded(build.ceildiv(operators.number(x, I32), operators.number(y, I32)))
    dtype = operators.common(x, y)
    ex, ey = operators.shapes(operators.run(x, dtype), operators.run(y, dtype))
    if operators.not_negative(ex, r.counts) and operators.not_negative(ey, r.counts):
        return Run(build.ceildiv(ex, ey))
    return operators.binary("floordiv", operators.binary("add", Run(ex), operators.binary("sub", Run(ey), 1)), Run(ey), r.counts)


def _binary(op: str, r: State, a: Arguments) -> Value:
    return arithmetic(r, op, a.need(0, "x"), a.need(1, "y"))


def _logical(op: str, r: State, a: Arguments) -> Value:
    return operators.logical(op, operators.truth(a.need(0, "input")), operators.truth(a.need(1, "other")))


def _constexpr(r: State, a: Arguments) -> Value:
    return a.need(0, "value")


def _swizzle(r: State, a: Arguments) -> Value:
    i, j, rows, columns, group = (a.need(k, x) for k, x in enumerate(("i", "j", "size_i", "size_j", "size_g")))
    ij = arithmetic(r, "add", arithmetic(r, "mul", i, columns), j)
    per_group = arithmetic(r, "mul", group, columns)
    first = arithmetic(r, "mul", arithmetic(r, "floordiv", ij, per_group), group)
    height = order(r, "min", arithmetic(r, "sub", rows, first), group)
    inside = arithmetic(r, "mod", ij, per_group)
    return Items((arithmetic(r, "add", first, arithmetic(r, "mod", inside, height)), arithmetic(r, "floordiv", inside, height)))


# -------------------------------------------------------------------------------------------------------------- descriptors


def _descriptor(v: Value) -> Descriptor:
    if isinstance(v, Descriptor):
        return v
    raise unfit(f"{describe(v)} where a tensor descriptor is needed", v)


def _descriptor_load(r: State, a: Arguments) -> Value:
    return memory.descriptor_load(r, _descriptor(a.need(0, "desc")), a.need(1, "offsets"))


def _descriptor_store(r: State, a: Arguments) -> Value:
    return memory.descriptor_store(r, _descriptor(a.need(0, "desc")), a.need(2, "offsets"), a.need(1, "value"))


HANDLERS: Mapping[str, Handler] = {
    "inline_asm_elementwise": asm.inline_asm,
    "program_id": tiles.program_id,
    "num_programs": tiles.num_programs,
    "arange": tiles.arange,
    "full": tiles.full,
    "zeros": tiles.zeros,
    "zeros_like": tiles.zeros_like,
    "ones_like": partial(tiles.zeros_like, value=1),
    "full_like": tiles.zeros_like,
    "load": _load,
    "store": memory.store,
    "make_block_ptr": memory.make_block_ptr,
    "advance": memory.advance,
    "make_tensor_descriptor": memory.make_descriptor,
    "_experimental_make_tensor_descriptor": memory.make_descriptor,
    "_experimental_descriptor_load": _descriptor_load,
    "_experimental_descriptor_store": _descriptor_store,
    "load_tensor_descriptor": _descriptor_load,
    "store_tensor_descriptor": lambda r, a: memory.descriptor_store(r, _descriptor(a.need(0, "desc")), a.need(1, "offsets"), a.need(2, "value")),
    "dot": reductions.dot,
    "dot_scaled": scaled.dot_scaled,
    "sum": reductions.total,
    "max": lambda r, a: reductions.extreme(r, "max", a),
    "min": lambda r, a: reductions.extreme(r, "min", a),
    "argmax": lambda r, a: reductions.position(r, "max", a),
    "argmin": lambda r, a: reductions.position(r, "min", a),
    "xor_sum": lambda r, a: reductions.logical_reduce(r, "xor", a),
    "reduce_or": lambda r, a: reductions.logical_reduce(r, "or", a),
    "cumsum": lambda r, a: reductions.cumulated(r, "sum", a),
    "cumprod": lambda r, a: reductions.cumulated(r, "prod", a),
    "reduce": lambda r, a: reductions.combined(r, False, a),
    "associative_scan": lambda r, a: reductions.combined(r, True, a),
    "softmax": reductions.softmax,
    "flip": reductions.flip,
    "gather": reductions.gathered,
    "join": reductions.joined,
    "split": reductions.split,
    "cat": reductions.concatenated,
    "where": _where,
    "clamp": _clamp,
    "fdiv": _fdiv,
    "div_rn": _div_rn,
    "div_rz": _div_rz,
    "cdiv": _cdiv,
    "maximum": lambda r, a: order(r, "max", a.need(0, "x"), a.need(1, "y"), a.get(2, "propagate_nan")),
    "minimum": lambda r, a: order(r, "min", a.need(0, "x"), a.need(1, "y"), a.get(2, "propagate_nan")),
    "add": partial(_binary, "add"),
    "sub": partial(_binary, "sub"),
    "mul": partial(_binary, "mul"),
    "logical_and": partial(_logical, "and"),
    "logical_or": partial(_logical, "or"),
    "cuda_capability_geq": lambda r, a: tuple(operators.known_int(v, "a number") for v in (a.need(0, "major"), a.get(1, "minor", 0))) <= CAPABILITY,
    "is_cuda": lambda r, a: True,
    **dict.fromkeys(("is_hip", "is_hip_cdna3", "is_hip_cdna4", "is_xpu"), lambda r, a: False),
    "multiple_of": partial(hint, "multiple_of"),
    "max_contiguous": partial(hint, "max_contiguous"),
    "max_constancy": partial(hint, "max_constancy"),
    "assume": assume,
    "debug_barrier": barrier,
    "num_warps": lambda r, a: Static(n.Var(r.warps, I32)),
    "num_threads": lambda r, a: Static(build.mul(n.Var(r.warps, I32), 32)),
    "gdc_wait": partial(dependency, "grid_dependency_wait"),
    "gdc_launch_dependents": partial(dependency, "grid_dependency_launch"),
    **dict.fromkeys(("static_assert", "device_assert", "device_print", "static_print", "compile_hint"), nothing),
    "to_tensor": identity,
    "constexpr": _constexpr,
    "swizzle2d": _swizzle,
    "cast": lambda r, a: _cast(r, a.need(0, "input"), a.need(1, "dtype"), a.get(3, "bitcast", False), a.get(2, "fp_downcast_rounding")),
    "reshape": tiles.reshape,
    "view": tiles.reshape,
    "broadcast_to": tiles.broadcast_to,
    "broadcast": tiles.broadcast,
    "expand_dims": tiles.expand_dims,
    "trans": tiles.permute,
    "permute": tiles.permute,
    "ravel": tiles.ravel,
    "interleave": tiles.interleave,
    "sort": reductions.sort,
    "topk": reductions.topk,
    "histogram": reductions.histogram,
    "pointer_type": lambda r, a: TypeOf(tiles.dtype_given(a.need(0, "element_ty")), True),
    "randint": random.randint,
    "rand": random.rand,
    "randint4x": random.randint4x,
    "rand4x": random.rand4x,
    "uint_to_uniform_float": random.to_uniform,
    "philox": random.philox,
    "randn": random.randn,
    "pair_uniform_to_normal": random.pair_to_normal,
    "get_int_dtype": lambda r, a: _int_dtype(a),
    "next_power_of_2": lambda r, a: _power_of_2(a.need(0, "x")),
    "_log2": lambda r, a: _logarithm(a.need(0, "i")),
    **{word: partial(lambda w, r, a: memory.atomic(r, w, a), word) for word in (*memory.ATOMICS, "atomic_cas")},
}
"""Functions of `tl` that are no rows of the instruction table, by their last word."""


_CLASSES: Mapping[str, tuple[type, ...]] = {"tensor": (Run, Pointer), "tensor_descriptor": (Descriptor,), "tensor_descriptor_base": (Descriptor,),
                                            "dtype": (TypeOf,)}
"""Classes of `tl`, and what is an instance of them."""


def _power_of_2(v: Value) -> Value:
    if isinstance(v, Static):
        return Static(build.call("next_power_of_2", operators.number(v, I32)))
    return 1 << max(operators.known_int(v, "a size") - 1, 0).bit_length()


def _bit_length(v: Value) -> Value:
    """Of a whole number that is not negative."""
    if isinstance(v, Static):
        above = build.call("next_power_of_2", build.add(operators.number(v, I32), 1))
        return Static(build.cast(build.call("log2", build.cast(above, F32)), I32))
    return operators.known_int(v, "a number").bit_length()


def _logarithm(v: Value) -> Value:
    """The whole part of the logarithm to base 2 of a size; 0 of one that is not positive."""
    length = _bit_length(Static(build.binary("max", operators.number(v, I32), build.const(1))) if isinstance(v, Static) else v)
    return Static(build.sub(length.expr, 1)) if isinstance(length, Static) else max(operators.known_int(length, "a size") - 1, 0)


def _int_dtype(a: Arguments) -> Value:
    bits, signed = a.need(0, "bitwidth"), a.need(1, "signed")
    if isinstance(bits, int) and isinstance(signed, bool):
        return TypeOf(DType(f"{'i' if signed else 'u'}{bits}", "int" if signed else "uint", bits))
    if isinstance(bits, Static) and isinstance(bits.expr, n.Call) and bits.expr.fn == "dtype_bits" and isinstance(signed, bool):
        return TypeOf((int_like if signed else uint_like)(symbolic(str(dict(bits.expr.attrs)["term"]))))
    raise NotUnderstood("an integer dtype whose width the binding decides")


def method_call(r: State, owner: Value, name: str, a: Arguments) -> Value:
    """`owner.name(..)`."""
    if isinstance(owner, TypeOf) and name.startswith("is_"):
        if name in ("is_ptr", "is_block"):
            return owner.pointer if name == "is_ptr" else bool(owner.shape)
        return dtype_question(owner.dtype, name)
    if name == "to" or name == "cast":
        return _cast(r, owner, a.need(0, "dtype"), a.get(2, "bitcast", False), a.get(1, "fp_downcast_rounding"))
    if isinstance(owner, Descriptor):
        if name == "load":
            return memory.descriptor_load(r, owner, a.need(0, "offsets"))
        if name == "store":
            return memory.descriptor_store(r, owner, a.need(0, "offsets"), a.need(1, "value"))
        raise NotUnderstood(f"'{name}' of a tensor descriptor")
    if isinstance(owner, str) and name in ("startswith", "endswith") and isinstance(a.args[0], str):
        return owner.startswith(a.args[0]) if name == "startswith" else owner.endswith(a.args[0])
    if name in DUNDER and len(a.args) == 1 and not a.named:
        return arithmetic(r, DUNDER[name], owner, a.args[0])
    if name == "bit_length":
        return _bit_length(owner)
    if isinstance(owner, (Run, Pointer, BlockPointer)) or is_number(owner):
        return builtin_call(r, f"triton.language.{name}", Arguments([owner, *a.args], a.named))
    raise unfit(f"method '{name}' of {describe(owner)}", owner)
