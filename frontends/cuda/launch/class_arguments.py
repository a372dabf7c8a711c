"""Classes that a template's type parameter may be, where nobody names one: those of the project that have what the kernel asks of it. For counting what of a
package is read, as `template_candidates` is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ..source.source import Unit
from ..source.syntax import text
from ..source.tree import Project, common
from ..symbols.index import Index
from ..symbols.symbols import Function, TParam
from ..symbols.template_candidates import likely

MOST_CLASSES, MOST_HEADERS, MOST_FOLLOWED, LEAST_SHARE, MOST_NESTED, MOST_BYTES = 3, 400, 12, 0.6, 2, 400_000
"""Classes that are offered for a parameter; headers that are looked into; functions that are followed; the share of the members that a class must have
(the rest may come of its bases and of macros); how deep classes are arguments of one another; bytes beyond which a header is left out."""
_CLASS = re.compile(r"(?:template\s*<(?P<params>[^{};]*?)>\s*)?\b(?:struct|class)\s+(?:(?:alignas|__align__|__CUDA_ALIGN__)\s*\([^()]*\)\s*)?"
                    r"(?P<name>\w+)\s*(?:final\s*)?(?::(?!:)(?P<bases>[^{;]*))?\{")
_TYPE, _COMPONENTS = ("typename", "class"), frozenset("xyzw")
_WORD = re.compile(r"[A-Za-z_]\w*")


Asked = tuple[frozenset[str], frozenset[str], bool]
"""The types and constants that are named in a class, the members that are named of objects of it, and whether such are made of values in parentheses."""
Class = tuple[tuple[Path, ...], str]
"""A class with the arguments that it takes, and the files that declare it and these."""


def _asked(name: str, shown: Sequence[str]) -> Asked:
    """What functions ask of a class that they know by this name."""
    types, members = set[str](), set[str]()
    for words in shown:
        types |= set(re.findall(rf"\b{name}\s*::\s*(?:template\s+)?(\w+)", words))
        for each in set(re.findall(rf"\b{name}\s*[&*]?\s*(?:const\s+)?(\w+)\s*(?=[,)({{;=])", words)) - {name}:
            members |= set(re.findall(rf"\b{each}\s*(?:\.|->)\s*(?:template\s+)?(\w+)", words))
    made = any(re.search(rf"\b{name}\s+\w+\s*\([^()]", words) for words in shown)
    return frozenset(types), frozenset(members), made


def _texts(fn: Function, index: Index, names: set[str]) -> Iterator[str]:
    """The text of a kernel and of the functions that it calls with a type parameter of the same name."""
    waiting, seen = [fn], {id(fn)}
    while waiting and len(seen) <= MOST_FOLLOWED:
        top = waiting.pop(0)
        words = text(top.node)
        yield words
        for called in dict.fromkeys(re.findall(r"\b(\w+)\s*[<(]", words)):
            for f in index.functions.get(called, ()):
                if id(f) not in seen and f.body is not None and any(p.name in names for p in f.params or ()):
                    seen.add(id(f))
                    waiting.append(f)


def offered(fn: Function, index: Index, units: Sequence[Unit], project: Project) -> dict[str, list[Class]]:
    """For each type parameter that must be a class: classes that fit, the likeliest first."""
    kinds = [p.name for p in fn.params or () if p.kind == "type"]
    shown = list(_texts(fn, index, set(kinds)))
    needs = {p.name: each for p in fn.params or () if p.kind == "type" and not p.pack and _says_enough(each := _asked(p.name, shown))}
    if not needs:
        return {}
    own = {u.path.resolve(): u.text.decode(errors="replace") for u in units}
    here = fn.unit.path.resolve()
    rest = sorted((p for found in project.headers.values() for p in found if p.resolve() not in own), key=lambda p: (-common(p, here), str(p)))[:MOST_HEADERS]
    classes = _Classes(shown, own, rest)
    return {name: found for name, each in needs.items() if (found := classes.fitting(each))}


def _says_enough(each: Asked) -> bool:
    """Whether this is asked of a class: components alone are those of a vector."""
    return bool(each[0]) or (len(each[1]) > 1 and not each[1] <= _COMPONENTS)


class _Classes:
    """The classes of a project, as what functions (their texts, `shown`) ask of them chooses."""

    def __init__(self, shown: Sequence[str], own: Mapping[Path, str], rest: Sequence[Path]) -> None:
        self.shown, self.own = shown, own
        self.read = [*own.items(), *((path, words) for path in rest if (words := _words(path)))]

    def fitting(self, needs: Asked, nested: int = 0) -> list[Class]:
        """Classes that have what is asked of them, the likeliest first."""
        names = needs[0] | needs[1]
        read = [(k, path, words) for k, (path, words) in enumerate(self.read) if any(name in words for name in names)]
        bodies = {m["name"]: body for _, _, words in reversed(read) for m, body in _classes(words)}
        found = [(share, k, path, m, body) for k, path, words in read for share, m, body in _fitting(words, *needs, bodies)]
        best = sorted(found, key=lambda x: (-x[0], x[2] not in self.own, x[1]))[:MOST_CLASSES]
        return [self._with_arguments(path, m, body, nested) for _, _, path, m, body in best]

    def _with_arguments(self, path: Path, m: re.Match[str], body: str, nested: int) -> Class:
        """A class with a likely argument for each parameter that has no default: a class for one that it has another name for, of which such is asked."""
        paths, out = [path], []
        for kind, name in _parameters(m["params"] or ""):
            given = _likely(kind, name)
            for alias in re.findall(rf"\busing\s+(\w+)\s*=\s*(?:typename\s+)?{name}\s*;", body) if kind in _TYPE and nested < MOST_NESTED else ():
                needs = _asked(alias, [*self.shown, body])
                inner = [c for c in self.fitting(needs, nested + 1) if c[1].split("<")[0] != m["name"]] if _says_enough(needs) else []
                if inner:
                    paths += inner[0][0]
                    given = inner[0][1]
            out.append(given)
        return tuple(paths), m["name"] + (f"<{', '.join(out)}>" if m["params"] else "")


def _words(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size <= MOST_BYTES else ""
    except OSError:
        return ""


@lru_cache(maxsize=1024)
def _classes(words: str) -> list[tuple[re.Match[str], str]]:
    """The classes of a file, and what is between the braces of each."""
    return [(m, _body(words, m.end())) for m in _CLASS.finditer(words)]


def _fitting(words: str, types: frozenset[str], members: frozenset[str], made: bool, bodies: Mapping[str, str]) -> Iterator[tuple[float, re.Match[str], str]]:
    """The classes of a file that have all of these types and most of these members, with the share of those, and what is between their braces."""
    for m, own in _classes(words):
        body = "\n".join([own, *(bodies[base] for base in _WORD.findall(m["bases"] or "") if base in bodies)])
        if not all(name in body for name in types):
            continue
        has = set(_WORD.findall(body))
        plain = body.replace("_", "").lower()  # a macro of that name may be what declares it
        share = sum(x in has or x.replace("_", "").lower() in plain for x in members) / len(members) if members else 1.0
        if types <= has and share >= LEAST_SHARE and (not made or re.search(rf"\b{m['name']}\s*\(", own)):
            yield share, m, body


def _body(words: str, start: int) -> str:
    depth, k = 1, start
    for m in re.compile(r"[{}]").finditer(words, start):
        depth += 1 if m[0] == "{" else -1
        k = m.end()
        if not depth:
            break
    return words[start:k]


def _parameters(params: str) -> Iterator[tuple[str, str]]:
    """Kind and name of each parameter of a class template that has no default."""
    for piece in params.split(","):
        kind, _, default = piece.partition("=")
        words = _WORD.findall(kind)
        if not default and len(words) > 1:
            yield words[0], words[-1]


def _likely(kind: str, name: str) -> str:
    """A likely argument for a parameter."""
    if kind in _TYPE:
        return likely(TParam(name, "type"))
    if kind == "bool":
        return "false"
    return likely(TParam(name, "value")) if kind in ("int", "unsigned", "uint32_t", "size_t", "constexpr") else f"static_cast<{kind}>(0)"


__all__ = ["Class", "offered"]
