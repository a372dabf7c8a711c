"""walk an expert kernel back to naive, one gated step at a time, and rebuild it from the stored steps

FILE is IR text (.kir) or a source file, FILE::KERNEL where it holds several; package:path names a file of an installed
package. The folder receives lineage.json, the programs, one card for each transition and report.html. A killed run is
taken up again by the same command.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kir.cli._options import conditions
from kir.cli._result import Result

if TYPE_CHECKING:
    from kir.ir.nodes import Program
    from kir.lineage.engine import PassEngine
    from kir.lineage.folder import Folder
    from kir.lineage.record import Header, Lineage
    from kir.lineage.replay import Replayed
    from kir.lineage.source import Expert
    from kir.lineage.walk import Budget, Judge, Judgement


USUAL_TARGETS = ("sm_80", "sm_90a")
"""What a lineage is compiled for when nobody says."""
MOST_SHOWN = 12
"""Nodes named in the warning of a walk that did not reach naive; the JSON object and the report name all."""


def command(
    file: Annotated[str, typer.Argument(help="FILE[::KERNEL]: IR text, or a source that a frontend reads")],
    output: Annotated[Path, typer.Option("--output", "-o", help="the folder to write")],
    problem: Annotated[str, typer.Option(help="what the kernel must compute; without it, the kernel itself is the reference")] = "",
    on: Annotated[Literal["cpu", "gpu"], typer.Option(help="the gate")] = "cpu",
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel (TOML); by default the shipped one")] = None,
    surface: Annotated[str, typer.Option(help="the surface to emit and compile; by default the expert's own")] = "",
    target: Annotated[str, typer.Option(help="targets, with commas between them; by default those of sm_80 and sm_90a that have what the expert uses")] = "",
    assume: Annotated[list[str] | None, typer.Option(help="a precondition to assume where it cannot be decided (may be repeated)")] = None,
    steps: Annotated[int, typer.Option(help="the most steps to keep")] = 400,
    attempts: Annotated[int, typer.Option(help="the most programs to gate")] = 1000,
    seconds: Annotated[float, typer.Option(help="wall time after which the walk ends (0: none); the same command goes on")] = 0.0,
    look: Annotated[int, typer.Option(help="the most programs to look through for an order of passes, before any is gated")] = 600,
    workers: Annotated[int, typer.Option(help="programs judged side by side; changes nothing but the time")] = 2,
    fresh: Annotated[bool, typer.Option("--fresh", help="begin anew in a folder that holds an older walk")] = False,
) -> Result:
    """Walk an expert kernel back to naive, one gated step at a time, and rebuild it from the stored steps."""
    from kir.diagnostic import Diagnostic
    from kir.lineage.engine import PassEngine
    from kir.lineage.folder import Folder
    from kir.lineage.judge import judge_on
    from kir.lineage.record import Header
    from kir.lineage.source import binding_of, load_expert
    from kir.lineage.walk import Budget
    from kir.report.terminal import summary, table

    if on == "gpu":
        from kir.gate.gpu.machine import require_device
        require_device()
    expert = load_expert(file, binding_of(file, bind, problem))
    budget = Budget(steps, attempts, seconds)
    header = Header(
        expert=expert.name,
        source=expert.source,
        surface=surface or expert.surface,
        binding=expert.binding,
        problem=problem,
        gate=on,
        targets=tuple(each.strip() for each in target.split(",") if each.strip()) or usual_targets(expert.program),
        assume=tuple(sorted(conditions(assume, "--assume"))),
        budget=budget.to_json(),
        tools=_tools(),
    )
    engine, folder = PassEngine.of(header), Folder(output)
    with judge_on(on, header, expert.program) as judge:
        lineage = walked(expert, header, engine, judge, folder, budget, workers, fresh, look)
    replayed = written(lineage, folder, engine)
    left = lineage.outcome.violations
    shown = tuple(f"{each.anchor}: {each.message} ({each.clause})" for each in left[:MOST_SHOWN])
    more = (f"and {len(left) - MOST_SHOWN} more",) if len(left) > MOST_SHOWN else ()
    said = f"{header.expert} is not naive yet: {lineage.outcome.reason}"
    first = folder.root / "states" / "K00.kir"
    notes = (Diagnostic("KIR-S019", said, witness=(*shown, *more), needs=_way_out({each.clause for each in left}, problem),
                        attempt=f"kir sites {quote(str(first))}", severity="warning"),) if left else ()
    files = {"lineage": str(folder.file), "report": str(folder.root / "report.html"), "cards": str(folder.root / "cards")}
    return Result(
        {**summary(lineage), "replay_exact": replayed.ok, "files": files},
        table(lineage),
        code=0 if replayed.ok else 1,
        diagnostics=(*replayed.diagnostics, *notes, *engine.failures.values()),
    )


def _way_out(clauses: set[str], problem: str) -> str:
    """What would bring a walk further that ended before naive, from the clauses of N that are violated at its end."""
    arrays = f"a problem whose work item has such arrays as its state{'' if problem else ' (--problem)'}"
    if clauses == {"state"}:
        return f"passes that take these arrays back, or {arrays}"
    return "passes that take these nodes back" + (f"; for private arrays also {arrays}" if "state" in clauses else "")


def usual_targets(program: Program) -> tuple[str, ...]:
    """Those of the usual targets that have the instructions of a program; all of them when none has, so that the gate says what each lacks."""
    from kir.analysis.legalize import unlaunchable
    from kir.target import target

    return tuple(each for each in USUAL_TARGETS if not unlaunchable(program, target(each).architecture)) or USUAL_TARGETS


def walked(expert: Expert, header: Header, engine: PassEngine, judge: Judge, folder: Folder, budget: Budget, workers: int, fresh: bool,
           look: int) -> Lineage:
    """Walk back, with progress on standard error, and write ``lineage.json``. Nothing is written of an expert that the gate refuses."""
    from kir.cli._progress import bar
    from kir.lineage.plan import plan
    from kir.lineage.record import chained
    from kir.lineage.walk import Walk

    with bar(f"walking {header.expert} back") as advance:
        judgement = judge.gate(expert.program)
        if not judgement.accepted:
            raise _refused(header, judgement)
        folder.begin(header, fresh=fresh)
        order = plan(expert.program, engine, look)
        walk = Walk(
            expert.program,
            engine,
            judge,
            folder,
            budget,
            delayed=order.delayed,
            workers=workers,
            progress=lambda text, kept, tried: advance(text),
        )
        done = walk.run(judgement)
    lineage = chained(header, done.start, judgement.record, judgement.emitted, done.steps, done.outcome)
    folder.finish(lineage)
    return lineage


def _refused(header: Header, judgement: Judgement) -> Exception:
    """The expert itself does not pass: the gate's word, then what its compilers and the checker say, each at its place."""
    from kir.diagnostic import Diagnostic, KirError

    record = judgement.record
    told = [*record.get("compile", {}).get("refusals", ()), *(record.get("correctness") or {}).get("findings", ())]
    reason = Diagnostic("KIR-S015", f"{header.expert} does not pass the gate: {judgement.reason}", subject=judgement.stage)
    return KirError(reason, *(Diagnostic.from_json(each) for each in told[:MOST_SHOWN]))


