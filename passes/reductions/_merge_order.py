"""Whether a merge of two states gives the same in every order: refuted by states, of many that shares may be, on which it is computed exactly; proved by z3
for all states, or, of sums, products and quotients alone, by an identity of rational functions."""
from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.working import solving
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import walk

TRIPLES = 400
"""Triples of states that are tried."""
ENOUGH = 100
"""How many of them must have a value: in the others something is divided by zero."""
POINTS, EFFORT = 12, 2_000_000
"""Random points at which rational functions are compared, and steps of z3 (its `rlimit`, the same on every machine)."""
Value = Fraction | bool
State = tuple[Value, ...]


class NotExact(Exception):
    """The merge computes something that has no exact value here; its argument says what."""


@dataclass(frozen=True)
class Merge:
    """Statements that merge what the scalars `others` hold into the scalars `held`."""

    body: n.Block
    held: tuple[n.Buffer, ...]
    others: tuple[n.Buffer, ...]

    def __call__(self, own: State, other: State) -> State:
        """What a merge leaves. Raises NotExact, and ZeroDivisionError where it has no value."""
        run = _Run({b.name: v for b, v in zip((*self.held, *self.others), (*own, *other), strict=True)}, {})
        run.block(self.body)
        return tuple(run.memory[b.name] for b in self.held)

    def differs(self, x: State, y: State, z: State) -> tuple[tuple[State, ...], State, State] | None:
        """Two or three of these states whose order shows, with what they give in two orders; None where none does. Raises as a merge does."""
        if (left := self(x, y)) != (right := self(y, x)):
            return (x, y), left, right
        if (left := self(self(x, y), z)) != (right := self(x, self(y, z))):
            return (x, y, z), left, right
        return None


def _positive(chance: random.Random) -> Fraction:
    """A number of a large set."""
    return Fraction(chance.randint(1, 10 ** 9), chance.randint(1, 10 ** 9))


def in_any_order(merge: Merge, found: n.Block) -> tuple[bool, str]:
    """Whether merges of what `found` finds (in the scalars `others`) may come in any order, and why, or of which states that is not so. What is read of
    memory, or is not computed exactly, may be anything there. Raises NotExact for the merge."""
    chance, valued, pool = random.Random(20), 0, _literals((*merge.body, *found))

    def drawn() -> State:
        run = _Drawn(chance, pool)
        run.block(found)
        return tuple(run.memory[b.name] if b.name in run.memory else run.any(b.dtype) for b in merge.others)
    for _ in range(TRIPLES):
        try:
            if (differ := merge.differs(drawn(), drawn(), drawn())) is not None:
                states, left, right = differ
                return False, f"{' and '.join(map(_text, states))} give {_text(left)} in one order, {_text(right)} in another"
            valued += 1
        except ZeroDivisionError:
            continue
    if valued < ENOUGH:
        raise NotExact("a division by what is nearly always zero")
    return True, f"{valued} triples of states, computed exactly, give the same in every order"


def for_all(merge: Merge) -> str:
    """How merges in any order are shown to be the same for all states, over the reals; "" where they are not. Two functions of sums, products and quotients
    that agree at random points of a large set are one (Schwartz, Zippel: a point at which two others agree is one in ten million)."""
    if any(_chooses(x) for s in merge.body for x in walk(s)):
        return "for all states, by z3" if _by_z3(merge) else ""
    chance = random.Random(21)
    try:
        for _ in range(POINTS):
            if merge.differs(*(tuple(_positive(chance) for _ in merge.held) for _ in range(3))):
                return ""
    except (NotExact, ZeroDivisionError):
        return ""
    return "for all states: they are the same rational functions"


def by_cases(merge: Merge, found: n.Block) -> str:
    """How merges in any order are shown to be the same for all shares there may be, over the reals, where whether a share has counted anything is all that a
    merge asks: it is what it began as, or has a positive count; in each case merges are rational functions, compared at random points. "" where they are
    not, or where shares are of no such kind."""
    begun = _begun(merge, found)
    for count in range(len(merge.held)) if begun is not None else ():
        if begun is None or begun[count] != 0 or not _counts(merge.others[count], merge, found):
            continue
        chance = random.Random(22)
        try:
            for case in product((False, True), repeat=3):
                _decided(merge, count, case)
                for _ in range(POINTS):
                    if merge.differs(*(tuple(_positive(chance) for _ in begun) if some else begun for some in case)):
                        return ""
        except (NotExact, ZeroDivisionError):
            continue
        return "for all shares, of which a count says whether they are what they began as: they are the same rational functions in each of 8 cases"
    return ""


