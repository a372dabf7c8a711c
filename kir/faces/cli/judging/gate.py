"""put a kernel through the gate: compile, correctness, profile

FILE is IR text (.kir) or a source file, FILE::KERNEL where it holds several; package:path names a file of an installed
package. The verdict names the stage that refused, or the modelled time on each target.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kir.faces.cli._options import belong, can_be_written, written_on
from kir.faces.cli._program import for_problem
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from rich.console import Group

    from kir.gate import Realized, Verdict
    from kir.ir.binding import Binding
    from kir.ir.nodes import Program
    from kir.problem import Problem


TELLING = ("HGMMA", "QGMMA", "HMMA", "IMMA", "DMMA", "UTMALDG", "UTMASTG", "LDGSTS", "LDSM", "STSM", "USETMAXREG", "LDL", "STL")
"""Opcodes that are always shown: tensor cores, copies in hardware, registers given and taken, local memory."""


def command(
    file: Annotated[str, typer.Argument(help="FILE[::KERNEL]: IR text, or a source that a frontend reads")],
    problem: Annotated[str, typer.Option(help="what the kernel must compute: a name, a folder with problem.toml, or a KernelBench file (.py)")] = "",
    on: Annotated[Literal["cpu", "gpu"], typer.Option(help="the gate")] = "cpu",
    against: Annotated[str, typer.Option(help="another FILE[::KERNEL]: its code (its outputs, without --problem) is compared; or MODULE:FUNCTION")] = "",
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel (TOML)")] = None,
    against_bind: Annotated[Path | None, typer.Option(help="the binding of the other one, where it is another")] = None,
    surface: Annotated[str, typer.Option(callback=written_on, help="the surface to emit and compile; by default the kernel's own")] = "",
    target: Annotated[str, typer.Option(help="targets, with commas between them")] = "sm_80,sm_90a",
    emit: Annotated[Path | None, typer.Option(callback=can_be_written, help="a file to write the emitted source to")] = None,
    cache: Annotated[Path | None, typer.Option(help="a folder in which compiled artifacts are kept")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="on a GPU: a shape to time (may be repeated); by default all timed ones")] = None,
    panel: Annotated[bool | None, typer.Option(help="on a GPU: time the problem's references too (it does)", show_default=False)] = None,
    sanitize: Annotated[bool | None, typer.Option(help="on a GPU: run compute-sanitizer once (it does)", show_default=False)] = None,
    validate: Annotated[bool, typer.Option("--validate", help="read back what the compiler made: no barrier, wait or mask lost, same values")] = False,
    trace: Annotated[Path | None, typer.Option(callback=can_be_written, help="a folder for definition, solution and traces (FlashInfer-Trace)")] = None,
    numbers: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE: a scalar of the kernel that the problem does not have")] = None,
    records: Annotated[Path | None, typer.Option(callback=can_be_written, help="a file to which the verdict is added as one JSON line")] = None,
) -> Result:
    """Put a kernel through the gate: compile, correctness, profile."""
    from kir.base.diagnostic import usage
    from kir.base.store import write_atomic
    from kir.faces.api.kernels import nvcc_would
    from kir.faces.cli._program import quoted_bind
    from kir.gate import gate_cpu, realized, summary
    from kir.gate.proved.compiled import validated
    from kir.gate.proved.in_turn import require_in_turn
    from kir.gate.proved.unsaid import require_apart, require_said
    from kir.gate.proved.widths import require_wide, with_widths_said
    from kir.hardware.target import target as named
    from kir.problem import load_problem
    from kir.surface import backend
    from kir.surface.oracles import is_function
    from kir.surface.reading import located

    if on == "gpu":
        from kir.gate.gpu.machine import require_device
        require_device()
    else:
        without = {"--no-panel": panel is False, "--no-sanitize": sanitize is False}
        belong("gate", "--on gpu", {"--shape": shape, "--panel": panel, "--sanitize": sanitize, **without})
    if against_bind is not None and not against:
        belong("gate", "--against FILE", {"--against-bind": against_bind})
    if trace is not None and not problem:
        raise usage("KIR-G001", "a trace needs a definition", needs="--problem P")
    if surface:
        backend(surface)
    if not problem and not against:
        located(file)  # one that is not there is what is wrong first
        raise usage("KIR-G001", "there is nothing to judge correctness by", needs="--problem P, or --against FILE",
                    attempt=f"kir check {quote(file)}, which needs neither; kir problems lists what there is")
    targets = [named(each) for each in target.split(",") if each.strip()]
    function = against if not problem and is_function(against) else ""
    against = "" if function else against
    problem, under = for_problem(file, bind, problem, function, numbers or [])
    kernel, own, unsaid, joined, text = _read(file, under, problem)
    other, others, *_, text_of_other = _read(against, against_bind or bind) if against else (None, "", None)
    wanted = load_problem(problem) if problem else None
    require_said(kernel, unsaid, wanted, other, quoted_bind(file))
    require_apart(kernel, joined)
    require_in_turn(kernel, own)
    require_wide(text, text_of_other)
    if wanted is not None:
        from kir.gate.gpu.panel import require_known
        require_known(wanted)
    own = others if own == "kir" and others else own
    if on == "gpu":
        verdict = _on_gpu(kernel, wanted, surface or own, other, cache, tuple(shape or ()), panel is not False, sanitize is not False)
        targets = [named(verdict.artifacts[0].target)] if verdict.artifacts else targets
    else:
        verdict = gate_cpu(kernel, wanted, surface or own, targets, other, cache=cache, algebra=True, hazards=True)
    verdict = with_widths_said(verdict, text)
    if emit is not None and verdict.emitted is not None:
        write_atomic(emit, verdict.emitted.text)
    reached = None
    if other is not None and verdict.artifacts:
        same = verdict.compile.surface if others == "kir" else others
        before = gate_cpu(other, wanted, surface or same, targets, kernel, cache=cache).artifacts
        reached = summary({a.target: realized(b, a) for a, b in zip(verdict.artifacts, before, strict=False)})
    json: dict[str, Any] = dict(verdict.record)
    json["realized"] = None if reached is None else reached.to_json()
    read_back = validated(kernel, verdict.compile.surface, targets[0]) if validate and verdict.accepted else None
    json["validated"] = None if read_back is None else read_back.to_json()
    json["emitted"] = "" if verdict.emitted is None else verdict.emitted.text
    if records is not None:
        from kir.gate.records import append
        append(records, verdict)
    if trace is not None:
        from kir.gate.trace import written
        assert wanted is not None
        written(trace, verdict, wanted)
    shown = _shown(kernel.name, verdict, reached)
    if verdict.compile.absent and not any(a.kernels for a in verdict.artifacts) and nvcc_would(kernel, verdict.compile.surface):
        shown.renderables.append("--surface cuda compiles it with the nvcc that is here")
    if read_back is not None:
        shown.renderables.append(read_back.line)
    good = verdict.accepted and (read_back is None or read_back.status == "holds")
    return Result(json, shown, 0 if good else 1, (*verdict.diagnostics(), *(read_back.diagnostics() if read_back is not None else ())))


def _on_gpu(kernel: Program, problem: Problem | None, surface: str, other: Program | None, cache: Path | None, shapes: tuple[str, ...],
            panel: bool, sanitize: bool) -> Verdict:
    from kir.gate.gpu import Gpu, Options, gate_gpu
    from kir.gate.gpu.relative import program_problem

    with Gpu.open(cache) as gpu:
        judged_by = problem if problem is not None else program_problem(other, kernel)
        return gate_gpu(gpu, kernel, judged_by, surface, other, options=Options(shapes, panel, sanitize, hazards=True))


def _read(file: str, bind: Path | Binding | None, problem: str = "") -> tuple[Program, str, frozenset[str], frozenset[tuple[str, ...]], Program]:
    """A program, the surface that it is emitted on (`kir` for IR text that any backend may take), its facts that nothing says, its tensors that are
    one, and the program as it was written."""
    from kir.faces.cli._program import read
    from kir.surface.reading import binding_of, load_expert, own_surface

    if file.endswith(".kir"):
        program = read(file, bind)
        return program, own_surface(program, "kir"), frozenset(), frozenset(), program
    expert = load_expert(file, binding_of(file, bind, problem))
    return expert.program, expert.surface, expert.unsaid, expert.joined, expert.written or expert.program


def _shown(name: str, verdict: Verdict, reached: Realized | None) -> Group:
    """The verdict for a terminal: one line, then what was compiled, checked and modelled."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    word = ("accepted", "bold green") if verdict.accepted else (f"refused at {verdict.stage}", "bold red")
    parts: list[Any] = [Text.assemble((name, "bold"), " ", word, f": {verdict.reason}")]
    if any(artifact.kernels for artifact in verdict.artifacts):
        table = Table("compiled", "registers", "spills", "shared", "threads", "SASS", box=None, header_style="dim", title_justify="left")
        for artifact in verdict.artifacts:
            for k in artifact.kernels:
                order = sorted(k.mix.items(), key=lambda kv: (-kv[1], kv[0]))
                top = [x for x in order if x[0] in TELLING] + [x for x in order if x[0] not in TELLING][:4]
                table.add_row(f"{k.kernel} {artifact.target}", str(k.registers), str(k.spills), str(k.shared_bytes), str(k.threads),
                              f"{sum(k.mix.values())}: " + " ".join(f"{opcode} {count}" for opcode, count in top) if k.mix else "no disassembler")
        parts.append(table)
    parts += [Text(f"not compiled: {absent}", style="yellow") for absent in verdict.compile.absent if absent not in verdict.reason]
    if verdict.correctness is not None:
        right = verdict.correctness
        worst = max((r.worst for r in right.runs), default=0.0)
        how = "relative to " if right.relative else "against "
        parts.append(Text(f"correctness: {len(right.runs)} runs {how}{right.reference}, worst error {worst:.3g} of its bound"))
        if right.coverage is not None:
            parts.append(Text(right.coverage.line))
        if right.algebra is not None:
            parts.append(Text(right.algebra.line))
        if right.hazards is not None:
            parts.append(Text(right.hazards.line))
    if modelled := [row for row in verdict.profile if row.kind == "modelled"]:
        table = Table("modelled", "shape", "time", "bound by", box=None, header_style="dim")
        for row in modelled:
            table.add_row(row.target, row.shape, _time(row.seconds), row.bound_by)
        parts.append(table)
    if verdict.device is not None:
        parts += _measured(verdict)
    if reached is not None:
        parts.append(Text(f"{'realized' if reached.realized else 'not realized'}: {reached.reason}"))
    return Group(*parts)


