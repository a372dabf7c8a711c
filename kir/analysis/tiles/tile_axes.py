"""Which tile axes of a kernel are the same axis.

Axes that meet in an elementwise operation, a store or an mma are one *class*. A class that indexes memory knows how: the `lo` and `step`
of its spans (or of the sum around its iota). From this a pass sees that, say, axis 0 of `acc` runs over `pid_m * 128 + 0..127`.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import TileType, TupleType, dtype_of, shape_of
from kir.ir.visit import once, statements, walk

N = TypeVar("N", bound=n.Node)
Key = tuple[str, int]
"""A named tile and one of its axes."""


@dataclass
class AxisClass:
    """Axes that are one. `extent` of all members; `sweeps`: (lo, step) of the places and index sums it runs over; `reduced`: it is
    consumed by a reduction, scan, sort or as the k of an mma; `members`: the named tiles that have it and at which axis."""

    extent: int | n.Expr
    sweeps: set[tuple[n.Expr, int | n.Expr]] = field(default_factory=set)
    reduced: bool = False
    opaque: bool = False
    members: set[Key] = field(default_factory=set)


class TileAxes:
    """Axis classes of a kernel; built once by union-find over all its statements."""

    def __init__(self, kernel: n.Kernel) -> None:
        self._parent: list[int] = []
        self._classes: list[AxisClass] = []
        self._named: dict[str, tuple[int | None, ...]] = {}
        self._seen: dict[int, tuple[n.Node, tuple[int | None, ...]]] = {}
        for s in statements(kernel.body):
            self._statement(s)

    @classmethod
    def known(cls, kernel: n.Kernel) -> TileAxes:
        """The classes of a kernel for questions about its names: worked out once for each kernel, and shared. Questions about expressions
        that may be new to it (`of_expr`) want an instance of their own."""
        return once(kernel, "_tile_axes", lambda: cls(kernel))

    # ------------------------------------------------------------------------------------------------------------ queries
    def of(self, name: str) -> tuple[AxisClass | None, ...]:
        """The classes of the axes of a named tile (let or fragment); None for an axis of extent 1."""
        return tuple(None if a is None else self._classes[self._find(a)] for a in self._named.get(name, ()))

    def classes(self) -> list[AxisClass]:
        """All classes, in the order in which their first member appears."""
        seen: dict[int, AxisClass] = {}
        for k in range(len(self._parent)):
            root = self._find(k)
            seen.setdefault(root, self._classes[root])
        return list(seen.values())

    def over(self, runs: Callable[[AxisClass], bool]) -> list[AxisClass]:
        """The classes that run over the same elements, those of one extent as one: two statements that compute a value of the same places, each for
        itself, have an axis each, of which one is not to be had without the other."""
        first: dict[int | n.Expr, int] = {}
        for k in range(len(self._parent)):
            if self._find(k) == k and runs(self._classes[k]):
                self._join(first.setdefault(self._classes[k].extent, k), k)
        return [self._classes[k] for k in first.values()]

    def of_expr(self, e: n.Expr) -> tuple[AxisClass | None, ...]:
        """The classes of the axes of an expression of the kernel."""
        return tuple(None if a is None else self._classes[self._find(a)] for a in self._expr(e))

    # --------------------------------------------------------------------------------------------------------- union-find
    def _fresh(self, extent: int | n.Expr) -> int | None:
        if extent == 1:
            return None
        self._parent.append(len(self._parent))
        self._classes.append(AxisClass(extent))
        return len(self._parent) - 1

    def _find(self, a: int) -> int:
        while self._parent[a] != a:
            self._parent[a] = self._parent[self._parent[a]]
            a = self._parent[a]
        return a

    def _join(self, a: int | None, b: int | None) -> int | None:
        if a is None or b is None:
            return b if a is None else a
        ra, rb = self._find(a), self._find(b)
        if ra != rb:
            ra, rb = min(ra, rb), max(ra, rb)
            self._parent[rb] = ra
            into, out = self._classes[ra], self._classes[rb]
            into.sweeps |= out.sweeps
            into.members |= out.members
            into.reduced, into.opaque = into.reduced or out.reduced, into.opaque or out.opaque
        return self._find(a)

    def _align(self, *parts: tuple[int | None, ...]) -> tuple[int | None, ...]:
        rank = max((len(p) for p in parts), default=0)
        out: list[int | None] = [None] * rank
        for p in parts:
            for k, a in enumerate(p):
                out[rank - len(p) + k] = self._join(out[rank - len(p) + k], a)
        return tuple(out)

    def _mark(self, axes: tuple[int | None, ...], *, reduced: bool = False, opaque: bool = False) -> None:
        for a in axes:
            if a is not None:
                c = self._classes[self._find(a)]
                c.reduced, c.opaque = c.reduced or reduced, c.opaque or opaque

    def _name(self, name: str, axes: tuple[int | None, ...]) -> None:
        known = self._named.get(name)
        self._named[name] = axes if known is None else self._align(known, axes)
        for k, a in enumerate(self._named[name]):
            if a is not None:
                self._classes[self._find(a)].members.add((name, k))

    # --------------------------------------------------------------------------------------------------------- statements
    def _statement(self, s: n.Stmt) -> None:
        match s:
            case n.Let():
                axes = self._expr(s.value)
                if isinstance(s.value.type, TupleType):
                    for name in s.names:
                        self._name(name, axes)
                else:
                    self._name(s.names[0], axes)
            case n.Alloc():
                axes = tuple(self._fresh(d if (v := build.int_value(d)) is None else v) for d in s.buffer.shape)
                self._name(s.buffer.name, axes)
                if s.init is not None:
                    self._align(axes, self._expr(s.init))
            case n.Store():
                axes = self._align(self._region(s.at), self._expr(s.value))
                if s.mask is not None:
                    self._align(axes, self._expr(s.mask))
            case n.Copy():
                self._align(self._expr(s.src), self._region(s.dst))
            case n.Mma():
                acc, a, b = self._region(s.acc), self._expr(s.a), self._expr(s.b)
                self._join(acc[-2], a[-2])
                self._join(acc[-1], b[-1])
                self._mark((self._join(a[-1], b[-2]),), reduced=True)
            case n.Eval():
                self._expr(s.call)
            case n.If():
                self._expr(s.cond)
            case n.For():
                self._expr(s.lo), self._expr(s.hi)
            case n.While():
                self._expr(s.cond)
            case _:
                pass

    def _region(self, r: n.Region) -> tuple[int | None, ...]:
        return self._once(r, self._axes_of_region)

    def _once(self, x: N, find: Callable[[N], tuple[int | None, ...]]) -> tuple[int | None, ...]:
        """The axes of one occurrence: asked again, it has the same axes (the node is kept, so that its id stays its own)."""
        if id(x) not in self._seen:
            self._seen[id(x)] = (x, find(x))
        return self._seen[id(x)][1]

    def _axes_of_region(self, r: n.Region) -> tuple[int | None, ...]:
        name = r.buffer.name
        if not r.index:
            if name in self._named:
                return self._named[name]
            return tuple(self._fresh(d) for d in shape_of(r.type))
        spans = [i for i in r.index if isinstance(i, n.Span)]
        if not spans:
            return self._align(*(self._expr(i) for i in r.index if isinstance(i, n.Expr)))
        out: list[int | None] = []
        for k, i in enumerate(r.index):
            if isinstance(i, n.Span):
                axis = self._fresh(i.extent)
                if axis is not None:
                    self._classes[axis].sweeps.add((i.lo, i.step))
                    if name in self._named and build.int_value(r.buffer.shape[k]) == i.extent and build.is_const(i.lo, 0):
                        self._join(axis, self._named[name][k])
                out.append(axis)
        return tuple(out)

    # -------------------------------------------------------------------------------------------------------- expressions
    def _expr(self, e: n.Expr) -> tuple[int | None, ...]:
        return self._once(e, self._axes_of_expr) if isinstance(e.type, (TileType, TupleType)) else self._scalar(e)

    def _scalar(self, e: n.Expr) -> tuple[int | None, ...]:
        """A scalar has no axes, but a reduction inside it consumes some."""
        for x in walk(e):
            if isinstance(x, n.Call) and x.fn in ("reduce", "pick"):
                self._once(x, self._axes_of_expr)
        return ()

    def _axes_of_expr(self, e: n.Expr) -> tuple[int | None, ...]:
        match e:
            case n.Var():
                if isinstance(e.type, TileType) and e.name not in self._named:
                    self._name(e.name, tuple(self._fresh(d) for d in e.type.shape))
                return self._named[e.name] if isinstance(e.type, TileType) else ()
            case n.Unary():
                return self._expr(e.x)
            case n.Binary():
                return self._binary(e)
            case n.Select():
                return self._align(self._expr(e.cond), self._expr(e.a), self._expr(e.b))
            case n.Cast():
                return self._expr(e.x)
            case n.Load():
                axes = self._region(e.at)
                for part in (e.mask, e.other):
                    if part is not None:
                        axes = self._align(axes, self._expr(part))
                return axes
            case n.Call():
                return self._call(e)
            case _:
                return ()

    def _binary(self, e: n.Binary) -> tuple[int | None, ...]:
        axes = self._align(self._expr(e.a), self._expr(e.b))
        if axes and dtype_of(e.type).is_integer and e.op in ("add", "sub", "mul"):
            for axis, found in self._sums(e).items():
                if found is not None:
                    self._classes[self._find(axis)].sweeps.add(found)
        return axes

    def _sums(self, e: n.Expr) -> dict[int, tuple[n.Expr, int | n.Expr] | None]:
        """For a sum with exactly one iota in it, the scalar part and the coefficient of that iota."""
        lo: dict[tuple[n.Expr, ...], int] = {}
        swept: list[tuple[int, int]] = []
        for monomial, c in build.polynomial(e).items():
            tiles = [x for x in monomial if isinstance(x.type, TileType)]
            if not tiles:
                lo[monomial] = c
            elif len(monomial) == 1 and _is_iota(tiles[0]):
                swept += [(a, c) for a in self._expr(tiles[0]) if a is not None]
            else:
                return {}
        if len(swept) != 1:
            return {}
        return {swept[0][0]: (build.from_polynomial(lo, dtype_of(e.type)), swept[0][1])}

    def _call(self, e: n.Call) -> tuple[int | None, ...]:
        args = [a for a in e.args if isinstance(a, n.Expr)]
        options = dict(e.attrs)
        match e.fn:
            case "iota":
                return tuple(self._fresh(d) for d in shape_of(e.type))
            case "expand":
                axes = list(self._expr(args[0]))
                axes.insert(int(options["axis"]), None)
                return tuple(axes)
            case "broadcast":
                own = self._expr(args[0])
                shape = shape_of(e.type)
                pad = (None,) * (len(shape) - len(own)) + own
                return tuple(self._fresh(d) if a is None else a for a, d in zip(pad, shape, strict=True))
            case "trans":
                axes_in = self._expr(args[0])
                return tuple(axes_in[int(a.value)] for a in args[1:] if isinstance(a, n.Const))
            case "reduce" | "scan" | "sort":
                axes_all = self._align(*(self._expr(a) for a in args))
                axis = int(options.get("axis", 0))
                self._mark((axes_all[axis],), reduced=True)
                if e.fn != "reduce":
                    return axes_all
                kept: tuple[int | None, ...] = (None,) if options.get("keep") else ()
                return axes_all[:axis] + kept + axes_all[axis + 1:]
            case "pick":
                self._mark(self._expr(args[0]), opaque=True)
                return self._align(*(self._expr(a) for a in args[1:]))
            case "multiple_of" | "max_contiguous" | "max_constancy":
                return self._expr(args[0])
        parts = [self._region(a) if isinstance(a, n.Region) else self._expr(a) for a in e.args]
        shape = shape_of(e.type) if e.of is None else ()
        reshaping = e.fn in ("reshape", "gather", "join", "split", "cat", "vec", "histogram")
        if not reshaping and all(len(p) <= len(shape) for p in parts):
            return self._align(*parts)
        for p in parts:
            self._mark(p, opaque=True)
        return tuple(self._fresh(d) for d in shape)


def _is_iota(e: n.Expr) -> bool:
    while isinstance(e, n.Cast) or (isinstance(e, n.Call) and e.fn == "expand"):
        inner = e.x if isinstance(e, n.Cast) else e.args[0]
        assert isinstance(inner, n.Expr)
        e = inner
    return isinstance(e, n.Call) and e.fn == "iota"
