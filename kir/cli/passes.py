"""list the passes: intent, parameters, preconditions

Read from the text of the modules, so that nothing is imported; `kir plugins` says what is broken.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kir.cli._result import Result
from kir.rewrite.catalog import summaries, table


def command(
    markdown: Annotated[bool, typer.Option(help="the table of docs/passes.md")] = False,
) -> Result:
    """List the registered passes with their parameters, preconditions and catalogue rows."""
    rows = summaries()
    if markdown:
        return Result({"passes": [asdict(r) for r in rows]}, table(rows))
    width = max((len(r.name) for r in rows), default=0)
    lines = []
    for r in rows:
        lines.append(f"{r.name:<{width}}  {r.claim}")
        if r.parameters:
            lines.append(f"{'':<{width}}    {', '.join(r.parameters)}")
        if r.preconditions:
            lines.append(f"{'':<{width}}    needs {' '.join(r.preconditions)}")
    return Result({"passes": [asdict(r) for r in rows]}, "\n".join(lines))
