"""A program made smaller while a fault stays: statements are left out, and blocks stand in the place of what holds them."""
from __future__ import annotations

from collections.abc import Callable, Iterator

from kir.base.diagnostic import KirError
from kir.ir.parser import parse_program
from kir.ir.rules.verify import verify

MOST = 120
"""Programs that are tried."""


def shrunk(text: str, faulty: Callable[[str], bool]) -> str:
    """The smallest text found by leaving lines out, a block with its head or the head alone, for which `faulty` still holds; at most `MOST` are tried."""
    tried, again = 0, True
    while again and tried < MOST:
        again = False
        for smaller in _smaller(text):
            if tried >= MOST:
                break
            if not _stands(smaller):
                continue
            tried += 1
            if faulty(smaller):
                text, again = smaller, True
                break
    return text


def _smaller(text: str) -> Iterator[str]:
    lines = text.splitlines()
    for i in range(len(lines) - 1, 1, -1):
        depth = _depth(lines[i])
        if depth == 0 and not lines[i].startswith(("kernel", "function", "plan")):
            continue
        end = i + 1
        while end < len(lines) and _depth(lines[end]) > depth:
            end += 1
        yield _joined([*lines[:i], *lines[end:]])
        if end > i + 1 and depth:
            yield _joined([*lines[:i], *(line[2:] for line in lines[i + 1:end]), *lines[end:]])


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _stands(text: str) -> bool:
    try:
        return not any(d.severity == "error" for d in verify(parse_program(text, "p.kir")))
    except KirError:
        return False


__all__ = ["shrunk"]
