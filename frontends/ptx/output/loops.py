"""Loops that count: what a compiler turned into a test behind the body and registers that are added to is a `for` over the rounds again.

A register that every round adds the same to is its first value and as many steps as there were rounds. Numbers of rounds are exact, but that a counter
compared with `<` does not wrap on its way: the language that it was compiled from does not let it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, I64, U32, U64, DType, dtype_of
from kir.ir.visit import statements, transform, walk

from .cleanup import fixed

UNSIGNED = {32: U32, 64: U64}
OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


class Loops:
    """Works on the loops of a kernel; `fresh` gives names."""

    def __init__(self, fresh) -> None:  # type: ignore[no-untyped-def]  # a function from stems to names
        self.fresh = fresh

    def block(self, body: n.Block, known: tuple[n.Expr, ...] = ()) -> n.Block:
        """The statements with each loop that counts as a `for`; `known` are conditions that hold around them."""
        out: list[n.Stmt] = []
        for s in body:
            match s:
                case n.If():
                    out.append(replace(s, then=self.block(s.then, (*known, s.cond)), orelse=self.block(s.orelse, (*known, inverse(s.cond)))))
                case n.For():
                    out.append(replace(s, body=self.block(s.body, known)))
                case n.While():
                    s = replace(s, body=self.block(s.body, known))
                    out += self.counted(s, out, known) or [s]
                case _:
                    out.append(s)
        return tuple(out)

    def counted(self, s: n.While, before: Sequence[n.Stmt], known: tuple[n.Expr, ...]) -> list[n.Stmt] | None:
        """A loop that is left at one place by one comparison, as a `for`."""
        if not (isinstance(s.cond, n.Const) and s.cond.value):
            return None
        at = _exit(s.body)
        if at is None:
            return None
        r = _Round.of(s.body)
        test = s.body[at]
        assert isinstance(test, n.If)
        stay = r.opened(inverse(test.cond))
        if isinstance(stay, n.Unary):
            return None
        found = _counter(r, stay, at)
        if found is None:
            return None
        counter, op, first, bound = found
        step = r.steps[counter]
        began = _began(before, counter)
        head: list[n.Stmt] = []
        if began is None:
            name = self.fresh("first")
            head.append(n.Let((name,), build.load(n.Region(counter))))
            began = n.Var(name, counter.dtype)
        early = all(isinstance(x, n.Let) and fixed(x.value) for x in s.body[:at])
        rounds = _rounds(op, began, first, bound, step, counter.dtype, not early and at == len(s.body) - 1, known)
        if rounds is None or (not early and at != len(s.body) - 1):
            return None
        others = [b for b in r.steps if b is not counter and b.name != counter.name]
        number = n.Var(self.fresh("k"), dtype_of(rounds.type))
        values: dict[str, n.Expr] = {counter.name: _value(began, number, step)}
        for b in others:
            start = _began(before, b)
            if start is None:
                name = self.fresh("first")
                head.append(n.Let((name,), build.load(n.Region(b))))
                start = n.Var(name, b.dtype)
            values[b.name] = _value(start, number, r.steps[b])
        body = _replaced(tuple(x for k, x in enumerate(s.body) if k != at), values, {b.name: r.steps[b] for b in r.steps})
        return [*head, n.For(number, build.const(0, number.of if isinstance(number.of, DType) else I32), rounds,
                             build.const(1, number.of if isinstance(number.of, DType) else I32), body, label=s.label, origin=s.origin)]


def inverse(e: n.Expr) -> n.Expr:
    """What holds where a condition does not."""
    if isinstance(e, n.Binary) and e.op in OPPOSITE and dtype_of(e.a.type).is_integer:
        return n.Binary(OPPOSITE[e.op], e.a, e.b)
    return build.invert(e)


def _exit(body: n.Block) -> int | None:
    """Where the only way out of a loop stands."""
    found = None
    for k, s in enumerate(body):
        if isinstance(s, n.If) and s.then == (n.Jump("break"),) and not s.orelse:
            if found is not None:
                return None
            found = k
        elif _jumps(s):
            return None
    return found


def _jumps(s: n.Stmt) -> bool:
    """Whether a statement may leave the loop around it, or start its next round."""
    match s:
        case n.Jump():
            return True
        case n.If():
            return any(_jumps(x) for x in (*s.then, *s.orelse))
        case n.For() | n.While():
            return any(isinstance(x, n.Jump) and x.kind == "return" for x in statements(s.body))
        case n.Opaque():
            return True
    return False


@dataclass
class _Round:
    """What one round does with registers: `steps` are those that it adds an unchanging number to, once and at the top."""

    names: dict[str, n.Expr] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    stored: dict[str, int] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    where: dict[str, int] = field(default_factory=dict)
    steps: dict[n.Buffer, n.Expr] = field(default_factory=dict)

    @classmethod
    def of(cls, body: n.Block) -> _Round:
        """The registers of a loop's body."""
        r = cls()
        for x in statements(body):
            if isinstance(x, n.Let):
                r.bound |= set(x.names)
            elif isinstance(x, n.Store):
                r.stored[x.at.buffer.name] = r.stored.get(x.at.buffer.name, 0) + 1
            elif isinstance(x, n.For):
                r.bound.add(x.var.name)
            elif isinstance(x, n.Copy):
                r.stored[x.dst.buffer.name] = 2
            elif isinstance(x, n.Alloc):
                r.stored[x.buffer.name] = 2
            elif isinstance(x, (n.Eval, n.Opaque)):
                for y in walk(x):
                    if isinstance(y, n.Region) and y.buffer.space == "register":
                        r.stored[y.buffer.name] = 2
        for k, s in enumerate(body):
            if isinstance(s, n.Let) and len(s.names) == 1:
                r.names[s.names[0]] = s.value
                r.where[s.names[0]] = k
            elif isinstance(s, n.Store) and s.mask is None and s.at.buffer.space == "register" and not s.at.index and not s.at.buffer.shape:
                r.at[s.at.buffer.name] = k
        for s in body:
            if isinstance(s, n.Store) and s.at.buffer.name in r.at and r.stored[s.at.buffer.name] == 1 and s.at.buffer.dtype.is_integer:
                step = r.added(s)
                if step is not None:
                    r.steps[s.at.buffer] = step
        return r

    def added(self, s: n.Store) -> n.Expr | None:
        """What a register is increased by; None where that is not the same in each round."""
        b = s.at.buffer
        value = self.opened(s.value)
        own = n.Load(n.Region(b))
        terms = dict(build.polynomial(value))
        mine = (own,)
        key = next((k for k in terms if tuple(k) == mine), None)
        if key is None or terms[key] != 1:
            return None
        del terms[key]
        rest = build.from_polynomial(terms, b.dtype)
        return rest if self.steady(rest) else None

    def steady(self, e: n.Expr) -> bool:
        """Whether an expression has the same value in each round."""
        for x in walk(e):
            if isinstance(x, n.Var) and x.name in self.bound:
                return False
            if isinstance(x, n.Load) and (x.at.buffer.space != "register" or x.at.buffer.name in self.stored):
                return False
            if isinstance(x, n.Call):
                return False
        return True

    def opened(self, e: n.Expr, depth: int = 0) -> n.Expr:
        """An expression over what registers hold when a round begins; what is read after they were changed counts with the step."""
        if depth > 30:
            return e

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Var) and new.name in self.names and _is_whole(dtype_of(new.type)):
                value = self.names[new.name]
                if isinstance(value, n.Load) and value.at.buffer.name in self.at and self.where[new.name] > self.at[value.at.buffer.name]:
                    return new
                if all(isinstance(y, (n.Var, n.Const, n.Binary, n.Cast, n.Load, n.Region, n.Buffer, n.Unary, n.Select)) for y in walk(value)):
                    return self.opened(value, depth + 1)
            return new

        made: n.Expr = transform(e, leave)
        return made


