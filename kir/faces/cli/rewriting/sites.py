"""show where each pass applies to a program, forward and backward, and why not

With --package, FILE is a folder of bindings that `kir capture` recorded: the forward sites of all those kernels, ranked by what they
are forecast to gain (`kir forecast`). With --at, the forward sites of FILE are forecast at those sizes, best first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kir.faces.cli._options import belong
from kir.faces.cli._program import read
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from kir.base.diagnostic import Diagnostic
    from kir.ir.nodes import Program
    from kir.rewrite import Pass
    from kir.rewrite.edit import Path as At

NEAREST = 6
"""Near misses that are shown of a pass that applies nowhere."""


def command(
    file: Annotated[str, typer.Argument(help="FILE.kir, or FILE[::KERNEL] of a surface; with --package a folder of recorded bindings")],
    name: Annotated[str, typer.Option("--pass", help="only this pass")] = "",
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel")] = None,
    near: Annotated[bool, typer.Option(help="also near misses, each with its reason")] = False,
    package: Annotated[bool, typer.Option("--package", help="rank the forward sites of a folder of recorded bindings")] = False,
    target: Annotated[str, typer.Option(help="with --package or --at: the device that is modelled (sm_90a)")] = "",
    most: Annotated[int | None, typer.Option(help="with --package: how many suggestions are shown (40)")] = None,
    jobs: Annotated[int | None, typer.Option("-j", "--jobs", help="with --package: processes at once (one a core)")] = None,
    seconds: Annotated[float | None, typer.Option(help="with --package: how long one kernel may be looked at (60)")] = None,
    at: Annotated[str, typer.Option(help="forecast the forward sites at sizes, M=..,N=..")] = "",
    model: Annotated[str, typer.Option(help="with --package or --at: analytic, learned or language; the learned model, where there is one")] = "",
) -> Result:
    """Show where each pass applies, forward and backward, with the verdict of every precondition."""
    if package:
        return _ranked(Path(file), target or "sm_90a", 40 if most is None else most, jobs or 0, 60.0 if seconds is None else seconds, name, model)
    belong("sites", "--package", {"--most": most, "--jobs": jobs, "--seconds": seconds})
    if not at:
        belong("sites", "--package or --at", {"--target": target, "--model": model})
    from dataclasses import replace

    from kir.base.diagnostic import KirError
    from kir.base.fork_map import halved
    from kir.base.registry import registry
    from kir.faces.api.places import asked
    from kir.rewrite.registry import pass_class, pass_names

    program = read(file, bind)
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    warnings: list[Diagnostic] = []
    rejected: list[tuple[At, str]] = []
    if name:
        pass_class(name)  # says what is wrong with the one that was asked for
    else:
        warnings += [each.diagnostic() for each in registry("kir.passes").broken()]
    for found in halved([name] if name else pass_names(), lambda each: asked(each, program, near)):
        rows += found.rows
        lines += found.lines
        warnings += found.warnings
        rejected += found.rejected
    if name and warnings:
        raise KirError(*(replace(told, severity="error") for told in warnings))
    if not rows and name and not near:
        lines = [f"{name} applies nowhere", *_nearest(pass_class(name).with_options({}), program, rejected)]
    if at:
        rows, lines = _forecast(program, rows, at, target or "sm_90a", model)
    lines += [_summed(rows)] if rows else []
    return Result({"program": program.name, "sites": rows}, "\n".join(lines) or "no pass applies", diagnostics=tuple(warnings))


def _forecast(program: Program, rows: list[dict[str, Any]], at: str, name: str, model: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The forward sites with what they are forecast to bring, best first, those that are refused last; and a line each."""
    from kir.base.diagnostic import KirError, usage
    from kir.hardware.target import target
    from kir.learning.forecast.choosing import forecaster
    from kir.learning.forecast.distribution import Pair
    from kir.learning.forecast.shown import brief, to_json
    from kir.rewrite import Pipeline, Trace

    parts = dict(part.partition("=")[::2] for part in at.split(","))
    if not all(value.strip().isdigit() for value in parts.values()):
        raise usage("KIR-C002", f"--at {at}: no sizes", subject="kir sites", needs="M=..,N=..")
    sizes, device, ask = {name.strip(): int(value) for name, value in parts.items()}, target(name), forecaster(model)
    ranked: list[tuple[bool, float, dict[str, Any], str]] = []
    for row in rows:
        if row["direction"] != "forward" or "step" not in row:
            continue
        if row["refused"]:
            ranked.append((True, 0.0, row, f"{'':>24}  {row['step']}  refused"))
            continue
        try:
            after = Trace(program).then(Pipeline.parse(row["step"], row["step"]).steps[0]).program
        except KirError as bad:
            ranked.append((True, 0.0, {**row, "refused": [d.id for d in bad.diagnostics]}, f"{'':>24}  {row['step']}  refused"))
            continue
        found = ask(Pair(program, after, sizes, device, row["step"]))
        said = {"yes": "  pays", "no": "  does not pay", "unsure": ""}[found.pays]
        ranked.append((False, -found.median * (1 - found.fails), {**row, "forecast": to_json(found)}, f"{brief(found):>24}  {row['step']}{said}"))
    ranked.sort(key=lambda each: each[:2])
    return [row for _, _, row, _ in ranked], [line for _, _, _, line in ranked]


