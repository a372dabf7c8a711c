"""Indices that a tensor holds: what its contents must be for an access to be inside, where that is that they are numbers from 0 below an extent, and for two
to be apart, where that is that they are where parts begin, one after the other."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kir.analysis.proof.asking.question import Holding
from kir.analysis.proof.indices.numbered import products_of
from kir.analysis.proof.values import both, compared, either
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import I64, dtype_of
from kir.ir.visit import walk


def top_of_contents(claim: n.Expr, holding: Iterable[Holding], proves: Callable[[tuple[Holding, ...]], bool]) -> tuple[str, n.Expr] | None:
    """The one tensor whose contents a claim of bounds depends on, and what they are to be below, from 0 on; None where no such range of them proves it, and
    where the kernel compares them with a bound itself: then it does not take them to be inside."""
    data = list(dict.fromkeys(x for x in walk(claim) if isinstance(x, n.Call) and x.fn.startswith("%")))
    names = {x.fn for x in data}
    if len(names) != 1 or not all(x.fn.startswith("%in ") and dtype_of(x.type).is_integer for x in data):
        return None
    guards = (x for h in holding if isinstance(h, n.Expr) for x in walk(h) if isinstance(x, n.Binary) and x.op in ("lt", "le", "gt", "ge"))
    if any(x in data for guard in guards for x in walk(guard)):
        return None
    for top in dict.fromkeys(_tops(claim, data)):
        if proves(tuple(inside(x, top) for x in data)):
            return names.pop().partition(" ")[2], top
    return None


def where_parts_begin(conditions: Iterable[Holding], index: Iterable[tuple[n.Expr, n.Expr]]) -> Iterator[tuple[str, n.Expr, tuple[n.Expr, ...]]]:
    """Tensors that hold where parts of an axis begin, as offsets of groups or of sequences do: of two neighbors in it the difference says how long a part is.
    Of each its name, the extent of that axis, and that it is never negative and never falls, of every two of its elements that are read. `index` are indices
    with their extents."""
    reads: dict[str, dict[n.Call, None]] = {}
    for h in conditions:
        for x in walk(h) if isinstance(h, n.Expr) else ():
            if isinstance(x, n.Call) and x.fn.startswith("%in ") and len(x.args) == 1 and dtype_of(x.type).is_integer:
                reads.setdefault(x.fn, {})[x] = None
    for fn, found in reads.items():
        at = {x: a for x in found if isinstance(a := x.args[0], n.Expr)}
        neighbors = any(build.int_value(build.sub(b, a)) == 1 for a in at.values() for b in at.values() if a.type == b.type)
        extent = next((d for i, d in index if any(isinstance(x, n.Call) and x.fn == fn for x in walk(i))), None)
        if neighbors and extent is not None:
            rising = (either(compared("gt", at[x], at[y]), compared("le", x, y)) for x in at for y in at if x is not y)
            yield fn.partition(" ")[2], extent, (*rising, *(compared("ge", x, const(0, dtype_of(x.type))) for x in at))


def inside(x: n.Expr, top: n.Expr) -> n.Expr:
    """That what is read is from 0 on and below something."""
    return both(compared("ge", x, const(0, dtype_of(x.type))), compared("lt", x, top))


def _tops(claim: n.Expr, data: list[n.Call]) -> Iterator[n.Expr]:
    """What contents may be below: what their index is below, how often what they are multiplied by fits in that, or what a row that they count within has."""
    for c in walk(claim):
        if not isinstance(c, n.Binary) or c.op != "lt" or not any(x in data for x in walk(c.a)):
            continue
        yield c.b
        within = {m: k for m, k in products_of(c.a).items() if any(x in data for f in m for x in walk(f))}
        for m, k in products_of(c.a).items() if [(len(m), k) for m, k in within.items()] == [(1, 1)] else ():
            if m not in within and k > 0 and m:
                yield from (build.mul(const(k, I64), f) for f in m if len(m) == 2)
                yield from [const(k, I64)] if k > 1 else []
        whole = products_of(c.b)
        for m, k in products_of(c.a).items():
            if k > 0 and sum(any(x in data for x in walk(f)) for f in m) == 1:
                factors = [f for f in m if not any(x in data for x in walk(f))]
                left: dict[tuple[n.Expr, ...], int] | None = {}
                for product, v in whole.items():
                    rest = list(product)
                    for f in factors:
                        if f in rest:
                            rest.remove(f)
                        else:
                            rest.append(f)
                    if len(rest) != len(product) - len(factors) or v % k:
                        left = None
                        break
                    left[tuple(rest)] = v // k  # type: ignore[index]  # it is no None yet
                if left:
                    made = build.from_polynomial(dict(left.items()), I64)
                    yield made


__all__ = ["inside", "top_of_contents", "where_parts_begin"]
