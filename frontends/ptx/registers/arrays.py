"""Registers that wgmma takes together: they are one array of the thread, each at its place in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kir.base.dataclass import dataclass
from kir.ir.types import DTYPES, DType
from kir.surface.ptx.form.syntax import Name, Vector

from ..flow.blocks import Block

_OF = {"f16": "f16", "bf16": "bf16", "tf32": "f32", "e4m3": "f8e4m3", "e5m2": "f8e5m2", "f32": "f32", "s8": "i8", "u8": "u8"}


@dataclass(frozen=True)
class Together:
    """Registers in the order of their places, and as what an instruction takes them."""

    names: tuple[str, ...]
    dtype: DType

    @property
    def each(self) -> int:
        """Elements in one register of 32 bits."""
        return 32 // self.dtype.bits


def arrays_of(blocks: Sequence[Block]) -> Mapping[str, Together]:
    """By register, the array that it is in. One that would be in several is in none."""
    found: dict[str, Together] = {}
    torn: set[str] = set()
    for b in blocks:
        for i in b.instructions:
            if i.parts[:2] != ("wgmma", "mma_async"):
                continue
            types = [p for p in i.parts if p in _OF]
            if len(types) != 3:
                continue
            for o, word in zip(i.operands[:2], types, strict=False):
                if not isinstance(o, Vector) or any(not isinstance(x, Name) for x in o.items):
                    continue
                made = Together(tuple(x.name for x in o.items if isinstance(x, Name)), DTYPES[_OF[word]])
                for name in made.names:
                    if found.setdefault(name, made) != made:
                        torn |= {*made.names, *found[name].names}
    return {k: v for k, v in found.items() if k not in torn and not torn & set(v.names)}


__all__ = ["Together", "arrays_of"]
