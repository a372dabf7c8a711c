"""write the binding of a kernel, from its launch in host code, from recorded calls, or as a skeleton

The binding is TOML. Where host code in the same file or folder launches the kernel, that says it all; --ask goes through what is still
open, one question at a time, and keeps the answers beside the source. Where nothing launches it, a "?" stands where a person must
decide. What stands in a binding, and what for: `kir explain your-own-kernel`.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kir.faces.cli._options import belong, can_be_written
from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from kir.ir.binding import Binding
    from kir.surface.launches.assembled import Found
    from kir.surface.launches.questions import Question

HEADER = """\
# {place}: put values in the places of "?" (kir explain your-own-kernel).
# sizes = ["M", "N"]                 names that you choose: shapes, scalars and the grid are expressions over them;
#                                    an extent under [metas] may be named here instead, and is a size then
# facts = ["N >= 1", "N % 8 == 0"]   what callers promise of the sizes; the more, the more passes are legal
# problem = "softmax"                what it computes, where KIR has that problem (`kir run --problem`)
"""
"""What a skeleton begins with: the fields that no source can fill in."""


def command(
    file: Annotated[str, typer.Argument(help="FILE[::KERNEL] of a surface: Triton, TileLang or CUDA; package:path names a file of an installed package")],
    output: Annotated[Path | None, typer.Option("-o", "--output", callback=can_be_written, help="write it there")] = None,
    ask: Annotated[bool, typer.Option("--ask", help="ask for what is open, one question at a time, and keep the answers beside the source")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="with --ask: take every proposal")] = False,
    calls: Annotated[list[Path] | None, typer.Option("--from", help="a recorded call (`kir capture`; may be repeated): one binding for all")] = None,
    line: Annotated[int, typer.Option("--launch", min=0, help="the line of the launch to take, where there are several")] = 0,
) -> Result:
    """Write the binding of a kernel."""
    from kir.base.store import write_atomic
    from kir.ir.binding import unfilled
    from kir.surface.finding import proposed, under
    from kir.surface.launches.questions import all_answered
    from kir.surface.launches.remembered import remember
    from kir.surface.reading import kernel_of, located

    path, kernel = located(file)
    frontend, ref = kernel_of(path, kernel)
    name = kernel or ref.name
    if not ask:
        belong("bind", "--ask", {"--yes": yes})
    found = proposed(frontend, path, name, line, _read(calls or []), [str(c) for c in calls or []])
    binding, taken = found.binding, list[str]()

    def proposal(question: Question, wrong: str) -> str:
        taken.append(f"{'.'.join(map(str, question.field))} = {(answer := _taken(question, wrong))}")
        return answer
    if ask:
        binding = all_answered(binding, found.assumed, under(frontend, path, name), proposal if yes else _asked)
        output = output or remember(path, ref.name, binding, f"# {file}: answers to `kir bind --ask`\n")
    text = _header(file, found, ask) + binding.text()
    data = {"kernel": name, "binding": asdict(binding), "text": text, "found": found.place or None, "assumed": [a.text for a in found.assumed],
            "output": str(output) if output is not None else None}
    if output is None:
        return Result(data, text)
    write_atomic(output, text)
    left = unfilled(binding)
    said = f"{output}: to be filled in: {', '.join(left)}" if left else f"{output}: nothing is left open"
    return Result(data, "\n".join((said, *(f"taken as proposed: {each}" for each in taken))))


def _header(file: str, found: Found, asked: bool) -> str:
    """What the binding's file begins with."""
    from kir.surface.launches.assembled import in_words

    if not found.place:
        return HEADER.format(place=file) if not asked else f"# {file}: answers to `kir bind --ask`\n"
    lines = [f"# {file}, as {found.place} launches it" if ":" in found.place else f"# {file}, from {found.place}"]
    lines += [f"# assumed, as nothing says it: {each}" for each in in_words(found.assumed)] if not asked else []
    lines += [f"# {each}{f' (--launch {line})' if (line := each.split()[0].rpartition(':')[2]).isdigit() else ''}" for each in found.others]
    return "\n".join(lines) + "\n"


def _read(calls: list[Path]) -> list[Binding]:
    from kir.ir.binding import Binding

    return [Binding.read(each) for each in calls]


def _taken(question: Question, wrong: str) -> str:
    """The proposal. Raises what a person who may not be asked cannot answer."""
    from kir.base.diagnostic import error

    if wrong or not question.proposal:
        raise error("KIR-F012", f"{'.'.join(question.field)} has no answer that could be proposed{f': {wrong}' if wrong else ''}",
                    attempt="kir bind --ask, without --yes")
    return question.proposal


def _asked(question: Question, wrong: str) -> str:
    """One question at the terminal. An empty answer takes the proposal. Raises UsageError KIR-C002 where no answer comes any more."""
    from kir.base.diagnostic import usage

    try:
        answer: str = typer.prompt(f"{f'{wrong}. ' if wrong else ''}{question.text}", default=question.proposal or None, err=True)
    except typer.Abort:
        typer.echo(err=True)
        raise usage("KIR-C002", f"there was no answer to '{question.text}': nothing is written", subject="kir bind",
                    needs="an answer on standard input for each question, or --yes, which takes every proposal") from None
    return answer
