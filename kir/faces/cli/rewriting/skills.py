"""list, show and search the skill cards, apply one to a kernel, say why one holds, and write them for others"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kir.faces.cli._options import belong
from kir.faces.cli._result import Result, counted

if TYPE_CHECKING:
    from kir.hardware.target import Target
    from kir.learning.cards.brought import Brought
    from kir.learning.cards.card import Card
    from kir.learning.cards.search import Hit
    from kir.learning.cards.use import NearMiss

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
EMPTY = "no cards yet: `kir learn -o DIR` makes some in DIR/cards, of the walks that ship with KIR; `--library DIR/cards` looks there"
KERNELS_SHOWN = 12
MAY_PAY = 1.05
"""The median from which a card of which it is not sure is said to pay perhaps."""
Shelves = Annotated[list[Path] | None, typer.Option("--library", help="a folder of cards, searched first (may be repeated)")]
Ablated = Annotated[list[str] | None, typer.Option("--without", help="as if this card were not there (may be repeated)")]
Kernel = Annotated[str, typer.Argument(help="FILE.kir, or FILE[::KERNEL] of a surface; package:path names a file of an installed package")]
Bound = Annotated[Path | None, typer.Option(help="the binding of a generic kernel")]
Aimed = Annotated[str, typer.Option(help="the architecture aimed at, such as sm_90a")]


@app.command("list")
def list_(library: Shelves = None, state: Annotated[str, typer.Option(help="only cards in this state")] = "") -> Result:
    """List the cards of the library; files that are no cards are reported."""
    from kir.learning.cards.library import library as opened

    found = opened(library or ())
    cards = [each for each in found.found if state in ("", each.card.state)]
    lines = [f"{each.card.name}  ({each.card.state}): {each.card.title}; {each.card.evidence.kernels} kernel{'s' * (each.card.evidence.kernels != 1)}"
             for each in cards]
    rows = [_row(each.card) | {"file": str(each.path)} for each in cards]
    return Result({"cards": rows}, "\n".join(lines) or EMPTY, diagnostics=found.faults)


@app.command()
def search(
    words: Annotated[list[str] | None, typer.Argument(help="words; the cards that they fit best come first")] = None,
    for_: Annotated[str, typer.Option("--for", help="a kernel: FILE.kir or FILE[::KERNEL]; cards that apply to it, and those that nearly do")] = "",
    bind: Bound = None,
    target: Aimed = "",
    surface: Annotated[str, typer.Option(help="the surface that the kernel is to be written on; by default its own")] = "",
    most: Annotated[int, typer.Option(min=1, help="how many cards")] = 10,
    all_: Annotated[bool, typer.Option("--all", help="hypotheses too, not only admitted cards")] = False,
    at: Annotated[str, typer.Option(help="with --for: the sizes at which hits are forecast, M=..,N=..; by default those of the call, or usual ones")] = "",
    seconds: Annotated[float | None, typer.Option(help="with --for: how long forecasts may take; 0 for none (6)")] = None,
    without: Ablated = None,
    library: Shelves = None,
) -> Result:
    """Find cards by words, or for a kernel; each hit says why and what it is forecast to bring, each near miss which condition fails."""
    from kir.base.diagnostic import usage
    from kir.learning.cards.library import library as opened
    from kir.learning.cards.search import by_words
    from kir.learning.cards.search import search as searched

    if not words and not for_:
        raise usage("KIR-C119", "neither words nor a kernel are given", attempt="kir skills search --for KERNEL")
    stored = opened(library or ()).without(without or ())
    cards = stored.cards if all_ or not for_ else stored.admitted
    nothing = "no card fits" if cards else EMPTY
    if not for_:
        belong("skills search", "--for", {"--at": at or None, "--seconds": seconds})
        hits = by_words(cards, " ".join(words or ()), most)
        return Result({"hits": [_hit(each) for each in hits]}, "\n".join(line for each in hits for line in _shown(each)) or nothing, diagnostics=stored.faults)
    from kir.faces.cli._program import read_with
    from kir.faces.explore.settings import settings
    from kir.learning.cards.brought import brought
    from kir.learning.forecast.choosing import forecaster
    from kir.learning.optimize.inputs import called_with
    from kir.surface.reading import own_surface

    program, _, own = read_with(for_, bind)
    hits = searched(cards, program, _target(target), surface or (own if own != "kir" else ""), " ".join(words or ()), most, stored.rank)
    setting, ask = settings(program, at=at, device=target, called=None if bind else called_with(for_), subject="kir skills search"), forecaster()
    found = brought(hits, program, setting.sizes, setting.device, ask, surface or own_surface(program, own), 6.0 if seconds is None else seconds)
    said = [f"forecast by the {ask.name} model at {setting.text or 'the only sizes'} on {setting.device.name}; --at M=..,N=.. for other sizes"
            ] if any(each.forecast for each in found) else []
    said += [_none_pays(found)] if said and not any(each.forecast and each.forecast.pays == "yes" for each in found) else []
    data = {"hits": [_hit(each.hit) | _gain(each) for each in found], "sizes": dict(setting.sizes), "device": setting.device.name, "model": ask.name}
    shown = [line for each in found if not _lacks(each.hit) for line in _shown(each.hit, each)]
    shown += [f"{each.hit.card.name}: {'; '.join(each.hit.near[0].conditions)}" for each in found if _lacks(each.hit)]
    return Result(data, "\n".join([*said, *shown]) or nothing, diagnostics=stored.faults)


def _none_pays(found: Sequence[Brought]) -> str:
    """What is said where no card is sure to pay: which one may, or that steps pay together that do not alone."""
    may = [each for each in found if each.forecast and each.forecast.pays == "unsure" and each.forecast.median >= MAY_PAY]
    if not may:
        return "no card that applies is forecast to pay here by itself; several steps together may: kir optimize"
    return f"no card that applies is sure to pay here; {max(may, key=lambda each: each.forecast.median if each.forecast else 0.0).hit.card.name} may"


def _lacks(hit: Hit) -> bool:
    """Whether all that is known of a hit is which state features keep it away: a line says that."""
    return not hit.applications and len(hit.near) == 1 and not hit.near[0].anchor


def _gain(found: Brought) -> dict[str, Any]:
    """What a hit is forecast to bring here, and the steps that do; nulls where that is not known."""
    from kir.learning.forecast.shown import to_json

    return {"forecast": to_json(found.forecast) if found.forecast is not None else None,
            "best": [step.to_json() for step in found.best.steps] if found.best is not None else None}


def _here(found: Brought | None) -> list[str]:
    from kir.learning.forecast.shown import brief

    if found is not None and found.late:
        return ["    here: not forecast in the time (--seconds N)"]
    if found is None or found.forecast is None or found.best is None:
        return []
    said = {"yes": ", pays", "no": ", does not pay", "unsure": ""}[found.forecast.pays]
    return [f"    here: {brief(found.forecast)}{said}, by {'; '.join(_brief(step) for step in found.best.steps)}"]


def _hit(hit: Hit) -> dict[str, Any]:
    near = [{"anchor": each.anchor, "conditions": list(each.conditions)} for each in hit.near]
    return _row(hit.card) | {"score": hit.score, "reasons": list(hit.reasons), "near": near, "also": [_hit(each) for each in hit.also],
                             "applications": [{"steps": [step.to_json() for step in each.steps], "reason": each.reason} for each in hit.applications]}


def _shown(hit: Hit, found: Brought | None = None) -> list[str]:
    lines = [f"{hit.card.name}  ({hit.card.state}, score {hit.score:g})", *_here(found), *(f"    {reason}" for reason in hit.reasons)]
    lines += [f"    applies: {'; '.join(_brief(step) for step in each.steps)}" for each in hit.applications[:4]]
    lines += [f"    and {len(hit.applications) - 4} more, at other places or with other parameters"] if len(hit.applications) > 4 else []
    lines += [f"    also {each.card.name}: {'; '.join(_brief(step) for step in each.applications[0].steps)}" + (
        f" and {len(each.applications) - 1} more" if len(each.applications) > 1 else "") for each in hit.also]
    return lines + list(dict.fromkeys(_missed(each) for each in hit.near))[:3]


def _missed(near: NearMiss) -> str:
    return f"    not{f' at {near.anchor}' if near.anchor else ''}: {'; '.join(near.conditions)}"


def _brief(step: Any) -> str:
    return str(step).partition(" on ")[0]


def _row(card: Card) -> dict[str, Any]:
    return {"name": card.name, "title": card.title, "intent": card.intent, "state": card.state, "why": card.why, "steps": list(card.passes),
            "kernels": card.evidence.kernels, "scope": card.scope.model_dump(mode="json")}


def _target(name: str) -> Target | None:
    from kir.hardware.target import target

    return target(name) if name else None


@app.command()
def show(name: Annotated[str, typer.Argument(help="a card's name, or its file")], library: Shelves = None) -> Result:
    """Show one card; into a file or another program as the Markdown that it is, whose code no line break cuts."""
    import sys

    from rich.markdown import Markdown

    from kir.learning.cards.library import library as opened

    found = opened(library or ()).card(name)
    card = found.card
    return Result({"file": str(found.path), **card.model_dump(mode="json", by_alias=True), "prose": card.prose},
                  Markdown(card.prose) if sys.stdout.isatty() else card.prose)


@app.command()
def why(
    name: Annotated[str, typer.Argument(help="a card's name, or its file")],
    file: Annotated[str, typer.Argument(help="a kernel: why the card applies to it, or does not")] = "",
    bind: Bound = None,
    target: Aimed = "",
    library: Shelves = None,
) -> Result:
    """Say why a card is in its state, down to the trial; or why it applies to a kernel or not, down to the condition."""
    from kir.learning.cards.library import library as opened

    card = opened(library or ()).card(name).card
    if not file:
        lines = [f"{card.name}: {card.state}{f'; {card.why}' if card.why else ''}"]
        lines += [f"    {e.what}: {f'{e.kernel}: ' if e.kernel else ''}{e.outcome}" + (
            f"; {'succeeded' if e.skill else 'failed'}, {'succeeded' if e.without else 'failed'} without it" if e.skill is not None else "") for e in card.log]
        return Result({"name": card.name, "state": card.state, "why": card.why, "log": [e.model_dump(mode="json") for e in card.log]}, "\n".join(lines))
    from kir.faces.cli._program import read
    from kir.learning.cards.use import Application, looked
    from kir.rewrite import Context

    found = list(looked(card, read(file, bind), Context(_target(target))))
    uses = [each for each in found if isinstance(each, Application)]
    near = [each for each in found if not isinstance(each, Application)]
    lines = [f"applies: {'; '.join(_brief(step) for step in each.steps)}: {each.reason}" for each in uses] + [_missed(each).strip() for each in near]
    data = {"name": card.name, "applications": [[_brief(step) for step in each.steps] for each in uses],
            "near": [{"anchor": each.anchor, "conditions": list(each.conditions)} for each in near]}
    return Result(data, "\n".join(lines) or f"there is no place for {' and '.join(card.passes)} in it", 0 if uses else 1)


@app.command("apply")
def apply_(
    name: Annotated[str, typer.Argument(help="a card's name, or its file")],
    file: Kernel,
    bind: Bound = None,
    at: Annotated[str, typer.Option(help="the place to apply it at; by default every place where it holds")] = "",
    target: Aimed = "",
    emit: Annotated[Literal["kir", "cuda", "triton", "tilelang"], typer.Option(help="what to print")] = "kir",
    mend: Annotated[bool, typer.Option("--mend", help="first put right what is wrong with the kernel: a barrier, wait or mask that is missing, a swizzle of "
                                       "another phase, this card's step carried out wrongly")] = False,
    problem: Annotated[str, typer.Option(help="the problem that the kernel solves, by which --mend finds wrong results")] = "",
    library: Shelves = None,
) -> Result:
    """Apply a card to a kernel of any surface and print the result; its conditions are judged anew, its parameters chosen for this kernel."""
    from kir.base.diagnostic import Diagnostic, KirError
    from kir.faces.cli._program import read, written
    from kir.ir.printer import program_text
    from kir.learning.cards.library import library as opened
    from kir.learning.cards.mend import mended
    from kir.learning.cards.use import Materialized, materialized
    from kir.problem import load_problem
    from kir.rewrite import Context, Trace

    card, context = opened(library or ()).card(name).card, Context(_target(target))
    put = mended(read(file, bind, paired=False), (card,), load_problem(problem) if problem else None, context) if mend else None
    try:
        done = materialized(card, put.program if put is not None else read(file, bind), context, at)
    except KirError as refused:
        if put is None or refused.diagnostics[0].id != "KIR-S025":
            raise
        done = Materialized(put.program, ())  # what was put right has the card's work in it
    _, text, said = written(Trace(done.program), emit) if emit != "kir" else (None, program_text(done.program), ())
    steps = [_brief(step) for step in done.steps]
    data = {"card": card.name, "pipeline": "; ".join(map(str, done.steps)), "steps": steps, "emit": emit, "program": text,
            **({"fault": put.fault, "mend": put.how} if put is not None else {})}
    if put is not None:
        said = (*said, Diagnostic("KIR-S028", f"put right first: {put.how}", severity="note", notes=(f"what was wrong: {put.fault}",)))
    return Result(data, text, diagnostics=said)


@app.command()
def ablate(
    name: Annotated[str, typer.Argument(help="a card's name, or its file")],
    library: Shelves = None,
    evidence: Annotated[Path | None, typer.Option(help="the walks that hold its uses (default: those that ship, or `evidence` beside --library)")] = None,
    without: Ablated = None,
) -> Result:
    """Say what the library loses without a card: of the experts' steps that it makes, those that no other admitted card makes."""
    from kir.learning.cards.library import library as opened
    from kir.learning.evidence.archive import read_archive, shipped
    from kir.learning.induce.ablation import ablated
    from kir.learning.induce.uses import distinct

    found = opened(library or ())
    card = found.card(name).card
    beside = [each.parent / "evidence" for each in library or () if (each.parent / "evidence").is_dir()]
    walks = distinct(read_archive(evidence or (beside[0] if beside else shipped())))
    made = ablated(card, found.without((card.name, *(without or ()))).admitted, walks)
    lines = [f"{card.name}: {made.made} of its {made.uses} uses are made by it; without it"]
    lines += [f"    {made.shared} by other admitted cards ({', '.join(f'{other} {n}' for other, n in made.others.items())})"] if made.shared else []
    lines += [f"    {made.plain} by the pass with its own defaults"] if made.plain else []
    lines += [f"    {len(made.lost)} by nothing{f', in {len(made.kernels)} kernel' if made.lost else ''}{'s' * (len(made.kernels) > 1)}"]
    steps = {kernel: [str(number) for of, number, _ in made.lost if of == kernel] for kernel in made.kernels}
    lines += [f"        {kernel}: step{'s' * (len(steps[kernel]) > 1)} {', '.join(steps[kernel])}" for kernel in made.kernels[:KERNELS_SHOWN]]
    lines += [f"        and {len(made.kernels) - KERNELS_SHOWN} kernels more (--json)"] if len(made.kernels) > KERNELS_SHOWN else []
    data = {"card": card.name, "uses": made.uses, "made": made.made, "others": dict(made.others), "shared": made.shared, "plain": made.plain,
            "lost": [{"kernel": kernel, "step": number, "pass": step} for kernel, number, step in made.lost]}
    if not made.uses:
        lines = [f"{card.name}: none of its {len(card.evidence.uses)} uses is in these walks; --evidence DIR names others"]
    return Result(data, "\n".join(lines), 0 if made.uses else 1)


