"""Predicate N: what a program must be to count as naive, the end of every lineage.

Scalar serial code: each work item (an element, a row, a head's column) is computed by one thread, with private scalars, tables of literals, private
arrays no larger than the state that the problem declares (without a problem: one with an element for each of a whole row of an output, which it becomes,
or one that the rounds of a recurrence hand on), and row-major tensors in global memory. `is_naive` lists every clause that a
program violates, with its anchor.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Literal, Protocol

from kir.base.dataclass import dataclass
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import Path, anchors, child_blocks
from kir.ir.measures.recurrences import states
from kir.ir.printer import expr_text, region_text
from kir.ir.rules.wellformed import parts
from kir.ir.types import TileType, dtype_of
from kir.ir.visit import names_read, statements, substitute, walk

Clause = Literal["specialized", "memory", "synchronization", "asynchrony", "atomics", "lanes", "scalar", "tensor-core", "layout",
                 "unrolling",
                 "one-thread", "work-item", "state", "launch", "opaque"]
SYNCHRONIZATION = frozenset({"sync", "async"})


class WorkItemLike(Protocol):
    """What one thread computes: `kind` is `element`, `row` or `head_column`, once for each point of `axes` (names of sizes)."""

    @property
    def kind(self) -> str: ...

    @property
    def axes(self) -> tuple[str, ...]: ...


class StateLike(Protocol):
    """A private array that a work item may hold: dtype by name, extents as texts over the sizes."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Violation:
    """A clause of N that the statement at `anchor` violates."""

    anchor: str
    clause: Clause
    message: str


def is_naive(program: n.Program, work_item: WorkItemLike | None = None, state: Sequence[StateLike] = (), scatter: bool = False,
             kernels: int | None = None) -> tuple[Violation, ...]:
    """The violated clauses, in reading order; none for a naive program. `scatter` says that the problem's operator is a scatter (then
    atomics are allowed; with no work item, those whose places are read from memory are), `kernels` how many kernels the expert had (by default
    as many as the program has)."""
    found = [*_launch(program, kernels)]
    for k in program.kernels:
        found += _Kernel(program, k, work_item, state, scatter).violations()
    return tuple(found)


def _launch(p: n.Program, kernels: int | None) -> Iterator[Violation]:
    if p.metas:
        yield Violation(p.name, "specialized", f"the program is generic in {', '.join(m.name for m in p.metas)}")
    if p.tensor_maps:
        yield Violation(p.tensor_maps[0].name, "asynchrony", f"{len(p.tensor_maps)} tensor maps")
    if any(isinstance(s, n.Dispatch) for s in p.plan):
        yield Violation(p.name, "launch", "the launch plan chooses between versions")
    if kernels is not None and len(p.kernels) > kernels:
        yield Violation(p.name, "launch", f"{len(p.kernels)} kernels, and the expert had {kernels}")
    derived = {q.name: q.value for q in p.params if q.value is not None}
    for q in p.params:
        if isinstance(q.of, n.Buffer) and not is_row_major(q.of, derived):
            yield Violation(q.name, "layout", f"the tensor '{q.name}' is not row-major")


def is_row_major(b: n.Buffer, derived: Mapping[str, n.Expr] | None = None) -> bool:
    """Whether a buffer is linear in memory, the last dimension fastest; `derived` are the values of derived parameters."""
    if b.layout is not None:
        return False
    wanted: n.Expr | None = None
    for stride, extent in zip(reversed(b.strides or ()), reversed(b.shape if b.strides is not None else ()), strict=True):
        dtype = dtype_of(stride.type)
        have = substitute(stride, derived or {})
        expected = build.const(1, dtype) if wanted is None else build.cast(wanted, dtype)
        if build.int_value(extent) != 1 and expr_text(have) != expr_text(expected):
            return False
        wanted = build.mul(expected, build.cast(substitute(extent, derived or {}), dtype))
    return True


