"""Where the CUDA functions that a kernel calls are defined: text that it puts in front of itself, or a header of its package that its compiler includes."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from ...cuda.source.tree import project_of, root_of
from ..state.reader import Reader
from ..values.values import NotUnderstood

HEADERS = (".h", ".hh", ".hpp", ".cuh", ".inl")
MOST_BYTES = 1 << 20
"""Of a header that is looked into."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CHANGED = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+[a-z_]", re.MULTILINE)
"""A macro that may mean something in what TileLang writes."""
_ASKED = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b(.*)$", re.MULTILINE)
_GUARD = re.compile(r"#[ \t]*ifndef[ \t]+(\w+)\s*#[ \t]*define[ \t]+\1\b")
_OF_COMPILERS = re.compile(r"(?<!\w)(?:__\w+|CUDA\w*|CUDART\w*|defined)\b")


def put_in_front(r: Reader, text: str) -> None:
    """Text that is compiled before the kernel. Raises NotUnderstood for one whose macros may change what is compiled behind it."""
    if _by_macros(text := _COMMENT.sub(" ", text)):
        raise NotUnderstood("CUDA source in front of the kernel, with macros of its own")
    r.sources.append(text)


def _by_macros(text: str) -> bool:
    """Whether a text defines words that may stand behind it, or asks for macros that only the compiler's options tell."""
    asked = _ASKED.findall(_GUARD.sub(" ", text, count=1))
    return _CHANGED.search(text) is not None or any(re.search(r"[A-Za-z_]", _OF_COMPILERS.sub(" ", words)) for words in asked)


def source_of(r: Reader, name: str) -> str:
    """The text that defines a function, an include of a header or what the kernel itself puts in front; "" where nothing does, as of CUDA's own.
    Raises NotUnderstood where several headers define it."""
    word = name.rpartition("::")[2].partition("<")[0]
    if any(_defines(text, word) for text in r.sources):
        return "\n".join(r.sources)
    found = [path for path in _headers(r) if _defines(_text(path, _stamp(path)), word)]
    if len(found) > 1:
        named = frozenset(re.findall(r"[\"'](?:[\w.-]+/)*([\w.-]+\.\w+)[\"']", r.module.text))
        found = [path for path in found if path.name in named]
        if len(found) != 1:
            raise NotUnderstood(f"a function of CUDA source, '{name}', that several headers define")
    if not found:
        return ""
    r.project.asked_for(found[0])
    if _by_macros(_text(found[0], _stamp(found[0]))):
        raise NotUnderstood(f"a function of CUDA source, '{name}', behind macros of its own")
    return f'#include "{found[0]}"  // {_stamp(found[0])}'


def names_like(r: Reader, pattern: str) -> list[tuple[str, str]]:
    """The functions whose names are a pattern with one open part: that part, and the name as the pattern spells it, in order."""
    space, _, own = pattern.rpartition("::")
    texts = [*r.sources, *(_text(path, _stamp(path)) for path in _headers(r))]
    found = {m[0].rstrip("( \n\t"): m[1] for text in texts for m in re.finditer(rf"(?<![\w:.>]){own}\s*\(", text) if _follows(text, m.end() - 1) == "{"}
    return sorted((middle, f"{space}::{whole}" if space else whole) for whole, middle in found.items())


def _defines(text: str, word: str) -> bool:
    """Whether a text may define a function of that name: its name, parameters and a block."""
    return any(_follows(text, m.end() - 1) == "{" for m in re.finditer(rf"(?<![\w:.>]){re.escape(word)}\s*\(", text))


def _follows(text: str, at: int) -> str:
    """The first letter behind a pair of parentheses."""
    depth = 0
    for k in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[k], 0)
        if not depth:
            return text[k + 1:k + 80].lstrip()[:1]
    return ""


def _headers(r: Reader) -> tuple[Path, ...]:
    """The headers of the project around the kernel's file."""
    root = root_of(r.module.path)
    if root is None:
        return ()
    if root not in r.project.headers:
        found = project_of(r.module.path).headers
        r.project.headers[root] = tuple(sorted(p for name, paths in found.items() if name.endswith(HEADERS) for p in paths))
    return r.project.headers[root]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        said = path.stat()
    except OSError:
        return 0, 0
    return said.st_mtime_ns, said.st_size


@lru_cache(maxsize=64)
def _text(path: Path, stamp: tuple[int, int]) -> str:
    """The text of a header without its comments; "" for one that is too long or cannot be read."""
    if stamp[1] > MOST_BYTES:
        return ""
    try:
        return _COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
