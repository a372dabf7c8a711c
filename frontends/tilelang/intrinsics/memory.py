"""Words that declare memory, give it another form, or say how it is laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import I32, MBARRIER, DType, Space
from kir.ir.visit import walk

from ..state.reader import Reader
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.values import Items, Loop, Memory, NotUnderstood, Place, Signature, Value, is_number
from .layout_annotations import annotated_layouts

Word = Callable[[Reader, Signature], Value]
SPACES: Mapping[str, Literal["shared", "fragment", "register"]] = {
    "shared": "shared", "shared.dyn": "shared", "local": "register", "local.fragment": "fragment", "local.var": "register",
}  # fmt: skip


def declare(r: Reader, name: str, dtype: DType, shape: tuple[n.Expr, ...], space: Space, init: n.Expr | None = None) -> n.Buffer:
    """A buffer declared here, under the name that the statement gives it."""
    buffer = n.Buffer(r.out.fresh(r.wanted or name), dtype, shape, space)
    r.born.add(buffer.name)
    r.out.emit(n.Alloc(buffer, init))
    return buffer


def shape_of(r: Reader, v: Value) -> tuple[n.Expr, ...]:
    """A shape: a list of dimensions, or one."""
    v = r.decided(v)
    return tuple(r.dim(x) for x in (v.items if isinstance(v, Items) else (v,)))


def _fixed(r: Reader, shape: tuple[n.Expr, ...]) -> tuple[n.Expr, ...]:
    """A shape that is known when the kernel is compiled. Raises NotUnderstood."""
    known = {*r.metas, *(q.name for q in r.sizes.values()), *r.bound_sizes}
    for d in shape:
        if any(isinstance(x, n.Load) or (isinstance(x, n.Var) and x.name not in known) for x in walk(r.meaning(d))):
            raise NotUnderstood(f"memory of the extent '{expr_text(d)}', which is only known when the kernel runs")
    return shape


def _named(given: Signature, names: tuple[str, ...]) -> list[Value]:
    """Positional and named arguments in the order of their names; absent ones are None."""
    out: list[Value] = list(given.args)
    for name in names[len(out):]:
        out.append(given.named.get(name))
    return out


def _allocated(space: Literal["shared", "fragment", "register"]) -> Word:
    def made(r: Reader, given: Signature) -> Value:
        shape, dtype, scope = _named(given, ("shape", "dtype", "scope"))[:3]
        where = space if scope is None else SPACES.get(str(r.settled(scope)))
        if where is None:
            raise NotUnderstood(f"memory of the scope '{scope}'")
        return Memory(declare(r, "buffer", r.dtype(dtype), _fixed(r, shape_of(r, shape)), where))

    return made


def _variable(r: Reader, given: Signature) -> Value:
    args = list(given.args)
    dtype = r.dtype(args.pop(0) if args else given.named.get("dtype"))
    init = given.named.get("init", next((a for a in args if not isinstance(a, str)), None))
    value = None
    if init is not None:
        init = r.settled(init)
        value = arithmetic.valued(init, dtype) if is_number(init) else convert(r.run(init), dtype)
    return Memory(declare(r, "var", dtype, (), "register", value), True)


def _barrier(r: Reader, given: Signature) -> Value:
    counts = r.settled(given.args[0] if given.args else next(iter(given.named.values()), None))
    if isinstance(counts, Loop) and counts.kind == "repeat":
        extent = r.dim(counts.args[1])
        buffer = declare(r, "barrier", MBARRIER, (extent,), "shared")
        var = n.Var(r.out.fresh("i"), I32)
        ready = n.Eval(build.call("mbar_init", build.region(buffer, var), r.dim(counts.args[0])), origin=r.out.origin)
        r.out.emit(n.For(var, build.const(0), extent, build.const(1), (ready,), "unroll"))
        return Memory(buffer)
    each = counts.items if isinstance(counts, Items) else (counts,)
    buffer = declare(r, "barrier", MBARRIER, (build.const(len(each)),), "shared")
    for i, count in enumerate(each):
        r.out.emit(n.Eval(build.call("mbar_init", build.region(buffer, i), r.dim(count))))
    return Memory(buffer)


def reshaped(r: Reader, given: Signature) -> Value:
    """`T.reshape(b, shape)`, `T.view(b, shape, dtype)`: the same memory in another form."""
    source, shape, dtype = _named(given, ("src", "shape", "dtype"))[:3]
    source = r.decided(source)
    if not isinstance(source, (Memory, Place)):
        raise NotUnderstood("another form of what is no buffer")
    base = source.buffer
    at = n.Region(base)
    if isinstance(source, Place):
        first = tuple(i.lo if isinstance(i, n.Span) else i for i in source.index)
        at = build.region(base, *first)
    dims = base.shape if shape is None else shape_of(r, shape)
    buffer = n.Buffer(r.out.fresh(r.wanted or base.name), base.dtype if dtype is None else r.dtype(dtype), dims, base.space)
    r.born.add(buffer.name)
    r.out.emit(n.View(buffer, at))
    r.aliases[buffer.name] = r.aliases.get(base.name, base.name)
    return Memory(buffer)


def _annotate_layout(r: Reader, given: Signature) -> Value:
    annotated_layouts(r, given.args[0] if given.args else next(iter(given.named.values()), None))
    return None


def _tensor_memory(r: Reader, given: Signature) -> Value:
    raise NotUnderstood("'T.alloc_tmem' is Blackwell's tensor memory")


WORDS: Mapping[str, Word] = {
    "alloc_shared": _allocated("shared"), "alloc_fragment": _allocated("fragment"), "alloc_local": _allocated("register"),
    "alloc_buffer": _allocated("shared"), "alloc_var": _variable, "alloc_barrier": _barrier,
    "alloc_tmem": _tensor_memory, "reshape": reshaped, "view": reshaped, "annotate_layout": _annotate_layout,
}  # fmt: skip