@app.command()
def export(
    output: Annotated[Path, typer.Option("-o", "--output", help="the folder of agent skills, or FILE.json")],
    state: Annotated[str, typer.Option(help="only cards in this state ('' for all)")] = "admitted",
    library: Shelves = None,
) -> Result:
    """Write cards as agent skills (NAME/SKILL.md), or all of them as one JSON object."""
    import json

    from kir.base.store import write_atomic
    from kir.learning.cards.export import export_skills, library_json
    from kir.learning.cards.library import library as opened

    found = opened(library or ())
    cards: Sequence[Card] = [card for card in found.cards if state in ("", card.state)]
    if output.suffix == ".json":
        write_atomic(output, json.dumps(library_json(cards), indent=1, ensure_ascii=False) + "\n")
        written = [str(output)]
    else:
        written = [str(path) for path in export_skills(cards, output)]
    return Result({"cards": len(cards), "files": written}, f"{counted(len(cards), 'card')}: {output}", diagnostics=found.faults)


@app.command()
def outcome(
    name: Annotated[str, typer.Argument(help="a card's name")],
    kernel: Annotated[str, typer.Argument(help="the kernel that it was used on")],
    came: Annotated[Literal["helped", "neutral", "hurt", "failed"], typer.Argument(help="what came of it")],
    library: Annotated[Path, typer.Option("--library", help="the folder of cards")],
    speedup: Annotated[float | None, typer.Option(help="time before over time after")] = None,
    measured: Annotated[bool, typer.Option("--measured", help="the speedup was measured, not forecast")] = False,
) -> Result:
    """Record what came of a card where it was used; `kir skills tend` takes account of it."""
    from kir.base.store import EvidenceTable
    from kir.learning.cards.library import library as opened
    from kir.learning.evidence.ledger import ledger, used

    card = opened([library]).card(name).card
    with EvidenceTable(ledger(library)) as table:
        used(table, card.name, kernel, came, speedup, "measured" if measured else "forecast")
    return Result({"card": card.name, "outcome": came}, f"{card.name} on {kernel}: {came}")


