"""Loops of the forms that passes ask for."""
from __future__ import annotations

from collections.abc import Sequence

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType


def from_zero(loop: n.For) -> bool:
    """Whether a loop counts from 0 by 1.

        from_zero(loop)        # for i in 0..N
        not from_zero(loop)    # for i in 1..N, for i in 0..N step 2
    """
    return build.is_const(loop.lo, 0) and build.is_const(loop.step, 1)


def counted_loop(s: object, kinds: Sequence[str] = ("serial",), of: DType | None = None, *, plain: bool = False) -> n.For | None:
    """A statement that is a loop from 0 by 1 of one of the kinds (over a variable of that type, and without attributes if `plain`); None
    for others.

        loop = counted_loop(node, ("serial", "unroll"), I32)
        return Miss("no loop from 0 by 1") if loop is None else Site(path, self)
    """
    if not (isinstance(s, n.For) and s.kind in kinds and from_zero(s)) or (plain and s.attrs) or of not in (None, s.var.of):
        return None
    return s


def count_of(s: n.Stmt | None, kinds: Sequence[str] = ("serial",)) -> int | None:
    """The trips of a loop from 0 by 1, where they are a literal.

        count_of(loop) == 8    # for i in 0..8
        count_of(store) is None
    """
    loop = counted_loop(s, kinds)
    return None if loop is None else build.int_value(loop.hi)


def counting(var: n.Var, count: n.Expr | int, body: n.Block, kind: str = "serial", attrs: n.Attrs = (), *,
             label: str | None = None) -> n.For:
    """The loop over an i32 variable from 0 by 1.

        counting(i, 8, (store,))
        counting(t, threads, body, "thread", label="t")
    """
    return n.For(var, build.const(0), build.const(count) if isinstance(count, int) else count, build.const(1), body, kind, attrs, label=label)
