"""Loads, stores and atomics through pointers, block pointers and tensor descriptors."""

from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.bindings.policies import CACHED_BY, EVICTED_BY, ORDERED_BY, SCOPED_BY
from kir.ir.types import I32, I64, broadcast_shapes, dtype_of, shape_of

from ..state.arithmetic import converted
from ..state.state import State
from ..types.shapes import may_stretch, shape_from, stretched
from ..values import operators
from ..values.arguments import Arguments
from ..values.emitter import whole
from ..values.values import (
    BlockPointer,
    Descriptor,
    Items,
    NotUnderstood,
    Pointer,
    Refused,
    Run,
    Shape,
    Static,
    Value,
    describe,
    items_of,
    unfit,
)

ATOMICS = {
    "atomic_add": "atomic_add",
    "atomic_max": "atomic_max",
    "atomic_min": "atomic_min",
    "atomic_and": "atomic_and",
    "atomic_or": "atomic_or",
    "atomic_xor": "atomic_xor",
    "atomic_xchg": "atomic_exch",
}


def policy(a: Arguments) -> str:
    """The cache policy of a load or store: `.cg` (of a meta: `cached_by_NAME`), an eviction priority (of a meta: `evict_by_NAME`), or volatile."""
    modifier, eviction = a.named.get("cache_modifier", ""), a.named.get("eviction_policy", "")
    volatile = a.named.get("volatile", False)
    words = []
    for v, what, decided in ((modifier, "a cache modifier", CACHED_BY), (eviction, "an eviction policy", EVICTED_BY)):
        if v is None or v == "":
            continue
        if isinstance(v, Static) and isinstance(v.expr, n.Var):
            words.append(f"{decided}{v.expr.name}")
            continue
        if not isinstance(v, str):
            raise NotUnderstood(f"{what} that the binding decides")
        words.append(v.lstrip("."))
    if not isinstance(volatile, bool) and volatile is not None:
        raise NotUnderstood("an access that is volatile where the binding says so")
    if volatile:
        words.append("volatile")
    return "_".join(words)


def place(r: State, p: Pointer, shape: Shape | None = None) -> n.Region:
    """The elements that a pointer names, stretched to `shape`."""
    index = operators.flat(p)
    if shape is not None and shape_of(index.type) != shape:
        index = stretched(index, shape)
    return n.Region(p.base, (index,))


def _mask(v: Value, shape: Shape) -> tuple[n.Expr | None, Shape]:
    """A mask as bool, and the common shape of it and the pointer."""
    if v is None or v is True:
        return None, shape
    e = operators.as_bool(operators.run(v))
    both = broadcast_shapes(shape, shape_of(e.type))
    if both is None and may_stretch(shape_of(e.type), shape):
        e, both = stretched(e, shape), shape
    if both is None:
        raise NotUnderstood(f"a mask of shape {operators.show(shape_of(e.type))} on pointers of shape {operators.show(shape)}")
    return e, both


def _of_only(r: State, mask: Value) -> Value:
    """A mask of those elements alone that are meant."""
    if r.only is None or mask is None or mask is True:
        return mask if r.only is None else Run(r.only)
    return operators.logical("and", Run(operators.as_bool(operators.run(mask))), Run(r.only))


def no_pointer(r: State, verb: str, v: Value) -> NotUnderstood:
    """Why memory is not reached through a value that is no pointer; where that is a parameter of unknown kind and numbers beside it, it is noted."""
    note_pointer(r, v)
    return unfit(f"a {verb} through {describe(v)}", v)


def note_pointer(r: State, v: Value) -> None:
    """Note that a value is an address: where it is a parameter of unknown kind and numbers beside it, that is a pointer."""
    terms, known = [v.expr] if isinstance(v, Run) else [], {x: s.value for level in r.out.blocks for s in level if isinstance(s, n.Let) for x in s.names[:1]}
    found = set()
    for e in terms:
        match e:
            case n.Binary(op="add"):
                terms += [e.a, e.b]
            case n.Cast():
                terms.append(e.x)
            case n.Call(fn="expand" | "broadcast" | "multiple_of" | "max_contiguous") if isinstance(e.args[0], n.Expr):
                terms.append(e.args[0])
            case n.Var() if e.name in known:
                terms.append(known[e.name])
            case n.Var() if e.name in r.metas and dtype_of(e.type).is_symbolic:
                found.add(e.name)
            case _:
                pass
    if len(found) == 1:
        r.pointed |= found


