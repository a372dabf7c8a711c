"""Where threads must wait for each other: the one rule by which `barrier()` is placed when the statements of a CTA become code of its
threads.

A statement of the CTA is over when all threads have done their part, and thread code has no such end. So a barrier stands before a
statement that touches memory which an earlier one, since the last barrier, touched in another way (one of the two writes), unless the
places are certainly apart: different literals, spans that do not meet, or slots k + a and k + b of a ring whose size does not divide
a - b. Loops are gone through until nothing changes, the iteration before being one earlier. What cp.async writes counts from the wait
that completes it; waiting makes it the thread's own, the barrier after it everyone's.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, DType
from kir.ir.visit import names_read, substitute, walk
from kir.rewrite.match import matched_as

ROUNDS = 8
"""Most rounds through a loop: the touches of an iteration become those of the one before, and then of any older one."""
OLDER = n.Var("%older", I32)
"""How many iterations ago, two at least."""


@dataclass(frozen=True)
class Touch:
    """An access to a place that other threads may touch too; `age` counts the groups committed after it, for cp.async in flight;
    it is `past` when it was an earlier iteration's."""

    at: n.Region
    writes: bool
    age: int | None = None
    past: bool = False


@dataclass(frozen=True)
class State:
    """What was touched since the last barrier, and what cp.async still writes."""

    open: frozenset[Touch] = frozenset()
    flying: frozenset[Touch] = frozenset()

    def joined(self, other: State) -> State:
        """Either way to come here."""
        return State(self.open | other.open, self.flying | other.flying)

    def earlier(self, var: n.Var, step: n.Expr) -> State:
        """The same accesses, seen from the next iteration of a loop: one iteration ago, and from the second time on `OLDER` ago."""
        dtype = matched_as(step.type, DType)
        once, again = build.sub(var, step), build.add(var, build.mul(step, build.sub(build.const(1, dtype), build.cast(OLDER, dtype))))

        def move(touches: frozenset[Touch]) -> frozenset[Touch]:
            out = set()
            for x in touches:
                names = names_read(x.at)
                if OLDER.name in names or var.name not in names:
                    out.add(x)
                else:
                    out.add(replace(x, at=substitute(x.at, {var.name: again if x.past else once}), past=True))
            return frozenset(out)
        return State(move(self.open), move(self.flying))

    def settled(self) -> State:
        """The same accesses outside the loop that made them."""
        return State(frozenset(replace(x, past=False) for x in self.open), frozenset(replace(x, past=False) for x in self.flying))

    def without(self, names: set[str]) -> State:
        """The same accesses with indices that depend on names that are gone left open."""
        def move(touches: frozenset[Touch]) -> frozenset[Touch]:
            return frozenset(replace(x, at=_forgotten(x.at, names)) for x in touches)
        return State(move(self.open), move(self.flying))


def _forgotten(r: n.Region, names: set[str]) -> n.Region:
    index = tuple(build.span(0, d) if names_read(i) & names else i for i, d in zip(r.index, r.buffer.shape, strict=True)) if r.index else ()
    return build.region(r.buffer, *index)


def apart(a: n.Region, b: n.Region) -> bool:
    """Whether two places of a buffer certainly have no element in common."""
    if not a.index or not b.index:
        return False
    return any(_indices_apart(x, y) for x, y in zip(a.index, b.index, strict=True))


def _indices_apart(x: n.Expr | n.Span, y: n.Expr | n.Span) -> bool:
    (lo, size), (other, extent) = _range(x), _range(y)
    if lo.type != other.type or not isinstance(lo.type, DType):
        return False
    if size == extent == 1 and isinstance(lo, n.Binary) and isinstance(other, n.Binary) and lo.op == other.op == "mod":
        ring, step = build.int_value(lo.b), build.int_value(build.sub(lo.a, other.a))
        return ring is not None and lo.b == other.b and step is not None and step % ring != 0
    between = dict(build.polynomial(build.sub(other, lo)))
    per = between.pop((OLDER,), 0) if OLDER.of == lo.type else 0
    distance = between.pop((), 0)
    if between or size is None or extent is None:
        return False
    nearest = distance + 2 * per
    return (nearest >= size and per >= 0) or (-nearest >= extent and per <= 0)


def _range(i: n.Expr | n.Span) -> tuple[n.Expr, int | None]:
    if not isinstance(i, n.Span):
        return i, 1
    extent, step = build.int_value(i.extent), build.int_value(i.step)
    return i.lo, None if extent is None or step is None else (extent - 1) * step + 1


