"""Where a search begins: the kernel as it is, several kernels fused, what walking it back gives, and the problem's naive program."""
from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kir.analysis import normalize
from kir.base.dataclass import dataclass, replace
from kir.base.diagnostic import KirError
from kir.gate.counts.work import by_nvcc
from kir.gate.gpu.relative import ProgramProblem
from kir.ir import nodes as n
from kir.ir.build import cast, const, int_value, mul, polynomial
from kir.ir.canonical import content_hash
from kir.ir.nodes import Buffer, Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.types import DType, TileType
from kir.ir.visit import buffers_named, names_read, regions, statements, substitute, transform, walk
from kir.learning.optimize.plan import Setting
from kir.lineage.engine import PassEngine
from kir.lineage.plan import plan
from kir.lineage.records.record import Violation
from kir.problem import Problem
from kir.rewrite import Step, apply, pass_class, sites
from kir.rewrite.anchor import anchor_text
from kir.surface import NVCC_UNROLLS

FUSING = ("fuse-epilogue", "fuse-kernels")
"""Passes that make one kernel of two."""
WRITTEN_OUT = 64
"""Rounds up to which nvcc writes out loops with branches, those inside them counted."""
MOST_STEPS = 60
"""Steps back that are taken from a kernel."""
KEPT = 3
"""Of the ancestors, so many are starts beside the last: the others differ from them in a step or two, which single passes take."""


AHEAD = 0.5
"""The part of a walk's seconds in which its order is looked for: what that came through is known to the walk."""


@dataclass(frozen=True)
class Start:
    """A program that a search begins with; `steps` lead back to it from the kernel as given."""

    name: str
    program: Program
    steps: tuple[str, ...] = ()


def starts(program: Program, setting: Setting, seconds: float = 20.0, file: str = "") -> list[Start]:
    """The kernel as it is (of a CUDA `file` also as nvcc takes it), several kernels fused, then the naive end of its walk back, the problem's naive program
    where its parameters are the kernel's, and ancestors in between, evenly. The walk ends after `seconds` or `MOST_STEPS`; it is not gated here, for each
    start is, as every candidate, before it counts."""
    own = file == "cuda" and setting.surface in ("", "cuda")
    taken = [Start("as nvcc takes it", as_nvcc_takes(program))] if own else []
    found = [Start("as it is", program), *taken, *fused(program, setting)]
    back = list(_walk(program, setting, seconds))
    if back:
        found.append(Start(_back(len(back)), normalize(back[-1][1]), tuple(text for text, _ in back)))
    naive = _naive(setting.problem)
    if naive is not None and _same_call(naive, program):
        found += [Start(f"the naive program of {setting.problem.name}", naive), *fused(naive, setting)]
    for k in range(1, KEPT + 1):
        at = len(back) * k // (KEPT + 1)
        if 0 < at < len(back):
            found.append(Start(_back(at), normalize(back[at - 1][1]), tuple(text for text, _ in back[:at])))
    if own and setting.surface:
        found = [replace(x, program=left_to_nvcc(x.program)) for x in found]
    unique: dict[str, Start] = {}
    for each in found:
        unique.setdefault(content_hash(normalize(each.program)), each)
    return list(unique.values())


def told(start: Start) -> dict[str, Any]:
    """A start as a log has it: how far a walk comes depends on the clock, so that one that goes on begins with what the log says."""
    return {"name": start.name, "program": content_hash(start.program), "back": len(start.steps), "steps": list(start.steps),
            "text": program_text(start.program)}


def kept(events: Sequence[Mapping[str, Any]]) -> list[Start]:
    """The starts of a log; none where it does not say all of them as they were."""
    try:
        found = [Start(e["name"], parse_program(e["text"], e["name"]), tuple(e["steps"])) for e in events]
    except (KirError, KeyError):
        return []
    return found if all(content_hash(x.program) == e["program"] for x, e in zip(found, events, strict=True)) else []


