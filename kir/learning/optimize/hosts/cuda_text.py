"""What the text of a CUDA file says of a kernel: its definition, its launches, and the conditions of the preprocessor that places stand under.

`shown` is a text whose comments, strings and characters are spaces, with all places as in `text` (`blanked`).
"""
from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence

from kir.base.dataclass import dataclass
from kir.learning.optimize.hosts.read_back import NotSaid

_BLANK = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)


def blanked(text: str) -> str:
    """The text with comments, strings and characters as spaces: brackets and names in it are code."""
    return _BLANK.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def masked_line(shown: str, at: int) -> int:
    """Where a line begins that is code, as the blanked text has it; -1 for one in a comment."""
    return at if shown[at:].lstrip(" \t").startswith("#") else -1


def closing(shown: str, at: int) -> int:
    """The place behind the bracket that closes the one at a place."""
    pairs, depth = {"(": ")", "[": "]", "{": "}"}, 0
    for k in range(at, len(shown)):
        depth += (shown[k] in pairs) - (shown[k] in pairs.values())
        if depth == 0:
            return k + 1
    raise NotSaid("its brackets are not closed")


def _listed(shown: str, text: str, start: int, end: int) -> list[str]:
    """What stands between commas, brackets and what they hold left alone."""
    out, depth, begun = list[str](), 0, start
    for k in range(start, end):
        depth += (shown[k] in "([{") - (shown[k] in ")]}")
        if shown[k] == "," and depth == 0:
            out.append(text[begun:k].strip())
            begun = k + 1
    last = text[begun:end].strip()
    return [*out, last] if last or out else []


@dataclass(frozen=True)
class Definition:
    """The definition of a kernel: its place, its parameters in order, those of its template."""

    start: int
    end: int
    params: Sequence[str]
    templates: Sequence[str]
    usual: Sequence[str]
    """What the latter are where a launch does not say them; "" for one that it must."""


@dataclass(frozen=True)
class Launch:
    """A launch: its place with the semicolon, its text, template arguments, what stands in `<<<..>>>`, and arguments."""

    start: int
    end: int
    text: str
    templates: Sequence[str]
    config: Sequence[str]
    given: Sequence[str]
    pad: str
    """What its line begins with."""
    within: str
    """The namespaces that it names before the kernel."""
    around: str
    """The file, comments blanked out."""


def conditions(shown: str) -> Callable[[int], tuple[tuple[int, int], ...]]:
    """The branches of `#if` that each place stands in, from the outside in."""
    marks: list[tuple[int, tuple[tuple[int, int], ...]]] = [(0, ())]
    stack = list[tuple[int, int]]()
    for m in re.finditer(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b", shown, re.MULTILINE):
        if m[1].startswith("if"):
            stack.append((m.start(), 0))
        elif stack and m[1] == "endif":
            stack.pop()
        elif stack:
            stack[-1] = (stack[-1][0], stack[-1][1] + 1)
        marks.append((m.end(), tuple(stack)))
    starts = [at for at, _ in marks]
    return lambda at: marks[bisect_right(starts, at) - 1][1]


def overridable(shown: str, made: Definition) -> list[str]:
    """That macros which whoever compiles the file may define otherwise have the values that the kernel was read with. Raises NotSaid where a number is not
    what decides."""
    body, out = shown[made.start:made.end], list[str]()
    if re.search(r"^[ \t]*#[ \t]*(if|ifdef|ifndef)\b(?!.*__CUDA_ARCH__)", body, re.MULTILINE):
        raise NotSaid("conditions of the preprocessor stand in the kernel")
    for m in re.finditer(r"^[ \t]*#[ \t]*ifndef[ \t]+(\w+)[ \t]*\n[ \t]*#[ \t]*define[ \t]+\1[ \t]+([^\n]+)$", shown, re.MULTILINE):
        if re.search(rf"^(?![ \t]*#).*\b{m[1]}\b", shown, re.MULTILINE):
            if not re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?[fFuUlL]*", m[2].strip()):
                raise NotSaid(f"'{m[1]}' may be defined otherwise")
            out.append(f"({m[1]}) == {m[2].strip()}")
    return out


def definition_in(shown: str, text: str, kernel: str) -> Definition:
    """The one definition of a kernel. Raises NotSaid where there is none or several."""
    found = list[Definition]()
    for m in re.finditer(rf"(?:template\s*<([^{{}};]*?)>\s*)?__global__[^;{{}}]*?\b{re.escape(kernel)}\s*\(", shown):
        close = closing(shown, m.end() - 1)
        opened = re.match(r"\s*\{", shown[close:])
        if opened is None:
            continue  # a declaration
        params = [_declared(x) for x in _listed(shown, shown, m.end(), close - 1)]
        declared = [x.partition("=") for x in (m[1] or "").split(",") if x.strip()]
        found.append(Definition(m.start(), closing(shown, close + opened.end() - 1), params, [_declared(x) for x, _, _ in declared],
                           [usual.strip() for _, _, usual in declared]))
    if len(found) != 1:
        raise NotSaid(f"it has {len(found)} definitions of '{kernel}'" if found else f"the definition of '{kernel}' is not in it")
    return found[0]


def _declared(words: str) -> str:
    """The name that a parameter declares."""
    found = re.findall(r"[A-Za-z_]\w*", words.partition("=")[0].partition("[")[0])
    if not found:
        raise NotSaid("a parameter of the kernel has no name")
    return str(found[-1])


def launches_in(shown: str, kernel: str) -> list[re.Match[str]]:
    """Where a kernel is launched."""
    return list(re.finditer(rf"(?<![\w:.>])((?:\w+::)*{re.escape(kernel)})\s*(<[^<>;(){{}}]*>)?\s*<<<", shown))


def launch_in(shown: str, text: str, m: re.Match[str]) -> Launch:
    """The launch that begins at a match of `launches_in`. Raises NotSaid where it is no plain statement."""
    line = shown.rfind("\n", 0, m.start()) + 1
    if shown[line:].lstrip(" \t").startswith("#") or shown[:line].rstrip(" \t\n").endswith("\\"):
        raise NotSaid("its launch is in a macro")
    before = shown[:m.start()].rstrip()
    if before and before[-1] not in ";{})":
        raise NotSaid("its launch is no statement")
    end = shown.find(">>>", m.end())
    opened = re.match(r">>>\s*\(", shown[end:]) if end >= 0 else None
    if opened is None:
        raise NotSaid("its launch is not as plain as that")
    close = closing(shown, end + opened.end() - 1)
    semicolon = re.match(r"\s*;", shown[close:])
    if semicolon is None:
        raise NotSaid("its launch is no statement")
    templates = _listed(shown, text, m.start(2) + 1, m.end(2) - 1) if m[2] else []
    return Launch(m.start(), close + semicolon.end(), text[m.start():close + semicolon.end()], templates, _listed(shown, text, m.end(), end),
                   _listed(shown, text, end + opened.end(), close - 1), _indent(text[line:m.start()]),
                   m[1][:m[1].rfind("::") + 2] if "::" in m[1] else "", shown)


def _indent(line: str) -> str:
    """The white space that a line begins with."""
    return line[:len(line) - len(line.lstrip())]
