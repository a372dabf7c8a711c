"""Reductions, scans and their combine functions, and matrix products."""

from __future__ import annotations

from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.dtype_terms import accumulated, precision_of, rounded, summed, widened
from kir.ir.types import F32, I32, DType, TileType, TupleType, broadcast_shapes, dtype_of, shape_of

from ..._python.signature import parameters
from ..state.inlining import inline
from ..state.state import State
from ..types.shapes import axis_of, filled, reshaped, shape_from, size, stretched
from ..values import operators
from ..values.arguments import Arguments
from ..values.emitter import as_expr, whole
from ..values.values import Builtin, Choice, Items, Jit, NotUnderstood, Run, Static, TypeOf, Value, describe, is_number

NAMED = {"add": "sum", "max": "max", "min": "min", "mul": "prod", "xor": "xor", "or": "or", "and": "and"}


def tile_of(v: Value, what: str) -> n.Expr:
    """The expression of a tile."""
    if isinstance(v, Run):
        return v.expr
    raise NotUnderstood(f"{what} of {describe(v)}")


def keep(v: Value) -> bool:
    """The option `keep_dims`."""
    if isinstance(v, bool):
        return v
    if v is None:
        return False
    raise NotUnderstood("'keep_dims' that the binding decides")


def along(r: State, e: n.Expr, axis: Value) -> tuple[n.Expr, int]:
    """The tile and axis of a reduction; without an axis the tile is flattened."""
    shape = shape_of(e.type)
    if axis is None:
        if len(shape) == 1:
            return e, 0
        return reshaped(e, (size(shape),)), 0
    if not shape:
        raise NotUnderstood("a reduction of a scalar")
    return e, axis_of(axis, len(shape))


def reduced(r: State, op: str, e: n.Expr, axis: Value, keep_dims: bool) -> Value:
    """A reduction by a named operation."""
    shape = shape_of(e.type)
    source, at = along(r, e, axis)
    options: dict[str, n.Attr] = {"op": op, "axis": at}
    if keep_dims and axis is not None:
        options["keep"] = True
    made: n.Expr = build.call_with("reduce", (source,), n.attrs(**options))
    if keep_dims and axis is None:
        made = filled(made, tuple(1 for _ in shape))
    return Run(made)


def total(r: State, a: Arguments) -> Value:
    """`tl.sum`."""
    e = tile_of(a.need(0, "input"), "the sum")
    dtype = a.get(3, "dtype")
    e = build.cast(e, dtype.dtype if isinstance(dtype, TypeOf) else summed(dtype_of(e.type)))
    return reduced(r, "sum", e, a.get(1, "axis"), keep(a.get(2, "keep_dims", False)))


def extreme(r: State, op: str, a: Arguments) -> Value:
    """`tl.max`, `tl.min`, with indices when asked."""
    e = tile_of(a.need(0, "input"), f"the {op}")
    indices = a.get(2, "return_indices", False)
    keep_dims = keep(a.get(4, "keep_dims", False))
    if indices is True:
        e = build.cast(e, rounded(dtype_of(e.type)))
        held = isinstance(e, n.Load) and e.at.buffer.space != "global" and e.mask is None  # a variable's value: it needs no second name
        e = e if held else r.out.let("input", e)
        both = [reduced(r, word, e, a.get(1, "axis"), keep_dims) for word in (op, f"arg{op}")]
        return Items(tuple(Run(r.out.let("found", tile_of(x, op))) for x in both) if held else tuple(both))
    if indices is not False:
        raise NotUnderstood("'return_indices' that the binding decides")
    return reduced(r, op, build.cast(e, widened(dtype_of(e.type))), a.get(1, "axis"), keep_dims)


def position(r: State, op: str, a: Arguments) -> Value:
    """`tl.argmax`, `tl.argmin`: ties take the lowest index, which satisfies either tie rule."""
    e = tile_of(a.need(0, "input"), f"the arg{op}")
    return reduced(r, f"arg{op}", build.cast(e, rounded(dtype_of(e.type))), a.need(1, "axis"), keep(a.get(3, "keep_dims", False)))


def logical_reduce(r: State, op: str, a: Arguments) -> Value:
    """`tl.xor_sum`, `tl.reduce_or`."""
    return reduced(r, op, tile_of(a.need(0, "input"), op), a.get(1, "axis"), keep(a.get(2, "keep_dims", False)))


