"""The difference of two texts as people look at it: what is new there first, whatever number a temporary got."""
from __future__ import annotations

import re
from collections.abc import Collection, Sequence
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
MOST_OF_ONE = 20
"""Lines of the change that brings most, where others bring something new too."""
TEMPORARY = re.compile(r"\b([a-z]+)_\d+_\b")
"""A name that a backend made up: its number says only how many came before it."""
COUNTED = re.compile(r"\b([a-z]+)(?:_\d+)+_?\b")
"""The same, and a name that a number tells apart from others, as the counters of loops."""


def difference(before: str, after: str, emitted: bool = False) -> str:
    """What changes between two texts, with a few lines around each change. Where that is much, the changes that bring the most words that the text before has
    not (an instruction, a barrier) are shown, in their order; of a long one what goes is cut short for what comes. In what a backend `emitted` a counter that
    got another number is no change."""
    changes = _changes(before.splitlines(), after.splitlines(), COUNTED if emitted else TEMPORARY)
    had = set(_words(before))
    words = [list(_words(" ".join(row[1:] for row in change if row.startswith("+")))) for change in changes]
    new = [len({*some} - had) for some in words]
    known = had if emitted else None  # a program of the IR is read from its beginning
    changes = [_shortened(change, MOST_OF_ONE if sum(map(bool, new)) > 1 and emitted else MOST_LINES, known) for change in changes]
    left, kept = MOST_LINES, dict[int, list[str]]()
    for k in sorted(range(len(changes)), key=lambda k: (-new[k], k)):
        if not kept or len(changes[k]) <= left:
            kept[k] = changes[k]
        elif left >= LEAST_LINES:
            kept[k] = _shortened(changes[k], left, known)
        left -= len(kept.get(k, ()))
    out = list[str]()
    for k in range(len(changes)):
        some = kept.get(k, [])
        out += [SKIPPED, *some]
    return "\n".join(row for k, row in enumerate(out) if row != SKIPPED or out[k - 1:k] != [SKIPPED])


def _changes(before: Sequence[str], after: Sequence[str], numbered: re.Pattern[str]) -> list[list[str]]:
    """The changes, each with the lines around it; lines that only number names otherwise are the same."""
    a, b = ([numbered.sub(r"\1", row) for row in rows] for rows in (before, after))
    out = []
    for group in SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(AROUND):
        rows = list[str]()
        for tag, i, j, k, m in group:
            rows += [f" {row}" for row in after[k:m]] if tag == "equal" else [*(f"-{row}" for row in before[i:j]), *(f"+{row}" for row in after[k:m])]
        out.append(rows)
    return out


def _shortened(change: list[str], most: int, known: Collection[str] | None) -> list[str]:
    """A change that is longer than there is room for: of runs of lines that go the first few, and of all the first part that fits, or that in which most comes
    of which nothing is `known`."""
    if len(change) <= most:
        return change
    out, gone = list[str](), 0
    for row in change:
        gone = gone + 1 if row.startswith("-") else 0
        if gone <= MOST_GONE:
            out.append(row)
        elif gone == MOST_GONE + 1:
            out.append(SKIPPED)
    if len(out) <= most:
        return out
    news = [{*_words(row)} - {*(known or ())} if row.startswith("+") else set() for row in out]
    start = 0 if known is None else max(range(len(out) - most + 1), key=lambda at: (len(set().union(*news[at:at + most])), -at))
    return [*([SKIPPED] if start else []), *out[start:start + most], *([SKIPPED] if start + most < len(out) else [])]


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", TEMPORARY.sub(r"\1_", text))
