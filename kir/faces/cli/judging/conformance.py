"""run each row of the instruction table on the GPU and in the interpreter, and compare

Bitwise, or within the numerics that grammars/conformance.toml declares. Rows that are not run are listed with the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from rich.table import Table

    from kir.gate.gpu.conformance import Conformance


def command(
    row: Annotated[list[str] | None, typer.Option(help="a row of the instruction table (may be repeated); by default all")] = None,
    on: Annotated[Literal["gpu"], typer.Option(help="where to run them")] = "gpu",
    workers: Annotated[int, typer.Option(min=1, help="compilers side by side")] = 4,
    cache: Annotated[Path | None, typer.Option(help="a folder in which compiled artifacts are kept")] = None,
) -> Result:
    """Run each row of the instruction table on the GPU and in the interpreter, and compare."""
    from kir.gate.gpu import Gpu
    from kir.gate.gpu.conformance import conform

    with Gpu.open(cache, attempt="") as gpu:
        gpu.workers = workers
        found = conform(gpu, tuple(row or ()))
        about = {"device": gpu.about}
    json = {**about, "ok": found.ok, "outcomes": [o.to_json() for o in found.outcomes], "left_out": found.left_out}
    return Result(json, _table(found), 0 if found.ok else 1)


def _table(found: Conformance) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("rows", "surface", "", "worst (ulp)", "allowed", "", box=None, header_style="dim")
    for o in found.outcomes:
        mark = Text("ok", style="green") if o.ok else Text("differs", style="bold red")
        table.add_row(", ".join(o.rows), o.surface, mark, f"{o.worst:.3g}", f"{o.allowed:g}", o.said)
    for name, reason in found.left_out.items():
        table.add_row(name, "", Text("not run", style="yellow"), "", "", reason)
    return table
