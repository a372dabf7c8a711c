"""What of one instance is still in flight where: constant counts of groups, followed through the statements until nothing changes.

A group is counted by the commits since its operations were issued: a wait that leaves `n` groups pending ends those older than `n` commits. Also here:
registers that a product uses are fenced, memory that the async proxy touches is fenced after other writes, nothing is in flight at the end, and what
neighboring threads execute together is under no condition that parts them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from itertools import product

from kir.analysis.proof.sites import Kind
from kir.analysis.uniform import depends, of_whole_groups, varying
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.paths import block_paths
from kir.ir.visit import blocks_of, names_read, statements, substitute, walk

PRIVATE = frozenset({"register", "fragment"})
LEVELS = frozenset({"thread", "warp", "warpgroup"})
FAMILIES = {"async_commit": "cp_async", "async_wait": "cp_async", "bulk_commit": "bulk", "bulk_wait": "bulk", "wgmma_commit": "wgmma", "wgmma_wait": "wgmma"}
OLDEST = 12
"""Commits after which a group counts as no older: more than any wait leaves pending."""
MOST_CHOICES = 4
"""Conditions on the numbers of instances under which the statements are followed apart."""
RELEASES = frozenset({"barrier", "mbar_arrive", "mbar_arrive_expect", "named_barrier_sync", "named_barrier_arrive", "cluster_arrive", "warp_sync"})
TOGETHER = {"ldmatrix": 32, "stmatrix": 32, "mma_sync": 32, "wgmma": 128, "wgmma_fence": 128, "wgmma_commit": 128, "wgmma_wait": 128, "set_registers": 128}
"""Calls that so many neighboring threads execute together (PTX ISA: those with `.sync.aligned`)."""
Team = tuple[str, ...]
"""The roles and splits around a statement, outermost first."""
Flying = tuple[str, str, str]
"""A family; what it is of memory (`acc` is written, `src` read, `copy` moved); and the memory."""


@dataclass(frozen=True)
class State:
    """What is in flight, by commits since; copies whose sources have been read; registers and memory written since the last fence; memory of which others
    passed a barrier before it was fenced, and that which was fenced then, of which they know with the next barrier."""

    pending: Mapping[Flying, int] = field(default_factory=dict)
    read: frozenset[Flying] = frozenset()
    registers: frozenset[str] = frozenset()
    memory: frozenset[str] = frozenset()
    early: frozenset[str] = frozenset()
    fenced: frozenset[str] = frozenset()

    @property
    def unknown(self) -> frozenset[str]:
        """Memory that the async proxy may not touch yet."""
        return self.memory | self.early | self.fenced

    def joined(self, other: State) -> State:
        """What holds on one of two ways."""
        both = {k: min(self.pending.get(k, OLDEST), other.pending.get(k, OLDEST)) for k in (*self.pending, *other.pending)}
        read = frozenset(k for k in both if all(k in s.read or k not in s.pending for s in (self, other)))
        return State(both, read, self.registers | other.registers, self.memory | other.memory, self.early | other.early,
                     self.fenced | other.fenced)


@dataclass(frozen=True)
class Trouble:
    """A statement at which something is not in order."""

    kinds: tuple[Kind, ...]
    stmt: n.Stmt
    why: str
    families: frozenset[str] = frozenset()
    """Of what may be in flight at the end of an instance."""


def troubles(program: n.Program, kernel: n.Kernel) -> tuple[Trouble, ...]:
    """Everything of a kernel that is not in order, or not seen to be."""
    splits = {s.var.name for s in statements(kernel.body) if isinstance(s, n.For) and s.kind in LEVELS}
    choices = list(dict.fromkeys(s.cond for s in statements(kernel.body) if isinstance(s, n.If) and names_read(s.cond) and names_read(s.cond) <= splits))
    if len(choices) > MOST_CHOICES:
        choices = []
    found: dict[tuple[int, str], Trouble] = {}
    for taken in product((True, False), repeat=len(choices)):
        one = _One(program, kernel, dict(zip(choices, taken, strict=True)))
        one.ended(one.block(kernel.body, State()), None)
        found |= {(id(t.stmt), t.why): t for t in one.troubles}
    return tuple(found.values())


class _One:
    """One instance's way, with some conditions decided."""

    def __init__(self, program: n.Program, kernel: n.Kernel, taken: Mapping[n.Expr, bool]) -> None:
        self.taken, self.troubles = taken, list[Trouble]()
        body = list(statements(kernel.body))
        self.views = {s.buffer.name: s.at.buffer.name for s in body if isinstance(s, n.View)}
        self.proxied = {self.root(r) for s in body for r in _proxied(s)}
        self.team: Team = ()
        self.own, self.threads = _owners(kernel.body, self.root)
        given = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces}
        self.given = given - {self.root(s.src.at) for s in body if isinstance(s, n.Copy) and s.via in ("bulk", "tma")}
        self.lets = {s.names[0]: s.value for s in body if isinstance(s, n.Let) and len(s.names) == 1}
        self.around: list[tuple[n.For, Mapping[int, frozenset[str]], list[n.Stmt]]] = []
        self.last: n.Stmt = body[-1] if body else n.Eval(n.Call("trap", ()))

    def root(self, r: n.Region) -> str:
        """The memory of a region."""
        name = r.buffer.name
        while name in self.views:
            name = self.views[name]
        return name

    def note(self, why: str, s: n.Stmt, *kinds: Kind) -> None:
        """Something is not in order."""
        self.troubles.append(Trouble(kinds or ("wait",), s, why))

    def ended(self, state: State, s: n.Stmt | None) -> None:
        """An instance is at its end: nothing may be in flight."""
        if left := frozenset(k[0] for k in state.pending if k not in state.read):
            self.troubles.append(Trouble(("wait",), s if s is not None else self.last, "something may be in flight at the end", left))
        self.released(state, s if s is not None else self.last)

    def released(self, state: State, s: n.Stmt, but: frozenset[str] = frozenset()) -> None:
        """Others may go on from here: what they read through the async proxy must have been fenced."""
        if shared := {m for m in state.memory - but if self.own.get(m) != self.team}:
            self.note(f"'{min(shared)}' is written and not fenced for the async proxy", s)

    def block(self, block: n.Block, state: State) -> State:
        """The state after a block."""
        for s in block:
            state = self.statement(s, state)
        return state

    def statement(self, s: n.Stmt, state: State) -> State:
        """The state after a statement."""
        thread = isinstance(s, n.For) and s.kind == "thread"
        if isinstance(s, n.For) and thread:
            self.around.append((s, {id(x): varying(s)[path] for path, x in block_paths(s.body, ("body",))}, []))
        elif self.around and isinstance(s, (n.If, n.For, n.While)):
            self.around[-1][2].append(s)
        after = self._statement(s, state)
        if thread:
            self.around.pop()
        elif self.around and isinstance(s, (n.If, n.For, n.While)):
            self.around[-1][2].pop()
        return after

    def together(self, c: n.Call, s: n.Stmt) -> None:
        """A call that threads execute together: conditions and loops around it are the same for all of them."""
        loop, differ, inside = self.around[-1]
        for outer in inside:
            parts = (outer.lo, outer.hi, outer.step) if isinstance(outer, n.For) else (outer.cond,) if isinstance(outer, (n.If, n.While)) else ()
            names = differ[id(outer)] | {loop.var.name}
            for e in parts:
                told = e
                while used := names_read(told) & self.lets.keys():
                    told = substitute(told, {k: self.lets[k] for k in used})
                if depends(of_whole_groups(told, loop.var.name, TOGETHER[c.fn]), names):
                    self.note(f"not all of {TOGETHER[c.fn]} threads may come to '{c.fn}'", s, "barrier")

    def _statement(self, s: n.Stmt, state: State) -> State:
        match s:
            case n.For() if s.kind in LEVELS:
                self.released(state, s)
                outer, self.team = self.team, (*self.team, s.var.name)
                inside = self.block(s.body, replace(state, pending={}, read=frozenset()))
                self.ended(inside, s)
                self.team = outer
                return replace(state, registers=inside.registers)
            case n.For() | n.While():
                for e in (s.lo, s.hi, s.step) if isinstance(s, n.For) else (s.cond,):
                    self.reads(e, s, state)
                return self.loop(s, state)
            case n.If():
                self.reads(s.cond, s, state)
                if s.cond in self.taken:
                    return self.block(s.then if self.taken[s.cond] else s.orelse, state)
                return self.block(s.then, state).joined(self.block(s.orelse, state))
            case n.Roles():
                self.released(state, s)
                outer = self.team
                for r in s.roles:
                    self.team = (*outer, f"role {r.name}")
                    self.ended(self.block(r.body, replace(state, pending={}, read=frozenset())), s)
                self.team = outer
                return state
            case n.Jump():
                if state.pending:
                    self.note("something may be in flight where it leaves", s)
                return state
            case _:
                return self.simple(s, state)

    def loop(self, s: n.For | n.While, state: State) -> State:
        """The state after any number of trips."""
        for _ in range(4 * OLDEST):
            kept, self.troubles = self.troubles, []
            after = state.joined(self.block(s.body, state))
            told, self.troubles = self.troubles, kept
            if after == state:
                self.troubles += told
                return state
            state = after
        self.note("what is in flight in it does not settle", s, "wait", "race", "undefined")
        return state

    # ------------------------------------------------------------------------------------------------------ single statements
    def simple(self, s: n.Stmt, state: State) -> State:
        """The state after a statement that holds no other."""
        match s:
            case n.Alloc():
                if s.init is not None:
                    self.reads(s.init, s, state)
                return self.written(s.buffer.name, s.buffer.space, s, state, s.init is not None)
            case n.Store():
                self.reads(s, s, state, but=s.at)
                return self.written(self.root(s.at), s.at.buffer.space, s, state)
            case n.Copy():
                return self.copied(s, state)
            case n.Mma():
                self.reads(s.a, s, state)
                self.reads(s.b, s, state)
                if not s.pending:
                    return self.written(self.root(s.acc), s.acc.buffer.space, s, state)
                given = not isinstance(s.a.args[0] if isinstance(s.a, n.Call) and s.a.fn == "trans" else s.a, n.Load)  # a value has registers of its own
                read = [x.at for e in (s.a, s.b) for x in walk(e) if isinstance(x, n.Load)]
                return self.multiplied(s, s.acc, [r for r in read if not (given and r.buffer.space in PRIVATE)], state)
            case n.Eval():
                return self.called(s.call, s, state)
            case n.Let() if isinstance(s.value, n.Call):
                self.reads(s.value, s, state)
                return self.called(s.value, s, state)
            case n.View():
                return state
            case _:
                self.reads(s, s, state)
                return state

    def reads(self, e: n.Node, s: n.Stmt, state: State, but: n.Region | None = None) -> None:
        """Registers that a product in flight writes are not read."""
        for x in walk(e):
            if isinstance(x, n.Load) and x.at is not but and ("wgmma", "acc", self.root(x.at)) in state.pending:
                self.note(f"'{self.root(x.at)}' is read while a product on it is in flight", s, "wait", "race")

    def written(self, name: str, space: str, s: n.Stmt, state: State, really: bool = True) -> State:
        """Registers that a product in flight uses are not written; what is written is to be fenced."""
        if any(("wgmma", what, name) in state.pending for what in ("acc", "src")):
            self.note(f"'{name}' is written while a product on it is in flight", s, "wait", "race")
        if not really:
            return state
        if space in PRIVATE:
            return replace(state, registers=state.registers | {name})
        return replace(state, memory=state.memory | {name}) if name in self.proxied and name not in self.given else state

    def copied(self, s: n.Copy, state: State) -> State:
        """A copy, at once or in flight."""
        self.reads(s.src, s, state)
        source, target = self.root(s.src.at), self.root(s.dst)
        touched = {source, target, *([self.root(s.signal)] if s.signal is not None else [])}
        if s.via in ("bulk", "tma") and touched & state.unknown:
            self.note(f"'{min(touched & state.unknown)}' is not fenced for the async proxy", s)
        if s.signal is not None:
            return state
        if not s.grouped:
            return self.written(target, s.dst.buffer.space, s, state) if s.via not in ("bulk", "tma") else state
        family = "bulk" if s.via in ("bulk", "tma") else "cp_async"
        made = (family, "copy", f"{source} {target}")
        if family == "cp_async":
            state = self.written(target, s.dst.buffer.space, s, state)
        return replace(state, pending={**state.pending, made: 0}, read=state.read - {made})

    def multiplied(self, s: n.Stmt, acc: n.Region, operands: list[n.Region], state: State) -> State:
        """A product in flight."""
        private = [r for r in operands if r.buffer.space in PRIVATE]
        for r in (acc, *private):
            if self.root(r) in state.registers:
                self.note(f"'{self.root(r)}' was written since the last wgmma_fence", s)
        for r in operands:
            if self.root(r) in state.unknown:
                self.note(f"'{self.root(r)}' is not fenced for the async proxy", s)
        made: dict[Flying, int] = {("wgmma", "acc", self.root(acc)): 0} | {("wgmma", "src", self.root(r)): 0 for r in private}
        return replace(state, pending={**state.pending, **made})

    def called(self, c: n.Call, s: n.Stmt, state: State) -> State:
        """A call for its effect."""
        regions = [a for a in c.args if isinstance(a, n.Region)]
        if c.fn in TOGETHER and c.of is None and self.around:
            self.together(c, s)
        asked = int_value(c.args[0]) if c.fn == "set_registers" and isinstance(c.args[0], n.Expr) else 24
        if asked is None or asked % 8 or not 24 <= asked <= 256:
            self.note("it asks for registers that no warpgroup has", s, "barrier")
        if c.fn == "wgmma" and c.of is None and regions:
            return self.multiplied(s, regions[0], regions[1:], state)
        if c.fn == "barrier":  # threads that it holds are all who have to do with some memory: they may fence it later, before another one
            later = frozenset(m for m in state.memory if self.own.get(m) != self.team and self.threads.get(m) == self.team)
            self.released(state, s, later)
            return replace(state, early=state.early | later, fenced=state.fenced & (state.early | later))
        if c.fn in RELEASES:
            self.released(state, s)
        if c.fn == "wgmma_fence":
            return replace(state, registers=frozenset())
        if c.fn in ("fence_async", "fence_mbar_init"):
            return replace(state, memory=frozenset(), early=frozenset(), fenced=state.fenced | state.early)
        if c.fn == "mbar_init" and regions:
            return self.written(self.root(regions[0]), "shared", s, state)
        if c.fn in FAMILIES:
            return self.counted(c, s, state)
        for r in regions:
            if any(("wgmma", what, self.root(r)) in state.pending for what in ("acc", "src")):
                self.note(f"'{self.root(r)}' is used while a product on it is in flight", s, "wait", "race")
        return state

    def counted(self, c: n.Call, s: n.Stmt, state: State) -> State:
        """A group is closed, or some are waited for."""
        family = FAMILIES[c.fn]
        if c.fn.endswith("_commit"):
            return replace(state, pending={k: min(v + 1, OLDEST) if k[0] == family else v for k, v in state.pending.items()})
        most = int_value(c.args[0]) if c.args and isinstance(c.args[0], n.Expr) else None
        if most is None or most >= OLDEST:
            self.note("how many groups it leaves pending is not known", s, "wait", "race", "undefined")
            return state
        done = {k for k, v in state.pending.items() if k[0] == family and v > most}
        if dict(c.attrs).get("read", False):
            return replace(state, read=state.read | done)
        landed = {k[2].split()[1] for k in done if k[0] == "cp_async"} & self.proxied
        return replace(state, pending={k: v for k, v in state.pending.items() if k not in done}, read=state.read - done, memory=state.memory | landed)


