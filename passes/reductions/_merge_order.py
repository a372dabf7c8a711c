"""Whether a merge of two states gives the same in every order: computed exactly on many states that shares may be, of which many are alike in parts."""
from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import walk

TRIPLES = 400
"""Triples of states that are tried."""
ENOUGH = 100
"""How many of them must have a value: in the others something is divided by zero."""
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
            x, y, z = drawn(), drawn(), drawn()
            for what, left, right in (("the two", merge(x, y), merge(y, x)), ("three", merge(merge(x, y), z), merge(x, merge(y, z)))):
                if left != right:
                    states = (x, y) if what == "the two" else (x, y, z)
                    return False, f"{' and '.join(map(_text, states))} give {_text(left)} in one order, {_text(right)} in another"
            valued += 1
        except ZeroDivisionError:
            continue
    if valued < ENOUGH:
        raise NotExact("a division by what is nearly always zero")
    return True, f"{valued} triples of states, computed exactly, give the same in every order"


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

