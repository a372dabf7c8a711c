"""Which rows of a workload are measured, and which of its candidates are tried: all, unless the command says otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

RESULTS = Path(__file__).parents[2] / "results"
ROWS: list[str] = []
"""Parts of the names of rows; none for all rows."""
KNOWN: list[str] = []
"""Where there are some: only candidates are tried that were the fastest of a row of the samples kept, and those whose names contain one of these texts."""
OF_ROW = "row"
"""Among those texts: only candidates that were the fastest of the row itself, and the same that begin early or know its sizes."""
OF_WAYS = "ways"
"""Among those texts: also candidates that were once among the three fastest of the row itself on their surface."""
NAMED = "named"
"""Among those texts: only candidates whose names contain one of the other texts, whatever was the fastest."""
FORECAST = ", forecast: "
"""What stands between a surface and the candidate of a row that the forecast chose."""
CHOSEN = re.compile(rf"^\w+(?:{FORECAST}|, of \d+ measured: )")
"""What stands before the name of a candidate in a row that says how it was chosen."""
EARLY = " early"
"""How the name of a candidate ends whose kernel begins before the one ahead of it in the stream has ended."""
SIZED = " at its sizes"
"""How it ends, but for that, of a candidate in which the row's sizes are numbers."""
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


def worth(workload: str, title: str, row: str = "") -> bool:
    """Whether a candidate is tried at a row, by what the page calls both."""
    if not KNOWN:
        return True
    named = any(text in title for text in KNOWN if text not in (OF_ROW, OF_WAYS, NAMED))
    if NAMED in KNOWN:
        return named
    own = bool(row) and OF_ROW in KNOWN
    known = fastest_titles(workload, row if own else "") | (fast_ways(workload, row) if OF_WAYS in KNOWN else frozenset())
    less = {title.removesuffix(EARLY), title.removesuffix(EARLY).removesuffix(SIZED), title.replace(SIZED, "")}
    return title in known or (own and less & known != set()) or named


@cache
def fastest_titles(workload: str, row: str = "") -> frozenset[str]:
    """What the rows that are kept of a workload call KIR's kernels, or those whose names begin so."""
    file = RESULTS / f"gpu-workloads-{workload}.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    ways = [t["way"] for r in rows if r["shape"].startswith(row) for t in r["taken"] if t["ours"] and not t["fault"]]
    titles = [CHOSEN.sub("", way) for way in ways]
    return frozenset((*titles, *(title.partition(" then ")[0] for title in titles)))


@cache
def fast_ways(workload: str, row: str, most: int = 3) -> frozenset[str]:
    """What the fastest ways of a row are called that were ever measured, so many of a surface, and beside those that begin early what does not."""
    file = RESULTS / "workloads-ways.jsonl"
    kept = [w for line in file.read_text().splitlines() if (w := json.loads(line))["workload"] == workload and w["row"] == row] if file.exists() else []
    ways = [w["way"] for surface in {w["surface"] for w in kept} for w in [w for w in kept if w["surface"] == surface][:most]]
    titles = [CHOSEN.sub("", way) for way in ways]
    return frozenset(x for title in titles for x in (title, title.removesuffix(EARLY), title.partition(" then ")[0]))


def forecast_titles(workload: str, row: str) -> frozenset[str]:
    """What the row that is kept says that the forecast chose, when all candidates were forecast."""
    file = RESULTS / f"gpu-workloads-{workload}.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return frozenset(t["way"].partition(FORECAST)[2] for r in rows if r["shape"] == row for t in r["taken"] if FORECAST in t["way"])
