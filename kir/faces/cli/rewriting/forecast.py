"""say what a step is likely to bring before it is measured: a distribution over its speedup, and why

A and B are two programs that compute the same; or A is a program and --step a step of a pipeline on it; or A is a lineage's folder and --step the
number of a transition. Nothing is run and nothing is compiled.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kir.ir.nodes import Program


def command(
    a: Annotated[str, typer.Argument(help="a program (FILE.kir, or FILE[::KERNEL] of a surface), or a lineage's folder with --step N")],
    b: Annotated[str, typer.Argument(help="the program that it would become", show_default=False)] = "",
    step: Annotated[str, typer.Option(help="a step as pipelines have it, or of a lineage the number of a forward transition")] = "",
    problem: Annotated[str, typer.Option(help="what the programs compute: a name, name:dtype, or a folder with problem.toml")] = "",
    shape: Annotated[str, typer.Option(help="a shape of the problem, or sizes as M=..,N=..,K=..")] = "",
    target: Annotated[str, typer.Option(help="the device")] = "h200",
    surface: Annotated[str, typer.Option(help="the surface that the programs are written for")] = "",
    model: Annotated[str, typer.Option(help="analytic, learned or language; by default the learned one, or where that is not there the analytic one")] = "",
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel")] = None,
) -> Result:
    """Say what a step is likely to bring before it is measured."""
    from kir.base.diagnostic import Diagnostic, error
    from kir.hardware.target import target as named
    from kir.learning.forecast.choosing import forecaster
    from kir.learning.forecast.distribution import Pair
    from kir.learning.forecast.shown import lines, to_json

    device = named(target)
    before, after, said, of = _programs(a, b, step, bind, problem)
    sizes = _sizes(problem or of.get("problem", ""), shape)
    if lacking := [p.name for p in before.params if p.role == "size" and p.value is None and p.name not in sizes]:
        given = ",".join([*(f"{name}={value}" for name, value in sizes.items()), *(f"{name}=.." for name in lacking)])
        raise error("KIR-E007", f"not given: {', '.join(lacking)}", subject=before.name, needs="every size of the program, each at least 1",
                    attempt=f"--shape {given}")
    ask = forecaster(model)
    found = ask(Pair(before, after, sizes, device, said, surface or of["surface"]))
    notes = (Diagnostic("KIR-E006", ask.note, severity="note"),) if ask.note else ()
    data: dict[str, Any] = {"before": a, "after": b, "step": said, "target": device.name, "sizes": dict(sizes), **to_json(found), "spent": ask.spent.to_json()}
    return Result(data, "\n".join(lines(found)), diagnostics=notes)


def _programs(a: str, b: str, step: str, bind: Path | None, problem: str) -> tuple[Program, Program, str, Mapping[str, str]]:
    """Both programs, the step between them, the surface of the second, and what a lineage says of its problem."""
    from kir.base.diagnostic import usage
    from kir.faces.cli._program import read_with
    from kir.surface.reading import own_surface

    if b and not step:
        before = read_with(a, bind, problem)[0]
        after, _, surface = read_with(b, bind, problem)
        return before, after, "", {"surface": own_surface(after, surface)}
    if not step or b:
        raise usage("KIR-C002", "give two programs, or one with --step",
                    attempt=f"kir forecast {quote(a)} --step STEP, with a step that kir sites {quote(a)} lists")
    if step.isdigit():
        from kir.lineage.records.folder import opened

        folder = opened(Path(a))
        record = folder.read()
        transitions = dict(record.transitions())
        if int(step) not in transitions:
            raise usage("KIR-S014", f"there is no step {step} in {folder.file}", needs=f"1 to {len(transitions)}")
        taken = transitions[int(step)]
        assert taken.after is not None
        return folder.program(taken.after), folder.program(taken.before), taken.forward, {"problem": record.header.problem, "surface": record.header.surface}
    from kir.rewrite import Pipeline, Trace

    program, _, surface = read_with(a, bind, problem)
    trace = Trace(program)
    for each in Pipeline.parse(step, "--step").steps:
        trace = trace.then(each)
    return program, trace.program, step, {"surface": own_surface(trace.program, surface)}


def _sizes(problem: str, shape: str) -> Mapping[str, int]:
    """Sizes by name: of a problem's shape (its first timed one unless one is named), or as they are given."""
    from kir.base.diagnostic import usage
    from kir.ir.types import I32
    from kir.problem import load_problem
    from kir.problem.problem import shape_of

    if not problem:
        parts = dict(part.partition("=")[::2] for part in shape.split(",") if part)
        if not all(name.strip() and value.strip().isdigit() for name, value in parts.items()):
            raise usage("KIR-C002", f"'{shape}' gives no sizes", subject="kir forecast", needs="M=..,N=.., or --problem and the name of one of its shapes")
        if large := [name for name, value in parts.items() if int(value) > I32.range[1]]:
            raise usage("KIR-C002", f"size '{large[0]}' is {parts[large[0]]}", subject="kir forecast", needs=f"at most {I32.range[1]}, as its dtype holds")
        return {name.strip(): int(value) for name, value in parts.items()}
    wanted = load_problem(problem)
    if shape and "=" in shape:
        given = dict(part.partition("=")[::2] for part in shape.split(",") if part)
        if all(value.strip().isdigit() for value in given.values()) and any(int(v) == 0 for v in given.values()):
            return {name.strip(): int(value) for name, value in given.items()}  # the forecaster says which of them is none
    found = shape_of(wanted, shape) if shape else next(iter(wanted.tagged("timed")), wanted.shapes[0])
    return {k: int(v) for k, v in wanted.scalars(found).items() if not isinstance(v, float)}
