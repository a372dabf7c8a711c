"""What is known of the integers of a program at a place: size facts, loop and grid ranges, lets.

`Facts.at(program, path)` collects them; `domain(e)` evaluates an expression to an interval with a congruence. Integer arithmetic of the
IR wraps, and so do domains: each is a fact about the value that a machine computes. Sizes are non-negative.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from math import gcd
from types import MappingProxyType
from typing import Any

from kir.analysis import domain as d
from kir.analysis.domain import Domain
from kir.base.dataclass import dataclass, replace
from kir.ir import nodes as n
from kir.ir.build import Monomial, int_value, polynomial
from kir.ir.rebuild.plans import guards_of
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import names_read, transform, walk

_EMPTY: Mapping[str, Domain] = MappingProxyType({})
_NO_LETS: Mapping[str, n.Expr] = MappingProxyType({})

Inequality = tuple[Mapping[Monomial, int], tuple[tuple[Monomial, int], ...]]
"""A sum of products that is at least 0, and those of its terms that are negative and no constants."""


def descends(step: n.Expr) -> bool:
    """Whether the step of a loop is less than zero: a negative number, or one less a size (`-BS`). Sizes are not negative."""
    while isinstance(step, n.Cast):
        step = step.x
    terms = polynomial(step)
    return bool(terms) and all(c < 0 for c in terms.values())


@dataclass
class Sums:
    """Inequalities between sums: those of the first `read` conditions that hold, in order, and those that a quotient, minimum or let implies."""

    read: int = 0
    held: tuple[Inequality, ...] = ()
    about: dict[n.Expr, tuple[Inequality, ...]] = field(default_factory=dict)


MOST_TERMS = 128
"""Terms of a sum in which no more names are replaced by what they are."""


@dataclass(frozen=True)
class Facts:
    """`ranges`: name to its domain; `lets`: name of an integer or boolean let to its value; `holds`: boolean expressions that are true
    (facts of the header, conditions of enclosing branches, bounds of loop variables)."""

    ranges: Mapping[str, Domain] = field(default_factory=lambda: _EMPTY)
    lets: Mapping[str, n.Expr] = field(default_factory=lambda: _NO_LETS)
    holds: tuple[n.Expr, ...] = ()
    _domains: dict[n.Expr, tuple[Domain, bool]] = field(default_factory=dict, compare=False, repr=False)
    """The domain of each expression that was asked for, and whether its outermost operation never wraps."""
    _asked: set[str] = field(default_factory=set, compare=False, repr=False)
    """The names that some domain depends on."""
    sums: Sums = field(default_factory=lambda: Sums(), compare=False, repr=False)
    """What `kir.analysis.order` has made of `holds` and of quotients; it is worked out when it is asked for."""
    token: object = field(default=None, compare=False, repr=False)
    """Facts with the same token say the same; others may all the same. None where what they were made of is not known."""

    @classmethod
    def from_program(cls, program: n.Program) -> Facts:
        """What the header says: facts on sizes, and values of derived scalars."""
        ranges: dict[str, Domain] = {}
        for p in program.params:
            if isinstance(p.of, DType) and p.of.is_integer:
                low, high = p.of.range
                ranges[p.name] = d.between(0 if p.role == "size" else low, high)
        lets = {p.name: p.value for p in program.params if p.value is not None and isinstance(p.of, DType)}
        out = cls(MappingProxyType(ranges), MappingProxyType(lets), token=_told("", "header", tuple((p.name, p.of, p.role, p.value) for p in program.params)))
        for fact in program.facts:
            out = out.knowing(fact)
        return out

    @classmethod
    def in_kernel(cls, program: n.Program, kernel: str) -> Facts:
        """What the header says, and the guards under which alone the launch plan runs a kernel."""
        out = cls.from_program(program)
        for guard in guards_of(program, kernel):
            out = out.knowing(guard)
        return out

    @classmethod
    def at(cls, program: n.Program, path: tuple[int | str, ...]) -> Facts:
        """What holds just before the statement at a path (of a kernel's path: at the start of its body)."""
        known, block = _entering(program, path if len(path) == 1 else path[:-1])
        return known if len(path) == 1 else known.after(block[:int(path[-1])])

    def after(self, block: n.Block) -> Facts:
        """What holds after a block: its integer lets are known."""
        lets = {name: s.value for s in block if isinstance(s, n.Let) and len(s.names) == 1 for name in s.names
                if not isinstance(s.value.type, TileType) and _is_scalar_integer(s.value)}
        if not lets:
            return self
        return self._with(lets, _more(self.token, "lets", tuple(lets.items())), lets=MappingProxyType({**self.lets, **lets}))

    def _with(self, changed: Collection[str], token: object, **said: Any) -> Facts:
        """These facts with more said, of the names `changed` alone. What was worked out is kept where it depends on none of them."""
        if not self._asked.isdisjoint(changed):
            return replace(self, **said, _domains={}, _asked=set(), sums=Sums(), token=token)
        sums = replace(self.sums, about=dict(self.sums.about) if "holds" not in said else {})
        return replace(self, **said, _domains=self._domains.copy(), _asked=self._asked.copy(), sums=sums, token=token)

    def inside(self, s: n.Stmt, rest: tuple[int | str, ...]) -> tuple[Facts, n.Block, tuple[int | str, ...]]:
        """What holds in the block of `s` that `rest` leads into, that block, and the rest of the path."""
        match s:
            case n.For():
                return self.ranging(s.var, s.lo, s.hi, s.step), s.body, rest[1:]
            case n.If():
                if rest[0] == "then":
                    return self.knowing(s.cond), s.then, rest[1:]
                return self.knowing(_negation(s.cond)), s.orelse, rest[1:]
            case n.While():
                return self, s.body, rest[1:]
            case n.Roles():
                return self, s.roles[int(rest[1])].body, rest[3:]
            case _:
                return self, (), ()

    def ranging(self, var: n.Var, lo: n.Expr, hi: n.Expr, step: n.Expr | None = None) -> Facts:
        """With a variable that takes lo, lo + step, .. below hi, or above it where the step `descends`."""
        low, high = self.domain(lo), self.domain(hi)
        token = _more(self.token, "range", (var, lo, hi, step))
        if step is not None and descends(step):
            known = d.between(None if high.lo is None else high.lo + 1, low.hi)
            down = (n.Binary("lt", hi, var), n.Binary("le", var, lo))
            return self._with({var.name}, token, ranges=MappingProxyType({**self.ranges, var.name: known}), holds=(*self.holds, *down))
        stride = 1 if step is None else int_value(step)
        start = low
        known = d.between(start.lo, None if high.hi is None else high.hi - 1)
        if stride is not None and stride > 0:
            lattice = d.add(Domain(start.value, start.value, start.modulus, start.residue), d.scale(Domain(0, None), stride))
            known = d.meet(known, Domain(None, None, lattice.modulus, lattice.residue))
            if stride > 1 and start.value is not None and high.value is not None and high.value > start.value:
                last = start.value + (high.value - start.value - 1) // stride * stride
                known = d.meet(known, d.between(None, last))
        bounds = (n.Binary("le", lo, var), n.Binary("lt", var, hi))
        return self._with({var.name}, token, ranges=MappingProxyType({**self.ranges, var.name: known}), holds=(*self.holds, *bounds))

    def knowing(self, fact: n.Expr) -> Facts:
        """With a boolean expression that holds. Conjunctions are taken apart; bounds and congruences of names become domains."""
        if isinstance(fact, n.Const) or any(isinstance(x, (n.Load, n.Call)) for x in walk(fact)):
            return self
        out = self._with((), _more(self.token, "fact", fact), holds=(*self.holds, fact))
        if isinstance(fact, n.Binary) and fact.op == "and":
            return self.knowing(fact.a).knowing(fact.b)
        if isinstance(fact, n.Binary) and fact.op in n.COMPARISONS and dtype_of(fact.a.type).is_integer:
            for name, known in self._bounds(fact):
                before = out.ranges.get(name, d.TOP)
                narrowed = d.meet(before, known)
                if narrowed != before or name not in out.ranges:
                    out = replace(out, ranges=MappingProxyType({**out.ranges, name: narrowed}), _domains={}, _asked=set(), sums=Sums())
        return out

    def _bounds(self, fact: n.Binary) -> Iterator[tuple[str, Domain]]:
        """What a comparison says of single names: `name % c == r`, `name <op> e` by the domain of `e`, and `name + c <op> e` where that does not wrap."""
        flipped = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
        for left, right, op in ((fact.a, fact.b, fact.op), (fact.b, fact.a, flipped.get(fact.op, fact.op))):
            c = int_value(right)
            if op == "eq" and c is not None and isinstance(left, n.Binary) and left.op == "mod" and isinstance(left.a, n.Var):
                m = int_value(left.b)
                if m is not None and m > 0 and 0 <= c < m:
                    yield left.a.name, Domain(None, None, m, c)
            bound = self.domain(right)
            if isinstance(left, n.Binary) and left.op in ("add", "sub") and (moved := int_value(left.b)) is not None and self.is_exact(left):
                bound, left = d.add(bound, d.exactly(moved if left.op == "sub" else -moved)), left.a
            if not isinstance(left, n.Var):
                continue
            match op:
                case "lt":
                    yield left.name, d.between(None, None if bound.hi is None else bound.hi - 1)
                case "le":
                    yield left.name, d.between(None, bound.hi)
                case "gt":
                    yield left.name, d.between(None if bound.lo is None else bound.lo + 1, None)
                case "ge":
                    yield left.name, d.between(bound.lo, None)
                case "eq":
                    yield left.name, bound
                case _:
                    pass

    def domain(self, e: n.Expr) -> Domain:
        """The values that an integer expression (of a tile: each element) may take, wrapping included: where a result may leave its
        dtype, its range is the dtype's and its congruence is kept modulo powers of two only."""
        return self._known(e)[0]

    def is_exact(self, e: n.Expr) -> bool:
        """Whether the outermost operation of `e` never wraps, so that it equals the same operation on mathematical integers."""
        return self._known(e)[1]

    def _known(self, e: n.Expr) -> tuple[Domain, bool]:
        kept = self._domains.get(e)
        if kept is None:
            found, exact = self._domain(e), True
            dtype = dtype_of(e.type)
            if dtype.is_integer and not _inside(found, dtype):
                exact = not isinstance(e, (n.Binary, n.Unary))
                if not found.is_empty:
                    low, high = dtype.range
                    found = d.between(low, high, gcd(found.modulus, 1 << dtype.bits) if found.modulus else 1 << dtype.bits, found.residue)
            kept = self._domains[e] = found, exact
        return kept

    def _domain(self, e: n.Expr) -> Domain:
        match e:
            case n.Const():
                return d.exactly(int(e.value)) if not isinstance(e.value, float) else d.TOP
            case n.Var():
                self._asked.add(e.name)
                known = self.ranges.get(e.name, d.TOP)
                if e.name in self.lets:
                    known = d.meet(known, self.domain(self.lets[e.name]))
                return known
            case n.Unary() if e.op == "neg":
                return d.negate(self.domain(e.x))
            case n.Binary() if e.op in ("add", "sub", "mul"):
                return self._sum(e)
            case n.Binary() if e.op in ("floordiv", "tdiv"):
                a, b = self.domain(e.a), self.domain(e.b)
                return d.floordiv(a, b) if e.op == "floordiv" or (a.lo is not None and a.lo >= 0) else d.TOP
            case n.Binary() if e.op in ("mod", "trem"):
                a, b = self.domain(e.a), self.domain(e.b)
                if e.op == "mod" or (a.lo is not None and a.lo >= 0 and b.lo is not None and b.lo > 0):
                    return d.mod(a, b)
                return d.between(0, a.hi) if a.lo is not None and a.lo >= 0 else d.TOP  # the sign of what is divided
            case n.Binary() if e.op == "ceildiv":
                return d.negate(d.floordiv(d.negate(self.domain(e.a)), self.domain(e.b)))
            case n.Binary() if e.op == "min":
                return d.least(self.domain(e.a), self.domain(e.b))
            case n.Binary() if e.op == "max":
                return d.greatest(self.domain(e.a), self.domain(e.b))
            case n.Binary() if e.op == "and" and dtype_of(e.type).is_integer:
                a, b = self.domain(e.a), self.domain(e.b)
                bounds = [x.hi for x in (a, b) if x.lo is not None and x.lo >= 0 and x.hi is not None]
                return d.between(0, min(bounds)) if bounds else d.TOP
            case n.Binary() if e.op in ("xor", "or") and dtype_of(e.type).is_integer:
                a, b = self.domain(e.a), self.domain(e.b)
                if a.lo is not None and b.lo is not None and a.lo >= 0 and b.lo >= 0 and a.hi is not None and b.hi is not None:
                    return d.between(0, (1 << max(a.hi, b.hi).bit_length()) - 1)
                return d.TOP
            case n.Binary(b=n.Const(value=int() as places)) if e.op in ("shl", "shr") and 0 <= places < dtype_of(e.type).bits:
                return d.scale(self.domain(e.a), 1 << places) if e.op == "shl" else d.floordiv(self.domain(e.a), d.exactly(1 << places))
            case n.Binary(a=n.Const(value=int() as value)) if e.op in ("shl", "shr") and value >= 0 and not isinstance(e.b, n.Const):
                by = self.domain(e.b)
                if by.lo is None or by.hi is None or by.lo < 0 or by.hi >= dtype_of(e.type).bits or value << by.hi >= 1 << (dtype_of(e.type).bits - 1):
                    return d.TOP  # by more than there are bits, or into the sign
                return d.between(value << by.lo, value << by.hi) if e.op == "shl" else d.between(value >> by.hi, value >> by.lo)
            case n.Select():
                return d.join(self.domain(e.a), self.domain(e.b))
            case n.Cast() if dtype_of(e.x.type).is_integer and e.rounding == "rn" and e.dtype.is_integer:
                inner = self.domain(e.x)
                low, high = e.dtype.range
                inside = inner.lo is not None and inner.hi is not None and low <= inner.lo and inner.hi <= high
                return inner if inside or inner == d.TOP else d.TOP
            case n.Call() if e.fn == "iota":
                extent = e.args[0]
                top = int_value(extent) if isinstance(extent, n.Expr) else None
                return d.between(0, None if top is None else top - 1)
            case n.Call() if e.fn in ("expand", "broadcast", "reshape", "trans") and isinstance(e.args[0], n.Expr):
                return self.domain(e.args[0])
            case _:
                return d.TOP

    def _sum(self, e: n.Expr) -> Domain:
        """A sum of products, term by term in its polynomial form (so that x - x is 0). A large unsigned coefficient stands for a negative one,
        which is the same in arithmetic that wraps."""
        out = d.exactly(0)
        dtype = dtype_of(e.type)
        for atoms, c in polynomial(e).items():
            term = d.exactly(c - (1 << dtype.bits) if dtype.kind == "uint" and c >> (dtype.bits - 1) else c)
            for atom in atoms:
                term = d.multiply(term, d.TOP if atom is e else self.domain(atom))
            out = d.add(out, term)
        return out

    def expanded(self, e: n.Expr) -> n.Expr:
        """`e` with known integer lets replaced by their values, all the way down, unless it becomes a sum of very many; a name that is read in another
        dtype than its value is known in stays."""
        for _ in range(len(self.lets) + 1):
            used = names_read(e) & set(self.lets)
            if not used or (dtype_of(e.type).is_integer and len(polynomial(e)) > MOST_TERMS):
                return e
            before, e = e, self._with_lets(e, used)
            if e is before:
                return e
        return e

    def _with_lets(self, e: n.Expr, used: Collection[str]) -> n.Expr:
        """`e` with references to those lets replaced once, where their dtypes agree."""
        values = {name: self.lets[name] for name in used}
        out = transform(e, lambda old, new: values[old.name] if type(old) is n.Var and old.name in values and values[old.name].type == old.type else new,
                        lambda x: not values.keys().isdisjoint(names_read(x)))
        assert isinstance(out, n.Expr)
        return out

    def divides(self, c: int, e: n.Expr) -> bool:
        """Whether `e` is proved a multiple of `c`: by congruences of its names, or of the lets it is made of."""
        return self.domain(e).is_multiple_of(c) or self.domain(self.expanded(e)).is_multiple_of(c)


def _more(before: object, kind: str, what: object) -> object:
    """What stands for facts after something more was said; nothing where nothing stood for them before."""
    return None if before is None else _told(before, kind, what)


@lru_cache(maxsize=1 << 15)
def _told(before: object, kind: str, what: object) -> object:
    """What stands for facts after something more was said: the same again for the same."""
    return object()


@lru_cache(maxsize=128)
def _entering(program: n.Program, steps: tuple[int | str, ...]) -> tuple[Facts, n.Block]:
    """What holds at the start of the block that steps from a kernel lead to, and that block; the last ones asked for are kept."""
    if len(steps) == 1:
        kernel = next(k for k in program.kernels if k.name == steps[0])
        out = Facts.in_kernel(program, kernel.name)
        for axis in kernel.grid:
            out = out.ranging(n.Var(axis.name, dtype_of(axis.extent.type)), n.Const(0, dtype_of(axis.extent.type)), axis.extent)
        return out, kernel.body
    into = 3 if len(steps) > 3 and steps[-3] == "roles" else 1
    outer, field = steps[:-into], steps[-into:]
    around, block = _entering(program, outer[:-1])
    known, inner, _ = around.after(block[:int(outer[-1])]).inside(block[int(outer[-1])], (*field, 0))
    return known, inner


def _inside(found: Domain, dtype: DType) -> bool:
    low, high = dtype.range
    return found.lo is not None and found.lo >= low and found.hi is not None and found.hi <= high


def _is_scalar_integer(e: n.Expr) -> bool:
    t = e.type
    return isinstance(t, DType) and (t.is_integer or t.is_bool) and not any(isinstance(x, (n.Load, n.Call)) for x in walk(e))


def _negation(cond: n.Expr) -> n.Expr:
    opposite = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
    if isinstance(cond, n.Binary) and cond.op in opposite and dtype_of(cond.a.type).is_integer:
        return n.Binary(opposite[cond.op], cond.a, cond.b)
    return n.Unary("not", cond)
