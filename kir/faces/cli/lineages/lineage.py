"""walk an expert kernel back to naive, one gated step at a time, and rebuild it from the stored steps

FILE is IR text (.kir) or a source file, FILE::KERNEL where it holds several; package:path names a file of an installed
package. FILE may also be a stored pipeline (skills/pipelines), such as fmha_sm90, or the file of one: what it makes of its
problem's naive program is walked back along its own steps, and nothing is searched. The folder receives lineage.json, the
programs and report.html, which a long walk writes as far as it has come; `kir learn` makes cards of it. A killed run is
taken up again by the same command.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kir.faces.cli._options import belong, can_be_written, conditions, written_on
from kir.faces.cli._program import for_problem
from kir.faces.cli._progress import bar
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from rich.console import Group

    from kir.faces.api.pipelines import Stored
    from kir.lineage.records.record import Lineage
    from kir.lineage.walk import Budget

MOST_SHOWN = 12
"""Nodes named in the warning of a walk that did not reach naive; the JSON object and the report name all."""


def command(
    file: Annotated[str, typer.Argument(help="FILE[::KERNEL]: IR text, or a source that a frontend reads; or a stored pipeline")],
    output: Annotated[Path | None, typer.Option("--output", "-o", callback=can_be_written, help="the folder to write; by default KERNEL.lineage here")] = None,
    problem: Annotated[str, typer.Option(help="what the kernel must compute; without it, the kernel itself is the reference")] = "",
    on: Annotated[Literal["cpu", "gpu"], typer.Option(help="the gate")] = "cpu",
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel (TOML); by default the shipped one, or as its launch says")] = None,
    against: Annotated[str, typer.Option(help="MODULE:FUNCTION of PyTorch's that computes the same, as the problem")] = "",
    numbers: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE: a scalar of the kernel that the problem does not have; of a "
                                                     "stored pipeline, a parameter")] = None,
    surface: Annotated[str, typer.Option(callback=written_on, help="the surface to emit and compile; by default the expert's own")] = "",
    target: Annotated[str, typer.Option(help="targets, with commas between them; by default those of sm_80 and sm_90a that have what the expert "
                                        "uses, on TileLang sm_90a")] = "",
    assume: Annotated[list[str] | None, typer.Option(help="a precondition to assume where it cannot be decided (may be repeated)")] = None,
    steps: Annotated[int, typer.Option(min=1, help="the most steps to keep")] = 400,
    attempts: Annotated[int, typer.Option(min=1, help="the most programs to gate")] = 1000,
    seconds: Annotated[float, typer.Option(min=0, help="wall time after which the walk ends (0: none); the same command goes on")] = 0.0,
    look: Annotated[int, typer.Option("--search-limit", min=0, help="the most programs to look through for an order of passes, before any is gated")] = 600,
    workers: Annotated[int, typer.Option(min=0, help="programs judged side by side (0: one a processor, up to 8); changes nothing but the time")] = 0,
    fresh: Annotated[bool, typer.Option("--restart", help="begin anew in a folder that holds an older walk")] = False,
) -> Result:
    """Walk an expert kernel back to naive, one gated step at a time, and rebuild it from the stored steps."""
    import time

    from kir.base.diagnostic import Diagnostic
    from kir.faces.api.pipelines import names_pipeline
    from kir.faces.cli._program import quoted_bind
    from kir.faces.report.terminal import summary
    from kir.faces.report.written import write_report, write_so_far
    from kir.gate.inputs.places import taken_apart
    from kir.gate.proved.unsaid import require_own
    from kir.hardware.machine import processors
    from kir.lineage.along import AlongEngine
    from kir.lineage.engine import PassEngine
    from kir.lineage.judge import Copies, judge_on
    from kir.lineage.records.folder import Folder
    from kir.lineage.records.record import Header
    from kir.lineage.run import tools, usual_targets, walk_back
    from kir.lineage.walk import Budget
    from kir.problem import load_problem
    from kir.surface.reading import Expert, load_expert

    side_by_side = workers or (2 if on == "gpu" else min(8, max(2, processors())))
    copies = Copies(side_by_side - 1) if on == "cpu" else None
    _warmed(file, surface)
    begun = time.monotonic()
    if on == "gpu":
        from kir.gate.gpu.machine import require_device
        require_device()
    targets = tuple(each.strip() for each in target.split(",") if each.strip())
    along = _along(file, problem, bind, against, numbers or [], targets) if names_pipeline(file) else None
    if along is not None:
        problem = along.problem
        expert = Expert(along.trace.program, along.name, along.source, along.surface, along.fixed)
    else:
        problem, under = for_problem(file, bind, problem, against, numbers or [])
        expert = load_expert(file, under)
        require_own(expert.program, expert.unsaid, expert.joined, load_problem(problem) if problem else None, quoted_bind(file))
    output = output or can_be_written(Path(f"{expert.name}.lineage"))
    assert output is not None
    budget = Budget(steps, attempts, seconds)
    header = Header(
        expert=expert.name,
        source=expert.source,
        surface=surface or expert.surface,
        binding=expert.binding,
        problem=problem,
        gate=on,
        targets=targets or usual_targets(expert.program, surface or expert.surface),
        assume=tuple(sorted(conditions(assume, "--assume"))),
        budget=budget.to_json(),
        tools=tools(),
    )
    engine, folder = PassEngine.of(header) if along is None else AlongEngine.along(header, along.trace), Folder(output)
    with judge_on(on, header, expert.program, copies) as judge, bar(f"walking {header.expert} back") as advance:
        lineage = walk_back(expert.program, header, engine, judge, folder, budget, workers=side_by_side, fresh=fresh, look=look, progress=advance,
                            begun=begun, so_far=lambda known: write_so_far(known, folder))
    replayed = write_report(lineage, folder, engine)
    left = lineage.outcome.violations
    shown = tuple(f"{each.anchor}: {each.message} ({each.clause})" for each in left[:MOST_SHOWN])
    more = (f"and {len(left) - MOST_SHOWN} more",) if len(left) > MOST_SHOWN else ()
    said = f"{header.expert} is not naive yet: {lineage.outcome.reason}"
    first = folder.root / "states" / "K00.kir"
    needs = _larger(lineage.outcome.reason, budget) if lineage.outcome.ended == "budget" else _suggestion({each.clause for each in left}, problem)
    notes = (Diagnostic("KIR-S019", said, witness=(*shown, *more), needs=needs,
                        attempt=f"kir sites {quote(str(first))}", severity="warning"),) if left else ()
    files = {"lineage": str(folder.file), "report": str(folder.root / "report.html")}
    return Result(
        {**summary(lineage), "replay_exact": replayed.ok, "files": files},
        _shown(lineage, folder.root),
        code=0 if replayed.ok else 1,
        diagnostics=(*replayed.diagnostics, *notes, *(() if problem else taken_apart(expert.program)), *engine.failures.values()),
    )


def _warmed(file: str, surface: str) -> None:
    """Begin to load the compiler of a kernel in Python, by what its file imports, before the file is read: another one than will be asked for costs nothing
    but its start."""
    from contextlib import suppress

    from kir.base.diagnostic import KirError
    from kir.hardware import machine
    from kir.surface import warm

    package, colon, inside = file.partition("::")[0].partition(":")
    if not surface and (inside or package).endswith(".py"):
        with suppress(OSError, ValueError):
            folder = Path() if not colon else machine.package_folder(package) if package.isidentifier() else None
            text = (folder / (inside or package)).read_text(encoding="utf-8") if folder is not None else ""
            surface = "tilelang" if "import tilelang" in text else "triton" if "import triton" in text else ""
    if surface in ("triton", "tilelang"):
        with suppress(KirError):
            warm(surface)


def _shown(lineage: Lineage, folder: Path) -> Group:
    """The steps for a terminal, and where the whole of it is."""
    from rich.console import Group
    from rich.text import Text

    from kir.faces.report.terminal import Chain

    return Group(Chain(lineage), Text(f"the report: {folder / 'report.html'}\nas slides: kir explore {quote(str(folder))}"))


def _along(file: str, problem: str, bind: Path | None, against: str, numbers: list[str], targets: tuple[str, ...]) -> Stored:
    """The pipeline that FILE names, run for the first target. Raises UsageError KIR-C002 for options that only a kernel has, and what running it raises."""
    from kir.base.diagnostic import usage
    from kir.faces.api.pipelines import AIM, stored

    belong("lineage", "a kernel, and this is a pipeline", {"--bind": bind, "--against": against})
    given = [text.partition("=") for text in numbers]
    for name, equals, _ in given:
        if not equals:
            raise usage("KIR-C002", f"--set {name}: not NAME=VALUE")
    return stored(file, problem, {name: value for name, _, value in given}, (*targets, AIM)[0])


def _larger(reason: str, budget: Budget) -> str:
    """What a walk needs that its budget ended: passes may be there that were not tried."""
    most = {"steps": budget.steps, "attempts": budget.attempts}
    spent = next((name for name in ("steps", "attempts") if f" {name} " in reason), "seconds")
    if spent == "seconds":
        return f"more time than {budget.seconds:g} s: the same command goes on from here, where passes were not tried yet"
    return f"a larger budget (--{spent} {2 * most[spent]:g} --restart): it ended the walk, and what was not tried yet may take these nodes back"


def _suggestion(clauses: set[str], problem: str) -> str:
    """What would bring a walk further that ended before naive, from the clauses of N that are violated at its end."""
    arrays = f"a problem whose work item has such arrays as its state{'' if problem else ' (--problem)'}"
    if clauses == {"state"}:
        return f"passes that take these arrays back, or {arrays}"
    return "passes that take these nodes back" + (f"; for private arrays also {arrays}" if "state" in clauses else "")
