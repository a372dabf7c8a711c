"""search a declared space of parameters for the fastest program, and keep what is found

SUBJECT is a program or a pipeline with holes (NAME.kir.in, NAME.pipeline.in) beside NAME.toml, which declares the space; or a bare NAME of
those that come with KIR. On a GPU each candidate goes through the gate, best-first, and the winner through all of it; --log makes a killed
search go on. On the CPU nothing is measured: the cost model's ranking is shown, and kept as such.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kir.faces.cli._options import can_be_written
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from rich.console import Group

    from kir.gate import Verdict
    from kir.gate.gpu.oracle import Shared
    from kir.learning.tune import Candidate, Measured, Outcome, Pruned, Space, Tuned
    from kir.problem import Problem, Shape

SHOWN = 12


def command(
    subject: Annotated[str, typer.Argument(help="a program or pipeline with holes, its space, or the name of one that comes with KIR")],
    problem: Annotated[str, typer.Option(help="what it computes: a name, name:dtype, or a folder; by default what the subject is written for")] = "",
    shape: Annotated[list[str] | None, typer.Option(help="a shape of the problem, or M=..,N=..,K=.. (may be repeated); by default all timed ones")] = None,
    target: Annotated[str, typer.Option(help="the device that is modelled, and on which results are kept on the CPU")] = "h200",
    on: Annotated[Literal["cpu", "gpu"], typer.Option(help="where candidates are measured")] = "cpu",
    judged_at: Annotated[str, typer.Option(help="the shape at which winners are gated, where the oracle cannot compute those that are timed: "
                                                "the whole gate, once for each program; by default the timed shape itself")] = "",
    then: Annotated[str, typer.Option(help="steps that candidates of a pipeline take after its own, with holes for its parameters and for sizes; "
                                           "what is found is kept by --emit alone")] = "",
    budget: Annotated[int, typer.Option(min=1, help="measurements a shape")] = 12,
    log: Annotated[Path | None, typer.Option(help="measurements are added to this file, and taken from it (JSON lines)")] = None,
    save: Annotated[bool, typer.Option(help="keep the results, for `kir opt --tuned`")] = True,
    into: Annotated[Path | None, typer.Option(help="the folder that results are kept in; by default the user's own")] = None,
    emit: Annotated[Path | None, typer.Option(callback=can_be_written, help="a file to which the best program of the last shape is written (IR text)")] = None,
    cache: Annotated[Path | None, typer.Option(help="a folder in which compiled artifacts are kept")] = None,
    model: Annotated[str,
                     typer.Option(help="who orders candidates: analytic, learned or language")] = "analytic",
) -> Result:
    """Search a declared space of parameters for the fastest program, and keep what is found."""
    from kir.base.diagnostic import error, usage
    from kir.base.store import write_atomic
    from kir.hardware.target import target as named
    from kir.ir.printer import program_text
    from kir.learning.forecast.choosing import forecaster
    from kir.learning.tune import ranked
    from kir.learning.tune import save as kept
    from kir.learning.tune.search import left_after
    from kir.learning.tune.space import find_space
    from kir.problem import load_problem

    if on == "gpu":
        from kir.gate.gpu.machine import require_device
        from kir.gate.gpu.oracle import sharing
        require_device()
    space, device = find_space(subject), named(target)
    if not (problem or space.home):
        raise usage("KIR-C002", f"{subject} does not say what it computes", subject="kir tune", needs="--problem NAME")
    if then:
        if space.kind != "pipeline":
            raise usage("KIR-C002", f"{subject} is no pipeline, which --then could go on", subject="kir tune", needs="a pipeline with holes")
        space = replace(space, text=f"{space.text.rstrip().removesuffix(';')};\n{then}")
    wanted = load_problem(problem or space.home)
    shapes = _shapes(wanted, shape or [])
    judged = _shapes(wanted, [judged_at])[0] if judged_at else None
    verdicts: dict[str, Verdict] = {}
    results: list[Tuned] = []
    rows: list[dict[str, Any]] = []
    shown: list[Any] = []
    last, gates = None, dict[str, float]()
    ask, known = forecaster(model), dict[tuple[str, ...], Any]()
    with sharing() if on == "gpu" else nullcontext() as shared:
        for each in shapes:
            candidates, pruned = ranked(space, wanted, each, device, known=known, ask=ask)
            if not candidates:
                raise error("KIR-U006", f"no point of '{space.name}' can run at {each.name} on {device.name}", subject=space.name,
                            witness=tuple(f"{count} points: {why}" for why, count in sorted(pruned.reasons.items(), key=lambda kv: -kv[1])[:5]))
            if shared is None:
                best = candidates[0]
                outcome, verdict = None, None
                results.append(_tuned(wanted, each, device.device.name, "modelled", best, best.seconds, len(candidates)))
            else:
                left = left_after(budget, ask.spent)
                name, outcome, verdict, found = _measured(space, wanted, each, candidates, left, log, cache, judged, verdicts, shared, gates)
                best = found[0]
                results.append(_with_panel(_tuned(wanted, each, name, "measured", best, found[1].seconds, len(outcome.taken)), verdict))
            last = best
            rows.append(_row(each, candidates, pruned, outcome, results[-1], verdict))
            shown.append(_shown(space, each, candidates, pruned, outcome, results[-1]))
    if emit is not None and last is not None:
        write_atomic(emit, program_text(last.program))
    files = kept(space.name, results, into) if save and not then else []
    from rich.console import Group
    data = {"subject": space.name, "problem": wanted.name, "on": on, "points": space.size, "shapes": rows,
            "files": [str(f) for f in files], "model": ask.name, "spent": ask.spent.to_json(), "gates": {k: round(v, 3) for k, v in gates.items()}}
    return Result(data, Group(*shown))


def _shapes(problem: Problem, names: list[str]) -> list[Shape]:
    """Shapes by name or sizes; by default all that are timed unasked."""
    from kir.problem.problem import shape_of
    return [shape_of(problem, text) for text in names] or [s for s in problem.tagged("timed") if "asked" not in s.tags]


def _measured(space: Space, problem: Problem, shape: Shape, candidates: list[Candidate], budget: int, log: Path | None,
              cache: Path | None, judged: Shape | None, verdicts: dict[str, Verdict],
              shared: Shared, gates: dict[str, float]) -> tuple[str, Outcome, Verdict, tuple[Candidate, Measured]]:
    """Search on the device, then gate the winner in full, at `judged` where that is given; the next one where the gate refuses it. `gates` gathers seconds by
    stage."""
    import sys
    import time

    from kir.base.diagnostic import error
    from kir.base.store import Log
    from kir.gate.gpu import Gpu
    from kir.learning.tune import search
    from kir.learning.tune.device import DeviceMeasurer, told, with_shape

    with Gpu.open(cache) as gpu:
        measurer = DeviceMeasurer(gpu, with_shape(problem, shape), shape, space.surface, judged=judged, verdicts=verdicts, shared=shared, spent=gates)
        begun = time.monotonic()
        about = {"subject": space.name, "problem": problem.name, "sizes": dict(shape.sizes), "surface": space.surface}
        outcome = search(candidates, measurer, budget, Log(log) if log is not None else None, about, batch=4,
                         told=lambda c, m: print(f"  {_point(c.point)}: {_time(m.seconds) if m.accepted else m.reason} "
                                                   f"(after {time.monotonic() - begun:.0f} s)", file=sys.stderr, flush=True))
        order = sorted((x for x in outcome.taken if x[1].accepted), key=lambda x: x[1].seconds)
        whole: dict[str, str] = {}
        for candidate, measured in order:
            verdict = measurer.gated(candidate)
            found = told(verdict, judged or shape)
            if found.accepted:
                return measurer.device, outcome, verdict, (candidate, measured if judged else found)
            whole[candidate.key] = found.reason
    said = tuple(f"{_point(c.point)}: {m.reason or whole.get(c.key, '')}" for c, m in outcome.taken[:5])
    raise error("KIR-U007", f"the gate accepts none of {len(outcome.taken)} candidates of '{space.name}' at {shape.name}", subject=space.name, witness=said)


def _tuned(problem: Problem, shape: Shape, device: str, kind: str, best: Candidate, seconds: float, count: int) -> Tuned:
    from kir.learning.tune import Tuned
    return Tuned(problem.name, dict(shape.sizes), device, kind, dict(best.point), float(f"{seconds:.6g}"), best.key, count)


def _with_panel(t: Tuned, verdict: Verdict) -> Tuned:
    """The result with the fastest reference of the panel, timed in the same run."""
    from kir.gate.gpu.judge import conclusion
    for row in conclusion(verdict).values():
        return replace(t, against=str(row["reference"]), times_faster=float(f"{row['times_faster']:.4g}"))
    return t


def _row(shape: Shape, candidates: list[Candidate], pruned: Pruned, outcome: Outcome | None, best: Tuned, verdict: Verdict | None) -> dict[str, Any]:
    from dataclasses import asdict
    taken = [{"point": dict(c.point), "program": c.key, "modelled": c.seconds, **m.to_json()} for c, m in (outcome.taken if outcome else ())]
    return {"shape": shape.name, "sizes": dict(shape.sizes), "candidates": len(candidates), "pruned": dict(pruned.reasons), "best": asdict(best),
            "measured": taken, "resumed": outcome.resumed if outcome else 0,
            "ranking": [{"point": dict(c.point), "modelled": c.seconds} for c in candidates[:SHOWN] if math.isfinite(c.seconds)],
            "verdict": None if verdict is None else verdict.record}


def _shown(space: Space, shape: Shape, candidates: list[Candidate], pruned: Pruned, outcome: Outcome | None, best: Tuned) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = Text.assemble((f"{space.name} at {shape.name}", "bold"), f" ({', '.join(f'{k}={v}' for k, v in shape.sizes.items())}): ",
                         f"{len(candidates)} of {space.size} points; {pruned.count} pruned")
    parts: list[Any] = [head]
    parts += [Text(f"  {count} pruned: {why}", style="dim") for why, count in sorted(pruned.reasons.items(), key=lambda kv: -kv[1])]
    kind = "modelled, not measured" if outcome is None else "measured"
    table = Table("point", "modelled", kind if outcome else "", box=None, header_style="dim")
    if outcome is None:
        for c in candidates[:SHOWN]:
            table.add_row(_point(c.point), _time(c.seconds), "")
    else:
        for c, m in sorted(outcome.taken, key=lambda x: x[1].seconds):
            table.add_row(_point(c.point), _time(c.seconds), _time(m.seconds) if m.accepted else m.reason)
    faster = f", {best.times_faster:.3g} times as fast as {best.against}" if best.against else ""
    resumed = f" ({outcome.resumed} taken from the log)" if outcome and outcome.resumed else ""
    return Group(*parts, table, Text(f"best, {kind}{resumed}: {_point(best.parameters)}: {_time(best.seconds)}{faster}"))


def _point(point: Any) -> str:
    return " ".join(f"{k}={v}" for k, v in point.items())


def _time(seconds: float) -> str:
    return f"{seconds * 1e9:.0f} ns" if seconds < 1e-7 else f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"
