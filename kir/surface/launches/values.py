"""Values of host code as they are known without running it: numbers over named sizes, tensors of such shapes, and what is not known."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from types import MappingProxyType

from kir.base.dataclass import dataclass, replace
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32
from kir.ir.visit import substitute, walk

ASSUMED = (1024, 64, 32)
"""What sizes are taken for where compile-time values follow from them and nobody says how large they are: one alone, each of two, each of more."""
STRIDING = re.compile(r"stride|pitch|^ld[a-z]?$|^leading_dim", re.IGNORECASE)
"""Names of sizes that are steps from one row to the next."""
FEW = 8
"""What one is taken for of which each step has an instruction, or each element a register, of its own."""

_ASKED: ContextVar[Mapping[str, int]] = ContextVar("asked_sizes", default=MappingProxyType({}))


@contextmanager
def asked_at(sizes: Mapping[str, int]) -> Iterator[None]:
    """Host code read within is read as a call with these sizes runs it: by the author's names for them, such as `cols`. Compile-time values that follow from
    a size (`next_power_of_2(cols)`) are what they are in that call, before any call that the file shows."""
    token = _ASKED.set(MappingProxyType({**sizes}))
    try:
        yield
    finally:
        _ASKED.reset(token)


def taken_for(sizes: int) -> int:
    """What each of so many sizes is taken for: the more there are, the smaller, since tensors and grids have products of them."""
    return ASSUMED[min(max(sizes, 1), len(ASSUMED)) - 1]


_FOLDED: Mapping[str, Callable[[int, int], int]] = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max,
           "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "ceildiv": lambda a, b: -(-a // b)}
_DECIDED: Mapping[str, Callable[[int, int], bool]] = {"lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
            "eq": lambda a, b: a == b, "ne": lambda a, b: a != b}


@dataclass(frozen=True)
class Unknown:
    """A value that the host code does not tell, and why."""

    reason: str = ""


@dataclass(frozen=True)
class Either(Unknown):
    """One condition or another: where none of them holds, each is known not to."""

    parts: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Quotient:
    """A division that is not rounded yet: what `ceil` and `int` make a number of."""

    over: n.Expr
    under: n.Expr


@dataclass(frozen=True)
class Bits:
    """How many bits a whole number has: the power of two next above it is 2 to that."""

    of: n.Expr


@dataclass(frozen=True)
class Dtype:
    """A dtype of the IR, as the host names it; "" where it is a caller's choice."""

    name: str


