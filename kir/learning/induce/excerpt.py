"""The difference of two texts as people look at it: what is new there first, whatever number a temporary got."""
from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

MOST_LINES = 30
"""Lines of an excerpt."""
LEAST_LINES = 8
"""Lines from which a part of a change is shown where the whole is too long."""
AROUND = 2
"""Lines that stay as they were on each side of a change."""
MOST_GONE = 8
"""Lines of one change that are shown of what goes, where what comes is to be shown too."""
SKIPPED = "..."
TEMPORARY = re.compile(r"\b([a-z]+)_\d+_\b")
"""A name that a backend made up: its number says only how many came before it."""


def difference(before: str, after: str) -> str:
    """What changes between two texts, with a few lines around each change. Where that is much, the changes that bring the most words that the text before has
    not (an instruction, a barrier) are shown, in their order; of a long one what goes is cut short for what comes."""
    changes = [_shortened(change) for change in _changes(before.splitlines(), after.splitlines())]
    known, words = set(_words(before)), [list(_words(" ".join(row[1:] for row in change if row.startswith("+")))) for change in changes]
    new = [len({word for word in some if word not in known}) for some in words]
    left, kept = MOST_LINES, dict[int, list[str]]()
    for k in sorted(range(len(changes)), key=lambda k: (-new[k], k)):
        if not kept or len(changes[k]) <= left:
            kept[k] = changes[k]
        elif left >= LEAST_LINES:
            kept[k] = [*changes[k][:left], SKIPPED]
        left -= len(kept.get(k, ()))
    out = list[str]()
    for k in range(len(changes)):
        some = kept.get(k, [])
        out += [*([SKIPPED] if not out or (out[-1] != SKIPPED) else []), *some]
    return "\n".join(out)


def _changes(before: Sequence[str], after: Sequence[str]) -> list[list[str]]:
    """The changes, each with the lines around it; lines that only name temporaries otherwise are the same."""
    a, b = ([TEMPORARY.sub(r"\1_", row) for row in rows] for rows in (before, after))
    out = []
    for group in SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(AROUND):
        rows = list[str]()
        for tag, i, j, k, m in group:
            rows += [f" {row}" for row in after[k:m]] if tag == "equal" else [*(f"-{row}" for row in before[i:j]), *(f"+{row}" for row in after[k:m])]
        out.append(rows)
    return out


def _shortened(change: list[str]) -> list[str]:
    """A change that is longer than an excerpt: of runs of lines that go the first few, and of all the first that fit."""
    if len(change) <= MOST_LINES:
        return change
    out, gone = list[str](), 0
    for row in change:
        gone = gone + 1 if row.startswith("-") else 0
        if gone <= MOST_GONE:
            out.append(row)
        elif gone == MOST_GONE + 1:
            out.append(SKIPPED)
    return out if len(out) <= MOST_LINES else [*out[:MOST_LINES], SKIPPED]


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", TEMPORARY.sub(r"\1_", text))