def _begun(merge: Merge, found: n.Block) -> State | None:
    """What a share is before anything is found; None where that is not said."""
    first = {s.buffer.name: s.init.value for s in found if isinstance(s, n.Alloc) and isinstance(s.init, n.Const) and not isinstance(s.init.value, bool)
             and abs(s.init.value) < 1e30}
    return tuple(Fraction(first[b.name]) for b in merge.others) if all(b.name in first for b in merge.others) else None


def _counts(count: n.Buffer, merge: Merge, found: n.Block) -> bool:
    """Whether what finds a share changes it in loops alone, each of which adds a positive number to the count in every iteration."""
    names = {b.name for b in merge.others}
    for s in found:
        touched = {x.at.buffer.name for x in walk(s) if isinstance(x, n.Store)} & names
        if not touched:
            continue
        if not isinstance(s, n.For) or any(isinstance(x, n.Jump) for x in walk(s)):
            return False
        sets = [x for x in walk(s) if isinstance(x, n.Store) and x.at.buffer == count]
        steps = [x for x in s.body if isinstance(x, n.Store) and x.at.buffer == count and x.mask is None and isinstance(x.value, n.Binary)
                 and x.value.op == "add" and n.Load(x.at) in (x.value.a, x.value.b)]
        if len(sets) != 1 or len(steps) != 1:
            return False
        by = steps[0].value.b if steps[0].value.a == n.Load(steps[0].at) else steps[0].value.a  # type: ignore[attr-defined]  # sums, as asked
        if not (isinstance(by, n.Const) and not isinstance(by.value, bool) and by.value > 0):
            return False
    return True


