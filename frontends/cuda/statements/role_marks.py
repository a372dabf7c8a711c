"""How a branch that is a role tells itself while a kernel is read: by a label, or by the registers that it begins by asking for."""

from __future__ import annotations

from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.visit import transform

MARK = "role:"
"""Begins the label of a branch that a role's name was compared for."""


def may_have_roles(body: n.Block) -> bool:
    """Whether some branch of the last loop of a body looks like a role."""
    loop = body[-1] if body else None
    return isinstance(loop, n.For) and any(isinstance(s, n.If) and ((s.label or "").startswith(MARK) or asked(s.then) is not None) for s in loop.body)


def unmarked(body: n.Block) -> n.Block:
    """The body without the marks of reading."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        return replace(new, label=None) if isinstance(new, n.If) and (new.label or "").startswith(MARK) else new

    return tuple(transform(s, leave) for s in body)


def asked(block: n.Block) -> tuple[int, bool] | None:
    """The registers that a branch begins by asking for, and whether they are more."""
    first = block[0] if block else None
    if isinstance(first, n.Eval) and first.call.fn == "set_registers" and isinstance(first.call.args[0], n.Const):
        return int(first.call.args[0].value), bool(dict(first.call.attrs).get("grow"))
    return None
