"""The walk's tie to the gate: compile, check and model one program, and compare neighbors."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path, PurePath
from queue import SimpleQueue
from typing import Any

from kir.base.copies import Copy
from kir.base.dataclass import dataclass
from kir.base.fork_map import may_be_copied
from kir.base.working import end, ending
from kir.gate import Verdict, gate_cpu, realized
from kir.gate.artifacts import ArtifactCache
from kir.gate.correctness import Runner
from kir.gate.cpu import correctness
from kir.gate.gpu import Gpu, Options, gate_gpu
from kir.gate.gpu.relative import program_problem
from kir.gate.realized import summary
from kir.gate.verdict import CorrectnessRecord
from kir.hardware import machine
from kir.hardware.target import Target, target
from kir.ir.nodes import Program
from kir.lineage.kept import KeptOutcomes
from kir.lineage.records.record import Header, Realization
from kir.lineage.walk import Judgement, Stage
from kir.problem import Problem, load_problem
from kir.surface import Artifact

SAMPLE_SECONDS = 0.6
"""Seconds for the samples of one state of a lineage."""
MOST_COPIES = 3
"""Processes beside this one that interpret: each holds what it has drawn, compiled and worked out for itself."""
PACKAGES = "site-packages"
MOST_SHOWN = 6
"""Differences between two compiled programs that a record names."""


INSTEAD = {"tilelang": "cuda", "triton": "cuda"}
"""Where a state is compiled that its own surface refuses. TileLang's compiler infers the layouts of all fragments together, and refuses states
between an expert and its naive end whose fragments it cannot reconcile; Triton writes a tile as a whole, and a naive thread writes one element of the
tile that it keeps. The CUDA backend lowers any tile program."""


def kept_folder() -> Path:
    """The folder of this user in which what the gate has found out is kept."""
    import platformdirs
    return Path(platformdirs.user_cache_dir("kir")) / "gate"


class Copies:
    """Copies of this process that judge correctness beside it, one program each at a time: Python runs on one core of a process. To be made while the
    process has no other threads."""

    def __init__(self, count: int) -> None:
        self.all = [Copy(_Correct()) for _ in range(min(count, MOST_COPIES) if may_be_copied() else 0)]
        self._free: SimpleQueue[tuple[Copy[_Asked, CorrectnessRecord], bool] | None] = SimpleQueue()
        for each in self.all:
            self._free.put((each, False))
        if not self.all:
            self._free.put(None)

    def correct(self, header: Header, expert: Program | None, program: Program, stopped: Callable[[], bool]) -> CorrectnessRecord | None:
        """What the next free one says of a program; None where one of them is gone, or there is none. All that are judged are of one walk."""
        free = self._free.get()
        if free is None:
            self._free.put(None)
            return None
        try:
            found = free[0].ask((None if free[1] else (header, expert), program, end()), stopped)
        except EOFError:
            self._free.put(None)
            return None
        self._free.put((free[0], True))
        return found

    def close(self) -> None:
        """End them."""
        for each in self.all:
            each.close()


_Asked = tuple[tuple[Header, Program | None] | None, Program, float | None]
"""The walk that a program is of, where that was not told yet; the program; and when its outcome is of no use any more."""


class _Correct:
    """What a copy does."""

    judge: CpuJudge

    def __call__(self, asked: _Asked, stopped: Callable[[], bool]) -> CorrectnessRecord:
        walk, program, at = asked
        if walk is not None:
            self.judge = CpuJudge.of(*walk)
        with ending(at):
            found = self.judge.correct(program, stopped)
        machine.give_back()
        return found


@dataclass(frozen=True)
class CpuJudge:
    """The gate without a GPU. Without a problem, the kernel that the walk starts from is the reference. A state that the surface refuses to
    compile is compiled as `INSTEAD` says, which its record says too; neighbors are compared on one surface."""

    surface: str
    targets: tuple[Target, ...]
    problem: Problem | None = None
    against: Program | None = None
    expert: Program | None = None
    """The kernel that the walk starts from: each state is tried at sizes at which it, too, does all that it can do."""
    kept: Path | None = field(default=None, kw_only=True)
    """Where compiled code and outcomes of cases are kept by their content, for the next walk."""
    header: Header | None = field(default=None, kw_only=True)
    copies: Copies | None = field(default=None, kw_only=True)
    """Processes that judge correctness as the header asks for it."""

    @classmethod
    def of(cls, header: Header, expert: Program | None = None) -> CpuJudge:
        """The judge that a lineage's header asks for."""
        problem = load_problem(header.problem) if header.problem else None
        return cls(header.surface, tuple(map(target, header.targets)), problem, None if problem else expert, expert, kept=kept_folder(), header=header)

    @cached_property
    def artifacts(self) -> ArtifactCache | None:
        """Compiled code that is kept."""
        return ArtifactCache(self.kept / "artifacts") if self.kept is not None else None

    @cached_property
    def runner(self) -> Runner | None:
        """Interprets cases, or knows what came of them."""
        return KeptOutcomes(self.kept / "outcomes").runner if self.kept is not None else None

    def gate(self, program: Program) -> Judgement:
        """Compile, check and model one program."""
        verdict, refused = self._compiled(program)
        return self._judgement(program, verdict, refused)

    def _compiled(self, program: Program, cache: ArtifactCache | None = None) -> tuple[Verdict, str]:
        """The CPU gate's verdict, and why the surface's own compiler refused where another one made what was judged."""
        verdict = gate_cpu(program, self.problem, self.surface, self.targets, against=self.against, cache=cache or self.artifacts,
                           runner=self.runner, instead=INSTEAD.get(self.surface, ""), also=self._also, correct=self.correct)
        machine.give_back()  # what the interpreter held, and the compilers beside it
        why = verdict.compile.passed_over
        return verdict, f"{why[0].id}: {why[0].message}" if why else ""

    @property
    def _also(self) -> tuple[Program, ...]:
        return (self.expert,) if self.expert is not None else ()

    def correct(self, program: Program, stopped: Callable[[], bool]) -> CorrectnessRecord:
        """Whether a program is right, judged in another process where there is one."""
        found = self.copies.correct(self.header, self.expert, program, stopped) if self.copies is not None and self.header is not None else None
        return found or correctness(program, self.problem, self.against, self._also, {}, self.runner, stopped)

    def _judgement(self, program: Program, verdict: Verdict, refused: str, measured: Mapping[str, tuple[float, float, float]] | None = None) -> Judgement:
        stage: Stage = "gate" if verdict.stage == "profile" else verdict.stage
        artifacts = {each.target: each for each in verdict.artifacts}
        emitted = verdict.emitted.text if verdict.emitted is not None else ""
        record = portable(verdict.record) | ({"refused_by": {self.surface: refused}} if refused else {})
        return Judgement(verdict.accepted, stage, verdict.reason, record, emitted, verdict.modelled(), artifacts, measured or {}, program,
                         INSTEAD[self.surface] if refused else self.surface)

    def realized(self, before: Judgement, after: Judgement) -> Realization:
        """Whether the compiled code of the optimized side (``before``) differs from that of the simpler side (``after``)."""
        both = {before.surface, after.surface}
        shared = INSTEAD.get(self.surface, "") if len(both) > 1 else ""
        fast, slow = (self._on(each, shared) for each in (before, after))
        each = {name: realized(slow[name], fast[name]) for name in sorted(slow) if name in fast}
        over = summary(each)
        differences = {name: _told(found.differs, fast[name]) for name, found in each.items() if found.differs}
        return Realization(realized=over.realized, reason="" if over.realized else over.reason, differences=differences)

    def _on(self, judgement: Judgement, surface: str) -> Mapping[str, Artifact]:
        """What was compiled of a program, anew on another surface where neighbors are compared there."""
        if not surface or judgement.surface == surface or judgement.program is None:
            return _artifacts(judgement)
        with ending(None):  # a step that is kept is told whole
            verdict = gate_cpu(judgement.program, self.problem, surface, self.targets, against=self.against, cache=self.artifacts, interpret=False)
        return {each.target: each for each in verdict.artifacts}


