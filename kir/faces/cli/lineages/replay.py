"""rebuild every state of a lineage from its stored steps, or replay its steps on another kernel (--on FILE)

LINEAGE is a folder that `kir lineage` wrote, the lineage.json in it, or the name of one that comes with KIR (`kir lineages`).
Without --on FILE a hash that differs is a failure.
With --on FILE each step is looked for on that kernel, whatever its language, its preconditions are judged there, and a step that the
surface of --emit cannot say is left out, with the reason.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from kir.faces.cli._options import belong, can_be_written, conditions
from kir.faces.cli._result import Result

GATES = ("none", "cpu", "gpu")


def command(
    lineage: Annotated[Path, typer.Argument(help="a lineage's folder, its lineage.json, or the name of one that comes with KIR")],
    on: Annotated[str, typer.Option(help="FILE[::KERNEL]: another kernel, on which the steps are looked for")] = "none",
    regate: Annotated[Literal["none", "cpu", "gpu"], typer.Option("--regate", help="gate each rebuilt state again")] = "none",
    bind: Annotated[Path | None, typer.Option(help="with --on FILE: the binding of a generic kernel")] = None,
    emit: Annotated[Literal["kir", "cuda", "triton", "tilelang"] | None, typer.Option(help="with --on FILE: what to write (FILE's own surface)")] = None,
    fact: Annotated[list[str] | None, typer.Option(help="with --on FILE: what its callers promise, such as 'K % 8 == 0' (may be repeated)")] = None,
    assume: Annotated[list[str] | None, typer.Option(help="with --on FILE: a precondition to assume where it cannot be decided")] = None,
    gate: Annotated[Literal["none", "cpu", "gpu"], typer.Option(help="with --on FILE: judge the result under the lineage's problem")] = "none",
    output: Annotated[Path | None, typer.Option("--output", "-o", callback=can_be_written, help="with --on FILE: the file to write the result to")] = None,
    without_residue: Annotated[bool, typer.Option("--without-residue", help="from parameters alone: the passes choose names and order")] = False,
) -> Result:
    """Rebuild every state of a lineage from its stored steps, or replay its steps on another kernel."""
    from kir.base.diagnostic import usage

    if on in GATES and on != "none":  # what --on meant once
        regate, on = ("cpu" if on == "cpu" else "gpu"), "none"
    if without_residue:
        return _recovered(lineage, regate if on == "none" else on)
    if on not in GATES:
        belong("replay", "no --on FILE", {"--regate": regate if regate != "none" else None})
        return _crossed(lineage, on, bind, emit, fact or [], assume or [], gate, output)
    belong("replay", "--on FILE[::KERNEL]", {"--bind": bind, "--emit": emit, "--fact": fact, "--assume": assume, "--output": output})
    if gate != "none":
        raise usage("KIR-C002", "--gate judges another kernel (--on FILE); --regate is what gates the states of the lineage itself", subject="kir replay",
                    attempt=f"kir replay {quote(str(lineage))} --regate {gate}")
    return _rebuilt(lineage, regate)


def _rebuilt(lineage: Path, on: str) -> Result:
    """The same hashes, from the stored steps alone."""
    from kir.faces.cli._progress import bar
    from kir.faces.report.terminal import replay_json, replay_text
    from kir.lineage.engine import PassEngine
    from kir.lineage.judge import judge_on
    from kir.lineage.records.answers import remember
    from kir.lineage.records.folder import opened
    from kir.lineage.replay import replay

    folder = opened(lineage)
    record = folder.read()
    remember(record, folder)
    engine = PassEngine.of(record.header)
    with judge_on(on, record.header, folder.program(record.start)) as judge, bar("replaying", total=len(record.accepted)) as advance:
        replayed = replay(record, folder, engine, judge if on != "none" else None, lambda each: advance(each.step.forward))
    return Result(
        {"lineage": str(folder.file), **replay_json(replayed)},
        replay_text(record, replayed),
        code=0 if replayed.ok else 1,
        diagnostics=replayed.diagnostics,
    )


def _recovered(lineage: Path, on: str) -> Result:
    """What the parameters alone give, gated where that is asked for."""
    from kir.base.diagnostic import Diagnostic, usage
    from kir.lineage.engine import PassEngine
    from kir.lineage.judge import judge_on
    from kir.lineage.parameter_replay import recover, recovered_json, recovered_text
    from kir.lineage.records.answers import remember
    from kir.lineage.records.folder import opened

    if on not in GATES:
        raise usage("KIR-C002", "--without-residue is for the lineage's own kernel: crossings keep no residue", subject="kir replay",
                    attempt="leave --on FILE out")
    folder = opened(lineage)
    record = folder.read()
    remember(record, folder)
    found = recover(record, folder, PassEngine.of(record.header))
    diagnostics, accepted = found.diagnostics(), None
    if found.whole and on != "none":
        with judge_on(on, record.header, found.program) as judge:
            judgement = judge.gate(found.program)
        accepted = judgement.accepted
        if not accepted:
            diagnostics = (Diagnostic("KIR-S017", f"the recovered program does not pass the gate: {judgement.stage}: {judgement.reason}"),)
    text = recovered_text(record, found) + ("" if accepted is None else f"; the gate {'accepts' if accepted else 'refuses'} it")
    return Result({"lineage": str(folder.file), **recovered_json(found), "accepted": accepted}, text, code=0 if found.whole and accepted is not False else 1,
                  diagnostics=diagnostics)


def _crossed(lineage: Path, on: str, bind: Path | None, emit: str | None, facts: list[str], assume: list[str], gate: str, output: Path | None) -> Result:
    """The steps on another kernel: what was carried, what was not and why, and the result as text."""
    from kir.base.diagnostic import Diagnostic, KirError
    from kir.base.store import write_atomic
    from kir.faces.cli._program import written
    from kir.faces.report.terminal import crossed_json, crossed_text
    from kir.ir.printer import program_text
    from kir.lineage.crossing import cross
    from kir.lineage.engine import PassEngine
    from kir.lineage.judge import judge_on
    from kir.lineage.records.folder import opened
    from kir.rewrite import Trace
    from kir.surface import backend
    from kir.surface.reading import load_expert, promised

    folder = opened(lineage)
    record = folder.read()
    target = load_expert(on, bind)
    surface = emit or target.surface
    writer = backend(surface) if surface != "kir" else None
    engine = PassEngine.of(record.header)
    allowed = sorted(conditions(assume, "--assume"))
    done = cross(record, folder, promised(target.program, facts), writer.accepts if writer else lambda _: (), allowed, engine.context)
    text: str | None = program_text(done.program)
    result, accepted = done.program, None
    diagnostics: tuple[Diagnostic, ...] = ()
    if writer is not None:
        try:
            trace, text, diagnostics = written(Trace(done.program), surface)
            result = trace.program
        except KirError as bad:  # what became of each step is told all the same
            text, diagnostics = None, bad.diagnostics
    if gate != "none" and text is not None:
        header = record.header.model_copy(update={"expert": target.name, "source": target.source, "surface": surface, "binding": target.binding})
        with judge_on(gate, header, result) as judge:
            judgement = judge.gate(result)
        accepted = judgement.accepted
        if not accepted:
            diagnostics = (*diagnostics, Diagnostic("KIR-S017", f"the result does not pass the gate: {judgement.stage}: {judgement.reason}"))
    if output is not None and text is not None:
        write_atomic(output, text)
    data = {"lineage": str(folder.file), "on": on, "emit": surface, **crossed_json(done), "accepted": accepted, "text": text}
    shown = crossed_text(record, done, on, surface, accepted)
    whole = shown if output is not None or text is None else f"{shown}\n\n{text}"
    return Result(data, whole, code=1 if text is None or accepted is False else 0, diagnostics=diagnostics)
