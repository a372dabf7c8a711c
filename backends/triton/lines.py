"""Lines of emitted text: wrapping long calls at their commas, and names that the surface allows."""
from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable

LIMIT = 110
"""Columns after which a call is broken over several lines."""

_OPEN, _CLOSE = "([{", ")]}"
TAKEN = frozenset({*keyword.kwlist, *keyword.softkwlist, "tl", "triton", "libdevice", "range", *(x for x in dir(builtins) if x.islower())})
"""Names that no parameter or value of an emitted kernel may have."""


def wrapped(line: str, limit: int = LIMIT) -> list[str]:
    """`line` (with its indentation) as one or more lines: too long a call has one argument a line, innermost calls last."""
    if len(line) <= limit:
        return [line]
    found = _breakable(line)
    if found is None:
        return [line]
    start, end = found
    indent = line[: len(line) - len(line.lstrip())]
    inner = indent + "    "
    out = [line[: start + 1]]
    for piece in _split(line[start + 1:end]):
        out.extend(wrapped(f"{inner}{piece},", limit))
    tail = indent + line[end:]
    return [*out, *(wrapped(tail, limit) if len(tail) > limit else [tail])]


def _breakable(line: str) -> tuple[int, int] | None:
    """The positions of the first outermost call's parentheses (after a name, with something inside)."""
    depth, start, quote = 0, -1, ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _OPEN:
            if depth == 0:
                start = at
            depth += 1
        elif char in _CLOSE:
            depth -= 1
            is_call = start > 0 and line[start] == "(" and (line[start - 1].isalnum() or line[start - 1] == "_")
            if depth == 0 and is_call and at - start > 1:
                return start, at
    return None


def _split(text: str) -> list[str]:
    """The pieces of an argument list."""
    out, depth, last, quote = [], 0, 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            out.append(text[last:at].strip())
            last = at + 1
    out.append(text[last:].strip())
    return [piece for piece in out if piece]


def spelled(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """A Python name for each IR name: itself where that is allowed, else with underscores until it is free."""
    out: dict[str, str] = {}
    used = {*TAKEN, *taken}
    for name in names:
        if name in out:
            continue
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
        while base in used or not base.isidentifier():
            base = base + "_" if base.isidentifier() else "_" + base
        used.add(base)
        out[name] = base
    return out