class Fences:
    """Barriers for the statements of one kernel. `exchanged` are the buffers through which threads can meet. A loop that needs a barrier
    only because of the iteration before has it at the end of its body if they are `late`."""

    def __init__(self, body: n.Block, late: bool = False) -> None:
        self.late = late
        shared = {x.name for s in body for x in walk(s) if isinstance(x, n.Buffer) and x.space == "shared"}
        written = {x.at.buffer.name for s in body for x in _touches(s) if x.writes}
        read = {x.at.buffer.name for s in body for x in _touches(s) if not x.writes}
        self.exchanged = shared | (written & read & {x.name for s in body for x in walk(s) if isinstance(x, n.Buffer)
                                                     and x.space == "global"})

    def _early(self) -> Fences:
        """The same rule for barriers that are not late."""
        made = Fences((), False)
        made.exchanged = self.exchanged
        return made

    def block(self, block: n.Block, state: State) -> tuple[n.Block, State]:
        """The block with its barriers, and what is open after it."""
        out: list[n.Stmt] = []
        for s in block:
            before, made, state = self.statement(s, state)
            out += [n.Eval(build.call("barrier"))] * before
            out.append(made)
        gone = {name for s in block for name in bound_names((s,))}
        return tuple(out), state.without(gone)

    def statement(self, s: n.Stmt, state: State) -> tuple[bool, n.Stmt, State]:
        """Whether a barrier must stand before a statement, the statement with those inside it, and what is open after it."""
        match s:
            case n.For() if s.kind not in ("warp", "warpgroup", "thread"):
                return (False, *self.loop(s, state))
            case n.If():
                then, first = self.block(s.then, state)
                orelse, second = self.block(s.orelse, state)
                return False, replace(s, then=then, orelse=orelse), first.joined(second)
            case n.Eval() if s.call.fn == "barrier":
                return False, s, replace(state, open=frozenset())
            case n.Eval() if s.call.fn == "async_commit":
                older = frozenset(replace(x, age=0 if x.age is None else x.age + 1) for x in state.flying)
                return False, s, replace(state, flying=older)
            case n.Eval() if s.call.fn == "async_wait":
                arg = s.call.args[0]
                left = build.int_value(arg) if isinstance(arg, n.Expr) else None
                done = frozenset(x for x in state.flying if left is None or (x.age is not None and x.age >= left))
                return False, s, State(state.open | {replace(x, age=None) for x in done}, state.flying - done)
            case _:
                return self.whole(s, state)

    def whole(self, s: n.Stmt, state: State) -> tuple[bool, n.Stmt, State]:
        """A statement that is one for all its threads: loops over warps and threads too."""
        own = set(bound_names((s,)))
        touched = [replace(x, at=_forgotten(x.at, own)) for x in _touches(s) if x.at.buffer.name in self.exchanged]
        clash = any(x.at.buffer.name == y.at.buffer.name and (x.writes or y.writes) and not apart(x.at, y.at)
                    for x in state.open for y in touched)
        open_ = frozenset() if clash else state.open
        flying = isinstance(s, n.Copy) and s.via == "cp_async" and s.grouped
        for x in touched:
            if flying and x.writes:
                state = replace(state, flying=state.flying | {x})
            else:
                open_ |= {x}
        return clash, s, replace(state, open=open_)

    def loop(self, s: n.For, state: State) -> tuple[n.Stmt, State]:
        """A loop of the whole CTA."""
        if self.late and not (s.body and _is_barrier(s.body[-1])):
            once, _ = self.block(s.body, state)
            again, _ = Fences.loop(self._early(), s, state)
            if isinstance(again, n.For) and again.body != once:
                s = replace(s, body=(*s.body, n.Eval(build.call("barrier"))))
        entry, made, end = state, s.body, state
        for _ in range(ROUNDS):
            made, end = self.block(s.body, entry)
            back = end.earlier(s.var, s.step)
            if back.joined(entry) == entry:
                break
            entry = back.joined(entry)
        else:
            entry = entry.joined(end).without({s.var.name, OLDER.name})
            made, end = self.block(s.body, entry)
        return replace(s, body=made), end.joined(state).without({s.var.name, OLDER.name}).settled()


def _touches(s: n.Stmt) -> Iterator[Touch]:
    """Every access to memory outside registers, inner statements included."""
    for x in walk(s):
        match x:
            case n.Load() | n.Address():
                yield Touch(x.at, isinstance(x, n.Address))
            case n.Store():
                yield Touch(x.at, True)
            case n.Copy():
                yield Touch(x.dst, True)
            case n.Mma():
                yield Touch(x.acc, True)
                yield Touch(x.acc, False)
            case n.Call():
                for a in x.args:
                    if isinstance(a, n.Region):
                        yield Touch(a, x.fn != "ldmatrix")
                        yield Touch(a, False)
            case _:
                pass


def _is_barrier(s: n.Stmt) -> bool:
    return isinstance(s, n.Eval) and s.call.fn == "barrier"


def with_barriers(body: n.Block, late: bool = False) -> n.Block:
    """The statements of a CTA with the barriers that its threads need between them."""
    return Fences(body, late).block(body, State())[0]
