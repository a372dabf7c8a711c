"""say what a diagnostic's id means, and what to do about it

With no id, lists all of them.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kir.cli._result import Result
from kir.diagnostic import AREAS, ID_PATTERN, Explanation, did_you_mean, explanations, usage
from kir.registry import registry


def command(id: Annotated[str, typer.Argument(help="an id such as KIR-T001; without it, all ids are listed")] = "") -> Result:
    """Say what a diagnostic's id means, and what to do about it."""
    rows = explanations()
    if not id:
        listing = {key: rows[key].title for key in sorted(rows)}
        return Result({"ids": listing}, "\n".join(f"{key}  {title}" for key, title in listing.items()))
    wanted = id.upper() if id.upper().startswith("KIR-") else f"KIR-{id.upper()}"
    if wanted in rows:
        return _explained(rows[wanted])
    if ID_PATTERN.fullmatch(wanted) and wanted[4] == "P" and (places := _declared_in_passes(wanted)):
        text = [f"{wanted}  ({AREAS['P']})", "", "declared by:"]
        text += [f"  {place['pass']}  {place['file']}:{place['line']}\n    {place['text']}" for place in places]
        return Result({"id": wanted, "area": AREAS["P"], "declared": places}, "\n".join(text))
    hint = did_you_mean(wanted, rows)
    raise usage("KIR-C004", f"there is no diagnostic '{id}'{f'; {hint}' if hint else ''}", attempt="kir explain")


def _explained(row: Explanation) -> Result:
    area = AREAS[row.id[4]]
    text = f"{row.id}  {row.title}  ({area})\n\n{row.explain}\n\nWhat to do: {row.mend}"
    return Result({"id": row.id, "area": area, "title": row.title, "explain": row.explain, "mend": row.mend}, text)


def _declared_in_passes(id: str) -> list[dict[str, str | int]]:
    """Where passes declare a precondition, found in their text so that a pass that fails to import is no obstacle."""
    places: list[dict[str, str | int]] = []
    for entry in registry("kir.passes"):
        for number, line in enumerate(entry.file.read_text(encoding="utf-8").splitlines(), start=1):
            if f'"{id}"' in line:
                places.append({"pass": entry.name, "file": str(entry.file), "line": number, "text": line.strip()})
                break
    return places
