"""The gate on a machine without a GPU: compile for real, interpret for correctness, model the profile. Fail-closed at every stage."""
from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path

import kir
from kir.analysis.algebra.equality import equal_over_reals
from kir.analysis.target.legalize import lacking, unlaunchable
from kir.base.diagnostic import Diagnostic, KirError, error
from kir.base.registry import registry
from kir.base.working import doing, late
from kir.gate.artifacts import ArtifactCache
from kir.gate.cases import RelativeCase, as_posed, problem_tests, relative_tests, tensor_names
from kir.gate.claims import apart, refusals, unshown
from kir.gate.correctness import Runner, check
from kir.gate.cost import profile
from kir.gate.inputs.nonfinite import nonfinite
from kir.gate.inputs.places import taken_apart
from kir.gate.inputs.sets import size_sets, unrolled_over
from kir.gate.proved.beside import decided_beside
from kir.gate.proved.fewer import fewer
from kir.gate.proved.versions import without_versions
from kir.gate.shapes import ANY, of_problem, of_programs
from kir.gate.verdict import AlgebraRecord, CompileRecord, CorrectnessRecord, ProfileRecord, Stage, Verdict
from kir.gate.widths import narrow
from kir.hardware.target import Target
from kir.ir.build import const, int_value
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.rules.verify import verify
from kir.ir.types import DType
from kir.ir.visit import substitute, with_own_statements
from kir.problem import Problem
from kir.surface import Artifact, Backend, Emitted, backend

MOST_ALGEBRA, LEAST_ALGEBRA = 100_000, 6
"""Operations on symbols that the algebra may take for a record; and the least product of the sizes that it is given."""
Shaped = tuple[str, Mapping[str, int]]
"""A shape's name and its sizes."""
OWN = ("", "kir")
"""Surfaces that mean IR text: the first backend that accepts the program compiles it, and none need."""
PREFERRED = ("triton", "cuda", "tilelang")