def _summed(rows: list[dict[str, Any]]) -> str:
    """How many places there are, and what the mark before some of them means."""
    places = [row for row in rows if "step" in row]
    refused = sum(bool(row["refused"]) for row in places)
    back = "; ~ takes a pass back" if any(row["direction"] == "backward" for row in places) else ""
    return f"{len(places)} place{'' if len(places) == 1 else 's'}, {refused} refused{back}"


def _nearest(item: Pass, program: Program, rejected: list[tuple[At, str]]) -> list[str]:
    """Why a pass that was asked for does not apply: the places it came near to, a few of them."""
    from kir.base.diagnostic import KirError
    from kir.rewrite import misses
    from kir.rewrite.anchor import anchor_text
    from kir.rewrite.pipelines.text import Direction

    found = [f"  {item.name}@{anchor_text(program, path)}  {reason}" for path, reason in rejected]
    try:
        directions: tuple[Direction, ...] = ("forward", "backward")
        for direction in directions:
            mark = "" if direction == "forward" else "~"
            found += [f"  {mark}{item.name}@{anchor_text(program, path)}  {reason}" for path, reason in misses(item, program, direction)]
    except KirError as bad:
        found.append(f"  {bad.diagnostics[0].message}")
    more = [f"  .. and {len(found) - NEAREST} more (--near)"] if len(found) > NEAREST else []
    return [*found[:NEAREST], *more] or [f"  no kernel or statement has the form that it looks for; `kir passes {item.name}` shows one"]


def _ranked(folder: Path, name: str, most: int, jobs: int, seconds: float, only: str, model: str) -> Result:
    """Suggestions for many kernels, best first."""
    import os

    from kir.faces.cli._progress import bar
    from kir.hardware.target import target
    from kir.learning.corpus.rank import ranked, recorded
    from kir.rewrite import pass_class

    chosen = frozenset({pass_class(only).name} if only else ())
    with bar("sites", len(recorded(folder))) as advance:
        found = ranked(folder, target(name), advance, jobs or os.cpu_count() or 1, seconds, chosen, model)
    lines = []
    for s in found.suggestions[:most]:
        stop = f"refused {', '.join(s.refused)}" if s.refused else f"undecided {', '.join(s.open_)}" if s.open_ else "applies"
        lines.append(f"{2 ** s.gain:6.3f}x ({2 ** s.low:.2f} to {2 ** s.high:.2f})  {s.step}  in {s.kernel.rpartition('/')[2]} ({s.binding}): {stop}")
    lines += [f"skipped {place}: {why}" for place, why in found.skipped]
    allowed = sum(1 for s in found.suggestions if not s.refused and not s.open_)
    lines.append(f"{len(found.suggestions)} sites in {found.kernels} kernels, {allowed} may be applied; {len(found.skipped)} left out")
    data = {"target": name, "kernels": found.kernels, "suggestions": [s.to_json() for s in found.suggestions],
            "skipped": [{"kernel": place, "reason": why} for place, why in found.skipped],
            "spent": found.spent.to_json()}
    return Result(data, "\n".join(lines) or "no pass applies")
