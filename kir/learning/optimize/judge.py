"""Who says what a candidate is worth: the CPU gate with the modelled time, or a device's gate with the measured one."""
from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol

from kir.analysis.target.legalize import legalize
from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.gate.counts.work import by_nvcc
from kir.ir.build import const, int_value
from kir.ir.canonical import content_hash
from kir.ir.nodes import Buffer, Program
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.learning.forecast.analytic import modelled as costs_of
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.starts import as_nvcc_takes, evenly_cut
from kir.learning.tune.rank import holds
from kir.learning.tune.search import Measured
from kir.problem import Shape
from kir.rewrite import Step
from kir.surface import NVCC_UNROLLS, backend

if TYPE_CHECKING:
    from kir.gate import Verdict
    from kir.gate.artifacts import ArtifactCache
    from kir.gate.cost import Cost
    from kir.gate.gpu import Gpu
    from kir.gate.gpu.oracle import Shared


WORTH, RECORDED = 0.8, 0.95
"""The part of a modelled time from which on another one is no gain that a patch is worth: of others' kernels that were to become less than 1.25 times
as fast, as many became slower on an H200 as faster. Of a recorded call, which is launched as it was recorded alone, the other part."""


HELD_UP = "the host waited "
"""How it is said that a call took the host longer than the device says that it ran."""


SURELY = 0.99
"""The same of a measured time: two of one kernel differ by less than the rest."""


LAST = 1 / 6
"""The part of a search's seconds that is kept for the last word on the best, where a device measures: with the interpreter and compute-sanitizer it takes
longer than that on a candidate. (It is judged twice where its facts are narrowed, which on the CPU is twice what a candidate took.)"""


UNPRICED = ("swizzle-shared", "pad-shared", "transpose-shared", "cache-policy", "multi-threaded-block", "retain-tile", "operand-reuse", "cache-converted-value",
            "invariant-hoist", "bring-once", "batch-loads", "stage-shared", "vectorize-global", "vectorize-shared", "coalesce", "async-copy", "pipeline", "mma",
            "raster-l2", "persistent")
"""Intents of passes whose effect a model prices too little to leave them out where it sees none: caches, banks, latencies, registers."""


class Judge(Protocol):
    """The gate, as a search needs it. `measures`: times are measured, so that candidates whose forecasts are alike may differ."""

    name: str
    measures: bool

    def prepare(self, programs: Sequence[tuple[Program, str]]) -> None:
        """What may be done for several programs, each with its surface, before they are judged."""

    def judge(self, program: Program, surface: str) -> Measured:
        """The gate's word on one."""
        ...

    def again(self, program: Program, surface: str) -> Measured:
        """The word on one that was right before, on inputs that it has not seen."""
        ...


@dataclass
class CpuJudge:
    """Compiled, interpreted against the problem, its time modelled for the target. `cache` keeps what was compiled."""

    setting: Setting
    cache: ArtifactCache | None = None
    compiles: bool = True
    name: str = "cpu"
    measures: bool = False
    compiled: set[tuple[str, str]] = field(default_factory=set)
    """Programs that this judge has compiled, each with its surface."""

    def prepare(self, programs: Sequence[tuple[Program, str]]) -> None:
        """Nothing: the gate compiles beside the interpreter."""

    def judge(self, program: Program, surface: str) -> Measured:
        """Accepted by the CPU gate, with the cost model's seconds at the shape from what was compiled."""
        verdict = self.verdict(program, surface)
        if not verdict.accepted:
            return Measured(math.inf, accepted=False, reason=verdict.reason)
        self.compiled.add((content_hash(program), surface))
        from kir.gate.cost import program_cost

        made = next((a for a in verdict.artifacts if a.kernels), None)
        seconds = sum(c.seconds for c in program_cost(_seen(program, self.setting), self.setting.shape.sizes, self.setting.target, made, surface or "cuda"))
        return Measured(float(f"{seconds:.6g}"))

    def again(self, program: Program, surface: str) -> Measured:
        """Interpreted with fresh seeds, and compiled where it was not: what a result promises no more of its sizes is another text. The time is the model's of
        the program as it is."""
        from kir.gate.cases import FRESH

        verdict = self.verdict(program, "kir" if (content_hash(program), surface) in self.compiled else surface, FRESH)
        if not verdict.accepted or (fault := "" if not self.compiles else as_called(program, self.setting, surface)):
            return Measured(math.inf, accepted=False, reason=verdict.reason if not verdict.accepted else fault)
        return Measured(float(f"{sum(c.seconds for c in modelled(program, self.setting, surface)):.6g}"))

    def verdict(self, program: Program, surface: str, fresh: int = 0) -> Verdict:
        """The CPU gate's whole verdict; nothing is compiled for surface `kir`."""
        from kir.gate.cpu import gate_cpu
        from kir.gate.gpu.relative import ProgramProblem

        problem, compiles = self.setting.problem, self.compiles and surface != "kir"
        surface, targets = (surface, [self.setting.target]) if compiles else ("kir", [])
        if isinstance(problem, ProgramProblem):
            return gate_cpu(program, None, surface, targets, problem.against, cache=self.cache, fresh=fresh)
        return gate_cpu(program, problem, surface, targets, cache=self.cache, fresh=fresh)


