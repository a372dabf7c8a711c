"""A kernel in hand: read, run, checked, rewritten and restored, judged, compared, written, walked.

    k = kir.read("softmax.py")              # its binding is found where its launch is
    kir.check(k).findings                   # races, bounds, undefined values: () where there are none
    for site in kir.sites(k): print(site)
    k = kir.apply(k, "tile{extent=64}")
    kir.judge(k, problem="softmax").accepted
    print(kir.emit(k, "cuda"))

A function takes a kernel, a program, or what `read` takes. Each raises :class:`kir.KirError` with what the command line would print.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from html import escape
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, explanations, usage
from kir.base.registry import registry
from kir.base.store import write_atomic
from kir.faces.api.inputs import inputs_of
from kir.faces.api.named import pipeline_of
from kir.faces.api.pages import page as page_of
from kir.faces.api.places import BOTH, one_by_one
from kir.faces.report.page import page
from kir.faces.report.written import write_report
from kir.gate import Verdict, gate_cpu
from kir.gate.proved import Proved, proved
from kir.gate.proved.in_turn import require_in_turn
from kir.gate.proved.unsaid import as_one, require_apart, require_own, require_said
from kir.gate.proved.widths import require_wide, with_widths_said
from kir.hardware import machine
from kir.hardware.target import target as named
from kir.interp import Result
from kir.interp import run as interpret
from kir.ir.binding import Binding
from kir.ir.canonical import content_hash
from kir.ir.changes.diff import Diff, render_html, render_terminal
from kir.ir.changes.diff import diff as difference
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import check as verified
from kir.learning.forecast import Forecast, Pair
from kir.learning.forecast.choosing import forecaster
from kir.lineage.engine import PassEngine
from kir.lineage.judge import judge_on
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Header, Lineage
from kir.lineage.run import tools, usual_targets, walk_back
from kir.lineage.walk import Budget
from kir.problem import Comparison, load_problem
from kir.rewrite import Pipeline, Trace
from kir.rewrite.residue import Residue
from kir.surface import backend
from kir.surface.oracles import named_for
from kir.surface.reading import load_expert, own_surface, read_text

TARGETS = ("sm_80", "sm_90a")


class Shown:
    """What shows itself in a notebook says the same, as text, where there is none."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]


@dataclass(frozen=True, repr=False)
class Kernel(Shown):
    """A program with the steps that were taken to it. `surface` is the language that it came in (`kir` for IR text), `binding` the text of the binding
    that it was read under, `unsaid` those of its facts that nothing says, `joined` tensors for which
    its launch passes one, `written` the program as it was written, before its normal form."""

    trace: Trace
    name: str
    surface: str = "kir"
    source: str = ""
    binding: str = ""
    unsaid: frozenset[str] = frozenset()
    joined: frozenset[tuple[str, ...]] = frozenset()
    written: Program | None = None

    @property
    def program(self) -> Program:
        """The program as it is now."""
        return self.trace.program

    @property
    def as_written(self) -> Program | None:
        """The program as it was written, as long as no step was taken; IR text is written as it is."""
        return None if self.trace.steps else self.written or self.program if self.surface == "kir" else self.written

    @property
    def hash(self) -> str:
        """The content hash of the program."""
        return content_hash(self.program)

    @property
    def pipeline(self) -> str:
        """The steps taken so far, as a pipeline's text that works on other programs too."""
        return str(Pipeline(tuple(replace(step, residue=Residue(), path=None, hash="") for step in self.trace.pipeline.steps)))

    @property
    def text(self) -> str:
        """The program as IR text."""
        return program_text(self.program)

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        taken = f"<p><code>{escape(self.pipeline)}</code></p>" if self.trace.steps else ""
        return _shown(self.text, f"<p><b>{escape(self.name)}</b>, {escape(self.surface)}</p>{taken}<pre>{escape(self.text)}</pre>")


