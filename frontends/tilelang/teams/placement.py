"""Who executes what: runs of thread statements in loops over threads, roles for parts of the CTA, tiles for `T.Parallel`.

Reading gives statements as every thread of TileLang's program meets them. Here each goes to its team. What the CTA does together stays; the longest
runs of statements in which threads differ go into `for tid in 0..threads parallel thread`; a branch on the thread's number around statements
that threads do together becomes roles of warps. A thread's own variables live in its loop, or, where several loops need them, in a
fragment with the thread as its first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType
from kir.ir.visit import statements, substitute, substitute_buffers, transform, walk

from ..values.names import LANES
from .divergence import Taint, is_local, own_parts
from .mentions import seen
from .parallel_tiles import Lanes, NoTiles, names_in, nest
from .role_variables import apart
from .thread_variables import Variables, accessed, bound_names, is_run, mentions
from .warp_roles import role_parts, with_nested_conditions


class NotPlaced(Exception):
    """A statement that no team can execute, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Team:
    """The threads `base` .. `base + count` of the CTA."""

    base: int
    count: n.Expr
    top: bool = True


@dataclass
class Placing:
    """Places the statements of one kernel. `opaque` makes a statement of what cannot be placed."""

    threads: n.Expr
    thread: str
    name: str
    reducers: frozenset[str]
    fresh: Callable[[str], str]
    opaque: Callable[[n.Stmt, str], n.Stmt]
    guard: Callable[[n.Expr, n.Expr], n.Expr]
    synchronized: bool = True
    """Whether TileLang orders the threads' accesses to shared memory by barriers of its own."""
    shared: frozenset[str] = frozenset()
    taint: Taint = field(default_factory=lambda: Taint(set()))
    numbers: dict[str, n.Expr] = field(default_factory=dict)
    """For each loop over threads the thread's number in its CTA."""

    def body(self, block: n.Block) -> n.Block:
        """The kernel's body with every statement in its team."""
        block = self.prepared(self.private(apart(block, self.thread, self.threads, self.fresh)))
        self.shared = frozenset(s.buffer.name for s in statements(block) if isinstance(s, (n.Alloc, n.View)) and s.buffer.space == "shared")
        self.taint = Taint.of(block, self.thread)
        made = self.team(with_nested_conditions(block, self.thread, self.taint), Team(0, self.threads))
        return tuple(self.uniform(made))

    def private(self, block: n.Block) -> n.Block:
        """The block with fragments that threads write one by one, each what is its own, as registers: TileLang gives every thread all of a fragment
        that no operation on tiles and no `T.Parallel` touches, and of which threads name the same elements."""
        made = {s.buffer.name: s.buffer for s in statements(block) if isinstance(s, n.Alloc) and s.buffer.space == "fragment" and s.init is None}
        of_tiles = {x.buffer.name for s in statements(block) for x in (y for part in own_parts(s) for y in walk(part))
                    if isinstance(x, n.Region) and isinstance(x.type, TileType)}
        of_tiles |= {x for s in statements(block) if isinstance(s, n.For) and s.kind == LANES for x in seen(s).buffers}
        own = {name: replace(b, space="register") for name, b in made.items() if name not in of_tiles | self.reducers}
        if not own:
            return block
        taint = Taint.of(tuple(substitute_buffers(s, own) for s in block), self.thread)
        dealt = {x.buffer.name for s in statements(block) for part in own_parts(s) for x in walk(part) if isinstance(x, n.Region) and taint.touches(*x.index)}
        used = {name: b for name, b in own.items() if name in taint.buffers - dealt}
        return tuple(substitute_buffers(s, used) for s in block) if used else block

    # ------------------------------------------------------------------------------------------------------------- T.Parallel
    def prepared(self, block: n.Block) -> n.Block:
        """The block with every `T.Parallel` that has a form as tiles in it, others distributed over threads or left to each thread."""
        taint = Taint.of(block, self.thread)
        return tuple(x for s in block for x in self.prepare(s, taint))

    def prepare(self, s: n.Stmt, taint: Taint) -> Iterator[n.Stmt]:
        match s:
            case n.For() if s.kind == LANES and (lost := next((x for x in statements(s.body) if isinstance(x, n.Opaque)), None)) is not None:
                yield self.opaque(s, lost.reason)
            case n.For() if s.kind == LANES and taint.own_loop(s):
                yield serial(s)
            case n.For() if s.kind == LANES and taint.apart(s):
                yield from self.distributed(s)
            case n.For() if s.kind == LANES:
                try:
                    yield from Lanes(self.fresh, self.reducers, self.guard).tiles(s)
                except NoTiles:
                    yield from self.distributed(s)
            case n.For() | n.While():
                yield replace(s, body=tuple(x for y in s.body for x in self.prepare(y, taint)))
            case n.If():
                then, orelse = (tuple(x for y in b for x in self.prepare(y, taint)) for b in (s.then, s.orelse))
                yield replace(s, then=then, orelse=orelse)
            case n.Alloc() if is_local(s.buffer) and s.init is not None and s.buffer.name in taint.buffers:
                yield replace(s, init=None)
                yield n.Store(n.Region(s.buffer), s.init, origin=s.origin)
            case _:
                yield s

    def distributed(self, s: n.For) -> Iterator[n.Stmt]:
        """A range distributed over the threads of the team, one after another: thread t takes t, t + threads, .."""
        axes, body = nest(s)
        total: n.Expr = build.const(1)
        for _, extent in axes:
            total = build.mul(total, extent)
        count, lane = n.Var("%threads", I32), n.Var("%lane", I32)
        share = n.Var(self.fresh("share"), I32)
        flat = n.Var(self.fresh("item"), I32)
        rest: n.Expr = flat
        lets: list[n.Stmt] = []
        for k, (var, extent) in enumerate(reversed(axes)):
            last = k == len(axes) - 1
            lets.append(n.Let((var.name,), rest if last else build.mod(rest, extent)))
            rest = rest if last else build.floordiv(rest, extent)
        inner = tuple(serial(x) if isinstance(x, n.For) and x.kind == LANES else x for x in body)
        guard = n.If(build.compare("lt", flat, total), (*reversed(lets), *inner), origin=s.origin)
        yield n.For(share, build.const(0), build.ceildiv(total, count), build.const(1),
                    (n.Let((flat.name,), build.add(build.mul(share, count), lane)), guard), origin=s.origin)

    # ------------------------------------------------------------------------------------------------------------------ teams
    def team(self, block: n.Block, team: Team) -> n.Block:
        """A block of statements of a team."""
        out: list[n.Stmt] = []
        run: list[n.Stmt] = []

        def flush(following: Sequence[n.Stmt] = ()) -> None:
            for part in self.cut(run, following) if run else ():
                tail: list[n.Stmt] = []
                while part and isinstance(part[-1], n.Eval) and part[-1].call.fn in ("barrier", "mbar_wait", "named_barrier_sync"):
                    tail.append(part.pop())
                ahead, own = self.ahead(part, following)
                out.extend(ahead)
                if own:
                    out.append(self.loop(own, team))
                out.extend(reversed(tail))
            run.clear()

        rest = list(block)
        while rest:
            s = rest.pop(0)
            try:
                if isinstance(s, n.Eval) and s.call.fn == "named_barrier_sync" and self.taint.touches(*s.call.args):
                    raise NotPlaced("a barrier whose number each thread works out")
                kind = self.kind(s, team)
                if kind == "run" or (kind == "neutral" and run and names_in(s) & {x for y in run for x in bound_names(y)}):
                    run.append(s)
                elif kind == "neutral" and run and isinstance(s, n.Let) and not seen(s.value).loads:
                    out.append(s)
                elif kind == "neutral" and run and self.joins(s, rest):
                    run.append(s)
                elif kind == "local":
                    if isinstance(s, n.Alloc) and s.init is not None and not accessed((s,))[0].isdisjoint(accessed(tuple(run))[1]):
                        flush((s, *rest))  # its first value is what the threads have written
                    out.append(s)
                else:
                    group = [s]
                    while self.parts(s) and rest and self.parts(rest[0]):
                        group.append(rest.pop(0))
                    made = list(self.roles(tuple(group), team) if len(group) > 1 else self.together(s, team))
                    flush((*group, *rest))
                    out.extend(made)
            except NotPlaced as bad:
                flush((s, *rest))
                out.append(self.opaque(s, bad.reason))
        flush()
        return tuple(out)

    def cut(self, run: list[n.Stmt], following: Sequence[n.Stmt]) -> list[list[n.Stmt]]:
        """A run in parts, so that each value that is the same for all threads, and that what follows reads too, begins one; in one part where
        what comes before it names what comes after it reads."""
        later = {x for s in following for x in names_in(s)}
        for k in range(1, len(run)):
            s = run[k]
            if not (isinstance(s, n.Let) and not later.isdisjoint(s.names) and not self.taint.touches(s.value)):
                continue
            before, after = run[:k], run[k:]
            own = {x for y in before for x in bound_names(y)} | {x.buffer.name for x in statements(tuple(before)) if isinstance(x, n.Alloc)}
            if own.isdisjoint(x for y in after for x in names_in(y)) and not accessed((s,))[0].isdisjoint(accessed(tuple(before))[1]):
                return [before, *self.cut(after, following)]
        return [list(run)]

    def ahead(self, run: list[n.Stmt], following: Sequence[n.Stmt]) -> tuple[list[n.Stmt], list[n.Stmt]]:
        """Values of a run that are the same for all threads and that what follows reads too, before it; and the rest of the run. One stays where
        a statement before it writes what it reads."""
        later = {x for s in following for x in names_in(s)}
        first: list[n.Stmt] = []
        rest: list[n.Stmt] = []
        for s in run:
            if isinstance(s, n.Let) and not later.isdisjoint(s.names) and not self.taint.touches(s.value) and names_in(s).isdisjoint(
                    x for y in rest for x in bound_names(y)) and accessed((s,))[0].isdisjoint(accessed(tuple(rest))[1]):
                first.append(s)
            else:
                rest.append(s)
        return first, rest

    def kind(self, s: n.Stmt, team: Team) -> str:
        """`run` for a statement of threads, `neutral` for one that either may execute, `local` for a declaration, `together` for the rest."""
        if isinstance(s, n.Alloc) and is_local(s.buffer):
            return "local"
        if self.taint.collective(s):
            if isinstance(s, n.If) and self.taint.touches(s.cond) and self.of_one(s):
                return "run"
            return "together"
        if isinstance(s, n.Eval) and s.call.fn == "mbar_arrive":
            return "run"
        if self.taint.threaded(s):
            return "run"
        return "neutral" if not isinstance(s, (n.Jump, n.Opaque)) else "together"

    def parts(self, s: n.Stmt) -> bool:
        """Whether a statement is a branch on what differs between threads, around something collective."""
        return isinstance(s, n.If) and self.taint.touches(s.cond) and self.taint.collective(s) and not self.of_one(s)

    def of_one(self, s: n.If) -> bool:
        """Whether a branch holds nothing collective but what a single thread may do: asynchronous copies and their barriers."""
        if role_parts((s,), self.thread, self.threads, self.taint) is not None:
            return False
        return self.taint.of_one(s)

    def joins(self, s: n.Stmt, rest: list[n.Stmt]) -> bool:
        """Whether a statement that either may execute goes with the threads before it: a barrier between thread statements, or a value that
        nothing collective reads."""
        if isinstance(s, n.Eval):
            return s.call.fn in ("barrier", "warp_sync", "assume", "assertion", "mbar_wait")
        if not isinstance(s, n.Let):
            return False
        names = set(s.names)
        for k, later in enumerate(rest):
            if names & names_in(later):
                if self.taint.collective(later):
                    return False
                if any(self.taint.collective(x) for x in rest[:k]):
                    return False
                if isinstance(later, n.Let) and not self.taint.touches(later.value) and not self.joins(later, rest[k + 1:]):
                    return False
        return any(names & names_in(x) for x in rest)

    def together(self, s: n.Stmt, team: Team) -> Iterator[n.Stmt]:
        """A statement of the whole team; compound ones with their blocks placed."""
        match s:
            case n.If() if self.taint.touches(s.cond):
                yield from self.roles((s,), team)
            case n.If():
                yield replace(s, then=self.team(s.then, replace(team, top=False)), orelse=self.team(s.orelse, replace(team, top=False)))
            case n.For():
                if self.taint.touches(s.lo, s.hi, s.step):
                    raise NotPlaced("threads go through a loop around a tile operation differently")
                yield replace(s, body=self.team(s.body, replace(team, top=False)))
            case n.While():
                if self.taint.touches(s.cond):
                    raise NotPlaced("threads go through a loop around a tile operation differently")
                yield replace(s, body=self.team(s.body, replace(team, top=False)))
            case n.Copy() | n.Store() | n.Let() | n.Mma() | n.Eval() if self.taint.touches(s):
                raise NotPlaced("a tile operation over values that differ between threads")
            case _:
                yield s

    def roles(self, block: n.Block, team: Team) -> Iterator[n.Stmt]:
        """Branches on the thread's number, one after another, as roles of warps: parts of the CTA do not wait for one another between them.
        Raises NotPlaced."""
        if build.int_value(self.threads) is None:
            raise NotPlaced("a branch on the thread's number, where the binding decides how many threads there are")
        if team.base or team.count != self.threads:
            raise NotPlaced("a branch on the thread's number inside a role")
        parts = role_parts(block, self.thread, self.threads, self.taint)
        if parts is None:
            raise NotPlaced("a branch on what differs between threads, around a tile operation")
        out = []
        bound: set[str] = set()
        for lo, hi, body in parts:
            if not body:
                continue
            registers = 0
            first = body[0]
            if isinstance(first, n.Eval) and first.call.fn == "set_registers" and isinstance(first.call.args[0], n.Const):
                count = int(first.call.args[0].value)
                if count % 8 == 0 and 24 <= count <= 256:
                    registers, body = count, body[1:]
            body = self.copied(body, bound)
            bound |= {x for s in body for x in bound_names(s)} | {x.buffer.name for x in statements(body) if isinstance(x, (n.Alloc, n.View))}
            inner = self.team(body, Team(lo * 32, build.const((hi - lo) * 32), False))
            out.append(n.Role(f"warps_{lo}_{hi}", lo, hi, inner, registers))
        yield n.Roles(tuple(out), origin=block[0].origin)

    def copied(self, body: n.Block, taken: set[str]) -> n.Block:
        """Statements with fresh names for what they bind and another role has bound already."""
        values: dict[str, n.Expr] = {}
        buffers: dict[str, n.Buffer] = {}
        names: dict[str, str] = {}
        for s in statements(body):
            match s:
                case n.Let():
                    kinds = s.value.type.elements if hasattr(s.value.type, "elements") else (s.value.type,)
                    for x, t in zip(s.names, kinds, strict=True):
                        if x not in taken:
                            continue
                        if x not in names:
                            names[x] = self.fresh(x)
                        values[x] = n.Var(names[x], t)
                case n.For() if s.var.name in taken:
                    names.setdefault(s.var.name, self.fresh(s.var.name))
                    values[s.var.name] = n.Var(names[s.var.name], s.var.of)
                case n.Alloc() | n.View() if s.buffer.name in taken:
                    if s.buffer.name not in names:
                        names[s.buffer.name] = self.fresh(s.buffer.name)
                    buffers[s.buffer.name] = replace(s.buffer, name=names[s.buffer.name])
                case _:
                    pass
        for old, new in names.items():
            if old in self.taint.values:
                self.taint.values.add(new)
            if old in self.taint.buffers:
                self.taint.buffers.add(new)
        if not names:
            return body
        return tuple(_rebound(substitute_buffers(substitute(s, values), buffers), names) for s in body)

    # ------------------------------------------------------------------------------------------------------ loops over threads
    def loop(self, run: list[n.Stmt], team: Team) -> n.Stmt:
        """A run of thread statements as a loop over the threads of a team."""
        var = n.Var(self.fresh(self.name if not team.base else "lane"), I32)
        number: n.Expr = build.add(var, team.base) if team.base else var
        self.numbers[var.name] = number
        if self.synchronized and team.top and not team.base:
            run = self.ordered(run)
        values: dict[str, n.Expr] = {self.thread: number, "%lane": var, "%threads": team.count}
        return n.For(var, build.const(0), team.count, build.const(1), tuple(substitute(s, values) for s in run), "thread", origin=run[0].origin)

    def ordered(self, run: list[n.Stmt]) -> list[n.Stmt]:
        """The statements of a run with a barrier before each that touches shared memory which another thread may have touched since the last
        barrier, one of the two writing: TileLang puts it there. Behind a thread's early return there is none: not all would reach it."""
        out: list[n.Stmt] = []
        read: set[str] = set()
        written: set[str] = set()
        left = False
        for s in run:
            if isinstance(s, n.Eval) and s.call.fn == "barrier":
                read, written = set(), set()
            reads, writes = self.touched(s)
            left = left or any(isinstance(x, n.Jump) and x.kind == "return" for x in statements((s,)))
            if not left and ((reads | writes) & written or writes & read):
                out.append(n.Eval(build.call("barrier"), origin=s.origin))
                read, written = set(), set()
            read |= reads
            written |= writes
            out.append(self.ordered_turns(s))
        return out

    def ordered_turns(self, s: n.Stmt) -> n.Stmt:
        """A loop of as many turns for each thread, with a barrier between what its statements, and its turns, write and read of each other's."""
        if not isinstance(s, n.For) or s.kind not in ("serial", "unroll") or self.taint.touches(s.lo, s.hi, s.step) or len(s.body) < 2 or any(
                isinstance(x, n.Jump) or (isinstance(x, n.Eval) and x.call.fn in ("barrier", "named_barrier_sync", "mbar_wait")) for x in statements(s.body)):
            return s
        touched = [self.touched(x) for x in s.body]
        if not any(a & c for k, (a, _) in enumerate(touched) for j, (_, c) in enumerate(touched) if j != k):
            return s
        out: list[n.Stmt] = []
        read, written = (set[str]().union(*(each[k] for each in touched)) for k in (0, 1))  # of the turn before
        for x, (reads, writes) in zip(s.body, touched, strict=True):
            if reads & written or writes & read:
                out.append(n.Eval(build.call("barrier"), origin=x.origin))
                read, written = set(), set()
            read |= reads
            written |= writes
            out.append(x)
        return replace(s, body=tuple(out))

    def touched(self, s: n.Stmt) -> tuple[set[str], set[str]]:
        """The shared buffers that a statement reads and writes."""
        if self.shared.isdisjoint(seen(s).buffers):
            return set(), set()
        read, written = accessed((s,))
        return read & self.shared, written & self.shared

    def uniform(self, block: n.Block) -> n.Block:
        """The body with variables where they belong: those of one loop over threads in it, those of several in fragments, others of the
        team."""
        return Variables(self.taint, self.fresh, self.threads, self.numbers).settled(sunk(block, self.fresh))