class Array:
    """A tensor of the host's. Its rank shows when its axes are named; until then only what was asked of it is known.

    `dtype` is the IR's, "" where nothing says it. `strides` are in elements, None for a dense row-major tensor.
    """

    def __init__(self, known: Known, hint: str = "", shape: Sequence[n.Expr] | None = None, dtype: str = "", strides: Sequence[n.Expr] | None = None) -> None:
        self.known, self.hint, self.dtype = known, hint, dtype
        self.shape: tuple[n.Expr, ...] | None = None if shape is None else tuple(shape)
        self.strides: tuple[n.Expr, ...] | None = None if strides is None else tuple(strides)
        self.begun = shape is not None
        """Whether the host made it of a shape; else a caller hands it in, or it is made of another one."""
        self.asked: dict[int, n.Expr] = {}
        """Extents asked for while the rank was open, by axis; negative ones from the end."""
        self.stepped: dict[int, n.Expr] = {}
        """Strides asked for while the rank was open."""
        self.count: n.Expr | None = None
        self.folded: tuple[n.Expr, ...] | None = None
        """Its shape with all axes before the last as one, where the host views it so."""
        self.like: Array | None = None
        """The tensor that it was made like."""
        self.alike = True
        """Whether it has that one's dtype, too."""
        self.grad: Array | None = None
        """Its gradient, which has its shape."""
        self.turned: tuple[Array, int, int] | None = None
        """The tensor that it is with two axes exchanged, while the rank is open."""
        self.of: Array | None = None
        """The tensor that it is a part of, or another view."""
        self.begins: n.Expr | None = build.const(0)
        """How many elements of its memory lie before it; None where that is not known."""
        self.guessed = False
        """Whether its rank is only what its last axes ask for: it may have more before them."""

    @property
    def memory(self) -> Array:
        """The tensor that its elements are elements of."""
        return self if self.of is None else self.of.memory

    def part(self, shape: Sequence[n.Expr] | None = None, strides: Sequence[n.Expr] | None = None, hint: str = "", begins: n.Expr | None = None) -> Array:
        """Another view of its memory, which `begins` so many elements behind it, where that is known."""
        made = Array(self.known, hint, shape, self.dtype, strides)
        made.of, made.begins = self, None if begins is None or self.begins is None or begins.type != self.begins.type else build.add(self.begins, begins)
        return made

    def of_rank(self, rank: int) -> tuple[n.Expr, ...] | None:
        """The shape, once it is known to have so many axes; None where it has others."""
        if self.shape is None and self.turned is not None:
            self._turn(self.turned[0].of_rank(rank))
        if self.shape is None and self.like is not None and not self.asked and not self.stepped and self.count is None:
            self.shape = self.like.of_rank(rank)
        if self.shape is None:
            dims = [self.known.fresh(f"{self.hint}_{k}" if self.hint else "") for k in range(rank)]
            self.shape = tuple(dims)
            self.known.short += dims if rank > 2 else []
            for axis, asked in self.asked.items():
                if -rank <= axis < rank:
                    self.known.same(asked, dims[axis])
            for axis, step in self.stepped.items():
                if -rank <= axis < rank:
                    self.known.same(step, self.stride(axis))
            if self.count is not None:
                self.known.same(self.count, self.elements())
        return self.shape if len(self.shape) == rank else None

    def _turn(self, shape: tuple[n.Expr, ...] | None) -> None:
        """Take the shape and the strides of the tensor that it is with two axes exchanged."""
        if self.turned is not None and shape is not None and all(-len(shape) <= k < len(shape) for k in self.turned[1:]):
            of, a, b = self.turned
            order = list(range(len(shape)))
            order[a], order[b] = order[b], order[a]
            self.shape, self.strides, self.dtype = tuple(shape[k] for k in order), tuple(of.stride(k) for k in order), self.dtype or of.dtype
            self.known.turns.setdefault((a, b), shape)

    def extent(self, axis: int) -> n.Expr | None:
        """The extent of an axis."""
        if self.shape is None and self.turned is not None and len({k < 0 for k in (axis, *self.turned[1:])}) == 1:
            of, a, b = self.turned
            found = of.extent(b if axis == a else a if axis == b else axis)
            self.known.short += [found] if found is not None and max(axis, a, b) > 1 else []
            return found
        if self.shape is not None:
            return self.shape[axis] if -len(self.shape) <= axis < len(self.shape) else None
        made = self.asked.setdefault(axis, self.known.fresh(self.hint and f"{self.hint}_{axis if axis >= 0 else f'last{-axis}'}"))
        self.known.short += [made] if axis > 1 or axis < -2 else []
        return made

    def elements(self) -> n.Expr:
        """How many elements it has."""
        if self.shape is None:
            if self.count is None:
                self.count = self.known.fresh(self.hint and f"{self.hint}_elements")
            return self.count
        made: n.Expr = build.const(1)
        for d in self.shape:
            made = build.mul(made, d)
        return made

    def stride(self, axis: int) -> n.Expr:
        """Elements from one place to the next along an axis."""
        if self.shape is None:
            return self.stepped.setdefault(axis, self.known.fresh())
        steps = self.strides if self.strides is not None else build.row_major(self.shape)
        return steps[axis] if -len(steps) <= axis < len(steps) else self.known.fresh()

    def settle(self) -> None:
        """Decide a rank that nobody named, from the axes that were asked for; one that nobody asked anything of stays open."""
        if self.shape is None and self.turned is not None:
            of, a, b = self.turned
            if of.shape is None and (a, b) in self.known.turns:
                other = self.known.turns[a, b]
                for axis, (d, as_there) in enumerate(zip(of.of_rank(len(other)) or (), other)):
                    if not {axis, axis - len(other)} & of.asked.keys():
                        self.known.same(d, as_there)
                self.known.remarks.append(f"{of.hint or 'a tensor'} has {len(other)} axes, as another one has of which the same are exchanged, and those that "
                                          "the host code never asks for are as long")
            of.settle()
            self._turn(self.turned[0].shape)
        if self.shape is None and self.like is not None:
            self.like.settle()
            self.shape, self.dtype, self.guessed = self.like.shape, self.dtype or self.like.dtype, self.like.guessed
            rank = len(self.shape or ())
            for axis, asked in self.asked.items():
                if self.shape is not None and -rank <= axis < rank:
                    self.known.same(asked, self.shape[axis])
            for axis, step in self.stepped.items():
                if -rank <= axis < rank:
                    self.known.same(step, self.stride(axis))
        if self.shape is None and self.folded is not None:
            self.shape = self.folded
        if self.shape is not None:
            return
        axes = [*self.asked, *self.stepped]
        rank = max([k + 1 if k >= 0 else -k for k in axes], default=0)
        if any(k < 0 for k in self.asked) and (any(k >= 0 for k in axes) or self.count is not None):
            rank = max(rank, 2)  # `numel() / size(-1)` are its rows
        if rank == 1 and self.stepped and not any(k == 0 for k in self.asked) and self.count is None:
            rank = 2  # one that is walked by the stride of its first axis has rows
        if not rank and self.count is not None:
            rank = 1
        if rank:
            self.guessed = all(k < 0 for k in axes) and self.count is None
            self.of_rank(rank)


