"""Where in a JSON text a value stands, so that a fault deep in a file is shown at its line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_SPACE = re.compile(r"[ \t\r\n]*")


def span_of(text: str, path: Sequence[str | int]) -> tuple[int, int]:
    """Character offsets of the value at ``path`` (keys and indices) in a valid JSON ``text``.

    Where the path ends early (a missing field), the span of the nearest enclosing value's first character is given.
    """
    start = _skip(text, 0)
    for key in path:
        found = _member(text, start, key) if text[start] == "{" else _item(text, start, key)
        if found is None:
            return start, start + 1
        start = found
    return start, _end(text, start)


def _member(text: str, at: int, key: str | int) -> int | None:
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, at = json.JSONDecoder().raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if name == key:
            return at
        at = _next(text, at)
    return None


def _item(text: str, at: int, key: str | int) -> int | None:
    if text[at] != "[":
        return None
    at = _skip(text, at + 1)
    index = 0
    while text[at] != "]":
        if index == key:
            return at
        at = _next(text, at)
        index += 1
    return None


def _next(text: str, at: int) -> int:
    """The start of what follows the value at ``at``: the next key or item, or the closing bracket."""
    at = _skip(text, _end(text, at))
    return _skip(text, at + 1) if text[at] == "," else at


def _end(text: str, at: int) -> int:
    return json.JSONDecoder().raw_decode(text, at)[1]


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
