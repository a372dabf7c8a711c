"""Classes that a template's type parameter may be, where nobody names one: those of the project that have what the kernel asks of it. For counting what of a
package is read, as `template_candidates` is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..source.source import Unit
from ..source.syntax import text
from ..source.tree import Project, common
from ..symbols.index import Index
from ..symbols.symbols import Function, TParam
from ..symbols.template_candidates import likely

MOST_CLASSES, MOST_HEADERS, MOST_FOLLOWED, LEAST_SHARE = 3, 400, 12, 0.6
"""Classes that are offered for a parameter; headers that are looked into; functions that are followed; the share of the members that a class must have
(the rest may come of its bases and of macros)."""
_CLASS = re.compile(r"(?:template\s*<(?P<params>[^{};]*?)>\s*)?\b(?:struct|class)\s+(?:(?:alignas|__align__)\s*\([^()]*\)\s*)?(?P<name>\w+)\s*(?:final\s*)?"
                    r"(?::(?!:)(?P<bases>[^{;]*))?\{")
_WORD = re.compile(r"[A-Za-z_]\w*")


def asked(fn: Function, index: Index) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """By type parameter: the types that a kernel, and what it hands it to, name in it, and the members that they name of objects of it."""
    out: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    shown = list(_texts(fn, index, {p.name for p in fn.params or () if p.kind == "type"}))
    for p in fn.params or ():
        if p.kind != "type" or p.pack:
            continue
        types, members = set[str](), set[str]()
        for words in shown:
            types |= set(re.findall(rf"\b{p.name}\s*::\s*(?:template\s+)?(\w+)", words))
            objects = set(re.findall(rf"\b{p.name}\s*[&*]?\s*(?:const\s+)?(\w+)\s*(?=[,)({{;=])", words)) - {p.name}
            for name in objects:
                members |= set(re.findall(rf"\b{name}\s*(?:\.|->)\s*(?:template\s+)?(\w+)", words))
        if types or len(members) > 1:
            out[p.name] = (frozenset(types), frozenset(members))
    return out


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


def offered(fn: Function, index: Index, units: Sequence[Unit], project: Project) -> dict[str, list[tuple[Path, str]]]:
    """For each type parameter that must be a class: classes that fit with the arguments that they take, and the file of each, the likeliest first."""
    needs = asked(fn, index)
    out: dict[str, list[tuple[Path, str]]] = {}
    if not needs:
        return out
    own = {u.path.resolve(): u.text.decode(errors="replace") for u in units}
    here = fn.unit.path.resolve()
    rest = sorted((p for found in project.headers.values() for p in found if p.resolve() not in own), key=lambda p: (-common(p, here), str(p)))[:MOST_HEADERS]
    every = frozenset(x for types, members in needs.values() for x in types | members)
    read = list(_files(own, rest, every))
    bodies = {m["name"]: _body(words, m.end()) for _, words in reversed(read) for m in _CLASS.finditer(words)}
    for name, (types, members) in needs.items():
        found = [(share, k, path, made) for k, (path, words) in enumerate(read) for share, made in _fitting(words, types, members, bodies)]
        out[name] = [(path, made) for _, _, path, made in sorted(found, key=lambda x: (-x[0], x[2] not in own, x[1]))][:MOST_CLASSES]
    return {k: v for k, v in out.items() if v}


def _files(own: Mapping[Path, str], rest: Sequence[Path], names: frozenset[str]) -> Iterator[tuple[Path, str]]:
    yield from own.items()
    for path in rest:
        try:
            words = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if any(name in words for name in names):
            yield path, words


def _fitting(words: str, types: frozenset[str], members: frozenset[str], bodies: Mapping[str, str]) -> Iterator[tuple[float, str]]:
    """The classes of a file that have all of these types and most of these members, with the share of those."""
    for m in _CLASS.finditer(words):
        name, of = m["name"], [bodies[base] for base in _WORD.findall(m["bases"] or "") if base in bodies]
        body = "\n".join([_body(words, m.end()), *of])
        has = set(_WORD.findall(body))
        plain = body.replace("_", "").lower()  # a macro of that name may be what declares it
        share = sum(x in has or x.replace("_", "").lower() in plain for x in members) / len(members) if members else 1.0
        if types <= has and share >= LEAST_SHARE:
            yield share, name + (f"<{', '.join(_arguments(m['params']))}>" if m["params"] else "")


def _body(words: str, start: int) -> str:
    depth, k = 1, start
    for m in re.compile(r"[{}]").finditer(words, start):
        depth += 1 if m[0] == "{" else -1
        k = m.end()
        if not depth:
            break
    return words[start:k]


def _arguments(params: str) -> Iterator[str]:
    """A likely argument for each parameter of a class template that has no default."""
    for piece in params.split(","):
        kind, _, default = piece.partition("=")
        words = _WORD.findall(kind)
        if default or len(words) < 2:
            continue
        if words[0] in ("typename", "class"):
            yield likely(TParam(words[-1], "type"))
        elif words[0] == "bool":
            yield "false"
        else:
            yield likely(TParam(words[-1], "value")) if words[0] in ("int", "unsigned", "uint32_t", "size_t", "constexpr") else f"static_cast<{words[0]}>(0)"


__all__ = ["asked", "offered"]
