"""The registry of plugins: which modules a group of entry points offers, found without importing any of them.

A distribution names one *package* per group (``kir.passes``, ``kir.frontends``, ``kir.backends``). Every module of that
package whose name has no leading underscore is one entry, named as the file with hyphens for underscores
(``stage_shared.py`` is ``stage-shared``). A subpackage whose ``__init__`` says nothing but a docstring is a *family*: its modules
are entries as well. Modules are imported on first use; one that fails is reported as
:class:`Broken` and disturbs no other. The packages shipped with KIR are known even when no metadata is installed.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Literal

import kir
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, did_you_mean, error, usage

Group = Literal["kir.passes", "kir.frontends", "kir.backends"]
GROUPS: tuple[Group, ...] = ("kir.passes", "kir.frontends", "kir.backends")
"""The groups. KIR ships one package for each, of the same name as the group."""

DISTRIBUTION = "kernel-lineage"
"""The distribution that KIR itself is installed as."""


@dataclass(frozen=True)
class Source:
    """A package that one distribution offers to one group."""

    package: str
    distribution: str
    version: str


@dataclass(frozen=True)
class Provenance:
    """Where a plugin's code came from, as every trace records it; ``sha256`` is that of the module's file."""

    distribution: str
    version: str
    module: str
    sha256: str


@dataclass(frozen=True)
class Entry:
    """One module of a group, not imported: ``name`` (``stage-shared``), dotted ``module``, ``file`` on disk, and ``family``, the
    subpackages between the package and the module (``staging``; "" for a module of the package itself)."""

    name: str
    module: str
    file: Path
    source: Source
    family: str = ""

    def provenance(self) -> Provenance:
        """The entry's provenance, with the hash of its file as it is now."""
        digest = hashlib.sha256(self.file.read_bytes()).hexdigest()
        return Provenance(self.source.distribution, self.source.version, self.module, digest)


@dataclass(frozen=True)
class Broken:
    """A plugin, or one module of it, that cannot be used: ``name`` as it would be called, and why."""

    name: str
    distribution: str
    reason: str

    def diagnostic(self) -> Diagnostic:
        """The same as a warning, for lists in which everything else works."""
        return Diagnostic("KIR-X003", f"'{self.name}' of {self.distribution} cannot be used: {self.reason}", severity="warning")


class Registry:
    """The entries of one group. Build one with :func:`registry`, or from explicit sources in a test."""

    def __init__(self, group: Group, sources: Iterable[Source]) -> None:
        self.group: Group = group
        self.sources = tuple(sources)
        found: dict[str, list[Entry]] = {}
        broken: list[Broken] = []
        for source in self.sources:
            locations = _package_path(source.package)
            if locations is None:
                broken.append(Broken(source.package, source.distribution, f"there is no package {source.package}"))
                continue
            for entry in _entries(source, locations):
                found.setdefault(entry.name, []).append(entry)
        self.entries: Mapping[str, Entry] = MappingProxyType({name: found[name][0] for name in sorted(found) if len(found[name]) == 1})
        self.clashes: Mapping[str, tuple[Entry, ...]] = MappingProxyType(
            {name: tuple(found[name]) for name in sorted(found) if len(found[name]) > 1}
        )
        self._broken = tuple(broken)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def entry(self, name: str) -> Entry:
        """The entry called ``name``.

        Raises :class:`kir.base.diagnostic.UsageError` (KIR-X002) for an unknown name, with the nearest ones, and
        :class:`KirError` (KIR-X004) for a name that two modules claim, of two distributions or of two families.
        """
        if name in self.clashes:
            claims = self.clashes[name]
            raise error(
                "KIR-X004",
                f"'{name}' is offered by more than one {'distribution' if len({each.source for each in claims}) > 1 else 'module'}",
                subject=self.group,
                witness=tuple(f"{each.module} of {each.source.distribution} {each.source.version}" for each in claims),
                needs="one module for each name: rename one, or uninstall its distribution",
            )
        if name not in self.entries:
            kind = {"kir.passes": "pass", "kir.frontends": "frontend", "kir.backends": "backend"}[self.group]
            hint = did_you_mean(name, [*self.entries, *self.clashes])
            raise usage("KIR-X002", f"there is no {kind} '{name}'{f'; {hint}' if hint else ''}", attempt="kir passes" if kind == "pass" else "kir plugins")
        return self.entries[name]

    def load(self, name: str) -> ModuleType:
        """Import the module called ``name`` and return it.

        Raises what :meth:`entry` raises, and :class:`KirError` (KIR-X003) when the module's import fails.
        """
        entry = self.entry(name)
        outcome = _import(entry)
        if isinstance(outcome, Broken):
            raise KirError(
                Diagnostic(
                    "KIR-X003",
                    f"'{name}' of {entry.source.distribution} cannot be used: {outcome.reason}",
                    subject=self.group,
                    notes=(f"its file is {entry.file}",),
                )
            )
        return outcome

    def load_all(self) -> tuple[Mapping[str, ModuleType], tuple[Broken, ...]]:
        """Import every entry: the modules by name, and what is broken (packages, modules and name clashes)."""
        modules: dict[str, ModuleType] = {}
        broken = list(self.broken())
        for entry in self:
            outcome = _import(entry)
            if isinstance(outcome, Broken):
                broken.append(outcome)
            else:
                modules[entry.name] = outcome
        return MappingProxyType(modules), tuple(broken)

    def broken(self) -> tuple[Broken, ...]:
        """What is known to be broken without importing anything: absent packages and name clashes."""
        clashes = [
            Broken(name, each.source.distribution, f"its name clashes with {', '.join(_rivals(claims, each))}")
            for name, claims in self.clashes.items()
            for each in claims
        ]
        return (*self._broken, *clashes)


