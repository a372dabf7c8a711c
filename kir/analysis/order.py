"""Order between integer expressions: is `a <= b` under the facts of a place?

The difference is brought to a sum of products and bounded by domains; where that does not do, known inequalities (bounds of loops and
grids, facts, and what a quotient says of its numerator) are added so that terms cancel, up to `DEPTH` of them.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from kir.analysis import domain as d
from kir.analysis.domain import Domain
from kir.analysis.facts import Facts, Inequality
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import Monomial, int_value, polynomial
from kir.ir.printer import expr_text
from kir.ir.types import dtype_of

DEPTH = 3
"""How many inequalities may be added together."""

Terms = Mapping[Monomial, int]


def at_most(a: n.Expr, b: n.Expr, known: Facts, gap: int = 0) -> bool:
    """Whether `a + gap <= b` holds as mathematical integers for the values of `a` and `b`; False when it is not known."""
    if not (known.is_exact(a) and known.is_exact(b)):
        return (hi := known.domain(a).hi) is not None and (lo := known.domain(b).lo) is not None and hi + gap <= lo
    difference = dict(exact_terms(a))
    for m, c in exact_terms(b).items():
        difference[m] = difference.get(m, 0) - c
    difference[()] = difference.get((), 0) + gap
    return _never_positive(_clean(difference), known, DEPTH)


def exact_terms(e: n.Expr) -> Terms:
    """The sum that an expression is where it does not wrap, as its domain has it: a large unsigned coefficient of a sum stands for a negative one."""
    terms, dtype = polynomial(e), dtype_of(e.type)
    if dtype.kind != "uint" or not isinstance(e, n.Binary) or e.op not in ("add", "sub", "mul"):
        return terms
    return {m: c - (1 << dtype.bits) if c >> (dtype.bits - 1) else c for m, c in terms.items()}


def less(a: n.Expr, b: n.Expr, known: Facts) -> bool:
    """Whether `a < b` is known."""
    return at_most(a, b, known, 1)


def is_positive(e: n.Expr, known: Facts) -> bool:
    """Whether an integer expression is proved to be at least 1; a minimum is when both its operands are."""
    low = known.domain(e).lo
    if low is not None and low >= 1:
        return True
    if isinstance(e, n.Var) and e.name in known.lets:
        return is_positive(known.lets[e.name], known)
    if isinstance(e, n.Cast) and dtype_of(e.x.type).is_integer and dtype_of(e.type).bits >= dtype_of(e.x.type).bits:
        return is_positive(e.x, known)
    if isinstance(e, n.Binary) and e.op == "min":
        return is_positive(e.a, known) and is_positive(e.b, known)
    zero, whole = build.const(0, dtype_of(e.type)), known.expanded(e)
    if less(zero, e, known) or less(zero, whole, known):
        return True
    if not (known.is_exact(e) and known.is_exact(whole)):
        return False
    for f in _divisors(whole):
        if is_positive(f, known):
            scaled = {m: -c for m, c in _product(exact_terms(whole), {(f,): 1}).items()}
            if _never_positive(_clean({**scaled, (): scaled.get((), 0) + 1}), known, DEPTH):
                return True
    return False


def after(known: Facts, s: n.Stmt) -> Facts:
    """What holds after a statement: lets are known, and a minimum that is proved positive is at least 1."""
    out = known.after((s,))
    if isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value, n.Binary) and s.value.op == "min" and s.names[0] in out.lets:
        var = n.Var(s.names[0], s.value.type)
        if (out.domain(var).lo or 0) < 1 and is_positive(s.value, known):
            return out.knowing(n.Binary("ge", var, build.const(1, dtype_of(s.value.type))))
    return out


def _product(a: Terms, b: Terms) -> dict[Monomial, int]:
    """The product of two sums, over mathematical integers."""
    out: dict[Monomial, int] = {}
    for x, c in a.items():
        for y, k in b.items():
            m = tuple(sorted(x + y, key=expr_text))
            out[m] = out.get(m, 0) + c * k
    return out


def _divisors(e: n.Expr) -> Iterator[n.Expr]:
    """Factors by which the quotients in a sum are divided: `x > 0` follows from `x * f > 0` for a positive `f`."""
    for atoms in polynomial(e):
        for q in atoms:
            if isinstance(q, n.Binary) and q.op in ("floordiv", "tdiv"):
                for factors in polynomial(q.b):
                    yield from factors


def _clean(terms: Mapping[Monomial, int]) -> dict[Monomial, int]:
    return {m: c for m, c in terms.items() if c}


def bound(terms: Terms, known: Facts) -> Domain:
    """The domain of a sum of products of values."""
    out = d.exactly(0)
    for atoms, c in terms.items():
        term = d.exactly(c)
        for atom in atoms:
            term = d.multiply(term, known.domain(atom))
        out = d.add(out, term)
    return out


def _never_positive(terms: Terms, known: Facts, depth: int) -> bool:
    hi = bound(terms, known).hi
    if hi is not None and hi <= 0:
        return True
    if depth == 0:
        return False
    for fact, falling in _nonnegative(terms, known):
        for m, c in falling:
            have = terms.get(m, 0)
            if have > 0 and have % -c == 0:
                factor = have // -c
                added = dict(terms)
                for x, k in fact.items():
                    added[x] = added.get(x, 0) + k * factor
                if _never_positive(_clean(added), known, depth - 1):
                    return True
    return False


def _nonnegative(terms: Terms, known: Facts) -> Iterator[Inequality]:
    """Sums of products that are known to be at least 0 and that may cancel a positive term of `terms`."""
    sums = known.sums
    if sums.read < len(known.holds):
        sums.held += tuple(_falling(s) for fact in known.holds[sums.read:] for s in _inequality(fact, known))
        sums.read = len(known.holds)
    yield from sums.held
    for atom in dict.fromkeys(a for m in terms for a in m):
        if isinstance(atom, (n.Var, n.Binary)):
            about = sums.about.get(atom)
            if about is None:
                about = sums.about[atom] = tuple(map(_falling, _about(atom, known)))
            yield from about


def sums_of(terms: Terms, known: Facts) -> Iterator[Terms]:
    """Sums of products that are known to be at least 0: of what holds, and of what the atoms of a sum say of themselves."""
    for fact, _ in _nonnegative(terms, known):
        yield fact


def _falling(fact: Terms) -> Inequality:
    return fact, tuple((m, c) for m, c in fact.items() if m and c < 0)


def _about(atom: n.Var | n.Binary, known: Facts) -> Iterator[Terms]:
    """What a name's value, a quotient, a minimum or a remainder says of itself."""
    itself: Terms = {(atom,): 1}
    if isinstance(atom, n.Var):
        if atom.name in known.lets:
            told = known.lets[atom.name]
            if known.is_exact(told) and dtype_of(told.type).is_integer:
                yield _minus(exact_terms(told), itself)
                yield _minus(itself, exact_terms(told))
        return
    c = int_value(atom.b)
    if atom.op in ("floordiv", "ceildiv") and c is not None and c > 0 and known.is_exact(atom.a):
        top = exact_terms(atom.a)
        scaled: Terms = {(atom,): c}
        if atom.op == "floordiv":
            yield _minus(top, scaled)
            yield _minus(_minus(scaled, {(): 1 - c}), top)
        else:
            yield _minus(scaled, top)
            yield _minus(_minus(top, scaled), {(): 1 - c})
    if atom.op == "floordiv" and c is None and known.is_exact(atom.a) and known.is_exact(atom.b) and is_positive(atom.b, known):
        yield _minus(exact_terms(atom.a), _product(exact_terms(atom.b), itself))
    if atom.op == "min":
        for side in (atom.a, atom.b):
            if known.is_exact(side):
                yield _minus(exact_terms(side), itself)
    if atom.op == "max":
        for side in (atom.a, atom.b):
            if known.is_exact(side):
                yield _minus(itself, exact_terms(side))
    if atom.op == "mod" and (low := known.domain(atom.b).lo) is not None and low > 0 and known.is_exact(atom.b):
        yield _minus({**exact_terms(atom.b), (): exact_terms(atom.b).get((), 0) - 1}, itself)


def _minus(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> dict[Monomial, int]:
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, 0) - c
    return _clean(out)


def _inequality(fact: n.Expr, known: Facts) -> Iterator[dict[Monomial, int]]:
    """A comparison that holds, as sums that are at least 0."""
    if not (isinstance(fact, n.Binary) and fact.op in n.COMPARISONS and dtype_of(fact.a.type).is_integer):
        return
    if not (known.is_exact(fact.a) and known.is_exact(fact.b)):
        return
    a, b = exact_terms(fact.a), exact_terms(fact.b)
    one: dict[Monomial, int] = {(): 1}
    match fact.op:
        case "le":
            yield _minus(b, a)
        case "lt":
            yield _minus(_minus(b, a), one)
        case "ge":
            yield _minus(a, b)
        case "gt":
            yield _minus(_minus(a, b), one)
        case "eq":
            yield _minus(a, b)
            yield _minus(b, a)
        case _:
            pass