def _is_whole(d: DType) -> bool:
    return d.is_integer or d.is_bool


def _counter(r: _Round, stay: n.Expr, at: int) -> tuple[n.Buffer, str, n.Expr, n.Expr] | None:
    """The register that is compared, how, what is added to it first, and with what."""
    if not isinstance(stay, n.Binary) or stay.op not in OPPOSITE:
        return None
    for a, b, op in ((stay.a, stay.b, stay.op), (stay.b, stay.a, TURNED[stay.op])):
        if not r.steady(b):
            continue
        bare, unsigned = (a.x, True) if isinstance(a, n.Cast) and a.rounding == "bits" and dtype_of(a.type).kind == "uint" else (a, False)
        if not dtype_of(bare.type).is_integer:
            continue
        terms = dict(build.polynomial(bare))
        for counter in r.steps:
            own = n.Load(n.Region(counter))
            key = next((k for k in terms if tuple(k) == (own,)), None)
            if key is None or terms[key] != 1 or counter.dtype != dtype_of(bare.type):
                continue
            rest = build.from_polynomial({k: v for k, v in terms.items() if k != key}, counter.dtype)
            if r.steady(rest):
                return counter, op + ("u" if unsigned else ""), rest, b
    return None


def _rounds(op: str, began: n.Expr, first: n.Expr, bound: n.Expr, step: n.Expr, dtype: DType, once: bool, known: tuple[n.Expr, ...]) -> n.Expr | None:
    """How many rounds there are: the body runs before the test (`once`), or after it; it goes on while `counter + first op bound`."""
    s = build.int_value(step)
    if s is None or s == 0:
        return None
    if op == "ne" and abs(s) & (abs(s) - 1) == 0:
        return _until_equal(began, first, bound, s, dtype, once)
    if op in ("gt", "ge") and s < 0:
        low = bound if op == "gt" else build.sub(bound, 1)
        gap = build.sub(build.add(began, first), low)
    elif op in ("lt", "le") and s > 0:
        high = bound if op == "lt" else build.add(bound, 1)
        gap = build.sub(high, build.add(began, first))
    else:
        return None
    s = abs(s)
    more = build.ceildiv(build.add(gap, s) if once else gap, s)
    if once:
        least = build.int_value(more)
        if least is not None:
            return build.const(max(1, least), dtype)
        return more if _holds(known, began, bound, op) and _same(first, step) else build.maximum(more, 1)
    least = build.int_value(more)
    return build.const(max(0, least), dtype) if least is not None else build.maximum(more, 0)


