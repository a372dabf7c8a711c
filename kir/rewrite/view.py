"""What is in view at a place of a program, and expressions given as text there."""
from __future__ import annotations

from collections.abc import Mapping

from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import DType, TupleType, Type
from kir.ir.visit import walk
from kir.rewrite.edit import Path, block_at, enclosing, kernel_of


def in_view(program: n.Program, path: Path) -> tuple[dict[str, Type], dict[str, n.Buffer]]:
    """The values (by type) and the buffers that a statement put at `path` may name."""
    values: dict[str, Type] = {}
    buffers: dict[str, n.Buffer] = {w.buffer.name: w.buffer for w in program.workspaces}
    for p in program.params:
        if isinstance(p.of, n.Buffer):
            buffers[p.name] = p.of
        else:
            values[p.name] = p.of
    for a in kernel_of(program, path).grid:
        values[a.name] = a.extent.type
    places = [p for p, x in enclosing(program, path) if isinstance(x, n.Stmt)]
    for at in (*places, path):
        for s in block_at(program, at)[:int(at[-1])] if len(at) > 1 else ():
            match s:
                case n.Let():
                    of = s.value.type.elements if isinstance(s.value.type, TupleType) else (s.value.type,)
                    values.update(zip(s.names, of, strict=True))
                case n.Alloc() | n.View():
                    buffers[s.buffer.name] = s.buffer
                case _:
                    pass
        if at is not path:
            loop = block_at(program, at)[int(at[-1])]
            if isinstance(loop, n.For):
                values[loop.var.name] = loop.var.of
    return values, buffers


_REMEMBERED = 512
"""Texts whose expressions are remembered."""
_known: dict[str, n.Expr] = {}
_PLAIN = (n.Const, n.Var, n.Unary, n.Binary, n.Select, n.Cast, n.Load, n.Region, n.Span, n.Buffer)
"""What a text alone tells. A call of a device function, say, is none: another process, which has but the text, could not read it."""


def text_of(e: n.Expr) -> str:
    """The text of an expression, as a parameter of a pass holds it; `expression_at` reads it back, without a parser while it is remembered."""
    text = expr_text(e)
    if all(isinstance(x, _PLAIN) or (isinstance(x, n.Call) and x.of is None) for x in walk(e)):
        if len(_known) >= _REMEMBERED:
            _known.clear()
        _known[text] = e
    return text


def _means(e: n.Expr, values: Mapping[str, Type], buffers: Mapping[str, n.Buffer]) -> bool:
    """Whether an expression is what its text means over these names: they are what it was made of."""
    return all(values.get(x.name) == x.of if isinstance(x, n.Var) else buffers.get(x.name) == x if isinstance(x, n.Buffer) else True for x in walk(e))


def expression_at(program: n.Program, path: Path, text: str, more: tuple[n.Var, ...] = ()) -> n.Expr | None:
    """The expression that a text means at a place, with `more` names beside those in view; None where it means none."""
    values, buffers = in_view(program, path)
    values.update({v.name: v.of for v in more if isinstance(v.of, DType)})
    known = _known.get(text)
    if known is not None and _means(known, values, buffers):
        return known
    from kir.ir.parser import parse_expression

    try:
        return parse_expression(text, values, buffers)
    except KirError:
        return None
