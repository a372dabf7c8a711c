"""What a finished lineage's folder holds for people: its states and the report."""

from __future__ import annotations

from kir.base.store import write_atomic
from kir.faces.report.page import page
from kir.ir.changes.diff import diff, render_html
from kir.lineage.engine import PassEngine
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage
from kir.lineage.replay import Replayed, replay
from kir.lineage.run import write_states


def write_so_far(lineage: Lineage, folder: Folder) -> None:
    """The report of a walk that still goes on, which was not replayed yet."""
    write_atomic(folder.root / "report.html", page(lineage, folder, lambda a, b: render_html(diff(a, b))))


def write_report(lineage: Lineage, folder: Folder, engine: PassEngine) -> Replayed:
    """Replay a lineage forward, then write its states and ``report.html``."""
    replayed = replay(lineage, folder, engine)
    write_states(lineage, folder)
    write_atomic(folder.root / "report.html", page(lineage, folder, lambda a, b: render_html(diff(a, b)), replayed))
    return replayed