@dataclass(frozen=True, repr=False)
class Ran(Shown):
    """A run on the CPU: its outputs by name, the findings of the checking mode, what was counted, and how outputs compare with the problem's (None without
    one)."""

    result: Result
    scalars: Mapping[str, int | float]
    verdict: Comparison | None = None

    @property
    def ok(self) -> bool:
        """Whether no finding is an error, and the outputs are right where a problem judges them."""
        return not self.result.errors and (self.verdict is None or self.verdict.ok)

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """Hazards, as located diagnostics."""
        return tuple(f.diagnostic() for f in self.result.findings)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        sizes = ", ".join(f"{name}={value}" for name, value in self.scalars.items())
        right = "" if self.verdict is None else ", right" if self.verdict.ok else ", wrong"
        said = f"{'no hazards' if not self.findings else f'{len(self.findings)} findings'}{right} at {sizes}"
        found = "".join(f"<pre>{escape(str(f))}</pre>" for f in self.findings)
        return _shown("\n\n".join([said, *map(str, self.findings)]), f"<p><b>{escape(said)}</b></p>{found}")


@dataclass(frozen=True)
class Site:
    """A place where a pass applies: the step that does it, the direction, the verdict of each precondition by id, and the ids that refuse it."""

    step: str
    pass_name: str
    direction: str
    anchor: str
    verdicts: Mapping[str, Any] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"{self.step}{f'  refused: {chr(44).join(self.refused)}' if self.refused else ''}"


class Sites(Shown, tuple[Site, ...]):
    """Sites in their order: a tuple, which shows itself as a table in notebooks."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        rows = "".join(f"<tr><td><code>{escape(s.step)}</code></td><td>{escape(', '.join(s.refused) or 'applies')}</td></tr>" for s in self)
        return _shown("\n".join(map(str, self)), f"<table><tr><th>step</th><th>verdict</th></tr>{rows}</table>")


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """The structural difference of two programs."""

    diff: Diff

    def __str__(self) -> str:
        return render_terminal(self.diff)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return _shown(str(self), render_html(self.diff))


@dataclass(frozen=True, repr=False)
class Walked:
    """A lineage that was walked, in its folder."""

    lineage: Lineage
    folder: Path
    exact: bool

    @property
    def report(self) -> Path:
        """The report's page."""
        return self.folder / "report.html"

    @property
    def steps(self) -> tuple[str, ...]:
        """The forward steps, from the naive program to the kernel."""
        return tuple(step.forward for _, step in self.lineage.transitions())

    def __repr__(self) -> str:
        return f"{self.folder}: {len(self.steps)} steps, ended {self.lineage.outcome.ended}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        html = page(self.lineage, Folder(self.folder), lambda a, b: render_html(difference(a, b)), None)
        frame = f'<iframe style="width:100%;height:40em;border:0" srcdoc="{escape(html, quote=True)}"></iframe>'
        return _shown("\n".join(self.steps), frame)


Source = Kernel | Program | str | Path


def read(source: Source, binding: str | Path | Binding | None = None, problem: str = "") -> Kernel:
    """A kernel: IR text or its file (``FILE.kir``), or ``FILE[::KERNEL]`` of a surface under a binding, or under the one that its launch gives, with the names
    that a `problem` has for its tensors."""
    match source:
        case Kernel():
            return source
        case Program():
            return Kernel(Trace(source), source.name)
        case str() if source.lstrip().startswith("kir 1"):
            program = parse_program(source)
            verified(program)
            return Kernel(Trace(program), program.name)
    text = str(source)
    if text.endswith(".kir") and binding is None:
        program = parse_program(read_text(Path(text)), text)
        verified(program)
        return Kernel(Trace(program), program.name, source=text)
    expert = load_expert(text, Path(binding) if isinstance(binding, str) else named_for(text, problem)[1] if problem and binding is None else binding)
    return Kernel(Trace(expert.program), expert.name, expert.surface, expert.source, expert.binding, expert.unsaid, expert.joined, expert.written)


