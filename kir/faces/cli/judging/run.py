"""interpret a program on the CPU, with the hazard report

FILE is IR text (.kir), or FILE::KERNEL of a surface with its binding. With a problem, outputs are judged by its float64 oracle; without
one, inputs are random and only the hazards count. With --check and neither --shape nor --distribution, the problem's shapes and
distributions are run one after another until one shows a fault; what takes too long is left out and named. Exit code 1: a wrong output,
or an error finding.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kir.faces.cli._options import belong
from kir.faces.cli._program import for_problem, read, scalars_given
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from rich.console import Group

    from kir.interp import Result as Ran
    from kir.ir.nodes import Program
    from kir.problem import Comparison


def command(
    file: Annotated[str, typer.Argument(help="FILE.kir, or FILE[::KERNEL] of a surface; package:path names a file of an installed package")],
    problem: Annotated[str, typer.Option(help="what it must compute: a name, or a folder with problem.toml")] = "",
    check: Annotated[bool, typer.Option("--check", help="play the adversary: races, undefined values, bounds, timing")] = False,
    shape: Annotated[str, typer.Option(help="one of the problem's shapes, or M=..,N=.. (default: the first with a tail; with --check, all small ones)")] = "",
    distribution: Annotated[str, typer.Option(help="one of the problem's input distributions (default: normal; with --check, all)")] = "",
    seed: Annotated[int, typer.Option(min=0, help="seed of the inputs")] = 0,
    sizes: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE: a size or scalar, where no problem gives it")] = None,
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel (TOML)")] = None,
    against: Annotated[str, typer.Option(help="MODULE:FUNCTION of PyTorch's that computes the same: outputs are judged by it")] = "",
) -> Result:
    """Interpret a program on the CPU, with the hazard report."""
    from kir.base.diagnostic import KirError
    from kir.faces.api.inputs import inputs_of, meets
    from kir.interp import run

    problem, under = for_problem(file, bind, problem, against) if against else (problem, bind)
    if problem and not against and bind is None:
        from kir.surface.oracles import named_for

        problem, under = named_for(file, problem)
    program = read(file, under, problem)
    if check:
        from kir.ir.rules.verify import verify

        wrong = tuple(d for d in verify(program) if d.severity == "error")
        if wrong:  # as `kir parse` has it: what the verifier refuses is not run
            raise KirError(*wrong)
    given = _values(sizes or [], program)
    if problem:
        meets(program, problem, given)
        scalars_given(program, problem, given)
    else:
        belong("run", "--problem", {"--shape": shape, "--distribution": distribution})
    if check and problem:
        return _checked(program, problem, shape, distribution, seed, given)
    arrays, scalars, judge = inputs_of(program, problem, shape, distribution or "normal", seed, given)
    ran = run(program, arrays, scalars, mode="check" if check else "fast", traffic=check)
    verdict = judge(ran.outputs) if judge is not None else None
    code = 1 if ran.errors or (verdict is not None and not verdict.ok) else 0
    data = _data(program.name, ran, verdict, scalars, check)
    said = "" if problem else _chosen(scalars, given)
    return Result(data, _shown(program, ran, verdict, check, said), code, tuple(f.diagnostic() for f in ran.findings))


def _data(name: str, ran: Ran, verdict: Comparison | None, scalars: Mapping[str, int | float], check: bool) -> dict[str, Any]:
    return {
        "program": name, "mode": "check" if check else "fast", "sizes": dict(sorted(scalars.items())),
        "correct": None if verdict is None else {"ok": verdict.ok, "worst": verdict.worst, "where": verdict.where, "bound": verdict.bound,
                                                 "reason": verdict.reason},
        "findings": [f.to_json() for f in ran.findings], "counters": ran.counters.to_json()}


def _checked(program: Program, problem: str, shape: str, distribution: str, seed: int, given: Mapping[str, int | float]) -> Result:
    """A problem's cases in checking mode: the last one that ran, with the findings of all."""
    from kir.faces.api.inputs import shape_for
    from kir.gate.checked import cases, checked, named, one
    from kir.problem import load_problem

    known = load_problem(problem)
    if shape or distribution or seed:
        chosen = [one(program, known, shape_for(program, known, shape), distribution or "normal", seed)]
        left = chosen[:0]
    else:
        shape_for(program, known, shape)
        chosen, left = cases(program, known)
    ran = list(checked(program, chosen, given, traffic=True))
    worst = ran[-1] if not ran[-1].ok else max(ran, key=lambda c: c.verdict.worst)
    findings = tuple(dict.fromkeys(f for c in ran for f in c.result.findings))
    shown = replace(worst.result, findings=findings)
    scalars = {k: v for k, v in {**worst.case.scalars, **given}.items() if k in {p.name for p in program.params}}
    data = _data(program.name, shown, worst.verdict, scalars, True) | {
        "cases": [named(c.case) for c in ran], "left_out": [named(c) for c in left] if worst.ok else []}
    said = f"{len(ran)} case{'s' * (len(ran) != 1)}: {', '.join(named(c.case) for c in ran)}"
    said += f"; too long for one run: {', '.join(named(c) for c in left)}" if left and worst.ok else ""
    wrong = (worst.wrong,) if worst.wrong is not None else ()
    return Result(data, _shown(program, shown, worst.verdict, True, said), 0 if worst.ok else 1,
                  (*(f.diagnostic() for f in findings), *wrong))