def _owners(body: n.Block, root: Callable[[n.Region], str]) -> tuple[Mapping[str, Team], Mapping[str, Team]]:
    """Memory that instances of one team alone touch through the async proxy, each another part of it where there are several: others need no fence of it.
    Such a part is an index that is the number of the instance, wherever the memory is named. And memory that the threads of one barrier alone touch so."""
    teams: dict[str, set[Team]] = {}
    parts: dict[str, list[n.Region]] = {}
    viewed, threads = set[str](), {s.var.name for s in statements(body) if isinstance(s, n.For) and s.kind == "thread"}

    def below(block: n.Block, team: Team) -> None:
        for s in block:
            for r in _proxied(s):
                teams.setdefault(root(r), set()).add(team)
            if isinstance(s, n.View):
                viewed.add(root(s.at))
            if isinstance(s, n.Roles):
                for each in s.roles:
                    below(each.body, (*team, f"role {each.name}"))
                continue
            held = blocks_of(s)
            inner = (*team, s.var.name) if isinstance(s, n.For) and s.kind in LEVELS else team
            for b in held:
                below(b, inner)
            if not held:
                for x in walk(s):
                    if isinstance(x, n.Region):
                        parts.setdefault(x.buffer.name, []).append(x)
    below(body, ())
    def apart(name: str, splits: list[str]) -> bool:
        """Whether each instance of some splits has another part of it."""
        named = parts.get(name, [])
        return not splits or (bool(named) and name not in viewed and all(
            set[int].intersection(*({k for k, i in enumerate(r.index) if isinstance(i, n.Var) and i.name == v} for r in named)) for v in splits))
    one = {name: next(iter(found)) for name, found in teams.items() if len(found) == 1}
    splits = {name: [v for v in team if not v.startswith("role ")] for name, team in one.items()}
    return ({name: team for name, team in one.items() if apart(name, splits[name])},
            {name: team for name, team in one.items() if splits[name] and splits[name][-1] in threads and apart(name, splits[name][:-1])})


def _proxied(s: n.Stmt) -> Iterator[n.Region]:
    """Memory that a statement touches through the async proxy."""
    match s:
        case n.Copy() if s.via in ("bulk", "tma"):
            yield s.src.at
            yield s.dst
            if s.signal is not None:
                yield s.signal
        case n.Mma() if s.pending:
            yield from (x.at for e in (s.a, s.b) for x in walk(e) if isinstance(x, n.Load) and x.at.buffer.space not in PRIVATE)
        case n.Eval() if s.call.fn == "wgmma":
            yield from (a for a in s.call.args[1:] if isinstance(a, n.Region) and a.buffer.space not in PRIVATE)
        case _:
            pass
