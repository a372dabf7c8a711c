"""What a loop finds where it begins: values, buffers and lanes. Loops that find the same are compiled once."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from kir.base.dataclass import dataclass
from kir.interp.calls.elementwise import MATH
from kir.interp.native.evals import NOTHING, asserted, updated, updates
from kir.interp.numerics.values import Val
from kir.interp.state.frame import LEVELS, Frame
from kir.interp.state.machine import Machine
from kir.interp.state.memory import Handle
from kir.ir import nodes as n
from kir.ir.types import I32, DType
from kir.ir.visit import children, statements

Lanes = Literal["one", "own", "mapped"]
"""How lanes find their part of a memory: it has one; each has its own; or by a table."""



@dataclass(frozen=True)
class Named:
    """A value from outside: whether all lanes have the same."""

    name: str
    dtype: DType
    uniform: bool


@dataclass(frozen=True)
class Shown:
    """What a functional view shows: the place of an element (axes), and what is read outside the buffer there."""

    axes: tuple[str, ...]
    at: n.Region
    fill: n.Const | None


@dataclass(frozen=True)
class Held:
    """A buffer from outside, or one that the loop declares: its rank, its lanes, the number of its memory, and what it shows of another buffer."""

    name: str
    dtype: DType
    space: str
    rank: int
    lanes: Lanes
    memory: int
    shown: Shown | None = None


@dataclass(frozen=True)
class Signature:
    """All that the code of a loop depends on."""

    loop: n.For
    values: tuple[Named, ...]
    buffers: tuple[Held, ...]
    masked: bool
    checked: bool = False


def taken(s: n.Stmt) -> bool:
    """Whether a statement, with all that is inside it, can be compiled: scalars only, no jumps, no waiting, no tiles."""
    match s:
        case n.For():
            return s.kind not in LEVELS and isinstance(s.var.type, DType) and all(map(_plain, (s.lo, s.hi, s.step))) and _body(s.body)
        case n.If():
            return _plain(s.cond) and _body(s.then) and _body(s.orelse)
        case n.Let():
            return len(s.names) == 1 and _plain(s.value)
        case n.Store():
            return _region(s.at) and _plain(s.value) and (s.mask is None or _plain(s.mask))
        case n.Alloc():
            b = s.buffer
            return b.space in ("register", "fragment") and not b.shape and (s.init is None or _plain(s.init))
        case n.Eval():
            return s.call.of is None and (s.call.fn in NOTHING or _called(s))
        case _:
            return False


def _called(s: n.Eval) -> bool:
    """Whether a statement asserts something plain, or updates a plain place by a plain value."""
    at, what = updated(s), asserted(s)
    return _plain(what) if what is not None else at is not None and _region(at) and all(_plain(a) for a in s.call.args if isinstance(a, n.Expr))


def _body(body: n.Block) -> bool:
    return all(map(taken, body))


def quiet(s: n.For) -> bool:
    """Whether the checking mode may have nothing to say of a loop: each tensor is read, or written by one statement, or updated in place by one."""
    stored: list[str] = []
    read: set[str] = set()
    for x in statements((s,)):
        match x:
            case n.For(kind="pipelined") | n.Alloc(init=None):
                return False
            case n.Eval() if asserted(x) is None:
                return False
            case n.Store() if x.at.buffer.space not in ("register", "fragment"):
                stored.append(x.at.buffer.name)
            case _:
                pass
    for e in _within(s):
        if isinstance(e, n.Load):
            read.add(e.at.buffer.name)
    return len(set(stored)) == len(stored) and read & set(stored) <= updated_in_place(s)


def updated_in_place(s: n.For) -> frozenset[str]:
    """The tensors of which a loop reads an element only where a statement puts another value in its place."""
    own: dict[str, int] = {}
    for x in statements((s,)):
        if isinstance(x, n.Store) and x.at.buffer.space not in ("register", "fragment"):
            found = [e for e in _within(x.value) if isinstance(e, n.Load) and e.at.buffer.name == x.at.buffer.name]
            if found and not x.cache and all(e.at == x.at and not e.cache for e in found):
                own[x.at.buffer.name] = len(found)
    every = [e.at.buffer.name for e in _within(s) if isinstance(e, n.Load)]
    return frozenset(name for name, count in own.items() if every.count(name) == count)


def counts_alike(s: n.For) -> bool:
    """Whether compiled code counts as many statements as NumPy does, which may evaluate a loop around one store to registers as one statement."""
    return not any(isinstance(x, n.For) and _held(x)[0] is not None for x in statements(s.body))


def _held(s: n.For) -> tuple[n.Store | None, int]:
    """The one store, to registers, that loops around nothing else hold, and how many loops they are."""
    inner: n.Stmt = s
    deep = 0
    while isinstance(inner, n.For) and len(inner.body) == 1:
        inner, deep = inner.body[0], deep + 1
    return (inner if isinstance(inner, n.Store) and inner.at.buffer.space in ("register", "fragment") else None), deep


def _within(x: n.Node) -> Iterator[n.Node]:
    yield x
    for child in children(x):
        yield from _within(child)


def _plain(e: n.Expr) -> bool:
    if not isinstance(e.type, DType) or e.type.kind in ("token", "symbolic"):
        return False
    match e:
        case n.Const() | n.Var():
            return True
        case n.Unary() | n.Cast():
            return _plain(e.x)
        case n.Binary():
            return _plain(e.a) and _plain(e.b)
        case n.Select():
            return _plain(e.cond) and _plain(e.a) and _plain(e.b)
        case n.Load():
            return _region(e.at) and all(x is None or _plain(x) for x in (e.mask, e.other))
        case n.Call():
            return e.of is None and e.fn in MATH and 0 < len(e.args) <= 3 and all(isinstance(a, n.Expr) and _plain(a) for a in e.args)
        case _:
            return False


def _region(r: n.Region) -> bool:
    return len(r.index) == len(r.buffer.shape) and all(not isinstance(i, n.Span) and _plain(i) for i in r.index)


def names(loop: n.For) -> tuple[dict[str, n.Var], dict[str, n.Buffer], list[n.Alloc]]:
    """Names of values and buffers that a loop uses from outside, and the buffers that it declares."""
    own = {loop.var.name}
    values: dict[str, n.Var] = {}
    buffers: dict[str, n.Buffer] = {}
    allocs: list[n.Alloc] = []
    for x in _within(loop):
        match x:
            case n.For():
                own.add(x.var.name)
            case n.Let():
                own.update(x.names)
            case n.Alloc():
                allocs.append(x)
            case n.Var():
                values[x.name] = x
            case n.Region():
                buffers[x.buffer.name] = x.buffer
            case _:
                pass
    declared = {a.buffer.name for a in allocs}
    return {k: v for k, v in values.items() if k not in own}, {k: v for k, v in buffers.items() if k not in declared}, allocs


def shown(handle: Handle) -> Shown | None:
    """What a functional view shows, where that is worked out from its axes by arithmetic alone."""
    view = handle.view
    if view is None or not (view.fill is None or isinstance(view.fill, n.Const)) or not _region(view.at) or view.at.buffer.dtype != handle.buffer.dtype:
        return None
    return None if _loads(view.at) else Shown(view.axes, view.at, view.fill)


def seen_through(loop: n.For, name: str) -> bool:
    """Whether a loop reads a buffer of this name only, at 32-bit places that no load gives."""
    regions = [x for x in _within(loop) if isinstance(x, n.Region) and x.buffer.name == name]
    stored = any(isinstance(s, n.Store) and s.at.buffer.name == name for s in statements((loop,))) or any(at.buffer.name == name for at in updates(loop))
    return not stored and all(isinstance(i, n.Expr) and i.type == I32 for r in regions for i in r.index) and not any(map(_loads, regions))


def _loads(r: n.Region) -> bool:
    """Whether the place of a region is loaded."""
    return any(isinstance(x, n.Load) for i in r.index for x in _within(i))


def lanes_of(handle: Handle, f: Frame) -> Lanes:
    """How the lanes of a frame find their part of a buffer's memory."""
    memory = handle.memory
    if memory.owner is None or memory.lanes == 1:
        return "one"
    return "own" if f.lane_in(memory.owner) is None else "mapped"


def found(m: Machine, name: str, f: Frame) -> Val | Handle | None:
    """What a name stands for."""
    return f.find(name) or m.globals.get(name)


def signature(loop: n.For, values: Sequence[tuple[str, DType, Val]], buffers: Sequence[Handle], f: Frame, checked: bool = False) -> Signature:
    """The signature of a loop where these are found."""
    numbers: dict[int, int] = {}
    held = tuple(Held(h.buffer.name, h.buffer.dtype, h.memory.space, len(h.shape), lanes_of(h, f), numbers.setdefault(id(h.memory), len(numbers)), shown(h))
                 for h in buffers)
    return Signature(loop, tuple(Named(name, dtype, v.data.shape[0] == 1) for name, dtype, v in values), held, f.live is not None, checked)