def as_nvcc_takes(program: Program) -> Program:
    """A CUDA kernel as nvcc takes the file that it was read from (`kir.gate.counts.work.by_nvcc`), which also writes out a loop of a few rounds in which there
    are branches, with those inside it: a window of a filter with its borders."""
    def rounds(s: n.For) -> int:
        lo, hi, step = (int_value(x) for x in (s.lo, s.hi, s.step))
        return -(-(hi - lo) // step) if lo is not None and hi is not None and step else WRITTEN_OUT + 1

    def within(s: n.Stmt) -> int:
        """Rounds of what is inside; too many where it is nothing that is written out."""
        match s:
            case n.Let() | n.Store() | n.Alloc():
                return WRITTEN_OUT + 1 if any(isinstance(x, n.Expr) and isinstance(x.type, TileType) for x in walk(s)) else 1
            case n.If():
                return max((within(x) for x in (*s.then, *s.orelse)), default=1)
            case n.For() if s.kind == "unroll" and not s.attrs:
                return rounds(s) * max((within(x) for x in s.body), default=1)
            case _:
                return WRITTEN_OUT + 1

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, n.For) and new.kind == "serial" and any(isinstance(s, n.If) for s in walk(new))):
            return new
        return replace(new, kind="unroll") if 0 < rounds(new) * max(map(within, new.body), default=1) <= WRITTEN_OUT else new
    made: Program = transform(by_nvcc(program), leave)
    return made


def evenly_cut(program: Program, sizes: Mapping[str, int]) -> Program:
    """A program as a cost model is to see it where tensors are cut in parts by a tensor of offsets (a row of which loops run from one to the next), which only
    data say: all parts are alike long, so that the offset `e` is `e` times that. Other programs are as they are."""
    known = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}
    extents = {p.name: [int_value(substitute(d, known)) or 0 for d in p.of.shape] for p in program.params if isinstance(p.of, Buffer)}
    tables = {p.name for p in program.params if isinstance(p.of, Buffer) and p.role == "in" and p.of.dtype.is_integer and len(p.of.shape) == 1
              and polynomial(p.of.shape[0]).get(()) == 1 and extents[p.name][0] > 1}
    bounds, told = set[str](), set(tables)
    for k in program.kernels if tables else ():
        for s in statements(k.body):
            if isinstance(s, n.Let) and (names_read(s.value) | buffers_named(s.value)) & told:
                told |= set(s.names)
            elif isinstance(s, n.For) and (found := (names_read(s.lo) | names_read(s.hi) | buffers_named(s.lo) | buffers_named(s.hi)) & told):
                bounds |= found
                told.add(s.var.name)
    longest = max((extents[r.buffer.name][0] for k in program.kernels for r in regions(k) if r.index and r.buffer.name in extents
                   and r.buffer.name not in tables and (names_read(r.index[0]) | buffers_named(r.index[0])) & told), default=0) if bounds else 0

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, n.Load) and new.at.buffer.name in tables and len(new.at.index) == 1 and isinstance(at := new.at.index[0], n.Expr)):
            return new
        each = max(1, longest // (extents[new.at.buffer.name][0] - 1))
        return mul(cast(at, new.at.buffer.dtype), const(each, new.at.buffer.dtype)) if isinstance(at.type, DType) else new
    made: Program = transform(program, leave) if longest else program
    return made


def left_to_nvcc(program: Program) -> Program:
    """A CUDA kernel of which nvcc decides how many rounds of a loop are written out, as it does of the file that it was read from."""
    return replace(program, kernels=tuple(replace(k, attrs=n.attrs(**{**dict(k.attrs), NVCC_UNROLLS: True})) for k in program.kernels))


STRIDE = re.compile(r"\bfor\s*\([^;]*;[^;]*;([^{;]*)")
"""What a `for` of C++ does after each round, and what may follow it in the line."""


def as_launched(program: Program, text: str) -> Program:
    """A CUDA kernel as its own file has it compiled: nvcc writes no rounds out of a loop that goes on by what only the launch says (`i += blockDim.x`), while
    KIR's text of it says the number (the greatest of rows: 224 us, and 135 with the number, on an H200)."""
    lines = text.split("\n")

    def runtime(s: n.For) -> bool:
        line = lines[s.origin.line - 1] if s.origin is not None and 0 < s.origin.line <= len(lines) else ""
        found = STRIDE.search(line)
        names = re.findall(r"[A-Za-z_]\w*", found[1]) if found is not None else []
        said = [*names, *(x for name in names for made in re.findall(rf"\b{name}\s*=([^;=]*);", text) for x in re.findall(r"[A-Za-z_]\w*", made))]
        return bool({"blockDim", "gridDim"} & set(said))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(old, n.For) and isinstance(new, n.For) and old.kind == "serial" and not old.attrs and runtime(old)):
            return new
        return replace(new, kind="unroll", attrs=n.attrs(factor=1))
    made: Program = transform(program, leave)
    return made


