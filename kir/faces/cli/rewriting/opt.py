"""run passes over a program and print the result

With --tuned PROBLEM, the pipeline (or, without one, FILE) is a subject of `kir tune`, whose holes are filled as found best for --shape; FILE may
be the problem's naive program at any of its dtypes.
The pipeline is text such as `tile{axis=0 extent=64}@main; ~unroll@main/k_loop`, or the name of a file that holds one (as text or JSON).
With --in-place, what the passes changed is written into the kernel's source: shown as a unified diff, and written with --write.
"""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kir.base.diagnostic import KirError
from kir.faces.cli._options import belong, conditions
from kir.faces.cli._program import read, written
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from kir.base.diagnostic import Diagnostic
    from kir.ir.nodes import Program
    from kir.rewrite import Trace
    from kir.rewrite.pipelines.text import Step


def command(
    file: Annotated[str, typer.Argument(help="FILE.kir, or FILE[::KERNEL] of a surface; package:path names a file of an installed package")],
    pipeline: Annotated[str, typer.Option("--pipeline", "-p", help="steps, a file that holds them, or the name of a pipeline that comes with KIR")] = "",
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel")] = None,
    emit: Annotated[Literal["kir", "cuda", "triton", "tilelang"], typer.Option(help="what to print")] = "kir",
    max_undo: Annotated[int | None, typer.Option("--max-undo", min=0, help="with --emit: how many passes may be undone that the "
                                                    "surface cannot say (as many as a second is enough for)")] = None,
    trace: Annotated[bool, typer.Option(help="say what each step did and why it was allowed")] = False,
    assume: Annotated[list[str] | None, typer.Option(help="a precondition to assume where it cannot be decided (may be repeated)")] = None,
    guard: Annotated[list[str] | None, typer.Option(help="a precondition to check at launch instead (may be repeated)")] = None,
    tuned: Annotated[str, typer.Option(help="fill the holes of a tuned subject for this problem (name or name:dtype)")] = "",
    shape: Annotated[str, typer.Option(help="with --tuned: a shape of the problem, or M=..,N=..,K=..")] = "",
    general: Annotated[bool, typer.Option("--fallback-kernel", help="with --tuned: a second kernel for sizes at which the facts do not hold")] = False,
    target: Annotated[str, typer.Option(help="what preconditions are judged for; with --tuned, the device that it was tuned on (h200)")] = "",
    force: Annotated[bool, typer.Option(help="apply steps whose preconditions are refused")] = False,
    in_place: Annotated[bool, typer.Option("--in-place", help="edit the changed statements of the source, shown as a diff")] = False,
    write: Annotated[bool, typer.Option("--write", help="with --in-place: write the source, and the binding where the launch changed")] = False,
) -> Result:
    """Run a pipeline of passes over a program and print the result."""
    from dataclasses import replace

    from kir.faces.api.named import pipeline_of
    from kir.hardware.target import target as named
    from kir.ir.canonical import content_hash
    from kir.ir.printer import program_text
    from kir.lineage.carrier import misfits, unfilled
    from kir.rewrite import Context, Pipeline, Trace
    from kir.rewrite.driver import notes
    from kir.rewrite.pipelines.pipeline import pass_of
    from kir.rewrite.registry import failed

    if not tuned:
        belong("opt", "--tuned", {"--shape": shape, "--fallback-kernel": general})
    if emit == "kir":
        belong("opt", "--emit", {"--max-undo": max_undo})
    if not in_place:
        belong("opt", "--in-place", {"--write": write})
    if tuned:
        base, steps = _tuned(file, pipeline, bind, tuned, shape, target or "h200", general)
    else:
        base, steps = read(file, bind), pipeline_of(pipeline).steps if pipeline else ()
    done, context = Trace(base), Context(named(target)) if target else Context()
    wanted, checked = conditions(assume, "--assume"), conditions(guard, "--guard")
    warnings: list[Diagnostic] = []
    taken: list[Step] = []
    for step in steps:
        cls = pass_of(step)
        known = {p.id for p in cls.preconditions}
        step = replace(step, assume=step.assume | (wanted & known), guard=step.guard | (checked & known), force=step.force or force)
        try:
            done = done.then(step, context)
        except KirError as bad:
            raise _with_hint(bad, file, bind, step, len(taken)) from bad
        except Exception as bad:
            raise KirError(replace(failed(cls, "here", bad), severity="error")) from bad
        taken.append(step)
        warnings += list(notes(done.steps[-1].witness.params, done.steps[-1].record.verdicts))
    if in_place:
        return _edited(file, bind, done, str(Pipeline(tuple(taken))), write, warnings)
    text = program_text(done.program)
    if left := unfilled(done.program):
        warnings += [replace(d, severity="warning") for d in (*left, *misfits(done.program))]
    if emit != "kir":
        done, text, said = written(done, emit, max_undo)
        warnings += said
        taken += done.pipeline.steps if said else ()
    explained = "".join(f"{line}\n" for number in range(len(done.steps)) for line in done.explain(number).splitlines()) if trace else ""
    shown = "".join(f"# {line}\n" for line in explained.splitlines()) + text
    data = {"hash": content_hash(done.program), "pipeline": str(Pipeline(tuple(taken))), "emit": emit, "text": text}
    if trace:
        data["trace"] = json.loads(json.dumps(done.to_json()))
    return Result(data, shown, diagnostics=tuple(warnings))


