"""What the threads of a team reach together: a nest of loops in which each thread does a share, and the places that all shares cover."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kir.analysis.integers.integer_eval import NAMES, computed
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import names_read, substitute, walk
from kir.rewrite.match import is_counted

if TYPE_CHECKING:
    import numpy as np

_ALIKE = {"tdiv": "floordiv", "trem": "mod"}
"""Operations that are the same of what is never negative, as indices are."""


class Unreached(Exception):
    """A place whose elements cannot be worked out by number."""


@dataclass(frozen=True)
class Nest:
    """Loops with one statement each around `leaf`; `guard` keeps some threads out."""

    loops: tuple[n.For, ...]
    leaf: n.Block
    guard: n.Expr | None = None

    @property
    def variables(self) -> tuple[n.Var, ...]:
        """The loops' variables."""
        return tuple(s.var for s in self.loops)


def nest_of(s: n.Stmt, t: n.Var, any_place: bool = False) -> Nest | None:
    """The nest that a statement is: its leaf copies and stores only (lets of ldmatrix too), at places that differ from thread to thread
    unless `any_place`."""
    loops: list[n.For] = []
    guard = None
    block: n.Block = (s,)
    while len(block) == 1:
        x = block[0]
        if is_counted(x, ("serial", "unroll", "vectorize")) and build.int_value(x.hi) is not None and x.body:
            loops.append(x)
            block = x.body
        elif isinstance(x, n.If) and not x.orelse and t.name in names_read(x.cond) and guard is None:
            guard, block = x.cond, x.then
        else:
            break
    if not all(isinstance(x, n.Copy | n.Store) or (isinstance(x, n.Let) and isinstance(x.value, n.Call) and x.value.fn == "ldmatrix")
               for x in block):
        return None
    if not any_place and not all(_differs(x, t) for x in block):
        return None
    return Nest(tuple(loops), block, guard)


def _differs(s: n.Stmt, t: n.Var) -> bool:
    return t.name in names_read(s) or any(isinstance(x, n.Buffer) and x.space == "register" and x.shape for x in walk(s))


@dataclass(frozen=True)
class Reach:
    """The places of a nest, for `threads` threads numbered by `t`."""

    nest: Nest
    t: n.Var
    threads: int

    def values(self, e: n.Expr) -> np.ndarray[Any, np.dtype[np.int64]]:
        """An index for every thread and iteration, less what it is for the first thread in the first one. Raises Unreached."""
        import numpy as np
        variables = [self.t, *self.nest.variables]
        extents = [self.threads, *(build.int_value(s.hi) or 1 for s in self.nest.loops)]
        grids = np.meshgrid(*(np.arange(x, dtype=np.int64) for x in extents), indexing="ij")
        env = {v.name: g for v, g in zip(variables, grids, strict=True)}
        value = np.broadcast_to(_evaluated(e, env), grids[0].shape)
        value = value - value.reshape(-1)[0]
        if self.nest.guard is not None:
            inside = np.broadcast_to(_evaluated(self.nest.guard, env), grids[0].shape)
            value = np.where(inside, value, 0)
        return np.asarray(value, np.int64)

    def region(self, first: n.Region, *others: n.Region) -> n.Region:
        """The region that a place, and others of the same buffer beside it, reach. Raises Unreached."""
        start = {v.name: build.const(0, dtype_of(v.of)) for v in (self.t, *self.nest.variables)}
        out: list[n.Expr | n.Span] = []
        for k, i in enumerate(first.index):
            lo = i.lo if isinstance(i, n.Span) else i
            last = (build.int_value(i.extent) or 1) - 1 if isinstance(i, n.Span) else 0
            if isinstance(i, n.Span) and i.step != 1:
                raise Unreached("a strided place")
            most = int(self.values(lo).max()) + last
            if int(self.values(lo).min()) < 0:
                raise Unreached("a place before that of the first thread")
            for r in others:
                j = r.index[k]
                apart = build.int_value(build.sub(j.lo if isinstance(j, n.Span) else j, lo))
                if apart is None or apart < 0:
                    raise Unreached("places that are not a fixed distance apart")
                most = max(most, int(self.values(lo).max()) + last + apart)
            begin = substitute(lo, start)
            out.append(build.span(begin, most + 1) if most or isinstance(i, n.Span) else begin)
        return build.region(first.buffer, *out)


def _evaluated(e: n.Expr, env: Mapping[str, Any]) -> Any:
    """An integer expression by number; values that do not depend on thread or iteration count as 0."""
    import numpy as np
    if not names_read(e) & set(env):
        return np.int64(int(e.value)) if isinstance(e, n.Const) else np.int64(0)
    match e:
        case n.Var():
            return env[e.name]
        case n.Unary(op="neg"):
            return -_evaluated(e.x, env)
        case n.Cast() if dtype_of(e.type).is_integer:
            return _evaluated(e.x, env)
        case n.Binary() if (op := _ALIKE.get(e.op, e.op)) in NAMES:
            a, b = _evaluated(e.a, env), _evaluated(e.b, env)
            if op in ("floordiv", "mod") and not np.all(b):
                raise Unreached("a division by a value that is not known")
            return computed(op, a, b)
        case _:
            raise Unreached(f"an index that is a {type(e).__name__.lower()}")
