"""What lowering a kernel keeps in mind: names, values held in registers, scratch memory, and the items written so far."""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace

from kir.analysis.access import Aliases
from kir.analysis.facts import Facts
from kir.analysis.target import tensor_memory
from kir.analysis.target.warpgroup import DESCRIBED
from kir.analysis.tiles.fragments import Spread, extents_of
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, Origin, error
from kir.ir import nodes as n
from kir.ir.build import add, const, is_const, mod, mul, region
from kir.ir.canonical import rename
from kir.ir.types import I32, DType, shape_of
from kir.ir.visit import substitute_buffers, walk
from kir.surface.lowering.registers.barriers import Nest, Touch, Unit
from kir.surface.lowering.registers.element_demand import Need

PRIVATE = frozenset({"register", "fragment"})


def refuse(message: str, needs: str = "") -> KirError:
    """A refusal without its place, which the statement that is being lowered adds."""
    return error("KIR-B030", message, needs=needs)


@dataclass(frozen=True)
class Held:
    """A tile in the registers of a team of `spread.team` threads: `buffer` has a dimension for each digit of the slot, slowest first."""

    buffer: n.Buffer
    spread: Spread


@dataclass
class Scratch:
    """Shared memory that tiles pass through; `holds` is the value that lies there now."""

    name: str
    dtype: DType
    size: int = 0
    holds: n.Expr | None = None


