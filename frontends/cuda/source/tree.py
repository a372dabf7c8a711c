"""What lies around a file: the folder of its project, the headers in it by name, and what `compile_commands.json` says of include paths and macros."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from kir.base.dataclass import dataclass

MARKS = ("setup.py", "pyproject.toml", "PKG-INFO", "CMakeLists.txt", "compile_commands.json", ".git", "Makefile")
"""Files that stand at the top of a project."""
MOST_FILES = 20_000
"""Entries of a project that are looked at."""
DEEPEST = 4
"""Headers between a header and the unit that it is read in, at most."""
HIGHEST = 12
"""Folders above a file that are looked at."""
_HEADERS = (".h", ".hh", ".hpp", ".cuh", ".inc", ".inl", ".cu", ".hxx")
_INSTALLED = ("site-packages", "dist-packages")
_BUILDS = ("", "build", "out", "cmake-build-release")


@dataclass(frozen=True)
class Project:
    """The folder of a project (None: nothing marks one) and its headers by their file names."""

    root: Path | None
    headers: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    def header(self, name: str, by: Path) -> Path | None:
        """The header that an include names, as its path ends; of several the one nearest to the file that names it."""
        parts = Path(name).parts
        while parts[:1] in (("..",), (".",)):
            parts = parts[1:]
        found = [p for p in self.headers.get(Path(name).name, ()) if p.parts[-len(parts):] == parts]
        return min(found, key=lambda p: (-common(p, by), len(p.parts), str(p)), default=None)


def includer_of(header: Path, project: Project) -> Path | None:
    """The translation unit of a project that includes a header, itself or through others: of several the nearest."""
    texts: dict[Path, bytes] = {}
    found, seen = [header.resolve()], {header.resolve()}
    for _ in range(DEEPEST):
        names = [re.compile(rb'#\s*include\s*["<](?:[^">]*/)?' + re.escape(x.name.encode()) + rb'[">]') for x in found]
        found = []
        for path in sorted((p for paths in project.headers.values() for p in paths), key=lambda p: (-common(p, header), str(p))):
            if path not in texts:
                try:
                    texts[path] = path.read_bytes()
                except OSError:
                    texts[path] = b""
            if path.resolve() not in seen and any(x.search(texts[path]) for x in names):
                if path.suffix == ".cu":
                    return path
                found.append(path.resolve())
                seen.add(path.resolve())
        if not found:
            return None
    return None


def root_of(source: Path) -> Path | None:
    """The folder of the project around a file: the highest folder above it with one of `MARKS`, else the highest that is a Python package. What is
    installed is a project of its own, whatever project the environment lies in."""
    above = list(source.resolve().parents)[:HIGHEST]
    installed = next((k for k, p in enumerate(above) if p.name in _INSTALLED), len(above))
    above = [p for p in reversed(above[:installed]) if len(p.parts) > 2]
    return next((p for p in above if any((p / m).exists() for m in MARKS)), None) or next((p for p in above if (p / "__init__.py").exists()), None)


def project_of(source: Path) -> Project:
    """The project around a file, and the headers in it."""
    root = root_of(source)
    if root is None:
        return Project(None)
    headers: dict[str, list[Path]] = {}
    seen = 0
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(x for x in inner if not x.startswith(".") and x not in ("node_modules", "__pycache__", *_INSTALLED))
        seen += len(files) + len(inner)
        if seen > MOST_FILES:
            break
        for x in sorted(files):
            if x.endswith(_HEADERS):
                headers.setdefault(x, []).append(Path(folder) / x)
    return Project(root, {k: tuple(v) for k, v in headers.items()})


@dataclass(frozen=True)
class Build:
    """Include folders and macros of a build."""

    folders: tuple[Path, ...] = ()
    macros: tuple[tuple[str, str], ...] = ()


def build_of(source: Path) -> Build:
    """What the nearest `compile_commands.json` above a file says of it; of a file that it does not name, the folders of all that it does."""
    here = source.resolve()
    for folder in list(here.parents)[:HIGHEST]:
        for below in _BUILDS:
            listed = folder / below / "compile_commands.json"
            if listed.is_file():
                return _commands(listed, here)
    return Build()


def _commands(listed: Path, source: Path) -> Build:
    try:
        rows = json.loads(listed.read_text(encoding="utf-8"))
        rows = [r for r in rows if isinstance(r, dict)]
    except (OSError, ValueError, TypeError):
        return Build()
    own = [r for r in rows if (Path(str(r.get("directory", listed.parent))) / str(r.get("file", ""))).resolve() == source]
    folders: list[Path] = []
    macros: list[tuple[str, str]] = []
    for r in own or rows:
        given = r.get("arguments")
        try:
            words = [str(x) for x in given] if isinstance(given, list) else shlex.split(str(r.get("command", "")))
        except ValueError:
            continue
        base = Path(str(r.get("directory", listed.parent)))
        folders += [base / x for x in _options(words, ("-I", "-isystem", "--include-path", "-iquote"))]
        if own:
            macros += [(name, value or "1") for name, _, value in (x.partition("=") for x in _options(words, ("-D",)))]
    return Build(tuple(dict.fromkeys(folders)), tuple(macros))


def _options(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """What follows these options, joined to them or as the next word."""
    out = []
    for k, word in enumerate(words):
        for name in names:
            if word == name and k + 1 < len(words):
                out.append(words[k + 1])
            elif word.startswith(name) and word != name:
                out.append(word[len(name):].lstrip("="))
            else:
                continue
            break
    return out


def common(a: Path, b: Path) -> int:
    """How many folders two paths have in common."""
    return sum(1 for _ in _same(a.parts, b.parts))


def _same(a: Sequence[str], b: Sequence[str]) -> list[str]:
    out = []
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        out.append(x)
    return out
