"""What launches before a kernel have written: global memory each element of which some instance of a store of theirs is shown to store.

Which instance that is, is read off the index: of a sum like `c * 64 + e` the digits of what is looked for. That this instance is executed, and stores there, is
asked then for every index, so that nothing depends on how it was found.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.sites import Access
from kir.analysis.proof.values import compared, wide
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.rebuild.plans import plan_of
from kir.ir.types import I64, dtype_of
from kir.ir.visit import names_read, substitute, walk

Asked = Callable[[tuple[Holding, ...], n.Expr], bool]


def before(program: n.Program, kernel: str) -> list[str]:
    """The kernels that every call launches before it launches this one for the first time."""
    out: list[str] = []
    for step in plan_of(program):
        if any(isinstance(x, n.Launch) and x.kernel == kernel for x in walk(step)):
            return out
        if isinstance(step, n.Launch):
            out.append(step.kernel)
    return []


def filled(kernel: n.Kernel, writes: Mapping[str, Iterable[Access]], asks: Asked) -> set[str]:
    """Memory that a kernel stores to all of. Loops that are left early are not followed."""
    if any(isinstance(x, (n.Jump, n.While)) for x in walk(kernel)):
        return set()
    return {name for name, found in writes.items() if any(_fills(w, asks) for w in found if w.verb == "write" and w.plain and w.buffer.name == name)}


def _fills(w: Access, asks: Asked) -> bool:
    """Whether one store stores every element of its memory."""
    sought = [n.Var(f"%at{k}", I64) for k in range(len(w.index))]
    ranges = tuple(Ranging(v, const(0, I64), wide(d)) for v, d in zip(sought, w.buffer.shape, strict=True))
    own = {h.var.name: h for h in w.place.holding if isinstance(h, Ranging)}
    own |= {v.name: Ranging(v, const(0), const(d) if isinstance(d, int) else d) for v, d in w.elements}
    values: dict[str, n.Expr] = {}
    for i, at in zip(w.index, sought, strict=True):
        found = _digits(i, at, own)
        if found is None or found.keys() & values.keys():
            return False
        values |= found
    for name, h in own.items():
        if name not in values:
            values[name] = wide(h.lo)
    told: dict[str, n.Expr] = {name: _as(values[name], h.var) for name, h in own.items()}

    def there(e: n.Expr) -> n.Expr:
        out: n.Expr = e
        for _ in own:  # where a range begins may name others
            if not names_read(out) & told.keys():
                break
            out = substitute(out, told)
        return out
    claims = [*(c for h in own.values() for c in (compared("le", there(h.lo), there(h.var)), compared("lt", there(h.var), there(h.hi)))),
              *(there(h) for h in (*w.place.holding, w.mask) if not isinstance(h, Ranging)),
              *(compared("eq", there(i), at) for i, at in zip(w.index, sought, strict=True))]
    return all(asks(ranges, c) for c in claims)


def _digits(i: n.Expr, at: n.Expr, own: Mapping[str, Ranging]) -> dict[str, n.Expr] | None:
    """Values of the variables of a sum at which it may be a number: its digits, from the one that counts for most."""
    offset: n.Expr = const(0, I64)
    places: list[tuple[int, n.Expr, str]] = []
    for m, c in build.polynomial(i).items():
        inside = [x for x in m if names_read(x) & own.keys()]
        if not inside:
            term: n.Expr = const(c, I64)
            for x in m:
                term = build.mul(term, wide(x))
            offset = build.add(offset, term)
            continue
        inner = _bare(inside[0])
        if len(inside) != 1 or not isinstance(inner, n.Var) or c < 1:
            return None
        scale: n.Expr = const(c, I64)
        for x in m:
            scale = scale if x is inside[0] else build.mul(scale, wide(x))
        places.append((len(m), scale, inner.name))
    places.sort(key=lambda p: (p[0], int_value(p[1]) or 0))
    rest = build.sub(at, offset)
    out: dict[str, n.Expr] = {}
    for k, (_, scale, name) in enumerate(reversed(places)):
        if name in out:
            return None
        out[name] = rest if int_value(scale) == 1 else build.floordiv(rest, scale)
        rest = build.mod(rest, scale) if k + 1 < len(places) else rest
    return out


def _bare(e: n.Expr) -> n.Expr:
    while isinstance(e, n.Cast) and dtype_of(e.type).is_integer and dtype_of(e.x.type).is_integer:
        e = e.x
    return e


def _as(e: n.Expr, like: n.Var) -> n.Expr:
    return e if e.type == like.of else build.cast(e, dtype_of(like.of))


__all__ = ["before", "filled"]
