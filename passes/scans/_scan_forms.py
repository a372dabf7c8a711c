"""Running reductions over the threads of a CTA, as folds of slots and as ladders of shuffles: the words that several passes share."""
from __future__ import annotations

from kir.analysis.loops.reductions import identity
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.rewrite.match import counting, matched_as
from kir.rewrite.match.exchange import REDUCTIONS, accumulation, folded
from kir.rewrite.match.thread_team import is_scalar, whole

WARP = 32


@dataclass(frozen=True)
class Fold:
    """`acc = op(acc, slots[base + u])` for u in 0..count, from the identity on; `fresh`: the accumulator is declared for it."""

    acc: n.Buffer
    op: str
    slots: n.Buffer
    base: n.Expr
    count: n.Expr
    fresh: bool = True

    def statements(self, u: n.Var) -> n.Block:
        """Its two statements."""
        start, place = identity(REDUCTIONS[self.op], self.acc.dtype), n.Region(self.acc)
        first: n.Stmt = n.Alloc(self.acc, start) if self.fresh else n.Store(place, start)
        step = n.Store(place, build.binary(self.op, whole(self.acc), n.Load(build.region(self.slots, build.add(self.base, u)))))
        return (first, counting(u, self.count, (step,)))


def fold_at(block: n.Block, i: int) -> Fold | None:
    """The fold of slots of shared memory whose first statement is `i`."""
    first, loop = block[i] if i < len(block) else None, block[i + 1] if i + 1 < len(block) else None
    if isinstance(first, n.Alloc) and is_scalar(first):
        acc, start, fresh = first.buffer, first.init, True
    elif isinstance(first, n.Store) and first.at.buffer.space == "register" and not first.at.index and first.mask is None:
        acc, start, fresh = first.at.buffer, first.value, False
    else:
        return None
    if not isinstance(loop, n.For) or loop.attrs or len(loop.body) != 1 or accumulation(loop, acc) is None:
        return None
    step = folded(loop.body[0], acc)
    if step is None or start != identity(REDUCTIONS[step[0]], acc.dtype):
        return None
    op, source = step
    if not (isinstance(source, n.Load) and source == n.Load(source.at) and source.at.buffer.space == "shared" and len(source.at.index) == 1):
        return None
    index = matched_as(source.at.index[0], n.Expr)
    base = build.sub(index, loop.var)
    made = Fold(acc, op, source.at.buffer, base, loop.hi, fresh)
    return made if made.statements(loop.var) == block[i:i + 2] else None


def lane_of(t: n.Var, width: int, threads: int) -> n.Expr:
    """A thread's place in its group."""
    return t if width == threads else build.mod(t, width)


def group_of(t: n.Expr, width: int, threads: int) -> n.Expr:
    """The first thread of a thread's group."""
    return build.const(0) if width == threads else build.mul(build.floordiv(t, width), width)


@dataclass(frozen=True)
class Ladder:
    """A running reduction over groups of lanes by shuffles: after each step a lane's `value` covers twice as many lanes before it.
    `flipped`: what comes from the other lane stands first."""

    value: n.Buffer
    op: str
    width: int
    flipped: bool = False

    def statement(self, t: n.Var, threads: int, s: n.Var, near: str, label: str | None = None) -> n.For:
        """Its loop."""
        reach, other = build.binary("shl", build.const(1), s), n.Var(near, self.value.dtype)
        own = whole(self.value)
        both = build.binary(self.op, other, own) if self.flipped else build.binary(self.op, own, other)
        shuffle = n.Let((near,), build.call("shfl_up", own, reach))
        step = n.If(build.compare("ge", lane_of(t, self.width, threads), reach), (n.Store(n.Region(self.value), both),))
        return counting(s, self.width.bit_length() - 1, (shuffle, step), label=label)


def ladder_of(loop: n.Stmt, t: n.Var, threads: int) -> Ladder | None:
    """The ladder that a loop is."""
    if not (isinstance(loop, n.For) and loop.kind == "serial" and not loop.attrs and len(loop.body) == 2):
        return None
    shuffle, step = loop.body
    steps = build.int_value(loop.hi)
    if not (steps and isinstance(shuffle, n.Let) and isinstance(step, n.If) and len(step.then) == 1 and isinstance(step.then[0], n.Store)):
        return None
    value = step.then[0].at.buffer
    for op in REDUCTIONS:
        for flipped in (False, True):
            made = Ladder(value, op, 1 << steps, flipped)
            if value.space == "register" and not value.shape and made.statement(t, threads, loop.var, shuffle.names[0]) == loop:
                return made
    return None