def _with_hint(bad: KirError, file: str, bind: Path | None, step: Step, before: int) -> KirError:
    """A refusal because a step applies nowhere, with the command that says why."""
    from dataclasses import replace

    under = f"--bind {quote(str(bind))} " if bind else ""
    look = f"kir sites {quote(str(file))} {under}--pass {step.name}{' (of what the steps before it make)' if before else ''}"
    return type(bad)(*(replace(d, attempt=look) if d.id == "KIR-R004" and not d.attempt else d for d in bad.diagnostics))


def _edited(file: str, bind: Path | None, done: Trace, pipeline: str, write: bool, warnings: list[Diagnostic]) -> Result:
    """The kernel's source with the changed statements rewritten; the binding too, where grid or launch options changed."""
    from kir.base.diagnostic import error
    from kir.base.store import write_atomic
    from kir.ir.binding import Binding
    from kir.ir.canonical import content_hash
    from kir.surface.edits import History, edit_source
    from kir.surface.edits.splice import unified
    from kir.surface.reading import kernel_of, located

    path, name = located(file)
    if path.suffix == ".kir" or bind is None:
        raise error("KIR-C105", f"{file} cannot be edited in place", needs="FILE::kernel of a source file, and --bind BINDING.toml")
    _, ref = kernel_of(path, name)
    history = History.of_user()
    edit = edit_source(ref.surface, path, ref.name, Binding.read(bind), done.base, done.program, history)
    binding_before = bind.read_text(encoding="utf-8")
    binding_after = binding_before if edit.new_binding == edit.binding else edit.new_binding.text()
    diff, binding_diff = edit.diff(), unified(binding_before, binding_after, bind.name)
    if write:
        edit.write(done.base, history)
        if binding_after != binding_before:
            write_atomic(bind, binding_after)
    data = {"hash": content_hash(done.program), "pipeline": pipeline, "level": edit.level, "passed_over": list(edit.passed_over),
            "spans": [[s.start, s.end] for s in edit.splices], "diff": diff, "binding_diff": binding_diff, "written": write}
    shown = diff + binding_diff
    return Result(data, shown if shown else "nothing to change", diagnostics=tuple(warnings))


def _tuned(file: str, pipeline: str, bind: Path | None, problem: str, shape: str, target: str,
           general: bool) -> tuple[Program, tuple[Step, ...]]:
    """A subject of `kir tune` as it was found best: a pipeline for FILE, or the program that FILE itself is."""
    from kir.base.diagnostic import usage
    from kir.hardware.target import target as named
    from kir.learning.tune import tuned_program, tuned_text
    from kir.learning.tune.rank import assumed
    from kir.learning.tune.space import find_space
    from kir.problem import load_problem
    from kir.problem.problem import shape_of
    from kir.rewrite import Pipeline

    if not shape:
        raise usage("KIR-C002", "--tuned needs the sizes that it was tuned for", needs="--shape NAME, or --shape M=..,N=..,K=..")
    space, wanted = find_space(pipeline or file), load_problem(problem)
    at, device = shape_of(wanted, shape), named(target)
    if general:
        from kir.learning.tune import general as for_all

        return for_all(space, tuned_program(space, wanted, at, device), wanted, device), ()
    if space.kind == "pipeline":
        given = read(file, bind)
        base = wanted.naive if given == load_problem(wanted.folder).naive else given
        return assumed(base, space), Pipeline.parse(tuned_text(space, wanted, at, device), str(space.file)).steps
    if pipeline:
        raise usage("KIR-C002", f"-p {pipeline}: '{space.name}' tunes a {space.kind}, no pipeline",
                    attempt=f"kir opt {pipeline} --tuned {problem} --shape {shape}")
    return tuned_program(space, wanted, at, device), ()
