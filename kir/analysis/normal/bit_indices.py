"""Shifts and masks of indices as the divisions and remainders that they are: `t >> 5` is `t // 32`, and `t & 31` is `t % 32`, of whatever sign.

Only indices are rewritten: values of loop variables, grid axes, sizes and what is computed from these alone. The bits of data stay bits.
"""
from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import names_read, once, statements, transform, walk

BITS = frozenset({"shr", "and"})


def divided(kernel: n.Kernel, header: set[str]) -> n.Kernel:
    """The kernel with shifts to the right and masks of its indices by literals spelled as divisions. `header` are names of its program."""
    if not any(map(_has_bits, kernel.body)):
        return kernel
    known = header | {a.name for a in kernel.grid}
    for s in statements(kernel.body):
        if isinstance(s, n.For):
            known.add(s.var.name)
        elif isinstance(s, n.Let) and len(s.names) == 1 and _is_index(s.value, known):
            known.add(s.names[0])

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return _spelled(new, known) if isinstance(new, n.Binary) and new.op in BITS else new
    body = tuple(transform(s, leave, lambda x: not isinstance(x, n.Stmt) or _has_bits(x)) for s in kernel.body)
    return kernel if body == kernel.body else replace(kernel, body=body)


def _has_bits(s: n.Stmt) -> bool:
    return once(s, "_has_bits", lambda: any(isinstance(x, n.Binary) and x.op in BITS for x in walk(s)))


def _spelled(e: n.Binary, known: set[str]) -> n.Expr:
    if not (isinstance(e.type, DType) and e.type.is_integer):
        return e
    for a, b in ((e.a, e.b), (e.b, e.a)):
        c = build.int_value(b)
        if c is None or isinstance(a, n.Const) or not _is_index(a, known):
            continue
        if e.op == "shr" and b is e.b and 0 < c < e.type.bits - 1:
            return build.floordiv(a, 1 << c)
        if e.op == "and" and c > 0 and c & (c + 1) == 0 and c.bit_length() < e.type.bits - 1:
            return build.mod(a, c + 1)
    return e


def _is_index(e: n.Expr, known: set[str]) -> bool:
    """Whether a value is arithmetic on known names and literals, and on nothing else."""
    plain = all(isinstance(x, (n.Var, n.Const, n.Unary, n.Binary, n.Cast)) for x in walk(e) if isinstance(x, n.Expr))
    integers = all(isinstance(x.type, DType) and (x.type.is_integer or x.type.is_bool) for x in walk(e) if isinstance(x, n.Expr)) if plain else False
    return integers and not any(isinstance(x, n.Region) for x in walk(e)) and names_read(e) <= known