class _Kernel:
    def __init__(self, program: n.Program, kernel: n.Kernel, work_item: WorkItemLike | None, state: Sequence[StateLike],
                 scatter: bool) -> None:
        self.program, self.kernel, self.work_item, self.scatter = program, kernel, work_item, scatter
        self.free = list(state)
        self.outputs = {q.name for q in program.params if q.role in ("out", "inout")}
        self.rows = _rows(kernel, self.outputs) | states(kernel, self.outputs) if work_item is None and not state else frozenset()
        self.definitions: dict[str, frozenset[str]] = {}
        self.axes_used: set[str] = set()

    def violations(self) -> Iterator[Violation]:
        k = self.kernel
        if not build.is_const(k.threads, 1):
            yield Violation(k.name, "one-thread", f"{expr_text(k.threads)} threads a CTA; each work item is one thread of its own")
        if k.cluster:
            yield Violation(k.name, "launch", f"a cluster of {list(k.cluster)} CTAs")
        for name, value in k.attrs:
            yield Violation(k.name, "launch", f"the launch option {name}={value}")
        yield from self.block(k.body, (k.name,), ())
        idle = [a.name for a in k.grid if a.name not in self.axes_used and not build.is_const(a.extent, 1)]
        if idle and self.work_item is not None:
            yield Violation(k.name, "work-item", f"no store depends on the grid axis {', '.join(idle)}: several threads compute one item")

    @cached_property
    def anchors(self) -> dict[Path, str]:
        return {path: text for text, path, _ in anchors(self.program)}

    def found(self, path: Path, clause: Clause, message: str) -> Violation:
        return Violation(self.anchors[path], clause, message)

    def block(self, block: n.Block, path: Path, loops: tuple[str, ...]) -> Iterator[Violation]:
        for i, s in enumerate(block):
            here = (*path, i)
            yield from self.statement(s, here, loops)
            inner = loops
            if isinstance(s, n.For):
                inner = (*loops, s.var.name)
                self.definitions[s.var.name] = frozenset({s.var.name}) | self.roots(s.lo) | self.roots(s.hi)
            for steps, body in child_blocks(s):
                yield from self.block(body, here + steps, inner)

    def roots(self, e: n.Node) -> frozenset[str]:
        """Grid axes and loop variables that a value depends on, through lets."""
        out: set[str] = set()
        for name in names_read(e):
            out |= self.definitions.get(name, frozenset({name}))
        for x in walk(e):
            if isinstance(x, n.Region):
                out |= self.definitions.get(x.buffer.name, frozenset())
        return frozenset(out)

    def statement(self, s: n.Stmt, path: Path, loops: tuple[str, ...]) -> Iterator[Violation]:
        yield from self.expressions(s, path)
        match s:
            case n.Let():
                roots = self.roots(s.value)
                self.definitions.update((name, roots) for name in s.names)
            case n.Alloc():
                yield from self.alloc(s, path)
            case n.View() if not _is_flat(s):
                yield self.found(path, "layout", f"'{s.buffer.name}' is a view of '{s.at.buffer.name}'")
            case n.Store():
                yield from self.store(s, path, loops)
            case n.Copy():
                clause: Clause = "scalar" if s.via == "plain" or s.via.startswith("vector") else "asynchrony"
                if clause == "asynchrony" or s.via != "plain" or isinstance(s.dst.type, TileType):
                    yield self.found(path, clause, f"a copy of {region_text(s.src.at)} via {s.via}")
                if s.dst.buffer.name in self.outputs:
                    yield from self.written(s.dst, path, loops)
            case n.Mma():
                clause = "scalar" if s.via == "fma" else "tensor-core"
                yield self.found(path, clause, f"an mma of whole tiles via {s.via}")
            case n.Eval() if s.call.fn.startswith("atomic_") and s.call.args:
                self.axes_used |= self.roots(s.call.args[0])
            case n.For():
                if s.kind in ("warpgroup", "warp", "thread"):
                    yield self.found(path, "one-thread", f"a loop over {s.kind}s")
                elif s.kind != "serial":
                    yield self.found(path, "unrolling", f"the loop over '{s.var.name}' is {s.kind}")
                elif s.attrs:
                    yield self.found(path, "unrolling", f"the loop over '{s.var.name}' has options {', '.join(k for k, _ in s.attrs)}")
            case n.If() if s.static:
                yield self.found(path, "specialized", "a static branch")
            case n.Roles():
                yield self.found(path, "one-thread", f"the roles {', '.join(r.name for r in s.roles)}")
            case n.Opaque():
                yield self.found(path, "opaque", f"text that was not understood: {s.reason}")
            case n.Hole():
                yield self.found(path, "opaque", f"the hole '{s.name}' is not filled")
            case _:
                pass

    def alloc(self, s: n.Alloc, path: Path) -> Iterator[Violation]:
        b = s.buffer
        if b.space != "register":
            yield self.found(path, "memory", f"'{b.name}' is in {b.space} memory")
            return
        if b.layout is not None or not is_row_major(b):
            yield self.found(path, "layout", f"'{b.name}' has a layout")
        if b.shape and not self.allowed(b) and not self.is_table(s):
            declared = ", ".join(f"{x.name}: {x.dtype}[{', '.join(x.shape)}]" for x in self.free) or "none is left"
            extents = " x ".join(map(expr_text, b.shape))
            yield self.found(path, "state", f"the private array '{b.name}' of {extents} is beyond the declared state ({declared})")

    def is_table(self, s: n.Alloc) -> bool:
        """Whether a private array is a table of literals, which nothing writes."""
        parts = s.init.args if isinstance(s.init, n.Call) and s.init.fn == "vec" else ()
        return bool(parts) and all(isinstance(x, n.Const) for x in parts) and s.buffer.name not in self.written_arrays

    @cached_property
    def written_arrays(self) -> frozenset[str]:
        return frozenset(x.at.buffer.name for x in statements(self.kernel.body) if isinstance(x, n.Store)) | frozenset(
            x.dst.buffer.name for x in statements(self.kernel.body) if isinstance(x, n.Copy))

    def allowed(self, b: n.Buffer) -> bool:
        """Whether a declared private array covers `b`, each of which is used once, or it becomes a row of an output, or is a recurrence's state."""
        if b.name in self.rows:
            return True
        for x in self.free:
            if x.dtype != b.dtype.name:
                continue
            have, most = [build.int_value(d) for d in b.shape], [int(t) if t.isdigit() else self.most(t) for t in x.shape]
            same = tuple(map(expr_text, b.shape)) == tuple(x.shape)
            within = None not in have and None not in most and math.prod(v for v in have if v) <= math.prod(v for v in most if v)
            if same or within:
                self.free.remove(x)
                return True
        return False

    def most(self, size: str) -> int | None:
        """The largest value that a fact of the program allows a size: private arrays have extents that are known when they are compiled."""
        bounds = [b - (f.op == "lt") for f in self.program.facts if isinstance(f, n.Binary) and f.op in ("le", "lt") and isinstance(f.a, n.Var)
                  and f.a.name == size and (b := build.int_value(f.b)) is not None]
        return min(bounds, default=None)

    def store(self, s: n.Store, path: Path, loops: tuple[str, ...]) -> Iterator[Violation]:
        b = s.at.buffer
        if b.space != "register" and b.name in self.outputs:
            yield from self.written(s.at, path, loops)
        elif b.space == "register" and not b.shape:
            self.definitions[b.name] = self.definitions.get(b.name, frozenset()) | self.roots(s.value)

    def written(self, at: n.Region, path: Path, loops: tuple[str, ...]) -> Iterator[Violation]:
        """The work item's clause for a store to an output."""
        roots: frozenset[str] = frozenset().union(*(self.roots(i) for i in at.index)) if at.index else frozenset()
        self.axes_used |= roots
        if self.work_item is not None and self.work_item.kind == "row":
            rows = {x for i, d in zip(at.index, at.buffer.shape, strict=False) if isinstance(d, n.Var) and d.name in self.work_item.axes
                    for x in self.roots(i)}
            for i, d in zip(at.index, at.buffer.shape, strict=False):
                along = [x for x in loops if x in self.roots(i)] if isinstance(d, n.Var) and d.name in self.work_item.axes else []
                if along:
                    yield self.found(path, "work-item", f"one thread computes several rows: {region_text(at)} moves along {expr_text(d)} with the loop "
                                     f"over {', '.join(along)}")
                    return
                named = isinstance(d, n.Var) and d.name in self.work_item.axes
                across = [] if named else [a.name for a in self.kernel.grid if a.name in self.roots(i) - rows and not build.is_const(a.extent, 1)]
                if across and rows:
                    yield self.found(path, "work-item", f"several threads compute one row: {region_text(at)} moves along {expr_text(d)} with the grid "
                                     f"axis {', '.join(across)}")
                    return
        if self.work_item is None or self.work_item.kind != "element":
            return
        moving = [x for x in loops if x in roots]
        if moving:
            yield self.found(path, "work-item",
                             f"one thread computes several elements: {region_text(at)} moves with the loop over {', '.join(moving)}")

    def expressions(self, s: n.Stmt, path: Path) -> Iterator[Violation]:
        """Clauses on what a statement computes with; only the first of each kind is reported for a statement."""
        reported: set[str] = set()
        for e in _operands(s):
            for x in _below(e):
                for clause, message in self.node(x, s):
                    if clause not in reported:
                        reported.add(clause)
                        yield self.found(path, clause, message)

    def node(self, x: n.Expr | n.Region | n.Span, s: n.Stmt) -> Iterator[tuple[Clause, str]]:
        if isinstance(x, n.Call):
            row = table().get(x.fn)
            if row is None:
                return
            if x.fn.startswith("atomic_"):
                if not (self.scatter or (self.work_item is None and _is_scattered(x))):
                    yield "atomics", f"'{x.fn}', and the operator is no scatter"
            elif x.fn == "mma_sync":
                yield "tensor-core", f"'{x.fn}'"
            elif row.effect in SYNCHRONIZATION:
                yield ("asynchrony" if row.effect == "async" or x.fn.startswith("mbar") else "synchronization"), f"'{x.fn}'"
            elif row.is_convergent:
                yield "lanes", f"'{x.fn}' exchanges values between threads"
            elif row.level == "tile" and x.fn != "vec":
                yield "scalar", f"'{x.fn}' of a whole tile"
        if isinstance(x, n.Region) and isinstance(x.type, TileType) and not isinstance(s, (n.Copy, n.Mma)):
            yield "scalar", f"{region_text(x)} is an access of several elements"
        if isinstance(x, n.Load) and x.cache:
            yield "layout", f"the cache policy {x.cache}"
        if isinstance(x, n.Region) and x.buffer.space in ("shared", "cluster"):
            yield "memory", f"'{x.buffer.name}' is in {x.buffer.space} memory"


