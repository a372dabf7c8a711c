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
    lines = difflib.unified_diff(lines_of(before), lines_of(after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def between(before: str, after: str) -> tuple[Splice, ...]:
    """Splices that turn one text into another, whole lines each."""
    old, new = lines_of(before), lines_of(after)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return tuple(Splice(starts[a], starts[b], "".join(new[c:d])) for tag, a, b, c, d in blocks if tag != "equal")


def lines_of(text: str) -> list[str]:
    """The lines of a text, each with its end. A form feed or another separator of Unicode's ends none, neither for compilers nor for `patch`."""
    found = text.split("\n")
    return [*(f"{line}\n" for line in found[:-1]), *([found[-1]] if found[-1] else [])]


def ends_of(text: str) -> str:
    """What most lines of a text end with."""
    return "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"


def with_ends_of(before: str, after: str) -> str:
    """A text that was made of another one read with plain line ends, with the line ends of that: what is new has what most of its lines have."""
    held, new, end = lines_of(before), lines_of(after), ends_of(before)
    plain = [line.replace("\r\n", "\n") for line in held]
    out: list[str] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, plain, new, autojunk=False).get_opcodes():
        out += held[a:b] if tag == "equal" else [line.replace("\n", end) for line in new[c:d]]
    return "".join(out)
