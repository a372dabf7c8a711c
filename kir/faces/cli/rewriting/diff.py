"""show the structural difference of two programs, or of the two sides of a lineage's step

What moved is shown as moved, not as deleted and added.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from kir.ir.nodes import Program


def command(
    a: Annotated[str, typer.Argument(help="a program (FILE.kir, or FILE[::KERNEL] of a surface), or a lineage's folder with --step")],
    b: Annotated[str, typer.Argument(help="the program to compare with", show_default=False)] = "",
    step: Annotated[int, typer.Option(min=0, help="the forward transition of the lineage, 1 at the naive end")] = 0,
    bind: Annotated[Path | None, typer.Option(help="a binding, under which kernels of a surface are compared in normal form")] = None,
    html: Annotated[Path | None, typer.Option(help="also write the difference to this HTML file")] = None,
    algebra: Annotated[bool, typer.Option("--algebra", help="also say whether both are equal over the reals, for all inputs at the sizes of --set")] = False,
    sizes: Annotated[list[str] | None, typer.Option("--set", help="with --algebra, NAME=NUMBER: a size")] = None,
) -> Result:
    """Show the structural difference of two programs, or of the two sides of a lineage's step."""
    from kir.base.diagnostic import usage
    from kir.base.store import write_atomic
    from kir.ir.changes.diff import diff, render_html, render_terminal, to_json

    if step and not b:
        from kir.lineage.records.folder import opened

        folder = opened(Path(a))
        transitions = dict(folder.read().transitions())
        if step not in transitions:
            raise usage("KIR-S014", f"there is no step {step} in {folder.file}", needs=f"1 to {len(transitions)}")
        after = transitions[step].after
        assert after is not None
        before, changed = folder.program(after), folder.program(transitions[step].before)
        named = {"lineage": str(folder.file), "step": step, "forward": transitions[step].forward}
    elif b and not step:
        before, changed = _programs(a, b, bind)
        named = {"before": a, "after": b}
    else:
        raise usage("KIR-C002", "give two programs, or a lineage with --step N", attempt="kir diff --help")
    found = diff(before, changed)
    if html is not None:
        from kir.faces.report.page import alone

        write_atomic(html, alone(f"{a} and {b}" if b else f"{a}, step {step}", render_html(found)))
    data, shown = {**named, **to_json(found)}, render_terminal(found)
    if algebra:
        answer = _over_reals(before, changed, sizes or [])
        data["algebra"], shown = answer, f"{shown}\n{answer['said']}"
    return Result(data, shown)


def _over_reals(before: Program, changed: Program, given: list[str]) -> dict[str, str | int]:
    """What the algebra says of two programs."""
    from kir.analysis.algebra.equality import equal_over_reals
    from kir.base.diagnostic import usage

    sizes: dict[str, int] = {}
    for text in given:
        name, _, value = text.partition("=")
        if not value.isdigit():
            raise usage("KIR-C002", f"--set {text}: not NAME=NUMBER", subject="kir diff", needs="a size of both programs, and a whole number")
        sizes[name] = int(value)
    found = equal_over_reals(before, changed, sizes)
    at = ", ".join(f"{k} = {v}" for k, v in sizes.items())
    said = f"equal over the reals, for all inputs{f' at {at}' if at else ''}: {found.status}" + (f" ({found.why})" if found.why else "")
    missing = re.fullmatch(r"'(\w+)' has no value", found.why)
    said += f"; --set {missing[1]}=NUMBER" if missing else ""
    return {"status": found.status, "why": found.why, "elements": found.elements, "said": said}


def _programs(a: str, b: str, bind: Path | None) -> tuple[Program, Program]:
    """Two programs as they are compared: as written, or kernels of a surface under a binding, else as their host code launches them, else, where that of one
    is not found, as they stand."""
    from kir.base.diagnostic import KirError
    from kir.faces.cli._program import read
    from kir.ir.parser import parse_program
    from kir.surface.reading import as_found, read_generic, read_text

    def launched(file: str) -> bool:
        try:
            return as_found(file)[0] is not None
        except KirError:
            return False

    sources = [file for file in (a, b) if not file.endswith(".kir")]
    bound = bind is not None or all(launched(file) for file in sources)
    first, second = (parse_program(read_text(Path(file)), file) if file not in sources else read(file, bind) if bound else read_generic(file)[0]
                     for file in (a, b))
    return first, second
