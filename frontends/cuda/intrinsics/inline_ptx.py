"""Inline PTX: operands as `kir.surface.ptx` takes them, and what it makes of the text."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DTYPES, DType, TileType
from kir.surface import ptx
from kir.surface.ptx.registers.policies import IN_REGISTERS

from ..source.source import Node
from ..source.syntax import text
from ..symbols.symbols import Scope, Value
from ..types.c_types import VOID, Prim, Ptr
from ..types.errors import NotUnderstood
from ..values.conversions import scalar, type_text
from ..values.descriptors import SWIZZLES, is_matrix, swizzle_of
from ..values.literals import literal_text
from ..values.loads import rvalue
from ..values.objects import assign, peer_of
from ..values.reading import Reading
from ..values.values import Located, Mapped, Nothing, Pointer, Remote, Scalar, Word

MBARRIER = DTYPES["mbarrier"]
_POLICIES = frozenset(bits for _, bits in IN_REGISTERS.values())
"""The numbers that stand for cache policies."""


def assembly(r: Reading, node: Node, scope: Scope) -> Value:
    """An asm statement. Raises NotUnderstood with the reason of `kir.surface.ptx`; PTX that is wrong is an error (KIR-F300 to KIR-F302)."""
    code = node.child_by_field_name("assembly_code")
    if code is None:
        raise NotUnderstood("an asm statement without text", node)
    words = literal_text(code)
    if not words.strip(" ;\n\t"):
        return Nothing()
    operands, places = _operands(r, node, scope, words)
    origin = scope.unit.origin(node)
    try:
        meaning = ptx.read_asm(words, operands, r.m.fresh, _special(r), origin, r.spinning, partial(peer_of, r))
    except KirError as refused:
        first = refused.diagnostics[0]
        if first.id in ("KIR-F304", "KIR-F306"):
            raise NotUnderstood(f"inline PTX: {first.message}", node) from refused
        raise
    for s in meaning.statements:
        r.m.emit(s)
    for place, made, left in zip(places, meaning.outputs, meaning.addresses, strict=True):
        if made is not None:
            assign(r, place, Scalar(made))
            if isinstance(place, Located) and build.int_value(made) in _POLICIES:
                r.words[id(place.place.store)] = (Scalar(made), r.m.block)  # an access below names it
        elif left is not None:
            assign(r, place, Remote(left.at, place.type if isinstance(place, Located) else Ptr(VOID)))
    return Nothing()


def _operands(r: Reading, node: Node, scope: Scope, words: str) -> tuple[list[Any], list[Value]]:
    operands: list[Any] = []
    places: list[Value] = []
    inputs: list[tuple[str, Value]] = []
    asynchronous = "wgmma.mma_async" in words or "tcgen05.ld" in words
    for listed in (node.child_by_field_name("output_operands"), node.child_by_field_name("input_operands")):
        for o in listed.named_children if listed is not None else ():
            if o.type not in ("gnu_asm_output_operand", "gnu_asm_input_operand"):
                continue
            mark, e = o.child_by_field_name("constraint"), o.child_by_field_name("value")
            assert mark is not None and e is not None
            constraint = text(mark).strip('"')
            v = r.value(e, scope)
            if o.type == "gnu_asm_input_operand":
                inputs.append((constraint, v))
                continue
            if not isinstance(v, Located) or not isinstance(v.type, (Prim, Ptr)):
                raise NotUnderstood(f"an output of asm that is no variable: {text(e)}", node)
            places.append(v)
            if isinstance(v.type, Ptr):
                operands.append(ptx.AsmOperand(constraint))
                continue
            if asynchronous:
                operands.append(ptx.AsmOperand(constraint, place=_register(v)))
                continue
            held = rvalue(r, v) if constraint.startswith("+") else None
            operands.append(ptx.AsmOperand(constraint, scalar(r, held) if held is not None else None, v.type.dtype))
    box = next((v.map for _, v in inputs if isinstance(v, Mapped)), None) if "cp.async.bulk.tensor" in words else None
    taken = _taken(r, words, [v for _, v in inputs])
    for constraint, v in inputs:
        own = _register(v) if "wgmma.mma_async" in words and constraint == "r" else None
        operands.append(ptx.AsmOperand(constraint, None if own is not None else _held(r, v, node, words, box, taken), place=own))
    return operands, places


def _register(v: Value) -> n.Region | None:
    """The private place of an operand that an asynchronous instruction keeps using, in elements of its array."""
    if not isinstance(v, Located) or not isinstance(v.type, Prim) or v.place.store.space != "register":
        return None
    own = v.place.store.declared
    return v.place.region(own, v.type.dtype.bits // own.bits if own.bits < v.type.dtype.bits else None)


def _taken(r: Reading, words: str, values: list[Value]) -> DType | None:
    """The dtype in which an instruction takes shared memory that is declared otherwise: halves for the matrices of ldmatrix and stmatrix, that of the
    source for a copy to shared memory; None where it takes any."""
    if "ldmatrix" in words or "stmatrix" in words:
        return DTYPES["f16"]
    if "cp.async" in words and "bulk" not in words:
        sources = [v.place.store for v in (rvalue(r, v) for v in values) if isinstance(v, Pointer) and v.place.store.is_global]
        return sources[0].declared if sources else None
    return None


def _held(r: Reading, v: Value, node: Node, words: str, box: n.TensorMap | None, taken: DType | None) -> Any:
    """What an input operand holds: a number, an address, a tensor map (`box` is that of the instruction) or a descriptor of a matrix. Shared memory of
    another width, or another kind of number, is `taken` as that dtype."""
    v = rvalue(r, v)
    if isinstance(v, Scalar):
        return v.expr
    if isinstance(v, Remote):
        return ptx.Pointer(v.at)
    if isinstance(v, Mapped):
        return ptx.Descriptor(v.map, v.buffer)
    if isinstance(v, Word) and is_matrix(v):
        place = v.place
        while len(place.outer) < len(place.store.dims):
            place = place.inside()
        return ptx.Matrix(ptx.Pointer(place.described(place.store.declared, SWIZZLES.get(v.rest >> 62 & 3))), v.rest)
    if not isinstance(v, Pointer):
        raise NotUnderstood(f"{type_text(v)} as an operand of asm", node)
    place = v.place
    while len(place.outer) < len(place.store.dims):
        place = place.inside()
    s = place.store
    if s.space == "shared" and s.declared in (DTYPES["u64"], DTYPES["i64"]) and _is_barrier(words) and not set(s.uses) - {MBARRIER}:
        return ptx.Pointer(place.region(MBARRIER, None))
    dtype = s.declared if s.tensor is not None else max(s.uses, key=lambda d: s.uses[d]) if s.uses else s.declared
    if taken is not None and s.space == "shared" and taken != dtype and (taken.bits != dtype.bits or "matrix" not in words):
        dtype = taken
    ordered = _ORDERED.search(words) if s.is_global else None
    if ordered is not None and dtype.bits < int(ordered[1]):
        dtype = DTYPES[f"u{ordered[1]}"]  # one access, of whatever the memory is declared as
    found = place.described(dtype, swizzle_of(box)) if box is not None and s.space == "shared" and dtype != MBARRIER else place.region(dtype, None)
    s.reach = None
    if isinstance(found.type, TileType):
        raise NotUnderstood("the address of a whole array", node)
    return ptx.Pointer(found)


_ORDERED = re.compile(r"\b(?:(?:ld|st)\.[\w.:]*(?:acquire|release|relaxed|volatile)|atom|red)\b[\w.:]*\.[busf](32|64)\b")
"""An access that is whole, and of how many bits."""


def _is_barrier(words: str) -> bool:
    """Whether an instruction may take the address of an mbarrier."""
    return "mbarrier" in words or "mapa" in words


def _special(r: Reading) -> dict[str, n.Expr]:
    """Special registers."""
    t = r.geometry.thread
    u32 = DTYPES["u32"]
    out: dict[str, n.Expr] = {"laneid": build.cast(build.mod(t, 32), u32)}
    for axis, letter in enumerate("xyz"):
        out[f"tid.{letter}"] = build.cast(r.geometry.component("threadIdx", axis), u32)
        out[f"ntid.{letter}"] = build.cast(r.geometry.component("blockDim", axis), u32)
    return out

