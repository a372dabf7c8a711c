"""Facts of a binding that say nothing or cannot all hold, and extents that are never a number of elements under them.

Every size is a number from 0 to 2^31 - 1. Each fact narrows what its sizes may be, until nothing changes; the remainders of one size are then tried
one by one. What this does not find contradictory may still be: it is no proof that the facts can be kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.binding_values import MOST, wrong
from kir.ir.types import I32, DType
from kir.ir.visit import walk

Range = tuple[float, float]
ROUNDS = 16
"""How often all facts are gone through at most: bounds that chase each other upwards are left."""
TRIED = 65536
"""Remainders that are tried at most."""
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def check_facts(binding: Binding, facts: Sequence[n.Expr]) -> None:
    """Raises KirError KIR-F011 for a fact that is no condition, that is always or never true, and for the first that contradicts those before it."""
    for k, f in enumerate(facts):
        if not (isinstance(f.type, DType) and f.type.may_decide):
            raise wrong(binding, ("facts", k), f"the fact '{binding.facts[k]}' is no condition", "a comparison, such as N >= 1")
        if isinstance(f, n.Const) or (isinstance(f, n.Binary) and f.a == f.b):
            never = isinstance(f, n.Const) and not f.value
            raise wrong(binding, ("facts", k), f"the fact '{binding.facts[k]}' {'never holds' if never else 'says nothing of any size'}",
                        "a condition on the sizes")
        ranges = _narrowed(facts[: k + 1])
        if ranges is None or not _has_remainder(facts[: k + 1], ranges) or _apart(facts[: k + 1]):
            names = {x.name for x in walk(f) if isinstance(x, n.Var)}
            others = [binding.facts[i] for i in range(k) if names & {x.name for x in walk(facts[i]) if isinstance(x, n.Var)}]
            against = f"contradicts {', '.join(repr(o) for o in others)}" if others else "holds for no number of elements"
            raise wrong(binding, ("facts", k), f"the fact '{binding.facts[k]}' {against}", "facts that some sizes keep")


def check_extents(binding: Binding, facts: Sequence[n.Expr], extents: Iterable[tuple[tuple[str | int, ...], n.Expr]]) -> None:
    """Raises KirError KIR-F011 for an extent of a tensor or of the grid that is never 1 or more (a tensor's: 0), or always more than 32 bits index."""
    ranges = _narrowed(facts) or {}
    for steps, e in extents:
        low, high = _range(e, ranges)
        least = 0 if steps[0] == "tensors" else 1
        if high < least or low > MOST:
            end = high if high < least else low
            said = f"{int(end)}" if abs(end) < float("inf") else "any number"
            raise wrong(binding, steps, f"this extent is {'never more than' if high < least else 'at least'} {said}",
                        f"{least} to {MOST}")


def _narrowed(facts: Sequence[n.Expr]) -> dict[str, Range] | None:
    """What each size may be, or None where nothing is left."""
    ranges: dict[str, Range] = {}
    for _ in range(ROUNDS):
        before = dict(ranges)
        for f in facts:
            if not isinstance(f, n.Binary) or f.op not in _TURNED:
                continue
            for a, op, b in ((f.a, f.op, f.b), (f.b, _TURNED[f.op], f.a)):
                (low, high), (least, most) = _range(a, ranges), _range(b, ranges)
                if (op in ("lt", "le", "eq") and low > most - (op == "lt")) or (op in ("gt", "ge", "eq") and high < least + (op == "gt")):
                    return None
                if not isinstance(a, n.Var):
                    continue
                if op in ("lt", "le", "eq"):
                    high = min(high, most - (op == "lt"))
                if op in ("gt", "ge", "eq"):
                    low = max(low, least + (op == "gt"))
                if low > high:
                    return None
                ranges[a.name] = (low, high)
        if ranges == before:
            break
    return ranges


def _apart(facts: Sequence[n.Expr]) -> bool:
    """Whether two facts bound the difference of the same sizes so that nothing is left: `M >= N` and `M < N`."""
    bounds: dict[frozenset[tuple[build.Monomial, int]], Range] = {}
    for f in facts:
        if not (isinstance(f, n.Binary) and f.op in ("lt", "le", "gt", "ge", "eq") and isinstance(f.a.type, DType) and f.a.type == f.b.type == I32):
            continue
        terms = build.polynomial(build.sub(f.a, f.b))
        rest = -terms.get((), 0)  # the terms without the constant are compared with it
        low, high = (rest + (f.op == "gt") if f.op in ("gt", "ge", "eq") else -math.inf), (rest - (f.op == "lt") if f.op in ("lt", "le", "eq") else math.inf)
        for sign, bound in ((1, (low, high)), (-1, (-high, -low))):
            key = frozenset((m, sign * c) for m, c in terms.items() if m)
            known = bounds.get(key, (-math.inf, math.inf))
            bounds[key] = max(known[0], bound[0]), min(known[1], bound[1])
            if key and bounds[key][0] > bounds[key][1]:
                return True
    return False


def _range(e: n.Expr, ranges: dict[str, Range]) -> Range:
    """The least and the most that an expression over the sizes may be."""
    anything = (-math.inf, math.inf)
    match e:
        case n.Const(value=value):
            return float(value), float(value)
        case n.Var(name=name):
            return ranges.get(name, (0.0, float(MOST)))
        case n.Cast(x=x):
            return _range(x, ranges)
        case n.Binary(op=op, a=a, b=b):
            (p, q), (r, s) = _range(a, ranges), _range(b, ranges)
            match op:
                case "add":
                    return p + r, q + s
                case "sub":
                    return p - s, q - r
                case "mul" if math.inf not in (q, s) and -math.inf not in (p, r):
                    ends = (p * r, p * s, q * r, q * s)
                    return min(ends), max(ends)
                case "floordiv" | "ceildiv" if r >= 1 and math.inf not in (q, s) and p > -math.inf:
                    ends = (p / r, p / s, q / r, q / s)
                    rounded = math.floor if op == "floordiv" else math.ceil
                    return rounded(min(ends)), rounded(max(ends))
                case "mod" if r >= 1 and p >= 0:
                    return 0, min(q, s - 1)
                case "min":
                    return min(p, r), min(q, s)
                case "max":
                    return max(p, r), max(q, s)
                case _:
                    return anything
        case _:
            return anything


def _has_remainder(facts: Sequence[n.Expr], ranges: dict[str, Range]) -> bool:
    """Whether each size has a value in its range that leaves the remainders that are asked of it alone."""
    asked: dict[str, list[tuple[int, int, bool]]] = {}
    for f in facts:
        match f:
            case n.Binary(op=("eq" | "ne") as op, a=n.Binary(op="mod", a=n.Var(name=name), b=n.Const(value=int() as of)),
                          b=n.Const(value=int() as left)) if of >= 1:
                asked.setdefault(name, []).append((of, left, op == "eq"))
            case _:
                pass
    for name, wanted in asked.items():
        low, high = (int(x) for x in ranges.get(name, (0, MOST)))
        period = math.lcm(*(of for of, _, _ in wanted))
        if period > TRIED and high - low >= TRIED:
            continue
        if not any(all((value % of == left) is equal for of, left, equal in wanted) for value in range(low, min(high, low + period - 1) + 1)):
            return False
    return True