def gate_cpu(program: Program, problem: Problem | None, surface: str, targets: Sequence[Target], against: Program | None = None, *,
             names: Mapping[str, str] | None = None, cache: Path | ArtifactCache | None = None, interpret: bool = True, runner: Runner | None = None,
             written: Callable[[Backend, Emitted], None] | None = None, instead: str = "", also: Sequence[Program] = (), fresh: int = 0,
             algebra: bool = False, hazards: bool = False,
             correct: Callable[[Program, Callable[[], bool]], CorrectnessRecord] | None = None) -> Verdict:
    """The CPU gate's verdict on a specialized program.

    `surface` is what it is written in and compiled as (`kir`: whatever backend accepts it, and none need). Correctness is judged by
    `problem`, else relative to `against`; `names` gives the problem's tensor for a parameter of another name. Compiled artifacts are kept
    in `cache`, by the hash of what went in. Without `interpret` the correctness stage is left to who asks (the GPU gate, for a program that
    it has interpreted before); `runner` interprets its cases; `written` is told the source text once it is there. What `surface` refuses is compiled on
    `instead`, where that is given and takes it. Sizes are solved from the structure of the program and of those of `also`; `fresh` is added to the seeds
    of their inputs. With `algebra` the record also says whether the program is equal over the reals, for all inputs at small sizes, to `against` or the
    problem's own program; with `hazards` what is decided of them for every size, and one at sizes that the problem has refuses. `correct` judges correctness
    elsewhere, as `correctness` does, until what it is given says that nobody needs it any more. Compilers run beside the interpreter. A refusal is a verdict,
    not an error; KirError KIR-G001 only when neither a problem nor a program to compare with is given."""
    if problem is None and against is None:
        raise error("KIR-G001", "there is nothing to judge correctness by", needs="a problem, or a program to compare with")
    reference = problem.name if problem is not None else f"program {content_hash(against)[:12]}" if against is not None else ""
    program = with_own_statements(program)
    key = content_hash(program)
    shapes = profiled(program, problem, against)
    wrong = [d for d in verify(program) if d.severity == "error"]
    kept = ArtifactCache(cache) if isinstance(cache, Path) else cache
    doing(f"gate: compiling for {', '.join(t.name for t in targets)}, and interpreting")
    with ThreadPoolExecutor(max_workers=1) as beside:
        compiling = beside.submit(copy_context().run, _compile, program, (surface, instead) if instead else (surface,), targets, kept,
                                  shapes[0] if shapes else None, wrong, written or (lambda by, text: None))
        begun = time.perf_counter()
        right = CorrectnessRecord(reference, True, relative=problem is None)
        if interpret and not wrong:
            def stopped() -> bool:
                return late() or (compiling.done() and not compiling.result()[0].ok)
            right = correct(program, stopped) if correct is not None else correctness(program, problem, against, also, names or {}, runner, stopped, fresh,
                                                                                      algebra, hazards)
            if algebra and right.ok and (judge := against if against is not None else _posed(problem)) is not None:
                right = replace(right, algebra=_algebra(program, judge, problem, names or {}, right))
        interpreted = time.perf_counter() - begun
        if not compiling.done():
            doing("gate: waiting for the compilers")
        compiled, emitted, took = compiling.result()
    if compiled.ok and compiled.artifacts and (large := _over_grids(program, problem, shapes, targets)):
        compiled = replace(compiled, ok=False, refusals=large)
    spent = {"compile": took, "correctness": interpreted}
    tools = {"kir": kir.__version__, **{name: version for a in compiled.artifacts for name, version in a.tools}}

    def verdict(accepted: bool, stage: Stage, reason: str, right: CorrectnessRecord | None = None,
                rows: Sequence[ProfileRecord] = ()) -> Verdict:
        return Verdict(accepted, stage, reason, key, reference, compiled, right, tuple(rows), emitted, tools=tools, seconds=spent)

    if not compiled.ok:
        first = compiled.refusals[0]
        return verdict(False, "compile", f"{first.id}: {first.message}")
    if not right.ok:
        return verdict(False, "correctness", right.reason, right)
    begun = time.perf_counter()
    by_target = {a.target: a for a in compiled.artifacts}
    rows = [row for target in targets for row in profile(program, shapes, target, by_target.get(target.architecture.name))]
    spent["profile"] = time.perf_counter() - begun
    where = f"; not compiled: {compiled.absent[0]}" if compiled.absent else ""
    blind = f"; its check cannot tell {', '.join(problem.caveats)}" if problem is not None and problem.caveats else ""
    return verdict(True, "profile", f"right on {len(right.runs)} runs{where}{blind}", right, rows)


# ------------------------------------------------------------------------------------------------------------------------ compile

def _compile(program: Program, surfaces: Sequence[str], targets: Sequence[Target], cache: ArtifactCache | None, shape: Shaped | None,
             wrong: Sequence[Diagnostic], written: Callable[[Backend, Emitted], None]) -> tuple[CompileRecord, Emitted | None, float]:
    """Compile what the surface's launcher compiles at the first profiled shape, unless the program is `wrong`; with the seconds it took. Of several
    surfaces the first that takes it; where none does, what each says."""
    begun = time.perf_counter()
    if wrong:
        return CompileRecord(surfaces[0], False, refusals=tuple(wrong)), None, 0.0
    record, emitted = _compiled(program, surfaces[0], targets, cache, shape, written)
    for other in surfaces[1:]:
        if not record.ok:
            second, text = _compiled(program, other, targets, cache, shape, written)
            if second.ok:
                record, emitted = replace(second, passed_over=record.refusals), text
            else:
                record = replace(record, refusals=(*record.refusals, *second.refusals))
    return record, emitted, time.perf_counter() - begun


