"""write a kernel as a package of Hugging Face's `kernels` hub, with its lineage and the gate's record inside

FILE is a lineage (its folder, or the name of one that comes with KIR), whose expert is written with the record that it was walked under; or a kernel, which
passes the CPU gate first (--problem). A package holds Triton code, which every torch runs; nothing is uploaded.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from kir.faces.cli._options import can_be_written
from kir.faces.cli._result import Result


def command(
    file: Annotated[str, typer.Argument(help="a lineage, FILE.kir, or FILE[::KERNEL] of a surface")],
    hub: Annotated[bool, typer.Option("--hub", help="as a package of the hub (the one form that there is)")] = True,
    output: Annotated[Path | None, typer.Option("-o", "--output", callback=can_be_written, help="the folder to write; by default NAME.hub here")] = None,
    name: Annotated[str, typer.Option(help="the package's name; by default the kernel's")] = "",
    license: Annotated[str, typer.Option(help="the license of what it was made from, as the hub names licenses")] = "other",
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel")] = None,
    problem: Annotated[str, typer.Option(help="what a kernel must compute; a lineage knows")] = "",
) -> Result:
    """Write a kernel as a package of the hub."""
    from kir.analysis import normalize
    from kir.base.diagnostic import error, usage
    from kir.faces.api.kernels import judge, read
    from kir.faces.hub.package import must_be_said, package
    from kir.lineage.records.folder import opened

    folder = opened(Path(file)) if "::" not in file else None
    if folder is not None and folder.file.is_file():
        record = folder.read()
        program, verdict, called = folder.program(record.start), dict(record.start_gate), record.header.expert
    else:
        folder = None
        if not problem:
            raise usage("KIR-G001", "there is nothing to judge correctness by", subject="kir export", needs="--problem, or a lineage",
                        attempt=f"kir lineage {quote(file)}, then kir export of its folder")
        kernel = read(file, bind)
        must_be_said(normalize(kernel.program))
        found = judge(kernel, problem, surface="triton")
        if not found.accepted:
            raise error("KIR-C011", f"the gate refuses it: {found.stage}: {found.reason}", needs="a kernel that passes the gate")
        program, verdict, called = kernel.program, dict(found.record), kernel.name
    place = output or can_be_written(Path(f"{name or called}.hub"))
    assert place is not None
    files = package(normalize(program), name or called, place, verdict, folder.root if folder is not None else None, license)
    return Result({"folder": str(place), "name": name or called, "files": [str(each) for each in files]}, f"{place}: {len(files)} files")