def _back(steps: int) -> str:
    return f"{steps} step{'s' * (steps != 1)} back"


def fused(program: Program, setting: Setting) -> list[Start]:
    """The program with as many of its kernels in one as passes take: an elementwise kernel into the one that makes what it reads, kernels of which each CTA
    takes up its own CTA's results; their scratch in shared memory where it fits. None where none are fused."""
    now, steps = program, list[str]()
    while len(now.kernels) > 1 and (made := next(_fusions(now, FUSING, setting), None)) is not None:
        steps.append(made[0])
        now = made[1]
    if not steps:
        return []
    if (made := next(_fusions(now, ("localize-workspace",), setting), None)) is not None:
        steps.append(made[0])
        now = made[1]
    return [Start(f"{len(program.kernels)} kernels fused to {len(now.kernels)}", now, tuple(steps))]


def _fusions(program: Program, names: Sequence[str], setting: Setting) -> Iterator[tuple[str, Program]]:
    for name in names:
        for site in sites(pass_class(name).with_options({}), program):
            with contextlib.suppress(KirError):
                yield str(Step.of(site.params, anchor_text(program, site.path))), apply(program, site.params, site, context=setting.context).program


def _walk(program: Program, setting: Setting, seconds: float) -> Iterator[tuple[str, Program]]:
    """Steps back, each the first of the engine's candidates that lowers the measure, until none does."""
    problem, begun = setting.problem, time.monotonic()
    arguments = {"work_item": problem.work_item, "state": problem.state, "scatter": problem.spec.scatter}
    engine = (_OwnItems if isinstance(problem, ProgramProblem) else PassEngine)(arguments, context=setting.context)
    until, now = begun + seconds, program
    seen = {engine.content(now)}
    delayed = plan(program, engine, late=lambda: time.monotonic() > begun + AHEAD * seconds).delayed if engine.violations(program) else ()
    for _ in range(MOST_STEPS):
        if not engine.violations(now) or time.monotonic() > until:
            return
        step = next(_moves(engine, now, seen, delayed), None)
        if step is None:
            return
        text, now = step
        seen.add(engine.content(now))
        yield text, now


class _OwnItems(PassEngine):
    """What is known of a kernel that is its own problem: whether one thread is meant to compute an element or a row nobody says, so that a loop over results
    is as it should be unless its extent is a number, as a CTA's threads are."""

    def violations(self, program: Program) -> Sequence[Violation]:
        """What the predicate N finds, less loops over a size."""
        found = super().violations(program)
        tiled = any(int_value(s.hi) is not None and any(isinstance(x, n.Store) and x.at.buffer.space == "global" for x in walk(s))
                    for k in program.kernels for s in statements(k.body) if isinstance(s, n.For))
        return found if tiled else [v for v in found if v.clause != "work-item"]


def _moves(engine: PassEngine, program: Program, seen: set[str], delayed: Sequence[str]) -> Iterator[tuple[str, Program]]:
    measure = engine.measure(program)
    for candidate in engine.candidates(program, delayed):
        try:
            made = engine.backward(program, candidate).program
        except KirError:
            continue
        if engine.measure(made) < measure and engine.content(made) not in seen:
            yield candidate.text, made


def _naive(problem: Problem) -> Program | None:
    """The problem's naive program; None for a problem that has none: a model whose operators no such program says."""
    try:
        return problem.naive
    except KirError:
        return None


def _same_call(a: Program, b: Program) -> bool:
    """Whether both are called alike: tensors of the same names, dtypes and extents, and the same sizes and scalars."""
    def told(p: Program) -> dict[str, tuple[str, str]]:
        return {x.name: (x.role, f"{x.of.dtype} {[str(d) for d in x.of.shape]}" if isinstance(x.of, Buffer) else
                         str(x.of) if isinstance(x.of, DType) else "") for x in p.params}
    return told(a) == told(b)