def written(lineage: Lineage, folder: Folder, engine: PassEngine) -> Replayed:
    """Replay forward, then write the cards, the emitted sources and the report."""
    from kir.ir.diff import diff, render_html
    from kir.library.lift import cards_of
    from kir.library.shelf import Shelf
    from kir.lineage.replay import replay
    from kir.report.page import page
    from kir.store import write_atomic

    replayed = replay(lineage, folder, engine)
    shelf = Shelf(folder.root / "cards")
    for card in cards_of(lineage, folder) if replayed.ok else ():
        shelf.put(card)
    suffix = {"triton": "py", "tilelang": "py", "cuda": "cu"}.get(lineage.header.surface, "txt")
    sources = (lineage.start_emitted, *(step.emitted for step in lineage.accepted))
    for back, (state, emitted) in enumerate(zip(lineage.states, sources, strict=True)):
        number = len(lineage.accepted) - back
        write_atomic(folder.root / "states" / f"K{number:02}.kir", folder.store.get(state.text))
        if emitted:
            write_atomic(folder.root / "states" / f"K{number:02}.{suffix}", emitted)
    html = page(lineage, folder, lambda a, b: render_html(diff(a, b)), replayed)
    write_atomic(folder.root / "report.html", html)
    return replayed


def _tools() -> dict[str, str]:
    """Versions of everything that has a say in the outcome."""
    import kir
    from kir import machine

    found = {"kir": kir.__version__, "python": machine.summary()["python"]}
    for name in ("triton", "tilelang", "numpy"):
        if version := machine.package_version(name):
            found[name] = version
    if (toolkit := machine.toolkit()) is not None:
        found["nvcc"] = toolkit.nvcc.version
    if (ptxas := machine.ptxas()) is not None:
        found["ptxas"] = ptxas.version
    return found
