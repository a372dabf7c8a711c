"""Arrays that a kernel lays out in its pool of shared memory by hand: each reference to an array there is memory of its own.

`T (&As)[..] = *reinterpret_cast<..>(pool + offset)` names a part of the pool. Parts that do not overlap, at offsets known when the kernel
is compiled, of a pool that nothing else touches, are arrays side by side, and are read as such.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kir.ir import build

from .c_types import Arr, CType, leaf, size_of
from .errors import NotUnderstood
from .memory import Store, declare, start
from .values import Located

if TYPE_CHECKING:
    from .reader import Reader


@dataclass
class Parts:
    """The parts of a pool by first byte: how many bytes each has, its type, and the object that it is."""

    by_start: dict[int, tuple[int, CType, Store]] = field(default_factory=dict)

    def at(self, first: int, size: int) -> tuple[int, CType, Store] | None:
        """The part that begins at a byte. Raises NotUnderstood where another overlaps."""
        for begin, part in self.by_start.items():
            if begin != first and begin < first + size and first < begin + part[0]:
                raise NotUnderstood(f"'{part[2].name}' and another array share bytes {max(begin, first)} and on of the pool")
        return self.by_start.get(first)


def carved(r: Reader, name: str, kind: CType, v: Located) -> Located | None:
    """The array of its own that a reference into the pool names; None for a reference to anything else."""
    if r.pool is None or v.place.store is not r.pool or not isinstance(kind, Arr) or v.type != kind or leaf(kind) is None:
        return None
    first, size = build.int_value(v.place.byte), size_of(kind)
    if first is None or v.place.outer:
        return None
    parts = r.parts
    found = parts.at(first, size)
    if found is not None:
        if found[1] != kind:
            raise NotUnderstood(f"'{found[2].name}' under another type")
        return Located(start(found[2]), kind)
    store = declare(r.m, name, kind, "shared")
    store.align = first & -first if first and first & -first < r.pool.align else r.pool.align
    parts.by_start[first] = (size, kind, store)
    r.stores.append(store)
    r.shared.append(store)
    return Located(start(store), kind)


def settle(r: Reader) -> None:
    """The pool is gone where all of it that is used are its parts. Raises NotUnderstood where it is used beside them."""
    if r.pool is None or not r.parts.by_start:
        return
    if any(r.pool.uses.values()):
        raise NotUnderstood(f"the pool '{r.pool.name}', used by bytes and as arrays of its own")
    size = build.int_value(r.pool_bytes)
    last = max(begin + part[0] for begin, part in r.parts.by_start.items())
    if size is not None and size < last:
        raise NotUnderstood(f"arrays of {last} bytes in a pool of {size}")
    r.shared.remove(r.pool)
    r.stores.remove(r.pool)
