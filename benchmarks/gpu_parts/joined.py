"""Tables of one part that were measured in several calls, as one: ``python -m benchmarks.gpu_parts.joined KEYS OUT.md TABLE.md ..``.

Rows are told apart by their first KEYS columns; a later table's row takes the place of an earlier one's. The calls are named, of each command
the last.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kir.base.store import write_atomic


def joined(keys: int, tables: Sequence[str]) -> str:
    """The table. Raises ValueError for tables whose heads differ."""
    rows: dict[tuple[str, ...], str] = {}
    made: list[str] = []
    heads = set()
    for text in tables:
        lines = text.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("| ---"))
        heads.add(lines[at - 1])
        made += [line for line in lines[1:at - 1] if line and line not in made and not line.startswith(("Joined by", "- "))]
        made += [line.removeprefix("- ") for line in reversed(lines[1:at - 1]) if line.startswith("- ")]
        for row in lines[at + 1:]:
            rows[tuple(x.strip() for x in row.split(" | ")[:keys])] = row
    last = {line.split("`")[1]: line for line in made if line.startswith("Made by `")}
    made = [line for line in made if not line.startswith("Made by `") or last[line.split("`")[1]] is line]
    if len(heads) != 1:
        raise ValueError("these are tables of different parts")
    lines = tables[0].splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("| ---"))
    return "\n".join([lines[0], "", "Joined by `python -m benchmarks.gpu_parts.joined` of what these calls measured, the last first where they overlap:", "",
                      *(f"- {line}" for line in reversed(made)), "", *lines[at - 1: at + 1], *rows.values(), ""])


def main(words: Sequence[str]) -> int:
    """The command; 2 for wrong words."""
    if len(words) < 3 or not words[0].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    write_atomic(Path(words[1]), joined(int(words[0]), [Path(x).read_text() for x in words[2:]]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
