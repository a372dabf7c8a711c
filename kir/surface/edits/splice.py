"""Replacing spans of a text, and taking it back."""
from __future__ import annotations

import difflib
from collections.abc import Iterable

from kir.base.dataclass import dataclass


@dataclass(frozen=True, order=True, slots=True)
class Splice:
    """`text` in place of the characters from `start` up to `end` of the text before."""

    start: int
    end: int
    text: str


def spliced(before: str, splices: Iterable[Splice]) -> str:
    """The text with every span replaced. Raises ValueError for spans that overlap."""
    out, at = [], 0
    for s in sorted(splices):
        if s.start < at or s.end < s.start:
            raise ValueError(f"spans overlap at {s.start}")
        out += [before[at:s.start], s.text]
        at = s.end
    return "".join([*out, before[at:]])


def coalesced(splices: Iterable[Splice]) -> tuple[Splice, ...]:
    """The same edit with spans that touch made one."""
    out: list[Splice] = []
    for s in sorted(splices):
        if out and out[-1].end == s.start:
            out[-1] = Splice(out[-1].start, s.end, out[-1].text + s.text)
        else:
            out.append(s)
    return tuple(out)


def inverse(before: str, splices: Iterable[Splice]) -> tuple[Splice, ...]:
    """The splices of the text after that give the text before."""
    out, shift = [], 0
    for s in sorted(splices):
        start = s.start + shift
        out.append(Splice(start, start + len(s.text), before[s.start:s.end]))
        shift += len(s.text) - (s.end - s.start)
    return tuple(out)


def unified(before: str, after: str, name: str) -> str:
    """A unified diff of two texts, as `patch -p1` takes it; "" when they are equal."""
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def between(before: str, after: str) -> tuple[Splice, ...]:
    """Splices that turn one text into another, whole lines each."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return tuple(Splice(starts[a], starts[b], "".join(new[c:d])) for tag, a, b, c, d in blocks if tag != "equal")
