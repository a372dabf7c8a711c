"""What a value is in the rows of the last panel that lie past the end of the loop: nothing that a sum or a maximum would notice, or unknown."""
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from kir.analysis.clipping import divides
from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.analysis.tiles.tile_axes import TileAxes
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import shape_of
from kir.ir.visit import buffers_named, names_read, walk

Past = Literal["zero", "lowest"]
FOLDS_NOTHING: dict[str, Past] = {"add": "zero", "max": "lowest"}
"""What an operation folds in without effect."""
MOVED = ("expand", "trans", "broadcast", "pick")
AT_ZERO = (*MOVED, "to_tf32", "abs", "sqrt", "tanh", "erf", "sin")
"""Functions that are zero at zero."""
FINITE = (*AT_ZERO, "exp", "exp2", "sigmoid", "cos", "iota")
"""Functions that are finite where their arguments are; of a root, where it is zero at zero."""


@dataclass(frozen=True)
class End:
    """Where rows of the last panel lie past the end of a loop: at `at` (of the parts of a smaller of two, those that panels do not fill up), in the body
    of a `kernel`."""

    loop: n.For
    at: tuple[n.Expr, ...]
    kernel: n.Kernel | None = None
    beyond: Facts | None = None
    """What is known where the loop's variable is past its end."""

    @classmethod
    def of(cls, program: n.Program, kernel: n.Kernel, loop: n.For, extent: int, known: Facts) -> End:
        """The end of a loop that panels of an extent go through, where so much is known around it."""
        beyond = known.ranging(loop.var, loop.hi, build.add(loop.hi, extent))
        return cls(loop, tuple(e for e in _smaller_of(loop.hi) if not divides(extent, e, program.facts)) or (loop.hi,), kernel, beyond)

    def is_past(self, i: n.Expr | n.Span, d: n.Expr) -> bool:
        """Whether an index lies past the end of a tensor wherever the loop's variable is past its own: the tensor ends where the loop does, or before."""
        if i == self.loop.var and (d == self.loop.hi or self.at == (d,)):
            return True
        return (isinstance(i, n.Expr) and self.beyond is not None and self.loop.var.name in names_read(i)
                and decide(build.below(i, d), self.beyond).kind == "never")

    def is_bounded(self, cond: n.Expr) -> bool:
        """Whether a condition fails past the end of the loop, in all rows of a tile that the kernel stores."""
        if isinstance(cond, n.Binary) and cond.op == "and" and (self.is_bounded(cond.a) or self.is_bounded(cond.b)):
            return True
        if cond == build.compare("lt", self.loop.var, self.loop.hi) or all(cond == build.compare("lt", self.loop.var, e) for e in self.at):
            return True
        if not (isinstance(cond, n.Binary) and cond.op in ("ge", "le", "gt", "lt") and self.kernel is not None):
            return False
        low, high = (cond.a, cond.b) if cond.op in ("le", "lt") else (cond.b, cond.a)
        return low == self.loop.var and all(_stored_below(self.kernel, high, e) for e in self.at)


def _smaller_of(e: n.Expr) -> Iterator[n.Expr]:
    if isinstance(e, n.Binary) and e.op == "min":
        yield from (*_smaller_of(e.a), *_smaller_of(e.b))
    else:
        yield e


def _stored_below(kernel: n.Kernel, row: n.Expr, end: n.Expr) -> bool:
    """Whether all that a kernel stores are rows of tiles, cut off where their number, `row`, comes to an end."""
    stores = [s for s in walk(kernel) if isinstance(s, n.Store) and s.at.buffer.space == "global"]
    if any(isinstance(x, n.Copy | n.Opaque | n.Hole) or (isinstance(x, n.Call) and x.fn.startswith("atomic_")) for x in walk(kernel)):
        return False
    axes = TileAxes(kernel)
    own = {id(c): c for c in axes.of_expr(row) if c is not None}
    if len(own) != 1 or not stores:
        return False
    (which,) = own.values()
    if which.reduced or which.opaque or len({lo for lo, _ in which.sweeps}) != 1:
        return False
    ((lo, step),) = which.sweeps
    counted = {x for x in walk(row) if isinstance(x, n.Call) and x.fn == "iota"}
    if step not in (1, build.const(1)) or len(counted) != 1 or _without_tiles(row) != lo:
        return False
    return all(s.clip and any(isinstance(i, n.Span) and i.lo == lo and i.extent == which.extent and d == end
                              for i, d in zip(s.at.index, s.at.buffer.shape, strict=False)) for s in stores)


def _without_tiles(row: n.Expr) -> n.Expr | None:
    """What stands beside the numbers of a tile's rows in a sum."""
    if isinstance(row, n.Binary) and row.op == "add":
        for count, rest in ((row.a, row.b), (row.b, row.a)):
            while isinstance(count, n.Call) and count.fn == "expand" and isinstance(count.args[0], n.Expr):
                count = count.args[0]
            if isinstance(count, n.Call) and count.fn == "iota" and not shape_of(rest.type):
                return rest
    return None


