"""Sizes at which a program may be called, found from its facts alone."""
from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain

from kir.gate.goals import promised
from kir.ir import nodes as n
from kir.ir.build import DIVISIONS, const, known_value, polynomial
from kir.ir.types import I32, DType
from kir.ir.visit import names_read, statements, substitute, walk

MOST_UNROLLED = 8
"""What a size is at most in a profile where each of its steps is a statement of its own."""


def unrolled_over(program: n.Program) -> frozenset[str]:
    """The sizes that loops run over which are unrolled, or are one vector: whoever writes that means a small number."""
    loops = (s for k in program.kernels for s in statements(k.body) if isinstance(s, n.For) and s.kind in ("unroll", "vectorize"))
    return frozenset(x for s in loops for x in names_read(s.hi))


def size_sets(program: n.Program, bases: tuple[int, ...] = (3, 20, 64, 130), apart: int = 1, below: bool = False,
              few: Collection[str] = ()) -> list[dict[str, int]]:
    """Values of the sizes at which every fact holds: from each base upward, one size after the other, so far apart; `few` from `MOST_UNROLLED` at most.
    With `below` a size that the facts hold under its base has the most that they allow, a multiple of eight where there is one."""
    sizes = tuple((p.name, p.of) for p in program.params if p.role == "size" and p.value is None and isinstance(p.of, DType))
    return [dict(values) for values in _size_sets(sizes, tuple(promised(program)), bases, apart, below, frozenset(few))]