def portable(record: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict whose places in source files do not say where this machine keeps them: of a file of an installed package the part within the
    packages, of another absolute path the name."""
    made: dict[str, Any] = {key: _portable(value) for key, value in record.items()}
    if {"file", "line", "end_line"} <= set(made) and isinstance(made["file"], str):
        made["file"] = _within(made["file"])
    return made


def _portable(value: object) -> object:
    match value:
        case Mapping():
            return portable(value)
        case list() | tuple():
            return [_portable(each) for each in value]
        case _:
            return value


def _within(file: str) -> str:
    parts = PurePath(file).parts
    if PACKAGES in parts:
        return "/".join(parts[len(parts) - parts[::-1].index(PACKAGES):])
    return PurePath(file).name if PurePath(file).is_absolute() else file


def _artifacts(judgement: Judgement) -> Mapping[str, Artifact]:
    found: Mapping[str, Artifact] = judgement.artifact or {}
    return found


def _told(differs: tuple[str, ...], artifact: Artifact) -> str:
    """The first few differences in a line; the name of an only kernel says nothing."""
    only = f"{artifact.kernels[0].kernel}: " if len(artifact.kernels) == 1 else ""
    more = f"; and {len(differs) - MOST_SHOWN} more" if len(differs) > MOST_SHOWN else ""
    return "; ".join(each.removeprefix(only) for each in differs[:MOST_SHOWN]) + more


@dataclass(frozen=True)
class GpuJudge(CpuJudge):
    """The gate with a GPU: what the CPU gate accepts is run and measured, one program at a time, at the smallest timed shape. A time of what
    `INSTEAD` compiled is one of another device by name: between it and a time of the surface's own lies more than one step."""

    gpu: Gpu | None = None
    turn: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    @classmethod
    def on(cls, gpu: Gpu, header: Header, expert: Program) -> GpuJudge:
        """The judge that a lineage's header asks for, on a device. The device's architecture is compiled for beside the header's."""
        base = CpuJudge.of(header, expert)
        return cls(base.surface, (gpu.target,), base.problem, base.against, expert, gpu, kept=base.kept)

    @cached_property
    def _judged_by(self) -> Problem:
        assert self.expert is not None
        return self.problem if self.problem is not None else program_problem(self.expert, self.expert)

    def gate(self, program: Program) -> Judgement:
        """Compile, check, run and measure one program."""
        assert self.gpu is not None
        first, refused = self._compiled(program, self.gpu.cache)
        verdict = first
        if first.accepted:
            problem = self._judged_by
            shapes = problem.timed_for(program)
            smallest = min(shapes, key=lambda s: math.prod(s.sizes.values()), default=None)
            chosen = Options(shapes=(smallest.name,) if smallest else (), panel=False, budget=SAMPLE_SECONDS)
            with self.turn:
                verdict = gate_gpu(self.gpu, program, problem, INSTEAD[self.surface] if refused else self.surface, options=chosen, first=first)
        rows = [row for row in verdict.profile if row.kind == "measured" and row.interval is not None]
        named = {row.target: f"{row.target}, as {INSTEAD[self.surface]}" if refused else row.target for row in rows}
        measured = {named[row.target]: (row.seconds, *(row.interval or (0.0, 0.0))) for row in rows}
        return self._judgement(program, verdict, refused, measured)


@contextmanager
def judge_on(on: str, header: Header, expert: Program, copies: Copies | None = None) -> Iterator[CpuJudge]:
    """The judge of a gate, with what it holds open; without a device, `copies` judge what it is asked and end with it. Raises :class:`KirError` KIR-G004 where
    ``gpu`` finds no device."""
    if on != "gpu":
        try:
            yield replace(CpuJudge.of(header, expert), copies=copies)
        finally:
            if copies is not None:
                copies.close()
        return
    with Gpu.open() as gpu:
        yield GpuJudge.on(gpu, header, expert)


__all__ = ["CpuJudge", "GpuJudge", "judge_on"]