def _rows(kernel: n.Kernel, outputs: set[str]) -> frozenset[str]:
    """Private arrays of which each element is computed into an element of a whole row of an output: what a work item that is a row holds. One for a store."""
    out = set()
    for s in statements(kernel.body):
        if not (isinstance(s, n.For) and s.kind == "serial" and build.is_const(s.lo, 0) and build.is_const(s.step, 1)):
            continue
        stores = [x for x in s.body if isinstance(x, n.Store) and x.at.buffer.name in outputs and len(x.at.index) > 1 and x.at.index[-1] == s.var
                  and x.at.buffer.shape[-1] == s.hi]
        for store in stores if len(stores) == len(s.body) else ():
            held = {x.buffer for x in walk(store.value) if isinstance(x, n.Region) and x.buffer.space == "register" and x.buffer.shape == (s.hi,)
                    and x.index == (s.var,)}
            if len(held) == 1:
                out.add(held.pop().name)
    return frozenset(out)


def _is_flat(s: n.View) -> bool:
    """Whether a view is a whole row-major tensor in one dimension, for elements whose place in it only their data say, or with rows of several axes in one
    piece: images of a batch, groups of channels."""
    b, of = s.buffer, s.at.buffer
    plain = b.space == of.space == "global" and b.dtype == of.dtype and not s.axes and not s.at.index and is_row_major(b) and is_row_major(of)
    return plain and (len(b.shape) == 1 or _joins(b.shape, of.shape))


