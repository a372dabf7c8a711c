"""The work of a kernel at given sizes, without running it: the trace of its warps, and what its CTAs move together."""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.counts.frames import BY_ITSELF, FEW, Stream, scalar, values_at
from kir.gate.counts.numbers import number
from kir.gate.counts.places import LANES
from kir.gate.counts.register_pressure import Places, live_registers, local_arrays, operand_fragments
from kir.gate.counts.stream import stream
from kir.gate.counts.trace import Access, operations
from kir.ir import nodes as n
from kir.ir.build import binary, const, int_value
from kir.ir.types import F32, DType, dtype_of
from kir.ir.visit import names_read, once, statements, substitute, transform, walk
from kir.surface import backend

LAYING_OUT = frozenset({"triton", "tilelang"})
"""Surfaces whose compilers distribute tiles over threads, and lay shared memory out, by themselves."""
TEAMS = ("thread", "warp", "warpgroup")
"""Loops whose rounds are threads, or what has threads."""

SLICES, LINE = 80, 128
"""Slices of L2 that update memory side by side, and bytes of a line, which lies in one of them (order of magnitude)."""
MERGED = 0.6
"""What L2 is asked for of what several SMs read at about the same time: neighbors' requests are merged on their way."""


@dataclass
class Declared:
    """What a kernel declares: CTAs, threads of one, bytes of shared memory, words a thread in arrays and fragments, and of named tiles where they are most
    (`kir.gate.counts.register_pressure`)."""

    ctas: int
    threads: int
    shared: int
    registers: int
    live: Places = ((0, 1),)


@dataclass
class Work:
    """What one CTA of a kernel does (`stream`), and the traffic of all: bytes between L2 and the SMs (`l2`), bytes that the grid touches (`compulsory`) and
    bytes that DRAM moves (`dram`), by buffer where it is read or written (`share`: the part of a buffer's traffic that L2 does not have)."""

    stream: Stream
    l2: float = 0.0
    dram: float = 0.0
    compulsory: float = 0.0
    share: dict[str, float] = field(default_factory=dict)
    atomics: float = 0.0
    """Updates of sectors of global memory, one after another."""


def threaded(program: n.Program, surface: str) -> n.Program:
    """The program as threads run it, where the surface's compiler does not decide that; as it is, where it has no such form. Triton has
    whole warps, and its `tl.dot` looks at the precision alone, whatever unit the product is written for. Loops that each thread begins at a place of its
    own count from 0, so that their places are seen to differ."""
    made = _threaded(program, surface)
    out: n.Program = once(made, "_counted_from_zero", lambda: replace(made, kernels=tuple(_from_zero(k) for k in made.kernels)))
    return out


def _from_zero(kernel: n.Kernel) -> n.Kernel:
    own = {s.var.name for s in statements(kernel.body) if isinstance(s, n.For) and s.kind in TEAMS}
    for s in statements(kernel.body):
        if isinstance(s, n.Let) and not own.isdisjoint(names_read(s.value)):
            own.update(s.names)

    def leave(_: n.Node, s: n.Node) -> n.Node:
        if not isinstance(s, n.For) or s.kind in TEAMS or own.isdisjoint(names_read(s.lo)):
            return s
        dtype = dtype_of(s.var.type)
        round_ = n.Var(f"{s.var.name} round", s.var.of)
        at = binary("add", s.lo, binary("mul", round_, s.step))
        return replace(s, var=round_, lo=const(0, dtype), hi=binary("ceildiv", binary("sub", s.hi, s.lo), s.step), step=const(1, dtype),
                       body=tuple(substitute(x, {s.var.name: at}) for x in s.body))

    out: n.Kernel = transform(kernel, leave) if own else kernel
    return out


def _threaded(program: n.Program, surface: str) -> n.Program:
    if surface == "triton":
        there: n.Program = once(program, "_counted_warps", lambda: transform(program, _of_triton))
        return there
    if surface in LAYING_OUT:
        return program
    lowering = getattr(backend("cuda"), "threads", None)
    if lowering is None:
        return program

    def made() -> n.Program:
        try:
            out: n.Program = lowering(program)
            return out
        except KirError:
            return program
    return once(program, "_counted_threads", made)