def cumulated(r: State, op: str, a: Arguments) -> Value:
    """`tl.cumsum`, `tl.cumprod`."""
    e = tile_of(a.need(0, "input"), "the running value")
    e = build.cast(e, rounded(dtype_of(e.type)))
    if op == "sum":
        dtype = a.get(3, "dtype")
        e = build.cast(e, dtype.dtype if isinstance(dtype, TypeOf) else summed(dtype_of(e.type)))
    axis, reverse = a.get(1, "axis", 0), a.get(2, "reverse", False)
    reverse = operators.truth(reverse) if isinstance(reverse, Static) else reverse
    if isinstance(reverse, Static):
        return Choice(reverse.expr, Run(_scan(e, op, axis, True)), Run(_scan(e, op, axis, False)))
    return Run(_scan(e, op, axis, reverse))


def _scan(e: n.Expr, op: str, axis: Value, reverse: Value) -> n.Expr:
    if not isinstance(reverse, (bool, int)):
        raise NotUnderstood("'reverse' that the binding decides")
    options: dict[str, n.Attr] = {"op": op, "axis": axis_of(axis, len(shape_of(e.type)))}
    if reverse:
        options["reverse"] = True
    return build.call_with("scan", (e,), n.attrs(**options))


def combined(r: State, scan: bool, a: Arguments) -> Value:
    """`tl.reduce` and `tl.associative_scan` with a combine function."""
    given = a.need(0, "input")
    tiles = [tile_of(v, "the reduction") for v in (given.items if isinstance(given, Items) else (given,))]
    axis, fn = a.need(1, "axis"), a.need(2, "combine_fn")
    if isinstance(fn, Builtin):
        word = {"maximum": "max", "minimum": "min", "add": "sum", "mul": "prod"}.get(fn.name.rsplit(".", 1)[-1])
        if word is None:
            raise NotUnderstood(f"a reduction by {fn.name}")
        op: str | None = word
        name = ""
    elif isinstance(fn, Jit):
        op, name = combine_function(r, fn, tuple(dtype_of(t.type) for t in tiles))
    else:
        raise NotUnderstood(f"a reduction by {describe(fn)}")
    shape = tiles[0]
    for t in tiles[1:]:
        if shape_of(t.type) != shape_of(shape.type):
            raise NotUnderstood("a reduction of tiles of different shapes")
    if scan:
        reverse = a.get(3, "reverse", False)
        if op is not None and len(tiles) == 1:
            return Run(_scan(tiles[0], op, axis, reverse))
        options: dict[str, n.Attr] = {"combine": name, "axis": axis_of(axis, len(shape_of(shape.type)))}
        if reverse is True:
            options["reverse"] = True
        made = build.call_with("scan", tuple(tiles), n.attrs(**options))
    else:
        keep_dims = keep(a.get(3, "keep_dims", False))
        if op is not None and len(tiles) == 1:
            return reduced(r, op, tiles[0], axis, keep_dims)
        sources = [along(r, t, axis) for t in tiles]
        options = {"combine": name, "axis": sources[0][1]}
        if keep_dims:
            options["keep"] = True
        made = build.call_with("reduce", tuple(s for s, _ in sources), n.attrs(**options))
    if len(tiles) == 1:
        return Run(made)
    kinds = made.type
    assert isinstance(kinds, TupleType)
    parts = r.out.lets(tuple(f"part_{k}" for k in range(len(tiles))), made, kinds.elements)
    return Items(tuple(Run(p) for p in parts))


def _named(e: n.Expr, variables: list[n.Var]) -> str:
    """The named operation that a combination of two values is; "" for another. The larger of two that are made wider for it, and narrower again, is that."""
    if isinstance(e, n.Cast) and isinstance(e.x, n.Binary) and e.x.op in ("max", "min") and e.dtype == variables[0].type:
        sides = (e.x.a, e.x.b)
        if all(isinstance(x, n.Cast) and dtype_of(x.type).name == f"rounded({e.dtype.name})" for x in sides):
            e = n.Binary(e.x.op, *(x.x for x in sides if isinstance(x, n.Cast)))
    return NAMED.get(e.op, "") if isinstance(e, n.Binary) and {e.a, e.b} == set(variables) else ""


def combine_function(r: State, fn: Jit, dtypes: tuple[DType, ...]) -> tuple[str | None, str]:
    """A combine function: the named operation that it is, or the name of the device function made of it."""
    params = parameters(fn.node)
    if len(params) != 2 * len(dtypes):
        raise NotUnderstood(f"'{fn.node.name.value}' does not combine {len(dtypes)} values")
    key = f"{fn.node.name.value}:{','.join(d.name for d in dtypes)}"
    if key in r.combines:
        return r.combines[key]
    names = [r.out.fresh(f"{p.name.value}") for p in params]
    variables = [n.Var(x, d) for x, d in zip(names, (*dtypes, *dtypes), strict=True)]
    with r.out.capture() as body:
        value = inline(r, fn, [Run(v) for v in variables], {})
        results = [operators.run(v, d) for v, d in zip(value.items if isinstance(value, Items) else (value,), dtypes, strict=True)]
    if len(results) == 1 and not body and (word := _named(results[0], variables)):
        r.combines[key] = (word, "")
        return r.combines[key]
    body.append(n.Jump("return", tuple(results)))
    stem = fn.node.name.value
    while stem in table():  # a call of it would mean the instruction
        stem += "_"
    made = n.Function(r.out.fresh(stem), tuple(variables), dtypes, tuple(body), fn.module.origin(fn.node))
    r.functions[made.name] = made
    r.combines[key] = (None, made.name)
    return r.combines[key]