Value = object
"""`n.Expr` (a number, or a condition), `bool`, `float`, `str`, None, `Array`, `Dtype`, `Unknown`, lists and dicts of these."""


@dataclass
class Known:
    """What one reading of host code has found: which numbers are the same, what they are called, how large they are in the calls that were
    seen, and what every call keeps."""

    replaced: dict[str, n.Expr] = field(default_factory=dict)
    names: dict[str, tuple[int, str]] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)
    facts: list[n.Expr] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    """Sizes that were taken to be this or that at most (`taken_for`)."""
    handed: int = 0
    """How many of the calls that are followed just now hand tensors to a function."""
    short: list[n.Expr] = field(default_factory=list)
    """Extents of tensors of more than two axes."""
    turns: dict[tuple[int, int], tuple[n.Expr, ...]] = field(default_factory=dict)
    """The shape of a tensor of which these two axes are exchanged."""
    remarks: list[str] = field(default_factory=list)
    """What else was taken for true because nothing says it."""
    number: int = 0

    def fork(self) -> Known:
        """The same, to which more can be added without this one's knowing."""
        return replace(self, replaced={**self.replaced}, names={**self.names}, examples={**self.examples}, facts=[*self.facts], assumed=[*self.assumed],
                       short=[*self.short], turns={**self.turns}, remarks=[*self.remarks])

    def fresh(self, hint: str = "", example: int | None = None) -> n.Var:
        """A number of which nothing is known yet."""
        self.number += 1
        made = n.Var(f"host_{self.number}_", I32)
        if hint:
            self.names[made.name] = (2, hint)
        if example is not None:
            self.examples[made.name] = example
        return made

    def resolved(self, e: n.Expr) -> n.Expr:
        """The expression with numbers that proved the same written as one."""
        for _ in range(64):
            mentioned = {x.name for x in walk(e) if isinstance(x, n.Var)} & self.replaced.keys()
            if not mentioned:
                return e
            e = _refolded(substitute(e, {name: self.replaced[name] for name in mentioned}))
        return e

    def same(self, a: n.Expr, b: n.Expr) -> None:
        """Two numbers are equal: one of them is written for the other."""
        a, b = self.resolved(a), self.resolved(b)
        if a == b:
            return
        if isinstance(a, n.Var) and isinstance(b, n.Var):
            first, second = (self.names.get(x.name, (9, "")) for x in (a, b))
            if second < first:
                a, b = b, a
            self._replace(b.name, a)
        elif isinstance(a, n.Var) and not _mentions(b, a.name):
            self._replace(a.name, b)
        elif isinstance(b, n.Var) and not _mentions(a, b.name):
            self._replace(b.name, a)
        elif (solved := _solved(a, b) or _solved(b, a)) is not None:
            self._replace(*solved)
        elif b.type == I32 and a.type == I32 and not isinstance(a, n.Const):
            self.facts.append(_bounding(a, b) or build.compare("eq", a, b))

    def _replace(self, name: str, by: n.Expr) -> None:
        self.replaced[name] = by
        example = self.examples.get(name)
        if example is not None and isinstance(by, n.Var):
            self.examples.setdefault(by.name, example)
        if isinstance(by, n.Var) and name in self.names:
            self.names[by.name] = min(self.names.get(by.name, (9, "")), self.names[name])

    def called(self, e: object, name: str, rank: int = 0) -> None:
        """What the author calls a number; `rank` 0 for a variable, 1 for a parameter."""
        if isinstance(e, n.Expr):
            e = self.resolved(e)
            if isinstance(e, n.Var) and e.name.startswith("host_"):
                self.names[e.name] = min(self.names.get(e.name, (9, "")), (rank, name))
                if name in (asked := _ASKED.get()):
                    self.examples[e.name] = asked[name]

    def example(self, e: n.Expr) -> int | None:
        """What a number is in the call that was seen."""
        return evaluated(self.resolved(e), self.examples)

    def unseen(self, e: n.Expr) -> list[str]:
        """The variables of a number that no call shows."""
        return [x.name for x in walk(self.resolved(e)) if isinstance(x, n.Var) and x.name not in self.examples]

    def pinned(self, e: n.Expr, sizes: int = 1, usual: int = 0) -> int:
        """A number that is a compile-time value: as in the call that was seen, else with each size as one of so many `sizes` is taken for, or as `usual`; of
        the lesser of a number and a constant the constant, as calls that are worth their time have it."""
        value = self.example(e)
        if value is not None:
            return value
        if (cap := self.capped(e)) is not None:
            return cap
        short = {x for d in self.short for x in variables(self.resolved(d))}  # tensors of many axes have short ones
        for name in dict.fromkeys(self.unseen(e)):
            self.examples[name] = usual or taken_for(max(sizes, 2) if name in short else sizes)
            self.assumed.append(name)
        return self.example(e) or 0

    def capped(self, e: n.Expr) -> int | None:
        """The constant of a lesser of a number and a constant, where no call that was seen decides it."""
        if self.example(e) is None and isinstance(e := self.resolved(e), n.Binary) and e.op == "min":
            return next((int(x.value) for x in (e.a, e.b) if isinstance(x, n.Const)), None)
        return None

    def power_of_two(self, e: n.Expr) -> n.Expr:
        """`next_power_of_2` of a number: the power that the call that was seen has, and the fact that no call exceeds it."""
        if isinstance(e := self.resolved(e), n.Const):
            return build.const(1 << max(0, int(e.value) - 1).bit_length())
        made = 1 << max(0, self.pinned(e) - 1).bit_length()
        self.fact(build.compare("le", e, made))
        return build.const(made)

    def bits(self, b: Bits) -> n.Expr:
        """How many bits a number has, as in the call that was seen, and the facts that it has as many in every call."""
        if isinstance(e := self.resolved(b.of), n.Const):
            return build.const(max(0, int(e.value)).bit_length())
        made = max(0, self.pinned(e)).bit_length()
        self.fact(build.compare("lt", e, 1 << made))
        self.fact(build.compare("ge", e, (1 << made) // 2))
        return build.const(made)

    def root(self, e: n.Expr) -> n.Expr:
        """The square root of a number: a number of its own, of which what the call that was seen has, rounded up, is an example."""
        if isinstance(e := self.resolved(e), n.Const):
            return build.const(_root(int(e.value)))
        return self.fresh("", _root(self.pinned(e)))

    def fact(self, condition: n.Expr) -> None:
        """Something that every call keeps."""
        if isinstance(condition, n.Binary) and condition.op in _DECIDED:
            self.facts.append(condition)


def _root(value: int) -> int:
    """A square root, rounded up."""
    return math.isqrt(max(value, 1) - 1) + 1


def evaluated(e: n.Expr, values: Mapping[str, int]) -> int | None:
    """A whole number of an expression at values of its variables; None where one is missing, or it divides by nothing."""
    match e:
        case n.Const(value=bool()):
            return None
        case n.Const(value=int() as value):
            return value
        case n.Var(name=name):
            return values.get(name)
        case n.Cast(x=x):
            return evaluated(x, values)
        case n.Binary(op=op, a=a, b=b) if op in _FOLDED:
            left, right = evaluated(a, values), evaluated(b, values)
            if left is None or right is None or (op in ("floordiv", "mod", "ceildiv") and right == 0):
                return None
            return int(_FOLDED[op](left, right))
        case n.Unary(op="neg", x=x):
            found = evaluated(x, values)
            return None if found is None else -found
        case _:
            return None


def decided(e: n.Expr, values: Mapping[str, int]) -> bool | None:
    """Whether a comparison holds at values of its variables."""
    match e:
        case n.Const(value=bool() as value):
            return value
        case n.Binary(op=op, a=a, b=b) if op in _DECIDED:
            left, right = evaluated(a, values), evaluated(b, values)
            return None if left is None or right is None else bool(_DECIDED[op](left, right))
        case _:
            return None


_SPELLED = {"add": "({a} + {b})", "sub": "({a} - {b})", "mul": "({a} * {b})", "min": "min({a}, {b})", "max": "max({a}, {b})", "floordiv": "({a} // {b})",
            "mod": "({a} % {b})", "ceildiv": "(-(-{a} // {b}))", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def none_false(conditions: Iterable[n.Expr], names: Sequence[str]) -> Callable[[Mapping[str, int]], bool]:
    """Whether `decided` says of none of these that it is false, for values of these names: made once, asked of thousands of values."""
    known = {name: f"v{k}" for k, name in enumerate(names)}
    tests: list[Callable[..., bool]] = []
    for e in conditions:
        text = "False" if isinstance(e, n.Const) and e.value is False else ""
        if isinstance(e, n.Binary) and e.op in _DECIDED and (a := _spelled(e.a, known)) and (b := _spelled(e.b, known)):
            text = f"{a} {_SPELLED[e.op]} {b}"
        if text:
            tests.append(eval(f"lambda {', '.join(known.values())}: {text}"))  # numbers, names of ours and the signs above

    def holds(values: Mapping[str, int]) -> bool:
        given = [values[name] for name in names]
        for test in tests:
            try:
                if not test(*given):
                    return False
            except ZeroDivisionError:
                continue  # not decided
        return True
    return holds


def _spelled(e: n.Expr, known: Mapping[str, str]) -> str:
    """What `evaluated` computes, in Python; "" where that is nothing."""
    match e:
        case n.Const(value=int() as value) if not isinstance(value, bool):
            return f"({value})"
        case n.Var(name=name):
            return known.get(name, "")
        case n.Cast(x=x):
            return _spelled(x, known)
        case n.Binary(op=op, a=a, b=b) if op in _FOLDED:
            left, right = _spelled(a, known), _spelled(b, known)
            return _SPELLED[op].format(a=left, b=right) if left and right else ""
        case n.Unary(op="neg", x=x):
            return f"(-{found})" if (found := _spelled(x, known)) else ""
        case _:
            return ""


def number_chosen(cond: Value, a: Value, b: Value) -> n.Expr | None:
    """The number that a condition over sizes chooses: a minimum or maximum where it is written out as one. None for other values, and for a choice between two
    written numbers, which is one between variants of a kernel."""
    if not isinstance(cond, n.Binary) or not is_condition(cond) or not is_number(a) or not is_number(b) or (isinstance(a, n.Const) and isinstance(b, n.Const)):
        return None
    assert isinstance(a, n.Expr) and isinstance(b, n.Expr)
    if cond.op in ("lt", "le", "gt", "ge") and {cond.a, cond.b} == {a, b}:
        return (build.minimum if (cond.op in ("lt", "le")) == (cond.a == a) else build.maximum)(a, b)
    return build.select(cond, a, b)


def variables(e: n.Expr) -> Iterator[str]:
    """The names in an expression."""
    yield from (x.name for x in walk(e) if isinstance(x, n.Var))


def is_number(v: object) -> bool:
    """Whether a value is a whole number, known or not."""
    return isinstance(v, n.Expr) and v.type == I32


def is_condition(v: object) -> bool:
    """Whether a value is a condition over numbers."""
    return isinstance(v, n.Expr) and v.type == BOOL


def opposite(test: Value) -> Value:
    """A condition that holds where this one does not: of a number, that it is 0; of several of which one is enough, the opposite of each."""
    if isinstance(test, n.Binary) and test.op in NEGATED:
        return build.compare(NEGATED[test.op], test.a, test.b)
    if is_number(test) and isinstance(test, n.Expr):
        return build.compare("eq", test, 0)
    if isinstance(test, Either):
        return [opposite(x) for x in test.parts]
    return Unknown("the opposite of a condition")


NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def rounded_up(over: n.Expr, under: n.Expr) -> n.Expr:
    """A quotient rounded up; whole numbers of the host's do not wrap, so that `n * 32` over 256 is `n` over 8."""
    exact = _divided(over, under)
    return exact if exact is not None else build.ceildiv(*_reduced(over, under))


def one_more(known: Known, a: Value, b: Value) -> Value | None:
    """`x / n + (x % n > 0)` and `.. != 0`: a quotient rounded up; None for other sums."""
    if not (isinstance(a, n.Expr) and isinstance(b, n.Expr) and is_number(a) and is_condition(b)):
        return None
    match known.resolved(a), known.resolved(b):
        case n.Binary(op="floordiv") as q, n.Binary(op="gt" | "ne", a=n.Binary(op="mod") as left, b=n.Const(value=0)) if (q.a, q.b) == (left.a, left.b):
            return rounded_up(q.a, q.b)
        case _:
            return None


def floored(over: n.Expr, under: n.Expr) -> n.Expr:
    """A quotient rounded down; `(n + b - 1) // b` is what everybody writes for one rounded up."""
    exact = _divided(over, under)
    if exact is not None:
        return exact
    less = build.sub(over, build.sub(under, 1))
    terms = build.polynomial(less)
    if len(terms) < len(build.polynomial(over)) or (terms.get(()) == 1 and isinstance(under, n.Const)):  # of `(h - 3) // 2 + 1` rows, say
        return rounded_up(less, under)
    return build.floordiv(*_reduced(over, under))


def _reduced(over: n.Expr, under: n.Expr) -> tuple[n.Expr, n.Expr]:
    """A quotient without what divides all of its numbers."""
    if not (isinstance(under, n.Const) and type(under.value) is int and under.value > 1 and over.type == I32):
        return over, under
    terms = build.polynomial(over)
    common = math.gcd(under.value, *terms.values())
    if common < 2:
        return over, under
    return build.from_polynomial({atoms: c // common for atoms, c in terms.items()}, I32), build.const(under.value // common)


def _divided(over: n.Expr, under: n.Expr) -> n.Expr | None:
    """A product divided by one of its factors, sizes or numbers; None for other quotients."""
    terms = build.polynomial(over)
    if isinstance(under, n.Const) and isinstance(under.value, int) and under.value > 1 and len(terms) and not any(c % under.value for c in terms.values()):
        return build.from_polynomial({atoms: c // under.value for atoms, c in terms.items()}, I32) if over.type == I32 else None
    if not isinstance(under, n.Var) or over == under:
        return build.const(1) if over == under else None
    left = {}
    for atoms, count in build.polynomial(over).items():
        if under not in atoms:
            return None
        at = atoms.index(under)
        left[(*atoms[:at], *atoms[at + 1:])] = count
    return build.from_polynomial(left, I32) if left else None


def _solved(a: n.Expr, b: n.Expr) -> tuple[str, n.Expr] | None:
    """What the one number is in a multiple of it that is a constant; None for other equations."""
    if isinstance(b, n.Const) and a.type == I32 and len(terms := build.polynomial(a)) == 1:
        (atoms, count), = terms.items()
        if len(atoms) == 1 and isinstance(atoms[0], n.Var) and int(b.value) % count == 0:
            return atoms[0].name, build.const(int(b.value) // count)
    return None


def _bounding(a: n.Expr, b: n.Expr) -> n.Expr | None:
    """That the lesser (greater) of a number and a constant is that constant, as a bound of the number; None for another equation."""
    if isinstance(b, n.Const) and isinstance(a, n.Binary) and a.op in ("min", "max") and b in (a.a, a.b):
        return build.compare("ge" if a.op == "min" else "le", a.a if a.b == b else a.b, b)
    return None


def _mentions(e: n.Expr, name: str) -> bool:
    return name in set(variables(e))


def _refolded(e: n.Expr) -> n.Expr:
    """The expression with its constants worked out."""
    match e:
        case n.Binary(op=op, a=a, b=b) if op in (*_FOLDED, *_DECIDED):
            left, right = _refolded(a), _refolded(b)
            if op in ("floordiv", "ceildiv"):
                return (floored if op == "floordiv" else rounded_up)(left, right)
            return build.binary(op, left, right)
        case _:
            return e
