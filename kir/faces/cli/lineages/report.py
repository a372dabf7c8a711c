"""lay lineages side by side in one HTML page: intents in rows, lineages in columns, problem by problem

Each LINEAGE is a folder that `kir lineage` wrote (which holds a report of its own), or the lineage.json in it. `-o FILE.svg` draws the
chain of one lineage alone, for a page of your own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kir.faces.cli._options import can_be_written
from kir.faces.cli._result import Result


def command(
    lineages: Annotated[list[Path], typer.Argument(help="folders of lineages, in the order of their columns")],
    output: Annotated[Path, typer.Option("--output", "-o", callback=can_be_written, help="the HTML file to write, or with .svg the picture of one lineage")
                      ] = Path("report.html"),
) -> Result:
    """Lay lineages side by side in one HTML page: intents in rows, lineages in columns, problem by problem."""
    from kir.base.diagnostic import usage
    from kir.base.store import write_atomic
    from kir.faces.report.page import picture
    from kir.faces.report.surfaces import surfaces
    from kir.faces.report.terminal import realized_text
    from kir.ir.changes.diff import diff, render_html
    from kir.lineage.convergence import form_hashes
    from kir.lineage.records.folder import opened

    folders = [opened(each) for each in lineages]
    records = [folder.read() for folder in folders]
    named = [record.header.problem for record in records]
    order = sorted(range(len(records)), key=lambda i: named.index(named[i]))
    folders, records = [folders[i] for i in order], [records[i] for i in order]
    if output.suffix == ".svg":
        if len(records) > 1:
            raise usage("KIR-S031", "a picture shows one lineage", witness=tuple(str(each) for each in lineages), attempt="an .html page for several")
        write_atomic(output, picture(records[0]))
        return Result({"picture": str(output)}, f"the picture: {output}")
    html = surfaces(list(zip(records, folders, strict=True)), lambda a, b: render_html(diff(a, b)))
    write_atomic(output, html)
    ends = form_hashes([folder.program(record.states[-1]) for folder, record in zip(folders, records, strict=True)])
    rows = [
        {"lineage": str(folder.file), "surface": record.header.surface, "expert": record.header.expert, "ended": record.outcome.ended,
         "realized": record.outcome.realized, "steps": len(record.accepted), "meets": end}
        for folder, record, end in zip(folders, records, ends, strict=True)
    ]
    problems = [*dict.fromkeys(record.header.problem for record in records)]
    one = len({(record.header.problem, at) for record, at in zip(records, ends, strict=True)}) == len(problems)
    lines = [
        f"{row['surface']:<9} {row['expert']}: {realized_text(record)}, ends {row['ended']} at {str(row['meets'])[:16]}"
        for row, record in zip(rows, records, strict=True)
    ]
    if len(records) > 1:
        each = " for each problem" if len(problems) > 1 else ""
        lines.append(f"they meet in one program{each}" if one else f"they do not meet in one program{each}")
    told = {"problem": problems[0], "problems": problems, "lineages": rows, "one": one, "report": str(output)}
    return Result(told, "\n".join([*lines, f"the page: {output}"]))
