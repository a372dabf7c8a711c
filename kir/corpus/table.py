"""The counts of corpora for people: a table on the terminal, a page for the docs."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kir.corpus.count import Count

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 12
"""Reasons shown of each kind."""


def _rows(c: Count) -> list[tuple[str, str]]:
    of = c.found or 1
    return [
        ("kernels found", f"{c.found} ({c.kernels} launched, {c.found - c.kernels} helpers)"),
        ("parsed", str(c.parsed)),
        ("without an opaque node", f"{c.clean} ({100 * c.clean / of:.1f} %)"),
        ("re-emitted", str(c.emitted)),
        ("re-emitted and equal when read back", f"{c.equal} ({100 * c.equal / of:.1f} %)"),
        ("files written back byte for byte", f"{c.files - c.different} of {c.files}"),
        ("could not be read", str(len(c.failed))),
    ]


def table(counts: Sequence[Count]) -> Table:
    """For a terminal."""
    from rich.table import Table

    out = Table(show_header=True, header_style="bold")
    out.add_column("")
    for c in counts:
        out.add_column(c.name)
    for i, (what, _) in enumerate(_rows(counts[0])):
        out.add_row(what, *(_rows(c)[i][1] for c in counts))
    for c in counts:
        for kind, reasons in (("opaque", c.opaque), ("not equal", c.unequal)):
            for reason, number in reasons.most_common(SHOWN):
                out.add_row(f"  {kind}: {reason}", *(str(number) if d is c else "" for d in counts))
        for r in c.failed[:SHOWN]:
            out.add_row(f"  {r['state']}: {r['file']}{'::' + r['kernel'] if r['kernel'] else ''}: {r.get('message', '')}")
    return out


def page(counts: Sequence[Count]) -> str:
    """For the docs, in Markdown."""
    heads = [what for what, _ in _rows(Count(""))]
    lines = ["# Packages", "", "What becomes of the kernels of packages that others wrote, as `kir corpus` counts them. A helper is a function",
             "that returns a value; it is read as part of the kernels that call it, and here for itself.", "",
             f"| | {' | '.join(c.name for c in counts)} |", f"| --- |{' ---: |' * len(counts)}"]
    for i, what in enumerate(heads):
        lines.append(f"| {what} | {' | '.join(_rows(c)[i][1] for c in counts)} |")
    for title, field in (("What is opaque", "opaque"), ("What does not come back equal", "unequal")):
        lines += ["", f"## {title}", "", "| package | reason | kernels | for example |", "| --- | --- | ---: | --- |"]
        for c in counts:
            reasons = c.opaque if field == "opaque" else c.unequal
            for reason, number in reasons.most_common(SHOWN):
                file, _, kernel = c.example[reason].rpartition("::")
                lines.append(f"| {c.name} | {reason.replace('|', chr(92) + '|')} | {number} | `{'/'.join(file.split('/')[-2:])}::{kernel}` |")
    return "\n".join(lines) + "\n"