def sunk(block: n.Block, fresh: Callable[[str], str]) -> n.Block:
    """The block with registers and fragments that only roles use declared in each role that uses them: its threads hold them."""
    out = [replace(s, body=sunk(s.body, fresh)) if isinstance(s, (n.For, n.While)) and not is_run(s) else s for s in block]
    for s in block:
        if not (isinstance(s, n.Alloc) and s.buffer.space in ("register", "fragment")):
            continue
        users = [k for k, x in enumerate(out) if x is not s and mentions(x, s.buffer.name)]
        if not users or not all(isinstance(out[k], n.Roles) for k in users):
            continue
        first = True
        for k in users:
            found = out[k]
            assert isinstance(found, n.Roles)
            roles = []
            for role in found.roles:
                if any(mentions(x, s.buffer.name) for x in role.body):
                    own = s.buffer if first else replace(s.buffer, name=fresh(s.buffer.name))
                    body = role.body if first else tuple(substitute_buffers(x, {s.buffer.name: own}) for x in role.body)
                    role = replace(role, body=(replace(s, buffer=own), *body))
                    first = False
                roles.append(role)
            out[k] = replace(found, roles=tuple(roles))
        out = [x for x in out if x is not s]
    return tuple(out)


def serial(s: n.For) -> n.Stmt:
    """A `T.Parallel` that each thread does for itself."""
    axes, body = nest(s)
    inner = tuple(serial(x) if isinstance(x, n.For) and x.kind == LANES else x for x in body)
    for var, extent in reversed(axes):
        inner = (n.For(var, build.const(0), extent, build.const(1), inner, origin=s.origin),)
    return inner[0]


def _rebound(s: n.Stmt, names: dict[str, str]) -> n.Stmt:
    """A statement with the names that it and its blocks bind replaced."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Let():
                return replace(new, names=tuple(names.get(x, x) for x in new.names))
            case n.For() if new.var.name in names:
                return replace(new, var=n.Var(names[new.var.name], new.var.of))
            case _:
                return new

    made: n.Stmt = transform(s, leave)
    return made