def _compiled(program: Program, surface: str, targets: Sequence[Target], cache: ArtifactCache | None,
              shape: Shaped | None, written: Callable[[Backend, Emitted], None]) -> tuple[CompileRecord, Emitted | None]:
    try:
        chosen, refusals = _backend(program, surface)
    except KirError as unknown:
        return CompileRecord(surface, False, refusals=unknown.diagnostics), None
    if chosen is None:
        if surface in OWN:
            said = tuple(f"no backend says this program ({d.id}: {d.message})" for d in refusals[:1])
            return CompileRecord("kir", True, absent=said), None
        return CompileRecord(surface, False, refusals=tuple(refusals)), None
    try:
        emitted = chosen.emit(program)
        written(chosen, emitted)
        launched = chosen.launched_with(emitted, shape[1]) if shape else emitted
    except KirError as refused:
        return CompileRecord(surface, False, refusals=refused.diagnostics), None
    artifacts: list[Artifact] = []
    faults: list[Diagnostic] = []
    for target in targets:
        if unlaunchable(program, target.architecture):
            faults += lacking(program, target.architecture)
            continue
        try:
            artifacts.append(cache.compiled(chosen, launched, target) if cache else chosen.compile(launched, target))
        except KirError as refused:
            faults += (*lacking(program, target.architecture), *refused.diagnostics)
    faults += _over_limits(artifacts, targets)
    absent = tuple(dict.fromkeys(a.absent for a in artifacts if a.absent))
    return CompileRecord(chosen.surface, not faults, tuple(artifacts), tuple(faults), absent, shape[0] if shape else ""), emitted


def _backend(program: Program, surface: str) -> tuple[Backend | None, list[Diagnostic]]:
    """The backend that compiles the program, or the diagnostics of the one that came nearest (fewest)."""
    known = [entry.name for entry in registry("kir.backends")]
    wanted = [surface] if surface not in OWN else [*(x for x in PREFERRED if x in known), *(x for x in known if x not in PREFERRED)]
    refusals: list[list[Diagnostic]] = []
    for name in wanted:
        candidate = backend(name)
        said = list(candidate.accepts(program))
        if not said:
            return candidate, []
        refusals.append(said)
    return None, min(refusals, key=len, default=[Diagnostic("KIR-G002", "no backend is installed", needs="kir plugins")])


def _over_limits(artifacts: Sequence[Artifact], targets: Sequence[Target]) -> list[Diagnostic]:
    """A configuration that compiles and cannot be launched is refused (references/gate.md, row 38)."""
    out = []
    for artifact, target in zip(artifacts, targets, strict=False):
        limits = target.architecture
        for k in artifact.kernels:
            if k.shared_bytes > limits.shared_per_cta:
                said = f"{k.kernel} takes {k.shared_bytes} bytes of shared memory; a CTA of {limits.name} has {limits.shared_per_cta}"
                out.append(Diagnostic("KIR-G003", said, subject=limits.name, needs="smaller tiles or fewer stages"))
            if k.threads * k.registers > limits.registers_per_cta or k.threads > limits.max_threads_per_cta:
                said = f"{k.kernel} takes {k.threads} threads of {k.registers} registers; {limits.name} cannot launch that"
                out.append(Diagnostic("KIR-G003", said, subject=limits.name, needs="fewer threads, or fewer registers each"))
    return out


def _over_grids(program: Program, problem: Problem | None, shapes: Sequence[Shaped], targets: Sequence[Target]) -> tuple[Diagnostic, ...]:
    """A grid that a timed shape makes larger than the driver launches: the second and third axes have 65,535 CTAs at most."""
    out = []
    for name, sizes in shapes if problem is not None else ():
        known = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}
        for k in program.kernels:
            for axis, *most in zip(k.grid, *(t.architecture.max_grid for t in targets), strict=False):
                extent = int_value(substitute(axis.extent, known))
                if extent is not None and most and extent > min(most):
                    out.append(Diagnostic("KIR-G003", f"{k.name} has {extent} CTAs along '{axis.name}' at shape '{name}'; {min(most)} can be launched",
                                          k.origin, k.name, needs="more work for a CTA, or this axis as the first one"))
    return tuple(out)


# ------------------------------------------------------------------------------------------------------------- correctness, profile

