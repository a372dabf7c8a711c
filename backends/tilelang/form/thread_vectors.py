"""A thread's code in TileLang's form: vectors are arrays that loops fill, and what is folded over a vector is a loop."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kir.analysis.elements import NotElementwise, element, element_region
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, DType, TileType, dtype_of, shape_of
from kir.ir.visit import substitute, transform

_FOLDS = {"sum": ("add", 0.0), "max": ("max", float("-inf")), "min": ("min", float("inf")), "prod": ("mul", 1.0)}


class ThreadForm:
    """Rewrites blocks of one thread; `fresh` gives names that nothing has, `checked` what TileLang makes of a scalar's loads."""

    def __init__(self, fresh: Callable[[str], str], checked: Callable[[n.Expr], n.Expr], generic: bool = False) -> None:
        self.fresh, self.checked, self.generic = fresh, checked, generic

    def block(self, block: n.Block, arrays: dict[str, n.Expr]) -> n.Block:
        """The block without values of several elements."""
        arrays = dict(arrays)
        out: list[n.Stmt] = []
        for s in block:
            s = _picked(substitute(s, arrays))
            if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value.type, TileType):
                buffer = _array(s.names[0], s.value.type)
                out += [n.Alloc(buffer), *self.statement(n.Store(n.Region(buffer), s.value, label=s.label, origin=s.origin), arrays)]
                arrays[s.names[0]] = n.Load(n.Region(buffer))
            else:
                out += self.statement(s, arrays)
        return tuple(out)

    def statement(self, s: n.Stmt, arrays: dict[str, n.Expr]) -> list[n.Stmt]:
        """What stands for a statement."""
        match s:
            case n.For() | n.While():
                if isinstance(s, n.For) and s.kind == "unroll" and dict(s.attrs).get("factor") is not None and build.int_value(s.hi) == dict(s.attrs)["factor"]:
                    s = replace(s, attrs=())  # all of it, which T.unroll does unasked
                return [replace(s, body=self.block(s.body, arrays))]
            case n.If():
                before, cond = self.folded(s.cond)
                return [*before, replace(s, cond=cond, then=self.block(s.then, arrays), orelse=self.block(s.orelse, arrays))]
            case n.Let():
                before, value = self.folded(s.value)
                return [*before, replace(s, value=value)]
            case n.Alloc() if s.init is not None and not s.buffer.shape:
                before, value = self.folded(s.init)
                return [*before, replace(s, init=value)]
            case n.Alloc() if s.init is not None and isinstance(s.init.type, TileType) and not (self.generic and _one_value(s.init)):
                filled = n.Store(n.Region(s.buffer), s.init, label=s.label, origin=s.origin)
                return [replace(s, init=None), *self.store(filled)]
            case n.Store():
                return self.store(s)
            case n.Eval() if is_idle(s):
                return []
            case n.Eval():
                made: n.Stmt = replace(s, call=transform(s.call, lambda old, new: self.checked(new) if isinstance(new, n.Load) else new))
                return [made]
            case _:
                return [s]

    def store(self, s: n.Store) -> list[n.Stmt]:
        """A store, element by element where it has several."""
        before, value = self.folded(s.value)
        clip = s.clip or s.at.buffer.space == "global"
        fills = self.generic and isinstance(value, n.Const) and s.at.buffer.space != "global" and s.mask is None  # as its own source says
        if fills or not isinstance(s.at.type, TileType):
            return [*before, replace(s, value=value, clip=clip)]
        axes = [n.Var(self.fresh("v"), I32) for _ in shape_of(s.at.type)]
        try:
            inner: n.Stmt = n.Store(element_region(s.at, axes), self.checked(element(value, axes[len(axes) - len(shape_of(value.type)):])), clip=clip,
                                    mask=None if s.mask is None else element(s.mask, axes), label=s.label, origin=s.origin)
        except NotElementwise:
            return [s]
        for k, (axis, extent) in enumerate(reversed(list(zip(axes, shape_of(s.at.type), strict=True)))):
            hi = extent if isinstance(extent, n.Expr) else build.const(extent)
            inner = n.For(axis, build.const(0), hi, build.const(1), (inner,), "vectorize" if k == 0 else "serial")
        return [*before, inner]

    def folded(self, e: n.Expr) -> tuple[list[n.Stmt], n.Expr]:
        """`e` with what is folded over a vector taken out into a loop before it."""
        before: list[n.Stmt] = []

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if not (isinstance(new, n.Call) and new.fn == "reduce" and new.of is None and not isinstance(new.type, TileType)):
                return self.checked(new) if isinstance(new, n.Load) and not isinstance(new.type, TileType) else new
            fold, source = _FOLDS.get(str(dict(new.attrs).get("op"))), new.args[0]
            if fold is None or not isinstance(source, n.Expr) or len(new.args) != 1 or not dtype_of(new.type).is_float:
                return new
            place = n.Region(n.Buffer(self.fresh("fold"), dtype_of(new.type), (), "register"))
            v = n.Var(self.fresh("v"), I32)
            (extent,) = shape_of(source.type)
            try:
                part = self.checked(element(source, [v]))
            except NotElementwise:
                return new
            hi = extent if isinstance(extent, n.Expr) else build.const(extent)
            before.extend([n.Alloc(place.buffer, build.const(fold[1], _dtype(new))),
                           n.For(v, build.const(0), hi, build.const(1), (n.Store(place, build.binary(fold[0], n.Load(place), part)),))])
            return n.Load(place)

        made: n.Expr = transform(e, leave)
        return before, made


def _picked(s: n.Stmt) -> n.Stmt:
    """A statement with elements that are picked from a vector worked out, or read from its array."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Call) and new.fn == "pick" and new.of is None and isinstance(new.args[0], n.Expr) and isinstance(new.type, DType):
            try:
                return element(new.args[0], [a for a in new.args[1:] if isinstance(a, n.Expr)])
            except NotElementwise:
                return new
        return new
    made: n.Stmt = transform(s, leave)
    return made


def _one_value(e: n.Expr) -> bool:
    """Whether all elements of a tile are one literal, which `T.fill` says."""
    x = e.args[0] if isinstance(e, n.Call) and e.fn == "broadcast" and e.of is None else e
    return isinstance(x, n.Const) or (isinstance(x, n.Cast) and isinstance(x.x, n.Const))


def is_idle(s: n.Eval) -> bool:
    """Whether a statement assumes what is true anyway."""
    return s.call.fn == "assume" and isinstance(s.call.args[0], n.Const) and s.call.args[0].value is True


def _dtype(e: n.Expr) -> DType:
    return dtype_of(e.type)


def _array(name: str, t: TileType) -> n.Buffer:
    return n.Buffer(name, t.dtype, tuple(build.const(d) if isinstance(d, int) else d for d in t.shape), "register")