def _decided(merge: Merge, count: int, case: tuple[bool, ...]) -> None:
    """Raises NotExact where in a case (which of three shares have counted something) a merge takes a way that more than that decides."""
    def merged(own: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        run = _Signs({b.name: v for b, v in zip((*merge.held, *merge.others), (*own, *other), strict=True)}, {})
        run.block(merge.body)
        return tuple(run.memory[b.name] for b in merge.held)
    x, y, z = (tuple(("positive" if some else "zero") if k == count else "any" for k in range(len(merge.held))) for some in case)
    for pair in ((x, y), (y, x), (y, z)):
        merged(*pair)
    merged(merged(x, y), z)
    merged(x, merged(y, z))


def by_logarithms(merge: Merge) -> str:
    """How merges in any order are shown to be the same for all states, over the reals, where exponentials are taken of differences of some of the scalars, and
    only these are compared: with a number for the exponential of each, merges are rational functions for each order of these. "" where they are not."""
    exponents = [1 << k for k in range(len(merge.held))] if any(isinstance(x, n.Call) and x.fn in EXPONENTIALS for s in merge.body for x in walk(s)) else []
    for which in exponents:
        chance = random.Random(23)
        try:
            for order in ORDERS:
                for _ in range(POINTS):
                    base = sorted(chance.randint(1, 10 ** 9) for _ in range(3))
                    states: list[Any] = [
                        tuple(Logarithm(Fraction(base[at], 10 ** 4)) if which >> k & 1 else Fraction(chance.randint(1, 10 ** 9), 10 ** 5)
                              for k in range(len(merge.held))) for at in order]
                    if merge.differs(*states):
                        return ""
        except (NotExact, ZeroDivisionError, TypeError):
            continue
        return f"for all states: they are the same rational functions of exponentials in each of {len(ORDERS)} orders"
    return ""


ORDERS = tuple(dict.fromkeys(tuple(sorted(set(p)).index(v) for v in p) for p in product(range(3), repeat=3)))
"""Weak orders of three numbers."""
EXPONENTIALS = ("exp", "exp2")


@dataclass(frozen=True)
class Logarithm:
    """A number by its exponential; `alone`: it is one of the state's, not a sum of several, whose order the others' do not tell."""

    of: Fraction
    alone: bool = True


def _of_logarithms(op: str, a: Any, b: Any) -> Any:
    """An operation on numbers of which some are known by their exponentials."""
    if not (isinstance(a, Logarithm) and isinstance(b, Logarithm)):
        raise NotExact(f"'{op}' of a number and one in an exponent")
    if op in ("max", "min") or op in COMPARED:
        if not (a.alone and b.alone):
            raise NotExact("an order of sums in an exponent")
        return (a if (a.of >= b.of) == (op == "max") else b) if op in ("max", "min") else COMPARED[op](a.of, b.of)
    if op in ("add", "sub"):
        return Logarithm(a.of * b.of if op == "add" else a.of / b.of, False)
    raise NotExact(f"'{op}' in an exponent")


def _chooses(x: n.Node) -> bool:
    """Whether a node is of more than sums, products and quotients."""
    match x:
        case n.If() | n.Select() | n.Unary() | n.Store(mask=n.Expr()) | n.Load(mask=n.Expr()):
            return True
        case n.Binary(op=op):
            return op not in ("add", "sub", "mul", "div")
        case n.Call(fn=fn):
            return fn != "fma"
        case _:
            return False


@solving
def _by_z3(merge: Merge) -> bool:
    """Whether z3 finds no states for which the order shows. False without z3, for what it is not asked of, and where it gives up."""
    try:
        import z3
    except ImportError:
        return False

    def state(name: str) -> tuple[Any, ...]:
        return tuple((z3.Bool if b.dtype.is_bool else z3.Real)(f"{name}_{i}") for i, b in enumerate(merge.held))

    def merged(own: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        run = _Symbolic({b.name: v for b, v in zip((*merge.held, *merge.others), (*own, *other), strict=True)}, z3)
        run.block(merge.body)
        solver.add(*run.defined)
        return tuple(run.memory[b.name] for b in merge.held)
    solver = z3.Solver()
    solver.set("rlimit", EFFORT)
    x, y, z = state("x"), state("y"), state("z")
    try:
        pairs = [*zip(merged(x, y), merged(y, x), strict=True), *zip(merged(merged(x, y), z), merged(x, merged(y, z)), strict=True)]
    except (NotExact, KeyError):
        return False
    for a, b in pairs:
        solver.push()
        solver.add(a != b)
        if solver.check() != z3.unsat:
            return False
        solver.pop()
    return True


def _literals(block: Sequence[n.Stmt]) -> list[Fraction]:
    """Numbers at and next to the literals of some statements."""
    literals = {Fraction(x.value) for s in block for x in walk(s) if isinstance(x, n.Const) and not isinstance(x.value, bool) and abs(x.value) < 1e30}
    return sorted({x + d for x in literals for d in (-1, 0, 1)})


def _text(state: State) -> str:
    return f"({', '.join(str(v) for v in state)})"


COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b}
COMPUTED: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max}