def _measured(verdict: Verdict) -> list[Any]:
    """What the device said: medians with their intervals, the panel, what confined the candidate."""
    from rich.table import Table
    from rich.text import Text

    assert verdict.device is not None
    parts: list[Any] = []
    rows = [row for row in verdict.profile if row.kind == "measured" and row.interval is not None]
    if rows or verdict.device.panel:
        table = Table("measured", "shape", "median", "95 %", "samples", "times faster", box=None, header_style="dim")
        for row in rows:
            low, high = row.interval or (0.0, 0.0)
            table.add_row(row.target, row.shape, _time(row.seconds), f"{_time(low)} .. {_time(high)}", str(row.samples), "")
        for each in verdict.device.panel:
            if "missing" in each:
                table.add_row(str(each["reference"]), str(each["shape"]), "missing", str(each["missing"]), "", "")
            else:
                low, high = each["interval"]
                table.add_row(str(each["reference"]), str(each["shape"]), _time(each["median"]), f"{_time(low)} .. {_time(high)}",
                              str(each["samples"]), f"{each['times_faster']:.3g}")
        parts.append(table)
    for shape, each in (verdict.device.against or {}).items():
        low, high = each["times_faster"]["interval"]
        parts.append(Text(f"against the other at {shape}: {each['times_faster']['median']:.3g} times as fast ({low:.3g} .. {high:.3g})"))
    checked = verdict.device.sanitizer
    tools = ", ".join(checked.get("tools", ())) or f"not run ({checked.get('absent', 'never reached')})"
    parts += [Text(f"compute-sanitizer: {tools}"), Text(f"isolation: {verdict.isolation}")]
    return parts


def _time(seconds: float) -> str:
    scale, unit = (1e6, "us") if seconds < 1e-3 else (1e3, "ms") if seconds < 1 else (1.0, "s")
    return f"{seconds * scale:.3g} {unit}"