def load(r: State, a: Arguments) -> Value:
    """`tl.load`."""
    p = a.need(0, "pointer")
    if isinstance(p, BlockPointer):
        padding = a.get(4, "padding_option", "")
        return load_block(r, p, checked(a.get(3, "boundary_check", Items(())), len(p.block)), padding, policy(a))
    if not isinstance(p, Pointer):
        raise no_pointer(r, "load", p)
    if isinstance(a.get(1, "mask"), Items):
        raise Refused("a load of a box through a pointer, which is no descriptor")
    shape = operators.pointer_shape(p)
    mask, both = _mask(_of_only(r, a.get(1, "mask")), shape)
    other = a.get(2, "other")
    fill = None
    if other is not None and mask is not None:
        fill = operators.run(other, p.base.dtype)
        if isinstance(fill, n.Cast) and fill.dtype.is_symbolic and isinstance(fill.x, n.Const) and fill.x.dtype.is_float and abs(fill.x.value) in (0, 1):
            fill = build.cast(build.const(float(fill.x.value)), fill.dtype)  # the same number, whatever float it is
        if broadcast_shapes(both, shape_of(fill.type)) != both:
            raise NotUnderstood("'other' of another shape than the pointers")
    r.read.add(p.base.name)
    return Run(build.load(place(r, p, both), mask, fill, False, policy(a)))


def store(r: State, a: Arguments) -> Value:
    """`tl.store`."""
    p, value = a.need(0, "pointer"), a.need(1, "value")
    if isinstance(p, BlockPointer):
        return store_block(r, p, value, checked(a.get(3, "boundary_check", Items(())), len(p.block)), policy(a))
    if not isinstance(p, Pointer):
        raise no_pointer(r, "store", p)
    if isinstance(value, Items):
        raise Refused("a store of a box through a pointer, which is no descriptor")
    shape = operators.pointer_shape(p)
    mask, shape = _mask(_of_only(r, a.get(2, "mask")), shape)
    e = operators.run(converted(value, p.base.dtype))
    both = broadcast_shapes(shape, shape_of(e.type))
    if both is None and may_stretch(shape_of(e.type), shape):
        both = shape
    if both is None:
        raise NotUnderstood(f"a value of shape {operators.show(shape_of(e.type))} stored to pointers of shape {operators.show(shape)}")
    r.written.add(p.base.name)
    r.out.emit(n.Store(place(r, p, both), e if shape_of(e.type) == both else stretched(e, both), mask, False, policy(a)))
    return None


# ----------------------------------------------------------------------------------------------------------- block pointers


def make_block_ptr(r: State, a: Arguments) -> Value:
    """`tl.make_block_ptr(base, shape, strides, offsets, block_shape, order)`."""
    base = a.need(0, "base")
    if not isinstance(base, Pointer):
        raise NotUnderstood(f"a block pointer on {describe(base)}")

    def scalars(at: int, name: str) -> tuple[n.Expr, ...]:
        return tuple(build.cast(operators.run(v), I64) for v in items_of(a.need(at, name)))

    shape, strides, offsets = scalars(1, "shape"), scalars(2, "strides"), scalars(3, "offsets")
    block = shape_from(items_of(a.need(4, "block_shape")))
    if not len(shape) == len(strides) == len(offsets) == len(block):
        raise NotUnderstood("a block pointer whose parts differ in rank")
    return BlockPointer(base, shape, strides, offsets, block)


def advance(r: State, a: Arguments) -> Value:
    """`tl.advance(block_pointer, offsets)`."""
    p = a.need(0, "base")
    if not isinstance(p, BlockPointer):
        raise NotUnderstood(f"advance of {describe(p)}")
    moves = items_of(a.need(1, "offsets"))
    offsets = tuple(build.add(o, build.cast(operators.run(m), I64)) for o, m in zip(p.offsets, moves, strict=True))
    return BlockPointer(p.base, p.shape, p.strides, offsets, p.block)


