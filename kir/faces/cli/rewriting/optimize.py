"""find a faster kernel: a kernel in, a faster kernel out, with what each step brought

FILE is FILE.kir, FILE[::KERNEL] of a surface (with --bind where its launch is not found), a binding that `kir capture` wrote, or a FlashInfer-Trace
definition (.json); without it the search begins with the naive program of --problem. Every candidate passes the gate before it counts: on the CPU times
are modelled, with --on gpu measured.
With several --shape it writes a table: each entry is found and gated at its shape, and the kernel as given stays for all other sizes.
Ctrl-C ends a search with the best so far; --log keeps every event: one that was killed goes on from it. --learn trains the policy from logs, to -o.
With --package, FILE is a folder of calls that `kir capture` recorded: those of a package are ranked by what would be saved and searched under one budget;
what is found goes to the folder -o, as patches, and as an overlay for PYTHONPATH. The same command over the same folder goes on where it ended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kir.faces.cli._options import belong, can_be_written
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from kir.base.diagnostic import Diagnostic, KirError
    from kir.learning.optimize.inputs import Subject
    from kir.learning.optimize.outputs import Written
    from kir.learning.optimize.search import Budget, Found


INTERRUPTION = 130
"""The exit code of a run that the user stopped, as shells have it."""


def command(
    file: Annotated[str, typer.Argument(help="what to make faster; without it, the naive program of --problem")] = "",
    problem: Annotated[str, typer.Option(help="what it computes: a name, name:dtype, a folder, or a KernelBench file; else what FILE does")] = "",
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="where to be fast: a shape of the problem, or M=..,N=..; by default the first timed one; repeated "
                                                         "it gives a table of kernels by size")] = None,
    target: Annotated[str, typer.Option(help="the device that is modelled, and compiled for on the CPU")] = "h200",
    on: Annotated[Literal["cpu", "gpu"], typer.Option(help="where candidates are gated")] = "cpu",
    budget: Annotated[str, typer.Option(help="where to stop: candidates gated, seconds, dollars for models")] = "candidates=20,seconds=180,usd=0",
    surface: Annotated[str, typer.Option(help="the surface to write: cuda, triton, tilelang, any; by default the input's own, else any")] = "",
    output: Annotated[Path | None, typer.Option("-o", "--output", callback=can_be_written,
                                                help="OUT.patch an edit of the file, OUT.kir IR text, else the kernel's text")] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="edit the file itself")] = False,
    log: Annotated[Path | None, typer.Option(callback=can_be_written,
                                             help="every event of the search (JSON lines): it resumes from there, and replays")] = None,
    policy: Annotated[Path | None, typer.Option(help="which plan to try next; by default the one that comes with KIR")] = None,
    compile: Annotated[bool, typer.Option(help="compile candidates, where the CPU gates them; without it they are only interpreted")] = True,
    workers: Annotated[int, typer.Option(min=1, help="processes that gate candidates on the CPU")] = 1,
    gpus: Annotated[str, typer.Option(help="the GPUs to gate on, as 0,2; by default all of one kind that nobody else uses")] = "",
    cluster: Annotated[str, typer.Option(help="gate on a Ray cluster: HOST:PORT, auto, or local for one of this machine's")] = "",
    package: Annotated[str, typer.Option(help="optimize the recorded calls of this package, or of any")] = "",
    learn: Annotated[list[Path] | None, typer.Option(help="train the policy from these logs instead of searching (may be repeated)")] = None,
    cache: Annotated[Path | None, typer.Option(help="a folder in which compiled artifacts are kept")] = None,
) -> Result:
    """Find a faster kernel, under a budget, and say why it is right and what each step brought."""
    from contextlib import nullcontext

    from kir.base.store import claimed
    from kir.learning.optimize.forms.sized import at_its_own
    from kir.learning.optimize.inputs import as_tuned, judged_for, shape_for, sizes_in, subject, with_sizes

    if learn:
        return _learned(learn, output)
    from kir.faces.cli.rewriting._optimizing import Where, package_run, search_run
    from kir.hardware.target import target as named
    from kir.learning.optimize.plan import INTERRUPTED, Setting
    from kir.learning.optimize.policy import load
    from kir.learning.optimize.search import Budget
    from kir.learning.tune.device import with_shape
    from kir.surface.launches.values import asked_at

    allowed, next_to_try = Budget.parse(budget), load(policy)
    if on == "gpu":
        belong("optimize", "--on cpu", {"--no-compile": not compile})
        from kir.gate.gpu.machine import require_device

        require_device()
    else:
        belong("optimize", "--on gpu", {"--gpus": gpus})
    where = Where(on, workers, cluster, compile, cache, gpus)
    if package:
        belong("optimize", "a single kernel", {"--problem": problem, "--bind": bind, "--shape": shape, "--in-place": in_place, "--log": log})
        return package_run(file, package, named(target), allowed, output, where)
    with asked_at(sizes_in(shape[0] if shape else "")):
        one = subject(file, bind, problem)
        _can_be_written(one, output, in_place)
        given, one = one, with_sizes(one)
        asked = [shape_for(one, text, on) for text in shape or [""]]
        if len(asked) > 1:
            belong("optimize", "one --shape", {"--log": log, "--in-place": in_place, "--surface any": surface == "any"})
        found: list[Found] = []
        for number, at in enumerate(asked):
            wanted = _surface(surface, one) or next((f.best.surface for f in found if f.best is not None), "")
            setting = Setting(with_shape(one.problem, at), at, named(target), wanted, judged_for(one, at) if on == "gpu" else None)
            if len(asked) == 1 and (tuned := as_tuned(one, setting)) is not one:
                one, setting = tuned, replace(setting, problem=with_shape(tuned.problem, at))
            with claimed(log) if log is not None else nullcontext():
                found.append(search_run(one, setting, _share(allowed, len(asked), number), next_to_try, log, where))
            if found[-1].ended == INTERRUPTED:
                break
        if one.sizes is not None and given.sizes is None:
            for each in (f.best for f in found if f.best is not None):
                each.program = at_its_own(each.program, one.sizes)
            one = replace(given, assumed=one.assumed)
        return _told(found, one, output, in_place, where.notes)


def _can_be_written(one: Subject, output: Path | None, in_place: bool) -> None:
    """Nothing is written over the input but by `--in-place`, and that needs a source file. Raises UsageError KIR-C002, KirError KIR-C105."""
    from kir.base.diagnostic import error, usage

    given = one.file.partition("::")[0]
    if in_place and (not given or one.binding is None):
        raise error("KIR-C105", "there is no source to edit", needs="FILE::KERNEL of a source file, and --bind BINDING.toml where its launch is not found")
    if given and output is not None and output.resolve() == Path(given).resolve():
        raise usage("KIR-C002", f"-o {output} is the input", needs="another file", attempt="--in-place")


def _share(allowed: Budget, parts: int, number: int) -> Budget:
    """A shape's part of a budget for all: no candidate is lost, and each has one at least."""
    each, more = divmod(allowed.candidates, parts)
    return replace(allowed, candidates=max(1, each + (number < more)), seconds=allowed.seconds / parts, usd=allowed.usd / parts,
                   plans=max(1, allowed.plans // parts))


def _surface(wanted: str, one: Subject) -> str:
    from kir.base.diagnostic import did_you_mean, usage
    from kir.learning.optimize.search import SURFACES

    if wanted and wanted not in (*SURFACES, "any"):
        raise usage("KIR-C002", f"--surface {wanted}: there is no such surface", attempt=did_you_mean(wanted, [*SURFACES, "any"]),
                    needs=f"one of {', '.join(SURFACES)}, any")
    return "" if wanted == "any" else wanted or one.surface


def _learned(logs: list[Path], output: Path | None) -> Result:
    """The policy that is trained from logs, written where it was asked for; what forecasts were wrong by on devices stays as it comes with KIR."""
    from kir.base.diagnostic import usage
    from kir.learning.optimize.events import Recorder
    from kir.learning.optimize.policy import load, save, trained

    if output is None:
        raise usage("KIR-C002", "--learn needs a file to write the policy to", needs="-o POLICY.json")
    held = [list(Recorder.over(each).stored) for each in logs]
    made = replace(trained(held), off=load().off)
    save(made, output)
    data = {"searches": made.searches, "weights": len(made.weights), "file": str(output)}
    return Result(data, f"{len(made.weights)} weights from {made.searches} searches, in {output}")


def _written(one: Subject, found: Sequence[Found], output: Path) -> tuple[Written, Path]:
    """The text and its place. Where no edit of the user's file says the result, it is written whole beside the patch that was asked for, and why."""
    from kir.base.diagnostic import KirError
    from kir.learning.optimize.outputs import written

    try:
        return written(one, [(f.setting.shape, f.best) for f in found], output), output
    except KirError as bad:
        if output.suffix != ".patch":
            raise
        return _whole(one, found, output, "no patch of the file", bad)


def _whole(one: Subject, found: Sequence[Found], beside: Path, instead: str, why: KirError) -> tuple[Written, Path]:
    """The whole kernel in the place of an edit that cannot say it, in a file that the user's is not: OUT.cu may well be what OUT.patch is of."""
    from kir.learning.optimize.outputs import written

    rows, first = [(f.setting.shape, f.best) for f in found], why.diagnostics[0]
    place = beside.with_name(f"{beside.stem}_faster{'.cu' if next(b.surface for _, b in rows if b is not None) == 'cuda' else '.py'}")
    whole = written(one, rows, place)
    return replace(whole, notes=(f"{instead}, but the whole kernel: {first.id}: {first.message}", *whole.notes)), place


def _told(found: Sequence[Found], one: Subject, output: Path | None, in_place: bool, told: Sequence[Diagnostic] = ()) -> Result:
    """The report, and the files that were asked for."""
    from kir.base.diagnostic import Diagnostic, KirError
    from kir.base.store import write_atomic
    from kir.learning.optimize.outputs import edited, told_of
    from kir.learning.optimize.plan import INTERRUPTED
    from kir.learning.optimize.report import data, lines, spent

    reports = [{**data(f), "assumed": list(one.assumed)} for f in found]
    report: dict[str, Any] = reports[0] if len(found) == 1 else {"table": {f.setting.shape.name: r for f, r in zip(found, reports, strict=True)}}
    notes = list(told)
    files: list[str] = []
    interrupted = found[-1].ended == INTERRUPTED
    best = next((f.best for f in found if f.best is not None), None)
    made: tuple[Written, Path] | None = None
    if best is not None and in_place:
        try:
            edit = edited(one, best)
        except KirError as bad:  # what was found is kept
            made = _whole(one, found, Path(one.file.partition("::")[0]), "no edit of the file", bad)
        else:
            edit.write(one.program)
            notes += [Diagnostic("KIR-U028", text, severity="warning") for text in told_of(edit, one, best)]
            files.append(edit.file)
            if isinstance(one.binding, Path) and edit.new_binding != edit.binding:
                write_atomic(one.binding, edit.new_binding.text())
                files.append(str(one.binding))
    if best is not None and output is not None:
        made = _written(one, found, output)
    if made is not None:
        write_atomic(made[1], made[0].text)
        report["form"] = made[0].form
        notes += [Diagnostic("KIR-U028", text, severity="warning") for text in made[0].notes]
        files.append(str(made[1]))
    if output is not None and output.exists() and str(output) not in files:
        notes.append(Diagnostic("KIR-U028", f"{output} is of an earlier run: this one did not write it", severity="warning"))
    if output is not None:
        beside = output.with_name(f"{output.name}.json")
        write_atomic(beside, json.dumps(report, indent=1) + "\n")
        files.append(str(beside))
    report["files"] = files
    shown = list[str]()
    for f, r in zip(found, reports, strict=True):
        if len(found) > 1:
            shown.append(f"at {f.setting.shape.name} ({', '.join(f'{k}={v}' for k, v in f.setting.shape.sizes.items())}):")
        shown += [*lines(r), *filter(None, [spent(r)])]
    return Result(report, "\n".join([*shown, *(f"written: {name}" for name in files)]), INTERRUPTION if interrupted else 0, tuple(notes))
