"""Numbers of 32 bits: what a sum is at given values, and which sums the statements of a program compute."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeGuard

from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.values import both, compared, either, wide
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import DType, dtype_of
from kir.ir.visit import children, names_read, statements, substitute, walk

LARGEST = tuple((1 << 31) - d for d in (1, 8, 64, 512)) + tuple((1 << 31) // d // 64 * 64 for d in (3, 9))
ROUND = "round."
"""How the names of variables begin that count the rounds of a `while`."""
SMALLEST = (1, 8, 64, 1 << 16)
"""Sizes that are tried for sums that the solver says nothing of."""


def only_extents(program: n.Program) -> frozenset[tuple[object, ...]]:
    """Sums (as polynomials) that extents of tensors are made of and no statement computes: how large a memory is, a kernel need not know."""
    params = [p.of for p in program.params if isinstance(p.of, n.Buffer)]
    inside = [s for k in program.kernels for s in statements(k.body)]
    extents = [d for b in (*params, *(s.buffer for s in inside if isinstance(s, n.View))) for d in b.shape if isinstance(d, n.Expr)]
    computed = [e for s in inside if not isinstance(s, n.View | n.Alloc) for e in _below(s)]
    return frozenset(polynomial_of(x) for d in extents for x in walk(d) if _sum(x)) - frozenset(polynomial_of(x) for x in computed if _sum(x))


def _below(s: n.Stmt) -> Iterator[n.Node]:
    """What a statement is made of, without the memory that it names."""
    left: list[n.Node] = [s]
    while left:
        top = left.pop()
        yield top
        left += [x for x in children(top) if not isinstance(x, n.Buffer | n.Stmt)]


def _sum(x: n.Node) -> TypeGuard[n.Binary]:
    return isinstance(x, n.Binary) and x.op in ("add", "sub", "mul") and isinstance(x.type, DType) and x.type.is_integer


def polynomial_of(e: n.Expr) -> tuple[object, ...]:
    """A sum in one form, whatever the order of its parts is."""
    return tuple(sorted(((tuple(sorted(map(repr, atoms))), c) for atoms, c in build.polynomial(e).items()), key=repr))


def _at(e: n.Expr, values: Mapping[str, int]) -> n.Expr:
    """An expression with values for its names."""
    own = {v.name: v for v in walk(e) if isinstance(v, n.Var) and v.name in values}
    made: n.Expr = substitute(e, {k: const(values[k], dtype_of(v.of)) for k, v in own.items()})
    return made


def worked_out(h: Holding, values: Mapping[str, int]) -> bool | None:
    """Whether something holds at given values; None where they do not say."""
    found = _at(both(compared("le", h.lo, h.var), compared("lt", h.var, h.hi)) if isinstance(h, Ranging) else h, values)
    return bool(found.value) if isinstance(found, n.Const) else None


def overflows(e: n.Expr, holding: Iterable[Holding], values: Mapping[str, int]) -> bool:
    """Whether at some values, at which all holds that is known before it (`known_before`), a sum is not what a machine makes of it."""
    if not all(worked_out(h, values) for h in holding):
        return False
    exact = 0
    for atoms, c in build.polynomial(e).items():
        product = c
        for atom in atoms:
            found = _at(atom, values)
            if atom is e or not isinstance(found, n.Const):
                return False
            product *= int(found.value)
        exact += product
    low, high = dtype_of(e.type).range
    return not low <= exact <= high


def known_before(e: n.Expr, holding: Sequence[Holding]) -> tuple[Holding, ...]:
    """Of what holds at a place, what is known before a sum is computed there for the first time: conditions in front of the one that it is a part of, and
    ranges that it is none of. What follows from a condition that was decided with the sum says nothing of the sum. How far a loop's own variable goes is a
    range; a `while` asks in each trip what the one before it left."""
    out: list[Holding] = []
    decided = False
    for k, h in enumerate(holding):
        if isinstance(h, Ranging):
            if not any(x == e for end in (h.lo, h.hi) for x in walk(end)):
                out.append(h)
        elif (count := _counter(holding[k - 1]) if k else None) is not None and count.name in names_read(h):
            if not count.name.startswith(ROUND):
                out.append(h)
            elif not decided:
                before = substitute(h, {count.name: build.sub(count, const(1, dtype_of(count.of)))})
                out.append(either(compared("eq", count, const(0, dtype_of(count.of))), before))
        else:
            for part in conjuncts(h) if not decided else ():
                decided = decided or any(x == e for x in walk(part))
                if not decided:
                    out.append(part)
    return tuple(out)


def _counter(h: Holding) -> n.Var | None:
    """The variable that counts the trips of a loop, of which it is said that it is not negative; names of a program have no points."""
    if isinstance(h, n.Binary) and h.op == "ge" and isinstance(h.a, n.Var) and "." in h.a.name and int_value(h.b) == 0:
        return h.a
    return None


def conjuncts(e: n.Expr) -> Iterator[n.Expr]:
    """The conditions that hold together where one does, as they stand in it."""
    if isinstance(e, n.Binary) and e.op == "and" and dtype_of(e.type).is_bool:
        yield from conjuncts(e.a)
        yield from conjuncts(e.b)
    else:
        yield e


def relevant(holding: Iterable[Holding], claim: n.Expr, sizes: set[str]) -> tuple[Holding, ...]:
    """What holds of the variables of a claim: of a range that is over other sizes, only where it begins."""
    named = names_read(claim)
    out: list[Holding] = []
    for h in holding:
        if isinstance(h, Ranging):
            if h.var.name in named:
                out.append(h if names_read(h.hi) & sizes <= named else compared("ge", h.var, h.lo))
        elif names_read(h) <= named:
            out.append(h)
    return tuple(out)


def _sizes(program: n.Program) -> list[str]:
    """The numbers that a program is given."""
    return [p.name for p in program.params if isinstance(p.of, DType)]


def more_than(program: n.Program, e: n.Expr, most: int) -> Mapping[str, int] | None:
    """Sizes at which an expression is larger, looked for where the sizes are 1 or so large that one of them, or two together, are."""
    names = _sizes(program)
    for values in product((1, 64, 512, 65_536), repeat=min(4, len(names))):
        sizes = {**dict.fromkeys(names, 64), **dict(zip(names, values, strict=False))}
        known = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}
        found = int_value(substitute(wide(e), known))
        if found is not None and found > most and all(isinstance(f := substitute(fact, known), n.Const) and f.value for fact in program.facts):
            return sizes
    return None


def at_the_most(program: n.Program, e: n.Expr, holding: tuple[Holding, ...]) -> Mapping[str, int] | None:
    """Values at which a sum does not fit, looked for where one size, or all, are as large as can be, and variables are at
    their last; or, of those whose ranges are numbers, at their `first`."""
    names = _sizes(program)
    for size in names:
        for largest, small, first in product(LARGEST, (*SMALLEST, None), (False, True)):
            small = largest if small is None else small
            values = {**dict.fromkeys(names, small), size: largest}
            known = {k: const(v, dtype_of(p.of)) for p in program.params if (k := p.name) in values and isinstance(p.of, DType) for v in (values[k],)}
            if not all(isinstance(f := substitute(fact, known), n.Const) and f.value for fact in program.facts):
                continue
            for h in holding:
                if isinstance(h, Ranging) and (last := int_value(substitute(h.hi, known))) is not None:
                    at = int_value(substitute(h.lo, known)) if first and int_value(h.hi) is not None else last - 1
                    values[h.var.name] = last - 1 if at is None else at
                    known[h.var.name] = const(values[h.var.name], dtype_of(h.var.of))
            if all(v.name in values for v in walk(e) if isinstance(v, n.Var)) and overflows(e, holding, values):
                return values
    return None


__all__ = ["at_the_most", "conjuncts", "known_before", "more_than", "only_extents", "overflows", "polynomial_of", "relevant", "worked_out"]
