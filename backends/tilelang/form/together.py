"""What lanes of a warp do together, before the statement that uses it: TileLang stores where the tensor is, and takes one of two values, under conditions
that not all lanes take part in."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kir.base.instructions import instruction
from kir.ir import nodes as n
from kir.ir.types import dtype_of, shape_of
from kir.ir.visit import blocks_of, children, transform

from .unit_dimensions import within

OF_MATRICES = frozenset({"mma_sync", "ldmatrix"})


def done_together(block: n.Block, taken: set[str]) -> n.Block:
    """The block with a name for each such call that would stand under a condition, inner ones first; `taken` grows by the names."""
    out: list[n.Stmt] = []
    for s in block:
        if blocks_of(s):
            s = within(s, lambda inner: done_together(inner, taken))
        if isinstance(s, (n.Let, n.Store)):
            edge = isinstance(s, n.Store) and (s.clip or s.mask is not None or s.at.buffer.space == "global")
            while (call := next(_under_condition(s.value, edge), None)) is not None:
                name = next(x for k in range(len(taken) + 1) if (x := f"lane_{k}") not in taken)
                taken.add(name)
                out.append(n.Let((name,), call, origin=s.origin))
                of = n.Var(name, dtype_of(call.type))
                s = replace(s, value=_instead(s.value, call, of))
        out.append(s)
    return tuple(out)


def _instead(value: n.Expr, call: n.Call, of: n.Var) -> n.Expr:
    made = transform(value, lambda _, x: of if x == call else x)
    assert isinstance(made, n.Expr)
    return made


def _under_condition(e: n.Node, under: bool) -> Iterator[n.Call]:
    """Scalar calls of a warp's lanes in an expression that are made under a condition, inner ones first."""
    lazy = isinstance(e, n.Select) or (isinstance(e, n.Binary) and e.op in ("and", "or") and dtype_of(e.type).is_bool)
    for i, x in enumerate(children(e)):
        if isinstance(x, (n.Expr, n.Region)):
            yield from _under_condition(x, under or (lazy and i > 0))
    if under and isinstance(e, n.Call) and e.of is None and not shape_of(e.type) and instruction(e.fn).level == "warp" and e.fn not in OF_MATRICES:
        yield e
