"""explore a kernel in the browser: source, IR, emitted code and SASS side by side, passes applied by clicks

A page of this machine alone. Hovering over a line marks what belongs to it on the other sides; passes are listed by what they are forecast to bring, a
click applies one, Undo takes it back, and the pipeline can be copied out. A lineage (its folder, or the name of one that comes with KIR) opens as slides.
Needs the extra `explore`: pip install 'kernel-lineage[explore]'.
"""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def command(
    file: Annotated[str, typer.Argument(help="FILE.kir, FILE[::KERNEL] of a surface, or a lineage")],
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel")] = None,
    problem: Annotated[str, typer.Option(help="what it computes: figures are for the first of its timed shapes")] = "",
    at: Annotated[str, typer.Option(help="the sizes that figures are for, M=..,N=..")] = "",
    target: Annotated[str, typer.Option(help="the device that is modelled")] = "h200",
    port: Annotated[int, typer.Option(min=0, max=65535, help="the port (0: a free one)")] = 0,
    show: Annotated[bool, typer.Option("--browser/--no-browser", help="open the page in the browser")] = True,
) -> int:
    """Explore a kernel in the browser."""
    from kir.faces.explore.server import serve
    from kir.faces.explore.session import Session

    def told(address: str) -> None:
        print("\n".join((f"{address} (Control-C ends it)", *session.under)), file=sys.stderr, flush=True)
        if show:
            webbrowser.open(address)
    session = Session(file, bind, problem, at, target)
    serve(session, port, told)
    return 0
