"""count what becomes of every kernel of a package: parsed, opaque, written back, re-emitted and equal

PACKAGE is an installed package by its import name, or a folder. Results are kept, so that a second run reads only what changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kir.cli._progress import bar
from kir.cli._result import Result

if TYPE_CHECKING:
    from rich.table import Table

    from kir.corpus import Count


def command(
    packages: Annotated[list[str], typer.Argument(help="installed packages by import name, or folders")],
    apart: Annotated[list[str] | None, typer.Option(help="a pattern of files to count apart, such as '*/backend/*' (may be repeated)")] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", help="processes at once (0: one a core)")] = 0,
    seconds: Annotated[float, typer.Option(help="how long one kernel may take")] = 120.0,
    cache: Annotated[Path | None, typer.Option(help="where results are kept (default: the user's cache)")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="read everything again")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="exit 1 when a file or kernel could not be read")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="print the tables of docs/corpus.md")] = False,
    kernels: Annotated[bool, typer.Option("--kernels", help="with --json: the record of every kernel")] = False,
) -> Result:
    """Count what becomes of every kernel of a package."""
    import platformdirs

    from kir.corpus import counted, files_of, place, run
    from kir.corpus.table import page, table

    folder = None if fresh else cache or Path(platformdirs.user_cache_dir("kir")) / "corpus"
    counts: list[Count] = []
    records = []
    for name in packages:
        where = place(name)
        files = list(files_of(where, tuple(apart or ())))
        with bar(where.name, len(files)) as advance:
            results = list(run([path for path, _ in files], jobs, folder, seconds, advance))
        for word, inside in (("", False), (", apart", True)):
            chosen = [r for r, (_, is_apart) in zip(results, files, strict=True) if is_apart == inside]
            if chosen or not inside:
                counts.append(counted(f"{where.name}{word}", chosen))
        records += [r for result in results for r in result["records"]]
    failed = any(c.failed for c in counts)
    data = {"packages": [c.to_json() for c in counts], **({"kernels": records} if kernels else {})}
    shown: str | Table = page(counts) if markdown else table(counts)
    return Result(data, shown, 1 if strict and failed else 0)
