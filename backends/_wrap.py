"""Wrapping long lines of emitted code at the commas of their calls."""
from __future__ import annotations

LIMIT = 110
"""Columns after which a call is broken over several lines."""

_OPEN, _CLOSE = "([{", ")]}"


def wrapped(line: str, limit: int = LIMIT, trailing: bool = True, inside: bool = False) -> list[str]:
    """`line` (with its indentation) as one or more lines: too long a call has one argument a line, innermost calls last, and a long sum
    within a call (`inside`) one term a line. `trailing` is whether the language allows a comma after the last argument."""
    if len(line) <= limit:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    if inside and len(terms := _terms(line.strip())) > 1:
        rows = [indent + ("" if number == 0 else "  ") + term for number, term in enumerate(terms)]
        return [piece for row in rows for piece in wrapped(row, limit, trailing)]
    found = _breakable(line)
    if found is None:
        return [line]
    start, end, is_call = found
    inner = indent + "    "
    out = [line[: start + 1]]
    pieces = _split(line[start + 1:end])
    for number, piece in enumerate(pieces, 1):
        out.extend(wrapped(f"{inner}{piece}{',' if (trailing and is_call) or number < len(pieces) else ''}", limit, trailing, True))
    tail = indent + line[end:]
    return [*out, *(wrapped(tail, limit, trailing) if len(tail) > limit else [tail])]


def _terms(text: str) -> list[str]:
    """A text cut before each `+`, `-`, `&` or `&&` that stands outside all brackets."""
    out, depth, last = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in _OPEN) - (char in _CLOSE)
        operator = next((o for o in (" + ", " - ", " & ", " && ") if text.startswith(o, at)), "")
        if depth == 0 and operator:
            out.append(text[last:at])
            last = at + 1
    out.append(text[last:])
    return out


def _breakable(line: str) -> tuple[int, int, bool] | None:
    """The positions of the first outermost call's parentheses (after a name, with something inside), and that it is one; or of parentheses around a value
    before it, where most of the line stands in them."""
    depth, start, quote, around = 0, -1, "", (0, 0)
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
            is_call = start > 0 and line[start] == "(" and (line[start - 1].isalnum() or line[start - 1] in "_>")
            if depth == 0 and is_call and at - start > 1:
                return (*around, False) if around[1] - around[0] > len(line) // 2 else (start, at, True)
            if depth == 0 and line[start] == "(" and len(_split(line[start + 1:at])) == 1 and at - start > around[1] - around[0]:
                around = start, at
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
