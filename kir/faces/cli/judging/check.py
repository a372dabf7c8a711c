"""decide races, bounds, barriers and undefined values for every size

FILE is IR text (.kir), or FILE[::KERNEL] of a surface: under its binding, or as its launch in host code says; each kernel of a
FILE that has several. Every obligation is proved for all sizes,
refuted by sizes at which a run shows the hazard, or not decided, with why. `kir check --package NAME -o FOLDER` does so for every kernel of a package
whose launch is found, and goes on where it was stopped. Exit code 1: a counterexample; with --strict also for what is not decided.
"""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kir.faces.cli._options import belong, can_be_written
from kir.faces.cli._program import read_written
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from rich.console import Group

    from kir.base.diagnostic import Diagnostic
    from kir.gate.proved import Proved
    from kir.gate.proved.verdict import Finding


def command(
    file: Annotated[str, typer.Argument(help="FILE.kir, or FILE[::KERNEL] of a surface; package:path names a file of an installed package")] = "",
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel (TOML); default: as its launch is found")] = None,
    package: Annotated[str, typer.Option(help="every kernel of an installed package, or of a folder")] = "",
    output: Annotated[Path | None, typer.Option("-o", "--output", callback=can_be_written,
                                                    help="with --package: the folder of the records and of report.md")] = None,
    seconds: Annotated[float, typer.Option(min=0, help="with --package: processor time of one kernel")] = 60.0,
    runs: Annotated[int, typer.Option(min=0, help="how many sizes a program may be run at")] = 6,
    strict: Annotated[bool, typer.Option("--strict", help="exit 1 also for what is not decided, and for facts that nothing says")] = False,
) -> Result:
    """Decide races, bounds, barriers and undefined values for every size."""
    from rich.console import Group

    from kir.base.diagnostic import KirError, usage
    from kir.gate.proved import proved
    from kir.surface.reading import each_kernel

    if package:
        if file or bind is not None or output is None:
            raise usage("KIR-C002", "--package takes a folder for its records and no FILE", attempt=f"kir check --package {package} -o OUT")
        return _package(package, output, seconds, runs)
    belong("check", "--package", {"-o": output})
    if not file:
        raise usage("KIR-C002", "there is nothing to check", attempt="kir check FILE, or kir check --package NAME -o FOLDER")
    found: list[Proved] = []
    told: list[Diagnostic] = []
    refused = False
    for each in each_kernel(file) if bind is None else (file,):
        try:
            program, unsaid, surface, written = read_written(each, bind)
        except KirError as bad:
            if each == file:
                raise
            told, refused = [*told, *bad.diagnostics], True
            continue
        found.append(proved(program, runs, unsaid, surface, written))
        told += [f.diagnostic() for f in found[-1].findings if f.status == "refuted"]
    wrong = refused or any(done.verdict == "refuted" or (strict and (done.verdict != "proved" or bool(done.unsaid))) for done in found)
    answer = found[0].to_json() if each == file else {"programs": [done.to_json() for done in found]}
    return Result(answer, Group(*map(_shown, found)), int(wrong), tuple(told))


def _shown(done: Proved) -> Group:
    """The verdict for a terminal: a row for each kind, then what is not decided, and why."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from kir.gate.proved.verdict import WORDS

    styles = {"proved": "bold green", "refuted": "bold red", "undecided": "bold yellow"}
    words = {"proved": "proved for all sizes", "refuted": "a counterexample", "undecided": "not decided"}
    narrow = done.verdict == "proved" and done.status("overflow") != "proved"
    sizes = [*(["indices fit 32 bits"] if narrow else []), *(done.unsaid if done.verdict == "proved" else ())]
    said = words[done.verdict] + (f" at which {' and '.join(sizes)}" if sizes else "")
    head = Text.assemble((done.program, "bold"), " ", (said, styles["undecided" if done.unsaid and done.verdict == "proved" else done.verdict]))
    if done.unsaid:
        head.append(f"; nothing says that {' and '.join(done.unsaid)}", "bold yellow")
    table = Table("obligations", "proved", "of", "", box=None, header_style="dim")
    for kind, word in WORDS.items():
        rows = [row[kind] for row in done.kernels.values() if kind in row]
        if rows:
            table.add_row(word, str(sum(p for _, p in rows)), str(sum(t for t, _ in rows)), Text(words[done.status(kind)], styles[done.status(kind)]))
    parts: list[Any] = [head, *([table] if table.row_count else [])]
    parts += map(Text, _undecided(done))
    tried = "; ".join(", ".join(f"{k}={v}" for k, v in t.items()) or "its only size" for t in done.tried)
    if not done.decided:
        more = f": {done.not_run}" if done.not_run else ""
        parts.append(Text(f"run instead at {tried}{more}" if tried else f"not run{more}", style="dim"))
    return Group(*parts)


def _undecided(done: Proved) -> list[str]:
    """A sentence for each reason and place of what is not decided, with the kinds of obligations that it leaves open."""
    from kir.base.diagnostic import from_here
    from kir.gate.proved.verdict import WORDS

    same: dict[tuple[str, ...], list[Finding]] = {}
    for f in done.findings:
        if f.status == "undecided":
            same.setdefault((f.what, f.anchor, f.other, f.why), []).append(f)
    out = []
    for (what, anchor, other, why), found in same.items():
        kinds = list(dict.fromkeys(WORDS[f.kind] for f in found))
        origin, count = found[0].origin, sum(f.count for f in found)
        place = f"{from_here(origin)} ({anchor})" if origin is not None else anchor
        also = f" and {other}" if other and other != anchor else ""
        of = f" ({len(kinds)} kinds of obligations)" if len(kinds) > 3 else f" ({', '.join(kinds)})" if len(kinds) > 1 else f" ({count} times)"
        out.append(f"not decided: {what}, at {place}{also}: {why}{of if count > 1 else ''}")
    return out


def _package(package: str, output: Path, seconds: float, runs: int) -> Result:
    """Every kernel of a package, the worst first."""
    from kir.faces.cli._progress import bar
    from kir.learning.corpus.proved import kernels_of, page, proved_all, summary

    with bar(package) as advance:
        rows = proved_all(kernels_of(package), output, seconds, runs, advance)
    text = page(rows, package, f"kir check --package {package} -o {output.name}")
    (output / "report.md").write_text(text, encoding="utf-8")
    total = summary(rows)
    return Result({**total, "kernels": rows}, text, 1 if total["refuted"] else 0)