def as_called(program: Program, setting: Setting, surface: str) -> str:
    """What Triton's compiler says against a program as it is called at a setting's sizes: it compiles another text where they are multiples of 16, which not
    each program comes through. Nothing where it says nothing, and of other surfaces."""
    if surface != "triton":
        return ""
    whole = {name for name, value in setting.shape.sizes.items() if value % 16 == 0}
    try:
        emitted = backend(surface).emit(program)
        entries = tuple(replace(e, arguments=tuple(replace(a, divisor=16) if a.kind == "scalar" and a.source in whole and a.dtype.startswith(("i", "u")) else a
                                                   for a in e.arguments)) for e in emitted.entries)
        backend(surface).compile(replace(emitted, entries=entries), setting.target)
    except KirError as bad:
        return f"called at {setting.shape.name}: {bad.diagnostics[0].message}"
    return ""


@dataclass
class GpuJudge:
    """Right at secret shapes and timed on a device. Of each candidate the interpreter and the panel are left out, as `kir gate --on gpu` has them, and but
    with `replays` the timed calls made again in a process of their own and compared at their whole size, which takes longer than all else; and one that was
    right leaves its process to the next. `again` has all of these and a fresh process, and what it refuses is no result. `spent` says where the last
    candidate's seconds went, by the gate's stages; `turn` are those for which it waited for the device and `alone` those for which it had it alone, within
    the others. `shared` is what a search's gates have in common."""

    gpu: Gpu
    setting: Setting
    seconds: float = 0.3
    name: str = "gpu"
    measures: bool = True
    replays: bool = False
    shared: Shared | None = None
    spent: dict[str, float] = field(default_factory=dict)

    def prepare(self, programs: Sequence[tuple[Program, str]]) -> None:
        """Compile side by side what the gate will ask for; what does not compile is left to the gate to refuse."""
        from kir.surface import backend

        for surface in dict.fromkeys(s for _, s in programs):
            by, texts = backend(surface), []
            for program, _ in (x for x in programs if x[1] == surface):
                with contextlib.suppress(KirError):
                    texts.append(by.launched_with(by.emit(program), self.setting.shape.sizes))
            with contextlib.suppress(KirError):
                self.gpu.compiled(by, texts)

    def judge(self, program: Program, surface: str) -> Measured:
        """Correctness at secret shapes, then the time at the shape."""
        return self._told(program, surface, sanitize=False, interpret=False, replay=self.replays and self.setting.judged is None, shared=self.shared,
                          reuse=True)

    def again(self, program: Program, surface: str) -> Measured:
        """The whole gate, compute-sanitizer and interpreter too, with a secret of its own: other seeds and other shapes. Where the setting is judged elsewhere
        than it is timed, that first, and then the time."""
        if (at := self.setting.judged) is None:
            return self._told(program, surface)
        said = self._told(program, surface, at)
        return self._told(program, surface, sanitize=False, interpret=False, replay=False) if said.accepted else said

    def _told(self, program: Program, surface: str, at: Shape | None = None, **options: Any) -> Measured:
        from kir.gate.gpu import Options, gate_gpu
        from kir.learning.tune.device import told, with_shape

        shape = at or self.setting.shape
        problem, turns = with_shape(self.setting.problem, shape), self.gpu.turns
        chosen = Options(shapes=(shape.name,), panel=False, budget=self.seconds, **options)
        waited, had = turns.waited, turns.had
        verdict = gate_gpu(self.gpu, program, problem, surface, options=chosen)
        if not verdict.accepted and HELD_UP in verdict.reason:  # whoever shares the processors held the host up: no word on the kernel
            verdict = gate_gpu(self.gpu, program, problem, surface, options=chosen)
        self.spent = {**(verdict.device.seconds if verdict.device else {}), "turn": turns.waited - waited, "alone": turns.had - had}
        return told(verdict, shape)