class _Run:
    """Statements on exact numbers: scalars of a thread in `memory`, names in `names`."""

    def __init__(self, memory: dict[str, Value], names: dict[str, Value]) -> None:
        self.memory, self.names = memory, names

    def block(self, block: Sequence[n.Stmt]) -> None:
        for s in block:
            match s:
                case n.Let() if len(s.names) == 1:
                    self.names[s.names[0]] = self.value(s.value)
                case n.Alloc() if not s.buffer.shape and s.buffer.space == "register":
                    if s.init is not None:
                        self.memory[s.buffer.name] = self.value(s.init)
                case n.Store() if not s.at.index and s.at.buffer.space == "register" and not s.clip:
                    if s.mask is None or self.value(s.mask):
                        self.memory[s.at.buffer.name] = self.value(s.value)
                case n.If():
                    self.block(s.then if self.value(s.cond) else s.orelse)
                case _:
                    raise NotExact(f"a statement '{type(s).__name__.lower()}'")

    def value(self, e: n.Expr) -> Value:
        match e:
            case n.Const():
                if not isinstance(e.value, bool) and abs(e.value) > 1e300:
                    raise NotExact("a literal that is no number")
                return e.value if isinstance(e.value, bool) else Fraction(e.value)
            case n.Var() if e.name in self.names:
                return self.names[e.name]
            case n.Load() if not e.at.index and e.at.buffer.name in self.memory and (e.mask is None or e.other is not None):
                return self.memory[e.at.buffer.name] if e.mask is None or e.other is None or self.value(e.mask) else self.value(e.other)
            case n.Binary():
                return self.binary(e)
            case n.Unary():
                x = self.value(e.x)
                return not x if e.op == "not" and isinstance(x, bool) else self.negated(e, x)
            case n.Select():
                return self.value(e.a if self.value(e.cond) else e.b)
            case n.Cast() if _keeps(e):
                return self.value(e.x)
            case n.Call() if e.fn == "fma" and e.of is None:
                a, b, c = (self.value(x) for x in e.args if isinstance(x, n.Expr))
                return Fraction(a) * Fraction(b) + Fraction(c)
            case n.Call() if e.fn in EXPONENTIALS and e.of is None and isinstance(first := e.args[0], n.Expr):
                power: Any = self.value(first)
                if not isinstance(power, Logarithm):
                    raise NotExact(f"'{e.fn}'")
                return power.of
            case n.Call() if e.fn == "abs" and e.of is None and isinstance(first := e.args[0], n.Expr):
                return abs(Fraction(self.value(first)))
            case _:
                raise NotExact(f"'{e.fn if isinstance(e, n.Call) else type(e).__name__.lower()}'")

    def negated(self, e: n.Unary, x: Value) -> Value:
        if e.op != "neg" or isinstance(x, bool):
            raise NotExact(f"'{e.op}'")
        return -x

    def binary(self, e: n.Binary) -> Value:
        a, b = self.value(e.a), self.value(e.b)
        if isinstance(a, Logarithm) or isinstance(b, Logarithm):
            made: Value = _of_logarithms(e.op, a, b)
            return made
        if e.op in COMPARED:
            return COMPARED[e.op](a, b)
        if isinstance(a, bool) and isinstance(b, bool) and e.op in ("and", "or", "xor"):
            return {"and": a and b, "or": a or b, "xor": a != b}[e.op]
        if e.op in COMPUTED:
            found: Value = COMPUTED[e.op](a, b)
            return found
        if e.op == "div" and isinstance(own := e.type, DType) and own.is_float:
            return Fraction(a) / Fraction(b)
        raise NotExact(f"'{e.op}'")


class _Symbolic(_Run):
    """The same of terms of z3: numbers are reals, and both ways of a choice are followed."""

    def __init__(self, memory: dict[str, Any], z3: Any) -> None:
        super().__init__(memory, {})
        self.z3, self.way = z3, z3.BoolVal(True)
        self.defined: list[Any] = []
        """What holds where nothing is divided by zero."""

    def block(self, block: Sequence[n.Stmt]) -> None:
        for s in block:
            match s:
                case n.If():
                    cond, before, way = self.value(s.cond), dict(self.memory), self.way
                    self.way = self.z3.And(way, cond)
                    self.block(s.then)
                    then, self.memory, self.way = self.memory, before, self.z3.And(way, self.z3.Not(cond))
                    self.block(s.orelse)
                    self.way = way
                    self.memory = {k: self.either(cond, then[k], v) for k, v in self.memory.items() if k in then}
                case n.Store(mask=n.Expr() as mask) if not s.at.index and s.at.buffer.space == "register" and not s.clip:
                    self.memory[s.at.buffer.name] = self.either(self.value(mask), self.value(s.value), self.memory[s.at.buffer.name])
                case _:
                    super().block((s,))

    def either(self, cond: Any, a: Any, b: Any) -> Any:
        """One value or the other."""
        return a if a is b else self.z3.If(cond, a, b)

    def value(self, e: n.Expr) -> Any:
        match e:
            case n.Const():
                known = super().value(e)
                return self.z3.BoolVal(known) if isinstance(known, bool) else self.z3.RealVal(str(known))
            case n.Load(mask=n.Expr() as mask, other=n.Expr() as other) if not e.at.index and e.at.buffer.name in self.memory:
                return self.either(self.value(mask), self.memory[e.at.buffer.name], self.value(other))
            case n.Select():
                return self.either(self.value(e.cond), self.value(e.a), self.value(e.b))
            case n.Unary(op="not" | "neg"):
                x = self.value(e.x)
                return self.z3.Not(x) if self.z3.is_bool(x) else -x
            case n.Binary(op="min" | "max"):
                a, b = self.value(e.a), self.value(e.b)
                return self.either(a < b, *((a, b) if e.op == "min" else (b, a)))
            case n.Binary(op="and" | "or" | "xor"):
                a, b = self.value(e.a), self.value(e.b)
                if not (self.z3.is_bool(a) and self.z3.is_bool(b)):
                    raise NotExact(f"'{e.op}' of numbers")
                return {"and": self.z3.And, "or": self.z3.Or, "xor": self.z3.Xor}[e.op](a, b)
            case n.Binary(op="div", type=DType(is_float=True)):
                a, b = self.value(e.a), self.value(e.b)
                self.defined.append(self.z3.Or(self.z3.Not(self.way), b != 0))
                return a / b
            case n.Binary() if e.op in COMPARED or e.op in COMPUTED:
                return {**COMPARED, **COMPUTED}[e.op](self.value(e.a), self.value(e.b))
            case n.Var() | n.Load() | n.Cast():
                return super().value(e)
            case _:
                raise NotExact("what z3 is not asked of")