def _of_triton(old: n.Node, new: n.Node) -> n.Node:
    match new:
        case n.Kernel() if 0 < (int_value(new.threads) or 0) < LANES:
            return replace(new, threads=const(LANES, dtype_of(new.threads.type)))
        case n.Mma(via="fma") if new.precision != "ieee":
            a, b = (e if dtype_of(e.type) == F32 else n.Cast(e, F32) for e in (new.a, new.b))
            return replace(new, via="auto", a=a, b=b)
        case _:
            return new


def by_nvcc(program: n.Program) -> n.Program:
    """A CUDA kernel as nvcc takes the file that it was read from: it makes four rounds of a loop of scalars one where no pragma says otherwise, and all of a
    few that it knows. What KIR writes has a pragma at each loop, and would be slower than the file without these."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, n.For) and isinstance(old, n.For) and old.kind == "serial" and scalar(old.body)):
            return new
        lo, hi, step = (int_value(x) for x in (old.lo, old.hi, old.step))
        few = lo is not None and hi is not None and bool(step) and 0 <= (hi - lo) // (step or 1) <= FEW
        return replace(new, kind="unroll", attrs=() if few else n.attrs(factor=int(BY_ITSELF)))
    made: n.Program = transform(program, leave)
    return made


def declared(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], surface: str = "") -> Declared:
    """What a kernel asks for at these sizes."""
    values, axes, _ = values_at(program, kernel, sizes, 0.5)
    threads = number(kernel.threads, values) or 1
    operands = operand_fragments(kernel.body) | local_arrays(kernel.body)
    shared = sum(math.prod(number(d, values) or 1 for d in s.buffer.shape) * s.buffer.dtype.bytes
                 for s in statements(kernel.body) if isinstance(s, n.Alloc) and s.buffer.space == "shared")

    def words(s: n.Alloc, team: int) -> int:
        if s.buffer.space not in ("fragment", "register") or s.buffer.name in operands:
            return 0
        return -(-math.prod(number(d, values) or 1 for d in s.buffer.shape) * s.buffer.dtype.bytes // (4 * max(1, team)))

    def most(block: n.Block, team: int) -> int:
        """Words a thread where they are most: what is declared is held to where it is last named."""
        own = {s.buffer.name: words(s, team) for s in block if isinstance(s, n.Alloc)}
        last = {x.name: i for i, s in enumerate(block) for x in walk(s) if isinstance(x, n.Buffer) and x.name in own}
        held = top = 0
        for i, s in enumerate(block):
            held += own[s.buffer.name] if isinstance(s, n.Alloc) else 0
            top = max(top, held + inside(s, team))
            held -= sum(own[name] for name in own if last[name] == i)
        return top

    def inside(s: n.Stmt, team: int) -> int:
        match s:
            case n.For():
                return most(s.body, {"thread": 1, "warp": 32, "warpgroup": 128}.get(s.kind, team))
            case n.If():
                return max(most(s.then, team), most(s.orelse, team))
            case n.While():
                return most(s.body, team)
            case n.Roles():
                return max(most(role.body, (role.hi - role.lo) * 32) for role in s.roles)
            case _:
                return 0

    registers = most(kernel.body, threads)
    known: dict[str, n.Expr] = {name: const(v) for name, v in values.items() if isinstance(v, int)}
    known |= {p.name: const(sizes[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in sizes}
    known |= {a.name: const(v, dtype_of(a.extent.type)) for a in kernel.grid if isinstance(v := values[a.name], int)}
    return Declared(math.prod(e for _, e in axes), threads, shared, registers, live_registers(kernel.body, threads, known, surface == "triton"))


def count(program: n.Program, kernel: n.Kernel, sizes: Mapping[str, int], place: float | int = 0.5, together: int = 264, l1: float = 2.0**17,
          l2: float = 5e7, surface: str = "cuda", warm: bool = True) -> Work:
    """The work of one kernel at these sizes, as if every CTA did what the one at `place` does: a number of a CTA, counted along the first axis
    first, or a share of
    each axis. `together` CTAs run at the same time, each with `l1` bytes of L1, all with `l2` bytes of L2; `warm`: what fits that
    is there from a run before."""
    values, axes, unknown = values_at(program, kernel, sizes, place)
    made = stream(kernel, values, axes, together, l1, surface if surface in LAYING_OUT else "")
    made.unknown += unknown
    work = Work(made)
    lengths = {p.name: math.prod(number(d, values) or 0 for d in p.of.shape) * p.of.dtype.bytes for p in program.params if isinstance(p.of, n.Buffer)}
    ctas = math.prod(e for _, e in axes)
    _traffic(work, ctas, together, l1, l2, warm)
    work.atomics = _in_turn(work, ctas, lengths)
    return work


def differs(kernel: n.Kernel) -> bool:
    """Whether CTAs of a kernel come by some loop's body differently often, for all that its bounds say."""
    moving = {axis.name for axis in kernel.grid}
    for s in statements(kernel.body):
        if isinstance(s, n.Let) and not moving.isdisjoint(names_read(s.value)):
            moving.update(s.names)
        elif isinstance(s, n.For) and not all(moving.isdisjoint(names_read(e)) for e in (s.lo, s.hi, s.step)):
            return True
    return False