def _joins(view: Sequence[n.Expr], shape: Sequence[n.Expr]) -> bool:
    """Whether each extent is the product of some axes side by side; the last one may begin within an axis, and goes on to the end."""
    at = 0
    for k, extent in enumerate(view):
        wanted = build.polynomial(extent)
        end = next((e for e in range(at + 1, len(shape) + 1) if build.polynomial(_product(shape[at:e])) == wanted), None)
        if end is None:
            here, own = build.int_value(extent), build.int_value(shape[at]) if at < len(shape) else None
            if here is None or own is None or own % here or k != len(view) - 2 or at + 1 >= len(shape):
                return False
            return build.polynomial(view[-1]) == build.polynomial(_product((build.const(own // here), *shape[at + 1:])))
        at = end
    return at == len(shape)


def _product(extents: Sequence[n.Expr]) -> n.Expr:
    return reduce(build.mul, extents)


def _is_scattered(x: n.Call) -> bool:
    """Whether an atomic's place is read from memory, so that the operator is a scatter whatever program computes it."""
    return bool(x.args) and isinstance(x.args[0], n.Region) and any(isinstance(y, n.Load) for i in x.args[0].index for y in walk(i))


def _operands(s: n.Stmt) -> Iterator[n.Expr | n.Region]:
    match s:
        case n.Let():
            yield s.value
        case n.Alloc():
            if s.init is not None:
                yield s.init
        case n.Store():
            yield from (s.at, s.value)
            if s.mask is not None:
                yield s.mask
        case n.Eval():
            yield s.call
        case n.For():
            yield from (s.lo, s.hi, s.step)
        case n.If() | n.While():
            yield s.cond
        case n.Jump():
            yield from s.values
        case _:
            pass


def _below(e: n.Expr | n.Region | n.Span) -> Iterator[n.Expr | n.Region | n.Span]:
    stack: list[n.Expr | n.Region | n.Span] = [e]
    while stack:
        x = stack.pop()
        yield x
        stack.extend(parts(x))