def at_best(program: Program, setting: Setting, said: Measured) -> Measured:
    """What the model said of a CUDA kernel as given; or the time of it as nvcc takes its file, where that is faster."""
    other = as_nvcc_takes(program)
    if other == program or not said.accepted:
        return said
    word = Measured(float(f"{sum(c.seconds for c in modelled(other, setting, 'cuda')):.6g}"))
    return word if word.seconds < said.seconds else said


def nvccs_own(steps: Sequence[Step], surface: str) -> bool:
    """Whether steps do no more than what nvcc decides for itself: a loop that it was told to unroll took 1.45 times as long on an H200, and by the model less
    than before."""
    return surface == "cuda" and bool(steps) and all(s.name == "unroll" for s in steps)


def modelled(program: Program, setting: Setting, surface: str) -> Sequence[Cost]:
    """What the cost model says of a program that was not compiled, at a setting's sizes."""
    program = _seen(program, setting)
    return costs_of(program, tuple(sorted(setting.shape.sizes.items())), setting.target, surface or "cuda")


def _seen(program: Program, setting: Setting) -> Program:
    """A program as the cost model is to see it: with the rounds written out that nvcc does by itself, where that is left to it, and parts that data cut alike
    long."""
    program = evenly_cut(program, setting.shape.sizes)
    return by_nvcc(program) if any(dict(k.attrs).get(NVCC_UNROLLS) for k in program.kernels) else program


def refusal(program: Program, setting: Setting, surface: str) -> str:
    """Why a program cannot run: not on the target, not at the shape, not on the surface ("" where it can)."""
    if found := legalize(program, setting.target.architecture):
        return f"{found[0].id}: {found[0].message}"
    if not holds(program, setting.shape):
        return "its facts do not hold at these sizes"
    said = backend(surface).accepts(program)
    return f"{said[0].id}: {said[0].message}" if said else ""


def not_right(program: Program, setting: Setting, reason: str) -> KirError:
    """Why no search begins with a kernel: its problem's oracle says otherwise, it has a fault of its own, or it cannot be tried at all."""
    from kir.gate.correctness import NO_SHAPE
    from kir.gate.gpu.relative import ProgramProblem

    if not isinstance(setting.problem, ProgramProblem) and reason == NO_SHAPE:
        return error("KIR-U025", f"the kernel as given cannot be tried: at no shape of '{setting.problem.name}' do its facts hold and is it interpreted",
                     needs="smaller sizes: of a model's file, whole numbers that get_inputs is made of")
    if not isinstance(setting.problem, ProgramProblem):
        return error("KIR-U025", f"the kernel as given does not compute '{setting.problem.name}': {reason}", needs="the problem that it solves")
    if reason == NO_SHAPE and not any(p.role == "size" for p in program.params):
        return error("KIR-U025", "the kernel as given cannot be tried: nothing is a size, and with the numbers that it is launched with it is too large to be "
                     "interpreted", needs="host code in which sizes are variables, or a binding that names them (`sizes`)",
                     attempt="kir bind FILE -o FILE.toml, sizes in place of the numbers, then --bind FILE.toml")
    return error("KIR-U025", f"the kernel as given is not right: {reason}", needs="a kernel without this fault", attempt="kir check FILE, which says where")


def least(program: Program, setting: Setting, surface: str) -> float:
    """Seconds in which what whatever computes the same must move is moved."""
    return moved(program, setting.shape.sizes, modelled(program, setting, surface)) / setting.target.device.bandwidth


def moved(program: Program, sizes: Mapping[str, int], *costs: Sequence[Cost]) -> float:
    """Bytes that whatever computes the same must move: every tensor of a program once, or what of it those move whose costs these are (the most of it)."""
    return min(_bytes(program, sizes), max(sum(c.compulsory for c in each) for each in costs))


def _bytes(program: Program, sizes: Mapping[str, int]) -> float:
    """Bytes of a program's tensors, those read and written twice; infinite where an extent is not known."""
    known, total = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}, 0.0
    for p in program.params:
        if isinstance(p.of, Buffer):
            extents = [int_value(substitute(d, known)) for d in p.of.shape]
            if None in extents:
                return math.inf
            total += math.prod(x for x in extents if x is not None) * p.of.dtype.bytes * (2 if p.role == "inout" else 1)
    return total