@dataclass
class State:
    """The state while one kernel is lowered. `lane` is the number of a thread in the team that runs the current statement."""

    program: n.Program
    kernel: n.Kernel
    threads: int
    thread: n.Var
    taken: set[str]
    facts: Facts
    team: int = 0
    held: dict[str, Held] = field(default_factory=dict)
    scratch: list[Scratch] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    shared: list[n.Alloc] = field(default_factory=list)
    items: list[Unit | Nest] = field(default_factory=list)
    touches: set[Touch] = field(default_factory=set)
    constant: set[str] = field(default_factory=set)
    counters: set[str] = field(default_factory=set)
    loops: int = 0
    in_flight: set[str] = field(default_factory=set)
    warp: Mapping[str, n.Expr] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()
    views: dict[str, n.View] = field(default_factory=dict)
    fragments: dict[str, n.Buffer] = field(default_factory=dict)
    """Fragments in view as the program declares them."""
    spreads: dict[str, Spread] = field(default_factory=dict)
    """How fragments are distributed, where that is known otherwise."""
    weak: set[str] = field(default_factory=set)
    """Fragments that are distributed by default because nothing near them says how."""
    wanted: dict[str, Spread] = field(default_factory=dict)
    """What is stored to weak fragments says that they should be distributed like this."""
    spare: list[Scratch] = field(default_factory=list)
    """Scratch memory that is declared already."""
    by_descriptor: frozenset[str] = frozenset()
    """Shared memory that is read through descriptors, by another proxy than the threads write it."""
    by_signal: frozenset[str] = frozenset()
    """Shared memory that copies fill which signal mbarriers; an arrival gives it back."""
    boxes: list[tuple[n.Buffer, n.Buffer]] = field(default_factory=list)
    """The mbarrier and the phase of each run of copies by the tensor memory accelerator that the whole CTA waits for."""
    in_tensor: Mapping[str, int] = field(default_factory=dict)
    """Fragments that lie in tensor memory, with their first columns there."""
    begun: dict[str, n.Buffer] = field(default_factory=dict)
    """For each of them that is in view, a register that says whether a product has added to it."""
    committed: tuple[n.Buffer, n.Buffer] | None = None
    """The mbarrier that products into tensor memory are committed to, and its phase; one of `boxes`."""
    tensor_address: str = ""
    """The name of the address of all these fragments."""
    slot: n.Buffer | None = None
    """Shared memory that it is told in."""
    kept: dict[str, n.Buffer] = field(default_factory=dict)
    """Scratch memory that has the whole of a fragment for as long as a loop runs that reads its elements one by one."""
    alone: bool = False
    """Whether only what a thread holds itself may be used."""
    mark: Origin | None = None
    """What is written now comes from here."""

    def __post_init__(self) -> None:
        self.team = self.team or self.threads
        self.aliases = Aliases(self.program)
        uses, of = list(walk(self.kernel)), {x.buffer.name: x.at.buffer.name for x in walk(self.kernel) if isinstance(x, n.View)}
        self.by_descriptor = frozenset(of.get(x.at.buffer.name, x.at.buffer.name) for s in uses if isinstance(s, n.Mma) and s.via in DESCRIBED
                                       and not s.pending for e in (s.a, s.b) for x in walk(e) if isinstance(x, n.Load))
        self.in_tensor = tensor_memory.held(self.kernel)
        self.tensor_address = self.fresh("tensor") if self.in_tensor else ""
        self.by_signal = frozenset(x.dst.buffer.name for x in uses if isinstance(x, n.Copy) and x.signal is not None)

    @property
    def lane(self) -> n.Expr:
        """The number of a thread within its team."""
        return self.thread if self.team == self.threads else mod(self.thread, self.team)

    def fresh(self, base: str) -> str:
        """A name that nothing has yet."""
        name, i = base, 0
        while name in self.taken:
            i += 1
            name = f"{base}_{i}"
        self.taken.add(name)
        return name

    # ---------------------------------------------------------------------------------------------------------------- writing
    def put(self, *statements: n.Stmt, settled: bool = False) -> None:
        """Statements of each thread, with what `touch` has noted since the last ones (`settled`: done for all threads at their end)."""
        self.items.append(Unit(tuple(self._own_names(marked(s, self.mark)) for s in statements), frozenset(self.touches), settled))
        self.touches.clear()

    def _own_names(self, s: n.Stmt) -> n.Stmt:
        """A statement whose loop variables no other loop has."""
        names = {x.var.name for x in walk(s) if isinstance(x, n.For)}
        again = {name: self.fresh(name.split("_")[0]) for name in sorted(names & self.counters)}
        self.counters |= names | set(again.values())
        made = rename(s, again) if again else s
        assert isinstance(made, n.Stmt)
        return made

    def touch(self, r: n.Region, kind: str, need: Need | None = None) -> None:
        """Notes that the statement being written touches a place; `need` where it is a thread's own part of it."""
        if r.buffer.space in PRIVATE:
            return
        if r.buffer.name in self.views:
            r, need = n.Region(self.views[r.buffer.name].at.buffer), None
        key: tuple[object, ...] = ()
        if need is not None and all(d.axis >= 0 for d in need.threads) and {
                x.name for i in r.index for x in walk(i) if isinstance(x, n.Var)} <= self.constant:
            key = (r, need.threads, tuple(s.digit for s in need.slots))
        self.touches.add(Touch(r.buffer.name, kind, key))

    def touch_all(self, item: n.Node) -> None:
        """Notes every place below a statement or expression of scalars."""
        for x in walk(item):
            match x:
                case n.Load():
                    self.touch(x.at, "read")
                case n.Store():
                    self.touch(x.at, "write")
                case n.Copy():
                    self.touch(x.dst, "write")
                    if x.grouped:
                        self.in_flight.add(x.dst.buffer.name)
                case n.Call():
                    for a in x.args:
                        if isinstance(a, n.Region):
                            self.touch(a, "atomic" if x.fn.startswith("atomic_") else "read" if x.fn == "ldmatrix" else "write")
                case _:
                    pass

    @contextmanager
    def inside(self, loop: bool = False) -> Iterator[list[Unit | Nest]]:
        """A block of its own: what is written goes to the list; values held there and scratch contents end with it."""
        outer, held, facts = self.items, dict(self.held), self.facts
        self.items = []
        self.forget()
        self.loops += loop
        yield self.items
        self.loops -= loop
        self.items, self.held, self.facts = outer, held, facts
        self.forget()

    def forget(self, name: str | None = None) -> None:
        """What lies in scratch memory is no longer what it was: of a value, or of all."""
        for s in self.scratch:
            if name is None or (s.holds is not None and any(isinstance(x, (n.Var, n.Buffer)) and x.name == name for x in walk(s.holds))):
                s.holds = None

    # ---------------------------------------------------------------------------------------------------------------- scratch
    def scratch_for(self, dtype: DType, size: int, value: n.Expr | None = None) -> n.Buffer:
        """Shared memory of at least `size` elements that no value of the statement being written is in; it holds `value` from now on."""
        found = next((s for s in self.scratch if s.dtype == dtype and s.name not in self.busy), None)
        if found is None:
            found = next((s for s in self.spare if s.dtype == dtype), None)
            if found is not None:
                self.spare.remove(found)
                self.scratch.append(found)
        if found is None:
            found = Scratch(self.fresh(f"scratch_{dtype.name}"), dtype)
            self.scratch.append(found)
        found.size, found.holds = max(found.size, size), value
        self.busy.add(found.name)
        return n.Buffer(found.name, dtype, (const(0),), "shared")

    def finished(self, body: n.Block) -> n.Block:
        """A body with scratch memory declared before it, at the size that it came to."""
        buffers = {s.name: n.Buffer(s.name, s.dtype, (const(s.size),), "shared", None, None, 16) for s in self.scratch}
        made = tuple(substitute_buffers(s, buffers) for s in body)
        return (*self.shared, *(n.Alloc(b) for b in buffers.values()), *made)


