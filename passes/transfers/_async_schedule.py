"""The schedule of asynchronous copies, walked on a concrete instance: does anything touch a buffer that is still being written?

Loops of unknown length run for a few iterations (every ring wraps twice), parallel ones for every instance; places are boxes of
concrete indices, and an index that is not known covers its whole dimension.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import region_text
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import substitute, walk

Box = tuple[tuple[int, int], ...]
"""Per dimension the first index and the one past the last."""
LONGEST = 64
"""Iterations of a loop of known length that are walked at most."""


@dataclass(frozen=True)
class Hazard:
    """An access to a place that a copy in flight writes."""

    access: str
    copy: str
    at: str


class Undecided(Exception):
    """The walk met something whose schedule it does not know."""


@dataclass
class Flight:
    """`trips` iterations stand for a loop of unknown length."""

    trips: int
    open: list[tuple[n.Region, Box]] = field(default_factory=list)
    groups: list[list[tuple[n.Region, Box]]] = field(default_factory=list)

    def walk(self, block: n.Block, env: dict[str, int]) -> Hazard | None:
        """The first hazard of a block, None when there is none. Raises Undecided."""
        for s in block:
            found = self._statement(s, env)
            if found is not None:
                return found
        return None

    def _statement(self, s: n.Stmt, env: dict[str, int]) -> Hazard | None:
        match s:
            case n.For():
                for value in self._iterations(s, env):
                    found = self.walk(s.body, env if value is None else {**env, s.var.name: value})
                    if found is not None:
                        return found
                return None
            case n.If():
                taken = _value(s.cond, env)
                for body in ((s.then, s.orelse) if taken is None else (s.then if taken else s.orelse,)):
                    found = self.walk(body, env)
                    if found is not None:
                        return found
                return None
            case n.Copy() if s.via == "cp_async" and s.grouped:
                found = self._touched(s, s.src, env) or self._touched(s, s.dst, env)
                self.open.append((s.dst, self._box(s.dst, env)))
                return found
            case n.Eval() if s.call.fn == "async_commit":
                self.groups.append(self.open)
                self.open = []
                return None
            case n.Eval() if s.call.fn == "async_wait":
                left = s.call.args[0]
                pending = _value(left, env) if isinstance(left, n.Expr) else None
                if pending is None:
                    raise Undecided("a wait for an unknown number of groups")
                del self.groups[:max(0, len(self.groups) - pending)]
                return None
            case n.Roles() | n.While() | n.Opaque():
                raise Undecided(f"a {type(s).__name__.lower()} in the schedule")
            case _:
                return self._touched(s, s, env)

    def _iterations(self, s: n.For, env: dict[str, int]) -> Iterator[int | None]:
        lo, hi, step = _value(s.lo, env), _value(s.hi, env), _value(s.step, env)
        if lo is None or step is None or step < 1:
            return iter((None, None))  # what depends on the variable may be anywhere; a second iteration meets what the first left open
        end = lo + step * self.trips if hi is None else min(hi, lo + step * LONGEST)
        return iter(range(lo, end, step))

    def _touched(self, s: n.Stmt, part: n.Node, env: dict[str, int]) -> Hazard | None:
        if not self.open and not self.groups:
            return None
        for x in walk(part):
            if isinstance(x, n.Region):
                box = None
                for copied, written in (*self.open, *(c for g in self.groups for c in g)):
                    if copied.buffer.name == x.buffer.name:
                        box = self._box(x, env) if box is None else box
                        if all(a < d and c < b for (a, b), (c, d) in zip(box, written, strict=True)):
                            where = ", ".join(f"{k} = {v}" for k, v in env.items())
                            return Hazard(region_text(x), region_text(copied), where or (s.label or ""))
        return None

    def _box(self, r: n.Region, env: dict[str, int]) -> Box:
        out: list[tuple[int, int]] = []
        shape = [build.int_value(d) for d in r.buffer.shape]
        for k, d in enumerate(shape):
            if d is None:
                raise Undecided(f"'{r.buffer.name}' has a symbolic extent")
            i = r.index[k] if r.index else build.span(0, d)
            lo = _value(i.lo if isinstance(i, n.Span) else i, env)
            extent, step = (build.int_value(i.extent), build.int_value(i.step)) if isinstance(i, n.Span) else (1, 1)
            if lo is None or extent is None or step is None:
                out.append((0, d))
            else:
                out.append((lo, lo + (extent - 1) * step + 1))
        return tuple(out)


def _value(e: n.Expr, env: dict[str, int]) -> int | None:
    """The integer that an expression has when the loop variables have these values."""
    if isinstance(e.type, TileType) or not isinstance(e.type, DType):
        return None
    names = {x.name: dtype_of(x.type) for x in walk(e) if isinstance(x, n.Var)}
    if not set(names) <= set(env):
        return None
    made = substitute(e, {k: build.const(env[k], d) for k, d in names.items() if isinstance(d, DType)})
    if isinstance(made, n.Const) and isinstance(made.value, bool):
        return int(made.value)
    return build.int_value(made)


def period_of(block: n.Block) -> int:
    """A number of iterations after which every index repeats: the product of the moduli of rings, at most."""
    found = {m for s in block for x in walk(s) if isinstance(x, n.Binary) and x.op == "mod" and (m := build.int_value(x.b))}
    return max(found, default=1)
