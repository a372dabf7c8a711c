"""Loops around one store, as data: what they count, where they store, and whether they reach every element."""
from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from kir.analysis.integers.integer_eval import NAMES, computed
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType
from kir.ir.visit import names_read, substitute

MOST = 1 << 18
"""Most iterations that are counted out one by one."""
KINDS = ("serial", "unroll", "vectorize", "thread")


Loops = tuple[tuple[str, n.Var, int | n.Expr], ...]
"""Kind, counter and length of loops from outside in."""


@dataclass(frozen=True)
class Nest:
    """Loops from 0 by 1 around one plain store: (kind, variable, length) from outside in. A length is a number, or follows from the counters further out, or
    from sizes."""

    loops: Loops
    store: n.Store

    @property
    def counters(self) -> set[str]:
        """The names of the loops' variables."""
        return {v.name for _, v, _ in self.loops}


def nest_at(s: n.Stmt, sizes: Collection[str] = ()) -> Nest | None:
    """The nest that a statement is; None for other statements. Lengths may follow from `sizes`."""
    loops: list[tuple[str, n.Var, int | n.Expr]] = []
    while isinstance(s, n.For):
        count: int | n.Expr | None = build.int_value(s.hi)
        if count is None and s.hi.type == I32 and names_read(s.hi) and names_read(s.hi) <= {*sizes, *(v.name for _, v, _ in loops)}:
            count = s.hi
        counted = count is not None and build.is_const(s.lo, 0) and build.is_const(s.step, 1) and s.var.of == I32
        if s.kind not in KINDS or s.attrs or not counted or count is None or len(s.body) != 1:
            return None
        loops.append((s.kind, s.var, count))
        s = s.body[0]
    if not loops or not isinstance(s, n.Store) or s.mask is not None or s.clip or s.cache or not s.at.index:
        return None
    if any(isinstance(i, n.Span) or isinstance(i.type, TileType) for i in s.at.index):
        return None
    return Nest(tuple(loops), s)


def by_place(nest: Nest, names: Sequence[n.Var]) -> n.Expr | None:
    """The value of a nest's store as an expression of where it is stored: `names` stand for the indices; None where it depends on more."""
    index = [i for i in nest.store.at.index if isinstance(i, n.Expr)]
    lost = False

    def change(e: n.Expr) -> n.Expr:
        nonlocal lost
        if isinstance(e.type, TileType) or not names_read(e) & nest.counters:
            return e
        if getattr(e.type, "is_integer", False) and e.type == I32:
            for i, v in zip(index, names, strict=True):
                if not names_read(i) & nest.counters:
                    continue
                rest = build.sub(e, i)
                if not names_read(rest) & nest.counters:
                    return build.add(v, rest)
        match e:
            case n.Var():
                lost = True
                return e
            case n.Unary():
                return build.unary(e.op, change(e.x))
            case n.Binary():
                return build.binary(e.op, change(e.a), change(e.b))
            case n.Select():
                return build.select(change(e.cond), change(e.a), change(e.b))
            case n.Cast():
                return build.cast(change(e.x), e.dtype, e.rounding)
            case n.Load():
                if any(isinstance(i, n.Span) for i in e.at.index):
                    lost = True
                    return e
                at = build.region(e.at.buffer, *(change(i) for i in e.at.index if isinstance(i, n.Expr)))
                return build.load(at, None if e.mask is None else change(e.mask), None if e.other is None else change(e.other), e.clip, e.cache)
            case n.Call():
                return build.call_with(e.fn, tuple(change(a) if isinstance(a, n.Expr) else a for a in e.args), e.attrs, e.of)
            case _:
                lost = True
                return e
    made = change(nest.store.value)
    return None if lost or names_read(made) & nest.counters else made


def built(loops: Sequence[tuple[str, n.Var, int | n.Expr]], at: n.Region, value: n.Expr) -> n.Stmt:
    """The nest of a store."""
    s: n.Stmt = n.Store(at, value)
    for kind, v, count in reversed(loops):
        s = n.For(v, build.const(0), build.const(count) if isinstance(count, int) else count, build.const(1), (s,), kind=kind)
    return s


