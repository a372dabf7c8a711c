"""Memory that is shown to be stored to, at any sizes: all of it by launches before, or the element that is read by a store that stands before.

Which instance of a store that is, is read off the index: of a sum like `c * 64 + e` the digits of what is looked for. That this instance is executed, and
stores there, is asked then for every index, so that nothing depends on how it was found.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.covered import stands_before
from kir.analysis.proof.sites import Access
from kir.analysis.proof.values import compared, wide
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const
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
    return _stores(w, sought, {}, lambda claim: asks(ranges, claim))


def reached(kernel: n.Kernel, w: Access, r: Access, asks: Asked) -> bool:
    """Whether a store that stands before an access has stored to what it reads, in the same trips of the loops around both."""
    if w.verb != "write" or w.late or not (w.plain and r.plain) or w.buffer != r.buffer or not stands_before(w, r):
        return False
    if any(isinstance(x, (n.Jump, n.While)) for x in walk(kernel)):
        return False
    held: tuple[Holding, ...] = (*r.place.holding, *(Ranging(v, const(0), const(d) if isinstance(d, int) else d) for v, d in r.elements), r.mask)
    names = {v.name: v for h in held if isinstance(h, Ranging) for v in (h.var,)}
    read = {k: n.Var(f"%read {k}", v.of) for k, v in names.items()}
    common = {v.name: read[v.name] for v in w.place.scope if v in r.place.scope and v.name != r.place.thread and v.name in read}
    there = tuple(Ranging(read[h.var.name], substitute(h.lo, read), substitute(h.hi, read)) if isinstance(h, Ranging) else substitute(h, read) for h in held)
    return _stores(w, [substitute(i, read) for i in r.index], common, lambda claim: asks(there, claim))


def _stores(w: Access, sought: Sequence[n.Expr], given: Mapping[str, n.Expr], asks: Callable[[n.Expr], bool]) -> bool:
    """Whether an instance of a store, some of whose variables are `given`, stores to an element."""
    own = {v.name: v for v in (*w.place.scope, *(v for v, _ in w.elements))}
    ranges = [*(h for h in w.place.holding if isinstance(h, Ranging)), *(Ranging(v, const(0), const(d) if isinstance(d, int) else d) for v, d in w.elements)]
    values: dict[str, n.Expr] = {k: wide(v) for k, v in given.items() if k in own}
    index = [substitute(i, {k: v for k, v in given.items() if k in own}) for i in w.index]
    for i, at in zip(index, sought, strict=True):
        found = _digits(i, wide(at), own)
        if found is None or found.keys() & values.keys():
            return False
        values |= found
    first = {h.var.name: wide(h.lo) for h in ranges}
    told: dict[str, n.Expr] = {name: _as(values.get(name, first.get(name, const(0, I64))), v) for name, v in own.items()}

    def there(e: n.Expr) -> n.Expr:
        out: n.Expr = e
        for _ in own:  # where a range begins may name others
            if names_read(out).isdisjoint(told):
                break
            out = substitute(out, told)
        return out
    claims = [*(c for h in ranges for c in (compared("le", there(h.lo), there(h.var)), compared("lt", there(h.var), there(h.hi)))),
              *(there(h) for h in (*w.place.holding, w.mask) if not isinstance(h, Ranging)),
              *(compared("eq", there(i), at) for i, at in zip(w.index, sought, strict=True))]
    return all(asks(c) for c in claims)


def _digits(i: n.Expr, at: n.Expr, own: Mapping[str, n.Var]) -> dict[str, n.Expr] | None:
    """Values of the variables of a sum at which it may be a number: its digits, from the one that counts for most."""
    offset: n.Expr = const(0, I64)
    groups: dict[tuple[n.Expr, ...], list[tuple[int, str]]] = {}
    for m, c in build.polynomial(i).items():
        inside = [x for x in m if names_read(x) & own.keys()]
        if not inside:
            offset = build.add(offset, build.mul(const(c, I64), _product(m)))
            continue
        inner = _bare(inside[0])
        if len(inside) != 1 or not isinstance(inner, n.Var) or c < 1:
            return None
        groups.setdefault(tuple(x for x in m if x is not inside[0]), []).append((c, inner.name))
    rest, out = build.sub(at, offset), dict[str, n.Expr]()
    for left, (factor, digits) in zip(range(len(groups) - 1, -1, -1), sorted(groups.items(), key=lambda g: -len(g[0])), strict=True):
        whole = build.floordiv(rest, _product(factor)) if factor else rest
        rest = build.mod(rest, _product(factor)) if factor and left else rest
        for k, (c, name) in enumerate(sorted(digits, reverse=True)):
            if name in out:
                return None
            out[name] = whole if c == 1 else build.floordiv(whole, c)
            whole = build.mod(whole, c) if k + 1 < len(digits) else whole
    return out


def _product(m: Iterable[n.Expr]) -> n.Expr:
    out: n.Expr = const(1, I64)
    for x in m:
        out = build.mul(out, wide(x))
    return out


def _bare(e: n.Expr) -> n.Expr:
    while isinstance(e, n.Cast) and dtype_of(e.type).is_integer and dtype_of(e.x.type).is_integer:
        e = e.x
    return e


def _as(e: n.Expr, like: n.Var) -> n.Expr:
    return e if e.type == like.of else build.cast(e, dtype_of(like.of))


__all__ = ["before", "filled", "reached"]
