"""Which rows of a workload are measured, and which of its candidates are tried: all, unless the command says otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

RESULTS = Path(__file__).parents[2] / "results"
ROWS: list[str] = []
"""Parts of the names of rows; none for all rows."""
KNOWN: list[str] = []
"""Where there are some: only candidates are tried that were the fastest of a row of the samples kept, and those whose names contain one of these texts."""
Of = TypeVar("Of")


def ask(rows: Iterable[str], known: Iterable[str] = ()) -> None:
    """Set both for this process."""
    ROWS[:] = rows
    KNOWN[:] = known


def ask_words(words: Iterable[str]) -> None:
    """Set both by the words of a command: rows, and after `--known` the texts of candidates."""
    rows, _, known = " ".join(words).partition("--known ")
    ask([x for x in rows.strip().split(",") if x], [x for x in known.strip().split(",") if x])


def asked(rows: Iterable[Of], name: Callable[[Of], str] = lambda row: str(row.name)) -> tuple[Of, ...]:  # type: ignore[attr-defined]  # a row has a name
    """Those rows that are measured."""
    return tuple(row for row in rows if not ROWS or any(part in name(row) for part in ROWS))


def worth(workload: str, title: str) -> bool:
    """Whether a candidate is tried, by what the page calls it."""
    return not KNOWN or title in fastest_titles(workload) or any(text in title for text in KNOWN)


@cache
def fastest_titles(workload: str) -> frozenset[str]:
    """What the rows that are kept of a workload call KIR's kernels."""
    file = RESULTS / f"gpu-workloads-{workload}.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return frozenset(t["way"].partition(" measured: ")[2] or t["way"] for row in rows for t in row["taken"] if t["ours"] and not t["fault"])
