"""Where a thread's own variables live: in its one loop over threads, or in a fragment whose first axis is the thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType, dtype_of
from kir.ir.visit import blocks_of, statements, substitute, substitute_buffers, transform, walk

from .divergence import Taint, is_local
from .mentions import seen


@dataclass
class Variables:
    """`numbers` gives for each loop over threads the number of the thread in its CTA."""

    taint: Taint
    fresh: Callable[[str], str]
    threads: n.Expr
    numbers: Mapping[str, n.Expr]
    shared: dict[str, n.Buffer] = field(default_factory=dict)
    kept: dict[str, n.Buffer] = field(default_factory=dict)
    definitions: dict[str, n.Let] = field(default_factory=dict)

    def settled(self, block: n.Block) -> n.Block:
        """The body with every variable declared where it lives."""
        for s in statements(block):
            if isinstance(s, n.Let):
                for x in s.names:
                    self.definitions[x] = s
        block = self.moved(block)
        changed = {s.buffer.name: replace(s.buffer, space="fragment") for s in self.outside(block) if self.is_uniform_array(s)}
        for s in statements(block):
            if isinstance(s, n.View) and s.at.buffer.name in changed:
                changed[s.buffer.name] = replace(s.buffer, space="fragment")
        block = tuple(substitute_buffers(s, changed) for s in block) if changed else block
        block = self.connected(block)
        before = tuple(n.Alloc(b) for b in self.kept.values())
        return before + block

    def outside(self, block: n.Block) -> Iterator[n.Alloc]:
        """Declarations that stand in no loop over threads."""
        for s in block:
            if isinstance(s, n.Alloc):
                yield s
            if not is_run(s):
                for inner in blocks_of(s):
                    yield from self.outside(inner)

    def is_uniform_array(self, s: n.Alloc) -> bool:
        return is_local(s.buffer) and bool(s.buffer.shape) and s.buffer.name not in self.taint.buffers

    # ---------------------------------------------------------------------------------------------------------------- buffers
    def moved(self, block: n.Block) -> n.Block:
        """Declarations of what differs, moved into the one loop over threads that uses them, or made fragments over the threads."""
        out: list[n.Stmt] = list(block)
        for s in block:
            if not (isinstance(s, n.Alloc) and is_local(s.buffer) and s.buffer.name in self.taint.buffers):
                continue
            users = [k for k, x in enumerate(out) if x is not s and mentions(x, s.buffer.name)]
            if len(users) == 1 and is_run(out[users[0]]):
                run = out[users[0]]
                assert isinstance(run, n.For)
                out[users[0]] = replace(run, body=in_order_of_use((s, *run.body)))
                out = [x for x in out if x is not s]
            elif not users:
                out = [x for x in out if x is not s]
            else:
                self.shared[s.buffer.name] = n.Buffer(s.buffer.name, s.buffer.dtype, (self.threads, *s.buffer.shape), "fragment")
                out = [n.Alloc(self.shared[s.buffer.name], origin=s.origin) if x is s else x for x in out]
        return tuple(self.inner(s) for s in out)

    def inner(self, s: n.Stmt) -> n.Stmt:
        """A statement with the blocks of its team settled; a loop over threads with its shared variables indexed by the thread."""
        if is_run(s):
            assert isinstance(s, n.For)
            return self.indexed(s)
        match s:
            case n.For() | n.While():
                return replace(s, body=self.moved(s.body))
            case n.If():
                return replace(s, then=self.moved(s.then), orelse=self.moved(s.orelse))
            case n.Roles():
                return replace(s, roles=tuple(replace(r, body=self.moved(r.body)) for r in s.roles))
            case _:
                return s

    def indexed(self, run: n.For) -> n.For:
        if not self.shared:
            return run
        number = self.numbers[run.var.name]

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Region) and new.buffer.name in self.shared:
                held = self.shared[new.buffer.name]
                if new.buffer == held:
                    return new
                index = new.index or tuple(build.span(0, d) for d in new.buffer.shape)
                return n.Region(held, (number, *index))
            return new

        made: n.For = transform(run, leave, lambda x: not isinstance(x, n.Buffer))
        views = {s.buffer.name: replace(s.buffer, space=s.at.buffer.space) for s in statements(made.body) if isinstance(s, n.View)
                 and s.at.buffer.name in self.shared and s.buffer.space == "register"}
        held: n.For = substitute_buffers(made, views)
        return held

    # ----------------------------------------------------------------------------------------------------------------- values
    def connected(self, block: n.Block) -> n.Block:
        """Loops over threads that use values of earlier ones, with those worked out again, or kept in a fragment."""
        runs = [s for s in team_statements(block) if is_run(s)]
        wanted: dict[str, None] = {}
        made: dict[int, n.For] = {}
        for run in runs:
            assert isinstance(run, n.For)
            inside = bound_names(run)
            wanted_here = reads(run)
            missing = [x for x in self.definitions if x in wanted_here and x in self.taint.values and x not in inside]
            if missing:
                made[id(run)] = self.completed(run, missing, wanted)
        if not made and not wanted:
            return block
        return self.rewritten(block, made, set(wanted))

    def completed(self, run: n.For, missing: list[str], wanted: dict[str, None]) -> n.For:
        """A loop over threads with the values that it lacks at its head."""
        lets: list[n.Stmt] = []
        names: dict[str, n.Expr] = {}
        for x in missing:
            self.again(x, run, lets, names, wanted)
        return replace(run, body=(*lets, *(substitute(s, names) for s in run.body)))

    def again(self, name: str, run: n.For, lets: list[n.Stmt], names: dict[str, n.Expr], wanted: dict[str, None]) -> None:
        if name in names:
            return
        s = self.definitions[name]
        value = s.value
        plain = len(s.names) == 1 and not seen(value).loads and not seen(value).warps
        if plain:
            for x in self.definitions:
                if x in seen(value).names and x in self.taint.values:
                    self.again(x, run, lets, names, wanted)
            own = {v: self.numbers[run.var.name] for v in seen(value).names if v in self.numbers}
            made: n.Expr = substitute(value, {**names, **own})
            var = n.Var(self.fresh(name), made.type)
        else:
            dtype = _scalar(value)
            if name not in self.kept:
                self.kept[name] = n.Buffer(self.fresh(f"{name}_kept"), dtype, (self.threads,), "fragment")
            wanted[name] = None
            made = n.Load(n.Region(self.kept[name], (self.numbers[run.var.name],)))
            var = n.Var(self.fresh(name), dtype)
        lets.append(n.Let((var.name,), made))
        names[name] = var

    def rewritten(self, block: n.Block, made: Mapping[int, n.For], wanted: set[str]) -> n.Block:
        out: list[n.Stmt] = []
        for s in block:
            if is_run(s):
                assert isinstance(s, n.For)
                run = made.get(id(s), s)
                out.append(replace(run, body=self.storing(run.body, self.numbers[run.var.name], wanted)) if wanted else run)
                continue
            match s:
                case n.For() | n.While():
                    out.append(replace(s, body=self.rewritten(s.body, made, wanted)))
                case n.If():
                    out.append(replace(s, then=self.rewritten(s.then, made, wanted), orelse=self.rewritten(s.orelse, made, wanted)))
                case n.Roles():
                    out.append(replace(s, roles=tuple(replace(r, body=self.rewritten(r.body, made, wanted)) for r in s.roles)))
                case _:
                    out.append(s)
        return tuple(out)

    def storing(self, block: n.Block, number: n.Expr, wanted: set[str]) -> n.Block:
        """A block in which values that others want are kept."""
        out: list[n.Stmt] = []
        for s in block:
            match s:
                case n.For() | n.While():
                    s = replace(s, body=self.storing(s.body, number, wanted))
                case n.If():
                    s = replace(s, then=self.storing(s.then, number, wanted), orelse=self.storing(s.orelse, number, wanted))
                case _:
                    pass
            out.append(s)
            if isinstance(s, n.Let):
                for x in s.names:
                    if x in wanted:
                        out.append(n.Store(n.Region(self.kept[x], (number,)), n.Var(x, _scalar(s.value))))
        return tuple(out)


def is_run(s: n.Stmt) -> bool:
    """Whether a statement is a loop over threads."""
    return isinstance(s, n.For) and s.kind == "thread"


def team_statements(block: n.Block) -> Iterator[n.Stmt]:
    """Statements of a block and below, without the bodies of loops over threads."""
    for s in block:
        yield s
        if not is_run(s):
            for inner in blocks_of(s):
                yield from team_statements(inner)


def mentions(s: n.Stmt, name: str) -> bool:
    """Whether a buffer of that name occurs in a statement."""
    return name in seen(s).buffers


def bound_names(s: n.Stmt) -> set[str]:
    """Names that a statement and its blocks bind."""
    out: set[str] = set()
    for x in statements((s,)):
        if isinstance(x, n.Let):
            out |= set(x.names)
        elif isinstance(x, n.For):
            out.add(x.var.name)
    return out


def reads(s: n.Stmt) -> set[str]:
    """Names that a statement and its blocks read."""
    return set(seen(s).names)


def _scalar(e: n.Expr) -> DType:
    return dtype_of(e.type)


def accessed(body: n.Block) -> tuple[set[str], set[str]]:
    """Names of buffers that a body reads and writes."""
    read: set[str] = set()
    written: set[str] = set()
    for s in statements(body):
        match s:
            case n.Store():
                written.add(s.at.buffer.name)
            case n.Copy():
                written.add(s.dst.buffer.name)
            case n.Mma():
                written.add(s.acc.buffer.name)
                read.add(s.acc.buffer.name)
            case n.Opaque():
                read |= set(s.reads)
                written |= set(s.writes)
            case _:
                pass
        for x in _own(s):
            if isinstance(x, n.Load):
                read.add(x.at.buffer.name)
            elif isinstance(x, n.Call) and x.fn.startswith("atomic_"):
                for a in x.args:
                    if isinstance(a, n.Region):
                        written.add(a.buffer.name)
                        read.add(a.buffer.name)
    return read, written


def _own(s: n.Stmt) -> list[n.Node]:
    """What a statement itself mentions, without what its blocks do."""
    if not blocks_of(s):
        return list(walk(s))
    match s:
        case n.For():
            return [x for e in (s.lo, s.hi, s.step) for x in walk(e)]
        case n.If() | n.While():
            return list(walk(s.cond))
        case _:
            return []


def in_order_of_use(block: n.Block) -> n.Block:
    """A block with the declarations at its head in the order in which what follows mentions them."""
    count = next((k for k, s in enumerate(block) if not (isinstance(s, n.Alloc) and s.init is None)), len(block))
    first: dict[str, int] = {}
    for s in block[count:]:
        for x in walk(s):
            if isinstance(x, n.Buffer):
                first.setdefault(x.name, len(first))
    head = sorted((s for s in block[:count] if isinstance(s, n.Alloc)), key=lambda s: first.get(s.buffer.name, len(first)))
    return (*head, *block[count:])