@cache
def registry(group: Group) -> Registry:
    """The registry of ``group`` as installed in this environment."""
    return Registry(group, _installed(group))


def _installed(group: Group) -> Sequence[Source]:
    """The packages that installed distributions offer to ``group``, KIR's own first, each package once."""
    sources: dict[str, Source] = {group: Source(group, DISTRIBUTION, kir.__version__)}
    if not _others(group):
        return tuple(sources.values())
    from importlib import metadata

    for point in sorted(metadata.entry_points(group=group), key=lambda each: each.value):
        package = point.value.partition(":")[0].strip()
        if package not in sources and point.dist is not None:
            sources[package] = Source(package, point.dist.name, point.dist.version)
    return tuple(sources.values())


def _others(group: Group) -> bool:
    """Whether the files of installed distributions may name a package of this group beside KIR's own: reading them right takes as long as a
    third of all passes. Where they are kept otherwise than in folders, they may."""
    finders = [each for each in sys.meta_path if hasattr(each, "find_distributions") and each is not PathFinder]
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")
        except NotADirectoryError:
            return True
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info", ".egg")):
                for place in ("entry_points.txt", "EGG-INFO/entry_points.txt"):
                    with suppress(OSError), open(os.path.join(folder, name, place), encoding="utf-8", errors="replace") as held:
                        if any(package != group for package in _named(held, group)):
                            return True
    return bool(finders)


def _named(lines: Iterable[str], group: Group) -> Iterator[str]:
    """What the lines of an `entry_points.txt` name in a group."""
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == group and "=" in line:
            yield line.partition("=")[2].partition(":")[0].strip()


def _package_path(package: str) -> Sequence[str] | None:
    """The folders of a dotted package, found without running its code; None when it is no package."""
    path: Sequence[str] | None = None
    parts = package.split(".")
    for index in range(len(parts)):
        spec = _find(".".join(parts[: index + 1]), path)
        if spec is None or spec.submodule_search_locations is None:
            return None
        path = list(spec.submodule_search_locations)
    return path


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec(name, path) if find_spec is not None else None
        if isinstance(spec, ModuleSpec):
            return spec
    return None


def _entries(source: Source, locations: Sequence[str], family: str = "") -> Iterator[Entry]:
    """The entries of a package and of its families."""
    for name, file in _modules(locations):
        if file.name == "__init__.py" and _is_family(file):
            yield from _entries(source, [str(file.parent)], f"{family}.{name}".lstrip("."))
        else:
            module = ".".join(part for part in (source.package, family, name) if part)
            yield Entry(name.replace("_", "-"), module, file, source, family)


def _is_family(init: Path) -> bool:
    """Whether a package says nothing but a docstring, and holds modules."""
    text = init.read_text(encoding="utf-8", errors="replace").strip()
    return re.fullmatch(r'(?s)("""(?:(?!""").)*""")?', text) is not None and any(file != init for file in init.parent.glob("*.py"))


def _modules(locations: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Names and files of the public modules and packages in the folders, in order of name."""
    seen: dict[str, Path] = {}
    for location in locations:
        for name in os.listdir(location) if os.path.isdir(location) else ():
            stem, dot, kind = name.rpartition(".")
            init = os.path.join(location, name, "__init__.py")
            file = name if dot and kind == "py" else init if name.isidentifier() and os.path.isfile(init) else None
            stem = stem if file == name else name
            if file is not None and stem.isidentifier() and not name.startswith("_"):
                seen.setdefault(stem, Path(location, file))
    return iter(sorted(seen.items()))


def _import(entry: Entry) -> ModuleType | Broken:
    """Import one entry. Whatever a plugin raises on import is its own fault and is reported, never raised."""
    try:
        return importlib.import_module(entry.module)
    except KirError as fault:
        reason = "; ".join(each.message for each in fault.diagnostics)
    except (Exception, SystemExit) as fault:
        reason = f"{type(fault).__name__}: {fault}"
    return Broken(entry.name, entry.source.distribution, reason)


def _rivals(claims: Sequence[Entry], own: Entry) -> list[str]:
    return [f"{each.module} of {each.source.distribution}" for each in claims if each is not own]