def checked(v: Value, rank: int) -> tuple[int, ...]:
    """The axes of `boundary_check`, of a block of so many. Triton refuses an axis that is named twice, so as many as there are, whichever
    they are, are all of them."""
    if isinstance(v, Items) and len(v.items) == rank:
        return tuple(range(rank))
    if isinstance(v, Items) and all(isinstance(x, int) for x in v.items):
        return tuple(int(x) for x in v.items)  # type: ignore[arg-type]  # checked in the condition
    if isinstance(v, int):
        return (v,)
    if v is None:
        return ()
    raise NotUnderstood("axes of a boundary check that are not known")


def _window(p: BlockPointer, axes: tuple[int, ...]) -> tuple[n.Region, n.Expr | None]:
    """Places and mask of a block, the mask over the checked axes."""
    rank = len(p.block)
    total: n.Expr | None = None
    mask: n.Expr | None = None
    for d in range(rank):
        index: n.Expr = build.add(p.offsets[d], build.cast(build.iota(p.block[d]), I64))
        for k in range(rank):
            if k != d:
                index = build.expand(index, k)
        term = build.mul(index, p.strides[d])
        total = term if total is None else build.add(total, term)
        if d in axes:
            inside = build.logical_and(build.compare("ge", index, 0), build.compare("lt", index, p.shape[d]))
            mask = inside if mask is None else build.logical_and(mask, inside)
    assert total is not None
    for t in p.base.terms:
        total = build.add(*operators.shapes(total, build.cast(t, I64)))
    return n.Region(p.base.base, (total,)), mask


def load_block(r: State, p: BlockPointer, axes: tuple[int, ...], padding: Value, cache: str) -> Value:
    """A load through a block pointer. Elements outside are the padding; where it is left undefined they are read as zero, which is one
    of the values that undefined allows."""
    p = replace(p, block=r.paths.settled(p.block))
    region, mask = _window(p, axes)
    dtype = p.base.base.dtype
    fill = None
    if mask is not None:
        fill = operators.number(float("nan"), dtype) if padding == "nan" else operators.number(0, dtype)
    r.read.add(p.base.base.name)
    return Run(build.load(region, mask, fill, False, cache))


def store_block(r: State, p: BlockPointer, value: Value, axes: tuple[int, ...], cache: str) -> Value:
    """A store through a block pointer."""
    p = replace(p, block=r.paths.settled(p.block))
    region, mask = _window(p, axes)
    e = operators.run(converted(value, p.base.base.dtype))
    r.written.add(p.base.base.name)
    r.out.emit(n.Store(region, stretched(e, p.block), mask, False, cache))
    return None


# -------------------------------------------------------------------------------------------------------------- descriptors


def make_descriptor(r: State, a: Arguments) -> Value:
    """`tl.make_tensor_descriptor(base, shape, strides, block_shape)`."""
    made = make_block_ptr(r, _with_offsets(r, a))
    assert isinstance(made, BlockPointer)
    return Descriptor(made.base, made.shape, made.strides, made.block)


def _with_offsets(r: State, a: Arguments) -> Arguments:
    shape, strides = a.need(1, "shape"), a.need(2, "strides")
    block = a.need(3, "block_shape")
    zeros = Items(tuple(0 for _ in items_of(shape)))
    return Arguments([a.need(0, "base"), shape, strides, zeros, block], {})


def at_offsets(r: State, d: Descriptor, offsets: Value) -> tuple[n.Region, n.Expr | None, bool]:
    """Places of a descriptor's block, its mask, and whether it clips instead."""
    moves = tuple(operators.run(v) for v in items_of(offsets))
    if len(moves) != len(d.block):
        raise NotUnderstood("offsets of another rank than the descriptor")
    if any(shape_of(m.type) for m in moves):
        raise Refused("a tile where an offset of a descriptor is needed")
    if not d.strides:
        spans = tuple(build.span(build.cast(m, I32), b) for m, b in zip(moves, d.block, strict=True))
        return n.Region(d.base.base, spans), None, True
    window = BlockPointer(d.base, d.shape, d.strides, tuple(build.cast(m, I64) for m in moves), d.block)
    region, mask = _window(window, tuple(range(len(d.block))))
    return region, mask, False


