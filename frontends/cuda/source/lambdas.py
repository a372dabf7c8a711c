"""Lambdas that host code passes to kernels (`[=] __device__ (float v) { return v * scale; }`), as the objects that C++ says they are: of a class whose
members are what is captured, and whose call operator is the body."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from kir.base.dataclass import dataclass

from .preprocessor import Mapped

_HEAD = re.compile(r"\[([^\[\]{};]*)\]\s*((?:__(?:host|device)__\s*)+)\(")
_WORD = re.compile(r"(?<![\w.])(?<!->)(?<!::)([A-Za-z_]\w*)\b")
_DECLARED = re.compile(r"(?:^|[;{}(])\s*((?:const\s+)?(?:unsigned\s+|signed\s+|long\s+|struct\s+)*[A-Za-z_][\w:]*(?:\s*\*|\s*&)*)"
                       r"\s*(\b[A-Za-z_]\w*)\s*(?==[^=]|;|\{|\[)")
_PARAMETER = re.compile(r"\s*(.*?)([A-Za-z_]\w*)\s*(?:=.*)?$", re.DOTALL)
_AUTO = re.compile(r"\b(?:const\s+)?auto\s*(?:&&?)?\s+(\w+)\s*=\s*$")
_NOT_TYPES = frozenset({"return", "delete", "new", "else", "auto", "using", "namespace", "typedef", "goto", "case"})
MOST = 256
"""Lambdas of a file that are taken in, at most."""


@dataclass(frozen=True)
class _Found:
    """A lambda: where it stands, what it captures and has, and where the function begins in which it is."""

    start: int
    end: int
    captures: str
    parameters: str
    result: str
    body: str


def with_classes(mapped: Mapped) -> Mapped:
    """The text with a class for each such lambda, declared before the function in which it stands; one whose captures have no type that is plain to see
    stays."""
    if "__device__" not in mapped.text or not _HEAD.search(mapped.text):
        return mapped
    edits: list[tuple[int, int, str]] = []
    functions = [*_functions(mapped.text)]
    for number, found in enumerate(_lambdas(mapped.text)):
        header = next(((a, b) for a, b, end in functions if b < found.start < end), None)
        if number >= MOST or header is None or mapped.text[header[0]:header[1]].lstrip().startswith("template"):
            continue
        made = _class(mapped.text, found, header, f"_lambda_{number}")
        if made is not None:
            edits += made
    return _edited(mapped, sorted(edits)) if edits else mapped


def _class(text: str, x: _Found, header: tuple[int, int], name: str) -> list[tuple[int, int, str]] | None:
    """The edits that make a lambda an object of a class."""
    own = {m[2] for part in _parts(x.parameters) if (m := _PARAMETER.match(part)) is not None}
    known = _named(text[header[0]:header[1]], text[header[1]:x.start])
    body = {m[1] for m in _WORD.finditer(x.body)} - own
    asked = [c.strip() for c in x.captures.split(",") if c.strip()]
    if any(c == "this" or "=" in c[1:] or c.startswith("&") or c == "*this" for c in asked):
        return None
    taken = [v for v in known if v in body] if "=" in asked else [c for c in asked if c != "="]
    taken = [v for v in taken if not re.search(rf"[\w>*&]\s+[*&]?{v}\s*(?:=[^=]|;|\[)", x.body)]  # a variable of its own
    if any(known.get(v) is None for v in taken):
        return None
    members = " ".join(f"{known[v]} {v};" for v in taken)
    made = f"struct {name} {{ {members} __device__ {x.result or 'auto'} operator()({x.parameters}) const {_one_line(x.body)} }}; "
    value = f"{name}{{{', '.join(taken)}}}"
    auto = _AUTO.search(text[:x.start])
    at = auto.start() if auto is not None else x.start
    shown = f"{name} {auto[1]} = {value}" if auto is not None else value
    lines = text[at:x.end].count("\n")
    return [(header[0], header[0], made), (at, x.end, shown + "\n" * lines)]


def _one_line(body: str) -> str:
    return re.sub(r"\s*\n\s*", " ", body)


def _named(header: str, before: str) -> dict[str, str | None]:
    """The names of a function's parameters and of the variables that it declares before a place, with their types; None for one that is not said."""
    found: dict[str, str | None] = {}
    opened = header.find("(")
    inside = header[opened + 1:header.rfind(")")] if opened >= 0 else ""
    for part in _parts(inside):
        m = _PARAMETER.match(part)
        if m is not None and m[1].strip():
            found[m[2]] = _type(m[1])
    for m in _DECLARED.finditer(before):
        if m[1].split()[0] not in _NOT_TYPES:
            found[m[2]] = _type(m[1])
        elif m[1].split()[0] == "auto":
            found[m[2]] = None
    return found


