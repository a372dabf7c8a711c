"""What one thread does of large tiles, as loops: its tiles lie in local memory, and no compiler ends with all their elements written out."""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from kir.analysis.elements import NotElementwise, element, element_region, tile, tile_region
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, TileType, shape_of
from kir.ir.visit import blocks_of, transform, walk

MOST_UNROLLED = 16
"""Elements that are written out one by one."""


def rolled(made: n.Kernel, before: n.Kernel) -> n.Kernel:
    """A kernel that was lowered from `before` for one thread, with the loops over the elements of its tiles left as loops."""
    if not build.is_const(made.threads, 1):
        return made
    own = set(bound_names(before.body))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.For) and new.kind == "unroll" and new.var.name not in own and _written_out((new,)) > MOST_UNROLLED:
            return replace(new, kind="serial", attrs=())
        return new
    body: n.Block = tuple(transform(s, leave) for s in made.body)
    return replace(made, body=body)


def _written_out(block: n.Block) -> int:
    """Elements that the statements of a block store, with all unrolled loops written out."""
    return sum((build.int_value(s.hi) or 1 if isinstance(s, n.For) and s.kind == "unroll" else 1) * max(
        _width(s), sum(map(_written_out, blocks_of(s)))) for s in block)


def _width(s: n.Stmt) -> int:
    at = s.at if isinstance(s, n.Store) else s.dst if isinstance(s, n.Copy) else None
    return 1 if at is None else math.prod(d for d in shape_of(at.type) if isinstance(d, int))


def in_loops(k: n.Kernel, taken: set[str]) -> n.Kernel:
    """A kernel of one thread with loops around parts of large tiles that it stores. A store whose value reads the same memory elsewhere stays as it is,
    and so does one whose value has no single elements."""
    if not build.is_const(k.threads, 1):
        return k
    fresh = (name for name in (f"i_{number}" for number in count()) if name not in taken)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Store() if _width(new) > MOST_UNROLLED:
                return _looped(new, fresh) or new
            case n.Copy(via="plain", signal=None, grouped=False, attrs=()) if _width(new) > MOST_UNROLLED:
                return _looped(n.Store(new.dst, new.src, new.mask, new.clip, label=new.label, origin=new.origin), fresh) or new
            case _:
                return new
    body: n.Block = tuple(transform(s, leave) for s in k.body)
    return replace(k, body=body)


def _looped(s: n.Store, fresh: Iterator[str]) -> n.Stmt | None:
    """Loops around a store of a part of the tile; None where it has no such form."""
    shape = [d for d in shape_of(s.at.type) if isinstance(d, int)]
    parts = [x for e in (s.value, s.mask) if e is not None for x in walk(e)]
    if len(shape) != len(shape_of(s.at.type)) or any(isinstance(x, n.Region) and x.buffer == s.at.buffer and x != s.at for x in parts):
        return None
    axes = [(n.Var(next(fresh), I32), d) for d in shape]
    cut = next(i for i in range(len(shape) + 1) if math.prod(shape[i:]) <= MOST_UNROLLED)
    try:
        place = element_region(s.at, [v for v, _ in axes])
        found = tile_region(place, axes[cut:])
        if found is None or found[1] != list(range(len(axes) - cut)):
            found, cut = (place, []), len(shape)

        def part(e: n.Expr) -> n.Expr:
            own = axes[len(axes) - len(shape_of(e.type)):]
            index = [build.const(0) if d == 1 else v for (v, _), d in zip(own, shape_of(e.type), strict=True)]
            return tile(element(e, index) if isinstance(e.type, TileType) else e, axes[cut:], False)
        value, mask = part(s.value), None if s.mask is None else part(s.mask)
    except NotElementwise:
        return None
    if any(isinstance(x, n.Call) and x.fn == "pick" for x in walk(value)):
        return None
    made: n.Stmt = replace(s, at=found[0], value=value, mask=mask)
    for v, d in reversed(axes[:cut]):
        made = n.For(v, build.const(0), build.const(d), build.const(1), (made,), origin=s.origin)
    return made