def marked(s: n.Stmt, mark: Origin | None) -> n.Stmt:
    """A statement and those inside it with one origin."""
    changes: dict[str, object] = {"origin": mark}
    match s:
        case n.For() | n.While():
            changes["body"] = tuple(marked(x, mark) for x in s.body)
        case n.If():
            changes["then"] = tuple(marked(x, mark) for x in s.then)
            changes["orelse"] = tuple(marked(x, mark) for x in s.orelse)
        case _:
            pass
    return replace(s, **changes)  # type: ignore[type-var]  # every Stmt is a dataclass


def shape_known(e: n.Expr | n.Region) -> tuple[int, ...]:
    """The shape of a tile whose extents are known. Raises KirError KIR-B030."""
    made = extents_of(shape_of(e.type))
    if made is None:
        raise refuse("a tile has an extent that is not known when the program is compiled", "a binding that names it")
    return made


def flat(coordinates: Sequence[n.Expr], shape: Sequence[int]) -> n.Expr:
    """The row-major number of an element."""
    out: n.Expr = const(0)
    for axis, c in enumerate(coordinates):
        out = add(out, mul(c, math.prod(shape[axis + 1:])))
    return out


def register(name: str, dtype: DType, s: Spread) -> n.Buffer:
    """The registers in which a thread holds its part of a tile."""
    return n.Buffer(name, dtype, tuple(const(d.extent) for d in reversed(s.slots) if d.extent > 1), "register")


def slot_variables(state: State, s: Spread) -> tuple[list[n.Var], list[n.Expr]]:
    """A variable for each digit of the slot of more than one value, slowest first; and the value of every digit, fastest first."""
    values: list[n.Expr] = []
    names: list[n.Var] = []
    for d in s.slots:
        if d.extent == 1:
            values.append(const(0))
        else:
            v = n.Var(state.fresh("i"), I32)
            names.append(v)
            values.append(v)
    return list(reversed(names)), values


ROUNDS = 3
"""How often a kernel or a role is lowered again because what is stored to a fragment says how it should be distributed."""
MOST_SLOTS = 1024
"""Elements of one tile that a thread may hold in registers."""


def looped(block: n.Block, variables: Sequence[tuple[n.Var, int]]) -> n.Block:
    """Unrolled loops around a block, the first variable outermost; serial ones of more steps than registers could follow."""
    unrolled = math.prod(extent for _, extent in variables) <= MOST_SLOTS
    for v, extent in reversed(variables):
        kind, options = ("unroll", n.attrs(factor=extent)) if unrolled else ("serial", ())
        block = (n.For(v, const(0), const(extent), const(1), block, kind, options),)
    return block


def guarded(cond: n.Expr | None, block: n.Block) -> n.Block:
    """A block under a condition, if there is one."""
    return block if cond is None or is_const(cond, True) else (n.If(cond, block),)


def place(b: n.Buffer, index: Sequence[n.Expr]) -> n.Region:
    """A place in the registers of a thread."""
    return region(b, *index)
