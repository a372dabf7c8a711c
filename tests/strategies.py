"""Hypothesis strategies of KIR: expressions, statements and whole programs that the verifier accepts.

`programs()` draws specialized programs in both dialects. `expressions(env, type)` draws one expression over the names of an `Env`.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    MBARRIER,
    U8,
    U32,
    U64,
    DType,
    Space,
    TileType,
    Type,
    dtype_of,
    shape_of,
)

INTEGERS = (I8, I16, I32, I64, U8, U32, U64)
FLOATS = (F16, BF16, F32, F64)
EXTENTS = (1, 2, 4, 8)
KEYWORDS = ("in", "let", "for", "fill", "warps", "at", "inf", "true", "thread", "grid", "view", "else", "box")
"""Names that are words of the grammar."""


T = TypeVar("T")


@cache
def _places(count: int) -> st.SearchStrategy[int]:
    return st.sampled_from(range(count))


def pick(draw: st.DrawFn, among: Sequence[T]) -> T:
    """One of several, by a strategy that is built once: most of what drawing a program takes is else spent on building strategies."""
    return among[draw(_places(len(among)))]


@dataclass
class Env:
    """Names in view, and those ever used."""

    values: dict[str, Type] = field(default_factory=dict)
    buffers: dict[str, n.Buffer] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def inner(self) -> Env:
        """A scope inside this one."""
        return Env(dict(self.values), dict(self.buffers), self.used)

    def fresh(self, draw: st.DrawFn) -> str:
        """A name that nothing has yet; sometimes a word of the grammar, sometimes one in another script."""
        base = pick(draw, ("x", "y", "acc", "tile", "übertrag", *KEYWORDS))
        name, i = base, 0
        while name in self.used:
            name, i = f"{base}_{i}", i + 1
        self.used.add(name)
        return name


@cache
def integer_values(dtype: DType) -> st.SearchStrategy[int]:
    """Values of an integer dtype, its ends and the neighborhood of zero often."""
    low, high = dtype.range
    return st.one_of(st.sampled_from([v for v in (0, 1, 2, 3, 7, 8, -1, low, high, high - 1) if low <= v <= high]), st.integers(low, high))


@cache
def literals(dtype: DType) -> st.SearchStrategy[n.Const]:
    """Literals of a dtype: negative zero, infinities, NaN and subnormals among the floats."""
    if dtype.is_bool:
        return st.booleans().map(lambda v: build.const(v, BOOL))
    if dtype.is_integer:
        return integer_values(dtype).map(lambda v: build.const(v, dtype))
    special = st.sampled_from((0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 5e-324, -1e-310, 1e22, 1e-7, 3.0e38))
    return st.one_of(special, st.floats()).map(lambda v: build.const(v, dtype))


def expressions(env: Env, of: Type, depth: int = 3) -> st.SearchStrategy[n.Expr]:
    """Expressions of a scalar or tile type over the names of `env`, in normal form."""
    return _composed(env, of, depth)


@st.composite
def _composed(draw: st.DrawFn, env: Env, of: Type, depth: int) -> n.Expr:
    return _expression(draw, env, of, depth)


def _expression(draw: st.DrawFn, env: Env, of: Type, depth: int) -> n.Expr:
    dtype, shape = dtype_of(of), shape_of(of)
    tile = isinstance(of, TileType)
    leaves: list[Callable[[], n.Expr]] = [lambda: _spread(draw(literals(dtype)), of)]
    named = [name for name, t in env.values.items() if t == of]
    if named:
        leaves.append(lambda: n.Var(pick(draw, named), of))
    whole = [b for b in env.buffers.values() if n.Region(b).type == of and b.space != "constant"]
    if whole:
        leaves.append(lambda: build.load(build.region(pick(draw, whole))))
    indexed = [b for b in env.buffers.values() if b.dtype == dtype and b.shape]
    if indexed and not tile:
        leaves.append(lambda: _element_load(draw, env, pick(draw, indexed), depth))
    if depth <= 0:
        return pick(draw, leaves)()

    def sub(t: Type = of) -> n.Expr:
        return _expression(draw, env, t, depth - 1)

    def scalar_or_whole(t: Type) -> n.Expr:
        return sub(t) if not tile or draw(st.booleans()) else sub(dtype_of(t))

    inner: list[Callable[[], n.Expr]] = [lambda: pick(draw, leaves)()]
    if dtype.is_integer:
        ops = ("add", "sub", "mul", "floordiv", "mod", "ceildiv", "tdiv", "trem", "min", "max", "and", "or", "xor", "shl", "shr")
        inner += [lambda: build.binary(pick(draw, ops), sub(), scalar_or_whole(of))] * 4
        inner += [lambda: build.unary(pick(draw, ("neg", "not")), sub())]
    elif dtype.is_float:
        inner += [lambda: build.binary(pick(draw, ("add", "sub", "mul", "div", "min", "max")), sub(), scalar_or_whole(of))] * 4
        inner += [lambda: build.unary("neg", sub()), lambda: build.call(pick(draw, ("exp", "sqrt", "abs")), sub())]
    else:
        inner += [lambda: build.binary(pick(draw, ("and", "or", "xor")), sub(), sub()), lambda: build.invert(sub())]
        other = pick(draw, (I32, F32, U8))
        typed: Type = TileType(other, shape) if tile else other
        inner.append(lambda: build.compare(pick(draw, sorted(n.COMPARISONS)), sub(typed), sub(typed)))
    source = pick(draw, (I32, F32, I64, U8))
    inner.append(lambda: build.cast(sub(TileType(source, shape) if tile else source), dtype))
    inner.append(lambda: build.select(sub(TileType(BOOL, shape) if tile else BOOL), sub(), sub()))
    made = pick(draw, inner)()
    return made if made.type == of else _spread(made, of)


def _spread(e: n.Expr, of: Type) -> n.Expr:
    return build.broadcast(e, of)


def _element_load(draw: st.DrawFn, env: Env, b: n.Buffer, depth: int) -> n.Expr:
    at = build.region(b, *(_inside(draw, env, d) for d in b.shape))
    mask = _expression(draw, env, BOOL, 0) if draw(st.integers(0, 3)) == 0 else None
    clip = draw(st.booleans())
    other = draw(literals(b.dtype)) if draw(st.booleans()) else None
    return build.load(at, mask, other, clip, pick(draw, ("", "cg", "in")))


def _inside(draw: st.DrawFn, env: Env, extent: n.Expr) -> n.Expr:
    """A scalar index: a literal inside a known extent, or a name."""
    size = build.int_value(extent)
    named = [name for name, t in env.values.items() if t == I32]
    wanted = draw(st.booleans())
    if named and wanted:
        return build.add(n.Var(pick(draw, named), I32), draw(st.integers(-2, 2)))
    return build.const(draw(st.integers(0, (size or 1) - 1)))


def _region(draw: st.DrawFn, env: Env, b: n.Buffer) -> n.Region:
    """A place in a buffer: whole, spans and scalars, or all scalars."""
    if not b.shape or draw(st.booleans()):
        return build.region(b)
    index: list[n.Expr | n.Span] = []
    for d in b.shape:
        size = build.int_value(d)
        if draw(st.booleans()):
            extent = pick(draw, [e for e in EXTENTS if size is None or e <= size] or [1])
            low: n.Expr = build.const(0) if size is None else build.const(draw(st.integers(0, size - extent)))
            index.append(build.span(low, extent))
        else:
            index.append(_inside(draw, env, d))
    return build.region(b, *index)


_DTYPES = st.sampled_from((BOOL, *INTEGERS, *FLOATS))
TYPES: st.SearchStrategy[Type] = st.one_of(_DTYPES, st.builds(TileType, _DTYPES, st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3).map(tuple)))
"""Scalar and small tile types."""
SHAPES = {least: st.lists(st.sampled_from(EXTENTS), min_size=least, max_size=3) for least in (0, 1)}
WORDS, SHORT = st.text(max_size=12), st.text(max_size=8)
LABELS = st.permutations(("load_A", "k_loop", "store", "in"))


@st.composite
def statements(draw: st.DrawFn, env: Env, depth: int, team: str = "cta", in_loop: bool = False) -> n.Stmt:
    """A statement that may stand in a block with the names of `env` (which it adds to)."""
    kinds = ["let", "let", "alloc", "alloc", "store", "store", "copy", "opaque", "hole", "barrier", "view"]
    if depth > 0:
        kinds += ["for", "for", "if", "while"] + (["thread", "roles", "mma"] if team == "cta" else [])
    if in_loop:
        kinds.append("jump")
    kind = pick(draw, kinds)
    made = draw(_KINDS[kind](env, depth, team, in_loop))
    return made


@st.composite
def _let(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    of = draw(TYPES)
    if isinstance(of, TileType) and draw(st.integers(0, 4)) == 0:
        ops = ("sum", "max") if of.dtype.is_float else ("sum", "max", "xor")
        value: n.Expr = build.call("reduce", _expression(draw, env, of, 1), axis=0, op=pick(draw, ops))
    else:
        value = _expression(draw, env, of, 3)
    name = env.fresh(draw)
    env.values[name] = value.type
    return n.Let((name,), value)


@st.composite
def _alloc(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    dtype = pick(draw, (*INTEGERS, *FLOATS))
    choices: tuple[Space, ...] = ("register",) if team == "thread" else ("register", "fragment", "shared")
    space = pick(draw, choices)
    shape = tuple(map(build.const, draw(SHAPES[0 if space == "register" else 1])))
    layout = None
    if space == "shared" and len(shape) == 2:
        layout = pick(draw, (None, n.Layout("swizzle", (3, 4, 3)), n.Layout("strides", ((9, 1),)),
                                       n.Layout("compose", (n.Layout("swizzle", (1, 4, 3)), n.Layout("strides", (16, 1))))))
    buffer = n.Buffer(env.fresh(draw), dtype, shape, space, layout, None, pick(draw, (0, 16, 128)) if space == "shared" else 0)
    init = _expression(draw, env, dtype, 1) if draw(st.booleans()) else None
    env.buffers[buffer.name] = buffer
    return n.Alloc(buffer, init)


@st.composite
def _view(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    base = pick(draw, sorted(env.buffers.values(), key=lambda b: b.name))
    if draw(st.booleans()) or base.dtype == MBARRIER:
        axes = tuple(env.fresh(draw) for _ in base.shape)
        inner = env.inner()
        inner.values.update(dict.fromkeys(axes, I32))
        at = build.region(base, *(build.add(n.Var(a, I32), draw(st.integers(0, 3))) for a in axes))
        fill = draw(literals(base.dtype)) if axes and base.dtype != MBARRIER else None
        buffer = replace(base, name=env.fresh(draw), layout=None, align=0, strides=None)
        env.buffers[buffer.name] = buffer
        return n.View(buffer, at, axes, fill)
    buffer = n.Buffer(env.fresh(draw), U8, (build.const(base.dtype.bytes),), base.space)
    env.buffers[buffer.name] = buffer
    return n.View(buffer, build.region(base, *(build.const(0) for _ in base.shape)))


def _writable(env: Env) -> list[n.Buffer]:
    return sorted((b for b in env.buffers.values() if b.name != "A" and b.dtype != MBARRIER), key=lambda b: b.name)


@st.composite
def _store(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    at = _region(draw, env, pick(draw, _writable(env)))
    static = all(isinstance(d, int) for d in shape_of(at.type))
    value = _expression(draw, env, at.type if static and draw(st.booleans()) else dtype_of(at.type), 3)
    mask = _expression(draw, env, BOOL, 1) if draw(st.integers(0, 3)) == 0 else None
    return n.Store(at, value, mask, draw(st.booleans()), pick(draw, ("", "cs")))


@st.composite
def _copy(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    at = _region(draw, env, pick(draw, _writable(env)))
    partner = replace(at.buffer, name=at.buffer.name)
    via = pick(draw, ("plain", "vector(4)"))
    source = build.load(build.region(partner, *at.index), None, draw(literals(at.buffer.dtype)), draw(st.booleans()))
    assert isinstance(source, n.Load)
    return n.Copy(source, at, via, None, True, None, False, pick(draw, ((), n.attrs(evict="first", l2=128))))


@st.composite
def _mma(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    m, k, width = (pick(draw, EXTENTS) for _ in range(3))
    acc = n.Buffer(env.fresh(draw), F32, (build.const(m), build.const(width)), "fragment")
    made = n.Mma(build.region(acc), _expression(draw, env, TileType(F16, (m, k)), 1), _expression(draw, env, TileType(F16, (k, width)), 1),
                 pick(draw, ("auto", "mma_sync", "fma")), pick(draw, ("ieee", "tf32")))
    return n.For(n.Var(env.fresh(draw), I32), build.const(0), build.const(1), build.const(1), (n.Alloc(acc, build.const(0.0, F32)), made))


@st.composite
def _barrier(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    return n.Eval(build.call(pick(draw, ("barrier", "fence", "trap"))))


@st.composite
def _opaque(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    names = st.lists(st.sampled_from(sorted(env.buffers)), max_size=2, unique=True).map(tuple)
    return n.Opaque("triton", draw(WORDS), draw(WORDS), draw(st.one_of(st.just(("*",)), names)), draw(names))


@st.composite
def _hole(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    buffers = sorted(env.buffers.values(), key=lambda b: b.name)
    places = [_region(draw, env, pick(draw, buffers)) for _ in range(draw(st.integers(0, 3)))]
    cut = draw(st.integers(0, len(places)))
    options = pick(draw, ((), n.attrs(budget=3, exact=True, scale=-0.5, kind="for", text="a b")))
    return n.Hole(env.fresh(draw), draw(SHORT), tuple(places[:cut]), tuple(places[cut:]), options)


@st.composite
def _for(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    dtype = pick(draw, (I32, I32, I64))
    kind, options = pick(draw, (("serial", ()), ("unroll", n.attrs(factor=4)), ("pipelined", n.attrs(stages=3)), ("vectorize",
                                                                                                                            ())))
    inner = env.inner()
    name = env.fresh(draw)
    low, high = _expression(draw, env, dtype, 1), _expression(draw, env, dtype, 1)
    inner.values[name] = dtype
    return n.For(n.Var(name, dtype), low, high, build.const(draw(st.integers(1, 4)), dtype), draw(blocks(inner, depth - 1, team, True)),
                 kind,
                 options)


@st.composite
def _thread(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    inner = env.inner()
    name = env.fresh(draw)
    inner.values[name] = I32
    return n.For(n.Var(name, I32), build.const(0), build.const(64), build.const(1), draw(blocks(inner, depth - 1, "thread", False)),
                 "thread")


@st.composite
def _if(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    cond = _expression(draw, env, BOOL, 2)
    orelse = draw(blocks(env.inner(), depth - 1, team, in_loop)) if draw(st.booleans()) else ()
    return n.If(cond, draw(blocks(env.inner(), depth - 1, team, in_loop)), orelse)


@st.composite
def _while(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    return n.While(_expression(draw, env, BOOL, 2), draw(blocks(env.inner(), depth - 1, team, True)))


@st.composite
def _roles(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    first = n.Role("producer", 0, 1, draw(blocks(env.inner(), depth - 1, "role", False)), pick(draw, (0, 40)))
    return n.Roles((first, n.Role("in", 1, 4, draw(blocks(env.inner(), depth - 1, "role", False)))))


@st.composite
def _jump(draw: st.DrawFn, env: Env, depth: int, team: str, in_loop: bool) -> n.Stmt:
    return n.Jump(pick(draw, ("break", "continue", "return")))


_KINDS: dict[str, Callable[[Env, int, str, bool], st.SearchStrategy[n.Stmt]]] = {
    "let": _let, "alloc": _alloc, "view": _view, "store": _store, "copy": _copy, "mma": _mma, "barrier": _barrier, "opaque": _opaque,
    "hole": _hole, "for": _for, "thread": _thread, "if": _if, "while": _while, "roles": _roles, "jump": _jump}


@st.composite
def blocks(draw: st.DrawFn, env: Env, depth: int = 2, team: str = "cta", in_loop: bool = False, most: int = 4) -> n.Block:
    """A block of up to `most` statements, some labeled (labels are unique in the block)."""
    labels = iter(draw(LABELS))
    out = []
    for _ in range(draw(st.integers(0, most))):
        s = draw(statements(env, depth, team, in_loop))
        out.append(replace(s, label=next(labels)) if draw(st.integers(0, 3)) == 0 else s)  # type: ignore[type-var]  # every Stmt is one
    return tuple(out)


@st.composite
def programs(draw: st.DrawFn, kernels: int = 2) -> n.Program:
    """Specialized programs that the verifier accepts: sizes M and N, tensors A (in) and C (inout), up to `kernels` kernels."""
    sizes = {"M": I32, "N": I32}
    m, width = n.Var("M", I32), n.Var("N", I32)
    tensors = {"A": n.Buffer("A", pick(draw, FLOATS), (m, width), "global"),
               "C": n.Buffer("C", F32, (build.const(8), build.const(8)), "global", None, (build.const(16), build.const(1)), 16)}
    params = (n.Param("M", "size", I32), n.Param("N", "size", I32), n.Param("A", "in", tensors["A"], None, n.attrs(restrict=True)),
              n.Param("C", "inout", tensors["C"]))
    facts = (build.compare("eq", build.mod(m, 8), 0),) if draw(st.booleans()) else ()
    made = []
    for i in range(draw(st.integers(1, kernels))):
        env = Env({**sizes}, dict(tensors), {"M", "N", "A", "C"})
        axes = tuple(n.Axis(env.fresh(draw), build.ceildiv(m, 4)) for _ in range(draw(st.integers(0, 2))))
        env.values.update((a.name, I32) for a in axes)
        made.append(n.Kernel(f"kernel_{i}", axes, build.const(128), draw(blocks(env, 3))))
    plan: tuple[n.Launch | n.Dispatch, ...] = ()
    if draw(st.booleans()):
        plan = (n.Dispatch(((build.compare("lt", m, 64), (n.Launch("kernel_0"),)),), (n.Launch("kernel_0", n.attrs(pdl=True)),)),)
    return n.Program("generated", params=params, facts=facts, kernels=tuple(made), plan=plan)