def correctness(program: Program, problem: Problem | None, against: Program | None, also: Sequence[Program], names: Mapping[str, str],
                runner: Runner | None, stopped: Callable[[], bool], fresh: int = 0, told: bool = False, hazards: bool = False) -> CorrectnessRecord:
    """The record of all cases of a program with statements of its own, as far as they have come once `stopped` says so; `told`: with what is only said, and
    refuses nothing; `hazards`: with those of every size. The other arguments are those of `gate_cpu`."""
    try:
        if problem is not None:
            program = as_posed(program, problem, names)
            shown, also = without_versions(program), (*also, *((against,) if against is not None else ()))
            tests = problem_tests(program, problem, names, also, fresh)
            right = check(program, tests, problem.name, runner=runner, stopped=stopped)
            broken = refusals(shown, problem, names, tests.cases, right.reached) if right.ok else ()
            space, judge = of_problem(program, problem, tensor_names(program, problem, names), ANY), None
        else:
            assert against is not None
            shown = without_versions(program)
            tests = relative_tests(program, against, also, fresh)
            right = check(program, tests, f"program {content_hash(against)[:12]}", relative=True, runner=runner, stopped=stopped)
            broken = unshown(shown, against, tests.cases, right.reached, not right.left_out) if right.ok else ()
            right = replace(right, weak=(*right.weak, *taken_apart(against)))
            if told and right.ok and (usual := next((c for c in tests.cases if isinstance(c, RelativeCase)), None)) is not None:
                right = replace(right, weak=(*right.weak, *nonfinite(program, against, usual.inputs, usual.scalars), *fewer(program, against)))
            space, judge = of_programs(program, against, ANY), against
        broken = broken or (apart(shown, right.checked) if right.ok else ())
        if right.ok and not broken:
            parted, beyond = narrow(program, space, judge)
            broken, right = tuple(parted), replace(right, weak=(*right.weak, *beyond))
        if right.ok and not broken and hazards:
            decided, broken = decided_beside(program, space)
            right = replace(right, hazards=decided)
        return _refused(right, broken) if broken else right
    except KirError as fault:
        first = fault.diagnostics[0]
        return CorrectnessRecord(problem.name if problem else "program", False, findings=fault.diagnostics, relative=problem is None,
                                 reason=f"{first.id}: {first.message}")


def _posed(problem: Problem | None) -> Program | None:
    """A problem's own program, where it comes with one."""
    try:
        return problem.naive if problem is not None else None
    except (KirError, OSError):
        return None


def _algebra(program: Program, judge: Program, problem: Problem | None, names: Mapping[str, str], right: CorrectnessRecord) -> AlgebraRecord:
    """What the algebra says at the smallest of the sizes that were run, but for those of next to nothing."""
    runs = sorted(right.runs, key=lambda r: (math.prod(r.sizes.values()) < LEAST_ALGEBRA, math.prod(r.sizes.values())))
    sizes, called = dict(runs[0].sizes), dict[str, str]()
    if problem is not None:
        theirs = tensor_names(judge, problem, {})
        called = {mine: own for mine, t in tensor_names(program, problem, names).items() for own, other in theirs.items() if t == other}
        sizes |= of_problem(program, problem, tensor_names(program, problem, names)).own(sizes)
    found = equal_over_reals(program, judge, sizes, MOST_ALGEBRA, called)
    return AlgebraRecord(found.status, dict(runs[0].sizes), found.why, found.elements)


def _refused(right: CorrectnessRecord, broken: tuple[Diagnostic, ...]) -> CorrectnessRecord:
    """The record of a program that gives right values and does not do what its problem says."""
    return replace(right, ok=False, findings=broken, reason=f"{broken[0].id}: {broken[0].message}")


def profiled(program: Program, problem: Problem | None, against: Program | None = None) -> list[Shaped]:
    """Where the profile is modelled: the problem's timed shapes that the program allows (else its largest), or sizes from the facts; what the program that it
    is judged by unrolls over stays small in this one too, so that both are modelled at the same sizes."""
    if problem is not None:
        allowed = problem.shapes_for(program)
        return [(s.name, problem.sizes_of(program, s)) for s in problem.timed_for(program) or allowed[-1:]]
    few = unrolled_over(program) | (unrolled_over(against) if against is not None else frozenset())
    shapes: list[Shaped] = [("large", sizes) for sizes in size_sets(program, (4096,), below=True, few=few) or size_sets(program, (1024, 256, 64), few=few)[:1]]
    sized = any(p.role == "size" and isinstance(p.of, DType) for p in program.params)
    return shapes or ([] if sized else [("fixed", {})])
