"""list, show and search the skill cards, and apply one to a program"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kir.faces.cli._result import Result

if TYPE_CHECKING:
    from kir.ir.nodes import Program

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
EMPTY = "no cards: `kir lineage FILE` writes one for each step to its folder; `--library FOLDER/cards` looks there"
Shelves = Annotated[list[Path] | None, typer.Option("--library", help="a folder of cards, searched first (may be repeated)")]


def _listing(found: Any, faults: Any, nothing: str) -> Result:
    lines: list[str] = []
    rows = []
    for each in found:
        card = each.card
        where = f"{card.scope.case} / {card.scope.surface} / {', '.join(card.scope.platforms)}"
        lines += [f"{card.name}  ({card.intent}, {card.status})", f"    {card.carrier.text}", f"    verified on {where}"]
        scope = card.scope.model_dump(mode="json")
        rows.append(
            {
                "name": card.name,
                "intent": card.intent,
                "status": card.status,
                "scope": scope,
                "carrier": card.carrier.text,
                "file": str(each.path),
            }
        )
    return Result({"cards": rows}, "\n".join(lines) or nothing, diagnostics=tuple(faults))


@app.command("list")
def list_(library: Shelves = None) -> Result:
    """List the cards of the library; files that are no cards are reported."""
    from kir.learning.cards.shelf import library as open_library

    return _listing(*open_library(library or ()).cards(), EMPTY)


@app.command()
def search(words: Annotated[list[str], typer.Argument(help="words, all of which a card must have")], library: Shelves = None) -> Result:
    """List the cards that have all these words, in any field or in their prose."""
    from kir.learning.cards.card import card_text
    from kir.learning.cards.shelf import library as open_library

    found, faults = open_library(library or ()).cards()
    wanted = [word.casefold() for word in words]
    nothing = f"no card has {' and '.join(words)}" if found else EMPTY
    return _listing([each for each in found if all(word in card_text(each.card).casefold() for word in wanted)], faults, nothing)


@app.command()
def show(name: Annotated[str, typer.Argument(help="a card's name, or its file")], library: Shelves = None) -> Result:
    """Show one card."""
    from rich.markdown import Markdown

    from kir.learning.cards.shelf import library as open_library

    found = open_library(library or ()).card(name)
    card = found.card
    return Result({"file": str(found.path), **card.model_dump(mode="json", by_alias=True), "prose": card.prose}, Markdown(card.prose))


@app.command("apply")
def apply_(
    name: Annotated[str, typer.Argument(help="a card's name, or its file")],
    file: Annotated[str, typer.Argument(help="FILE.kir, or FILE[::KERNEL] of a surface; package:path names a file of an installed package")],
    bind: Annotated[Path | None, typer.Option(help="the binding of a generic kernel")] = None,
    at: Annotated[str, typer.Option(help="the place to apply it at; by default the card's, or the only one where it applies")] = "",
    emit: Annotated[Literal["kir", "cuda", "triton", "tilelang"], typer.Option(help="what to print")] = "kir",
    library: Shelves = None,
) -> Result:
    """Apply a card's pass to a kernel of any surface and print the result; its preconditions are judged anew."""
    from dataclasses import replace

    from kir.base.diagnostic import error
    from kir.faces.cli._program import read, written
    from kir.ir.printer import program_text
    from kir.learning.cards.shelf import library as open_library
    from kir.rewrite import Pipeline, Trace, run

    card = open_library(library or ()).card(name).card
    program = read(file, bind)
    if card.carrier.kind != "pass":
        raise error("KIR-S023", f"'{card.name}' carries a template, which a provider must fill", subject=card.carrier.text)
    stored = Pipeline.parse(card.carrier.text, f"card {card.name}").steps
    if at or all(_is_there(program, step.at) for step in stored):
        steps = tuple(replace(step, at=at or step.at) for step in stored)
    else:
        steps = tuple(replace(step, at="") for step in stored)  # the place that the card was seen at is not in this program: the pattern decides
    trace = run(program, Pipeline(steps))
    _, text, said = written(Trace(trace.program), emit) if emit != "kir" else (trace, program_text(trace.program), ())
    return Result({"card": card.name, "pipeline": str(trace.pipeline), "emit": emit, "program": text}, text, diagnostics=said)


def _is_there(program: Program, anchor: str) -> bool:
    """Whether an anchor names a place of a program."""
    from kir.base.diagnostic import KirError
    from kir.rewrite.anchor import paths_of

    try:
        return not anchor or bool(paths_of(program, anchor))
    except KirError:
        return False