def run(kernel: Source, problem: str = "", sizes: Mapping[str, int | float] | None = None, *, check: bool = False, shape: str = "",
        distribution: str = "normal", seed: int = 0) -> Ran:
    """Run a kernel on the CPU: under a problem at one of its shapes, judged by its oracle in float64, or on random inputs at `sizes`."""
    program = read(kernel).program
    arrays, scalars, judged = inputs_of(program, problem, shape, distribution, seed, dict(sizes or {}))
    ran = interpret(program, arrays, scalars, mode="check" if check else "fast", traffic=check)
    return Ran(ran, scalars, judged(ran.outputs) if judged is not None else None)


def check(kernel: Source, problem: str = "", sizes: Mapping[str, int | float] | None = None, **more: Any) -> Ran:
    """Run a kernel as a suspicious machine would: races, missing barriers, undefined values, places out of bounds."""
    return run(kernel, problem, sizes, check=True, **more)


def prove(kernel: Source, runs: int = 6) -> Proved:
    """What holds for every size, grid and order of threads: races, bounds, barriers, undefined values, alignment; each proved, refuted by sizes at which
    one of at most `runs` runs shows the hazard, or not decided, with why. Raises KirError KIR-Y001 for facts that exclude one another."""
    held = read(kernel)
    return proved(as_one(held.program, held.joined), runs, held.unsaid, held.surface, held.written if not held.trace.steps else None)


def sites(kernel: Source, only: Sequence[str] = (), direction: str = "forward") -> Sites:
    """Where passes apply (all, or `only` some), each with the verdicts of its preconditions; `direction` is forward, backward or both."""
    if direction not in ("forward", "backward", "both"):
        raise usage("KIR-C002", f"there is no direction '{direction}'", needs="forward, backward or both")
    return Sites(sites_of(read(kernel).program, only, direction))


def sites_of(program: Program, only: Sequence[str] = (), direction: str = "forward") -> Iterator[Site]:
    """The same as they are found: a large program has thousands."""
    directions = [each for each in BOTH if direction in ("both", each)]
    for name in only or [entry.name for entry in registry("kir.passes")]:
        for row in one_by_one(name, program, directions):
            yield Site(row["step"], row["pass"], row["direction"], row["anchor"], row["verdicts"], tuple(row["refused"]))


def apply(kernel: Source, pipeline: str) -> Kernel:
    """The kernel after the steps of a pipeline: its text, a file, or the name of one that comes with KIR. A step that is refused changes nothing."""
    held = read(kernel)
    trace = held.trace
    for step in pipeline_of(pipeline).steps:
        trace = trace.then(step)
    return replace(held, trace=trace)


def undo(kernel: Kernel, steps: int = 1) -> Kernel:
    """The kernel without the last steps that were taken to it."""
    if not 0 <= steps <= len(kernel.trace.steps):
        raise usage("KIR-C002", f"{steps} steps cannot be undone: {len(kernel.trace.steps)} were taken")
    return replace(kernel, trace=kernel.trace.undo(steps))


def judge(kernel: Source, problem: str = "", against: Source | None = None, targets: Sequence[str] = TARGETS, surface: str = "") -> Verdict:
    """The CPU gate's verdict: compiled for the targets where the machine has the compilers, right under a problem or as another kernel is, and its
    profile modelled."""
    if not problem and against is None:
        raise usage("KIR-G001", "there is nothing to judge correctness by", needs="a problem, or another kernel")
    held = read(kernel)
    beside = read(against) if against is not None else None
    other = beside.program if beside is not None else None
    own = surface or own_surface(held.program, held.surface)
    wanted = load_problem(problem) if problem else None
    require_said(held.program, held.unsaid, wanted, other)
    require_apart(held.program, held.joined)
    require_in_turn(held.program, held.surface)
    require_wide(held.as_written, beside.as_written if beside is not None else None)
    return with_widths_said(gate_cpu(held.program, wanted, own, [named(t) for t in targets], other, algebra=True, hazards=True), held.as_written)