@lru_cache(maxsize=1 << 10)
def _size_sets(sizes: tuple[tuple[str, DType], ...], facts: tuple[n.Expr, ...], bases: tuple[int, ...], apart: int, below: bool,
               few: frozenset[str]) -> tuple[Mapping[str, int], ...]:
    """What `size_sets` finds: programs that are made of one another have the same facts."""
    out: list[dict[str, int]] = []
    parts = wholes(facts)
    above = _above(facts)
    first = sorted(enumerate(sizes), key=lambda x: (x[1][0] in parts, _height(x[1][0], above)))  # what others are multiples of, or at least, before those
    products = _products(facts)
    for turn, base in enumerate(bases):
        values: dict[str, int] = {}
        known: dict[str, n.Const] = {}
        for offset, (name, of) in first:
            if any(_truth(fact, known) is False for fact in facts if name not in names_read(fact)):
                continue  # whatever this size is
            about = [fact for fact in facts if name in names_read(fact)]
            usual = min(base, MOST_UNROLLED) if name in few else base + offset * apart
            least = max([usual, *(2 * values[x] for x in parts.get(name, ()) if x in values)])
            under = (range(least // 8 * 8, 0, -8), range(least - 1, 0, -1)) if below else ()
            parted = _divisors(products[name], name, values, turn) if name in products else range(least, least + 4097)
            for candidate in chain(parted, *under):
                trial = {**known, name: const(candidate, of)}
                if not any(_truth(fact, trial) is False for fact in about):
                    values[name], known = candidate, trial
                    break
        values = {name: values[name] for name, _ in sizes if name in values}
        if len(values) == len(sizes) and all(_truth(fact, known) for fact in facts) and values not in out:
            out.append(values)
    return tuple(out)


def stretched(program: n.Program, ends: Iterable[int] = (304, 2112, 1104, 4224)) -> Iterator[dict[str, int]]:
    """Values of the sizes of which one is large and the others are 16, or as near to it as facts allow: what tiles, or rounds of CTAs, come to along one axis
    alone, at multiples of a vector's length, which fast versions of a kernel ask for."""
    base, facts = next(iter(size_sets(program, (16, 32), apart=0)), {}), promised(program)
    types = {p.name: p.of for p in program.params if isinstance(p.of, DType)}
    for end in ends:
        for name in base:
            for candidate in range(end, end + 513):
                values = {**base, name: candidate}
                if all(_truth(fact, {k: const(v, types[k]) for k, v in values.items()}) for fact in facts):
                    yield values
                    break


def windows(program: n.Program) -> dict[str, int]:
    """Sizes that say how a window moves over axes, and are none themselves, each with a usual value: extents are worked out from them, and none of tensor or
    grid is a product of them. What is divided by is a step, 1; what only makes extents larger is padding, 1; what makes them smaller is the window, 3."""
    extents = [d for p in program.params if isinstance(p.of, n.Buffer) for d in p.of.shape]
    extents += [axis.extent for k in program.kernels for axis in k.grid]
    axes, out = set[str](), dict[str, int]()
    for e in extents:
        whole = polynomial(e.a if isinstance(e, n.Binary) and e.op == "ceildiv" and isinstance(e.b, n.Const) else e)
        if len(whole) == 1 and all(isinstance(a, n.Var) for a in next(iter(whole))):
            axes |= {x for atoms in whole for a in atoms for x in names_read(a)}
    said = {x for e in extents for x in names_read(e)} - axes if axes else set()
    for each in (x for whole in extents for x in walk(whole)):
        if isinstance(each, n.Binary) and each.op in DIVISIONS:
            out |= dict.fromkeys(names_read(each.b) & said, 1)
        for atoms, c in polynomial(each).items() if isinstance(each, n.Expr) and each.type == I32 else ():
            out |= {x: max(out.get(x, 1), 1 if c > 0 else 3) for a in atoms if isinstance(a, n.Var) and (x := a.name) in said}
    return out


def wholes(facts: Iterable[n.Expr]) -> dict[str, tuple[str, ...]]:
    """Sizes that facts say are multiples of other sizes, each with those: a number of channels, and one of groups."""
    out: dict[str, tuple[str, ...]] = {}
    for fact in facts:
        match fact:
            case n.Binary(op="eq", a=n.Binary(op="mod", a=n.Var(name=a), b=n.Var(name=b)), b=n.Const(value=0)) if a != b:
                out[a] = (*out.get(a, ()), b)
            case _:
                pass
    return out


def _products(facts: Iterable[n.Expr]) -> dict[str, tuple[frozenset[str], int]]:
    """Sizes of which facts say what they come to multiplied, each with all of them and that number: rows and columns of an image of so many pixels."""
    out: dict[str, tuple[frozenset[str], int]] = {}
    for fact in facts:
        if isinstance(fact, n.Binary) and fact.op == "eq" and isinstance(fact.b, n.Const) and isinstance(fact.b.value, int) and fact.b.value > 0:
            (atoms, c), *more = polynomial(fact.a).items() or [((), 0)]
            names = frozenset(x.name for x in atoms if isinstance(x, n.Var))
            if not more and c > 0 and len(names) == len(atoms) > 1 and fact.b.value % c == 0:
                out |= {name: (names, fact.b.value // c) for name in names if name not in out}
    return out


def _divisors(product: tuple[frozenset[str], int], name: str, values: Mapping[str, int], turn: int) -> list[int]:
    """What a size may be that comes to a number with others, of which some have `values`: those near an equal share first, beginning with another one each
    `turn`."""
    names, whole = product
    rest = math.prod(values[x] for x in names if x in values)
    left = len(names - values.keys())
    if whole % rest:
        return []
    whole //= rest
    if left == 1:
        return [whole]
    found = sorted((d for d in range(1, math.isqrt(whole) + 1) if whole % d == 0), key=lambda d: abs(math.log(d ** left / whole)))
    found += [whole // d for d in found if d * d != whole]
    return found[turn % len(found):] + found[:turn % len(found)]


def _above(facts: Iterable[n.Expr]) -> dict[str, frozenset[str]]:
    """Sizes that facts say are at least other sizes, each with those: a stride, and what it steps over."""
    out: dict[str, frozenset[str]] = {}
    for fact in facts:
        match fact:
            case n.Binary(op="ge" | "gt", a=n.Var(name=name), b=least) | n.Binary(op="le" | "lt", a=least, b=n.Var(name=name)):
                out[name] = out.get(name, frozenset()) | (names_read(least) - {name})
            case _:
                pass
    return out


def _height(name: str, above: Mapping[str, frozenset[str]], seen: frozenset[str] = frozenset()) -> int:
    """How many sizes stand below one, one under the other."""
    below = above.get(name, frozenset()) - seen
    return max((1 + _height(x, above, seen | {name}) for x in below), default=0)


def _truth(fact: n.Expr, at: Mapping[str, n.Const]) -> bool | None:
    """What a fact says of sizes, None where they do not decide it."""
    if (known := known_value(fact, at)) is not None:
        return bool(known)
    found = substitute(fact, at)
    return bool(found.value) if isinstance(found, n.Const) else None
