"""Matrix products that are added to an accumulator go into it directly.

    fragment p: f32[m, n] = broadcast(0.0, m, n)        mma acc += a * b
    mma p += a * b                                 =>
    acc = acc + p

The sum of a product that started at zero and the accumulator is the accumulation, up to the order of the additions.
"""

from __future__ import annotations

from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.rebuild.localize import positions
from kir.ir.rebuild.promote import reads_whole
from kir.ir.visit import buffers_named, substitute_buffers


def accumulate_in_place(block: n.Block) -> n.Block:
    """The block, and those inside it, with such products in place."""
    out: list[n.Stmt] = []
    for s in block:
        out.append(_inner(s))
        if len(out) >= 3:
            _last_three(out)
    return _continued(tuple(out))


def _continued(block: n.Block) -> n.Block:
    """A fragment that starts as the whole of another, which nothing reads or writes any more, is that other one."""
    if not any(isinstance(s, n.Alloc) and s.init is not None and reads_whole(s.init) is not None for s in block):
        return block
    last = {name: at[-1] for name, at in positions(block).items()}
    declared: dict[str, set[n.Buffer]] = {}
    names: dict[str, n.Buffer] = {}
    out: list[n.Stmt] = []
    for i, s in enumerate(block):
        s = substitute_buffers(s, names)
        old = reads_whole(s.init) if isinstance(s, n.Alloc) and s.init is not None else None
        if isinstance(s, n.Alloc) and old is not None and old in declared.get(old.name, ()) and last[old.name] <= i and (
                (old.dtype, old.shape, old.space) == (s.buffer.dtype, s.buffer.shape, s.buffer.space)):
            names[s.buffer.name], last[old.name] = old, max(i, last[s.buffer.name])
            continue
        if isinstance(s, n.Alloc):
            declared.setdefault(s.buffer.name, set()).add(s.buffer)
        out.append(s)
    return _continued(tuple(out)) if names else block


def _inner(s: n.Stmt) -> n.Stmt:
    match s:
        case n.For() | n.While():
            return replace(s, body=accumulate_in_place(s.body))
        case n.If():
            return replace(s, then=accumulate_in_place(s.then), orelse=accumulate_in_place(s.orelse))
        case _:
            return s


def is_zero(e: n.Expr | None) -> bool:
    """Whether a value is zero in every element."""
    if isinstance(e, n.Call) and e.fn == "broadcast":
        return isinstance(e.args[0], n.Expr) and is_zero(e.args[0])
    if isinstance(e, n.Cast):
        return is_zero(e.x)
    return isinstance(e, n.Const) and e.value == 0


def _last_three(out: list[n.Stmt]) -> None:
    alloc, mma, last = out[-3:]
    if not (isinstance(alloc, n.Alloc) and isinstance(mma, n.Mma) and mma.acc.buffer == alloc.buffer and alloc.init is not None):
        return
    value = last.value if isinstance(last, (n.Store, n.Let)) else None
    if not (isinstance(value, n.Binary) and value.op == "add") or not is_zero(alloc.init):
        return
    for product, other in ((value.b, value.a), (value.a, value.b)):
        if (
            reads_whole(product) != alloc.buffer
            or other.type != product.type
            or alloc.buffer.name in buffers_named(other)
        ):
            continue
        if isinstance(last, n.Store) and reads_whole(other) == last.at.buffer and not last.at.index and last.mask is None:
            out[-3:] = [replace(mma, acc=last.at)]
        elif (
            isinstance(last, n.Store)
            and not last.at.index
            and last.mask is None
            and last.at.buffer.space == "fragment"
            and last.at.buffer.dtype == alloc.buffer.dtype
            and not any(last.at.buffer.name in buffers_named(y) for y in (mma.a, mma.b))
        ):
            out[-3:] = [replace(last, value=other), replace(mma, acc=last.at)]
        elif isinstance(last, n.Let):
            out[-3:] = [replace(alloc, init=other), mma, replace(last, value=product)]
        return
