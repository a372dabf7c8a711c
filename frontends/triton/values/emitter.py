"""The IR that is being written: a stack of blocks, unique names, buffers that stand for mutable names."""

from __future__ import annotations

from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.rebuild.blocks import Blocks
from kir.ir.rebuild.condition_terms import condition_term
from kir.ir.types import DType, Type
from kir.ir.visit import walk

from .values import Dim, NotUnderstood, Shape


@dataclass
class Emitter(Blocks):
    """Statements of the kernel being read. `origin` is attached to what is emitted."""

    owners: dict[str, str] = field(default_factory=dict)
    mutable: set[str] = field(default_factory=set)

    def lets(self, names: tuple[str, ...], call: n.Expr, types: tuple[Type, ...]) -> tuple[n.Expr, ...]:
        """The results of a call with several."""
        made = tuple(n.Var(self.fresh(x), t) for x, t in zip(names, types, strict=True))
        self.emit(n.Let(tuple(v.name for v in made), call))
        return made

    def buffer(self, name: str, dtype: DType, shape: Shape) -> n.Buffer:
        """A fragment of that shape, or a register for a scalar; not yet declared."""
        dims = tuple(build.const(d) if isinstance(d, int) else d for d in shape)
        return n.Buffer(self.fresh(name), dtype, dims, "fragment" if dims else "register")


def whole(b: n.Buffer) -> n.Expr:
    """The value of a buffer."""
    return n.Load(n.Region(b))


def buffer_read(e: n.Expr) -> n.Buffer | None:
    """The buffer whose whole value an expression is."""
    return (
        e.at.buffer
        if isinstance(e, n.Load) and not e.at.index and e.mask is None and e.at.buffer.space in ("fragment", "register")
        else None
    )


def as_expr(d: Dim) -> n.Expr:
    """A dimension as an i32 expression."""
    return build.const(d) if isinstance(d, int) else d


def as_dim(e: n.Expr) -> Dim:
    """An i32 expression as a dimension."""
    value = build.int_value(e)
    return e if value is None else value


def mentions(e: n.Node, names: set[str]) -> bool:
    """Whether a variable or buffer of these names occurs below."""
    return any(isinstance(x, (n.Var, n.Buffer)) and x.name in names for x in walk(e))


def condition_text(e: n.Expr) -> str:
    """A static condition in the functional notation of dtype terms."""
    try:
        return condition_term(e)
    except ValueError as bad:
        raise NotUnderstood(str(bad)) from bad