# ---------------------------------------------------------------------------------------------------------- matrix products


def dot(r: State, args: Arguments) -> Value:
    """`tl.dot(a, b, acc)`: an accumulator buffer and `mma`; f32 unless `out_dtype` or the operands say otherwise."""
    a, b = tile_of(args.need(0, "input"), "the product"), tile_of(args.need(1, "other"), "the product")
    acc = args.get(2, "acc")
    if len(shape_of(a.type)) != len(shape_of(b.type)) or len(shape_of(a.type)) < 2:
        raise NotUnderstood("a product of tiles of unusual rank")
    *batch, m, k = shape_of(a.type)
    *batch_b, k_b, columns = shape_of(b.type)
    if k != k_b and not (isinstance(k, int) and isinstance(k_b, int)):
        # The binding makes the two equal, or Triton refuses the kernel: to give b the rows of a then changes nothing.
        b = build.call("reshape", b, *map(as_expr, (*batch_b, k, columns)))
        k_b = k
    if k != k_b or batch != batch_b:
        raise NotUnderstood(f"a product of {operators.show(shape_of(a.type))} and {operators.show(shape_of(b.type))}")
    da, db = dtype_of(a.type), dtype_of(b.type)
    if da != db:
        if not (da.is_symbolic or db.is_symbolic):
            raise NotUnderstood(f"a product of {da} and {db}")
        # Triton takes operands of one dtype only: under every valid binding this conversion changes nothing.
        b = build.cast(b, da)
    out = args.get(6, "out_dtype")
    dtype = out.dtype if isinstance(out, TypeOf) and out.dtype.name != "f32" else accumulated(da)
    shape = (*batch, m, columns)
    init: n.Expr
    if acc is None:
        init = filled(operators.number(0, dtype) if not dtype.is_symbolic else build.cast(build.const(0.0, F32), dtype), shape)
    elif isinstance(acc, Run):
        dtype = acc.dtype
        init = stretched(acc.expr, shape)
    elif is_number(acc):
        init = filled(operators.run(acc, dtype), shape)
    else:
        raise NotUnderstood(f"a product accumulated in {describe(acc)}")
    a, b = r.out.let("a", a), r.out.let("b", b)
    buffer = r.out.buffer("product", dtype, shape)
    r.out.emit(n.Alloc(buffer, init))
    r.out.emit(n.Mma(n.Region(buffer), a, b, "auto", precision(args, da)))
    return Run(whole(buffer))


def precision(args: Arguments, dtype: DType) -> str:
    """How f32 operands are multiplied; a meta's name where the binding decides."""
    if not dtype.is_symbolic and dtype.name != "f32":
        return "ieee"
    given = args.get(3, "input_precision")
    tf32 = args.get(4, "allow_tf32")
    if isinstance(given, str):
        return {"ieee": "ieee", "tf32": "tf32", "tf32x3": "tf32x3", "bf16x3": "bf16x3", "bf16x6": "bf16x6"}.get(given, "tf32")
    for v in (given, tf32):
        if isinstance(v, Static):
            if isinstance(v.expr, n.Var):
                return precision_of(v.expr.name)
            raise NotUnderstood("the precision of a product depends on the binding")
    return "ieee" if tf32 is False or (tf32 == 0 and tf32 is not None) else "tf32"


# -------------------------------------------------------------------------------------------------------------- composites


def softmax(r: State, a: Arguments) -> Value:
    """`tl.softmax`."""
    x = r.out.let("x", tile_of(a.need(0, "x"), "the softmax"))
    dim = a.get(1, "dim", 0)
    axis = axis_of(0 if dim is None else dim, len(shape_of(x.type)))
    top = build.call("reduce", build.cast(x, widened(dtype_of(x.type))), op="max", axis=axis, keep=True)
    e = operators.binary("sub", Run(x), Run(top))
    assert isinstance(e, Run)
    num = r.out.let("numerator", build.call("exp", e.expr))
    den = build.call("reduce", num, op="sum", axis=axis, keep=True)
    return operators.binary("div", Run(num), Run(den))


