"""A kernel's function out of its file with what it needs and nothing else: no package is imported for it, so none has to be whole.

Of a file only those statements of the module are carried out that bind a name which is asked for, or which such a statement reads, in their order. A name
from a file of the same package comes from there in the same way. A decorator with `jit` in its name becomes Triton's own, and those around it are left out:
what they choose is among the arguments. A module that is not here is stood in for, and a kernel that reads one is refused.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

BUILTIN = frozenset(vars(builtins))
COMPOUND = (ast.If, ast.Try, ast.With)
"""Statements whose parts are taken one by one."""


def function(path: Path, kernel: str, home: str = "") -> Any:
    """What Triton's decorator makes of the function `kernel` of a file, in `home`, the folder of its package. Raises LookupError where the module does
    not bind it, or where it reads what is not here."""
    module = source(path, home or _home(path))
    made = module.get(kernel)
    if made is None or not hasattr(made, "fn"):
        raise LookupError(f"{path.name} makes '{kernel}' when it is called")
    for name in sorted(module.read_by(kernel)):
        if isinstance(module.names.get(name), MagicMock):
            raise LookupError(f"'{kernel}' reads '{name}', which is not here")
    return made


def _home(path: Path) -> str:
    """The folder that holds the outermost package of a file."""
    folder = path.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return str(folder)


@cache
def source(path: Path, home: str) -> Source:
    """The one source of a file."""
    return Source(path, home)


class Module(ModuleType):
    """A file of a package as a module, whose names are made when they are asked for."""

    def __init__(self, name: str, of: Source) -> None:
        super().__init__(name)
        self.of = of

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = self.of.get(name)
        if found is None:
            raise AttributeError(name)
        return found


class Source:
    """A file whose names are made one after another: `names` are those that are there."""

    def __init__(self, path: Path, home: str) -> None:
        self.path, self.home = path, home
        self.body = ast.parse(path.read_text(encoding="utf-8", errors="replace")).body
        inside = path.relative_to(home).with_suffix("").parts if path.is_relative_to(home) else (path.stem,)
        self.package = inside[:-1]
        name = "kir_alone." + ".".join(inside)
        sys.modules[name] = made = ModuleType(name)  # where a dataclass looks for its own
        self.names = vars(made)
        self.names["__file__"] = str(path)
        self.done: set[str] = set()

    def get(self, name: str) -> Any:
        """The value of a name of the module; of a package also a file in it; None where there is none."""
        if name not in self.names and name not in self.done:
            self._make(name)
        if name in self.names:
            return self.names[name]
        return self._file((*self.package, name)) if self.path.name == "__init__.py" else None

    def read_by(self, name: str) -> set[str]:
        """The names that the statements which bind a name read, without what is in decorators."""
        return {r for s in _flat(self.body) if name in _binds(s) for r in _reads(_plain(s))}

    def _make(self, name: str) -> None:
        """Carry out what binds a name, and all that this reads."""
        wanted, fresh = {name}, {name}
        while fresh:
            fresh = {r for s in _flat(self.body) if _binds(s) & fresh for r in _reads(_plain(s))} - wanted - self.done - BUILTIN
            wanted |= fresh
        self.done |= wanted
        self._run(self.body, wanted)

    def _run(self, body: Iterable[ast.stmt], wanted: set[str]) -> None:
        for s in body:
            if not any(_binds(x) & wanted for x in _flat([s])):
                continue
            if isinstance(s, (ast.Import, ast.ImportFrom)):
                self._import(s, wanted)
            elif isinstance(s, ast.If):
                self._need(s.test)
                self._run(s.body if eval(compile(ast.Expression(s.test), str(self.path), "eval"), self.names) else s.orelse, wanted)
            elif isinstance(s, ast.Try):
                try:
                    self._run([*s.body, *s.orelse], wanted)
                except Exception:  # whatever the module itself would catch
                    self._run([x for h in s.handlers[:1] for x in h.body], wanted)
                self._run(s.finalbody, wanted)
            elif isinstance(s, ast.With):
                self._run(s.body, wanted)
            else:
                made = ast.Module([_plain(s)], [])
                exec(compile(ast.fix_missing_locations(made), str(self.path), "exec"), self.names)

    def _need(self, e: ast.expr) -> None:
        for name in _reads(e) - BUILTIN:
            self.get(name)

    def _import(self, s: ast.Import | ast.ImportFrom, wanted: set[str]) -> None:
        for a in s.names:
            if isinstance(s, ast.ImportFrom):
                base = (*self.package[: len(self.package) - s.level + 1],) if s.level else ()
                parts = (*base, *(s.module.split(".") if s.module else ()))
                if a.name == "*":
                    of = self._source(parts)
                    for name in wanted - self.names.keys():
                        found = of.get(name) if of is not None else getattr(_outer(".".join(parts)), name, None)
                        if found is not None:
                            self.names[name] = found
                elif (a.asname or a.name) in wanted:
                    self.names[a.asname or a.name] = self._taken(parts, a.name)
            elif (a.asname or a.name.partition(".")[0]) in wanted:
                parts = tuple(a.name.split("."))
                own = self._file(parts if a.asname else parts[:1])
                whole = _outer(a.name) if own is None else own
                self.names[a.asname or parts[0]] = whole if a.asname or own is not None or isinstance(whole, MagicMock) else _outer(parts[0])

    def _taken(self, parts: tuple[str, ...], name: str) -> Any:
        """`name` from a module."""
        of = self._source(parts)
        if of is None:
            whole = _outer(".".join(parts))
            found = getattr(whole, name, None)
            return found if found is not None else _outer(".".join((*parts, name)))
        found = of.get(name)
        if found is None:
            found = self._file((*parts, name))
        return MagicMock(name=name) if found is None else found

    def _file(self, parts: tuple[str, ...]) -> Module | None:
        of = self._source(parts)
        return None if of is None else Module(".".join(parts), of)

    def _source(self, parts: tuple[str, ...]) -> Source | None:
        """The source of a module of the same package."""
        if not parts or not self.package or parts[0] != self.package[0]:
            return None
        place = Path(self.home).joinpath(*parts)
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        return source(file, self.home) if file.exists() else None


def _outer(name: str) -> Any:
    """A module of another package, or what stands in for it."""
    try:
        return importlib.import_module(name)
    except Exception:  # whatever a package says
        return MagicMock(name=name)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under conditions too."""
    for s in body:
        if isinstance(s, COMPOUND):
            parts: list[Any] = [*s.body, *getattr(s, "orelse", []), *getattr(s, "finalbody", [])]
            yield from _flat([*parts, *(x for h in getattr(s, "handlers", []) for x in h.body)])
        else:
            yield s


