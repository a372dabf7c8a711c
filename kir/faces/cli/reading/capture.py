"""run a command and record a binding for every way in which it launches a kernel

Without a GPU the interpreter carries out the launches of Triton kernels, so that the command goes on with right results. With --no-run nothing is
carried out: device "cuda" is the CPU, and launches of TileLang and of PyTorch's extensions in CUDA are recorded too; what the command then makes of
results is its own affair, and does not count. Of two or more calls of one kernel FOLDER/KERNEL.toml is one binding over sizes. Exit code 1 where the
command fails (not with --no-run), or where nothing was recorded. The words after a bare `--` are
the command: `kir capture -o bindings -- python app.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from kir.base.diagnostic import Diagnostic
from kir.faces.cli._options import can_be_written
from kir.faces.cli._result import Result


def command(
    words: Annotated[list[str], typer.Argument(help="the command, after a bare --")],
    output: Annotated[Path, typer.Option("-o", "--output", callback=can_be_written, help="the folder of the bindings")] = Path("bindings"),
    no_run: Annotated[bool, typer.Option("--no-run", help="record launches only: no GPU is asked for, and no kernel runs")] = False,
    package: Annotated[list[str] | None, typer.Option(help="only kernels of this package or folder (may be repeated)")] = None,
    seconds: Annotated[float, typer.Option(help="end the command after so long, and keep what was recorded by then (0: let it run)", min=0)] = 0.0,
) -> Result:
    """Run a command and record a binding for every way in which it launches a kernel."""
    from kir.base.store import write_atomic
    from kir.learning.corpus.command import by_kernel, run_with_hook
    from kir.learning.corpus.roundtrip.find import place

    folders = [str(place(p).folder) for p in package or ()]
    code, notes = run_with_hook(words, "note" if no_run else "record", output, folders, seconds=seconds)
    written: list[str] = []
    numbers: dict[str, int] = {}
    seen: dict[tuple[str, str, str], int] = {}
    for n in (n for n in notes if n["binding"]):
        seen[n["file"], n["binding"], n["kernel"]] = seen.get((n["file"], n["binding"], n["kernel"]), 0) + n["launches"]
    for (file, text, kernel), launches in seen.items():
        numbers[kernel] = numbers.get(kernel, 0) + 1
        path = output / f"{kernel}-{numbers[kernel]}.toml"
        write_atomic(path, f"# {file}::{kernel}\n# {launches} launches\n{text}")
        written.append(str(path))
    whole = _general(output, numbers)
    rows = by_kernel(notes)
    lines = [f"{r['kernel']}: {r['launches']} launches, {r['bindings']} bindings, {r['how']}{': ' + r['reason'] if r['reason'] else ''}" for r in rows]
    how = f"was ended after {seconds:g} s" if code is None else f"ended with {code}"
    lines.append(f"{len(written)} bindings in {output}; the command {how}")
    lines += [f"{path}: one binding for {count} calls" for path, count in whole.items()]
    nothing = () if written else (_nothing(bool(rows)),)
    data = {"exit": code, "kernels": rows, "bindings": written, "general": [str(p) for p in whole]}
    return Result(data, "\n".join(lines), 0 if (not code or no_run) and written else 1, nothing)


def _general(output: Path, numbers: Mapping[str, int]) -> dict[Path, int]:
    """For each kernel of several calls one binding over sizes, and of how many calls; those that fit no rule are left as they are."""
    from kir.base.diagnostic import KirError
    from kir.base.store import write_atomic
    from kir.ir.binding import Binding, unfilled
    from kir.surface.launches.recorded import generalized

    made: dict[Path, int] = {}
    for kernel, count in numbers.items():
        if count < 2:
            continue
        files = [output / f"{kernel}-{k + 1}.toml" for k in range(count)]
        try:
            found = generalized([Binding.read(f) for f in files], [str(f) for f in files])
        except KirError:
            continue
        if found.calls > 1 and not unfilled(found.found.binding):
            path = output / f"{kernel}.toml"
            write_atomic(path, f"# from {found.calls} recorded calls\n{found.found.binding.text()}")
            made[path] = found.calls
    return made


def _nothing(seen: bool) -> Diagnostic:
    """That a command recorded no binding: it launched no kernel, or none that could be recorded."""
    if seen:
        return Diagnostic("KIR-C122", "no binding was recorded: the reason stands beside each kernel that was launched",
                          attempt="kir bind FILE::KERNEL, which writes a skeleton from the source")
    return Diagnostic("KIR-C122", "no launch of a kernel was seen",
                      needs="a command that launches one, in a Python process in which KIR can be imported",
                      attempt="kir bind FILE::KERNEL, which writes a skeleton from the source")
