"""walk many kernels back, and make a library of skills of what their walks have in common

WHAT is a package with recorded launches (flag_gems), a list of them (JSON lines), a folder of bindings, of lineages or of walked
kernels, one lineage, or one of the words `experts` and `pipelines` (those that are stored, run forwards). Without it, the library is made
from the evidence that ships with KIR. A killed run is taken up again by the same command.
"""
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kir.faces.cli._progress import bar
from kir.faces.cli._result import Result, counted


def command(
    what: Annotated[list[str] | None, typer.Argument(help="packages, lists, folders, lineages, 'experts', 'pipelines'; none: the shipped evidence")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="the folder to write: evidence/, cards/, and tried/ until all are made")] = Path("learned"),
    walks: Annotated[Path | None, typer.Option(help="where walks are kept whole (default: OUTPUT/walks)")] = None,
    workers: Annotated[int, typer.Option(min=1, help="kernels walked side by side; changes nothing but the time")] = 1,
    seconds: Annotated[float, typer.Option(min=0, help="how long one kernel may take")] = 120.0,
    within: Annotated[float, typer.Option(min=0, help="begin no further walk, and judge no further program of a pipeline, after so many seconds (0: no limit); "
                                           "the same command goes on")] = 0.0,
    fresh: Annotated[bool, typer.Option("--anew", help="walk again what is known")] = False,
    lift: Annotated[bool, typer.Option(help="make cards of the evidence")] = True,
    only: Annotated[list[str] | None, typer.Option(help="make this card alone (repeatable), and leave the others that OUTPUT holds as they are")] = None,
    trials: Annotated[bool, typer.Option(help="try each card on kernels that it was not made from; without, all stay hypotheses")] = True,
) -> Result:
    """Walk many kernels back, and make a library of skills of what their walks have in common."""
    from collections import Counter

    from kir.learning.evidence.archive import furthest, read_archive, shipped, write_archive
    from kir.learning.evidence.forwards import forwards
    from kir.learning.evidence.walks import asked, finished, walk

    found = asked(what) if what else asked([str(shipped())])
    folder = output / "evidence"
    known = [*(() if fresh else read_archive(folder)), *found.known, *finished(found.lineages)]
    if found.pipelines:
        with bar("pipelines run forwards", len(found.pipelines)) as advance:
            known += forwards(found.pipelines, workers, advance, known, within)
    if found.jobs:
        with bar("kernels walked back", len(found.jobs)) as advance:
            known = list(walk(found.jobs, walks or output / "walks", folder, seconds=seconds, workers=workers, within=within, fresh=fresh,
                              known=known, advance=advance))
    else:
        write_archive(folder, known)
        known = list(furthest(known))
    ended = Counter(each.ended for each in known)
    said = [f"{counted(sum(ended.values()), 'kernel')}: {', '.join(f'{n} {how}' for how, n in ended.most_common())}",
            f"{counted(sum(len(each.transitions) for each in known), 'transition')}, "
            f"{counted(sum(len(each.rejected) for each in known), 'step')} turned down"]
    data = {"kernels": sum(ended.values()), "ended": dict(ended), "transitions": sum(len(each.transitions) for each in known),
            "rejected": sum(len(each.rejected) for each in known), "evidence": str(folder)}
    if lift:
        from kir.learning.induce.build import build, write_cards

        with bar("skills lifted and tried") as advance:
            cards = build(known, workers, trials, advance, output / "tried", only or ())
        write_cards(output / "cards", cards, known, workers, whole=not only)
        states = Counter(card.state for card in cards)
        said.append(f"{counted(len(cards), 'card')}: {', '.join(f'{n} {state}' for state, n in states.most_common())}, "
                    f"of {counted(len({c.intent for c in cards}), 'intent')}")
        data |= {"cards": len(cards), "states": dict(states), "library": str(output / "cards")}
    return Result(data, "\n".join(said))