def _traffic(work: Work, ctas: int, together: int, l1: float, l2: float, warm: bool) -> None:
    """What the accesses move between the levels, all CTAs together."""
    asked: dict[str, float] = {}
    unique: dict[str, float] = {}
    waves: dict[str, float] = {}
    seen: dict[tuple[str, int], list[Access]] = {}
    beside: dict[tuple[str, str, tuple[int, ...]], list[Access]] = {}
    later: dict[str, float] = {}
    held = 0.0
    for op, _, _ in operations(work.stream.team.body):
        a = op.access
        if a is None:
            continue
        same = seen.setdefault((a.buffer, a.first), []) if a.first >= 0 else []
        if a.verb == "read" and any(_kept(before, a, l1) for before in same):
            a.moved = 0.0
            continue
        others = beside.setdefault((a.buffer, a.verb, tuple(number for number, _ in a.rounds)), [])
        own = min((abs(a.first - b.first) / b.reach for b in others if b.reach > 0.0), default=1.0) if a.first >= 0 and a.rounds else 1.0
        others.append(a)
        if own < 1.0 and a.verb == "read":  # most of its sectors were brought by the others of the round
            a.moved *= own
            a.fresh *= own
        moved = a.moved * ctas
        asked[a.buffer] = asked.get(a.buffer, 0.0) + moved
        many = max(1.0, ctas * a.turns / max(1, together))
        at_once = min(moved, many * min(ctas, together) * max(a.distinct, 1.0 / together) * a.footprint * min(1.0, own))
        if same and a.verb == "read":
            later[a.buffer] = later.get(a.buffer, 0.0) + moved
        if not same:
            held += min(moved, min(ctas, together) * max(a.distinct, 1.0 / together) * a.footprint * min(1.0, own))
            unique[a.buffer] = unique.get(a.buffer, 0.0) + min(moved, a.unique * min(1.0, own))
            waves[a.buffer] = waves.get(a.buffer, 0.0) + at_once
        same.append(a)
    total = math.fsum(unique.values())
    for name, moved in asked.items():
        least = min(unique[name], moved)
        far = (0.0 if warm else least) if total <= l2 else max(least, min(moved, waves[name]))
        if held > l2:  # what is read once more finds what the CTAs that run together have touched since in its place
            far = min(moved, far + later.get(name, 0.0) * (1.0 - l2 / held))
        work.share[name] = far / moved if moved else 0.0
        work.l2 += moved if moved <= far else far + (moved - far) * MERGED
        work.dram += far
        work.compulsory += least


def _in_turn(work: Work, ctas: int, lengths: Mapping[str, int]) -> float:
    """Updates of sectors that wait for one another, of the tensor where they are most: those of a line follow one another, and slices of L2 have lines
    each."""
    asked: dict[str, float] = {}
    for op, _, _ in operations(work.stream.team.body):
        if (a := op.access) is not None and a.verb == "update":
            asked[a.buffer] = asked.get(a.buffer, 0.0) + a.sectors * a.executions * ctas
    return max((many / min(SLICES, max(1.0, (lengths.get(name) or SLICES * LINE) / LINE)) for name, many in asked.items()), default=0.0)


def _kept(before: Access, a: Access, l1: float) -> bool:
    """Whether L1 still holds what a CTA touched before, when it comes by the same places again: in a round of the innermost loop around both."""
    earlier, now = dict(before.rounds), dict(a.rounds)
    common = [number for number, _ in a.rounds if number in earlier]
    was, is_ = (earlier[common[-1]], now[common[-1]]) if common else (before.footprint * before.turns, a.footprint * a.turns)
    return was >= 0.9 * is_ and is_ <= l1
