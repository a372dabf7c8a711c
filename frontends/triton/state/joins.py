"""Values after a branch: one value where both arms agree on what it is, a buffer that each arm fills, or a static choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import BOOL, I64, DType, TileType, dtype_of, shape_of, symbolic
from kir.ir.visit import walk

from ..values.emitter import as_expr, buffer_read, condition_text, mentions, whole
from ..values.operators import common, flat, folded, literal_dtype, number, number_dtype, pointer_shape, run, shapes
from ..values.values import (
    BlockPointer,
    Choice,
    Descriptor,
    Items,
    Mixed,
    NotUnderstood,
    Pointer,
    Refused,
    Run,
    Shape,
    Static,
    TypeOf,
    Undefined,
    Unknown,
    Value,
    describe,
    is_number,
)
from .state import State

Arm = tuple[Value, list[n.Stmt]]


def static_branch(r: State, cond: n.Expr, a: Callable[[], Value], b: Callable[[], Value], name: str = "x", static: bool = True) -> Value:
    """`a()` where `cond` holds, which is static or the name of a value, else `b()`; what they emit goes under an if. Of two static arms one that Triton
    refuses is never taken."""
    decided = r.paths.decide(cond)
    if decided is not None:
        return a() if decided else b()
    try:
        with r.paths.under(cond, True), r.out.capture() as block_a:
            va = a()
    except Refused:
        if not static:
            raise
        with r.paths.under(cond, False):
            return b()
    try:
        with r.paths.under(cond, False), r.out.capture() as block_b:
            vb = b()
    except Refused:
        if not static:
            raise
        for s in block_a:
            r.out.emit(s)
        return va
    made = merge(r, cond, (va, block_a), (vb, block_b), static, name)
    if block_a or block_b:
        emit_if(r, cond, block_a, block_b, static)
    return made


def choose(r: State, cond: Run, a: Callable[[], Value], b: Callable[[], Value], name: str = "x") -> Value:
    """`a()` or `b()` by a run-time scalar; an if where they emit or read memory, a select otherwise."""
    if cond.shape:
        raise NotUnderstood("a branch on a tile")
    with r.out.capture() as block_a:
        va = a()
    with r.out.capture() as block_b:
        vb = b()
    if not block_a and not block_b and _is_numeric(va) and _is_numeric(vb) and not _loads(va) and not _loads(vb):
        dtype = common(va, vb) if isinstance(va, Run) or isinstance(vb, Run) else None
        ea, eb = run(va, dtype), run(vb, dtype)
        if dtype is None and ea.type != eb.type:
            raise NotUnderstood("a conditional of literals of two dtypes")
        return Run(build.select(cond.expr, ea, eb))
    test = r.out.let("cond", cond.expr)
    made = merge(r, test, (va, block_a), (vb, block_b), False, name)
    emit_if(r, test, block_a, block_b, False)
    return made


def _is_numeric(v: Value) -> bool:
    """A number, run-time or static."""
    return isinstance(v, Run) or is_number(v)


def _loads(v: Value) -> bool:
    return isinstance(v, Run) and any(isinstance(x, n.Load) and buffer_read(x) is None for x in walk(v.expr))


def emit_if(r: State, cond: n.Expr, then: list[n.Stmt], orelse: list[n.Stmt], static: bool) -> None:
    """An if; an empty then-arm is turned round."""
    if not then and orelse:
        cond, then, orelse = build.invert(cond), orelse, then
    if then:
        r.out.emit(n.If(cond, tuple(then), tuple(orelse), static))


def over(r: State, values: tuple[Value, ...], fn: Callable[..., Value]) -> Value:
    """`fn(*values)`, with every static choice among the values decided or distributed over."""
    for i, v in enumerate(values):
        if isinstance(v, Unknown):
            raise NotUnderstood(v.reason)
        if isinstance(v, Choice):

            def arm(x: Value, i: int = i) -> Callable[[], Value]:
                return lambda: over(r, (*(settled(r, y) for y in values[:i]), x, *(settled(r, y) for y in values[i + 1 :])), fn)

            return static_branch(r, v.cond, arm(v.a), arm(v.b), static=v.static)
        if isinstance(v, Mixed):
            return _each(r, v, lambda x, i=i: over(r, (*values[:i], x, *values[i + 1 :]), fn))  # type: ignore[misc]  # the default binds i
        if isinstance(v, Items) and any(isinstance(x, Choice) for x in v.items):

            def spread(*items: Value, i: int = i, v: Items = v) -> Value:
                return over(r, (*values[:i], replace(v, items=items), *values[i + 1 :]), fn)

            return over(r, v.items, spread)
    return fn(*values)


def settled(r: State, v: Value) -> Value:
    """A compile-time number, or several, with what the path says of the conditions that choose them."""
    if isinstance(v, Static):
        (e,) = r.paths.settled((v.expr,))
        return folded(e) if isinstance(e, n.Expr) else e
    return replace(v, items=tuple(settled(r, x) for x in v.items)) if isinstance(v, Items) else v


def _each(r: State, v: Mixed, fn: Callable[[Value], Value]) -> Value:
    """What is made of a tile of pointers into two buffers: of those into each, for the elements that they are of."""
    made, before = [], r.only
    for cond, x in ((v.cond, v.a), (build.invert(v.cond), v.b)):
        r.only = cond if before is None else build.logical_and(*shapes(before, cond))
        try:
            made.append(fn(x))
        finally:
            r.only = before
    a, b = made
    if a is None and b is None:
        return None
    if isinstance(a, (Pointer, Mixed)) and isinstance(b, (Pointer, Mixed)):
        return Mixed(v.cond, a, b)
    if isinstance(a, Run) and isinstance(b, Run):
        c, ea = shapes(v.cond, a.expr)
        ea, eb = shapes(ea, build.cast(b.expr, a.dtype))  # Triton takes only pointers of one type together
        c, ea = shapes(c, ea)
        return Run(build.select(c, ea, eb))
    raise NotUnderstood(f"{describe(a)} or {describe(b)}, as the elements have it")


def merge(r: State, cond: n.Expr, a: Arm, b: Arm, static: bool, name: str) -> Value:
    """The value of a name after a branch on `cond`: may declare a buffer before it and append stores to its arms."""
    if static:
        with r.paths.under(cond, True):
            a = (_decided(r, a[0]), a[1])
        with r.paths.under(cond, False):
            b = (_decided(r, b[0]), b[1])
    va, vb = a[0], b[0]
    if va == vb and type(va) is type(vb):
        return va
    if isinstance(va, Unknown):
        return va
    if isinstance(vb, Unknown):
        return vb
    if isinstance(va, Undefined):
        return export(r, b, name)
    if isinstance(vb, Undefined):
        return export(r, a, name)
    if isinstance(va, Choice) and (decided := r.paths.decide(va.cond)) is not None:
        return merge(r, cond, (va.a if decided else va.b, a[1]), b, static, name)
    if isinstance(va, Items) and isinstance(vb, Items) and replace(va, items=()) == replace(vb, items=()) and len(va.items) == len(vb.items):
        return replace(va, items=tuple(merge(r, cond, (x, a[1]), (y, b[1]), static, name) for x, y in zip(va.items, vb.items, strict=True)))
    if static and is_number(va) and is_number(vb):
        return _static_number(cond, va, vb, lambda: Choice(cond, va, vb))
    if (isinstance(va, Run) or is_number(va)) and (isinstance(vb, Run) or is_number(vb)):
        found = _numbers(r, cond, a, b, static, name)
        if found is not None:
            return found
    if isinstance(va, TypeOf) and isinstance(vb, TypeOf) and static and va.pointer == vb.pointer and va.shape == vb.shape:
        return replace(va, dtype=chosen_dtype(r, cond, va.dtype, vb.dtype))
    if isinstance(va, Pointer) and isinstance(vb, Pointer) and va.base == vb.base and len(pointer_shape(va)) == len(pointer_shape(vb)):
        offset = merge(r, cond, (_offset(va), a[1]), (_offset(vb), b[1]), static, name)
        if isinstance(offset, Run):
            return Pointer(va.base, (offset.expr,))
    if isinstance(va, BlockPointer) and isinstance(vb, BlockPointer) and va.base == vb.base and va.block == vb.block:

        def parts(x: tuple[n.Expr, ...], y: tuple[n.Expr, ...]) -> tuple[n.Expr, ...]:
            return tuple(run(merge(r, cond, (Run(p), a[1]), (Run(q), b[1]), static, name)) for p, q in zip(x, y, strict=True))

        return BlockPointer(va.base, parts(va.shape, vb.shape), parts(va.strides, vb.strides), parts(va.offsets, vb.offsets), va.block)
    if static:
        return Choice(cond, export(r, a, name), export(r, b, name))
    if isinstance(va, TypeOf) and isinstance(vb, TypeOf):  # Triton takes two pointers for one only where they are of one type
        return va
    if points(va) and points(vb):
        return Choice(condition_of(r, cond), export(r, a, name), export(r, b, name), False)
    raise NotUnderstood(f"'{name}' is {describe(va)} or {describe(vb)} after a run-time branch")


def _decided(r: State, value: Value) -> Value:
    """A value without the choices that the static conditions of the path decide."""
    while isinstance(value, Choice) and (outcome := r.paths.decide(value.cond)) is not None:
        value = value.a if outcome else value.b
    return value


def _offset(p: Pointer) -> Value:
    return Run(build.cast(flat(p), I64))


def _static_number(cond: n.Expr, va: Value, vb: Value, otherwise: Callable[[], Value]) -> Value:
    da, db = number_dtype(va), number_dtype(vb)
    if da != db:
        return otherwise()
    return folded(build.select(cond, number(va), number(vb)))


def _numbers(r: State, cond: n.Expr, a: Arm, b: Arm, static: bool, name: str) -> Value | None:
    """A buffer that both arms fill, None when their shapes differ in rank."""
    (va, block_a), (vb, block_b) = a, b
    if isinstance(va, Run) and isinstance(vb, Run):
        dtype = va.dtype if va.dtype == vb.dtype else None
    else:
        dtype = va.dtype if isinstance(va, Run) else vb.dtype if isinstance(vb, Run) else None
        if dtype is None and is_number(va) and is_number(vb):
            assert isinstance(va, (int, float, bool, Static)) and isinstance(vb, (int, float, bool, Static))
            dtype = number_dtype(va) if number_dtype(va) == number_dtype(vb) else literal_dtype(1.0)
        if dtype is not None and (is_float(va) or is_float(vb)) and not (dtype.is_float or dtype.is_symbolic):
            return None
    ea, eb = run(va, dtype), run(vb, dtype)
    sa, sb = shape_of(ea.type), shape_of(eb.type)
    if not sa and sb and not isinstance(va, Run):
        ea, sa = build.broadcast(ea, eb.type), sb
    if not sb and sa and not isinstance(vb, Run):
        eb, sb = build.broadcast(eb, ea.type), sa
    if len(sa) != len(sb):
        return None
    if dtype is None:
        if not static:
            da, db = dtype_of(ea.type), dtype_of(eb.type)
            if not (da.is_symbolic or db.is_symbolic):
                return None
            eb, dtype = build.cast(eb, da), da
        else:
            dtype = chosen_dtype(r, cond, dtype_of(ea.type), dtype_of(eb.type))
    if sa != sb:
        if static:
            return None
        if any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(sa, sb, strict=True)):
            raise NotUnderstood(f"'{name}' has different shapes after a run-time branch")
        eb = build.call("broadcast", eb, *map(as_expr, sa))  # extents that the binding decides are equal here, or Triton refuses the kernel
    shape: Shape = sa
    buffer = r.out.buffer(name, dtype, shape)
    r.out.owners.setdefault(buffer.name, r.owner(name))
    if not block_b and not static and not mentions(eb, {buffer.name}) and not _loads(Run(eb)):  # what is not chosen may not be there to be read
        r.out.emit(n.Alloc(buffer, eb))
        block_a.append(n.Store(n.Region(buffer), build.cast(ea, dtype)))
    else:
        r.out.emit(n.Alloc(buffer))
        block_a.append(n.Store(n.Region(buffer), build.cast(ea, dtype)))
        block_b.append(n.Store(n.Region(buffer), build.cast(eb, dtype)))
    return Run(whole(buffer))


def points(v: Value) -> bool:
    """Whether a value is a pointer, or one of several by a condition of the kernel."""
    return isinstance(v, Pointer) or (isinstance(v, Choice) and not v.static and points(v.a) and points(v.b))


def condition_of(r: State, cond: n.Expr) -> n.Expr:
    """A condition that is worked out when the kernel runs, by a name that stays."""
    if isinstance(cond, n.Var):
        return cond
    held = next((s for s in reversed(r.out.block[-8:]) if isinstance(s, n.Let) and s.value == cond and len(s.names) == 1), None)
    return r.out.let("cond", cond) if held is None else n.Var(held.names[0], BOOL)


def is_float(v: Value) -> bool:
    """Whether a constexpr number is a float."""
    return is_number(v) and number_dtype(v).is_float


def export(r: State, arm: Arm, name: str) -> Value:
    """A value of one arm, made to outlive it."""
    value, block = arm
    local = set(bound_names(tuple(block)))
    if not local:
        return value

    def expr(e: n.Expr) -> n.Expr:
        if not mentions(e, local):
            return e
        buffer = r.out.buffer(name, _dtype(e), shape_of(e.type))
        if any(mentions(d, local) for d in buffer.shape):
            raise NotUnderstood("a shape that only a branch knows")
        r.out.owners.setdefault(buffer.name, r.owner(name))
        r.out.emit(n.Alloc(buffer))
        block.append(n.Store(n.Region(buffer), e))
        return whole(buffer)

    return mapped(value, expr)


def _dtype(e: n.Expr) -> DType:
    if not isinstance(e.type, (DType, TileType)):
        raise NotUnderstood("a value of unusual type after a branch")
    return dtype_of(e.type)


def mapped(value: Value, expr: Callable[[n.Expr], n.Expr]) -> Value:
    """A value with each run-time expression inside replaced."""
    match value:
        case Run():
            return Run(expr(value.expr))
        case Pointer():
            return Pointer(value.base, tuple(map(expr, value.terms)))
        case BlockPointer():
            base = mapped(value.base, expr)
            assert isinstance(base, Pointer)
            return BlockPointer(
                base, tuple(map(expr, value.shape)), tuple(map(expr, value.strides)), tuple(map(expr, value.offsets)), value.block
            )
        case Descriptor():
            base = mapped(value.base, expr)
            assert isinstance(base, Pointer)
            return Descriptor(base, tuple(map(expr, value.shape)), tuple(map(expr, value.strides)), value.block)
        case Items():
            return replace(value, items=tuple(mapped(x, expr) for x in value.items))
        case Mixed():
            return Mixed(expr(value.cond), mapped(value.a, expr), mapped(value.b, expr))
        case Choice():
            return replace(value, cond=value.cond if value.static else expr(value.cond), a=mapped(value.a, expr), b=mapped(value.b, expr))
        case _:
            return value


def chosen_dtype(r: State, cond: n.Expr, a: DType, b: DType) -> DType:
    """The dtype that is `a` under a static condition, else `b`; one name for each such term."""
    if a == b:
        return a
    text = f"select({static_condition(cond)},{a.name},{b.name})"
    if text not in r.dtype_terms:
        r.dtype_terms[text] = r.out.fresh("T")
    return symbolic(r.dtype_terms[text])


def static_condition(cond: n.Expr) -> str:
    """A static condition for a dtype term. Raises NotUnderstood for unusual ones."""
    if dtype_of(cond.type) != BOOL:
        raise NotUnderstood("a condition that is no truth value")
    return condition_text(cond)


def is_own(r: State, e: n.Expr, name: str) -> bool:
    """Whether an expression is the whole of a buffer that stands for `name` alone."""
    buffer = buffer_read(e)
    return buffer is not None and r.out.owners.get(buffer.name) == r.owner(name)
