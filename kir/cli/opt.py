"""run passes over a program and print the result

The pipeline is text such as `tile{axis=0 extent=64}@main; ~unroll@main/k_loop`, or the name of a file that holds one (as text or JSON).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kir.cli._program import read
from kir.cli._result import Result

if TYPE_CHECKING:
    from kir.rewrite import Pipeline


def command(
    file: Annotated[str, typer.Argument(help="IR text, or FILE::kernel of a surface")],
    pipeline: Annotated[str, typer.Option("--pipeline", "-p", help="steps, or a file that holds them")] = "",
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel")] = None,
    emit: Annotated[Literal["kir", "cuda", "triton", "tilelang"], typer.Option(help="what to print")] = "kir",
    trace: Annotated[bool, typer.Option(help="say what each step did and why it was allowed")] = False,
    assume: Annotated[list[str] | None, typer.Option(help="a precondition to assume where it cannot be decided (may be repeated)")] = None,
    guard: Annotated[list[str] | None, typer.Option(help="a precondition to check at launch instead (may be repeated)")] = None,
    force: Annotated[bool, typer.Option(help="apply steps whose preconditions are refused")] = False,
) -> Result:
    """Run a pipeline of passes over a program and print the result."""
    from dataclasses import replace

    from kir.carrier import must_be_filled, unfilled
    from kir.ir.canonical import content_hash
    from kir.ir.printer import program_text
    from kir.rewrite import Pipeline, Trace, pass_class
    from kir.rewrite.driver import notes

    steps = _pipeline(pipeline).steps if pipeline else ()
    done = Trace(read(file, bind))
    wanted, checked = frozenset(assume or ()), frozenset(guard or ())
    warnings, taken = [], []
    for step in steps:
        cls = pass_class(step.name)
        known = {p.id for p in cls.preconditions}
        step = replace(step, assume=step.assume | (wanted & known), guard=step.guard | (checked & known), force=step.force or force)
        done = done.then(step)
        taken.append(step)
        warnings += list(notes(done.steps[-1].witness.params, done.steps[-1].record.verdicts))
    text = program_text(done.program)
    warnings += [replace(d, severity="warning") for d in unfilled(done.program)]
    if emit != "kir":
        from kir.surface import backend

        must_be_filled(done.program)
        text = backend(emit).emit(done.program).text
    explained = "".join(f"{line}\n" for number in range(len(done.steps)) for line in done.explain(number).splitlines()) if trace else ""
    shown = "".join(f"# {line}\n" for line in explained.splitlines()) + text
    data = {"hash": content_hash(done.program), "pipeline": str(Pipeline(tuple(taken))), "emit": emit, "text": text}
    if trace:
        data["trace"] = json.loads(json.dumps(done.to_json()))
    return Result(data, shown, diagnostics=tuple(warnings))


def _pipeline(text: str) -> Pipeline:
    from kir.rewrite import Pipeline

    path = Path(text)
    if len(text) < 200 and path.suffix in (".json", ".pipeline") and path.is_file():
        held = path.read_text(encoding="utf-8")
        return Pipeline.from_json(json.loads(held)) if path.suffix == ".json" else Pipeline.parse(held, str(path))
    return Pipeline.parse(text)