def _same(a: n.Expr, b: n.Expr) -> bool:
    return build.is_const(build.sub(a, b), 0)


def _holds(known: tuple[n.Expr, ...], began: n.Expr, bound: n.Expr, op: str) -> bool:
    """Whether the first test would hold, by a condition around the loop."""
    for c in known:
        for x in _both(c):
            same = isinstance(x, n.Binary) and x.op in OPPOSITE and dtype_of(x.a.type) == dtype_of(bound.type)
            if same and isinstance(x, n.Binary) and (op, began, bound) in ((x.op, x.a, x.b), (TURNED[x.op], x.b, x.a)):
                return True
    return False


def _both(c: n.Expr) -> list[n.Expr]:
    return [*_both(c.a), *_both(c.b)] if isinstance(c, n.Binary) and c.op == "and" else [c]


def _until_equal(began: n.Expr, first: n.Expr, bound: n.Expr, s: int, dtype: DType, once: bool) -> n.Expr | None:
    """Rounds until a counter meets its bound, modulo the width of its numbers."""
    gap = build.sub(bound, build.add(began, first)) if s > 0 else build.sub(build.add(began, first), bound)
    known = build.int_value(gap)
    extra = 1 if once else 0
    s = abs(s)
    if known is not None:
        return build.const(known // s + extra, dtype) if known % s == 0 and known >= 0 else None
    if s != 1 and any(c % s for c in build.polynomial(gap).values()):
        return None
    if dtype.bits == 64:  # one that misses its bound does not end
        return build.add(build.floordiv(gap, s) if s > 1 else gap, extra)
    if dtype.bits != 32:
        return None
    whole = build.cast(n.Cast(gap, U32, "bits"), I64)
    return build.add(build.floordiv(whole, s) if s > 1 else whole, extra)


def _value(start: n.Expr, number: n.Var, step: n.Expr) -> n.Expr:
    """What a register holds when a round begins."""
    dtype = dtype_of(start.type)
    rounds: n.Expr = build.cast(number, dtype) if number.of != dtype else number
    return build.add(start, build.mul(rounds, build.cast(step, dtype)))


def _began(before: Sequence[n.Stmt], b: n.Buffer) -> n.Expr | None:
    """What a register holds before a loop, where that is stored right before it and does not change with memory."""
    for s in reversed(before):
        if isinstance(s, n.Store) and s.at.buffer.name == b.name:
            fixed = s.mask is None and not any(isinstance(x, (n.Load, n.Call)) for x in walk(s.value))
            return s.value if fixed and dtype_of(s.value.type) == b.dtype else None
        if any(isinstance(x, n.Store) and x.at.buffer.name == b.name for x in walk(s)):
            return None
        if any(isinstance(x, n.Alloc) and x.buffer.name == b.name for x in walk(s)):
            return None
    return None


def _replaced(body: n.Block, values: dict[str, n.Expr], steps: dict[str, n.Expr]) -> n.Block:
    """The body with what registers hold in place of reading them: before they are changed, and after."""
    held = dict(values)
    out: list[n.Stmt] = []

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Load) and new.at.buffer.name in held and not new.at.index and new.mask is None:
            return held[new.at.buffer.name]
        return new

    for s in body:
        out.append(transform(s, leave))
        if isinstance(s, n.Store) and s.at.buffer.name in steps and s.at.buffer.name in held:
            held[s.at.buffer.name] = build.add(values[s.at.buffer.name], build.cast(steps[s.at.buffer.name], s.at.buffer.dtype))
    return tuple(out)


__all__ = ["BOOL", "UNSIGNED", "Loops"]
