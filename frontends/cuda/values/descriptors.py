"""Integers that are made of an address in shared memory by masks and shifts, as descriptors of matrices are, and pointers to tensor maps."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n

from ..source.source import Node
from ..symbols.symbols import Value
from ..types.c_types import Named
from ..types.errors import NotUnderstood
from ..types.number_conversions import index32
from .reading import Reading
from .values import Pointer, Scalar, Word, constant

TENSOR_MAP = Named("CUtensorMap")
SIGNS = frozenset({"&", "|", "+", ">>", "<<"})
ADDRESS = 0x3FFF
"""Bits of a descriptor that hold an address in units of 16 bytes (PTX ISA, "Matrix Descriptor Format")."""
SWIZZLES = {1: (3, 4, 3), 2: (2, 4, 3), 3: (1, 4, 3)}
"""Swizzles by their code in a descriptor: bits, base, shift."""


def is_word(a: Value, b: Value, sign: str) -> bool:
    """Whether an operator makes or changes such an integer."""
    if isinstance(a, Word) or isinstance(b, Word):
        return True
    return sign in ("&", "|", ">>") and any(isinstance(x, Pointer) and x.place.store.space == "shared" for x in (a, b))


def combined(r: Reading, sign: str, a: Value, b: Value, node: Node) -> Value:
    """`a sign b`, where one of them holds an address. Raises NotUnderstood for what is no descriptor."""
    if isinstance(b, (Word, Pointer)) and sign in ("|", "+", "&"):
        a, b = b, a
    w = Word(a.place) if isinstance(a, Pointer) else a
    value = constant(b)
    if not isinstance(w, Word) or sign not in SIGNS or not isinstance(b, Scalar):
        raise NotUnderstood(f"the operator {sign} on the bits of an address", node)
    match sign:
        case "&" if value is not None and not w.right and not w.rest:
            return Word(w.place, w.mask & value)
        case "&" if value is not None and value & ADDRESS == ADDRESS and w.right == 4:
            return Word(w.place, w.mask, 4, w.rest & value)
        case ">>" if value is not None and not w.rest:
            return Word(w.place, w.mask, w.right + value)
        case "|" | "+" if value is not None and value & ADDRESS == 0:
            return Word(w.place, w.mask, w.right, w.rest + value if sign == "+" else w.rest | value)
        case "+" if w.right == 4:
            return Word(w.place.moved_by(build.mul(index32(b.expr), 16)), w.mask, 4, w.rest)
    raise NotUnderstood(f"the operator {sign} on the bits of an address", node)


def is_matrix(w: Word) -> bool:
    """Whether the integer is a descriptor of a matrix."""
    return w.right == 4 and w.mask & 0x3FFF0 == 0x3FFF0


def swizzle_of(m: n.TensorMap) -> tuple[int, int, int] | None:
    """The swizzle that a tensor map lays a box out with: bits, base, shift."""
    bytes_ = dict(m.attrs).get("swizzle", 0)
    return {32: (1, 4, 3), 64: (2, 4, 3), 128: (3, 4, 3)}.get(bytes_) if isinstance(bytes_, int) else None