def nvcc_would(program: Program, surface: str) -> bool:
    """Whether a kernel that its own surface's compiler is lacking for could be compiled as CUDA on this machine."""
    return surface != "cuda" and machine.toolkit() is not None and not backend("cuda").accepts(program)


def diff(a: Source, b: Source) -> Difference:
    """What differs between two kernels; what moved is shown as moved."""
    return Difference(difference(read(a).program, read(b).program))


def emit(kernel: Source, surface: str = "") -> str:
    """The kernel as text of a surface: cuda, triton, tilelang, or IR text (`kir`); by default its own."""
    held = read(kernel)
    chosen = surface or own_surface(held.program, held.surface)
    if chosen == "kir":
        return held.text
    return backend(chosen).emit(held.program).whole()


def walk(kernel: Source, folder: str | Path = "", problem: str = "", *, steps: int = 400, seconds: float = 0.0, targets: Sequence[str] = (),
         surface: str = "", told: Any = None) -> Walked:
    """Walk a kernel back to naive, a gated step at a time, into a folder (``NAME.lineage`` here): the lineage, its programs, cards and report. `told` is
    called with a line for each program that is judged. The same call goes on with a walk that was stopped."""
    held = read(kernel)
    require_own(held.program, held.unsaid, held.joined, load_problem(problem) if problem else None)
    root = Path(folder or f"{held.name}.lineage")
    budget = Budget(steps, 1000, seconds)
    own = surface or own_surface(held.program, held.surface)
    header = Header(expert=held.name, source=held.source, surface=own, binding=held.binding, problem=problem, gate="cpu",
                    targets=tuple(targets) or usual_targets(held.program, own), assume=(), budget=budget.to_json(), tools=tools())
    engine, place = PassEngine.of(header), Folder(root)
    with judge_on("cpu", header, held.program) as by:
        lineage = walk_back(held.program, header, engine, by, place, budget, progress=told or (lambda text: None))
    return Walked(lineage, root, write_report(lineage, place, engine).ok)


def forecast(before: Source, after: Source, sizes: Mapping[str, int], target: str = "h200", step: str = "", model: str = "") -> Forecast:
    """What the way from one kernel to the other is likely to bring at `sizes` on a device, before anything is measured: a distribution over the speedup,
    how likely it fails, and the resources that move. `model`: `analytic`, `learned` or `language`; by default the learned one, or the analytic one
    where that cannot be had. Raises :class:`KirError` for sizes that are no launch."""
    first, second = read(before), read(after)
    return forecaster(model)(Pair(first.program, second.program, dict(sizes), named(target), step, own_surface(second.program, second.surface)))


def explain(id: str) -> str:
    """What the id of a diagnostic means, and what to do about it; or the text of a page of the documentation."""
    if (found := page_of(id)) is not None:
        return found.read_text(encoding="utf-8").rstrip("\n")
    wanted = id.upper() if id.upper().startswith("KIR-") else f"KIR-{id.upper()}"
    row = explanations().get(wanted)
    if row is None:
        raise usage("KIR-C004", f"there is no diagnostic '{id}'", attempt="kir explain")
    return f"{row.id}  {row.title}\n\n{row.explain}\n\nWhat to do: {row.mend}"


def save(kernel: Source, file: str | Path) -> Path:
    """Write a kernel as IR text; the file holds the whole text or what it held before."""
    write_atomic(Path(file), read(kernel).text)
    return Path(file)


def _shown(plain: str, html: str) -> dict[str, str]:
    return {"text/plain": plain, "text/html": html}


__all__ = ["Difference", "Kernel", "KirError", "Ran", "Site", "Walked", "apply", "check", "diff", "emit", "explain", "forecast", "judge", "prove", "read",
           "run", "save", "sites", "undo", "walk"]
