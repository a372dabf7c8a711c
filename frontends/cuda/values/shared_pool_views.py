"""Arrays that a kernel lays out in its pool of shared memory by hand: what a reference or a pointer of another type names there, at an
offset known when the kernel is compiled, is memory of its own.

`T (&As)[..] = *reinterpret_cast<..>(pool + offset)` says how large its part is; `T* As = reinterpret_cast<T*>(pool + offset)` does not, and
its part reaches to the next one. Parts of a pool that nothing else touches are arrays side by side; of one that is also used by its bytes,
those of pointers are views, and those of references are refused.
"""

from __future__ import annotations

from math import prod

from kir.ir import build
from kir.ir import nodes as n

from ..symbols.classes import leaf, size_of
from ..types.c_types import VOID, Arr, CType, Named
from ..types.errors import NotUnderstood
from .memory import Place, Store, declare, start
from .reading import Reading
from .values import Located

LEAST = 16
"""Bytes that an array which says nothing is taken to begin at a multiple of: the widest access of a thread."""


def carved(r: Reading, name: str, kind: CType, v: Located) -> Located | None:
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


def pointed(r: Reading, at: Place, to: CType) -> Place:
    """A place at a known offset in a pool of bytes, taken for an array of its own when a pointer gives it a type."""
    found = leaf(to) if not isinstance(to, (Named, Arr)) and to != VOID else None
    offset = build.int_value(at.byte)
    if r.pool is None or at.store is not r.pool or r.pool.declared.bytes != 1 or found is None or found[0].bytes == 1 or offset is None:
        return at
    reaching = r.parts.reaching
    if offset not in reaching:
        made = Store(r.m.fresh(r.hint or r.pool.name), "shared", found[0], (), build.sub(r.pool_bytes, offset), resized=True, ranges=r.m, origin=r.m.origin)
        made.logical = r.arrays.get(r.hint, ())
        if r.arrays.get(r.hint) == ():
            made.single, made.row = True, build.const(found[0].bytes)
        said, r.hint_align = r.hint_align, 0
        made.align = (said if said > made.declared.bytes else 0) if said else 128 if offset % 128 == 0 else 0
        reaching[offset] = made
        r.stores.append(made)
    return start(reaching[offset])


def pieces(r: Reading) -> list[n.Stmt]:
    """The declarations of the parts that pointers name: each reaches to the next part, the last to the end of the pool. Where the pool is
    used as a whole too they are views of it."""
    if not r.parts.reaching or r.pool is None:
        return []
    pool = r.pool.used(r.pool.declared) if r.pool.uses else r.pool.view(r.pool.declared)
    starts = sorted({*r.parts.reaching, *r.parts.by_start})
    out: list[n.Stmt] = []
    for at, after in zip(starts, [*starts[1:], None], strict=True):
        s = r.parts.reaching.get(at)
        if s is None:
            continue
        if s.single:
            pass
        elif s.logical:
            s.row = build.const(prod(s.logical) * s.declared.bytes)
        else:
            s.row = build.const(after - at) if after is not None else build.sub(r.pool_bytes, at)
        if at % LEAST and not r.pool.uses and not s.align:
            s.align = at & -at
        own = s.view(s.declared)
        out.append(n.View(own, n.Region(pool, (build.const(at // r.pool.declared.bytes),))) if r.pool.uses else n.Alloc(own, origin=s.origin))
    return out


def in_pool(size: int) -> str:
    """How the reason ends where a pool of so many bytes is too small for its arrays."""
    return f"in a pool of {size}"


def settle(r: Reading) -> None:
    """The pool is gone where all of it that is used are its parts. Raises NotUnderstood where it is used beside them, or ends before they do."""
    if r.pool is None:
        return
    size, furthest = build.int_value(r.pool_bytes), max(r.parts.reaching, default=-1)
    if size is not None and size <= furthest:
        raise NotUnderstood(f"arrays that begin at byte {furthest} {in_pool(size)}")
    if not r.parts.by_start:
        return
    if any(r.pool.uses.values()):
        raise NotUnderstood(f"the pool '{r.pool.name}', used by bytes and as arrays of its own")
    last = max(begin + part[0] for begin, part in r.parts.by_start.items())
    if size is not None and size < last:
        raise NotUnderstood(f"arrays of {last} bytes {in_pool(size)}")
    r.shared.remove(r.pool)
    r.stores.remove(r.pool)
