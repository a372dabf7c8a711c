"""run a command and record a binding for every way in which it launches a Triton kernel

Without a GPU the interpreter carries out the launches, so that the command goes on with right results. Exit code 1 where the command
fails, or where nothing was recorded. The words after a bare `--` are
the command: `kir capture -o bindings -- python app.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kir.base.diagnostic import Diagnostic
from kir.faces.cli._result import Result


def command(
    words: Annotated[list[str], typer.Argument(help="the command, after a bare --")],
    output: Annotated[Path, typer.Option("-o", "--output", help="the folder of the bindings")] = Path("bindings"),
    package: Annotated[list[str] | None, typer.Option(help="only kernels of this package or folder (may be repeated)")] = None,
) -> Result:
    """Run a command and record a binding for every way in which it launches a Triton kernel."""
    from kir.base.store import write_atomic
    from kir.learning.corpus.command import by_kernel, run_with_hook
    from kir.learning.corpus.roundtrip.find import place

    folders = [str(place(p).folder) for p in package or ()]
    code, notes = run_with_hook(words, "record", output, folders)
    written: list[str] = []
    numbers: dict[str, int] = {}
    for file, text, kernel in dict.fromkeys((n["file"], n["binding"], n["kernel"]) for n in notes if n["binding"]):
        numbers[kernel] = numbers.get(kernel, 0) + 1
        path = output / f"{kernel}-{numbers[kernel]}.toml"
        write_atomic(path, f"# {file}::{kernel}\n{text}")
        written.append(str(path))
    rows = by_kernel(notes)
    lines = [f"{r['kernel']}: {r['launches']} launches, {r['bindings']} bindings, {r['how']}{': ' + r['reason'] if r['reason'] else ''}" for r in rows]
    lines.append(f"{len(written)} bindings in {output}; the command ended with {code}")
    nothing = () if written else (_nothing(bool(rows)),)
    return Result({"exit": code, "kernels": rows, "bindings": written}, "\n".join(lines), 0 if code == 0 and written else 1, nothing)


def _nothing(seen: bool) -> Diagnostic:
    """That a command recorded no binding: it launched no kernel, or none that could be recorded."""
    if seen:
        return Diagnostic("KIR-C122", "no binding was recorded: the reason stands beside each kernel that was launched",
                          attempt="kir bind FILE::KERNEL, which writes a skeleton from the source")
    return Diagnostic("KIR-C122", "no launch of a Triton kernel was seen",
                      needs="a command that launches one, in a Python process in which KIR can be imported",
                      attempt="kir bind FILE::KERNEL, which writes a skeleton from the source")