@app.command()
def tend(
    library: Annotated[Path, typer.Option("--library", help="the folder of cards")],
    log: Annotated[list[Path] | None, typer.Option(help="first record what this log of `kir optimize` shows of cards, once (may be repeated)")] = None,
    back: Annotated[bool, typer.Option("--undo", help="put back every card as it was before")] = False,
) -> Result:
    """Let recorded outcomes change the cards of a folder: deprecate and retire what does not help, merge what says the same."""
    from kir.base.store import EvidenceTable
    from kir.learning.cards.library import CardStore, Library
    from kir.learning.evidence.ledger import ledger, record, undo
    from kir.learning.evidence.ledger import tend as tended

    store = CardStore(library)
    if back:
        cards = undo(store)
        return Result({"restored": [card.name for card in cards]}, "\n".join(f"{card.name}: {card.state} again" for card in cards) or "nothing to undo")
    found = Library((store,))
    with EvidenceTable(ledger(library)) as table:
        recorded = sum(record(table, each, found.cards) for each in log or ())
    made = tended(found, store)
    rows = [{"name": each.before.name, "was": each.before.state, "is": each.after.state if each.after else "merged", "why": each.why} for each in made]
    said = "\n".join(f"{row['name']}: {row['was']} -> {row['is']}: {row['why']}" for row in rows)
    heard = [f"{counted(recorded, 'outcome')} recorded"] if log else []
    return Result({"changes": rows, "recorded": recorded}, "\n".join([*heard, said or "nothing changes"]), diagnostics=found.faults)
