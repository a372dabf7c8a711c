"""show the structural difference of two programs, or of the two sides of a lineage's step

What moved is shown as moved, not as deleted and added.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kir.cli._result import Result


def command(
    a: Annotated[Path, typer.Argument(help="a program (IR text), or a lineage's folder with --step")],
    b: Annotated[Path | None, typer.Argument(help="the program to compare with")] = None,
    step: Annotated[int, typer.Option(help="the forward transition of the lineage, 1 at the naive end")] = 0,
    html: Annotated[Path | None, typer.Option(help="also write the difference to this HTML file")] = None,
) -> Result:
    """Show the structural difference of two programs, or of the two sides of a lineage's step."""
    from kir.diagnostic import usage
    from kir.ir.diff import diff, render_html, render_terminal, to_json
    from kir.ir.parser import parse_program
    from kir.lineage.source import read_text
    from kir.store import write_atomic

    if step and b is None:
        from kir.lineage.folder import opened

        folder = opened(a)
        transitions = dict(folder.read().transitions())
        if step not in transitions:
            raise usage("KIR-S014", f"there is no step {step} in {folder.file}", needs=f"1 to {len(transitions)}")
        after = transitions[step].after
        assert after is not None
        before, changed = folder.program(after), folder.program(transitions[step].before)
        named = {"lineage": str(folder.file), "step": step, "forward": transitions[step].forward}
    elif b is not None and not step:
        before, changed = (parse_program(read_text(each), str(each)) for each in (a, b))
        named = {"before": str(a), "after": str(b)}
    else:
        raise usage("KIR-C002", "give two programs, or a lineage with --step N", attempt="kir diff --help")
    found = diff(before, changed)
    if html is not None:
        from kir.report.page import alone

        write_atomic(html, alone(f"{a} and {b}" if b else f"{a}, step {step}", render_html(found)))
    return Result({**named, **to_json(found)}, render_terminal(found))