class _Signs(_Run):
    """What is known of signs: `zero`, `positive`, `any`; a way that they do not decide is none."""

    def value(self, e: n.Expr) -> Any:
        match e:
            case n.Const():
                own = super().value(e)
                return own if isinstance(own, bool) else "zero" if own == 0 else "positive" if own > 0 else "any"
            case n.Var() | n.Load():
                return super().value(e)
            case n.Cast():
                return self.value(e.x)
            case n.Select():
                return self.value(e.a if self.value(e.cond) else e.b)
            case n.Unary(op="not"):
                return not self.value(e.x)
            case n.Binary(op="and" | "or"):
                a, b = self.value(e.a), self.value(e.b)
                return (a and b) if e.op == "and" else (a or b)
            case n.Binary() if e.op in COMPARED:
                return self.compared(e.op, self.value(e.a), self.value(e.b))
            case n.Binary(op="add"):
                pair = {self.value(e.a), self.value(e.b)}
                return "any" if "any" in pair else "positive" if "positive" in pair else "zero"
            case n.Binary(op="mul"):
                pair = {self.value(e.a), self.value(e.b)}
                return "zero" if "zero" in pair else "positive" if pair == {"positive"} else "any"
            case n.Binary() | n.Unary() | n.Call():
                return "any"
            case _:
                raise NotExact("a value that has no sign")

    def compared(self, op: str, a: Any, b: Any) -> bool:
        order = {"zero": 0, "positive": 1}
        if a not in order or b not in order or a == b == "positive":
            raise NotExact("a choice that counts do not decide")
        return COMPARED[op](order[a], order[b])


class _Drawn(_Run):
    """What finds a share, where everything that is not computed exactly, or comes from elsewhere, may be any number: small ones, so that many are alike,
    those around the literals, and some that are not round. A loop runs a few times, or never."""

    def __init__(self, chance: random.Random, around: Sequence[Fraction]) -> None:
        super().__init__({}, {})
        self.chance, self.around = chance, around

    def any(self, dtype: DType) -> Value:
        """Any value of a dtype."""
        if dtype.is_bool:
            return self.chance.random() < 0.5
        least = 0 if dtype.kind == "uint" else -2
        if dtype.is_float and self.chance.random() < 0.3:
            return Fraction(self.chance.randint(1, 10 ** 6), self.chance.randint(1, 10 ** 4))
        near = [x for x in self.around if (dtype.is_float or x.denominator == 1) and x >= least]
        return self.chance.choice(near) if near and self.chance.random() < 0.3 else Fraction(self.chance.randint(least, 4))

    def block(self, block: Sequence[n.Stmt]) -> None:
        for s in block:
            match s:
                case n.For():
                    for at in range(self.chance.randint(0, 3)):
                        self.names[s.var.name] = Fraction(at)
                        self.block(s.body)
                case n.Alloc() if s.buffer.shape:
                    pass
                case n.Store() if s.at.index:
                    pass
                case _:
                    super().block((s,))

    def value(self, e: n.Expr) -> Value:
        try:
            return super().value(e)
        except (NotExact, ZeroDivisionError):
            if not isinstance(e.type, DType):
                raise
            return self.any(e.type)


def _keeps(e: n.Cast) -> bool:
    """Whether a conversion keeps every number, up to rounding."""
    own = e.x.type
    return isinstance(own, DType) and e.rounding != "bits" and (own.is_float == e.dtype.is_float or (own.is_integer and e.dtype.is_float))

