"""Inline PTX: operands as `kir.ptx` takes them, and what it makes of the text."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kir.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DTYPES, TileType, dtype_of

from .c_types import Prim
from .errors import NotUnderstood
from .scopes import Scope, text
from .source import Node
from .values import Located, Nothing, Pointer, Scalar, Value

if TYPE_CHECKING:
    from .reader import Reader

MBARRIER = DTYPES["mbarrier"]

def assembly(r: Reader, node: Node, scope: Scope) -> Value:
    """An asm statement. Raises NotUnderstood with the reason of `kir.ptx`; PTX that is wrong is an error (KIR-F300 to KIR-F302)."""
    from .literals import literal_text

    code = node.child_by_field_name("assembly_code")
    if code is None:
        raise NotUnderstood("an asm statement without text", node)
    words = literal_text(code)
    if not words.strip(" ;\n\t"):
        return Nothing()
    try:
        ptx: Any = importlib.import_module("kir.ptx")
    except ModuleNotFoundError:
        raise NotUnderstood(f"inline PTX: {words.split()[0]}", node) from None
    operands, places = _operands(r, node, scope, ptx)
    origin = scope.unit.origin(node)
    try:
        meaning = ptx.read_asm(words, operands, r.m.fresh, _special(r), origin, r.spinning)
    except KirError as refused:
        first = refused.diagnostics[0]
        if first.id in ("KIR-F304", "KIR-F306"):
            raise NotUnderstood(f"inline PTX: {first.message}", node) from refused
        raise
    for s in meaning.statements:
        r.m.emit(s)
    for place, made in zip(places, meaning.outputs, strict=True):
        if made is not None:
            r.assign(place, Scalar(made))
    return Nothing()


def _operands(r: Reader, node: Node, scope: Scope, ptx: Any) -> tuple[list[Any], list[Value]]:
    operands: list[Any] = []
    places: list[Value] = []
    outputs, inputs = node.child_by_field_name("output_operands"), node.child_by_field_name("input_operands")
    for listed in (outputs, inputs):
        for o in listed.named_children if listed is not None else ():
            if o.type not in ("gnu_asm_output_operand", "gnu_asm_input_operand"):
                continue
            mark, e = o.child_by_field_name("constraint"), o.child_by_field_name("value")
            assert mark is not None and e is not None
            constraint = text(mark).strip('"')
            v = r.value(e, scope)
            if listed is outputs:
                if not isinstance(v, Located) or not isinstance(v.type, Prim):
                    raise NotUnderstood(f"an output of asm that is no variable: {text(e)}", node)
                places.append(v)
                held = r.rvalue(v) if constraint.startswith("+") else None
                operands.append(ptx.AsmOperand(constraint, r.scalar(held) if held is not None else None, v.type.dtype))
                continue
            operands.append(ptx.AsmOperand(constraint, _held(r, v, node, ptx)))
    return operands, places


def _held(r: Reader, v: Value, node: Node, ptx: Any) -> Any:
    """What an input operand holds: a number, or an address."""
    v = r.rvalue(v)
    if isinstance(v, Scalar):
        return v.expr
    if not isinstance(v, Pointer):
        raise NotUnderstood(f"{r.shown(v)} as an operand of asm", node)
    place = v.place
    while len(place.outer) < len(place.store.dims):
        place = place.inside()
    s = place.store
    if s.space == "shared" and s.declared in (DTYPES["u64"], DTYPES["i64"]) and "mbarrier" in text(node) and not set(s.uses) - {MBARRIER}:
        return ptx.Pointer(place.region(MBARRIER, None))
    dtype = s.declared if s.tensor is not None else max(s.uses, key=lambda d: s.uses[d]) if s.uses else s.declared
    found = place.region(dtype, None)
    s.reach = None
    if isinstance(found.type, TileType):
        raise NotUnderstood("the address of a whole array", node)
    return ptx.Pointer(found)


def _special(r: Reader) -> dict[str, n.Expr]:
    """Special registers."""
    t = r.geometry.thread
    u32 = DTYPES["u32"]
    out: dict[str, n.Expr] = {"laneid": build.cast(build.mod(t, 32), u32)}
    for axis, letter in enumerate("xyz"):
        out[f"tid.{letter}"] = build.cast(r.geometry.component("threadIdx", axis), u32)
        out[f"ntid.{letter}"] = build.cast(r.geometry.component("blockDim", axis), u32)
    return out


__all__ = ["assembly", "dtype_of"]