@dataclass(frozen=True)
class Reach:
    """What a nest's store reaches: the lowest and the highest place along each axis, and an element between them that it misses, if any."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    missed: tuple[int, ...] | None


def reach(loops: Sequence[tuple[str, n.Var, int | n.Expr]], place: Sequence[n.Expr]) -> Reach | str:
    """The places of a nest's store, counted out one by one; or why they cannot be."""
    names, counts = [v for _, v, _ in loops], list[int]()
    ends: list[n.Expr] = []
    for k, (_, v, count) in enumerate(loops):
        if isinstance(count, int):
            counts.append(count)
            continue
        last = counted_out(names[:k], counts, [count])
        if isinstance(last, str):
            return last
        counts.append(max(int(last[0].max()), 0))
        ends.append(build.compare("lt", v, count))
    found = counted_out(names, counts, [*place, *ends])
    if isinstance(found, str):
        return found
    import numpy as np
    inside = np.logical_and.reduce([np.broadcast_to(True, counts), *found[len(place):]])
    if not inside.any():
        return "the loops store nothing"
    found = [v[inside] for v in found[:len(place)]]
    low, high = tuple(int(v.min()) for v in found), tuple(int(v.max()) for v in found)
    shape = tuple(b - a + 1 for a, b in zip(low, high, strict=True))
    if math.prod(shape) > MOST:
        return f"{math.prod(shape)} elements are too many to count out"
    flat = np.zeros(found[0].shape, dtype=np.int64)
    for v, a, d in zip(found, low, shape, strict=True):
        flat = flat * d + (v - a)
    seen = np.zeros(math.prod(shape), dtype=bool)
    seen[flat.ravel()] = True
    first = None if seen.all() else tuple(int(x) + a for x, a in zip(np.unravel_index(int(np.argmin(seen)), shape), low, strict=True))
    return Reach(low, high, first)


def counted_out(names: Sequence[n.Var], counts: Sequence[int], exprs: Sequence[n.Expr]) -> list[Any] | str:
    """The values of expressions for all values below `counts` of the variables, as arrays of that shape; or why they cannot be counted out."""
    if math.prod(counts) > MOST:
        return f"{math.prod(counts)} iterations are too many to count out"
    import numpy as np
    grids = dict(zip([v.name for v in names], np.indices(tuple(counts)), strict=True))
    values = [_evaluated(e, grids) for e in exprs]
    if any(v is None for v in values):
        return "the place is not computed from the loops alone"
    return [np.broadcast_to(v, tuple(counts)) for v in values]


def _evaluated(e: n.Expr, grids: dict[str, Any]) -> Any:
    import numpy as np
    match e:
        case n.Const():
            return np.bool_(e.value) if isinstance(e.value, bool) else np.int64(e.value)
        case n.Var():
            return grids.get(e.name)
        case n.Cast() if e.rounding == "rn" and isinstance(e.dtype.is_integer, bool) and e.dtype.is_integer:
            return _evaluated(e.x, grids)
        case n.Unary(op="neg" | "not"):
            x = _evaluated(e.x, grids)
            return None if x is None else np.negative(x) if e.op == "neg" else np.invert(x)
        case n.Binary() if e.op in NAMES or e.op == "ceildiv":
            a, b = _evaluated(e.a, grids), _evaluated(e.b, grids)
            return None if a is None or b is None else -computed("floordiv", -a, b) if e.op == "ceildiv" else computed(e.op, a, b)
        case _:
            return None


def recounted(loops: Loops, turns: Sequence[n.Var]) -> Loops:
    """The loops with other counters."""
    own = [v for _, v, _ in loops]
    return tuple((kind, turn, count if isinstance(count, int) else renamed(count, own, turns)) for (kind, _, count), turn in zip(loops, turns, strict=True))


def renamed(e: n.Expr, old: Sequence[n.Var], new: Sequence[n.Var]) -> n.Expr:
    """An expression with other names."""
    made: n.Expr = substitute(e, dict(zip([v.name for v in old], new, strict=True)))
    return made


def counters(count: int, base: str) -> tuple[n.Var, ...]:
    """`base0`, `base1`, ..: names for places or counters in the texts of parameters."""
    return tuple(n.Var(f"{base}{k}", I32) for k in range(count))


def ways(loops: Sequence[str]) -> tuple[tuple[str, int], ...] | None:
    """Kind and length of each loop, from `thread 256`; None for other texts."""
    out = []
    for text in loops:
        kind, _, count = text.partition(" ")
        if kind not in KINDS or not count.isdigit() or int(count) < 1:
            return None
        out.append((kind, int(count)))
    first = [k for k, (kind, _) in enumerate(out) if kind == "thread"]
    return tuple(out) if first in ([], [0]) else None