def _values(given: list[str], program: Program) -> dict[str, int | float]:
    """What --set gives: sizes and scalars of the program, each a number that it may be."""
    from kir.base.diagnostic import did_you_mean, usage
    from kir.ir.types import DType

    own = {p.name: p for p in program.params if isinstance(p.of, DType)}
    out: dict[str, int | float] = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            out[name] = float(value) if any(c in value for c in ".en") else int(value)
        except ValueError:
            raise usage("KIR-C002", f"--set {text}: not NAME=NUMBER", subject="kir run", needs=_one_of(own)) from None
        if name not in own:
            raise usage("KIR-C002", f"--set {text}: '{program.name}' has no size or scalar '{name}'", subject="kir run", attempt=did_you_mean(name, own),
                        needs=_one_of(own))
        if own[name].role == "size" and (not isinstance(out[name], int) or out[name] < 0):
            raise usage("KIR-C002", f"--set {text}: a size is a whole number of 0 or more", subject="kir run")
        of = own[name].of
        if isinstance(of, DType) and of.is_integer and not of.range[0] <= out[name] <= of.range[1]:
            raise usage("KIR-C002", f"--set {text}: '{name}' is {of.name}", subject="kir run",
                        needs=f"{0 if own[name].role == 'size' else of.range[0]} to {of.range[1]}, as its dtype holds")
    return out


def _one_of(names: Collection[str]) -> str:
    """What --set may name."""
    return f"one of {', '.join(names)}, and a number" if names else "no --set: it has none"


def _chosen(scalars: Mapping[str, int | float], given: Mapping[str, int | float]) -> str:
    """The sizes of a run without a problem, and who chose them."""
    if not scalars:
        return ""
    free = [name for name in scalars if name not in given]
    return f"at {', '.join(f'{name}={value}' for name, value in scalars.items())}{' (--set NAME=VALUE for others)' if free else ''}; inputs are random"


def _shown(program: Program, ran: Ran, verdict: Comparison | None, check: bool, cases: str = "") -> Group:
    """The verdict for a terminal; the findings themselves are printed as diagnostics."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from kir.ir.nodes import For
    from kir.ir.visit import statements

    name = program.name
    threads = any(isinstance(s, For) and s.kind == "thread" for k in program.kernels for s in statements(k.body))
    errors, weak = len(ran.errors), len(ran.findings) - len(ran.errors)
    parts: list[Any] = []
    if verdict is not None:
        word = ("correct", "bold green") if verdict.ok else ("wrong", "bold red")
        tail = f", worst error {verdict.worst:.3g} of its bound" if verdict.ok else f": {verdict.reason}"
        parts.append(Text.assemble((name, "bold"), " ", word, tail))
    hazards = f"{errors} error finding{'s' * (errors != 1)}, {weak} weak" if check or ran.findings else "hazards not looked for (--check)"
    parts.append(Text.assemble((name, "bold"), " ran: ", hazards) if verdict is None else Text(hazards))
    parts += [Text(cases, style="dim")] if cases else []
    table = Table("counted", "", box=None, header_style="dim")
    for key, value in sorted(ran.counters.bytes.items()):
        table.add_row(f"bytes {key}", f"{value:,}")
    for key, value in sorted(ran.counters.flops.items()):
        table.add_row(f"flops {key}", f"{value:,}")
    if check and threads:
        table.add_row("sectors", f"{ran.counters.sectors:,}")
        table.add_row("bank conflicts", f"{ran.counters.bank_conflicts:,}")
    if threads or ran.counters.barriers:
        table.add_row("barriers", f"{ran.counters.barriers:,}")
    parts += [table] if table.row_count else []
    return Group(*parts, *([] if threads else [Text("sectors, bank conflicts and barriers are counted once a program says what its threads do", style="dim")]))
