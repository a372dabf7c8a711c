"""list the lineages that come with KIR, by the names that `kir replay` and `kir report` take"""

from __future__ import annotations

from kir.faces.cli._result import Result


def command() -> Result:
    """List the lineages that come with KIR."""
    from rich.table import Table

    from kir.faces.report.terminal import realized_text
    from kir.lineage.records.folder import lineage_names, opened, shipped_lineages

    shown = Table("lineage", "problem", "surface", "steps", "", box=None, header_style="dim")
    rows = []
    for name in lineage_names():
        record = opened(shipped_lineages() / name).read()
        header = record.header
        rows.append({"name": name, "problem": header.problem, "surface": header.surface, "steps": len(record.accepted), "ended": record.outcome.ended,
                     "folder": str(shipped_lineages() / name)})
        shown.add_row(name, header.problem, header.surface, str(len(record.accepted)), realized_text(record))
    return Result({"lineages": rows}, shown)
