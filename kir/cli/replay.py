"""rebuild every state of a lineage from its stored steps, and fail if a hash differs

LINEAGE is a folder that `kir lineage` wrote, or the lineage.json in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kir.cli._result import Result


def command(
    lineage: Annotated[Path, typer.Argument(help="a lineage's folder, or its lineage.json")],
    on: Annotated[Literal["none", "cpu", "gpu"], typer.Option(help="cpu, gpu: gate each rebuilt state again; none: compare hashes only")] = "none",
) -> Result:
    """Rebuild every state of a lineage from its stored steps, and fail if a hash differs."""
    from kir.cli._progress import bar
    from kir.lineage.answers import remember
    from kir.lineage.engine import PassEngine
    from kir.lineage.folder import opened
    from kir.lineage.judge import judge_on
    from kir.lineage.replay import replay
    from kir.report.terminal import replay_json, replay_text

    folder = opened(lineage)
    record = folder.read()
    remember(record, folder)
    engine = PassEngine.of(record.header)
    with judge_on(on, record.header, folder.program(record.start)) as judge, bar("replaying", total=len(record.accepted)) as advance:
        replayed = replay(record, folder, engine, judge if on != "none" else None, lambda each: advance(each.step.forward))
    return Result(
        {"lineage": str(folder.file), **replay_json(replayed)},
        replay_text(record, replayed),
        code=0 if replayed.ok else 1,
        diagnostics=replayed.diagnostics,
    )
