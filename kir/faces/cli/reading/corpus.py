"""count what becomes of every kernel of a package: parsed, opaque, written back, re-emitted and equal

PACKAGE is an installed package by its import name, or a folder. Results are kept, so that a second run reads only what changed.
`kir corpus --swap PACKAGE -- COMMAND` runs a command with the package's kernels as KIR writes them, each launch counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kir.base.diagnostic import usage
from kir.faces.cli._options import belong, can_be_written
from kir.faces.cli._progress import bar
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from rich.table import Table

    from kir.learning.corpus import Count


def command(
    packages: Annotated[list[str] | None, typer.Argument(help="packages by import name, or folders; with --swap, the command")] = None,
    lineages: Annotated[list[Path] | None, typer.Option(help="walk kernels of recorded bindings (a folder, or JSON lines) back; or finished lineages")] = None,
    swap: Annotated[list[str] | None, typer.Option(help="run a command with this package's kernels swapped (may be repeated)")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", callback=can_be_written, help="with --swap, --lineages: the folder")] = Path("corpus"),
    apart: Annotated[list[str] | None, typer.Option(help="a pattern of files to count apart, such as '*/backend/*' (may be repeated)")] = None,
    without: Annotated[list[str] | None, typer.Option(help="a pattern of files to leave out (may be repeated)")] = None,
    surface: Annotated[str, typer.Option(help="the kernels of one surface alone: cuda, triton, tilelang")] = "",
    measure: Annotated[bool, typer.Option("--measure", help="with --swap, on a GPU: compare and time both kernels")] = False,
    tune: Annotated[bool, typer.Option(help="with --swap, on a GPU: let autotuners try their configurations")] = True,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=0, help="processes at once (0: one a core)")] = 0,
    seconds: Annotated[float, typer.Option(min=0, help="how long one kernel may take (with --lineages, 0: only say what is known)")] = 120.0,
    cache: Annotated[Path | None, typer.Option(help="where results are kept (default: the user's cache)")] = None,
    fresh: Annotated[bool, typer.Option("--restart", help="read everything again")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="exit 1 when a file or kernel could not be read")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="print the tables of docs/tables/packages.md, or of docs/tables/package-lineages.md")] = False,
    check: Annotated[Path | None, typer.Option(help="with --lineages: say on this page of them which of its experts are other programs today")] = None,
    sample: Annotated[int, typer.Option(min=0, help="with --lineages: walk only so many of them, drawn at random, and say what became of those")] = 0,
    kernels: Annotated[bool, typer.Option("--kernels", help="with --json: the record of every kernel")] = False,
) -> Result:
    """Count what becomes of every kernel of a package."""
    if lineages and check is not None:
        return _checked(lineages, output, check)
    if lineages:
        return _lineages(lineages, output, seconds, jobs, fresh, markdown, sample)
    belong("corpus", "--lineages", {"--check": check, "--sample": sample})
    if swap:
        return _swapped(packages or [], swap, output, measure, tune)
    if not packages:
        raise usage("KIR-C119", "no package is named", attempt="kir corpus PACKAGE")
    import platformdirs

    from kir.learning.corpus import counted, files_of, mentions, of_surface, place
    from kir.learning.corpus.roundtrip.run import run
    from kir.learning.corpus.roundtrip.table import page, table

    folder = None if fresh else cache or Path(platformdirs.user_cache_dir("kir")) / "corpus"
    counts: list[Count] = []
    records = []
    for name in packages:
        where = place(name)
        files = [(p, a) for p, a in files_of(where, tuple(apart or ()), tuple(without or ())) if not surface or mentions(surface, p)]
        if not any(path.suffix in (".py", ".cu", ".cuh") for path, _ in files):
            of = f" with kernels of {surface}" if surface else ""
            raise usage("KIR-C110", f"'{name}' holds no file{of}", needs="a package, a folder or a file of Python or CUDA source")
        with bar(where.name, len(files)) as advance:
            results = [of_surface(r, surface) for r in run([path for path, _ in files], jobs, folder, seconds, advance)]
        for word, inside in (("", False), (", apart", True)):
            chosen = [r for r, (_, is_apart) in zip(results, files, strict=True) if is_apart == inside]
            if chosen or not inside:
                counts.append(counted(f"{where.name}{word}", chosen))
        records += [r for result in results for r in result["records"]]
    failed = any(c.failed for c in counts)
    data = {"packages": [c.to_json() for c in counts], **({"kernels": records} if kernels else {})}
    shown: str | Table = page(counts, _command(packages, apart or [], without or [], surface)) if markdown else table(counts)
    return Result(data, shown, 1 if strict and failed else 0)


def _command(packages: list[str], apart: list[str], without: list[str], surface: str) -> str:
    """The command that makes the page."""
    options = [f"--apart '{p}'" for p in apart] + [f"--without '{p}'" for p in without] + ([f"--surface {surface}"] if surface else [])
    return " ".join(["kir corpus", *(Path(p).name for p in packages), *options, "--markdown"])


def _swapped(words: list[str], packages: list[str], output: Path, measure: bool, tune: bool) -> Result:
    """Run a command with kernels that KIR wrote: which ran, how often, by their hash; and which stayed as they were, and why."""
    from kir.learning.corpus.command import by_kernel, run_with_hook
    from kir.learning.corpus.roundtrip.find import place

    example = f"kir corpus {' '.join(f'--swap {p}' for p in packages)} -- python app.py"
    code, notes = run_with_hook(words, "swap", output, [str(place(p).folder) for p in packages], measure, tune, example)
    rows = by_kernel(notes)
    ran = {(r["file"], r["kernel"]) for r in rows if r["how"] in ("swapped", "interpreted")}
    left = {(r["file"], r["kernel"]) for r in rows} - ran
    lines = [f"{r['kernel']}: {r['how']}, {r['launches']} launches{', ' + r['hash'] if r['hash'] else ''}{': ' + r['reason'] if r['reason'] else ''}"
             for r in rows]
    lines.append(f"{len(ran)} kernels ran as KIR wrote them, {len(left)} did not; the command ended with {code}")
    if not rows:
        lines.append(f"no kernel of {' or '.join(packages)} was launched: is it Triton's, and does the command run it in a Python process of its own?")
    data = {"exit": code, "kernels": rows, "swapped": len(ran), "left": len(left)}
    return Result(data, "\n".join(lines), 0 if code == 0 and rows else 1)


def _checked(bindings: list[Path], output: Path, file: Path) -> Result:
    """Read the experts of a page of lineages again, and write on it which are other programs by now."""
    from kir.base.store import write_atomic
    from kir.learning.corpus.lineage_page import checked, named
    from kir.learning.corpus.lineages import experts_now
    from kir.surface.reading import read_text

    text = read_text(file)
    rows = [(place, how) for place, how, _ in named(text)]
    if not rows:
        raise usage("KIR-C118", f"{file} names no kernel that ended naive", needs="a page that --lineages .. --markdown printed")
    with bar("experts read again", len(rows)) as advance:
        now = experts_now(rows, bindings, output, advance)
    command = f"kir corpus {' '.join(f'--lineages {each}' for each in bindings)} --check {file}"
    made, stale = checked(text, now, command)
    write_atomic(file, made)
    said = [*(f"{place}: another program today" for place in stale), f"{len(rows) - len(stale)} of {len(rows)} experts are the programs that {file} names"]
    return Result({"page": str(file), "rows": len(rows), "stale": stale}, "\n".join(said), 1 if stale else 0)


def _lineages(bindings: list[Path], output: Path, seconds: float, jobs: int, fresh: bool, markdown: bool, sample: int) -> Result:
    """Walk every recorded kernel back, or a random sample of them, and count what stopped the others."""
    from kir.learning.corpus.lineage_page import page
    from kir.learning.corpus.lineages import drawn, shipped, summary, walk_all
    from kir.learning.corpus.rank import recorded

    rows = []
    chosen = drawn([each for each in bindings if not shipped(each)], sample) if sample else None
    for each in bindings:
        if finished := shipped(each):
            rows += finished
            continue
        with bar(f"lineages of {each.stem}", len(recorded(each))) as advance:
            rows += walk_all(each, output / each.stem, seconds, jobs or 1, advance, fresh, chosen)
    total = summary(rows)
    lines = [f"{r['binding']}: {r['ended']}, {r['steps']} steps{': ' + r['reason'] if r['reason'] else ''}" for r in rows]
    lines.append(f"{total['naive']} of {total['walked']} ended naive, of {total['families']} families of operators")
    command = f"kir corpus {' '.join(f'--lineages {each}' for each in bindings)}{f' --sample {sample}' if sample else ''} -o OUT"
    return Result({**total, "kernels": rows}, page(rows, total, command, chosen or ()) if markdown else "\n".join(lines), 0)