def flip(r: State, a: Arguments) -> Value:
    """`tl.flip`: a tile in reverse order along an axis."""
    x = tile_of(a.need(0, "x"), "the flip")
    shape = shape_of(x.type)
    dim = a.get(1, "dim")
    axis = len(shape) - 1 if dim is None else axis_of(dim, len(shape))
    index: n.Expr = build.sub(build.const(-1), build.iota(shape[axis]))
    index = build.add(index, as_expr(shape[axis]))
    for k in range(len(shape)):
        if k != axis:
            index = build.expand(index, k)
    return Run(build.call("gather", x, stretched(index, shape), axis=axis))


def gathered(r: State, a: Arguments) -> Value:
    """`tl.gather(src, index, axis)`."""
    x, index = tile_of(a.need(0, "src"), "the gather"), tile_of(a.need(1, "index"), "the gather")
    return Run(build.call("gather", x, index, axis=axis_of(a.need(2, "axis"), len(shape_of(x.type)))))


def joined(r: State, a: Arguments) -> Value:
    """`tl.join(a, b)`: along a new last axis."""
    x, y = a.need(0, "a"), a.need(1, "b")
    dtype = operators.common(x, y)
    ex, ey = operators.run(x, dtype), operators.run(y, dtype)
    shape = broadcast_shapes(shape_of(ex.type), shape_of(ey.type))
    if shape is None:
        raise NotUnderstood("a join of tiles of different shapes")
    return Run(build.call("join", stretched(ex, shape), stretched(ey, shape)))


def split(r: State, a: Arguments) -> Value:
    """`tl.split`: the inverse of join."""
    made = build.call("split", tile_of(a.need(0, "a"), "the split"))
    kinds = made.type
    assert isinstance(kinds, TupleType)
    x, y = r.out.lets(("first", "second"), made, kinds.elements)
    return Items((Run(x), Run(y)))


def concatenated(r: State, a: Arguments) -> Value:
    """`tl.cat(a, b, dim=0)`."""
    x, y = tile_of(a.need(0, "input"), "the concatenation"), tile_of(a.need(1, "other"), "the concatenation")
    shape = list(shape_of(x.type))
    axis = axis_of(a.get(3, "dim", 0), len(shape))
    if len(shape) == 1 and isinstance(shape[0], int):
        return Run(build.call("cat", x, y, axis=0))
    both = build.call("join", x, y)  # a half of the extent each, or Triton refuses it
    order = [*range(axis), len(shape), *range(axis, len(shape))]
    shape[axis] = size((shape[axis], 2))
    return Run(reshaped(build.call("trans", both, *map(build.const, order)), tuple(shape)))


def sort(r: State, a: Arguments) -> Value:
    """`tl.sort`."""
    e = tile_of(a.need(0, "x"), "the sort")
    dim, descending = a.get(1, "dim"), a.get(2, "descending", False)
    rank = len(shape_of(e.type))
    options: dict[str, n.Attr] = {"axis": rank - 1 if dim is None else axis_of(dim, rank)}
    if isinstance(descending, Static):
        raise NotUnderstood("the order of a sort depends on the binding")
    if descending:
        options["descending"] = True
    return Run(build.call_with("sort", (e,), n.attrs(**options)))


def topk(r: State, a: Arguments) -> Value:
    """`tl.topk`: the first k of the values along an axis, in descending order."""
    e = tile_of(a.need(0, "x"), "the sort")
    (count,), dim = shape_from((a.need(1, "k"),)), a.get(2, "dim")
    shape = shape_of(e.type)
    axis = len(shape) - 1 if dim is None else axis_of(dim, len(shape))
    first: n.Expr = build.iota(count)
    for _ in range(axis):
        first = build.expand(first, 0)
    for at in range(axis + 1, len(shape)):
        first = build.expand(first, at)
    at_most = (*shape[:axis], count, *shape[axis + 1:])
    return Run(build.call("gather", build.call("sort", e, axis=axis, descending=True), build.broadcast(first, TileType(I32, at_most)), axis=axis))


def histogram(r: State, a: Arguments) -> Value:
    """`tl.histogram`: how often each of 0, 1, .., bins - 1 occurs."""
    e = tile_of(a.need(0, "input"), "the histogram")
    (bins,) = shape_from((a.need(1, "num_bins"),))
    mask = a.get(2, "mask")
    hit = build.compare("eq", build.expand(e, 0), build.cast(build.expand(build.iota(bins), 1), dtype_of(e.type)))
    if mask is not None:
        hit = build.logical_and(hit, build.expand(operators.as_bool(operators.run(mask)), 0))
    return Run(build.call("reduce", build.cast(hit, I32), op="sum", axis=1))