def _type(text: str) -> str:
    """A type as a member has it: what is captured is copied."""
    return " ".join(re.sub(r"__restrict(?:__)?\b|&", " ", text).split())


def _lambdas(text: str) -> Iterator[_Found]:
    for m in _HEAD.finditer(text):
        if "__device__" not in m[2]:
            continue
        close = _closing(text, m.end() - 1)
        opened = re.compile(r"\s*(?:mutable\b\s*)?(?:->\s*([\w:<>*&\s]+?)\s*)?\{").match(text, close)
        if close < 0 or opened is None:
            continue
        end = _closing(text, opened.end() - 1)
        if end > 0:
            yield _Found(m.start(), end, m[1], text[m.end():close - 1], (opened[1] or "").strip(), text[opened.end() - 1:end])


def _functions(text: str) -> Iterator[tuple[int, int, int]]:
    """Where the header of each function outside others begins and ends, and where its body does."""
    start = at = 0
    while at < len(text):
        c = text[at]
        if c in "\"'":
            m = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'').match(text, at)
            at = m.end() if m is not None else at + 1
        elif c in ";}":
            at += 1
            start = at
        elif c == "#":
            line = text.find("\n", at)
            at = len(text) if line < 0 else line
            start = at
        elif c == "{":
            head = text[start:at]
            if re.search(r"\bnamespace\b[^;()]*$|\bextern\s+\"C\"\s*$", head):
                at += 1
                start = at
                continue
            end = _closing(text, at)
            if end < 0:
                return
            if ")" in head:
                first = start + len(head) - len(head.lstrip())
                yield first, at, end
            at = start = end
        else:
            at += 1


def _closing(text: str, at: int) -> int:
    """Where what opens at a place ends; -1 where it does not."""
    depth = 0
    for m in re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[(){}\[\]]').finditer(text, at):
        depth += (m[0] in "({[") - (m[0] in ")}]")
        if depth == 0:
            return m.end()
    return -1


def _parts(text: str) -> Iterator[str]:
    """What commas part, outside parentheses and angle brackets."""
    depth, start = 0, 0
    for k, c in enumerate(text):
        depth += (c in "(<[{") - (c in ")>]}")
        if c == "," and depth == 0:
            yield text[start:k]
            start = k + 1
    if text[start:].strip():
        yield text[start:]


def _edited(mapped: Mapped, edits: list[tuple[int, int, str]]) -> Mapped:
    """The text with pieces replaced; what is put in counts as an expansion at the place where it stands."""
    out = Mapped(mapped.file, mapped.source, "", pragmas_once=mapped.pragmas_once)
    text, at, length = list[str](), 0, 0

    def piece(shown: str, place: tuple[int, bool]) -> None:
        nonlocal length
        if shown:
            out.starts.append(length)
            out.places.append(place)
            text.append(shown)
            length += len(shown)

    def kept(start: int, end: int) -> None:
        cuts = [start, *(s for s in mapped.starts if start < s < end), end]
        for a, b in pairwise(cuts):
            k = max((i for i, s in enumerate(mapped.starts) if s <= a), default=-1)
            piece(mapped.text[a:b], (mapped.offset(a), mapped.places[k][1] if k >= 0 else False))
    for start, end, shown in edits:
        kept(at, start)
        piece(shown, (mapped.offset(start), True))
        at = end
    kept(at, len(mapped.text))
    out.text = "".join(text)
    return out