def _binds(s: ast.stmt) -> set[str]:
    """The names that a statement binds in the module; of `import *` any (the empty name is not asked for)."""
    if isinstance(s, (ast.FunctionDef, ast.ClassDef)):
        return {s.name}
    if isinstance(s, ast.ImportFrom) and s.names[0].name == "*":
        return _All()
    if isinstance(s, (ast.Import, ast.ImportFrom)):
        return {a.asname or (a.name if isinstance(s, ast.ImportFrom) else a.name.partition(".")[0]) for a in s.names}
    return {x.id for x in ast.walk(s) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}


class _All(set[str]):
    """All names."""

    def __and__(self, other: Any) -> set[str]:
        return set(other)

    def __contains__(self, name: object) -> bool:
        return True


def _reads(s: ast.AST) -> set[str]:
    return {x.id for x in ast.walk(s) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}


def _plain(s: ast.stmt) -> ast.stmt:
    """A function that is compiled under Triton's decorator alone, at the place of its first, from where its text is taken."""
    if not isinstance(s, ast.FunctionDef) or not any("jit" in ast.unparse(d).partition("(")[0] for d in s.decorator_list):
        return s
    first = s.decorator_list[0]
    jit = ast.parse("__import__('triton').jit", mode="eval").body
    for x in ast.walk(jit):
        ast.copy_location(x, first)
    out = ast.FunctionDef(s.name, s.args, s.body, [jit], s.returns, s.type_comment)
    return ast.copy_location(out, s)