def descriptor_load(r: State, d: Descriptor, offsets: Value) -> Value:
    """`descriptor.load(offsets)`: zero outside. The tile arrives in a fragment of its own, which a later `raised` keeps where the place
    is a box of a tensor."""
    d = replace(d, block=r.paths.settled(d.block))
    region, mask, clip = at_offsets(r, d, offsets)
    r.read.add(d.base.base.name)
    name = d.base.base.name
    held = r.out.buffer(name.lower() if name != name.lower() else f"{name}_tile", d.base.base.dtype, d.block)
    value = build.load(region, mask, operators.number(0, d.base.base.dtype), clip, "")
    assert isinstance(value, n.Load)
    r.out.emit(n.Alloc(held))
    r.out.emit(n.Copy(value, n.Region(held), "tma"))
    return Run(whole(held))


def descriptor_store(r: State, d: Descriptor, offsets: Value, value: Value) -> Value:
    """`descriptor.store(offsets, value)`: nothing is written outside."""
    d = replace(d, block=r.paths.settled(d.block))
    region, mask, clip = at_offsets(r, d, offsets)
    e = operators.run(converted(value, d.base.base.dtype))
    r.written.add(d.base.base.name)
    held = r.out.buffer(f"{d.base.base.name}_tile", d.base.base.dtype, d.block)
    r.out.emit(n.Alloc(held, stretched(e, d.block)))
    r.out.emit(n.Copy(n.Load(n.Region(held)), region, "tma", mask, clip))
    return None


# ------------------------------------------------------------------------------------------------------------------ atomics


def atomic(r: State, word: str, a: Arguments) -> Value:
    """Atomics through pointers; the old values."""
    p = a.need(0, "pointer")
    if not isinstance(p, Pointer):
        raise no_pointer(r, "atomic", p)
    if r.only is not None:
        raise NotUnderstood(f"an atomic on {describe(p) if r.only is None else 'a tile of pointers into several buffers'}")
    shape = operators.pointer_shape(p)
    options: dict[str, n.Attr] = {}
    for key in ("sem", "scope"):
        v = a.named.get(key)
        if v is not None:
            if isinstance(v, Static) and isinstance(v.expr, n.Var):
                v = f"{ORDERED_BY if key == 'sem' else SCOPED_BY}{v.expr.name}"
            if not isinstance(v, str):
                raise NotUnderstood(f"'{key}' of an atomic that the binding decides")
            options["order" if key == "sem" else "scope"] = v
    if word in ("atomic_cas", "atomic_xchg"):
        options.setdefault("order", "acq_rel")  # as Triton has it where nothing is said: locks are made of these
    dtype = p.base.dtype
    r.read.add(p.base.name)
    r.written.add(p.base.name)
    if word == "atomic_cas":
        expected, new = (operators.run(converted(a.need(k, name), dtype)) for k, name in ((1, "cmp"), (2, "val")))
        made = build.call_with("atomic_cas", (place(r, p, shape), expected, new), n.attrs(**options))
        return Run(r.out.let("old", made))
    mask, shape = _mask(a.get(2, "mask"), shape)
    value = operators.run(converted(a.need(1, "val"), dtype))
    both = broadcast_shapes(shape, shape_of(value.type))
    if both is None and may_stretch(shape_of(value.type), shape):
        both = shape
    if both is None:
        raise NotUnderstood("an atomic whose value does not fit its pointers")
    if shape_of(value.type) != both:
        value = stretched(value, both)
    operands: list[n.Expr] = [value] if mask is None else [value, mask if shape_of(mask.type) == both else stretched(mask, both)]
    made = build.call_with(ATOMICS[word], (place(r, p, both), *operands), n.attrs(**options))
    return Run(r.out.let("old", made))