def past_end(loop: n.For, e: n.Expr, end: End | None = None) -> Past | None:
    """What `e` is for values of the loop's variable past its end, where loads are clipped to zero; None where that is not known."""
    lets = {s.names[0]: s.value for s in loop.body if isinstance(s, n.Let) and len(s.names) == 1}
    return _past(End(loop, (loop.hi,)) if end is None else end, lets, e)


def _past(end: End, lets: dict[str, n.Expr], e: n.Expr) -> Past | None:
    loop = end.loop

    def of(x: n.Expr | n.Region) -> Past | None:
        return _past(end, lets, x) if isinstance(x, n.Expr) else None

    match e:
        case n.Const():
            return "zero" if e.value == 0 else "lowest" if e.value == -math.inf else None
        case n.Var() if e.name in lets:
            return of(lets[e.name])
        case n.Select():
            return of(e.b) if end.is_bounded(e.cond) else of(e.a) if of(e.a) == of(e.b) else None
        case n.Cast():
            return of(e.x)
        case n.Unary(op="neg"):
            return "zero" if of(e.x) == "zero" else None
        case n.Load() if (start := _begins_with(loop, e.at.buffer.name)) is not None:
            return "lowest" if of(start) == "lowest" else None
        case n.Load():
            if e.at.buffer.space != "global" or not any(end.is_past(i, d) for i, d in zip(e.at.index, e.at.buffer.shape, strict=False)):
                return None
            return "zero" if e.other is None else of(e.other)
        case n.Call() if e.fn in AT_ZERO:
            found = of(e.args[0])
            return found if e.fn in MOVED or found == "zero" else None
        case n.Call(fn="exp" | "exp2"):
            return "zero" if of(e.args[0]) == "lowest" else None
        case n.Binary(op="mul"):
            both = {of(e.a), of(e.b)}
            scaled = of(e.a) if isinstance(e.b, n.Const) and 0 < e.b.value < math.inf else None
            zero = any(of(one) == "zero" and _is_finite(end, lets, other) for one, other in ((e.a, e.b), (e.b, e.a)))
            return scaled or ("zero" if both == {"zero"} or zero else None)
        case n.Binary(op="div"):
            return "zero" if of(e.a) == "zero" and loop.var.name not in _depends(lets, e.b) else None
        case n.Binary(op="add" | "min"):
            return "zero" if of(e.a) == of(e.b) == "zero" else None
        case n.Binary(op="sub"):
            if of(e.a) == of(e.b) == "zero":
                return "zero"
            return "lowest" if of(e.a) == "lowest" and loop.var.name not in _depends(lets, e.b) else None
        case _:
            return None


def _is_finite(end: End, lets: dict[str, n.Expr], e: n.Expr | n.Region) -> bool:
    """Whether a value is finite past the end of the loop, if it is where the loop runs: zero times it is zero."""
    if isinstance(e, n.Region):
        return False
    match e:
        case n.Const():
            return math.isfinite(e.value)
        case n.Var() if e.name in lets:
            return _is_finite(end, lets, lets[e.name])
        case n.Var():
            return True
        case n.Load():
            own = any(isinstance(s, n.Alloc) and s.buffer.name == e.at.buffer.name for s in walk(end.loop))
            return (not own and end.loop.var.name not in _depends(lets, e)) or _past(end, lets, e) == "zero"
        case n.Cast() | n.Unary():
            return _is_finite(end, lets, e.x)
        case n.Select():
            return _is_finite(end, lets, e.a) and _is_finite(end, lets, e.b)
        case n.Binary():
            quotient = e.op in ("add", "sub", "mul", "min", "max") or end.loop.var.name not in _depends(lets, e.b)
            return quotient and _is_finite(end, lets, e.a) and _is_finite(end, lets, e.b)
        case n.Call():
            return end.loop.var.name not in _depends(lets, e) or (e.fn in FINITE and all(_is_finite(end, lets, x) for x in e.args))
        case _:
            return False


def _begins_with(loop: n.For, name: str) -> n.Expr | None:
    """What memory of an iteration begins with, where all that happens to it is that something is added."""
    alloc = next((s for s in loop.body if isinstance(s, n.Alloc) and s.buffer.name == name), None)
    writes = [x for s in loop.body for x in walk(s) if isinstance(x, n.Store) and x.at.buffer.name == name]
    products = any(isinstance(x, n.Mma) and x.acc.buffer.name == name for s in loop.body for x in walk(s))
    if alloc is None:
        return None
    start = alloc.init
    if start is None and writes and writes[0] in loop.body and not writes[0].at.index and name not in buffers_named(writes[0].value):
        start, writes = writes[0].value, writes[1:]
    adds = all(isinstance(x.value, n.Binary) and x.value.op == "add" and x.value.a == n.Load(x.at) for x in writes)
    return start if adds and (writes or products) else None


def _depends(lets: dict[str, n.Expr], e: n.Expr) -> frozenset[str]:
    """The names that a value is computed from, through the lets of the loop."""
    found = names_read(e)
    for name in found & lets.keys():
        found = found | _depends(lets, lets[name])
    return found
