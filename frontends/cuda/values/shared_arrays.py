"""Declarations of shared memory: static arrays, and the pool whose size the launch says."""

from __future__ import annotations

from ..source.source import Node
from ..symbols.classes import leaf, size_of
from ..symbols.symbols import Scope, Value
from ..types.c_types import Arr
from ..types.errors import NotUnderstood
from .memory import Store, start
from .objects import new_object
from .reading import Reading
from .values import Located

SHARED_ALIGN = 16
"""Bytes that every shared array starts at a multiple of."""
POOL_ALIGN = 1024
"""Bytes that a pool of bytes is taken to start at a multiple of: what TMA and swizzles of 128 bytes need; typed arrays start at one of 16."""


def shared_array(r: Reading, node: Node, d: Node, name: str, extern: bool, scope: Scope) -> Value:
    """A shared array: declared once for each instantiation of the function around it, however often that is read."""
    kind, _ = r.types.declared_type(node, d, scope)
    if extern:
        if not isinstance(kind, Arr):
            raise NotUnderstood("dynamic shared memory that is no array", node)
        return dynamic_shared(r, name, kind)
    key = hash((node.id, d.id, str(kind), size_of(kind), *(s.templates for s in scope.around())))
    if key not in r.static_shared:
        made = r.static_shared[key] = new_object(r, name, kind, "shared")
        said = _alignment(r, node, d, scope)
        if isinstance(made, Located) and said > SHARED_ALIGN:
            made.place.store.align = said
    return r.static_shared[key]


def _alignment(r: Reading, node: Node, d: Node, scope: Scope) -> int:
    """The bytes in the `alignas` of a declaration; 0 where it has none."""
    found = [c for x in (node, d, *node.children) for c in x.children if c.type == "alignas_qualifier"]
    return max((r.types.constant_text(c, scope) or 0 for c in found), default=0)


def dynamic_shared(r: Reading, name: str, kind: Arr) -> Value:
    """The one pool of dynamic shared memory, whatever names it is declared under."""
    found = leaf(kind.of)
    if found is None:
        raise NotUnderstood(f"dynamic shared memory of type {kind.of}")
    if r.pool is None:
        r.pool = Store(r.m.fresh(name), "shared", found[0], (), r.pool_bytes, align=POOL_ALIGN if found[0].bytes == 1 else 0)
        r.stores.append(r.pool)
        r.shared.append(r.pool)
    return Located(start(r.pool), Arr(kind.of, 0))
