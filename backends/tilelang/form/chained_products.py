"""Products in a row: one whose left operand stays in the threads' registers where another product left it.

TileLang distributes an accumulator over warps by the policy of its `T.gemm`, and a left operand in registers by that of the product that takes it. The two
distributions are one only where each warp has whole rows (`GemmWarpPolicy.FullRow`): with the default the compiler finds two layouts for one tile, and refuses.
Where there are too few rows for all warps, the operand goes through shared memory, and so does a right operand that another product's result goes into: its
rows are another product's columns.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import bound_names
from kir.ir.types import shape_of
from kir.ir.visit import statements, transform, walk

POLICY = "policy"
WARP, ROWS = 32, 16
"""Threads of a warp, and rows of the product that one does at least."""


def by_rows(k: n.Kernel) -> n.Kernel:
    """The kernel with products in a row distributed by whole rows over warps, where nothing is said about it and all warps get some; else with what the later
    ones take of the earlier in shared memory."""
    warps = (int_value(k.threads) or 0) // WARP
    products = [s for s in statements(k.body) if isinstance(s, n.Mma)]
    if warps < 2 or len(products) < 2:
        return k
    results = {s.acc.buffer.name for s in products}
    k = _through_shared(k, set(), {s for s in products if isinstance(s.b, n.Load) and _reached(k, set(_fragments(s.b))) & results})
    products = [s for s in statements(k.body) if isinstance(s, n.Mma)]
    chained: set[n.Mma] = set()
    for s in products:
        before = _reached(k, set(_fragments(s.a)))
        if held := [x for x in products if x.acc.buffer.name in before]:
            chained |= {s, *held}
    if not chained or any(POLICY in dict(s.attrs) for s in chained):
        return k
    if not all(_divides(s, ROWS * warps) for s in chained):
        return _through_shared(k, {s for s in chained if any(True for _ in _fragments(s.a))}, set())

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return replace(new, attrs=tuple(sorted((*new.attrs, (POLICY, "FullRow"))))) if isinstance(new, n.Mma) and old in chained else new
    made: n.Kernel = transform(k, leave)
    return made


def _through_shared(k: n.Kernel, left: set[n.Mma], right: set[n.Mma]) -> n.Kernel:
    """The kernel with left operands of some products and right ones of others, whole fragments, copied to shared memory before them."""
    held: dict[str, n.Buffer] = {}
    taken = {a.name for a in k.grid} | set(bound_names(k.body))

    def lying(e: n.Expr) -> n.Expr:
        if not isinstance(e, n.Load) or e.at.index or e.at.buffer.layout is not None or e.at.buffer.space != "fragment":
            return e
        b = e.at.buffer
        if b.name not in held:
            name = next(x for i in range(len(taken) + 1) if (x := f"{b.name}_shared{i or ''}") not in taken)
            taken.add(name)
            held[b.name] = replace(b, name=name, space="shared")
        return n.Load(n.Region(held[b.name]))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not isinstance(new, n.Mma) or not isinstance(old, n.Mma):
            return new
        return replace(new, a=lying(new.a) if old in left else new.a, b=lying(new.b) if old in right else new.b)
    made: n.Kernel = transform(k, leave)
    spaces = tuple(n.Alloc(b) for b in held.values())
    return replace(made, body=(*spaces, *_filled(made.body, {b.name: name for name, b in held.items()}))) if held else k


def _filled(block: n.Block, sources: dict[str, str]) -> n.Block:
    """A block with the shared copies of operands written before each product that takes one."""
    out: list[n.Stmt] = []
    for s in block:
        for e in (s.a, s.b) if isinstance(s, n.Mma) else ():
            if isinstance(e, n.Load) and e.at.buffer.name in sources:
                b = e.at.buffer
                out.append(n.Store(n.Region(b), n.Load(n.Region(replace(b, name=sources[b.name], space="fragment"))), origin=s.origin))
        match s:
            case n.For() | n.While():
                s = replace(s, body=_filled(s.body, sources))
            case n.If():
                s = replace(s, then=_filled(s.then, sources), orelse=_filled(s.orelse, sources))
            case n.Roles():
                s = replace(s, roles=tuple(replace(r, body=_filled(r.body, sources)) for r in s.roles))
            case _:
                pass
        out.append(s)
    return tuple(out)


def _divides(s: n.Mma, rows: int) -> bool:
    shape = shape_of(s.acc.type)
    return bool(shape) and isinstance(shape[0], int) and shape[0] % rows == 0


def _fragments(e: n.Node) -> Iterator[str]:
    yield from (x.buffer.name for x in walk(e) if isinstance(x, n.Region) and x.buffer.space == "fragment")


def _reached(k: n.Kernel, names: set[str]) -> set[str]:
    """Fragments whose values go into those named, element by element."""
    flows = [(at.buffer.name, set(_fragments(value))) for s in statements(k.body) for at, value in _written(s)]
    size = -1
    while len(names) > size:
        size = len(names)
        names = names | {x for to, sources in flows if to in names for x in sources}
    return names


def _written(s: n.Stmt) -> Iterator[tuple[n.Region, n.Node]]:
    match s:
        case n.Store():
            yield s.at, s.value
        case n.Copy():
            yield s.dst, s.src
        case n.Alloc() if s.init is not None:
            yield n.Region(s.buffer), s.init
        case _:
            pass
