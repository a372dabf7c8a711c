"""Products by multiply-adds as threads write them: a loop over the depth around each thread's own elements of the accumulator."""
from __future__ import annotations

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import names_read

from ._footprint import Nest, nest_of


@dataclass(frozen=True)
class Sums:
    """`acc[..] += a * b` for every slot of a thread, over `depth` values of `j`; operands are those of the first slot."""

    loop: n.For
    nest: Nest
    acc: n.Region
    a: n.Load
    b: n.Load
    casts: tuple[n.Expr, n.Expr]

    @property
    def j(self) -> n.Var:
        """The variable of the depth."""
        return self.loop.var

    @property
    def depth(self) -> int:
        """How many values it takes."""
        return build.int_value(self.loop.hi) or 1

    def loop_of(self, item: n.Node) -> str:
        """The loop over the thread's elements that a node moves with; "" for none."""
        names = names_read(item)
        found = [v.name for v in self.nest.variables if v.name in names and v.name != self.j.name]
        return found[0] if len(found) == 1 else ""

    def extent(self, variable: str) -> int:
        """Iterations of one of its loops; 1 for none."""
        return next((build.int_value(s.hi) or 1 for s in self.nest.loops if s.var.name == variable), 1)


def sums(s: n.Stmt, t: n.Var) -> Sums | None:
    """The product that a loop is."""
    if not (isinstance(s, n.For) and s.kind in ("serial", "unroll") and build.int_value(s.hi) is not None):
        return None
    nest = nest_of(s, t, any_place=True)
    if nest is None or not nest.loops or nest.loops[0] is not s or nest.guard is not None:
        return None
    first = _step(nest.leaf[0])
    if first is None or not all(_step(x) is not None for x in nest.leaf) or s.var.name in names_read(first[0]):
        return None
    at, a, b, casts = first
    if {v.name for v in nest.variables} & names_read(a) & names_read(b) != {s.var.name}:
        return None
    return Sums(s, nest, at, a, b, casts)


def _step(s: n.Stmt) -> tuple[n.Region, n.Load, n.Load, tuple[n.Expr, n.Expr]] | None:
    """(place, left factor, right factor, the factors converted) of `place = place + left * right` in registers."""
    if not (isinstance(s, n.Store) and s.at.buffer.space == "register" and s.mask is None and isinstance(s.value, n.Binary)):
        return None
    v = s.value
    if v.op != "add" or dtype_of(v.type).is_integer or v.a != n.Load(s.at) or not isinstance(v.b, n.Binary) or v.b.op != "mul":
        return None
    left, right = v.b.a, v.b.b
    a, b = (x.x if isinstance(x, n.Cast) else x for x in (left, right))
    if not isinstance(a, n.Load) or not isinstance(b, n.Load):
        return None
    return s.at, a, b, (left, right)


def is_step(s: n.Store) -> bool:
    """Whether a store adds a product to a register."""
    return _step(s) is not None
