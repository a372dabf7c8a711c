"""Loops of the forms that passes ask for."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType


def from_zero(loop: n.For) -> bool:
    """Whether a loop counts from 0 by 1.

        from_zero(loop)        # for i in 0..N
        not from_zero(loop)    # for i in 1..N, for i in 0..N step 2
    """
    return build.is_const(loop.lo, 0) and build.is_const(loop.step, 1)


def is_counted(s: object, kinds: Sequence[str] = ("serial",), of: DType | None = None, *, plain: bool = False) -> TypeGuard[n.For]:
    """Whether a statement is a loop from 0 by 1 of one of the kinds (over a variable of that type; without attributes if `plain`).

        is_counted(node)                              # for i in 0..N
        is_counted(node, ("serial", "unroll"), I32)
    """
    return isinstance(s, n.For) and s.kind in kinds and from_zero(s) and of in (None, s.var.of) and not (plain and s.attrs)


def counting(var: n.Var, count: n.Expr | int, body: n.Block, kind: str = "serial", attrs: n.Attrs = (), *,
             label: str | None = None) -> n.For:
    """The loop over an i32 variable from 0 by 1.

        counting(i, 8, (store,))
        counting(t, threads, body, "thread", label="t")
    """
    return n.For(var, build.const(0), build.const(count) if isinstance(count, int) else count, build.const(1), body, kind, attrs, label=label)
