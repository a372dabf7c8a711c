"""Values after a branch: one value where both arms agree on what it is, a buffer that each arm fills, or a static choice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import BOOL, I64, DType, TileType, dtype_of, shape_of

from .emit import buffer_read, condition_text, mentions, whole
from .operators import flat, folded, literal_dtype, number, number_dtype, pointer_shape, run
from .values import (
    BlockPointer,
    Choice,
    Descriptor,
    Items,
    NotUnderstood,
    Pointer,
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .reader import Reader

Arm = tuple[Value, list[n.Stmt]]


KINDS = frozenset({"float", "int", "uint"})
"""Every dtype of an element is of exactly one of these kinds (bool counts as unsigned)."""


class Paths:
    """The static conditions that hold where the reader stands."""

    def __init__(self) -> None:
        self.known: list[tuple[n.Expr, bool]] = []

    @contextmanager
    def under(self, cond: n.Expr, outcome: bool) -> Iterator[None]:
        """Read on with `cond` known."""
        before = len(self.known)
        self._learn(cond, outcome)
        try:
            yield
        finally:
            del self.known[before:]

    def _learn(self, cond: n.Expr, outcome: bool) -> None:
        self.known.append((cond, outcome))
        if isinstance(cond, n.Unary) and cond.op == "not":
            self._learn(cond.x, not outcome)
        if isinstance(cond, n.Binary) and ((cond.op == "and" and outcome) or (cond.op == "or" and not outcome)):
            self._learn(cond.a, outcome)
            self._learn(cond.b, outcome)

    def decide(self, cond: n.Expr) -> bool | None:
        """What the path says about a condition; None when it says nothing."""
        if isinstance(cond, n.Const):
            return bool(cond.value)
        for e, outcome in self.known:
            if e == cond:
                return outcome
        match cond:
            case n.Unary(op="not"):
                inner = self.decide(cond.x)
                return None if inner is None else not inner
            case n.Binary(op="and" | "or"):
                a, b = self.decide(cond.a), self.decide(cond.b)
                strong = cond.op == "or"
                if strong in (a, b):
                    return strong
                return (not strong) if a is not None and b is not None else None
            case n.Call(fn="dtype_kind") if dict(cond.attrs)["kind"] in KINDS:
                term, kind = dict(cond.attrs)["term"], dict(cond.attrs)["kind"]
                refused = set()
                for e, outcome in self.known:
                    if isinstance(e, n.Call) and e.fn == "dtype_kind" and dict(e.attrs)["term"] == term and dict(e.attrs)["kind"] in KINDS:
                        if outcome:
                            return dict(e.attrs)["kind"] == kind
                        refused.add(dict(e.attrs)["kind"])
                return True if refused == KINDS - {kind} else None
            case n.Binary(op="eq" | "ne", b=n.Const()):
                for e, outcome in self.known:
                    if (
                        isinstance(e, n.Binary)
                        and e.op in ("eq", "ne")
                        and e.a == cond.a
                        and isinstance(e.b, n.Const)
                        and ((e.op == "eq") == outcome)
                    ):
                        return (e.b == cond.b) == (cond.op == "eq")
        return None


def static_branch(r: Reader, cond: n.Expr, a: Callable[[], Value], b: Callable[[], Value], name: str = "x") -> Value:
    """`a()` where the static `cond` holds, else `b()`; what they emit goes under a static if."""
    decided = r.paths.decide(cond)
    if decided is not None:
        return a() if decided else b()
    with r.paths.under(cond, True), r.out.capture() as block_a:
        va = a()
    with r.paths.under(cond, False), r.out.capture() as block_b:
        vb = b()
    made = merge(r, cond, (va, block_a), (vb, block_b), True, name)
    if block_a or block_b:
        emit_if(r, cond, block_a, block_b, True)
    return made


def emit_if(r: Reader, cond: n.Expr, then: list[n.Stmt], orelse: list[n.Stmt], static: bool) -> None:
    """An if; an empty then-arm is turned round."""
    if not then and orelse:
        cond, then, orelse = build.invert(cond), orelse, then
    if then:
        r.out.emit(n.If(cond, tuple(then), tuple(orelse), static))


def over(r: Reader, values: tuple[Value, ...], fn: Callable[..., Value]) -> Value:
    """`fn(*values)`, with every static choice among the values decided or distributed over."""
    for i, v in enumerate(values):
        if isinstance(v, Unknown):
            raise NotUnderstood(v.reason)
        if isinstance(v, Choice):

            def arm(x: Value, i: int = i) -> Callable[[], Value]:
                return lambda: over(r, (*values[:i], x, *values[i + 1 :]), fn)

            return static_branch(r, v.cond, arm(v.a), arm(v.b))
        if isinstance(v, Items) and any(isinstance(x, Choice) for x in v.items):

            def spread(*items: Value, i: int = i) -> Value:
                return over(r, (*values[:i], Items(items), *values[i + 1 :]), fn)

            return over(r, v.items, spread)
    return fn(*values)


def merge(r: Reader, cond: n.Expr, a: Arm, b: Arm, static: bool, name: str) -> Value:
    """The value of a name after a branch on `cond`: may declare a buffer before it and append stores to its arms."""
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
    if isinstance(va, Items) and isinstance(vb, Items) and len(va.items) == len(vb.items):
        return Items(tuple(merge(r, cond, (x, a[1]), (y, b[1]), static, name) for x, y in zip(va.items, vb.items, strict=True)))
    if static and is_number(va) and is_number(vb):
        return _static_number(cond, va, vb, lambda: Choice(cond, va, vb))
    if (isinstance(va, Run) or is_number(va)) and (isinstance(vb, Run) or is_number(vb)):
        found = _numbers(r, cond, a, b, static, name)
        if found is not None:
            return found
    if isinstance(va, TypeOf) and isinstance(vb, TypeOf) and static and va.pointer == vb.pointer and va.shape == vb.shape:
        return replace(va, dtype=r.chosen_dtype(cond, va.dtype, vb.dtype))
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
    raise NotUnderstood(f"'{name}' is {describe(va)} or {describe(vb)} after a run-time branch")


def _offset(p: Pointer) -> Value:
    return Run(build.cast(flat(p), I64))


def _static_number(cond: n.Expr, va: Value, vb: Value, otherwise: Callable[[], Value]) -> Value:
    da, db = number_dtype(va), number_dtype(vb)
    if da != db:
        return otherwise()
    return folded(build.select(cond, number(va), number(vb)))


def _numbers(r: Reader, cond: n.Expr, a: Arm, b: Arm, static: bool, name: str) -> Value | None:
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
            dtype = r.chosen_dtype(cond, dtype_of(ea.type), dtype_of(eb.type))
    if sa != sb:
        if not static:
            raise NotUnderstood(f"'{name}' has different shapes after a run-time branch")
        return None
    shape: Shape = sa
    buffer = r.out.buffer(name, dtype, shape)
    r.out.owners.setdefault(buffer.name, r.owner(name))
    if not block_b and not static and not mentions(eb, {buffer.name}):
        r.out.emit(n.Alloc(buffer, eb))
        block_a.append(n.Store(n.Region(buffer), build.cast(ea, dtype)))
    else:
        r.out.emit(n.Alloc(buffer))
        block_a.append(n.Store(n.Region(buffer), build.cast(ea, dtype)))
        block_b.append(n.Store(n.Region(buffer), build.cast(eb, dtype)))
    return Run(whole(buffer))


def is_float(v: Value) -> bool:
    """Whether a constexpr number is a float."""
    return is_number(v) and number_dtype(v).is_float


def export(r: Reader, arm: Arm, name: str) -> Value:
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

    return r.mapped(value, expr)


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
            return Items(tuple(mapped(x, expr) for x in value.items))
        case Choice():
            return Choice(value.cond, mapped(value.a, expr), mapped(value.b, expr))
        case _:
            return value


def static_condition(cond: n.Expr) -> str:
    """A static condition for a dtype term. Raises NotUnderstood for unusual ones."""
    if dtype_of(cond.type) != BOOL:
        raise NotUnderstood("a condition that is no truth value")
    return condition_text(cond)


def is_own(r: Reader, e: n.Expr, name: str) -> bool:
    """Whether an expression is the whole of a buffer that stands for `name` alone."""
    buffer = buffer_read(e)
    return buffer is not None and r.out.owners.get(buffer.name) == r.owner(name)
